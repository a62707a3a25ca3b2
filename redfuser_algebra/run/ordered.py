"""Ordered components: the elements of a chunk joined neighbour by neighbour, and two parts joined in their order.

In: a fused form, and what one element or a part holds of its components.  Out: values of the ordered components.  Only
the bracketing is chosen: half of the elements are joined with the other half, as long as more than one is left.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.run.environment import Environment, stretched
from redfuser_algebra.run.evaluate import evaluate

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

PRIME = "'"
Values = Mapping[str, np.ndarray]


def joined_elements(form: FusedForm, chunk: Environment, value: Callable[[Expr], np.ndarray]) -> dict[str, np.ndarray]:
    """What a chunk of at least one element holds of the ordered components, and of those they are joined with."""
    joins = form.joins
    dim, length = chunk.dim(form.axis) + chunk.ndim, chunk.sizes[form.axis]
    parts = {c.name: stretched(value(c.lift), dim, length).astype(np.float64) for c in form.state if c.name in joins}
    while length > 1:
        earlier, later, rest = ({name: part[(slice(None),) * dim + (cut,)] for name, part in parts.items()} for cut in (
            slice(0, length - 1, 2), slice(1, None, 2), slice(length - length % 2, None)))
        both = join(joins, chunk, earlier, later)
        parts = {name: _end_to_end(stretched(part, dim, length // 2), rest[name], dim) for name, part in both.items()}
        length -= length // 2
    return parts


def joined_parts(form: FusedForm, environment: Environment, earlier: Values, later: Values) -> dict[str, np.ndarray]:
    """What two neighbouring parts hold together of the ordered components."""
    return join({c.name: c.joined for c in form.state if c.joined is not None}, environment, earlier, later)


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
