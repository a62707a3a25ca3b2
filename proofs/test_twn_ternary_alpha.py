"""twn_ternary_alpha: one pass is not enough (threshold).

    twn_ternary_alpha(w[l]):
        t1 = abs(w)
        t2 = t1 > 0.7 * (sum(t1, l) / size(l))
        return sum(t1, l, where=t2) / sum(1, l, where=t2)

s2 = sum(abs(w[l]), l, where=abs(w[l]) > 0.7 * (s / size(l))): threshold: which elements take part depends on a pivot
that moves.
Prefix: w = 1, 97/96, 49/48, 33/32, …, 143/96.
Suffixes: w = -92582164015/2113929216; w = 703777/16128; w = 342785/8064; w = -5629215747265/135291469824; …, which
steer p1 = 1.47923, 1.47696, 1.46083, 1.44797, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (w)
has the determinant 1/2 (n = 1), 1/6 (n = 2), 1/24 (n = 3), 1/120 (n = 4), 1/720 (n = 5), 1/5040 (n = 6), 1/40320 (n =
7), 1/362880 (n = 8), 1/6227020800 (n = 12), 2.81146e-15 (n = 16), 1.95729e-20 (n = 20), 6.44695e-26 (n = 24), never
0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 143/96 for (w = 143/96) and 0 for (w = 71/48) at p1 = 1.47923, but 143/96 and 71/48 at p1 = 1.47696: no
factor moves both.
det [F(x_i; p_j)] is 143/96 (n = 1), 10153/4608 (n = 2), 3.23616 (n = 3), 4.7194 (n = 4), 6.83329 (n = 5), 9.82286 (n
= 6), 14.018 (n = 7), 19.8589 (n = 8), 74.2565 (n = 12): no form with fewer than 12 components fits these points.

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
        1, "97/96", "49/48", "33/32", "25/24", "101/96", "17/16", "103/96", "13/12", "35/32", "53/48", "107/96",
        "9/8", "109/96", "55/48", "37/32", "7/6", "113/96", "19/16", "115/96", "29/24", "39/32", "59/48", "119/96",
        "5/4", "121/96", "61/48", "41/32", "31/24", "125/96", "21/16", "127/96", "4/3", "43/32", "65/48", "131/96",
        "11/8", "133/96", "67/48", "45/32", "17/12", "137/96", "23/16", "139/96", "35/24", "47/32", "71/48", "143/96",
    ],
}
ELEMENTS = [47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, 36]
SUFFIXES = [
    {"w": ["-92582164015/2113929216"]},
    {"w": ["703777/16128"]},
    {"w": ["342785/8064"]},
    {"w": ["-5629215747265/135291469824"]},
    {"w": ["669505/16128"]},
    {"w": ["5105/126"]},
    {"w": ["637375/16128"]},
    {"w": ["-2555912705/66060288"]},
    {"w": ["310655/8064"]},
    {"w": ["607135/16128"]},
    {"w": ["9265/252"]},
    {"w": ["-4839848717569/135291469824"]},
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
    1: "143/96",
    2: "10153/4608",
    3: "477191/147456",
    4: "16701685/3538944",
    5: "2321534215/339738624",
    6: "53395286945/5435817984",
    7: "7315154311465/521838526464",
    8: "124357623294905/6262062317568",
    12: "60948292964949415025/820781032088272896",
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
