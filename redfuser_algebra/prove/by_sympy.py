"""The checker that simplifies: SymPy is asked whether two sides of an obligation differ by 0, for a generic element.

In: a form and its obligations.  Out: evidence.  Sums are checked element by element, which is enough because their
rebase rules are linear; the order of pivots, where a choice depends on it, is taken apart into cases.  Over the reals.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.names import symbol_names
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.evidence import CANNOT, PROVED, Evidence
from redfuser_algebra.prove.obligations import Obligation
from redfuser_algebra.prove.simplifying.form_terms import FormTerms, symbol_name
from redfuser_algebra.prove.simplifying.signs import Signs
from redfuser_algebra.prove.simplifying.symbolic import Branch, Places, Untranslated, cases, vanishes
from redfuser_algebra.prove.trials.parts import pivot_names

if TYPE_CHECKING:
    import sympy

CHECKER = "SymPy"
MOST_CASES = 64
_LATTICE = {"sum": "Add", "prod": "Mul", "max": "Max", "min": "Min", "fmax": "Max", "fmin": "Min", "any": "Or", "all": "And"}


def simplified(operator: Operator, form: FusedForm, obligations: Sequence[Obligation],
               told: Callable[[int, int], None] = lambda done, whole: None) -> Iterator[tuple[str, Evidence]]:
    """The id of each obligation that SymPy can be asked about, with the evidence, as it comes."""
    asked = [o for o in obligations if o.kind in _QUESTIONS and o.id not in ("safety:finite", "monoid:compose")]
    prover = Prover(operator, form, obligations)
    for number, obligation in enumerate(asked, 1):
        yield obligation.id, prover.evidence(obligation)
        told(number, len(asked))


class Prover(FormTerms):
    """The questions that SymPy is asked about a form."""

    def evidence(self, obligation: Obligation) -> Evidence:
        """What SymPy says."""
        try:
            self.check_supported(obligation)
            method = _QUESTIONS[obligation.kind](self, obligation)
        except (Untranslated, NotImplementedError, RecursionError, KeyError) as reason:
            return Evidence(CHECKER, CANNOT, {"reason": f"not translated: {reason}"})
        except Branch as condition:
            return Evidence(CHECKER, CANNOT, {"reason": f"it depends on {condition}"})
        if method:
            return Evidence(CHECKER, PROVED, {"method": method, "over": "the reals, where no divisor is 0"})
        return Evidence(CHECKER, CANNOT, {"reason": "not simplified to 0"})

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

        moves = self._zero(difference, component, "for one element: lift(x; p') − T lift(x; p) = 0")
        return moves and self.endomorphism(o) and f"{moves}, and T(a ⊕ b) = T(a) ⊕ T(b)"

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
            elements = elements_of(zero, self.form.axis)
            if not zero.free_symbols - elements <= rest.free_symbols:
                continue
            lead = self.sp.Add(*(term for term in self.sp.Add.make_args(zero) if elements & term.free_symbols))
            lead = self.sp.Add.make_args(lead)[0]
            factor = self.sp.Add(*(term / lead for term in self.sp.Add.make_args(rest) if not elements & (term / lead).free_symbols))
            if not elements_of(factor, self.form.axis):
                rest = self.sp.expand(rest - factor * zero)
        return rest == 0

    def endomorphism(self, o: Obligation) -> str:
        """T is linear (sums), multiplicative (products) or nondecreasing (max and min) in what the state holds, and keeps 0_⊕."""
        component = self.form.component(o.about[0])
        if not all(value == self.identity(component.monoid) for value in cases(
                lambda choices: self._of_nothing(component, choices), MOST_CASES)):
            return ""
        if component.monoid in ("sum", "prod"):
            return self._zero(lambda choices: self._additive(component, choices), component, "T(a ⊕ b) − T(a) ⊕ T(b) = 0")
        others = {*symbol_names(component.rebase)} & {c.name for c in self.form.state} - {component.name, *pivot_names(component)}
        if component.monoid not in ("max", "min", "topk") or others:
            raise Untranslated(f"{component.monoid} that reads {', '.join(sorted(others))}" if others else component.monoid)
        slopes = list(cases(lambda choices: self._slope(component, choices), MOST_CASES))
        return "T is nondecreasing: its derivative is ≥ 0" if all(slope.is_nonnegative for slope in slopes) else ""

    def _of_nothing(self, component: Component, choices: Mapping[object, bool]) -> sympy.Expr:
        """T of the identity."""
        nothing = self.identity(component.monoid)
        if _keeps_identity(component):
            return nothing
        value = self.moved(component, {}, lambda name, axes, at: self.identity(self._alike(component, name).monoid), choices)
        others = [term for term in component.rebase.args[1:] if term.op == "symbol"] if component.takes_over else []
        return value.subs({self.pivot(term.name, term.axes, {}, 0): self.identity(self._alike(component, term.name).monoid) for term in others})

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
            translation = self.translation(lambda term, at: self.pivot(symbol_name(term), term.axes, at, 0), {}, element)
            above = translation.of(sides[0])
            values.append((above, below if below is not None else translation.of(sides[1].args[0])))
        mean = self.sp.Add(*(a for a, _ in values)) / self.sp.Add(*(b for _, b in values))
        return f"for two elements, {pivot.name} written out" if vanishes(self.sp.Add(*(a - mean * b for a, b in values))) else ""

    def claim(self, o: Obligation) -> str:
        """A fact: an order that max and min have by definition, or a sign that follows from how a term is built."""
        return Signs(self).claim(o)


def _keeps_identity(component: Component) -> bool:
    """Whether a rebase leaves the identity alone by its first words: s if s is the identity, else …"""
    rebase, own = component.rebase, component.symbol
    return rebase.op == "where" and rebase.args[1] is own and rebase.args[0].op == "equal" and rebase.args[0].args[0] is own \
        and rebase.args[0].args[1].op == "const" and rebase.args[0].args[1].value == MONOIDS[component.monoid].identity


def _unmoved(choices: Mapping[object, bool], component: Component) -> Mapping[object, bool]:
    return {**choices, **{(f"{name} moves", "0"): True for name in pivot_names(component)}}


def elements_of(value: sympy.Expr, axis: str) -> set:
    """The unknowns of a value that vary along the axis."""
    return {s for s in value.free_symbols if f"{axis}0" in s.name}


_QUESTIONS: dict[str, Callable[[Prover, Obligation], str]] = {
    "monoid": Prover.monoid, "rebase": Prover.rebase, "endomorphism": Prover.endomorphism, "cocycle": Prover.cocycle,
    "dropped": Prover.dropped, "order": Prover.claim, "safety": Prover.claim,
}
