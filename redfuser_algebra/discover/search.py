"""The search for a fused form: ask the e-graph for each reduction at a new pivot, close under what it needs.

In: a cascade.  Out: the components, results and rebase rules; or `Stuck`, with what could not be moved.  DESIGN §3.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.egraph import Answer, Limits, Sexp
from redfuser_algebra.discover.encode import (
    Decoder, Encoder, product, sees_pivot, times, total)
from redfuser_algebra.discover.facts import NEGATIVE, NONPOSITIVE, Facts
from redfuser_algebra.discover.linear import Span, Vector
from redfuser_algebra.discover.pivots import Pivots
from redfuser_algebra.discover.question import Question, asked
from redfuser_algebra.discover.rulesets import relevant
from redfuser_algebra.discover.simplify import settled
from redfuser_algebra.discover.summands import (
    Rows, at_old, canonical_axes, element_term, rows_of, scaled, summand)
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.composition import copied_axis, with_leaves
from redfuser_algebra.language.expr import Expr, call, const, subterms, symbol

LARGEST_RANK = 16
_LINEAR = ("sum", "prod")

@dataclass(frozen=True)
class Settings:
    """How to search: limits, raw or centred states, and laws to leave out."""

    limits: Limits = Limits()
    prefer: str = "centred"
    without: frozenset[str] = frozenset()


class Stuck(Exception):
    """A reduction that the laws could not take apart: `residual` is what is left, over p and p'."""

    def __init__(self, reduction: Reduction, residual: Expr | None, exhausted: bool, reason: str) -> None:
        super().__init__(reason)
        self.reduction, self.residual, self.exhausted, self.reason = reduction, residual, exhausted, reason


@dataclass
class Draft:
    """A component in the making.  `needs` are the components its rebase reads, and the sums found to be 0."""

    name: str
    monoid: str
    lift: Expr
    mask: Expr | None
    count: Expr | None
    axes: tuple[str, ...]
    rebase: Expr | None = None
    needs: set[object] = field(default_factory=set)

    @property
    def symbol(self) -> Expr:
        return symbol(self.name, self.axes)


@dataclass
class _Sums:
    """The sums kept under one mask: vectors over element terms, and the component of each."""

    span: Span = field(default_factory=Span)
    drafts: list[Draft] = field(default_factory=list)


class Search:
    """One cascade's search.  `drafts`, `results` and `pivots` hold what was found."""

    def __init__(self, cascade: Cascade, assume: tuple[Expr, ...], settings: Settings) -> None:
        self.cascade, self.settings, self.axis = cascade, settings, cascade.axis
        self.facts = Facts(cascade.axis, cascade.reductions, assume)
        self.taken = _names_in(cascade)
        self.pivots = Pivots(cascade.axis, self.facts, self.taken)
        self.drafts: list[Draft] = []
        self.results: dict[str, Expr] = {}
        self.questions: list[Question] = []
        self._sums: dict[Expr | None, _Sums] = {}
        self._others: dict[tuple, Draft] = {}
        self._masks: dict[Expr | None, str] = {None: ""}
        self.ranks: dict[str, int] = {}
        self._needs: set[object] = set()
        self._reduction: Reduction = cascade.reductions[0]

    def run(self) -> None:
        """Find components and results for every reduction, in order.  Raises Stuck."""
        for reduction in self.cascade.reductions:
            self._reduction = reduction
            self._needs = set()
            self.results[reduction.name] = self._solved(reduction)
            self.ranks[reduction.name] = len(self._closure(self._needs))

    def _closure(self, needs: set[object]) -> set[object]:
        """Everything that these components need when they move, themselves included."""
        drafts = {draft.name: draft for draft in self.drafts}
        found: set[object] = set()
        todo = list(needs)
        while todo:
            need = todo.pop()
            if need not in found:
                found.add(need)
                todo.extend(drafts[need].needs if need in drafts else ())
        return found

    def _solved(self, reduction: Reduction) -> Expr:
        body = self.pivots.abstract(reduction.body)
        mask = None if reduction.mask is None else self.pivots.abstract(reduction.mask)
        if mask is not None and sees_pivot(mask):
            if MONOIDS[reduction.monoid].indexed or MONOIDS[reduction.monoid].counted:
                raise Stuck(reduction, mask, False, "the mask depends on a pivot")
            body, mask = call("where", mask, body, MONOIDS[reduction.monoid].identity), None
        if reduction.monoid == "sum":
            return self._sum(body, mask, at_new=False)
        if not sees_pivot(body):
            return self._other(reduction.monoid, body, mask, reduction.count).symbol
        return settled(self._moved(reduction.monoid, body, mask, reduction.count), self._old)

    def _old(self, pivot: Expr) -> Expr | None:
        """The old pivot of a primed symbol."""
        return symbol(pivot.name[:-1], pivot.axes) if pivot.op == "symbol" and pivot.name.endswith("'") else None

    # every other monoid: the answer is any term over kept components

    def _moved(self, monoid: str, body: Expr, mask: Expr | None, count: Expr | None) -> Expr:
        """⊕ body at the new pivots, over components at the old ones."""
        encoder, answer = self._safest(monoid, body, mask)
        decoder = encoder.decoder()
        return decoder.expr(answer.term, lambda kept: self._kept(decoder, kept, mask, count))

    def _safest(self, monoid: str, body: Expr, mask: Expr | None) -> tuple[Encoder, Answer]:
        """Components that never move if none of them can overflow, otherwise centred ones if there are."""
        styles = ("centred", "raw") if monoid in _LINEAR and self.settings.prefer == "centred" else ("raw", "centred")
        answers = [self._ask(monoid, body, mask, styles[0])]
        if not (answers[0][1].finite and self._safe(*answers[0], mask)):
            answers.append(self._ask(monoid, body, mask, styles[1]))
        finite = [pair for pair in answers if pair[1].finite]
        safe = [pair for pair in finite if self._safe(*pair, mask)]
        return self._found(*(safe or finite or answers)[0])

    def _safe(self, encoder: Encoder, answer: Answer, mask: Expr | None) -> bool:
        facts, decoder = self.facts.under(mask), encoder.decoder()
        lifts: list[Expr] = []
        decoder.expr(answer.term, lambda kept: lifts.append(decoder.expr(kept[3], lambda nested: const(0))) or const(0))
        exponents = [term.args[0] for term in subterms(*lifts) if term.op in ("exp", "exp2")]
        return all(facts.sign(exponent) in (NEGATIVE, NONPOSITIVE) for exponent in exponents)

    def _kept(self, decoder: Decoder, kept: Sexp, mask: Expr | None, count: Expr | None) -> Expr:
        _, monoid, _, inner = kept
        body = decoder.expr(inner, lambda nested: self._kept(decoder, nested, mask, count))
        if monoid == "sum":
            return self._sum(body, mask, at_new=False)
        copies = tuple(axis for axis in body.axes if copied_axis(axis) != axis)
        names = canonical_axes(body, copies, () if mask is None else mask.axes)
        draft = self._other(monoid, with_leaves(body, {}, names), mask, count if MONOIDS[monoid].counted else None)
        written = {canonical: axis for axis, canonical in names.items()}
        return symbol(draft.name, tuple(written.get(axis, axis) for axis in draft.axes))

    def _other(self, monoid: str, body: Expr, mask: Expr | None, count: Expr | None) -> Draft:
        key = (monoid, body, mask, count, self._reduction.source.attrs[2])
        if key not in self._others:
            asking, self._needs = self._needs, set()
            axes = Expr("reduce", tuple(part for part in (body, mask) if part is not None), (monoid, self.axis, "")).axes
            if count is not None:
                axes = self._reduction.source.axes
            self._others[key] = draft = Draft(self._name(), monoid, body, mask, count, axes)
            self._enlist(draft)
            draft.rebase = self._kept_empty(draft, self._moved(monoid, body, mask, count)) if sees_pivot(body) else draft.symbol
            draft.needs, self._needs = self._needs, asking
        self._needs.add(self._others[key].name)
        return self._others[key]

    def _kept_empty(self, draft: Draft, moved: Expr) -> Expr:
        """A rebase that leaves the identity as it is: −inf · 0 must not make a NaN of an empty max."""
        identity = MONOIDS[draft.monoid].identity
        if moved is draft.symbol or not isinstance(identity, float) or math.isfinite(identity):
            return moved
        return call("where", call("equal", draft.symbol, identity), draft.symbol, moved)

    def _enlist(self, draft: Draft) -> None:
        self.drafts.append(draft)
        if len(self.drafts) > LARGEST_RANK * len(self.cascade.reductions):
            raise Stuck(self._reduction, None, True, f"more than {LARGEST_RANK} components per reduction")

    def _name(self) -> str:
        """A provisional name; `build` gives the final ones when it is known which components are results."""
        return f"#{len(self.drafts)}"

    # sums: the answer is linear in kept sums

    def _sum(self, body: Expr, mask: Expr | None, at_new: bool) -> Expr:
        """Σ body over kept sums: at the old pivots as a result, at the new ones as a rebase rule."""
        rows = self._rows(body, mask)
        sums = self._sums.setdefault(mask, _Sums())
        if not at_new:
            rows = at_old(rows, self._old)
        join = scaled if at_new else times
        parts: dict[Expr, list[Expr]] = {}
        others: list[Expr] = []
        for weight, vector in rows.items():
            for kept, share in self._in_kept_sums(vector, mask, sums).items():
                if weight.plain:
                    parts.setdefault(kept, []).append(product(share, list(weight.factors)))
                else:
                    others.append(summand(weight, share, kept, join))
        return total([join(total(weights), kept) for kept, weights in parts.items()] + others)

    def _in_kept_sums(self, vector: Vector, mask: Expr | None, sums: _Sums) -> dict[Expr, Fraction]:
        """Σ of a vector's elements as a combination of kept sums, new ones if need be."""
        known = sums.span.coordinates(vector)
        lead = next(iter(vector.values()))
        unit = {body: share / lead for body, share in vector.items()}
        if known is None and (value := self._vanishing(unit, mask, sums)) is not None:
            self._needs.add(frozenset(unit.items()))
            return {} if value is const(0) else {value: lead}
        if known is None:
            index = sums.span.add(unit)
            lift = total([element_term(share, body) for body, share in unit.items()])
            axes = tuple(axis for axis in Expr("reduce", (lift,), ("sum", self.axis, "")).axes)
            if mask is not None:
                axes = tuple(dict.fromkeys((*axes, *(axis for axis in mask.axes if axis != self.axis))))
            draft = Draft(self._name(), "sum", lift, mask, None, axes)
            sums.drafts.append(draft)
            self._enlist(draft)
            asking, self._needs = self._needs, set()
            draft.rebase = self._sum(lift, mask, at_new=True) if sees_pivot(lift) else draft.symbol
            draft.needs, self._needs = self._needs, asking
            known = {index: lead}
        self._needs.update(sums.drafts[index].name for index in known)
        return {sums.drafts[index].symbol: share for index, share in known.items()}

    def _rows(self, body: Expr, mask: Expr | None) -> Rows:
        """Σ body at the new pivots: for each weight, the vector of element terms it multiplies."""
        encoder, answer = self._found(*self._ask("sum", body, mask, self.settings.prefer))
        rows = rows_of(answer.term, encoder.decoder(), () if mask is None else mask.axes)
        if rows is None:
            raise Stuck(self._reduction, body, False, "the answer is not linear in the kept sums")
        return rows

    def _vanishing(self, vector: Vector, mask: Expr | None, sums: _Sums) -> Expr | None:
        """A sum that is 0 by what its pivots mean, as Σ w (x − μ) is for the mean μ = Σ w x / Σ w; None if it is not.

        A part may have Σ w = 0 without w = 0.  Its pivot is not finite, its state is kept about 0, and the sum is
        then what is left of it there: Σ w x.
        """
        means = [name for name in dict.fromkeys(part.name for body in vector for part in subterms(body)
                 if part.op == "symbol") if self.pivots.values.get(name, const(0)).op == "divide"]
        if not (means and self._is_zero(vector, mask, means)):
            return None
        undefined = [name for name in means if self.pivots.undefined(name)]
        if not undefined:
            return const(0)
        about_zero = self._about_zero(vector, mask, sums)
        if len(undefined) > 1 or about_zero is None:
            return None
        pivot = symbol(undefined[0], self.pivots.values[undefined[0]].axes)
        return call("where", call("equal", pivot, call("anchor", pivot)), 0, about_zero)

    def _still(self, vector: Vector, mask: Expr | None) -> tuple[Encoder, str]:
        """The sum of a vector's elements at pivots that stand still, as a question."""
        encoder = Encoder(self.axis, self.facts.under(mask), moving=False)
        body = encoder.term(total([element_term(share, element) for element, share in vector.items()]))
        return encoder, f'(Red "sum" "{self._mask_name(mask)}" {body})'

    def _is_zero(self, vector: Vector, mask: Expr | None, means: list[str]) -> bool:
        encoder, question = self._still(vector, mask)
        for name in means:
            self._define_quotient(encoder, symbol(name, self.pivots.values[name].axes), mask)
        answer = self._asked(encoder, question, "raw", "sum")
        return answer.term[0] in ("Num", "Term") and answer.term[1] == ("rational", 0, 1)

    def _about_zero(self, vector: Vector, mask: Expr | None, sums: _Sums) -> Expr | None:
        """The sum with its pivots at 0, over sums that are kept anyway; None if there are none such."""
        encoder, question = self._still(vector, mask)
        rows = rows_of(self._asked(encoder, question, "raw", "sum").term, encoder.decoder(), ())
        free = [] if rows is None else [row for weight, row in rows.items() if weight.plain and not weight.factors]
        known = [sums.span.coordinates(row) for row in free]
        if rows is None or any(row is None for row in known):
            return None
        return total([product(share, [sums.drafts[index].symbol]) for row in known for index, share in row.items()])

    def _define_quotient(self, encoder: Encoder, pivot: Expr, mask: Expr | None) -> None:
        """p = a / b as the equation p · b = a, if a and b are sums of this cascade."""
        sides = [self._as_reduction(encoder, side) for side in self.pivots.values[pivot.name].args]
        if all(sides):
            encoder.lines.append(f"(union (Mul {encoder.term(pivot)} {sides[1]}) {sides[0]})")

    def _as_reduction(self, encoder: Encoder, side: Expr) -> str | None:
        if side.op == "size" and side.axis == self.axis:
            return '(Red "sum" "" (Num (rational 1 1)))'
        result = self.facts.results.get(side.name) if side.op == "symbol" else None
        if result is None or result.monoid != "sum":
            return None
        return f'(Red "sum" "{self._mask_name(result.mask)}" {encoder.term(self.pivots.abstract(result.body))})'

    # one question

    def _ask(self, monoid: str, body: Expr, mask: Expr | None, style: str) -> tuple[Encoder, Answer]:
        encoder = Encoder(self.axis, self.facts.under(mask), linear=monoid == "sum")
        question = f'(Red "{monoid}" "{self._mask_name(mask)}" {encoder.term(body)})'
        return encoder, self._asked(encoder, question, style, monoid)

    def _found(self, encoder: Encoder, answer: Answer) -> tuple[Encoder, Answer]:
        """A question with its answer.  Raises Stuck if some reduction could not be taken apart."""
        if not answer.finite:
            residual = _residual(answer.term, encoder.decoder())
            raise Stuck(self._reduction, residual, not answer.saturated, "a pivot could not be moved out of the elements")
        return encoder, answer

    def _asked(self, encoder: Encoder, question: str, style: str, monoid: str) -> Answer:
        names = encoder.names | {monoid}
        roles = frozenset(("always", style) if monoid == "sum" else ("always", style, "ordered"))
        laws = tuple(law.name for law in relevant(frozenset(names), roles, self.settings.without))
        self.questions.append(asked(tuple(encoder.lines), question, laws, self.settings.limits))
        return self.questions[-1].answer

    def _mask_name(self, mask: Expr | None) -> str:
        return self._masks.setdefault(mask, f"mask{len(self._masks)}")


def _names_in(cascade: Cascade) -> set[str]:
    parts = [part for r in cascade.reductions for part in (r.body, r.mask, r.count) if part is not None]
    terms = subterms(*parts, *cascade.outputs)
    return {term.name for term in terms if term.op in ("input", "param", "symbol")} | {
        axis for term in terms for axis in term.axes} | {r.name for r in cascade.reductions} | {cascade.axis}


def _residual(term: Sexp, decoder: Decoder) -> Expr | None:
    """The smallest reduction that is left in a stuck answer, as an expression."""
    found: list[Sexp] = []

    def walk(part: Sexp) -> None:
        if isinstance(part, tuple):
            if part and part[0] == "Red":
                found.append(part)
            for inner in part:
                walk(inner)

    walk(term)
    if not found:
        return None
    smallest = min(found, key=lambda part: len(str(part)))
    return decoder.expr(smallest[3], lambda kept: symbol("kept"))

