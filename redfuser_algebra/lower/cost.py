"""The cost model: how long a tile program takes under a schedule, and the schedule that it finds best.

In: a tile program, axis lengths, the width of a number and the machine's caches.  Out: seconds.  The rates are rough
figures of a core of today; only which schedule comes out ahead depends on them, never a result.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.lower.schedule import Machine, Schedule, candidates
from redfuser_algebra.lower.tile import TileProgram

MEMORY, SECOND = 10e9, 60e9
"""Bytes per second that a core reads from memory, and from its second cache."""
OPERATION, CURVE = 0.06e-9, 0.4e-9
"""Seconds of an operation on an element in float32 (twice that in float64), and of an exponential or its like."""
SELECT, ORDERED = 150e-9, 3e-9
"""Seconds that the k largest of a tile take besides their operation on each element, and that an element takes which waits for the one before."""
STEP, WAKE, MERGE = 12e-9, 60e-6, 20e-6
"""Seconds that a component costs per tile and row (its rebase, a call), that waking threads takes, and that merging two parts does."""
FLOPS, RAMP = 60e9, 24
"""Multiplications and additions per second of a matrix product in float32, and the extent at which it has half of that."""
SPILL = 0.1
"""By how much a matrix product takes longer for each time that its left factor fills half of the second cache once more: a
core reads it for one strip of columns after another, far less than what it multiplies in that time."""
SHORT = 1.25
"""How many times as long memory takes for tiles shorter than a machine's spread."""
CURVES = frozenset(("exp", "exp2", "log", "log2", "log1p", "logadd", "tanh", "erf", "sin", "cos", "power", "sqrt", "divide", "reciprocal", "cast", "round"))


@dataclass(frozen=True)
class Work:
    """What one row takes: seconds and bytes per element of the reduced axis, those of the second sweep, seconds per tile, and the rest.

    `products` holds, for each matrix product, the extents that neither the tile nor the block decides, and `sums` the
    columns of those sums that a product adds to: each tile reads and writes them once per row.  With `passes_over`
    a mask compares positions along both axes, so that about half of all tiles hold nothing.  With `one_sweep` maps see
    only what came before, so that there is nothing to fold first unless the axis is cut.  `joining` are the seconds that an
    element takes besides where what joins ordered parts is folded, too: products of many factors underflow, which is slow.
    """

    rows: int
    length: int
    bytes: float
    stages: int
    seconds: float
    map_seconds: float
    map_bytes: float
    per_tile: float
    products: tuple[int, ...]
    sums: int
    passes_over: bool
    one_sweep: bool = False
    joining: float = 0.0


def default_schedule(program: TileProgram, sizes: Mapping[str, int], batch: int, width: int, machine: Machine) -> Schedule:
    """The schedule that the model finds fastest; of equals, the one with the smallest tiles."""
    work = work_of(program, sizes, batch, width)
    return min(candidates(program, sizes, batch, machine), key=lambda each: estimate(work, each, sizes.get(program.block, 1), width, machine))


def work_of(program: TileProgram, sizes: Mapping[str, int], batch: int, width: int) -> Work:
    """The work of a program on axes of these lengths."""
    rows = batch * math.prod(sizes[axis] for axis in program.rows)
    extent = lambda axes: math.prod(sizes[program.copies.get(axis, axis)] for axis in program.columns(axes))
    inputs = [axes for axes in program.inputs.values() if program.axis in axes]
    again = lambda axes: 1 / min(10, math.prod(sizes[axis] for axis in program.rows if axis not in axes))
    read = sum(width * extent(axes) * again(axes) for axes in inputs)
    plain = [u for u in program.updates if u.contraction is None]
    counted = [u for u in plain if MONOIDS[u.monoid].counted]
    lifts = [e for u in plain for e in u.elements]
    lifts += [u.contraction.left for u in program.updates if u.contraction] + [p.value for p in program.producers if p.contraction is None]
    seconds = _seconds(program, lifts, extent, width) + OPERATION * width / 4 * len(counted)
    steps = [u.step for u in program.updates if u.ordered]
    seconds += _seconds(program, steps, extent, 8) + ORDERED * bool(steps)
    outputs = program.again
    written = sum(2 * width * extent(program.output_axes[place]) for place in program.maps)
    added = [extent(u.axes) for u in program.updates if u.contraction]
    products = [sizes[p.contraction.axis] for p in program.producers if p.contraction] + added
    finishing = _seconds(program, outputs, extent, width) + ORDERED * bool(program.running)
    return Work(rows, sizes[program.axis], read, len(program.stages), seconds, finishing, written,
                STEP * len(program.updates) + SELECT * len(counted), tuple(products), sum(added), all(_is_triangle(program, u.where) for u in program.updates),
                bool(program.running) and not program.folds, 8 * ORDERED * bool(steps))


def is_costly(term: Expr) -> bool:
    """Whether a term is worth memory to keep it in: it takes a sum over an axis, or an exponential or its like."""
    return any(part.op == "reduce" or part.op in CURVES for part in subterms(term))


def _is_triangle(program: TileProgram, mask: Expr | None) -> bool:
    """Whether a mask compares positions along the reduced axis with those of rows of a block."""
    if mask is None:
        return False
    axes = {term.axis for term in subterms(mask) if term.op == "index"}
    return {program.axis, program.block} <= axes and any(term.op.startswith(("less", "greater")) for term in subterms(mask))


def _seconds(program: TileProgram, exprs: Iterable[Expr], extent: object, width: int) -> float:
    """Seconds per element that formulas take, each part once."""
    total = 0.0
    for term in subterms(*exprs):
        if term.args and program.axis in term.axes:
            total += (CURVE if term.op in CURVES else OPERATION) * extent((term.body if term.op == "reduce" else term).axes)
    return total * width / 4


def _moved(size: float, machine: Machine) -> float:
    """Seconds that so many bytes take to be read, from the second cache if that holds them."""
    return size / (SECOND if size <= machine.second else MEMORY)


def estimate(work: Work, schedule: Schedule, block_axis: int, width: int, machine: Machine) -> float:
    """Seconds under a schedule."""
    tile, block = min(schedule.tile, work.length), schedule.block
    again = 0.0 if tile * work.bytes * 3 <= machine.first else work.bytes / (SECOND if tile * work.bytes * 2 <= machine.second else MEMORY)
    short = SHORT if tile * work.bytes < machine.spread and not work.products else 1.0
    per_element = work.seconds + work.bytes / MEMORY * short + again * (work.stages - 1)
    per_element += work.joining * (schedule.parts > 1)
    if work.one_sweep and schedule.parts == 1:
        per_element = work.map_seconds + (work.map_bytes + work.bytes) / MEMORY
    elif work.map_bytes:
        fits = work.length * (work.bytes + work.map_bytes / 2) <= machine.second
        per_element += work.map_seconds + work.map_bytes / MEMORY + work.bytes / (SECOND if fits else MEMORY)
    for extent in work.products:
        if block == 1:
            per_element += 2 * extent * OPERATION * width / 4
            continue
        slow = (1 + RAMP / extent) * (1 + RAMP / tile) * (1 + RAMP / block)
        spilled = 1 + SPILL * max(0.0, block * tile * width * 2 / machine.second - 1)
        per_element += 2 * extent * width / 4 / FLOPS * slow * spilled
        per_element += _moved(2 * block * extent * width, machine) / (block * tile) + _moved(work.length * extent * width, machine) / (block * work.length)
    held = block * work.sums * width
    per_tile = work.per_tile + 2 * work.sums * width / (SECOND if held * 2 <= machine.second else MEMORY)
    seen = min(1.0, (1 + (tile + block) / work.length) / 2) if work.passes_over else 1.0
    row = seen * (work.length * per_element + math.ceil(work.length / tile) * per_tile)
    items = work.rows // block_axis * math.ceil(block_axis / block)
    rounds = math.ceil(items / schedule.threads) / items if schedule.parts == 1 else 1 / schedule.threads
    return work.rows * row * rounds + (schedule.threads > 1) * WAKE + (schedule.parts - 1) * MERGE
