"""kb_softmax_sub_swish_max: one pass is not enough (envelope).

    kb_softmax_sub_swish_max(x[l], s[l]):
        t1 = exp(x - max(x, l))
        t2 = t1 / sum(t1, l) - s
        return max(t2 * (0.5 * tanh(0.5 * t2) + 0.5), l)

m2 = max((exp(x[l] - m) / s2 - s[l]) * (0.5 * tanh(0.5 * (exp(x[l] - m) / s2 - s[l])) + 0.5), l): envelope: ever more
elements can win, each at a pivot of its own.
Prefix: x = 1/2, 127/256, 63/128, 125/256, …, 103/256; s = -7/2, -917543/262144, -917581/262144, -1835237/524288, …,
-1836059/524288.
Suffixes: x = -4, s = 1/2; x = 1/4, s = 1/2; x = 9/2, s = 1/2; x = -9/4, s = 1/2; ….
The Jacobian of the results after n suffixes by n numbers of the prefix (x, s)
has the determinant -1.06879 (n = 1), 0.00127489 (n = 2), -0.00136384 (n = 3), -1.524950072e-10 (n = 4),
1.630192466e-10 (n = 5), -1.744470219e-10 (n = 6), 1.865750176e-10 (n = 7), -1.994309434e-10 (n = 8), -2.609687414e-10
(n = 12), -1.912653927e-13 (n = 16), -2.502582725e-13 (n = 20), -3.272291203e-13 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 3.44056 for (x = 1/2, s = -7/2) and 3.43976 for (x = 111/256, s = -1835971/524288) after the suffix (x =
-4, s = 1/2), but 3.41089 and 3.41199 after the suffix (x = 9/2, s = 1/2): their order flips.

Checked below: of two elements each wins after one of two suffixes, so no nondecreasing map moves what was kept of
them from one pivot to the other. The rest of the witness above is quoted.

It runs in 2 passes: m, s2 | m2.
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
tanh_of = np.frompyfunc(mpmath.tanh, 1, 1)


def summands(x, s):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    e = exp_of(x - np.max(x))
    dx = e / np.sum(e) - s
    return dx * (number("0.5") * tanh_of(number("0.5") * dx) + number("0.5"))


PREFIX = {
    "x": [
        "1/2", "127/256", "63/128", "125/256", "31/64", "123/256", "61/128", "121/256", "15/32", "119/256", "59/128",
        "117/256", "29/64", "115/256", "57/128", "113/256", "7/16", "111/256", "55/128", "109/256", "27/64",
        "107/256", "53/128", "105/256", "13/32", "103/256",
    ],
    "s": [
        "-7/2", "-917543/262144", "-917581/262144", "-1835237/524288", "-1835309/524288", "-458845/131072",
        "-1835449/524288", "-458879/131072", "-458895/131072", "-1835641/524288", "-917849/262144",
        "-1835751/524288", "-229475/65536", "-458961/131072", "-1835883/524288", "-1835917/524288", "-917973/262144",
        "-1835971/524288", "-229499/65536", "-1836009/524288", "-1836023/524288", "-918017/262144",
        "-1836043/524288", "-918025/262144", "-229507/65536", "-1836059/524288",
    ],
}
ELEMENTS = [0, 17]
SUFFIXES = [
    {"x": [-4], "s": ["1/2"]},
    {"x": ["9/2"], "s": ["1/2"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["x"], suffix["x"], axis=0), numbers(PREFIX["s"], suffix["s"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


def test_the_order_of_two_elements_flips():
    """Each of two elements is strictly ahead after one of two suffixes."""
    (a, b), (later_a, later_b) = table()
    assert (a < b and later_a > later_b) or (a > b and later_a < later_b)
