"""What kind of number each term of a formula is in generated code: "f" real, "i" whole, "b" truth.

In: expressions and the kinds of their leaves.  Out: kinds, as NumPy in float64 and int64 would have them.
"""
from __future__ import annotations

from collections.abc import Callable

from redfuser_algebra.algebra.functions import COMPARISONS, FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.operator import Operator

TYPES = {"float32": "f4", "float64": "f8", "int64": "i8", "bool": "b1"}
"""What generated code calls the type of numbers of a dtype."""
DTYPES = {type_: dtype for dtype, type_ in TYPES.items()}

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
    if term.op in ("state", "scan"):
        return "f"
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


def natural_kinds(operator: Operator) -> dict[str, str]:
    """The inputs and parameters that an operator uses as truth values ("bool") or as positions and lengths ("int64").

    A mask and an operand of a logical function are truth values; what is compared with positions, lengths and whole
    numbers made of them, and counts, are whole.
    """
    found: dict[str, str] = {}
    terms = list(subterms(*operator.outputs))
    for term in terms:
        masks = [term.mask] if term.op == "reduce" else [term.args[0]] if term.op == "where" else term.args if term.op.startswith("logical") else []
        found |= {each.name: "bool" for each in masks if each is not None and each.op in ("input", "param")}
    for _ in terms:
        before = len(found)
        for term in terms:
            if term.op == "reduce" and term.count is not None and term.count.op == "param":
                found[term.count.name] = "int64"
            if term.op in COMPARISONS and any(_is_whole(arg, found) for arg in term.args):
                found |= {leaf.name: found.get(leaf.name, "int64") for arg in term.args for leaf in _whole_leaves(arg)}
        if len(found) == before:
            return found
    return found


def param_types(operator: Operator) -> dict[str, str]:
    """The type of each parameter: that of its default, if this is no real number, else by its use."""
    natural = natural_kinds(operator)
    return {name: {bool: "b1", int: "i8"}.get(type(default)) or TYPES[natural.get(name, "float64")] for name, default in operator.params.items()}


def _is_whole(term: Expr, found: dict[str, str]) -> bool:
    """Whether a term is made of positions, lengths and whole inputs alone, one at least."""
    leaves = [leaf for leaf in subterms(term) if not leaf.args and leaf.op != "const"]
    return len(leaves) > 0 and _plain(term) and all(
        leaf.op in ("index", "size") or leaf.op in ("input", "param") and found.get(leaf.name) == "int64" for leaf in leaves)


def _plain(term: Expr) -> bool:
    return all(each.op in WHOLE or not each.args for each in subterms(term))


def _whole_leaves(term: Expr) -> list[Expr]:
    """The inputs and parameters of a term of whole arithmetic; none if anything else is in it."""
    return [leaf for leaf in subterms(term) if leaf.op in ("input", "param")] if _plain(term) else []
