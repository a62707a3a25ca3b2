"""What is looked at in every access of every thread to memory: loops over bytes, compiled by Numba when first used.

In: offsets into a memory, of those threads that are active, and notes on its bytes.  Out: what is wrong, or what it costs.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

MISALIGNED, OUTSIDE, UNNOTED = 1, 2, 3
LANES, BANKS, SECTOR = 32, 32, 32
"""Threads of a warp, banks of shared memory, and bytes that global memory moves at a time."""


@cache
def fast(function: Callable) -> Callable:
    """The function compiled; what the compiler made of it is kept on disk where there is room."""
    from numba import njit

    try:
        return njit(function, cache=True)
    except RuntimeError:
        return njit(function)


@cache
def elementwise_fast(function: Callable, *signatures: str) -> Callable:
    """The function of numbers as one of arrays, like NumPy's own; kept as those above are."""
    from numba import vectorize

    try:
        return vectorize(list(signatures), cache=True)(function)
    except RuntimeError:
        return vectorize(list(signatures))(function)


def fault(notes: np.ndarray, offsets: np.ndarray, active: np.ndarray, base: np.ndarray, span: int, size: int, wanted: int, marked: int) -> int:
    """What is wrong with the first access that is: its alignment, that it leaves the `span` bytes from its base on, or that its bytes
    lack notes which are `wanted`; 0 if nothing is.  Bytes get the note `marked`."""
    for n in range(len(offsets)):
        if active[n]:
            start = offsets[n]
            if start % size:
                return MISALIGNED
            if start < base[n] or start + size > base[n] + span:
                return OUTSIDE
            for place in range(start, start + size):
                if notes[place] & wanted != wanted:
                    return UNNOTED
                if marked:
                    notes[place] |= marked
    return 0


def collision(writer: np.ndarray, readers: np.ndarray, offsets: np.ndarray, active: np.ndarray, size: int, warps: np.ndarray, stores: bool) -> bool:
    """Whether two warps touch the same byte and one stores; each byte remembers the warp that stored to it, and those that read it.

    Notes are on single bytes: accesses side by side do not conflict (PTX ISA, memory consistency model, overlap).
    """
    for n in range(len(offsets)):
        if active[n]:
            own, mine = np.uint8(warps[n] + 1), np.uint32(1) << np.uint32(warps[n])
            for place in range(offsets[n], offsets[n] + size):
                if writer[place] != 0 and writer[place] != own or stores and readers[place] & ~mine:
                    return True
                if stores:
                    writer[place] = own
                else:
                    readers[place] |= mine
    return False


def sectors(offsets: np.ndarray, active: np.ndarray, size: int, lanes: np.ndarray) -> tuple[int, int, int]:
    """Warps that have access, bytes they ask for, and the different sectors that each touches; lanes of a warp stand together."""
    requests, asked, moved, seen, warp = 0, 0, 0, np.empty(LANES, np.int64), -1
    for n in range(len(offsets)):
        if active[n]:
            if lanes[n] // LANES != warp:
                warp, many, requests = lanes[n] // LANES, 0, requests + 1
            asked += size
            sector = offsets[n] // SECTOR
            if sector not in seen[:many]:
                seen[many] = sector
                many, moved = many + 1, moved + 1
    return requests, asked, moved * SECTOR


def passes(offsets: np.ndarray, active: np.ndarray, size: int, lanes: np.ndarray, served: int) -> tuple[int, int, int, int]:
    """Warps that have access, bytes they ask for, passes over the banks, and how few there could be.

    Each group of `served` lanes is one pass, or as many as one bank has different words to give.
    """
    requests, asked, moved, least, warp, group, most = 0, 0, 0, 0, -1, -1, 0
    words, banks = np.empty((BANKS, LANES), np.int64), np.zeros(BANKS, np.int64)
    for n in range(len(offsets)):
        if active[n]:
            if lanes[n] // LANES != warp:
                warp, requests = lanes[n] // LANES, requests + 1
            if lanes[n] // served != group:
                group, moved, least, most = lanes[n] // served, moved + most, least + 1, 0
                banks[:] = 0
            asked += size
            for word in range(offsets[n] // 4, offsets[n] // 4 + max(size // 4, 1)):
                bank = word % BANKS
                if word not in words[bank, :banks[bank]]:
                    words[bank, banks[bank]] = word
                    banks[bank] += 1
                    most = max(most, banks[bank])
    return requests, asked, moved + most, least
