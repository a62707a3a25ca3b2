"""One elementwise operation as an expression of generated Python: operands as code in, code out.

Total twins are written out as the choices that they are; with `partial` they are the operations they complete.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from redfuser_algebra.algebra.floats import FLOAT_FORMATS
from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.tile import LoweringError

LIMITS = {f"{sign}int{bits}": (-(2 ** (bits - 1)) if not sign else 0, 2 ** (bits - (not sign)) - 1)
          for sign in ("", "u") for bits in (8, 16, 32, 64)}

_TEMPLATES = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}", "power": "{0} ** {1}",
    "mod": "{0} % {1}", "floor_divide": "{0} // {1}", "negative": "-{0}", "identity": "{0}", "abs": "abs({0})",
    "reciprocal": "{one} / {0}", "exp": "exp{w}({0})", "exp2": "exp{w}({0} * {ln2})", "round": "np.rint({0})", "erf": "math.erf({0})",
    "maximum": "larger({0}, {1})", "minimum": "smaller({0}, {1})", "where": "{1} if {0} else {2}", "isnan": "{0} != {0}",
    "equal": "{0} == {1}", "not_equal": "{0} != {1}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}", "greater_equal": "{0} >= {1}", "logical_and": "{0} & {1}", "logical_or": "{0} | {1}",
    "logical_not": "not {0}",
    "logadd": "{0} + {ln2} if {0} == {1} else larger({0}, {1}) + np.log1p(np.exp(-abs({0} - {1})))",
    "shift": "{zero} if {0} == {1} else {0} - {1}", "anchor": "{0} if np.isfinite({0}) else {zero}",
    "ratio": "{one} if {0} == {1} else {0} / {1}", "scaled": "{zero} if {1} == {zero} else {0} / {1}",
    "scale": "{zero} if {1} == {zero} else {0} * {1}",
}
_WHOLE = {"maximum": "max({0}, {1})", "minimum": "min({0}, {1})", "anchor": "{0}", "floor": "{0}", "ceil": "{0}", "round": "{0}"}
_VECTOR = frozenset(("exp", "exp2"))
"""Functions that kernels compute themselves, in loops that become vectors."""


@dataclass(frozen=True)
class Code:
    """An expression of generated Python and its type: f4, f8, i8, b1, or `real`, which its function is told.

    `atom`: it can stand anywhere, and twice.
    """

    text: str
    type: str
    atom: bool = True

    def to(self, type_: str) -> Code:
        """The same value in another type."""
        if type_ == self.type:
            return self
        if type_ == "b1":
            return Code(f"({self.text} != 0)", "b1")
        return Code(f"fit({self.text}, real)" if (self.type, type_) == ("f8", "real") else f"{type_}({self.text})", type_)


def constant(value: float, type_: str) -> Code:
    """A number in a type; in float64 a plain literal."""
    if type_ == "b1":
        return Code(repr(bool(value)), "b1")
    if type_ == "i8":
        return Code(repr(int(value)), "i8")
    text = repr(float(value)) if math.isfinite(value) else repr(float(value)).strip("-")
    text = f"-{text}" if value == -math.inf else text
    return Code(f"{type_}({text})", type_) if type_ in ("f4", "real") else Code(f"({text})" if value < 0 else text, "f8")


def elementwise(term: Expr, args: list[Code], type_: str, partial: bool, looped: bool, own: Mapping[str, str]) -> Code:
    """The operation of `term` on operands, with a result of `type_`; operands are converted as it needs.

    Exponentials in a loop are those that become vectors; elsewhere the C library's compile faster.  `own` are templates of
    operations that the target has functions for.
    """
    name = TOTAL_TWINS.get(term.op, term.op) if partial or is_finite_shift(term) else term.op
    if name == "cast":
        return Code(_cast(term.attrs[0], args[0].to("f8").text), "f8", atom=False).to(type_)
    if name == "power" and type_ != "b1":
        whole = _small_power(term, args[0].to(type_))
        if whole is not None:
            return Code(whole, type_, atom=False)
    operands = _operands(name, args, type_)
    inner = operands[-1].type
    if name == "exp" and not looped:
        return Code(f"math.exp({operands[0].text})", type_, atom=False)
    template = (_WHOLE if inner in ("i8", "b1") else own).get(name) or _TEMPLATES.get(name)
    template = template or f"np.{name}({', '.join(f'{{{place}}}' for place in range(len(args)))})"
    numbers = {"one": constant(1, inner).text, "zero": constant(0, inner).text, "ln2": constant(math.log(2), inner).text,
               "w": inner[1]}
    return Code(template.format(*(operand.text for operand in operands), **numbers), type_, atom=False)


def is_finite_shift(term: Expr) -> bool:
    """A shift to an anchor is a plain difference: an anchor is finite, and equal numbers differ by 0."""
    return term.op == "shift" and term.args[1].op == "anchor"


def _operands(name: str, args: list[Code], type_: str) -> list[Code]:
    if name == "where":
        return [args[0].to("b1"), args[1].to(type_), args[2].to(type_)]
    if name.startswith("logical"):
        return [arg.to("b1") for arg in args]
    if FUNCTIONS[name].boolean:
        return [arg.to(_comparable(args)) for arg in args]
    return [arg.to(type_) for arg in args]


def _comparable(args: list[Code]) -> str:
    types = {arg.type for arg in args}
    if types <= {"i8", "b1"}:
        return "i8"
    return types.pop() if types in ({"f4"}, {"real"}) else "f8"


def _small_power(term: Expr, base: Code) -> str | None:
    exponent = term.args[1]
    if exponent.op != "const" or exponent.value not in (1, 2, 3, 4):
        return None
    return " * ".join([base.text] * int(exponent.value))


def _cast(dtype: str, text: str) -> str:
    if dtype == "bool":
        return f"{text} != 0"
    if dtype in LIMITS:
        return "whole({}, {}, {})".format(text, *LIMITS[dtype])
    if dtype == "float64":
        return text
    if dtype not in FLOAT_FORMATS:
        raise LoweringError(f"a cast to {dtype}", "generated code has no such number format", "run it with backend=\"reference\"")
    to = FLOAT_FORMATS[dtype]
    largest = float(to.largest)
    return f"rounded({text}, {to.mantissa}, {to.smallest_exponent}, {largest}, {largest if to.saturates else 'inf'})"


def prefers_single(term: Expr) -> bool:
    """Whether a term of float32 numbers is computed in float32: it has an exponential, where float64 costs the most."""
    return term.op in _VECTOR
