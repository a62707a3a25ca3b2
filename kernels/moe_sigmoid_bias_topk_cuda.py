"""moe_sigmoid_bias_topk: one pass over l, 2 words of state per row, commutative merge.

s = σ(x); I = top 4 of s + b; w_i = 2.5 s_i/Σ_I s; the weights and I.

The operator
    moe_sigmoid_bias_topk(x[l], b[l]):
        t1 = 0.5 * tanh(0.5 * x) + 0.5
        d1 = argtopk(t1 + b, l, 4, name=t)
        d2 = sum(where(index(l) == d1, t1, 0), l)
        return 2.5 * d2 / (sum(d2, t) + 1e-20), d1

One more element (a prime marks the new value)
    pos' = best_positions(4, pos, l)
    s1'  = Σ_t__1 (s1 if pos = pos' else 0) + (0.5·tanh(0.5·x[l]) + 0.5 if l = pos' else 0)

Two states a and b
    pos' = best_positions(4, pos_a, pos_b)
    s1'  = Σ_t__1 (s1_a if pos_a = pos' else 0) + Σ_t__1 (s1_b if pos_b = pos' else 0)

Dangers
    Σ_t s + 1e−20 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, reset_among
Certificate: sha256 c37bddf5d5d1a4d39f1d94b4f4a2095acb72b61ab92aa7432ef743f5491013fa
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python moe_sigmoid_bias_topk_cuda.py` checks it on a GPU.
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

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 2, 1
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def rebase_s1(into, pos, pos_new, s1, n_t__1, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t1 = t1 + (s1[i_t__1] if pos[i_t__1] == pos_new[i_t] else f8(0))
        into[i_t] = t1


@cuda.jit(device=True)
def fold(seen_old, ok, n_t, pos_old, pos, s1_old, s1, v_x, v_b, pos_value, at, n_t__1):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old
    seen = i4(seen_old + many)
    for word in range(n_t):
        pos_old[word] = pos[word]
    for word in range(n_t):
        s1_old[word] = s1[word]
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t5 = f4(0.5) * math.tanh(f4(0.5) * v_x[i_l]) + f4(0.5) + v_b[i_l]
        if ok[i_l]:
            insert(pos_value, pos, 0, n_t, f8(t5), i8(at[i_l]))
        unrolled()
    if seen_old > 0:
        rebase_s1(s1, pos_old, pos, s1_old, n_t__1, n_t)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t11 = f4(0.5) * math.tanh(f4(0.5) * v_x[i_l]) + f4(0.5)
        for i_t in range(n_t):
            t12 = t11 if i4(at[i_l]) == i4(min(max(pos[i_t], -1), 2147483647)) else f4(0)
            s1[i_t] = s1[i_t] + sel(ok[i_l], f8(t12), 0.0)
        unrolled()
    return seen


@cuda.jit(device=True)
def combine(seen_old, width, n_t, pos_old, pos, s1_old, s1, pos_value, n_t__1):
    seen = sum_over(seen_old, width)
    for word in range(n_t):
        pos_old[word] = pos[word]
    for word in range(n_t):
        s1_old[word] = s1[word]
    for word in range(1):
        join_lists(pos_value, pos, word * n_t, n_t, width)
    if seen_old > 0:
        rebase_s1(s1, pos_old, pos, s1_old, n_t__1, n_t)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_t):
                s1[word] = s1[word] + cuda.shfl_xor_sync(4294967295, s1[word], by)
    return seen


@cuda.jit(device=True)
def settle_s1(into, pos, n_t__1, s1, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t1 = t1 + f8(f4(1.0) if pos[i_t__1] == pos[i_t] else f4(0))
        into[i_t] = nan if t1 != t1 else s1[i_t]


@cuda.jit(device=True)
def value_s(into, pos, s1, n_t__1, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t1 = t1 + (s1[i_t__1] if pos[i_t__1] == pos[i_t] else f8(0))
        into[i_t] = t1


@cuda.jit(device=True)
def output_0(into, s, n_t):
    t1 = 0.0
    for i_t in range(n_t):
        t1 = t1 + s[i_t]
    t3 = 1.0 / (t1 + 1e-20)
    for i_t in range(n_t):
        into[i_t] = f4(2.5 * s[i_t] * t3)


@cuda.jit(device=True)
def output_1(into, pos, n_t):
    for i_t in range(n_t):
        into[i_t] = pos[i_t]


@cuda.jit(device=True)
def finish(seen, s1, pos, n_t__1, n_t, s, result_0, result_1):
    settle_s1(s1, pos, n_t__1, s1, n_t)
    value_s(s, pos, s1, n_t__1, n_t)
    output_0(result_0, s, n_t)
    output_1(result_1, pos, n_t)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, p_b, even_b, ok, at, v_x, v_b):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_x + place * SIZE, full, v_x, flight * VECTOR)
        if even_b:
            load_vector(p_b + place * SIZE, full, v_b, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_b[flight * VECTOR + k] = load_one(p_b + (place + k) * SIZE, full)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, edge)
    v_b[TILE] = load_one(p_b + at[TILE] * SIZE, edge)


@cache
def make(warps, stage, n_t):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    n_t__1 = n_t
    words_pos = n_t
    words_pos_value = n_t
    words_s1 = n_t
    words_s = n_t
    words_pos_old = n_t
    words_s1_old = n_t
    words_result_0 = n_t
    words_result_1 = n_t
    room_pos = warps * (words_pos | 1)
    room_pos_value = warps * (words_pos_value | 1)
    room_s1 = warps * (words_s1 | 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, b, s_b, n_l, items, parts, piece, part_seen, part_pos, part_pos_value, part_s1, out_0, out_1):
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
        o_b = rest * s_b
        p_b = address(b) + o_b * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        even_b = (p_b + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        v_b = cuda.local.array(SLOTS, f4)
        pos = cuda.local.array(words_pos, i8)
        pos_value = cuda.local.array(words_pos_value, f8)
        s1 = cuda.local.array(words_s1, f8)
        s = cuda.local.array(words_s, f8)
        pos_old = cuda.local.array(words_pos_old, i8)
        s1_old = cuda.local.array(words_s1_old, f8)
        result_0 = cuda.local.array(words_result_0, f4)
        result_1 = cuda.local.array(words_result_1, i8)
        seen = i4(0)
        for word in range(words_pos):
            pos[word] = i8(-1)
        for word in range(words_pos_value):
            pos_value[word] = -inf
        for word in range(words_s1):
            s1[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, p_b, even_b, ok, at, v_x, v_b)
            seen = fold(seen, ok, n_t, pos_old, pos, s1_old, s1, v_x, v_b, pos_value, at, n_t__1)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            for word in range(words_pos):
                pos[word] = sel(there, part_pos[place * words_pos + word], i8(-1))
            for word in range(words_pos_value):
                pos_value[word] = sel(there, part_pos_value[place * words_pos_value + word], -inf)
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
        seen = combine(seen, 32, n_t, pos_old, pos, s1_old, s1, pos_value, n_t__1)
        shared_seen = cuda.shared.array(32, i4)
        shared_pos = cuda.shared.array(room_pos, i8)
        shared_pos_value = cuda.shared.array(room_pos_value, f8)
        shared_s1 = cuda.shared.array(room_s1, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                for word in range(words_pos):
                    shared_pos[warp * (words_pos | 1) + word] = pos[word]
                for word in range(words_pos_value):
                    shared_pos_value[warp * (words_pos_value | 1) + word] = pos_value[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                for word in range(words_pos):
                    pos[word] = sel(lane < warps, shared_pos[lane % warps * (words_pos | 1) + word], i8(-1))
                for word in range(words_pos_value):
                    pos_value[word] = sel(lane < warps, shared_pos_value[lane % warps * (words_pos_value | 1) + word], -inf)
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                seen = combine(seen, warps, n_t, pos_old, pos, s1_old, s1, pos_value, n_t__1)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                for word in range(words_pos):
                    part_pos[(item * parts + part) * words_pos + word] = pos[word]
                for word in range(words_pos_value):
                    part_pos_value[(item * parts + part) * words_pos_value + word] = pos_value[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
        elif warp == 0 or alone:
            finish(seen, s1, pos, n_t__1, n_t, s, result_0, result_1)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))
                for word in range(words_result_1):
                    out_1[item * words_result_1 + word] = result_1[word]

    return kernel


AXES = {'x': ('l',), 'b': ('l',)}
DTYPES = {'x': np.float32, 'b': np.float32}
OUTPUTS = [(('t',), np.float32), (('t',), np.int64)]
HELD = [(np.int32, ()), (np.int64, ('t',)), (np.float64, ('t',)), (np.float64, ('t',))]


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


def plan(x, b):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'b': b}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    sizes['t'] = 4
    if not 1 <= sizes['t'] <= min(length, 32):
        raise ValueError(f"the {sizes['t']} largest of {length}: this kernel finds 1 to 32 of as many or more")
    state = 8 * sizes['t'] + 8 * sizes['t'] + 8 * sizes['t']
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


def launch(x, b, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, b)
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


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in ALL_AXES])


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


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


def definition(x, b):
    """moe_sigmoid_bias_topk as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    b = spread(b, 'l')
    lengths = {"l": x.shape[-2], "t": 4}
    t1 = 0.5 * np.tanh(0.5 * x) + 0.5
    d1 = largest(t1 + b, "l", 4, "t")
    d2 = np.sum(np.where(positions("l", lengths["l"]) == d1, t1, 0), along("l"), keepdims=True)
    return (taken_out(2.5 * d2 / (np.sum(d2, along("t"), keepdims=True) + 1e-20), 't', lengths), taken_out(d1, 't', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "b": rng.standard_normal((3, length)).astype(DTYPES['b'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"moe_sigmoid_bias_topk, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
