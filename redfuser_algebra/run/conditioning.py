"""How far rounding may move a result: a bound next to every value, carried through the formulas as they are written.

In: an operator (or its fused form), a bound call, and the relative error that one operation may make.  Out: a bound
for every element of every output, by Wilkinson's running error analysis (Higham, Accuracy and Stability of Numerical
Algorithms, §3.3): operands are moved to the ends of their bounds, and sums add the bounds of their terms and one
rounding of the size of all terms per addition.

A bound of inf says that the value is *not determined*: with every operation rounded a little differently a choice
falls otherwise, a divisor is 0, a finite value overflows, or several NaN compete for one position.  That is the one
class of inputs on which two right programs may differ without limit; a weight that underflows to 0 next to an
infinite value is an example.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS, Function
from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.environment import Environment, stretched
from redfuser_algebra.run.evaluate import Evaluation
from redfuser_algebra.run.laid_out import environment_of, structured
from redfuser_algebra.run.recurrence import state_symbol
from redfuser_algebra.run.recurrence_bounds import online_bounds, ordered_bounds, scan_bound
from redfuser_algebra.run.reduction_bounds import SMALLEST, WHOLE, Terms, distance
from redfuser_algebra.run.rounding import spacing

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

Pair = tuple[np.ndarray, np.ndarray]
"""A value and its bound."""

EXACT = frozenset((
    "negative", "abs", "sign", "maximum", "minimum", "where", "floor", "ceil", "round", "isnan", "identity",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not"))
RING = frozenset(("add", "subtract", "multiply", "mod", "floor_divide"))
STEPS = frozenset(("sign", "floor", "ceil", "round", "cast", "floor_divide"))
WAVES = frozenset(("sin", "cos"))
POLES = frozenset(("divide", "reciprocal", "mod", "floor_divide", "log", "log2", "log1p"))
UNDERFLOWS = frozenset(("multiply", "divide", "power", "exp", "exp2"))
_NO_SIGN = Function("", 0, np.positive)


def error_bounds(operator: Operator, binding: Binding, unit: float, given: float = 0.0) -> object:
    """For each output of the operator as written, in the same structure, how far it may be from the true value.

    `unit` is the relative error of one operation.  With `given`, that of inputs which are no whole numbers, choices and steps
    stay as they are: the bounds are how far values move between them.  Raises OperatorError where the operator has no value.
    """
    environment = environment_of(operator, binding)
    errors = Errors(environment, unit, given=given)
    return structured(operator, [errors.of(output) for output in operator.outputs], environment)


def form_error_bounds(operator: Operator, form: FusedForm, binding: Binding, unit: float) -> object:
    """The same for the formulas of a fused form that sweeps all elements at once."""
    environment = environment_of(operator, binding, form)
    errors = Errors(replace(environment, symbols={}, partial=True), unit, definitions(form))
    if any(component.joined is not None for component in form.state):
        errors.bind(ordered_bounds(errors, form, environment.dim(form.axis), environment.sizes[form.axis]))
    if not form.merges:
        errors.bind(online_bounds(errors, form, environment.dim(form.axis), environment.sizes[form.axis]))
    return structured(operator, [errors.of(output) for output in form.outputs], environment)


def definitions(form: FusedForm) -> dict[str, Expr]:
    """What every symbol of a form means when one part holds all elements."""
    meaning = dict(form.definitions)
    for component in form.state:
        parts = component.operands
        out = component.axes[-1] if MONOIDS[component.monoid].counted else ""
        meaning[component.name] = Expr("reduce", parts, (component.monoid, form.axis, out))
        if MONOIDS[component.monoid].indexed:
            best = (component.monoid.removeprefix("arg"), form.axis, out)
            meaning[component.name + WON] = Expr("reduce", parts, best)
    return meaning


class Errors:
    """The bound of every term's value.  0 where the value is exact; for truth values 1 where they may flip."""

    def __init__(self, environment: Environment, unit: float, meaning: dict[str, Expr] | None = None, given: float = 0.0) -> None:
        self.evaluation, self.unit, self.given = Evaluation(environment), unit, given
        self.known: dict[Expr, np.ndarray] = {}
        self._meaning, self._symbols = meaning or {}, {}

    def of(self, term: Expr) -> np.ndarray:
        """The bound, laid out as the value is."""
        for part in subterms(term):
            if part.op == "symbol" and part.name not in self._symbols:
                self._define(part.name)
        return self._bound(term)

    def _bound(self, term: Expr) -> np.ndarray:
        if term not in self.known:
            value = self.evaluation.of(term)
            stays = self.given > 0 and (value.dtype.kind in "bi" or term.op in STEPS)
            with np.errstate(all="ignore"):
                error = np.zeros(value.shape) if stays else self._error(term, value)
            self.known[term] = np.where(error != error, np.inf, error)
        return self.known[term]

    def pair(self, term: Expr) -> Pair:
        """The value and its bound, both laid out."""
        error = self.of(term)
        return self.evaluation.of(term), error

    def bind(self, pairs: Mapping[str, Pair]) -> None:
        """Give symbols their values and bounds."""
        for name, (value, error) in pairs.items():
            self.evaluation.environment.symbols[name], self._symbols[name] = value, error

    def inside(self, pairs: Mapping[str, Pair]) -> Errors:
        """The same with more symbols, and nothing known yet."""
        environment = self.evaluation.environment
        own = {**environment.own, **{name + PRIME: axes for name, axes in environment.own.items() if not name.endswith(PRIME)}}
        made = Errors(replace(environment, symbols=dict(environment.symbols), own=own), self.unit, self._meaning, self.given)
        made._symbols = dict(self._symbols)
        made.bind(pairs)
        return made

    def _define(self, name: str) -> None:
        meaning = self._meaning[name]
        error = self.of(meaning)
        self.evaluation.environment.symbols[name] = self.evaluation.of(meaning)
        self._symbols[name] = error

    def _error(self, term: Expr, value: np.ndarray) -> np.ndarray:
        if term.op == "symbol":
            environment = self.evaluation.environment
            error = np.broadcast_to(self._symbols[term.name], environment.symbols[term.name].shape)
            return environment.read_along(error, environment.own.get(term.name, term.axes), term.axes)
        if term.op == "state":
            return self._symbols[state_symbol(term)]
        if not term.args:
            inexact = term.op == "input" and self.given > 0
            return np.where(np.isfinite(value) & (value != np.floor(value)), self.given * np.abs(value), 0.0) if inexact else np.zeros(value.shape)
        if term.op == "scan":
            environment = self.evaluation.environment
            return scan_bound(self, term, environment.dim(term.axis), environment.sizes[term.axis])
        if term.op == "reduce":
            return self._reduced(term, value)
        operands = [(self.evaluation.of(arg), self._bound(arg)) for arg in term.args]
        if term.op == "where":
            return _chosen(*operands)
        if term.op in WAVES:
            return np.minimum(operands[0][1], 2.0) + self.unit * np.abs(value)
        if term.op in ("equal", "not_equal"):
            return _may_meet(*operands)
        name = self._name(term)
        apply = FUNCTIONS[name].apply if name in FUNCTIONS else lambda *args: self._applied(term, args)
        moved = _moved(apply, value, operands, tuple(map(nonnegative, term.args)))
        if name in POLES:
            moved = np.where(_pole(*operands[-1], name) & (value == value), np.inf, moved)
        if term.op in ("round", "cast") and term.attrs[-1]:
            moved = moved + _reassociated(term, value)
        return moved + _rounding(name, value, operands, self.unit)

    def _name(self, term: Expr) -> str:
        return TOTAL_TWINS.get(term.op, term.op) if self.evaluation.environment.partial else term.op

    def _applied(self, term: Expr, args: Sequence[np.ndarray]) -> np.ndarray:
        inner = Evaluation(self.evaluation.environment)
        inner.known.update(zip(term.args, args, strict=True))
        return inner.of(term)

    def _reduced(self, term: Expr, value: np.ndarray) -> np.ndarray:
        environment = self.evaluation.environment
        dim = environment.dim(term.axis)
        body, mask = (self.evaluation.of(term.body), self._bound(term.body)), (np.array(True), np.array(0.0))
        if term.mask is not None:
            mask = self.evaluation.of(term.mask).astype(bool), self._bound(term.mask)
        shape = np.broadcast_shapes(body[0].shape, mask[0].shape)
        values, errors, taken, unsure = (
            stretched(np.broadcast_to(a, shape), dim, environment.sizes[term.axis]) for a in (*body, *mask))
        terms = Terms(values.astype(np.float64), errors, taken | (unsure > 0), unsure > 0, dim, self.unit,
                      plain=not term.body.args)
        if term.count is None:
            return terms.bound(term.monoid)
        out = environment.dim(term.attrs[2])
        return np.swapaxes(terms.bound(term.monoid, value.shape[out]), dim, out)


def nonnegative(term: Expr) -> bool:
    """Whether a term cannot be negative, however its parts are rounded."""
    if term.op == "const":
        return term.value >= 0
    if FUNCTIONS.get(term.op, _NO_SIGN).sign or term.op in ("multiply", "divide") and term.args[0] is term.args[1]:
        return True
    if term.op == "power":
        return term.args[1].op == "const" and term.args[1].value % 2 == 0 or nonnegative(term.args[0])
    if term.op == "reduce":
        return not MONOIDS[term.monoid].indexed and nonnegative(term.body)
    if term.op in ("add", "multiply", "divide", "maximum", "minimum"):
        return all(map(nonnegative, term.args))
    return term.op in ("size", "index")


def _chosen(condition: Pair, a: Pair, b: Pair) -> np.ndarray:
    """The bound of where(condition, a, b)."""
    either = distance(a[0], b[0]) + a[1] + b[1]
    return np.where(condition[1] > 0, either, np.where(condition[0] != 0, a[1], b[1]))


def _may_meet(a: Pair, b: Pair) -> np.ndarray:
    """1 where two values that are not exact may be equal or not."""
    reach = a[1] + b[1]
    return np.where((reach > 0) & ~(np.abs(np.subtract(a[0], b[0], dtype=np.float64)) > reach), 1.0, 0.0)


def _moved(apply: Callable, value: np.ndarray, operands: list[Pair], positive: tuple[bool, ...]) -> np.ndarray:
    """How far the value moves when the operands go to the ends of their bounds."""
    worst = np.zeros(value.shape)
    ends = [_ends(*operand, sign) for operand, sign in zip(operands, positive, strict=True)]
    for corner in product(*ends) if any(len(end) > 1 for end in ends) else ():
        worst = np.maximum(worst, distance(apply(*corner), value))
    unbounded = _anywhere(value, [np.isinf(error) for _, error in operands])
    nan = (value != value) & _anywhere(value, [(operand != operand) & (error == 0) for operand, error in operands])
    return np.where(nan, 0.0, np.where(unbounded, np.inf, worst))


def _ends(operand: np.ndarray, error: np.ndarray, positive: bool) -> tuple[np.ndarray, ...]:
    if not error.any():
        return (operand,)
    if operand.dtype == bool:
        return np.where(error > 0, False, operand), np.where(error > 0, True, operand)
    finite = np.where(np.isfinite(error), error, 0.0)
    low = operand - finite
    return np.maximum(low, 0.0) if positive else low, operand + finite


def _anywhere(value: np.ndarray, conditions: list[np.ndarray]) -> np.ndarray:
    return np.any(np.broadcast_arrays(value, *conditions)[1:], axis=0)


def _everywhere(value: np.ndarray, conditions: list[np.ndarray]) -> np.ndarray:
    return np.all(np.broadcast_arrays(value, *conditions)[1:], axis=0)


def _pole(operand: np.ndarray, error: np.ndarray, name: str) -> np.ndarray:
    """Where the operand may be the one at which the function is infinite."""
    return (np.abs(operand + 1 if name == "log1p" else operand) <= error) & (error > 0)


def _reassociated(term: Expr, value: np.ndarray) -> np.ndarray:
    """A fused form may round at an earlier, smaller scale: half a step of then, next to half a step of now."""
    return spacing(value, term.attrs[0] if term.op == "cast" else "int64")


def _rounding(name: str, value: np.ndarray, operands: list[Pair], unit: float) -> np.ndarray:
    """What rounding the result itself adds; inf where finite operands overflow."""
    if name in EXACT or name not in FUNCTIONS or value.dtype.kind != "f":
        return np.zeros(value.shape)
    finite = _everywhere(value, [np.isfinite(operand) for operand, _ in operands])
    rounding = np.where(np.isfinite(value), unit * np.abs(value), 0.0)
    if name in RING:
        whole = _everywhere(value, [operand == np.floor(operand) for operand, _ in operands])
        rounding = np.where(whole & finite & (np.abs(value) <= WHOLE), 0.0, rounding)
    pole = (operands[-1][0] == 0) & (name in POLES)
    rounding = np.where(np.isinf(value) & finite & ~pole, np.inf, rounding)
    if name not in UNDERFLOWS:
        return rounding
    zero = _anywhere(value, [(operand == 0) & (error == 0) for operand, error in operands])
    return rounding + np.where((np.abs(value) < SMALLEST) & finite & ~zero, SMALLEST * unit, 0.0)
