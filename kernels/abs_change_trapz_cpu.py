"""abs_change_trapz: one pass over l, 18 words of state per row, ordered merge.

Σ |x_l − x_{l−1}|, √Σ (x_l − x_{l−1})², Σ ½ (x_l + x_{l−1})(t_l − t_{l−1}), Σ max(x_l − x_{l−1}, 0).

The operator
    abs_change_trapz(x[l], t[l]):
        d1 = scan(lambda c1: x, l, 0.0, before)
        t1 = x - d1
        t2 = index(l) > 0
        return sum(abs(t1), l, where=t2), sqrt(sum(t1 ** 2, l, where=t2)), sum(0.5 * (x + d1) * (t - scan(lambda c1: t, l, 0.0, before)), l, where=t2), sum(maximum(t1, 0), l, where=t2)

One more element (a prime marks the new value)
    h1'  = x[l]
    h2'  = h2
    h3'  = h3
    h4'  = h4 + (|x[l] − h1| if l > 0 else 0)
    s2'  = s2 + (x[l]² if l > 0 else 0) + h7·(−2·x[l] if l > 0 else 0) + h7²·(1 if l > 0 else 0)
    h5'  = h5
    h6'  = h6
    h7'  = x[l]
    s3'  = s3 + (0.5·x[l]·t[l] if l > 0 else 0) + h11·(−0.5·x[l] if l > 0 else 0) + h12·(0.5·t[l] if l > 0 else 0) + h12·h11·(−0.5 if l > 0 else 0)
    h8'  = h8
    h9'  = h9
    h10' = h10
    h11' = t[l]
    h12' = x[l]
    h13' = max(h13, (x[l] if l > 0 else −∞) + h15)
    h14' = max(h14, (x[l] if l > 0 else −∞) + h16)
    h15' = max(−x[l] + h13, −x[l] + (x[l] if l > 0 else −∞) + h15)
    h16' = max(−x[l] + h14, −x[l] + (x[l] if l > 0 else −∞) + h16)

Two states a and b
    h1'  = h1_b
    h2'  = h2_a
    h3'  = h3_a
    h4'  = h4_a + (|h3_b − h1_a| if h2_b else 0) + h4_b
    s2'  = s2_a + s2_b + h5_b·h7_a + h6_b·h7_a²
    h5'  = h5_a
    h6'  = h6_a
    h7'  = h7_b
    s3'  = s3_a + s3_b + h8_b·h11_a + h9_b·h12_a + h10_b·h12_a·h11_a
    h8'  = h8_a
    h9'  = h9_a
    h10' = h10_a
    h11' = h11_b
    h12' = h12_b
    h13' = max(h13_b + h13_a, h14_b + h15_a)
    h14' = max(h13_b + h14_a, h14_b + h16_a)
    h15' = max(h15_b + h13_a, h16_b + h15_a)
    h16' = max(h15_b + h14_a, h16_b + h16_a)

Dangers
    s = 0 if N_l = 0 else (|h3 − 0| if h2 else 0) + h4 is a difference of sums: it cancels where they are large against it

Laws:
Certificate: sha256 c2af22c141fc76286fe28fd33e63813e0f448729a2d4bb224cab8abe4f633d74
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python abs_change_trapz_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "t": "l"}
DTYPES = {"x": "float32", "t": "float32"}
TILE, BLOCK = 8192, 1


def abs_change_trapz(x, t, *, threads=None):
    """abs_change_trapz in one pass over l.

    Takes float32 x[…, l], float32 t[…, l]; gives float32 […], float32 […], float32 […], float32 […].  Leading
    dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "t": t}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    out2 = written(lengths, batch, "", f4)
    out3 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["t"], INPUTS["t"], "l", batch),
        lengths["l"], out0, out1, out2, out3)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""), given_back(out2, batch, "", ""), given_back(out3, batch, "", ""))


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
def steps_0_of_row(h1, h2, h3, h4, s2, h7, s3, h11, h12, h13, h14, h15, h16, begins, x, start, t, n):
    if begins:
        i_l = 0
        t1 = (start + i_l) > 0
        t2 = f8(x[i_l]) * f8(x[i_l])
        t3 = t2 if t1 else f8(0)
        t4 = 0.5 * f8(x[i_l])
        t5 = t4 * f8(t[i_l])
        t6 = t5 if t1 else f8(0)
        t7 = f8(x[i_l]) if t1 else (-inf)
        t8 = -f8(x[i_l])
        t9 = t8 + t7
        h1, h2, h3, h4, s2, h7, s3, h11, h12, h13, h14, h15, h16 = f8(x[i_l]), f8(t1), f8(x[i_l]), f8(0), t3, f8(x[i_l]), t6, f8(t[i_l]), f8(x[i_l]), f8(0), t7, t8, t9
    for i_l in range(begins, n):
        t10 = (start + i_l) > 0
        t11 = f8(x[i_l]) - h1
        t12 = abs(t11)
        t13 = t12 if t10 else f8(0)
        t14 = h4 + t13
        t15 = f8(x[i_l]) * f8(x[i_l])
        t16 = t15 if t10 else f8(0)
        t17 = s2 + t16
        t18 = -f8(x[i_l])
        t19 = 2.0 * t18
        t20 = t19 if t10 else f8(0)
        t21 = t20 * h7
        t22 = t17 + t21
        t23 = 1 if t10 else 0
        t24 = h7 * h7
        t25 = f8(t23) * t24
        t26 = t22 + t25
        t27 = 0.5 * f8(x[i_l])
        t28 = t27 * f8(t[i_l])
        t29 = t28 if t10 else f8(0)
        t30 = s3 + t29
        t31 = (-0.5) * f8(x[i_l])
        t32 = t31 if t10 else f8(0)
        t33 = t32 * h11
        t34 = t30 + t33
        t35 = 0.5 * f8(t[i_l])
        t36 = t35 if t10 else f8(0)
        t37 = t36 * h12
        t38 = t34 + t37
        t39 = (-0.5) if t10 else f8(0)
        t40 = h12 * h11
        t41 = t39 * t40
        t42 = t38 + t41
        t43 = f8(x[i_l]) if t10 else (-inf)
        t44 = t43 + h15
        t45 = larger(h13, t44)
        t46 = t43 + h16
        t47 = larger(h14, t46)
        t48 = t18 + h13
        t49 = t18 + t43
        t50 = t49 + h15
        t51 = larger(t48, t50)
        t52 = t18 + h14
        t53 = t49 + h16
        t54 = larger(t52, t53)
        h1, h4, s2, h7, s3, h11, h12, h13, h14, h15, h16 = f8(x[i_l]), t14, t26, f8(x[i_l]), t42, f8(t[i_l]), f8(x[i_l]), t45, t47, t51, t54
    return h1, h2, h3, h4, s2, h7, s3, h11, h12, h13, h14, h15, h16


@njit(**PART)
def finish(n_l, h2, h3, h4, s, s2, s3, h13, h14, s4):
    t1 = n_l == 0
    t2 = h3 - 0.0
    t3 = abs(t2)
    t4 = t3 if (h2 != 0) else f8(0)
    t5 = t4 + h4
    t6 = f8(0) if t1 else t5
    s = t6
    out0 = f4(s)
    t7 = np.sqrt(s2)
    out1 = f4(t7)
    out2 = f4(s3)
    t8 = larger(h13, h14)
    s4 = t8
    out3 = f4(s4)
    return s, out0, out1, out2, s4, out3


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_t, t, n_l, out0, out1, out2, out3):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h1 = f8(0.0)
        h2 = f8(0.0)
        h3 = f8(0.0)
        h4 = f8(0.0)
        s2 = f8(0.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h7 = f8(0.0)
        s3 = f8(0.0)
        h8 = f8(0.0)
        h9 = f8(0.0)
        h10 = f8(0.0)
        h11 = f8(0.0)
        h12 = f8(0.0)
        h13 = f8(0.0)
        h14 = f8((-inf))
        h15 = f8((-inf))
        h16 = f8(0.0)
        s = f8(0)
        s4 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            t_tile = t[b_t[b], t0:t0 + n]
            h1, h2, h3, h4, s2, h7, s3, h11, h12, h13, h14, h15, h16 = steps_0_of_row(h1, h2, h3, h4, s2, h7, s3, h11, h12, h13, h14, h15, h16, i8(t0 == begin), x_tile, t0, t_tile, n)
        s, out0[b], out1[b], out2[b], s4, out3[b] = finish(n_l, h2, h3, h4, s, s2, s3, h13, h14, s4)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_t, t, n_l, out0, out1, out2, out3):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_t, t, n_l, out0, out1, out2, out3)


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


def definition(x, t):
    """abs_change_trapz as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    t = spread(t, 'l')
    lengths = {"l": x.shape[-1]}
    d1 = stepped("l", lengths["l"], 0, "before", (0.0,), (x,), lambda c1, e1: (e1,))
    t1 = x - d1
    t2 = positions("l", lengths["l"]) > 0
    return (taken_out(np.sum(np.where(t2, np.abs(t1), 0), along("l"), keepdims=True), '', lengths), taken_out(np.sqrt(np.sum(np.where(t2, t1 ** 2, 0), along("l"), keepdims=True)), '', lengths), taken_out(np.sum(np.where(t2, 0.5 * (x + d1) * (t - stepped("l", lengths["l"], 0, "before", (0.0,), (t,), lambda c1, e1: (e1,))), 0), along("l"), keepdims=True), '', lengths), taken_out(np.sum(np.where(t2, np.maximum(t1, 0), 0), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 't': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"abs_change_trapz, l = {length}", arrays, scalars))
    return 0 if passed_over(abs_change_trapz, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
