"""A form and its operator computed with floats on one set of inputs, next to the truth in exact arithmetic.

In: a space and arrays of floats.  Out: outputs, laid out; the truth as fractions, None where it is not known.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from flint import fmpq

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.refutation.numbers import exact_bounds
from redfuser_algebra.prove.trials import extended
from redfuser_algebra.prove.trials.arithmetic import EXACT, Arithmetic, Evaluation, Instance, floats, laid_out
from redfuser_algebra.prove.trials.sampling import Space
from redfuser_algebra.prove.trials.trial import Trial

Interpreter = Callable[[Operator, FusedForm, Binding, Sequence[int]], object]
"""Runs a form on a bound call in chunks of these sizes, as the product does."""


@dataclass(frozen=True)
class FloatTrial:
    """Arrays by input name, in float64, that any arithmetic can start from."""

    space: Space
    arrays: Mapping[str, np.ndarray]

    @property
    def length(self) -> int:
        """The number of elements."""
        axis, inputs = self.space.form.axis, self.space.operator.inputs
        return next(self.arrays[name].shape[own.index(axis)] for name, own in inputs.items() if axis in own)

    @cached_property
    def truth(self) -> list[np.ndarray]:
        """The outputs as fractions; None where they are not finite or a ball is too wide to say."""
        with extended.exactly():
            evaluation = Evaluation(EXACT, self.instance(EXACT))
            outputs = [evaluation.arithmetic.numbers(evaluation.of(output)) for output in self.space.outputs]
            return [np.asarray(np.frompyfunc(_fraction, 1, 1)(values), object) for values in outputs]

    def fused(self, dtype: str) -> list[np.ndarray]:
        """The outputs of the form in three parts, merged from left to right."""
        form, instance = self.space.form, self.instance(floats(dtype))
        bounds = np.linspace(0, self.length, 4).astype(int)
        places = tuple(tuple(range(a, b)) for a, b in zip(bounds, bounds[1:], strict=False))
        trial = Trial(form, self.space.outputs, instance, places, self.space.shortest, floats(dtype))
        with np.errstate(all="ignore"):
            final = trial.carrier.finalized(trial.merged("(AB)", "C"), instance)
            return [final.of(output) for output in form.outputs]

    def as_written(self, dtype: str) -> list[np.ndarray]:
        """The outputs of the operator, reduction after reduction."""
        evaluation = Evaluation(floats(dtype), self.instance(floats(dtype)))
        with np.errstate(all="ignore"):
            return [evaluation.of(output) for output in self.space.outputs]

    def interpreted(self, interpreter: Interpreter) -> list[np.ndarray]:
        """The outputs as the product computes them."""
        operator = self.space.operator
        params = {name: float(value) if isinstance(value, Fraction) else value for name, value in self.params.items()}
        third = self.length // 3
        result = interpreter(operator, self.space.form, operator.bind(**self.arrays, **params),
                             [third, third, self.length - 2 * third])
        values = list(result.values()) if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
        return [laid_out(np.asarray(value), axes, self.space.axes)
                for value, axes in zip(values, operator.output_axes, strict=True)]

    @property
    def params(self) -> dict[str, object]:
        """The parameters, each at its simplest value."""
        return {name: values[0] for name, values in self.space.params.items()}

    def instance(self, arithmetic: Arithmetic) -> Instance:
        """The inputs as numbers of an arithmetic."""
        space = self.space
        arrays = {name: laid_out(_numbers(array, arithmetic), space.operator.inputs[name], space.axes)
                  for name, array in self.arrays.items()}
        return space.instance(arrays, self.params, self.length)


def _numbers(array: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
    if arithmetic is not EXACT:
        return array.astype(arithmetic.dtype)
    return np.asarray(np.frompyfunc(lambda value: fmpq(*float(value).as_integer_ratio()), 1, 1)(array), object)


def _fraction(value: extended.Exact) -> Fraction | None:
    if extended.is_special(value) or extended.radius(value) > extended.TOLERANCE or not extended.is_moderate(value):
        return None
    low, high = exact_bounds(value)
    return (low + high) / 2


def relative(got: np.ndarray, true: np.ndarray) -> float:
    """The largest error relative to the truth; inf where the truth is known and the result is not finite."""
    return _largest(got, true, lambda a, b: abs(a - b) / abs(b) if b else Fraction(a != 0))


def ulps(got: np.ndarray, true: np.ndarray, dtype: str) -> float:
    """The largest error in units in the last place of the truth."""
    return _largest(got, true, lambda a, b: abs(a - b) / _unit(b, dtype))


def _largest(got: np.ndarray, true: np.ndarray, error: Callable[[Fraction, Fraction], Fraction]) -> float:
    pairs = zip(*(array.reshape(-1) for array in np.broadcast_arrays(got, true)), strict=True)
    return max([0.0, *(_float(error(Fraction(float(a)), b)) if np.isfinite(a) else np.inf for a, b in pairs if b is not None)])


def _unit(value: Fraction, dtype: str) -> Fraction:
    """The distance between floats around a number."""
    info = np.finfo(dtype)
    exponent = value.numerator.bit_length() - value.denominator.bit_length() if value else info.minexp
    exponent -= value != 0 and Fraction(2) ** exponent > abs(value)
    return Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf
