"""fp8_ptpc_quant_gemm: one pass over l, 2 words of state per row, commutative merge.

s = max |x|/448; y_o = s Σ e4m3(x_l/s) W_lo; fusion may round at the scale known so far.

The operator
    fp8_ptpc_quant_gemm(x[l], W[l, o]):
        t1 = max(abs(x), l) / 448.0
        return sum(cast(x / t1, float8_e4m3, reassociate=True) * W, l) * t1

One more element (a prime marks the new value)
    m'  = max(m, |x[l]|)
    p1' = m'/448
    s'  = p1·s/p1' + W[l,o]·float8_e4m3(x[l]/p1')

Two states a and b
    m'   = max(m_a, m_b)
    p1_a = m_a/448
    p1_b = m_b/448
    p1'  = m'/448
    s'   = p1_a·s_a/p1' + p1_b·s_b/p1'

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant, recentre_ratio,
rounding_moves_ratio
Certificate: sha256 3aca141828f754f802ba253413c09f7676a0525f9066d61939027e614947f179
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba (and SciPy, where Numba finds BLAS for np.dot).  `python fp8_ptpc_quant_gemm_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
import time
from contextlib import nullcontext
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "W": "l o"}
DTYPES = {"x": "float32", "W": "float32"}
TILE, BLOCK = 1024, 1


def fp8_ptpc_quant_gemm(x, W, *, threads=None):
    """fp8_ptpc_quant_gemm in one pass over l.

    Takes float32 x[…, l], float32 W[…, l, o]; gives float32 […, o].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "W": W}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "o", f4)
    items = prod(batch)
    with one_blas_thread():
        kernel(
            threads or get_num_threads(), items, TILE, BLOCK,
            *laid_out(arrays["x"], INPUTS["x"], "l", batch),
            *laid_out(arrays["W"], INPUTS["W"], "l o", batch),
            lengths["l"], lengths["o"], out0)
    return given_back(out0, batch, "o", "o")


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@intrinsic
def touch(context, array, place):
    """Ask the second cache for what lies `place` elements behind the start of an array, be it outside: this never fails."""
    def emit(context, builder, signature, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number]))
        builder.call(fetch, [builder.bitcast(start, byte), number(0), number(2), number(1)])
        return context.get_dummy_value()
    return types.none(array, place), emit


@njit(**PART)
def ahead(tile, distance):
    """Fetch what lies `distance` elements behind a tile, while something else is computed."""
    for place in range(0, tile.size, 64 // tile.itemsize):
        touch(tile, distance + place)


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
def rounded(x, mantissa, smallest, largest, beyond):
    """The nearest float with so many mantissa bits, ties to even; `beyond` is what too large ones become."""
    if not np.isfinite(x):
        return x if x != x else np.copysign(beyond, x)
    exponent = max(math.frexp(x)[1] - 1, smallest) - mantissa
    near = math.ldexp(np.rint(math.ldexp(x, -exponent)), exponent)
    return np.copysign(beyond, x) if abs(near) > largest else near


@njit(**PART)
def add(into, product):
    """into += product."""
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            into[i, j] += product[i, j]


@njit(**LOOP)
def fold_0(x, n):
    wide_vectors()
    m = f4(-inf)
    for i_l in range(n):
        t1 = abs(x[i_l])
        m = larger(m, t1)
    return m


@njit(**PART)
def value_1(m):
    t1 = m / 448.0
    p1 = t1
    return p1


@njit(**PART)
def rebase_1(s, old_p1, p1, n_o):
    t1 = 1.0 if old_p1 == p1 else old_p1 / p1
    for i_o in range(n_o):
        t2 = f4(0.0) if s[i_o] == f4(0.0) else f4(t1) * s[i_o]
        s[i_o] = t2


@njit(**LOOP)
def fold_1(x, p1, P1, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0 if p1 == 0.0 else f8(x[i_l]) / p1
        t2 = rounded(t1, 3, -6, 448.0, 448.0)
        P1[i_l] = f4(t2)


@njit(**PART)
def finish(m):
    t1 = m / 448.0
    p1 = t1
    return p1


@njit(**PART)
def finish_b(s, p1, n_o, out0, m):
    t1 = p1 / p1
    t2 = t1 * 1.0
    t3 = t2 != t2
    for i_o in range(n_o):
        t4 = f4(nan) if t3 else s[i_o]
        s[i_o] = t4
    t5 = m / 448.0
    for i_o in range(n_o):
        t6 = s[i_o] * f4(t5)
        out0[i_o] = t6


@njit(**PART)
def empty_state(s):
    for at0 in range(s.shape[0]):
        s[at0] = f4(0.0)


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_W, W, n_l, n_o, out0):
    wide_vectors()
    s = np.empty((n_o,), f4)
    P1_all = np.empty(tile, f4)
    R1_all = np.empty((1, n_o), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        m = f8((-inf))
        p1 = f8(0)
        empty_state(s)
        for t0 in range(begin, end, tile):
            n = min(tile, end - t0)
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            W_tile = W[b_W[b], t0:t0 + n]
            P1 = P1_all[:1 * n].reshape((1, n))
            old_p1 = p1
            r0 = fold_0(x_tile, n)
            m = larger(m, f8(r0))
            ahead(x_tile, x_tile.size)
            ahead(W_tile, W_tile.size)
            p1 = value_1(m)
            if t0 > begin:
                rebase_1(s, old_p1, p1, n_o)
            fold_1(x_tile, p1, P1[0], n)
            np.dot(P1, W_tile, R1_all[:1])
            add(s.reshape((1, n_o)), R1_all[:1])
        p1 = finish(m)
        finish_b(s, p1, n_o, out0[b], m)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_W, W, n_l, n_o, out0):
    for part in prange(threads):
        sweep(part * items // threads, (part + 1) * items // threads, tile, block, b_x, x, b_W, W, n_l, n_o, out0)


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
    return np.ascontiguousarray(np.broadcast_to(which, batch)).reshape(-1), flat


def written(lengths, batch, order, dtype):
    """Memory for an output: (batch, axes in the kernel's order)."""
    return np.empty((prod(batch), *(lengths[axis] for axis in order.split())), dtype)


def given_back(output, batch, order, axes):
    """An output with dimensions (batch…, its axes…); a scalar if there are none."""
    full = output.reshape(batch + output.shape[1:])
    return full.transpose(*range(len(batch)), *(len(batch) + order.split().index(axis) for axis in axes.split()))[()]


def one_blas_thread():
    """Matrix products inside threads should start none of their own; threadpoolctl sees to it where it is installed."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")


AXES = ('l', 'o')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    array, axes = np.asarray(array, np.float64), axes.split()
    batch, order = array.ndim - len(axes), sorted(axes, key=AXES.index)
    moved = array.transpose(*range(batch), *(batch + axes.index(axis) for axis in order))
    lengths = dict(zip(order, moved.shape[batch:]))
    return moved.reshape(*moved.shape[:batch], *(lengths.get(axis, 1) for axis in AXES))


REDUCTIONS = {"sum": (np.sum, 0), "prod": (np.prod, 1), "max": (np.max, -np.inf), "min": (np.min, np.inf), "any": (np.any, False),
              "all": (np.all, True), "fmax": (np.fmax.reduce, -np.inf), "fmin": (np.fmin.reduce, np.inf),
              "argmax": (np.argmax, -np.inf), "argmin": (np.argmin, np.inf)}


def reduced(monoid, body, axis, where=None):
    """⊕ over an axis, which keeps a dimension of length 1; elements outside the mask do not take part."""
    function, nothing = REDUCTIONS[monoid]
    masked = body if where is None else np.where(where, body, nothing)
    result = function(masked, axis=along(axis), keepdims=True)
    if where is None or not monoid.startswith("arg"):
        return result
    return np.where(np.any(np.broadcast_to(where, masked.shape), axis=along(axis), keepdims=True), result, -1)


FORMATS = {"bfloat16": (7, -126, (2 - 2.0**-7) * 2.0**127, np.inf), "float8_e4m3": (3, -6, 448.0, 448.0),
           "float8_e5m2": (2, -14, 57344.0, np.inf)}


def cast_to(values, dtype):
    """Values rounded to a number format and kept wide: to nearest, ties to even; whole numbers stay within their limits."""
    if dtype in FORMATS:
        mantissa, smallest, most, beyond = FORMATS[dtype]
        exponent = np.maximum(np.frexp(values)[1] - 1, smallest) - mantissa
        near = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
        return np.where(np.abs(near) > most, np.copysign(beyond, values), near)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(np.nan_to_num(values, nan=0.0)), limits.min, limits.max)
    return values.astype(dtype).astype(np.float64)


def taken_out(value, axes, lengths):
    """A value with dimensions (batch…, its axes…)."""
    value = value if np.ndim(value) else np.full((1,) * len(AXES), value)
    axes, batch = axes.split(), value.ndim - len(AXES)
    full = np.broadcast_to(value, value.shape[:batch] + tuple(lengths[axis] if axis in axes else 1 for axis in AXES))
    kept = sorted(axes, key=AXES.index)
    full = full.reshape(value.shape[:batch] + tuple(lengths[axis] for axis in kept))
    return full.transpose(*range(batch), *(batch + kept.index(axis) for axis in axes))


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


def definition(x, W):
    """fp8_ptpc_quant_gemm as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    W = spread(W, 'l o')
    lengths = {"l": x.shape[-2], "o": W.shape[-1]}
    t1 = reduced("max", np.abs(x), "l") / 448.0
    return taken_out(reduced("sum", cast_to(x / t1, "float8_e4m3") * W, "l") * t1, 'o', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'W': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"o": 5, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"fp8_ptpc_quant_gemm, l = {length}", arrays, scalars))
    return 0 if passed_over(fp8_ptpc_quant_gemm, definition, cases, 0.2) else 1


if __name__ == "__main__":
    sys.exit(main())
