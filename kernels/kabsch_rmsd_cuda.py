"""kabsch_rmsd: one pass over l, 6 words of state per row, commutative merge.

RMSD of two centred point sets of the plane after the best rotation, whose angle is atan2(Σ x×y, Σ x·y).

The operator
    kabsch_rmsd(X[l, plane], Y[l, plane]):
        t1 = index(plane) == 0
        t2 = X - sum(X, l) / size(l)
        d1 = sum(where(t1, t2, 0), plane)
        t3 = index(plane) == 1
        t4 = Y - sum(Y, l) / size(l)
        d2 = sum(where(t3, t4, 0), plane)
        d3 = sum(where(t3, t2, 0), plane)
        d4 = sum(where(t1, t4, 0), plane)
        t5 = arctan2(sum(d1 * d2 - d3 * d4, l), sum(d1 * d4 + d3 * d2, l))
        t6 = cos(t5)
        t7 = sin(t5)
        return sqrt(sum((t6 * d1 - t7 * d3 - d4) ** 2 + (t7 * d1 + t6 * d3 - d2) ** 2, l) / size(l))

One more element (a prime marks the new value)
    s'  = s + X[l,plane]
    s2' = s2 + Y[l,plane]
    N'  = N + 1
    p1' = s'/N'
    p2' = s2'/N'
    s1' = s1 + N·(p1 − p1')·(p2 − p2') + (X[l,plane] − p1')·(Y[l,plane__1] − p2')
    s6' = s6 + N·(p1 − p1')·(p1 − p1') + (X[l,plane] − p1')·(X[l,plane__1] − p1')
    s7' = s7 + N·(p2 − p2')·(p2 − p2') + (Y[l,plane] − p2')·(Y[l,plane__1] − p2')

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p2_a = s2_a/N_a
    p1_b = s_b/N_b
    p2_b = s2_b/N_b
    p1'  = s'/N'
    p2'  = s2'/N'
    s1'  = s1_a + N_a·(p1_a − p1')·(p2_a − p2') + s1_b + N_b·(p1_b − p1')·(p2_b − p2')
    s6'  = s6_a + N_a·(p1_a − p1')·(p1_a − p1') + s6_b + N_b·(p1_b − p1')·(p1_b − p1')
    s7'  = s7_a + N_a·(p2_a − p2')·(p2_a − p2') + s7_b + N_b·(p2_b − p2')·(p2_b − p2')

Dangers
    s5 = Σ_plane__2 Σ_plane ((p3²·s6 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((−2·p3·s1 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((p4²·s6 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((2·p4·s1 if plane = 1 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((s7 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((p4²·s6 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((−2·p4·s1 if plane = 0 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((p3²·s6 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((−2·p3·s1 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((s7 if plane = 1 else 0) if plane__2 = 1 else 0) is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 0c3af5b53e77206364c432dc7b43e66e98fb15822098f1c10fcfc8bda2a9e634
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python kabsch_rmsd_cuda.py` checks it on a GPU.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
from functools import cache

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import libdevice, types
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

def to_whole(mode):
    """A float rounded to a whole number, as a float."""
    def typed(context, a):
        def emit(context, builder, signature, args):
            letter, kind = ("f", "f32") if a == types.float32 else ("d", "f64")
            text = "cvt." + mode + "." + kind + "." + kind + " $0, $1;"
            return builder.call(ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type]), text, "=" + letter + "," + letter), args)
        return a(a), emit
    return intrinsic(typed)

rint = to_whole("rni")

@cuda.jit(device=True)
def half_turns(x):
    """An angle in half turns between −1 and 1, as exact as a float32."""
    turns = f8(x) * 0.15915494309189535
    return f4(2 * (turns - rint(turns)))

@cuda.jit(device=True)
def cos(x):
    """Of an angle made small in float64: no x is so large that it takes numbers or tables in memory."""
    return type(x)(libdevice.cospif(half_turns(x)))

@cuda.jit(device=True)
def sin(x):
    """As cos."""
    return type(x)(libdevice.sinpif(half_turns(x)))

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
def value_p1(into, N, s, n_plane):
    t1 = 1.0 / f8(N)
    for i_plane in range(n_plane):
        into[i_plane] = s[i_plane] * t1


@cuda.jit(device=True)
def value_p2(into, N, s2, n_plane):
    t1 = 1.0 / f8(N)
    for i_plane in range(n_plane):
        into[i_plane] = s2[i_plane] * t1


@cuda.jit(device=True)
def rebase_s1(into, n_plane, s1, p1, p1_new, p2, p2_new, N, n_plane__1):
    for i_plane in range(n_plane):
        t2 = p1_new[i_plane] if math.isfinite(p1_new[i_plane]) else 0.0
        t3 = (p1[i_plane] if math.isfinite(p1[i_plane]) else 0.0) - t2
        for i_plane__1 in range(n_plane__1):
            t5 = p2_new[i_plane__1] if math.isfinite(p2_new[i_plane__1]) else 0.0
            t7 = t3 * ((p2[i_plane__1] if math.isfinite(p2[i_plane__1]) else 0.0) - t5)
            t9 = s1[i_plane * n_plane + i_plane__1] + (0.0 if f8(N) == 0.0 else t7 * f8(N))
            into[i_plane * n_plane + i_plane__1] = t9


@cuda.jit(device=True)
def rebase_s6(into, n_plane, s6, p1, p1_new, N, n_plane__1):
    for i_plane in range(n_plane):
        t2 = p1_new[i_plane] if math.isfinite(p1_new[i_plane]) else 0.0
        t3 = (p1[i_plane] if math.isfinite(p1[i_plane]) else 0.0) - t2
        for i_plane__1 in range(n_plane__1):
            t5 = p1_new[i_plane__1] if math.isfinite(p1_new[i_plane__1]) else 0.0
            t7 = t3 * ((p1[i_plane__1] if math.isfinite(p1[i_plane__1]) else 0.0) - t5)
            t9 = s6[i_plane * n_plane + i_plane__1] + (0.0 if f8(N) == 0.0 else t7 * f8(N))
            into[i_plane * n_plane + i_plane__1] = t9


@cuda.jit(device=True)
def rebase_s7(into, n_plane, s7, p2, p2_new, N, n_plane__1):
    for i_plane in range(n_plane):
        t2 = p2_new[i_plane] if math.isfinite(p2_new[i_plane]) else 0.0
        t3 = (p2[i_plane] if math.isfinite(p2[i_plane]) else 0.0) - t2
        for i_plane__1 in range(n_plane__1):
            t5 = p2_new[i_plane__1] if math.isfinite(p2_new[i_plane__1]) else 0.0
            t7 = t3 * ((p2[i_plane__1] if math.isfinite(p2[i_plane__1]) else 0.0) - t5)
            t9 = s7[i_plane * n_plane + i_plane__1] + (0.0 if f8(N) == 0.0 else t7 * f8(N))
            into[i_plane * n_plane + i_plane__1] = t9


@cuda.jit(device=True)
def fold(seen_old, N_old, slots, first, span, thread, length, n_plane, s_old, s, s2_old, s2, p1_old, p2_old, cells_X, skew_X, shift_X, mask_X, cells_Y, skew_Y, shift_Y, mask_Y, p1, p2, n_plane__1, s1, s6, s7):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + slot * span + thread) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, N_old
    seen = i4(seen_old + many)
    for word in range(n_plane):
        s_old[word] = s[word]
    for word in range(n_plane):
        s2_old[word] = s2[word]
    value_p1(p1_old, N_old, s_old, n_plane)
    value_p2(p2_old, N_old, s2_old, n_plane)
    N = N_old + 1 * many
    for i_l in range(slots):
        for i_plane in range(n_plane):
            s[i_plane] = s[i_plane] + sel(i4(first + i_l * span + thread) < i4(length), f8(cells_X[cell(i_l * span + thread, n_plane, i_plane + skew_X, shift_X, mask_X)]), 0.0)
            s2[i_plane] = s2[i_plane] + sel(i4(first + i_l * span + thread) < i4(length), f8(cells_Y[cell(i_l * span + thread, n_plane, i_plane + skew_Y, shift_Y, mask_Y)]), 0.0)
    value_p1(p1, N, s, n_plane)
    value_p2(p2, N, s2, n_plane)
    if seen_old > 0:
        rebase_s1(s1, n_plane, s1, p1_old, p1, p2_old, p2, N_old, n_plane__1)
    if seen_old > 0:
        rebase_s6(s6, n_plane, s6, p1_old, p1, N_old, n_plane__1)
    if seen_old > 0:
        rebase_s7(s7, n_plane, s7, p2_old, p2, N_old, n_plane__1)
    for i_l in range(slots):
        for i_plane in range(n_plane):
            t1 = f4(p1[i_plane]) if math.isfinite(f4(p1[i_plane])) else f4(0.0)
            t2 = cells_X[cell(i_l * span + thread, n_plane, i_plane + skew_X, shift_X, mask_X)] - t1
            t9 = f4(p2[i_plane]) if math.isfinite(f4(p2[i_plane])) else f4(0.0)
            t10 = cells_Y[cell(i_l * span + thread, n_plane, i_plane + skew_Y, shift_Y, mask_Y)] - t9
            for i_plane__1 in range(n_plane__1):
                t3 = f4(p2[i_plane__1]) if math.isfinite(f4(p2[i_plane__1])) else f4(0.0)
                t4 = cells_Y[cell(i_l * span + thread, n_plane, i_plane__1 + skew_Y, shift_Y, mask_Y)] - t3
                t5 = t2 * t4
                s1[i_plane * n_plane + i_plane__1] = s1[i_plane * n_plane + i_plane__1] + sel(i4(first + i_l * span + thread) < i4(length), f8(t5), 0.0)
                t6 = f4(p1[i_plane__1]) if math.isfinite(f4(p1[i_plane__1])) else f4(0.0)
                t8 = t2 * (cells_X[cell(i_l * span + thread, n_plane, i_plane__1 + skew_X, shift_X, mask_X)] - t6)
                s6[i_plane * n_plane + i_plane__1] = s6[i_plane * n_plane + i_plane__1] + sel(i4(first + i_l * span + thread) < i4(length), f8(t8), 0.0)
                t11 = t10 * t4
                s7[i_plane * n_plane + i_plane__1] = s7[i_plane * n_plane + i_plane__1] + sel(i4(first + i_l * span + thread) < i4(length), f8(t11), 0.0)
    return seen, N


@cuda.jit(device=True)
def combine(seen_old, N_old, width, n_plane, s_old, s, s2_old, s2, p1_old, p2_old, p1, p2, n_plane__1, s1, s6, s7):
    seen = sum_over(seen_old, width)
    for word in range(n_plane):
        s_old[word] = s[word]
    for word in range(n_plane):
        s2_old[word] = s2[word]
    value_p1(p1_old, N_old, s_old, n_plane)
    value_p2(p2_old, N_old, s2_old, n_plane)
    N = sum_over(N_old, width)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_plane):
                s[word] = s[word] + cuda.shfl_xor_sync(4294967295, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_plane):
                s2[word] = s2[word] + cuda.shfl_xor_sync(4294967295, s2[word], by)
    value_p1(p1, N, s, n_plane)
    value_p2(p2, N, s2, n_plane)
    if seen_old > 0:
        rebase_s1(s1, n_plane, s1, p1_old, p1, p2_old, p2, N_old, n_plane__1)
    if seen_old > 0:
        rebase_s6(s6, n_plane, s6, p1_old, p1, N_old, n_plane__1)
    if seen_old > 0:
        rebase_s7(s7, n_plane, s7, p2_old, p2, N_old, n_plane__1)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_plane * n_plane):
                s1[word] = s1[word] + cuda.shfl_xor_sync(4294967295, s1[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_plane * n_plane):
                s6[word] = s6[word] + cuda.shfl_xor_sync(4294967295, s6[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_plane * n_plane):
                s7[word] = s7[word] + cuda.shfl_xor_sync(4294967295, s7[word], by)
    return seen, N


@cuda.jit(device=True)
def settle_s1(into, n_plane, p1, p2, s1, N, n_plane__1):
    for i_plane in range(n_plane):
        t1 = p1[i_plane]
        t2 = t1 - t1
        t13 = (p1[i_plane] if p1[i_plane] - p1[i_plane] == 0.0 else f8(0)) - p1[i_plane]
        for i_plane__1 in range(n_plane__1):
            t3 = p2[i_plane__1]
            t6 = 1.0 + t2 * (t3 - t3)
            t19 = t13 * ((p2[i_plane__1] if p2[i_plane__1] - p2[i_plane__1] == 0.0 else f8(0)) - p2[i_plane__1]) * f8(N)
            t20 = s1[i_plane * n_plane + i_plane__1] + t19
            t21 = t20 if s1[i_plane * n_plane + i_plane__1] - s1[i_plane * n_plane + i_plane__1] == 0.0 else nan
            into[i_plane * n_plane + i_plane__1] = t21 if t6 != t6 else s1[i_plane * n_plane + i_plane__1]


@cuda.jit(device=True)
def settle_s6(into, n_plane, p1, s6, N, n_plane__1):
    for i_plane in range(n_plane):
        t1 = p1[i_plane]
        t2 = t1 - t1
        t13 = (p1[i_plane] if p1[i_plane] - p1[i_plane] == 0.0 else f8(0)) - p1[i_plane]
        for i_plane__1 in range(n_plane__1):
            t3 = p1[i_plane__1]
            t6 = 1.0 + t2 * (t3 - t3)
            t19 = t13 * ((p1[i_plane__1] if p1[i_plane__1] - p1[i_plane__1] == 0.0 else f8(0)) - p1[i_plane__1]) * f8(N)
            t20 = s6[i_plane * n_plane + i_plane__1] + t19
            t21 = t20 if s6[i_plane * n_plane + i_plane__1] - s6[i_plane * n_plane + i_plane__1] == 0.0 else nan
            into[i_plane * n_plane + i_plane__1] = t21 if t6 != t6 else s6[i_plane * n_plane + i_plane__1]


@cuda.jit(device=True)
def settle_s7(into, n_plane, p2, s7, N, n_plane__1):
    for i_plane in range(n_plane):
        t1 = p2[i_plane]
        t2 = t1 - t1
        t13 = (p2[i_plane] if p2[i_plane] - p2[i_plane] == 0.0 else f8(0)) - p2[i_plane]
        for i_plane__1 in range(n_plane__1):
            t3 = p2[i_plane__1]
            t6 = 1.0 + t2 * (t3 - t3)
            t19 = t13 * ((p2[i_plane__1] if p2[i_plane__1] - p2[i_plane__1] == 0.0 else f8(0)) - p2[i_plane__1]) * f8(N)
            t20 = s7[i_plane * n_plane + i_plane__1] + t19
            t21 = t20 if s7[i_plane * n_plane + i_plane__1] - s7[i_plane * n_plane + i_plane__1] == 0.0 else nan
            into[i_plane * n_plane + i_plane__1] = t21 if t6 != t6 else s7[i_plane * n_plane + i_plane__1]


@cuda.jit(device=True)
def value_s3(s1, n_plane, n_plane__2):
    t1 = 0.0
    for i_plane__2 in range(n_plane__2):
        t2 = 0.0
        t3 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t2 = t2 + sel(t3, sel(i_plane == 0, s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t1 = t1 + t2
    t7 = 0.0
    for i_plane__2 in range(n_plane__2):
        t8 = 0.0
        t9 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t8 = t8 + sel(t9, sel(i_plane == 1, -s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t7 = t7 + t8
    return t1 + t7


@cuda.jit(device=True)
def value_s4(s1, n_plane, n_plane__2):
    t1 = 0.0
    for i_plane__2 in range(n_plane__2):
        t2 = 0.0
        t3 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t2 = t2 + sel(t3, sel(i_plane == 0, s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t1 = t1 + t2
    t7 = 0.0
    for i_plane__2 in range(n_plane__2):
        t8 = 0.0
        t9 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t8 = t8 + sel(t9, sel(i_plane == 1, s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t7 = t7 + t8
    return t1 + t7


@cuda.jit(device=True)
def value_p3(s3, s4):
    return cos(math.atan2(s3, s4))


@cuda.jit(device=True)
def value_p4(s3, s4):
    return sin(math.atan2(s3, s4))


@cuda.jit(device=True)
def value_s5(p3, s6, n_plane, n_plane__2, s1, p4, s7):
    t1 = 0.0
    t5 = p3 * p3
    for i_plane__2 in range(n_plane__2):
        t2 = 0.0
        t3 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t2 = t2 + sel(t3, sel(i_plane == 0, t5 * s6[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t1 = t1 + t2
    t9 = 0.0
    t13 = -2.0 * p3
    for i_plane__2 in range(n_plane__2):
        t10 = 0.0
        t11 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t10 = t10 + sel(t11, sel(i_plane == 0, t13 * s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t9 = t9 + t10
    t18 = 0.0
    t22 = p4 * p4
    for i_plane__2 in range(n_plane__2):
        t19 = 0.0
        t20 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t19 = t19 + sel(t20, sel(i_plane == 1, t22 * s6[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t18 = t18 + t19
    t27 = 0.0
    t31 = 2.0 * p4
    for i_plane__2 in range(n_plane__2):
        t28 = 0.0
        t29 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t28 = t28 + sel(t29, sel(i_plane == 1, t31 * s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t27 = t27 + t28
    t36 = 0.0
    for i_plane__2 in range(n_plane__2):
        t37 = 0.0
        t38 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t37 = t37 + sel(t38, sel(i_plane == 0, s7[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t36 = t36 + t37
    t43 = 0.0
    for i_plane__2 in range(n_plane__2):
        t44 = 0.0
        t45 = i_plane__2 == 0
        for i_plane in range(n_plane):
            t44 = t44 + sel(t45, sel(i_plane == 0, t22 * s6[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t43 = t43 + t44
    t51 = 0.0
    t55 = -2.0 * p4
    for i_plane__2 in range(n_plane__2):
        t52 = 0.0
        t53 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t52 = t52 + sel(t53, sel(i_plane == 0, t55 * s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t51 = t51 + t52
    t60 = 0.0
    for i_plane__2 in range(n_plane__2):
        t61 = 0.0
        t62 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t61 = t61 + sel(t62, sel(i_plane == 1, t5 * s6[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t60 = t60 + t61
    t68 = 0.0
    for i_plane__2 in range(n_plane__2):
        t69 = 0.0
        t70 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t69 = t69 + sel(t70, sel(i_plane == 1, t13 * s1[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t68 = t68 + t69
    t76 = 0.0
    for i_plane__2 in range(n_plane__2):
        t77 = 0.0
        t78 = i_plane__2 == 1
        for i_plane in range(n_plane):
            t77 = t77 + sel(t78, sel(i_plane == 1, s7[i_plane * n_plane + i_plane__2], f8(0)), f8(0))
        t76 = t76 + t77
    return larger(t1 + t9 + t18 + t27 + t36 + t43 + t51 + t60 + t68 + t76, 0.0)


@cuda.jit(device=True)
def output_0(s5, n_l):
    return f4(math.sqrt(s5 / f8(n_l)))


@cuda.jit(device=True)
def finish(seen, N, p1, n_plane, s, p2, s2, s1, n_plane__1, s6, s7, n_plane__2):
    value_p1(p1, N, s, n_plane)
    value_p2(p2, N, s2, n_plane)
    settle_s1(s1, n_plane, p1, p2, s1, N, n_plane__1)
    settle_s6(s6, n_plane, p1, s6, N, n_plane__1)
    settle_s7(s7, n_plane, p2, s7, N, n_plane__1)
    s3 = value_s3(s1, n_plane, n_plane__2)
    s4 = value_s4(s1, n_plane, n_plane__2)
    p3 = value_p3(s3, s4)
    p4 = value_p4(s3, s4)
    s5 = value_s5(p3, s6, n_plane, n_plane__2, s1, p4, s7)
    return output_0(s5, seen)


@cache
def make(warps, stage, slots, n_plane):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    n_plane__1 = n_plane
    n_plane__2 = n_plane
    words_s = n_plane
    words_s2 = n_plane
    words_s1 = n_plane * n_plane
    words_s6 = n_plane * n_plane
    words_s7 = n_plane * n_plane
    words_p1 = n_plane
    words_p2 = n_plane
    words_s_old = n_plane
    words_s2_old = n_plane
    words_p1_old = n_plane
    words_p2_old = n_plane
    room_s = warps * (words_s | 1)
    room_s2 = warps * (words_s2 | 1)
    room_s1 = warps * (words_s1 | 1)
    room_s6 = warps * (words_s6 | 1)
    room_s7 = warps * (words_s7 | 1)
    words_X = n_plane
    shift_X, mask_X = turns_of(words_X, 32)
    steps_X = 0 if joins else -(-(slots * span * words_X + 32 // SIZE) // span)
    room_X = max(steps_X * span, 1)
    words_Y = n_plane
    shift_Y, mask_Y = turns_of(words_Y, 32)
    steps_Y = 0 if joins else -(-(slots * span * words_Y + 32 // SIZE) // span)
    room_Y = max(steps_Y * span, 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(X, s_X, Y, s_Y, n_l, items, parts, piece, part_seen, part_N, part_s, part_s2, part_s1, part_s6, part_s7, out_0):
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
        o_Y = rest * s_Y
        p_Y = address(Y) + o_Y * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_X = cuda.shared.array(room_X, f4)
        cells_Y = cuda.shared.array(room_Y, f4)
        s = cuda.local.array(words_s, f8)
        s2 = cuda.local.array(words_s2, f8)
        s1 = cuda.local.array(words_s1, f8)
        s6 = cuda.local.array(words_s6, f8)
        s7 = cuda.local.array(words_s7, f8)
        p1 = cuda.local.array(words_p1, f8)
        p2 = cuda.local.array(words_p2, f8)
        s_old = cuda.local.array(words_s_old, f8)
        s2_old = cuda.local.array(words_s2_old, f8)
        p1_old = cuda.local.array(words_p1_old, f8)
        p2_old = cuda.local.array(words_p2_old, f8)
        seen, N = i4(0), i8(0)
        for word in range(words_s):
            s[word] = 0.0
        for word in range(words_s2):
            s2[word] = 0.0
        for word in range(words_s1):
            s1[word] = 0.0
        for word in range(words_s6):
            s6[word] = 0.0
        for word in range(words_s7):
            s7[word] = 0.0
        first = i8(0)
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_X + (begin + first) * words_X * SIZE
            skew_X = lead // SIZE % (32 // SIZE)
            stage_real(cells_X, lead - skew_X * SIZE, skew_X, skew_X + min(slots * span, length - first) * words_X, steps_X, shift_X, mask_X, thread, span)
            lead = p_Y + (begin + first) * words_Y * SIZE
            skew_Y = lead // SIZE % (32 // SIZE)
            stage_real(cells_Y, lead - skew_Y * SIZE, skew_Y, skew_Y + min(slots * span, length - first) * words_Y, steps_Y, shift_Y, mask_Y, thread, span)
            cuda.syncthreads()
            seen, N = fold(seen, N, slots, first, span, thread, length, n_plane, s_old, s, s2_old, s2, p1_old, p2_old, cells_X, skew_X, shift_X, mask_X, cells_Y, skew_Y, shift_Y, mask_Y, p1, p2, n_plane__1, s1, s6, s7)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            N = sel(there, part_N[place], i8(0))
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
            for word in range(words_s2):
                s2[word] = sel(there, part_s2[place * words_s2 + word], 0.0)
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
            for word in range(words_s6):
                s6[word] = sel(there, part_s6[place * words_s6 + word], 0.0)
            for word in range(words_s7):
                s7[word] = sel(there, part_s7[place * words_s7 + word], 0.0)
        seen, N = combine(seen, N, 32, n_plane, s_old, s, s2_old, s2, p1_old, p2_old, p1, p2, n_plane__1, s1, s6, s7)
        shared_seen = cuda.shared.array(32, i4)
        shared_N = cuda.shared.array(32, i8)
        shared_s = cuda.shared.array(room_s, f8)
        shared_s2 = cuda.shared.array(room_s2, f8)
        shared_s1 = cuda.shared.array(room_s1, f8)
        shared_s6 = cuda.shared.array(room_s6, f8)
        shared_s7 = cuda.shared.array(room_s7, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_N[warp] = N
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s2):
                    shared_s2[warp * (words_s2 | 1) + word] = s2[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
                for word in range(words_s6):
                    shared_s6[warp * (words_s6 | 1) + word] = s6[word]
                for word in range(words_s7):
                    shared_s7[warp * (words_s7 | 1) + word] = s7[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                N = sel(lane < warps, shared_N[lane % warps], i8(0))
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                for word in range(words_s2):
                    s2[word] = sel(lane < warps, shared_s2[lane % warps * (words_s2 | 1) + word], 0.0)
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                for word in range(words_s6):
                    s6[word] = sel(lane < warps, shared_s6[lane % warps * (words_s6 | 1) + word], 0.0)
                for word in range(words_s7):
                    s7[word] = sel(lane < warps, shared_s7[lane % warps * (words_s7 | 1) + word], 0.0)
                seen, N = combine(seen, N, warps, n_plane, s_old, s, s2_old, s2, p1_old, p2_old, p1, p2, n_plane__1, s1, s6, s7)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_N[item * parts + part] = N
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s2):
                    part_s2[(item * parts + part) * words_s2 + word] = s2[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
                for word in range(words_s6):
                    part_s6[(item * parts + part) * words_s6 + word] = s6[word]
                for word in range(words_s7):
                    part_s7[(item * parts + part) * words_s7 + word] = s7[word]
        elif warp == 0 or alone:
            result_0 = finish(seen, N, p1, n_plane, s, p2, s2, s1, n_plane__1, s6, s7, n_plane__2)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'X': ('l', 'plane'), 'Y': ('l', 'plane')}
DTYPES = {'X': np.float32, 'Y': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.int64, ()), (np.float64, ('plane',)), (np.float64, ('plane',)), (np.float64, ('plane', 'plane')), (np.float64, ('plane', 'plane')), (np.float64, ('plane', 'plane'))]


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


def plan(X, Y):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'X': X, 'Y': Y}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 8 * sizes['plane'] + 8 * sizes['plane'] + 8 * sizes['plane'] * sizes['plane'] + 8 * sizes['plane'] * sizes['plane'] + 8 * sizes['plane'] * sizes['plane']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['plane'] + 4 * sizes['plane']
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


def launch(X, Y, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(X, Y)
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


def definition(X, Y):
    """kabsch_rmsd as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l plane')
    Y = spread(Y, 'l plane')
    lengths = {"l": X.shape[-2], "plane": X.shape[-1]}
    t1 = positions("plane", lengths["plane"]) == 0
    t2 = X - np.sum(X, along("l"), keepdims=True) / lengths["l"]
    d1 = np.sum(np.where(t1, t2, 0), along("plane"), keepdims=True)
    t3 = positions("plane", lengths["plane"]) == 1
    t4 = Y - np.sum(Y, along("l"), keepdims=True) / lengths["l"]
    d2 = np.sum(np.where(t3, t4, 0), along("plane"), keepdims=True)
    d3 = np.sum(np.where(t3, t2, 0), along("plane"), keepdims=True)
    d4 = np.sum(np.where(t1, t4, 0), along("plane"), keepdims=True)
    t5 = np.arctan2(np.sum(d1 * d2 - d3 * d4, along("l"), keepdims=True), np.sum(d1 * d4 + d3 * d2, along("l"), keepdims=True))
    t6 = np.cos(t5)
    t7 = np.sin(t5)
    return taken_out(np.sqrt(np.sum((t6 * d1 - t7 * d3 - d4) ** 2 + (t7 * d1 + t6 * d3 - d2) ** 2, along("l"), keepdims=True) / lengths["l"]), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"X": rng.standard_normal((3, length, 4)).astype(DTYPES['X']),
                  "Y": rng.standard_normal((3, length, 4)).astype(DTYPES['Y'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"kabsch_rmsd, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
