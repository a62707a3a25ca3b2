"""Floats of eight bits, which NumPy does not have, as their bits; these functions are copied into exported files as they are.

e4m3 has no infinities, and 448 is its largest number; e5m2 is the upper half of a float16 (OCP 8-bit Floating Point Specification 1.0).
"""
from __future__ import annotations

import sys

import numpy as np


def from_float8(bits, dtype):
    """float32 numbers of the bits of float8_e4m3 or float8_e5m2."""
    bits = np.asarray(bits, np.uint16)
    if dtype == "float8_e5m2":
        return (bits << np.uint16(8)).view(np.float16).astype(np.float32)
    numbers = ((bits & np.uint16(0x80)) << np.uint16(8) | (bits & np.uint16(0x7F)) << np.uint16(7)).view(np.float16)
    return np.where((bits & 0x7F) == 0x7F, np.float32(np.nan), numbers.astype(np.float32) * np.float32(256))


def to_float8(x, dtype):
    """Bits of the nearest number, ties to even; what is too large becomes 448 in e4m3 and infinite in e5m2."""
    x = np.asarray(x, np.float64)
    numbers = from_float8(np.arange(0x7C if dtype == "float8_e5m2" else 0x7F), dtype).astype(np.float64)
    beyond = [(numbers[-1] + 65536.0) / 2] if dtype == "float8_e5m2" else []
    middles, size = np.concatenate([(numbers[1:] + numbers[:-1]) / 2, beyond]), np.abs(x)
    low, high = (np.searchsorted(middles, size, side) for side in ("left", "right"))
    near = np.where(np.isnan(x), 0x7F, np.where(low % 2 == 0, low, high))
    return (near | np.signbit(x) * 0x80).astype(np.uint8)


def as_bits(array, dtype):
    """Numbers of torch, or of NumPy with ml_dtypes, as their bits; other arrays stay as they are."""
    name = str(getattr(array, "dtype", "")).rpartition(".")[2]
    return array.view(sys.modules[type(array).__module__.partition(".")[0]].uint8) if name.removesuffix("fn") == dtype else array
