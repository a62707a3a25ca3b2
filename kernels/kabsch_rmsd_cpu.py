"""kabsch_rmsd: one pass over l, 6 words of state per row, commutative merge.

RMSD of two centred point sets of the plane after the best rotation, whose angle is atan2(Σ x×y, Σ x·y).

The operator
    kabsch_rmsd(X[l, plane], Y[l, plane]):
        t1 = index(plane) == 0
        t2 = X - sum(X, l) / size(l)
        d1 = sum(where(t1, t2, 0), plane)
        t3 = index(plane) == 1
        t4 = Y - sum(Y, l) / size(l)
        d2 = sum(where(t3, t4, 0), plane)
        d3 = sum(where(t3, t2, 0), plane)
        d4 = sum(where(t1, t4, 0), plane)
        t5 = arctan2(sum(d1 * d2 - d3 * d4, l), sum(d1 * d4 + d3 * d2, l))
        t6 = cos(t5)
        t7 = sin(t5)
        return sqrt(sum((t6 * d1 - t7 * d3 - d4) ** 2 + (t7 * d1 + t6 * d3 - d2) ** 2, l) / size(l))

One more element (a prime marks the new value)
    s'  = s + X[l,plane]
    s2' = s2 + Y[l,plane]
    N'  = N + 1
    p1' = s'/N'
    p2' = s2'/N'
    s1' = s1 + N·(p1 − p1')·(p2 − p2') + (X[l,plane] − p1')·(Y[l,plane__1] − p2')
    s6' = s6 + N·(p1 − p1')·(p1 − p1') + (X[l,plane] − p1')·(X[l,plane__1] − p1')
    s7' = s7 + N·(p2 − p2')·(p2 − p2') + (Y[l,plane] − p2')·(Y[l,plane__1] − p2')

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p2_a = s2_a/N_a
    p1_b = s_b/N_b
    p2_b = s2_b/N_b
    p1'  = s'/N'
    p2'  = s2'/N'
    s1'  = s1_a + N_a·(p1_a − p1')·(p2_a − p2') + s1_b + N_b·(p1_b − p1')·(p2_b − p2')
    s6'  = s6_a + N_a·(p1_a − p1')·(p1_a − p1') + s6_b + N_b·(p1_b − p1')·(p1_b − p1')
    s7'  = s7_a + N_a·(p2_a − p2')·(p2_a − p2') + s7_b + N_b·(p2_b − p2')·(p2_b − p2')

Dangers
    s5 = Σ_plane__2 Σ_plane ((p3²·s6 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((−2·p3·s1 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((p4²·s6 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((2·p4·s1 if plane = 1 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((s7 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((p4²·s6 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((−2·p4·s1 if plane = 0 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((p3²·s6 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((−2·p3·s1 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((s7 if plane = 1 else 0) if plane__2 = 1 else 0) is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 0c3af5b53e77206364c432dc7b43e66e98fb15822098f1c10fcfc8bda2a9e634
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python kabsch_rmsd_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"X": "l plane", "Y": "l plane"}
DTYPES = {"X": "float32", "Y": "float32"}
TILE, BLOCK = 1024, 1


def kabsch_rmsd(X, Y, *, threads=None):
    """kabsch_rmsd in one pass over l.

    Takes float32 X[…, l, plane], float32 Y[…, l, plane]; gives float32 […].  Leading dimensions are batch and
    broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X, "Y": Y}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["X"], INPUTS["X"], "l plane", batch),
        *laid_out(arrays["Y"], INPUTS["Y"], "l plane", batch),
        lengths["l"], lengths["plane"], out0)
    return given_back(out0, batch, "", "")


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@intrinsic
def empty(context, shape, kind):
    """New memory for an array of a shape and a kind of number."""
    made = types.Array(kind.dtype, len(shape), "C")
    def emit(context, builder, signature, args):
        number, lengths = context.get_data_type(made.dtype), cgutils.unpack_tuple(builder, args[0])
        strides = [context.get_constant(types.intp, context.get_abi_sizeof(number))]
        for length in reversed(lengths):
            strides.insert(0, builder.mul(strides[0], length))
        memory = context.nrt.meminfo_alloc_aligned(builder, strides[0], context.get_constant(types.uint32, 64))
        start = builder.bitcast(context.nrt.meminfo_data(builder, memory), number.as_pointer())
        array = context.make_array(made)(context, builder)
        return populate_array(array, start, lengths, strides[1:], strides[-1], memory)._getvalue()
    return made(shape, kind), emit


@intrinsic
def fill(context, array, value):
    """Every element of a contiguous array becomes a value."""
    def emit(context, builder, signature, args):
        target = context.make_array(array)(context, builder, args[0])
        with cgutils.for_range(builder, target.nitems) as loop:
            context.pack_value(builder, array.dtype, args[1], builder.gep(target.data, [loop.index]))
        return context.get_dummy_value()
    return types.none(array, array.dtype), emit


@intrinsic
def copy(context, source, target):
    """What one contiguous array holds, another holds."""
    def emit(context, builder, signature, args):
        start, into = (context.make_array(kind)(context, builder, each) for kind, each in zip(signature.args, args))
        cgutils.raw_memcpy(builder, into.data, start.data, start.nitems, start.itemsize)
        return context.get_dummy_value()
    return types.none(source, target), emit


@intrinsic
def times(context, factor, x):
    """factor · x, and 0 where x is 0, whatever the factor."""
    def emit(context, builder, signature, args):
        factor, x = args
        zero = ir.Constant(x.type, 0.0)
        return builder.select(builder.fcmp_ordered("==", x, zero), zero, builder.fmul(factor, x))
    return x(x, x), emit


def _finite(builder, x):
    infinity = ir.Constant(x.type, float("inf"))
    size = builder.call(builder.module.declare_intrinsic("llvm.fabs", [x.type], ir.FunctionType(x.type, [x.type])), [x])
    return builder.fcmp_ordered("<", size, infinity)


@intrinsic
def anchored(context, x):
    """A number, or 0 where it is not finite."""
    def emit(context, builder, signature, args):
        return builder.select(_finite(builder, *args), args[0], ir.Constant(args[0].type, 0.0))
    return x(x), emit


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@intrinsic
def touch(context, array, place):
    """Ask the caches for what lies `place` elements behind the start of an array, be it outside: this never fails."""
    def emit(context, builder, signature, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number]))
        builder.call(fetch, [builder.bitcast(start, byte), number(0), number(3), number(1)])
        return context.get_dummy_value()
    return types.none(array, place), emit


@njit(**PART)
def ahead(tile, first, count, apart, pages, line):
    """Fetch `count` elements that begin `first` behind the start of a tile, `line` at a time, and as many of other `pages`
    that lie so far `apart`, in turn: memory gives several pages at once sooner than one after another.  A tile of more
    than 64 KiB is not fetched: no cache would keep it."""
    if pages * apart > 1024 * line:
        return
    for place in range(first, first + count, line):
        for page in range(pages):
            touch(tile, place + page * apart)


def _extreme(name):
    """NumPy's maximum or minimum of two floats: NaN wins.  A bare instruction, so that loops over it become vectors."""
    @intrinsic
    def extreme(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            function = builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind, kind]))
            return builder.call(function, args, fastmath=("nsz",))
        return a(a, b), emit
    return extreme


larger = _extreme("llvm.maximum")


@njit(**LOOP)
def fold_0(X, s, Y, s2, n_plane, n):
    wide_vectors()
    for i_l in range(n):
        for i_plane in range(n_plane):
            s[i_plane] = s[i_plane] + f8(X[i_l, i_plane])
            s2[i_plane] = s2[i_plane] + f8(Y[i_l, i_plane])


@njit(**PART)
def value_1(p1, s, N, n_plane, p2, s2):
    for i_plane in range(n_plane):
        t1 = s[i_plane] / f8(N)
        p1[i_plane] = t1
    for i_plane in range(n_plane):
        t2 = s2[i_plane] / f8(N)
        p2[i_plane] = t2


@njit(**PART)
def rebase_1(s1, old_p1, p1, old_p2, p2, old_N, n_plane__1, n_plane, s6, s7):
    for i_plane in range(n_plane):
        t1 = anchored(old_p1[i_plane])
        t2 = anchored(p1[i_plane])
        t3 = t1 - t2
        for i_plane__1 in range(n_plane__1):
            t4 = anchored(old_p2[i_plane__1])
            t5 = anchored(p2[i_plane__1])
            t6 = t4 - t5
            t7 = t3 * t6
            t8 = times(t7, f8(old_N))
            t9 = s1[i_plane, i_plane__1] + t8
            s1[i_plane, i_plane__1] = t9
    for i_plane in range(n_plane):
        t10 = anchored(old_p1[i_plane])
        t11 = anchored(p1[i_plane])
        t12 = t10 - t11
        for i_plane__1 in range(n_plane__1):
            t13 = anchored(old_p1[i_plane__1])
            t14 = anchored(p1[i_plane__1])
            t15 = t13 - t14
            t16 = t12 * t15
            t17 = times(t16, f8(old_N))
            t18 = s6[i_plane, i_plane__1] + t17
            s6[i_plane, i_plane__1] = t18
    for i_plane in range(n_plane):
        t19 = anchored(old_p2[i_plane])
        t20 = anchored(p2[i_plane])
        t21 = t19 - t20
        for i_plane__1 in range(n_plane__1):
            t22 = anchored(old_p2[i_plane__1])
            t23 = anchored(p2[i_plane__1])
            t24 = t22 - t23
            t25 = t21 * t24
            t26 = times(t25, f8(old_N))
            t27 = s7[i_plane, i_plane__1] + t26
            s7[i_plane, i_plane__1] = t27


@njit(**LOOP)
def fold_1(X, p1, Y, p2, s1, s6, s7, n_plane__1, n_plane, n):
    wide_vectors()
    for i_l in range(n):
        for i_plane in range(n_plane):
            t1 = anchored(p1[i_plane])
            t2 = f8(X[i_l, i_plane]) - t1
            t9 = anchored(p2[i_plane])
            t10 = f8(Y[i_l, i_plane]) - t9
            for i_plane__1 in range(n_plane__1):
                t3 = anchored(p2[i_plane__1])
                t4 = f8(Y[i_l, i_plane__1]) - t3
                t5 = t2 * t4
                s1[i_plane, i_plane__1] = s1[i_plane, i_plane__1] + t5
                t6 = anchored(p1[i_plane__1])
                t7 = f8(X[i_l, i_plane__1]) - t6
                t8 = t2 * t7
                s6[i_plane, i_plane__1] = s6[i_plane, i_plane__1] + t8
                t11 = t10 * t4
                s7[i_plane, i_plane__1] = s7[i_plane, i_plane__1] + t11


@njit(**PART)
def finish(p1, s, N, n_plane, p2, s2, s1, n_plane__1, s6, s7, n_plane__2, s3, s4, p3, p4, s5, n_l):
    for i_plane in range(n_plane):
        t1 = s[i_plane] / f8(N)
        p1[i_plane] = t1
    for i_plane in range(n_plane):
        t2 = s2[i_plane] / f8(N)
        p2[i_plane] = t2
    for i_plane in range(n_plane):
        t3 = p1[i_plane]
        t4 = t3 - t3
        t12 = p1[i_plane] - p1[i_plane]
        t13 = t12 == 0.0
        t14 = p1[i_plane] if t13 else f8(0)
        t15 = t14 - p1[i_plane]
        for i_plane__1 in range(n_plane__1):
            t5 = p2[i_plane__1]
            t6 = t5 - t5
            t7 = t4 * t6
            t8 = 1.0 + t7
            t9 = t8 != t8
            t10 = s1[i_plane, i_plane__1] - s1[i_plane, i_plane__1]
            t11 = t10 == 0.0
            t16 = p2[i_plane__1] - p2[i_plane__1]
            t17 = t16 == 0.0
            t18 = p2[i_plane__1] if t17 else f8(0)
            t19 = t18 - p2[i_plane__1]
            t20 = t15 * t19
            t21 = t20 * f8(N)
            t22 = s1[i_plane, i_plane__1] + t21
            t23 = t22 if t11 else nan
            t24 = t23 if t9 else s1[i_plane, i_plane__1]
            s1[i_plane, i_plane__1] = t24
    for i_plane in range(n_plane):
        t25 = p1[i_plane]
        t26 = t25 - t25
        t34 = p1[i_plane] - p1[i_plane]
        t35 = t34 == 0.0
        t36 = p1[i_plane] if t35 else f8(0)
        t37 = t36 - p1[i_plane]
        for i_plane__1 in range(n_plane__1):
            t27 = p1[i_plane__1]
            t28 = t27 - t27
            t29 = t26 * t28
            t30 = 1.0 + t29
            t31 = t30 != t30
            t32 = s6[i_plane, i_plane__1] - s6[i_plane, i_plane__1]
            t33 = t32 == 0.0
            t38 = p1[i_plane__1] - p1[i_plane__1]
            t39 = t38 == 0.0
            t40 = p1[i_plane__1] if t39 else f8(0)
            t41 = t40 - p1[i_plane__1]
            t42 = t37 * t41
            t43 = t42 * f8(N)
            t44 = s6[i_plane, i_plane__1] + t43
            t45 = t44 if t33 else nan
            t46 = t45 if t31 else s6[i_plane, i_plane__1]
            s6[i_plane, i_plane__1] = t46
    for i_plane in range(n_plane):
        t47 = p2[i_plane]
        t48 = t47 - t47
        t56 = p2[i_plane] - p2[i_plane]
        t57 = t56 == 0.0
        t58 = p2[i_plane] if t57 else f8(0)
        t59 = t58 - p2[i_plane]
        for i_plane__1 in range(n_plane__1):
            t49 = p2[i_plane__1]
            t50 = t49 - t49
            t51 = t48 * t50
            t52 = 1.0 + t51
            t53 = t52 != t52
            t54 = s7[i_plane, i_plane__1] - s7[i_plane, i_plane__1]
            t55 = t54 == 0.0
            t60 = p2[i_plane__1] - p2[i_plane__1]
            t61 = t60 == 0.0
            t62 = p2[i_plane__1] if t61 else f8(0)
            t63 = t62 - p2[i_plane__1]
            t64 = t59 * t63
            t65 = t64 * f8(N)
            t66 = s7[i_plane, i_plane__1] + t65
            t67 = t66 if t55 else nan
            t68 = t67 if t53 else s7[i_plane, i_plane__1]
            s7[i_plane, i_plane__1] = t68
    t69 = 0.0
    if 1 < n_plane__2:
        t70 = 0.0
        if 0 < n_plane:
            t70 = t70 + s1[0, 1]
        t69 = t69 + t70
    t71 = 0.0
    if 0 < n_plane__2:
        t72 = 0.0
        if 1 < n_plane:
            t73 = -s1[1, 0]
            t72 = t72 + t73
        t71 = t71 + t72
    t74 = t69 + t71
    s3 = t74
    t75 = 0.0
    if 0 < n_plane__2:
        t76 = 0.0
        if 0 < n_plane:
            t76 = t76 + s1[0, 0]
        t75 = t75 + t76
    t77 = 0.0
    if 1 < n_plane__2:
        t78 = 0.0
        if 1 < n_plane:
            t78 = t78 + s1[1, 1]
        t77 = t77 + t78
    t79 = t75 + t77
    s4 = t79
    t80 = np.arctan2(s3, s4)
    t81 = np.cos(t80)
    p3 = t81
    t82 = np.sin(t80)
    p4 = t82
    t83 = 0.0
    t85 = p3 * p3
    if 0 < n_plane__2:
        t84 = 0.0
        if 0 < n_plane:
            t86 = t85 * s6[0, 0]
            t84 = t84 + t86
        t83 = t83 + t84
    t87 = 0.0
    t89 = (-2.0) * p3
    if 0 < n_plane__2:
        t88 = 0.0
        if 0 < n_plane:
            t90 = t89 * s1[0, 0]
            t88 = t88 + t90
        t87 = t87 + t88
    t91 = t83 + t87
    t92 = 0.0
    t94 = p4 * p4
    if 1 < n_plane__2:
        t93 = 0.0
        if 1 < n_plane:
            t95 = t94 * s6[1, 1]
            t93 = t93 + t95
        t92 = t92 + t93
    t96 = t91 + t92
    t97 = 0.0
    t99 = 2.0 * p4
    if 0 < n_plane__2:
        t98 = 0.0
        if 1 < n_plane:
            t100 = t99 * s1[1, 0]
            t98 = t98 + t100
        t97 = t97 + t98
    t101 = t96 + t97
    t102 = 0.0
    if 0 < n_plane__2:
        t103 = 0.0
        if 0 < n_plane:
            t103 = t103 + s7[0, 0]
        t102 = t102 + t103
    t104 = t101 + t102
    t105 = 0.0
    if 0 < n_plane__2:
        t106 = 0.0
        if 0 < n_plane:
            t107 = t94 * s6[0, 0]
            t106 = t106 + t107
        t105 = t105 + t106
    t108 = t104 + t105
    t109 = 0.0
    t111 = (-2.0) * p4
    if 1 < n_plane__2:
        t110 = 0.0
        if 0 < n_plane:
            t112 = t111 * s1[0, 1]
            t110 = t110 + t112
        t109 = t109 + t110
    t113 = t108 + t109
    t114 = 0.0
    if 1 < n_plane__2:
        t115 = 0.0
        if 1 < n_plane:
            t116 = t85 * s6[1, 1]
            t115 = t115 + t116
        t114 = t114 + t115
    t117 = t113 + t114
    t118 = 0.0
    if 1 < n_plane__2:
        t119 = 0.0
        if 1 < n_plane:
            t120 = t89 * s1[1, 1]
            t119 = t119 + t120
        t118 = t118 + t119
    t121 = t117 + t118
    t122 = 0.0
    if 1 < n_plane__2:
        t123 = 0.0
        if 1 < n_plane:
            t123 = t123 + s7[1, 1]
        t122 = t122 + t123
    t124 = t121 + t122
    t125 = larger(t124, 0.0)
    s5 = t125
    t126 = s5 / f8(n_l)
    t127 = np.sqrt(t126)
    out0 = f4(t127)
    return s3, s4, p3, p4, s5, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, b_Y, Y, n_l, n_plane, out0):
    wide_vectors()
    s = empty((n_plane,), f8)
    s2 = empty((n_plane,), f8)
    s1 = empty((n_plane, n_plane,), f8)
    s6 = empty((n_plane, n_plane,), f8)
    s7 = empty((n_plane, n_plane,), f8)
    p1 = empty((n_plane,), f8)
    p2 = empty((n_plane,), f8)
    old_p1 = empty((n_plane,), f8)
    old_p2 = empty((n_plane,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        fill(s2, 0.0)
        N = i8(0)
        fill(s1, 0.0)
        fill(s6, 0.0)
        fill(s7, 0.0)
        fill(p1, 0)
        fill(p2, 0)
        s3 = f8(0)
        s4 = f8(0)
        p3 = f8(0)
        p4 = f8(0)
        s5 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            X_tile = X[b_X[b], t0:t0 + n]
            Y_tile = Y[b_Y[b], t0:t0 + n]
            copy(p1, old_p1)
            copy(p2, old_p2)
            old_N = N
            N += 1 * n
            fold_0(X_tile, s, Y_tile, s2, n_plane, n)
            value_1(p1, s, N, n_plane, p2, s2)
            if t0 > begin:
                rebase_1(s1, old_p1, p1, old_p2, p2, old_N, n_plane, n_plane, s6, s7)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(X_tile, (n + at // 2) * n_plane, (piece // 2) * n_plane, (n // 2) * n_plane, 2, 16)
                ahead(Y_tile, (n + at // 2) * n_plane, (piece // 2) * n_plane, (n // 2) * n_plane, 2, 16)
                fold_1(X_tile[at:at + piece], p1, Y_tile[at:at + piece], p2, s1, s6, s7, n_plane, n_plane, piece)
        s3, s4, p3, p4, s5, out0[b] = finish(p1, s, N, n_plane, p2, s2, s1, n_plane, s6, s7, n_plane, s3, s4, p3, p4, s5, n_l)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, b_Y, Y, n_l, n_plane, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_X, X, b_Y, Y, n_l, n_plane, out0)


def fitted(arrays, inputs, dtypes):
    """The arrays, the length of each axis and the common batch shape.  Raises TypeError and ValueError for what does not fit."""
    arrays, lengths = {name: np.asarray(array) for name, array in arrays.items()}, {}
    for name, array in arrays.items():
        axes = inputs[name].split()
        if array.dtype != dtypes[name]:
            raise TypeError(f"{name} is {array.dtype}, and this kernel reads {dtypes[name]}: convert it, or export for another --dtype")
        if array.ndim < len(axes):
            raise ValueError(f"{name} of shape {array.shape} has too few dimensions for the axes [{', '.join(axes)}]")
        for axis, length in zip(axes, array.shape[array.ndim - len(axes):]):
            if lengths.setdefault(axis, length) != length:
                raise ValueError(f"axis {axis} has length {length} in {name} and {lengths[axis]} before: make them equal")
            if length == 0:
                raise ValueError(f"axis {axis} has length 0 in {name}: there is nothing to reduce")
    leading = [array.shape[:array.ndim - len(inputs[name].split())] for name, array in arrays.items()]
    try:
        return arrays, lengths, np.broadcast_shapes(*leading)
    except ValueError:
        raise ValueError(f"the dimensions before the axes do not broadcast: {leading}") from None


def laid_out(array, axes, order, batch):
    """Which of an array's own batch each batch element reads, and the array: (own batch, axes in the kernel's order)."""
    axes = axes.split()
    leading = array.ndim - len(axes)
    moved = array.transpose(*range(leading), *(leading + axes.index(axis) for axis in order.split()))
    flat = np.ascontiguousarray(moved).reshape(-1, *moved.shape[leading:])
    which = np.arange(len(flat)).reshape((1,) * (len(batch) - leading) + array.shape[:leading])
    return np.broadcast_to(which, batch).flatten(), flat


def written(lengths, batch, order, dtype):
    """Memory for an output: (batch, axes in the kernel's order)."""
    return np.empty((prod(batch), *(lengths[axis] for axis in order.split())), dtype)


def given_back(output, batch, order, axes):
    """An output with dimensions (batch…, its axes…); a scalar if there are none."""
    full = output.reshape(batch + output.shape[1:])
    return full.transpose(*range(len(batch)), *(len(batch) + order.split().index(axis) for axis in axes.split()))[()]


AXES = ('l', 'plane')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(AXES) - len(own)))]
    return np.moveaxis(array, range(-len(AXES), len(own) - len(AXES)), own)


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in AXES])


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    own = axes.split()
    full = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), tuple(lengths[axis] if axis in own else 1 for axis in AXES)))
    moved = np.moveaxis(full, [along(axis) for axis in own], range(-len(own), 0))
    return moved.reshape(full.shape[:full.ndim - len(AXES)] + tuple(lengths[axis] for axis in own))


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


def definition(X, Y):
    """kabsch_rmsd as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l plane')
    Y = spread(Y, 'l plane')
    lengths = {"l": X.shape[-2], "plane": X.shape[-1]}
    t1 = positions("plane", lengths["plane"]) == 0
    t2 = X - np.sum(X, along("l"), keepdims=True) / lengths["l"]
    d1 = np.sum(np.where(t1, t2, 0), along("plane"), keepdims=True)
    t3 = positions("plane", lengths["plane"]) == 1
    t4 = Y - np.sum(Y, along("l"), keepdims=True) / lengths["l"]
    d2 = np.sum(np.where(t3, t4, 0), along("plane"), keepdims=True)
    d3 = np.sum(np.where(t3, t2, 0), along("plane"), keepdims=True)
    d4 = np.sum(np.where(t1, t4, 0), along("plane"), keepdims=True)
    t5 = np.arctan2(np.sum(d1 * d2 - d3 * d4, along("l"), keepdims=True), np.sum(d1 * d4 + d3 * d2, along("l"), keepdims=True))
    t6 = np.cos(t5)
    t7 = np.sin(t5)
    return taken_out(np.sqrt(np.sum((t6 * d1 - t7 * d3 - d4) ** 2 + (t7 * d1 + t6 * d3 - d2) ** 2, along("l"), keepdims=True) / lengths["l"]), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal', 'Y': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"plane": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"kabsch_rmsd, l = {length}", arrays, scalars))
    return 0 if passed_over(kabsch_rmsd, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
