"""Formulas of a tile program evaluated with NumPy: arrays with one dimension per axis, so that broadcasting does the rest.

In: named arrays in one layout (batch dimensions, then every axis of the program).  Out: arrays in that layout.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.tile import LoweringError

Rounding = Callable[[np.ndarray, str], np.ndarray]
Best = tuple[np.ndarray, np.ndarray]

COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "fmax": np.fmax, "fmin": np.fmin,
           "any": np.logical_or, "all": np.logical_and}
NO_POSITION = -1


@dataclass
class Layout:
    """The dimensions of every array: `batch`, then `sizes` in order; `start` is where the tile of `axis` begins.

    `seen` is what size(axis) means.  With `partial` a total twin is the operation that it completes.
    """

    axes: tuple[str, ...]
    sizes: dict[str, int]
    batch: tuple[int, ...]
    axis: str
    rounded: Rounding
    start: int = 0
    seen: int = 0
    partial: bool = False

    @property
    def ndim(self) -> int:
        """How many dimensions an array has."""
        return len(self.batch) + len(self.axes)

    def dim(self, axis: str) -> int:
        """The dimension of an axis, counted from the end."""
        return self.axes.index(axis) - len(self.axes)

    def laid_out(self, array: np.ndarray, own: tuple[str, ...]) -> np.ndarray:
        """An array with dimensions (batch…, `own`…) in the layout."""
        leading = array.ndim - len(own)
        order = sorted(range(len(own)), key=lambda place: self.axes.index(own[place]))
        moved = array.transpose(*range(leading), *(leading + place for place in order))
        lengths = dict(zip(own, array.shape[leading:], strict=True))
        padding = (1,) * (len(self.batch) - leading)
        return moved.reshape(padding + array.shape[:leading] + tuple(lengths.get(axis, 1) for axis in self.axes))

    def along(self, axis: str, values: np.ndarray) -> np.ndarray:
        """A vector laid out along `axis`."""
        shape = [1] * self.ndim
        shape[self.dim(axis)] = -1
        return values.reshape(shape)

    def full(self, value: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
        """`value` repeated along the batch and `axes`."""
        own = tuple(self.sizes[axis] if axis in axes else 1 for axis in self.axes)
        return np.broadcast_to(value, np.broadcast_shapes(value.shape, self.batch + own))


@dataclass
class Formulas:
    """Evaluates expressions; `names` holds inputs, parameters and symbols, `own` the axes each is stored with."""

    layout: Layout
    names: Mapping[str, np.ndarray]
    own: Mapping[str, tuple[str, ...]]
    known: dict[Expr, np.ndarray] = field(default_factory=dict)

    def of(self, term: Expr) -> np.ndarray:
        """The value of a term in the layout, without NumPy's warnings."""
        if term not in self.known:
            with np.errstate(all="ignore"):
                self.known[term] = self._value(term)
        return self.known[term]

    def _value(self, term: Expr) -> np.ndarray:
        layout = self.layout
        if term.op in ("input", "param", "symbol"):
            return self._read(self.names[term.name], self.own.get(term.name, term.axes), term.axes)
        if term.op == "const":
            return np.full((1,) * layout.ndim, term.value)
        if term.op == "size":
            return np.full((1,) * layout.ndim, layout.seen if term.axis == layout.axis else layout.sizes[term.axis])
        if term.op == "index":
            start = layout.start if term.axis == layout.axis else 0
            return layout.along(term.axis, np.arange(start, start + layout.sizes[term.axis]))
        if term.op == "cast":
            return layout.rounded(self.of(term.args[0]), term.attrs[0])
        if term.op == "reduce":
            return self._reduced(term)
        return self._elementwise(term)

    def _read(self, value: np.ndarray, own: tuple[str, ...], axes: tuple[str, ...]) -> np.ndarray:
        if set(own) == set(axes):
            return value
        source, target = [self.layout.dim(a) for a in own], [self.layout.dim(a) for a in axes]
        order = dict(zip(target, source, strict=True))
        left = [dim for dim in source if dim not in target]
        order |= zip([dim for dim in target if dim not in source], left, strict=True)
        back = {dim: order.get(dim, dim) for dim in range(-self.layout.ndim, 0)}
        for gone in left:
            back[gone] = next(dim for dim in target if dim not in source and order[dim] == gone)
        return value.transpose([back[dim] for dim in range(-self.layout.ndim, 0)])

    def _elementwise(self, term: Expr) -> np.ndarray:
        name = TOTAL_TWINS.get(term.op, term.op) if self.layout.partial else term.op
        operands = [self.of(arg) for arg in term.args]
        if name in ("divide", "power", "exp", "log") or not FUNCTIONS[name].boolean and name in ("add", "multiply"):
            operands = [o.astype(np.float64 if name in ("divide", "power", "exp", "log") else np.int64)
                        if o.dtype.kind in "bui" else o for o in operands]
        return FUNCTIONS[name].apply(*operands)

    def _reduced(self, term: Expr) -> np.ndarray:
        if MONOIDS[term.monoid].counted:
            raise LoweringError(f"{term.monoid} over {term.axis}", "only the reduced axis has one in a tile program",
                                "fuse the operator over that axis")
        mask = None if term.mask is None else self.of(term.mask)
        return self.reduction(term.monoid, self.of(term.body), mask, term.axis)[0]

    def reduction(self, monoid: str, value: np.ndarray, mask: np.ndarray | None, axis: str, k: int | None = None) -> Best:
        """⊕ of `value` along `axis` where `mask` holds, and for positions the values they won with."""
        layout = self.layout
        dim, length = layout.dim(axis), layout.sizes[axis]
        shape = list(np.broadcast_shapes(value.shape, () if mask is None else mask.shape))
        shape[dim] = length
        value = np.broadcast_to(value, shape)
        valid = np.broadcast_to(True if mask is None else mask.astype(bool), shape)
        if MONOIDS[monoid].indexed or MONOIDS[monoid].counted:
            start = layout.start if axis == layout.axis else 0
            at = np.broadcast_to(layout.along(axis, np.arange(start, start + length)), shape)
            won, where = best(value.astype(np.float64), at, valid, dim, k or 1, monoid == "argmin")
            return (where, won) if MONOIDS[monoid].indexed else (won, where)
        identity = MONOIDS[monoid].identity
        if monoid in ("any", "all"):
            value = value != 0
        elif monoid in ("sum", "prod"):
            value, identity = (value.astype(np.int64) if value.dtype.kind in "bui" else value), int(identity)
        elif value.dtype.kind in "bui":
            value = value.astype(np.float64)
        kept = np.where(valid, value, np.asarray(identity, value.dtype))
        total = COMBINE[monoid].reduce(kept, axis=dim, keepdims=True, initial=identity)
        return total, total


def best(values: np.ndarray, at: np.ndarray, valid: np.ndarray, dim: int, k: int, smallest: bool) -> Best:
    """The k largest valid values along `dim` and their positions: NaN before all, then the lowest position.

    Places that nothing fills hold −inf (+inf for the smallest) and −1.
    """
    nan = values != values
    key = np.where(nan, 0.0, values if smallest else -values)
    order = np.take(np.lexsort((at, key, ~nan, ~valid), axis=dim), range(min(k, values.shape[dim])), axis=dim)
    filled = np.take_along_axis(valid, order, dim)
    nothing = np.inf if smallest else -np.inf
    won = np.where(filled, np.take_along_axis(values, order, dim), nothing)
    where = np.where(filled, np.take_along_axis(at, order, dim), NO_POSITION)
    width = [(0, 0)] * values.ndim
    width[dim] = (0, k - order.shape[dim])
    return np.pad(won, width, constant_values=nothing), np.pad(where, width, constant_values=NO_POSITION)
