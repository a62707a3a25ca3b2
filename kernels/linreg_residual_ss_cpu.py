"""linreg_residual_ss: one pass over l, 10 words of state per row, commutative merge.

Residuals e = y − a − b x of the fitted line: Σ e² and mean e³.

The operator
    linreg_residual_ss(x[l], y[l]):
        t1 = sum(y, l) / size(l)
        t2 = sum(x, l) / size(l)
        t3 = x - t2
        t4 = sum(t3 * (y - t1), l) / sum(t3 ** 2, l)
        t5 = y - (t1 - t4 * t2) - t4 * x
        return sum(t5 ** 2, l), sum(t5 ** 3, l) / size(l)

One more element (a prime marks the new value)
    s'   = s + y[l]
    s2'  = s2 + x[l]
    N'   = N + 1
    p1'  = s2'/N'
    p2'  = s'/N'
    δ1   = p1 − p1'
    δ2   = p2 − p2'
    s3'  = s3 + δ1·δ2·N + (x[l] − p1')·(y[l] − p2')
    s4'  = s4 + δ1²·N + (x[l] − p1')²
    s1'  = s1 + δ2²·N + (y[l] − p2')²
    s7'  = s7 + 3·δ2·s1 + δ2³·N + (y[l] − p2')³
    s8'  = s8 + 2·δ2·s3 + δ1·s1 + δ1·δ2²·N + (x[l] − p1')·(y[l] − p2')²
    s9'  = s9 + 2·δ1·s3 + δ2·s4 + δ1²·δ2·N + (x[l] − p1')²·(y[l] − p2')
    s10' = s10 + 3·δ1·s4 + δ1³·N + (x[l] − p1')³

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    N'   = N_a + N_b
    p1_a = s2_a/N_a
    p2_a = s_a/N_a
    p1_b = s2_b/N_b
    p2_b = s_b/N_b
    p1'  = s2'/N'
    p2'  = s'/N'
    δ1_a = p1_a − p1'
    δ2_a = p2_a − p2'
    δ1_b = p1_b − p1'
    δ2_b = p2_b − p2'
    s3'  = s3_a + δ1_a·δ2_a·N_a + s3_b + δ1_b·δ2_b·N_b
    s4'  = s4_a + δ1_a²·N_a + s4_b + δ1_b²·N_b
    s1'  = s1_a + δ2_a²·N_a + s1_b + δ2_b²·N_b
    s7'  = s7_a + 3·δ2_a·s1_a + δ2_a³·N_a + s7_b + 3·δ2_b·s1_b + δ2_b³·N_b
    s8'  = s8_a + 2·δ2_a·s3_a + δ1_a·s1_a + δ1_a·δ2_a²·N_a + s8_b + 2·δ2_b·s3_b + δ1_b·s1_b + δ1_b·δ2_b²·N_b
    s9'  = s9_a + 2·δ1_a·s3_a + δ2_a·s4_a + δ1_a²·δ2_a·N_a + s9_b + 2·δ1_b·s3_b + δ2_b·s4_b + δ1_b²·δ2_b·N_b
    s10' = s10_a + 3·δ1_a·s4_a + δ1_a³·N_a + s10_b + 3·δ1_b·s4_b + δ1_b³·N_b

Dangers
    s4 divides and may be 0: the result is then what IEEE division gives
    s5 = s1 − 2·p3·s3 + p3²·s4 is a difference of sums: it cancels where they are large against it
    s6 = s7 − 3·p3·s8 + 3·p3²·s9 − p3³·s10 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 fcd26fde29cb19fc36ce7618b6f7d32a033f4bd785fa6e18a2491570414d0ad9
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python linreg_residual_ss_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "y": "l"}
DTYPES = {"x": "float32", "y": "float32"}
TILE, BLOCK = 1024, 1


def linreg_residual_ss(x, y, *, threads=None):
    """linreg_residual_ss in one pass over l.

    Takes float32 x[…, l], float32 y[…, l]; gives float32 […], float32 […].  Leading dimensions are batch and
    broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "y": y}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["y"], INPUTS["y"], "l", batch),
        lengths["l"], out0, out1)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


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
def fold_0(y, x, n, real):
    wide_vectors()
    s = real(0.0)
    s2 = real(0.0)
    c0 = middle(y)
    c1 = middle(x)
    for i_l in range(n):
        s = s + minus(real(y[i_l]), c0)
        s2 = s2 + minus(real(x[i_l]), c1)
    s = f8(s) + f8(n) * f8(c0)
    s2 = f8(s2) + f8(n) * f8(c1)
    return s, s2


@njit(**PART)
def value_1(s2, N, s):
    t1 = s2 / f8(N)
    p1 = t1
    t2 = s / f8(N)
    p2 = t2
    return p1, p2


@njit(**PART)
def rebase_1(old_s3, old_p1, p1, old_p2, p2, old_N, old_s4, old_s1, s7, s8, s9, s10):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = anchored(old_p2)
    t5 = anchored(p2)
    t6 = t4 - t5
    t7 = t3 * t6
    t8 = times(t7, f8(old_N))
    t9 = old_s3 + t8
    s3 = t9
    t10 = t3 * t3
    t11 = times(t10, f8(old_N))
    t12 = old_s4 + t11
    s4 = t12
    t13 = t6 * t6
    t14 = times(t13, f8(old_N))
    t15 = old_s1 + t14
    s1 = t15
    t16 = 3.0 * t6
    t17 = times(t16, old_s1)
    t18 = s7 + t17
    t19 = t13 * t6
    t20 = times(t19, f8(old_N))
    t21 = t18 + t20
    s7 = t21
    t22 = 2.0 * t6
    t23 = times(t22, old_s3)
    t24 = s8 + t23
    t25 = times(t3, old_s1)
    t26 = t24 + t25
    t27 = t7 * t6
    t28 = times(t27, f8(old_N))
    t29 = t26 + t28
    s8 = t29
    t30 = 2.0 * t3
    t31 = times(t30, old_s3)
    t32 = s9 + t31
    t33 = times(t6, old_s4)
    t34 = t32 + t33
    t35 = t10 * t6
    t36 = times(t35, f8(old_N))
    t37 = t34 + t36
    s9 = t37
    t38 = 3.0 * t3
    t39 = times(t38, old_s4)
    t40 = s10 + t39
    t41 = t10 * t3
    t42 = times(t41, f8(old_N))
    t43 = t40 + t42
    s10 = t43
    return s3, s4, s1, s7, s8, s9, s10


@njit(**LOOP)
def fold_1(x, p1, y, p2, n, real):
    wide_vectors()
    s3 = real(0.0)
    s4 = real(0.0)
    s1 = real(0.0)
    s7 = real(0.0)
    s8 = real(0.0)
    s9 = real(0.0)
    s10 = real(0.0)
    t1 = anchored(p1)
    t3 = anchored(p2)
    for i_l in range(n):
        t2 = apart(real(x[i_l]), t1, real)
        t4 = apart(real(y[i_l]), t3, real)
        t5 = t2 * t4
        s3 = s3 + t5
        t6 = t2 * t2
        s4 = s4 + t6
        t7 = t4 * t4
        s1 = s1 + t7
        t8 = t7 * t4
        s7 = s7 + t8
        t9 = t5 * t4
        s8 = s8 + t9
        t10 = t6 * t4
        s9 = s9 + t10
        t11 = t6 * t2
        s10 = s10 + t11
    return s3, s4, s1, s7, s8, s9, s10


@njit(**PART)
def finish(s2, N, s, p1, p2, s3, s4, s1, s7, s8, s9, s10, p3, s5, s6, n_l):
    t1 = s2 / f8(N)
    p1 = t1
    t2 = s / f8(N)
    p2 = t2
    t3 = p1
    t4 = t3 - t3
    t5 = p2
    t6 = t5 - t5
    t7 = t4 * t6
    t8 = 1.0 + t7
    t9 = t8 != t8
    t10 = s3 - s3
    t11 = t10 == 0.0
    t12 = p1 - p1
    t13 = t12 == 0.0
    t14 = p1 if t13 else f8(0)
    t15 = t14 - p1
    t16 = p2 - p2
    t17 = t16 == 0.0
    t18 = p2 if t17 else f8(0)
    t19 = t18 - p2
    t20 = t15 * t19
    t21 = t20 * f8(N)
    t22 = s3 + t21
    t23 = t22 if t11 else nan
    t24 = t23 if t9 else s3
    s3 = t24
    t25 = t4 * t4
    t26 = 1.0 + t25
    t27 = t26 != t26
    t28 = s4 - s4
    t29 = t28 == 0.0
    t30 = t15 * t15
    t31 = t30 * f8(N)
    t32 = s4 + t31
    t33 = t32 if t29 else nan
    t34 = t33 if t27 else s4
    s4 = t34
    t35 = t6 * t6
    t36 = 1.0 + t35
    t37 = t36 != t36
    t38 = s1 - s1
    t39 = t38 == 0.0
    t40 = t19 * t19
    t41 = t40 * f8(N)
    t42 = s1 + t41
    t43 = t42 if t39 else nan
    t44 = t43 if t37 else s1
    s1 = t44
    t45 = 3.0 * t6
    t46 = 1.0 + t45
    t47 = t35 * t6
    t48 = t46 + t47
    t49 = t48 != t48
    t50 = nan if t49 else s7
    s7 = t50
    t51 = 2.0 * t6
    t52 = 1.0 + t51
    t53 = t52 + t4
    t54 = t7 * t6
    t55 = t53 + t54
    t56 = t55 != t55
    t57 = nan if t56 else s8
    s8 = t57
    t58 = 2.0 * t4
    t59 = 1.0 + t58
    t60 = t59 + t6
    t61 = t25 * t6
    t62 = t60 + t61
    t63 = t62 != t62
    t64 = nan if t63 else s9
    s9 = t64
    t65 = 3.0 * t4
    t66 = 1.0 + t65
    t67 = t25 * t4
    t68 = t66 + t67
    t69 = t68 != t68
    t70 = nan if t69 else s10
    s10 = t70
    t71 = s3 / s4
    p3 = t71
    t72 = (-2.0) * p3
    t73 = t72 * s3
    t74 = s1 + t73
    t75 = p3 * p3
    t76 = t75 * s4
    t77 = t74 + t76
    t78 = larger(t77, 0.0)
    s5 = t78
    out0 = f4(s5)
    t79 = (-3.0) * p3
    t80 = t79 * s8
    t81 = s7 + t80
    t82 = 3.0 * t75
    t83 = t82 * s9
    t84 = t81 + t83
    t85 = t75 * p3
    t86 = -t85
    t87 = t86 * s10
    t88 = t84 + t87
    s6 = t88
    t89 = s6 / f8(n_l)
    out1 = f4(t89)
    return p1, p2, s3, s4, s1, s7, s8, s9, s10, p3, s5, out0, s6, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_y, y, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        s2 = f8(0.0)
        N = i8(0)
        s3 = f8(0.0)
        s4 = f8(0.0)
        s1 = f8(0.0)
        s7 = f8(0.0)
        s8 = f8(0.0)
        s9 = f8(0.0)
        s10 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        p3 = f8(0)
        s5 = f8(0)
        s6 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            y_tile = y[b_y[b], t0:t0 + n]
            x_tile = x[b_x[b], t0:t0 + n]
            old_p1 = p1
            old_p2 = p2
            old_N = N
            old_s1 = s1
            old_s3 = s3
            old_s4 = s4
            N += 1 * n
            r0, r1 = fold_0(y_tile, x_tile, n, f4)
            if not finite(r0) or not finite(r1):
                r0, r1 = fold_0(y_tile, x_tile, n, f8)
            s = s + f8(r0)
            s2 = s2 + f8(r1)
            p1, p2 = value_1(s2, N, s)
            if t0 > begin:
                s3, s4, s1, s7, s8, s9, s10 = rebase_1(old_s3, old_p1, p1, old_p2, p2, old_N, old_s4, old_s1, s7, s8, s9, s10)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(y_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1, r2, r3, r4, r5, r6 = fold_1(x_tile[at:at + piece], p1, y_tile[at:at + piece], p2, piece, f4)
                if not sound(r0) or not sound(r1) or not sound(r2) or not sound(r3) or not sound(r4) or not sound(r5) or not sound(r6):
                    r0, r1, r2, r3, r4, r5, r6 = fold_1(x_tile[at:at + piece], p1, y_tile[at:at + piece], p2, piece, f8)
                s3 = s3 + f8(r0)
                s4 = s4 + f8(r1)
                s1 = s1 + f8(r2)
                s7 = s7 + f8(r3)
                s8 = s8 + f8(r4)
                s9 = s9 + f8(r5)
                s10 = s10 + f8(r6)
        p1, p2, s3, s4, s1, s7, s8, s9, s10, p3, s5, out0[b], s6, out1[b] = finish(s2, N, s, p1, p2, s3, s4, s1, s7, s8, s9, s10, p3, s5, s6, n_l)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_y, y, n_l, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_y, y, n_l, out0, out1)


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


AXES = ('l',)


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(AXES) - len(own)))]
    return np.moveaxis(array, range(-len(AXES), len(own) - len(AXES)), own)


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


def definition(x, y):
    """linreg_residual_ss as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    y = spread(y, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = np.sum(y, along("l"), keepdims=True) / lengths["l"]
    t2 = np.sum(x, along("l"), keepdims=True) / lengths["l"]
    t3 = x - t2
    t4 = np.sum(t3 * (y - t1), along("l"), keepdims=True) / np.sum(t3 ** 2, along("l"), keepdims=True)
    t5 = y - (t1 - t4 * t2) - t4 * x
    return (taken_out(np.sum(t5 ** 2, along("l"), keepdims=True), '', lengths), taken_out(np.sum(t5 ** 3, along("l"), keepdims=True) / lengths["l"], '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'y': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"linreg_residual_ss, l = {length}", arrays, scalars))
    return 0 if passed_over(linreg_residual_ss, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
