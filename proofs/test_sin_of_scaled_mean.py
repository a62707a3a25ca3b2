"""sin_of_scaled_mean: one pass is not enough (unbounded-rank).

    sin_of_scaled_mean(x[l]):
        return sum(sin(x * (sum(x, l) / size(l))), l)

s2 = sum(sin(x[l] * (s / size(l))), l): unbounded-rank: F(x; p) is not a sum of finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 12.6389, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant -6.15521 (n = 1), 111.553 (n = 2), 7559.31 (n = 3), -123467 (n = 4), -3.74225e+06 (n = 5),
-3.40569e+08 (n = 6), -1.268347695e+10 (n = 7), 9.270749870e+11 (n = 8), -2.176024517e+18 (n = 12), -2.283620178e+23
(n = 16), -1.098276952e+28 (n = 20), 5.212367661e+30 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 0.841471 for (x = 2) and 0.997495 for (x = 3) at p1 = 1/2, but 0.69924 and -0.397963 at p1 = 55/4: no
factor moves both.
det [F(x_i; p_j)] is 0.841471 (n = 1), -1.03236 (n = 2), -2.16022 (n = 3), -2.32031 (n = 4), -3.36314 (n = 5),
-10.1831 (n = 6), 20.5779 (n = 7), -85.4822 (n = 8), 4435.2 (n = 12): no form with fewer than 12 components fits these
points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s | s2.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


sin_of = np.frompyfunc(mpmath.sin, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return sin_of(x * (np.sum(x) / len(x)))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [1, 2, 0, 19, 6, 4, 5, 21, 11, 3, 9, 15]
SUFFIXES = [
    {"x": ["-675/2"]},
    {"x": ["81/4"]},
    {"x": ["783/2"]},
    {"x": ["-39/4"]},
    {"x": ["281/4"]},
    {"x": ["1755/2"]},
    {"x": ["27/2"]},
    {"x": ["405/2"]},
    {"x": ["-81/2"]},
    {"x": ["81/2"]},
    {"x": ["1377/2"]},
    {"x": ["29/4"]},
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
