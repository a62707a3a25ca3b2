"""mxfp8_gemv: one pass over l, 2 words of state per row, commutative merge.

s = 2^{⌊log₂ max|x|⌋ − 8}; y = s Σ e4m3(x_l/s) w_l; fusion may round at the scale known so far, which is
exact while no x_l/s is subnormal or saturates.

The operator
    mxfp8_gemv(x[l], w[l]):
        t1 = exp2(floor(log2(max(abs(x), l))) - 8)
        return sum(cast(x / t1, float8_e4m3, reassociate=True) * w, l) * t1

One more element (a prime marks the new value)
    m'  = max(m, |x[l]|)
    p1' = exp2(⌊log2(m')⌋ − 8)
    s'  = p1·s/p1' + w[l]·float8_e4m3(x[l]/p1')

Two states a and b
    m'   = max(m_a, m_b)
    p1_a = exp2(⌊log2(m_a)⌋ − 8)
    p1_b = exp2(⌊log2(m_b)⌋ − 8)
    p1'  = exp2(⌊log2(m')⌋ − 8)
    s'   = p1_a·s_a/p1' + p1_b·s_b/p1'

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant, recentre_ratio,
rounding_moves_ratio
Certificate: sha256 7590c54f7fcb7343838415fa90bac329c3108d698b93831870156978cd29f8ca
Schedule: tiles of 1024 along l, rows shared between threads
Needs NumPy and Numba.  `python mxfp8_gemv_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.extending import intrinsic


INPUTS = {"x": "l", "w": "l"}
DTYPES = {"x": "float32", "w": "float32"}
TILE, BLOCK = 1024, 1


def mxfp8_gemv(x, w, *, threads=None):
    """mxfp8_gemv in one pass over l.

    Takes float32 x[…, l], float32 w[…, l]; gives float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x, "w": w}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        *laid_out(arrays["w"], INPUTS["w"], "l", batch),
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


def _exp8(most):
    """e^x in float64, at most 2 ulp off; e^-inf is 0, NaN stays, beyond `most` it is inf, underflow is gradual."""
    @intrinsic
    def exp(context, x):
        def emit(context, builder, signature, args):
            real, integer = args[0].type, ir.IntType(64)
            near, r = _reduced(builder, args[0], -746.0, most, 6755399441055744.0, (0.6931471803691238, 1.9082149292705877e-10))
            p = _polynomial(builder, r, (1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
                                         2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
                                         0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5))
            p = builder.fadd(_plus(builder, builder.fmul(p, r, flags=EXACT), r, r), real(1.0), flags=EXACT)
            k = builder.sub(builder.bitcast(near, integer), integer(0x4338000000000000))
            half = builder.ashr(k, integer(1))
            for part in (half, builder.sub(k, half)):
                power = builder.shl(builder.add(part, integer(1023)), integer(52))
                p = builder.fmul(p, builder.bitcast(power, real), flags=EXACT)
            return p
        return types.float64(types.float64), emit
    return exp


exp8, decay8 = _exp8(710.0), _exp8(None)


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
def rounded(x, mantissa, smallest, largest, beyond):
    """The nearest float with so many mantissa bits, ties to even; `beyond` is what too large ones become."""
    if not finite(x):
        return x if x != x else np.copysign(beyond, x)
    exponent = max(math.frexp(x)[1] - 1, smallest) - mantissa
    near = math.ldexp(np.rint(math.ldexp(x, -exponent)), exponent)
    return np.copysign(beyond, x) if abs(near) > largest else near


@njit(**LOOP)
def fold_0(x, n):
    wide_vectors()
    m = f4(-inf)
    for i_l in range(n):
        t1 = abs(x[i_l])
        m = larger(m, t1)
    return m


@njit(**PART)
def value_1(m):
    t1 = np.log2(m)
    t2 = np.floor(t1)
    t3 = t2 - 8.0
    t4 = exp8(t3 * 0.6931471805599453)
    p1 = t4
    return p1


@njit(**PART)
def rebase_1(old_p1, p1, s):
    t1 = 1.0 if old_p1 == p1 else old_p1 / p1
    t2 = times(t1, s)
    s = t2
    return s


@njit(**LOOP)
def fold_1(x, p1, w, n):
    wide_vectors()
    s = 0.0
    for i_l in range(n):
        t1 = 0.0 if p1 == 0.0 else f8(x[i_l]) / p1
        t2 = rounded(t1, 3, -6, 448.0, 448.0)
        t3 = t2 * f8(w[i_l])
        s = s + t3
    return s


@njit(**PART)
def finish(m, p1, s):
    t1 = np.log2(m)
    t2 = np.floor(t1)
    t3 = t2 - 8.0
    t4 = exp8(t3 * 0.6931471805599453)
    p1 = t4
    t5 = p1 / p1
    t6 = t5 != t5
    t7 = nan if t6 else s
    s = t7
    t8 = s * t4
    out0 = f4(t8)
    return p1, s, out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, b_w, w, n_l, out0):
    wide_vectors()
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        m = f8((-inf))
        s = f8(0.0)
        p1 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            w_tile = w[b_w[b], t0:t0 + n]
            old_p1 = p1
            r0 = fold_0(x_tile, n)
            m = larger(m, f8(r0))
            p1 = value_1(m)
            if t0 > begin:
                s = rebase_1(old_p1, p1, s)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                ahead(w_tile, n + at // 2, piece // 2, n // 2, 2, 16)
                r0 = fold_1(x_tile[at:at + piece], p1, w_tile[at:at + piece], piece)
                s = s + r0
        p1, s, out0[b] = finish(m, p1, s)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, b_w, w, n_l, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, b_w, w, n_l, out0)


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


FORMATS = {"bfloat16": (7, -126, (2 - 2.0**-7) * 2.0**127, np.inf), "float8_e4m3": (3, -6, 448.0, 448.0),
           "float8_e5m2": (2, -14, 57344.0, np.inf)}


def cast_to(values, dtype):
    """Values rounded to a number format and kept wide: to nearest, ties to even; whole numbers stay within their limits."""
    if dtype in FORMATS:
        mantissa, smallest, most, beyond = FORMATS[dtype]
        exponent = np.maximum(np.frexp(values)[1] - 1, smallest) - mantissa
        near = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
        return np.where(np.abs(near) > most, np.copysign(beyond, values), near)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(np.nan_to_num(values, nan=0.0)), limits.min, limits.max)
    return values.astype(dtype).astype(np.float64)


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


def definition(x, w):
    """mxfp8_gemv as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    w = spread(w, 'l')
    lengths = {"l": x.shape[-1]}
    t1 = np.exp2(np.floor(np.log2(np.max(np.abs(x), along("l"), keepdims=True))) - 8)
    return taken_out(np.sum(cast_to(x / t1, "float8_e4m3") * w, along("l"), keepdims=True) * t1, '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal', 'w': 'normal'}, {}, []
    for length in (513, 2055, 5117):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"mxfp8_gemv, l = {length}", arrays, scalars))
    return 0 if passed_over(mxfp8_gemv, definition, cases, 0.2) else 1


if __name__ == "__main__":
    sys.exit(main())
