"""Sums of exponentials about a pivot, written about their largest exponent: e^(x − m) − e^(−m) is e^(M − m) (e^(x − M) − e^(−M)).

With M = max(m, 0) no exponent in the parentheses is ever positive, so that what is kept there cannot overflow in a part
whose m is far below 0.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, replaced


def about_largest(body: Expr, facts: Facts) -> Expr:
    """`body` with every sum of exponentials about one pivot p, of elements and of constants, about max(p, constants)."""
    return replaced(body, lambda term: _moved(term, facts)) if facts.moves(body) else body


def _moved(term: Expr, facts: Facts) -> Expr | None:
    if term.op not in ("add", "subtract"):
        return None
    parts = [_exponent(part, facts) for part in _operands(term)]
    if None in parts:
        return None
    pivots, exponents = {p for _, p in parts}, [a for a, _ in parts]
    fixed = dict.fromkeys(a for a in exponents if facts.axis not in a.axes)
    if len(pivots) != 1 or not fixed or len(fixed) == len(set(exponents)):
        return None
    pivot, = pivots
    if not all(facts.below(a, pivot) for a in exponents if a not in fixed) or all(facts.below(a, pivot) for a in fixed):
        return None
    largest = reduce(lambda p, a: call("maximum", p, a), fixed, pivot)
    return call("exp", call("subtract", largest, pivot)) * _about(term, largest, facts)


def _about(term: Expr, pivot: Expr, facts: Facts) -> Expr:
    if term.op in ("add", "subtract", "negative"):
        return children_replaced(term, tuple(_about(arg, pivot, facts) for arg in term.args))
    exponent, _ = _exponent(term, facts)
    return call("exp", call("subtract", exponent, pivot))


def _operands(term: Expr) -> Iterator[Expr]:
    if term.op in ("add", "subtract", "negative"):
        for arg in term.args:
            yield from _operands(arg)
    else:
        yield term


def _exponent(term: Expr, facts: Facts) -> tuple[Expr, Expr] | None:
    """a and p of e^(a − p) for a pivot p and an a that does not move; None for any other term."""
    inside = term.args[0] if term.op == "exp" else None
    if inside is None or inside.op not in ("subtract", "negative"):
        return None
    a, p = inside.args if inside.op == "subtract" else (const(0), inside.args[0])
    return (a, p) if facts.moves(p) and facts.axis not in p.axes and not facts.moves(a) else None
