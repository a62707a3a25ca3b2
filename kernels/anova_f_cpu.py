"""anova_f: one pass over l, 7 words of state per row, commutative merge.

F = Σ_k n_k (μ_k − μ)² / (Σ (x − μ_g)²/(N − 2)) of the groups g = 0 and g = 1.

The operator
    anova_f(x[l], g[l]):
        t1 = g == 0
        d1 = sum(1, l, where=t1)
        t2 = sum(x, l, where=t1) / d1
        t3 = sum(x, l) / size(l)
        t4 = g == 1
        d2 = sum(1, l, where=t4)
        t5 = sum(x, l, where=t4) / d2
        return (0 + d1 * (t2 - t3) ** 2 + d2 * (t5 - t3) ** 2) / ((0 + sum((x - t2) ** 2, l, where=t1) + sum((x - t5) ** 2, l, where=t4)) / (size(l) - 2))

One more element (a prime marks the new value)
    s'  = s + 1   element where g[l] = 0
    s2' = s2 + x[l]   element where g[l] = 0
    s3' = s3 + x[l]
    s4' = s4 + 1   element where g[l] = 1
    s5' = s5 + x[l]   element where g[l] = 1
    p1' = s2'/s'
    δ1  = p1 − p1'
    s6' = s6 + δ1²·s + (x[l] − p1')²   element where g[l] = 0
    p2' = s5'/s4'
    δ2  = p2 − p2'
    s7' = s7 + δ2²·s4 + (x[l] − p2')²   element where g[l] = 1

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    s4'  = s4_a + s4_b
    s5'  = s5_a + s5_b
    p1_a = s2_a/s_a
    p1_b = s2_b/s_b
    p1'  = s2'/s'
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s6'  = s6_a + δ1_a²·s_a + s6_b + δ1_b²·s_b
    p2_a = s5_a/s4_a
    p2_b = s5_b/s4_b
    p2'  = s5'/s4'
    δ2_a = p2_a − p2'
    δ2_b = p2_b − p2'
    s7'  = s7_a + δ2_a²·s4_a + s7_b + δ2_b²·s4_b

Dangers
    s divides and may be 0: the result is then what IEEE division gives
    s4 divides and may be 0: the result is then what IEEE division gives
    (s6 + s7)/(N_l − 2) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 73045b922a36bc50bf84cea8c8828df10d88d49a8447aeb3fadb1527a681acb8
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python anova_f_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "g": "l"}
DTYPES = {"x": "float32", "g": "float32"}
TILE, BLOCK = 1024, 1


def anova_f(x, g, *, threads=None):
    """anova_f in one pass over l.

    Takes float32 x[…, l], float32 g[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "g": g}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["g"], INPUTS["g"], "l", batch),
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
def fold_0a(g, x, n):
    wide_vectors()
    s = 0
    s2 = 0.0
    s4 = 0
    s5 = 0.0
    for i_l in range(n):
        t1 = f8(g[i_l]) == 0.0
        s = s + (1 if t1 else 0)
        s2 = s2 + (f8(x[i_l]) if t1 else 0.0)
        t2 = f8(g[i_l]) == 1.0
        s4 = s4 + (1 if t2 else 0)
        s5 = s5 + (f8(x[i_l]) if t2 else 0.0)
    return s, s2, s4, s5


@njit(**LOOP)
def fold_0b(x, g, n, real):
    wide_vectors()
    any1 = False
    s3 = real(0.0)
    any2 = False
    c1 = middle(x)
    for i_l in range(n):
        t1 = real(g[i_l]) == real(0.0)
        any1 = any1 | t1
        s3 = s3 + minus(real(x[i_l]), c1)
        t2 = real(g[i_l]) == real(1.0)
        any2 = any2 | t2
    s3 = f8(s3) + f8(n) * f8(c1)
    return any1, s3, any2


@njit(**PART)
def value_1(s2, s, s5, s4):
    t1 = s2 / f8(s)
    p1 = t1
    t2 = s5 / f8(s4)
    p2 = t2
    return p1, p2


@njit(**PART)
def rebase_1(s6, old_p1, p1, old_s2, old_s, s7, old_p2, p2, old_s5, old_s4):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = 2.0 * t3
    t5 = old_p1 == t1
    t6 = f8(0) if t5 else old_s2
    t7 = times(t4, t6)
    t8 = s6 + t7
    t9 = t3 * t3
    t10 = times(t9, f8(old_s))
    t11 = t8 + t10
    s6 = t11
    t12 = anchored(old_p2)
    t13 = anchored(p2)
    t14 = t12 - t13
    t15 = 2.0 * t14
    t16 = old_p2 == t12
    t17 = f8(0) if t16 else old_s5
    t18 = times(t15, t17)
    t19 = s7 + t18
    t20 = t14 * t14
    t21 = times(t20, f8(old_s4))
    t22 = t19 + t21
    s7 = t22
    return s6, s7


@njit(**LOOP)
def fold_1(g, x, p1, p2, n, real):
    wide_vectors()
    s6 = real(0.0)
    s7 = real(0.0)
    t2 = anchored(p1)
    t6 = anchored(p2)
    for i_l in range(n):
        t1 = real(g[i_l]) == real(0.0)
        t3 = apart(real(x[i_l]), t2, real)
        t4 = t3 * t3
        s6 = s6 + (t4 if t1 else real(0.0))
        t5 = real(g[i_l]) == real(1.0)
        t7 = apart(real(x[i_l]), t6, real)
        t8 = t7 * t7
        s7 = s7 + (t8 if t5 else real(0.0))
    return s6, s7


@njit(**PART)
def finish(s2, s, p1, any1, s6, s5, s4, p2, any2, s7, s3, n_l):
    t1 = s2 / f8(s)
    p1 = t1
    t2 = p1
    t3 = t2 - t2
    t4 = 2.0 * t3
    t5 = p1 == t2
    t6 = f8(0) if t5 else 1.0
    t7 = t4 * t6
    t8 = 1.0 + t7
    t9 = t3 * t3
    t10 = t8 + t9
    t11 = t10 != t10
    t12 = t11 & any1
    t13 = s6 - s6
    t14 = t13 == 0.0
    t15 = p1 - p1
    t16 = t15 == 0.0
    t17 = p1 if t16 else f8(0)
    t18 = t17 - p1
    t19 = 2.0 * t18
    t20 = p1 == t17
    t21 = f8(0) if t20 else s2
    t22 = t19 * t21
    t23 = s6 + t22
    t24 = t18 * t18
    t25 = t24 * f8(s)
    t26 = t23 + t25
    t27 = t26 if t14 else nan
    t28 = t27 if t12 else s6
    s6 = t28
    t29 = s5 / f8(s4)
    p2 = t29
    t30 = p2
    t31 = t30 - t30
    t32 = 2.0 * t31
    t33 = p2 == t30
    t34 = f8(0) if t33 else 1.0
    t35 = t32 * t34
    t36 = 1.0 + t35
    t37 = t31 * t31
    t38 = t36 + t37
    t39 = t38 != t38
    t40 = t39 & any2
    t41 = s7 - s7
    t42 = t41 == 0.0
    t43 = p2 - p2
    t44 = t43 == 0.0
    t45 = p2 if t44 else f8(0)
    t46 = t45 - p2
    t47 = 2.0 * t46
    t48 = p2 == t45
    t49 = f8(0) if t48 else s5
    t50 = t47 * t49
    t51 = s7 + t50
    t52 = t46 * t46
    t53 = t52 * f8(s4)
    t54 = t51 + t53
    t55 = t54 if t42 else nan
    t56 = t55 if t40 else s7
    s7 = t56
    t57 = s3 / f8(n_l)
    t58 = t1 - t57
    t59 = t58 * t58
    t60 = f8(s) * t59
    t61 = 0.0 + t60
    t62 = t29 - t57
    t63 = t62 * t62
    t64 = f8(s4) * t63
    t65 = t61 + t64
    t66 = 0.0 + s6
    t67 = t66 + s7
    t68 = n_l - 2
    t69 = t67 / f8(t68)
    t70 = t65 / t69
    out0 = f4(t70)
    return p1, s6, p2, s7, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_g, g, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        any1 = b1(False)
        s = i8(0)
        s2 = f8(0.0)
        s3 = f8(0.0)
        any2 = b1(False)
        s4 = i8(0)
        s5 = f8(0.0)
        s6 = f8(0.0)
        s7 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            g_tile = g[b_g[b], t0:t0 + n]
            x_tile = x[b_x[b], t0:t0 + n]
            old_p1 = p1
            old_s2 = s2
            old_s = s
            old_p2 = p2
            old_s5 = s5
            old_s4 = s4
            r0, r1, r2, r3 = fold_0a(g_tile, x_tile, n)
            s = s + r0
            s2 = s2 + r1
            s4 = s4 + r2
            s5 = s5 + r3
            r0, r1, r2 = fold_0b(x_tile, g_tile, n, f4)
            if not finite(r1):
                r0, r1, r2 = fold_0b(x_tile, g_tile, n, f8)
            any1 = any1 | r0
            s3 = s3 + f8(r1)
            any2 = any2 | r2
            p1, p2 = value_1(s2, s, s5, s4)
            if t0 > begin:
                s6, s7 = rebase_1(s6, old_p1, p1, old_s2, old_s, s7, old_p2, p2, old_s5, old_s4)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(g_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1 = fold_1(g_tile[at:at + piece], x_tile[at:at + piece], p1, p2, piece, f4)
                if not sound(r0) or not sound(r1):
                    r0, r1 = fold_1(g_tile[at:at + piece], x_tile[at:at + piece], p1, p2, piece, f8)
                s6 = s6 + f8(r0)
                s7 = s7 + f8(r1)
        p1, s6, p2, s7, out0[b] = finish(s2, s, p1, any1, s6, s5, s4, p2, any2, s7, s3, n_l)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_g, g, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_g, g, n_l, out0)


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


def definition(x, g):
    """anova_f as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    g = spread(g, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = g == 0
    d1 = np.sum(np.where(t1, 1, 0), along("l"), keepdims=True)
    t2 = np.sum(np.where(t1, x, 0), along("l"), keepdims=True) / d1
    t3 = np.sum(x, along("l"), keepdims=True) / lengths["l"]
    t4 = g == 1
    d2 = np.sum(np.where(t4, 1, 0), along("l"), keepdims=True)
    t5 = np.sum(np.where(t4, x, 0), along("l"), keepdims=True) / d2
    return taken_out((0 + d1 * (t2 - t3) ** 2 + d2 * (t5 - t3) ** 2) / ((0 + np.sum(np.where(t1, (x - t2) ** 2, 0), along("l"), keepdims=True) + np.sum(np.where(t4, (x - t5) ** 2, 0), along("l"), keepdims=True)) / (lengths["l"] - 2)), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'g': 'bits'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"anova_f, l = {length}", arrays, scalars))
    return 0 if passed_over(anova_f, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
