"""kb_gemv_gelu_softmax: one pass over l, 2 words of state per row, commutative merge.

y = softmax over l of gelu(Σ_k W_lk x_k + b_l).

The operator
    kb_gemv_gelu_softmax(W[l, k], x[k], b[l]):
        t1 = sum(W * x, k) + b
        t2 = 0.5 * t1 * (1.0 + tanh(0.7978845608028654 * (t1 + 0.044715 * t1 ** 3)))
        t3 = exp(t2 - max(t2, l))
        return t3 / sum(t3, l)

One more element (a prime marks the new value)
    m' = max(m, 0.5·(Σ_k W[l,k]·x[k] + b[l])·(1 + tanh(0.7978845608028654·(Σ_k W[l,k]·x[k] + b[l] + 0.044715·(Σ_k W[l,k]·x[k] + b[l])³))))
    s' = s·exp(m − m') + exp(0.5·(1 + tanh(0.7978845608028654·(Σ_k W[l,k]·x[k] + b[l] + 0.044715·(Σ_k W[l,k]·x[k] + b[l])³)))·(Σ_k W[l,k]·x[k] + b[l]) − m')

Two states a and b
    m' = max(m_a, m_b)
    s' = s_a·exp(m_a − m') + s_b·exp(m_b − m')

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 aecec7f5589f000bce1710db3e385c27e920d752ef4c0c4fecc5d051d26e2423
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python kb_gemv_gelu_softmax_cuda.py` checks it on a GPU.
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
larger_over = over_lanes(larger)
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
def make_S1(span, thread, cells_S1, cells_W, n_k, skew_W, shift_W, mask_W, cells_x, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_k in range(n_k):
            t1 = t1 + f8(cells_W[cell(i_l * span + thread, n_k, i_k + skew_W, shift_W, mask_W)]) * f8(cells_x[i_k])
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def rebase_s(m, m_new, s):
    t4 = f8(fast_exp(f4((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))))
    return 0.0 if s == 0.0 else t4 * s


@cuda.jit(device=True)
def fold(seen_old, m_old, s_old, slots, first, span, thread, length, cells_S1, cells_b, skew_b, shift_b, mask_b):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, m_old, s_old
    seen = i4(seen_old + many)
    m = m_old
    m_it = f4(-inf)
    for i_l in range(slots):
        t1 = cells_S1[i_l * span + thread] + cells_b[cell(i_l * span + thread, 1, skew_b, shift_b, mask_b)]
        t9 = f4(0.5) * t1 * (f4(1.0) + math.tanh(f4(0.7978845608028654) * (t1 + f4(0.044715) * (t1 * t1 * t1))))
        m_it = larger(m_it, sel(i4(first + i_l * span + thread) < i4(length), t9, f4(-inf)))
    m = larger(m, f8(m_it))
    s = rebase_s(m_old, m, s_old) if seen_old > 0 else s_old
    s_it = f4(0.0)
    t19 = m if math.isfinite(m) else 0.0
    for i_l in range(slots):
        t10 = cells_S1[i_l * span + thread] + cells_b[cell(i_l * span + thread, 1, skew_b, shift_b, mask_b)]
        t18 = f4(0.5) * ((f4(1.0) + math.tanh(f4(0.7978845608028654) * (t10 + f4(0.044715) * (t10 * t10 * t10)))) * t10)
        s_it = s_it + sel(i4(first + i_l * span + thread) < i4(length), fast_exp(t18 - f4(t19)), f4(0.0))
    s = s + f8(s_it)
    return seen, m, s


@cuda.jit(device=True)
def combine(seen_old, m_old, s_old, width):
    seen = sum_over(seen_old, width)
    m = larger_over(m_old, width)
    s = sum_over(rebase_s(m_old, m, s_old) if seen_old > 0 else 0.0, width)
    return seen, m, s


@cuda.jit(device=True)
def settle_s(m, s):
    t1 = m
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m if m - m == 0.0 else f8(0)) - m) * s
    return t10 if t3 != t3 else s


@cuda.jit(device=True)
def finish(seen, m, s):
    s = settle_s(m, s)
    return m, s


@cuda.jit(device=True)
def map_0(out_0, n_l, live, item, s, cells_W, n_k, skew_W, shift_W, mask_W, span, thread, cells_x, cells_b, skew_b, shift_b, mask_b, m, begin, first, length, slots):
    t1 = 1.0 / s
    for i_l in range(slots):
        t2 = f4(0.0)
        for i_k in range(n_k):
            t2 = t2 + cells_W[cell(i_l * span + thread, n_k, i_k + skew_W, shift_W, mask_W)] * cells_x[i_k]
        t4 = t2 + cells_b[cell(i_l * span + thread, 1, skew_b, shift_b, mask_b)]
        t12 = f4(0.5) * t4 * (f4(1.0) + math.tanh(f4(0.7978845608028654) * (t4 + f4(0.044715) * (t4 * t4 * t4))))
        t15 = fast_exp(t12 - f4(m)) * f4(t1)
        if live and i4(first + i_l * span + thread) < i4(length):
            store_one(address(out_0) + (item * n_l + (begin + first + i_l * span + thread)) * SIZE, t15)


@cache
def make(warps, stage, slots, n_k):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_W = n_k
    shift_W, mask_W = turns_of(words_W, 32)
    steps_W = 0 if joins else -(-(slots * span * words_W + 32 // SIZE) // span)
    room_W = max(steps_W * span, 1)
    words_b = 1
    shift_b, mask_b = turns_of(words_b, 32)
    steps_b = 0 if joins else -(-(slots * span * words_b + 32 // SIZE) // span)
    room_b = max(steps_b * span, 1)
    room_S1 = slots * span * 1
    words_x = n_k

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(W, s_W, x, s_x, b, s_b, n_l, items, parts, piece, out_0):
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
        o_W = rest * s_W
        p_W = address(W) + o_W * SIZE
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        o_b = rest * s_b
        p_b = address(b) + o_b * SIZE
        cells_x = cuda.shared.array(words_x, f4)
        for word in range(thread, words_x, span):
            cells_x[word] = load_one(p_x + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_W = cuda.shared.array(room_W, f4)
        cells_b = cuda.shared.array(room_b, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        seen, m, s = i4(0), (-inf), 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_W + (begin + first) * words_W * SIZE
            skew_W = lead // SIZE % (32 // SIZE)
            stage_real(cells_W, lead - skew_W * SIZE, skew_W, skew_W + min(slots * span, length - first) * words_W, steps_W, shift_W, mask_W, thread, span)
            lead = p_b + (begin + first) * words_b * SIZE
            skew_b = lead // SIZE % (32 // SIZE)
            stage_real(cells_b, lead - skew_b * SIZE, skew_b, skew_b + min(slots * span, length - first) * words_b, steps_b, shift_b, mask_b, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_W, n_k, skew_W, shift_W, mask_W, cells_x, slots)
            seen, m, s = fold(seen, m, s, slots, first, span, thread, length, cells_S1, cells_b, skew_b, shift_b, mask_b)
            first += slots * span
            more = first < length
        seen, m, s = combine(seen, m, s, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_m = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_m[warp] = m
                shared_s[warp] = s
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                m = sel(lane < warps, shared_m[lane % warps], (-inf))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                seen, m, s = combine(seen, m, s, warps)
        place = sel(alone, i8(cuda.threadIdx.x) >> 5, i8(0))
        final_m = cuda.shared.array(ROWS, f8)
        final_s = cuda.shared.array(ROWS, f8)
        if warp == 0 or alone:
            m, s = finish(seen, m, s)
            if thread == 0:
                final_m[place] = m
                final_s[place] = s
        cuda.syncthreads()
        m = final_m[place]
        s = final_s[place]
        long = first > slots * span
        first, more = i8(0), True
        while more:
            if long:
                cuda.syncthreads()
                lead = p_W + (begin + first) * words_W * SIZE
                skew_W = lead // SIZE % (32 // SIZE)
                stage_real(cells_W, lead - skew_W * SIZE, skew_W, skew_W + min(slots * span, length - first) * words_W, steps_W, shift_W, mask_W, thread, span)
                lead = p_b + (begin + first) * words_b * SIZE
                skew_b = lead // SIZE % (32 // SIZE)
                stage_real(cells_b, lead - skew_b * SIZE, skew_b, skew_b + min(slots * span, length - first) * words_b, steps_b, shift_b, mask_b, thread, span)
                cuda.syncthreads()
            map_0(out_0, n_l, live, item, s, cells_W, n_k, skew_W, shift_W, mask_W, span, thread, cells_x, cells_b, skew_b, shift_b, mask_b, m, begin, first, length, slots)
            first += slots * span
            more = first < length

    return kernel


AXES = {'W': ('l', 'k'), 'x': ('k',), 'b': ('l',)}
DTYPES = {'W': np.float32, 'x': np.float32, 'b': np.float32}
OUTPUTS = [(('l',), np.float32)]
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


def plan(W, x, b):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'W': W, 'x': x, 'b': b}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['k'] + 4 * 1 + 4 * 1
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts, piece, launches = 1, length, [((warps, 'whole', slots, sizes['k']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(W, x, b, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(W, x, b)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 'k')


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


def definition(W, x, b):
    """kb_gemv_gelu_softmax as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    W = spread(W, 'l k')
    x = spread(x, 'k')
    b = spread(b, 'l')
    lengths = {"l": W.shape[-2], "k": W.shape[-1]}
    t1 = np.sum(W * x, along("k"), keepdims=True) + b
    t2 = 0.5 * t1 * (1.0 + np.tanh(0.7978845608028654 * (t1 + 0.044715 * t1 ** 3)))
    t3 = np.exp(t2 - np.max(t2, along("l"), keepdims=True))
    return taken_out(t3 / np.sum(t3, along("l"), keepdims=True), 'l', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"W": rng.standard_normal((3, length, 4)).astype(DTYPES['W']),
                  "x": rng.standard_normal((4,)).astype(DTYPES['x']),
                  "b": rng.standard_normal((3, length)).astype(DTYPES['b'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"kb_gemv_gelu_softmax, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
