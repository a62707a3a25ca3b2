"""The checker that multiplies out: both sides of a recurrence's equations over its semiring, in one normal form.

In: a form and its obligations.  Out: evidence.  ⊗ distributes over ⊕ in every semiring of the table, so two terms with
the same sum of products are equal.  Choices are taken apart into cases; what is no ⊕ or ⊗ is an unknown.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import isinf

from redfuser_algebra.algebra.semirings import DUAL, SEMIRINGS
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.expr import Expr, call, const, subterms
from redfuser_algebra.prove.evidence import CANNOT, PROVED, Evidence
from redfuser_algebra.prove.obligations import Obligation
from redfuser_algebra.prove.recurrences import Equation, associativity, entries_of, equations, of_clip, scalings

CHECKER = "distribution"
DISTRIBUTED = ("recurrence", "scaling")
"""The kinds of obligations that are for this checker alone."""

MOST_CONDITIONS = 8
LATTICE = "max-min-plus"
"""Where + distributes over max and min, and these over each other."""

Product = frozenset[tuple[Expr, Fraction]]
"""Unknowns with their exponents; where + is the product, with their multiples."""
Sum = dict[Product, Fraction]
"""Products with how often they are there; over a tropical semiring with what is added to them."""
UNIT = const(1)
"""Over (log-add-exp, +), what numbers are multiples of."""
NOTHING: Product = frozenset()


class Unread(Exception):
    """A term that is no sum of products here."""


def distributed(form: FusedForm, obligations: Sequence[Obligation]) -> Iterator[tuple[str, Evidence]]:
    """The id of every obligation about a recurrence or a scaling, with the evidence."""
    records, clips = ({each.name: each for each in found} for found in (form.recurrences, form.clips))
    together = {scaling.names: scaling for scaling in form.scalings}
    for obligation in obligations:
        if obligation.kind == "recurrence" and obligation.about[0] in clips:
            yield obligation.id, _evidence([(LATTICE, of_clip(form, clips[obligation.about[0]]))], ", then induction over the elements")
        elif obligation.kind == "recurrence":
            recurred = records[obligation.about[0]]
            yield obligation.id, _evidence(((recurred.semiring, equations(form, recurred)),), ", then induction over the elements")
        elif obligation.kind == "scaling":
            yield obligation.id, _evidence([("sum-product", scalings(form, together[obligation.about]))])
        elif obligation.id == "monoid:compose":
            yield obligation.id, _evidence([*((r.semiring, associativity(form, entries_of(r))) for r in form.recurrences),
                                            *((LATTICE, associativity(form, clip.part)) for clip in form.clips)])


def _evidence(asked: Sequence[tuple[str, Iterable[Equation]]], then: str = "") -> Evidence:
    rows = [(semiring, *equation) for semiring, found in asked for equation in found]
    for semiring, what, left, right in rows:
        try:
            if not equal(semiring, left, right):
                return Evidence(CHECKER, CANNOT, {"reason": f"{what}: {left} and {right} do not multiply out to the same"})
        except Unread as reason:
            return Evidence(CHECKER, CANNOT, {"reason": f"{what}: {reason}"})
    over = " and ".join(dict.fromkeys(semiring for semiring, _ in asked))
    return Evidence(CHECKER, PROVED, {"method": f"{len(rows)} equations multiplied out{then}",
                                      "over": f"{over}, where elements are finite or the zero of ⊕"})


def equal(semiring: str, left: Expr, right: Expr) -> bool:
    """Whether two terms have one normal form, whichever way the choices in them go.  Raises Unread."""
    conditions = list(dict.fromkeys(term.args[0] for term in subterms(left, right) if term.op == "where"))
    if len(conditions) > MOST_CONDITIONS:
        raise Unread(f"more than {MOST_CONDITIONS} conditions")
    ways = (dict(zip(conditions, way, strict=True)) for way in product((True, False), repeat=len(conditions)))
    if semiring == LATTICE:
        return all(_smallest(left, way) == _smallest(right, way) for way in ways)
    return all(_equal(Normal(semiring, way), left, right) for way in ways)


def _smallest(term: Expr, way: Mapping[Expr, bool]) -> set[frozenset]:
    """The terms over (max, +) of which a term is the least, without those that are at least as large as another one.  Raises Unread."""
    found = _parts(term, Normal("max-plus", way))
    return {frozenset(each.items()) for each in found if not any(other != each and _below(other, each) for other in found)}


def _parts(term: Expr, normal: Normal) -> list[Sum]:
    if term.op == "where":
        return _parts(term.args[1 if normal.chosen[term.args[0]] else 2], normal)
    if term.op == "const" and term.value == float("inf"):
        return []
    if term.op not in ("minimum", "maximum", "add", "subtract"):
        return [normal.of(term)]
    a, b = (_parts(arg, normal) for arg in ((term.args[0], -term.args[1]) if term.op == "subtract" else term.args))
    return a + b if term.op == "minimum" else [(normal.added if term.op == "maximum" else normal.product)(one, other) for one in a for other in b]


def _below(one: Sum, other: Sum) -> bool:
    """Whether every term of a maximum is in another one, with at least as much added."""
    return all(product in other and value <= other[product] for product, value in one.items())


def _equal(normal: Normal, left: Expr, right: Expr) -> bool:
    """Whether two terms are the same sum of products, or fractions that are the same once multiplied across."""
    if normal.by_sums:
        return normal.of(left) == normal.of(right)
    (a, b), (c, d) = normal.fraction(left), normal.fraction(right)
    return normal.product(a, d) == normal.product(c, b)


class Normal:
    """Terms as sums of products over one semiring, with choices made."""

    def __init__(self, semiring: str, chosen: Mapping[Expr, bool]) -> None:
        self.semiring, self.chosen = semiring, chosen
        self.tropical, self.by_sums = SEMIRINGS[semiring].idempotent, SEMIRINGS[semiring].times == "add"
        self.better: Callable = {"max-plus": max, "min-plus": min}.get(semiring, lambda a, b: a + b)
        self.join = SEMIRINGS[semiring].plus

    def of(self, term: Expr) -> Sum:
        """The normal form.  Raises Unread."""
        if term.op == "where":
            return self.of(term.args[1 if self.chosen[term.args[0]] else 2])
        if term.op == "const":
            return self._number(term.value)
        rule = (_BY_SUMS if self.by_sums else _PLAIN).get(term.op)
        if term.op == self.join:
            return self.added(*map(self.of, term.args))
        return rule(self, term) if rule and not (term.op == "abs" and self.join != "maximum") else {frozenset({(term, Fraction(1))}): self._one}

    def fraction(self, term: Expr) -> tuple[Sum, Sum]:
        """What is above and below the line.  Raises Unread."""
        one = {NOTHING: self._one}
        if not any(part.op == "divide" for part in subterms(term)):
            return self.of(term), one
        if term.op == "where":
            return self.fraction(term.args[1 if self.chosen[term.args[0]] else 2])
        if term.op not in ("add", "subtract", "multiply", "divide", "negative"):
            return self.of(term), one
        if term.op == "negative":
            above, below = self.fraction(term.args[0])
            return self.product(self.of(const(-1)), above), below
        (a, b), (c, d) = map(self.fraction, term.args)
        if term.op in ("multiply", "divide"):
            return (self.product(a, c), self.product(b, d)) if term.op == "multiply" else (self.product(a, d), self.product(b, c))
        other = self.product(c, b) if term.op == "add" else self.product(self.of(const(-1)), self.product(c, b))
        return self.added(self.product(a, d), other), self.product(b, d)

    @property
    def _one(self) -> Fraction:
        return Fraction(0 if self.tropical else 1)

    def _number(self, value: float) -> Sum:
        if value == SEMIRINGS[self.semiring].zero:
            return {}
        if isinstance(value, float) and isinf(value):
            raise Unread(f"{value} among numbers")
        if self.by_sums and not self.tropical:
            return {frozenset({(UNIT, Fraction(value))} if value else ()): Fraction(1)}
        return {NOTHING: Fraction(value)}

    def added(self, a: Sum, b: Sum) -> Sum:
        """⊕, with what cancels left out."""
        total = dict(a)
        for inside, factor in b.items():
            total[inside] = self.better(total[inside], factor) if inside in total else factor
        return {inside: factor for inside, factor in total.items() if factor or self.tropical}

    def product(self, a: Sum, b: Sum) -> Sum:
        """⊗, multiplied out."""
        total: Sum = {}
        for one, other in product(a.items(), b.items()):
            powers = dict(one[0])
            for unknown, power in other[0]:
                powers[unknown] = powers.get(unknown, Fraction(0)) + power
            factor = one[1] + other[1] if self.tropical else one[1] * other[1]
            total = self.added(total, {frozenset((u, p) for u, p in powers.items() if p): factor})
        return total

    def opposite(self, term: Expr) -> Sum:
        """−a: of a tropical sum, by way of the dual."""
        if term.op == "const":
            return self._number(-term.value)
        if not self.by_sums:
            return {inside: -factor for inside, factor in self.of(term).items()}
        if not self.tropical:
            return self._inverse(self.of(term))
        dual = Normal(DUAL[self.semiring], self.chosen).of(term)
        if not dual:
            raise Unread("the opposite of zero")
        return {frozenset((unknown, -power) for unknown, power in inside): -factor for inside, factor in dual.items()}

    def _inverse(self, total: Sum) -> Sum:
        """−log of one product."""
        if [*total.values()] != [self._one]:
            raise Unread("the opposite of a sum")
        return {frozenset((unknown, -power) for unknown, power in inside): self._one for inside in total}

    def power(self, term: Expr, exponent: int) -> Sum:
        """⊗ of a term with itself."""
        result: Sum = {NOTHING: self._one}
        for _ in range(exponent):
            result = self.product(result, self.of(term))
        return result


def _whole(term: Expr) -> int:
    if term.op != "const" or term.value not in range(9):
        raise Unread(f"the exponent {term}")
    return int(term.value)


def _multiple(normal: Normal, term: Expr) -> Sum:
    number, other = sorted(term.args, key=lambda arg: arg.op != "const")
    if number.op != "const":
        for one, total in (term.args, term.args[::-1]):
            if total.op == "add":
                return normal.product(*(normal.of(call("multiply", one, part)) for part in total.args))
        term = call("multiply", *sorted(term.args, key=str))
        return {frozenset({(term, Fraction(1))}): normal._one}
    if number.value == -1:
        return normal.opposite(other)
    return normal.power(other, _whole(number)) if number.value >= 0 else normal.power(-other, _whole(const(-number.value)))


def _quotient(normal: Normal, term: Expr) -> Sum:
    above, below = term.args
    return normal.product(normal.of(above), {frozenset({(below, Fraction(-1))}): Fraction(1)})


_PLAIN: dict[str, Callable[[Normal, Expr], Sum]] = {
    "multiply": lambda normal, term: normal.product(*map(normal.of, term.args)),
    "negative": lambda normal, term: normal.opposite(term.args[0]),
    "subtract": lambda normal, term: normal.added(normal.of(term.args[0]), normal.opposite(term.args[1])),
    "power": lambda normal, term: normal.power(term.args[0], _whole(term.args[1])),
    "divide": _quotient,
}
_BY_SUMS: dict[str, Callable[[Normal, Expr], Sum]] = {
    "add": lambda normal, term: normal.product(*map(normal.of, term.args)),
    "negative": lambda normal, term: normal.opposite(term.args[0]),
    "subtract": lambda normal, term: normal.product(normal.of(term.args[0]), normal.opposite(term.args[1])),
    "multiply": _multiple,
    "abs": lambda normal, term: normal.of(call("maximum", term.args[0], -term.args[0])),
}
"""How terms are read; what has no rule is an unknown."""
