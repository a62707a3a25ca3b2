"""How closely results must agree: one table for every test, export and benchmark."""
from __future__ import annotations

import numpy as np

TOLERANCE: dict[str, tuple[float, float]] = {
    "float64": (1e-9, 1e-12),
    "float32": (2e-5, 1e-6),
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 1e-2),
    "float8_e5m2": (2.5e-1, 1e-1),
    "float8_e4m3": (1.25e-1, 5e-2),
    "int8": (0.0, 0.0),
    "int16": (0.0, 0.0),
    "int32": (0.0, 0.0),
    "int64": (0.0, 0.0),
    "uint8": (0.0, 0.0),
    "bool": (0.0, 0.0),
}
"""dtype of the inputs → (relative, absolute) tolerance; the absolute one is in units of the data's scale."""

UNIT: dict[str, float] = {"float64": 16 * 2.0**-53, "float32": 16 * 2.0**-24}
"""dtype of the arithmetic → what one operation may err by, relative to its result, where bounds are carried through.

16 roundoffs: an exponential of a few ulps, and the handful of operations with which a fused form moves a state.
"""


def agree(a: object, b: object, dtype: str = "float64", scale: float = 1.0, error: object = None) -> bool:
    """|a − b| ≤ rtol·|b| + atol·scale everywhere; infinities and NaN must be equal, shapes too.

    `b` is the reference and `scale` the size of the terms it was made of, so that cancellation is judged fairly.
    With `error`, the bounds that `conditioning` finds, these are the tolerance, and where they are inf, anything goes.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    rtol, atol = TOLERANCE[dtype]
    same = (a == b) | ((a != a) & (b != b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        if error is not None:
            return bool(np.all(same | (np.abs(a - b) <= error) | np.isinf(error)))
        near = np.abs(a - b) <= rtol * np.abs(b) + atol * scale
    return bool(np.all(same | (near & (rtol > 0) & np.isfinite(a) & np.isfinite(b))))
