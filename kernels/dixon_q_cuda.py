"""dixon_q: one pass over l, 2 words of state per row, commutative merge.

(x₍ₙ₎ − x₍ₙ₋₁₎)/(x₍ₙ₎ − x₍₁₎) and (x₍₂₎ − x₍₁₎)/(x₍ₙ₎ − x₍₁₎) from the two largest and two smallest.

The operator
    dixon_q(x[l]):
        d1 = topk(x, l, 2, name=t)
        d2 = max(d1, t)
        t1 = -topk(-x, l, 2, name=t)
        d3 = min(t1, t)
        t2 = d2 - d3
        return (d2 - min(d1, t)) / t2, (max(t1, t) - d3) / t2

One more element (a prime marks the new value)
    top'  = best_values(2, top, x[l])
    top2' = best_values(2, top2, −x[l])

Two states a and b
    top'  = best_values(2, top_a, top_b)
    top2' = best_values(2, top2_a, top2_b)

Dangers
    max_t top − min_t (−top2) divides and may be 0: the result is then what IEEE division gives

Laws:
Certificate: sha256 53e425d3480907821d1e82aafe8af2fcda4d3e42340916dd7139173274230000
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python dixon_q_cuda.py` checks it on a GPU.
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

@cuda.jit(device=True)
def beats(value, best):
    """Whether a value is larger than one found further ahead; NaN is larger than numbers."""
    return (value > best) | (value != value) & (best == best)

@cuda.jit(device=True)
def comes_first(value, best, position, at):
    """Whether a value beats one found elsewhere: NaN beats numbers, of equals the one further ahead wins, at < 0 is none."""
    equal = (value == best) | (value != value) & (best != best)
    return (at < 0) | beats(value, best) | equal & (position < at)

@cuda.jit(device=True)
def insert(best, at, begin, count, value, position):
    """Put a value among the largest ones, which lie in falling order from `begin` on."""
    if comes_first(value, best[begin + count - 1], position, at[begin + count - 1]):
        for k in range(count):
            old, there = best[begin + k], at[begin + k]
            ahead = comes_first(value, old, position, there)
            best[begin + k], at[begin + k] = sel(ahead, value, old), sel(ahead, position, there)
            value, position = sel(ahead, old, value), sel(ahead, there, position)

@cuda.jit(device=True)
def join_lists(best, at, begin, count, width):
    """The largest of the values that so many lanes hold: the first of all lists, again and again; who had it moves on in its own."""
    for k in range(count):
        value, position = best[begin + k], at[begin + k]
        for step in range(5):
            by = width >> step + 1
            if by > 0:
                other, there = cuda.shfl_xor_sync(0xFFFFFFFF, value, by), cuda.shfl_xor_sync(0xFFFFFFFF, position, by)
                ahead = there >= 0 and comes_first(other, value, there, position)
                value, position = sel(ahead, other, value), sel(ahead, there, position)
        stays = position != at[begin + k]
        for back in range(count - 1 - k):
            place = begin + count - 1 - back
            best[place], at[place] = sel(stays, best[place - 1], best[place]), sel(stays, at[place - 1], at[place])
        best[begin + k], at[begin + k] = value, position

load_4 = ptx("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_4(pointer, there)
    for k in range(4):
        v[first + k] = numbers[k]

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 4, 1
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def fold(seen_old, ok, v_x, top, top_at, n_t, at, top2, top2_at):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old
    seen = i4(seen_old + many)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        if ok[i_l]:
            insert(top, top_at, 0, n_t, f8(v_x[i_l]), i8(at[i_l]))
        t1 = -v_x[i_l]
        if ok[i_l]:
            insert(top2, top2_at, 0, n_t, f8(t1), i8(at[i_l]))
        unrolled()
    return seen


@cuda.jit(device=True)
def combine(seen_old, width, top, top_at, n_t, top2, top2_at):
    seen = sum_over(seen_old, width)
    for word in range(1):
        join_lists(top, top_at, word * n_t, n_t, width)
    for word in range(1):
        join_lists(top2, top2_at, word * n_t, n_t, width)
    return seen


@cuda.jit(device=True)
def outputs(top, n_t, top2):
    t1 = -inf
    for i_t in range(n_t):
        t1 = larger(t1, top[i_t])
    t2 = inf
    for i_t in range(n_t):
        t2 = smaller(t2, top[i_t])
    t4 = inf
    for i_t in range(n_t):
        t4 = smaller(t4, -top2[i_t])
    t6 = t1 - t4
    t8 = -inf
    for i_t in range(n_t):
        t8 = larger(t8, -top2[i_t])
    return f4((t1 - t2) / t6), f4((t8 - t4) / t6)


@cuda.jit(device=True)
def finish(seen, top, n_t, top2):
    result_0, result_1 = outputs(top, n_t, top2)
    return result_0, result_1


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_x + place * SIZE, full, v_x, flight * VECTOR)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, edge)


@cache
def make(warps, stage, n_t):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_top = n_t
    words_top_at = n_t
    words_top2 = n_t
    words_top2_at = n_t
    room_top = warps * (words_top | 1)
    room_top_at = warps * (words_top_at | 1)
    room_top2 = warps * (words_top2 | 1)
    room_top2_at = warps * (words_top2_at | 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, n_l, items, parts, piece, part_seen, part_top, part_top_at, part_top2, part_top2_at, out_0, out_1):
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
        head = min((-(p_x + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        top = cuda.local.array(words_top, f8)
        top_at = cuda.local.array(words_top_at, i8)
        top2 = cuda.local.array(words_top2, f8)
        top2_at = cuda.local.array(words_top2_at, i8)
        seen = i4(0)
        for word in range(words_top):
            top[word] = (-inf)
        for word in range(words_top_at):
            top_at[word] = i8(-1)
        for word in range(words_top2):
            top2[word] = (-inf)
        for word in range(words_top2_at):
            top2_at[word] = i8(-1)
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, ok, at, v_x)
            seen = fold(seen, ok, v_x, top, top_at, n_t, at, top2, top2_at)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            for word in range(words_top):
                top[word] = sel(there, part_top[place * words_top + word], (-inf))
            for word in range(words_top_at):
                top_at[word] = sel(there, part_top_at[place * words_top_at + word], i8(-1))
            for word in range(words_top2):
                top2[word] = sel(there, part_top2[place * words_top2 + word], (-inf))
            for word in range(words_top2_at):
                top2_at[word] = sel(there, part_top2_at[place * words_top2_at + word], i8(-1))
        seen = combine(seen, 32, top, top_at, n_t, top2, top2_at)
        shared_seen = cuda.shared.array(32, i4)
        shared_top = cuda.shared.array(room_top, f8)
        shared_top_at = cuda.shared.array(room_top_at, i8)
        shared_top2 = cuda.shared.array(room_top2, f8)
        shared_top2_at = cuda.shared.array(room_top2_at, i8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                for word in range(words_top):
                    shared_top[warp * (words_top | 1) + word] = top[word]
                for word in range(words_top_at):
                    shared_top_at[warp * (words_top_at | 1) + word] = top_at[word]
                for word in range(words_top2):
                    shared_top2[warp * (words_top2 | 1) + word] = top2[word]
                for word in range(words_top2_at):
                    shared_top2_at[warp * (words_top2_at | 1) + word] = top2_at[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                for word in range(words_top):
                    top[word] = sel(lane < warps, shared_top[lane % warps * (words_top | 1) + word], (-inf))
                for word in range(words_top_at):
                    top_at[word] = sel(lane < warps, shared_top_at[lane % warps * (words_top_at | 1) + word], i8(-1))
                for word in range(words_top2):
                    top2[word] = sel(lane < warps, shared_top2[lane % warps * (words_top2 | 1) + word], (-inf))
                for word in range(words_top2_at):
                    top2_at[word] = sel(lane < warps, shared_top2_at[lane % warps * (words_top2_at | 1) + word], i8(-1))
                seen = combine(seen, warps, top, top_at, n_t, top2, top2_at)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                for word in range(words_top):
                    part_top[(item * parts + part) * words_top + word] = top[word]
                for word in range(words_top_at):
                    part_top_at[(item * parts + part) * words_top_at + word] = top_at[word]
                for word in range(words_top2):
                    part_top2[(item * parts + part) * words_top2 + word] = top2[word]
                for word in range(words_top2_at):
                    part_top2_at[(item * parts + part) * words_top2_at + word] = top2_at[word]
        elif warp == 0 or alone:
            result_0, result_1 = finish(seen, top, n_t, top2)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'x': ('l',)}
DTYPES = {'x': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ('t',)), (np.int64, ('t',)), (np.float64, ('t',)), (np.int64, ('t',))]


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
    sizes['t'] = 2
    if not 1 <= sizes['t'] <= min(length, 32):
        raise ValueError(f"the {sizes['t']} largest of {length}: this kernel finds 1 to 32 of as many or more")
    state = 8 * sizes['t'] + 8 * sizes['t'] + 8 * sizes['t'] + 8 * sizes['t']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    warps = next((w for w in (1, 2, 4) if length <= 32 * w * TILE), 8)
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', sizes['t']), blocks * parts, threads), ((8, 'join', sizes['t']), items, 256)] if parts > 1 else [((warps, 'whole', sizes['t']), blocks, threads)]
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


ALL_AXES = ('l', 't')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(ALL_AXES) - len(own)))]
    return np.moveaxis(array, range(-len(ALL_AXES), len(own) - len(ALL_AXES)), own)


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


def chosen(body, axis, at, out):
    """The elements at positions that `largest` found."""
    return np.swapaxes(np.take_along_axis(body, np.swapaxes(at, along(axis), along(out)), along(axis)), along(axis), along(out))


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
    """dixon_q as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-2], "t": 2}
    d1 = chosen(x, "l", largest(x, "l", 2, "t"), "t")
    d2 = np.max(d1, along("t"), keepdims=True)
    t1 = -chosen(-x, "l", largest(-x, "l", 2, "t"), "t")
    d3 = np.min(t1, along("t"), keepdims=True)
    t2 = d2 - d3
    return (taken_out((d2 - np.min(d1, along("t"), keepdims=True)) / t2, '', lengths), taken_out((np.max(t1, along("t"), keepdims=True) - d3) / t2, '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"dixon_q, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
