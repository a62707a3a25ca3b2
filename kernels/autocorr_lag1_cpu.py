"""autocorr_lag1: one pass over l, 11 words of state per row, ordered merge.

Σ_{l>1} (x_l − μ)(x_{l−1} − μ) / Σ (x_l − μ)².

The operator
    autocorr_lag1(x[l]):
        t1 = x - sum(x, l) / size(l)
        return sum(t1 * scan(lambda c1: t1, l, 0.0, before), l) / sum(t1 ** 2, l)

One more element (a prime marks the new value)
    s'  = s + x[l]
    h1' = h1
    h2' = h2
    h3' = h3
    h4' = h4 − h7·(h1 − x[l])
    h5' = h5 − h8·(h1 − x[l]) − h7
    h6' = h6 − h8
    h7' = −(h1 − x[l])
    h8' = −1
    N'  = N + 1
    p1' = s'/N'
    δ   = p1 − p1'
    s3' = s3 + δ²·N + (x[l] − p1')²

Two states a and b
    s'   = s_a + s_b
    h1'  = h1_a
    h2'  = h2_a
    h3'  = h3_a
    h4'  = h4_a + h7_a·(h2_b + h3_b·(h1_a − h1_b)) + h4_b + h5_b·(h1_a − h1_b) + h6_b·(h1_a − h1_b)²
    h5'  = h5_a + h8_a·(h2_b + h3_b·(h1_a − h1_b)) + h3_b·h7_a + h5_b + 2·h6_b·(h1_a − h1_b)
    h6'  = h6_a + h3_b·h8_a + h6_b
    h7'  = h7_b + h8_b·(h1_a − h1_b)
    h8'  = h8_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s3'  = s3_a + δ_a²·N_a + s3_b + δ_b²·N_b

Dangers
    s3 divides and may be 0: the result is then what IEEE division gives
    s2 = h4 + h5·(s/N_l − h1) + h6·(s/N_l − h1)² is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 b9cdff9503813844e9dcbab8f1093915d0c43011125e1940ea404586073c597e
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python autocorr_lag1_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l"}
DTYPES = {"x": "float32"}
TILE, BLOCK = 2048, 1


def autocorr_lag1(x, *, threads=None):
    """autocorr_lag1 in one pass over l.

    Takes float32 x[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
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


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h1, h4, h5, h6, h7, h8, begins, x, n):
    if begins:
        i_l = 0
        h1, h4, h5, h6, h7, h8 = f8(x[i_l]), f8(0), f8(0), f8(0), f8(0), f8(-1)
    for i_l in range(begins, n):
        t1 = h1 - f8(x[i_l])
        t2 = (-1.0) * t1
        t3 = t2 * h7
        t4 = h4 + t3
        t5 = t2 * h8
        t6 = h5 + t5
        t7 = (-1.0) * h7
        t8 = t6 + t7
        t9 = (-1.0) * h8
        t10 = h6 + t9
        h4, h5, h6, h7, h8 = t4, t8, t10, t2, f8(-1)
    return h1, h4, h5, h6, h7, h8


@njit(**LOOP)
def fold_0(x, n, real):
    wide_vectors()
    s = real(0.0)
    c0 = middle(x)
    for i_l in range(n):
        s = s + minus(real(x[i_l]), c0)
    s = f8(s) + f8(n) * f8(c0)
    return s


@njit(**PART)
def value_1(s, N):
    t1 = s / f8(N)
    p1 = t1
    return p1


@njit(**PART)
def rebase_1(s3, old_p1, p1, old_N):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = times(t4, f8(old_N))
    t6 = s3 + t5
    s3 = t6
    return s3


@njit(**LOOP)
def fold_1(x, p1, n, real):
    wide_vectors()
    s3 = real(0.0)
    t1 = anchored(p1)
    for i_l in range(n):
        t2 = apart(real(x[i_l]), t1, real)
        t3 = t2 * t2
        s3 = s3 + t3
    return s3


@njit(**PART)
def finish(s, N, p1, s3, h4, h5, n_l, h1, h6, s2):
    t1 = s / f8(N)
    p1 = t1
    t2 = p1
    t3 = t2 - t2
    t4 = t3 * t3
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s3 - s3
    t8 = t7 == 0.0
    t9 = p1 - p1
    t10 = t9 == 0.0
    t11 = p1 if t10 else f8(0)
    t12 = t11 - p1
    t13 = t12 * t12
    t14 = t13 * f8(N)
    t15 = s3 + t14
    t16 = t15 if t8 else nan
    t17 = t16 if t6 else s3
    s3 = t17
    t18 = s / f8(n_l)
    t19 = t18 - h1
    t20 = h5 * t19
    t21 = h4 + t20
    t22 = t19 * t19
    t23 = h6 * t22
    t24 = t21 + t23
    s2 = t24
    t25 = s2 / s3
    out0 = f4(t25)
    return p1, s3, s2, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        h1 = f8(0.0)
        h2 = f8(0.0)
        h3 = f8(0.0)
        h4 = f8(0.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h7 = f8(0.0)
        h8 = f8(0.0)
        N = i8(0)
        s3 = f8(0.0)
        p1 = f8(0)
        s2 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            old_p1 = p1
            old_N = N
            N += 1 * n
            h1, h4, h5, h6, h7, h8 = steps_0_of_row(h1, h4, h5, h6, h7, h8, i8(t0 == begin), x_tile, n)
            r0 = fold_0(x_tile, n, f4)
            if not finite(r0):
                r0 = fold_0(x_tile, n, f8)
            s = s + f8(r0)
            p1 = value_1(s, N)
            if t0 > begin:
                s3 = rebase_1(s3, old_p1, p1, old_N)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 4, piece // 4, n // 4, 4, 16)
                r0 = fold_1(x_tile[at:at + piece], p1, piece, f4)
                if not sound(r0):
                    r0 = fold_1(x_tile[at:at + piece], p1, piece, f8)
                s3 = s3 + f8(r0)
        p1, s3, s2, out0[b] = finish(s, N, p1, s3, h4, h5, n_l, h1, h6, s2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, n_l, out0)


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


def stepped(axis, length, place, every, states, elements, step):
    """A recurrence, one element after the other: the last of state number `place`, or that after or before every element."""
    seen, dim = [], along(axis)
    states = tuple(np.reshape(np.asarray(state, np.float64), (1,) * (len(AXES) - np.ndim(state)) + np.shape(state)) for state in states)
    for at in range(length):
        here = [np.take(element, [at if element.shape[dim] > 1 else 0], dim) for element in elements]
        after = step(*states, *here)
        seen += [(after if every == "after" else states)[place]] if every else []
        states = after
    return np.concatenate(np.broadcast_arrays(*seen), dim) if every else states[place]


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


def definition(x):
    """autocorr_lag1 as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x - np.sum(x, along("l"), keepdims=True) / lengths["l"]
    return taken_out(np.sum(t1 * stepped("l", lengths["l"], 0, "before", (0.0,), (t1,), lambda c1, e1: (e1,)), along("l"), keepdims=True) / np.sum(t1 ** 2, along("l"), keepdims=True), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"autocorr_lag1, l = {length}", arrays, scalars))
    return 0 if passed_over(autocorr_lag1, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
