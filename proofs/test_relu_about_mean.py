"""relu_about_mean: one pass is not enough (unbounded-rank).

    relu_about_mean(x[l]):
        return sum(maximum(x - sum(x, l) / size(l), 0), l)

s2 = sum(maximum(x[l] - s / size(l), 0), l): unbounded-rank: F(x; p) is not a sum of finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = -39/4; x = 281/4; …, which steer p1 = 1/2, 55/4, 455/36, 1685/108, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 1/27 (n = 1), 1/27 (n = 2), 1/27 (n = 3), 1/27 (n = 4), 1/27 (n = 5), 1/27 (n = 6), 1/27 (n = 7),
1/27 (n = 8), 1/27 (n = 12), 1/27 (n = 16), 1/27 (n = 20), 1/27 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (x = 1) and 27/2 for (x = 14) at p1 = 1/2, but 0 and 1/4 at p1 = 55/4: no factor moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), 1/8 (n = 2), 13/288 (n = 3), 559/31104 (n = 4), 559/62208 (n = 5), 559/124416 (n =
6), 559/248832 (n = 7), 0.00122725 (n = 8), 0.000199834 (n = 12): no form with fewer than 12 components fits these
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
    return np.maximum(x - np.sum(x) / len(x), 0)


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [0, 13, 12, 15, 20, 11, 14, 17, 4, 16, 24, 18]
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
    2: "1/8",
    3: "13/288",
    4: "559/31104",
    5: "559/62208",
    6: "559/124416",
    7: "559/248832",
    8: "32981/26873856",
    12: "250556657/1253826625536",
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
