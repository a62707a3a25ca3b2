"""moe_routing: one pass over l, 3 words of state per row, commutative merge.

p = softmax over experts l of X W; the k largest p and their experts.

The operator
    moe_routing(X[m, d], W[d, l]; k=2):
        d1 = sum(X * W, d)
        t1 = exp(d1 - max(d1, l))
        t2 = t1 / sum(t1, l)
        return topk(t2, l, k), argtopk(t2, l, k)

One more element (a prime marks the new value)
    x    = Σ_d X[m,d]·W[d,l]
    m2'  = max(m2, x)
    s'   = s·exp(m2 − m2') + exp(x − m2')
    pos' = best_positions(k, pos, l)

Two states a and b
    m2'  = max(m2_a, m2_b)
    s'   = s_a·exp(m2_a − m2') + s_b·exp(m2_b − m2')
    pos' = best_positions(k, pos_a, pos_b)

Dangers
    pos is found among elements without their pivots: where these are not finite, NumPy's is the position of the first NaN

Laws: multiply_commutes, multiply_associates, multiply_one, difference, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum, topk_shifts, topk_scales_by_nonnegative, topk_of_exp, argtopk_ignores_shift,
argtopk_ignores_positive_scale, argtopk_ignores_exp
Certificate: sha256 1ba692c565197e457484e2cdc910e427935ef5232452e7678c09ee377e71c954
Schedule: tiles of 512 along l, blocks of 256 along m, rows shared between threads
Needs NumPy and Numba.  `python moe_routing_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import math
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


INPUTS = {"X": "m d", "W": "d l"}
DTYPES = {"X": "float32", "W": "float32"}
TILE, BLOCK = 512, 256


def moe_routing(X, W, *, k=2, threads=None):
    """moe_routing in one pass over l.

    Takes float32 X[…, m, d], float32 W[…, d, l]; gives float32 […, m, top], int64 […, m, top].  Leading
    dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X, "W": W}, {"k": k}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    lengths["top"] = places(scalars["k"], "l", lengths["l"])
    out0 = written(lengths, batch, "m top", f4)
    out1 = written(lengths, batch, "m top", i8)
    items = prod(batch) * -(-lengths["m"] // BLOCK)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["X"], INPUTS["X"], "m d", batch),
        *laid_out(arrays["W"], INPUTS["W"], "l d", batch),
        i8(scalars["k"]),
        lengths["m"], lengths["d"], lengths["l"], lengths["top"], out0, out1)
    return (given_back(out0, batch, "m top", "m top"), given_back(out1, batch, "m top", "m top"))


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
smaller = _extreme("llvm.minimum")


def _beats(builder, value, best):
    """Whether a value beats another, and whether it equals that: NaN beats numbers, and equals NaN."""
    nan, other = builder.fcmp_unordered("uno", value, value), builder.fcmp_unordered("uno", best, best)
    beats = builder.or_(builder.fcmp_ordered(">", value, best), builder.and_(nan, builder.not_(other)))
    return beats, builder.or_(builder.fcmp_ordered("==", value, best), builder.and_(nan, other))


@intrinsic
def precedes(context, value, position, best, at):
    """Whether a value beats one found anywhere: of equals, that at the lower position; at < 0 is an empty place."""
    def emit(context, builder, signature, args):
        value, position, best, at = args
        beats, equals = _beats(builder, value, best)
        first = builder.or_(beats, builder.and_(equals, builder.icmp_signed("<", position, at)))
        return builder.or_(first, builder.icmp_signed("<", at, at.type(0)))
    return types.boolean(value, types.int64, value, types.int64), emit


@njit(**PART, forceinline=True)
def insert(best, at, value, position):
    """Put a value among the k best so far, largest first."""
    place = best.shape[0] - 1
    while place > 0 and at[place - 1] < 0:
        place -= 1
    while place >= 0 and precedes(value, position, best[place], at[place]):
        if place < best.shape[0] - 1:
            best[place + 1] = best[place]
            at[place + 1] = at[place]
        best[place] = value
        at[place] = position
        place -= 1


MOST4, MOST8 = i4(2**31 - 1), i8(2**63 - 1)


def _of_lanes(builder, kind, value):
    """A vector with a number per lane, or with one number in all."""
    vector, places = ir.VectorType(kind, 64), ir.VectorType(ir.IntType(32), 64)
    if not isinstance(value, ir.Value):
        return ir.Constant(vector, list(value))
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(places, [0] * 64))


def _lanes(context, builder, kind, array):
    """Where the numbers of all lanes lie, as a vector, and the type of one."""
    number = context.get_data_type(kind.dtype)
    return builder.bitcast(context.make_array(kind)(context, builder, array).data, ir.VectorType(number, 64).as_pointer()), number


def _order(builder, x, whole):
    """Whole numbers in the order of those in a vector: NaN is above all, and -0 is 0."""
    every = lambda kind, number: ir.Constant(kind, [number] * kind.count)
    kind = ir.VectorType(whole, x.type.count)
    bits = builder.bitcast(x, kind)
    sign = builder.ashr(bits, every(kind, whole.width - 1))
    order = builder.xor(bits, builder.lshr(sign, every(kind, 1)))
    order = builder.select(builder.fcmp_ordered("==", x, every(x.type, 0.0)), every(kind, 0), order)
    return builder.select(builder.fcmp_unordered("uno", x, x), every(kind, 2**(whole.width - 1) - 128), order)


def _ranks(builder, order, whole):
    """The order of what each lane holds, but that it ends in the lane: the first of equal ones is the largest."""
    return builder.or_(builder.and_(order, _of_lanes(builder, whole, [-64] * 64)), _of_lanes(builder, whole, range(63, -1, -1)))


def _highest(builder, rank, whole, below, wanted=None):
    """The largest rank below a bound; -MOST if there is none."""
    lower = builder.icmp_signed("<", rank, _of_lanes(builder, whole, below))
    rank = builder.select(lower if wanted is None else builder.and_(lower, wanted), rank, _of_lanes(builder, whole, [1 - 2**(whole.width - 1)] * 64))
    reduced = cgutils.get_or_insert_function(builder.module, ir.FunctionType(whole, [rank.type]), f"llvm.vector.reduce.smax.v64i{whole.width}")
    return builder.call(reduced, [rank])


EIGHT = ((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3), (4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6))
FALLING = ((0, 4), (1, 5), (2, 6), (3, 7), (0, 2), (1, 3), (4, 6), (5, 7), (0, 1), (2, 3), (4, 5), (6, 7))


def _first_eight(builder, rank, whole):
    """The eight largest of 64 ranks, in order: eight columns are sorted side by side, and merged with each other."""
    vector, places = ir.VectorType(whole, 8), lambda these: ir.Constant(ir.VectorType(ir.IntType(32), 8), list(these))
    larger, smaller = (cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector, vector]), f"llvm.{name}.v8i{whole.width}")
                       for name in ("smax", "smin"))
    rows = [builder.shuffle_vector(rank, rank, places(range(8 * each, 8 * each + 8))) for each in range(8)]
    def swapped(pairs):
        for i, j in pairs:
            rows[i], rows[j] = builder.call(larger, [rows[i], rows[j]]), builder.call(smaller, [rows[i], rows[j]])
    swapped(EIGHT)
    for apart in (4, 2, 1):
        others = [builder.shuffle_vector(row, row, places(each ^ apart for each in range(8))) for row in rows]
        rows[:] = [builder.call(larger, [row, other]) for row, other in zip(rows, reversed(others))]
        swapped(FALLING)
    return [builder.extract_element(row, ir.IntType(32)(0)) for row in rows]


@intrinsic
def ordered(context, lanes, keys):
    """The keys become whole numbers in the order of what the lanes hold."""
    def emit(context, builder, signature, args):
        (source, _), (target, whole) = (_lanes(context, builder, kind, each) for kind, each in zip(signature.args, args))
        builder.store(_order(builder, builder.load(source, align=8), whole), target, align=8)
        return context.get_dummy_value()
    return types.none(lanes, keys), emit


@intrinsic
def ranked(context, keys, count, ranks):
    """The largest ranks of all lanes, in order: one more than a count, -MOST after the last lane's."""
    def emit(context, builder, signature, args):
        (place, whole), (into, _) = (_lanes(context, builder, signature.args[each], args[each]) for each in (0, 2))
        into = builder.bitcast(into, whole.as_pointer())
        rank = _ranks(builder, builder.load(place, align=8), whole)
        few = builder.icmp_signed("<", args[1], args[1].type(8))
        with builder.if_else(few) as (then, otherwise):
            with then:
                for each, one in enumerate(_first_eight(builder, rank, whole)):
                    builder.store(one, builder.gep(into, [ir.IntType(32)(each)]))
            with otherwise:
                below = cgutils.alloca_once_value(builder, whole(2**(whole.width - 1) - 1))
                most = builder.select(builder.icmp_signed("<", args[1], args[1].type(64)), args[1], args[1].type(64))
                with cgutils.for_range(builder, builder.add(most, most.type(1))) as loop:
                    one = _highest(builder, rank, whole, builder.load(below))
                    builder.store(one, builder.gep(into, [loop.index]))
                    builder.store(one, below)
        return context.get_dummy_value()
    return types.none(keys, count, ranks), emit


@intrinsic
def left_over(context, keys, below, best, at, start):
    """The largest rank below a bound, of lanes with something that precedes the last of the best; a lane's first is at start + lane."""
    def emit(context, builder, signature, args):
        place, whole = _lanes(context, builder, signature.args[0], args[0])
        order, word = builder.load(place, align=8), ir.IntType(64)
        best, at = (context.make_array(kind)(context, builder, each) for kind, each in zip(signature.args[2:4], args[2:4]))
        value, position = (builder.load(builder.gep(each.data, [builder.sub(each.nitems, word(1))])) for each in (best, at))
        value = value if whole.width == 64 else builder.fptrunc(value, ir.FloatType())
        value = builder.insert_element(ir.Constant(ir.VectorType(value.type, 1), ir.Undefined), value, ir.IntType(32)(0))
        least = builder.extract_element(_order(builder, value, whole), ir.IntType(32)(0))
        least = builder.select(builder.icmp_signed("<", position, word(0)), whole(1 - 2**(whole.width - 1)), least)
        before, end = builder.sub(position, args[4]), word(64)
        before = builder.select(builder.icmp_signed("<", before, end), builder.select(builder.icmp_signed("<", before, word(0)), word(0), before), end)
        least, before = (_of_lanes(builder, whole, each) for each in (least, before if whole.width == 64 else builder.trunc(before, whole)))
        equal = builder.and_(builder.icmp_signed("==", order, least), builder.icmp_signed("<", _of_lanes(builder, whole, range(64)), before))
        return _highest(builder, _ranks(builder, order, whole), whole, args[1], builder.or_(builder.icmp_signed(">", order, least), equal))
    return keys.dtype(keys, keys.dtype, best, at, types.int64), emit


@njit(**PART)
def whole(x, least, most):
    """The nearest whole number between the limits; NaN becomes 0."""
    return i8(0) if x != x else i8(most) if x >= most else i8(least) if x <= least else i8(np.rint(x))


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
def fold_0(S1, n):
    wide_vectors()
    m2 = f4(-inf)
    for i_l in range(n):
        m2 = larger(m2, S1[i_l])
    return m2


@njit(**LOOP)
def best_pos(pos_value, pos, S1, start, n, lanes4, keys4, ranks4):
    wide_vectors()
    for lane in range(64):
        lanes4[lane] = f4(-inf)
    whole = n // 64 * 64
    for i0 in range(0, whole, 64):
        for lane in range(64):
            i_l = i0 + lane
            lanes4[lane] = larger(lanes4[lane], S1[np.uint64(i_l)])
    for lane in range(n - whole):
        i_l = whole + lane
        lanes4[lane] = larger(lanes4[lane], S1[np.uint64(i_l)])
    ordered(lanes4, keys4)
    rank, bound, place, wanted = MOST4, pos_value[-1], 0, pos.shape[0] if pos[-1] < 0 else 0
    if wanted > 0:
        ranked(keys4, wanted, ranks4)
    if 0 < wanted <= 64 < n:
        bound = inf
        for each in range(wanted):
            bound = smaller(bound, f8(lanes4[63 - (ranks4[each] & 63)]))
    while True:
        if place < wanted:
            rank = ranks4[place]
        elif 0 < wanted == place and ranks4[place] >> 6 < rank >> 6:
            break
        else:
            rank = left_over(keys4, rank, pos_value, pos, start)
        place += 1
        if rank == -MOST4:
            break
        for i_l in range(63 - (rank & 63), n, 64):
            value = f8(S1[np.uint64(i_l)])
            if not value < bound:
                insert(pos_value, pos, value, (start + i_l))


@njit(**PART)
def rebase_1(old_m2, m2, s):
    t1 = anchored(old_m2)
    t2 = anchored(m2)
    t3 = t1 - t2
    t4 = math.exp(t3)
    t5 = times(t4, s)
    s = t5
    return s


@njit(**LOOP)
def fold_1(S1, m2, n):
    wide_vectors()
    s = f4(0.0)
    t1 = anchored(m2)
    for i_l in range(n):
        t2 = S1[i_l] - f4(t1)
        t3 = decay4(t2)
        s = s + t3
    return s


@njit(**PART)
def finish(m2, s, top2, pos_value, n_top, out0, out1, pos):
    t1 = m2
    t2 = t1 - t1
    t3 = math.exp(t2)
    t4 = t3 != t3
    t5 = m2 - m2
    t6 = t5 == 0.0
    t7 = m2 if t6 else f8(0)
    t8 = t7 - m2
    t9 = math.exp(t8)
    t10 = t9 * s
    t11 = t10 if t4 else s
    s = t11
    t14 = 1.0 / s
    for i_top in range(n_top):
        t12 = pos_value[i_top] - m2
        t13 = math.exp(t12)
        t15 = t13 * t14
        top2[i_top] = t15
    for i_top in range(n_top):
        out0[i_top] = f4(top2[i_top])
    for i_top in range(n_top):
        out1[i_top] = pos[i_top]
    return s


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, b_W, W, k, n_m, n_d, n_l, n_top, out0, out1):
    wide_vectors()
    m2 = empty((block,), f8)
    pos = empty((block, n_top,), i8)
    pos_value = empty((block, n_top,), f8)
    s = empty((block,), f8)
    top2 = empty((block, n_top,), f8)
    old_m2 = empty((block,), f8)
    panel = empty((n_d + WIDE // 4, VECTORS * WIDE // 4), f4)
    S1_all = empty((block * tile,), f4)
    lanes4 = empty((64,), f4)
    keys4 = empty((64,), i4)
    ranks4 = empty((65,), i4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        blocks = (n_m + block - 1) // block
        i0 = rest % blocks * block
        nb = block if i0 + block < n_m else n_m - i0
        rest //= blocks
        b = rest
        fill(m2, (-inf))
        fill(pos, -1)
        fill(pos_value, -inf)
        fill(s, 0.0)
        fill(top2, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            W_tile = W[b_W[b], t0:t0 + n]
            S1 = shaped(S1_all, (nb, n,))
            multiply(X[b_X[b], i0:i0 + nb], W_tile, b1(True), panel, S1)
            copy(m2, old_m2)
            for i in range(nb):
                i_m = i0 + i
                r0 = fold_0(S1[i], n)
                m2[i] = larger(m2[i], f8(r0))
                best_pos(pos_value[i], pos[i], S1[i], t0, n, lanes4, keys4, ranks4)
            for i in range(nb):
                i_m = i0 + i
                if t0 > begin:
                    s[i] = rebase_1(old_m2[i], m2[i], s[i])
                r0 = fold_1(S1[i], m2[i], n)
                s[i] = s[i] + f8(r0)
        for i in range(nb):
            i_m = i0 + i
            s[i] = finish(m2[i], s[i], top2[i], pos_value[i], n_top, out0[b, i_m], out1[b, i_m], pos[i])


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, b_W, W, k, n_m, n_d, n_l, n_top, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_X, X, b_W, W, k, n_m, n_d, n_l, n_top, out0, out1)


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


def places(number, axis, length):
    """A top-k number that there are enough elements for."""
    if int(number) != number or not 1 <= number <= length:
        raise ValueError(f"{number} of the {length} elements of axis {axis} cannot be chosen: give a whole number from 1 to {length}")
    return int(number)


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


AXES = ('m', 'd', 'l', 'top')


def along(axis):
    """The dimension of an axis, counted from the end."""
    return AXES.index(axis) - len(AXES)


def spread(array, axes):
    """An array with dimensions (batch…, its axes…) in float64, with one dimension per axis of AXES."""
    own = [along(axis) for axis in axes.split()]
    array = np.asarray(array, np.float64)[(..., *(None,) * (len(AXES) - len(own)))]
    return np.moveaxis(array, range(-len(AXES), len(own) - len(AXES)), own)


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


def chosen(body, axis, at, out):
    """The elements at positions that `largest` found."""
    return np.swapaxes(np.take_along_axis(body, np.swapaxes(at, along(axis), along(out)), along(axis)), along(axis), along(out))


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


def definition(X, W, k):
    """moe_routing as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'm d')
    W = spread(W, 'd l')
    lengths = {"m": X.shape[-4], "d": X.shape[-3], "l": W.shape[-2], "top": k}
    d1 = np.sum(X * W, along("d"), keepdims=True)
    t1 = np.exp(d1 - np.max(d1, along("l"), keepdims=True))
    t2 = t1 / np.sum(t1, along("l"), keepdims=True)
    return (taken_out(chosen(t2, "l", largest(t2, "l", k, "top"), "top"), 'm top', lengths), taken_out(largest(t2, "l", k, "top"), 'm top', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal', 'W': 'normal'}, {'k': 2}, []
    for length in (257, 1031, 2557):
        sizes, rng = {"m": 259, "d": 5, "l": length}, np.random.default_rng(length)
        shapes = {name: () + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"moe_routing, l = {length}", arrays, scalars))
    return 0 if passed_over(moe_routing, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
