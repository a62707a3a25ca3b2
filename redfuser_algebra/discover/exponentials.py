"""Recurrences that take exponentials of running sums, or divide by running products: those become states themselves.

In: a recurrence whose step no finite set of products of states follows.  Out: one that says the same with e^(k·c) for a
running sum c, and 1/A for a running product A, as states, which every element multiplies.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.polynomials import UNIT, Algebra, NotClosed, folded
from redfuser_algebra.discover.recurrence import Recurrence, reached
from redfuser_algebra.discover.simplify import is_number
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, substitute, unbound_states
from redfuser_algebra.language.names import unused

_REALS = Algebra(SEMIRINGS["sum-product"])


def exponentiated(found: Recurrence) -> Recurrence | None:
    """The recurrence with such states; None if there are none."""
    states = _States(dict(found.starts), dict(found.steps))
    for state, step in [*states.steps.items()]:
        states.steps[state] = states.rewritten(step)
    return reached(states.starts, states.steps, found.target) if states.changed else None


@dataclass
class _States:
    """States with their starts and steps, to which those of exponentials and inverses are added."""

    starts: dict[Expr, Expr]
    steps: dict[Expr, Expr]
    changed: bool = False

    def rewritten(self, term: Expr) -> Expr:
        """A term over states that every element multiplies, where it took exponentials of sums or divided by products."""
        if not unbound_states(term) or term.op == "state":
            return term
        if term.op == "exp" and (product := self._exponential(term.args[0])) is not None:
            return product
        if term.op == "divide" and unbound_states(term.args[1]) and (product := self._quotient(*term.args)) is not None:
            return product
        return children_replaced(term, tuple(map(self.rewritten, term.args)))

    def _exponential(self, exponent: Expr) -> Expr | None:
        powers = linear(exponent)
        if powers is None or any(added(state, self.steps[state]) is None for state in powers if state is not None):
            return None
        rest = powers.pop(None, const(0))
        factors = [self._state_of(state, call("exp", _scaled(power, state)), call("exp", _scaled(power, added(state, self.steps[state]))))
                   for state, power in powers.items()]
        return _product(([] if is_number(rest, 0) else [call("exp", rest)]) + factors)

    def _quotient(self, above: Expr, below: Expr) -> Expr | None:
        try:
            image = _REALS.of(below)
        except NotClosed:
            return None
        [(monomial, factor)] = image.items() if len(image) == 1 else [(UNIT, None)]
        parts = [(state, power, self._factor(state)) for state, power in monomial]
        if not parts or any(own is None for *_, own in parts):
            return None
        inverses = [self._state_of(state, call("reciprocal", state), call("reciprocal", own)) for state, power, own in parts for _ in range(power)]
        numerator = self.rewritten(above)
        return _product([numerator if is_number(factor, 1) else numerator / factor, *inverses])

    def _state_of(self, state: Expr, function: Expr, factor: Expr) -> Expr:
        """The state that is a function of another one, which every element multiplies by a factor."""
        start, factor = _number(substitute(function, {state: self.starts[state]})), _number(factor)
        own = next((own for own, step in self.steps.items() if self.starts[own] is start and step is _moved(own, factor)), None)
        if own is None:
            own = Expr("state", (), (unused("e", {each.name for each in self.steps}), state.axes))
            self.starts[own], self.steps[own] = start, _moved(own, factor)
        self.changed = True
        return own

    def _factor(self, state: Expr) -> Expr | None:
        """What every element multiplies a state by; None if it does something else."""
        image = _image(self.steps[state])
        return image[((state, 1),)] if {*image} == {((state, 1),)} else None


def added(state: Expr, step: Expr) -> Expr | None:
    """What every element adds to a state; None if it does something else."""
    image, own = _image(step), ((state, 1),)
    return image.get(UNIT, const(0)) if {*image} <= {own, UNIT} and is_number(image.get(own, const(0)), 1) else None


def linear(term: Expr) -> dict[Expr | None, Expr] | None:
    """The numbers that states are multiplied by in a sum of them, and under None what else is added; None for anything else."""
    try:
        image = _REALS.of(term)
    except NotClosed:
        return None
    plain = all(m == UNIT or len(m) == 1 and m[0][1] == 1 and factor.op == "const" for m, factor in image.items())
    return {m[0][0] if m else None: factor for m, factor in image.items()} if plain else None


def _image(term: Expr) -> dict:
    try:
        return _REALS.of(term)
    except NotClosed:
        return {}


def _moved(state: Expr, factor: Expr) -> Expr:
    return state if is_number(factor, 1) else state * factor


def _scaled(power: Expr, term: Expr) -> Expr:
    return -term if is_number(power, -1) else _REALS.times(power, term)


def _product(factors: list[Expr]) -> Expr:
    return _REALS.product(factors)


def _number(term: Expr) -> Expr:
    """e^0 and 1/1 as numbers."""
    inner = folded(term.args[0]) if term.args[0].args else term.args[0]
    if inner.op != "const":
        return term
    return const(math.exp(inner.value)) if term.op == "exp" else const(1 / inner.value) if inner.value else term
