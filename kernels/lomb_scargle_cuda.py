"""lomb_scargle: one pass over l, 10 words of state per row, commutative merge.

Power at ω = 1.7 with τ = atan2(Σ sin 2ωt, Σ cos 2ωt)/2ω: ½ Σ over cos, sin of (Σ (y − ȳ) c)²/Σ c².

The operator
    lomb_scargle(t[l], y[l]):
        t1 = y - sum(y, l) / size(l)
        t2 = 3.4 * t
        t3 = 1.7 * (t - arctan2(sum(sin(t2), l), sum(cos(t2), l)) / 3.4)
        t4 = cos(t3)
        t5 = sin(t3)
        return 0.5 * (sum(t1 * t4, l) ** 2 / sum(t4 * t4, l) + sum(t1 * t5, l) ** 2 / sum(t5 * t5, l))

One more element (a prime marks the new value)
    s'   = s + y[l]
    s2'  = s2 + sin(3.4·t[l])
    s3'  = s3 + cos(3.4·t[l])
    p2'  = arctan2(s2', s3')/3.4
    p1'  = s'/N_l
    δ    = p1 − p1'
    s4'  = s4·cos(1.7·(p2 − p2')) − s6·sin(1.7·(p2 − p2')) + δ·s8·cos(1.7·(p2 − p2')) − δ·s1·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))·(y[l] − p1')
    s6'  = s6·cos(1.7·(p2 − p2')) + s4·sin(1.7·(p2 − p2')) + δ·s1·cos(1.7·(p2 − p2')) + δ·s8·sin(1.7·(p2 − p2')) + (y[l] − p1')·sin(1.7·(t[l] − p2'))
    s1'  = s1·cos(1.7·(p2 − p2')) + s8·sin(1.7·(p2 − p2')) + sin(1.7·(t[l] − p2'))
    s8'  = s8·cos(1.7·(p2 − p2')) − s1·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))
    s5'  = s5·(cos(1.7·(p2 − p2'))² + sin(1.7·(p2 − p2'))²) − 2·s9·cos(1.7·(p2 − p2'))·sin(1.7·(p2 − p2')) − s10·sin(1.7·(p2 − p2'))² + cos(1.7·(t[l] − p2'))²
    s9'  = s9·(cos(1.7·(p2 − p2'))² − sin(1.7·(p2 − p2'))²) + s10·cos(1.7·(p2 − p2'))·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))·sin(1.7·(t[l] − p2'))
    s10' = s10·(cos(1.7·(p2 − p2'))² − sin(1.7·(p2 − p2'))²) − 4·s9·cos(1.7·(p2 − p2'))·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))² − sin(1.7·(t[l] − p2'))²

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    p2_a = arctan2(s2_a, s3_a)/3.4
    p1_a = s_a/N_l
    p2_b = arctan2(s2_b, s3_b)/3.4
    p1_b = s_b/N_l
    p2'  = arctan2(s2', s3')/3.4
    p1'  = s'/N_l
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s4'  = s4_a·cos(1.7·(p2_a − p2')) − s6_a·sin(1.7·(p2_a − p2')) + δ_a·s8_a·cos(1.7·(p2_a − p2')) − δ_a·s1_a·sin(1.7·(p2_a − p2')) + s4_b·cos(1.7·(p2_b − p2')) − s6_b·sin(1.7·(p2_b − p2')) + δ_b·s8_b·cos(1.7·(p2_b − p2')) − δ_b·s1_b·sin(1.7·(p2_b − p2'))
    s6'  = s6_a·cos(1.7·(p2_a − p2')) + s4_a·sin(1.7·(p2_a − p2')) + δ_a·s1_a·cos(1.7·(p2_a − p2')) + δ_a·s8_a·sin(1.7·(p2_a − p2')) + s6_b·cos(1.7·(p2_b − p2')) + s4_b·sin(1.7·(p2_b − p2')) + δ_b·s1_b·cos(1.7·(p2_b − p2')) + δ_b·s8_b·sin(1.7·(p2_b − p2'))
    s1'  = s1_a·cos(1.7·(p2_a − p2')) + s8_a·sin(1.7·(p2_a − p2')) + s1_b·cos(1.7·(p2_b − p2')) + s8_b·sin(1.7·(p2_b − p2'))
    s8'  = s8_a·cos(1.7·(p2_a − p2')) − s1_a·sin(1.7·(p2_a − p2')) + s8_b·cos(1.7·(p2_b − p2')) − s1_b·sin(1.7·(p2_b − p2'))
    s5'  = s5_a·(cos(1.7·(p2_a − p2'))² + sin(1.7·(p2_a − p2'))²) − 2·s9_a·cos(1.7·(p2_a − p2'))·sin(1.7·(p2_a − p2')) − s10_a·sin(1.7·(p2_a − p2'))² + s5_b·(cos(1.7·(p2_b − p2'))² + sin(1.7·(p2_b − p2'))²) − 2·s9_b·cos(1.7·(p2_b − p2'))·sin(1.7·(p2_b − p2')) − s10_b·sin(1.7·(p2_b − p2'))²
    s9'  = s9_a·(cos(1.7·(p2_a − p2'))² − sin(1.7·(p2_a − p2'))²) + s10_a·cos(1.7·(p2_a − p2'))·sin(1.7·(p2_a − p2')) + s9_b·(cos(1.7·(p2_b − p2'))² − sin(1.7·(p2_b − p2'))²) + s10_b·cos(1.7·(p2_b − p2'))·sin(1.7·(p2_b − p2'))
    s10' = s10_a·(cos(1.7·(p2_a − p2'))² − sin(1.7·(p2_a − p2'))²) − 4·s9_a·cos(1.7·(p2_a − p2'))·sin(1.7·(p2_a − p2')) + s10_b·(cos(1.7·(p2_b − p2'))² − sin(1.7·(p2_b − p2'))²) − 4·s9_b·cos(1.7·(p2_b − p2'))·sin(1.7·(p2_b − p2'))

Dangers
    s5 divides and may be 0: the result is then what IEEE division gives
    s7 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, sin_of_sum, cos_of_sum
Certificate: sha256 11f12fd1d2a19cc6e18df3e4d16603aba50d67347158881c8847c8ffe980865b
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python lomb_scargle_cuda.py` checks it on a GPU.
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

load_4 = ptx("{.reg .pred p; setp.ne.s32 p, $5, 0; mov.f32 $0, 0f00000000; mov.f32 $1, 0f00000000; mov.f32 $2, 0f00000000; mov.f32 $3, 0f00000000; @p ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];}", "ffff", "lr")
load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_4(pointer, there)
    for k in range(4):
        v[first + k] = numbers[k]

SIZE, VECTOR, FLIGHT, ROWS = 4, 4, 2, 8
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1


@cuda.jit(device=True)
def value_p1(s, n_l):
    return s / f8(n_l)


@cuda.jit(device=True)
def value_p2(s2, s3):
    return math.atan2(s2, s3) / 3.4


@cuda.jit(device=True)
def rebase_s4(p2, p2_new, s4, s6, p1, p1_new, s8, s1):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t7 = sin(t4)
    t13 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t16 = (0.0 if s4 == 0.0 else t5 * s4) + (0.0 if s6 == 0.0 else -t7 * s6) + (0.0 if s8 == 0.0 else t5 * t13 * s8)
    return t16 + (0.0 if s1 == 0.0 else -(t13 * t7) * s1)


@cuda.jit(device=True)
def rebase_s6(p2, p2_new, s6, s4, p1, p1_new, s1, s8):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t7 = sin(t4)
    t12 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    t15 = (0.0 if s6 == 0.0 else t5 * s6) + (0.0 if s4 == 0.0 else t7 * s4) + (0.0 if s1 == 0.0 else t5 * t12 * s1)
    return t15 + (0.0 if s8 == 0.0 else t12 * t7 * s8)


@cuda.jit(device=True)
def rebase_s1(p2, p2_new, s1, s8):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t7 = sin(t4)
    return (0.0 if s1 == 0.0 else t5 * s1) + (0.0 if s8 == 0.0 else t7 * s8)


@cuda.jit(device=True)
def rebase_s8(p2, p2_new, s8, s1):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t8 = -sin(t4)
    return (0.0 if s8 == 0.0 else t5 * s8) + (0.0 if s1 == 0.0 else t8 * s1)


@cuda.jit(device=True)
def rebase_s5(p2, p2_new, s5, s9, s10):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t7 = sin(t4)
    t8 = t7 * t7
    t16 = 0.0 if s10 == 0.0 else -t8 * s10
    return (0.0 if s5 == 0.0 else (t5 * t5 + t8) * s5) + (0.0 if s9 == 0.0 else -2.0 * (t5 * t7) * s9) + t16


@cuda.jit(device=True)
def rebase_s9(p2, p2_new, s9, s10):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t7 = sin(t4)
    return (0.0 if s9 == 0.0 else (t5 * t5 - t7 * t7) * s9) + (0.0 if s10 == 0.0 else t5 * t7 * s10)


@cuda.jit(device=True)
def rebase_s10(p2, p2_new, s10, s9):
    t4 = 1.7 * ((p2 if math.isfinite(p2) else 0.0) - (p2_new if math.isfinite(p2_new) else 0.0))
    t5 = cos(t4)
    t7 = sin(t4)
    return (0.0 if s10 == 0.0 else (t5 * t5 - t7 * t7) * s10) + (0.0 if s9 == 0.0 else -4.0 * (t5 * t7) * s9)


@cuda.jit(device=True)
def fold(seen_old, s_old, s2_old, s3_old, s4_old, s6_old, s1_old, s8_old, s5_old, s9_old, s10_old, ok, v_y, v_t):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old, s_old, s2_old, s3_old, s4_old, s6_old, s1_old, s8_old, s5_old, s9_old, s10_old
    seen = i4(seen_old + many)
    p1_old = value_p1(s_old, seen_old)
    p2_old = value_p2(s2_old, s3_old)
    s = s_old
    s_it = f4(0.0)
    s2 = s2_old
    s2_it = f4(0.0)
    s3 = s3_old
    s3_it = f4(0.0)
    s_of = f4(0.0)
    s2_of = f4(0.0)
    s3_of = f4(0.0)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        s_of = s_of + v_y[i_l]
        t1 = f4(3.4) * v_t[i_l]
        s2_of = s2_of + sin(t1)
        s3_of = s3_of + cos(t1)
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s_it = s_it + sel(ok[i_l], s_of, f4(0.0))
            s_of = f4(0.0)
            s2_it = s2_it + sel(ok[i_l], s2_of, f4(0.0))
            s2_of = f4(0.0)
            s3_it = s3_it + sel(ok[i_l], s3_of, f4(0.0))
            s3_of = f4(0.0)
        unrolled()
    s = s + f8(s_it)
    s2 = s2 + f8(s2_it)
    s3 = s3 + f8(s3_it)
    p1 = value_p1(s, seen)
    p2 = value_p2(s2, s3)
    s4 = rebase_s4(p2_old, p2, s4_old, s6_old, p1_old, p1, s8_old, s1_old) if seen_old > 0 else s4_old
    s4_it = f4(0.0)
    s6 = rebase_s6(p2_old, p2, s6_old, s4_old, p1_old, p1, s1_old, s8_old) if seen_old > 0 else s6_old
    s6_it = f4(0.0)
    s1 = rebase_s1(p2_old, p2, s1_old, s8_old) if seen_old > 0 else s1_old
    s1_it = f4(0.0)
    s8 = rebase_s8(p2_old, p2, s8_old, s1_old) if seen_old > 0 else s8_old
    s8_it = f4(0.0)
    s5 = rebase_s5(p2_old, p2, s5_old, s9_old, s10_old) if seen_old > 0 else s5_old
    s5_it = f4(0.0)
    s9 = rebase_s9(p2_old, p2, s9_old, s10_old) if seen_old > 0 else s9_old
    s9_it = f4(0.0)
    s10 = rebase_s10(p2_old, p2, s10_old, s9_old) if seen_old > 0 else s10_old
    s10_it = f4(0.0)
    t4 = p2 if math.isfinite(p2) else 0.0
    t8 = p1 if math.isfinite(p1) else 0.0
    s4_of = f4(0.0)
    s6_of = f4(0.0)
    s1_of = f4(0.0)
    s8_of = f4(0.0)
    s5_of = f4(0.0)
    s9_of = f4(0.0)
    s10_of = f4(0.0)
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t6 = f4(1.7) * (v_t[i_l] - f4(t4))
        t7 = cos(t6)
        t9 = v_y[i_l] - f4(t8)
        s4_of = s4_of + t7 * t9
        t11 = sin(t6)
        s6_of = s6_of + t9 * t11
        s1_of = s1_of + t11
        s8_of = s8_of + t7
        t13 = t7 * t7
        s5_of = s5_of + t13
        s9_of = s9_of + t7 * t11
        s10_of = s10_of + (t13 - t11 * t11)
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s4_it = s4_it + sel(ok[i_l], s4_of, f4(0.0))
            s4_of = f4(0.0)
            s6_it = s6_it + sel(ok[i_l], s6_of, f4(0.0))
            s6_of = f4(0.0)
            s1_it = s1_it + sel(ok[i_l], s1_of, f4(0.0))
            s1_of = f4(0.0)
            s8_it = s8_it + sel(ok[i_l], s8_of, f4(0.0))
            s8_of = f4(0.0)
            s5_it = s5_it + sel(ok[i_l], s5_of, f4(0.0))
            s5_of = f4(0.0)
            s9_it = s9_it + sel(ok[i_l], s9_of, f4(0.0))
            s9_of = f4(0.0)
            s10_it = s10_it + sel(ok[i_l], s10_of, f4(0.0))
            s10_of = f4(0.0)
        unrolled()
    s4 = s4 + f8(s4_it)
    s6 = s6 + f8(s6_it)
    s1 = s1 + f8(s1_it)
    s8 = s8 + f8(s8_it)
    s5 = s5 + f8(s5_it)
    s9 = s9 + f8(s9_it)
    s10 = s10 + f8(s10_it)
    return seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10


@cuda.jit(device=True)
def combine(seen_old, s_old, s2_old, s3_old, s4_old, s6_old, s1_old, s8_old, s5_old, s9_old, s10_old, width):
    seen = sum_over(seen_old, width)
    p1_old = value_p1(s_old, seen_old)
    p2_old = value_p2(s2_old, s3_old)
    s = sum_over(s_old, width)
    s2 = sum_over(s2_old, width)
    s3 = sum_over(s3_old, width)
    p1 = value_p1(s, seen)
    p2 = value_p2(s2, s3)
    s4 = sum_over(rebase_s4(p2_old, p2, s4_old, s6_old, p1_old, p1, s8_old, s1_old) if seen_old > 0 else 0.0, width)
    s6 = sum_over(rebase_s6(p2_old, p2, s6_old, s4_old, p1_old, p1, s1_old, s8_old) if seen_old > 0 else 0.0, width)
    s1 = sum_over(rebase_s1(p2_old, p2, s1_old, s8_old) if seen_old > 0 else 0.0, width)
    s8 = sum_over(rebase_s8(p2_old, p2, s8_old, s1_old) if seen_old > 0 else 0.0, width)
    s5 = sum_over(rebase_s5(p2_old, p2, s5_old, s9_old, s10_old) if seen_old > 0 else 0.0, width)
    s9 = sum_over(rebase_s9(p2_old, p2, s9_old, s10_old) if seen_old > 0 else 0.0, width)
    s10 = sum_over(rebase_s10(p2_old, p2, s10_old, s9_old) if seen_old > 0 else 0.0, width)
    return seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10


@cuda.jit(device=True)
def settle_s4(p2, p1, s4):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t4 = cos(t3)
    t5 = sin(t3)
    t8 = p1
    t9 = t8 - t8
    t14 = t4 + -t5 + t4 * t9 + -(t9 * t5)
    return nan if t14 != t14 else s4


@cuda.jit(device=True)
def settle_s6(p2, p1, s6):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t4 = cos(t3)
    t5 = sin(t3)
    t7 = p1
    t8 = t7 - t7
    t12 = t4 + t5 + t4 * t8 + t8 * t5
    return nan if t12 != t12 else s6


@cuda.jit(device=True)
def settle_s1(p2, s1):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t6 = cos(t3) + sin(t3)
    return nan if t6 != t6 else s1


@cuda.jit(device=True)
def settle_s8(p2, s8):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t7 = cos(t3) + -sin(t3)
    return nan if t7 != t7 else s8


@cuda.jit(device=True)
def settle_s5(p2, s5):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t4 = cos(t3)
    t6 = sin(t3)
    t7 = t6 * t6
    t13 = t4 * t4 + t7 + -2.0 * (t4 * t6) + -t7
    return nan if t13 != t13 else s5


@cuda.jit(device=True)
def settle_s9(p2, s9):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t4 = cos(t3)
    t6 = sin(t3)
    t10 = t4 * t4 - t6 * t6 + t4 * t6
    return nan if t10 != t10 else s9


@cuda.jit(device=True)
def settle_s10(p2, s10):
    t1 = p2
    t3 = 1.7 * (t1 - t1)
    t4 = cos(t3)
    t6 = sin(t3)
    t11 = t4 * t4 - t6 * t6 + -4.0 * (t4 * t6)
    return nan if t11 != t11 else s10


@cuda.jit(device=True)
def value_s7(s10, s5):
    return larger(-s10 + s5, 0.0)


@cuda.jit(device=True)
def output_0(s4, s5, s6, s7):
    return f4(0.5 * (s4 * s4 / s5 + s6 * s6 / s7))


@cuda.jit(device=True)
def finish(seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10):
    p1 = value_p1(s, seen)
    p2 = value_p2(s2, s3)
    s4 = settle_s4(p2, p1, s4)
    s6 = settle_s6(p2, p1, s6)
    s1 = settle_s1(p2, s1)
    s8 = settle_s8(p2, s8)
    s5 = settle_s5(p2, s5)
    s9 = settle_s9(p2, s9)
    s10 = settle_s10(p2, s10)
    s7 = value_s7(s10, s5)
    return output_0(s4, s5, s6, s7)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_t, p_y, even_y, ok, at, v_t, v_y):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_t + place * SIZE, full, v_t, flight * VECTOR)
        if even_y:
            load_vector(p_y + place * SIZE, full, v_y, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_y[flight * VECTOR + k] = load_one(p_y + (place + k) * SIZE, full)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_t[TILE] = load_one(p_t + at[TILE] * SIZE, edge)
    v_y[TILE] = load_one(p_y + at[TILE] * SIZE, edge)


@cache
def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(t, s_t, y, s_y, n_l, items, parts, piece, part_seen, part_s, part_s2, part_s3, part_s4, part_s6, part_s1, part_s8, part_s5, part_s9, part_s10, out_0):
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
        o_t = rest * s_t
        p_t = address(t) + o_t * SIZE
        o_y = rest * s_y
        p_y = address(y) + o_y * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_t + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        even_y = (p_y + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_t = cuda.local.array(SLOTS, f4)
        v_y = cuda.local.array(SLOTS, f4)
        seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10 = i4(0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_t, p_y, even_y, ok, at, v_t, v_y)
            seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10 = fold(seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10, ok, v_y, v_t)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            s = sel(there, part_s[place], 0.0)
            s2 = sel(there, part_s2[place], 0.0)
            s3 = sel(there, part_s3[place], 0.0)
            s4 = sel(there, part_s4[place], 0.0)
            s6 = sel(there, part_s6[place], 0.0)
            s1 = sel(there, part_s1[place], 0.0)
            s8 = sel(there, part_s8[place], 0.0)
            s5 = sel(there, part_s5[place], 0.0)
            s9 = sel(there, part_s9[place], 0.0)
            s10 = sel(there, part_s10[place], 0.0)
        seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10 = combine(seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_s = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s3 = cuda.shared.array(32, f8)
        shared_s4 = cuda.shared.array(32, f8)
        shared_s6 = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        shared_s8 = cuda.shared.array(32, f8)
        shared_s5 = cuda.shared.array(32, f8)
        shared_s9 = cuda.shared.array(32, f8)
        shared_s10 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s[warp] = s
                shared_s2[warp] = s2
                shared_s3[warp] = s3
                shared_s4[warp] = s4
                shared_s6[warp] = s6
                shared_s1[warp] = s1
                shared_s8[warp] = s8
                shared_s5[warp] = s5
                shared_s9[warp] = s9
                shared_s10[warp] = s10
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s3 = sel(lane < warps, shared_s3[lane % warps], 0.0)
                s4 = sel(lane < warps, shared_s4[lane % warps], 0.0)
                s6 = sel(lane < warps, shared_s6[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                s8 = sel(lane < warps, shared_s8[lane % warps], 0.0)
                s5 = sel(lane < warps, shared_s5[lane % warps], 0.0)
                s9 = sel(lane < warps, shared_s9[lane % warps], 0.0)
                s10 = sel(lane < warps, shared_s10[lane % warps], 0.0)
                seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10 = combine(seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10, warps)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_s[item * parts + part] = s
                part_s2[item * parts + part] = s2
                part_s3[item * parts + part] = s3
                part_s4[item * parts + part] = s4
                part_s6[item * parts + part] = s6
                part_s1[item * parts + part] = s1
                part_s8[item * parts + part] = s8
                part_s5[item * parts + part] = s5
                part_s9[item * parts + part] = s9
                part_s10[item * parts + part] = s10
        elif warp == 0 or alone:
            result_0 = finish(seen, s, s2, s3, s4, s6, s1, s8, s5, s9, s10)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'t': ('l',), 'y': ('l',)}
DTYPES = {'t': np.float32, 'y': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(t, y):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'t': t, 'y': y}
    sizes, leading, steps = checked(arrays)
    items, length = math.prod(leading), sizes['l']
    warps = 1 if length <= 32 * TILE else 4 if length <= 512 * TILE else 8
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // blocks, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part'), blocks * parts, threads), ((8, 'join'), items, 256)] if parts > 1 else [((warps, 'whole'), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items), np.int64(parts), np.int64(piece)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(t, y, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(t, y)
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


def definition(t, y):
    """lomb_scargle as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    t = spread(t, 'l')
    y = spread(y, 'l')
    lengths = {"l": t.shape[-1]}
    t1 = y - np.sum(y, along("l"), keepdims=True) / lengths["l"]
    t2 = 3.4 * t
    t3 = 1.7 * (t - np.arctan2(np.sum(np.sin(t2), along("l"), keepdims=True), np.sum(np.cos(t2), along("l"), keepdims=True)) / 3.4)
    t4 = np.cos(t3)
    t5 = np.sin(t3)
    return taken_out(0.5 * (np.sum(t1 * t4, along("l"), keepdims=True) ** 2 / np.sum(t4 * t4, along("l"), keepdims=True) + np.sum(t1 * t5, along("l"), keepdims=True) ** 2 / np.sum(t5 * t5, along("l"), keepdims=True)), '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"t": rng.standard_normal((3, length)).astype(DTYPES['t']),
                  "y": rng.standard_normal((3, length)).astype(DTYPES['y'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"lomb_scargle, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
