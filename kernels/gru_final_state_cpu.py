"""gru_final_state: one pass over l, 2 words of state per row, in order, no merge.

h_l = (1 − z)·tanh(W₂x + W₃(z·h)) + z·h with the gate z = σ(W₀x + W₁h), for two units: the last state.

The operator
    gru_final_state(x[l], W[g, i, j]):
        t1 = index(j) == 0
        t2 = index(i) == 0
        d1 = sum(where(t2, sum(where(index(g) == 0, W, 0), g), 0), i)
        d2 = sum(where(index(g) == 1, W, 0), g)
        d3 = sum(where(t2, d2, 0), i)
        t3 = index(j) == 1
        d4 = sum(where(t2, sum(where(index(g) == 2, W, 0), g), 0), i)
        d5 = sum(where(index(g) == 3, W, 0), g)
        d6 = sum(where(t2, d5, 0), i)
        t4 = index(i) == 1
        d7 = sum(where(t4, d2, 0), i)
        d8 = sum(where(t4, d5, 0), i)
        return scan(lambda h, k: ((1 - (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5)) * tanh(sum(where(t1, d4, 0), j) * x + sum(where(t1, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h, (1 - (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5)) * tanh(sum(where(t3, d4, 0), j) * x + sum(where(t1, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k), l, (0.0, 0.0), place=0), scan(lambda h, k: ((1 - (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5)) * tanh(sum(where(t1, d4, 0), j) * x + sum(where(t1, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d6, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h, (1 - (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5)) * tanh(sum(where(t3, d4, 0), j) * x + sum(where(t1, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t1, d1, 0), j) * x + sum(where(t1, d3, 0), j) * h + sum(where(t3, d3, 0), j) * k)) + 0.5) * h) + sum(where(t3, d8, 0), j) * ((0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k)) + (0.5 * tanh(0.5 * (sum(where(t3, d1, 0), j) * x + sum(where(t1, d7, 0), j) * h + sum(where(t3, d7, 0), j) * k)) + 0.5) * k), l, (0.0, 0.0), place=1)

One more element (a prime marks the new value)
    h'  = (1 − 0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) − 0.5)·tanh(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 2 else 0) if i = 0 else 0) if j = 0 else 0) + h·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 0 else 0) if j = 0 else 0) + h2·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 0 else 0) if j = 1 else 0)) + h·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) + 0.5)
    h2' = (1 − 0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) − 0.5)·tanh(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 2 else 0) if i = 0 else 0) if j = 1 else 0) + h·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 0 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 0 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 1 else 0) if j = 0 else 0) + h2·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) + 0.5)·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 3 else 0) if i = 1 else 0) if j = 1 else 0)) + h2·(0.5·tanh(0.5·(x[l]·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 0 else 0) if i = 0 else 0) if j = 1 else 0) + h·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 0 else 0) + h2·Σ_j (Σ_i (Σ_g (W[g,i,j] if g = 1 else 0) if i = 1 else 0) if j = 1 else 0))) + 0.5)

Laws:
Certificate: sha256 bc00e945954008f1101971205f68765ff9481417138fa043a55750a504a4afb8
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python gru_final_state_cpu.py` checks it.
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


INPUTS = {"x": "l", "W": "g i j"}
DTYPES = {"x": "float32", "W": "float32"}
TILE, BLOCK = 8192, 1


def gru_final_state(x, W, *, threads=None):
    """gru_final_state in one pass over l.

    Takes float32 x[…, l], float32 W[…, g, i, j]; gives float32 […], float32 […].  Leading dimensions are batch
    and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "W": W}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["W"], INPUTS["W"], "g i j", batch),
        lengths["l"], lengths["g"], lengths["i"], lengths["j"], out0, out1)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""))


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


@njit(**LOOP)
def make_S1(S1, W, n_g, n_i, n_j, x, n):
    wide_vectors()
    t1 = 0.0
    if 0 < n_j:
        t2 = 0.0
        if 0 < n_i:
            t3 = 0.0
            if 0 < n_g:
                t3 = t3 + f8(W[0, 0, 0])
            t2 = t2 + t3
        t1 = t1 + t2
    t5 = 0.0
    if 0 < n_j:
        t6 = 0.0
        if 0 < n_i:
            t7 = 0.0
            if 1 < n_g:
                t7 = t7 + f8(W[1, 0, 0])
            t6 = t6 + t7
        t5 = t5 + t6
    t8 = t5 * 0.0
    t10 = 0.0
    if 1 < n_j:
        t11 = 0.0
        if 0 < n_i:
            t12 = 0.0
            if 1 < n_g:
                t12 = t12 + f8(W[1, 0, 1])
            t11 = t11 + t12
        t10 = t10 + t11
    t13 = t10 * 0.0
    for i_l in range(n):
        t4 = t1 * f8(x[i_l])
        t9 = t4 + t8
        t14 = t9 + t13
        t15 = 0.5 * t14
        t16 = np.tanh(t15)
        S1[i_l] = f4(t16)


@njit(**LOOP)
def make_S2(S2, W, n_g, n_i, n_j, x, S1, n):
    wide_vectors()
    t1 = 0.0
    if 0 < n_j:
        t2 = 0.0
        if 0 < n_i:
            t3 = 0.0
            if 2 < n_g:
                t3 = t3 + f8(W[2, 0, 0])
            t2 = t2 + t3
        t1 = t1 + t2
    t5 = 0.0
    if 0 < n_j:
        t6 = 0.0
        if 0 < n_i:
            t7 = 0.0
            if 3 < n_g:
                t7 = t7 + f8(W[3, 0, 0])
            t6 = t6 + t7
        t5 = t5 + t6
    t13 = 0.0
    if 1 < n_j:
        t14 = 0.0
        if 0 < n_i:
            t15 = 0.0
            if 3 < n_g:
                t15 = t15 + f8(W[3, 0, 1])
            t14 = t14 + t15
        t13 = t13 + t14
    t16 = 0.0
    if 1 < n_j:
        t17 = 0.0
        if 0 < n_i:
            t18 = 0.0
            if 0 < n_g:
                t18 = t18 + f8(W[0, 0, 1])
            t17 = t17 + t18
        t16 = t16 + t17
    t20 = 0.0
    if 0 < n_j:
        t21 = 0.0
        if 1 < n_i:
            t22 = 0.0
            if 1 < n_g:
                t22 = t22 + f8(W[1, 1, 0])
            t21 = t21 + t22
        t20 = t20 + t21
    t23 = t20 * 0.0
    t25 = 0.0
    if 1 < n_j:
        t26 = 0.0
        if 1 < n_i:
            t27 = 0.0
            if 1 < n_g:
                t27 = t27 + f8(W[1, 1, 1])
            t26 = t26 + t27
        t25 = t25 + t26
    t28 = t25 * 0.0
    for i_l in range(n):
        t4 = t1 * f8(x[i_l])
        t8 = 0.5 * f8(S1[i_l])
        t9 = t8 + 0.5
        t10 = t9 * 0.0
        t11 = t5 * t10
        t12 = t4 + t11
        t19 = t16 * f8(x[i_l])
        t24 = t19 + t23
        t29 = t24 + t28
        t30 = 0.5 * t29
        t31 = np.tanh(t30)
        t32 = 0.5 * t31
        t33 = t32 + 0.5
        t34 = t33 * 0.0
        t35 = t13 * t34
        t36 = t12 + t35
        t37 = np.tanh(t36)
        S2[i_l] = f4(t37)


@njit(**LOOP)
def make_S3(S3, W, n_g, n_i, n_j, x, n):
    wide_vectors()
    t1 = 0.0
    if 1 < n_j:
        t2 = 0.0
        if 0 < n_i:
            t3 = 0.0
            if 0 < n_g:
                t3 = t3 + f8(W[0, 0, 1])
            t2 = t2 + t3
        t1 = t1 + t2
    t5 = 0.0
    if 0 < n_j:
        t6 = 0.0
        if 1 < n_i:
            t7 = 0.0
            if 1 < n_g:
                t7 = t7 + f8(W[1, 1, 0])
            t6 = t6 + t7
        t5 = t5 + t6
    t8 = t5 * 0.0
    t10 = 0.0
    if 1 < n_j:
        t11 = 0.0
        if 1 < n_i:
            t12 = 0.0
            if 1 < n_g:
                t12 = t12 + f8(W[1, 1, 1])
            t11 = t11 + t12
        t10 = t10 + t11
    t13 = t10 * 0.0
    for i_l in range(n):
        t4 = t1 * f8(x[i_l])
        t9 = t4 + t8
        t14 = t9 + t13
        t15 = 0.5 * t14
        t16 = np.tanh(t15)
        S3[i_l] = f4(t16)


@njit(**LOOP)
def make_S4(S4, W, n_g, n_i, n_j, x, S1, S3, n):
    wide_vectors()
    t1 = 0.0
    if 1 < n_j:
        t2 = 0.0
        if 0 < n_i:
            t3 = 0.0
            if 2 < n_g:
                t3 = t3 + f8(W[2, 0, 1])
            t2 = t2 + t3
        t1 = t1 + t2
    t5 = 0.0
    if 0 < n_j:
        t6 = 0.0
        if 1 < n_i:
            t7 = 0.0
            if 3 < n_g:
                t7 = t7 + f8(W[3, 1, 0])
            t6 = t6 + t7
        t5 = t5 + t6
    t13 = 0.0
    if 1 < n_j:
        t14 = 0.0
        if 1 < n_i:
            t15 = 0.0
            if 3 < n_g:
                t15 = t15 + f8(W[3, 1, 1])
            t14 = t14 + t15
        t13 = t13 + t14
    for i_l in range(n):
        t4 = t1 * f8(x[i_l])
        t8 = 0.5 * f8(S1[i_l])
        t9 = t8 + 0.5
        t10 = t9 * 0.0
        t11 = t5 * t10
        t12 = t4 + t11
        t16 = 0.5 * f8(S3[i_l])
        t17 = t16 + 0.5
        t18 = t17 * 0.0
        t19 = t13 * t18
        t20 = t12 + t19
        t21 = np.tanh(t20)
        S4[i_l] = f4(t21)


@njit(**PART, fastmath={"contract"})
def steps_0(h, h2, begins, S1, S2, S3, S4, W, n_g, n_i, n_j, x, n):
    if begins:
        i_l = 0
        t1 = 0.5 * f8(S1[i_l])
        t2 = t1 + 0.5
        t3 = 1.0 - t2
        t4 = t3 * f8(S2[i_l])
        t5 = t2 * 0.0
        t6 = t4 + t5
        t7 = 0.5 * f8(S3[i_l])
        t8 = t7 + 0.5
        t9 = 1.0 - t8
        t10 = t9 * f8(S4[i_l])
        t11 = t8 * 0.0
        t12 = t10 + t11
        h, h2 = t6, t12
    t13 = 0.0
    if 0 < n_j:
        t14 = 0.0
        if 0 < n_i:
            t15 = 0.0
            if 0 < n_g:
                t15 = t15 + f8(W[0, 0, 0])
            t14 = t14 + t15
        t13 = t13 + t14
    t17 = 0.0
    if 0 < n_j:
        t18 = 0.0
        if 0 < n_i:
            t19 = 0.0
            if 1 < n_g:
                t19 = t19 + f8(W[1, 0, 0])
            t18 = t18 + t19
        t17 = t17 + t18
    t22 = 0.0
    if 1 < n_j:
        t23 = 0.0
        if 0 < n_i:
            t24 = 0.0
            if 1 < n_g:
                t24 = t24 + f8(W[1, 0, 1])
            t23 = t23 + t24
        t22 = t22 + t23
    t32 = 0.0
    if 0 < n_j:
        t33 = 0.0
        if 0 < n_i:
            t34 = 0.0
            if 2 < n_g:
                t34 = t34 + f8(W[2, 0, 0])
            t33 = t33 + t34
        t32 = t32 + t33
    t36 = 0.0
    if 0 < n_j:
        t37 = 0.0
        if 0 < n_i:
            t38 = 0.0
            if 3 < n_g:
                t38 = t38 + f8(W[3, 0, 0])
            t37 = t37 + t38
        t36 = t36 + t37
    t42 = 0.0
    if 1 < n_j:
        t43 = 0.0
        if 0 < n_i:
            t44 = 0.0
            if 3 < n_g:
                t44 = t44 + f8(W[3, 0, 1])
            t43 = t43 + t44
        t42 = t42 + t43
    t45 = 0.0
    if 1 < n_j:
        t46 = 0.0
        if 0 < n_i:
            t47 = 0.0
            if 0 < n_g:
                t47 = t47 + f8(W[0, 0, 1])
            t46 = t46 + t47
        t45 = t45 + t46
    t49 = 0.0
    if 0 < n_j:
        t50 = 0.0
        if 1 < n_i:
            t51 = 0.0
            if 1 < n_g:
                t51 = t51 + f8(W[1, 1, 0])
            t50 = t50 + t51
        t49 = t49 + t50
    t54 = 0.0
    if 1 < n_j:
        t55 = 0.0
        if 1 < n_i:
            t56 = 0.0
            if 1 < n_g:
                t56 = t56 + f8(W[1, 1, 1])
            t55 = t55 + t56
        t54 = t54 + t55
    t70 = 0.0
    if 1 < n_j:
        t71 = 0.0
        if 0 < n_i:
            t72 = 0.0
            if 2 < n_g:
                t72 = t72 + f8(W[2, 0, 1])
            t71 = t71 + t72
        t70 = t70 + t71
    t74 = 0.0
    if 0 < n_j:
        t75 = 0.0
        if 1 < n_i:
            t76 = 0.0
            if 3 < n_g:
                t76 = t76 + f8(W[3, 1, 0])
            t75 = t75 + t76
        t74 = t74 + t75
    t79 = 0.0
    if 1 < n_j:
        t80 = 0.0
        if 1 < n_i:
            t81 = 0.0
            if 3 < n_g:
                t81 = t81 + f8(W[3, 1, 1])
            t80 = t80 + t81
        t79 = t79 + t80
    for i_l in range(begins, n):
        t16 = t13 * f8(x[i_l])
        t20 = t17 * h
        t21 = t16 + t20
        t25 = t22 * h2
        t26 = t21 + t25
        t27 = 0.5 * t26
        t28 = np.tanh(t27)
        t29 = 0.5 * t28
        t30 = t29 + 0.5
        t31 = 1.0 - t30
        t35 = t32 * f8(x[i_l])
        t39 = t30 * h
        t40 = t36 * t39
        t41 = t35 + t40
        t48 = t45 * f8(x[i_l])
        t52 = t49 * h
        t53 = t48 + t52
        t57 = t54 * h2
        t58 = t53 + t57
        t59 = 0.5 * t58
        t60 = np.tanh(t59)
        t61 = 0.5 * t60
        t62 = t61 + 0.5
        t63 = t62 * h2
        t64 = t42 * t63
        t65 = t41 + t64
        t66 = np.tanh(t65)
        t67 = t31 * t66
        t68 = t67 + t39
        t69 = 1.0 - t62
        t73 = t70 * f8(x[i_l])
        t77 = t74 * t39
        t78 = t73 + t77
        t82 = t79 * t63
        t83 = t78 + t82
        t84 = np.tanh(t83)
        t85 = t69 * t84
        t86 = t85 + t63
        h, h2 = t68, t86
    return h, h2


@njit(**PART)
def finish(h, h2):
    out0 = f4(h)
    out1 = f4(h2)
    return out0, out1


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_W, W, n_l, n_g, n_i, n_j, out0, out1):
    wide_vectors()
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    S3_all = empty((tile,), f4)
    S4_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        h = f8(0.0)
        h2 = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            S3 = shaped(S3_all, (n,))
            S4 = shaped(S4_all, (n,))
            make_S1(S1, W[b_W[b]], n_g, n_i, n_j, x_tile, n)
            make_S2(S2, W[b_W[b]], n_g, n_i, n_j, x_tile, S1, n)
            make_S3(S3, W[b_W[b]], n_g, n_i, n_j, x_tile, n)
            make_S4(S4, W[b_W[b]], n_g, n_i, n_j, x_tile, S1, S3, n)
            h, h2 = steps_0(h, h2, i8(t0 == begin), S1, S2, S3, S4, W[b_W[b]], n_g, n_i, n_j, x_tile, n)
        out0[b], out1[b] = finish(h, h2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_W, W, n_l, n_g, n_i, n_j, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_W, W, n_l, n_g, n_i, n_j, out0, out1)


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


AXES = ('l', 'g', 'i', 'j')


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


def definition(x, W):
    """gru_final_state as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    W = spread(W, 'g i j')
    lengths = {"l": x.shape[-4], "g": W.shape[-3], "i": W.shape[-2], "j": W.shape[-1]}
    t1 = positions("j", lengths["j"]) == 0
    t2 = positions("i", lengths["i"]) == 0
    d1 = np.sum(np.where(t2, np.sum(np.where(positions("g", lengths["g"]) == 0, W, 0), along("g"), keepdims=True), 0), along("i"), keepdims=True)
    d2 = np.sum(np.where(positions("g", lengths["g"]) == 1, W, 0), along("g"), keepdims=True)
    d3 = np.sum(np.where(t2, d2, 0), along("i"), keepdims=True)
    t3 = positions("j", lengths["j"]) == 1
    d4 = np.sum(np.where(t2, np.sum(np.where(positions("g", lengths["g"]) == 2, W, 0), along("g"), keepdims=True), 0), along("i"), keepdims=True)
    d5 = np.sum(np.where(positions("g", lengths["g"]) == 3, W, 0), along("g"), keepdims=True)
    d6 = np.sum(np.where(t2, d5, 0), along("i"), keepdims=True)
    t4 = positions("i", lengths["i"]) == 1
    d7 = np.sum(np.where(t4, d2, 0), along("i"), keepdims=True)
    d8 = np.sum(np.where(t4, d5, 0), along("i"), keepdims=True)
    return (taken_out(stepped("l", lengths["l"], 0, "", (0.0, 0.0,), (np.sum(np.where(t1, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t1, d4, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d4, 0), along("j"), keepdims=True) * x,), lambda h, k, e1, e2, e3, e4: ((1 - (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e2 + np.sum(np.where(t1, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h, (1 - (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e4 + np.sum(np.where(t1, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k,)), '', lengths), taken_out(stepped("l", lengths["l"], 1, "", (0.0, 0.0,), (np.sum(np.where(t1, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t1, d4, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d1, 0), along("j"), keepdims=True) * x, np.sum(np.where(t3, d4, 0), along("j"), keepdims=True) * x,), lambda h, k, e1, e2, e3, e4: ((1 - (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e2 + np.sum(np.where(t1, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d6, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h, (1 - (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5)) * np.tanh(e4 + np.sum(np.where(t1, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e1 + np.sum(np.where(t1, d3, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d3, 0), along("j"), keepdims=True) * k)) + 0.5) * h) + np.sum(np.where(t3, d8, 0), along("j"), keepdims=True) * ((0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k)) + (0.5 * np.tanh(0.5 * (e3 + np.sum(np.where(t1, d7, 0), along("j"), keepdims=True) * h + np.sum(np.where(t3, d7, 0), along("j"), keepdims=True) * k)) + 0.5) * k,)), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'W': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"g": 4, "i": 5, "j": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"gru_final_state, l = {length}", arrays, scalars))
    return 0 if passed_over(gru_final_state, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
