"""Polynomials in the states of a recurrence over a semiring, and the finite sets of monomials that a step closes.

In: steps as expressions.  Out: for each monomial φ_k of the states, φ_k(step(h, x)) = ⊕_j M_kj(x) ⊗ φ_j(h).  This is the
rebase law read from the other side: finitely many functions of the state that every element moves linearly.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from redfuser_algebra.algebra.semirings import DUAL, SEMIRINGS, Semiring
from redfuser_algebra.discover.simplify import is_number
from redfuser_algebra.language.expr import Expr, call, const, substitute, unbound_states

LARGEST_BASIS = 16

Monomial = tuple[tuple[Expr, int], ...]
Polynomial = dict[Monomial, Expr]
UNIT: Monomial = ()


class NotClosed(Exception):
    """A step that is no polynomial of the states, or one whose monomials do not stop: `term` says which."""

    def __init__(self, term: Expr, reason: str) -> None:
        super().__init__(reason)
        self.term, self.reason = term, reason


@dataclass(frozen=True)
class Closed:
    """Monomials that one step maps to combinations of themselves: `rows[k][j]` is M_kj; zeros are left out."""

    semiring: Semiring
    basis: tuple[Monomial, ...]
    rows: tuple[dict[int, Expr], ...]


def closed(steps: Mapping[Expr, Expr], targets: Sequence[Expr], semiring: Semiring) -> Closed:
    """The smallest closed set of monomials that holds the targets.  Raises NotClosed."""
    algebra = Algebra(semiring)
    places: dict[Monomial, int] = {}
    rows: list[dict[int, Expr]] = []
    for target in targets:
        places.setdefault(((target, 1),), len(places))
        while len(rows) < len(places):
            monomial = list(places)[len(rows)]
            for state, power in monomial:
                _check_moves(Algebra(semiring, over_reals=True), state, steps[state], power > 0)
            image = algebra.of(substitute(algebra.written(monomial), dict(steps)))
            rows.append({places.setdefault(each, len(places)): factor for each, factor in image.items()})
            if len(places) > LARGEST_BASIS:
                raise NotClosed(algebra.written(list(places)[-1]), "every further element needs another function of the state")
    return Closed(semiring, tuple(places), tuple(rows))


def _check_moves(algebra: Algebra, state: Expr, step: Expr, upright: bool) -> None:
    """Raises NotClosed for a step that computes with states and over the reals comes to nothing: a compensated sum's."""
    if step is state or not unbound_states(step):
        return
    image = algebra.of(step if upright else -step)
    own = ((state, 1 if upright else -1),)
    if not image or len(image) == 1 and (own in image and is_number(image[own], algebra.semiring.one) or UNIT in image and image[UNIT].op == "const"):
        raise NotClosed(step, "over the reals this step changes nothing: it is there for what rounding loses, which no law keeps")


class Algebra:
    """Expressions as polynomials of the states in them, over one semiring.

    a − a is 0 where it is a sum; where it is a product, and an infinite a the NaN that a loop gives, only `over_reals`.
    """

    def __init__(self, semiring: Semiring, over_reals: bool = False) -> None:
        self._kept_as_written = semiring.idempotent and not over_reals
        self.semiring, self.zero, self.one = semiring, const(semiring.zero), const(semiring.one)

    def of(self, term: Expr) -> Polynomial:
        """The polynomial that a term is.  Raises NotClosed."""
        if not unbound_states(term):
            return {} if is_number(term, self.semiring.zero) else {UNIT: term}
        if term.op == "state":
            return {((term, 1),): self.one}
        if term.op == self.semiring.plus:
            return self.added(*map(self.of, term.args))
        if term.op == self.semiring.times:
            return self.multiplied(*map(self.of, term.args))
        if term.op == "where" and not unbound_states(term.args[0]):
            return self._chosen(term.args[0], *map(self.of, term.args[1:]))
        if term.op == "abs" and self.semiring.name == "max-plus":
            return self.of(call("maximum", term.args[0], -term.args[0]))
        rule = getattr(self, f"_{term.op}", None) if self.semiring.name == "sum-product" else getattr(self, f"_tropical_{term.op}", None)
        if rule is None:
            raise NotClosed(term, "a step is not linear in any finite set of functions of the state")
        return rule(term)

    def written(self, monomial: Monomial) -> Expr:
        """A monomial as an expression: h² is h·h, or h + h where + is the product."""
        factors = [factor for state, power in monomial for factor in [state if power > 0 else -state] * abs(power)]
        return self.product(factors)

    def product(self, factors: list[Expr]) -> Expr:
        """⊗ of some factors, without ones."""
        result = self.one
        for factor in factors:
            result = self.times(result, factor)
        return result

    def plus(self, a: Expr, b: Expr) -> Expr:
        """a ⊕ b, without zeros."""
        if is_number(a, self.semiring.zero) or is_number(b, self.semiring.zero):
            return b if is_number(a, self.semiring.zero) else a
        if a is b:
            return a if self.semiring.idempotent else self.times(const(2), a) if self.semiring.times == "multiply" else call(self.semiring.plus, a, a)
        return folded(call(self.semiring.plus, a, b))

    def times(self, a: Expr, b: Expr) -> Expr:
        """a ⊗ b, without ones; zero if either is, and where a choice between them is: an infinity leaves zeros as they are."""
        if is_number(a, self.semiring.zero) or is_number(b, self.semiring.zero):
            return self.zero
        if is_number(a, self.semiring.one) or is_number(b, self.semiring.one):
            return b if is_number(a, self.semiring.one) else a
        for choice in (a, b):
            if choice.op == "where" and any(is_number(arg, self.semiring.zero) for arg in choice.args[1:]):
                return call("where", choice.args[0], *(self.times(*((arg, b) if choice is a else (a, arg))) for arg in choice.args[1:]))
        product = call(self.semiring.times, *((b, a) if b.op == "const" else (a, b)))
        return product if self._kept_as_written and _cancels(product) else folded(product)

    def added(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """a ⊕ b, monomial by monomial."""
        return self._kept({m: self.plus(a.get(m, self.zero), b.get(m, self.zero)) for m in dict.fromkeys((*a, *b))})

    def multiplied(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """a ⊗ b, every monomial with every other."""
        total: Polynomial = {}
        for m, factor in a.items():
            total = self.added(total, {multiplied(m, n): self.times(factor, other) for n, other in b.items()})
        return total

    def raised(self, term: Expr, power: int) -> Polynomial:
        """⊗ of a term with itself."""
        result, factor = {UNIT: self.one}, self.of(term)
        for _ in range(power):
            result = self.multiplied(result, factor)
        return result

    def _chosen(self, condition: Expr, a: Polynomial, b: Polynomial) -> Polynomial:
        pairs = {m: (a.get(m, self.zero), b.get(m, self.zero)) for m in dict.fromkeys((*a, *b))}
        return self._kept({m: x if x is y else call("where", condition, x, y) for m, (x, y) in pairs.items()})

    def _kept(self, terms: Polynomial) -> Polynomial:
        return {m: factor for m, factor in terms.items() if not is_number(factor, self.semiring.zero)}

    # sums and products

    def _negative(self, term: Expr) -> Polynomial:
        return {m: folded(-factor) for m, factor in self.of(term.args[0]).items()}

    def _subtract(self, term: Expr) -> Polynomial:
        a, b = term.args
        return self.added(self.of(a), self._negative(-b))

    def _divide(self, term: Expr) -> Polynomial:
        a, b = term.args
        if unbound_states(b):
            raise NotClosed(term, "a step divides by a state")
        return {m: folded(call("divide", factor, b)) for m, factor in self.of(a).items()}

    def _power(self, term: Expr) -> Polynomial:
        base, exponent = term.args
        if exponent.op != "const" or exponent.value not in range(1, 9):
            raise NotClosed(term, "a step is not linear in any finite set of functions of the state")
        return self.raised(base, int(exponent.value))

    # semirings in which + is the product

    def _tropical_negative(self, term: Expr) -> Polynomial:
        """−a: where a is linear over the dual semiring, with inverse monomials."""
        if self.semiring.name not in DUAL:
            raise NotClosed(term, "the opposite of a state is no polynomial of it")
        dual = Algebra(SEMIRINGS[DUAL[self.semiring.name]]).of(term.args[0])
        return {tuple((state, -power) for state, power in m): folded(-factor) for m, factor in dual.items()}

    def _tropical_subtract(self, term: Expr) -> Polynomial:
        a, b = term.args
        return self.multiplied(self.of(a), self.of(-b))

    def _tropical_multiply(self, term: Expr) -> Polynomial:
        number, other = sorted(term.args, key=lambda arg: arg.op != "const")
        if number.op != "const" or number.value not in range(1, 9):
            raise NotClosed(term, "a step is not linear in any finite set of functions of the state")
        return self.raised(other, int(number.value))


def factors(monomial: Monomial) -> list[Monomial]:
    """The states of a monomial, or their inverses, one by one."""
    return [((state, 1 if power > 0 else -1),) for state, power in monomial for _ in range(abs(power))]


def multiplied(*monomials: Monomial) -> Monomial:
    """The product of monomials."""
    powers: dict[Expr, int] = {}
    for state, power in (pair for monomial in monomials for pair in monomial):
        powers[state] = powers.get(state, 0) + power
    return tuple(sorted(((state, power) for state, power in powers.items() if power), key=lambda pair: repr(pair[0])))


def folded(term: Expr) -> Expr:
    """Numbers computed with, the first factors of a product among them; a − a and a double sign left out."""
    first, *rest = term.args
    if all(arg.op == "const" for arg in term.args) and term.op in _NUMBERS:
        return _computed(term, *(arg.value for arg in term.args))
    if term.op == "negative" and first.op == "negative":
        return first.args[0]
    if term.op == "negative" and first.op == "multiply" and first.args[0].op == "const":
        return folded(call("multiply", const(-first.args[0].value), first.args[1]))
    if term.op == "multiply" and first.op == "const" and rest[0].op == "multiply" and rest[0].args[0].op == "const":
        number = folded(call("multiply", first, rest[0].args[0]))
        return call("multiply", number, rest[0].args[1]) if number.op == "const" else term
    if term.op == "multiply" and is_number(first, -1):
        return folded(-rest[0])
    return const(0) if _cancels(term) else term


def _cancels(term: Expr) -> bool:
    """Whether a term is a − a: over the reals 0, and NaN where a is infinite."""
    return term.op == "add" and any(a.op == "negative" and a.args[0] is b for a, b in (term.args, term.args[::-1]))


def _computed(term: Expr, *values: float) -> Expr:
    """The number that a term of numbers is, if floats hold it exactly."""
    number = _NUMBERS[term.op](*values)
    if all(map(isfinite, (number, *values))) and _NUMBERS[term.op](*map(Fraction, values)) != Fraction(number):
        return term
    return const(number)


_NUMBERS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b, "negative": lambda a: -a, "maximum": max, "minimum": min}
