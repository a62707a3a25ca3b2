"""moe_group_limited: one pass over l, 2 words of state per row, commutative merge.

s = σ(X); the 2 groups l whose two best experts e sum highest; of the 4 best experts in them s/Σ s, then l·E + e.

The operator
    moe_group_limited(X[l, e]):
        t1 = index(e) >= 0
        t2 = 0.5 * tanh(0.5 * X) + 0.5
        d1 = argtopk(max(t2, e) + max(where(index(e) == argmax(X, e), 0, t2), e), l, 2, name=b)
        d2 = sum(where(index(l) == d1, X, 0), l)
        t3 = where(t1, d2, -inf)
        d3 = max(t3, e)
        t4 = 0.5 * tanh(0.5 * max(d3, b)) + 0.5
        d4 = argmax(d3, b)
        d5 = argmax(t3, e)
        t5 = t1 & ((index(b) != d4) | (index(e) != d5))
        t6 = where(t5, d2, -inf)
        d6 = max(t6, e)
        t7 = 0.5 * tanh(0.5 * max(d6, b)) + 0.5
        d7 = argmax(d6, b)
        d8 = argmax(t6, e)
        t8 = t5 & ((index(b) != d7) | (index(e) != d8))
        t9 = where(t8, d2, -inf)
        d9 = max(t9, e)
        t10 = 0.5 * tanh(0.5 * max(d9, b)) + 0.5
        d10 = argmax(d9, b)
        d11 = argmax(t9, e)
        t11 = where(t8 & ((index(b) != d10) | (index(e) != d11)), d2, -inf)
        d12 = max(t11, e)
        t12 = 0.5 * tanh(0.5 * max(d12, b)) + 0.5
        t13 = 0 + t4 + t7 + t10 + t12
        t14 = d1 * size(e)
        return t4 / t13, t7 / t13, t10 / t13, t12 / t13, sum(where(index(b) == d4, t14 + d5, 0), b), sum(where(index(b) == d7, t14 + d8, 0), b), sum(where(index(b) == d10, t14 + d11, 0), b), sum(where(index(b) == argmax(d12, b), t14 + argmax(t11, e), 0), b)

One more element (a prime marks the new value)
    pos' = best_positions(2, pos, l)
    s1'  = Σ_b__1 (s1 if pos = pos' else 0) + (X[l,e] if l = pos' else 0)

Two states a and b
    pos' = best_positions(2, pos_a, pos_b)
    s1'  = Σ_b__1 (s1_a if pos_a = pos' else 0) + Σ_b__1 (s1_b if pos_b = pos' else 0)

Dangers
    0.5·tanh(0.5·max_b max_e (s if e ≥ 0 else −∞)) + 0.5 + 0.5·tanh(0.5·max_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) + 0.5 + 0.5·tanh(0.5·max_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) else −∞)) + 0.5 + 0.5·tanh(0.5·max_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) else −∞)) else −∞)) + 0.5 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, reset_among
Certificate: sha256 6a4e473cf83dba3b1a7cac12df5b3b21dcef61314e43f1849244a9756ebae7b7
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python moe_group_limited_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_X, n_e, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = -inf
        for i_e in range(n_e):
            t3 = math.tanh(f8(f4(0.5)) * f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)]))
            t1 = larger(t1, 0.5 * t3 + 0.5)
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, cells_X, n_e, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = -inf
        t2 = -1
        t2_value = -inf
        for i_e in range(n_e):
            if comes_first(f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)]), t2_value, i_e, t2):
                t2, t2_value = i_e, f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)])
        for i_e in range(n_e):
            t5 = math.tanh(f8(f4(0.5)) * f8(cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)]))
            t1 = larger(t1, f8(0) if i_e == t2 else 0.5 * t5 + 0.5)
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def rebase_s1(into, n_e, pos, pos_new, s1, n_b__1, n_b):
    for i_b in range(n_b):
        for i_e in range(n_e):
            t1 = 0.0
            for i_b__1 in range(n_b__1):
                t1 = t1 + (s1[i_b__1 * n_e + i_e] if pos[i_b__1] == pos_new[i_b] else f8(0))
            into[i_b * n_e + i_e] = t1


@cuda.jit(device=True)
def fold(seen_old, slots, first, span, thread, length, n_b, pos_old, pos, n_e, s1_old, s1, cells_S1, cells_S2, pos_value, begin, n_b__1, cells_X, skew_X, shift_X, mask_X):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old
    seen = i4(seen_old + many)
    for word in range(n_b):
        pos_old[word] = pos[word]
    for word in range(n_b * n_e):
        s1_old[word] = s1[word]
    for i_l in range(slots):
        t1 = cells_S1[i_l * span + thread] + cells_S2[i_l * span + thread]
        if i4(first + i_l * span + thread) < i4(length):
            insert(pos_value, pos, 0, n_b, f8(t1), i8(begin + first + i_l * span + thread))
    if seen_old > 0:
        rebase_s1(s1, n_e, pos_old, pos, s1_old, n_b__1, n_b)
    for i_l in range(slots):
        for i_b in range(n_b):
            t3 = i4(begin + first + i_l * span + thread) == i4(min(max(pos[i_b], -1), 2147483647))
            for i_e in range(n_e):
                t4 = cells_X[cell(i_l * span + thread, n_e, i_e + skew_X, shift_X, mask_X)] if t3 else f4(0)
                s1[i_b * n_e + i_e] = s1[i_b * n_e + i_e] + sel(i4(first + i_l * span + thread) < i4(length), f8(t4), 0.0)
    return seen


@cuda.jit(device=True)
def combine(seen_old, width, n_b, pos_old, pos, n_e, s1_old, s1, pos_value, n_b__1):
    seen = sum_over(seen_old, width)
    for word in range(n_b):
        pos_old[word] = pos[word]
    for word in range(n_b * n_e):
        s1_old[word] = s1[word]
    for word in range(1):
        join_lists(pos_value, pos, word * n_b, n_b, width)
    if seen_old > 0:
        rebase_s1(s1, n_e, pos_old, pos, s1_old, n_b__1, n_b)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_b * n_e):
                s1[word] = s1[word] + cuda.shfl_xor_sync(4294967295, s1[word], by)
    return seen


@cuda.jit(device=True)
def settle_s1(into, n_e, pos, n_b__1, s1, n_b):
    for i_b in range(n_b):
        t1 = 0.0
        for i_b__1 in range(n_b__1):
            t1 = t1 + f8(f4(1.0) if pos[i_b__1] == pos[i_b] else f4(0))
        t4 = t1 != t1
        for i_e in range(n_e):
            into[i_b * n_e + i_e] = nan if t4 else s1[i_b * n_e + i_e]


@cuda.jit(device=True)
def value_s(into, n_e, pos, s1, n_b__1, n_b):
    for i_b in range(n_b):
        for i_e in range(n_e):
            t1 = 0.0
            for i_b__1 in range(n_b__1):
                t1 = t1 + (s1[i_b__1 * n_e + i_e] if pos[i_b__1] == pos[i_b] else f8(0))
            into[i_b * n_e + i_e] = t1


@cuda.jit(device=True)
def outputs(s, n_e, n_b, pos):
    t1 = -inf
    for i_b in range(n_b):
        t2 = -inf
        for i_e in range(n_e):
            t2 = larger(t2, s[i_b * n_e + i_e] if i_e >= 0 else -inf)
        t1 = larger(t1, t2)
    t8 = 0.5 * math.tanh(0.5 * t1) + 0.5
    t10 = -inf
    t13 = -1
    t13_value = -inf
    for i_b in range(n_b):
        t14 = -inf
        for i_e in range(n_e):
            t14 = larger(t14, s[i_b * n_e + i_e] if i_e >= 0 else -inf)
        if comes_first(t14, t13_value, i_b, t13):
            t13, t13_value = i_b, t14
    for i_b in range(n_b):
        t11 = -inf
        t17 = i_b != t13
        t18 = -1
        t18_value = -inf
        for i_e in range(n_e):
            t20 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t20, t18_value, i_e, t18):
                t18, t18_value = i_e, t20
        for i_e in range(n_e):
            t11 = larger(t11, s[i_b * n_e + i_e] if (i_e >= 0) & (t17 | (i_e != t18)) else -inf)
        t10 = larger(t10, t11)
    t28 = 0.5 * math.tanh(0.5 * t10) + 0.5
    t30 = -inf
    t40 = -1
    t40_value = -inf
    for i_b in range(n_b):
        t41 = -inf
        t43 = i_b != t13
        t44 = -1
        t44_value = -inf
        for i_e in range(n_e):
            t46 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t46, t44_value, i_e, t44):
                t44, t44_value = i_e, t46
        for i_e in range(n_e):
            t41 = larger(t41, s[i_b * n_e + i_e] if (i_e >= 0) & (t43 | (i_e != t44)) else -inf)
        if comes_first(t41, t40_value, i_b, t40):
            t40, t40_value = i_b, t41
    for i_b in range(n_b):
        t31 = -inf
        t33 = i_b != t13
        t34 = -1
        t34_value = -inf
        for i_e in range(n_e):
            t36 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t36, t34_value, i_e, t34):
                t34, t34_value = i_e, t36
        t51 = i_b != t40
        t52 = -1
        t52_value = -inf
        for i_e in range(n_e):
            t57 = s[i_b * n_e + i_e] if (i_e >= 0) & (t33 | (i_e != t34)) else -inf
            if comes_first(t57, t52_value, i_e, t52):
                t52, t52_value = i_e, t57
        for i_e in range(n_e):
            t31 = larger(t31, s[i_b * n_e + i_e] if (i_e >= 0) & (t33 | (i_e != t34)) & (t51 | (i_e != t52)) else -inf)
        t30 = larger(t30, t31)
    t65 = 0.5 * math.tanh(0.5 * t30) + 0.5
    t67 = -inf
    t87 = -1
    t87_value = -inf
    for i_b in range(n_b):
        t88 = -inf
        t90 = i_b != t13
        t91 = -1
        t91_value = -inf
        for i_e in range(n_e):
            t93 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t93, t91_value, i_e, t91):
                t91, t91_value = i_e, t93
        t97 = i_b != t40
        t98 = -1
        t98_value = -inf
        for i_e in range(n_e):
            t103 = s[i_b * n_e + i_e] if (i_e >= 0) & (t90 | (i_e != t91)) else -inf
            if comes_first(t103, t98_value, i_e, t98):
                t98, t98_value = i_e, t103
        for i_e in range(n_e):
            t88 = larger(t88, s[i_b * n_e + i_e] if (i_e >= 0) & (t90 | (i_e != t91)) & (t97 | (i_e != t98)) else -inf)
        if comes_first(t88, t87_value, i_b, t87):
            t87, t87_value = i_b, t88
    for i_b in range(n_b):
        t68 = -inf
        t70 = i_b != t13
        t71 = -1
        t71_value = -inf
        for i_e in range(n_e):
            t73 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t73, t71_value, i_e, t71):
                t71, t71_value = i_e, t73
        t77 = i_b != t40
        t78 = -1
        t78_value = -inf
        for i_e in range(n_e):
            t83 = s[i_b * n_e + i_e] if (i_e >= 0) & (t70 | (i_e != t71)) else -inf
            if comes_first(t83, t78_value, i_e, t78):
                t78, t78_value = i_e, t83
        t108 = i_b != t87
        t109 = -1
        t109_value = -inf
        for i_e in range(n_e):
            t117 = s[i_b * n_e + i_e] if (i_e >= 0) & (t70 | (i_e != t71)) & (t77 | (i_e != t78)) else -inf
            if comes_first(t117, t109_value, i_e, t109):
                t109, t109_value = i_e, t117
        for i_e in range(n_e):
            t120 = (i_e >= 0) & (t70 | (i_e != t71)) & (t77 | (i_e != t78)) & (t108 | (i_e != t109))
            t68 = larger(t68, s[i_b * n_e + i_e] if t120 else -inf)
        t67 = larger(t67, t68)
    t125 = 0.5 * math.tanh(0.5 * t67) + 0.5
    t126 = 0.0 + t8 + t28 + t65 + t125
    t131 = 0
    for i_b in range(n_b):
        t134 = -1
        t134_value = -inf
        for i_e in range(n_e):
            t136 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t136, t134_value, i_e, t134):
                t134, t134_value = i_e, t136
        t131 = t131 + sel(i_b == t13, pos[i_b] * n_e + t134, 0)
    t139 = 0
    for i_b in range(n_b):
        t142 = -1
        t142_value = -inf
        t144 = i_b != t13
        t145 = -1
        t145_value = -inf
        for i_e in range(n_e):
            t147 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t147, t145_value, i_e, t145):
                t145, t145_value = i_e, t147
        for i_e in range(n_e):
            t151 = s[i_b * n_e + i_e] if (i_e >= 0) & (t144 | (i_e != t145)) else -inf
            if comes_first(t151, t142_value, i_e, t142):
                t142, t142_value = i_e, t151
        t139 = t139 + sel(i_b == t40, pos[i_b] * n_e + t142, 0)
    t154 = 0
    for i_b in range(n_b):
        t157 = -1
        t157_value = -inf
        t159 = i_b != t13
        t160 = -1
        t160_value = -inf
        for i_e in range(n_e):
            t162 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t162, t160_value, i_e, t160):
                t160, t160_value = i_e, t162
        t166 = i_b != t40
        t167 = -1
        t167_value = -inf
        for i_e in range(n_e):
            t172 = s[i_b * n_e + i_e] if (i_e >= 0) & (t159 | (i_e != t160)) else -inf
            if comes_first(t172, t167_value, i_e, t167):
                t167, t167_value = i_e, t172
        for i_e in range(n_e):
            t176 = s[i_b * n_e + i_e] if (i_e >= 0) & (t159 | (i_e != t160)) & (t166 | (i_e != t167)) else -inf
            if comes_first(t176, t157_value, i_e, t157):
                t157, t157_value = i_e, t176
        t154 = t154 + sel(i_b == t87, pos[i_b] * n_e + t157, 0)
    t179 = 0
    t180 = -1
    t180_value = -inf
    for i_b in range(n_b):
        t181 = -inf
        t183 = i_b != t13
        t184 = -1
        t184_value = -inf
        for i_e in range(n_e):
            t186 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t186, t184_value, i_e, t184):
                t184, t184_value = i_e, t186
        t190 = i_b != t40
        t191 = -1
        t191_value = -inf
        for i_e in range(n_e):
            t196 = s[i_b * n_e + i_e] if (i_e >= 0) & (t183 | (i_e != t184)) else -inf
            if comes_first(t196, t191_value, i_e, t191):
                t191, t191_value = i_e, t196
        t200 = i_b != t87
        t201 = -1
        t201_value = -inf
        for i_e in range(n_e):
            t209 = s[i_b * n_e + i_e] if (i_e >= 0) & (t183 | (i_e != t184)) & (t190 | (i_e != t191)) else -inf
            if comes_first(t209, t201_value, i_e, t201):
                t201, t201_value = i_e, t209
        for i_e in range(n_e):
            t212 = (i_e >= 0) & (t183 | (i_e != t184)) & (t190 | (i_e != t191)) & (t200 | (i_e != t201))
            t181 = larger(t181, s[i_b * n_e + i_e] if t212 else -inf)
        if comes_first(t181, t180_value, i_b, t180):
            t180, t180_value = i_b, t181
    for i_b in range(n_b):
        t216 = -1
        t216_value = -inf
        t218 = i_b != t13
        t219 = -1
        t219_value = -inf
        for i_e in range(n_e):
            t221 = s[i_b * n_e + i_e] if i_e >= 0 else -inf
            if comes_first(t221, t219_value, i_e, t219):
                t219, t219_value = i_e, t221
        t225 = i_b != t40
        t226 = -1
        t226_value = -inf
        for i_e in range(n_e):
            t231 = s[i_b * n_e + i_e] if (i_e >= 0) & (t218 | (i_e != t219)) else -inf
            if comes_first(t231, t226_value, i_e, t226):
                t226, t226_value = i_e, t231
        t235 = i_b != t87
        t236 = -1
        t236_value = -inf
        for i_e in range(n_e):
            t244 = s[i_b * n_e + i_e] if (i_e >= 0) & (t218 | (i_e != t219)) & (t225 | (i_e != t226)) else -inf
            if comes_first(t244, t236_value, i_e, t236):
                t236, t236_value = i_e, t244
        for i_e in range(n_e):
            t247 = (i_e >= 0) & (t218 | (i_e != t219)) & (t225 | (i_e != t226)) & (t235 | (i_e != t236))
            t248 = s[i_b * n_e + i_e] if t247 else -inf
            if comes_first(t248, t216_value, i_e, t216):
                t216, t216_value = i_e, t248
        t179 = t179 + sel(i_b == t180, pos[i_b] * n_e + t216, 0)
    return f4(t8 / t126), f4(t28 / t126), f4(t65 / t126), f4(t125 / t126), t131, t139, t154, t179


@cuda.jit(device=True)
def finish(seen, s1, n_e, pos, n_b__1, n_b, s):
    settle_s1(s1, n_e, pos, n_b__1, s1, n_b)
    value_s(s, n_e, pos, s1, n_b__1, n_b)
    result_0, result_1, result_2, result_3, result_4, result_5, result_6, result_7 = outputs(s, n_e, n_b, pos)
    return result_0, result_1, result_2, result_3, result_4, result_5, result_6, result_7


@cache
def make(warps, stage, slots, n_e, n_b):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    n_b__1 = n_b
    words_pos = n_b
    words_pos_value = n_b
    words_s1 = n_b * n_e
    words_s = n_b * n_e
    words_pos_old = n_b
    words_s1_old = n_b * n_e
    room_pos = warps * (words_pos | 1)
    room_pos_value = warps * (words_pos_value | 1)
    room_s1 = warps * (words_s1 | 1)
    words_X = n_e
    shift_X, mask_X = turns_of(words_X, 32)
    steps_X = 0 if joins else -(-(slots * span * words_X + 32 // SIZE) // span)
    room_X = max(steps_X * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(X, s_X, n_l, items, parts, piece, part_seen, part_pos, part_pos_value, part_s1, out_0, out_1, out_2, out_3, out_4, out_5, out_6, out_7):
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
        o_X = rest * s_X
        p_X = address(X) + o_X * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_X = cuda.shared.array(room_X, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        cells_S2 = cuda.shared.array(room_S2, f4)
        pos = cuda.local.array(words_pos, i8)
        pos_value = cuda.local.array(words_pos_value, f8)
        s1 = cuda.local.array(words_s1, f8)
        s = cuda.local.array(words_s, f8)
        pos_old = cuda.local.array(words_pos_old, i8)
        s1_old = cuda.local.array(words_s1_old, f8)
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
            cuda.syncthreads()
            lead = p_X + (begin + first) * words_X * SIZE
            skew_X = lead // SIZE % (32 // SIZE)
            stage_real(cells_X, lead - skew_X * SIZE, skew_X, skew_X + min(slots * span, length - first) * words_X, steps_X, shift_X, mask_X, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_X, n_e, skew_X, shift_X, mask_X, slots)
            make_S2(span, thread, cells_S2, cells_X, n_e, skew_X, shift_X, mask_X, slots)
            seen = fold(seen, slots, first, span, thread, length, n_b, pos_old, pos, n_e, s1_old, s1, cells_S1, cells_S2, pos_value, begin, n_b__1, cells_X, skew_X, shift_X, mask_X)
            first += slots * span
            more = first < length
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
        seen = combine(seen, 32, n_b, pos_old, pos, n_e, s1_old, s1, pos_value, n_b__1)
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
                seen = combine(seen, warps, n_b, pos_old, pos, n_e, s1_old, s1, pos_value, n_b__1)
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
            result_0, result_1, result_2, result_3, result_4, result_5, result_6, result_7 = finish(seen, s1, n_e, pos, n_b__1, n_b, s)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))
                store_one(address(out_2) + (item) * SIZE, f4(result_2))
                store_one(address(out_3) + (item) * SIZE, f4(result_3))
                out_4[item] = result_4
                out_5[item] = result_5
                out_6[item] = result_6
                out_7[item] = result_7

    return kernel


AXES = {'X': ('l', 'e')}
DTYPES = {'X': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32), ((), np.float32), ((), np.float32), ((), np.int64), ((), np.int64), ((), np.int64), ((), np.int64)]
HELD = [(np.int32, ()), (np.int64, ('b',)), (np.float64, ('b',)), (np.float64, ('b', 'e'))]


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


def plan(X):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'X': X}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    sizes['b'] = 2
    if not 1 <= sizes['b'] <= min(length, 32):
        raise ValueError(f"the {sizes['b']} largest of {length}: this kernel finds 1 to 32 of as many or more")
    state = 8 * sizes['b'] + 8 * sizes['b'] + 8 * sizes['b'] * sizes['e']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['e'] + 4 * 1 + 4 * 1
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['e'], sizes['b']), blocks * parts, threads), ((8, 'join', slots, sizes['e'], sizes['b']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['e'], sizes['b']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(X, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(X)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 'e', 'b')


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


def definition(X):
    """moe_group_limited as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l e')
    lengths = {"l": X.shape[-3], "e": X.shape[-2], "b": 2}
    t1 = positions("e", lengths["e"]) >= 0
    t2 = 0.5 * np.tanh(0.5 * X) + 0.5
    d1 = largest(np.max(t2, along("e"), keepdims=True) + np.max(np.where(positions("e", lengths["e"]) == np.argmax(X, along("e"), keepdims=True), 0, t2), along("e"), keepdims=True), "l", 2, "b")
    d2 = np.sum(np.where(positions("l", lengths["l"]) == d1, X, 0), along("l"), keepdims=True)
    t3 = np.where(t1, d2, -np.inf)
    d3 = np.max(t3, along("e"), keepdims=True)
    t4 = 0.5 * np.tanh(0.5 * np.max(d3, along("b"), keepdims=True)) + 0.5
    d4 = np.argmax(d3, along("b"), keepdims=True)
    d5 = np.argmax(t3, along("e"), keepdims=True)
    t5 = np.logical_and(t1, np.logical_or(positions("b", lengths["b"]) != d4, positions("e", lengths["e"]) != d5))
    t6 = np.where(t5, d2, -np.inf)
    d6 = np.max(t6, along("e"), keepdims=True)
    t7 = 0.5 * np.tanh(0.5 * np.max(d6, along("b"), keepdims=True)) + 0.5
    d7 = np.argmax(d6, along("b"), keepdims=True)
    d8 = np.argmax(t6, along("e"), keepdims=True)
    t8 = np.logical_and(t5, np.logical_or(positions("b", lengths["b"]) != d7, positions("e", lengths["e"]) != d8))
    t9 = np.where(t8, d2, -np.inf)
    d9 = np.max(t9, along("e"), keepdims=True)
    t10 = 0.5 * np.tanh(0.5 * np.max(d9, along("b"), keepdims=True)) + 0.5
    d10 = np.argmax(d9, along("b"), keepdims=True)
    d11 = np.argmax(t9, along("e"), keepdims=True)
    t11 = np.where(np.logical_and(t8, np.logical_or(positions("b", lengths["b"]) != d10, positions("e", lengths["e"]) != d11)), d2, -np.inf)
    d12 = np.max(t11, along("e"), keepdims=True)
    t12 = 0.5 * np.tanh(0.5 * np.max(d12, along("b"), keepdims=True)) + 0.5
    t13 = 0 + t4 + t7 + t10 + t12
    t14 = d1 * lengths["e"]
    return (taken_out(t4 / t13, '', lengths), taken_out(t7 / t13, '', lengths), taken_out(t10 / t13, '', lengths), taken_out(t12 / t13, '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == d4, t14 + d5, 0), along("b"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == d7, t14 + d8, 0), along("b"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == d10, t14 + d11, 0), along("b"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == np.argmax(d12, along("b"), keepdims=True), t14 + np.argmax(t11, along("e"), keepdims=True), 0), along("b"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"X": rng.standard_normal((3, length, 4)).astype(DTYPES['X'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"moe_group_limited, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
