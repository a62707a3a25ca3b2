"""runs_and_streaks: one pass over l, 8 words of state per row, ordered merge.

The longest run of elements above a level, and the number of runs.

The operator
    runs_and_streaks(x[l]; level=0.3):
        t1 = x > level
        t2 = where(t1, 1, 0)
        return max(scan(lambda c: where(t1, c + 1, 0), l, 0.0, after), l), 1 + sum(abs(t2 - scan(lambda c1: t2, l, 0.0, before)), l, where=index(l) > 0)

One more element (a prime marks the new value)
    x1  = 1 if x[l] > level else −∞
    x2  = −∞ if x[l] > level else 0
    x3  = 1 if x[l] > level else 0
    h1' = max(h1, x1 + s1)
    h2' = max(max(h2, x1 + h3), x2)
    s1' = s1 + x1
    h3' = max(x1 + h3, x2)
    h4' = x3
    h5' = h5
    h6' = h6
    h7' = h7 + (|x3 − h4| if l > 0 else 0)

Two states a and b
    h1' = max(h1_a, h1_b + s1_a)
    h2' = max(max(h2_a, h1_b + h3_a), h2_b)
    s1' = s1_a + s1_b
    h3' = max(s1_b + h3_a, h3_b)
    h4' = h4_b
    h5' = h5_a
    h6' = h6_a
    h7' = h7_a + (|h6_b − h4_a| if h5_b else 0) + h7_b

Dangers
    s = 0 if N_l = 0 else (|h6 − 0| if h5 else 0) + h7 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 16d2c646094a7eca7ae212cfdfc5bbf101068b242575a9e2d5f5cf878e8a6689
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python runs_and_streaks_cpu.py` checks it.
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
TILE, BLOCK = 8192, 1


def runs_and_streaks(x, *, level=0.3, threads=None):
    """runs_and_streaks in one pass over l.

    Takes float32 x[…, l]; gives float32 […], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {"level": level}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        f8(scalars["level"]),
        lengths["l"], out0, out1)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


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


@njit(**PART, fastmath={"contract"})
def steps_0(h1, h2, s1, h3, h4, h5, h6, h7, begins, x, level, start, n):
    if begins:
        i_l = 0
        t1 = f8(x[i_l]) > level
        t2 = f8(1) if t1 else (-inf)
        t3 = (-inf) if t1 else f8(0)
        t4 = 1 if t1 else 0
        t5 = (start + i_l) > 0
        h1, h2, s1, h3, h4, h5, h6, h7 = t2, t3, t2, t3, f8(t4), f8(t5), f8(t4), f8(0)
    for i_l in range(begins, n):
        t6 = f8(x[i_l]) > level
        t7 = f8(1) if t6 else (-inf)
        t8 = t7 + s1
        t9 = larger(h1, t8)
        t10 = t7 + h3
        t11 = larger(h2, t10)
        t12 = (-inf) if t6 else f8(0)
        t13 = larger(t11, t12)
        t14 = s1 + t7
        t15 = larger(t10, t12)
        t16 = 1 if t6 else 0
        t17 = (start + i_l) > 0
        t18 = f8(t16) - h4
        t19 = abs(t18)
        t20 = t19 if t17 else f8(0)
        t21 = h7 + t20
        h1, h2, s1, h3, h4, h7 = t9, t13, t14, t15, f8(t16), t21
    return h1, h2, s1, h3, h4, h5, h6, h7


@njit(**PART)
def finish(h1, h2, m, n_l, h5, h6, h7, s):
    t1 = larger(h1, h2)
    m = t1
    out0 = f4(m)
    t2 = n_l == 0
    t3 = h6 - 0.0
    t4 = abs(t3)
    t5 = t4 if (h5 != 0) else f8(0)
    t6 = t5 + h7
    t7 = f8(0) if t2 else t6
    s = t7
    t8 = 1.0 + s
    out1 = f4(t8)
    return m, out0, s, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, level, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h1 = f8((-inf))
        h2 = f8((-inf))
        s1 = f8(0.0)
        h3 = f8((-inf))
        h4 = f8(0.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h7 = f8(0.0)
        m = f8(0)
        s = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            h1, h2, s1, h3, h4, h5, h6, h7 = steps_0(h1, h2, s1, h3, h4, h5, h6, h7, i8(t0 == begin), x_tile, level, t0, n)
        m, out0[b], s, out1[b] = finish(h1, h2, m, n_l, h5, h6, h7, s)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, level, n_l, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, level, n_l, out0, out1)


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


def definition(x, level):
    """runs_and_streaks as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x > level
    t2 = np.where(t1, 1, 0)
    return (taken_out(np.max(stepped("l", lengths["l"], 0, "after", (0.0,), (t1,), lambda c, e1: (np.where(e1, c + 1, 0),)), along("l"), keepdims=True), '', lengths), taken_out(1 + np.sum(np.where(positions("l", lengths["l"]) > 0, np.abs(t2 - stepped("l", lengths["l"], 0, "before", (0.0,), (t2,), lambda c1, e1: (e1,))), 0), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {'level': 0.3}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"runs_and_streaks, l = {length}", arrays, scalars))
    return 0 if passed_over(runs_and_streaks, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
