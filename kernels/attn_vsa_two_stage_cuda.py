"""attn_vsa_two_stage: one pass over l, 6 words of state per row, commutative merge.

Coarse scores q·mean_b K_l pick 2 tiles; attention over the keys of those, and over the tile means.

The operator
    attn_vsa_two_stage(q[d], Kt[l, b, d], Vt[l, b, v]):
        t1 = sqrt(size(d))
        t2 = sum(q * (sum(Kt, b) / size(b)), d) / t1
        t3 = index(l) == argtopk(t2, l, 2, name=t)
        t4 = sum(q * sum(where(t3, Kt, 0), l), d) / t1
        t5 = exp(t4 - max(max(t4, b), t))
        t6 = exp(t2 - max(t2, l))
        return sum(sum(t5 * sum(where(t3, Vt, 0), l), b), t) / sum(sum(t5, b), t), sum(t6 * (sum(Vt, b) / size(b)), l) / sum(t6, l)

One more element (a prime marks the new value)
    x    = (Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d)
    pos' = best_positions(2, pos, l)
    s1'  = Σ_t__1 (s1 if pos = pos' else 0) + (Kt[l,b,d] if l = pos' else 0)
    s5'  = Σ_t__1 (s5 if pos = pos' else 0) + (Vt[l,b,v] if l = pos' else 0)
    m'   = max(m, x)
    s6'  = s6·exp(m − m') + exp(x − m')·Σ_b Vt[l,b,v]
    s4'  = s4·exp(m − m') + exp(x − m')

Two states a and b
    pos' = best_positions(2, pos_a, pos_b)
    s1'  = Σ_t__1 (s1_a if pos_a = pos' else 0) + Σ_t__1 (s1_b if pos_b = pos' else 0)
    s5'  = Σ_t__1 (s5_a if pos_a = pos' else 0) + Σ_t__1 (s5_b if pos_b = pos' else 0)
    m'   = max(m_a, m_b)
    s6'  = s6_a·exp(m_a − m') + s6_b·exp(m_b − m')
    s4'  = s4_a·exp(m_a − m') + s4_b·exp(m_b − m')

Dangers
    exp((Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d) − m) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, recentre_difference, reset_among, exp_of_sum
Certificate: sha256 94824a6a000299fc9eff7006a4d249fd50b073aba009dfc90385f4c6d119e4b4
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python attn_vsa_two_stage_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_q, n_b, n_d, cells_Kt, skew_Kt, shift_Kt, mask_Kt, slots):
    t2 = 1.0 / f8(n_b)
    for i_l in range(slots):
        t1 = 0.0
        for i_d in range(n_d):
            t3 = 0.0
            for i_b in range(n_b):
                t3 = t3 + f8(cells_Kt[cell(i_l * span + thread, n_b * n_d, i_b * n_d + i_d + skew_Kt, shift_Kt, mask_Kt)])
            t1 = t1 + f8(cells_q[i_d]) * (t3 * t2)
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, slots, n_v, cells_Vt, n_b, skew_Vt, shift_Vt, mask_Vt):
    for i_l in range(slots):
        for i_v in range(n_v):
            t1 = 0.0
            for i_b in range(n_b):
                t1 = t1 + f8(cells_Vt[cell(i_l * span + thread, n_b * n_v, i_b * n_v + i_v + skew_Vt, shift_Vt, mask_Vt)])
            cells_S2[i_v * slots * span + i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def rebase_s1(into, n_b, n_d, pos, pos_new, s1, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_d in range(n_d):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t1 = t1 + (s1[(i_t__1 * n_b + i_b) * n_d + i_d] if pos[i_t__1] == pos_new[i_t] else f8(0))
                into[(i_t * n_b + i_b) * n_d + i_d] = t1


@cuda.jit(device=True)
def rebase_s5(into, n_b, n_v, pos, pos_new, s5, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_v in range(n_v):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t1 = t1 + (s5[(i_t__1 * n_b + i_b) * n_v + i_v] if pos[i_t__1] == pos_new[i_t] else f8(0))
                into[(i_t * n_b + i_b) * n_v + i_v] = t1


@cuda.jit(device=True)
def rebase_s6(into, m, m_new, s6, n_v):
    t4 = math.exp((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))
    for i_v in range(n_v):
        into[i_v] = 0.0 if s6[i_v] == 0.0 else t4 * s6[i_v]


@cuda.jit(device=True)
def rebase_s4(m, m_new, s4):
    t4 = f8(fast_exp(f4((m if math.isfinite(m) else 0.0) - (m_new if math.isfinite(m_new) else 0.0))))
    return 0.0 if s4 == 0.0 else t4 * s4


@cuda.jit(device=True)
def fold(seen_old, m_old, s4_old, slots, first, span, thread, length, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, cells_S1, pos_value, begin, n_t__1, s6, cells_Kt, skew_Kt, shift_Kt, mask_Kt, cells_Vt, skew_Vt, shift_Vt, mask_Vt, cells_S2):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, m_old, s4_old
    seen = i4(seen_old + many)
    for word in range(n_t):
        pos_old[word] = pos[word]
    for word in range(n_t * n_b * n_d):
        s1_old[word] = s1[word]
    for word in range(n_t * n_b * n_v):
        s5_old[word] = s5[word]
    m = m_old
    m_it = f4(-inf)
    t2 = 1.0 / math.sqrt(f8(n_d))
    for i_l in range(slots):
        t3 = cells_S1[i_l * span + thread] * f4(t2)
        m_it = larger(m_it, sel(i4(first + i_l * span + thread) < i4(length), t3, f4(-inf)))
    m = larger(m, f8(m_it))
    for i_l in range(slots):
        t4 = cells_S1[i_l * span + thread] * f4(t2)
        if i4(first + i_l * span + thread) < i4(length):
            insert(pos_value, pos, 0, n_t, f8(t4), i8(begin + first + i_l * span + thread))
    if seen_old > 0:
        rebase_s1(s1, n_b, n_d, pos_old, pos, s1_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s5(s5, n_b, n_v, pos_old, pos, s5_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s6(s6, m_old, m, s6, n_v)
    s4 = rebase_s4(m_old, m, s4_old) if seen_old > 0 else s4_old
    s4_it = f4(0.0)
    t6 = m if math.isfinite(m) else 0.0
    for i_l in range(slots):
        t8 = fast_exp(f4(t2) * cells_S1[i_l * span + thread] - f4(t6))
        s4_it = s4_it + sel(i4(first + i_l * span + thread) < i4(length), t8, f4(0.0))
    s4 = s4 + f8(s4_it)
    for i_l in range(slots):
        for i_t in range(n_t):
            t10 = i4(begin + first + i_l * span + thread) == i4(min(max(pos[i_t], -1), 2147483647))
            for i_b in range(n_b):
                for i_d in range(n_d):
                    t11 = cells_Kt[cell(i_l * span + thread, n_b * n_d, i_b * n_d + i_d + skew_Kt, shift_Kt, mask_Kt)] if t10 else f4(0)
                    s1[(i_t * n_b + i_b) * n_d + i_d] = s1[(i_t * n_b + i_b) * n_d + i_d] + sel(i4(first + i_l * span + thread) < i4(length), f8(t11), 0.0)
    for i_l in range(slots):
        for i_t in range(n_t):
            t13 = i4(begin + first + i_l * span + thread) == i4(min(max(pos[i_t], -1), 2147483647))
            for i_b in range(n_b):
                for i_v in range(n_v):
                    t14 = cells_Vt[cell(i_l * span + thread, n_b * n_v, i_b * n_v + i_v + skew_Vt, shift_Vt, mask_Vt)] if t13 else f4(0)
                    s5[(i_t * n_b + i_b) * n_v + i_v] = s5[(i_t * n_b + i_b) * n_v + i_v] + sel(i4(first + i_l * span + thread) < i4(length), f8(t14), 0.0)
    for i_l in range(slots):
        t17 = fast_exp(f4(t2) * cells_S1[i_l * span + thread] - f4(t6))
        for i_v in range(n_v):
            t18 = t17 * cells_S2[i_v * slots * span + i_l * span + thread]
            s6[i_v] = s6[i_v] + sel(i4(first + i_l * span + thread) < i4(length), f8(t18), 0.0)
    return seen, m, s4


@cuda.jit(device=True)
def combine(seen_old, m_old, s4_old, width, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, pos_value, n_t__1, s6):
    seen = sum_over(seen_old, width)
    for word in range(n_t):
        pos_old[word] = pos[word]
    for word in range(n_t * n_b * n_d):
        s1_old[word] = s1[word]
    for word in range(n_t * n_b * n_v):
        s5_old[word] = s5[word]
    m = larger_over(m_old, width)
    for word in range(1):
        join_lists(pos_value, pos, word * n_t, n_t, width)
    if seen_old > 0:
        rebase_s1(s1, n_b, n_d, pos_old, pos, s1_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s5(s5, n_b, n_v, pos_old, pos, s5_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s6(s6, m_old, m, s6, n_v)
    s4 = sum_over(rebase_s4(m_old, m, s4_old) if seen_old > 0 else 0.0, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_t * n_b * n_d):
                s1[word] = s1[word] + cuda.shfl_xor_sync(4294967295, s1[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_t * n_b * n_v):
                s5[word] = s5[word] + cuda.shfl_xor_sync(4294967295, s5[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_v):
                s6[word] = s6[word] + cuda.shfl_xor_sync(4294967295, s6[word], by)
    return seen, m, s4


@cuda.jit(device=True)
def settle_s1(into, n_b, n_d, pos, n_t__1, s1, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t1 = t1 + f8(f4(1.0) if pos[i_t__1] == pos[i_t] else f4(0))
        t4 = t1 != t1
        for i_b in range(n_b):
            for i_d in range(n_d):
                into[(i_t * n_b + i_b) * n_d + i_d] = nan if t4 else s1[(i_t * n_b + i_b) * n_d + i_d]


@cuda.jit(device=True)
def settle_s5(into, n_b, n_v, pos, n_t__1, s5, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t1 = t1 + f8(f4(1.0) if pos[i_t__1] == pos[i_t] else f4(0))
        t4 = t1 != t1
        for i_b in range(n_b):
            for i_v in range(n_v):
                into[(i_t * n_b + i_b) * n_v + i_v] = nan if t4 else s5[(i_t * n_b + i_b) * n_v + i_v]


@cuda.jit(device=True)
def settle_s6(into, m, s6, n_v):
    t1 = m
    t3 = math.exp(t1 - t1)
    t4 = t3 != t3
    t9 = math.exp((m if m - m == 0.0 else f8(0)) - m)
    for i_v in range(n_v):
        into[i_v] = t9 * s6[i_v] if t4 else s6[i_v]


@cuda.jit(device=True)
def settle_s4(m, s4):
    t1 = m
    t3 = math.exp(t1 - t1)
    t10 = math.exp((m if m - m == 0.0 else f8(0)) - m) * s4
    return t10 if t3 != t3 else s4


@cuda.jit(device=True)
def value_s(into, n_b, n_d, pos, s1, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_d in range(n_d):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t1 = t1 + (s1[(i_t__1 * n_b + i_b) * n_d + i_d] if pos[i_t__1] == pos[i_t] else f8(0))
                into[(i_t * n_b + i_b) * n_d + i_d] = t1


@cuda.jit(device=True)
def value_s2(into, n_b, n_v, pos, s5, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_v in range(n_v):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t1 = t1 + (s5[(i_t__1 * n_b + i_b) * n_v + i_v] if pos[i_t__1] == pos[i_t] else f8(0))
                into[(i_t * n_b + i_b) * n_v + i_v] = t1


@cuda.jit(device=True)
def output_0(into, n_d, cells_q, s, n_b, n_t, s2, n_v):
    t1 = 0.0
    t4 = 1.0 / math.sqrt(f8(n_d))
    t8 = -inf
    for i_t in range(n_t):
        t9 = -inf
        for i_b in range(n_b):
            t10 = 0.0
            for i_d in range(n_d):
                t10 = t10 + f8(cells_q[i_d]) * s[(i_t * n_b + i_b) * n_d + i_d]
            t9 = larger(t9, t10 * t4)
        t8 = larger(t8, t9)
    for i_t in range(n_t):
        t2 = 0.0
        for i_b in range(n_b):
            t5 = 0.0
            for i_d in range(n_d):
                t5 = t5 + f8(cells_q[i_d]) * s[(i_t * n_b + i_b) * n_d + i_d]
            t2 = t2 + math.exp(t5 * t4 - t8)
        t1 = t1 + t2
    t15 = 1.0 / t1
    for i_v in range(n_v):
        t16 = 0.0
        for i_t in range(n_t):
            t17 = 0.0
            for i_b in range(n_b):
                t18 = 0.0
                for i_d in range(n_d):
                    t18 = t18 + f8(cells_q[i_d]) * s[(i_t * n_b + i_b) * n_d + i_d]
                t17 = t17 + math.exp(t18 * t4 - t8) * s2[(i_t * n_b + i_b) * n_v + i_v]
            t16 = t16 + t17
        into[i_v] = f4(t16 * t15)


@cuda.jit(device=True)
def value_s3(into, n_b, s6, n_v):
    t1 = 1.0 / f8(n_b)
    for i_v in range(n_v):
        into[i_v] = t1 * s6[i_v]


@cuda.jit(device=True)
def output_1(into, s4, s3, n_v):
    t1 = 1.0 / s4
    for i_v in range(n_v):
        into[i_v] = f4(s3[i_v] * t1)


@cuda.jit(device=True)
def finish(seen, m, s4, s1, n_b, n_d, pos, n_t__1, n_t, s5, n_v, s6, s, s2, result_0, cells_q, s3, result_1):
    settle_s1(s1, n_b, n_d, pos, n_t__1, s1, n_t)
    settle_s5(s5, n_b, n_v, pos, n_t__1, s5, n_t)
    settle_s6(s6, m, s6, n_v)
    s4 = settle_s4(m, s4)
    value_s(s, n_b, n_d, pos, s1, n_t__1, n_t)
    value_s2(s2, n_b, n_v, pos, s5, n_t__1, n_t)
    output_0(result_0, n_d, cells_q, s, n_b, n_t, s2, n_v)
    value_s3(s3, n_b, s6, n_v)
    output_1(result_1, s4, s3, n_v)


@cache
def make(warps, stage, slots, n_d, n_b, n_v, n_t):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    n_t__1 = n_t
    words_pos = n_t
    words_pos_value = n_t
    words_s1 = n_t * n_b * n_d
    words_s5 = n_t * n_b * n_v
    words_s6 = n_v
    words_s = n_t * n_b * n_d
    words_s2 = n_t * n_b * n_v
    words_s3 = n_v
    words_pos_old = n_t
    words_s1_old = n_t * n_b * n_d
    words_s5_old = n_t * n_b * n_v
    words_result_0 = n_v
    words_result_1 = n_v
    room_pos = warps * (words_pos | 1)
    room_pos_value = warps * (words_pos_value | 1)
    room_s1 = warps * (words_s1 | 1)
    room_s5 = warps * (words_s5 | 1)
    room_s6 = warps * (words_s6 | 1)
    words_Kt = n_b * n_d
    shift_Kt, mask_Kt = turns_of(words_Kt, 32)
    steps_Kt = 0 if joins else -(-(slots * span * words_Kt + 32 // SIZE) // span)
    room_Kt = max(steps_Kt * span, 1)
    words_Vt = n_b * n_v
    shift_Vt, mask_Vt = turns_of(words_Vt, 32)
    steps_Vt = 0 if joins else -(-(slots * span * words_Vt + 32 // SIZE) // span)
    room_Vt = max(steps_Vt * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * n_v
    words_q = n_d

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(q, s_q, Kt, s_Kt, Vt, s_Vt, n_l, items, parts, piece, part_seen, part_m, part_s4, part_pos, part_pos_value, part_s1, part_s5, part_s6, out_0, out_1):
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
        o_q = rest * s_q
        p_q = address(q) + o_q * SIZE
        o_Kt = rest * s_Kt
        p_Kt = address(Kt) + o_Kt * SIZE
        o_Vt = rest * s_Vt
        p_Vt = address(Vt) + o_Vt * SIZE
        cells_q = cuda.shared.array(words_q, f4)
        for word in range(thread, words_q, span):
            cells_q[word] = load_one(p_q + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_Kt = cuda.shared.array(room_Kt, f4)
        cells_Vt = cuda.shared.array(room_Vt, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        cells_S2 = cuda.shared.array(room_S2, f4)
        pos = cuda.local.array(words_pos, i8)
        pos_value = cuda.local.array(words_pos_value, f8)
        s1 = cuda.local.array(words_s1, f8)
        s5 = cuda.local.array(words_s5, f8)
        s6 = cuda.local.array(words_s6, f8)
        s = cuda.local.array(words_s, f8)
        s2 = cuda.local.array(words_s2, f8)
        s3 = cuda.local.array(words_s3, f8)
        pos_old = cuda.local.array(words_pos_old, i8)
        s1_old = cuda.local.array(words_s1_old, f8)
        s5_old = cuda.local.array(words_s5_old, f8)
        result_0 = cuda.local.array(words_result_0, f4)
        result_1 = cuda.local.array(words_result_1, f4)
        seen, m, s4 = i4(0), (-inf), 0.0
        for word in range(words_pos):
            pos[word] = i8(-1)
        for word in range(words_pos_value):
            pos_value[word] = -inf
        for word in range(words_s1):
            s1[word] = 0.0
        for word in range(words_s5):
            s5[word] = 0.0
        for word in range(words_s6):
            s6[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_Kt + (begin + first) * words_Kt * SIZE
            skew_Kt = lead // SIZE % (32 // SIZE)
            stage_real(cells_Kt, lead - skew_Kt * SIZE, skew_Kt, skew_Kt + min(slots * span, length - first) * words_Kt, steps_Kt, shift_Kt, mask_Kt, thread, span)
            lead = p_Vt + (begin + first) * words_Vt * SIZE
            skew_Vt = lead // SIZE % (32 // SIZE)
            stage_real(cells_Vt, lead - skew_Vt * SIZE, skew_Vt, skew_Vt + min(slots * span, length - first) * words_Vt, steps_Vt, shift_Vt, mask_Vt, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_q, n_b, n_d, cells_Kt, skew_Kt, shift_Kt, mask_Kt, slots)
            make_S2(span, thread, cells_S2, slots, n_v, cells_Vt, n_b, skew_Vt, shift_Vt, mask_Vt)
            seen, m, s4 = fold(seen, m, s4, slots, first, span, thread, length, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, cells_S1, pos_value, begin, n_t__1, s6, cells_Kt, skew_Kt, shift_Kt, mask_Kt, cells_Vt, skew_Vt, shift_Vt, mask_Vt, cells_S2)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            m = sel(there, part_m[place], (-inf))
            s4 = sel(there, part_s4[place], 0.0)
            for word in range(words_pos):
                pos[word] = sel(there, part_pos[place * words_pos + word], i8(-1))
            for word in range(words_pos_value):
                pos_value[word] = sel(there, part_pos_value[place * words_pos_value + word], -inf)
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
            for word in range(words_s5):
                s5[word] = sel(there, part_s5[place * words_s5 + word], 0.0)
            for word in range(words_s6):
                s6[word] = sel(there, part_s6[place * words_s6 + word], 0.0)
        seen, m, s4 = combine(seen, m, s4, 32, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, pos_value, n_t__1, s6)
        shared_seen = cuda.shared.array(32, i4)
        shared_m = cuda.shared.array(32, f8)
        shared_s4 = cuda.shared.array(32, f8)
        shared_pos = cuda.shared.array(room_pos, i8)
        shared_pos_value = cuda.shared.array(room_pos_value, f8)
        shared_s1 = cuda.shared.array(room_s1, f8)
        shared_s5 = cuda.shared.array(room_s5, f8)
        shared_s6 = cuda.shared.array(room_s6, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_m[warp] = m
                shared_s4[warp] = s4
                for word in range(words_pos):
                    shared_pos[warp * (words_pos | 1) + word] = pos[word]
                for word in range(words_pos_value):
                    shared_pos_value[warp * (words_pos_value | 1) + word] = pos_value[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
                for word in range(words_s5):
                    shared_s5[warp * (words_s5 | 1) + word] = s5[word]
                for word in range(words_s6):
                    shared_s6[warp * (words_s6 | 1) + word] = s6[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                m = sel(lane < warps, shared_m[lane % warps], (-inf))
                s4 = sel(lane < warps, shared_s4[lane % warps], 0.0)
                for word in range(words_pos):
                    pos[word] = sel(lane < warps, shared_pos[lane % warps * (words_pos | 1) + word], i8(-1))
                for word in range(words_pos_value):
                    pos_value[word] = sel(lane < warps, shared_pos_value[lane % warps * (words_pos_value | 1) + word], -inf)
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                for word in range(words_s5):
                    s5[word] = sel(lane < warps, shared_s5[lane % warps * (words_s5 | 1) + word], 0.0)
                for word in range(words_s6):
                    s6[word] = sel(lane < warps, shared_s6[lane % warps * (words_s6 | 1) + word], 0.0)
                seen, m, s4 = combine(seen, m, s4, warps, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, pos_value, n_t__1, s6)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_m[item * parts + part] = m
                part_s4[item * parts + part] = s4
                for word in range(words_pos):
                    part_pos[(item * parts + part) * words_pos + word] = pos[word]
                for word in range(words_pos_value):
                    part_pos_value[(item * parts + part) * words_pos_value + word] = pos_value[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
                for word in range(words_s5):
                    part_s5[(item * parts + part) * words_s5 + word] = s5[word]
                for word in range(words_s6):
                    part_s6[(item * parts + part) * words_s6 + word] = s6[word]
        elif warp == 0 or alone:
            finish(seen, m, s4, s1, n_b, n_d, pos, n_t__1, n_t, s5, n_v, s6, s, s2, result_0, cells_q, s3, result_1)
            if live and thread == 0:
                for word in range(words_result_0):
                    store_one(address(out_0) + (item * words_result_0 + word) * SIZE, f4(result_0[word]))
                for word in range(words_result_1):
                    store_one(address(out_1) + (item * words_result_1 + word) * SIZE, f4(result_1[word]))

    return kernel


AXES = {'q': ('d',), 'Kt': ('l', 'b', 'd'), 'Vt': ('l', 'b', 'v')}
DTYPES = {'q': np.float32, 'Kt': np.float32, 'Vt': np.float32}
OUTPUTS = [(('v',), np.float32), (('v',), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.int64, ('t',)), (np.float64, ('t',)), (np.float64, ('t', 'b', 'd')), (np.float64, ('t', 'b', 'v')), (np.float64, ('v',))]


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


def plan(q, Kt, Vt):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'q': q, 'Kt': Kt, 'Vt': Vt}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    sizes['t'] = 2
    if not 1 <= sizes['t'] <= min(length, 32):
        raise ValueError(f"the {sizes['t']} largest of {length}: this kernel finds 1 to 32 of as many or more")
    state = 8 * sizes['t'] + 8 * sizes['t'] + 8 * sizes['t'] * sizes['b'] * sizes['d'] + 8 * sizes['t'] * sizes['b'] * sizes['v'] + 8 * sizes['v']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['b'] * sizes['d'] + 4 * sizes['b'] * sizes['v'] + 4 * 1 + 4 * sizes['v']
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['d'], sizes['b'], sizes['v'], sizes['t']), blocks * parts, threads), ((8, 'join', slots, sizes['d'], sizes['b'], sizes['v'], sizes['t']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['d'], sizes['b'], sizes['v'], sizes['t']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(q, Kt, Vt, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(q, Kt, Vt)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('d', 'l', 'b', 'v', 't')


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


def definition(q, Kt, Vt):
    """attn_vsa_two_stage as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    Kt = spread(Kt, 'l b d')
    Vt = spread(Vt, 'l b v')
    lengths = {"d": q.shape[-5], "l": Kt.shape[-4], "b": Kt.shape[-3], "v": Vt.shape[-2], "t": 2}
    t1 = np.sqrt(lengths["d"])
    t2 = np.sum(q * (np.sum(Kt, along("b"), keepdims=True) / lengths["b"]), along("d"), keepdims=True) / t1
    t3 = positions("l", lengths["l"]) == largest(t2, "l", 2, "t")
    t4 = np.sum(q * np.sum(np.where(t3, Kt, 0), along("l"), keepdims=True), along("d"), keepdims=True) / t1
    t5 = np.exp(t4 - np.max(np.max(t4, along("b"), keepdims=True), along("t"), keepdims=True))
    t6 = np.exp(t2 - np.max(t2, along("l"), keepdims=True))
    return (taken_out(np.sum(np.sum(t5 * np.sum(np.where(t3, Vt, 0), along("l"), keepdims=True), along("b"), keepdims=True), along("t"), keepdims=True) / np.sum(np.sum(t5, along("b"), keepdims=True), along("t"), keepdims=True), 'v', lengths), taken_out(np.sum(t6 * (np.sum(Vt, along("b"), keepdims=True) / lengths["b"]), along("l"), keepdims=True) / np.sum(t6, along("l"), keepdims=True), 'v', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"q": rng.standard_normal((3,)).astype(DTYPES['q']),
                  "Kt": rng.standard_normal((3, length, 5, 3)).astype(DTYPES['Kt']),
                  "Vt": rng.standard_normal((3, length, 5, 6)).astype(DTYPES['Vt'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"attn_vsa_two_stage, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
