"""How generated CPU kernels find the largest elements and where they are, as text: what comes first, insertion, lanes.

Out: Python source that uses what `prelude` brings along.  As instructions where they stand, all but the insertion take a
tenth of the time that Numba needs to compile them as functions.
"""
from __future__ import annotations

FIRST = '''
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
'''

INSERT = '''
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
'''

# The k largest of many: the elements are spread over 64 lanes, and the lanes with the k largest maxima are all that can
# hold one of them.  A lane's maximum becomes a whole number of the same order; where the last bits of that make room for
# the lane, no two are the same, so that the largest, and then the largest below it, are found by vectors and without a
# branch.  Lanes that differ in no other bit may be found in the wrong order: after k of them, that of the maxima counts.
LANES = '''
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


def _highest(builder, order, whole, below, wanted=None):
    """The largest rank below a bound, which is a lane's order but that it ends in the lane; -MOST if there is none."""
    rank = builder.or_(builder.and_(order, _of_lanes(builder, whole, [-64] * 64)), _of_lanes(builder, whole, range(63, -1, -1)))
    lower = builder.icmp_signed("<", rank, _of_lanes(builder, whole, below))
    rank = builder.select(lower if wanted is None else builder.and_(lower, wanted), rank, _of_lanes(builder, whole, [1 - 2**(whole.width - 1)] * 64))
    reduced = cgutils.get_or_insert_function(builder.module, ir.FunctionType(whole, [rank.type]), f"llvm.vector.reduce.smax.v64i{whole.width}")
    return builder.call(reduced, [rank])


@intrinsic
def ordered(context, lanes, keys):
    """The keys become whole numbers in the order of what the lanes hold."""
    def emit(context, builder, signature, args):
        (source, _), (target, whole) = (_lanes(context, builder, kind, each) for kind, each in zip(signature.args, args))
        builder.store(_order(builder, builder.load(source, align=8), whole), target, align=8)
        return context.get_dummy_value()
    return types.none(lanes, keys), emit


@intrinsic
def highest(context, keys, below):
    """The largest rank below a bound; of the lanes with equal ranks but for the lane, the first."""
    def emit(context, builder, signature, args):
        place, whole = _lanes(context, builder, signature.args[0], args[0])
        return _highest(builder, builder.load(place, align=8), whole, args[1])
    return keys.dtype(keys, keys.dtype), emit


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
        least, before = (_of_lanes(builder, each.type, each) for each in (least, builder.sub(position, args[4])))
        equal = builder.and_(builder.icmp_signed("==", order, least), builder.icmp_signed("<", _of_lanes(builder, word, range(64)), before))
        return _highest(builder, order, whole, args[1], builder.or_(builder.icmp_signed(">", order, least), equal))
    return keys.dtype(keys, keys.dtype, best, at, types.int64), emit
'''
