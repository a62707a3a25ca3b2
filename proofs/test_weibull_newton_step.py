"""weibull_newton_step: one pass is not enough (unbounded-rank).

    weibull_newton_step(x[l]):
        t1 = log(x)
        t2 = sum(t1, l) / size(l)
        t3 = 1.28 / sqrt(sum((t1 - t2) ** 2, l) / size(l))
        t4 = x ** t3
        assume(x > 0)
        return sum(t4 * t1, l) / sum(t4, l) - 1.0 / t3 - t2

s3 = sum(x[l] ** (1.28 / sqrt(s2 / size(l))) * log(x[l]), l): unbounded-rank: F(x; p) is not a sum of finitely many
products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = 2/679; x = 81/4; x = 783/2; x = 4/47; …, which steer p2 = 0.734298, 1.56944, 1.21178, 1.05264, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant -0.00760699 (n = 1), -0.000515282 (n = 2), 4.445600678e-6 (n = 3), -7.266263392e-10 (n = 4),
1.832164761e-13 (n = 5), -4.122493753e-19 (n = 6), 1.282849612e-26 (n = 7), 7.149866794e-37 (n = 8), -2.502265360e-87
(n = 12), -1.373031746e-171 (n = 16), 2.347371837e-293 (n = 20), -1.710997718e-458 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 32.7829 for (x = 24) and 6.67844 for (x = 6) at p2 = 0.734298, but 465.936 and 29.8226 at p2 = 1.56944:
no factor moves both.
det [F(x_i; p_j)] is 32.7829 (n = 1), -2134.05 (n = 2), -4270.18 (n = 3), 148.788 (n = 4), -1.66932 (n = 5),
5.018121830e-5 (n = 6), -3.630175466e-10 (n = 7), 1.106228940e-17 (n = 8), -2.286553879e-67 (n = 12): no form with
fewer than 12 components fits these points.

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


log_of = np.frompyfunc(mpmath.log, 1, 1)
power_of = np.frompyfunc(mpmath.power, 2, 1)
sqrt_of = np.frompyfunc(mpmath.sqrt, 1, 1)


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return (
        power_of(x, number("1.28") / sqrt_of(np.sum((log_of(x) - np.sum(log_of(x)) / len(x)) ** 2) / len(x)))
        * log_of(x)
    )


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [23, 5, 11, 17, 1, 25, 2, 7, 3, 19, 9, 4]
SUFFIXES = [
    {"x": ["2/679"]},
    {"x": ["81/4"]},
    {"x": ["783/2"]},
    {"x": ["4/47"]},
    {"x": ["281/4"]},
    {"x": ["1755/2"]},
    {"x": ["27/2"]},
    {"x": ["405/2"]},
    {"x": ["2/85"]},
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
