"""si_sdr: one pass over l, 6 words of state per row, commutative merge.

α = Σ s e/Σ s² of the centred signals; y = 10 log₁₀(Σ (αs)² / Σ (e − αs)²).

The operator
    si_sdr(s[l], e[l]):
        t1 = s - sum(s, l) / size(l)
        t2 = e - sum(e, l) / size(l)
        t3 = sum(t1 * t2, l) / sum(t1 * t1, l) * t1
        return 10.0 * log(sum(t3 ** 2, l) / sum((t2 - t3) ** 2, l)) / log(10.0)

One more element (a prime marks the new value)
    s2' = s2 + s[l]
    s3' = s3 + e[l]
    N'  = N + 1
    p1' = s2'/N'
    p2' = s3'/N'
    δ1  = p1 − p1'
    δ2  = p2 − p2'
    s4' = s4 + δ1·δ2·N + (e[l] − p2')·(s[l] − p1')
    s5' = s5 + δ1²·N + (s[l] − p1')²
    s1' = s1 + δ2²·N + (e[l] − p2')²

Two states a and b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    N'   = N_a + N_b
    p1_a = s2_a/N_a
    p2_a = s3_a/N_a
    p1_b = s2_b/N_b
    p2_b = s3_b/N_b
    p1'  = s2'/N'
    p2'  = s3'/N'
    δ1_a = p1_a − p1'
    δ2_a = p2_a − p2'
    δ1_b = p1_b − p1'
    δ2_b = p2_b − p2'
    s4'  = s4_a + δ1_a·δ2_a·N_a + s4_b + δ1_b·δ2_b·N_b
    s5'  = s5_a + δ1_a²·N_a + s5_b + δ1_b²·N_b
    s1'  = s1_a + δ2_a²·N_a + s1_b + δ2_b²·N_b

Dangers
    s5 divides and may be 0: the result is then what IEEE division gives
    s7 divides and may be 0: the result is then what IEEE division gives
    s7 = s1 − 2·p3·s4 + p3²·s5 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 5a9532128682ec329d2ea4999194439083cf633dd8589b2a94497f2e68039a05
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python si_sdr_cuda.py` checks it on a GPU.
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
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)
SIZE, VECTOR, FLIGHT = 4, 4, 2
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1
ROWS = 8


@cuda.jit(device=True)
def value_p1(s2, vN):
    t1 = s2 / f8(vN)
    return t1


@cuda.jit(device=True)
def value_p2(s3, vN):
    t1 = s3 / f8(vN)
    return t1


@cuda.jit(device=True)
def rebase_s4(s4, p1, p1_new, p2, p2_new, vN):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = p2 if math.isfinite(p2) else 0.0
    t5 = p2_new if math.isfinite(p2_new) else 0.0
    t6 = t4 - t5
    t7 = t3 * t6
    t8 = 0.0 if f8(vN) == 0.0 else t7 * f8(vN)
    t9 = s4 + t8
    return t9


@cuda.jit(device=True)
def rebase_s5(s5, p1, p1_new, vN):
    t1 = p1 if math.isfinite(p1) else 0.0
    t2 = p1_new if math.isfinite(p1_new) else 0.0
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = 0.0 if f8(vN) == 0.0 else t4 * f8(vN)
    t6 = s5 + t5
    return t6


@cuda.jit(device=True)
def rebase_s1(s1, p2, p2_new, vN):
    t1 = p2 if math.isfinite(p2) else 0.0
    t2 = p2_new if math.isfinite(p2_new) else 0.0
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = 0.0 if f8(vN) == 0.0 else t4 * f8(vN)
    t6 = s1 + t5
    return t6


@cuda.jit(device=True)
def fold(seen_old, s2_old, s3_old, vN_old, s4_old, s5_old, s1_old, ok, v_s, v_e):
    many = 0
    for slot in range(SLOTS):
        many += sel(ok[slot], 1, 0)
    if many == 0:
        return seen_old, s2_old, s3_old, vN_old, s4_old, s5_old, s1_old
    seen = seen_old + many
    p1_old = value_p1(s2_old, vN_old)
    p2_old = value_p2(s3_old, vN_old)
    s2 = s2_old
    s2_it = 0.0
    s3 = s3_old
    s3_it = 0.0
    vN = vN_old + 1 * many
    for i_l in range(SLOTS):
        s2_it = s2_it + sel(ok[i_l], f8(v_s[i_l]), 0.0)
        s3_it = s3_it + sel(ok[i_l], f8(v_e[i_l]), 0.0)
    s2 = s2 + s2_it
    s3 = s3 + s3_it
    p1 = value_p1(s2, vN)
    p2 = value_p2(s3, vN)
    s4 = (rebase_s4(s4_old, p1_old, p1, p2_old, p2, vN_old) if seen_old > 0 else s4_old)
    s4_it = 0.0
    s5 = (rebase_s5(s5_old, p1_old, p1, vN_old) if seen_old > 0 else s5_old)
    s5_it = 0.0
    s1 = (rebase_s1(s1_old, p2_old, p2, vN_old) if seen_old > 0 else s1_old)
    s1_it = 0.0
    t1 = p2 if math.isfinite(p2) else 0.0
    t3 = p1 if math.isfinite(p1) else 0.0
    for i_l in range(SLOTS):
        t2 = f8(v_e[i_l]) - t1
        t4 = f8(v_s[i_l]) - t3
        t5 = t2 * t4
        s4_it = s4_it + sel(ok[i_l], t5, 0.0)
        t6 = t4 * t4
        s5_it = s5_it + sel(ok[i_l], t6, 0.0)
        t7 = t2 * t2
        s1_it = s1_it + sel(ok[i_l], t7, 0.0)
    s4 = s4 + s4_it
    s5 = s5 + s5_it
    s1 = s1 + s1_it
    return seen, s2, s3, vN, s4, s5, s1


@cuda.jit(device=True)
def combine(seen_old, s2_old, s3_old, vN_old, s4_old, s5_old, s1_old, width):
    seen = seen_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            seen += cuda.shfl_xor_sync(0xFFFFFFFF, seen, by)
    p1_old = value_p1(s2_old, vN_old)
    p2_old = value_p2(s3_old, vN_old)
    s2 = s2_old
    s3 = s3_old
    vN = vN_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s2 = s2 + cuda.shfl_xor_sync(0xFFFFFFFF, s2, by)
            s3 = s3 + cuda.shfl_xor_sync(0xFFFFFFFF, s3, by)
            vN = vN + cuda.shfl_xor_sync(0xFFFFFFFF, vN, by)
    p1 = value_p1(s2, vN)
    p2 = value_p2(s3, vN)
    s4 = rebase_s4(s4_old, p1_old, p1, p2_old, p2, vN_old) if seen_old > 0 else 0.0
    s5 = rebase_s5(s5_old, p1_old, p1, vN_old) if seen_old > 0 else 0.0
    s1 = rebase_s1(s1_old, p2_old, p2, vN_old) if seen_old > 0 else 0.0
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            s4 = s4 + cuda.shfl_xor_sync(0xFFFFFFFF, s4, by)
            s5 = s5 + cuda.shfl_xor_sync(0xFFFFFFFF, s5, by)
            s1 = s1 + cuda.shfl_xor_sync(0xFFFFFFFF, s1, by)
    return seen, s2, s3, vN, s4, s5, s1


@cuda.jit(device=True)
def settle_s4(p1, p2, s4, vN):
    t1 = p1
    t2 = t1 - t1
    t3 = p2
    t4 = t3 - t3
    t5 = t2 * t4
    t6 = t5 * 1.0
    t7 = 1.0 + t6
    t8 = t7 != t7
    t9 = s4 - s4
    t10 = t9 == 0.0
    t11 = p1 - p1
    t12 = t11 == 0.0
    t13 = p1 if t12 else f8(0)
    t14 = t13 - p1
    t15 = p2 - p2
    t16 = t15 == 0.0
    t17 = p2 if t16 else f8(0)
    t18 = t17 - p2
    t19 = t14 * t18
    t20 = t19 * f8(vN)
    t21 = s4 + t20
    t22 = t21 if t10 else nan
    t23 = t22 if t8 else s4
    return t23


@cuda.jit(device=True)
def settle_s5(p1, s5, vN):
    t1 = p1
    t2 = t1 - t1
    t3 = t2 * t2
    t4 = t3 * 1.0
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s5 - s5
    t8 = t7 == 0.0
    t9 = p1 - p1
    t10 = t9 == 0.0
    t11 = p1 if t10 else f8(0)
    t12 = t11 - p1
    t13 = t12 * t12
    t14 = t13 * f8(vN)
    t15 = s5 + t14
    t16 = t15 if t8 else nan
    t17 = t16 if t6 else s5
    return t17


@cuda.jit(device=True)
def settle_s1(p2, s1, vN):
    t1 = p2
    t2 = t1 - t1
    t3 = t2 * t2
    t4 = t3 * 1.0
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s1 - s1
    t8 = t7 == 0.0
    t9 = p2 - p2
    t10 = t9 == 0.0
    t11 = p2 if t10 else f8(0)
    t12 = t11 - p2
    t13 = t12 * t12
    t14 = t13 * f8(vN)
    t15 = s1 + t14
    t16 = t15 if t8 else nan
    t17 = t16 if t6 else s1
    return t17


@cuda.jit(device=True)
def value_p3(s4, s5):
    t1 = s4 / s5
    return t1


@cuda.jit(device=True)
def value_s6(p3, s5):
    t1 = p3 * p3
    t2 = t1 * s5
    return t2


@cuda.jit(device=True)
def value_s7(s1, p3, s4, s5):
    t1 = (-2.0) * p3
    t2 = t1 * s4
    t3 = s1 + t2
    t4 = p3 * p3
    t5 = t4 * s5
    t6 = t3 + t5
    return t6


@cuda.jit(device=True)
def output_0(s6, s7):
    t1 = s6 / s7
    t2 = math.log(t1)
    t3 = 10.0 * t2
    t4 = math.log(10.0)
    t5 = t3 / t4
    return f4(t5)


@cuda.jit(device=True)
def finish(seen, s2, s3, vN, s4, s5, s1):
    p1 = value_p1(s2, vN)
    p2 = value_p2(s3, vN)
    s4 = settle_s4(p1, p2, s4, vN)
    s5 = settle_s5(p1, s5, vN)
    s1 = settle_s1(p2, s1, vN)
    p3 = value_p3(s4, s5)
    s6 = value_s6(p3, s5)
    s7 = value_s7(s1, p3, s4, s5)
    return output_0(s6, s7)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_s, p_e, even_e, ok, at, v_s, v_e):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = first + flight * span + thread
        full = number < vectors
        place = begin + head + number * VECTOR
        for k in range(VECTOR):
            ok[flight * VECTOR + k] = full
            at[flight * VECTOR + k] = i4(place + k)
        v_s[flight * VECTOR + 0], v_s[flight * VECTOR + 1], v_s[flight * VECTOR + 2], v_s[flight * VECTOR + 3] = load_vector(p_s + place * SIZE, sel(full, i4(1), i4(0)))
        if even_e:
            v_e[flight * VECTOR + 0], v_e[flight * VECTOR + 1], v_e[flight * VECTOR + 2], v_e[flight * VECTOR + 3] = load_vector(p_e + place * SIZE, sel(full, i4(1), i4(0)))
        else:
            for k in range(VECTOR):
                v_e[flight * VECTOR + k] = load_one(p_e + (place + k) * SIZE, sel(full, i4(1), i4(0)))
    edge = first == 0 and thread < edges
    ok[TILE] = edge
    at[TILE] = i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_s[TILE] = load_one(p_s + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))
    v_e[TILE] = load_one(p_e + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))


def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(s, s_s, e, s_e, n_l, items, parts, piece, part_seen, part_s2, part_s3, part_vN, part_s4, part_s5, part_s1, out_0):
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
        o_s = rest * s_s
        p_s = address(s) + o_s * SIZE
        o_e = rest * s_e
        p_e = address(e) + o_e * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_s + begin * SIZE) // SIZE) % (32 // SIZE), length)
        vectors = (length - head) // VECTOR
        edges = length - vectors * VECTOR
        even_e = (p_e + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_s = cuda.local.array(SLOTS, f4)
        v_e = cuda.local.array(SLOTS, f4)
        seen, s2, s3, vN, s4, s5, s1 = i8(0), 0.0, 0.0, 0, 0.0, 0.0, 0.0
        first = 0
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_s, p_e, even_e, ok, at, v_s, v_e)
            seen, s2, s3, vN, s4, s5, s1 = fold(seen, s2, s3, vN, s4, s5, s1, ok, v_s, v_e)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i8(0))
            s2 = sel(there, part_s2[place], 0.0)
            s3 = sel(there, part_s3[place], 0.0)
            vN = sel(there, part_vN[place], 0)
            s4 = sel(there, part_s4[place], 0.0)
            s5 = sel(there, part_s5[place], 0.0)
            s1 = sel(there, part_s1[place], 0.0)
        seen, s2, s3, vN, s4, s5, s1 = combine(seen, s2, s3, vN, s4, s5, s1, 32)
        shared_seen = cuda.shared.array(32, i8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s3 = cuda.shared.array(32, f8)
        shared_vN = cuda.shared.array(32, i8)
        shared_s4 = cuda.shared.array(32, f8)
        shared_s5 = cuda.shared.array(32, f8)
        shared_s1 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s2[warp] = s2
                shared_s3[warp] = s3
                shared_vN[warp] = vN
                shared_s4[warp] = s4
                shared_s5[warp] = s5
                shared_s1[warp] = s1
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s3 = sel(lane < warps, shared_s3[lane % warps], 0.0)
                vN = sel(lane < warps, shared_vN[lane % warps], 0)
                s4 = sel(lane < warps, shared_s4[lane % warps], 0.0)
                s5 = sel(lane < warps, shared_s5[lane % warps], 0.0)
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                seen, s2, s3, vN, s4, s5, s1 = combine(seen, s2, s3, vN, s4, s5, s1, warps)
        if splits:
            if thread == 0:
                part_seen[item * parts + part] = seen
                part_s2[item * parts + part] = s2
                part_s3[item * parts + part] = s3
                part_vN[item * parts + part] = vN
                part_s4[item * parts + part] = s4
                part_s5[item * parts + part] = s5
                part_s1[item * parts + part] = s1
        elif warp == 0 or alone:
            result_0 = finish(seen, s2, s3, vN, s4, s5, s1)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'s': ('l',), 'e': ('l',)}
DTYPES = {'s': np.float32, 'e': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int64, ()), (np.float64, ()), (np.float64, ()), (np.int64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]
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


def plan(s, e):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'s': s, 'e': e})
    items, length = math.prod(leading), sizes['l']
    warps = next((w for w in (1, 8) if length <= 32 * w * TILE), 8)
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // items, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part'), items * parts, 32 * warps), ((8, 'join'), items, 256)] if parts > 1 else [((warps, 'whole'), blocks, threads)]
    arguments = [
        s,
        np.int64(1 * sizes['l'] * (len(described(s)[0]) > 1)),
        e,
        np.int64(1 * sizes['l'] * (len(described(e)[0]) > 1)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(s, e, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(s, e)
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


def definition(s, e):
    """si_sdr as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    s = spread(s, 'l')
    e = spread(e, 'l')
    lengths = {"l": s.shape[-1]}
    t1 = s - reduced("sum", s, "l") / lengths["l"]
    t2 = e - reduced("sum", e, "l") / lengths["l"]
    t3 = reduced("sum", t1 * t2, "l") / reduced("sum", t1 * t1, "l") * t1
    return taken_out(10.0 * np.log(reduced("sum", t3 ** 2, "l") / reduced("sum", (t2 - t3) ** 2, "l")) / np.log(10.0), '', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(s, e):
    """`launch` with the axes as the operator has them."""
    outputs = launch(s, e)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], (), ()),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'s': 'normal', 'e': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        axes, names = {'s': ('l',), 'e': ('l',)}, {'s': 's', 'e': 'e'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"si_sdr, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
