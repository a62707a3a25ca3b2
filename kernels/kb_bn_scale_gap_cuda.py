"""kb_bn_scale_gap: one pass over l, 7 words of state per row, commutative merge.

BatchNorm of x/2 over the whole batch, then its mean over the members c_l = k of each of two samples k.

The operator
    kb_bn_scale_gap(x[l], c[l]):
        t1 = 0.5 * x
        t2 = t1 - sum(t1, l) / size(l)
        t3 = t2 / sqrt(sum(t2 * t2, l) / size(l) + 1e-05)
        t4 = c == 0
        t5 = c == 1
        return sum(t3, l, where=t4) / sum(1, l, where=t4), sum(t3, l, where=t5) / sum(1, l, where=t5)

One more element (a prime marks the new value)
    x   = 0.5·x[l]
    s1' = s1 + x[l]
    N'  = N + 1
    s'  = 0.5·s1'
    p1' = s'/N'
    δ   = p1 − p1'
    s2' = s2 + δ²·N + (x − p1')²
    s7' = s7 + δ·s4 + x − p1'   element where c[l] = 0
    s4' = s4 + 1   element where c[l] = 0
    s8' = s8 + δ·s6 + x − p1'   element where c[l] = 1
    s6' = s6 + 1   element where c[l] = 1

Two states a and b
    s1'  = s1_a + s1_b
    N'   = N_a + N_b
    s_a  = 0.5·s1_a
    p1_a = s_a/N_a
    s_b  = 0.5·s1_b
    p1_b = s_b/N_b
    s'   = 0.5·s1'
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b
    s7'  = s7_a + δ_a·s4_a + s7_b + δ_b·s4_b
    s4'  = s4_a + s4_b
    s8'  = s8_a + δ_a·s6_a + s8_b + δ_b·s6_b
    s6'  = s6_a + s6_b

Dangers
    s4 divides and may be 0: the result is then what IEEE division gives
    s6 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 0d4c45e79081aaad3461109fd087dcf7e10223c1428ba2c1fd4dec7f651edbe3
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python kb_bn_scale_gap_cuda.py` checks it on a GPU.
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
max_over = over_lanes(max)
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
def value_s(s1):
    return 0.5 * s1


@cuda.jit(device=True)
def value_p1(s, N):
    return s / f8(N)


@cuda.jit(device=True)
def rebase_s2(s2, p1, p1_new, N):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s2 + (0.0 if f8(N) == 0.0 else t3 * t3 * f8(N))


@cuda.jit(device=True)
def rebase_s7(s7, p1, p1_new, s4):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s7 + (0.0 if f8(s4) == 0.0 else t3 * f8(s4))


@cuda.jit(device=True)
def rebase_s8(s8, p1, p1_new, s6):
    t3 = (p1 if math.isfinite(p1) else 0.0) - (p1_new if math.isfinite(p1_new) else 0.0)
    return s8 + (0.0 if f8(s6) == 0.0 else t3 * f8(s6))


@cuda.jit(device=True)
def fold(seen_old, s1_old, N_old, any1_old, s4_old, any2_old, s6_old, s2_old, s7_old, s8_old, ok, v_x, v_c):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old, s1_old, N_old, any1_old, s4_old, any2_old, s6_old, s2_old, s7_old, s8_old
    seen = i4(seen_old + many)
    s_old = value_s(s1_old)
    p1_old = value_p1(s_old, N_old)
    s1 = s1_old
    s1_it = 0.0
    N = N_old + 1 * many
    any1 = any1_old
    any1_it = False
    s4 = s4_old
    s4_it = 0
    any2 = any2_old
    any2_it = False
    s6 = s6_old
    s6_it = 0
    s1_of = 0.0
    any1_of = False
    s4_of = 0
    any2_of = False
    s6_of = 0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        s1_of = s1_of + f8(v_x[i_l])
        t1 = v_c[i_l] == f4(0.0)
        any1_of = any1_of | t1
        s4_of = s4_of + sel(t1, 1, 0)
        t2 = v_c[i_l] == f4(1.0)
        any2_of = any2_of | t2
        s6_of = s6_of + sel(t2, 1, 0)
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s1_it = s1_it + sel(ok[i_l], s1_of, 0.0)
            s1_of = 0.0
            any1_it = any1_it | sel(ok[i_l], any1_of, False)
            any1_of = False
            s4_it = s4_it + sel(ok[i_l], s4_of, 0)
            s4_of = 0
            any2_it = any2_it | sel(ok[i_l], any2_of, False)
            any2_of = False
            s6_it = s6_it + sel(ok[i_l], s6_of, 0)
            s6_of = 0
        unrolled()
    s1 = s1 + s1_it
    any1 = any1 | any1_it
    s4 = s4 + s4_it
    any2 = any2 | any2_it
    s6 = s6 + s6_it
    s = value_s(s1)
    p1 = value_p1(s, N)
    s2 = rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else s2_old
    s2_it = 0.0
    s7 = rebase_s7(s7_old, p1_old, p1, s4_old) if seen_old > 0 else s7_old
    s7_it = 0.0
    s8 = rebase_s8(s8_old, p1_old, p1, s6_old) if seen_old > 0 else s8_old
    s8_it = 0.0
    t4 = p1 if math.isfinite(p1) else 0.0
    s2_of = 0.0
    s7_of = 0.0
    s8_of = 0.0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t5 = f8(f4(0.5)) * f8(v_x[i_l]) - t4
        s2_of = s2_of + t5 * t5
        s7_of = s7_of + sel(v_c[i_l] == f4(0.0), t5, 0.0)
        s8_of = s8_of + sel(v_c[i_l] == f4(1.0), t5, 0.0)
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            s2_it = s2_it + sel(ok[i_l], s2_of, 0.0)
            s2_of = 0.0
            s7_it = s7_it + sel(ok[i_l], s7_of, 0.0)
            s7_of = 0.0
            s8_it = s8_it + sel(ok[i_l], s8_of, 0.0)
            s8_of = 0.0
        unrolled()
    s2 = s2 + s2_it
    s7 = s7 + s7_it
    s8 = s8 + s8_it
    return seen, s1, N, any1, s4, any2, s6, s2, s7, s8


@cuda.jit(device=True)
def combine(seen_old, s1_old, N_old, any1_old, s4_old, any2_old, s6_old, s2_old, s7_old, s8_old, width):
    seen = sum_over(seen_old, width)
    s_old = value_s(s1_old)
    p1_old = value_p1(s_old, N_old)
    s1 = sum_over(s1_old, width)
    N = sum_over(N_old, width)
    any1 = max_over(sel(any1_old, i4(1), i4(0)), width) != 0
    s4 = sum_over(s4_old, width)
    any2 = max_over(sel(any2_old, i4(1), i4(0)), width) != 0
    s6 = sum_over(s6_old, width)
    s = value_s(s1)
    p1 = value_p1(s, N)
    s2 = sum_over(rebase_s2(s2_old, p1_old, p1, N_old) if seen_old > 0 else 0.0, width)
    s7 = sum_over(rebase_s7(s7_old, p1_old, p1, s4_old) if seen_old > 0 else 0.0, width)
    s8 = sum_over(rebase_s8(s8_old, p1_old, p1, s6_old) if seen_old > 0 else 0.0, width)
    return seen, s1, N, any1, s4, any2, s6, s2, s7, s8


@cuda.jit(device=True)
def settle_s2(p1, s2, N):
    t1 = p1
    t2 = t1 - t1
    t4 = 1.0 + t2 * t2
    t11 = (p1 if p1 - p1 == 0.0 else f8(0)) - p1
    t14 = s2 + t11 * t11 * f8(N)
    return (t14 if s2 - s2 == 0.0 else nan) if t4 != t4 else s2


@cuda.jit(device=True)
def settle_s7(p1, any1, s7, s4):
    t1 = p1
    t3 = 1.0 + (t1 - t1)
    t13 = s7 + ((p1 if p1 - p1 == 0.0 else f8(0)) - p1) * f8(s4)
    return (t13 if s7 - s7 == 0.0 else nan) if (t3 != t3) & any1 else s7


@cuda.jit(device=True)
def settle_s8(p1, any2, s8, s6):
    t1 = p1
    t3 = 1.0 + (t1 - t1)
    t13 = s8 + ((p1 if p1 - p1 == 0.0 else f8(0)) - p1) * f8(s6)
    return (t13 if s8 - s8 == 0.0 else nan) if (t3 != t3) & any2 else s8


@cuda.jit(device=True)
def value_p2(s2, N):
    return math.sqrt(s2 / f8(N) + 1e-05)


@cuda.jit(device=True)
def value_s3(any1, p2, s7):
    return 1.0 / p2 * s7 if any1 else 0.0


@cuda.jit(device=True)
def output_0(s3, s4):
    return f4(s3 / f8(s4))


@cuda.jit(device=True)
def value_s5(any2, p2, s8):
    return 1.0 / p2 * s8 if any2 else 0.0


@cuda.jit(device=True)
def output_1(s5, s6):
    return f4(s5 / f8(s6))


@cuda.jit(device=True)
def finish(seen, s1, N, any1, s4, any2, s6, s2, s7, s8):
    s = value_s(s1)
    p1 = value_p1(s, N)
    s2 = settle_s2(p1, s2, N)
    s7 = settle_s7(p1, any1, s7, s4)
    s8 = settle_s8(p1, any2, s8, s6)
    p2 = value_p2(s2, N)
    s3 = value_s3(any1, p2, s7)
    s5 = value_s5(any2, p2, s8)
    return output_0(s3, s4), output_1(s5, s6)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_x, p_c, even_c, ok, at, v_x, v_c):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_x + place * SIZE, full, v_x, flight * VECTOR)
        if even_c:
            load_vector(p_c + place * SIZE, full, v_c, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_c[flight * VECTOR + k] = load_one(p_c + (place + k) * SIZE, full)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_x[TILE] = load_one(p_x + at[TILE] * SIZE, edge)
    v_c[TILE] = load_one(p_c + at[TILE] * SIZE, edge)


@cache
def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(x, s_x, c, s_c, n_l, items, parts, piece, part_seen, part_s1, part_N, part_any1, part_s4, part_any2, part_s6, part_s2, part_s7, part_s8, out_0, out_1):
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
        o_c = rest * s_c
        p_c = address(c) + o_c * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_x + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        even_c = (p_c + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_x = cuda.local.array(SLOTS, f4)
        v_c = cuda.local.array(SLOTS, f4)
        seen, s1, N, any1, s4, any2, s6, s2, s7, s8 = i4(0), 0.0, i8(0), b1(False), i8(0), b1(False), i8(0), 0.0, 0.0, 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_x, p_c, even_c, ok, at, v_x, v_c)
            seen, s1, N, any1, s4, any2, s6, s2, s7, s8 = fold(seen, s1, N, any1, s4, any2, s6, s2, s7, s8, ok, v_x, v_c)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            s1 = sel(there, part_s1[place], 0.0)
            N = sel(there, part_N[place], i8(0))
            any1 = sel(there, part_any1[place], b1(False))
            s4 = sel(there, part_s4[place], i8(0))
            any2 = sel(there, part_any2[place], b1(False))
            s6 = sel(there, part_s6[place], i8(0))
            s2 = sel(there, part_s2[place], 0.0)
            s7 = sel(there, part_s7[place], 0.0)
            s8 = sel(there, part_s8[place], 0.0)
        seen, s1, N, any1, s4, any2, s6, s2, s7, s8 = combine(seen, s1, N, any1, s4, any2, s6, s2, s7, s8, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_s1 = cuda.shared.array(32, f8)
        shared_N = cuda.shared.array(32, i8)
        shared_any1 = cuda.shared.array(32, b1)
        shared_s4 = cuda.shared.array(32, i8)
        shared_any2 = cuda.shared.array(32, b1)
        shared_s6 = cuda.shared.array(32, i8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_s7 = cuda.shared.array(32, f8)
        shared_s8 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_s1[warp] = s1
                shared_N[warp] = N
                shared_any1[warp] = any1
                shared_s4[warp] = s4
                shared_any2[warp] = any2
                shared_s6[warp] = s6
                shared_s2[warp] = s2
                shared_s7[warp] = s7
                shared_s8[warp] = s8
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                s1 = sel(lane < warps, shared_s1[lane % warps], 0.0)
                N = sel(lane < warps, shared_N[lane % warps], i8(0))
                any1 = sel(lane < warps, shared_any1[lane % warps], b1(False))
                s4 = sel(lane < warps, shared_s4[lane % warps], i8(0))
                any2 = sel(lane < warps, shared_any2[lane % warps], b1(False))
                s6 = sel(lane < warps, shared_s6[lane % warps], i8(0))
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                s7 = sel(lane < warps, shared_s7[lane % warps], 0.0)
                s8 = sel(lane < warps, shared_s8[lane % warps], 0.0)
                seen, s1, N, any1, s4, any2, s6, s2, s7, s8 = combine(seen, s1, N, any1, s4, any2, s6, s2, s7, s8, warps)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_s1[item * parts + part] = s1
                part_N[item * parts + part] = N
                part_any1[item * parts + part] = any1
                part_s4[item * parts + part] = s4
                part_any2[item * parts + part] = any2
                part_s6[item * parts + part] = s6
                part_s2[item * parts + part] = s2
                part_s7[item * parts + part] = s7
                part_s8[item * parts + part] = s8
        elif warp == 0 or alone:
            result_0, result_1 = finish(seen, s1, N, any1, s4, any2, s6, s2, s7, s8)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))
                store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'x': ('l',), 'c': ('l',)}
DTYPES = {'x': np.float32, 'c': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
HELD = [(np.int32, ()), (np.float64, ()), (np.int64, ()), (np.bool_, ()), (np.int64, ()), (np.bool_, ()), (np.int64, ()), (np.float64, ()), (np.float64, ()), (np.float64, ())]


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


def plan(x, c):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'c': c}
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


def launch(x, c, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, c)
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


def definition(x, c):
    """kb_bn_scale_gap as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    c = spread(c, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = 0.5 * x
    t2 = t1 - np.sum(t1, along("l"), keepdims=True) / lengths["l"]
    t3 = t2 / np.sqrt(np.sum(t2 * t2, along("l"), keepdims=True) / lengths["l"] + 1e-05)
    t4 = c == 0
    t5 = c == 1
    return (taken_out(np.sum(np.where(t4, t3, 0), along("l"), keepdims=True) / np.sum(np.where(t4, 1, 0), along("l"), keepdims=True), '', lengths), taken_out(np.sum(np.where(t5, t3, 0), along("l"), keepdims=True) / np.sum(np.where(t5, 1, 0), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "c": rng.integers(0, 2, (3, length)).astype(DTYPES['c'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"kb_bn_scale_gap, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
