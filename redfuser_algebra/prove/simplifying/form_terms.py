"""The terms of one form in SymPy: pivots before and after a move, states, lifts and rebases.

In: an operator and its form.  Out: SymPy expressions for a generic element; a Branch where a condition is open.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME, symbol_names
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.obligations import Obligation
from redfuser_algebra.prove.simplifying.signs import Signs
from redfuser_algebra.prove.simplifying.symbolic import ASSUMPTIONS, WRITTEN_OUT, Places, Translation, Untranslated, sympy_module
from redfuser_algebra.prove.trials.parts import pivot_names

if TYPE_CHECKING:
    import sympy


class FormTerms:
    """One form's terms in SymPy."""

    def __init__(self, operator: Operator, form: FusedForm, obligations: Sequence[Obligation]) -> None:
        self.form, self.sp = form, sympy_module()
        self.zeros = [o.terms[0] for o in obligations if o.kind == "dropped"]
        self.signs = {(c.args[0].op, c.args[0].attrs[0]): ASSUMPTIONS[c.op] for c in (*operator.assume, *form.assumptions)
                      if c.op in ASSUMPTIONS and c.args[0].op in ("input", "param")}

    def check_supported(self, obligation: Obligation) -> None:
        """Raise Untranslated if a component is about something that the form does not hold before it."""
        held = [component.name for component in self.form.state]
        if not obligation.about or obligation.about[0] not in held or obligation.kind == "monoid":
            return
        component = self.form.component(obligation.about[0])
        before = set(held[:held.index(component.name)])
        states = [name for name in symbol_names(component.rebase) if not name.endswith(PRIME)]
        for names, known in ((pivot_names(component), before), (states, before | set(held))):
            for name in names:
                if not self._follows(name, known, set()):
                    raise Untranslated(f"{name}, which the form does not hold before {component.name}")

    def _follows(self, name: str, known: set[str], seen: set[str]) -> bool:
        """Whether the value of a symbol follows from known components."""
        if name.removesuffix(WON) in known:
            return True
        values = self.form.definitions
        if name in seen or name not in values:
            return False
        return all(self._follows(part, known, seen | {name}) for part in symbol_names(values[name]))

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
            return self.pivot(symbol_name(term), term.axes, at, step)

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
            name = symbol_name(term)
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

    def zero_summands(self, mask: Expr | None) -> Iterator[sympy.Expr]:
        """Summands whose sums are 0, at any place of their axes and at those that contractions write out."""
        for body in (total.body for total in self.zeros if total.mask is mask):
            axes = [axis for axis in body.axes if axis != self.form.axis]
            for places in product(*((axis, *self.copies(axis), *range(WRITTEN_OUT)) for axis in axes[:2])):
                translation = self.translation(lambda t, at: self.pivot(symbol_name(t), t.axes, at, 0), {})
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


def symbol_name(term: Expr) -> str:
    """What SymPy calls a leaf; N is the length."""
    return "N" if term.op == "size" else term.name


def _primed(term: Expr, step: int) -> Expr:
    return Expr("symbol", (), (term.name + PRIME * step, term.axes)) if term.op == "symbol" else term


def _moved(term: Expr, step: int, onto: int) -> Expr:
    if term.op != "symbol":
        return term
    stem = term.name.removesuffix(PRIME)
    return Expr("symbol", (), (stem + PRIME * (onto if term.name.endswith(PRIME) else step), term.axes))
