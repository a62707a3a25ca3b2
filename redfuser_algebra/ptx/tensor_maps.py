"""Bulk copies of boxes of a tensor, by maps that say how it lies in memory (PTX ISA, "Tensors", cp.async.bulk.tensor).

What a map holds is the driver's secret.  Here `encode_tiled` stands for the driver's cuTensorMapEncodeTiled: it refuses what
that refuses, and writes words of its own, which the copy reads.
"""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.accesses import SECTOR
from redfuser_algebra.ptx.decode import Decoder, Mask, Step, instruction
from redfuser_algebra.ptx.mbarriers import Transfer
from redfuser_algebra.ptx.memory import ALLOCATED, GLOBAL, PENDING, WRITTEN
from redfuser_algebra.ptx.memory_access import reached
from redfuser_algebra.ptx.text import Instruction, PtxError

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

SIZES = {"UINT8": 1, "UINT16": 2, "FLOAT16": 2, "BFLOAT16": 2}
"""Bytes of the numbers of a tensor, by the end of the name that the driver has for their type."""

WORDS, MAGIC = 16, 0x7E4503
"""64-bit words of a map, and what ours begin with."""

LONGEST, WIDEST, FURTHEST, SPAN = 1 << 32, 256, 1 << 40, 128
"""What the driver allows: places along an axis, places along a side of a box, bytes between rows; and bytes of a box's rows for the swizzle."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor at an address: numbers of `size` bytes, lengths of axes, the innermost first, bytes from one place to the next along
    the others, and the box that a copy takes.  Boxes lie in shared memory with the swizzle of 128 bytes."""

    size: int
    address: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @classmethod
    def read(cls, words: np.ndarray) -> TensorMap:
        """A map out of its words.  Raises PtxError for others."""
        head, size, rank, address, *rest = words.tolist()
        if head != MAGIC:
            raise PtxError("a bulk copy by what is no tensor map")
        return cls(size, address, tuple(rest[:rank]), tuple(rest[3:2 + rank]), tuple(rest[5:5 + rank]))

    def words(self) -> list[int]:
        """The words of the map."""
        parts = ((self.lengths, 3), (self.strides, 2), (self.box, 3))
        return [MAGIC, self.size, len(self.lengths), self.address, *(n for part, room in parts for n in (*part, *[0] * (room - len(part)))), *[0] * 4]

    def allowed(self) -> bool:
        """Whether the driver makes such a map."""
        return (1 <= len(self.lengths) <= 3 and self.address % 16 == 0 and self.box[0] * self.size <= SPAN and self.box[0] * self.size % 16 == 0
                and all(0 < n <= LONGEST for n in self.lengths) and all(0 < n <= WIDEST for n in self.box)
                and all(n % 16 == 0 and n < FURTHEST for n in self.strides))

    def places(self, to: int) -> np.ndarray:
        """Where the bytes of a box lie that is copied to an address: chunk c of 16 bytes of line r of 128 bytes is at c ^ (r % 8)."""
        place = to + np.arange(math.prod(self.box) * self.size)
        return place ^ (place >> 7 & 7) << 4

    def source(self, corner: Sequence[int]) -> np.ndarray:
        """Where in memory the bytes of a box come from that begins there; −1 for those beyond the tensor, which become zeros."""
        grid = np.zeros(tuple(reversed(self.box)), np.int64) + self.address
        inside = np.ones(grid.shape, bool)
        for axis, (start, count, length) in enumerate(zip(corner, self.box, self.lengths, strict=True)):
            at = (start + np.arange(count)).reshape(-1, *[1] * axis)
            grid = grid + at * (self.strides[axis - 1] if axis else self.size)
            inside &= (at >= 0) & (at < length)
        return (np.where(inside, grid, -1)[..., None] + np.where(inside[..., None], np.arange(self.size), 0)).reshape(-1)


def encode_tiled(kind: object, rank: int, address: int, lengths: Sequence, strides: Sequence, box: Sequence, steps: Sequence, interleave: object,
                 swizzle: object, promotion: object, fill: object) -> tuple[int, SimpleNamespace]:
    """A status, 0 if all is well, and a map as the driver gives it: `opaque` are its words."""
    size = SIZES[re.sub(r".*_", "", kind.name)]
    made = TensorMap(size, int(address), *(tuple(int(n) for n in each) for each in (lengths, strides, box)))
    known = interleave.name.endswith("NONE") and swizzle.name.endswith("SWIZZLE_128B") and fill.name.endswith("FILL_NONE")
    fits = len(made.lengths) == len(made.box) == len(made.strides) + 1 == rank and all(int(n) == 1 for n in steps)
    return (0 if known and fits and made.allowed() else 1), SimpleNamespace(opaque=made.words())


@instruction("fence.proxy.tensormap::generic")
def acquire_map(i: Instruction, d: Decoder) -> Step:
    """From now on this thread's block may use a map that the host wrote."""
    address = d.address(i.operands[0])
    if not {"acquire", "sys"} <= {*i.forms} or i.operands[1] != "128":
        raise PtxError(f"the fence {i.text!r} is not one for a map that the host wrote")

    def step(g: Group, mask: Mask) -> None:
        active = slice(None) if mask is None else mask
        g.machine.maps |= set(zip((g.lanes[active] // g.machine.threads).tolist(), address(g)[active].tolist(), strict=True))

    return step


@instruction("cp.async.bulk.tensor")
def copy_box(i: Instruction, d: Decoder) -> Step:
    """A box of a tensor to shared memory; a barrier learns when it has come.  Each active thread copies one."""
    if not {"shared::cluster", "global", "tile", "mbarrier::complete_tx::bytes"} <= {*i.forms} or len(i.operands) != 3:
        raise PtxError(f"the copy {i.text!r} is not known", "enter it in redfuser_algebra.ptx.tensor_maps")
    where = re.fullmatch(r"\[\s*([%\w$]+)\s*,\s*\{([^}]*)\}\s*\]", i.operands[1])
    to, barrier, tensor = d.address(i.operands[0]), d.address(i.operands[2]), d.address(f"[{where[1]}]")
    corner = [d.read(each.strip(), "s32") for each in where[2].split(",")]
    if f"{len(corner)}d" not in i.forms:
        raise PtxError(f"the copy {i.text!r} has another number of places than axes")

    def step(g: Group, mask: Mask) -> None:
        active = np.flatnonzero(g.every if mask is None else mask)
        _, places = reached(g, "shared", to(g), mask)
        _, barriers = reached(g, "shared", barrier(g), mask)
        addresses, corners = tensor(g), [np.broadcast_to(each(g), (g.count,)) for each in corner]
        for lane in active:
            _copy(g, int(lane), _map(g, int(lane), int(addresses[lane]), len(corners)), [int(each[lane]) for each in corners],
                  int(places[lane]), int(barriers[lane]))

    return step


def _map(g: Group, lane: int, address: int, rank: int) -> TensorMap:
    """The map at an address of global memory."""
    memory, block = g.machine.memory, int(g.lanes[lane]) // g.machine.threads
    if address % 64:
        raise PtxError("a tensor map that does not lie at a multiple of 64 bytes")
    halves = np.array([address, address + 4 * WORDS]) - GLOBAL
    memory.check(halves, np.ones(2, bool), np.zeros(2, np.int64), memory.bytes.size, 4 * WORDS, ALLOCATED | WRITTEN, "read of a tensor map")
    if (block, address) not in g.machine.maps:
        raise PtxError("a tensor map in global memory that this block has not acquired", "the kernel lacks fence.proxy.tensormap")
    found = TensorMap.read(memory.bytes[address - GLOBAL:][:8 * WORDS].view(np.uint64))
    if len(found.lengths) != rank:
        raise PtxError("a bulk copy with another number of axes than its tensor map")
    return found


def _copy(g: Group, lane: int, tensor: TensorMap, corner: Sequence[int], to: int, barrier: int) -> None:
    """Start a copy: what lies there is lost, and what is to come has not come yet."""
    shared, memory, base = g.machine.shared, g.machine.memory, int(g.shared_base[lane])
    places = tensor.places(to - base) + base
    pieces, every = np.unique(places // 16 * 16), np.ones(places.size // 16, bool)
    if (to - base) % 128:
        raise PtxError("a bulk copy to a place that is no multiple of 128 bytes")
    shared.check(pieces, every, np.full(pieces.size, base), shared.size, 16, ALLOCATED, "bulk copy")
    if (shared.notes[places] & PENDING).any():
        raise PtxError("a bulk copy to where another is still under way")
    if g.mode.races:
        shared.note_access(pieces, every, 16, np.full(pieces.size, g.warps[lane]), True)
        shared.settled(places)
    shared.proxies.check(np.array([barrier]), 8, "bulk copy at an mbarrier")
    shared.proxies.check(pieces, 16, "bulk copy")
    shared.proxies.filled(places)
    source = tensor.source(corner)
    inside = source >= 0
    reads = source[inside] - GLOBAL
    memory.check(reads, np.ones(reads.size, bool), np.zeros(reads.size, np.int64), memory.bytes.size, 1, ALLOCATED | WRITTEN, "bulk copy")
    data = np.zeros(source.size, np.uint8)
    data[inside] = memory.bytes[reads]
    shared.bytes[places], shared.notes[places] = 0xFF, ALLOCATED | PENDING
    g.machine.barriers.at(barrier, "a bulk copy").transfers.append(Transfer(places, data))
    if g.mode.counts:
        g.counts.of("global bulk load").add(1, reads.size, np.unique(reads // SECTOR).size * SECTOR, reads.size)
        g.counts.of("shared bulk store").add(1, source.size, source.size // SPAN, source.size // SPAN)
