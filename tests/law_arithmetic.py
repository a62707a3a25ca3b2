"""Terms of laws evaluated on a grid, in two arithmetics.

Values have three dimensions: the reduced axis l, an axis k to contract over (a top-k puts its places on l), and a
batch of draws.  `EXACT` computes with fractions, and with 60 digits once a function leaves the rationals; an operation
that has no real value there raises `Undefined`.  `FLOATS` is NumPy in float64.  Nothing of the search is used, nor of
the evaluator.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
from law_terms import CONTRACTIONS
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS

REAL = mpmath.mp.clone()
REAL.dps = 60
PRECISION = REAL.mpf(10) ** -45
PLACES = 2


class Undefined(ArithmeticError):
    """An operation has no real value: 1 / 0, log(−1), the largest of nothing."""


@dataclass(frozen=True)
class Grid:
    """The lengths of l and k and the number of draws."""

    length: int
    width: int = 1
    draws: int = 1

    @property
    def shape(self):
        return (self.length, self.width, self.draws)


def evaluated(term, arithmetic, grid, values):
    """The value of a term, and of every part of it (for tolerances)."""
    known = {}

    def walk(part):
        if part not in known:
            known[part] = computed(part)
        return known[part]

    def computed(part):
        if isinstance(part, str):
            return values[part]
        if isinstance(part, Fraction):
            return arithmetic.number(part)
        head, *operands = part
        return arithmetic.apply(head, [walk(operand) for operand in operands], grid)

    return walk(term), known


class Floats:
    """NumPy in float64."""

    def number(self, value):
        return np.full((1, 1, 1), float(value))

    def apply(self, head, operands, grid):
        with np.errstate(all="ignore"):
            if head in CONTRACTIONS:
                return self.reduced(CONTRACTIONS[head], _stretched(operands[0], 1, grid.width), 1)
            if head in MONOIDS:
                return self.reduced(head, _stretched(operands[0], 0, grid.length), 0)
            if head == "rounded":
                return np.round(operands[0] * 4) / 4
            return FUNCTIONS[head].apply(*operands)

    def reduced(self, monoid, values, axis):
        if monoid == "sum":
            return np.add.reduce(values.astype(float), axis=axis, keepdims=True)
        if monoid in ("topk", "argtopk"):
            return _top(values, monoid)
        if monoid in ("argmax", "argmin"):
            return getattr(np, monoid)(values, axis=axis, keepdims=True)
        return UFUNCS[monoid].reduce(values, axis=axis, keepdims=True)


UFUNCS = {"prod": np.multiply, "max": np.maximum, "min": np.minimum, "fmax": np.fmax, "fmin": np.fmin,
          "any": np.logical_or, "all": np.logical_and}


def _top(values, monoid):
    """The PLACES largest along l, NaN before all, ties at the lowest position; or their positions."""
    order = np.lexsort((-values, ~np.isnan(values)), axis=0)[:PLACES]
    return order if monoid == "argtopk" else np.take_along_axis(values, order, 0)


def _stretched(values, axis, length):
    shape = list(values.shape)
    shape[axis] = length
    return np.broadcast_to(values, shape)


class Exact:
    """Fractions, and 60 digits beyond them."""

    def number(self, value):
        return _array(value)

    def apply(self, head, operands, grid):
        if head in CONTRACTIONS:
            return self.reduced(CONTRACTIONS[head], _stretched(operands[0], 1, grid.width), 1)
        if head in MONOIDS:
            return self.reduced(head, _stretched(operands[0], 0, grid.length), 0)
        function = _ELEMENTWISE[head]
        return np.frompyfunc(function, len(operands), 1)(*operands)

    def reduced(self, monoid, values, axis):
        moved = np.moveaxis(values, axis, 0)
        places = min(PLACES, len(moved)) if monoid in ("topk", "argtopk") else 1
        result = np.empty((places, *moved.shape[1:]), object)
        for place in np.ndindex(moved.shape[1:]):
            column = _REDUCED[monoid]([_comparable(v) for v in moved[(slice(None), *place)]])
            for position, value in enumerate(column if monoid in ("topk", "argtopk") else [column]):
                result[(position, *place)] = value
        return np.moveaxis(result, 0, axis)


def _array(value):
    array = np.empty((1, 1, 1), object)
    array[0, 0, 0] = value
    return array


def _real(value):
    return REAL.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _comparable(value):
    return Fraction(int(value)) if isinstance(value, bool) else value


def _pair(a, b):
    a, b = _comparable(a), _comparable(b)
    both = isinstance(a, Fraction) and isinstance(b, Fraction)
    return (a, b) if both else (_real(a), _real(b))


def _key(column):
    """What to order a column by: fractions if all are, else 60 digits."""
    rational = all(isinstance(value, Fraction) for value in column)
    return (lambda value: value) if rational else _real


def _best(column, choose):
    if not column:
        raise Undefined("the best of nothing")
    return choose(column, key=_key(column))


def _best_position(column, sign):
    if not column:
        raise Undefined("the best of nothing")
    key = _key(column)
    return Fraction(min(range(len(column)), key=lambda i: (sign * key(column[i]), i)))


def _places(column, positions):
    key = _key(column)
    order = sorted(range(len(column)), key=lambda i: (-key(column[i]), i))[:PLACES]
    return [Fraction(i) if positions else column[i] for i in order]


def _folded(column, function, start):
    for value in column:
        start = function(start, value)
    return start


_REDUCED = {
    "sum": lambda column: _folded(column, _add, Fraction(0)),
    "prod": lambda column: _folded(column, _multiply, Fraction(1)),
    "max": lambda column: _best(column, max), "min": lambda column: _best(column, min),
    "fmax": lambda column: _best(column, max), "fmin": lambda column: _best(column, min),
    "argmax": lambda column: _best_position(column, -1), "argmin": lambda column: _best_position(column, 1),
    "topk": lambda column: _places(column, False), "argtopk": lambda column: _places(column, True),
    "any": lambda column: any(value != 0 for value in column),
    "all": lambda column: all(value != 0 for value in column),
}


def _add(a, b):
    a, b = _pair(a, b)
    return a + b


def _multiply(a, b):
    a, b = _pair(a, b)
    return a * b


def _divide(a, b):
    a, b = _pair(a, b)
    if b == 0:
        raise Undefined("a / 0")
    return a / b


def _where_defined(function, domain=lambda a: True):
    def checked(a):
        if not domain(a):
            raise Undefined(f"{function} of {a}")
        return function(_real(_comparable(a)))

    return checked


def _power(a, r):
    a, r = _comparable(a), _comparable(r)
    if isinstance(r, Fraction) and r.denominator == 1:
        if a == 0 and r < 0:
            raise Undefined("0 ** −1")
        return a ** int(r)
    if a > 0:
        return REAL.power(_real(a), _real(r))
    if a == 0 and r > 0:
        return Fraction(0)
    raise Undefined("a root of a negative number")


def _compared(compare):
    return lambda a, b: bool(compare(*_pair(a, b)))


def _whole(function):
    return lambda a: Fraction(int(function(a))) if isinstance(a, Fraction) else _whole_real(function, a)


def _whole_real(function, a):
    return Fraction(int({math.floor: REAL.floor, math.ceil: REAL.ceil, round: REAL.nint}[function](a)))


def _sign(a):
    return Fraction((a > 0) - (a < 0))


_POSITIVE, _NONNEGATIVE = (lambda a: a > 0), (lambda a: a >= 0)
_ELEMENTWISE = {
    "add": _add, "multiply": _multiply, "divide": _divide, "power": _power,
    "subtract": lambda a, b: _add(a, -b), "negative": lambda a: -a, "reciprocal": lambda a: _divide(Fraction(1), a),
    "exp": _where_defined(REAL.exp), "exp2": _where_defined(lambda a: REAL.mpf(2) ** a),
    "log": _where_defined(REAL.log, _POSITIVE), "log2": _where_defined(lambda a: REAL.log(a) / REAL.log(2), _POSITIVE),
    "sqrt": _where_defined(REAL.sqrt, _NONNEGATIVE), "tanh": _where_defined(REAL.tanh),
    "arctan": _where_defined(REAL.atan), "sin": _where_defined(REAL.sin), "cos": _where_defined(REAL.cos),
    "abs": abs, "sign": _sign, "floor": _whole(math.floor), "ceil": _whole(math.ceil), "round": _whole(round),
    "rounded": lambda a: Fraction(round(a * 4), 4),
    "maximum": lambda a, b: max(*_pair(a, b)), "minimum": lambda a, b: min(*_pair(a, b)),
    "where": lambda condition, a, b: a if condition else b,
    "equal": _compared(lambda a, b: a == b), "not_equal": _compared(lambda a, b: a != b),
    "greater": _compared(lambda a, b: a > b),
    "less": _compared(lambda a, b: a < b), "greater_equal": _compared(lambda a, b: a >= b),
    "less_equal": _compared(lambda a, b: a <= b),
    "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b), "logical_not": lambda a: not a,
    "shift": lambda a, p: _add(a, -p), "ratio": lambda p, q: Fraction(1) if p == q else _divide(p, q),
    "scaled": lambda a, p: Fraction(0) if p == 0 else _divide(a, p),
}

EXACT, FLOATS = Exact(), Floats()


def same_real(a, b):
    """Equality of two exact values: of fractions as they are, of anything else to 45 digits."""
    a, b = _pair(a, b)
    return a == b if isinstance(a, Fraction) else abs(a - b) <= PRECISION * (1 + abs(b))
