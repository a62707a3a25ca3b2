"""Operators inside operators: their expressions with other leaves and other axis names.

In: traced expressions, what stands for each input and parameter, and a renaming of axes.  Out: expressions.
"""
from __future__ import annotations

from collections.abc import Container, Mapping

from redfuser_algebra.language.binding import Signature
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, children_replaced
from redfuser_algebra.language.names import numbered

_COPY = "__"


def axis_copy(axis: str, number: int) -> str:
    """The name of a copy of an axis: a second, independent index over the same elements."""
    return f"{axis}{_COPY}{number}"


def free_copy(axis: str, taken: Container[str]) -> str:
    """The first copy of an axis that is not taken."""
    return next(numbered(f"{axis}{_COPY}", taken))


def copied_axis(axis: str) -> str:
    """The axis that `axis` is a copy of; an axis that is no copy is itself."""
    return axis.split(_COPY)[0]


def with_leaves(expr: Expr, leaves: Mapping[str, Expr], axes: Mapping[str, str]) -> Expr:
    """`expr` with inputs and parameters replaced by name and every axis renamed (axes not in the mapping stay)."""
    done: dict[Expr, Expr] = {}

    def walk(term: Expr) -> Expr:
        if term not in done:
            done[term] = _renamed(term, axes, leaves, tuple(map(walk, term.args)))
        return done[term]

    return walk(expr)


def _renamed(term: Expr, axes: Mapping[str, str], leaves: Mapping[str, Expr], args: tuple[Expr, ...]) -> Expr:
    if term.op in ("input", "param") and term.name in leaves:
        return leaves[term.name]
    if term.op in ("input", "symbol", "state"):
        return Expr(term.op, (), (term.name, tuple(axes.get(axis, axis) for axis in term.axes)))
    if term.op in ("index", "size"):
        return Expr(term.op, (), (axes.get(term.axis, term.axis),))
    if term.op == "reduce":
        out = term.attrs[2]
        return Expr("reduce", args, (term.monoid, axes.get(term.axis, term.axis), axes.get(out, out)))
    if term.op == "scan":
        return Expr("scan", args, (axes.get(term.axis, term.axis), *term.attrs[1:]))
    return children_replaced(term, args)


def axes_of_call(signature: Signature, given: Mapping[str, Expr]) -> dict[str, str]:
    """Which axis of the given expressions each axis of an operator becomes.

    An input whose axes all occur in its expression keeps their names, whatever else the expression has.  Otherwise
    its axes are matched in order, which takes an expression with as many axes as the input.
    """
    mapping: dict[str, str] = {}
    for name, axes in signature.inputs.items():
        for ours, theirs in zip(axes, _matched(signature, name, axes, given[name].axes), strict=True):
            if mapping.setdefault(ours, theirs) != theirs:
                _refuse(signature, f"axis {ours} would be both {mapping[ours]} and {theirs}")
    if len(set(mapping.values())) < len(mapping):
        _refuse(signature, "two of its axes would become the same axis")
    _check_batch(signature, given, mapping)
    return mapping


def _matched(signature: Signature, name: str, ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    if set(ours) <= set(theirs):
        return ours
    if len(ours) != len(theirs):
        _refuse(signature, f"{name}[{', '.join(ours)}] does not match an expression with the axes [{', '.join(theirs)}]")
    return theirs


def _check_batch(signature: Signature, given: Mapping[str, Expr], mapping: Mapping[str, str]) -> None:
    """An axis that is batch for one operand must not be an axis the operator itself speaks of."""
    inner = set(mapping.values()) | set(signature.tops)
    for name, expr in given.items():
        own = {mapping[axis] for axis in signature.inputs.get(name, ())}
        captured = [axis for axis in expr.axes if axis not in own and axis in inner]
        if captured:
            _refuse(signature, f"axis {captured[0]} of the expression for {name} would be mistaken for its own")


def _refuse(signature: Signature, failed: str) -> None:
    raise OperatorError(f"a use of {signature} inside another operator", failed,
                        'rename its axes first: softmax.renamed(l="j")(x)')
