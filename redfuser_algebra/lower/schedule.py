"""Schedules: tile length, rows per block, threads; what changes speed and nothing else.

In: a tile program, axis lengths, the width of a number and the machine's caches.  Out: a Schedule.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redfuser_algebra.lower.tile import LoweringError, TileProgram


@dataclass(frozen=True)
class Machine:
    """Bytes of cache per core, and cores."""

    first: int = 32 * 1024
    second: int = 1024 * 1024
    cores: int = 1


@dataclass(frozen=True)
class Schedule:
    """`tile` elements at a time, `block` rows at a time, on `threads` threads.  Raises LoweringError unless all are at least 1."""

    tile: int
    block: int = 1
    threads: int = 1

    def __post_init__(self) -> None:
        for name, value in (("tile", self.tile), ("block", self.block), ("threads", self.threads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise LoweringError(f"a schedule with {name}={value!r}", "that is no whole number of at least 1", "choose 1 or more")


def default_schedule(program: TileProgram, sizes: Mapping[str, int], batch: int, width: int, machine: Machine) -> Schedule:
    """Tiles whose elements stay in the first cache, and in blocks as many rows as keep scores and sums in the second."""
    items = batch
    for axis in program.rows:
        items *= sizes[axis]
    length = sizes[program.axis]
    if not program.block:
        per_element = width * max(_elements(program, sizes), 1)
        tile = _power_of_two(machine.first // (2 * per_element), 64, 4096)
        return Schedule(min(tile, max(length, 1)), 1, max(1, min(machine.cores, items)))
    block = min(sizes[program.block], 64)
    columns = max((_product(program, u.axes, sizes) for u in program.updates), default=1)
    tile = _power_of_two(machine.second // (2 * width * (block + columns)), 64, 256)
    blocks = -(-sizes[program.block] // block) * (items // sizes[program.block])
    return Schedule(min(tile, max(length, 1)), block, max(1, min(machine.cores, blocks)))


def _elements(program: TileProgram, sizes: Mapping[str, int]) -> int:
    """Numbers read or kept per element of the reduced axis at one row."""
    varying = [axes for axes in program.inputs.values() if program.axis in axes]
    kept = [producer.axes for producer in program.producers]
    return sum(_product(program, axes, sizes) for axes in (*varying, *kept))


def _product(program: TileProgram, axes: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    """The places of the columns among `axes`."""
    total = 1
    for axis in program.columns(axes):
        total *= sizes[program.copies.get(axis, axis)]
    return total


def _power_of_two(wanted: int, least: int, most: int) -> int:
    return max(least, min(most, 1 << max(wanted, 1).bit_length() - 1))
