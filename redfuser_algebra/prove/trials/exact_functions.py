"""Functions of exact numbers: rational where they can be, balls elsewhere, IEEE at infinities, NaN and poles.

Two tables, by the names of the elementwise functions: numbers to a number, and numbers to a truth value.
"""
from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from flint import arb, fmpq

from redfuser_algebra.algebra.floats import FLOAT_FORMATS
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.prove.refutation.numbers import balls, exact_bounds, to_format, written
from redfuser_algebra.prove.trials.extended import BITS, NAN, ONE, ZERO, Exact, Undecided, exact, is_moderate, is_special, order, sign

LARGEST_POWER = 10_000
"""Whole powers of rationals beyond this are balls."""

_SMOOTH = balls(BITS).functions


def _float(a: Exact) -> float:
    """A float of the same sign, close to the number."""
    if is_special(a):
        return a
    middle = abs(float((arb(a) if isinstance(a, fmpq) else a).mid()))
    return sign(a) * min(max(middle, 1e-300), 1e300)


def _ieee(name: str, *args: Exact) -> Exact:
    """What IEEE arithmetic gives where an operand is special or the real operation has no value."""
    value = float(FUNCTIONS[name].apply(*map(_float, args)))
    if name == "arctan" and value == value:
        return arb.pi() / 2 * (1 if value > 0 else -1)
    return exact(value)


def _ring(name: str) -> Callable[[Exact, Exact], Exact]:
    operation = _SMOOTH[name]

    def apply(a: Exact, b: Exact) -> Exact:
        return _ieee(name, a, b) if isinstance(a, float) or isinstance(b, float) else operation(a, b)

    return apply


add, subtract, multiply = map(_ring, ("add", "subtract", "multiply"))


def divide(a: Exact, b: Exact) -> Exact:
    """a / b, by IEEE rules where b is 0."""
    if is_special(a) or is_special(b) or sign(b) == 0:
        return _ieee("divide", a, b)
    return ONE if a is b else a / b


def power(a: Exact, b: Exact) -> Exact:
    """a to the power b; NaN for a fractional power of a negative number."""
    if is_special(a) or is_special(b):
        return _ieee("power", a, b)
    whole = isinstance(b, fmpq) and b.q == 1 and abs(b.p) <= LARGEST_POWER
    if whole and (b.p >= 0 or sign(a) != 0):
        return a ** int(b.p)
    if sign(a) <= 0:
        return _ieee("power", a, b)
    return sqrt(a) if b == fmpq(1, 2) else arb(a) ** b


_AT_ZERO = {"exp": ONE, "exp2": ONE, "expm1": ZERO, "log1p": ZERO, "sin": ZERO, "cos": ONE, "tanh": ZERO, "erf": ZERO, "arctan": ZERO}
_LOGARITHMS = {"log": ZERO, "log2": ZERO, "log1p": fmpq(-1)}
"""Each logarithm and where it is −inf; NaN below that."""


def _function(name: str) -> Callable[[Exact], Exact]:
    """A function of one number; the same rational gives the same ball, so that ties stay ties."""
    remembered = cache(lambda a: _SMOOTH[name](arb(a)))

    def apply(a: Exact) -> Exact:
        if is_special(a) or name in _LOGARITHMS and sign(a - _LOGARITHMS[name]) <= 0:
            return _ieee(name, a)
        if a == 0 and name in _AT_ZERO:
            return _AT_ZERO[name]
        if name.endswith("2") and (found := _power_of_two(name, a)) is not None:
            return found
        if name == "log" and a == 1:
            return ZERO
        return remembered(a) if isinstance(a, fmpq) else _SMOOTH[name](a)

    return apply


def _power_of_two(name: str, a: Exact) -> Exact | None:
    """2^a or log₂ a where it is a whole number."""
    if not isinstance(a, fmpq):
        return None
    if name == "exp2":
        return fmpq(2) ** int(a.p) if a.q == 1 and abs(a.p) <= LARGEST_POWER else None
    exponent = int(a.p).bit_length() - int(a.q).bit_length()
    return fmpq(exponent) if fmpq(2) ** exponent == a else None


def sqrt(a: Exact) -> Exact:
    """√a, rational where it can be; NaN below 0."""
    if is_special(a) or sign(a) < 0:
        return _ieee("sqrt", a)
    if isinstance(a, fmpq):
        root = fmpq(int(a.p.isqrt()), int(a.q.isqrt()))
        return root if root * root == a else _root(a)
    return a.sqrt()


@cache
def _root(a: fmpq) -> arb:
    return arb(a).sqrt()


def _stepped(name: str, step: Callable[[Fraction], Fraction]) -> Callable[[Exact], Exact]:
    """A function that is constant between steps."""
    def apply(a: Exact) -> Exact:
        if is_special(a):
            return a
        if not is_moderate(a):
            raise Undecided(f"{name} of a number that is too large or too small to write out")
        low, high = map(step, exact_bounds(a))
        if low != high:
            raise Undecided(f"{name} of {written(a)}")
        return exact(low)

    return apply


floor = _stepped("floor", lambda a: Fraction(a.numerator // a.denominator))
ceil = _stepped("ceil", lambda a: Fraction(-(-a.numerator // a.denominator)))
nearest = _stepped("round", lambda a: Fraction(round(a)))


@cache
def cast(dtype: str) -> Callable[[Exact], Exact]:
    """Rounding to a number format; the reals stand in for float64.  What overflows to ±inf keeps its value."""
    if dtype == "float64":
        return lambda a: a
    if dtype == "bool":
        return lambda a: exact(a != a or sign(a) != 0)
    if dtype in FLOAT_FORMATS:
        return _stepped(dtype, lambda a: to_format(dtype, a))
    limits = np.iinfo(dtype)
    rounded = _stepped(dtype, lambda a: Fraction(min(max(round(a), int(limits.min)), int(limits.max))))
    return lambda a: ZERO if a != a else exact(limits.max if a > 0 else limits.min) if is_special(a) else rounded(a)


def maximum(a: Exact, b: Exact) -> Exact:
    """The larger; NaN if one is NaN."""
    o = order(a, b)
    return NAN if o is None else a if o >= 0 else b


def minimum(a: Exact, b: Exact) -> Exact:
    """The smaller; NaN if one is NaN."""
    o = order(a, b)
    return NAN if o is None else a if o <= 0 else b


def logadd(a: Exact, b: Exact) -> Exact:
    """log(eᵃ + eᵇ); the other one where one is −inf."""
    if is_special(a) or is_special(b):
        return b if a == -np.inf else a if b == -np.inf else _ieee("logadd", a, b)
    return _SMOOTH["logadd"](arb(a), arb(b))


def absolute(a: Exact) -> Exact:
    """|a|."""
    return abs(a) if is_special(a) or sign(a) >= 0 else -a


def signum(a: Exact) -> Exact:
    """The sign as a number."""
    return a if a != a else exact(sign(a))


def floor_divide(a: Exact, b: Exact) -> Exact:
    """⌊a / b⌋."""
    if is_special(a) or is_special(b) or sign(b) == 0:
        return _ieee("floor_divide", a, b)
    return floor(a / b)


def mod(a: Exact, b: Exact) -> Exact:
    """a − b·⌊a / b⌋."""
    if is_special(a) or is_special(b) or sign(b) == 0:
        return _ieee("mod", a, b)
    return a - b * floor(a / b)


# the total twins; over finite numbers they are the operations they complete, except at a zero divisor

def shift(a: Exact, p: Exact) -> Exact:
    """a − p, and 0 where a = p, also at ±inf."""
    same = a == p if is_special(a) else a is p
    return ZERO if same else subtract(a, p)


def ratio(p: Exact, q: Exact) -> Exact:
    """p / q, and 1 where p = q, also at 0 and ±inf."""
    return ONE if order(p, q) == 0 else divide(p, q)


def scaled(a: Exact, p: Exact) -> Exact:
    """a / p, and 0 where p = 0."""
    return ZERO if p == 0 else divide(a, p)


def scale(c: Exact, s: Exact) -> Exact:
    """c · s, and 0 where s = 0."""
    return ZERO if s == 0 else multiply(c, s)


def anchor(p: Exact) -> Exact:
    """p, and 0 where p is not finite."""
    return ZERO if is_special(p) else p


FUNCTION_OF: dict[str, Callable[..., Exact]] = {
    "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "power": power, "sqrt": sqrt,
    "negative": lambda a: -a, "reciprocal": lambda a: divide(ONE, a), "identity": lambda a: a,
    **{name: _function(name) for name in (*_AT_ZERO, "log", "log2")},
    "arctan2": lambda y, x: _ieee("arctan2", y, x) if is_special(y) or is_special(x) else _SMOOTH["arctan2"](arb(y), arb(x)),
    "logadd": logadd,
    "floor": floor, "ceil": ceil, "round": nearest, "floor_divide": floor_divide, "mod": mod, "abs": absolute,
    "sign": signum, "maximum": maximum, "minimum": minimum,
    "shift": shift, "ratio": ratio, "scaled": scaled, "scale": scale, "anchor": anchor,
}
"""Numbers to a number, by the name of the function."""

TRUTH_OF: dict[str, Callable[..., bool]] = {
    "equal": lambda a, b: order(a, b) == 0, "not_equal": lambda a, b: order(a, b) != 0,
    "less": lambda a, b: order(a, b) == -1, "less_equal": lambda a, b: order(a, b) in (-1, 0),
    "greater": lambda a, b: order(a, b) == 1, "greater_equal": lambda a, b: order(a, b) in (0, 1),
    "isnan": lambda a: a != a,
}
"""Numbers to a truth value."""
