"""alibi_attention: one pass over l, 3 words of state per row, commutative merge.

Attention with the bias slope_h (l − m) added to the scores.

The operator
    alibi_attention(Q[h, m, k], K[l, k], V[l, j], slope[h]; scale=1.0):
        t1 = sum(Q * K, k) * scale + slope * (index(l) - index(m))
        t2 = exp(t1 - max(t1, l))
        return sum(t2 * V, l) / sum(t2, l)

One more element (a prime marks the new value)
    x   = scale·Σ_k Q[h,m,k]·K[l,k] + slope[h]·(l − m)
    m2' = max(m2, x)
    s'  = s·exp(m2 − m2') + V[l,j]·exp(x − m2')
    s2' = s2·exp(m2 − m2') + exp(x − m2')

Two states a and b
    m2' = max(m2_a, m2_b)
    s'  = s_a·exp(m2_a − m2') + s_b·exp(m2_b − m2')
    s2' = s2_a·exp(m2_a − m2') + s2_b·exp(m2_b − m2')

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum
Certificate: sha256 e47b8c99c91de4d9ad36ea95ddb0379baec3528eae63dd776e42883241ea1418
Schedule: tiles of 512 along l, blocks of 256 along m, rows shared between threads
Needs NumPy and Numba (and SciPy, where Numba finds BLAS for np.dot).  `python alibi_attention_cpu.py` checks it.
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


INPUTS = {"Q": "h m k", "K": "l k", "V": "l j", "slope": "h"}
DTYPES = {"Q": "float32", "K": "float32", "V": "float32", "slope": "float32"}
TILE, BLOCK = 512, 256


def alibi_attention(Q, K, V, slope, *, scale=1.0, threads=None):
    """alibi_attention in one pass over l.

    Takes float32 Q[…, h, m, k], float32 K[…, l, k], float32 V[…, l, j], float32 slope[…, h]; gives float32 […, h,
    m, j].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"Q": Q, "K": K, "V": V, "slope": slope}, {"scale": scale}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "h m j", f4)
    items = prod(batch) * lengths["h"] * -(-lengths["m"] // BLOCK)
    with one_blas_thread():
        kernel(
            threads or get_num_threads(), items, TILE, BLOCK,
            *laid_out(arrays["Q"], INPUTS["Q"], "h m k", batch),
            *laid_out(arrays["K"], INPUTS["K"], "l k", batch),
            *laid_out(arrays["V"], INPUTS["V"], "l j", batch),
            *laid_out(arrays["slope"], INPUTS["slope"], "h", batch),
            f8(scalars["scale"]),
            lengths["h"], lengths["m"], lengths["k"], lengths["l"], lengths["j"], out0)
    return given_back(out0, batch, "h m j", "h m j")


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


@njit(**PART, fastmath={"contract"})
def exp4(x):
    """e^x in float32, at most 2 ulp off; below 2^-125 it is 0, e^-inf among them; NaN stays, overflow is inf."""
    x = f4(-87.3) if x < f4(-87.3) else x
    x = f4(89.0) if x > f4(89.0) else x
    near = x * f4(1.4426950408889634) + f4(12582912.0)
    n = near - f4(12582912.0)
    r = x - n * f4(0.693359375)
    r = r - n * f4(-2.12194440e-4)
    p = f4(2 * 0.0013836793680186274)
    p = p * r + f4(2 * 0.008374857072283892)
    p = p * r + f4(2 * 0.04166822868935028)
    p = p * r + f4(2 * 0.16666419680479821)
    p = p * r + f4(2 * 0.49999992056069475)
    p = p * r + f4(2.0)
    p = p * r + f4(2.0)
    return p * i4((f4(near).view(i4) << i4(23)) + i4(126 << 23)).view(f4)


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
def add(into, product):
    """into += product."""
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            into[i, j] += product[i, j]


@njit(**PART)
def keep(m2, old_m2):
    for at0 in range(m2.shape[0]):
        old_m2[at0] = m2[at0]


@njit(**LOOP)
def fold_0(S1, scale, slope, start, i_m, n):
    wide_vectors()
    m2 = f4(-inf)
    for i_l in range(n):
        t1 = S1[i_l] * f4(scale)
        t2 = (start + i_l) - i_m
        t3 = f4(f8(slope)) * f4(t2)
        t4 = t1 + t3
        m2 = larger(m2, t4)
    return m2


@njit(**PART)
def rebase_1(s, old_m2, m2, n_j):
    t1 = old_m2 if np.isfinite(old_m2) else 0.0
    t2 = m2 if np.isfinite(m2) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    for i_j in range(n_j):
        t5 = f4(0.0) if s[i_j] == f4(0.0) else f4(t4) * s[i_j]
        s[i_j] = t5


@njit(**PART)
def rebase_1_b(old_m2, m2, s2):
    t1 = old_m2 if np.isfinite(old_m2) else 0.0
    t2 = m2 if np.isfinite(m2) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = 0.0 if s2 == 0.0 else t4 * s2
    s2 = t5
    return s2


@njit(**LOOP)
def fold_1(S1, scale, slope, start, i_m, m2, P1, n):
    wide_vectors()
    s2 = f4(0.0)
    t5 = m2 if np.isfinite(m2) else 0.0
    for i_l in range(n):
        t1 = S1[i_l] * f4(scale)
        t2 = (start + i_l) - i_m
        t3 = f4(f8(slope)) * f4(t2)
        t4 = t1 + t3
        t6 = t4 - f4(t5)
        t7 = exp4(t6)
        P1[i_l] = t7
        s2 = s2 + t7
    return s2


@njit(**PART)
def finish(s, m2, n_j):
    t1 = m2
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 * 1.0
    t5 = t4 != t4
    t6 = m2 - m2
    t7 = t6 == 0.0
    t8 = m2 if t7 else f8(0)
    t9 = t8 - m2
    t10 = math.exp(t9)
    for i_j in range(n_j):
        t11 = f4(t10) * s[i_j]
        t12 = t11 if t5 else s[i_j]
        s[i_j] = t12


@njit(**PART)
def finish_b(m2, s2):
    t1 = m2
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 * 1.0
    t5 = t4 != t4
    t6 = m2 - m2
    t7 = t6 == 0.0
    t8 = m2 if t7 else f8(0)
    t9 = t8 - m2
    t10 = math.exp(t9)
    t11 = t10 * s2
    t12 = t11 if t5 else s2
    s2 = t12
    return s2


@njit(**PART)
def finish_c(out0, s2, s, n_j):
    t1 = 1.0 / s2
    for i_j in range(n_j):
        t2 = s[i_j] * f4(t1)
        out0[i_j] = t2


@njit(**PART)
def empty_state(m2, s, s2):
    for at0 in range(m2.shape[0]):
        m2[at0] = (-inf)
    for at0 in range(s.shape[0]):
        for at1 in range(s.shape[1]):
            s[at0, at1] = f4(0.0)
    for at0 in range(s2.shape[0]):
        s2[at0] = 0.0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_Q, Q, b_K, K, b_V, V, b_slope, slope, scale, n_h, n_m, n_k, n_l, n_j, out0):
    wide_vectors()
    m2 = np.empty((block,), f8)
    s = np.empty((block, n_j,), f4)
    s2 = np.empty((block,), f8)
    old_m2 = np.empty((block,), f8)
    S1_all = np.empty(block * tile, f4)
    P1_all = np.empty(block * tile, f4)
    R1_all = np.empty((block, n_j), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        blocks = (n_m + block - 1) // block
        i0 = rest % blocks * block
        nb = min(block, n_m - i0)
        rest //= blocks
        i_h = rest % n_h
        rest //= n_h
        b = rest
        empty_state(m2, s, s2)
        for t0 in range(begin, end, tile):
            n = min(tile, end - t0)
            seen = t0 + n - begin
            K_tile = K[b_K[b], t0:t0 + n]
            V_tile = V[b_V[b], t0:t0 + n]
            S1 = S1_all[:nb * n].reshape((nb, n,))
            P1 = P1_all[:nb * n].reshape((nb, n))
            np.dot(Q[b_Q[b], i_h, i0:i0 + nb], K_tile.T, S1)
            keep(m2, old_m2)
            for i in range(nb):
                i_m = i0 + i
                r0 = fold_0(S1[i], scale, slope[b_slope[b], i_h], t0, i_m, n)
                m2[i] = larger(m2[i], f8(r0))
            for i in range(nb):
                i_m = i0 + i
                if t0 > begin:
                    rebase_1(s[i], old_m2[i], m2[i], n_j)
                    s2[i] = rebase_1_b(old_m2[i], m2[i], s2[i])
                r0 = fold_1(S1[i], scale, slope[b_slope[b], i_h], t0, i_m, m2[i], P1[i], n)
                s2[i] = s2[i] + f8(r0)
            np.dot(P1, V_tile, R1_all[:nb])
            add(s[:nb], R1_all[:nb])
        for i in range(nb):
            i_m = i0 + i
            finish(s[i], m2[i], n_j)
            s2[i] = finish_b(m2[i], s2[i])
            finish_c(out0[b, i_h, i_m], s2[i], s[i], n_j)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_Q, Q, b_K, K, b_V, V, b_slope, slope, scale, n_h, n_m, n_k, n_l, n_j, out0):
    for part in prange(threads):
        sweep(part * items // threads, (part + 1) * items // threads, tile, block, b_Q, Q, b_K, K, b_V, V, b_slope, slope, scale, n_h, n_m, n_k, n_l, n_j, out0)


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


AXES = ('h', 'm', 'k', 'l', 'j')


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


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in AXES])


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


def definition(Q, K, V, slope, scale):
    """alibi_attention as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    Q = spread(Q, 'h m k')
    K = spread(K, 'l k')
    V = spread(V, 'l j')
    slope = spread(slope, 'h')
    lengths = {"h": Q.shape[-5], "m": Q.shape[-4], "k": Q.shape[-3], "l": K.shape[-2], "j": V.shape[-1]}
    t1 = reduced("sum", Q * K, "k") * scale + slope * (positions("l", lengths["l"]) - positions("m", lengths["m"]))
    t2 = np.exp(t1 - reduced("max", t1, "l"))
    return taken_out(reduced("sum", t2 * V, "l") / reduced("sum", t2, "l"), 'h m j', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'Q': 'normal', 'K': 'normal', 'V': 'normal', 'slope': 'normal'}, {'scale': 1.0}, []
    for length in (257, 1031, 2557):
        sizes, rng = {"h": 10, "m": 259, "k": 7, "j": 9, "l": length}, np.random.default_rng(length)
        shapes = {name: () + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"alibi_attention, l = {length}", arrays, scalars))
    return 0 if passed_over(alibi_attention, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
