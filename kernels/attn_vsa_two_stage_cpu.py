"""attn_vsa_two_stage: one pass over l, 6 words of state per row, commutative merge.

Coarse scores q·mean_b K_l pick 2 tiles; attention over the keys of those, and over the tile means.

The operator
    attn_vsa_two_stage(q[d], Kt[l, b, d], Vt[l, b, v]):
        t1 = sqrt(size(d))
        t2 = sum(q * (sum(Kt, b) / size(b)), d) / t1
        t3 = index(l) == argtopk(t2, l, 2, name=t)
        t4 = sum(q * sum(where(t3, Kt, 0), l), d) / t1
        t5 = exp(t4 - max(max(t4, b), t))
        t6 = exp(t2 - max(t2, l))
        return sum(sum(t5 * sum(where(t3, Vt, 0), l), b), t) / sum(sum(t5, b), t), sum(t6 * (sum(Vt, b) / size(b)), l) / sum(t6, l)

One more element (a prime marks the new value)
    x    = (Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d)
    pos' = best_positions(2, pos, l)
    s1'  = Σ_t__1 (s1 if pos = pos' else 0) + (Kt[l,b,d] if l = pos' else 0)
    s5'  = Σ_t__1 (s5 if pos = pos' else 0) + (Vt[l,b,v] if l = pos' else 0)
    m'   = max(m, x)
    s6'  = s6·exp(m − m') + exp(x − m')·Σ_b Vt[l,b,v]
    s4'  = s4·exp(m − m') + exp(x − m')

Two states a and b
    pos' = best_positions(2, pos_a, pos_b)
    s1'  = Σ_t__1 (s1_a if pos_a = pos' else 0) + Σ_t__1 (s1_b if pos_b = pos' else 0)
    s5'  = Σ_t__1 (s5_a if pos_a = pos' else 0) + Σ_t__1 (s5_b if pos_b = pos' else 0)
    m'   = max(m_a, m_b)
    s6'  = s6_a·exp(m_a − m') + s6_b·exp(m_b − m')
    s4'  = s4_a·exp(m_a − m') + s4_b·exp(m_b − m')

Dangers
    exp((Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d) − m) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, recentre_difference, reset_among, exp_of_sum
Certificate: sha256 94824a6a000299fc9eff7006a4d249fd50b073aba009dfc90385f4c6d119e4b4
Schedule: tiles of 8192 along l, rows shared between threads
Needs NumPy and Numba.  `python attn_vsa_two_stage_cpu.py` checks it.
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
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


INPUTS = {"q": "d", "Kt": "l b d", "Vt": "l b v"}
DTYPES = {"q": "float32", "Kt": "float32", "Vt": "float32"}
TILE, BLOCK = 8192, 1


def attn_vsa_two_stage(q, Kt, Vt, *, threads=None):
    """attn_vsa_two_stage in one pass over l.

    Takes float32 q[…, d], float32 Kt[…, l, b, d], float32 Vt[…, l, b, v]; gives float32 […, v], float32 […, v].
    Leading dimensions are batch and broadcast.
    Raises TypeError for another dtype, ValueError for shapes that do not fit.
    """
    return one_pass({"q": q, "Kt": Kt, "Vt": Vt}, {}, threads)


def one_pass(arrays, scalars, threads):
    """The outputs for arrays and scalars by name."""
    arrays, lengths, batch = fitted(arrays, INPUTS, DTYPES)
    lengths["t"] = places(2, "l", lengths["l"])
    out0 = written(lengths, batch, "v", f4)
    out1 = written(lengths, batch, "v", f4)
    items = prod(batch)
    kernel(
        threads or get_num_threads(), items, TILE, BLOCK,
        *laid_out(arrays["q"], INPUTS["q"], "d", batch),
        *laid_out(arrays["Kt"], INPUTS["Kt"], "l b d", batch),
        *laid_out(arrays["Vt"], INPUTS["Vt"], "l b v", batch),
        lengths["d"], lengths["l"], lengths["b"], lengths["v"], lengths["t"], out0, out1)
    return (given_back(out0, batch, "v", "v"), given_back(out1, batch, "v", "v"))


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


@njit(**LOOP)
def make_S1(S1, q, n_b, Kt, n_d, n):
    wide_vectors()
    t2 = 1.0 / f8(n_b)
    for i_l in range(n):
        t1 = 0.0
        for i_d in range(n_d):
            t3 = 0.0
            for i_b in range(n_b):
                t3 = t3 + f8(Kt[i_l, i_b, i_d])
            t4 = t3 * t2
            t5 = f8(q[i_d]) * t4
            t1 = t1 + t5
        S1[i_l] = f4(t1)


@njit(**LOOP)
def make_S2(S2, Vt, n_b, n_v, n):
    wide_vectors()
    for i_l in range(n):
        for i_v in range(n_v):
            t1 = 0.0
            for i_b in range(n_b):
                t1 = t1 + f8(Vt[i_l, i_b, i_v])
            S2[i_l, i_v] = f4(t1)


@njit(**LOOP)
def fold_0(n_d, S1, n):
    wide_vectors()
    m = f4(-inf)
    t1 = np.sqrt(f8(n_d))
    t2 = 1.0 / t1
    for i_l in range(n):
        t3 = S1[i_l] * f4(t2)
        m = larger(m, t3)
    return m


@njit(**LOOP)
def best_pos(pos_value, pos, n_d, S1, start, n, lanes4, keys4, ranks4):
    wide_vectors()
    t1 = np.sqrt(f8(n_d))
    t2 = 1.0 / t1
    for lane in range(64):
        lanes4[lane] = f4(-inf)
    whole = n // 64 * 64
    for i0 in range(0, whole, 64):
        for lane in range(64):
            i_l = i0 + lane
            t3 = S1[np.uint64(i_l)] * f4(t2)
            lanes4[lane] = larger(lanes4[lane], t3)
    for lane in range(n - whole):
        i_l = whole + lane
        t3 = S1[np.uint64(i_l)] * f4(t2)
        lanes4[lane] = larger(lanes4[lane], t3)
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
            t3 = S1[np.uint64(i_l)] * f4(t2)
            value = f8(t3)
            if not value < bound:
                insert(pos_value, pos, value, (start + i_l))


@njit(**PART)
def rebase_1(s1, old_pos, pos, old_s1, n_t__1, n_d, n_b, n_t, s5, old_s5, n_v, s6, old_m, m, s4):
    seldom()
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_d in range(n_d):
                t1 = 0.0
                for i_t__1 in range(n_t__1):
                    t2 = old_pos[i_t__1] == pos[i_t]
                    t3 = old_s1[i_t__1, i_b, i_d] if t2 else f8(0)
                    t1 = t1 + t3
                s1[i_t, i_b, i_d] = t1
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_v in range(n_v):
                t4 = 0.0
                for i_t__1 in range(n_t__1):
                    t5 = old_pos[i_t__1] == pos[i_t]
                    t6 = old_s5[i_t__1, i_b, i_v] if t5 else f8(0)
                    t4 = t4 + t6
                s5[i_t, i_b, i_v] = t4
    t7 = anchored(old_m)
    t8 = anchored(m)
    t9 = t7 - t8
    t10 = math.exp(t9)
    for i_v in range(n_v):
        t11 = times(t10, s6[i_v])
        s6[i_v] = t11
    t12 = times(t10, s4)
    s4 = t12
    return s4


@njit(**LOOP)
def fold_1a(start, pos, Kt, s1, n_d, n_b, n_t, n):
    wide_vectors()
    for i_l in range(n):
        for i_t in range(n_t):
            t1 = (start + i_l) == pos[i_t]
            for i_b in range(n_b):
                for i_d in range(n_d):
                    t2 = f8(Kt[i_l, i_b, i_d]) if t1 else f8(0)
                    s1[i_t, i_b, i_d] = s1[i_t, i_b, i_d] + t2


@njit(**LOOP)
def fold_1b(start, pos, Vt, s5, n_v, n_b, n_t, n):
    wide_vectors()
    for i_l in range(n):
        for i_t in range(n_t):
            t1 = (start + i_l) == pos[i_t]
            for i_b in range(n_b):
                for i_v in range(n_v):
                    t2 = f8(Vt[i_l, i_b, i_v]) if t1 else f8(0)
                    s5[i_t, i_b, i_v] = s5[i_t, i_b, i_v] + t2


@njit(**LOOP)
def fold_1c(n_d, S1, m, S2, s6, n_v, n):
    wide_vectors()
    t1 = np.sqrt(f8(n_d))
    t2 = 1.0 / t1
    t4 = anchored(m)
    for i_l in range(n):
        t3 = f4(t2) * S1[i_l]
        t5 = t3 - f4(t4)
        t6 = exp4(t5)
        for i_v in range(n_v):
            t7 = t6 * S2[i_l, i_v]
            s6[i_v] = s6[i_v] + f8(t7)


@njit(**LOOP)
def fold_1d(n_d, S1, m, n):
    wide_vectors()
    s4 = f4(0.0)
    t1 = np.sqrt(f8(n_d))
    t2 = 1.0 / t1
    t4 = anchored(m)
    for i_l in range(n):
        t3 = f4(t2) * S1[i_l]
        t5 = t3 - f4(t4)
        t6 = exp4(t5)
        s4 = s4 + t6
    return s4


@njit(**PART)
def finish(s1, pos, n_t__1, n_d, n_b, n_t, s5, n_v, s6, m, s4, s, s2, H1, q, out0, s3, out1):
    seldom()
    for i_t in range(n_t):
        t1 = 0.0
        for i_t__1 in range(n_t__1):
            t2 = pos[i_t__1] == pos[i_t]
            t3 = 1.0 if t2 else f8(0)
            t1 = t1 + t3
        t4 = t1 != t1
        for i_b in range(n_b):
            for i_d in range(n_d):
                t5 = nan if t4 else s1[i_t, i_b, i_d]
                s1[i_t, i_b, i_d] = t5
    for i_t in range(n_t):
        t6 = 0.0
        for i_t__1 in range(n_t__1):
            t7 = pos[i_t__1] == pos[i_t]
            t8 = 1.0 if t7 else f8(0)
            t6 = t6 + t8
        t9 = t6 != t6
        for i_b in range(n_b):
            for i_v in range(n_v):
                t10 = nan if t9 else s5[i_t, i_b, i_v]
                s5[i_t, i_b, i_v] = t10
    t11 = m
    t12 = t11 - t11
    t13 = math.exp(t12)
    t14 = t13 != t13
    t15 = m - m
    t16 = t15 == 0.0
    t17 = m if t16 else f8(0)
    t18 = t17 - m
    t19 = math.exp(t18)
    for i_v in range(n_v):
        t20 = t19 * s6[i_v]
        t21 = t20 if t14 else s6[i_v]
        s6[i_v] = t21
    t22 = t19 * s4
    t23 = t22 if t14 else s4
    s4 = t23
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_d in range(n_d):
                t24 = 0.0
                for i_t__1 in range(n_t__1):
                    t25 = pos[i_t__1] == pos[i_t]
                    t26 = s1[i_t__1, i_b, i_d] if t25 else f8(0)
                    t24 = t24 + t26
                s[i_t, i_b, i_d] = t24
    for i_t in range(n_t):
        for i_b in range(n_b):
            for i_v in range(n_v):
                t27 = 0.0
                for i_t__1 in range(n_t__1):
                    t28 = pos[i_t__1] == pos[i_t]
                    t29 = s5[i_t__1, i_b, i_v] if t28 else f8(0)
                    t27 = t27 + t29
                s2[i_t, i_b, i_v] = t27
    t32 = np.sqrt(f8(n_d))
    t34 = (-inf)
    for i_t in range(n_t):
        t35 = (-inf)
        for i_b in range(n_b):
            t36 = 0.0
            for i_d in range(n_d):
                t37 = f8(q[i_d]) * s[i_t, i_b, i_d]
                t36 = t36 + t37
            t38 = t36 / t32
            t35 = larger(t35, t38)
        t34 = larger(t34, t35)
    for i_t in range(n_t):
        for i_b in range(n_b):
            t30 = 0.0
            for i_d in range(n_d):
                t31 = f8(q[i_d]) * s[i_t, i_b, i_d]
                t30 = t30 + t31
            t33 = t30 / t32
            t39 = t33 - t34
            t40 = exp8(t39)
            H1[i_t, i_b] = t40
    t44 = 0.0
    for i_t in range(n_t):
        t45 = 0.0
        for i_b in range(n_b):
            t45 = t45 + H1[i_t, i_b]
        t44 = t44 + t45
    for i_v in range(n_v):
        t41 = 0.0
        for i_t in range(n_t):
            t42 = 0.0
            for i_b in range(n_b):
                t43 = H1[i_t, i_b] * s2[i_t, i_b, i_v]
                t42 = t42 + t43
            t41 = t41 + t42
        t46 = t41 / t44
        out0[i_v] = f4(t46)
    t47 = 1.0 / f8(n_b)
    for i_v in range(n_v):
        t48 = t47 * s6[i_v]
        s3[i_v] = t48
    for i_v in range(n_v):
        t49 = s3[i_v] / s4
        out1[i_v] = f4(t49)
    return s4


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def sweep(first, last, tile, block, b_q, q, b_Kt, Kt, b_Vt, Vt, n_d, n_l, n_b, n_v, n_t, out0, out1):
    wide_vectors()
    pos = empty((n_t,), i8)
    pos_value = empty((n_t,), f8)
    s1 = empty((n_t, n_b, n_d,), f8)
    s5 = empty((n_t, n_b, n_v,), f8)
    s6 = empty((n_v,), f8)
    s = empty((n_t, n_b, n_d,), f8)
    s2 = empty((n_t, n_b, n_v,), f8)
    s3 = empty((n_v,), f8)
    old_pos = empty((n_t,), i8)
    old_s1 = empty((n_t, n_b, n_d,), f8)
    old_s5 = empty((n_t, n_b, n_v,), f8)
    S1_all = empty((tile,), f4)
    S2_all = empty((tile * n_v,), f4)
    lanes4 = empty((64,), f4)
    keys4 = empty((64,), i4)
    ranks4 = empty((65,), i4)
    H1 = empty((n_t, n_b,), f8)
    begin, end = 0, n_l
    for item in range(first, last):
        rest = item
        b = rest
        fill(pos, -1)
        fill(pos_value, -inf)
        m = f8((-inf))
        fill(s1, 0.0)
        fill(s5, 0.0)
        fill(s6, 0.0)
        s4 = f8(0.0)
        fill(s, 0)
        fill(s2, 0)
        fill(s3, 0)
        for t0 in range(begin, end, tile):
            n = tile if t0 + tile < end else end - t0
            seen = t0 + n - begin
            Kt_tile = Kt[b_Kt[b], t0:t0 + n]
            Vt_tile = Vt[b_Vt[b], t0:t0 + n]
            S1 = shaped(S1_all, (n,))
            S2 = shaped(S2_all, (n, n_v,))
            make_S1(S1, q[b_q[b]], n_b, Kt_tile, n_d, n)
            make_S2(S2, Vt_tile, n_b, n_v, n)
            copy(pos, old_pos)
            copy(s1, old_s1)
            copy(s5, old_s5)
            old_m = m
            r0 = fold_0(n_d, S1, n)
            m = larger(m, f8(r0))
            best_pos(pos_value, pos, n_d, S1, t0, n, lanes4, keys4, ranks4)
            if t0 > begin:
                s4 = rebase_1(s1, old_pos, pos, old_s1, n_t, n_d, n_b, n_t, s5, old_s5, n_v, s6, old_m, m, s4)
            for at in range(0, n, 384):
                piece = 384 if at + 384 < n else n - at
                ahead(Kt_tile, (n + at // 2) * n_b * n_d, (piece // 2) * n_b * n_d, (n // 2) * n_b * n_d, 2, 16)
                ahead(Vt_tile, (n + at // 2) * n_b * n_v, (piece // 2) * n_b * n_v, (n // 2) * n_b * n_v, 2, 16)
                fold_1a(t0 + at, pos, Kt_tile[at:at + piece], s1, n_d, n_b, n_t, piece)
            fold_1b(t0, pos, Vt_tile, s5, n_v, n_b, n_t, n)
            fold_1c(n_d, S1, m, S2, s6, n_v, n)
            r0 = fold_1d(n_d, S1, m, n)
            s4 = s4 + f8(r0)
        s4 = finish(s1, pos, n_t, n_d, n_b, n_t, s5, n_v, s6, m, s4, s, s2, H1, q[b_q[b]], out0[b], s3, out1[b])


@njit(cache=True, parallel=True, error_model="numpy")
def kernel(threads, items, tile, block, b_q, q, b_Kt, Kt, b_Vt, Vt, n_d, n_l, n_b, n_v, n_t, out0, out1):
    pieces = items if items < 8 * threads else 8 * threads
    for part in prange(threads):
        for piece in range(part, pieces, threads):
            sweep(piece * items // pieces, (piece + 1) * items // pieces, tile, block, b_q, q, b_Kt, Kt, b_Vt, Vt, n_d, n_l, n_b, n_v, n_t, out0, out1)


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


AXES = ('d', 'l', 'b', 'v', 't')


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


def definition(q, Kt, Vt):
    """attn_vsa_two_stage as it was written, in float64: one dimension per axis, of length 1 where a value does not vary."""
    q = spread(q, 'd')
    Kt = spread(Kt, 'l b d')
    Vt = spread(Vt, 'l b v')
    lengths = {"d": q.shape[-5], "l": Kt.shape[-4], "b": Kt.shape[-3], "v": Vt.shape[-2], "t": 2}
    t1 = np.sqrt(lengths["d"])
    t2 = np.sum(q * (np.sum(Kt, along("b"), keepdims=True) / lengths["b"]), along("d"), keepdims=True) / t1
    t3 = positions("l", lengths["l"]) == largest(t2, "l", 2, "t")
    t4 = np.sum(q * np.sum(np.where(t3, Kt, 0), along("l"), keepdims=True), along("d"), keepdims=True) / t1
    t5 = np.exp(t4 - np.max(np.max(t4, along("b"), keepdims=True), along("t"), keepdims=True))
    t6 = np.exp(t2 - np.max(t2, along("l"), keepdims=True))
    return (taken_out(np.sum(np.sum(t5 * np.sum(np.where(t3, Vt, 0), along("l"), keepdims=True), along("b"), keepdims=True), along("t"), keepdims=True) / np.sum(np.sum(t5, along("b"), keepdims=True), along("t"), keepdims=True), 'v', lengths), taken_out(np.sum(t6 * (np.sum(Vt, along("b"), keepdims=True) / lengths["b"]), along("l"), keepdims=True) / np.sum(t6, along("l"), keepdims=True), 'v', lengths),)


def main():
    """Check the kernel against the definition at lengths that are no multiple of a tile."""
    kinds, scalars, cases = {'q': 'normal', 'Kt': 'normal', 'Vt': 'normal'}, {}, []
    for length in (4097, 16391, 40957):
        sizes, rng = {"d": 6, "b": 8, "v": 9, "l": length}, np.random.default_rng(length)
        shapes = {name: (3,) + tuple(sizes[axis] for axis in axes.split()) for name, axes in INPUTS.items()}
        arrays = {name: drawn(rng, kinds[name], shape, length).astype(DTYPES[name]) for name, shape in shapes.items()}
        cases.append((f"attn_vsa_two_stage, l = {length}", arrays, scalars))
    return 0 if passed_over(attn_vsa_two_stage, definition, cases, 0.0001) else 1


if __name__ == "__main__":
    sys.exit(main())
