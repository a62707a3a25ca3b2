"""log_cumulative_sum_exp: one pass over l, 1 word of state per row, ordered merge.

y_l = log Σ_{t≤l} e^{x_t}.

The operator
    log_cumulative_sum_exp(x[l]):
        return scan(lambda c1: logadd(c1, x), l, -inf, after)

One more element (a prime marks the new value)
    h' = logadd(h, x[l])

Two states a and b
    h' = logadd(h_a, h_b)

Laws:
Certificate: sha256 9ffec734b9187e760212ad8f0fccdb7a1c580dedb62cc067ab853adec1219b8c
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python log_cumulative_sum_exp_cuda.py` checks it on a GPU.
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
def fold(seen_old, h_old, slots, first, thread, length, begin, cells_x, skew_x, shift_x, mask_x):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, h_old
    seen = i4(seen_old + many)
    h = h_old
    begins = sel(seen_old == 0 and begin + first + thread * slots + i8(0) > 0, i4(1), i4(0))
    if begins > 0:
        i_l = i4(0)
        h = f8(cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)])
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t2 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
            h = h + 0.6931471805599453 if h == f8(t2) else larger(h, f8(t2)) + math.log1p(math.exp(-abs(h - f8(t2))))
    return seen, h


@cuda.jit(device=True)
def merge(h_a, h_b):
    return h_a + 0.6931471805599453 if h_a == h_b else larger(h_a, h_b) + math.log1p(math.exp(-abs(h_a - h_b)))


@cuda.jit(device=True)
def join(seen_a, h_a, seen_b, h_b):
    if seen_a == 0:
        return seen_b, h_b
    if seen_b == 0:
        return seen_a, h_a
    seen = i4(seen_a + seen_b)
    h = merge(h_a, h_b)
    return seen, h


@cuda.jit(device=True)
def scan(seen_old, h_old, width, lane):
    seen, h = seen_old, h_old
    for step in range(5):
        by = 1 << step
        if by < width:
            seen_a = cuda.shfl_up_sync(4294967295, seen, by)
            h_a = cuda.shfl_up_sync(4294967295, h, by)
            if lane >= by:
                seen, h = join(seen_a, h_a, seen, h)
    return seen, h


@cuda.jit(device=True)
def initial():
    return -inf


@cuda.jit(device=True)
def resume(seen, h, c1_start):
    if seen == 0:
        return c1_start
    return h


@cuda.jit(device=True)
def see(c1, cells_out_0, skew_out_0, shift_out_0, mask_out_0, cells_x, skew_x, shift_x, mask_x, thread, slots, first, length):
    for i_l in range(slots):
        if i4(first + thread * slots + i_l) < i4(length):
            t1 = cells_x[cell(thread * slots + i_l, 1, skew_x, shift_x, mask_x)]
            t2 = c1 + 0.6931471805599453 if c1 == f8(t1) else larger(c1, f8(t1)) + math.log1p(math.exp(-abs(c1 - f8(t1))))
            cells_out_0[cell(thread * slots + i_l, 1, skew_out_0, shift_out_0, mask_out_0)] = f4(t2)
            c1 = t2
    return c1


@cache
def make(warps, stage, slots):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_x = 1
    shift_x, mask_x = turns_of(slots * words_x, 32)
    steps_x = 0 if joins else -(-(slots * span * words_x + 32 // SIZE) // span)
    room_x = max(steps_x * span, 1)
    shift_out_0, mask_out_0 = turns_of(slots, 32)
    steps_out_0 = -(-(slots * span + 32 // SIZE) // span)
    room_out_0 = steps_out_0 * span

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, n_l, items, parts, piece, out_0):
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
        cells_out_0 = cuda.shared.array(room_out_0, f4)
        lead_out_0 = address(out_0) + item * n_l * SIZE
        skew_out_0 = lead_out_0 // SIZE % (32 // SIZE)
        c1_start = initial()
        seen, h = i4(0), (-inf)
        first, more = i8(0), True
        while more:
            cuda.syncthreads()
            lead = p_x + (begin + first) * words_x * SIZE
            skew_x = lead // SIZE % (32 // SIZE)
            stage_real(cells_x, lead - skew_x * SIZE, skew_x, skew_x + min(slots * span, length - first) * words_x, steps_x, shift_x, mask_x, thread, span)
            cuda.syncthreads()
            seen_first, h_first = seen, h
            seen, h = fold(seen, h, slots, first, thread, length, begin, cells_x, skew_x, shift_x, mask_x)
            seen, h = scan(seen, h, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_h = cuda.shared.array(32, f8)
            seen_above, h_above = i4(0), (-inf)
            if not alone:
                if lane == 31:
                    shared_seen[warp] = seen
                    shared_h[warp] = h
                cuda.syncthreads()
                seen_all, h_all = sel(lane < warps, shared_seen[lane % warps], i4(0)), sel(lane < warps, shared_h[lane % warps], (-inf))
                seen_all, h_all = scan(seen_all, h_all, warps, lane)
                seen_above = cuda.shfl_sync(0xFFFFFFFF, seen_all, max(warp - 1, 0))
                h_above = cuda.shfl_sync(0xFFFFFFFF, h_all, max(warp - 1, 0))
                seen_above, h_above = sel(warp > 0, seen_above, i4(0)), sel(warp > 0, h_above, (-inf))
            seen_up = cuda.shfl_up_sync(0xFFFFFFFF, seen, 1)
            h_up = cuda.shfl_up_sync(0xFFFFFFFF, h, 1)
            seen_up, h_up = sel(lane > 0, seen_up, i4(0)), sel(lane > 0, h_up, (-inf))
            seen_before, h_before = join(seen_above, h_above, seen_up, h_up)
            seen_before, h_before = sel(thread == 0, seen_first, seen_before), sel(thread == 0, h_first, h_before)
            c1 = resume(seen_before, h_before, c1_start)
            c1 = see(c1, cells_out_0, skew_out_0, shift_out_0, mask_out_0, cells_x, skew_x, shift_x, mask_x, thread, slots, first, length)
            cuda.syncthreads()
            if live:
                unstage_real(cells_out_0, lead_out_0 + (first - skew_out_0) * SIZE, skew_out_0, skew_out_0 + min(slots * span, length - first), steps_out_0, shift_out_0, mask_out_0, thread, span)
            if alone:
                seen = cuda.shfl_sync(0xFFFFFFFF, seen, 31)
                h = cuda.shfl_sync(0xFFFFFFFF, h, 31)
            else:
                seen = cuda.shfl_sync(0xFFFFFFFF, seen_all, warps - 1)
                h = cuda.shfl_sync(0xFFFFFFFF, h_all, warps - 1)
            seen, h = sel(thread == 0, seen, i4(0)), sel(thread == 0, h, (-inf))
            first += slots * span
            more = first < length

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
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
    parts, piece, launches = 1, length, [((warps, 'whole', slots), blocks, threads)]
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
    """log_cumulative_sum_exp as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    return taken_out(stepped("l", lengths["l"], 0, "after", (-np.inf,), (x,), lambda c1, e1: (np.logaddexp(c1, e1),)), 'l', lengths)


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
        print(f"log_cumulative_sum_exp, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
