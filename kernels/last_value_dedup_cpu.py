"""last_value_dedup: one pass over l, 9 words of state per row, commutative merge.

For each of three keys the v with the latest t (0 if the key never occurs); the last and the first v.

The operator
    last_value_dedup(v[l], k[l], t[l]):
        return sum(where(index(l) == argmax(t, l, where=k == 0), v, 0), l), sum(where(index(l) == argmax(t, l, where=k == 1), v, 0), l), sum(where(index(l) == argmax(t, l, where=k == 2), v, 0), l), sum(where(index(l) == max(index(l), l), v, 0), l), sum(where(index(l) == 0, v, 0), l)

One more element (a prime marks the new value)
    i'  = l if t[l] > t[i] else i   element where k[l] = 0
    s'  = (s if i = i' else 0) + (v[l] if l = i' else 0)
    i2' = l if t[l] > t[i2] else i2   element where k[l] = 1
    s2' = (s2 if i2 = i2' else 0) + (v[l] if l = i2' else 0)
    i3' = l if t[l] > t[i3] else i3   element where k[l] = 2
    s3' = (s3 if i3 = i3' else 0) + (v[l] if l = i3' else 0)
    m'  = max(m, l)
    s4' = (s4 if m = m' else 0) + (v[l] if l = m' else 0)
    s5' = s5 + (v[l] if l = 0 else 0)

Two states a and b
    i'  = i_b if t[i_b] > t[i_a] else i_a
    s'  = (s_a if i_a = i' else 0) + (s_b if i_b = i' else 0)
    i2' = i2_b if t[i2_b] > t[i2_a] else i2_a
    s2' = (s2_a if i2_a = i2' else 0) + (s2_b if i2_b = i2' else 0)
    i3' = i3_b if t[i3_b] > t[i3_a] else i3_a
    s3' = (s3_a if i3_a = i3' else 0) + (s3_b if i3_b = i3' else 0)
    m'  = max(m_a, m_b)
    s4' = (s4_a if m_a = m' else 0) + (s4_b if m_b = m' else 0)
    s5' = s5_a + s5_b

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant, reset
Certificate: sha256 6134fa43b3e0d690221e74725e467d2b0302bedb71b70ac771d78079b7a58f9b
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python last_value_dedup_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"v": "l", "k": "l", "t": "l"}
DTYPES = {"v": "float32", "k": "float32", "t": "float32"}
TILE, BLOCK = 8192, 1


def last_value_dedup(v, k, t, *, threads=None):
    """last_value_dedup in one pass over l.

    Takes float32 v[…, l], float32 k[…, l], float32 t[…, l]; gives float32 […], float32 […], float32 […], float32
    […], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"v": v, "k": k, "t": t}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    out2 = written(lengths, batch, "", f4)
    out3 = written(lengths, batch, "", f4)
    out4 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["v"], INPUTS["v"], "l", batch),
        *laid_out(arrays["k"], INPUTS["k"], "l", batch),
        *laid_out(arrays["t"], INPUTS["t"], "l", batch),
        lengths["l"], out0, out1, out2, out3, out4)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""), given_back(out2, batch, "", ""), given_back(out3, batch, "", ""), given_back(out4, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


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


def _beats(builder, value, best):
    """Whether a value beats another, and whether it equals that: NaN beats numbers, and equals NaN."""
    nan, other = builder.fcmp_unordered("uno", value, value), builder.fcmp_unordered("uno", best, best)
    beats = builder.or_(builder.fcmp_ordered(">", value, best), builder.and_(nan, builder.not_(other)))
    return beats, builder.or_(builder.fcmp_ordered("==", value, best), builder.and_(nan, other))


@intrinsic
def comes_first(context, value, best, at):
    """Whether a value beats one found earlier: NaN beats numbers, equals keep their order, at < 0 is an empty place."""
    def emit(context, builder, signature, args):
        beats, _ = _beats(builder, *args[:2])
        return builder.or_(beats, builder.icmp_signed("<", args[2], args[2].type(0)))
    return types.boolean(value, value, types.int64), emit


@njit(**LOOP)
def fold_0(k, start, n):
    wide_vectors()
    any1 = False
    any2 = False
    any3 = False
    m = -4611686018427387904
    for i_l in range(n):
        t1 = k[i_l] == f4(0.0)
        any1 = any1 | t1
        t2 = k[i_l] == f4(1.0)
        any2 = any2 | t2
        t3 = k[i_l] == f4(2.0)
        any3 = any3 | t3
        m = max(m, (start + i_l))
    return any1, any2, any3, m


@njit(**LOOP)
def best_i(i_, i_value, k, t, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(-inf)
        for i in range(nb):
            i_l = i0 + i
            t1 = k[np.uint64(i_l)] == f4(0.0)
            r0 = larger(r0, (t[np.uint64(i_l)] if t1 else f4(-inf)))
        if comes_first(f8(r0), i_value, i_):
            for i in range(nb):
                i_l = i0 + i
                t1 = k[np.uint64(i_l)] == f4(0.0)
                if t1 and comes_first(f8(t[np.uint64(i_l)]), i_value, i_):
                    i_, i_value = (start + i_l), f8(t[np.uint64(i_l)])
    return i_, i_value


@njit(**LOOP)
def best_i2(i2, i2_value, k, t, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(-inf)
        for i in range(nb):
            i_l = i0 + i
            t1 = k[np.uint64(i_l)] == f4(1.0)
            r0 = larger(r0, (t[np.uint64(i_l)] if t1 else f4(-inf)))
        if comes_first(f8(r0), i2_value, i2):
            for i in range(nb):
                i_l = i0 + i
                t1 = k[np.uint64(i_l)] == f4(1.0)
                if t1 and comes_first(f8(t[np.uint64(i_l)]), i2_value, i2):
                    i2, i2_value = (start + i_l), f8(t[np.uint64(i_l)])
    return i2, i2_value


@njit(**LOOP)
def best_i3(i3, i3_value, k, t, start, n):
    wide_vectors()
    for i0 in range(0, n, 256):
        nb = 256 if i0 + 256 < n else n - i0
        r0 = f4(-inf)
        for i in range(nb):
            i_l = i0 + i
            t1 = k[np.uint64(i_l)] == f4(2.0)
            r0 = larger(r0, (t[np.uint64(i_l)] if t1 else f4(-inf)))
        if comes_first(f8(r0), i3_value, i3):
            for i in range(nb):
                i_l = i0 + i
                t1 = k[np.uint64(i_l)] == f4(2.0)
                if t1 and comes_first(f8(t[np.uint64(i_l)]), i3_value, i3):
                    i3, i3_value = (start + i_l), f8(t[np.uint64(i_l)])
    return i3, i3_value


@njit(**PART)
def pick_s5(start, n, v):
    i_l = 0 - start
    s5 = 0.0
    if 0 <= i_l < n:
        s5 = f8(v[i_l])
    return s5


@njit(**PART)
def rebase_1(old_i, i_, s, old_i2, i2, s2, old_i3, i3, s3, old_m, m, s4):
    t1 = old_i == i_
    t2 = s if t1 else f8(0)
    s = t2
    t3 = old_i2 == i2
    t4 = s2 if t3 else f8(0)
    s2 = t4
    t5 = old_i3 == i3
    t6 = s3 if t5 else f8(0)
    s3 = t6
    t7 = old_m == m
    t8 = s4 if t7 else f8(0)
    s4 = t8
    return s, s2, s3, s4


@njit(**PART)
def pick_s(start, n, i_, v):
    i_l = i_ - start
    s = 0.0
    if 0 <= i_l < n:
        s = f8(v[i_l])
    return s


@njit(**PART)
def pick_s2(start, n, i2, v):
    i_l = i2 - start
    s2 = 0.0
    if 0 <= i_l < n:
        s2 = f8(v[i_l])
    return s2


@njit(**PART)
def pick_s3(start, n, i3, v):
    i_l = i3 - start
    s3 = 0.0
    if 0 <= i_l < n:
        s3 = f8(v[i_l])
    return s3


@njit(**PART)
def pick_s4(start, n, m, v):
    i_l = m - start
    s4 = 0.0
    if 0 <= i_l < n:
        s4 = f8(v[i_l])
    return s4


@njit(**PART)
def finish(i_, s, i2, s2, i3, s3, m, s4, s5):
    t1 = i_ == i_
    t2 = 1.0 if t1 else f8(0)
    t3 = t2 != t2
    t4 = nan if t3 else s
    s = t4
    t5 = i2 == i2
    t6 = 1.0 if t5 else f8(0)
    t7 = t6 != t6
    t8 = nan if t7 else s2
    s2 = t8
    t9 = i3 == i3
    t10 = 1.0 if t9 else f8(0)
    t11 = t10 != t10
    t12 = nan if t11 else s3
    s3 = t12
    t13 = m == m
    t14 = 1.0 if t13 else f8(0)
    t15 = t14 != t14
    t16 = nan if t15 else s4
    s4 = t16
    out0 = f4(s)
    out1 = f4(s2)
    out2 = f4(s3)
    out3 = f4(s4)
    out4 = f4(s5)
    return s, s2, s3, s4, out0, out1, out2, out3, out4


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_v, v, b_k, k, b_t, t, n_l, out0, out1, out2, out3, out4):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        any1 = b1(False)
        i_ = i8(-1)
        i_value = f8(-inf)
        any2 = b1(False)
        i2 = i8(-1)
        i2_value = f8(-inf)
        any3 = b1(False)
        i3 = i8(-1)
        i3_value = f8(-inf)
        m = i8(-4611686018427387904)
        s5 = f8(0.0)
        s = f8(0.0)
        s2 = f8(0.0)
        s3 = f8(0.0)
        s4 = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            k_tile = k[b_k[b], t0:t0 + n]
            t_tile = t[b_t[b], t0:t0 + n]
            v_tile = v[b_v[b], t0:t0 + n]
            old_i = i_
            old_i2 = i2
            old_i3 = i3
            old_m = m
            r0, r1, r2, r3 = fold_0(k_tile, t0, n)
            any1 = any1 | r0
            any2 = any2 | r1
            any3 = any3 | r2
            m = max(m, r3)
            i_, i_value = best_i(i_, i_value, k_tile, t_tile, t0, n)
            i2, i2_value = best_i2(i2, i2_value, k_tile, t_tile, t0, n)
            i3, i3_value = best_i3(i3, i3_value, k_tile, t_tile, t0, n)
            r0 = pick_s5(t0, n, v_tile)
            s5 = s5 + r0
            if t0 > begin:
                s, s2, s3, s4 = rebase_1(old_i, i_, s, old_i2, i2, s2, old_i3, i3, s3, old_m, m, s4)
            r0 = pick_s(t0, n, i_, v_tile)
            s = s + r0
            r0 = pick_s2(t0, n, i2, v_tile)
            s2 = s2 + r0
            r0 = pick_s3(t0, n, i3, v_tile)
            s3 = s3 + r0
            r0 = pick_s4(t0, n, m, v_tile)
            s4 = s4 + r0
        s, s2, s3, s4, out0[b], out1[b], out2[b], out3[b], out4[b] = finish(i_, s, i2, s2, i3, s3, m, s4, s5)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_v, v, b_k, k, b_t, t, n_l, out0, out1, out2, out3, out4):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_v, v, b_k, k, b_t, t, n_l, out0, out1, out2, out3, out4)


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


def positions(axis, length):
    """0, 1, … along an axis."""
    return np.arange(length).reshape([length if each == axis else 1 for each in AXES])


def position_of(function, body, axis, where):
    """Where argmax or argmin finds an element of those that take part; −1 if none does."""
    found = np.any(np.broadcast_to(where, body.shape), axis, keepdims=True)
    return np.where(found, function(body, axis, keepdims=True), -1)


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


def definition(v, k, t):
    """last_value_dedup as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    v = spread(v, 'l')
    k = spread(k, 'l')
    t = spread(t, 'l')
    lengths = {"l": v.shape[-1]}
    return (taken_out(np.sum(np.where(positions("l", lengths["l"]) == position_of(np.argmax, np.where(k == 0, t, -np.inf), along("l"), k == 0), v, 0), along("l"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("l", lengths["l"]) == position_of(np.argmax, np.where(k == 1, t, -np.inf), along("l"), k == 1), v, 0), along("l"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("l", lengths["l"]) == position_of(np.argmax, np.where(k == 2, t, -np.inf), along("l"), k == 2), v, 0), along("l"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("l", lengths["l"]) == np.max(positions("l", lengths["l"]), along("l"), keepdims=True), v, 0), along("l"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("l", lengths["l"]) == 0, v, 0), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'v': 'normal', 'k': 'bits', 't': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"last_value_dedup, l = {length}", arrays, scalars))
    return 0 if passed_over(last_value_dedup, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
