"""Evaluate expressions with NumPy: laid-out arrays in, laid-out arrays out (see `environment`).

The meaning of every operation is NumPy's in float64, without its warnings.  A subterm that occurs twice is
evaluated once.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.run.contraction import contracted
from redfuser_algebra.run.environment import Environment, stretched, whole_number
from redfuser_algebra.run.recurrence import scanned, state_symbol
from redfuser_algebra.run.reductions import reduced, winner, winners
from redfuser_algebra.run.rounding import rounded


def evaluate(exprs: Expr | Sequence[Expr], environment: Environment) -> np.ndarray | tuple[np.ndarray, ...]:
    """The value of each expression (of one expression: its value alone), laid out; size 1 where it does not vary.

    Raises OperatorError for an unmasked max, min, argmax, argmin or topk over no elements, for a topk with more
    places than elements, and for values that are missing or that NumPy cannot combine.
    """
    evaluation = Evaluation(environment)
    if isinstance(exprs, Expr):
        return evaluation.of(exprs)
    return tuple(map(evaluation.of, exprs))


class Evaluation:
    """The environment and the values known so far; the environment's symbols may grow between questions."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.known: dict[Expr, np.ndarray] = {}

    def of(self, expr: Expr) -> np.ndarray:
        """The value of `expr`, laid out, without NumPy's warnings."""
        with np.errstate(all="ignore"):
            return self.value(expr)

    def inside(self, **symbols: np.ndarray) -> Evaluation:
        """The same with more symbols, and nothing known yet."""
        return Evaluation(replace(self.environment, symbols={**self.environment.symbols, **symbols}))

    def value(self, term: Expr) -> np.ndarray:
        """The value of a term, laid out; what NumPy warns of is the caller's."""
        if term not in self.known:
            self.known[term] = _RULES.get(term.op, _elementwise)(self, term)
        return self.known[term]


def _bound(evaluation: Evaluation, term: Expr) -> np.ndarray:
    environment = evaluation.environment
    values = environment.symbols if term.op == "symbol" else environment.values
    if term.name in values:
        return environment.read_along(values[term.name], environment.own.get(term.name, term.axes), term.axes)
    raise OperatorError(f"the value of {term.name!r}", f"no {term.op} of this name is bound", f"give {term.name}=…")


def _const(evaluation: Evaluation, term: Expr) -> np.ndarray:
    return np.full((1,) * evaluation.environment.ndim, term.value)


def _index(evaluation: Evaluation, term: Expr) -> np.ndarray:
    environment = evaluation.environment
    start = environment.starts.get(term.axis, 0)
    return environment.along(term.axis, np.arange(start, start + _length(environment, term.axis)))


def _size(evaluation: Evaluation, term: Expr) -> np.ndarray:
    environment = evaluation.environment
    length = environment.lengths.get(term.axis)
    return np.full((1,) * environment.ndim, _length(environment, term.axis) if length is None else length)


def _length(environment: Environment, axis: str) -> int:
    if axis in environment.sizes:
        return environment.sizes[axis]
    raise OperatorError(
        f"the length of axis {axis!r}", "no input has this axis", "give an array that has it, or name another axis")


def _cast(evaluation: Evaluation, term: Expr) -> np.ndarray:
    return rounded(evaluation.value(term.args[0]), term.attrs[0])


def _elementwise(evaluation: Evaluation, term: Expr) -> np.ndarray:
    name = TOTAL_TWINS.get(term.op, term.op) if evaluation.environment.partial else term.op
    operands = [evaluation.value(arg) for arg in term.args]
    if all(operand.dtype.kind in "bui" for operand in operands):
        operands = _wide_enough(name, operands)
    try:
        return FUNCTIONS[name].apply(*operands)
    except TypeError as error:
        kinds = ", ".join(str(operand.dtype) for operand in operands)
        raise OperatorError(f"{TOTAL_TWINS.get(name, name)} of {kinds}", f"NumPy has no such operation ({error})",
                            "multiply truth values by 1 first") from error


def _wide_enough(name: str, operands: list[np.ndarray]) -> list[np.ndarray]:
    """Whole numbers as they are computed with: in int64, where 8 bits would wrap; in float64 for a float result.

    Truth values on their own, and what only selects or compares, stay NumPy's.  So does uint64 beyond int64.
    """
    if name in _SELECTIONS or all(operand.dtype == np.bool_ for operand in operands) and name in _WHOLE:
        return operands
    if not (name in _WHOLE or FUNCTIONS[name].whole) or name == "power" and (operands[1] < 0).any():
        return [operand.astype(np.float64) for operand in operands]
    beyond = any(operand.dtype == np.uint64 and (operand > _LARGEST).any() for operand in operands)
    return operands if beyond else [operand.astype(np.int64) for operand in operands]


_LARGEST = np.iinfo(np.int64).max
_WHOLE = frozenset(("add", "subtract", "multiply", "negative", "abs", "power", "mod", "floor_divide", "shift", "scale"))
_SELECTIONS = frozenset(("maximum", "minimum", "where", "sign", "floor", "ceil", "round", "isnan", "identity", "anchor")) | {
    row.name for row in FUNCTIONS.values() if row.boolean}


def _reduce(evaluation: Evaluation, term: Expr) -> np.ndarray:
    environment, monoid = evaluation.environment, MONOIDS[term.monoid]
    length = _length(environment, term.axis)
    if length == 0 and term.mask is None and not monoid.empty:
        raise nothing_to_choose_from(monoid.name, term.axis)
    mask = None if term.mask is None else evaluation.value(term.mask).astype(bool)
    total = _product_summed(evaluation, term, mask)
    if total is not None:
        return total
    dim = environment.dim(term.axis)
    values = stretched(evaluation.value(term.body), dim, length)
    if monoid.counted:
        k = _places(evaluation, term, length)
        return np.swapaxes(_best(evaluation, term, values, mask, k)[monoid.indexed], dim, environment.dim(term.attrs[2]))
    if monoid.indexed:
        return _best(evaluation, term, values, mask)[1]
    return reduced(monoid.name, values, dim, mask)


def _places(evaluation: Evaluation, term: Expr, length: int) -> int:
    k = whole_number(evaluation.value(term.count), f"{term.monoid} over axis {term.axis!r}")
    if k > length:
        raise too_few(term.monoid, k, term.axis, length)
    return k


def nothing_to_choose_from(monoid: str, axis: str) -> OperatorError:
    """The error of an unmasked max, min, argmax or topk over no elements."""
    return OperatorError(
        f"{monoid} over axis {axis!r}", "the axis is empty, and no element is the largest or smallest of none",
        "give at least one element, or a mask (`where=`), which makes the empty result the identity")


def too_few(monoid: str, k: int, axis: str, length: int) -> OperatorError:
    """The error of a topk with more places than elements."""
    return OperatorError(
        f"{monoid} with k = {k} over axis {axis!r}", f"the axis has only {length} elements", f"choose k ≤ {length}")


def _best(
    evaluation: Evaluation, term: Expr, values: np.ndarray, mask: np.ndarray | None, k: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The winning values along the axis of `term` and their absolute positions."""
    environment = evaluation.environment
    dim, start = environment.dim(term.axis), environment.starts.get(term.axis, 0)
    positions = environment.along(term.axis, np.arange(start, start + values.shape[dim]))
    if k is None:
        return winner(values, positions, np.array(True) if mask is None else mask, dim, term.monoid == "argmin")
    wide = values if mask is None else values.astype(np.float64)
    return winners(wide, positions, np.array(True) if mask is None else mask, dim, k)


def _product_summed(evaluation: Evaluation, term: Expr, mask: np.ndarray | None) -> np.ndarray | None:
    """A sum of a product without its outer product, where that is possible; else None."""
    if term.monoid != "sum" or term.body in evaluation.known:
        return None
    factors = _factors(term.body)
    if len(factors) < 2:
        return None
    values = [evaluation.value(factor) for factor in factors]
    return contracted(values, [term.axis in factor.axes for factor in factors], evaluation.environment.dim(term.axis), mask)


def _factors(term: Expr) -> list[Expr]:
    """The factors of a product; (a·b)/c has the factors a, b and 1/c."""
    if term.op == "multiply":
        return _factors(term.args[0]) + _factors(term.args[1])
    inner = _factors(term.args[0]) if term.op in ("divide", "negative") else [term]
    if len(inner) < 2:
        return [term]
    return [*inner, call("reciprocal", term.args[1]) if term.op == "divide" else const(-1)]


_RULES = {
    "input": _bound, "param": _bound, "symbol": _bound, "const": _const, "index": _index, "size": _size,
    "cast": _cast, "reduce": _reduce, "scan": scanned, "state": lambda evaluation, term: evaluation.environment.symbols[state_symbol(term)],
}
