"""What the threads of a warp do together: shuffles, votes, matrix fragments, tensor cores; and what does nothing here."""
from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16
from redfuser_algebra.lower.standalone.float8 import from_float8
from redfuser_algebra.ptx.accesses import LANES
from redfuser_algebra.ptx.decode import Decoder, Mask, Step, instruction
from redfuser_algebra.ptx.memory_access import reached, touch
from redfuser_algebra.ptx.text import Instruction, PtxError

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

PRODUCTS = {("m16n8k16", "f16"), ("m16n8k16", "bf16"), ("m16n8k32", "e4m3"), ("m16n8k32", "e5m2"), ("m16n8k32", "e4m3", "e5m2")}
"""The shapes of products, with the types that their factors have."""


def whole_warps(mask: Mask, what: str) -> None:
    """Raise PtxError where only part of a warp takes part."""
    if mask is not None:
        active = mask.reshape(-1, LANES)
        if (active.any(1) != active.all(1)).any():
            raise PtxError(f"{what} with only part of a warp", "no such instruction may stand under a condition that lanes differ in")


@instruction("bra", "ret", "exit", "membar", "fence", "prefetch", "discard", "griddepcontrol")
def nothing(i: Instruction, d: Decoder) -> Step:
    """Control flow is the scheduler's; memory is already in order here."""
    return lambda g, mask: None


@instruction("bar", "barrier")
def barrier(i: Instruction, d: Decoder) -> Step:
    """Waiting is the scheduler's; with .red each thread gives a truth value, and is told what those of its block come to."""
    if "red" not in i.forms:
        return nothing(i, d)
    if "popc" in i.forms:
        raise PtxError(f"the barrier {i.text!r} is not known", "enter it in redfuser_algebra.ptx.warp")
    write, value, every = d.write(i.operands[0], "pred"), d.read(i.operands[-1], "pred"), "and" in i.forms

    def step(g: Group, mask: Mask) -> None:
        there = np.ones(g.count, bool) if mask is None else mask.copy()
        g.votes.append((write, every, there, np.broadcast_to(value(g), (g.count,)).copy()))

    return step


@instruction("shfl")
def shuffle(i: Instruction, d: Decoder) -> Step:
    """shfl.sync: PTX ISA, "shfl.sync", with all lanes taking part."""
    mode = next(form for form in i.forms if form in ("bfly", "down", "up", "idx"))
    target, *predicate = i.operands[0].split("|")
    write = d.write(target, "b32")
    told = d.write(predicate[0], "pred") if predicate else None
    value, by, clamp = (d.read(operand, "b32") for operand in i.operands[1:4])
    sources = cache(lambda count, by, clamp: _sources(mode, count, by, clamp))

    def step(g: Group, mask: Mask) -> None:
        whole_warps(mask, "shfl.sync")
        far, limits = by(g), clamp(g)
        alike = far.ndim == 0 and limits.ndim == 0
        source, valid = sources(g.count, far, limits) if alike else _sources(mode, g.count, far, limits)
        write(g, mask, np.broadcast_to(value(g), (g.count,))[source])
        if told:
            told(g, mask, valid)

    return step


def _sources(mode: str, count: int, by: np.ndarray, clamp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whom each of the threads gets its value from, and whether that is one of its segment."""
    lane = np.arange(count) % LANES
    step, limits = by.astype(np.int64) & 31, clamp.astype(np.int64)
    segment, most = limits >> 8 & 31, limits & 31
    last, first = lane & segment | most & ~segment, lane & segment
    source = {"bfly": lane ^ step, "down": lane + step, "up": lane - step, "idx": first | step & ~segment}[mode]
    valid = source >= last if mode == "up" else source <= last
    return (np.arange(count) & ~31) + np.where(valid, source, lane), valid


@instruction("vote", "activemask")
def vote(i: Instruction, d: Decoder) -> Step:
    """Ballots among the active lanes of each warp."""
    mode = next((form for form in i.forms if form in ("any", "all")), "ballot")
    write = d.write(i.operands[0], "b32" if mode == "ballot" else "pred")
    given = d.read(i.operands[1], "pred") if i.name == "vote" else lambda g: np.True_

    def step(g: Group, mask: Mask) -> None:
        active = np.ones(g.count, bool) if mask is None else mask
        yes = (np.broadcast_to(given(g), (g.count,)) & active).reshape(-1, LANES)
        if mode == "ballot":
            result = (yes.astype(np.uint64) << np.arange(LANES, dtype=np.uint64)).sum(1).astype(np.uint32)
        else:
            result = yes.any(1) if mode == "any" else (yes | ~active.reshape(-1, LANES)).all(1)
        write(g, mask, np.repeat(result, LANES))

    return step


@instruction("ldmatrix")
def load_matrix(i: Instruction, d: Decoder) -> Step:
    """ldmatrix.m8n8.xN[.trans].b16: 8 lanes give the rows of each 8×8 matrix; each lane gets two elements of it."""
    writes, address, transposed = d.targets(i.operands[0], "b32"), d.address(i.operands[1]), "trans" in i.forms

    def step(g: Group, mask: Mask) -> None:
        whole_warps(mask, "ldmatrix")
        shared, offsets = reached(g, "shared", address(g), mask)
        lane = np.arange(g.count) % LANES
        gives = lane < 8 * len(writes)
        touch(g, shared, offsets, 16, gives if mask is None else gives & mask, False, "ldmatrix", "matrix load")
        halves, first = shared.view("u2"), np.arange(g.count) & ~31
        for place, write in enumerate(writes):
            if transposed:
                rows = first + 8 * place + 2 * (lane & 3)
                parts = [halves[offsets[rows + k] // 2 + (lane >> 2)] for k in (0, 1)]
            else:
                rows = first + 8 * place + (lane >> 2)
                parts = [halves[offsets[rows] // 2 + 2 * (lane & 3) + k] for k in (0, 1)]
            write(g, mask, parts[0].astype(np.uint32) | parts[1].astype(np.uint32) << np.uint32(16))

    return step


@instruction("mma")
def multiply_matrices(i: Instruction, d: Decoder) -> Step:
    """mma.sync with float32 sums, of 16-bit factors m16n8k16, of 8-bit ones m16n8k32.

    Fragments as in PTX ISA, "Matrix Fragments for mma.m16n8k16" and "… for mma.m16n8k32": in both a register has the
    neighbours in the inner axis that fit into 32 bits.
    """
    shape, factors = next(form for form in i.forms if form.startswith("m16")), i.types[1:3]
    if (shape, *sorted(set(factors))) not in PRODUCTS or i.types[0] != "f32":
        raise PtxError(f"the matrix product {i.text!r} is not known", "enter its shape and types in redfuser_algebra.ptx.warp")
    writes, many = d.targets(i.operands[0], "f32"), 4 if shape == "m16n8k32" else 2
    a, b = (d.vector(operand, "b32") for operand in i.operands[1:3])
    c = d.vector(i.operands[3], "f32")

    def numbers(g: Group, reads: list, kind: str) -> np.ndarray:
        words = np.stack([np.broadcast_to(read(g), (g.count,)) for read in reads], -1)
        if many == 4:
            return from_float8(words.view(np.uint8), f"float8_{kind}")
        return words.view(np.float16).astype(np.float32) if kind == "f16" else from_bfloat16(words.view(np.uint16))

    def step(g: Group, mask: Mask) -> None:
        whole_warps(mask, "mma.sync")
        warps = g.count // LANES
        left = numbers(g, a, factors[0]).reshape(warps, 8, 4, 2, 2, many).transpose(0, 4, 1, 3, 2, 5).reshape(warps, 16, 8 * many)
        right = numbers(g, b, factors[1]).reshape(warps, 8, 4, 2, many).transpose(0, 3, 2, 4, 1).reshape(warps, 8 * many, 8)
        sums = np.stack([np.broadcast_to(read(g), (g.count,)) for read in c], -1)
        sums = sums.reshape(warps, 8, 4, 2, 2).transpose(0, 3, 1, 2, 4).reshape(warps, 16, 8)
        product = (left @ right + sums).astype(np.float32).reshape(warps, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(g.count, 4)
        for place, write in enumerate(writes):
            write(g, mask, product[:, place])

    return step
