"""Components that may be multiplied together: every merge multiplies the factors of its parts, and no output sees them.

In: a fused form.  Out: the form with its `scalings`.  How a term answers when each component c is multiplied by
λ^w(c) is linear in the weights w; that sums have summands of one degree, joins that of their component, and outputs
none, are linear equations, solved exactly.  A logarithm turns λ into a summand, which a component of its own counts.
"""
from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from fractions import Fraction

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.discover.facts import Fact
from redfuser_algebra.discover.form import Component, FusedForm, Scaling
from redfuser_algebra.discover.linear import Vector, combined, nullspace
from redfuser_algebra.language.expr import Expr, const, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, unused
from redfuser_algebra.language.normalised import after_the_first

_OF_ONE_DEGREE = frozenset(("add", "subtract", "maximum", "minimum", "negative", "abs"))
_COMPARED = COMPARISONS | {"sign"}
LOGARITHMS = {"log": math.log(2), "log2": 1.0}
"""By function, what doubling its argument adds."""


def scaled(form: FusedForm) -> FusedForm:
    """The form with its scalings; those that logarithms see get an exponent."""
    degrees = Degrees(form)
    for weights in filter(None, map(_whole, degrees.solved())):
        form = _with(form, weights, degrees)
    return form


class Degrees:
    """The equations that the weights of a form's components have to satisfy; `logarithms` of outputs have the degrees of their arguments."""

    def __init__(self, form: FusedForm) -> None:
        self.form = form
        self.pivots = {pivot.name for pivot in form.pivots}
        self.results = {result.name: result.value for result in form.results}
        self.nothing = {name + PRIME for name in zero_later(form)}
        self.equations: list[Vector] = []
        self.logarithms: dict[Expr, Vector] = {}
        self.summed: set[str] = set()

    def solved(self) -> list[Vector]:
        """Weights that satisfy all equations, and of which all others are made."""
        form = self.form
        for component in form.state:
            degree = self.of(form.joins[component.name]) if component.name in form.joins else None
            if degree is None:
                self._still(component.symbol, component.rebase)
            else:
                self._same(degree, {component.name: Fraction(1), component.name + PRIME: Fraction(1)})
        seen = {name for _, names in form.prefixes for name in names}
        self._still(*(pivot.value for pivot in form.pivots))
        for degree in (*(self.of(self.results[name]) for name in seen), *(self.of(output, read=True) for output in form.outputs)):
            self._same(degree, {})
        return nullspace([part for equation in self.equations for part in _by_part(equation)], [c.name for c in form.state])

    def of(self, term: Expr, read: bool = False) -> Vector | None:
        """The degree of a term, None for 0, which has any.  Where it is `read` off the state, symbols are results and logarithms may move."""
        if term.op == "symbol" and read:
            return self.of(self.results[term.name]) if term.name in self.results else {}
        if term.op == "symbol":
            return None if term.name in self.nothing else {} if term.name.removesuffix(PRIME) in self.pivots else {term.name: Fraction(1)}
        if term.op == "const":
            return None if term.value == 0 else {}
        degrees = [self.of(arg, read) for arg in term.args]
        if term.op in ("multiply", "divide"):
            return None if None in degrees else combined(*degrees, Fraction(1 if term.op == "multiply" else -1))
        if term.op in _OF_ONE_DEGREE:
            return self._one(degrees)
        if term.op == "where":
            self._same(degrees[0], {})
            return self._one(degrees[1:])
        if term.op in _COMPARED:
            self._one(degrees)
            return {}
        if term.op in LOGARITHMS and read:
            self.logarithms[term] = degrees[0] or {}
            return {}
        if term.op == "sqrt":
            return degrees[0] and combined({}, degrees[0], Fraction(1, 2))
        if term.op == "reduce" and term.monoid in ("sum", "max", "min"):
            self.summed.add(term.axis)
            return degrees[0]
        for degree in degrees:
            self._same(degree, {})
        return {}

    def _one(self, degrees: list[Vector | None]) -> Vector | None:
        """The degree that all of them have."""
        known = [degree for degree in degrees if degree is not None]
        for other in known[1:]:
            self._same(known[0], other)
        return known[0] if known else None

    def _same(self, one: Vector | None, other: Vector) -> None:
        if one is not None:
            self.equations.append(combined(one, other, Fraction(-1)))

    def _still(self, *terms: Expr) -> None:
        """What these terms are made of is not multiplied."""
        self.equations += [{part.name.removesuffix(PRIME): Fraction(1)} for part in subterms(*terms) if part.op == "symbol"]


def _by_part(equation: Vector) -> list[Vector]:
    """The earlier and the later of two parts are multiplied independently of each other."""
    later = {name: factor for name, factor in equation.items() if name.endswith(PRIME)}
    return [{name: factor for name, factor in equation.items() if name not in later},
            {name.removesuffix(PRIME): factor for name, factor in later.items()}]


def zero_later(form: FusedForm) -> set[str]:
    """The components that are 0 in every part but the first: only the first element of all adds to them."""
    found = {c.name for c in form.state if c.joined is not None and _is_zero(c.lift, form.axis)}
    while True:
        names = {*found, *(name + PRIME for name in found)}
        kept = {name for name in found if _is_zero(form.joins[name], form.axis, names)}
        if kept == found:
            return found
        found = kept


def _is_zero(term: Expr, axis: str, zeros: Collection[str] = ()) -> bool:
    """Whether a term is 0 at every position but the first, with symbols that are 0."""
    def zero(part: Expr) -> bool:
        return _is_zero(part, axis, zeros)

    if term.op in ("add", "subtract", "maximum", "minimum"):
        return all(map(zero, term.args))
    if term.op == "multiply":
        return any(map(zero, term.args))
    if term.op == "where":
        holds = after_the_first(term.args[0], axis)
        return all(map(zero, term.args[1:])) if holds is None else zero(term.args[1 if holds else 2])
    return term.op == "const" and term.value == 0 or term.op == "symbol" and term.name in zeros


def _whole(weights: Vector) -> dict[str, int] | None:
    """Weights without fractions, none of them negative; None where signs differ."""
    size = math.lcm(*(weight.denominator for weight in weights.values()))
    numbers = {name: int(weight * size) for name, weight in weights.items()}
    numbers = numbers if max(numbers.values()) > 0 else {name: -weight for name, weight in numbers.items()}
    common = math.gcd(*numbers.values())
    return {name: weight // common for name, weight in numbers.items()} if min(numbers.values()) > 0 else None


def _with(form: FusedForm, weights: dict[str, int], degrees: Degrees) -> FusedForm:
    """The form with one more scaling, and the exponent that its outputs need."""
    own = [component for component in form.state if component.name in weights]
    weights = {component.name: weights[component.name] for component in own}
    axes = tuple(axis for axis in own[0].axes if all(axis in c.axes for c in own) and axis not in degrees.summed)
    spread = tuple(dict.fromkeys(axis for c in own for axis in c.axes if axis not in axes))
    moved = {term: sum(factor * weights.get(name, 0) for name, factor in degree.items()) for term, degree in degrees.logarithms.items()}
    moved = {term: factor for term, factor in moved.items() if factor}
    told = Fact("scale", f"{', '.join(weights)} may be multiplied by a power of two together: no output sees it")
    if not moved:
        return replace(form, scalings=(*form.scalings, Scaling(tuple(weights.items()), spread)), facts=(*form.facts, told))
    counted = symbol(next(free_names(form)), axes)
    exponent = Component(counted.name, "sum", const(0), None, None, axes, counted)
    outputs = {term: term + LOGARITHMS[term.op] * float(factor) * counted for term, factor in moved.items()}
    return replace(form, state=(*form.state, exponent), outputs=tuple(substitute(output, outputs) for output in form.outputs),
                   scalings=(*form.scalings, Scaling(tuple(weights.items()), spread, counted.name)), facts=(*form.facts, told))


def free_names(form: FusedForm) -> Iterator[str]:
    """Names of exponents, which nothing else has."""
    terms = subterms(*form.outputs, *(c.lift for c in form.state), *(row.value for row in (*form.results, *form.pivots)))
    taken = {*form.symbol_axes, *(term.name for term in terms if term.op in ("input", "param")), *(axis for term in terms for axis in term.axes)}
    while True:
        taken.add(name := unused("e", taken))
        yield name
