"""hmm_forward: one pass over l, 13 words of state per row, ordered merge.

α_l(j) = Σ_i α_{l−1}(i) e^{A_ij + E_l(j)} over three states, from e^{π + E_1}: log Σ α_L.

The operator
    hmm_forward(E[l, s], A[s, t], pi[s]):
        t1 = index(s) == 0
        t2 = index(l) == 0
        t3 = index(t) == 0
        d1 = sum(where(t1, A, 0), s)
        t4 = index(s) == 1
        d2 = sum(where(t4, A, 0), s)
        t5 = index(s) == 2
        d3 = sum(where(t5, A, 0), s)
        t6 = index(t) == 1
        t7 = index(t) == 2
        return log(scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0), place=0) + scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0), place=1) + scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0), place=2))

One more element (a prime marks the new value)
    h1'  = h1·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + h6·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h9·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h'   = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + (exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_s (pi[s] if s = 0 else 0)) if l = 0 else 0) + h2·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h3·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h4'  = h4·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + h7·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h10·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h5'  = h5·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + h8·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h11·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h6'  = h1·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + h6·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h9·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h2'  = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + (exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_s (pi[s] if s = 1 else 0)) if l = 0 else 0) + h2·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h3·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h7'  = h4·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + h7·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h10·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h8'  = h5·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + h8·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h11·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h9'  = h1·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + h6·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h9·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    h3'  = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + (exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_s (pi[s] if s = 2 else 0)) if l = 0 else 0) + h2·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h3·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    h10' = h4·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + h7·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h10·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    h11' = h5·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + h8·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h11·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    e'   = e

Two states a and b
    h1'  = h1_b·h1_a + h4_b·h6_a + h5_b·h9_a
    h'   = h1_b·h_a + h_b + h4_b·h2_a + h5_b·h3_a
    h4'  = h1_b·h4_a + h4_b·h7_a + h5_b·h10_a
    h5'  = h1_b·h5_a + h4_b·h8_a + h5_b·h11_a
    h6'  = h6_b·h1_a + h7_b·h6_a + h8_b·h9_a
    h2'  = h6_b·h_a + h2_b + h7_b·h2_a + h8_b·h3_a
    h7'  = h6_b·h4_a + h7_b·h7_a + h8_b·h10_a
    h8'  = h6_b·h5_a + h7_b·h8_a + h8_b·h11_a
    h9'  = h9_b·h1_a + h10_b·h6_a + h11_b·h9_a
    h3'  = h9_b·h_a + h3_b + h10_b·h2_a + h11_b·h3_a
    h10' = h9_b·h4_a + h10_b·h7_a + h11_b·h10_a
    h11' = h9_b·h5_a + h10_b·h8_a + h11_b·h11_a
    e'   = e_a + e_b

Dangers
    exp(Σ_s (E[l,s] if s = 0 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_s (E[l,s] if s = 1 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_s (E[l,s] if s = 2 else 0)) may overflow: nothing bounds its exponent

Laws:
Certificate: sha256 857b9554527321a6f76c77f15bbc8c9d15ab470168fd4b6b7e9cb765ffe3bc71
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python hmm_forward_cuda.py` checks it on a GPU.
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
def make_S3(span, thread, cells_S3, cells_E, n_s, skew_E, shift_E, mask_E, slots):
    for i_l in range(slots):
        t1 = 0.0
        for i_s in range(n_s):
            t3 = cells_E[cell(thread * slots + i_l, n_s, i_s + skew_E, shift_E, mask_E)]
            t1 = t1 + f8(t3 if i_s == 2 else f4(0))
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
def fold(seen_old, h1_old, h_old, h4_old, h5_old, h6_old, h2_old, h7_old, h8_old, h9_old, h3_old, h10_old, h11_old, e_old, slots, first, thread, length, begin, span, cells_S4, n_t, cells_A, n_s, cells_pi, cells_S5, cells_S6):
    many = i4(0)
    for slot in range(slots):
        many = i4(many + sel(i4(first + thread * slots + slot) < i4(length), i4(1), i4(0)))
    if many == 0:
        return seen_old, h1_old, h_old, h4_old, h5_old, h6_old, h2_old, h7_old, h8_old, h9_old, h3_old, h10_old, h11_old, e_old
    seen = i4(seen_old + many)
    h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = h1_old, h_old, h4_old, h5_old, h6_old, h2_old, h7_old, h8_old, h9_old, h3_old, h10_old, h11_old, e_old
    begins = sel(seen_old == 0 and begin + first + thread * slots + i8(0) > 0, i4(1), i4(0))
    t1 = i4(min(max(0, -1), 2147483647))
    t3 = 0.0
    for i_t in range(n_t):
        t5 = 0.0
        for i_s in range(n_s):
            t5 = t5 + f8(cells_A[i_s * n_t + i_t] if i_s == 0 else f4(0))
        t3 = t3 + (t5 if i_t == 0 else f8(0))
    t10 = math.exp(t3)
    t13 = 0.0
    for i_s in range(n_s):
        t13 = t13 + f8(cells_pi[i_s] if i_s == 0 else f4(0))
    t17 = math.exp(t13)
    t20 = 0.0
    for i_t in range(n_t):
        t22 = 0.0
        for i_s in range(n_s):
            t22 = t22 + f8(cells_A[i_s * n_t + i_t] if i_s == 1 else f4(0))
        t20 = t20 + (t22 if i_t == 0 else f8(0))
    t27 = math.exp(t20)
    t30 = 0.0
    for i_t in range(n_t):
        t32 = 0.0
        for i_s in range(n_s):
            t32 = t32 + f8(cells_A[i_s * n_t + i_t] if i_s == 2 else f4(0))
        t30 = t30 + (t32 if i_t == 0 else f8(0))
    t37 = math.exp(t30)
    t40 = 0.0
    for i_t in range(n_t):
        t42 = 0.0
        for i_s in range(n_s):
            t42 = t42 + f8(cells_A[i_s * n_t + i_t] if i_s == 0 else f4(0))
        t40 = t40 + (t42 if i_t == 1 else f8(0))
    t47 = math.exp(t40)
    t50 = 0.0
    for i_s in range(n_s):
        t50 = t50 + f8(cells_pi[i_s] if i_s == 1 else f4(0))
    t54 = math.exp(t50)
    t57 = 0.0
    for i_t in range(n_t):
        t59 = 0.0
        for i_s in range(n_s):
            t59 = t59 + f8(cells_A[i_s * n_t + i_t] if i_s == 1 else f4(0))
        t57 = t57 + (t59 if i_t == 1 else f8(0))
    t64 = math.exp(t57)
    t67 = 0.0
    for i_t in range(n_t):
        t69 = 0.0
        for i_s in range(n_s):
            t69 = t69 + f8(cells_A[i_s * n_t + i_t] if i_s == 2 else f4(0))
        t67 = t67 + (t69 if i_t == 1 else f8(0))
    t74 = math.exp(t67)
    t77 = 0.0
    for i_t in range(n_t):
        t79 = 0.0
        for i_s in range(n_s):
            t79 = t79 + f8(cells_A[i_s * n_t + i_t] if i_s == 0 else f4(0))
        t77 = t77 + (t79 if i_t == 2 else f8(0))
    t84 = math.exp(t77)
    t87 = 0.0
    for i_s in range(n_s):
        t87 = t87 + f8(cells_pi[i_s] if i_s == 2 else f4(0))
    t91 = math.exp(t87)
    t94 = 0.0
    for i_t in range(n_t):
        t96 = 0.0
        for i_s in range(n_s):
            t96 = t96 + f8(cells_A[i_s * n_t + i_t] if i_s == 1 else f4(0))
        t94 = t94 + (t96 if i_t == 2 else f8(0))
    t101 = math.exp(t94)
    t104 = 0.0
    for i_t in range(n_t):
        t106 = 0.0
        for i_s in range(n_s):
            t106 = t106 + f8(cells_A[i_s * n_t + i_t] if i_s == 2 else f4(0))
        t104 = t104 + (t106 if i_t == 2 else f8(0))
    t111 = math.exp(t104)
    t114 = i4(min(max(0, -1), 2147483647))
    if begins > 0:
        i_l = i4(0)
        t2 = i4(begin + first + thread * slots + i_l) == t1
        t11 = f8(cells_S4[i_l * span + thread]) * t10
        t12 = f8(0) if t2 else t11
        t18 = f8(cells_S4[i_l * span + thread]) * t17
        t19 = t18 if t2 else f8(0)
        t28 = f8(cells_S4[i_l * span + thread]) * t27
        t29 = f8(0) if t2 else t28
        t38 = f8(cells_S4[i_l * span + thread]) * t37
        t39 = f8(0) if t2 else t38
        t48 = f8(cells_S5[i_l * span + thread]) * t47
        t49 = f8(0) if t2 else t48
        t55 = f8(cells_S5[i_l * span + thread]) * t54
        t56 = t55 if t2 else f8(0)
        t65 = f8(cells_S5[i_l * span + thread]) * t64
        t66 = f8(0) if t2 else t65
        t75 = f8(cells_S5[i_l * span + thread]) * t74
        t76 = f8(0) if t2 else t75
        t85 = f8(cells_S6[i_l * span + thread]) * t84
        t86 = f8(0) if t2 else t85
        t92 = f8(cells_S6[i_l * span + thread]) * t91
        t93 = t92 if t2 else f8(0)
        t102 = f8(cells_S6[i_l * span + thread]) * t101
        t103 = f8(0) if t2 else t102
        t112 = f8(cells_S6[i_l * span + thread]) * t111
        t113 = f8(0) if t2 else t112
        h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = t12, t19, t29, t39, t49, t56, t66, t76, t86, t93, t103, t113, f8(0)
    for i_l in range(slots):
        if begins <= i_l and i_l < many:
            t115 = i4(begin + first + thread * slots + i_l) == t114
            t116 = f8(cells_S4[i_l * span + thread]) * t10
            t117 = f8(0) if t115 else t116
            t119 = f8(cells_S4[i_l * span + thread]) * t27
            t120 = f8(0) if t115 else t119
            t123 = f8(cells_S4[i_l * span + thread]) * t37
            t124 = f8(0) if t115 else t123
            t126 = t117 * h1 + t120 * h6 + t124 * h9
            t128 = f8(cells_S4[i_l * span + thread]) * t17
            t134 = t117 * h + (t128 if t115 else f8(0)) + t120 * h2 + t124 * h3
            t139 = t117 * h4 + t120 * h7 + t124 * h10
            t144 = t117 * h5 + t120 * h8 + t124 * h11
            t145 = f8(cells_S5[i_l * span + thread]) * t47
            t146 = f8(0) if t115 else t145
            t148 = f8(cells_S5[i_l * span + thread]) * t64
            t149 = f8(0) if t115 else t148
            t152 = f8(cells_S5[i_l * span + thread]) * t74
            t153 = f8(0) if t115 else t152
            t155 = t146 * h1 + t149 * h6 + t153 * h9
            t157 = f8(cells_S5[i_l * span + thread]) * t54
            t163 = t146 * h + (t157 if t115 else f8(0)) + t149 * h2 + t153 * h3
            t168 = t146 * h4 + t149 * h7 + t153 * h10
            t173 = t146 * h5 + t149 * h8 + t153 * h11
            t174 = f8(cells_S6[i_l * span + thread]) * t84
            t175 = f8(0) if t115 else t174
            t177 = f8(cells_S6[i_l * span + thread]) * t101
            t178 = f8(0) if t115 else t177
            t181 = f8(cells_S6[i_l * span + thread]) * t111
            t182 = f8(0) if t115 else t181
            t184 = t175 * h1 + t178 * h6 + t182 * h9
            t186 = f8(cells_S6[i_l * span + thread]) * t91
            t192 = t175 * h + (t186 if t115 else f8(0)) + t178 * h2 + t182 * h3
            t197 = t175 * h4 + t178 * h7 + t182 * h10
            t202 = t175 * h5 + t178 * h8 + t182 * h11
            h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11 = t126, t134, t139, t144, t155, t163, t168, t173, t184, t192, t197, t202
            size = max(max(max(max(max(max(max(max(max(max(max(abs(h1), abs(h)), abs(h4)), abs(h5)), abs(h6)), abs(h2)), abs(h7)), abs(h8)), abs(h9)), abs(h3)), abs(h10)), abs(h11))
            if not 2.0 ** (-300) <= size <= 2.0 ** 300:
                size = max(max(max(max(max(max(max(max(max(max(max(abs(h1) if h1 - h1 == 0 else 0.0, abs(h) if h - h == 0 else 0.0), abs(h4) if h4 - h4 == 0 else 0.0), abs(h5) if h5 - h5 == 0 else 0.0), abs(h6) if h6 - h6 == 0 else 0.0), abs(h2) if h2 - h2 == 0 else 0.0), abs(h7) if h7 - h7 == 0 else 0.0), abs(h8) if h8 - h8 == 0 else 0.0), abs(h9) if h9 - h9 == 0 else 0.0), abs(h3) if h3 - h3 == 0 else 0.0), abs(h10) if h10 - h10 == 0 else 0.0), abs(h11) if h11 - h11 == 0 else 0.0)
                power = 2.0 ** (-600) if size > 2.0 ** 300 else 2.0 ** 600 if 0.0 < size < 2.0 ** (-300) else 1.0
                h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11 = h1 * power, h * power, h4 * power, h5 * power, h6 * power, h2 * power, h7 * power, h8 * power, h9 * power, h3 * power, h10 * power, h11 * power
                e = e + (600.0 if size > 2.0 ** 300 else -600.0 if 0.0 < size < 2.0 ** (-300) else 0.0)
    return seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e


@cuda.jit(device=True)
def merge(h1_b, h1_a, h4_b, h6_a, h5_b, h9_a, h_a, h_b, h2_a, h3_a, h4_a, h7_a, h10_a, h5_a, h8_a, h11_a, h6_b, h7_b, h8_b, h2_b, h9_b, h10_b, h11_b, h3_b, e_a, e_b):
    t11 = h1_b * h_a + h_b + h4_b * h2_a + h5_b * h3_a
    t16 = h1_b * h4_a + h4_b * h7_a + h5_b * h10_a
    t21 = h1_b * h5_a + h4_b * h8_a + h5_b * h11_a
    t26 = h6_b * h1_a + h7_b * h6_a + h8_b * h9_a
    t32 = h6_b * h_a + h2_b + h7_b * h2_a + h8_b * h3_a
    t37 = h6_b * h4_a + h7_b * h7_a + h8_b * h10_a
    t42 = h6_b * h5_a + h7_b * h8_a + h8_b * h11_a
    t47 = h9_b * h1_a + h10_b * h6_a + h11_b * h9_a
    t53 = h9_b * h_a + h3_b + h10_b * h2_a + h11_b * h3_a
    t58 = h9_b * h4_a + h10_b * h7_a + h11_b * h10_a
    t63 = h9_b * h5_a + h10_b * h8_a + h11_b * h11_a
    return h1_b * h1_a + h4_b * h6_a + h5_b * h9_a, t11, t16, t21, t26, t32, t37, t42, t47, t53, t58, t63, e_a + e_b


@cuda.jit(device=True)
def combine(seen_old, h1_old, h_old, h4_old, h5_old, h6_old, h2_old, h7_old, h8_old, h9_old, h3_old, h10_old, h11_old, e_old, width, lane):
    seen = sum_over(seen_old, width)
    many, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = seen_old, h1_old, h_old, h4_old, h5_old, h6_old, h2_old, h7_old, h8_old, h9_old, h3_old, h10_old, h11_old, e_old
    for step in range(5):
        by = 1 << step
        if by < width:
            ahead = lane & by == 0
            many_b = cuda.shfl_xor_sync(4294967295, many, by)
            h1_b = cuda.shfl_xor_sync(4294967295, h1, by)
            h_b = cuda.shfl_xor_sync(4294967295, h, by)
            h4_b = cuda.shfl_xor_sync(4294967295, h4, by)
            h5_b = cuda.shfl_xor_sync(4294967295, h5, by)
            h6_b = cuda.shfl_xor_sync(4294967295, h6, by)
            h2_b = cuda.shfl_xor_sync(4294967295, h2, by)
            h7_b = cuda.shfl_xor_sync(4294967295, h7, by)
            h8_b = cuda.shfl_xor_sync(4294967295, h8, by)
            h9_b = cuda.shfl_xor_sync(4294967295, h9, by)
            h3_b = cuda.shfl_xor_sync(4294967295, h3, by)
            h10_b = cuda.shfl_xor_sync(4294967295, h10, by)
            h11_b = cuda.shfl_xor_sync(4294967295, h11, by)
            e_b = cuda.shfl_xor_sync(4294967295, e, by)
            many_a, many_b = sel(ahead, many, many_b), sel(ahead, many_b, many)
            h1_a, h1_b = sel(ahead, h1, h1_b), sel(ahead, h1_b, h1)
            h_a, h_b = sel(ahead, h, h_b), sel(ahead, h_b, h)
            h4_a, h4_b = sel(ahead, h4, h4_b), sel(ahead, h4_b, h4)
            h5_a, h5_b = sel(ahead, h5, h5_b), sel(ahead, h5_b, h5)
            h6_a, h6_b = sel(ahead, h6, h6_b), sel(ahead, h6_b, h6)
            h2_a, h2_b = sel(ahead, h2, h2_b), sel(ahead, h2_b, h2)
            h7_a, h7_b = sel(ahead, h7, h7_b), sel(ahead, h7_b, h7)
            h8_a, h8_b = sel(ahead, h8, h8_b), sel(ahead, h8_b, h8)
            h9_a, h9_b = sel(ahead, h9, h9_b), sel(ahead, h9_b, h9)
            h3_a, h3_b = sel(ahead, h3, h3_b), sel(ahead, h3_b, h3)
            h10_a, h10_b = sel(ahead, h10, h10_b), sel(ahead, h10_b, h10)
            h11_a, h11_b = sel(ahead, h11, h11_b), sel(ahead, h11_b, h11)
            e_a, e_b = sel(ahead, e, e_b), sel(ahead, e_b, e)
            if many_a > 0 and many_b > 0:
                h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = merge(h1_b, h1_a, h4_b, h6_a, h5_b, h9_a, h_a, h_b, h2_a, h3_a, h4_a, h7_a, h10_a, h5_a, h8_a, h11_a, h6_b, h7_b, h8_b, h2_b, h9_b, h10_b, h11_b, h3_b, e_a, e_b)
                size = max(max(max(max(max(max(max(max(max(max(max(abs(h1), abs(h)), abs(h4)), abs(h5)), abs(h6)), abs(h2)), abs(h7)), abs(h8)), abs(h9)), abs(h3)), abs(h10)), abs(h11))
                if not 2.0 ** (-300) <= size <= 2.0 ** 300:
                    size = max(max(max(max(max(max(max(max(max(max(max(abs(h1) if h1 - h1 == 0 else 0.0, abs(h) if h - h == 0 else 0.0), abs(h4) if h4 - h4 == 0 else 0.0), abs(h5) if h5 - h5 == 0 else 0.0), abs(h6) if h6 - h6 == 0 else 0.0), abs(h2) if h2 - h2 == 0 else 0.0), abs(h7) if h7 - h7 == 0 else 0.0), abs(h8) if h8 - h8 == 0 else 0.0), abs(h9) if h9 - h9 == 0 else 0.0), abs(h3) if h3 - h3 == 0 else 0.0), abs(h10) if h10 - h10 == 0 else 0.0), abs(h11) if h11 - h11 == 0 else 0.0)
                    power = 2.0 ** (-600) if size > 2.0 ** 300 else 2.0 ** 600 if 0.0 < size < 2.0 ** (-300) else 1.0
                    h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11 = h1 * power, h * power, h4 * power, h5 * power, h6 * power, h2 * power, h7 * power, h8 * power, h9 * power, h3 * power, h10 * power, h11 * power
                    e = e + (600.0 if size > 2.0 ** 300 else -600.0 if 0.0 < size < 2.0 ** (-300) else 0.0)
            else:
                h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = sel(many_a > 0, h1_a, h1_b), sel(many_a > 0, h_a, h_b), sel(many_a > 0, h4_a, h4_b), sel(many_a > 0, h5_a, h5_b), sel(many_a > 0, h6_a, h6_b), sel(many_a > 0, h2_a, h2_b), sel(many_a > 0, h7_a, h7_b), sel(many_a > 0, h8_a, h8_b), sel(many_a > 0, h9_a, h9_b), sel(many_a > 0, h3_a, h3_b), sel(many_a > 0, h10_a, h10_b), sel(many_a > 0, h11_a, h11_b), sel(many_a > 0, e_a, e_b)
            many = i4(many_a + many_b)
    return seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e


@cuda.jit(device=True)
def output_0(h, h2, h3, e):
    return f4(math.log(h + h2 + h3) + 0.6931471805599453 * e)


@cuda.jit(device=True)
def finish(seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e):
    return output_0(h, h2, h3, e)


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
    room_S3 = slots * span * 1
    room_S4 = slots * span * 1
    room_S5 = slots * span * 1
    room_S6 = slots * span * 1
    words_A = n_s * n_t
    words_pi = n_s

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(E, s_E, A, s_A, pi, s_pi, n_l, items, parts, piece, part_seen, part_h1, part_h, part_h4, part_h5, part_h6, part_h2, part_h7, part_h8, part_h9, part_h3, part_h10, part_h11, part_e, out_0):
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
        cells_S3 = cuda.shared.array(room_S3, f4)
        cells_S4 = cuda.shared.array(room_S4, f4)
        cells_S5 = cuda.shared.array(room_S5, f4)
        cells_S6 = cuda.shared.array(room_S6, f4)
        seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = i4(0), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0
        first, more = i8(0), True
        while more:
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                seen = sel(there, part_seen[place], i4(0))
                h1 = sel(there, part_h1[place], 1.0)
                h = sel(there, part_h[place], 0.0)
                h4 = sel(there, part_h4[place], 0.0)
                h5 = sel(there, part_h5[place], 0.0)
                h6 = sel(there, part_h6[place], 0.0)
                h2 = sel(there, part_h2[place], 0.0)
                h7 = sel(there, part_h7[place], 1.0)
                h8 = sel(there, part_h8[place], 0.0)
                h9 = sel(there, part_h9[place], 0.0)
                h3 = sel(there, part_h3[place], 0.0)
                h10 = sel(there, part_h10[place], 0.0)
                h11 = sel(there, part_h11[place], 1.0)
                e = sel(there, part_e[place], 0.0)
            else:
                cuda.syncthreads()
                lead = p_E + (begin + first) * words_E * SIZE
                skew_E = lead // SIZE % (32 // SIZE)
                stage_real(cells_E, lead - skew_E * SIZE, skew_E, skew_E + min(slots * span, length - first) * words_E, steps_E, shift_E, mask_E, thread, span)
                cuda.syncthreads()
                make_S1(span, thread, cells_S1, cells_E, n_s, skew_E, shift_E, mask_E, slots)
                make_S2(span, thread, cells_S2, cells_E, n_s, skew_E, shift_E, mask_E, slots)
                make_S3(span, thread, cells_S3, cells_E, n_s, skew_E, shift_E, mask_E, slots)
                make_S4(span, thread, cells_S4, cells_S1, slots)
                make_S5(span, thread, cells_S5, cells_S2, slots)
                make_S6(span, thread, cells_S6, cells_S3, slots)
                seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = fold(seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e, slots, first, thread, length, begin, span, cells_S4, n_t, cells_A, n_s, cells_pi, cells_S5, cells_S6)
            seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = combine(seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e, 32, lane)
            shared_seen = cuda.shared.array(32, i4)
            shared_h1 = cuda.shared.array(32, f8)
            shared_h = cuda.shared.array(32, f8)
            shared_h4 = cuda.shared.array(32, f8)
            shared_h5 = cuda.shared.array(32, f8)
            shared_h6 = cuda.shared.array(32, f8)
            shared_h2 = cuda.shared.array(32, f8)
            shared_h7 = cuda.shared.array(32, f8)
            shared_h8 = cuda.shared.array(32, f8)
            shared_h9 = cuda.shared.array(32, f8)
            shared_h3 = cuda.shared.array(32, f8)
            shared_h10 = cuda.shared.array(32, f8)
            shared_h11 = cuda.shared.array(32, f8)
            shared_e = cuda.shared.array(32, f8)
            if not alone:
                if lane == 0:
                    shared_seen[warp] = seen
                    shared_h1[warp] = h1
                    shared_h[warp] = h
                    shared_h4[warp] = h4
                    shared_h5[warp] = h5
                    shared_h6[warp] = h6
                    shared_h2[warp] = h2
                    shared_h7[warp] = h7
                    shared_h8[warp] = h8
                    shared_h9[warp] = h9
                    shared_h3[warp] = h3
                    shared_h10[warp] = h10
                    shared_h11[warp] = h11
                    shared_e[warp] = e
                cuda.syncthreads()
                if warp == 0:
                    seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                    h1 = sel(lane < warps, shared_h1[lane % warps], 1.0)
                    h = sel(lane < warps, shared_h[lane % warps], 0.0)
                    h4 = sel(lane < warps, shared_h4[lane % warps], 0.0)
                    h5 = sel(lane < warps, shared_h5[lane % warps], 0.0)
                    h6 = sel(lane < warps, shared_h6[lane % warps], 0.0)
                    h2 = sel(lane < warps, shared_h2[lane % warps], 0.0)
                    h7 = sel(lane < warps, shared_h7[lane % warps], 1.0)
                    h8 = sel(lane < warps, shared_h8[lane % warps], 0.0)
                    h9 = sel(lane < warps, shared_h9[lane % warps], 0.0)
                    h3 = sel(lane < warps, shared_h3[lane % warps], 0.0)
                    h10 = sel(lane < warps, shared_h10[lane % warps], 0.0)
                    h11 = sel(lane < warps, shared_h11[lane % warps], 1.0)
                    e = sel(lane < warps, shared_e[lane % warps], 0.0)
                    seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e = combine(seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e, warps, lane)
            first += slots * span
            more = first < length and not joins
            seen = sel(thread == 0, seen, i4(0))
            h1 = sel(thread == 0, h1, 1.0)
            h = sel(thread == 0, h, 0.0)
            h4 = sel(thread == 0, h4, 0.0)
            h5 = sel(thread == 0, h5, 0.0)
            h6 = sel(thread == 0, h6, 0.0)
            h2 = sel(thread == 0, h2, 0.0)
            h7 = sel(thread == 0, h7, 1.0)
            h8 = sel(thread == 0, h8, 0.0)
            h9 = sel(thread == 0, h9, 0.0)
            h3 = sel(thread == 0, h3, 0.0)
            h10 = sel(thread == 0, h10, 0.0)
            h11 = sel(thread == 0, h11, 1.0)
            e = sel(thread == 0, e, 0.0)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_h1[item * parts + part] = h1
                part_h[item * parts + part] = h
                part_h4[item * parts + part] = h4
                part_h5[item * parts + part] = h5
                part_h6[item * parts + part] = h6
                part_h2[item * parts + part] = h2
                part_h7[item * parts + part] = h7
                part_h8[item * parts + part] = h8
                part_h9[item * parts + part] = h9
                part_h3[item * parts + part] = h3
                part_h10[item * parts + part] = h10
                part_h11[item * parts + part] = h11
                part_e[item * parts + part] = e
        elif warp == 0 or alone:
            result_0 = finish(seen, h1, h, h4, h5, h6, h2, h7, h8, h9, h3, h10, h11, e)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'E': ('l', 's'), 'A': ('s', 't'), 'pi': ('s',)}
DTYPES = {'E': np.float32, 'A': np.float32, 'pi': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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
    element = 4 * sizes['s'] + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1 + 4 * 1
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
    """hmm_forward as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
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
    t5 = positions("s", lengths["s"]) == 2
    d3 = np.sum(np.where(t5, A, 0), along("s"), keepdims=True)
    t6 = positions("t", lengths["t"]) == 1
    t7 = positions("t", lengths["t"]) == 2
    return taken_out(np.log(stepped("l", lengths["l"], 0, "", (0.0, 0.0, 0.0,), (np.exp(np.sum(np.where(t1, E, 0), along("s"), keepdims=True)), t2, np.exp(np.sum(np.where(t4, E, 0), along("s"), keepdims=True)), np.exp(np.sum(np.where(t5, E, 0), along("s"), keepdims=True)),), lambda a, b, c, e1, e2, e3, e4: (e1 * np.where(e2, np.exp(np.sum(np.where(t1, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t3, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t3, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t3, d3, 0), along("t"), keepdims=True))), e3 * np.where(e2, np.exp(np.sum(np.where(t4, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t6, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t6, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t6, d3, 0), along("t"), keepdims=True))), e4 * np.where(e2, np.exp(np.sum(np.where(t5, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t7, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t7, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t7, d3, 0), along("t"), keepdims=True))),)) + stepped("l", lengths["l"], 1, "", (0.0, 0.0, 0.0,), (np.exp(np.sum(np.where(t1, E, 0), along("s"), keepdims=True)), t2, np.exp(np.sum(np.where(t4, E, 0), along("s"), keepdims=True)), np.exp(np.sum(np.where(t5, E, 0), along("s"), keepdims=True)),), lambda a, b, c, e1, e2, e3, e4: (e1 * np.where(e2, np.exp(np.sum(np.where(t1, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t3, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t3, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t3, d3, 0), along("t"), keepdims=True))), e3 * np.where(e2, np.exp(np.sum(np.where(t4, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t6, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t6, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t6, d3, 0), along("t"), keepdims=True))), e4 * np.where(e2, np.exp(np.sum(np.where(t5, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t7, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t7, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t7, d3, 0), along("t"), keepdims=True))),)) + stepped("l", lengths["l"], 2, "", (0.0, 0.0, 0.0,), (np.exp(np.sum(np.where(t1, E, 0), along("s"), keepdims=True)), t2, np.exp(np.sum(np.where(t4, E, 0), along("s"), keepdims=True)), np.exp(np.sum(np.where(t5, E, 0), along("s"), keepdims=True)),), lambda a, b, c, e1, e2, e3, e4: (e1 * np.where(e2, np.exp(np.sum(np.where(t1, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t3, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t3, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t3, d3, 0), along("t"), keepdims=True))), e3 * np.where(e2, np.exp(np.sum(np.where(t4, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t6, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t6, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t6, d3, 0), along("t"), keepdims=True))), e4 * np.where(e2, np.exp(np.sum(np.where(t5, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t7, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t7, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t7, d3, 0), along("t"), keepdims=True))),))), '', lengths)


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
        print(f"hmm_forward, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
