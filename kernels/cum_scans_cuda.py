"""cum_scans: one pass over l, 3 words of state per row, commutative merge.

Σ_{t≤l} x_t, Π_{t≤l} (1 + x_t/10), Σ_{t<l} x_t, Σ_{t≥l} x_t, Σ_{t≤l} k_t x_t.

The operator
    cum_scans(x[l], k[l]):
        d1 = scan(lambda c1: c1 + x, l, 0.0, before)
        return scan(lambda c1: c1 + x, l, 0.0, after), scan(lambda c1: c1 * (1 + 0.1 * x), l, 1.0, after), d1, sum(x, l) - d1, scan(lambda c1: c1 + k * x, l, 0.0, after)

One more element (a prime marks the new value)
    s'  = s + x[l]
    h2' = h2·(1 + 0.1·x[l])
    h3' = h3 + k[l]·x[l]

Two states a and b
    s'  = s_a + s_b
    h2' = h2_a·h2_b
    h3' = h3_a + h3_b

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 929e61b33aaebfc3f004847ade633b5031d29e06c2bada98c61ea262888eaff7
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python cum_scans_cuda.py` checks it on a GPU.
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
prod_over = over_lanes(cuda.jit(device=True, forceinline=True)(lambda a, b: a * b))

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

def unstaging(store, size):
    """What writes a tile of numbers of so many bytes from shared memory, from `low` to `high`."""
    @cuda.jit(device=True)
    def unstaged(cells, pointer, low, high, steps, shift, mask, thread, span):
        for step in range(steps):
            word = i4(step * span + thread)
            if word >= low and word < high:
                store(pointer + word * size, cells[np.uint32(word ^ i4(word >> shift & mask))])
    return unstaged

unstage_real = unstaging(store_one, 4)

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 4, 1
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def fold(seen_old, s_old, h2_old, h3_old, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, cells_k, skew_k, shift_k, mask_k):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, s_old, h2_old, h3_old
    seen = i4(seen_old + many)
    s = s_old
    s_it = 0.0
    h2 = h2_old
    h2_it = 1.0
    h3 = h3_old
    h3_it = 0.0
    for i_l in range(slots):
        t1 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
        s_it = s_it + f8(sel(i4(first + thread * slots + i_l) < i4(length), t1, f4(0.0)))
        h2_it = h2_it * sel(i4(first + thread * slots + i_l) < i4(length), 1.0 + 0.1 * f8(t1), 1.0)
        t5 = f8(cells_k[cell(thread * slots + i_l, 1, skew_k, shift_k, mask_k)]) * f8(t1)
        h3_it = h3_it + sel(i4(first + thread * slots + i_l) < i4(length), t5, 0.0)
    s = s + s_it
    h2 = h2 * h2_it
    h3 = h3 + h3_it
    return seen, s, h2, h3


@cuda.jit(device=True)
def combine(seen_old, s_old, h2_old, h3_old, width):
    seen = sum_over(seen_old, width)
    s = sum_over(s_old, width)
    h2 = prod_over(h2_old, width)
    h3 = sum_over(h3_old, width)
    return seen, s, h2, h3


@cuda.jit(device=True)
def finish(seen, s, h2, h3):
    return s


@cuda.jit(device=True)
def join(seen_a, s_a, h2_a, h3_a, seen_b, s_b, h2_b, h3_b):
    if seen_a == 0:
        return seen_b, s_b, h2_b, h3_b
    if seen_b == 0:
        return seen_a, s_a, h2_a, h3_a
    seen = i4(seen_a + seen_b)
    s = s_a + s_b
    h2 = h2_a * h2_b
    h3 = h3_a + h3_b
    return seen, s, h2, h3


@cuda.jit(device=True)
def scan(seen_old, s_old, h2_old, h3_old, width, lane):
    seen, s, h2, h3 = seen_old, s_old, h2_old, h3_old
    for step in range(5):
        by = 1 << step
        if by < width:
            seen_a = cuda.shfl_up_sync(4294967295, seen, by)
            s_a = cuda.shfl_up_sync(4294967295, s, by)
            h2_a = cuda.shfl_up_sync(4294967295, h2, by)
            h3_a = cuda.shfl_up_sync(4294967295, h3, by)
            if lane >= by:
                seen, s, h2, h3 = join(seen_a, s_a, h2_a, h3_a, seen, s, h2, h3)
    return seen, s, h2, h3


@cuda.jit(device=True)
def initial():
    return 0.0, 1.0, 0.0


@cuda.jit(device=True)
def value_h(s):
    return s


@cuda.jit(device=True)
def resume(seen, s, h2, h3, c1_start, c12_start, c13_start):
    if seen == 0:
        return c1_start, c12_start, c13_start
    h = value_h(s)
    return h, h2, h3


@cuda.jit(device=True)
def see(c1, c12, c13, cells_out_0, skew_out_0, shift_out_0, mask_out_0, cells_x, skew_x, shift_x, mask_x, thread, slots, cells_out_1, skew_out_1, shift_out_1, mask_out_1, cells_out_2, skew_out_2, shift_out_2, mask_out_2, cells_out_3, skew_out_3, shift_out_3, mask_out_3, s, cells_out_4, skew_out_4, shift_out_4, mask_out_4, cells_k, skew_k, shift_k, mask_k, first, length):
    for i_l in range(slots):
        if i4(first + thread * slots + i_l) < i4(length):
            t1 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
            t2 = c1 + f8(t1)
            cells_out_0[cell(thread * slots + i_l, 1, skew_out_0, shift_out_0, mask_out_0)] = f4(t2)
            t5 = c12 * (1.0 + 0.1 * f8(t1))
            cells_out_1[cell(thread * slots + i_l, 1, skew_out_1, shift_out_1, mask_out_1)] = f4(t5)
            cells_out_2[cell(thread * slots + i_l, 1, skew_out_2, shift_out_2, mask_out_2)] = f4(c1)
            cells_out_3[cell(thread * slots + i_l, 1, skew_out_3, shift_out_3, mask_out_3)] = f4(s - c1)
            t9 = c13 + f8(cells_k[cell(thread * slots + i_l, 1, skew_k, shift_k, mask_k)]) * f8(t1)
            cells_out_4[cell(thread * slots + i_l, 1, skew_out_4, shift_out_4, mask_out_4)] = f4(t9)
            c1, c12, c13 = t2, t5, t9
    return c1, c12, c13


@cache
def make(warps, stage, slots):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_x = 1
    shift_x, mask_x = turns_of(slots * words_x, 32)
    steps_x = 0 if joins else -(-(slots * span * words_x + 32 // SIZE) // span)
    room_x = max(steps_x * span, 1)
    words_k = 1
    shift_k, mask_k = turns_of(slots * words_k, 32)
    steps_k = 0 if joins else -(-(slots * span * words_k + 32 // SIZE) // span)
    room_k = max(steps_k * span, 1)
    shift_out_0, mask_out_0 = turns_of(slots, 32)
    steps_out_0 = -(-(slots * span + 32 // SIZE) // span)
    room_out_0 = steps_out_0 * span
    shift_out_1, mask_out_1 = turns_of(slots, 32)
    steps_out_1 = -(-(slots * span + 32 // SIZE) // span)
    room_out_1 = steps_out_1 * span
    shift_out_2, mask_out_2 = turns_of(slots, 32)
    steps_out_2 = -(-(slots * span + 32 // SIZE) // span)
    room_out_2 = steps_out_2 * span
    shift_out_3, mask_out_3 = turns_of(slots, 32)
    steps_out_3 = -(-(slots * span + 32 // SIZE) // span)
    room_out_3 = steps_out_3 * span
    shift_out_4, mask_out_4 = turns_of(slots, 32)
    steps_out_4 = -(-(slots * span + 32 // SIZE) // span)
    room_out_4 = steps_out_4 * span

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, k, s_k, n_l, items, parts, piece, out_0, out_1, out_2, out_3, out_4):
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
        o_k = rest * s_k
        p_k = address(k) + o_k * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_x = cuda.shared.array(room_x, f4)
        cells_k = cuda.shared.array(room_k, f4)
        cells_out_0 = cuda.shared.array(room_out_0, f4)
        lead_out_0 = address(out_0) + item * n_l * SIZE
        skew_out_0 = lead_out_0 // SIZE % (32 // SIZE)
        cells_out_1 = cuda.shared.array(room_out_1, f4)
        lead_out_1 = address(out_1) + item * n_l * SIZE
        skew_out_1 = lead_out_1 // SIZE % (32 // SIZE)
        cells_out_2 = cuda.shared.array(room_out_2, f4)
        lead_out_2 = address(out_2) + item * n_l * SIZE
        skew_out_2 = lead_out_2 // SIZE % (32 // SIZE)
        cells_out_3 = cuda.shared.array(room_out_3, f4)
        lead_out_3 = address(out_3) + item * n_l * SIZE
        skew_out_3 = lead_out_3 // SIZE % (32 // SIZE)
        cells_out_4 = cuda.shared.array(room_out_4, f4)
        lead_out_4 = address(out_4) + item * n_l * SIZE
        skew_out_4 = lead_out_4 // SIZE % (32 // SIZE)
        seen, s, h2, h3 = i4(0), 0.0, 1.0, 0.0
        first, more = i8(0), True
        while more:
            cuda.syncthreads()
            lead = p_x + (begin + first) * words_x * SIZE
            skew_x = lead // SIZE % (32 // SIZE)
            stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
            lead = p_k + (begin + first) * words_k * SIZE
            skew_k = lead // SIZE % (32 // SIZE)
            stage_real(cells_k, lead - skew_k * SIZE, skew_k, skew_k + min(slots * span, length - first) * words_k, steps_k, shift_k, mask_k, thread, span)
            cuda.syncthreads()
            seen, s, h2, h3 = fold(seen, s, h2, h3, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, cells_k, skew_k, shift_k, mask_k)
            seen, s, h2, h3 = combine(seen, s, h2, h3, 32)
            shared_seen = cuda.shared.array(32, i4)
            shared_s = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_s[warp] = s
                    shared_h2[warp] = h2
                    shared_h3[warp] = h3
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    s = sel(lane < warps, shared_s[lane % warps], 0.0)
                    h2 = sel(lane < warps, shared_h2[lane % warps], 1.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], 0.0)
                    seen, s, h2, h3 = combine(seen, s, h2, h3, warps)
            first += slots * span
            more = first < length
            seen = sel(thread == 0, seen, i4(0))
            s = sel(thread == 0, s, 0.0)
            h2 = sel(thread == 0, h2, 1.0)
            h3 = sel(thread == 0, h3, 0.0)
        place = sel(alone, i8(cuda.threadIdx.x) >> 5, i8(0))
        final_s = cuda.shared.array(ROWS, f8)
        if warp == 0 or alone:
            s = finish(seen, s, h2, h3)
            if thread == 0:
                final_s[place] = s
        cuda.syncthreads()
        s = final_s[place]
        long = first > slots * span
        s_whole = s
        c1_start, c12_start, c13_start = initial()
        seen, s, h2, h3 = i4(0), 0.0, 1.0, 0.0
        first, more = i8(0), True
        while more:
            if long:
                cuda.syncthreads()
                lead = p_x + (begin + first) * words_x * SIZE
                skew_x = lead // SIZE % (32 // SIZE)
                stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
                lead = p_k + (begin + first) * words_k * SIZE
                skew_k = lead // SIZE % (32 // SIZE)
                stage_real(cells_k, lead - skew_k * SIZE, skew_k, skew_k + min(slots * span, length - first) * words_k, steps_k, shift_k, mask_k, thread, span)
                cuda.syncthreads()
            seen_first, s_first, h2_first, h3_first = seen, s, h2, h3
            seen, s, h2, h3 = fold(seen, s, h2, h3, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, cells_k, skew_k, shift_k, mask_k)
            seen, s, h2, h3 = scan(seen, s, h2, h3, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_s = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            seen_above, s_above, h2_above, h3_above = i4(0), 0.0, 1.0, 0.0
            if not alone:
                if lane == 31:
                    shared_seen[warp] = seen
                    shared_s[warp] = s
                    shared_h2[warp] = h2
                    shared_h3[warp] = h3
                cuda.syncthreads()
                seen_all, s_all, h2_all, h3_all = sel(lane < warps, shared_seen[lane % warps], i4(0)), sel(lane < warps, shared_s[lane % warps], 0.0), sel(lane < warps, shared_h2[lane % warps], 1.0), sel(lane < warps, shared_h3[lane % warps], 0.0)
                seen_all, s_all, h2_all, h3_all = scan(seen_all, s_all, h2_all, h3_all, warps, lane)
                seen_above = cuda.shfl_sync(0xFFFFFFFF, seen_all, max(warp - 1, 0))
                s_above = cuda.shfl_sync(0xFFFFFFFF, s_all, max(warp - 1, 0))
                h2_above = cuda.shfl_sync(0xFFFFFFFF, h2_all, max(warp - 1, 0))
                h3_above = cuda.shfl_sync(0xFFFFFFFF, h3_all, max(warp - 1, 0))
                seen_above, s_above, h2_above, h3_above = sel(warp > 0, seen_above, i4(0)), sel(warp > 0, s_above, 0.0), sel(warp > 0, h2_above, 1.0), sel(warp > 0, h3_above, 0.0)
            seen_up = cuda.shfl_up_sync(0xFFFFFFFF, seen, 1)
            s_up = cuda.shfl_up_sync(0xFFFFFFFF, s, 1)
            h2_up = cuda.shfl_up_sync(0xFFFFFFFF, h2, 1)
            h3_up = cuda.shfl_up_sync(0xFFFFFFFF, h3, 1)
            seen_up, s_up, h2_up, h3_up = sel(lane > 0, seen_up, i4(0)), sel(lane > 0, s_up, 0.0), sel(lane > 0, h2_up, 1.0), sel(lane > 0, h3_up, 0.0)
            seen_before, s_before, h2_before, h3_before = join(seen_above, s_above, h2_above, h3_above, seen_up, s_up, h2_up, h3_up)
            seen_before, s_before, h2_before, h3_before = sel(thread == 0, seen_first, seen_before), sel(thread == 0, s_first, s_before), sel(thread == 0, h2_first, h2_before), sel(thread == 0, h3_first, h3_before)
            c1, c12, c13 = resume(seen_before, s_before, h2_before, h3_before, c1_start, c12_start, c13_start)
            c1, c12, c13 = see(c1, c12, c13, cells_out_0, skew_out_0, shift_out_0, mask_out_0, cells_x, skew_x, shift_x, mask_x, thread, slots, cells_out_1, skew_out_1, shift_out_1, mask_out_1, cells_out_2, skew_out_2, shift_out_2, mask_out_2, cells_out_3, skew_out_3, shift_out_3, mask_out_3, s_whole, cells_out_4, skew_out_4, shift_out_4, mask_out_4, cells_k, skew_k, shift_k, mask_k, first, length)
            cuda.syncthreads()
            if live:
                unstage_real(cells_out_0, lead_out_0 + (first - skew_out_0) * SIZE, skew_out_0, skew_out_0 + min(slots * span, length - first), steps_out_0, shift_out_0, mask_out_0, thread, span)
            if live:
                unstage_real(cells_out_1, lead_out_1 + (first - skew_out_1) * SIZE, skew_out_1, skew_out_1 + min(slots * span, length - first), steps_out_1, shift_out_1, mask_out_1, thread, span)
            if live:
                unstage_real(cells_out_2, lead_out_2 + (first - skew_out_2) * SIZE, skew_out_2, skew_out_2 + min(slots * span, length - first), steps_out_2, shift_out_2, mask_out_2, thread, span)
            if live:
                unstage_real(cells_out_3, lead_out_3 + (first - skew_out_3) * SIZE, skew_out_3, skew_out_3 + min(slots * span, length - first), steps_out_3, shift_out_3, mask_out_3, thread, span)
            if live:
                unstage_real(cells_out_4, lead_out_4 + (first - skew_out_4) * SIZE, skew_out_4, skew_out_4 + min(slots * span, length - first), steps_out_4, shift_out_4, mask_out_4, thread, span)
            if alone:
                seen = cuda.shfl_sync(0xFFFFFFFF, seen, 31)
                s = cuda.shfl_sync(0xFFFFFFFF, s, 31)
                h2 = cuda.shfl_sync(0xFFFFFFFF, h2, 31)
                h3 = cuda.shfl_sync(0xFFFFFFFF, h3, 31)
            else:
                seen = cuda.shfl_sync(0xFFFFFFFF, seen_all, warps - 1)
                s = cuda.shfl_sync(0xFFFFFFFF, s_all, warps - 1)
                h2 = cuda.shfl_sync(0xFFFFFFFF, h2_all, warps - 1)
                h3 = cuda.shfl_sync(0xFFFFFFFF, h3_all, warps - 1)
            seen, s, h2, h3 = sel(thread == 0, seen, i4(0)), sel(thread == 0, s, 0.0), sel(thread == 0, h2, 1.0), sel(thread == 0, h3, 0.0)
            first += slots * span
            more = first < length

    return kernel


AXES = {'x': ('l',), 'k': ('l',)}
DTYPES = {'x': np.float32, 'k': np.float32}
OUTPUTS = [(('l',), np.float32), (('l',), np.float32), (('l',), np.float32), (('l',), np.float32), (('l',), np.float32)]
HELD = []


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


def plan(x, k):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'k': k}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1
    shapes = [(w, slots) for slots in (32, 16, 8, 4, 2, 1) for w in (8, 4, 2, 1) if 16 * w * slots < length or w == slots == 1]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts, piece, launches = 1, length, [((warps, 'whole', slots), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, k, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, k)
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


def definition(x, k):
    """cum_scans as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    k = spread(k, 'l')
    lengths = {"l": x.shape[-1]}
    d1 = stepped("l", lengths["l"], 0, "before", (0.0,), (x,), lambda c1, e1: (c1 + e1,))
    return (taken_out(stepped("l", lengths["l"], 0, "after", (0.0,), (x,), lambda c1, e1: (c1 + e1,)), 'l', lengths), taken_out(stepped("l", lengths["l"], 0, "after", (1.0,), (1 + 0.1 * x,), lambda c1, e1: (c1 * e1,)), 'l', lengths), taken_out(d1, 'l', lengths), taken_out(np.sum(x, along("l"), keepdims=True) - d1, 'l', lengths), taken_out(stepped("l", lengths["l"], 0, "after", (0.0,), (k * x,), lambda c1, e1: (c1 + e1,)), 'l', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "k": rng.standard_normal((3, length)).astype(DTYPES['k'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"cum_scans, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
