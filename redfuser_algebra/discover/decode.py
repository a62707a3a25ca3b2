"""Answers of the e-graph as expressions: monomials as products, conditions among their factors as selections.

In: extracted s-expressions and the table of leaves.  Out: expressions, in an order that depends on nothing but the terms.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.discover.egraph import Sexp
from redfuser_algebra.discover.simplify import operands
from redfuser_algebra.language.composition import copied_axis, with_leaves
from redfuser_algebra.language.expr import Expr, call, const, subterms

CONTRACTIONS = {"sum": ("contract", "Con"), "max": ("largest", "Largest"), "min": ("smallest", "Smallest")}
"""Reductions over another axis with a pivot inside: their name in the law table and their node."""
_CONTRACTED = {node: monoid for monoid, (_, node) in CONTRACTIONS.items()}


class Decoder:
    """From extracted s-expressions to expressions; `kept` makes the symbol of a component."""

    def __init__(self, leaves: dict[str, Expr]) -> None:
        self.leaves = leaves

    def expr(self, term: Sexp, kept: Callable[[Sexp], Expr]) -> Expr:
        """The expression a term means; factors are put in the order of their text, so the result is unique."""
        match term:
            case ("Num", ("rational", numerator, denominator)):
                return number(Fraction(numerator, denominator))
            case ("Term", ("rational", numerator, denominator), *bags):
                factors = [self.factor(item, kept) for bag in bags for item in bag[1:]]
                return product(Fraction(numerator, denominator), factors)
            case ("Add", a, b):
                return total([self.expr(a, kept), self.expr(b, kept)])
            case ("Mul", a, b):
                return self._multiplied(self.expr(a, kept), self.expr(b, kept))
            case ("Con" | "Largest" | "Smallest" as node, axis, body):
                return contraction(axis, self.expr(body, kept), _CONTRACTED[node])
            case ("Kept", *_):
                return kept(term)
            case ("Rounded", how, a):
                return _applied(how, (self.expr(a, kept),))
            case (_, head, *args):
                return _applied(head, tuple(self.expr(arg, kept) for arg in args))
        raise ValueError(f"not a term: {term}")

    def _multiplied(self, a: Expr, b: Expr) -> Expr:
        """a · b with its factors in the order of their text, like those of a monomial."""
        whole = times(a, b)
        factors = operands(whole, "multiply")
        return product(Fraction(1), factors) if len(factors) > 1 and factors[0].op != "const" else whole

    def factor(self, term: Sexp, kept: Callable[[Sexp], Expr]) -> Expr:
        """A factor of a monomial: a leaf, or an opaque function of one kind."""
        return self.leaves[term[1]] if term[0] == "Leaf" else self.expr(term[1], kept)


def addends(term: Sexp, bound: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Sexp]]:
    """The summands of an extracted sum, each with the axes it is contracted over."""
    match term:
        case ("Add", a, b):
            yield from addends(a, bound)
            yield from addends(b, bound)
        case ("Con", axis, body):
            yield from addends(body, (*bound, axis))
        case _:
            yield bound, term


def number(value: Fraction) -> Expr:
    """An exact number as a constant: an int where it is one."""
    return const(value.numerator if value.denominator == 1 else value.numerator / value.denominator)


def product(coefficient: Fraction, factors: list[Expr]) -> Expr:
    """coefficient · Π factors, in the order of their text; conditions among the factors select instead of multiply."""
    conditions, others = [], []
    for factor in factors:
        while factor.op == "where" and factor.args[2] is const(0):
            conditions.append(factor.args[0])
            factor = factor.args[1]
        if factor is not const(1):
            (conditions if is_condition(factor) else others).append(factor)
    others.sort(key=repr)
    result = None
    for factor in others:
        result = factor if result is None else result * factor
    if result is None:
        result = number(coefficient)
    elif coefficient == -1:
        result = -result
    elif coefficient != 1:
        result = number(coefficient) * result
    for condition in sorted(dict.fromkeys(conditions), key=repr):
        result = call("where", condition, result, 0)
    return result


def is_condition(factor: Expr) -> bool:
    """Whether a factor is a truth value, which counts as 1 or 0."""
    if factor.op == "reduce":
        return factor.monoid in ("any", "all")
    return factor.op in FUNCTIONS and FUNCTIONS[factor.op].boolean


def times(a: Expr, b: Expr) -> Expr:
    """a · b with constants folded, and conditions turned into selections."""
    for one, other in ((a, b), (b, a)):
        if one.op == "const":
            if one.value == 1:
                return other
            if one.value == -1:
                return -other
        if is_condition(one):
            return call("where", one, other, 0)
        if one.op == "where" and one.args[2] is const(0):
            return call("where", one.args[0], times(one.args[1], other), 0)
    return a * b


def total(parts: list[Expr]) -> Expr:
    """The sum of the parts; a negated part is subtracted, zeros are left out."""
    result = None
    for part in parts:
        if part.op == "const" and part.value == 0:
            continue
        if result is None:
            result = part
        elif part.op == "negative":
            result = result - part.args[0]
        else:
            result = result + part
    return const(0) if result is None else result


def contraction(axis: str, body: Expr, monoid: str = "sum") -> Expr:
    """⊕ over `axis`, under the axis' own name again where nothing else in the body has it."""
    own = copied_axis(axis)
    if own not in {used for term in subterms(body) for used in term.axes}:
        body, axis = with_leaves(body, {}, {axis: own}), own
    return Expr("reduce", (body,), (monoid, axis, ""))


def _applied(head: str, args: tuple[Expr, ...]) -> Expr:
    op, *attrs = head.split(":")
    if op == "reduce":
        return Expr(op, args, tuple(attrs))
    return Expr(op, args, tuple(value == "True" if value in ("True", "False") else value for value in attrs))
