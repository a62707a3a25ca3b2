"""Elementwise functions: one row each, with the NumPy callable that defines its meaning on floats.

A row states what the search may rely on: how the result moves with each argument (`monotone`), its sign,
and how it is written.  The last rows are *total twins*: partial operations completed where a fused form needs
them (a pivot at infinity, a zero scale, an empty part), so that no kernel has to patch them later.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Function:
    """An elementwise function.

    `monotone` holds one mark per argument: "+" nondecreasing, "-" nonincreasing, "s" strictly increasing,
    "" neither.  `sign` is "positive", "nonnegative" or "" and holds for every argument in the domain.
    `infix` is the Python operator that writes it, if there is one; `boolean` marks truth-valued results.  `whole`
    functions take whole numbers only.  `source` is what a user declared; "" for the rows of this table.
    `derivative` holds one formula per argument, in a, b and c: at a tie or a kink one of the one-sided ones (the first
    of equals wins).  None says that there is none to speak of: a staircase, a choice by truth values.
    """

    name: str
    arity: int
    apply: Callable[..., np.ndarray]
    monotone: tuple[str, ...] = ()
    sign: str = ""
    infix: str = ""
    boolean: bool = False
    latex: str = ""
    whole: bool = False
    source: str = ""
    derivative: tuple[str, ...] | None = None


erf = np.vectorize(math.erf, otypes=[float])
"""2/√π ∫₀ᵃ e^(−t²) dt, by the C library; √(arctan 1) = √π/2 is in its derivative, which so is exact."""


def shift(a, p):
    """a − p, and 0 where a = p, also at ±inf: the shift of a state to its own pivot is the identity."""
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(a, p), 0.0, np.subtract(a, p))


def anchor(p):
    """p, and 0 where p is not finite: while 0/0 parts are merged a state is kept about 0, where it is finite."""
    return np.where(np.isfinite(p), p, np.zeros_like(p))


def ratio(p, q):
    """p / q, and 1 where p = q, also at 0 and ±inf: rescaling a state to its own pivot is the identity."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.equal(p, q), 1.0, np.divide(p, q))


def scaled(a, p):
    """a / p, and 0 where p = 0: used where |a| ≤ p, so that p = 0 leaves only a = 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.equal(p, 0), 0.0, np.divide(a, p))


def scale(c, s):
    """c · s, and 0 where s = 0: an empty sum stays empty, whatever the rescale factor."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.equal(s, 0), 0.0, np.multiply(c, s))


def _rows() -> tuple[Function, ...]:
    f = Function
    return (
        f("add", 2, np.add, ("s", "s"), infix="+", derivative=("1", "1")),
        f("subtract", 2, np.subtract, ("s", "-"), infix="-", derivative=("1", "-1")),
        f("multiply", 2, np.multiply, infix="*", derivative=("b", "a")),
        f("divide", 2, np.divide, infix="/", derivative=("1 / b", "-(a / b) / b")),
        f("power", 2, np.power, infix="**", derivative=("b * a ** (b - 1)", "where(a == 0, 0, a ** b * log(a))")),
        f("mod", 2, np.mod, infix="%", derivative=("1", "-(a // b)")),
        f("floor_divide", 2, np.floor_divide, infix="//"),
        f("negative", 1, np.negative, ("-",), infix="-", derivative=("-1",)),
        f("reciprocal", 1, lambda a: np.divide(1.0, a), latex=r"\frac{1}{%s}", derivative=("-reciprocal(a) ** 2",)),
        f("exp", 1, np.exp, ("s",), "positive", latex=r"e^{%s}", derivative=("exp(a)",)),
        f("exp2", 1, np.exp2, ("s",), "positive", latex=r"2^{%s}", derivative=("exp2(a) * log(2)",)),
        f("expm1", 1, np.expm1, ("s",), derivative=("exp(a)",)),
        f("log", 1, np.log, ("s",), derivative=("1 / a",)),
        f("log2", 1, np.log2, ("s",), derivative=("1 / (a * log(2))",)),
        f("log1p", 1, np.log1p, ("s",), derivative=("1 / (1 + a)",)),
        f("sqrt", 1, np.sqrt, ("s",), "nonnegative", latex=r"\sqrt{%s}", derivative=("0.5 / sqrt(a)",)),
        f("abs", 1, np.abs, ("",), "nonnegative", latex=r"\left|%s\right|", derivative=("sign(a)",)),
        f("sign", 1, np.sign, ("+",), derivative=("0",)),
        f("sin", 1, np.sin, derivative=("cos(a)",)),
        f("cos", 1, np.cos, derivative=("-sin(a)",)),
        f("tanh", 1, np.tanh, ("s",), derivative=("1 - tanh(a) ** 2",)),
        f("arctan", 1, np.arctan, ("s",), derivative=("1 / (1 + a ** 2)",)),
        f("erf", 1, erf, ("s",), latex=r"\operatorname{erf}\left(%s\right)", derivative=("exp(-(a ** 2)) / sqrt(arctan(1))",)),
        f("arctan2", 2, np.arctan2, derivative=("b / (a ** 2 + b ** 2)", "-a / (a ** 2 + b ** 2)")),
        f("floor", 1, np.floor, ("+",), latex=r"\left\lfloor %s \right\rfloor"),
        f("ceil", 1, np.ceil, ("+",), latex=r"\left\lceil %s \right\rceil"),
        f("round", 1, np.round, ("+",)),
        f("maximum", 2, np.maximum, ("+", "+"), latex=r"\max(%s, %s)", derivative=("where(a >= b, 1, 0)", "where(a >= b, 0, 1)")),
        f("minimum", 2, np.minimum, ("+", "+"), latex=r"\min(%s, %s)", derivative=("where(a <= b, 1, 0)", "where(a <= b, 0, 1)")),
        f("logadd", 2, np.logaddexp, ("+", "+"), latex=r"\log\left(e^{%s} + e^{%s}\right)",
          derivative=("exp(a - logadd(a, b))", "exp(b - logadd(a, b))")),
        f("where", 3, np.where, derivative=("0", "where(a, 1, 0)", "where(a, 0, 1)")),
        f("isnan", 1, np.isnan, boolean=True),
        f("equal", 2, np.equal, infix="==", boolean=True),
        f("not_equal", 2, np.not_equal, infix="!=", boolean=True),
        f("less", 2, np.less, infix="<", boolean=True),
        f("less_equal", 2, np.less_equal, infix="<=", boolean=True),
        f("greater", 2, np.greater, infix=">", boolean=True),
        f("greater_equal", 2, np.greater_equal, infix=">=", boolean=True),
        f("logical_and", 2, np.logical_and, ("+", "+"), infix="&", boolean=True),
        f("logical_or", 2, np.logical_or, ("+", "+"), infix="|", boolean=True),
        f("logical_not", 1, np.logical_not, ("-",), infix="~", boolean=True),
        f("shift", 2, shift, ("s", "-"), latex=r"%s \ominus %s"),
        f("anchor", 1, anchor),
        f("identity", 1, np.positive),
        f("ratio", 2, ratio, latex=r"\frac{%s}{%s}"),
        f("scaled", 2, scaled, latex=r"\frac{%s}{%s}"),
        f("scale", 2, scale, latex=r"%s \odot %s"),
    )


FUNCTIONS: dict[str, Function] = {row.name: row for row in _rows()}

COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"))
"""Whether two numbers stand to each other so."""

OPPOSITE = {"equal": "not_equal", "not_equal": "equal"}
"""Comparisons of which exactly one holds, whatever the operands: NaN included."""

TOTAL_TWINS = {"shift": "subtract", "anchor": "identity", "ratio": "divide", "scaled": "divide", "scale": "multiply"}
"""Each total twin and the partial operation it completes."""
