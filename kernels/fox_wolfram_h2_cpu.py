"""fox_wolfram_h2: one pass over l, 2 words of state per row, commutative merge.

H₂/H₀ = Σ_ij |p_i||p_j| P₂(cos θ_ij)/(Σ |p|)², by the addition theorem ½ (3 ‖Σ p pᵀ/|p|‖²/(Σ |p|)² − 1).

The operator
    fox_wolfram_h2(p[l, c], basis[c, u]):
        t1 = sqrt(sum(p * p, c))
        return 1.5 * sum(sum(sum(p * sum(p * basis, c) / t1, l) ** 2, u), c) / sum(t1, l) ** 2 - 0.5

One more element (a prime marks the new value)
    s'  = s + (p[l,c]·Σ_c p[l,c]·basis[c,u])/√(Σ_c p[l,c]²)
    s2' = s2 + √(Σ_c p[l,c]²)

Two states a and b
    s'  = s_a + s_b
    s2' = s2_a + s2_b

Dangers
    s2² divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 bda5792a9c56a96aba1b88f6f599199fa839f51c19313f2ed8bf164b4ddee93f
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python fox_wolfram_h2_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"p": "l c", "basis": "c u"}
DTYPES = {"p": "float32", "basis": "float32"}
TILE, BLOCK = 8192, 1


def fox_wolfram_h2(p, basis, *, threads=None):
    """fox_wolfram_h2 in one pass over l.

    Takes float32 p[…, l, c], float32 basis[…, c, u]; gives float32 […].  Leading dimensions are batch and
    broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"p": p, "basis": basis}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["p"], INPUTS["p"], "l c", batch),
        *laid_out(arrays["basis"], INPUTS["basis"], "c u", batch),
        lengths["l"], lengths["c"], lengths["u"], out0)
    return given_back(out0, batch, "", "")


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@intrinsic
def empty(context, shape, kind):
    """New memory for an array of a shape and a kind of number."""
    made = types.Array(kind.dtype, len(shape), "C")
    def emit(context, builder, signature, args):
        number, lengths = context.get_data_type(made.dtype), cgutils.unpack_tuple(builder, args[0])
        strides = [context.get_constant(types.intp, context.get_abi_sizeof(number))]
        for length in reversed(lengths):
            strides.insert(0, builder.mul(strides[0], length))
        memory = context.nrt.meminfo_alloc_aligned(builder, strides[0], context.get_constant(types.uint32, 64))
        start = builder.bitcast(context.nrt.meminfo_data(builder, memory), number.as_pointer())
        array = context.make_array(made)(context, builder)
        return populate_array(array, start, lengths, strides[1:], strides[-1], memory)._getvalue()
    return made(shape, kind), emit


@intrinsic
def shaped(context, array, shape):
    """As many of the first elements of a contiguous array as a shape has, in that shape."""
    made = types.Array(array.dtype, len(shape), "C")
    if array.layout != "C":
        raise TypeError(f"{array} is not contiguous")
    def emit(context, builder, signature, args):
        whole, lengths = context.make_array(array)(context, builder, args[0]), cgutils.unpack_tuple(builder, args[1])
        strides = [whole.itemsize]
        for length in reversed(lengths[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        view = context.make_array(made)(context, builder)
        populate_array(view, whole.data, lengths, strides, whole.itemsize, whole.meminfo, whole.parent)
        return impl_ret_borrowed(context, builder, made, view._getvalue())
    return made(array, shape), emit


@intrinsic
def fill(context, array, value):
    """Every element of a contiguous array becomes a value."""
    def emit(context, builder, signature, args):
        target = context.make_array(array)(context, builder, args[0])
        with cgutils.for_range(builder, target.nitems) as loop:
            context.pack_value(builder, array.dtype, args[1], builder.gep(target.data, [loop.index]))
        return context.get_dummy_value()
    return types.none(array, array.dtype), emit


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@njit(**LOOP)
def make_S1(S1, p, n_c, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        for i_c in range(n_c):
            t2 = f8(p[i_l, i_c]) * f8(p[i_l, i_c])
            t1 = t1 + t2
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, p, basis, n_c, n_u, n):
    wide_vectors()
    for i_l in range(n):
        for i_u in range(n_u):
            t1 = 0.0
            for i_c in range(n_c):
                t2 = f8(p[i_l, i_c]) * f8(basis[i_c, i_u])
                t1 = t1 + t2
            S2[i_l, i_u] = f4(t1)


@njit(**LOOP)
def fold_0a(p, S1, S2, s, n_u, n_c, n):
    wide_vectors()
    for i_l in range(n):
        t1 = np.sqrt(f8(S1[i_l]))
        t2 = 1.0 / t1
        for i_c in range(n_c):
            t3 = f8(p[i_l, i_c]) * t2
            for i_u in range(n_u):
                t4 = t3 * f8(S2[i_l, i_u])
                s[i_c, i_u] = s[i_c, i_u] + t4


@njit(**LOOP)
def fold_0b(S1, n):
    wide_vectors()
    s2 = 0.0
    for i_l in range(n):
        t1 = np.sqrt(f8(S1[i_l]))
        s2 = s2 + t1
    return s2


@njit(**PART)
def finish(s, n_u, n_c, s2):
    t1 = 0.0
    for i_c in range(n_c):
        t2 = 0.0
        for i_u in range(n_u):
            t3 = s[i_c, i_u] * s[i_c, i_u]
            t2 = t2 + t3
        t1 = t1 + t2
    t4 = 1.5 * t1
    t5 = s2 * s2
    t6 = t4 / t5
    t7 = t6 - 0.5
    out0 = f4(t7)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_p, p, b_basis, basis, n_l, n_c, n_u, out0):
    wide_vectors()
    s = empty((n_c, n_u,), f8)
    S1_all = empty((tile,), f4)
    S2_all = empty((tile * n_u,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        s2 = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            p_tile = p[b_p[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n, n_u,))
            make_S1(S1, p_tile, n_c, n)
            make_S2(S2, p_tile, basis[b_basis[b]], n_c, n_u, n)
            fold_0a(p_tile, S1, S2, s, n_u, n_c, n)
            r0 = fold_0b(S1, n)
            s2 = s2 + r0
        out0[b] = finish(s, n_u, n_c, s2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_p, p, b_basis, basis, n_l, n_c, n_u, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_p, p, b_basis, basis, n_l, n_c, n_u, out0)


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


AXES = ('l', 'c', 'u')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(AXES) - len(own)))]
    return np.moveaxis(array, range(-len(AXES), len(own) - len(AXES)), own)


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


def definition(p, basis):
    """fox_wolfram_h2 as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    p = spread(p, 'l c')
    basis = spread(basis, 'c u')
    lengths = {"l": p.shape[-3], "c": p.shape[-2], "u": basis.shape[-1]}
    t1 = np.sqrt(np.sum(p * p, along("c"), keepdims=True))
    return taken_out(1.5 * np.sum(np.sum(np.sum(p * np.sum(p * basis, along("c"), keepdims=True) / t1, along("l"), keepdims=True) ** 2, along("u"), keepdims=True), along("c"), keepdims=True) / np.sum(t1, along("l"), keepdims=True) ** 2 - 0.5, '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'p': 'normal', 'basis': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"c": 5, "u": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"fox_wolfram_h2, l = {length}", arrays, scalars))
    return 0 if passed_over(fox_wolfram_h2, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
