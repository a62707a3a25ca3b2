"""attn_activation_unsoftmax: one pass over l, 4 words of state per row, commutative merge.

GELU attention through softmax and back: s′ = log(gelu(s)+1), Σ softmax(s′)_l V_l · e^{lse s′} − Σ V_l.

The operator
    attn_activation_unsoftmax(q[d], K[l, d], V[l, v]):
        t1 = sum(q * K, d) / sqrt(size(d))
        t2 = log(0.5 * t1 * (1.0 + tanh(0.7978845608028654 * (t1 + 0.044715 * t1 ** 3))) + 1.0)
        d1 = max(t2, l)
        t3 = exp(t2 - d1)
        d2 = sum(t3, l)
        return sum(t3 * V, l) / d2 * exp(d1 + log(d2)) - sum(V, l)

One more element (a prime marks the new value)
    x   = log((0.5·(1 + tanh(0.7978845608028654·((Σ_d q[d]·K[l,d])/√(N_d) + 0.044715·((Σ_d q[d]·K[l,d])/√(N_d))³)))·Σ_d q[d]·K[l,d])/√(N_d) + 1)
    m'  = max(m, x)
    s'  = s·exp(m − m') + V[l,v]·exp(x − m')
    s2' = s2·exp(m − m') + exp(x − m')
    s3' = s3 + V[l,v]

Two states a and b
    m'  = max(m_a, m_b)
    s'  = s_a·exp(m_a − m') + s_b·exp(m_b − m')
    s2' = s2_a·exp(m_a − m') + s2_b·exp(m_b − m')
    s3' = s3_a + s3_b

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 72ed78836df8daa623953873b08ddb437c3d9077664f242886a67e41a02f1733
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python attn_activation_unsoftmax_cuda.py` checks it on a GPU.
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

def _extreme(sign, name):
    """NumPy's maximum or minimum of two floats: NaN wins."""
    @intrinsic
    def extreme(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            if kind == ir.FloatType():
                function = ir.FunctionType(kind, [kind, kind])
                return builder.call(ir.InlineAsm(function, name + ".NaN.f32 $0, $1, $2;", "=f,f,f"), args)
            first = builder.or_(builder.fcmp_ordered(sign, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.select(first, *args)
        return a(a, a), emit
    return extreme


larger = _extreme(">", "max")
smaller = _extreme("<", "min")


SIZE, CHUNK = 4, 4
load_one = _instruction("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = _instruction("st.global.f32 [$0], $1;", "", "lf", stores=True)

@intrinsic
def shared_address(context, array):
    """Where an array begins in shared memory."""
    def emit(context, builder, signature, args):
        pointer = context.make_array(signature.args[0])(context, builder, value=args[0]).data
        return builder.ptrtoint(builder.addrspacecast(pointer, ir.PointerType(pointer.type.pointee, 3)), ir.IntType(32))
    return types.int32(array), emit

copy_chunk = _instruction("cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr", stores=True)
copies_end = _instruction("cp.async.commit_group;", "", "", stores=True)
wait_for_copies = _instruction("cp.async.wait_group 0;", "", "", stores=True)
wait_for_all_but_the_last = _instruction("cp.async.wait_group 1;", "", "", stores=True)

@cuda.jit(device=True, forceinline=True)
def chunk_at(row, chunk, width):
    """Where a chunk of a row lies in a tile whose rows are `width` bytes long."""
    return i4(i4(row * width) + i4(i4(chunk ^ i4(row & 7)) << 4))

load_four = _instruction("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "ffff", "r", stores=True)
load_pair = _instruction("ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "r", stores=True)
keep_chunk = _instruction("st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "rffff", stores=True)
store_pair = _instruction("st.global.v2.f32 [$0], {$1, $2};", "", "lff", stores=True)


@cuda.jit(device=True, forceinline=True)
def multiply_rows(left, right, lane, steps, width, tile, s):
    """s += left · rightᵀ for the 16 rows at `left`, both with rows of 16 · steps numbers."""
    for k in range(4 * steps):
        a, b = load_four(i4(left + chunk_at(lane // 4, k, width))), load_four(i4(left + chunk_at(lane // 4 + 8, k, width)))
        for i in range(tile // 4):
            c = load_four(i4(right + chunk_at(8 * (i // 2) + 2 * (lane % 4) + i % 2, k, width)))
            s[0, i] += a[0] * c[0] + a[1] * c[1] + (a[2] * c[2] + a[3] * c[3])
            s[1, i] += b[0] * c[0] + b[1] * c[1] + (b[2] * c[2] + b[3] * c[3])

@cuda.jit(device=True, forceinline=True)
def add_weighted_rows(p, right, lane, width, tile, columns, o):
    """o += p · right for `tile` rows at `right`; a weight comes from the lane that has it, then the next moves up to its place."""
    for i in range(tile // 4):
        first, second = p[0, 0], p[1, 0]
        for k in range(tile // 4 - 1):
            p[0, k], p[1, k] = p[0, k + 1], p[1, k + 1]
        for quarter in range(4):
            a, b = cuda.shfl_sync(0xFFFFFFFF, first, (lane & 28) + quarter), cuda.shfl_sync(0xFFFFFFFF, second, (lane & 28) + quarter)
            for n in range(columns // 8):
                row = i4(8 * (i // 2) + 2 * quarter + i % 2)
                c, d = load_pair(i4(right + chunk_at(row, i4(2 * n + (lane % 4 >> 1)), width) + lane % 2 * 8))
                o[0, 2 * n] += a * c
                o[0, 2 * n + 1] += a * d
                o[1, 2 * n] += b * c
                o[1, 2 * n + 1] += b * d

@cuda.jit(device=True, forceinline=True)
def store_tile(shared, y, to, stride, rows, columns, height, span, vector, thread, threads):
    """Write a block's fragments: four lanes fill 32 bytes of a row."""
    lane = thread % 32
    for r in range(2):
        row = thread // 32 * 16 + lane // 4 + 8 * r
        for n in range(span // 8):
            column, target = 8 * n + 2 * (lane % 4), to + i8(row) * stride + (8 * n + 2 * (lane % 4)) * SIZE
            if row < rows and vector and column < columns:
                store_pair(target, y[r, 2 * n], y[r, 2 * n + 1])
            elif row < rows:
                for c in range(2):
                    if column + c < columns:
                        store_one(target + c * SIZE, y[r, 2 * n + c])

@cuda.jit(device=True, forceinline=True)
def load_tile(to, source, stride, rows, columns, height, width, vector, thread, threads):
    """Copy a tile of `height` rows of `width` bytes into shared memory; beyond `rows` and `columns` there are zeros."""
    first, rows, columns = i4(thread >> 3), i4(min(rows, height)), i4(min(columns, width))
    for panel in range(width // 128):
        chunk = i4((thread & 7) + 8 * panel)
        there = chunk * CHUNK < columns
        for i in range(height * 8 // threads):
            row = i4(first + i * (threads // 8))
            place, origin = i4(to + chunk_at(row, chunk, width)), source + i8(row) * stride + chunk * 16
            if vector:
                inside = there & (row < rows)
                copy_chunk(place, sel(inside, origin, source), sel(inside, i4(16), i4(0)))
            else:
                v = cuda.local.array(CHUNK, f4)
                for e in range(CHUNK):
                    v[e] = load_one(origin + e * SIZE, sel((row < rows) & (chunk * CHUNK + e < columns), i4(1), i4(0)))
                keep_chunk(place, v[0], v[1], v[2], v[3])

@cuda.jit(device=True, forceinline=True)
def bounded(factor):
    """A factor that leaves 0 what is 0, be it infinite; NaN stays."""
    return larger(smaller(factor, f4(3.4028235e38)), f4(-3.4028235e38))


def make(stage, warps, TILE, vector, n_d, n_v):
    """The kernel in which a block has 16 rows per warp, and tiles are TILE elements long: of "whole" rows, of a "part" of each, or the "join" of parts."""
    n_one = 1
    ROWS, THREADS, COLUMNS, splits = 16 * warps, 32 * warps, TILE // 4, stage == 'part'
    SPAN_v = span_of(n_v)
    AT_q, WIDTH_q = 0, width_of(n_d)
    STAGES = AT_q + ROWS * WIDTH_q
    AT_K, WIDTH_K = 0, width_of(n_d)
    AT_V, WIDTH_V = AT_K + TILE * WIDTH_K, width_of(SPAN_v)
    STAGE = AT_V + TILE * WIDTH_V
    SCORES = 2, COLUMNS
    SUMS_v = 2, SPAN_v // 4
    BYTES = shared_bytes(warps, TILE, n_d, n_v)

    @cuda.jit(device=True, forceinline=True)
    def make_q(to, t0, thread, n_d, p_q, begin_one, n_one):
        y = cuda.local.array(CHUNK, f4)
        for panel in range(WIDTH_q // 128):
            for i in range(ROWS * 8 // THREADS):
                row, chunk = i4((thread >> 3) + i * (THREADS // 8)), i4((thread & 7) + 8 * panel)
                at_one, first_d = i4(begin_one + row), i4(0 + chunk * CHUNK)
                there = (at_one < n_one) & (first_d < n_d)
                for e in range(CHUNK):
                    at_d = i4(first_d + e)
                    y[e] = sel(there & (at_d < n_d), load_one(p_q + (at_d) * SIZE, sel(there & (at_d < n_d), i4(1), i4(0))), f4(0))
                keep_chunk(i4(to + chunk_at(row, chunk, WIDTH_q)), y[0], y[1], y[2], y[3])

    @cuda.jit(device=True, forceinline=True)
    def fetch(to, t0, p_K, p_V, begin_v, begin_one, n_l, n_one, thread):
        load_tile(to + AT_K, p_K + t0 * n_d * SIZE, n_d * SIZE, n_l - t0, n_d - 0, TILE, WIDTH_K, vector, thread, THREADS)
        load_tile(to + AT_V, p_V + (t0 * n_v + begin_v) * SIZE, n_v * SIZE, n_l - t0, n_v - begin_v, TILE, WIDTH_V, vector, thread, THREADS)

    @cuda.jit(device=True, forceinline=True)
    def fold(whole, held_m, held_s2, n_d, S1, n_l, p_s3, first_l, p_s, o_s):
        t1 = math.sqrt(f4(n_d))
        t2 = f4(1.0) / t1
        for r in range(2):
            m_old = held_m[r]
            s2_old = held_s2[r]
            m = m_old
            m_it = f4(-inf)
            for i_l in range(COLUMNS):
                at_l = i4(first_l + i_l // 2 * 8 + i_l % 2)
                t3 = S1[r, i_l] * t2
                t4 = f4(0.5) * t3
                t5 = t3 * t3 * t3
                t6 = f4(0.044715) * t5
                t7 = t3 + t6
                t8 = f4(0.7978845608028654) * t7
                t9 = math.tanh(t8)
                t10 = f4(1.0) + t9
                t11 = t4 * t10
                t12 = t11 + f4(1.0)
                t13 = math.log(t12)
                ok = whole | (at_l < n_l)
                m_it = larger(m_it, sel(ok, t13, f4(-inf)))
                p_s3[r, i_l] = sel(ok, f4(1.0), f4(0))
            m_it = larger(m_it, cuda.shfl_xor_sync(0xFFFFFFFF, m_it, 1))
            m_it = larger(m_it, cuda.shfl_xor_sync(0xFFFFFFFF, m_it, 2))
            m = larger(m, m_it)
            t14 = sel(math.isfinite(m_old), m_old, f4(0.0))
            t15 = sel(math.isfinite(m), m, f4(0.0))
            t16 = t14 - t15
            t17 = math.exp(t16)
            t18 = sel(s2_old == f4(0.0), f4(0.0), t17 * s2_old)
            s2 = t18
            s2_it = f4(0.0)
            for i_l in range(COLUMNS):
                at_l = i4(first_l + i_l // 2 * 8 + i_l % 2)
                t19 = S1[r, i_l] * t2
                t20 = f4(0.5) * t19
                t21 = t19 * t19 * t19
                t22 = f4(0.044715) * t21
                t23 = t19 + t22
                t24 = f4(0.7978845608028654) * t23
                t25 = math.tanh(t24)
                t26 = f4(1.0) + t25
                t27 = t20 * t26
                t28 = t27 + f4(1.0)
                t29 = math.log(t28)
                t30 = t29 - t15
                t31 = math.exp(t30)
                ok = whole | (at_l < n_l)
                s2_it = s2_it + sel(ok, t31, f4(0.0))
                p_s[r, i_l] = sel(ok, t31, f4(0))
            s2_it = s2_it + cuda.shfl_xor_sync(0xFFFFFFFF, s2_it, 1)
            s2_it = s2_it + cuda.shfl_xor_sync(0xFFFFFFFF, s2_it, 2)
            s2 = s2 + s2_it
            t32 = bounded(t17)
            for i_v in range(SPAN_v // 4):
                t33 = t32 * o_s[r, i_v]
                o_s[r, i_v] = t33
            held_m[r] = m
            held_s2[r] = s2

    @cuda.jit(device=True, forceinline=True)
    def merge(held_m, other_m, held_s2, other_s2, o_s3, b_s3, o_s, b_s):
        for r in range(2):
            m_old, m_part = held_m[r], other_m[r]
            s2_old, s2_part = held_s2[r], other_s2[r]
            m = larger(m_old, m_part)
            t1 = sel(math.isfinite(m_old), m_old, f4(0.0))
            t2 = sel(math.isfinite(m), m, f4(0.0))
            t3 = t1 - t2
            t4 = math.exp(t3)
            t5 = sel(s2_old == f4(0.0), f4(0.0), t4 * s2_old)
            t6 = sel(math.isfinite(m_part), m_part, f4(0.0))
            t7 = t6 - t2
            t8 = math.exp(t7)
            t9 = sel(s2_part == f4(0.0), f4(0.0), t8 * s2_part)
            s2 = t5 + t9
            t10 = bounded(t4)
            t12 = bounded(t8)
            for i_v in range(SPAN_v // 4):
                t11 = t10 * o_s[r, i_v]
                t13 = t12 * b_s[r, i_v]
                both0 = o_s3[r, i_v] + b_s3[r, i_v]
                both1 = t11 + t13
                o_s3[r, i_v] = both0
                o_s[r, i_v] = both1
            held_m[r] = m
            held_s2[r] = s2

    @cuda.jit(device=True, forceinline=True)
    def finish(held_m, held_s2, o_s, y_0, o_s3):
        for r in range(2):
            m = held_m[r]
            s2 = held_s2[r]
            t1 = m
            t2 = t1 - t1
            t3 = math.exp(t2)
            t4 = t3 * f4(1.0)
            t5 = t4 != t4
            t6 = m - m
            t7 = t6 == f4(0.0)
            t8 = sel(t7, m, f4(0))
            t9 = t8 - m
            t10 = math.exp(t9)
            t11 = bounded(t10)
            for i_v in range(SPAN_v // 4):
                t12 = t11 * o_s[r, i_v]
                t13 = sel(t5, t12, o_s[r, i_v])
                o_s[r, i_v] = t13
            t14 = t10 * s2
            t15 = sel(t5, t14, s2)
            s2 = t15
            t16 = f4(1.0) / s2
            t18 = math.log(s2)
            t19 = m + t18
            t20 = math.exp(t19)
            for i_v in range(SPAN_v // 4):
                t17 = o_s[r, i_v] * t16
                t21 = t17 * t20
                t22 = t21 - o_s3[r, i_v]
                y_0[r, i_v] = t22

    @cuda.jit(launch_bounds=(THREADS, 1))
    def kernel(q, s_q, K, s_K, V, s_V, n_l, parts, piece, part_m, part_s2, part_s3, part_s, out_0):
        thread, number = i4(cuda.threadIdx.x), i8(cuda.blockIdx.x)
        part, number = number % parts, number // parts
        lane, warp = thread % 32, thread // 32
        begin_v = number % -(-n_v // SPAN_v) * SPAN_v
        number //= -(-n_v // SPAN_v)
        first_v = begin_v + lane % 4 * 2
        blocks = -(-n_one // ROWS)
        begin_one = (blocks - 1 - number % blocks) * ROWS
        first_one = begin_one + warp * 16 + lane // 4
        item = number // blocks
        rest = item
        o_q = rest * s_q
        p_q = address(q) + o_q * SIZE
        o_K = rest * s_K
        p_K = address(K) + o_K * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        S1 = cuda.local.array(SCORES, f4)
        p_s3 = cuda.local.array(SCORES, f4)
        p_s = cuda.local.array(SCORES, f4)
        o_s3 = cuda.local.array(SUMS_v, f4)
        o_s = cuda.local.array(SUMS_v, f4)
        held_m = cuda.local.array(2, f4)
        held_s2 = cuda.local.array(2, f4)
        for r in range(2):
            held_m[r] = f4(-inf)
            held_s2[r] = f4(0.0)
            for i in range(SPAN_v // 4):
                o_s3[r, i] = f4(0)
            for i in range(SPAN_v // 4):
                o_s[r, i] = f4(0)
        shared = shared_address(cuda.shared.array(BYTES, types.uint8))
        begin = i4(part * piece)
        end = i4(min(begin + piece, n_l))
        t0, half = begin, i4(0)
        make_q(shared + AT_q, t0, thread, n_d, p_q, begin_one, n_one)
        if t0 < end:
            fetch(shared + STAGES, t0, p_K, p_V, begin_v, begin_one, n_l, n_one, thread)
        copies_end()
        while t0 < end:
            ahead = i4(t0 + TILE)
            if ahead < end:
                fetch(shared + STAGES + (1 - half) * STAGE, ahead, p_K, p_V, begin_v, begin_one, n_l, n_one, thread)
            copies_end()
            wait_for_all_but_the_last()
            cuda.syncthreads()
            tile = shared + STAGES + half * STAGE
            first_l = i4(t0 + lane % 4 * 2)
            many = i4(min(TILE, n_l - t0))
            seen, seen_old = i4(t0 - begin + many), i4(t0 - begin)
            for r in range(2):
                for i in range(COLUMNS):
                    S1[r, i] = f4(0)
            multiply_rows(shared + AT_q + warp * 16 * WIDTH_q, tile + AT_K, lane, -(-n_d // 16), WIDTH_q, TILE, S1)
            if t0 + TILE <= n_l:
                fold(True, held_m, held_s2, n_d, S1, n_l, p_s3, first_l, p_s, o_s)
            else:
                fold(False, held_m, held_s2, n_d, S1, n_l, p_s3, first_l, p_s, o_s)
            add_weighted_rows(p_s3, tile + AT_V, lane, WIDTH_V, TILE, SPAN_v, o_s3)
            add_weighted_rows(p_s, tile + AT_V, lane, WIDTH_V, TILE, SPAN_v, o_s)
            cuda.syncthreads()
            t0, half = ahead, i4(1 - half)
        wait_for_copies()
        cuda.syncthreads()
        if splits:
            for r in range(2):
                inside = first_one + 8 * r < n_one
                place = (item * n_one + first_one + 8 * r) * parts + part
                if inside and lane % 4 == 0 and begin_v == 0:
                    part_m[place] = held_m[r]
                    part_s2[place] = held_s2[r]
                for i in range(SPAN_v // 4):
                    column = first_v + i // 2 * 8 + i % 2
                    if inside and column < n_v:
                        part_s3[place * n_v + column] = o_s3[r, i]
                for i in range(SPAN_v // 4):
                    column = first_v + i // 2 * 8 + i % 2
                    if inside and column < n_v:
                        part_s[place * n_v + column] = o_s[r, i]
        else:
            y_0 = cuda.local.array(SUMS_v, f4)
            finish(held_m, held_s2, o_s, y_0, o_s3)
            store_tile(shared, y_0, address(out_0) + ((item * n_one + begin_one) * n_v + begin_v) * SIZE, n_v * SIZE, n_one - begin_one, n_v - begin_v, ROWS, SPAN_v, vector, thread, THREADS)

    @cuda.jit(launch_bounds=(THREADS, 1))
    def join(q, s_q, K, s_K, V, s_V, n_l, parts, piece, part_m, part_s2, part_s3, part_s, out_0):
        thread, number = i4(cuda.threadIdx.x), i8(cuda.blockIdx.x)
        lane, warp = thread % 32, thread // 32
        begin_v = number % -(-n_v // SPAN_v) * SPAN_v
        number //= -(-n_v // SPAN_v)
        first_v = begin_v + lane % 4 * 2
        blocks = -(-n_one // ROWS)
        begin_one = (blocks - 1 - number % blocks) * ROWS
        first_one = begin_one + warp * 16 + lane // 4
        item = number // blocks
        rest = item
        o_q = rest * s_q
        p_q = address(q) + o_q * SIZE
        o_K = rest * s_K
        p_K = address(K) + o_K * SIZE
        o_V = rest * s_V
        p_V = address(V) + o_V * SIZE
        S1 = cuda.local.array(SCORES, f4)
        p_s3 = cuda.local.array(SCORES, f4)
        p_s = cuda.local.array(SCORES, f4)
        o_s3 = cuda.local.array(SUMS_v, f4)
        o_s = cuda.local.array(SUMS_v, f4)
        held_m = cuda.local.array(2, f4)
        held_s2 = cuda.local.array(2, f4)
        for r in range(2):
            held_m[r] = f4(-inf)
            held_s2[r] = f4(0.0)
            for i in range(SPAN_v // 4):
                o_s3[r, i] = f4(0)
            for i in range(SPAN_v // 4):
                o_s[r, i] = f4(0)
        b_s3 = cuda.local.array(SUMS_v, f4)
        b_s = cuda.local.array(SUMS_v, f4)
        other_m = cuda.local.array(2, f4)
        other_s2 = cuda.local.array(2, f4)
        for r in range(2):
            other_m[r] = f4(-inf)
            other_s2[r] = f4(0.0)
            for i in range(SPAN_v // 4):
                b_s3[r, i] = f4(0)
            for i in range(SPAN_v // 4):
                b_s[r, i] = f4(0)
        shared = shared_address(cuda.shared.array(BYTES, types.uint8))
        for part in range(parts):
            for r in range(2):
                inside = first_one + 8 * r < n_one
                place = (item * n_one + first_one + 8 * r) * parts + part
                if inside:
                    other_m[r] = part_m[place]
                    other_s2[r] = part_s2[place]
                for i in range(SPAN_v // 4):
                    column = first_v + i // 2 * 8 + i % 2
                    if inside and column < n_v:
                        b_s3[r, i] = part_s3[place * n_v + column]
                for i in range(SPAN_v // 4):
                    column = first_v + i // 2 * 8 + i % 2
                    if inside and column < n_v:
                        b_s[r, i] = part_s[place * n_v + column]
            seen_old, seen_part = part * piece, min(piece, n_l - part * piece)
            seen = seen_old + seen_part
            merge(held_m, other_m, held_s2, other_s2, o_s3, b_s3, o_s, b_s)
        y_0 = cuda.local.array(SUMS_v, f4)
        finish(held_m, held_s2, o_s, y_0, o_s3)
        store_tile(shared, y_0, address(out_0) + ((item * n_one + begin_one) * n_v + begin_v) * SIZE, n_v * SIZE, n_one - begin_one, n_v - begin_v, ROWS, SPAN_v, vector, thread, THREADS)

    return join if stage == 'join' else kernel


SCHEDULES, WIDEST = ((4, 64), (4, 32), (2, 64), (2, 32), (1, 64), (1, 32), (4, 16), (2, 16), (1, 16)), 128

def width_of(count):
    """Bytes of a row of so many numbers in shared memory: whole groups of eight chunks."""
    return -(-count * SIZE // 128) * 128


def span_of(count):
    """How many columns a block takes: all, if registers hold them."""
    return -(-count // 16) * 16 if count <= WIDEST else WIDEST // 32 * 16


def aligned(array):
    """Whether an array of the GPU begins at a multiple of 16 bytes; others are copied to such a place."""
    there = getattr(array, "__cuda_array_interface__", None)
    return there is None or there["data"][0] % 16 == 0


def shared_bytes(warps, TILE, n_d, n_v):
    """Bytes of shared memory for tiles that stay and two stages of those that come, or for results."""
    ROWS = 16 * warps
    SPAN_v = span_of(n_v)
    return max(ROWS * width_of(n_d) + 2 * (TILE * width_of(n_d) + TILE * width_of(SPAN_v)), 0 + ROWS * width_of(SPAN_v))


def numbers_held(warps, TILE, n_d, n_v):
    """Numbers in the fragments of a lane."""
    SPAN_v = span_of(n_v)
    return 3 * TILE // 2 + SPAN_v // 2 + SPAN_v // 2


AXES = {'q': ('d',), 'K': ('l', 'd'), 'V': ('l', 'v')}
DTYPES = {'q': np.float32, 'K': np.float32, 'V': np.float32}
OUTPUTS = [(('v',), np.float32)]
HELD = [(np.float32, ()), (np.float32, ()), (np.float32, ('v',)), (np.float32, ('v',))]
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


def plan(q, K, V):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'q': q, 'K': K, 'V': V})
    groups = math.prod(leading)
    vector = all(size % CHUNK == 0 for size in (sizes['d'], sizes['v'],)) and all(map(aligned, (q, K, V,)))
    schedules = [each for each in SCHEDULES if shared_bytes(*each, sizes['d'], sizes['v']) <= 49152 and numbers_held(*each, sizes['d'], sizes['v']) <= 160 and (each[0] == 1 or 8 * each[0] < 1)]
    if not schedules:
        raise ValueError(f"rows as long as {sizes} fit neither into shared memory nor into registers; shorten the axes that are no rows")
    warps, tile = schedules[0]
    blocks = groups * -(-1 // (16 * warps)) * -(-sizes['v'] // span_of(sizes['v']))
    parts = max(1, min(64, 256 // blocks, sizes['l'] // 512))
    piece = -(-sizes['l'] // (parts * tile)) * tile
    parts = -(-sizes['l'] // piece)
    make_for = (warps, tile, vector, sizes['d'], sizes['v'])
    launches = [(('part', *make_for), blocks * parts, 32 * warps), (('join', *make_for), blocks, 32 * warps)]
    launches = launches if parts > 1 else [(('whole', *make_for), blocks, 32 * warps)]
    items = groups * 1 if parts > 1 else 1
    arguments = [
        q,
        np.int64(1 * sizes['d'] * (len(described(q)[0]) > 1)),
        K,
        np.int64(1 * sizes['l'] * sizes['d'] * (len(described(K)[0]) > 2)),
        V,
        np.int64(1 * sizes['l'] * sizes['v'] * (len(described(V)[0]) > 2)),
        np.int32(sizes['l']),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(q, K, V, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(q, K, V)
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



ALL_AXES = ('d', 'l', 'v')


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


def definition(q, K, V):
    """attn_activation_unsoftmax as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    K = spread(K, 'l d')
    V = spread(V, 'l v')
    lengths = {"d": q.shape[-3], "l": K.shape[-2], "v": V.shape[-1]}
    t1 = reduced("sum", q * K, "d") / np.sqrt(lengths["d"])
    t2 = np.log(0.5 * t1 * (1.0 + np.tanh(0.7978845608028654 * (t1 + 0.044715 * t1 ** 3))) + 1.0)
    d1 = reduced("max", t2, "l")
    t3 = np.exp(t2 - d1)
    d2 = reduced("sum", t3, "l")
    return taken_out(reduced("sum", t3 * V, "l") / d2 * np.exp(d1 + np.log(d2)) - reduced("sum", V, "l"), 'v', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(q, K, V):
    """`launch` with the axes as the operator has them."""
    outputs = launch(q, K, V)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], ('v',), ('v',)),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'q': 'normal', 'K': 'normal', 'V': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"d": 3, "v": 5, "l": length}, np.random.default_rng(length)
        axes, names = {'q': ('d',), 'K': ('l', 'd'), 'V': ('l', 'v')}, {'q': 'q', 'K': 'K', 'V': 'V'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"attn_activation_unsoftmax, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
