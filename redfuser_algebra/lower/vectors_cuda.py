"""Numbers per element that all rows of a block share, in shared memory next to the tile, as text.

Out: Python source that uses numba-cuda.
"""
from __future__ import annotations

VECTORS = '''
@cuda.jit(device=True, forceinline=True)
def load_row(to, source, count, tile, thread):
    """Copy `tile` neighbouring numbers into shared memory; beyond `count` there are zeros."""
    if source % 16 == 0 and count >= tile:
        for i in range(-(-tile // CHUNK // 32)):
            chunk = i4(thread + 32 * i)
            if thread < 32 and chunk < tile // CHUNK:
                copy_chunk(i4(to + 16 * chunk), source + 16 * chunk, i4(16))
    else:
        for i in range(-(-tile // 32)):
            column = i4(thread + 32 * i)
            if thread < 32 and column < tile:
                copy_one(i4(to + column * SIZE), source + column * SIZE, column < count)


copy_whole = ptx("cp.async.ca.shared.global [$0], [$1], 8, $2;", "", "rlr", memory=True)
take_whole = ptx("ld.shared.b64 $0, [$1];", "l", "r", memory=True)


@cuda.jit(device=True, forceinline=True)
def load_wholes(to, source, count, tile, thread):
    """Copy `tile` neighbouring whole numbers into shared memory; beyond `count` there are zeros."""
    for i in range(-(-tile // 32)):
        column = i4(thread + 32 * i)
        if thread < 32 and column < tile:
            copy_whole(i4(to + column * 8), source + column * 8, sel(column < count, i4(8), i4(0)))


@cuda.jit(device=True, forceinline=True)
def take_row(row, lane, columns, v):
    """What a lane has of every row of a tile, where all rows are one."""
    for n in range(columns // 8):
        v[2 * n], v[2 * n + 1] = load_pair(i4(row + (8 * n + lane % 4 * 2) * SIZE))
'''
