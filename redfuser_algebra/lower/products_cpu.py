"""The matrix product that generated CPU kernels bring along, as text.

Out: Python source that uses np, numba's njit, intrinsic, types and cgutils, and llvmlite's ir and binding.

The products of a tile are small: some rows times a few hundred columns, summed over as many elements.  BLAS is made for
large ones; measured on a core with AVX-512, these run 1.1 to 1.5 times faster, and large ones as fast.  One row is
multiplied as fast as memory is read: that gives several places at once, far apart, in two thirds of the time.
"""
from __future__ import annotations

# The result is made in patches that stay in registers while the summed index runs.  Six rows of four vectors and their
# factors fill 32 registers, six rows of two fill 16.  What a patch reads of the right factor is one piece of memory:
# either it is so already, or a panel is filled with it, which all rows share.  Rows that a patch has too many repeat
# the last one, and lanes that are no column are masked: no loop is left for LLVM to vectorise, which takes it long.
# Numba compiles a function once more for each literal that it is called with: i8(0) and b1(True) are no literals.
MULTIPLY = '''
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
'''

MASKED_PRODUCT = '''
@njit(**PART, fastmath={"reassoc"})
def all_finite(x):
    """Whether a contiguous array holds no infinity and no NaN."""
    flat, total = shaped(x, (x.size,)), x.dtype.type(0)
    for place in range(flat.size):
        total += flat[place] * x.dtype.type(0)
    return total == 0


@njit(**PART)
def product(left, taken, right, into):
    """into += left · right over the elements taken: what lies at others is never seen, be it NaN."""
    seldom()
    for i in range(left.shape[0]):
        for l in range(left.shape[1]):
            if taken[i, l]:
                for j in range(right.shape[1]):
                    into[i, j] += left[i, l] * right[l, j]
'''
