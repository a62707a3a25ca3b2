"""quant_gemm: one pass is not enough (rounding).

    quant_gemm(X[m, l], W[l, n]):
        t1 = max(abs(X), l) / 127.0
        return sum(round(X / t1) * W, l) * t1

s = sum(round(X[m, l] / (m2 / 127.0)) * W[l, n], l): rounding: a rounding sits between the pivot and the reduction,
and does not commute with moving the pivot.
Prefix: X[0] = 1, 2, 3, 4, …, 26; W[0] = 1/2.
Suffixes: X[0] = -324, W[0] = 1/2; X[0] = -675/2, W[0] = 1/2; X[0] = -297, W[0] = 1/2; X[0] = 81/4, W[0] = 1/2; …,
which steer p1 = 324/127, 675/254, 297/127, 26/127, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (W[0])
has the determinant 324/127 (n = 1), -6.77971 (n = 2), -15.8549 (n = 3), -16.2294 (n = 4), -34.5035 (n = 5), 106.363
(n = 6), 40.7028 (n = 7), -69.2268 (n = 8), -502.261 (n = 12), 461.724 (n = 16), 721.579 (n = 20), -2070.48 (n = 24),
never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (X[0] = 2, W[0] = 1/2) and 2 for (X[0] = 9, W[0] = 1/2) at p1 = 324/127, but 1/2 and 3/2 at p1 =
675/254: no factor moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), -1/4 (n = 2), -1/8 (n = 3), -5/16 (n = 4), -5/32 (n = 5), 5/64 (n = 6), 1/128 (n =
7), -1/256 (n = 8), -1/4096 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: m2 | s.
"""

from fractions import Fraction

import numpy as np

number = Fraction
round_of = np.frompyfunc(round, 1, 1)


def summands(X, W):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return round_of(X / (np.max(np.abs(X), axis=1) / 127)[..., None])[..., None] * W


PREFIX = {
    "X": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26]],
    "W": [
        ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"],
        ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"], ["1/2"],
        ["1/2"], ["1/2"],
    ],
}
ELEMENTS = [1, 8, 5, 0, 7, 3, 4, 10, 2, 17, 6, 9]
SUFFIXES = [
    {"X": [[-324]], "W": [["1/2"]]},
    {"X": [["-675/2"]], "W": [["1/2"]]},
    {"X": [[-297]], "W": [["1/2"]]},
    {"X": [["81/4"]], "W": [["1/2"]]},
    {"X": [[-270]], "W": [["1/2"]]},
    {"X": [["783/2"]], "W": [["1/2"]]},
    {"X": [[-243]], "W": [["1/2"]]},
    {"X": [[-216]], "W": [["1/2"]]},
    {"X": [["281/4"]], "W": [["1/2"]]},
    {"X": [[-189]], "W": [["1/2"]]},
    {"X": [["1755/2"]], "W": [["1/2"]]},
    {"X": [[-162]], "W": [["1/2"]]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["X"], suffix["X"], axis=1), numbers(PREFIX["W"], suffix["W"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix)))[0, :, 0] for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 12)
DETERMINANTS = {
    1: "1/2",
    2: "-1/4",
    3: "-1/8",
    4: "-5/16",
    5: "-5/32",
    6: "5/64",
    7: "1/128",
    8: "-1/256",
    12: "-1/4096",
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
