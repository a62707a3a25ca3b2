"""twn_ternary_alpha: one pass is not enough (threshold).

    twn_ternary_alpha(w[l]):
        t1 = abs(w)
        t2 = t1 > 0.7 * (sum(t1, l) / size(l))
        return sum(t1, l, where=t2) / sum(1, l, where=t2)

s2 = sum(abs(w[l]), l, where=abs(w[l]) > 0.7 * (s / size(l))): threshold: which elements take part depends on a pivot
that moves.
Prefix: w = 1, 2, 3, 4, …, 52.
Suffixes: w = -2703/2; w = 165/4; w = 3021/2; w = 581/4; …, which steer p1 = 721/20, 39739/2120, 763/20, 42651/2120,
….
The Jacobian of the results after n suffixes by n numbers of the prefix (w)
has the determinant 1/17 (n = 1), 1/595 (n = 2), 1/8925 (n = 3), 1/294525 (n = 4), 1/7952175 (n = 5), 1/230613075 (n =
6), 1/7840844550 (n = 7), 3.18843e-11 (n = 8), 4.44815e-16 (n = 12), 5.28033e-21 (n = 16), 5.1228e-26 (n = 20),
1.48229e-30 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 37 for (w = 37) and 0 for (w = 19) at p1 = 721/20, but 37 and 19 at p1 = 39739/2120: no factor moves
both.
det [F(x_i; p_j)] is 37 (n = 1), 703 (n = 2), 27417 (n = 3), 575757 (n = 4), 15545439 (n = 5), 388635975 (n = 6),
7772719500 (n = 7), 388635975000 (n = 8), 4.13922e+17 (n = 12): no form with fewer than 12 components fits these
points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: s | s2, s3.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(w):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return np.where(np.abs(w) > number("0.7") * (np.sum(np.abs(w)) / len(w)), np.abs(w), 0)


PREFIX = {
    "w": [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
        30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52,
    ],
}
ELEMENTS = [36, 18, 38, 20, 26, 24, 19, 49, 21, 37, 25, 48]
SUFFIXES = [
    {"w": ["-2703/2"]},
    {"w": ["165/4"]},
    {"w": ["3021/2"]},
    {"w": ["581/4"]},
    {"w": ["1219/2"]},
    {"w": ["-1007/2"]},
    {"w": ["281/4"]},
    {"w": ["4717/2"]},
    {"w": ["881/4"]},
    {"w": ["2915/2"]},
    {"w": ["1113/2"]},
    {"w": ["4611/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["w"], suffix["w"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 12)
DETERMINANTS = {
    1: "37",
    2: "703",
    3: "27417",
    4: "575757",
    5: "15545439",
    6: "388635975",
    7: "7772719500",
    8: "388635975000",
    12: "413922186077400000",
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
