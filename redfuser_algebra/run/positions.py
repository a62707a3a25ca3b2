"""Positions along the reduced axis: which were seen, and when a state may be moved along the axis after the fact.

A form that uses positions only as results of argmax, argmin and argtopk, and compares positions only with one
another, means the same wherever its elements start; one with `ra.index(axis) * x` or `ra.index(axis) < 10` does not.
"""
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.run.reductions import NO_POSITION
from redfuser_algebra.run.state import Held, State

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

Spans = tuple[tuple[int, int], ...]


def moves_freely(form: FusedForm) -> bool:
    """Whether a state can be moved along the axis: nothing before the outputs depends on where the axis starts."""
    positions = _position_names(form)

    def is_position(term: Expr) -> bool:
        if term.op == "symbol":
            return term.name.removesuffix(PRIME) in positions
        return term.op == "index" and term.axis == form.axis

    def is_invariant(term: Expr) -> bool:
        if is_position(term):
            return False
        return term.op in COMPARISONS and all(map(is_position, term.args)) or all(map(is_invariant, term.args))

    elements = [expr for c in form.state for expr in c.elements]
    moves = [c.rebase for c in form.state] + [pivot.value for pivot in form.pivots]
    used = {term.name for term in subterms(*elements, *moves) if term.op == "symbol"}
    moves += [result.value for result in form.results if result.name in used]
    bare = [expr for expr in moves if not (expr.op == "symbol" and is_position(expr))]
    return all(map(is_invariant, elements + bare))


def moved(form: FusedForm, state: State, by: int) -> State:
    """The state of the same elements `by` places further along the axis."""
    components = dict(state.components)
    for component in form.state:
        if MONOIDS[component.monoid].indexed:
            components[component.name] = _moved_positions(components[component.name], by)
    return replace(state, components=components, start=state.start + by)


def joined_spans(a: Spans, b: Spans) -> Spans | None:
    """The (start, stop) pairs of both, sorted, neighbours made one; None if a position occurs twice."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(span for span in (*a, *b) if span[0] < span[1]):
        if joined and start < joined[-1][1]:
            return None
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


def _moved_positions(held: Held, by: int) -> Held:
    return replace(held, value=np.where(held.value == NO_POSITION, NO_POSITION, held.value + by))


def _position_names(form: FusedForm) -> set[str]:
    """The components that are positions, and the results and pivots that only rename them."""
    names = {component.name for component in form.state if MONOIDS[component.monoid].indexed}
    rows = [*form.results, *form.pivots]
    for _ in rows:
        names |= {row.name for row in rows if row.value.op == "symbol" and row.value.name in names}
    return names
