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
# the lane, no two are the same.  The largest of them, and then the largest below it, are found by vectors and without a
# branch, up to seven by networks: eight columns of lanes are sorted side by side, and merged.  Lanes that differ in no
# other bit may be found in the wrong order: after k of them, that of the maxima counts.
EIGHT = ((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3), (4, 5), (6, 7), (2, 4), (3, 5),
         (1, 4), (3, 6), (1, 2), (3, 4), (5, 6))
"""Which of eight numbers are compared, one pair after the other: the larger one goes first, and in the end all are in order."""

FALLING = ((0, 4), (1, 5), (2, 6), (3, 7), (0, 2), (1, 3), (4, 6), (5, 7), (0, 1), (2, 3), (4, 5), (6, 7))
"""The same for eight numbers that rise and then fall, or fall and then rise."""

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


def _ranks(builder, order, whole):
    """The order of what each lane holds, but that it ends in the lane: the first of equal ones is the largest."""
    return builder.or_(builder.and_(order, _of_lanes(builder, whole, [-64] * 64)), _of_lanes(builder, whole, range(63, -1, -1)))


def _highest(builder, rank, whole, below, wanted=None):
    """The largest rank below a bound; -MOST if there is none."""
    lower = builder.icmp_signed("<", rank, _of_lanes(builder, whole, below))
    rank = builder.select(lower if wanted is None else builder.and_(lower, wanted), rank, _of_lanes(builder, whole, [1 - 2**(whole.width - 1)] * 64))
    reduced = cgutils.get_or_insert_function(builder.module, ir.FunctionType(whole, [rank.type]), f"llvm.vector.reduce.smax.v64i{whole.width}")
    return builder.call(reduced, [rank])


EIGHT = <eight>
FALLING = <falling>


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
'''.replace("<eight>", str(EIGHT)).replace("<falling>", str(FALLING))
