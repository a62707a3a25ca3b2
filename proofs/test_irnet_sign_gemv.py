"""irnet_sign_gemv: one pass is not enough (threshold).

    irnet_sign_gemv(w[l], x[l]):
        return sum(sign(w - sum(w, l) / size(l)) * x, l)

s2 = sum(sign(w[l] - s / size(l)) * x[l], l): threshold: which elements take part depends on a pivot that moves.
Prefix: w = 1, 97/96, 49/48, 33/32, …, 143/96; x = 1/2.
Suffixes: w = -2841208193/264241152, x = 1/2; w = -86633229871/8455716864, x = 1/2; w = -82284024241/8455716864, x =
1/2; w = -2437867073/264241152, x = 1/2; …, which steer p1 = 0.999952, 1.0103, 1.02079, 1.0311, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 1 (n = 1), 2 (n = 2), 4 (n = 3), 8 (n = 4), 16 (n = 5), 32 (n = 6), 64 (n = 7), 128 (n = 8), 2048
(n = 12), 32768 (n = 16), 524288 (n = 20), 8388608 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (w = 1, x = 1/2) and 1/2 for (w = 97/96, x = 1/2) at p1 = 0.999952, but -1/2 and 1/2 at p1 =
1.0103: no factor moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), 1/2 (n = 2), 1/2 (n = 3), 1/2 (n = 4), 1/2 (n = 5), 1/2 (n = 6), 1/2 (n = 7), 1/2 (n
= 8), 1/2 (n = 12): no form with fewer than 12 components fits these points.

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
    "w": [
        1, "97/96", "49/48", "33/32", "25/24", "101/96", "17/16", "103/96", "13/12", "35/32", "53/48", "107/96",
        "9/8", "109/96", "55/48", "37/32", "7/6", "113/96", "19/16", "115/96", "29/24", "39/32", "59/48", "119/96",
        "5/4", "121/96", "61/48", "41/32", "31/24", "125/96", "21/16", "127/96", "4/3", "43/32", "65/48", "131/96",
        "11/8", "133/96", "67/48", "45/32", "17/12", "137/96", "23/16", "139/96", "35/24", "47/32", "71/48", "143/96",
    ],
    "x": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
SUFFIXES = [
    {"w": ["-2841208193/264241152"], "x": ["1/2"]},
    {"w": ["-86633229871/8455716864"], "x": ["1/2"]},
    {"w": ["-82284024241/8455716864"], "x": ["1/2"]},
    {"w": ["-2437867073/264241152"], "x": ["1/2"]},
    {"w": ["-1151083009/132120576"], "x": ["1/2"]},
    {"w": ["-69386716657/8455716864"], "x": ["1/2"]},
    {"w": ["-65016935983/8455716864"], "x": ["1/2"]},
    {"w": ["-60690370159/8455716864"], "x": ["1/2"]},
    {"w": ["-112787908175/16911433728"], "x": ["1/2"]},
    {"w": ["-1627054175/264241152"], "x": ["1/2"]},
    {"w": ["-2985258433/528482304"], "x": ["1/2"]},
    {"w": ["-86932990415/16911433728"], "x": ["1/2"]},
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
    2: "1/2",
    3: "1/2",
    4: "1/2",
    5: "1/2",
    6: "1/2",
    7: "1/2",
    8: "1/2",
    12: "1/2",
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
