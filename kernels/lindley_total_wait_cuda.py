"""lindley_total_wait: one pass over l, 2 words of state per row, in order, no merge.

Σ w_l with w_l = max(0, w_{l−1} + x_l): as a function of the wait before, a part's sum bends at every element.

The operator
    lindley_total_wait(x[l]):
        return sum(scan(lambda w: maximum(0, w + x), l, 0.0, after), l)

One more element (a prime marks the new value)
    w' = max(0, w + x[l])
    s' = s + max(0, w + x[l])

Laws:
Certificate: sha256 f6123715573ef30ebcbd1d9e39f06a3684ecde1f9495ed4e6415ba484f166f44
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python lindley_total_wait_cuda.py` checks it on a GPU.
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

@intrinsic
def unrolled(context):
    """At the end of a loop: the compiler writes the loop out, so that arrays it goes over lie in registers."""
    def emit(context, builder, signature, args):
        def branch(target):
            del builder.branch
            jump, module = builder.branch(target), builder.module
            hint = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.full")])
            mark = ir.MDValue(module, [hint], name=str(len(module.metadata)))
            mark.operands = (mark, hint)
            jump.set_metadata("llvm.loop", mark)
            return jump
        builder.branch = branch
        return context.get_dummy_value()
    return types.none(), emit

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
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True)
def first_like(origins, row):
    """The first of neighbouring rows that begin where this one does."""
    while row > 0 and origins[row - 1] == origins[row]:
        row -= 1
    return row

@cuda.jit(device=True)
def turned(word, ring):
    """Where a word lies in a ring of so many."""
    return np.uint32(word) % np.uint32(ring)

def staging(load, kind, size):
    """What fills rings with numbers of so many bytes, eight of a thread at a time; rows that begin at one place have one ring."""
    @cuda.jit(device=True)
    def staged(cells, room, origins, rows, first, count, ring, length, sector, thread, span):
        """Words from `first` on, counted from where the sector begins in which the row does; beside the row there is 0."""
        held = cuda.local.array(8, kind)
        for turn in range(0, rows * count, 8 * span):
            for k in range(8):
                number = i4(turn + k * span + thread)
                row = sel(number < rows * count, i4(number // count), i4(0))
                origin = origins[row]
                word = i4(first + number % count - origin % sector // size)
                there = number < rows * count and 0 <= word and word < length and (row == 0 or origins[row - 1] != origin)
                held[k] = load(origin + word * size, there)
                unrolled()
            for k in range(8):
                number = i4(turn + k * span + thread)
                if number < rows * count:
                    cells[i4(number // count * room) + turned(first + number % count, ring)] = held[k]
                unrolled()
    return staged

stage_rows = staging(load_one, f4, 4)

SIZE, DELAY = 4, 8


@cuda.jit(device=True)
def fold(seen_old, w_old, s_old, cells_x, words_x, skew_x, ring_x, at):
    seen = i4(seen_old + 1)
    w = w_old
    s = s_old
    if seen_old == 0:
        t7 = larger(0.0, f8(f4(0.0)) + f8(cells_x[turned(at * words_x + skew_x, ring_x)]))
        w, s = t7, 0.0 + t7
    else:
        t3 = larger(0.0, w + f8(cells_x[turned(at * words_x + skew_x, ring_x)]))
        w, s = t3, s + t3
    return seen, w, s


@cuda.jit(device=True)
def output_0(s):
    return f4(s)


@cuda.jit(device=True)
def finish(seen, w, s):
    return output_0(s)


@cache
def make(rows, wide, step):
    """The kernel in which so many rows share a block, a thread for each of `wide` columns; `step` elements of a row come at a time."""
    ring, lanes = step + 2 * DELAY, 1
    span, pieces = -(-rows * wide // 32) * 32, -(-lanes // wide)
    words_x = 1
    ring_x = ring * words_x
    room_x = -(-ring_x // 32) * 32 + max(wide, words_x | 1) % 32
    all_x = rows * room_x

    @cuda.jit(launch_bounds=(span, 1))
    def kernel(x, s_x, n_l, items, out_0):
        thread = i4(cuda.threadIdx.x)
        mine, column = i4(thread // wide), i8(thread % wide + cuda.blockIdx.x % pieces * wide)
        start = i8(cuda.blockIdx.x // pieces) * rows
        present = i4(min(items - start, rows))
        live = mine < present and column < lanes
        mine = sel(mine < present, mine, i4(0))
        item = start + mine
        rest = item
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        all_cells_x = cuda.shared.array(all_x, f4)
        origins_x = cuda.shared.array(rows, i8)
        origin_x = p_x
        if thread == mine * wide:
            origins_x[mine] = origin_x
        cuda.syncthreads()
        own = first_like(origins_x, mine)
        cells_x = all_cells_x[own * room_x:]
        skew_x = i4(origin_x % 32 // 4)
        seen, w, s = i4(0), 0.0, 0.0
        for turn in range(0, n_l + 2 * DELAY, step):
            cuda.syncthreads()
            stage_rows(all_cells_x, room_x, origins_x, present, i4(turn) * words_x, step * words_x, ring_x, n_l * words_x, 32, thread, span)
            cuda.syncthreads()
            for at in range(turn - DELAY - skew_x // words_x, turn + step - DELAY - skew_x // words_x):
                if 0 <= at < n_l:
                    seen, w, s = fold(seen, w, s, cells_x, words_x, skew_x, ring_x, at)
        result_0 = finish(seen, w, s)
        if live:
            store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32)]
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
    items, length, parts = math.prod(leading), sizes['l'], 1
    if length * 1 >= 2**31 - 2**10:
        raise ValueError(f"a row has {length} elements, too many for places of 31 bits: take fewer columns at a time")
    lanes = 1
    wide, state = min(lanes, 256), 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    room = lambda words: -(-words // 32) * 32 + 32
    needed = lambda ring: 4 * room(ring * 1)
    most = min(max(8, items // 128), 2 * items - 1, 32, max(1, 256 // wide))
    shapes = [(rows, step) for rows in (32, 16, 8, 4, 2, 1) for step in (4 * DELAY, 2 * DELAY, DELAY) if rows <= most]
    fits = [(rows, step) for rows, step in shapes if rows * needed(step + 2 * DELAY) <= 45056]
    if not fits:
        raise ValueError(f"24 elements and what goes with them take more than 45056 bytes: take fewer columns at a time")
    rows, step = fits[0]
    blocks, threads = -(-items // rows) * -(-lanes // wide), -(-rows * wide // 32) * 32
    launches = [((rows, wide, step), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items)]
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
    """lindley_total_wait as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    return taken_out(np.sum(stepped("l", lengths["l"], 0, "after", (0.0,), (x,), lambda w, e1: (np.maximum(0, w + e1),)), along("l"), keepdims=True), '', lengths)


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
        print(f"lindley_total_wait, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
