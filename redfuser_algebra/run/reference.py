"""The oracle and its equals: an operator as written, and its fused form cut into parts and merged in any order.

In: an operator, its form and a bound call.  Out: the outputs in the operator's structure.
"""
from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.dtypes import in_dtypes, result_dtypes
from redfuser_algebra.run.environment import Environment, filled
from redfuser_algebra.run.evaluate import evaluate
from redfuser_algebra.run.laid_out import environment_of, structured
from redfuser_algebra.run.state import State, advanced, finalize, identity, lift, mapped, merge

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm


def reference(operator: Operator, binding: Binding) -> object:
    """The operator as written, in float64 (DESIGN §6); 0-d outputs are NumPy scalars.

    Raises OperatorError where the operator has no value, such as the max of no elements.
    """
    environment = environment_of(operator, binding)
    return structured(operator, evaluate(operator.outputs, environment), environment)


def as_written(operator: Operator, operands: Mapping[str, object]) -> object:
    """The operator as written, for arrays and scalars by name, in the dtypes that a fused form would give."""
    binding = operator.bind(**operands)
    dtypes = result_dtypes(operator, {name: array.dtype for name, array in binding.arrays.items()}, binding.params)
    return in_dtypes(operator, reference(operator, binding), dtypes)


def fused_by_fold(operator: Operator, form: FusedForm, binding: Binding) -> object:
    """The fused form fed one element at a time."""
    return fused_by_chunks(operator, form, binding, [1] * binding.sizes[form.axis])


def fused_by_chunks(operator: Operator, form: FusedForm, binding: Binding, sizes: Sequence[int]) -> object:
    """The fused form fed chunks of these sizes (zeros are allowed), merged from left to right."""
    environment = environment_of(operator, binding, form)
    chunks = cut(environment, form.axis, sizes)
    state = reduce(lambda before, chunk: advanced(form, before, chunk), chunks, identity(form, environment))
    return completed(operator, form, state, chunks, environment)


def fused_by_tree(operator: Operator, form: FusedForm, binding: Binding, sizes: Sequence[int], seed: int) -> object:
    """The fused form on chunks of these sizes, merged as a random tree; if the form commutes, in any order."""
    environment, choose = environment_of(operator, binding, form), random.Random(seed)
    chunks = cut(environment, form.axis, sizes)
    parts = [identity(form, environment), *(lift(form, chunk) for chunk in chunks)]
    if form.order == "commutative":
        choose.shuffle(parts)
    while len(parts) > 1:
        at = choose.randrange(len(parts) - 1)
        parts[at : at + 2] = [merge(form, *parts[at : at + 2])]
    return completed(operator, form, parts[0], chunks, environment)


def completed(
    operator: Operator, form: FusedForm, state: State, chunks: Sequence[Environment], environment: Environment
) -> object:
    """The operator's outputs from the final state; maps by a second sweep over the chunks, in order."""
    outputs = finalize(form, state)
    if has_maps(form):
        pieces = zip(*_mapped_in_order(form, state, chunks), strict=True) if chunks else [()] * len(outputs)
        outputs = [
            stitched(output, form.axis, chunks, of_chunks, environment) if value is None else value
            for value, output, of_chunks in zip(outputs, form.outputs, pieces, strict=True)
        ]
    return structured(operator, outputs, environment)


def _mapped_in_order(form: FusedForm, state: State, chunks: Sequence[Environment]) -> Iterator[tuple[np.ndarray | None, ...]]:
    """The maps of every chunk, each going on from those before it."""
    before = identity(form, chunks[0])
    for chunk in chunks:
        yield mapped(form, state, chunk, before)
        before = advanced(form, before, chunk) if form.prefixes else before


def has_maps(form: FusedForm) -> bool:
    """Whether some output keeps the reduced axis, so that the data is needed a second time."""
    return form.axis in {axis for output in form.outputs for axis in output.axes}


def stitched(
    output: Expr, axis: str, chunks: Sequence[Environment], pieces: Sequence[np.ndarray], environment: Environment
) -> np.ndarray:
    """The map `output` from its pieces, one per chunk, in the order of the chunks."""
    nothing = filled(np.zeros((1,) * environment.ndim), output.axes, replace(environment, sizes={**environment.sizes, axis: 0}))
    full = [filled(piece, output.axes, chunk) for piece, chunk in zip(pieces, chunks, strict=True)]
    return np.concatenate(full or [nothing], axis=environment.dim(axis))


def cut(environment: Environment, axis: str, sizes: Sequence[int]) -> list[Environment]:
    """The chunks of consecutive elements along `axis`.  Raises OperatorError unless the sizes add up to its length."""
    length = environment.sizes[axis]
    if sum(sizes) != length:
        raise OperatorError(
            f"chunks of sizes {list(sizes)!r:.60}", f"they add up to {sum(sizes)}, axis {axis!r} has {length} elements",
            "choose sizes whose sum is the length of the axis")
    first = environment.starts.get(axis, 0)
    stops = np.cumsum([0, *sizes]).tolist()
    return [
        replace(
            environment,
            sizes={**environment.sizes, axis: stop - start},
            starts={**environment.starts, axis: first + start},
            values={name: _slice(value, environment, axis, start, stop) for name, value in environment.values.items()},
        )
        for start, stop in zip(stops, stops[1:], strict=False)
    ]


def _slice(value: np.ndarray, environment: Environment, axis: str, start: int, stop: int) -> np.ndarray:
    """The part of a laid-out array; one of size 1 along the axis is the same everywhere, or is the only element."""
    dim = environment.dim(axis) % value.ndim
    if value.shape[dim] == 1:
        return value
    return value[(slice(None),) * dim + (slice(start, stop),)]
