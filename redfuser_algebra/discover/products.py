"""Products that leave the range of floats where what outputs read of them does not: a logarithm, a root, a quotient.

In: a fused form.  Out: the form whose such products are joined element by element and moved by powers of two, which a
component of their own counts.  Outputs then read core · Π bᵢ^nᵢ · 2^places, and none of these factors by itself:
log |q / m^N| is log |q| − N log m + places · log 2, and q / m^N is q / (m / 2^(places/N))^N.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from redfuser_algebra.discover.facts import Fact
from redfuser_algebra.discover.form import Component, FusedForm, Scaling
from redfuser_algebra.discover.scaling import LOGARITHMS, free_names
from redfuser_algebra.discover.simplify import is_number
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, subterms, symbol
from redfuser_algebra.language.names import primed, stem, symbol_names


def with_scaled_products(form: FusedForm) -> FusedForm:
    """The form with a scaling for each of its products, if outputs see any other than by itself, and no element does."""
    products = [c for c in form.state if c.monoid == "prod" and c.fixed and c.name not in form.joins]
    reader = _Reader(form, products)
    outputs = tuple(map(reader.value, form.outputs))
    elements = [e for c in form.state if c.name not in reader.places for e in (*c.elements, c.rebase, c.joined) if e is not None]
    if not reader.needed or any(map(reader.sees, elements)):
        return form
    scaled = {c.name: _joined(c) for c in products}
    exponents = [Component(name, "sum", const(0), None, None, c.axes, symbol(name, c.axes)) for c in products for name in [reader.places[c.name]]]
    facts = (Fact("scale", f"{name} may be multiplied by powers of two, which {exponent} counts") for name, exponent in reader.places.items())
    return replace(form, state=(*(scaled.get(c.name, c) for c in form.state), *exponents), outputs=outputs, facts=(*form.facts, *facts),
                   scalings=(*form.scalings, *(Scaling(((name, 1),), (), exponent) for name, exponent in reader.places.items())))


def _joined(product: Component) -> Component:
    """A product of which parts, and elements, are joined one by one; those that do not take part are 1."""
    lift = product.lift if product.mask is None else call("where", product.mask, product.lift, 1)
    return replace(product, lift=lift, mask=None, joined=product.symbol * primed(product.symbol), empty=1.0)


@dataclass(frozen=True)
class _Read:
    """core · Π base^exponent · 2^places; `places` is None where the product is not in it."""

    core: Expr
    powers: tuple[tuple[Expr, Expr], ...] = ()
    places: Expr | None = None

    def moves_as(self, other: _Read) -> bool:
        """Whether two have the same powers and places."""
        return self.places is other.places and [*map(id, chain(*self.powers))] == [*map(id, chain(*other.powers))]

    def times(self, other: _Read) -> _Read:
        """The product with another one."""
        core = self.core if other.core is _ONE else self.core * other.core
        return _Read(core, self.powers + other.powers, _sum(self.places, other.places))

    def over(self, other: _Read) -> _Read:
        """The quotient by another one."""
        core = self.core if other.core is _ONE else self.core / other.core
        return _Read(core, self.powers + tuple((base, -exponent) for base, exponent in other.powers), _sum(self.places, other.places, -1))

    def size(self) -> _Read:
        """It without its sign."""
        return replace(self, core=_size(self.core), powers=tuple((_size(base), exponent) for base, exponent in self.powers))

    def unsigned(self) -> _Read:
        """The same with bases that are not negative: their signs are the core's."""
        signs = (call("sign", base) ** exponent for base, exponent in self.powers if base is not _size(base))
        return replace(self.size(), core=reduce(lambda a, b: a * b, signs, self.core))

    def power(self, exponent: Expr) -> _Read:
        """It to a power."""
        whole = self.unsigned()
        places = None if whole.places is None else whole.places * exponent
        return _Read(whole.core ** exponent, tuple((base, own * exponent) for base, own in whole.powers), places)

    def logarithm(self, op: str) -> Expr:
        """Its logarithm: the sum of those of its factors."""
        whole = self.unsigned()
        parts = sum((exponent * call(op, base) for base, exponent in whole.powers), call(op, whole.core))
        return parts if whole.places is None else parts + LOGARITHMS[op] * whole.places

    def settled(self) -> Expr:
        """Its value; the first power takes the places in, so that it has the size of what it is multiplied with."""
        value, places = self.core, self.places
        for base, exponent in self.powers:
            above = exponent.op != "negative"
            times = exponent if above else exponent.args[0]
            if places is not None:
                half, places = call("exp2", places / (2 * times)), None
                base = base * half * half if above else base / half / half
            value = value * base ** times if above else value / base ** times
        half = None if places is None else call("exp2", places / 2)
        return value if half is None else value * half * half


class _Reader:
    """How outputs read products: `places` has what counts those of each; `needed` says whether any is seen other than by itself."""

    def __init__(self, form: FusedForm, products: Sequence[Component]) -> None:
        names = free_names(form)
        self.places = {c.name: next(names) for c in products}
        self.needed = False
        held = {component.name for component in form.state}
        self._definitions = {name: value for name, value in form.definitions.items() if name not in held}

    def sees(self, term: Expr) -> bool:
        """Whether the product is in a term, through results and pivots."""
        names = set(map(stem, symbol_names(term)))
        return not names.isdisjoint(self.places) or any(self.sees(self._definitions[name]) for name in names & self._definitions.keys())

    def value(self, term: Expr) -> Expr:
        """A term that reads the product with its places."""
        if not self.sees(term):
            return term
        read = self._read(term)
        self.needed |= read.powers != ()
        return read.settled()

    def _read(self, term: Expr) -> _Read:
        if term.op == "symbol" and self.sees(term):
            name = self.places.get(term.name)
            return self._read(self._definitions[term.name]) if name is None else _Read(term, (), symbol(name, term.axes))
        if term.op == "power":
            return self._power(*term.args)
        if term.op == "where" and self.sees(term) and not self.sees(term.args[0]):
            return self._choice(*term.args)
        if term.op in _FACTORS and (self.sees(term) or any(part.op == "power" for part in subterms(term))):
            parts = list(map(self._read, term.args))
            self.needed |= term.op == "sqrt" and self.sees(term) or sum(part.places is not None for part in parts) > 1
            return _FACTORS[term.op](*parts)
        if term.op in LOGARITHMS and self.sees(term):
            self.needed = True
            return _Read(self._read(term.args[0]).logarithm(term.op))
        return _Read(children_replaced(term, tuple(map(self.value, term.args))))

    def _choice(self, condition: Expr, *values: Expr) -> _Read:
        """A choice among what has the same powers and places, or is 0; what has others is settled first."""
        parts = list(map(self._read, values))
        moved = [part for part in parts if not is_number(part.core, 0)]
        if not all(part.moves_as(moved[0]) for part in moved[1:]):
            return _Read(call("where", condition, *map(self.value, values)))
        return replace(moved[0], core=call("where", condition, *(part.core for part in parts)))

    def _power(self, base: Expr, exponent: Expr) -> _Read:
        if self.sees(base) and not self.sees(exponent):
            self.needed = True
            return self._read(base).power(exponent)
        if exponent.op == "const" or self.sees(exponent):
            return _Read(self.value(base) ** self.value(exponent))
        return _Read(_ONE, ((base.args[0], -exponent) if base.op == "reciprocal" else (base, exponent),))


_ONE = const(1)
_FACTORS: dict[str, Callable[..., _Read]] = {
    "multiply": _Read.times, "divide": _Read.over, "reciprocal": lambda a: _Read(_ONE).over(a), "abs": _Read.size,
    "negative": lambda a: replace(a, core=-a.core), "sqrt": lambda a: a.power(const(0.5))}


def _size(term: Expr) -> Expr:
    """|term|, which some terms are by themselves."""
    return term if term.op in ("abs", "exp", "exp2", "sqrt", "size") or term is _ONE else abs(term)


def _sum(a: Expr | None, b: Expr | None, sign: int = 1) -> Expr | None:
    """a ± b, where None is nothing."""
    if b is None:
        return a
    return (b if sign > 0 else -b) if a is None else (a + b if sign > 0 else a - b)
