"""gram_power_iteration: one pass over l, 2 words of state per row, commutative merge.

v ← Σ (X_l·v) X_l, normalised, three times from v = 1; then v and Σ (X_l·v)².

The operator
    gram_power_iteration(X[l, c]):
        d1 = sum(sum(X * 1.0, c) * X, l)
        d2 = sum(sum(X * (d1 / sqrt(sum(d1 * d1, c))), c) * X, l)
        d3 = sum(sum(X * (d2 / sqrt(sum(d2 * d2, c))), c) * X, l)
        t1 = d3 / sqrt(sum(d3 * d3, c))
        return t1, sum(sum(X * t1, c) ** 2, l)

One more element (a prime marks the new value)
    s'  = s + X[l,c]·Σ_c X[l,c]
    s1' = s1 + X[l,c]·X[l,c__1]

Two states a and b
    s'  = s_a + s_b
    s1' = s1_a + s1_b

Dangers
    √(Σ_c s²) divides and may be 0: the result is then what IEEE division gives
    √(Σ_c s2²) divides and may be 0: the result is then what IEEE division gives
    √(Σ_c s3²) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract
Certificate: sha256 9c5056a8d004b4e7de7f3f9309d3bd1d66e26fbd1f96b17aebe4b0b528379d9d
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python gram_power_iteration_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_X, n_c, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_c in range(n_c):
            t1 = t1 + f8(cells_X[cell(i_l * span + thread, n_c, i_c + skew_X, shift_X, mask_X)])
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def fold(seen_old, slots, first, span, thread, length, cells_X, n_c, skew_X, shift_X, mask_X, cells_S1, s, s1, n_c__1):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old
    seen = i4(seen_old + many)
    for i_l in range(slots):
        for i_c in range(n_c):
            t1 = cells_X[cell(i_l * span + thread, n_c, i_c + skew_X, shift_X, mask_X)] * cells_S1[i_l * span + thread]
            s[i_c] = s[i_c] + sel(i4(first + i_l * span + thread) < i4(length), t1, f4(0.0))
    for i_l in range(slots):
        for i_c in range(n_c):
            for i_c__1 in range(n_c__1):
                t2 = f8(cells_X[cell(i_l * span + thread, n_c, i_c + skew_X, shift_X, mask_X)]) * f8(cells_X[cell(i_l * span + thread, n_c, i_c__1 + skew_X, shift_X, mask_X)])
                s1[i_c * n_c + i_c__1] = s1[i_c * n_c + i_c__1] + sel(i4(first + i_l * span + thread) < i4(length), t2, 0.0)
    return seen


@cuda.jit(device=True)
def combine(seen_old, width, s, n_c, s1):
    seen = sum_over(seen_old, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_c):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_c * n_c):
                s1[word] = s1[word] + cuda.shfl_xor_sync(4294967295, s1[word], by)
    return seen


@cuda.jit(device=True)
def value_p1(into, s, n_c):
    t1 = 0.0
    for i_c in range(n_c):
        t1 = t1 + f8(s[i_c]) * f8(s[i_c])
    t4 = 1.0 / math.sqrt(t1)
    for i_c in range(n_c):
        into[i_c] = f4(f8(s[i_c]) * t4)


@cuda.jit(device=True)
def value_s2(into, p1, s1, n_c, n_c__1):
    for i_c in range(n_c):
        t1 = 0.0
        for i_c__1 in range(n_c__1):
            t1 = t1 + f8(p1[i_c__1]) * s1[i_c * n_c + i_c__1]
        into[i_c] = f4(t1)


@cuda.jit(device=True)
def value_p2(into, s2, n_c):
    t1 = 0.0
    for i_c in range(n_c):
        t1 = t1 + f8(s2[i_c]) * f8(s2[i_c])
    t4 = 1.0 / math.sqrt(t1)
    for i_c in range(n_c):
        into[i_c] = f4(f8(s2[i_c]) * t4)


@cuda.jit(device=True)
def value_s3(into, p2, s1, n_c, n_c__1):
    for i_c in range(n_c):
        t1 = 0.0
        for i_c__1 in range(n_c__1):
            t1 = t1 + f8(p2[i_c__1]) * s1[i_c * n_c + i_c__1]
        into[i_c] = f4(t1)


@cuda.jit(device=True)
def output_0(into, s3, n_c):
    t1 = 0.0
    for i_c in range(n_c):
        t1 = t1 + f8(s3[i_c]) * f8(s3[i_c])
    t4 = 1.0 / math.sqrt(t1)
    for i_c in range(n_c):
        into[i_c] = f4(f8(s3[i_c]) * t4)


@cuda.jit(device=True)
def value_p3(into, s3, n_c):
    t1 = 0.0
    for i_c in range(n_c):
        t1 = t1 + f8(s3[i_c]) * f8(s3[i_c])
    t4 = 1.0 / math.sqrt(t1)
    for i_c in range(n_c):
        into[i_c] = f4(f8(s3[i_c]) * t4)


@cuda.jit(device=True)
def value_s4(p3, s1, n_c, n_c__2):
    t1 = 0.0
    for i_c__2 in range(n_c__2):
        t2 = 0.0
        for i_c in range(n_c):
            t2 = t2 + f8(p3[i_c]) * f8(p3[i_c__2]) * s1[i_c * n_c + i_c__2]
        t1 = t1 + t2
    return larger(t1, 0.0)


@cuda.jit(device=True)
def output_1(s4):
    return f4(s4)


@cuda.jit(device=True)
def finish(seen, p1, n_c, s, s2, n_c__1, s1, p2, s3, result_0, p3, n_c__2):
    value_p1(p1, s, n_c)
    value_s2(s2, p1, s1, n_c, n_c__1)
    value_p2(p2, s2, n_c)
    value_s3(s3, p2, s1, n_c, n_c__1)
    output_0(result_0, s3, n_c)
    value_p3(p3, s3, n_c)
    s4 = value_s4(p3, s1, n_c, n_c__2)
    return output_1(s4)


@cache
def make(warps, stage, slots, n_c):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    n_c__1 = n_c
    n_c__2 = n_c
    words_s = n_c
    words_s1 = n_c * n_c
    words_p1 = n_c
    words_s2 = n_c
    words_p2 = n_c
    words_s3 = n_c
    words_p3 = n_c
    words_result_0 = n_c
    room_s = warps * (words_s | 1)
    room_s1 = warps * (words_s1 | 1)
    words_X = n_c
    shift_X, mask_X = turns_of(words_X, 32)
    steps_X = 0 if joins else -(-(slots * span * words_X + 32 // SIZE) // span)
    room_X = max(steps_X * span, 1)
    room_S1 = slots * span * 1

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(X, s_X, n_l, items, parts, piece, part_seen, part_s, part_s1, out_0, out_1):
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
        o_X = rest * s_X
        p_X = address(X) + o_X * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_X = cuda.shared.array(room_X, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        s = cuda.local.array(words_s, f4)
        s1 = cuda.local.array(words_s1, f8)
        p1 = cuda.local.array(words_p1, f4)
        s2 = cuda.local.array(words_s2, f4)
        p2 = cuda.local.array(words_p2, f4)
        s3 = cuda.local.array(words_s3, f4)
        p3 = cuda.local.array(words_p3, f4)
        result_0 = cuda.local.array(words_result_0, f4)
        seen = i4(0)
        for word in range(words_s):
            s[word] = f4(0.0)
        for word in range(words_s1):
            s1[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_X + (begin + first) * words_X * SIZE
            skew_X = lead // SIZE % (32 // SIZE)
            stage_real(cells_X, lead - skew_X * SIZE, skew_X, skew_X + min(slots * span, length - first) * words_X, steps_X, shift_X, mask_X, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_X, n_c, skew_X, shift_X, mask_X, slots)
            seen = fold(seen, slots, first, span, thread, length, cells_X, n_c, skew_X, shift_X, mask_X, cells_S1, s, s1, n_c__1)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], f4(0.0))
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
        seen = combine(seen, 32, s, n_c, s1)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(room_s, f4)
        shared_s1 = cuda.shared.array(room_s1, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], f4(0.0))
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                seen = combine(seen, warps, s, n_c, s1)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
        elif warp == 0 or alone:
            result_1 = finish(seen, p1, n_c, s, s2, n_c__1, s1, p2, s3, result_0, p3, n_c__2)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'X': ('l', 'c')}
DTYPES = {'X': np.float32}
OUTPUTS = [(('c',), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float32, ('c',)), (np.float64, ('c', 'c'))]


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


def plan(X):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'X': X}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 4 * sizes['c'] + 8 * sizes['c'] * sizes['c']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['c'] + 4 * 1
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


def launch(X, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(X)
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


def definition(X):
    """gram_power_iteration as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l c')
    lengths = {"l": X.shape[-2], "c": X.shape[-1]}
    d1 = np.sum(np.sum(X * 1.0, along("c"), keepdims=True) * X, along("l"), keepdims=True)
    d2 = np.sum(np.sum(X * (d1 / np.sqrt(np.sum(d1 * d1, along("c"), keepdims=True))), along("c"), keepdims=True) * X, along("l"), keepdims=True)
    d3 = np.sum(np.sum(X * (d2 / np.sqrt(np.sum(d2 * d2, along("c"), keepdims=True))), along("c"), keepdims=True) * X, along("l"), keepdims=True)
    t1 = d3 / np.sqrt(np.sum(d3 * d3, along("c"), keepdims=True))
    return (taken_out(t1, 'c', lengths), taken_out(np.sum(np.sum(X * t1, along("c"), keepdims=True) ** 2, along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"X": rng.standard_normal((3, length, 4)).astype(DTYPES['X'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"gram_power_iteration, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
