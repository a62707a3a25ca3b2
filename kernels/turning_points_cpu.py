"""turning_points: one pass over l, 14 words of state per row, ordered merge.

How often the sign of x_l − x_{l−1} changes.

The operator
    turning_points(x[l]):
        d1 = scan(lambda c1: x, l, 0.0, before)
        t1 = where(x > d1, 1, 0)
        t2 = where(x == d1, 1, 0)
        t3 = where(x < d1, 1, 0)
        return scan(lambda turns, rising, level, falling: (where(index(l) > 1, turns + 1 - (t1 * rising + t2 * level + t3 * falling), turns), t1, t2, t3), l, (0.0, 0.0, 0.0, 0.0), place=0)

One more element (a prime marks the new value)
    h1'  = x[l]
    h2'  = h2
    h3'  = h3
    h4'  = h4
    h5'  = h5 + (1 if l > 1 else 0) + (−h9·(1 if x[l] > h1 else 0) if l > 1 else 0) + (−h11·(1 if x[l] = h1 else 0) if l > 1 else 0) + (−h13·(1 if x[l] < h1 else 0) if l > 1 else 0)
    h6'  = h6 + (−h10·(1 if x[l] > h1 else 0) if l > 1 else 0)
    h7'  = h7 + (−h12·(1 if x[l] = h1 else 0) if l > 1 else 0)
    h8'  = h8 + (−h14·(1 if x[l] < h1 else 0) if l > 1 else 0)
    h9'  = 1 if x[l] > h1 else 0
    h10' = 0
    h11' = 1 if x[l] = h1 else 0
    h12' = 0
    h13' = 1 if x[l] < h1 else 0
    h14' = 0

Two states a and b
    h1'  = h1_b
    h2'  = h2_a
    h3'  = h3_a
    h4'  = h4_a
    h5'  = h5_a + h2_b + h5_b + (h6_b if h4_b > h1_a else 0) + (h7_b if h4_b = h1_a else 0) + (h8_b if h4_b < h1_a else 0) + (−h9_a·(1 if h4_b > h1_a else 0) if h3_b else 0) + (−h11_a·(1 if h4_b = h1_a else 0) if h3_b else 0) + (−h13_a·(1 if h4_b < h1_a else 0) if h3_b else 0)
    h6'  = h6_a + (−h10_a·(1 if h4_b > h1_a else 0) if h3_b else 0)
    h7'  = h7_a + (−h12_a·(1 if h4_b = h1_a else 0) if h3_b else 0)
    h8'  = h8_a + (−h14_a·(1 if h4_b < h1_a else 0) if h3_b else 0)
    h9'  = h9_b + (h10_b if h4_b > h1_a else 0)
    h10' = 0
    h11' = h11_b + (h12_b if h4_b = h1_a else 0)
    h12' = 0
    h13' = h13_b + (h14_b if h4_b < h1_a else 0)
    h14' = 0

Laws:
Certificate: sha256 d32b0e8c46af953772924f7774acdfa1868795850dd55cf8b6e9b844380d17af
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python turning_points_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l"}
DTYPES = {"x": "float32"}
TILE, BLOCK = 8192, 1


def turning_points(x, *, threads=None):
    """turning_points in one pass over l.

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
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h1, h2, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14, begins, x, start, n):
    if begins:
        i_l = 0
        t1 = (start + i_l) > 1
        t2 = 1 if t1 else 0
        h1, h2, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14 = f8(x[i_l]), f8(t2), f8(x[i_l]), f8(0), f8(0), f8(0), f8(0), f8(0), f8(1), f8(0), f8(1), f8(0), f8(1)
    for i_l in range(begins, n):
        t3 = (start + i_l) > 1
        t4 = 1 if t3 else 0
        t5 = f8(x[i_l]) > h1
        t6 = 0 if t5 else 0
        t7 = t4 + t6
        t8 = f8(x[i_l]) == h1
        t9 = 0 if t8 else 0
        t10 = t7 + t9
        t11 = f8(x[i_l]) < h1
        t12 = 0 if t11 else 0
        t13 = t10 + t12
        t14 = h5 + f8(t13)
        t15 = 1 if t5 else 0
        t16 = -t15
        t17 = f8(t16) * h9
        t18 = t17 if t3 else f8(0)
        t19 = t14 + t18
        t20 = 1 if t8 else 0
        t21 = -t20
        t22 = f8(t21) * h11
        t23 = t22 if t3 else f8(0)
        t24 = t19 + t23
        t25 = 1 if t11 else 0
        t26 = -t25
        t27 = f8(t26) * h13
        t28 = t27 if t3 else f8(0)
        t29 = t24 + t28
        t30 = f8(t16) * h10
        t31 = t30 if t3 else f8(0)
        t32 = h6 + t31
        t33 = f8(t21) * h12
        t34 = t33 if t3 else f8(0)
        t35 = h7 + t34
        t36 = f8(t26) * h14
        t37 = t36 if t3 else f8(0)
        t38 = h8 + t37
        h1, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14 = f8(x[i_l]), t29, t32, t35, t38, f8(t15), f8(0), f8(t20), f8(0), f8(t25), f8(0)
    return h1, h2, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14


@njit(**PART)
def finish(n_l, h2, h5, h4, h6, h7, h8, h):
    t1 = n_l == 0
    t2 = h2 + h5
    t3 = h4 > 0.0
    t4 = h6 if t3 else f8(0)
    t5 = t2 + t4
    t6 = h4 == 0.0
    t7 = h7 if t6 else f8(0)
    t8 = t5 + t7
    t9 = h4 < 0.0
    t10 = h8 if t9 else f8(0)
    t11 = t8 + t10
    t12 = f8(0) if t1 else t11
    h = t12
    out0 = f4(h)
    return h, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h1 = f8(0.0)
        h2 = f8(0.0)
        h3 = f8(0.0)
        h4 = f8(0.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h7 = f8(0.0)
        h8 = f8(0.0)
        h9 = f8(0.0)
        h10 = f8(1.0)
        h11 = f8(0.0)
        h12 = f8(1.0)
        h13 = f8(0.0)
        h14 = f8(1.0)
        h = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            h1, h2, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14 = steps_0_of_row(h1, h2, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14, i8(t0 == begin), x_tile, t0, n)
        h, out0[b] = finish(n_l, h2, h5, h4, h6, h7, h8, h)


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


def definition(x):
    """turning_points as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    d1 = stepped("l", lengths["l"], 0, "before", (0.0,), (x,), lambda c1, e1: (e1,))
    t1 = np.where(x > d1, 1, 0)
    t2 = np.where(x == d1, 1, 0)
    t3 = np.where(x < d1, 1, 0)
    return taken_out(stepped("l", lengths["l"], 0, "", (0.0, 0.0, 0.0, 0.0,), (positions("l", lengths["l"]) > 1, t1, t2, t3,), lambda turns, rising, level, falling, e1, e2, e3, e4: (np.where(e1, turns + 1 - (e2 * rising + e3 * level + e4 * falling), turns), e2, e3, e4,)), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"turning_points, l = {length}", arrays, scalars))
    return 0 if passed_over(turning_points, definition, cases, 0.02) else 1


if __name__ == "__main__":
    sys.exit(main())
