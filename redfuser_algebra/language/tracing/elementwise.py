"""What NumPy's elementwise functions are in the language: one row each."""
from __future__ import annotations

import math
from collections.abc import Callable

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr, call


def _named(name: str) -> Callable[..., Expr]:
    return lambda *operands: call(name, *operands)


def _logaddexp2(a: Expr, b: Expr) -> Expr:
    return call("logadd", a * math.log(2), b * math.log(2)) / math.log(2)


def _signbit(a: Expr) -> Expr:
    """Whether a number is below 0, or −0."""
    return ra.where(a == 0, 1 / a < 0, a < 0)


def is_boolean(expr: Expr) -> bool:
    """Whether the values are truth values."""
    row = FUNCTIONS.get(expr.op)
    return (row is not None and row.boolean or expr.op == "reduce" and expr.monoid in ("any", "all")
            or expr.op == "const" and isinstance(expr.value, bool) or expr.op == "where" and all(map(is_boolean, expr.args[1:])))


def truth(expr: Expr) -> Expr:
    """Whether a value counts as true; inputs of bitwise functions are taken as they are."""
    return expr if is_boolean(expr) or expr.op == "input" else expr != 0


def truncated(a: Expr) -> Expr:
    """The whole part, towards 0."""
    return ra.where(a < 0, ra.ceil(a), ra.floor(a))


def regrouped(term: Expr) -> Expr:
    """A rounding as one that may be regrouped; anything else as it is."""
    return Expr(term.op, term.args, (*term.attrs[:-1], True)) if term.op in ("round", "cast") else term


ELEMENTWISE: dict[str, Callable[..., Expr]] = {
    name: _named(name) for name in """add subtract multiply divide power floor_divide negative reciprocal exp exp2 expm1 log
        log2 log1p sqrt sign sin cos tanh arctan arctan2 floor ceil maximum minimum isnan equal not_equal less less_equal
        greater greater_equal logical_and logical_or logical_not""".split()
} | {
    "positive": lambda a: a, "conjugate": lambda a: a,
    "absolute": ra.abs, "fabs": ra.abs, "remainder": _named("mod"), "float_power": _named("power"),
    "rint": ra.round, "trunc": truncated,
    "bitwise_and": _named("logical_and"), "bitwise_or": _named("logical_or"), "invert": _named("logical_not"),
    "logical_xor": lambda a, b: truth(a) != truth(b), "bitwise_xor": lambda a, b: truth(a) != truth(b),
    "square": ra.square,
    "cbrt": lambda a: ra.sign(a) * ra.power(ra.abs(a), 1 / 3),
    "hypot": lambda a, b: ra.sqrt(ra.square(a) + ra.square(b)),
    "log10": lambda a: ra.log(a) / math.log(10),
    "sinh": lambda a: (ra.exp(a) - ra.exp(-a)) / 2,
    "cosh": lambda a: (ra.exp(a) + ra.exp(-a)) / 2,
    "arcsin": lambda a: ra.arctan2(a, ra.sqrt(1 - ra.square(a))), "arccos": lambda a: ra.arctan2(ra.sqrt(1 - ra.square(a)), a),
    "arcsinh": lambda a: ra.sign(a) * ra.log(ra.abs(a) + ra.sqrt(ra.square(a) + 1)),
    "arccosh": lambda a: ra.log(a + ra.sqrt(ra.square(a) - 1)), "arctanh": lambda a: (ra.log1p(a) - ra.log1p(-a)) / 2,
    "fmod": lambda a, b: ra.sign(a) * call("mod", ra.abs(a), ra.abs(b)),
    "tan": lambda a: ra.sin(a) / ra.cos(a),
    "deg2rad": lambda a: a * (math.pi / 180), "radians": lambda a: a * (math.pi / 180),
    "rad2deg": lambda a: a * (180 / math.pi), "degrees": lambda a: a * (180 / math.pi),
    "logaddexp": _named("logadd"), "logaddexp2": _logaddexp2,
    "fmax": lambda a, b: ra.where(ra.isnan(a), b, ra.where(ra.isnan(b), a, ra.maximum(a, b))),
    "fmin": lambda a, b: ra.where(ra.isnan(a), b, ra.where(ra.isnan(b), a, ra.minimum(a, b))),
    "isinf": lambda a: ra.abs(a) == math.inf,
    "isfinite": lambda a: ra.abs(a) < math.inf,
    "signbit": _signbit, "copysign": lambda a, b: ra.where(_signbit(b), -ra.abs(a), ra.abs(a)),
    "heaviside": lambda a, b: ra.where(a < 0, 0, ra.where(a == 0, b, 1)),
}
"""NumPy's name: the expression of the operands.  Bitwise functions are those of truth values."""
