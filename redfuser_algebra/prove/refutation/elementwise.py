"""Elementwise operations on numbers that cannot lie: the rules that are more than one function per entry."""
from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from flint import fmpq

from redfuser_algebra.algebra.floats import FLOAT_FORMATS
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.refutation.evaluation import Choice, Evaluation, Node, Unsupported, same
from redfuser_algebra.prove.refutation.numbers import Number, exact_bounds, is_exact, to_format, wholes

_NUDGE = Fraction(1, 2**60)
_HALF = fmpq(1, 2)


def _certain(value: np.ndarray) -> Node:
    return Node(value, np.ones(value.shape, bool))


def _const(evaluation: Evaluation, term: Expr) -> Node:
    if isinstance(term.value, bool):
        return _certain(np.full((1,) * evaluation.setting.ndim, term.value))
    return evaluation.constant(term.value)


def _input(evaluation: Evaluation, term: Expr) -> Node:
    setting = evaluation.setting
    return Node(setting.arrays[term.name], ~setting.moving[term.name])


def _index(evaluation: Evaluation, term: Expr) -> Node:
    setting = evaluation.setting
    start, shape = setting.starts.get(term.axis, 0), [1] * setting.ndim
    shape[setting.dim(term.axis)] = setting.sizes[term.axis]
    return _certain(evaluation.field.array(range(start, start + setting.sizes[term.axis])).reshape(shape))


def _size(evaluation: Evaluation, term: Expr) -> Node:
    """The length of an axis, of which only the last entry may be at hand."""
    setting = evaluation.setting
    return evaluation.constant(setting.starts.get(term.axis, 0) + setting.sizes[term.axis])


def _subtract(evaluation: Evaluation, term: Expr) -> Node:
    """a − b, and a fixed 0 where both are one and the same number."""
    a, b = map(evaluation.number, term.args)
    equal = same(a.value, b.value)
    value = np.asarray(np.subtract(a.value, b.value), object)
    return Node(np.where(equal, evaluation.zero, value) if equal.any() else value, (a.fixed & b.fixed) | equal)


def _multiply(evaluation: Evaluation, term: Expr) -> Node:
    """a · b; a fixed 0 stays a fixed 0."""
    a, b = map(evaluation.number, term.args)
    zero = _fixed_zero(a) | _fixed_zero(b)
    value = np.asarray(np.multiply(a.value, b.value), object)
    return Node(np.where(zero, evaluation.zero, value) if zero.any() else value, (a.fixed & b.fixed) | zero)


def _fixed_zero(node: Node) -> np.ndarray:
    return node.fixed & np.asarray(np.equal(node.value, 0)).astype(bool) if node.fixed.any() else node.fixed


def _divide(evaluation: Evaluation, term: Expr) -> Node:
    """a / b; a fixed 1 where both are one and the same number, and a fixed 0 stays a fixed 0."""
    a, b = map(evaluation.number, term.args)
    try:
        value = np.asarray(np.true_divide(a.value, b.value), object)
    except ZeroDivisionError as error:
        raise Unsupported("division by zero") from error
    equal = same(a.value, b.value)
    return Node(np.where(equal, evaluation.one, value) if equal.any() else value,
                (a.fixed & b.fixed) | equal | _fixed_zero(a))


_COMPARED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "less": lambda o: o < 0, "less_equal": lambda o: o <= 0, "greater": lambda o: o > 0,
    "greater_equal": lambda o: o >= 0, "equal": lambda o: o == 0, "not_equal": lambda o: o != 0,
}


def _compare(evaluation: Evaluation, term: Expr) -> Node:
    a, b = map(evaluation.number, term.args)
    value = _COMPARED[term.op](evaluation.order(term, a, b, term.args))
    evaluation.picked[term] = value
    return _certain(value)


def _logic(evaluation: Evaluation, term: Expr) -> Node:
    first, *rest = (evaluation.truth(arg) for arg in term.args)
    if term.op == "logical_not":
        return _certain(~first)
    return _certain(first & rest[0] if term.op == "logical_and" else first | rest[0])


def _where(evaluation: Evaluation, term: Expr) -> Node:
    chosen = evaluation.truth(term.args[0])
    both = [evaluation.node(arg) for arg in term.args[1:]]
    if both[0].value.dtype != both[1].value.dtype:
        both = [evaluation.number(arg) for arg in term.args[1:]]
    evaluation.picked[term] = chosen
    return _chosen(chosen, *both)


def _extremum(evaluation: Evaluation, term: Expr) -> Node:
    a, b = map(evaluation.number, term.args)
    order = evaluation.order(term, a, b, term.args)
    evaluation.picked[term] = order >= 0 if term.op == "maximum" else order <= 0
    return _chosen(evaluation.picked[term], a, b)


def _chosen(first: np.ndarray, a: Node, b: Node) -> Node:
    return Node(np.where(first, a.value, b.value), np.where(first, a.fixed, b.fixed))


def _sign(evaluation: Evaluation, term: Expr) -> Node:
    order = evaluation.order(term, evaluation.number(term.args[0]), evaluation.constant(0), term.args)
    evaluation.picked[term] = order
    return _certain(evaluation.field.array(order))


def _abs(evaluation: Evaluation, term: Expr) -> Node:
    a = evaluation.number(term.args[0])
    order = evaluation.order(term, a, evaluation.constant(0), term.args)
    evaluation.picked[term] = order
    return Node(np.where(order < 0, np.negative(a.value), a.value), a.fixed)


def _isnan(evaluation: Evaluation, term: Expr) -> Node:
    return _certain(np.zeros(evaluation.number(term.args[0]).value.shape, bool))


# what is constant between steps: floor, ceil, round, casts, and the whole part of a quotient

def _stepped(evaluation: Evaluation, term: Expr) -> Node:
    a = evaluation.number(term.args[0])
    if term.op == "cast" and term.attrs[0] == "float64":
        return a
    ends = np.frompyfunc(lambda x, fixed: _ends(term, x, bool(fixed)), 2, 2)
    low, high = ends(a.value, a.fixed)
    turning = np.asarray(np.not_equal(low, high)).astype(bool)
    if turning.any():
        evaluation.open(Choice(term, turning, ((term.args[0], np.where(turning, evaluation.one, evaluation.zero)),)))
    return _certain(evaluation.field.array(np.where(turning, high, low) if (evaluation.side or 0) > 0 else low))


def _ends(term: Expr, value: Number, fixed: bool) -> tuple[Fraction | int, Fraction | int]:
    """The results for the least and the largest number the value may be, or may become when it moves a little."""
    try:
        if term.op == "cast":
            return _ends_of_cast(term.attrs[0], value, fixed)
        if term.op == "round" and fixed and is_exact(value):
            return (round(exact_bounds(value)[0]),) * 2
        low, high = wholes(-value if term.op == "ceil" else value + _HALF if term.op == "round" else value, fixed)
    except (ValueError, OverflowError) as error:
        raise Unsupported(f"{term.op} of {value}") from error
    return (-high, -low) if term.op == "ceil" else (low, high)


def _ends_of_cast(dtype: str, value: Number, fixed: bool) -> tuple[Fraction, Fraction]:
    low, high = exact_bounds(value)
    if not fixed and low == high:
        low, high = low - _NUDGE * (abs(low) + 1), high + _NUDGE * (abs(high) + 1)
    return _cast(dtype, low), _cast(dtype, high)


def _cast(dtype: str, value: Fraction) -> Fraction:
    if dtype == "bool":
        return Fraction(value != 0)
    if dtype not in FLOAT_FORMATS or value == 0:
        return Fraction(round(value))
    near = to_format(dtype, value)
    if abs(near) > FLOAT_FORMATS[dtype].largest:
        raise OverflowError(f"{dtype} has no such number")
    return near


def _quotient(evaluation: Evaluation, term: Expr) -> Node:
    """a // b, or a mod b = a − b · (a // b)."""
    a, b = map(evaluation.number, term.args)
    ratio = _divide(evaluation, Expr("divide", term.args))
    floor = Expr("floor", (Expr("divide", term.args),))
    evaluation.nodes[floor.args[0]] = ratio
    whole = evaluation.node(floor)
    evaluation.picked[term] = whole.value
    if term.op == "floor_divide":
        return whole
    return Node(np.asarray(a.value - b.value * whole.value, object), a.fixed & b.fixed)


ELEMENTWISE: dict[str, Callable[[Evaluation, Expr], Node]] = {
    "const": _const, "input": _input, "index": _index,
    "param": lambda evaluation, term: evaluation.constant(evaluation.setting.params[term.name]),
    "size": _size,
    "subtract": _subtract, "shift": _subtract, "multiply": _multiply, "scale": _multiply,
    "divide": _divide, "ratio": _divide, "scaled": _divide, **dict.fromkeys(_COMPARED, _compare),
    "logical_and": _logic, "logical_or": _logic, "logical_not": _logic, "where": _where,
    "maximum": _extremum, "minimum": _extremum, "sign": _sign, "abs": _abs,
    **dict.fromkeys(("floor", "ceil", "round", "cast"), _stepped),
    "floor_divide": _quotient, "mod": _quotient, "isnan": _isnan,
}
