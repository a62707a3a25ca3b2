"""Elements that meet one another: all pairs of one array, which is given once more along an axis of its own."""
from __future__ import annotations

from bisect import bisect_left

import numpy as np

from redfuser_algebra.catalogue.draws import positive, whole
from redfuser_algebra.catalogue.entry import entry
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.recurrence import scan


def _kendall(x):
    inversions = np.count_nonzero(np.triu(x[:, None] > x, 1))
    return inversions, 1 - 4 * inversions / (x.size * (x.size - 1))


@entry(source="scipy.stats.kendalltau; pymannkendall", verdict="not fusable", reason="pairwise", shortest=2, reference=_kendall)
def kendall_inversions(x: "l", y: "k" = "x"):
    """How many pairs are in the wrong order, Σ_{l<k} [x_l > x_k], and Kendall's τ: what comes later counts all that exceed it."""
    inversions, n = ra.sum(ra.count((ra.index("l") < ra.index("k")) & (x > y), "k"), "l"), ra.size("l")
    return inversions, 1 - 4 * inversions / (n * (n - 1))


def _energy(x, y):
    between, one, other = (np.abs(a[:, None] - b).mean() for a, b in ((x, y), (x, x), (y, y)))
    return 2 * between - one - other


@entry(source="scipy.stats.energy_distance; properscoring crps_ensemble", verdict="not fusable", reason="pairwise", reference=_energy)
def energy_distance(x: "l", y: "l", x2: "k" = "x", y2: "k" = "y"):
    """2 E|x − y| − E|x − x′| − E|y − y′|: the knot of |x − y| is at every element."""
    def distance(a: Expr, b: Expr) -> Expr:
        return ra.sum(ra.sum(ra.abs(a - b), "k"), "l") / ra.size("l") ** 2

    return 2 * distance(x, y2) - distance(x, x2) - distance(y, y2)


@entry(source="river NUnique; SQL COUNT(DISTINCT); Nexmark q15", verdict="not fusable", reason="unbounded-state", inputs={"x": whole(9)},
       reference=lambda x: np.unique(x).size)
def n_unique(x: "l", y: "k" = "x"):
    """How many different elements there are: those that no earlier one equals."""
    return ra.count(ra.all((ra.index("k") >= ra.index("l")) | (x != y), "k"), "l")


def _mode(x):
    values, counts = np.unique(x, return_counts=True)
    return values[counts.argmax()]


@entry(source="river Mode; scipy.stats.mode", verdict="not fusable", reason="unbounded-state", inputs={"x": whole(9)}, reference=_mode)
def mode_unbounded(x: "l", y: "k" = "x"):
    """The smallest of the most frequent elements: each may yet become the most frequent one."""
    often = ra.count(x == y, "k")
    return ra.min(x, "l", where=often == ra.max(often, "l"))


def _intervals(rng, length):
    a = rng.uniform(0, 9, length)
    return {"a": a, "b": a + positive(rng, (length,))}


def _overlapping(a, b):
    ends = np.concatenate([a, b])
    opened = np.repeat([1, -1], a.size)
    return np.cumsum(opened[np.lexsort((opened, ends))]).max()


@entry(source="ClickHouse maxIntersections", verdict="not fusable", reason="unbounded-state", assume="b > a", inputs=_intervals,
       reference=_overlapping)
def max_intersections(a: "l", b: "l", a2: "k" = "a", b2: "k" = "b"):
    """The most intervals [a_l, b_l) that have a point in common: as many as begin no later, and end later, than one begins."""
    return ra.max(ra.count((a2 <= a) & (a < b2), "k"), "l")


def _covered(a, b):
    total, reached = 0.0, -np.inf
    for at in np.argsort(a):
        total += max(0.0, b[at] - max(a[at], reached))
        reached = max(reached, b[at])
    return total


@entry(source="ClickHouse intervalLengthSum", verdict="not fusable", reason="unbounded-state", inputs=_intervals, reference=_covered)
def interval_union_length(a: "l", b: "l", a2: "k" = "a", b2: "k" = "b"):
    """|∪ [a_l, b_l)|: of each interval what those that begin before it leave uncovered; every gap may yet be filled."""
    before = (a2 < a) | (a2 == a) & (ra.index("k") < ra.index("l"))
    reached = ra.max(ra.where(before, b2, a), "k")
    return ra.sum(ra.maximum(b - ra.maximum(a, reached), 0), "l")


def _rising(x):
    tops: list[float] = []
    for value in x:
        at = bisect_left(tops, value)
        tops[at:at + 1] = [value]
    return len(tops)


@entry(source="patience sorting; diff algorithms", verdict="not fusable", reason="unbounded-state", reference=_rising)
def lis_length(x: "l", y: "k" = "x"):
    """The length of the longest rising subsequence: of all that end at an element, the longest one may yet go on."""
    def step(longest: Expr) -> Expr:
        here = ra.max(ra.where(y < x, longest, 0), "k") + 1
        return ra.where(ra.index("k") == ra.index("l"), here, longest)

    return ra.max(scan(step, "l", 0), "k")
