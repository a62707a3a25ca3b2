"""The PTX interpreter: every instruction means what the ISA says, every misuse is caught, traffic is counted right."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_kernels import each, run

from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.ptx.accesses import MISALIGNED, OUTSIDE, UNNOTED, collision, fast, fault, passes, sectors
from redfuser_algebra.ptx.arithmetic import ROUGHNESS
from redfuser_algebra.ptx.decode import TABLE
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.text import NUMPY_TYPES, PtxError, operands, parse

MASK = {32: 2**32 - 1, 64: 2**64 - 1, 16: 2**16 - 1}


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def towards_zero(a, b):
    return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def byte(word, selector):
    found = word >> 8 * (selector & 7) & 255
    return (255 if found & 128 else 0) if selector & 8 else found


# (instruction, operand types, result type, what Python's whole numbers make of it)
WHOLE = [
    ("add.s32 $0, $1, $2", "s32 s32", "s32", lambda a, b: a + b),
    ("sub.u64 $0, $1, $2", "u64 u64", "u64", lambda a, b: a - b),
    ("mul.lo.s32 $0, $1, $2", "s32 s32", "s32", lambda a, b: a * b),
    ("mul.hi.u32 $0, $1, $2", "u32 u32", "u32", lambda a, b: a * b >> 32),
    ("mul.hi.s32 $0, $1, $2", "s32 s32", "s32", lambda a, b: a * b >> 32),
    ("mul.hi.u64 $0, $1, $2", "u64 u64", "u64", lambda a, b: a * b >> 64),
    ("mul.hi.s64 $0, $1, $2", "s64 s64", "s64", lambda a, b: a * b >> 64),
    ("mul.wide.s32 $0, $1, $2", "s32 s32", "s64", lambda a, b: a * b),
    ("mul.wide.u16 $0, $1, $2", "u16 u16", "u32", lambda a, b: a * b),
    ("mad.wide.u32 $0, $1, $2, $3", "u32 u32 u64", "u64", lambda a, b, c: a * b + c),
    ("mad.lo.s64 $0, $1, $2, $3", "s64 s64 s64", "s64", lambda a, b, c: a * b + c),
    ("mad.hi.u32 $0, $1, $2, $3", "u32 u32 u32", "u32", lambda a, b, c: (a * b >> 32) + c),
    ("div.s32 $0, $1, $2", "s32 s32", "s32", towards_zero),
    ("div.u64 $0, $1, $2", "u64 u64", "u64", lambda a, b: a // b),
    ("rem.s32 $0, $1, $2", "s32 s32", "s32", lambda a, b: a - b * towards_zero(a, b)),
    ("min.s32 $0, $1, $2", "s32 s32", "s32", min),
    ("max.u32 $0, $1, $2", "u32 u32", "u32", max),
    ("and.b32 $0, $1, $2", "u32 u32", "u32", lambda a, b: a & b),
    ("or.b64 $0, $1, $2", "u64 u64", "u64", lambda a, b: a | b),
    ("xor.b32 $0, $1, $2", "u32 u32", "u32", lambda a, b: a ^ b),
    ("not.b32 $0, $1", "u32", "u32", lambda a: ~a),
    ("neg.s64 $0, $1", "s64", "s64", lambda a: -a),
    ("abs.s32 $0, $1", "s32", "s32", abs),
    ("popc.b32 $0, $1", "u32", "u32", lambda a: a.bit_count()),
    ("popc.b64 $0, $1", "u64", "u32", lambda a: a.bit_count()),
    ("clz.b32 $0, $1", "u32", "u32", lambda a: 32 - a.bit_length()),
    ("clz.b64 $0, $1", "u64", "u32", lambda a: 64 - a.bit_length()),
    ("brev.b32 $0, $1", "u32", "u32", lambda a: int(f"{a:032b}"[::-1], 2)),
    ("shl.b32 $0, $1, 7", "u32", "u32", lambda a: a << 7),
    ("shl.b32 $0, $1, 32", "u32", "u32", lambda a: 0),
    ("shr.u64 $0, $1, 40", "u64", "u64", lambda a: a >> 40),
    ("shr.s32 $0, $1, 40", "s32", "s32", lambda a: a >> 31),
    ("shf.l.wrap.b32 $0, $1, $2, 5", "u32 u32", "u32", lambda a, b: (b << 32 | a) << 5 >> 32),
    ("shf.r.wrap.b32 $0, $1, $2, 37", "u32 u32", "u32", lambda a, b: (b << 32 | a) >> 5),
    ("shf.r.clamp.b32 $0, $1, $2, 37", "u32 u32", "u32", lambda a, b: b),
    ("bfe.u32 $0, $1, 3, 9", "u32", "u32", lambda a: a >> 3 & 511),
    ("bfe.s32 $0, $1, 3, 9", "s32", "s32", lambda a: signed(a >> 3 & 511, 9)),
    ("bfi.b32 $0, $1, $2, 4, 6", "u32 u32", "u32", lambda a, b: (a & 63) << 4 | b & ~(63 << 4)),
    ("prmt.b32 $0, $1, $2, 0x3EA1", "u32 u32", "u32", lambda a, b: sum(byte(b << 32 | a, 0x3EA1 >> 4 * n & 15) << 8 * n for n in range(4))),
    ("lop3.b32 $0, $1, $2, $3, 0x96", "u32 u32 u32", "u32", lambda a, b, c: a ^ b ^ c),
    ("lop3.b32 $0, $1, $2, $3, 0xE8", "u32 u32 u32", "u32", lambda a, b, c: a & b | a & c | b & c),
    ("setp.lt.s32 $0, $1, $2", "s32 s32", "pred", lambda a, b: a < b),
    ("setp.hs.u32 $0, $1, $2", "u32 u32", "pred", lambda a, b: a >= b),
    ("cvt.s64.s32 $0, $1", "s32", "s64", lambda a: a),
    ("cvt.u32.u64 $0, $1", "u64", "u32", lambda a: a),
    ("cvt.s32.s8 $0, $1", "s32", "s32", lambda a: signed(a & 255, 8)),
    ("cvt.sat.u8.s32 $0, $1", "s32", "u32", lambda a: min(max(a, 0), 255)),
    ("mov.b64 $0, {$1, $2}", "u32 u32", "u64", lambda a, b: b << 32 | a),
]


@pytest.mark.parametrize(("instruction", "types", "result", "meaning"), WHOLE, ids=[row[0].split()[0] + f"_{n}" for n, row in enumerate(WHOLE)])
def test_whole_numbers(instruction, types, result, meaning, rng):
    arrays = []
    for type_ in types.split():
        info = np.iinfo(NUMPY_TYPES[type_])
        drawn = rng.integers(info.min, info.max, 60, NUMPY_TYPES[type_], endpoint=True) >> rng.integers(0, 8 * np.dtype(NUMPY_TYPES[type_]).itemsize, 60).astype(NUMPY_TYPES[type_])
        edges = np.array([info.max, info.min or 1, 1, 2], NUMPY_TYPES[type_])
        arrays.append(np.concatenate([np.maximum(drawn, 1) if info.min == 0 else np.where(drawn == 0, drawn.dtype.type(1), drawn), edges]))
    if instruction.startswith(("div.s", "rem.s")):
        arrays[0] = np.where(arrays[1] == -1, 7, arrays[0]).astype(np.int32)
    got = each(instruction, arrays, types.split(), result)
    bits = 1 if result == "pred" else 8 * np.dtype(NUMPY_TYPES[result]).itemsize
    for place, values in enumerate(zip(*(map(int, array) for array in arrays), strict=True)):
        assert int(got[place]) % (1 << bits) == meaning(*values) % (1 << bits), (instruction, values)


def test_carries_make_long_sums_and_products(rng):
    a, b, c = (rng.integers(0, 2**32, 64, np.uint32) for _ in range(3))
    a[:8] = b[:8] = c[:8] = 2**32 - 1
    a[8:16] = b[8:16] = c[8:16]
    upper = each("add.cc.u32 $0, $1, $2; addc.cc.u32 $0, $1, $3; addc.u32 $0, 0, 0", [a, b, c], ["u32"] * 3, "u32")
    long = each("mad.lo.cc.u32 $0, $1, $2, $3; madc.hi.u32 $0, $1, $2, 0", [a, b, c], ["u32"] * 3, "u32")
    lower = each("sub.cc.u32 $0, $1, $2; subc.cc.u32 $0, $2, $3; subc.u32 $0, 0, 0", [a, b, c], ["u32"] * 3, "u32")
    for place in range(64):
        x, y, z = (int(v[place]) for v in (a, b, c))
        assert lower[place] == ((x - y) + (y - z << 32) >> 64) % 2**32
        assert upper[place] == (x + y + (x + z << 32)) >> 64
        assert long[place] == x * y + z >> 32


REAL = [
    ("add.f32 $0, $1, $2", 2, np.add), ("sub.f32 $0, $1, $2", 2, np.subtract), ("mul.f32 $0, $1, $2", 2, np.multiply),
    ("div.rn.f32 $0, $1, $2", 2, np.divide), ("min.f32 $0, $1, $2", 2, np.fmin), ("max.f32 $0, $1, $2", 2, np.fmax),
    ("max.NaN.f32 $0, $1, $2", 2, np.maximum), ("sqrt.rn.f32 $0, $1", 1, np.sqrt), ("neg.f32 $0, $1", 1, np.negative),
    ("abs.f32 $0, $1", 1, np.abs), ("ex2.approx.f32 $0, $1", 1, np.exp2), ("rcp.approx.f32 $0, $1", 1, np.reciprocal),
    ("copysign.f32 $0, $1, $2", 2, lambda a, b: np.copysign(b, a)), ("cvt.rzi.f32.f32 $0, $1", 1, np.trunc),
    ("cvt.rmi.f32.f32 $0, $1", 1, np.floor), ("cvt.rni.f32.f32 $0, $1", 1, np.rint), ("cvt.rpi.f32.f32 $0, $1", 1, np.ceil),
    ("fma.rn.f32 $0, $1, $2, $1", 2, lambda a, b: (a.astype("f8") * b + a).astype("f4")),
]
SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, 0.5, np.inf, -np.inf, np.nan, 1e-40, 3e38], np.float32)


@pytest.mark.parametrize(("instruction", "count", "meaning"), REAL, ids=[row[0].split()[0] for row in REAL])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_real_numbers(instruction, count, meaning, type_):
    if type_ == "f64" and "approx" in instruction or type_ == "f64" and ("fma" in instruction or "NaN" in instruction):
        pytest.skip("float64 has no such instruction, or two roundings here")
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1).astype(NUMPY_TYPES[type_])
    with np.errstate(all="ignore"):
        expected = meaning(*pairs[:count])
    got = each(instruction.replace("f32", type_), list(pairs[:count]), [type_] * count, type_)
    assert np.array_equal(got, expected, equal_nan=True)
    assert np.array_equal(np.signbit(got[expected == 0]), np.signbit(expected[expected == 0]))


def test_flushing_makes_subnormals_zero():
    x = np.array([1e-40, -1e-40, 1.5], np.float32)
    assert list(each("add.ftz.f32 $0, $1, $1", [x], ["f32"], "f32")) == [0.0, 0.0, 3.0]
    assert each("add.f32 $0, $1, $1", [x], ["f32"], "f32")[0] == x[0] + x[0]


@pytest.mark.parametrize(("name", "ordered"), [("lt", True), ("ne", True), ("eq", True), ("geu", False), ("neu", False), ("equ", False)])
def test_comparisons_with_nan(name, ordered):
    a, b = np.array([1, np.nan, 2, np.nan], np.float32), np.array([2, 1, 2, np.nan], np.float32)
    got = each(f"setp.{name}.f32 $0, $1, $2", [a, b], ["f32", "f32"], "pred").astype(bool)
    plain = {"lt": a < b, "ne": a != b, "eq": a == b, "ge": a >= b}[name.removesuffix("u") if not ordered else name]
    nan = np.isnan(a) | np.isnan(b)
    assert list(got) == list(np.where(nan, not ordered, plain))


@pytest.mark.parametrize(("to", "dtype"), [("s32", "i4"), ("u32", "u4"), ("s64", "i8"), ("u8", "u1")])
def test_floats_become_whole_numbers_with_saturation(to, dtype):
    x = np.array([0.0, 2.5, 3.5, -1.5, 1e30, -1e30, np.inf, -np.inf, 255.6], np.float32)
    info = np.iinfo(dtype)
    got = each(f"cvt.rni.{to}.f32 $0, $1", [x], ["f32"], "u32" if dtype == "u1" else to)
    assert [int(v) for v in got] == [min(max(round(float(v)) if math.isfinite(v) else (info.max if v > 0 else info.min), info.min), info.max) for v in x]


def test_half_and_bfloat16_conversions(rng):
    x = np.concatenate([rng.normal(size=50) * 1e3, [np.inf, -np.inf, 1e-8, 65519.0]]).astype(np.float32)
    with np.errstate(over="ignore"):
        assert np.array_equal(each("cvt.rn.f16.f32 $0, $1", [x], ["f32"], "f16"), x.astype(np.float16))
        packed = each("cvt.rn.f16x2.f32 $0, $1, $2", [x, x[::-1].copy()], ["f32", "f32"], "b32").view(np.float16).reshape(-1, 2)
        assert np.array_equal(packed[:, 0], x[::-1].astype(np.float16)) and np.array_equal(packed[:, 1], x.astype(np.float16))
    near = from_bfloat16(to_bfloat16(x))
    finite = np.isfinite(x)
    assert np.all(np.abs(near[finite] - x[finite]) <= np.abs(x[finite]) * 2.0**-8)
    for value, bits in ((1.0 + 2.0**-8, 0x3F80), (1.0 + 3 * 2.0**-8, 0x3F82), (-2.0, 0xC000)):
        assert to_bfloat16(np.float32(value)) == bits


def test_an_unknown_instruction_is_named():
    with pytest.raises(PtxError, match="tcgen05"):
        run("tcgen05.fence::before_thread_sync;")


def test_every_opcode_is_entered_once_and_numbers_are_read():
    assert len(TABLE) > 50
    x = each("add.f32 $0, $1, 0f3F800000", [np.array([1.0], np.float32)], ["f32"], "f32")
    assert x[0] == 2.0 and list(operands("{%r1, %r2}, [%rd1+8], 0x10, -5")) == ["{%r1, %r2}", "[%rd1+8]", "0x10", "-5"]


def test_scopes_have_their_own_registers():
    text = parse(".version 9.0\n.target sm_80\n.entry k() { .reg .b32 %r<3>; {.reg .b32 t; mov.u32 t, 5; mov.u32 %r1, t;} {.reg .b16 t; mov.u16 t, 1;} ret; }")
    assert sorted(name for name in text.registers if "scope" in name) == ["%scope1_t", "%scope2_t"]


STORE = "ld.param.u64 %rd1, [out]; mad.lo.s64 %rd2, %rd0, 4, %rd1; st.global.u32 [%rd2], %r1;"


def test_threads_that_part_meet_again():
    """Collatz steps: every thread loops its own number of times, and a warp-wide sum follows."""
    body = """
    add.u32 %r2, %r0, 1; mov.u32 %r1, 0;
LOOP: setp.eq.u32 %p1, %r2, 1; @%p1 bra DONE;
    and.b32 %r3, %r2, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra EVEN;
    mad.lo.u32 %r2, %r2, 3, 1; bra NEXT;
EVEN: shr.u32 %r2, %r2, 1;
NEXT: add.u32 %r1, %r1, 1; bra LOOP;
DONE:
    mov.u32 %r5, 16;
SUM: shfl.sync.bfly.b32 %r6, %r1, %r5, 31, -1; add.u32 %r1, %r1, %r6; shr.u32 %r5, %r5, 1;
    setp.ne.u32 %p3, %r5, 0; @%p3 bra SUM;
    """
    def steps(n):
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)

    for mode in (Mode(), Mode(together=False)):
        got, _ = run(body + STORE, threads=64, mode=mode)
        assert list(got) == [sum(map(steps, range(1, 33)))] * 32 + [sum(map(steps, range(33, 65)))] * 32


@pytest.mark.parametrize(("mode", "source"), [("up.b32 %r1, %r0, 3, 0", lambda l: l - 3 if l >= 3 else l), ("down.b32 %r1, %r0, 5, 31", lambda l: l + 5 if l < 27 else l),
                                              ("idx.b32 %r1, %r0, 7, 31", lambda l: 7), ("bfly.b32 %r1, %r0, 1, 31", lambda l: l ^ 1),
                                              ("idx.b32 %r1, %r0, 1, 6175", lambda l: l & 24 | 1)])
def test_shuffles(mode, source):
    got, _ = run(f"shfl.sync.{mode}, -1;" + STORE)
    assert list(got) == [source(lane) for lane in range(32)]


def test_votes():
    got, _ = run("setp.lt.u32 %p1, %r0, 5; vote.sync.ballot.b32 %r1, %p1, -1;" + STORE)
    assert set(got) == {31}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("mode", "meaning"), [("or", any), ("and", all)])
def test_votes_at_a_barrier_are_of_whole_blocks(mode, meaning, together):
    """Numbers of threads over all three blocks: those of the second are on both sides of 100."""
    body = "mov.u32 %r8, %ctaid.x; mad.lo.u32 %r7, %r8, 64, %r0; cvt.u64.u32 %rd0, %r7; setp.lt.u32 %p1, %r7, 100;"
    body += f"barrier.cta.red.{mode}.pred %p2, 0, %p1; selp.u32 %r1, 1, 0, %p2;"
    got, _ = run(body + STORE, threads=64, blocks=3, mode=Mode(together=together))
    assert list(got.reshape(3, 64)[:, 0]) == [meaning(64 * block + n < 100 for n in range(64)) for block in range(3)]
    assert (got.reshape(3, 64) == got.reshape(3, 64)[:, :1]).all()


SHARED = ".shared .align 8 .f64 one; .shared .align 16 .b8 box[256]; .shared .align 4 .u32 last[2];"
TURN = "mov.u32 %r2, box; shl.b32 %r3, %r0, 2; add.u32 %r4, %r2, %r3;"
OTHER = "sub.u32 %r5, 63, %r0; shl.b32 %r5, %r5, 2; add.u32 %r5, %r2, %r5;"


def test_shared_memory_is_handed_over_at_a_barrier():
    body = TURN + OTHER + "st.shared.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r1, [%r5];" + STORE
    for mode in (Mode(), Mode(together=False, seed=3)):
        assert list(run(body, threads=64, module=SHARED, mode=mode)[0]) == list(range(63, -1, -1))


LANE_BYTES = "mov.u32 %r2, box; and.b32 %r3, %r0, 31; shl.b32 %r3, %r3, 1; add.u32 %r4, %r2, %r3; shr.u32 %r5, %r0, 5;"


def test_warps_may_store_bytes_side_by_side():
    """Even bytes are one warp's and odd ones the other's; each reads, after a barrier, a pair of both."""
    body = LANE_BYTES + "add.u32 %r6, %r4, %r5; st.shared.u8 [%r6], %r0; bar.sync 0; ld.shared.u16 %r1, [%r4];"
    assert list(run(body + STORE, threads=64, module=SHARED)[0]) == 2 * [n + 256 * (n + 32) for n in range(32)]


MISUSES = {
    "two warps store bytes to one place": (LANE_BYTES + "st.shared.u8 [%r4], %r0; mov.u32 %r1, 0;" + STORE, "race"),
    "a byte read inside what others store": (LANE_BYTES + "setp.eq.u32 %p1, %r5, 0; @%p1 st.shared.u16 [%r4], %r0; mov.u32 %r1, 0; @!%p1 ld.shared.u8 %r1, [%r4+1];" + STORE, "race"),
    "race": (TURN + OTHER + "st.shared.u32 [%r4], %r0; ld.shared.u32 %r1, [%r5];" + STORE, "race"),
    "store over what others read": (TURN + OTHER + "st.shared.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r1, [%r5]; st.shared.u32 [%r4], %r1;" + STORE, "race"),
    "two warps store to one place": (TURN + "st.shared.u32 [box], %r0; mov.u32 %r1, 0;" + STORE, "race"),
    "reads what nothing wrote": (TURN + "ld.shared.u32 %r1, [%r4];" + STORE, "nothing has written"),
    "past shared memory": (TURN + "st.shared.u32 [%r4+64], %r0; mov.u32 %r1, 0;" + STORE, "out-of-bounds store of 4 bytes in shared"),
    "past an array": (STORE.replace("[%rd2]", "[%rd2+4]"), "out-of-bounds store of 4 bytes in global"),
    "misaligned": (STORE.replace("[%rd2]", "[%rd2+2]"), "misaligned store of 4 bytes"),
    "reads an output": ("ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [%rd1];" + STORE, "nothing has written"),
    "leaves an output unwritten": ("mov.u32 %r1, 1; setp.eq.u32 %p1, %r0, 3; @%p1 bra END;" + STORE + "END:", "unwritten"),
    "barrier that some miss": ("mov.u32 %r1, 1; setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; bra B;\nA: bar.sync 0;\nB:" + STORE, "different barriers"),
    "shuffle by half a warp": ("setp.lt.u32 %p1, %r0, 16; @%p1 bra END; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\nEND:" + STORE, "only part of a warp"),
    "copy that nobody awaits": ("mov.u32 %r1, 0;" + TURN + "ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd3, %rd0, 4, %rd1; cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;" + STORE, "nobody waited"),
    "reads before a copy arrives": (TURN + "ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd3, %rd0, 4, %rd1; cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group; ld.shared.u32 %r1, [%r4];" + STORE, "still under way"),
    "another thread's memory": (".local .align 16 .b8 __local_depot0[16]; mov.u64 %rd3, __local_depot0; mov.u32 %r1, 0; st.local.u32 [%rd3+16], %r1;" + STORE, "out-of-bounds store of 4 bytes in local"),
    "no end": ("LOOP: bra LOOP;", "endless"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_caught(name, monkeypatch):
    body, told = MISUSES[name]
    monkeypatch.setattr("redfuser_algebra.ptx.machine.ENDLESS", 1000)
    with pytest.raises(PtxError, match=told):
        run(body, [np.arange(64, dtype=np.uint32)], threads=64, module=SHARED)


def test_warps_of_different_blocks_go_their_own_ways_side_by_side():
    """Each block adds up another number of rounds with barriers, each thread what one of the other warp wrote."""
    body = TURN + OTHER + """mov.u32 %r6, %ctaid.x; mov.u32 %r7, 0; mov.u32 %r1, 0;
    ROUND: add.u32 %r8, %r0, %r7; st.shared.u32 [%r4], %r8; bar.sync 0; ld.shared.u32 %r9, [%r5]; bar.sync 0;
    add.u32 %r1, %r1, %r9; add.u32 %r7, %r7, 1; setp.le.u32 %p1, %r7, %r6; @%p1 bra ROUND;
    shl.b32 %r10, %r6, 6; add.u32 %r10, %r10, %r0; cvt.u64.u32 %rd0, %r10;"""
    wanted = [sum(63 - n + turn for turn in range(block + 1)) for block in range(3) for n in range(64)]
    ran = [run(body + STORE, threads=64, blocks=3, module=SHARED, mode=mode)
           for mode in (Mode(), Mode(batch=1), Mode(together=False), Mode(together=False, batch=2, seed=1))]
    assert all(list(result) == wanted and counts == ran[0][1] for result, counts in ran)


@given(st.lists(st.tuples(st.integers(0, 90), st.booleans()), min_size=64, max_size=64), st.sampled_from((1, 2, 4, 8, 16)))
def test_counts_of_accesses_are_those_of_sets(accesses, size):
    """A warp moves each sector once; lanes that are served together take as many passes as one bank has different words to give."""
    places, active, lanes = np.array([place * size for place, _ in accesses]), np.array([there for _, there in accesses]), np.arange(64)
    warps = [[n for n in range(64) if n // 32 == warp and active[n]] for warp in (0, 1)]
    moved = 32 * sum(len({places[n] // 32 for n in own}) for own in warps)
    assert sectors(places, active, size, lanes) == (sum(map(bool, warps)), size * active.sum(), moved)
    served = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
    groups = [[n for n in range(64) if n // served == group and active[n]] for group in range(64 // served)]
    words = [{word for n in own for word in range(places[n] // 4, places[n] // 4 + max(size // 4, 1))} for own in groups if own]
    most = [max(sum(word % 32 == bank for word in own) for bank in range(32)) for own in words]
    assert passes(places, active, size, lanes, served) == (sum(map(bool, warps)), size * active.sum(), sum(most), len(words))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from((1, 2, 4, 4, 8)), st.integers(0, 3)), min_size=60, max_size=60))
def test_warps_meet_where_sets_of_bytes_do(accesses):
    """One that stores meets all others that touched a byte since the last barrier, one that reads those that stored."""
    writer, reader, stored, touched = *np.zeros((2, 16), np.uint8), set(), set()
    for warp, place, size, kind in accesses:
        start, stores = place * size, kind == 0
        own = {(warp, byte) for byte in range(start, start + size)}
        meets = any(other != warp and (warp, byte) in own for other, byte in (touched if stores else stored))
        assert collision(writer, reader, np.array([start]), np.ones(1, bool), size, np.array([warp]), stores) == meets
        stored, touched = stored | (own if stores else set()), touched | own
        if meets:
            stored, touched = set(), set()
            writer[:] = reader[:] = 0


@given(st.lists(st.integers(0, 9), min_size=64, max_size=64))
def test_a_fault_is_the_first_of_its_kind(notes):
    """Misaligned, outside the bytes from 16 to 56, or some byte without its notes; nothing else changes them."""
    for start, size, wanted in product(range(8, 64), (1, 2, 4, 8, 16), (1, 3)):
        known = np.array([1 if note == 0 else 3 for note in notes], np.uint8)
        inside, wished = 16 <= start and start + size <= 56, known.copy()
        bare = inside and bool((known[start:start + size] & wanted != wanted).any())
        found = fault(known, np.array([start]), np.ones(1, bool), np.array([16]), 40, size, wanted, 4)
        assert found == (MISALIGNED if start % size else OUTSIDE if not inside else UNNOTED if bare else 0)
        wished[start:start + size] |= 0 if found else 4
        assert found == UNNOTED or (known == wished).all()


def test_loops_are_compiled_also_where_they_cannot_be_kept():
    names = {}
    exec("def following(x): return x + 1", names)
    assert fast(names["following"])(1) == 2


def test_without_the_check_for_races_random_warps_still_show_one():
    body, _ = MISUSES["race"]
    seen = set()
    for seed in range(6):
        try:
            seen.add(tuple(run(body, threads=64, module=SHARED, mode=Mode(together=False, races=False, seed=seed))[0]))
        except PtxError as error:
            seen.add(str(error))
    assert len(seen) > 1 or "nothing has written" in next(iter(seen))


def test_a_copy_arrives_at_its_wait_and_zeros_fill_the_rest():
    body = TURN + """ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd3, %rd0, 4, %rd1;
    setp.lt.u32 %p1, %r0, 20; selp.u32 %r6, 4, 0, %p1;
    cp.async.ca.shared.global [%r4], [%rd3], 4, %r6; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r1, [%r4];"""
    got, counts = run(body + STORE, [np.arange(100, 164, dtype=np.uint32)], threads=64, module=SHARED)
    assert list(got) == [100 + n if n < 20 else 0 for n in range(64)]
    assert counts.of("global async load").bytes == 80


def test_generic_addresses_find_their_space():
    body = TURN + "cvt.u64.u32 %rd5, %r4; cvta.shared.u64 %rd6, %rd5; st.u32 [%rd6], %r0; cvta.to.shared.u64 %rd7, %rd6; cvt.u32.u64 %r7, %rd7; ld.shared.u32 %r1, [%r7];" + STORE
    assert list(run(body, module=SHARED)[0]) == list(range(32))


def test_functions_are_written_out_where_they_are_called():
    module = """.func (.param .b32 func_retval0) twice(.param .b32 twice_param_0) { .reg .b32 %r<4>; .reg .pred %p<2>;
    ld.param.u32 %r1, [twice_param_0]; setp.gt.u32 %p1, %r1, 9; @%p1 bra $L_BIG; add.u32 %r1, %r1, %r1; st.param.b32 [func_retval0+0], %r1; ret;
    $L_BIG: mov.u32 %r2, 7; st.param.b32 [func_retval0+0], %r2; ret; }"""
    call = "{{ .param .b32 param0; st.param.b32 [param0+0], {0}; .param .b32 retval0; call.uni (retval0), twice, (param0); ld.param.b32 {0}, [retval0+0]; }}"
    got, _ = run("mov.u32 %r1, %r0;" + call.format("%r1") + call.format("%r1") + STORE, module=module)
    assert list(got) == [4 * n if n < 5 else 7 if n < 10 else 14 for n in range(32)]


def test_atomics_and_initialised_arrays():
    body = "mov.u64 %rd3, table; ld.global.u32 %r4, [%rd3+4]; ld.param.u64 %rd1, [a0]; atom.global.add.u32 %r1, [%rd1], %r4;" + STORE
    got, _ = run(body, [np.array([7], np.uint32)], module=".global .align 4 .b8 table[8] = {1, 0, 0, 0, 3, 0, 0, 0};")
    assert sorted(got) == [7 + 3 * n for n in range(32)]


def test_sectors_and_bank_conflicts_are_counted():
    read = "ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd3, %rd0, {}, %rd1; ld.global.u32 %r1, [%rd3];"
    x = np.zeros(32 * 8, np.uint32)
    for stride, sectors in ((4, 4), (8, 8), (32, 32), (0, 1)):
        traffic = run(read.format(stride) + STORE, [x])[1].of("global load")
        assert (traffic.bytes, traffic.moved) == (128, 32 * sectors)
    for stride, passes in ((4, 1), (8, 2), (16, 4), (128, 32), (0, 1), (132, 1)):
        module = f".shared .align 16 .b8 box[{max(stride, 4) * 32 + 16}];"
        body = f"mov.u32 %r2, box; mad.lo.u32 %r4, %r0, {stride}, %r2; st.shared.u32 [%r4], %r0; mov.u32 %r1, 0;"
        traffic = run(body + STORE, module=module)[1].of("shared store")
        assert (traffic.moved, traffic.least) == (passes, 1)


def test_approximations_err_as_far_as_they_may():
    body = "cvt.rn.f32.u32 %f1, %r0; add.f32 %f1, %f1, 0f3F000000; rcp.approx.ftz.f32 %f2, %f1; mov.b32 %r1, %f2;"
    exact = run(body + STORE)[0].view(np.float32)
    rough = run(body + STORE, mode=Mode(rough=True))[0].view(np.float32)
    assert np.array_equal(exact, 1 / (np.arange(32, dtype=np.float32) + 0.5))
    assert (exact != rough).any() and np.all(np.abs(rough / exact - 1) <= ROUGHNESS + 2.0**-23)


def test_matrix_fragments_lie_as_the_isa_says(rng):
    """A, B and C element by element from the formulas of PTX ISA, "Matrix Fragments for mma.m16n8k16"."""
    a, b, c = (rng.integers(-8, 8, shape).astype("f2") for shape in ((16, 16), (16, 8), (16, 8)))
    fragments = np.zeros((32, 6, 2), "f2")
    for lane in range(32):
        group, thread = lane // 4, lane % 4
        for i in range(8):
            fragments[lane, i // 2, i % 2] = a[group + (8 if i in (2, 3, 6, 7) else 0), thread * 2 + (i & 1) + (8 if i >= 4 else 0)]
        for i in range(4):
            fragments[lane, 4 + i // 2, i % 2] = b[thread * 2 + (i & 1) + (8 if i >= 2 else 0), group]
    sums = np.array([[c[lane // 4 + 8 * (i >= 2), lane % 4 * 2 + (i & 1)] for i in range(4)] for lane in range(32)], "f4")
    body = "ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd2, %rd0, 24, %rd1; ld.param.u64 %rd3, [a1]; mad.lo.s64 %rd4, %rd0, 16, %rd3;"
    body += "".join(f"ld.global.b32 %r{10 + n}, [%rd2+{4 * n}];" for n in range(6)) + "".join(f"ld.global.f32 %f{n}, [%rd4+{4 * n}];" for n in range(4))
    body += "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4,%f5,%f6,%f7}, {%r10,%r11,%r12,%r13}, {%r14,%r15}, {%f0,%f1,%f2,%f3};"
    body += "ld.param.u64 %rd5, [out]; mad.lo.s64 %rd6, %rd0, 16, %rd5;" + "".join(f"st.global.f32 [%rd6+{4 * n}], %f{4 + n};" for n in range(4))
    got, _ = run(body, [fragments, sums], np.zeros((32, 4), "f4"))
    product = a.astype("f8") @ b.astype("f8") + c
    for lane in range(32):
        assert list(got[lane]) == [product[lane // 4 + 8 * (i >= 2), lane % 4 * 2 + (i & 1)] for i in range(4)]


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_its_two_elements(transposed):
    """PTX ISA, ldmatrix: lane T holds row T/4, columns 2(T%4) and the next; of the transposed matrix with .trans."""
    matrices = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    body = "mov.u32 %r2, box; shl.b32 %r3, %r0, 4; add.u32 %r4, %r2, %r3; ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd2, %rd0, 16, %rd1;"
    body += "ld.global.v4.u32 {%r5,%r6,%r7,%r8}, [%rd2]; st.shared.v4.u32 [%r4], {%r5,%r6,%r7,%r8}; bar.sync 0;"
    body += f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if transposed else ''}.shared.b16 {{%r10,%r11,%r12,%r13}}, [%r4];"
    body += "ld.param.u64 %rd5, [out]; mad.lo.s64 %rd6, %rd0, 16, %rd5; st.global.v4.u32 [%rd6], {%r10,%r11,%r12,%r13};"
    got, counts = run(body, [matrices], np.zeros((32, 4), np.uint32), module=".shared .align 16 .b8 box[512];")
    assert counts.of("shared matrix load").moved == 4
    for lane in range(32):
        for n in range(4):
            matrix = matrices[n].T if transposed else matrices[n]
            expected = [matrix[lane // 4, 2 * (lane % 4) + k] for k in (0, 1)]
            assert [got[lane, n] & 0xFFFF, got[lane, n] >> 16] == expected
