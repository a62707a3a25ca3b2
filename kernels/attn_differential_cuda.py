"""attn_differential: one pass over l, 6 words of state per row, commutative merge.

o = softmax(s¹)V − λ softmax(s²)V, then RMSNorm over the value axis.

The operator
    attn_differential(q1[d], q2[d], K1[l, d], K2[l, d], V[l, v], lam[]):
        t1 = sqrt(size(d))
        t2 = sum(q1 * K1, d) / t1
        t3 = exp(t2 - max(t2, l))
        t4 = sum(q2 * K2, d) / t1
        t5 = exp(t4 - max(t4, l))
        t6 = sum(t3 * V, l) / sum(t3, l) - lam * (sum(t5 * V, l) / sum(t5, l))
        return t6 / sqrt(sum(t6 * t6, v) / size(v) + 1e-06)

One more element (a prime marks the new value)
    x1  = (Σ_d q1[d]·K1[l,d])/√(N_d)
    x2  = (Σ_d q2[d]·K2[l,d])/√(N_d)
    m'  = max(m, x1)
    s'  = s·exp(m − m') + V[l,v]·exp(x1 − m')
    s2' = s2·exp(m − m') + exp(x1 − m')
    m2' = max(m2, x2)
    s3' = s3·exp(m2 − m2') + V[l,v]·exp(x2 − m2')
    s4' = s4·exp(m2 − m2') + exp(x2 − m2')

Two states a and b
    m'  = max(m_a, m_b)
    s'  = s_a·exp(m_a − m') + s_b·exp(m_b − m')
    s2' = s2_a·exp(m_a − m') + s2_b·exp(m_b − m')
    m2' = max(m2_a, m2_b)
    s3' = s3_a·exp(m2_a − m2') + s3_b·exp(m2_b − m2')
    s4' = s4_a·exp(m2_a − m2') + s4_b·exp(m2_b − m2')

Dangers
    exp((Σ_d q1[d]·K1[l,d])/√(N_d) − m) may overflow: nothing bounds its exponent
    exp((Σ_d q2[d]·K2[l,d])/√(N_d) − m2) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 be5ec1a09bb15455917ccac669f9a53b7eb80e4389abb902c90de014ab120aae
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python attn_differential_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_q1, cells_K1, n_d, skew_K1, shift_K1, mask_K1, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_d in range(n_d):
            t1 = t1 + f8(cells_q1[i_d]) * f8(cells_K1[cell(i_l * span + thread, n_d, i_d + skew_K1, shift_K1, mask_K1)])
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, cells_q2, cells_K2, n_d, skew_K2, shift_K2, mask_K2, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_d in range(n_d):
            t1 = t1 + f8(cells_q2[i_d]) * f8(cells_K2[cell(i_l * span + thread, n_d, i_d + skew_K2, shift_K2, mask_K2)])
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def rebase_s(into, m, m_new, s, n_v):
    t4 = math.exp((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))
    for i_v in range(n_v):
        into[i_v] = f4(0.0 if f8(s[i_v]) == 0.0 else t4 * f8(s[i_v]))


@cuda.jit(device=True)
def rebase_s3(into, m2, m2_new, s3, n_v):
    t4 = math.exp((m2 if math.isfinite(m2) else 0.0) - (m2_new if math.isfinite(m2_new) else 0.0))
    for i_v in range(n_v):
        into[i_v] = f4(0.0 if f8(s3[i_v]) == 0.0 else t4 * f8(s3[i_v]))


@cuda.jit(device=True)
def rebase_s2(m, m_new, s2):
    t4 = f8(fast_exp(f4((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))))
    return 0.0 if s2 == 0.0 else t4 * s2


@cuda.jit(device=True)
def rebase_s4(m2, m2_new, s4):
    t4 = f8(fast_exp(f4((m2 if math.isfinite(m2) else 0.0) - (m2_new if math.isfinite(m2_new) else 0.0))))
    return 0.0 if s4 == 0.0 else t4 * s4


@cuda.jit(device=True)
def fold(seen_old, m_old, m2_old, s2_old, s4_old, slots, first, span, thread, length, n_d, cells_S1, cells_S2, n_v, s, s3, cells_V, skew_V, shift_V, mask_V):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, m_old, m2_old, s2_old, s4_old
    seen = i4(seen_old + many)
    m = m_old
    m_it = f4(-inf)
    m2 = m2_old
    m2_it = f4(-inf)
    t2 = 1.0 / math.sqrt(f8(n_d))
    for i_l in range(slots):
        t3 = cells_S1[i_l * span + thread] * f4(t2)
        m_it = larger(m_it, sel(i4(first + i_l * span + thread) < i4(length), t3, f4(-inf)))
        t4 = cells_S2[i_l * span + thread] * f4(t2)
        m2_it = larger(m2_it, sel(i4(first + i_l * span + thread) < i4(length), t4, f4(-inf)))
    m = larger(m, f8(m_it))
    m2 = larger(m2, f8(m2_it))
    if seen_old > 0:
        rebase_s(s, m_old, m, s, n_v)
    if seen_old > 0:
        rebase_s3(s3, m2_old, m2, s3, n_v)
    s2 = rebase_s2(m_old, m, s2_old) if seen_old > 0 else s2_old
    s2_it = f4(0.0)
    s4 = rebase_s4(m2_old, m2, s4_old) if seen_old > 0 else s4_old
    s4_it = f4(0.0)
    t6 = m if math.isfinite(m) else 0.0
    t10 = m2 if math.isfinite(m2) else 0.0
    for i_l in range(slots):
        t8 = fast_exp(f4(t2) * cells_S1[i_l * span + thread] - f4(t6))
        s2_it = s2_it + sel(i4(first + i_l * span + thread) < i4(length), t8, f4(0.0))
        t12 = fast_exp(f4(t2) * cells_S2[i_l * span + thread] - f4(t10))
        s4_it = s4_it + sel(i4(first + i_l * span + thread) < i4(length), t12, f4(0.0))
    s2 = s2 + f8(s2_it)
    s4 = s4 + f8(s4_it)
    for i_l in range(slots):
        t15 = fast_exp(f4(t2) * cells_S1[i_l * span + thread] - f4(t6))
        t19 = fast_exp(f4(t2) * cells_S2[i_l * span + thread] - f4(t10))
        for i_v in range(n_v):
            t16 = cells_V[cell(i_l * span + thread, n_v, i_v + skew_V, shift_V, mask_V)] * t15
            s[i_v] = s[i_v] + sel(i4(first + i_l * span + thread) < i4(length), t16, f4(0.0))
            t20 = cells_V[cell(i_l * span + thread, n_v, i_v + skew_V, shift_V, mask_V)] * t19
            s3[i_v] = s3[i_v] + sel(i4(first + i_l * span + thread) < i4(length), t20, f4(0.0))
    return seen, m, m2, s2, s4


@cuda.jit(device=True)
def combine(seen_old, m_old, m2_old, s2_old, s4_old, width, n_v, s, s3):
    seen = sum_over(seen_old, width)
    m = larger_over(m_old, width)
    m2 = larger_over(m2_old, width)
    if seen_old > 0:
        rebase_s(s, m_old, m, s, n_v)
    if seen_old > 0:
        rebase_s3(s3, m2_old, m2, s3, n_v)
    s2 = sum_over(rebase_s2(m_old, m, s2_old) if seen_old > 0 else 0.0, width)
    s4 = sum_over(rebase_s4(m2_old, m2, s4_old) if seen_old > 0 else 0.0, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_v):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_v):
                s3[word] = s3[word] + cuda.shfl_xor_sync(4294967295, s3[word], by)
    return seen, m, m2, s2, s4


@cuda.jit(device=True)
def settle_s(into, m, s, n_v):
    t1 = m
    t3 = math.exp(t1 - t1)
    t4 = t3 != t3
    t9 = math.exp((m if m - m == 0.0 else f8(0)) - m)
    for i_v in range(n_v):
        t10 = t9 * f8(s[i_v])
        into[i_v] = f4(t10 if t4 else f8(s[i_v]))


@cuda.jit(device=True)
def settle_s2(m, s2):
    t1 = m
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m if m - m == 0.0 else f8(0)) - m) * s2
    return t10 if t3 != t3 else s2


@cuda.jit(device=True)
def settle_s3(into, m2, s3, n_v):
    t1 = m2
    t3 = math.exp(t1 - t1)
    t4 = t3 != t3
    t9 = math.exp((m2 if m2 - m2 == 0.0 else f8(0)) - m2)
    for i_v in range(n_v):
        t10 = t9 * f8(s3[i_v])
        into[i_v] = f4(t10 if t4 else f8(s3[i_v]))


@cuda.jit(device=True)
def settle_s4(m2, s4):
    t1 = m2
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m2 if m2 - m2 == 0.0 else f8(0)) - m2) * s4
    return t10 if t3 != t3 else s4


@cuda.jit(device=True)
def output_0(into, s2, s, x_lam, s4, s3, n_v):
    t1 = 0.0
    t2 = 1.0 / s2
    t4 = 1.0 / s4
    for i_v in range(n_v):
        t7 = f8(s[i_v]) * t2 - f8(x_lam) * (f8(s3[i_v]) * t4)
        t1 = t1 + t7 * t7
    t12 = 1.0 / math.sqrt(t1 / f8(n_v) + 1e-06)
    for i_v in range(n_v):
        into[i_v] = f4((f8(s[i_v]) * t2 - f8(x_lam) * (f8(s3[i_v]) * t4)) * t12)


@cuda.jit(device=True)
def finish(seen, m, m2, s2, s4, s, n_v, s3, result_0, x_lam):
    settle_s(s, m, s, n_v)
    s2 = settle_s2(m, s2)
    settle_s3(s3, m2, s3, n_v)
    s4 = settle_s4(m2, s4)
    output_0(result_0, s2, s, x_lam, s4, s3, n_v)


@cache
def make(warps, stage, slots, n_d, n_v):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_s = n_v
    words_s3 = n_v
    words_result_0 = n_v
    room_s = warps * (words_s | 1)
    room_s3 = warps * (words_s3 | 1)
    words_K1 = n_d
    shift_K1, mask_K1 = turns_of(words_K1, 32)
    steps_K1 = 0 if joins else -(-(slots * span * words_K1 + 32 // SIZE) // span)
    room_K1 = max(steps_K1 * span, 1)
    words_K2 = n_d
    shift_K2, mask_K2 = turns_of(words_K2, 32)
    steps_K2 = 0 if joins else -(-(slots * span * words_K2 + 32 // SIZE) // span)
    room_K2 = max(steps_K2 * span, 1)
    words_V = n_v
    shift_V, mask_V = turns_of(words_V, 32)
    steps_V = 0 if joins else -(-(slots * span * words_V + 32 // SIZE) // span)
    room_V = max(steps_V * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1
    words_q1 = n_d
    words_q2 = n_d

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(q1, s_q1, q2, s_q2, K1, s_K1, K2, s_K2, V, s_V, lam, s_lam, n_l, items, parts, piece, part_seen, part_m, part_m2, part_s2, part_s4, part_s, part_s3, out_0):
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
        o_q1 = rest * s_q1
        p_q1 = address(q1) + o_q1 * SIZE
        o_q2 = rest * s_q2
        p_q2 = address(q2) + o_q2 * SIZE
        o_K1 = rest * s_K1
        p_K1 = address(K1) + o_K1 * SIZE
        o_K2 = rest * s_K2
        p_K2 = address(K2) + o_K2 * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        o_lam = rest * s_lam
        p_lam = address(lam) + o_lam * SIZE
        cells_q1 = cuda.shared.array(words_q1, f4)
        for word in range(thread, words_q1, span):
            cells_q1[word] = load_one(p_q1 + word * SIZE, 1)
        cells_q2 = cuda.shared.array(words_q2, f4)
        for word in range(thread, words_q2, span):
            cells_q2[word] = load_one(p_q2 + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_K1 = cuda.shared.array(room_K1, f4)
        cells_K2 = cuda.shared.array(room_K2, f4)
        cells_V = cuda.shared.array(room_V, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        cells_S2 = cuda.shared.array(room_S2, f4)
        s = cuda.local.array(words_s, f4)
        s3 = cuda.local.array(words_s3, f4)
        result_0 = cuda.local.array(words_result_0, f4)
        seen, m, m2, s2, s4 = i4(0), (-inf), (-inf), 0.0, 0.0
        for word in range(words_s):
            s[word] = f4(0.0)
        for word in range(words_s3):
            s3[word] = f4(0.0)
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_K1 + (begin + first) * words_K1 * SIZE
            skew_K1 = lead // SIZE % (32 // SIZE)
            stage_real(cells_K1, lead - skew_K1 * SIZE, skew_K1, skew_K1 + min(slots * span, length - first) * words_K1, steps_K1, shift_K1, mask_K1, thread, span)
            lead = p_K2 + (begin + first) * words_K2 * SIZE
            skew_K2 = lead // SIZE % (32 // SIZE)
            stage_real(cells_K2, lead - skew_K2 * SIZE, skew_K2, skew_K2 + min(slots * span, length - first) * words_K2, steps_K2, shift_K2, mask_K2, thread, span)
            lead = p_V + (begin + first) * words_V * SIZE
            skew_V = lead // SIZE % (32 // SIZE)
            stage_real(cells_V, lead - skew_V * SIZE, skew_V, skew_V + min(slots * span, length - first) * words_V, steps_V, shift_V, mask_V, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_q1, cells_K1, n_d, skew_K1, shift_K1, mask_K1, slots)
            make_S2(span, thread, cells_S2, cells_q2, cells_K2, n_d, skew_K2, shift_K2, mask_K2, slots)
            seen, m, m2, s2, s4 = fold(seen, m, m2, s2, s4, slots, first, span, thread, length, n_d, cells_S1, cells_S2, n_v, s, s3, cells_V, skew_V, shift_V, mask_V)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            m = sel(there, part_m[place], (-inf))
            m2 = sel(there, part_m2[place], (-inf))
            s2 = sel(there, part_s2[place], 0.0)
            s4 = sel(there, part_s4[place], 0.0)
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], f4(0.0))
            for word in range(words_s3):
                s3[word] = sel(there, part_s3[place * words_s3 + word], f4(0.0))
        seen, m, m2, s2, s4 = combine(seen, m, m2, s2, s4, 32, n_v, s, s3)
        shared_seen = cuda.shared.array(32, i4)
        shared_m = cuda.shared.array(32, f8)
        shared_m2 = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s4 = cuda.shared.array(32, f8)
        shared_s = cuda.shared.array(room_s, f4)
        shared_s3 = cuda.shared.array(room_s3, f4)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_m[warp] = m
                shared_m2[warp] = m2
                shared_s2[warp] = s2
                shared_s4[warp] = s4
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s3):
                    shared_s3[warp * (words_s3 | 1) + word] = s3[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                m = sel(lane < warps, shared_m[lane % warps], (-inf))
                m2 = sel(lane < warps, shared_m2[lane % warps], (-inf))
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s4 = sel(lane < warps, shared_s4[lane % warps], 0.0)
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], f4(0.0))
                for word in range(words_s3):
                    s3[word] = sel(lane < warps, shared_s3[lane % warps * (words_s3 | 1) + word], f4(0.0))
                seen, m, m2, s2, s4 = combine(seen, m, m2, s2, s4, warps, n_v, s, s3)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_m[item * parts + part] = m
                part_m2[item * parts + part] = m2
                part_s2[item * parts + part] = s2
                part_s4[item * parts + part] = s4
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s3):
                    part_s3[(item * parts + part) * words_s3 + word] = s3[word]
        elif warp == 0 or alone:
            x_lam = load_one(p_lam, 1)
            finish(seen, m, m2, s2, s4, s, n_v, s3, result_0, x_lam)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))

    return kernel


AXES = {'q1': ('d',), 'q2': ('d',), 'K1': ('l', 'd'), 'K2': ('l', 'd'), 'V': ('l', 'v'), 'lam': ()}
DTYPES = {'q1': np.float32, 'q2': np.float32, 'K1': np.float32, 'K2': np.float32, 'V': np.float32, 'lam': np.float32}
OUTPUTS = [(('v',), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float32, ('v',)), (np.float32, ('v',))]


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


def plan(q1, q2, K1, K2, V, lam):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'q1': q1, 'q2': q2, 'K1': K1, 'K2': K2, 'V': V, 'lam': lam}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 4 * sizes['v'] + 4 * sizes['v']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['d'] + 4 * sizes['d'] + 4 * sizes['v'] + 4 * 1 + 4 * 1
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


def launch(q1, q2, K1, K2, V, lam, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(q1, q2, K1, K2, V, lam)
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


def definition(q1, q2, K1, K2, V, lam):
    """attn_differential as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q1 = spread(q1, 'd')
    q2 = spread(q2, 'd')
    K1 = spread(K1, 'l d')
    K2 = spread(K2, 'l d')
    V = spread(V, 'l v')
    lam = spread(lam, '')
    lengths = {"d": q1.shape[-3], "l": K1.shape[-2], "v": V.shape[-1]}
    t1 = np.sqrt(lengths["d"])
    t2 = np.sum(q1 * K1, along("d"), keepdims=True) / t1
    t3 = np.exp(t2 - np.max(t2, along("l"), keepdims=True))
    t4 = np.sum(q2 * K2, along("d"), keepdims=True) / t1
    t5 = np.exp(t4 - np.max(t4, along("l"), keepdims=True))
    t6 = np.sum(t3 * V, along("l"), keepdims=True) / np.sum(t3, along("l"), keepdims=True) - lam * (np.sum(t5 * V, along("l"), keepdims=True) / np.sum(t5, along("l"), keepdims=True))
    return taken_out(t6 / np.sqrt(np.sum(t6 * t6, along("v"), keepdims=True) / lengths["v"] + 1e-06), 'v', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"q1": rng.standard_normal((3,)).astype(DTYPES['q1']),
                  "q2": rng.standard_normal((3,)).astype(DTYPES['q2']),
                  "K1": rng.standard_normal((3, length, 3)).astype(DTYPES['K1']),
                  "K2": rng.standard_normal((3, length, 3)).astype(DTYPES['K2']),
                  "V": rng.standard_normal((3, length, 5)).astype(DTYPES['V']),
                  "lam": rng.standard_normal(()).astype(DTYPES['lam'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"attn_differential, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
