"""kpss_statistic: one pass over l, 10 words of state per row, ordered merge.

Σ_l (Σ_{t≤l} (x_t − μ))² / (N² σ²).

The operator
    kpss_statistic(x[l]):
        t1 = x - sum(x, l) / size(l)
        return sum(scan(lambda c1: c1 + t1, l, 0.0, after) ** 2, l) / size(l) ** 2 / (sum(t1 ** 2, l) / size(l))

One more element (a prime marks the new value)
    s'  = s + x[l]
    h1' = h1
    N'  = N + 1
    h2' = h2 + 2·h7 − 2·(h1 − x[l])
    h3' = h3 − 2·N − 2
    h4' = h4 + h7² − 2·h7·(h1 − x[l]) + (h1 − x[l])²
    h5' = h5 − h7·N − N·h7 + 2·N·(h1 − x[l]) − 2·h7 + 2·(h1 − x[l])
    h6' = h6 + N² + 2·N + 1
    h7' = h7 − h1 + x[l]
    p1' = s'/N'
    δ   = p1 − p1'
    s3' = s3 + δ²·N + (x[l] − p1')²

Two states a and b
    s'   = s_a + s_b
    h1'  = h1_a
    N'   = N_a + N_b
    h2'  = h2_a + 2·N_b·h7_a + h2_b + h3_b·(h1_a − h1_b)
    h3'  = h3_a − 2·N_b·N_a + h3_b
    h4'  = h4_a + N_b·h7_a² + h7_a·(h2_b + h3_b·(h1_a − h1_b)) + h4_b + h5_b·(h1_a − h1_b) + h6_b·(h1_a − h1_b)²
    h5'  = h5_a + N_b·(−h7_a·N_a − N_a·h7_a) − N_a·(h2_b + h3_b·(h1_a − h1_b)) + h3_b·h7_a + h5_b + 2·h6_b·(h1_a − h1_b)
    h6'  = h6_a + N_b·N_a² − h3_b·N_a + h6_b
    h7'  = h7_a + h7_b − N_b·(h1_a − h1_b)
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s3'  = s3_a + δ_a²·N_a + s3_b + δ_b²·N_b

Dangers
    s3/N_l divides and may be 0: the result is then what IEEE division gives
    s2 = h4 + h5·(s/N_l − h1) + h6·(s/N_l − h1)² is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 05d7c7eae06309fdc1f0e4e95e0f0e918b38a3b5f7c3ea737411f29f37626666
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python kpss_statistic_cuda.py` checks it on a GPU.
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
def value_p1(s, N):
    return s / N


@cuda.jit(device=True)
def rebase_s3(s3, p1, p1_new, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s3 + (0.0 if N == 0.0 else t3 * t3 * N)


@cuda.jit(device=True)
def fold(seen_old, s_old, h1_old, N_old, h2_old, h3_old, h4_old, h5_old, h6_old, h7_old, s3_old, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, s_old, h1_old, N_old, h2_old, h3_old, h4_old, h5_old, h6_old, h7_old, s3_old
    seen = i4(seen_old + many)
    p1_old = value_p1(s_old, N_old)
    h1, N, h2, h3, h4, h5, h6, h7 = h1_old, N_old, h2_old, h3_old, h4_old, h5_old, h6_old, h7_old
    begins = sel(seen_old == 0, i4(1), i4(0))
    t34 = -1
    if begins > 0:
        i_l = i4(0)
        t1 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
        h1, N, h2, h3, h4, h5, h6, h7 = f8(t1), f8(1), f8(0), f8(-2), f8(0), f8(0), f8(1), f8(0)
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t6 = h1 - f8(cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)])
            t7 = -2.0 * t6
            t9 = -N
            t18 = h4 + h7 * h7 + t7 * h7 + t6 * t6
            t28 = h5 + (h7 * t9 + t9 * h7) + t7 * t9 + -2.0 * h7 + 2.0 * t6
            t33 = h6 + t9 * t9 + -2.0 * t9 + 1.0
            t36 = h7 + f8(t34) * t6
            N, h2, h3, h4, h5, h6, h7 = N + 1.0, h2 + 2.0 * h7 + t7, h3 + 2.0 * t9 + -2.0, t18, t28, t33, t36
    s = s_old
    s_it = 0.0
    for i_l in range(slots):
        t37 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
        s_it = s_it + f8(sel(i4(first + thread * slots + i_l) < i4(length), t37, f4(0.0)))
    s = s + s_it
    p1 = value_p1(s, N)
    s3 = rebase_s3(s3_old, p1_old, p1, N_old) if seen_old > 0 else s3_old
    s3_it = 0.0
    t39 = p1 if math.isfinite(p1) else 0.0
    for i_l in range(slots):
        t40 = f8(cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]) - t39
        s3_it = s3_it + sel(i4(first + thread * slots + i_l) < i4(length), t40 * t40, 0.0)
    s3 = s3 + s3_it
    return seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3


@cuda.jit(device=True)
def merge(h1_a, N_a, N_b, h2_a, h7_a, h2_b, h3_b, h1_b, h3_a, h4_a, h4_b, h5_b, h6_b, h5_a, h6_a, h7_b):
    t5 = h1_a - h1_b
    t7 = h2_b + h3_b * t5
    t9 = -N_a
    t24 = h4_a + N_b * (h7_a * h7_a) + t7 * h7_a + (h4_b + h5_b * t5 + h6_b * (t5 * t5))
    t37 = h5_a + N_b * (h7_a * t9 + t9 * h7_a) + t7 * t9 + h3_b * h7_a + (h5_b + h6_b * (2.0 * t5))
    t43 = h6_a + N_b * (t9 * t9) + h3_b * t9 + h6_b
    t47 = h7_a + (h7_b + -N_b * t5)
    return h1_a, N_a + N_b, h2_a + N_b * (2.0 * h7_a) + t7, h3_a + N_b * (2.0 * t9) + h3_b, t24, t37, t43, t47


@cuda.jit(device=True)
def combine(seen_old, s_old, h1_old, N_old, h2_old, h3_old, h4_old, h5_old, h6_old, h7_old, s3_old, width, lane):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(s_old, N_old)
    many, h1, N, h2, h3, h4, h5, h6, h7 = seen_old, h1_old, N_old, h2_old, h3_old, h4_old, h5_old, h6_old, h7_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            h1_b = cuda.shfl_xor_sync(4294967295, h1, by)
            N_b = cuda.shfl_xor_sync(4294967295, N, by)
            h2_b = cuda.shfl_xor_sync(4294967295, h2, by)
            h3_b = cuda.shfl_xor_sync(4294967295, h3, by)
            h4_b = cuda.shfl_xor_sync(4294967295, h4, by)
            h5_b = cuda.shfl_xor_sync(4294967295, h5, by)
            h6_b = cuda.shfl_xor_sync(4294967295, h6, by)
            h7_b = cuda.shfl_xor_sync(4294967295, h7, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            h1_a, h1_b = sel(ahead, h1, h1_b), sel(ahead, h1_b, h1)
            N_a, N_b = sel(ahead, N, N_b), sel(ahead, N_b, N)
            h2_a, h2_b = sel(ahead, h2, h2_b), sel(ahead, h2_b, h2)
            h3_a, h3_b = sel(ahead, h3, h3_b), sel(ahead, h3_b, h3)
            h4_a, h4_b = sel(ahead, h4, h4_b), sel(ahead, h4_b, h4)
            h5_a, h5_b = sel(ahead, h5, h5_b), sel(ahead, h5_b, h5)
            h6_a, h6_b = sel(ahead, h6, h6_b), sel(ahead, h6_b, h6)
            h7_a, h7_b = sel(ahead, h7, h7_b), sel(ahead, h7_b, h7)
            if many_a > 0 and many_b > 0:
                h1, N, h2, h3, h4, h5, h6, h7 = merge(h1_a, N_a, N_b, h2_a, h7_a, h2_b, h3_b, h1_b, h3_a, h4_a, h4_b, h5_b, h6_b, h5_a, h6_a, h7_b)
            else:
                h1, N, h2, h3, h4, h5, h6, h7 = sel(many_a > 0, h1_a, h1_b), sel(many_a > 0, N_a, N_b), sel(many_a > 0, h2_a, h2_b), sel(many_a > 0, h3_a, h3_b), sel(many_a > 0, h4_a, h4_b), sel(many_a > 0, h5_a, h5_b), sel(many_a > 0, h6_a, h6_b), sel(many_a > 0, h7_a, h7_b)
            many = i4(many_a + many_b)
    s = sum_over(s_old, width)
    p1 = value_p1(s, N)
    s3 = sum_over(rebase_s3(s3_old, p1_old, p1, N_old) if seen_old > 0 else 0.0, width)
    return seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3


@cuda.jit(device=True)
def settle_s3(p1, s3, N):
    t1 = p1
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p1 if p1 - p1 == 0.0 else f8(0)) - p1
    return (s3 + t11 * t11 * N if s3 - s3 == 0.0 else nan) if t4 != t4 else s3


@cuda.jit(device=True)
def value_s2(h4, h5, s, n_l, h1, h6):
    t2 = s / f8(n_l) - h1
    return h4 + h5 * t2 + h6 * (t2 * t2)


@cuda.jit(device=True)
def output_0(s2, n_l, s3):
    return f4(s2 / f8(n_l * n_l) / (s3 / f8(n_l)))


@cuda.jit(device=True)
def finish(seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3):
    p1 = value_p1(s, N)
    s3 = settle_s3(p1, s3, N)
    s2 = value_s2(h4, h5, s, seen, h1, h6)
    return output_0(s2, seen, s3)


@cache
def make(warps, stage, slots):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_x = 1
    shift_x, mask_x = turns_of(slots * words_x, 32)
    steps_x = 0 if joins else -(-(slots * span * words_x + 32 // SIZE) // span)
    room_x = max(steps_x * span, 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, n_l, items, parts, piece, part_seen, part_s, part_h1, part_N, part_h2, part_h3, part_h4, part_h5, part_h6, part_h7, part_s3, out_0):
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
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_x = cuda.shared.array(room_x, f4)
        seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3 = i4(0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                s = sel(there, part_s[place], 0.0)
                h1 = sel(there, part_h1[place], 0.0)
                N = sel(there, part_N[place], 0.0)
                h2 = sel(there, part_h2[place], 0.0)
                h3 = sel(there, part_h3[place], 0.0)
                h4 = sel(there, part_h4[place], 0.0)
                h5 = sel(there, part_h5[place], 0.0)
                h6 = sel(there, part_h6[place], 0.0)
                h7 = sel(there, part_h7[place], 0.0)
                s3 = sel(there, part_s3[place], 0.0)
            else:
                cuda.syncthreads()
                lead = p_x + (begin + first) * words_x * SIZE
                skew_x = lead // SIZE % (32 // SIZE)
                stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
                cuda.syncthreads()
                seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3 = fold(seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x)
            seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3 = combine(seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_s = cuda.shared.array(32, f8)
            shared_h1 = cuda.shared.array(32, f8)
            shared_N = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            shared_h4 = cuda.shared.array(32, f8)
            shared_h5 = cuda.shared.array(32, f8)
            shared_h6 = cuda.shared.array(32, f8)
            shared_h7 = cuda.shared.array(32, f8)
            shared_s3 = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_s[warp] = s
                    shared_h1[warp] = h1
                    shared_N[warp] = N
                    shared_h2[warp] = h2
                    shared_h3[warp] = h3
                    shared_h4[warp] = h4
                    shared_h5[warp] = h5
                    shared_h6[warp] = h6
                    shared_h7[warp] = h7
                    shared_s3[warp] = s3
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    s = sel(lane < warps, shared_s[lane % warps], 0.0)
                    h1 = sel(lane < warps, shared_h1[lane % warps], 0.0)
                    N = sel(lane < warps, shared_N[lane % warps], 0.0)
                    h2 = sel(lane < warps, shared_h2[lane % warps], 0.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], 0.0)
                    h4 = sel(lane < warps, shared_h4[lane % warps], 0.0)
                    h5 = sel(lane < warps, shared_h5[lane % warps], 0.0)
                    h6 = sel(lane < warps, shared_h6[lane % warps], 0.0)
                    h7 = sel(lane < warps, shared_h7[lane % warps], 0.0)
                    s3 = sel(lane < warps, shared_s3[lane % warps], 0.0)
                    seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3 = combine(seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            s = sel(thread == 0, s, 0.0)
            h1 = sel(thread == 0, h1, 0.0)
            N = sel(thread == 0, N, 0.0)
            h2 = sel(thread == 0, h2, 0.0)
            h3 = sel(thread == 0, h3, 0.0)
            h4 = sel(thread == 0, h4, 0.0)
            h5 = sel(thread == 0, h5, 0.0)
            h6 = sel(thread == 0, h6, 0.0)
            h7 = sel(thread == 0, h7, 0.0)
            s3 = sel(thread == 0, s3, 0.0)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_s[item * parts + part] = s
                part_h1[item * parts + part] = h1
                part_N[item * parts + part] = N
                part_h2[item * parts + part] = h2
                part_h3[item * parts + part] = h3
                part_h4[item * parts + part] = h4
                part_h5[item * parts + part] = h5
                part_h6[item * parts + part] = h6
                part_h7[item * parts + part] = h7
                part_s3[item * parts + part] = s3
        elif warp == 0 or alone:
            result_0 = finish(seen, s, h1, N, h2, h3, h4, h5, h6, h7, s3)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(x):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * 1
    shapes = [(w, slots) for slots in (32, 16, 8, 4, 2, 1) for w in (8, 4, 2, 1) if 16 * w * slots < length or w == slots == 1]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots), blocks * parts, threads), ((8, 'join', slots), items, 256)] if parts > 1 else [((warps, 'whole', slots), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l',)


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(ALL_AXES) - len(own)))]
    return np.moveaxis(array, range(-len(ALL_AXES), len(own) - len(ALL_AXES)), own)


def stepped(axis, length, place, every, states, elements, step):
    """A recurrence, one element after the other: the last of state number `place`, or that after or before every element."""
    seen, dim = [], along(axis)
    states = tuple(np.reshape(np.asarray(state, np.float64), (1,) * (len(ALL_AXES) - np.ndim(state)) + np.shape(state)) for state in states)
    for at in range(length):
        here = [np.take(element, [at if element.shape[dim] > 1 else 0], dim) for element in elements]
        after = step(*states, *here)
        seen += [(after if every == "after" else states)[place]] if every else []
        states = after
    return np.concatenate(np.broadcast_arrays(*seen), dim) if every else states[place]


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


def definition(x):
    """kpss_statistic as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x - np.sum(x, along("l"), keepdims=True) / lengths["l"]
    return taken_out(np.sum(stepped("l", lengths["l"], 0, "after", (0.0,), (t1,), lambda c1, e1: (c1 + e1,)) ** 2, along("l"), keepdims=True) / lengths["l"] ** 2 / (np.sum(t1 ** 2, along("l"), keepdims=True) / lengths["l"]), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"kpss_statistic, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
