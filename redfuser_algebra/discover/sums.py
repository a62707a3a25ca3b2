"""Sums: Σ F at new pivots is linear in kept sums, so exact linear algebra says which sums to keep.

In: elements over old pivots.  Out: combinations of drafts; new drafts where the old ones do not span the answer.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from redfuser_algebra.discover.asking import Asked, Asker, Unmoved
from redfuser_algebra.discover.decode import product, times, total
from redfuser_algebra.discover.draft import Draft, Drafts
from redfuser_algebra.discover.encode import Encoder, sees_pivot
from redfuser_algebra.discover.facts import NEGATIVE, NONPOSITIVE
from redfuser_algebra.discover.linear import Span, Vector
from redfuser_algebra.discover.pivots import Pivots, old_pivot
from redfuser_algebra.discover.simplify import settled
from redfuser_algebra.discover.summands import Rows, at_old, element_term, rows_of, scaled, summand
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.names import primed, symbol_names


@dataclass
class _Kept:
    """The sums kept under one mask: vectors over element terms, and the draft of each."""

    span: Span = field(default_factory=Span)
    drafts: list[Draft] = field(default_factory=list)

    def combination(self, coordinates: dict[int, Fraction]) -> dict[Expr, Fraction]:
        """Coordinates as a combination of the drafts' symbols."""
        return {self.drafts[index].symbol: share for index, share in coordinates.items()}


class Sums:
    """The sums of one cascade."""

    def __init__(self, asker: Asker, pivots: Pivots, drafts: Drafts) -> None:
        self.asker, self.pivots, self.drafts = asker, pivots, drafts
        self._kept: dict[Expr | None, _Kept] = {}

    def result(self, body: Expr, mask: Expr | None) -> Expr:
        """Σ body over kept sums, at the pivots at which they are kept."""
        return self._combined(at_old(self._rows(body, mask), old_pivot), mask, times)

    def _rebase(self, body: Expr, mask: Expr | None) -> Expr:
        """Σ body at new pivots over sums kept at the old ones."""
        return self._combined(self._rows(body, mask), mask, scaled)

    def _combined(self, rows: Rows, mask: Expr | None, join) -> Expr:
        parts: dict[Expr, list[Expr]] = {}
        others: list[Expr] = []
        for weight, vector in rows.items():
            for kept, share in self._in_kept_sums(vector, mask).items():
                if weight.plain:
                    parts.setdefault(kept, []).append(product(share, list(weight.factors)))
                else:
                    others.append(summand(weight, share, kept, join))
        return total([join(total(weights), kept) for kept, weights in parts.items()] + others)

    def _rows(self, body: Expr, mask: Expr | None) -> Rows:
        """Σ body at new pivots: for each weight, the vector of element terms it multiplies."""
        asked = self.asker.moving("sum", body, mask, self.asker.settings.prefer).found()
        rows = rows_of(asked.answer.term, asked.decoder, () if mask is None else mask.axes)
        if rows is None:
            raise Unmoved(body, "the answer is not linear in the kept sums")
        return rows

    def _in_kept_sums(self, vector: Vector, mask: Expr | None) -> dict[Expr, Fraction]:
        """Σ of a vector's elements as a combination of kept sums, new ones if need be."""
        kept = self._kept.setdefault(mask, _Kept())
        known = kept.span.coordinates(vector)
        if known is None:
            lead = next(iter(vector.values()))
            unit = {element: share / lead for element, share in vector.items()}
            value = self._vanishing(unit, mask, kept)
            if value is not None:
                self.drafts.needs.add(frozenset(unit.items()))
                return {} if value is const(0) else {value: lead}
            value = self._moved_here(unit, kept, mask)
            if value is not None:
                return {value: lead}
            known = {self._keep(unit, mask, kept): lead}
        self.drafts.needs.update(kept.drafts[index].name for index in known)
        return kept.combination(known)

    def _keep(self, vector: Vector, mask: Expr | None, kept: _Kept) -> int:
        """A new sum to keep, with its rebase; its place among the kept ones."""
        index = kept.span.add(vector)
        lift = _lift(vector)
        axes = Expr("reduce", (lift,) if mask is None else (lift, mask), ("sum", self.asker.axis, "")).axes
        draft = self.drafts.new("sum", lift, mask, None, axes)
        kept.drafts.append(draft)
        with self.drafts.moving(draft):
            draft.rebase = self._rebase(lift, mask) if sees_pivot(lift) else draft.symbol
        return index

    # exponentials about another pivot

    def _moved_here(self, vector: Vector, kept: _Kept, mask: Expr | None) -> Expr | None:
        """A sum that is one of the kept ones moved from pivot p to q: Σ e^(x − q) is e^(p − q) Σ e^(x − p).

        Only from where no exponent is positive: what is kept there neither overflows nor vanishes.
        """
        lift = _lift(vector)
        for draft in kept.drafts if _centres(lift) else ():
            for p, q in zip(_centres(draft.lift), _centres(lift), strict=False):
                if p is not q and draft.rebase is not None and substitute(lift, {q: p}) is draft.lift and self._safe(draft, mask):
                    self.drafts.needs.add(draft.name)
                    return settled(substitute(draft.rebase, {primed(p): q}), old_pivot)
        return None

    def _safe(self, draft: Draft, mask: Expr | None) -> bool:
        exponents = [term.args[0] for term in subterms(draft.lift) if term.op in ("exp", "exp2")]
        facts = self.asker.facts.under(mask)
        return exponents != [] and all(facts.sign(exponent) in (NEGATIVE, NONPOSITIVE) for exponent in exponents)

    # sums that the meaning of their pivots makes 0

    def _vanishing(self, vector: Vector, mask: Expr | None, kept: _Kept) -> Expr | None:
        """A sum that is 0 by what its pivots mean, as Σ w (x − μ) is for the mean μ = Σ w x / Σ w; None if it is not.

        A part may have Σ w = 0 without w = 0.  Its pivot is not finite, its state is kept about 0, and the sum is
        then what is left of it there: Σ w x.
        """
        means = [name for name in symbol_names(*vector) if self.pivots.values.get(name, const(0)).op == "divide"]
        if not (means and self._is_zero(vector, mask, means)):
            return None
        undefined = [name for name in means if self.pivots.undefined(name)]
        if not undefined:
            return const(0)
        about_zero = self._about_zero(vector, mask, kept)
        if len(undefined) > 1 or about_zero is None:
            return None
        pivot = symbol(undefined[0], self.pivots.values[undefined[0]].axes)
        return call("where", call("equal", pivot, call("anchor", pivot)), 0, about_zero)

    def _is_zero(self, vector: Vector, mask: Expr | None, means: list[str]) -> bool:
        encoder = self.asker.still(mask)
        body = encoder.term(_lift(vector))
        for name in means:
            self._define_quotient(encoder, symbol(name, self.pivots.values[name].axes))
        term = self.asker.ask(encoder, "sum", body, mask, "raw").answer.term
        return term[0] in ("Num", "Term") and term[1] == ("rational", 0, 1)

    def _about_zero(self, vector: Vector, mask: Expr | None, kept: _Kept) -> Expr | None:
        """The sum with its pivots at 0, over sums that are kept anyway; None if there are none such."""
        encoder = self.asker.still(mask)
        asked: Asked = self.asker.ask(encoder, "sum", encoder.term(_lift(vector)), mask, "raw")
        rows = rows_of(asked.answer.term, asked.decoder, ())
        free = [] if rows is None else [row for weight, row in rows.items() if weight.plain and not weight.factors]
        known = [kept.span.coordinates(row) for row in free]
        if rows is None or any(row is None for row in known):
            return None
        return total([product(share, [part]) for row in known for part, share in kept.combination(row).items()])

    def _define_quotient(self, encoder: Encoder, pivot: Expr) -> None:
        """p = a / b as the equation p · b = a, if a and b are sums of this cascade."""
        sides = [self._as_reduction(encoder, side) for side in self.pivots.values[pivot.name].args]
        if all(sides):
            encoder.lines.append(f"(union (Mul {encoder.term(pivot)} {sides[1]}) {sides[0]})")

    def _as_reduction(self, encoder: Encoder, side: Expr) -> str | None:
        if side.op == "size" and side.axis == self.asker.axis:
            return self.asker.reduction("sum", None, "(Num (rational 1 1))")
        result = self.pivots.facts.results.get(side.name) if side.op == "symbol" else None
        if result is None or result.monoid != "sum":
            return None
        return self.asker.reduction("sum", result.mask, encoder.term(self.pivots.abstract(result.body)))


def _centres(lift: Expr) -> list[Expr]:
    """The pivots that elements are shifted by in a lift."""
    return list(dict.fromkeys(term.args[1] for term in subterms(lift) if term.op == "shift" and term.args[1].op == "symbol"))


def _lift(vector: Vector) -> Expr:
    return total([element_term(share, element) for element, share in vector.items()])
