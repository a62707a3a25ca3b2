"""mardia: one pass over l, 15 words of state per row, commutative merge.

Skewness Σ_ij ((x_i − μ)ᵀS⁻¹(x_j − μ))³/N² and kurtosis mean ((x − μ)ᵀS⁻¹(x − μ))² of points of the plane.

With whitened coordinates a and b the first is (mean a³)² + 3 (mean a²b)² + 3 (mean ab²)² + (mean b³)².

The operator
    mardia(X[l, plane]):
        d1 = sum(where(index(plane) == 0, X, 0), plane)
        t1 = d1 - sum(d1, l) / size(l)
        t2 = sum(t1 * t1, l) / size(l)
        t3 = t1 / sqrt(t2)
        d2 = sum(where(index(plane) == 1, X, 0), plane)
        t4 = d2 - sum(d2, l) / size(l)
        t5 = sum(t1 * t4, l) / size(l)
        t6 = (t4 - t1 * t5 / t2) / sqrt(sum(t4 * t4, l) / size(l) - t5 * t5 / t2)
        return (sum(t3 ** 3, l) / size(l)) ** 2 + 3.0 * (sum(t3 ** 2 * t6, l) / size(l)) ** 2 + 3.0 * (sum(t3 * t6 ** 2, l) / size(l)) ** 2 + (sum(t6 ** 3, l) / size(l)) ** 2, sum((t3 * t3 + t6 * t6) ** 2, l) / size(l)

One more element (a prime marks the new value)
    x1   = Σ_plane (X[l,plane] if plane = 0 else 0)
    x2   = Σ_plane (X[l,plane] if plane = 1 else 0)
    s'   = s + x1
    N'   = N + 1
    p1'  = s'/N'
    δ1   = p1 − p1'
    s2'  = s2 + δ1²·N + (x1 − p1')²
    s1'  = s1 + 3·δ1·s2 + δ1³·N + (x1 − p1')³
    s4'  = s4 + x2
    p3'  = s4'/N'
    δ2   = p3 − p3'
    s5'  = s5 + δ1·δ2·N + (x1 − p1')·(x2 − p3')
    s6'  = s6 + δ2²·N + (x2 − p3')²
    s11' = s11 + 2·δ1·s5 + δ2·s2 + δ1²·δ2·N + (x1 − p1')²·(x2 − p3')
    s12' = s12 + 2·δ2·s5 + δ1·s6 + δ1·δ2²·N + (x1 − p1')·(x2 − p3')²
    s13' = s13 + 3·δ2·s6 + δ2³·N + (x2 − p3')³
    s14' = s14 + 4·δ1·s1 + 6·δ1²·s2 + δ1⁴·N + (x1 − p1')⁴
    s15' = s15 + 2·δ1·s12 + 2·δ2·s11 + 4·δ1·δ2·s5 + δ1²·s6 + δ2²·s2 + δ1²·δ2²·N + (x1 − p1')²·(x2 − p3')²
    s16' = s16 + 3·δ1·s11 + δ2·s1 + 3·δ1·δ2·s2 + 3·δ1²·s5 + δ1³·δ2·N + (x1 − p1')³·(x2 − p3')
    s17' = s17 + 4·δ2·s13 + 6·δ2²·s6 + δ2⁴·N + (x2 − p3')⁴
    s18' = s18 + 3·δ2·s12 + 3·δ2²·s5 + δ1·s13 + 3·δ1·δ2·s6 + δ1·δ2³·N + (x1 − p1')·(x2 − p3')³

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s2'  = s2_a + δ1_a²·N_a + s2_b + δ1_b²·N_b
    s1'  = s1_a + 3·δ1_a·s2_a + δ1_a³·N_a + s1_b + 3·δ1_b·s2_b + δ1_b³·N_b
    s4'  = s4_a + s4_b
    p3_a = s4_a/N_a
    p3_b = s4_b/N_b
    p3'  = s4'/N'
    δ2_a = p3_a − p3'
    δ2_b = p3_b − p3'
    s5'  = s5_a + δ1_a·δ2_a·N_a + s5_b + δ1_b·δ2_b·N_b
    s6'  = s6_a + δ2_a²·N_a + s6_b + δ2_b²·N_b
    s11' = s11_a + 2·δ1_a·s5_a + δ2_a·s2_a + δ1_a²·δ2_a·N_a + s11_b + 2·δ1_b·s5_b + δ2_b·s2_b + δ1_b²·δ2_b·N_b
    s12' = s12_a + 2·δ2_a·s5_a + δ1_a·s6_a + δ1_a·δ2_a²·N_a + s12_b + 2·δ2_b·s5_b + δ1_b·s6_b + δ1_b·δ2_b²·N_b
    s13' = s13_a + 3·δ2_a·s6_a + δ2_a³·N_a + s13_b + 3·δ2_b·s6_b + δ2_b³·N_b
    s14' = s14_a + 4·δ1_a·s1_a + 6·δ1_a²·s2_a + δ1_a⁴·N_a + s14_b + 4·δ1_b·s1_b + 6·δ1_b²·s2_b + δ1_b⁴·N_b
    s15' = s15_a + 2·δ1_a·s12_a + 2·δ2_a·s11_a + 4·δ1_a·δ2_a·s5_a + δ1_a²·s6_a + δ2_a²·s2_a + δ1_a²·δ2_a²·N_a + s15_b + 2·δ1_b·s12_b + 2·δ2_b·s11_b + 4·δ1_b·δ2_b·s5_b + δ1_b²·s6_b + δ2_b²·s2_b + δ1_b²·δ2_b²·N_b
    s16' = s16_a + 3·δ1_a·s11_a + δ2_a·s1_a + 3·δ1_a·δ2_a·s2_a + 3·δ1_a²·s5_a + δ1_a³·δ2_a·N_a + s16_b + 3·δ1_b·s11_b + δ2_b·s1_b + 3·δ1_b·δ2_b·s2_b + 3·δ1_b²·s5_b + δ1_b³·δ2_b·N_b
    s17' = s17_a + 4·δ2_a·s13_a + 6·δ2_a²·s6_a + δ2_a⁴·N_a + s17_b + 4·δ2_b·s13_b + 6·δ2_b²·s6_b + δ2_b⁴·N_b
    s18' = s18_a + 3·δ2_a·s12_a + 3·δ2_a²·s5_a + δ1_a·s13_a + 3·δ1_a·δ2_a·s6_a + δ1_a·δ2_a³·N_a + s18_b + 3·δ2_b·s12_b + 3·δ2_b²·s5_b + δ1_b·s13_b + 3·δ1_b·δ2_b·s6_b + δ1_b·δ2_b³·N_b

Dangers
    s2/N_l divides and may be 0: the result is then what IEEE division gives
    p2 divides and may be 0: the result is then what IEEE division gives
    p6 divides and may be 0: the result is then what IEEE division gives
    p5 divides and may be 0: the result is then what IEEE division gives
    s7 = s11/(p2²·p6) − p4·s1/(p2²·p5·p6) is a difference of sums: it cancels where they are large against it
    s8 = s12/(p2·p6²) − 2·p4·s11/(p2·p5·p6²) + p4²·s1/(p2·p5²·p6²) is a difference of sums: it cancels where they are large against it
    s9 = s13/p6³ − 3·p4·s12/(p5·p6³) + 3·p4²·s11/(p5²·p6³) − p4³·s1/(p5³·p6³) is a difference of sums: it cancels where they are large against it
    s10 = s14·(1/p2⁴ + 2·p4²/(p2²·p5²·p6²) + p4⁴/(p5⁴·p6⁴)) + s15·(2/(p2²·p6²) + 6·p4²/(p5²·p6⁴)) + s16·(−4·p4/(p2²·p5·p6²) − 4·p4³/(p5³·p6⁴)) + s17/p6⁴ − 4·p4·s18/(p5·p6⁴) is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 534ad7948368e6f4db25bef9c4a8bc0e43b7c3b1d207a4dcc4ee396b9d6e1405
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python mardia_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"X": "l plane"}
DTYPES = {"X": "float32"}
TILE, BLOCK = 2048, 1


def mardia(X, *, threads=None):
    """mardia in one pass over l.

    Takes float32 X[…, l, plane]; gives float32 […], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["X"], INPUTS["X"], "l plane", batch),
        lengths["l"], lengths["plane"], out0, out1)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""))


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
def shaped(context, array, shape):
    """As many of the first elements of a contiguous array as a shape has, in that shape."""
    made = types.Array(array.dtype, len(shape), "C")
    if array.layout != "C":
        raise TypeError(f"{array} is not contiguous")
    def emit(context, builder, signature, args):
        whole, lengths = context.make_array(array)(context, builder, args[0]), cgutils.unpack_tuple(builder, args[1])
        strides = [whole.itemsize]
        for length in reversed(lengths[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        view = context.make_array(made)(context, builder)
        populate_array(view, whole.data, lengths, strides, whole.itemsize, whole.meminfo, whole.parent)
        return impl_ret_borrowed(context, builder, made, view._getvalue())
    return made(array, shape), emit


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
def finite(context, x):
    """Whether a number is neither infinite nor NaN."""
    def emit(context, builder, signature, args):
        return _finite(builder, *args)
    return types.boolean(x), emit


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


@njit(**PART)
def minus(a, b):
    """a − b, for sums whose order is free: differences are taken first."""
    return a - b


@njit(**PART)
def apart(x, pivot, real):
    """x − pivot with a pivot in float64: as that and what it lacks, it is two numbers of the type."""
    near = real(pivot)
    return (x - near) - (real(pivot - f8(near)) if finite(near) else real(0.0))


@njit(**PART)
def middle(x):
    """A number near the first elements of an array."""
    total = 0.0
    first = x.size if x.size < 64 else 64
    for place in range(first):
        total += f8(x[place])
    near = f4(total / first)
    return anchored(near)


@njit(**PART)
def sound(total):
    """Whether a sum is finite and so far from 0 that it misses nothing of products too small for float32."""
    return 1e-30 < abs(total) < inf


@njit(**LOOP)
def make_S1(S1, X, n_plane, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        if 0 < n_plane:
            t1 = t1 + f8(X[i_l, 0])
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, X, n_plane, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        if 1 < n_plane:
            t1 = t1 + f8(X[i_l, 1])
        S2[i_l] = f4(t1)


@njit(**LOOP)
def fold_0(S1, S2, n, real):
    wide_vectors()
    s = real(0.0)
    s4 = real(0.0)
    c0 = middle(S1)
    c1 = middle(S2)
    for i_l in range(n):
        s = s + minus(real(S1[i_l]), c0)
        s4 = s4 + minus(real(S2[i_l]), c1)
    s = f8(s) + f8(n) * f8(c0)
    s4 = f8(s4) + f8(n) * f8(c1)
    return s, s4


@njit(**PART)
def value_1(s, N, s4):
    t1 = s / f8(N)
    p1 = t1
    t2 = s4 / f8(N)
    p3 = t2
    return p1, p3


@njit(**PART)
def rebase_1(old_s2, old_p1, p1, old_N, old_s1, old_s5, old_p3, p3, old_s6, old_s11, old_s12, old_s13, s14, s15, s16, s17, s18):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = times(t4, f8(old_N))
    t6 = old_s2 + t5
    s2 = t6
    t7 = 3.0 * t3
    t8 = times(t7, old_s2)
    t9 = old_s1 + t8
    t10 = t4 * t3
    t11 = times(t10, f8(old_N))
    t12 = t9 + t11
    s1 = t12
    t13 = anchored(old_p3)
    t14 = anchored(p3)
    t15 = t13 - t14
    t16 = t3 * t15
    t17 = times(t16, f8(old_N))
    t18 = old_s5 + t17
    s5 = t18
    t19 = t15 * t15
    t20 = times(t19, f8(old_N))
    t21 = old_s6 + t20
    s6 = t21
    t22 = 2.0 * t3
    t23 = times(t22, old_s5)
    t24 = old_s11 + t23
    t25 = times(t15, old_s2)
    t26 = t24 + t25
    t27 = t4 * t15
    t28 = times(t27, f8(old_N))
    t29 = t26 + t28
    s11 = t29
    t30 = 2.0 * t15
    t31 = times(t30, old_s5)
    t32 = old_s12 + t31
    t33 = times(t3, old_s6)
    t34 = t32 + t33
    t35 = t16 * t15
    t36 = times(t35, f8(old_N))
    t37 = t34 + t36
    s12 = t37
    t38 = 3.0 * t15
    t39 = times(t38, old_s6)
    t40 = old_s13 + t39
    t41 = t19 * t15
    t42 = times(t41, f8(old_N))
    t43 = t40 + t42
    s13 = t43
    t44 = 4.0 * t3
    t45 = times(t44, old_s1)
    t46 = s14 + t45
    t47 = 6.0 * t4
    t48 = times(t47, old_s2)
    t49 = t46 + t48
    t50 = t10 * t3
    t51 = times(t50, f8(old_N))
    t52 = t49 + t51
    s14 = t52
    t53 = times(t22, old_s12)
    t54 = s15 + t53
    t55 = times(t30, old_s11)
    t56 = t54 + t55
    t57 = 4.0 * t16
    t58 = times(t57, old_s5)
    t59 = t56 + t58
    t60 = times(t4, old_s6)
    t61 = t59 + t60
    t62 = times(t19, old_s2)
    t63 = t61 + t62
    t64 = t27 * t15
    t65 = times(t64, f8(old_N))
    t66 = t63 + t65
    s15 = t66
    t67 = times(t7, old_s11)
    t68 = s16 + t67
    t69 = times(t15, old_s1)
    t70 = t68 + t69
    t71 = 3.0 * t16
    t72 = times(t71, old_s2)
    t73 = t70 + t72
    t74 = 3.0 * t4
    t75 = times(t74, old_s5)
    t76 = t73 + t75
    t77 = t10 * t15
    t78 = times(t77, f8(old_N))
    t79 = t76 + t78
    s16 = t79
    t80 = 4.0 * t15
    t81 = times(t80, old_s13)
    t82 = s17 + t81
    t83 = 6.0 * t19
    t84 = times(t83, old_s6)
    t85 = t82 + t84
    t86 = t41 * t15
    t87 = times(t86, f8(old_N))
    t88 = t85 + t87
    s17 = t88
    t89 = times(t38, old_s12)
    t90 = s18 + t89
    t91 = 3.0 * t19
    t92 = times(t91, old_s5)
    t93 = t90 + t92
    t94 = times(t3, old_s13)
    t95 = t93 + t94
    t96 = times(t71, old_s6)
    t97 = t95 + t96
    t98 = t35 * t15
    t99 = times(t98, f8(old_N))
    t100 = t97 + t99
    s18 = t100
    return s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18


@njit(**LOOP)
def fold_1(S1, p1, S2, p3, n, real):
    wide_vectors()
    s2 = real(0.0)
    s1 = real(0.0)
    s5 = real(0.0)
    s6 = real(0.0)
    s11 = real(0.0)
    s12 = real(0.0)
    s13 = real(0.0)
    s14 = real(0.0)
    s15 = real(0.0)
    s16 = real(0.0)
    s17 = real(0.0)
    s18 = real(0.0)
    t1 = anchored(p1)
    t5 = anchored(p3)
    for i_l in range(n):
        t2 = apart(real(S1[i_l]), t1, real)
        t3 = t2 * t2
        s2 = s2 + t3
        t4 = t3 * t2
        s1 = s1 + t4
        t6 = apart(real(S2[i_l]), t5, real)
        t7 = t2 * t6
        s5 = s5 + t7
        t8 = t6 * t6
        s6 = s6 + t8
        t9 = t3 * t6
        s11 = s11 + t9
        t10 = t7 * t6
        s12 = s12 + t10
        t11 = t8 * t6
        s13 = s13 + t11
        t12 = t4 * t2
        s14 = s14 + t12
        t13 = t9 * t6
        s15 = s15 + t13
        t14 = t4 * t6
        s16 = s16 + t14
        t15 = t11 * t6
        s17 = s17 + t15
        t16 = t10 * t6
        s18 = s18 + t16
    return s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18


@njit(**PART)
def finish(s, N, p1, s2, s1, s4, p3, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, p2, p6, p4, p5, s3, n_l, s7, s8, s9, s10):
    t1 = s / f8(N)
    p1 = t1
    t2 = p1
    t3 = t2 - t2
    t4 = t3 * t3
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s2 - s2
    t8 = t7 == 0.0
    t9 = p1 - p1
    t10 = t9 == 0.0
    t11 = p1 if t10 else f8(0)
    t12 = t11 - p1
    t13 = t12 * t12
    t14 = t13 * f8(N)
    t15 = s2 + t14
    t16 = t15 if t8 else nan
    t17 = t16 if t6 else s2
    s2 = t17
    t18 = 3.0 * t3
    t19 = 1.0 + t18
    t20 = t4 * t3
    t21 = t19 + t20
    t22 = t21 != t21
    t23 = nan if t22 else s1
    s1 = t23
    t24 = s4 / f8(N)
    p3 = t24
    t25 = p3
    t26 = t25 - t25
    t27 = t3 * t26
    t28 = 1.0 + t27
    t29 = t28 != t28
    t30 = s5 - s5
    t31 = t30 == 0.0
    t32 = p3 - p3
    t33 = t32 == 0.0
    t34 = p3 if t33 else f8(0)
    t35 = t34 - p3
    t36 = t12 * t35
    t37 = t36 * f8(N)
    t38 = s5 + t37
    t39 = t38 if t31 else nan
    t40 = t39 if t29 else s5
    s5 = t40
    t41 = t26 * t26
    t42 = 1.0 + t41
    t43 = t42 != t42
    t44 = s6 - s6
    t45 = t44 == 0.0
    t46 = t35 * t35
    t47 = t46 * f8(N)
    t48 = s6 + t47
    t49 = t48 if t45 else nan
    t50 = t49 if t43 else s6
    s6 = t50
    t51 = 2.0 * t3
    t52 = 1.0 + t51
    t53 = t52 + t26
    t54 = t4 * t26
    t55 = t53 + t54
    t56 = t55 != t55
    t57 = nan if t56 else s11
    s11 = t57
    t58 = 2.0 * t26
    t59 = 1.0 + t58
    t60 = t59 + t3
    t61 = t27 * t26
    t62 = t60 + t61
    t63 = t62 != t62
    t64 = nan if t63 else s12
    s12 = t64
    t65 = 3.0 * t26
    t66 = 1.0 + t65
    t67 = t41 * t26
    t68 = t66 + t67
    t69 = t68 != t68
    t70 = nan if t69 else s13
    s13 = t70
    t71 = 4.0 * t3
    t72 = 1.0 + t71
    t73 = 6.0 * t4
    t74 = t72 + t73
    t75 = t20 * t3
    t76 = t74 + t75
    t77 = t76 != t76
    t78 = nan if t77 else s14
    s14 = t78
    t79 = t52 + t58
    t80 = 4.0 * t27
    t81 = t79 + t80
    t82 = t81 + t4
    t83 = t82 + t41
    t84 = t54 * t26
    t85 = t83 + t84
    t86 = t85 != t85
    t87 = nan if t86 else s15
    s15 = t87
    t88 = t19 + t26
    t89 = 3.0 * t27
    t90 = t88 + t89
    t91 = 3.0 * t4
    t92 = t90 + t91
    t93 = t20 * t26
    t94 = t92 + t93
    t95 = t94 != t94
    t96 = nan if t95 else s16
    s16 = t96
    t97 = 4.0 * t26
    t98 = 1.0 + t97
    t99 = 6.0 * t41
    t100 = t98 + t99
    t101 = t67 * t26
    t102 = t100 + t101
    t103 = t102 != t102
    t104 = nan if t103 else s17
    s17 = t104
    t105 = 3.0 * t41
    t106 = t66 + t105
    t107 = t106 + t3
    t108 = t107 + t89
    t109 = t61 * t26
    t110 = t108 + t109
    t111 = t110 != t110
    t112 = nan if t111 else s18
    s18 = t112
    t113 = s2 / f8(N)
    t114 = np.sqrt(t113)
    p2 = t114
    t115 = 1.0 / p2
    t116 = t115 * t115
    t117 = t116 * t115
    t118 = t117 * s1
    s3 = t118
    t119 = s5 / f8(N)
    p4 = t119
    p5 = t113
    t120 = s6 / f8(N)
    t121 = t119 * t119
    t122 = t121 / t113
    t123 = t120 - t122
    t124 = np.sqrt(t123)
    p6 = t124
    t125 = 1.0 / p6
    t126 = t116 * t125
    t127 = t126 * s11
    t128 = p4 * t115
    t129 = t128 * t115
    t130 = 1.0 / p5
    t131 = t129 * t130
    t132 = t131 * t125
    t133 = -t132
    t134 = t133 * s1
    t135 = t127 + t134
    s7 = t135
    t136 = t115 * t125
    t137 = t136 * t125
    t138 = t137 * s12
    t139 = t128 * t130
    t140 = t139 * t125
    t141 = t140 * t125
    t142 = (-2.0) * t141
    t143 = t142 * s11
    t144 = t138 + t143
    t145 = p4 * p4
    t146 = t145 * t115
    t147 = t146 * t130
    t148 = t147 * t130
    t149 = t148 * t125
    t150 = t149 * t125
    t151 = t150 * s1
    t152 = t144 + t151
    s8 = t152
    t153 = t125 * t125
    t154 = t153 * t125
    t155 = t154 * s13
    t156 = p4 * t130
    t157 = t156 * t125
    t158 = t157 * t125
    t159 = t158 * t125
    t160 = (-3.0) * t159
    t161 = t160 * s12
    t162 = t155 + t161
    t163 = t145 * t130
    t164 = t163 * t130
    t165 = t164 * t125
    t166 = t165 * t125
    t167 = t166 * t125
    t168 = 3.0 * t167
    t169 = t168 * s11
    t170 = t162 + t169
    t171 = t145 * p4
    t172 = t171 * t130
    t173 = t172 * t130
    t174 = t173 * t130
    t175 = t174 * t125
    t176 = t175 * t125
    t177 = t176 * t125
    t178 = -t177
    t179 = t178 * s1
    t180 = t170 + t179
    s9 = t180
    t181 = s3 / f8(n_l)
    t182 = t181 * t181
    t183 = s7 / f8(n_l)
    t184 = t183 * t183
    t185 = 3.0 * t184
    t186 = t182 + t185
    t187 = s8 / f8(n_l)
    t188 = t187 * t187
    t189 = 3.0 * t188
    t190 = t186 + t189
    t191 = s9 / f8(n_l)
    t192 = t191 * t191
    t193 = t190 + t192
    out0 = f4(t193)
    t194 = t117 * t115
    t195 = t146 * t115
    t196 = t195 * t130
    t197 = t196 * t130
    t198 = t197 * t125
    t199 = t198 * t125
    t200 = 2.0 * t199
    t201 = t194 + t200
    t202 = t171 * p4
    t203 = t202 * t130
    t204 = t203 * t130
    t205 = t204 * t130
    t206 = t205 * t130
    t207 = t206 * t125
    t208 = t207 * t125
    t209 = t208 * t125
    t210 = t209 * t125
    t211 = t201 + t210
    t212 = t211 * s14
    t213 = t126 * t125
    t214 = 2.0 * t213
    t215 = t167 * t125
    t216 = 6.0 * t215
    t217 = t214 + t216
    t218 = t217 * s15
    t219 = t212 + t218
    t220 = t132 * t125
    t221 = (-4.0) * t220
    t222 = t177 * t125
    t223 = (-4.0) * t222
    t224 = t221 + t223
    t225 = t224 * s16
    t226 = t219 + t225
    t227 = t154 * t125
    t228 = t227 * s17
    t229 = t226 + t228
    t230 = t159 * t125
    t231 = (-4.0) * t230
    t232 = t231 * s18
    t233 = t229 + t232
    t234 = larger(t233, 0.0)
    s10 = t234
    t235 = s10 / f8(n_l)
    out1 = f4(t235)
    return p1, s2, s1, p3, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, p2, s3, p4, p5, p6, s7, s8, s9, out0, s10, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, n_l, n_plane, out0, out1):
    wide_vectors()
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        N = i8(0)
        s4 = f8(0.0)
        s2 = f8(0.0)
        s1 = f8(0.0)
        s5 = f8(0.0)
        s6 = f8(0.0)
        s11 = f8(0.0)
        s12 = f8(0.0)
        s13 = f8(0.0)
        s14 = f8(0.0)
        s15 = f8(0.0)
        s16 = f8(0.0)
        s17 = f8(0.0)
        s18 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        p3 = f8(0)
        p4 = f8(0)
        p5 = f8(0)
        p6 = f8(0)
        s3 = f8(0)
        s7 = f8(0)
        s8 = f8(0)
        s9 = f8(0)
        s10 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            X_tile = X[b_X[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            make_S1(S1, X_tile, n_plane, n)
            make_S2(S2, X_tile, n_plane, n)
            old_p1 = p1
            old_N = N
            old_s2 = s2
            old_p3 = p3
            old_s5 = s5
            old_s6 = s6
            old_s1 = s1
            old_s12 = s12
            old_s11 = s11
            old_s13 = s13
            N += 1 * n
            r0, r1 = fold_0(S1, S2, n, f4)
            if not finite(r0) or not finite(r1):
                r0, r1 = fold_0(S1, S2, n, f8)
            s = s + f8(r0)
            s4 = s4 + f8(r1)
            p1, p3 = value_1(s, N, s4)
            if t0 > begin:
                s2, s1, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18 = rebase_1(old_s2, old_p1, p1, old_N, old_s1, old_s5, old_p3, p3, old_s6, old_s11, old_s12, old_s13, s14, s15, s16, s17, s18)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(X_tile, (n + at // 4) * n_plane, (piece // 4) * n_plane, (n // 4) * n_plane, 4, 16)
                r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11 = fold_1(S1[at:at + piece], p1, S2[at:at + piece], p3, piece, f4)
                if not sound(r0) or not sound(r1) or not sound(r2) or not sound(r3) or not sound(r4) or not sound(r5) or not sound(r6) or not sound(r7) or not sound(r8) or not sound(r9) or not sound(r10) or not sound(r11):
                    r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11 = fold_1(S1[at:at + piece], p1, S2[at:at + piece], p3, piece, f8)
                s2 = s2 + f8(r0)
                s1 = s1 + f8(r1)
                s5 = s5 + f8(r2)
                s6 = s6 + f8(r3)
                s11 = s11 + f8(r4)
                s12 = s12 + f8(r5)
                s13 = s13 + f8(r6)
                s14 = s14 + f8(r7)
                s15 = s15 + f8(r8)
                s16 = s16 + f8(r9)
                s17 = s17 + f8(r10)
                s18 = s18 + f8(r11)
        p1, s2, s1, p3, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, p2, s3, p4, p5, p6, s7, s8, s9, out0[b], s10, out1[b] = finish(s, N, p1, s2, s1, s4, p3, s5, s6, s11, s12, s13, s14, s15, s16, s17, s18, p2, p6, p4, p5, s3, n_l, s7, s8, s9, s10)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, n_l, n_plane, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_X, X, n_l, n_plane, out0, out1)


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


def definition(X):
    """mardia as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l plane')
    lengths = {"l": X.shape[-2], "plane": X.shape[-1]}
    d1 = np.sum(np.where(positions("plane", lengths["plane"]) == 0, X, 0), along("plane"), keepdims=True)
    t1 = d1 - np.sum(d1, along("l"), keepdims=True) / lengths["l"]
    t2 = np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"]
    t3 = t1 / np.sqrt(t2)
    d2 = np.sum(np.where(positions("plane", lengths["plane"]) == 1, X, 0), along("plane"), keepdims=True)
    t4 = d2 - np.sum(d2, along("l"), keepdims=True) / lengths["l"]
    t5 = np.sum(t1 * t4, along("l"), keepdims=True) / lengths["l"]
    t6 = (t4 - t1 * t5 / t2) / np.sqrt(np.sum(t4 * t4, along("l"), keepdims=True) / lengths["l"] - t5 * t5 / t2)
    return (taken_out((np.sum(t3 ** 3, along("l"), keepdims=True) / lengths["l"]) ** 2 + 3.0 * (np.sum(t3 ** 2 * t6, along("l"), keepdims=True) / lengths["l"]) ** 2 + 3.0 * (np.sum(t3 * t6 ** 2, along("l"), keepdims=True) / lengths["l"]) ** 2 + (np.sum(t6 ** 3, along("l"), keepdims=True) / lengths["l"]) ** 2, '', lengths), taken_out(np.sum((t3 * t3 + t6 * t6) ** 2, along("l"), keepdims=True) / lengths["l"], '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"plane": 4, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"mardia, l = {length}", arrays, scalars))
    return 0 if passed_over(mardia, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
