"""gram_power_iteration: one pass over l, 2 words of state per row, commutative merge.

v ← Σ (X_l·v) X_l, normalised, three times from v = 1; then v and Σ (X_l·v)².

The operator
    gram_power_iteration(X[l, c]):
        d1 = sum(sum(X * 1.0, c) * X, l)
        d2 = sum(sum(X * (d1 / sqrt(sum(d1 * d1, c))), c) * X, l)
        d3 = sum(sum(X * (d2 / sqrt(sum(d2 * d2, c))), c) * X, l)
        t1 = d3 / sqrt(sum(d3 * d3, c))
        return t1, sum(sum(X * t1, c) ** 2, l)

One more element (a prime marks the new value)
    s'  = s + X[l,c]·Σ_c X[l,c]
    s1' = s1 + X[l,c]·X[l,c__1]

Two states a and b
    s'  = s_a + s_b
    s1' = s1_a + s1_b

Dangers
    √(Σ_c s²) divides and may be 0: the result is then what IEEE division gives
    √(Σ_c s2²) divides and may be 0: the result is then what IEEE division gives
    √(Σ_c s3²) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract
Certificate: sha256 9c5056a8d004b4e7de7f3f9309d3bd1d66e26fbd1f96b17aebe4b0b528379d9d
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python gram_power_iteration_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import binding, ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"X": "l c"}
DTYPES = {"X": "float32"}
TILE, BLOCK = 8192, 1


def gram_power_iteration(X, *, threads=None):
    """gram_power_iteration in one pass over l.

    Takes float32 X[…, l, c]; gives float32 […, c], float32 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    out0 = written(lengths, batch, "c", f4)
    out1 = written(lengths, batch, "", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["X"], INPUTS["X"], "l c", batch),
        lengths["l"], lengths["c"], out0, out1)
    return (given_back(out0, batch, "c", "c"), given_back(out1, batch, "", ""))


f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
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
def shaped(context, array, shape):
    """As many of the first elements of a contiguous array as a shape has, in that shape."""
    made = types.Array(array.dtype, len(shape), "C")
    if array.layout != "C":
        raise TypeError(f"{array} is not contiguous")
    def emit(context, builder, signature, args):
        whole, lengths = context.make_array(array)(context, builder, args[0]), cgutils.unpack_tuple(builder, args[1])
        strides = [whole.itemsize]
        for length in reversed(lengths[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        view = context.make_array(made)(context, builder)
        populate_array(view, whole.data, lengths, strides, whole.itemsize, whole.meminfo, whole.parent)
        return impl_ret_borrowed(context, builder, made, view._getvalue())
    return made(array, shape), emit


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


HOST = binding.get_host_cpu_features()
WIDE = 64 if HOST.get("avx512f") else 32 if HOST.get("avx2") else 16
ROWS, VECTORS = 6, 4 if HOST.get("avx512f") or HOST.get("neon") else 2


def _vectors(array):
    """The LLVM type of a vector of an array's numbers, how many they are, and the bytes of one."""
    real, size = (ir.FloatType(), 4) if array.dtype == types.float32 else (ir.DoubleType(), 8)
    return ir.VectorType(real, WIDE // size), WIDE // size, size


def _place(builder, array, row, column):
    """The address of an element."""
    length = builder.udiv(builder.extract_value(array.strides, 0), array.itemsize)
    return builder.gep(array.data, [builder.add(builder.mul(row, length), column)])


def _patch(vectors):
    """A function for up to ROWS rows of a product, and `vectors` vectors of their columns."""
    @intrinsic
    def patch(context, left, first, right, at, into, row, column, count, keep):
        """into[row:row + count, column:] = left[first:] · right[:, at:], plus what is there if `keep`."""
        def emit(context, builder, signature, args):
            a, b, c = (context.make_array(signature.args[place])(context, builder, args[place]) for place in (0, 2, 4))
            (vector, lanes, align), number = _vectors(left), ir.IntType(64)
            undefined, spread = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            last = builder.sub(args[7], number(1))
            row_of = [builder.select(builder.icmp_signed("<", number(each), last), number(each), last) for each in range(ROWS)]
            lefts = [_place(builder, a, builder.add(args[1], each), number(0)) for each in row_of]
            sums = [[cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * lanes)) for _ in range(vectors)] for _ in row_of]

            def places(start):
                return [builder.bitcast(builder.gep(start, [number(each * lanes)]), vector.as_pointer()) for each in range(vectors)]

            def add(total, more, **flags):
                builder.store(builder.fadd(builder.load(total), more, **flags), total)

            with cgutils.for_range(builder, builder.extract_value(a.shape, 1)) as loop:
                rights = [builder.load(place, align=align) for place in places(_place(builder, b, loop.index, args[3]))]
                for start, totals in zip(lefts, sums):
                    one = builder.insert_element(undefined, builder.load(builder.gep(start, [loop.index])), ir.IntType(32)(0))
                    one = builder.shuffle_vector(one, undefined, spread)
                    for other, total in zip(rights, totals):
                        add(total, builder.fmul(one, other, flags=("contract",)), flags=("contract",))
            targets = [list(zip(sums[each], places(_place(builder, c, builder.add(args[5], row_of[each]), args[6])))) for each in range(ROWS)]
            with builder.if_then(args[8]):
                for total, place in sum(targets, []):
                    add(total, builder.load(place, align=align))
            for total, place in sum(targets, []):
                builder.store(builder.load(total), place, align=align)
            return context.get_dummy_value()
        return types.none(left, first, right, at, into, row, column, count, keep), emit
    return patch


narrow_rows, wide_rows = _patch(1), _patch(VECTORS)


@intrinsic
def turned(context, right, row, column, panel, to):
    """panel[column:, to:] = right[row:, column:].T for a square as long as a vector: log2 of that exchanges of blocks."""
    def emit(context, builder, signature, args):
        source, target = (context.make_array(signature.args[place])(context, builder, args[place]) for place in (0, 3))
        (vector, lanes, align), number = _vectors(right), ir.IntType(64)

        def place(array, row, step, column):
            return builder.bitcast(_place(builder, array, builder.add(row, number(step)), column), vector.as_pointer())

        lines = [builder.load(place(source, args[1], step, args[2]), align=align) for step in range(lanes)]
        far = lanes // 2
        while far:
            low = [lanes + lane - far if lane & far else lane for lane in range(lanes)]
            high = [lanes + lane if lane & far else lane + far for lane in range(lanes)]
            low, high = (ir.Constant(ir.VectorType(ir.IntType(32), lanes), lane) for lane in (low, high))
            for line in range(lanes):
                if not line & far:
                    pair = lines[line], lines[line + far]
                    lines[line], lines[line + far] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
            far //= 2
        for step, line in enumerate(lines):
            builder.store(line, place(target, args[2], step, args[4]), align=align)
        return context.get_dummy_value()
    return types.none(right, row, column, panel, to), emit


@njit(**PART)
def turn(right, first, width, panel):
    """Some rows of an array become the columns of the panel."""
    square, length = WIDE // right.itemsize, right.shape[1]
    inner, whole = width // square * square, length // square * square
    for i in range(0, inner, square):
        for k in range(0, whole, square):
            turned(right, first + i, k, panel, i)
    for i in range(width):
        for k in range(whole if i < inner else 0, length):
            panel[k, i] = right[first + i, k]


@intrinsic
def gathered(context, right, row, first, panel):
    """panel[row] = right[row, first:], all its vectors."""
    def emit(context, builder, signature, args):
        source, target = (context.make_array(signature.args[place])(context, builder, args[place]) for place in (0, 3))
        (vector, lanes, align), number = _vectors(right), ir.IntType(64)
        starts = _place(builder, source, args[1], args[2]), _place(builder, target, args[1], number(0))
        places = [[builder.bitcast(builder.gep(start, [number(each * lanes)]), vector.as_pointer()) for start in starts] for each in range(VECTORS)]
        for value, into in [(builder.load(place, align=align), into) for place, into in places]:
            builder.store(value, into, align=align)
        return context.get_dummy_value()
    return types.none(right, row, first, panel), emit


@njit(**PART)
def gather(right, first, width, panel):
    """Some columns of an array become the columns of the panel."""
    for k in range(right.shape[0]):
        if width == panel.shape[1]:
            gathered(right, k, first, panel)
        else:
            for j in range(width):
                panel[k, j] = right[k, first + j]


@njit(**LOOP)
def dots(left, right, into, keep):
    """into = left · right.T for one row, plus what is there if `keep`."""
    wide_vectors()
    for j in range(right.shape[0]):
        total = into.dtype.type(0)
        for k in range(right.shape[1]):
            total += left[0, k] * right[j, k]
        into[0, j] = total + into[0, j] if keep else total


@njit(**PART)
def multiply(left, right, turns, panel, into, keep):
    """into = left · right (or left · right.T if it turns), plus what is there if `keep`; the panel is memory to work in."""
    (rows, columns), square = into.shape, WIDE // into.itemsize
    if turns and rows == 1:
        dots(left, right, into, keep)
        return
    j = i8(0)
    while j < columns:
        strip = VECTORS * square if columns - j >= VECTORS * square else square
        width = strip if j + strip < columns else columns - j
        gathers = width < strip or rows > 4 * ROWS and columns > strip
        if turns:
            turn(right, j, width, panel)
        elif gathers:
            gather(right, j, width, panel)
        source, at = (panel, 0) if turns or gathers else (right, j)
        for i in range(0, rows, ROWS):
            count = ROWS if i + ROWS < rows else rows - i
            if strip > square:
                wide_rows(left, i, source, at, into, i, j, count, keep)
            elif width == strip:
                narrow_rows(left, i, source, at, into, i, j, count, keep)
            else:
                end = len(panel) - ROWS
                narrow_rows(left, i, source, at, panel, end, 0, count, False)
                for row in range(count):
                    for column in range(width):
                        into[i + row, j + column] = panel[end + row, column] + (into[i + row, j + column] if keep else 0)
        j += strip


@njit(**LOOP)
def make_S1(S1, X, n_c, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        for i_c in range(n_c):
            t2 = f8(X[i_l, i_c]) * 1.0
            t1 = t1 + t2
        S1[i_l] = f4(t1)


@njit(**LOOP)
def fold_0a(S1, P1, n):
    wide_vectors()
    for i_l in range(n):
        P1[i_l] = f4(f8(S1[i_l]))


@njit(**LOOP)
def fold_0b(X, s1, n_c__1, n_c, n):
    wide_vectors()
    for i_l in range(n):
        for i_c in range(n_c):
            for i_c__1 in range(n_c__1):
                t1 = f8(X[i_l, i_c]) * f8(X[i_l, i_c__1])
                s1[i_c, i_c__1] = s1[i_c, i_c__1] + t1


@njit(**PART)
def finish(p1, s, n_c, s2, s1, n_c__1, p2, s3, out0, p3, n_c__2):
    seldom()
    t1 = 0.0
    for i_c in range(n_c):
        t2 = s[i_c] * s[i_c]
        t1 = t1 + f8(t2)
    t3 = np.sqrt(t1)
    t4 = 1.0 / t3
    for i_c in range(n_c):
        t5 = s[i_c] * f4(t4)
        p1[i_c] = t5
    for i_c in range(n_c):
        t6 = f4(0.0)
        for i_c__1 in range(n_c__1):
            t7 = p1[i_c__1] * f4(s1[i_c, i_c__1])
            t6 = t6 + t7
        s2[i_c] = t6
    t8 = 0.0
    for i_c in range(n_c):
        t9 = s2[i_c] * s2[i_c]
        t8 = t8 + f8(t9)
    t10 = np.sqrt(t8)
    t11 = 1.0 / t10
    for i_c in range(n_c):
        t12 = s2[i_c] * f4(t11)
        p2[i_c] = t12
    for i_c in range(n_c):
        t13 = f4(0.0)
        for i_c__1 in range(n_c__1):
            t14 = p2[i_c__1] * f4(s1[i_c, i_c__1])
            t13 = t13 + t14
        s3[i_c] = t13
    t15 = 0.0
    for i_c in range(n_c):
        t16 = s3[i_c] * s3[i_c]
        t15 = t15 + f8(t16)
    t17 = np.sqrt(t15)
    t18 = 1.0 / t17
    for i_c in range(n_c):
        t19 = s3[i_c] * f4(t18)
        out0[i_c] = t19
    for i_c in range(n_c):
        t20 = s3[i_c] * f4(t18)
        p3[i_c] = t20
    t21 = 0.0
    for i_c__2 in range(n_c__2):
        t22 = f4(0.0)
        for i_c in range(n_c):
            t23 = p3[i_c] * p3[i_c__2]
            t24 = t23 * f4(s1[i_c, i_c__2])
            t22 = t22 + t24
        t21 = t21 + f8(t22)
    s4 = t21
    return s4


@njit(**PART)
def finish_b(s4):
    out1 = f4(s4)
    return out1


@njit(**PART)
def empty_state(s, s1, p1, s2, p2, s3, p3):
    for at0 in range(s.shape[0]):
        s[at0] = f4(0.0)
    for at0 in range(s1.shape[0]):
        for at1 in range(s1.shape[1]):
            s1[at0, at1] = 0.0
    for at0 in range(p1.shape[0]):
        p1[at0] = 0
    for at0 in range(s2.shape[0]):
        s2[at0] = 0
    for at0 in range(p2.shape[0]):
        p2[at0] = 0
    for at0 in range(s3.shape[0]):
        s3[at0] = 0
    for at0 in range(p3.shape[0]):
        p3[at0] = 0


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, n_l, n_c, out0, out1):
    wide_vectors()
    s = empty((n_c,), f4)
    s1 = empty((n_c, n_c,), f8)
    p1 = empty((n_c,), f4)
    s2 = empty((n_c,), f4)
    p2 = empty((n_c,), f4)
    s3 = empty((n_c,), f4)
    p3 = empty((n_c,), f4)
    panel = empty((tile + ROWS, VECTORS * WIDE // 4), f4)
    S1_all = empty((tile,), f4)
    P1_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s4 = f8(0)
        empty_state(s, s1, p1, s2, p2, s3, p3)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            X_tile = X[b_X[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            P1 = shaped(P1_all, (1, n))
            make_S1(S1, X_tile, n_c, n)
            fold_0a(S1, P1[0], n)
            fold_0b(X_tile, s1, n_c, n_c, n)
            multiply(P1, X_tile, b1(False), panel, shaped(s, (1, n_c)), b1(True))
        s4 = finish(p1, s, n_c, s2, s1, n_c, p2, s3, out0[b], p3, n_c)
        out1[b] = finish_b(s4)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, n_l, n_c, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_X, X, n_l, n_c, out0, out1)


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


def definition(X):
    """gram_power_iteration as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l c')
    lengths = {"l": X.shape[-2], "c": X.shape[-1]}
    d1 = reduced("sum", reduced("sum", X * 1.0, "c") * X, "l")
    d2 = reduced("sum", reduced("sum", X * (d1 / np.sqrt(reduced("sum", d1 * d1, "c"))), "c") * X, "l")
    d3 = reduced("sum", reduced("sum", X * (d2 / np.sqrt(reduced("sum", d2 * d2, "c"))), "c") * X, "l")
    t1 = d3 / np.sqrt(reduced("sum", d3 * d3, "c"))
    return (taken_out(t1, 'c', lengths), taken_out(reduced("sum", reduced("sum", X * t1, "c") ** 2, "l"), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"c": 4, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"gram_power_iteration, l = {length}", arrays, scalars))
    return 0 if passed_over(gram_power_iteration, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
