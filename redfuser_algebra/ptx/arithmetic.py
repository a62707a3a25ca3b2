"""Sums, products, quotients, extremes and special functions of each thread's own numbers."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.ptx.accesses import elementwise_fast
from redfuser_algebra.ptx.decode import Decoder, Mask, Step, elementwise, instruction
from redfuser_algebra.ptx.text import NUMPY_TYPES, Instruction

if TYPE_CHECKING:
    from redfuser_algebra.ptx.machine import Group

Unary = Callable[[np.ndarray], np.ndarray]

SMALLEST = np.finfo(np.float32).smallest_normal
"""The smallest float32 number that is not subnormal."""

ROUGHNESS = 2.0**-22
"""Largest relative error of the approximate float32 functions (PTX ISA: ex2, lg2, rcp, rsqrt are within about 2^-22)."""


def _flushed(x: float) -> float:
    """Subnormal float32 numbers become zeros of their sign."""
    return math.copysign(np.float32(0), x) if abs(x) < SMALLEST else x


def _fused(a: float, b: float, c: float) -> float:
    """a·b + c of float32 numbers by way of float64; of float64 numbers in two steps."""
    return np.float64(a) * np.float64(b) + np.float64(c)


def flushing(i: Instruction, function: Callable) -> Callable:
    """A function of float32 numbers; where the instruction says so, subnormals are 0 before and after it."""
    if "ftz" not in i.forms or i.type != "f32":
        return function
    flushed = elementwise_fast(_flushed, "f4(f4)")
    return lambda *given: flushed(function(*map(flushed, given)))


def _fusing(type_: str) -> Callable:
    """What multiplies and adds numbers of a type."""
    if type_ in ("f32", "f64", "bf16", "bf16x2"):
        return elementwise_fast(_fused, "f4(f4,f4,f4)", "f8(f8,f8,f8)")
    return lambda a, b, c: a * b + c


def upper_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of a product of whole numbers of the same width."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        return (a.astype(f"{a.dtype.kind}8") * b.astype(f"{a.dtype.kind}8") >> bits).astype(a.dtype)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    cross = (x >> shift) * (y & low) + ((x & low) * (y & low) >> shift)
    other = (x & low) * (y >> shift) + (cross & low)
    high = (x >> shift) * (y >> shift) + (cross >> shift) + (other >> shift)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(a.dtype)


def _wide(type_: str) -> str:
    return f"{type_[0]}{2 * int(type_[1:])}"


@instruction("mul", "mad")
def multiply(i: Instruction, d: Decoder) -> Step:
    """mul and mad of whole numbers keep the lower half, the upper half (.hi) or all of the product (.wide)."""
    if "cc" in i.forms:
        return with_carry(i, d)
    if i.type.startswith("f"):
        return elementwise(i, d, flushing(i, np.multiply if i.name == "mul" else _fusing(i.type)))
    wide = "wide" in i.forms
    result = _wide(i.type) if wide else i.type
    dtype = np.dtype(NUMPY_TYPES[result])
    product = (lambda a, b: a.astype(dtype) * b.astype(dtype)) if wide else upper_half if "hi" in i.forms else np.multiply
    if i.name == "mul":
        return elementwise(i, d, product, writes=result)
    return elementwise(i, d, lambda a, b, c: product(a, b) + c, [i.type, i.type, result], result)


@instruction("fma")
def fused_multiply_add(i: Instruction, d: Decoder) -> Step:
    """One rounding; of float64 two, as NumPy has no fused operation."""
    if i.type in ("f16x2", "bf16x2", "bf16"):
        return _packed(i, d, _fusing(i.type))
    return elementwise(i, d, flushing(i, _fusing(i.type)))


_BINARY = {"add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@instruction("add", "sub", "and", "or", "xor")
def two_operands(i: Instruction, d: Decoder) -> Step:
    """The operations of `_BINARY`; with .cc they set the carry."""
    if "cc" in i.forms:
        return with_carry(i, d)
    if i.type in ("f16x2", "bf16x2", "bf16"):
        return _packed(i, d, _BINARY[i.name])
    return elementwise(i, d, flushing(i, _BINARY[i.name]))


@instruction("addc", "subc", "madc")
def with_carry(i: Instruction, d: Decoder) -> Step:
    """a + b, a − b or a·b + c; names in c also add the carry, or take the borrow away; .cc sets it."""
    unsigned = f"u{i.type[1:]}"
    reads, write = [d.read(operand, unsigned) for operand in i.operands[1:]], d.write(i.operands[0], unsigned)
    product = upper_half if "hi" in i.forms else np.multiply
    minus = i.name.startswith("sub")

    def step(g: Group, mask: Mask) -> None:
        values = [np.broadcast_to(read(g), (g.count,)) for read in reads]
        first = product(*values[:2]) if i.name.startswith("mad") else values[0]
        total = first - values[-1] if minus else first + values[-1]
        carry = first < values[-1] if minus else total < first
        if i.name.endswith("c"):
            given = g.carry.astype(total.dtype)
            carry |= g.carry & (total == (0 if minus else np.iinfo(total.dtype).max))
            total = total - given if minus else total + given
        if "cc" in i.forms:
            np.copyto(g.carry, carry, where=True if mask is None else mask)
        write(g, mask, total)

    return step


@instruction("min", "max")
def extremes(i: Instruction, d: Decoder) -> Step:
    """A NaN loses, unless .NaN says that it wins; there may be three operands."""
    real = "f" in i.type
    two = {"min": np.fmin, "max": np.fmax}[i.name] if real and "NaN" not in i.forms else {"min": np.minimum, "max": np.maximum}[i.name]
    if i.type in ("f16x2", "bf16x2", "bf16"):
        return _packed(i, d, two)
    return elementwise(i, d, lambda first, *rest: _folded(two, first, rest))


def _folded(function: Callable, first: np.ndarray, rest: tuple) -> np.ndarray:
    for each in rest:
        first = function(first, each)
    return first


def _packed(i: Instruction, d: Decoder, function: Callable) -> Step:
    """Both halves of a word at once."""
    half = i.type.startswith("f16")
    unpack = (lambda bits: bits.view(np.float16)) if half else (lambda bits: from_bfloat16(bits.view(np.uint16)))
    pack = (lambda x: x.astype(np.float16).view(np.uint16)) if half else to_bfloat16

    def apply(*words: np.ndarray) -> np.ndarray:
        arrays = [np.ascontiguousarray(word) for word in np.broadcast_arrays(*map(np.atleast_1d, words))]
        return pack(function(*map(unpack, arrays))).view(arrays[0].dtype)

    bits = "b32" if i.type.endswith("x2") else "b16"
    return elementwise(i, d, apply, bits, bits)


@instruction("div")
def divide(i: Instruction, d: Decoder) -> Step:
    """Whole numbers are divided towards zero."""
    if i.type.startswith("f"):
        return elementwise(i, d, flushing(i, np.divide))
    return elementwise(i, d, _quotient)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    some = np.where(b == 0, np.ones_like(b), b)
    return (a - np.fmod(a, some)) // some


@instruction("rem")
def remainder(i: Instruction, d: Decoder) -> Step:
    """With the sign of the dividend."""
    return elementwise(i, d, lambda a, b: np.fmod(a, np.where(b == 0, np.ones_like(b), b)))


_APPROXIMATE: dict[str, Unary] = {"ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
                                  "sin": np.sin, "cos": np.cos, "tanh": np.tanh}


@instruction(*_APPROXIMATE)
def special_function(i: Instruction, d: Decoder) -> Step:
    """Rounded functions are exact, and all are of 0; .approx ones err within ROUGHNESS where the mode asks for that."""
    function, type_ = flushing(i, _APPROXIMATE[i.name]), i.type
    read, write, rough = d.read(i.operands[1], type_), d.write(i.operands[0], type_), "approx" in i.forms

    def step(g: Group, mask: Mask) -> None:
        x = np.broadcast_to(read(g), (g.count,))
        value = function(x)
        if rough and g.mode.rough:
            near = value * (1 + ROUGHNESS * g.random.uniform(-1, 1, g.count))
            value = np.where(x == 0, value, near).astype(NUMPY_TYPES[type_])
        write(g, mask, value)

    return step
