"""moe_routing: one pass over l, 3 words of state per row, commutative merge.

p = softmax over experts l of X W; the k largest p and their experts.

The operator
    moe_routing(X[m, d], W[d, l]; k=2):
        d1 = sum(X * W, d)
        t1 = exp(d1 - max(d1, l))
        t2 = t1 / sum(t1, l)
        return topk(t2, l, k), argtopk(t2, l, k)

One more element (a prime marks the new value)
    x    = Σ_d X[m,d]·W[d,l]
    m2'  = max(m2, x)
    s'   = s·exp(m2 − m2') + exp(x − m2')
    pos' = best_positions(k, pos, l)

Two states a and b
    m2'  = max(m2_a, m2_b)
    s'   = s_a·exp(m2_a − m2') + s_b·exp(m2_b − m2')
    pos' = best_positions(k, pos_a, pos_b)

Dangers
    pos is found among elements without their pivots: where these are not finite, NumPy's is the position of the first NaN

Laws: multiply_commutes, multiply_associates, multiply_one, difference, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum, topk_shifts, topk_scales_by_nonnegative, topk_of_exp, argtopk_ignores_shift,
argtopk_ignores_positive_scale, argtopk_ignores_exp
Certificate: sha256 1ba692c565197e457484e2cdc910e427935ef5232452e7678c09ee377e71c954
Schedule: tiles of 512 along l, blocks of 256 along m, rows shared between threads
Needs NumPy and Numba (and SciPy, where Numba finds BLAS for np.dot).  `python moe_routing_cpu.py` checks it.
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


INPUTS = {"X": "m d", "W": "d l"}
DTYPES = {"X": "float32", "W": "float32"}
TILE, BLOCK = 512, 256


def moe_routing(X, W, *, k=2, threads=None):
    """moe_routing in one pass over l.

    Takes float32 X[…, m, d], float32 W[…, d, l]; gives float32 […, m, top], int64 […, m, top].  Leading
    dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X, "W": W}, {"k": k}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    lengths["top"] = places(scalars["k"], "l", lengths["l"])
    out0 = written(lengths, batch, "m top", f4)
    out1 = written(lengths, batch, "m top", i8)
    items = prod(batch) * -(-lengths["m"] // BLOCK)
    with one_blas_thread():
        kernel(
            threads or get_num_threads(), items, TILE, BLOCK,
            *laid_out(arrays["X"], INPUTS["X"], "m d", batch),
            *laid_out(arrays["W"], INPUTS["W"], "l d", batch),
            i8(scalars["k"]),
            lengths["m"], lengths["d"], lengths["l"], lengths["top"], out0, out1)
    return (given_back(out0, batch, "m top", "m top"), given_back(out1, batch, "m top", "m top"))


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


@njit(**PART, fastmath={"contract"})
def exp8(x):
    """e^x in float64, at most 2 ulp off; e^-inf is 0, NaN stays, overflow is inf, underflow is gradual."""
    x = -746.0 if x < -746.0 else x
    x = 710.0 if x > 710.0 else x
    near = x * 1.4426950408889634 + 6755399441055744.0
    n = near - 6755399441055744.0
    r = x - n * 0.6931471803691238
    r = r - n * 1.9082149292705877e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    k = i8(f8(near).view(i8) - i8(0x4338000000000000))
    half = i8(k >> i8(1))
    return p * i8((half + i8(1023)) << i8(52)).view(f8) * i8((k - half + i8(1023)) << i8(52)).view(f8)


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
def comes_first(value, best, at):
    """Whether a value beats one found earlier: NaN beats numbers, equals keep their order, at < 0 is an empty place."""
    return at < 0 or value > best or (value != value and best == best)


@njit(**PART)
def insert(best, at, value, position):
    """Put a value among the k best so far, largest first."""
    place = best.shape[0] - 1
    if comes_first(value, best[place], at[place]):
        while place > 0 and comes_first(value, best[place - 1], at[place - 1]):
            best[place], at[place] = best[place - 1], at[place - 1]
            place -= 1
        best[place], at[place] = value, position


@njit(**PART)
def keep(m2, old_m2):
    for at0 in range(m2.shape[0]):
        old_m2[at0] = m2[at0]


@njit(**LOOP)
def fold_0(S1, n):
    wide_vectors()
    m2 = f4(-inf)
    for i_l in range(n):
        m2 = larger(m2, S1[i_l])
    return m2


@njit(**LOOP)
def best_pos(pos_value, pos, S1, start, n):
    wide_vectors()
    for i0 in range(0, n, 64):
        nb = min(64, n - i0)
        r0 = f4(-inf)
        for i in range(nb):
            i_l = i0 + i
            r0 = larger(r0, S1[i_l])
        if pos[-1] < 0 or not r0 <= pos_value[-1]:
            for i in range(nb):
                i_l = i0 + i
                insert(pos_value, pos, f8(S1[i_l]), (start + i_l))


@njit(**PART)
def rebase_1(old_m2, m2, s):
    t1 = old_m2 if np.isfinite(old_m2) else 0.0
    t2 = m2 if np.isfinite(m2) else 0.0
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = 0.0 if s == 0.0 else t4 * s
    s = t5
    return s


@njit(**LOOP)
def fold_1(S1, m2, n):
    wide_vectors()
    s = f4(0.0)
    t1 = m2 if np.isfinite(m2) else 0.0
    for i_l in range(n):
        t2 = S1[i_l] - f4(t1)
        t3 = exp4(t2)
        s = s + t3
    return s


@njit(**PART)
def finish(m2, s, top2, pos_value, n_top, out0, out1, pos):
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
    t11 = t10 * s
    t12 = t11 if t5 else s
    s = t12
    t15 = 1.0 / s
    for i_top in range(n_top):
        t13 = pos_value[i_top] - m2
        t14 = exp8(t13)
        t16 = t14 * t15
        top2[i_top] = t16
    for i_top in range(n_top):
        out0[i_top] = f4(top2[i_top])
    for i_top in range(n_top):
        out1[i_top] = pos[i_top]
    return s


@njit(**PART)
def empty_state(m2, pos, pos_value, s, top2):
    for at0 in range(m2.shape[0]):
        m2[at0] = (-inf)
    for at0 in range(pos.shape[0]):
        for at1 in range(pos.shape[1]):
            pos[at0, at1] = -1
    for at0 in range(pos_value.shape[0]):
        for at1 in range(pos_value.shape[1]):
            pos_value[at0, at1] = -inf
    for at0 in range(s.shape[0]):
        s[at0] = 0.0
    for at0 in range(top2.shape[0]):
        for at1 in range(top2.shape[1]):
            top2[at0, at1] = 0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, b_W, W, k, n_m, n_d, n_l, n_top, out0, out1):
    wide_vectors()
    m2 = np.empty((block,), f8)
    pos = np.empty((block, n_top,), i8)
    pos_value = np.empty((block, n_top,), f8)
    s = np.empty((block,), f8)
    top2 = np.empty((block, n_top,), f8)
    old_m2 = np.empty((block,), f8)
    S1_all = np.empty(block * tile, f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        blocks = (n_m + block - 1) // block
        i0 = rest % blocks * block
        nb = min(block, n_m - i0)
        rest //= blocks
        b = rest
        empty_state(m2, pos, pos_value, s, top2)
        for t0 in range(begin, end, tile):
            n = min(tile, end - t0)
            seen = t0 + n - begin
            W_tile = W[b_W[b], t0:t0 + n]
            S1 = S1_all[:nb * n].reshape((nb, n,))
            np.dot(X[b_X[b], i0:i0 + nb], W_tile.T, S1)
            keep(m2, old_m2)
            for i in range(nb):
                i_m = i0 + i
                r0 = fold_0(S1[i], n)
                m2[i] = larger(m2[i], f8(r0))
                best_pos(pos_value[i], pos[i], S1[i], t0, n)
            for i in range(nb):
                i_m = i0 + i
                if t0 > begin:
                    s[i] = rebase_1(old_m2[i], m2[i], s[i])
                r0 = fold_1(S1[i], m2[i], n)
                s[i] = s[i] + f8(r0)
        for i in range(nb):
            i_m = i0 + i
            s[i] = finish(m2[i], s[i], top2[i], pos_value[i], n_top, out0[b, i_m], out1[b, i_m], pos[i])


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, b_W, W, k, n_m, n_d, n_l, n_top, out0, out1):
    for part in prange(threads):
        sweep(part * items // threads, (part + 1) * items // threads, tile, block, b_X, X, b_W, W, k, n_m, n_d, n_l, n_top, out0, out1)


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


def places(number, axis, length):
    """A top-k number that there are enough elements for."""
    if int(number) != number or not 1 <= number <= length:
        raise ValueError(f"{number} of the {length} elements of axis {axis} cannot be chosen: give a whole number from 1 to {length}")
    return int(number)


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


AXES = ('m', 'd', 'l', 'top')


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


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


def chosen(body, axis, at, out):
    """The elements at positions that `largest` found."""
    return np.swapaxes(np.take_along_axis(body, np.swapaxes(at, along(axis), along(out)), along(axis)), along(axis), along(out))


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


def definition(X, W, k):
    """moe_routing as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'm d')
    W = spread(W, 'd l')
    lengths = {"m": X.shape[-4], "d": X.shape[-3], "l": W.shape[-2], "top": k}
    d1 = reduced("sum", X * W, "d")
    t1 = np.exp(d1 - reduced("max", d1, "l"))
    t2 = t1 / reduced("sum", t1, "l")
    return (taken_out(chosen(t2, "l", largest(t2, "l", k, "top"), "top"), 'm top', lengths), taken_out(largest(t2, "l", k, "top"), 'm top', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal', 'W': 'normal'}, {'k': 2}, []
    for length in (257, 1031, 2557):
        sizes, rng = {"m": 259, "d": 5, "l": length}, np.random.default_rng(length)
        shapes = {name: () + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"moe_routing, l = {length}", arrays, scalars))
    return 0 if passed_over(moe_routing, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
