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
def fill(context, array, value):
    """Every element of a contiguous array becomes a value."""
    def emit(context, builder, signature, args):
        target = context.make_array(array)(context, builder, args[0])
        with cgutils.for_range(builder, target.nitems) as loop:
            context.pack_value(builder, array.dtype, args[1], builder.gep(target.data, [loop.index]))
        return context.get_dummy_value()
    return types.none(array, array.dtype), emit


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
HOST = binding.get_host_cpu_features()
WIDE = 64 if HOST.get("avx512f") else 32 if HOST.get("avx2") else 16
ROWS, VECTORS, DOTS = 6, 4 if HOST.get("avx512f") or HOST.get("neon") else 2, 4
I32, I64 = ir.IntType(32), ir.IntType(64)


def _vectors(array):
    """The LLVM type of a vector of an array's numbers, how many they are, and the bytes of one."""
    real, size = (ir.FloatType(), 4) if array.dtype == types.float32 else (ir.DoubleType(), 8)
    return ir.VectorType(real, WIDE // size), WIDE // size, size


def _arrays(context, builder, signature, args, places):
    """Arrays among the arguments."""
    return [context.make_array(signature.args[place])(context, builder, args[place]) for place in places]


def _place(builder, array, row, column, vector):
    """Where the vector lies that begins at an element."""
    length = builder.udiv(builder.extract_value(array.strides, 0), array.itemsize)
    return builder.bitcast(builder.gep(array.data, [builder.add(builder.mul(row, length), column)]), vector.as_pointer())


def _rows(builder, first, number, end, apart=I64(1)):
    """So many rows from the first on, so far apart; those that are not before the end are the last one."""
    last, rows = builder.sub(end, I64(1)), [builder.add(first, builder.mul(I64(each), apart)) for each in range(number)]
    return [builder.select(builder.icmp_signed("<", row, last), row, last) for row in rows]


def _spread(builder, value, lanes):
    """A vector of one value."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, value, I32(0)), undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def _taken(builder, count, lanes):
    """The mask of as many lanes as there are elements left."""
    return builder.icmp_signed("<", ir.Constant(ir.VectorType(I32, lanes), list(range(lanes))), _spread(builder, builder.trunc(count, I32), lanes))


def _call(builder, name, vector, result, given, **flags):
    """Call what LLVM has under a name for a kind of vector."""
    kind = f"v{vector.count}f{64 if vector.element == ir.DoubleType() else 32}"
    function = ir.FunctionType(result, [each.type for each in given])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name.format(kind)), given, **flags)


def _load(builder, place, align, mask, vector):
    """The elements at the lanes of a mask, and 0 at others."""
    return _call(builder, "llvm.masked.load.{}.p0", vector, vector, (place, I32(align), mask, ir.Constant(vector, [0.0] * vector.count)))


def _store(builder, value, place, align, mask):
    """The lanes of a mask become elements."""
    _call(builder, "llvm.masked.store.{}.p0", value.type, ir.VoidType(), (value, place, I32(align), mask))


def _sums(builder, vector, number):
    """Vectors of sums, which LLVM keeps in registers."""
    return [cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * vector.count)) for _ in range(number)]


def _add(builder, total, one, other):
    """total += one · other"""
    builder.store(builder.fadd(builder.load(total), builder.fmul(one, other, flags=("contract",)), flags=("contract",)), total)


def _patch(vectors):
    """A function for up to ROWS rows of a product, and `vectors` vectors of their columns."""
    @intrinsic
    def patch(context, left, first, end, right, at, into, column, width, adds):
        """into[first:end, column:column + width] = left[first:end] · right[:, at:], plus what is there if it adds."""
        def emit(context, builder, signature, args):
            a, b, c = _arrays(context, builder, signature, args, (0, 3, 5))
            vector, lanes, align = _vectors(left)
            rows, steps = _rows(builder, args[1], ROWS, args[2]), [I64(each * lanes) for each in range(vectors)]
            starts = [builder.gep(a.data, [builder.mul(row, builder.udiv(builder.extract_value(a.strides, 0), a.itemsize))]) for row in rows]
            sums = [_sums(builder, vector, vectors) for _ in rows]
            with cgutils.for_range(builder, builder.extract_value(a.shape, 1)) as loop:
                rights = [builder.load(_place(builder, b, loop.index, builder.add(args[4], step), vector), align=align) for step in steps]
                for start, totals in zip(starts, sums):
                    one = _spread(builder, builder.load(builder.gep(start, [loop.index])), lanes)
                    for total, other in zip(totals, rights):
                        _add(builder, total, one, other)
            masks = [_taken(builder, builder.sub(args[7], step), lanes) for step in steps]
            targets = [(total, _place(builder, c, row, builder.add(args[6], step), vector), mask)
                       for row, totals in zip(rows, sums) for total, step, mask in zip(totals, steps, masks)]
            with builder.if_then(args[8]):
                for total, place, mask in targets:
                    builder.store(builder.fadd(builder.load(total), _load(builder, place, align, mask, vector)), total)
            for total, place, mask in targets:
                _store(builder, builder.load(total), place, align, mask)
            return context.get_dummy_value()
        return types.none(left, first, end, right, at, into, column, width, adds), emit
    return patch


narrow_rows, wide_rows = _patch(1), _patch(VECTORS)


@intrinsic
def turned(context, right, row, column, panel, to):
    """panel[column:, to:] = right[row:, column:].T for a square as long as a vector: log2 of that exchanges of blocks."""
    def emit(context, builder, signature, args):
        source, target = _arrays(context, builder, signature, args, (0, 3))
        vector, lanes, align = _vectors(right)
        height, width = (builder.extract_value(source.shape, dim) for dim in (0, 1))
        rows, mask = _rows(builder, args[1], lanes, height), _taken(builder, builder.sub(width, args[2]), lanes)
        lines = [_load(builder, _place(builder, source, each, args[2], vector), align, mask, vector) for each in rows]
        far = lanes // 2
        while far:
            low = [lanes + lane - far if lane & far else lane for lane in range(lanes)]
            high = [lanes + lane if lane & far else lane + far for lane in range(lanes)]
            low, high = (ir.Constant(ir.VectorType(I32, lanes), lane) for lane in (low, high))
            for line in range(lanes):
                if not line & far:
                    pair = lines[line], lines[line + far]
                    lines[line], lines[line + far] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
            far //= 2
        for step, line in enumerate(lines):
            builder.store(line, _place(builder, target, builder.add(args[2], I64(step)), args[4], vector), align=align)
        return context.get_dummy_value()
    return types.none(right, row, column, panel, to), emit


@intrinsic
def gathered(context, right, row, first, width, panel):
    """panel[row] = right[row, first:first + width], all its vectors."""
    def emit(context, builder, signature, args):
        source, target = _arrays(context, builder, signature, args, (0, 4))
        vector, lanes, align = _vectors(right)
        steps = [I64(each * lanes) for each in range(VECTORS)]
        lines = [_load(builder, _place(builder, source, args[1], builder.add(args[2], step), vector), align,
                       _taken(builder, builder.sub(args[3], step), lanes), vector) for step in steps]
        for step, line in zip(steps, lines):
            builder.store(line, _place(builder, target, args[1], step, vector), align=align)
        return context.get_dummy_value()
    return types.none(right, row, first, width, panel), emit


@intrinsic
def dotted(context, left, right, row, apart, into):
    """into[0, row::apart] = left[0] · right[row::apart].T for DOTS rows."""
    def emit(context, builder, signature, args):
        a, b, c = _arrays(context, builder, signature, args, (0, 1, 4))
        (vector, lanes, align), length = _vectors(right), builder.extract_value(b.shape, 1)
        rows, sums = _rows(builder, args[2], DOTS, builder.extract_value(b.shape, 0), args[3]), _sums(builder, vector, DOTS)
        with cgutils.for_range(builder, builder.udiv(builder.add(length, I64(lanes - 1)), I64(lanes))) as loop:
            at = builder.mul(loop.index, I64(lanes))
            mask = _taken(builder, builder.sub(length, at), lanes)
            one = _load(builder, _place(builder, a, I64(0), at, vector), align, mask, vector)
            for row, total in zip(rows, sums):
                _add(builder, total, one, _load(builder, _place(builder, b, row, at, vector), align, mask, vector))
        for row, total in zip(rows, sums):
            given = ir.Constant(vector.element, 0.0), builder.load(total)
            builder.store(_call(builder, "llvm.vector.reduce.fadd.{}", vector, vector.element, given, fastmath=("reassoc",)), builder.gep(c.data, [row]))
        return context.get_dummy_value()
    return types.none(left, right, row, apart, into), emit


@intrinsic
def weighed(context, left, right, apart, into, column):
    """into[0, column:] += left[0] · right[:, column:] for VECTORS vectors of columns, DOTS rows so far apart at a time."""
    def emit(context, builder, signature, args):
        a, b, c = _arrays(context, builder, signature, args, (0, 1, 3))
        (vector, lanes, align), zero = _vectors(right), ir.Constant(a.data.type.pointee, 0.0)
        end, width = builder.extract_value(b.shape, 0), builder.sub(builder.extract_value(b.shape, 1), args[4])
        masks = [_taken(builder, builder.sub(width, I64(each * lanes)), lanes) for each in range(VECTORS)]
        load = lambda array, row, step, mask: _load(builder, _place(builder, array, row, builder.add(args[4], I64(step * lanes)), vector), align, mask, vector)
        sums = [cgutils.alloca_once_value(builder, load(c, I64(0), step, mask)) for step, mask in enumerate(masks)]
        with cgutils.for_range(builder, args[2]) as loop:
            for each, row in enumerate(_rows(builder, loop.index, DOTS, end, args[2])):
                taken = builder.icmp_signed("<", builder.add(loop.index, builder.mul(I64(each), args[2])), end)
                one = _spread(builder, builder.select(taken, builder.load(builder.gep(a.data, [row])), zero), lanes)
                for step, (total, mask) in enumerate(zip(sums, masks)):
                    _add(builder, total, one, load(b, row, step, builder.and_(mask, _spread(builder, taken, lanes))))
        for step, (total, mask) in enumerate(zip(sums, masks)):
            _store(builder, builder.load(total), _place(builder, c, I64(0), builder.add(args[4], I64(step * lanes)), vector), align, mask)
        return context.get_dummy_value()
    return types.none(left, right, apart, into, column), emit


@njit(**PART)
def multiply(left, right, turns, panel, into):
    """into = left · right.T if it turns, else into += left · right; the panel is memory to work in."""
    (rows, columns), square = into.shape, WIDE // into.itemsize
    if rows == 1:
        apart = (right.shape[0] + DOTS - 1) // DOTS
        if turns:
            for j in range(apart):
                dotted(left, right, j, apart, into)
        else:
            for j in range(0, columns, VECTORS * square):
                weighed(left, right, apart, into, j)
        return
    j = i8(0)
    while j < columns:
        strip = VECTORS * square if columns - j >= VECTORS * square else square
        width = strip if j + strip < columns else columns - j
        gathers = width < strip or rows > 4 * ROWS and columns > strip
        if turns:
            for i in range(0, width, square):
                for k in range(0, right.shape[1], square):
                    turned(right, j + i, k, panel, i)
        elif gathers:
            for k in range(right.shape[0]):
                gathered(right, k, j, width, panel)
        source, at = (panel, 0) if turns or gathers else (right, j)
        for i in range(0, rows, ROWS):
            if strip > square:
                wide_rows(left, i, rows, source, at, into, j, width, not turns)
            else:
                narrow_rows(left, i, rows, source, at, into, j, width, not turns)
        j += strip


@njit(**LOOP)
def make_S1(S1, X, n_c, n):
    wide_vectors()
    for i_l in range(n):
        t1 = 0.0
        for i_c in range(n_c):
            t1 = t1 + f8(X[i_l, i_c])
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
    t25 = larger(t21, 0.0)
    s4 = t25
    return s4


@njit(**PART)
def finish_b(s4):
    out1 = f4(s4)
    return out1


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
    panel = empty((tile + WIDE // 4, VECTORS * WIDE // 4), f4)
    S1_all = empty((tile,), f4)
    P1_all = empty((tile,), f4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(s, f4(0.0))
        fill(s1, 0.0)
        fill(p1, 0)
        fill(s2, 0)
        fill(p2, 0)
        fill(s3, 0)
        fill(p3, 0)
        s4 = f8(0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            X_tile = X[b_X[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            P1 = shaped(P1_all, (1, n))
            make_S1(S1, X_tile, n_c, n)
            fold_0a(S1, P1[0], n)
            fold_0b(X_tile, s1, n_c, n_c, n)
            multiply(P1, X_tile, b1(False), panel, shaped(s, (1, n_c)))
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


def definition(X):
    """gram_power_iteration as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l c')
    lengths = {"l": X.shape[-2], "c": X.shape[-1]}
    d1 = np.sum(np.sum(X * 1.0, along("c"), keepdims=True) * X, along("l"), keepdims=True)
    d2 = np.sum(np.sum(X * (d1 / np.sqrt(np.sum(d1 * d1, along("c"), keepdims=True))), along("c"), keepdims=True) * X, along("l"), keepdims=True)
    d3 = np.sum(np.sum(X * (d2 / np.sqrt(np.sum(d2 * d2, along("c"), keepdims=True))), along("c"), keepdims=True) * X, along("l"), keepdims=True)
    t1 = d3 / np.sqrt(np.sum(d3 * d3, along("c"), keepdims=True))
    return (taken_out(t1, 'c', lengths), taken_out(np.sum(np.sum(X * t1, along("c"), keepdims=True) ** 2, along("l"), keepdims=True), '', lengths),)


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
