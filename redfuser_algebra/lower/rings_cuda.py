"""What kernels that take elements in order bring along, as text: tiles and rings in shared memory, filled from rows of memory and emptied into them.

Out: Python source that uses numba-cuda, of which `arithmetic_cuda.used` keeps what a kernel needs.
"""
from __future__ import annotations

_RINGS = '''
load_whole = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.b64 $0, 0; @p ld.global.nc.b64 $0, [$1];}", "l", "lr")
load_truth = ptx("{.reg .pred p; .reg .b16 h; setp.ne.s32 p, $2, 0; mov.b16 h, 0; @p ld.global.nc.u8 h, [$1]; cvt.u32.u16 $0, h;}", "r", "lr")
store_whole = ptx("st.global.b64 [$0], $1;", "", "ll", memory=True)
store_truth = ptx("{.reg .b16 h; cvt.u16.u32 h, $1; st.global.u8 [$0], h;}", "", "lr", memory=True)


@cuda.jit(device=True)
def first_like(origins, row):
    """The first of neighbouring rows that begin where this one does."""
    while row > 0 and origins[row - 1] == origins[row]:
        row -= 1
    return row


@cuda.jit(device=True)
def turned(word, ring):
    """Where a word lies in a ring of so many."""
    return np.uint32(word) % np.uint32(ring)


def staging(load, kind, size):
    """What fills rings with numbers of so many bytes, eight of a thread at a time; rows that begin at one place have one ring."""
    @cuda.jit(device=True)
    def staged(cells, room, origins, rows, first, count, ring, length, sector, thread, span):
        """Words from `first` on, counted from where the sector begins in which the row does; beside the row there is 0."""
        held = cuda.local.array(8, kind)
        for turn in range(0, rows * count, 8 * span):
            for k in range(8):
                number = i4(turn + k * span + thread)
                row = sel(number < rows * count, i4(number // count), i4(0))
                origin = origins[row]
                word = i4(first + number % count - origin % sector // size)
                there = number < rows * count and 0 <= word and word < length and (row == 0 or origins[row - 1] != origin)
                held[k] = load(origin + word * size, there)
                unrolled()
            for k in range(8):
                number = i4(turn + k * span + thread)
                if number < rows * count:
                    cells[i4(number // count * room) + turned(first + number % count, ring)] = held[k]
                unrolled()
    return staged


def flushing(store, size):
    """What writes numbers of so many bytes from rings to memory."""
    @cuda.jit(device=True)
    def flushed(cells, room, begin, rows, first, count, ring, length, thread, span):
        """Words from `first` on, counted from where the sector begins in which the row does; rows lie one behind the other from `begin` on."""
        for number in range(thread, rows * count, span):
            row, place = i4(number // count), i4(first + number % count)
            origin = begin + row * length * size
            word = place - origin % 32 // size
            if 0 <= word and word < length:
                store(origin + word * size, cells[i4(row * room) + turned(place, ring)])
    return flushed


def unstaging(store, size):
    """What writes a tile of numbers of so many bytes from shared memory, from `low` to `high`."""
    @cuda.jit(device=True)
    def unstaged(cells, pointer, low, high, steps, shift, mask, thread, span):
        for step in range(steps):
            word = i4(step * span + thread)
            if word >= low and word < high:
                store(pointer + word * size, cells[np.uint32(word ^ i4(word >> shift & mask))])
    return unstaged


stage_rows = staging(load_one, REAL, SIZE)
stage_wholes = staging(load_whole, i8, 8)
stage_truths = staging(load_truth, i4, 1)
flush_rows = flushing(store_one, SIZE)
flush_wholes = flushing(store_whole, 8)
flush_truths = flushing(store_truth, 1)
unstage_real = unstaging(store_one, SIZE)
unstage_wholes = unstaging(store_whole, 8)
unstage_truths = unstaging(store_truth, 1)
'''


def rings(accesses: str, size: int, real: str) -> str:
    """The source for real numbers of `size` bytes in memory and of a type in shared memory, with what accesses memory."""
    return f"{accesses}\n{_RINGS.replace('REAL', real).replace('SIZE', str(size))}"
