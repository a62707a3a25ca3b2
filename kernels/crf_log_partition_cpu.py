"""crf_log_partition: one pass over l, 6 words of state per row, ordered merge.

α_l(j) = E_l(j) + log Σ_i e^{α_{l−1}(i) + A_ij} over two labels, from π + E_1: log Σ e^{α_L}, all in logarithms.

The operator
    crf_log_partition(E[l, s], A[s, t], pi[s]):
        t1 = index(s) == 0
        t2 = index(l) == 0
        t3 = index(t) == 0
        d1 = sum(where(t1, A, 0), s)
        t4 = index(s) == 1
        d2 = sum(where(t4, A, 0), s)
        t5 = index(t) == 1
        return logadd(scan(lambda a, b: (sum(where(t1, E, 0), s) + where(t2, sum(where(t1, pi, 0), s), logadd(a + sum(where(t3, d1, 0), t), b + sum(where(t3, d2, 0), t))), sum(where(t4, E, 0), s) + where(t2, sum(where(t4, pi, 0), s), logadd(a + sum(where(t5, d1, 0), t), b + sum(where(t5, d2, 0), t)))), l, (0.0, 0.0), place=0), scan(lambda a, b: (sum(where(t1, E, 0), s) + where(t2, sum(where(t1, pi, 0), s), logadd(a + sum(where(t3, d1, 0), t), b + sum(where(t3, d2, 0), t))), sum(where(t4, E, 0), s) + where(t2, sum(where(t4, pi, 0), s), logadd(a + sum(where(t5, d1, 0), t), b + sum(where(t5, d2, 0), t)))), l, (0.0, 0.0), place=1))

One more element (a prime marks the new value)
    h1' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)) + h1, (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + h5)
    h3' = logadd(logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)) + h3, Σ_s (E[l,s] if s = 0 else 0) + Σ_s (pi[s] if s = 0 else 0) if l = 0 else −∞), (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + h6)
    h4' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)) + h4, (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + h7)
    h5' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)) + h1, (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + h5)
    h6' = logadd(logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)) + h3, Σ_s (E[l,s] if s = 1 else 0) + Σ_s (pi[s] if s = 1 else 0) if l = 0 else −∞), (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + h6)
    h7' = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)) + h4, (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + h7)

Two states a and b
    h1' = logadd(h1_b + h1_a, h4_b + h5_a)
    h3' = logadd(logadd(h1_b + h3_a, h3_b), h4_b + h6_a)
    h4' = logadd(h1_b + h4_a, h4_b + h7_a)
    h5' = logadd(h5_b + h1_a, h7_b + h5_a)
    h6' = logadd(logadd(h5_b + h3_a, h6_b), h7_b + h6_a)
    h7' = logadd(h5_b + h4_a, h7_b + h7_a)

Laws:
Certificate: sha256 add7ca28ef01d19f91087f0666eee45242f74779b5e2142760d37d858eef88db
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python crf_log_partition_cpu.py` checks it.
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


INPUTS = {"E": "l s", "A": "s t", "pi": "s"}
DTYPES = {"E": "float32", "A": "float32", "pi": "float32"}
TILE, BLOCK = 8192, 1


def crf_log_partition(E, A, pi, *, threads=None):
    """crf_log_partition in one pass over l.

    Takes float32 E[…, l, s], float32 A[…, s, t], float32 pi[…, s]; gives float32 […].  Leading dimensions are
    batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"E": E, "A": A, "pi": pi}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["E"], INPUTS["E"], "l s", batch),
        *laid_out(arrays["A"], INPUTS["A"], "s t", batch),
        *laid_out(arrays["pi"], INPUTS["pi"], "s", batch),
        lengths["l"], lengths["s"], lengths["t"], out0)
    return given_back(out0, batch, "", "")


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
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


@njit(**LOOP)
def make_S1(S1, E, n_s, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        if 0 < n_s:
            t1 = t1 + f8(E[i_l, 0])
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, E, n_s, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        if 1 < n_s:
            t1 = t1 + f8(E[i_l, 1])
        S2[i_l] = f4(t1)


@njit(**PART, fastmath={"contract"})
def steps_0(h1, h3, h4, h5, h6, h7, begins, start, S1, A, n_s, n_t, pi, S2, n):
    t2 = 0.0
    if 0 < n_t:
        t3 = 0.0
        if 0 < n_s:
            t3 = t3 + f8(A[0, 0])
        t2 = t2 + t3
    t6 = 0.0
    if 0 < n_s:
        t6 = t6 + f8(pi[0])
    t9 = 0.0
    if 0 < n_t:
        t10 = 0.0
        if 1 < n_s:
            t10 = t10 + f8(A[1, 0])
        t9 = t9 + t10
    t13 = 0.0
    if 1 < n_t:
        t14 = 0.0
        if 0 < n_s:
            t14 = t14 + f8(A[0, 1])
        t13 = t13 + t14
    t17 = 0.0
    if 1 < n_s:
        t17 = t17 + f8(pi[1])
    t20 = 0.0
    if 1 < n_t:
        t21 = 0.0
        if 1 < n_s:
            t21 = t21 + f8(A[1, 1])
        t20 = t20 + t21
    if begins:
        i_l = 0
        t1 = (start + i_l) == 0
        t4 = f8(S1[i_l]) + t2
        t5 = (-inf) if t1 else t4
        t7 = f8(S1[i_l]) + t6
        t8 = t7 if t1 else (-inf)
        t11 = f8(S1[i_l]) + t9
        t12 = (-inf) if t1 else t11
        t15 = f8(S2[i_l]) + t13
        t16 = (-inf) if t1 else t15
        t18 = f8(S2[i_l]) + t17
        t19 = t18 if t1 else (-inf)
        t22 = f8(S2[i_l]) + t20
        t23 = (-inf) if t1 else t22
        h1, h3, h4, h5, h6, h7 = t5, t8, t12, t16, t19, t23
    for i_l in range(begins, n):
        t24 = (start + i_l) == 0
        t25 = f8(S1[i_l]) + t2
        t26 = (-inf) if t24 else t25
        t27 = t26 + h1
        t28 = f8(S1[i_l]) + t9
        t29 = (-inf) if t24 else t28
        t30 = t29 + h5
        t31 = t27 + 0.6931471805599453 if t27 == t30 else larger(t27, t30) + np.log1p(np.exp(-abs(t27 - t30)))
        t32 = t26 + h3
        t33 = f8(S1[i_l]) + t6
        t34 = t33 if t24 else (-inf)
        t35 = t32 + 0.6931471805599453 if t32 == t34 else larger(t32, t34) + np.log1p(np.exp(-abs(t32 - t34)))
        t36 = t29 + h6
        t37 = t35 + 0.6931471805599453 if t35 == t36 else larger(t35, t36) + np.log1p(np.exp(-abs(t35 - t36)))
        t38 = t26 + h4
        t39 = t29 + h7
        t40 = t38 + 0.6931471805599453 if t38 == t39 else larger(t38, t39) + np.log1p(np.exp(-abs(t38 - t39)))
        t41 = f8(S2[i_l]) + t13
        t42 = (-inf) if t24 else t41
        t43 = t42 + h1
        t44 = f8(S2[i_l]) + t20
        t45 = (-inf) if t24 else t44
        t46 = t45 + h5
        t47 = t43 + 0.6931471805599453 if t43 == t46 else larger(t43, t46) + np.log1p(np.exp(-abs(t43 - t46)))
        t48 = t42 + h3
        t49 = f8(S2[i_l]) + t17
        t50 = t49 if t24 else (-inf)
        t51 = t48 + 0.6931471805599453 if t48 == t50 else larger(t48, t50) + np.log1p(np.exp(-abs(t48 - t50)))
        t52 = t45 + h6
        t53 = t51 + 0.6931471805599453 if t51 == t52 else larger(t51, t52) + np.log1p(np.exp(-abs(t51 - t52)))
        t54 = t42 + h4
        t55 = t45 + h7
        t56 = t54 + 0.6931471805599453 if t54 == t55 else larger(t54, t55) + np.log1p(np.exp(-abs(t54 - t55)))
        h1, h3, h4, h5, h6, h7 = t31, t37, t40, t47, t53, t56
    return h1, h3, h4, h5, h6, h7


@njit(**PART)
def finish(h1, h3, h4, h5, h6, h7, h, h2):
    t1 = h1 + 0.6931471805599453 if h1 == h3 else larger(h1, h3) + np.log1p(np.exp(-abs(h1 - h3)))
    t2 = t1 + 0.6931471805599453 if t1 == h4 else larger(t1, h4) + np.log1p(np.exp(-abs(t1 - h4)))
    h = t2
    t3 = h5 + 0.6931471805599453 if h5 == h6 else larger(h5, h6) + np.log1p(np.exp(-abs(h5 - h6)))
    t4 = t3 + 0.6931471805599453 if t3 == h7 else larger(t3, h7) + np.log1p(np.exp(-abs(t3 - h7)))
    h2 = t4
    t5 = h + 0.6931471805599453 if h == h2 else larger(h, h2) + np.log1p(np.exp(-abs(h - h2)))
    out0 = f4(t5)
    return h, h2, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_E, E, b_A, A, b_pi, pi, n_l, n_s, n_t, out0):
    wide_vectors()
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h1 = f8(0.0)
        h3 = f8((-inf))
        h4 = f8((-inf))
        h5 = f8((-inf))
        h6 = f8((-inf))
        h7 = f8(0.0)
        h = f8(0)
        h2 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            E_tile = E[b_E[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            make_S1(S1, E_tile, n_s, n)
            make_S2(S2, E_tile, n_s, n)
            h1, h3, h4, h5, h6, h7 = steps_0(h1, h3, h4, h5, h6, h7, i8(t0 == begin), t0, S1, A[b_A[b]], n_s, n_t, pi[b_pi[b]], S2, n)
        h, h2, out0[b] = finish(h1, h3, h4, h5, h6, h7, h, h2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_E, E, b_A, A, b_pi, pi, n_l, n_s, n_t, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_E, E, b_A, A, b_pi, pi, n_l, n_s, n_t, out0)


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


AXES = ('l', 's', 't')


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


def definition(E, A, pi):
    """crf_log_partition as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    E = spread(E, 'l s')
    A = spread(A, 's t')
    pi = spread(pi, 's')
    lengths = {"l": E.shape[-3], "s": E.shape[-2], "t": A.shape[-1]}
    t1 = positions("s", lengths["s"]) == 0
    t2 = positions("l", lengths["l"]) == 0
    t3 = positions("t", lengths["t"]) == 0
    d1 = np.sum(np.where(t1, A, 0), along("s"), keepdims=True)
    t4 = positions("s", lengths["s"]) == 1
    d2 = np.sum(np.where(t4, A, 0), along("s"), keepdims=True)
    t5 = positions("t", lengths["t"]) == 1
    return taken_out(np.logaddexp(stepped("l", lengths["l"], 0, "", (0.0, 0.0,), (np.sum(np.where(t1, E, 0), along("s"), keepdims=True), t2, np.sum(np.where(t4, E, 0), along("s"), keepdims=True),), lambda a, b, e1, e2, e3: (e1 + np.where(e2, np.sum(np.where(t1, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t3, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t3, d2, 0), along("t"), keepdims=True))), e3 + np.where(e2, np.sum(np.where(t4, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t5, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t5, d2, 0), along("t"), keepdims=True))),)), stepped("l", lengths["l"], 1, "", (0.0, 0.0,), (np.sum(np.where(t1, E, 0), along("s"), keepdims=True), t2, np.sum(np.where(t4, E, 0), along("s"), keepdims=True),), lambda a, b, e1, e2, e3: (e1 + np.where(e2, np.sum(np.where(t1, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t3, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t3, d2, 0), along("t"), keepdims=True))), e3 + np.where(e2, np.sum(np.where(t4, pi, 0), along("s"), keepdims=True), np.logaddexp(a + np.sum(np.where(t5, d1, 0), along("t"), keepdims=True), b + np.sum(np.where(t5, d2, 0), along("t"), keepdims=True))),))), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'E': 'normal', 'A': 'normal', 'pi': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"s": 7, "t": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"crf_log_partition, l = {length}", arrays, scalars))
    return 0 if passed_over(crf_log_partition, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
