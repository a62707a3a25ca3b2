"""hmm_forward: one pass over l, 13 words of state per row, ordered merge.

α_l(j) = Σ_i α_{l−1}(i) e^{A_ij + E_l(j)} over three states, from e^{π + E_1}: log Σ α_L.

The operator
    hmm_forward(E[l, s], A[s, t], pi[s]):
        t1 = index(s) == 0
        t2 = index(l) == 0
        t3 = index(t) == 0
        d1 = sum(where(t1, A, 0), s)
        t4 = index(s) == 1
        d2 = sum(where(t4, A, 0), s)
        t5 = index(s) == 2
        d3 = sum(where(t5, A, 0), s)
        t6 = index(t) == 1
        t7 = index(t) == 2
        return log(scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0), place=0) + scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0), place=1) + scan(lambda a, b, c: (exp(sum(where(t1, E, 0), s)) * where(t2, exp(sum(where(t1, pi, 0), s)), a * exp(sum(where(t3, d1, 0), t)) + b * exp(sum(where(t3, d2, 0), t)) + c * exp(sum(where(t3, d3, 0), t))), exp(sum(where(t4, E, 0), s)) * where(t2, exp(sum(where(t4, pi, 0), s)), a * exp(sum(where(t6, d1, 0), t)) + b * exp(sum(where(t6, d2, 0), t)) + c * exp(sum(where(t6, d3, 0), t))), exp(sum(where(t5, E, 0), s)) * where(t2, exp(sum(where(t5, pi, 0), s)), a * exp(sum(where(t7, d1, 0), t)) + b * exp(sum(where(t7, d2, 0), t)) + c * exp(sum(where(t7, d3, 0), t)))), l, (0.0, 0.0, 0.0), place=2))

One more element (a prime marks the new value)
    h1'  = h1·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + h6·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h9·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h'   = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + (exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_s (pi[s] if s = 0 else 0)) if l = 0 else 0) + h2·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h3·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h4'  = h4·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + h7·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h10·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h5'  = h5·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0))) + h8·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))) + h11·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 0 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 0 else 0)))
    h6'  = h1·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + h6·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h9·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h2'  = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + (exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_s (pi[s] if s = 1 else 0)) if l = 0 else 0) + h2·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h3·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h7'  = h4·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + h7·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h10·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h8'  = h5·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0))) + h8·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))) + h11·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 1 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 1 else 0)))
    h9'  = h1·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + h6·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h9·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    h3'  = h·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + (exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_s (pi[s] if s = 2 else 0)) if l = 0 else 0) + h2·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h3·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    h10' = h4·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + h7·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h10·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    h11' = h5·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 2 else 0))) + h8·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 2 else 0))) + h11·(0 if l = 0 else exp(Σ_s (E[l,s] if s = 2 else 0))·exp(Σ_t (Σ_s (A[s,t] if s = 2 else 0) if t = 2 else 0)))
    e'   = e

Two states a and b
    h1'  = h1_b·h1_a + h4_b·h6_a + h5_b·h9_a
    h'   = h1_b·h_a + h_b + h4_b·h2_a + h5_b·h3_a
    h4'  = h1_b·h4_a + h4_b·h7_a + h5_b·h10_a
    h5'  = h1_b·h5_a + h4_b·h8_a + h5_b·h11_a
    h6'  = h6_b·h1_a + h7_b·h6_a + h8_b·h9_a
    h2'  = h6_b·h_a + h2_b + h7_b·h2_a + h8_b·h3_a
    h7'  = h6_b·h4_a + h7_b·h7_a + h8_b·h10_a
    h8'  = h6_b·h5_a + h7_b·h8_a + h8_b·h11_a
    h9'  = h9_b·h1_a + h10_b·h6_a + h11_b·h9_a
    h3'  = h9_b·h_a + h3_b + h10_b·h2_a + h11_b·h3_a
    h10' = h9_b·h4_a + h10_b·h7_a + h11_b·h10_a
    h11' = h9_b·h5_a + h10_b·h8_a + h11_b·h11_a
    e'   = e_a + e_b

Dangers
    exp(Σ_s (E[l,s] if s = 0 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_s (E[l,s] if s = 1 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_s (E[l,s] if s = 2 else 0)) may overflow: nothing bounds its exponent

Laws:
Certificate: sha256 857b9554527321a6f76c77f15bbc8c9d15ab470168fd4b6b7e9cb765ffe3bc71
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python hmm_forward_cpu.py` checks it.
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


INPUTS = {"E": "l s", "A": "s t", "pi": "s"}
DTYPES = {"E": "float32", "A": "float32", "pi": "float32"}
TILE, BLOCK = 8192, 1


def hmm_forward(E, A, pi, *, threads=None):
    """hmm_forward in one pass over l.

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


@njit(**LOOP)
def make_S3(S3, E, n_s, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        if 2 < n_s:
            t1 = t1 + f8(E[i_l, 2])
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
def steps_0_of_row(h, h2, h3, e, start, S4, A, n_s, n_t, pi, S5, S6, n):
    t2 = 0.0
    if 0 < n_t:
        t3 = 0.0
        if 0 < n_s:
            t3 = t3 + f8(A[0, 0])
        t2 = t2 + t3
    t4 = math.exp(t2)
    t8 = 0.0
    if 0 < n_s:
        t8 = t8 + f8(pi[0])
    t9 = math.exp(t8)
    t13 = 0.0
    if 0 < n_t:
        t14 = 0.0
        if 1 < n_s:
            t14 = t14 + f8(A[1, 0])
        t13 = t13 + t14
    t15 = math.exp(t13)
    t20 = 0.0
    if 0 < n_t:
        t21 = 0.0
        if 2 < n_s:
            t21 = t21 + f8(A[2, 0])
        t20 = t20 + t21
    t22 = math.exp(t20)
    t27 = 0.0
    if 1 < n_t:
        t28 = 0.0
        if 0 < n_s:
            t28 = t28 + f8(A[0, 1])
        t27 = t27 + t28
    t29 = math.exp(t27)
    t33 = 0.0
    if 1 < n_s:
        t33 = t33 + f8(pi[1])
    t34 = math.exp(t33)
    t38 = 0.0
    if 1 < n_t:
        t39 = 0.0
        if 1 < n_s:
            t39 = t39 + f8(A[1, 1])
        t38 = t38 + t39
    t40 = math.exp(t38)
    t45 = 0.0
    if 1 < n_t:
        t46 = 0.0
        if 2 < n_s:
            t46 = t46 + f8(A[2, 1])
        t45 = t45 + t46
    t47 = math.exp(t45)
    t52 = 0.0
    if 2 < n_t:
        t53 = 0.0
        if 0 < n_s:
            t53 = t53 + f8(A[0, 2])
        t52 = t52 + t53
    t54 = math.exp(t52)
    t58 = 0.0
    if 2 < n_s:
        t58 = t58 + f8(pi[2])
    t59 = math.exp(t58)
    t63 = 0.0
    if 2 < n_t:
        t64 = 0.0
        if 1 < n_s:
            t64 = t64 + f8(A[1, 2])
        t63 = t63 + t64
    t65 = math.exp(t63)
    t70 = 0.0
    if 2 < n_t:
        t71 = 0.0
        if 2 < n_s:
            t71 = t71 + f8(A[2, 2])
        t70 = t70 + t71
    t72 = math.exp(t70)
    for i_l in range(0, n):
        t1 = (start + i_l) == 0
        t5 = f8(S4[i_l]) * t4
        t6 = f8(0) if t1 else t5
        t7 = t6 * h
        t10 = f8(S4[i_l]) * t9
        t11 = t10 if t1 else f8(0)
        t12 = t7 + t11
        t16 = f8(S4[i_l]) * t15
        t17 = f8(0) if t1 else t16
        t18 = t17 * h2
        t19 = t12 + t18
        t23 = f8(S4[i_l]) * t22
        t24 = f8(0) if t1 else t23
        t25 = t24 * h3
        t26 = t19 + t25
        t30 = f8(S5[i_l]) * t29
        t31 = f8(0) if t1 else t30
        t32 = t31 * h
        t35 = f8(S5[i_l]) * t34
        t36 = t35 if t1 else f8(0)
        t37 = t32 + t36
        t41 = f8(S5[i_l]) * t40
        t42 = f8(0) if t1 else t41
        t43 = t42 * h2
        t44 = t37 + t43
        t48 = f8(S5[i_l]) * t47
        t49 = f8(0) if t1 else t48
        t50 = t49 * h3
        t51 = t44 + t50
        t55 = f8(S6[i_l]) * t54
        t56 = f8(0) if t1 else t55
        t57 = t56 * h
        t60 = f8(S6[i_l]) * t59
        t61 = t60 if t1 else f8(0)
        t62 = t57 + t61
        t66 = f8(S6[i_l]) * t65
        t67 = f8(0) if t1 else t66
        t68 = t67 * h2
        t69 = t62 + t68
        t73 = f8(S6[i_l]) * t72
        t74 = f8(0) if t1 else t73
        t75 = t74 * h3
        t76 = t69 + t75
        h, h2, h3 = t26, t51, t76
        size = max(max(abs(h), abs(h2)), abs(h3))
        if not 2.0**-300 <= size <= 2.0**300:
            size = max(max((abs(h) if h - h == 0 else 0.0), (abs(h2) if h2 - h2 == 0 else 0.0)), (abs(h3) if h3 - h3 == 0 else 0.0))
            power = 2.0**-600 if size > 2.0**300 else 2.0**600 if 0.0 < size < 2.0**-300 else 1.0
            h, h2, h3 = h * power, h2 * power, h3 * power
            e = e + (600.0 if size > 2.0**300 else -600.0 if 0.0 < size < 2.0**-300 else 0.0)
    return h, h2, h3, e


@njit(**PART)
def finish(h, h2, h3, e):
    t1 = h + h2
    t2 = t1 + h3
    t3 = np.log(t2)
    t4 = 0.6931471805599453 * e
    t5 = t3 + t4
    out0 = f4(t5)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_E, E, b_A, A, b_pi, pi, n_l, n_s, n_t, out0):
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
        h1 = f8(1.0)
        h = f8(0.0)
        h4 = f8(0.0)
        h5 = f8(0.0)
        h6 = f8(0.0)
        h2 = f8(0.0)
        h7 = f8(1.0)
        h8 = f8(0.0)
        h9 = f8(0.0)
        h3 = f8(0.0)
        h10 = f8(0.0)
        h11 = f8(1.0)
        e = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            E_tile = E[b_E[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            S3 = shaped(S3_all, (n,))
            S4 = shaped(S4_all, (n,))
            S5 = shaped(S5_all, (n,))
            S6 = shaped(S6_all, (n,))
            make_S1(S1, E_tile, n_s, n)
            make_S2(S2, E_tile, n_s, n)
            make_S3(S3, E_tile, n_s, n)
            make_S4(S4, S1, n)
            make_S5(S5, S2, n)
            make_S6(S6, S3, n)
            h, h2, h3, e = steps_0_of_row(h, h2, h3, e, t0, S4, A[b_A[b]], n_s, n_t, pi[b_pi[b]], S5, S6, n)
        out0[b] = finish(h, h2, h3, e)


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
    """hmm_forward as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
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
    t5 = positions("s", lengths["s"]) == 2
    d3 = np.sum(np.where(t5, A, 0), along("s"), keepdims=True)
    t6 = positions("t", lengths["t"]) == 1
    t7 = positions("t", lengths["t"]) == 2
    return taken_out(np.log(stepped("l", lengths["l"], 0, "", (0.0, 0.0, 0.0,), (np.exp(np.sum(np.where(t1, E, 0), along("s"), keepdims=True)), t2, np.exp(np.sum(np.where(t4, E, 0), along("s"), keepdims=True)), np.exp(np.sum(np.where(t5, E, 0), along("s"), keepdims=True)),), lambda a, b, c, e1, e2, e3, e4: (e1 * np.where(e2, np.exp(np.sum(np.where(t1, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t3, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t3, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t3, d3, 0), along("t"), keepdims=True))), e3 * np.where(e2, np.exp(np.sum(np.where(t4, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t6, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t6, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t6, d3, 0), along("t"), keepdims=True))), e4 * np.where(e2, np.exp(np.sum(np.where(t5, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t7, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t7, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t7, d3, 0), along("t"), keepdims=True))),)) + stepped("l", lengths["l"], 1, "", (0.0, 0.0, 0.0,), (np.exp(np.sum(np.where(t1, E, 0), along("s"), keepdims=True)), t2, np.exp(np.sum(np.where(t4, E, 0), along("s"), keepdims=True)), np.exp(np.sum(np.where(t5, E, 0), along("s"), keepdims=True)),), lambda a, b, c, e1, e2, e3, e4: (e1 * np.where(e2, np.exp(np.sum(np.where(t1, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t3, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t3, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t3, d3, 0), along("t"), keepdims=True))), e3 * np.where(e2, np.exp(np.sum(np.where(t4, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t6, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t6, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t6, d3, 0), along("t"), keepdims=True))), e4 * np.where(e2, np.exp(np.sum(np.where(t5, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t7, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t7, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t7, d3, 0), along("t"), keepdims=True))),)) + stepped("l", lengths["l"], 2, "", (0.0, 0.0, 0.0,), (np.exp(np.sum(np.where(t1, E, 0), along("s"), keepdims=True)), t2, np.exp(np.sum(np.where(t4, E, 0), along("s"), keepdims=True)), np.exp(np.sum(np.where(t5, E, 0), along("s"), keepdims=True)),), lambda a, b, c, e1, e2, e3, e4: (e1 * np.where(e2, np.exp(np.sum(np.where(t1, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t3, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t3, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t3, d3, 0), along("t"), keepdims=True))), e3 * np.where(e2, np.exp(np.sum(np.where(t4, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t6, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t6, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t6, d3, 0), along("t"), keepdims=True))), e4 * np.where(e2, np.exp(np.sum(np.where(t5, pi, 0), along("s"), keepdims=True)), a * np.exp(np.sum(np.where(t7, d1, 0), along("t"), keepdims=True)) + b * np.exp(np.sum(np.where(t7, d2, 0), along("t"), keepdims=True)) + c * np.exp(np.sum(np.where(t7, d3, 0), along("t"), keepdims=True))),))), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'E': 'normal', 'A': 'normal', 'pi': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"s": 7, "t": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"hmm_forward, l = {length}", arrays, scalars))
    return 0 if passed_over(hmm_forward, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
