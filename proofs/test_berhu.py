"""berhu: one pass is not enough (threshold).

    berhu(p[l], t[l]):
        t1 = abs(p - t)
        t2 = 0.2 * max(t1, l)
        return sum(where(t1 <= t2, t1, (t1 * t1 + t2 * t2) / (2.0 * t2)), l) / size(l)

s = sum(where(abs(p[l] - t[l]) <= 0.2 * m, abs(p[l] - t[l]), (abs(p[l] - t[l]) * abs(p[l] - t[l]) + 0.2 * m * (0.2 *
m)) / (2.0 * (0.2 * m))), l): threshold: which elements take part depends on a pivot that moves.
Prefix: p = 1, 2, 3, 4, …, 52; t = 1/2.
Suffixes: p = -2703/2, t = 1/2; p = 165/4, t = 1/2; p = -53/2, t = 1/2; p = 581/4, t = 1/2; …, which steer p1 =
1352/5, 103/10, 103/10, 579/20, …, p2 = -1827904/25, -10609/100, -10609/100, -335241/400, …, p3 = 2704/5, 103/5,
103/5, 579/10, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (p)
has the determinant 1/53 (n = 1), 2/289327 (n = 2), 1.14526e-07 (n = 3), 4.10526e-11 (n = 4), 3.05389e-14 (n = 5),
7.21077e-18 (n = 6), 2.67724e-21 (n = 7), 2.14538e-24 (n = 8), 4.28775e-38 (n = 12), 1.31887e-51 (n = 16),
2.70450462220e-65 (n = 20), 3.69437188506e-79 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (p = 1, t = 1/2) and 21/2 for (p = 11, t = 1/2) at p1 = 1352/5, p2 = -1827904/25, p3 = 2704/5,
but 1/2 and 10817/1030 at p1 = 103/10, p2 = -10609/100, p3 = 103/5: no factor moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), 1/1030 (n = 2), 121/23854800 (n = 3), 5.4996e-08 (n = 4), 1.89264e-10 (n = 5),
1.02419e-12 (n = 6), 1.19621e-14 (n = 7), 4.21249e-17 (n = 8), 2.0433e-27 (n = 12): no form with fewer than 12
components fits these points.

Checked below, in exact fractions: the determinants of [F(x_i; p_j)], whose pivots are those that the suffixes make.
With R components, all of order more than R would be 0. The determinants of the Jacobian are quoted.

It runs in 2 passes: m | s.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def summands(p, t):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    size = np.abs(p - t)
    u = number("0.2") * np.max(size)
    return np.where(size <= u, size, (size * size + u * u) / (2 * u))


PREFIX = {
    "p": [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
        30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52,
    ],
    "t": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [0, 10, 29, 14, 44, 28, 13, 43, 27, 12, 42, 26]
SUFFIXES = [
    {"p": ["-2703/2"], "t": ["1/2"]},
    {"p": ["165/4"], "t": ["1/2"]},
    {"p": ["581/4"], "t": ["1/2"]},
    {"p": ["281/4"], "t": ["1/2"]},
    {"p": ["881/4"], "t": ["1/2"]},
    {"p": ["561/4"], "t": ["1/2"]},
    {"p": ["261/4"], "t": ["1/2"]},
    {"p": ["861/4"], "t": ["1/2"]},
    {"p": ["541/4"], "t": ["1/2"]},
    {"p": ["241/4"], "t": ["1/2"]},
    {"p": ["841/4"], "t": ["1/2"]},
    {"p": ["265/2"], "t": ["1/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["p"], suffix["p"], axis=0), numbers(PREFIX["t"], suffix["t"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 12)
DETERMINANTS = {
    1: "1/2",
    2: "1/1030",
    3: "121/23854800",
    4: "14641/266219568000",
    5: "1771561/9360280010880000",
    6: "214358881/209295861043276800000",
    7: "25937424601/2168305120408347648000000",
    8: "3138428376721/74502963937230825185280000000",
    12: "45949729863572161/22487993326117344846394337683046400000000000",
}


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
    for n in ORDERS:
        found = determinant([row[:n] for row in matrix[:n]])
        assert found != 0 and found == Fraction(DETERMINANTS.get(n, found)), n
