"""kb_bmm_instancenorm_residual: one pass over l, 3 words of state per row, commutative merge.

((X W − μ)/σ + y) y, the norm over the features l of each row.

The operator
    kb_bmm_instancenorm_residual(X[m, k], W[k, l], y[m, l]):
        d1 = sum(X * W, k)
        t1 = d1 - sum(d1, l) / size(l)
        return (t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) + y) * y

One more element (a prime marks the new value)
    x   = Σ_k X[m,k]·W[k,l]
    s'  = s + x
    N'  = N + 1
    p1' = s'/N'
    δ   = p1 − p1'
    s2' = s2 + δ²·N + (x − p1')²

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 64e47628504d8fe589ba825f1b4ad98fd28589e45a0fc00da0baf0b30f09a8d9
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python kb_bmm_instancenorm_residual_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_X, cells_W, n_k, skew_W, shift_W, mask_W, slots):
    for i_l in range(slots):
        t1 = f4(0.0)
        for i_k in range(n_k):
            t1 = t1 + cells_X[i_k] * cells_W[cell(i_l * span + thread, n_k, i_k + skew_W, shift_W, mask_W)]
        cells_S1[i_l * span + thread] = t1


@cuda.jit(device=True)
def value_p1(s, N):
    return s / f8(N)


@cuda.jit(device=True)
def rebase_s2(s2, p1, p1_new, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s2 + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def fold(seen_old, s_old, N_old, s2_old, slots, first, span, thread, length, cells_S1):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, s_old, N_old, s2_old
    seen = i4(seen_old + many)
    p1_old = value_p1(s_old, N_old)
    s = s_old
    s_it = f4(0.0)
    N = N_old + 1 * many
    for i_l in range(slots):
        s_it = s_it + sel(i4(first + i_l * span + thread) < i4(length), cells_S1[i_l * span + thread], f4(0.0))
    s = s + f8(s_it)
    p1 = value_p1(s, N)
    s2 = rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else s2_old
    s2_it = f4(0.0)
    t1 = p1 if math.isfinite(p1) else 0.0
    for i_l in range(slots):
        t2 = cells_S1[i_l * span + thread] - f4(t1)
        s2_it = s2_it + sel(i4(first + i_l * span + thread) < i4(length), t2 * t2, f4(0.0))
    s2 = s2 + f8(s2_it)
    return seen, s, N, s2


@cuda.jit(device=True)
def combine(seen_old, s_old, N_old, s2_old, width):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(s_old, N_old)
    s = sum_over(s_old, width)
    N = sum_over(N_old, width)
    p1 = value_p1(s, N)
    s2 = sum_over(rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else 0.0, width)
    return seen, s, N, s2


@cuda.jit(device=True)
def settle_s2(p1, s2, N):
    t1 = p1
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p1 if p1 - p1 == 0.0 else f8(0)) - p1
    t14 = s2 + t11 * t11 * f8(N)
    return (t14 if s2 - s2 == 0.0 else nan) if t4 != t4 else s2


@cuda.jit(device=True)
def finish(seen, s, N, s2):
    p1 = value_p1(s, N)
    s2 = settle_s2(p1, s2, N)
    return s, s2


@cuda.jit(device=True)
def map_0(out_0, n_l, live, item, s2, cells_X, cells_W, n_k, skew_W, shift_W, mask_W, span, thread, s, cells_y, skew_y, shift_y, mask_y, begin, first, length, slots):
    t4 = 1.0 / math.sqrt(s2 / f8(n_l) + 1e-05)
    t7 = s / f8(n_l)
    for i_l in range(slots):
        t5 = 0.0
        for i_k in range(n_k):
            t5 = t5 + f8(cells_X[i_k]) * f8(cells_W[cell(i_l * span + thread, n_k, i_k + skew_W, shift_W, mask_W)])
        t10 = (t5 - t7) * t4 + f8(cells_y[cell(i_l * span + thread, 1, skew_y, shift_y, mask_y)])
        t11 = t10 * f8(cells_y[cell(i_l * span + thread, 1, skew_y, shift_y, mask_y)])
        if live and i4(first + i_l * span + thread) < i4(length):
            store_one(address(out_0) + (item * n_l + (begin + first + i_l * span + thread)) * SIZE, f4(t11))


@cache
def make(warps, stage, together, slots, n_k):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    rows = 1 if joins else together
    words_W = n_k
    shift_W, mask_W = turns_of(words_W, 32)
    steps_W = 0 if joins else -(-(slots * span * words_W + 32 // SIZE) // (rows * span))
    room_W = max(steps_W * (rows * span), 1)
    words_y = 1
    shift_y, mask_y = turns_of(words_y, 32)
    steps_y = 0 if joins else -(-(slots * span * words_y + 32 // SIZE) // span)
    room_y = max(steps_y * span, 1)
    room_S1 = slots * span * 1
    words_X = n_k
    all_room_y = rows * room_y
    all_room_S1 = rows * room_S1
    all_words_X = rows * words_X

    @cuda.jit(launch_bounds=(span * rows, 1))
    def kernel(X, s_X, W, s_W, y, s_y, n_m, n_l, items, parts, piece, out_0):
        everyone = i8(cuda.threadIdx.x)
        mine, thread = everyone // span, everyone % span
        lane, warp = thread & 31, thread >> 5
        item, part = i8(cuda.blockIdx.x), i8(0)
        if splits:
            item, part = item // parts, item % parts
        number = n_m
        blocks = -(-number // rows)
        place = item % blocks * rows + mine
        live, item = place < number, item // blocks * number + place
        row = sel(live, item, item - place)
        rest = row
        i_m = rest % n_m
        rest //= n_m
        o_X = rest * s_X + (i_m) * n_k
        p_X = address(X) + o_X * SIZE
        o_W = rest * s_W
        p_W = address(W) + o_W * SIZE
        o_y = rest * s_y + (i_m) * n_l
        p_y = address(y) + o_y * SIZE
        cells_X = cuda.shared.array(all_words_X, f4)[mine * words_X:]
        for word in range(thread, words_X, span):
            cells_X[word] = load_one(p_X + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_W = cuda.shared.array(room_W, f4)
        cells_y = cuda.shared.array(all_room_y, f4)[mine * room_y:]
        cells_S1 = cuda.shared.array(all_room_S1, f4)[mine * room_S1:]
        seen, s, N, s2 = i4(0), 0.0, i8(0), 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_W + (begin + first) * words_W * SIZE
            skew_W = lead // SIZE % (32 // SIZE)
            stage_real(cells_W, lead - skew_W * SIZE, skew_W, skew_W + min(slots * span, length - first) * words_W, steps_W, shift_W, mask_W, everyone, rows * span)
            if length <= slots * span:
                lead = p_y + (begin + first) * words_y * SIZE
                skew_y = lead // SIZE % (32 // SIZE)
                stage_real(cells_y, lead - skew_y * SIZE, skew_y, skew_y + min(slots * span, length - first) * words_y, steps_y, shift_y, mask_y, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_X, cells_W, n_k, skew_W, shift_W, mask_W, slots)
            seen, s, N, s2 = fold(seen, s, N, s2, slots, first, span, thread, length, cells_S1)
            first += slots * span
            more = first < length
        seen, s, N, s2 = combine(seen, s, N, s2, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(32, f8)
        shared_N = cuda.shared.array(32, i8)
        shared_s2 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[(mine * warps + warp)] = seen
                shared_s[(mine * warps + warp)] = s
                shared_N[(mine * warps + warp)] = N
                shared_s2[(mine * warps + warp)] = s2
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[(mine * warps + lane % warps)], i4(0))
                s = sel(lane < warps, shared_s[(mine * warps + lane % warps)], 0.0)
                N = sel(lane < warps, shared_N[(mine * warps + lane % warps)], i8(0))
                s2 = sel(lane < warps, shared_s2[(mine * warps + lane % warps)], 0.0)
                seen, s, N, s2 = combine(seen, s, N, s2, warps)
        place = mine
        final_s = cuda.shared.array(rows, f8)
        final_s2 = cuda.shared.array(rows, f8)
        if warp == 0 or alone:
            s, s2 = finish(seen, s, N, s2)
            if thread == 0:
                final_s[place] = s
                final_s2[place] = s2
        cuda.syncthreads()
        s = final_s[place]
        s2 = final_s2[place]
        long = first > slots * span
        first, more = i8(0), True
        while more:
            if long:
                cuda.syncthreads()
                lead = p_W + (begin + first) * words_W * SIZE
                skew_W = lead // SIZE % (32 // SIZE)
                stage_real(cells_W, lead - skew_W * SIZE, skew_W, skew_W + min(slots * span, length - first) * words_W, steps_W, shift_W, mask_W, everyone, rows * span)
                lead = p_y + (begin + first) * words_y * SIZE
                skew_y = lead // SIZE % (32 // SIZE)
                stage_real(cells_y, lead - skew_y * SIZE, skew_y, skew_y + min(slots * span, length - first) * words_y, steps_y, shift_y, mask_y, thread, span)
                cuda.syncthreads()
            map_0(out_0, n_l, live, item, s2, cells_X, cells_W, n_k, skew_W, shift_W, mask_W, span, thread, s, cells_y, skew_y, shift_y, mask_y, begin, first, length, slots)
            first += slots * span
            more = first < length

    return kernel


AXES = {'X': ('m', 'k'), 'W': ('l', 'k'), 'y': ('m', 'l')}
DTYPES = {'X': np.float32, 'W': np.float32, 'y': np.float32}
OUTPUTS = [(('m', 'l'), np.float32)]
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


def plan(X, W, y):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'X': X, 'W': W, 'y': y}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading) * sizes['m'], sizes['l']
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    number, own, element = sizes['m'], 4 * 1 + 4 * 1, 4 * sizes['k']
    shapes = [(r, w, slots) for r in range(min(number, 8), 0, -1) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(r, w, slots) for r, w, slots in shapes if r * w <= 8 and w * (32 * slots * (element + r * own) + r * state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    rows, warps, slots = fits[0]
    blocks, threads = items // number * -(-number // rows), 32 * warps * rows
    parts, piece, launches = 1, length, [((warps, 'whole', rows, slots, sizes['k']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('m', 'l')), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(X, W, y, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(X, W, y)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('m', 'k', 'l')


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


def definition(X, W, y):
    """kb_bmm_instancenorm_residual as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'm k')
    W = spread(W, 'k l')
    y = spread(y, 'm l')
    lengths = {"m": X.shape[-3], "k": X.shape[-2], "l": W.shape[-1]}
    d1 = np.sum(X * W, along("k"), keepdims=True)
    t1 = d1 - np.sum(d1, along("l"), keepdims=True) / lengths["l"]
    return taken_out((t1 / np.sqrt(np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"] + 1e-05) + y) * y, 'm l', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(X, W, y):
    """`launch` with the axes as the operator has them."""
    outputs = launch(X, turned(W, ('k', 'l'), ('l', 'k')), y)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return outputs[0],


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"X": rng.standard_normal((3, 4)).astype(DTYPES['X']),
                  "W": rng.standard_normal((3, 4, length)).astype(DTYPES['W']),
                  "y": rng.standard_normal((3, 3, length)).astype(DTYPES['y'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launched(*arrays.values()), wanted)
        print(f"kb_bmm_instancenorm_residual, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
