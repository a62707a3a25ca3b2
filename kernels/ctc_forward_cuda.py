"""ctc_forward: one pass over l, 20 words of state per row, ordered merge.

−log of the probability of two labels: α_l over blank, y_1, blank, y_2, blank, each stayed at, entered or skipped to.

The operator
    ctc_forward(lp[l, c], y[u]):
        t1 = exp(sum(where(index(c) == 0, lp, 0), c))
        t2 = index(l) == 0
        d1 = sum(where(index(u) == 0, y, 0), u)
        d2 = sum(where(index(u) == 1, y, 0), u)
        return -log(scan(lambda a, b, c, d: (t1 * where(t2, 1, a), exp(sum(where(index(c) == d1, lp, 0), c)) * where(t2, 1, a + b), t1 * (b + c), exp(sum(where(index(c) == d2, lp, 0), c)) * (c + d + where(d1 != d2, b, 0))), l, (0.0, 0.0, 0.0, 0.0), place=3) + scan(lambda a, b, c, d, e: (t1 * where(t2, 1, a), exp(sum(where(index(c) == d1, lp, 0), c)) * where(t2, 1, a + b), t1 * (b + c), exp(sum(where(index(c) == d2, lp, 0), c)) * (c + d + where(d1 != d2, b, 0)), t1 * (d + e)), l, (0.0, 0.0, 0.0, 0.0, 0.0), place=4))

One more element (a prime marks the new value)
    x1   = exp(Σ_c (lp[l,c] if c = 0 else 0))
    x2   = exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0))
    x3   = 0 if l = 0 else exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0))
    q1'  = q1·x1
    h1'  = h1·x1 + q2·x1
    h3'  = h3·x1 + h6·x1
    h4'  = h4·x1 + h7·x1
    h2'  = h2·x1 + h·x1
    h5'  = h5·x1 + h8·x1
    q2'  = q2·x2
    h6'  = h6·x2 + q1·x2
    h7'  = h7·x2 + h9·x2 + q3·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)
    h'   = h·x2 + h10·x2 + h12·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)
    h8'  = h8·x2 + h11·x2 + h13·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)
    h9'  = h9·x1 + q3·x1
    h10' = h10·x1 + h12·x1
    h11' = h11·x1 + h13·x1
    q3'  = q3·x3
    h12' = h12·x3 + (exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) if l = 0 else 0) + h14·x3
    h13' = h13·x3 + q4·x3
    h14' = (x1 if l = 0 else 0) + h14·(0 if l = 0 else x1)
    q4'  = q4·(0 if l = 0 else x1)
    e'   = e

Two states a and b
    q1'  = q1_a·q1_b
    h1'  = q1_b·h1_a + h1_b·q2_a
    h3'  = q1_b·h3_a + h1_b·h6_a + h3_b·q1_a
    h4'  = q1_b·h4_a + h1_b·h7_a + h3_b·h9_a + h4_b·q3_a
    h2'  = q1_b·h2_a + h1_b·h_a + h3_b·h10_a + h4_b·h12_a + h2_b + h5_b·h14_a
    h5'  = q1_b·h5_a + h1_b·h8_a + h3_b·h11_a + h4_b·h13_a + h5_b·q4_a
    q2'  = q2_a·q2_b
    h6'  = q2_b·h6_a + h6_b·q1_a
    h7'  = q2_b·h7_a + h6_b·h9_a + h7_b·q3_a
    h'   = q2_b·h_a + h6_b·h10_a + h7_b·h12_a + h_b + h8_b·h14_a
    h8'  = q2_b·h8_a + h6_b·h11_a + h7_b·h13_a + h8_b·q4_a
    h9'  = q1_b·h9_a + h9_b·q3_a
    h10' = q1_b·h10_a + h9_b·h12_a + h10_b + h11_b·h14_a
    h11' = q1_b·h11_a + h9_b·h13_a + h11_b·q4_a
    q3'  = q3_a·q3_b
    h12' = q3_b·h12_a + h12_b + h13_b·h14_a
    h13' = q3_b·h13_a + h13_b·q4_a
    h14' = h14_b + q4_b·h14_a
    q4'  = q4_a·q4_b
    e'   = e_a + e_b

Dangers
    exp(Σ_c (lp[l,c] if c = 0 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0)) may overflow: nothing bounds its exponent
    exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) may overflow: nothing bounds its exponent

Laws:
Certificate: sha256 d667d52f6ca8faa40a328712eb0744c2abfed25914256479c70035e3de8f755e
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python ctc_forward_cuda.py` checks it on a GPU.
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
def make_S1(span, thread, cells_S1, cells_lp, n_c, skew_lp, shift_lp, mask_lp, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_c in range(n_c):
            t3 = cells_lp[cell(thread * slots + i_l, n_c, i_c + skew_lp, shift_lp, mask_lp)]
            t1 = t1 + f8(t3 if i_c == 0 else f4(0))
        cells_S1[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S2(span, thread, cells_S2, cells_y, n_u, cells_lp, n_c, skew_lp, shift_lp, mask_lp, slots):
    t2 = 0.0
    for i_u in range(n_u):
        t2 = t2 + f8(cells_y[i_u] if i_u == 1 else f4(0))
    for i_l in range(slots):
        t1 = 0.0
        for i_c in range(n_c):
            t7 = cells_lp[cell(thread * slots + i_l, n_c, i_c + skew_lp, shift_lp, mask_lp)]
            t1 = t1 + f8(t7 if f8(i_c) == t2 else f4(0))
        cells_S2[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S3(span, thread, cells_S3, cells_y, n_u, cells_lp, n_c, skew_lp, shift_lp, mask_lp, slots):
    t2 = 0.0
    for i_u in range(n_u):
        t2 = t2 + f8(cells_y[i_u] if i_u == 0 else f4(0))
    for i_l in range(slots):
        t1 = 0.0
        for i_c in range(n_c):
            t7 = cells_lp[cell(thread * slots + i_l, n_c, i_c + skew_lp, shift_lp, mask_lp)]
            t1 = t1 + f8(t7 if f8(i_c) == t2 else f4(0))
        cells_S3[i_l * span + thread] = f4(t1)


@cuda.jit(device=True)
def make_S4(span, thread, cells_S4, cells_S1, slots):
    for i_l in range(slots):
        cells_S4[i_l * span + thread] = f4(math.exp(f8(cells_S1[i_l * span + thread])))


@cuda.jit(device=True)
def make_S5(span, thread, cells_S5, cells_S2, slots):
    for i_l in range(slots):
        cells_S5[i_l * span + thread] = f4(math.exp(f8(cells_S2[i_l * span + thread])))


@cuda.jit(device=True)
def make_S6(span, thread, cells_S6, cells_S3, slots):
    for i_l in range(slots):
        cells_S6[i_l * span + thread] = f4(math.exp(f8(cells_S3[i_l * span + thread])))


@cuda.jit(device=True)
def fold(seen_old, q1_old, h1_old, h3_old, h4_old, h2_old, h5_old, q2_old, h6_old, h7_old, h_old, h8_old, h9_old, h10_old, h11_old, q3_old, h12_old, h13_old, h14_old, q4_old, e_old, slots, first, thread, length, begin, span, cells_S4, cells_S5, cells_y, n_u, cells_S6):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, q1_old, h1_old, h3_old, h4_old, h2_old, h5_old, q2_old, h6_old, h7_old, h_old, h8_old, h9_old, h10_old, h11_old, q3_old, h12_old, h13_old, h14_old, q4_old, e_old
    seen = i4(seen_old + many)
    q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = q1_old, h1_old, h3_old, h4_old, h2_old, h5_old, q2_old, h6_old, h7_old, h_old, h8_old, h9_old, h10_old, h11_old, q3_old, h12_old, h13_old, h14_old, q4_old, e_old
    begins = sel(seen_old == 0 and begin + first + thread * slots + i8(0) > 0, i4(1), i4(0))
    t1 = 0.0
    for i_u in range(n_u):
        t1 = t1 + f8(cells_y[i_u] if i_u == 0 else f4(0))
    t5 = 0.0
    for i_u in range(n_u):
        t5 = t5 + f8(cells_y[i_u] if i_u == 1 else f4(0))
    t9 = t1 != t5
    t11 = i4(min(max(0, -1), 2147483647))
    t62 = i4(min(max(0, -1), 2147483647))
    if begins > 0:
        i_l = i4(0)
        t10 = f8(cells_S5[i_l * span + thread]) if t9 else f8(0)
        t12 = i4(begin + first + thread * slots + i_l) == t11
        t13 = f8(0) if t12 else f8(cells_S6[i_l * span + thread])
        t14 = f8(cells_S6[i_l * span + thread]) if t12 else f8(0)
        t15 = f8(cells_S4[i_l * span + thread]) if t12 else f8(0)
        t16 = f8(0) if t12 else f8(cells_S4[i_l * span + thread])
        q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = f8(cells_S4[i_l * span + thread]), f8(cells_S4[i_l * span + thread]), f8(0), f8(0), f8(0), f8(0), f8(cells_S5[i_l * span + thread]), f8(cells_S5[i_l * span + thread]), t10, f8(0), f8(0), f8(cells_S4[i_l * span + thread]), f8(0), f8(0), t13, t14, t13, t15, t16, f8(0)
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t17 = q1 * f8(cells_S4[i_l * span + thread])
            t20 = f8(cells_S4[i_l * span + thread]) * h1 + f8(cells_S4[i_l * span + thread]) * q2
            t23 = f8(cells_S4[i_l * span + thread]) * h3 + f8(cells_S4[i_l * span + thread]) * h6
            t26 = f8(cells_S4[i_l * span + thread]) * h4 + f8(cells_S4[i_l * span + thread]) * h7
            t29 = f8(cells_S4[i_l * span + thread]) * h2 + f8(cells_S4[i_l * span + thread]) * h
            t32 = f8(cells_S4[i_l * span + thread]) * h5 + f8(cells_S4[i_l * span + thread]) * h8
            t33 = q2 * f8(cells_S5[i_l * span + thread])
            t36 = f8(cells_S5[i_l * span + thread]) * h6 + f8(cells_S5[i_l * span + thread]) * q1
            t40 = f8(cells_S5[i_l * span + thread]) if t9 else f8(0)
            t42 = f8(cells_S5[i_l * span + thread]) * h7 + f8(cells_S5[i_l * span + thread]) * h9 + t40 * q3
            t47 = f8(cells_S5[i_l * span + thread]) * h + f8(cells_S5[i_l * span + thread]) * h10 + t40 * h12
            t52 = f8(cells_S5[i_l * span + thread]) * h8 + f8(cells_S5[i_l * span + thread]) * h11 + t40 * h13
            t55 = f8(cells_S4[i_l * span + thread]) * h9 + f8(cells_S4[i_l * span + thread]) * q3
            t58 = f8(cells_S4[i_l * span + thread]) * h10 + f8(cells_S4[i_l * span + thread]) * h12
            t61 = f8(cells_S4[i_l * span + thread]) * h11 + f8(cells_S4[i_l * span + thread]) * h13
            t63 = i4(begin + first + thread * slots + i_l) == t62
            t64 = f8(0) if t63 else f8(cells_S6[i_l * span + thread])
            t65 = q3 * t64
            t70 = t64 * h12 + (f8(cells_S6[i_l * span + thread]) if t63 else f8(0)) + t64 * h14
            t73 = t64 * h13 + t64 * q4
            t75 = f8(0) if t63 else f8(cells_S4[i_l * span + thread])
            t77 = (f8(cells_S4[i_l * span + thread]) if t63 else f8(0)) + t75 * h14
            t78 = q4 * t75
            q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4 = t17, t20, t23, t26, t29, t32, t33, t36, t42, t47, t52, t55, t58, t61, t65, t70, t73, t77, t78
            size = max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(abs(q1), abs(h1)), abs(h3)), abs(h4)), abs(h2)), abs(h5)), abs(q2)), abs(h6)), abs(h7)), abs(h)), abs(h8)), abs(h9)), abs(h10)), abs(h11)), abs(q3)), abs(h12)), abs(h13)), abs(h14)), abs(q4))
            if not 2.0 ** (-300) <= size <= 2.0 ** 300:
                size = max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(abs(q1) if q1 - q1 == 0 else 0.0, abs(h1) if h1 - h1 == 0 else 0.0), abs(h3) if h3 - h3 == 0 else 0.0), abs(h4) if h4 - h4 == 0 else 0.0), abs(h2) if h2 - h2 == 0 else 0.0), abs(h5) if h5 - h5 == 0 else 0.0), abs(q2) if q2 - q2 == 0 else 0.0), abs(h6) if h6 - h6 == 0 else 0.0), abs(h7) if h7 - h7 == 0 else 0.0), abs(h) if h - h == 0 else 0.0), abs(h8) if h8 - h8 == 0 else 0.0), abs(h9) if h9 - h9 == 0 else 0.0), abs(h10) if h10 - h10 == 0 else 0.0), abs(h11) if h11 - h11 == 0 else 0.0), abs(q3) if q3 - q3 == 0 else 0.0), abs(h12) if h12 - h12 == 0 else 0.0), abs(h13) if h13 - h13 == 0 else 0.0), abs(h14) if h14 - h14 == 0 else 0.0), abs(q4) if q4 - q4 == 0 else 0.0)
                power = 2.0 ** (-600) if size > 2.0 ** 300 else 2.0 ** 600 if 0.0 < size < 2.0 ** (-300) else 1.0
                q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4 = q1 * power, h1 * power, h3 * power, h4 * power, h2 * power, h5 * power, q2 * power, h6 * power, h7 * power, h * power, h8 * power, h9 * power, h10 * power, h11 * power, q3 * power, h12 * power, h13 * power, h14 * power, q4 * power
                e = e + (600.0 if size > 2.0 ** 300 else -600.0 if 0.0 < size < 2.0 ** (-300) else 0.0)
    return seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e


@cuda.jit(device=True)
def merge(q1_a, q1_b, h1_a, h1_b, q2_a, h3_a, h6_a, h3_b, h4_a, h7_a, h9_a, h4_b, q3_a, h2_a, h_a, h10_a, h12_a, h2_b, h5_b, h14_a, h5_a, h8_a, h11_a, h13_a, q4_a, q2_b, h6_b, h7_b, h_b, h8_b, h9_b, h10_b, h11_b, q3_b, h12_b, h13_b, h14_b, q4_b, e_a, e_b):
    t4 = q1_b * h1_a + h1_b * q2_a
    t9 = q1_b * h3_a + h1_b * h6_a + h3_b * q1_a
    t16 = q1_b * h4_a + h1_b * h7_a + h3_b * h9_a + h4_b * q3_a
    t26 = q1_b * h2_a + h1_b * h_a + h3_b * h10_a + h4_b * h12_a + h2_b + h5_b * h14_a
    t35 = q1_b * h5_a + h1_b * h8_a + h3_b * h11_a + h4_b * h13_a + h5_b * q4_a
    t36 = q2_a * q2_b
    t39 = q2_b * h6_a + h6_b * q1_a
    t44 = q2_b * h7_a + h6_b * h9_a + h7_b * q3_a
    t52 = q2_b * h_a + h6_b * h10_a + h7_b * h12_a + h_b + h8_b * h14_a
    t59 = q2_b * h8_a + h6_b * h11_a + h7_b * h13_a + h8_b * q4_a
    t62 = q1_b * h9_a + h9_b * q3_a
    t68 = q1_b * h10_a + h9_b * h12_a + h10_b + h11_b * h14_a
    t73 = q1_b * h11_a + h9_b * h13_a + h11_b * q4_a
    t74 = q3_a * q3_b
    t78 = q3_b * h12_a + h12_b + h13_b * h14_a
    t81 = q3_b * h13_a + h13_b * q4_a
    t83 = h14_b + q4_b * h14_a
    t84 = q4_a * q4_b
    t85 = e_a + e_b
    return q1_a * q1_b, t4, t9, t16, t26, t35, t36, t39, t44, t52, t59, t62, t68, t73, t74, t78, t81, t83, t84, t85


@cuda.jit(device=True)
def combine(seen_old, q1_old, h1_old, h3_old, h4_old, h2_old, h5_old, q2_old, h6_old, h7_old, h_old, h8_old, h9_old, h10_old, h11_old, q3_old, h12_old, h13_old, h14_old, q4_old, e_old, width, lane):
    seen = sum_over(seen_old, width)
    many, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = seen_old, q1_old, h1_old, h3_old, h4_old, h2_old, h5_old, q2_old, h6_old, h7_old, h_old, h8_old, h9_old, h10_old, h11_old, q3_old, h12_old, h13_old, h14_old, q4_old, e_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            q1_b = cuda.shfl_xor_sync(4294967295, q1, by)
            h1_b = cuda.shfl_xor_sync(4294967295, h1, by)
            h3_b = cuda.shfl_xor_sync(4294967295, h3, by)
            h4_b = cuda.shfl_xor_sync(4294967295, h4, by)
            h2_b = cuda.shfl_xor_sync(4294967295, h2, by)
            h5_b = cuda.shfl_xor_sync(4294967295, h5, by)
            q2_b = cuda.shfl_xor_sync(4294967295, q2, by)
            h6_b = cuda.shfl_xor_sync(4294967295, h6, by)
            h7_b = cuda.shfl_xor_sync(4294967295, h7, by)
            h_b = cuda.shfl_xor_sync(4294967295, h, by)
            h8_b = cuda.shfl_xor_sync(4294967295, h8, by)
            h9_b = cuda.shfl_xor_sync(4294967295, h9, by)
            h10_b = cuda.shfl_xor_sync(4294967295, h10, by)
            h11_b = cuda.shfl_xor_sync(4294967295, h11, by)
            q3_b = cuda.shfl_xor_sync(4294967295, q3, by)
            h12_b = cuda.shfl_xor_sync(4294967295, h12, by)
            h13_b = cuda.shfl_xor_sync(4294967295, h13, by)
            h14_b = cuda.shfl_xor_sync(4294967295, h14, by)
            q4_b = cuda.shfl_xor_sync(4294967295, q4, by)
            e_b = cuda.shfl_xor_sync(4294967295, e, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            q1_a, q1_b = sel(ahead, q1, q1_b), sel(ahead, q1_b, q1)
            h1_a, h1_b = sel(ahead, h1, h1_b), sel(ahead, h1_b, h1)
            h3_a, h3_b = sel(ahead, h3, h3_b), sel(ahead, h3_b, h3)
            h4_a, h4_b = sel(ahead, h4, h4_b), sel(ahead, h4_b, h4)
            h2_a, h2_b = sel(ahead, h2, h2_b), sel(ahead, h2_b, h2)
            h5_a, h5_b = sel(ahead, h5, h5_b), sel(ahead, h5_b, h5)
            q2_a, q2_b = sel(ahead, q2, q2_b), sel(ahead, q2_b, q2)
            h6_a, h6_b = sel(ahead, h6, h6_b), sel(ahead, h6_b, h6)
            h7_a, h7_b = sel(ahead, h7, h7_b), sel(ahead, h7_b, h7)
            h_a, h_b = sel(ahead, h, h_b), sel(ahead, h_b, h)
            h8_a, h8_b = sel(ahead, h8, h8_b), sel(ahead, h8_b, h8)
            h9_a, h9_b = sel(ahead, h9, h9_b), sel(ahead, h9_b, h9)
            h10_a, h10_b = sel(ahead, h10, h10_b), sel(ahead, h10_b, h10)
            h11_a, h11_b = sel(ahead, h11, h11_b), sel(ahead, h11_b, h11)
            q3_a, q3_b = sel(ahead, q3, q3_b), sel(ahead, q3_b, q3)
            h12_a, h12_b = sel(ahead, h12, h12_b), sel(ahead, h12_b, h12)
            h13_a, h13_b = sel(ahead, h13, h13_b), sel(ahead, h13_b, h13)
            h14_a, h14_b = sel(ahead, h14, h14_b), sel(ahead, h14_b, h14)
            q4_a, q4_b = sel(ahead, q4, q4_b), sel(ahead, q4_b, q4)
            e_a, e_b = sel(ahead, e, e_b), sel(ahead, e_b, e)
            if many_a > 0 and many_b > 0:
                q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = merge(q1_a, q1_b, h1_a, h1_b, q2_a, h3_a, h6_a, h3_b, h4_a, h7_a, h9_a, h4_b, q3_a, h2_a, h_a, h10_a, h12_a, h2_b, h5_b, h14_a, h5_a, h8_a, h11_a, h13_a, q4_a, q2_b, h6_b, h7_b, h_b, h8_b, h9_b, h10_b, h11_b, q3_b, h12_b, h13_b, h14_b, q4_b, e_a, e_b)
                size = max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(abs(q1), abs(h1)), abs(h3)), abs(h4)), abs(h2)), abs(h5)), abs(q2)), abs(h6)), abs(h7)), abs(h)), abs(h8)), abs(h9)), abs(h10)), abs(h11)), abs(q3)), abs(h12)), abs(h13)), abs(h14)), abs(q4))
                if not 2.0 ** (-300) <= size <= 2.0 ** 300:
                    size = max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(abs(q1) if q1 - q1 == 0 else 0.0, abs(h1) if h1 - h1 == 0 else 0.0), abs(h3) if h3 - h3 == 0 else 0.0), abs(h4) if h4 - h4 == 0 else 0.0), abs(h2) if h2 - h2 == 0 else 0.0), abs(h5) if h5 - h5 == 0 else 0.0), abs(q2) if q2 - q2 == 0 else 0.0), abs(h6) if h6 - h6 == 0 else 0.0), abs(h7) if h7 - h7 == 0 else 0.0), abs(h) if h - h == 0 else 0.0), abs(h8) if h8 - h8 == 0 else 0.0), abs(h9) if h9 - h9 == 0 else 0.0), abs(h10) if h10 - h10 == 0 else 0.0), abs(h11) if h11 - h11 == 0 else 0.0), abs(q3) if q3 - q3 == 0 else 0.0), abs(h12) if h12 - h12 == 0 else 0.0), abs(h13) if h13 - h13 == 0 else 0.0), abs(h14) if h14 - h14 == 0 else 0.0), abs(q4) if q4 - q4 == 0 else 0.0)
                    power = 2.0 ** (-600) if size > 2.0 ** 300 else 2.0 ** 600 if 0.0 < size < 2.0 ** (-300) else 1.0
                    q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4 = q1 * power, h1 * power, h3 * power, h4 * power, h2 * power, h5 * power, q2 * power, h6 * power, h7 * power, h * power, h8 * power, h9 * power, h10 * power, h11 * power, q3 * power, h12 * power, h13 * power, h14 * power, q4 * power
                    e = e + (600.0 if size > 2.0 ** 300 else -600.0 if 0.0 < size < 2.0 ** (-300) else 0.0)
            else:
                q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = sel(many_a > 0, q1_a, q1_b), sel(many_a > 0, h1_a, h1_b), sel(many_a > 0, h3_a, h3_b), sel(many_a > 0, h4_a, h4_b), sel(many_a > 0, h2_a, h2_b), sel(many_a > 0, h5_a, h5_b), sel(many_a > 0, q2_a, q2_b), sel(many_a > 0, h6_a, h6_b), sel(many_a > 0, h7_a, h7_b), sel(many_a > 0, h_a, h_b), sel(many_a > 0, h8_a, h8_b), sel(many_a > 0, h9_a, h9_b), sel(many_a > 0, h10_a, h10_b), sel(many_a > 0, h11_a, h11_b), sel(many_a > 0, q3_a, q3_b), sel(many_a > 0, h12_a, h12_b), sel(many_a > 0, h13_a, h13_b), sel(many_a > 0, h14_a, h14_b), sel(many_a > 0, q4_a, q4_b), sel(many_a > 0, e_a, e_b)
            many = i4(many_a + many_b)
    return seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e


@cuda.jit(device=True)
def output_0(h, h2, e):
    return f4(-(math.log(h + h2) + 0.6931471805599453 * e))


@cuda.jit(device=True)
def finish(seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e):
    return output_0(h, h2, e)


@cache
def make(warps, stage, slots, n_c, n_u):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_lp = n_c
    shift_lp, mask_lp = turns_of(slots * words_lp, 32)
    steps_lp = 0 if joins else -(-(slots * span * words_lp + 32 // SIZE) // span)
    room_lp = max(steps_lp * span, 1)
    room_S1 = slots * span * 1
    room_S2 = slots * span * 1
    room_S3 = slots * span * 1
    room_S4 = slots * span * 1
    room_S5 = slots * span * 1
    room_S6 = slots * span * 1
    words_y = n_u

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(lp, s_lp, y, s_y, n_l, items, parts, piece, part_seen, part_q1, part_h1, part_h3, part_h4, part_h2, part_h5, part_q2, part_h6, part_h7, part_h, part_h8, part_h9, part_h10, part_h11, part_q3, part_h12, part_h13, part_h14, part_q4, part_e, out_0):
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
        o_lp = rest * s_lp
        p_lp = address(lp) + o_lp * SIZE
        o_y = rest * s_y
        p_y = address(y) + o_y * SIZE
        cells_y = cuda.shared.array(words_y, f4)
        for word in range(thread, words_y, span):
            cells_y[word] = load_one(p_y + word * SIZE, 1)
        cuda.syncthreads()
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_lp = cuda.shared.array(room_lp, f4)
        cells_S1 = cuda.shared.array(room_S1, f4)
        cells_S2 = cuda.shared.array(room_S2, f4)
        cells_S3 = cuda.shared.array(room_S3, f4)
        cells_S4 = cuda.shared.array(room_S4, f4)
        cells_S5 = cuda.shared.array(room_S5, f4)
        cells_S6 = cuda.shared.array(room_S6, f4)
        seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = i4(0), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                q1 = sel(there, part_q1[place], 1.0)
                h1 = sel(there, part_h1[place], 0.0)
                h3 = sel(there, part_h3[place], 0.0)
                h4 = sel(there, part_h4[place], 0.0)
                h2 = sel(there, part_h2[place], 0.0)
                h5 = sel(there, part_h5[place], 0.0)
                q2 = sel(there, part_q2[place], 1.0)
                h6 = sel(there, part_h6[place], 0.0)
                h7 = sel(there, part_h7[place], 0.0)
                h = sel(there, part_h[place], 0.0)
                h8 = sel(there, part_h8[place], 0.0)
                h9 = sel(there, part_h9[place], 0.0)
                h10 = sel(there, part_h10[place], 0.0)
                h11 = sel(there, part_h11[place], 0.0)
                q3 = sel(there, part_q3[place], 1.0)
                h12 = sel(there, part_h12[place], 0.0)
                h13 = sel(there, part_h13[place], 0.0)
                h14 = sel(there, part_h14[place], 0.0)
                q4 = sel(there, part_q4[place], 1.0)
                e = sel(there, part_e[place], 0.0)
            else:
                cuda.syncthreads()
                lead = p_lp + (begin + first) * words_lp * SIZE
                skew_lp = lead // SIZE % (32 // SIZE)
                stage_real(cells_lp, lead - skew_lp * SIZE, skew_lp, skew_lp + min(slots * span, length - first) * words_lp, steps_lp, shift_lp, mask_lp, thread, span)
                cuda.syncthreads()
                make_S1(span, thread, cells_S1, cells_lp, n_c, skew_lp, shift_lp, mask_lp, slots)
                make_S2(span, thread, cells_S2, cells_y, n_u, cells_lp, n_c, skew_lp, shift_lp, mask_lp, slots)
                make_S3(span, thread, cells_S3, cells_y, n_u, cells_lp, n_c, skew_lp, shift_lp, mask_lp, slots)
                make_S4(span, thread, cells_S4, cells_S1, slots)
                make_S5(span, thread, cells_S5, cells_S2, slots)
                make_S6(span, thread, cells_S6, cells_S3, slots)
                seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = fold(seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e, slots, first, thread, length, begin, span, cells_S4, cells_S5, cells_y, n_u, cells_S6)
            seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = combine(seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_q1 = cuda.shared.array(32, f8)
            shared_h1 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            shared_h4 = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_h5 = cuda.shared.array(32, f8)
            shared_q2 = cuda.shared.array(32, f8)
            shared_h6 = cuda.shared.array(32, f8)
            shared_h7 = cuda.shared.array(32, f8)
            shared_h = cuda.shared.array(32, f8)
            shared_h8 = cuda.shared.array(32, f8)
            shared_h9 = cuda.shared.array(32, f8)
            shared_h10 = cuda.shared.array(32, f8)
            shared_h11 = cuda.shared.array(32, f8)
            shared_q3 = cuda.shared.array(32, f8)
            shared_h12 = cuda.shared.array(32, f8)
            shared_h13 = cuda.shared.array(32, f8)
            shared_h14 = cuda.shared.array(32, f8)
            shared_q4 = cuda.shared.array(32, f8)
            shared_e = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_q1[warp] = q1
                    shared_h1[warp] = h1
                    shared_h3[warp] = h3
                    shared_h4[warp] = h4
                    shared_h2[warp] = h2
                    shared_h5[warp] = h5
                    shared_q2[warp] = q2
                    shared_h6[warp] = h6
                    shared_h7[warp] = h7
                    shared_h[warp] = h
                    shared_h8[warp] = h8
                    shared_h9[warp] = h9
                    shared_h10[warp] = h10
                    shared_h11[warp] = h11
                    shared_q3[warp] = q3
                    shared_h12[warp] = h12
                    shared_h13[warp] = h13
                    shared_h14[warp] = h14
                    shared_q4[warp] = q4
                    shared_e[warp] = e
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    q1 = sel(lane < warps, shared_q1[lane % warps], 1.0)
                    h1 = sel(lane < warps, shared_h1[lane % warps], 0.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], 0.0)
                    h4 = sel(lane < warps, shared_h4[lane % warps], 0.0)
                    h2 = sel(lane < warps, shared_h2[lane % warps], 0.0)
                    h5 = sel(lane < warps, shared_h5[lane % warps], 0.0)
                    q2 = sel(lane < warps, shared_q2[lane % warps], 1.0)
                    h6 = sel(lane < warps, shared_h6[lane % warps], 0.0)
                    h7 = sel(lane < warps, shared_h7[lane % warps], 0.0)
                    h = sel(lane < warps, shared_h[lane % warps], 0.0)
                    h8 = sel(lane < warps, shared_h8[lane % warps], 0.0)
                    h9 = sel(lane < warps, shared_h9[lane % warps], 0.0)
                    h10 = sel(lane < warps, shared_h10[lane % warps], 0.0)
                    h11 = sel(lane < warps, shared_h11[lane % warps], 0.0)
                    q3 = sel(lane < warps, shared_q3[lane % warps], 1.0)
                    h12 = sel(lane < warps, shared_h12[lane % warps], 0.0)
                    h13 = sel(lane < warps, shared_h13[lane % warps], 0.0)
                    h14 = sel(lane < warps, shared_h14[lane % warps], 0.0)
                    q4 = sel(lane < warps, shared_q4[lane % warps], 1.0)
                    e = sel(lane < warps, shared_e[lane % warps], 0.0)
                    seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e = combine(seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            q1 = sel(thread == 0, q1, 1.0)
            h1 = sel(thread == 0, h1, 0.0)
            h3 = sel(thread == 0, h3, 0.0)
            h4 = sel(thread == 0, h4, 0.0)
            h2 = sel(thread == 0, h2, 0.0)
            h5 = sel(thread == 0, h5, 0.0)
            q2 = sel(thread == 0, q2, 1.0)
            h6 = sel(thread == 0, h6, 0.0)
            h7 = sel(thread == 0, h7, 0.0)
            h = sel(thread == 0, h, 0.0)
            h8 = sel(thread == 0, h8, 0.0)
            h9 = sel(thread == 0, h9, 0.0)
            h10 = sel(thread == 0, h10, 0.0)
            h11 = sel(thread == 0, h11, 0.0)
            q3 = sel(thread == 0, q3, 1.0)
            h12 = sel(thread == 0, h12, 0.0)
            h13 = sel(thread == 0, h13, 0.0)
            h14 = sel(thread == 0, h14, 0.0)
            q4 = sel(thread == 0, q4, 1.0)
            e = sel(thread == 0, e, 0.0)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_q1[item * parts + part] = q1
                part_h1[item * parts + part] = h1
                part_h3[item * parts + part] = h3
                part_h4[item * parts + part] = h4
                part_h2[item * parts + part] = h2
                part_h5[item * parts + part] = h5
                part_q2[item * parts + part] = q2
                part_h6[item * parts + part] = h6
                part_h7[item * parts + part] = h7
                part_h[item * parts + part] = h
                part_h8[item * parts + part] = h8
                part_h9[item * parts + part] = h9
                part_h10[item * parts + part] = h10
                part_h11[item * parts + part] = h11
                part_q3[item * parts + part] = q3
                part_h12[item * parts + part] = h12
                part_h13[item * parts + part] = h13
                part_h14[item * parts + part] = h14
                part_q4[item * parts + part] = q4
                part_e[item * parts + part] = e
        elif warp == 0 or alone:
            result_0 = finish(seen, q1, h1, h3, h4, h2, h5, q2, h6, h7, h, h8, h9, h10, h11, q3, h12, h13, h14, q4, e)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'lp': ('l', 'c'), 'y': ('u',)}
DTYPES = {'lp': np.float32, 'y': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(lp, y):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'lp': lp, 'y': y}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    state = 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['c'] + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1
    shapes = [(w, slots) for slots in (32, 16, 8, 4, 2, 1) for w in (8, 4, 2, 1) if 16 * w * slots < length or w == slots == 1]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['c'], sizes['u']), blocks * parts, threads), ((8, 'join', slots, sizes['c'], sizes['u']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['c'], sizes['u']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(lp, y, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(lp, y)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 'c', 'u')


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


def definition(lp, y):
    """ctc_forward as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    lp = spread(lp, 'l c')
    y = spread(y, 'u')
    lengths = {"l": lp.shape[-3], "c": lp.shape[-2], "u": y.shape[-1]}
    t1 = np.exp(np.sum(np.where(positions("c", lengths["c"]) == 0, lp, 0), along("c"), keepdims=True))
    t2 = positions("l", lengths["l"]) == 0
    d1 = np.sum(np.where(positions("u", lengths["u"]) == 0, y, 0), along("u"), keepdims=True)
    d2 = np.sum(np.where(positions("u", lengths["u"]) == 1, y, 0), along("u"), keepdims=True)
    return taken_out(-np.log(stepped("l", lengths["l"], 3, "", (0.0, 0.0, 0.0, 0.0,), (t1, t2, np.exp(np.sum(np.where(positions("c", lengths["c"]) == d1, lp, 0), along("c"), keepdims=True)), np.exp(np.sum(np.where(positions("c", lengths["c"]) == d2, lp, 0), along("c"), keepdims=True)),), lambda a, b, c, d, e1, e2, e3, e4: (e1 * np.where(e2, 1, a), e3 * np.where(e2, 1, a + b), e1 * (b + c), e4 * (c + d + np.where(d1 != d2, b, 0)),)) + stepped("l", lengths["l"], 4, "", (0.0, 0.0, 0.0, 0.0, 0.0,), (t1, t2, np.exp(np.sum(np.where(positions("c", lengths["c"]) == d1, lp, 0), along("c"), keepdims=True)), np.exp(np.sum(np.where(positions("c", lengths["c"]) == d2, lp, 0), along("c"), keepdims=True)),), lambda a, b, c, d, e, e1, e2, e3, e4: (e1 * np.where(e2, 1, a), e3 * np.where(e2, 1, a + b), e1 * (b + c), e4 * (c + d + np.where(d1 != d2, b, 0)), e1 * (d + e),))), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"lp": rng.standard_normal((3, length, 4)).astype(DTYPES['lp']),
                  "y": rng.standard_normal((5,)).astype(DTYPES['y'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"ctc_forward, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.02 is right")
    return 0 if max(errors.values()) <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
