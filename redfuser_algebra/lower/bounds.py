"""When a mask can hold nowhere in a tile, or holds everywhere, as conditions of generated Python.

In: a mask, and code for the bounds of its leaves.  Out: a condition that is true wherever the mask may hold, or only
where it holds at every element; None if nothing can be said.  Both keep what they say where a bound is NaN.
"""
from __future__ import annotations

from collections.abc import Callable

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.scalar_code import constant

Bounds = tuple[str, str]
"""Code for a lower and an upper bound."""

_COMPARED = {"less": ("{alow} < {bhigh}",), "less_equal": ("{alow} <= {bhigh}",), "greater": ("{ahigh} > {blow}",),
             "greater_equal": ("{ahigh} >= {blow}",), "equal": ("{alow} <= {bhigh}", "{blow} <= {ahigh}")}


def may_hold(mask: Expr, leaf: Callable[[Expr], Bounds | None]) -> str | None:
    """A condition that follows from the mask at some element of a tile; `leaf` knows bounds of inputs and positions."""
    if mask.op == "logical_and":
        parts = [part for part in (may_hold(arg, leaf) for arg in mask.args) if part]
        return " and ".join(parts) or None
    if mask.op == "logical_or":
        parts = [may_hold(arg, leaf) for arg in mask.args]
        return f"({parts[0]} or {parts[1]})" if all(parts) else None
    if mask.op == "logical_not":
        return _opposite(must_hold(mask.args[0], leaf))
    if mask.op not in _COMPARED:
        return None
    names = _ends(mask, leaf)
    return " and ".join(f"({part.format(**names)})" for part in _COMPARED[mask.op]) if names else None


_SURELY = {"less": "{ahigh} < {blow}", "less_equal": "{ahigh} <= {blow}", "greater": "{alow} > {bhigh}", "greater_equal": "{alow} >= {bhigh}"}


def must_hold(mask: Expr, leaf: Callable[[Expr], Bounds | None]) -> str | None:
    """A condition from which the mask follows at every element of a tile."""
    if mask.op in ("logical_and", "logical_or"):
        parts = [part for part in (must_hold(arg, leaf) for arg in mask.args) if part]
        enough = len(parts) == 2 or mask.op == "logical_or" and parts
        return f"({f' {mask.op[8:]} '.join(parts)})" if enough else None
    if mask.op == "logical_not":
        return _opposite(may_hold(mask.args[0], leaf))
    names = _ends(mask, leaf) if mask.op in _SURELY else None
    return f"({_SURELY[mask.op].format(**names)})" if names else None


def _ends(comparison: Expr, leaf: Callable[[Expr], Bounds | None]) -> dict[str, str] | None:
    """The bounds of both operands of a comparison."""
    a, b = (_bounds(arg, leaf) for arg in comparison.args)
    return {"alow": a[0], "ahigh": a[1], "blow": b[0], "bhigh": b[1]} if a and b else None


def _opposite(condition: str | None) -> str | None:
    return f"(not ({condition}))" if condition else None


def _bounds(term: Expr, leaf: Callable[[Expr], Bounds | None]) -> Bounds | None:
    if term.op == "const":
        code = constant(term.value, "i8" if isinstance(term.value, int) else "f8").text
        return code, code
    if not term.args:
        return leaf(term)
    parts = [_bounds(arg, leaf) for arg in term.args]
    if None in parts or term.op not in _RULES:
        return None
    return _RULES[term.op](*parts)


_RULES = {  # of a maximum with NaN the first argument stays
    "add": lambda a, b: (f"({a[0]} + {b[0]})", f"({a[1]} + {b[1]})"),
    "subtract": lambda a, b: (f"({a[0]} - {b[1]})", f"({a[1]} - {b[0]})"),
    "negative": lambda a: (f"(-{a[1]})", f"(-{a[0]})"),
    "abs": lambda a: (f"max({a[0]}, -{a[1]}, 0)", f"max(-{a[0]}, {a[1]})"),
}
