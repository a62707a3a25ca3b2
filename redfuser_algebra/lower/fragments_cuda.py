"""Matrix products by warps, as text: tiles in shared memory, fragments in registers, and the instructions for both.

A warp has 16 rows of a block.  Its lane holds, of a tile's row, two neighbouring numbers in every eight: those of rows
lane // 4 and lane // 4 + 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16").  As local arrays: s[r, i] is the number in
column 8·(i // 2) + 2·(lane % 4) + i % 2 of the lane's row r.  Float32 has the same fragments and multiplies without tensor cores.

In shared memory a row lies in chunks of 16 bytes; chunk c of row r is at place c ^ (r % 8), so that neither a row nor a
column of eight chunks meets a bank twice.  For wgmma, whose 128-byte swizzle that is, wide rows lie in panels of 128 bytes.

Out: Python source that uses numba-cuda.
"""
from __future__ import annotations

from redfuser_algebra.lower.arithmetic_cuda import BYTES
from redfuser_algebra.lower.variants import variant
from redfuser_algebra.lower.vectors_cuda import VECTORS
from redfuser_algebra.lower.warpgroup_code import BULK, WARPGROUPS

_COPIES = '''
copy_chunk = ptx("cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr", memory=True)
copies_end = ptx("cp.async.commit_group;", "", "", memory=True)
wait_for_copies = ptx("cp.async.wait_group 0;", "", "", memory=True)
wait_for_all_but_the_last = ptx("cp.async.wait_group 1;", "", "", memory=True)
'''

_PLACE = '''
@cuda.jit(device=True, forceinline=True)
def chunk_at(row, chunk, width, height):
    """Where a chunk of a row lies in a tile whose rows are `width` bytes long."""
    return i4(i4(row * width) + i4(i4(chunk ^ i4(row & 7)) << 4))
'''

_PANELS = '''
@cuda.jit(device=True, forceinline=True)
def chunk_at(row, chunk, width, height):
    """Where a chunk of a row lies in a tile of `height` rows: in panels of eight chunks, with the 128-byte swizzle of wgmma."""
    return i4(i4(i4(chunk >> 3) * i4(height * 128)) + i4(i4(row << 7) + i4(i4(i4(chunk & 7) ^ i4(row & 7)) << 4)))
'''

_FURTHER = '''
@cuda.jit(device=True, forceinline=True)
def further(place, rows, chunks, width, height):
    """So many rows and chunks further on, if both have no bits in common with the row and the chunk at `place`: where these are known, so is the distance."""
    distance = chunk_at(rows, chunks, width, height)
    return i4(i4(place ^ i4(distance & 127)) + i4(distance & -128))
'''

LOAD = '''
@cuda.jit(device=True, forceinline=True)
def load_tile(to, source, stride, rows, columns, height, width, vector, thread, threads):
    """Copy a tile of `height` rows of `width` bytes into shared memory; beyond `rows` and `columns` there are zeros.

    Eight threads copy chunks of a row; where memory has no whole chunks, all threads of a warp copy neighbouring numbers of it.
    """
    rows, columns = i4(rows), i4(columns)
    if vector:
        first, chunk = i4(thread >> 3), i4(thread & 7)
        start, source = i4(to + chunk_at(first, chunk, width, height)), source + (i8(first) * stride + chunk * 16)
        for panel in range(width // 128):
            there = i4((chunk + 8 * panel) * CHUNK) < columns
            for i in range(height * 8 // threads):
                row, place = i4(first + i4(i * (threads // 8))), further(start, i * (threads // 8), 8 * panel, width, height)
                copy_chunk(place, source + (i * (threads // 8) * stride + panel * 128), sel(there & (row < rows), i4(16), i4(0)))
    else:
        first, column = i4(thread >> 5), i4(thread & 31)
        start, source = i4(to + chunk_at(first, i4(column // CHUNK), width, height) + i4(column % CHUNK * SIZE)), source + (i8(first) * stride + column * SIZE)
        for part in range(width // SIZE // 32):
            there = i4(column + 32 * part) < columns
            for i in range(height * 32 // threads):
                row, place = i4(first + i4(i * (threads // 32))), further(start, i * (threads // 32), 32 * part // CHUNK, width, height)
                copy_one(place, source + (i * (threads // 32) * stride + 32 * part * SIZE), there & (row < rows))
'''

_LEFT = '''
@cuda.jit(device=True, forceinline=True)
def take_left(source, column, columns, pair):
    """Two neighbouring columns of what a part left of a row, beyond the last those of the last; together where rows begin at even places."""
    if columns % 2 == 0:
        pair[0], pair[1] = load_two(source + min(column, columns - 2) * 4)
    else:
        pair[0], pair[1] = load_single(source + min(column, columns - 1) * 4), load_single(source + min(column + 1, columns - 1) * 4)
'''

SCORES_HALF = '''
@cuda.jit(device=True, forceinline=True)
def multiply(a, b, n, s):
    """s += a · b for 16 columns from 16 · n on."""
    for half in range(2):
        i, j = 4 * n + 2 * half, 4 * n + 2 * half + 1
        s[0, i], s[0, j], s[1, i], s[1, j] = mma(a[0], a[1], a[2], a[3], b[2 * half], b[2 * half + 1], s[0, i], s[0, j], s[1, i], s[1, j])


@cuda.jit(device=True, forceinline=True)
def multiply_rows(left, right, lane, steps, width, tile, s):
    """s += left · rightᵀ for the 16 rows at `left`, both with rows of 16 · steps numbers."""
    left = i4(left + chunk_at(i4(lane & 15), i4(lane >> 4), width, 16))
    right = i4(right + chunk_at(i4((lane & 7) + i4(lane >> 4 << 3)), i4(lane >> 3 & 1), width, tile))
    for k in range(steps):
        a = load_matrices(further(left, 0, 2 * k, width, 16))
        for n in range(tile // 16):
            multiply(a, load_matrices(further(right, 16 * n, 2 * k, width, tile)), n, s)
        unrolled()
'''

_WEIGHTED_HALF = '''
@cuda.jit(device=True, forceinline=True)
def add_weighted_rows(p, right, lane, width, tile, columns, o):
    """o += p · right for `tile` rows at `right`; the weights become factors where they are."""
    right = i4(right + chunk_at(i4(lane & 15), i4(lane >> 4), width, tile))
    for k in range(tile // 16):
        i, j = 4 * k, 4 * k + 2
        a = pack(p[0, i], p[0, i + 1]), pack(p[1, i], p[1, i + 1]), pack(p[0, j], p[0, j + 1]), pack(p[1, j], p[1, j + 1])
        for n in range(columns // 16):
            multiply(a, load_turned_matrices(further(right, 16 * k, 2 * n, width, tile)), n, o)
'''

_TAKE_HALF = '''
@cuda.jit(device=True, forceinline=True)
def take_fragment(tile, first, lane, rows, width, columns, v):
    """The fragment of 16 of the `rows` of a tile, from row `first` on, as floats."""
    for r in range(2):
        for n in range(columns // 8):
            v[r, 2 * n], v[r, 2 * n + 1] = load_pair(i4(tile + chunk_at(i4(first + lane // 4 + 8 * r), n, width, rows) + lane % 4 * 4))
'''

STORE_HALF = '''
@cuda.jit(device=True, forceinline=True)
def store_tile(shared, y, to, stride, rows, columns, height, span, vector, thread, threads):
    """Write a block's fragments: through shared memory, so that whole rows reach memory."""
    width, first, rows, columns = (span * SIZE + 127) // 128 * 128, i4(thread >> 3), i4(min(rows, height)), i4(min(columns, span))
    for r in range(2):
        for n in range(span // 8):
            row = i4((thread >> 5 << 4) + (thread >> 2 & 7) + 8 * r)
            keep_word(i4(shared + chunk_at(row, n, width, height) + i4((thread & 3) << 2)), pack(y[r, 2 * n], y[r, 2 * n + 1]))
    cuda.syncthreads()
    for panel in range(width // 128):
        chunk = i4((thread & 7) + 8 * panel)
        for i in range(height * 8 // threads):
            row = i4(first + i * (threads // 8))
            place, target = i4(shared + chunk_at(row, chunk, width, height)), to + i8(row) * stride + chunk * 16
            if row < rows and chunk * CHUNK < columns:
                words = take_words(place)
                if vector:
                    store_4(target, *words)
                else:
                    for e in range(CHUNK):
                        if chunk * CHUNK + e < columns:
                            store_one(target + e * SIZE, unpack(words[e // 2])[e % 2])
    cuda.syncthreads()
'''

_SCORES_FULL = '''
@cuda.jit(device=True, forceinline=True)
def multiply_rows(left, right, lane, steps, width, tile, s):
    """s += left · rightᵀ for the 16 rows at `left`, both with rows of 16 · steps numbers."""
    left, right = i4(left + chunk_at(i4(lane >> 2), 0, width, 16)), i4(right + chunk_at(i4(2 * (lane & 3)), 0, width, tile))
    for k in range(4 * steps):
        a, b = load_four(further(left, 0, k, width, 16)), load_four(further(left, 8, k, width, 16))
        for i in range(tile // 4):
            c = load_four(further(right, 8 * (i // 2) + i % 2, k, width, tile))
            s[0, i] += a[0] * c[0] + a[1] * c[1] + (a[2] * c[2] + a[3] * c[3])
            s[1, i] += b[0] * c[0] + b[1] * c[1] + (b[2] * c[2] + b[3] * c[3])
'''

_WEIGHTED_FULL = '''
@cuda.jit(device=True, forceinline=True)
def add_weighted_rows(p, right, lane, width, tile, columns, o):
    """o += p · right for `tile` rows at `right`; a weight comes from the lane that has it, then the next moves up to its place."""
    right = i4(right + i4(chunk_at(0, i4((lane & 3) >> 1), width, tile) + i4((lane & 1) << 3)))
    for i in range(tile // 4):
        first, second = p[0, 0], p[1, 0]
        for k in range(tile // 4 - 1):
            p[0, k], p[1, k] = p[0, k + 1], p[1, k + 1]
        for quarter in range(4):
            a, b = cuda.shfl_sync(0xFFFFFFFF, first, (lane & 28) + quarter), cuda.shfl_sync(0xFFFFFFFF, second, (lane & 28) + quarter)
            row = further(right, i4(8 * (i // 2) + 2 * quarter + i % 2), 0, width, tile)
            for n in range(columns // 8):
                c, d = load_pair(further(row, 0, 2 * n, width, tile))
                o[0, 2 * n] += a * c
                o[0, 2 * n + 1] += a * d
                o[1, 2 * n] += b * c
                o[1, 2 * n + 1] += b * d
'''

TAKEN_FULL = '''
@cuda.jit(device=True, forceinline=True)
def add_taken_rows(p, right, lane, width, tile, columns, o):
    """The same where not every number at `right` is finite: what would meet a weight of −0 takes no part."""
    for i in range(tile // 4):
        first, second = p[0, 0], p[1, 0]
        for k in range(tile // 4):
            first, second = sel(k == i, p[0, k], first), sel(k == i, p[1, k], second)
            unrolled()
        for quarter in range(4):
            a, b = cuda.shfl_sync(0xFFFFFFFF, first, (lane & 28) + quarter), cuda.shfl_sync(0xFFFFFFFF, second, (lane & 28) + quarter)
            for n in range(columns // 8):
                row = i4(8 * (i // 2) + 2 * quarter + i % 2)
                c, d = load_pair(i4(right + chunk_at(row, i4(2 * n + (lane % 4 >> 1)), width, tile) + lane % 2 * 8))
                o[0, 2 * n] += sel(takes_part(a), a * c, f4(0))
                o[0, 2 * n + 1] += sel(takes_part(a), a * d, f4(0))
                o[1, 2 * n] += sel(takes_part(b), b * c, f4(0))
                o[1, 2 * n + 1] += sel(takes_part(b), b * d, f4(0))
'''

_TAKES_PART = '''
@cuda.jit(device=True, forceinline=True)
def takes_part(weight):
    """Whether a weight is an element's that takes part: −0 is the others' (see fold)."""
    return weight != f4(0) or math.copysign(f4(1), weight) > f4(0)
'''

_PLACED_FULL, _PLACED_HALF = "i4(2 * n + (lane % 4 >> 1)), width, tile) + lane % 2 * 8", "n, width, tile) + lane % 4 * 4"
_TAKEN_HALF = variant(TAKEN_FULL, (_PLACED_FULL, _PLACED_HALF))

_TAKE_FULL = variant(_TAKE_HALF, ("n, width, rows) + lane % 4 * 4", "2 * n + (lane % 4 >> 1), width, rows) + lane % 2 * 8"))

STORE_FULL = '''
@cuda.jit(device=True, forceinline=True)
def store_tile(shared, y, to, stride, rows, columns, height, span, vector, thread, threads):
    """Write a block's fragments: four lanes fill 32 bytes of a row."""
    lane = thread % 32
    for r in range(2):
        row = thread // 32 * 16 + lane // 4 + 8 * r
        for n in range(span // 8):
            column, target = 8 * n + 2 * (lane % 4), to + i8(row) * stride + (8 * n + 2 * (lane % 4)) * SIZE
            if row < rows and vector and column < columns:
                store_pair(target, y[r, 2 * n], y[r, 2 * n + 1])
            elif row < rows:
                for c in range(2):
                    if column + c < columns:
                        store_one(target + c * SIZE, y[r, 2 * n + c])
'''


_FINITE_HALF = '''
check_pair = ptx("{{.reg .b32 z; mov.b32 z, 0; fma.rn.{kind}x2 $0, $1, z, $2;}}", "r", "rr")


@cuda.jit(device=True, forceinline=True)
def all_finite(tile, size, thread, threads):
    """Whether `size` bytes of a tile hold neither infinity nor NaN, of which 0 times makes NaN; all threads of the block learn it."""
    found = i4(0)
    for i in range(size // 16 // threads):
        for word in take_words(i4(tile + 16 * (i * threads + thread))):
            found = check_pair(word, found)
    first, second = unpack(found)
    return cuda.syncthreads_and(i4(first + second == f4(0))) != 0
'''

_FINITE_FULL = '''
@cuda.jit(device=True, forceinline=True)
def all_finite(tile, size, thread, threads):
    """Whether `size` bytes of a tile hold neither infinity nor NaN, of which 0 times makes NaN; all threads of the block learn it."""
    found = f4(0)
    for i in range(size // 16 // threads):
        for number in load_four(i4(tile + 16 * (i * threads + thread))):
            found += f4(0) * number
    return cuda.syncthreads_and(i4(found == f4(0))) != 0
'''

_HALF = '''
mma = ptx("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
          "{{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};", "ffff", "rrrrrrffff", warp=True)
load_matrices = ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{$0, $1, $2, $3}}, [$4];", "rrrr", "r", memory=True, warp=True)
load_turned_matrices = ptx("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{$0, $1, $2, $3}}, [$4];", "rrrr", "r", memory=True, warp=True)
keep_word = ptx("st.shared.b32 [$0], $1;", "", "rr", memory=True)
copy_one = ptx("{{.reg .pred p; .reg .b16 v; setp.ne.s32 p, $2, 0; mov.b16 v, 0; @p ld.global.nc.b16 v, [$1]; st.shared.b16 [$0], v;}}", "", "rlr", memory=True)
take_word = ptx("ld.shared.b32 $0, [$1];", "r", "r", memory=True)
keep_words = ptx("st.shared.v4.b32 [$0], {{$1, $2, $3, $4}};", "", "rrrrr", memory=True)
keep_two_words = ptx("st.shared.v2.b32 [$0], {{$1, $2}};", "", "rrr", memory=True)
keep_one = ptx("{{.reg .b16 l; cvt.rn.{kind}.f32 l, $1; st.shared.b16 [$0], l;}}", "", "rf", memory=True)
take_half = ptx("{{.reg .b16 l; ld.shared.b16 l, [$1]; cvt.u32.u16 $0, l;}}", "r", "r", memory=True)
take_words = ptx("ld.shared.v4.b32 {{$0, $1, $2, $3}}, [$4];", "rrrr", "r", memory=True)


@cuda.jit(device=True, forceinline=True)
def load_pair(place):
    """Two neighbouring numbers of a tile."""
    return unpack(take_word(place))


@cuda.jit(device=True, forceinline=True)
def keep_numbers(place, v, count):
    """1, 2, 4 or 8 neighbouring numbers into shared memory."""
    if count == 1:
        keep_one(place, v[0])
    elif count == 2:
        keep_word(place, pack(v[0], v[1]))
    elif count == 4:
        keep_two_words(place, pack(v[0], v[1]), pack(v[2], v[3]))
    else:
        keep_words(place, pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]))


@cuda.jit(device=True, forceinline=True)
def take_numbers(place, v, count):
    """8 neighbouring numbers of shared memory, or less, one by one."""
    if count == 8:
        words = take_words(place)
        for k in range(4):
            v[2 * k], v[2 * k + 1] = unpack(words[k])
    else:
        for k in range(count):
            v[k] = unpack(take_half(i4(place + k * SIZE)))[0]
'''

_FULL = '''
load_four = ptx("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "ffff", "r", memory=True)
load_pair = ptx("ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "r", memory=True)
keep_four = ptx("st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "rffff", memory=True)
keep_pair = ptx("st.shared.v2.f32 [$0], {$1, $2};", "", "rff", memory=True)
keep_number = ptx("st.shared.f32 [$0], $1;", "", "rf", memory=True)
take_number = ptx("ld.shared.f32 $0, [$1];", "f", "r", memory=True)
copy_number = ptx("cp.async.ca.shared.global [$0], [$1], 4, $2;", "", "rlr", memory=True)
store_pair = ptx("st.global.v2.f32 [$0], {$1, $2};", "", "lff", memory=True)


@cuda.jit(device=True, forceinline=True)
def copy_one(place, origin, there):
    """A number into shared memory, or zero."""
    copy_number(place, origin, sel(there, i4(4), i4(0)))


@cuda.jit(device=True, forceinline=True)
def keep_numbers(place, v, count):
    """1, 2 or 4 neighbouring numbers into shared memory."""
    if count == 1:
        keep_number(place, v[0])
    elif count == 2:
        keep_pair(place, v[0], v[1])
    else:
        keep_four(place, v[0], v[1], v[2], v[3])


@cuda.jit(device=True, forceinline=True)
def take_numbers(place, v, count):
    """4 neighbouring numbers of shared memory, or less, one by one."""
    if count == 4:
        v[0], v[1], v[2], v[3] = load_four(place)
    else:
        for k in range(count):
            v[k] = take_number(i4(place + k * SIZE))
'''

_COMMON = '''
def width_of(count):
    """Bytes of a row of so many numbers in shared memory: whole groups of eight chunks."""
    return -(-count * SIZE // 128) * 128


load_two = ptx("ld.global.v2.f32 {$0, $1}, [$2];", "ff", "l", memory=True)
load_single = ptx("ld.global.f32 $0, [$1];", "f", "l", memory=True)
store_two = ptx("st.global.v2.f32 [$0], {$1, $2};", "", "lff", memory=True)
store_single = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)
two_to_the = ptx("ex2.approx.ftz.f32 $0, $1;", "f", "f")


@cuda.jit(device=True, forceinline=True)
def bounded(factor):
    """A factor that leaves 0 what is 0, be it infinite; NaN stays."""
    return larger(smaller(factor, f4(3.4028235e38)), f4(-3.4028235e38))
'''


def fragments(dtype: str, wgmma: bool) -> str:
    """The definitions for numbers of a dtype."""
    kind = "f16" if dtype == "float16" else "bf16"
    half = [_HALF.format(kind=kind), *([WARPGROUPS.format(kind=kind), BULK] if wgmma else []), SCORES_HALF, _WEIGHTED_HALF, _TAKEN_HALF, _TAKES_PART,
            _FINITE_HALF.format(kind=kind), _TAKE_HALF, STORE_HALF]
    full = [_FULL, _SCORES_FULL, _WEIGHTED_FULL, TAKEN_FULL, _TAKES_PART, _FINITE_FULL, _TAKE_FULL, STORE_FULL]
    return "\n".join([_COPIES, _COMMON, _PANELS if wgmma else _PLACE, _FURTHER, _LEFT, LOAD, *(half if BYTES[dtype] == 2 else full), VECTORS])
