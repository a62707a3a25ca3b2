"""What is looked at in every access of every thread to memory: loops over bytes, compiled by Numba when first used.

In: offsets into a memory, of those threads that are active, and notes on its bytes.  Out: what is wrong, or what it costs.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

MISALIGNED, OUTSIDE, UNNOTED = 1, 2, 3
SEVERAL = 255
"""In place of a warp's number, from 1 on."""
LANES, BANKS, SECTOR, WORD = 32, 32, 32, 4
"""Threads of a warp, banks of shared memory, and bytes that global memory moves at a time and that a bank has in a place."""


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
    words, four = notes[:len(notes) // WORD * WORD].view(np.uint32), np.uint32(0x01010101)
    wanted_, marked_ = four * np.uint32(wanted), four * np.uint32(marked)
    for n in range(len(offsets)):
        if active[n]:
            start = offsets[n]
            if start & size - 1:
                return MISALIGNED
            if start < base[n] or start + size > base[n] + span:
                return OUTSIDE
            if size >= WORD:
                for place in range(start >> 2, start + size >> 2):
                    if words[place] & wanted_ != wanted_:
                        return UNNOTED
                    if marked:
                        words[place] |= marked_
            else:
                for place in range(start, start + size):
                    if notes[place] & wanted != wanted:
                        return UNNOTED
                    if marked:
                        notes[place] |= marked
    return 0


def collision(writer: np.ndarray, reader: np.ndarray, offsets: np.ndarray, active: np.ndarray, size: int, warps: np.ndarray, stores: bool) -> bool:
    """Whether two warps touch the same byte and one stores; each byte remembers the warp that stored to it, and the one that read it
    or that SEVERAL did.

    Notes are on single bytes: accesses side by side do not conflict (PTX ISA, memory consistency model, overlap).  Words of which all
    bytes have the same are looked at as wholes.
    """
    writers, readers, four = writer.view(np.uint32), reader.view(np.uint32), np.uint32(0x01010101)
    step = min(size, WORD)
    for n in range(len(offsets)):
        if active[n]:
            own = np.uint8(warps[n] + 1)
            whole = four * np.uint32(own)
            for place in range(offsets[n], offsets[n] + size, step):
                if step == WORD:
                    wrote, read = writers[place >> 2], readers[place >> 2]
                    if (wrote == 0 or wrote == whole) and (read == 0 or read == whole):
                        if stores:
                            writers[place >> 2] = whole
                        else:
                            readers[place >> 2] = whole
                        continue
                    if wrote == 0 and read == four * np.uint32(SEVERAL) and not stores:
                        continue
                for byte in range(place, place + step):
                    if writer[byte] != 0 and writer[byte] != own or stores and reader[byte] != 0 and reader[byte] != own:
                        return True
                    if stores:
                        writer[byte] = own
                    else:
                        reader[byte] = own if reader[byte] == 0 or reader[byte] == own else np.uint8(SEVERAL)
    return False


def sectors(offsets: np.ndarray, active: np.ndarray, size: int, lanes: np.ndarray) -> tuple[int, int, int]:
    """Warps that have access, bytes they ask for, and the different sectors that each touches; lanes of a warp stand together."""
    requests, asked, moved, seen, warp, many = 0, 0, 0, np.empty(LANES, np.int64), -1, 0
    for n in range(len(offsets)):
        if active[n]:
            if lanes[n] // LANES != warp:
                warp, many, requests = lanes[n] // LANES, 0, requests + 1
            asked += size
            sector, place = offsets[n] // SECTOR, many - 1
            while place >= 0 and seen[place] != sector:
                place -= 1
            if place < 0:
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
            for word in range(offsets[n] // WORD, offsets[n] // WORD + max(size // WORD, 1)):
                bank, place = word % BANKS, 0
                many = banks[bank]
                while place < many and words[bank, place] != word:
                    place += 1
                if place == many:
                    words[bank, many] = word
                    banks[bank] = many + 1
                    most = max(most, many + 1)
    return requests, asked, moved + most, least
