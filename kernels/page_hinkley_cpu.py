"""page_hinkley: one pass over l, 4 words of state per row, in order, no merge.

m_L − min_l m_l with m_l = Σ_{t≤l} (x_t − x̄_t − δ), x̄_t the mean so far: an envelope of lines in what came before.

The operator
    page_hinkley(x[l]; allowed=0.005):
        t1 = x - scan(lambda c1: c1 + x, l, 0.0, after) / (index(l) + 1) - allowed
        return sum(t1, l) - min(scan(lambda c2: c2 + t1, l, 0.0, after), l)

One more element (a prime marks the new value)
    x   = 0 + x[l] − (0 + x[l])/(l + 1) − allowed
    c1' = c1 + x[l]
    s'  = s + x[l] − (c1 + x[l])/(l + 1) − allowed
    c2' = c2 + x[l] − (c1 + x[l])/(l + 1) − allowed
    n'  = min(n, c2 + x[l] − (c1 + x[l])/(l + 1) − allowed)

Laws:
Certificate: sha256 d29e6d7d16091e5aad4d6406dead4b331c1444620d4d3f9353557d0d24115ad2
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python page_hinkley_cpu.py` checks it.
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


def page_hinkley(x, *, allowed=0.005, threads=None):
    """page_hinkley in one pass over l.

    Takes float32 x[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {"allowed": allowed}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        f8(scalars["allowed"]),
        lengths["l"], out0)
    return given_back(out0, batch, "", "")


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


smaller = _extreme("llvm.minimum")


@njit(**PART, fastmath={"contract"})
def steps_0(c1, s, c2, n_, begins, x, start, allowed, n):
    if begins:
        i_l = 0
        t1 = 0.0 + f8(x[i_l])
        t2 = (start + i_l) + 1
        t3 = t1 / f8(t2)
        t4 = f8(x[i_l]) - t3
        t5 = t4 - allowed
        t6 = 0.0 + t5
        t7 = smaller(inf, t6)
        c1, s, c2, n_ = t1, t6, t6, t7
    for i_l in range(begins, n):
        t8 = c1 + f8(x[i_l])
        t9 = (start + i_l) + 1
        t10 = t8 / f8(t9)
        t11 = f8(x[i_l]) - t10
        t12 = t11 - allowed
        t13 = s + t12
        t14 = c2 + t12
        t15 = smaller(n_, t14)
        c1, s, c2, n_ = t8, t13, t14, t15
    return c1, s, c2, n_


@njit(**PART)
def finish(s, n_):
    t1 = s - n_
    out0 = f4(t1)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, allowed, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        c1 = f8(0.0)
        s = f8(0.0)
        c2 = f8(0.0)
        n_ = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            c1, s, c2, n_ = steps_0(c1, s, c2, n_, i8(t0 == begin), x_tile, t0, allowed, n)
        out0[b] = finish(s, n_)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, allowed, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, allowed, n_l, out0)


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


def definition(x, allowed):
    """page_hinkley as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = x - stepped("l", lengths["l"], 0, "after", (0.0,), (x,), lambda c1, e1: (c1 + e1,)) / (positions("l", lengths["l"]) + 1) - allowed
    return taken_out(np.sum(t1, along("l"), keepdims=True) - np.min(stepped("l", lengths["l"], 0, "after", (0.0,), (t1,), lambda c2, e1: (c2 + e1,)), along("l"), keepdims=True), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {'allowed': 0.005}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"page_hinkley, l = {length}", arrays, scalars))
    return 0 if passed_over(page_hinkley, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
