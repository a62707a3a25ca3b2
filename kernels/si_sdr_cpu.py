"""si_sdr: one pass over l, 6 words of state per row, commutative merge.

α = Σ s e/Σ s² of the centred signals; y = 10 log₁₀(Σ (αs)² / Σ (e − αs)²).

The operator
    si_sdr(s[l], e[l]):
        t1 = s - sum(s, l) / size(l)
        t2 = e - sum(e, l) / size(l)
        t3 = sum(t1 * t2, l) / sum(t1 * t1, l) * t1
        return 10.0 * log(sum(t3 ** 2, l) / sum((t2 - t3) ** 2, l)) / log(10.0)

One more element (a prime marks the new value)
    s2' = s2 + s[l]
    s3' = s3 + e[l]
    N'  = N + 1
    p1' = s2'/N'
    p2' = s3'/N'
    δ1  = p1 − p1'
    δ2  = p2 − p2'
    s4' = s4 + δ1·δ2·N + (e[l] − p2')·(s[l] − p1')
    s5' = s5 + δ1²·N + (s[l] − p1')²
    s1' = s1 + δ2²·N + (e[l] − p2')²

Two states a and b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    N'   = N_a + N_b
    p1_a = s2_a/N_a
    p2_a = s3_a/N_a
    p1_b = s2_b/N_b
    p2_b = s3_b/N_b
    p1'  = s2'/N'
    p2'  = s3'/N'
    δ1_a = p1_a − p1'
    δ2_a = p2_a − p2'
    δ1_b = p1_b − p1'
    δ2_b = p2_b − p2'
    s4'  = s4_a + δ1_a·δ2_a·N_a + s4_b + δ1_b·δ2_b·N_b
    s5'  = s5_a + δ1_a²·N_a + s5_b + δ1_b²·N_b
    s1'  = s1_a + δ2_a²·N_a + s1_b + δ2_b²·N_b

Dangers
    s5 divides and may be 0: the result is then what IEEE division gives
    s7 divides and may be 0: the result is then what IEEE division gives
    s7 = s1 − 2·p3·s4 + p3²·s5 is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference
Certificate: sha256 5a9532128682ec329d2ea4999194439083cf633dd8589b2a94497f2e68039a05
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python si_sdr_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"s": "l", "e": "l"}
DTYPES = {"s": "float32", "e": "float32"}
TILE, BLOCK = 1024, 1


def si_sdr(s, e, *, threads=None):
    """si_sdr in one pass over l.

    Takes float32 s[…, l], float32 e[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"s": s, "e": e}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["s"], INPUTS["s"], "l", batch),
        *laid_out(arrays["e"], INPUTS["e"], "l", batch),
        lengths["l"], out0)
    return given_back(out0, batch, "", "")


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@intrinsic
def times(context, factor, x):
    """factor · x, and 0 where x is 0, whatever the factor."""
    def emit(context, builder, signature, args):
        factor, x = args
        zero = ir.Constant(x.type, 0.0)
        return builder.select(builder.fcmp_ordered("==", x, zero), zero, builder.fmul(factor, x))
    return x(x, x), emit


def _finite(builder, x):
    infinity = ir.Constant(x.type, float("inf"))
    size = builder.call(builder.module.declare_intrinsic("llvm.fabs", [x.type], ir.FunctionType(x.type, [x.type])), [x])
    return builder.fcmp_ordered("<", size, infinity)


@intrinsic
def finite(context, x):
    """Whether a number is neither infinite nor NaN."""
    def emit(context, builder, signature, args):
        return _finite(builder, *args)
    return types.boolean(x), emit


@intrinsic
def anchored(context, x):
    """A number, or 0 where it is not finite."""
    def emit(context, builder, signature, args):
        return builder.select(_finite(builder, *args), args[0], ir.Constant(args[0].type, 0.0))
    return x(x), emit


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


larger = _extreme("llvm.maximum")


@njit(**PART)
def minus(a, b):
    """a − b, for sums whose order is free: differences are taken first."""
    return a - b


@njit(**PART)
def apart(x, pivot, real):
    """x − pivot with a pivot in float64: as that and what it lacks, it is two numbers of the type."""
    near = real(pivot)
    return (x - near) - (real(pivot - f8(near)) if finite(near) else real(0.0))


@njit(**PART)
def middle(x):
    """A number near the first elements of an array."""
    total = 0.0
    first = x.size if x.size < 64 else 64
    for place in range(first):
        total += f8(x[place])
    near = f4(total / first)
    return anchored(near)


@njit(**PART)
def sound(total):
    """Whether a sum is finite and so far from 0 that it misses nothing of products too small for float32."""
    return 1e-30 < abs(total) < inf


@njit(**LOOP)
def fold_0(s, e, n, real):
    wide_vectors()
    s2 = real(0.0)
    s3 = real(0.0)
    c0 = middle(s)
    c1 = middle(e)
    for i_l in range(n):
        s2 = s2 + minus(real(s[i_l]), c0)
        s3 = s3 + minus(real(e[i_l]), c1)
    s2 = f8(s2) + f8(n) * f8(c0)
    s3 = f8(s3) + f8(n) * f8(c1)
    return s2, s3


@njit(**PART)
def value_1(s2, N, s3):
    t1 = s2 / f8(N)
    p1 = t1
    t2 = s3 / f8(N)
    p2 = t2
    return p1, p2


@njit(**PART)
def rebase_1(s4, old_p1, p1, old_p2, p2, old_N, s5, s1):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = anchored(old_p2)
    t5 = anchored(p2)
    t6 = t4 - t5
    t7 = t3 * t6
    t8 = times(t7, f8(old_N))
    t9 = s4 + t8
    s4 = t9
    t10 = t3 * t3
    t11 = times(t10, f8(old_N))
    t12 = s5 + t11
    s5 = t12
    t13 = t6 * t6
    t14 = times(t13, f8(old_N))
    t15 = s1 + t14
    s1 = t15
    return s4, s5, s1


@njit(**LOOP)
def fold_1(e, p2, s, p1, n, real):
    wide_vectors()
    s4 = real(0.0)
    s5 = real(0.0)
    s1 = real(0.0)
    t1 = anchored(p2)
    t3 = anchored(p1)
    for i_l in range(n):
        t2 = apart(real(e[i_l]), t1, real)
        t4 = apart(real(s[i_l]), t3, real)
        t5 = t2 * t4
        s4 = s4 + t5
        t6 = t4 * t4
        s5 = s5 + t6
        t7 = t2 * t2
        s1 = s1 + t7
    return s4, s5, s1


@njit(**PART)
def finish(s2, N, s3, p1, p2, s4, s5, s1, p3, s6, s7):
    t1 = s2 / f8(N)
    p1 = t1
    t2 = s3 / f8(N)
    p2 = t2
    t3 = p1
    t4 = t3 - t3
    t5 = p2
    t6 = t5 - t5
    t7 = t4 * t6
    t8 = 1.0 + t7
    t9 = t8 != t8
    t10 = s4 - s4
    t11 = t10 == 0.0
    t12 = p1 - p1
    t13 = t12 == 0.0
    t14 = p1 if t13 else f8(0)
    t15 = t14 - p1
    t16 = p2 - p2
    t17 = t16 == 0.0
    t18 = p2 if t17 else f8(0)
    t19 = t18 - p2
    t20 = t15 * t19
    t21 = t20 * f8(N)
    t22 = s4 + t21
    t23 = t22 if t11 else nan
    t24 = t23 if t9 else s4
    s4 = t24
    t25 = t4 * t4
    t26 = 1.0 + t25
    t27 = t26 != t26
    t28 = s5 - s5
    t29 = t28 == 0.0
    t30 = t15 * t15
    t31 = t30 * f8(N)
    t32 = s5 + t31
    t33 = t32 if t29 else nan
    t34 = t33 if t27 else s5
    s5 = t34
    t35 = t6 * t6
    t36 = 1.0 + t35
    t37 = t36 != t36
    t38 = s1 - s1
    t39 = t38 == 0.0
    t40 = t19 * t19
    t41 = t40 * f8(N)
    t42 = s1 + t41
    t43 = t42 if t39 else nan
    t44 = t43 if t37 else s1
    s1 = t44
    t45 = s4 / s5
    p3 = t45
    t46 = p3 * p3
    t47 = t46 * s5
    s6 = t47
    t48 = (-2.0) * p3
    t49 = t48 * s4
    t50 = s1 + t49
    t51 = t50 + t47
    t52 = larger(t51, 0.0)
    s7 = t52
    t53 = s6 / s7
    t54 = np.log(t53)
    t55 = 10.0 * t54
    t56 = np.log(10.0)
    t57 = t55 / t56
    out0 = f4(t57)
    return p1, p2, s4, s5, s1, p3, s6, s7, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_s, s, b_e, e, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s2 = f8(0.0)
        s3 = f8(0.0)
        N = i8(0)
        s4 = f8(0.0)
        s5 = f8(0.0)
        s1 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        p3 = f8(0)
        s6 = f8(0)
        s7 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            s_tile = s[b_s[b], t0:t0 + n]
            e_tile = e[b_e[b], t0:t0 + n]
            old_p1 = p1
            old_p2 = p2
            old_N = N
            N += 1 * n
            r0, r1 = fold_0(s_tile, e_tile, n, f4)
            if not finite(r0) or not finite(r1):
                r0, r1 = fold_0(s_tile, e_tile, n, f8)
            s2 = s2 + f8(r0)
            s3 = s3 + f8(r1)
            p1, p2 = value_1(s2, N, s3)
            if t0 > begin:
                s4, s5, s1 = rebase_1(s4, old_p1, p1, old_p2, p2, old_N, s5, s1)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(s_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(e_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0, r1, r2 = fold_1(e_tile[at:at + piece], p2, s_tile[at:at + piece], p1, piece, f4)
                if not sound(r0) or not sound(r1) or not sound(r2):
                    r0, r1, r2 = fold_1(e_tile[at:at + piece], p2, s_tile[at:at + piece], p1, piece, f8)
                s4 = s4 + f8(r0)
                s5 = s5 + f8(r1)
                s1 = s1 + f8(r2)
        p1, p2, s4, s5, s1, p3, s6, s7, out0[b] = finish(s2, N, s3, p1, p2, s4, s5, s1, p3, s6, s7)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_s, s, b_e, e, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_s, s, b_e, e, n_l, out0)


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


def definition(s, e):
    """si_sdr as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    s = spread(s, 'l')
    e = spread(e, 'l')
    lengths = {"l": s.shape[-1]}
    t1 = s - np.sum(s, along("l"), keepdims=True) / lengths["l"]
    t2 = e - np.sum(e, along("l"), keepdims=True) / lengths["l"]
    t3 = np.sum(t1 * t2, along("l"), keepdims=True) / np.sum(t1 * t1, along("l"), keepdims=True) * t1
    return taken_out(10.0 * np.log(np.sum(t3 ** 2, along("l"), keepdims=True) / np.sum((t2 - t3) ** 2, along("l"), keepdims=True)) / np.log(10.0), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'s': 'normal', 'e': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"si_sdr, l = {length}", arrays, scalars))
    return 0 if passed_over(si_sdr, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
