"""Ordered components: the elements of a chunk joined neighbour by neighbour, and two parts joined in their order.

In: a fused form, and what one element or a part holds of its components.  Out: values of the ordered components.  Only
the bracketing is chosen: half of the elements are joined with the other half, as long as more than one is left.  What
no output sees the size of is kept within the range of floats.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.run.environment import Environment, stretched
from redfuser_algebra.run.evaluate import evaluate

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm, Scaling

Values = Mapping[str, np.ndarray]


def joined_elements(form: FusedForm, chunk: Environment, value: Callable[[Expr], np.ndarray]) -> dict[str, np.ndarray]:
    """What a chunk of at least one element holds of the ordered components, and of those they are joined with."""
    joins = form.joins
    dim, length = chunk.dim(form.axis) + chunk.ndim, chunk.sizes[form.axis]
    parts = {c.name: stretched(value(c.lift), dim, length).astype(np.float64) for c in form.state if c.name in joins}
    parts = rescaled(form.scalings, chunk, parts)
    if form.from_empty and chunk.starts.get(form.axis, 0) == 0:
        first = {name: part[(slice(None),) * dim + (slice(0, 1),)] for name, part in parts.items()}
        both = join(joins, chunk, {name: np.full_like(part, form.component(name).nothing) for name, part in first.items()}, first)
        parts = {name: _end_to_end(both[name], part[(slice(None),) * dim + (slice(1, None),)], dim) for name, part in parts.items()}
    while length > 1:
        earlier, later, rest = ({name: part[(slice(None),) * dim + (cut,)] for name, part in parts.items()} for cut in (
            slice(0, length - 1, 2), slice(1, None, 2), slice(length - length % 2, None)))
        both = rescaled(form.scalings, chunk, join(joins, chunk, earlier, later))
        parts = {name: _end_to_end(stretched(part, dim, length // 2), rest[name], dim) for name, part in both.items()}
        length -= length // 2
    return parts


def joined_parts(form: FusedForm, environment: Environment, earlier: Values, later: Values) -> dict[str, np.ndarray]:
    """What two neighbouring parts hold together of the ordered components."""
    joins = {name: joined for name, joined in form.joins.items() if name in form.joined_names}
    return rescaled(form.scalings, environment, join(joins, environment, earlier, later))


def rescaled(scalings: Sequence[Scaling], environment: Environment, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What parts hold, with components that left the middle of float64's range multiplied by a power of two; not where all are 0 or infinite."""
    for scaling in scalings:
        spread = tuple(environment.dim(axis) for axis in scaling.spread)
        sizes = (np.where(np.isfinite(values[name]), np.abs(values[name]), 0) for name, _ in scaling.weights)
        size = reduce(np.maximum, (each.max(spread, keepdims=True, initial=0) for each in sizes))
        small = (size > 0) & (size < 2.0 ** (-scaling.shift // 2))
        by = np.where(size > 2.0 ** (scaling.shift // 2), -scaling.shift, np.where(small, scaling.shift, 0))
        if by.any():
            values |= {name: np.ldexp(values[name], by * weight) for name, weight in scaling.weights}
            if scaling.exponent:
                values[scaling.exponent] = values[scaling.exponent] - by
    return values


def join(joins: Mapping[str, Expr], environment: Environment, earlier: Values, later: Values) -> dict[str, np.ndarray]:
    """The components in `joins` of an earlier part and the one after it."""
    symbols = {**earlier, **{name + PRIME: value for name, value in later.items()}}
    own = {**environment.own, **{name + PRIME: axes for name, axes in environment.own.items()}}
    values = evaluate(list(joins.values()), replace(environment, symbols=symbols, own=own))
    return dict(zip(joins, values, strict=True))


def _end_to_end(part: np.ndarray, rest: np.ndarray, dim: int) -> np.ndarray:
    """Two arrays after one another along `dim`, repeated where only one varies along another dimension."""
    others = np.broadcast_shapes(*(array.shape[:dim] + (1,) + array.shape[dim + 1:] for array in (part, rest)))
    return np.concatenate([np.broadcast_to(array, others[:dim] + (array.shape[dim],) + others[dim + 1:]) for array in (part, rest)], dim)
