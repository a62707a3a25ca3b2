"""Floats of eight bits: their numbers by the formulas of the OCP specification, instructions on them, kernels with such factors."""

from fractions import Fraction

import numpy as np
import pytest
from ptx_kernels import each, run

from redfuser_algebra.lower.standalone.float8 import as_bits, from_float8, to_float8
from redfuser_algebra.ptx.text import PtxError
from redfuser_algebra.run.rounding import rounded

FORMATS = ("float8_e4m3", "float8_e5m2")
BITS = np.arange(256, dtype=np.uint8)


def value(byte, dtype):
    """What a byte stands for, by its fields; None for NaN."""
    mantissa, bias = (3, 7) if dtype == "float8_e4m3" else (2, 15)
    field, rest, sign = byte >> mantissa & (1 << 7 - mantissa) - 1, byte & (1 << mantissa) - 1, -1 if byte & 128 else 1
    if dtype == "float8_e4m3" and byte & 127 == 127 or dtype == "float8_e5m2" and field == 31 and rest:
        return None
    if dtype == "float8_e5m2" and field == 31:
        return sign * float("inf")
    part = Fraction(rest, 1 << mantissa)
    return sign * float((part + (field > 0)) * Fraction(2) ** (max(field, 1) - bias))


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_byte_is_the_number_of_its_fields(dtype):
    numbers = from_float8(BITS, dtype)
    for byte, number in enumerate(numbers):
        wanted = value(byte, dtype)
        assert np.isnan(number) if wanted is None else number == wanted and np.signbit(number) == (byte > 127), byte
    there = ~np.isnan(numbers)
    assert np.array_equal(to_float8(numbers[there], dtype), BITS[there])
    assert np.isnan(from_float8(to_float8([np.nan], dtype), dtype))


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_is_that_of_a_cast(dtype, rng):
    """Numbers between neighbours, ties, what is too large, and infinities."""
    numbers = from_float8(BITS, dtype)
    numbers = np.sort(numbers[np.isfinite(numbers)]).astype(np.float64)
    x = np.concatenate([(numbers[1:] + numbers[:-1]) / 2, rng.standard_normal(500), rng.standard_normal(200) * 1e5, [448, 449, 464, 57344, 61439, 61440, np.inf, -np.inf]])
    assert np.array_equal(from_float8(to_float8(x, dtype), dtype), rounded(x, dtype))


@pytest.mark.parametrize("dtype", FORMATS)
def test_ml_dtypes_has_the_same_numbers(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = np.dtype(getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(dtype, dtype)))
    assert np.array_equal(BITS.view(theirs).astype(np.float32), from_float8(BITS, dtype), equal_nan=True)
    assert np.array_equal(as_bits(BITS.view(theirs), dtype), BITS) and as_bits(BITS, dtype) is BITS
    x = np.linspace(-448, 448, 9999)
    assert np.array_equal(x.astype(theirs).view(np.uint8), to_float8(x, dtype))


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_conversions_of_pairs(kind, rng):
    """The first operand is above; .satfinite leaves no infinities; back to float16 nothing is lost."""
    high, low = (np.concatenate([rng.standard_normal(60) * 4.0 ** rng.integers(-9, 9, 60), [np.inf, -1e9, np.nan, 0]]).astype("f4") for _ in range(2))
    got = each(f"cvt.rn.satfinite.{kind}x2.f32 $0, $1, $2", [high, low], ["f32", "f32"], "b16")
    most = np.float32(448 if kind == "e4m3" else 57344)
    for part, x in ((got >> 8, high), (got & 255, low)):
        assert np.array_equal(from_float8(part, f"float8_{kind}"), rounded(np.clip(x, -most, most), f"float8_{kind}"), equal_nan=True)
    pairs = (BITS.astype(np.uint16) << 8 | BITS[::-1]).astype(np.uint16)
    halves = each(f"cvt.rn.f16x2.{kind}x2 $0, $1", [pairs], ["b16"], "b32").view(np.float16).reshape(-1, 2)
    assert np.array_equal(halves[:, 1], from_float8(BITS, f"float8_{kind}"), equal_nan=True)
    assert np.array_equal(halves[:, 0], from_float8(BITS[::-1], f"float8_{kind}"), equal_nan=True)


@pytest.mark.parametrize("kinds", [("e4m3", "e4m3"), ("e5m2", "e4m3")])
def test_matrix_fragments_of_bytes_lie_as_the_isa_says(kinds, rng):
    """A, B and C element by element from the formulas of PTX ISA, "Matrix Fragments for mma.m16n8k32"."""
    a, b = (rng.integers(0, 120, shape).astype(np.uint8) | (rng.integers(0, 2, shape) * 128).astype(np.uint8) for shape in ((16, 32), (32, 8)))
    c = rng.integers(-8, 8, (16, 8)).astype("f4")
    fragments, sums = np.zeros((32, 24), np.uint8), np.zeros((32, 4), "f4")
    for lane in range(32):
        group, thread = lane // 4, lane % 4
        for i in range(16):
            fragments[lane, i] = a[group + (0 if i < 4 or 8 <= i < 12 else 8), thread * 4 + (i & 3) + (16 if i >= 8 else 0)]
        for i in range(8):
            fragments[lane, 16 + i] = b[thread * 4 + (i & 3) + (16 if i >= 4 else 0), group]
        for i in range(4):
            sums[lane, i] = c[group + 8 * (i >= 2), thread * 2 + (i & 1)]
    body = "ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd2, %rd0, 24, %rd1; ld.param.u64 %rd3, [a1]; mad.lo.s64 %rd4, %rd0, 16, %rd3;"
    body += "".join(f"ld.global.b32 %r{10 + n}, [%rd2+{4 * n}];" for n in range(6)) + "".join(f"ld.global.f32 %f{n}, [%rd4+{4 * n}];" for n in range(4))
    body += f"mma.sync.aligned.m16n8k32.row.col.f32.{kinds[0]}.{kinds[1]}.f32 {{%f4,%f5,%f6,%f7}}, {{%r10,%r11,%r12,%r13}}, {{%r14,%r15}}, {{%f0,%f1,%f2,%f3}};"
    body += "ld.param.u64 %rd5, [out]; mad.lo.s64 %rd6, %rd0, 16, %rd5;" + "".join(f"st.global.f32 [%rd6+{4 * n}], %f{4 + n};" for n in range(4))
    got, _ = run(body, [fragments, sums], np.zeros((32, 4), "f4"))
    product = from_float8(a, f"float8_{kinds[0]}").astype("f8") @ from_float8(b, f"float8_{kinds[1]}").astype("f8") + c
    for lane in range(32):
        for i in range(4):
            assert got[lane, i] == pytest.approx(product[lane // 4 + 8 * (i >= 2), lane % 4 * 2 + (i & 1)], rel=1e-5, abs=1e-5 * abs(product).max())
    with pytest.raises(PtxError, match="not known"):
        run(body.replace("m16n8k32", "m16n8k16"), [fragments, sums], np.zeros((32, 4), "f4"))
