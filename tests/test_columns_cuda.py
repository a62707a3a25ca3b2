"""CUDA kernels of rows with columns: vectors, matrices and the k largest as states, elements that pass through shared memory, in order too."""

import numpy as np
import pytest
from cuda_kernels import changed, drawn_case, kernel, limit, needs_toolchain, run

import redfuser_algebra as ra
from redfuser_algebra.fused import decide
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.text import PtxError
from redfuser_algebra.run.audit import case
from redfuser_algebra.run.cuda import made_cuda
from redfuser_algebra.run.export import draws

SOME = ("topk_mean_fixed", "moment_of_inertia", "moe_switch_aux")
MORE = ("dixon_q", "topk_zscores", "center_of_mass_inertia", "attn_differential", "attn_linear", "fox_wolfram_h2", "kb_gemv_gelu_softmax")
RANDOM = Mode(together=False, rough=True, counts=False, seed=1)


def shared_waste(ran):
    shared = [t for kind, t in ran.counts.traffic.items() if kind.startswith("shared")]
    return sum(t.moved for t in shared) / sum(t.least for t in shared)


@needs_toolchain
@pytest.mark.parametrize("name", [SOME[0], *(pytest.param(name, marks=pytest.mark.slow) for name in (*SOME[1:], *MORE))])
def test_states_with_columns(name):
    made = kernel(name)
    for length in (31, 300):
        binding = drawn_case(made, length)
        ran, error = run(made, binding)
        assert error <= limit(made) and run(made, binding, RANDOM)[1] <= limit(made), (length, error)
        assert all(binary.spilled == binary.stack == 0 for binary, _ in ran.binaries) and "local load" not in ran.counts.traffic


@ra.operator
def weighted(x: "row l c", w: "l", q: "c"):
    score = ra.sum(x * q, "c")
    m = ra.max(score, "l", where=w > 0)
    p = ra.exp(score - m)
    return ra.sum(p * abs(x), "l", where=w > 0) / ra.sum(p, "l", where=w > 0), ra.sum(ra.exp(score - m), "l", where=w > 0) * ra.exp(score - m)


@ra.operator
def nearest(X: "h m d", W: "l d", c: "h"):
    far = ra.sum(abs(X - W), "d") * c
    return ra.min(far, "l"), ra.argmin(far, "l"), ra.sum(ra.exp(ra.min(far, "l") - far), "l")


@needs_toolchain
def test_rows_read_what_they_share_once():
    made, rng = made_cuda(nearest, ra.fuse(nearest).form), np.random.default_rng(0)
    binding = nearest.bind(*(rng.normal(size=size).astype("f4").astype("f8") for size in ((2, 4, 8), (2, 2050, 8), (2,))))
    ran, error = run(made, binding)
    assert error <= 1e-5 and run(made, binding, RANDOM)[1] <= 1e-5 and shared_waste(ran) <= 1.05
    moved = sum(t.moved for kind, t in ran.counts.traffic.items() if kind.startswith("global"))
    assert moved <= 1.02 * sum(a.nbytes for a in (*made.given(binding), *ran.outputs) if isinstance(a, np.ndarray))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("columns", [3, 4, 64])
def test_an_operator_that_the_catalogue_does_not_have(columns):
    """Masked elements with any number of columns, a vector and a map as results, rows that begin anywhere and are more than a block has."""
    made, rng = made_cuda(weighted, ra.fuse(weighted).form), np.random.default_rng(columns)
    for length in (5, 301):
        x, w, q = rng.normal(size=(2, 11, length, columns)), rng.normal(size=length), rng.normal(size=columns)
        binding = weighted.bind(*(each.astype("f4").astype("f8") for each in (x, w, q)))
        ran, error = run(made, binding, shifts=(1, 0, 3, 0, 2))
        assert "cells_x" in made.source and error <= 1e-5 and shared_waste(ran) <= 1.05, length
        assert run(made, binding, RANDOM)[1] <= 1e-5


@ra.operator
def largest(x: "row l", k: int):
    return tuple(ra.topk(x, "l", k, name="t"))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 5, 32])
def test_the_k_largest_of_ties_and_nan(k):
    made = made_cuda(largest, ra.fuse(largest).form)
    x = np.random.default_rng(0).integers(0, 9, (2, 3, 200)).astype(float)
    x[0, 0, 7] = x[0, 1, 190] = np.nan
    x[1, 2] = -np.inf
    assert run(made, largest.bind(x, k=k))[1] == 0
    with pytest.raises(ValueError, match="the 33 largest of 200: this kernel finds 1 to 32"):
        made.file.plan(made.given(largest.bind(x, k=33)))


def test_states_that_no_thread_can_hold_are_refused():
    made = kernel("attn_linear")
    sizes = {"q": (64,), "K": (100, 64), "V": (100, 64)}
    with pytest.raises(ValueError, match="take fewer columns at a time"):
        made.file.plan([np.zeros(sizes[name], np.float32) for name in made.program.inputs])


# elements in order: outputs at every element, states with columns, states that do not merge


@ra.operator
def running_mean(x: "row l", k: "l"):
    kept = ra.cumulative(ra.sum, ra.where(k > 0, x, 0), "l") / ra.maximum(ra.cumulative(ra.sum, ra.where(k > 0, 1.0, 0.0), "l"), 1)
    return kept, ra.mean(x, "l", where=k > 0), ra.cumulative(ra.any, k > 1, "l")


@ra.operator
def decays(x: "row l c", q: "c", start: "row", fall: "row"):
    s = ra.sum(x * q, "c")
    h = ra.scan(lambda h: fall * h + s, "l", initial=start, every="after")
    return h - ra.mean(s, "l"), ra.cumulative(ra.max, abs(s), "l"), ra.sum(ra.exp(s - ra.max(s, "l")), "l"), ra.argmin(s, "l")


@ra.operator
def peaks(x: "l", y: "l"):
    return ra.cumulative(ra.max, abs(x), "l"), ra.sum(x * x, "l"), ra.cumulative(ra.sum, y, "l", exclusive=True)


@ra.operator
def gates(x: "row l", y: "l", start: "row"):
    h = ra.scan(lambda h: ra.tanh(h * y + x), "l", initial=start, every="after")
    return h, ra.sum(x, "l")


@ra.operator
def every_state(q: "l d", K: "row l d", V: "l v", g: "l"):
    h = ra.scan(lambda S: g * S + K * V, "l", initial=0.0, every="after")
    return ra.sum(q * h, "d") - ra.max(V, "l"), ra.argmax(V, "l"), ra.sum(ra.exp(V - ra.max(V, "l")), "l", where=g > 0)


@ra.operator
def delta_rule(q: "d", K: "l d", V: "l v", b: "l"):
    return ra.sum(q * ra.scan(lambda S: S + b * K * (V - ra.sum(K * S, "d")), "l", initial=0.0), "d")


@ra.operator
def labelled(x: "l c", a: "c", label: "l"):
    seen = ra.cumulative(ra.sum, ra.where(label == 2, 1, 0), "l")
    return seen, ra.topk(ra.sum(x, "c"), "l", 2)[0], ra.scan(lambda h: (1 - a) * h + a * x, "l", initial=0.0)


@needs_toolchain
@pytest.mark.parametrize("op", [peaks, *(pytest.param(op, marks=pytest.mark.slow) for op in (running_mean, decays, gates, every_state, delta_rule, labelled))],
                         ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_elements_in_order(op, dtype):
    """Arrays that begin at different places of a sector, rows that share some of them, rows of one warp and of several."""
    made = made_cuda(op, decide(op).fused.form, dtype)
    for length in (2, 700):
        binding = case(made, draws(op), length, 0)
        assert run(made, binding)[1] <= limit(made) and run(made, binding, RANDOM, (1, 0, 3, 0, 2, 0, 1))[1] <= limit(made), length


# what is wrong: (operator, length of a row, what is replaced, by what)
FAULTS = {
    "the first element is left out": ("lindley_total_wait", 31, "if 0 <= at < n_l", "if 0 < at < n_l"),
    "elements are taken before they came": ("sgd_logistic", 300, "turn - DELAY - ", "turn + DELAY - "),
    "a carry is lost": ("log_cumulative_sum_exp", 5000, "sel(thread == 0, h_first, h_before)", "h_before"),
    "states merge in the wrong order": ("log_cumulative_sum_exp", 300, "if lane >= by:", "if lane < by:"),
    "warps begin anew": ("log_cumulative_sum_exp", 3000, "sel(warp > 0, seen_above, i4(0))", "i4(0)"),
    "a warp sees itself": ("log_cumulative_sum_exp", 3000, "max(warp - 1, 0)", "warp"),
    "outputs are read before they are there": ("log_cumulative_sum_exp", 3000, "            cuda.syncthreads()\n            if live:", "            if live:"),
    "a ring is too short": ("gates", 300, "ring, lanes = step + 2 * DELAY", "ring, lanes = step - DELAY"),
    "the last outputs stay in the ring": ("gates", 300, "n_l + 3 * DELAY, step", "n_l - 4 * DELAY, step"),
    "rows read those of another": ("lindley_total_wait", 31, "origins[row - 1] == origins[row]", "origins[row - 1] != origins[row]"),
    "outputs see the state before": ("log_cumulative_sum_exp", 31, "= f4(t2)", "= f4(c1)"),
    "columns are one": ("attn_gated_linear", 31, "i_v = column % n_v", "i_v = column % 1"),
    "a tile is read before it is there": ("moment_of_inertia", 300, "            cuda.syncthreads()\n            seen, ", "            seen, "),
    "a tile is filled before it was read": ("moment_of_inertia", 3000, "            cuda.syncthreads()\n            lead = ", "            lead = "),
    "a tile ends early": ("moment_of_inertia", 300, "word < high", "word + 1 < high"),
    "an element too many": ("attn_differential", 31, "span + thread) < i4(length)", "span + thread) <= i4(length)"),
    "columns are mixed up": ("center_of_mass_inertia", 300, "element * width + column", "element * width + width - 1 - column"),
    "states are added at different pivots": ("center_of_mass_inertia", 300, "    if seen_old > 0:\n        rebase_s1(", "    if False:\n        rebase_s1("),
    "warps leave their states in one place": ("moment_of_inertia", 1000, "shared_s[warp * (words_s | 1)", "shared_s[0 * (words_s | 1)"),
    "lists do not move on": ("topk_mean_fixed", 300, "stays = position != at[begin + k]", "stays = True"),
    "a place of the list is never written": ("topk_mean_fixed", 300, "    for k in range(count):\n            old", "    for k in range(count - 1):\n            old"),
    "values stay at their old positions": ("topk_mean_fixed", 300, "rebase_s1(s1, pos_old, pos, ", "rebase_s1(s1, pos_old, pos_old, "),
}


def hill(x):
    """The same numbers with the largest in the middle of each row, side by side: the four largest are one vector of a row that begins at word 3."""
    length = x.shape[-1]
    risen = np.empty_like(x)
    risen[..., np.argsort(abs(np.arange(length) - length // 2 - 1), kind="stable")] = -np.sort(-x)
    return risen


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    name, length, old, new = FAULTS[fault]
    made = made_cuda(gates, decide(gates).fused.form) if name == gates.name else kernel(name)
    binding = case(made, draws(made.operator), length, 0)
    if name == "topk_mean_fixed":
        binding = made.operator.bind(**{**binding.arrays, "x": hill(binding.arrays["x"])}, **binding.params)
    assert run(made, binding)[1] <= limit(made)
    wrong = changed(made, old, new)
    for mode in (Mode(counts=False), Mode(together=False, counts=False, seed=5)):
        try:
            if not run(made, binding, mode, (3,), wrong)[1] <= limit(made):
                return
        except PtxError:
            return
    raise AssertionError("nobody noticed")
