"""The operator as written, in numbers of a range that its intermediate values stay within.

In: an operator and a bound call.  Out: its outputs, where that arithmetic can tell what they are.  A product of thousands is beyond
float64 where its logarithm is an ordinary number; what comes of it then, infinite, 0 or the least number, is no value to compare with.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.environment import taken_out
from redfuser_algebra.run.evaluate import Evaluation
from redfuser_algebra.run.laid_out import environment_of


def settled(operator: Operator, binding: Binding) -> list[np.ndarray] | None:
    """One float64 array per output, or None where not even NumPy's widest numbers hold what it takes.

    Values are those of float64, or of `numpy.longdouble` where something overflowed or underflowed in float64 or is not finite: what is
    infinite or NaN although nothing did is so by its meaning.  Raises OperatorError where the operator has no value.
    """
    found = _evaluated(operator, binding, np.dtype(np.float64))
    if found is None or not all(np.isfinite(value).all() for value in found):
        found = _evaluated(operator, binding, np.dtype(np.longdouble))
    with np.errstate(over="ignore", under="ignore"):
        return None if found is None else [np.asarray(value, np.float64) for value in found]


def _evaluated(operator: Operator, binding: Binding, real: np.dtype) -> list[np.ndarray] | None:
    """The outputs in real numbers of a dtype, or None as soon as some value leaves its range."""
    environment = environment_of(operator, binding)
    values = {name: value.astype(real) if value.dtype.kind == "f" else value for name, value in environment.values.items()}
    evaluation = Evaluation(replace(environment, values=values))
    try:
        with np.errstate(all="ignore", over="raise", under="raise"):
            laid_out = [evaluation.value(output) for output in operator.outputs]
    except FloatingPointError:
        return None
    return [taken_out(value, axes, environment) for value, axes in zip(laid_out, operator.output_axes, strict=True)]
