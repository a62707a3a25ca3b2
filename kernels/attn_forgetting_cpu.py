"""attn_forgetting: one pass over l, 3 words of state per row, ordered merge.

Attention in which every step forgets: the weight of l is e^{q·K_l/√d} Π_{t>l} f_t.

The operator
    attn_forgetting(q[d], K[l, d], V[l, v], f[l]):
        t1 = exp(sum(q * K, d) / sqrt(size(d)))
        d1 = scan(lambda Z: f * Z + t1, l, 0.0)
        return scan(lambda O: f * O + t1 * V, l, 0.0) / d1, log(d1)

One more element (a prime marks the new value)
    q1' = q1·f[l]
    h'  = h·f[l] + V[l,v]·exp((Σ_d q[d]·K[l,d])/√(N_d))
    h2' = h2·f[l] + exp((Σ_d q[d]·K[l,d])/√(N_d))

Two states a and b
    q1' = q1_a·q1_b
    h'  = q1_b·h_a + h_b
    h2' = q1_b·h2_a + h2_b

Dangers
    exp((Σ_d q[d]·K[l,d])/√(N_d)) may overflow: nothing bounds its exponent
    h2 divides and may be 0: the result is then what IEEE division gives

Laws:
Certificate: sha256 c761d83a2d56a0bf79ad0c78bc3013abfdd119cfa9a86c8d3a3c72acf5004a5f
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python attn_forgetting_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
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


INPUTS = {"q": "d", "K": "l d", "V": "l v", "f": "l"}
DTYPES = {"q": "float32", "K": "float32", "V": "float32", "f": "float32"}
TILE, BLOCK = 8192, 1


def attn_forgetting(q, K, V, f, *, threads=None):
    """attn_forgetting in one pass over l.

    Takes float32 q[…, d], float32 K[…, l, d], float32 V[…, l, v], float32 f[…, l]; gives float32 […, v], float32
    […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"q": q, "K": K, "V": V, "f": f}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "v", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["q"], INPUTS["q"], "d", batch),
        *laid_out(arrays["K"], INPUTS["K"], "l d", batch),
        *laid_out(arrays["V"], INPUTS["V"], "l v", batch),
        *laid_out(arrays["f"], INPUTS["f"], "l", batch),
        lengths["d"], lengths["l"], lengths["v"], out0, out1)
    return (given_back(out0, batch, "v", "v"), given_back(out1, batch, "", ""))


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
def make_S1(S1, q, K, n_d, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        for i_d in range(n_d):
            t2 = f8(q[i_d]) * f8(K[i_l, i_d])
            t1 = t1 + t2
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, n_d, S1, n):
    wide_vectors()
    t1 = np.sqrt(f8(n_d))
    t2 = 1.0 / t1
    for i_l in range(n):
        t3 = S1[i_l] * f4(t2)
        t4 = exp4(t3)
        S2[i_l] = t4


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h, h2, f, S2, V, n_v, n):
    for i_l in range(0, n):
        for i_v in range(n_v):
            t1 = f8(f[i_l]) * h[i_v]
            t2 = f8(S2[i_l]) * f8(V[i_l, i_v])
            t3 = t1 + t2
            h[i_v] = t3
        t4 = f8(f[i_l]) * h2
        t5 = t4 + f8(S2[i_l])
        h2 = t5
    return h2


@njit(**PART)
def finish(out0, h, h2, n_v):
    for i_v in range(n_v):
        t1 = h[i_v] / h2
        out0[i_v] = f4(t1)
    t2 = np.log(h2)
    out1 = f4(t2)
    return out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_q, q, b_K, K, b_V, V, b_f, f, n_d, n_l, n_v, out0, out1):
    wide_vectors()
    h = empty((n_v,), f8)
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        q1 = f8(1.0)
        fill(h, 0.0)
        h2 = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            K_tile = K[b_K[b], t0:t0 + n]
            f_tile = f[b_f[b], t0:t0 + n]
            V_tile = V[b_V[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            make_S1(S1, q[b_q[b]], K_tile, n_d, n)
            make_S2(S2, n_d, S1, n)
            h2 = steps_0_of_row(h, h2, f_tile, S2, V_tile, n_v, n)
        out1[b] = finish(out0[b], h, h2, n_v)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_q, q, b_K, K, b_V, V, b_f, f, n_d, n_l, n_v, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_q, q, b_K, K, b_V, V, b_f, f, n_d, n_l, n_v, out0, out1)


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


AXES = ('d', 'l', 'v')


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


def definition(q, K, V, f):
    """attn_forgetting as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    K = spread(K, 'l d')
    V = spread(V, 'l v')
    f = spread(f, 'l')
    lengths = {"d": q.shape[-3], "l": K.shape[-2], "v": V.shape[-1]}
    t1 = np.exp(np.sum(q * K, along("d"), keepdims=True) / np.sqrt(lengths["d"]))
    d1 = stepped("l", lengths["l"], 0, "", (0.0,), (f, t1,), lambda Z, e1, e2: (e1 * Z + e2,))
    return (taken_out(stepped("l", lengths["l"], 0, "", (0.0,), (f, t1 * V,), lambda O, e1, e2: (e1 * O + e2,)) / d1, 'v', lengths), taken_out(np.log(d1), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'q': 'positive', 'K': 'positive', 'V': 'positive', 'f': 'positive'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"d": 5, "v": 7, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"attn_forgetting, l = {length}", arrays, scalars))
    return 0 if passed_over(attn_forgetting, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
