"""The checker that simplifies: SymPy is asked whether two sides of an obligation differ by 0, for a generic element.

In: a form and its obligations.  Out: evidence.  Sums are checked element by element, which is enough because their
rebase rules are linear; the order of pivots, where a choice depends on it, is taken apart into cases.  Over the reals.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.evidence import CANNOT, PROVED, Evidence
from redfuser_algebra.prove.obligations import Obligation
from redfuser_algebra.prove.signs import Signs
from redfuser_algebra.prove.symbolic import (
    SIGNS, WRITTEN_OUT, Places, Translation, Untranslated, cases, sympy_module, vanishes)
from redfuser_algebra.prove.trials.parts import PRIME, pivot_names, symbol_names

if TYPE_CHECKING:
    import sympy

CHECKER = "SymPy"
MOST_CASES = 64
_LATTICE = {"sum": "Add", "prod": "Mul", "max": "Max", "min": "Min", "fmax": "Max", "fmin": "Min", "any": "Or", "all": "And"}


def simplified(operator: Operator, form: FusedForm, obligations: Sequence[Obligation],
               told: Callable[[int, int], None] = lambda done, whole: None) -> dict[str, Evidence]:
    """Evidence for each obligation that SymPy can be asked about, by its id."""
    asked = [o for o in obligations if o.kind in _QUESTIONS and o.id != "safety:finite"]
    prover = Prover(operator, form, obligations)
    found = {}
    for number, obligation in enumerate(asked, 1):
        found[obligation.id] = prover.evidence(obligation)
        told(number, len(asked))
    return found


class Prover:
    """One form's terms in SymPy."""

    def __init__(self, operator: Operator, form: FusedForm, obligations: Sequence[Obligation]) -> None:
        self.form, self.sp = form, sympy_module()
        self.zeros = [o.terms[0] for o in obligations if o.kind == "dropped"]
        self.signs = {(c.args[0].op, c.args[0].attrs[0]): SIGNS[c.op] for c in (*operator.assume, *form.assumptions)
                      if c.op in SIGNS and c.args[0].op in ("input", "param")}

    def evidence(self, obligation: Obligation) -> Evidence:
        """What SymPy says."""
        try:
            method = _QUESTIONS[obligation.kind](self, obligation)
        except (Untranslated, NotImplementedError, RecursionError) as reason:
            return Evidence(CHECKER, CANNOT, {"reason": f"not translated: {reason}"})
        if method:
            return Evidence(CHECKER, PROVED, {"method": method, "over": "the reals, where no divisor is 0"})
        return Evidence(CHECKER, CANNOT, {"reason": "not simplified to 0"})

    # what symbols stand for

    def pivot(self, name: str, axes: Iterable[str], places: Places, step: int) -> sympy.Symbol:
        """A pivot's value after `step` moves."""
        at = ",".join(str(places.get(axis, axis)) for axis in axes)
        return self.sp.Symbol(f"{name}{PRIME * step}[{at}]", real=True, **({"positive": True} if name in self.positive else {}))

    @cached_property
    def positive(self) -> set[str]:
        """The components that cannot be negative; where they are pivots, they are taken as positive."""
        signs = Signs(self)
        return {c.name for c in self.form.state if c.fixed and not MONOIDS[c.monoid].indexed and signs.nonnegative(c)}

    def state(self, name: str, axes: Iterable[str], places: Places, label: str = "") -> sympy.Symbol:
        """What a state holds of a component, as an unknown."""
        return self.sp.Symbol(f"state {name}{label}[{','.join(str(places.get(axis, axis)) for axis in axes)}]", real=True)

    def translation(self, lookup: Callable[[Expr, Places], sympy.Expr], choices: Mapping[object, bool],
                    element: int = 0) -> Translation:
        """A translation in which `lookup` says what symbols mean."""
        return Translation(self.form.axis, lookup, self.signs, choices, self.links, element)

    def links(self, a: Expr, b: Expr) -> list[tuple[str, str]] | None:
        """The steps of the chain a ≤ p ≤ p' that lie between two sides of an equality; None if it is no such equality."""
        if b.op != "symbol":
            a, b = b, a
        if b.op != "symbol":
            return None
        stem = b.name.rstrip(PRIME)
        if a.op == "symbol" and a.name.rstrip(PRIME) == stem and a.axes == b.axes:
            first, last = sorted(len(x.name) for x in (a, b))
            return [(f"{stem} moves", str(step)) for step in range(first - len(stem), last - len(stem))]
        if not symbol_names(a) and self.form.axis in a.axes:
            steps = range(len(b.name) - len(stem))
            return [(f"{a!r} meets {stem}", "")] + [(f"{stem} moves", str(step)) for step in steps]
        return None

    def lifted(self, component: Component, places: Places, step: int, choices: Mapping[object, bool]) -> sympy.Expr:
        """What one element gives to a component about its pivots after `step` moves; 0 or 1 where it takes no part."""
        def lookup(term: Expr, at: Places) -> sympy.Expr:
            return self.pivot(_name(term), term.axes, at, step)

        translation = self.translation(lookup, choices)
        translation.links = lambda a, b: self.links(a, _primed(b, step))
        if component.mask is not None and not translation.holds(component.mask, places):
            return self.identity(component.monoid)
        return translation.of(component.lift, places)

    def moved(self, component: Component, places: Places, state: Callable[[str, tuple, Places], sympy.Expr],
              choices: Mapping[object, bool], step: int = 0, onto: int = 1) -> sympy.Expr:
        """A component's rebase from its pivots after `step` moves to those after `onto`."""
        pivots = pivot_names(component)

        def lookup(term: Expr, at: Places) -> sympy.Expr:
            name = _name(term)
            if name.removesuffix(PRIME) in pivots:
                return self.pivot(name.removesuffix(PRIME), term.axes, at, onto if name.endswith(PRIME) else step)
            return state(name, term.axes, at)

        translation = self.translation(lookup, choices)
        translation.links = lambda a, b: self.links(*(_moved(x, step, onto) for x in (a, b)))
        return translation.of(component.rebase, places)

    def identity(self, monoid: str) -> sympy.Basic:
        """The identity of a monoid, as an exact number or a truth value."""
        value = MONOIDS[monoid].identity
        if isinstance(value, bool) or abs(value) < float("inf"):
            return self.sp.sympify(value if isinstance(value, bool) else int(value))
        return self.sp.oo if value > 0 else -self.sp.oo

    # questions: a method that proves it, or ""

    def monoid(self, o: Obligation) -> str:
        """Laws of a monoid among SymPy's own operations."""
        if o.about[0] not in _LATTICE:
            raise Untranslated(o.about[0])
        join = getattr(self.sp, _LATTICE[o.about[0]])
        a, b, c = self.sp.symbols("a b c", **({} if o.about[0] in ("any", "all") else {"real": True}))
        identity = self.identity(o.about[0])
        laws = join(join(a, b), c) == join(a, join(b, c)), join(a, b) == join(b, a), join(a, identity) == a
        return "the same normal form on both sides" if all(laws) else ""

    def rebase(self, o: Obligation) -> str:
        """lift(x; p') − T lift(x; p) = 0, or a multiple of a sum that is 0."""
        component = self.form.component(o.about[0])

        def difference(choices: Mapping[object, bool]) -> sympy.Expr:
            def state(name: str, axes: tuple, at: Places) -> sympy.Expr:
                other = self._alike(component, name)
                return self.lifted(other, dict(zip(other.axes, (at.get(axis, axis) for axis in axes), strict=True)), 0, choices)

            new = self.lifted(component, {}, 1, choices)
            return self.settled(new - self.moved(component, {}, state, choices), component, choices)

        return self._zero(difference, component, "for one element: lift(x; p') − T lift(x; p) = 0")

    def _alike(self, component: Component, name: str) -> Component:
        """A component that a rebase may read element by element."""
        other = {c.name: c for c in self.form.state}.get(name)
        kinds = {component.monoid, MONOIDS[component.monoid].dual} if component.monoid != "prod" else {"prod", "sum"}
        if other is None or other.monoid not in kinds:
            raise Untranslated(f"a state {name} of another kind")
        return other

    def _zero(self, difference: Callable[[Mapping[object, bool]], sympy.Expr], component: Component, method: str) -> str:
        found = list(cases(difference, MOST_CASES))
        if not all(vanishes(value) or self._multiple_of_zeros(value, component) for value in found):
            return ""
        return method + (f", in {len(found)} cases" if len(found) > 1 else "")

    def _multiple_of_zeros(self, value: sympy.Expr, component: Component) -> bool:
        """Whether a difference is a combination of summands whose sums are 0, with factors free of the element."""
        rest = self.sp.expand(value)
        for zero in self.zero_summands(component.mask):
            elements = _elements(zero, self.form.axis)
            if not zero.free_symbols - elements <= rest.free_symbols:
                continue
            lead = self.sp.Add(*(term for term in self.sp.Add.make_args(zero) if elements & term.free_symbols))
            lead = self.sp.Add.make_args(lead)[0]
            factor = self.sp.Add(*(term / lead for term in self.sp.Add.make_args(rest) if not elements & (term / lead).free_symbols))
            if not _elements(factor, self.form.axis):
                rest = self.sp.expand(rest - factor * zero)
        return rest == 0

    def zero_summands(self, mask: Expr | None) -> Iterator[sympy.Expr]:
        """Summands whose sums are 0, at any place of their axes and at those that contractions write out."""
        for body in (total.body for total in self.zeros if total.mask is mask):
            axes = [axis for axis in body.axes if axis != self.form.axis]
            for places in product(*((axis, *self.copies(axis), *range(WRITTEN_OUT)) for axis in axes[:2])):
                translation = self.translation(lambda t, at: self.pivot(_name(t), t.axes, at, 0), {})
                yield self.sp.expand(translation.of(body, dict(zip(axes, places, strict=False))))

    def copies(self, axis: str) -> list[str]:
        """The copies of an axis that the form contracts over."""
        return [copy for copy, own in self.form.axis_copies.items() if own == axis]

    def settled(self, value: sympy.Expr, component: Component, choices: Mapping[object, bool]) -> sympy.Expr:
        """A difference in which pivots that are equal in this case are one symbol."""
        for name in pivot_names(component):
            for step in (1, 0):
                if choices.get((f"{name} moves", str(step))):
                    old, new = (f"{name}{PRIME * k}[" for k in (step, step + 1))
                    value = value.subs({s: self.sp.Symbol(s.name.replace(new, old), **s.assumptions0)
                                        for s in value.free_symbols if s.name.startswith(new)})
        return value

    def endomorphism(self, o: Obligation) -> str:
        """T is linear (sums), multiplicative (products) or nondecreasing (max and min) in what the state holds."""
        component = self.form.component(o.about[0])
        if component.monoid in ("sum", "prod"):
            return self._zero(lambda choices: self._additive(component, choices), component, "T(a ⊕ b) − T(a) ⊕ T(b) = 0")
        if component.monoid not in ("max", "min", "topk"):
            raise Untranslated(component.monoid)
        slopes = list(cases(lambda choices: self._slope(component, choices), MOST_CASES))
        return "T is nondecreasing: its derivative is ≥ 0" if all(slope.is_nonnegative for slope in slopes) else ""

    def _additive(self, component: Component, choices: Mapping[object, bool]) -> sympy.Expr:
        join = (lambda a, b: a + b) if component.monoid == "sum" else (lambda a, b: a * b)

        def both(name: str, axes: tuple, at: Places) -> sympy.Expr:
            a, b = (self.state(name, axes, at, label) for label in "ab")
            return a * b if self.form.component(self._alike(component, name).name).monoid == "prod" else a + b

        whole = self.moved(component, {}, both, choices)
        parts = [self.moved(component, {}, lambda n, x, at, label=label: self.state(n, x, at, label), choices) for label in "ab"]
        return whole - join(*parts)

    def _slope(self, component: Component, choices: Mapping[object, bool]) -> sympy.Expr:
        own = self.state(component.name, component.axes, {})
        return self.sp.diff(self.moved(component, {}, self.state, choices), own)

    def cocycle(self, o: Obligation) -> str:
        """T(p'→p'')∘T(p→p') − T(p→p'') = 0 and T(p→p) − id = 0."""
        component = self.form.component(o.about[0])
        own = self.state(component.name, component.axes, {})
        still = self._zero(lambda choices: self.moved(component, {}, self.state, _unmoved(choices, component), 0, 0) - own,
                           component, "T(p→p) − id = 0")
        if o.centred or not still:
            return still
        return still and self._zero(lambda choices: self._detour(component, choices), component,
                                    "T(p'→p'')∘T(p→p') − T(p→p'') = 0, T(p→p) − id = 0")

    def _detour(self, component: Component, choices: Mapping[object, bool]) -> sympy.Expr:
        def first(name: str, axes: tuple, at: Places) -> sympy.Expr:
            other = self.form.component(name)
            if other.fixed:
                return self.state(name, axes, at)
            return self.moved(other, dict(zip(other.axes, (at.get(axis, axis) for axis in axes), strict=True)), self.state, choices)

        value = self.moved(component, {}, first, choices, 1, 2) - self.moved(component, {}, self.state, choices, 0, 2)
        return self.settled(value, component, choices)

    def dropped(self, o: Obligation) -> str:
        """Σ (a − p b) = 0 with p = Σ a / Σ b, for two elements."""
        pivot = {p.name: p for p in self.form.pivots}[o.about[0]]
        sides = o.terms[0].body.args
        below = self.sp.Integer(1) if sides[1].op == "symbol" else None
        values = []
        for element in range(2):
            translation = self.translation(lambda term, at: self.pivot(_name(term), term.axes, at, 0), {}, element)
            above = translation.of(sides[0])
            values.append((above, below if below is not None else translation.of(sides[1].args[0])))
        mean = self.sp.Add(*(a for a, _ in values)) / self.sp.Add(*(b for _, b in values))
        return f"for two elements, {pivot.name} written out" if vanishes(self.sp.Add(*(a - mean * b for a, b in values))) else ""

    def claim(self, o: Obligation) -> str:
        """A fact: an order that max and min have by definition, or a sign that follows from how a term is built."""
        return Signs(self).claim(o)


def _name(term: Expr) -> str:
    return "N" if term.op == "size" else term.name


def _primed(term: Expr, step: int) -> Expr:
    return Expr("symbol", (), (term.name + PRIME * step, term.axes)) if term.op == "symbol" else term


def _moved(term: Expr, step: int, onto: int) -> Expr:
    if term.op != "symbol":
        return term
    stem = term.name.removesuffix(PRIME)
    return Expr("symbol", (), (stem + PRIME * (onto if term.name.endswith(PRIME) else step), term.axes))


def _unmoved(choices: Mapping[object, bool], component: Component) -> Mapping[object, bool]:
    return {**choices, **{(f"{name} moves", "0"): True for name in pivot_names(component)}}


def _elements(value: sympy.Expr, axis: str) -> set:
    """The unknowns of a value that vary along the axis."""
    return {s for s in value.free_symbols if f"{axis}0" in s.name}


_QUESTIONS: dict[str, Callable[[Prover, Obligation], str]] = {
    "monoid": Prover.monoid, "rebase": Prover.rebase, "endomorphism": Prover.endomorphism, "cocycle": Prover.cocycle,
    "dropped": Prover.dropped, "order": Prover.claim, "safety": Prover.claim,
}
