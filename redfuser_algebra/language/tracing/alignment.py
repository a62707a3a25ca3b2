"""Dimensions that are one: arrays get the same axes there, and different ones everywhere else.

x @ x.T holds every pair of rows of x, so that one of its operands reads x along a copy of the axis: a second,
independent index over the same elements.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from redfuser_algebra.language.composition import with_leaves
from redfuser_algebra.language.expr import Expr, children_replaced, substitute, subterms
from redfuser_algebra.language.tracing.lengths import Axes, Dim, current
from redfuser_algebra.language.tracing.place import refused

Inputs = Mapping[str, tuple[str, ...]]


def aligned(exprs: Sequence[Expr], dims: Sequence[Sequence[Dim]], labels: Sequence[Sequence[Hashable]], what: str,
            order: Iterable[Hashable] = ()) -> tuple[list[Expr], dict[Hashable, Dim]]:
    """Expressions whose dimensions of equal labels run over the same axes, and the dimension of each label.

    Of labels that run over one axis, the first in `order`, or else the first to appear, keeps its name.  Raises
    OperatorError where different axes meet.
    """
    axes, found, taken = current.get(), {}, set()
    renames: list[dict[str, str]] = [{} for _ in exprs]
    for label in dict.fromkeys((*order, *(label for own in labels for label in own))):
        here = [(place, dim) for place, own in enumerate(labels) for each, dim in zip(own, dims[place], strict=True) if each == label and dim]
        own = [dim for place, dim in here if not is_of_positions(exprs[place], dim)]
        found[label] = _meeting(axes, [dim for _, dim in here if dim in own or not _turned(axes, dim, own)], taken, what)
        taken.update(found[label])
        for place, dim in here:
            renames[place] |= {old: new for old, new in zip(dim, found[label], strict=False) if old != new}
    return [_renamed(expr, renaming) for expr, renaming in zip(exprs, renames, strict=True)], found


def is_of_positions(expr: Expr, dim: Dim) -> bool:
    """Whether what differs along a dimension are positions alone, which every axis of that length has."""
    return len(dim) == 1 and not any(term.op in ("input", "scan") and dim[0] in term.axes for term in subterms(expr))


def _turned(axes: Axes, dim: Dim, others: Sequence[Dim]) -> bool:
    """Whether the axis of a dimension is that of another one from its other end."""
    return len(dim) == 1 and any(axes.mirrors.get(a) == b for other in others if len(other) == 1 for a, b in ((*dim, *other), (*other, *dim)))


def _meeting(axes: Axes, dims: list[Dim], taken: set[str], what: str) -> Dim:
    """The dimension that these make where they meet, over axes that are not taken."""
    result: Dim = ()
    for dim in dims:
        same = len(dim) == len(result) == 1 and axes.origin(dim[0]) == axes.origin(result[0])
        result = (dim if result[0] in taken else result) if same else axes.met(result, dim, what)
    return tuple(axes.apart(axis, taken) if axis in taken else axis for axis in result)


def _renamed(expr: Expr, axes: dict[str, str]) -> Expr:
    """An expression over other axes; names change places, so that none of those it sums over is caught."""
    free = [old for old in axes if old not in axes.values()]
    return with_leaves(expr, {}, axes | dict(zip((new for new in axes.values() if new not in axes), free, strict=True))) if axes else expr


def moved(expr: Expr, old: str, new: str, position: Expr | None = None) -> Expr:
    """An expression along another axis; what it reduces stays as it is.  Raises OperatorError where it is along both.

    Its positions become those along the other axis, or `position`.
    """
    def walk(term: Expr) -> Expr:
        if old not in term.axes:
            return term
        if term.op == "index" and position is not None:
            return position
        if not term.args:
            if new in term.axes:
                raise refused("a diagonal", f"{term} has both of its dimensions", "pass its diagonal as an input")
            return with_leaves(term, {}, {old: new})
        args = tuple(map(walk, term.args))
        return Expr("scan", args, (new, *term.attrs[1:])) if term.op == "scan" and term.axis == old else children_replaced(term, args)

    return walk(expr)


def made_one(expr: Expr, gone: str, kept: str, fresh: str) -> Expr:
    """An expression along two axes at their equal positions; what it reduces over the one that is kept is called `fresh`."""
    if any(term.op == "scan" and {gone, kept} <= set(term.axes) and term.axis in (gone, kept) for term in subterms(expr)):
        raise refused("a diagonal", "a running reduction along it is no array of pairs", "reduce before taking the diagonal")
    apart: dict[Expr, Expr] = {}
    for term in subterms(expr):
        args = tuple(apart[arg] for arg in term.args)
        apart[term] = (Expr("reduce", tuple(moved(arg, kept, fresh) for arg in args), (term.monoid, fresh, term.attrs[2]))
                       if term.op == "reduce" and term.axis == kept and gone in term.axes else children_replaced(term, args))
    return moved(apart[expr], gone, kept)


def with_copies(outputs: Sequence[Expr], inputs: Inputs) -> tuple[list[Expr], dict[str, tuple[str, ...]], dict[str, str]]:
    """Outputs in which each input has one list of axes, those inputs, and which of them is another one once more."""
    declared, again, leaves = dict(inputs), {}, {}
    read: dict[str, list[Expr]] = {}
    for term in subterms(*outputs):
        if term.op == "input":
            read.setdefault(term.name, []).append(term)
    for name, terms in read.items():
        first = next((term for term in terms if term.axes == inputs[name]), terms[0])
        declared[name] = first.axes
        for number, term in enumerate((term for term in terms if term is not first), 2):
            copy = f"{name}_{number}"
            declared[copy], again[copy] = term.axes, name
            leaves[term] = Expr("input", (), (copy, term.axes))
    return [substitute(output, leaves) for output in outputs], declared, again
