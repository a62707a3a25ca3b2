"""moe_switch_aux: one pass over l, 3 words of state per row, commutative merge.

Over tokens l: E Σ_e f_e P_e with f = share routed to e and P = mean softmax; and mean (lse_e X)².

The operator
    moe_switch_aux(X[l, e]):
        d1 = max(X, e)
        t1 = exp(X - d1)
        d2 = sum(t1, e)
        return size(e) * sum(sum(where(index(e) == argmax(X, e), 1.0, 0.0), l) / size(l) * (sum(t1 / d2, l) / size(l)), e), sum((d1 + log(d2)) ** 2, l) / size(l)

One more element (a prime marks the new value)
    s'  = s + (1 if e = argmax_e X[l,e] else 0)
    s2' = s2 + exp(X[l,e] − max_e X[l,e])/(Σ_e exp(X[l,e] − max_e X[l,e]))
    s3' = s3 + (max_e X[l,e] + log(Σ_e exp(X[l,e] − max_e X[l,e])))²

Two states a and b
    s'  = s_a + s_b
    s2' = s2_a + s2_b
    s3' = s3_a + s3_b

Dangers
    exp(X[l,e] − max_e X[l,e]) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 b4699e328e40521e9b948654c9ee51de0ab32fe0971c82e5dad9a16811bf2257
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python moe_switch_aux_cuda.py` checks it on a GPU.
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
fast_exp = ptx("{.reg .f32 t; mul.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t;}", "f", "f")

@cuda.jit(device=True)
def beats(value, best):
    """Whether a value is larger than one found further ahead; NaN is larger than numbers."""
    return (value > best) | (value != value) & (best == best)

@cuda.jit(device=True)
def comes_first(value, best, position, at):
    """Whether a value beats one found elsewhere: NaN beats numbers, of equals the one further ahead wins, at < 0 is none."""
    equal = (value == best) | (value != value) & (best != best)
    return (at < 0) | beats(value, best) | equal & (position < at)

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
def make_S1(span, thread, cells_S1, cells_X, n_e, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = -1
        t1_value = -inf
        for i_e in range(n_e):
            if comes_first(f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)]), t1_value, i_e, t1):
                t1, t1_value = i_e, f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)])
        cells_S1[i_l * span + thread] = t1


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, cells_X, n_e, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = -inf
        for i_e in range(n_e):
            t1 = larger(t1, f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)]))
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S3(span, thread, cells_S3, cells_X, n_e, skew_X, shift_X, mask_X, cells_S2, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_e in range(n_e):
            t2 = f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)]) - f8(cells_S2[i_l * span + thread])
            t1 = t1 + math.exp(t2)
        cells_S3[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def fold(seen_old, s3_old, slots, first, span, thread, length, cells_S2, cells_S3, cells_S1, s, cells_X, n_e, skew_X, shift_X, mask_X, s2):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, s3_old
    seen = i4(seen_old + many)
    s3 = s3_old
    s3_it = f4(0.0)
    for i_l in range(slots):
        t2 = cells_S2[i_l * span + thread] + math.log(cells_S3[i_l * span + thread])
        s3_it = s3_it + sel(i4(first + i_l * span + thread) < i4(length), t2 * t2, f4(0.0))
    s3 = s3 + f8(s3_it)
    for i_l in range(slots):
        t8 = f4(1.0) / cells_S3[i_l * span + thread]
        for i_e in range(n_e):
            t5 = f4(1.0) if i_e == cells_S1[i_l * span + thread] else f4(0.0)
            s[i_e] = s[i_e] + sel(i4(first + i_l * span + thread) < i4(length), f8(t5), 0.0)
            t6 = cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)] - cells_S2[i_l * span + thread]
            s2[i_e] = s2[i_e] + sel(i4(first + i_l * span + thread) < i4(length), f8(fast_exp(t6) * t8), 0.0)
    return seen, s3


@cuda.jit(device=True)
def combine(seen_old, s3_old, width, s, n_e, s2):
    seen = sum_over(seen_old, width)
    s3 = sum_over(s3_old, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_e):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_e):
                s2[word] = s2[word] + cuda.shfl_xor_sync(4294967295, s2[word], by)
    return seen, s3


@cuda.jit(device=True)
def output_0(n_e, n_l, s, s2):
    t1 = 0.0
    t2 = 1.0 / f8(n_l)
    for i_e in range(n_e):
        t1 = t1 + s[i_e] * t2 * (s2[i_e] * t2)
    return f4(f8(n_e) * t1)


@cuda.jit(device=True)
def output_1(s3, n_l):
    return f4(s3 / f8(n_l))


@cuda.jit(device=True)
def finish(seen, s3, n_e, s, s2):
    return output_0(n_e, seen, s, s2), output_1(s3, seen)


@cache
def make(warps, stage, slots, n_e):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_s = n_e
    words_s2 = n_e
    room_s = warps * (words_s | 1)
    room_s2 = warps * (words_s2 | 1)
    words_X = n_e
    shift_X, mask_X = turns_of(words_X, 32)
    steps_X = 0 if joins else -(-(slots * span * words_X + 32 // SIZE) // span)
    room_X = max(steps_X * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1
    room_S3 = slots * span * 1

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(X, s_X, n_l, items, parts, piece, part_seen, part_s3, part_s, part_s2, out_0, out_1):
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
        cells_S1 = cuda.shared.array(room_S1, i8)
        cells_S2 = cuda.shared.array(room_S2, f4)
        cells_S3 = cuda.shared.array(room_S3, f4)
        s = cuda.local.array(words_s, f8)
        s2 = cuda.local.array(words_s2, f8)
        seen, s3 = i4(0), 0.0
        for word in range(words_s):
            s[word] = 0.0
        for word in range(words_s2):
            s2[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_X + (begin + first) * words_X * SIZE
            skew_X = lead // SIZE % (32 // SIZE)
            stage_real(cells_X, lead - skew_X * SIZE, skew_X, skew_X + min(slots * span, length - first) * words_X, steps_X, shift_X, mask_X, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_X, n_e, skew_X, shift_X, mask_X, slots)
            make_S2(span, thread, cells_S2, cells_X, n_e, skew_X, shift_X, mask_X, slots)
            make_S3(span, thread, cells_S3, cells_X, n_e, skew_X, shift_X, mask_X, cells_S2, slots)
            seen, s3 = fold(seen, s3, slots, first, span, thread, length, cells_S2, cells_S3, cells_S1, s, cells_X, n_e, skew_X, shift_X, mask_X, s2)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            s3 = sel(there, part_s3[place], 0.0)
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
            for word in range(words_s2):
                s2[word] = sel(there, part_s2[place * words_s2 + word], 0.0)
        seen, s3 = combine(seen, s3, 32, s, n_e, s2)
        shared_seen = cuda.shared.array(32, i4)
        shared_s3 = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(room_s, f8)
        shared_s2 = cuda.shared.array(room_s2, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s3[warp] = s3
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s2):
                    shared_s2[warp * (words_s2 | 1) + word] = s2[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s3 = sel(lane < warps, shared_s3[lane % warps], 0.0)
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                for word in range(words_s2):
                    s2[word] = sel(lane < warps, shared_s2[lane % warps * (words_s2 | 1) + word], 0.0)
                seen, s3 = combine(seen, s3, warps, s, n_e, s2)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_s3[item * parts + part] = s3
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s2):
                    part_s2[(item * parts + part) * words_s2 + word] = s2[word]
        elif warp == 0 or alone:
            result_0, result_1 = finish(seen, s3, n_e, s, s2)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'X': ('l', 'e')}
DTYPES = {'X': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ('e',)), (np.float64, ('e',))]


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
    state = 8 * sizes['e'] + 8 * sizes['e']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['e'] + 8 * 1 + 4 * 1 + 4 * 1
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['e']), blocks * parts, threads), ((8, 'join', slots, sizes['e']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['e']), blocks, threads)]
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


ALL_AXES = ('l', 'e')


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


def definition(X):
    """moe_switch_aux as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l e')
    lengths = {"l": X.shape[-2], "e": X.shape[-1]}
    d1 = np.max(X, along("e"), keepdims=True)
    t1 = np.exp(X - d1)
    d2 = np.sum(t1, along("e"), keepdims=True)
    return (taken_out(lengths["e"] * np.sum(np.sum(np.where(positions("e", lengths["e"]) == np.argmax(X, along("e"), keepdims=True), 1.0, 0.0), along("l"), keepdims=True) / lengths["l"] * (np.sum(t1 / d2, along("l"), keepdims=True) / lengths["l"]), along("e"), keepdims=True), '', lengths), taken_out(np.sum((d1 + np.log(d2)) ** 2, along("l"), keepdims=True) / lengths["l"], '', lengths),)


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
        print(f"moe_switch_aux, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
