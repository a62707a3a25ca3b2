"""Expressions rewritten for reading: the same value over the reals, in the order in which people write it.

In: expressions as the search leaves them.  Out: expressions in which total twins are the operations they complete,
products have numbers first and equal factors as powers, and −1·x is a subtraction.  Nothing computes with the result.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.language.expr import LEAVES, Expr, call, const, rewritten, subterms

RANK = {"const": 0, "param": 1, "size": 1, "symbol": 2, "input": 3, "index": 3, "state": 2, "reduce": 5, "scan": 5}
"""Where a factor stands in a product: numbers, values, arrays, functions (4), and sums last, which reach far right."""


def tidied(expr: Expr) -> Expr:
    """`expr` as a person would write it.  Factors of one kind (arrays, functions, …) stay in the order they had."""
    return rewritten(expr, _tidied)


def _tidied(term: Expr) -> Expr:
    if term.op in TOTAL_TWINS:
        term = call(TOTAL_TWINS[term.op], *term.args)
    if term.op == "identity":
        return term.args[0]
    if term.op == "where" and is_certain(term.args[0]):
        return term.args[1]
    if term.op == "reduce" and term.monoid == "sum" and term.body is const(0):
        return const(0)
    if term.op in ("multiply", "divide", "reciprocal"):
        return _product(term)
    return _sum(term) if term.op in ("add", "subtract", "negative") else term


def is_certain(condition: Expr) -> bool:
    """Whether a condition says p = p, as a pivot and its anchor are over the reals."""
    return condition.op == "equal" and condition.args[0] is condition.args[1]


def _product(term: Expr) -> Expr:
    number, above, below = 1, [], []
    for factor, up in _factors(term, True):
        if factor.op == "const" and factor.value < 0:
            number, factor = -number, const(-factor.value)
        if up and _is_whole(factor):
            number = number * factor.value
        elif factor is not const(1) and factor is not const(1.0):
            (above if up else below).append(factor)
    if number == 0:
        return const(0)
    numerator = _powers(above)
    if abs(number) != 1 or not numerator:
        numerator.insert(0, const(abs(number)))
    quotient = _multiplied(numerator)
    if below:
        quotient = call("divide", quotient, _multiplied(_powers(below)))
    return -quotient if number < 0 else quotient


def _is_whole(factor: Expr) -> bool:
    return factor.op == "const" and not isinstance(factor.value, bool) and factor.value == factor.value // 1


def _factors(term: Expr, up: bool) -> Iterator[tuple[Expr, bool]]:
    """The factors of a product, each with whether it stands above the line."""
    if term.op == "multiply":
        yield from _factors(term.args[0], up)
        yield from _factors(term.args[1], up)
    elif term.op == "divide":
        yield from _factors(term.args[0], up)
        yield from _factors(term.args[1], not up)
    elif term.op == "reciprocal":
        yield from _factors(term.args[0], not up)
    elif term.op == "negative":
        yield const(-1), True
        yield from _factors(term.args[0], up)
    else:
        yield term, up


def _powers(factors: list[Expr]) -> list[Expr]:
    """Sorted factors, equal ones collected."""
    counts: dict[Expr, int] = {}
    for factor in factors:
        base, count = factor, 1
        if factor.op == "power" and _is_whole(factor.args[1]) and factor.args[1].value > 0:
            base, count = factor.args[0], int(factor.args[1].value)
        counts[base] = counts.get(base, 0) + count
    ordered = sorted(counts, key=lambda base: RANK.get(base.op, 4))
    return [base if counts[base] == 1 else call("power", base, counts[base]) for base in ordered]


def _multiplied(factors: list[Expr]) -> Expr:
    product = factors[0] if factors else const(1)
    for factor in factors[1:]:
        product = call("multiply", product, factor)
    return product


def _sum(term: Expr) -> Expr:
    addends = list(_addends(term, 1))
    first, *rest = [part for part in addends if part[1] is not const(0)] or addends[:1]
    total = first[1] if first[0] > 0 else -first[1]
    for sign, addend in rest:
        total = call("add" if sign > 0 else "subtract", total, addend)
    return total


def _addends(term: Expr, sign: int) -> Iterator[tuple[int, Expr]]:
    if term.op in ("add", "subtract"):
        yield from _addends(term.args[0], sign)
        yield from _addends(term.args[1], sign if term.op == "add" else -sign)
    elif term.op == "negative":
        yield from _addends(term.args[0], -sign)
    elif term.op == "const" and not isinstance(term.value, bool) and term.value < 0:
        yield -sign, const(-term.value)
    else:
        yield sign, term


def repeated_elements(exprs: Iterable[Expr], axis: str, taken: Collection[str]) -> dict[Expr, str]:
    """Names for what is computed of an element more than once and from the element alone (no symbol in it).

    Conditions are not named: they say more where they stand.
    `exprs` must be tidied; x, or x1, x2, … are the names, other than those `taken`.
    """
    free: dict[Expr, bool] = {}
    uses: dict[Expr, int] = {}
    for root in exprs:
        for term in subterms(root):
            free[term] = term.op not in ("symbol", "state") and all([free[arg] for arg in term.args])
        for term in _largest(root, axis, free):
            uses[term] = uses.get(term, 0) + 1
    found = [term for term, number in uses.items() if number > 1]
    stems = ["x"] if len(found) == 1 and "x" not in taken else [f"x{n}" for n in range(1, len(found) + len(taken) + 1)]
    return dict(zip(found, [stem for stem in stems if stem not in taken], strict=False))


def _largest(term: Expr, axis: str, free: dict[Expr, bool]) -> Iterator[Expr]:
    boolean = term.op in FUNCTIONS and FUNCTIONS[term.op].boolean
    if free[term] and axis in term.axes and not boolean:
        if term.op not in LEAVES:
            yield term
    else:
        for arg in term.args:
            yield from _largest(arg, axis, free)
