"""ctc_forward: one pass over l, 20 words of state per row, ordered merge.

−log of the probability of two labels: α_l over blank, y_1, blank, y_2, blank, each stayed at, entered or skipped to.

The operator
    ctc_forward(lp[l, c], y[u]):
        t1 = exp(sum(where(index(c) == 0, lp, 0), c))
        t2 = index(l) == 0
        d1 = sum(where(index(u) == 0, y, 0), u)
        d2 = sum(where(index(u) == 1, y, 0), u)
        return -log(scan(lambda a, b, c, d: (t1 * where(t2, 1, a), exp(sum(where(index(c) == d1, lp, 0), c)) * where(t2, 1, a + b), t1 * (b + c), exp(sum(where(index(c) == d2, lp, 0), c)) * (c + d + where(d1 != d2, b, 0))), l, (0.0, 0.0, 0.0, 0.0), place=3) + scan(lambda a, b, c, d, e: (t1 * where(t2, 1, a), exp(sum(where(index(c) == d1, lp, 0), c)) * where(t2, 1, a + b), t1 * (b + c), exp(sum(where(index(c) == d2, lp, 0), c)) * (c + d + where(d1 != d2, b, 0)), t1 * (d + e)), l, (0.0, 0.0, 0.0, 0.0, 0.0), place=4))

One more element (a prime marks the new value)
    x1   = exp(Σ_c (lp[l,c] if c = 0 else 0))
    x2   = exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0))
    x3   = 0 if l = 0 else exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0))
    q1'  = q1·x1
    h1'  = h1·x1 + q2·x1
    h3'  = h3·x1 + h6·x1
    h4'  = h4·x1 + h7·x1
    h2'  = h2·x1 + h·x1
    h5'  = h5·x1 + h8·x1
    q2'  = q2·x2
    h6'  = h6·x2 + q1·x2
    h7'  = h7·x2 + h9·x2 + q3·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)
    h'   = h·x2 + h10·x2 + h12·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)
    h8'  = h8·x2 + h11·x2 + h13·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)
    h9'  = h9·x1 + q3·x1
    h10' = h10·x1 + h12·x1
    h11' = h11·x1 + h13·x1
    q3'  = q3·x3
    h12' = h12·x3 + (exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) if l = 0 else 0) + h14·x3
    h13' = h13·x3 + q4·x3
    h14' = (x1 if l = 0 else 0) + h14·(0 if l = 0 else x1)
    q4'  = q4·(0 if l = 0 else x1)
    e'   = e

Two states a and b
    q1'  = q1_a·q1_b
    h1'  = q1_b·h1_a + h1_b·q2_a
    h3'  = q1_b·h3_a + h1_b·h6_a + h3_b·q1_a
    h4'  = q1_b·h4_a + h1_b·h7_a + h3_b·h9_a + h4_b·q3_a
    h2'  = q1_b·h2_a + h1_b·h_a + h3_b·h10_a + h4_b·h12_a + h2_b + h5_b·h14_a
    h5'  = q1_b·h5_a + h1_b·h8_a + h3_b·h11_a + h4_b·h13_a + h5_b·q4_a
    q2'  = q2_a·q2_b
    h6'  = q2_b·h6_a + h6_b·q1_a
    h7'  = q2_b·h7_a + h6_b·h9_a + h7_b·q3_a
    h'   = q2_b·h_a + h6_b·h10_a + h7_b·h12_a + h_b + h8_b·h14_a
    h8'  = q2_b·h8_a + h6_b·h11_a + h7_b·h13_a + h8_b·q4_a
    h9'  = q1_b·h9_a + h9_b·q3_a
    h10' = q1_b·h10_a + h9_b·h12_a + h10_b + h11_b·h14_a
    h11' = q1_b·h11_a + h9_b·h13_a + h11_b·q4_a
    q3'  = q3_a·q3_b
    h12' = q3_b·h12_a + h12_b + h13_b·h14_a
    h13' = q3_b·h13_a + h13_b·q4_a
    h14' = h14_b + q4_b·h14_a
    q4'  = q4_a·q4_b
    e'   = e_a + e_b

Dangers
    exp(Σ_c (lp[l,c] if c = 0 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0)) may overflow: nothing bounds its exponent
    exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) may overflow: nothing bounds its exponent

Laws:
Certificate: sha256 d667d52f6ca8faa40a328712eb0744c2abfed25914256479c70035e3de8f755e
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python ctc_forward_cpu.py` checks it.
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


INPUTS = {"lp": "l c", "y": "u"}
DTYPES = {"lp": "float32", "y": "float32"}
TILE, BLOCK = 8192, 1


def ctc_forward(lp, y, *, threads=None):
    """ctc_forward in one pass over l.

    Takes float32 lp[…, l, c], float32 y[…, u]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"lp": lp, "y": y}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["lp"], INPUTS["lp"], "l c", batch),
        *laid_out(arrays["y"], INPUTS["y"], "u", batch),
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
def make_S1(S1, lp, n_c, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        if 0 < n_c:
            t1 = t1 + f8(lp[i_l, 0])
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, y, n_u, lp, n_c, n):
    wide_vectors()
    t2 = 0.0
    if 1 < n_u:
        t2 = t2 + f8(y[1])
    for i_l in range(n):
        t1 = 0.0
        for i_c in range(n_c):
            t3 = f8(i_c) == t2
            t4 = f8(lp[i_l, i_c]) if t3 else f8(0)
            t1 = t1 + t4
        S2[i_l] = f4(t1)


@njit(**LOOP)
def make_S3(S3, y, n_u, lp, n_c, n):
    wide_vectors()
    t2 = 0.0
    if 0 < n_u:
        t2 = t2 + f8(y[0])
    for i_l in range(n):
        t1 = 0.0
        for i_c in range(n_c):
            t3 = f8(i_c) == t2
            t4 = f8(lp[i_l, i_c]) if t3 else f8(0)
            t1 = t1 + t4
        S3[i_l] = f4(t1)


@njit(**LOOP)
def make_S4(S4, S1, n):
    wide_vectors()
    for i_l in range(n):
        t1 = exp4(S1[i_l])
        S4[i_l] = t1


@njit(**LOOP)
def make_S5(S5, S2, n):
    wide_vectors()
    for i_l in range(n):
        t1 = exp4(S2[i_l])
        S5[i_l] = t1


@njit(**LOOP)
def make_S6(S6, S3, n):
    wide_vectors()
    for i_l in range(n):
        t1 = exp4(S3[i_l])
        S6[i_l] = t1


@njit(**PART, fastmath={"contract"})
def steps_0_of_row(h2, h, h10, h12, h14, e, S4, S5, y, n_u, start, S6, n):
    t7 = 0.0
    if 0 < n_u:
        t7 = t7 + f8(y[0])
    t8 = 0.0
    if 1 < n_u:
        t8 = t8 + f8(y[1])
    t9 = t7 != t8
    for i_l in range(0, n):
        t1 = f8(S4[i_l]) * h2
        t2 = f8(S4[i_l]) * h
        t3 = t1 + t2
        t4 = f8(S5[i_l]) * h
        t5 = f8(S5[i_l]) * h10
        t6 = t4 + t5
        t10 = f8(S5[i_l]) if t9 else f8(0)
        t11 = t10 * h12
        t12 = t6 + t11
        t13 = f8(S4[i_l]) * h10
        t14 = f8(S4[i_l]) * h12
        t15 = t13 + t14
        t16 = (start + i_l) == 0
        t17 = f8(0) if t16 else f8(S6[i_l])
        t18 = t17 * h12
        t19 = f8(S6[i_l]) if t16 else f8(0)
        t20 = t18 + t19
        t21 = t17 * h14
        t22 = t20 + t21
        t23 = f8(S4[i_l]) if t16 else f8(0)
        t24 = f8(0) if t16 else f8(S4[i_l])
        t25 = t24 * h14
        t26 = t23 + t25
        h2, h, h10, h12, h14 = t3, t12, t15, t22, t26
        size = max(max(max(max(abs(h2), abs(h)), abs(h10)), abs(h12)), abs(h14))
        if not 2.0**-300 <= size <= 2.0**300:
            size = max(max(max(max((abs(h2) if h2 - h2 == 0 else 0.0), (abs(h) if h - h == 0 else 0.0)), (abs(h10) if h10 - h10 == 0 else 0.0)), (abs(h12) if h12 - h12 == 0 else 0.0)), (abs(h14) if h14 - h14 == 0 else 0.0))
            power = 2.0**-600 if size > 2.0**300 else 2.0**600 if 0.0 < size < 2.0**-300 else 1.0
            h2, h, h10, h12, h14 = h2 * power, h * power, h10 * power, h12 * power, h14 * power
            e = e + (600.0 if size > 2.0**300 else -600.0 if 0.0 < size < 2.0**-300 else 0.0)
    return h2, h, h10, h12, h14, e


@njit(**PART)
def finish(h, h2, e):
    t1 = h + h2
    t2 = np.log(t1)
    t3 = 0.6931471805599453 * e
    t4 = t2 + t3
    t5 = -t4
    out0 = f4(t5)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_lp, lp, b_y, y, n_l, n_c, n_u, out0):
    wide_vectors()
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    S3_all = empty((tile,), f4)
    S4_all = empty((tile,), f4)
    S5_all = empty((tile,), f4)
    S6_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        q1 = f8(1.0)
        h1 = f8(0.0)
        h3 = f8(0.0)
        h4 = f8(0.0)
        h2 = f8(0.0)
        h5 = f8(0.0)
        q2 = f8(1.0)
        h6 = f8(0.0)
        h7 = f8(0.0)
        h = f8(0.0)
        h8 = f8(0.0)
        h9 = f8(0.0)
        h10 = f8(0.0)
        h11 = f8(0.0)
        q3 = f8(1.0)
        h12 = f8(0.0)
        h13 = f8(0.0)
        h14 = f8(0.0)
        q4 = f8(1.0)
        e = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            lp_tile = lp[b_lp[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            S3 = shaped(S3_all, (n,))
            S4 = shaped(S4_all, (n,))
            S5 = shaped(S5_all, (n,))
            S6 = shaped(S6_all, (n,))
            make_S1(S1, lp_tile, n_c, n)
            make_S2(S2, y[b_y[b]], n_u, lp_tile, n_c, n)
            make_S3(S3, y[b_y[b]], n_u, lp_tile, n_c, n)
            make_S4(S4, S1, n)
            make_S5(S5, S2, n)
            make_S6(S6, S3, n)
            h2, h, h10, h12, h14, e = steps_0_of_row(h2, h, h10, h12, h14, e, S4, S5, y[b_y[b]], n_u, t0, S6, n)
        out0[b] = finish(h, h2, e)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_lp, lp, b_y, y, n_l, n_c, n_u, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_lp, lp, b_y, y, n_l, n_c, n_u, out0)


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


def definition(lp, y):
    """ctc_forward as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    lp = spread(lp, 'l c')
    y = spread(y, 'u')
    lengths = {"l": lp.shape[-3], "c": lp.shape[-2], "u": y.shape[-1]}
    t1 = np.exp(np.sum(np.where(positions("c", lengths["c"]) == 0, lp, 0), along("c"), keepdims=True))
    t2 = positions("l", lengths["l"]) == 0
    d1 = np.sum(np.where(positions("u", lengths["u"]) == 0, y, 0), along("u"), keepdims=True)
    d2 = np.sum(np.where(positions("u", lengths["u"]) == 1, y, 0), along("u"), keepdims=True)
    return taken_out(-np.log(stepped("l", lengths["l"], 3, "", (0.0, 0.0, 0.0, 0.0,), (t1, t2, np.exp(np.sum(np.where(positions("c", lengths["c"]) == d1, lp, 0), along("c"), keepdims=True)), np.exp(np.sum(np.where(positions("c", lengths["c"]) == d2, lp, 0), along("c"), keepdims=True)),), lambda a, b, c, d, e1, e2, e3, e4: (e1 * np.where(e2, 1, a), e3 * np.where(e2, 1, a + b), e1 * (b + c), e4 * (c + d + np.where(d1 != d2, b, 0)),)) + stepped("l", lengths["l"], 4, "", (0.0, 0.0, 0.0, 0.0, 0.0,), (t1, t2, np.exp(np.sum(np.where(positions("c", lengths["c"]) == d1, lp, 0), along("c"), keepdims=True)), np.exp(np.sum(np.where(positions("c", lengths["c"]) == d2, lp, 0), along("c"), keepdims=True)),), lambda a, b, c, d, e, e1, e2, e3, e4: (e1 * np.where(e2, 1, a), e3 * np.where(e2, 1, a + b), e1 * (b + c), e4 * (c + d + np.where(d1 != d2, b, 0)), e1 * (d + e),))), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'lp': 'normal', 'y': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"c": 4, "u": 5, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"ctc_forward, l = {length}", arrays, scalars))
    return 0 if passed_over(ctc_forward, definition, cases, 0.02) else 1


if __name__ == "__main__":
    sys.exit(main())
