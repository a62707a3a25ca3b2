"""Graphics cards: what a multiprocessor holds and does per cycle, and how long a kernel takes at least.

Figures are the makers': NVIDIA's white papers on A100, H100 and Ada, its data sheets of H200 and B200, and the tables of
compute capabilities in the CUDA programming guide.  Estimates are no measurements.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from redfuser_algebra.language.errors import OperatorError


@dataclass(frozen=True)
class Card:
    """A card: multiprocessors, clock in GHz, memory in GB/s, and per multiprocessor warps, blocks, bytes of shared memory, and
    results per cycle of float32, float64 and special functions."""

    name: str
    processors: int
    clock: float
    bandwidth: float
    warps: int
    blocks: int
    shared: int
    single: int
    double: int
    special: int = 16


CARDS = {card.name: card for card in (
    Card("A100", 108, 1.41, 2039, 64, 32, 164 * 1024, 64, 32),
    Card("H100", 132, 1.83, 3350, 64, 32, 228 * 1024, 128, 64),
    Card("H200", 132, 1.83, 4800, 64, 32, 228 * 1024, 128, 64),
    Card("B200", 148, 1.85, 8000, 64, 32, 228 * 1024, 128, 64),
    Card("RTX 4090", 128, 2.52, 1008, 48, 24, 100 * 1024, 128, 2),
)}

REGISTERS, REGISTER_STEP, BLOCK_RESERVE = 65536, 8, 1024
"""Registers per multiprocessor, the step in which a thread gets them, and the shared memory that each block costs besides."""

ISSUED = 4
"""Warps that a multiprocessor issues an instruction of per cycle."""

SPECIAL = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh")
FREE = ("mov", "bra", "ret", "cvta", "ld.param")
"""PTX instructions that cost no machine instruction, or none to speak of."""


def card_named(name: str) -> Card:
    """The card; raises OperatorError for a name that is not in the table."""
    if name not in CARDS:
        raise OperatorError(f"the card {name!r}", "it is not in the table", f"choose one of {', '.join(CARDS)}")
    return CARDS[name]


def occupancy(card: Card, registers: int, shared: int, threads: int) -> float:
    """The part of a multiprocessor's warps that can be there at once."""
    warps = -(-threads // 32)
    per_warp = -(-registers // REGISTER_STEP) * REGISTER_STEP * 32
    blocks = min(card.blocks, card.warps // warps, REGISTERS // per_warp // warps, card.shared // (shared + BLOCK_RESERVE))
    return blocks * warps / card.warps


@dataclass(frozen=True)
class Estimate:
    """Least microseconds that each resource needs; the largest binds."""

    memory: float
    issue: float
    double: float
    special: float

    @property
    def bound(self) -> str:
        """The resource that binds."""
        return max(("memory", "issue", "double", "special"), key=lambda name: getattr(self, name))

    @property
    def roofline(self) -> float:
        """The part of the memory bandwidth that can be reached."""
        return self.memory / getattr(self, self.bound)


def estimate(card: Card, moved: float, warps: Counter[str]) -> Estimate:
    """From bytes moved and executed warp instructions; PTX counts more of these than the machine executes."""
    cycles = card.processors * card.clock * 1e3
    kinds = Counter()
    for opcode, count in warps.items():
        name = opcode.partition(".")[0]
        if name not in FREE and not opcode.startswith("ld.param"):
            kinds["issue"] += count
        if opcode.endswith("f64") and name not in ("mov", "ld", "st", "selp"):
            kinds["double"] += count
        kinds["special"] += count if name in SPECIAL and "f32" in opcode else 0
    return Estimate(moved / (card.bandwidth * 1e3), kinds["issue"] / (ISSUED * cycles), 32 * kinds["double"] / (card.double * cycles),
                    32 * kinds["special"] / (card.special * cycles))
