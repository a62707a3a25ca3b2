"""Products of four warps: descriptors as the PTX ISA has them, their meaning in the interpreter, kernels that multiply by them and copy in bulk."""

import numpy as np
import pytest
from cuda_kernels import kernel, needs_toolchain
from lowered import verdict
from ptx_kernels import run
from test_tiles_cuda import RAGGED, is_found, is_right, poisoned, sized

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.ptx.machine import Mode
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


FILL = ("mov.u32 %r2, box; ld.param.u64 %rd1, [a0]; mad.lo.s64 %rd2, %rd0, 72, %rd1; mad.lo.u32 %r3, %r0, 72, %r2;"
        + "".join(f"ld.global.u64 %rd4, [%rd2+{8 * n}]; st.shared.u64 [%r3+{8 * n}], %rd4;" for n in range(9)) + "fence.proxy.async.shared::cta; bar.sync 0;")
ONES = "".join(f"mov.f32 %f{n}, 0f3F800000;" for n in range(4)) + "mov.b32 %r4, 1; setp.ne.b32 %p1, %r4, 0;"
BEGIN = ONES + f"mov.b64 %rd5, {word(0, 16, 1024)}; mov.b64 %rd6, {word(8192, 16, 1024)}; wgmma.fence.sync.aligned;"
STORE = ("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ld.param.u64 %rd7, [out]; mad.lo.s64 %rd8, %rd0, 16, %rd7;"
         + "".join(f"st.global.f32 [%rd8+{4 * n}], %f{n};" for n in range(4)))
SHARED = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, %p1, 1, 1, 0, 0;"
REGISTERS = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r8, %r9, %r10, %r11}, %rd6, %p1, 1, 1, 0;"


@pytest.fixture
def factors(rng):
    """64 × 16 and 8 × 16 whole numbers, and both as they lie in shared memory, with 16 numbers to a row of 128 bytes."""
    a, b = (rng.integers(-4, 5, shape).astype("f2") for shape in ((64, 16), (8, 16)))
    image = np.zeros(9216, np.uint8)
    for start, matrix in ((0, a), (8192, b)):
        for row in range(len(matrix)):
            for chunk in range(2):
                place = start + 128 * row + ((chunk ^ row % 8) << 4)
                image[place:place + 16] = matrix[row, 8 * chunk:8 * chunk + 8].view(np.uint8)
    return a, b, image


def multiplied(body, arrays, mode=None):
    return run(body, arrays, np.zeros((128, 4), "f4"), threads=128, module=".shared .align 1024 .b8 box[9216];", mode=mode)[0]


def holds(got, wanted):
    """Whether sums are where PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", has them."""
    lanes = [(lane, lane // 32 * 16 + lane % 32 // 4, 2 * (lane % 4)) for lane in (0, 5, 31, 32, 77, 127)]
    return all(list(got[lane]) == [wanted[row + 8 * (n // 2), column + n % 2] for n in range(4)] for lane, row, column in lanes)


def test_a_product_from_shared_memory_and_one_from_registers(factors):
    """64 × 16 times 16 × 8; then weights as mma has them."""
    a, b, image = factors
    lane = np.arange(128)
    fragments = np.stack([np.stack([a[lane // 32 * 16 + lane % 32 // 4 + 8 * (n % 2), 8 * (n // 2) + 2 * (lane % 4) + e] for e in (0, 1)], -1) for n in range(4)], 1)
    given = "ld.param.u64 %rd9, [a1]; mad.lo.s64 %rd10, %rd0, 16, %rd9;" + "".join(f"ld.global.b32 %r{8 + n}, [%rd10+{4 * n}];" for n in range(4))
    wanted = a.astype("f4") @ b.astype("f4").T + 1
    for body, arrays in ((FILL + BEGIN + SHARED + STORE, [image]), (FILL + given + BEGIN + REGISTERS + STORE, [image, fragments.copy()])):
        assert holds(multiplied(body, arrays), wanted)


def test_products_under_way_end_with_their_groups(factors):
    """Two products that add to one sum, with another group behind them that is not waited for yet."""
    a, b, image = factors
    other = SHARED.replace("%f0, %f1, %f2, %f3", "%f4, %f5, %f6, %f7")
    ones = "".join(f"mov.f32 %f{n}, 0f3F800000;" for n in range(4, 8))
    body = FILL + ones + BEGIN + SHARED + SHARED + "wgmma.commit_group.sync.aligned;" + other + STORE.replace("wait_group.sync.aligned 0;", "wait_group.sync.aligned 1;")
    assert holds(multiplied(body + "wgmma.wait_group.sync.aligned 0;", [image]), 2 * (a.astype("f4") @ b.astype("f4").T) + 1)
    with pytest.raises(PtxError, match="nobody waited for"):
        multiplied(body, [image])


@pytest.mark.parametrize(("old", "new", "said"), [
    ("wgmma.wait_group.sync.aligned 0;", "", "nobody waited for"), ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "nobody waited for"),
    ("wgmma.commit_group.sync.aligned;", "", "nobody waited for"), ("wgmma.fence.sync.aligned;", "", "lacks a wgmma.fence"),
    ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.f32 %f2, %f1;", "lacks a wgmma.fence"),
    ("wgmma.commit_group", "mov.f32 %f1, 0f00000000; wgmma.commit_group", "written while"), ("fence.proxy.async.shared::cta;", "", "before its fence.proxy.async"),
    ("fence.proxy.async.shared::cta; bar.sync 0;", "bar.sync 0; fence.proxy.async.shared::cta;", "race|lacks"),
    (SHARED, SHARED + SHARED.replace("%f0, %f1, %f2, %f3", "%f3, %f4, %f5, %f6"), "registers of another")])
def test_faults_of_products_under_way_are_found(factors, old, new, said):
    body = FILL + BEGIN + SHARED + STORE
    assert old in body
    with pytest.raises(PtxError, match=said):
        for mode in (Mode(), *(Mode(together=False, seed=seed) for seed in range(4))):
            multiplied(body.replace(old, new), [factors[2]], mode)


def test_a_sum_that_is_read_before_its_product_has_landed_is_no_number(factors):
    early = SHARED + "mov.f32 %f8, %f2;"
    got = multiplied(FILL + BEGIN + early + STORE.replace("%f2;", "%f8;"), [factors[2]])
    assert np.isnan(got[:, 2]).all() and not np.isnan(got[:, :2]).any()


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
    ("attention", 128, (65, 130)), ("attention", 80, (33, 33)), ("attention", 20, (33, 70)), *(("attention", 64, lengths) for lengths in RAGGED), ("causal_attention", 128, (190, 290))))])
def test_attention_by_wgmma(name, columns, lengths):
    made = by_wgmma(name)
    binding = sized(made, 0, m=lengths[0], l=lengths[1], k=columns, j=columns)
    ran = is_right(made, binding)
    binary = ran.binaries[0][0]
    assert "wgmma.mma_async" in binary.ptx and "mma.sync" not in binary.ptx and binary.spilled == binary.stack == 0
    assert ("global bulk load" in ran.counts.traffic) == (columns % 8 == 0)
    assert "local load" not in ran.counts.traffic


@needs_toolchain
@pytest.mark.slow
def test_what_a_mask_leaves_out_is_never_seen():
    made = by_wgmma("causal_attention")
    is_right(made, poisoned(made, m=70, l=70, k=20, j=33))


FAULTS = {
    "a stride of a descriptor": ("TILE * 128, 1024)", "TILE * 128, 512)"), "a step of scores": ("k % 4 * 32", "k % 4 * 16"),
    "a step of rows": ("[2048 * k for", "[1024 * k for"), "weights in another order": ("2 * half + r] = pack", "2 * r + half] = pack"),
    "another swizzle of descriptors": ("i8(1) << 62", "i8(2) << 62"), "no wait for copies of threads": ("wait_for_copies()", "pass"),
    "no wait for keys": ("arrived(i4(barriers + 8 * (1 - half)), i4(turn ^ half))", "pass"), "no wait for values": ("arrived(i4(barriers + 16), half)", "pass"),
    "the other parity of keys": ("i4(turn ^ half))", "i4(turn))"), "the other parity of values": ("barriers + 16), half)", "barriers + 16), i4(1 - half))"),
    "too few bytes announced": ("i4(BULK_LATE)", "i4(BULK_LATE // 2)"), "too many bytes announced": ("i4(BULK_EARLY)", "i4(2 * BULK_EARLY)"),
    "nothing announced": ("announce(barrier, i4(BULK_LATE))", "pass"), "no fence after the barriers": ("    async_fence()\n            cuda.syncthreads()\n            load", "    pass\n            cuda.syncthreads()\n            load"),
    "no fence after copies of threads": ("wait_for_copies()\n            async_fence()", "wait_for_copies()"), "maps not acquired": ("acquire_map(tensors + 128 * n)", "pass"),
    "boxes half as high": ("(128 // size, height, 1)", "(128 // size, height // 2, 1)"), "another row": ("i4(column + panel * (128 // size)), row,", "i4(column), i4(row + 1),"),
    "another item": ("item_V, TILE", "i4(0), TILE"), "panels in one place": ("i4(to + panel * height * 128)", "to"), "no fence of products": ("wgmma.fence.sync.aligned; ", ""),
    "sums not waited for": ("landed_o_s(o_s)", "pass"), "scores not waited for": ("landed_scores(S1)", "pass"), "the last sums not waited for": ("last_o_s(o_s)", "pass"),
    "one group too few waited for": ("landed(SPAN_j, 1)", "landed(SPAN_j, 2)"), "tiles overwritten while they are read": ("cuda.syncthreads()\n                    fetch_late", "fetch_late"),
    "no end of a group": ("product_o_s(o_s, weights, described(shared + LATE + AT_V, TILE * 128, 1024))\n                products_end()", "product_o_s(o_s, weights, described(shared + LATE + AT_V, TILE * 128, 1024))")}
"""Faults of kernels with products under way and bulk copies, by what they are."""


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    made = by_wgmma("attention")
    assert is_found(made, *FAULTS[fault], sized(made, 0, ("Q", "K", "V"), m=70, l=220, k=80 if "panel" in fault or fault == "another row" else 64, j=64, scale=0.1))
