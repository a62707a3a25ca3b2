"""States of a few values, such as signs and answers to questions: for each value a state that is 1 where it is that one, else 0.

In: a recurrence whose step asks for more than sums and products of such states.  Out: one in which whatever a step makes of them is
linear in the new states.  What is asked of states alone is known an element earlier, and is such a state itself: where the last
element was above the one before it, say.  A value that is no number counts as one of the values.
"""
from __future__ import annotations

from functools import reduce
from math import isnan, nan

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.discover.recurrence import Recurrence, reached
from redfuser_algebra.discover.simplify import is_number
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, rewritten, substitute, subterms, unbound_states
from redfuser_algebra.language.names import unused

MOST_VALUES = 4
_LINEAR = ("add", "subtract", "multiply", "negative")
_COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def indicated(found: Recurrence, axis: str) -> Recurrence | None:
    """The recurrence with such states; None if there are none."""
    states = _States(found, axis)
    states.steps[found.target] = states.linear(found.steps[found.target])
    while states.todo:
        state = states.todo.pop()
        states.steps[state] = states.linear(states.steps[state])
    return reached(states.starts, states.steps, found.target) if states.indicators else None


class _States:
    """States with their starts and steps, to which indicators are added; `todo` are those whose steps may see others."""

    def __init__(self, found: Recurrence, axis: str) -> None:
        self.found = found
        self.starts, self.steps = dict(found.starts), dict(found.steps)
        self.indicators: dict[tuple[Expr, object], Expr] = {}
        self.todo: list[Expr] = []
        self.replaced = {state for state, step in found.steps.items() if state is not found.target and not unbound_states(step) and axis in step.axes}

    def linear(self, term: Expr) -> Expr:
        """A term in which what is not linear in states of a few values is a sum over these."""
        seen = unbound_states(term) - self.replaced
        if not seen or term.op == "state":
            return term
        if term.op in _LINEAR or term.op == "where" and not unbound_states(term.args[0]) - self.replaced:
            return children_replaced(term, tuple(map(self.linear, term.args)))
        cores = self._cores(term)
        if not cores or unbound_states(substitute(term, dict.fromkeys(cores, const(0)))) - self.replaced:
            return term
        return reduce(lambda value, core: self._summed(value, core, cores[core]), cores, _as_number(term))

    def _cores(self, term: Expr) -> dict[Expr, list]:
        """The largest parts that are made of states alone, one of which no element replaces, and have a few values."""
        if not unbound_states(term) - self.replaced:
            return {}
        alone = not any(part.op not in ("state", "const") and not part.args for part in subterms(term))
        values = self._values(term) if alone else None
        if values is not None and len(values) <= MOST_VALUES and term is not self.found.target:
            return {term: values}
        return {core: own for arg in term.args for core, own in self._cores(arg).items()}

    def _summed(self, term: Expr, core: Expr, values: list) -> Expr:
        """Σ_v [core = v]·term(v), of which the last is what the others leave."""
        *others, rest = values
        last = _decided(substitute(term, {core: const(rest)}))
        parts = [self._indicator(core, value) * _difference(_decided(substitute(term, {core: const(value)})), last) for value in others]
        return reduce(_plus, parts, last)

    def _indicator(self, core: Expr, value: object) -> Expr:
        if (core, value) not in self.indicators:
            own = Expr("state", (), (unused("b", {each.name for each in self.steps}), core.axes))
            self.indicators[core, value] = own
            asked = core if isinstance(value, bool) and value else call("equal", core, const(value))
            self.starts[own], self.steps[own] = (call("where", substitute(asked, dict(of)), 1, 0) for of in (self.found.starts, self.found.steps))
            self.todo.append(own)
        return self.indicators[core, value]

    def _values(self, term: Expr, within: tuple[Expr, ...] = ()) -> list | None:
        """The values that a term may have, no number last; None if there are many."""
        if term.op == "const":
            return [term.value]
        if term.op == "sign":
            return [-1, 0, 1, nan]
        if (row := FUNCTIONS.get(term.op)) is not None and row.boolean:
            return [True, False]
        if term.op == "where":
            return _union(*(self._values(arg, within) for arg in term.args[1:]))
        if term.op == "state" and term in self.found.steps and term not in self.replaced and self.found.starts[term].op == "const":
            start = [self.found.starts[term].value]
            return start if term in within else _union(self._values(self.found.steps[term], (*within, term)), start)
        return None


def _union(*parts: list | None) -> list | None:
    if any(part is None for part in parts):
        return None
    values = list(dict.fromkeys(value for part in parts for value in part if not isnan(value)))
    if set(values) <= {True, False}:
        values = [True, False]
    return values + [nan] * any(isnan(value) for part in parts for value in part)


def _as_number(term: Expr) -> Expr:
    """Truth values as 1 and 0."""
    row = FUNCTIONS.get(term.op)
    return call("where", term, 1, 0) if row is not None and row.boolean else term


def _plus(a: Expr, b: Expr) -> Expr:
    return b if is_number(a, 0) else a + b


def _difference(a: Expr, b: Expr) -> Expr:
    """a − b of truth values as numbers."""
    if is_number(b, 0):
        return a
    if is_number(b, 1) and a.op == "where" and all(is_number(arg, value) for arg, value in zip(a.args[1:], (1, 0), strict=True)):
        return call("where", a.args[0], 0, -1)
    return a - b


def _decided(term: Expr) -> Expr:
    """A term without comparisons that are decided."""
    return rewritten(term, _decided_here)


def _decided_here(term: Expr) -> Expr:
    first, *rest = term.args or (term,)
    if term.op in _COMPARED and any(arg.op == "const" and isnan(arg.value) for arg in term.args):
        return const(term.op == "not_equal")
    if term.op in ("equal", "not_equal") and all(arg.op == "const" for arg in term.args):
        return const((first.value == rest[0].value) is (term.op == "equal"))
    if term.op == "logical_not" and first.op == "const":
        return const(not first.value)
    if term.op in ("logical_and", "logical_or"):
        decisive = term.op == "logical_or"
        for one, other in (term.args, term.args[::-1]):
            if one.op == "const":
                return const(decisive) if bool(one.value) is decisive else other
    if term.op == "where" and first.op == "const":
        return rest[0] if first.value else rest[1]
    return term
