"""mean_absolute_deviation: one pass is not enough (unbounded-rank).

    mean_absolute_deviation(x[l]):
        return sum(abs(x - sum(x, l) / size(l)), l) / size(l)

s2 = sum(abs(x[l] - s / size(l)), l): unbounded-rank: F(x; p) is not a sum of finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = -39/4; x = 281/4; …, which steer p1 = 1/2, 55/4, 455/36, 1685/108, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 2/729 (n = 1), 4/19683 (n = 2), 8/531441 (n = 3), 16/14348907 (n = 4), 32/387420489 (n = 5),
6.11834e-09 (n = 6), 4.5321e-10 (n = 7), 3.35711e-11 (n = 8), 1.01072e-15 (n = 12), 3.04296e-20 (n = 16), 9.16138e-25
(n = 20), 2.7582e-29 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (x = 1) and 3/2 for (x = 2) at p1 = 1/2, but 51/4 and 47/4 at p1 = 55/4: no factor moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), -53/4 (n = 2), -689/72 (n = 3), 21203/3888 (n = 4), -2795/486 (n = 5), -2795/486 (n
= 6), -2795/486 (n = 7), -6.28353 (n = 8), 19.6444 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: s | s2.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return np.abs(x - np.sum(x) / len(x))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [0, 1, 12, 13, 15, 11, 14, 17, 4, 16, 20, 18]
SUFFIXES = [
    {"x": ["-675/2"]},
    {"x": ["81/4"]},
    {"x": ["-39/4"]},
    {"x": ["281/4"]},
    {"x": ["405/2"]},
    {"x": ["-81/2"]},
    {"x": ["81/2"]},
    {"x": ["481/4"]},
    {"x": ["-459/2"]},
    {"x": ["361/4"]},
    {"x": ["621/2"]},
    {"x": ["541/4"]},
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
    1: "1/2",
    2: "-53/4",
    3: "-689/72",
    4: "21203/3888",
    5: "-2795/486",
    6: "-2795/486",
    7: "-2795/486",
    8: "-164905/26244",
    12: "250556657/12754584",
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
