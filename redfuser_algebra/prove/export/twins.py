"""The small functions that exported files define for themselves: total twins, and choices with ties to the first.

Each is source text; a file holds those it uses, and those that these use.
"""
from __future__ import annotations

from collections.abc import Iterable

MINUS = '''def minus(x, p):
    """x - p, and 0 where they are equal, also at ±inf."""
    return np.where(np.equal(x, p), 0.0, np.subtract(x, p))'''

FINITE = '''def finite(p):
    """p, and 0 where it is not finite: a part without elements has no pivot of its own."""
    return np.where(np.isfinite(p), p, 0.0)'''

RATIO = '''def ratio(p, q):
    """p / q, and 1 where they are equal, also at 0 and ±inf."""
    return np.where(np.equal(p, q), 1.0, np.divide(p, q))'''

OVER = '''def over(x, p):
    """x / p, and 0 where p = 0: |x| <= p leaves only x = 0 there."""
    return np.where(np.equal(p, 0), 0.0, np.divide(x, p))'''

TIMES = '''def times(c, s):
    """c · s, and 0 where s = 0: an empty sum stays empty under any factor."""
    return np.where(np.equal(s, 0), 0.0, np.multiply(c, s))'''

FIRST_LARGEST = '''def first_largest(values, positions, axis):
    """The largest value along an axis and its position, the first of equal ones; -inf and -1 where there is none."""
    values, positions = np.broadcast_arrays(values, positions)
    value = np.max(values, axis=axis, initial=-np.inf)
    won = (values == np.expand_dims(value, axis)) & (positions >= 0)
    position = np.min(np.where(won, positions, 2**62), axis=axis, initial=2**62)
    return value, np.where(position == 2**62, -1, position)'''

FIRST_SMALLEST = '''def first_smallest(values, positions, axis):
    """The smallest value along an axis and its position, the first of equal ones; inf and -1 where there is none."""
    value, position = first_largest(-values, positions, axis)
    return -value, position'''

BEST = '''def best(values, positions, k, axis):
    """The k largest values along an axis and their positions, the first of equal ones first; then -inf and -1."""
    values, positions = np.broadcast_arrays(values, positions)
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    values, positions = np.pad(values, room, constant_values=-np.inf), np.pad(positions, room, constant_values=-1)
    order = np.lexsort((positions, -values, positions < 0), axis=axis)
    order = np.take(order, range(k), axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(positions, order, axis)'''

LARGEST = '''def largest(values, k, axis):
    """The k largest values along an axis, largest first; -inf if there are fewer."""
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    return np.take(-np.sort(-np.pad(values, room, constant_values=-np.inf), axis=axis), range(k), axis=axis)'''

PLACES = '''def places(values, k, axis):
    """The positions of the k largest values along an axis, largest first, the first of equal ones first."""
    return np.take(np.argsort(-values, axis=axis, kind="stable"), range(k), axis=axis)'''

LARGER = '''def larger(a, b):
    """The larger of two numbers, also of SymPy's."""
    return sympy.Max(a, b) if isinstance(a + b, sympy.Basic) else np.maximum(a, b)'''

SMALLER = '''def smaller(a, b):
    """The smaller of two numbers, also of SymPy's."""
    return sympy.Min(a, b) if isinstance(a + b, sympy.Basic) else np.minimum(a, b)'''

CHOSEN = '''def chosen(condition, a, b):
    """a where a condition holds, else b; for SymPy by a number that is 1 where it holds, else 0."""
    if not any(isinstance(each, sympy.Basic) for each in (condition, a, b)):
        return np.where(condition, a, b)
    return b + sympy.Symbol(f"[{condition}]") * (a - b)'''

SOURCES = {"larger": LARGER, "smaller": SMALLER, "chosen": CHOSEN,
           "minus": MINUS, "finite": FINITE, "ratio": RATIO, "over": OVER, "times": TIMES, "first_largest": FIRST_LARGEST,
           "first_smallest": FIRST_SMALLEST, "best": BEST, "largest": LARGEST, "places": PLACES}
NEEDS = {"first_smallest": ("first_largest",)}


def sources(used: Iterable[str]) -> list[str]:
    """The source of every function used, in the order of the table."""
    wanted = set(used) | {needed for name in used for needed in NEEDS.get(name, ())}
    return [source for name, source in SOURCES.items() if name in wanted]
