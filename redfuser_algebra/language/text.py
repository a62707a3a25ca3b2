"""Expressions and operators as text that `formula.parse` and `definitions.parse_operator` read back.

In: expressions.  Out: one line of formula with as few parentheses as Python's precedence allows, or one definition
per line.  Reading the text gives the same object.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language.expr import LEAVES, Expr, printer, subterms, unbound_states
from redfuser_algebra.language.functions import fresh_axis

if TYPE_CHECKING:
    from redfuser_algebra.language.operator import Operator

COMPARISON, UNARY, POWER, ATOM = 1, 6, 7, 8
PRECEDENCE = {"|": 2, "&": 3, "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5, "**": POWER}
"""How tightly Python's operators bind; those not listed are comparisons."""

INLINE_SIZE, INLINE_DEPTH = 300, 40
"""A formula larger or deeper than this is written as definitions: shared terms would be repeated without end."""

Written = tuple[str, int]


def text(expr: Expr) -> str:
    """The formula of an expression: inputs with their axes, `x[b, l]`; large ones as `t1 = …; t2 = …; result`."""
    size, depth = _extent(expr)
    if size <= INLINE_SIZE and depth <= INLINE_DEPTH:
        return _formulas((expr,), {})[0]
    names = shared_terms((expr,))
    lines = [f"{name} = {_formulas((term,), _without(names, term))[0]}" for term, name in names.items()]
    return "; ".join([*lines, _formulas((expr,), names)[0]])


def operator_text(operator: Operator) -> str:
    """An operator as a signature, one definition per line for every term used more than once, and the result."""
    inputs = {Expr("input", (), (name, axes)): name for name, axes in operator.inputs.items()}
    shared = shared_terms((*operator.outputs, *operator.assume), inputs, {*operator.inputs, *operator.params})
    known = inputs | shared
    lines = [f"{name} = {_formulas((term,), _without(known, term))[0]}" for term, name in shared.items()]
    if operator.assume:
        lines.append(f"assume({', '.join(_formulas(operator.assume, known))})")
    lines.append(f"return {_result(operator.structure, _formulas(operator.outputs, known))}")
    return "\n    ".join([f"{operator.signature}{_order(operator)}:", *lines])


def _result(structure: str | tuple[str, ...], outputs: list[str]) -> str:
    if isinstance(structure, tuple):
        return "{" + ", ".join(f'"{name}": {output}' for name, output in zip(structure, outputs, strict=True)) + "}"
    return ", ".join(outputs) + ("," if structure == "tuple" and len(outputs) == 1 else "")


def _order(operator: Operator) -> str:
    """The order of output dimensions, where it is not that of the signature."""
    usual = [[axis for axis in operator.axes if axis in axes] for axes in operator.output_axes]
    if usual == list(map(list, operator.orders)):
        return ""
    return " -> " + ", ".join(" ".join(axes) for axes in operator.orders)


def _without(names: Mapping[Expr, str], term: Expr) -> dict[Expr, str]:
    return {key: name for key, name in names.items() if key is not term}


def _extent(expr: Expr) -> tuple[int, int]:
    """The number of nodes of the formula written out, and its depth."""
    size, depth = {}, {}
    for term in subterms(expr):
        size[term] = 1 + sum(size[arg] for arg in term.args)
        depth[term] = 1 + max((depth[arg] for arg in term.args), default=0)
    return size[expr], depth[expr]


def shared_terms(roots: tuple[Expr, ...], known: Mapping[Expr, str] | None = None, reserved: Collection[str] = ()) -> dict[Expr, str]:
    """Names for terms used more than once and for deep ones: d1, d2, … for reductions, t1, t2, … for the rest.

    Terms in the dict `known` have names already; `reserved` names and those of leaves and axes are not given again.
    """
    terms = subterms(*roots)
    uses = Counter([arg for term in terms for arg in term.args] + list(roots))
    taken = {name for term in terms for name in (*term.attrs, *term.axes) if isinstance(name, str)} | set(reserved)
    taken |= {name for term in terms if term.op == "scan" for name in term.attrs[1]}
    depth, names, number = {}, {}, Counter()
    for term in terms:
        depth[term] = 1 + max((depth[arg] for arg in term.args), default=0)
        if term.op not in LEAVES and term not in (known or {}) and (
                uses[term] > 1 or depth[term] >= INLINE_DEPTH) and not unbound_states(term):
            names[term] = _next_name("d" if term.op in ("reduce", "scan") else "t", number, taken)
            depth[term] = 0
    return names


def _next_name(stem: str, number: Counter, taken: set[str]) -> str:
    number[stem] += 1
    while f"{stem}{number[stem]}" in taken:
        number[stem] += 1
    return f"{stem}{number[stem]}"


def _formulas(roots: tuple[Expr, ...], names: Mapping[Expr, str]) -> list[str]:
    """One formula per root; a term in `names` is written by its name."""
    done: dict[Expr, Written] = {}

    def walk(term: Expr) -> None:
        if term not in done:
            if term in names:
                done[term] = names[term], ATOM
                return
            for arg in term.args:
                walk(arg)
            done[term] = _written(term, [done[arg] for arg in term.args])

    for root in roots:
        walk(root)
    return [done[root][0] for root in roots]


def _written(term: Expr, args: list[Written]) -> Written:
    if term.op in LEAVES:
        return _leaf(term)
    function = FUNCTIONS.get(term.op)
    if function and function.infix and function.arity == 2:
        return binary(function.infix, *args)
    if function and function.infix and term.args[0].op != "const":
        return function.infix + at_least(UNARY, args[0]), UNARY
    operands = [written for written, _ in args]
    return f"{_word(term)}({', '.join(_operands(term, operands))})", ATOM


def _leaf(term: Expr) -> Written:
    if term.op == "const":
        return _constant(term.value)
    if term.op == "input":
        return f"{term.name}[{', '.join(term.axes) or '()'}]", ATOM
    return (term.name if term.op in ("param", "symbol", "state") else f"{term.op}({term.axis})"), ATOM


def _constant(value: bool | int | float) -> Written:
    written = "nan" if isinstance(value, float) and math.isnan(value) else repr(value)
    return written, UNARY if written.startswith("-") else ATOM


def binary(infix: str, left: Written, right: Written) -> Written:
    """An operator between two operands, in brackets where they bind less tightly."""
    level = PRECEDENCE.get(infix, COMPARISON)
    if level == POWER:
        return f"{at_least(ATOM, left)} ** {at_least(UNARY, right)}", level
    tighter = level + 1
    return f"{at_least(tighter if level == COMPARISON else level, left)} {infix} {at_least(tighter, right)}", level


def at_least(level: int, written: Written) -> str:
    """A formula, in brackets if it binds less tightly than `level`."""
    return written[0] if written[1] >= level else f"({written[0]})"


def _word(term: Expr) -> str:
    return term.monoid if term.op == "reduce" else term.op


def _operands(term: Expr, args: list[str]) -> list[str]:
    """The operands of a call, with the attributes in the places where the front door takes them."""
    if term.op in ("round", "cast"):
        *dtype, reassociate = term.attrs
        return args + dtype + (["reassociate=True"] if reassociate else [])
    if term.op == "scan":
        return _recurrence(term, args)
    if term.op != "reduce":
        return args
    k = args[-1:] if term.count is not None else []
    mask = [f"where={args[1]}"] if term.mask is not None else []
    return [args[0], term.axis, *k, *mask, *_axis_name(term)]


def _recurrence(term: Expr, args: list[str]) -> list[str]:
    """The step as a lambda of the states, the axis, where it starts, and which state is meant."""
    axis, names, place, every = term.attrs
    starts, nexts = (", ".join(part) for part in (args[:len(names)], args[len(names):]))
    if len(names) > 1:
        starts, nexts = f"({starts})", f"({nexts})"
    return [f"lambda {', '.join(names)}: {nexts}", axis, starts, *([every] if every else []),
            *([f"place={place}"] if len(names) > 1 else [])]


def _axis_name(term: Expr) -> list[str]:
    """The name of the axis topk makes, unless it is the one it would get anyway."""
    out = term.attrs[2]
    return [f"name={out}"] if out and out != fresh_axis("top", *term.args[:-1]) else []


printer[:] = [text]
