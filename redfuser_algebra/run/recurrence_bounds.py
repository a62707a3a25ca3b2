"""How far rounding may move a recurrence: bounds carried from element to element, as the values are.

In: bounds of the operator or form, and a scan or the ordered components of a form.  Out: pairs of value and bound.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.language.recurrence import with_elements
from redfuser_algebra.run.environment import stretched

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

Pair = tuple[np.ndarray, np.ndarray]


class Bounds(Protocol):
    """Values with their bounds."""

    def pair(self, term: Expr) -> Pair:
        """The value of a term and its bound."""

    def inside(self, pairs: Mapping[str, Pair]) -> Bounds:
        """The same with symbols that have these values and bounds."""


def scan_bound(bounds: Bounds, term: Expr, dim: int, length: int) -> np.ndarray:
    """The bound of what a scan asks for."""
    axis, names, place, every = term.attrs
    states = {f"state {name}": bounds.pair(start) for name, start in zip(names, term.args[:len(names)], strict=True)}
    passed, asked = [states], f"state {names[place]}"
    passed += _stepped(bounds, states, term.args[len(names):], axis, dim, length)
    if not every:
        return passed[-1][asked][1]
    passed = [states[asked][1] for states in (passed[1:] if every == "after" else passed[:-1])]
    return np.concatenate(np.broadcast_arrays(*passed), dim) if passed else np.take(states[asked][1], [], dim)


def _stepped(bounds: Bounds, states: Mapping[str, Pair], steps: Sequence[Expr], axis: str, dim: int, length: int) -> Iterator[dict[str, Pair]]:
    """The states after every element, with their bounds."""
    elements: dict[Expr, Expr] = {}
    steps = [with_elements(step, axis, elements) for step in steps]
    whole = {name.name: bounds.pair(element) for element, name in elements.items()}
    for at in range(length):
        step = bounds.inside({**states, **{name: tuple(_at(part, dim, at) for part in pair) for name, pair in whole.items()}})
        states = dict(zip(states, map(step.pair, steps), strict=True))
        yield states


def online_bounds(bounds: Bounds, form: FusedForm, dim: int, length: int) -> dict[str, Pair]:
    """The components of an online form, after all elements, with their bounds."""
    states = {f"state {c.name}": bounds.pair(c.start) for c in form.state}
    for states in _stepped(bounds, states, [*form.steps.values()], form.axis, dim, length):
        pass
    return {name.removeprefix("state "): pair for name, pair in states.items()}


def ordered_bounds(bounds: Bounds, form: FusedForm, dim: int, length: int) -> dict[str, Pair]:
    """The ordered components of all elements, joined one after the other, with their bounds."""
    joins, lifts = form.joins, {component.name: component.lift for component in form.state}
    whole = {name: tuple(stretched(part, dim, length) for part in bounds.pair(lifts[name])) for name in joins}

    def element(at: int) -> dict[str, Pair]:
        return {name: tuple(_at(part, dim, at) for part in pair) for name, pair in whole.items()}

    if not length:
        shape = [1] * next(iter(whole.values()))[0].ndim
        return {c.name: (np.full(shape, float(c.empty)), np.zeros(shape)) for c in form.state if c.name in joins}
    parts = element(0)
    for at in range(1, length):
        step = bounds.inside(parts | {name + PRIME: pair for name, pair in element(at).items()})
        parts = {name: step.pair(joined) for name, joined in joins.items()}
    return parts


def _at(part: np.ndarray, dim: int, at: int) -> np.ndarray:
    return np.take(part, [at if part.shape[dim] > 1 else 0], dim)
