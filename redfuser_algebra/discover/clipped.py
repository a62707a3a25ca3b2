"""Recurrences of one state that is moved and kept within bounds: h ← min(max(h + a, b), c), a saturating sum.

In: a recurrence that no matrix follows.  Out: what an element makes of the state, and what keeps that of a part.  Such maps
are closed under composition, since + distributes over max and min, and these over each other:

    min(max(min(max(h + a, b), c) + a', b'), c') = min(max(h + (a + a'), max(b + a', b')), min(max(c + a', b'), c'))
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redfuser_algebra.discover.draft import Draft, Drafts
from redfuser_algebra.discover.polynomials import folded
from redfuser_algebra.discover.recurrence import Recurrence
from redfuser_algebra.discover.simplify import is_number
from redfuser_algebra.language.expr import Expr, call, const, unbound_states
from redfuser_algebra.language.names import primed

INF = float("inf")


@dataclass(frozen=True)
class Clip:
    """The map h ↦ min(max(h + `added`, `least`), `most`)."""

    added: Expr
    least: Expr
    most: Expr

    @property
    def parts(self) -> tuple[Expr, Expr, Expr]:
        """What is added, and the bounds."""
        return self.added, self.least, self.most

    def plus(self, other: Expr) -> Clip:
        """With a number added to what comes out."""
        return Clip(*(_plus(part, other) for part in self.parts))

    def at_least(self, other: Expr) -> Clip:
        """With what comes out made as large as a number."""
        return Clip(self.added, _largest(self.least, other), _largest(self.most, other))

    def at_most(self, other: Expr) -> Clip:
        """With what comes out made as small as a number."""
        return Clip(self.added, self.least, _smallest(self.most, other))

    def then(self, later: Clip) -> Clip:
        """This map, and after it another one."""
        return self.plus(later.added).at_least(later.least).at_most(later.most)

    def of(self, state: Expr) -> Expr:
        """What becomes of a state."""
        return _smallest(_largest(_plus(state, self.added), self.least), self.most)


NOTHING = Clip(const(0), const(-INF), const(INF))
"""The map that changes nothing."""


def clip_of(found: Recurrence) -> Clip | None:
    """What an element does to the state, if there is one state and it is such a map."""
    return _clip(found.steps[found.target], found.target) if [*found.steps] == [found.target] else None


def _clip(term: Expr, state: Expr) -> Clip | None:
    if term is state:
        return NOTHING
    if not unbound_states(term):
        return Clip(const(0), term, term)
    if term.op == "where" and not unbound_states(term.args[0]):
        one, other = (_clip(arg, state) for arg in term.args[1:])
        return one and other and Clip(*(
            a if a is b else call("where", term.args[0], a, b) for a, b in zip(one.parts, other.parts, strict=True)))
    if term.op not in _RULES or len(moved := [arg for arg in term.args if unbound_states(arg)]) > 1:
        return None
    number = next(arg for arg in term.args if arg is not moved[0])
    if term.op == "subtract" and moved[0] is term.args[1]:
        return None
    inner = _clip(moved[0], state)
    return inner and _RULES[term.op](inner, number)


_RULES: dict[str, Callable[[Clip, Expr], Clip]] = {
    "add": Clip.plus, "subtract": lambda clip, number: clip.plus(folded(-number)), "maximum": Clip.at_least, "minimum": Clip.at_most}


def kept_clip(clip: Clip, drafts: Drafts, total: Expr, axis: str) -> Clip:
    """The map of a part: what is added is `total`, and its bounds are ordered components, made here."""
    outer = tuple(dict.fromkeys(a for part in clip.parts for a in part.axes if a != axis))
    least, most = (_bound(drafts, lift, outer, nothing) for lift, nothing in ((clip.least, -INF), (clip.most, INF)))
    part = Clip(total, least.symbol, most.symbol)
    merged = part.then(Clip(*map(primed, part.parts)))
    least.joined, most.joined = merged.least, merged.most
    return part


def _bound(drafts: Drafts, lift: Expr, axes: tuple[str, ...], nothing: float) -> Draft:
    draft = drafts.new("compose", lift, None, None, axes)
    draft.rebase, draft.empty = draft.symbol, nothing
    return draft


def _plus(a: Expr, b: Expr) -> Expr:
    if is_number(a, 0) or is_number(b, 0):
        return b if is_number(a, 0) else a
    infinite = next((part for part in (a, b) if part.op == "const" and abs(part.value) == INF), None)
    return folded(call("add", a, b)) if infinite is None else infinite


def _largest(a: Expr, b: Expr) -> Expr:
    return a if a is b or is_number(b, -INF) or is_number(a, INF) else b if is_number(a, -INF) or is_number(b, INF) else folded(call("maximum", a, b))


def _smallest(a: Expr, b: Expr) -> Expr:
    return a if a is b or is_number(b, INF) or is_number(a, -INF) else b if is_number(a, INF) or is_number(b, -INF) else folded(call("minimum", a, b))
