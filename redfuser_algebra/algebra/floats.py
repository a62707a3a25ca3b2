"""Formats of floats that are narrower than float64: data, from which every part of the package rounds to them."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FloatFormat:
    """A binary format: stored mantissa bits, smallest normal exponent, largest finite value.

    `saturates`: values beyond the largest become the largest (formats without infinity), else ±inf.
    """

    mantissa: int
    smallest_exponent: int
    largest: int
    saturates: bool = False


FLOAT_FORMATS = {
    "float16": FloatFormat(10, -14, 65504),
    "bfloat16": FloatFormat(7, -126, (2**8 - 1) * 2**120),
    "float32": FloatFormat(23, -126, (2**24 - 1) * 2**104),
    "float8_e4m3": FloatFormat(3, -6, 448, saturates=True),
    "float8_e5m2": FloatFormat(2, -14, 57344),
}
