"""ece_fixed_bins: one pass over l, 10 words of state per row, commutative merge.

ECE = Σ_b |Σ_{l in b} c_l − Σ_{l in b} y_l|/N over five bins of equal width.

The operator
    ece_fixed_bins(c[l], y[l]):
        t1 = minimum(floor(5.0 * c), 4)
        t2 = t1 == 0
        t3 = t1 == 1
        t4 = t1 == 2
        t5 = t1 == 3
        t6 = t1 == 4
        return (0 + abs(sum(c, l, where=t2) - sum(y, l, where=t2)) + abs(sum(c, l, where=t3) - sum(y, l, where=t3)) + abs(sum(c, l, where=t4) - sum(y, l, where=t4)) + abs(sum(c, l, where=t5) - sum(y, l, where=t5)) + abs(sum(c, l, where=t6) - sum(y, l, where=t6))) / size(l)

One more element (a prime marks the new value)
    x    = min(⌊5·c[l]⌋, 4)
    s'   = s + c[l]   element where x = 0
    s2'  = s2 + y[l]   element where x = 0
    s3'  = s3 + c[l]   element where x = 1
    s4'  = s4 + y[l]   element where x = 1
    s5'  = s5 + c[l]   element where x = 2
    s6'  = s6 + y[l]   element where x = 2
    s7'  = s7 + c[l]   element where x = 3
    s8'  = s8 + y[l]   element where x = 3
    s9'  = s9 + c[l]   element where x = 4
    s10' = s10 + y[l]   element where x = 4

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    s4'  = s4_a + s4_b
    s5'  = s5_a + s5_b
    s6'  = s6_a + s6_b
    s7'  = s7_a + s7_b
    s8'  = s8_a + s8_b
    s9'  = s9_a + s9_b
    s10' = s10_a + s10_b

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 10267a264dbd96888b1c02fae522029c666fc9347dd0436f056ba19b632ef21c
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python ece_fixed_bins_cuda.py` checks it on a GPU.
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

smaller = extreme("<", "min")

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

def to_whole(mode):
    """A float rounded to a whole number, as a float."""
    def typed(context, a):
        def emit(context, builder, signature, args):
            letter, kind = ("f", "f32") if a == types.float32 else ("d", "f64")
            text = "cvt." + mode + "." + kind + "." + kind + " $0, $1;"
            return builder.call(ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type]), text, "=" + letter + "," + letter), args)
        return a(a), emit
    return intrinsic(typed)

floor = to_whole("rmi")
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
def fold(seen_old, any1_old, s_old, s2_old, any2_old, s3_old, s4_old, any3_old, s5_old, s6_old, any4_old, s7_old, s8_old, any5_old, s9_old, s10_old, ok, v_c, v_y):
    many = sel(ok[TILE], i4(1), i4(0))
    for flight in range(FLIGHT):
        many = i4(many + sel(ok[flight * VECTOR], i4(VECTOR), i4(0)))
    if many == 0:
        return seen_old, any1_old, s_old, s2_old, any2_old, s3_old, s4_old, any3_old, s5_old, s6_old, any4_old, s7_old, s8_old, any5_old, s9_old, s10_old
    seen = i4(seen_old + many)
    any1 = any1_old
    any1_it = False
    s = s_old
    s_it = 0.0
    s2 = s2_old
    s2_it = 0.0
    any2 = any2_old
    any2_it = False
    s3 = s3_old
    s3_it = 0.0
    s4 = s4_old
    s4_it = 0.0
    any3 = any3_old
    any3_it = False
    s5 = s5_old
    s5_it = 0.0
    s6 = s6_old
    s6_it = 0.0
    any4 = any4_old
    any4_it = False
    s7 = s7_old
    s7_it = 0.0
    s8 = s8_old
    s8_it = 0.0
    any5 = any5_old
    any5_it = False
    s9 = s9_old
    s9_it = 0.0
    s10 = s10_old
    s10_it = 0.0
    any1_of = False
    s_of = 0.0
    s2_of = 0.0
    any2_of = False
    s3_of = 0.0
    s4_of = 0.0
    any3_of = False
    s5_of = 0.0
    s6_of = 0.0
    any4_of = False
    s7_of = 0.0
    s8_of = 0.0
    any5_of = False
    s9_of = 0.0
    s10_of = 0.0
    for i_l in range(SLOTS):
        if i_l == TILE and (not ok[TILE]):
            break
        t3 = smaller(floor(f8(f4(5.0)) * f8(v_c[i_l])), 4.0)
        t4 = t3 == 0.0
        any1_of = any1_of | t4
        s_of = s_of + f8(sel(t4, v_c[i_l], f4(0.0)))
        s2_of = s2_of + f8(sel(t4, v_y[i_l], f4(0.0)))
        t5 = t3 == 1.0
        any2_of = any2_of | t5
        s3_of = s3_of + f8(sel(t5, v_c[i_l], f4(0.0)))
        s4_of = s4_of + f8(sel(t5, v_y[i_l], f4(0.0)))
        t6 = t3 == 2.0
        any3_of = any3_of | t6
        s5_of = s5_of + f8(sel(t6, v_c[i_l], f4(0.0)))
        s6_of = s6_of + f8(sel(t6, v_y[i_l], f4(0.0)))
        t7 = t3 == 3.0
        any4_of = any4_of | t7
        s7_of = s7_of + f8(sel(t7, v_c[i_l], f4(0.0)))
        s8_of = s8_of + f8(sel(t7, v_y[i_l], f4(0.0)))
        t8 = t3 == 4.0
        any5_of = any5_of | t8
        s9_of = s9_of + f8(sel(t8, v_c[i_l], f4(0.0)))
        s10_of = s10_of + f8(sel(t8, v_y[i_l], f4(0.0)))
        if i_l % VECTOR == VECTOR - 1 or i_l == TILE:
            any1_it = any1_it | sel(ok[i_l], any1_of, False)
            any1_of = False
            s_it = s_it + sel(ok[i_l], s_of, 0.0)
            s_of = 0.0
            s2_it = s2_it + sel(ok[i_l], s2_of, 0.0)
            s2_of = 0.0
            any2_it = any2_it | sel(ok[i_l], any2_of, False)
            any2_of = False
            s3_it = s3_it + sel(ok[i_l], s3_of, 0.0)
            s3_of = 0.0
            s4_it = s4_it + sel(ok[i_l], s4_of, 0.0)
            s4_of = 0.0
            any3_it = any3_it | sel(ok[i_l], any3_of, False)
            any3_of = False
            s5_it = s5_it + sel(ok[i_l], s5_of, 0.0)
            s5_of = 0.0
            s6_it = s6_it + sel(ok[i_l], s6_of, 0.0)
            s6_of = 0.0
            any4_it = any4_it | sel(ok[i_l], any4_of, False)
            any4_of = False
            s7_it = s7_it + sel(ok[i_l], s7_of, 0.0)
            s7_of = 0.0
            s8_it = s8_it + sel(ok[i_l], s8_of, 0.0)
            s8_of = 0.0
            any5_it = any5_it | sel(ok[i_l], any5_of, False)
            any5_of = False
            s9_it = s9_it + sel(ok[i_l], s9_of, 0.0)
            s9_of = 0.0
            s10_it = s10_it + sel(ok[i_l], s10_of, 0.0)
            s10_of = 0.0
        unrolled()
    any1 = any1 | any1_it
    s = s + s_it
    s2 = s2 + s2_it
    any2 = any2 | any2_it
    s3 = s3 + s3_it
    s4 = s4 + s4_it
    any3 = any3 | any3_it
    s5 = s5 + s5_it
    s6 = s6 + s6_it
    any4 = any4 | any4_it
    s7 = s7 + s7_it
    s8 = s8 + s8_it
    any5 = any5 | any5_it
    s9 = s9 + s9_it
    s10 = s10 + s10_it
    return seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10


@cuda.jit(device=True)
def combine(seen_old, any1_old, s_old, s2_old, any2_old, s3_old, s4_old, any3_old, s5_old, s6_old, any4_old, s7_old, s8_old, any5_old, s9_old, s10_old, width):
    seen = sum_over(seen_old, width)
    any1 = max_over(sel(any1_old, i4(1), i4(0)), width) != 0
    s = sum_over(s_old, width)
    s2 = sum_over(s2_old, width)
    any2 = max_over(sel(any2_old, i4(1), i4(0)), width) != 0
    s3 = sum_over(s3_old, width)
    s4 = sum_over(s4_old, width)
    any3 = max_over(sel(any3_old, i4(1), i4(0)), width) != 0
    s5 = sum_over(s5_old, width)
    s6 = sum_over(s6_old, width)
    any4 = max_over(sel(any4_old, i4(1), i4(0)), width) != 0
    s7 = sum_over(s7_old, width)
    s8 = sum_over(s8_old, width)
    any5 = max_over(sel(any5_old, i4(1), i4(0)), width) != 0
    s9 = sum_over(s9_old, width)
    s10 = sum_over(s10_old, width)
    return seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10


@cuda.jit(device=True)
def output_0(s, s2, s3, s4, s5, s6, s7, s8, s9, s10, n_l):
    return f4((0.0 + abs(s - s2) + abs(s3 - s4) + abs(s5 - s6) + abs(s7 - s8) + abs(s9 - s10)) / f8(n_l))


@cuda.jit(device=True)
def finish(seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10):
    return output_0(s, s2, s3, s4, s5, s6, s7, s8, s9, s10, seen)


@cuda.jit(device=True)
def load(first, thread, span, begin, head, vectors, edges, p_c, p_y, even_y, ok, at, v_c, v_y):
    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
    for flight in range(FLIGHT):
        number = i4(first + flight * span + thread)
        full = number < vectors
        place = i4(begin + head + number * VECTOR)
        for k in range(VECTOR):
            ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
        load_vector(p_c + place * SIZE, full, v_c, flight * VECTOR)
        if even_y:
            load_vector(p_y + place * SIZE, full, v_y, flight * VECTOR)
        else:
            for k in range(VECTOR):
                v_y[flight * VECTOR + k] = load_one(p_y + (place + k) * SIZE, full)
    edge = first == 0 and thread < edges
    ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
    v_c[TILE] = load_one(p_c + at[TILE] * SIZE, edge)
    v_y[TILE] = load_one(p_y + at[TILE] * SIZE, edge)


@cache
def make(warps, stage):
    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""
    span = 32 * warps
    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'

    @cuda.jit(launch_bounds=(32 * max(warps, ROWS if alone else 1), 1))
    def kernel(c, s_c, y, s_y, n_l, items, parts, piece, part_seen, part_any1, part_s, part_s2, part_any2, part_s3, part_s4, part_any3, part_s5, part_s6, part_any4, part_s7, part_s8, part_any5, part_s9, part_s10, out_0):
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
        o_c = rest * s_c
        p_c = address(c) + o_c * SIZE
        o_y = rest * s_y
        p_y = address(y) + o_y * SIZE
        begin = part * piece
        length = max(min(piece, n_l - begin), i8(0))
        head = min((-(p_c + begin * SIZE) & 31) // SIZE, length)
        vectors = i4((length - head) // VECTOR)
        edges = i4(length - vectors * VECTOR)
        even_y = (p_y + (begin + head) * SIZE) % 16 == 0
        ok = cuda.local.array(SLOTS, b1)
        at = cuda.local.array(SLOTS, i4)
        v_c = cuda.local.array(SLOTS, f4)
        v_y = cuda.local.array(SLOTS, f4)
        seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10 = i4(0), b1(False), 0.0, 0.0, b1(False), 0.0, 0.0, b1(False), 0.0, 0.0, b1(False), 0.0, 0.0, b1(False), 0.0, 0.0
        first = i8(0)
        more = not joins
        while more:
            load(first, thread, span, begin, head, vectors, edges, p_c, p_y, even_y, ok, at, v_c, v_y)
            seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10 = fold(seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10, ok, v_c, v_y)
            first += FLIGHT * span
            more = first < vectors
        if joins:
            there = thread < parts
            place = row * parts + sel(there, thread, i8(0))
            seen = sel(there, part_seen[place], i4(0))
            any1 = sel(there, part_any1[place], b1(False))
            s = sel(there, part_s[place], 0.0)
            s2 = sel(there, part_s2[place], 0.0)
            any2 = sel(there, part_any2[place], b1(False))
            s3 = sel(there, part_s3[place], 0.0)
            s4 = sel(there, part_s4[place], 0.0)
            any3 = sel(there, part_any3[place], b1(False))
            s5 = sel(there, part_s5[place], 0.0)
            s6 = sel(there, part_s6[place], 0.0)
            any4 = sel(there, part_any4[place], b1(False))
            s7 = sel(there, part_s7[place], 0.0)
            s8 = sel(there, part_s8[place], 0.0)
            any5 = sel(there, part_any5[place], b1(False))
            s9 = sel(there, part_s9[place], 0.0)
            s10 = sel(there, part_s10[place], 0.0)
        seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10 = combine(seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10, 32)
        shared_seen = cuda.shared.array(32, i4)
        shared_any1 = cuda.shared.array(32, b1)
        shared_s = cuda.shared.array(32, f8)
        shared_s2 = cuda.shared.array(32, f8)
        shared_any2 = cuda.shared.array(32, b1)
        shared_s3 = cuda.shared.array(32, f8)
        shared_s4 = cuda.shared.array(32, f8)
        shared_any3 = cuda.shared.array(32, b1)
        shared_s5 = cuda.shared.array(32, f8)
        shared_s6 = cuda.shared.array(32, f8)
        shared_any4 = cuda.shared.array(32, b1)
        shared_s7 = cuda.shared.array(32, f8)
        shared_s8 = cuda.shared.array(32, f8)
        shared_any5 = cuda.shared.array(32, b1)
        shared_s9 = cuda.shared.array(32, f8)
        shared_s10 = cuda.shared.array(32, f8)
        if not alone:
            if lane == 0:
                shared_seen[warp] = seen
                shared_any1[warp] = any1
                shared_s[warp] = s
                shared_s2[warp] = s2
                shared_any2[warp] = any2
                shared_s3[warp] = s3
                shared_s4[warp] = s4
                shared_any3[warp] = any3
                shared_s5[warp] = s5
                shared_s6[warp] = s6
                shared_any4[warp] = any4
                shared_s7[warp] = s7
                shared_s8[warp] = s8
                shared_any5[warp] = any5
                shared_s9[warp] = s9
                shared_s10[warp] = s10
            cuda.syncthreads()
            if warp == 0:
                seen = sel(lane < warps, shared_seen[lane % warps], i4(0))
                any1 = sel(lane < warps, shared_any1[lane % warps], b1(False))
                s = sel(lane < warps, shared_s[lane % warps], 0.0)
                s2 = sel(lane < warps, shared_s2[lane % warps], 0.0)
                any2 = sel(lane < warps, shared_any2[lane % warps], b1(False))
                s3 = sel(lane < warps, shared_s3[lane % warps], 0.0)
                s4 = sel(lane < warps, shared_s4[lane % warps], 0.0)
                any3 = sel(lane < warps, shared_any3[lane % warps], b1(False))
                s5 = sel(lane < warps, shared_s5[lane % warps], 0.0)
                s6 = sel(lane < warps, shared_s6[lane % warps], 0.0)
                any4 = sel(lane < warps, shared_any4[lane % warps], b1(False))
                s7 = sel(lane < warps, shared_s7[lane % warps], 0.0)
                s8 = sel(lane < warps, shared_s8[lane % warps], 0.0)
                any5 = sel(lane < warps, shared_any5[lane % warps], b1(False))
                s9 = sel(lane < warps, shared_s9[lane % warps], 0.0)
                s10 = sel(lane < warps, shared_s10[lane % warps], 0.0)
                seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10 = combine(seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10, warps)
        if splits:
            if live and thread == 0:
                part_seen[item * parts + part] = seen
                part_any1[item * parts + part] = any1
                part_s[item * parts + part] = s
                part_s2[item * parts + part] = s2
                part_any2[item * parts + part] = any2
                part_s3[item * parts + part] = s3
                part_s4[item * parts + part] = s4
                part_any3[item * parts + part] = any3
                part_s5[item * parts + part] = s5
                part_s6[item * parts + part] = s6
                part_any4[item * parts + part] = any4
                part_s7[item * parts + part] = s7
                part_s8[item * parts + part] = s8
                part_any5[item * parts + part] = any5
                part_s9[item * parts + part] = s9
                part_s10[item * parts + part] = s10
        elif warp == 0 or alone:
            result_0 = finish(seen, any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10)
            if live and thread == 0:
                store_one(address(out_0) + (item) * SIZE, f4(result_0))

    return kernel


AXES = {'c': ('l',), 'y': ('l',)}
DTYPES = {'c': np.float32, 'y': np.float32}
OUTPUTS = [((), np.float32)]
HELD = [(np.int32, ()), (np.bool_, ()), (np.float64, ()), (np.float64, ()), (np.bool_, ()), (np.float64, ()), (np.float64, ()), (np.bool_, ()), (np.float64, ()), (np.float64, ()), (np.bool_, ()), (np.float64, ()), (np.float64, ()), (np.bool_, ()), (np.float64, ()), (np.float64, ())]


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


def plan(c, y):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'c': c, 'y': y}
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


def launch(c, y, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(c, y)
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


def definition(c, y):
    """ece_fixed_bins as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    c = spread(c, 'l')
    y = spread(y, 'l')
    lengths = {"l": c.shape[-1]}
    t1 = np.minimum(np.floor(5.0 * c), 4)
    t2 = t1 == 0
    t3 = t1 == 1
    t4 = t1 == 2
    t5 = t1 == 3
    t6 = t1 == 4
    return taken_out((0 + np.abs(np.sum(np.where(t2, c, 0), along("l"), keepdims=True) - np.sum(np.where(t2, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t3, c, 0), along("l"), keepdims=True) - np.sum(np.where(t3, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t4, c, 0), along("l"), keepdims=True) - np.sum(np.where(t4, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t5, c, 0), along("l"), keepdims=True) - np.sum(np.where(t5, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t6, c, 0), along("l"), keepdims=True) - np.sum(np.where(t6, y, 0), along("l"), keepdims=True))) / lengths["l"], '', lengths)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"c": rng.standard_normal((3, length)).astype(DTYPES['c']),
                  "y": rng.standard_normal((3, length)).astype(DTYPES['y'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"ece_fixed_bins, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.02 is right")
    return 0 if max(errors.values()) <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
