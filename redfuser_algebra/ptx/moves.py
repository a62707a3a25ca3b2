"""Comparisons, choices, moves, and conversions between types and address spaces."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.lower.standalone.float8 import from_float8, to_float8
from redfuser_algebra.ptx.decode import Decoder, Mask, Step, elementwise, instruction
from redfuser_algebra.ptx.memory import BASES
from redfuser_algebra.ptx.text import NUMPY_TYPES, Instruction, PtxError, elements

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group


_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
            "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


@instruction("setp", "set")
def compare(i: Instruction, d: Decoder) -> Step:
    """Comparisons of floats are false for NaN, those that end in u are true for it."""
    function = _comparison(i.forms[0], i.type.startswith("f") or i.type == "bf16")
    combine = next((_COMBINE[form] for form in i.forms[1:] if form in _COMBINE), None)
    if i.name == "set" or "|" in i.operands[0]:
        raise PtxError(f"the instruction {i.text!r} is not known", "enter it in redfuser_algebra.ptx.arithmetic")
    if combine is None:
        return elementwise(i, d, function, writes="pred")
    return elementwise(i, d, lambda a, b, c: combine(function(a, b), c), [i.type, i.type, "pred"], "pred")


def _comparison(name: str, real: bool) -> Callable:
    unordered = lambda a, b: (a != a) | (b != b)
    if name in ("num", "nan"):
        return unordered if name == "nan" else lambda a, b: ~unordered(a, b)
    if real and name.endswith("u"):
        plain = _COMPARE[name[:-1]]
        return lambda a, b: plain(a, b) | unordered(a, b)
    return (lambda a, b: (a != b) & ~unordered(a, b)) if real and name == "ne" else _COMPARE[name]


@instruction("selp")
def select(i: Instruction, d: Decoder) -> Step:
    """The first value where the predicate holds, the second elsewhere."""
    return elementwise(i, d, lambda a, b, p: np.where(p, a, b), [i.type, i.type, "pred"])


@instruction("testp")
def property_of(i: Instruction, d: Decoder) -> Step:
    """Whether a float is finite, infinite, a number, or none."""
    tests = {"finite": np.isfinite, "infinite": np.isinf, "number": lambda x: ~np.isnan(x), "notanumber": np.isnan}
    return elementwise(i, d, tests[i.forms[0]], writes="pred")


@instruction("mov")
def move(i: Instruction, d: Decoder) -> Step:
    """A value as it is, or a word made of its parts, or taken apart."""
    into, source = i.operands
    if not into.startswith("{") and not source.startswith("{"):
        return elementwise(i, d, lambda a: a)
    width = 8 * np.dtype(NUMPY_TYPES[i.type]).itemsize
    names = elements(into if into.startswith("{") else source)
    bits = width // len(names)
    whole = np.dtype(f"u{width // 8}").type
    if into.startswith("{"):
        read, writes = d.read(source, f"b{width}"), d.targets(into, f"b{bits}")

        def apart(g: Group, mask: Mask) -> None:
            value = read(g)
            for place, write in enumerate(writes):
                write(g, mask, value >> whole(place * bits))

        return apart
    reads, write_ = d.vector(source, f"b{bits}"), d.write(into, f"b{width}")
    return lambda g, mask: write_(g, mask, sum(read(g).astype(whole) << whole(place * bits) for place, read in enumerate(reads)))


FLOAT8 = {"e4m3x2": "float8_e4m3", "e5m2x2": "float8_e5m2"}
"""Pairs of floats of eight bits."""

_ROUND = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}


@instruction("cvt")
def convert(i: Instruction, d: Decoder) -> Step:
    """Between types; pairs of floats of 16 and 8 bits are packed with the first operand above."""
    to, source = i.types[0], i.types[-1]
    if to in FLOAT8:
        return elementwise(i, d, lambda high, low: _eight(high, to).astype(np.uint16) << np.uint16(8) | _eight(low, to), "f32", "b16")
    if source in FLOAT8:
        return elementwise(i, d, lambda pair: _halves(pair, source), "b16", "b32")
    if to in ("f16x2", "bf16x2"):
        pack = to_bfloat16 if to == "bf16x2" else lambda x: x.astype(np.float16).view(np.uint16)
        return elementwise(i, d, lambda high, low: pack(high).astype(np.uint32) << np.uint32(16) | pack(low), "f32", "b32")
    if to == "bf16":
        return elementwise(i, d, to_bfloat16, source, "b16")
    if source == "bf16":
        return elementwise(i, d, lambda bits: from_bfloat16(bits).astype(NUMPY_TYPES[to]), "b16", to)
    rounding = next((form for form in i.forms if form[:2] in _ROUND and form[0] == "r"), "")
    return elementwise(i, d, _conversion(to, source, rounding, "sat" in i.forms), source, to)


def _eight(x: np.ndarray, to: str) -> np.ndarray:
    """.satfinite, without which there is no such conversion: what is too large becomes the largest number, infinities too."""
    most = np.float32(448 if to == "e4m3x2" else 57344)
    return to_float8(np.clip(x, -most, most), FLOAT8[to])


def _halves(pair: np.ndarray, source: str) -> np.ndarray:
    """Two numbers of eight bits as two of sixteen, which is exact."""
    parts = [from_float8(pair >> np.uint16(shift) & np.uint16(255), FLOAT8[source]).astype(np.float16).view(np.uint16) for shift in (0, 8)]
    return parts[0].astype(np.uint32) | parts[1].astype(np.uint32) << np.uint32(16)


def _conversion(to: str, source: str, rounding: str, saturates: bool) -> Callable[[np.ndarray], np.ndarray]:
    dtype = np.dtype(NUMPY_TYPES[to])
    if to[0] == "f" and saturates:
        return lambda x: np.clip(x, 0, 1).astype(dtype)
    if source[0] == "f" and (rounding.endswith("i") or to[0] != "f"):
        near = _ROUND[rounding[:2] or "rz"]
        return (lambda x: near(x).astype(dtype)) if to[0] == "f" else lambda x: _clipped(near(x), dtype)
    if saturates:
        return lambda x: np.clip(x, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    return lambda x: x.astype(dtype)


def _clipped(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Whole numbers of floats: what is too large becomes the largest, NaN becomes 0 (of 64 bits, the bit of the sign)."""
    info, x = np.iinfo(dtype), x.astype(np.float64)
    inside = (x >= float(info.min)) & (x < float(info.max) + (dtype.itemsize < 8))
    nothing = 0 if dtype.itemsize < 8 else info.min if dtype.kind == "i" else 1 << 63
    beyond = np.where(np.isnan(x), dtype.type(nothing), np.where(x > 0, dtype.type(info.max), dtype.type(info.min)))
    return np.where(inside, np.where(inside, x, 0).astype(dtype), beyond)


@instruction("cvta")
def convert_address(i: Instruction, d: Decoder) -> Step:
    """Between an address in a state space and a generic one."""
    base = np.uint64(0 if i.space in ("global", "const") else BASES[i.space])
    return elementwise(i, d, (lambda a: a - base) if "to" in i.forms else lambda a: a + base, "u64", "u64")
