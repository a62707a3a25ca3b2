"""Largest and smallest quotients and products of positive numbers, such as x over its largest so far: by their logarithms.

In: a recurrence whose target is an extreme of an increasing or decreasing function a ± b·u of such a u.  Out: one over
(max, +) or (min, +), of the logarithms of u and of what it is made of; the extreme is that function of its exponential.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from redfuser_algebra.discover.facts import NEGATIVE, POSITIVE, Facts
from redfuser_algebra.discover.recurrence import Recurrence, reached
from redfuser_algebra.language.expr import Expr, call, const, unbound_states
from redfuser_algebra.language.names import unused

EXTREMES = {"maximum": -np.inf, "minimum": np.inf}
_OTHER = {"maximum": "minimum", "minimum": "maximum"}

Back = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Logarithmic:
    """`found` is about logarithms; `back` makes the target of what its target comes to."""

    found: Recurrence
    back: Back


@dataclass(frozen=True)
class _Affine:
    """An element as an increasing function of u, or else a decreasing one: `back` is that function."""

    u: Expr
    increasing: bool
    back: Back


class _NoLogarithm(Exception):
    """A term that is not known to be positive, or no product."""


def logarithmic(found: Recurrence, facts: Facts, axis: str) -> Logarithmic | None:
    """The recurrence of logarithms; None where there is none."""
    step, mask = found.steps[found.target], None
    if step.op == "where" and step.args[2] is found.target and not unbound_states(step.args[0]):
        mask, step = step.args[0], step.args[1]
    if step.op not in EXTREMES or step.args[0] is not found.target:
        return None
    element = _affine(step.args[1], facts, axis)
    op = step.op if element.increasing else _OTHER[step.op]
    states = _States(found, facts)
    try:
        log = states.log(element.u)
    except _NoLogarithm:
        return None
    target = states.new(found.target, const(EXTREMES[op]))
    after = call(op, target, log)
    states.steps[target] = after if mask is None else call("where", mask, after, target)
    return Logarithmic(reached(states.starts, states.steps, target), lambda value: _extreme(op, step.op, value, element.back))


def _extreme(op: str, asked: str, value: Expr, back: Back) -> Expr:
    """The extreme of a function of e^t; of nothing, e^−∞ is 0, which is no extreme."""
    found = back(call("exp", value))
    return found if op == "minimum" else call("where", call("equal", value, -np.inf), EXTREMES[asked], found)


def _affine(term: Expr, facts: Facts, axis: str) -> _Affine:
    """What a term is of u, where the rest of it is the same for all elements."""
    def still(part: Expr) -> bool:
        return axis not in part.axes and not unbound_states(part)

    first, second = term.args if len(term.args) == 2 else (term, term)
    if term.op == "negative":
        return _then(_affine(term.args[0], facts, axis), False, lambda value: -value)
    if term.op in ("add", "subtract") and (still(first) or still(second)):
        if still(second):
            return _then(_affine(first, facts, axis), True, lambda value: call(term.op, value, second))
        return _then(_affine(second, facts, axis), term.op == "add", lambda value: call(term.op, first, value))
    if term.op == "multiply" and still(first) and (sign := facts.sign(first)) in (POSITIVE, NEGATIVE):
        return _then(_affine(second, facts, axis), sign == POSITIVE, lambda value: first * value)
    if term.op in ("multiply", "divide") and still(second) and (sign := facts.sign(second)) in (POSITIVE, NEGATIVE):
        return _then(_affine(first, facts, axis), sign == POSITIVE, lambda value: call(term.op, value, second))
    if term.op == "divide" and first.op == "subtract" and any(part is second for part in first.args):
        a, b = first.args
        return _affine(call("subtract", 1, b / second) if a is second else call("subtract", a / second, 1), facts, axis)
    return _Affine(term, True, lambda value: value)


def _then(inner: _Affine, increasing: bool, outer: Back) -> _Affine:
    return _Affine(inner.u, inner.increasing is increasing, lambda value: outer(inner.back(value)))


class _States:
    """States with their starts and steps, those of a recurrence and the logarithms of some of them."""

    def __init__(self, found: Recurrence, facts: Facts) -> None:
        self.found, self.facts = found, facts
        self.starts, self.steps = dict(found.starts), dict(found.steps)
        self._logs: dict[Expr, Expr] = {}

    def new(self, state: Expr, start: Expr) -> Expr:
        """A state that none of the others has the name of."""
        own = Expr("state", (), (unused("g", {each.name for each in self.steps}), state.axes))
        self.starts[own], self.steps[own] = start, own
        return own

    def log(self, term: Expr) -> Expr:
        """The logarithm of a product, quotient or extreme of positive numbers.  Raises _NoLogarithm."""
        if term.op == "state":
            return self._of_state(term)
        if not unbound_states(term):
            if self.facts.sign(term) != POSITIVE:
                raise _NoLogarithm
            return const(float(np.log(term.value))) if term.op == "const" else call("log", term)
        if term.op in _LOGS:
            return call(_LOGS[term.op], *map(self.log, term.args))
        raise _NoLogarithm

    def _of_state(self, state: Expr) -> Expr:
        if state not in self._logs:
            start = self.found.starts[state]
            infinite = start.op == "const" and np.isinf(start.value)
            if infinite and self.found.steps[state].op != ("maximum" if start.value < 0 else "minimum"):
                raise _NoLogarithm
            self._logs[state] = own = self.new(state, start if infinite else self.log(start))
            self.steps[own] = self.log(self.found.steps[state])
        return self._logs[state]


_LOGS = {"multiply": "add", "divide": "subtract", "maximum": "maximum", "minimum": "minimum"}
"""What functions are of logarithms."""
