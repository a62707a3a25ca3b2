"""focal_soft_frac: one pass is not enough (unbounded-rank).

    focal_soft_frac(x[l], t[l]):
        d1 = max(x, l)
        t1 = x - (d1 + log(sum(exp(x - d1), l)))
        return -sum(t * (1.0 - exp(t1)) ** 1.5 * t1, l)

s2 = sum(t[l] * (1.0 - exp(x[l] - (m + log(s)))) ** 1.5 * (x[l] - (m + log(s))), l): unbounded-rank: F(x; p) is not a
sum of finitely many products g(x)·h(p).
Prefix: t = 1/16; x = 1/8, 1/4, 3/8, 1/2, …, 13/4.
Suffixes: t = 1/16, x = -675/16; t = 1/16, x = 81/32; t = 1/16, x = 783/16; t = 1/16, x = -39/32; …, which steer p1 =
5.35174, 5.40961, 48.9375, 5.35314, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 0.126711 (n = 1), -0.000640278 (n = 2), 1.493862060e-8 (n = 3), 8.262132616e-15 (n = 4),
2.232307501e-21 (n = 5), -1.768176216e-47 (n = 6), -5.879006299e-61 (n = 7), 1.052857268e-80 (n = 8), 1.173564150e-198
(n = 12), 2.520273772e-365 (n = 16), 3.609715479e-581 (n = 20), -1.556880000e-885 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is -0.324043 for (t = 1/16, x = 1/8) and -0.18093 for (t = 1/16, x = 9/4) at p1 = 5.35174, but -0.32778 and
-0.185038 at p1 = 5.40961: no factor moves both.
det [F(x_i; p_j)] is -0.324043 (n = 1), 0.00065506 (n = 2), -1.113900922e-5 (n = 3), -1.398459872e-12 (n = 4),
3.331000512e-17 (n = 5), -1.147114192e-24 (n = 6), -1.641633166e-37 (n = 7), -5.686479918e-55 (n = 8),
-1.380325193e-149 (n = 12): no form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: m, s | s2.
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
log_of = np.frompyfunc(mpmath.log, 1, 1)
power_of = np.frompyfunc(mpmath.power, 2, 1)


def summands(x, t):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dx = x - (np.max(x) + log_of(np.sum(exp_of(x - np.max(x)))))
    return t * power_of(1 - exp_of(dx), number("1.5")) * dx


PREFIX = {
    "t": [
        "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16",
        "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16", "1/16",
    ],
    "x": [
        "1/8", "1/4", "3/8", "1/2", "5/8", "3/4", "7/8", 1, "9/8", "5/4", "11/8", "3/2", "13/8", "7/4", "15/8", 2,
        "17/8", "9/4", "19/8", "5/2", "21/8", "11/4", "23/8", 3, "25/8", "13/4",
    ],
}
ELEMENTS = [0, 17, 4, 23, 25, 8, 20, 24, 11, 1, 22, 13]
SUFFIXES = [
    {"t": ["1/16"], "x": ["-675/16"]},
    {"t": ["1/16"], "x": ["81/32"]},
    {"t": ["1/16"], "x": ["783/16"]},
    {"t": ["1/16"], "x": ["-39/32"]},
    {"t": ["1/16"], "x": ["281/32"]},
    {"t": ["1/16"], "x": ["1755/16"]},
    {"t": ["1/16"], "x": ["27/16"]},
    {"t": ["1/16"], "x": ["405/16"]},
    {"t": ["1/16"], "x": ["-81/16"]},
    {"t": ["1/16"], "x": ["81/16"]},
    {"t": ["1/16"], "x": ["1377/16"]},
    {"t": ["1/16"], "x": ["29/32"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["x"], suffix["x"], axis=0), numbers(PREFIX["t"], suffix["t"], axis=0)]


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
