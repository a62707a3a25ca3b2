"""What a component becomes when no element comes any more, and its pivot has ended at ±inf or 0.

In: a rebase rule.  Out: formulas over the pivots as they ended, to be evaluated with the partial operations.
"""
from __future__ import annotations

import math
from collections.abc import Collection

from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, pivots_moved


def ending(own: Expr, rebase: Expr, still: Collection[str]) -> tuple[Expr, Expr] | None:
    """Where a component cannot stay at its pivots, and what it is there; None for one without pivots.

    It cannot stay where the rebase of components that are 1 from p to p is NaN.  Its elements were taken about the
    anchors of its pivots, so it is moved from those to the pivots themselves: Σ e^(x − m) over elements that m = −inf
    has not seen is Σ e^x · e^(0 + inf).  A rule that reads components other than those that stand `still` has no
    such value: sums of different powers of inf tell nothing.  Nor has one that adds to a component which is infinite
    itself: its elements may be what made the pivot infinite, as in a variance, and inf − inf is NaN.
    """
    symbols = [term for term in subterms(rebase) if term.op == "symbol"]
    pivots = set(pivots_moved(rebase))
    if not pivots:
        return None
    ended = {term: symbol(term.name.removesuffix(PRIME), term.axes) for term in symbols}
    ones = {term: now if now.name in pivots else const(1.0) for term, now in ended.items()}
    others = {now.name for now in ended.values()} - pivots - {own.name}
    anchors = {term: ended[part] if part.name.endswith(PRIME) else _finite(part)
               for term in subterms(rebase) if term.op == "anchor" and (part := term.args[0]).op == "symbol"}
    stuck = call("isnan", substitute(rebase, ones))
    if others - set(still) or not anchors:
        return stuck, const(math.nan)
    moved = substitute(rebase, anchors | {t: now for t, now in ended.items() if t is not now})
    return stuck, _where_finite(own, moved, const(math.nan)) if others else moved


def _finite(pivot: Expr) -> Expr:
    """The anchor of a pivot, as a choice: partial operations know no anchors."""
    return _where_finite(pivot, pivot, const(0))


def _where_finite(value: Expr, then: Expr, otherwise: Expr) -> Expr:
    return call("where", call("equal", call("subtract", value, value), 0), then, otherwise)
