"""What CUDA kernels bring along, as text: the machine instructions they use by name, and NumPy's meaning of a few functions.

Out: Python source that uses numba-cuda; `prelude(bodies)` holds only what is used.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
"""Bytes of the numbers that kernels read and write."""


@dataclass(frozen=True)
class CudaSource:
    """A printed kernel: a module's imports and its body, the dtype of its real numbers, the type of each output, what the
    kernel calls each input and parameter, and whether it multiplies matrices in tiles for blocks of rows."""

    imports: str
    body: str
    dtype: str
    outputs: tuple[str, ...]
    names: dict[str, str]
    tiles: bool = False

    @property
    def text(self) -> str:
        """The module."""
        return f"{self.imports}\n\n{self.body}"


IMPORTS = '''import math

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic
'''

_HEAD = '''
f4, f8, i4, i8, b1 = np.float32, np.float64, np.int32, np.int64, np.bool_
inf, nan = np.inf, np.nan
'''

_ASM = '''
_KINDS = {"r": (types.int32, ir.IntType(32)), "l": (types.int64, ir.IntType(64)),
          "f": (types.float32, ir.FloatType()), "d": (types.float64, ir.DoubleType())}


def _instruction(text, results, operands, stores=False, together=False):
    """A PTX instruction as a function: r and l are whole numbers of 32 and 64 bits, f and d floats.  `together`: by whole warps."""
    kinds = [_KINDS[letter] for letter in results]
    given = [_KINDS[letter] for letter in operands]
    constraints = ",".join(["=" + letter for letter in results] + list(operands) + ["~{memory}"] * stores)
    returns = types.none if not kinds else kinds[0][0] if len(kinds) == 1 else types.UniTuple(kinds[0][0], len(kinds))

    def emit(context, builder, signature, args):
        made = ir.VoidType() if not kinds else kinds[0][1] if len(kinds) == 1 else ir.LiteralStructType([k for _, k in kinds])
        function = ir.FunctionType(made, [kind for _, kind in given])
        value = builder.call(ir.InlineAsm(function, text, constraints, side_effect=stores), args, attrs=("convergent",) * together)
        if not kinds:
            return context.get_dummy_value()
        if len(kinds) == 1:
            return value
        return context.make_tuple(builder, signature.return_type, [builder.extract_value(value, n) for n in range(len(kinds))])

    signature = returns(*(kind for kind, _ in given))
    names = "".join(f", a{n}" for n in range(len(given)))
    scope = {"signature": signature, "emit": emit}
    exec(f"def typed(context{names}):\\n    return signature, emit\\n", scope)
    return intrinsic(scope["typed"])
'''

_ADDRESS = '''
@intrinsic
def address(context, array):
    """Where an array begins."""
    def emit(context, builder, signature, args):
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, value=args[0]).data, ir.IntType(64))
    return types.int64(array), emit
'''

_SELECT = '''
@intrinsic
def sel(context, condition, a, b):
    """a if condition else b, without a branch."""
    def emit(context, builder, signature, args):
        return builder.select(args[0], args[1], args[2])
    return a(types.boolean, a, a), emit
'''

_UNROLLED = '''
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
def _extreme(sign, name):
    """NumPy's maximum or minimum of two floats: NaN wins."""
    @intrinsic
    def extreme(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            if kind == ir.FloatType():
                function = ir.FunctionType(kind, [kind, kind])
                return builder.call(ir.InlineAsm(function, name + ".NaN.f32 $0, $1, $2;", "=f,f,f"), args)
            first = builder.or_(builder.fcmp_ordered(sign, *args), builder.fcmp_unordered("uno", args[0], args[0]))
            return builder.select(first, *args)
        return a(a, a), emit
    return extreme


larger = _extreme(">", "max")
smaller = _extreme("<", "min")
'''

_SKIPPING = '''
def _skipping(name):
    """NumPy's fmax or fmin: NaN loses."""
    @intrinsic
    def extreme(context, a, b):
        def emit(context, builder, signature, args):
            kind = args[0].type
            return builder.call(builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind, kind])), args)
        return a(a, a), emit
    return extreme


fmax = _skipping("llvm.maxnum")
fmin = _skipping("llvm.minnum")
'''

_WHOLE = '''
def _to_whole(mode):
    """A float rounded to a whole number, as a float."""
    @intrinsic
    def rounding(context, a):
        def emit(context, builder, signature, args):
            kind = args[0].type
            letter, bits = ("f", "f32") if kind == ir.FloatType() else ("d", "f64")
            text = "cvt." + mode + "i." + bits + "." + bits + " $0, $1;"
            return builder.call(ir.InlineAsm(ir.FunctionType(kind, [kind]), text, "=" + letter + "," + letter), args)
        return a(a), emit
    return rounding


rint, floor, ceil = _to_whole("rn"), _to_whole("rm"), _to_whole("rp")
'''

_SIGN = '''
@cuda.jit(device=True)
def sign(x):
    """−1, 0 or 1; NaN stays."""
    return x if x == 0 or x != x else math.copysign(type(x)(1), x)
'''

_FIRST = '''
@cuda.jit(device=True)
def comes_first(value, best, position, at):
    """Whether a value beats one found elsewhere: NaN beats numbers, of equals the one further ahead wins, at < 0 is none."""
    if at < 0:
        return True
    ahead = position < at
    if value != value:
        return best == best or ahead
    return value > best or value == best and ahead
'''

_LISTS = '''
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
'''

_STAGED = '''
def turns_of(width, banks):
    """How places are turned so that neither a row of them nor a column of the tile meets a bank twice: (shift, mask)."""
    power = width & -width
    return max(banks, power).bit_length() - 1, min(power, banks) - 1


@cuda.jit(device=True)
def cell(element, width, column, shift, mask):
    """Where a column of an element of the tile lies in shared memory."""
    place = element * width + column
    return place ^ (place >> shift & mask)


@cuda.jit(device=True)
def stage_real(cells, pointer, low, high, steps, shift, mask, thread, span):
    """Fill shared memory with real numbers; before `low` and from `high` on with 0."""
    for step in range(steps):
        word = step * span + thread
        cells[word ^ (word >> shift & mask)] = load_one(pointer + word * SIZE, sel(word >= low and word < high, i4(1), i4(0)))
'''

_STAGED_WHOLE = '''
@cuda.jit(device=True)
def stage_whole(cells, array, offset, count, steps, shift, mask, thread, span):
    """Fill shared memory with whole numbers or truth values."""
    for step in range(steps):
        word = step * span + thread
        cells[word ^ (word >> shift & mask)] = array[sel(word < count, offset + word, i8(0))]
'''

_ROUNDED = '''
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

_PIECES = ((("_instruction",), _ASM), (("address",), _ADDRESS), (("sel",), _SELECT), (("unrolled",), _UNROLLED), (("larger", "smaller"), _EXTREMES), (("fmax", "fmin"), _SKIPPING),
           (("rint", "floor", "ceil", "rounded", "whole"), _WHOLE), (("sign",), _SIGN), (("comes_first", "insert", "join_lists"), _FIRST), (("insert", "join_lists"), _LISTS), (("turns_of", "cell"), _STAGED), (("stage_whole",), _STAGED_WHOLE), (("rounded", "whole"), _ROUNDED))

_LETTERS = {"float32": "f", "float64": "d", "float16": "f", "bfloat16": "f"}


def prelude(bodies: str) -> str:
    """The definitions that the bodies call."""
    called = set(re.findall(r"\b(\w+)\(", bodies))
    return _HEAD + "".join(text for names, text in _PIECES if called.intersection(names))


def accesses(dtype: str) -> dict[str, str]:
    """The source of load_vector, load_one, store_vector and store_one for numbers of a dtype."""
    letter, count = _LETTERS[dtype], 16 // BYTES[dtype]
    values = [f"${n}" for n in range(count)]
    at, when = f"${count}", f"${count + 1}"
    if dtype in ("float32", "float64"):
        kind, zero = ("f32", "0f00000000") if dtype == "float32" else ("f64", "0d0000000000000000")
        vector = f"v{count}.{kind}"
        clear = "".join(f"mov.{kind} {v}, {zero}; " for v in values)
        load = f"{clear}@p ld.global.nc.{vector} {{{', '.join(values)}}}, [{at}];"
        one = f"mov.{kind} $0, {zero}; @p ld.global.nc.{kind} $0, [$1];"
        store = f"st.global.{vector} [$0], {{{', '.join(f'${n + 1}' for n in range(count))}}};"
        store_one = f"st.global.{kind} [$0], $1;"
    else:
        half = dtype == "float16"
        words = "abcd"
        spread = "".join(f"mov.b32 {{l, h}}, {w}; cvt.f32.f16 ${2 * n}, l; cvt.f32.f16 ${2 * n + 1}, h; " if half else
                         f"shl.b32 e, {w}, 16; mov.b32 ${2 * n}, e; and.b32 e, {w}, -65536; mov.b32 ${2 * n + 1}, e; " for n, w in enumerate(words))
        clear = "".join(f"mov.b32 {w}, 0; " for w in words)
        load = f".reg .b32 a, b, c, d, e; .reg .b16 l, h; {clear}@p ld.global.nc.v4.b32 {{a, b, c, d}}, [{at}]; {spread}"
        one = ".reg .b16 l; .reg .b32 e; mov.b16 l, 0; @p ld.global.nc.b16 l, [$1]; " + ("cvt.f32.f16 $0, l;" if half else "cvt.u32.u16 e, l; shl.b32 e, e, 16; mov.b32 $0, e;")
        pair = "f16x2" if half else "bf16x2"
        packed = "".join(f"cvt.rn.{pair}.f32 {w}, ${2 * n + 2}, ${2 * n + 1}; " for n, w in enumerate(words))
        store = f"{{.reg .b32 a, b, c, d; {packed}st.global.v4.b32 [$0], {{a, b, c, d}};}}"
        store_one = f"{{.reg .b16 l; cvt.rn.{'f16' if half else 'bf16'}.f32 l, $1; st.global.b16 [$0], l;}}"
    guarded = "{{.reg .pred p; setp.ne.s32 p, {}, 0; {}}}"
    return {
        "load_vector": f'load_vector = _instruction("{guarded.format(when, load)}", "{letter * count}", "lr")\n',
        "load_one": f'load_one = _instruction("{guarded.format("$2", one)}", "{letter}", "lr")\n',
        "store_vector": f'store_vector = _instruction("{store}", "", "l{letter * count}", stores=True)\n',
        "store_one": f'store_one = _instruction("{store_one}", "", "l{letter}", stores=True)\n',
    }
