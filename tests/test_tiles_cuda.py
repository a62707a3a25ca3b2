"""CUDA kernels with matrix products: executed without a GPU they mean what the operator means, whatever it is called."""

import ast

import numpy as np
import pytest
from cuda_kernels import changed, kernel, limit, needs_toolchain, run
from lowered import FUSABLE, program

import redfuser_algebra as ra
from redfuser_algebra.lower.numba_cuda import print_cuda
from redfuser_algebra.lower.operands_cuda import has_products
from redfuser_algebra.lower.standalone.bfloat16 import from_bfloat16, to_bfloat16
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.ptx.text import PtxError
from redfuser_algebra.run.cuda import made_cuda

RAGGED = ((1, 1), (33, 33), (64, 64), (127, 200), (190, 290))
SHUFFLED = Mode(together=False, rough=True, counts=False, seed=1)
BATCHED = {"attention": ("Q", "K", "V")}


@ra.operator
def gated(Q: "m k", K: "l k", V: "l j", G: "l j", scale: float = 0.3, cap: float = 5.0):
    S = cap * ra.tanh(ra.sum(Q * K, "k") * scale / cap)
    P = ra.exp(S - ra.max(S, "l"))
    return ra.sum(P * V * V * G, "l") / ra.sum(P, "l")


@ra.operator
def biased(Q: "h m k", K: "h l k", V: "l j", U: "l i", B: "m l", c: "l", keep: "m l", slope: "h", scale: float = 0.3):
    S = ra.sum(Q * K, "k") * scale + B + c + slope * (ra.index("l") - ra.index("m"))
    w = (keep > 0) & (ra.index("l") <= ra.index("m") + 40)
    m = ra.max(S, "l", where=w)
    P = ra.exp(S - m)
    s = ra.sum(P, "l", where=w)
    return ra.sum(P * V, "l", where=w) / s, ra.sum(P * U, "l", where=w) / s, m + ra.log(s)


@ra.operator
def headed(Q: "g h m k", K: "g l k", V: "g l j", slope: "h", scale: float = 0.3):
    S = ra.sum(Q * K, "k") * scale + slope * ra.index("m")
    w = ra.index("l") <= ra.index("m") + 3000
    P = ra.exp(S - ra.max(S, "l", where=w))
    return ra.sum(P * V, "l", where=w) / ra.sum(P, "l", where=w)


@ra.operator
def paired(Q: "h m k", P: "m k", K: "l k", R: "l k", V: "l j"):
    S = ra.sum(Q * K - P * R, "k") * 0.3 - ra.sum(K * K + R * R, "k") * 0.05
    w = ra.exp(S - ra.max(S, "l"))
    return ra.sum(w * V, "l") / ra.sum(w, "l")


@ra.operator
def headed_with_bias(Q: "h m k", K: "l k", V: "l j", B: "m l", keep: "h l", scale: float = 0.3):
    S = ra.sum(Q * K, "k") * scale + B
    w = (keep > 0) & (ra.index("l") <= ra.index("m") + 40 * ra.index("h"))
    m = ra.max(S, "l", where=w)
    P = ra.exp(S - m)
    return ra.sum(P * V, "l", where=w) / ra.sum(P, "l", where=w), m


@ra.operator
def segmented(Q: "h m k", K: "l k", V: "l j", kind: "l", first: "m", c: "l", scale: float = 0.3):
    S = ra.sum(Q * K, "k") * scale + c
    w = (kind % 3 == ra.index("m") % 3) & (kind < ra.index("l") + first)
    P = ra.exp(S - ra.max(S, "l", where=w))
    return ra.sum(P * V, "l", where=w) / ra.sum(P, "l", where=w)


def at(table, place, axis):
    return ra.sum(ra.where(ra.index(axis) == place, table, 0), axis)


@ra.operator
def looked_up(Q: "h m k", K: "l k p", V: "l j", keep: "h r b", B: "m l p", t: "h", scale: float = 0.3):
    S = ra.sum(Q * (ra.take(K, 0, "p") * ra.take(K, 1, "p") + ra.take(K, 0, "p")), "k") * scale + ra.take(B, 1, "p")
    w = at(at(keep, ra.index("m") // 2, "r"), ra.index("l") // 16, "b") > 0
    m = ra.max(S, "l", where=w)
    P = ra.exp(S - m)
    s = ra.sum(P, "l", where=w)
    return t * ra.sum(P * V, "l", where=w) / s, t * m + ra.log(s)


@ra.operator
def signed(Q: "m k", K: "l k", V: "l j", u: "l"):
    return ra.sum(u * ra.maximum(ra.sum(Q * K, "k"), 0) * V, "l", where=ra.index("l") <= ra.index("m"))


def made_up(operator, dtype="float16"):
    return made_cuda(operator, ra.fuse(operator).form, dtype)


def sized(made, seed=0, batched=(), scale=1.0, **sizes):
    """Arrays of these sizes and what has no usual value, and a scale: normal numbers of the kernel's dtype, bits where `keep` is asked for, lengths where whole numbers are."""
    rng, arrays = np.random.default_rng(seed), {}
    for name, axes in made.operator.inputs.items():
        shape = (2,) * (name in batched) + tuple(sizes[axis] for axis in axes)
        x = rng.standard_normal(shape)
        x = from_bfloat16(to_bfloat16(x.astype("f4"))) if made.dtype == "bfloat16" else x.astype(made.dtype)
        whole = made.signature.arrays[name] == "i8"
        arrays[name] = rng.integers(0, sizes[made.program.axis] + 1, shape) if whole else (rng.random(shape) < 0.7) * 1.0 if name == "keep" else x.astype("f8")
    return made.operator.bind(**arrays, **{name: scale if value is None or name == "scale" else value for name, value in made.operator.params.items()})


def is_right(made, binding, modes=(Mode(), SHUFFLED)):
    """Whether every way to execute gives the operator's results, without a spill; the last execution that was counted."""
    counted = None
    for mode in modes:
        ran, error = run(made, binding, mode)
        assert error <= limit(made), error
        assert all(binary.spilled == binary.stack == 0 for binary, _ in ran.binaries)
        counted = ran if mode.counts else counted
    return counted


def wasted(made, binding, ran):
    """Bytes in sectors over bytes of all arrays; passes over the banks over the least."""
    given = [a for a in made.given(binding) if isinstance(a, np.ndarray)]
    moved = sum(t.moved for kind, t in ran.counts.traffic.items() if kind.startswith("global"))
    shared = [t for kind, t in ran.counts.traffic.items() if kind.startswith("shared")]
    return moved / sum(a.nbytes for a in (*given, *ran.outputs)), sum(t.moved for t in shared) / sum(t.least for t in shared)


def slow(*cases):
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("name", ["attention", "causal_attention", "rmsnorm_gemm", "grouped_query_attention"])
def test_printing_twice_gives_the_same_python(name):
    made = kernel(name, "float16")
    assert print_cuda(made.program, made.signature, "float16").text == made.source
    assert {"plan", "launch", "make", "multiply_rows", "add_weighted_rows"} - {node.name for node in ast.parse(made.source).body if isinstance(node, ast.FunctionDef)} <= {"multiply_rows"}


def test_a_tile_that_is_made_reads_nothing_beyond_its_ends():
    reads = [line for line in kernel("attn_gaussian_kernel", "float16").source.splitlines() if "load_one(p_" in line and "first_d" in line]
    assert reads and all("there & " in line for line in reads)


@needs_toolchain
@pytest.mark.parametrize(("name", "columns", "lengths"), [("causal_attention", 64, (127, 200)), *slow(
    *(("attention", columns, lengths) for columns in (64, 128) for lengths in RAGGED), ("causal_attention", 128, (190, 290)), ("sliding_window_attention", 64, (190, 290)))])
def test_attention_on_ragged_lengths(name, columns, lengths):
    made = kernel(name, "float16")
    binding = sized(made, 0, BATCHED.get(name, ()), m=lengths[0], l=lengths[1], k=columns, j=columns)
    ran = is_right(made, binding)
    traffic, conflicts = wasted(made, binding, ran)
    assert conflicts <= 1.05 and "local load" not in ran.counts.traffic
    assert traffic <= 1.02 or lengths[0] > 64 or lengths == (1, 1)


@needs_toolchain
@pytest.mark.parametrize(("operator", "sizes"), [
    (gated, {"m": 20, "l": 70, "k": 20, "j": 33}), (looked_up, {"h": 3, "m": 11, "l": 75, "k": 24, "p": 2, "r": 5, "b": 4, "j": 16}), *slow(
    (gated, {"m": 70, "l": 130, "k": 64, "j": 64}), (biased, {"h": 2, "m": 16, "l": 75, "k": 64, "j": 32, "i": 16}),
    (headed_with_bias, {"h": 3, "m": 30, "l": 75, "k": 64, "j": 32}), (paired, {"h": 3, "m": 30, "l": 76, "k": 20, "j": 33}))])
def test_operators_that_have_no_name(operator, sizes):
    made = made_up(operator)
    is_right(made, sized(made, **sizes))


OTHERS = [
    ("grouped_query_attention", {"g": 2, "r": 2, "m": 17, "l": 70, "k": 64, "j": 64}), ("padded_attention", {"n": 3, "m": 5, "l": 100, "k": 64, "j": 32}),
    ("mla", {"m": 3, "h": 20, "l": 70, "c": 128, "r": 64}), ("rmsnorm_gemm", {"m": 33, "l": 200, "n": 160}), ("rmsnorm_gemm", {"m": 5, "l": 67, "n": 9}),
    ("quant_gemm_reassociate", {"m": 33, "l": 128, "n": 64}), ("layernorm_gemm", {"m": 33, "l": 136, "n": 64}), ("attention", {"m": 20, "l": 40, "k": 80, "j": 96}),
    ("attention", {"m": 20, "l": 40, "k": 256, "j": 256}), ("softcap_attention", {"m": 20, "l": 40, "k": 64, "j": 64})]
SEEN = {"causal_attention", "sliding_window_attention", "attn_sigmoid", *(name for name, _ in OTHERS)}
"""Operators whose kernels are run at sizes of their own."""


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), OTHERS)
def test_others_of_the_catalogue(name, sizes):
    made = kernel(name, "float16")
    is_right(made, sized(made, **sizes))


@needs_toolchain
@pytest.mark.parametrize(("operator", "sizes"), [("rmsnorm_gemm", {"m": 1, "l": 2999, "n": 64}), *slow(
    ("attn_dropout_bias", {"d": 64, "l": 1100, "v": 64}), (headed, {"g": 1, "h": 3, "m": 1, "l": 3001, "k": 64, "j": 64}),
    (segmented, {"h": 2, "m": 1, "l": 2001, "k": 64, "j": 64}))])
def test_few_rows_share_their_elements_between_blocks(operator, sizes):
    """Every array is read once, be it a matrix or one number per element, real or whole, by rows that share it too."""
    made = kernel(operator, "float16") if isinstance(operator, str) else made_up(operator)
    binding = sized(made, scale=0.1, **sizes)
    assert [chosen[0] for chosen, _, _ in made.file.plan(made.given(binding))[0]] == ["part", "join"]
    traffic, conflicts = wasted(made, binding, is_right(made, binding))
    assert conflicts <= 1.05 and traffic <= (1.02 if sizes["l"] > 2000 else 1.03)


def poisoned(made, **sizes):
    """Infinities and NaN in V, each of which some rows of a tile mask and others do not; weights of −0 are among those of `signed`."""
    binding = sized(made, scale=0.1, **sizes)
    for place, value in (((50, 5), np.nan), ((40, 1), np.inf), ((41, 1), -np.inf), ((66, 2), -np.inf)):
        binding.arrays["V"][place] = value
    return binding


@needs_toolchain
@pytest.mark.parametrize(("operator", "dtype"), [(signed, "float16"), *slow((signed, "float32"), (signed, "bfloat16"), (None, "float16"), (None, "float32"))])
def test_what_a_mask_leaves_out_is_never_seen(operator, dtype):
    made = made_up(operator, dtype) if operator else kernel("causal_attention", dtype)
    binding = poisoned(made, m=70, l=70, k=20, j=33)
    is_right(made, binding)


LEAKS = {
    "finite or not is not asked": (" = all_finite(", " = True or all_finite("),
    "one thread alone knows": ("cuda.syncthreads_and(i4(first + second == f4(0)))", "i4(first + second == f4(0))"),
    "half of a tile is looked at": ("for i in range(size // 16 // threads):", "for i in range(size // 32 // threads):"),
    "what a mask leaves out has the weight 0": ("f4(-0.0))", "f4(0.0))"),
    "a weight of −0 is taken for masked": (" + f4(0), f4(-0.0))", ", f4(-0.0))"),
    "what takes no part is multiplied": ("return weight != f4(0) or", "return weight == f4(0) or"),
    "the weight of a lane's neighbour": ("sel(k == i, p[0, k], first)", "sel(k == i, p[1, k], first)"),
}


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("fault", LEAKS)
def test_a_leak_is_found(fault):
    made = made_up(signed)
    assert is_found(made, *LEAKS[fault], poisoned(made, m=70, l=70, k=20, j=33))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("columns", [64, 128])
def test_float32_without_tensor_cores(columns):
    made = kernel("causal_attention", "float32")
    binding = sized(made, m=33, l=70, k=columns, j=columns)
    ran = is_right(made, binding)
    assert "local load" not in ran.counts.traffic and wasted(made, binding, ran)[1] <= 1.05


@needs_toolchain
@pytest.mark.slow
def test_bfloat16():
    made = kernel("causal_attention", "bfloat16")
    is_right(made, sized(made, m=33, l=70, k=64, j=64))


@needs_toolchain
@pytest.mark.slow
def test_one_instruction_in_eight_multiplies_matrices():
    made = kernel("attention", "float16")
    executed = is_right(made, sized(made, m=64, l=512, k=128, j=128), (Mode(),)).counts.warps
    assert sum(executed.values()) <= 8 * sum(count for opcode, count in executed.items() if opcode.startswith("mma."))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype", "architecture", "sizes"), [
    *(("causal_attention", "float16", each, {"m": 64, "l": 64, "k": 128, "j": 128}) for each in ("sm_80", "sm_90a")),
    ("attn_bwd_dq", "float32", "sm_90a", {"l": 1100, "d": 128, "v": 128}), ("double_layernorm", "float32", "sm_80", {"l": 8191})])
def test_nothing_spills(name, dtype, architecture, sizes):
    made = kernel(name, dtype)
    for binary, *_ in made.file.binaries(made.given(sized(made, **sizes)), architecture):
        assert binary.spilled == binary.stack == 0 and binary.shared <= 48 * 1024


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FUSABLE if name not in SEEN and any(len(axes) > 1 for axes in ra.operators[name].inputs.values())])
def test_every_other_operator_with_products_is_right_or_refused(name):
    if program(name) is None or not has_products(program(name)):
        pytest.skip("it multiplies no matrices")
    try:
        made = kernel(name, "float16")
    except LoweringError as error:
        assert error.remedy
        return
    if not made.printed.tiles:
        pytest.skip("threads multiply by themselves: see the tests of rows")
    axes = {axis for own in made.operator.inputs.values() for axis in own}
    assert run(made, sized(made, **{axis: 40 if axis == made.program.axis else 24 for axis in axes}))[1] <= limit(made)


# what is wrong: what is replaced, by what
FAULTS = {
    "sums with columns stay at the old pivot": ("t13 * o_s[r, i_j]\n", "o_s[r, i_j]\n"),
    "the sum stays at the old pivot": ("t7 * s2_old)\n", "s2_old)\n"),
    "fragments of the weights change places": ("a = pack(p[0, i], p[0, i + 1]), pack(p[1, i], p[1, i + 1]), pack(p[0, j], p[0, j + 1])",
                                                 "a = pack(p[0, i], p[0, i + 1]), pack(p[0, j], p[0, j + 1]), pack(p[1, i], p[1, i + 1])"),
    "fragments of the tile change places": ("b[2 * half], b[2 * half + 1], s[0, i]", "b[2 * half + 1], b[2 * half], s[0, i]"),
    "no barrier before a tile is read": ("wait_for_all_but_the_last()\n                cuda.syncthreads()", "wait_for_all_but_the_last()"),
    "no barrier before a tile is overwritten": ("                cuda.syncthreads()\n                t0, half", "                t0, half"),
    "a tile is not waited for": ("                wait_for_all_but_the_last()\n", ""),
    "no barrier before results are written out": ("    cuda.syncthreads()\n    for panel", "    for panel"),
    "rows beyond the last are read": ("sel(there & (row < rows), i4(16)", "sel(there, i4(16)"),
    "rows beyond the last are written": ("first, rows, columns = (span * SIZE + 127) // 128 * 128, i4(thread >> 3), i4(min(rows, height))",
                                         "first, rows, columns = (span * SIZE + 127) // 128 * 128, i4(thread >> 3), i4(height)"),
    "elements beyond the last take part": ("full | (at_l < n_l)", "full | (at_l < n_l + 1)"),
    "a tile that is cut by the mask is taken whole": ("if many == TILE and", "if many == TILE or"),
    "a tile too many is passed over": ("while ahead < end and not", "ahead = i4(ahead + TILE)\n                while ahead < end and not"),
    "a step of the shuffles is missing": ("larger_over(m2_it, 4)", "larger_over(m2_it, 2)"),
    "a row of the pair is the other one": ("row = i4((thread >> 5 << 4) + (thread >> 2 & 7) + 8 * r)", "row = i4((thread >> 5 << 4) + (thread >> 2 & 7) + 8 * (1 - r))"),
    "the other half of a row is read": ("i4(lane >> 3 & 1)", "i4(lane >> 4 & 1)"),
}
SPLIT_FAULTS = {
    "a part is left out": ("for part in range(parts):", "for part in range(parts - 1):"),
    "parts overlap": ("begin = i4(part * piece)", "begin = i4(part * (piece - TILE))"),
    "parts end early": ("end = i4(min(begin + piece, n_l))", "end = i4(min(begin + piece, n_l) - TILE)"),
    "parts are added at different pivots": ("o_s[r, i_j] = t10 * o_s[r, i_j] + t12 * b_s[i_j % 2]", "o_s[r, i_j] = o_s[r, i_j] + b_s[i_j % 2]"),
    "columns beyond the last are taken from parts": ("min(column, columns - 2)", "column"),
    "parts leave their states in one place": ("(item * n_m + first_m + 8 * r) * parts + part", "(item * n_m + first_m + 8 * r) * parts"),
}
FEW = {"elements beyond the last take part": 7}
"""Lengths at which a fault shows that does little among many elements."""

HERE = ("no barrier before a tile is overwritten",)


def is_found(made, old, new, binding):
    file = changed(made, old, new)
    for mode in (Mode(counts=False), Mode(together=False, counts=False, seed=5)):
        try:
            if not run(made, binding, mode, (), file)[1] <= limit(made):
                return True
        except PtxError:
            return True
    return False


@needs_toolchain
@pytest.mark.parametrize("fault", [fault if fault in HERE else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS])
def test_a_fault_is_found(fault):
    made = kernel("causal_attention", "float16")
    assert is_found(made, *FAULTS[fault], sized(made, m=155, l=FEW.get(fault, 150), k=64, j=64, scale=0.1))


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("fault", SPLIT_FAULTS)
def test_a_fault_of_parts_is_found(fault):
    made = kernel("attention", "float16")
    assert is_found(made, *SPLIT_FAULTS[fault], sized(made, m=5, l=1100, k=64, j=60, scale=0.1))
