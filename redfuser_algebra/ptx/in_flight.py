"""Products of warps that are under way: nothing of them can be had before their group has been waited for.

A product reads its factors, in shared memory and in registers, as late as it may: at that wait.  Until then its sums are no numbers
in the registers, and stay there untouched; another product may add to them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.accesses import LANES
from redfuser_algebra.ptx.decode import Decoder, Mask, Read, Step, Write, instruction
from redfuser_algebra.ptx.text import Instruction, Kernel, PtxError, elements
from redfuser_algebra.ptx.warp import whole_warps

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

POISON = np.uint32(0xFFFFFFFF).view(np.float32)


@dataclass(frozen=True)
class Sums:
    """The registers that a product adds to, by name, with what reads and writes each."""

    names: tuple[str, ...]
    reads: Sequence[Read]
    writes: Sequence[Write]

    def values(self, g: Group) -> np.ndarray:
        """What is in them: a row for each thread."""
        return np.stack([np.broadcast_to(read(g), (g.count,)) for read in self.reads], -1)


@dataclass
class _Product:
    """One product: the threads in which it is still under way, their group, whether it adds, and how a warp's numbers are found."""

    sums: Sums
    open: np.ndarray
    group: np.ndarray
    adds: np.ndarray
    compute: Callable[[int], np.ndarray]


class Flight:
    """The products of threads that step side by side, in order, and the sums of those under way."""

    def __init__(self, count: int) -> None:
        self.products: list[_Product] = []
        self.held: dict[tuple[str, ...], np.ndarray] = {}
        self.groups = np.zeros(count, np.int32)

    def start(self, g: Group, mask: Mask, sums: Sums, adds: np.ndarray, compute: Callable[[int], np.ndarray]) -> None:
        """A product begins; `compute` gives the numbers of the warp that begins with a thread."""
        there = np.ones(g.count, bool) if mask is None else mask.copy()
        under, names = np.zeros(g.count, bool), {*sums.names}
        for other in self.products:
            if other.sums.names == sums.names:
                under |= other.open
            elif (other.open & there).any() and names & {*other.sums.names}:
                raise PtxError("a product that adds to registers of another one that is under way")
        self._untouched(g, sums, there & under)
        values = self.held.setdefault(sums.names, np.zeros((g.count, len(sums.names)), np.float32))
        fresh = there & ~under
        values[fresh] = sums.values(g)[fresh]
        for write in sums.writes:
            write(g, there, np.broadcast_to(POISON, (g.count,)))
        self.products.append(_Product(sums, there, self.groups.copy(), adds, compute))

    def wait(self, g: Group, mask: Mask, left: int) -> None:
        """Let the products of all but the last `left` groups end."""
        ended: dict[tuple[str, ...], tuple[Sums, np.ndarray]] = {}
        for each in self.products:
            done = each.open & (each.group < self.groups - left) & (True if mask is None else mask)
            for start in np.flatnonzero(done)[::LANES]:
                lanes, held = slice(start, start + LANES), self.held[each.sums.names]
                held[lanes] = held[lanes] * each.adds[lanes, None] + each.compute(int(start))
            each.open = each.open & ~done
            before = ended.get(each.sums.names, (each.sums, np.zeros(g.count, bool)))[1]
            ended[each.sums.names] = each.sums, before | done
        self.products = [each for each in self.products if each.open.any()]
        for sums, done in ended.values():
            for each in self.products:
                done = done & ~each.open if each.sums.names == sums.names else done
            self._untouched(g, sums, done)
            for place, write in enumerate(sums.writes):
                write(g, done, self.held[sums.names][:, place])

    def _untouched(self, g: Group, sums: Sums, where: np.ndarray) -> None:
        if where.any() and (sums.values(g)[where].view(np.uint32) != POISON.view(np.uint32)).any():
            raise PtxError("a register that is written while a product adds to it", "wait for the product first")

    def check_settled(self) -> None:
        """Raise PtxError if a product is still under way when all threads are done."""
        if self.products:
            raise PtxError("a matrix product that nobody waited for", "the kernel lacks a wait")


@instruction("wgmma.fence")
def fence(i: Instruction, d: Decoder) -> Step:
    """Registers are in order here; that there is a fence is seen in the text, by `check_fences`."""
    return lambda g, mask: whole_warps(mask, "wgmma.fence")


@instruction("wgmma.commit_group")
def commit(i: Instruction, d: Decoder) -> Step:
    """The products since the last one are a group."""
    def step(g: Group, mask: Mask) -> None:
        whole_warps(mask, "wgmma.commit_group")
        g.flight.groups[slice(None) if mask is None else mask] += 1

    return step


@instruction("wgmma.wait_group")
def wait(i: Instruction, d: Decoder) -> Step:
    """All but the last groups have ended."""
    left = int(i.operands[0])

    def step(g: Group, mask: Mask) -> None:
        whole_warps(mask, "wgmma.wait_group")
        g.flight.wait(g, mask, left)

    return step


def check_fences(kernel: Kernel) -> Kernel:
    """The kernel.  Raises PtxError unless in each basic block a wgmma.fence stands between what writes a register and the products
    that it is given to (PTX ISA, "wgmma.fence"); sums that products alone write need none between them."""
    for block in kernel.blocks:
        fenced, written = False, set[str]()
        for i in block:
            if i.name == "wgmma" and "mma_async" in i.forms:
                used = {*elements(i.operands[0]), *(elements(i.operands[1]) if i.operands[1].startswith("{") else ())}
                if not fenced or used & written:
                    raise PtxError("a product whose registers are written after the last wgmma.fence, or without any", "the kernel lacks a wgmma.fence")
            elif i.name == "wgmma":
                fenced, written = fenced or "fence" in i.forms, set() if "fence" in i.forms else written
            elif i.operands:
                written |= {*elements(i.operands[0])}
    return kernel
