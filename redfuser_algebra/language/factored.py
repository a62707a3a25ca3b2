"""Products taken apart and put together: what a derivative is made of while it is passed on.

In: expressions.  Out: products (a number, factors with exponents) in which equal factors are collected, sums of them
with what all share taken out, and sums over axes that what does not vary has left.  A condition `where(c, 1, 0)` is a
factor that stays a mask: where it does not hold nothing is computed that could leak.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import isfinite

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.language.functions import size
from redfuser_algebra.language.tidy import RANK

SHORT = 1000
"""Numbers with a numerator and denominator up to this are written as fractions, others as decimals."""

HIGHEST = 8
"""Powers up to this are taken apart."""


@dataclass(frozen=True)
class Product:
    """number · Π base^exponent."""

    number: Fraction
    powers: Mapping[Expr, int]

    def __mul__(self, other: Product) -> Product:
        powers = dict(self.powers)
        for base, exponent in other.powers.items():
            powers[base] = 1 if is_condition(base) else powers.get(base, 0) + exponent
        return Product(self.number * other.number, {base: exponent for base, exponent in powers.items() if exponent})

    def __neg__(self) -> Product:
        return Product(-self.number, self.powers)

    def to_the(self, exponent: int) -> Product:
        """The product to a whole power; one with conditions to a positive one."""
        powers = {base: 1 if is_condition(base) else own * exponent for base, own in self.powers.items()}
        return Product(self.number ** exponent, powers if exponent else {})

    def only(self, holds: Callable[[Expr], bool]) -> Product:
        """The factors of which something holds, without the number."""
        return Product(Fraction(1), {base: exponent for base, exponent in self.powers.items() if holds(base)})

    def without(self, part: Product) -> Product:
        """The number and the factors that are not in a part."""
        return Product(self.number, {base: exponent for base, exponent in self.powers.items() if base not in part.powers})

    @property
    def axes(self) -> dict[str, None]:
        """The axes that some factor varies along."""
        return dict.fromkeys(axis for base in self.powers for axis in base.axes)

    @property
    def condition(self) -> Expr | None:
        """Where the product is not 0 anyway."""
        conditions = [base.args[0] for base in self.powers if is_condition(base)]
        return reduce(lambda a, b: call("logical_and", a, b), conditions) if conditions else None

    @property
    def value(self) -> Expr:
        """The product without its conditions, as a fraction."""
        factors = sorted(((base, exponent) for base, exponent in self.powers.items() if not is_condition(base)),
                         key=lambda factor: RANK.get(factor[0].op, 4))
        above, below = _written(abs(self.number))
        above += [_power(base, exponent) for base, exponent in factors if exponent > 0]
        below += [_power(base, -exponent) for base, exponent in factors if exponent < 0]
        value = reduce(Expr.__mul__, above) if above else const(1)
        value = value / reduce(Expr.__mul__, below) if below else value
        return -value if self.number < 0 else value

    @property
    def expr(self) -> Expr:
        """The product as an expression, inside `where` if it has conditions."""
        return self.value if self.condition is None else call("where", self.condition, self.value, 0)


NOTHING, ONE = Product(Fraction(0), {}), Product(Fraction(1), {})


def single(term: Expr) -> Product:
    """A term as it is."""
    return Product(Fraction(1), {term: 1})


def holding(condition: Expr) -> Product:
    """1 where a condition holds, otherwise 0."""
    return single(call("where", condition, 1, 0))


def is_condition(base: Expr) -> bool:
    """Whether a factor is 1 where a condition holds and 0 elsewhere."""
    return base.op == "where" and base.args[1] is const(1) and base.args[2] is const(0)


def number(term: Expr) -> Fraction | None:
    """The finite number that a term of constants is."""
    if term.op == "const":
        return Fraction(term.value) if isfinite(term.value) else None
    values = []
    for arg in term.args if term.op in FUNCTIONS else ():
        values.append(number(arg))
        if values[-1] is None:
            return None
    value = float(FUNCTIONS[term.op].apply(*map(float, values))) if values else float("nan")
    return Fraction(value) if isfinite(value) else None


def _written(positive: Fraction) -> tuple[list[Expr], list[Expr]]:
    """A number above and below the line, without ones."""
    if max(positive.numerator, positive.denominator) > SHORT:
        return [const(float(positive))], []
    above, below = ([] if part == 1 else [const(part)] for part in (positive.numerator, positive.denominator))
    return above, below


def _power(base: Expr, exponent: int) -> Expr:
    return base if exponent == 1 else base ** exponent


class Factors:
    """Takes expressions apart and adds them up.

    `whole` terms stay as they are, `known` ones are the products given for them, and of `sums` over axes it is known
    that they need not be summed again.
    """

    def __init__(self, whole: Callable[[Expr], bool], known: Mapping[Expr, Product], sums: Iterable[Expr] = ()) -> None:
        self.whole, self.known = whole, known
        self.made: dict[Expr, list[Product]] = {}
        self.sums = [(term, self.of(term.body) * (ONE if term.mask is None else holding(term.mask))) for term in sums]

    def of(self, term: Expr) -> Product:
        """The product that a term is."""
        if term in self.known:
            return self.known[term]
        value = number(term)
        if value is not None:
            return Product(value, {})
        return _RULES[term.op](self, term) if term.op in _RULES and not self.whole(term) else single(term)

    def _divisor(self, term: Expr) -> Product:
        """The product that a term is, alone where it cannot be taken apart below a line."""
        found = self.of(term)
        return found if found.number and found.condition is None else single(term)

    def _to_power(self, term: Expr) -> Product:
        exponent = number(term.args[1])
        if exponent not in range(-HIGHEST, HIGHEST + 1):
            return single(term)
        return (self.of if exponent > 0 else self._divisor)(term.args[0]).to_the(int(exponent))

    def _choice(self, term: Expr) -> Product:
        condition, chosen, other = term.args
        if number(other) == 0:
            return holding(condition) * self.of(chosen)
        return holding(~condition) * self.of(other) if number(chosen) == 0 else single(term)

    def added(self, products: Iterable[Product]) -> Product:
        """The sum: like products are collected, and what all share is taken out."""
        numbers: dict[frozenset, Fraction] = {}
        powers: dict[frozenset, Mapping[Expr, int]] = {}
        for product in products:
            key = frozenset(product.powers.items())
            powers.setdefault(key, product.powers)
            numbers[key] = numbers.get(key, Fraction(0)) + product.number
        parts = [Product(value, powers[key]) for key, value in numbers.items() if value]
        if len(parts) < 2:
            return parts[0] if parts else NOTHING
        shared, rest = _shared(parts)
        opened = [each for part in rest for each in (self.addends(part) if len(part.powers) == 1 else [part])]
        if len(opened) > len(rest):
            return shared * self.added(opened)
        total = _sum(rest)
        self.made[total] = rest
        return shared * single(total)

    def addends(self, product: Product) -> list[Product]:
        """The products that add up to this one, if a sum made here is a factor of it."""
        total = next((base for base, exponent in product.powers.items() if base in self.made and exponent == 1), None)
        if total is None:
            return [product]
        others = product.without(single(total))
        return [each for part in self.made[total] for each in self.addends(others * part)]

    def summed(self, product: Product, axis: str) -> Product:
        """Σ over an axis: what does not vary stands before it, and a sum that is known is used."""
        varying = product.only(lambda base: axis in base.axes)
        outside = product.without(varying)
        if not varying.powers:
            return outside * single(size(axis))
        for term, whole in self.sums:
            part = whole.only(lambda base: axis in base.axes)
            rest = whole.without(part)
            if term.axis == axis and part.powers == varying.powers and rest.condition is None and rest.number:
                return outside * single(term) * rest.to_the(-1)
        body, mask = varying.value, varying.condition
        return outside * single(Expr("reduce", (body,) if mask is None else (body, mask), ("sum", axis, "")))


_RULES: dict[str, Callable[[Factors, Expr], Product]] = {
    "multiply": lambda factors, term: factors.of(term.args[0]) * factors.of(term.args[1]),
    "divide": lambda factors, term: factors.of(term.args[0]) * factors._divisor(term.args[1]).to_the(-1),
    "reciprocal": lambda factors, term: factors._divisor(term.args[0]).to_the(-1),
    "negative": lambda factors, term: -factors.of(term.args[0]),
    "power": Factors._to_power,
    "where": Factors._choice,
}


def _shared(parts: list[Product]) -> tuple[Product, list[Product]]:
    """The factors that all have, with the number where only signs differ, and what is left of each."""
    exponents = {base: [part.powers.get(base, 0) for part in parts] for base in parts[0].powers}
    least = {base: min(own, key=abs) for base, own in exponents.items()
             if all(exponent > 0 for exponent in own) or all(exponent < 0 for exponent in own)}
    same = len({abs(part.number) for part in parts}) == 1
    shared = Product(abs(parts[0].number) if same else Fraction(1), least)
    rest = [Product(part.number / shared.number, {base: left for base, exponent in part.powers.items()
                                                  if (left := exponent - least.get(base, 0))}) for part in parts]
    return shared, rest


def _sum(parts: list[Product]) -> Expr:
    """Addends in order, one that is not negative first."""
    first = next((part for part in parts if part.number > 0), parts[0])
    total = first.expr
    for part in parts:
        if part is not first:
            total = total - (-part).expr if part.number < 0 else total + part.expr
    return total
