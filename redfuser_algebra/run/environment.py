"""Where an expression is evaluated: every array in one layout, so that NumPy's broadcasting does the rest.

Layout: batch dimensions first, then one dimension per axis of `Environment.axes`, of size 1 where an array lacks
the axis.  `laid_out` brings a user's array into the layout, `taken_out` brings a result back.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.errors import OperatorError


@dataclass(frozen=True)
class Environment:
    """The values an expression is evaluated with.

    `axes` is the order of dimensions, `sizes` the length of each axis here, `batch` the broadcast batch shape.
    `values` holds inputs and parameters, `symbols` the results, pivots and components of a fused form, all laid out.
    `starts` is the absolute position of the first element of an axis (a chunk's; 0 where it says nothing);
    `own` holds the axes of named values, in the order in which expressions name them: one may read a value under
    other axes, copies of its own.
    `lengths` overrides what `size(axis)` means: the length seen so far, where only a chunk is at hand.
    With `partial`, a total twin is evaluated as the partial operation that it completes.
    """

    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    values: Mapping[str, np.ndarray]
    symbols: Mapping[str, np.ndarray] = field(default_factory=dict)
    batch: tuple[int, ...] = ()
    starts: Mapping[str, int] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partial: bool = False

    @property
    def ndim(self) -> int:
        """The number of dimensions that every laid-out array has."""
        return len(self.batch) + len(self.axes)

    def dim(self, axis: str) -> int:
        """The dimension of `axis`, counted from the end."""
        return self.axes.index(axis) - len(self.axes)

    def read_along(self, value: np.ndarray, own: tuple[str, ...], axes: tuple[str, ...]) -> np.ndarray:
        """A laid-out value with the dimension of each of its `own` axes moved to the one in the same place of `axes`.

        Without copies among them, the same axes in another order are the same value.
        """
        if own == axes or set(own) == set(axes) and all(copied_axis(axis) == axis for axis in axes):
            return value
        source, target = [self.dim(axis) for axis in own], [self.dim(axis) for axis in axes]
        order = dict(zip(target, source, strict=True))
        order |= zip((dim for dim in source if dim not in target), (dim for dim in target if dim not in source), strict=True)
        return np.transpose(value, [order.get(dim, dim) for dim in range(-self.ndim, 0)])

    def along(self, axis: str, values: np.ndarray) -> np.ndarray:
        """A vector laid out along `axis`."""
        shape = [1] * self.ndim
        shape[self.dim(axis)] = -1
        return np.reshape(values, shape)


def laid_out(array: np.ndarray, array_axes: tuple[str, ...], axes: tuple[str, ...], batch_ndim: int) -> np.ndarray:
    """An array with dimensions (batch…, `array_axes`…) as a view in the layout of `axes`."""
    own_batch = array.ndim - len(array_axes)
    order = sorted(range(len(array_axes)), key=lambda i: axes.index(array_axes[i]))
    moved = np.transpose(array, (*range(own_batch), *(own_batch + i for i in order)))
    lengths = dict(zip(array_axes, array.shape[own_batch:], strict=True))
    padding = (1,) * (batch_ndim - own_batch)
    return moved.reshape(padding + array.shape[:own_batch] + tuple(lengths.get(axis, 1) for axis in axes))


def filled(value: np.ndarray, value_axes: tuple[str, ...], environment: Environment) -> np.ndarray:
    """A laid-out value at full size (a view): the whole batch, and the length of each of `value_axes`."""
    own = tuple(environment.sizes[axis] if axis in value_axes else 1 for axis in environment.axes)
    return np.broadcast_to(value, environment.batch + own)


def taken_out(value: np.ndarray, output_axes: tuple[str, ...], environment: Environment) -> np.ndarray:
    """A laid-out result with dimensions (batch…, `output_axes`…), as NumPy would return it (a scalar if 0-d)."""
    batch = environment.batch
    kept = [axis for axis in environment.axes if axis in output_axes]
    full = filled(value, output_axes, environment).reshape(batch + tuple(environment.sizes[axis] for axis in kept))
    order = (*range(len(batch)), *(len(batch) + kept.index(axis) for axis in output_axes))
    return np.array(np.transpose(full, order), order="C")[()]


def stretched(value: np.ndarray, dim: int, length: int) -> np.ndarray:
    """`value` with `length` elements along `dim`, repeated there (without a copy) if it has one."""
    shape = list(value.shape)
    shape[dim] = length
    return np.broadcast_to(value, shape)


def whole_number(value: np.ndarray, what: str) -> int:
    """The count that `value` holds; raises OperatorError unless it is one nonnegative whole number."""
    number = float(value.reshape(-1)[0]) if value.size == 1 else math.nan
    if number >= 0 and number == math.floor(number) and math.isfinite(number):
        return int(number)
    raise OperatorError(what, "the number k is not one nonnegative whole number", "pass k as a scalar such as k=8")
