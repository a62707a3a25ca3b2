"""What an explorer is about: an operator, lengths, parameters, and what was decided; plain data, no widgets.

In: a choice or a text.  Out: operators, arrays, verdicts under both preferences.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.catalogue.draws import SIZES
from redfuser_algebra.lower.kinds import natural_kinds
from redfuser_algebra.run.export import drawn, draws

LENGTH, LONGEST = 16, 64


@dataclass
class Session:
    """`listeners` hear that something has changed; `number` counts the operators that were chosen."""

    operator: ra.Operator | None = None
    verdict: ra.Verdict | None = None
    raw: ra.Verdict | None = None
    lengths: dict[str, int] = field(default_factory=dict)
    params: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    number: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def choose(self, operator: ra.Operator) -> None:
        """Be about this operator, with lengths and parameters to begin with; nothing is decided about it yet."""
        self.operator, self.verdict, self.raw = operator, None, None
        self.lengths = {axis: LENGTH if axis == "l" else SIZES.get(axis, 3) for axis in operator.axes if axis in _own_axes(operator)}
        self.params = starting_params(operator)
        self.number += 1
        self.changed()

    def decided(self, verdict: ra.Verdict, raw: ra.Verdict) -> None:
        """Keep what was decided, under the usual preference and under the other one."""
        self.verdict, self.raw = verdict, raw
        self.changed()

    def changed(self) -> None:
        """Tell everyone."""
        for listener in self.listeners:
            listener()

    @property
    def axis(self) -> str:
        """The axis that the verdict is about; "" before there is one."""
        return self.verdict.fused.form.axis if self.verdict and self.verdict.fused else ""

    def arrays(self) -> dict[str, np.ndarray | float]:
        """Inputs and parameters, drawn from the seed at the chosen lengths."""
        return inputs_of(self.operator, self.lengths, self.seed) | self.params


def decide_both(operator: ra.Operator, told: Callable[[int, int], None]) -> tuple[ra.Verdict, ra.Verdict]:
    """The verdict, and the one that prefers raw sums."""
    told(0, 2)
    verdict = ra.decide(operator)
    told(1, 2)
    raw = ra.decide(operator, prefer="raw") if verdict.fused else verdict
    return verdict, raw


def _own_axes(operator: ra.Operator) -> set[str]:
    return {axis for axes in operator.inputs.values() for axis in axes}


def starting_params(operator: ra.Operator) -> dict[str, float]:
    """Defaults; where there are none, what the catalogue draws, or 1 (2 for whole numbers)."""
    entry = _entry(operator)
    given = entry.inputs(np.random.default_rng(0), LENGTH) if entry else {}
    natural = natural_kinds(operator)
    fallback = {name: given.get(name, 2 if natural.get(name) == "int64" else 1.0) for name in operator.params}
    return {name: fallback[name] if default is None else default for name, default in operator.params.items()}


def inputs_of(operator: ra.Operator, lengths: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Inputs of the kind for which the results are steady, or as the catalogue draws them if the lengths are its own."""
    entry, rng = _entry(operator), np.random.default_rng(seed)
    if entry and all(length == SIZES.get(axis, 3) for axis, length in lengths.items() if axis != "l"):
        given = operator.signature.completed(entry.inputs(rng, lengths.get("l", LENGTH)))
        if all(given[name].shape == tuple(lengths[axis] for axis in axes) for name, axes in operator.inputs.items()):
            return {name: given[name] for name in operator.inputs}
    kinds = draws(operator)
    return {name: drawn(rng, kinds[name], tuple(lengths[axis] for axis in axes)) for name, axes in operator.inputs.items()}


def _entry(operator: ra.Operator):
    known = operator.name in ra.operators and ra.operators[operator.name] == operator
    return ra.operators.entry(operator.name) if known else None
