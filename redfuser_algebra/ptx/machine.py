"""Execute a kernel: many threads side by side in NumPy arrays, divergence by masks, barriers, warps in random order.

In: a Kernel, memory, a grid and arguments.  Out: what the kernel wrote, and counts of what it did.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from redfuser_algebra.ptx import arithmetic, bits, memory_access, moves, tensor_maps, warp, warpgroup  # noqa: F401  (each enters its instructions)
from redfuser_algebra.ptx.accesses import LANES
from redfuser_algebra.ptx.decode import Mask, Program
from redfuser_algebra.ptx.in_flight import Flight, check_fences
from redfuser_algebra.ptx.inline import without_calls
from redfuser_algebra.ptx.mbarriers import Barriers
from redfuser_algebra.ptx.memory import ALLOCATED, BASES, GlobalMemory, Memory, SharedMemory, Traffic, Window
from redfuser_algebra.ptx.proxies import Proxies
from redfuser_algebra.ptx.text import NUMPY_TYPES, Instruction, PtxError, parse, uncommented

ENDLESS = 2_000_000
"""Blocks of instructions after which a launch is taken to be endless."""


SIDE_BY_SIDE = 4096
"""Threads that step side by side at most, where that takes fewer than a block: with many more, registers leave the cache."""


@dataclass(frozen=True)
class Mode:
    """How strictly to execute.

    `together`: all warps step side by side, which is fast; otherwise the warps of a block run one at a time, in random order
    between barriers.  `races`: two warps may not touch the same shared place between barriers if one stores.  `rough`: fast
    approximations err as far as their documentation allows.  At most `batch` blocks run side by side.
    """

    together: bool = True
    races: bool = True
    rough: bool = False
    counts: bool = True
    batch: int = 64
    seed: int = 0


@dataclass
class Counts:
    """What a launch did: memory traffic by kind, and for each opcode how many warps executed it."""

    traffic: dict[str, Traffic] = field(default_factory=dict)
    warps: Counter[str] = field(default_factory=Counter)

    def of(self, kind: str) -> Traffic:
        """The traffic of a kind such as "global load"."""
        return self.traffic.setdefault(kind, Traffic())

    def joined(self, other: Counts) -> Counts:
        """The counts of two launches together."""
        kinds = {**self.traffic, **other.traffic}
        sums = {kind: Traffic(*(a + b for a, b in zip(astuple(self.of(kind)), astuple(other.of(kind)), strict=True))) for kind in kinds}
        return Counts(sums, self.warps + other.warps)


def read_kernel(ptx: str) -> Program:
    """The first kernel of a module, with what it calls written out, decoded."""
    return Program(check_fences(parse(without_calls(uncommented(ptx)))))


class Machine:
    """A kernel made ready to be launched with its arguments: one number per parameter, in order."""

    def __init__(self, program: Program, memory: GlobalMemory, arguments: Sequence[float], mode: Mode | None = None) -> None:
        self.program, self.kernel, self.memory, self.mode = program, program.kernel, memory, mode or Mode()
        parameters = self.kernel.parameters
        if len(arguments) != len(parameters):
            raise PtxError(f"{len(arguments)} arguments for {len(parameters)} parameters", "give one number per parameter")
        self.arrays = {name: memory.place(np.frombuffer(data, np.uint8)) for name, data in self.kernel.arrays.items()}
        self.arguments = {name: np.dtype(NUMPY_TYPES[type_]).type(value) for (name, type_), value in zip(parameters, arguments, strict=True)}
        self.beside = any(i.name in ("wgmma", "mbarrier") for block in self.kernel.blocks for i in block)
        self.visits, self.counts = np.zeros(len(self.kernel.blocks), np.int64), Counts()
        self.random = np.random.default_rng(self.mode.seed)

    def launch(self, grid: tuple[int, int, int], block: tuple[int, int, int], dynamic: int = 0) -> Counts:
        """Run all blocks of a grid.  Raises PtxError for anything that hardware leaves undefined or refuses."""
        self.grid, self.block, self.dynamic = grid, block, dynamic
        self.threads = int(np.prod(block))
        if self.threads % LANES:
            raise PtxError(f"{self.threads} threads in a block", "launch whole warps")
        blocks = int(np.prod(grid))
        with np.errstate(all="ignore"):
            many = self._at_once()
            for first in range(0, blocks, many):
                self._run(first, min(many, blocks - first))
        for opcodes, warps in zip(self.program.opcodes, self.visits, strict=True):
            self.counts.warps.update({opcode: times * int(warps) for opcode, times in opcodes.items() if warps})
        return self.counts

    def _at_once(self) -> int:
        """How many blocks run side by side: as many as a group has room for."""
        return max(1, min(self.mode.batch, SIDE_BY_SIDE // (self.threads if self.mode.together else LANES)))

    def _run(self, first: int, blocks: int) -> None:
        size = -(-max(self.kernel.shared_bytes + self.dynamic, 16) // 16) * 16
        self.shared = SharedMemory(size, blocks)
        self.shared.proxies = Proxies(size, blocks) if self.beside else None
        self.barriers, self.maps = Barriers(self.shared), set[tuple[int, int]]()
        lanes = blocks * self.threads
        self.local_size = max(self.kernel.local_bytes, 16)
        self.local = Memory(self.local_size * lanes, "local", fill=0xFF)
        self.local.notes[:] = ALLOCATED
        groups = [Group(self, own, first) for own in self._side_by_side(blocks)]
        while True:
            moved = self.barriers.moved
            for place in self.random.permutation(len(groups)):
                groups[place].run()
            if any(group.aside.any() for group in groups):
                self._go_on(groups, moved)
                continue
            if all(group.dead.all() for group in groups):
                break
            self._release(groups, blocks)
        if any(group.pending for group in groups):
            raise PtxError("an asynchronous copy that nobody waited for", "the kernel lacks a wait")
        self.barriers.check_settled()
        for group in groups:
            group.flight.check_settled()

    def _go_on(self, groups: list[Group], moved: int) -> None:
        """Threads that stepped aside try again, if anything has happened to any mbarrier since they did."""
        if self.barriers.moved == moved:
            raise PtxError("threads that wait at an mbarrier for ever", "too few arrive, too few bytes come, or the phase is another")
        for group in groups:
            group.aside[:] = False
            group.unify()

    def _side_by_side(self, blocks: int) -> list[np.ndarray]:
        """The threads of each group: all of them, or one warp of every block, which never meet."""
        lanes = np.arange(blocks * self.threads).reshape(blocks, -1, LANES)
        if self.mode.together:
            return [lanes.reshape(-1)]
        order = np.stack([self.random.permutation(lanes.shape[1]) for _ in range(blocks)])
        return [np.ascontiguousarray(lanes[np.arange(blocks), own].reshape(-1)) for own in order.T]

    def _release(self, groups: list[Group], blocks: int) -> None:
        """All threads wait at a barrier or are done: let them on, if each block's threads wait at the same one."""
        places, waiting = np.empty((blocks, self.threads), np.int32), np.empty((blocks, self.threads), bool)
        for group in groups:
            places.flat[group.lanes], waiting.flat[group.lanes] = group.places(), group.waiting & ~group.dead
        first = np.where(waiting, places, np.iinfo(np.int32).max).min(1)
        if (waiting & (places != first[:, None])).any():
            raise PtxError("threads of a block wait at different barriers", "no barrier may stand under a condition that threads differ in")
        self.shared.forget()
        self._tell(groups, blocks)
        for group in groups:
            group.waiting[:] = False
            group.unify()

    def _tell(self, groups: list[Group], blocks: int) -> None:
        """What the truth values that threads brought to a barrier come to in each block."""
        yes, no = np.zeros((2, blocks * self.threads), bool)
        for group in groups:
            for _, _, there, value in group.votes:
                yes[group.lanes] |= there & value
                no[group.lanes] |= there & ~value
        some, others = (np.repeat(found.reshape(blocks, -1).any(1), self.threads) for found in (yes, no))
        for group in groups:
            for write, all_, there, _ in group.votes:
                write(group, there, (~others if all_ else some)[group.lanes])
            group.votes.clear()


class Group:
    """Threads that step side by side: their registers, and where each of them is.

    `at` is the basic block where all are; None while they are in different ones, and then `place` tells.
    """

    def __init__(self, machine: Machine, lanes: np.ndarray, first_block: int) -> None:
        self.machine, self.mode, self.counts, self.random = machine, machine.mode, machine.counts, machine.random
        self.lanes, count = lanes, len(lanes)
        self.count = count
        self.warps = self.lanes % machine.threads // LANES
        self.place = np.zeros(count, np.int32)
        self.waiting, self.dead = np.zeros(count, bool), np.zeros(count, bool)
        self.at: int | None = 0
        self.committed, self.carry = np.zeros(count, np.int32), np.zeros(count, bool)
        self.pending: list = []
        self.flight, self.aside = Flight(count), np.zeros(count, bool)
        self.leaving: list[int] = []
        self.votes: list = []
        self.shared_base = self.lanes // machine.threads * machine.shared.size
        self.every = np.ones(count, bool)
        self.windows = self._windows()
        program = machine.program
        registers = np.full(program.bytes * count, 255, np.uint8)
        self.slots = [registers[program.places[name] * count:][:np.dtype(dtype).itemsize * count].view(dtype) for name, dtype in program.decoder.slots]
        for (_, dtype), slot in zip(program.decoder.slots, self.slots, strict=True):
            if dtype == "?":
                slot[:] = False
        self.special = self._special(first_block)

    def _windows(self) -> dict[str, Window]:
        """What these threads see of each state space."""
        machine, local_base = self.machine, self.lanes * self.machine.local_size
        whole = Window(machine.memory, -BASES["global"], np.zeros(self.count, np.int64), machine.memory.bytes.size)
        return {"shared": Window(machine.shared, self.shared_base, self.shared_base, machine.shared.size),
                "local": Window(machine.local, local_base, local_base, machine.local_size), "global": whole, "const": whole}

    def _special(self, first_block: int) -> dict[str, np.ndarray]:
        machine = self.machine
        thread, block = self.lanes % machine.threads, first_block + self.lanes // machine.threads
        found = {"laneid": thread % LANES, "warpid": thread // LANES, "dynamic_smem_size": np.array(machine.dynamic)}
        for name, value, sizes in (("tid", thread, machine.block), ("ctaid", block, machine.grid)):
            x, y, _ = sizes
            found |= {f"{name}.x": value % x, f"{name}.y": value // x % y, f"{name}.z": value // (x * y)}
            found |= {f"n{name}.{axis}": np.array(size) for axis, size in zip("xyz", sizes, strict=True)}
        return found

    def run(self) -> None:
        """Step until every thread waits or is done."""
        machine = self.machine
        for _ in range(ENDLESS):
            if self.at is not None:
                if self.waiting[0] or self.dead[0]:
                    return
                here, mask = self.at, None
            else:
                ready = ~(self.waiting | self.dead | self.aside)
                if not ready.any():
                    return
                here = int(self.place[ready].min())
                mask = ready & (self.place == here)
                mask = None if mask.all() else mask
            for step in machine.program.steps[here]:
                step(self, mask)
            if self.mode.counts:
                machine.visits[here] += self.count // LANES if mask is None else int(mask.reshape(-1, LANES).any(1).sum())
            self._leave(here, mask, machine.program.ends[here])
            if self.leaving:
                self._spread()
                self.aside[self.leaving] = True
                self.leaving.clear()
        raise PtxError(f"no end after {ENDLESS} blocks of instructions", "the kernel has an endless loop")

    def _leave(self, here: int, mask: Mask, end: Instruction) -> None:
        """Go on from the end of a basic block."""
        guard = self.machine.program.guards[here]
        if end.name == "bra":
            target = self.machine.kernel.labels[end.operands[0]]
            self._branch(mask, target, here + 1, None if guard is None else guard(self))
        elif end.name in ("ret", "exit"):
            gone = np.ones(self.count, bool) if mask is None else mask.copy()
            gone = gone if guard is None else gone & guard(self)
            self._go(mask, here + 1)
            self._spread()
            self.dead |= gone
        elif end.name in ("bar", "barrier") and "warp" not in end.forms:
            self._go(mask, here + 1)
            self._spread()
            self.waiting |= True if mask is None else mask
        else:
            self._go(mask, here + 1)

    def _branch(self, mask: Mask, target: int, following: int, taken: np.ndarray | None) -> None:
        if taken is None or mask is None and taken.all():
            self._go(mask, target)
        elif mask is None and not taken.any():
            self._go(None, following)
        else:
            self._spread()
            where = slice(None) if mask is None else mask
            self.place[where] = np.where(taken, target, following)[where]
            self.unify()

    def step_aside(self, threads: np.ndarray) -> None:
        """These threads let others go first, from the end of this basic block on."""
        self.leaving.extend(threads.tolist())

    def _go(self, mask: Mask, to: int) -> None:
        if mask is None:
            self.at = to
            return
        self.place[mask] = to
        self.unify()

    def _spread(self) -> None:
        """Keep a place for each thread from here on."""
        if self.at is not None:
            self.place[:] = self.at
            self.at = None

    def places(self) -> np.ndarray:
        """Where each thread is."""
        self._spread()
        return self.place

    def unify(self) -> None:
        """All threads are in one place again?"""
        if not self.aside.any() and not self.waiting.any() and not self.dead.any() and (self.place == self.place[0]).all():
            self.at = int(self.place[0])
