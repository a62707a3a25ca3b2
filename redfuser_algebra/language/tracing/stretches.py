"""Parts of an axis that leave out some elements at its ends, such as x[1:] and x[:-1], whose elements then meet.

In: an expression along an axis, and a slice of it.  Out: the same along a stretch, an axis of its own while the function
is traced.  Element i of a stretch that leaves out k elements is read at position i + k of the whole axis: there x[:-1] is
the element before.  In the end every reduction over a stretch is one over the axis, of the positions from k on.
"""
from __future__ import annotations

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr, call, children_replaced
from redfuser_algebra.language.recurrence import previous
from redfuser_algebra.language.tracing.alignment import moved
from redfuser_algebra.language.tracing.array import Traced, implements, lifted
from redfuser_algebra.language.tracing.halves import half_of, is_middle
from redfuser_algebra.language.tracing.lengths import LISTED, Axes, Dim, current, written
from redfuser_algebra.language.tracing.mirrors import reversed_along
from redfuser_algebra.language.tracing.place import refused


def part_of(expr: Expr, dim: Dim, part: slice) -> tuple[Expr, Dim]:
    """What a slice takes of a dimension.  Raises OperatorError unless it leaves out a few elements at the ends, or reverses all."""
    axes = current.get()
    length = axes.length(dim)
    if (part.start, part.stop, part.step) == (None, None, -1):
        return reversed_along(expr, dim)
    start, stop, step = part.indices(length)
    before, after = start, length - stop
    if (before, after, step) == (0, 0, 1):
        return expr, dim
    if step == 1 and len(dim) == 1 and (is_middle(part.stop, dim[0]) and start == 0 or is_middle(part.start, dim[0]) and stop == length):
        return half_of(expr, dim[0], start > 0)
    if step != 1 or len(dim) != 1 or dim[0] in axes.mirrors or not 0 <= before + after <= LISTED:
        raise refused(f"a slice of axis {written(dim)}", "it takes more than a few elements away",
                      "mask the elements: where=, or np.where over np.arange")
    axis, name = dim[0], axes.stretch(dim[0], before + after)
    for _ in range(after if axis in expr.axes else 0):
        expr = previous(expr, axis)
    return moved(expr, axis, name), (name,)


def on_whole_axes(expr: Expr, axes: Axes) -> Expr:
    """An expression with every stretch read along its whole axis."""
    done: dict[Expr, Expr] = {}

    def walk(term: Expr) -> Expr:
        if term not in done:
            _check_apart(term, axes)
            done[term] = _read(term, tuple(map(walk, term.args)), axes)
        return done[term]

    return walk(expr) if axes.stretches else expr


def _check_apart(term: Expr, axes: Axes) -> None:
    whole = [axes.stretches.get(axes.origin(axis), (axis, 0))[0] for axis in term.axes]
    if len(set(whole)) < len(whole) or any(axis in axes.origins and axes.origin(axis) in axes.stretches for axis in term.axes):
        raise refused("a slice of an axis", "its elements meet all those of the axis, or of another slice of it",
                      "pass one of them as an input with an axis of its own")


def _read(term: Expr, args: tuple[Expr, ...], axes: Axes) -> Expr:
    names = {name: axis for name, (axis, _) in axes.stretches.items()}
    if term.op in ("input", "symbol", "state"):
        return Expr(term.op, (), (term.name, tuple(names.get(axis, axis) for axis in term.axes)))
    if term.op not in ("index", "size", "reduce", "scan") or term.axis not in names:
        return children_replaced(term, args)
    axis, left_out = axes.stretches[term.axis]
    if term.op in ("index", "size"):
        return Expr(term.op, (), (axis,)) - left_out
    if term.op == "scan":
        return Expr("scan", args, (axis, *term.attrs[1:]))
    inside = call("greater_equal", ra.index(axis), left_out)
    body, mask, count = args[0], args[1] if term.mask is not None else None, args[-1:] if term.count is not None else ()
    reduced = Expr("reduce", (body, inside if mask is None else mask & inside, *count), (term.monoid, axis, term.attrs[2]))
    return reduced - left_out if MONOIDS[term.monoid].indexed else reduced


@implements(np.diff)
def difference(a, n=1, axis=-1, prepend=None, append=None):
    """np.diff: each element less the one before."""
    if prepend not in (None, np._NoValue) or append not in (None, np._NoValue):
        raise refused("np.diff with prepend= or append=", "arrays are joined end to end", "add the first difference by itself")
    a = lifted(a)
    lead = (slice(None),) * (axis % a.ndim)
    for _ in range(n):
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(None, -1))]
    return a


def _trapezoid(y, x=None, dx=1.0, axis=-1):
    y = lifted(y)
    lead = (slice(None),) * (axis % y.ndim)
    width = dx if x is None else difference(x, axis=axis if lifted(x).ndim > 1 else -1)
    if x is not None and lifted(x).ndim == 1:
        width = Traced(width.expr, (*width.dims, *((),) * (y.ndim - 1 - axis % y.ndim)))
    return np.sum((y[(*lead, slice(1, None))] + y[(*lead, slice(None, -1))]) / 2 * width, axis=axis)


implements(np.diff)(difference)
implements(*(function for name in ("trapezoid", "trapz") if (function := getattr(np, name, None))))(_trapezoid)
