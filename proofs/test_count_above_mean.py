"""count_above_mean: one pass is not enough (threshold).

    count_above_mean(x[l]):
        return sum(where(x > sum(x, l) / size(l), 1, 0), l)

s2 = sum(where(x[l] > s / size(l), 1, 0), l): threshold: which elements take part depends on a pivot that moves.
Prefix: x = 1, 2, 3, 4, …, 36.
After it, as x of one element grows, the result jumps near -629, -481, -333, -185, … (each place known to within
0.0002): each time one choice turns, g = 0, and no other.
Where it turns is a function of the prefix.  The Jacobian of n such g by n numbers of the prefix
has the determinant 0.972973 (n = 1), 0.945946 (n = 2), 0.918919 (n = 3), 0.891892 (n = 4), 0.864865 (n = 5), 0.837838
(n = 6), 0.810811 (n = 7), 0.783784 (n = 8), 0.675676 (n = 12), 0.567568 (n = 16), 0.459459 (n = 20), -0.027027 (n =
24), never 0.
So whatever is kept of a prefix, if it depends continuously on the elements and determines the result after every
suffix, is at least 24 numbers.

Checked below, in exact fractions: after the prefix the result jumps at each of these places, as the number that is
steered passes it. How the places move with the prefix is quoted.

It runs in 2 passes: s | s2.
"""

from fractions import Fraction

import numpy as np

number = Fraction


def result(x):
    """The operator, in exact numbers."""
    return np.sum(np.where(x > np.sum(x) / len(x), 1, 0))


PREFIX = {
    "x": [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
        30, 31, 32, 33, 34, 35, 36,
    ],
}
SUFFIXES = [
    {"x": ["-1350767267909/2147483648"]},
    {"x": ["-5403066948761/8589934592"]},
    {"x": ["-1032939688005/2147483648"]},
    {"x": ["-4131756629145/8589934592"]},
    {"x": ["-715112108101/2147483648"]},
    {"x": ["-2860446309529/8589934592"]},
    {"x": ["-397284528197/2147483648"]},
    {"x": ["-1589135989913/8589934592"]},
    {"x": ["-158913994481/4294967296"]},
    {"x": ["-39728417339/1073741824"]},
    {"x": ["79456854171/1073741824"]},
    {"x": ["317827703559/4294967296"]},
    {"x": ["476741316539/2147483648"]},
    {"x": ["1906967389031/8589934592"]},
    {"x": ["794568896443/2147483648"]},
    {"x": ["3178277708647/8589934592"]},
    {"x": ["1112396476347/2147483648"]},
    {"x": ["4449588028263/8589934592"]},
    {"x": ["1430224056251/2147483648"]},
    {"x": ["5720898347879/8589934592"]},
    {"x": ["-1271310372933/2147483648"]},
    {"x": ["-5085239368857/8589934592"]},
    {"x": ["-953482793029/2147483648"]},
    {"x": ["-3813929049241/8589934592"]},
    {"x": ["-635655213125/2147483648"]},
    {"x": ["-2542618729625/8589934592"]},
    {"x": ["-317827633221/2147483648"]},
    {"x": ["-1271308410009/8589934592"]},
    {"x": ["-8161/1073741824"]},
    {"x": ["24731/4294967296"]},
    {"x": ["238370603217/2147483648"]},
    {"x": ["476741493309/4294967296"]},
    {"x": ["556198211515/2147483648"]},
    {"x": ["2224794968935/8589934592"]},
    {"x": ["874025791419/2147483648"]},
    {"x": ["3496105288551/8589934592"]},
    {"x": ["1191853371323/2147483648"]},
    {"x": ["4767415608167/8589934592"]},
    {"x": ["-1191853477957/2147483648"]},
    {"x": ["-4767411788953/8589934592"]},
    {"x": ["-874025898053/2147483648"]},
    {"x": ["-3496101469337/8589934592"]},
    {"x": ["-556198318149/2147483648"]},
    {"x": ["-2224791149721/8589934592"]},
    {"x": ["-238370738245/2147483648"]},
    {"x": ["-953480830105/8589934592"]},
    {"x": ["19864222303/1073741824"]},
    {"x": ["79456946587/4294967296"]},
]


def numbers(*parts, axis=0):
    """Arrays of exact numbers, one behind the other."""
    exact = np.frompyfunc(number, 1, 1)
    return np.concatenate([exact(np.array(part, object)) for part in parts], axis=axis)


def after(suffix):
    """The inputs: the prefix, then the suffix."""
    return [numbers(PREFIX["x"], suffix["x"], axis=0)]


SEEN = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
PLACES = [[], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], []]


def observed(at, suffix):
    """The number that jumps."""
    return np.asarray(result(*after(suffix)))[tuple(PLACES[at])]


def test_the_result_jumps_at_every_place():
    """On the two sides of each place, which are next to each other, the result differs."""
    for at, (low, high) in enumerate(zip(SUFFIXES[::2], SUFFIXES[1::2], strict=True)):
        assert observed(at, low) != observed(at, high), at
