"""Naming the loop-invariant parts of a reduction: what is a pivot, what is an element."""
from __future__ import annotations

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.discover.facts import POSITIVE, Facts
from redfuser_algebra.language.expr import Expr, call, const, replaced, subterms, symbol
from redfuser_algebra.language.names import PRIME, numbered


class Pivots:
    """The pivots of one cascade: each value has one name, and a name that is a result's keeps the result's name."""

    def __init__(self, axis: str, facts: Facts, taken: set[str]) -> None:
        self.axis, self.facts, self._taken = axis, facts, taken
        self.values: dict[str, Expr] = facts.pivots
        self._symbols: dict[Expr, Expr] = {}
        self._centres: set[Expr] = set()

    def named(self, value: Expr) -> Expr:
        """The symbol of a pivot with this value."""
        if self._is_truth(value):
            value = call("where", value, 1, 0)
        if value not in self._symbols:
            name = value.name if value.op == "symbol" else next(numbered("p", self._taken))
            self._symbols[value] = symbol(name, value.axes)
            if value.op != "symbol":
                self._taken.add(name)
                self.values[name] = value
        return self._symbols[value]

    def _is_truth(self, value: Expr) -> bool:
        """Whether a value is true or false; as a pivot it is 1 or 0, which can be subtracted."""
        result = self.facts.results.get(value.name) if value.op == "symbol" else None
        row = FUNCTIONS.get(value.op)
        return result.monoid in ("any", "all") if result else row is not None and row.boolean

    def undefined(self, name: str) -> bool:
        """Whether a pivot may be 0/0 or x/0 for a part though not for the whole: a divisor's sign is unknown."""
        terms = subterms(self.values.get(name, const(0)))
        divisors = [term.args[-1] for term in terms if term.op in ("divide", "reciprocal")]
        return any(self.facts.moves(divisor) and divisor.op != "size" and self.facts.sign(divisor) != POSITIVE
                   for divisor in divisors)

    def abstract(self, body: Expr) -> Expr:
        """`body` with its maximal loop-invariant parts that move (results, the length) named as pivots.

        An element that a pivot is added to, or that is subtracted from a pivot, is turned into an element minus a
        pivot, so that there is one way for the two to meet.
        """
        self._centres = {term.args[1] for term in subterms(body) if term.op == "subtract" and self.axis in term.axes
                         and self._invariant(term.args[1]) and not self.facts.moves(term.args[0])}
        return replaced(body, self._abstracted)

    def _abstracted(self, term: Expr) -> Expr | None:
        if not self.facts.moves(term):
            return term
        if self.axis not in term.axes:
            if not self._is_beside_elements(term):
                return self.named(term)
            constant, centre = term.args[0].args
            return call("exp", call("subtract", constant, self.named(centre)))
        if term.op in ("add", "subtract"):
            a, b = term.args
            if self._invariant(b) and not self.facts.moves(a):
                return call("subtract", a, self.named(b if term.op == "subtract" else negated(b)))
            if self._invariant(a) and not self.facts.moves(b):
                if term.op == "add":
                    return call("subtract", b, self.named(negated(a)))
                return -call("subtract", b, self.named(a))
        return None

    def _is_beside_elements(self, term: Expr) -> bool:
        """Whether a term is e^(c − p) next to elements about the same pivot p: it moves with p as they do."""
        inside = term.args[0] if term.op == "exp" else term
        return inside.op == "subtract" and inside is not term and not self.facts.moves(inside.args[0]) and inside.args[1] in self._centres

    def _invariant(self, term: Expr) -> bool:
        return self.axis not in term.axes and self.facts.moves(term)


def negated(term: Expr) -> Expr:
    """−term, without a double sign."""
    if term.op == "negative":
        return term.args[0]
    return call("subtract", *reversed(term.args)) if term.op == "subtract" else -term


def old_pivot(term: Expr) -> Expr | None:
    """The old value of a new pivot's symbol; None for any other term."""
    return symbol(term.name.removesuffix(PRIME), term.axes) if term.op == "symbol" and term.name.endswith(PRIME) else None
