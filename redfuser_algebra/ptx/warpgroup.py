"""What four warps do together: products of matrices that lie in shared memory, as descriptors tell.

Each warp computes its own 16 of the 64 rows, so that warps may run one after the other: nothing is handed between them.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16
from redfuser_algebra.lower.standalone.float8 import from_float8
from redfuser_algebra.ptx.decode import Decoder, Mask, Read, Step, instruction
from redfuser_algebra.ptx.in_flight import Sums
from redfuser_algebra.ptx.memory import ALLOCATED, WRITTEN
from redfuser_algebra.ptx.text import Instruction, PtxError, elements
from redfuser_algebra.ptx.warp import LANES, whole_warps

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

SWIZZLES = {0: 0, 1: 7, 2: 3, 3: 1}
"""By the swizzle mode of a descriptor: which of the bits 7 to 9 of an address change its bits 4 to 6."""

WIDE = 64
"""Numbers of 16 bits in a row of the swizzle of 128 bytes."""


@dataclass(frozen=True)
class Descriptor:
    """PTX ISA, "Matrix Descriptor Format": bits 0–13 the address, 16–29 the leading and 32–45 the stride distance, each in units
    of 16 bytes, 49–51 the base offset, 62–63 the swizzle mode."""

    address: int
    leading: int
    stride: int
    base: int
    swizzle: int

    @classmethod
    def read(cls, word: int) -> Descriptor:
        """The fields of a descriptor."""
        return cls((word & 0x3FFF) << 4, (word >> 16 & 0x3FFF) << 4, (word >> 32 & 0x3FFF) << 4, word >> 49 & 7, word >> 62 & 3)

    def places(self, rows: int, turned: bool, size: int = 2) -> np.ndarray:
        """Addresses of a matrix of `rows` rows and 32 bytes of columns, the inner axis, of numbers of `size` bytes; `turned` says
        that rows lie side by side in memory, which is for numbers of 16 bits.

        PTX ISA, "Strides", with the canonical layouts of the swizzle of 128 bytes: eight rows of 128 bytes, the next eight at the
        stride distance; turned, 64 rows side by side, the next 64 at the leading distance.  Raises PtxError for another swizzle.
        """
        if self.swizzle != 1 or self.base:
            raise PtxError("a matrix descriptor with another swizzle than that of 128 bytes, or with a base offset", "only that one is known here")
        row, inner = np.arange(rows)[:, None], np.arange(32 // size)[None, :]
        if turned:
            place = row // WIDE * self.leading + row % WIDE * 2 + inner // 8 * self.stride + inner % 8 * 128
        else:
            place = row // 8 * self.stride + row % 8 * 128 + inner * size
        place = place + self.address
        return place ^ (place >> 7 & SWIZZLES[self.swizzle]) << 4


_KINDS = {1: ("e4m3", "e5m2"), 2: ("f16", "bf16")}
"""Kinds of factors by their bytes."""


def _numbers(words: np.ndarray, kind: str) -> np.ndarray:
    """Factors, out of their bits."""
    if kind in _KINDS[1]:
        return from_float8(words, f"float8_{kind}")
    return words.view(np.float16).astype(np.float32) if kind == "f16" else from_bfloat16(words)


@instruction("wgmma.mma_async")
def multiply_shared(i: Instruction, d: Decoder) -> Step:
    """wgmma.mma_async with float32 sums, of 16-bit factors m64nNk16, of 8-bit ones, here from shared memory alone, m64nNk32.

    Fragments as in PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"; sums have the same in both.
    """
    shape = next(form for form in i.forms if form.startswith("m64n"))
    columns, kinds, size = int(shape[4:].partition("k")[0]), i.types[1:3], 1 if shape.endswith("k32") else 2
    fragments = i.operands[1].startswith("{")
    if i.types[0] != "f32" or not set(kinds) <= {*_KINDS[size]} or size == 1 and fragments:
        raise PtxError(f"the matrix product {i.text!r} is not known", "enter its shape and types in redfuser_algebra.ptx.warpgroup")
    sums = Sums(tuple(elements(i.operands[0])), d.vector(i.operands[0], "f32"), d.targets(i.operands[0], "f32"))
    left = d.vector(i.operands[1], "b32") if fragments else [d.read(i.operands[1], "b64")]
    right, adds = d.read(i.operands[2], "b64"), d.read(i.operands[3], "pred")
    if [int(each) for each in i.operands[4:6]] != [1, 1]:
        raise PtxError("a wgmma that negates", "give 1 for both signs")
    turned = [int(each) for each in i.operands[6:]]
    turned_left, turned_right = (0, 0) if size == 1 else (0, turned[0]) if fragments else turned

    def tile(g: Group, word: int, rows: int, turned: int, start: int, kind: str) -> np.ndarray:
        """A matrix from the shared memory of the block that the warp of these lanes belongs to."""
        memory, base = g.machine.shared, int(g.shared_base[start])
        places = Descriptor.read(word).places(rows, bool(turned), size) + base
        pieces = np.unique(places.reshape(-1) // 16 * 16)
        every, own = np.ones(len(pieces), bool), np.full(len(pieces), g.warps[start])
        memory.check(pieces, every, np.full(len(pieces), base), memory.size, 16, ALLOCATED | WRITTEN, "wgmma")
        memory.proxies.check(pieces, 16, "wgmma")
        if g.mode.races:
            memory.note_access(pieces, every, 16, own, False)
        return _numbers(memory.view(f"u{size}")[places // size], kind)

    def product(g: Group, start: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """What a warp's product comes to, a row for each of its lanes; a and b are descriptors."""
        lanes, warp = slice(start, start + LANES), int(g.warps[start]) % 4
        if fragments:
            halves = _numbers(np.ascontiguousarray(_together(g, left)[lanes]).view(np.uint16), kinds[0])
            rows = halves.reshape(8, 4, 2, 2, 2).transpose(3, 0, 2, 1, 4).reshape(16, 16)
        else:
            rows = tile(g, int(a[start, 0]), 64, turned_left, start, kinds[0])[16 * warp:16 * warp + 16]
        found = rows @ tile(g, int(b[start, 0]), columns, turned_right, start, kinds[1]).T
        return found.reshape(2, 8, columns // 8, 4, 2).transpose(1, 3, 2, 0, 4).reshape(LANES, -1)

    def step(g: Group, mask: Mask) -> None:
        whole_warps(mask, "wgmma")
        a, b = _together(g, [] if fragments else left), _together(g, [right])
        for start in range(0, g.count, LANES):
            if mask is None or mask[start]:
                lanes = slice(start, start + LANES)
                if len(np.unique(b[lanes])) > 1 or not fragments and len(np.unique(a[lanes])) > 1:
                    raise PtxError("lanes of a warp give wgmma different descriptors")
                product(g, start, a, b)  # what it reads has to be there from now on
        g.flight.start(g, mask, sums, np.broadcast_to(adds(g), (g.count,)).copy(), lambda start: product(g, start, a, b))

    return step


def _together(g: Group, reads: Sequence[Read]) -> np.ndarray:
    """The values of several operands: a row for each thread."""
    return np.stack([np.broadcast_to(read(g), (g.count,)) for read in reads], -1) if reads else np.zeros((g.count, 0))
