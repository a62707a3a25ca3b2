"""Casts: a float64 array rounded to another number format, its value kept in float64 (or int64, or bool).

Values come back wide because the meaning of an operator is its float64 arithmetic: a cast rounds, it does not make
what follows narrower.  Rounding is to nearest, ties to even, in one step from float64.
"""
from __future__ import annotations

import numpy as np

from redfuser_algebra.algebra.floats import FLOAT_FORMATS, FloatFormat
from redfuser_algebra.language.errors import OperatorError


NUMPY_FLOATS = ("float16", "float32", "float64")
FORMATS = {name: own for name, own in FLOAT_FORMATS.items() if name not in NUMPY_FLOATS}
"""Formats that NumPy lacks."""

INTEGERS = tuple(sign + str(bits) for sign in ("int", "uint") for bits in (8, 16, 32, 64))
CASTS = (*NUMPY_FLOATS, *FORMATS, *INTEGERS, "bool")


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """`values` rounded to `dtype`; the value stays wide.  Raises OperatorError for a format that is not in CASTS."""
    if dtype in NUMPY_FLOATS:
        with np.errstate(over="ignore"):
            return values.astype(dtype).astype(np.float64)
    if dtype in FORMATS:
        return _rounded_to_format(values.astype(np.float64), FORMATS[dtype])
    if dtype in INTEGERS:
        return _saturated(values, np.iinfo(dtype))
    if dtype == "bool":
        return values != 0
    raise OperatorError(f"cast to {dtype!r}", "there is no such number format", "use one of " + ", ".join(CASTS))


def spacing(values: np.ndarray, dtype: str) -> np.ndarray:
    """At least the distance between neighbours of a format at these values: of whole numbers, 1."""
    if dtype in NUMPY_FLOATS:
        info = np.finfo(dtype)
        return np.maximum(np.abs(values) * info.eps, float(info.smallest_subnormal))
    if dtype in FORMATS:
        to = FORMATS[dtype]
        return np.maximum(np.abs(values) * 2.0**-to.mantissa, 2.0 ** (to.smallest_exponent - to.mantissa))
    return np.ones(np.shape(values))


def _rounded_to_format(values: np.ndarray, to: FloatFormat) -> np.ndarray:
    exponent = np.maximum(np.frexp(values)[1] - 1, to.smallest_exponent) - to.mantissa
    near = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
    largest = float(to.largest)
    return np.where(np.abs(near) > largest, np.copysign(largest if to.saturates else np.inf, values), near)


def _saturated(values: np.ndarray, limits: np.iinfo) -> np.ndarray:
    """Nearest integer within the limits; NaN becomes 0, as in CUDA's conversions."""
    wide = np.uint64 if limits.max > np.iinfo(np.int64).max else np.int64
    if values.dtype.kind in "bui":
        return np.clip(values, limits.min, limits.max).astype(wide)
    near = np.rint(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
    # float64 cannot hold 2⁶³ − 1: the bounds are compared in float64 and replaced by the exact limits.
    inside = np.where((near > limits.min) & (near < limits.max), near, 0.0).astype(wide)
    return np.where(near >= limits.max, wide(limits.max), np.where(near <= limits.min, wide(limits.min), inside))
