"""ece_fixed_bins: one pass over l, 10 words of state per row, commutative merge.

ECE = Σ_b |Σ_{l in b} c_l − Σ_{l in b} y_l|/N over five bins of equal width.

The operator
    ece_fixed_bins(c[l], y[l]):
        t1 = minimum(floor(5.0 * c), 4)
        t2 = t1 == 0
        t3 = t1 == 1
        t4 = t1 == 2
        t5 = t1 == 3
        t6 = t1 == 4
        return (0 + abs(sum(c, l, where=t2) - sum(y, l, where=t2)) + abs(sum(c, l, where=t3) - sum(y, l, where=t3)) + abs(sum(c, l, where=t4) - sum(y, l, where=t4)) + abs(sum(c, l, where=t5) - sum(y, l, where=t5)) + abs(sum(c, l, where=t6) - sum(y, l, where=t6))) / size(l)

One more element (a prime marks the new value)
    x    = min(⌊5·c[l]⌋, 4)
    s'   = s + c[l]   element where x = 0
    s2'  = s2 + y[l]   element where x = 0
    s3'  = s3 + c[l]   element where x = 1
    s4'  = s4 + y[l]   element where x = 1
    s5'  = s5 + c[l]   element where x = 2
    s6'  = s6 + y[l]   element where x = 2
    s7'  = s7 + c[l]   element where x = 3
    s8'  = s8 + y[l]   element where x = 3
    s9'  = s9 + c[l]   element where x = 4
    s10' = s10 + y[l]   element where x = 4

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    s4'  = s4_a + s4_b
    s5'  = s5_a + s5_b
    s6'  = s6_a + s6_b
    s7'  = s7_a + s7_b
    s8'  = s8_a + s8_b
    s9'  = s9_a + s9_b
    s10' = s10_a + s10_b

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant
Certificate: sha256 10267a264dbd96888b1c02fae522029c666fc9347dd0436f056ba19b632ef21c
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python ece_fixed_bins_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"c": "l", "y": "l"}
DTYPES = {"c": "float32", "y": "float32"}
TILE, BLOCK = 8192, 1


def ece_fixed_bins(c, y, *, threads=None):
    """ece_fixed_bins in one pass over l.

    Takes float32 c[…, l], float32 y[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"c": c, "y": y}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["c"], INPUTS["c"], "l", batch),
        *laid_out(arrays["y"], INPUTS["y"], "l", batch),
        lengths["l"], out0)
    return given_back(out0, batch, "", "")


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit


@intrinsic
def touch(context, array, place):
    """Ask the caches for what lies `place` elements behind the start of an array, be it outside: this never fails."""
    def emit(context, builder, signature, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number]))
        builder.call(fetch, [builder.bitcast(start, byte), number(0), number(3), number(1)])
        return context.get_dummy_value()
    return types.none(array, place), emit


@njit(**PART)
def ahead(tile, first, count, apart, pages, line):
    """Fetch `count` elements that begin `first` behind the start of a tile, `line` at a time, and as many of other `pages`
    that lie so far `apart`, in turn: memory gives several pages at once sooner than one after another.  A tile of more
    than 64 KiB is not fetched: no cache would keep it."""
    if pages * apart > 1024 * line:
        return
    for place in range(first, first + count, line):
        for page in range(pages):
            touch(tile, place + page * apart)


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
def fold_0(c, y, n):
    wide_vectors()
    any1 = False
    s = 0.0
    s2 = 0.0
    any2 = False
    s3 = 0.0
    s4 = 0.0
    any3 = False
    s5 = 0.0
    s6 = 0.0
    any4 = False
    s7 = 0.0
    s8 = 0.0
    any5 = False
    s9 = 0.0
    s10 = 0.0
    for i_l in range(n):
        t1 = 5.0 * f8(c[i_l])
        t2 = np.floor(t1)
        t3 = smaller(t2, 4.0)
        t4 = t3 == 0.0
        any1 = any1 | t4
        s = s + (f8(c[i_l]) if t4 else 0.0)
        s2 = s2 + (f8(y[i_l]) if t4 else 0.0)
        t5 = t3 == 1.0
        any2 = any2 | t5
        s3 = s3 + (f8(c[i_l]) if t5 else 0.0)
        s4 = s4 + (f8(y[i_l]) if t5 else 0.0)
        t6 = t3 == 2.0
        any3 = any3 | t6
        s5 = s5 + (f8(c[i_l]) if t6 else 0.0)
        s6 = s6 + (f8(y[i_l]) if t6 else 0.0)
        t7 = t3 == 3.0
        any4 = any4 | t7
        s7 = s7 + (f8(c[i_l]) if t7 else 0.0)
        s8 = s8 + (f8(y[i_l]) if t7 else 0.0)
        t8 = t3 == 4.0
        any5 = any5 | t8
        s9 = s9 + (f8(c[i_l]) if t8 else 0.0)
        s10 = s10 + (f8(y[i_l]) if t8 else 0.0)
    return any1, s, s2, any2, s3, s4, any3, s5, s6, any4, s7, s8, any5, s9, s10


@njit(**PART)
def finish(s, s2, s3, s4, s5, s6, s7, s8, s9, s10, n_l):
    t1 = s - s2
    t2 = abs(t1)
    t3 = 0.0 + t2
    t4 = s3 - s4
    t5 = abs(t4)
    t6 = t3 + t5
    t7 = s5 - s6
    t8 = abs(t7)
    t9 = t6 + t8
    t10 = s7 - s8
    t11 = abs(t10)
    t12 = t9 + t11
    t13 = s9 - s10
    t14 = abs(t13)
    t15 = t12 + t14
    t16 = t15 / f8(n_l)
    out0 = f4(t16)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_c, c, b_y, y, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        any1 = b1(False)
        s = f8(0.0)
        s2 = f8(0.0)
        any2 = b1(False)
        s3 = f8(0.0)
        s4 = f8(0.0)
        any3 = b1(False)
        s5 = f8(0.0)
        s6 = f8(0.0)
        any4 = b1(False)
        s7 = f8(0.0)
        s8 = f8(0.0)
        any5 = b1(False)
        s9 = f8(0.0)
        s10 = f8(0.0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            c_tile = c[b_c[b], t0:t0 + n]
            y_tile = y[b_y[b], t0:t0 + n]
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(c_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(y_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14 = fold_0(c_tile[at:at + piece], y_tile[at:at + piece], piece)
                any1 = any1 | r0
                s = s + r1
                s2 = s2 + r2
                any2 = any2 | r3
                s3 = s3 + r4
                s4 = s4 + r5
                any3 = any3 | r6
                s5 = s5 + r7
                s6 = s6 + r8
                any4 = any4 | r9
                s7 = s7 + r10
                s8 = s8 + r11
                any5 = any5 | r12
                s9 = s9 + r13
                s10 = s10 + r14
        out0[b] = finish(s, s2, s3, s4, s5, s6, s7, s8, s9, s10, n_l)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_c, c, b_y, y, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_c, c, b_y, y, n_l, out0)


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


def definition(c, y):
    """ece_fixed_bins as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    c = spread(c, 'l')
    y = spread(y, 'l')
    lengths = {"l": c.shape[-1]}
    t1 = np.minimum(np.floor(5.0 * c), 4)
    t2 = t1 == 0
    t3 = t1 == 1
    t4 = t1 == 2
    t5 = t1 == 3
    t6 = t1 == 4
    return taken_out((0 + np.abs(np.sum(np.where(t2, c, 0), along("l"), keepdims=True) - np.sum(np.where(t2, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t3, c, 0), along("l"), keepdims=True) - np.sum(np.where(t3, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t4, c, 0), along("l"), keepdims=True) - np.sum(np.where(t4, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t5, c, 0), along("l"), keepdims=True) - np.sum(np.where(t5, y, 0), along("l"), keepdims=True)) + np.abs(np.sum(np.where(t6, c, 0), along("l"), keepdims=True) - np.sum(np.where(t6, y, 0), along("l"), keepdims=True))) / lengths["l"], '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'c': 'normal', 'y': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"ece_fixed_bins, l = {length}", arrays, scalars))
    return 0 if passed_over(ece_fixed_bins, definition, cases, 0.02) else 1


if __name__ == "__main__":
    sys.exit(main())
