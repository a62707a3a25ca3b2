"""Sums of which one element alone may differ from 0, at a place that is computed: Σ_b [b = e]·x_b is x at the place e, or 0 where there is none.

In: formulas and programs that hold such sums.  Out: the place and the element; programs that look elements up wherever they need them.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.lower.functions import picked
from redfuser_algebra.lower.tile import TileProgram, Update


def gather(term: Expr, kind: Callable[[Expr], str]) -> tuple[Expr, Expr] | None:
    """The place along the axis that a sum is over, a whole number by its `kind`, and what is summed there; None if it is no such sum."""
    found = picked(term.body, term.axis) if term.op == "reduce" and term.monoid == "sum" and term.mask is None else None
    return found if found and kind(found[0]) == "i" else None


def is_looked_up(term: Expr, kind: Callable[[Expr], str]) -> bool:
    """Whether a term is a real number of an input, at computed places along some of its axes."""
    found, value = gather(term, kind), term
    while found:
        value = found[1]
        while value.op == "where":
            value = value.args[1]
        found = gather(value, kind)
    return value is not term and value.op == "input" and kind(value) == "f"


def sums(expr: Expr, kind: Callable[[Expr], str]) -> list[Expr]:
    """The reductions in a formula that do not look an element up."""
    return [term for term in subterms(expr) if term.op == "reduce" and gather(term, kind) is None]


def looked_up(program: TileProgram, kind: Callable[[Expr], str]) -> TileProgram:
    """A program in which elements that are looked up are no producers."""
    found = {p.name: p.value for p in program.producers if p.value.op == "reduce" and not sums(p.value, kind)}
    if not found:
        return program
    named = {symbol(p.name, p.axes): p.value for p in program.producers if p.name in found}

    def update(u: Update) -> Update:
        product = u.contraction and replace(u.contraction, left=substitute(u.contraction.left, named))
        return replace(u, lift=substitute(u.lift, named), mask=None if u.mask is None else substitute(u.mask, named), contraction=product)

    return replace(program, producers=tuple(p for p in program.producers if p.name not in found),
                   stages=tuple(tuple(map(update, stage)) for stage in program.stages),
                   holds={name: axes for name, axes in program.holds.items() if name not in found})
