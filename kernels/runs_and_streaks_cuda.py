"""runs_and_streaks: one pass over l, 8 words of state per row, ordered merge.

The longest run of elements above a level, and the number of runs.

The operator
    runs_and_streaks(x[l]; level=0.3):
        t1 = x > level
        t2 = where(t1, 1, 0)
        return max(scan(lambda c: where(t1, c + 1, 0), l, 0.0, after), l), 1 + sum(abs(t2 - scan(lambda c1: t2, l, 0.0, before)), l, where=index(l) > 0)

One more element (a prime marks the new value)
    x1  = 1 if x[l] > level else −∞
    x2  = −∞ if x[l] > level else 0
    x3  = 1 if x[l] > level else 0
    h1' = max(h1, x1 + s1)
    h2' = max(max(h2, x1 + h3), x2)
    s1' = s1 + x1
    h3' = max(x1 + h3, x2)
    h4' = x3
    h5' = h5
    h6' = h6
    h7' = h7 + (|x3 − h4| if l > 0 else 0)

Two states a and b
    h1' = max(h1_a, h1_b + s1_a)
    h2' = max(max(h2_a, h1_b + h3_a), h2_b)
    s1' = s1_a + s1_b
    h3' = max(s1_b + h3_a, h3_b)
    h4' = h4_b
    h5' = h5_a
    h6' = h6_a
    h7' = h7_a + (|h6_b − h4_a| if h5_b else 0) + h7_b

Dangers
    s = 0 if N_l = 0 else (|h6 − 0| if h5 else 0) + h7 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 16d2c646094a7eca7ae212cfdfc5bbf101068b242575a9e2d5f5cf878e8a6689
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python runs_and_streaks_cuda.py` checks it on a GPU.
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

@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    return a(types.boolean, a, a), lambda context, builder, signature, args: builder.select(*args)

def extreme(order, name):
    """NumPy's maximum or minimum of two floats: NaN wins.  For float32 that is one instruction."""
    def typed(context, a, b):
        def emit(context, builder, signature, args):
            single = ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type] * 2), name + ".NaN.f32 $0, $1, $2;", "=f,f,f")
            first = builder.or_(builder.fcmp_ordered(order, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.call(single, args) if a == types.float32 else builder.select(first, *args)
        return a(a, a), emit
    return intrinsic(typed)

larger = extreme(">", "max")

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
def fold(seen_old, h1_old, h2_old, s1_old, h3_old, h4_old, h5_old, h6_old, h7_old, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, level, begin):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, h1_old, h2_old, s1_old, h3_old, h4_old, h5_old, h6_old, h7_old
    seen = i4(seen_old + many)
    h1, h2, s1, h3, h4, h5, h6, h7 = h1_old, h2_old, s1_old, h3_old, h4_old, h5_old, h6_old, h7_old
    begins = sel(seen_old == 0, i4(1), i4(0))
    t6 = i4(min(max(0, -1), 2147483647))
    t20 = i4(min(max(0, -1), 2147483647))
    if begins > 0:
        i_l = i4(0)
        t2 = f8(cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]) > level
        t3 = f4(1) if t2 else f4(-inf)
        t4 = f4(-inf) if t2 else f4(0)
        t5 = 1 if t2 else 0
        t7 = i4(begin + first + thread * slots + i_l) > t6
        h1, h2, s1, h3, h4, h5, h6, h7 = f8(t3), f8(t4), f8(t3), f8(t4), f8(t5), f8(t7), f8(t5), f8(0)
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t9 = f8(cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]) > level
            t10 = f4(1) if t9 else f4(-inf)
            t13 = f8(t10) + h3
            t15 = f4(-inf) if t9 else f4(0)
            t16 = larger(larger(h2, t13), f8(t15))
            t19 = 1 if t9 else 0
            t23 = abs(f8(t19) - h4)
            t25 = h7 + (t23 if i4(begin + first + thread * slots + i_l) > t20 else f8(0))
            h1, h2, s1, h3, h4, h7 = larger(h1, f8(t10) + s1), t16, s1 + f8(t10), larger(t13, f8(t15)), f8(t19), t25
    return seen, h1, h2, s1, h3, h4, h5, h6, h7


@cuda.jit(device=True)
def merge(h1_a, h1_b, s1_a, h2_a, h3_a, h2_b, s1_b, h3_b, h4_b, h5_a, h6_a, h7_a, h5_b, h6_b, h4_a, h7_b):
    t8 = larger(s1_b + h3_a, h3_b)
    t10 = abs(h6_b - h4_a)
    t13 = h7_a + ((t10 if h5_b != 0 else f8(0)) + h7_b)
    return larger(h1_a, h1_b + s1_a), larger(larger(h2_a, h1_b + h3_a), h2_b), s1_a + s1_b, t8, h4_b, h5_a, h6_a, t13


@cuda.jit(device=True)
def combine(seen_old, h1_old, h2_old, s1_old, h3_old, h4_old, h5_old, h6_old, h7_old, width, lane):
    seen = sum_over(seen_old, width)
    many, h1, h2, s1, h3, h4, h5, h6, h7 = seen_old, h1_old, h2_old, s1_old, h3_old, h4_old, h5_old, h6_old, h7_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            h1_b = cuda.shfl_xor_sync(4294967295, h1, by)
            h2_b = cuda.shfl_xor_sync(4294967295, h2, by)
            s1_b = cuda.shfl_xor_sync(4294967295, s1, by)
            h3_b = cuda.shfl_xor_sync(4294967295, h3, by)
            h4_b = cuda.shfl_xor_sync(4294967295, h4, by)
            h5_b = cuda.shfl_xor_sync(4294967295, h5, by)
            h6_b = cuda.shfl_xor_sync(4294967295, h6, by)
            h7_b = cuda.shfl_xor_sync(4294967295, h7, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            h1_a, h1_b = sel(ahead, h1, h1_b), sel(ahead, h1_b, h1)
            h2_a, h2_b = sel(ahead, h2, h2_b), sel(ahead, h2_b, h2)
            s1_a, s1_b = sel(ahead, s1, s1_b), sel(ahead, s1_b, s1)
            h3_a, h3_b = sel(ahead, h3, h3_b), sel(ahead, h3_b, h3)
            h4_a, h4_b = sel(ahead, h4, h4_b), sel(ahead, h4_b, h4)
            h5_a, h5_b = sel(ahead, h5, h5_b), sel(ahead, h5_b, h5)
            h6_a, h6_b = sel(ahead, h6, h6_b), sel(ahead, h6_b, h6)
            h7_a, h7_b = sel(ahead, h7, h7_b), sel(ahead, h7_b, h7)
            if many_a > 0 and many_b > 0:
                h1, h2, s1, h3, h4, h5, h6, h7 = merge(h1_a, h1_b, s1_a, h2_a, h3_a, h2_b, s1_b, h3_b, h4_b, h5_a, h6_a, h7_a, h5_b, h6_b, h4_a, h7_b)
            else:
                h1, h2, s1, h3, h4, h5, h6, h7 = sel(many_a > 0, h1_a, h1_b), sel(many_a > 0, h2_a, h2_b), sel(many_a > 0, s1_a, s1_b), sel(many_a > 0, h3_a, h3_b), sel(many_a > 0, h4_a, h4_b), sel(many_a > 0, h5_a, h5_b), sel(many_a > 0, h6_a, h6_b), sel(many_a > 0, h7_a, h7_b)
            many = i4(many_a + many_b)
    return seen, h1, h2, s1, h3, h4, h5, h6, h7


@cuda.jit(device=True)
def value_m(h1, h2):
    return larger(h1, h2)


@cuda.jit(device=True)
def output_0(m):
    return f4(m)


@cuda.jit(device=True)
def value_s(n_l, h5, h6, h7):
    t3 = abs(h6 - 0.0)
    t5 = (t3 if h5 != 0 else f8(0)) + h7
    return f8(0) if n_l == 0 else t5


@cuda.jit(device=True)
def output_1(s):
    return f4(1.0 + s)


@cuda.jit(device=True)
def finish(seen, h1, h2, s1, h3, h4, h5, h6, h7):
    m = value_m(h1, h2)
    s = value_s(seen, h5, h6, h7)
    return output_0(m), output_1(s)


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
    def kernel(x, s_x, level, n_l, items, parts, piece, part_seen, part_h1, part_h2, part_s1, part_h3, part_h4, part_h5, part_h6, part_h7, out_0, out_1):
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
        seen, h1, h2, s1, h3, h4, h5, h6, h7 = i4(0), (-inf), (-inf), 0.0, (-inf), 0.0, 0.0, 0.0, 0.0
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                h1 = sel(there, part_h1[place], (-inf))
                h2 = sel(there, part_h2[place], (-inf))
                s1 = sel(there, part_s1[place], 0.0)
                h3 = sel(there, part_h3[place], (-inf))
                h4 = sel(there, part_h4[place], 0.0)
                h5 = sel(there, part_h5[place], 0.0)
                h6 = sel(there, part_h6[place], 0.0)
                h7 = sel(there, part_h7[place], 0.0)
            else:
                cuda.syncthreads()
                lead = p_x + (begin + first) * words_x * SIZE
                skew_x = lead // SIZE % (32 // SIZE)
                stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
                cuda.syncthreads()
                seen, h1, h2, s1, h3, h4, h5, h6, h7 = fold(seen, h1, h2, s1, h3, h4, h5, h6, h7, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, level, begin)
            seen, h1, h2, s1, h3, h4, h5, h6, h7 = combine(seen, h1, h2, s1, h3, h4, h5, h6, h7, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_h1 = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_s1 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            shared_h4 = cuda.shared.array(32, f8)
            shared_h5 = cuda.shared.array(32, f8)
            shared_h6 = cuda.shared.array(32, f8)
            shared_h7 = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_h1[warp] = h1
                    shared_h2[warp] = h2
                    shared_s1[warp] = s1
                    shared_h3[warp] = h3
                    shared_h4[warp] = h4
                    shared_h5[warp] = h5
                    shared_h6[warp] = h6
                    shared_h7[warp] = h7
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    h1 = sel(lane < warps, shared_h1[lane % warps], (-inf))
                    h2 = sel(lane < warps, shared_h2[lane % warps], (-inf))
                    s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], (-inf))
                    h4 = sel(lane < warps, shared_h4[lane % warps], 0.0)
                    h5 = sel(lane < warps, shared_h5[lane % warps], 0.0)
                    h6 = sel(lane < warps, shared_h6[lane % warps], 0.0)
                    h7 = sel(lane < warps, shared_h7[lane % warps], 0.0)
                    seen, h1, h2, s1, h3, h4, h5, h6, h7 = combine(seen, h1, h2, s1, h3, h4, h5, h6, h7, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            h1 = sel(thread == 0, h1, (-inf))
            h2 = sel(thread == 0, h2, (-inf))
            s1 = sel(thread == 0, s1, 0.0)
            h3 = sel(thread == 0, h3, (-inf))
            h4 = sel(thread == 0, h4, 0.0)
            h5 = sel(thread == 0, h5, 0.0)
            h6 = sel(thread == 0, h6, 0.0)
            h7 = sel(thread == 0, h7, 0.0)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_h1[item * parts + part] = h1
                part_h2[item * parts + part] = h2
                part_s1[item * parts + part] = s1
                part_h3[item * parts + part] = h3
                part_h4[item * parts + part] = h4
                part_h5[item * parts + part] = h5
                part_h6[item * parts + part] = h6
                part_h7[item * parts + part] = h7
        elif warp == 0 or alone:
            result_0, result_1 = finish(seen, h1, h2, s1, h3, h4, h5, h6, h7)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(x, level):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays, numbers = {'x': x}, {'level': np.float64(level)}
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
    arguments += [*numbers.values(), *(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, level, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, level)
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


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in ALL_AXES])


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


def definition(x, level):
    """runs_and_streaks as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x > level
    t2 = np.where(t1, 1, 0)
    return (taken_out(np.max(stepped("l", lengths["l"], 0, "after", (0.0,), (t1,), lambda c, e1: (np.where(e1, c + 1, 0),)), along("l"), keepdims=True), '', lengths), taken_out(1 + np.sum(np.where(positions("l", lengths["l"]) > 0, np.abs(t2 - stepped("l", lengths["l"], 0, "before", (0.0,), (t2,), lambda c1, e1: (e1,))), 0), along("l"), keepdims=True), '', lengths),)


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
            wanted = definition(*arrays.values(), 0.3)
        errors[length] = distance(launch(*arrays.values(), 0.3), wanted)
        print(f"runs_and_streaks, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
