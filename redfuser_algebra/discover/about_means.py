"""Elements that are sums of several parts, written about the mean of each: y − (β x + ν − β μ) is (y − ν) − β (x − μ).

As it stands an offset such as ν − β μ is a pivot of its own, wild in a small part where β is, and a state about it
cancels when it moves.  About the means, β is only a factor.  That both are the same element is checked in exact
arithmetic, as an identity of polynomials in the results.
"""
from __future__ import annotations

from collections.abc import Iterator

from redfuser_algebra.discover.decode import times, total
from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.discover.simplify import operands
from redfuser_algebra.language.expr import Expr, call, const, replaced, subterms
from redfuser_algebra.language.polynomial import Polynomials


def about_means(body: Expr, facts: Facts) -> Expr:
    """`body` with every sum of elements and an offset written about the elements' means, where that leaves no offset."""
    return replaced(body, lambda term: _centred(term, facts)) if facts.moves(body) else body


def _centred(term: Expr, facts: Facts) -> Expr | None:
    """Σ c_i (a_i − m_i) for a term Σ c_i a_i + c_0 with two elements or more, if c_0 = −Σ c_i m_i; else None."""
    if term.op not in ("add", "subtract") or facts.axis not in term.axes or not facts.moves(term):
        return None
    parts = list(_parts(term, const(1), facts))
    elements = dict.fromkeys(element for _, element in parts if element is not None)
    offset = [factor for factor, element in parts if element is None]
    if len(elements) < 2 or not offset or any(map(facts.moves, elements)):
        return None
    means = {element: _mean(element, offset, facts) for element in elements}
    if any(mean is None for mean in means.values()):
        return None
    left = [*offset, *(factor * means[element] for factor, element in parts if element is not None)]
    if not Polynomials().vanishes(total(left)):
        return None
    return total([_weighted(factor, call("subtract", element, means[element])) for factor, element in parts
                  if element is not None])


def _weighted(factor: Expr, element: Expr) -> Expr:
    """factor · element, its sign in front."""
    return -times(factor.args[0], element) if factor.op == "negative" else times(factor, element)


def _parts(term: Expr, factor: Expr, facts: Facts) -> Iterator[tuple[Expr, Expr | None]]:
    """The summands of a term: a loop-invariant factor and an element; None for the element of an offset."""
    a, b = (*term.args, None, None)[:2]
    if facts.axis not in term.axes:
        yield times(factor, term), None
    elif term.op in ("add", "subtract"):
        yield from _parts(a, factor, facts)
        yield from _parts(b, factor if term.op == "add" else _minus(factor), facts)
    elif term.op == "negative":
        yield from _parts(a, _minus(factor), facts)
    elif term.op == "multiply" and (facts.axis not in a.axes or facts.axis not in b.axes) and facts.moves(term):
        fixed, element = (a, b) if facts.axis not in a.axes else (b, a)
        yield from _parts(element, times(factor, fixed), facts)
    else:
        yield factor, term


def _minus(factor: Expr) -> Expr:
    return const(-factor.value) if factor.op == "const" else times(const(-1), factor)


def _mean(element: Expr, offset: list[Expr], facts: Facts) -> Expr | None:
    """A quotient in the offset that has a sum over the element above the line; what it means is not looked at."""
    for quotient in subterms(*offset):
        above = quotient.args[0] if quotient.op == "divide" else None
        result = facts.results.get(above.name) if above is not None and above.op == "symbol" else None
        if result is not None and result.monoid == "sum" and any(
                element is factor for factor in operands(result.body, "multiply")):
            return quotient
    return None
