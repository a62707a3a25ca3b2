"""iir_biquad: one pass over l, 13 words of state per row, ordered merge.

y_l = 0.3 x_l + 0.2 x_{l−1} + 0.1 x_{l−2} + 0.5 y_{l−1} − 0.2 y_{l−2}: the last two.

The operator
    iir_biquad(x[l]):
        t1 = 0.1 * x
        return scan(lambda y, y1, s, s1: (s + 0.3 * x + 0.5 * y - 0.2 * y1, y, s1 + 0.2 * x, t1), l, (0.0, 0.0, 0.0, 0.0), place=0), scan(lambda y, y1, s, s1: (s + 0.3 * x + 0.5 * y - 0.2 * y1, y, s1 + 0.2 * x, t1), l, (0.0, 0.0, 0.0, 0.0), place=1)

One more element (a prime marks the new value)
    h1'  = 0.5·h1 − 0.2·h8
    h3'  = 0.5·h3 − 0.2·h9
    h'   = 0.5·h + h6 + 0.3·x[l] − 0.2·h2
    h4'  = 0.5·h4 − 0.2·h10
    h5'  = 0.5·h5 + h7 − 0.2·h11
    h6'  = 0.2·x[l] + h12
    h7'  = 0
    h8'  = h1
    h9'  = h3
    h2'  = h
    h10' = h4
    h11' = h5
    h12' = 0.1·x[l]

Two states a and b
    h1'  = h1_b·h1_a + h4_b·h8_a
    h3'  = h1_b·h3_a + h4_b·h9_a
    h'   = h1_b·h_a + h3_b·h6_a + h_b + h4_b·h2_a + h5_b·h12_a
    h4'  = h1_b·h4_a + h4_b·h10_a
    h5'  = h1_b·h5_a + h3_b·h7_a + h4_b·h11_a
    h6'  = h6_b + h7_b·h12_a
    h7'  = 0
    h8'  = h8_b·h1_a + h10_b·h8_a
    h9'  = h8_b·h3_a + h10_b·h9_a
    h2'  = h8_b·h_a + h9_b·h6_a + h2_b + h10_b·h2_a + h11_b·h12_a
    h10' = h8_b·h4_a + h10_b·h10_a
    h11' = h8_b·h5_a + h9_b·h7_a + h10_b·h11_a
    h12' = h12_b

Laws:
Certificate: sha256 1b8350f6cbf44c9081e0e83924fb233885897cde3a2ffe40a4b4d162cc877e3c
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python iir_biquad_cuda.py` checks it on a GPU.
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
def fold(seen_old, h1_old, h3_old, h_old, h4_old, h5_old, h6_old, h7_old, h8_old, h9_old, h2_old, h10_old, h11_old, h12_old, slots, first, thread, length, begin, cells_x, skew_x, shift_x, mask_x):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, h1_old, h3_old, h_old, h4_old, h5_old, h6_old, h7_old, h8_old, h9_old, h2_old, h10_old, h11_old, h12_old
    seen = i4(seen_old + many)
    h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = h1_old, h3_old, h_old, h4_old, h5_old, h6_old, h7_old, h8_old, h9_old, h2_old, h10_old, h11_old, h12_old
    begins = sel(seen_old == 0 and begin + first + thread * slots + i8(0) > 0, i4(1), i4(0))
    if begins > 0:
        i_l = i4(0)
        t1 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
        t2 = 0.3 * f8(t1)
        t3 = 0.2 * f8(t1)
        t4 = 0.1 * f8(t1)
        h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = 0.5, f8(1), t2, -0.2, f8(0), t3, f8(1), f8(1), f8(0), f8(0), f8(0), f8(0), t4
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t7 = 0.5 * h1 + -0.2 * h8
            t10 = 0.5 * h3 + -0.2 * h9
            t13 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
            t17 = 0.5 * h + h6 + 0.3 * f8(t13) + -0.2 * h2
            t20 = 0.5 * h4 + -0.2 * h10
            t24 = 0.5 * h5 + h7 + -0.2 * h11
            t26 = 0.2 * f8(t13) + h12
            t27 = 0.1 * f8(t13)
            h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = t7, t10, t17, t20, t24, t26, f8(0), h1, h3, h, h4, h5, t27
    return seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12


@cuda.jit(device=True)
def merge(h1_b, h1_a, h4_b, h8_a, h3_a, h9_a, h_a, h3_b, h6_a, h_b, h2_a, h5_b, h12_a, h4_a, h10_a, h5_a, h7_a, h11_a, h6_b, h7_b, h8_b, h10_b, h9_b, h2_b, h11_b, h12_b):
    t6 = h1_b * h3_a + h4_b * h9_a
    t14 = h1_b * h_a + h3_b * h6_a + h_b + h4_b * h2_a + h5_b * h12_a
    t17 = h1_b * h4_a + h4_b * h10_a
    t22 = h1_b * h5_a + h3_b * h7_a + h4_b * h11_a
    t27 = h8_b * h1_a + h10_b * h8_a
    t30 = h8_b * h3_a + h10_b * h9_a
    t38 = h8_b * h_a + h9_b * h6_a + h2_b + h10_b * h2_a + h11_b * h12_a
    t41 = h8_b * h4_a + h10_b * h10_a
    t46 = h8_b * h5_a + h9_b * h7_a + h10_b * h11_a
    return h1_b * h1_a + h4_b * h8_a, t6, t14, t17, t22, h6_b + h7_b * h12_a, f8(0), t27, t30, t38, t41, t46, h12_b


@cuda.jit(device=True)
def combine(seen_old, h1_old, h3_old, h_old, h4_old, h5_old, h6_old, h7_old, h8_old, h9_old, h2_old, h10_old, h11_old, h12_old, width, lane):
    seen = sum_over(seen_old, width)
    many, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = seen_old, h1_old, h3_old, h_old, h4_old, h5_old, h6_old, h7_old, h8_old, h9_old, h2_old, h10_old, h11_old, h12_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            h1_b = cuda.shfl_xor_sync(4294967295, h1, by)
            h3_b = cuda.shfl_xor_sync(4294967295, h3, by)
            h_b = cuda.shfl_xor_sync(4294967295, h, by)
            h4_b = cuda.shfl_xor_sync(4294967295, h4, by)
            h5_b = cuda.shfl_xor_sync(4294967295, h5, by)
            h6_b = cuda.shfl_xor_sync(4294967295, h6, by)
            h7_b = cuda.shfl_xor_sync(4294967295, h7, by)
            h8_b = cuda.shfl_xor_sync(4294967295, h8, by)
            h9_b = cuda.shfl_xor_sync(4294967295, h9, by)
            h2_b = cuda.shfl_xor_sync(4294967295, h2, by)
            h10_b = cuda.shfl_xor_sync(4294967295, h10, by)
            h11_b = cuda.shfl_xor_sync(4294967295, h11, by)
            h12_b = cuda.shfl_xor_sync(4294967295, h12, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            h1_a, h1_b = sel(ahead, h1, h1_b), sel(ahead, h1_b, h1)
            h3_a, h3_b = sel(ahead, h3, h3_b), sel(ahead, h3_b, h3)
            h_a, h_b = sel(ahead, h, h_b), sel(ahead, h_b, h)
            h4_a, h4_b = sel(ahead, h4, h4_b), sel(ahead, h4_b, h4)
            h5_a, h5_b = sel(ahead, h5, h5_b), sel(ahead, h5_b, h5)
            h6_a, h6_b = sel(ahead, h6, h6_b), sel(ahead, h6_b, h6)
            h7_a, h7_b = sel(ahead, h7, h7_b), sel(ahead, h7_b, h7)
            h8_a, h8_b = sel(ahead, h8, h8_b), sel(ahead, h8_b, h8)
            h9_a, h9_b = sel(ahead, h9, h9_b), sel(ahead, h9_b, h9)
            h2_a, h2_b = sel(ahead, h2, h2_b), sel(ahead, h2_b, h2)
            h10_a, h10_b = sel(ahead, h10, h10_b), sel(ahead, h10_b, h10)
            h11_a, h11_b = sel(ahead, h11, h11_b), sel(ahead, h11_b, h11)
            h12_a, h12_b = sel(ahead, h12, h12_b), sel(ahead, h12_b, h12)
            if many_a > 0 and many_b > 0:
                h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = merge(h1_b, h1_a, h4_b, h8_a, h3_a, h9_a, h_a, h3_b, h6_a, h_b, h2_a, h5_b, h12_a, h4_a, h10_a, h5_a, h7_a, h11_a, h6_b, h7_b, h8_b, h10_b, h9_b, h2_b, h11_b, h12_b)
            else:
                h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = sel(many_a > 0, h1_a, h1_b), sel(many_a > 0, h3_a, h3_b), sel(many_a > 0, h_a, h_b), sel(many_a > 0, h4_a, h4_b), sel(many_a > 0, h5_a, h5_b), sel(many_a > 0, h6_a, h6_b), sel(many_a > 0, h7_a, h7_b), sel(many_a > 0, h8_a, h8_b), sel(many_a > 0, h9_a, h9_b), sel(many_a > 0, h2_a, h2_b), sel(many_a > 0, h10_a, h10_b), sel(many_a > 0, h11_a, h11_b), sel(many_a > 0, h12_a, h12_b)
            many = i4(many_a + many_b)
    return seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12


@cuda.jit(device=True)
def output_0(h):
    return f4(h)


@cuda.jit(device=True)
def output_1(h2):
    return f4(h2)


@cuda.jit(device=True)
def finish(seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12):
    return output_0(h), output_1(h2)


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
    def kernel(x, s_x, n_l, items, parts, piece, part_seen, part_h1, part_h3, part_h, part_h4, part_h5, part_h6, part_h7, part_h8, part_h9, part_h2, part_h10, part_h11, part_h12, out_0, out_1):
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
        seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = i4(0), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                h1 = sel(there, part_h1[place], 1.0)
                h3 = sel(there, part_h3[place], 0.0)
                h = sel(there, part_h[place], 0.0)
                h4 = sel(there, part_h4[place], 0.0)
                h5 = sel(there, part_h5[place], 0.0)
                h6 = sel(there, part_h6[place], 0.0)
                h7 = sel(there, part_h7[place], 0.0)
                h8 = sel(there, part_h8[place], 0.0)
                h9 = sel(there, part_h9[place], 0.0)
                h2 = sel(there, part_h2[place], 0.0)
                h10 = sel(there, part_h10[place], 1.0)
                h11 = sel(there, part_h11[place], 0.0)
                h12 = sel(there, part_h12[place], 0.0)
            else:
                cuda.syncthreads()
                lead = p_x + (begin + first) * words_x * SIZE
                skew_x = lead // SIZE % (32 // SIZE)
                stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
                cuda.syncthreads()
                seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = fold(seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12, slots, first, thread, length, begin, cells_x, skew_x, shift_x, mask_x)
            seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = combine(seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_h1 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            shared_h = cuda.shared.array(32, f8)
            shared_h4 = cuda.shared.array(32, f8)
            shared_h5 = cuda.shared.array(32, f8)
            shared_h6 = cuda.shared.array(32, f8)
            shared_h7 = cuda.shared.array(32, f8)
            shared_h8 = cuda.shared.array(32, f8)
            shared_h9 = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_h10 = cuda.shared.array(32, f8)
            shared_h11 = cuda.shared.array(32, f8)
            shared_h12 = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_h1[warp] = h1
                    shared_h3[warp] = h3
                    shared_h[warp] = h
                    shared_h4[warp] = h4
                    shared_h5[warp] = h5
                    shared_h6[warp] = h6
                    shared_h7[warp] = h7
                    shared_h8[warp] = h8
                    shared_h9[warp] = h9
                    shared_h2[warp] = h2
                    shared_h10[warp] = h10
                    shared_h11[warp] = h11
                    shared_h12[warp] = h12
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    h1 = sel(lane < warps, shared_h1[lane % warps], 1.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], 0.0)
                    h = sel(lane < warps, shared_h[lane % warps], 0.0)
                    h4 = sel(lane < warps, shared_h4[lane % warps], 0.0)
                    h5 = sel(lane < warps, shared_h5[lane % warps], 0.0)
                    h6 = sel(lane < warps, shared_h6[lane % warps], 0.0)
                    h7 = sel(lane < warps, shared_h7[lane % warps], 0.0)
                    h8 = sel(lane < warps, shared_h8[lane % warps], 0.0)
                    h9 = sel(lane < warps, shared_h9[lane % warps], 0.0)
                    h2 = sel(lane < warps, shared_h2[lane % warps], 0.0)
                    h10 = sel(lane < warps, shared_h10[lane % warps], 1.0)
                    h11 = sel(lane < warps, shared_h11[lane % warps], 0.0)
                    h12 = sel(lane < warps, shared_h12[lane % warps], 0.0)
                    seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12 = combine(seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            h1 = sel(thread == 0, h1, 1.0)
            h3 = sel(thread == 0, h3, 0.0)
            h = sel(thread == 0, h, 0.0)
            h4 = sel(thread == 0, h4, 0.0)
            h5 = sel(thread == 0, h5, 0.0)
            h6 = sel(thread == 0, h6, 0.0)
            h7 = sel(thread == 0, h7, 0.0)
            h8 = sel(thread == 0, h8, 0.0)
            h9 = sel(thread == 0, h9, 0.0)
            h2 = sel(thread == 0, h2, 0.0)
            h10 = sel(thread == 0, h10, 1.0)
            h11 = sel(thread == 0, h11, 0.0)
            h12 = sel(thread == 0, h12, 0.0)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_h1[item * parts + part] = h1
                part_h3[item * parts + part] = h3
                part_h[item * parts + part] = h
                part_h4[item * parts + part] = h4
                part_h5[item * parts + part] = h5
                part_h6[item * parts + part] = h6
                part_h7[item * parts + part] = h7
                part_h8[item * parts + part] = h8
                part_h9[item * parts + part] = h9
                part_h2[item * parts + part] = h2
                part_h10[item * parts + part] = h10
                part_h11[item * parts + part] = h11
                part_h12[item * parts + part] = h12
        elif warp == 0 or alone:
            result_0, result_1 = finish(seen, h1, h3, h, h4, h5, h6, h7, h8, h9, h2, h10, h11, h12)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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
    """iir_biquad as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = 0.1 * x
    return (taken_out(stepped("l", lengths["l"], 0, "", (0.0, 0.0, 0.0, 0.0,), (0.3 * x, 0.2 * x, t1,), lambda y, y1, s, s1, e1, e2, e3: (s + e1 + 0.5 * y - 0.2 * y1, y, s1 + e2, e3,)), '', lengths), taken_out(stepped("l", lengths["l"], 1, "", (0.0, 0.0, 0.0, 0.0,), (0.3 * x, 0.2 * x, t1,), lambda y, y1, s, s1, e1, e2, e3: (s + e1 + 0.5 * y - 0.2 * y1, y, s1 + e2, e3,)), '', lengths),)


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
        print(f"iir_biquad, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
