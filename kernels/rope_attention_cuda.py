"""rope_attention: one pass over l, 3 words of state per row, commutative merge.

Attention of queries and keys whose pairs are turned by the angle position·10^{−k} before the product.

The operator
    rope_attention(Q[m, k, plane], K[l, k, plane], V[l, j]; scale=1.0):
        t1 = index(plane) == 0
        d1 = sum(where(t1, Q, 0), plane)
        t2 = 10.0 ** -index(k)
        t3 = index(m) * t2
        t4 = cos(t3)
        t5 = index(plane) == 1
        d2 = sum(where(t5, Q, 0), plane)
        t6 = sin(t3)
        d3 = sum(where(t1, K, 0), plane)
        t7 = index(l) * t2
        t8 = cos(t7)
        d4 = sum(where(t5, K, 0), plane)
        t9 = sin(t7)
        t10 = sum((d1 * t4 - d2 * t6) * (d3 * t8 - d4 * t9) + (d1 * t6 + d2 * t4) * (d3 * t9 + d4 * t8), k) * scale
        t11 = exp(t10 - max(t10, l))
        return sum(t11 * V, l) / sum(t11, l)

One more element (a prime marks the new value)
    x   = scale·Σ_k ((cos(m·10^(−k))·Σ_plane (Q[m,k,plane] if plane = 0 else 0) − sin(m·10^(−k))·Σ_plane (Q[m,k,plane] if plane = 1 else 0))·(cos(l·10^(−k))·Σ_plane (K[l,k,plane] if plane = 0 else 0) − sin(l·10^(−k))·Σ_plane (K[l,k,plane] if plane = 1 else 0)) + (sin(m·10^(−k))·Σ_plane (Q[m,k,plane] if plane = 0 else 0) + cos(m·10^(−k))·Σ_plane (Q[m,k,plane] if plane = 1 else 0))·(sin(l·10^(−k))·Σ_plane (K[l,k,plane] if plane = 0 else 0) + cos(l·10^(−k))·Σ_plane (K[l,k,plane] if plane = 1 else 0)))
    m2' = max(m2, x)
    s'  = s·exp(m2 − m2') + V[l,j]·exp(x − m2')
    s2' = s2·exp(m2 − m2') + exp(x − m2')

Two states a and b
    m2' = max(m2_a, m2_b)
    s'  = s_a·exp(m2_a − m2') + s_b·exp(m2_b − m2')
    s2' = s2_a·exp(m2_a − m2') + s2_b·exp(m2_b − m2')

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 3229261d7926b016ef5534de2e4e320cfe5edfd77bedfa6a2dc092d0f9250291
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python rope_attention_cuda.py` checks it on a GPU.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
from functools import cache

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import libdevice, types
from numba.cuda.extending import intrinsic


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf = np.inf
KINDS = {"r": types.int32, "l": types.int64, "f": types.float32, "d": types.float64}

def ptx(text, results, operands, memory=False, warp=False):
    """A PTX instruction as a function of numbers, each a letter of KINDS.  `memory`: it reads or writes what others wrote; `warp`: by whole warps."""
    count, many = min(len(results), 2), types.UniTuple(KINDS[results[:1] or "r"], len(results))
    returned, given = (types.none, many.dtype, many)[count], types.StarArgTuple([KINDS[each] for each in operands])
    marks = ",".join([*("=" + each for each in results), *operands, *["~{memory}"] * memory])

    def emit(context, builder, signature, args):
        numbers, kind = [builder.extract_value(args[0], n) for n in range(len(operands))], context.get_value_type(many.dtype)
        made = (ir.VoidType(), kind, ir.LiteralStructType([kind] * len(results)))[count]
        called = ir.InlineAsm(ir.FunctionType(made, [each.type for each in numbers]), text, marks, memory)
        value = builder.call(called, numbers, attrs=("convergent",) * warp)
        if count == 2:
            return context.make_tuple(builder, many, [builder.extract_value(value, n) for n in range(len(results))])
        return value if count else context.get_dummy_value()

    return intrinsic(lambda context, *numbers: (returned(given), emit))

def pointer(space, kind):
    """Where an array begins in a state space: 1 is global memory, 3 is shared."""
    def typed(context, array):
        def emit(context, builder, signature, args):
            place = context.make_array(array)(context, builder, value=args[0]).data
            return builder.ptrtoint(builder.addrspacecast(place, ir.PointerType(place.type.pointee, space)), context.get_value_type(kind))
        return kind(array), emit
    return intrinsic(typed)

address = pointer(1, types.int64)
shared_address = pointer(3, types.int32)

@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    return a(types.boolean, a, a), lambda context, builder, signature, args: builder.select(*args)

@intrinsic
def unrolled(context):
    """At the end of a loop: the compiler writes the loop out, so that arrays it goes over lie in registers."""
    def emit(context, builder, signature, args):
        def branch(target):
            del builder.branch
            jump, module = builder.branch(target), builder.module
            hint = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.full")])
            mark = ir.MDValue(module, [hint], name=str(len(module.metadata)))
            mark.operands = (mark, hint)
            jump.set_metadata("llvm.loop", mark)
            return jump
        builder.branch = branch
        return context.get_dummy_value()
    return types.none(), emit

larger = ptx("max.NaN.f32 $0, $1, $2;", "f", "ff")
smaller = ptx("min.NaN.f32 $0, $1, $2;", "f", "ff")

def over_lanes(both):
    """What `both` makes of the values of so many lanes; every lane gets it."""
    @cuda.jit(device=True, forceinline=True)
    def of_all(value, width):
        for step in range(5):
            by = width >> step + 1
            if by > 0:
                value = both(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, by))
        return value
    return of_all

sum_over = over_lanes(cuda.jit(device=True, forceinline=True)(lambda a, b: type(a)(a + b)))
larger_over = over_lanes(larger)

def to_whole(mode):
    """A float rounded to a whole number, as a float."""
    def typed(context, a):
        def emit(context, builder, signature, args):
            letter, kind = ("f", "f32") if a == types.float32 else ("d", "f64")
            text = "cvt." + mode + "." + kind + "." + kind + " $0, $1;"
            return builder.call(ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type]), text, "=" + letter + "," + letter), args)
        return a(a), emit
    return intrinsic(typed)

rint = to_whole("rni")

@cuda.jit(device=True)
def half_turns(x):
    """An angle in half turns between −1 and 1, as exact as a float32."""
    turns = f8(x) * 0.15915494309189535
    return f4(2 * (turns - rint(turns)))

@cuda.jit(device=True)
def cos(x):
    """Of an angle made small in float64: no x is so large that it takes numbers or tables in memory."""
    return type(x)(libdevice.cospif(half_turns(x)))

@cuda.jit(device=True)
def sin(x):
    """As cos."""
    return type(x)(libdevice.sinpif(half_turns(x)))

load_4 = ptx("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_4(pointer, there)
    for k in range(4):
        v[first + k] = numbers[k]

copy_chunk = ptx("cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr", memory=True)
copies_end = ptx("cp.async.commit_group;", "", "", memory=True)
wait_for_copies = ptx("cp.async.wait_group 0;", "", "", memory=True)
wait_for_all_but_the_last = ptx("cp.async.wait_group 1;", "", "", memory=True)

def width_of(count):
    """Bytes of a row of so many numbers in shared memory: whole groups of eight chunks."""
    return -(-count * SIZE // 128) * 128

load_two = ptx("ld.global.v2.f32 {$0, $1}, [$2];", "ff", "l", memory=True)
load_single = ptx("ld.global.f32 $0, [$1];", "f", "l", memory=True)
store_two = ptx("st.global.v2.f32 [$0], {$1, $2};", "", "lff", memory=True)
store_single = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def bounded(factor):
    """A factor that leaves 0 what is 0, be it infinite; NaN stays."""
    return larger(smaller(factor, f4(3.4028235e38)), f4(-3.4028235e38))

@cuda.jit(device=True, forceinline=True)
def chunk_at(row, chunk, width, height):
    """Where a chunk of a row lies in a tile whose rows are `width` bytes long."""
    return i4(i4(row * width) + i4(i4(chunk ^ i4(row & 7)) << 4))

@cuda.jit(device=True, forceinline=True)
def further(place, rows, chunks, width, height):
    """So many rows and chunks further on, if both have no bits in common with the row and the chunk at `place`: where these are known, so is the distance."""
    distance = chunk_at(rows, chunks, width, height)
    return i4(i4(place ^ i4(distance & 127)) + i4(distance & -128))

@cuda.jit(device=True, forceinline=True)
def take_left(source, column, columns, pair):
    """Two neighbouring columns of what a part left of a row, beyond the last those of the last; together where rows begin at even places."""
    if columns % 2 == 0:
        pair[0], pair[1] = load_two(source + min(column, columns - 2) * 4)
    else:
        pair[0], pair[1] = load_single(source + min(column, columns - 1) * 4), load_single(source + min(column + 1, columns - 1) * 4)

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

load_four = ptx("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "ffff", "r", memory=True)
load_pair = ptx("ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "r", memory=True)
keep_four = ptx("st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "rffff", memory=True)
keep_pair = ptx("st.shared.v2.f32 [$0], {$1, $2};", "", "rff", memory=True)
keep_number = ptx("st.shared.f32 [$0], $1;", "", "rf", memory=True)
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
def multiply_rows(left, right, lane, steps, width, tile, s):
    """s += left · rightᵀ for the 16 rows at `left`, both with rows of 16 · steps numbers."""
    left, right = i4(left + chunk_at(i4(lane >> 2), 0, width, 16)), i4(right + chunk_at(i4(2 * (lane & 3)), 0, width, tile))
    for k in range(4 * steps):
        a, b = load_four(further(left, 0, k, width, 16)), load_four(further(left, 8, k, width, 16))
        for i in range(tile // 4):
            c = load_four(further(right, 8 * (i // 2) + i % 2, k, width, tile))
            s[0, i] += a[0] * c[0] + a[1] * c[1] + (a[2] * c[2] + a[3] * c[3])
            s[1, i] += b[0] * c[0] + b[1] * c[1] + (b[2] * c[2] + b[3] * c[3])

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

SIZE, CHUNK = 4, 4


@cache
def make(stage, warps, TILE, even, n_k, n_j, n_plane):
    """The kernel in which a block has 16 rows per warp, tiles are TILE elements long, and rows along `even` axes have
    whole vectors: of "whole" rows, of a "part" of each, or the "join" of parts."""
    ROWS, THREADS, COLUMNS, splits, joins = 16 * warps, 32 * warps, TILE // 4, stage == 'part', stage == 'join'
    even_k = 'k' in even
    even_j = 'j' in even
    SPAN_j = span_of(n_j)
    AT_left_S1, WIDTH_left_S1 = 0, width_of(n_k)
    AT_left_S1_1, WIDTH_left_S1_1 = AT_left_S1 + ROWS * WIDTH_left_S1, width_of(n_k)
    STAGES = AT_left_S1_1 + ROWS * WIDTH_left_S1_1
    AT_right_S1, WIDTH_right_S1 = 0, width_of(n_k)
    AT_right_S1_1, WIDTH_right_S1_1 = AT_right_S1 + TILE * WIDTH_right_S1, width_of(n_k)
    AT_V, WIDTH_V = AT_right_S1_1 + TILE * WIDTH_right_S1_1, width_of(SPAN_j)
    STAGE = AT_V + TILE * WIDTH_V
    PER_left_S1, LANES_left_S1 = (CHUNK // n_plane, 8 * n_plane) if even_k and 2 * n_plane <= CHUNK and CHUNK % n_plane == 0 else (1, 32)
    PER_left_S1_1, LANES_left_S1_1 = (CHUNK // n_plane, 8 * n_plane) if even_k and 2 * n_plane <= CHUNK and CHUNK % n_plane == 0 else (1, 32)
    PER_right_S1, LANES_right_S1 = (CHUNK // n_plane, 8 * n_plane) if even_k and 2 * n_plane <= CHUNK and CHUNK % n_plane == 0 else (1, 32)
    SCORES = 2, COLUMNS
    SUMS_j = 2, SPAN_j // 4
    BYTES, _ = needs(warps, TILE, n_k, n_j, n_plane)

    @cuda.jit(device=True, forceinline=True)
    def make_left_S1(to, t0, thread, n_plane, p_Q, n_m, n_k, begin_m):
        y_left_S1 = cuda.local.array(CHUNK, f4)
        v_Q = cuda.local.array(CHUNK, f4)
        for panel in range(WIDTH_left_S1 // SIZE // (LANES_left_S1 * PER_left_S1)):
            column = i4(i4((thread & LANES_left_S1 - 1) + LANES_left_S1 * panel) * PER_left_S1)
            for i in range(ROWS * LANES_left_S1 // THREADS):
                row = i4(i4(np.uint32(thread) // LANES_left_S1) + i * (THREADS // LANES_left_S1))
                at_m, first_k = i4(begin_m + row), i4(0 + column)
                there = (at_m < n_m) & (first_k < n_k)
                if PER_left_S1 > 1:
                    load_vector(p_Q + (i8(at_m) * n_k + first_k) * n_plane * SIZE, there, v_Q, 0)
                for e in range(PER_left_S1):
                    at_k = i4(first_k + e)
                    t1 = 0
                    t2 = (t1 >= 0) & (t1 < n_plane)
                    at_plane = sel(t2, i4(t1), i4(0))
                    if PER_left_S1 > 1:
                        t3 = v_Q[e * n_plane + at_plane]
                    else:
                        t3 = load_one(p_Q + ((at_m * n_k + at_k) * n_plane + at_plane) * SIZE, there & (at_m < n_m) & (at_k < n_k) & (at_plane < n_plane))
                    t8 = f4(at_m) * f4(10.0) ** f4(-at_k)
                    t11 = 1
                    t12 = (t11 >= 0) & (t11 < n_plane)
                    at_plane = sel(t12, i4(t11), i4(0))
                    if PER_left_S1 > 1:
                        t13 = v_Q[e * n_plane + at_plane]
                    else:
                        t13 = load_one(p_Q + ((at_m * n_k + at_k) * n_plane + at_plane) * SIZE, there & (at_m < n_m) & (at_k < n_k) & (at_plane < n_plane))
                    t18 = (f4(0.0) + sel(t2, t3, f4(0.0))) * cos(t8) - (f4(0.0) + sel(t12, t13, f4(0.0))) * sin(t8)
                    y_left_S1[e] = sel(there & (at_k < n_k), t18, f4(0))
                place = i4(to + chunk_at(row, column // CHUNK, WIDTH_left_S1, ROWS) + column % CHUNK * SIZE)
                keep_numbers(i4(place + AT_left_S1), y_left_S1, PER_left_S1)

    @cuda.jit(device=True, forceinline=True)
    def make_left_S1_1(to, t0, thread, n_plane, p_Q, n_m, n_k, begin_m):
        y_left_S1_1 = cuda.local.array(CHUNK, f4)
        v_Q = cuda.local.array(CHUNK, f4)
        for panel in range(WIDTH_left_S1_1 // SIZE // (LANES_left_S1_1 * PER_left_S1_1)):
            column = i4(i4((thread & LANES_left_S1_1 - 1) + LANES_left_S1_1 * panel) * PER_left_S1_1)
            for i in range(ROWS * LANES_left_S1_1 // THREADS):
                row = i4(i4(np.uint32(thread) // LANES_left_S1_1) + i * (THREADS // LANES_left_S1_1))
                at_m, first_k = i4(begin_m + row), i4(0 + column)
                there = (at_m < n_m) & (first_k < n_k)
                if PER_left_S1_1 > 1:
                    load_vector(p_Q + (i8(at_m) * n_k + first_k) * n_plane * SIZE, there, v_Q, 0)
                for e in range(PER_left_S1_1):
                    at_k = i4(first_k + e)
                    t1 = 0
                    t2 = (t1 >= 0) & (t1 < n_plane)
                    at_plane = sel(t2, i4(t1), i4(0))
                    if PER_left_S1_1 > 1:
                        t3 = v_Q[e * n_plane + at_plane]
                    else:
                        t3 = load_one(p_Q + ((at_m * n_k + at_k) * n_plane + at_plane) * SIZE, there & (at_m < n_m) & (at_k < n_k) & (at_plane < n_plane))
                    t8 = f4(at_m) * f4(10.0) ** f4(-at_k)
                    t11 = 1
                    t12 = (t11 >= 0) & (t11 < n_plane)
                    at_plane = sel(t12, i4(t11), i4(0))
                    if PER_left_S1_1 > 1:
                        t13 = v_Q[e * n_plane + at_plane]
                    else:
                        t13 = load_one(p_Q + ((at_m * n_k + at_k) * n_plane + at_plane) * SIZE, there & (at_m < n_m) & (at_k < n_k) & (at_plane < n_plane))
                    t18 = (f4(0.0) + sel(t2, t3, f4(0.0))) * sin(t8) + (f4(0.0) + sel(t12, t13, f4(0.0))) * cos(t8)
                    y_left_S1_1[e] = sel(there & (at_k < n_k), t18, f4(0))
                place = i4(to + chunk_at(row, column // CHUNK, WIDTH_left_S1_1, ROWS) + column % CHUNK * SIZE)
                keep_numbers(i4(place + AT_left_S1_1), y_left_S1_1, PER_left_S1_1)

    @cuda.jit(device=True, forceinline=True)
    def make_right_S1_right_S1_1(to, t0, thread, n_plane, p_K, n_l, n_k):
        y_right_S1 = cuda.local.array(CHUNK, f4)
        y_right_S1_1 = cuda.local.array(CHUNK, f4)
        v_K = cuda.local.array(CHUNK, f4)
        for panel in range(WIDTH_right_S1 // SIZE // (LANES_right_S1 * PER_right_S1)):
            column = i4(i4((thread & LANES_right_S1 - 1) + LANES_right_S1 * panel) * PER_right_S1)
            for i in range(TILE * LANES_right_S1 // THREADS):
                row = i4(i4(np.uint32(thread) // LANES_right_S1) + i * (THREADS // LANES_right_S1))
                at_l, first_k = i4(t0 + row), i4(0 + column)
                there = (at_l < n_l) & (first_k < n_k)
                if PER_right_S1 > 1:
                    load_vector(p_K + (i8(at_l) * n_k + first_k) * n_plane * SIZE, there, v_K, 0)
                for e in range(PER_right_S1):
                    at_k = i4(first_k + e)
                    t1 = 0
                    t2 = (t1 >= 0) & (t1 < n_plane)
                    at_plane = sel(t2, i4(t1), i4(0))
                    if PER_right_S1 > 1:
                        t3 = v_K[e * n_plane + at_plane]
                    else:
                        t3 = load_one(p_K + ((at_l * n_k + at_k) * n_plane + at_plane) * SIZE, there & (at_l < n_l) & (at_k < n_k) & (at_plane < n_plane))
                    t5 = f4(0.0) + sel(t2, t3, f4(0.0))
                    t8 = f4(at_l) * f4(10.0) ** f4(-at_k)
                    t9 = cos(t8)
                    t11 = 1
                    t12 = (t11 >= 0) & (t11 < n_plane)
                    at_plane = sel(t12, i4(t11), i4(0))
                    if PER_right_S1 > 1:
                        t13 = v_K[e * n_plane + at_plane]
                    else:
                        t13 = load_one(p_K + ((at_l * n_k + at_k) * n_plane + at_plane) * SIZE, there & (at_l < n_l) & (at_k < n_k) & (at_plane < n_plane))
                    t15 = f4(0.0) + sel(t12, t13, f4(0.0))
                    t16 = sin(t8)
                    y_right_S1[e] = sel(there & (at_k < n_k), t5 * t9 - t15 * t16, f4(0))
                    y_right_S1_1[e] = sel(there & (at_k < n_k), t5 * t16 + t15 * t9, f4(0))
                place = i4(to + chunk_at(row, column // CHUNK, WIDTH_right_S1, TILE) + column % CHUNK * SIZE)
                keep_numbers(i4(place + AT_right_S1), y_right_S1, PER_right_S1)
                keep_numbers(i4(place + AT_right_S1_1), y_right_S1_1, PER_right_S1)

    @cuda.jit(device=True, forceinline=True)
    def fetch(to, t0, p_V, begin_j, begin_m, n_l, n_m, thread, n_plane, p_K, n_k):
        make_right_S1_right_S1_1(to, t0, thread, n_plane, p_K, n_l, n_k)
        load_tile(to + AT_V, p_V + (t0 * n_j + begin_j) * SIZE, n_j * SIZE, i4(n_l - t0), n_j - begin_j, TILE, WIDTH_V, even_j, thread, THREADS)

    @cuda.jit(device=True, forceinline=True)
    def fold(full, held_m2, held_s2, S1, scale, n_l, first_l, p_s, o_s):
        for r in range(2):
            m2_old = held_m2[r]
            s2_old = held_s2[r]
            m2 = m2_old
            m2_it = f4(-inf)
            for i_l in range(COLUMNS):
                at_l = i4(first_l + i_l // 2 * 8 + i_l % 2)
                ok = full | (at_l < n_l)
                m2_it = larger(m2_it, sel(ok, S1[r, i_l] * f4(scale), f4(-inf)))
                unrolled()
            m2 = larger(m2, larger_over(m2_it, 4))
            t3 = sel(math.isfinite(m2), m2, f4(0.0))
            t5 = math.exp(sel(math.isfinite(m2_old), m2_old, f4(0.0)) - t3)
            s2 = sel(s2_old == f4(0.0), f4(0.0), t5 * s2_old)
            s2_it = f4(0.0)
            for i_l in range(COLUMNS):
                at_l = i4(first_l + i_l // 2 * 8 + i_l % 2)
                t9 = math.exp(f4(scale) * S1[r, i_l] - t3)
                ok = full | (at_l < n_l)
                s2_it = s2_it + sel(ok, t9, f4(0.0))
                p_s[r, i_l] = sel(ok, t9, f4(0))
                unrolled()
            s2 = s2 + sum_over(s2_it, 4)
            t10 = bounded(t5)
            for i_j in range(SPAN_j // 4):
                o_s[r, i_j] = t10 * o_s[r, i_j]
                unrolled()
            held_m2[r] = m2
            held_s2[r] = s2
            unrolled()

    @cuda.jit(device=True, forceinline=True)
    def merge(item, part, parts, n_m, held_m2, part_m2, held_s2, part_s2, n_j, part_s, b_s, o_s, first_j, first_m):
        for r in range(2):
            at_m = i4(first_m + 8 * r)
            if at_m >= n_m:
                break
            place = (item * n_m + at_m) * parts + part
            m2_old, m2_part = held_m2[r], part_m2[place]
            s2_old, s2_part = held_s2[r], part_s2[place]
            m2 = larger(m2_old, m2_part)
            t2 = sel(math.isfinite(m2), m2, f4(0.0))
            t4 = math.exp(sel(math.isfinite(m2_old), m2_old, f4(0.0)) - t2)
            t8 = math.exp(sel(math.isfinite(m2_part), m2_part, f4(0.0)) - t2)
            s2 = sel(s2_old == f4(0.0), f4(0.0), t4 * s2_old) + sel(s2_part == f4(0.0), f4(0.0), t8 * s2_part)
            t10 = bounded(t4)
            t12 = bounded(t8)
            for i_j in range(SPAN_j // 4):
                at_j = i4(first_j + i_j // 2 * 8 + i_j % 2)
                if i_j % 2 == 0:
                    take_left(address(part_s) + place * n_j * 4, at_j, n_j, b_s)
                o_s[r, i_j] = t10 * o_s[r, i_j] + t12 * b_s[i_j % 2]
                unrolled()
            held_m2[r] = m2
            held_s2[r] = s2
            unrolled()

    @cuda.jit(device=True, forceinline=True)
    def finish(held_m2, held_s2, o_s, y_0):
        for r in range(2):
            m2 = held_m2[r]
            s2 = held_s2[r]
            t1 = m2
            t3 = math.exp(t1 - t1)
            t4 = t3 != t3
            t9 = math.exp(sel(m2 - m2 == f4(0.0), m2, f4(0)) - m2)
            t10 = bounded(t9)
            for i_j in range(SPAN_j // 4):
                o_s[r, i_j] = sel(t4, t10 * o_s[r, i_j], o_s[r, i_j])
                unrolled()
            s2 = sel(t4, t9 * s2, s2)
            t15 = f4(1.0) / s2
            for i_j in range(SPAN_j // 4):
                y_0[r, i_j] = o_s[r, i_j] * t15
                unrolled()
            unrolled()

    @cuda.jit(launch_bounds=(THREADS, 1))
    def kernel(Q, s_Q, K, s_K, V, s_V, scale, n_m, n_l, parts, piece, part_m2, part_s2, part_s, out_0):
        thread, number, part = i4(cuda.threadIdx.x), i8(cuda.blockIdx.x), i8(0)
        if not joins:
            part, number = number % parts, number // parts
        lane, warp = thread % 32, thread // 32
        begin_j = number % -(-n_j // SPAN_j) * SPAN_j
        number //= -(-n_j // SPAN_j)
        first_j = begin_j + (lane & 3) * 2
        blocks = -(-n_m // ROWS)
        begin_m = (blocks - 1 - number % blocks) * ROWS
        first_m = begin_m + warp * 16 + lane // 4
        item = number // blocks
        rest = item
        o_Q = rest * s_Q
        p_Q = address(Q) + o_Q * SIZE
        o_K = rest * s_K
        p_K = address(K) + o_K * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        S1 = cuda.local.array(SCORES, f4)
        p_s = cuda.local.array(SCORES, f4)
        o_s = cuda.local.array(SUMS_j, f4)
        held_m2 = cuda.local.array(2, f4)
        held_s2 = cuda.local.array(2, f4)
        for r in range(2):
            held_m2[r] = f4(-inf)
            held_s2[r] = f4(0.0)
            for i in range(SPAN_j // 4):
                o_s[r, i] = f4(0)
        shared = shared_address(cuda.shared.array(BYTES, types.uint8, 1024))
        if joins:
            b_s = cuda.local.array(2, f4)
            for part in range(parts):
                seen_old, seen_part = part * piece, min(piece, n_l - part * piece)
                seen = seen_old + seen_part
                merge(item, part, parts, n_m, held_m2, part_m2, held_s2, part_s2, n_j, part_s, b_s, o_s, first_j, first_m)
        else:
            begin = i4(part * piece)
            end = i4(min(begin + piece, n_l))
            t0, half = begin, i4(0)
            make_left_S1(shared, t0, thread, n_plane, p_Q, n_m, n_k, begin_m)
            make_left_S1_1(shared, t0, thread, n_plane, p_Q, n_m, n_k, begin_m)
            if t0 < end:
                fetch(shared + STAGES, t0, p_V, begin_j, begin_m, n_l, n_m, thread, n_plane, p_K, n_k)
            copies_end()
            while t0 < end:
                ahead = i4(t0 + TILE)
                if ahead < end:
                    fetch(shared + STAGES + (1 - half) * STAGE, ahead, p_V, begin_j, begin_m, n_l, n_m, thread, n_plane, p_K, n_k)
                copies_end()
                wait_for_all_but_the_last()
                cuda.syncthreads()
                tile = shared + STAGES + half * STAGE
                first_l = i4(t0 + lane % 4 * 2)
                many = min(i4(TILE), i4(n_l - t0))
                seen, seen_old = i4(t0 - begin + many), i4(t0 - begin)
                for r in range(2):
                    for i in range(COLUMNS):
                        S1[r, i] = f4(0)
                multiply_rows(shared + AT_left_S1 + warp * 16 * WIDTH_left_S1, tile + AT_right_S1, lane, -(-n_k // 16), WIDTH_left_S1, TILE, S1)
                multiply_rows(shared + AT_left_S1_1 + warp * 16 * WIDTH_left_S1_1, tile + AT_right_S1_1, lane, -(-n_k // 16), WIDTH_left_S1_1, TILE, S1)
                if many == TILE:
                    fold(True, held_m2, held_s2, S1, scale, n_l, first_l, p_s, o_s)
                else:
                    fold(False, held_m2, held_s2, S1, scale, n_l, first_l, p_s, o_s)
                add_weighted_rows(p_s, tile + AT_V, lane, WIDTH_V, TILE, SPAN_j, o_s)
                cuda.syncthreads()
                t0, half = ahead, i4(1 - half)
            wait_for_copies()
            cuda.syncthreads()
        if splits:
            for r in range(2):
                inside = first_m + 8 * r < n_m
                place = (item * n_m + first_m + 8 * r) * parts + part
                if inside and lane % 4 == 0 and begin_j == 0:
                    part_m2[place] = held_m2[r]
                    part_s2[place] = held_s2[r]
                for i in range(SPAN_j // 8):
                    column, first, second = first_j + 2 * i // 2 * 8 + 2 * i % 2, 2 * i, 2 * i + 1
                    at = address(part_s) + (place * n_j + column) * 4
                    if n_j % 2 == 0 and inside and column < n_j:
                        store_two(at, o_s[r, first], o_s[r, second])
                    if n_j % 2 == 1:
                        for own in range(2):
                            if inside and column + own < n_j:
                                store_single(at + 4 * own, o_s[r, first + own])
        else:
            y_0 = cuda.local.array(SUMS_j, f4)
            finish(held_m2, held_s2, o_s, y_0)
            store_tile(shared, y_0, address(out_0) + ((item * n_m + begin_m) * n_j + begin_j) * SIZE, n_j * SIZE, n_m - begin_m, n_j - begin_j, ROWS, SPAN_j, even_j, thread, THREADS)

    return kernel


SCHEDULES, WIDEST = ((4, 64), (4, 32), (2, 64), (2, 32), (1, 64), (1, 32), (4, 16), (2, 16), (1, 16)), 256

def span_of(count):
    """How many columns a block takes: all, if registers hold them."""
    return -(-count // 16) * 16 if count <= WIDEST else WIDEST // 32 * 16


def needs(warps, TILE, n_k, n_j, n_plane):
    """Bytes of shared memory for tiles that stay and two stages of those that come, or for results; numbers in the fragments of a lane."""
    ROWS = 16 * warps
    SPAN_j = span_of(n_j)
    return max(ROWS * width_of(n_k) + ROWS * width_of(n_k) + 2 * (TILE * width_of(n_k) + TILE * width_of(n_k) + TILE * width_of(SPAN_j)), ROWS * width_of(SPAN_j)), 2 * TILE // 2 + SPAN_j // 2


AXES = {'Q': ('m', 'k', 'plane'), 'K': ('l', 'k', 'plane'), 'V': ('l', 'j')}
DTYPES = {'Q': np.float32, 'K': np.float32, 'V': np.float32}
OUTPUTS = [(('m', 'j'), np.float32)]
HELD = [(np.float32, ()), (np.float32, ()), (np.float32, ('j',))]


def checked(arrays):
    """Lengths of axes, the batch's shape, and how far apart an array's parts of the batch are; raises ValueError for arrays that do not fit."""
    sizes, leading, steps = {}, (), {}
    for name, array in arrays.items():
        there, own = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None), AXES[name]
        if there is None:
            raise TypeError(f"{name} is {type(array).__name__}, which is no array; give one of NumPy, CuPy or torch")
        shape, dtype = tuple(there["shape"]), np.dtype(there["typestr"])
        ahead, inner = shape[:len(shape) - len(own)], shape[len(shape) - len(own):] if own else ()
        dense = tuple(dtype.itemsize * math.prod(shape[n + 1:]) for n in range(len(shape)))
        for right, wrong in ((len(shape) >= len(own), f"it needs the axes {own}, after any batch axes"),
                             (dtype == DTYPES[name], f"it holds {dtype}, and this kernel was made for {np.dtype(DTYPES[name])}; convert it"),
                             (there.get("strides") in (None, dense), "it is not contiguous; make a contiguous copy of it"),
                             (there["data"][0] % dtype.itemsize == 0, f"its elements are not at multiples of {dtype.itemsize} bytes; make a copy of it"),
                             (all(0 < size <= 2**31 - 2**16 for size in shape), "each axis needs from 1 to 2^31 - 2^16 elements; reduce parts of it"),
                             (not ahead or ahead == (leading or ahead), f"its batch axes are {ahead}, elsewhere {leading}; give an array all or none"),
                             (all(sizes.get(axis, size) == size for axis, size in zip(own, inner)), f"lengths must agree, and elsewhere are {sizes}")):
            if not right:
                raise ValueError(f"{name} of shape {shape}: {wrong}")
        sizes.update(zip(own, inner))
        leading, steps[name] = leading or ahead, np.int64(math.prod(inner) if ahead else 0)
    return sizes, leading, steps


def plan(Q, K, V, scale):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays, numbers = {'Q': Q, 'K': K, 'V': V}, {'scale': np.float64(scale)}
    sizes, leading, steps = checked(arrays)
    groups = math.prod(leading)
    aligned = all(getattr(each, "__cuda_array_interface__", {"data": [0]})["data"][0] % 16 == 0 for each in arrays.values())
    even = tuple(axis for axis, vector in {'k': CHUNK, 'j': CHUNK}.items() if aligned and sizes[axis] % vector == 0)
    fits = lambda warps, tile, shared, numbers: shared <= 49152 and numbers <= 160 and (warps == 1 or 8 * warps < sizes['m'])
    schedules = [each for each in SCHEDULES if fits(*each, *needs(*each, sizes['k'], sizes['j'], sizes['plane']))]
    if not schedules:
        raise ValueError(f"rows as long as {sizes} fit neither into shared memory nor into registers; shorten the axes that are no rows")
    warps, tile = schedules[0]
    blocks = groups * -(-sizes['m'] // (16 * warps)) * -(-sizes['j'] // span_of(sizes['j']))
    parts = max(1, min(64, 256 // blocks, sizes['l'] // 512))
    piece = -(-sizes['l'] // (parts * tile)) * tile
    parts = -(-sizes['l'] // piece)
    make_for = (warps, tile, even, sizes['k'], sizes['j'], sizes['plane'])
    launches = [(('part', *make_for), blocks * parts, 32 * warps), (('join', *make_for), blocks, 32 * warps)]
    launches = launches if parts > 1 else [(('whole', *make_for), blocks, 32 * warps)]
    items = groups * sizes['m'] if parts > 1 else 1
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*numbers.values(), *(np.int32(sizes[axis]) for axis in ('m', 'l')), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(Q, K, V, scale, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(Q, K, V, scale)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('m', 'k', 'plane', 'l', 'j')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(ALL_AXES) - len(own)))]
    return np.moveaxis(array, range(-len(ALL_AXES), len(own) - len(ALL_AXES)), own)


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in ALL_AXES])


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    own = axes.split()
    full = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), tuple(lengths[axis] if axis in own else 1 for axis in ALL_AXES)))
    moved = np.moveaxis(full, [along(axis) for axis in own], range(-len(own), 0))
    return moved.reshape(full.shape[:full.ndim - len(ALL_AXES)] + tuple(lengths[axis] for axis in own))


def parts(result):
    """One array per output."""
    values = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
    return [np.asarray(value, np.float64) for value in values]


def distance(got, wanted):
    """The largest difference, in units of the largest value; infinities and NaN have to be the same."""
    errors = []
    for a, b in zip(parts(got), parts(wanted)):
        if b.shape != a.shape[a.ndim - b.ndim:]:
            return np.inf
        b = np.broadcast_to(b, a.shape)
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
            return np.inf
        errors.append(np.abs(a[finite] - b[finite]).max(initial=0.0) / max(np.abs(b[finite]).max(initial=0.0), 1e-30))
    return max(errors)


def definition(Q, K, V, scale):
    """rope_attention as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    Q = spread(Q, 'm k plane')
    K = spread(K, 'l k plane')
    V = spread(V, 'l j')
    lengths = {"m": Q.shape[-5], "k": Q.shape[-4], "plane": Q.shape[-3], "l": K.shape[-2], "j": V.shape[-1]}
    t1 = positions("plane", lengths["plane"]) == 0
    d1 = np.sum(np.where(t1, Q, 0), along("plane"), keepdims=True)
    t2 = 10.0 ** -positions("k", lengths["k"])
    t3 = positions("m", lengths["m"]) * t2
    t4 = np.cos(t3)
    t5 = positions("plane", lengths["plane"]) == 1
    d2 = np.sum(np.where(t5, Q, 0), along("plane"), keepdims=True)
    t6 = np.sin(t3)
    d3 = np.sum(np.where(t1, K, 0), along("plane"), keepdims=True)
    t7 = positions("l", lengths["l"]) * t2
    t8 = np.cos(t7)
    d4 = np.sum(np.where(t5, K, 0), along("plane"), keepdims=True)
    t9 = np.sin(t7)
    t10 = np.sum((d1 * t4 - d2 * t6) * (d3 * t8 - d4 * t9) + (d1 * t6 + d2 * t4) * (d3 * t9 + d4 * t8), along("k"), keepdims=True) * scale
    t11 = np.exp(t10 - np.max(t10, along("l"), keepdims=True))
    return taken_out(np.sum(t11 * V, along("l"), keepdims=True) / np.sum(t11, along("l"), keepdims=True), 'm j', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"Q": rng.standard_normal((3, 4, 5)).astype(DTYPES['Q']),
                  "K": rng.standard_normal((3, length, 4, 5)).astype(DTYPES['K']),
                  "V": rng.standard_normal((3, length, 7)).astype(DTYPES['V'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values(), 1.0)
        errors[length] = distance(launch(*arrays.values(), 1.0), wanted)
        print(f"rope_attention, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
