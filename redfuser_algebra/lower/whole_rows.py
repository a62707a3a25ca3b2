"""A tile program as a thread sees it that walks a whole row: no parts are merged, and nothing is made for a tile at once.

In: a tile program.  Out: the same mathematics with producers written out, without what only merges need, and with axes of
columns that nothing sums over as rows: along these each thread has a row of its own.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.language.names import stem, symbol_names
from redfuser_algebra.lower.tile import TileProgram, Update


def walked(program: TileProgram) -> TileProgram:
    """The program of a thread that walks a row; what its rows have besides are the `lanes` of the program given."""
    whole = _without_merges(_written_out(program))
    return replace(whole, rows=(*program.rows, *lanes(whole)), block="")


def lanes(program: TileProgram) -> tuple[str, ...]:
    """The axes of columns along which work falls apart: no formula sums over them, or meets them twice."""
    known = [*program.inputs.values(), *program.output_axes, *(state.axes for state in (*program.updates, *program.running))]
    summed = {term.axis for term in subterms(*_formulas(program)) if term.op == "reduce"} | {*program.copies, *program.copies.values()}
    counted = {update.axes[-1] for update in program.updates if MONOIDS[update.monoid].counted}
    return tuple(axis for axis in program.columns(tuple(dict.fromkeys(axis for axes in known for axis in axes))) if axis not in summed | counted)


def _formulas(program: TileProgram) -> list[Expr]:
    """All that is computed."""
    updates = [each for u in program.updates for each in (*u.elements, u.step, u.rebase) if each is not None]
    return [*program.outputs, *updates, *(value.value for value in program.values), *(each for state in program.running for each in (state.start, state.step))]


def _written_out(program: TileProgram) -> TileProgram:
    """Formulas with what tiles make in them."""
    made: dict[str, Expr] = {}

    def written(term: Expr) -> Expr:
        return substitute(term, {part: made[part.name] for part in subterms(term) if part.op == "symbol" and part.name in made})

    for producer in program.producers:
        made[producer.name] = written(producer.value)

    def update(u: Update) -> Update:
        mask, step = (None if each is None else written(each) for each in (u.mask, u.step))
        return replace(u, lift=written(u.lift), mask=mask, step=step, contraction=None)

    return replace(program, producers=(), stages=tuple(tuple(map(update, stage)) for stage in program.stages),
                   running=tuple(replace(state, step=written(state.step)) for state in program.running), outputs=tuple(map(written, program.outputs)))


def _without_merges(program: TileProgram) -> TileProgram:
    """A program without the components of which only parts know what they are for."""
    reads = {value.name: [value.value] for value in program.values}
    for u in program.updates:
        reads[u.name] = [u.step] if u.ordered else [*u.elements, u.rebase, *([symbol(u.present)] if u.present else [])]
    needed = _reached([*program.outputs, *(each for state in program.running for each in (state.start, state.step))], reads)
    stages = (tuple(u for u in stage if u.name in needed) for stage in program.stages)
    return replace(program, stages=tuple(stage for stage in stages if stage), values=tuple(v for v in program.values if v.name in needed),
                   running=tuple(replace(state, after="") for state in program.running))


def _reached(formulas: Iterable[Expr], reads: dict[str, list[Expr]]) -> set[str]:
    """The names that formulas read, by themselves or through others."""
    found, todo = set[str](), list(formulas)
    while todo:
        fresh = {stem(name) for name in symbol_names(todo.pop())} - found
        found |= fresh
        todo += [each for name in fresh for each in reads.get(name, ())]
    return found
