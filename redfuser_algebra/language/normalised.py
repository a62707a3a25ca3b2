"""Recurrences of which no derivative sees the size: their states are divided by their sum at every element.

In: a scan, and the derivatives by its states.  Out: the scan of p = h / Σh, where that is enough to know.  If f(λh) = λ·f(h)
and ȳ(λh) = ȳ(h)/λ, then p ← f(p)/c with c = Σ f(p), and the adjoint a of h follows as b = a·Σh: b ← ∂fᵀ b / c.  Both stay
near 1 where h leaves the range of floats one way, and a the other.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.language.expr import Expr, const, substitute, subterms, unbound_states
from redfuser_algebra.language.factored import Product, single

Seen = Mapping[tuple[int, str], Product]
"""Derivatives by the states of a scan: by place, and where they are seen (after or before every element, or "" at the end)."""

_OF_ONE_DEGREE = frozenset(("add", "subtract", "maximum", "minimum", "negative", "abs"))
_NEVER_NEGATIVE = COMPARISONS | {"exp", "exp2", "abs", "sqrt", "size", "index", "state"}
_AS_THEIR_PARTS = frozenset(("add", "multiply", "divide", "reciprocal", "maximum", "minimum"))


@dataclass(frozen=True)
class Normalised:
    """The scan of p and all its `states`, what is seen of h in terms of p, and c, over the states before an element."""

    scan: Expr
    states: frozenset[Expr]
    seen: Seen
    divisor: Expr


def normalised(scan: Expr, seen: Seen) -> Normalised | None:
    """A scan with its states divided by their sum, if no derivative sees their size and they are never negative."""
    axis, names, *_ = scan.attrs
    starts, steps = scan.args[:len(names)], scan.args[len(names):]
    held = {*_all_of(scan, scan.args)}
    if not (all(degree(step, {*unbound_states(step)}, axis) == 1 for step in steps) and all(map(_never_negative, scan.args))
            and all(degree(found.expr, held, axis) == -1 for found in seen.values())):
        return None
    divisor = reduce(Expr.__add__, steps)
    within = (*starts, *(step / divisor for step in steps))
    now = dict(zip(_all_of(scan, scan.args), _all_of(scan, within), strict=True))
    return Normalised(Expr("scan", within, scan.attrs), frozenset(now.values()), {where: single(substitute(found.expr, now)) for where, found in seen.items()}, divisor)


def degree(term: Expr, states: Collection[Expr], axis: str) -> int | None:
    """The d with which λ^d multiplies a term after the first element if λ multiplies the states; None if there is none."""
    if term in states:
        return 1
    if not any(part in states for part in subterms(term)):
        return 0
    parts = term.args
    if term.op == "where" and not any(part in states for part in subterms(parts[0])):
        holds = after_the_first(parts[0], axis)
        parts = parts[1:] if holds is None else parts[1:2] if holds else parts[2:]
    elif term.op not in _OF_ONE_DEGREE | {"multiply", "divide", "reciprocal"}:
        return None
    found = [degree(part, states, axis) for part in parts if not (part.op == "const" and part.value == 0 and term.op != "divide")]
    if None in found:
        return None
    if term.op in ("multiply", "divide", "reciprocal"):
        return sum(found) if term.op == "multiply" else found[0] - found[1] if term.op == "divide" else -found[0]
    return found[0] if len({*found}) == 1 else None


def after_the_first(condition: Expr, axis: str) -> bool | None:
    """What a condition is at all positions but the first, if it is one thing there."""
    about = condition.args and condition.args[0] is Expr("index", (), (axis,)) and condition.args[1] is const(0)
    return {"equal": False, "not_equal": True, "greater": True}.get(condition.op) if about else None


def _all_of(scan: Expr, args: tuple[Expr, ...]) -> Iterator[Expr]:
    """Every state of a scan, wherever it is seen, with these starts and steps."""
    axis, names, *_ = scan.attrs
    return (Expr("scan", args, (axis, names, place, every)) for place in range(len(names)) for every in ("", "after", "before"))


def _never_negative(term: Expr) -> bool:
    if term.op == "const":
        return term.value >= 0
    parts = term.args[1:] if term.op == "where" else term.args if term.op in _AS_THEIR_PARTS else None
    return term.op in _NEVER_NEGATIVE or parts is not None and all(map(_never_negative, parts))
