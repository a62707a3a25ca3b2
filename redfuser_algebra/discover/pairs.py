"""Pairs of elements of one array, taken apart: Σ_k f(x_l, y_k), y being x once more, where f is of finite rank.

In: an operator with an input that is another one once more.  Out: the operator of that one alone, or None.  If
f(x, y) = Σ_r g_r(x)·h_r(y), the sum over k is Σ_r g_r(x_l)·Σ_l h_r(x_l), since · distributes over Σ, and over those before
l it is Σ_r g_r(x_l)·(running sum of h_r).  A difference a(x) − b(y) is taken about the mean of a, (a − c) − (b − c): squares of
small differences of large numbers keep their digits, and Σ (a − mean a) is 0.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from redfuser_algebra.discover.simplify import operands
from redfuser_algebra.language.cascade import paired
from redfuser_algebra.language.composition import with_leaves
from redfuser_algebra.language.expr import Expr, call, children_replaced, subterms
from redfuser_algebra.language.factored import HIGHEST, ONE, Factors, Product, holding, number, single
from redfuser_algebra.language.functions import mean, size
from redfuser_algebra.language.operator import Operator, define
from redfuser_algebra.language.recurrence import cumulative

LARGEST = 32
"""Products that a summand may have."""

_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal", "not_equal": "not_equal"}


class _Joined(Exception):
    """A term that is no finite sum of products of one element each."""


def alone(operator: Operator) -> Operator | None:
    """The operator without the inputs whose elements all meet those of the array that they are; None if they are not taken apart.

    No array may be given for such an input any more.
    """
    for copy, source in operator.again.items():
        own, other = ([axis for axis in operator.inputs[a] if axis not in operator.inputs[b]] for a, b in ((source, copy), (copy, source)))
        if len(own) == len(other) == 1 and paired(operator, own[0]):
            return _without(operator, own[0], other[0])
    return None


def _without(operator: Operator, axis: str, other: str) -> Operator | None:
    """The operator with every sum over pairs along two axes taken apart, and the second axis renamed to the first."""
    copies = {copy: source for copy, source in operator.again.items() if other in operator.inputs[copy]}
    inputs = {name: own for name, own in operator.inputs.items() if name not in copies}
    apart = _Apart(axis, other, {copy: Expr("input", (), (source, inputs[source])) for copy, source in copies.items()})
    try:
        outputs = tuple(map(apart.of, operator.outputs))
    except _Joined:
        return None
    if any(other in own for own in (*inputs.values(), *(output.axes for output in outputs))) or any(map(apart.meets, subterms(*outputs))):
        return None
    rest = {copy: source for copy, source in operator.again.items() if copy not in copies}
    assume = tuple(dict.fromkeys(map(apart.folded, operator.assume)))
    made = define(operator.name, inputs, operator.params, operator.packed(tuple(map(apart.folded, outputs))), assume, operator.doc,
                  ", ".join(" ".join(own) for own in operator.orders), rest, operator.constants)
    return replace(made, written=operator)


@dataclass(frozen=True)
class _Summand:
    """Products that add up to a summand over `axis`, for which elements it counts (`order`, by position), and whether differences are about means."""

    products: list[Product]
    axis: str
    order: str
    centred: bool


class _Apart:
    """Sums over pairs along two axes; `leaves` says what the inputs along the second one are along the first."""

    def __init__(self, axis: str, other: str, leaves: dict[str, Expr]) -> None:
        self.axis, self.other, self.leaves = axis, other, leaves
        self.factors = Factors(lambda term: False, {})
        self.centred: set[Expr] = set()

    def folded(self, term: Expr) -> Expr:
        """A term along the second axis as one along the first."""
        return with_leaves(term, self.leaves, {self.other: self.axis})

    def meets(self, term: Expr) -> bool:
        """Whether a term varies along both axes."""
        return {self.axis, self.other} <= {*term.axes}

    def of(self, term: Expr) -> Expr:
        """A term in which no reduction meets both axes.  Raises _Joined."""
        if self._over_pairs(term):
            return self._reduced(term)
        inner = term.body if term.op == "reduce" and term.monoid == "sum" and term.mask is None else term
        if inner is not term and term.axis in (self.axis, self.other) and self._over_pairs(inner) and inner.monoid == "sum":
            total = self._of_all(term.attrs, inner)
            if total is not None:
                return total
        return children_replaced(term, tuple(map(self.of, term.args)))

    def _over_pairs(self, term: Expr) -> bool:
        return term.op == "reduce" and term.axis in (self.axis, self.other) and any(map(self.meets, term.args))

    def _reduced(self, term: Expr) -> Expr:
        """What one element meets along the axis of a reduction, as a term of that element and of reductions that it has no part in."""
        if term.monoid in ("max", "min") and term.mask is None:
            own, met = self._addends(term.body, term.axis)
            return sum(own[1:], start=own[0]) + Expr("reduce", (sum(met[1:], start=met[0]),), term.attrs)
        if term.monoid != "sum":
            raise _Joined
        inner = self._inner_sum(term.body)
        if inner is not None:
            return Expr("reduce", (self._reduced(Expr("reduce", (inner.body, *term.args[1:]), term.attrs)),), inner.attrs)
        found = self._summand(term)
        return self._running(found) if found.order else self._summed(found)

    def _inner_sum(self, body: Expr) -> Expr | None:
        """A body as a sum over some other axis, such as that of vectors which meet; factors that are the same along that one go inside."""
        factors = operands(body, "multiply")
        place = next((at for at, factor in enumerate(factors) if self.meets(factor) and factor.op == "reduce" and factor.monoid == "sum"), None)
        if place is None or factors[place].mask is not None or self._over_pairs(factors[place]):
            return None
        inner, others = factors[place], factors[:place] + factors[place + 1:]
        free = not any(inner.axis in other.axes for other in others)
        return Expr("reduce", (reduce(Expr.__mul__, others, inner.body),), inner.attrs) if free else None

    # sums

    def _summed(self, found: _Summand) -> Expr:
        """Σ_r g_r · Σ h_r; the sum of what is taken about its mean is 0."""
        parts = [(product.without(met), met) for product in found.products for met in [product.only(lambda base: found.axis in base.axes)]]
        return self.factors.added(own * self.factors.summed(met, found.axis) for own, met in parts if not self._is_centred(met)).expr

    def _is_centred(self, met: Product) -> bool:
        return [*met.powers.values()] == [1] and not self.centred.isdisjoint(met.powers)

    def _running(self, found: _Summand) -> Expr:
        """Σ_r g_r · (Σ h_r of the elements before).  Raises _Joined."""
        if found.centred or found.axis != self.other or found.order not in ("less", "less_equal"):
            raise _Joined
        parts = [(product.without(met), met) for product in found.products for met in [product.only(lambda base: self.other in base.axes)]]
        return self.factors.added(own * single(cumulative("sum", self.folded(met.expr), self.axis, exclusive=found.order == "less"))
                                  for own, met in parts).expr

    def _of_all(self, attrs: tuple, inner: Expr) -> Expr | None:
        """Σ over pairs of two elements, where it is that over all pairs, or half of it: none meets itself, and both play the same part.

        Otherwise None.  An element that is alone meets none, whatever it is.
        """
        if not self._conditions(inner)[0]:
            return None
        found = self._summand(inner)
        if not self._vanishes_at_itself(found) or not (found.order == "not_equal" or self._is_symmetric(found)):
            return None
        whole = Expr("reduce", (self._summed(found),), attrs)
        return call("where", call("less", size(self.axis), 2), 0, whole if found.order == "not_equal" else whole / 2)

    def _vanishes_at_itself(self, found: _Summand) -> bool:
        return self.factors.added(map(self._folded_product, found.products)).number == 0

    def _is_symmetric(self, found: _Summand) -> bool:
        numbers: dict[frozenset, Fraction] = {}
        for product in found.products:
            sides = [frozenset(self._folded_product(product.only(lambda base: axis in base.axes)).powers.items()) for axis in (self.axis, self.other)]  # noqa: B023
            rest = frozenset((base, power) for base, power in product.powers.items() if not {self.axis, self.other} & {*base.axes})
            for key, value in (((*sides, rest), product.number), ((*sides[::-1], rest), -product.number)):
                numbers[key] = numbers.get(key, Fraction(0)) + value
        return not any(numbers.values())

    def _folded_product(self, product: Product) -> Product:
        parts = (single(self.folded(base)).to_the(power) for base, power in product.powers.items())
        return reduce(Product.__mul__, parts, Product(product.number, {}))

    # summands

    def _summand(self, term: Expr) -> _Summand:
        """What is summed, in products.  Raises _Joined."""
        orders, masks, value = self._conditions(term)
        if len(orders) > 1 or any(map(self.meets, masks)):
            raise _Joined
        before = len(self.centred)
        products = self._times([reduce(Product.__mul__, map(holding, masks), ONE)], self._products(value))
        centred = len(self.centred) > before or any(base in self.centred for product in products for base in product.powers)
        if centred and any(product.condition is not None for product in products):
            raise _Joined
        return _Summand(products, term.axis, *orders or ("",), centred)

    def _conditions(self, term: Expr) -> tuple[list[str], list[Expr], Expr]:
        """The orders of two positions in which a pair counts, the other conditions, and what is summed where they hold."""
        conditions, value = [] if term.mask is None else operands(term.mask, "logical_and"), term.body
        while value.op == "where" and number(value.args[2]) == 0:
            conditions, value = conditions + operands(value.args[0], "logical_and"), value.args[1]
        orders = [self._order(condition, term.axis) for condition in conditions]
        return [*filter(None, orders)], [condition for condition, order in zip(conditions, orders, strict=True) if not order], value

    def _order(self, condition: Expr, axis: str) -> str:
        """How the position along an axis compares with that along the other one, where a condition says that; otherwise ""."""
        if condition.op not in _MIRRORED or [arg.op for arg in condition.args] != ["index", "index"] or not self.meets(condition):
            return ""
        return condition.op if condition.args[0].axis == axis else _MIRRORED[condition.op]

    def _products(self, term: Expr) -> list[Product]:
        """Products of terms that vary along one axis or none.  Raises _Joined."""
        if not self.meets(term):
            return [self.factors.of(term)]
        if term.op not in _RULES:
            raise _Joined
        found = _RULES[term.op](self, term)
        if len(found) > LARGEST:
            raise _Joined
        return found

    def _times(self, a: list[Product], b: list[Product]) -> list[Product]:
        products = [one * other for one in a for other in b]
        numbers: dict[frozenset, Fraction] = {}
        for product in products:
            key = frozenset(product.powers.items())
            numbers[key] = numbers.get(key, Fraction(0)) + product.number
        return [Product(value, dict(key)) for key, value in numbers.items() if value]

    def _plus(self, term: Expr) -> list[Product]:
        a, b = term.args
        return self._minus(a - b.args[0]) if b.op == "negative" else self._products(a) + self._products(b)

    def _minus(self, term: Expr) -> list[Product]:
        """a − b; where they are one element each, about the mean of one of them."""
        sides = term.args
        if any(map(self.meets, sides)):
            return self._products(sides[0]) + [-product for product in self._products(sides[1])]
        alike = self.folded(sides[0]) is self.folded(sides[1])
        centres = [mean(side, next(axis for axis in side.axes if axis in (self.axis, self.other))) for side in sides]
        a, b = (side - centre for side, centre in zip(sides, centres if alike else centres[:1] * 2, strict=True))
        self.centred |= {a, b} if alike else {a}
        return [single(a), -single(b)]

    def _quotient(self, term: Expr) -> list[Product]:
        below = self._products(term.args[1])
        if len(below) > 1 or not below or not below[0].number or below[0].condition is not None:
            raise _Joined
        return self._times(self._products(term.args[0]), [below[0].to_the(-1)])

    def _power(self, term: Expr) -> list[Product]:
        exponent = number(term.args[1])
        if exponent not in range(2, HIGHEST + 1):
            raise _Joined
        base = self._products(term.args[0])
        return reduce(self._times, [base] * int(exponent))

    def _wave(self, term: Expr) -> list[Product]:
        """cos(a ± b) and sin(a ± b)."""
        inner = term.args[0]
        if inner.op not in ("add", "subtract") or any(map(self.meets, inner.args)):
            raise _Joined
        (sin_a, cos_a), (sin_b, cos_b) = ((single(call("sin", arg)), single(call("cos", arg))) for arg in inner.args)
        sign = Product(Fraction(1 if inner.op == "add" else -1), {})
        return [cos_a * cos_b, -(sign * sin_a * sin_b)] if term.op == "cos" else [sin_a * cos_b, sign * cos_a * sin_b]

    def _addends(self, term: Expr, axis: str) -> tuple[list[Expr], list[Expr]]:
        """The addends of a term that do not vary along an axis, and those that do not vary along the other one.  Raises _Joined."""
        if not self.meets(term):
            return ([], [term]) if axis in term.axes else ([term], [])
        if term.op not in ("add", "subtract"):
            raise _Joined
        (own, met), (other, others) = (self._addends(arg, axis) for arg in term.args)
        turned = (lambda each: each) if term.op == "add" else (lambda each: -each)
        return own + [*map(turned, other)], met + [*map(turned, others)]


_RULES: dict[str, Callable[[_Apart, Expr], list[Product]]] = {
    "add": _Apart._plus, "subtract": _Apart._minus, "divide": _Apart._quotient, "power": _Apart._power, "cos": _Apart._wave, "sin": _Apart._wave,
    "negative": lambda apart, term: [-product for product in apart._products(term.args[0])],
    "multiply": lambda apart, term: apart._times(*map(apart._products, term.args)),
}
