"""What kind of number each term of a formula is in generated code: "f" real, "i" whole, "b" truth.

In: expressions and the kinds of their leaves.  Out: kinds, as NumPy in float64 and int64 would have them.
"""
from __future__ import annotations

from collections.abc import Callable

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, subterms

WHOLE = frozenset(("add", "subtract", "multiply", "negative", "abs", "mod", "floor_divide", "shift", "scale"))
"""Of whole numbers these make whole numbers; so does a power with a constant exponent."""
CHOOSE = frozenset(("maximum", "minimum", "sign", "identity", "anchor", "floor", "ceil", "round"))
"""These give the kind of their operands."""


def kinds(term: Expr, leaf: Callable[[Expr], str]) -> dict[Expr, str]:
    """The kind of every subterm; `leaf` knows inputs, parameters and symbols."""
    found: dict[Expr, str] = {}
    for each in subterms(term):
        found[each] = _kind(each, [found[arg] for arg in each.args], leaf)
    return found


def _kind(term: Expr, args: list[str], leaf: Callable[[Expr], str]) -> str:
    if term.op in ("input", "param", "symbol"):
        return leaf(term)
    if term.op == "const":
        return "b" if isinstance(term.value, bool) else "i" if isinstance(term.value, int) else "f"
    if term.op in ("index", "size"):
        return "i"
    if term.op == "reduce":
        return reduced_kind(term.monoid, args[0], term.mask is not None)
    if term.op == "cast":
        return _cast_kind(term.attrs[0])
    if FUNCTIONS[term.op].boolean:
        return "b"
    if term.op == "where":
        return _common(args[1:])
    if term.op in CHOOSE:
        return _common(args)
    whole = term.op in WHOLE or term.op == "power" and term.args[1].op == "const" and not term.args[1].value < 0
    return "i" if whole and "f" not in args else "f"


def reduced_kind(monoid: str, element: str, masked: bool) -> str:
    """The kind of ⊕ of elements of a kind."""
    if monoid in ("any", "all"):
        return "b"
    if MONOIDS[monoid].indexed:
        return "i"
    if monoid in ("sum", "prod"):
        return "i" if element in "bi" else "f"
    return "f" if masked or MONOIDS[monoid].counted or element == "b" else element


def _common(args: list[str]) -> str:
    return next(kind for kind in "fib" if kind in args)


def _cast_kind(dtype: str) -> str:
    return "b" if dtype == "bool" else "i" if "int" in dtype else "f"
