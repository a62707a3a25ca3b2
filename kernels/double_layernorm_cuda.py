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


load_vector = _instruction("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = _instruction("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_vector = _instruction("st.global.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", stores=True)
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)
SIZE, VECTOR, FLIGHT = 4, 4, 4
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1
ROWS = 8


@cuda.jit(device=True)
def value_p1(s, vN):
    t1 = s / f8(vN)
    return t1


@cuda.jit(device=True)
def rebase_s2(s2, p1, p1_new, vN):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = 0.0 if f8(vN) == 0.0 else t4 * f8(vN)
    t6 = s2 + t5
    return t6


@cuda.jit(device=True)
def rebase_s1(s1, p1, p1_new, s5):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = 0.0 if s5 == 0.0 else t3 * s5
    t5 = s1 + t4
    return t5


@cuda.jit(device=True)
def rebase_s7(s7, p1, p1_new, s8, s9):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = 2.0 * t3
    t5 = 0.0 if s8 == 0.0 else t4 * s8
    t6 = s7 + t5
    t7 = t3 * t3
    t8 = 0.0 if s9 == 0.0 else t7 * s9
    t9 = t6 + t8
    return t9


@cuda.jit(device=True)
def rebase_s8(s8, p1, p1_new, s9):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = 0.0 if s9 == 0.0 else t3 * s9
    t5 = s8 + t4
    return t5


@cuda.jit(device=True)
def rebase_s10(s10, p1, p1_new, s11):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = 0.0 if s11 == 0.0 else t3 * s11
    t5 = s10 + t4
    return t5


@cuda.jit(device=True)
def fold(seen_old, s_old, vN_old, s5_old, s6_old, s9_old, s11_old, s12_old, s2_old, s1_old, s7_old, s8_old, s10_old, ok, v_x, v_g, v_b):
    many = 0
    for slot in range(SLOTS):
        many += sel(ok[slot], 1, 0)
    if many == 0:
        return seen_old, s_old, vN_old, s5_old, s6_old, s9_old, s11_old, s12_old, s2_old, s1_old, s7_old, s8_old, s10_old
    seen = seen_old + many
    p1_old = value_p1(s_old, vN_old)
    s = s_old
    s_it = 0.0
    vN = vN_old + 1 * many
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
    for i_l in range(SLOTS):
        s_it = s_it + sel(ok[i_l], f8(v_x[i_l]), 0.0)
        s5_it = s5_it + sel(ok[i_l], f8(v_g[i_l]), 0.0)
        s6_it = s6_it + sel(ok[i_l], f8(v_b[i_l]), 0.0)
        t1 = f8(v_g[i_l]) * f8(v_g[i_l])
        s9_it = s9_it + sel(ok[i_l], t1, 0.0)
        t2 = f8(v_b[i_l]) * f8(v_g[i_l])
        s11_it = s11_it + sel(ok[i_l], t2, 0.0)
        t3 = f8(v_b[i_l]) * f8(v_b[i_l])
        s12_it = s12_it + sel(ok[i_l], t3, 0.0)
    s = s + s_it
    s5 = s5 + s5_it
    s6 = s6 + s6_it
    s9 = s9 + s9_it
    s11 = s11 + s11_it
    s12 = s12 + s12_it
    p1 = value_p1(s, vN)
    s2 = (rebase_s2(s2_old, p1_old, p1, vN_old) if seen_old > 0 else s2_old)
    s2_it = 0.0
    s1 = (rebase_s1(s1_old, p1_old, p1, s5_old) if seen_old > 0 else s1_old)
    s1_it = 0.0
    s7 = (rebase_s7(s7_old, p1_old, p1, s8_old, s9_old) if seen_old > 0 else s7_old)
    s7_it = 0.0
    s8 = (rebase_s8(s8_old, p1_old, p1, s9_old) if seen_old > 0 else s8_old)
    s8_it = 0.0
    s10 = (rebase_s10(s10_old, p1_old, p1, s11_old) if seen_old > 0 else s10_old)
    s10_it = 0.0
    t4 = p1 if math.isfinite(p1) else 0.0
    for i_l in range(SLOTS):
        t5 = f8(v_x[i_l]) - t4
        t6 = t5 * t5
        s2_it = s2_it + sel(ok[i_l], t6, 0.0)
        t7 = f8(v_g[i_l]) * t5
        s1_it = s1_it + sel(ok[i_l], t7, 0.0)
        t8 = f8(v_g[i_l]) * f8(v_g[i_l])
        t9 = t8 * t5
        t10 = t9 * t5
        s7_it = s7_it + sel(ok[i_l], t10, 0.0)
        s8_it = s8_it + sel(ok[i_l], t9, 0.0)
        t11 = f8(v_b[i_l]) * f8(v_g[i_l])
        t12 = t11 * t5
        s10_it = s10_it + sel(ok[i_l], t12, 0.0)
    s2 = s2 + s2_it
    s1 = s1 + s1_it
    s7 = s7 + s7_it
    s8 = s8 + s8_it
    s10 = s10 + s10_it
    return seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10


@cuda.jit(device=True)
def combine(seen_old, s_old, vN_old, s5_old, s6_old, s9_old, s11_old, s12_old, s2_old, s1_old, s7_old, s8_old, s10_old, width):
    seen = seen_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            seen += cuda.shfl_xor_sync(0xFFFFFFFF, seen, by)
    p1_old = value_p1(s_old, vN_old)
    s = s_old
    vN = vN_old
    s5 = s5_old
    s6 = s6_old
    s9 = s9_old
    s11 = s11_old
    s12 = s12_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s = s + cuda.shfl_xor_sync(0xFFFFFFFF, s, by)
            vN = vN + cuda.shfl_xor_sync(0xFFFFFFFF, vN, by)
            s5 = s5 + cuda.shfl_xor_sync(0xFFFFFFFF, s5, by)
            s6 = s6 + cuda.shfl_xor_sync(0xFFFFFFFF, s6, by)
            s9 = s9 + cuda.shfl_xor_sync(0xFFFFFFFF, s9, by)
            s11 = s11 + cuda.shfl_xor_sync(0xFFFFFFFF, s11, by)
            s12 = s12 + cuda.shfl_xor_sync(0xFFFFFFFF, s12, by)
    p1 = value_p1(s, vN)
    s2 = rebase_s2(s2_old, p1_old, p1, vN_old) if seen_old > 0 else 0.0
    s1 = rebase_s1(s1_old, p1_old, p1, s5_old) if seen_old > 0 else 0.0
    s7 = rebase_s7(s7_old, p1_old, p1, s8_old, s9_old) if seen_old > 0 else 0.0
    s8 = rebase_s8(s8_old, p1_old, p1, s9_old) if seen_old > 0 else 0.0
    s10 = rebase_s10(s10_old, p1_old, p1, s11_old) if seen_old > 0 else 0.0
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s2 = s2 + cuda.shfl_xor_sync(0xFFFFFFFF, s2, by)
            s1 = s1 + cuda.shfl_xor_sync(0xFFFFFFFF, s1, by)
            s7 = s7 + cuda.shfl_xor_sync(0xFFFFFFFF, s7, by)
            s8 = s8 + cuda.shfl_xor_sync(0xFFFFFFFF, s8, by)
            s10 = s10 + cuda.shfl_xor_sync(0xFFFFFFFF, s10, by)
    return seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10


@cuda.jit(device=True)
def settle_s2(p1, s2, vN):
    t1 = p1
    t2 = t1 - t1
    t3 = t2 * t2
    t4 = t3 * 1.0
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s2 - s2
    t8 = t7 == 0.0
    t9 = p1 - p1
    t10 = t9 == 0.0
    t11 = p1 if t10 else f8(0)
    t12 = t11 - p1
    t13 = t12 * t12
    t14 = t13 * f8(vN)
    t15 = s2 + t14
    t16 = t15 if t8 else nan
    t17 = t16 if t6 else s2
    return t17


@cuda.jit(device=True)
def settle_s1(p1, s1, s5):
    t1 = p1
    t2 = t1 - t1
    t3 = t2 * 1.0
    t4 = 1.0 + t3
    t5 = t4 != t4
    t6 = s1 - s1
    t7 = t6 == 0.0
    t8 = p1 - p1
    t9 = t8 == 0.0
    t10 = p1 if t9 else f8(0)
    t11 = t10 - p1
    t12 = t11 * s5
    t13 = s1 + t12
    t14 = t13 if t7 else nan
    t15 = t14 if t5 else s1
    return t15


@cuda.jit(device=True)
def settle_s7(p1, s7):
    t1 = p1
    t2 = t1 - t1
    t3 = 2.0 * t2
    t4 = t3 * 1.0
    t5 = 1.0 + t4
    t6 = t2 * t2
    t7 = t6 * 1.0
    t8 = t5 + t7
    t9 = t8 != t8
    t10 = nan if t9 else s7
    return t10


@cuda.jit(device=True)
def settle_s8(p1, s8, s9):
    t1 = p1
    t2 = t1 - t1
    t3 = t2 * 1.0
    t4 = 1.0 + t3
    t5 = t4 != t4
    t6 = s8 - s8
    t7 = t6 == 0.0
    t8 = p1 - p1
    t9 = t8 == 0.0
    t10 = p1 if t9 else f8(0)
    t11 = t10 - p1
    t12 = t11 * s9
    t13 = s8 + t12
    t14 = t13 if t7 else nan
    t15 = t14 if t5 else s8
    return t15


@cuda.jit(device=True)
def settle_s10(p1, s10, s11):
    t1 = p1
    t2 = t1 - t1
    t3 = t2 * 1.0
    t4 = 1.0 + t3
    t5 = t4 != t4
    t6 = s10 - s10
    t7 = t6 == 0.0
    t8 = p1 - p1
    t9 = t8 == 0.0
    t10 = p1 if t9 else f8(0)
    t11 = t10 - p1
    t12 = t11 * s11
    t13 = s10 + t12
    t14 = t13 if t7 else nan
    t15 = t14 if t5 else s10
    return t15


@cuda.jit(device=True)
def value_p2(s2, vN):
    t1 = s2 / f8(vN)
    t2 = t1 + 1e-05
    t3 = math.sqrt(t2)
    return t3


@cuda.jit(device=True)
def value_s3(p2, s1, s6):
    t1 = 1.0 / p2
    t2 = t1 * s1
    t3 = t2 + s6
    return t3


@cuda.jit(device=True)
def value_p3(s3, vN):
    t1 = s3 / f8(vN)
    return t1


@cuda.jit(device=True)
def value_s4(p2, s7, s10, p3, s1, s12, s6, vN):
    t1 = 1.0 / p2
    t2 = t1 * t1
    t3 = t2 * s7
    t4 = 2.0 * t1
    t5 = t4 * s10
    t6 = t3 + t5
    t7 = p3 * t1
    t8 = (-2.0) * t7
    t9 = t8 * s1
    t10 = t6 + t9
    t11 = t10 + s12
    t12 = (-2.0) * p3
    t13 = t12 * s6
    t14 = t11 + t13
    t15 = p3 * p3
    t16 = t15 * f8(vN)
    t17 = t14 + t16
    return t17


@cuda.jit(device=True)
def finish(seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10):
    p1 = value_p1(s, vN)
    s2 = settle_s2(p1, s2, vN)
    s1 = settle_s1(p1, s1, s5)
    s7 = settle_s7(p1, s7)
    s8 = settle_s8(p1, s8, s9)
    s10 = settle_s10(p1, s10, s11)
    p2 = value_p2(s2, vN)
    s3 = value_s3(p2, s1, s6)
    p3 = value_p3(s3, vN)
    s4 = value_s4(p2, s7, s10, p3, s1, s12, s6, vN)
    return s, s2, s3, s4


@cuda.jit(device=True)
def map_0(y_0, s4, n_l, s2, v_x, s, v_g, v_b, s3):
    t1 = s4 / f8(n_l)
    t2 = t1 + 1e-05
    t3 = math.sqrt(t2)
    t4 = 1.0 / t3
    t5 = s2 / f8(n_l)
    t6 = t5 + 1e-05
    t7 = math.sqrt(t6)
    t8 = 1.0 / t7
    t9 = s / f8(n_l)
    t14 = s3 / f8(n_l)
    for i_l in range(SLOTS):
        t10 = f8(v_x[i_l]) - t9
        t11 = t10 * t8
        t12 = t11 * f8(v_g[i_l])
        t13 = t12 + f8(v_b[i_l])
        t15 = t13 - t14
        t16 = t15 * t4
        y_0[i_l] = f4(t16)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, p_g, p_b, even_g, even_b, ok, at, v_x, v_g, v_b):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = first + flight * span + thread
        full = number < vectors
        place = begin + head + number * VECTOR
        for k in range(VECTOR):
            ok[flight * VECTOR + k] = full
            at[flight * VECTOR + k] = i4(place + k)
        v_x[flight * VECTOR + 0], v_x[flight * VECTOR + 1], v_x[flight * VECTOR + 2], v_x[flight * VECTOR + 3] = load_vector(p_x + place * SIZE, sel(full, i4(1), i4(0)))
        if even_g:
            v_g[flight * VECTOR + 0], v_g[flight * VECTOR + 1], v_g[flight * VECTOR + 2], v_g[flight * VECTOR + 3] = load_vector(p_g + place * SIZE, sel(full, i4(1), i4(0)))
        else:
            for k in range(VECTOR):
                v_g[flight * VECTOR + k] = load_one(p_g + (place + k) * SIZE, sel(full, i4(1), i4(0)))
        if even_b:
            v_b[flight * VECTOR + 0], v_b[flight * VECTOR + 1], v_b[flight * VECTOR + 2], v_b[flight * VECTOR + 3] = load_vector(p_b + place * SIZE, sel(full, i4(1), i4(0)))
        else:
            for k in range(VECTOR):
                v_b[flight * VECTOR + k] = load_one(p_b + (place + k) * SIZE, sel(full, i4(1), i4(0)))
    edge = first == 0 and thread < edges
    ok[TILE] = edge
    at[TILE] = i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))
    v_g[TILE] = load_one(p_g + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))
    v_b[TILE] = load_one(p_b + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))


@cuda.jit(device=True)
def store(pointer, even, ok, at, y):
    """Write a tile of the row."""
    for flight in range(FLIGHT):
        if ok[flight * VECTOR] and even:
            store_vector(pointer + at[flight * VECTOR] * SIZE, y[flight * VECTOR + 0], y[flight * VECTOR + 1], y[flight * VECTOR + 2], y[flight * VECTOR + 3])
        elif ok[flight * VECTOR]:
            for k in range(VECTOR):
                store_one(pointer + (at[flight * VECTOR] + k) * SIZE, y[flight * VECTOR + k])
    if ok[TILE]:
        store_one(pointer + at[TILE] * SIZE, y[TILE])


def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, g, s_g, v_b, s_b, n_l, items, parts, piece, out_0):
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
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        o_g = rest * s_g
        p_g = address(g) + o_g * SIZE
        o_b = rest * s_b
        p_b = address(v_b) + o_b * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) // SIZE) % (32 // SIZE), length)
        vectors = (length - head) // VECTOR
        edges = length - vectors * VECTOR
        even_g = (p_g + (begin + head) * SIZE) % 16 == 0
        even_b = (p_b + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        v_g = cuda.local.array(SLOTS, f4)
        v_b = cuda.local.array(SLOTS, f4)
        y_0 = cuda.local.array(SLOTS, f4)
        seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = i8(0), 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        first = 0
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, p_g, p_b, even_g, even_b, ok, at, v_x, v_g, v_b)
            seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = fold(seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10, ok, v_x, v_g, v_b)
            first += FLIGHT * span
            more = first < vectors
        seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = combine(seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10, 32)
        shared_seen = cuda.shared.array(32, i8)
        shared_s = cuda.shared.array(32, f8)
        shared_vN = cuda.shared.array(32, i8)
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
                shared_vN[warp] = vN
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
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                vN = sel(lane < warps, shared_vN[lane % warps], 0)
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
                seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10 = combine(seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10, warps)
        place = sel(alone, i8(cuda.threadIdx.x) // 32, i8(0))
        final_s = cuda.shared.array(ROWS, f8)
        final_s2 = cuda.shared.array(ROWS, f8)
        final_s3 = cuda.shared.array(ROWS, f8)
        final_s4 = cuda.shared.array(ROWS, f8)
        if warp == 0 or alone:
            s, s2, s3, s4 = finish(seen, s, vN, s5, s6, s9, s11, s12, s2, s1, s7, s8, s10)
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
        first, more = 0, True
        while more:
            if long:
                load(first, thread, span, begin, head, vectors, edges, p_x, p_g, p_b, even_g, even_b, ok, at, v_x, v_g, v_b)
            map_0(y_0, s4, n_l, s2, v_x, s, v_g, v_b, s3)
            if live:
                store(address(out_0) + item * n_l * SIZE, (address(out_0) + item * n_l * SIZE + head * SIZE) % 16 == 0, ok, at, y_0)
            first += FLIGHT * span
            more = first < vectors

    return kernel


AXES = {'x': ('l',), 'g': ('l',), 'v_b': ('l',)}
DTYPES = {'x': np.float32, 'g': np.float32, 'v_b': np.float32}
OUTPUTS = [(('l',), np.float32)]
HELD = []
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


def plan(x, g, v_b):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'x': x, 'g': g, 'v_b': v_b})
    items, length = math.prod(leading), sizes['l']
    warps = next((w for w in (1, 2, 4, 8, 16) if length <= 32 * w * TILE), 8)
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts, piece, launches = 1, length, [((warps, 'whole'), blocks, threads)]
    arguments = [
        x,
        np.int64(1 * sizes['l'] * (len(described(x)[0]) > 1)),
        g,
        np.int64(1 * sizes['l'] * (len(described(g)[0]) > 1)),
        v_b,
        np.int64(1 * sizes['l'] * (len(described(v_b)[0]) > 1)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, g, v_b, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, g, v_b)
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



ALL_AXES = ('l',)


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


def definition(x, g, b):
    """double_layernorm as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    g = spread(g, 'l')
    b = spread(b, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x - reduced("sum", x, "l") / lengths["l"]
    t2 = t1 / np.sqrt(reduced("sum", t1 * t1, "l") / lengths["l"] + 1e-05) * g + b
    t3 = t2 - reduced("sum", t2, "l") / lengths["l"]
    return taken_out(t3 / np.sqrt(reduced("sum", t3 * t3, "l") / lengths["l"] + 1e-05), 'l', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(x, g, b):
    """`launch` with the axes as the operator has them."""
    outputs = launch(x, g, b)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], ('l',), ('l',)),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'x': 'normal', 'g': 'normal', 'b': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        axes, names = {'x': ('l',), 'g': ('l',), 'b': ('l',)}, {'x': 'x', 'g': 'g', 'b': 'v_b'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"double_layernorm, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
