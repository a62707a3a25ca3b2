"""gru_final_state: one pass over l, 2 words of state per row, in order, no merge.

h_l = (1 − z)·tanh(W₂x + W₃(z·h)) + z·h with the gate z = σ(W₀x + W₁h), for two units: the last state.

The operator
    gru_final_state(x[l], W[g, i, j]):
        t1 = index(j) == 0
        t2 = index(i) == 0
        d1 = sum(where(t2, sum(where(index(g) == 0, W, 0), g), 0), i)
        d2 = sum(where(index(g) == 1, W, 0), g)
        d3 = sum(where(t2, d2, 0), i)
        t3 = index(j) == 1
        d4 = sum(where(t2, sum(where(index(g) == 2, W, 0), g), 0), i)
        d5 = sum(where(index(g) == 3, W, 0), g)
        d6 = sum(where(t2, d5, 0), i)
        t4 = index(i) == 1
        d7 = sum(where(t4, d2, 0), i)
        d8 = sum(where(t4, d5, 0), i)
        return scan(lambda h, k: ((1 - (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5)) * tanh(sum(where(t1, d4, 0), j) * x + sum(where(t1, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h, (1 - (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5)) * tanh(sum(where(t3, d4, 0), j) * x + sum(where(t1, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k), l, (0.0, 0.0), place=0), scan(lambda h, k: ((1 - (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5)) * tanh(sum(where(t1, d4, 0), j) * x + sum(where(t1, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h, (1 - (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5)) * tanh(sum(where(t3, d4, 0), j) * x + sum(where(t1, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k), l, (0.0, 0.0), place=1)

One more element (a prime marks the new value)
    h'  = (1 − 0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) − 0.5)·tanh(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 2 else 0) if i = 0 else 0) if j = 0 else 0) + h·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 0 else 0) if j = 0 else 0) + h2·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 0 else 0) if j = 1 else 0)) + h·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) + 0.5)
    h2' = (1 − 0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) − 0.5)·tanh(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 2 else 0) if i = 0 else 0) if j = 1 else 0) + h·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 1 else 0) if j = 0 else 0) + h2·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 1 else 0) if j = 1 else 0)) + h2·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) + 0.5)

Laws:
Certificate: sha256 bc00e945954008f1101971205f68765ff9481417138fa043a55750a504a4afb8
Real numbers: float32.  A row is shared by the threads of a warp, of a block, or of several.
Needs NumPy and numba-cuda; `python gru_final_state_cuda.py` checks it on a GPU.
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

load_one = ptx("{.reg .pred p; setp.ne.s32 p, $2, 0; mov.f32 $0, 0f00000000; @p ld.global.nc.f32 $0, [$1];}", "f", "lr")
store_one = ptx("st.global.f32 [$0], $1;", "", "lf", memory=True)

@cuda.jit(device=True)
def first_like(origins, row):
    """The first of neighbouring rows that begin where this one does."""
    while row > 0 and origins[row - 1] == origins[row]:
        row -= 1
    return row

@cuda.jit(device=True)
def turned(word, ring):
    """Where a word lies in a ring of so many."""
    return np.uint32(word) % np.uint32(ring)

def staging(load, kind, size):
    """What fills rings with numbers of so many bytes, eight of a thread at a time; rows that begin at one place have one ring."""
    @cuda.jit(device=True)
    def staged(cells, room, origins, rows, first, count, ring, length, sector, thread, span):
        """Words from `first` on, counted from where the sector begins in which the row does; beside the row there is 0."""
        held = cuda.local.array(8, kind)
        for turn in range(0, rows * count, 8 * span):
            for k in range(8):
                number = i4(turn + k * span + thread)
                row = sel(number < rows * count, i4(number // count), i4(0))
                origin = origins[row]
                word = i4(first + number % count - origin % sector // size)
                there = number < rows * count and 0 <= word and word < length and (row == 0 or origins[row - 1] != origin)
                held[k] = load(origin + word * size, there)
                unrolled()
            for k in range(8):
                number = i4(turn + k * span + thread)
                if number < rows * count:
                    cells[i4(number // count * room) + turned(first + number % count, ring)] = held[k]
                unrolled()
    return staged

stage_rows = staging(load_one, f4, 4)

SIZE, DELAY = 4, 8


@cuda.jit(device=True)
def fold(seen_old, h_old, h2_old, n_i, n_j, cells_W, n_g, cells_x, words_x, skew_x, ring_x, at):
    seen = i4(seen_old + 1)
    h = h_old
    h2 = h2_old
    t1 = 0.0
    for i_j in range(n_j):
        t3 = 0.0
        for i_i in range(n_i):
            t5 = 0.0
            for i_g in range(n_g):
                t5 = t5 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 0 else f4(0))
            t3 = t3 + (t5 if i_i == 0 else f8(0))
        t1 = t1 + (t3 if i_j == 0 else f8(0))
    t13 = 0.0
    for i_j in range(n_j):
        t15 = 0.0
        for i_i in range(n_i):
            t17 = 0.0
            for i_g in range(n_g):
                t17 = t17 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 1 else f4(0))
            t15 = t15 + (t17 if i_i == 0 else f8(0))
        t13 = t13 + (t15 if i_j == 0 else f8(0))
    t25 = 0.0
    for i_j in range(n_j):
        t27 = 0.0
        for i_i in range(n_i):
            t29 = 0.0
            for i_g in range(n_g):
                t29 = t29 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 1 else f4(0))
            t27 = t27 + (t29 if i_i == 0 else f8(0))
        t25 = t25 + (t27 if i_j == 1 else f8(0))
    t42 = 0.0
    for i_j in range(n_j):
        t44 = 0.0
        for i_i in range(n_i):
            t46 = 0.0
            for i_g in range(n_g):
                t46 = t46 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 2 else f4(0))
            t44 = t44 + (t46 if i_i == 0 else f8(0))
        t42 = t42 + (t44 if i_j == 0 else f8(0))
    t53 = 0.0
    for i_j in range(n_j):
        t55 = 0.0
        for i_i in range(n_i):
            t57 = 0.0
            for i_g in range(n_g):
                t57 = t57 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 3 else f4(0))
            t55 = t55 + (t57 if i_i == 0 else f8(0))
        t53 = t53 + (t55 if i_j == 0 else f8(0))
    t66 = 0.0
    for i_j in range(n_j):
        t68 = 0.0
        for i_i in range(n_i):
            t70 = 0.0
            for i_g in range(n_g):
                t70 = t70 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 3 else f4(0))
            t68 = t68 + (t70 if i_i == 0 else f8(0))
        t66 = t66 + (t68 if i_j == 1 else f8(0))
    t76 = 0.0
    for i_j in range(n_j):
        t78 = 0.0
        for i_i in range(n_i):
            t80 = 0.0
            for i_g in range(n_g):
                t80 = t80 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 0 else f4(0))
            t78 = t78 + (t80 if i_i == 0 else f8(0))
        t76 = t76 + (t78 if i_j == 1 else f8(0))
    t87 = 0.0
    for i_j in range(n_j):
        t89 = 0.0
        for i_i in range(n_i):
            t91 = 0.0
            for i_g in range(n_g):
                t91 = t91 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 1 else f4(0))
            t89 = t89 + (t91 if i_i == 1 else f8(0))
        t87 = t87 + (t89 if i_j == 0 else f8(0))
    t99 = 0.0
    for i_j in range(n_j):
        t101 = 0.0
        for i_i in range(n_i):
            t103 = 0.0
            for i_g in range(n_g):
                t103 = t103 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 1 else f4(0))
            t101 = t101 + (t103 if i_i == 1 else f8(0))
        t99 = t99 + (t101 if i_j == 1 else f8(0))
    t122 = 0.0
    for i_j in range(n_j):
        t124 = 0.0
        for i_i in range(n_i):
            t126 = 0.0
            for i_g in range(n_g):
                t126 = t126 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 2 else f4(0))
            t124 = t124 + (t126 if i_i == 0 else f8(0))
        t122 = t122 + (t124 if i_j == 1 else f8(0))
    t133 = 0.0
    for i_j in range(n_j):
        t135 = 0.0
        for i_i in range(n_i):
            t137 = 0.0
            for i_g in range(n_g):
                t137 = t137 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 3 else f4(0))
            t135 = t135 + (t137 if i_i == 1 else f8(0))
        t133 = t133 + (t135 if i_j == 0 else f8(0))
    t145 = 0.0
    for i_j in range(n_j):
        t147 = 0.0
        for i_i in range(n_i):
            t149 = 0.0
            for i_g in range(n_g):
                t149 = t149 + f8(cells_W[(i_g * n_i + i_i) * n_j + i_j] if i_g == 3 else f4(0))
            t147 = t147 + (t149 if i_i == 1 else f8(0))
        t145 = t145 + (t147 if i_j == 1 else f8(0))
    t162 = t13 * 0.0
    t164 = t25 * 0.0
    t176 = t87 * 0.0
    t178 = t99 * 0.0
    if seen_old == 0:
        t160 = cells_x[turned(at * words_x + skew_x, ring_x)]
        t169 = 0.5 * math.tanh(0.5 * (t1 * f8(t160) + t162 + t164)) + 0.5
        t172 = t169 * 0.0
        t183 = 0.5 * math.tanh(0.5 * (t76 * f8(t160) + t176 + t178)) + 0.5
        t184 = t183 * 0.0
        t198 = (1.0 - t183) * math.tanh(t122 * f8(t160) + t133 * t172 + t145 * t184) + t184
        h, h2 = (1.0 - t169) * math.tanh(t42 * f8(t160) + t53 * t172 + t66 * t184) + t172, t198
    else:
        t11 = cells_x[turned(at * words_x + skew_x, ring_x)]
        t40 = 0.5 * math.tanh(0.5 * (t1 * f8(t11) + t13 * h + t25 * h2)) + 0.5
        t63 = t40 * h
        t114 = 0.5 * math.tanh(0.5 * (t76 * f8(t11) + t87 * h + t99 * h2)) + 0.5
        t115 = t114 * h2
        t159 = (1.0 - t114) * math.tanh(t122 * f8(t11) + t133 * t63 + t145 * t115) + t115
        h, h2 = (1.0 - t40) * math.tanh(t42 * f8(t11) + t53 * t63 + t66 * t115) + t63, t159
    return seen, h, h2


@cuda.jit(device=True)
def output_0(h):
    return f4(h)


@cuda.jit(device=True)
def output_1(h2):
    return f4(h2)


@cuda.jit(device=True)
def finish(seen, h, h2):
    return output_0(h), output_1(h2)


@cache
def make(rows, wide, step, n_g, n_i, n_j):
    """The kernel in which so many rows share a block, a thread for each of `wide` columns; `step` elements of a row come at a time."""
    ring, lanes = step + 2 * DELAY, 1
    span, pieces = -(-rows * wide // 32) * 32, -(-lanes // wide)
    words_x = 1
    ring_x = ring * words_x
    room_x = -(-ring_x // 32) * 32 + max(wide, words_x | 1) % 32
    all_x = rows * room_x
    words_W = n_g * n_i * n_j
    room_W = -(-words_W // 32) * 32 + max(wide, words_W | 1) % 32
    all_W = rows * room_W

    @cuda.jit(launch_bounds=(span, 1))
    def kernel(x, s_x, W, s_W, n_l, items, out_0, out_1):
        thread = i4(cuda.threadIdx.x)
        mine, column = i4(thread // wide), i8(thread % wide + cuda.blockIdx.x % pieces * wide)
        start = i8(cuda.blockIdx.x // pieces) * rows
        present = i4(min(items - start, rows))
        live = mine < present and column < lanes
        mine = sel(mine < present, mine, i4(0))
        item = start + mine
        rest = item
        o_x = rest * s_x
        p_x = address(x) + o_x * SIZE
        o_W = rest * s_W
        p_W = address(W) + o_W * SIZE
        all_cells_x = cuda.shared.array(all_x, f4)
        origins_x = cuda.shared.array(rows, i8)
        origin_x = p_x
        if thread == mine * wide:
            origins_x[mine] = origin_x
        all_cells_W = cuda.shared.array(all_W, f4)
        origins_W = cuda.shared.array(rows, i8)
        origin_W = p_W
        if thread == mine * wide:
            origins_W[mine] = origin_W
        cuda.syncthreads()
        own = first_like(origins_x, mine)
        cells_x = all_cells_x[own * room_x:]
        skew_x = i4(origin_x % 32 // 4)
        own = first_like(origins_W, mine)
        cells_W = all_cells_W[own * room_W:]
        stage_rows(all_cells_W, room_W, origins_W, present, i4(0), words_W, words_W, words_W, 4, thread, span)
        cuda.syncthreads()
        seen, h, h2 = i4(0), 0.0, 0.0
        for turn in range(0, n_l + 2 * DELAY, step):
            cuda.syncthreads()
            stage_rows(all_cells_x, room_x, origins_x, present, i4(turn) * words_x, step * words_x, ring_x, n_l * words_x, 32, thread, span)
            cuda.syncthreads()
            for at in range(turn - DELAY - skew_x // words_x, turn + step - DELAY - skew_x // words_x):
                if 0 <= at < n_l:
                    seen, h, h2 = fold(seen, h, h2, n_i, n_j, cells_W, n_g, cells_x, words_x, skew_x, ring_x, at)
        result_0, result_1 = finish(seen, h, h2)
        if live:
            store_one(address(out_0) + (item) * SIZE, f4(result_0))
        if live:
            store_one(address(out_1) + (item) * SIZE, f4(result_1))

    return kernel


AXES = {'x': ('l',), 'W': ('g', 'i', 'j')}
DTYPES = {'x': np.float32, 'W': np.float32}
OUTPUTS = [((), np.float32), ((), np.float32)]
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


def plan(x, W):
    """(kernel, blocks, threads per block) of each launch, the kernel's arguments, lengths of what parts of rows leave,
    and the shapes of the outputs."""
    arrays = {'x': x, 'W': W}
    sizes, leading, steps = checked(arrays)
    items, length, parts = math.prod(leading), sizes['l'], 1
    if length * 1 >= 2**31 - 2**10:
        raise ValueError(f"a row has {length} elements, too many for places of 31 bits: take fewer columns at a time")
    lanes = 1
    wide, state = min(lanes, 256), 0
    if state > 640:
        raise ValueError(f"a thread holds {state} bytes of a row's state, and has room for 640: take fewer columns at a time")
    room = lambda words: -(-words // 32) * 32 + 32
    needed = lambda ring: 4 * room(ring * 1) + 4 * room(sizes['g'] * sizes['i'] * sizes['j'])
    most = min(max(8, items // 128), 2 * items - 1, 32, max(1, 256 // wide))
    shapes = [(rows, step) for rows in (32, 16, 8, 4, 2, 1) for step in (4 * DELAY, 2 * DELAY, DELAY) if rows <= most]
    fits = [(rows, step) for rows, step in shapes if rows * needed(step + 2 * DELAY) <= 45056]
    if not fits:
        raise ValueError(f"24 elements and what goes with them take more than 45056 bytes: take fewer columns at a time")
    rows, step = fits[0]
    blocks, threads = -(-items // rows) * -(-lanes // wide), -(-rows * wide // 32) * 32
    launches = [((rows, wide, step, sizes['g'], sizes['i'], sizes['j']), blocks, threads)]
    arguments = [part for name, array in arrays.items() for part in (array, steps[name])]
    arguments += [*(np.int64(sizes[axis]) for axis in ('l',)), np.int64(items)]
    held = [items * parts * math.prod(sizes[axis] for axis in own) for _, own in HELD]
    return launches, arguments, held, [leading + tuple(sizes[axis] for axis in own) for own, _ in OUTPUTS]


def launch(x, W, stream=0):
    """Run on the GPU; `stream` is a CUDA stream.  NumPy arrays give NumPy arrays, others give device arrays.

    Raises ValueError or TypeError for arrays that do not fit.
    """
    launches, arguments, held, shapes = plan(x, W)
    host = not any(hasattr(each, "__cuda_array_interface__") for each in arguments)
    flat = [cuda.to_device(each.reshape(-1), stream) if isinstance(each, np.ndarray) else
            cuda.as_cuda_array(each).reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    parts = [cuda.device_array(count, dtype, stream=stream) for count, (dtype, _) in zip(held, HELD)]
    outputs = [cuda.device_array(math.prod(shape), dtype, stream=stream) for shape, (_, dtype) in zip(shapes, OUTPUTS)]
    for chosen, blocks, threads in launches:
        make(*chosen)[blocks, threads, stream](*flat, *parts, *outputs)
    results = [(each.copy_to_host(stream=stream) if host else each).reshape(shape) for each, shape in zip(outputs, shapes)]
    return results[0] if len(results) == 1 else tuple(results)


ALL_AXES = ('l', 'g', 'i', 'j')


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


def definition(x, W):
    """gru_final_state as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    W = spread(W, 'g i j')
    lengths = {"l": x.shape[-4], "g": W.shape[-3], "i": W.shape[-2], "j": W.shape[-1]}
    t1 = positions("j", lengths["j"]) == 0
    t2 = positions("i", lengths["i"]) == 0
    d1 = np.sum(np.where(t2, np.sum(np.where(positions("g", lengths["g"]) == 0, W, 0), along("g"), keepdims=True), 0), along("i"), keepdims=True)
    d2 = np.sum(np.where(positions("g", lengths["g"]) == 1, W, 0), along("g"), keepdims=True)
    d3 = np.sum(np.where(t2, d2, 0), along("i"), keepdims=True)
    t3 = positions("j", lengths["j"]) == 1
    d4 = np.sum(np.where(t2, np.sum(np.where(positions("g", lengths["g"]) == 2, W, 0), along("g"), keepdims=True), 0), along("i"), keepdims=True)
    d5 = np.sum(np.where(positions("g", lengths["g"]) == 3, W, 0), along("g"), keepdims=True)
    d6 = np.sum(np.where(t2, d5, 0), along("i"), keepdims=True)
    t4 = positions("i", lengths["i"]) == 1
    d7 = np.sum(np.where(t4, d2, 0), along("i"), keepdims=True)
    d8 = np.sum(np.where(t4, d5, 0), along("i"), keepdims=True)
    return (taken_out(stepped("l", lengths["l"], 0, "", (0.0, 0.0,), (np.sum(np.where(t1, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t1, d4, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d4, 0), along("j"), keepdims=True) * x,), lambda h, k, e1, e2, e3, e4: ((1 - (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e2 + np.sum(np.where(t1, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h, (1 - (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e4 + np.sum(np.where(t1, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k,)), '', lengths), taken_out(stepped("l", lengths["l"], 1, "", (0.0, 0.0,), (np.sum(np.where(t1, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t1, d4, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d4, 0), along("j"), keepdims=True) * x,), lambda h, k, e1, e2, e3, e4: ((1 - (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e2 + np.sum(np.where(t1, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h, (1 - (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e4 + np.sum(np.where(t1, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k,)), '', lengths),)


def main():
    """Check the kernel against the definition on a GPU, at lengths that are no multiple of a tile."""
    if not cuda.is_available():
        print("There is no GPU here, or no driver for one: nothing was checked.")
        return 1
    errors = {}
    for length in (1, 31, 1000, 8191, 100000):
        rng = np.random.default_rng(length)
        arrays = {"x": rng.standard_normal((3, length)).astype(DTYPES['x']),
                  "W": rng.standard_normal((4, 5, 6)).astype(DTYPES['W'])}
        with np.errstate(all="ignore"):
            wanted = definition(*arrays.values())
        errors[length] = distance(launch(*arrays.values()), wanted)
        print(f"gru_final_state, l = {length}: error {errors[length]:.1e} of the largest value, at most 0.0001 is right")
    return 0 if max(errors.values()) <= 0.0001 else 1


if __name__ == "__main__":
    sys.exit(main())
