"""cauchy_irls_step: one pass is not enough (unbounded-rank).

    cauchy_irls_step(x[l]):
        t1 = (x - sum(x, l) / size(l)) ** 2
        t2 = 1.0 / (1.0 + t1 / (sum(t1, l) / size(l)))
        return sum(t2 * x, l) / sum(t2, l)

s3 = sum(1 / (1.0 + (x[l] - s / size(l)) ** 2 / (s2 / size(l))) * x[l], l): unbounded-rank: F(x; p) is not a sum of
finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 455/36, …, p2 = 26689/6,
1339/24, 30901/6, 47593/648, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 0.0414073 (n = 1), 2.30940238376e-6 (n = 2), -9.01621818821e-9 (n = 3), 6.80602803476e-13 (n = 4),
3.54948314485e-17 (n = 5), -1.22328595668e-22 (n = 6), 2.20085249903e-28 (n = 7), -6.63356502973e-36 (n = 8),
-1.78044423986e-59 (n = 12), 2.91955775743e-87 (n = 16), -5.82724324914e-117 (n = 20), 6.33476717828e-154 (n = 24),
never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 53378/53381 for (x = 1) and 106756/53405 for (x = 2) at p1 = 1/2, p2 = 26689/6, but 2678/10481 and
5356/9305 at p1 = 55/4, p2 = 1339/24: no factor moves both.
det [F(x_i; p_j)] is 53378/53381 (n = 1), 0.0648106 (n = 2), -0.000235127 (n = 3), 4.49727850548e-7 (n = 4),
2.99737644074e-10 (n = 5), -1.47626042880e-14 (n = 6), 8.73540412348e-19 (n = 7), -8.82854870846e-24 (n = 8),
-5.80331579075e-43 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: s, s2 | s3, s4.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    w = (x - np.sum(x) / len(x)) ** 2
    return 1 / (1 + w / (np.sum(w) / len(x))) * x


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
SUFFIXES = [
    {"x": ["-675/2"]},
    {"x": ["81/4"]},
    {"x": ["783/2"]},
    {"x": ["-39/4"]},
    {"x": ["281/4"]},
    {"x": ["1755/2"]},
    {"x": ["27/2"]},
    {"x": ["405/2"]},
    {"x": ["-81/2"]},
    {"x": ["81/2"]},
    {"x": ["1377/2"]},
    {"x": ["29/4"]},
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
    1: "53378/53381",
    2: "720764896755072/11121099194712001",
    3: "-21430758941904126482145730556928/91145367580112111647178391290413375",
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
