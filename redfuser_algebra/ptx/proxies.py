"""Shared memory as two see it: threads, and what works by itself (bulk copies, products of warps).

What a thread writes reaches the others only after that thread's fence.proxy.async (PTX ISA, "Proxies"); here each byte
remembers the warp that has yet to execute one.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.ptx.accesses import LANES
from redfuser_algebra.ptx.decode import Decoder, Mask, Step, instruction
from redfuser_algebra.ptx.text import Instruction, PtxError

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group


class Proxies:
    """The bytes of the blocks that run side by side, each with the warp that wrote it and has not fenced since; 0 for none."""

    def __init__(self, size: int, blocks: int) -> None:
        self.owner = np.zeros((blocks, size), np.uint8)

    def written(self, offsets: np.ndarray, active: np.ndarray, size: int, warps: np.ndarray) -> None:
        """Active threads wrote so many bytes at these places."""
        self.owner.reshape(-1)[offsets[active][:, None] + np.arange(size)] = (warps[active] + 1)[:, None]

    def fenced(self, blocks: np.ndarray, warps: np.ndarray) -> None:
        """These warps of these blocks executed the fence."""
        for block, warp in set(zip(blocks.tolist(), warps.tolist(), strict=True)):
            own = self.owner[block]
            own[own == warp + 1] = 0

    def filled(self, places: np.ndarray) -> None:
        """A bulk copy wrote there."""
        self.owner.reshape(-1)[places] = 0

    def check(self, places: np.ndarray, size: int, what: str) -> None:
        """Raise PtxError where something is not fenced of so many bytes at each place."""
        if self.owner.reshape(-1)[places[:, None] + np.arange(size)].any():
            raise PtxError(f"a {what} that meets what a thread wrote before its fence.proxy.async", "the kernel lacks a fence between proxies")


@instruction("fence.proxy.async")
def fence(i: Instruction, d: Decoder) -> Step:
    """What these threads wrote is seen by bulk copies and products from now on."""
    def step(g: Group, mask: Mask) -> None:
        lanes = slice(None, None, LANES) if mask is None else np.flatnonzero(mask)
        g.machine.shared.proxies.fenced(g.lanes[lanes] // g.machine.threads, g.warps[lanes])

    return step
