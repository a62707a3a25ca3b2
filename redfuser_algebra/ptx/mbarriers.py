"""Barriers in shared memory that count arrivals and bytes of bulk copies (PTX ISA, "mbarrier").

A phase is over when all threads that it waits for have arrived and all bytes that they announced have come.  Copies come as
late as they may: at the second attempt to wait for them, so that a kernel that tries once and goes on is found.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.decode import Decoder, Mask, Read, Step, instruction
from redfuser_algebra.ptx.memory import ALLOCATED, WRITTEN, SharedMemory
from redfuser_algebra.ptx.memory_access import reached, touch
from redfuser_algebra.ptx.text import Instruction, PtxError

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

MOST_BYTES = (1 << 20) - 1
"""How many bytes a phase may wait for."""


@dataclass
class Transfer:
    """A bulk copy that is under way: bytes, and where in shared memory they go."""

    places: np.ndarray
    data: np.ndarray

    def arrive(self, shared: SharedMemory) -> int:
        """The data are there; how many bytes.  Raises PtxError where somebody has written meanwhile."""
        if (shared.notes[self.places] & WRITTEN).any():
            raise PtxError("a store to where a bulk copy is under way", "wait for the copy first")
        shared.bytes[self.places] = self.data
        shared.notes[self.places] = ALLOCATED | WRITTEN
        return self.data.size


@dataclass
class Barrier:
    """`missing` of `count` threads have yet to arrive in this phase, and `bytes` to come."""

    count: int
    missing: int
    bytes: int = 0
    phase: int = 0
    tried: bool = False
    transfers: list[Transfer] = field(default_factory=list)

    def arrive(self, announced: int) -> None:
        """A thread arrives, and says how many bytes will come besides."""
        self.bytes += announced
        self.missing -= 1
        if self.missing < 0 or self.bytes > MOST_BYTES:
            raise PtxError("an mbarrier at which more arrive than it waits for, or more bytes than it counts")


class Barriers:
    """The barriers of the blocks that run side by side, by place.  `moved` counts what happened to them, so that a standstill is seen."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared, self.known, self.moved = shared, dict[int, Barrier](), 0

    def at(self, place: int, what: str) -> Barrier:
        """The barrier at a place.  Raises PtxError where there is none, or one that other proxies do not see."""
        if place not in self.known:
            raise PtxError(f"{what} of an mbarrier that no thread has initialised", "initialise it, and let all threads of the block wait after that")
        return self.known[place]

    def make(self, place: int, count: int) -> None:
        """A barrier for so many arrivals."""
        if place in self.known:
            raise PtxError("an mbarrier that is initialised while it is one")
        self.known[place], self.moved = Barrier(count, count), self.moved + 1

    def arrive(self, place: int, announced: int) -> None:
        """A thread arrives."""
        self.at(place, "an arrival").arrive(announced)
        self.moved += 1

    def over(self, place: int, parity: int) -> bool:
        """Whether the phase of this parity is over; an attempt may let copies come."""
        barrier = self.at(place, "a wait")
        if parity != barrier.phase & 1:
            return True
        if barrier.missing:
            return False
        if not barrier.tried:
            barrier.tried, self.moved = True, self.moved + 1
            return False
        if barrier.transfers:
            barrier.bytes -= sum(transfer.arrive(self.shared) for transfer in barrier.transfers)
            barrier.transfers, self.moved = [], self.moved + 1
        if barrier.bytes < 0:
            raise PtxError("an mbarrier at which more bytes came than were announced")
        if barrier.bytes:
            return False
        barrier.phase, barrier.missing, barrier.tried, self.moved = barrier.phase + 1, barrier.count, False, self.moved + 1
        return True

    def check_settled(self) -> None:
        """Raise PtxError if a copy is still under way when all threads are done."""
        if any(barrier.transfers for barrier in self.known.values()):
            raise PtxError("a bulk copy that nobody waited for", "the kernel lacks a wait")


def _places(g: Group, address: Read, mask: Mask, stores: bool, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Active threads, and where in shared memory the barrier of each is."""
    shared, offsets = reached(g, "shared", address(g), mask)
    active = np.flatnonzero(g.every if mask is None else mask)
    if stores:
        touch(g, shared, offsets, 8, mask, True, what)
    elif (offsets[active] % 8).any():
        raise PtxError(f"a misaligned {what}")
    return active, offsets


@instruction("mbarrier.init")
def initialise(i: Instruction, d: Decoder) -> Step:
    """A barrier for so many arrivals in each phase."""
    address, count = d.address(i.operands[0]), d.read(i.operands[1], "u32")

    def step(g: Group, mask: Mask) -> None:
        counts = np.broadcast_to(count(g), (g.count,))
        active, offsets = _places(g, address, mask, True, "mbarrier")
        for lane in active:
            g.machine.barriers.make(int(offsets[lane]), int(counts[lane]))

    return step


@instruction("mbarrier.arrive", "mbarrier.arrive.expect_tx")
def arrive(i: Instruction, d: Decoder) -> Step:
    """An arrival of each thread, with bytes announced or none; the state it gives is not known here."""
    if i.operands[0] != "_" or "noComplete" in i.forms or "cluster" in i.forms:
        raise PtxError(f"the instruction {i.text!r} is not known", "enter it in redfuser_algebra.ptx.mbarriers")
    address = d.address(i.operands[1])
    announced = d.read(i.operands[2], "u32") if "expect_tx" in i.forms else lambda g: np.uint32(0)

    def step(g: Group, mask: Mask) -> None:
        many = np.broadcast_to(announced(g), (g.count,))
        active, offsets = _places(g, address, mask, False, "mbarrier")
        for lane in active:
            g.machine.barriers.arrive(int(offsets[lane]), int(many[lane]))

    return step


@instruction("mbarrier.try_wait.parity")
def try_wait(i: Instruction, d: Decoder) -> Step:
    """Whether the phase of a parity is over; threads of which it is not step aside until the others have gone as far as they can."""
    write, address, parity = d.write(i.operands[0], "pred"), d.address(i.operands[1]), d.read(i.operands[2], "u32")

    def step(g: Group, mask: Mask) -> None:
        asked = np.broadcast_to(parity(g), (g.count,))
        active, offsets = _places(g, address, mask, False, "mbarrier")
        wanted = list(zip(offsets[active].tolist(), asked[active].tolist(), strict=True))
        told = {each: g.machine.barriers.over(*each) for each in dict.fromkeys(wanted)}
        over = np.zeros(g.count, bool)
        over[active] = [told[each] for each in wanted]
        write(g, mask, over)
        g.step_aside(active[~over[active]])

    return step
