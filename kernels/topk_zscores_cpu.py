"""topk_zscores: one pass over l, 4 words of state per row, commutative merge.

The 4 largest (x_l − μ)/σ.

The operator
    topk_zscores(x[l]):
        t1 = x - sum(x, l) / size(l)
        return topk(t1 / sqrt(sum(t1 * t1, l) / size(l) + 0), l, 4, name=t)

One more element (a prime marks the new value)
    s'    = s + x[l]
    N'    = N + 1
    p1'   = s'/N'
    δ     = p1 − p1'
    s2'   = s2 + δ²·N + (x[l] − p1')²
    top1' = best_values(4, top1, x[l])

Two states a and b
    s'    = s_a + s_b
    N'    = N_a + N_b
    p1_a  = s_a/N_a
    p1_b  = s_b/N_b
    p1'   = s'/N'
    δ_a   = p1_a − p1'
    δ_b   = p1_b − p1'
    s2'   = s2_a + δ_a²·N_a + s2_b + δ_b²·N_b
    top1' = best_values(4, top1_a, top1_b)

Dangers
    p2 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, difference, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference, topk_shifts, topk_scales_by_nonnegative
Certificate: sha256 547cb507fa0ff07d1eea0c1f0ff5071111698bd7b206a39c678eb31967b44bc1
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python topk_zscores_cpu.py` checks it.
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


INPUTS = {"x": "l"}
DTYPES = {"x": "float32"}
TILE, BLOCK = 8192, 1


def topk_zscores(x, *, threads=None):
    """topk_zscores in one pass over l.

    Takes float32 x[…, l]; gives float32 […, t].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"x": x}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    lengths["t"] = places(4, "l", lengths["l"])
    out0 = written(lengths, batch, "t", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["x"], INPUTS["x"], "l", batch),
        lengths["l"], lengths["t"], out0)
    return given_back(out0, batch, "t", "t")


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
smaller = _extreme("llvm.minimum")


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


@njit(**LOOP)
def fold_0(x, n, real):
    wide_vectors()
    s = real(0.0)
    c0 = middle(x)
    for i_l in range(n):
        s = s + minus(real(x[i_l]), c0)
    s = f8(s) + f8(n) * f8(c0)
    return s


@njit(**LOOP)
def best_top1(top1, top1_at, x, start, n, lanes4, keys4, ranks4):
    wide_vectors()
    for lane in range(64):
        lanes4[lane] = f4(-inf)
    whole = n // 64 * 64
    for i0 in range(0, whole, 64):
        for lane in range(64):
            i_l = i0 + lane
            lanes4[lane] = larger(lanes4[lane], x[np.uint64(i_l)])
    for lane in range(n - whole):
        i_l = whole + lane
        lanes4[lane] = larger(lanes4[lane], x[np.uint64(i_l)])
    ordered(lanes4, keys4)
    rank, bound, place, wanted = MOST4, top1[-1], 0, top1_at.shape[0] if top1_at[-1] < 0 else 0
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
            rank = left_over(keys4, rank, top1, top1_at, start)
        place += 1
        if rank == -MOST4:
            break
        for i_l in range(63 - (rank & 63), n, 64):
            value = f8(x[np.uint64(i_l)])
            if not value < bound:
                insert(top1, top1_at, value, (start + i_l))


@njit(**PART)
def value_1(s, N):
    t1 = s / f8(N)
    p1 = t1
    return p1


@njit(**PART)
def rebase_1(s2, old_p1, p1, old_N):
    t1 = anchored(old_p1)
    t2 = anchored(p1)
    t3 = t1 - t2
    t4 = t3 * t3
    t5 = times(t4, f8(old_N))
    t6 = s2 + t5
    s2 = t6
    return s2


@njit(**LOOP)
def fold_1(x, p1, n, real):
    wide_vectors()
    s2 = real(0.0)
    t1 = anchored(p1)
    for i_l in range(n):
        t2 = apart(real(x[i_l]), t1, real)
        t3 = t2 * t2
        s2 = s2 + t3
    return s2


@njit(**PART)
def finish(s, N, p1, s2, top, top1, p2, n_t, out0):
    t1 = s / f8(N)
    p1 = t1
    t2 = p1
    t3 = t2 - t2
    t4 = t3 * t3
    t5 = 1.0 + t4
    t6 = t5 != t5
    t7 = s2 - s2
    t8 = t7 == 0.0
    t9 = p1 - p1
    t10 = t9 == 0.0
    t11 = p1 if t10 else f8(0)
    t12 = t11 - p1
    t13 = t12 * t12
    t14 = t13 * f8(N)
    t15 = s2 + t14
    t16 = t15 if t8 else nan
    t17 = t16 if t6 else s2
    s2 = t17
    t18 = s2 / f8(N)
    t19 = t18 + 0.0
    t20 = np.sqrt(t19)
    p2 = t20
    t22 = 1.0 / p2
    for i_t in range(n_t):
        t21 = top1[i_t] - p1
        t23 = t21 * t22
        top[i_t] = t23
    for i_t in range(n_t):
        out0[i_t] = f4(top[i_t])
    return p1, s2, p2


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_x, x, n_l, n_t, out0):
    wide_vectors()
    top1 = empty((n_t,), f8)
    top1_at = empty((n_t,), i8)
    top = empty((n_t,), f8)
    lanes4 = empty((64,), f4)
    keys4 = empty((64,), i4)
    ranks4 = empty((65,), i4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        s = f8(0.0)
        N = i8(0)
        fill(top1, (-inf))
        fill(top1_at, -1)
        s2 = f8(0.0)
        p1 = f8(0)
        p2 = f8(0)
        fill(top, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            x_tile = x[b_x[b], t0:t0 + n]
            old_p1 = p1
            old_N = N
            N += 1 * n
            r0 = fold_0(x_tile, n, f4)
            if not finite(r0):
                r0 = fold_0(x_tile, n, f8)
            s = s + f8(r0)
            best_top1(top1, top1_at, x_tile, t0, n, lanes4, keys4, ranks4)
            p1 = value_1(s, N)
            if t0 > begin:
                s2 = rebase_1(s2, old_p1, p1, old_N)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(x_tile, n + at // 4, piece // 4, n // 4, 4, 16)
                r0 = fold_1(x_tile[at:at + piece], p1, piece, f4)
                if not sound(r0):
                    r0 = fold_1(x_tile[at:at + piece], p1, piece, f8)
                s2 = s2 + f8(r0)
        p1, s2, p2 = finish(s, N, p1, s2, top, top1, p2, n_t, out0[b])


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_x, x, n_l, n_t, out0):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_x, x, n_l, n_t, out0)


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


AXES = ('l', 't')


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


def definition(x):
    """topk_zscores as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    x = spread(x, 'l')
    lengths = {"l": x.shape[-2], "t": 4}
    t1 = x - np.sum(x, along("l"), keepdims=True) / lengths["l"]
    return taken_out(chosen(t1 / np.sqrt(np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"] + 0), "l", largest(t1 / np.sqrt(np.sum(t1 * t1, along("l"), keepdims=True) / lengths["l"] + 0), "l", 4, "t"), "t"), 't', lengths)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'x': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"topk_zscores, l = {length}", arrays, scalars))
    return 0 if passed_over(topk_zscores, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
