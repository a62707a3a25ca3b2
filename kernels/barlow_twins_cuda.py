"""barlow_twins: one pass over l, 6 words of state per row, commutative merge.

X_ij = mean â_li ĉ_lj of standardised views; y = Σ_i (X_ii − 1)² + 0.005 Σ_{i≠j} X_ij².

The operator
    barlow_twins(A[l, i], C[l, j]):
        t1 = A - sum(A, l) / size(l)
        t2 = C - sum(C, l) / size(l)
        t3 = sum(t1 / sqrt(sum(t1 ** 2, l) / size(l)) * (t2 / sqrt(sum(t2 ** 2, l) / size(l))), l) / size(l)
        return sum(sum(where(index(i) == index(j), (t3 - 1.0) ** 2, 0.005 * t3 ** 2), j), i)

One more element (a prime marks the new value)
    s'  = s + A[l,i]
    N'  = N + 1
    p1' = s'/N'
    δ1  = p1 − p1'
    s2' = s2 + δ1²·N + (A[l,i] − p1')²
    s3' = s3 + C[l,j]
    p2' = s3'/N'
    δ2  = p2 − p2'
    s4' = s4 + δ2²·N + (C[l,j] − p2')²
    s1' = s1 + δ1·δ2·N + (A[l,i] − p1')·(C[l,j] − p2')

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s2'  = s2_a + δ1_a²·N_a + s2_b + δ1_b²·N_b
    s3'  = s3_a + s3_b
    p2_a = s3_a/N_a
    p2_b = s3_b/N_b
    p2'  = s3'/N'
    δ2_a = p2_a − p2'
    δ2_b = p2_b − p2'
    s4'  = s4_a + δ2_a²·N_a + s4_b + δ2_b²·N_b
    s1'  = s1_a + δ1_a·δ2_a·N_a + s1_b + δ1_b·δ2_b·N_b

Dangers
    p3 divides and may be 0: the result is then what IEEE division gives
    p4 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 ab7eef29c1316387236a8ebe346456cab32cfdfff6f7b6e0f68c9cc3fd4d456b
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python barlow_twins_cuda.py` checks it on a GPU.
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

def turns_of(width, banks):
    """How places are turned so that neither a row of them nor a column of the tile meets a bank twice: (shift, mask)."""
    power = width & -width
    return max(banks, power).bit_length() - 1, min(power, banks) - 1


@cuda.jit(device=True)
def cell(element, width, column, shift, mask):
    """Where a column of an element of the tile lies in shared memory."""
    place = element * width + column
    return place ^ (place >> shift & mask)


@cuda.jit(device=True)
def stage_real(cells, pointer, low, high, steps, shift, mask, thread, span):
    """Fill shared memory with real numbers; before `low` and from `high` on with 0."""
    for step in range(steps):
        word = step * span + thread
        cells[word ^ (word >> shift & mask)] = load_one(pointer + word * SIZE, sel(word >= low and word < high, i4(1), i4(0)))


load_one = _instruction("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)
SIZE, VECTOR, FLIGHT = 4, 4, 4
TILE = VECTOR * FLIGHT
SLOTS = TILE + 1
ROWS = 1


@cuda.jit(device=True)
def value_p1(into, vN, s, n_i):
    t1 = 1.0 / f8(vN)
    for i_i in range(n_i):
        t2 = s[i_i] * t1
        into[i_i] = t2


@cuda.jit(device=True)
def value_p2(into, vN, s3, n_j):
    t1 = 1.0 / f8(vN)
    for i_j in range(n_j):
        t2 = s3[i_j] * t1
        into[i_j] = t2


@cuda.jit(device=True)
def rebase_s2(into, s2, p1, p1_new, vN, n_i):
    for i_i in range(n_i):
        t1 = p1[i_i] if math.isfinite(p1[i_i]) else 0.0
        t2 = p1_new[i_i] if math.isfinite(p1_new[i_i]) else 0.0
        t3 = t1 - t2
        t4 = t3 * t3
        t5 = 0.0 if f8(vN) == 0.0 else t4 * f8(vN)
        t6 = s2[i_i] + t5
        into[i_i] = t6


@cuda.jit(device=True)
def rebase_s4(into, s4, p2, p2_new, vN, n_j):
    for i_j in range(n_j):
        t1 = p2[i_j] if math.isfinite(p2[i_j]) else 0.0
        t2 = p2_new[i_j] if math.isfinite(p2_new[i_j]) else 0.0
        t3 = t1 - t2
        t4 = t3 * t3
        t5 = 0.0 if f8(vN) == 0.0 else t4 * f8(vN)
        t6 = s4[i_j] + t5
        into[i_j] = t6


@cuda.jit(device=True)
def rebase_s1(into, n_j, s1, p1, p1_new, p2, p2_new, vN, n_i):
    for i_i in range(n_i):
        t1 = p1[i_i] if math.isfinite(p1[i_i]) else 0.0
        t2 = p1_new[i_i] if math.isfinite(p1_new[i_i]) else 0.0
        t3 = t1 - t2
        for i_j in range(n_j):
            t4 = p2[i_j] if math.isfinite(p2[i_j]) else 0.0
            t5 = p2_new[i_j] if math.isfinite(p2_new[i_j]) else 0.0
            t6 = t4 - t5
            t7 = t3 * t6
            t8 = 0.0 if f8(vN) == 0.0 else t7 * f8(vN)
            t9 = s1[(i_i) * n_j + i_j] + t8
            into[(i_i) * n_j + i_j] = t9


@cuda.jit(device=True)
def fold(seen_old, vN_old, slots, first, span, thread, length, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, cells_A, skew_A, shift_A, mask_A, cells_C, skew_C, shift_C, mask_C, p1, p2, s2, s4, s1):
    many = 0
    for slot in range(slots):
        many += sel((first + slot * span + thread < length), 1, 0)
    if many == 0:
        return seen_old, vN_old
    seen = seen_old + many
    for word in range(n_i):
        s_old[word] = s[word]
    for word in range(n_j):
        s3_old[word] = s3[word]
    value_p1(p1_old, vN_old, s_old, n_i)
    value_p2(p2_old, vN_old, s3_old, n_j)
    vN = vN_old + 1 * many
    for i_l in range(slots):
        for i_i in range(n_i):
            s[i_i] = s[i_i] + sel((first + i_l * span + thread < length), f8(cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)]), 0.0)
    for i_l in range(slots):
        for i_j in range(n_j):
            s3[i_j] = s3[i_j] + sel((first + i_l * span + thread < length), f8(cells_C[cell(i_l * span + thread, n_j, i_j + skew_C, shift_C, mask_C)]), 0.0)
    value_p1(p1, vN, s, n_i)
    value_p2(p2, vN, s3, n_j)
    if seen_old > 0:
        rebase_s2(s2, s2, p1_old, p1, vN_old, n_i)
    if seen_old > 0:
        rebase_s4(s4, s4, p2_old, p2, vN_old, n_j)
    if seen_old > 0:
        rebase_s1(s1, n_j, s1, p1_old, p1, p2_old, p2, vN_old, n_i)
    for i_l in range(slots):
        for i_i in range(n_i):
            t1 = p1[i_i] if math.isfinite(p1[i_i]) else 0.0
            t2 = f8(cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)]) - t1
            t3 = t2 * t2
            s2[i_i] = s2[i_i] + sel((first + i_l * span + thread < length), t3, 0.0)
    for i_l in range(slots):
        for i_j in range(n_j):
            t4 = p2[i_j] if math.isfinite(p2[i_j]) else 0.0
            t5 = f8(cells_C[cell(i_l * span + thread, n_j, i_j + skew_C, shift_C, mask_C)]) - t4
            t6 = t5 * t5
            s4[i_j] = s4[i_j] + sel((first + i_l * span + thread < length), t6, 0.0)
    for i_l in range(slots):
        for i_i in range(n_i):
            t7 = p1[i_i] if math.isfinite(p1[i_i]) else 0.0
            t8 = f8(cells_A[cell(i_l * span + thread, n_i, i_i + skew_A, shift_A, mask_A)]) - t7
            for i_j in range(n_j):
                t9 = p2[i_j] if math.isfinite(p2[i_j]) else 0.0
                t10 = f8(cells_C[cell(i_l * span + thread, n_j, i_j + skew_C, shift_C, mask_C)]) - t9
                t11 = t8 * t10
                s1[(i_i) * n_j + i_j] = s1[(i_i) * n_j + i_j] + sel((first + i_l * span + thread < length), t11, 0.0)
    return seen, vN


@cuda.jit(device=True)
def combine(seen_old, vN_old, width, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, p1, p2, s2, s4, s1):
    seen = seen_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            seen += cuda.shfl_xor_sync(0xFFFFFFFF, seen, by)
    for word in range(n_i):
        s_old[word] = s[word]
    for word in range(n_j):
        s3_old[word] = s3[word]
    value_p1(p1_old, vN_old, s_old, n_i)
    value_p2(p2_old, vN_old, s3_old, n_j)
    vN = vN_old
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            vN = vN + cuda.shfl_xor_sync(0xFFFFFFFF, vN, by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i):
                s[word] = s[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_j):
                s3[word] = s3[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s3[word], by)
    value_p1(p1, vN, s, n_i)
    value_p2(p2, vN, s3, n_j)
    if seen_old > 0:
        rebase_s2(s2, s2, p1_old, p1, vN_old, n_i)
    if seen_old > 0:
        rebase_s4(s4, s4, p2_old, p2, vN_old, n_j)
    if seen_old > 0:
        rebase_s1(s1, n_j, s1, p1_old, p1, p2_old, p2, vN_old, n_i)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i):
                s2[word] = s2[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s2[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_j):
                s4[word] = s4[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s4[word], by)
    for step in range(5):
        by = width >> step + 1
        if by > 0:
            for word in range(n_i * n_j):
                s1[word] = s1[word] + cuda.shfl_xor_sync(0xFFFFFFFF, s1[word], by)
    return seen, vN


@cuda.jit(device=True)
def settle_s2(into, p1, s2, vN, n_i):
    for i_i in range(n_i):
        t1 = p1[i_i]
        t2 = t1 - t1
        t3 = t2 * t2
        t4 = t3 * 1.0
        t5 = 1.0 + t4
        t6 = t5 != t5
        t7 = s2[i_i] - s2[i_i]
        t8 = t7 == 0.0
        t9 = p1[i_i] - p1[i_i]
        t10 = t9 == 0.0
        t11 = p1[i_i] if t10 else f8(0)
        t12 = t11 - p1[i_i]
        t13 = t12 * t12
        t14 = t13 * f8(vN)
        t15 = s2[i_i] + t14
        t16 = t15 if t8 else nan
        t17 = t16 if t6 else s2[i_i]
        into[i_i] = t17


@cuda.jit(device=True)
def settle_s4(into, p2, s4, vN, n_j):
    for i_j in range(n_j):
        t1 = p2[i_j]
        t2 = t1 - t1
        t3 = t2 * t2
        t4 = t3 * 1.0
        t5 = 1.0 + t4
        t6 = t5 != t5
        t7 = s4[i_j] - s4[i_j]
        t8 = t7 == 0.0
        t9 = p2[i_j] - p2[i_j]
        t10 = t9 == 0.0
        t11 = p2[i_j] if t10 else f8(0)
        t12 = t11 - p2[i_j]
        t13 = t12 * t12
        t14 = t13 * f8(vN)
        t15 = s4[i_j] + t14
        t16 = t15 if t8 else nan
        t17 = t16 if t6 else s4[i_j]
        into[i_j] = t17


@cuda.jit(device=True)
def settle_s1(into, n_j, p1, p2, s1, vN, n_i):
    for i_i in range(n_i):
        t1 = p1[i_i]
        t2 = t1 - t1
        t11 = p1[i_i] - p1[i_i]
        t12 = t11 == 0.0
        t13 = p1[i_i] if t12 else f8(0)
        t14 = t13 - p1[i_i]
        for i_j in range(n_j):
            t3 = p2[i_j]
            t4 = t3 - t3
            t5 = t2 * t4
            t6 = t5 * 1.0
            t7 = 1.0 + t6
            t8 = t7 != t7
            t9 = s1[(i_i) * n_j + i_j] - s1[(i_i) * n_j + i_j]
            t10 = t9 == 0.0
            t15 = p2[i_j] - p2[i_j]
            t16 = t15 == 0.0
            t17 = p2[i_j] if t16 else f8(0)
            t18 = t17 - p2[i_j]
            t19 = t14 * t18
            t20 = t19 * f8(vN)
            t21 = s1[(i_i) * n_j + i_j] + t20
            t22 = t21 if t10 else nan
            t23 = t22 if t8 else s1[(i_i) * n_j + i_j]
            into[(i_i) * n_j + i_j] = t23


@cuda.jit(device=True)
def value_p3(into, vN, s2, n_i):
    t1 = 1.0 / f8(vN)
    for i_i in range(n_i):
        t2 = s2[i_i] * t1
        t3 = math.sqrt(t2)
        into[i_i] = t3


@cuda.jit(device=True)
def value_p4(into, vN, s4, n_j):
    t1 = 1.0 / f8(vN)
    for i_j in range(n_j):
        t2 = s4[i_j] * t1
        t3 = math.sqrt(t2)
        into[i_j] = t3


@cuda.jit(device=True)
def value_s5(into, n_j, p3, p4, s1, n_i):
    for i_i in range(n_i):
        t1 = 1.0 / p3[i_i]
        for i_j in range(n_j):
            t2 = 1.0 / p4[i_j]
            t3 = t1 * t2
            t4 = t3 * s1[(i_i) * n_j + i_j]
            into[(i_i) * n_j + i_j] = t4


@cuda.jit(device=True)
def output_0(n_l, s5, n_j, n_i):
    t1 = 0.0
    t4 = 1.0 / f8(n_l)
    for i_i in range(n_i):
        t2 = 0.0
        for i_j in range(n_j):
            t3 = i_i == i_j
            t5 = s5[(i_i) * n_j + i_j] * t4
            t6 = t5 - 1.0
            t7 = t6 * t6
            t8 = t5 * t5
            t9 = 0.005 * t8
            t10 = t7 if t3 else t9
            t2 = t2 + t10
        t1 = t1 + t2
    return f4(t1)


@cuda.jit(device=True)
def finish(seen, vN, p1, n_i, s, s2, p2, n_j, s3, s4, s1, p3, p4, s5):
    value_p1(p1, vN, s, n_i)
    settle_s2(s2, p1, s2, vN, n_i)
    value_p2(p2, vN, s3, n_j)
    settle_s4(s4, p2, s4, vN, n_j)
    settle_s1(s1, n_j, p1, p2, s1, vN, n_i)
    value_p3(p3, vN, s2, n_i)
    value_p4(p4, vN, s4, n_j)
    value_s5(s5, n_j, p3, p4, s1, n_i)
    return output_0(seen, s5, n_j, n_i)


def make(warps, stage, slots, n_i, n_j):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
    words_s = n_i
    words_s3 = n_j
    words_s2 = n_i
    words_s4 = n_j
    words_s1 = n_i * n_j
    words_p1 = n_i
    words_p2 = n_j
    words_p3 = n_i
    words_p4 = n_j
    words_s5 = n_i * n_j
    words_s_old = n_i
    words_s3_old = n_j
    words_p1_old = n_i
    words_p2_old = n_j
    room_s = warps * (words_s | 1)
    room_s3 = warps * (words_s3 | 1)
    room_s2 = warps * (words_s2 | 1)
    room_s4 = warps * (words_s4 | 1)
    room_s1 = warps * (words_s1 | 1)
    words_A = n_i
    shift_A, mask_A = turns_of(words_A, 32)
    steps_A = 0 if joins else -(-(slots * span * words_A + 32 // SIZE) // span)
    room_A = max(steps_A * span, 1)
    words_C = n_j
    shift_C, mask_C = turns_of(words_C, 32)
    steps_C = 0 if joins else -(-(slots * span * words_C + 32 // SIZE) // span)
    room_C = max(steps_C * span, 1)

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(vA, s_A, vC, s_C, n_l, items, parts, piece, part_seen, part_vN, part_s, part_s3, part_s2, part_s4, part_s1, out_0):
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
        o_A = rest * s_A
        p_A = address(vA) + o_A * SIZE
        o_C = rest * s_C
        p_C = address(vC) + o_C * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        cells_A = cuda.shared.array(room_A, f4)
        cells_C = cuda.shared.array(room_C, f4)
        s = cuda.local.array(words_s, f8)
        s3 = cuda.local.array(words_s3, f8)
        s2 = cuda.local.array(words_s2, f8)
        s4 = cuda.local.array(words_s4, f8)
        s1 = cuda.local.array(words_s1, f8)
        p1 = cuda.local.array(words_p1, f8)
        p2 = cuda.local.array(words_p2, f8)
        p3 = cuda.local.array(words_p3, f8)
        p4 = cuda.local.array(words_p4, f8)
        s5 = cuda.local.array(words_s5, f8)
        s_old = cuda.local.array(words_s_old, f8)
        s3_old = cuda.local.array(words_s3_old, f8)
        p1_old = cuda.local.array(words_p1_old, f8)
        p2_old = cuda.local.array(words_p2_old, f8)
        seen, vN = i8(0), 0
        for word in range(words_s):
            s[word] = 0.0
        for word in range(words_s3):
            s3[word] = 0.0
        for word in range(words_s2):
            s2[word] = 0.0
        for word in range(words_s4):
            s4[word] = 0.0
        for word in range(words_s1):
            s1[word] = 0.0
        first = 0
        more = not joins
        while more:
            cuda.syncthreads()
            lead = p_A + (begin + first) * words_A * SIZE
            skew_A = lead // SIZE % (32 // SIZE)
            stage_real(cells_A, lead - skew_A * SIZE, skew_A, skew_A + min(slots * span, length - first) * words_A, steps_A, shift_A, mask_A, thread, span)
            lead = p_C + (begin + first) * words_C * SIZE
            skew_C = lead // SIZE % (32 // SIZE)
            stage_real(cells_C, lead - skew_C * SIZE, skew_C, skew_C + min(slots * span, length - first) * words_C, steps_C, shift_C, mask_C, thread, span)
            cuda.syncthreads()
            seen, vN = fold(seen, vN, slots, first, span, thread, length, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, cells_A, skew_A, shift_A, mask_A, cells_C, skew_C, shift_C, mask_C, p1, p2, s2, s4, s1)
            first += slots * span
            more = first < length
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i8(0))
            vN = sel(there, part_vN[place], 0)
            for word in range(words_s):
                s[word] = sel(there, part_s[place * words_s + word], 0.0)
            for word in range(words_s3):
                s3[word] = sel(there, part_s3[place * words_s3 + word], 0.0)
            for word in range(words_s2):
                s2[word] = sel(there, part_s2[place * words_s2 + word], 0.0)
            for word in range(words_s4):
                s4[word] = sel(there, part_s4[place * words_s4 + word], 0.0)
            for word in range(words_s1):
                s1[word] = sel(there, part_s1[place * words_s1 + word], 0.0)
        seen, vN = combine(seen, vN, 32, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, p1, p2, s2, s4, s1)
        shared_seen = cuda.shared.array(32, i8)
        shared_vN = cuda.shared.array(32, i8)
        shared_s = cuda.shared.array(room_s, f8)
        shared_s3 = cuda.shared.array(room_s3, f8)
        shared_s2 = cuda.shared.array(room_s2, f8)
        shared_s4 = cuda.shared.array(room_s4, f8)
        shared_s1 = cuda.shared.array(room_s1, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_vN[warp] = vN
                for word in range(words_s):
                    shared_s[warp * (words_s | 1) + word] = s[word]
                for word in range(words_s3):
                    shared_s3[warp * (words_s3 | 1) + word] = s3[word]
                for word in range(words_s2):
                    shared_s2[warp * (words_s2 | 1) + word] = s2[word]
                for word in range(words_s4):
                    shared_s4[warp * (words_s4 | 1) + word] = s4[word]
                for word in range(words_s1):
                    shared_s1[warp * (words_s1 | 1) + word] = s1[word]
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i8(0))
                vN = sel(lane < warps, shared_vN[lane % warps], 0)
                for word in range(words_s):
                    s[word] = sel(lane < warps, shared_s[lane % warps * (words_s | 1) + word], 0.0)
                for word in range(words_s3):
                    s3[word] = sel(lane < warps, shared_s3[lane % warps * (words_s3 | 1) + word], 0.0)
                for word in range(words_s2):
                    s2[word] = sel(lane < warps, shared_s2[lane % warps * (words_s2 | 1) + word], 0.0)
                for word in range(words_s4):
                    s4[word] = sel(lane < warps, shared_s4[lane % warps * (words_s4 | 1) + word], 0.0)
                for word in range(words_s1):
                    s1[word] = sel(lane < warps, shared_s1[lane % warps * (words_s1 | 1) + word], 0.0)
                seen, vN = combine(seen, vN, warps, n_i, s_old, s, n_j, s3_old, s3, p1_old, p2_old, p1, p2, s2, s4, s1)
        if splits:
            if thread == 0:
                part_seen[item * parts + part] = seen
                part_vN[item * parts + part] = vN
                for word in range(words_s):
                    part_s[(item * parts + part) * words_s + word] = s[word]
                for word in range(words_s3):
                    part_s3[(item * parts + part) * words_s3 + word] = s3[word]
                for word in range(words_s2):
                    part_s2[(item * parts + part) * words_s2 + word] = s2[word]
                for word in range(words_s4):
                    part_s4[(item * parts + part) * words_s4 + word] = s4[word]
                for word in range(words_s1):
                    part_s1[(item * parts + part) * words_s1 + word] = s1[word]
        elif warp == 0 or alone:
            result_0 = finish(seen, vN, p1, n_i, s, s2, p2, n_j, s3, s4, s1, p3, p4, s5)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'vA': ('l', 'i'), 'vC': ('l', 'j')}
DTYPES = {'vA': np.float32, 'vC': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int64, ()), (np.int64, ()), (np.float64, ('i',)), (np.float64, ('j',)), (np.float64, ('i',)), (np.float64, ('j',)), (np.float64, ('i', 'j'))]
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


def plan(vA, vC):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'vA': vA, 'vC': vC})
    items, length = math.prod(leading), sizes['l']
    state = 8 * sizes['i'] + 8 * sizes['j'] + 8 * sizes['i'] + 8 * sizes['j'] + 8 * sizes['i'] * sizes['j']
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    element = 4 * sizes['i'] + 4 * sizes['j']
    shapes = [(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length]
    fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= 45056]
    if not fits:
        raise ValueError(f"an element takes {element} bytes, and a block has room for 1408: take fewer columns at a time")
    warps, slots = fits[0]
    blocks, threads = (-(-items // ROWS), 32 * ROWS) if warps == 1 else (items, 32 * warps)
    parts = max(1, min(256, 1024 // items, length // 8192)) if length >= 65536 else 1
    piece = -(-length // parts // 32) * 32 if parts > 1 else length
    launches = [((warps, 'part', slots, sizes['i'], sizes['j']), items * parts, 32 * warps), ((8, 'join', slots, sizes['i'], sizes['j']), items, 256)] if parts > 1 else [((warps, 'whole', slots, sizes['i'], sizes['j']), blocks, threads)]
    arguments = [
        vA,
        np.int64(1 * sizes['l'] * sizes['i'] * (len(described(vA)[0]) > 2)),
        vC,
        np.int64(1 * sizes['l'] * sizes['j'] * (len(described(vC)[0]) > 2)),
        np.int64(sizes['l']),
        np.int64(items),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(vA, vC, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(vA, vC)
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



ALL_AXES = ('l', 'i', 'j')


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


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in ALL_AXES])


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


def definition(A, C):
    """barlow_twins as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    A = spread(A, 'l i')
    C = spread(C, 'l j')
    lengths = {"l": A.shape[-3], "i": A.shape[-2], "j": C.shape[-1]}
    t1 = A - reduced("sum", A, "l") / lengths["l"]
    t2 = C - reduced("sum", C, "l") / lengths["l"]
    t3 = reduced("sum", t1 / np.sqrt(reduced("sum", t1 ** 2, "l") / lengths["l"]) * (t2 / np.sqrt(reduced("sum", t2 ** 2, "l") / lengths["l"])), "l") / lengths["l"]
    return taken_out(reduced("sum", reduced("sum", np.where(positions("i", lengths["i"]) == positions("j", lengths["j"]), (t3 - 1.0) ** 2, 0.005 * t3 ** 2), "j"), "i"), '', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(A, C):
    """`launch` with the axes as the operator has them."""
    outputs = launch(A, C)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], (), ()),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'A': 'normal', 'C': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"i": 4, "j": 5, "l": length}, np.random.default_rng(length)
        axes, names = {'A': ('l', 'i'), 'C': ('l', 'j')}, {'A': 'vA', 'C': 'vC'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"barlow_twins, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
