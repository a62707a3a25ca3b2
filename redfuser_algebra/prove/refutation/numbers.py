"""Two kinds of number that cannot lie: exact rationals, and balls that contain the value they stand for.

Both are used through NumPy arrays of objects.  A comparison has four answers: −1, 0, 1, and OPEN where a ball is too
wide to tell.  Nothing that is open may be used in a proof.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import flint
import numpy as np
from flint import arb, fmpq

from redfuser_algebra.algebra.floats import FLOAT_FORMATS

OPEN = 2
"""The answer of a comparison that a ball is too wide to decide."""

Number = fmpq | arb

_LONGEST = 256


@dataclass(frozen=True)
class Field:
    """A kind of number: how one is made, its functions by name, and how two are compared.

    `bits` is the precision of balls, 0 for rationals.  `number` makes a new object at every call: two entries are
    the same object only if one was taken from the other.
    """

    name: str
    bits: int
    number: Callable[[Fraction], Number]
    functions: dict[str, Callable[..., Number]]
    order: Callable[[Number, Number], int]
    whole: Callable[[Number], int | None]

    def array(self, values: object) -> np.ndarray:
        """Numbers of this kind, one new object per entry."""
        given = np.asarray(values, object)
        made = np.empty(given.size, object)
        made[:] = [self.number(value) for value in given.flat]
        return made.reshape(given.shape)

    def orders(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """−1, 0 or 1 for each pair of entries, or OPEN."""
        if not self.bits:
            return np.greater(a, b).astype(int) - np.less(a, b)
        return np.asarray(entrywise(self.order, 2)(a, b)).astype(int)


@lru_cache(maxsize=1000)
def entrywise(function: Callable, arguments: int) -> np.ufunc:
    """A function of so many numbers as one of arrays."""
    return np.frompyfunc(function, arguments, 1)


def fraction(value: object) -> Fraction:
    """A number as the decimal it is written as: 0.2 is 1/5."""
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def _rational(value: Fraction | int) -> fmpq:
    if isinstance(value, int):
        return fmpq(value)
    exact = Fraction(value)
    return fmpq(exact.numerator, exact.denominator)


def _ball(value: Fraction | float | arb) -> arb:
    if isinstance(value, float | arb):
        return arb(value)
    return arb(_rational(value))


def _rational_order(a: fmpq, b: fmpq) -> int:
    return 0 if a == b else -1 if a < b else 1


def _ball_order(a: arb, b: arb) -> int:
    if a is b:
        return 0
    if a < b:
        return -1
    if a > b:
        return 1
    return 0 if a == b else OPEN


def _power(a: Number, b: Number) -> Number:
    exponent = b.p if isinstance(b, fmpq) else b.unique_fmpz() if b.is_exact() else None
    if exponent is not None and b == exponent:
        return a ** int(exponent)
    return a ** b


def _log_add(a: arb, b: arb) -> arb:
    for one, other in ((a, b), (b, a)):
        if not one.is_finite() and one < 0:
            return other
    return a + ((b - a).exp() + 1).log()


def wholes(a: Number, fixed: bool) -> tuple[int, int]:
    """The floors of the least and the largest number that `a` may be, or may become when it moves a little.

    Raises ValueError for what is not finite.
    """
    if isinstance(a, fmpq):
        floor = int(a.floor())
        return (floor - 1 if a == floor and not fixed else floor), floor
    floor = a.floor().unique_fmpz() if a.is_finite() else None
    if floor is None:
        low, high = (end.floor().unique_fmpz() for end in (a.lower(), a.upper()))
        if low is None or high is None:
            raise ValueError("not finite")
        return int(low), int(high)
    return (int(floor) - 1 if a == floor and not fixed else int(floor)), int(floor)


def _whole(a: Number) -> int | None:
    """The whole number that `a` is for certain, or None."""
    low, high = wholes(a, True)
    return low if low == high and a == low else None


def to_format(dtype: str, value: Fraction) -> Fraction:
    """A number rounded to a format of FLOAT_FORMATS, to nearest and ties to even; what overflows to ±inf keeps its value."""
    if value == 0:
        return value
    to = FLOAT_FORMATS[dtype]
    exponent = abs(value).numerator.bit_length() - value.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > abs(value)
    unit = Fraction(2) ** (max(exponent, to.smallest_exponent) - to.mantissa)
    near = round(value / unit) * unit
    return min(max(near, Fraction(-to.largest)), Fraction(to.largest)) if to.saturates else near


_EXACT = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
          "negative": operator.neg, "reciprocal": lambda a: 1 / a, "power": _power}
_SMOOTH = {
    "exp": arb.exp, "exp2": lambda a: _power(arb(2), a), "expm1": arb.expm1,
    "log": arb.log, "log2": lambda a: a.log() / arb.const_log2(), "log1p": arb.log1p, "sqrt": arb.sqrt,
    "sin": arb.sin, "cos": arb.cos, "tanh": arb.tanh, "erf": arb.erf, "arctan": arb.atan, "arctan2": lambda y, x: arb.atan2(y, x),
    "logadd": _log_add,
}

RATIONAL = Field("rational", 0, _rational, _EXACT, _rational_order, _whole)


def balls(bits: int) -> Field:
    """The field of balls of this precision; compute with it inside `working(field)`."""
    return Field("ball", bits, _ball, {**_EXACT, **_SMOOTH}, _ball_order, _whole)


def working(field: Field):
    """A context in which arithmetic has the precision of the field."""
    return flint.ctx.workprec(field.bits or 53)


def is_zero(a: Number) -> bool:
    """Whether a number is exactly 0."""
    return bool(a == 0)


def is_finite(a: Number) -> bool:
    """Whether a number is neither infinite nor undefined."""
    return a.is_finite() if isinstance(a, arb) else True


def is_exact(a: Number) -> bool:
    """Whether a number is known exactly."""
    return a.is_exact() if isinstance(a, arb) else True


def size(a: Number) -> int | None:
    """Some e with |a| ≥ 2^e, close to the largest; None unless a is certainly not 0."""
    low = a.abs_lower() if isinstance(a, arb) else arb(a).abs_lower()
    if not low.is_finite() or low.is_zero():
        return None
    mantissa, exponent = low.mid().man_exp()
    return int(mantissa).bit_length() + int(exponent) - 1


def between_ends(low: Fraction, high: Fraction) -> arb:
    """A ball that contains every number from `low` to `high`."""
    return _ball(low).union(_ball(high))


def exact_bounds(a: Number) -> tuple[Fraction, Fraction]:
    """Rationals that enclose a number."""
    if isinstance(a, fmpq):
        return (Fraction(int(a.p), int(a.q)),) * 2
    return tuple(_dyadic(end.mid(), end.rad(), sign) for end, sign in ((a.lower(), -1), (a.upper(), 1)))


def _dyadic(mid: arb, rad: arb, sign: int) -> Fraction:
    return _of(mid) + sign * _of(rad)


def _of(exact: arb) -> Fraction:
    mantissa, exponent = exact.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def written(a: Number) -> str:
    """A number in full if it is exact and not very long; a ball with ten digits and its radius."""
    if not is_finite(a):
        return "inf" if a > 0 else "-inf" if a < 0 else "nan"
    if not is_exact(a):
        return a.str(10)
    exact = exact_bounds(a)[0]
    bits = exact.numerator.bit_length() + exact.denominator.bit_length()
    return str(exact) if bits <= _LONGEST else f"{_ball(exact).str(12, radius=False)} (a rational of {bits} bits)"
