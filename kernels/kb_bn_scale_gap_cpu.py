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
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python kb_bn_scale_gap_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "c": "l"}
DTYPES = {"x": "float32", "c": "float32"}
TILE, BLOCK = 1024, 1


def kb_bn_scale_gap(x, c, *, threads=None):
    """kb_bn_scale_gap in one pass over l.

    Takes float32 x[…, l], float32 c[…, l]; gives float32 […], float32 […].  Leading dimensions are batch and
    broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "c": c}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["c"], INPUTS["c"], "l", batch),
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
def fold_0(x, c, n, real):
    wide_vectors()
    s1 = real(0.0)
    any1 = False
    s4 = 0
    any2 = False
    s6 = 0
    c0 = middle(x)
    for i_l in range(n):
        s1 = s1 + minus(real(x[i_l]), c0)
        t1 = real(c[i_l]) == real(0.0)
        any1 = any1 | t1
        s4 = s4 + (1 if t1 else 0)
        t2 = real(c[i_l]) == real(1.0)
        any2 = any2 | t2
        s6 = s6 + (1 if t2 else 0)
    s1 = f8(s1) + f8(n) * f8(c0)
    return s1, any1, s4, any2, s6


@njit(**PART)
def value_1(s1, s, N):
    t1 = 0.5 * s1
    s = t1
    t2 = s / f8(N)
    p1 = t2
    return s, p1


@njit(**PART)
def rebase_1(s2, old_p1, p1, old_N, s7, old_s4, s8, old_s6):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = times(t4, f8(old_N))
    t6 = s2 + t5
    s2 = t6
    t7 = times(t3, f8(old_s4))
    t8 = s7 + t7
    s7 = t8
    t9 = times(t3, f8(old_s6))
    t10 = s8 + t9
    s8 = t10
    return s2, s7, s8


@njit(**LOOP)
def fold_1(x, p1, c, n):
    wide_vectors()
    s2 = 0.0
    s7 = 0.0
    s8 = 0.0
    t2 = anchored(p1)
    for i_l in range(n):
        t1 = 0.5 * f8(x[i_l])
        t3 = t1 - t2
        t4 = t3 * t3
        s2 = s2 + t4
        t5 = f8(c[i_l]) == 0.0
        s7 = s7 + (t3 if t5 else 0.0)
        t6 = f8(c[i_l]) == 1.0
        s8 = s8 + (t3 if t6 else 0.0)
    return s2, s7, s8


@njit(**PART)
def finish(s1, s, N, p1, s2, any1, s7, s4, any2, s8, s6, p2, s3, s5):
    t1 = 0.5 * s1
    s = t1
    t2 = s / f8(N)
    p1 = t2
    t3 = p1
    t4 = t3 - t3
    t5 = t4 * t4
    t6 = 1.0 + t5
    t7 = t6 != t6
    t8 = s2 - s2
    t9 = t8 == 0.0
    t10 = p1 - p1
    t11 = t10 == 0.0
    t12 = p1 if t11 else f8(0)
    t13 = t12 - p1
    t14 = t13 * t13
    t15 = t14 * f8(N)
    t16 = s2 + t15
    t17 = t16 if t9 else nan
    t18 = t17 if t7 else s2
    s2 = t18
    t19 = 1.0 + t4
    t20 = t19 != t19
    t21 = t20 & any1
    t22 = s7 - s7
    t23 = t22 == 0.0
    t24 = t13 * f8(s4)
    t25 = s7 + t24
    t26 = t25 if t23 else nan
    t27 = t26 if t21 else s7
    s7 = t27
    t28 = t20 & any2
    t29 = s8 - s8
    t30 = t29 == 0.0
    t31 = t13 * f8(s6)
    t32 = s8 + t31
    t33 = t32 if t30 else nan
    t34 = t33 if t28 else s8
    s8 = t34
    t35 = s2 / f8(N)
    t36 = t35 + 1e-05
    t37 = np.sqrt(t36)
    p2 = t37
    t38 = 1.0 / p2
    t39 = t38 * s7
    t40 = t39 if any1 else 0.0
    s3 = t40
    t41 = s3 / f8(s4)
    out0 = f4(t41)
    t42 = t38 * s8
    t43 = t42 if any2 else 0.0
    s5 = t43
    t44 = s5 / f8(s6)
    out1 = f4(t44)
    return s, p1, s2, s7, s8, p2, s3, out0, s5, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_c, c, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s1 = f8(0.0)
        N = i8(0)
        any1 = b1(False)
        s4 = i8(0)
        any2 = b1(False)
        s6 = i8(0)
        s2 = f8(0.0)
        s7 = f8(0.0)
        s8 = f8(0.0)
        p2 = f8(0)
        s = f8(0)
        p1 = f8(0)
        s3 = f8(0)
        s5 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            c_tile = c[b_c[b], t0:t0 + n]
            old_p1 = p1
            old_N = N
            old_s4 = s4
            old_s6 = s6
            N += 1 * n
            r0, r1, r2, r3, r4 = fold_0(x_tile, c_tile, n, f4)
            if not finite(r0):
                r0, r1, r2, r3, r4 = fold_0(x_tile, c_tile, n, f8)
            s1 = s1 + f8(r0)
            any1 = any1 | r1
            s4 = s4 + r2
            any2 = any2 | r3
            s6 = s6 + r4
            s, p1 = value_1(s1, s, N)
            if t0 > begin:
                s2, s7, s8 = rebase_1(s2, old_p1, p1, old_N, s7, old_s4, s8, old_s6)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(c_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1, r2 = fold_1(x_tile[at:at + piece], p1, c_tile[at:at + piece], piece)
                s2 = s2 + r0
                s7 = s7 + r1
                s8 = s8 + r2
        s, p1, s2, s7, s8, p2, s3, out0[b], s5, out1[b] = finish(s1, s, N, p1, s2, any1, s7, s4, any2, s8, s6, p2, s3, s5)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_c, c, n_l, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_c, c, n_l, out0, out1)


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
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'c': 'bits'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"kb_bn_scale_gap, l = {length}", arrays, scalars))
    return 0 if passed_over(kb_bn_scale_gap, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
