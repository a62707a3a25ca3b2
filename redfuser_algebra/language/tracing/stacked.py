"""A few arrays side by side along a dimension of their own, as np.stack and np.array of a list make them.

In: arrays of one shape.  Out: one along an axis of known length, whose elements are spoken of one by one.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.tracing.array import Traced, implements, lifted, together
from redfuser_algebra.language.tracing.lengths import LISTED, current
from redfuser_algebra.language.tracing.place import refused


def is_listed(value: object) -> bool:
    """Whether a list, or lists of lists, has traced arrays in it."""
    return isinstance(value, list | tuple) and any(isinstance(each, Traced) or is_listed(each) for each in value)


def stacked(arrays: Sequence, axis: int = 0) -> Traced:
    """The arrays along a dimension of their own, at `axis`.  Raises OperatorError for many."""
    arrays = [stacked(each) if is_listed(each) else lifted(each) for each in arrays]
    if len(arrays) > LISTED:
        raise refused(f"{len(arrays)} arrays side by side", f"more than {LISTED} are not spoken of one by one", "make them an axis of one input")
    if len({array.ndim for array in arrays}) > 1:
        raise refused("arrays side by side", "their shapes differ", "broadcast them first")
    exprs, dims = together(arrays, "arrays side by side")
    name = current.get().apart(current.get().listing(len(arrays)), [each for dim in dims for each in dim])
    result = exprs[-1]
    for place in reversed(range(len(arrays) - 1)):
        result = ra.where(ra.index(name) == place, exprs[place], result)
    dims = list(dims)
    dims.insert(axis % (len(dims) + 1), (name,) if len(arrays) > 1 else ())
    return Traced(result, tuple(dims))


@implements(np.stack)
def _stack(arrays, axis=0, out=None, **options):
    return stacked(arrays, axis)


@implements(np.vstack)
def _vstack(tup, **options):
    return _rows(tup, "np.vstack", 0)


@implements(np.column_stack)
def _column_stack(tup):
    return _rows(tup, "np.column_stack", 1)


def _rows(arrays: Sequence, what: str, axis: int) -> Traced:
    if any(lifted(array).ndim != 1 for array in arrays):
        raise refused(f"{what} of arrays that are no rows", "arrays are joined end to end", "reduce each by itself, and join the results")
    return stacked(arrays, axis)
