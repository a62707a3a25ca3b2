"""moe_group_limited: one pass over l, 2 words of state per row, commutative merge.

s = σ(X); the 2 groups l whose two best experts e sum highest; of the 4 best experts in them s/Σ s, then l·E + e.

The operator
    moe_group_limited(X[l, e]):
        t1 = index(e) >= 0
        t2 = 0.5 * tanh(0.5 * X) + 0.5
        d1 = argtopk(max(t2, e) + max(where(index(e) == argmax(X, e), 0, t2), e), l, 2, name=b)
        d2 = sum(where(index(l) == d1, X, 0), l)
        t3 = where(t1, d2, -inf)
        d3 = max(t3, e)
        t4 = 0.5 * tanh(0.5 * max(d3, b)) + 0.5
        d4 = argmax(d3, b)
        d5 = argmax(t3, e)
        t5 = t1 & ((index(b) != d4) | (index(e) != d5))
        t6 = where(t5, d2, -inf)
        d6 = max(t6, e)
        t7 = 0.5 * tanh(0.5 * max(d6, b)) + 0.5
        d7 = argmax(d6, b)
        d8 = argmax(t6, e)
        t8 = t5 & ((index(b) != d7) | (index(e) != d8))
        t9 = where(t8, d2, -inf)
        d9 = max(t9, e)
        t10 = 0.5 * tanh(0.5 * max(d9, b)) + 0.5
        d10 = argmax(d9, b)
        d11 = argmax(t9, e)
        t11 = where(t8 & ((index(b) != d10) | (index(e) != d11)), d2, -inf)
        d12 = max(t11, e)
        t12 = 0.5 * tanh(0.5 * max(d12, b)) + 0.5
        t13 = 0 + t4 + t7 + t10 + t12
        t14 = d1 * size(e)
        return t4 / t13, t7 / t13, t10 / t13, t12 / t13, sum(where(index(b) == d4, t14 + d5, 0), b), sum(where(index(b) == d7, t14 + d8, 0), b), sum(where(index(b) == d10, t14 + d11, 0), b), sum(where(index(b) == argmax(d12, b), t14 + argmax(t11, e), 0), b)

One more element (a prime marks the new value)
    pos' = best_positions(2, pos, l)
    s1'  = Σ_b__1 (s1 if pos = pos' else 0) + (X[l,e] if l = pos' else 0)

Two states a and b
    pos' = best_positions(2, pos_a, pos_b)
    s1'  = Σ_b__1 (s1_a if pos_a = pos' else 0) + Σ_b__1 (s1_b if pos_b = pos' else 0)

Dangers
    0.5·tanh(0.5·max_b max_e (s if e ≥ 0 else −∞)) + 0.5 + 0.5·tanh(0.5·max_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) + 0.5 + 0.5·tanh(0.5·max_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) else −∞)) + 0.5 + 0.5·tanh(0.5·max_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) ∧ (b ≠ argmax_b max_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 ∧ (b ≠ argmax_b max_e (s if e ≥ 0 else −∞) ∨ e ≠ argmax_e (s if e ≥ 0 else −∞)) else −∞)) else −∞)) else −∞)) + 0.5 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, reset_among
Certificate: sha256 6a4e473cf83dba3b1a7cac12df5b3b21dcef61314e43f1849244a9756ebae7b7
Schedule: tiles of 2048 along l, rows shared between threads
Needs NumPy and Numba.  `python moe_group_limited_cpu.py` checks it.
Written by `redfuser export`; changes are lost when it is written again.
"""
import sys
import time
from math import prod

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"X": "l e"}
DTYPES = {"X": "float32"}
TILE, BLOCK = 2048, 1


def moe_group_limited(X, *, threads=None):
    """moe_group_limited in one pass over l.

    Takes float32 X[…, l, e]; gives float32 […], float32 […], float32 […], float32 […], int64 […], int64 […],
    int64 […], int64 […].  Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"X": X}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    lengths["b"] = places(2, "l", lengths["l"])
    out0 = written(lengths, batch, "", f4)
    out1 = written(lengths, batch, "", f4)
    out2 = written(lengths, batch, "", f4)
    out3 = written(lengths, batch, "", f4)
    out4 = written(lengths, batch, "", i8)
    out5 = written(lengths, batch, "", i8)
    out6 = written(lengths, batch, "", i8)
    out7 = written(lengths, batch, "", i8)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["X"], INPUTS["X"], "l e", batch),
        lengths["l"], lengths["e"], lengths["b"], out0, out1, out2, out3, out4, out5, out6, out7)
    return (given_back(out0, batch, "", ""), given_back(out1, batch, "", ""), given_back(out2, batch, "", ""), given_back(out3, batch, "", ""), given_back(out4, batch, "", ""), given_back(out5, batch, "", ""), given_back(out6, batch, "", ""), given_back(out7, batch, "", ""))


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
smaller = _extreme("llvm.minimum")


def _beats(builder, value, best):
    """Whether a value beats another, and whether it equals that: NaN beats numbers, and equals NaN."""
    nan, other = builder.fcmp_unordered("uno", value, value), builder.fcmp_unordered("uno", best, best)
    beats = builder.or_(builder.fcmp_ordered(">", value, best), builder.and_(nan, builder.not_(other)))
    return beats, builder.or_(builder.fcmp_ordered("==", value, best), builder.and_(nan, other))


@intrinsic
def comes_first(context, value, best, at):
    """Whether a value beats one found earlier: NaN beats numbers, equals keep their order, at < 0 is an empty place."""
    def emit(context, builder, signature, args):
        beats, _ = _beats(builder, *args[:2])
        return builder.or_(beats, builder.icmp_signed("<", args[2], args[2].type(0)))
    return types.boolean(value, value, types.int64), emit


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
def make_S1(S1, X, n_e, n):
    wide_vectors()
    for i_l in range(n):
        t1 = (-inf)
        for i_e in range(n_e):
            t2 = 0.5 * f8(X[i_l, i_e])
            t3 = np.tanh(t2)
            t4 = 0.5 * t3
            t5 = t4 + 0.5
            t1 = larger(t1, t5)
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, X, n_e, n):
    wide_vectors()
    for i_l in range(n):
        t1 = (-inf)
        t2 = -1
        t2_value = -inf
        for i_e in range(n_e):
            if comes_first(f8(X[i_l, i_e]), t2_value, t2):
                t2, t2_value = i_e, f8(X[i_l, i_e])
        for i_e in range(n_e):
            t3 = i_e == t2
            t4 = 0.5 * f8(X[i_l, i_e])
            t5 = np.tanh(t4)
            t6 = 0.5 * t5
            t7 = t6 + 0.5
            t8 = f8(0) if t3 else t7
            t1 = larger(t1, t8)
        S2[i_l] = f4(t1)


@njit(**LOOP)
def best_pos(pos_value, pos, S1, S2, start, n, lanes4, keys4, ranks4):
    wide_vectors()
    for lane in range(64):
        lanes4[lane] = f4(-inf)
    whole = n // 64 * 64
    for i0 in range(0, whole, 64):
        for lane in range(64):
            i_l = i0 + lane
            t1 = S1[np.uint64(i_l)] + S2[np.uint64(i_l)]
            lanes4[lane] = larger(lanes4[lane], t1)
    for lane in range(n - whole):
        i_l = whole + lane
        t1 = S1[np.uint64(i_l)] + S2[np.uint64(i_l)]
        lanes4[lane] = larger(lanes4[lane], t1)
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
            t1 = S1[np.uint64(i_l)] + S2[np.uint64(i_l)]
            value = f8(t1)
            if not value < bound:
                insert(pos_value, pos, value, (start + i_l))


@njit(**PART)
def rebase_1(s1, old_pos, pos, old_s1, n_b__1, n_e, n_b):
    for i_b in range(n_b):
        for i_e in range(n_e):
            t1 = 0.0
            for i_b__1 in range(n_b__1):
                t2 = old_pos[i_b__1] == pos[i_b]
                t3 = old_s1[i_b__1, i_e] if t2 else f8(0)
                t1 = t1 + t3
            s1[i_b, i_e] = t1


@njit(**LOOP)
def fold_1(start, pos, X, s1, n_e, n_b, n):
    wide_vectors()
    for i_l in range(n):
        for i_b in range(n_b):
            t1 = (start + i_l) == pos[i_b]
            for i_e in range(n_e):
                t2 = f8(X[i_l, i_e]) if t1 else f8(0)
                s1[i_b, i_e] = s1[i_b, i_e] + t2


@njit(**PART)
def finish(s1, pos, n_b__1, n_e, n_b, s):
    seldom()
    for i_b in range(n_b):
        t1 = 0.0
        for i_b__1 in range(n_b__1):
            t2 = pos[i_b__1] == pos[i_b]
            t3 = 1.0 if t2 else f8(0)
            t1 = t1 + t3
        t4 = t1 != t1
        for i_e in range(n_e):
            t5 = nan if t4 else s1[i_b, i_e]
            s1[i_b, i_e] = t5
    for i_b in range(n_b):
        for i_e in range(n_e):
            t6 = 0.0
            for i_b__1 in range(n_b__1):
                t7 = pos[i_b__1] == pos[i_b]
                t8 = s1[i_b__1, i_e] if t7 else f8(0)
                t6 = t6 + t8
            s[i_b, i_e] = t6
    t9 = (-inf)
    for i_b in range(n_b):
        t10 = (-inf)
        for i_e in range(n_e):
            t11 = i_e >= 0
            t12 = s[i_b, i_e] if t11 else (-inf)
            t10 = larger(t10, t12)
        t9 = larger(t9, t10)
    t13 = 0.5 * t9
    t14 = np.tanh(t13)
    t15 = 0.5 * t14
    t16 = t15 + 0.5
    t17 = 0.0 + t16
    t18 = (-inf)
    t21 = -1
    t21_value = -inf
    for i_b in range(n_b):
        t22 = (-inf)
        for i_e in range(n_e):
            t23 = i_e >= 0
            t24 = s[i_b, i_e] if t23 else (-inf)
            t22 = larger(t22, t24)
        if comes_first(t22, t21_value, t21):
            t21, t21_value = i_b, t22
    for i_b in range(n_b):
        t19 = (-inf)
        t25 = i_b != t21
        t26 = -1
        t26_value = -inf
        for i_e in range(n_e):
            t27 = i_e >= 0
            t28 = s[i_b, i_e] if t27 else (-inf)
            if comes_first(t28, t26_value, t26):
                t26, t26_value = i_e, t28
        for i_e in range(n_e):
            t20 = i_e >= 0
            t29 = i_e != t26
            t30 = t25 | t29
            t31 = t20 & t30
            t32 = s[i_b, i_e] if t31 else (-inf)
            t19 = larger(t19, t32)
        t18 = larger(t18, t19)
    t33 = 0.5 * t18
    t34 = np.tanh(t33)
    t35 = 0.5 * t34
    t36 = t35 + 0.5
    t37 = t17 + t36
    t38 = (-inf)
    t48 = -1
    t48_value = -inf
    for i_b in range(n_b):
        t49 = (-inf)
        t51 = i_b != t21
        t52 = -1
        t52_value = -inf
        for i_e in range(n_e):
            t53 = i_e >= 0
            t54 = s[i_b, i_e] if t53 else (-inf)
            if comes_first(t54, t52_value, t52):
                t52, t52_value = i_e, t54
        for i_e in range(n_e):
            t50 = i_e >= 0
            t55 = i_e != t52
            t56 = t51 | t55
            t57 = t50 & t56
            t58 = s[i_b, i_e] if t57 else (-inf)
            t49 = larger(t49, t58)
        if comes_first(t49, t48_value, t48):
            t48, t48_value = i_b, t49
    for i_b in range(n_b):
        t39 = (-inf)
        t41 = i_b != t21
        t42 = -1
        t42_value = -inf
        for i_e in range(n_e):
            t43 = i_e >= 0
            t44 = s[i_b, i_e] if t43 else (-inf)
            if comes_first(t44, t42_value, t42):
                t42, t42_value = i_e, t44
        t59 = i_b != t48
        t60 = -1
        t60_value = -inf
        for i_e in range(n_e):
            t61 = i_e >= 0
            t62 = i_e != t42
            t63 = t41 | t62
            t64 = t61 & t63
            t65 = s[i_b, i_e] if t64 else (-inf)
            if comes_first(t65, t60_value, t60):
                t60, t60_value = i_e, t65
        for i_e in range(n_e):
            t40 = i_e >= 0
            t45 = i_e != t42
            t46 = t41 | t45
            t47 = t40 & t46
            t66 = i_e != t60
            t67 = t59 | t66
            t68 = t47 & t67
            t69 = s[i_b, i_e] if t68 else (-inf)
            t39 = larger(t39, t69)
        t38 = larger(t38, t39)
    t70 = 0.5 * t38
    t71 = np.tanh(t70)
    t72 = 0.5 * t71
    t73 = t72 + 0.5
    t74 = t37 + t73
    t75 = (-inf)
    t95 = -1
    t95_value = -inf
    for i_b in range(n_b):
        t96 = (-inf)
        t98 = i_b != t21
        t99 = -1
        t99_value = -inf
        for i_e in range(n_e):
            t100 = i_e >= 0
            t101 = s[i_b, i_e] if t100 else (-inf)
            if comes_first(t101, t99_value, t99):
                t99, t99_value = i_e, t101
        t105 = i_b != t48
        t106 = -1
        t106_value = -inf
        for i_e in range(n_e):
            t107 = i_e >= 0
            t108 = i_e != t99
            t109 = t98 | t108
            t110 = t107 & t109
            t111 = s[i_b, i_e] if t110 else (-inf)
            if comes_first(t111, t106_value, t106):
                t106, t106_value = i_e, t111
        for i_e in range(n_e):
            t97 = i_e >= 0
            t102 = i_e != t99
            t103 = t98 | t102
            t104 = t97 & t103
            t112 = i_e != t106
            t113 = t105 | t112
            t114 = t104 & t113
            t115 = s[i_b, i_e] if t114 else (-inf)
            t96 = larger(t96, t115)
        if comes_first(t96, t95_value, t95):
            t95, t95_value = i_b, t96
    for i_b in range(n_b):
        t76 = (-inf)
        t78 = i_b != t21
        t79 = -1
        t79_value = -inf
        for i_e in range(n_e):
            t80 = i_e >= 0
            t81 = s[i_b, i_e] if t80 else (-inf)
            if comes_first(t81, t79_value, t79):
                t79, t79_value = i_e, t81
        t85 = i_b != t48
        t86 = -1
        t86_value = -inf
        for i_e in range(n_e):
            t87 = i_e >= 0
            t88 = i_e != t79
            t89 = t78 | t88
            t90 = t87 & t89
            t91 = s[i_b, i_e] if t90 else (-inf)
            if comes_first(t91, t86_value, t86):
                t86, t86_value = i_e, t91
        t116 = i_b != t95
        t117 = -1
        t117_value = -inf
        for i_e in range(n_e):
            t118 = i_e >= 0
            t119 = i_e != t79
            t120 = t78 | t119
            t121 = t118 & t120
            t122 = i_e != t86
            t123 = t85 | t122
            t124 = t121 & t123
            t125 = s[i_b, i_e] if t124 else (-inf)
            if comes_first(t125, t117_value, t117):
                t117, t117_value = i_e, t125
        for i_e in range(n_e):
            t77 = i_e >= 0
            t82 = i_e != t79
            t83 = t78 | t82
            t84 = t77 & t83
            t92 = i_e != t86
            t93 = t85 | t92
            t94 = t84 & t93
            t126 = i_e != t117
            t127 = t116 | t126
            t128 = t94 & t127
            t129 = s[i_b, i_e] if t128 else (-inf)
            t76 = larger(t76, t129)
        t75 = larger(t75, t76)
    t130 = 0.5 * t75
    t131 = np.tanh(t130)
    t132 = 0.5 * t131
    t133 = t132 + 0.5
    t134 = t74 + t133
    t135 = t16 / t134
    out0 = f4(t135)
    t136 = t36 / t134
    out1 = f4(t136)
    t137 = t73 / t134
    out2 = f4(t137)
    t138 = t133 / t134
    out3 = f4(t138)
    t139 = 0
    for i_b in range(n_b):
        t140 = i_b == t21
        t141 = pos[i_b] * n_e
        t142 = -1
        t142_value = -inf
        for i_e in range(n_e):
            t143 = i_e >= 0
            t144 = s[i_b, i_e] if t143 else (-inf)
            if comes_first(t144, t142_value, t142):
                t142, t142_value = i_e, t144
        t145 = t141 + t142
        t146 = t145 if t140 else 0
        t139 = t139 + t146
    out4 = t139
    t147 = 0
    for i_b in range(n_b):
        t148 = i_b == t48
        t149 = pos[i_b] * n_e
        t150 = -1
        t150_value = -inf
        t152 = i_b != t21
        t153 = -1
        t153_value = -inf
        for i_e in range(n_e):
            t154 = i_e >= 0
            t155 = s[i_b, i_e] if t154 else (-inf)
            if comes_first(t155, t153_value, t153):
                t153, t153_value = i_e, t155
        for i_e in range(n_e):
            t151 = i_e >= 0
            t156 = i_e != t153
            t157 = t152 | t156
            t158 = t151 & t157
            t159 = s[i_b, i_e] if t158 else (-inf)
            if comes_first(t159, t150_value, t150):
                t150, t150_value = i_e, t159
        t160 = t149 + t150
        t161 = t160 if t148 else 0
        t147 = t147 + t161
    out5 = t147
    t162 = 0
    for i_b in range(n_b):
        t163 = i_b == t95
        t164 = pos[i_b] * n_e
        t165 = -1
        t165_value = -inf
        t167 = i_b != t21
        t168 = -1
        t168_value = -inf
        for i_e in range(n_e):
            t169 = i_e >= 0
            t170 = s[i_b, i_e] if t169 else (-inf)
            if comes_first(t170, t168_value, t168):
                t168, t168_value = i_e, t170
        t174 = i_b != t48
        t175 = -1
        t175_value = -inf
        for i_e in range(n_e):
            t176 = i_e >= 0
            t177 = i_e != t168
            t178 = t167 | t177
            t179 = t176 & t178
            t180 = s[i_b, i_e] if t179 else (-inf)
            if comes_first(t180, t175_value, t175):
                t175, t175_value = i_e, t180
        for i_e in range(n_e):
            t166 = i_e >= 0
            t171 = i_e != t168
            t172 = t167 | t171
            t173 = t166 & t172
            t181 = i_e != t175
            t182 = t174 | t181
            t183 = t173 & t182
            t184 = s[i_b, i_e] if t183 else (-inf)
            if comes_first(t184, t165_value, t165):
                t165, t165_value = i_e, t184
        t185 = t164 + t165
        t186 = t185 if t163 else 0
        t162 = t162 + t186
    out6 = t162
    t187 = 0
    t188 = -1
    t188_value = -inf
    for i_b in range(n_b):
        t189 = (-inf)
        t191 = i_b != t21
        t192 = -1
        t192_value = -inf
        for i_e in range(n_e):
            t193 = i_e >= 0
            t194 = s[i_b, i_e] if t193 else (-inf)
            if comes_first(t194, t192_value, t192):
                t192, t192_value = i_e, t194
        t198 = i_b != t48
        t199 = -1
        t199_value = -inf
        for i_e in range(n_e):
            t200 = i_e >= 0
            t201 = i_e != t192
            t202 = t191 | t201
            t203 = t200 & t202
            t204 = s[i_b, i_e] if t203 else (-inf)
            if comes_first(t204, t199_value, t199):
                t199, t199_value = i_e, t204
        t208 = i_b != t95
        t209 = -1
        t209_value = -inf
        for i_e in range(n_e):
            t210 = i_e >= 0
            t211 = i_e != t192
            t212 = t191 | t211
            t213 = t210 & t212
            t214 = i_e != t199
            t215 = t198 | t214
            t216 = t213 & t215
            t217 = s[i_b, i_e] if t216 else (-inf)
            if comes_first(t217, t209_value, t209):
                t209, t209_value = i_e, t217
        for i_e in range(n_e):
            t190 = i_e >= 0
            t195 = i_e != t192
            t196 = t191 | t195
            t197 = t190 & t196
            t205 = i_e != t199
            t206 = t198 | t205
            t207 = t197 & t206
            t218 = i_e != t209
            t219 = t208 | t218
            t220 = t207 & t219
            t221 = s[i_b, i_e] if t220 else (-inf)
            t189 = larger(t189, t221)
        if comes_first(t189, t188_value, t188):
            t188, t188_value = i_b, t189
    for i_b in range(n_b):
        t222 = i_b == t188
        t223 = pos[i_b] * n_e
        t224 = -1
        t224_value = -inf
        t226 = i_b != t21
        t227 = -1
        t227_value = -inf
        for i_e in range(n_e):
            t228 = i_e >= 0
            t229 = s[i_b, i_e] if t228 else (-inf)
            if comes_first(t229, t227_value, t227):
                t227, t227_value = i_e, t229
        t233 = i_b != t48
        t234 = -1
        t234_value = -inf
        for i_e in range(n_e):
            t235 = i_e >= 0
            t236 = i_e != t227
            t237 = t226 | t236
            t238 = t235 & t237
            t239 = s[i_b, i_e] if t238 else (-inf)
            if comes_first(t239, t234_value, t234):
                t234, t234_value = i_e, t239
        t243 = i_b != t95
        t244 = -1
        t244_value = -inf
        for i_e in range(n_e):
            t245 = i_e >= 0
            t246 = i_e != t227
            t247 = t226 | t246
            t248 = t245 & t247
            t249 = i_e != t234
            t250 = t233 | t249
            t251 = t248 & t250
            t252 = s[i_b, i_e] if t251 else (-inf)
            if comes_first(t252, t244_value, t244):
                t244, t244_value = i_e, t252
        for i_e in range(n_e):
            t225 = i_e >= 0
            t230 = i_e != t227
            t231 = t226 | t230
            t232 = t225 & t231
            t240 = i_e != t234
            t241 = t233 | t240
            t242 = t232 & t241
            t253 = i_e != t244
            t254 = t243 | t253
            t255 = t242 & t254
            t256 = s[i_b, i_e] if t255 else (-inf)
            if comes_first(t256, t224_value, t224):
                t224, t224_value = i_e, t256
        t257 = t223 + t224
        t258 = t257 if t222 else 0
        t187 = t187 + t258
    out7 = t187
    return out0, out1, out2, out3, out4, out5, out6, out7


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_X, X, n_l, n_e, n_b, out0, out1, out2, out3, out4, out5, out6, out7):
    wide_vectors()
    pos = empty((n_b,), i8)
    pos_value = empty((n_b,), f8)
    s1 = empty((n_b, n_e,), f8)
    s = empty((n_b, n_e,), f8)
    old_pos = empty((n_b,), i8)
    old_s1 = empty((n_b, n_e,), f8)
    S1_all = empty((tile,), f4)
    S2_all = empty((tile,), f4)
    lanes4 = empty((64,), f4)
    keys4 = empty((64,), i4)
    ranks4 = empty((65,), i4)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(pos, -1)
        fill(pos_value, -inf)
        fill(s1, 0.0)
        fill(s, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            X_tile = X[b_X[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n,))
            make_S1(S1, X_tile, n_e, n)
            make_S2(S2, X_tile, n_e, n)
            copy(pos, old_pos)
            copy(s1, old_s1)
            best_pos(pos_value, pos, S1, S2, t0, n, lanes4, keys4, ranks4)
            if t0 > begin:
                rebase_1(s1, old_pos, pos, old_s1, n_b, n_e, n_b)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(X_tile, (n + at // 4) * n_e, (piece // 4) * n_e, (n // 4) * n_e, 4, 16)
                fold_1(t0 + at, pos, X_tile[at:at + piece], s1, n_e, n_b, piece)
        out0[b], out1[b], out2[b], out3[b], out4[b], out5[b], out6[b], out7[b] = finish(s1, pos, n_b, n_e, n_b, s)


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_X, X, n_l, n_e, n_b, out0, out1, out2, out3, out4, out5, out6, out7):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_X, X, n_l, n_e, n_b, out0, out1, out2, out3, out4, out5, out6, out7)


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


AXES = ('l', 'e', 'b')


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


def largest(body, axis, k, out, where=None):
    """The positions of the k largest elements along an axis, as an axis `out`; of equals the first comes first."""
    order = np.argsort(-body if where is None else np.where(where, -body, np.inf), axis=along(axis), kind="stable")
    return np.swapaxes(np.take(order, range(k), along(axis)), along(axis), along(out))


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
    """moe_group_limited as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    X = spread(X, 'l e')
    lengths = {"l": X.shape[-3], "e": X.shape[-2], "b": 2}
    t1 = positions("e", lengths["e"]) >= 0
    t2 = 0.5 * np.tanh(0.5 * X) + 0.5
    d1 = largest(np.max(t2, along("e"), keepdims=True) + np.max(np.where(positions("e", lengths["e"]) == np.argmax(X, along("e"), keepdims=True), 0, t2), along("e"), keepdims=True), "l", 2, "b")
    d2 = np.sum(np.where(positions("l", lengths["l"]) == d1, X, 0), along("l"), keepdims=True)
    t3 = np.where(t1, d2, -np.inf)
    d3 = np.max(t3, along("e"), keepdims=True)
    t4 = 0.5 * np.tanh(0.5 * np.max(d3, along("b"), keepdims=True)) + 0.5
    d4 = np.argmax(d3, along("b"), keepdims=True)
    d5 = np.argmax(t3, along("e"), keepdims=True)
    t5 = np.logical_and(t1, np.logical_or(positions("b", lengths["b"]) != d4, positions("e", lengths["e"]) != d5))
    t6 = np.where(t5, d2, -np.inf)
    d6 = np.max(t6, along("e"), keepdims=True)
    t7 = 0.5 * np.tanh(0.5 * np.max(d6, along("b"), keepdims=True)) + 0.5
    d7 = np.argmax(d6, along("b"), keepdims=True)
    d8 = np.argmax(t6, along("e"), keepdims=True)
    t8 = np.logical_and(t5, np.logical_or(positions("b", lengths["b"]) != d7, positions("e", lengths["e"]) != d8))
    t9 = np.where(t8, d2, -np.inf)
    d9 = np.max(t9, along("e"), keepdims=True)
    t10 = 0.5 * np.tanh(0.5 * np.max(d9, along("b"), keepdims=True)) + 0.5
    d10 = np.argmax(d9, along("b"), keepdims=True)
    d11 = np.argmax(t9, along("e"), keepdims=True)
    t11 = np.where(np.logical_and(t8, np.logical_or(positions("b", lengths["b"]) != d10, positions("e", lengths["e"]) != d11)), d2, -np.inf)
    d12 = np.max(t11, along("e"), keepdims=True)
    t12 = 0.5 * np.tanh(0.5 * np.max(d12, along("b"), keepdims=True)) + 0.5
    t13 = 0 + t4 + t7 + t10 + t12
    t14 = d1 * lengths["e"]
    return (taken_out(t4 / t13, '', lengths), taken_out(t7 / t13, '', lengths), taken_out(t10 / t13, '', lengths), taken_out(t12 / t13, '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == d4, t14 + d5, 0), along("b"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == d7, t14 + d8, 0), along("b"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == d10, t14 + d11, 0), along("b"), keepdims=True), '', lengths), taken_out(np.sum(np.where(positions("b", lengths["b"]) == np.argmax(d12, along("b"), keepdims=True), t14 + np.argmax(t11, along("e"), keepdims=True), 0), along("b"), keepdims=True), '', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'X': 'normal'}, {}, []
    for length in (1025, 4103, 10237):
        sizes, rng = {"e": 4, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"moe_group_limited, l = {length}", arrays, scalars))
    return 0 if passed_over(moe_group_limited, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
