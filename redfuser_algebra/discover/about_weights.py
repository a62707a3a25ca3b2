"""Whether a weight is 0, or above it: e^(x − m)/Z > 0 is x > −inf, and p/Z > 0 is p > 0, whatever the pivots.

Over the reals a product of exponentials is always above 0, and on floats an element at −inf has none of it.  Written so,
the condition sees no pivot.  A weight that only underflows takes part then, so this is done where the weight is a factor of
what is summed: it adds as good as nothing.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from redfuser_algebra.algebra.functions import OPPOSITE
from redfuser_algebra.discover.about_scales import factors
from redfuser_algebra.discover.facts import NONNEGATIVE, POSITIVE, Facts
from redfuser_algebra.discover.simplify import operands
from redfuser_algebra.language.expr import Expr, call, const, substitute


@dataclass(frozen=True)
class Weighed:
    """A term whose questions about `weights` are put to the elements, and what a sum of it is where their scales are not `finite`.

    No weight is above 0 then, and nothing is summed.  But none is 0 either: of those some are NaN.
    """

    term: Expr
    weights: tuple[Expr, ...]
    finite: Expr | None
    otherwise: float


def about_weights(term: Expr, summand: Expr, facts: Facts, op: str) -> Weighed:
    """A term with the questions whether a weight of the summand is above 0 ("greater"), or is 0 ("equal"), put to the elements.

    A weight is a product of elements, exponentials and moving scales.
    """
    parts, above = {factor for factor, _ in factors(summand, True)}, op == "greater"
    questions = [each for each in _required(term) if each.op in ("greater",) * above + (*OPPOSITE,) * (not above)]
    asked = {each: _asked(each, facts) for each in questions if facts.moves(each) and each.args[1] is const(0)}
    found = {each: answer for each, answer in asked.items() if answer is not None and parts >= {*_elements(each.args[0], facts)}}
    weights = tuple(each.args[0] for each in found)
    scales = dict.fromkeys(scale for weight in weights for part in ([weight] if above else _exponents(weight)) for scale in _scales(part, facts))
    finite = reduce(lambda a, b: a & b, (call("equal", scale, call("anchor", scale)) for scale in scales)) if scales else None
    return Weighed(substitute(term, found), weights, finite, 0 if above else math.nan)


def _exponents(weight: Expr) -> list[Expr]:
    return [factor.args[0] for factor, _ in factors(weight, True) if factor.op in ("exp", "exp2")]


def summand(body: Expr) -> Expr:
    """What is summed, without signs, a choice of nothing, and sums over other axes around it."""
    while body.op in ("negative", "where", "reduce"):
        if body.op == "where" and body.args[2] is not const(0) or body.op == "reduce" and (body.monoid != "sum" or body.mask is not None):
            return body
        body = body.args[1] if body.op == "where" else body.args[0]
    return body


def _required(term: Expr) -> list[Expr]:
    """The conditions without which an element is nothing: of a mask, or of a choice with 0."""
    return operands(term.args[0] if term.op == "where" and term.args[2] is const(0) else term, "logical_and")


def _scales(weight: Expr, facts: Facts) -> list[Expr]:
    """The largest parts of a weight that move and are the same for all elements."""
    if not facts.moves(weight):
        return []
    return [weight] if facts.axis not in weight.axes else [part for arg in weight.args for part in _scales(arg, facts)]


def zero_last(body: Expr) -> Expr:
    """where(a == b, 0, x) as where(a != b, x, 0): what is left out comes last."""
    chosen = body.op == "where" and body.args[0].op in OPPOSITE and body.args[1] is const(0)
    return call("where", call(OPPOSITE[body.args[0].op], *body.args[0].args), body.args[2], 0) if chosen else body


def _elements(weight: Expr, facts: Facts) -> list[Expr]:
    return [factor for factor, _ in factors(weight, True) if facts.axis in factor.axes]


def _asked(term: Expr, facts: Facts) -> Expr | None:
    parts = list(factors(term.args[0], True))
    asked = [_of_factor(factor, above, term.op, facts) for factor, above in parts]
    unsigned = [factor for factor in _elements(term.args[0], facts) if not facts.sign(factor)]
    if None in asked or not any(asked) or term.op == "greater" and len(unsigned) > 1:
        return None
    return reduce(lambda a, b: a | b if term.op == "equal" else a & b, (each for part in asked for each in part))


def _of_factor(factor: Expr, above: bool, op: str, facts: Facts) -> tuple[Expr, ...] | None:
    """What is asked of one factor; None if its own answer may move, or turn that of others."""
    if facts.axis not in factor.axes:
        divides = op == "greater" and not above
        return () if facts.sign(factor) in ((POSITIVE, NONNEGATIVE) if divides else (POSITIVE,)) else None
    if factor.op in ("exp", "exp2") and above:
        element = _element(factor.args[0], facts)
        return None if element is None else (call(op, element, -math.inf),)
    return None if facts.moves(factor) or not above or facts.sign(factor) not in (POSITIVE, NONNEGATIVE, "") else (call(op, factor, 0),)


def _element(exponent: Expr, facts: Facts) -> Expr | None:
    """x of an exponent x, x ± p or c · x with c > 0."""
    if not facts.moves(exponent):
        return exponent
    a, b = (*exponent.args, exponent)[:2]
    if exponent.op == "add" and facts.axis not in a.axes:
        return _element(b, facts)
    if exponent.op in ("add", "subtract") and facts.axis not in b.axes:
        return _element(a, facts)
    if exponent.op in ("multiply", "divide") and facts.axis not in b.axes and facts.sign(b) == POSITIVE:
        return _element(a, facts)
    return None
