"""The derivatives of an elementwise function by its operands, as the table of functions states them.

In: a term.  Out: one expression for each operand; none for a function that has no derivative.
"""
from __future__ import annotations

from functools import cache

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.language.expr import Expr, substitute, symbol
from redfuser_algebra.language.formula import parse

_OPERANDS = {letter: symbol(letter) for letter in "abc"}


def derivatives(term: Expr) -> tuple[Expr, ...]:
    """The derivative of a term by each operand, made of the operands and, where the table says so, of the term itself."""
    row = FUNCTIONS.get(TOTAL_TWINS.get(term.op, term.op))
    operands = dict(zip(_OPERANDS.values(), term.args, strict=False))
    return tuple(substitute(_read(formula), operands) for formula in (row and row.derivative or ()))


@cache
def _read(formula: str) -> Expr:
    return parse(formula, {}, (), _OPERANDS)
