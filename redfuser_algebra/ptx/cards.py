"""Graphics cards: what a multiprocessor holds and does per cycle, and how long a kernel takes at least.

Figures are the makers': NVIDIA's white papers on A100, H100 and Ada, its data sheets of H200 and B200, and the tables of
compute capabilities in the CUDA programming guide.  Estimates are no measurements.
"""
from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from redfuser_algebra.language.errors import OperatorError


@dataclass(frozen=True)
class Card:
    """A card: multiprocessors, clock in GHz, memory in GB/s, and per multiprocessor warps, blocks, bytes of shared memory, and
    results per cycle of float32, float64 and special functions, and operations per cycle of tensor cores (16-bit factors,
    float32 sums, dense).  `source` says where the figures are from."""

    name: str
    processors: int
    clock: float
    bandwidth: float
    warps: int
    blocks: int
    shared: int
    single: int
    double: int
    tensor: int
    source: str
    special: int = 16

    @property
    def peaks(self) -> dict[str, float]:
        """Operations per second, in units of 1e9, of each kind of arithmetic; a fused multiplication and addition is two."""
        return {name: self.processors * self.clock * each for name, each in
                (("float32", 2 * self.single), ("float64", 2 * self.double), ("tensor cores", self.tensor))}


CARDS = {card.name: card for card in (
    Card("A100", 108, 1.41, 2039, 64, 32, 164 * 1024, 64, 32, 2048, "NVIDIA A100 white paper; A100 80GB SXM data sheet: 312 TFLOP/s"),
    Card("H100", 132, 1.83, 3350, 64, 32, 228 * 1024, 128, 64, 4096, "NVIDIA H100 white paper; H100 SXM data sheet: 989 TFLOP/s"),
    Card("H200", 132, 1.83, 4800, 64, 32, 228 * 1024, 128, 64, 4096, "NVIDIA H200 SXM data sheet: 989 TFLOP/s, 4.8 TB/s"),
    Card("B200", 148, 1.85, 8000, 64, 32, 228 * 1024, 128, 64, 8192, "NVIDIA HGX B200 data sheet: 2.25 PFLOP/s dense, 8 TB/s"),
    Card("RTX 4090", 128, 2.52, 1008, 48, 24, 100 * 1024, 128, 2, 512, "NVIDIA Ada white paper: 165 TFLOP/s with float32 sums"),
)}

REGISTERS, REGISTER_STEP, BLOCK_RESERVE = 65536, 8, 1024
"""Registers per multiprocessor, the step in which a thread gets them, and the shared memory that each block costs besides."""

ISSUED = 4
"""Warps that a multiprocessor issues an instruction of per cycle."""

SPECIAL = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh")
FREE = ("mov", "bra", "ret", "cvta")
"""PTX instructions that cost no machine instruction, or none to speak of."""
_PAIRED = ("add", "sub", "neg", "and", "or", "xor", "not", "shl", "shr", "min", "max", "setp", "selp", "mul", "mad")
"""Instructions that take two of the machine for whole numbers of 64 bits."""
_MOVING, _COMPARING = ("mov", "ld", "st", "selp", "shfl"), ("setp", "cvt")
"""Instructions on floats that take no unit for arithmetic, and those that take one but compute nothing."""


def card_named(name: str) -> Card:
    """The card; raises OperatorError for a name that is not in the table."""
    if name not in CARDS:
        raise OperatorError(f"the card {name!r}", "it is not in the table", f"choose one of {', '.join(CARDS)}")
    return CARDS[name]


@dataclass(frozen=True)
class Occupancy:
    """Blocks of a kernel that a multiprocessor has at once, as each resource limits them, and the part of its warps that are."""

    by_warps: int
    by_registers: int
    by_shared: int
    part: float

    @property
    def limit(self) -> str:
        """The resource that limits."""
        return min(("warps", "registers", "shared memory"), key=lambda name: getattr(self, f"by_{name.split()[0]}"))


def occupancy(card: Card, registers: int, shared: int, threads: int) -> Occupancy:
    """How many blocks of so many threads fit."""
    warps = -(-threads // 32)
    per_warp = -(-registers // REGISTER_STEP) * REGISTER_STEP * 32
    limits = min(card.blocks, card.warps // warps), REGISTERS // per_warp // warps, card.shared // (shared + BLOCK_RESERVE)
    return Occupancy(*limits, min(limits) * warps / card.warps)


@dataclass(frozen=True)
class Estimate:
    """Least microseconds that each resource needs; the largest binds.  `operations` counts those of floats, a fused
    multiplication and addition as two, `bytes` what memory moves."""

    memory: float
    issue: float
    single: float
    double: float
    special: float
    tensor: float
    operations: float
    bytes: float

    @property
    def bound(self) -> str:
        """The resource that binds."""
        return max(("memory", "tensor", "issue", "single", "double", "special"), key=lambda name: getattr(self, name))

    @property
    def time(self) -> float:
        """Microseconds at least."""
        return getattr(self, self.bound)

    @property
    def roofline(self) -> float:
        """The part of the memory bandwidth, or of the tensor cores' rate if that is what binds, that can be reached."""
        return max(self.memory, self.tensor) / self.time


def _issues(name: str, forms: list[str]) -> int:
    """How many machine instructions a PTX instruction becomes: whole numbers of 64 bits are pairs of registers, of which halves
    can be had for nothing; conditions are joined by the comparisons."""
    if name in FREE or name == "ld" and forms[:1] == ["param"] or name == "cvt" and set(forms) == {"u32", "u64"} or forms[-1:] == ["pred"]:
        return 0
    return 2 if name in _PAIRED and forms[-1:] in (["s64"], ["u64"], ["b64"]) or name == "selp" and forms == ["f64"] else 1


def estimate(card: Card, moved: float, warps: Counter[str]) -> Estimate:
    """From bytes moved and executed warp instructions; PTX counts more of these than the machine executes."""
    kinds = Counter()
    for opcode, count in warps.items():
        name, *forms = opcode.split(".")
        kinds["issue"] += count * _issues(name, forms)
        if "mma_async" in forms:  # four warps have one product
            kinds["tensor"] += count * 2 * math.prod(map(int, re.findall(r"\d+", next(form for form in forms if form.startswith("m64"))))) / 4
        elif name == "mma":
            product = count * 2 * math.prod(map(int, re.findall(r"\d+", next(form for form in forms if form.startswith("m1")))))
            kinds["tensor"] += product / 2 if {"e4m3", "e5m2"} & {*forms} else product
        elif name in SPECIAL and "f32" in forms:
            kinds["special"] += count
        elif name not in _MOVING and forms and forms[-1] in ("f32", "f64"):
            kinds[forms[-1]] += count
            kinds["operations"] += count * (0 if name in _COMPARING else 2 if name == "fma" else 1)
    cycles = card.processors * card.clock * 1e3
    operations = 32 * (kinds["operations"] + kinds["special"]) + kinds["tensor"]
    return Estimate(moved / (card.bandwidth * 1e3), kinds["issue"] / (ISSUED * cycles), 32 * kinds["f32"] / (card.single * cycles),
                    32 * kinds["f64"] / (card.double * cycles), 32 * kinds["special"] / (card.special * cycles),
                    kinds["tensor"] / (card.tensor * cycles), operations, moved)
