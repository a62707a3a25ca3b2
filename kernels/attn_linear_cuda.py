"""attn_linear: one pass over l, 2 words of state per row, commutative merge.

o = φ(q)·Σ φ(K_l)V_lᵀ / φ(q)·Σ φ(K_l) with φ = elu + 1.

The operator
    attn_linear(q[d], K[l, d], V[l, v]):
        t1 = where(q > 0, q + 1, exp(minimum(q, 0)))
        t2 = where(K > 0, K + 1, exp(minimum(K, 0)))
        return sum(t1 * sum(t2 * V, l), d) / sum(t1 * sum(t2, l), d)

One more element (a prime marks the new value)
    s'  = s + V[l,v]·(K[l,d] + 1 if K[l,d] > 0 else exp(min(K[l,d], 0)))
    s2' = s2 + (K[l,d] + 1 if K[l,d] > 0 else exp(min(K[l,d], 0)))

Two states a and b
    s'  = s_a + s_b
    s2' = s2_a + s2_b

Dangers
    exp(min(K[l,d], 0)) may overflow: nothing bounds its exponent
    Σ_d s2·(q[d] + 1 if q[d] > 0 else exp(min(q[d], 0))) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 158b2a4e048493993c406d8a4a6ec6c887fd6362f6667edc0452dcfa33e5b151
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python attn_linear_cuda.py` checks it on a GPU.
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

smaller = extreme("<", "min")

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
def fold(seen_old, slots, first, span, thread, length, cells_V, n_v, skew_V, shift_V, mask_V, cells_K, n_d, skew_K, shift_K, mask_K, s, s2):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old
    seen = i4(seen_old + many)
    for i_l in range(slots):
        for i_v in range(n_v):
            for i_d in range(n_d):
                t2 = cells_K[cell(i_l * span + thread, n_d, i_d + skew_K, shift_K, mask_K)] + f4(1.0)
                t4 = fast_exp(smaller(cells_K[cell(i_l * span + thread, n_d, i_d + skew_K, shift_K, mask_K)], f4(0.0)))
                t5 = t2 if cells_K[cell(i_l * span + thread, n_d, i_d + skew_K, shift_K, mask_K)] > f4(0.0) else t4
                t6 = cells_V[cell(i_l * span + thread, n_v, i_v + skew_V, shift_V, mask_V)] * t5
                s[i_v * n_d + i_d] = s[i_v * n_d + i_d] + sel(i4(first + i_l * span + thread) < i4(length), f8(t6), 0.0)
    for i_l in range(slots):
        for i_d in range(n_d):
            t8 = cells_K[cell(i_l * span + thread, n_d, i_d + skew_K, shift_K, mask_K)] + f4(1.0)
            t10 = fast_exp(smaller(cells_K[cell(i_l * span + thread, n_d, i_d + skew_K, shift_K, mask_K)], f4(0.0)))
            t11 = t8 if cells_K[cell(i_l * span + thread, n_d, i_d + skew_K, shift_K, mask_K)] > f4(0.0) else t10
            s2[i_d] = s2[i_d] + sel(i4(first + i_l * span + thread) < i4(length), f8(t11), 0.0)
    return seen


@cuda.jit(device=True)
def combine(seen_old, width, s, n_v, n_d, s2):
    seen = sum_over(seen_old, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_v * n_d):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_d):
                s2[word] = s2[word] + cuda.shfl_xor_sync(4294967295, s2[word], by)
    return seen


@cuda.jit(device=True)
def output_0(into, cells_q, s2, n_d, s, n_v):
    t1 = 0.0
    for i_d in range(n_d):
        t3 = f8(cells_q[i_d]) + f8(f4(1.0))
        t5 = math.exp(f8(smaller(cells_q[i_d], f4(0.0))))
        t1 = t1 + (t3 if cells_q[i_d] > f4(0.0) else t5) * s2[i_d]
    t8 = 1.0 / t1
    for i_v in range(n_v):
        t9 = 0.0
        for i_d in range(n_d):
            t11 = f8(cells_q[i_d]) + f8(f4(1.0))
            t13 = math.exp(f8(smaller(cells_q[i_d], f4(0.0))))
            t9 = t9 + (t11 if cells_q[i_d] > f4(0.0) else t13) * s[i_v * n_d + i_d]
        into[i_v] = f4(t9 * t8)


@cuda.jit(device=True)
def finish(seen, result_0, cells_q, s2, n_d, s, n_v):
    output_0(result_0, cells_q, s2, n_d, s, n_v)


@cache
def make(warps, stage, slots, n_d, n_v):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_s = n_v * n_d
    words_s2 = n_d
    words_result_0 = n_v
    room_s = warps * (words_s | 1)
    room_s2 = warps * (words_s2 | 1)
    words_K = n_d
    shift_K, mask_K = turns_of(words_K, 32)
    steps_K = 0 if joins else -(-(slots * span * words_K + 32 // SIZE) // span)
    room_K = max(steps_K * span, 1)
    words_V = n_v
    shift_V, mask_V = turns_of(words_V, 32)
    steps_V = 0 if joins else -(-(slots * span * words_V + 32 // SIZE) // span)
    room_V = max(steps_V * span, 1)
    words_q = n_d

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(q, s_q, K, s_K, V, s_V, n_l, items, parts, piece, part_seen, part_s, part_s2, out_0):
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
        o_q = rest * s_q
        p_q = address(q) + o_q * SIZE
        o_K = rest * s_K
        p_K = address(K) + o_K * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        cells_q = cuda.shared.array(words_q, f4)
        for word in range(thread, words_q, span):
            cells_q[word] = load_one(p_q + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_K = cuda.shared.array(room_K, f4)
        cells_V = cuda.shared.array(room_V, f4)
        s = cuda.local.array(words_s, f8)
        s2 = cuda.local.array(words_s2, f8)
        result_0 = cuda.local.array(words_result_0, f4)
        seen = i4(0)
        for word in range(words_s):
            s[word] = 0.0
        for word in range(words_s2):
            s2[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_K + (begin + first) * words_K * SIZE
            skew_K = lead // SIZE % (32 // SIZE)
            stage_real(cells_K, lead - skew_K * SIZE, skew_K, skew_K + min(slots * span, length - first) * words_K, steps_K, shift_K, mask_K, thread, span)
            lead = p_V + (begin + first) * words_V * SIZE
            skew_V = lead // SIZE % (32 // SIZE)
            stage_real(cells_V, lead - skew_V * SIZE, skew_V, skew_V + min(slots * span, length - first) * words_V, steps_V, shift_V, mask_V, thread, span)
            cuda.syncthreads()
            seen = fold(seen, slots, first, span, thread, length, cells_V, n_v, skew_V, shift_V, mask_V, cells_K, n_d, skew_K, shift_K, mask_K, s, s2)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
            for word in range(words_s2):
                s2[word] = sel(there, part_s2[place * words_s2 + word], 0.0)
        seen = combine(seen, 32, s, n_v, n_d, s2)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(room_s, f8)
        shared_s2 = cuda.shared.array(room_s2, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s2):
                    shared_s2[warp * (words_s2 | 1) + word] = s2[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                for word in range(words_s2):
                    s2[word] = sel(lane < warps, shared_s2[lane % warps * (words_s2 | 1) + word], 0.0)
                seen = combine(seen, warps, s, n_v, n_d, s2)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s2):
                    part_s2[(item * parts + part) * words_s2 + word] = s2[word]
        elif warp == 0 or alone:
            finish(seen, result_0, cells_q, s2, n_d, s, n_v)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))

    return kernel


AXES = {'q': ('d',), 'K': ('l', 'd'), 'V': ('l', 'v')}
DTYPES = {'q': np.float32, 'K': np.float32, 'V': np.float32}
OUTPUTS = [(('v',), np.float32)]
HELD = [(np.int32, ()), (np.float64, ('v', 'd')), (np.float64, ('d',))]


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


def plan(q, K, V):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'q': q, 'K': K, 'V': V}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 8 * sizes['v'] * sizes['d'] + 8 * sizes['d']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['d'] + 4 * sizes['v']
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['d'], sizes['v']), blocks * parts, threads), ((8, 'join', slots, sizes['d'], sizes['v']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['d'], sizes['v']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(q, K, V, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(q, K, V)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('d', 'l', 'v')


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


def definition(q, K, V):
    """attn_linear as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    K = spread(K, 'l d')
    V = spread(V, 'l v')
    lengths = {"d": q.shape[-3], "l": K.shape[-2], "v": V.shape[-1]}
    t1 = np.where(q > 0, q + 1, np.exp(np.minimum(q, 0)))
    t2 = np.where(K > 0, K + 1, np.exp(np.minimum(K, 0)))
    return taken_out(np.sum(t1 * np.sum(t2 * V, along("l"), keepdims=True), along("d"), keepdims=True) / np.sum(t1 * np.sum(t2, along("l"), keepdims=True), along("d"), keepdims=True), 'v', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"q": rng.standard_normal((3,)).astype(DTYPES['q']),
                  "K": rng.standard_normal((3, length, 3)).astype(DTYPES['K']),
                  "V": rng.standard_normal((3, length, 5)).astype(DTYPES['V'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"attn_linear, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
