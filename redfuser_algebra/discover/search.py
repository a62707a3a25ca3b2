"""The search for a fused form: ask the e-graph for each reduction at a new pivot, close under what it needs.

In: a cascade.  Out: drafts of the components, results and pivots; or `Stuck`, with what could not be moved.
DESIGN §3.
"""
from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import takewhile

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.about_largest import about_largest
from redfuser_algebra.discover.about_means import about_means
from redfuser_algebra.discover.about_scales import about_scales
from redfuser_algebra.discover.about_weights import Weighed, about_weights, summand, zero_last
from redfuser_algebra.discover.asking import Asked, Asker, Settings, Unmoved
from redfuser_algebra.discover.at_now import kept_at_now
from redfuser_algebra.discover.clipped import clip_of, kept_clip
from redfuser_algebra.discover.decode import Decoder
from redfuser_algebra.discover.draft import Draft, Drafts, TooMany
from redfuser_algebra.discover.egraph import Sexp
from redfuser_algebra.discover.encode import sees_pivot
from redfuser_algebra.discover.exponentials import exponentiated
from redfuser_algebra.discover.facts import NEGATIVE, NONPOSITIVE, Facts
from redfuser_algebra.discover.form import Clipped, Recurred
from redfuser_algebra.discover.fractions import projective
from redfuser_algebra.discover.indicators import indicated
from redfuser_algebra.discover.kept_matrices import Kept, first_of, kept, recurred
from redfuser_algebra.discover.logarithms import logarithmic
from redfuser_algebra.discover.ordered import Matrices, about_centres, matrices
from redfuser_algebra.discover.pivots import Pivots, negated, old_pivot
from redfuser_algebra.discover.polynomials import NotClosed
from redfuser_algebra.discover.recurrence import Recurrence, is_ordered, recurrence
from redfuser_algebra.discover.simplify import opened, operands, settled
from redfuser_algebra.discover.summands import canonical_axes
from redfuser_algebra.discover.sums import Sums
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.composition import copied_axis, with_leaves
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol

LARGEST_RANK = 16
"""The most components that one reduction may bring along."""


class Stuck(Exception):
    """A reduction that the laws could not take apart: `residual` is what is left, over p and p'."""

    def __init__(self, reduction: Reduction, residual: Expr | None, exhausted: bool, reason: str) -> None:
        super().__init__(reason)
        self.reduction, self.residual, self.exhausted, self.reason = reduction, residual, exhausted, reason


class Search:
    """One cascade's search.  `drafts`, `results`, `ranks` and `pivots` hold what was found, `questions` how."""

    def __init__(self, cascade: Cascade, assume: tuple[Expr, ...], settings: Settings) -> None:
        self.cascade, self.axis, self.settings = cascade, cascade.axis, settings
        self.facts = Facts(cascade.axis, cascade.reductions, assume)
        self.taken = _names_in(cascade)
        self.pivots = Pivots(cascade.axis, self.facts, self.taken)
        self.results: dict[str, Expr] = {}
        self.choices: dict[Expr, Expr] = {}
        self.masks: dict[str, Expr | None] = {}
        self.weights: list[Expr] = []
        self.ranks: dict[str, int] = {}
        self._asker = Asker(cascade.axis, self.facts, settings)
        self._drafts = Drafts(LARGEST_RANK * len(cascade.reductions))
        self._sums = Sums(self._asker, self.pivots, self._drafts)
        self._others: dict[tuple, Draft] = {}
        self.questions = self._asker.questions
        self.drafts = self._drafts.found
        self.recurrences: list[Recurred] = []
        self.clips: list[Clipped] = []
        self._kept_matrices: list[Kept] = []

    def run(self) -> None:
        """Find components and results for every reduction, in order.  Raises Stuck."""
        for reduction in self.cascade.reductions:
            self._drafts.needs = set()
            try:
                self.results[reduction.name] = self._solved(reduction)
            except Unmoved as unmoved:
                raise Stuck(reduction, unmoved.residual, unmoved.exhausted, unmoved.reason) from unmoved
            except TooMany as many:
                raise Stuck(reduction, None, True, f"more than {LARGEST_RANK} components per reduction") from many
            self.ranks[reduction.name] = len(self._drafts.closure())
            self._recognise(reduction)
            self._open(reduction)

    def _open(self, reduction: Reduction) -> None:
        """A position that is one of several running winners, by a condition, is known as that choice."""
        value = self.results[reduction.name]
        choice = substitute(value, {term: call("where", call("less_equal", *term.args), *term.args)
                                    for term in subterms(value) if term.op == "minimum"})
        leaves = {leaf.name for leaf in _chosen(choice) if leaf.op == "symbol"}
        winners = [draft for draft in self.drafts if draft.name in leaves and MONOIDS[draft.monoid].indexed
                   and draft.rebase is draft.symbol]
        if choice.op == "where" and {draft.name for draft in winners} == leaves and all(
                leaf.op == "symbol" for leaf in _chosen(choice)):
            self.choices[reduction.symbol] = choice
            self.facts.results.update({draft.name: replace(
                reduction, name=draft.name, monoid=draft.monoid, body=draft.lift, mask=draft.mask) for draft in winners})

    def _recognise(self, reduction: Reduction) -> None:
        """A result that turned out to be a component without pivots is known as that: argmax softmax(x) is argmax x."""
        value = self.results[reduction.name]
        for draft in self.drafts:
            if draft.symbol is value and draft.rebase is value and not sees_pivot(draft.lift):
                self.facts.results[reduction.name] = replace(
                    reduction, monoid=draft.monoid, body=draft.lift, mask=draft.mask)

    def _solved(self, reduction: Reduction) -> Expr:
        if reduction.count is not None and keeps_ever_more(reduction.count, self.axis):
            raise Unmoved(reduction.source, "it keeps more elements the more there are")
        if any(is_ordered(part, self.axis) for part in reduction.elements):
            return self._ordered(reduction)
        return self._weighed(reduction, opened(reduction.body, self.choices))

    def _weighed(self, reduction: Reduction, whole: Expr) -> Expr:
        """⊕ of elements, with questions about weights put to the elements."""
        weighed: list[Weighed] = []
        if reduction.monoid == "sum" and (self.facts.moves(whole) or reduction.mask is not None):
            weighs = summand(whole := zero_last(whole))
            for op in ("greater", "equal") if reduction.mask is None else ("greater",):
                weighed.append(about_weights(whole, weighs, self.facts, op))
                whole = weighed[-1].term
            if reduction.mask is not None:
                weighed.append(about_weights(reduction.mask, weighs, self.facts, "greater"))
                reduction = replace(reduction, mask=weighed[-1].term)
        value = self._of(reduction, whole)
        for each in (each for each in weighed if each.weights):
            self.weights += each.weights
            value = value if each.finite is None else call("where", each.finite, value, each.otherwise)
            if each.otherwise:
                self.masks[reduction.name] = None
        return value

    def _of(self, reduction: Reduction, whole: Expr) -> Expr:
        """⊕ of elements; of those of one choice for all, the choice between two reductions."""
        if reduction.monoid == "sum" and whole.op == "where" and self.axis not in whole.args[0].axes and self.facts.moves(whole):
            condition, *values = whole.args
            return call("where", condition, *(self._of(reduction, value) for value in values))
        body = self.pivots.abstract(about_scales(about_means(about_largest(whole, self.facts), self.facts), self.facts))
        mask = None if reduction.mask is None else self.pivots.abstract(reduction.mask)
        if mask is not None and sees_pivot(mask):
            moving, mask = _split(mask)
            body = _without_mask(reduction, body, moving)
        if reduction.monoid == "sum" and body.op == "where" and body.args[2] is const(0) and sees_pivot(body):
            moving, still = _split(body.args[0]) if sees_pivot(body.args[0]) else (None, body.args[0])
            body, mask = body.args[1] if moving is None else call("where", moving, body.args[1], 0), _both(mask, still)
        self.masks[reduction.name] = mask if self.masks.get(reduction.name, mask) is mask else None
        if reduction.monoid == "sum":
            return self._sums.result(body, mask)
        if not sees_pivot(body):
            return self._read(reduction, reduction.monoid, body, mask)
        return self._filled(reduction, settled(self._moved(reduction, reduction.monoid, body, mask), old_pivot), mask)

    def _filled(self, reduction: Reduction, value: Expr, mask: Expr | None) -> Expr:
        """A top-k in which places that no element fills are −inf, whatever the function of the kept values makes of −inf."""
        monoid = MONOIDS[reduction.monoid]
        if mask is None or not monoid.counted or monoid.indexed:
            return value
        names = {term.name for term in subterms(value) if term.op == "symbol"}
        kept = next(draft for draft in self.drafts if draft.name in names and draft.monoid == reduction.monoid)
        if value is kept.symbol:
            return value
        places = self._component(reduction, f"arg{reduction.monoid}", kept.lift, mask).symbol
        return call("where", call("less", places, 0), monoid.identity, value)

    def _ordered(self, reduction: Reduction) -> Expr:
        """What a recurrence comes to, read off the entries of a matrix.  Raises Unmoved.

        NaN where a result is infinite that it sees no more, since ∞ − ∞ is.
        """
        found = recurrence(reduction, self.axis, self.facts.moves)
        if found is None:
            raise Unmoved(reduction.body, f"{reduction.monoid} of elements that see those before them is no step of one number")
        earlier = takewhile(lambda other: other is not reduction, self.cascade.reductions)
        ends = [(r.symbol, own) for r in earlier if (own := recurrence(r, self.axis, self.facts.moves))]
        found, unseen = kept_at_now(found, ends)
        known = [self.results[result.name] for result in unseen]
        return reduce(lambda value, end: value + (end - end), known, self._solved_in_order(reduction, found))

    def _solved_in_order(self, reduction: Reduction, found: Recurrence) -> Expr:
        """What a matrix comes to that follows a recurrence, one of exponentials, indicators, logarithms or fractions.  Raises Unmoved."""
        try:
            return self._followed(reduction, found)
        except NotClosed as refusal:
            for other in (self._exponentiated, self._indicated, self._logarithmic, self._clipped):
                if (value := other(reduction, found)) is not None:
                    return value
            return self._fraction(reduction, found, refusal)

    def _followed(self, reduction: Reduction, found: Recurrence) -> Expr:
        """What a matrix comes to that follows a recurrence.  Raises NotClosed."""
        matrix, k = self._matrix(reduction, found)
        self.recurrences.append(recurred(reduction.name, k, matrix))
        return matrix.read(k)

    def _exponentiated(self, reduction: Reduction, found: Recurrence) -> Expr | None:
        """What a matrix of exponentials comes to, or None."""
        return self._followed_if_closed(reduction, exponentiated(found))

    def _indicated(self, reduction: Reduction, found: Recurrence) -> Expr | None:
        """What a matrix of indicators comes to, or None."""
        return self._followed_if_closed(reduction, indicated(found, self.axis))

    def _followed_if_closed(self, reduction: Reduction, over: Recurrence | None) -> Expr | None:
        if over is not None:
            with suppress(NotClosed):
                return self._followed(reduction, over)
        return None

    def _logarithmic(self, reduction: Reduction, found: Recurrence) -> Expr | None:
        """What a matrix of logarithms comes to, or None."""
        over = logarithmic(found, self.facts, self.axis)
        if over is not None:
            with suppress(NotClosed):
                matrix, k = self._matrix(reduction, over.found)
                self.recurrences.append(replace(recurred(reduction.name, k, matrix), reached=matrix.read(k)))
                return over.back(matrix.read(k))
        return None

    def _clipped(self, reduction: Reduction, found: Recurrence) -> Expr | None:
        """What comes of a state that is moved and kept within bounds, or None."""
        clip = clip_of(found)
        if clip is None:
            return None
        part = kept_clip(clip, self._drafts, self._plain(reduction, "sum", clip.added), self.axis)
        start, step = found.starts[found.target], found.steps[found.target]
        self.clips.append(Clipped(reduction.name, found.target, start, step, clip.parts, part.parts))
        return part.of(start)

    def _fraction(self, reduction: Reduction, found: Recurrence, refusal: NotClosed) -> Expr:
        """A state that is a fraction of two that a matrix follows.  Raises Unmoved."""
        try:
            over = projective(self._widest(found)).about(found.target)
            matrix, k = self._matrix(reduction, over.found, (over.divisor,))
        except NotClosed:
            raise Unmoved(refusal.term, str(refusal)) from refusal
        below = matrix.made.row(replace(over.found, target=over.divisor))
        self.recurrences.append(recurred(reduction.name, k, matrix, below, over))
        return matrix.read(k, below)

    def _matrix(self, reduction: Reduction, found: Recurrence, also: tuple[Expr, ...] = ()) -> tuple[Kept, int]:
        """The matrix of a recurrence, kept once for all results that are among its functions, and the row.

        It has rows for the states in `also`.  Raises NotClosed.
        """
        known = [(each, k) for each in self._kept_matrices if (k := each.made.row(found)) is not None]
        if not known:
            made = None if also else self._about_centres(found)
            if made is None:
                made = matrices(self._widest(found), self.axis, also)
                made = made if made.row(found) is not None else matrices(found, self.axis, also)
            self._kept_matrices.append(kept(made, self._drafts, lambda monoid, lift: self._plain(reduction, monoid, lift)))
            known = [(self._kept_matrices[-1], made.row(found))]
        self._drafts.needs |= {draft.name for draft in known[0][0].drafts}
        return known[0]

    def _about_centres(self, found: Recurrence) -> Matrices | None:
        """The matrices of a recurrence about first elements, or None."""
        with suppress(NotClosed):
            if about_centres(found, self.axis, lambda element: symbol("centre", tuple(a for a in element.axes if a != self.axis))) is not None:
                return about_centres(found, self.axis, lambda element: first_of(self._drafts, element, self.axis).symbol)
        return None

    def _widest(self, found: Recurrence) -> Recurrence:
        """The recurrence of the cascade with most states that has all of these, so that they are kept once."""
        others = (recurrence(r, self.axis, self.facts.moves) for r in self.cascade.reductions if r.monoid == "compose")
        return max((other for other in others if other.holds(found)), key=lambda other: len(other.steps), default=found)

    def _plain(self, reduction: Reduction, monoid: str, lift: Expr) -> Expr:
        return self._sums.result(lift, None) if monoid == "sum" else self._component(reduction, monoid, lift, None).symbol

    # monoids other than sum: the answer is any term over kept components

    def _moved(self, reduction: Reduction, monoid: str, body: Expr, mask: Expr | None) -> Expr:
        """⊕ body at the new pivots, over components at the old ones."""
        asked = self._safest(monoid, body, mask)
        return asked.decoder.expr(asked.answer.term, lambda kept: self._kept(reduction, asked.decoder, kept, mask))

    def _safest(self, monoid: str, body: Expr, mask: Expr | None) -> Asked:
        """Components that never move if none of them can overflow, otherwise centred ones if there are.  Products cannot: their places are counted."""
        answers = [self._asker.moving(monoid, body, mask, "raw")]
        if not (answers[0].answer.finite and self._safe(answers[0], mask)):
            answers.append(self._asker.moving(monoid, body, mask, "centred"))
        finite = [asked for asked in answers if asked.answer.finite]
        safe = [asked for asked in finite if self._safe(asked, mask)]
        return (safe or finite or answers)[0].found()

    def _safe(self, asked: Asked, mask: Expr | None) -> bool:
        """Whether no exponent in the components of an answer can be positive."""
        facts, lifts = self.facts.under(mask), _lifts(asked)
        exponents = [term.args[0] for term in subterms(*lifts) if term.op in ("exp", "exp2")]
        return all(facts.sign(exponent) in (NEGATIVE, NONPOSITIVE) for exponent in exponents)

    def _kept(self, reduction: Reduction, decoder: Decoder, kept: Sexp, mask: Expr | None) -> Expr:
        """The symbol of a component that an answer keeps, under the axes by which the answer reads it."""
        _, monoid, _, inner = kept
        body = decoder.expr(inner, lambda nested: self._kept(reduction, decoder, nested, mask))
        if monoid == "sum":
            return self._sums.result(body, mask)
        return self._read(reduction, monoid, body, mask)

    def _read(self, reduction: Reduction, monoid: str, body: Expr, mask: Expr | None) -> Expr:
        """⊕ body as a component reads; max(−x) is read off min x, so that neither is kept twice."""
        dual = MONOIDS[monoid].dual
        if body.op == "negative" and dual and MONOIDS[monoid].endomorphism in ("increasing", "index"):
            turned = self._read(reduction, dual, body.args[0], mask)
            return turned if MONOIDS[monoid].indexed else negated(turned)
        copies = tuple(axis for axis in body.axes if copied_axis(axis) != axis)
        names = canonical_axes(body, copies, () if mask is None else mask.axes)
        draft = self._component(reduction, monoid, with_leaves(body, {}, names), mask)
        written = {canonical: axis for axis, canonical in names.items()}
        return symbol(draft.name, tuple(written.get(axis, axis) for axis in draft.axes))

    def _component(self, reduction: Reduction, monoid: str, body: Expr, mask: Expr | None) -> Draft:
        """The draft that keeps ⊕ body, made on first sight together with its rebase."""
        count, out = (reduction.count, reduction.source.attrs[2]) if MONOIDS[monoid].counted else (None, "")
        key = (monoid, body, mask, count, out)
        if key not in self._others:
            operands = tuple(part for part in (body, mask, count) if part is not None)
            axes = Expr("reduce", operands, (monoid, self.axis, out)).axes
            self._others[key] = draft = self._drafts.new(monoid, body, mask, count, axes)
            with self._drafts.moving(draft):
                moved = self._moved(reduction, monoid, body, mask) if sees_pivot(body) else draft.symbol
                draft.rebase = _identity_kept(draft, moved, self.drafts)
        self._drafts.needs.add(self._others[key].name)
        return self._others[key]


def keeps_ever_more(count: Expr, axis: str) -> bool:
    """Whether the number of elements that a top-k keeps depends on the length of the axis."""
    return any(term.op == "size" and term.axis == axis for term in subterms(count))


def _chosen(choice: Expr) -> list[Expr]:
    """What a choice may be: the leaves of nested conditions."""
    return _chosen(choice.args[1]) + _chosen(choice.args[2]) if choice.op == "where" else [choice]


def _split(mask: Expr) -> tuple[Expr, Expr | None]:
    """The conditions of a mask that see a pivot, and those that do not: the latter can stay a mask."""
    parts = operands(mask, "logical_and")
    moving, still = ([part for part in parts if sees_pivot(part) is sees] for sees in (True, False))
    return reduce(_both, moving), reduce(_both, still) if still else None


def _both(one: Expr | None, other: Expr | None) -> Expr | None:
    return other if one is None else one if other is None else call("logical_and", one, other)


def _without_mask(reduction: Reduction, body: Expr, mask: Expr) -> Expr:
    """An element that is the identity outside a mask that depends on a pivot.  Raises Unmoved for positions."""
    monoid = MONOIDS[reduction.monoid]
    if monoid.indexed or monoid.counted:
        raise Unmoved(mask, "the mask depends on a pivot")
    return call("where", mask, body, monoid.identity)


def _identity_kept(draft: Draft, moved: Expr, drafts: list[Draft]) -> Expr:
    """A rebase that leaves the identity as it is: −inf · 0 must not make a NaN of an empty max.

    A choice may be another component, which has that identity where there is no element: it stays as it is.
    """
    identity = MONOIDS[draft.monoid].identity
    if moved is draft.symbol or not isinstance(identity, float) or math.isfinite(identity):
        return moved
    others = {other.symbol for other in drafts if other.rebase is other.symbol and MONOIDS[other.monoid].identity == identity}
    if moved.op == "where" and others.intersection(moved.args[1:]):
        return call("where", moved.args[0], *(each if each in others else _identity_kept(draft, each, drafts) for each in moved.args[1:]))
    return call("where", call("equal", draft.symbol, identity), draft.symbol, moved)


def _lifts(asked: Asked) -> list[Expr]:
    """The elements that an answer keeps reductions of."""
    lifts: list[Expr] = []

    def keep(kept: Sexp) -> Expr:
        lifts.append(asked.decoder.expr(kept[3], lambda nested: const(0)))
        return const(0)

    asked.decoder.expr(asked.answer.term, keep)
    return lifts


def _names_in(cascade: Cascade) -> set[str]:
    parts = [part for r in cascade.reductions for part in r.operands]
    terms = subterms(*parts, *cascade.outputs)
    return {term.name for term in terms if term.op in ("input", "param", "symbol")} | {
        axis for term in terms for axis in term.axes} | {r.name for r in cascade.reductions} | {cascade.axis}
