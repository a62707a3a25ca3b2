"""Schedules: tile length, rows per block, threads, parts of the reduced axis; what changes speed and no meaning.

In: a tile program and axis lengths.  Out: a Schedule, checked against them; the levels at which a state is rebased.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from redfuser_algebra.language.html import table
from redfuser_algebra.lower.tile import LoweringError, TileProgram

LEVELS = ("element", "tile", "split", "split at once")
"""When a state is rebased, from every element to once per part (RedFuser's fusion levels; `split at once` is its
non-incremental computation: each part first finds its own pivots, and then reads its elements again)."""


@dataclass(frozen=True)
class Machine:
    """Bytes of cache per core, and cores; `spread` are the bytes of a tile from which memory gives the next one at full speed,
    where shorter ones are known to slow it down."""

    first: int = 32 * 1024
    second: int = 1024 * 1024
    cores: int = 1
    spread: int = 0


@dataclass(frozen=True)
class Schedule:
    """`tile` elements at a time, `block` rows at a time, on `threads` threads, the reduced axis cut into `parts`.

    The state is rebased once per tile, and parts are merged at the end; rows that share no matrix product are taken one
    by one, whatever `block` is.  `wgmma` is for GPUs: products by four warps at a time and bulk copies (TMA), which sm_90a has.
    Raises LoweringError unless all are at least 1.
    """

    tile: int
    block: int = 1
    threads: int = 1
    parts: int = 1
    wgmma: bool = False

    def __post_init__(self) -> None:
        for name, value in (("tile", self.tile), ("block", self.block), ("threads", self.threads), ("parts", self.parts)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise LoweringError(f"a schedule with {name}={value!r}", "that is no whole number of at least 1", "choose 1 or more")

    def __str__(self) -> str:
        block = f", blocks of {self.block} rows" if self.block > 1 else ""
        parts = f", {self.parts} parts" if self.parts > 1 else ""
        return f"tiles of {self.tile}{block}{parts}, {self.threads} thread{'s' * (self.threads > 1)}"

    def _repr_html_(self) -> str:
        return table(("schedule", ""), [("elements per tile", self.tile), ("rows per block", self.block), ("threads", self.threads),
                                        ("parts of the axis", self.parts)])


def check(program: TileProgram, schedule: Schedule, length: int) -> None:
    """Raises LoweringError if a program cannot run so on a reduced axis of `length`."""
    if schedule.wgmma:
        raise LoweringError(f"{program.name} by wgmma on a CPU", "only GPUs of sm_90a have that instruction", "leave wgmma out, or take the target cuda")
    if schedule.parts > 1 and not program.splits:
        raise LoweringError(f"{program.name} in {schedule.parts} parts of {program.axis}",
                            f"an output keeps {program.axis}, and is written in a second sweep over whole rows", "choose parts=1")
    if schedule.parts > max(length, 1):
        raise LoweringError(f"{program.name} in {schedule.parts} parts of {program.axis}", f"it has {length} elements", f"choose parts ≤ {length}")


def is_legal(program: TileProgram, schedule: Schedule, length: int) -> bool:
    """Whether a program can run so on a reduced axis of `length`."""
    try:
        check(program, schedule, length)
    except LoweringError:
        return False
    return True


def levels(program: TileProgram, base: Schedule, length: int, parts: int) -> dict[str, Schedule]:
    """The schedules of LEVELS that a program has, made from `base`, with `parts` parts where the axis is split."""
    parts = min(parts, length)
    whole = {"element": replace(base, tile=1, parts=1), "tile": replace(base, parts=1)}
    split = {"split": replace(base, parts=parts), "split at once": replace(base, tile=max(1, math.ceil(length / parts)), parts=parts)}
    return whole if program.maps else whole | split


def candidates(program: TileProgram, sizes: Mapping[str, int], batch: int, machine: Machine) -> Iterator[Schedule]:
    """Legal schedules worth a look: tiles and blocks of powers of two, rows shared between threads or the axis cut."""
    length, rows = sizes[program.axis], batch
    for axis in program.rows:
        rows *= sizes[axis]
    tiles = sorted({min(1 << power, length) for power in range(6, 14)})
    blocks = sorted({min(1 << power, sizes[program.block]) for power in range(4, 9)}) if program.block else [1]
    for block in blocks:
        items = rows // sizes[program.block] * math.ceil(sizes[program.block] / block) if program.block else rows
        for tile in tiles:
            yield from (Schedule(tile, block, threads) for threads in sorted({1, max(1, min(machine.cores, items))}))
            if machine.cores > 1 and items < 4 * machine.cores and program.splits and length >= 2 * machine.cores * tile:
                yield Schedule(tile, block, machine.cores, machine.cores)
