"""kb_gn_affine_min: one pass is not enough (envelope).

    kb_gn_affine_min(x[l], g[l], b[l]):
        t1 = x - sum(x, l) / size(l)
        return min(t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) * g + b, l)

n = min((x[l] - s / size(l)) / sqrt(s2 / size(l) + 1e-05) * g[l] + b[l], l): envelope: ever more elements can win,
each at a pivot of its own.
Prefix: x = -7/2, -895/256, -893/256, -111/32, …, 1149/128; g = 1/2; b = 1/2, 127/256, 63/128, 125/256, …, 103/256.
Suffixes: x = -4, g = 1/2, b = 1/2; x = 1/4, g = 1/2, b = 1/2; x = 9/2, g = 1/2, b = 1/2; x = -9/4, g = 1/2, b = 1/2;
…, which steer p1 = -0.503617, -0.346209, -0.188802, -0.438802, …, p2 = 3.71286, 3.65086, 3.76307, 3.66624, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x, g, b)
has the determinant -0.00877819 (n = 1), -0.00877819 (n = 2), 0.000143316 (n = 3), -1.116515023e-6 (n = 4),
4.261204850e-12 (n = 5), 4.261204850e-12 (n = 6), 4.261204850e-12 (n = 7), 4.261204850e-12 (n = 8), 4.261204850e-12 (n
= 12), 4.030705812e-15 (n = 16), 4.030705812e-15 (n = 20), 1.857609870e-20 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 0.0606371 for (x = -111/32, g = 1/2, b = 125/256) and 0.333143 for (x = -291/256, g = 1/2, b = 113/256)
at p1 = -0.346209, p2 = 3.65086, but 0.369426 and 0.338288 at p1 = 3621/256, p2 = 74.0954: their order flips.

Checked below: of two elements each wins after one of two suffixes, so no nondecreasing map moves what was kept of
them from one pivot to the other. The rest of the witness above is quoted.

It runs in 2 passes: s, s2 | n.
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


def summands(x, g, b):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dx = x - np.sum(x) / len(x)
    return dx / sqrt_of(np.sum(dx * dx) / len(x) + number("1e-05")) * g + b


PREFIX = {
    "x": [
        "-7/2", "-895/256", "-893/256", "-111/32", "-439/128", "-863/256", "-211/64", "-821/256", "-789/256",
        "-751/256", "-711/256", "-333/128", "-19/8", "-519/256", "-205/128", "-291/256", "-141/256", "29/256",
        "115/128", "451/256", "703/256", "965/256", "1247/256", "195/32", "481/64", "1149/128",
    ],
    "g": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
    ],
    "b": [
        "1/2", "127/256", "63/128", "125/256", "31/64", "123/256", "61/128", "121/256", "15/32", "119/256", "59/128",
        "117/256", "29/64", "115/256", "57/128", "113/256", "7/16", "111/256", "55/128", "109/256", "27/64",
        "107/256", "53/128", "105/256", "13/32", "103/256",
    ],
}
ELEMENTS = [3, 15]
SUFFIXES = [
    {"x": ["1/4"], "g": ["1/2"], "b": ["1/2"]},
    {"x": ["783/2"], "g": ["1/2"], "b": ["1/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [
        numbers(PREFIX["x"], suffix["x"], axis=0), numbers(PREFIX["g"], suffix["g"], axis=0),
        numbers(PREFIX["b"], suffix["b"], axis=0),
    ]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


def test_the_order_of_two_elements_flips():
    """Each of two elements is strictly ahead after one of two suffixes."""
    (a, b), (later_a, later_b) = table()
    assert (a < b and later_a > later_b) or (a > b and later_a < later_b)
