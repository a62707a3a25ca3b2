"""farthest_from_centroid_2d: one pass is not enough (envelope).

    farthest_from_centroid_2d(X[l, plane]):
        return max(sqrt(sum((X - sum(X, l) / size(l)) ** 2, plane)), l)

m = max(sqrt(sum((X[l, plane] - s / size(l)) ** 2, plane)), l): envelope: ever more elements can win, each at a pivot
of its own.
Prefix: X[0] = 1000, 971, 885, 749, …, 971; X[1] = 0, 239, 465, 663, …, -239.
Suffixes: X[0] = 500, X[1] = 15; X[0] = -403, X[1] = 296; X[0] = 134, X[1] = -482; X[0] = 191, X[1] = 462; …, which
steer p1 = 18.5185, -14.9259, 4.96296, 7.07407, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (X[0], X[1])
has the determinant -0.962963 (n = 1), -0.694334 (n = 2), -0.663375 (n = 3), 0.596521 (n = 4), 0.430089 (n = 5),
-0.400428 (n = 6), 0.00168945 (n = 7), 5.344461578e-6 (n = 8), -4.681484985e-9 (n = 12), 7.227367370e-12 (n = 16),
-7.872647997e-17 (n = 20), -2.206855740e-19 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 1018.52 for (X[0] = -1000, X[1] = 0) and 986.868 for (X[0] = 749, X[1] = -663) at p1 = 18.5185, but
985.135 and 1018.73 at p1 = -14.9259: their order flips.

Checked below: of two elements each wins after one of two suffixes, so no nondecreasing map moves what was kept of
them from one pivot to the other. The rest of the witness above is quoted.

It runs in 2 passes: s | m.
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


def summands(X):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    return sqrt_of(np.sum((X - np.sum(X, axis=0) / len(X)) ** 2, axis=1))


PREFIX = {
    "X": [
        [1000, 0], [971, 239], [885, 465], [749, 663], [568, 823], [355, 935], [121, 993], [-121, 993], [-355, 935],
        [-568, 823], [-749, 663], [-885, 465], [-971, 239], [-1000, 0], [-971, -239], [-885, -465], [-749, -663],
        [-568, -823], [-355, -935], [-121, -993], [121, -993], [355, -935], [568, -823], [749, -663], [885, -465],
        [971, -239],
    ],
}
ELEMENTS = [13, 23]
SUFFIXES = [
    {"X": [[500, 15]]},
    {"X": [[-403, 296]]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["X"], suffix["X"], axis=0)]


def table():
    """F of the chosen elements (columns) after each suffix (rows)."""
    rows = [np.asarray(summands(*after(suffix))) for suffix in SUFFIXES]
    return [[row[at] for at in ELEMENTS] for row in rows]


def test_the_order_of_two_elements_flips():
    """Each of two elements is strictly ahead after one of two suffixes."""
    (a, b), (later_a, later_b) = table()
    assert (a < b and later_a > later_b) or (a > b and later_a < later_b)
