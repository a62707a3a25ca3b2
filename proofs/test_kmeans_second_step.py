"""kmeans_second_step: one pass is not enough (threshold).

    kmeans_second_step(x[l]):
        t1 = where(abs(x - -1.0) < abs(x - 1.0), 1.0, 0.0)
        t2 = 1.0 - t1
        t3 = where(abs(x - sum(x * t1, l) / maximum(sum(t1, l), 1.0)) < abs(x - sum(x * t2, l) / maximum(sum(t2, l),
                1.0)), 1.0, 0.0)
        t4 = 1.0 - t3
        return sum(x * t3, l) / maximum(sum(t3, l), 1.0), sum(x * t4, l) / maximum(sum(t4, l), 1.0)

s5 = sum(x[l] * where(abs(x[l] - s / maximum(s2, 1.0)) < abs(x[l] - s3 / maximum(s4, 1.0)), 1.0, 0.0), l): threshold:
which elements take part depends on a pivot that moves.
Prefix: x = 9/8, 17/8, 25/8, 33/8, …, 417/8.
Suffixes: x = 331/8; x = 12085/8; x = 1163/8; x = 26077/8; …, which steer p1 = 0, 0, 0, 0, …, p2 = 11407/424, 437/8,
12239/424, 701/8, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 1/13 (n = 1), 1/351 (n = 2), -1/4914 (n = 3), -1/211302 (n = 4), 1/3803436 (n = 5), -1/133120260
(n = 6), 1/1996803900 (n = 7), 9.81961e-12 (n = 8), 1.55576e-17 (n = 12), 2.90119e-23 (n = 16), 3.76067e-29 (n = 20),
2.66125e-35 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 9/8 for (x = 9/8) and 0 for (x = 113/8) at p1 = 0, p2 = 11407/424, but 9/8 and 113/8 at p1 = 0, p2 =
437/8: no factor moves both.
det [F(x_i; p_j)] is 9/8 (n = 1), 1017/64 (n = 2), -123057/512 (n = 3), -6759.72 (n = 4), 129280 (n = 5), -4.67023e+06
(n = 6), 7.53074e+07 (n = 7), 3.32294e+09 (n = 8), 2.47466e+15 (n = 12): no form with fewer than 12 components fits
these points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: s, s2, s3, s4 | s5, s6, s7, s8.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    t = np.where(np.abs(x - -1) < np.abs(x - 1), 1, 0)
    return (
        x * np.where(np.abs(x - np.sum(x * t) / np.maximum(np.sum(t), 1)) < np.abs(x - np.sum(x * (1 - t))
        / np.maximum(np.sum(1 - t), 1)), 1, 0)
    )


PREFIX = {
    "x": [
        "9/8", "17/8", "25/8", "33/8", "41/8", "49/8", "57/8", "65/8", "73/8", "81/8", "89/8", "97/8", "105/8",
        "113/8", "121/8", "129/8", "137/8", "145/8", "153/8", "161/8", "169/8", "177/8", "185/8", "193/8", "201/8",
        "209/8", "217/8", "225/8", "233/8", "241/8", "249/8", "257/8", "265/8", "273/8", "281/8", "289/8", "297/8",
        "305/8", "313/8", "321/8", "329/8", "337/8", "345/8", "353/8", "361/8", "369/8", "377/8", "385/8", "393/8",
        "401/8", "409/8", "417/8",
    ],
}
ELEMENTS = [0, 13, 14, 27, 18, 35, 15, 43, 26, 34, 42, 17]
SUFFIXES = [
    {"x": ["331/8"]},
    {"x": ["12085/8"]},
    {"x": ["1163/8"]},
    {"x": ["26077/8"]},
    {"x": ["4877/8"]},
    {"x": ["18869/8"]},
    {"x": ["1763/8"]},
    {"x": ["32861/8"]},
    {"x": ["11661/8"]},
    {"x": ["18445/8"]},
    {"x": ["25229/8"]},
    {"x": ["4029/8"]},
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
    1: "9/8",
    2: "1017/64",
    3: "-123057/512",
    4: "-27687825/4096",
    5: "4236237225/32768",
    6: "-1224272558025/262144",
    7: "157931159985225/2097152",
    8: "55749699474784425/16777216",
    12: "170057457479318342408330625/68719476736",
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
