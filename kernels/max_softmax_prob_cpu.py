"""max_softmax_prob: one pass over l, 2 words of state per row, commutative merge.

y = max_l softmax(x)_l, which is 1/Z.

The operator
    max_softmax_prob(x[l]):
        t1 = exp(x - max(x, l))
        return max(t1 / sum(t1, l), l)

One more element (a prime marks the new value)
    m' = max(m, x[l])
    s' = s·exp(m − m') + exp(x[l] − m')

Two states a and b
    m' = max(m_a, m_b)
    s' = s_a·exp(m_a − m') + s_b·exp(m_b − m')

Laws: multiply_commutes, multiply_associates, multiply_one, difference, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum, max_shifts, max_scales_by_nonnegative, max_of_exp
Certificate: sha256 0b9a59a649bb2839aea4a168ce1a6ad7ea3b784165e5801bf21b86149c0f34cd
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python max_softmax_prob_cpu.py` checks it.
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
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"x": "l"}
DTYPES = {"x": "float32"}
TILE, BLOCK = 2048, 1


def max_softmax_prob(x, *, threads=None):
    """max_softmax_prob in one pass over l.

    Takes float32 x[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        lengths["l"], out0)
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
def fold_0(x, n):
    wide_vectors()
    m = f4(-inf)
    for i_l in range(n):
        m = larger(m, x[i_l])
    return m


@njit(**PART)
def rebase_1(old_m, m, s):
    t1 = anchored(old_m)
    t2 = anchored(m)
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = times(t4, s)
    s = t5
    return s


@njit(**LOOP)
def fold_1(n, x, m, s_lanes):
    wide_vectors()
    s = f4(0.0)
    t1 = anchored(m)
    whole = n // 128 * 128
    if whole > 0:
        for lane in range(128):
            s_lanes[lane] = s
    for i0 in range(0, whole, 128):
        ahead(x, n + i0 // 4, 128 // 4, n // 4, 4, 16)
        for lane in range(128):
            i_l = i0 + lane
            t2 = x[np.uint64(i_l)] - f4(t1)
            t3 = decay4(t2)
            s_lanes[lane] = s_lanes[lane] + t3
    for i_l in range(whole, n):
        t2 = x[np.uint64(i_l)] - f4(t1)
        t3 = decay4(t2)
        s = s + t3
    if whole > 0:
        for lane in range(128):
            s = s + s_lanes[lane]
    return s


@njit(**PART)
def finish(m, s, m2):
    t1 = m
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 != t3
    t5 = m - m
    t6 = t5 == 0.0
    t7 = m if t6 else f8(0)
    t8 = t7 - m
    t9 = math.exp(t8)
    t10 = t9 * s
    t11 = t10 if t4 else s
    s = t11
    t12 = m - m
    t13 = math.exp(t12)
    t14 = 1.0 / s
    t15 = t13 * t14
    m2 = t15
    out0 = f4(m2)
    return s, m2, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, out0):
    wide_vectors()
    lanes_f4_0 = empty((128,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        m = f8((-inf))
        s = f8(0.0)
        m2 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            old_m = m
            r0 = fold_0(x_tile, n)
            m = larger(m, f8(r0))
            if t0 > begin:
                s = rebase_1(old_m, m, s)
            r0 = fold_1(n, x_tile, m, lanes_f4_0)
            s = s + f8(r0)
        s, m2, out0[b] = finish(m, s, m2)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, n_l, out0)


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


def definition(x):
    """max_softmax_prob as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = np.exp(x - np.max(x, along("l"), keepdims=True))
    return taken_out(np.max(t1 / np.sum(t1, along("l"), keepdims=True), along("l"), keepdims=True), '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"max_softmax_prob, l = {length}", arrays, scalars))
    return 0 if passed_over(max_softmax_prob, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
