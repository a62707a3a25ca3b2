"""mean_distance_to_centroid: one pass is not enough (unbounded-rank).

    mean_distance_to_centroid(X[l, plane]):
        return sum(sqrt(sum((X - sum(X, l) / size(l)) ** 2, plane)), l) / size(l)

s2 = sum(sqrt(sum((X[l, plane] - s / size(l)) ** 2, plane)), l): unbounded-rank: F(x; p) is not a sum of finitely many
products g(x)·h(p).
Prefix: X[0] = 1, 2, 3, 4, …, 26; X[1] = 1/2.
Suffixes: X[0] = -675/2, X[1] = 1/2; X[0] = 81/4, X[1] = 1/2; X[0] = -39/4, X[1] = 1/2; X[0] = 281/4, X[1] = 1/2; …,
which steer p1 = 1/2, 55/4, 12.6389, 15.6019, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (X[0])
has the determinant 0.00274348 (n = 1), 0.000203221 (n = 2), 1.505341139e-5 (n = 3), 1.115067510e-6 (n = 4),
8.259759333e-8 (n = 5), 6.118340247e-9 (n = 6), 4.532103887e-10 (n = 7), 3.357113990e-11 (n = 8), 1.010720359e-15 (n =
12), 3.042957873e-20 (n = 16), 9.161379337e-25 (n = 20), 2.758200240e-29 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 33/2 for (X[0] = 17, X[1] = 1/2) and 1/2 for (X[0] = 1, X[1] = 1/2) at p1 = 1/2, but 13/4 and 51/4 at p1
= 55/4: no factor moves both.
det [F(x_i; p_j)] is 33/2 (n = 1), 835/4 (n = 2), -220 (n = 3), -704.815 (n = 4), 6129.75 (n = 5), 9424.5 (n = 6),
-3541 (n = 7), -6163.95 (n = 8), -9881.41 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s | s2.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


sqrt_of = np.frompyfunc(mpmath.sqrt, 1, 1)


def summands(X):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return sqrt_of(np.sum((X - np.sum(X, axis=0) / len(X)) ** 2, axis=1))


PREFIX = {
    "X": [
        [1, "1/2"], [2, "1/2"], [3, "1/2"], [4, "1/2"], [5, "1/2"], [6, "1/2"], [7, "1/2"], [8, "1/2"], [9, "1/2"],
        [10, "1/2"], [11, "1/2"], [12, "1/2"], [13, "1/2"], [14, "1/2"], [15, "1/2"], [16, "1/2"], [17, "1/2"],
        [18, "1/2"], [19, "1/2"], [20, "1/2"], [21, "1/2"], [22, "1/2"], [23, "1/2"], [24, "1/2"], [25, "1/2"],
        [26, "1/2"],
    ],
}
ELEMENTS = [16, 0, 6, 13, 20, 12, 14, 15, 10, 17, 24, 11]
SUFFIXES = [
    {"X": [["-675/2", "1/2"]]},
    {"X": [["81/4", "1/2"]]},
    {"X": [["-39/4", "1/2"]]},
    {"X": [["281/4", "1/2"]]},
    {"X": [["405/2", "1/2"]]},
    {"X": [["-81/2", "1/2"]]},
    {"X": [["81/2", "1/2"]]},
    {"X": [["481/4", "1/2"]]},
    {"X": [["-459/2", "1/2"]]},
    {"X": [["361/4", "1/2"]]},
    {"X": [["621/2", "1/2"]]},
    {"X": [["541/4", "1/2"]]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["X"], suffix["X"], axis=0)]


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
