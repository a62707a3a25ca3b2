"""What is rounded, written as an element over one scale: round(x · (127 / s)) rounds x / (s / 127).

So there is one way for an element and a moving scale to meet, whatever the order of the factors: the law that moves
roundings knows that one.  Only roundings that may be moved are looked into.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, rewritten


def about_scales(body: Expr, facts: Facts) -> Expr:
    """`body` with every product and quotient of elements and moving scales inside a reassociable rounding as one quotient."""
    def over_scale(term: Expr) -> Expr:
        movable = term.op in ("round", "cast") and term.attrs[-1]
        return children_replaced(term, (_over_scale(term.args[0], facts),)) if movable else term

    return rewritten(body, over_scale) if facts.moves(body) else body


def _over_scale(term: Expr, facts: Facts) -> Expr:
    parts = list(factors(term, True))
    scales = [(factor, above) for factor, above in parts if facts.axis not in factor.axes]
    elements = [(factor, above) for factor, above in parts if facts.axis in factor.axes]
    if not any(facts.moves(scale) for scale, _ in scales) or any(facts.moves(element) for element, _ in elements):
        return term
    scales.sort(key=lambda each: not facts.moves(each[0]))
    return call("divide", _quotient(elements), _quotient((scale, not above) for scale, above in scales))


def factors(term: Expr, above: bool) -> Iterator[tuple[Expr, bool]]:
    """The factors of a term, each with whether it stands above the line."""
    if term.op in ("multiply", "divide"):
        yield from factors(term.args[0], above)
        yield from factors(term.args[1], above == (term.op == "multiply"))
    elif term.op == "reciprocal":
        yield from factors(term.args[0], not above)
    else:
        yield term, above


def _quotient(factors: Iterable[tuple[Expr, bool]]) -> Expr:
    sides: dict[bool, list[Expr]] = {True: [], False: []}
    for factor, above in factors:
        sides[above].append(factor)
    over, under = (reduce(lambda a, b: a * b, side) if side else const(1) for side in sides.values())
    return call("divide", over, under) if sides[False] else over
