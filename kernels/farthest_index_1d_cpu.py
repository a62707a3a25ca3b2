"""farthest_index_1d: one pass over l, 5 words of state per row, commutative merge.

i = argmax |x_l − μ| and x_i.

The operator
    farthest_index_1d(x[l]):
        d1 = argmax(abs(x - sum(x, l) / size(l)), l)
        return d1, sum(where(index(l) == d1, x, 0), l)

One more element (a prime marks the new value)
    s'  = s + x[l]
    i1' = l if x[l] > x[i1] else i1
    j1' = l if x[l] < x[j1] else j1
    s1' = (s1 if i1 = i1' else 0) + (x[l] if l = i1' else 0)
    s3' = (s3 if j1 = j1' else 0) + (x[l] if l = j1' else 0)

Two states a and b
    s'  = s_a + s_b
    i1' = i1_b if x[i1_b] > x[i1_a] else i1_a
    j1' = j1_b if x[j1_b] < x[j1_a] else j1_a
    s1' = (s1_a if i1_a = i1' else 0) + (s1_b if i1_b = i1' else 0)
    s3' = (s3_a if j1_a = j1' else 0) + (s3_b if j1_b = j1' else 0)

Dangers
    i is found among elements without their pivots: where these are not finite, NumPy's is the position of the first NaN
    s2 = s1 if i1_value − p1 > −j1_value + p1 else s3 if −j1_value + p1 > i1_value − p1 else s1 if i1 ≤ j1 else s3 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, difference, sum_pulls_invariant,
sum_of_invariant, reset, abs_is_maximum, max_shifts, argmax_ignores_shift, argmax_of_maximum
Certificate: sha256 78e569f259dd37c9113623c8dc0f276eea4da2c51f5df6d7dd7c85ffb4f94b07
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python farthest_index_1d_cpu.py` checks it.
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


def farthest_index_1d(x, *, threads=None):
    """farthest_index_1d in one pass over l.

    Takes float32 x[…, l]; gives int64 […], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", i8)
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
smaller = _extreme("llvm.minimum")


@njit(**PART)
def minus(a, b):
    """a − b, for sums whose order is free: differences are taken first."""
    return a - b


@njit(**PART)
def middle(x):
    """A number near the first elements of an array."""
    total = 0.0
    first = x.size if x.size < 64 else 64
    for place in range(first):
        total += f8(x[place])
    near = f4(total / first)
    return anchored(near)


def _beats(builder, value, best):
    """Whether a value beats another, and whether it equals that: NaN beats numbers, and equals NaN."""
    nan, other = builder.fcmp_unordered("uno", value, value), builder.fcmp_unordered("uno", best, best)
    beats = builder.or_(builder.fcmp_ordered(">", value, best), builder.and_(nan, builder.not_(other)))
    return beats, builder.or_(builder.fcmp_ordered("==", value, best), builder.and_(nan, other))


@intrinsic
def comes_first(context, value, best, at):
    """Whether a value beats one found earlier: NaN beats numbers, equals keep their order, at < 0 is an empty place."""
    def emit(context, builder, signature, args):
        beats, _ = _beats(builder, *args[:2])
        return builder.or_(beats, builder.icmp_signed("<", args[2], args[2].type(0)))
    return types.boolean(value, value, types.int64), emit


@njit(**LOOP)
def fold_0(x, n, real):
    wide_vectors()
    s = real(0.0)
    c0 = middle(x)
    for i_l in range(n):
        s = s + minus(real(x[i_l]), c0)
    s = f8(s) + f8(n) * f8(c0)
    return s


@njit(**LOOP)
def best_i1(i1, i1_value, x, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(-inf)
        for i in range(nb):
            i_l = i0 + i
            r0 = larger(r0, x[np.uint64(i_l)])
        if comes_first(f8(r0), i1_value, i1):
            for i in range(nb):
                i_l = i0 + i
                if comes_first(f8(x[np.uint64(i_l)]), i1_value, i1):
                    i1, i1_value = (start + i_l), f8(x[np.uint64(i_l)])
    return i1, i1_value


@njit(**LOOP)
def best_j1(j1, j1_value, x, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(inf)
        for i in range(nb):
            i_l = i0 + i
            r0 = smaller(r0, x[np.uint64(i_l)])
        if comes_first(-f8(r0), -j1_value, j1):
            for i in range(nb):
                i_l = i0 + i
                if comes_first(-f8(x[np.uint64(i_l)]), -j1_value, j1):
                    j1, j1_value = (start + i_l), f8(x[np.uint64(i_l)])
    return j1, j1_value


@njit(**PART)
def rebase_1(old_i1, i1, s1, old_j1, j1, s3):
    t1 = old_i1 == i1
    t2 = s1 if t1 else f8(0)
    s1 = t2
    t3 = old_j1 == j1
    t4 = s3 if t3 else f8(0)
    s3 = t4
    return s1, s3


@njit(**PART)
def pick_s1(start, n, i1, x):
    i_l = i1 - start
    s1 = 0.0
    if 0 <= i_l < n:
        s1 = f8(x[i_l])
    return s1


@njit(**PART)
def pick_s3(start, n, j1, x):
    i_l = j1 - start
    s3 = 0.0
    if 0 <= i_l < n:
        s3 = f8(x[i_l])
    return s3


@njit(**PART)
def finish(i1, s1, j1, s3, s, n_l, i1_value, p1, j1_value, i_, s2):
    t1 = i1 == i1
    t2 = 1.0 if t1 else f8(0)
    t3 = t2 != t2
    t4 = nan if t3 else s1
    s1 = t4
    t5 = j1 == j1
    t6 = 1.0 if t5 else f8(0)
    t7 = t6 != t6
    t8 = nan if t7 else s3
    s3 = t8
    t9 = s / f8(n_l)
    p1 = t9
    t10 = i1_value - p1
    t11 = -j1_value
    t12 = t11 + p1
    t13 = t10 > t12
    t14 = t12 > t10
    t15 = min(i1, j1)
    t16 = j1 if t14 else t15
    t17 = i1 if t13 else t16
    i_ = t17
    out0 = i_
    t18 = i1 <= j1
    t19 = s1 if t18 else s3
    t20 = s3 if t14 else t19
    t21 = s1 if t13 else t20
    s2 = t21
    out1 = f4(s2)
    return s1, s3, p1, i_, out0, s2, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        i1 = i8(-1)
        i1_value = f8(-inf)
        j1 = i8(-1)
        j1_value = f8(inf)
        s1 = f8(0.0)
        s3 = f8(0.0)
        p1 = f8(0)
        i_ = i8(0)
        s2 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            old_i1 = i1
            old_j1 = j1
            r0 = fold_0(x_tile, n, f4)
            if not finite(r0):
                r0 = fold_0(x_tile, n, f8)
            s = s + f8(r0)
            i1, i1_value = best_i1(i1, i1_value, x_tile, t0, n)
            j1, j1_value = best_j1(j1, j1_value, x_tile, t0, n)
            if t0 > begin:
                s1, s3 = rebase_1(old_i1, i1, s1, old_j1, j1, s3)
            r0 = pick_s1(t0, n, i1, x_tile)
            s1 = s1 + r0
            r0 = pick_s3(t0, n, j1, x_tile)
            s3 = s3 + r0
        s1, s3, p1, i_, out0[b], s2, out1[b] = finish(i1, s1, j1, s3, s, n_l, i1_value, p1, j1_value, i_, s2)


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
    """farthest_index_1d as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    d1 = np.argmax(np.abs(x - np.sum(x, along("l"), keepdims=True) / lengths["l"]), along("l"), keepdims=True)
    return (taken_out(d1, '', lengths), taken_out(np.sum(np.where(positions("l", lengths["l"]) == d1, x, 0), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"farthest_index_1d, l = {length}", arrays, scalars))
    return 0 if passed_over(farthest_index_1d, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
