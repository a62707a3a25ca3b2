"""The operator as written, in numbers of a range that its intermediate values stay within.

In: an operator and a bound call.  Out: its outputs, where that arithmetic can tell what they are.  A product of thousands is beyond
float64 where its logarithm is an ordinary number; what comes of it then, infinite, 0 or the least number, is no value to compare with.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.environment import Environment, taken_out
from redfuser_algebra.run.evaluate import Evaluation
from redfuser_algebra.run.laid_out import environment_of

NEGLIGIBLE = np.longdouble("1e-4000")
"""Exponentials below this count for nothing, unless results tell it from 0; 0 where the widest numbers are no wider than float64."""


class _Rounded(Evaluation):
    """Where exponentials that are negligible are all one number."""

    def __init__(self, environment: Environment, negligible: np.longdouble) -> None:
        super().__init__(environment)
        self.negligible = negligible

    def value(self, term: Expr) -> np.ndarray:
        if term in self.known or term.op not in ("exp", "exp2"):
            return super().value(term)
        power = self.value(term.args[0])
        with np.errstate(under="ignore"):
            found = super().value(term)
        self.known[term] = np.where((found < NEGLIGIBLE) & np.isfinite(power), self.negligible, found)
        return self.known[term]


def settled(operator: Operator, binding: Binding) -> list[np.ndarray] | None:
    """One float64 array per output, or None where not even NumPy's widest numbers hold what it takes.

    Values are those of float64, or of `numpy.longdouble` where something overflowed or underflowed in float64 or is not finite: what is
    infinite or NaN although nothing did is so by its meaning.  Weights of e^−20000 underflow even there; if the results are the same
    whether negligible exponentials are 0 or the largest such number, they are what they are.  Raises OperatorError where the operator has no value.
    """
    found = _evaluated(operator, binding, np.dtype(np.float64))
    if found is None or not all(np.isfinite(value).all() for value in found):
        found = _evaluated(operator, binding, np.dtype(np.longdouble))
    if found is None and NEGLIGIBLE:
        found, other = (_evaluated(operator, binding, np.dtype(np.longdouble), partial(_Rounded, negligible=each)) for each in (0 * NEGLIGIBLE, NEGLIGIBLE))
        found = found if found is not None and other is not None and all(map(np.array_equal, found, other)) else None
    with np.errstate(over="ignore", under="ignore"):
        return None if found is None else [np.asarray(value, np.float64) for value in found]


def _evaluated(operator: Operator, binding: Binding, real: np.dtype,
               evaluation_of: Callable[[Environment], Evaluation] = Evaluation) -> list[np.ndarray] | None:
    """The outputs in real numbers of a dtype, or None as soon as some value leaves its range."""
    environment = environment_of(operator, binding)
    values = {name: value.astype(real) if value.dtype.kind == "f" else value for name, value in environment.values.items()}
    evaluation = evaluation_of(replace(environment, values=values))
    try:
        with np.errstate(all="ignore", over="raise", under="raise"):
            laid_out = [evaluation.value(output) for output in operator.outputs]
    except FloatingPointError:
        return None
    return [taken_out(value, axes, environment) for value, axes in zip(laid_out, operator.output_axes, strict=True)]
