"""Reading a sum that the e-graph took apart: each summand is a product of invariant factors times one kept sum.

In: extracted s-expressions.  Out: rows, which say for each product of factors which vector of element terms it
multiplies; and, back again, summands as expressions.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from redfuser_algebra.discover.decode import Decoder, addends, contraction, product
from redfuser_algebra.discover.egraph import Sexp
from redfuser_algebra.discover.linear import Vector
from redfuser_algebra.discover.simplify import settled, sorted_operands
from redfuser_algebra.language.composition import copied_axis, free_copy, with_leaves
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, subterms


@dataclass(frozen=True)
class Weight:
    """What multiplies a kept sum: Σ over `contracted` of the product of `factors`.

    `reads` pairs axes as the element names them with the axes under which this summand reads the kept sum.
    """

    factors: tuple[Expr, ...]
    contracted: tuple[str, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the weight is a mere factor."""
        return not (self.contracted or self.reads)


Rows = dict[Weight, Vector]


def rows_of(term: Sexp, decoder: Decoder, mask_axes: tuple[str, ...]) -> Rows | None:
    """The rows of an extracted sum, or None if some summand is not linear in one kept sum."""
    rows: Rows = {}
    for bound, part in addends(term):
        read = _summand(part, decoder)
        if read is None:
            return None
        share, factors, element = read
        bound, factors, element = _contracted_inside(bound, factors, element)
        weight, element = _canonical_summand(bound, factors, element, mask_axes)
        vector = rows.setdefault(weight, {})
        vector[element] = vector.get(element, Fraction(0)) + share
    return _nonzero(rows)


def at_old(rows: Rows, old: Callable[[Expr], Expr | None]) -> Rows:
    """Rows where new and old pivots are the same: shifts are 0, ratios 1, and alike weights are put together."""
    merged: Rows = {}
    for weight, vector in rows.items():
        value = settled(product(Fraction(1), list(weight.factors)), old)
        if value.op == "const" and value.value == 0:
            continue
        kept = () if value is const(1) else (value,)
        target = merged.setdefault(Weight(kept, weight.contracted, weight.reads), {})
        for element, share in vector.items():
            target[element] = target.get(element, Fraction(0)) + share
    return _nonzero(merged)


def summand(weight: Weight, share: Fraction, kept: Expr, join: Callable[[Expr, Expr], Expr]) -> Expr:
    """share · weight · kept sum as an expression."""
    result = join(product(share, list(weight.factors)), with_leaves(kept, {}, dict(weight.reads)))
    for axis in weight.contracted:
        result = contraction(axis, result)
    return result


def element_term(share: Fraction, element: Expr) -> Expr:
    """share · element, the constant 1 left out."""
    return product(share, [] if element is const(1) else [element])


def scaled(weight: Expr, state: Expr) -> Expr:
    """weight ⊙ state: the total twin of the product, or a selection where the weight is a condition."""
    if weight.op == "const" and weight.value == 1:
        return state
    if weight.op == "where" and weight.args[2] is const(0):
        return call("where", weight.args[0], scaled(weight.args[1], state), 0)
    if weight.op == "equal":
        return call("where", weight, state, 0)
    return call("scale", weight, state)


def canonical_axes(element: Expr, copies: tuple[str, ...], others: tuple[str, ...]) -> dict[str, str]:
    """Names for copied axes of an element that depend on nothing but the element: the axis itself, then copies."""
    inside = [axis for term in subterms(element) for axis in term.axes]
    taken = {axis for axis in (*inside, *others) if axis not in copies}
    names: dict[str, str] = {}
    for axis in (axis for axis in element.axes if axis in copies):
        name = _first_free(copied_axis(axis), taken)
        taken.add(name)
        names[axis] = name
    return names


def _summand(term: Sexp, decoder: Decoder) -> tuple[Fraction, tuple[Expr, ...], Expr] | None:
    """A summand q · factors · Σ element, or None if it is not of that shape.  0 has no factors and the element 0."""
    if term == ("Num", ("rational", 0, 1)):
        return Fraction(0), (), const(0)
    if term[0] != "Term":
        return None
    _, (_, numerator, denominator), *bags = term
    factors, elements = [], []
    for item in (item for bag in bags for item in bag[1:]):
        kept = item[0] == "Of" and item[1][0] == "Kept"
        (elements if kept else factors).append(item[1] if kept else item)
    if len(elements) != 1:
        return None
    element = decoder.expr(elements[0][3], lambda nested: const(0))
    decoded = sorted((decoder.factor(item, lambda nested: const(0)) for item in factors), key=repr)
    return Fraction(numerator, denominator), tuple(decoded), element


def _contracted_inside(
    bound: tuple[str, ...], factors: tuple[Expr, ...], element: Expr
) -> tuple[tuple[str, ...], tuple[Expr, ...], Expr]:
    """Axes that no factor has are contracted within the element, so that less is kept; if it lacks them, they count."""
    open_axes = {axis for factor in factors for axis in factor.axes}
    for axis in bound:
        if axis not in open_axes and axis in element.axes:
            element = contraction(axis, element)
        elif axis not in open_axes:
            factors = (*factors, Expr("size", (), (copied_axis(axis),)))
    return tuple(axis for axis in bound if axis in open_axes), factors, element


def _canonical_summand(
    bound: tuple[str, ...], factors: tuple[Expr, ...], element: Expr, others: tuple[str, ...]
) -> tuple[Weight, Expr]:
    """A summand with bound axes named by their place, and its element with axes named by the element alone."""
    free = tuple(axis for axis in element.axes if copied_axis(axis) != axis and axis not in bound)
    names = canonical_axes(element, (*bound, *free), others)
    taken = {axis for term in (*factors, element) for axis in term.axes if axis not in bound}
    places: dict[str, str] = {}
    for axis in dict.fromkeys((*(axis for axis in names if axis in bound), *bound)):
        places[axis] = free_copy(copied_axis(axis), {*taken, *places.values()})
    reads = ((name, places.get(axis, axis)) for axis, name in names.items())
    renamed = tuple(sorted((with_leaves(factor, {}, places) for factor in factors), key=repr))
    weight = Weight(renamed, tuple(places.values()), tuple(pair for pair in reads if pair[0] != pair[1]))
    return weight, _in_one_order(with_leaves(element, {}, names))


def _in_one_order(element: Expr) -> Expr:
    """An element with contracted axes named from the inside out and products in the order of their text: one spelling of each.

    What has neither pivots nor copies of axes in it stays as it was written.
    """
    if not any(part.op == "reduce" or any(copied_axis(axis) != axis for axis in part.axes) for part in subterms(element)):
        return element
    free = set(element.axes)

    def as_written(term: Expr) -> bool:
        parts = subterms(term)
        axes = [axis for part in parts for axis in (*part.axes, *([part.axis] if part.op == "reduce" else []))]
        return not any(part.op == "symbol" for part in parts) and all(copied_axis(axis) == axis for axis in axes)

    def named(term: Expr) -> Expr:
        if as_written(term):
            return term
        args = tuple(map(named, term.args))
        if term.op != "reduce":
            return children_replaced(term, args)
        taken = free | {axis for part in subterms(*args) for axis in part.axes if axis != term.axis}
        name = _first_free(copied_axis(term.axis), taken)
        return with_leaves(Expr("reduce", args, term.attrs), {}, {term.axis: name})

    return sorted_operands(named(element), as_written)


def _first_free(axis: str, taken: set[str]) -> str:
    return free_copy(axis, taken) if axis in taken else axis


def _nonzero(rows: Rows) -> Rows:
    cleaned = {key: {element: share for element, share in vector.items() if share} for key, vector in rows.items()}
    return {key: vector for key, vector in cleaned.items() if vector}
