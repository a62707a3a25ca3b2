"""The arithmetic that generated CPU kernels bring along, as text: exponentials, extremes with NaN, memory, rounding.

Out: Python source that uses np and numba's njit, intrinsic and ir; `prelude(names)` holds only what is used.
"""
from __future__ import annotations

import re
from collections.abc import Iterable

from redfuser_algebra.lower.products_cpu import MASKED_PRODUCT, MULTIPLY
from redfuser_algebra.lower.topk_cpu import FIRST, INSERT, LANES

# exp(x) = 2^n · e^r with n the nearest whole number to x / ln 2.  Adding and subtracting 1.5·2^23 rounds, and leaves n
# in the low bits; no flag here may let the compiler cancel the two.  ln 2 is subtracted in two parts whose first has
# so few bits that n times it is exact.  In float32 the polynomial gives 2·e^r, to be scaled by 2^(n−1): that is a
# normal number up to the largest result, and 0 from n = −126 on; the number that rounds brings its exponent's 126 with it.
# In float64 2^n is applied in two factors, so that results underflow gradually.  As instructions where they stand these
# take a tenth of the time that Numba needs to compile them as functions.
_REDUCED = '''
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
'''

_EXP4 = '''
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


# An element less the largest one is at most 0; where that one is infinite or NaN, sums become NaN by it alone.
exp4, decay4 = _exp4(89.0), _exp4(None)
'''

_EXP8 = '''
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


# An element less the largest one is at most 0; where that one is infinite or NaN, sums become NaN by it alone.
exp8, decay8 = _exp8(710.0), _exp8(None)
'''

_TIMES = '''
@intrinsic
def times(context, factor, x):
    """factor · x, and 0 where x is 0, whatever the factor."""
    def emit(context, builder, signature, args):
        factor, x = args
        zero = ir.Constant(x.type, 0.0)
        return builder.select(builder.fcmp_ordered("==", x, zero), zero, builder.fmul(factor, x))
    return x(x, x), emit
'''

_FINITE = '''
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
'''

_SINGLE = '''
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
def fit(x, real):
    """A float64 number in a type; NaN, which is told from every sum, where its digits would be lost."""
    near = real(x)
    return near if f8(near) == x or 1e-30 < abs(x) < 1e30 else real(nan)


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
'''

_MEANS = '''
@njit(**PART)
def mean_of(x, total):
    """The mean of numbers with this sum; where it may be that of equal ones, without what rounding the sum has left."""
    mean = total / x.size
    if abs(x[0] - mean) <= 2.0**-30 * abs(mean):
        left = 0.0
        for place in range(x.size):
            left += x[place] - mean
        mean += left / x.size
    return mean


@njit(**PART)
def towards(mean, other, share, divided):
    """The mean of two parts, the second of which has this share; as the sums give it where that is no finite number."""
    moved = other if share == 1.0 else mean + (other - mean) * share
    return moved if finite(moved) and finite(divided) else divided
'''

# Numba compiles np.empty and reshape as functions of their own, a tenth of a second for each kind of array; these are a
# few instructions where they stand.
_MEMORY = '''
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
'''

_FILLED = '''
@intrinsic
def fill(context, array, value):
    """Every element of a contiguous array becomes a value."""
    def emit(context, builder, signature, args):
        target = context.make_array(array)(context, builder, args[0])
        with cgutils.for_range(builder, target.nitems) as loop:
            context.pack_value(builder, array.dtype, args[1], builder.gep(target.data, [loop.index]))
        return context.get_dummy_value()
    return types.none(array, array.dtype), emit
'''

_COPIED = '''
@intrinsic
def copy(context, source, target):
    """What one contiguous array holds, another holds."""
    def emit(context, builder, signature, args):
        start, into = (context.make_array(kind)(context, builder, each) for kind, each in zip(signature.args, args))
        cgutils.raw_memcpy(builder, into.data, start.data, start.nitems, start.itemsize)
        return context.get_dummy_value()
    return types.none(source, target), emit
'''

_EXTREMES = '''
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
'''

_WIDE = '''
@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors there are: by default it takes half of them on machines with AVX-512."""
    def emit(context, builder, signature, args):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()
    return types.none(), emit
'''

_SELDOM = '''
@intrinsic
def seldom(context):
    """Let LLVM keep a function of many loops short: it would unfold them into one another for minutes."""
    def emit(context, builder, signature, args):
        for name in ("minsize", "noinline"):
            builder.function.attributes.add(name)
        return context.get_dummy_value()
    return types.none(), emit
'''

_AHEAD = '''
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
'''

_ROUNDED = '''
@njit(**PART)
def rounded(x, mantissa, smallest, largest, beyond):
    """The nearest float with so many mantissa bits, ties to even; `beyond` is what too large ones become."""
    if not finite(x):
        return x if x != x else np.copysign(beyond, x)
    exponent = max(math.frexp(x)[1] - 1, smallest) - mantissa
    near = math.ldexp(np.rint(math.ldexp(x, -exponent)), exponent)
    return np.copysign(beyond, x) if abs(near) > largest else near


@njit(**PART)
def whole(x, least, most):
    """The nearest whole number between the limits; NaN becomes 0."""
    return i8(0) if x != x else i8(most) if x >= most else i8(least) if x <= least else i8(np.rint(x))
'''

_PIECES = ((("empty", "shaped"), _MEMORY), (("fill",), _FILLED), (("copy",), _COPIED), (("times",), _TIMES),
           (("finite", "anchored"), _FINITE), (("wide_vectors",), _WIDE), (("seldom",), _SELDOM), (("ahead",), _AHEAD),
           (("_reduced",), _REDUCED), (("exp4", "decay4"), _EXP4), (("exp8", "decay8"), _EXP8), (("larger", "smaller"), _EXTREMES),
           (("minus", "apart", "fit", "middle", "sound"), _SINGLE), (("insert", "comes_first"), FIRST), (("insert",), INSERT),
           (("ranked", "left_over"), LANES), (("mean_of", "towards"), _MEANS), (("rounded", "whole"), _ROUNDED), (("multiply",), MULTIPLY), (("product",), MASKED_PRODUCT))

_IMPORTS_OF_ALL = '''import math

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic'''

_IMPORTS = ((("binding",), "from llvmlite import binding"), (("cgutils",), "from numba.core import cgutils"),
            (("impl_ret_borrowed",), "from numba.core.imputils import impl_ret_borrowed"),
            (("populate_array",), "from numba.np.arrayobj import populate_array"))

_HEAD = '''
f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan

# What only compiled code calls needs no wrappers, and counts no references: its arrays are the caller's.  Sums may be reordered
# into lanes; infinities and NaN keep their meaning.
PART = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
LOOP = PART | {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}
'''


def prelude(bodies: Iterable[str]) -> str:
    """Imports, and the definitions that the bodies call, or that these call."""
    found: dict[str, None] = {}
    todo = list(bodies)
    while todo:
        called = set(re.findall(r"\b(\w+)\(", todo.pop()))
        more = [text for names, text in _PIECES if called.intersection(names) and text not in found]
        found |= dict.fromkeys(more)
        todo += more
    pieces = "".join("\n" + text for _, text in _PIECES if text in found)
    imports = [line for names, line in _IMPORTS if any(f"{name}(" in pieces or f"{name}." in pieces for name in names)]
    return "\n".join([_IMPORTS_OF_ALL, *imports, ""]) + _HEAD + pieces
