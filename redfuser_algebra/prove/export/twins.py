"""The small functions that exported files define for themselves: total twins, and choices with ties to the first.

They are copied into a file as they are: those that it uses, and those that these use.
"""
from __future__ import annotations

from collections.abc import Iterable
from inspect import getsource
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import sympy


def larger(a, b):
    """The larger of two numbers, also of SymPy's."""
    return sympy.Max(a, b) if isinstance(a + b, sympy.Basic) else np.maximum(a, b)


def smaller(a, b):
    """The smaller of two numbers, also of SymPy's."""
    return sympy.Min(a, b) if isinstance(a + b, sympy.Basic) else np.minimum(a, b)


def log_of_sum(a, b):
    """log(eᵃ + eᵇ), also of SymPy's numbers."""
    return sympy.log(sympy.exp(a) + sympy.exp(b)) if isinstance(a + b, sympy.Basic) else np.logaddexp(a, b)


def chosen(condition, a, b):
    """a where a condition holds, else b; for SymPy by a number that is 1 where it holds, else 0."""
    if not any(isinstance(each, sympy.Basic) for each in (condition, a, b)):
        return np.where(condition, a, b)
    return b + sympy.Symbol(f"[{condition}]") * (a - b)


def minus(x, p):
    """x - p, and 0 where they are equal, also at ±inf."""
    return np.where(np.equal(x, p), 0.0, np.subtract(x, p))


def finite(p):
    """p, and 0 where it is not finite: a part without elements has no pivot of its own."""
    return np.where(np.isfinite(p), p, 0.0)


def ratio(p, q):
    """p / q, and 1 where they are equal, also at 0 and ±inf."""
    return np.where(np.equal(p, q), 1.0, np.divide(p, q))


def over(x, p):
    """x / p, and 0 where p = 0: |x| <= p leaves only x = 0 there."""
    return np.where(np.equal(p, 0), 0.0, np.divide(x, p))


def times(c, s):
    """c · s, and 0 where s = 0: an empty sum stays empty under any factor."""
    return np.where(np.equal(s, 0), 0.0, np.multiply(c, s))


def first_largest(values, positions, axis):
    """The largest value along an axis and its position, the first of equal ones; -inf and -1 where there is none."""
    values, positions = np.broadcast_arrays(values, positions)
    value = np.max(values, axis=axis, initial=-np.inf)
    won = (values == np.expand_dims(value, axis)) & (positions >= 0)
    position = np.min(np.where(won, positions, 2**62), axis=axis, initial=2**62)
    return value, np.where(position == 2**62, -1, position)


def first_smallest(values, positions, axis):
    """The smallest value along an axis and its position, the first of equal ones; inf and -1 where there is none."""
    value, position = first_largest(-values, positions, axis)
    return -value, position


def best(values, positions, k, axis):
    """The k largest values along an axis and their positions, the first of equal ones first; then -inf and -1."""
    values, positions = np.broadcast_arrays(values, positions)
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    values, positions = np.pad(values, room, constant_values=-np.inf), np.pad(positions, room, constant_values=-1)
    order = np.lexsort((positions, -values, positions < 0), axis=axis)
    order = np.take(order, range(k), axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(positions, order, axis)


def largest(values, k, axis):
    """The k largest values along an axis, largest first; -inf if there are fewer."""
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    return np.take(-np.sort(-np.pad(values, room, constant_values=-np.inf), axis=axis), range(k), axis=axis)


def places(values, k, axis):
    """The positions of the k largest values along an axis, largest first, the first of equal ones first."""
    return np.take(np.argsort(-values, axis=axis, kind="stable"), range(k), axis=axis)


TWINS = (larger, smaller, log_of_sum, chosen, minus, finite, ratio, over, times, first_largest, first_smallest, best, largest, places)


def sources(used: Iterable[str]) -> list[str]:
    """The source of every function used, in the order of the table."""
    wanted = set(used) | {name for twin in TWINS if twin.__name__ in used for name in twin.__code__.co_names}
    return [getsource(twin).rstrip() for twin in TWINS if twin.__name__ in wanted]
