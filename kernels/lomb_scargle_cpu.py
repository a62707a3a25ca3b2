"""lomb_scargle: one pass over l, 10 words of state per row, commutative merge.

Power at ω = 1.7 with τ = atan2(Σ sin 2ωt, Σ cos 2ωt)/2ω: ½ Σ over cos, sin of (Σ (y − ȳ) c)²/Σ c².

The operator
    lomb_scargle(t[l], y[l]):
        t1 = y - sum(y, l) / size(l)
        t2 = 3.4 * t
        t3 = 1.7 * (t - arctan2(sum(sin(t2), l), sum(cos(t2), l)) / 3.4)
        t4 = cos(t3)
        t5 = sin(t3)
        return 0.5 * (sum(t1 * t4, l) ** 2 / sum(t4 * t4, l) + sum(t1 * t5, l) ** 2 / sum(t5 * t5, l))

One more element (a prime marks the new value)
    s'   = s + y[l]
    s2'  = s2 + sin(3.4·t[l])
    s3'  = s3 + cos(3.4·t[l])
    p2'  = arctan2(s2', s3')/3.4
    p1'  = s'/N_l
    δ    = p1 − p1'
    s4'  = s4·cos(1.7·(p2 − p2')) − s6·sin(1.7·(p2 − p2')) + δ·s8·cos(1.7·(p2 − p2')) − δ·s1·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))·(y[l] − p1')
    s6'  = s6·cos(1.7·(p2 − p2')) + s4·sin(1.7·(p2 − p2')) + δ·s1·cos(1.7·(p2 − p2')) + δ·s8·sin(1.7·(p2 − p2')) + (y[l] − p1')·sin(1.7·(t[l] − p2'))
    s1'  = s1·cos(1.7·(p2 − p2')) + s8·sin(1.7·(p2 − p2')) + sin(1.7·(t[l] − p2'))
    s8'  = s8·cos(1.7·(p2 − p2')) − s1·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))
    s5'  = s5·(cos(1.7·(p2 − p2'))² + sin(1.7·(p2 − p2'))²) − 2·s9·cos(1.7·(p2 − p2'))·sin(1.7·(p2 − p2')) − s10·sin(1.7·(p2 − p2'))² + cos(1.7·(t[l] − p2'))²
    s9'  = s9·(cos(1.7·(p2 − p2'))² − sin(1.7·(p2 − p2'))²) + s10·cos(1.7·(p2 − p2'))·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))·sin(1.7·(t[l] − p2'))
    s10' = s10·(cos(1.7·(p2 − p2'))² − sin(1.7·(p2 − p2'))²) − 4·s9·cos(1.7·(p2 − p2'))·sin(1.7·(p2 − p2')) + cos(1.7·(t[l] − p2'))² − sin(1.7·(t[l] − p2'))²

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    p2_a = arctan2(s2_a, s3_a)/3.4
    p1_a = s_a/N_l
    p2_b = arctan2(s2_b, s3_b)/3.4
    p1_b = s_b/N_l
    p2'  = arctan2(s2', s3')/3.4
    p1'  = s'/N_l
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s4'  = s4_a·cos(1.7·(p2_a − p2')) − s6_a·sin(1.7·(p2_a − p2')) + δ_a·s8_a·cos(1.7·(p2_a − p2')) − δ_a·s1_a·sin(1.7·(p2_a − p2')) + s4_b·cos(1.7·(p2_b − p2')) − s6_b·sin(1.7·(p2_b − p2')) + δ_b·s8_b·cos(1.7·(p2_b − p2')) − δ_b·s1_b·sin(1.7·(p2_b − p2'))
    s6'  = s6_a·cos(1.7·(p2_a − p2')) + s4_a·sin(1.7·(p2_a − p2')) + δ_a·s1_a·cos(1.7·(p2_a − p2')) + δ_a·s8_a·sin(1.7·(p2_a − p2')) + s6_b·cos(1.7·(p2_b − p2')) + s4_b·sin(1.7·(p2_b − p2')) + δ_b·s1_b·cos(1.7·(p2_b − p2')) + δ_b·s8_b·sin(1.7·(p2_b − p2'))
    s1'  = s1_a·cos(1.7·(p2_a − p2')) + s8_a·sin(1.7·(p2_a − p2')) + s1_b·cos(1.7·(p2_b − p2')) + s8_b·sin(1.7·(p2_b − p2'))
    s8'  = s8_a·cos(1.7·(p2_a − p2')) − s1_a·sin(1.7·(p2_a − p2')) + s8_b·cos(1.7·(p2_b − p2')) − s1_b·sin(1.7·(p2_b − p2'))
    s5'  = s5_a·(cos(1.7·(p2_a − p2'))² + sin(1.7·(p2_a − p2'))²) − 2·s9_a·cos(1.7·(p2_a − p2'))·sin(1.7·(p2_a − p2')) − s10_a·sin(1.7·(p2_a − p2'))² + s5_b·(cos(1.7·(p2_b − p2'))² + sin(1.7·(p2_b − p2'))²) − 2·s9_b·cos(1.7·(p2_b − p2'))·sin(1.7·(p2_b − p2')) − s10_b·sin(1.7·(p2_b − p2'))²
    s9'  = s9_a·(cos(1.7·(p2_a − p2'))² − sin(1.7·(p2_a − p2'))²) + s10_a·cos(1.7·(p2_a − p2'))·sin(1.7·(p2_a − p2')) + s9_b·(cos(1.7·(p2_b − p2'))² − sin(1.7·(p2_b − p2'))²) + s10_b·cos(1.7·(p2_b − p2'))·sin(1.7·(p2_b − p2'))
    s10' = s10_a·(cos(1.7·(p2_a − p2'))² − sin(1.7·(p2_a − p2'))²) − 4·s9_a·cos(1.7·(p2_a − p2'))·sin(1.7·(p2_a − p2')) + s10_b·(cos(1.7·(p2_b − p2'))² − sin(1.7·(p2_b − p2'))²) − 4·s9_b·cos(1.7·(p2_b − p2'))·sin(1.7·(p2_b − p2'))

Dangers
    s5 divides and may be 0: the result is then what IEEE division gives
    s7 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, sin_of_sum, cos_of_sum
Certificate: sha256 11f12fd1d2a19cc6e18df3e4d16603aba50d67347158881c8847c8ffe980865b
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python lomb_scargle_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"t": "l", "y": "l"}
DTYPES = {"t": "float32", "y": "float32"}
TILE, BLOCK = 1024, 1


def lomb_scargle(t, y, *, threads=None):
    """lomb_scargle in one pass over l.

    Takes float32 t[…, l], float32 y[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"t": t, "y": y}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["t"], INPUTS["t"], "l", batch),
        *laid_out(arrays["y"], INPUTS["y"], "l", batch),
        lengths["l"], out0)
    return given_back(out0, batch, "", "")


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


@njit(**LOOP)
def fold_0a(t, n):
    wide_vectors()
    s2 = 0.0
    s3 = 0.0
    for i_l in range(n):
        t1 = 3.4 * f8(t[i_l])
        t2 = np.sin(t1)
        s2 = s2 + t2
        t3 = np.cos(t1)
        s3 = s3 + t3
    return s2, s3


@njit(**LOOP)
def fold_0b(y, n, real):
    wide_vectors()
    s = real(0.0)
    c0 = middle(y)
    for i_l in range(n):
        s = s + minus(real(y[i_l]), c0)
    s = f8(s) + f8(n) * f8(c0)
    return s


@njit(**PART)
def value_1(s, n_l, s2, s3):
    t1 = s / f8(n_l)
    p1 = t1
    t2 = np.arctan2(s2, s3)
    t3 = t2 / 3.4
    p2 = t3
    return p1, p2


@njit(**PART)
def rebase_1(old_p2, p2, old_s4, old_s6, old_p1, p1, old_s8, old_s1, s5, old_s9, old_s10):
    t1 = anchored(old_p2)
    t2 = anchored(p2)
    t3 = t1 - t2
    t4 = 1.7 * t3
    t5 = np.cos(t4)
    t6 = times(t5, old_s4)
    t7 = np.sin(t4)
    t8 = -t7
    t9 = times(t8, old_s6)
    t10 = t6 + t9
    t11 = anchored(old_p1)
    t12 = anchored(p1)
    t13 = t11 - t12
    t14 = t5 * t13
    t15 = times(t14, old_s8)
    t16 = t10 + t15
    t17 = t13 * t7
    t18 = -t17
    t19 = times(t18, old_s1)
    t20 = t16 + t19
    s4 = t20
    t21 = times(t5, old_s6)
    t22 = times(t7, old_s4)
    t23 = t21 + t22
    t24 = times(t14, old_s1)
    t25 = t23 + t24
    t26 = times(t17, old_s8)
    t27 = t25 + t26
    s6 = t27
    t28 = times(t5, old_s1)
    t29 = times(t7, old_s8)
    t30 = t28 + t29
    s1 = t30
    t31 = times(t5, old_s8)
    t32 = times(t8, old_s1)
    t33 = t31 + t32
    s8 = t33
    t34 = t5 * t5
    t35 = t7 * t7
    t36 = t34 + t35
    t37 = times(t36, s5)
    t38 = t5 * t7
    t39 = (-2.0) * t38
    t40 = times(t39, old_s9)
    t41 = t37 + t40
    t42 = -t35
    t43 = times(t42, old_s10)
    t44 = t41 + t43
    s5 = t44
    t45 = t34 - t35
    t46 = times(t45, old_s9)
    t47 = times(t38, old_s10)
    t48 = t46 + t47
    s9 = t48
    t49 = times(t45, old_s10)
    t50 = (-4.0) * t38
    t51 = times(t50, old_s9)
    t52 = t49 + t51
    s10 = t52
    return s4, s6, s1, s8, s5, s9, s10


@njit(**LOOP)
def fold_1(t, p2, y, p1, n):
    wide_vectors()
    s4 = 0.0
    s6 = 0.0
    s1 = 0.0
    s8 = 0.0
    s5 = 0.0
    s9 = 0.0
    s10 = 0.0
    t1 = anchored(p2)
    t5 = anchored(p1)
    for i_l in range(n):
        t2 = f8(t[i_l]) - t1
        t3 = 1.7 * t2
        t4 = np.cos(t3)
        t6 = f8(y[i_l]) - t5
        t7 = t4 * t6
        s4 = s4 + t7
        t8 = np.sin(t3)
        t9 = t6 * t8
        s6 = s6 + t9
        s1 = s1 + t8
        s8 = s8 + t4
        t10 = t4 * t4
        s5 = s5 + t10
        t11 = t4 * t8
        s9 = s9 + t11
        t12 = t8 * t8
        t13 = t10 - t12
        s10 = s10 + t13
    return s4, s6, s1, s8, s5, s9, s10


@njit(**PART)
def finish(s, n_l, s2, s3, p2, p1, s4, s6, s1, s8, s5, s9, s10, s7):
    t1 = s / f8(n_l)
    p1 = t1
    t2 = np.arctan2(s2, s3)
    t3 = t2 / 3.4
    p2 = t3
    t4 = p2
    t5 = t4 - t4
    t6 = 1.7 * t5
    t7 = np.cos(t6)
    t8 = np.sin(t6)
    t9 = -t8
    t10 = t7 + t9
    t11 = p1
    t12 = t11 - t11
    t13 = t7 * t12
    t14 = t10 + t13
    t15 = t12 * t8
    t16 = -t15
    t17 = t14 + t16
    t18 = t17 != t17
    t19 = nan if t18 else s4
    s4 = t19
    t20 = t7 + t8
    t21 = t20 + t13
    t22 = t21 + t15
    t23 = t22 != t22
    t24 = nan if t23 else s6
    s6 = t24
    t25 = t20 != t20
    t26 = nan if t25 else s1
    s1 = t26
    t27 = t10 != t10
    t28 = nan if t27 else s8
    s8 = t28
    t29 = t7 * t7
    t30 = t8 * t8
    t31 = t29 + t30
    t32 = t7 * t8
    t33 = (-2.0) * t32
    t34 = t31 + t33
    t35 = -t30
    t36 = t34 + t35
    t37 = t36 != t36
    t38 = nan if t37 else s5
    s5 = t38
    t39 = t29 - t30
    t40 = t39 + t32
    t41 = t40 != t40
    t42 = nan if t41 else s9
    s9 = t42
    t43 = (-4.0) * t32
    t44 = t39 + t43
    t45 = t44 != t44
    t46 = nan if t45 else s10
    s10 = t46
    t47 = -s10
    t48 = t47 + s5
    t49 = larger(t48, 0.0)
    s7 = t49
    t50 = s4 * s4
    t51 = t50 / s5
    t52 = s6 * s6
    t53 = t52 / s7
    t54 = t51 + t53
    t55 = 0.5 * t54
    out0 = f4(t55)
    return p1, p2, s4, s6, s1, s8, s5, s9, s10, s7, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_t, t, b_y, y, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        s2 = f8(0.0)
        s3 = f8(0.0)
        s4 = f8(0.0)
        s6 = f8(0.0)
        s1 = f8(0.0)
        s8 = f8(0.0)
        s5 = f8(0.0)
        s9 = f8(0.0)
        s10 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        s7 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            t_tile = t[b_t[b], t0:t0 + n]
            y_tile = y[b_y[b], t0:t0 + n]
            old_p2 = p2
            old_s6 = s6
            old_p1 = p1
            old_s8 = s8
            old_s1 = s1
            old_s4 = s4
            old_s9 = s9
            old_s10 = s10
            r0, r1 = fold_0a(t_tile, n)
            s2 = s2 + r0
            s3 = s3 + r1
            r0 = fold_0b(y_tile, n, f4)
            if not finite(r0):
                r0 = fold_0b(y_tile, n, f8)
            s = s + f8(r0)
            p1, p2 = value_1(s, seen, s2, s3)
            if t0 > begin:
                s4, s6, s1, s8, s5, s9, s10 = rebase_1(old_p2, p2, old_s4, old_s6, old_p1, p1, old_s8, old_s1, s5, old_s9, old_s10)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(t_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(y_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1, r2, r3, r4, r5, r6 = fold_1(t_tile[at:at + piece], p2, y_tile[at:at + piece], p1, piece)
                s4 = s4 + r0
                s6 = s6 + r1
                s1 = s1 + r2
                s8 = s8 + r3
                s5 = s5 + r4
                s9 = s9 + r5
                s10 = s10 + r6
        p1, p2, s4, s6, s1, s8, s5, s9, s10, s7, out0[b] = finish(s, n_l, s2, s3, p2, p1, s4, s6, s1, s8, s5, s9, s10, s7)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_t, t, b_y, y, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_t, t, b_y, y, n_l, out0)


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


def definition(t, y):
    """lomb_scargle as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    t = spread(t, 'l')
    y = spread(y, 'l')
    lengths = {"l": t.shape[-1]}
    t1 = y - np.sum(y, along("l"), keepdims=True) / lengths["l"]
    t2 = 3.4 * t
    t3 = 1.7 * (t - np.arctan2(np.sum(np.sin(t2), along("l"), keepdims=True), np.sum(np.cos(t2), along("l"), keepdims=True)) / 3.4)
    t4 = np.cos(t3)
    t5 = np.sin(t3)
    return taken_out(0.5 * (np.sum(t1 * t4, along("l"), keepdims=True) ** 2 / np.sum(t4 * t4, along("l"), keepdims=True) + np.sum(t1 * t5, along("l"), keepdims=True) ** 2 / np.sum(t5 * t5, along("l"), keepdims=True)), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'t': 'normal', 'y': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"lomb_scargle, l = {length}", arrays, scalars))
    return 0 if passed_over(lomb_scargle, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
