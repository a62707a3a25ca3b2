"""NumPy's functions of elements and of listed numbers in order: which bin an element falls into, and lines between them."""
from __future__ import annotations

from functools import reduce

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.tracing.array import Length, Traced, implements, lifted
from redfuser_algebra.language.tracing.lengths import LISTED
from redfuser_algebra.language.tracing.place import refused

EDGES = 64
"""Up to so many listed numbers are compared with every element."""


def listed(values: object, what: str) -> list[float]:
    """Numbers that the code lists.  Raises OperatorError for anything else, and for too many."""
    if isinstance(values, Traced | Length):
        raise refused(what, "the numbers that elements are compared with are not written in the code", "list them, or compare and sum: np.sum(x[:, None] > edges, 1)")
    numbers = np.asarray(values, float)
    if numbers.ndim != 1 or not 0 < numbers.size <= EDGES:
        raise refused(what, f"it takes one row of at most {EDGES} numbers", "give fewer, or compare with an input that has an axis of its own")
    return numbers.tolist()


def _passed(element: Expr, edge: float, side: str) -> Expr:
    """Whether an element comes after an edge; what is not a number comes after all."""
    return ~(element <= edge) if side == "left" else ~(element < edge)


@implements(np.searchsorted)
def _searchsorted(a, v, side="left", sorter=None):
    if sorter is not None:
        raise refused("np.searchsorted with sorter=", "it is not followed", "sort the numbers beforehand")
    edges, v = listed(a, "np.searchsorted in traced code"), lifted(v)
    counts = [ra.where(_passed(v.expr, edge, side), 1, 0) for edge in edges]
    return Traced(sum(counts[1:], counts[0]), v.dims)


@implements(np.digitize)
def _digitize(x, bins, right=False):
    edges, side = listed(bins, "np.digitize in traced code"), "left" if right else "right"
    if edges == sorted(edges):
        return _searchsorted(edges, x, side)
    if edges != sorted(edges, reverse=True):
        raise refused("np.digitize in traced code", "its bins are neither increasing nor decreasing", "sort them")
    return len(edges) - _searchsorted(edges[::-1], x, side)


@implements(np.interp)
def _interp(x, xp, fp, left=None, right=None, period=None):
    if period is not None:
        raise refused("np.interp with period=", "it is not followed", "reduce x by % first, and repeat the ends in xp and fp")
    at, to, x = listed(xp, "np.interp in traced code"), listed(fp, "np.interp in traced code"), lifted(x)
    if len(at) != len(to) or any(one >= two for one, two in zip(at, at[1:])):
        raise refused("np.interp in traced code", "xp must increase, and fp have as many numbers", "list them so")
    lines = [(at[i], to[i] + (x.expr - at[i]) * ((to[i + 1] - to[i]) / (at[i + 1] - at[i]))) for i in range(len(at) - 1)]
    first = lines[0][1] if lines else ra.where(ra.isnan(x.expr), x.expr, to[0])
    inside = reduce(lambda before, line: ra.where(x.expr >= line[0], line[1], before), [*lines[1:], (at[-1], to[-1])], first)
    after = ra.where(x.expr > at[-1], to[-1] if right is None else lifted(right).expr, inside)
    return Traced(ra.where(x.expr < at[0], to[0] if left is None else lifted(left).expr, after), x.dims)


def _edges(a: Traced, bins: object, range: object) -> object:
    """The lower and upper edges of the bins, and all of them where the code lists them (else None)."""
    if isinstance(bins, str):
        raise refused(f"np.histogram with bins={bins!r}", "how many bins there are depends on the values", "say how many, or list the edges")
    if isinstance(bins, int) and range is not None:
        bins = np.linspace(*range, bins + 1)
    if not isinstance(bins, int):
        bins = np.asarray(listed(bins, "np.histogram in traced code"))
    many = bins if isinstance(bins, int) else len(bins) - 1
    if not 0 < many <= LISTED:
        raise refused(f"np.histogram with {many} bins", f"they are counted one by one, up to {LISTED}", "take fewer bins")
    if not isinstance(bins, int):
        return bins[:-1], bins[1:], bins
    low, high = np.min(a), np.max(a)
    low, high = np.where(low == high, low - 0.5, low), np.where(low == high, high + 0.5, high)
    return *(low + (high - low) * (np.arange(first, first + many) / many) for first in (0, 1)), None


@implements(np.histogram)
def _histogram(a, bins=10, range=None, density=None, weights=None):
    a = lifted(a)
    if a.ndim != 1:
        raise refused("np.histogram of an array of several dimensions", "all its elements would fall into one row of bins",
                      "give it one, or compare with the edges and sum")
    low, high, edges = _edges(a, bins, range)
    low, high = lifted(low), lifted(high)
    last = np.arange(len(low)) == len(low) - 1
    inside = (a >= low[:, None]) & ((a < high[:, None]) | last[:, None] & (a <= high[:, None]))
    counts = np.sum(np.where(inside, 1 if weights is None else weights, 0), axis=1)
    return (counts / np.sum(counts) / (high - low) if density else counts), edges


@implements(np.polyval)
def _polyval(p, x):
    return reduce(lambda value, coefficient: value * x + coefficient, listed(p, "np.polyval in traced code"))
