"""thermal_kinetic: one pass over l, 3 words of state per row, commutative merge.

K = Σ ½ m |v − V|² with the drift V = Σ m v/Σ m taken out, and the momentum Σ m v.

The operator
    thermal_kinetic(m[l], v[l, c]):
        d1 = sum(m * v, l)
        return sum(0.5 * m * sum((v - d1 / sum(m, l)) ** 2, c), l), d1

One more element (a prime marks the new value)
    s'  = s + m[l]·v[l,c]
    s2' = s2 + m[l]
    p1' = s'/s2'
    δ   = p1 − p1'
    s1' = s1 + Σ_c δ²·s2 + Σ_c m[l]·(v[l,c] − p1')²

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    p1_a = s_a/s2_a
    p1_b = s_b/s2_b
    p1'  = s'/s2'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s1'  = s1_a + Σ_c δ_a²·s2_a + s1_b + Σ_c δ_b²·s2_b

Dangers
    s2 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 2adaa893fe529cc793e48b074750bffdb3746bb733ff987a970a539ddf112c74
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python thermal_kinetic_cuda.py` checks it on a GPU.
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
def value_p1(into, s2, s, n_c):
    t1 = 1.0 / s2
    for i_c in range(n_c):
        into[i_c] = s[i_c] * t1


@cuda.jit(device=True)
def rebase_s1(s1, p1, p1_new, s, n_c, s2):
    t1 = 0.0
    for i_c in range(n_c):
        t2 = p1[i_c] if math.isfinite(p1[i_c]) else 0.0
        t5 = 2.0 * (t2 - (p1_new[i_c] if math.isfinite(p1_new[i_c]) else 0.0))
        t7 = f8(0) if p1[i_c] == t2 else s[i_c]
        t1 = t1 + (0.0 if t7 == 0.0 else t5 * t7)
    t10 = 0.0
    for i_c in range(n_c):
        t13 = (p1[i_c] if math.isfinite(p1[i_c]) else 0.0) - (p1_new[i_c] if math.isfinite(p1_new[i_c]) else 0.0)
        t10 = t10 + (0.0 if s2 == 0.0 else t13 * t13 * s2)
    return s1 + t1 + t10


@cuda.jit(device=True)
def fold(seen_old, s2_old, s1_old, slots, first, span, thread, length, n_c, s_old, s, p1_old, cells_m, skew_m, shift_m, mask_m, cells_v, skew_v, shift_v, mask_v, p1):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, s2_old, s1_old
    seen = i4(seen_old + many)
    for word in range(n_c):
        s_old[word] = s[word]
    value_p1(p1_old, s2_old, s_old, n_c)
    s2 = s2_old
    s2_it = 0.0
    for i_l in range(slots):
        s2_it = s2_it + f8(sel(i4(first + i_l * span + thread) < i4(length), cells_m[cell(i_l * span + thread, 1, skew_m, shift_m, mask_m)], f4(0.0)))
    s2 = s2 + s2_it
    for i_l in range(slots):
        for i_c in range(n_c):
            t1 = f8(cells_m[cell(i_l * span + thread, 1, skew_m, shift_m, mask_m)]) * f8(cells_v[cell(i_l * span + thread, n_c, i_c + skew_v, shift_v, mask_v)])
            s[i_c] = s[i_c] + sel(i4(first + i_l * span + thread) < i4(length), t1, 0.0)
    value_p1(p1, s2, s, n_c)
    s1 = rebase_s1(s1_old, p1_old, p1, s_old, n_c, s2_old) if seen_old > 0 else s1_old
    s1_it = 0.0
    for i_l in range(slots):
        t2 = 0.0
        for i_c in range(n_c):
            t3 = p1[i_c] if math.isfinite(p1[i_c]) else 0.0
            t4 = f8(cells_v[cell(i_l * span + thread, n_c, i_c + skew_v, shift_v, mask_v)]) - t3
            t2 = t2 + f8(cells_m[cell(i_l * span + thread, 1, skew_m, shift_m, mask_m)]) * t4 * t4
        s1_it = s1_it + sel(i4(first + i_l * span + thread) < i4(length), t2, 0.0)
    s1 = s1 + s1_it
    return seen, s2, s1


@cuda.jit(device=True)
def combine(seen_old, s2_old, s1_old, width, n_c, s_old, s, p1_old, p1):
    seen = sum_over(seen_old, width)
    for word in range(n_c):
        s_old[word] = s[word]
    value_p1(p1_old, s2_old, s_old, n_c)
    s2 = sum_over(s2_old, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_c):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    value_p1(p1, s2, s, n_c)
    s1 = sum_over(rebase_s1(s1_old, p1_old, p1, s_old, n_c, s2_old) if seen_old > 0 else 0.0, width)
    return seen, s2, s1


@cuda.jit(device=True)
def settle_s1(p1, n_c, s1, s, s2):
    t1 = 0.0
    for i_c in range(n_c):
        t2 = p1[i_c]
        t1 = t1 + 2.0 * (t2 - t2) * f8(f4(0) if p1[i_c] == t2 else f4(1.0))
    t9 = 0.0
    for i_c in range(n_c):
        t10 = p1[i_c]
        t11 = t10 - t10
        t9 = t9 + t11 * t11
    t13 = 1.0 + t1 + t9
    t17 = 0.0
    for i_c in range(n_c):
        t20 = p1[i_c] if p1[i_c] - p1[i_c] == 0.0 else f8(0)
        t17 = t17 + 2.0 * (t20 - p1[i_c]) * (f8(0) if p1[i_c] == t20 else s[i_c])
    t27 = 0.0
    for i_c in range(n_c):
        t31 = (p1[i_c] if p1[i_c] - p1[i_c] == 0.0 else f8(0)) - p1[i_c]
        t27 = t27 + t31 * t31 * s2
    return (s1 + t17 + t27 if s1 - s1 == 0.0 else nan) if t13 != t13 else s1


@cuda.jit(device=True)
def value_s3(s1):
    return 0.5 * s1


@cuda.jit(device=True)
def output_0(s3):
    return f4(s3)


@cuda.jit(device=True)
def output_1(into, s, n_c):
    for i_c in range(n_c):
        into[i_c] = f4(s[i_c])


@cuda.jit(device=True)
def finish(seen, s2, s1, p1, n_c, s, result_1):
    value_p1(p1, s2, s, n_c)
    s1 = settle_s1(p1, n_c, s1, s, s2)
    s3 = value_s3(s1)
    output_1(result_1, s, n_c)
    return output_0(s3)


@cache
def make(warps, stage, slots, n_c):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_s = n_c
    words_p1 = n_c
    words_s_old = n_c
    words_p1_old = n_c
    words_result_1 = n_c
    room_s = warps * (words_s | 1)
    words_m = 1
    shift_m, mask_m = turns_of(words_m, 32)
    steps_m = 0 if joins else -(-(slots * span * words_m + 32 // SIZE) // span)
    room_m = max(steps_m * span, 1)
    words_v = n_c
    shift_v, mask_v = turns_of(words_v, 32)
    steps_v = 0 if joins else -(-(slots * span * words_v + 32 // SIZE) // span)
    room_v = max(steps_v * span, 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(m, s_m, v, s_v, n_l, items, parts, piece, part_seen, part_s2, part_s1, part_s, out_0, out_1):
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
        o_m = rest * s_m
        p_m = address(m) + o_m * SIZE
        o_v = rest * s_v
        p_v = address(v) + o_v * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_m = cuda.shared.array(room_m, f4)
        cells_v = cuda.shared.array(room_v, f4)
        s = cuda.local.array(words_s, f8)
        p1 = cuda.local.array(words_p1, f8)
        s_old = cuda.local.array(words_s_old, f8)
        p1_old = cuda.local.array(words_p1_old, f8)
        result_1 = cuda.local.array(words_result_1, f4)
        seen, s2, s1 = i4(0), 0.0, 0.0
        for word in range(words_s):
            s[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_m + (begin + first) * words_m * SIZE
            skew_m = lead // SIZE % (32 // SIZE)
            stage_real(cells_m, lead - skew_m * SIZE, skew_m, skew_m + min(slots * span, length - first) * words_m, steps_m, shift_m, mask_m, thread, span)
            lead = p_v + (begin + first) * words_v * SIZE
            skew_v = lead // SIZE % (32 // SIZE)
            stage_real(cells_v, lead - skew_v * SIZE, skew_v, skew_v + min(slots * span, length - first) * words_v, steps_v, shift_v, mask_v, thread, span)
            cuda.syncthreads()
            seen, s2, s1 = fold(seen, s2, s1, slots, first, span, thread, length, n_c, s_old, s, p1_old, cells_m, skew_m, shift_m, mask_m, cells_v, skew_v, shift_v, mask_v, p1)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            s2 = sel(there, part_s2[place], 0.0)
            s1 = sel(there, part_s1[place], 0.0)
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
        seen, s2, s1 = combine(seen, s2, s1, 32, n_c, s_old, s, p1_old, p1)
        shared_seen = cuda.shared.array(32, i4)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(room_s, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s2[warp] = s2
                shared_s1[warp] = s1
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                seen, s2, s1 = combine(seen, s2, s1, warps, n_c, s_old, s, p1_old, p1)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_s2[item * parts + part] = s2
                part_s1[item * parts + part] = s1
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
        elif warp == 0 or alone:
            result_0 = finish(seen, s2, s1, p1, n_c, s, result_1)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                for word in range(words_result_1):
                    store_one(address(out_1) + (item * words_result_1 + word) * SIZE, f4(result_1[word]))

    return kernel


AXES = {'m': ('l',), 'v': ('l', 'c')}
DTYPES = {'m': np.float32, 'v': np.float32}
OUTPUTS = [((), np.float32), (('c',), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ('c',))]


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


def plan(m, v):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'m': m, 'v': v}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 8 * sizes['c']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * 1 + 4 * sizes['c']
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['c']), blocks * parts, threads), ((8, 'join', slots, sizes['c']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['c']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(m, v, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(m, v)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 'c')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(ALL_AXES) - len(own)))]
    return np.moveaxis(array, range(-len(ALL_AXES), len(own) - len(ALL_AXES)), own)


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


def definition(m, v):
    """thermal_kinetic as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    m = spread(m, 'l')
    v = spread(v, 'l c')
    lengths = {"l": m.shape[-2], "c": v.shape[-1]}
    d1 = np.sum(m * v, along("l"), keepdims=True)
    return (taken_out(np.sum(0.5 * m * np.sum((v - d1 / np.sum(m, along("l"), keepdims=True)) ** 2, along("c"), keepdims=True), along("l"), keepdims=True), '', lengths), taken_out(d1, 'c', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"m": rng.standard_normal((3, length)).astype(DTYPES['m']),
                  "v": rng.standard_normal((3, length, 4)).astype(DTYPES['v'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"thermal_kinetic, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
