"""What can be told from the formula alone: bodies of finite rank, and windows along the axis.

A body that is a finite sum of products g(x)·h(p) can always be carried, however many products there are; a formula
that compares the position with a constant may look at a bounded window only.  Neither may be refuted by examples.
"""
from __future__ import annotations

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.discover.refusal import ROUNDINGS
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, subterms

_LINEAR = ("add", "subtract", "negative")
_COMPARED = (*COMPARISONS, "minimum", "maximum")
_OF_PRODUCTS = ("log", "log2", "abs", "sign")
_OF_SUMS = ("exp", "exp2", "expm1", "sin", "cos")


class Separation:
    """How a body mixes elements, which vary along `axis`, with pivots: symbols of earlier results, and elements along `others`."""

    def __init__(self, axis: str, others: frozenset[str] = frozenset()) -> None:
        self.axis, self.others = axis, others

    def moves(self, term: Expr) -> bool:
        """Whether a term sees a pivot."""
        return any(part.op == "symbol" or part.op == "size" and part.axis == self.axis or not self.others.isdisjoint(part.axes)
                   for part in subterms(term))

    def one_sided(self, term: Expr) -> bool:
        """Whether a term is free of pivots or free of elements."""
        return self.axis not in term.axes or not self.moves(term)

    def constant(self, term: Expr) -> bool:
        """Whether a term is free of both."""
        return self.axis not in term.axes and not self.moves(term)

    def additive(self, term: Expr) -> bool:
        """Whether a term is g(x) + h(p)."""
        if self.one_sided(term):
            return True
        if term.op in _LINEAR:
            return all(map(self.additive, term.args))
        if term.op in ("multiply", "divide"):
            a, b = term.args
            return self.additive(a) and self.constant(b) or term.op == "multiply" and self.constant(a) and self.additive(b)
        return False

    def multiplicative(self, term: Expr) -> bool:
        """Whether a term is g(x) · h(p)."""
        if self.one_sided(term):
            return True
        if term.op in ("multiply", "divide", "negative", "reciprocal", "sqrt", "abs", "sign"):
            return all(map(self.multiplicative, term.args))
        if term.op == "power":
            return self.multiplicative(term.args[0]) and self.constant(term.args[1])
        return term.op in ("exp", "exp2") and self.additive(term.args[0])

    def finite(self, term: Expr) -> bool:
        """Whether a term is certainly a finite sum of products g(x) · h(p)."""
        if self.multiplicative(term) or self.additive(term):
            return True
        if term.op in (*_LINEAR, "multiply"):
            return all(map(self.finite, term.args))
        if term.op == "divide":
            return self.finite(term.args[0]) and self.multiplicative(term.args[1])
        if term.op == "power":
            exponent = term.args[1]
            whole = exponent.op == "const" and exponent.value == int(exponent.value) >= 0
            base = term.args[0]
            even = whole and int(exponent.value) % 2 == 0
            return whole and self.finite(base.args[0] if even and base.op == "abs" else base)
        if term.op == "where":
            return self.one_sided(term.args[0]) and all(map(self.finite, term.args[1:]))
        if term.op == "reduce":
            return term.monoid == "sum" and term.mask is None and self.finite(term.body)
        return (term.op in _OF_SUMS and self.additive(term.args[0])
                or term.op in _OF_PRODUCTS and self.multiplicative(term.args[0]))


def of_finite_rank(reduction: Reduction, axis: str, others: frozenset[str] = frozenset()) -> bool:
    """Whether a sum is certainly one of finite rank, whatever the laws make of it; `others` are axes of the same elements."""
    separation = Separation(axis, others)
    mask = reduction.mask
    return reduction.monoid == "sum" and separation.finite(reduction.body) and (
        mask is None or separation.one_sided(mask))


def rounds_with_pivots(reduction: Reduction, axis: str) -> bool:
    """Whether a body rounds what is made of elements and pivots."""
    separation = Separation(axis)
    return any(term.op in ROUNDINGS and not separation.one_sided(term) for term in subterms(reduction.body))


FEW = 4
"""So many first or last elements may be treated apart: what is asked for is far more than they can carry."""


def windowed(terms: list[Expr], axis: str) -> bool:
    """Whether some formula compares a position along the axis with anything but another position, a result, or one of the first or last few."""
    return any(_bounds_position(term, axis) for term in terms if term.op in _COMPARED)


def _holds_position(term: Expr, axis: str) -> bool:
    """Whether a position is part of a term otherwise than in the order of two positions."""
    if term.op in COMPARISONS and all(arg.op == "index" for arg in term.args):
        return False
    return term.op == "index" and term.axis == axis or any(_holds_position(arg, axis) for arg in term.args)


def _bounds_position(term: Expr, axis: str) -> bool:
    positioned = [_holds_position(arg, axis) for arg in term.args]
    if not any(positioned):
        return False
    others = [arg for arg, has in zip(term.args, positioned, strict=True) if not has]
    plain = [arg.op == "index" for arg, has in zip(term.args, positioned, strict=True) if has]
    return not all(plain) or any(arg.op not in ("index", "symbol", "reduce") and not _is_at_an_end(arg, axis) for arg in others)


def _is_at_an_end(term: Expr, axis: str) -> bool:
    """Whether a position is one of the first few, or of the last few: the length, and a small number less."""
    if term.op == "const":
        return 0 <= term.value <= FEW
    size, *less = term.args if term.op in ("add", "subtract") else (term,)
    return size.op == "size" and size.axis == axis and all(part.op == "const" and 0 <= (-part.value if term.op == "add" else part.value) <= FEW for part in less)
