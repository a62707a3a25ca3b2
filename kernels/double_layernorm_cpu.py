"""double_layernorm: one pass over l, 12 words of state per row, commutative merge.

LayerNorm without affine part of the LayerNorm with γ and β: the second sees ten moments of (γx, γ, β, 1).

The operator
    double_layernorm(x[l], g[l], b[l]):
        t1 = x - sum(x, l) / size(l)
        t2 = t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) * g + b
        t3 = t2 - sum(t2, l) / size(l)
        return t3 / sqrt(sum(t3 * t3, l) / size(l) + 1e-05)

One more element (a prime marks the new value)
    x1   = g[l]²
    x2   = b[l]·g[l]
    s'   = s + x[l]
    N'   = N + 1
    p1'  = s'/N'
    δ    = p1 − p1'
    s2'  = s2 + δ²·N + (x[l] − p1')²
    s1'  = s1 + δ·s5 + g[l]·(x[l] − p1')
    s5'  = s5 + g[l]
    s6'  = s6 + b[l]
    s7'  = s7 + 2·δ·s8 + δ²·s9 + x1·(x[l] − p1')²
    s8'  = s8 + δ·s9 + x1·(x[l] − p1')
    s9'  = s9 + x1
    s10' = s10 + δ·s11 + x2·(x[l] − p1')
    s11' = s11 + x2
    s12' = s12 + b[l]²

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b
    s1'  = s1_a + δ_a·s5_a + s1_b + δ_b·s5_b
    s5'  = s5_a + s5_b
    s6'  = s6_a + s6_b
    s7'  = s7_a + 2·δ_a·s8_a + δ_a²·s9_a + s7_b + 2·δ_b·s8_b + δ_b²·s9_b
    s8'  = s8_a + δ_a·s9_a + s8_b + δ_b·s9_b
    s9'  = s9_a + s9_b
    s10' = s10_a + δ_a·s11_a + s10_b + δ_b·s11_b
    s11' = s11_a + s11_b
    s12' = s12_a + s12_b

Dangers
    s4 = s7/p2² + 2·s10/p2 − 2·p3·s1/p2 + s12 − 2·p3·s6 + p3²·N is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 45b607f7eb0f49e16f6da202c69b08a54f72d5c6b92aefc23b811a207284dac1
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python double_layernorm_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "g": "l", "b": "l"}
DTYPES = {"x": "float32", "g": "float32", "b": "float32"}
TILE, BLOCK = 8192, 1


def double_layernorm(x, g, b, *, threads=None):
    """double_layernorm in one pass over l.

    Takes float32 x[…, l], float32 g[…, l], float32 b[…, l]; gives float32 […, l].  Leading dimensions are batch
    and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "g": g, "b": b}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "l", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["g"], INPUTS["g"], "l", batch),
        *laid_out(arrays["b"], INPUTS["b"], "l", batch),
        lengths["l"], out0)
    return given_back(out0, batch, "l", "l")


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
def fold_0a(b_, n):
    wide_vectors()
    s12 = 0.0
    for i_l in range(n):
        t1 = f8(b_[i_l]) * f8(b_[i_l])
        s12 = s12 + t1
    return s12


@njit(**LOOP)
def fold_0b(x, g, b_, n, real):
    wide_vectors()
    s = real(0.0)
    s5 = real(0.0)
    s6 = real(0.0)
    s9 = real(0.0)
    s11 = real(0.0)
    c0 = middle(x)
    c1 = middle(g)
    c2 = middle(b_)
    for i_l in range(n):
        s = s + minus(real(x[i_l]), c0)
        s5 = s5 + minus(real(g[i_l]), c1)
        s6 = s6 + minus(real(b_[i_l]), c2)
        t1 = real(g[i_l]) * real(g[i_l])
        s9 = s9 + t1
        t2 = real(b_[i_l]) * real(g[i_l])
        s11 = s11 + t2
    s = f8(s) + f8(n) * f8(c0)
    s5 = f8(s5) + f8(n) * f8(c1)
    s6 = f8(s6) + f8(n) * f8(c2)
    return s, s5, s6, s9, s11


@njit(**PART)
def value_1(s, N):
    t1 = s / f8(N)
    p1 = t1
    return p1


@njit(**PART)
def rebase_1(s2, old_p1, p1, old_N, s1, old_s5, s7, old_s8, old_s9, s10, old_s11):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = times(t4, f8(old_N))
    t6 = s2 + t5
    s2 = t6
    t7 = times(t3, old_s5)
    t8 = s1 + t7
    s1 = t8
    t9 = 2.0 * t3
    t10 = times(t9, old_s8)
    t11 = s7 + t10
    t12 = times(t4, old_s9)
    t13 = t11 + t12
    s7 = t13
    t14 = times(t3, old_s9)
    t15 = old_s8 + t14
    s8 = t15
    t16 = times(t3, old_s11)
    t17 = s10 + t16
    s10 = t17
    return s2, s1, s7, s8, s10


@njit(**LOOP)
def fold_1(x, p1, g, b_, n, real):
    wide_vectors()
    s2 = real(0.0)
    s1 = real(0.0)
    s7 = real(0.0)
    s8 = real(0.0)
    s10 = real(0.0)
    t1 = anchored(p1)
    for i_l in range(n):
        t2 = apart(real(x[i_l]), t1, real)
        t3 = t2 * t2
        s2 = s2 + t3
        t4 = real(g[i_l]) * t2
        s1 = s1 + t4
        t5 = real(g[i_l]) * real(g[i_l])
        t6 = t5 * t2
        t7 = t6 * t2
        s7 = s7 + t7
        s8 = s8 + t6
        t8 = real(b_[i_l]) * real(g[i_l])
        t9 = t8 * t2
        s10 = s10 + t9
    return s2, s1, s7, s8, s10


@njit(**PART)
def finish(s, N, p1, s2, s1, s5, s7, s8, s9, s10, s11, p2, s6, s3, p3, s12):
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
    t18 = 1.0 + t3
    t19 = t18 != t18
    t20 = s1 - s1
    t21 = t20 == 0.0
    t22 = t12 * s5
    t23 = s1 + t22
    t24 = t23 if t21 else nan
    t25 = t24 if t19 else s1
    s1 = t25
    t26 = 2.0 * t3
    t27 = 1.0 + t26
    t28 = t27 + t4
    t29 = t28 != t28
    t30 = nan if t29 else s7
    s7 = t30
    t31 = s8 - s8
    t32 = t31 == 0.0
    t33 = t12 * s9
    t34 = s8 + t33
    t35 = t34 if t32 else nan
    t36 = t35 if t19 else s8
    s8 = t36
    t37 = s10 - s10
    t38 = t37 == 0.0
    t39 = t12 * s11
    t40 = s10 + t39
    t41 = t40 if t38 else nan
    t42 = t41 if t19 else s10
    s10 = t42
    t43 = s2 / f8(N)
    t44 = t43 + 1e-05
    t45 = np.sqrt(t44)
    p2 = t45
    t46 = 1.0 / p2
    t47 = t46 * s1
    t48 = t47 + s6
    s3 = t48
    t49 = s3 / f8(N)
    p3 = t49
    t50 = t46 * t46
    t51 = t50 * s7
    t52 = 2.0 * t46
    t53 = t52 * s10
    t54 = t51 + t53
    t55 = p3 * t46
    t56 = (-2.0) * t55
    t57 = t56 * s1
    t58 = t54 + t57
    t59 = t58 + s12
    t60 = (-2.0) * p3
    t61 = t60 * s6
    t62 = t59 + t61
    t63 = p3 * p3
    t64 = t63 * f8(N)
    t65 = t62 + t64
    t66 = larger(t65, 0.0)
    s4 = t66
    return p1, s2, s1, s7, s8, s10, p2, s3, p3, s4


@njit(**LOOP)
def map_0(out0, s4, n_l, s2, x, s, g, b_, s3, n):
    wide_vectors()
    t1 = s4 / f8(n_l)
    t2 = t1 + 1e-05
    t3 = np.sqrt(t2)
    t4 = 1.0 / t3
    t5 = s2 / f8(n_l)
    t6 = t5 + 1e-05
    t7 = np.sqrt(t6)
    t8 = 1.0 / t7
    t9 = s / f8(n_l)
    t14 = s3 / f8(n_l)
    for i_l in range(n):
        t10 = f8(x[i_l]) - t9
        t11 = t10 * t8
        t12 = t11 * f8(g[i_l])
        t13 = t12 + f8(b_[i_l])
        t15 = t13 - t14
        t16 = t15 * t4
        out0[i_l] = f4(t16)


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_g, g, b_b, b_, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        N = i8(0)
        s5 = f8(0.0)
        s6 = f8(0.0)
        s9 = f8(0.0)
        s11 = f8(0.0)
        s12 = f8(0.0)
        s2 = f8(0.0)
        s1 = f8(0.0)
        s7 = f8(0.0)
        s8 = f8(0.0)
        s10 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        s3 = f8(0)
        p3 = f8(0)
        s4 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            b_tile = b_[b_b[b], t0:t0 + n]
            x_tile = x[b_x[b], t0:t0 + n]
            g_tile = g[b_g[b], t0:t0 + n]
            old_p1 = p1
            old_N = N
            old_s5 = s5
            old_s8 = s8
            old_s9 = s9
            old_s11 = s11
            N += 1 * n
            r0 = fold_0a(b_tile, n)
            s12 = s12 + r0
            r0, r1, r2, r3, r4 = fold_0b(x_tile, g_tile, b_tile, n, f4)
            if not finite(r0) or not finite(r1) or not finite(r2) or not sound(r3) or not sound(r4):
                r0, r1, r2, r3, r4 = fold_0b(x_tile, g_tile, b_tile, n, f8)
            s = s + f8(r0)
            s5 = s5 + f8(r1)
            s6 = s6 + f8(r2)
            s9 = s9 + f8(r3)
            s11 = s11 + f8(r4)
            p1 = value_1(s, N)
            if t0 > begin:
                s2, s1, s7, s8, s10 = rebase_1(s2, old_p1, p1, old_N, s1, old_s5, s7, old_s8, old_s9, s10, old_s11)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at, piece, n, 1, 16)
                ahead(g_tile, n + at, piece, n, 1, 16)
                ahead(b_tile, n + at, piece, n, 1, 16)
                r0, r1, r2, r3, r4 = fold_1(x_tile[at:at + piece], p1, g_tile[at:at + piece], b_tile[at:at + piece], piece, f4)
                if not sound(r0) or not sound(r1) or not sound(r2) or not sound(r3) or not sound(r4):
                    r0, r1, r2, r3, r4 = fold_1(x_tile[at:at + piece], p1, g_tile[at:at + piece], b_tile[at:at + piece], piece, f8)
                s2 = s2 + f8(r0)
                s1 = s1 + f8(r1)
                s7 = s7 + f8(r2)
                s8 = s8 + f8(r3)
                s10 = s10 + f8(r4)
        p1, s2, s1, s7, s8, s10, p2, s3, p3, s4 = finish(s, N, p1, s2, s1, s5, s7, s8, s9, s10, s11, p2, s6, s3, p3, s12)
        for t0 in range(0, n_l, tile):
            n = tile if t0 + tile < n_l else n_l - t0
            x_tile = x[b_x[b], t0:t0 + n]
            g_tile = g[b_g[b], t0:t0 + n]
            b_tile = b_[b_b[b], t0:t0 + n]
            ahead(x_tile, n_l, n, n, 1, 16)
            ahead(g_tile, n_l, n, n, 1, 16)
            ahead(b_tile, n_l, n, n, 1, 16)
            map_0(out0[b, t0:t0 + n], s4, n_l, s2, x_tile, s, g_tile, b_tile, s3, n)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_g, g, b_b, b_, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_g, g, b_b, b_, n_l, out0)


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


def definition(x, g, b):
    """double_layernorm as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    g = spread(g, 'l')
    b = spread(b, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x - np.sum(x, along("l"), keepdims=True) / lengths["l"]
    t2 = t1 / np.sqrt(np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"] + 1e-05) * g + b
    t3 = t2 - np.sum(t2, along("l"), keepdims=True) / lengths["l"]
    return taken_out(t3 / np.sqrt(np.sum(t3 * t3, along("l"), keepdims=True) / lengths["l"] + 1e-05), 'l', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'g': 'normal', 'b': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"double_layernorm, l = {length}", arrays, scalars))
    return 0 if passed_over(double_layernorm, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
