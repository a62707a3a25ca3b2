"""Rows that are worked on together, so that what they share is read once: the last axis of rows, or the last axes as one.

In: a tile program.  Out: one with a block, whose rows may be numbered along an axis of its own, `joined` of several.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count, takewhile

from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.lower.tile import Contraction, TileProgram

Axes = tuple[str, ...]


def in_blocks(program: TileProgram) -> TileProgram:
    """A program whose work is single rows as one of blocks of one row each."""
    if program.block:
        return program
    block, made = _unused("one", program), {producer.name for producer in program.producers}

    def wider(term: Expr) -> Expr:
        return symbol(term.name, (*term.axes, block)) if term.op == "symbol" and term.name not in made else term

    found = _rewritten(program, wider, lambda axes: (*axes, block))
    stages = tuple(tuple(replace(update, contraction=None) for update in stage) for stage in found.stages)
    return replace(found, rows=(*program.rows, block), block=block, stages=stages)


def rows_together(program: TileProgram, apart: Collection[str]) -> TileProgram:
    """A program in blocks whose rows go on along all last axes of rows but those that are kept `apart`, numbered as one axis."""
    joined = tuple(takewhile(lambda axis: axis not in apart, reversed(program.rows)))[::-1]
    if len(joined) < 2:
        return program
    block = _unused("_".join(joined), program)

    def numbered(axes: Axes) -> Axes:
        return tuple(dict.fromkeys(block if axis in joined else axis for axis in axes))

    def leaf(term: Expr) -> Expr:
        return Expr(term.op, (), (term.name, numbered(term.axes))) if term.op in ("symbol", "input") else term

    found = _rewritten(program, leaf, numbered)
    inputs = {name: numbered(axes) if set(joined) <= set(axes) else axes for name, axes in program.inputs.items()}
    producers = tuple(replace(p, value=_changed(p.value, leaf), contraction=_product(p.contraction, leaf)) for p in program.producers)
    return replace(found, rows=numbered(program.rows), block=block, joined=joined, inputs=inputs, producers=producers,
                   output_axes=tuple(map(numbered, program.output_axes)), holds={name: numbered(axes) for name, axes in program.holds.items()})


def _unused(name: str, program: TileProgram) -> str:
    taken = {axis for own in (*program.inputs.values(), *program.output_axes) for axis in own}
    return next(each for n in count() if (each := f"{name}{n or ''}") not in taken)


def _changed(expr: Expr | None, leaf: Callable[[Expr], Expr]) -> Expr | None:
    return None if expr is None else substitute(expr, {term: new for term in subterms(expr) if not term.args and (new := leaf(term)) is not term})


def _product(contraction: Contraction | None, leaf: Callable[[Expr], Expr]) -> Contraction | None:
    return contraction and Contraction(_changed(contraction.left, leaf), _changed(contraction.right, leaf), contraction.axis)


def _rewritten(program: TileProgram, leaf: Callable[[Expr], Expr], axes: Callable[[Axes], Axes]) -> TileProgram:
    """The program with other leaves in the formulas that follow the producers, and other axes of what they make."""
    made = {producer.name for producer in program.producers}
    stages = tuple(tuple(replace(
        u, axes=axes(u.axes), lift=_changed(u.lift, leaf), mask=_changed(u.mask, leaf), rebase=_changed(u.rebase, leaf),
        contraction=_product(u.contraction, leaf)) for u in stage) for stage in program.stages)
    values = tuple(replace(v, value=_changed(v.value, leaf), axes=axes(v.axes)) for v in program.values)
    return replace(program, stages=stages, values=values, outputs=tuple(_changed(output, leaf) for output in program.outputs),
                   holds={name: own if name in made else axes(own) for name, own in program.holds.items()})
