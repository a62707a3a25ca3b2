"""attn_gated_linear: one pass over l, 2 words of state per row, ordered merge.

S_l = diag(g_l) S_{l−1} + K_l V_lᵀ, and q S_L.

The operator
    attn_gated_linear(q[d], K[l, d], V[l, v], g[l, d]):
        return sum(q * scan(lambda S: g * S + K * V, l, 0.0), d)

One more element (a prime marks the new value)
    q1' = q1·g[l,d]
    h'  = h·g[l,d] + K[l,d]·V[l,v]

Two states a and b
    q1' = q1_a·q1_b
    h'  = q1_b·h_a + h_b

Laws:
Certificate: sha256 97394dc1f6068b6716194f85213e61d253b123e4143229a499cda96d59a11713
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python attn_gated_linear_cuda.py` checks it on a GPU.
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
def fold(seen_old, h, cells_g, words_g, skew_g, ring_g, at, cells_K, words_K, skew_K, ring_K, i_v, cells_V, words_V, skew_V, ring_V, n_d):
    seen = i4(seen_old + 1)
    t4 = cells_V[turned(at * words_V + i_v + skew_V, ring_V)]
    for i_d in range(n_d):
        t5 = f8(cells_K[turned(at * words_K + i_d + skew_K, ring_K)]) * f8(t4)
        h[i_d] = f8(cells_g[turned(at * words_g + i_d + skew_g, ring_g)]) * h[i_d] + t5
        unrolled()
    return seen


@cuda.jit(device=True)
def output_0(cells_q, h, n_d):
    t1 = 0.0
    for i_d in range(n_d):
        t1 = t1 + f8(cells_q[i_d]) * h[i_d]
        unrolled()
    return f4(t1)


@cuda.jit(device=True)
def finish(seen, cells_q, h, n_d):
    return output_0(cells_q, h, n_d)


@cache
def make(rows, wide, step, n_d, n_v):
    """The kernel in which so many rows share a block, a thread for each of `wide` columns; `step` elements of a row come at a time."""
    ring, lanes = step + 2 * DELAY, n_v
    span, pieces = -(-rows * wide // 32) * 32, -(-lanes // wide)
    words_K = n_d
    ring_K = ring * words_K
    room_K = -(-ring_K // 32) * 32 + max(wide, words_K | 1) % 32
    all_K = rows * room_K
    words_V = n_v
    ring_V = ring * words_V
    room_V = -(-ring_V // 32) * 32 + max(wide, words_V | 1) % 32
    all_V = rows * room_V
    words_g = n_d
    ring_g = ring * words_g
    room_g = -(-ring_g // 32) * 32 + max(wide, words_g | 1) % 32
    all_g = rows * room_g
    words_q = n_d
    room_q = -(-words_q // 32) * 32 + max(wide, words_q | 1) % 32
    all_q = rows * room_q
    words_h = n_d

    @cuda.jit(launch_bounds=(span, 1))
    def kernel(q, s_q, K, s_K, V, s_V, g, s_g, n_l, items, out_0):
        thread = i4(cuda.threadIdx.x)
        mine, column = i4(thread // wide), i8(thread % wide + cuda.blockIdx.x % pieces * wide)
        start = i8(cuda.blockIdx.x // pieces) * rows
        present = i4(min(items - start, rows))
        live = mine < present and column < lanes
        mine = sel(mine < present, mine, i4(0))
        item = start + mine
        rest = item
        o_q = rest * s_q
        p_q = address(q) + o_q * SIZE
        o_K = rest * s_K
        p_K = address(K) + o_K * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        o_g = rest * s_g
        p_g = address(g) + o_g * SIZE
        i_v = column % n_v
        column //= n_v
        all_cells_K = cuda.shared.array(all_K, f4)
        origins_K = cuda.shared.array(rows, i8)
        origin_K = p_K
        if thread == mine * wide:
            origins_K[mine] = origin_K
        all_cells_V = cuda.shared.array(all_V, f4)
        origins_V = cuda.shared.array(rows, i8)
        origin_V = p_V
        if thread == mine * wide:
            origins_V[mine] = origin_V
        all_cells_g = cuda.shared.array(all_g, f4)
        origins_g = cuda.shared.array(rows, i8)
        origin_g = p_g
        if thread == mine * wide:
            origins_g[mine] = origin_g
        all_cells_q = cuda.shared.array(all_q, f4)
        origins_q = cuda.shared.array(rows, i8)
        origin_q = p_q
        if thread == mine * wide:
            origins_q[mine] = origin_q
        cuda.syncthreads()
        own = first_like(origins_K, mine)
        cells_K = all_cells_K[own * room_K:]
        skew_K = i4(origin_K % 32 // 4)
        own = first_like(origins_V, mine)
        cells_V = all_cells_V[own * room_V:]
        skew_V = i4(origin_V % 32 // 4)
        own = first_like(origins_g, mine)
        cells_g = all_cells_g[own * room_g:]
        skew_g = i4(origin_g % 32 // 4)
        own = first_like(origins_q, mine)
        cells_q = all_cells_q[own * room_q:]
        stage_rows(all_cells_q, room_q, origins_q, present, i4(0), words_q, words_q, words_q, 4, thread, span)
        cuda.syncthreads()
        h = cuda.local.array(words_h, f8)
        seen = i4(0)
        for word in range(words_h):
            h[word] = 0.0
        for turn in range(0, n_l + 2 * DELAY, step):
            cuda.syncthreads()
            stage_rows(all_cells_K, room_K, origins_K, present, i4(turn) * words_K, step * words_K, ring_K, n_l * words_K, 32, thread, span)
            stage_rows(all_cells_V, room_V, origins_V, present, i4(turn) * words_V, step * words_V, ring_V, n_l * words_V, 32, thread, span)
            stage_rows(all_cells_g, room_g, origins_g, present, i4(turn) * words_g, step * words_g, ring_g, n_l * words_g, 32, thread, span)
            cuda.syncthreads()
            for at in range(turn - DELAY - skew_K // words_K, turn + step - DELAY - skew_K // words_K):
                if 0 <= at < n_l:
                    seen = fold(seen, h, cells_g, words_g, skew_g, ring_g, at, cells_K, words_K, skew_K, ring_K, i_v, cells_V, words_V, skew_V, ring_V, n_d)
        result_0 = finish(seen, cells_q, h, n_d)
        if live:
            store_one(address(out_0) + ((item) * n_v + i_v) * SIZE, f4(result_0))

    return kernel


AXES = {'q': ('d',), 'K': ('l', 'd'), 'V': ('l', 'v'), 'g': ('l', 'd')}
DTYPES = {'q': np.float32, 'K': np.float32, 'V': np.float32, 'g': np.float32}
OUTPUTS = [(('v',), np.float32)]
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


def plan(q, K, V, g):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'q': q, 'K': K, 'V': V, 'g': g}
    sizes, leading, steps = checked(arrays)
    items, length, parts = math.prod(leading), sizes['l'], 1
    if length * max(sizes['d'], sizes['v']) >= 2**31 - 2**10:
        raise ValueError(f"a row has {length} elements, too many for places of 31 bits: take fewer columns at a time")
    lanes = sizes['v']
    wide, state = min(lanes, 256), 8 * sizes['d']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    room = lambda words: -(-words // 32) * 32 + 32
    needed = lambda ring: 4 * room(ring * sizes['d']) + 4 * room(ring * sizes['v']) + 4 * room(ring * sizes['d']) + 4 * room(sizes['d'])
    most = min(max(8, items // 128), 2 * items - 1, 32, max(1, 256 // wide))
    shapes = [(rows, step) for rows in (32, 16, 8, 4, 2, 1) for step in (4 * DELAY, 2 * DELAY, DELAY) if rows <= most]
    fits = [(rows, step) for rows, step in shapes if rows * needed(step + 2 * DELAY) <= 45056]
    if not fits:
        raise ValueError(f"24 elements and what goes with them take more than 45056 bytes: take fewer columns at a time")
    rows, step = fits[0]
    blocks, threads = -(-items // rows) * -(-lanes // wide), -(-rows * wide // 32) * 32
    launches = [((rows, wide, step, sizes['d'], sizes['v']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(q, K, V, g, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(q, K, V, g)
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


def definition(q, K, V, g):
    """attn_gated_linear as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    K = spread(K, 'l d')
    V = spread(V, 'l v')
    g = spread(g, 'l d')
    lengths = {"d": q.shape[-3], "l": K.shape[-2], "v": V.shape[-1]}
    return taken_out(np.sum(q * stepped("l", lengths["l"], 0, "", (0.0,), (g, K * V,), lambda S, e1, e2: (e1 * S + e2,)), along("d"), keepdims=True), 'v', lengths)


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
                  "V": rng.standard_normal((3, length, 5)).astype(DTYPES['V']),
                  "g": rng.standard_normal((3, length, 3)).astype(DTYPES['g'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"attn_gated_linear, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
