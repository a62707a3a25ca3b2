"""top_n_sigma_mass: one pass is not enough (threshold).

    top_n_sigma_mass(x[l]):
        d1 = max(x, l)
        return sum(exp(x - d1), l, where=x >= d1 - sqrt(sum((x - sum(x, l) / size(l)) ** 2, l) / size(l)))

s3 = sum(exp(x[l] - m), l, where=x[l] >= m - sqrt(s2 / size(l))): threshold: which elements take part depends on a
pivot that moves.
Prefix: x = 1, 97/96, 49/48, 33/32, …, 143/96.
Suffixes: x = -4475486369119/2164663517184; x = -134643935663/67645734912; x = -4140940144225/2164663517184; x =
-3973927374175/2164663517184; …, which steer p2 = 0.999955, 1.01037, 1.02081, 1.03119, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant -36.9701 (n = 1), 22.2827 (n = 2), -13.5646 (n = 3), 8.33987 (n = 4), -5.17863 (n = 5), 3.24761 (n
= 6), -2.05681 (n = 7), 1.31551 (n = 8), 0.242721 (n = 12), 0.0522603 (n = 16), 0.013087 (n = 20), 0.00379316 (n =
24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1 for (x = 143/96) and 0.612882 for (x = 1) at p2 = 0.999955, but 1 and 0 at p2 = 1.01037: no factor
moves both.
det [F(x_i; p_j)] is 1 (n = 1), -0.612882 (n = 2), 0.379557 (n = 3), -0.237521 (n = 4), 0.150193 (n = 5), -0.0959671
(n = 6), 0.061961 (n = 7), -0.0404239 (n = 8), -0.00812752 (n = 12): no form with fewer than 12 components fits these
points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: m, s, s2 | s3.
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


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return np.where(
        x >= np.max(x) - sqrt_of(np.sum((x - np.sum(x) / len(x)) ** 2) / len(x)),
        exp_of(x - np.max(x)),
        0,
    )


PREFIX = {
    "x": [
        1, "97/96", "49/48", "33/32", "25/24", "101/96", "17/16", "103/96", "13/12", "35/32", "53/48", "107/96",
        "9/8", "109/96", "55/48", "37/32", "7/6", "113/96", "19/16", "115/96", "29/24", "39/32", "59/48", "119/96",
        "5/4", "121/96", "61/48", "41/32", "31/24", "125/96", "21/16", "127/96", "4/3", "43/32", "65/48", "131/96",
        "11/8", "133/96", "67/48", "45/32", "17/12", "137/96", "23/16", "139/96", "35/24", "47/32", "71/48", "143/96",
    ],
}
ELEMENTS = [47, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
SUFFIXES = [
    {"x": ["-4475486369119/2164663517184"]},
    {"x": ["-134643935663/67645734912"]},
    {"x": ["-4140940144225/2164663517184"]},
    {"x": ["-3973927374175/2164663517184"]},
    {"x": ["-3805596504895/2164663517184"]},
    {"x": ["-3636971491135/2164663517184"]},
    {"x": ["-108363405905/67645734912"]},
    {"x": ["-3298253493055/2164663517184"]},
    {"x": ["-97773325775/67645734912"]},
    {"x": ["-722211745/528482304"]},
    {"x": ["-10629391/8257536"]},
    {"x": ["-2614789753663/2164663517184"]},
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
