"""Facts that SymPy can derive: orders that hold by the meaning of max and min, signs that follow from the terms.

In: a Prover and an obligation that states a fact.  Out: how it is proved, or "".
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from redfuser_algebra.discover.form import Component
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.prove.simplifying.symbolic import Places, Translation, Untranslated, cases

if TYPE_CHECKING:
    import sympy

    from redfuser_algebra.prove.by_sympy import Prover
    from redfuser_algebra.prove.obligations import Obligation

_EXTREMES = {"max": "Max", "fmax": "Max", "min": "Min", "fmin": "Min"}
_KEPT = ("sum", "prod", "max", "min", "fmax", "fmin", "topk")
"""Monoids under which numbers that are not negative stay so."""


class Signs:
    """What is known about components and pivots from what they reduce."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.sp, self.form = prover, prover.sp, prover.form
        self.rows = self.form.definitions
        self.components = {component.name: component for component in self.form.state}

    def claim(self, o: Obligation) -> str:
        """How a stated fact is proved."""
        left, right = o.terms
        if right.op == "const" and right.value == 0 and left.op in ("shift", "subtract") and o.relation == "≤":
            left, right = (side.args[0] if side.op == "anchor" else side for side in left.args)
        if o.relation in ("≤", "≥") and right.op != "const":
            larger = self.sp.Max if o.relation == "≤" else self.sp.Min
            of_an_element = any(self.form.axis in side.axes for side in (left, right))
            a, b = (self.about(side, 2 if of_an_element else 1) for side in (left, right))
            return "for two elements, by the meaning of max and min" if larger(a, b) == b else ""
        if o.relation in (">", "≥"):
            values = list(cases(lambda choices: self.signed(left, choices), 16))
            known = [value.is_positive if o.relation == ">" else value.is_nonnegative for value in values]
            return "by the signs of its parts" if all(known) else ""
        raise Untranslated(o.relation)

    def about(self, term: Expr, old: int) -> sympy.Expr:
        """A term of the first element or of pivots; old pivots are made of `old` elements, new ones of two."""
        def lookup(part: Expr, places: Places) -> sympy.Expr:
            name, elements = part.name.removesuffix(PRIME), 2 if part.name.endswith(PRIME) else old
            component = self.components.get(name)
            if component is None and name in self.rows:
                return self.translation(lookup).of(self.rows[name], places)
            if component is None or component.monoid not in _EXTREMES or component.mask is not None:
                return self.prover.pivot(part.name, part.axes, places, 0)
            join = getattr(self.sp, _EXTREMES[component.monoid])
            return join(*(self.translation(lookup, element).of(component.lift, places) for element in range(elements)))

        return self.translation(lookup).of(term)

    def translation(self, lookup, element: int = 0, choices=None) -> Translation:
        """A translation in which `lookup` says what symbols mean."""
        return Translation(self.form.axis, lookup, self.prover.signs, choices or {}, lambda a, b: [f"{a!r} is {b!r}"], element)

    def signed(self, term: Expr, choices) -> sympy.Expr:
        """A term in which components are unknowns with the sign that their elements give them."""
        def lookup(part: Expr, places: Places) -> sympy.Expr:
            if part.op == "size":
                return self.sp.Symbol("N", integer=True, positive=True)
            if part.name in self.components:
                return self.sp.Symbol(part.name, real=True, **self.assumption(self.components[part.name]))
            return self.translation(lookup, choices=choices).of(self.rows[part.name], places)

        return self.translation(lookup, choices=choices).of(term)

    def assumption(self, component: Component) -> dict[str, bool]:
        """What SymPy may assume of a component."""
        if component.monoid not in _KEPT:
            return {}
        signs = [(value.is_positive, value.is_nonnegative) for value in self.elements(component)]
        if all(positive for positive, _ in signs) and component.mask is None:
            return {"positive": True}
        return {"nonnegative": True} if all(nonnegative for _, nonnegative in signs) else {}

    def nonnegative(self, component: Component) -> bool:
        """Whether a component cannot be negative."""
        return bool(self.assumption(component))

    def elements(self, component: Component) -> list[sympy.Expr]:
        """What an element gives to a component, for each way its conditions can turn out."""
        def lookup(part: Expr, places: Places) -> sympy.Expr:
            return self.sp.Symbol(f"{part!r}", real=True)

        try:
            return list(cases(lambda choices: self.translation(lookup, choices=choices).of(component.lift), 16))
        except Untranslated:
            return [self.sp.Symbol("unknown", real=True)]
