"""attn_linear: one pass over l, 2 words of state per row, commutative merge.

o = φ(q)·Σ φ(K_l)V_lᵀ / φ(q)·Σ φ(K_l) with φ = elu + 1.

The operator
    attn_linear(q[d], K[l, d], V[l, v]):
        t1 = where(q > 0, q + 1, exp(minimum(q, 0)))
        t2 = where(K > 0, K + 1, exp(minimum(K, 0)))
        return sum(t1 * sum(t2 * V, l), d) / sum(t1 * sum(t2, l), d)

One more element (a prime marks the new value)
    s'  = s + V[l,v]·(K[l,d] + 1 if K[l,d] > 0 else exp(min(K[l,d], 0)))
    s2' = s2 + (K[l,d] + 1 if K[l,d] > 0 else exp(min(K[l,d], 0)))

Two states a and b
    s'  = s_a + s_b
    s2' = s2_a + s2_b

Dangers
    exp(min(K[l,d], 0)) may overflow: nothing bounds its exponent
    Σ_d s2·(q[d] + 1 if q[d] > 0 else exp(min(q[d], 0))) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 158b2a4e048493993c406d8a4a6ec6c887fd6362f6667edc0452dcfa33e5b151
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python attn_linear_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"q": "d", "K": "l d", "V": "l v"}
DTYPES = {"q": "float32", "K": "float32", "V": "float32"}
TILE, BLOCK = 8192, 1


def attn_linear(q, K, V, *, threads=None):
    """attn_linear in one pass over l.

    Takes float32 q[…, d], float32 K[…, l, d], float32 V[…, l, v]; gives float32 […, v].  Leading dimensions are
    batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"q": q, "K": K, "V": V}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "v", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["q"], INPUTS["q"], "d", batch),
        *laid_out(arrays["K"], INPUTS["K"], "l d", batch),
        *laid_out(arrays["V"], INPUTS["V"], "l v", batch),
        lengths["d"], lengths["l"], lengths["v"], out0)
    return given_back(out0, batch, "v", "v")


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


def _exp8(most):
    """e^x in float64, at most 2 ulp off; e^-inf is 0, NaN stays, beyond `most` it is inf, underflow is gradual."""
    @intrinsic
    def exp(context, x):
        def emit(context, builder, signature, args):
            real, integer = args[0].type, ir.IntType(64)
            near, r = _reduced(builder, args[0], -746.0, most, 6755399441055744.0, (0.6931471803691238, 1.9082149292705877e-10))
            p = _polynomial(builder, r, (1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
                                         2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
                                         0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5))
            p = builder.fadd(_plus(builder, builder.fmul(p, r, flags=EXACT), r, r), real(1.0), flags=EXACT)
            k = builder.sub(builder.bitcast(near, integer), integer(0x4338000000000000))
            half = builder.ashr(k, integer(1))
            for part in (half, builder.sub(k, half)):
                power = builder.shl(builder.add(part, integer(1023)), integer(52))
                p = builder.fmul(p, builder.bitcast(power, real), flags=EXACT)
            return p
        return types.float64(types.float64), emit
    return exp


exp8, decay8 = _exp8(710.0), _exp8(None)


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


@njit(**LOOP)
def fold_0a(V, K, s, n_d, n_v, n):
    wide_vectors()
    for i_l in range(n):
        for i_v in range(n_v):
            for i_d in range(n_d):
                t1 = K[i_l, i_d] > f4(0.0)
                t2 = K[i_l, i_d] + f4(1.0)
                t3 = smaller(K[i_l, i_d], f4(0.0))
                t4 = exp4(t3)
                t5 = t2 if t1 else t4
                t6 = V[i_l, i_v] * t5
                s[i_v, i_d] = s[i_v, i_d] + f8(t6)


@njit(**LOOP)
def fold_0b(K, s2, n_d, n):
    wide_vectors()
    for i_l in range(n):
        for i_d in range(n_d):
            t1 = K[i_l, i_d] > f4(0.0)
            t2 = K[i_l, i_d] + f4(1.0)
            t3 = smaller(K[i_l, i_d], f4(0.0))
            t4 = exp4(t3)
            t5 = t2 if t1 else t4
            s2[i_d] = s2[i_d] + f8(t5)


@njit(**PART)
def finish(H1, q, n_d, out0, s, s2, n_v):
    for i_d in range(n_d):
        t1 = f8(q[i_d]) > 0.0
        t2 = f8(q[i_d]) + 1.0
        t3 = smaller(f8(q[i_d]), 0.0)
        t4 = exp8(t3)
        t5 = t2 if t1 else t4
        H1[i_d] = t5
    t8 = 0.0
    for i_d in range(n_d):
        t9 = H1[i_d] * s2[i_d]
        t8 = t8 + t9
    for i_v in range(n_v):
        t6 = 0.0
        for i_d in range(n_d):
            t7 = H1[i_d] * s[i_v, i_d]
            t6 = t6 + t7
        t10 = t6 / t8
        out0[i_v] = f4(t10)


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_q, q, b_K, K, b_V, V, n_d, n_l, n_v, out0):
    wide_vectors()
    s = empty((n_v, n_d,), f8)
    s2 = empty((n_d,), f8)
    H1 = empty((n_d,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        fill(s2, 0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            V_tile = V[b_V[b], t0:t0 + n]
            K_tile = K[b_K[b], t0:t0 + n]
            fold_0a(V_tile, K_tile, s, n_d, n_v, n)
            fold_0b(K_tile, s2, n_d, n)
        finish(H1, q[b_q[b]], n_d, out0[b], s, s2, n_v)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_q, q, b_K, K, b_V, V, n_d, n_l, n_v, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_q, q, b_K, K, b_V, V, n_d, n_l, n_v, out0)


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


def definition(q, K, V):
    """attn_linear as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    K = spread(K, 'l d')
    V = spread(V, 'l v')
    lengths = {"d": q.shape[-3], "l": K.shape[-2], "v": V.shape[-1]}
    t1 = np.where(q > 0, q + 1, np.exp(np.minimum(q, 0)))
    t2 = np.where(K > 0, K + 1, np.exp(np.minimum(K, 0)))
    return taken_out(np.sum(t1 * np.sum(t2 * V, along("l"), keepdims=True), along("d"), keepdims=True) / np.sum(t1 * np.sum(t2, along("l"), keepdims=True), along("d"), keepdims=True), 'v', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'q': 'normal', 'K': 'normal', 'V': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"d": 5, "v": 7, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"attn_linear, l = {length}", arrays, scalars))
    return 0 if passed_over(attn_linear, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
