"""NumPy's functions in which elements a few places apart along an axis meet, made of slices: `stretches` reads those."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.tracing.array import Traced, implements, lifted
from redfuser_algebra.language.tracing.bins import listed
from redfuser_algebra.language.tracing.lengths import LISTED, current
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.stretches import difference


def _shifted(array: Traced, place: int, before: int, after: int) -> Traced:
    """The array without some elements at the ends of a dimension."""
    return array[(*(slice(None),) * place, slice(before, -after or None))]


@implements(np.ediff1d)
def _ediff1d(ary, to_end=None, to_begin=None):
    if to_end is not None or to_begin is not None:
        raise refused("np.ediff1d with to_begin= or to_end=", "arrays are joined end to end", "add those differences by themselves")
    return difference(lifted(ary).ravel())


@implements(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    x = lifted(x)
    width = window_shape[0] if isinstance(window_shape, tuple | list) and len(window_shape) == 1 else window_shape
    if axis is None and x.ndim != 1 or not isinstance(width, int) or not 0 < width <= LISTED:
        raise refused("np.sliding_window_view in traced code", f"its windows go along one axis, over up to {LISTED} elements",
                      "give axis=, and a shorter window")
    place = (-1 if axis is None else axis) % x.ndim
    views = [_shifted(x, place, start, width - 1 - start) for start in range(width)]
    within = current.get().listing(width)
    expr = views[-1].expr
    for start in reversed(range(width - 1)):
        expr = ra.where(ra.index(within) == start, views[start].expr, expr)
    return Traced(expr, (*views[0].dims, (within,)))


def _weighted_neighbours(a: Traced, weights: object, mode: str, what: str) -> Traced:
    """Σ_j weight_j · a_(i + j) for all i where every a_(i + j) is there."""
    if isinstance(weights, Traced):
        raise refused(f"{what} of two arrays", "neighbours along an axis meet", "list the numbers of the second array in the code")
    weights = listed(weights, f"{what} in traced code")
    if a.ndim != 1 or mode != "valid" or len(weights) > LISTED:
        raise refused(f"{what} in traced code", f"at the ends it meets zeros, or the second array has more than {LISTED} numbers",
                      'ask for mode="valid" with a short second array')
    terms = [_shifted(a, 0, start, len(weights) - 1 - start) * weight for start, weight in enumerate(weights)]
    return sum(terms[1:], terms[0])


@implements(np.convolve)
def _convolve(a, v, mode="full"):
    a, v = (v, a) if isinstance(v, Traced) else (a, v)
    return _weighted_neighbours(lifted(a), v if isinstance(v, Traced) else v[::-1], mode, "np.convolve")


@implements(np.correlate)
def _correlate(a, v, mode="valid"):
    if isinstance(v, Traced) and not isinstance(a, Traced):
        raise refused("np.correlate of listed numbers with an array", "it comes out in reverse", "give the array first")
    return _weighted_neighbours(lifted(a), v, mode, "np.correlate")
