"""kalman_scalar: one pass over l, 7 words of state per row, ordered merge.

m and p of a state that decays by 0.9 and drifts, seen with noise: predicted, then weighed against y_l.

The operator
    kalman_scalar(y[l]; drift=0.2, noise=0.5):
        return scan(lambda m, p: ((noise * (0.9 * m) + (0.81 * p + drift) * y) / (0.81 * p + drift + noise), noise * (0.81 * p + drift) / (0.81 * p + drift + noise)), l, (0.0, 1.0), place=0), scan(lambda p: noise * (0.81 * p + drift) / (0.81 * p + drift + noise), l, 1.0)

One more element (a prime marks the new value)
    q1' = 0.9·noise·q1
    h1' = 0.9·noise·h1 + 0.81·h4·y[l] + drift·h6·y[l]
    h3' = 0.9·noise·h3 + 0.81·h5·y[l] + drift·h7·y[l]
    h4' = 0.81·noise·h4 + noise·drift·h6
    h5' = 0.81·noise·h5 + noise·drift·h7
    h6' = 0.81·h4 + h6·(drift + noise)
    h7' = 0.81·h5 + h7·(drift + noise)

Two states a and b
    q1' = q1_a·q1_b
    h1' = q1_b·h1_a + h1_b·h4_a + h3_b·h6_a
    h3' = q1_b·h3_a + h1_b·h5_a + h3_b·h7_a
    h4' = h4_b·h4_a + h5_b·h6_a
    h5' = h4_b·h5_a + h5_b·h7_a
    h6' = h6_b·h4_a + h7_b·h6_a
    h7' = h6_b·h5_a + h7_b·h7_a

Dangers
    h6 + h7 divides and may be 0: the result is then what IEEE division gives

Laws:
Certificate: sha256 badcda5ae2db53e7fe0c9cccb466839f2a079a1fc78f32391aa0b75692346849
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python kalman_scalar_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"y": "l"}
DTYPES = {"y": "float32"}
TILE, BLOCK = 8192, 1


def kalman_scalar(y, *, drift=0.2, noise=0.5, threads=None):
    """kalman_scalar in one pass over l.

    Takes float32 y[…, l]; gives float32 […], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"y": y}, {"drift": drift, "noise": noise}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["y"], INPUTS["y"], "l", batch),
        f8(scalars["drift"]),
        f8(scalars["noise"]),
        lengths["l"], out0, out1)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h1, h3, h4, h5, h6, h7, begins, y, drift, noise, n):
    t3 = 0.81 * noise
    t4 = noise * drift
    t5 = drift + noise
    if begins:
        i_l = 0
        t1 = 0.81 * f8(y[i_l])
        t2 = drift * f8(y[i_l])
        h1, h3, h4, h5, h6, h7 = t1, t2, t3, t4, 0.81, t5
    t6 = 0.9 * noise
    for i_l in range(begins, n):
        t7 = t6 * h1
        t8 = 0.81 * f8(y[i_l])
        t9 = t8 * h4
        t10 = t7 + t9
        t11 = drift * f8(y[i_l])
        t12 = t11 * h6
        t13 = t10 + t12
        t14 = t6 * h3
        t15 = t8 * h5
        t16 = t14 + t15
        t17 = t11 * h7
        t18 = t16 + t17
        t19 = t3 * h4
        t20 = t4 * h6
        t21 = t19 + t20
        t22 = t3 * h5
        t23 = t4 * h7
        t24 = t22 + t23
        t25 = 0.81 * h4
        t26 = t5 * h6
        t27 = t25 + t26
        t28 = 0.81 * h5
        t29 = t5 * h7
        t30 = t28 + t29
        h1, h3, h4, h5, h6, h7 = t13, t18, t21, t24, t27, t30
        size = max(max(max(max(max(abs(h1), abs(h3)), abs(h4)), abs(h5)), abs(h6)), abs(h7))
        if not 2.0**-300 <= size <= 2.0**300:
            size = max(max(max(max(max((abs(h1) if h1 - h1 == 0 else 0.0), (abs(h3) if h3 - h3 == 0 else 0.0)), (abs(h4) if h4 - h4 == 0 else 0.0)), (abs(h5) if h5 - h5 == 0 else 0.0)), (abs(h6) if h6 - h6 == 0 else 0.0)), (abs(h7) if h7 - h7 == 0 else 0.0))
            power = 2.0**-600 if size > 2.0**300 else 2.0**600 if 0.0 < size < 2.0**-300 else 1.0
            h1, h3, h4, h5, h6, h7 = h1 * power, h3 * power, h4 * power, h5 * power, h6 * power, h7 * power
    return h1, h3, h4, h5, h6, h7


@njit(**PART)
def finish(h1, h3, h6, h7, h, h4, h5, h2):
    t1 = h1 + h3
    t2 = h6 + h7
    t3 = t1 / t2
    h = t3
    out0 = f4(h)
    t4 = h4 + h5
    t5 = t4 / t2
    h2 = t5
    out1 = f4(h2)
    return h, out0, h2, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_y, y, drift, noise, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        q1 = f8(1.0)
        h1 = f8(0.0)
        h3 = f8(0.0)
        h4 = f8(1.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h7 = f8(1.0)
        h = f8(0)
        h2 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            y_tile = y[b_y[b], t0:t0 + n]
            h1, h3, h4, h5, h6, h7 = steps_0_of_row(h1, h3, h4, h5, h6, h7, i8(t0 == begin), y_tile, drift, noise, n)
        h, out0[b], h2, out1[b] = finish(h1, h3, h6, h7, h, h4, h5, h2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_y, y, drift, noise, n_l, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_y, y, drift, noise, n_l, out0, out1)


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


def definition(y, drift, noise):
    """kalman_scalar as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    y = spread(y, 'l')
    lengths = {"l": y.shape[-1]}
    return (taken_out(stepped("l", lengths["l"], 0, "", (0.0, 1.0,), (y,), lambda m, p, e1: ((noise * (0.9 * m) + (0.81 * p + drift) * e1) / (0.81 * p + drift + noise), noise * (0.81 * p + drift) / (0.81 * p + drift + noise),)), '', lengths), taken_out(stepped("l", lengths["l"], 0, "", (1.0,), (), lambda p: (noise * (0.81 * p + drift) / (0.81 * p + drift + noise),)), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'y': 'normal'}, {'drift': 0.2, 'noise': 0.5}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"kalman_scalar, l = {length}", arrays, scalars))
    return 0 if passed_over(kalman_scalar, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
