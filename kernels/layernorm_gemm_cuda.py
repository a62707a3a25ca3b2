"""layernorm_gemm: one pass over l, 6 words of state per row, commutative merge.

Y_mn = Σ_l ((X_ml − μ_m)/σ_m·γ_l + β_l) W_ln.

The operator
    layernorm_gemm(X[m, l], g[l], b[l], W[l, n]):
        t1 = X - sum(X, l) / size(l)
        return sum((t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) * g + b) * W, l)

One more element (a prime marks the new value)
    x   = W[l,n]·g[l]
    s'  = s + X[m,l]
    N'  = N + 1
    p1' = s'/N'
    δ   = p1 − p1'
    s2' = s2 + δ²·N + (X[m,l] − p1')²
    s1' = s1 + δ·s4 + x·(X[m,l] − p1')
    s4' = s4 + x
    s5' = s5 + W[l,n]·b[l]

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b
    s1'  = s1_a + δ_a·s4_a + s1_b + δ_b·s4_b
    s4'  = s4_a + s4_b
    s5'  = s5_a + s5_b

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 3186c7520d3db674c8d3f5aefb340a9b71b61864c892de409e2e98c0738860cf
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python layernorm_gemm_cuda.py` checks it on a GPU.
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

load_pair = _instruction("ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "r", stores=True)
keep_chunk = _instruction("st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "rffff", stores=True)
store_pair = _instruction("st.global.v2.f32 [$0], {$1, $2};", "", "lff", stores=True)


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
def take_fragment(tile, lane, columns, v):
    """The fragment of the 16 rows at `tile`, as floats."""
    for r in range(2):
        for n in range(columns // 8):
            v[r, 2 * n], v[r, 2 * n + 1] = load_pair(i4(tile + chunk_at(lane // 4 + 8 * r, 2 * n + (lane % 4 >> 1), (columns * SIZE + 127) // 128 * 128) + lane % 2 * 8))

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


def make(stage, warps, TILE, vector, n_n):
    """The kernel in which a block has 16 rows per warp, and tiles are TILE elements long: of "whole" rows, of a "part" of each, or the "join" of parts."""
    ROWS, THREADS, COLUMNS, splits = 16 * warps, 32 * warps, TILE // 4, stage == 'part'
    SPAN_n = span_of(n_n)
    STAGES = 0
    AT_X, WIDTH_X = 0, width_of(TILE)
    AT_W, WIDTH_W = AT_X + ROWS * WIDTH_X, width_of(SPAN_n)
    STAGE = AT_W + TILE * WIDTH_W
    SCORES = 2, COLUMNS
    SUMS_n = 2, SPAN_n // 4
    BYTES = shared_bytes(warps, TILE, n_n)

    @cuda.jit(device=True, forceinline=True)
    def fetch(to, t0, p_X, p_W, begin_n, begin_m, n_l, n_m, thread):
        load_tile(to + AT_X, p_X + (begin_m * n_l + t0) * SIZE, n_l * SIZE, n_m - begin_m, n_l - t0, ROWS, WIDTH_X, vector, thread, THREADS)
        load_tile(to + AT_W, p_W + (t0 * n_n + begin_n) * SIZE, n_n * SIZE, n_l - t0, n_n - begin_n, TILE, WIDTH_W, vector, thread, THREADS)

    @cuda.jit(device=True, forceinline=True)
    def fold(whole, held_s, held_N, held_s2, many, x_X, n_l, p_g, p_s4, p_b, p_s5, first_l, seen_old, p_s1, o_s1, o_s4):
        for r in range(2):
            s_old = held_s[r]
            N_old = held_N[r]
            s2_old = held_s2[r]
            t1 = f4(1.0) / f4(N_old)
            t2 = s_old * t1
            p1_old = t2
            s = s_old
            N = N_old
            N += 1 * many
            s_it = f4(0.0)
            for i_l in range(COLUMNS):
                at_l = i4(first_l + i_l // 2 * 8 + i_l % 2)
                ok = whole | (at_l < n_l)
                s_it = s_it + sel(ok, x_X[r, i_l], f4(0.0))
                p_s4[r, i_l] = sel(ok, load_one(p_g + (at_l) * SIZE, sel((at_l < n_l), i4(1), i4(0))), f4(0))
                p_s5[r, i_l] = sel(ok, load_one(p_b + (at_l) * SIZE, sel((at_l < n_l), i4(1), i4(0))), f4(0))
            s_it = s_it + cuda.shfl_xor_sync(0xFFFFFFFF, s_it, 1)
            s_it = s_it + cuda.shfl_xor_sync(0xFFFFFFFF, s_it, 2)
            s = s + s_it
            t3 = f4(1.0) / f4(N)
            t4 = s * t3
            p1 = t4
            t5 = sel(math.isfinite(p1_old), p1_old, f4(0.0))
            t6 = sel(math.isfinite(p1), p1, f4(0.0))
            t7 = t5 - t6
            t8 = t7 * t7
            t9 = sel(f4(N_old) == f4(0.0), f4(0.0), t8 * f4(N_old))
            t10 = s2_old + t9
            s2 = sel(seen_old > 0, t10, s2_old)
            s2_it = f4(0.0)
            for i_l in range(COLUMNS):
                at_l = i4(first_l + i_l // 2 * 8 + i_l % 2)
                t11 = x_X[r, i_l] - t6
                t12 = t11 * t11
                ok = whole | (at_l < n_l)
                s2_it = s2_it + sel(ok, t12, f4(0.0))
                t13 = load_one(p_g + (at_l) * SIZE, sel((at_l < n_l), i4(1), i4(0))) * t11
                p_s1[r, i_l] = sel(ok, t13, f4(0))
            s2_it = s2_it + cuda.shfl_xor_sync(0xFFFFFFFF, s2_it, 1)
            s2_it = s2_it + cuda.shfl_xor_sync(0xFFFFFFFF, s2_it, 2)
            s2 = s2 + s2_it
            t14 = bounded(t7)
            for i_n in range(SPAN_n // 4):
                t15 = t14 * o_s4[r, i_n]
                t16 = o_s1[r, i_n] + t15
                o_s1[r, i_n] = t16
            held_s[r] = s
            held_N[r] = N
            held_s2[r] = s2

    @cuda.jit(device=True, forceinline=True)
    def merge(held_s, other_s, held_N, other_N, held_s2, other_s2, seen_old, seen_part, o_s4, b_s4, o_s5, b_s5, o_s1, b_s1):
        for r in range(2):
            s_old, s_part = held_s[r], other_s[r]
            N_old, N_part = held_N[r], other_N[r]
            s2_old, s2_part = held_s2[r], other_s2[r]
            t1 = f4(1.0) / f4(N_old)
            t2 = s_old * t1
            p1_old = t2
            t3 = f4(1.0) / f4(N_part)
            t4 = s_part * t3
            p1_part = t4
            s = s_old + s_part
            N = N_old + N_part
            t5 = f4(1.0) / f4(N)
            t6 = s * t5
            p1 = t6
            t7 = sel(math.isfinite(p1_old), p1_old, f4(0.0))
            t8 = sel(math.isfinite(p1), p1, f4(0.0))
            t9 = t7 - t8
            t10 = t9 * t9
            t11 = sel(f4(N_old) == f4(0.0), f4(0.0), t10 * f4(N_old))
            t12 = s2_old + t11
            t13 = sel(math.isfinite(p1_part), p1_part, f4(0.0))
            t14 = t13 - t8
            t15 = t14 * t14
            t16 = sel(f4(N_part) == f4(0.0), f4(0.0), t15 * f4(N_part))
            t17 = s2_part + t16
            s2 = sel(seen_old > 0, t12, s2_old) + sel(seen_part > 0, t17, s2_part)
            t18 = bounded(t9)
            t21 = bounded(t14)
            for i_n in range(SPAN_n // 4):
                t19 = t18 * o_s4[r, i_n]
                t20 = o_s1[r, i_n] + t19
                t22 = t21 * b_s4[r, i_n]
                t23 = b_s1[r, i_n] + t22
                both0 = o_s4[r, i_n] + b_s4[r, i_n]
                both1 = o_s5[r, i_n] + b_s5[r, i_n]
                both2 = t20 + t23
                o_s4[r, i_n] = both0
                o_s5[r, i_n] = both1
                o_s1[r, i_n] = both2
            held_s[r] = s
            held_N[r] = N
            held_s2[r] = s2

    @cuda.jit(device=True, forceinline=True)
    def finish(held_s, held_N, held_s2, o_s1, o_s4, y_0, o_s5):
        for r in range(2):
            s = held_s[r]
            N = held_N[r]
            s2 = held_s2[r]
            t1 = f4(1.0) / f4(N)
            t2 = s * t1
            p1 = t2
            t3 = p1
            t4 = t3 - t3
            t5 = t4 * t4
            t6 = t5 * f4(1.0)
            t7 = f4(1.0) + t6
            t8 = t7 != t7
            t9 = s2 - s2
            t10 = t9 == f4(0.0)
            t11 = p1 - p1
            t12 = t11 == f4(0.0)
            t13 = sel(t12, p1, f4(0))
            t14 = t13 - p1
            t15 = t14 * t14
            t16 = t15 * f4(N)
            t17 = s2 + t16
            t18 = sel(t10, t17, f4(nan))
            t19 = sel(t8, t18, s2)
            s2 = t19
            t20 = t4 * f4(1.0)
            t21 = f4(1.0) + t20
            t22 = t21 != t21
            t25 = bounded(t14)
            for i_n in range(SPAN_n // 4):
                t23 = o_s1[r, i_n] - o_s1[r, i_n]
                t24 = t23 == f4(0.0)
                t26 = t25 * o_s4[r, i_n]
                t27 = o_s1[r, i_n] + t26
                t28 = sel(t24, t27, f4(nan))
                t29 = sel(t22, t28, o_s1[r, i_n])
                o_s1[r, i_n] = t29
            t30 = s2 * t1
            t31 = t30 + f4(1e-05)
            t32 = math.sqrt(t31)
            p2 = t32
            t33 = f4(1.0) / p2
            for i_n in range(SPAN_n // 4):
                t34 = t33 * o_s1[r, i_n]
                t35 = t34 + o_s5[r, i_n]
                y_0[r, i_n] = t35

    @cuda.jit(launch_bounds=(THREADS, 1))
    def kernel(X, s_X, g, s_g, v_b, s_b, W, s_W, n_m, n_l, parts, piece, part_s, part_N, part_s2, part_s4, part_s5, part_s1, out_0):
        thread, number = i4(cuda.threadIdx.x), i8(cuda.blockIdx.x)
        part, number = number % parts, number // parts
        lane, warp = thread % 32, thread // 32
        begin_n = number % -(-n_n // SPAN_n) * SPAN_n
        number //= -(-n_n // SPAN_n)
        first_n = begin_n + lane % 4 * 2
        blocks = -(-n_m // ROWS)
        begin_m = (blocks - 1 - number % blocks) * ROWS
        first_m = begin_m + warp * 16 + lane // 4
        item = number // blocks
        rest = item
        o_X = rest * s_X
        p_X = address(X) + o_X * SIZE
        o_g = rest * s_g
        p_g = address(g) + o_g * SIZE
        o_b = rest * s_b
        p_b = address(v_b) + o_b * SIZE
        o_W = rest * s_W
        p_W = address(W) + o_W * SIZE
        x_X = cuda.local.array(SCORES, f4)
        p_s4 = cuda.local.array(SCORES, f4)
        p_s5 = cuda.local.array(SCORES, f4)
        p_s1 = cuda.local.array(SCORES, f4)
        o_s4 = cuda.local.array(SUMS_n, f4)
        o_s5 = cuda.local.array(SUMS_n, f4)
        o_s1 = cuda.local.array(SUMS_n, f4)
        held_s = cuda.local.array(2, f4)
        held_N = cuda.local.array(2, i8)
        held_s2 = cuda.local.array(2, f4)
        for r in range(2):
            held_s[r] = f4(0.0)
            held_N[r] = 0
            held_s2[r] = f4(0.0)
            for i in range(SPAN_n // 4):
                o_s4[r, i] = f4(0)
            for i in range(SPAN_n // 4):
                o_s5[r, i] = f4(0)
            for i in range(SPAN_n // 4):
                o_s1[r, i] = f4(0)
        shared = shared_address(cuda.shared.array(BYTES, types.uint8))
        begin = i4(part * piece)
        end = i4(min(begin + piece, n_l))
        t0, half = begin, i4(0)
        if t0 < end:
            fetch(shared + STAGES, t0, p_X, p_W, begin_n, begin_m, n_l, n_m, thread)
        copies_end()
        while t0 < end:
            ahead = i4(t0 + TILE)
            if ahead < end:
                fetch(shared + STAGES + (1 - half) * STAGE, ahead, p_X, p_W, begin_n, begin_m, n_l, n_m, thread)
            copies_end()
            wait_for_all_but_the_last()
            cuda.syncthreads()
            tile = shared + STAGES + half * STAGE
            first_l = i4(t0 + lane % 4 * 2)
            many = i4(min(TILE, n_l - t0))
            seen, seen_old = i4(t0 - begin + many), i4(t0 - begin)
            take_fragment(tile + AT_X + warp * 16 * WIDTH_X, lane, TILE, x_X)
            if t0 + TILE <= n_l:
                fold(True, held_s, held_N, held_s2, many, x_X, n_l, p_g, p_s4, p_b, p_s5, first_l, seen_old, p_s1, o_s1, o_s4)
            else:
                fold(False, held_s, held_N, held_s2, many, x_X, n_l, p_g, p_s4, p_b, p_s5, first_l, seen_old, p_s1, o_s1, o_s4)
            add_weighted_rows(p_s4, tile + AT_W, lane, WIDTH_W, TILE, SPAN_n, o_s4)
            add_weighted_rows(p_s5, tile + AT_W, lane, WIDTH_W, TILE, SPAN_n, o_s5)
            add_weighted_rows(p_s1, tile + AT_W, lane, WIDTH_W, TILE, SPAN_n, o_s1)
            cuda.syncthreads()
            t0, half = ahead, i4(1 - half)
        wait_for_copies()
        cuda.syncthreads()
        if splits:
            for r in range(2):
                inside = first_m + 8 * r < n_m
                place = (item * n_m + first_m + 8 * r) * parts + part
                if inside and lane % 4 == 0 and begin_n == 0:
                    part_s[place] = held_s[r]
                    part_N[place] = held_N[r]
                    part_s2[place] = held_s2[r]
                for i in range(SPAN_n // 4):
                    column = first_n + i // 2 * 8 + i % 2
                    if inside and column < n_n:
                        part_s4[place * n_n + column] = o_s4[r, i]
                for i in range(SPAN_n // 4):
                    column = first_n + i // 2 * 8 + i % 2
                    if inside and column < n_n:
                        part_s5[place * n_n + column] = o_s5[r, i]
                for i in range(SPAN_n // 4):
                    column = first_n + i // 2 * 8 + i % 2
                    if inside and column < n_n:
                        part_s1[place * n_n + column] = o_s1[r, i]
        else:
            y_0 = cuda.local.array(SUMS_n, f4)
            finish(held_s, held_N, held_s2, o_s1, o_s4, y_0, o_s5)
            store_tile(shared, y_0, address(out_0) + ((item * n_m + begin_m) * n_n + begin_n) * SIZE, n_n * SIZE, n_m - begin_m, n_n - begin_n, ROWS, SPAN_n, vector, thread, THREADS)

    @cuda.jit(launch_bounds=(THREADS, 1))
    def join(X, s_X, g, s_g, v_b, s_b, W, s_W, n_m, n_l, parts, piece, part_s, part_N, part_s2, part_s4, part_s5, part_s1, out_0):
        thread, number = i4(cuda.threadIdx.x), i8(cuda.blockIdx.x)
        lane, warp = thread % 32, thread // 32
        begin_n = number % -(-n_n // SPAN_n) * SPAN_n
        number //= -(-n_n // SPAN_n)
        first_n = begin_n + lane % 4 * 2
        blocks = -(-n_m // ROWS)
        begin_m = (blocks - 1 - number % blocks) * ROWS
        first_m = begin_m + warp * 16 + lane // 4
        item = number // blocks
        rest = item
        o_X = rest * s_X
        p_X = address(X) + o_X * SIZE
        o_g = rest * s_g
        p_g = address(g) + o_g * SIZE
        o_b = rest * s_b
        p_b = address(v_b) + o_b * SIZE
        o_W = rest * s_W
        p_W = address(W) + o_W * SIZE
        x_X = cuda.local.array(SCORES, f4)
        p_s4 = cuda.local.array(SCORES, f4)
        p_s5 = cuda.local.array(SCORES, f4)
        p_s1 = cuda.local.array(SCORES, f4)
        o_s4 = cuda.local.array(SUMS_n, f4)
        o_s5 = cuda.local.array(SUMS_n, f4)
        o_s1 = cuda.local.array(SUMS_n, f4)
        held_s = cuda.local.array(2, f4)
        held_N = cuda.local.array(2, i8)
        held_s2 = cuda.local.array(2, f4)
        for r in range(2):
            held_s[r] = f4(0.0)
            held_N[r] = 0
            held_s2[r] = f4(0.0)
            for i in range(SPAN_n // 4):
                o_s4[r, i] = f4(0)
            for i in range(SPAN_n // 4):
                o_s5[r, i] = f4(0)
            for i in range(SPAN_n // 4):
                o_s1[r, i] = f4(0)
        b_s4 = cuda.local.array(SUMS_n, f4)
        b_s5 = cuda.local.array(SUMS_n, f4)
        b_s1 = cuda.local.array(SUMS_n, f4)
        other_s = cuda.local.array(2, f4)
        other_N = cuda.local.array(2, i8)
        other_s2 = cuda.local.array(2, f4)
        for r in range(2):
            other_s[r] = f4(0.0)
            other_N[r] = 0
            other_s2[r] = f4(0.0)
            for i in range(SPAN_n // 4):
                b_s4[r, i] = f4(0)
            for i in range(SPAN_n // 4):
                b_s5[r, i] = f4(0)
            for i in range(SPAN_n // 4):
                b_s1[r, i] = f4(0)
        shared = shared_address(cuda.shared.array(BYTES, types.uint8))
        for part in range(parts):
            for r in range(2):
                inside = first_m + 8 * r < n_m
                place = (item * n_m + first_m + 8 * r) * parts + part
                if inside:
                    other_s[r] = part_s[place]
                    other_N[r] = part_N[place]
                    other_s2[r] = part_s2[place]
                for i in range(SPAN_n // 4):
                    column = first_n + i // 2 * 8 + i % 2
                    if inside and column < n_n:
                        b_s4[r, i] = part_s4[place * n_n + column]
                for i in range(SPAN_n // 4):
                    column = first_n + i // 2 * 8 + i % 2
                    if inside and column < n_n:
                        b_s5[r, i] = part_s5[place * n_n + column]
                for i in range(SPAN_n // 4):
                    column = first_n + i // 2 * 8 + i % 2
                    if inside and column < n_n:
                        b_s1[r, i] = part_s1[place * n_n + column]
            seen_old, seen_part = part * piece, min(piece, n_l - part * piece)
            seen = seen_old + seen_part
            merge(held_s, other_s, held_N, other_N, held_s2, other_s2, seen_old, seen_part, o_s4, b_s4, o_s5, b_s5, o_s1, b_s1)
        y_0 = cuda.local.array(SUMS_n, f4)
        finish(held_s, held_N, held_s2, o_s1, o_s4, y_0, o_s5)
        store_tile(shared, y_0, address(out_0) + ((item * n_m + begin_m) * n_n + begin_n) * SIZE, n_n * SIZE, n_m - begin_m, n_n - begin_n, ROWS, SPAN_n, vector, thread, THREADS)

    return join if stage == 'join' else kernel


SCHEDULES, WIDEST = ((4, 64), (4, 32), (2, 64), (2, 32), (1, 64), (1, 32), (4, 16), (2, 16), (1, 16)), 80

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


def shared_bytes(warps, TILE, n_n):
    """Bytes of shared memory for tiles that stay and two stages of those that come, or for results."""
    ROWS = 16 * warps
    SPAN_n = span_of(n_n)
    return max(0 + 2 * (ROWS * width_of(TILE) + TILE * width_of(SPAN_n)), 0 + ROWS * width_of(SPAN_n))


def numbers_held(warps, TILE, n_n):
    """Numbers in the fragments of a lane."""
    SPAN_n = span_of(n_n)
    return 4 * TILE // 2 + SPAN_n // 2 + SPAN_n // 2 + SPAN_n // 2


AXES = {'X': ('m', 'l'), 'g': ('l',), 'v_b': ('l',), 'W': ('l', 'n')}
DTYPES = {'X': np.float32, 'g': np.float32, 'v_b': np.float32, 'W': np.float32}
OUTPUTS = [(('m', 'n'), np.float32)]
HELD = [(np.float32, ()), (np.int64, ()), (np.float32, ()), (np.float32, ('n',)), (np.float32, ('n',)), (np.float32, ('n',))]
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


def plan(X, g, v_b, W):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave, and the shapes of the outputs."""
    sizes, leading = sizes_of({'X': X, 'g': g, 'v_b': v_b, 'W': W})
    groups = math.prod(leading)
    vector = all(size % CHUNK == 0 for size in (sizes['l'], sizes['n'],)) and all(map(aligned, (X, g, v_b, W,)))
    schedules = [each for each in SCHEDULES if shared_bytes(*each, sizes['n']) <= 49152 and numbers_held(*each, sizes['n']) <= 160 and (each[0] == 1 or 8 * each[0] < sizes['m'])]
    if not schedules:
        raise ValueError(f"rows as long as {sizes} fit neither into shared memory nor into registers; shorten the axes that are no rows")
    warps, tile = schedules[0]
    blocks = groups * -(-sizes['m'] // (16 * warps)) * -(-sizes['n'] // span_of(sizes['n']))
    parts = max(1, min(64, 256 // blocks, sizes['l'] // 512))
    piece = -(-sizes['l'] // (parts * tile)) * tile
    parts = -(-sizes['l'] // piece)
    make_for = (warps, tile, vector, sizes['n'])
    launches = [(('part', *make_for), blocks * parts, 32 * warps), (('join', *make_for), blocks, 32 * warps)]
    launches = launches if parts > 1 else [(('whole', *make_for), blocks, 32 * warps)]
    items = groups * sizes['m'] if parts > 1 else 1
    arguments = [
        X,
        np.int64(1 * sizes['m'] * sizes['l'] * (len(described(X)[0]) > 2)),
        g,
        np.int64(1 * sizes['l'] * (len(described(g)[0]) > 1)),
        v_b,
        np.int64(1 * sizes['l'] * (len(described(v_b)[0]) > 1)),
        W,
        np.int64(1 * sizes['l'] * sizes['n'] * (len(described(W)[0]) > 2)),
        np.int32(sizes['m']),
        np.int32(sizes['l']),
        np.int64(parts),
        np.int64(piece),
    ]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(X, g, v_b, W, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(X, g, v_b, W)
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



ALL_AXES = ('m', 'l', 'n')


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


def definition(X, g, b, W):
    """layernorm_gemm as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'm l')
    g = spread(g, 'l')
    b = spread(b, 'l')
    W = spread(W, 'l n')
    lengths = {"m": X.shape[-3], "l": X.shape[-2], "n": W.shape[-1]}
    t1 = X - reduced("sum", X, "l") / lengths["l"]
    return taken_out(reduced("sum", (t1 / np.sqrt(reduced("sum", t1 * t1, "l") / lengths["l"] + 1e-05) * g + b) * W, "l"), 'm n', lengths)


def turned(array, axes, order):
    """An array with its last axes in another order."""
    leading = array.ndim - len(axes)
    return np.ascontiguousarray(array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order)))


def launched(X, g, b, W):
    """`launch` with the axes as the operator has them."""
    outputs = launch(X, g, b, W)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return turned(outputs[0], ('m', 'n'), ('m', 'n')),


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    kinds, scalars, cases = {'X': 'normal', 'g': 'normal', 'b': 'normal', 'W': 'normal'}, {}, []
    for length in (1, 31, 1000, 8191, 100000):
        sizes, rng = {"m": 3, "n": 5, "l": length}, np.random.default_rng(length)
        axes, names = {'X': ('m', 'l'), 'g': ('l',), 'b': ('l',), 'W': ('l', 'n')}, {'X': 'X', 'g': 'g', 'b': 'v_b', 'W': 'W'}
        shapes = {name: (3,) * ('l' in own) + tuple(sizes[axis] for axis in own) for name, own in axes.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[names[name]]) for name, shape in shapes.items()}
        cases.append((f"layernorm_gemm, l = {length}", arrays, scalars))
    return 0 if passed_over(launched, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
