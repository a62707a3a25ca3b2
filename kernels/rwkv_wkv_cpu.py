"""rwkv_wkv: one pass over l, 7 words of state per row, ordered merge.

(Σ_{l<L} e^{k_l − (L−1−l) w} v_l + e^{u+k_L} v_L) / (the same without v).

The operator
    rwkv_wkv(k[l], v[l], w[], u[]):
        t1 = exp(u + k)
        t2 = exp(-w)
        t3 = exp(k)
        return scan(lambda y, a: (a + t1 * v, t2 * a + t3 * v), l, (0.0, 0.0), place=0) / scan(lambda z, b: (b + t1, t2 * b + t3), l, (0.0, 0.0), place=0)

One more element (a prime marks the new value)
    h1' = q1
    h'  = h3 + v[l]·exp(u + k[l])
    q1' = q1·exp(−w)
    h3' = h3·exp(−w) + v[l]·exp(k[l])
    h4' = q1
    h2' = h5 + exp(u + k[l])
    h5' = h5·exp(−w) + exp(k[l])

Two states a and b
    h1' = h1_b·q1_a
    h'  = h1_b·h3_a + h_b
    q1' = q1_a·q1_b
    h3' = q1_b·h3_a + h3_b
    h4' = h4_b·q1_a
    h2' = h4_b·h5_a + h2_b
    h5' = q1_b·h5_a + h5_b

Dangers
    exp(u + k[l]) may overflow: nothing bounds its exponent
    exp(k[l]) may overflow: nothing bounds its exponent
    h2 divides and may be 0: the result is then what IEEE division gives

Laws:
Certificate: sha256 ced9c0e4c1c9fefca00ce6745dddf7a3cf0e9016775430a43c47517414980766
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python rwkv_wkv_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"k": "l", "v": "l", "w": "", "u": ""}
DTYPES = {"k": "float32", "v": "float32", "w": "float32", "u": "float32"}
TILE, BLOCK = 8192, 1


def rwkv_wkv(k, v, w, u, *, threads=None):
    """rwkv_wkv in one pass over l.

    Takes float32 k[…, l], float32 v[…, l], float32 w[…], float32 u[…]; gives float32 […].  Leading dimensions are
    batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"k": k, "v": v, "w": w, "u": u}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["k"], INPUTS["k"], "l", batch),
        *laid_out(arrays["v"], INPUTS["v"], "l", batch),
        *laid_out(arrays["w"], INPUTS["w"], "", batch),
        *laid_out(arrays["u"], INPUTS["u"], "", batch),
        lengths["l"], out0)
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
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


EXACT = ("contract",)


def _plus(builder, a, x, b):
    """a · x + b, in one instruction where there is one, and with no other liberty."""
    return builder.fadd(builder.fmul(a, x, flags=EXACT), b, flags=EXACT)


def _polynomial(builder, x, coefficients):
    """A polynomial by its coefficients, that of the highest power first."""
    total, *others = (x.type(each) for each in coefficients)
    for each in others:
        total = _plus(builder, total, x, each)
    return total


def _reduced(builder, x, least, most, rounding, parts):
    """x / ln 2, rounded by adding a large number, with that; and what is left of x, which is kept between bounds (NaN stays)."""
    for beyond, bound in (("<", least), (">", most)):
        x = x if bound is None else builder.select(builder.fcmp_ordered(beyond, x, x.type(bound)), x.type(bound), x)
    near = _plus(builder, x, x.type(1.4426950408889634), x.type(rounding))
    n = builder.fsub(near, x.type(rounding), flags=EXACT)
    for part in parts:
        x = _plus(builder, n, x.type(-part), x)
    return near, x


def _exp4(most):
    """e^x in float32, at most 2 ulp off; below 2^-125 it is 0, e^-inf among them; NaN stays, beyond `most` it is inf."""
    @intrinsic
    def exp(context, x):
        def emit(context, builder, signature, args):
            real, integer = args[0].type, ir.IntType(32)
            near, r = _reduced(builder, args[0], -87.3, most, 12583038.0, (0.693359375, -2.12194440e-4))
            p = _polynomial(builder, r, [2 * each for each in (0.0013836793680186274, 0.008374857072283892, 0.04166822868935028,
                                                               0.16666419680479821, 0.49999992056069475, 1.0, 1.0)])
            power = builder.shl(builder.bitcast(near, integer), integer(23))
            return builder.fmul(p, builder.bitcast(power, real), flags=EXACT)
        return types.float32(types.float32), emit
    return exp


exp4, decay4 = _exp4(89.0), _exp4(None)


@njit(**LOOP)
def make_S1(S1, u, k, n):
    wide_vectors()
    for i_l in range(n):
        t1 = f4(f8(u)) + k[i_l]
        t2 = exp4(t1)
        S1[i_l] = t2


@njit(**LOOP)
def make_S2(S2, k, n):
    wide_vectors()
    for i_l in range(n):
        t1 = exp4(k[i_l])
        S2[i_l] = t1


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h, h3, h2, h5, S1, v, w, S2, n):
    t3 = -f8(w)
    t4 = math.exp(t3)
    for i_l in range(0, n):
        t1 = f8(S1[i_l]) * f8(v[i_l])
        t2 = h3 + t1
        t5 = t4 * h3
        t6 = f8(S2[i_l]) * f8(v[i_l])
        t7 = t5 + t6
        t8 = h5 + f8(S1[i_l])
        t9 = t4 * h5
        t10 = t9 + f8(S2[i_l])
        h, h3, h2, h5 = t2, t7, t8, t10
    return h, h3, h2, h5


@njit(**PART)
def finish(h, h2):
    t1 = h / h2
    out0 = f4(t1)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_k, k, b_v, v, b_w, w, b_u, u, n_l, out0):
    wide_vectors()
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h1 = f8(0.0)
        h = f8(0.0)
        q1 = f8(1.0)
        h3 = f8(0.0)
        h4 = f8(0.0)
        h2 = f8(0.0)
        h5 = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            k_tile = k[b_k[b], t0:t0 + n]
            v_tile = v[b_v[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            make_S1(S1, u[b_u[b]], k_tile, n)
            make_S2(S2, k_tile, n)
            h, h3, h2, h5 = steps_0_of_row(h, h3, h2, h5, S1, v_tile, w[b_w[b]], S2, n)
        out0[b] = finish(h, h2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_k, k, b_v, v, b_w, w, b_u, u, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_k, k, b_v, v, b_w, w, b_u, u, n_l, out0)


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


def definition(k, v, w, u):
    """rwkv_wkv as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    k = spread(k, 'l')
    v = spread(v, 'l')
    w = spread(w, '')
    u = spread(u, '')
    lengths = {"l": k.shape[-1]}
    t1 = np.exp(u + k)
    t2 = np.exp(-w)
    t3 = np.exp(k)
    return taken_out(stepped("l", lengths["l"], 0, "", (0.0, 0.0,), (t1 * v, t3 * v,), lambda y, a, e1, e2: (a + e1, t2 * a + e2,)) / stepped("l", lengths["l"], 0, "", (0.0, 0.0,), (t1, t3,), lambda z, b, e1, e2: (b + e1, t2 * b + e2,)), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'k': 'normal', 'v': 'normal', 'w': 'normal', 'u': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"rwkv_wkv, l = {length}", arrays, scalars))
    return 0 if passed_over(rwkv_wkv, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
