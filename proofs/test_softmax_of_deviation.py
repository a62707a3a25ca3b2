"""softmax_of_deviation: one pass is not enough (unbounded-rank).

    softmax_of_deviation(x[l]):
        t1 = abs(x - sum(x, l) / size(l))
        t2 = exp(t1 - max(t1, l))
        return t2 / sum(t2, l)

s2 = sum(exp(abs(x[l] - s / size(l)) - m), l): unbounded-rank: F(x; p) is not a sum of finitely many products
g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 12.6389, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant -1.693732678e-136 (n = 1), -3.976551853e-140 (n = 2), -6.853743885e-288 (n = 3), -8.058633078e-298
(n = 4), -8.825762089e-322 (n = 5), -4.864992895e-401 (n = 6), -1.053472945e-423 (n = 7), -6.629621289e-435 (n = 8),
6.670133019e-599 (n = 12), 3.948256865e-863 (n = 16), -2.260238454e-1314 (n = 20), -9.005838641e-1665 (n = 24), never
0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1.918555669e-136 for (x = 26) and 2.664479343e-147 for (x = 1) at p1 = 1/2, but 0.606531 and 1 at p1 =
55/4: no factor moves both.
det [F(x_i; p_j)] is 1.918555669e-136 (n = 1), 1.918555669e-136 (n = 2), 1.155469532e-288 (n = 3), -1.028270352e-298
(n = 4), 8.998806762e-323 (n = 5), -4.958713482e-402 (n = 6), 4.962592671e-425 (n = 7), 9.644781021e-437 (n = 8),
-1.763996808e-622 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s, m | s2.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


exp_of = np.frompyfunc(mpmath.exp, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    size = np.abs(x - np.sum(x) / len(x))
    return exp_of(size - np.max(size))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [25, 0, 13, 11, 14, 19, 10, 15, 12, 16, 3, 17]
SUFFIXES = [
    {"x": ["-675/2"]},
    {"x": ["81/4"]},
    {"x": ["783/2"]},
    {"x": ["-39/4"]},
    {"x": ["281/4"]},
    {"x": ["405/2"]},
    {"x": ["-81/2"]},
    {"x": ["81/2"]},
    {"x": ["29/4"]},
    {"x": ["481/4"]},
    {"x": ["-459/2"]},
    {"x": ["361/4"]},
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
