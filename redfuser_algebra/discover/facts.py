"""Facts about terms: signs, and the order between elements and pivots.

They follow from how terms are built (exp > 0, a·a ≥ 0), from what the user declared, and from what a reduction
means (x ≤ max x for every element that takes part; a running max only grows).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.recurrence import is_ordered
from redfuser_algebra.discover.simplify import sorted_operands
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr

POSITIVE, NONNEGATIVE, NONPOSITIVE, NEGATIVE, UNKNOWN = "positive", "nonnegative", "nonpositive", "negative", ""
_FLIPPED = {POSITIVE: NEGATIVE, NEGATIVE: POSITIVE, NONNEGATIVE: NONPOSITIVE, NONPOSITIVE: NONNEGATIVE, UNKNOWN: UNKNOWN}
_STRICT = (POSITIVE, NEGATIVE)
_UP = (POSITIVE, NONNEGATIVE)


@dataclass(frozen=True)
class Fact:
    """A statement the form relies on, in words of the operator: `kind` is order, sign, bound, motion, scale, domain or danger.

    `about` is the relation it states: two terms and "≤", "≥", ">" or "bounded" between them.
    """

    kind: str
    statement: str
    about: tuple[Expr, str, Expr] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.statement


class Facts:
    """What is known about the terms of one cascade.

    `definitions` maps result names to their reductions and pivot names to their values; both are looked through.
    """

    def __init__(self, axis: str, results: Iterable[Reduction], assume: Iterable[Expr] = (),
                 pivots: dict[str, Expr] | None = None, mask: Expr | None = None) -> None:
        self.axis, self.mask, self._assume = axis, mask, tuple(assume)
        self.results: dict[str, Reduction] = {result.name: result for result in results}
        self.pivots: dict[str, Expr] = {} if pivots is None else pivots
        self._signs: dict[Expr, str] = {}
        self._moving: dict[Expr, bool] = {}
        for condition in (*self._assume, *(() if mask is None else (mask,))):
            self._declare(condition)

    def under(self, mask: Expr | None) -> Facts:
        """The facts that hold for the elements that `mask` lets through."""
        return self if mask is self.mask else Facts(self.axis, self.results.values(), self._assume, self.pivots, mask)

    def knowing(self, conditions: Iterable[Expr]) -> Facts:
        """The facts that hold where conditions do as well."""
        return Facts(self.axis, self.results.values(), (*self._assume, *conditions), self.pivots, self.mask)

    def _declare(self, condition: Expr) -> None:
        for part in condition.args if condition.op == "logical_and" else (condition,):
            if part.op == "logical_and":
                self._declare(part)
            elif len(part.args) == 2 and part.args[1].op == "const" and part.args[1].value == 0:
                declared = {"greater": POSITIVE, "greater_equal": NONNEGATIVE, "less": NEGATIVE,
                            "less_equal": NONPOSITIVE}.get(part.op)
                if declared:
                    self._signs[part.args[0]] = declared

    def sign(self, term: Expr) -> str:
        """The sign of a term where it is defined, or "" if nothing is known."""
        if term not in self._signs:
            self._signs[term] = UNKNOWN
            self._signs[term] = _SIGNS.get(term.op, _sign_by_table)(self, term)
        return self._signs[term]

    def meaning(self, term: Expr) -> Expr:
        """A pivot symbol's value, and a pivot for its anchor; anything else as it is."""
        if term.op == "anchor":
            return self.meaning(term.args[0])
        return self.pivots.get(term.name, term) if term.op == "symbol" else term

    def below(self, a: Expr, p: Expr) -> bool:
        """Whether a ≤ p for every element that takes part, from the meaning of max."""
        return self._bounds(a, p, "max")

    def above(self, a: Expr, p: Expr) -> bool:
        """Whether a ≥ p for every element that takes part, from the meaning of min."""
        return self._bounds(a, p, "min")

    def bounded(self, a: Expr, p: Expr) -> bool:
        """Whether |a| is at most a fixed multiple of p for every element that takes part, and p ≥ 0."""
        p = self.meaning(p)
        if p.op in ("multiply", "divide") and self.sign(p.args[1]) == POSITIVE and p.args[1].op in ("const", "param"):
            return self.bounded(a, p.args[0])
        if p.op == "multiply" and self.sign(p.args[0]) == POSITIVE and p.args[0].op in ("const", "param"):
            return self.bounded(a, p.args[1])
        if p.op == "maximum":
            return any(self.bounded(a, part) for part in p.args)
        power = _power_of_two_near(p)
        if power is not None:
            return self.bounded(a, power)
        size = a if self.sign(a) in _UP else Expr("abs", (a,))
        return self.below(size, p)

    def outweighs(self, p: Expr, a: Expr) -> bool:
        """Whether p ≥ 0 is 0 only where a is: it bounds a, or has a sum in it to which every element gives |a| or a²."""
        p = self.meaning(p)
        if p.op == "sqrt":
            return any(self.outweighs(p.args[0], square) for square in (a * a, a**2))
        if p.op == "maximum" or p.op == "add" and self.sign(p) in _UP:
            return any(self.outweighs(part, a) for part in p.args)
        if p.op in ("multiply", "divide") and self.sign(p.args[1]) == POSITIVE:
            return self.outweighs(p.args[0], a)
        size = sorted_operands(a if self.sign(a) in _UP else Expr("abs", (a,)))
        result = self.results.get(p.name) if p.op == "symbol" else None
        summed = result is not None and result.monoid == "sum" and _covers(result.mask, self.mask)
        return summed and size is sorted_operands(result.body) or self.bounded(a, p)

    def settled(self, a: Expr, p: Expr) -> bool:
        """Whether a equals a later value of p only where it equals p and p has not moved."""
        p = self.meaning(p)
        if self._leads(p, ("argmax", "argmin")):
            return a is Expr("index", (), (self.axis,))
        return (self.below(a, p) and self.motion(p) == POSITIVE) or (
            self.above(a, p) and self.motion(p) == NEGATIVE)

    def follows(self, a: Expr, p: Expr) -> bool:
        """Whether p are the positions of a top-k and a is the position: whatever later leads is among p, or is new."""
        return self._leads(self.meaning(p), ("argtopk",)) and a is Expr("index", (), (self.axis,))

    def _leads(self, p: Expr, monoids: tuple[str, ...]) -> bool:
        """Whether p is the position of a running winner: one that never returns to an element it has left behind."""
        result = self.results.get(p.name) if p.op == "symbol" else None
        return result is not None and result.monoid in monoids and not self._moves_inside(result)

    def motion(self, term: Expr) -> str:
        """POSITIVE if a pivot only grows as elements join, NEGATIVE if it only shrinks, "" if it may do either.

        A term that never moves counts as POSITIVE.
        """
        term = self.meaning(term)
        if term.op == "symbol":
            return self._motion_of_result(self.results[term.name]) if term.name in self.results else UNKNOWN
        if term.op in ("const", "param", "input"):
            return POSITIVE
        motions = [self.motion(arg) for arg in term.args]
        fixed = [not self.moves(arg) for arg in term.args]
        if term.op in ("multiply", "divide") and fixed[1]:
            return motions[0] if self.sign(term.args[1]) in _UP else _FLIPPED[motions[0]] if self.sign(
                term.args[1]) in (NEGATIVE, NONPOSITIVE) else UNKNOWN
        marks = FUNCTIONS[term.op].monotone if term.op in FUNCTIONS else ()
        if len(marks) < len(motions):
            return UNKNOWN
        signed = {motion if mark in ("s", "+") else _FLIPPED[motion] if mark else UNKNOWN
                  for motion, mark, still in zip(motions, marks, fixed, strict=False) if not still}
        return signed.pop() if len(signed) == 1 else UNKNOWN if signed else POSITIVE

    def _motion_of_result(self, result: Reduction) -> str:
        if self._moves_inside(result):
            return UNKNOWN
        if result.monoid in ("max", "topk", "any", "fmax"):
            return POSITIVE
        if result.monoid in ("min", "all", "fmin"):
            return NEGATIVE
        if result.monoid == "sum":
            sign = self.sign(result.body)
            return POSITIVE if sign in _UP else NEGATIVE if sign in (NEGATIVE, NONPOSITIVE) else UNKNOWN
        return UNKNOWN

    def moves(self, term: Expr) -> bool:
        """Whether a term depends on results of the cascade."""
        if term not in self._moving:
            own = term.op == "symbol" or term.op == "size" and term.axis == self.axis
            self._moving[term] = own or True in map(self.moves, term.args)
        return self._moving[term]

    def _moves_inside(self, result: Reduction) -> bool:
        """Whether what a result reduces, or which elements take part in it, depends on other results or on what came before."""
        parts = [*result.elements]
        return any(self.moves(part) or is_ordered(part, self.axis) for part in parts)

    def _bounds(self, a: Expr, p: Expr, monoid: str) -> bool:
        p = self.meaning(p)
        if sorted_operands(a) is sorted_operands(p):
            return True
        if p.op == "symbol":
            result = self.results.get(p.name)
            if result is None or result.monoid != monoid or not _covers(result.mask, self.mask):
                return False
            return sorted_operands(a) is sorted_operands(result.body) or self._dominates(result.body, a, monoid)
        if p.op == ("maximum" if monoid == "max" else "minimum"):
            return any(self._bounds(a, part, monoid) for part in p.args)
        return any(self._bounds(x, y, monoid) for x, y in self._without_common(a, p))

    def _without_common(self, a: Expr, p: Expr) -> Iterator[tuple[Expr, Expr]]:
        """What is left of a and p without an operand they share, where leaving it out keeps their order."""
        if a.op != p.op or a.op not in ("add", "subtract", "multiply", "divide"):
            return
        pairs = [(0, 0), (0, 1), (1, 0), (1, 1)] if a.op in ("add", "multiply") else [(0, 0)]
        for i, j in pairs:
            if a.args[1 - i] is p.args[1 - j] and (a.op in ("add", "subtract") or self.sign(a.args[1 - i]) in _UP):
                yield a.args[i], p.args[j]

    def _dominates(self, larger: Expr, a: Expr, monoid: str) -> bool:
        """Whether a ≤ larger (for max; a ≥ larger for min) from the meaning of ceil, abs, maximum and their twins."""
        above = ("ceil", "abs", "maximum") if monoid == "max" else ("floor", "minimum")
        return larger.op in above and any(a is part for part in larger.args)


def _power_of_two_near(p: Expr) -> Expr | None:
    """q, if p is 2^(⌊log₂ q⌋ + c), or with ⌈·⌉ or a rounding for ⌊·⌋: then q is at most a fixed multiple of p."""
    two = p.op == "exp2" or p.op == "power" and p.args[0].op == "const" and p.args[0].value == 2
    exponent = p.args[-1] if two else p
    while exponent.op in ("add", "subtract") and exponent.args[1].op == "const":
        exponent = exponent.args[0]
    whole = two and exponent.op in ("floor", "ceil", "round") and exponent.args[0].op == "log2"
    return exponent.args[0].args[0] if whole else None


def _covers(wide: Expr | None, narrow: Expr | None) -> bool:
    """Whether every element in `narrow` is in `wide`."""
    if wide is None or wide is narrow:
        return True
    return narrow is not None and narrow.op == "logical_and" and any(_covers(wide, part) for part in narrow.args)


def _sign_by_table(facts: Facts, term: Expr) -> str:
    row = FUNCTIONS.get(term.op)
    if row is None:
        return UNKNOWN
    return NONNEGATIVE if row.boolean else row.sign


def _product(first: str, second: str) -> str:
    if UNKNOWN in (first, second):
        return UNKNOWN
    negative = [sign in (NEGATIVE, NONPOSITIVE) for sign in (first, second)]
    strict = first in _STRICT and second in _STRICT
    size = POSITIVE if strict else NONNEGATIVE
    return _FLIPPED[size] if negative[0] != negative[1] else size


def _sum(first: str, second: str) -> str:
    pair = {first, second}
    if UNKNOWN in pair:
        return UNKNOWN
    if pair <= {POSITIVE, NONNEGATIVE}:
        return POSITIVE if POSITIVE in pair else NONNEGATIVE
    if pair <= {NEGATIVE, NONPOSITIVE}:
        return NEGATIVE if NEGATIVE in pair else NONPOSITIVE
    return UNKNOWN


def _const(facts: Facts, term: Expr) -> str:
    value = term.value
    return POSITIVE if value > 0 else NEGATIVE if value < 0 else NONNEGATIVE if value == 0 else UNKNOWN


def _multiply(facts: Facts, term: Expr) -> str:
    first, second = term.args
    return NONNEGATIVE if first is second else _product(facts.sign(first), facts.sign(second))


def _divide(facts: Facts, term: Expr) -> str:
    return _product(facts.sign(term.args[0]), _inverse(facts.sign(term.args[1])))


def _ratio(facts: Facts, term: Expr) -> str:
    """The total twin is 1 where both are 0, whatever their signs."""
    p, q = map(facts.sign, term.args)
    return UNKNOWN if {p, q} == {NONNEGATIVE, NONPOSITIVE} else _divide(facts, term)


def _scaled(facts: Facts, term: Expr) -> str:
    """The total twin is 0 where the scale is 0."""
    return _weakened(_divide(facts, term))


def _weakened(sign: str) -> str:
    return {POSITIVE: NONNEGATIVE, NEGATIVE: NONPOSITIVE}.get(sign, sign)


def _inverse(sign: str) -> str:
    """The sign of 1/a: where it is defined, a is not 0."""
    return {NONNEGATIVE: POSITIVE, NONPOSITIVE: NEGATIVE}.get(sign, sign)


def _difference(facts: Facts, term: Expr) -> str:
    a, b = term.args
    known = _sum(facts.sign(a), _FLIPPED[facts.sign(b)])
    if known:
        return known
    if facts.below(a, b) or facts.above(b, a):
        return NONPOSITIVE
    return NONNEGATIVE if facts.above(a, b) or facts.below(b, a) else UNKNOWN


def _power(facts: Facts, term: Expr) -> str:
    base, exponent = term.args
    if exponent.op == "const" and exponent.value % 2 == 0:
        return NONNEGATIVE
    return facts.sign(base) if facts.sign(base) in _UP else UNKNOWN


def _sqrt(facts: Facts, term: Expr) -> str:
    return POSITIVE if facts.sign(term.args[0]) == POSITIVE else NONNEGATIVE


def _maximum(facts: Facts, term: Expr) -> str:
    signs = {facts.sign(arg) for arg in term.args}
    for sign in (POSITIVE, NONNEGATIVE):
        if sign in signs:
            return sign
    return NONPOSITIVE if signs <= {NEGATIVE, NONPOSITIVE} else UNKNOWN


def _minimum(facts: Facts, term: Expr) -> str:
    signs = {_FLIPPED[facts.sign(arg)] for arg in term.args}
    for sign in (POSITIVE, NONNEGATIVE):
        if sign in signs:
            return _FLIPPED[sign]
    return NONNEGATIVE if signs <= {NEGATIVE, NONPOSITIVE} else UNKNOWN


def _where(facts: Facts, term: Expr) -> str:
    return _maximum_of_choice(facts.sign(term.args[1]), facts.sign(term.args[2]))


def _maximum_of_choice(first: str, second: str) -> str:
    if first == second:
        return first
    return _sum(first, second).replace(POSITIVE, NONNEGATIVE) if {first, second} <= set(_UP) else UNKNOWN


def _reduction(facts: Facts, term: Expr) -> str:
    return _sign_of_reduction(term.monoid, facts.sign(term.body), term.mask is not None)


def _sign_of_reduction(monoid: str, sign: str, masked: bool) -> str:
    """The sign of ⊕ over terms of one sign; under a mask there may be none, and then it is that of the identity."""
    if monoid in ("argmax", "argmin", "argtopk", "any", "all"):
        return NONNEGATIVE if not (masked and MONOIDS[monoid].indexed) else UNKNOWN
    if monoid == "prod":
        return sign if sign in _UP else UNKNOWN
    if monoid == "sum":
        return _weakened(sign) if masked else sign
    if MONOIDS[monoid].source or not MONOIDS[monoid].commutative:
        return UNKNOWN
    below = MONOIDS[monoid].identity < 0
    return sign if not masked or sign in ((NEGATIVE, NONPOSITIVE) if below else _UP) else UNKNOWN


def _symbol(facts: Facts, term: Expr) -> str:
    if term.name in facts.pivots:
        return facts.sign(facts.pivots[term.name])
    result = facts.results.get(term.name)
    if result is None:
        return UNKNOWN
    return _sign_of_reduction(result.monoid, facts.under(result.mask).sign(result.body), result.mask is not None)


_SIGNS = {
    "const": _const, "multiply": _multiply, "scale": _multiply, "divide": _divide, "ratio": _ratio, "scaled": _scaled,
    "add": lambda facts, term: _sum(*map(facts.sign, term.args)),
    "subtract": _difference, "shift": _difference,
    "negative": lambda facts, term: _FLIPPED[facts.sign(term.args[0])],
    "reciprocal": lambda facts, term: _inverse(facts.sign(term.args[0])),
    "power": _power, "sqrt": _sqrt, "maximum": _maximum, "minimum": _minimum, "where": _where,
    "reduce": _reduction, "symbol": _symbol,
    "size": lambda facts, term: POSITIVE, "index": lambda facts, term: NONNEGATIVE,
}
