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
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python barlow_twins_cpu.py` checks it.
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


INPUTS = {"A": "l i", "C": "l j"}
DTYPES = {"A": "float32", "C": "float32"}
TILE, BLOCK = 1024, 1


def barlow_twins(A, C, *, threads=None):
    """barlow_twins in one pass over l.

    Takes float32 A[…, l, i], float32 C[…, l, j]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"A": A, "C": C}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["A"], INPUTS["A"], "l i", batch),
        *laid_out(arrays["C"], INPUTS["C"], "l j", batch),
        lengths["l"], lengths["i"], lengths["j"], out0)
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
def seldom(context):
    """Let LLVM keep a function of many loops short: it would unfold them into one another for minutes."""
    def emit(context, builder, signature, args):
        for name in ("minsize", "noinline"):
            builder.function.attributes.add(name)
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


@njit(**LOOP)
def fold_0a(A, s, n_i, n):
    wide_vectors()
    for i_l in range(n):
        for i_i in range(n_i):
            s[i_i] = s[i_i] + f8(A[i_l, i_i])


@njit(**LOOP)
def fold_0b(C, s3, n_j, n):
    wide_vectors()
    for i_l in range(n):
        for i_j in range(n_j):
            s3[i_j] = s3[i_j] + f8(C[i_l, i_j])


@njit(**PART)
def value_1(p1, s, N, n_i, p2, s3, n_j):
    for i_i in range(n_i):
        t1 = s[i_i] / f8(N)
        p1[i_i] = t1
    for i_j in range(n_j):
        t2 = s3[i_j] / f8(N)
        p2[i_j] = t2


@njit(**PART)
def rebase_1(s2, old_p1, p1, old_N, n_i, s4, old_p2, p2, n_j, s1):
    for i_i in range(n_i):
        t1 = anchored(old_p1[i_i])
        t2 = anchored(p1[i_i])
        t3 = t1 - t2
        t4 = t3 * t3
        t5 = times(t4, f8(old_N))
        t6 = s2[i_i] + t5
        s2[i_i] = t6
    for i_j in range(n_j):
        t7 = anchored(old_p2[i_j])
        t8 = anchored(p2[i_j])
        t9 = t7 - t8
        t10 = t9 * t9
        t11 = times(t10, f8(old_N))
        t12 = s4[i_j] + t11
        s4[i_j] = t12
    for i_i in range(n_i):
        t13 = anchored(old_p1[i_i])
        t14 = anchored(p1[i_i])
        t15 = t13 - t14
        for i_j in range(n_j):
            t16 = anchored(old_p2[i_j])
            t17 = anchored(p2[i_j])
            t18 = t16 - t17
            t19 = t15 * t18
            t20 = times(t19, f8(old_N))
            t21 = s1[i_i, i_j] + t20
            s1[i_i, i_j] = t21


@njit(**LOOP)
def fold_1a(A, p1, s2, n_i, n):
    wide_vectors()
    for i_l in range(n):
        for i_i in range(n_i):
            t1 = anchored(p1[i_i])
            t2 = f8(A[i_l, i_i]) - t1
            t3 = t2 * t2
            s2[i_i] = s2[i_i] + t3


@njit(**LOOP)
def fold_1b(C, p2, s4, n_j, n):
    wide_vectors()
    for i_l in range(n):
        for i_j in range(n_j):
            t1 = anchored(p2[i_j])
            t2 = f8(C[i_l, i_j]) - t1
            t3 = t2 * t2
            s4[i_j] = s4[i_j] + t3


@njit(**LOOP)
def fold_1c(A, p1, C, p2, s1, n_j, n_i, n):
    wide_vectors()
    for i_l in range(n):
        for i_i in range(n_i):
            t1 = anchored(p1[i_i])
            t2 = f8(A[i_l, i_i]) - t1
            for i_j in range(n_j):
                t3 = anchored(p2[i_j])
                t4 = f8(C[i_l, i_j]) - t3
                t5 = t2 * t4
                s1[i_i, i_j] = s1[i_i, i_j] + t5


@njit(**PART)
def finish(p1, s, N, n_i, s2, p2, s3, n_j, s4, s1, p3, p4, H1, s5, n_l):
    seldom()
    for i_i in range(n_i):
        t1 = s[i_i] / f8(N)
        p1[i_i] = t1
    for i_i in range(n_i):
        t2 = p1[i_i]
        t3 = t2 - t2
        t4 = t3 * t3
        t5 = 1.0 + t4
        t6 = t5 != t5
        t7 = s2[i_i] - s2[i_i]
        t8 = t7 == 0.0
        t9 = p1[i_i] - p1[i_i]
        t10 = t9 == 0.0
        t11 = p1[i_i] if t10 else f8(0)
        t12 = t11 - p1[i_i]
        t13 = t12 * t12
        t14 = t13 * f8(N)
        t15 = s2[i_i] + t14
        t16 = t15 if t8 else nan
        t17 = t16 if t6 else s2[i_i]
        s2[i_i] = t17
    for i_j in range(n_j):
        t18 = s3[i_j] / f8(N)
        p2[i_j] = t18
    for i_j in range(n_j):
        t19 = p2[i_j]
        t20 = t19 - t19
        t21 = t20 * t20
        t22 = 1.0 + t21
        t23 = t22 != t22
        t24 = s4[i_j] - s4[i_j]
        t25 = t24 == 0.0
        t26 = p2[i_j] - p2[i_j]
        t27 = t26 == 0.0
        t28 = p2[i_j] if t27 else f8(0)
        t29 = t28 - p2[i_j]
        t30 = t29 * t29
        t31 = t30 * f8(N)
        t32 = s4[i_j] + t31
        t33 = t32 if t25 else nan
        t34 = t33 if t23 else s4[i_j]
        s4[i_j] = t34
    for i_i in range(n_i):
        t35 = p1[i_i]
        t36 = t35 - t35
        t44 = p1[i_i] - p1[i_i]
        t45 = t44 == 0.0
        t46 = p1[i_i] if t45 else f8(0)
        t47 = t46 - p1[i_i]
        for i_j in range(n_j):
            t37 = p2[i_j]
            t38 = t37 - t37
            t39 = t36 * t38
            t40 = 1.0 + t39
            t41 = t40 != t40
            t42 = s1[i_i, i_j] - s1[i_i, i_j]
            t43 = t42 == 0.0
            t48 = p2[i_j] - p2[i_j]
            t49 = t48 == 0.0
            t50 = p2[i_j] if t49 else f8(0)
            t51 = t50 - p2[i_j]
            t52 = t47 * t51
            t53 = t52 * f8(N)
            t54 = s1[i_i, i_j] + t53
            t55 = t54 if t43 else nan
            t56 = t55 if t41 else s1[i_i, i_j]
            s1[i_i, i_j] = t56
    for i_i in range(n_i):
        t57 = s2[i_i] / f8(N)
        t58 = np.sqrt(t57)
        p3[i_i] = t58
    for i_j in range(n_j):
        t59 = s4[i_j] / f8(N)
        t60 = np.sqrt(t59)
        p4[i_j] = t60
    for i_j in range(n_j):
        t61 = 1.0 / p4[i_j]
        H1[i_j] = t61
    for i_i in range(n_i):
        t62 = 1.0 / p3[i_i]
        for i_j in range(n_j):
            t63 = t62 * H1[i_j]
            t64 = t63 * s1[i_i, i_j]
            s5[i_i, i_j] = t64
    t65 = 0.0
    for i_i in range(n_i):
        t66 = 0.0
        for i_j in range(n_j):
            t67 = i_i == i_j
            t68 = s5[i_i, i_j] / f8(n_l)
            t69 = t68 - 1.0
            t70 = t69 * t69
            t71 = t68 * t68
            t72 = 0.005 * t71
            t73 = t70 if t67 else t72
            t66 = t66 + t73
        t65 = t65 + t66
    out0 = f4(t65)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_A, A, b_C, C, n_l, n_i, n_j, out0):
    wide_vectors()
    s = empty((n_i,), f8)
    s3 = empty((n_j,), f8)
    s2 = empty((n_i,), f8)
    s4 = empty((n_j,), f8)
    s1 = empty((n_i, n_j,), f8)
    p1 = empty((n_i,), f8)
    p2 = empty((n_j,), f8)
    p3 = empty((n_i,), f8)
    p4 = empty((n_j,), f8)
    s5 = empty((n_i, n_j,), f8)
    old_p1 = empty((n_i,), f8)
    old_p2 = empty((n_j,), f8)
    H1 = empty((n_j,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        N = i8(0)
        fill(s3, 0.0)
        fill(s2, 0.0)
        fill(s4, 0.0)
        fill(s1, 0.0)
        fill(p1, 0)
        fill(p2, 0)
        fill(p3, 0)
        fill(p4, 0)
        fill(s5, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            A_tile = A[b_A[b], t0:t0 + n]
            C_tile = C[b_C[b], t0:t0 + n]
            copy(p1, old_p1)
            old_N = N
            copy(p2, old_p2)
            N += 1 * n
            fold_0a(A_tile, s, n_i, n)
            fold_0b(C_tile, s3, n_j, n)
            value_1(p1, s, N, n_i, p2, s3, n_j)
            if t0 > begin:
                rebase_1(s2, old_p1, p1, old_N, n_i, s4, old_p2, p2, n_j, s1)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(A_tile, (n + at // 2) * n_i, (piece // 2) * n_i, (n // 2) * n_i, 2, 16)
                ahead(C_tile, (n + at // 2) * n_j, (piece // 2) * n_j, (n // 2) * n_j, 2, 16)
                fold_1a(A_tile[at:at + piece], p1, s2, n_i, piece)
            fold_1b(C_tile, p2, s4, n_j, n)
            fold_1c(A_tile, p1, C_tile, p2, s1, n_j, n_i, n)
        out0[b] = finish(p1, s, N, n_i, s2, p2, s3, n_j, s4, s1, p3, p4, H1, s5, n_l)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_A, A, b_C, C, n_l, n_i, n_j, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_A, A, b_C, C, n_l, n_i, n_j, out0)


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


AXES = ('l', 'i', 'j')


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


def definition(A, C):
    """barlow_twins as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    A = spread(A, 'l i')
    C = spread(C, 'l j')
    lengths = {"l": A.shape[-3], "i": A.shape[-2], "j": C.shape[-1]}
    t1 = A - np.sum(A, along("l"), keepdims=True) / lengths["l"]
    t2 = C - np.sum(C, along("l"), keepdims=True) / lengths["l"]
    t3 = np.sum(t1 / np.sqrt(np.sum(t1 ** 2, along("l"), keepdims=True) / lengths["l"]) * (t2 / np.sqrt(np.sum(t2 ** 2, along("l"), keepdims=True) / lengths["l"])), along("l"), keepdims=True) / lengths["l"]
    return taken_out(np.sum(np.sum(np.where(positions("i", lengths["i"]) == positions("j", lengths["j"]), (t3 - 1.0) ** 2, 0.005 * t3 ** 2), along("j"), keepdims=True), along("i"), keepdims=True), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'A': 'normal', 'C': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"i": 4, "j": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"barlow_twins, l = {length}", arrays, scalars))
    return 0 if passed_over(barlow_twins, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
