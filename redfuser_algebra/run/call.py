"""A bound call on its way into the evaluator and back: arrays widened and laid out, results in the user's shape."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import Binding
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


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in "bui" else array.astype(np.float64, copy=False)
