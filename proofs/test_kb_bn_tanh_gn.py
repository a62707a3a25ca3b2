"""kb_bn_tanh_gn: one pass is not enough (unbounded-rank).

    kb_bn_tanh_gn(x[l]):
        t1 = x - sum(x, l) / size(l)
        t2 = tanh(t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05))
        t3 = t2 - sum(t2, l) / size(l)
        return t3 / sqrt(sum(t3 * t3, l) / size(l) + 1e-05)

s3 = sum(tanh((x[l] - s / size(l)) / sqrt(s2 / size(l) + 1e-05)), l): unbounded-rank: F(x; p) is not a sum of finitely
many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 1/2, 55/4, 55/2, 12.6389, …, p2 = 66.6946,
7.46938, 71.7647, 8.57006, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant -0.00745359 (n = 1), 6.214074650e-5 (n = 2), -6.073407873e-8 (n = 3), 2.444851786e-10 (n = 4),
1.192350987e-12 (n = 5), 4.900332865e-18 (n = 6), -2.443233393e-21 (n = 7), -3.995393753e-26 (n = 8), 8.651658963e-49
(n = 12), 5.292184036e-84 (n = 16), 1.025662511e-128 (n = 20), -2.055827935e-189 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 0.25653 for (x = 18) and 0.00749672 for (x = 1) at p1 = 1/2, p2 = 66.6946, but 0.514617 and -0.936275 at
p1 = 55/4, p2 = 7.46938: no factor moves both.
det [F(x_i; p_j)] is 0.25653 (n = 1), -0.24404 (n = 2), -0.0162022 (n = 3), 0.00101609 (n = 4), 6.660962693e-5 (n =
5), -9.801332291e-8 (n = 6), -1.242217995e-10 (n = 7), -4.855383989e-15 (n = 8), 6.998100313e-35 (n = 12): no form
with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: s, s2 | s3, s4.
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
tanh_of = np.frompyfunc(mpmath.tanh, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dx = x - np.sum(x) / len(x)
    return tanh_of(dx / sqrt_of(np.sum(dx * dx) / len(x) + number("1e-05")))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [17, 0, 3, 22, 9, 25, 12, 5, 24, 15, 1, 19]
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
