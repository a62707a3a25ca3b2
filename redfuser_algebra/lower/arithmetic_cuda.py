"""What CUDA kernels bring along, as text: the machine instructions they use by name, and NumPy's meaning of a few functions.

Out: Python source that uses numba-cuda, of which `used` keeps what a kernel needs.
"""
from __future__ import annotations

from dataclasses import dataclass

from redfuser_algebra.lower.float8 import Float8
from redfuser_algebra.lower.standalone.pieces import names_in, reachable

BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
"""Bytes of the numbers that kernels read and write."""


@dataclass(frozen=True)
class CudaSource:
    """A printed kernel: a module's imports and its body, the dtype of its real numbers, and the type of each output.

    `tiles`: it multiplies matrices in tiles for blocks of rows; `wgmma`: by the instructions of sm_90a for four warps at a
    time, with bulk copies.
    """

    imports: str
    body: str
    dtype: str
    outputs: tuple[str, ...]
    tiles: bool = False
    wgmma: bool = False
    float8: Float8 = Float8()

    @property
    def text(self) -> str:
        """The module."""
        return f"{self.imports}\n\n{self.body}"


IMPORTS = '''import math
from functools import cache

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import libdevice, types
from numba.cuda.extending import intrinsic
'''

_MACHINE = '''
f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf = np.inf
nan = np.nan
KINDS = {"r": types.int32, "l": types.int64, "f": types.float32, "d": types.float64}


def ptx(text, results, operands, memory=False, warp=False):
    """A PTX instruction as a function of numbers, each a letter of KINDS.  `memory`: it reads or writes what others wrote; `warp`: by whole warps."""
    count, many = min(len(results), 2), types.UniTuple(KINDS[results[:1] or "r"], len(results))
    returned, given = (types.none, many.dtype, many)[count], types.StarArgTuple([KINDS[each] for each in operands])
    marks = ",".join([*("=" + each for each in results), *operands, *["~{memory}"] * memory])

    def emit(context, builder, signature, args):
        numbers, kind = [builder.extract_value(args[0], n) for n in range(len(operands))], context.get_value_type(many.dtype)
        made = (ir.VoidType(), kind, ir.LiteralStructType([kind] * len(results)))[count]
        called = ir.InlineAsm(ir.FunctionType(made, [each.type for each in numbers]), text, marks, memory)
        value = builder.call(called, numbers, attrs=("convergent",) * warp)
        if count == 2:
            return context.make_tuple(builder, many, [builder.extract_value(value, n) for n in range(len(results))])
        return value if count else context.get_dummy_value()

    return intrinsic(lambda context, *numbers: (returned(given), emit))


def pointer(space, kind):
    """Where an array begins in a state space: 1 is global memory, 3 is shared."""
    def typed(context, array):
        def emit(context, builder, signature, args):
            place = context.make_array(array)(context, builder, value=args[0]).data
            return builder.ptrtoint(builder.addrspacecast(place, ir.PointerType(place.type.pointee, space)), context.get_value_type(kind))
        return kind(array), emit
    return intrinsic(typed)

address = pointer(1, types.int64)
shared_address = pointer(3, types.int32)


@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    return a(types.boolean, a, a), lambda context, builder, signature, args: builder.select(*args)


@intrinsic
def unrolled(context):
    """At the end of a loop: the compiler writes the loop out, so that arrays it goes over lie in registers."""
    def emit(context, builder, signature, args):
        def branch(target):
            del builder.branch
            jump, module = builder.branch(target), builder.module
            hint = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.full")])
            mark = ir.MDValue(module, [hint], name=str(len(module.metadata)))
            mark.operands = (mark, hint)
            jump.set_metadata("llvm.loop", mark)
            return jump
        builder.branch = branch
        return context.get_dummy_value()
    return types.none(), emit
'''

_EXTREMES = '''
def extreme(order, name):
    """NumPy's maximum or minimum of two floats: NaN wins.  For float32 that is one instruction."""
    def typed(context, a, b):
        def emit(context, builder, signature, args):
            single = ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type] * 2), name + ".NaN.f32 $0, $1, $2;", "=f,f,f")
            first = builder.or_(builder.fcmp_ordered(order, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.call(single, args) if a == types.float32 else builder.select(first, *args)
        return a(a, a), emit
    return intrinsic(typed)


larger = extreme(">", "max")
smaller = extreme("<", "min")
'''

SINGLE_EXTREMES = '''
larger = ptx("max.NaN.f32 $0, $1, $2;", "f", "ff")
smaller = ptx("min.NaN.f32 $0, $1, $2;", "f", "ff")
'''
"""Where all real numbers are float32."""

_FUNCTIONS = '''
def skipping(name):
    """NumPy's fmax or fmin: NaN loses."""
    def typed(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            return builder.call(builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind, kind])), args)
        return a(a, a), emit
    return intrinsic(typed)


fmax = skipping("llvm.maxnum")
fmin = skipping("llvm.minnum")


def over_lanes(both):
    """What `both` makes of the values of so many lanes; every lane gets it."""
    @cuda.jit(device=True, forceinline=True)
    def of_all(value, width):
        for step in range(5):
            by = width >> step + 1
            if by > 0:
                value = both(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, by))
        return value
    return of_all


sum_over = over_lanes(cuda.jit(device=True, forceinline=True)(lambda a, b: type(a)(a + b)))
prod_over = over_lanes(cuda.jit(device=True, forceinline=True)(lambda a, b: a * b))
larger_over = over_lanes(larger)
smaller_over = over_lanes(smaller)
fmax_over = over_lanes(fmax)
fmin_over = over_lanes(fmin)
max_over = over_lanes(max)
min_over = over_lanes(min)


def to_whole(mode):
    """A float rounded to a whole number, as a float."""
    def typed(context, a):
        def emit(context, builder, signature, args):
            letter, kind = ("f", "f32") if a == types.float32 else ("d", "f64")
            text = "cvt." + mode + "." + kind + "." + kind + " $0, $1;"
            return builder.call(ir.InlineAsm(ir.FunctionType(args[0].type, [args[0].type]), text, "=" + letter + "," + letter), args)
        return a(a), emit
    return intrinsic(typed)


rint = to_whole("rni")
floor = to_whole("rmi")
ceil = to_whole("rpi")


fast_exp = ptx("{.reg .f32 t; mul.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t;}", "f", "f")


@cuda.jit(device=True)
def sign(x):
    """−1, 0 or 1; NaN stays."""
    return x if x == 0 or x != x else math.copysign(type(x)(1), x)


@cuda.jit(device=True)
def half_turns(x):
    """An angle in half turns between −1 and 1, as exact as a float32."""
    turns = f8(x) * 0.15915494309189535
    return f4(2 * (turns - rint(turns)))


@cuda.jit(device=True)
def cos(x):
    """Of an angle made small in float64: no x is so large that it takes numbers or tables in memory."""
    return type(x)(libdevice.cospif(half_turns(x)))


@cuda.jit(device=True)
def sin(x):
    """As cos."""
    return type(x)(libdevice.sinpif(half_turns(x)))


@cuda.jit(device=True)
def beats(value, best):
    """Whether a value is larger than one found further ahead; NaN is larger than numbers."""
    return (value > best) | (value != value) & (best == best)


@cuda.jit(device=True)
def comes_first(value, best, position, at):
    """Whether a value beats one found elsewhere: NaN beats numbers, of equals the one further ahead wins, at < 0 is none."""
    equal = (value == best) | (value != value) & (best != best)
    return (at < 0) | beats(value, best) | equal & (position < at)


@cuda.jit(device=True)
def insert(best, at, begin, count, value, position):
    """Put a value among the largest ones, which lie in falling order from `begin` on."""
    if comes_first(value, best[begin + count - 1], position, at[begin + count - 1]):
        for k in range(count):
            old, there = best[begin + k], at[begin + k]
            ahead = comes_first(value, old, position, there)
            best[begin + k], at[begin + k] = sel(ahead, value, old), sel(ahead, position, there)
            value, position = sel(ahead, old, value), sel(ahead, there, position)


@cuda.jit(device=True)
def join_lists(best, at, begin, count, width):
    """The largest of the values that so many lanes hold: the first of all lists, again and again; who had it moves on in its own."""
    for k in range(count):
        value, position = best[begin + k], at[begin + k]
        for step in range(5):
            by = width >> step + 1
            if by > 0:
                other, there = cuda.shfl_xor_sync(0xFFFFFFFF, value, by), cuda.shfl_xor_sync(0xFFFFFFFF, position, by)
                ahead = there >= 0 and comes_first(other, value, there, position)
                value, position = sel(ahead, other, value), sel(ahead, there, position)
        stays = position != at[begin + k]
        for back in range(count - 1 - k):
            place = begin + count - 1 - back
            best[place], at[place] = sel(stays, best[place - 1], best[place]), sel(stays, at[place - 1], at[place])
        best[begin + k], at[begin + k] = value, position


def turns_of(width, banks):
    """How places are turned so that neither a row of them nor a column of the tile meets a bank twice: (shift, mask)."""
    power = width & -width
    return max(banks, power).bit_length() - 1, min(power, banks) - 1


@cuda.jit(device=True)
def cell(element, width, column, shift, mask):
    """Where a column of an element of the tile lies in shared memory."""
    place = i4(element * width + column)
    return np.uint32(place ^ i4(place >> shift & mask))


@cuda.jit(device=True)
def stage_real(cells, pointer, low, high, steps, shift, mask, thread, span):
    """Fill shared memory with real numbers; before `low` and from `high` on with 0."""
    low, high = i4(low), i4(high)
    for step in range(steps):
        word = i4(step * span + thread)
        cells[np.uint32(word ^ i4(word >> shift & mask))] = load_one(pointer + word * SIZE, word >= low and word < high)


@cuda.jit(device=True)
def stage_whole(cells, array, offset, count, steps, shift, mask, thread, span):
    """Fill shared memory with whole numbers or truth values."""
    for step in range(steps):
        word = i4(step * span + thread)
        cells[np.uint32(word ^ i4(word >> shift & mask))] = array[sel(word < count, offset + word, i8(0))]


@cuda.jit(device=True)
def rounded(x, mantissa, smallest, largest, beyond):
    """The nearest float with so many mantissa bits, ties to even; `beyond` is what too large ones become."""
    if not math.isfinite(x):
        return x if x != x else math.copysign(beyond, x)
    exponent = max(math.frexp(x)[1] - 1, smallest) - mantissa
    near = math.ldexp(rint(math.ldexp(x, -exponent)), exponent)
    return math.copysign(beyond, x) if abs(near) > largest else near


@cuda.jit(device=True)
def whole(x, least, most):
    """The nearest whole number between the limits; NaN becomes 0."""
    return i8(0) if x != x else i8(most) if x >= most else i8(least) if x <= least else i8(rint(x))
'''

_WHEN = "{{.reg .pred p; setp.ne.s32 p, {}, 0; {}}}"
"""A load where a condition holds; elsewhere there are zeros, and memory is left alone."""

_OTHERS = '''
load_bytes = ptx("{load}", "l", "lr")
load_pair_of_wholes = ptx("{{.reg .pred p; setp.ne.s32 p, $3, 0; mov.b64 $0, 0; mov.b64 $1, 0; @p ld.global.nc.v2.b64 {{$0, $1}}, [$2];}}", "ll", "lr")


@cuda.jit(device=True, forceinline=True)
def load_truths(pointer, there, v, first):
    """As many truth values as a vector has numbers, or False."""
    found = load_bytes(pointer, there)
    for k in range(VECTOR):
        v[first + k] = i4(found >> 8 * k & 255) != 0


@cuda.jit(device=True, forceinline=True)
def load_wholes(pointer, there, v, first):
    """As many whole numbers as a vector has numbers, or zeros."""
    for k in range(VECTOR // 2):
        v[first + 2 * k], v[first + 2 * k + 1] = load_pair_of_wholes(pointer + 16 * k, there)
'''
"""What is no real number, beside vectors of such."""

_FULL = '''
load_{count} = ptx("{load}", "{results}", "lr")
load_one = ptx("{one}", "{letter}", "lr")
store_{count} = ptx("st.global.v{count}.{kind} [$0], {{{sources}}};", "", "l{results}", memory=True)
store_one = ptx("st.global.{kind} [$0], $1;", "", "l{letter}", memory=True)


@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    numbers = load_{count}(pointer, there)
    for k in range({count}):
        v[first + k] = numbers[k]


@cuda.jit(device=True, forceinline=True)
def store_vector(pointer, v, first):
    """16 bytes of a row."""
    store_{count}(pointer, {written})
'''

_HALF = '''
load_4 = ptx("{load}", "rrrr", "lr")
load_one = ptx("{one}", "f", "lr")
store_4 = ptx("st.global.v4.b32 [$0], {{$1, $2, $3, $4}};", "", "lrrrr", memory=True)
store_one = ptx("{{.reg .b16 l; cvt.rn.{kind}.f32 l, $1; st.global.b16 [$0], l;}}", "", "lf", memory=True)
pack = ptx("cvt.rn.{kind}x2.f32 $0, $2, $1;", "r", "ff")
unpack = ptx("{unpack}", "ff", "r")


@cuda.jit(device=True, forceinline=True)
def load_vector(pointer, there, v, first):
    """16 bytes of a row into v from `first` on, or zeros."""
    words = load_4(pointer, there)
    for k in range(4):
        v[first + 2 * k], v[first + 2 * k + 1] = unpack(words[k])


@cuda.jit(device=True, forceinline=True)
def store_vector(pointer, v, first):
    """16 bytes of a row."""
    store_4(pointer, {written})
'''

_UNPACK = {"f16": "{.reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h;}",
           "bf16": "{.reg .b32 e; shl.b32 e, $2, 16; mov.b32 $0, e; and.b32 e, $2, -65536; mov.b32 $1, e;}"}
_ONE = {"f16": ".reg .b16 l; mov.b16 l, 0; @p ld.global.nc.b16 l, [$1]; cvt.f32.f16 $0, l;",
        "bf16": ".reg .b16 l; .reg .b32 e; mov.b16 l, 0; @p ld.global.nc.b16 l, [$1]; cvt.u32.u16 e, l; shl.b32 e, e, 16; mov.b32 $0, e;"}


def used(definitions: str, bodies: str, extremes: str = _EXTREMES) -> str:
    """What bodies use of the definitions here and of further ones, and what those need in turn."""
    found = reachable("\n".join([_MACHINE, extremes, _FUNCTIONS, definitions]), names_in(bodies))
    return found.replace("\n\n\n", "\n\n")


def accesses_of_others(dtype: str) -> str:
    """The source of load_truths and load_wholes beside vectors of numbers of a dtype."""
    count = 16 // BYTES[dtype]
    load = "mov.b64 $0, 0; @p ld.global.nc.b64 $0, [$1];"
    if count < 8:
        bits = 8 * count
        load = f".reg .b{bits} w; mov.b{bits} w, 0; @p ld.global.nc.b{bits} w, [$1]; cvt.u64.u{bits} $0, w;"
    return _OTHERS.format(load=_WHEN.format("$2", load))


def accesses(dtype: str) -> str:
    """The source of load_vector, load_one, store_vector and store_one for numbers of a dtype."""
    kind = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}[dtype]
    count, moved = (4, "b32") if BYTES[dtype] == 2 else (16 // BYTES[dtype], kind)
    zero, values = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(moved, "0"), [f"${n}" for n in range(count)]
    clear = "".join(f"mov.{moved} {v}, {zero}; " for v in values)
    load = _WHEN.format(f"${count + 1}", f"{clear}@p ld.global.nc.v{count}.{moved} {{{', '.join(values)}}}, [${count}];")
    if BYTES[dtype] == 2:
        written = ", ".join(f"pack(v[first + {2 * k}], v[first + {2 * k + 1}])" for k in range(4)).replace(" + 0]", "]")
        return _HALF.format(load=load, one=_WHEN.format("$2", _ONE[kind]), kind=kind, unpack=_UNPACK[kind], written=written)
    one = _WHEN.format("$2", f"mov.{kind} $0, {zero}; @p ld.global.nc.{kind} $0, [$1];")
    written, letter = ", ".join(f"v[first + {k}]" for k in range(count)).replace(" + 0]", "]"), "f" if kind == "f32" else "d"
    return _FULL.format(load=load, one=one, count=count, kind=kind, letter=letter, results=letter * count, written=written,
                        sources=", ".join(f"${n + 1}" for n in range(count)))
