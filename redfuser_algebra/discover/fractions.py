"""Recurrences whose steps are fractions of the states over one common divisor: linear in numerators and divisor.

In: a recurrence h ← N(h, x) / D(h, x) with N and D linear.  Out: a recurrence of v and w with h = v / w, whose step is
linear: v ← N and w ← D, with w for 1.  A Möbius map is the case of one state.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.polynomials import Algebra, NotClosed
from redfuser_algebra.discover.recurrence import Recurrence
from redfuser_algebra.language.expr import Expr, call, const, unbound_states

Quotient = tuple[Expr, Expr]
"""Above and below the line."""

ONE = const(1)


@dataclass(frozen=True)
class Projective:
    """`found` is about numerators and the `divisor`; `above` says which numerator each state of the recurrence `of` has."""

    of: Recurrence
    found: Recurrence
    divisor: Expr
    above: dict[Expr, Expr]

    def about(self, target: Expr) -> Projective:
        """The same, asked for another state."""
        return replace(self, found=replace(self.found, target=self.above[target]))


def projective(found: Recurrence) -> Projective:
    """The linear recurrence of numerators and divisor.  Raises NotClosed where there is none."""
    quotients = {state: _quotient(step) for state, step in found.steps.items()}
    below = {divisor for _, divisor in quotients.values()}
    if len(below) > 1 or below == {ONE}:
        raise NotClosed(found.steps[found.target], "the states are not fractions over one divisor")
    divisor = Expr("state", (), ("divisor", tuple(dict.fromkeys(a for state in found.steps for a in state.axes))))
    above = {state: Expr("state", (), (f"{state.name}_above", state.axes)) for state in found.steps}
    steps = {above[state]: _linear(numerator, above, divisor) for state, (numerator, _) in quotients.items()}
    steps[divisor] = _linear(below.pop(), above, divisor)
    starts = {above[state]: start for state, start in found.starts.items()} | {divisor: ONE}
    return Projective(found, Recurrence(starts, steps, above[found.target]), divisor, above)


def _linear(term: Expr, above: dict[Expr, Expr], divisor: Expr) -> Expr:
    """A linear term of the states with their numerators for them, and the divisor for 1.  Raises NotClosed."""
    algebra = Algebra(SEMIRINGS["sum-product"])
    parts = []
    for monomial, factor in algebra.of(term).items():
        if sum(power for _, power in monomial) > 1:
            raise NotClosed(term, "a numerator or divisor is not linear in the states")
        parts.append(algebra.times(factor, above[monomial[0][0]] if monomial else divisor))
    return reduce(algebra.plus, parts, algebra.zero)


def _quotient(term: Expr) -> Quotient:
    """A term as one fraction; only those that divide by states are brought over a common divisor."""
    if not unbound_states(term) or term.op == "state":
        return term, ONE
    if term.op in ("add", "subtract"):
        (a, b), (c, d) = map(_quotient, term.args)
        return (call(term.op, a, c), b) if b is d else (call(term.op, _times(a, d), _times(c, b)), _times(b, d))
    if term.op == "multiply":
        (a, b), (c, d) = map(_quotient, term.args)
        return _times(a, c), _times(b, d)
    if term.op == "divide":
        (a, b), (c, d) = map(_quotient, term.args)
        return (a, c) if b is d else (_times(a, d), _times(b, c)) if unbound_states(c) else (call("divide", a, c), b)
    if term.op == "negative":
        a, b = _quotient(term.args[0])
        return -a, b
    return term, ONE


def _times(a: Expr, b: Expr) -> Expr:
    return a if b is ONE else b if a is ONE else call("multiply", a, b)
