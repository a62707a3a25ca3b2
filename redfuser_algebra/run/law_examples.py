"""A law explained, and tried out on numbers.

In: a row of the law table.  Out: lines of text; values for its variables, and what both sides make of them.
"""
from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.laws import Law
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.language.formula import OPERATORS
from redfuser_algebra.language.operator import define
from redfuser_algebra.run.reference import reference

ELEMENTS = {"a": [1.0, 2.0, 4.0], "b": [3.0, 1.0, 2.0]}
SCALARS = {"c": 2.0, "p": 4.0, "q": 5.0, "r": 3.0}
TRUTHS = {"a": [True, False, False], "b": [False, False, True]}
"""Values under which the conditions hold that a law may state: a ≤ p ≤ q, everything positive."""

INNER = {"contract": "sum", "largest": "max", "smallest": "min", "some": "any"}
"""Reductions over another axis than l."""

TAGS = {
    "exact": "over the reals; floats may round differently, so only tolerances compare the two sides",
    "ieee": "on floats as well, infinities and NaN included",
    "rounding": "only if roundings may be moved, which reassociate=True asks for",
}
ROLES = {
    "always": "whenever the search may",
    "normal form": "always: it is part of the form in which the e-graph keeps products",
    "centred": "where sums about moving pivots are wanted (the default)",
    "raw": "where raw sums are wanted (--prefer raw), and for what needs no pivot",
    "ordered": "only under reductions other than sums: max, min, prod and their like",
    "alternative": "only where an operator is asked for in another form",
    "disabled": "never: it is false, or harmful, as the example shows; it stays in the table so that nobody adds it again",
}


@dataclass(frozen=True)
class Example:
    """Values by name, and the two sides of a law at these values."""

    values: dict[str, float | list[float]]
    left: np.ndarray
    right: np.ndarray


def explained(law: Law) -> list[tuple[str, str]]:
    """What a law states, where it holds, for which numbers, when the search uses it, and an example."""
    lines = [("statement", f"{law.lhs} = {law.rhs}"), ("where", law.requires or "everywhere"), ("true", TAGS.get(law.tag, law.tag)),
             ("used", ROLES.get(law.role, law.role))]
    if law.source:
        lines.append(("known", f"{law.source}: no proof"))
    tried = example(law)
    if tried:
        values = ", ".join(f"{name} = {value}" for name, value in tried.values.items())
        joint = "but" if law.role == "disabled" else "and"
        lines.append(("example", f"for {values} the left side is {tried.left}, {joint} the right side {tried.right}"))
    if law.role == "disabled":
        lines[2] = ("true", "not always: see the example")
    return lines


def example(law: Law) -> Example | None:
    """A law at simple values, or at its counterexample; None for the few laws about tuples of positions."""
    if "follows" in law.requires or law.tag == "rounding":
        return None
    values = dict(law.counterexample) or _values(law)
    if _is_whole(law):
        values = {name: np.asarray(value, np.int64).tolist() for name, value in values.items()}
    stacked = _inside_contract(ast.parse(law.lhs, mode="eval"))
    arrays = {name: np.asarray(value) for name, value in values.items()}
    axes = {name: ("l",) * array.ndim + ("k",) * (name in stacked) for name, array in arrays.items()}
    length = max([array.size for array in arrays.values() if array.ndim], default=3)
    arrays = {name: np.stack([array, 2 * array], -1) if name in stacked else array for name, array in arrays.items()}
    axes, arrays = axes | {"one": ("l",)}, arrays | {"one": np.ones(length)}
    operator = define("law", axes, {}, tuple(_expr(ast.parse(side, mode="eval").body, axes) for side in (law.lhs, law.rhs)))
    with np.errstate(all="ignore"):
        left, right = reference(operator, operator.bind(**arrays))
    return Example(values, left, right)


def _is_whole(law: Law) -> bool:
    """Whether some word of a law takes whole numbers only."""
    tables = {**FUNCTIONS, **MONOIDS}
    return any(tables[word].whole for word in re.findall(r"\w+(?=\()", f"{law.lhs} {law.rhs}") if word in tables)


def _values(law: Law) -> dict[str, float | list[float]]:
    names = sorted(set(re.findall(r"\b[a-z]\b", law.lhs + " " + law.rhs)))
    if re.search(r"[|&~]", law.lhs):
        return {name: TRUTHS.get(name, True) for name in names}
    fixed = re.findall(r"(?:invariant|moving)\((\w)\)", law.requires)
    chosen = {name: ELEMENTS[name] if name in ELEMENTS and name not in fixed else SCALARS.get(name, 2.0) for name in names}
    for name in re.findall(r"nonpositive\((\w)\)", law.requires):
        chosen[name] = np.negative(chosen[name]).tolist()
    return chosen | dict.fromkeys(re.findall(r"above\(\w, (\w)\)", law.requires), min(ELEMENTS["a"]))


def _inside_contract(tree: ast.AST) -> set[str]:
    """The variables that a law contracts over another axis."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func.id in INNER]
    return {name.id for node in calls for name in ast.walk(node) if isinstance(name, ast.Name) and len(name.id) == 1}


def _expr(node: ast.expr, inputs: dict[str, tuple[str, ...]]) -> Expr:
    if isinstance(node, ast.Constant):
        return const(node.value)
    if isinstance(node, ast.Name):
        return Expr("input", (), (node.id, inputs[node.id]))
    if isinstance(node, ast.Call):
        return _called(node.func.id, [_expr(arg, inputs) for arg in node.args])
    operator = node.ops[0] if isinstance(node, ast.Compare) else node.op
    operands = {ast.Compare: lambda: [node.left, *node.comparators], ast.UnaryOp: lambda: [node.operand],
                ast.BinOp: lambda: [node.left, node.right]}[type(node)]()
    return call(OPERATORS[type(operator)], *(_expr(operand, inputs) for operand in operands))


def _called(name: str, args: list[Expr]) -> Expr:
    if name in INNER:
        return Expr("reduce", tuple(args), (INNER[name], "k", ""))
    if name not in MONOIDS:
        return call(name, *args)
    if "l" not in args[0].axes:
        args = [args[0] * Expr("input", (), ("one", ("l",)))]
    if MONOIDS[name].counted:
        return Expr("reduce", (args[0], const(2)), (name, "l", "top"))
    return Expr("reduce", tuple(args), (name, "l", ""))
