"""angular_momentum_com: one pass over l, 4 words of state per row, commutative merge.

The three components of J = Σ m (r − R)×(v − V).

The operator
    angular_momentum_com(m[l], r[l, c], v[l, c]):
        t1 = index(c) == 1
        d1 = sum(m, l)
        t2 = r - sum(m * r, l) / d1
        d2 = sum(where(t1, t2, 0), c)
        t3 = index(c) == 2
        t4 = v - sum(m * v, l) / d1
        d3 = sum(where(t3, t4, 0), c)
        d4 = sum(where(t3, t2, 0), c)
        d5 = sum(where(t1, t4, 0), c)
        t5 = index(c) == 0
        d6 = sum(where(t5, t4, 0), c)
        d7 = sum(where(t5, t2, 0), c)
        return sum(m * (d2 * d3 - d4 * d5), l), sum(m * (d4 * d6 - d7 * d3), l), sum(m * (d7 * d5 - d2 * d6), l)

One more element (a prime marks the new value)
    s'  = s + m[l]·r[l,c]
    s2' = s2 + m[l]
    s3' = s3 + m[l]·v[l,c]
    p2' = s3'/s2'
    p1' = s'/s2'
    δ1  = p2 − p2'
    δ2  = p1 − p1'
    s1' = s1 + δ2·δ1·s2 + m[l]·(r[l,c] − p1')·(v[l,c__1] − p2')

Two states a and b
    s'   = s_a + s_b
    s2'  = s2_a + s2_b
    s3'  = s3_a + s3_b
    p2_a = s3_a/s2_a
    p1_a = s_a/s2_a
    p2_b = s3_b/s2_b
    p1_b = s_b/s2_b
    p2'  = s3'/s2'
    p1'  = s'/s2'
    δ1_a = p2_a − p2'
    δ2_a = p1_a − p1'
    δ1_b = p2_b − p2'
    δ2_b = p1_b − p1'
    s1'  = s1_a + δ2_a·δ1_a·s2_a + s1_b + δ2_b·δ1_b·s2_b

Dangers
    s2 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 d6c1eb57b84b3721313cdeb90b1fff3a0e756a2f3aa2e217917df34ce481a704
Schedule: tiles of 512 along l, rows shared between threads
Needs NumPy and Numba.  `python angular_momentum_com_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"m": "l", "r": "l c", "v": "l c"}
DTYPES = {"m": "float32", "r": "float32", "v": "float32"}
TILE, BLOCK = 512, 1


def angular_momentum_com(m, r, v, *, threads=None):
    """angular_momentum_com in one pass over l.

    Takes float32 m[…, l], float32 r[…, l, c], float32 v[…, l, c]; gives float32 […], float32 […], float32 […].
    Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"m": m, "r": r, "v": v}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    out2 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["m"], INPUTS["m"], "l", batch),
        *laid_out(arrays["r"], INPUTS["r"], "l c", batch),
        *laid_out(arrays["v"], INPUTS["v"], "l c", batch),
        lengths["l"], lengths["c"], out0, out1, out2)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""), given_back(out2, batch, "", ""))


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
def fill(context, array, value):
    """Every element of a contiguous array becomes a value."""
    def emit(context, builder, signature, args):
        target = context.make_array(array)(context, builder, args[0])
        with cgutils.for_range(builder, target.nitems) as loop:
            context.pack_value(builder, array.dtype, args[1], builder.gep(target.data, [loop.index]))
        return context.get_dummy_value()
    return types.none(array, array.dtype), emit


@intrinsic
def copy(context, source, target):
    """What one contiguous array holds, another holds."""
    def emit(context, builder, signature, args):
        start, into = (context.make_array(kind)(context, builder, each) for kind, each in zip(signature.args, args))
        cgutils.raw_memcpy(builder, into.data, start.data, start.nitems, start.itemsize)
        return context.get_dummy_value()
    return types.none(source, target), emit


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


@njit(**LOOP)
def fold_0a(m, r, s, v, s3, n_c, n):
    wide_vectors()
    for i_l in range(n):
        for i_c in range(n_c):
            t1 = f8(m[i_l]) * f8(r[i_l, i_c])
            s[i_c] = s[i_c] + t1
            t2 = f8(m[i_l]) * f8(v[i_l, i_c])
            s3[i_c] = s3[i_c] + t2


@njit(**LOOP)
def fold_0b(m, n):
    wide_vectors()
    s2 = 0.0
    for i_l in range(n):
        s2 = s2 + f8(m[i_l])
    return s2


@njit(**PART)
def value_1(p1, s, s2, n_c, p2, s3):
    for i_c in range(n_c):
        t1 = s[i_c] / s2
        p1[i_c] = t1
    for i_c in range(n_c):
        t2 = s3[i_c] / s2
        p2[i_c] = t2


@njit(**PART)
def rebase_1(s1, old_p2, p2, old_p1, old_s, p1, old_s2, old_s3, n_c__1, n_c):
    for i_c in range(n_c):
        t4 = anchored(old_p1[i_c])
        t5 = old_p1[i_c] == t4
        t6 = f8(0) if t5 else old_s[i_c]
        t9 = anchored(p1[i_c])
        t10 = t4 - t9
        for i_c__1 in range(n_c__1):
            t1 = anchored(old_p2[i_c__1])
            t2 = anchored(p2[i_c__1])
            t3 = t1 - t2
            t7 = times(t3, t6)
            t8 = s1[i_c, i_c__1] + t7
            t11 = t10 * t3
            t12 = times(t11, old_s2)
            t13 = t8 + t12
            t14 = old_p2[i_c__1] == t1
            t15 = f8(0) if t14 else old_s3[i_c__1]
            t16 = times(t10, t15)
            t17 = t13 + t16
            s1[i_c, i_c__1] = t17


@njit(**LOOP)
def fold_1(m, r, p1, v, p2, s1, n_c__1, n_c, n):
    wide_vectors()
    for i_l in range(n):
        for i_c in range(n_c):
            t1 = anchored(p1[i_c])
            t2 = f8(r[i_l, i_c]) - t1
            t3 = f8(m[i_l]) * t2
            for i_c__1 in range(n_c__1):
                t4 = anchored(p2[i_c__1])
                t5 = f8(v[i_l, i_c__1]) - t4
                t6 = t3 * t5
                s1[i_c, i_c__1] = s1[i_c, i_c__1] + t6


@njit(**PART)
def finish(p1, s, s2, n_c, p2, s3, s1, n_c__1, n_c__2, s4, s5, s6):
    for i_c in range(n_c):
        t1 = s[i_c] / s2
        p1[i_c] = t1
    for i_c in range(n_c):
        t2 = s3[i_c] / s2
        p2[i_c] = t2
    for i_c in range(n_c):
        t5 = p1[i_c]
        t6 = p1[i_c] == t5
        t7 = f8(0) if t6 else 1.0
        t10 = t5 - t5
        t24 = p1[i_c] - p1[i_c]
        t25 = t24 == 0.0
        t26 = p1[i_c] if t25 else f8(0)
        t27 = p1[i_c] == t26
        t28 = f8(0) if t27 else s[i_c]
        t31 = t26 - p1[i_c]
        for i_c__1 in range(n_c__1):
            t3 = p2[i_c__1]
            t4 = t3 - t3
            t8 = t4 * t7
            t9 = 1.0 + t8
            t11 = t10 * t4
            t12 = t9 + t11
            t13 = p2[i_c__1] == t3
            t14 = f8(0) if t13 else 1.0
            t15 = t10 * t14
            t16 = t12 + t15
            t17 = t16 != t16
            t18 = s1[i_c, i_c__1] - s1[i_c, i_c__1]
            t19 = t18 == 0.0
            t20 = p2[i_c__1] - p2[i_c__1]
            t21 = t20 == 0.0
            t22 = p2[i_c__1] if t21 else f8(0)
            t23 = t22 - p2[i_c__1]
            t29 = t23 * t28
            t30 = s1[i_c, i_c__1] + t29
            t32 = t31 * t23
            t33 = t32 * s2
            t34 = t30 + t33
            t35 = p2[i_c__1] == t22
            t36 = f8(0) if t35 else s3[i_c__1]
            t37 = t31 * t36
            t38 = t34 + t37
            t39 = t38 if t19 else nan
            t40 = t39 if t17 else s1[i_c, i_c__1]
            s1[i_c, i_c__1] = t40
    t41 = 0.0
    if 2 < n_c__2:
        t42 = 0.0
        if 1 < n_c:
            t42 = t42 + s1[1, 2]
        t41 = t41 + t42
    t43 = 0.0
    if 1 < n_c__2:
        t44 = 0.0
        if 2 < n_c:
            t45 = -s1[2, 1]
            t44 = t44 + t45
        t43 = t43 + t44
    t46 = t41 + t43
    s4 = t46
    out0 = f4(s4)
    t47 = 0.0
    if 0 < n_c__2:
        t48 = 0.0
        if 2 < n_c:
            t48 = t48 + s1[2, 0]
        t47 = t47 + t48
    t49 = 0.0
    if 2 < n_c__2:
        t50 = 0.0
        if 0 < n_c:
            t51 = -s1[0, 2]
            t50 = t50 + t51
        t49 = t49 + t50
    t52 = t47 + t49
    s5 = t52
    out1 = f4(s5)
    t53 = 0.0
    if 1 < n_c__2:
        t54 = 0.0
        if 0 < n_c:
            t54 = t54 + s1[0, 1]
        t53 = t53 + t54
    t55 = 0.0
    if 0 < n_c__2:
        t56 = 0.0
        if 1 < n_c:
            t57 = -s1[1, 0]
            t56 = t56 + t57
        t55 = t55 + t56
    t58 = t53 + t55
    s6 = t58
    out2 = f4(s6)
    return s4, out0, s5, out1, s6, out2


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_m, m, b_r, r, b_v, v, n_l, n_c, out0, out1, out2):
    wide_vectors()
    s = empty((n_c,), f8)
    s3 = empty((n_c,), f8)
    s1 = empty((n_c, n_c,), f8)
    p1 = empty((n_c,), f8)
    p2 = empty((n_c,), f8)
    old_p2 = empty((n_c,), f8)
    old_p1 = empty((n_c,), f8)
    old_s = empty((n_c,), f8)
    old_s3 = empty((n_c,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        s2 = f8(0.0)
        fill(s3, 0.0)
        fill(s1, 0.0)
        fill(p1, 0)
        fill(p2, 0)
        s4 = f8(0)
        s5 = f8(0)
        s6 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            m_tile = m[b_m[b], t0:t0 + n]
            r_tile = r[b_r[b], t0:t0 + n]
            v_tile = v[b_v[b], t0:t0 + n]
            copy(p2, old_p2)
            copy(p1, old_p1)
            copy(s, old_s)
            old_s2 = s2
            copy(s3, old_s3)
            fold_0a(m_tile, r_tile, s, v_tile, s3, n_c, n)
            r0 = fold_0b(m_tile, n)
            s2 = s2 + r0
            value_1(p1, s, s2, n_c, p2, s3)
            if t0 > begin:
                rebase_1(s1, old_p2, p2, old_p1, old_s, p1, old_s2, old_s3, n_c, n_c)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(m_tile, n + at, piece, n, 1, 16)
                ahead(r_tile, (n + at) * n_c, (piece) * n_c, (n) * n_c, 1, 16)
                ahead(v_tile, (n + at) * n_c, (piece) * n_c, (n) * n_c, 1, 16)
                fold_1(m_tile[at:at + piece], r_tile[at:at + piece], p1, v_tile[at:at + piece], p2, s1, n_c, n_c, piece)
        s4, out0[b], s5, out1[b], s6, out2[b] = finish(p1, s, s2, n_c, p2, s3, s1, n_c, n_c, s4, s5, s6)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_m, m, b_r, r, b_v, v, n_l, n_c, out0, out1, out2):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_m, m, b_r, r, b_v, v, n_l, n_c, out0, out1, out2)


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


AXES = ('l', 'c')


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


def definition(m, r, v):
    """angular_momentum_com as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    m = spread(m, 'l')
    r = spread(r, 'l c')
    v = spread(v, 'l c')
    lengths = {"l": m.shape[-2], "c": r.shape[-1]}
    t1 = positions("c", lengths["c"]) == 1
    d1 = np.sum(m, along("l"), keepdims=True)
    t2 = r - np.sum(m * r, along("l"), keepdims=True) / d1
    d2 = np.sum(np.where(t1, t2, 0), along("c"), keepdims=True)
    t3 = positions("c", lengths["c"]) == 2
    t4 = v - np.sum(m * v, along("l"), keepdims=True) / d1
    d3 = np.sum(np.where(t3, t4, 0), along("c"), keepdims=True)
    d4 = np.sum(np.where(t3, t2, 0), along("c"), keepdims=True)
    d5 = np.sum(np.where(t1, t4, 0), along("c"), keepdims=True)
    t5 = positions("c", lengths["c"]) == 0
    d6 = np.sum(np.where(t5, t4, 0), along("c"), keepdims=True)
    d7 = np.sum(np.where(t5, t2, 0), along("c"), keepdims=True)
    return (taken_out(np.sum(m * (d2 * d3 - d4 * d5), along("l"), keepdims=True), '', lengths), taken_out(np.sum(m * (d4 * d6 - d7 * d3), along("l"), keepdims=True), '', lengths), taken_out(np.sum(m * (d7 * d5 - d2 * d6), along("l"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'m': 'normal', 'r': 'normal', 'v': 'normal'}, {}, []
    for length in (257, 1031, 2557):
        sizes, rng = {"c": 7, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"angular_momentum_com, l = {length}", arrays, scalars))
    return 0 if passed_over(angular_momentum_com, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
