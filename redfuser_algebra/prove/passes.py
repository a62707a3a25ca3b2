"""The best alternative to one pass: as few passes as the laws can find, and where to cut.

In: a cascade that has no fused form.  Out: the names of its reductions, pass by pass.  What an earlier pass has found
is a known input of the next one; within a pass everything fuses.
"""
from __future__ import annotations

from dataclasses import replace

from redfuser_algebra.discover.asking import Settings
from redfuser_algebra.discover.search import Search, Stuck
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.expr import Expr, substitute, subterms

Passes = tuple[tuple[str, ...], ...]


def passes(cascade: Cascade, assume: tuple[Expr, ...] = (), settings: Settings = Settings()) -> Passes:
    """The reductions of each pass, in order: every reduction is in the first pass that can hold it."""
    found: list[tuple[str, ...]] = []
    rest = cascade
    while rest.reductions:
        fused = _fusing(rest, assume, settings)
        found.append(tuple(reduction.name for reduction in fused))
        rest = _after(rest, fused)
    return tuple(found)


def _fusing(cascade: Cascade, assume: tuple[Expr, ...], settings: Settings) -> tuple[Reduction, ...]:
    """The reductions that fuse with all before them, leaving out those that are stuck and what waits for them.

    What no law can take in at all fills a pass of its own.
    """
    kept = cascade
    while kept.reductions:
        search = Search(kept, assume, settings)
        try:
            search.run()
            return kept.reductions
        except Stuck as stuck:
            kept = replace(kept, reductions=_without(kept.reductions, stuck.reduction.name))
    return cascade.reductions[:1]


def _without(reductions: tuple[Reduction, ...], name: str) -> tuple[Reduction, ...]:
    gone = {name}
    kept = []
    for reduction in reductions:
        if reduction.name in gone or gone & _uses(reduction):
            gone.add(reduction.name)
        else:
            kept.append(reduction)
    return tuple(kept)


def _uses(reduction: Reduction) -> set[str]:
    parts = [*reduction.operands]
    return {term.name for term in subterms(*parts) if term.op == "symbol"}


def _after(cascade: Cascade, fused: tuple[Reduction, ...]) -> Cascade:
    """The cascade that is left when these results, and the length of the axis, are known."""
    known = {reduction.symbol: _known(reduction) for reduction in fused}
    known[Expr("size", (), (cascade.axis,))] = Expr("param", (), (f"length of {cascade.axis}",))
    names = {reduction.name for reduction in fused}
    left = tuple(_with(reduction, known) for reduction in cascade.reductions if reduction.name not in names)
    return Cascade(cascade.axis, left, tuple(substitute(output, known) for output in cascade.outputs), cascade.depth)


def _known(reduction: Reduction) -> Expr:
    """A result of an earlier pass as an input; its axes are its own."""
    return Expr("input", (), (reduction.name, reduction.source.axes))


def _with(reduction: Reduction, known: dict[Expr, Expr]) -> Reduction:
    body, mask, count = (None if part is None else substitute(part, known)
                         for part in (reduction.body, reduction.mask, reduction.count))
    return replace(reduction, body=body, mask=mask, count=count)
