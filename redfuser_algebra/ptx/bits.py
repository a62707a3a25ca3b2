"""Signs, shifts, bit fields, permutations."""
from __future__ import annotations

import numpy as np

from redfuser_algebra.ptx.arithmetic import flushing
from redfuser_algebra.ptx.decode import Decoder, Step, elementwise, instruction
from redfuser_algebra.ptx.text import NUMPY_TYPES, Instruction


@instruction("neg", "abs", "not", "copysign", "popc", "clz", "brev")
def one_operand(i: Instruction, d: Decoder) -> Step:
    """Signs and bits; copysign takes its sign from the first operand."""
    if i.name in ("popc", "clz", "brev"):
        count = {"popc": np.bitwise_count, "clz": _leading_zeros, "brev": _reversed_bits}[i.name]
        return elementwise(i, d, count, writes="b32" if i.name != "brev" else i.type)
    if i.name == "not":
        return elementwise(i, d, np.invert)
    if i.name == "copysign":
        return elementwise(i, d, lambda sign, size: np.copysign(size, sign))
    return elementwise(i, d, flushing(i, np.negative if i.name == "neg" else np.abs))


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    return sum((x >> x.dtype.type(bit) == 0).astype(np.uint32) for bit in range(8 * x.dtype.itemsize))


def _reversed_bits(x: np.ndarray) -> np.ndarray:
    bits = 8 * x.dtype.itemsize
    return sum((x >> x.dtype.type(bit) & x.dtype.type(1)) << x.dtype.type(bits - 1 - bit) for bit in range(bits))


@instruction("shl", "shr")
def shift(i: Instruction, d: Decoder) -> Step:
    """Shifts by the width or more leave nothing (or the sign)."""
    bits = 8 * np.dtype(NUMPY_TYPES[i.type]).itemsize

    def apply(a: np.ndarray, by: np.ndarray) -> np.ndarray:
        if by.ndim == 0 and by < bits:
            return a << by.astype(a.dtype) if i.name == "shl" else a >> by.astype(a.dtype)
        most = np.minimum(by, np.uint32(bits - 1)).astype(a.dtype)
        moved = a << most if i.name == "shl" else a >> most
        return moved if a.dtype.kind == "i" and i.name == "shr" else np.where(by < bits, moved, a.dtype.type(0))

    return elementwise(i, d, apply, [i.type, "u32"])


@instruction("shf")
def funnel_shift(i: Instruction, d: Decoder) -> Step:
    """32 bits out of two words side by side."""
    def apply(low: np.ndarray, high: np.ndarray, by: np.ndarray) -> np.ndarray:
        both = high.astype(np.uint64) << np.uint64(32) | low
        step = (by & np.uint32(31) if "wrap" in i.forms else np.minimum(by, np.uint32(32))).astype(np.uint64)
        return (both >> step if "r" in i.forms else both << step >> np.uint64(32)).astype(np.uint32)

    return elementwise(i, d, apply, "u32", "u32")


@instruction("bfe", "bfi", "prmt", "lop3")
def bit_operation(i: Instruction, d: Decoder) -> Step:
    """Bit fields, byte permutations, and any function of three words."""
    if i.name == "lop3":
        table = int(i.operands[-1], 0)
        return elementwise(i, d, lambda a, b, c, _: _looked_up(table, a, b, c), "b32")
    if i.name == "prmt":
        chosen = int(i.operands[3], 0)
        return elementwise(i, d, lambda a, b, _: _permuted(chosen, a, b), "b32")
    place, length = (int(each) for each in i.operands[-2:])
    type_ = np.dtype(NUMPY_TYPES[i.type]).type
    field = (1 << length) - 1
    if i.name == "bfi":
        kept = type_((1 << 8 * np.dtype(type_).itemsize) - 1 ^ field << place)
        return elementwise(i, d, lambda a, b, *_: (a & type_(field)) << type_(place) | b & kept, [i.type, i.type, "u32", "u32"])
    if i.type.startswith("s"):
        room = 8 * np.dtype(type_).itemsize - length
        return elementwise(i, d, lambda a, *_: a >> type_(place) << type_(room) >> type_(room), [i.type, "u32", "u32"])
    return elementwise(i, d, lambda a, *_: a >> type_(place) & type_(field), [i.type, "u32", "u32"])


def _looked_up(table: int, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    result = np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def _permuted(chosen: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    both, result = b.astype(np.uint64) << np.uint64(32) | a, np.uint64(0)
    for place in range(4):
        nibble = chosen >> 4 * place & 15
        byte = both >> np.uint64(8 * (nibble & 7)) & np.uint64(255)
        byte = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0)) if nibble & 8 else byte
        result = result | byte << np.uint64(8 * place)
    return result.astype(np.uint32)
