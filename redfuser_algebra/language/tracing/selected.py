"""Elements that a mask selects, such as x[x > 0]: how many there are depends on the values, so they are no array.

They can be computed with, elementwise and with others that the same mask selects, and reduced: a reduction of them is
one of the whole array under that mask.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.tracing.array import Traced, implements, lifted
from redfuser_algebra.language.tracing.elementwise import truth
from redfuser_algebra.language.tracing.place import refused

_REDUCING = (np.sum, np.prod, np.max, np.amax, np.min, np.amin, np.mean, np.var, np.std, np.any, np.all)
_PRODUCTS = (np.dot, np.vdot, np.inner)


class Selected(NDArrayOperatorsMixin):
    """The elements of `array` where `mask`, over its first dimensions, holds."""

    __array_priority__ = 2000

    def __init__(self, array: Traced, mask: Traced) -> None:
        if array.dims[:mask.ndim] != mask.dims:
            raise refused("elements selected by a mask", "the mask is not over the first dimensions of the array", "give the mask the array's axes")
        self.array, self.mask = array, mask

    @property
    def size(self) -> Traced:
        number = np.sum(self.mask)
        for length in self.array.shape[self.mask.ndim:]:
            number = number * length
        return number

    @property
    def shape(self) -> tuple:
        return (np.sum(self.mask), *self.array.shape[self.mask.ndim:])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: object, **options: object) -> Selected:
        if method == "__call__" and ufunc is np.matmul and not options:
            return self._contracted(operands)
        if method != "__call__" or options:
            raise self._no_array(f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"))
        return Selected(ufunc(*self._together(operands, f"np.{ufunc.__name__}")), self.mask)

    def __array_function__(self, function: Callable, types: Sequence, args: tuple, kwargs: dict) -> object:
        if function in _REDUCING:
            return self._reduced(function, *args[1:], **kwargs)
        if function in _PRODUCTS and not kwargs:
            return self._contracted(args)
        if function is np.size and len(args) == 1:
            return self.size
        if function is np.count_nonzero and len(args) == 1:
            return self._reduced(np.sum) if self.array.expr.op == "not_equal" else np.sum(self != 0)
        if function is np.linalg.norm and len(args) == 1 and not kwargs:
            return np.sqrt(np.sum(self * self))
        raise self._no_array(f"np.{function.__name__}")

    def _no_array(self, what: str) -> Exception:
        return refused(f"{what} of elements selected by a mask", "how many there are depends on the values",
                       "reduce with where=mask, or use np.where(mask, x, 0)")

    def _refused(self, *given: object, **options: object) -> object:
        raise self._no_array("an index, a length, a loop or a Python number")

    __len__ = __iter__ = __array__ = __bool__ = __float__ = __int__ = __index__ = __getitem__ = _refused

    def __repr__(self) -> str:
        return "elements selected by a mask"

    def astype(self, dtype: object, **options: object) -> Selected:
        return Selected(self.array.astype(dtype), self.mask)

    def _together(self, operands: Sequence, what: str) -> list:
        """The whole arrays of operands that the same mask selects; others must not have its dimensions."""
        alone = self.array.ndim - self.mask.ndim
        for operand in operands:
            if operand.mask.expr is not self.mask.expr if isinstance(operand, Selected) else lifted(operand).ndim > alone:
                raise refused(f"{what} of elements selected by a mask", "the other operand is not selected by the same mask",
                              "select both by one mask, or reduce with where=mask")
        return [operand.array if isinstance(operand, Selected) else operand for operand in operands]

    def _contracted(self, operands: Sequence) -> Traced:
        arrays = self._together(operands, "a product")
        if any(not isinstance(operand, Selected) or operand.array.ndim > 1 for operand in operands):
            raise self._no_array("a matrix product")
        return np.sum(Selected(arrays[0] * arrays[1], self.mask))

    def _reduced(self, function: Callable, axis: int | None = None, **options: object) -> Traced | Selected:
        if isinstance(axis, tuple) or {"where", "initial", "out"} & set(options):
            raise self._no_array(f"np.{function.__name__} with {', '.join(options) or 'several axes'}")
        rest = self.array.ndim - self.mask.ndim
        if axis is not None and axis % (rest + 1):
            place = axis % (rest + 1) + self.mask.ndim - 1
            return Selected(function(self.array, axis=place, **options), self.mask)
        mask = Traced(self.mask.expr, self.mask.dims + ((),) * rest)
        return function(self.array, axis=None if axis is None else tuple(range(self.mask.ndim)), where=mask, **options)


class _Positions(Selected):
    """The positions along an axis where a mask holds: the first and the last can be taken, and they can be counted."""

    def __getitem__(self, key: object) -> Traced:
        if key not in (0, -1) or isinstance(key, bool):
            raise refused("an index into the positions that a mask selects", "how many there are depends on the values", "take the first or last, [0] or [-1]")
        return np.min(self) if key == 0 else np.max(self)


@implements(np.nonzero)
def positions_where(a: object) -> tuple[_Positions]:
    """The positions of what is not 0 in an array of one dimension."""
    a = lifted(a)
    if a.ndim != 1 or len(a.dims[0]) != 1:
        raise refused("the positions that a mask of several dimensions selects", "they are lists of whole numbers, one for each dimension",
                      "give it one dimension, use np.where(mask, a, b), or count with np.sum(mask)")
    return (_Positions(Traced(ra.index(a.dims[0][0]), a.dims), Traced(truth(a.expr), a.dims)),)


implements(np.flatnonzero)(lambda a: positions_where(lifted(a).ravel())[0])


def _method(name: str) -> Callable:
    def method(self: Selected, *args: object, **kwargs: object) -> object:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"np.{name} of these elements."
    return method


for _name in "sum prod max min mean var std any all dot".split():
    setattr(Selected, _name, _method(_name))
