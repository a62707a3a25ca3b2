"""softmax_of_layernorm: one pass is not enough (unbounded-rank).

    softmax_of_layernorm(x[l], v[l]):
        t1 = x - sum(x, l) / size(l)
        t2 = t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05)
        t3 = exp(t2 - max(t2, l))
        return sum(t3 / sum(t3, l) * v, l)

s3 = sum(exp((x[l] - s / size(l)) / sqrt(s2 / size(l) + 1e-05) - m), l): unbounded-rank: F(x; p) is not a sum of
finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26; v = 1/2.
Suffixes: x = -324, v = 1/2; x = -675/2, v = 1/2; x = -297, v = 1/2; x = 81/4, v = 1/2; …, which steer p1 = 1, 1/2, 2,
55/4, …, p2 = 64.1613, 66.6946, 59.0988, 7.46938, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (v)
has the determinant 0.0314317 (n = 1), -1.600788673e-5 (n = 2), 6.534559411e-11 (n = 3), 1.365209454e-12 (n = 4),
-2.345812026e-20 (n = 5), -8.805934197e-32 (n = 6), -3.529088868e-43 (n = 7), -4.941460479e-50 (n = 8),
2.458568460e-111 (n = 12), 6.978997839e-201 (n = 16), 1.331661860e-307 (n = 20), -7.590421247e-449 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1 for (x = 26, v = 1/2) and 0.677298 for (x = 1, v = 1/2) at p1 = 1, p2 = 64.1613, but 1 and 0.687397 at
p1 = 1/2, p2 = 66.6946: no factor moves both.
det [F(x_i; p_j)] is 1 (n = 1), 0.0100987 (n = 2), -1.331681803e-6 (n = 3), 9.129585710e-8 (n = 4), 4.476689910e-14 (n
= 5), -1.866064877e-25 (n = 6), -6.089440377e-36 (n = 7), -1.436838081e-41 (n = 8), -3.830004342e-100 (n = 12): no
form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s, s2, m | s3, s4.
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
sqrt_of = np.frompyfunc(mpmath.sqrt, 1, 1)


def summands(x, v):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dx = x - np.sum(x) / len(x)
    p = dx / sqrt_of(np.sum(dx * dx) / len(x) + number("1e-05"))
    return exp_of(p - np.max(p))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
    "v": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [25, 0, 8, 16, 22, 1, 11, 24, 4, 19, 2, 13]
SUFFIXES = [
    {"x": [-324], "v": ["1/2"]},
    {"x": ["-675/2"], "v": ["1/2"]},
    {"x": [-297], "v": ["1/2"]},
    {"x": ["81/4"], "v": ["1/2"]},
    {"x": [-270], "v": ["1/2"]},
    {"x": ["783/2"], "v": ["1/2"]},
    {"x": [-243], "v": ["1/2"]},
    {"x": ["-39/4"], "v": ["1/2"]},
    {"x": [-216], "v": ["1/2"]},
    {"x": ["281/4"], "v": ["1/2"]},
    {"x": [-189], "v": ["1/2"]},
    {"x": ["1755/2"], "v": ["1/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["x"], suffix["x"], axis=0), numbers(PREFIX["v"], suffix["v"], axis=0)]


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
