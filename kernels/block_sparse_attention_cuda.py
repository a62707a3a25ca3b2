"""block_sparse_attention: one pass over l, 3 words of state per row, commutative merge.

Attention where a block of 2 queries sees those blocks of 16 keys for which keep is 1, written as a gather.

The operator
    block_sparse_attention(Q[m, k], K[l, k], V[l, j], keep[r, b]; scale=1.0):
        t1 = sum(Q * K, k) * scale
        t2 = sum(sum(where((index(m) // 2 == index(r)) & (index(l) // 16 == index(b)), keep, 0), r), b) > 0
        t3 = exp(t1 - max(t1, l, where=t2))
        return sum(t3 * V, l, where=t2) / sum(t3, l, where=t2)

One more element (a prime marks the new value)
    x1  = scale·Σ_k Q[m,k]·K[l,k]
    x2  = Σ_b Σ_r (keep[r,b] if m // 2 = r ∧ l // 16 = b else 0)
    m2' = max(m2, x1)   element where x2 > 0
    s'  = s·exp(m2 − m2') + V[l,j]·exp(x1 − m2')   element where x2 > 0
    s2' = s2·exp(m2 − m2') + exp(x1 − m2')   element where x2 > 0

Two states a and b
    m2' = max(m2_a, m2_b)
    s'  = s_a·exp(m2_a − m2') + s_b·exp(m2_b − m2')
    s2' = s2_a·exp(m2_a − m2') + s2_b·exp(m2_b − m2')

Dangers
    s2 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 aa9dac0589e180b834e1e260078ff06e6f7455e0582f47b0914b5d0803bd6c4c
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python block_sparse_attention_cuda.py` checks it on a GPU.
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
max_over = over_lanes(max)
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
def make_S1(span, thread, cells_S1, cells_Q, cells_K, n_k, skew_K, shift_K, mask_K, slots):
    for i_l in range(slots):
        t1 = f4(0.0)
        for i_k in range(n_k):
            t1 = t1 + cells_Q[i_k] * cells_K[cell(i_l * span + thread, n_k, i_k + skew_K, shift_K, mask_K)]
        cells_S1[i_l * span + thread] = t1


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, i_m, begin, first, n_b, cells_keep, n_r, slots):
    t3 = i_m // 2
    for i_l in range(slots):
        t1 = 0.0
        t5 = i8(begin + first + i_l * span + thread) // 16
        for i_b in range(n_b):
            t2 = 0.0
            t6 = t5 == i_b
            for i_r in range(n_r):
                t2 = t2 + f8(cells_keep[i_r * n_b + i_b] if (t3 == i_r) & t6 else f4(0))
            t1 = t1 + t2
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def rebase_s(into, m2, m2_new, s, n_j):
    t4 = math.exp((m2 if math.isfinite(m2) else 0.0) - (m2_new if math.isfinite(m2_new) else 0.0))
    for i_j in range(n_j):
        into[i_j] = f4(0.0 if f8(s[i_j]) == 0.0 else t4 * f8(s[i_j]))


@cuda.jit(device=True)
def rebase_s2(m2, m2_new, s2):
    t4 = f8(fast_exp(f4((m2 if math.isfinite(m2) else 0.0) - (m2_new if math.isfinite(m2_new) else 0.0))))
    return 0.0 if s2 == 0.0 else t4 * s2


@cuda.jit(device=True)
def fold(seen_old, any1_old, m2_old, s2_old, slots, first, span, thread, length, cells_S2, cells_S1, scale, n_j, s, cells_V, skew_V, shift_V, mask_V):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, any1_old, m2_old, s2_old
    seen = i4(seen_old + many)
    any1 = any1_old
    any1_it = False
    m2 = m2_old
    m2_it = f4(-inf)
    for i_l in range(slots):
        t1 = cells_S2[i_l * span + thread] > f4(0.0)
        any1_it = any1_it | sel(i4(first + i_l * span + thread) < i4(length), t1, False)
        t2 = cells_S1[i_l * span + thread] * f4(scale)
        m2_it = larger(m2_it, sel((i4(first + i_l * span + thread) < i4(length)) & t1, t2, f4(-inf)))
    any1 = any1 | any1_it
    m2 = larger(m2, f8(m2_it))
    if seen_old > 0:
        rebase_s(s, m2_old, m2, s, n_j)
    s2 = rebase_s2(m2_old, m2, s2_old) if seen_old > 0 else s2_old
    s2_it = f4(0.0)
    t5 = m2 if math.isfinite(m2) else 0.0
    for i_l in range(slots):
        t3 = cells_S2[i_l * span + thread] > f4(0.0)
        t7 = fast_exp(f4(scale) * cells_S1[i_l * span + thread] - f4(t5))
        s2_it = s2_it + sel((i4(first + i_l * span + thread) < i4(length)) & t3, t7, f4(0.0))
    s2 = s2 + f8(s2_it)
    for i_l in range(slots):
        t8 = cells_S2[i_l * span + thread] > f4(0.0)
        t11 = fast_exp(f4(scale) * cells_S1[i_l * span + thread] - f4(t5))
        for i_j in range(n_j):
            t12 = cells_V[cell(i_l * span + thread, n_j, i_j + skew_V, shift_V, mask_V)] * t11
            s[i_j] = s[i_j] + sel((i4(first + i_l * span + thread) < i4(length)) & t8, t12, f4(0.0))
    return seen, any1, m2, s2


@cuda.jit(device=True)
def combine(seen_old, any1_old, m2_old, s2_old, width, n_j, s):
    seen = sum_over(seen_old, width)
    any1 = max_over(sel(any1_old, i4(1), i4(0)), width) != 0
    m2 = larger_over(m2_old, width)
    if seen_old > 0:
        rebase_s(s, m2_old, m2, s, n_j)
    s2 = sum_over(rebase_s2(m2_old, m2, s2_old) if seen_old > 0 else 0.0, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_j):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    return seen, any1, m2, s2


@cuda.jit(device=True)
def settle_s(into, m2, any1, s, n_j):
    t1 = m2
    t3 = math.exp(t1 - t1)
    t5 = (t3 != t3) & any1
    t10 = math.exp((m2 if m2 - m2 == 0.0 else f8(0)) - m2)
    for i_j in range(n_j):
        t11 = t10 * f8(s[i_j])
        into[i_j] = f4(t11 if t5 else f8(s[i_j]))


@cuda.jit(device=True)
def settle_s2(m2, any1, s2):
    t1 = m2
    t3 = math.exp(t1 - t1)
    t11 = math.exp((m2 if m2 - m2 == 0.0 else f8(0)) - m2) * s2
    return t11 if (t3 != t3) & any1 else s2


@cuda.jit(device=True)
def output_0(into, s2, s, n_j):
    t1 = 1.0 / s2
    for i_j in range(n_j):
        into[i_j] = f4(f8(s[i_j]) * t1)


@cuda.jit(device=True)
def finish(seen, any1, m2, s2, s, n_j, result_0):
    settle_s(s, m2, any1, s, n_j)
    s2 = settle_s2(m2, any1, s2)
    output_0(result_0, s2, s, n_j)


@cache
def make(warps, stage, together, slots, n_k, n_j, n_r, n_b):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    rows = 1 if joins else together
    words_s = n_j
    words_result_0 = n_j
    room_s = warps * (words_s | 1)
    words_K = n_k
    shift_K, mask_K = turns_of(words_K, 32)
    steps_K = 0 if joins else -(-(slots * span * words_K + 32 // SIZE) // (rows * span))
    room_K = max(steps_K * (rows * span), 1)
    words_V = n_j
    shift_V, mask_V = turns_of(words_V, 32)
    steps_V = 0 if joins else -(-(slots * span * words_V + 32 // SIZE) // (rows * span))
    room_V = max(steps_V * (rows * span), 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1
    words_Q = n_k
    words_keep = n_r * n_b
    all_room_S1 = rows * room_S1
    all_room_S2 = rows * room_S2
    all_words_Q = rows * words_Q
    room_s *= rows

    @cuda.jit(launch_bounds=(span * rows, 1))
    def kernel(Q, s_Q, K, s_K, V, s_V, keep, s_keep, scale, n_m, n_l, items, parts, piece, part_seen, part_any1, part_m2, part_s2, part_s, out_0):
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
        o_Q = rest * s_Q + (i_m) * n_k
        p_Q = address(Q) + o_Q * SIZE
        o_K = rest * s_K
        p_K = address(K) + o_K * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        o_keep = rest * s_keep
        p_keep = address(keep) + o_keep * SIZE
        cells_Q = cuda.shared.array(all_words_Q, f4)[mine * words_Q:]
        for word in range(thread, words_Q, span):
            cells_Q[word] = load_one(p_Q + word * SIZE, 1)
        cells_keep = cuda.shared.array(words_keep, f4)
        for word in range(everyone, words_keep, rows * span):
            cells_keep[word] = load_one(p_keep + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_K = cuda.shared.array(room_K, f4)
        cells_V = cuda.shared.array(room_V, f4)
        cells_S1 = cuda.shared.array(all_room_S1, f4)[mine * room_S1:]
        cells_S2 = cuda.shared.array(all_room_S2, f4)[mine * room_S2:]
        s = cuda.local.array(words_s, f4)
        result_0 = cuda.local.array(words_result_0, f4)
        seen, any1, m2, s2 = i4(0), b1(False), (-inf), 0.0
        for word in range(words_s):
            s[word] = f4(0.0)
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_K + (begin + first) * words_K * SIZE
            skew_K = lead // SIZE % (32 // SIZE)
            stage_real(cells_K, lead - skew_K * SIZE, skew_K, skew_K + min(slots * span, length - first) * words_K, steps_K, shift_K, mask_K, everyone, rows * span)
            lead = p_V + (begin + first) * words_V * SIZE
            skew_V = lead // SIZE % (32 // SIZE)
            stage_real(cells_V, lead - skew_V * SIZE, skew_V, skew_V + min(slots * span, length - first) * words_V, steps_V, shift_V, mask_V, everyone, rows * span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_Q, cells_K, n_k, skew_K, shift_K, mask_K, slots)
            make_S2(span, thread, cells_S2, i_m, begin, first, n_b, cells_keep, n_r, slots)
            seen, any1, m2, s2 = fold(seen, any1, m2, s2, slots, first, span, thread, length, cells_S2, cells_S1, scale, n_j, s, cells_V, skew_V, shift_V, mask_V)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            any1 = sel(there, part_any1[place], b1(False))
            m2 = sel(there, part_m2[place], (-inf))
            s2 = sel(there, part_s2[place], 0.0)
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], f4(0.0))
        seen, any1, m2, s2 = combine(seen, any1, m2, s2, 32, n_j, s)
        shared_seen = cuda.shared.array(32, i4)
        shared_any1 = cuda.shared.array(32, b1)
        shared_m2 = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(room_s, f4)
        if not alone:
            if lane == 0:
                shared_seen[(mine * warps + warp)] = seen
                shared_any1[(mine * warps + warp)] = any1
                shared_m2[(mine * warps + warp)] = m2
                shared_s2[(mine * warps + warp)] = s2
                for word in range(words_s):
                    shared_s[(mine * warps + warp) * (words_s | 1) + word] = s[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[(mine * warps + lane % warps)], i4(0))
                any1 = sel(lane < warps, shared_any1[(mine * warps + lane % warps)], b1(False))
                m2 = sel(lane < warps, shared_m2[(mine * warps + lane % warps)], (-inf))
                s2 = sel(lane < warps, shared_s2[(mine * warps + lane % warps)], 0.0)
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[(mine * warps + lane % warps) * (words_s | 1) + word], f4(0.0))
                seen, any1, m2, s2 = combine(seen, any1, m2, s2, warps, n_j, s)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_any1[item * parts + part] = any1
                part_m2[item * parts + part] = m2
                part_s2[item * parts + part] = s2
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
        elif warp == 0 or alone:
            finish(seen, any1, m2, s2, s, n_j, result_0)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))

    return kernel


AXES = {'Q': ('m', 'k'), 'K': ('l', 'k'), 'V': ('l', 'j'), 'keep': ('r', 'b')}
DTYPES = {'Q': np.float32, 'K': np.float32, 'V': np.float32, 'keep': np.float32}
OUTPUTS = [(('m', 'j'), np.float32)]
HELD = [(np.int32, ()), (np.bool_, ()), (np.float64, ()), (np.float64, ()), (np.float32, ('j',))]


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
                             (all(0 < size < 2**31 for size in shape), "each axis needs from 1 to 2^31 - 1 elements; reduce parts of it"),
                             (not ahead or ahead == (leading or ahead), f"its batch axes are {ahead}, elsewhere {leading}; give an array all or none"),
                             (all(sizes.get(axis, size) == size for axis, size in zip(own, inner)), f"lengths must agree, and elsewhere are {sizes}")):
            if not right:
                raise ValueError(f"{name} of shape {shape}: {wrong}")
        sizes.update(zip(own, inner))
        leading, steps[name] = leading or ahead, np.int64(math.prod(inner) if ahead else 0)
    return sizes, leading, steps


def plan(Q, K, V, keep, scale):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays, numbers = {'Q': Q, 'K': K, 'V': V, 'keep': keep}, {'scale': np.float64(scale)}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading) * sizes['m'], sizes['l']
    state = 4 * sizes['j']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    number, own, element = sizes['m'], 4 * 1 + 4 * 1, 4 * sizes['k'] + 4 * sizes['j']
    shapes = [(r, w, slots) for r in range(min(number, 8), 0, -1) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(r, w, slots) for r, w, slots in shapes if r * w <= 8 and w * (32 * slots * (element + r * own) + r * state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    rows, warps, slots = fits[0]
    blocks, threads = items // number * -(-number // rows), 32 * warps * rows
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', rows, slots, sizes['k'], sizes['j'], sizes['r'], sizes['b']), blocks * parts, threads), ((8, 'join', rows, slots, sizes['k'], sizes['j'], sizes['r'], sizes['b']), items, 256)] if parts > 1 else [((warps, 'whole', rows, slots, sizes['k'], sizes['j'], sizes['r'], sizes['b']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*numbers.values(), *(np.int64(sizes[axis]) for axis in ('m', 'l')), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(Q, K, V, keep, scale, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(Q, K, V, keep, scale)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('m', 'k', 'l', 'j', 'r', 'b')


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


def definition(Q, K, V, keep, scale):
    """block_sparse_attention as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    Q = spread(Q, 'm k')
    K = spread(K, 'l k')
    V = spread(V, 'l j')
    keep = spread(keep, 'r b')
    lengths = {"m": Q.shape[-6], "k": Q.shape[-5], "l": K.shape[-4], "j": V.shape[-3], "r": keep.shape[-2], "b": keep.shape[-1]}
    t1 = np.sum(Q * K, along("k"), keepdims=True) * scale
    t2 = np.sum(np.sum(np.where(np.logical_and(positions("m", lengths["m"]) // 2 == positions("r", lengths["r"]), positions("l", lengths["l"]) // 16 == positions("b", lengths["b"])), keep, 0), along("r"), keepdims=True), along("b"), keepdims=True) > 0
    t3 = np.exp(t1 - np.max(np.where(t2, t1, -np.inf), along("l"), keepdims=True))
    return taken_out(np.sum(np.where(t2, t3 * V, 0), along("l"), keepdims=True) / np.sum(np.where(t2, t3, 0), along("l"), keepdims=True), 'm j', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"Q": rng.uniform(0.5, 2.0, (3, 4)).astype(DTYPES['Q']),
                  "K": rng.uniform(0.5, 2.0, (3, length, 4)).astype(DTYPES['K']),
                  "V": rng.uniform(0.5, 2.0, (3, length, 6)).astype(DTYPES['V']),
                  "keep": rng.uniform(0.5, 2.0, (7, 8)).astype(DTYPES['keep'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values(), 1.0)
        errors[length] = distance(launch(*arrays.values(), 1.0), wanted)
        print(f"block_sparse_attention, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.02 is right")
    return 0 if max(errors.values()) <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
