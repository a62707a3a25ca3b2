"""vicreg_reg: one pass over l, 3 words of state per row, commutative merge.

S_ij = Σ (a_li − μ_i)(a_lj − μ_j)/(N − 1); y = (Σ_i relu(1 − √(S_ii + 1e-4)) + Σ_{i≠j} S_ij²)/d, eye = 1.

The operator
    vicreg_reg(A[l, i], eye[i, j]):
        t1 = A - sum(A, l) / size(l)
        t2 = sum(t1 * sum(t1 * eye, i), l) / (size(l) - 1)
        return sum(maximum(1.0 - sqrt(sum(t2 * eye, j) + 0.0001), 0), i) / size(i) + sum(sum(t2 ** 2 * (1.0 - eye), j), i) / size(i)

One more element (a prime marks the new value)
    s'  = s + A[l,i]
    N'  = N + 1
    p1' = s'/N'
    s1' = s1 + N·(p1 − p1')·(p1 − p1') + (A[l,i] − p1')·(A[l,i__1] − p1')

Two states a and b
    s'   = s_a + s_b
    N'   = N_a + N_b
    p1_a = s_a/N_a
    p1_b = s_b/N_b
    p1'  = s'/N'
    s1'  = s1_a + N_a·(p1_a − p1')·(p1_a − p1') + s1_b + N_b·(p1_b − p1')·(p1_b − p1')

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference
Certificate: sha256 cc8e3f95d1072beeb018a480ab540ab143f76e31d029f9da40b765ad52576888
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python vicreg_reg_cpu.py` checks it.
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


INPUTS = {"A": "l i", "eye": "i j"}
DTYPES = {"A": "float32", "eye": "float32"}
TILE, BLOCK = 2048, 1


def vicreg_reg(A, eye, *, threads=None):
    """vicreg_reg in one pass over l.

    Takes float32 A[…, l, i], float32 eye[…, i, j]; gives float32 […].  Leading dimensions are batch and
    broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"A": A, "eye": eye}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["A"], INPUTS["A"], "l i", batch),
        *laid_out(arrays["eye"], INPUTS["eye"], "i j", batch),
        lengths["l"], lengths["i"], lengths["j"], out0)
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
def seldom(context):
    """Let LLVM keep a function of many loops short: it would unfold them into one another for minutes."""
    def emit(context, builder, signature, args):
        for name in ("minsize", "noinline"):
            builder.function.attributes.add(name)
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


@njit(**LOOP)
def fold_0(A, s, n_i, n):
    wide_vectors()
    for i_l in range(n):
        for i_i in range(n_i):
            s[i_i] = s[i_i] + f8(A[i_l, i_i])


@njit(**PART)
def value_1(p1, s, N, n_i):
    for i_i in range(n_i):
        t1 = s[i_i] / f8(N)
        p1[i_i] = t1


@njit(**PART)
def rebase_1(s1, old_p1, p1, old_N, n_i__1, n_i):
    for i_i in range(n_i):
        t1 = anchored(old_p1[i_i])
        t2 = anchored(p1[i_i])
        t3 = t1 - t2
        for i_i__1 in range(n_i__1):
            t4 = anchored(old_p1[i_i__1])
            t5 = anchored(p1[i_i__1])
            t6 = t4 - t5
            t7 = t3 * t6
            t8 = times(t7, f8(old_N))
            t9 = s1[i_i, i_i__1] + t8
            s1[i_i, i_i__1] = t9


@njit(**LOOP)
def fold_1(A, p1, s1, n_i__1, n_i, n):
    wide_vectors()
    for i_l in range(n):
        for i_i in range(n_i):
            t1 = anchored(p1[i_i])
            t2 = f8(A[i_l, i_i]) - t1
            for i_i__1 in range(n_i__1):
                t3 = anchored(p1[i_i__1])
                t4 = f8(A[i_l, i_i__1]) - t3
                t5 = t2 * t4
                s1[i_i, i_i__1] = s1[i_i, i_i__1] + t5


@njit(**PART)
def finish(p1, s, N, n_i, s1, n_i__1, s2, eye, n_j, n_l):
    seldom()
    for i_i in range(n_i):
        t1 = s[i_i] / f8(N)
        p1[i_i] = t1
    for i_i in range(n_i):
        t2 = p1[i_i]
        t3 = t2 - t2
        t11 = p1[i_i] - p1[i_i]
        t12 = t11 == 0.0
        t13 = p1[i_i] if t12 else f8(0)
        t14 = t13 - p1[i_i]
        for i_i__1 in range(n_i__1):
            t4 = p1[i_i__1]
            t5 = t4 - t4
            t6 = t3 * t5
            t7 = 1.0 + t6
            t8 = t7 != t7
            t9 = s1[i_i, i_i__1] - s1[i_i, i_i__1]
            t10 = t9 == 0.0
            t15 = p1[i_i__1] - p1[i_i__1]
            t16 = t15 == 0.0
            t17 = p1[i_i__1] if t16 else f8(0)
            t18 = t17 - p1[i_i__1]
            t19 = t14 * t18
            t20 = t19 * f8(N)
            t21 = s1[i_i, i_i__1] + t20
            t22 = t21 if t10 else nan
            t23 = t22 if t8 else s1[i_i, i_i__1]
            s1[i_i, i_i__1] = t23
    for i_i in range(n_i):
        for i_j in range(n_j):
            t24 = 0.0
            for i_i__1 in range(n_i__1):
                t25 = f8(eye[i_i__1, i_j]) * s1[i_i, i_i__1]
                t24 = t24 + t25
            s2[i_i, i_j] = t24
    t26 = 0.0
    t28 = n_l - 1
    for i_i in range(n_i):
        t27 = 0.0
        for i_j in range(n_j):
            t29 = s2[i_i, i_j] / f8(t28)
            t30 = t29 * f8(eye[i_i, i_j])
            t27 = t27 + t30
        t31 = t27 + 0.0001
        t32 = np.sqrt(t31)
        t33 = 1.0 - t32
        t34 = larger(t33, 0.0)
        t26 = t26 + t34
    t35 = t26 / f8(n_i)
    t36 = 0.0
    for i_i in range(n_i):
        t37 = 0.0
        for i_j in range(n_j):
            t38 = s2[i_i, i_j] / f8(t28)
            t39 = t38 * t38
            t40 = 1.0 - f8(eye[i_i, i_j])
            t41 = t39 * t40
            t37 = t37 + t41
        t36 = t36 + t37
    t42 = t36 / f8(n_i)
    t43 = t35 + t42
    out0 = f4(t43)
    return out0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_A, A, b_eye, eye, n_l, n_i, n_j, out0):
    wide_vectors()
    s = empty((n_i,), f8)
    s1 = empty((n_i, n_i,), f8)
    p1 = empty((n_i,), f8)
    s2 = empty((n_i, n_j,), f8)
    old_p1 = empty((n_i,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, 0.0)
        N = i8(0)
        fill(s1, 0.0)
        fill(p1, 0)
        fill(s2, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            A_tile = A[b_A[b], t0:t0 + n]
            copy(p1, old_p1)
            old_N = N
            N += 1 * n
            fold_0(A_tile, s, n_i, n)
            value_1(p1, s, N, n_i)
            if t0 > begin:
                rebase_1(s1, old_p1, p1, old_N, n_i, n_i)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(A_tile, (n + at // 4) * n_i, (piece // 4) * n_i, (n // 4) * n_i, 4, 16)
                fold_1(A_tile[at:at + piece], p1, s1, n_i, n_i, piece)
        out0[b] = finish(p1, s, N, n_i, s1, n_i, s2, eye[b_eye[b]], n_j, n_l)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_A, A, b_eye, eye, n_l, n_i, n_j, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_A, A, b_eye, eye, n_l, n_i, n_j, out0)


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


AXES = ('l', 'i', 'j')


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


def definition(A, eye):
    """vicreg_reg as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    A = spread(A, 'l i')
    eye = spread(eye, 'i j')
    lengths = {"l": A.shape[-3], "i": A.shape[-2], "j": eye.shape[-1]}
    t1 = A - np.sum(A, along("l"), keepdims=True) / lengths["l"]
    t2 = np.sum(t1 * np.sum(t1 * eye, along("i"), keepdims=True), along("l"), keepdims=True) / (lengths["l"] - 1)
    return taken_out(np.sum(np.maximum(1.0 - np.sqrt(np.sum(t2 * eye, along("j"), keepdims=True) + 0.0001), 0), along("i"), keepdims=True) / lengths["i"] + np.sum(np.sum(t2 ** 2 * (1.0 - eye), along("j"), keepdims=True), along("i"), keepdims=True) / lengths["i"], '', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'A': 'normal', 'eye': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"i": 5, "j": 6, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"vicreg_reg, l = {length}", arrays, scalars))
    return 0 if passed_over(vicreg_reg, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
