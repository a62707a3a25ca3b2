"""min_p_mass: one pass is not enough (threshold).

    min_p_mass(x[l]; share=0.1):
        t1 = exp(x - max(x, l))
        t2 = t1 / sum(t1, l)
        return sum(t2, l, where=t2 >= share * max(t2, l))

s2 = sum(exp(x[l] - m), l, where=exp(x[l] - m) / s >= share * m2): threshold: which elements take part depends on a
pivot that moves.
Prefix: x = 1, 97/96, 49/48, 33/32, …, 143/96.
Suffixes: x = 458966500510865/138538465099776; x = 460415377865615/138538465099776; x =
461853022666865/138538465099776; x = 14478209542945/4329327034368; …, which steer p1 = 0.014022, 0.0141485, 0.0142751,
0.0144036, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x)
has the determinant -0.0136852 (n = 1), 0.000188911 (n = 2), -2.630311332e-6 (n = 3), 3.693920160e-8 (n = 4),
-5.232245097e-10 (n = 5), 7.474844497e-12 (n = 6), -1.077005481e-13 (n = 7), 1.565015114e-15 (n = 8), 7.591486040e-23
(n = 12), 4.207558819e-30 (n = 16), 2.658169207e-37 (n = 20), 1.908747256e-44 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 0.125766 for (x = 119/96) and 0.100008 for (x = 97/96) at p1 = 0.014022, but 0.124457 and 0 at p1 =
0.0141485: no factor moves both.
det [F(x_i; p_j)] is 0.125766 (n = 1), -0.0124468 (n = 2), 0.00123188 (n = 3), -0.000121916 (n = 4), 1.206535534e-5 (n
= 5), -1.194109162e-6 (n = 6), 1.181866065e-7 (n = 7), -1.169706209e-8 (n = 8), -1.122276596e-12 (n = 12): no form
with fewer than 12 components fits these points.

Checked below, in numbers of 800 digits, and again with half as many more: the determinants of [F(x_i; p_j)], whose
pivots are those that the suffixes make. With R components, all of order more than R would be 0. The determinants of
the Jacobian are quoted.

It runs in 2 passes: m, s, m2 | s2.
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
share = number("1/10")


def summands(x):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    e = exp_of(x - np.max(x))
    p = e / np.sum(e)
    return np.where(p >= share * np.max(p), e, 0)


PREFIX = {
    "x": [
        1, "97/96", "49/48", "33/32", "25/24", "101/96", "17/16", "103/96", "13/12", "35/32", "53/48", "107/96",
        "9/8", "109/96", "55/48", "37/32", "7/6", "113/96", "19/16", "115/96", "29/24", "39/32", "59/48", "119/96",
        "5/4", "121/96", "61/48", "41/32", "31/24", "125/96", "21/16", "127/96", "4/3", "43/32", "65/48", "131/96",
        "11/8", "133/96", "67/48", "45/32", "17/12", "137/96", "23/16", "139/96", "35/24", "47/32", "71/48", "143/96",
    ],
}
ELEMENTS = [23, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
SUFFIXES = [
    {"x": ["458966500510865/138538465099776"]},
    {"x": ["460415377865615/138538465099776"]},
    {"x": ["461853022666865/138538465099776"]},
    {"x": ["14478209542945/4329327034368"]},
    {"x": ["7261708105985/2164663517184"]},
    {"x": ["466184850956465/138538465099776"]},
    {"x": ["467621478361265/138538465099776"]},
    {"x": ["7329212432735/2164663517184"]},
    {"x": ["14703507673345/4329327034368"]},
    {"x": ["230451351985/67645734912"]},
    {"x": ["14793662364895/4329327034368"]},
    {"x": ["474839177497745/138538465099776"]},
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
