"""semi_hard_negative: one pass is not enough (envelope).

    semi_hard_negative(dp[l], dn[l]):
        t1 = dn > max(dp, l)
        return where(any(t1, l), min(dn, l, where=t1), max(dn, l))

n = min(dn[l], l, where=dn[l] > m): envelope: ever more elements can win, each at a pivot of its own.
Prefix: dn = 1, 2, 3, 4, …, 26; dp = 1/2.
Suffixes: dn = -675/2, dp = 1/2; dn = 1/4, dp = 81/4; dn = 1/4, dp = 783/2; dn = 1/4, dp = 27/2; ….
The Jacobian of the results after n suffixes by n numbers of the prefix (dn)
has the determinant 1 (n = 1), 1 (n = 2), 1 (n = 3), 1 (n = 4), 1 (n = 5), 1 (n = 6), 1 (n = 7), 1 (n = 8), 1 (n =
12), 1 (n = 16), 1 (n = 20), 1 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1 for (dn = 1, dp = 1/2) and 21 for (dn = 21, dp = 1/2) after the suffix (dn = -675/2, dp = 1/2), but
inf and 21 after the suffix (dn = 1/4, dp = 81/4): their order flips.

Checked below: of two elements each wins after one of two suffixes, so no nondecreasing map moves what was kept of
them from one pivot to the other. The rest of the witness above is quoted.

It runs in 2 passes: m, some, m2 | n.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


def summands(dp, dn):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return np.where(dn > np.max(dp), dn, np.inf)


PREFIX = {
    "dn": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],
    "dp": [
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
        "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2", "1/2",
    ],
}
ELEMENTS = [0, 20]
SUFFIXES = [
    {"dn": ["-675/2"], "dp": ["1/2"]},
    {"dn": ["1/4"], "dp": ["81/4"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["dp"], suffix["dp"], axis=0), numbers(PREFIX["dn"], suffix["dn"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


def test_the_order_of_two_elements_flips():
    """Each of two elements is strictly ahead after one of two suffixes."""
    (a, b), (later_a, later_b) = table()
    assert (a < b and later_a > later_b) or (a > b and later_a < later_b)
