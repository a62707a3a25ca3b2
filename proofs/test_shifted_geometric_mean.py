"""shifted_geometric_mean: one pass is not enough (unbounded-rank).

    shifted_geometric_mean(x[l]):
        d1 = min(x, l)
        return exp(sum(log(x - d1 + 1.0), l) / size(l)) - 1.0 + d1

s = sum(log(x[l] - n + 1.0), l): unbounded-rank: F(x; p) is not a sum of finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 0.0308978 (n = 1), 0.0111899 (n = 2), 0.000383822 (n = 3), -6.111880864e-6 (n = 4),
-3.378572160e-9 (n = 5), 2.933871034e-14 (n = 6), 3.802106665e-17 (n = 7), -1.510693532e-22 (n = 8), -1.732476287e-57
(n = 12), -2.591544077e-116 (n = 16), -1.564136639e-183 (n = 20), 6.709554517e-274 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 5.82747 for (x = 1) and 5.84788 for (x = 8) after the suffix (x = -675/2), but 0 and 2.07944 after the
suffix (x = 81/4): no factor moves both.
det [F(x_i; p_j)] is 5.82747 (n = 1), 12.1179 (n = 2), 3.12168 (n = 3), 0.02937 (n = 4), 7.783782052e-6 (n = 5),
6.906383559e-8 (n = 6), 2.312339979e-12 (n = 7), -1.327460726e-18 (n = 8), -7.765445946e-56 (n = 12): no form with
fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: n | s.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


log_of = np.frompyfunc(mpmath.log, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return log_of(x - np.min(x) + 1)


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [0, 7, 18, 1, 23, 3, 11, 25, 2, 5, 14, 21]
SUFFIXES = [
    {"x": ["-675/2"]},
    {"x": ["81/4"]},
    {"x": ["-39/4"]},
    {"x": ["-81/2"]},
    {"x": ["-459/2"]},
    {"x": ["1/4"]},
    {"x": ["-79/4"]},
    {"x": ["-243/2"]},
    {"x": ["-621/2"]},
    {"x": ["-19/4"]},
    {"x": ["-139/4"]},
    {"x": ["-405/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["x"], suffix["x"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 12)


def determinant(rows):
    """By elimination with the largest entry of each column."""
    rows, product = [list(row) for row in rows], 1
    for at in range(len(rows)):
        place = max(range(at, len(rows)), key=lambda row: abs(rows[row][at]))
        if rows[place][at] == 0:
            return 0
        if place != at:
            rows[at], rows[place], product = rows[place], rows[at], -product
        product *= rows[at][at]
        for row in rows[at + 1 :]:
            factor = row[at] / rows[at][at]
            row[at:] = [a - factor * b for a, b in zip(row[at:], rows[at][at:], strict=True)]
    return product


def test_no_form_with_fewer_components_fits_these_points():
    """det [F(x_i; p_j)] is not 0 for n = 1 … 8 and 12: F is no sum of fewer than 12 products g(x)·h(p)."""
    matrix = table()
    with mpmath.workdps(1200):
        again = table()
    for n in ORDERS:
        found = determinant([row[:n] for row in matrix[:n]])
        with mpmath.workdps(1200):
            better = determinant([row[:n] for row in again[:n]])
        assert found != 0 and abs(found - better) < abs(better) * mpmath.mpf(10) ** -20, n
