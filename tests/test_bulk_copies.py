"""Bulk copies of boxes of tensors, and barriers that count their bytes: what they do in the interpreter, and which faults it finds."""

import numpy as np
import pytest
from cuda_kernels import needs_toolchain
from cuda.bindings import driver
from ptx_kernels import run
from test_wgmma import by_wgmma

from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.memory import GLOBAL, GUARD
from redfuser_algebra.ptx.tensor_maps import TensorMap, encode_tiled
from redfuser_algebra.ptx.text import PtxError

SHAPE, BOX, CORNER = (24, 5, 3), (64, 8, 1), (8, -2, 1)
"""Lengths of axes, the innermost first; places along the sides of a box; where it begins."""

MODULE = ".shared .align 1024 .b8 box[1024]; .shared .align 8 .b8 bar[8];"
BODY = f"""
mov.u32 %r2, box; mov.u32 %r3, bar;
mov.b32 %r5, {CORNER[0]}; mov.b32 %r6, {CORNER[1]}; mov.b32 %r7, {CORNER[2]}; mov.b32 %r8, 1; mov.b32 %r9, 1024;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra $L_ready;
mbarrier.init.shared::cta.b64 [%r3], %r8;
ld.param.u64 %rd1, [a1];
fence.proxy.tensormap::generic.acquire.sys [%rd1], 128;
fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], %r9;
cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r5, %r6, %r7}}], [%r3];
$L_ready:
bar.sync 0;
$L_wait:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
@!%p2 bra $L_wait;
mad.lo.u32 %r4, %r0, 16, %r2; ld.param.u64 %rd2, [out]; mad.lo.s64 %rd3, %rd0, 16, %rd2;
ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r4];
st.global.v4.b32 [%rd3], {{%r10, %r11, %r12, %r13}};
"""


def copied(body=BODY, mode=None):
    """What a block of two warps finds in shared memory, the matrix, and what was counted."""
    matrix = np.arange(1, 1 + np.prod(SHAPE), dtype=np.uint16).reshape(SHAPE[::-1])
    tensor = TensorMap(2, GLOBAL + GUARD, SHAPE, (2 * SHAPE[0], 2 * SHAPE[0] * SHAPE[1]), BOX)
    got, counts = run(body, [matrix, np.array(tensor.words(), np.uint64)], np.zeros((64, 4), np.uint32), threads=64, module=MODULE, mode=mode)
    return got.view(np.uint16).reshape(8, 64), matrix, counts


@pytest.mark.parametrize("mode", [Mode(), Mode(together=False, seed=3)])
def test_a_box_lies_swizzled_and_is_zero_beyond_the_tensor(mode):
    got, matrix, counts = copied(mode=mode)
    wanted = np.zeros((8, 64), np.uint16)
    wanted[2:7, :16] = matrix[1, :, 8:]
    for row in range(8):
        for chunk in range(8):
            place = 8 * (chunk ^ row)
            assert list(got[row, place:place + 8]) == list(wanted[row, 8 * chunk:8 * chunk + 8])
    if mode.counts:
        assert counts.traffic["global bulk load"].bytes == 2 * 5 * 16 and counts.traffic["shared bulk store"].bytes == 1024


@pytest.mark.parametrize(("old", "new", "said"), [
    ("@!%p2 bra $L_wait;", "", "still under way"), ("%p2, [%r3], 0;", "%p2, [%r3], 1;", "still under way"),
    ("mov.b32 %r9, 1024;", "mov.b32 %r9, 2048;", "for ever"), ("mov.b32 %r9, 1024;", "mov.b32 %r9, 512;", "more bytes"),
    ("mov.b32 %r8, 1;", "mov.b32 %r8, 2;", "for ever"), ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], %r9;", "", "for ever"),
    ("fence.proxy.async.shared::cta;", "", "before its fence"), ("fence.proxy.tensormap::generic.acquire.sys [%rd1], 128;", "", "not acquired"),
    ("mbarrier.init.shared::cta.b64 [%r3], %r8;", "", "no thread has initialised"), ("ld.param.u64 %rd1, [a1];", "ld.param.u64 %rd1, [a0];", "no tensor map"),
    ("mov.u32 %r2, box;", "mov.u32 %r2, box; add.u32 %r2, %r2, 64;", "multiple of 128"),
    ("mov.u32 %r2, box;", "mov.u32 %r2, box; add.u32 %r2, %r2, 128;", "out-of-bounds"),
    ("bar.sync 0;\n$L_wait:", "$L_wait:", "no thread has initialised"),
    ("$L_ready:", "st.shared.b32 [%r2], %r9;\n$L_ready:", "a store to where"),
    ("mbarrier.arrive.expect_tx", "st.shared.b32 [%r2], %r9; mbarrier.arrive.expect_tx", "before its fence")])
def test_faults_of_copies_and_barriers_are_found(old, new, said):
    assert BODY.count(old) == 1
    with pytest.raises(PtxError, match=said):
        for seed in range(4):
            copied(BODY.replace(old, new), Mode(together=False, seed=seed))


def test_a_copy_that_nobody_waits_for_is_found():
    start = BODY[:BODY.index("$L_wait:")] + "mov.b32 %r10, 0; ld.param.u64 %rd2, [out]; mad.lo.s64 %rd3, %rd0, 16, %rd2; st.global.v4.b32 [%rd3], {%r10, %r10, %r10, %r10};"
    with pytest.raises(PtxError, match="nobody waited"):
        copied(start)


def test_a_second_phase_has_the_other_parity():
    again = BODY.replace("mad.lo.u32 %r4", """@%p1 bra $L_again;
        mbarrier.arrive.shared::cta.b64 _, [%r3];
        $L_again: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 1; @!%p3 bra $L_again;
        mad.lo.u32 %r4""")
    assert (copied(again)[0] == copied()[0]).all()
    with pytest.raises(PtxError, match="for ever"):
        copied(again.replace("mbarrier.arrive.shared::cta.b64 _, [%r3];", ""))
    with pytest.raises(PtxError, match="more arrive"):
        copied(BODY.replace("bar.sync 0;", "mbarrier.arrive.shared::cta.b64 _, [%r3];"))


NAMED = {"kind": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16, "rank": 3, "address": GLOBAL, "lengths": (24, 5, 3), "strides": (48, 240),
         "box": (64, 8, 1), "steps": (1, 1, 1), "interleave": driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
         "swizzle": driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B, "promotion": None, "fill": driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE}


@pytest.mark.parametrize("wrong", [
    {}, {"address": GLOBAL + 8}, {"strides": (40, 240)}, {"strides": (48, 1 << 40)}, {"box": (128, 8, 1)}, {"box": (64, 257, 1)}, {"box": (4, 8, 1)},
    {"lengths": (24, 0, 3)}, {"rank": 2}, {"steps": (1, 2, 1)}, {"swizzle": driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B}])
def test_maps_that_the_driver_refuses_are_refused(wrong):
    status, made = encode_tiled(**NAMED | wrong)
    assert (status != 0) == bool(wrong)
    assert wrong or TensorMap.read(np.array(made.opaque, np.uint64)) == TensorMap(2, GLOBAL, (24, 5, 3), (48, 240), (64, 8, 1))


@needs_toolchain
def test_the_file_asks_the_driver_for_maps_of_what_has_whole_vectors():
    """Where rows do not, threads copy, and no map is asked for; what the driver refuses is said."""
    file = by_wgmma("attention").file
    arrays = [np.zeros(shape, np.float16) for shape in ((2, 9, 64), (2, 70, 64), (2, 70, 30))]
    _, arguments, _, _ = file.plan([*arrays, 1.0])
    planned = arguments[-1]
    assert planned[:, :4].tolist() == [[2, 64, 70, 64], [4, 30, 70, 0]]
    maps = file.names["tensor_maps"](planned, arguments, {2: GLOBAL + 512, 4: GLOBAL}, encode_tiled)
    assert TensorMap.read(maps[0]) == TensorMap(2, GLOBAL + 512, (64, 70, 2), (128, 8960), (64, 64, 1)) and not maps[1].any()
    with pytest.raises(ValueError, match="the driver makes no tensor map"):
        file.names["tensor_maps"](planned, arguments, {2: GLOBAL + 8, 4: GLOBAL}, encode_tiled)
