"""dfa_transition: one pass over l, 20 words of state per row, ordered merge.

An automaton of four states, one of which is 1 and the others 0: the last state, and how often it was 3.

The operator
    dfa_transition(x[l]):
        t1 = 0 + where(x == 1, 1, 0)
        t2 = 0 + where(x == 2, 1, 0)
        t3 = 0 + where(x == 0, 1, 0)
        return scan(lambda p0, p1, p2, p3: (0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0 + t3 * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), l, (1, 0, 0, 0), place=1) + 2 * scan(lambda p0, p1, p2, p3: (0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0 + t3 * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), l, (1, 0, 0, 0), place=2) + 3 * scan(lambda p0, p1, p2, p3: (0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0 + t3 * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), l, (1, 0, 0, 0), place=3), scan(lambda visits, p0, p1, p2, p3: (visits + (0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), 0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0 + t3 * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), l, (0, 1, 0, 0, 0), place=0)

One more element (a prime marks the new value)
    x1   = 1 if x[l] = 1 else 0
    x2   = 1 if x[l] = 2 else 0
    x3   = 1 if x[l] = 0 else 0
    h1'  = h1 + h7·x1 + h10·x2 + h13·x3
    h5'  = h5 + h8·x1 + h11·x2 + h14·x3
    h6'  = h6 + h9·x1 + h12·x2 + h15·x3
    h4'  = h4 + h·x1 + h2·x2 + h3·x3
    h7'  = h7·x3 + h13·x1 + h16·x3
    h8'  = h8·x3 + h14·x1 + h17·x3
    h9'  = h9·x3 + h15·x1 + h18·x3
    h'   = h·x3 + h3·x1 + h19·x3
    h10' = h10·x1 + h13·x2 + h16·x2
    h11' = h11·x1 + h14·x2 + h17·x2
    h12' = h12·x1 + h15·x2 + h18·x2
    h2'  = h2·x1 + h3·x2 + h19·x2
    h13' = h7·x1 + h10·x2 + h13·x3
    h14' = h8·x1 + h11·x2 + h14·x3
    h15' = h9·x1 + h12·x2 + h15·x3
    h3'  = h·x1 + h2·x2 + h3·x3
    h16' = h7·x2 + h10·x3 + h16·x1
    h17' = h8·x2 + h11·x3 + h17·x1
    h18' = h9·x2 + h12·x3 + h18·x1
    h19' = h·x2 + h2·x3 + h19·x1

Two states a and b
    h1'  = h1_a + h1_b·h7_a + h5_b·h10_a + h6_b·h13_a + h4_b·h16_a
    h5'  = h5_a + h1_b·h8_a + h5_b·h11_a + h6_b·h14_a + h4_b·h17_a
    h6'  = h6_a + h1_b·h9_a + h5_b·h12_a + h6_b·h15_a + h4_b·h18_a
    h4'  = h4_a + h1_b·h_a + h5_b·h2_a + h6_b·h3_a + h4_b·h19_a
    h7'  = h7_b·h7_a + h8_b·h10_a + h9_b·h13_a + h_b·h16_a
    h8'  = h7_b·h8_a + h8_b·h11_a + h9_b·h14_a + h_b·h17_a
    h9'  = h7_b·h9_a + h8_b·h12_a + h9_b·h15_a + h_b·h18_a
    h'   = h7_b·h_a + h8_b·h2_a + h9_b·h3_a + h_b·h19_a
    h10' = h10_b·h7_a + h11_b·h10_a + h12_b·h13_a + h2_b·h16_a
    h11' = h10_b·h8_a + h11_b·h11_a + h12_b·h14_a + h2_b·h17_a
    h12' = h10_b·h9_a + h11_b·h12_a + h12_b·h15_a + h2_b·h18_a
    h2'  = h10_b·h_a + h11_b·h2_a + h12_b·h3_a + h2_b·h19_a
    h13' = h13_b·h7_a + h14_b·h10_a + h15_b·h13_a + h3_b·h16_a
    h14' = h13_b·h8_a + h14_b·h11_a + h15_b·h14_a + h3_b·h17_a
    h15' = h13_b·h9_a + h14_b·h12_a + h15_b·h15_a + h3_b·h18_a
    h3'  = h13_b·h_a + h14_b·h2_a + h15_b·h3_a + h3_b·h19_a
    h16' = h16_b·h7_a + h17_b·h10_a + h18_b·h13_a + h19_b·h16_a
    h17' = h16_b·h8_a + h17_b·h11_a + h18_b·h14_a + h19_b·h17_a
    h18' = h16_b·h9_a + h17_b·h12_a + h18_b·h15_a + h19_b·h18_a
    h19' = h16_b·h_a + h17_b·h2_a + h18_b·h3_a + h19_b·h19_a

Laws:
Certificate: sha256 f384a3cadc32cdb96a73774d134c0f849c73ff2b9582e3804d2a4ef76f01dfbf
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python dfa_transition_cpu.py` checks it.
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


def dfa_transition(x, *, threads=None):
    """dfa_transition in one pass over l.

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
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h4, h, h2, h3, h19, begins, x, n):
    if begins:
        i_l = 0
        t1 = f8(x[i_l]) == 0.0
        t2 = 1 if t1 else 0
        t3 = 0 + t2
        t4 = f8(x[i_l]) == 2.0
        t5 = 1 if t4 else 0
        t6 = 0 + t5
        t7 = f8(x[i_l]) == 1.0
        t8 = 1 if t7 else 0
        t9 = 0 + t8
        h4, h, h2, h3, h19 = f8(0), f8(t3), f8(t6), f8(0), f8(t9)
    for i_l in range(begins, n):
        t10 = f8(x[i_l]) == 1.0
        t11 = 1 if t10 else 0
        t12 = f8(t11) * h
        t13 = h4 + t12
        t14 = f8(x[i_l]) == 2.0
        t15 = 1 if t14 else 0
        t16 = f8(t15) * h2
        t17 = t13 + t16
        t18 = f8(x[i_l]) == 0.0
        t19 = 1 if t18 else 0
        t20 = f8(t19) * h3
        t21 = t17 + t20
        t22 = f8(t19) * h
        t23 = f8(t11) * h3
        t24 = t22 + t23
        t25 = f8(t19) * h19
        t26 = t24 + t25
        t27 = f8(t11) * h2
        t28 = f8(t15) * h3
        t29 = t27 + t28
        t30 = f8(t15) * h19
        t31 = t29 + t30
        t32 = t12 + t16
        t33 = t32 + t20
        t34 = f8(t15) * h
        t35 = f8(t19) * h2
        t36 = t34 + t35
        t37 = f8(t11) * h19
        t38 = t36 + t37
        h4, h, h2, h3, h19 = t21, t26, t31, t33, t38
    return h4, h, h2, h3, h19


@njit(**PART)
def finish(h, h2, h3, h4):
    t1 = 2.0 * h2
    t2 = h + t1
    t3 = 3.0 * h3
    t4 = t2 + t3
    out0 = f4(t4)
    out1 = f4(h4)
    return out0, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, out0, out1):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h1 = f8(0.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h4 = f8(0.0)
        h7 = f8(1.0)
        h8 = f8(0.0)
        h9 = f8(0.0)
        h = f8(0.0)
        h10 = f8(0.0)
        h11 = f8(1.0)
        h12 = f8(0.0)
        h2 = f8(0.0)
        h13 = f8(0.0)
        h14 = f8(0.0)
        h15 = f8(1.0)
        h3 = f8(0.0)
        h16 = f8(0.0)
        h17 = f8(0.0)
        h18 = f8(0.0)
        h19 = f8(1.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            h4, h, h2, h3, h19 = steps_0_of_row(h4, h, h2, h3, h19, i8(t0 == begin), x_tile, n)
        out0[b], out1[b] = finish(h, h2, h3, h4)


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
    """dfa_transition as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = 0 + np.where(x == 1, 1, 0)
    t2 = 0 + np.where(x == 2, 1, 0)
    t3 = 0 + np.where(x == 0, 1, 0)
    return (taken_out(stepped("l", lengths["l"], 1, "", (1, 0, 0, 0,), (t1, t2, t3,), lambda p0, p1, p2, p3, e1, e2, e3: (0 + e1 * p0 + e2 * p1 + e3 * p2 + 0 * p3, 0 + e3 * p0 + e3 * p1 + 0 * p2 + e1 * p3, 0 + e2 * p0 + 0 * p1 + e1 * p2 + e2 * p3, 0 + 0 * p0 + e1 * p1 + e2 * p2 + e3 * p3,)) + 2 * stepped("l", lengths["l"], 2, "", (1, 0, 0, 0,), (t1, t2, t3,), lambda p0, p1, p2, p3, e1, e2, e3: (0 + e1 * p0 + e2 * p1 + e3 * p2 + 0 * p3, 0 + e3 * p0 + e3 * p1 + 0 * p2 + e1 * p3, 0 + e2 * p0 + 0 * p1 + e1 * p2 + e2 * p3, 0 + 0 * p0 + e1 * p1 + e2 * p2 + e3 * p3,)) + 3 * stepped("l", lengths["l"], 3, "", (1, 0, 0, 0,), (t1, t2, t3,), lambda p0, p1, p2, p3, e1, e2, e3: (0 + e1 * p0 + e2 * p1 + e3 * p2 + 0 * p3, 0 + e3 * p0 + e3 * p1 + 0 * p2 + e1 * p3, 0 + e2 * p0 + 0 * p1 + e1 * p2 + e2 * p3, 0 + 0 * p0 + e1 * p1 + e2 * p2 + e3 * p3,)), '', lengths), taken_out(stepped("l", lengths["l"], 0, "", (0, 1, 0, 0, 0,), (t1, t2, t3,), lambda visits, p0, p1, p2, p3, e1, e2, e3: (visits + (0 + 0 * p0 + e1 * p1 + e2 * p2 + e3 * p3), 0 + e1 * p0 + e2 * p1 + e3 * p2 + 0 * p3, 0 + e3 * p0 + e3 * p1 + 0 * p2 + e1 * p3, 0 + e2 * p0 + 0 * p1 + e1 * p2 + e2 * p3, 0 + 0 * p0 + e1 * p1 + e2 * p2 + e3 * p3,)), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'bits'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"dfa_transition, l = {length}", arrays, scalars))
    return 0 if passed_over(dfa_transition, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
