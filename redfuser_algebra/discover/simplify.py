"""Small exact simplifications of coefficients: what a rebase rule becomes when the pivot has not moved."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from redfuser_algebra.language.expr import Expr, call, children_replaced, const, replaced, rewritten


def settled(term: Expr, old: Callable[[Expr], Expr | None]) -> Expr:
    """`term` with every new pivot replaced by its old value, and what that makes trivial removed."""
    return rewritten(replaced(term, old), folded)


def sorted_operands(term: Expr, as_written: Callable[[Expr], bool] = lambda part: False) -> Expr:
    """`term` with the operands of every + and · in one order, so that commuted terms become the same object.

    Parts that are `as_written` stay as they are.
    """
    done: dict[Expr, Expr] = {}

    def walk(part: Expr) -> Expr:
        if part not in done and as_written(part):
            done[part] = part
        if part not in done:
            args = tuple(map(walk, part.args))
            done[part] = _sorted(part, args) if part.op in ("multiply", "add") else children_replaced(part, args)
        return done[part]

    return walk(term)


def _sorted(term: Expr, args: tuple[Expr, ...]) -> Expr:
    parts = sorted((each for arg in args for each in operands(arg, term.op)), key=repr)
    return reduce(lambda a, b: Expr(term.op, (a, b)), parts)


def operands(term: Expr, op: str) -> list[Expr]:
    """The operands of nested + or ·, from left to right."""
    return [each for arg in term.args for each in operands(arg, op)] if term.op == op else [term]


def opened(term: Expr, choices: Mapping[Expr, Expr]) -> Expr:
    """`term` with what is selected by a == i, for an i that is a choice, selected by the choice: the law `equal_to_choice`."""
    def selected(a: Expr, position: Expr, values: tuple[Expr, ...]) -> Expr:
        if position.op != "where":
            return call("where", call("equal", a, position), *values)
        return call("where", position.args[0], *(selected(a, each, values) for each in position.args[1:]))

    def chosen(part: Expr) -> Expr:
        condition = part.args[0] if part.op == "where" and part.args[0].op == "equal" else None
        position = choices.get(condition.args[1]) if condition is not None else None
        return part if position is None else selected(condition.args[0], position, part.args[1:])

    return rewritten(term, chosen) if choices else term


def folded(term: Expr) -> Expr:
    """`term` without what is trivial at its root: p − p, p / p, e⁰, 1·a, 0·a, a + 0, choices already made."""
    rule = _RULES.get(term.op)
    return rule(term) if rule else term


def is_number(term: Expr, value: float) -> bool:
    """Whether a term is this number."""
    return term.op == "const" and term.value == value


def _times(term: Expr) -> Expr:
    a, b = term.args
    if is_number(a, 0) or is_number(b, 0):
        return const(0)
    return b if is_number(a, 1) else a if is_number(b, 1) else term


def _plus(term: Expr) -> Expr:
    a, b = term.args
    return b if is_number(a, 0) else a if is_number(b, 0) else term


def _minus(term: Expr) -> Expr:
    a, b = term.args
    return const(0) if a is b else a if is_number(b, 0) else term


def _negative(term: Expr) -> Expr:
    return const(0) if is_number(term.args[0], 0) else term


def _ratio(term: Expr) -> Expr:
    a, b = term.args
    return const(1) if a is b else a if is_number(b, 1) else term


def _equal(term: Expr) -> Expr:
    return const(True) if term.args[0] is term.args[1] else term


def _unequal(term: Expr) -> Expr:
    return const(False) if term.args[0] is term.args[1] else term


def _choice(term: Expr) -> Expr:
    condition, a, b = term.args
    if a is b:
        return a
    return (a if condition.value else b) if condition.op == "const" else term


def _power(term: Expr) -> Expr:
    return const(1) if is_number(term.args[0], 1) or is_number(term.args[1], 0) else term


def _one_at_zero(term: Expr) -> Expr:
    return const(1) if is_number(term.args[0], 0) else term


def _zero_at_zero(term: Expr) -> Expr:
    return const(0) if is_number(term.args[0], 0) else term


_RULES: dict[str, Callable[[Expr], Expr]] = {
    "multiply": _times, "scale": _times, "add": _plus, "subtract": _minus, "shift": _minus, "negative": _negative,
    "ratio": _ratio, "divide": _ratio, "equal": _equal, "not_equal": _unequal, "where": _choice, "power": _power,
    "exp": _one_at_zero, "exp2": _one_at_zero, "cos": _one_at_zero, "sin": _zero_at_zero,
}
