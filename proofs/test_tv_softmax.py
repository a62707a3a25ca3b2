"""tv_softmax: one pass is not enough (unbounded-rank).

    tv_softmax(x[l], y[l]):
        t1 = exp(x - max(x, l))
        t2 = exp(y - max(y, l))
        return 0.5 * sum(abs(t1 / sum(t1, l) - t2 / sum(t2, l)), l)

s3 = sum(abs(exp(x[l] - m) / s - exp(y[l] - m2) / s2), l): unbounded-rank: F(x; p) is not a sum of finitely many
products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26; y = 1/2.
Suffixes: x = -675/2, y = 1/2; x = 81/4, y = 1/2; x = 1/4, y = 81/4; x = 1/4, y = 27/2; ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 0.0314714 (n = 1), 3.787897394e-5 (n = 2), -4.935242347e-14 (n = 3), 7.051477660e-20 (n = 4),
-4.064608082e-23 (n = 5), 9.699537492e-34 (n = 6), -2.538310516e-41 (n = 7), 2.679818393e-46 (n = 8), 1.657541366e-67
(n = 12), 2.317368626e-94 (n = 16), 2.182998617e-123 (n = 20), 4.529566264e-148 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 0.595084 for (x = 26, y = 1/2) and 0.037037 for (x = 1, y = 1/2) after the suffix (x = -675/2, y = 1/2),
but 0.593814 and 0.037037 after the suffix (x = 81/4, y = 1/2): no factor moves both.
det [F(x_i; p_j)] is 0.595084 (n = 1), 4.700779886e-5 (n = 2), 2.958805005e-6 (n = 3), -1.335765296e-11 (n = 4),
2.874987994e-14 (n = 5), 1.493308830e-22 (n = 6), -1.437458232e-29 (n = 7), 4.934797265e-34 (n = 8), 1.061222188e-54
(n = 12): no form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: m, s, m2, s2 | s3.
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


def summands(x, y):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    e = exp_of(x - np.max(x))
    e_y = exp_of(y - np.max(y))
    return np.abs(e / np.sum(e) - e_y / np.sum(e_y))


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
    "y": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [25, 0, 22, 13, 19, 6, 9, 15, 21, 5, 11, 18]
SUFFIXES = [
    {"x": ["-675/2"], "y": ["1/2"]},
    {"x": ["81/4"], "y": ["1/2"]},
    {"x": ["1/4"], "y": ["81/4"]},
    {"x": ["1/4"], "y": ["27/2"]},
    {"x": ["1/4"], "y": ["29/4"]},
    {"x": ["1/4"], "y": ["97/4"]},
    {"x": ["1/4"], "y": ["69/4"]},
    {"x": ["1/4"], "y": ["45/4"]},
    {"x": ["1/4"], "y": ["17/4"]},
    {"x": ["1/4"], "y": ["85/4"]},
    {"x": ["1/4"], "y": ["57/4"]},
    {"x": ["1/4"], "y": ["33/4"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["x"], suffix["x"], axis=0), numbers(PREFIX["y"], suffix["y"], axis=0)]


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
