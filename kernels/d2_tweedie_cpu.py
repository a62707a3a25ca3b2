"""d2_tweedie: one pass over l, 6 words of state per row, commutative merge.

1 − D(y, p)/D(y, ȳ) for the deviances D = Σ (y log(y/p) − y + p) and D = Σ (log(p/y) + y/p − 1).

The operator
    d2_tweedie(y[l], p[l]):
        t1 = y / p
        t2 = sum(y, l) / size(l)
        t3 = y / t2
        assume(y > 0, p > 0)
        return 1.0 - sum(y * log(t1) - y + p, l) / sum(y * log(t3) - y + t2, l), 1.0 - sum(log(p / y) + t1 - 1.0, l) / sum(log(t2 / y) + t3 - 1.0, l)

One more element (a prime marks the new value)
    s'  = s + y[l]·log(y[l]/p[l]) − y[l] + p[l]
    s2' = s2 + y[l]
    s1' = s1 + y[l]·log(y[l]) − y[l]
    N'  = N + 1
    s4' = s4 + log(p[l]/y[l]) + y[l]/p[l] − 1
    s6' = s6 + log(1/y[l]) − 1

Two states a and b
    s'  = s_a + s_b
    s2' = s2_a + s2_b
    s1' = s1_a + s1_b
    N'  = N_a + N_b
    s4' = s4_a + s4_b
    s6' = s6_a + s6_b

Dangers
    s3 divides and may be 0: the result is then what IEEE division gives
    s5 divides and may be 0: the result is then what IEEE division gives
    s3 = s1 − s2·log(p1) + p1·N is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, log_of_product, log_of_reciprocal
Certificate: sha256 38d4c5e4f29232328db4b5bf7f048a3a07625c8dca6b8bea6772d6b23cf048f4
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python d2_tweedie_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"y": "l", "p": "l"}
DTYPES = {"y": "float32", "p": "float32"}
TILE, BLOCK = 8192, 1


def d2_tweedie(y, p, *, threads=None):
    """d2_tweedie in one pass over l.

    Takes float32 y[…, l], float32 p[…, l]; gives float32 […], float32 […].  Leading dimensions are batch and
    broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"y": y, "p": p}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["y"], INPUTS["y"], "l", batch),
        *laid_out(arrays["p"], INPUTS["p"], "l", batch),
        lengths["l"], out0, out1)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


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
def fold_0a(y, p, n):
    wide_vectors()
    s = 0.0
    s1 = 0.0
    s4 = 0.0
    s6 = 0.0
    for i_l in range(n):
        t1 = f8(y[i_l]) / f8(p[i_l])
        t2 = np.log(t1)
        t3 = f8(y[i_l]) * t2
        t4 = t3 - f8(y[i_l])
        t5 = t4 + f8(p[i_l])
        s = s + t5
        t6 = np.log(f8(y[i_l]))
        t7 = t6 * f8(y[i_l])
        t8 = t7 - f8(y[i_l])
        s1 = s1 + t8
        t9 = f8(p[i_l]) / f8(y[i_l])
        t10 = np.log(t9)
        t11 = t10 + t1
        t12 = t11 - 1.0
        s4 = s4 + t12
        t13 = 1.0 / f8(y[i_l])
        t14 = np.log(t13)
        t15 = t14 + (-1.0)
        s6 = s6 + t15
    return s, s1, s4, s6


@njit(**LOOP)
def fold_0b(y, n, real):
    wide_vectors()
    s2 = real(0.0)
    c0 = middle(y)
    for i_l in range(n):
        s2 = s2 + minus(real(y[i_l]), c0)
    s2 = f8(s2) + f8(n) * f8(c0)
    return s2


@njit(**PART)
def finish(s2, N, s1, p1, s, s3, s6, s4, s5):
    t1 = s2 / f8(N)
    p1 = t1
    t2 = np.log(p1)
    t3 = -t2
    t4 = t3 * s2
    t5 = s1 + t4
    t6 = p1 * f8(N)
    t7 = t5 + t6
    s3 = t7
    t8 = s / s3
    t9 = 1.0 - t8
    out0 = f4(t9)
    t10 = t2 * f8(N)
    t11 = t10 + s6
    t12 = 1.0 / p1
    t13 = t12 * s2
    t14 = t11 + t13
    s5 = t14
    t15 = s4 / s5
    t16 = 1.0 - t15
    out1 = f4(t16)
    return p1, s3, out0, s5, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_y, y, b_p, p, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        s2 = f8(0.0)
        s1 = f8(0.0)
        N = i8(0)
        s4 = f8(0.0)
        s6 = f8(0.0)
        p1 = f8(0)
        s3 = f8(0)
        s5 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            y_tile = y[b_y[b], t0:t0 + n]
            p_tile = p[b_p[b], t0:t0 + n]
            N += 1 * n
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(y_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(p_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1, r2, r3 = fold_0a(y_tile[at:at + piece], p_tile[at:at + piece], piece)
                s = s + r0
                s1 = s1 + r1
                s4 = s4 + r2
                s6 = s6 + r3
            r0 = fold_0b(y_tile, n, f4)
            if not finite(r0):
                r0 = fold_0b(y_tile, n, f8)
            s2 = s2 + f8(r0)
        p1, s3, out0[b], s5, out1[b] = finish(s2, N, s1, p1, s, s3, s6, s4, s5)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_y, y, b_p, p, n_l, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_y, y, b_p, p, n_l, out0, out1)


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


def definition(y, p):
    """d2_tweedie as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    y = spread(y, 'l')
    p = spread(p, 'l')
    lengths = {"l": y.shape[-1]}
    t1 = y / p
    t2 = np.sum(y, along("l"), keepdims=True) / lengths["l"]
    t3 = y / t2
    return (taken_out(1.0 - np.sum(y * np.log(t1) - y + p, along("l"), keepdims=True) / np.sum(y * np.log(t3) - y + t2, along("l"), keepdims=True), '', lengths), taken_out(1.0 - np.sum(np.log(p / y) + t1 - 1.0, along("l"), keepdims=True) / np.sum(np.log(t2 / y) + t3 - 1.0, along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'y': 'positive', 'p': 'positive'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"d2_tweedie, l = {length}", arrays, scalars))
    return 0 if passed_over(d2_tweedie, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
