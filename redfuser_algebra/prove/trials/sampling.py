"""What experiments are drawn from: small arrays of simple numbers, with ties, zeros, and infinities where asked for.

In: an operator and its form.  Out: a Space, whose `trials` is a Hypothesis strategy.  Smaller is simpler: one part,
few elements, zeros and ones.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.refutation.problem import posed
from redfuser_algebra.prove.trials.arithmetic import EXACT, Evaluation, Instance, laid_out
from redfuser_algebra.prove.trials.extended import exact
from redfuser_algebra.prove.trials.trial import Trial

LONGEST = 4
"""Elements of a trial; more only where a top-k needs them."""

WIDEST = 16
"""Entries of an input beyond the reduced axis; axes are 1 long rather than 2 if that would be exceeded."""


def _fractions(*texts: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, texts))


PALETTES = {
    "any": _fractions("0", "1", "-1", "2", "1/2", "-2", "-1/2", "3", "1/3", "-3"),
    "positive": _fractions("1", "2", "1/2", "3", "1/3", "3/2"),
    "unit": _fractions("1/2", "1/3", "2/3", "1/4", "3/4"),
    "few": _fractions("0", "1"),
    "whole": _fractions("0", "1", "2", "3", "-1", "-2"),
    "signed": _fractions("1", "-1", "2", "-2", "3/2", "-1/3"),
    "negative": _fractions("-1", "-2", "-1/2", "-3"),
}
PALETTES_OF_CONDITIONS = {"greater": ("positive", "unit"), "greater_equal": ("positive", "unit", "few"), "less": ("negative",),
         "less_equal": ("negative",)}
SPECIAL = (float("-inf"), float("inf"))


@dataclass(frozen=True)
class Space:
    """The trials of one form: which axes are how long, and which numbers an input may have."""

    form: FusedForm
    operator: Operator
    axes: tuple[str, ...]
    sizes: dict[str, int]
    shortest: int
    palettes: dict[str, tuple[str, ...]]
    params: dict[str, tuple[object, ...]]
    conditions: tuple[Expr, ...]

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """The outputs of the operator as written."""
        return self.operator.as_written.outputs

    def instance(self, arrays: Mapping[str, np.ndarray], params: Mapping[str, object], length: int) -> Instance:
        """Laid-out arrays for the inputs, and for those that are one of them once more, with everything that expressions need."""
        sizes, again = {**self.sizes, **self.form.lengths(length)}, {}
        for copy, (source, own, other) in self.operator.copies.items():
            sizes[other], again[copy] = length, np.swapaxes(arrays[source], self.axes.index(own), self.axes.index(other))
        return Instance(self.form.axis, self.axes, sizes, {**arrays, **again}, params, tuple(range(length)),
                        self.operator.as_written.inputs | self.form.symbol_axes)

    def trials(self, infinite: bool = False):
        """A strategy for trials; with `infinite`, some elements are ±inf."""
        from hypothesis import strategies as st

        return st.composite(lambda draw: self._drawn(draw, st, infinite))()

    def _drawn(self, draw, st, infinite: bool) -> Trial:
        length = draw(st.integers(self.shortest, max(LONGEST, self.shortest)))
        groups = draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
        if self.form.order != "commutative":
            groups = sorted(groups)
        sizes = {**self.sizes, **self.form.lengths(length)}
        arrays = {name: self._array(draw, st, name, own, sizes, infinite) for name, own in self.operator.inputs.items()}
        params = {name: draw(st.sampled_from(values)) for name, values in self.params.items()}
        places = tuple(tuple(at for at, group in enumerate(groups) if group == part) for part in range(3))
        return Trial(self.form, self.outputs, self.instance(arrays, params, length), places, self.shortest)

    def _array(self, draw, st, name: str, own: tuple[str, ...], sizes: dict[str, int], infinite: bool) -> np.ndarray:
        shape = tuple(sizes[axis] for axis in own)
        values = PALETTES[draw(st.sampled_from(self.palettes[name]))]
        if infinite and self.form.axis in own and not self._is_positive(name):
            values = values + SPECIAL
        count = int(np.prod(shape, dtype=int))
        chosen = draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))
        array = np.empty(count, object)
        array[:] = [exact(value) for value in chosen]
        return laid_out(array.reshape(shape), own, self.axes)

    def _is_positive(self, name: str) -> bool:
        return "any" not in self.palettes[name]

    def admits(self, trial: Trial) -> bool:
        """Whether what the operator and the form assume holds for every element."""
        evaluation = Evaluation(EXACT, trial.instance)
        return all(bool(evaluation.truth(condition).all()) for condition in self.conditions)


def space(operator: Operator, cascade: Cascade, form: FusedForm) -> Space:
    """The trials of a form of an operator."""
    conditions = (*operator.assume, *form.assumptions)
    terms = subterms(*operator.as_written.outputs, *conditions)
    axes = dict.fromkeys((*operator.as_written.axes, *form.axis_copies))
    axes.update((term.axis, None) for term in terms if term.op == "reduce")
    sizes = _sizes(operator, cascade, form)
    palettes = {name: _palettes(name, conditions) for name in operator.inputs}
    params = {name: _values(name, default, terms, conditions) for name, default in operator.params.items()}
    counts = [term.count for term in terms if term.count is not None]
    shortest = max([1, *(int(k.value if k.op == "const" else params[k.name][-1]) for k in counts)])
    return Space(form, operator, tuple(axes), sizes, shortest, palettes, params, conditions)


def _sizes(operator: Operator, cascade: Cascade, form: FusedForm) -> dict[str, int]:
    """2 for most axes, so that axes cannot be mistaken for one another; 1 where arrays would become large."""
    least = posed(cascade, operator.assume).sizes
    axes = [axis for axis in operator.axes if axis != form.axis]
    sizes = {axis: max(2, least.get(axis, 1)) for axis in axes}
    for axis in axes:
        if max([_entries(own, sizes, form.axis) for own in operator.inputs.values()]) > WIDEST and least.get(axis, 1) == 1:
            sizes[axis] = 1
    return sizes | {copy: sizes[axis] for copy, axis in form.axis_copies.items() if axis != form.axis}


def _entries(own: Sequence[str], sizes: dict[str, int], axis: str) -> int:
    return int(np.prod([sizes[name] for name in own if name != axis], dtype=int))


def _palettes(name: str, conditions: tuple[Expr, ...]) -> tuple[str, ...]:
    for condition in conditions:
        if condition.op in PALETTES_OF_CONDITIONS and condition.args[0].op == "input" and condition.args[0].name == name:
            return PALETTES_OF_CONDITIONS[condition.op]
    return tuple(PALETTES)


def _values(name: str, default: object, terms: list[Expr], conditions: tuple[Expr, ...]) -> tuple[object, ...]:
    """Values of a parameter, simplest first: a number of elements, or a factor that may be negative."""
    if any(term.count is not None and term.count.op == "param" and term.count.name == name for term in terms):
        return (2,)
    if isinstance(default, bool):
        return (False, True)
    signs = [condition.op for condition in conditions if condition.args[0].op == "param" and condition.args[0].name == name]
    values = (1, 2, Fraction(1, 2)) if signs else (1, 2, Fraction(1, 2), -1)
    if isinstance(default, int):
        return (default, 1, 2)
    return values if default is None else (default, *values)
