"""entropy_minmax: one pass is not enough (unbounded-rank).

    entropy_minmax(x[l]):
        d1 = min(x, l)
        t1 = (x - d1) / (max(x, l) - d1)
        t2 = t1 / sum(t1, l)
        t3 = where(t2 > 0, t2, 1.0)
        return -sum(t3 * log(t3), l) / log(size(l))

s2 = sum(where((x[l] - n) / (m - n) / s > 0, (x[l] - n) / (m - n) / s, 1.0) * log(where((x[l] - n) / (m - n) / s > 0,
(x[l] - n) / (m - n) / s, 1.0)), l): unbounded-rank: F(x; p) is not a sum of finitely many products g(x)·h(p).
Prefix: x = 1, 2, 3, 4, …, 26.
Suffixes: x = -675/2; x = 81/4; x = 783/2; x = -39/4; …, which steer p1 = 727/2, 25, 781/2, 143/4, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant 1.213201731e-6 (n = 1), 1.334859653e-8 (n = 2), 1.314069085e-11 (n = 3), 1.711925516e-15 (n = 4),
1.320076161e-20 (n = 5), -3.268544359e-27 (n = 6), -8.560264035e-37 (n = 7), -3.545954029e-42 (n = 8), 2.362909703e-88
(n = 12), -1.272819976e-155 (n = 16), 2.264116721e-241 (n = 20), -1.678454063e-341 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is -0.125188 for (x = 13) and -0.122194 for (x = 1) at p1 = 727/2, but -0.117001 and 0 at p1 = 25: no
factor moves both.
det [F(x_i; p_j)] is -0.125188 (n = 1), -0.0142968 (n = 2), 5.807925739e-5 (n = 3), 5.709862212e-8 (n = 4),
1.831080962e-12 (n = 5), -2.404212120e-19 (n = 6), 1.546352637e-23 (n = 7), 1.882645045e-30 (n = 8), 3.056156788e-74
(n = 12): no form with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: n, m, s | s2.
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


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dx = x - np.min(x)
    d = np.max(x) - np.min(x)
    p = dx / d / (np.sum(dx) * (1 / d))
    t = np.where(p > 0, p, 1)
    return t * log_of(t)


PREFIX = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
}
ELEMENTS = [12, 0, 22, 1, 25, 4, 2, 16, 6, 18, 8, 3]
SUFFIXES = [
    {"x": ["-675/2"]},
    {"x": ["81/4"]},
    {"x": ["783/2"]},
    {"x": ["-39/4"]},
    {"x": ["-81/2"]},
    {"x": ["-459/2"]},
    {"x": ["1/4"]},
    {"x": ["-79/4"]},
    {"x": ["-243/2"]},
    {"x": ["-621/2"]},
    {"x": ["-19/4"]},
    {"x": ["-139/4"]},
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
