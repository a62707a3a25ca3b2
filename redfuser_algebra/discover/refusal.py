"""A refusal is a result: which reduction, which obligation, what the laws could not move."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from redfuser_algebra.discover.display import refusal_html
from redfuser_algebra.discover.search import Search, Stuck
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.display import symbols_in
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME, symbol_names

ROUNDINGS = ("round", "cast", "floor", "ceil")


class Evidence(Protocol):
    """A proof that there is no fused form: prints itself, names its reason, and can be checked again."""

    reason: str

    def recheck(self) -> bool:
        """Whether the numbers still prove it."""


@dataclass(frozen=True)
class Refusal:
    """Why a cascade has no fused form here.

    `residual` is the element term that still mixes the axis with a new pivot (p' is the new value of pivot p, whose
    meaning is in `pivots`; that of the results of reductions before it is in `earlier`).  `exhausted` says that a limit
    was hit: then nothing is known about the operator.  `rounding` says that a rounding sits between the pivot and the
    reduction.  `witness` proves that no form exists (None: not proved), and `passes` are the reductions of each pass that
    the operator needs.
    """

    axis: str
    reduction: Reduction
    obligation: str
    residual: Expr | None
    pivots: dict[str, Expr]
    exhausted: bool
    rounding: bool
    witness: Evidence | None = None
    passes: tuple[tuple[str, ...], ...] = ()
    earlier: dict[str, Expr] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"{self.reduction.name} = {self.reduction.stated}"
        what = f"; left over: {self.residual}" if self.residual is not None else ""
        meanings = ", ".join(f"{name} = {value}" for name, value in (self.earlier | self.pivots).items())
        return f"{where}: {self.obligation}{what}" + (f"  (with {meanings})" if meanings else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return refusal_html(self)


def refused(stuck: Stuck, search: Search) -> Refusal:
    """The refusal that a stuck search amounts to."""
    residual = stuck.residual
    inside = subterms(residual) if residual is not None else []
    names = {name.removesuffix(PRIME) for name in symbol_names(residual)}
    pivots = {name: value for name, value in search.pivots.values.items() if name in names}
    rounding = any(term.op in ROUNDINGS and search.axis in term.axes and
                   any(part.op == "symbol" for part in subterms(term)) for term in inside)
    return Refusal(search.axis, stuck.reduction, stuck.reason, residual, pivots, stuck.exhausted, rounding,
                   earlier=earlier_than(stuck.reduction, search.cascade))


def earlier_than(reduction: Reduction, cascade: Cascade) -> dict[str, Expr]:
    """The reductions that one waits for, in order, over the results of those before them."""
    waits = set(symbols_in(reduction.stated))
    for before in reversed(cascade.reductions):
        waits.update(symbols_in(before.stated) if before.name in waits else ())
    return {before.name: before.stated for before in cascade.reductions if before.name in waits}


def refused_pairs(cascade: Cascade, source: str, copy: str) -> Refusal:
    """The refusal of a sweep over all pairs of elements of one array."""
    obligation = f"it meets every element of {source} with every other, {copy} being {source} once more; {source} and {copy} as two arrays may fuse"
    return Refusal(cascade.axis, cascade.reductions[-1], obligation, None, {}, False, False)
