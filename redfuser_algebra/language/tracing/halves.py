"""The halves of an axis, as x[:n // 2] and x[n // 2:] are: an axis of their own while the function is traced, where they meet.

In: an expression along an axis of an even number of elements.  Out: the same along half of it; of the upper half, each element is
looked up so many places further.  Two halves joined end to end are along the whole axis again, and a reduction over a half is in
the end one over the axis, of the positions below the middle.  Where halves meet
or are joined, the result is NaN for an odd number of elements.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.composition import with_leaves
from redfuser_algebra.language.expr import Expr, call, children_replaced, subterms
from redfuser_algebra.language.tracing.alignment import is_of_positions, moved
from redfuser_algebra.language.tracing.array import Length, Traced, implements, lifted, together, unsupported
from redfuser_algebra.language.tracing.lengths import Axes, Dim, current
from redfuser_algebra.language.tracing.place import refused


def half_of(expr: Expr, axis: str, upper: bool) -> tuple[Expr, Dim]:
    """What a slice takes of an axis that ends, or starts, at its middle."""
    axes = current.get()
    half = axes.half(axis)
    if not upper or axis not in expr.axes:
        return moved(expr, axis, half), (half,)
    if is_of_positions(expr, (axis,)):
        return moved(expr, axis, half, ra.index(half) + _middle(axis)), (half,)
    copy = axes.apart(axis, {axis, *expr.axes})
    return ra.take(moved(expr, axis, copy), ra.index(half) + _middle(axis), copy), (half,)


def is_middle(number: object, axis: str) -> bool:
    """Whether a number of the code is n // 2, for the length n of an axis."""
    return isinstance(number, Length) and number.expr is _middle(axis)


def _middle(axis: str) -> Expr:
    return ra.size(axis) // 2


def _if_even(axis: str, expr: Expr) -> Expr:
    """NaN where an axis has no two halves of one length, of which NumPy would make something else."""
    return ra.where(call("equal", call("mod", ra.size(axis), 2), 0), expr, np.nan)


def _along_all(term: Expr, half: str, axis: str, upper: bool) -> Expr:
    """What stands along half of an axis, along that half of the axis itself."""
    if half not in term.axes:
        return term
    if axis in term.axes or term.op == "scan":
        raise refused("two halves joined end to end", "they are swept in order, or meet the whole axis", "pass the joined array as an input")
    if term.op == "index":
        return ra.index(axis) - _middle(axis) if upper else ra.index(axis)
    if _is_looked_up(term, half, axis):
        body, copy = term.args[0].args[1], term.axis
        return moved(body, copy, axis) if upper else ra.take(body, ra.index(axis) + _middle(axis), copy)
    if term.args:
        return children_replaced(term, tuple(_along_all(arg, half, axis, upper) for arg in term.args))
    copy = current.get().apart(axis, {axis, *term.axes})
    whole = with_leaves(term, {}, {half: copy if upper else axis})
    return ra.take(whole, ra.index(axis) - _middle(axis), copy) if upper else whole


def _is_looked_up(term: Expr, half: str, axis: str) -> bool:
    """Whether this is an element of the upper half."""
    if term.op != "reduce" or term.monoid != "sum" or term.args[0].op != "where":
        return False
    condition, body, _ = term.args[0].args
    return condition is call("equal", ra.index(term.axis), ra.index(half) + _middle(axis)) and half not in body.axes


@implements(np.concatenate)
def _concatenate(arrays, axis=0, out=None, **options):
    arrays = list(map(lifted, arrays))
    place = (axis or 0) % max(arrays[0].ndim, 1)
    halves = {array.dims[place] for array in arrays if array.ndim > place}
    name = next(iter(halves))[0] if len(halves) == 1 and len(next(iter(halves))) == 1 else None
    whole = current.get().halves.get(name)
    if len(arrays) != 2 or whole is None or axis is None:
        raise unsupported("np.concatenate")
    exprs, dims = together(arrays, "np.concatenate")
    lower, upper = (_along_all(expr, name, whole, upper) for expr, upper in zip(exprs, (False, True), strict=True))
    return Traced(_if_even(whole, ra.where(ra.index(whole) < _middle(whole), lower, upper)), (*dims[:place], (whole,), *dims[place + 1:]))


@implements(np.hstack)
def _hstack(tup, **options):
    return _concatenate(tup, min(1, lifted(tup[0]).ndim - 1))


@implements(np.split, np.array_split)
def _split(ary, indices_or_sections, axis=0) -> Sequence[Traced]:
    ary = lifted(ary)
    place = axis % ary.ndim
    if indices_or_sections != 2:
        raise unsupported("np.split")
    middle, lead = ary.shape[place] // 2, (slice(None),) * place
    return [ary[(*lead, slice(None, middle))], ary[(*lead, slice(middle, None))]]


def on_both_halves(expr: Expr, axes: Axes) -> Expr:
    """An expression with every half read along its axis."""
    done: dict[Expr, Expr] = {}

    def walk(term: Expr) -> Expr:
        if term not in done:
            if any(axes.halves.get(axis) in term.axes for axis in term.axes):
                raise refused("a half of an axis", "its elements meet all those of the axis", "pass one of them as an input with an axis of its own")
            _check_both(term, axes.halves)
            done[term] = _read(term, tuple(map(walk, term.args)), axes.halves)
        return done[term]

    return walk(expr) if axes.halves else expr


def _read(term: Expr, args: tuple[Expr, ...], halves: dict[str, str]) -> Expr:
    if term.op in ("input", "symbol", "state"):
        return Expr(term.op, (), (term.name, tuple(halves.get(axis, axis) for axis in term.axes)))
    if term.op not in ("index", "size", "reduce", "scan") or term.axis not in halves:
        return children_replaced(term, args)
    axis = halves[term.axis]
    if term.op in ("index", "size"):
        return ra.index(axis) if term.op == "index" else _middle(axis)
    if term.op == "scan":
        raise refused("a running reduction over half of an axis", "it is swept over the whole axis", "pass the half as an input of its own")
    return _masked(term, args, call("less", ra.index(axis), _middle(axis)), axis)


def _masked(term: Expr, args: tuple[Expr, ...], inside: Expr, axis: str) -> Expr:
    """A reduction over the axis, of the positions that are inside."""
    body, mask, count = args[0], args[1] if term.mask is not None else None, args[-1:] if term.count is not None else ()
    result = Expr("reduce", (body, inside if mask is None else mask & inside, *count), (term.monoid, axis, term.attrs[2]))
    return _if_even(axis, result) if any(_is_looked_up(each, term.axis, axis) for each in subterms(*term.args)) else result


def _check_both(term: Expr, halves: dict[str, str]) -> None:
    """Raises OperatorError for a reduction over elements of the upper half alone."""
    axis = halves.get(term.axis) if term.op == "reduce" else None
    below = subterms(*term.args) if axis is not None else ()
    if any(_is_looked_up(each, term.axis, axis) for each in below) and not any(each.op == "input" and term.axis in each.axes for each in below):
        raise refused("a reduction over the upper half of an axis", "that has one element more where the axis has an odd number of them",
                      "mask the elements: where=, or np.where over np.arange")
