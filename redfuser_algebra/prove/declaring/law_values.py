"""Values of terms on exact numbers where every word of a term takes them, else on floats.

In: expressions over inputs along one axis, and values.  Out: the value of every subterm, by the callables of the tables:
what is tested is what will be computed.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from hypothesis import strategies as st

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS, Monoid
from redfuser_algebra.language.expr import Expr, subterms

TOLERANCE = 1e-9
"""How far floats may differ, relative to the largest value met, or to 1."""

_SIZES = [Fraction(*pair) for pair in ((1, 1), (2, 1), (1, 2), (3, 1), (1, 3), (5, 1), (3, 2), (10, 1), (1, 10), (7, 1))]
_SIZES += sorted({Fraction(11 * step % 31 + 1, step % 7 + 2) for step in range(30)} - {*_SIZES}, key=lambda q: (q.denominator, q))
_FLOATS = [*_SIZES, *map(Fraction, (math.pi, math.e / 10, 1e-3, 19.73, 4.25e-7))]
_RANGES = {"": (-math.inf, math.inf), "positive": (Fraction(1, 10**8), math.inf), "nonnegative": (0, math.inf),
           "nonpositive": (-math.inf, 0), "unit": (0, 1)}


class Unfit(Exception):
    """A callable does not take these numbers, or gives others."""


class Undefined(Exception):
    """A term has no value here, or one too large."""


class TooLarge(Undefined):
    """A value is beyond the floats: nothing is said about it."""


@dataclass(frozen=True)
class Numbers:
    """A kind of number: how one is made of a rational, and those that are tried, simple ones first."""

    name: str
    dtype: type
    number: Callable[[Fraction], object]
    pool: tuple[Fraction, ...]

    def array(self, values: Iterable[object]) -> np.ndarray:
        """Numbers of this kind along one axis; infinities stay floats, truth values stay as they are."""
        values = list(values)
        if values and all(isinstance(value, bool) for value in values):
            return np.array(values)
        made = np.empty(len(values), self.dtype)
        for place, value in enumerate(values):
            made[place] = self.number(value) if isinstance(value, Fraction) else value
        return made

    def drawn(self, sign: str = "") -> st.SearchStrategy:
        """Numbers of a sign."""
        low, high = _RANGES[sign]
        return st.sampled_from([value for value in self.pool if low <= value <= high])

    def apart(self) -> st.SearchStrategy:
        """Numbers that are never close to each other or far from 0, so that rounding hides no difference."""
        steps = sorted(range(-32, 33), key=lambda step: (abs(step), -step))
        return st.sampled_from([Fraction(step) if self is WHOLE else Fraction(step, 8) for step in steps])


def _signed(sizes: Iterable[Fraction]) -> tuple[Fraction, ...]:
    """0, and every size with both signs side by side: a counterexample keeps its signs while it gets simpler."""
    return (Fraction(0), *(sign * size for size in sizes for sign in (1, -1)))


RATIONALS = Numbers("rationals", object, Fraction, _signed(_SIZES))
FLOATS = Numbers(f"floats, to {TOLERANCE:g} of the largest value", np.float64, float, _signed(_FLOATS))
WHOLE = Numbers("whole numbers", np.int64, int, _signed(map(Fraction, (*range(1, 13), 15, 16, 30, 37))))


def kinds_of(*roots: Expr) -> tuple[Numbers, ...]:
    """The numbers to try, most exact first; whole numbers only where some word takes no others."""
    rows = [MONOIDS[term.monoid] if term.op == "reduce" else FUNCTIONS.get(term.op) for term in subterms(*roots)]
    return (WHOLE,) if any(row is not None and row.whole for row in rows) else (RATIONALS, FLOATS)


def values_of(root: Expr, numbers: Numbers, given: Mapping[str, np.ndarray], length: int) -> dict[Expr, np.ndarray]:
    """The value of every subterm, `length` elements along the axis.  Raises Undefined and Unfit."""
    known: dict[Expr, np.ndarray] = {}
    for term in subterms(root):
        if term.op == "input":
            known[term] = given[term.name]
        elif term.op == "const":
            known[term] = numbers.array([Fraction(str(term.value))])
        elif term.op == "reduce":
            known[term] = folded(MONOIDS[term.monoid], np.broadcast_to(known[term.body], (length,)), numbers)
        else:
            known[term] = applied(FUNCTIONS[term.op].apply, [known[arg] for arg in term.args], numbers)
    return known


def applied(apply: Callable, operands: Iterable[np.ndarray], numbers: Numbers) -> np.ndarray:
    """A callable on arrays.  Raises Undefined where it has no value, Unfit where it does not take these numbers."""
    try:
        with np.errstate(all="ignore", over="raise"):
            result = np.asarray(apply(*operands))
    except (FloatingPointError, OverflowError) as error:
        raise TooLarge(str(error)) from error
    except (ZeroDivisionError, ValueError) as error:
        raise Undefined(str(error)) from error
    except (TypeError, AttributeError) as error:
        raise Unfit(str(error)) from error
    exact = result.dtype == bool or result.dtype == object and all(map(_is_exact, result.flat))
    if numbers is RATIONALS and not exact or result.dtype.kind not in "biufO":
        raise Unfit(f"it gives {result.dtype}")
    return result


def _is_exact(value: object) -> bool:
    return isinstance(value, int | Fraction | np.bool_) or isinstance(value, float) and math.isinf(value)


def folded(row: Monoid, elements: np.ndarray, numbers: Numbers) -> np.ndarray:
    """⊕ of all elements, one after the other; of none, the identity."""
    if not len(elements):
        return np.array([row.identity]) if isinstance(row.identity, bool) else numbers.array([as_number(row.identity)])
    if row.indexed:
        return np.array([(np.argmin if row.name == "argmin" else np.argmax)(elements)])
    if row.name in ("any", "all"):
        elements = elements != 0
    return reduce(lambda a, b: applied(row.apply, (a, b), numbers), np.split(elements, len(elements)))


def as_number(value: float) -> Fraction | float:
    """A number as the decimal it is written as; infinities as they are."""
    return Fraction(str(value)) if math.isfinite(value) else value


def agree(left: np.ndarray, right: np.ndarray, met: Iterable[np.ndarray] = ()) -> bool:
    """Whether two values are the same: exactly, or for floats up to rounding of the values met on the way."""
    left, right = np.broadcast_arrays(left, right)
    if "f" not in (left.dtype.kind, right.dtype.kind):
        return bool(np.all(left == right))
    with np.errstate(all="ignore"):
        sizes = [np.max(np.abs(each[np.isfinite(each)]), initial=1.0) for each in (left, right, *met) if each.dtype.kind in "if"]
        close = np.abs(left - right) <= TOLERANCE * max(sizes)
        return bool(np.all((left == right) | close & np.isfinite(left.astype(float))))


def is_finite(values: np.ndarray) -> bool:
    """Whether all values are numbers other than ±inf."""
    if values.dtype.kind == "f":
        return bool(np.isfinite(values).all())
    return not any(isinstance(value, float) and not math.isfinite(value) for value in values.flat)


def plain(values: np.ndarray) -> object:
    """An array as Python numbers to be read: alone, or in a list; whole numbers without a denominator."""
    read = [_plain_number(value) for value in np.ravel(values).tolist()]
    return read[0] if len(read) == 1 else read


def _plain_number(value: object) -> object:
    if isinstance(value, bool) or isinstance(value, float) and not value.is_integer():
        return value
    return int(value) if value == int(value) else value
