"""Memory of a simulated GPU: bytes, which of them may be touched, which hold something, and who touched them.

Every access is checked: its alignment, that it lies inside an array, that what it reads has been written, and, in
shared memory, that no other warp has touched it in a conflicting way since the last barrier.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.accesses import MISALIGNED, OUTSIDE, collision, fast, fault, passes, sectors
from redfuser_algebra.ptx.text import PtxError

if TYPE_CHECKING:
    from redfuser_algebra.ptx.proxies import Proxies

GLOBAL, SHARED, LOCAL = 0x7F << 40, 0x7E << 40, 0x7D << 40
"""Where the windows of the state spaces begin among generic addresses."""

WINDOWS = {GLOBAL >> 40: "global", SHARED >> 40: "shared", LOCAL >> 40: "local"}
BASES = {"global": GLOBAL, "const": GLOBAL, "shared": SHARED, "local": LOCAL}

ALLOCATED, WRITTEN, PENDING = 1, 2, 4
"""What is known of a byte: it belongs to an array; it holds a value; an asynchronous copy to it is under way."""

GUARD = 256
"""Bytes between two arrays, so that a step over an edge is seen."""


class Memory:
    """Bytes with notes on each of them."""

    def __init__(self, size: int, space: str, fill: int = 0) -> None:
        self.space = space
        self.bytes = np.full(size, fill, np.uint8)
        self.notes = np.zeros(size, np.uint8)
        self.views: dict[tuple[str, int], np.ndarray] = {}

    def view(self, dtype: str, many: int = 0) -> np.ndarray:
        """All bytes as numbers of a type, or as rows of so many, of which the last may be missing."""
        if (dtype, many) not in self.views:
            row = max(many, 1) * np.dtype(dtype).itemsize
            values = self.bytes[:self.bytes.size // row * row].view(dtype)
            self.views[dtype, many] = values.reshape(-1, many) if many else values
        return self.views[dtype, many]

    def check(self, offsets: np.ndarray, active: np.ndarray, base: np.ndarray, span: int, size: int, wanted: int, what: str, marked: int = 0) -> None:
        """Raise PtxError unless the accesses of active threads lie in the `span` bytes behind their bases and have the notes `wanted`;
        their bytes get the note `marked`."""
        wrong = fast(fault)(self.notes, offsets, active, base, span, size, wanted, marked)
        if wrong == MISALIGNED:
            raise PtxError(f"a misaligned {what} of {size} bytes in {self.space} memory")
        if wrong == OUTSIDE:
            raise PtxError(f"an out-of-bounds {what} of {size} bytes in {self.space} memory")
        if wrong:
            self._complain(offsets[active], size, what)

    def _complain(self, offsets: np.ndarray, size: int, what: str) -> None:
        notes = self.notes[offsets[:, None] + np.arange(size)]
        if not (notes & ALLOCATED).all():
            raise PtxError(f"an out-of-bounds {what} of {size} bytes in {self.space} memory")
        if (notes & PENDING).any():
            raise PtxError(f"a {what} in {self.space} memory where an asynchronous copy is still under way")
        raise PtxError(f"a {what} of {size} bytes in {self.space} memory that nothing has written")


@dataclass(frozen=True)
class Window:
    """What threads see of a memory: `shift` takes an address to an offset, and each may touch `span` bytes from its base on."""

    memory: Memory
    shift: np.ndarray | int
    base: np.ndarray
    span: int


class GlobalMemory(Memory):
    """Arrays one after the other with guards between them."""

    def __init__(self, size: int = 1 << 24) -> None:
        super().__init__(size, "global")
        self.top = GUARD

    def place(self, array: np.ndarray, written: bool = True, shift: int = 0) -> int:
        """Copy an array in; its address.  `shift` moves it off the 256-byte grid; unwritten ones may not be read."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start = self.top + shift
        if start + raw.size + GUARD > self.bytes.size:
            self._grow(start + raw.size + GUARD)
        self.bytes[start:start + raw.size] = raw
        self.notes[start:start + raw.size] = ALLOCATED | (WRITTEN if written else 0)
        self.top = -(-(start + raw.size) // GUARD) * GUARD + GUARD
        return GLOBAL + start

    def _grow(self, size: int) -> None:
        more = np.zeros(max(size, 2 * self.bytes.size) // GUARD * GUARD + GUARD - self.bytes.size, np.uint8)
        self.bytes, self.notes, self.views = np.concatenate([self.bytes, more]), np.concatenate([self.notes, more]), {}

    def rewrite(self, address: int, array: np.ndarray) -> None:
        """Other numbers in the place of an array."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.bytes[address - GLOBAL:][:raw.size] = raw

    def array(self, address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """What lies at an address.  Raises PtxError if some of it was never written."""
        start, count = address - GLOBAL, int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not (self.notes[start:start + count] & WRITTEN).all():
            raise PtxError("the kernel left part of an output unwritten")
        return self.bytes[start:start + count].copy().view(dtype).reshape(shape)


class SharedMemory(Memory):
    """The shared memory of the blocks that run side by side, `size` bytes each; `proxies` where more than threads read it."""

    def __init__(self, size: int, blocks: int) -> None:
        super().__init__(size * blocks, "shared", fill=0xFF)
        self.size = size
        self.notes[:] = ALLOCATED
        self.writer = np.zeros(size * blocks, np.uint8)
        self.reader = np.zeros(size * blocks, np.uint8)
        self.proxies: Proxies | None = None

    def note_access(self, offsets: np.ndarray, active: np.ndarray, size: int, warps: np.ndarray, stores: bool) -> None:
        """Remember who touched what; raise PtxError if two warps meet between barriers and one of them stores."""
        if fast(collision)(self.writer, self.reader, offsets, active, size, warps, stores):
            raise PtxError("a race in shared memory: two warps touch the same place, one stores, and no barrier is between",
                           "the kernel lacks a barrier")

    def forget(self) -> None:
        """A barrier of all blocks: what they touched before it is settled."""
        self.settled(slice(None))

    def settled(self, places: slice | np.ndarray) -> None:
        """Whoever touched these bytes is forgotten."""
        self.writer[places] = 0
        self.reader[places] = 0


@dataclass
class Traffic:
    """Counts of accesses of one kind: requests by warps, bytes asked for, and bytes or passes that the hardware needs.

    For global memory `moved` is in bytes of 32-byte sectors; for shared memory it is in passes over the 32 banks, of
    which `least` would do without conflicts.
    """

    requests: int = 0
    bytes: int = 0
    moved: int = 0
    least: int = 0

    def add(self, requests: int, asked: int, moved: int, least: int) -> None:
        """Add an access of some warps."""
        self.requests, self.bytes, self.moved, self.least = self.requests + requests, self.bytes + asked, self.moved + moved, self.least + least


_PER_PASS = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}
"""Threads that one pass over the banks serves, by the bytes that each asks for."""


def count_sectors(traffic: Traffic, offsets: np.ndarray, active: np.ndarray, size: int, lanes: np.ndarray) -> None:
    """Add the distinct sectors that each warp's access touches."""
    requests, asked, moved = fast(sectors)(offsets, active, size, lanes)
    traffic.add(requests, asked, moved, asked)


def count_passes(traffic: Traffic, relative: np.ndarray, active: np.ndarray, size: int, lanes: np.ndarray) -> None:
    """Add the passes over the banks that each group of threads needs: the most distinct words in one bank."""
    traffic.add(*fast(passes)(relative, active, size, lanes, _PER_PASS[size]))
