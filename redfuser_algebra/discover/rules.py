"""What a fused form does, as equations: for one more element, for two states, and as the matrix that moves a state.

In: a fused form (anything with its fields).  Out: `Equation`s over symbols: `m'` is the new value of m, `m_a` and
`m_b` are those of two states a and b.  They are for reading; `run` executes the form itself.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS, STEPS, WON
from redfuser_algebra.discover.simplify import settled
from redfuser_algebra.language.composition import with_leaves
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, primed
from redfuser_algebra.language.tidy import repeated_elements, tidied

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import Component, FusedForm

DELTA = "δ"
ELEMENT, PARTS = "", ("_a", "_b")
"""What follows the name of a state: nothing for the running one, _a and _b for two that are merged."""


@dataclass(frozen=True)
class Equation:
    """`left` = `right`; `mask` says which elements take part, `operations` what the form computes there, guards included."""

    left: Expr
    right: Expr
    mask: Expr | None = None
    operations: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Matrix:
    """How components move together when a pivot moves: new = `rows` · old."""

    components: tuple[str, ...]
    rows: tuple[tuple[Expr, ...], ...]


def named_elements(form: FusedForm) -> dict[Expr, str]:
    """What the lifts compute of an element alone, more than once: tidied terms and the names for them."""
    parts = [tidied(part) for component in form.state for part in component.elements]
    taken = {component.name for component in form.state} | {pivot.name for pivot in form.pivots} | {form.axis}
    return repeated_elements(parts, form.axis, taken | {axis for part in parts for axis in part.axes})


def differences(form: FusedForm) -> dict[Expr, Expr]:
    """Names for how far a pivot moved, p − p', where some component needs it more than once."""
    found: dict[Expr, None] = {}
    for component in form.state:
        uses = Counter(term for root in subterms(component.rebase) for term in root.args if term.op == "shift")
        found.update((term, None) for term, number in uses.items() if number > 1 and _is_move(term))
    names = [DELTA] if len(found) == 1 else [f"{DELTA}{number}" for number in range(1, len(found) + 1)]
    return {move: symbol(name, move.axes) for move, name in zip(found, names, strict=True)}


def update(form: FusedForm) -> tuple[Equation, ...]:
    """The state after one more element."""

    lifts = {primed(c.symbol): c.lift for c in form.state}

    def joined(component: Component) -> Expr:
        if component.step is not None:
            return component.step
        if component.joined is not None:
            return settled(substitute(component.joined, lifts), lambda part: None)
        values = (component.rebase, _suffixed(component.lift, PRIME))
        return _together(component, values, (component.symbol, Expr("index", (), (form.axis,))), form.axis)

    return _Rule(form, joined, (ELEMENT,)).equations()


def merge(form: FusedForm) -> tuple[Equation, ...]:
    """The state of two states a and b: each is moved to the pivots of both, then they are combined; nothing where they do not merge."""
    if not form.merges:
        return ()
    sides = {symbol(c.name + mark, c.axes): symbol(c.name + part, c.axes)
             for c in form.state for mark, part in zip((ELEMENT, PRIME), PARTS, strict=True)}

    def joined(component: Component) -> Expr:
        if component.joined is not None:
            return substitute(component.joined, sides)
        values, positions = ([_suffixed(expr, part) for part in PARTS] for expr in (component.rebase, component.symbol))
        return _together(component, values, positions, form.axis)

    return tuple(replace(equation, mask=None) for equation in _Rule(form, joined, PARTS).equations())


def results(form: FusedForm) -> tuple[Equation, ...]:
    """The results that are not components as they are."""
    derived = [result for result in form.results if result.value.op != "symbol" or result.value.name != result.name]
    return tuple(_equation(form, symbol(result.name), result.value) for result in derived)


def pivots(form: FusedForm) -> tuple[Equation, ...]:
    """The pivots that are not results as they are."""
    return tuple(_equation(form, symbol(pivot.name), pivot.value) for pivot in form.pivots)


def outputs(form: FusedForm) -> tuple[Expr, ...]:
    """The outputs, over results and components; those that keep the axis are maps."""
    return tuple(tidied(_with_winners(form, output)) for output in form.outputs)


def matrices(form: FusedForm) -> tuple[Matrix, ...]:
    """T(p→p') for every group of sums that move together, where each row is linear in the components."""
    sums = {component.name for component in form.state if component.monoid == "sum"}
    groups: list[set[str]] = []
    for component in form.state:
        used = {term.name for term in subterms(component.rebase) if term.op == "symbol"} & sums
        own = used.union({component.name}, *(group for group in groups if group & used))
        groups = [group for group in groups if not group & own] + [own]
    together = [[component for component in form.state if component.name in group] for group in groups if len(group) > 1]
    found = (_matrix(form, components) for components in together)
    return tuple(matrix for matrix in found if matrix is not None)


def _matrix(form: FusedForm, components: list[Component]) -> Matrix | None:
    """None where some component does not move linearly."""
    rows = []
    for component in components:
        row = {other.name: const(0) for other in components}
        for factor, name in _linear(tidied(substitute(component.rebase, differences(form))), set(row)):
            if name is None:
                return None
            row[name] = factor if row[name] is const(0) else row[name] + factor
        rows.append(tuple(map(tidied, row.values())))
    return Matrix(tuple(component.name for component in components), tuple(rows))


def _linear(term: Expr, names: set[str]) -> Iterator[tuple[Expr, str | None]]:
    """The factor of each component in a sum of products; the name is None where there is no such reading."""
    if term.op in ("add", "subtract"):
        yield from _linear(term.args[0], names)
        for factor, name in _linear(term.args[1], names):
            yield (factor if term.op == "add" else -factor), name
    elif term.op == "negative":
        yield from ((-factor, name) for factor, name in _linear(term.args[0], names))
    else:
        used = [part for part in subterms(term) if part.op == "symbol" and part.name in names]
        factor = tidied(substitute(term, {used[0]: const(1)})) if len(used) == 1 else term
        linear = len(used) == 1 and _is_factor(used[0], term)
        yield factor, used[0].name if linear else None


def _is_factor(part: Expr, term: Expr) -> bool:
    if term is part:
        return True
    if term.op == "multiply":
        return _is_factor(part, term.args[0]) or _is_factor(part, term.args[1])
    if term.op == "reduce":
        return term.monoid == "sum" and term.axis not in part.axes and _is_factor(part, term.body)
    return term.op == "divide" and _is_factor(part, term.args[0])


class _Rule:
    """Equations in an order in which each needs only earlier ones: components, new pivots, and how far pivots moved."""

    def __init__(self, form: FusedForm, joined: Callable[[Component], Expr], parts: tuple[str, ...]) -> None:
        self.form, self.joined = form, joined
        self.moves = {_suffixed(move, part): symbol(name.name + part, name.axes)
                      for part in parts for move, name in differences(form).items()}
        self.components = {component.name + PRIME: component for component in form.state}
        self.values = {row.name + suffix: (row.value, suffix) for row in (*form.pivots, *form.results)
                       for suffix in (PRIME, *parts) if suffix and row.name + PRIME not in self.components}
        self.told: dict[str, Equation] = {}

    def equations(self) -> tuple[Equation, ...]:
        """An equation for every component, and those it takes to understand them."""
        for name in self.components:
            self.tell(name)
        return tuple(self.told.values())

    def tell(self, name: str) -> None:
        """Add the equation for a name, after those for the names in it; nothing for the names of old states."""
        if name in self.told or name not in self.components and name not in self.values:
            return
        component = self.components.get(name)
        if component:
            whole, mask = self.joined(component), component.mask
        else:
            value, suffix = self.values[name]
            whole, mask = _suffixed(value, suffix), None
        inside = subterms(whole)
        others = [term.name for term in inside if term.op == "symbol" and term.name != name]
        for other in sorted(others, key=lambda other: other.endswith(PRIME)):
            self.tell(other)
        used = {term: self.moves[term] for term in inside if term in self.moves}
        for move, short in used.items():
            self.told.setdefault(short.name, _equation(self.form, short, move))
        axes = component.axes if component else whole.axes
        self.told[name] = replace(_equation(self.form, symbol(name, axes), substitute(whole, used), mask),
                                  operations=frozenset(term.op for term in inside))


def _equation(form: FusedForm, left: Expr, right: Expr, mask: Expr | None = None) -> Equation:
    return Equation(left, tidied(_with_winners(form, right)), None if mask is None else tidied(mask),
                    frozenset(term.op for term in subterms(right)))


def _with_winners(form: FusedForm, expr: Expr) -> Expr:
    """`expr` with the values that positions won with written as elements: what i won with is x[i]."""
    indexed = {component.name + WON: component for component in form.state if MONOIDS[component.monoid].indexed}
    won = [term for term in subterms(expr) if term.op == "symbol" and term.name in indexed]
    return substitute(expr, {term: _at(indexed[term.name], symbol(term.name.removesuffix(WON)), form.axis) for term in won})


def _together(component: Component, values: Sequence[Expr], positions: Sequence[Expr], axis: str) -> Expr:
    """a ⊕ b in words that have a meaning for people."""
    old, new = values
    if component.monoid in ("argmax", "argmin"):
        there, here = (_at(component, position, axis) for position in positions)
        return call("where", here > there if component.monoid == "argmax" else here < there, positions[1], old)
    if MONOIDS[component.monoid].counted:
        what = "positions" if MONOIDS[component.monoid].indexed else "values"
        return Expr(f"best_{what}", (component.count, old, positions[1] if what == "positions" else new))
    return Expr(STEPS.get(component.monoid, component.monoid), (old, new))


def _at(component: Component, position: Expr, axis: str) -> Expr:
    """What a component takes of the element at a position: x[l] becomes x[i]."""
    return component.lift if position.op == "index" else with_leaves(component.lift, {}, {axis: position.name})


def _is_move(term: Expr) -> bool:
    """Whether a term is p − p' for one pivot p."""
    old, new = (arg.args[0] if arg.op == "anchor" else arg for arg in term.args)
    return old.op == new.op == "symbol" and new.name == old.name + PRIME


def _suffixed(expr: Expr, suffix: str) -> Expr:
    """An expression about the old state, said of another one; what is said of the new state stays."""
    old = [term for term in subterms(expr) if term.op == "symbol" and not term.name.endswith(PRIME)]
    return substitute(expr, {term: symbol(term.name + suffix, term.axes) for term in old})
