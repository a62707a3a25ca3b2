"""max_drawdown: one pass over l, 7 words of state per row, ordered merge.

The largest fall from a peak, as a difference and as a share, and the largest rise from a trough.

The operator
    max_drawdown(x[l]):
        t1 = log(x)
        assume(x > 0)
        return max(scan(lambda c1: maximum(c1, x), l, -inf, after) - x, l), 1 - exp(-max(scan(lambda c1: maximum(c1, t1), l, -inf, after) - t1, l)), max(x - scan(lambda c1: minimum(c1, x), l, inf, after), l)

One more element (a prime marks the new value)
    x   = x[l] − x[l]
    m1' = max(m1, −x[l])
    m'  = max(max(m, −x[l] + m4), x)
    m4' = max(m4, x[l])
    m5' = max(m5, −log(x[l]))
    m2' = max(max(m2, −log(x[l]) + m6), log(x[l]) − log(x[l]))
    m6' = max(m6, log(x[l]))
    m3' = max(max(m3, x[l] + m1), x)

Two states a and b
    m1' = max(m1_a, m1_b)
    m'  = max(max(m_a, m1_b + m4_a), m_b)
    m4' = max(m4_a, m4_b)
    m5' = max(m5_a, m5_b)
    m2' = max(max(m2_a, m5_b + m6_a), m2_b)
    m6' = max(m6_a, m6_b)
    m3' = max(max(m3_a, m4_b + m1_a), m3_b)

Laws:
Certificate: sha256 0a5700a3b0232d684f6d67a24628c0e26f3d9430fcbb92d418b94b4e7a217403
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python max_drawdown_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_x, skew_x, shift_x, mask_x, slots):
    for i_l in range(slots):
        t2 = math.log(f8(cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]))
        cells_S1[i_l * span + thread] = f4(t2)


@cuda.jit(device=True)
def fold(seen_old, m1_old, m_old, m4_old, m5_old, m2_old, m6_old, m3_old, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, span, cells_S1):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, m1_old, m_old, m4_old, m5_old, m2_old, m6_old, m3_old
    seen = i4(seen_old + many)
    m1, m, m4, m5, m2, m6, m3 = m1_old, m_old, m4_old, m5_old, m2_old, m6_old, m3_old
    begins = sel(seen_old == 0, i4(1), i4(0))
    if begins > 0:
        i_l = i4(0)
        t1 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
        t2 = -t1
        t3 = f8(t1) + f8(t2)
        t4 = -f8(cells_S1[i_l * span + thread])
        t5 = f8(cells_S1[i_l * span + thread]) + t4
        m1, m, m4, m5, m2, m6, m3 = f8(t2), t3, f8(t1), t4, t5, f8(cells_S1[i_l * span + thread]), t3
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t6 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
            t7 = -t6
            t11 = f8(t6) + f8(t7)
            t12 = larger(larger(m, f8(t7) + m4), t11)
            t14 = -f8(cells_S1[i_l * span + thread])
            t19 = larger(larger(m2, t14 + m6), f8(cells_S1[i_l * span + thread]) + t14)
            t20 = larger(m6, f8(cells_S1[i_l * span + thread]))
            t23 = larger(larger(m3, f8(t6) + m1), t11)
            m1, m, m4, m5, m2, m6, m3 = larger(m1, f8(t7)), t12, larger(m4, f8(t6)), larger(m5, t14), t19, t20, t23
    return seen, m1, m, m4, m5, m2, m6, m3


@cuda.jit(device=True)
def merge(m1_a, m1_b, m_a, m4_a, m_b, m4_b, m5_a, m5_b, m2_a, m6_a, m2_b, m6_b, m3_a, m3_b):
    t6 = larger(m5_a, m5_b)
    t9 = larger(larger(m2_a, m5_b + m6_a), m2_b)
    t10 = larger(m6_a, m6_b)
    t13 = larger(larger(m3_a, m4_b + m1_a), m3_b)
    return larger(m1_a, m1_b), larger(larger(m_a, m1_b + m4_a), m_b), larger(m4_a, m4_b), t6, t9, t10, t13


@cuda.jit(device=True)
def combine(seen_old, m1_old, m_old, m4_old, m5_old, m2_old, m6_old, m3_old, width, lane):
    seen = sum_over(seen_old, width)
    many, m1, m, m4, m5, m2, m6, m3 = seen_old, m1_old, m_old, m4_old, m5_old, m2_old, m6_old, m3_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            m1_b = cuda.shfl_xor_sync(4294967295, m1, by)
            m_b = cuda.shfl_xor_sync(4294967295, m, by)
            m4_b = cuda.shfl_xor_sync(4294967295, m4, by)
            m5_b = cuda.shfl_xor_sync(4294967295, m5, by)
            m2_b = cuda.shfl_xor_sync(4294967295, m2, by)
            m6_b = cuda.shfl_xor_sync(4294967295, m6, by)
            m3_b = cuda.shfl_xor_sync(4294967295, m3, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            m1_a, m1_b = sel(ahead, m1, m1_b), sel(ahead, m1_b, m1)
            m_a, m_b = sel(ahead, m, m_b), sel(ahead, m_b, m)
            m4_a, m4_b = sel(ahead, m4, m4_b), sel(ahead, m4_b, m4)
            m5_a, m5_b = sel(ahead, m5, m5_b), sel(ahead, m5_b, m5)
            m2_a, m2_b = sel(ahead, m2, m2_b), sel(ahead, m2_b, m2)
            m6_a, m6_b = sel(ahead, m6, m6_b), sel(ahead, m6_b, m6)
            m3_a, m3_b = sel(ahead, m3, m3_b), sel(ahead, m3_b, m3)
            if many_a > 0 and many_b > 0:
                m1, m, m4, m5, m2, m6, m3 = merge(m1_a, m1_b, m_a, m4_a, m_b, m4_b, m5_a, m5_b, m2_a, m6_a, m2_b, m6_b, m3_a, m3_b)
            else:
                m1, m, m4, m5, m2, m6, m3 = sel(many_a > 0, m1_a, m1_b), sel(many_a > 0, m_a, m_b), sel(many_a > 0, m4_a, m4_b), sel(many_a > 0, m5_a, m5_b), sel(many_a > 0, m2_a, m2_b), sel(many_a > 0, m6_a, m6_b), sel(many_a > 0, m3_a, m3_b)
            many = i4(many_a + many_b)
    return seen, m1, m, m4, m5, m2, m6, m3


@cuda.jit(device=True)
def output_0(m):
    return f4(m)


@cuda.jit(device=True)
def output_1(m2):
    return f4(1.0 - math.exp(-m2))


@cuda.jit(device=True)
def output_2(m3):
    return f4(m3)


@cuda.jit(device=True)
def finish(seen, m1, m, m4, m5, m2, m6, m3):
    return output_0(m), output_1(m2), output_2(m3)


@cache
def make(warps, stage, slots):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_x = 1
    shift_x, mask_x = turns_of(slots * words_x, 32)
    steps_x = 0 if joins else -(-(slots * span * words_x + 32 // SIZE) // span)
    room_x = max(steps_x * span, 1)
    room_S1 = slots * span * 1

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, n_l, items, parts, piece, part_seen, part_m1, part_m, part_m4, part_m5, part_m2, part_m6, part_m3, out_0, out_1, out_2):
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
        cells_S1 = cuda.shared.array(room_S1, f4)
        seen, m1, m, m4, m5, m2, m6, m3 = i4(0), (-inf), (-inf), (-inf), (-inf), (-inf), (-inf), (-inf)
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                m1 = sel(there, part_m1[place], (-inf))
                m = sel(there, part_m[place], (-inf))
                m4 = sel(there, part_m4[place], (-inf))
                m5 = sel(there, part_m5[place], (-inf))
                m2 = sel(there, part_m2[place], (-inf))
                m6 = sel(there, part_m6[place], (-inf))
                m3 = sel(there, part_m3[place], (-inf))
            else:
                cuda.syncthreads()
                lead = p_x + (begin + first) * words_x * SIZE
                skew_x = lead // SIZE % (32 // SIZE)
                stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
                cuda.syncthreads()
                make_S1(span, thread, cells_S1, cells_x, skew_x, shift_x, mask_x, slots)
                seen, m1, m, m4, m5, m2, m6, m3 = fold(seen, m1, m, m4, m5, m2, m6, m3, slots, first, thread, length, cells_x, skew_x, shift_x, mask_x, span, cells_S1)
            seen, m1, m, m4, m5, m2, m6, m3 = combine(seen, m1, m, m4, m5, m2, m6, m3, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_m1 = cuda.shared.array(32, f8)
            shared_m = cuda.shared.array(32, f8)
            shared_m4 = cuda.shared.array(32, f8)
            shared_m5 = cuda.shared.array(32, f8)
            shared_m2 = cuda.shared.array(32, f8)
            shared_m6 = cuda.shared.array(32, f8)
            shared_m3 = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_m1[warp] = m1
                    shared_m[warp] = m
                    shared_m4[warp] = m4
                    shared_m5[warp] = m5
                    shared_m2[warp] = m2
                    shared_m6[warp] = m6
                    shared_m3[warp] = m3
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    m1 = sel(lane < warps, shared_m1[lane % warps], (-inf))
                    m = sel(lane < warps, shared_m[lane % warps], (-inf))
                    m4 = sel(lane < warps, shared_m4[lane % warps], (-inf))
                    m5 = sel(lane < warps, shared_m5[lane % warps], (-inf))
                    m2 = sel(lane < warps, shared_m2[lane % warps], (-inf))
                    m6 = sel(lane < warps, shared_m6[lane % warps], (-inf))
                    m3 = sel(lane < warps, shared_m3[lane % warps], (-inf))
                    seen, m1, m, m4, m5, m2, m6, m3 = combine(seen, m1, m, m4, m5, m2, m6, m3, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            m1 = sel(thread == 0, m1, (-inf))
            m = sel(thread == 0, m, (-inf))
            m4 = sel(thread == 0, m4, (-inf))
            m5 = sel(thread == 0, m5, (-inf))
            m2 = sel(thread == 0, m2, (-inf))
            m6 = sel(thread == 0, m6, (-inf))
            m3 = sel(thread == 0, m3, (-inf))
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_m1[item * parts + part] = m1
                part_m[item * parts + part] = m
                part_m4[item * parts + part] = m4
                part_m5[item * parts + part] = m5
                part_m2[item * parts + part] = m2
                part_m6[item * parts + part] = m6
                part_m3[item * parts + part] = m3
        elif warp == 0 or alone:
            result_0, result_1, result_2 = finish(seen, m1, m, m4, m5, m2, m6, m3)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))
                store_one(address(out_2) + (item) * SIZE, f4(result_2))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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
    element = 4 * 1 + 4 * 1
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
    """max_drawdown as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = np.log(x)
    return (taken_out(np.max(stepped("l", lengths["l"], 0, "after", (-np.inf,), (x,), lambda c1, e1: (np.maximum(c1, e1),)) - x, along("l"), keepdims=True), '', lengths), taken_out(1 - np.exp(-np.max(stepped("l", lengths["l"], 0, "after", (-np.inf,), (t1,), lambda c1, e1: (np.maximum(c1, e1),)) - t1, along("l"), keepdims=True)), '', lengths), taken_out(np.max(x - stepped("l", lengths["l"], 0, "after", (np.inf,), (x,), lambda c1, e1: (np.minimum(c1, e1),)), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.uniform(0.5, 2.0, (3, length)).astype(DTYPES['x'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"max_drawdown, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
