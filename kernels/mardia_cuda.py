"""mardia: one pass over l, 15 words of state per row, commutative merge.

Skewness Σ_ij ((x_i − μ)ᵀS⁻¹(x_j − μ))³/N² and kurtosis mean ((x − μ)ᵀS⁻¹(x − μ))² of points of the plane.

With whitened coordinates a and b the first is (mean a³)² + 3 (mean a²b)² + 3 (mean ab²)² + (mean b³)².

The operator
    mardia(X[l, plane]):
        d1 = sum(where(index(plane) == 0, X, 0), plane)
        t1 = d1 - sum(d1, l) / size(l)
        t2 = sum(t1 * t1, l) / size(l)
        t3 = t1 / sqrt(t2)
        d2 = sum(where(index(plane) == 1, X, 0), plane)
        t4 = d2 - sum(d2, l) / size(l)
        t5 = sum(t1 * t4, l) / size(l)
        t6 = (t4 - t1 * t5 / t2) / sqrt(sum(t4 * t4, l) / size(l) - t5 * t5 / t2)
        return (sum(t3 ** 3, l) / size(l)) ** 2 + 3.0 * (sum(t3 ** 2 * t6, l) / size(l)) ** 2 + 3.0 * (sum(t3 * t6 ** 2, l) / size(l)) ** 2 + (sum(t6 ** 3, l) / size(l)) ** 2, sum((t3 * t3 + t6 * t6) ** 2, l) / size(l)

One more element (a prime marks the new value)
    x1   = Σ_plane (X[l,plane] if plane = 0 else 0)
    x2   = Σ_plane (X[l,plane] if plane = 1 else 0)
    s'   = s + x1
    N'   = N + 1
    p1'  = s'/N'
    δ1   = p1 − p1'
    s2'  = s2 + δ1²·N + (x1 − p1')²
    s1'  = s1 + 3·δ1·s2 + δ1³·N + (x1 − p1')³
    s4'  = s4 + x2
    p3'  = s4'/N'
    δ2   = p3 − p3'
    s5'  = s5 + δ1·δ2·N + (x1 − p1')·(x2 − p3')
    s6'  = s6 + δ2²·N + (x2 − p3')²
    s11' = s11 + 2·δ1·s5 + δ2·s2 + δ1²·δ2·N + (x1 − p1')²·(x2 − p3')
    s12' = s12 + 2·δ2·s5 + δ1·s6 + δ1·δ2²·N + (x1 − p1')·(x2 − p3')²
    s13' = s13 + 3·δ2·s6 + δ2³·N + (x2 − p3')³
    s14' = s14 + 4·δ1·s1 + 6·δ1²·s2 + δ1⁴·N + (x1 − p1')⁴
    s15' = s15 + 2·δ1·s12 + 2·δ2·s11 + 4·δ1·δ2·s5 + δ1²·s6 + δ2²·s2 + δ1²·δ2²·N + (x1 − p1')²·(x2 − p3')²
    s16' = s16 + 3·δ1·s11 + δ2·s1 + 3·δ1·δ2·s2 + 3·δ1²·s5 + δ1³·δ2·N + (x1 − p1')³·(x2 − p3')
    s17' = s17 + 4·δ2·s13 + 6·δ2²·s6 + δ2⁴·N + (x2 − p3')⁴
    s18' = s18 + 3·δ2·s12 + 3·δ2²·s5 + δ1·s13 + 3·δ1·δ2·s6 + δ1·δ2³·N + (x1 − p1')·(x2 − p3')³

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s2'  = s2_a + δ1_a²·N_a + s2_b + δ1_b²·N_b
    s1'  = s1_a + 3·δ1_a·s2_a + δ1_a³·N_a + s1_b + 3·δ1_b·s2_b + δ1_b³·N_b
    s4'  = s4_a + s4_b
    p3_a = s4_a/N_a
    p3_b = s4_b/N_b
    p3'  = s4'/N'
    δ2_a = p3_a − p3'
    δ2_b = p3_b − p3'
    s5'  = s5_a + δ1_a·δ2_a·N_a + s5_b + δ1_b·δ2_b·N_b
    s6'  = s6_a + δ2_a²·N_a + s6_b + δ2_b²·N_b
    s11' = s11_a + 2·δ1_a·s5_a + δ2_a·s2_a + δ1_a²·δ2_a·N_a + s11_b + 2·δ1_b·s5_b + δ2_b·s2_b + δ1_b²·δ2_b·N_b
    s12' = s12_a + 2·δ2_a·s5_a + δ1_a·s6_a + δ1_a·δ2_a²·N_a + s12_b + 2·δ2_b·s5_b + δ1_b·s6_b + δ1_b·δ2_b²·N_b
    s13' = s13_a + 3·δ2_a·s6_a + δ2_a³·N_a + s13_b + 3·δ2_b·s6_b + δ2_b³·N_b
    s14' = s14_a + 4·δ1_a·s1_a + 6·δ1_a²·s2_a + δ1_a⁴·N_a + s14_b + 4·δ1_b·s1_b + 6·δ1_b²·s2_b + δ1_b⁴·N_b
    s15' = s15_a + 2·δ1_a·s12_a + 2·δ2_a·s11_a + 4·δ1_a·δ2_a·s5_a + δ1_a²·s6_a + δ2_a²·s2_a + δ1_a²·δ2_a²·N_a + s15_b + 2·δ1_b·s12_b + 2·δ2_b·s11_b + 4·δ1_b·δ2_b·s5_b + δ1_b²·s6_b + δ2_b²·s2_b + δ1_b²·δ2_b²·N_b
    s16' = s16_a + 3·δ1_a·s11_a + δ2_a·s1_a + 3·δ1_a·δ2_a·s2_a + 3·δ1_a²·s5_a + δ1_a³·δ2_a·N_a + s16_b + 3·δ1_b·s11_b + δ2_b·s1_b + 3·δ1_b·δ2_b·s2_b + 3·δ1_b²·s5_b + δ1_b³·δ2_b·N_b
    s17' = s17_a + 4·δ2_a·s13_a + 6·δ2_a²·s6_a + δ2_a⁴·N_a + s17_b + 4·δ2_b·s13_b + 6·δ2_b²·s6_b + δ2_b⁴·N_b
    s18' = s18_a + 3·δ2_a·s12_a + 3·δ2_a²·s5_a + δ1_a·s13_a + 3·δ1_a·δ2_a·s6_a + δ1_a·δ2_a³·N_a + s18_b + 3·δ2_b·s12_b + 3·δ2_b²·s5_b + δ1_b·s13_b + 3·δ1_b·δ2_b·s6_b + δ1_b·δ2_b³·N_b

Dangers
    s2/N_l divides and may be 0: the result is then what IEEE division gives
    p2 divides and may be 0: the result is then what IEEE division gives
    p6 divides and may be 0: the result is then what IEEE division gives
    p5 divides and may be 0: the result is then what IEEE division gives
    s7 = s11/(p2²·p6) − p4·s1/(p2²·p5·p6) is a difference of sums: it cancels where they are large against it
    s8 = s12/(p2·p6²) − 2·p4·s11/(p2·p5·p6²) + p4²·s1/(p2·p5²·p6²) is a difference of sums: it cancels where they are large against it
    s9 = s13/p6³ − 3·p4·s12/(p5·p6³) + 3·p4²·s11/(p5²·p6³) − p4³·s1/(p5³·p6³) is a difference of sums: it cancels where they are large against it
    s10 = s14·(1/p2⁴ + 2·p4²/(p2²·p5²·p6²) + p4⁴/(p5⁴·p6⁴)) + s15·(2/(p2²·p6²) + 6·p4²/(p5²·p6⁴)) + s16·(−4·p4/(p2²·p5·p6²) − 4·p4³/(p5³·p6⁴)) + s17/p6⁴ − 4·p4·s18/(p5·p6⁴) is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 534ad7948368e6f4db25bef9c4a8bc0e43b7c3b1d207a4dcc4ee396b9d6e1405
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python mardia_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_X, n_plane, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_plane in range(n_plane):
            t2 = i_plane == 0
            t3 = cells_X[cell(i_l * span + thread, n_plane, i_plane + skew_X, shift_X, mask_X)] if t2 else f4(0)
            t1 = t1 + f8(t3)
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, cells_X, n_plane, skew_X, shift_X, mask_X, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_plane in range(n_plane):
            t2 = i_plane == 1
            t3 = cells_X[cell(i_l * span + thread, n_plane, i_plane + skew_X, shift_X, mask_X)] if t2 else f4(0)
            t1 = t1 + f8(t3)
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def value_p1(s, N):
    return s / f8(N)


@cuda.jit(device=True)
def value_p3(s4, N):
    return s4 / f8(N)


@cuda.jit(device=True)
def rebase_s2(s2, p1, p1_new, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s2 + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s1(s1, p1, p1_new, s2, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s1 + (0.0 if s2 == 0.0 else 3.0 * t3 * s2) + (0.0 if f8(N) == 0.0 else t3 * t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s5(s5, p1, p1_new, p3, p3_new, N):
    t6 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t7 = ((p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)) * t6
    return s5 + (0.0 if f8(N) == 0.0 else t7 * f8(N))


@cuda.jit(device=True)
def rebase_s6(s6, p3, p3_new, N):
    t3 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    return s6 + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s11(s11, p1, p1_new, s5, p3, p3_new, s2, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t9 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t14 = 0.0 if f8(N) == 0.0 else t3 * t3 * t9 * f8(N)
    return s11 + (0.0 if s5 == 0.0 else 2.0 * t3 * s5) + (0.0 if s2 == 0.0 else t9 * s2) + t14


@cuda.jit(device=True)
def rebase_s12(s12, p3, p3_new, s5, p1, p1_new, s6, N):
    t3 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t9 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t14 = 0.0 if f8(N) == 0.0 else t9 * t3 * t3 * f8(N)
    return s12 + (0.0 if s5 == 0.0 else 2.0 * t3 * s5) + (0.0 if s6 == 0.0 else t9 * s6) + t14


@cuda.jit(device=True)
def rebase_s13(s13, p3, p3_new, s6, N):
    t3 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    return s13 + (0.0 if s6 == 0.0 else 3.0 * t3 * s6) + (0.0 if f8(N) == 0.0 else t3 * t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s14(s14, p1, p1_new, s1, s2, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t7 = t3 * t3
    t13 = 0.0 if f8(N) == 0.0 else t7 * t3 * t3 * f8(N)
    return s14 + (0.0 if s1 == 0.0 else 4.0 * t3 * s1) + (0.0 if s2 == 0.0 else 6.0 * t7 * s2) + t13


@cuda.jit(device=True)
def rebase_s15(s15, p1, p1_new, s12, p3, p3_new, s11, s5, s6, s2, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t9 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t15 = 0.0 if s5 == 0.0 else 4.0 * (t3 * t9) * s5
    t17 = t3 * t3
    t18 = 0.0 if s6 == 0.0 else t17 * s6
    t21 = 0.0 if s2 == 0.0 else t9 * t9 * s2
    t22 = s15 + (0.0 if s12 == 0.0 else 2.0 * t3 * s12) + (0.0 if s11 == 0.0 else 2.0 * t9 * s11) + t15 + t18 + t21
    return t22 + (0.0 if f8(N) == 0.0 else t17 * t9 * t9 * f8(N))


@cuda.jit(device=True)
def rebase_s16(s16, p1, p1_new, s11, p3, p3_new, s1, s2, s5, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t9 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t14 = 0.0 if s2 == 0.0 else 3.0 * (t3 * t9) * s2
    t16 = t3 * t3
    t18 = 0.0 if s5 == 0.0 else 3.0 * t16 * s5
    t22 = 0.0 if f8(N) == 0.0 else t16 * t3 * t9 * f8(N)
    return s16 + (0.0 if s11 == 0.0 else 3.0 * t3 * s11) + (0.0 if s1 == 0.0 else t9 * s1) + t14 + t18 + t22


@cuda.jit(device=True)
def rebase_s17(s17, p3, p3_new, s13, s6, N):
    t3 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t7 = t3 * t3
    t13 = 0.0 if f8(N) == 0.0 else t7 * t3 * t3 * f8(N)
    return s17 + (0.0 if s13 == 0.0 else 4.0 * t3 * s13) + (0.0 if s6 == 0.0 else 6.0 * t7 * s6) + t13


@cuda.jit(device=True)
def rebase_s18(s18, p3, p3_new, s12, s5, p1, p1_new, s13, s6, N):
    t3 = (p3 if math.isfinite(p3) else 0.0) - (p3_new if math.isfinite(p3_new) else 0.0)
    t13 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t14 = 0.0 if s13 == 0.0 else t13 * s13
    t16 = t13 * t3
    t18 = 0.0 if s6 == 0.0 else 3.0 * t16 * s6
    t22 = 0.0 if f8(N) == 0.0 else t16 * t3 * t3 * f8(N)
    t23 = s18 + (0.0 if s12 == 0.0 else 3.0 * t3 * s12) + (0.0 if s5 == 0.0 else 3.0 * (t3 * t3) * s5) + t14 + t18 + t22
    return t23


@cuda.jit(device=True)
def fold(seen_old, s_old, N_old, s4_old, s2_old, s1_old, s5_old, s6_old, s11_old, s12_old, s13_old, s14_old, s15_old, s16_old, s17_old, s18_old, slots, first, span, thread, length, cells_S1, cells_S2):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, s_old, N_old, s4_old, s2_old, s1_old, s5_old, s6_old, s11_old, s12_old, s13_old, s14_old, s15_old, s16_old, s17_old, s18_old
    seen = i4(seen_old + many)
    p1_old = value_p1(s_old, N_old)
    p3_old = value_p3(s4_old, N_old)
    s = s_old
    s_it = f4(0.0)
    N = N_old + 1 * many
    s4 = s4_old
    s4_it = f4(0.0)
    for i_l in range(slots):
        s_it = s_it + sel(i4(first + i_l * span + thread) < i4(length), cells_S1[i_l * span + thread], f4(0.0))
        s4_it = s4_it + sel(i4(first + i_l * span + thread) < i4(length), cells_S2[i_l * span + thread], f4(0.0))
    s = s + f8(s_it)
    s4 = s4 + f8(s4_it)
    p1 = value_p1(s, N)
    p3 = value_p3(s4, N)
    s2 = rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else s2_old
    s2_it = f4(0.0)
    s1 = rebase_s1(s1_old, p1_old, p1, s2_old, N_old) if seen_old > 0 else s1_old
    s1_it = f4(0.0)
    s5 = rebase_s5(s5_old, p1_old, p1, p3_old, p3, N_old) if seen_old > 0 else s5_old
    s5_it = f4(0.0)
    s6 = rebase_s6(s6_old, p3_old, p3, N_old) if seen_old > 0 else s6_old
    s6_it = f4(0.0)
    s11 = rebase_s11(s11_old, p1_old, p1, s5_old, p3_old, p3, s2_old, N_old) if seen_old > 0 else s11_old
    s11_it = f4(0.0)
    s12 = rebase_s12(s12_old, p3_old, p3, s5_old, p1_old, p1, s6_old, N_old) if seen_old > 0 else s12_old
    s12_it = f4(0.0)
    s13 = rebase_s13(s13_old, p3_old, p3, s6_old, N_old) if seen_old > 0 else s13_old
    s13_it = f4(0.0)
    s14 = rebase_s14(s14_old, p1_old, p1, s1_old, s2_old, N_old) if seen_old > 0 else s14_old
    s14_it = f4(0.0)
    s15 = rebase_s15(s15_old, p1_old, p1, s12_old, p3_old, p3, s11_old, s5_old, s6_old, s2_old, N_old) if seen_old > 0 else s15_old
    s15_it = f4(0.0)
    s16 = rebase_s16(s16_old, p1_old, p1, s11_old, p3_old, p3, s1_old, s2_old, s5_old, N_old) if seen_old > 0 else s16_old
    s16_it = f4(0.0)
    s17 = rebase_s17(s17_old, p3_old, p3, s13_old, s6_old, N_old) if seen_old > 0 else s17_old
    s17_it = f4(0.0)
    s18 = rebase_s18(s18_old, p3_old, p3, s12_old, s5_old, p1_old, p1, s13_old, s6_old, N_old) if seen_old > 0 else s18_old
    s18_it = f4(0.0)
    t1 = p1 if math.isfinite(p1) else 0.0
    t5 = p3 if math.isfinite(p3) else 0.0
    for i_l in range(slots):
        t2 = cells_S1[i_l * span + thread] - f4(t1)
        t3 = t2 * t2
        s2_it = s2_it + sel(i4(first + i_l * span + thread) < i4(length), t3, f4(0.0))
        t4 = t3 * t2
        s1_it = s1_it + sel(i4(first + i_l * span + thread) < i4(length), t4, f4(0.0))
        t6 = cells_S2[i_l * span + thread] - f4(t5)
        t7 = t2 * t6
        s5_it = s5_it + sel(i4(first + i_l * span + thread) < i4(length), t7, f4(0.0))
        t8 = t6 * t6
        s6_it = s6_it + sel(i4(first + i_l * span + thread) < i4(length), t8, f4(0.0))
        t9 = t3 * t6
        s11_it = s11_it + sel(i4(first + i_l * span + thread) < i4(length), t9, f4(0.0))
        t10 = t7 * t6
        s12_it = s12_it + sel(i4(first + i_l * span + thread) < i4(length), t10, f4(0.0))
        t11 = t8 * t6
        s13_it = s13_it + sel(i4(first + i_l * span + thread) < i4(length), t11, f4(0.0))
        s14_it = s14_it + sel(i4(first + i_l * span + thread) < i4(length), t4 * t2, f4(0.0))
        s15_it = s15_it + sel(i4(first + i_l * span + thread) < i4(length), t9 * t6, f4(0.0))
        s16_it = s16_it + sel(i4(first + i_l * span + thread) < i4(length), t4 * t6, f4(0.0))
        s17_it = s17_it + sel(i4(first + i_l * span + thread) < i4(length), t11 * t6, f4(0.0))
        s18_it = s18_it + sel(i4(first + i_l * span + thread) < i4(length), t10 * t6, f4(0.0))
    s2 = s2 + f8(s2_it)
    s1 = s1 + f8(s1_it)
    s5 = s5 + f8(s5_it)
    s6 = s6 + f8(s6_it)
    s11 = s11 + f8(s11_it)
    s12 = s12 + f8(s12_it)
    s13 = s13 + f8(s13_it)
    s14 = s14 + f8(s14_it)
    s15 = s15 + f8(s15_it)
    s16 = s16 + f8(s16_it)
    s17 = s17 + f8(s17_it)
    s18 = s18 + f8(s18_it)
    return seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18


@cuda.jit(device=True)
def combine(seen_old, s_old, N_old, s4_old, s2_old, s1_old, s5_old, s6_old, s11_old, s12_old, s13_old, s14_old, s15_old, s16_old, s17_old, s18_old, width):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(s_old, N_old)
    p3_old = value_p3(s4_old, N_old)
    s = sum_over(s_old, width)
    N = sum_over(N_old, width)
    s4 = sum_over(s4_old, width)
    p1 = value_p1(s, N)
    p3 = value_p3(s4, N)
    s2 = sum_over(rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else 0.0, width)
    s1 = sum_over(rebase_s1(s1_old, p1_old, p1, s2_old, N_old) if seen_old > 0 else 0.0, width)
    s5 = sum_over(rebase_s5(s5_old, p1_old, p1, p3_old, p3, N_old) if seen_old > 0 else 0.0, width)
    s6 = sum_over(rebase_s6(s6_old, p3_old, p3, N_old) if seen_old > 0 else 0.0, width)
    s11 = sum_over(rebase_s11(s11_old, p1_old, p1, s5_old, p3_old, p3, s2_old, N_old) if seen_old > 0 else 0.0, width)
    s12 = sum_over(rebase_s12(s12_old, p3_old, p3, s5_old, p1_old, p1, s6_old, N_old) if seen_old > 0 else 0.0, width)
    s13 = sum_over(rebase_s13(s13_old, p3_old, p3, s6_old, N_old) if seen_old > 0 else 0.0, width)
    s14 = sum_over(rebase_s14(s14_old, p1_old, p1, s1_old, s2_old, N_old) if seen_old > 0 else 0.0, width)
    s15 = sum_over(rebase_s15(s15_old, p1_old, p1, s12_old, p3_old, p3, s11_old, s5_old, s6_old, s2_old, N_old) if seen_old > 0 else 0.0, width)
    s16 = sum_over(rebase_s16(s16_old, p1_old, p1, s11_old, p3_old, p3, s1_old, s2_old, s5_old, N_old) if seen_old > 0 else 0.0, width)
    s17 = sum_over(rebase_s17(s17_old, p3_old, p3, s13_old, s6_old, N_old) if seen_old > 0 else 0.0, width)
    s18 = sum_over(rebase_s18(s18_old, p3_old, p3, s12_old, s5_old, p1_old, p1, s13_old, s6_old, N_old) if seen_old > 0 else 0.0, width)
    return seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18


@cuda.jit(device=True)
def settle_s2(p1, s2, N):
    t1 = p1
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p1 if p1 - p1 == 0.0 else f8(0)) - p1
    t14 = s2 + t11 * t11 * f8(N)
    return (t14 if s2 - s2 == 0.0 else nan) if t4 != t4 else s2


@cuda.jit(device=True)
def settle_s1(p1, s1):
    t1 = p1
    t2 = t1 - t1
    t7 = 1.0 + 3.0 * t2 + t2 * t2 * t2
    return nan if t7 != t7 else s1


@cuda.jit(device=True)
def settle_s5(p1, p3, s5, N):
    t1 = p1
    t3 = p3
    t6 = 1.0 + (t1 - t1) * (t3 - t3)
    t20 = s5 + ((p1 if p1 - p1 == 0.0 else f8(0)) - p1) * ((p3 if p3 - p3 == 0.0 else f8(0)) - p3) * f8(N)
    return (t20 if s5 - s5 == 0.0 else nan) if t6 != t6 else s5


@cuda.jit(device=True)
def settle_s6(p3, s6, N):
    t1 = p3
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p3 if p3 - p3 == 0.0 else f8(0)) - p3
    t14 = s6 + t11 * t11 * f8(N)
    return (t14 if s6 - s6 == 0.0 else nan) if t4 != t4 else s6


@cuda.jit(device=True)
def settle_s11(p1, p3, s11):
    t1 = p1
    t2 = t1 - t1
    t5 = p3
    t6 = t5 - t5
    t10 = 1.0 + 2.0 * t2 + t6 + t2 * t2 * t6
    return nan if t10 != t10 else s11


@cuda.jit(device=True)
def settle_s12(p3, p1, s12):
    t1 = p3
    t2 = t1 - t1
    t5 = p1
    t6 = t5 - t5
    t10 = 1.0 + 2.0 * t2 + t6 + t6 * t2 * t2
    return nan if t10 != t10 else s12


@cuda.jit(device=True)
def settle_s13(p3, s13):
    t1 = p3
    t2 = t1 - t1
    t7 = 1.0 + 3.0 * t2 + t2 * t2 * t2
    return nan if t7 != t7 else s13


@cuda.jit(device=True)
def settle_s14(p1, s14):
    t1 = p1
    t2 = t1 - t1
    t5 = t2 * t2
    t10 = 1.0 + 4.0 * t2 + 6.0 * t5 + t5 * t2 * t2
    return nan if t10 != t10 else s14


@cuda.jit(device=True)
def settle_s15(p1, p3, s15):
    t1 = p1
    t2 = t1 - t1
    t5 = p3
    t6 = t5 - t5
    t12 = t2 * t2
    t18 = 1.0 + 2.0 * t2 + 2.0 * t6 + 4.0 * (t2 * t6) + t12 + t6 * t6 + t12 * t6 * t6
    return nan if t18 != t18 else s15


@cuda.jit(device=True)
def settle_s16(p1, p3, s16):
    t1 = p1
    t2 = t1 - t1
    t5 = p3
    t6 = t5 - t5
    t11 = t2 * t2
    t16 = 1.0 + 3.0 * t2 + t6 + 3.0 * (t2 * t6) + 3.0 * t11 + t11 * t2 * t6
    return nan if t16 != t16 else s16


@cuda.jit(device=True)
def settle_s17(p3, s17):
    t1 = p3
    t2 = t1 - t1
    t5 = t2 * t2
    t10 = 1.0 + 4.0 * t2 + 6.0 * t5 + t5 * t2 * t2
    return nan if t10 != t10 else s17


@cuda.jit(device=True)
def settle_s18(p3, p1, s18):
    t1 = p3
    t2 = t1 - t1
    t8 = p1
    t9 = t8 - t8
    t11 = t9 * t2
    t16 = 1.0 + 3.0 * t2 + 3.0 * (t2 * t2) + t9 + 3.0 * t11 + t11 * t2 * t2
    return nan if t16 != t16 else s18


@cuda.jit(device=True)
def value_p2(s2, N):
    return math.sqrt(s2 / f8(N))


@cuda.jit(device=True)
def value_s3(p2, s1):
    t1 = 1.0 / p2
    return t1 * t1 * t1 * s1


@cuda.jit(device=True)
def value_p4(s5, N):
    return s5 / f8(N)


@cuda.jit(device=True)
def value_p5(s2, N):
    return s2 / f8(N)


@cuda.jit(device=True)
def value_p6(s6, N, s5, s2):
    t2 = s5 / f8(N)
    return math.sqrt(s6 / f8(N) - t2 * t2 / (s2 / f8(N)))


@cuda.jit(device=True)
def value_s7(p2, p6, s11, p4, p5, s1):
    t1 = 1.0 / p2
    t3 = 1.0 / p6
    return t1 * t1 * t3 * s11 + -(p4 * t1 * t1 * (1.0 / p5) * t3) * s1


@cuda.jit(device=True)
def value_s8(p2, p6, s12, p4, p5, s11, s1):
    t1 = 1.0 / p2
    t2 = 1.0 / p6
    t7 = 1.0 / p5
    return t1 * t2 * t2 * s12 + -2.0 * (p4 * t1 * t7 * t2 * t2) * s11 + p4 * p4 * t1 * t7 * t7 * t2 * t2 * s1


@cuda.jit(device=True)
def value_s9(p6, s13, p4, p5, s12, s11, s1):
    t1 = 1.0 / p6
    t5 = 1.0 / p5
    t13 = p4 * p4
    t30 = -(t13 * p4 * t5 * t5 * t5 * t1 * t1 * t1) * s1
    return t1 * t1 * t1 * s13 + -3.0 * (p4 * t5 * t1 * t1 * t1) * s12 + 3.0 * (t13 * t5 * t5 * t1 * t1 * t1) * s11 + t30


@cuda.jit(device=True)
def output_0(s3, n_l, s7, s8, s9):
    t1 = s3 / f8(n_l)
    t3 = s7 / f8(n_l)
    t7 = s8 / f8(n_l)
    t11 = s9 / f8(n_l)
    return f4(t1 * t1 + 3.0 * (t3 * t3) + 3.0 * (t7 * t7) + t11 * t11)


@cuda.jit(device=True)
def value_s10(p2, p4, p5, p6, s14, s15, s16, s17, s18):
    t1 = 1.0 / p2
    t2 = t1 * t1
    t5 = p4 * p4
    t8 = 1.0 / p5
    t11 = 1.0 / p6
    t16 = t5 * p4
    t25 = t16 * p4 * t8 * t8 * t8 * t8 * t11 * t11 * t11 * t11
    t39 = (2.0 * (t2 * t11 * t11) + 6.0 * (t5 * t8 * t8 * t11 * t11 * t11 * t11)) * s15
    t56 = (-4.0 * (p4 * t1 * t1 * t8 * t11 * t11) + -4.0 * (t16 * t8 * t8 * t8 * t11 * t11 * t11 * t11)) * s16
    t61 = t11 * t11 * t11 * t11 * s17
    t69 = -4.0 * (p4 * t8 * t11 * t11 * t11 * t11) * s18
    return larger((t2 * t1 * t1 + 2.0 * (t5 * t1 * t1 * t8 * t8 * t11 * t11) + t25) * s14 + t39 + t56 + t61 + t69, 0.0)


@cuda.jit(device=True)
def output_1(s10, n_l):
    return f4(s10 / f8(n_l))


@cuda.jit(device=True)
def finish(seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18):
    p1 = value_p1(s, N)
    s2 = settle_s2(p1, s2, N)
    s1 = settle_s1(p1, s1)
    p3 = value_p3(s4, N)
    s5 = settle_s5(p1, p3, s5, N)
    s6 = settle_s6(p3, s6, N)
    s11 = settle_s11(p1, p3, s11)
    s12 = settle_s12(p3, p1, s12)
    s13 = settle_s13(p3, s13)
    s14 = settle_s14(p1, s14)
    s15 = settle_s15(p1, p3, s15)
    s16 = settle_s16(p1, p3, s16)
    s17 = settle_s17(p3, s17)
    s18 = settle_s18(p3, p1, s18)
    p2 = value_p2(s2, N)
    s3 = value_s3(p2, s1)
    p4 = value_p4(s5, N)
    p5 = value_p5(s2, N)
    p6 = value_p6(s6, N, s5, s2)
    s7 = value_s7(p2, p6, s11, p4, p5, s1)
    s8 = value_s8(p2, p6, s12, p4, p5, s11, s1)
    s9 = value_s9(p6, s13, p4, p5, s12, s11, s1)
    s10 = value_s10(p2, p4, p5, p6, s14, s15, s16, s17, s18)
    return output_0(s3, seen, s7, s8, s9), output_1(s10, seen)


@cache
def make(warps, stage, slots, n_plane):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_X = n_plane
    shift_X, mask_X = turns_of(words_X, 32)
    steps_X = 0 if joins else -(-(slots * span * words_X + 32 // SIZE) // span)
    room_X = max(steps_X * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(X, s_X, n_l, items, parts, piece, part_seen, part_s, part_N, part_s4, part_s2, part_s1, part_s5, part_s6, part_s11, part_s12, part_s13, part_s14, part_s15, part_s16, part_s17, part_s18, out_0, out_1):
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
        seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18 = i4(0), 0.0, i8(0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_X + (begin + first) * words_X * SIZE
            skew_X = lead // SIZE % (32 // SIZE)
            stage_real(cells_X, lead - skew_X * SIZE, skew_X, skew_X + min(slots * span, length - first) * words_X, steps_X, shift_X, mask_X, thread, span)
            cuda.syncthreads()
            make_S1(span, thread, cells_S1, cells_X, n_plane, skew_X, shift_X, mask_X, slots)
            make_S2(span, thread, cells_S2, cells_X, n_plane, skew_X, shift_X, mask_X, slots)
            seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18 = fold(seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, slots, first, span, thread, length, cells_S1, cells_S2)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            s = sel(there, part_s[place], 0.0)
            N = sel(there, part_N[place], i8(0))
            s4 = sel(there, part_s4[place], 0.0)
            s2 = sel(there, part_s2[place], 0.0)
            s1 = sel(there, part_s1[place], 0.0)
            s5 = sel(there, part_s5[place], 0.0)
            s6 = sel(there, part_s6[place], 0.0)
            s11 = sel(there, part_s11[place], 0.0)
            s12 = sel(there, part_s12[place], 0.0)
            s13 = sel(there, part_s13[place], 0.0)
            s14 = sel(there, part_s14[place], 0.0)
            s15 = sel(there, part_s15[place], 0.0)
            s16 = sel(there, part_s16[place], 0.0)
            s17 = sel(there, part_s17[place], 0.0)
            s18 = sel(there, part_s18[place], 0.0)
        seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18 = combine(seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(32, f8)
        shared_N = cuda.shared.array(32, i8)
        shared_s4 = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        shared_s5 = cuda.shared.array(32, f8)
        shared_s6 = cuda.shared.array(32, f8)
        shared_s11 = cuda.shared.array(32, f8)
        shared_s12 = cuda.shared.array(32, f8)
        shared_s13 = cuda.shared.array(32, f8)
        shared_s14 = cuda.shared.array(32, f8)
        shared_s15 = cuda.shared.array(32, f8)
        shared_s16 = cuda.shared.array(32, f8)
        shared_s17 = cuda.shared.array(32, f8)
        shared_s18 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s[warp] = s
                shared_N[warp] = N
                shared_s4[warp] = s4
                shared_s2[warp] = s2
                shared_s1[warp] = s1
                shared_s5[warp] = s5
                shared_s6[warp] = s6
                shared_s11[warp] = s11
                shared_s12[warp] = s12
                shared_s13[warp] = s13
                shared_s14[warp] = s14
                shared_s15[warp] = s15
                shared_s16[warp] = s16
                shared_s17[warp] = s17
                shared_s18[warp] = s18
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                N = sel(lane < warps, shared_N[lane % warps], i8(0))
                s4 = sel(lane < warps, shared_s4[lane % warps], 0.0)
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                s5 = sel(lane < warps, shared_s5[lane % warps], 0.0)
                s6 = sel(lane < warps, shared_s6[lane % warps], 0.0)
                s11 = sel(lane < warps, shared_s11[lane % warps], 0.0)
                s12 = sel(lane < warps, shared_s12[lane % warps], 0.0)
                s13 = sel(lane < warps, shared_s13[lane % warps], 0.0)
                s14 = sel(lane < warps, shared_s14[lane % warps], 0.0)
                s15 = sel(lane < warps, shared_s15[lane % warps], 0.0)
                s16 = sel(lane < warps, shared_s16[lane % warps], 0.0)
                s17 = sel(lane < warps, shared_s17[lane % warps], 0.0)
                s18 = sel(lane < warps, shared_s18[lane % warps], 0.0)
                seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18 = combine(seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, warps)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_s[item * parts + part] = s
                part_N[item * parts + part] = N
                part_s4[item * parts + part] = s4
                part_s2[item * parts + part] = s2
                part_s1[item * parts + part] = s1
                part_s5[item * parts + part] = s5
                part_s6[item * parts + part] = s6
                part_s11[item * parts + part] = s11
                part_s12[item * parts + part] = s12
                part_s13[item * parts + part] = s13
                part_s14[item * parts + part] = s14
                part_s15[item * parts + part] = s15
                part_s16[item * parts + part] = s16
                part_s17[item * parts + part] = s17
                part_s18[item * parts + part] = s18
        elif warp == 0 or alone:
            result_0, result_1 = finish(seen, s, N, s4, s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'X': ('l', 'plane')}
DTYPES = {'X': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.int64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['plane'] + 4 * 1 + 4 * 1
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['plane']), blocks * parts, threads), ((8, 'join', slots, sizes['plane']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['plane']), blocks, threads)]
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


ALL_AXES = ('l', 'plane')


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


def definition(X):
    """mardia as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l plane')
    lengths = {"l": X.shape[-2], "plane": X.shape[-1]}
    d1 = np.sum(np.where(positions("plane", lengths["plane"]) == 0, X, 0), along("plane"), keepdims=True)
    t1 = d1 - np.sum(d1, along("l"), keepdims=True) / lengths["l"]
    t2 = np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"]
    t3 = t1 / np.sqrt(t2)
    d2 = np.sum(np.where(positions("plane", lengths["plane"]) == 1, X, 0), along("plane"), keepdims=True)
    t4 = d2 - np.sum(d2, along("l"), keepdims=True) / lengths["l"]
    t5 = np.sum(t1 * t4, along("l"), keepdims=True) / lengths["l"]
    t6 = (t4 - t1 * t5 / t2) / np.sqrt(np.sum(t4 * t4, along("l"), keepdims=True) / lengths["l"] - t5 * t5 / t2)
    return (taken_out((np.sum(t3 ** 3, along("l"), keepdims=True) / lengths["l"]) ** 2 + 3.0 * (np.sum(t3 ** 2 * t6, along("l"), keepdims=True) / lengths["l"]) ** 2 + 3.0 * (np.sum(t3 * t6 ** 2, along("l"), keepdims=True) / lengths["l"]) ** 2 + (np.sum(t6 ** 3, along("l"), keepdims=True) / lengths["l"]) ** 2, '', lengths), taken_out(np.sum((t3 * t3 + t6 * t6) ** 2, along("l"), keepdims=True) / lengths["l"], '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"X": rng.standard_normal((3, length, 4)).astype(DTYPES['X'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"mardia, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
