"""An axis from its end, as x[::-1] has it: an axis of its own while the function is traced.

In: an expression along an axis.  Out: the same along its mirror, whose element i is read at position N − 1 − i.  A reduction that does
not ask for order is in the end one over the axis; a running sum from the end is the sum without what comes before.
"""
from __future__ import annotations

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr, children_replaced
from redfuser_algebra.language.recurrence import cumulative
from redfuser_algebra.language.tracing.alignment import is_of_positions, moved
from redfuser_algebra.language.tracing.array import implements, lifted
from redfuser_algebra.language.tracing.lengths import Axes, Dim, current, written
from redfuser_algebra.language.tracing.place import refused


def reversed_along(expr: Expr, dim: Dim) -> tuple[Expr, Dim]:
    """What [::-1] makes of a dimension.  Raises OperatorError where that is no single axis, or a part or copy of one."""
    axes = current.get()
    if not dim:
        return expr, dim
    if len(dim) > 1 or dim[0] in axes.stretches or dim[0] in axes.origins:
        raise refused(f"{written(dim)} from its end", "it is no whole axis", "reverse the whole array, or pass the reversed one as an input")
    if is_of_positions(expr, dim):
        return moved(expr, dim[0], dim[0], ra.size(dim[0]) - 1 - ra.index(dim[0])), dim
    name = axes.mirror(dim[0])
    return _turned(expr, dim[0], name), (name,)


def _turned(expr: Expr, old: str, new: str) -> Expr:
    """An expression along an axis, along its mirror."""
    return moved(expr, old, new, ra.size(new) - 1 - ra.index(new))


def from_the_end(monoid: str, expr: Expr, mirror: str) -> Expr:
    """A running reduction along a mirror.  Raises OperatorError unless it is a sum."""
    axis = current.get().mirrors[mirror]
    if monoid != "sum":
        raise refused(f"a running {monoid} from the end of an axis", "elements are swept from the first to the last",
                      "pass the reversed array as an input, and reverse the result")
    forward = _turned(expr, mirror, axis)
    if axis not in forward.axes:
        return forward * (ra.index(mirror) + 1)
    return _turned(ra.sum(forward, axis) - cumulative("sum", forward, axis, exclusive=True), axis, mirror)


def from_the_start(expr: Expr, axes: Axes) -> Expr:
    """An expression with every mirror read along its axis."""
    done: dict[Expr, Expr] = {}

    def walk(term: Expr) -> Expr:
        if term not in done:
            if [name for name in term.axes if axes.origin(axes.mirrors.get(name, "")) in map(axes.origin, term.axes)]:
                raise refused("an array with an axis from its start and from its end", "its elements meet all others",
                              "pass the reversed array as an input with an axis of its own")
            done[term] = _read(term, tuple(map(walk, term.args)), axes.mirrors)
        return done[term]

    return walk(expr) if axes.mirrors else expr


def _read(term: Expr, args: tuple[Expr, ...], mirrors: dict[str, str]) -> Expr:
    if term.op in ("input", "symbol", "state"):
        return Expr(term.op, (), (term.name, tuple(mirrors.get(axis, axis) for axis in term.axes)))
    if term.op not in ("index", "size", "reduce", "scan") or term.axis not in mirrors:
        return _turned_back(children_replaced(term, args))
    axis = mirrors[term.axis]
    if term.op == "index":
        return ra.size(axis) - 1 - ra.index(axis)
    if term.op == "reduce" and MONOIDS[term.monoid].indexed:
        raise refused("a position in a reversed array", "of equal elements the last one would come first", "look for it in the array as it is")
    return Expr(term.op, args, (axis, *term.attrs[1:]) if term.op != "reduce" else (term.monoid, axis, term.attrs[2]))


def _turned_back(term: Expr) -> Expr:
    """N − 1 − (N − 1 − l) as l; anything else as it is."""
    whole, back = term.args if term.op == "subtract" else (None, None)
    return back.args[1] if back is not None and back.op == "subtract" and back.args[0] is whole and back.args[1].op == "index" else term


@implements(np.flip)
def _flip(m, axis=None):
    m = lifted(m)
    wanted = range(m.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return m[tuple(slice(None, None, -1) if place in {each % m.ndim for each in wanted} else slice(None) for place in range(m.ndim))]


@implements(np.fliplr)
def _fliplr(m):
    return _flip(m, 1)


@implements(np.flipud)
def _flipud(m):
    return _flip(m, 0)
