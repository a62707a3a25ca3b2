"""kb_gn_tanh_hswish_lse: one pass is not enough (unbounded-rank).

    kb_gn_tanh_hswish_lse(x[l]):
        t1 = x - sum(x, l) / size(l)
        t2 = tanh(t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05))
        t3 = x + t2 * minimum(maximum(t2 + 3.0, 0), 6) / 6.0
        d1 = max(t3, l)
        return d1 + log(sum(exp(t3 - d1), l))

s3 = sum(exp(x[l] + tanh((x[l] - s / size(l)) / sqrt(s2 / size(l) + 1e-05)) * minimum(maximum(tanh((x[l] - s /
size(l)) / sqrt(s2 / size(l) + 1e-05)) + 3.0, 0), 6) / 6.0 - m), l): unbounded-rank: F(x; p) is not a sum of finitely
many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 12.6389, …, p2 = 66.6946,
7.46938, 71.7647, 8.57006, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 0.639881 (n = 1), -0.00147136 (n = 2), -4.916859746e-11 (n = 3), 3.111208951e-15 (n = 4),
1.783320496e-21 (n = 5), -7.342613232e-49 (n = 6), 3.703987042e-55 (n = 7), -3.932642234e-138 (n = 8),
-2.850657970e-341 (n = 12), 8.354781568e-431 (n = 16), -4.815276204e-643 (n = 20), 1.05332e-780 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1 for (x = 26) and 0.0485886 for (x = 23) at p1 = 1/2, p2 = 66.6946, but 1 and 0.0466256 at p1 = 55/4,
p2 = 7.46938: no factor moves both.
det [F(x_i; p_j)] is 1 (n = 1), -0.00196308 (n = 2), -2.386320911e-166 (n = 3), 9.587398749e-172 (n = 4),
1.128651286e-196 (n = 5), -1.999130293e-573 (n = 6), -1.341447725e-580 (n = 7), -1.216641842e-666 (n = 8),
2.286160099e-1004 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s, s2 | m, s3.
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
tanh_of = np.frompyfunc(mpmath.tanh, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dx = x - np.sum(x) / len(x)
    t = tanh_of(dx / sqrt_of(np.sum(dx * dx) / len(x) + number("1e-05")))
    u = x + t * np.minimum(np.maximum(t + 3, 0), 6) / 6
    return exp_of(u - np.max(u))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [25, 22, 24, 23, 16, 19, 21, 11, 20, 14, 8, 17]
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
