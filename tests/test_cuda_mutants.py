"""Faults put into printed CUDA kernels: the execution without a GPU finds every one of them."""

import numpy as np
import pytest
from cuda_kernels import changed, drawn_case, kernel, limit, needs_toolchain, run

from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.text import PtxError

# what is wrong: (operator, length of a row, what is replaced, by what)
FAULTS = {
    "no barrier before the warps' states are read": ("logsumexp", 700, "            cuda.syncthreads()\n            if warp == 0:", "            if warp == 0:"),
    "no barrier before the maps": ("softmax", 700, "        cuda.syncthreads()\n        m = final_m", "        m = final_m"),
    "warps leave their states in one place": ("logsumexp", 700, "shared_s[warp] = s", "shared_s[0] = s"),
    "a warp's state is left out": ("logsumexp", 9001, "sel(lane < warps, shared_s", "sel(lane < warps - 1, shared_s"),
    "a step of the shuffles is missing": ("logsumexp", 40, "for step in range(5):", "for step in range(4):"),
    "shuffles over the wrong distance": ("logsumexp", 400, "by = width >> step + 1", "by = width >> step + 2"),
    "states are added at different pivots": ("logsumexp", 40, "sum_over(rebase_s(m_old, m, s_old) if seen_old > 0 else 0.0, width)", "sum_over(s_old, width)"),
    "a tile is added at the old pivot": ("logsumexp", 9000, "s = rebase_s(m_old, m, s_old) if seen_old > 0 else s_old", "s = s_old"),
    "the pivot is rebased the wrong way": ("logsumexp", 9000, "rebase_s(m_old, m, s_old) if seen_old > 0 else s_old", "rebase_s(m, m_old, s_old) if seen_old > 0 else s_old"),
    "an empty lane takes part": ("variance", 20, "many = sel(ok[TILE], i4(1), i4(0))", "many = i4(1)"),
    "elements are not masked": ("logsumexp", 700, "sel(ok[i_l], s_of, f4(0.0))", "s_of"),
    "parts overlap": ("logsumexp", 65_550, "begin = part * piece", "begin = part * (piece - 32)"),
    "a part is left out": ("logsumexp", 65_550, "there = thread < parts", "there = thread < parts - 1"),
    "parts end early": ("logsumexp", 65_550, "max(min(piece, n_l - begin), i8(0))", "max(min(piece - 512, n_l - begin), i8(0))"),
    "a vector too many": ("logsumexp", 1024, "full = number < vectors", "full = number <= vectors"),
    "a vector too few": ("logsumexp", 700, "full = number < vectors", "full = number + 1 < vectors"),
    "an edge element too many": ("logsumexp", 703, "thread < edges", "thread <= edges"),
    "edges in every tile": ("logsumexp", 9001, "edge = first == 0 and thread < edges", "edge = thread < edges"),
    "the edges at the wrong end": ("logsumexp", 703, "sel(thread < head, thread, thread + vectors * VECTOR)", "thread"),
    "rows taken to be aligned": ("logsumexp", 703, "& 31) // SIZE, length)", "& 31) * 0, length)"),
    "the last tile is left out": ("logsumexp", 9001, "more = first < vectors", "more = first + FLIGHT * span < vectors"),
    "tiles overlap": ("logsumexp", 9001, "first += FLIGHT * span", "first += span"),
    "all rows of a batch are the first": ("logsumexp", 40, "o_x = rest * s_x", "o_x = 0"),
    "warps share a row by mistake": ("logsumexp", 40, "item * ROWS + (thread >> 5)", "item * ROWS"),
    "rows beyond the last are written": ("logsumexp", 40, "live = item < items", "live = True"),
    "an output element too many": ("softmax", 700, "    if ok[TILE]:", "    if True:"),
    "outputs taken to be aligned": ("softmax", 701, "+ head * SIZE) % 16 == 0, ok", "+ head * SIZE) % 16 < 99, ok"),
    "of equal values the last wins": ("argmax_argmin", 40, "equal & (position < at)", "equal & (position > at)"),
    "NaN is not the largest": ("argmax_argmin", 40, "(value != value) & (best == best)", "(value != value) & (best != best)"),
    "no NaN where there is no value": ("softmax", 40, "return t10 if t3 != t3 else s", "return t10 if False else s"),
}


def is_found(made, file, binding, shifts=(3,)):
    for mode in (Mode(counts=False), Mode(together=False, counts=False, seed=5)):
        try:
            if not run(made, binding, mode, shifts, file)[1] <= limit(made):
                return True
        except PtxError:
            return True
    return False


def hard_case(made, length):
    """A row like any other, one whose largest value comes last, one with ties, and, where it fits, NaN and infinity."""
    binding = drawn_case(made, length)
    x = np.concatenate([binding.arrays["x"], binding.arrays["x"], binding.arrays["x"][:1]])
    x[1, -1], x[2, 5:13] = 30.0, 7.0
    if made.operator.name in ("softmax", "argmax_argmin"):
        x[3, 3], x[4, 2] = np.inf, np.nan
    return made.operator.bind(x=x)


@needs_toolchain
@pytest.mark.parametrize("name", ["logsumexp", "softmax", "variance", "argmax_argmin"])
def test_without_a_fault_nothing_is_found(name):
    made = kernel(name)
    assert not is_found(made, made.file, hard_case(made, 703))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    name, length, old, new = FAULTS[fault]
    made = kernel(name)
    assert is_found(made, changed(made, old, new), hard_case(made, length))
