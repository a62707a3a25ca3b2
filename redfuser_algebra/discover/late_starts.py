"""What a recurrence has come to after some of the elements, where it starts from what is known only at the end.

In: the record of a recurrence.  Out: its state over the components of a part, and over the results of the whole axis.
"""
from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.polynomials import Algebra
from redfuser_algebra.language.expr import Expr, call, substitute, subterms, symbol

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import Recurred

AT_THE_END = " at the end"


def waits(recurred: Recurred) -> bool:
    """Whether a part alone does not tell the state after it: a start is made of results, or of the length."""
    return any(term.op in ("symbol", "size") for _, start in recurred.starts for term in subterms(start))


def state_after(recurred: Recurred, axis: str) -> Expr:
    """The state after a part, over its components by their names; results of all elements, and their `size`, have AT_THE_END behind theirs."""
    algebra, whole = Algebra(SEMIRINGS[recurred.semiring]), Expr("size", (), (axis,))
    finals = {term: symbol(_name(term) + AT_THE_END, term.axes) for _, start in recurred.starts for term in subterms(start)
              if term.op == "symbol" or term is whole}
    starts = {state: substitute(start, finals) for state, start in recurred.starts}
    begun = [substitute(function, starts) for function in recurred.basis]
    if recurred.between:
        first = [substitute(row, dict(recurred.begins)) for row in _columns(recurred, begun, algebra)]
        return call("where", call("equal", whole, 0), begun[recurred.row], _read(recurred, recurred.row, first, algebra))
    value = _read(recurred, recurred.row, begun, algebra)
    return value if recurred.below is None else value / _read(recurred, recurred.below, begun, algebra)


def _columns(recurred: Recurred, begun: list[Expr], algebra: Algebra) -> list[Expr]:
    """The functions of the state after the first element of all."""
    return [reduce(algebra.plus, map(algebra.times, row, begun)) for row in recurred.rows]


def _read(recurred: Recurred, row: int, functions: list[Expr], algebra: Algebra) -> Expr:
    return reduce(algebra.plus, map(algebra.times, recurred.entries[row], functions))


def _name(term: Expr) -> str:
    return term.name if term.op == "symbol" else "size"
