"""The matrix product that generated CPU kernels bring along, as text.

Out: Python source that uses np, numba's njit, intrinsic, types and cgutils, and llvmlite's ir and binding.

The products of a tile are small: some rows times a few hundred columns, summed over as many elements.  BLAS is made for
large ones; measured on a core with AVX-512, these run 1.1 to 1.5 times faster, and large ones as fast.  One row at a
time they run as fast as memory is read.
"""
from __future__ import annotations

# The result is made in patches that stay in registers while the summed index runs.  Six rows of four vectors and their
# factors fill 32 registers, six rows of two fill 16.  What a patch reads of the right factor is one piece of memory:
# either it is so already, or a panel is filled with it, which all rows share.  Rows that a patch has too many repeat
# the last one, and columns that are no whole vector go by way of the rows at the end of the panel.  Numba compiles a
# function once more for each literal that it is called with: i8(0) and b1(True) are no literals.
MULTIPLY = '''
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
def product(left, taken, right, panel, into):
    """into += left · right over the elements taken: what lies at others is never seen, be it NaN."""
    if all_finite(right):
        multiply(left, right, b1(False), panel, into, b1(True))
        return
    for i in range(left.shape[0]):
        for l in range(left.shape[1]):
            if taken[i, l]:
                for j in range(right.shape[1]):
                    into[i, j] += left[i, l] * right[l, j]
'''
