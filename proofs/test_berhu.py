"""berhu: one pass is not enough (threshold).

    berhu(p[l], t[l]):
        t1 = abs(p - t)
        t2 = 0.2 * max(t1, l)
        return sum(where(t1 <= t2, t1, (t1 * t1 + t2 * t2) / (2.0 * t2)), l) / size(l)

s = sum(where(abs(p[l] - t[l]) <= 0.2 * m, abs(p[l] - t[l]), (abs(p[l] - t[l]) * abs(p[l] - t[l]) + 0.2 * m * (0.2 *
m)) / (2.0 * (0.2 * m))), l): threshold: which elements take part depends on a pivot that moves.
Prefix: p = 1, 97/96, 49/48, 33/32, …, 143/96; t = 1/2.
Suffixes: p = 4096/63, t = 1/2; p = -4757820462911/1082331758592, t = 1/2; p = 691583/129024, t = 1/2; p =
21857551/4128768, t = 1/2; …, which steer p1 = 8129/630, 0.97918, 0.972022, 0.958793, …, p2 = -166.492, -0.958793,
-0.944827, -0.919284, …, p3 = 8129/315, 1.95836, 1.94404, 1.91759, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (p)
has the determinant 1/49 (n = 1), 4.42518e-06 (n = 2), 6.63781e-10 (n = 3), 1.40682e-13 (n = 4), 3.13613e-17 (n = 5),
5.38413811163e-22 (n = 6), 2.41158271165e-26 (n = 7), 1.02995238452e-30 (n = 8), 1.61069917911e-48 (n = 12),
2.54952622965e-67 (n = 16), 8.65217502671e-84 (n = 20), 4.70729178566e-100 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1/2 for (p = 1, t = 1/2) and 95/96 for (p = 143/96, t = 1/2) at p1 = 8129/630, p2 = -166.492, p3 =
8129/315, but 1/2 and 0.989639 at p1 = 0.97918, p2 = -0.958793, p3 = 1.95836: no factor moves both.
det [F(x_i; p_j)] is 1/2 (n = 1), 2.76343e-05 (n = 2), 7.25563e-10 (n = 3), 3.75134636485e-14 (n = 4),
2.12159206120e-18 (n = 5), 7.11004161884e-25 (n = 6), 1.60186313647e-30 (n = 7), 3.24510242800e-36 (n = 8),
1.07385766497e-59 (n = 12): no form with fewer than 12 components fits these points.

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
        1, "97/96", "49/48", "33/32", "25/24", "101/96", "17/16", "103/96", "13/12", "35/32", "53/48", "107/96",
        "9/8", "109/96", "55/48", "37/32", "7/6", "113/96", "19/16", "115/96", "29/24", "39/32", "59/48", "119/96",
        "5/4", "121/96", "61/48", "41/32", "31/24", "125/96", "21/16", "127/96", "4/3", "43/32", "65/48", "131/96",
        "11/8", "133/96", "67/48", "45/32", "17/12", "137/96", "23/16", "139/96", "35/24", "47/32", "71/48", "143/96",
    ],
    "t": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [0, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37]
SUFFIXES = [
    {"p": ["4096/63"], "t": ["1/2"]},
    {"p": ["-4757820462911/1082331758592"], "t": ["1/2"]},
    {"p": ["691583/129024"], "t": ["1/2"]},
    {"p": ["21857551/4128768"], "t": ["1/2"]},
    {"p": ["-9177938433247/2164663517184"], "t": ["1/2"]},
    {"p": ["337759/64512"], "t": ["1/2"]},
    {"p": ["21375601/4128768"], "t": ["1/2"]},
    {"p": ["661343/129024"], "t": ["1/2"]},
    {"p": ["20922001/4128768"], "t": ["1/2"]},
    {"p": ["316/63"], "t": ["1/2"]},
    {"p": ["41109233/8257536"], "t": ["1/2"]},
    {"p": ["40526609/8257536"], "t": ["1/2"]},
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
    2: "3169803163221810930049/114705224130317836489850880",
    3: "67335751389744506191530231169/92804795081507220907381119259980595200",
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
