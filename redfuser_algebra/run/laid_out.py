"""A bound call on its way into the evaluator and back: arrays widened and laid out, results in the user's shape."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import check_declared
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.environment import Environment, laid_out, taken_out

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm


def environment_of(operator: Operator, binding: Binding, form: FusedForm | None = None) -> Environment:
    """The environment of a call: floating-point arrays in float64, integers and truth values as they are.

    A form may contract over copies of an operator's axes, and then has dimensions for them, too.  Raises OperatorError
    if a function or monoid of the operator is no longer declared.
    """
    check_declared(*operator.outputs)
    copies = form.axis_copies if form else {}
    axes = (*operator.axes, *copies)
    batch_ndim = len(binding.batch)
    values = {
        name: laid_out(_wide(array), operator.inputs[name], axes, batch_ndim)
        for name, array in binding.arrays.items()
    }
    for name, value in binding.params.items():
        values[name] = np.full((1,) * (batch_ndim + len(axes)), value)
    sizes = binding.sizes | {copy: binding.sizes[axis] for copy, axis in copies.items()}
    own = operator.inputs | (form.symbol_axes if form else {})
    return Environment(axes, sizes, values, batch=binding.batch, own=own)


def structured(operator: Operator, values: Sequence[np.ndarray], environment: Environment) -> object:
    """Laid-out results as the operator returns them: dimensions (batch…, output axes…), 0-d ones as scalars."""
    outputs = zip(values, operator.output_axes, strict=True)
    return operator.packed(tuple(taken_out(value, axes, environment) for value, axes in outputs))


def delivered(operator: Operator, result: object, out: tuple[np.ndarray, ...]) -> object:
    """The result, or the arrays of `out` (one per output) that hold it now.  Raises OperatorError for an `out` that does not fit."""
    if not out:
        return result
    parts = result if isinstance(result, tuple) else tuple(result.values()) if isinstance(result, dict) else (result,)
    check_out(operator, out, [(np.shape(part), part.dtype) for part in parts])
    for given, part in zip(out, parts, strict=True):
        if not np.may_share_memory(given, part):
            np.copyto(given, part, casting="same_kind")
    return operator.packed(out)


def check_out(operator: Operator, out: tuple[np.ndarray, ...], results: Sequence[tuple[tuple[int, ...], np.dtype]]) -> None:
    """Raises OperatorError unless `out` has an array for each result, given by shape and dtype, that can take it."""
    if len(out) != len(results):
        raise OperatorError(f"{operator.name} with out={len(out)} arrays", f"it has {len(results)} outputs", "give one array per output")
    for given, (shape, dtype) in zip(out, results, strict=True):
        if not isinstance(given, np.ndarray):
            raise OperatorError(f"{operator.name} with an out of {type(given).__name__}", "results are written to arrays", "give a NumPy array")
        if given.shape != shape:
            raise OperatorError(f"{operator.name} with an out of shape {given.shape}", f"that output has shape {shape}", "give an array of that shape")
        if not given.flags.writeable:
            raise OperatorError(f"{operator.name} with an out of shape {shape}", "that array is read-only", "give one that can be written to")
        if not np.can_cast(dtype, given.dtype, "same_kind"):
            raise OperatorError(f"{operator.name} with an out of {given.dtype}", f"that output is {dtype}", f"give an array of {dtype}")
    if any(np.may_share_memory(one, other) and np.shares_memory(one, other) for one, other in combinations(out, 2)):
        raise OperatorError(f"{operator.name} with out={len(out)} arrays", "two of them are the same memory", "give each output an array of its own")


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in "bui" else array.astype(np.float64, copy=False)
