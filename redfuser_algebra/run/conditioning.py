"""How far rounding may move a result: a bound next to every value, carried through the operator as it is written.

In: an operator, a bound call, and the relative error that one operation may make.  Out: a bound for every element
of every output, by Wilkinson's running error analysis (Higham, Accuracy and Stability of Numerical Algorithms,
§3.3): operands are moved to the ends of their bounds, sums add the bounds of their terms and one rounding of the
size of all terms per addition.

A bound of inf says that the value is *not determined*: with every operation rounded a little differently a choice
falls otherwise, a divisor is 0, or what is finite becomes inf or NaN.  That is the one class of inputs on which two
right programs may differ without limit, for example a weight that underflows to 0 next to an infinite value.
"""
from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS, Function
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.call import environment_of, structured
from redfuser_algebra.run.environment import Environment, stretched
from redfuser_algebra.run.evaluate import Evaluation

TINY = float(np.nextafter(0.0, 1.0))
EXACT = frozenset((
    "negative", "abs", "sign", "maximum", "minimum", "where", "floor", "ceil", "round", "isnan",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not"))
UNDERFLOWS = frozenset(("multiply", "divide", "power", "exp", "exp2"))
WHOLE = frozenset(("add", "subtract", "multiply", "mod", "floor_divide"))
WAVES = frozenset(("sin", "cos"))
_NO_SIGN = Function("", 0, np.positive)
POLES = frozenset(("divide", "reciprocal", "mod", "floor_divide"))


def error_bounds(operator: Operator, binding: Binding, unit: float) -> object:
    """For each output of the reference, in the same structure, how far it may be from the true value.

    `unit` is the relative error of one operation.  Raises OperatorError where the operator has no value.
    """
    environment = environment_of(operator, binding)
    errors = Errors(environment, unit)
    return structured(operator, [errors.of(output) for output in operator.outputs], environment)


class Errors:
    """The bound of every term's value.  0 where the value is exact; for truth values 1 where they may flip."""

    def __init__(self, environment: Environment, unit: float) -> None:
        self.evaluation, self.unit = Evaluation(environment), unit
        self.known: dict[Expr, np.ndarray] = {}

    def of(self, term: Expr) -> np.ndarray:
        """The bound, laid out as the value is."""
        if term not in self.known:
            value = self.evaluation.of(term)
            with np.errstate(all="ignore"):
                error = self._error(term, value)
            self.known[term] = np.where(error != error, np.inf, error)
        return self.known[term]

    def _error(self, term: Expr, value: np.ndarray) -> np.ndarray:
        if not term.args:
            return np.zeros(value.shape)
        if term.op == "reduce":
            return self._reduced(term, value)
        operands = [(self.evaluation.of(arg), self.of(arg)) for arg in term.args]
        positive = tuple(map(nonnegative, term.args))
        if term.op == "where":
            return _chosen(operands)
        if term.op in WAVES:
            return np.minimum(operands[0][1], 2.0) + self.unit * np.abs(value)
        moved = _moved(lambda *args: self._applied(term, args), value, operands, positive)
        if term.op in POLES:
            divisor, error = operands[-1]
            moved = np.where((np.abs(divisor) <= error) & (error > 0) & (value == value), np.inf, moved)
        return moved + self._rounding(term, value, operands)

    def _applied(self, term: Expr, args: tuple[np.ndarray, ...]) -> np.ndarray:
        if term.op in FUNCTIONS:
            return FUNCTIONS[term.op].apply(*args)
        inner = Evaluation(self.evaluation.environment)
        inner.known.update(zip(term.args, args, strict=True))
        return inner.of(term)

    def _rounding(self, term: Expr, value: np.ndarray, operands: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """What rounding the result itself adds."""
        if term.op in EXACT or term.op not in FUNCTIONS or value.dtype.kind != "f":
            return np.zeros(value.shape)
        rounding = np.where(np.isfinite(value), self.unit * np.abs(value), 0.0)
        if term.op in WHOLE:
            rounding = np.where(_whole([operand for operand, _ in operands], value), 0.0, rounding)
        if term.op not in UNDERFLOWS:
            return rounding
        zero = [(operand == 0) & (error == 0) for operand, error in operands] if term.op == "multiply" else []
        exact = np.any(np.broadcast_arrays(*zero), axis=0) if zero else np.isinf(operands[-1][0])
        return rounding + np.where((np.abs(value) < np.finfo(float).tiny) & ~exact, TINY * 8, 0.0)

    def _reduced(self, term: Expr, value: np.ndarray) -> np.ndarray:
        environment = self.evaluation.environment
        dim = environment.dim(term.axis)
        body = (self.evaluation.of(term.body), self.of(term.body))
        mask = (np.array(True), np.array(0.0))
        if term.mask is not None:
            mask = (self.evaluation.of(term.mask).astype(bool), self.of(term.mask))
        shape = np.broadcast_shapes(body[0].shape, mask[0].shape)
        terms, errors, taken, unsure = (
            stretched(np.broadcast_to(a, shape), dim, environment.sizes[term.axis]) for a in (*body, *mask))
        part = _Terms(terms.astype(np.float64), errors, taken | (unsure > 0), unsure > 0, dim, self.unit)
        if term.monoid == "sum":
            return part.sum_error()
        if term.monoid == "prod":
            return part.product_error()
        if term.monoid in ("any", "all"):
            return part.truth_error(term.monoid, value)
        if term.count is not None:
            return np.swapaxes(part.largest_error(value.shape[environment.dim(term.attrs[2])], term.monoid == "argtopk"),
                               dim, environment.dim(term.attrs[2]))
        sign = -1.0 if term.monoid in ("min", "argmin", "fmin") else 1.0
        return part.position_error(sign) if MONOIDS[term.monoid].indexed else part.extreme_error(sign)


def nonnegative(term: Expr) -> bool:
    """Whether a term cannot be negative however its parts are rounded."""
    if term.op == "const":
        return term.value >= 0
    if term.op in ("multiply", "divide") and term.args[0] is term.args[1] or FUNCTIONS.get(term.op, _NO_SIGN).sign:
        return True
    if term.op == "power":
        return term.args[1].op == "const" and term.args[1].value % 2 == 0 or nonnegative(term.args[0])
    if term.op in ("add", "multiply", "divide", "maximum", "minimum", "reduce"):
        return all(map(nonnegative, term.args[:1] if term.op == "reduce" else term.args)) and term.op != "argmax"
    return term.op in ("size", "index")


def _whole(operands: list[np.ndarray], value: np.ndarray) -> np.ndarray:
    """Where whole numbers give a whole number small enough to be exact."""
    whole = [(operand == np.floor(operand)) & np.isfinite(operand) for operand in operands]
    return np.all(np.broadcast_arrays(value == value, *whole), axis=0) & (np.abs(value) <= 2.0**53)


def _chosen(operands: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The bound of where(condition, a, b)."""
    (condition, unsure), (a, error_a), (b, error_b) = operands
    either = np.where(_same(a, b), 0.0, np.abs(np.subtract(a, b, dtype=np.float64))) + error_a + error_b
    return np.where(unsure > 0, np.where(either != either, np.inf, either), np.where(condition != 0, error_a, error_b))


def _moved(
    apply: Callable, value: np.ndarray, operands: list[tuple[np.ndarray, np.ndarray]], positive: tuple[bool, ...]
) -> np.ndarray:
    """How far the value moves when the operands go to the ends of their bounds."""
    worst = np.zeros(value.shape)
    ends = [_ends(*operand, sign) for operand, sign in zip(operands, positive, strict=True)]
    for corner in product(*ends) if any(len(end) > 1 for end in ends) else ():
        worst = np.maximum(worst, _distance(apply(*corner), value))
    unbounded = np.any(np.broadcast_arrays(value, *(np.isinf(error) for _, error in operands))[1:], axis=0)
    certain = [(operand != operand) & (error == 0) for operand, error in operands]
    certain = (value != value) & np.any(np.broadcast_arrays(value, *certain)[1:], axis=0)
    return np.where(certain, 0.0, np.where(unbounded, np.inf, worst))


def _ends(operand: np.ndarray, error: np.ndarray, positive: bool) -> tuple[np.ndarray, ...]:
    if not error.any():
        return (operand,)
    if operand.dtype == bool:
        return np.where(error > 0, False, operand), np.where(error > 0, True, operand)
    finite = np.where(np.isfinite(error), error, 0.0)
    low = operand - finite
    return np.maximum(low, 0.0) if positive else low, operand + finite


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a − b|; 0 where they are the same infinity or both NaN, inf where only one is finite."""
    far = np.abs(np.subtract(a, b, dtype=np.float64))
    return np.where(_same(a, b), 0.0, np.where(far != far, np.inf, far))


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | ((a != a) & (b != b))


class _Terms:
    """The terms of a reduction along `dim`: values, bounds, which may take part, and which of those may not."""

    def __init__(self, terms, errors, taken, unsure, dim: int, unit: float) -> None:
        self.terms, self.errors, self.taken, self.unsure = terms, errors, taken, unsure
        self.dim, self.unit = dim, unit
        self.certain = taken & ~unsure & (errors == 0)

    def _over(self, ufunc: np.ufunc, values: np.ndarray, start: float) -> np.ndarray:
        return ufunc.reduce(values, axis=self.dim, keepdims=True, initial=start)

    def _any(self, condition: np.ndarray) -> np.ndarray:
        return self._over(np.logical_or, condition, False)

    def _settled(self, error: np.ndarray) -> np.ndarray:
        """A NaN that certainly takes part decides everything."""
        return np.where(self._any(self.certain & (self.terms != self.terms)), 0.0, error)

    def sum_error(self) -> np.ndarray:
        finite = self.taken & np.isfinite(self.terms)
        size = self._over(np.add, np.where(finite, np.abs(self.terms), 0.0), 0.0)
        count = self._over(np.add, finite.astype(float), 0.0)
        whole = self._over(np.logical_and, ~finite | (self.terms == np.floor(self.terms)), True) & (size <= 2.0**53)
        own = np.where(self.taken, self.errors + np.where(self.unsure, np.abs(self.terms), 0.0), 0.0)
        error = self._over(np.add, own, 0.0) + np.where(whole, 0.0, self.unit * count * size)
        infinite = self._any(self.taken & np.isinf(self.terms))
        return self._settled(np.where(np.isinf(size + error), np.inf, np.where(infinite, 0.0, error)))

    def product_error(self) -> np.ndarray:
        sizes = np.where(self.taken, np.abs(self.terms), 1.0)
        reach = np.where(self.taken, sizes + self.errors + np.where(self.unsure, 1.0, 0.0), 1.0)
        count = self._over(np.add, self.taken.astype(float), 0.0)
        total, furthest = self._over(np.multiply, sizes, 1.0), self._over(np.multiply, reach, 1.0)
        error = furthest - total + self.unit * count * total
        infinite = np.isinf(sizes)
        largest = self._over(np.multiply, np.where(infinite, 1.0, np.maximum(reach, 1.0)), 1.0)
        smallest = self._over(np.multiply, np.where(sizes == 0, 1.0, np.minimum(sizes, 1.0)), 1.0)
        in_order = (largest < np.finfo(float).max) & (smallest > np.finfo(float).tiny)
        decided = self._any(infinite | (sizes == 0)) & ~self._any(self.taken & ~self.certain)
        return self._settled(np.where(in_order, np.where(decided, 0.0, error), np.inf))

    def truth_error(self, monoid: str, value: np.ndarray) -> np.ndarray:
        decides = (self.terms != 0) == (monoid == "any")
        flips = self.taken & ((self.errors > 0) | self.unsure & decides)
        decided = self._any(self.taken & ~self.unsure & (self.errors == 0) & decides)
        return np.where(~decided & self._any(flips), 1.0, 0.0)

    def _reach(self, sign: float) -> tuple[np.ndarray, np.ndarray]:
        """The least and greatest that each term may count as, for a maximum of sign · term."""
        low = np.where(self.taken & ~self.unsure, sign * self.terms - self.errors, -np.inf)
        high = np.where(self.taken, sign * self.terms + self.errors, -np.inf)
        return np.where(low != low, -np.inf, low), np.where(high != high, np.inf, high)

    def extreme_error(self, sign: float) -> np.ndarray:
        best = self._over(np.maximum, np.where(self.taken, sign * self.terms, -np.inf), -np.inf)
        low, high = self._reach(sign)
        ends = (self._over(np.maximum, end, -np.inf) for end in (low, high))
        return self._settled(np.maximum(*(_distance(end, best) for end in ends)))

    def position_error(self, sign: float) -> np.ndarray:
        """How far the winner's position may be from where it is found: the width of all that could win."""
        low, high = self._reach(sign)
        best = self._over(np.maximum, low, -np.inf)
        close = self.taken & (high >= best)
        alone = close.sum(self.dim, keepdims=True) <= 1
        nan = self._any(self.certain & (self.terms != self.terms)) & ~self._any(np.isinf(self.errors))
        decided = (nan | alone | ~self._any(close & (self.errors > 0))) & ~self._any(self.unsure)
        return np.where(decided, 0.0, float(self.terms.shape[self.dim]))

    def largest_error(self, k: int, positions: bool) -> np.ndarray:
        """The bounds of the k largest (or of their positions), with size k along `dim`."""
        if not self._any(self.taken & ~self.certain).any():
            return np.zeros(tuple(k if d == self.dim % self.terms.ndim else n for d, n in enumerate(self.terms.shape)))
        best, low, high = (
            np.take(-np.sort(-np.where(self.taken, end, -np.inf), axis=self.dim), range(k), axis=self.dim)
            for end in (self.terms, *self._reach(1.0)))
        error = np.maximum(_distance(low, best), _distance(high, best))
        nan = self._any(self.terms != self.terms)
        if positions:
            order = -np.sort(-np.where(self.taken, self.terms, -np.inf), axis=self.dim)
            order = np.take(np.concatenate([order, np.full_like(best, -np.inf)], axis=self.dim), range(k + 1), axis=self.dim)
            gaps = -np.diff(order, axis=self.dim)
            close = gaps <= 2 * self._over(np.maximum, np.where(self.taken, self.errors, 0.0), 0.0)
            error = np.where(self._any(close), float(self.terms.shape[self.dim]), 0.0)
            error = np.broadcast_to(error, best.shape)
        return np.where(nan, np.inf, error)
