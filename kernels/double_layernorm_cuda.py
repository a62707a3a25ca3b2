"""double_layernorm: one pass over l, 12 words of state per row, commutative merge.

LayerNorm without affine part of the LayerNorm with γ and β: the second sees ten moments of (γx, γ, β, 1).

The operator
    double_layernorm(x[l], g[l], b[l]):
        t1 = x - sum(x, l) / size(l)
        t2 = t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) * g + b
        t3 = t2 - sum(t2, l) / size(l)
        return t3 / sqrt(sum(t3 * t3, l) / size(l) + 1e-05)

One more element (a prime marks the new value)
    x1   = g[l]²
    x2   = b[l]·g[l]
    s'   = s + x[l]
    N'   = N + 1
    p1'  = s'/N'
    δ    = p1 − p1'
    s2'  = s2 + δ²·N + (x[l] − p1')²
    s1'  = s1 + δ·s5 + g[l]·(x[l] − p1')
    s5'  = s5 + g[l]
    s6'  = s6 + b[l]
    s7'  = s7 + 2·δ·s8 + δ²·s9 + x1·(x[l] − p1')²
    s8'  = s8 + δ·s9 + x1·(x[l] − p1')
    s9'  = s9 + x1
    s10' = s10 + δ·s11 + x2·(x[l] − p1')
    s11' = s11 + x2
    s12' = s12 + b[l]²

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b
    s1'  = s1_a + δ_a·s5_a + s1_b + δ_b·s5_b
    s5'  = s5_a + s5_b
    s6'  = s6_a + s6_b
    s7'  = s7_a + 2·δ_a·s8_a + δ_a²·s9_a + s7_b + 2·δ_b·s8_b + δ_b²·s9_b
    s8'  = s8_a + δ_a·s9_a + s8_b + δ_b·s9_b
    s9'  = s9_a + s9_b
    s10' = s10_a + δ_a·s11_a + s10_b + δ_b·s11_b
    s11' = s11_a + s11_b
    s12' = s12_a + s12_b

Dangers
    s4 = s7/p2² + 2·s10/p2 − 2·p3·s1/p2 + s12 − 2·p3·s6 + p3²·N is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 45b607f7eb0f49e16f6da202c69b08a54f72d5c6b92aefc23b811a207284dac1
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python double_layernorm_cuda.py` checks it on a GPU.
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

@intrinsic
def unrolled(context):
    """At the end of a loop: the compiler writes the loop out, so that arrays it goes over lie in registers."""
    def emit(context, builder, signature, args):
        def branch(target):
            del builder.branch
            jump, module = builder.branch(target), builder.module
            hint = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.full")])
            mark = ir.MDValue(module, [hint], name=str(len(module.metadata)))
            mark.operands = (mark, hint)
            jump.set_metadata("llvm.loop", mark)
            return jump
        builder.branch = branch
        return context.get_dummy_value()
    return types.none(), emit

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
load_4 = ptx("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_4 = ptx("st.global.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", memory=True)
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_4(pointer, there)
    for k in range(4):
        v[first + k] = numbers[k]

@cuda.jit(device=True, forceinline=True)
def store_vector(pointer, v, first):
    """16 bytes of a row."""
    store_4(pointer, v[first], v[first + 1], v[first + 2], v[first + 3])

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 8, 8
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def value_p1(s, N):
    return s / f8(N)


@cuda.jit(device=True)
def rebase_s2(s2, p1, p1_new, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s2 + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s1(s1, p1, p1_new, s5):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s1 + (0.0 if s5 == 0.0 else t3 * s5)


@cuda.jit(device=True)
def rebase_s7(s7, p1, p1_new, s8, s9):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s7 + (0.0 if s8 == 0.0 else 2.0 * t3 * s8) + (0.0 if s9 == 0.0 else t3 * t3 * s9)


@cuda.jit(device=True)
def rebase_s8(s8, p1, p1_new, s9):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s8 + (0.0 if s9 == 0.0 else t3 * s9)


@cuda.jit(device=True)
def rebase_s10(s10, p1, p1_new, s11):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s10 + (0.0 if s11 == 0.0 else t3 * s11)


@cuda.jit(device=True)
def fold(seen_old, s_old, N_old, s5_old, s6_old, s9_old, s11_old, s12_old, s2_old, s1_old, s7_old, s8_old, s10_old, ok, v_x, v_g, v_b):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old, s_old, N_old, s5_old, s6_old, s9_old, s11_old, s12_old, s2_old, s1_old, s7_old, s8_old, s10_old
    seen = i4(seen_old + many)
    p1_old = value_p1(s_old, N_old)
    s = s_old
    s_it = 0.0
    N = N_old + 1 * many
    s5 = s5_old
    s5_it = 0.0
    s6 = s6_old
    s6_it = 0.0
    s9 = s9_old
    s9_it = 0.0
    s11 = s11_old
    s11_it = 0.0
    s12 = s12_old
    s12_it = 0.0
    s_of = 0.0
    s5_of = 0.0
    s6_of = 0.0
    s9_of = 0.0
    s11_of = 0.0
    s12_of = 0.0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        s_of = s_of + f8(v_x[i_l])
        s5_of = s5_of + f8(v_g[i_l])
        s6_of = s6_of + f8(v_b[i_l])
        s9_of = s9_of + f8(v_g[i_l]) * f8(v_g[i_l])
        s11_of = s11_of + f8(v_b[i_l]) * f8(v_g[i_l])
        s12_of = s12_of + f8(v_b[i_l]) * f8(v_b[i_l])
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s_it = s_it + sel(ok[i_l], s_of, 0.0)
            s_of = 0.0
            s5_it = s5_it + sel(ok[i_l], s5_of, 0.0)
            s5_of = 0.0
            s6_it = s6_it + sel(ok[i_l], s6_of, 0.0)
            s6_of = 0.0
            s9_it = s9_it + sel(ok[i_l], s9_of, 0.0)
            s9_of = 0.0
            s11_it = s11_it + sel(ok[i_l], s11_of, 0.0)
            s11_of = 0.0
            s12_it = s12_it + sel(ok[i_l], s12_of, 0.0)
            s12_of = 0.0
        unrolled()
    s = s + s_it
    s5 = s5 + s5_it
    s6 = s6 + s6_it
    s9 = s9 + s9_it
    s11 = s11 + s11_it
    s12 = s12 + s12_it
    p1 = value_p1(s, N)
    s2 = rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else s2_old
    s2_it = 0.0
    s1 = rebase_s1(s1_old, p1_old, p1, s5_old) if seen_old > 0 else s1_old
    s1_it = 0.0
    s7 = rebase_s7(s7_old, p1_old, p1, s8_old, s9_old) if seen_old > 0 else s7_old
    s7_it = 0.0
    s8 = rebase_s8(s8_old, p1_old, p1, s9_old) if seen_old > 0 else s8_old
    s8_it = 0.0
    s10 = rebase_s10(s10_old, p1_old, p1, s11_old) if seen_old > 0 else s10_old
    s10_it = 0.0
    t4 = p1 if math.isfinite(p1) else 0.0
    s2_of = 0.0
    s1_of = 0.0
    s7_of = 0.0
    s8_of = 0.0
    s10_of = 0.0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t5 = f8(v_x[i_l]) - t4
        s2_of = s2_of + t5 * t5
        s1_of = s1_of + f8(v_g[i_l]) * t5
        t9 = f8(v_g[i_l]) * f8(v_g[i_l]) * t5
        s7_of = s7_of + t9 * t5
        s8_of = s8_of + t9
        s10_of = s10_of + f8(v_b[i_l]) * f8(v_g[i_l]) * t5
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s2_it = s2_it + sel(ok[i_l], s2_of, 0.0)
            s2_of = 0.0
            s1_it = s1_it + sel(ok[i_l], s1_of, 0.0)
            s1_of = 0.0
            s7_it = s7_it + sel(ok[i_l], s7_of, 0.0)
            s7_of = 0.0
            s8_it = s8_it + sel(ok[i_l], s8_of, 0.0)
            s8_of = 0.0
            s10_it = s10_it + sel(ok[i_l], s10_of, 0.0)
            s10_of = 0.0
        unrolled()
    s2 = s2 + s2_it
    s1 = s1 + s1_it
    s7 = s7 + s7_it
    s8 = s8 + s8_it
    s10 = s10 + s10_it
    return seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10


@cuda.jit(device=True)
def combine(seen_old, s_old, N_old, s5_old, s6_old, s9_old, s11_old, s12_old, s2_old, s1_old, s7_old, s8_old, s10_old, width):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(s_old, N_old)
    s = sum_over(s_old, width)
    N = sum_over(N_old, width)
    s5 = sum_over(s5_old, width)
    s6 = sum_over(s6_old, width)
    s9 = sum_over(s9_old, width)
    s11 = sum_over(s11_old, width)
    s12 = sum_over(s12_old, width)
    p1 = value_p1(s, N)
    s2 = sum_over(rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else 0.0, width)
    s1 = sum_over(rebase_s1(s1_old, p1_old, p1, s5_old) if seen_old > 0 else 0.0, width)
    s7 = sum_over(rebase_s7(s7_old, p1_old, p1, s8_old, s9_old) if seen_old > 0 else 0.0, width)
    s8 = sum_over(rebase_s8(s8_old, p1_old, p1, s9_old) if seen_old > 0 else 0.0, width)
    s10 = sum_over(rebase_s10(s10_old, p1_old, p1, s11_old) if seen_old > 0 else 0.0, width)
    return seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10


@cuda.jit(device=True)
def settle_s2(p1, s2, N):
    t1 = p1
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p1 if p1 - p1 == 0.0 else f8(0)) - p1
    t14 = s2 + t11 * t11 * f8(N)
    return (t14 if s2 - s2 == 0.0 else nan) if t4 != t4 else s2


@cuda.jit(device=True)
def settle_s1(p1, s1, s5):
    t1 = p1
    t3 = 1.0 + (t1 - t1)
    t12 = s1 + ((p1 if p1 - p1 == 0.0 else f8(0)) - p1) * s5
    return (t12 if s1 - s1 == 0.0 else nan) if t3 != t3 else s1


@cuda.jit(device=True)
def settle_s7(p1, s7):
    t1 = p1
    t2 = t1 - t1
    t6 = 1.0 + 2.0 * t2 + t2 * t2
    return nan if t6 != t6 else s7


@cuda.jit(device=True)
def settle_s8(p1, s8, s9):
    t1 = p1
    t3 = 1.0 + (t1 - t1)
    t12 = s8 + ((p1 if p1 - p1 == 0.0 else f8(0)) - p1) * s9
    return (t12 if s8 - s8 == 0.0 else nan) if t3 != t3 else s8


@cuda.jit(device=True)
def settle_s10(p1, s10, s11):
    t1 = p1
    t3 = 1.0 + (t1 - t1)
    t12 = s10 + ((p1 if p1 - p1 == 0.0 else f8(0)) - p1) * s11
    return (t12 if s10 - s10 == 0.0 else nan) if t3 != t3 else s10


@cuda.jit(device=True)
def value_p2(s2, N):
    return math.sqrt(s2 / f8(N) + 1e-05)


@cuda.jit(device=True)
def value_s3(p2, s1, s6):
    return 1.0 / p2 * s1 + s6


@cuda.jit(device=True)
def value_p3(s3, N):
    return s3 / f8(N)


@cuda.jit(device=True)
def value_s4(p2, s7, s10, p3, s1, s12, s6, N):
    t1 = 1.0 / p2
    return larger(t1 * t1 * s7 + 2.0 * t1 * s10 + -2.0 * (p3 * t1) * s1 + s12 + -2.0 * p3 * s6 + p3 * p3 * f8(N), 0.0)


@cuda.jit(device=True)
def finish(seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10):
    p1 = value_p1(s, N)
    s2 = settle_s2(p1, s2, N)
    s1 = settle_s1(p1, s1, s5)
    s7 = settle_s7(p1, s7)
    s8 = settle_s8(p1, s8, s9)
    s10 = settle_s10(p1, s10, s11)
    p2 = value_p2(s2, N)
    s3 = value_s3(p2, s1, s6)
    p3 = value_p3(s3, N)
    s4 = value_s4(p2, s7, s10, p3, s1, s12, s6, N)
    return s, s2, s3, s4


@cuda.jit(device=True)
def map_0(y_0, s4, n_l, s2, v_x, s, v_g, v_b, s3, ok):
    t4 = 1.0 / math.sqrt(s4 / f8(n_l) + 1e-05)
    t8 = 1.0 / math.sqrt(s2 / f8(n_l) + 1e-05)
    t9 = s / f8(n_l)
    t14 = s3 / f8(n_l)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        y_0[i_l] = f4(((f8(v_x[i_l]) - t9) * t8 * f8(v_g[i_l]) + f8(v_b[i_l]) - t14) * t4)
        unrolled()


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, p_g, p_b, even_g, even_b, ok, at, v_x, v_g, v_b):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_x + place * SIZE, full, v_x, flight * VECTOR)
        if even_g:
            load_vector(p_g + place * SIZE, full, v_g, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_g[flight * VECTOR + k] = load_one(p_g + (place + k) * SIZE, full)
        if even_b:
            load_vector(p_b + place * SIZE, full, v_b, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_b[flight * VECTOR + k] = load_one(p_b + (place + k) * SIZE, full)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, edge)
    v_g[TILE] = load_one(p_g + at[TILE] * SIZE, edge)
    v_b[TILE] = load_one(p_b + at[TILE] * SIZE, edge)


@cuda.jit(device=True)
def store(pointer, even, ok, at, y):
    """Write a tile of the row."""
    for flight in range(FLIGHT):
        if ok[flight * VECTOR] and even:
            store_vector(pointer + at[flight * VECTOR] * SIZE, y, flight * VECTOR)
        elif ok[flight * VECTOR]:
            for k in range(VECTOR):
                store_one(pointer + (at[flight * VECTOR] + k) * SIZE, y[flight * VECTOR + k])
    if ok[TILE]:
        store_one(pointer + at[TILE] * SIZE, y[TILE])


@cache
def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, g, s_g, b, s_b, n_l, items, parts, piece, out_0):
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
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        o_g = rest * s_g
        p_g = address(g) + o_g * SIZE
        o_b = rest * s_b
        p_b = address(b) + o_b * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        even_g = (p_g + (begin + head) * SIZE) % 16 == 0
        even_b = (p_b + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        v_g = cuda.local.array(SLOTS, f4)
        v_b = cuda.local.array(SLOTS, f4)
        y_0 = cuda.local.array(SLOTS, f4)
        seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = i4(0), 0.0, i8(0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, p_g, p_b, even_g, even_b, ok, at, v_x, v_g, v_b)
            seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = fold(seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10, ok, v_x, v_g, v_b)
            first += FLIGHT * span
            more = first < vectors
        seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = combine(seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(32, f8)
        shared_N = cuda.shared.array(32, i8)
        shared_s5 = cuda.shared.array(32, f8)
        shared_s6 = cuda.shared.array(32, f8)
        shared_s9 = cuda.shared.array(32, f8)
        shared_s11 = cuda.shared.array(32, f8)
        shared_s12 = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        shared_s7 = cuda.shared.array(32, f8)
        shared_s8 = cuda.shared.array(32, f8)
        shared_s10 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s[warp] = s
                shared_N[warp] = N
                shared_s5[warp] = s5
                shared_s6[warp] = s6
                shared_s9[warp] = s9
                shared_s11[warp] = s11
                shared_s12[warp] = s12
                shared_s2[warp] = s2
                shared_s1[warp] = s1
                shared_s7[warp] = s7
                shared_s8[warp] = s8
                shared_s10[warp] = s10
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                N = sel(lane < warps, shared_N[lane % warps], i8(0))
                s5 = sel(lane < warps, shared_s5[lane % warps], 0.0)
                s6 = sel(lane < warps, shared_s6[lane % warps], 0.0)
                s9 = sel(lane < warps, shared_s9[lane % warps], 0.0)
                s11 = sel(lane < warps, shared_s11[lane % warps], 0.0)
                s12 = sel(lane < warps, shared_s12[lane % warps], 0.0)
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                s7 = sel(lane < warps, shared_s7[lane % warps], 0.0)
                s8 = sel(lane < warps, shared_s8[lane % warps], 0.0)
                s10 = sel(lane < warps, shared_s10[lane % warps], 0.0)
                seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = combine(seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10, warps)
        place = sel(alone, i8(cuda.threadIdx.x) >> 5, i8(0))
        final_s = cuda.shared.array(ROWS, f8)
        final_s2 = cuda.shared.array(ROWS, f8)
        final_s3 = cuda.shared.array(ROWS, f8)
        final_s4 = cuda.shared.array(ROWS, f8)
        if warp == 0 or alone:
            s, s2, s3, s4 = finish(seen, s, N, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10)
            if thread == 0:
                final_s[place] = s
                final_s2[place] = s2
                final_s3[place] = s3
                final_s4[place] = s4
        cuda.syncthreads()
        s = final_s[place]
        s2 = final_s2[place]
        s3 = final_s3[place]
        s4 = final_s4[place]
        long = first > FLIGHT * span
        first, more = i8(0), True
        while more:
            if long:
                load(first, thread, span, begin, head, vectors, edges, p_x, p_g, p_b, even_g, even_b, ok, at, v_x, v_g, v_b)
            map_0(y_0, s4, n_l, s2, v_x, s, v_g, v_b, s3, ok)
            if live:
                store(address(out_0) + item * n_l * SIZE, (address(out_0) + item * n_l * SIZE + head * SIZE) % 16 == 0, ok, at, y_0)
            first += FLIGHT * span
            more = first < vectors

    return kernel


AXES = {'x': ('l',), 'g': ('l',), 'b': ('l',)}
DTYPES = {'x': np.float32, 'g': np.float32, 'b': np.float32}
OUTPUTS = [(('l',), np.float32)]
HELD = []


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


def plan(x, g, b):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'g': g, 'b': b}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    warps = 8
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts, piece, launches = 1, length, [((warps, 'whole'), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, g, b, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, g, b)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l',)


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


def definition(x, g, b):
    """double_layernorm as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    g = spread(g, 'l')
    b = spread(b, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x - np.sum(x, along("l"), keepdims=True) / lengths["l"]
    t2 = t1 / np.sqrt(np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"] + 1e-05) * g + b
    t3 = t2 - np.sum(t2, along("l"), keepdims=True) / lengths["l"]
    return taken_out(t3 / np.sqrt(np.sum(t3 * t3, along("l"), keepdims=True) / lengths["l"] + 1e-05), 'l', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "g": rng.standard_normal((3, length)).astype(DTYPES['g']),
                  "b": rng.standard_normal((3, length)).astype(DTYPES['b'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"double_layernorm, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
