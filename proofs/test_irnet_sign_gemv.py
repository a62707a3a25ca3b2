"""irnet_sign_gemv: one pass is not enough (threshold).

    irnet_sign_gemv(w[l], x[l]):
        return sum(sign(w - sum(w, l) / size(l)) * x, l)

s2 = sum(sign(w[l] - s / size(l)) * x[l], l): threshold: which elements take part depends on a pivot that moves.
Prefix: w = 1, 2, 3, 4, …, 26; x = 1/2.
Suffixes: w = -324, x = 1/2; w = -675/2, x = 1/2; w = -297, x = 1/2; w = 81/4, x = 1/2; …, which steer p1 = 1, 1/2, 2,
55/4, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 1 (n = 1), 1 (n = 2), 1 (n = 3), 2 (n = 4), 2 (n = 5), 2 (n = 6), 4 (n = 7), 4 (n = 8), 8 (n =
12), 32 (n = 16), 128 (n = 20), 256 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (w = 2, x = 1/2) and 0 for (w = 1, x = 1/2) at p1 = 1, but 1/2 and 1/2 at p1 = 1/2: no factor
moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), 1/4 (n = 2), 1/8 (n = 3), 1/8 (n = 4), 1/16 (n = 5), 1/32 (n = 6), 1/32 (n = 7),
1/64 (n = 8), 1/512 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: s | s2.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(w, x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return np.sign(w - np.sum(w) / len(w)) * x


PREFIX = {
    "w": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
    "x": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [1, 0, 2, 13, 3, 4, 12, 5, 15, 6, 7, 8]
SUFFIXES = [
    {"w": [-324], "x": ["1/2"]},
    {"w": ["-675/2"], "x": ["1/2"]},
    {"w": [-297], "x": ["1/2"]},
    {"w": ["81/4"], "x": ["1/2"]},
    {"w": [-270], "x": ["1/2"]},
    {"w": [-243], "x": ["1/2"]},
    {"w": ["-39/4"], "x": ["1/2"]},
    {"w": [-216], "x": ["1/2"]},
    {"w": ["281/4"], "x": ["1/2"]},
    {"w": [-189], "x": ["1/2"]},
    {"w": [-162], "x": ["1/2"]},
    {"w": [-135], "x": ["1/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["w"], suffix["w"], axis=0), numbers(PREFIX["x"], suffix["x"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 12)
DETERMINANTS = {
    1: "1/2",
    2: "1/4",
    3: "1/8",
    4: "1/8",
    5: "1/16",
    6: "1/32",
    7: "1/32",
    8: "1/64",
    12: "1/512",
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
