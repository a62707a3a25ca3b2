"""Products of four warps: descriptors as the PTX ISA has them, their meaning in the interpreter, kernels that multiply by them."""

import numpy as np
import pytest
from cuda_kernels import changed, kernel, needs_toolchain
from lowered import verdict
from ptx_kernels import run
from test_tiles_cuda import RAGGED, is_found, is_right, poisoned, sized

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.ptx.text import PtxError
from redfuser_algebra.ptx.warpgroup import Descriptor
from redfuser_algebra.run.export import exported_cuda

WGMMA = Schedule(1, wgmma=True)


def by_wgmma(name, dtype="float16"):
    return verdict(name).fused.kernel("cuda", dtype=dtype, schedule=WGMMA)


def word(address, leading, stride, swizzle=1, base=0):
    """The fields of PTX ISA, "Matrix Descriptor Format", one by one."""
    return address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | swizzle << 62


def test_the_fields_of_a_descriptor():
    assert Descriptor.read(word(0x2340, 8192, 1024)) == Descriptor(0x2340, 8192, 1024, 0, 1)
    assert Descriptor.read(word(0x3FFF0, 16, 0x3FFF0, 3, 5)) == Descriptor(0x3FFF0, 16, 0x3FFF0, 5, 3)
    with pytest.raises(PtxError, match="another swizzle"):
        Descriptor.read(word(0, 16, 1024, 2)).places(8, False)


@pytest.mark.parametrize("turned", [False, True])
def test_places_are_those_of_the_swizzle(turned):
    """Chunk c of 16 bytes in row r of a panel of 128 bytes is at c ^ (r % 8)."""
    places = Descriptor.read(word(1024 + 32 * (not turned), 8192, 1024)).places(128, turned)
    for row, inner in ((0, 0), (5, 3), (9, 15), (63, 8), (77, 9), (127, 15)):
        line, number = (inner, row % 64) if turned else (row, inner + 16)
        panel = 8192 * (row // 64) if turned else 0
        assert places[row, inner] == 1024 + panel + 128 * line + ((number // 8 ^ line % 8) << 4) + number % 8 * 2


def test_a_product_from_shared_memory_and_one_from_registers(rng):
    """64 × 16 times 16 × 8, both with 16 numbers to a row of 128 bytes; then weights as mma has them."""
    a, b = (rng.integers(-4, 5, shape).astype("f2") for shape in ((64, 16), (8, 16)))
    image = np.zeros(9216, np.uint8)
    for start, matrix in ((0, a), (8192, b)):
        for row in range(len(matrix)):
            for chunk in range(2):
                place = start + 128 * row + ((chunk ^ row % 8) << 4)
                image[place:place + 16] = matrix[row, 8 * chunk:8 * chunk + 8].view(np.uint8)
    fill = "mov.u32 %r2, box; ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd2, %rd0, 72, %rd1; mad.lo.u32 %r3, %r0, 72, %r2;"
    fill += "".join(f"ld.global.u64 %rd4, [%rd2+{8 * n}]; st.shared.u64 [%r3+{8 * n}], %rd4;" for n in range(9)) + "bar.sync 0;"
    head = "".join(f"mov.f32 %f{n}, 0f3F800000;" for n in range(4)) + "mov.b32 %r4, 1; setp.ne.b32 %p1, %r4, 0;"
    head += f"mov.b64 %rd5, {word(0, 16, 1024)}; mov.b64 %rd6, {word(8192, 16, 1024)}; wgmma.fence.sync.aligned;"
    store = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ld.param.u64 %rd7, [out]; mad.lo.s64 %rd8, %rd0, 16, %rd7;"
    store += "".join(f"st.global.f32 [%rd8+{4 * n}], %f{n};" for n in range(4))
    shared = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, %p1, 1, 1, 0, 0;"
    lane = np.arange(128)
    fragments = np.stack([np.stack([a[lane // 32 * 16 + lane % 32 // 4 + 8 * (n % 2), 8 * (n // 2) + 2 * (lane % 4) + e] for e in (0, 1)], -1) for n in range(4)], 1)
    given = "ld.param.u64 %rd9, [a1]; mad.lo.s64 %rd10, %rd0, 16, %rd9;" + "".join(f"ld.global.b32 %r{8 + n}, [%rd10+{4 * n}];" for n in range(4))
    registers = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r8, %r9, %r10, %r11}, %rd6, %p1, 1, 1, 0;"
    wanted = a.astype("f4") @ b.astype("f4").T + 1
    for body, arrays in ((fill + head + shared + store, [image]), (fill + given + head + registers + store, [image, fragments.copy()])):
        got, _ = run(body, arrays, np.zeros((128, 4), "f4"), threads=128, module=".shared .align 1024 .b8 box[9216];")
        for lane in (0, 5, 31, 32, 77, 127):
            row, column = lane // 32 * 16 + lane % 32 // 4, 2 * (lane % 4)
            assert list(got[lane]) == [wanted[row + 8 * (n // 2), column + n % 2] for n in range(4)]


def test_what_wgmma_is_not_for_is_refused():
    fused = verdict("attention").fused
    for given, said in (({"dtype": "float32"}, "16 bits"), ({"dtype": "float16", "arch": "sm_80"}, "only sm_90a")):
        with pytest.raises((LoweringError, OperatorError), match=said):
            fused.kernel("cuda", schedule=WGMMA, **given)
    with pytest.raises(LoweringError, match="multiplies no matrices"):
        verdict("softmax").fused.kernel("cuda", dtype="float16", schedule=WGMMA)
    with pytest.raises(LoweringError, match="only GPUs"):
        fused.kernel("cpu", schedule=WGMMA)(*(np.ones((3, 4)),) * 3)
    assert "no GPU has run it yet" in exported_cuda(by_wgmma("attention"), 64 * "0")
    assert by_wgmma("attention").source != kernel("attention", "float16").source


@needs_toolchain
@pytest.mark.parametrize(("name", "columns", "lengths"), [("causal_attention", 64, (127, 200)), *(pytest.param(*case, marks=pytest.mark.slow) for case in (
    ("attention", 128, (65, 130)), ("attention", 80, (33, 33)), *(("attention", 64, lengths) for lengths in RAGGED), ("causal_attention", 128, (190, 290))))])
def test_attention_by_wgmma(name, columns, lengths):
    made = by_wgmma(name)
    binding = sized(made, 0, m=lengths[0], l=lengths[1], k=columns, j=columns)
    ran = is_right(made, binding)
    binary = ran.binaries[0][0]
    assert "wgmma.mma_async" in binary.ptx and "mma.sync" not in binary.ptx and binary.spilled == binary.stack == 0
    assert "local load" not in ran.counts.traffic


@needs_toolchain
@pytest.mark.slow
def test_what_a_mask_leaves_out_is_never_seen():
    made = by_wgmma("causal_attention")
    is_right(made, poisoned(made, m=70, l=70, k=20, j=33))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [
    ("described(tile + AT_V, TILE * 128, 1024)", "described(tile + AT_V, TILE * 128, 512)"), ("k % 4 * 32", "k % 4 * 16"), ("[2048 * k for", "[1024 * k for"),
    ("2 * half + r] = pack", "2 * r + half] = pack"), ("i8(1) << 62", "i8(2) << 62"), ("wait_for_all_but_the_last()", "pass")])
def test_a_fault_of_descriptors_is_found(old, new):
    made = by_wgmma("attention")
    assert changed(made, old, new) and is_found(made, old, new, sized(made, m=70, l=150, k=64, j=64, scale=0.1))
