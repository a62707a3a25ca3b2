"""layernorm_gemm: one pass over l, 6 words of state per row, commutative merge.

Y_mn = Σ_l ((X_ml − μ_m)/σ_m·γ_l + β_l) W_ln.

The operator
    layernorm_gemm(X[m, l], g[l], b[l], W[l, n]):
        t1 = X - sum(X, l) / size(l)
        return sum((t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) * g + b) * W, l)

One more element (a prime marks the new value)
    x   = W[l,n]·g[l]
    s'  = s + X[m,l]
    N'  = N + 1
    p1' = s'/N'
    δ   = p1 − p1'
    s2' = s2 + δ²·N + (X[m,l] − p1')²
    s1' = s1 + δ·s4 + x·(X[m,l] − p1')
    s4' = s4 + x
    s5' = s5 + W[l,n]·b[l]

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    δ_a  = p1_a − p1'
    δ_b  = p1_b − p1'
    s2'  = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b
    s1'  = s1_a + δ_a·s4_a + s1_b + δ_b·s4_b
    s4'  = s4_a + s4_b
    s5'  = s5_a + s5_b

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 3186c7520d3db674c8d3f5aefb340a9b71b61864c892de409e2e98c0738860cf
Schedule: tiles of 512 along l, blocks of 256 along m, rows shared between threads
Needs NumPy and Numba (and SciPy, where Numba finds BLAS for np.dot).  `python layernorm_gemm_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from contextlib import nullcontext
from math import prod

import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"X": "m l", "g": "l", "b": "l", "W": "l n"}
DTYPES = {"X": "float32", "g": "float32", "b": "float32", "W": "float32"}
TILE, BLOCK = 512, 256


def layernorm_gemm(X, g, b, W, *, threads=None):
    """layernorm_gemm in one pass over l.

    Takes float32 X[…, m, l], float32 g[…, l], float32 b[…, l], float32 W[…, l, n]; gives float32 […, m, n].
    Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X, "g": g, "b": b, "W": W}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "m n", f4)
    items = prod(batch) * -(-lengths["m"] // BLOCK)
    with one_blas_thread():
        kernel(
            threads or get_num_threads(), items, TILE, BLOCK,
            *laid_out(arrays["X"], INPUTS["X"], "m l", batch),
            *laid_out(arrays["g"], INPUTS["g"], "l", batch),
            *laid_out(arrays["b"], INPUTS["b"], "l", batch),
            *laid_out(arrays["W"], INPUTS["W"], "l n", batch),
            lengths["m"], lengths["l"], lengths["n"], out0)
    return given_back(out0, batch, "m n", "m n")


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


@njit(**PART)
def add(into, product):
    """into += product."""
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            into[i, j] += product[i, j]


@njit(**PART)
def keep(p1, s4, old_p1, old_s4):
    for at0 in range(p1.shape[0]):
        old_p1[at0] = p1[at0]
    for at0 in range(s4.shape[0]):
        old_s4[at0] = s4[at0]


@njit(**LOOP)
def fold_0(g, P1, v_b, P2, n):
    wide_vectors()
    for i_l in range(n):
        P1[i_l] = f4(f8(g[i_l]))
        P2[i_l] = f4(f8(v_b[i_l]))


@njit(**LOOP)
def fold_0_rows(X, n):
    wide_vectors()
    s = 0.0
    for i_l in range(n):
        s = s + f8(X[i_l])
    return s


@njit(**PART)
def value_1_rows(s, N):
    t1 = s / f8(N)
    p1 = t1
    return p1


@njit(**PART)
def rebase_1(s2, old_p1, p1, old_N):
    t1 = old_p1 if np.isfinite(old_p1) else 0.0
    t2 = p1 if np.isfinite(p1) else 0.0
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = 0.0 if f8(old_N) == 0.0 else t4 * f8(old_N)
    t6 = s2 + t5
    s2 = t6
    return s2


@njit(**PART)
def rebase_1_b(s1, old_p1, p1, old_s4, n_n):
    t1 = old_p1 if np.isfinite(old_p1) else 0.0
    t2 = p1 if np.isfinite(p1) else 0.0
    t3 = t1 - t2
    for i_n in range(n_n):
        t4 = f4(0.0) if old_s4[i_n] == f4(0.0) else f4(t3) * old_s4[i_n]
        t5 = s1[i_n] + t4
        s1[i_n] = t5


@njit(**LOOP)
def fold_1(X, p1, g, P3, n):
    wide_vectors()
    s2 = 0.0
    t1 = p1 if np.isfinite(p1) else 0.0
    for i_l in range(n):
        t2 = f8(X[i_l]) - t1
        t3 = t2 * t2
        s2 = s2 + t3
        t4 = f8(g[i_l]) * t2
        P3[i_l] = f4(t4)
    return s2


@njit(**PART)
def finish(s, N, p1, s2):
    t1 = s / f8(N)
    p1 = t1
    t2 = p1
    t3 = t2 - t2
    t4 = t3 * t3
    t5 = t4 * 1.0
    t6 = 1.0 + t5
    t7 = t6 != t6
    t8 = s2 - s2
    t9 = t8 == 0.0
    t10 = p1 - p1
    t11 = t10 == 0.0
    t12 = p1 if t11 else f8(0)
    t13 = t12 - p1
    t14 = t13 * t13
    t15 = t14 * f8(N)
    t16 = s2 + t15
    t17 = t16 if t9 else nan
    t18 = t17 if t7 else s2
    s2 = t18
    return p1, s2


@njit(**PART)
def finish_b(s1, p1, s4, n_n):
    t1 = p1
    t2 = t1 - t1
    t3 = t2 * 1.0
    t4 = 1.0 + t3
    t5 = t4 != t4
    t8 = p1 - p1
    t9 = t8 == 0.0
    t10 = p1 if t9 else f8(0)
    t11 = t10 - p1
    for i_n in range(n_n):
        t6 = s1[i_n] - s1[i_n]
        t7 = t6 == f4(0.0)
        t12 = f4(t11) * s4[i_n]
        t13 = s1[i_n] + t12
        t14 = t13 if t7 else f4(nan)
        t15 = t14 if t5 else s1[i_n]
        s1[i_n] = t15


@njit(**PART)
def finish_c(s2, N):
    t1 = s2 / f8(N)
    t2 = t1 + 1e-05
    t3 = np.sqrt(t2)
    p2 = t3
    return p2


@njit(**PART)
def finish_d(s3, p2, s1, s5, n_n, out0):
    t1 = 1.0 / p2
    for i_n in range(n_n):
        t2 = f4(t1) * s1[i_n]
        t3 = t2 + s5[i_n]
        s3[i_n] = t3
    for i_n in range(n_n):
        out0[i_n] = s3[i_n]


@njit(**PART)
def empty_state(s, s4, s5, s2, s1, p1, p2, s3):
    for at0 in range(s.shape[0]):
        s[at0] = 0.0
    for at0 in range(s4.shape[0]):
        s4[at0] = f4(0.0)
    for at0 in range(s5.shape[0]):
        s5[at0] = f4(0.0)
    for at0 in range(s2.shape[0]):
        s2[at0] = 0.0
    for at0 in range(s1.shape[0]):
        for at1 in range(s1.shape[1]):
            s1[at0, at1] = f4(0.0)
    for at0 in range(p1.shape[0]):
        p1[at0] = 0
    for at0 in range(p2.shape[0]):
        p2[at0] = 0
    for at0 in range(s3.shape[0]):
        for at1 in range(s3.shape[1]):
            s3[at0, at1] = 0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, b_g, g, b_b, v_b, b_W, W, n_m, n_l, n_n, out0):
    wide_vectors()
    s = np.empty((block,), f8)
    s4 = np.empty((n_n,), f4)
    s5 = np.empty((n_n,), f4)
    s2 = np.empty((block,), f8)
    s1 = np.empty((block, n_n,), f4)
    p1 = np.empty((block,), f8)
    p2 = np.empty((block,), f8)
    s3 = np.empty((block, n_n,), f4)
    old_p1 = np.empty((block,), f8)
    old_s4 = np.empty((n_n,), f4)
    P1_all = np.empty(tile, f4)
    R1_all = np.empty((1, n_n), f4)
    P2_all = np.empty(tile, f4)
    R2_all = np.empty((1, n_n), f4)
    P3_all = np.empty(block * tile, f4)
    R3_all = np.empty((block, n_n), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        blocks = (n_m + block - 1) // block
        i0 = rest % blocks * block
        nb = min(block, n_m - i0)
        rest //= blocks
        b = rest
        N = i8(0)
        empty_state(s, s4, s5, s2, s1, p1, p2, s3)
        for t0 in range(begin, end, tile):
            n = min(tile, end - t0)
            seen = t0 + n - begin
            g_tile = g[b_g[b], t0:t0 + n]
            v_b_tile = v_b[b_b[b], t0:t0 + n]
            W_tile = W[b_W[b], t0:t0 + n]
            P1 = P1_all[:1 * n].reshape((1, n))
            P2 = P2_all[:1 * n].reshape((1, n))
            P3 = P3_all[:nb * n].reshape((nb, n))
            old_N = N
            keep(p1, s4, old_p1, old_s4)
            N += 1 * n
            fold_0(g_tile, P1[0], v_b_tile, P2[0], n)
            np.dot(P1, W_tile, R1_all[:1])
            add(s4.reshape((1, n_n)), R1_all[:1])
            np.dot(P2, W_tile, R2_all[:1])
            add(s5.reshape((1, n_n)), R2_all[:1])
            for i in range(nb):
                i_m = i0 + i
                r0 = fold_0_rows(X[b_X[b], i_m, t0:t0 + n], n)
                s[i] = s[i] + r0
            for i in range(nb):
                i_m = i0 + i
                p1[i] = value_1_rows(s[i], N)
            for i in range(nb):
                i_m = i0 + i
                if t0 > begin:
                    s2[i] = rebase_1(s2[i], old_p1[i], p1[i], old_N)
                    rebase_1_b(s1[i], old_p1[i], p1[i], old_s4, n_n)
                r0 = fold_1(X[b_X[b], i_m, t0:t0 + n], p1[i], g_tile, P3[i], n)
                s2[i] = s2[i] + r0
            np.dot(P3, W_tile, R3_all[:nb])
            add(s1[:nb], R3_all[:nb])
        for i in range(nb):
            i_m = i0 + i
            p1[i], s2[i] = finish(s[i], N, p1[i], s2[i])
            finish_b(s1[i], p1[i], s4, n_n)
            p2[i] = finish_c(s2[i], N)
            finish_d(s3[i], p2[i], s1[i], s5, n_n, out0[b, i_m])


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, b_g, g, b_b, v_b, b_W, W, n_m, n_l, n_n, out0):
    for part in prange(threads):
        sweep(part * items // threads, (part + 1) * items // threads, tile, block, b_X, X, b_g, g, b_b, v_b, b_W, W, n_m, n_l, n_n, out0)


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


AXES = ('m', 'l', 'n')


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


def definition(X, g, b, W):
    """layernorm_gemm as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'm l')
    g = spread(g, 'l')
    b = spread(b, 'l')
    W = spread(W, 'l n')
    lengths = {"m": X.shape[-3], "l": X.shape[-2], "n": W.shape[-1]}
    t1 = X - reduced("sum", X, "l") / lengths["l"]
    return taken_out(reduced("sum", (t1 / np.sqrt(reduced("sum", t1 * t1, "l") / lengths["l"] + 1e-05) * g + b) * W, "l"), 'm n', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal', 'g': 'normal', 'b': 'normal', 'W': 'normal'}, {}, []
    for length in (257, 1031, 2557):
        sizes, rng = {"m": 259, "n": 8, "l": length}, np.random.default_rng(length)
        shapes = {name: () + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"layernorm_gemm, l = {length}", arrays, scalars))
    return 0 if passed_over(layernorm_gemm, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
