"""Floats of eight bits: their numbers by the formulas of the OCP specification, instructions on them, kernels with such factors."""

import re
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from cuda_kernels import needs_toolchain
from ptx_kernels import each, run
from test_tiles_cuda import is_found, is_right, wasted

import redfuser_algebra as ra
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.lower.standalone.float8 import as_bits, from_float8, to_float8
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.text import PtxError
from redfuser_algebra.run import cuda
from redfuser_algebra.run.export import exported_cuda
from redfuser_algebra.run.rounding import rounded

attention = ra.operators["attention"]
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


# kernels

@ra.operator
def attention8(Q: "m k", K: "l k", V: "l j", scale: float = 1.0):
    S = ra.sum(Q * K, "k") * scale
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(ra.cast(P, "float8_e4m3", reassociate=True) * V, "l") / ra.sum(P, "l")


@ra.operator
def consistent(Q: "m k", K: "l k", V: "l j", a: "l"):
    S = ra.sum(Q * K, "k") * a
    P = ra.cast(ra.exp(S - ra.max(S, "l")), "float8_e4m3", reassociate=True)
    return ra.sum(P * V, "l") / ra.sum(P, "l")


@ra.operator
def causal8(Q: "m k", K: "l k", V: "l j"):
    seen = ra.index("l") <= ra.index("m") + 37
    S = ra.sum(Q * K, "k") * 0.1
    P = ra.exp(S - ra.max(S, "l", where=seen))
    return ra.sum(ra.cast(P, "float8_e4m3", reassociate=True) * V, "l", where=seen) / ra.sum(P, "l", where=seen)


@ra.operator
def quantised(X: "m l", W: "l n"):
    s = ra.max(ra.abs(X), "l") / 448.0
    return ra.sum(ra.cast(X / s, "float8_e4m3", reassociate=True) * W, "l") * s


@ra.operator
def scaled_by_powers(X: "m l", W: "l n"):
    s = ra.exp2(ra.floor(ra.log2(ra.max(ra.abs(X), "l"))) - 8)
    return ra.sum(ra.cast(X / s, "float8_e4m3", reassociate=True) * W, "l") * s


@ra.operator
def turned(Q: "m k", K: "l k", c: "l k", V: "l j"):
    S = ra.sum(Q * (K * c), "k")
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * V, "l") / ra.sum(P, "l")


@ra.operator
def latent(Q: "m c", C: "l c"):
    S = ra.sum(Q * C, "c") * 0.125
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * C, "l") / ra.sum(P, "l")


FUSED = cache(ra.fuse)
SIZES = {"m": 33, "l": 70, "k": 64, "j": 32}


def narrow(operator, dtype="float16", factors="float8_e4m3", arch="sm_90a", schedule=None):
    return FUSED(operator).kernel("cuda", dtype=dtype, factors=factors, arch=arch, schedule=schedule)


def filled(made, sizes, seed=0):
    """Normal numbers in the format of each input."""
    rng, arrays = np.random.default_rng(seed), {}
    for name, axes in made.operator.inputs.items():
        x, own = rng.standard_normal([sizes[axis] for axis in axes]), made.format(name)
        arrays[name] = from_float8(to_float8(x, own), own) if own in FORMATS else from_bfloat16(to_bfloat16(x)) if own == "bfloat16" else x.astype(own)
    return made.operator.bind(**{name: x.astype("f8") for name, x in arrays.items()}, **{"scale": 0.3} if made.operator.params else {})


def products(made):
    """Which products a kernel has."""
    return {name for name in re.findall(r"(?<!def )\b((?:multiply|add_weighted)_rows\w*)\(", made.source.partition("def kernel")[2])}


@pytest.mark.parametrize(("operator", "given", "wanted"), [
    (attention8, {}, {"multiply_rows_e4m3_e4m3", "add_weighted_rows_e4m3_e4m3"}), (attention, {}, {"multiply_rows_e4m3_e4m3", "add_weighted_rows"}),
    (attention8, {"arch": "sm_80"}, {"multiply_rows", "add_weighted_rows"}), (attention8, {"factors": {"K": "float8_e5m2", "V": "float8_e5m2"}}, {"multiply_rows", "add_weighted_rows_e4m3_e5m2"}),
    (attention8, {"factors": "Q=float8_e5m2,K=float8_e4m3"}, {"multiply_rows_e5m2_e4m3", "add_weighted_rows"}), (turned, {}, {"multiply_rows", "add_weighted_rows"}),
    (latent, {}, {"multiply_rows", "add_weighted_rows"}), (quantised, {"dtype": "float32"}, {"add_weighted_rows_e4m3_e4m3"})])
def test_products_are_of_bytes_where_both_factors_are(operator, given, wanted):
    made = narrow(operator, **given)
    assert products(made) == wanted
    assert ("8.9" in exported_cuda(made, 64 * "0")) == (given.get("arch") != "sm_80")


def test_what_factors_of_bytes_are_not_for_is_refused():
    for given, said in (({"factors": "float8"}, "no format"), ({"factors": {"R": "float8_e4m3"}}, "no input R")):
        with pytest.raises((OperatorError, LoweringError), match=said):
            FUSED(attention8).kernel("cuda", dtype="float16", **given)
    with pytest.raises(OperatorError, match="no input as it lies"):
        FUSED(ra.operators["softmax"]).kernel("cuda", factors="float8_e4m3")
    with pytest.raises(OperatorError, match="widened on their way in"):
        FUSED(attention8).kernel("cpu", factors="float8_e4m3")


def test_cpus_widen_bytes(rng):
    """Arrays of ml_dtypes are their numbers, for the fused form, for kernels and for `plan` of a CUDA kernel."""
    theirs, dtype = pytest.importorskip("ml_dtypes").float8_e4m3fn, "float8_e4m3"
    arrays = [rng.standard_normal([SIZES[axis] for axis in axes]).astype(theirs) for axes in attention.inputs.values()]
    wide, fused = [array.astype("f4") for array in arrays], FUSED(attention)
    for run in (fused, fused.kernel("cpu", dtype=dtype)):
        assert np.array_equal(run(*arrays), run(*wide)) and run(*arrays).dtype == np.float32
    assert cuda.factors_of({"Q": arrays[0].dtype, "K": np.dtype("f4")}) == {"Q": dtype}
    pytest.importorskip("numba.cuda")
    made = narrow(attention, factors=dtype)
    given = made.given(attention.bind(*arrays))
    assert all(np.array_equal(a, b.view(np.uint8)) for a, b in zip(given, arrays, strict=False))
    plan = made.file.names["plan"]
    assert all(a.dtype == np.uint8 for a in plan(*arrays, 1.0)[1][:6:2]) and plan(*arrays, 1.0)[3] == plan(*given)[3]
    with pytest.raises(ValueError, match=f"this kernel was made for {dtype}"):
        plan(arrays[0].astype("f4"), *arrays[1:], 1.0)


@needs_toolchain
@pytest.mark.parametrize(("operator", "given", "sizes"), [(attention8, {}, SIZES), *(pytest.param(*case, marks=pytest.mark.slow) for case in (
    (attention, {"arch": "sm_80"}, SIZES),
    (attention8, {"dtype": "bfloat16", "factors": {"Q": "float8_e5m2", "K": "float8_e4m3", "V": "float8_e5m2"}}, {"m": 127, "l": 200, "k": 128, "j": 128}),
    (consistent, {"dtype": "float32", "arch": "sm_89"}, SIZES), (quantised, {}, {"m": 5, "l": 67, "n": 9}), (scaled_by_powers, {}, {"m": 5, "l": 1100, "n": 64})))])
def test_kernels_of_bytes(operator, given, sizes):
    """Right, also in random order; nothing spills, and attention wastes neither bytes nor passes over the banks where rows are whole chunks."""
    made = narrow(operator, **given)
    binding = filled(made, sizes)
    ran = is_right(made, binding)
    traffic, conflicts = wasted(made, binding, ran)
    assert "local load" not in ran.counts.traffic and (conflicts <= 1.05 or operator is quantised)
    assert traffic <= 1.02 or sizes is not SIZES or operator not in (attention, attention8)
    if given.get("arch") != "sm_80":
        assert ("m16n8k32" in ran.binaries[0][0].ptx) == any("e4m3" in each or "e5m2" in each for each in products(made))


@needs_toolchain
@pytest.mark.slow
def test_wgmma_takes_bytes_of_scores():
    """Bytes are read by descriptors as pairs of bytes are; values are widened, as no matrix of bytes can be turned."""
    made = narrow(attention, factors="Q=float8_e5m2,K=float8_e4m3,V=float8_e4m3", schedule=Schedule(1, wgmma=True))
    binding = filled(made, {"m": 70, "l": 130, "k": 160, "j": 64})
    ran = is_right(made, binding)
    assert "k32.f32.e5m2.e4m3" in ran.binaries[0][0].ptx and "k16.f32.f16.f16" in ran.binaries[0][0].ptx
    for old, new in (("k % 4 * 32", "k % 4 * 16"), ("e5m2.e4m3'", "e4m3.e5m2'")):
        assert is_found(made, old, new, binding)


@needs_toolchain
@pytest.mark.slow
def test_bytes_and_what_they_are_widened_to_give_the_same():
    """Products of widened factors are exact, too: sm_80 differs by the order of float32 sums."""
    made, wide = narrow(attention8), narrow(attention8, arch="sm_80")
    binding = filled(made, SIZES)
    ours, theirs = (each.file.run(each.given(binding), each.architecture, Mode(counts=False)).outputs[0].astype("f8") for each in (made, wide))
    assert abs(ours - theirs).max() <= 2e-3 * abs(ours).max()


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "missing"), [("float8_e4m3", np.nan), ("float8_e5m2", np.inf)])
def test_what_a_mask_leaves_out_reaches_no_row(kind, missing):
    made = narrow(causal8, factors={"Q": "float8_e4m3", "K": "float8_e4m3", "V": kind})
    binding = filled(made, SIZES)
    binding.arrays["V"][50, 3] = missing
    is_right(made, binding)
    assert kind == FORMATS[0] or is_found(made, f"add_taken_rows_e4m3_{kind[-4:]}(p_", f"add_weighted_rows_e4m3_{kind[-4:]}(p_", binding)


# what is wrong: what is replaced, by what
FAULTS = {
    "columns change places in pairs": ("0x6420", "0x7531"),
    "rows of a turned tile change places": ("right = i4(right + chunk_at(lane, 0, width, tile))", "right = i4(right + chunk_at(i4(lane ^ 8), 0, width, tile))"),
    "fragments of the weights change places": ("a[r + 2 * h]", "a[2 * r + h]"),
    "columns of a sum are taken for neighbours in eight": ("even[0], even[1], o[0, i], o[0, i + 2]", "even[0], even[1], o[0, i], o[0, i + 1]"),
    "a step along rows of bytes is half as long": ("-(-n_k // 32)", "-(-n_k // 64)"),
    "results are stored as if in pairs": ("2 * n + (thread >> 1 & 1)", "2 * n + (thread & 1)"),
    "bytes beyond a row are read": ("sel(there & (row < rows), i4(16)", "sel(there, i4(16)"),
}


@needs_toolchain
@pytest.mark.parametrize("fault", [fault if fault.startswith("columns change") else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS])
def test_a_fault_among_bytes_is_found(fault):
    made = narrow(attention8)
    assert is_found(made, *FAULTS[fault], filled(made, SIZES))
