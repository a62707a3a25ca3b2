"""barlow_twins: one pass over l, 6 words of state per row, commutative merge.

X_ij = mean â_li ĉ_lj of standardised views; y = Σ_i (X_ii − 1)² + 0.005 Σ_{i≠j} X_ij².

The operator
    barlow_twins(A[l, i], C[l, j]):
        t1 = A - sum(A, l) / size(l)
        t2 = C - sum(C, l) / size(l)
        t3 = sum(t1 / sqrt(sum(t1 ** 2, l) / size(l)) * (t2 / sqrt(sum(t2 ** 2, l) / size(l))), l) / size(l)
        return sum(sum(where(index(i) == index(j), (t3 - 1.0) ** 2, 0.005 * t3 ** 2), j), i)

One more element (a prime marks the new value)
    s'  = s + A[l,i]
    N'  = N + 1
    p1' = s'/N'
    δ1  = p1 − p1'
    s2' = s2 + δ1²·N + (A[l,i] − p1')²
    s3' = s3 + C[l,j]
    p2' = s3'/N'
    δ2  = p2 − p2'
    s4' = s4 + δ2²·N + (C[l,j] − p2')²
    s1' = s1 + δ1·δ2·N + (A[l,i] − p1')·(C[l,j] − p2')

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s2'  = s2_a + δ1_a²·N_a + s2_b + δ1_b²·N_b
    s3'  = s3_a + s3_b
    p2_a = s3_a/N_a
    p2_b = s3_b/N_b
    p2'  = s3'/N'
    δ2_a = p2_a − p2'
    δ2_b = p2_b − p2'
    s4'  = s4_a + δ2_a²·N_a + s4_b + δ2_b²·N_b
    s1'  = s1_a + δ1_a·δ2_a·N_a + s1_b + δ1_b·δ2_b·N_b

Dangers
    p3 divides and may be 0: the result is then what IEEE division gives
    p4 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 ab7eef29c1316387236a8ebe346456cab32cfdfff6f7b6e0f68c9cc3fd4d456b
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python barlow_twins_cuda.py` checks it on a GPU.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
from functools import cache

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
nan = np.nan
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

@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    return a(types.boolean, a, a), lambda context, builder, signature, args: builder.select(*args)

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

def turns_of(width, banks):
    """How places are turned so that neither a row of them nor a column of the tile meets a bank twice: (shift, mask)."""
    power = width & -width
    return max(banks, power).bit_length() - 1, min(power, banks) - 1

@cuda.jit(device=True)
def cell(element, width, column, shift, mask):
    """Where a column of an element of the tile lies in shared memory."""
    place = i4(element * width + column)
    return np.uint32(place ^ i4(place >> shift & mask))

@cuda.jit(device=True)
def stage_real(cells, pointer, low, high, steps, shift, mask, thread, span):
    """Fill shared memory with real numbers; before `low` and from `high` on with 0."""
    low, high = i4(low), i4(high)
    for step in range(steps):
        word = i4(step * span + thread)
        cells[np.uint32(word ^ i4(word >> shift & mask))] = load_one(pointer + word * SIZE, word >= low and word < high)

load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 4, 1
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def value_p1(into, N, s, n_i):
    t1 = 1.0 / f8(N)
    for i_i in range(n_i):
        into[i_i] = s[i_i] * t1


@cuda.jit(device=True)
def value_p2(into, N, s3, n_j):
    t1 = 1.0 / f8(N)
    for i_j in range(n_j):
        into[i_j] = s3[i_j] * t1


@cuda.jit(device=True)
def rebase_s2(into, s2, p1, p1_new, N, n_i):
    for i_i in range(n_i):
        t3 = (p1[i_i] if math.isfinite(p1[i_i]) else 0.0) - (p1_new[i_i] if math.isfinite(p1_new[i_i]) else 0.0)
        into[i_i] = s2[i_i] + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s4(into, s4, p2, p2_new, N, n_j):
    for i_j in range(n_j):
        t3 = (p2[i_j] if math.isfinite(p2[i_j]) else 0.0) - (p2_new[i_j] if math.isfinite(p2_new[i_j]) else 0.0)
        into[i_j] = s4[i_j] + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s1(into, n_j, s1, p1, p1_new, p2, p2_new, N, n_i):
    for i_i in range(n_i):
        t3 = (p1[i_i] if math.isfinite(p1[i_i]) else 0.0) - (p1_new[i_i] if math.isfinite(p1_new[i_i]) else 0.0)
        for i_j in range(n_j):
            t6 = (p2[i_j] if math.isfinite(p2[i_j]) else 0.0) - (p2_new[i_j] if math.isfinite(p2_new[i_j]) else 0.0)
            into[i_i * n_j + i_j] = s1[i_i * n_j + i_j] + (0.0 if f8(N) == 0.0 else t3 * t6 * f8(N))


@cuda.jit(device=True)
def fold(seen_old, N_old, slots, first, span, thread, length, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, cells_A, skew_A, shift_A, mask_A, cells_C, skew_C, shift_C, mask_C, p1, p2, s2, s4, s1):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, N_old
    seen = i4(seen_old + many)
    for word in range(n_i):
        s_old[word] = s[word]
    for word in range(n_j):
        s3_old[word] = s3[word]
    value_p1(p1_old, N_old, s_old, n_i)
    value_p2(p2_old, N_old, s3_old, n_j)
    N = N_old + 1 * many
    for i_l in range(slots):
        for i_i in range(n_i):
            s[i_i] = s[i_i] + sel(i4(first + i_l * span + thread) < i4(length), f8(cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)]), 0.0)
    for i_l in range(slots):
        for i_j in range(n_j):
            s3[i_j] = s3[i_j] + sel(i4(first + i_l * span + thread) < i4(length), f8(cells_C[cell(i_l * span + thread, n_j, i_j + skew_C, shift_C, mask_C)]), 0.0)
    value_p1(p1, N, s, n_i)
    value_p2(p2, N, s3, n_j)
    if seen_old > 0:
        rebase_s2(s2, s2, p1_old, p1, N_old, n_i)
    if seen_old > 0:
        rebase_s4(s4, s4, p2_old, p2, N_old, n_j)
    if seen_old > 0:
        rebase_s1(s1, n_j, s1, p1_old, p1, p2_old, p2, N_old, n_i)
    for i_l in range(slots):
        for i_i in range(n_i):
            t1 = f4(p1[i_i]) if math.isfinite(f4(p1[i_i])) else f4(0.0)
            t2 = cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)] - t1
            s2[i_i] = s2[i_i] + sel(i4(first + i_l * span + thread) < i4(length), f8(t2 * t2), 0.0)
    for i_l in range(slots):
        for i_j in range(n_j):
            t4 = f4(p2[i_j]) if math.isfinite(f4(p2[i_j])) else f4(0.0)
            t5 = cells_C[cell(i_l * span + thread, n_j, i_j + skew_C, shift_C, mask_C)] - t4
            s4[i_j] = s4[i_j] + sel(i4(first + i_l * span + thread) < i4(length), f8(t5 * t5), 0.0)
    for i_l in range(slots):
        for i_i in range(n_i):
            t7 = f4(p1[i_i]) if math.isfinite(f4(p1[i_i])) else f4(0.0)
            t8 = cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)] - t7
            for i_j in range(n_j):
                t9 = f4(p2[i_j]) if math.isfinite(f4(p2[i_j])) else f4(0.0)
                t11 = t8 * (cells_C[cell(i_l * span + thread, n_j, i_j + skew_C, shift_C, mask_C)] - t9)
                s1[i_i * n_j + i_j] = s1[i_i * n_j + i_j] + sel(i4(first + i_l * span + thread) < i4(length), f8(t11), 0.0)
    return seen, N


@cuda.jit(device=True)
def combine(seen_old, N_old, width, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, p1, p2, s2, s4, s1):
    seen = sum_over(seen_old, width)
    for word in range(n_i):
        s_old[word] = s[word]
    for word in range(n_j):
        s3_old[word] = s3[word]
    value_p1(p1_old, N_old, s_old, n_i)
    value_p2(p2_old, N_old, s3_old, n_j)
    N = sum_over(N_old, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_j):
                s3[word] = s3[word] + cuda.shfl_xor_sync(4294967295, s3[word], by)
    value_p1(p1, N, s, n_i)
    value_p2(p2, N, s3, n_j)
    if seen_old > 0:
        rebase_s2(s2, s2, p1_old, p1, N_old, n_i)
    if seen_old > 0:
        rebase_s4(s4, s4, p2_old, p2, N_old, n_j)
    if seen_old > 0:
        rebase_s1(s1, n_j, s1, p1_old, p1, p2_old, p2, N_old, n_i)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i):
                s2[word] = s2[word] + cuda.shfl_xor_sync(4294967295, s2[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_j):
                s4[word] = s4[word] + cuda.shfl_xor_sync(4294967295, s4[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i * n_j):
                s1[word] = s1[word] + cuda.shfl_xor_sync(4294967295, s1[word], by)
    return seen, N


@cuda.jit(device=True)
def settle_s2(into, p1, s2, N, n_i):
    for i_i in range(n_i):
        t1 = p1[i_i]
        t2 = t1 - t1
        t4 = 1.0 + t2 * t2
        t11 = (p1[i_i] if p1[i_i] - p1[i_i] == 0.0 else f8(0)) - p1[i_i]
        t14 = s2[i_i] + t11 * t11 * f8(N)
        into[i_i] = (t14 if s2[i_i] - s2[i_i] == 0.0 else nan) if t4 != t4 else s2[i_i]


@cuda.jit(device=True)
def settle_s4(into, p2, s4, N, n_j):
    for i_j in range(n_j):
        t1 = p2[i_j]
        t2 = t1 - t1
        t4 = 1.0 + t2 * t2
        t11 = (p2[i_j] if p2[i_j] - p2[i_j] == 0.0 else f8(0)) - p2[i_j]
        t14 = s4[i_j] + t11 * t11 * f8(N)
        into[i_j] = (t14 if s4[i_j] - s4[i_j] == 0.0 else nan) if t4 != t4 else s4[i_j]


@cuda.jit(device=True)
def settle_s1(into, n_j, p1, p2, s1, N, n_i):
    for i_i in range(n_i):
        t1 = p1[i_i]
        t2 = t1 - t1
        t13 = (p1[i_i] if p1[i_i] - p1[i_i] == 0.0 else f8(0)) - p1[i_i]
        for i_j in range(n_j):
            t3 = p2[i_j]
            t6 = 1.0 + t2 * (t3 - t3)
            t20 = s1[i_i * n_j + i_j] + t13 * ((p2[i_j] if p2[i_j] - p2[i_j] == 0.0 else f8(0)) - p2[i_j]) * f8(N)
            t21 = t20 if s1[i_i * n_j + i_j] - s1[i_i * n_j + i_j] == 0.0 else nan
            into[i_i * n_j + i_j] = t21 if t6 != t6 else s1[i_i * n_j + i_j]


@cuda.jit(device=True)
def value_p3(into, N, s2, n_i):
    t1 = 1.0 / f8(N)
    for i_i in range(n_i):
        into[i_i] = math.sqrt(s2[i_i] * t1)


@cuda.jit(device=True)
def value_p4(into, N, s4, n_j):
    t1 = 1.0 / f8(N)
    for i_j in range(n_j):
        into[i_j] = math.sqrt(s4[i_j] * t1)


@cuda.jit(device=True)
def value_s5(into, n_j, p3, p4, s1, n_i):
    for i_i in range(n_i):
        t1 = 1.0 / p3[i_i]
        for i_j in range(n_j):
            into[i_i * n_j + i_j] = t1 * (1.0 / p4[i_j]) * s1[i_i * n_j + i_j]


@cuda.jit(device=True)
def output_0(n_l, s5, n_j, n_i):
    t1 = 0.0
    t4 = 1.0 / f8(n_l)
    for i_i in range(n_i):
        t2 = 0.0
        for i_j in range(n_j):
            t5 = s5[i_i * n_j + i_j] * t4
            t6 = t5 - 1.0
            t2 = t2 + sel(i_i == i_j, t6 * t6, 0.005 * (t5 * t5))
        t1 = t1 + t2
    return f4(t1)


@cuda.jit(device=True)
def finish(seen, N, p1, n_i, s, s2, p2, n_j, s3, s4, s1, p3, p4, s5):
    value_p1(p1, N, s, n_i)
    settle_s2(s2, p1, s2, N, n_i)
    value_p2(p2, N, s3, n_j)
    settle_s4(s4, p2, s4, N, n_j)
    settle_s1(s1, n_j, p1, p2, s1, N, n_i)
    value_p3(p3, N, s2, n_i)
    value_p4(p4, N, s4, n_j)
    value_s5(s5, n_j, p3, p4, s1, n_i)
    return output_0(seen, s5, n_j, n_i)


@cache
def make(warps, stage, slots, n_i, n_j):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_s = n_i
    words_s3 = n_j
    words_s2 = n_i
    words_s4 = n_j
    words_s1 = n_i * n_j
    words_p1 = n_i
    words_p2 = n_j
    words_p3 = n_i
    words_p4 = n_j
    words_s5 = n_i * n_j
    words_s_old = n_i
    words_s3_old = n_j
    words_p1_old = n_i
    words_p2_old = n_j
    room_s = warps * (words_s | 1)
    room_s3 = warps * (words_s3 | 1)
    room_s2 = warps * (words_s2 | 1)
    room_s4 = warps * (words_s4 | 1)
    room_s1 = warps * (words_s1 | 1)
    words_A = n_i
    shift_A, mask_A = turns_of(words_A, 32)
    steps_A = 0 if joins else -(-(slots * span * words_A + 32 // SIZE) // span)
    room_A = max(steps_A * span, 1)
    words_C = n_j
    shift_C, mask_C = turns_of(words_C, 32)
    steps_C = 0 if joins else -(-(slots * span * words_C + 32 // SIZE) // span)
    room_C = max(steps_C * span, 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(A, s_A, C, s_C, n_l, items, parts, piece, part_seen, part_N, part_s, part_s3, part_s2, part_s4, part_s1, out_0):
        thread = i8(cuda.threadIdx.x)
        lane, warp = thread & 31, thread >> 5 & warps - 1
        item, part = i8(cuda.blockIdx.x), i8(0)
        if splits:
            item, part = item // parts, item % parts
        if alone:
            item, thread = item * ROWS + (thread >> 5), lane
        live = item < items
        row = sel(live, item, i8(0))
        rest = row
        o_A = rest * s_A
        p_A = address(A) + o_A * SIZE
        o_C = rest * s_C
        p_C = address(C) + o_C * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_A = cuda.shared.array(room_A, f4)
        cells_C = cuda.shared.array(room_C, f4)
        s = cuda.local.array(words_s, f8)
        s3 = cuda.local.array(words_s3, f8)
        s2 = cuda.local.array(words_s2, f8)
        s4 = cuda.local.array(words_s4, f8)
        s1 = cuda.local.array(words_s1, f8)
        p1 = cuda.local.array(words_p1, f8)
        p2 = cuda.local.array(words_p2, f8)
        p3 = cuda.local.array(words_p3, f8)
        p4 = cuda.local.array(words_p4, f8)
        s5 = cuda.local.array(words_s5, f8)
        s_old = cuda.local.array(words_s_old, f8)
        s3_old = cuda.local.array(words_s3_old, f8)
        p1_old = cuda.local.array(words_p1_old, f8)
        p2_old = cuda.local.array(words_p2_old, f8)
        seen, N = i4(0), i8(0)
        for word in range(words_s):
            s[word] = 0.0
        for word in range(words_s3):
            s3[word] = 0.0
        for word in range(words_s2):
            s2[word] = 0.0
        for word in range(words_s4):
            s4[word] = 0.0
        for word in range(words_s1):
            s1[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_A + (begin + first) * words_A * SIZE
            skew_A = lead // SIZE % (32 // SIZE)
            stage_real(cells_A, lead - skew_A * SIZE, skew_A, skew_A + min(slots * span, length - first) * words_A, steps_A, shift_A, mask_A, thread, span)
            lead = p_C + (begin + first) * words_C * SIZE
            skew_C = lead // SIZE % (32 // SIZE)
            stage_real(cells_C, lead - skew_C * SIZE, skew_C, skew_C + min(slots * span, length - first) * words_C, steps_C, shift_C, mask_C, thread, span)
            cuda.syncthreads()
            seen, N = fold(seen, N, slots, first, span, thread, length, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, cells_A, skew_A, shift_A, mask_A, cells_C, skew_C, shift_C, mask_C, p1, p2, s2, s4, s1)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            N = sel(there, part_N[place], i8(0))
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
            for word in range(words_s3):
                s3[word] = sel(there, part_s3[place * words_s3 + word], 0.0)
            for word in range(words_s2):
                s2[word] = sel(there, part_s2[place * words_s2 + word], 0.0)
            for word in range(words_s4):
                s4[word] = sel(there, part_s4[place * words_s4 + word], 0.0)
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
        seen, N = combine(seen, N, 32, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, p1, p2, s2, s4, s1)
        shared_seen = cuda.shared.array(32, i4)
        shared_N = cuda.shared.array(32, i8)
        shared_s = cuda.shared.array(room_s, f8)
        shared_s3 = cuda.shared.array(room_s3, f8)
        shared_s2 = cuda.shared.array(room_s2, f8)
        shared_s4 = cuda.shared.array(room_s4, f8)
        shared_s1 = cuda.shared.array(room_s1, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_N[warp] = N
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s3):
                    shared_s3[warp * (words_s3 | 1) + word] = s3[word]
                for word in range(words_s2):
                    shared_s2[warp * (words_s2 | 1) + word] = s2[word]
                for word in range(words_s4):
                    shared_s4[warp * (words_s4 | 1) + word] = s4[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                N = sel(lane < warps, shared_N[lane % warps], i8(0))
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                for word in range(words_s3):
                    s3[word] = sel(lane < warps, shared_s3[lane % warps * (words_s3 | 1) + word], 0.0)
                for word in range(words_s2):
                    s2[word] = sel(lane < warps, shared_s2[lane % warps * (words_s2 | 1) + word], 0.0)
                for word in range(words_s4):
                    s4[word] = sel(lane < warps, shared_s4[lane % warps * (words_s4 | 1) + word], 0.0)
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                seen, N = combine(seen, N, warps, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, p1, p2, s2, s4, s1)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_N[item * parts + part] = N
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s3):
                    part_s3[(item * parts + part) * words_s3 + word] = s3[word]
                for word in range(words_s2):
                    part_s2[(item * parts + part) * words_s2 + word] = s2[word]
                for word in range(words_s4):
                    part_s4[(item * parts + part) * words_s4 + word] = s4[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
        elif warp == 0 or alone:
            result_0 = finish(seen, N, p1, n_i, s, s2, p2, n_j, s3, s4, s1, p3, p4, s5)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'A': ('l', 'i'), 'C': ('l', 'j')}
DTYPES = {'A': np.float32, 'C': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.int64, ()), (np.float64, ('i',)), (np.float64, ('j',)), (np.float64, ('i',)), (np.float64, ('j',)), (np.float64, ('i', 'j'))]


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


def plan(A, C):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'A': A, 'C': C}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 8 * sizes['i'] + 8 * sizes['j'] + 8 * sizes['i'] + 8 * sizes['j'] + 8 * sizes['i'] * sizes['j']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['i'] + 4 * sizes['j']
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['i'], sizes['j']), blocks * parts, threads), ((8, 'join', slots, sizes['i'], sizes['j']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['i'], sizes['j']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(A, C, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(A, C)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 'i', 'j')


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


def definition(A, C):
    """barlow_twins as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    A = spread(A, 'l i')
    C = spread(C, 'l j')
    lengths = {"l": A.shape[-3], "i": A.shape[-2], "j": C.shape[-1]}
    t1 = A - np.sum(A, along("l"), keepdims=True) / lengths["l"]
    t2 = C - np.sum(C, along("l"), keepdims=True) / lengths["l"]
    t3 = np.sum(t1 / np.sqrt(np.sum(t1 ** 2, along("l"), keepdims=True) / lengths["l"]) * (t2 / np.sqrt(np.sum(t2 ** 2, along("l"), keepdims=True) / lengths["l"])), along("l"), keepdims=True) / lengths["l"]
    return taken_out(np.sum(np.sum(np.where(positions("i", lengths["i"]) == positions("j", lengths["j"]), (t3 - 1.0) ** 2, 0.005 * t3 ** 2), along("j"), keepdims=True), along("i"), keepdims=True), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"A": rng.standard_normal((3, length, 4)).astype(DTYPES['A']),
                  "C": rng.standard_normal((3, length, 5)).astype(DTYPES['C'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"barlow_twins, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
