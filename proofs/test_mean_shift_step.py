"""mean_shift_step: one pass is not enough (unbounded-rank).

    mean_shift_step(x[l]):
        t1 = exp(-0.5 * (x - sum(x, l) / size(l)) ** 2)
        d1 = sum(t1, l)
        return sum(t1 * x, l) / d1, d1 / size(l)

s2 = sum(exp(-0.5 * (x[l] - s / size(l)) ** 2) * x[l], l): unbounded-rank: F(x; p) is not a sum of finitely many
products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 12.6389, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 0.833145 (n = 1), 0.332457 (n = 2), 0.349484 (n = 3), 0.140787 (n = 4), 0.0443179 (n = 5),
0.00574028 (n = 6), -0.000418193 (n = 7), -0.000118392 (n = 8), -7.029494443e-14 (n = 12), 8.814679981e-23 (n = 16),
1.033752216e-45 (n = 20), 1.166281537e-82 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 0.882497 for (x = 1) and 1.529984227e-33 for (x = 13) at p1 = 1/2, but 5.011891295e-36 and 9.81291 at p1
= 55/4: no factor moves both.
det [F(x_i; p_j)] is 0.882497 (n = 1), 8.65987 (n = 2), 73.0976 (n = 3), -825.822 (n = 4), -8263 (n = 5),
7.520568027e-79 (n = 6), -7.769592461e-79 (n = 7), -1.371328256e-77 (n = 8), -1.387401453e-117 (n = 12): no form with
fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s | s2, s3.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


exp_of = np.frompyfunc(mpmath.exp, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return exp_of(number("-0.5") * (x - np.sum(x) / len(x)) ** 2) * x


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [0, 12, 25, 13, 14, 24, 11, 19, 10, 15, 23, 16]
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
