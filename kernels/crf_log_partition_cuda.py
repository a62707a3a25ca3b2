"""crf_log_partition: one pass over l, 6 words of state per row, ordered merge.

α_l(j) = E_l(j) + log Σ_i e^{α_{l−1}(i) + A_ij} over two labels, from π + E_1: log Σ e^{α_L}, all in logarithms.

The operator
    crf_log_partition(E[l, s], A[s, t], pi[s]):
        t1 = index(s) == 0
        t2 = index(l) == 0
        t3 = index(t) == 0
        d1 = sum(where(t1, A, 0), s)
        t4 = index(s) == 1
        d2 = sum(where(t4, A, 0), s)
        t5 = index(t) == 1
        return logadd(scan(lambda a, b: (sum(where(t1, E, 0), s) + where(t2, sum(where(t1, pi, 0), s), logadd(a + sum(where(t3, d1, 0), t), b + sum(where(t3, d2, 0), t))), sum(where(t4, E, 0), s) + where(t2, sum(where(t4, pi, 0), s), logadd(a + sum(where(t5, d1, 0), t), b + sum(where(t5, d2, 0), t)))), l, (0.0, 0.0), place=0), scan(lambda a, b: (sum(where(t1, E, 0), s) + where(t2, sum(where(t1, pi, 0), s), logadd(a + sum(where(t3, d1, 0), t), b + sum(where(t3, d2, 0), t))), sum(where(t4, E, 0), s) + where(t2, sum(where(t4, pi, 0), s), logadd(a + sum(where(t5, d1, 0), t), b + sum(where(t5, d2, 0), t)))), l, (0.0, 0.0), place=1))

One more element (a prime marks the new value)
    h1' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)) + h1, (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + h5)
    h3' = logadd(logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)) + h3, Σ_s (E[l,s] if s = 0 else 0) + Σ_s (pi[s] if s = 0 else 0) if l = 0 else −∞), (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + h6)
    h4' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)) + h4, (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + h7)
    h5' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)) + h1, (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + h5)
    h6' = logadd(logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)) + h3, Σ_s (E[l,s] if s = 1 else 0) + Σ_s (pi[s] if s = 1 else 0) if l = 0 else −∞), (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + h6)
    h7' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)) + h4, (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + h7)

Two states a and b
    h1' = logadd(h1_b + h1_a, h4_b + h5_a)
    h3' = logadd(logadd(h1_b + h3_a, h3_b), h4_b + h6_a)
    h4' = logadd(h1_b + h4_a, h4_b + h7_a)
    h5' = logadd(h5_b + h1_a, h7_b + h5_a)
    h6' = logadd(logadd(h5_b + h3_a, h6_b), h7_b + h6_a)
    h7' = logadd(h5_b + h4_a, h7_b + h7_a)

Laws:
Certificate: sha256 add7ca28ef01d19f91087f0666eee45242f74779b5e2142760d37d858eef88db
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python crf_log_partition_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_E, n_s, skew_E, shift_E, mask_E, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_s in range(n_s):
            t3 = cells_E[cell(thread * slots + i_l, n_s, i_s + skew_E, shift_E, mask_E)]
            t1 = t1 + f8(t3 if i_s == 0 else f4(0))
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, cells_E, n_s, skew_E, shift_E, mask_E, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_s in range(n_s):
            t3 = cells_E[cell(thread * slots + i_l, n_s, i_s + skew_E, shift_E, mask_E)]
            t1 = t1 + f8(t3 if i_s == 1 else f4(0))
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def fold(seen_old, h1_old, h3_old, h4_old, h5_old, h6_old, h7_old, slots, first, thread, length, begin, span, cells_S1, n_t, cells_A, n_s, cells_pi, cells_S2):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, h1_old, h3_old, h4_old, h5_old, h6_old, h7_old
    seen = i4(seen_old + many)
    h1, h3, h4, h5, h6, h7 = h1_old, h3_old, h4_old, h5_old, h6_old, h7_old
    begins = sel(seen_old == 0, i4(1), i4(0))
    t1 = i4(min(max(0, -1), 2147483647))
    t3 = 0.0
    for i_t in range(n_t):
        t5 = 0.0
        for i_s in range(n_s):
            t5 = t5 + f8(cells_A[i_s * n_t + i_t] if i_s == 0 else f4(0))
        t3 = t3 + (t5 if i_t == 0 else f8(0))
    t12 = 0.0
    for i_s in range(n_s):
        t12 = t12 + f8(cells_pi[i_s] if i_s == 0 else f4(0))
    t18 = 0.0
    for i_t in range(n_t):
        t20 = 0.0
        for i_s in range(n_s):
            t20 = t20 + f8(cells_A[i_s * n_t + i_t] if i_s == 1 else f4(0))
        t18 = t18 + (t20 if i_t == 0 else f8(0))
    t27 = 0.0
    for i_t in range(n_t):
        t29 = 0.0
        for i_s in range(n_s):
            t29 = t29 + f8(cells_A[i_s * n_t + i_t] if i_s == 0 else f4(0))
        t27 = t27 + (t29 if i_t == 1 else f8(0))
    t36 = 0.0
    for i_s in range(n_s):
        t36 = t36 + f8(cells_pi[i_s] if i_s == 1 else f4(0))
    t42 = 0.0
    for i_t in range(n_t):
        t44 = 0.0
        for i_s in range(n_s):
            t44 = t44 + f8(cells_A[i_s * n_t + i_t] if i_s == 1 else f4(0))
        t42 = t42 + (t44 if i_t == 1 else f8(0))
    t51 = i4(min(max(0, -1), 2147483647))
    if begins > 0:
        i_l = i4(0)
        t2 = i4(begin + first + thread * slots + i_l) == t1
        t10 = f8(cells_S1[i_l * span + thread]) + t3
        t16 = f8(cells_S1[i_l * span + thread]) + t12
        t25 = f8(cells_S1[i_l * span + thread]) + t18
        t34 = f8(cells_S2[i_l * span + thread]) + t27
        t35 = -inf if t2 else t34
        t40 = f8(cells_S2[i_l * span + thread]) + t36
        t41 = t40 if t2 else -inf
        t49 = f8(cells_S2[i_l * span + thread]) + t42
        t50 = -inf if t2 else t49
        h1, h3, h4, h5, h6, h7 = -inf if t2 else t10, t16 if t2 else -inf, -inf if t2 else t25, t35, t41, t50
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t52 = i4(begin + first + thread * slots + i_l) == t51
            t53 = f8(cells_S1[i_l * span + thread]) + t3
            t54 = -inf if t52 else t53
            t55 = t54 + h1
            t56 = f8(cells_S1[i_l * span + thread]) + t18
            t57 = -inf if t52 else t56
            t58 = t57 + h5
            t59 = t55 + 0.6931471805599453 if t55 == t58 else larger(t55, t58) + math.log1p(math.exp(-abs(t55 - t58)))
            t60 = t54 + h3
            t61 = f8(cells_S1[i_l * span + thread]) + t12
            t62 = t61 if t52 else -inf
            t63 = t60 + 0.6931471805599453 if t60 == t62 else larger(t60, t62) + math.log1p(math.exp(-abs(t60 - t62)))
            t64 = t57 + h6
            t65 = t63 + 0.6931471805599453 if t63 == t64 else larger(t63, t64) + math.log1p(math.exp(-abs(t63 - t64)))
            t66 = t54 + h4
            t67 = t57 + h7
            t68 = t66 + 0.6931471805599453 if t66 == t67 else larger(t66, t67) + math.log1p(math.exp(-abs(t66 - t67)))
            t69 = f8(cells_S2[i_l * span + thread]) + t27
            t70 = -inf if t52 else t69
            t71 = t70 + h1
            t72 = f8(cells_S2[i_l * span + thread]) + t42
            t73 = -inf if t52 else t72
            t74 = t73 + h5
            t75 = t71 + 0.6931471805599453 if t71 == t74 else larger(t71, t74) + math.log1p(math.exp(-abs(t71 - t74)))
            t76 = t70 + h3
            t77 = f8(cells_S2[i_l * span + thread]) + t36
            t78 = t77 if t52 else -inf
            t79 = t76 + 0.6931471805599453 if t76 == t78 else larger(t76, t78) + math.log1p(math.exp(-abs(t76 - t78)))
            t80 = t73 + h6
            t81 = t79 + 0.6931471805599453 if t79 == t80 else larger(t79, t80) + math.log1p(math.exp(-abs(t79 - t80)))
            t82 = t70 + h4
            t83 = t73 + h7
            t84 = t82 + 0.6931471805599453 if t82 == t83 else larger(t82, t83) + math.log1p(math.exp(-abs(t82 - t83)))
            h1, h3, h4, h5, h6, h7 = t59, t65, t68, t75, t81, t84
    return seen, h1, h3, h4, h5, h6, h7


@cuda.jit(device=True)
def merge(h1_b, h1_a, h4_b, h5_a, h3_a, h3_b, h6_a, h4_a, h7_a, h5_b, h7_b, h6_b):
    t1 = h1_b + h1_a
    t2 = h4_b + h5_a
    t3 = t1 + 0.6931471805599453 if t1 == t2 else larger(t1, t2) + math.log1p(math.exp(-abs(t1 - t2)))
    t4 = h1_b + h3_a
    t5 = t4 + 0.6931471805599453 if t4 == h3_b else larger(t4, h3_b) + math.log1p(math.exp(-abs(t4 - h3_b)))
    t6 = h4_b + h6_a
    t7 = t5 + 0.6931471805599453 if t5 == t6 else larger(t5, t6) + math.log1p(math.exp(-abs(t5 - t6)))
    t8 = h1_b + h4_a
    t9 = h4_b + h7_a
    t10 = t8 + 0.6931471805599453 if t8 == t9 else larger(t8, t9) + math.log1p(math.exp(-abs(t8 - t9)))
    t11 = h5_b + h1_a
    t12 = h7_b + h5_a
    t13 = t11 + 0.6931471805599453 if t11 == t12 else larger(t11, t12) + math.log1p(math.exp(-abs(t11 - t12)))
    t14 = h5_b + h3_a
    t15 = t14 + 0.6931471805599453 if t14 == h6_b else larger(t14, h6_b) + math.log1p(math.exp(-abs(t14 - h6_b)))
    t16 = h7_b + h6_a
    t17 = t15 + 0.6931471805599453 if t15 == t16 else larger(t15, t16) + math.log1p(math.exp(-abs(t15 - t16)))
    t18 = h5_b + h4_a
    t19 = h7_b + h7_a
    t20 = t18 + 0.6931471805599453 if t18 == t19 else larger(t18, t19) + math.log1p(math.exp(-abs(t18 - t19)))
    return t3, t7, t10, t13, t17, t20


@cuda.jit(device=True)
def combine(seen_old, h1_old, h3_old, h4_old, h5_old, h6_old, h7_old, width, lane):
    seen = sum_over(seen_old, width)
    many, h1, h3, h4, h5, h6, h7 = seen_old, h1_old, h3_old, h4_old, h5_old, h6_old, h7_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            h1_b = cuda.shfl_xor_sync(4294967295, h1, by)
            h3_b = cuda.shfl_xor_sync(4294967295, h3, by)
            h4_b = cuda.shfl_xor_sync(4294967295, h4, by)
            h5_b = cuda.shfl_xor_sync(4294967295, h5, by)
            h6_b = cuda.shfl_xor_sync(4294967295, h6, by)
            h7_b = cuda.shfl_xor_sync(4294967295, h7, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            h1_a, h1_b = sel(ahead, h1, h1_b), sel(ahead, h1_b, h1)
            h3_a, h3_b = sel(ahead, h3, h3_b), sel(ahead, h3_b, h3)
            h4_a, h4_b = sel(ahead, h4, h4_b), sel(ahead, h4_b, h4)
            h5_a, h5_b = sel(ahead, h5, h5_b), sel(ahead, h5_b, h5)
            h6_a, h6_b = sel(ahead, h6, h6_b), sel(ahead, h6_b, h6)
            h7_a, h7_b = sel(ahead, h7, h7_b), sel(ahead, h7_b, h7)
            if many_a > 0 and many_b > 0:
                h1, h3, h4, h5, h6, h7 = merge(h1_b, h1_a, h4_b, h5_a, h3_a, h3_b, h6_a, h4_a, h7_a, h5_b, h7_b, h6_b)
            else:
                h1, h3, h4, h5, h6, h7 = sel(many_a > 0, h1_a, h1_b), sel(many_a > 0, h3_a, h3_b), sel(many_a > 0, h4_a, h4_b), sel(many_a > 0, h5_a, h5_b), sel(many_a > 0, h6_a, h6_b), sel(many_a > 0, h7_a, h7_b)
            many = i4(many_a + many_b)
    return seen, h1, h3, h4, h5, h6, h7


@cuda.jit(device=True)
def value_h(h1, h3, h4):
    t1 = h1 + 0.6931471805599453 if h1 == h3 else larger(h1, h3) + math.log1p(math.exp(-abs(h1 - h3)))
    return t1 + 0.6931471805599453 if t1 == h4 else larger(t1, h4) + math.log1p(math.exp(-abs(t1 - h4)))


@cuda.jit(device=True)
def value_h2(h5, h6, h7):
    t1 = h5 + 0.6931471805599453 if h5 == h6 else larger(h5, h6) + math.log1p(math.exp(-abs(h5 - h6)))
    return t1 + 0.6931471805599453 if t1 == h7 else larger(t1, h7) + math.log1p(math.exp(-abs(t1 - h7)))


@cuda.jit(device=True)
def output_0(h, h2):
    return f4(h + 0.6931471805599453 if h == h2 else larger(h, h2) + math.log1p(math.exp(-abs(h - h2))))


@cuda.jit(device=True)
def finish(seen, h1, h3, h4, h5, h6, h7):
    h = value_h(h1, h3, h4)
    h2 = value_h2(h5, h6, h7)
    return output_0(h, h2)


@cache
def make(warps, stage, slots, n_s, n_t):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_E = n_s
    shift_E, mask_E = turns_of(slots * words_E, 32)
    steps_E = 0 if joins else -(-(slots * span * words_E + 32 // SIZE) // span)
    room_E = max(steps_E * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1
    words_A = n_s * n_t
    words_pi = n_s

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(E, s_E, A, s_A, pi, s_pi, n_l, items, parts, piece, part_seen, part_h1, part_h3, part_h4, part_h5, part_h6, part_h7, out_0):
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
        o_E = rest * s_E
        p_E = address(E) + o_E * SIZE
        o_A = rest * s_A
        p_A = address(A) + o_A * SIZE
        o_pi = rest * s_pi
        p_pi = address(pi) + o_pi * SIZE
        cells_A = cuda.shared.array(words_A, f4)
        for word in range(thread, words_A, span):
            cells_A[word] = load_one(p_A + word * SIZE, 1)
        cells_pi = cuda.shared.array(words_pi, f4)
        for word in range(thread, words_pi, span):
            cells_pi[word] = load_one(p_pi + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_E = cuda.shared.array(room_E, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        cells_S2 = cuda.shared.array(room_S2, f4)
        seen, h1, h3, h4, h5, h6, h7 = i4(0), 0.0, (-inf), (-inf), (-inf), (-inf), 0.0
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                h1 = sel(there, part_h1[place], 0.0)
                h3 = sel(there, part_h3[place], (-inf))
                h4 = sel(there, part_h4[place], (-inf))
                h5 = sel(there, part_h5[place], (-inf))
                h6 = sel(there, part_h6[place], (-inf))
                h7 = sel(there, part_h7[place], 0.0)
            else:
                cuda.syncthreads()
                lead = p_E + (begin + first) * words_E * SIZE
                skew_E = lead // SIZE % (32 // SIZE)
                stage_real(cells_E, lead - skew_E * SIZE, skew_E, skew_E + min(slots * span, length - first) * words_E, steps_E, shift_E, mask_E, thread, span)
                cuda.syncthreads()
                make_S1(span, thread, cells_S1, cells_E, n_s, skew_E, shift_E, mask_E, slots)
                make_S2(span, thread, cells_S2, cells_E, n_s, skew_E, shift_E, mask_E, slots)
                seen, h1, h3, h4, h5, h6, h7 = fold(seen, h1, h3, h4, h5, h6, h7, slots, first, thread, length, begin, span, cells_S1, n_t, cells_A, n_s, cells_pi, cells_S2)
            seen, h1, h3, h4, h5, h6, h7 = combine(seen, h1, h3, h4, h5, h6, h7, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_h1 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            shared_h4 = cuda.shared.array(32, f8)
            shared_h5 = cuda.shared.array(32, f8)
            shared_h6 = cuda.shared.array(32, f8)
            shared_h7 = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_h1[warp] = h1
                    shared_h3[warp] = h3
                    shared_h4[warp] = h4
                    shared_h5[warp] = h5
                    shared_h6[warp] = h6
                    shared_h7[warp] = h7
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    h1 = sel(lane < warps, shared_h1[lane % warps], 0.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], (-inf))
                    h4 = sel(lane < warps, shared_h4[lane % warps], (-inf))
                    h5 = sel(lane < warps, shared_h5[lane % warps], (-inf))
                    h6 = sel(lane < warps, shared_h6[lane % warps], (-inf))
                    h7 = sel(lane < warps, shared_h7[lane % warps], 0.0)
                    seen, h1, h3, h4, h5, h6, h7 = combine(seen, h1, h3, h4, h5, h6, h7, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            h1 = sel(thread == 0, h1, 0.0)
            h3 = sel(thread == 0, h3, (-inf))
            h4 = sel(thread == 0, h4, (-inf))
            h5 = sel(thread == 0, h5, (-inf))
            h6 = sel(thread == 0, h6, (-inf))
            h7 = sel(thread == 0, h7, 0.0)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_h1[item * parts + part] = h1
                part_h3[item * parts + part] = h3
                part_h4[item * parts + part] = h4
                part_h5[item * parts + part] = h5
                part_h6[item * parts + part] = h6
                part_h7[item * parts + part] = h7
        elif warp == 0 or alone:
            result_0 = finish(seen, h1, h3, h4, h5, h6, h7)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'E': ('l', 's'), 'A': ('s', 't'), 'pi': ('s',)}
DTYPES = {'E': np.float32, 'A': np.float32, 'pi': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(E, A, pi):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'E': E, 'A': A, 'pi': pi}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['s'] + 4 * 1 + 4 * 1
    shapes = [(w, slots) for slots in (32, 16, 8, 4, 2, 1) for w in (8, 4, 2, 1) if 16 * w * slots < length or w == slots == 1]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['s'], sizes['t']), blocks * parts, threads), ((8, 'join', slots, sizes['s'], sizes['t']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['s'], sizes['t']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(E, A, pi, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(E, A, pi)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 's', 't')


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


def definition(E, A, pi):
    """crf_log_partition as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    E = spread(E, 'l s')
    A = spread(A, 's t')
    pi = spread(pi, 's')
    lengths = {"l": E.shape[-3], "s": E.shape[-2], "t": A.shape[-1]}
    t1 = positions("s", lengths["s"]) == 0
    t2 = positions("l", lengths["l"]) == 0
    t3 = positions("t", lengths["t"]) == 0
    d1 = np.sum(np.where(t1, A, 0), along("s"), keepdims=True)
    t4 = positions("s", lengths["s"]) == 1
    d2 = np.sum(np.where(t4, A, 0), along("s"), keepdims=True)
    t5 = positions("t", lengths["t"]) == 1
    return taken_out(np.logaddexp(stepped("l", lengths["l"], 0, "", (0.0, 0.0,), (np.sum(np.where(t1, E, 0), along("s"), keepdims=True), t2, np.sum(np.where(t4, E, 0), along("s"), keepdims=True),), lambda a, b, e1, e2, e3: (e1 + np.where(e2, np.sum(np.where(t1, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t3, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t3, d2, 0), along("t"), keepdims=True))), e3 + np.where(e2, np.sum(np.where(t4, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t5, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t5, d2, 0), along("t"), keepdims=True))),)), stepped("l", lengths["l"], 1, "", (0.0, 0.0,), (np.sum(np.where(t1, E, 0), along("s"), keepdims=True), t2, np.sum(np.where(t4, E, 0), along("s"), keepdims=True),), lambda a, b, e1, e2, e3: (e1 + np.where(e2, np.sum(np.where(t1, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t3, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t3, d2, 0), along("t"), keepdims=True))), e3 + np.where(e2, np.sum(np.where(t4, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t5, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t5, d2, 0), along("t"), keepdims=True))),))), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"E": rng.standard_normal((3, length, 4)).astype(DTYPES['E']),
                  "A": rng.standard_normal((4, 5)).astype(DTYPES['A']),
                  "pi": rng.standard_normal((4,)).astype(DTYPES['pi'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"crf_log_partition, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
