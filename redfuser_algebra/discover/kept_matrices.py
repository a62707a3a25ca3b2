"""The components that keep the matrices of a recurrence, and what its result is of them.

In: matrices.  Out: drafts in the form being made.  An entry that is a plain sum, product, max or min of its own is an
ordinary component; the others are ordered.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redfuser_algebra.discover.draft import Draft, Drafts
from redfuser_algebra.discover.form import Recurred
from redfuser_algebra.discover.fractions import Projective
from redfuser_algebra.discover.ordered import Matrices, Place, Window
from redfuser_algebra.discover.polynomials import Algebra
from redfuser_algebra.language.expr import Expr, const, symbol
from redfuser_algebra.language.names import primed

COMPOSE = "compose"

Plain = Callable[[str, Expr], Expr]
"""⊕ of a lift for an ordinary monoid, over components."""


@dataclass(frozen=True)
class Kept:
    """Matrices with the components that keep them.

    `values` are the carried entries, `first` what is kept of first elements, `between`
    what the step between two parts sees.
    """

    made: Matrices
    drafts: tuple[Draft, ...]
    values: dict[Place, Expr]
    first: dict[Expr, Expr]
    between: dict[Expr, Expr]

    def read(self, k: int, below: int | None = None) -> Expr:
        """The k-th function of the state, or what it is over number `below`, over the components."""
        return self.made.read(k, self.values.__getitem__, self.first, below)


def kept(made: Matrices, drafts: Drafts, plain: Plain) -> Kept:
    """Drafts for the carried entries, and for the ends of a part where a step sees the element before."""
    window, axes, axis = made.window, made.axes(), made.axis
    last = {} if window is None else {name: _end(drafts, step, axis, primed) for name, (step, _) in window.last.items()}
    first = {} if window is None else {name: first_of(drafts, element, axis) for name, element in window.first.items()}
    ordered: dict[Place, Draft] = {}
    values: dict[Place, Expr] = {}
    for place in made.carried:
        lift, monoid = made.lifts.get(place, const(made.semiring.zero)), _ordinary(made, place)
        if not monoid:
            ordered[place] = _ordered(drafts, lift, axis, axes[place])
        values[place] = plain(monoid, lift) if monoid else ordered[place].symbol
    between = {name: draft.symbol for name, draft in last.items()} | {name: primed(draft.symbol) for name, draft in first.items()}
    joined = made.joined(values.__getitem__, lambda place: primed(values[place]), between)
    for place, draft in ordered.items():
        draft.joined = joined.get(place, const(made.semiring.zero))
        draft.empty = made.semiring.one if place[0] == place[1] else made.semiring.zero
    centres = () if made.about is None else tuple(first_of(drafts, element, axis) for element in made.about.centres)
    return Kept(made, (*ordered.values(), *last.values(), *first.values(), *centres), values, {name: draft.symbol for name, draft in first.items()}, between)


def recurred(name: str, k: int, kept: Kept, below: int | None = None, over: Projective | None = None) -> Recurred:
    """The record of a result that is the k-th function of the state, or of that over function number `below`."""
    made, size = kept.made, range(len(kept.made.closed.basis))
    zero, found = const(made.semiring.zero), made.found
    rows = tuple(tuple(made.closed.rows[i].get(j, zero) for j in size) for i in size)
    whole = made.named(kept.values.__getitem__)
    entries = tuple(tuple(whole.get((i, j), zero) for j in size) for i in size)
    basis = tuple(map(Algebra(made.semiring).written, made.closed.basis))
    window = made.window or Window()
    elements = window.first
    between = {elements.get(name, name): value for name, value in kept.between.items()}
    begins = {elements[name]: value for name, value in kept.first.items()} | {name: start for name, (_, start) in window.last.items()}
    return Recurred(name, made.semiring.name, tuple(found.starts.items()), tuple(made.steps.items()), basis, rows, k, entries,
                    tuple(between.items()), tuple(begins.items()), below, *_stands(made, over))


def _stands(made: Matrices, over: Projective | None) -> tuple[tuple, ...]:
    """Each state with its step as written, and what it is of the states that are followed; how these move with centres, and their functions."""
    if made.about is None:
        return ((),) if over is None else (tuple((state, step, over.above[state] / over.divisor) for state, step in over.of.steps.items()),)
    about, size = made.about, range(len(made.closed.basis))
    stands = tuple((state, step, about.stands[state]) for state, step in about.of.steps.items())
    return stands, tuple(about.moves.items()), tuple(tuple(made.turned.get((k, j), const(0)) for j in size) for k in size)


def _ordinary(made: Matrices, place: Place) -> str:
    """The monoid that alone joins an entry; "" where others have a say, or the step between two parts."""
    mark, other = symbol("entry"), symbol("other")
    if made.window is not None:
        return ""
    joined = made.joined(lambda at: mark if at == place else other, lambda at: primed(mark if at == place else other), {}).get(place)
    later, algebra = primed(mark), Algebra(made.semiring)
    plain = {algebra.plus(mark, later): made.semiring.sums, algebra.plus(later, mark): made.semiring.sums,
             algebra.times(later, mark): made.semiring.products}
    return plain.get(joined, "")


def _ordered(drafts: Drafts, lift: Expr, axis: str, axes: tuple[str, ...] | None = None) -> Draft:
    draft = drafts.new(COMPOSE, lift, None, None, tuple(a for a in lift.axes if a != axis) if axes is None else axes)
    draft.rebase = draft.symbol
    return draft


def first_of(drafts: Drafts, element: Expr, axis: str) -> Draft:
    """What is kept of the first element of a part."""
    return _end(drafts, element, axis, lambda own: own)


def _end(drafts: Drafts, lift: Expr, axis: str, joined: Callable[[Expr], Expr]) -> Draft:
    """What is kept of one end of a part, once for all recurrences that see it."""
    for draft in drafts.found:
        if draft.monoid == COMPOSE and draft.lift is lift and draft.joined is joined(draft.symbol):
            return draft
    draft = _ordered(drafts, lift, axis)
    draft.joined = joined(draft.symbol)
    return draft
