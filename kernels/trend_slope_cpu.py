"""trend_slope: one pass over l, 7 words of state per row, commutative merge.

t = l − (N − 1)/2; slope b = Σ t x/Σ t² and Σ (x − μ − b t)².

The operator
    trend_slope(x[l]):
        t1 = index(l) - (size(l) - 1) / 2
        t2 = sum(t1 * x, l) / sum(t1 * t1, l)
        return t2, sum((x - sum(x, l) / size(l) - t2 * t1) ** 2, l)

One more element (a prime marks the new value)
    N'  = N + 1
    p1' = (N' − 1)/2
    δ1  = p1 − p1'
    s'  = s + δ1·s3 + x[l]·(l − p1')
    s3' = s3 + x[l]
    s2' = s2 + 2·δ1·s1 + δ1²·N + (l − p1')²
    s1' = s1 + δ1·N + l − p1'
    p2' = s3'/N'
    δ2  = p2 − p2'
    s5' = s5 + δ2²·N + (x[l] − p2')²
    s6' = s6 + δ2·s1 + δ1·δ2·N + (l − p1')·(x[l] − p2')

Two states a and b
    N'   = N_a + N_b
    p1_a = (N_a − 1)/2
    p1_b = (N_b − 1)/2
    p1'  = (N' − 1)/2
    δ1_a = p1_a − p1'
    δ1_b = p1_b − p1'
    s'   = s_a + δ1_a·s3_a + s_b + δ1_b·s3_b
    s3'  = s3_a + s3_b
    s2'  = s2_a + 2·δ1_a·s1_a + δ1_a²·N_a + s2_b + 2·δ1_b·s1_b + δ1_b²·N_b
    s1'  = s1_a + δ1_a·N_a + s1_b + δ1_b·N_b
    p2_a = s3_a/N_a
    p2_b = s3_b/N_b
    p2'  = s3'/N'
    δ2_a = p2_a − p2'
    δ2_b = p2_b − p2'
    s5'  = s5_a + δ2_a²·N_a + s5_b + δ2_b²·N_b
    s6'  = s6_a + δ2_a·s1_a + δ1_a·δ2_a·N_a + s6_b + δ2_b·s1_b + δ1_b·δ2_b·N_b

Dangers
    s2 divides and may be 0: the result is then what IEEE division gives
    s4 = s5 − 2·p3·s6 + p3²·s2 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 8965085382d4812f995728198afd1efa5d21f958ff97a751ddf301107e616100
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python trend_slope_cpu.py` checks it.
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


def trend_slope(x, *, threads=None):
    """trend_slope in one pass over l.

    Takes float32 x[…, l]; gives float32 […], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
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
def fold_0(x, n, real):
    wide_vectors()
    s3 = real(0.0)
    c0 = middle(x)
    for i_l in range(n):
        s3 = s3 + minus(real(x[i_l]), c0)
    s3 = f8(s3) + f8(n) * f8(c0)
    return s3


@njit(**PART)
def value_1(N, s3):
    t1 = N - 1
    t2 = f8(t1) / 2.0
    p1 = t2
    t3 = s3 / f8(N)
    p2 = t3
    return p1, p2


@njit(**PART)
def rebase_1(s, old_p1, p1, old_s3, s2, old_s1, old_N, s5, old_p2, p2, s6):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = times(t3, old_s3)
    t5 = s + t4
    s = t5
    t6 = 2.0 * t3
    t7 = times(t6, old_s1)
    t8 = s2 + t7
    t9 = t3 * t3
    t10 = times(t9, f8(old_N))
    t11 = t8 + t10
    s2 = t11
    t12 = times(t3, f8(old_N))
    t13 = old_s1 + t12
    s1 = t13
    t14 = anchored(old_p2)
    t15 = anchored(p2)
    t16 = t14 - t15
    t17 = t16 * t16
    t18 = times(t17, f8(old_N))
    t19 = s5 + t18
    s5 = t19
    t20 = times(t16, old_s1)
    t21 = s6 + t20
    t22 = t3 * t16
    t23 = times(t22, f8(old_N))
    t24 = t21 + t23
    s6 = t24
    return s, s2, s1, s5, s6


@njit(**LOOP)
def fold_1a(start, p1, x, p2, n):
    wide_vectors()
    s = 0.0
    s2 = 0.0
    s1 = 0.0
    s6 = 0.0
    t1 = anchored(p1)
    t5 = anchored(p2)
    for i_l in range(n):
        t2 = f8((start + i_l)) - t1
        t3 = t2 * f8(x[i_l])
        s = s + t3
        t4 = t2 * t2
        s2 = s2 + t4
        s1 = s1 + t2
        t6 = f8(x[i_l]) - t5
        t7 = t2 * t6
        s6 = s6 + t7
    return s, s2, s1, s6


@njit(**LOOP)
def fold_1b(x, p2, n, real):
    wide_vectors()
    s5 = real(0.0)
    t1 = anchored(p2)
    for i_l in range(n):
        t2 = apart(real(x[i_l]), t1, real)
        t3 = t2 * t2
        s5 = s5 + t3
    return s5


@njit(**PART)
def finish(N, p1, s, s3, s2, s1, p2, s5, s6, p3, s4):
    t1 = N - 1
    t2 = f8(t1) / 2.0
    p1 = t2
    t3 = p1
    t4 = t3 - t3
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s - s
    t8 = t7 == 0.0
    t9 = p1 - p1
    t10 = t9 == 0.0
    t11 = p1 if t10 else f8(0)
    t12 = t11 - p1
    t13 = t12 * s3
    t14 = s + t13
    t15 = t14 if t8 else nan
    t16 = t15 if t6 else s
    s = t16
    t17 = 2.0 * t4
    t18 = 1.0 + t17
    t19 = t4 * t4
    t20 = t18 + t19
    t21 = t20 != t20
    t22 = nan if t21 else s2
    s2 = t22
    t23 = s1 - s1
    t24 = t23 == 0.0
    t25 = t12 * f8(N)
    t26 = s1 + t25
    t27 = t26 if t24 else nan
    t28 = t27 if t6 else s1
    s1 = t28
    t29 = s3 / f8(N)
    p2 = t29
    t30 = p2
    t31 = t30 - t30
    t32 = t31 * t31
    t33 = 1.0 + t32
    t34 = t33 != t33
    t35 = s5 - s5
    t36 = t35 == 0.0
    t37 = p2 - p2
    t38 = t37 == 0.0
    t39 = p2 if t38 else f8(0)
    t40 = t39 - p2
    t41 = t40 * t40
    t42 = t41 * f8(N)
    t43 = s5 + t42
    t44 = t43 if t36 else nan
    t45 = t44 if t34 else s5
    s5 = t45
    t46 = 1.0 + t31
    t47 = t4 * t31
    t48 = t46 + t47
    t49 = t48 != t48
    t50 = nan if t49 else s6
    s6 = t50
    t51 = s / s2
    out0 = f4(t51)
    p3 = t51
    t52 = (-2.0) * p3
    t53 = t52 * s6
    t54 = s5 + t53
    t55 = p3 * p3
    t56 = t55 * s2
    t57 = t54 + t56
    t58 = larger(t57, 0.0)
    s4 = t58
    out1 = f4(s4)
    return p1, s, s2, s1, p2, s5, s6, out0, p3, s4, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        N = i8(0)
        s3 = f8(0.0)
        s = f8(0.0)
        s2 = f8(0.0)
        s1 = f8(0.0)
        s5 = f8(0.0)
        s6 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        p3 = f8(0)
        s4 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            old_p1 = p1
            old_s3 = s3
            old_s1 = s1
            old_N = N
            old_p2 = p2
            N += 1 * n
            r0 = fold_0(x_tile, n, f4)
            if not finite(r0):
                r0 = fold_0(x_tile, n, f8)
            s3 = s3 + f8(r0)
            p1, p2 = value_1(N, s3)
            if t0 > begin:
                s, s2, s1, s5, s6 = rebase_1(s, old_p1, p1, old_s3, s2, old_s1, old_N, s5, old_p2, p2, s6)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 4, piece // 4, n // 4, 4, 16)
                r0, r1, r2, r3 = fold_1a(t0 + at, p1, x_tile[at:at + piece], p2, piece)
                s = s + r0
                s2 = s2 + r1
                s1 = s1 + r2
                s6 = s6 + r3
            r0 = fold_1b(x_tile, p2, n, f4)
            if not sound(r0):
                r0 = fold_1b(x_tile, p2, n, f8)
            s5 = s5 + f8(r0)
        p1, s, s2, s1, p2, s5, s6, out0[b], p3, s4, out1[b] = finish(N, p1, s, s3, s2, s1, p2, s5, s6, p3, s4)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, n_l, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, n_l, out0, out1)


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


def definition(x):
    """trend_slope as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = positions("l", lengths["l"]) - (lengths["l"] - 1) / 2
    t2 = np.sum(t1 * x, along("l"), keepdims=True) / np.sum(t1 * t1, along("l"), keepdims=True)
    return (taken_out(t2, '', lengths), taken_out(np.sum((x - np.sum(x, along("l"), keepdims=True) / lengths["l"] - t2 * t1) ** 2, along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"trend_slope, l = {length}", arrays, scalars))
    return 0 if passed_over(trend_slope, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
