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
import time

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan

_KINDS = {"r": (types.int32, ir.IntType(32)), "l": (types.int64, ir.IntType(64)),
          "f": (types.float32, ir.FloatType()), "d": (types.float64, ir.DoubleType())}


def _instruction(text, results, operands, stores=False, together=False):
    """A PTX instruction as a function: r and l are whole numbers of 32 and 64 bits, f and d floats.  `together`: by whole warps."""
    kinds = [_KINDS[letter] for letter in results]
    given = [_KINDS[letter] for letter in operands]
    constraints = ",".join(["=" + letter for letter in results] + list(operands) + ["~{memory}"] * stores)
    returns = types.none if not kinds else kinds[0][0] if len(kinds) == 1 else types.UniTuple(kinds[0][0], len(kinds))

    def emit(context, builder, signature, args):
        made = ir.VoidType() if not kinds else kinds[0][1] if len(kinds) == 1 else ir.LiteralStructType([k for _, k in kinds])
        function = ir.FunctionType(made, [kind for _, kind in given])
        value = builder.call(ir.InlineAsm(function, text, constraints, side_effect=stores), args, attrs=("convergent",) * together)
        if not kinds:
            return context.get_dummy_value()
        if len(kinds) == 1:
            return value
        return context.make_tuple(builder, signature.return_type, [builder.extract_value(value, n) for n in range(len(kinds))])

    signature = returns(*(kind for kind, _ in given))
    names = "".join(f", a{n}" for n in range(len(given)))
    scope = {"signature": signature, "emit": emit}
    exec(f"def typed(context{names}):\n    return signature, emit\n", scope)
    return intrinsic(scope["typed"])

@intrinsic
def address(context, array):
    """Where an array begins."""
    def emit(context, builder, signature, args):
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, value=args[0]).data, ir.IntType(64))
    return types.int64(array), emit

@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    def emit(context, builder, signature, args):
        return builder.select(args[0], args[1], args[2])
    return a(types.boolean, a, a), emit

def _extreme(sign, name):
    """NumPy's maximum or minimum of two floats: NaN wins."""
    @intrinsic
    def extreme(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            if kind == ir.FloatType():
                function = ir.FunctionType(kind, [kind, kind])
                return builder.call(ir.InlineAsm(function, name + ".NaN.f32 $0, $1, $2;", "=f,f,f"), args)
            first = builder.or_(builder.fcmp_ordered(sign, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.select(first, *args)
        return a(a, a), emit
    return extreme


larger = _extreme(">", "max")
smaller = _extreme("<", "min")

@cuda.jit(device=True)
def comes_first(value, best, position, at):
    """Whether a value beats one found elsewhere: NaN beats numbers, of equals the one further ahead wins, at < 0 is none."""
    if at < 0:
        return True
    ahead = position < at
    if value != value:
        return best == best or ahead
    return value > best or value == best and ahead

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
    place = element * width + column
    return place ^ (place >> shift & mask)


@cuda.jit(device=True)
def stage_real(cells, pointer, low, high, steps, shift, mask, thread, span):
    """Fill shared memory with real numbers; before `low` and from `high` on with 0."""
    for step in range(steps):
        word = step * span + thread
        cells[word ^ (word >> shift & mask)] = load_one(pointer + word * SIZE, sel(word >= low and word < high, i4(1), i4(0)))


load_one = _instruction("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)
SIZE, VECTOR, FLIGHT = 4, 4, 4
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1
ROWS = 1


@cuda.jit(device=True)
def make_S1(span, thread, cells_S1, cells_q, n_b, n_d, cells_Kt, skew_Kt, shift_Kt, mask_Kt, slots):
    t2 = 1.0 / f8(n_b)
    for i_l in range(slots):
        t1 = 0.0
        for i_d in range(n_d):
            t3 = 0.0
            for i_b in range(n_b):
                t3 = t3 + f8(cells_Kt[cell(i_l * span + thread, n_b * n_d, (i_b) * n_d + i_d + skew_Kt, shift_Kt, mask_Kt)])
            t4 = t3 * t2
            t5 = f8(cells_q[i_d]) * t4
            t1 = t1 + t5
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, slots, n_v, cells_Vt, n_b, skew_Vt, shift_Vt, mask_Vt):
    for i_l in range(slots):
        for i_v in range(n_v):
            t1 = 0.0
            for i_b in range(n_b):
                t1 = t1 + f8(cells_Vt[cell(i_l * span + thread, n_b * n_v, (i_b) * n_v + i_v + skew_Vt, shift_Vt, mask_Vt)])
            cells_S2[(i_v) * slots * span + i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def rebase_s1(into, n_b, n_d, pos, pos_new, s1, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_d in range(n_d):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t2 = pos[i_t__1] == pos_new[i_t]
                    t3 = s1[((i_t__1) * n_b + i_b) * n_d + i_d] if t2 else f8(0)
                    t1 = t1 + t3
                into[((i_t) * n_b + i_b) * n_d + i_d] = t1


@cuda.jit(device=True)
def rebase_s5(into, n_b, n_v, pos, pos_new, s5, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_v in range(n_v):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t2 = pos[i_t__1] == pos_new[i_t]
                    t3 = s5[((i_t__1) * n_b + i_b) * n_v + i_v] if t2 else f8(0)
                    t1 = t1 + t3
                into[((i_t) * n_b + i_b) * n_v + i_v] = t1


@cuda.jit(device=True)
def rebase_s6(into, m, m_new, s6, n_v):
    t1 = m if math.isfinite(m) else 0.0
    t2 = m_new if math.isfinite(m_new) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    for i_v in range(n_v):
        t5 = 0.0 if s6[i_v] == 0.0 else t4 * s6[i_v]
        into[i_v] = t5


@cuda.jit(device=True)
def rebase_s4(m, m_new, s4):
    t1 = m if math.isfinite(m) else 0.0
    t2 = m_new if math.isfinite(m_new) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = 0.0 if s4 == 0.0 else t4 * s4
    return t5


@cuda.jit(device=True)
def fold(seen_old, m_old, s4_old, slots, first, span, thread, length, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, cells_S1, pos_value, begin, n_t__1, s6, cells_Kt, skew_Kt, shift_Kt, mask_Kt, cells_Vt, skew_Vt, shift_Vt, mask_Vt, cells_S2):
    many = 0
    for slot in range(slots):
        many += sel((first + slot * span + thread < length), 1, 0)
    if many == 0:
        return seen_old, m_old, s4_old
    seen = seen_old + many
    for word in range(n_t):
        pos_old[word] = pos[word]
    for word in range(n_t * n_b * n_d):
        s1_old[word] = s1[word]
    for word in range(n_t * n_b * n_v):
        s5_old[word] = s5[word]
    m = m_old
    m_it = f4(-inf)
    t1 = math.sqrt(f8(n_d))
    t2 = 1.0 / t1
    for i_l in range(slots):
        t3 = cells_S1[i_l * span + thread] * f4(t2)
        m_it = larger(m_it, sel((first + i_l * span + thread < length), t3, f4(-inf)))
    m = larger(m, f8(m_it))
    for i_l in range(slots):
        t4 = cells_S1[i_l * span + thread] * f4(t2)
        if (first + i_l * span + thread < length):
            insert(pos_value, pos, 0, n_t, f8(t4), i8((begin + first + i_l * span + thread)))
    if seen_old > 0:
        rebase_s1(s1, n_b, n_d, pos_old, pos, s1_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s5(s5, n_b, n_v, pos_old, pos, s5_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s6(s6, m_old, m, s6, n_v)
    s4 = (rebase_s4(m_old, m, s4_old) if seen_old > 0 else s4_old)
    s4_it = f4(0.0)
    t6 = m if math.isfinite(m) else 0.0
    for i_l in range(slots):
        t5 = f4(t2) * cells_S1[i_l * span + thread]
        t7 = t5 - f4(t6)
        t8 = math.exp(t7)
        s4_it = s4_it + sel((first + i_l * span + thread < length), t8, f4(0.0))
    s4 = s4 + f8(s4_it)
    for i_l in range(slots):
        for i_t in range(n_t):
            t9 = i8((begin + first + i_l * span + thread)) == pos[i_t]
            for i_b in range(n_b):
                for i_d in range(n_d):
                    t10 = f8(cells_Kt[cell(i_l * span + thread, n_b * n_d, (i_b) * n_d + i_d + skew_Kt, shift_Kt, mask_Kt)]) if t9 else f8(0)
                    s1[((i_t) * n_b + i_b) * n_d + i_d] = s1[((i_t) * n_b + i_b) * n_d + i_d] + sel((first + i_l * span + thread < length), t10, 0.0)
    for i_l in range(slots):
        for i_t in range(n_t):
            t11 = i8((begin + first + i_l * span + thread)) == pos[i_t]
            for i_b in range(n_b):
                for i_v in range(n_v):
                    t12 = f8(cells_Vt[cell(i_l * span + thread, n_b * n_v, (i_b) * n_v + i_v + skew_Vt, shift_Vt, mask_Vt)]) if t11 else f8(0)
                    s5[((i_t) * n_b + i_b) * n_v + i_v] = s5[((i_t) * n_b + i_b) * n_v + i_v] + sel((first + i_l * span + thread < length), t12, 0.0)
    for i_l in range(slots):
        t13 = f4(t2) * cells_S1[i_l * span + thread]
        t14 = t13 - f4(t6)
        t15 = math.exp(t14)
        for i_v in range(n_v):
            t16 = t15 * cells_S2[(i_v) * slots * span + i_l * span + thread]
            s6[i_v] = s6[i_v] + sel((first + i_l * span + thread < length), f8(t16), 0.0)
    return seen, m, s4


@cuda.jit(device=True)
def combine(seen_old, m_old, s4_old, width, n_t, pos_old, pos, n_b, n_d, s1_old, s1, n_v, s5_old, s5, pos_value, n_t__1, s6):
    seen = seen_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            seen += cuda.shfl_xor_sync(0xFFFFFFFF, seen, by)
    for word in range(n_t):
        pos_old[word] = pos[word]
    for word in range(n_t * n_b * n_d):
        s1_old[word] = s1[word]
    for word in range(n_t * n_b * n_v):
        s5_old[word] = s5[word]
    m = m_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            m = larger(m, cuda.shfl_xor_sync(0xFFFFFFFF, m, by))
    for word in range(1):
        join_lists(pos_value, pos, word * n_t, n_t, width)
    if seen_old > 0:
        rebase_s1(s1, n_b, n_d, pos_old, pos, s1_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s5(s5, n_b, n_v, pos_old, pos, s5_old, n_t__1, n_t)
    if seen_old > 0:
        rebase_s6(s6, m_old, m, s6, n_v)
    s4 = rebase_s4(m_old, m, s4_old) if seen_old > 0 else 0.0
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s4 = s4 + cuda.shfl_xor_sync(0xFFFFFFFF, s4, by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_t * n_b * n_d):
                s1[word] = s1[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s1[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_t * n_b * n_v):
                s5[word] = s5[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s5[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_v):
                s6[word] = s6[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s6[word], by)
    return seen, m, s4


@cuda.jit(device=True)
def settle_s1(into, n_b, n_d, pos, n_t__1, s1, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t2 = pos[i_t__1] == pos[i_t]
            t3 = 1.0 if t2 else f8(0)
            t1 = t1 + t3
        t4 = t1 != t1
        for i_b in range(n_b):
            for i_d in range(n_d):
                t5 = nan if t4 else s1[((i_t) * n_b + i_b) * n_d + i_d]
                into[((i_t) * n_b + i_b) * n_d + i_d] = t5


@cuda.jit(device=True)
def settle_s5(into, n_b, n_v, pos, n_t__1, s5, n_t):
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t2 = pos[i_t__1] == pos[i_t]
            t3 = 1.0 if t2 else f8(0)
            t1 = t1 + t3
        t4 = t1 != t1
        for i_b in range(n_b):
            for i_v in range(n_v):
                t5 = nan if t4 else s5[((i_t) * n_b + i_b) * n_v + i_v]
                into[((i_t) * n_b + i_b) * n_v + i_v] = t5


@cuda.jit(device=True)
def settle_s6(into, m, s6, n_v):
    t1 = m
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 * 1.0
    t5 = t4 != t4
    t6 = m - m
    t7 = t6 == 0.0
    t8 = m if t7 else f8(0)
    t9 = t8 - m
    t10 = math.exp(t9)
    for i_v in range(n_v):
        t11 = t10 * s6[i_v]
        t12 = t11 if t5 else s6[i_v]
        into[i_v] = t12


@cuda.jit(device=True)
def settle_s4(m, s4):
    t1 = m
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 * 1.0
    t5 = t4 != t4
    t6 = m - m
    t7 = t6 == 0.0
    t8 = m if t7 else f8(0)
    t9 = t8 - m
    t10 = math.exp(t9)
    t11 = t10 * s4
    t12 = t11 if t5 else s4
    return t12


@cuda.jit(device=True)
def value_s(into, n_b, n_d, pos, s1, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_d in range(n_d):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t2 = pos[i_t__1] == pos[i_t]
                    t3 = s1[((i_t__1) * n_b + i_b) * n_d + i_d] if t2 else f8(0)
                    t1 = t1 + t3
                into[((i_t) * n_b + i_b) * n_d + i_d] = t1


@cuda.jit(device=True)
def value_s2(into, n_b, n_v, pos, s5, n_t__1, n_t):
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_v in range(n_v):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t2 = pos[i_t__1] == pos[i_t]
                    t3 = s5[((i_t__1) * n_b + i_b) * n_v + i_v] if t2 else f8(0)
                    t1 = t1 + t3
                into[((i_t) * n_b + i_b) * n_v + i_v] = t1


@cuda.jit(device=True)
def output_0(into, n_d, cells_q, s, n_b, n_t, s2, n_v):
    t1 = 0.0
    t3 = math.sqrt(f8(n_d))
    t4 = 1.0 / t3
    t8 = (-inf)
    for i_t in range(n_t):
        t9 = (-inf)
        for i_b in range(n_b):
            t10 = 0.0
            for i_d in range(n_d):
                t11 = f8(cells_q[i_d]) * s[((i_t) * n_b + i_b) * n_d + i_d]
                t10 = t10 + t11
            t12 = t10 * t4
            t9 = larger(t9, t12)
        t8 = larger(t8, t9)
    for i_t in range(n_t):
        t2 = 0.0
        for i_b in range(n_b):
            t5 = 0.0
            for i_d in range(n_d):
                t6 = f8(cells_q[i_d]) * s[((i_t) * n_b + i_b) * n_d + i_d]
                t5 = t5 + t6
            t7 = t5 * t4
            t13 = t7 - t8
            t14 = math.exp(t13)
            t2 = t2 + t14
        t1 = t1 + t2
    t15 = 1.0 / t1
    for i_v in range(n_v):
        t16 = 0.0
        for i_t in range(n_t):
            t17 = 0.0
            for i_b in range(n_b):
                t18 = 0.0
                for i_d in range(n_d):
                    t19 = f8(cells_q[i_d]) * s[((i_t) * n_b + i_b) * n_d + i_d]
                    t18 = t18 + t19
                t20 = t18 * t4
                t21 = t20 - t8
                t22 = math.exp(t21)
                t23 = t22 * s2[((i_t) * n_b + i_b) * n_v + i_v]
                t17 = t17 + t23
            t16 = t16 + t17
        t24 = t16 * t15
        into[i_v] = f4(t24)


@cuda.jit(device=True)
def value_s3(into, n_b, s6, n_v):
    t1 = 1.0 / f8(n_b)
    for i_v in range(n_v):
        t2 = t1 * s6[i_v]
        into[i_v] = t2


@cuda.jit(device=True)
def output_1(into, s4, s3, n_v):
    t1 = 1.0 / s4
    for i_v in range(n_v):
        t2 = s3[i_v] * t1
        into[i_v] = f4(t2)


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
        lane, warp = thread % 32, thread // 32 % warps
        item, part = i8(cuda.blockIdx.x), i8(0)
        if splits:
            item, part = item // parts, item % parts
        if alone:
            item, thread = item * ROWS + thread // 32, lane
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
        seen, m, s4 = i8(0), (-inf), 0.0
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
        first = 0
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
            seen = sel(there, part_seen[place], i8(0))
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
        shared_seen = cuda.shared.array(32, i8)
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
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
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
            if thread == 0:
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
HELD = [(np.int64, ()), (np.float64, ()), (np.float64, ()), (np.int64, ('t',)), (np.float64, ('t',)), (np.float64, ('t', 'b', 'd')), (np.float64, ('t', 'b', 'v')), (np.float64, ('v',))]
KERNELS = {}


def described(array):
    """Shape and dtype of an array of NumPy's, CuPy's or torch's; it must be contiguous."""
    there = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if there is None:
        raise TypeError(f"{type(array).__name__} is no array; give one of NumPy, CuPy or torch")
    shape, dtype, strides = tuple(there["shape"]), np.dtype(there["typestr"]), there.get("strides")
    whole = tuple(dtype.itemsize * math.prod(shape[n + 1:]) for n in range(len(shape)))
    if strides is not None and tuple(strides) != whole:
        raise ValueError(f"an array of shape {shape} is not contiguous; make a contiguous copy of it")
    return shape, dtype


def sizes_of(arrays):
    """The length of every axis and the batch's shape; each array has all batch axes or none."""
    sizes, leading = {}, ()
    for name, array in arrays.items():
        (shape, dtype), own = described(array), AXES[name]
        ahead, inner = shape[:len(shape) - len(own)], shape[len(shape) - len(own):] if own else ()
        if len(shape) < len(own):
            raise ValueError(f"{name} has shape {shape}; it needs the axes {own}, after any batch axes")
        for axis, size in zip(own, inner):
            if sizes.setdefault(axis, size) != size or size == 0:
                raise ValueError(f"axis {axis} of {name} has length {size}, elsewhere {sizes[axis]}; lengths must agree and be positive")
            if size >= 2**31:
                raise ValueError(f"axis {axis} of {name} has length {size}; this kernel counts to 2^31: reduce parts of it")
        leading = leading or ahead
        if ahead not in ((), leading):
            raise ValueError(f"the batch axes of {name} are {ahead}, elsewhere {leading}; give an array all of them or none")
        if dtype != DTYPES[name]:
            raise TypeError(f"{name} holds {dtype}, and this kernel was made for {np.dtype(DTYPES[name])}; convert it")
    if 0 in leading:
        raise ValueError(f"the batch axes are {leading}: there is no row; give at least one")
    return sizes, leading


def plan(q, Kt, Vt):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'q': q, 'Kt': Kt, 'Vt': Vt})
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
    parts = max(1, min(256, 1024 // items, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['d'], sizes['b'], sizes['v'], sizes['t']), items * parts, 32 * warps), ((8, 'join', slots, sizes['d'], sizes['b'], sizes['v'], sizes['t']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['d'], sizes['b'], sizes['v'], sizes['t']), blocks, threads)]
    arguments = [
        q,
        np.int64(1 * sizes['d'] * (len(described(q)[0]) > 1)),
        Kt,
        np.int64(1 * sizes['l'] * sizes['b'] * sizes['d'] * (len(described(Kt)[0]) > 3)),
        Vt,
        np.int64(1 * sizes['l'] * sizes['b'] * sizes['v'] * (len(described(Vt)[0]) > 3)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
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
        if chosen not in KERNELS:
            KERNELS[chosen] = make(*chosen)
        KERNELS[chosen][blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)



ALL_AXES = ('d', 'l', 'b', 'v', 't')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return ALL_AXES.index(axis) - len(ALL_AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of ALL_AXES."""
    array, axes = np.asarray(array, np.float64), axes.split()
    batch, order = array.ndim - len(axes), sorted(axes, key=ALL_AXES.index)
    moved = array.transpose(*range(batch), *(batch + axes.index(axis) for axis in order))
    lengths = dict(zip(order, moved.shape[batch:]))
    return moved.reshape(*moved.shape[:batch], *(lengths.get(axis, 1) for axis in ALL_AXES))


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in ALL_AXES])


REDUCTIONS = {"sum": (np.sum, 0), "prod": (np.prod, 1), "max": (np.max, -np.inf), "min": (np.min, np.inf), "any": (np.any, False),
              "all": (np.all, True), "fmax": (np.fmax.reduce, -np.inf), "fmin": (np.fmin.reduce, np.inf),
              "argmax": (np.argmax, -np.inf), "argmin": (np.argmin, np.inf)}


def reduced(monoid, body, axis, where=None):
    """⊕ over an axis, which keeps a dimension of length 1; elements outside the mask do not take part."""
    function, nothing = REDUCTIONS[monoid]
    masked = body if where is None else np.where(where, body, nothing)
    result = function(masked, axis=along(axis), keepdims=True)
    if where is None or not monoid.startswith("arg"):
        return result
    return np.where(np.any(np.broadcast_to(where, masked.shape), axis=along(axis), keepdims=True), result, -1)


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    value = value if np.ndim(value) else np.full((1,) * len(ALL_AXES), value)
    axes, batch = axes.split(), value.ndim - len(ALL_AXES)
    full = np.broadcast_to(value, value.shape[:batch] + tuple(lengths[axis] if axis in axes else 1 for axis in ALL_AXES))
    kept = sorted(axes, key=ALL_AXES.index)
    full = full.reshape(value.shape[:batch] + tuple(lengths[axis] for axis in kept))
    return full.transpose(*range(batch), *(batch + kept.index(axis) for axis in axes))


def drawn(rng, kind, shape, length):
    """Numbers of a kind: normal, positive (about 1), unit (inside 0 … 1), whole (below `length`) or bits."""
    if kind in ("whole", "bits"):
        return rng.integers(0, length if kind == "whole" else 2, shape)
    return rng.standard_normal(shape) if kind == "normal" else rng.uniform(*((0.5, 2.0) if kind == "positive" else (0.01, 0.99)), shape)


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


def passed_over(function, definition, cases, limit):
    """Run every case (a name, arrays, scalars), print how far the kernel is from the definition and how long both take."""
    agreed = True
    for name, arrays, scalars in cases:
        with np.errstate(all="ignore"):
            start = time.perf_counter()
            wanted = definition(**arrays, **scalars)
        between = time.perf_counter()
        first = function(**arrays, **scalars)
        again = time.perf_counter()
        got = function(**arrays, **scalars)
        end = time.perf_counter()
        error = distance(got, wanted)
        well = error <= limit and distance(first, got) == 0
        agreed = agreed and well
        print(f"{name}: error {error:.1e} of the largest value ({'agrees' if well else 'DIFFERS'}, limit {limit:.0e}); "
              f"{1000 * (end - again):.2f} ms, definition {1000 * (between - start):.2f} ms, first call {again - between:.2f} s")
    return agreed


def definition(q, Kt, Vt):
    """attn_vsa_two_stage as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    Kt = spread(Kt, 'l b d')
    Vt = spread(Vt, 'l b v')
    lengths = {"d": q.shape[-5], "l": Kt.shape[-4], "b": Kt.shape[-3], "v": Vt.shape[-2], "t": 2}
    t1 = np.sqrt(lengths["d"])
    t2 = reduced("sum", q * (reduced("sum", Kt, "b") / lengths["b"]), "d") / t1
    t3 = positions("l", lengths["l"]) == largest(t2, "l", 2, "t")
    t4 = reduced("sum", q * reduced("sum", np.where(t3, Kt, 0), "l"), "d") / t1
    t5 = np.exp(t4 - reduced("max", reduced("max", t4, "b"), "t"))
    t6 = np.exp(t2 - reduced("max", t2, "l"))
    return (taken_out(reduced("sum", reduced("sum", t5 * reduced("sum", np.where(t3, Vt, 0), "l"), "b"), "t") / reduced("sum", reduced("sum", t5, "b"), "t"), 'v', lengths), taken_out(reduced("sum", t6 * (reduced("sum", Vt, "b") / lengths["b"]), "l") / reduced("sum", t6, "l"), 'v', lengths),)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(q, Kt, Vt):
    """`launch` with the axes as the operator has them."""
    outputs = launch(q, Kt, Vt)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], ('v',), ('v',)), turned(outputs[1], ('v',), ('v',))


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'q': 'normal', 'Kt': 'normal', 'Vt': 'normal'}, {}, []
    for length in (31, 1000, 8191, 100000):
        sizes, rng = {"d": 3, "b": 5, "v": 6, "t": 7, "l": length}, np.random.default_rng(length)
        axes, names = {'q': ('d',), 'Kt': ('l', 'b', 'd'), 'Vt': ('l', 'b', 'v')}, {'q': 'q', 'Kt': 'Kt', 'Vt': 'Vt'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"attn_vsa_two_stage, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
