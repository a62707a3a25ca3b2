"""pca_obb_extent: one pass is not enough (envelope).

    pca_obb_extent(X[l, plane]):
        t1 = X - sum(X, l) / size(l)
        d1 = sum(where(index(plane) == 0, t1, 0), plane)
        d2 = sum(where(index(plane) == 1, t1, 0), plane)
        t2 = 0.5 * arctan2(2.0 * sum(d1 * d2, l), sum(d1 * d1 - d2 * d2, l))
        t3 = d1 * cos(t2) + d2 * sin(t2)
        return max(t3, l) - min(t3, l)

m = max(sum(where(index(plane) == 0, X[l, plane] - s / size(l), 0), plane) * cos(0.5 * arctan2(2.0 * s2, s3)) +
sum(where(index(plane) == 1, X[l, plane] - s / size(l), 0), plane) * sin(0.5 * arctan2(2.0 * s2, s3)), l): envelope:
ever more elements can win, each at a pivot of its own.
Prefix: X[0] = 1000, 971, 885, 749, …, 971; X[1] = 0, 239, 465, 663, …, -239.
Suffixes: X[0] = 500, X[1] = 15; X[0] = -403, X[1] = 296; X[0] = 134, X[1] = -482; X[0] = 191, X[1] = 462; …, which
steer p1 = 18.5185, -14.9259, 4.96296, 7.07407, …, p2 = 0.999548, 0.805203, 0.267187, 0.381186, …, p3 = 0.0300668,
-0.592999, -0.963645, 0.924498, ….
The Jacobian of the results after n suffixes by n numbers of the prefix (X[0], X[1])
has the determinant 1.01445 (n = 1), 1.36824 (n = 2), -0.729386 (n = 3), -0.768948 (n = 4), -0.71605 (n = 5), 0.497309
(n = 6), -0.646156 (n = 7), -0.659236 (n = 8), 0.221282 (n = 12), -0.10097 (n = 16), -0.000153451 (n = 20),
1.194687897e-9 (n = 24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.
By hand: F is 981.021 for (X[0] = 1000, X[1] = 0) and 710.2 for (X[0] = 749, X[1] = -663) at p1 = 18.5185, p2 =
0.999548, p3 = 0.0300668, but 823.722 and 1014.77 at p1 = -14.9259, p2 = 0.805203, p3 = -0.592999: their order flips.

Checked below: of two elements each wins after one of two suffixes, so no nondecreasing map moves what was kept of
them from one pivot to the other. The rest of the witness above is quoted.

It runs in 2 passes: s, s2, s3 | m, n.
"""

from fractions import Fraction

import mpmath
import numpy as np

mpmath.mp.dps = 800


def number(text):
    """A fraction, to as many digits as are asked for."""
    exact = Fraction(text)
    return mpmath.mpf(exact.numerator) / exact.denominator


arctan2_of = np.frompyfunc(mpmath.atan2, 2, 1)
cos_of = np.frompyfunc(mpmath.cos, 1, 1)
sin_of = np.frompyfunc(mpmath.sin, 1, 1)


def summands(X):
    """F(x_l; p) of every element, with the pivots p that all elements together make."""
    dX = X - np.sum(X, axis=0) / len(X)
    S = np.sum(np.where(np.arange(X.shape[1]) == 0, dX, 0), axis=1)
    S_X = np.sum(np.where(np.arange(X.shape[1]) == 1, dX, 0), axis=1)
    t = number("0.5") * arctan2_of(2 * np.sum(S * S_X), np.sum(S * S - S_X * S_X))
    return S * cos_of(t) + S_X * sin_of(t)


PREFIX = {
    "X": [
        [1000, 0], [971, 239], [885, 465], [749, 663], [568, 823], [355, 935], [121, 993], [-121, 993], [-355, 935],
        [-568, 823], [-749, 663], [-885, 465], [-971, 239], [-1000, 0], [-971, -239], [-885, -465], [-749, -663],
        [-568, -823], [-355, -935], [-121, -993], [121, -993], [355, -935], [568, -823], [749, -663], [885, -465],
        [971, -239],
    ],
}
ELEMENTS = [0, 23]
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
