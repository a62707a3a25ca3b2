"""Sums of what is never negative are never negative, also where floats make them a difference of sums.

Σ (y − a − b x)² may be kept as Σ y², Σ x y and Σ x²: where it is nearly 0, roundings of what cancels may leave less
than 0, and a root of that is no number.  Over the reals taking the larger of such a result and 0 changes nothing.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from redfuser_algebra.discover.facts import NEGATIVE, NONNEGATIVE, NONPOSITIVE, POSITIVE, Facts
from redfuser_algebra.discover.form import Component, Result
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import Expr, call, subterms

_DECLARED = {POSITIVE: "greater_equal", NONNEGATIVE: "greater_equal", NONPOSITIVE: "less_equal", NEGATIVE: "less_equal"}


def cancelling(cascade: Cascade, results: tuple[Result, ...], state: tuple[Component, ...], facts: Facts) -> Iterator[str]:
    """The names of the sums of what is never negative whose formulas over the state may come out below 0."""
    known = facts.knowing(_signs(state, facts))
    recurrent = {component.name for component in state if component.monoid == "compose"}
    for result, reduction in zip(results, cascade.reductions, strict=True):
        names = {term.name for term in subterms(result.value) if term.op == "symbol"}
        if reduction.monoid == "sum" and result.value.op != "symbol" and not names & recurrent and (
                facts.under(reduction.mask).sign(reduction.body) in (POSITIVE, NONNEGATIVE)
                and known.sign(result.value) not in (POSITIVE, NONNEGATIVE)):
            yield result.name


def _signs(state: Iterable[Component], facts: Facts) -> Iterator[Expr]:
    """What is known of the signs of sums, as conditions."""
    for component in state:
        sign = facts.under(component.mask).sign(component.lift) if component.monoid == "sum" else ""
        if sign:
            yield call(_DECLARED[sign], component.symbol, 0)


def never_below_zero(result: Result) -> Result:
    """A result that is at least 0."""
    return Result(result.name, call("maximum", result.value, 0), result.axes, result.monoid, result.mask)
