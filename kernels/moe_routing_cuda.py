"""moe_routing: one pass over l, 3 words of state per row, commutative merge.

p = softmax over experts l of X W; the k largest p and their experts.

The operator
    moe_routing(X[m, d], W[d, l]; k=2):
        d1 = sum(X * W, d)
        t1 = exp(d1 - max(d1, l))
        t2 = t1 / sum(t1, l)
        return topk(t2, l, k), argtopk(t2, l, k)

One more element (a prime marks the new value)
    x    = Σ_d X[m,d]·W[d,l]
    m2'  = max(m2, x)
    s'   = s·exp(m2 − m2') + exp(x − m2')
    pos' = best_positions(k, pos, l)

Two states a and b
    m2'  = max(m2_a, m2_b)
    s'   = s_a·exp(m2_a − m2') + s_b·exp(m2_b − m2')
    pos' = best_positions(k, pos_a, pos_b)

Dangers
    pos is found among elements without their pivots: where these are not finite, NumPy's is the position of the first NaN

Laws: multiply_commutes, multiply_associates, multiply_one, difference, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum, topk_shifts, topk_scales_by_nonnegative, topk_of_exp, argtopk_ignores_shift,
argtopk_ignores_positive_scale, argtopk_ignores_exp
Certificate: sha256 1ba692c565197e457484e2cdc910e427935ef5232452e7678c09ee377e71c954
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python moe_routing_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_X, cells_W, n_d, skew_W, shift_W, mask_W, slots):
    for i_l in range(slots):
        t1 = f4(0.0)
        for i_d in range(n_d):
            t1 = t1 + cells_X[i_d] * cells_W[cell(i_l * span + thread, n_d, i_d + skew_W, shift_W, mask_W)]
        cells_S1[i_l * span + thread] = t1


@cuda.jit(device=True)
def rebase_s(m2, m2_new, s):
    t4 = f8(fast_exp(f4((m2 if math.isfinite(m2) else 0.0) - (m2_new if math.isfinite(m2_new) else 0.0))))
    return 0.0 if s == 0.0 else t4 * s


@cuda.jit(device=True)
def fold(seen_old, m2_old, s_old, slots, first, span, thread, length, cells_S1, pos_value, pos, n_top, begin):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, m2_old, s_old
    seen = i4(seen_old + many)
    m2 = m2_old
    m2_it = f4(-inf)
    for i_l in range(slots):
        m2_it = larger(m2_it, sel(i4(first + i_l * span + thread) < i4(length), cells_S1[i_l * span + thread], f4(-inf)))
    m2 = larger(m2, f8(m2_it))
    for i_l in range(slots):
        if i4(first + i_l * span + thread) < i4(length):
            insert(pos_value, pos, 0, n_top, f8(cells_S1[i_l * span + thread]), i8(begin + first + i_l * span + thread))
    s = rebase_s(m2_old, m2, s_old) if seen_old > 0 else s_old
    s_it = f4(0.0)
    t1 = m2 if math.isfinite(m2) else 0.0
    for i_l in range(slots):
        t3 = fast_exp(cells_S1[i_l * span + thread] - f4(t1))
        s_it = s_it + sel(i4(first + i_l * span + thread) < i4(length), t3, f4(0.0))
    s = s + f8(s_it)
    return seen, m2, s


@cuda.jit(device=True)
def combine(seen_old, m2_old, s_old, width, pos_value, pos, n_top):
    seen = sum_over(seen_old, width)
    m2 = larger_over(m2_old, width)
    for word in range(1):
        join_lists(pos_value, pos, word * n_top, n_top, width)
    s = sum_over(rebase_s(m2_old, m2, s_old) if seen_old > 0 else 0.0, width)
    return seen, m2, s


@cuda.jit(device=True)
def settle_s(m2, s):
    t1 = m2
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m2 if m2 - m2 == 0.0 else f8(0)) - m2) * s
    return t10 if t3 != t3 else s


@cuda.jit(device=True)
def value_top2(into, pos_value, m2, s, n_top):
    t3 = 1.0 / s
    for i_top in range(n_top):
        into[i_top] = math.exp(pos_value[i_top] - m2) * t3


@cuda.jit(device=True)
def output_0(into, top2, n_top):
    for i_top in range(n_top):
        into[i_top] = f4(top2[i_top])


@cuda.jit(device=True)
def output_1(into, pos, n_top):
    for i_top in range(n_top):
        into[i_top] = pos[i_top]


@cuda.jit(device=True)
def finish(seen, m2, s, top2, n_top, pos_value, result_0, result_1, pos):
    s = settle_s(m2, s)
    value_top2(top2, pos_value, m2, s, n_top)
    output_0(result_0, top2, n_top)
    output_1(result_1, pos, n_top)


@cache
def make(warps, stage, together, slots, n_d, n_top):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    rows = 1 if joins else together
    words_pos = n_top
    words_pos_value = n_top
    words_top2 = n_top
    words_result_0 = n_top
    words_result_1 = n_top
    room_pos = warps * (words_pos | 1)
    room_pos_value = warps * (words_pos_value | 1)
    words_W = n_d
    shift_W, mask_W = turns_of(words_W, 32)
    steps_W = 0 if joins else -(-(slots * span * words_W + 32 // SIZE) // (rows * span))
    room_W = max(steps_W * (rows * span), 1)
    room_S1 = slots * span * 1
    words_X = n_d
    all_room_S1 = rows * room_S1
    all_words_X = rows * words_X
    room_pos *= rows
    room_pos_value *= rows

    @cuda.jit(launch_bounds=(span * rows, 1))
    def kernel(X, s_X, W, s_W, k, n_m, n_l, items, parts, piece, part_seen, part_m2, part_s, part_pos, part_pos_value, out_0, out_1):
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
        o_X = rest * s_X + (i_m) * n_d
        p_X = address(X) + o_X * SIZE
        o_W = rest * s_W
        p_W = address(W) + o_W * SIZE
        cells_X = cuda.shared.array(all_words_X, f4)[mine * words_X:]
        for word in range(thread, words_X, span):
            cells_X[word] = load_one(p_X + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_W = cuda.shared.array(room_W, f4)
        cells_S1 = cuda.shared.array(all_room_S1, f4)[mine * room_S1:]
        pos = cuda.local.array(words_pos, i8)
        pos_value = cuda.local.array(words_pos_value, f8)
        top2 = cuda.local.array(words_top2, f8)
        result_0 = cuda.local.array(words_result_0, f4)
        result_1 = cuda.local.array(words_result_1, i8)
        seen, m2, s = i4(0), (-inf), 0.0
        for word in range(words_pos):
            pos[word] = i8(-1)
        for word in range(words_pos_value):
            pos_value[word] = -inf
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_W + (begin + first) * words_W * SIZE
            skew_W = lead // SIZE % (32 // SIZE)
            stage_real(cells_W, lead - skew_W * SIZE, skew_W, skew_W + min(slots * span, length - first) * words_W, steps_W, shift_W, mask_W, everyone, rows * span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_X, cells_W, n_d, skew_W, shift_W, mask_W, slots)
            seen, m2, s = fold(seen, m2, s, slots, first, span, thread, length, cells_S1, pos_value, pos, n_top, begin)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            m2 = sel(there, part_m2[place], (-inf))
            s = sel(there, part_s[place], 0.0)
            for word in range(words_pos):
                pos[word] = sel(there, part_pos[place * words_pos + word], i8(-1))
            for word in range(words_pos_value):
                pos_value[word] = sel(there, part_pos_value[place * words_pos_value + word], -inf)
        seen, m2, s = combine(seen, m2, s, 32, pos_value, pos, n_top)
        shared_seen = cuda.shared.array(32, i4)
        shared_m2 = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(32, f8)
        shared_pos = cuda.shared.array(room_pos, i8)
        shared_pos_value = cuda.shared.array(room_pos_value, f8)
        if not alone:
            if lane == 0:
                shared_seen[(mine * warps + warp)] = seen
                shared_m2[(mine * warps + warp)] = m2
                shared_s[(mine * warps + warp)] = s
                for word in range(words_pos):
                    shared_pos[(mine * warps + warp) * (words_pos | 1) + word] = pos[word]
                for word in range(words_pos_value):
                    shared_pos_value[(mine * warps + warp) * (words_pos_value | 1) + word] = pos_value[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[(mine * warps + lane % warps)], i4(0))
                m2 = sel(lane < warps, shared_m2[(mine * warps + lane % warps)], (-inf))
                s = sel(lane < warps, shared_s[(mine * warps + lane % warps)], 0.0)
                for word in range(words_pos):
                    pos[word] = sel(lane < warps, shared_pos[(mine * warps + lane % warps) * (words_pos | 1) + word], i8(-1))
                for word in range(words_pos_value):
                    pos_value[word] = sel(lane < warps, shared_pos_value[(mine * warps + lane % warps) * (words_pos_value | 1) + word], -inf)
                seen, m2, s = combine(seen, m2, s, warps, pos_value, pos, n_top)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_m2[item * parts + part] = m2
                part_s[item * parts + part] = s
                for word in range(words_pos):
                    part_pos[(item * parts + part) * words_pos + word] = pos[word]
                for word in range(words_pos_value):
                    part_pos_value[(item * parts + part) * words_pos_value + word] = pos_value[word]
        elif warp == 0 or alone:
            finish(seen, m2, s, top2, n_top, pos_value, result_0, result_1, pos)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))
                for word in range(words_result_1):
                    out_1[item * words_result_1 + word] = result_1[word]

    return kernel


AXES = {'X': ('m', 'd'), 'W': ('l', 'd')}
DTYPES = {'X': np.float32, 'W': np.float32}
OUTPUTS = [(('m', 'top'), np.float32), (('m', 'top'), np.int64)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.int64, ('top',)), (np.float64, ('top',))]


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


def plan(X, W, k):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays, numbers = {'X': X, 'W': W}, {'k': np.int64(k)}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading) * sizes['m'], sizes['l']
    sizes['top'] = int(numbers['k'])
    if not 1 <= sizes['top'] <= min(length, 32):
        raise ValueError(f"the {sizes['top']} largest of {length}: this kernel finds 1 to 32 of as many or more")
    state = 8 * sizes['top'] + 8 * sizes['top']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    number, own, element = sizes['m'], 4 * 1, 4 * sizes['d']
    shapes = [(r, w, slots) for r in range(min(number, 8), 0, -1) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(r, w, slots) for r, w, slots in shapes if r * w <= 8 and w * (32 * slots * (element + r * own) + r * state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    rows, warps, slots = fits[0]
    blocks, threads = items // number * -(-number // rows), 32 * warps * rows
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', rows, slots, sizes['d'], sizes['top']), blocks * parts, threads), ((8, 'join', rows, slots, sizes['d'], sizes['top']), items, 256)] if parts > 1 else [((warps, 'whole', rows, slots, sizes['d'], sizes['top']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*numbers.values(), *(np.int64(sizes[axis]) for axis in ('m', 'l')), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(X, W, k, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(X, W, k)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('m', 'd', 'l', 'top')


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


def definition(X, W, k):
    """moe_routing as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'm d')
    W = spread(W, 'd l')
    lengths = {"m": X.shape[-4], "d": X.shape[-3], "l": W.shape[-2], "top": k}
    d1 = np.sum(X * W, along("d"), keepdims=True)
    t1 = np.exp(d1 - np.max(d1, along("l"), keepdims=True))
    t2 = t1 / np.sum(t1, along("l"), keepdims=True)
    return (taken_out(chosen(t2, "l", largest(t2, "l", k, "top"), "top"), 'm top', lengths), taken_out(largest(t2, "l", k, "top"), 'm top', lengths),)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(X, W, k):
    """`launch` with the axes as the operator has them."""
    outputs = launch(X, turned(W, ('d', 'l'), ('l', 'd')), k)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return outputs[0], outputs[1]


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"X": rng.standard_normal((3, 4)).astype(DTYPES['X']),
                  "W": rng.standard_normal((3, 4, length)).astype(DTYPES['W'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values(), 2)
        errors[length] = distance(launched(*arrays.values(), 2), wanted)
        print(f"moe_routing, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
