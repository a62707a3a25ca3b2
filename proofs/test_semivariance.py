"""semivariance: one pass is not enough (unbounded-rank).

    semivariance(x[l]):
        return sum(minimum(x - sum(x, l) / size(l), 0.0) ** 2, l) / size(l)

s2 = sum(minimum(x[l] - s / size(l), 0.0) ** 2, l): unbounded-rank: F(x; p) is not a sum of finitely many products
g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 455/36, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 676/729 (n = 1), 1352/19683 (n = 2), 676/531441 (n = 3), -3.4025e-05 (n = 4), 1.00348e-06 (n = 5),
-3.7166e-08 (n = 6), 1.37652e-09 (n = 7), -5.09822e-11 (n = 8), -3.47287e-16 (n = 12), -1.21015e-23 (n = 16),
-2.27711e-29 (n = 20), 4.28479e-35 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 2601/16 for (x = 1) and 2209/16 for (x = 2) at p1 = 55/4, but 2809/4 and 2601/4 at p1 = 55/2: no factor
moves both.
det [F(x_i; p_j)] is 2601/16 (n = 1), 70015/8 (n = 2), 147125/162 (n = 3), -158.027 (n = 4), 13.2994 (n = 5), -3.32484
(n = 6), 0.831211 (n = 7), -42.0606 (n = 8), 7.04522 (n = 12): no form with fewer than 12 components fits these
points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: s | s2.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return np.minimum(x - np.sum(x) / len(x), 0) ** 2


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [0, 1, 2, 12, 13, 11, 14, 15, 16, 4, 17, 18]
SUFFIXES = [
    {"x": ["81/4"]},
    {"x": ["783/2"]},
    {"x": ["-39/4"]},
    {"x": ["281/4"]},
    {"x": ["405/2"]},
    {"x": ["-81/2"]},
    {"x": ["81/2"]},
    {"x": ["29/4"]},
    {"x": ["481/4"]},
    {"x": ["-459/2"]},
    {"x": ["361/4"]},
    {"x": ["621/2"]},
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
DETERMINANTS = {
    1: "2601/16",
    2: "70015/8",
    3: "147125/162",
    4: "-298601875/1889568",
    5: "804161995/60466176",
    6: "-804161995/241864704",
    7: "804161995/967458816",
    8: "-824010403307/19591041024",
    12: "112667465008179478033/15992037016835457024",
}


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
    for n in ORDERS:
        found = determinant([row[:n] for row in matrix[:n]])
        assert found != 0 and found == Fraction(DETERMINANTS.get(n, found)), n
