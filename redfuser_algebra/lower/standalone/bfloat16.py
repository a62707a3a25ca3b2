"""bfloat16, which NumPy does not have, as its bits; these functions are copied into exported files as they are."""
from __future__ import annotations

import numpy as np


def to_bfloat16(x):
    """Bits of the nearest bfloat16 of float32 numbers, ties to even."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    near = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(x), np.uint32(0x7FFF), near >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(bits):
    """float32 numbers of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
