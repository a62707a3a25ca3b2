"""value_at_argmax: one pass over l, 4 words of state per row, commutative merge.

v at the first maximum of x, v at the first minimum, and their difference over max x − min x.

The operator
    value_at_argmax(x[l], v[l]):
        d1 = sum(where(index(l) == argmax(x, l), v, 0), l)
        d2 = sum(where(index(l) == argmin(x, l), v, 0), l)
        return d1, d2, (d1 - d2) / (max(x, l) - min(x, l))

One more element (a prime marks the new value)
    i'  = l if x[l] > x[i] else i
    s'  = (s if i = i' else 0) + (v[l] if l = i' else 0)
    j'  = l if x[l] < x[j] else j
    s2' = (s2 if j = j' else 0) + (v[l] if l = j' else 0)

Two states a and b
    i'  = i_b if x[i_b] > x[i_a] else i_a
    s'  = (s_a if i_a = i' else 0) + (s_b if i_b = i' else 0)
    j'  = j_b if x[j_b] < x[j_a] else j_a
    s2' = (s2_a if j_a = j' else 0) + (s2_b if j_b = j' else 0)

Dangers
    m − n divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant, reset
Certificate: sha256 d6e39792086dfcc9ecd5424a41dd3eb984f3f579aea7f4dbd9ed0dc66186c06d
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python value_at_argmax_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "v": "l"}
DTYPES = {"x": "float32", "v": "float32"}
TILE, BLOCK = 1024, 1


def value_at_argmax(x, v, *, threads=None):
    """value_at_argmax in one pass over l.

    Takes float32 x[…, l], float32 v[…, l]; gives float32 […], float32 […], float32 […].  Leading dimensions are
    batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "v": v}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    out2 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["v"], INPUTS["v"], "l", batch),
        lengths["l"], out0, out1, out2)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""), given_back(out2, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


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
def best_i(i_, i_value, x, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(-inf)
        for i in range(nb):
            i_l = i0 + i
            r0 = larger(r0, x[np.uint64(i_l)])
        if comes_first(f8(r0), i_value, i_):
            for i in range(nb):
                i_l = i0 + i
                if comes_first(f8(x[np.uint64(i_l)]), i_value, i_):
                    i_, i_value = (start + i_l), f8(x[np.uint64(i_l)])
    return i_, i_value


@njit(**LOOP)
def best_j(j, j_value, x, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(inf)
        for i in range(nb):
            i_l = i0 + i
            r0 = smaller(r0, x[np.uint64(i_l)])
        if comes_first(-f8(r0), -j_value, j):
            for i in range(nb):
                i_l = i0 + i
                if comes_first(-f8(x[np.uint64(i_l)]), -j_value, j):
                    j, j_value = (start + i_l), f8(x[np.uint64(i_l)])
    return j, j_value


@njit(**PART)
def rebase_1(old_i, i_, s, old_j, j, s2):
    t1 = old_i == i_
    t2 = s if t1 else f8(0)
    s = t2
    t3 = old_j == j
    t4 = s2 if t3 else f8(0)
    s2 = t4
    return s, s2


@njit(**PART)
def pick_s(start, n, i_, v):
    i_l = i_ - start
    s = 0.0
    if 0 <= i_l < n:
        s = f8(v[i_l])
    return s


@njit(**PART)
def pick_s2(start, n, j, v):
    i_l = j - start
    s2 = 0.0
    if 0 <= i_l < n:
        s2 = f8(v[i_l])
    return s2


@njit(**PART)
def finish(i_, s, j, s2, i_value, j_value, m, n_):
    t1 = i_ == i_
    t2 = 1.0 if t1 else f8(0)
    t3 = t2 != t2
    t4 = nan if t3 else s
    s = t4
    t5 = j == j
    t6 = 1.0 if t5 else f8(0)
    t7 = t6 != t6
    t8 = nan if t7 else s2
    s2 = t8
    out0 = f4(s)
    out1 = f4(s2)
    m = i_value
    n_ = j_value
    t9 = s - s2
    t10 = m - n_
    t11 = t9 / t10
    out2 = f4(t11)
    return s, s2, out0, out1, m, n_, out2


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_v, v, n_l, out0, out1, out2):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        i_ = i8(-1)
        i_value = f8(-inf)
        j = i8(-1)
        j_value = f8(inf)
        s = f8(0.0)
        s2 = f8(0.0)
        m = f8(0)
        n_ = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            v_tile = v[b_v[b], t0:t0 + n]
            old_i = i_
            old_j = j
            i_, i_value = best_i(i_, i_value, x_tile, t0, n)
            j, j_value = best_j(j, j_value, x_tile, t0, n)
            if t0 > begin:
                s, s2 = rebase_1(old_i, i_, s, old_j, j, s2)
            r0 = pick_s(t0, n, i_, v_tile)
            s = s + r0
            r0 = pick_s2(t0, n, j, v_tile)
            s2 = s2 + r0
        s, s2, out0[b], out1[b], m, n_, out2[b] = finish(i_, s, j, s2, i_value, j_value, m, n_)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_v, v, n_l, out0, out1, out2):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_v, v, n_l, out0, out1, out2)


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


def definition(x, v):
    """value_at_argmax as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    v = spread(v, 'l')
    lengths = {"l": x.shape[-1]}
    d1 = np.sum(np.where(positions("l", lengths["l"]) == np.argmax(x, along("l"), keepdims=True), v, 0), along("l"), keepdims=True)
    d2 = np.sum(np.where(positions("l", lengths["l"]) == np.argmin(x, along("l"), keepdims=True), v, 0), along("l"), keepdims=True)
    return (taken_out(d1, '', lengths), taken_out(d2, '', lengths), taken_out((d1 - d2) / (np.max(x, along("l"), keepdims=True) - np.min(x, along("l"), keepdims=True)), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'v': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"value_at_argmax, l = {length}", arrays, scalars))
    return 0 if passed_over(value_at_argmax, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
