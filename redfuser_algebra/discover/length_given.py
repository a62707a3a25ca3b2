"""The length of the reduced axis as something known before the sweep, where it stands alone in an element or a mask.

Seen as it grows, the length is a pivot like any other, and usually that is enough (a mean divides by it).  But a mask
such as `index(l) <= index(m) + size(l) - size(m)` lets other elements through at every length: it takes the final
one, which a call knows and a stream must be told.
"""
from __future__ import annotations

from dataclasses import replace

from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.composition import axis_copy
from redfuser_algebra.language.expr import Expr, children_replaced, substitute, subterms


def length_given(cascade: Cascade) -> Cascade | None:
    """The cascade with its length known beforehand wherever an element or mask sees it alone; None if none does.

    A copy of the axis stands for the whole of it, so the size of the copy is the final length.
    """
    seen, final = (Expr("size", (), (axis,)) for axis in (cascade.axis, axis_copy(cascade.axis, 1)))

    def reduced(term: Expr) -> bool:
        return term.op == "reduce" and term.axis == cascade.axis

    def known(term: Expr) -> Expr:
        if cascade.axis in term.axes or reduced(term):
            return children_replaced(term, tuple(map(known, term.args)))
        results = [part for part in subterms(term) if part.op == "symbol" or reduced(part)]
        return substitute(term, {part: known(part) for part in results if reduced(part)} if results else {seen: final})

    reductions = tuple(
        replace(each, body=known(each.body), mask=None if each.mask is None else known(each.mask), source=known(each.source))
        for each in cascade.reductions)
    pairs = zip(reductions, cascade.reductions, strict=True)
    alone = any(one.body is not other.body or one.mask is not other.mask for one, other in pairs)
    return replace(cascade, reductions=reductions) if alone else None
