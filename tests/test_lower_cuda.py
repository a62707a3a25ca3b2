"""Printed CUDA kernels: the text is stable Python; executed without a GPU they mean what the operator means, and waste nothing."""

import ast
import builtins
import re
import types

import numpy as np
import pytest
from cuda_kernels import drawn_case, kernel, limit, needs_toolchain, run
from lowered import FUSABLE, ORDERED, program, verdict

import redfuser_algebra as ra
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.numba_cuda import print_cuda
from redfuser_algebra.ptx.machine import Mode
from redfuser_algebra.run.audit import case
from redfuser_algebra.run.cuda import made_cuda
from redfuser_algebra.run.export import draws, exported_cuda

SOME = ("softmax", "variance", "cross_entropy", "argmax_argmin", "softmax_entropy", "layernorm", "covariance", "count_max", "topk_mean_fixed", "moment_of_inertia")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_printing_twice_gives_the_same_python(dtype):
    for name in SOME:
        made = kernel(name, dtype)
        assert print_cuda(made.program, made.signature, dtype).text == made.source
        tree = ast.parse(made.source)
        assert {"plan", "launch", "make", "fold", "combine", "finish"} <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_flag_lets_the_compiler_change_what_infinity_and_nan_mean():
    assert "fastmath" not in kernel("softmax").source


def test_an_exported_file_needs_numpy_and_numba_cuda_only_and_defines_no_name_twice():
    for name, dtype in (*((name, "float32") for name in SOME), ("softmax", "bfloat16"), ("causal_attention", "float16")):
        tree = ast.parse(exported_cuda(kernel(name, dtype), 64 * "0"))
        modules = {alias.name if isinstance(node, ast.Import) else node.module for node in tree.body
                   if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
        assert {each.partition(".")[0] for each in modules} <= {"functools", "math", "sys", "numpy", "numba", "llvmlite"}
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        defined += [target.id for node in tree.body if isinstance(node, ast.Assign) for each in node.targets for target in ast.walk(each) if isinstance(target, ast.Name)]
        assert len(set(defined)) == len(defined)
        assert f"{name}: one pass over" in ast.get_docstring(tree)


def test_wrong_doors_are_named():
    fused = verdict("softmax").fused
    with pytest.raises(OperatorError, match="choose one of float32"):
        fused.kernel("cuda", dtype="int7")
    with pytest.raises(OperatorError, match="choose one of sm_80"):
        fused.kernel("cuda", arch="sm_1")
    with pytest.raises(OperatorError, match="there is no GPU|is not installed"):
        fused(np.zeros(3, np.float32), backend="cuda")


def on_device(address, length):
    """What says that it is one row of float32 on a GPU."""
    return types.SimpleNamespace(__cuda_array_interface__={"shape": (1, length), "typestr": "<f4", "data": (address, False), "version": 3})


@needs_toolchain
def test_an_exported_file_says_that_there_is_no_gpu_and_plans_without_one(tmp_path, capsys):
    from numba import cuda

    path = ra.fuse(ra.operators["cross_entropy"]).export(tmp_path / "k.py", target="cuda", certificate="ab" * 32)
    names = {"__name__": "exported"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    x, label = np.zeros((2, 5, 700), np.float32), np.zeros((2, 5), np.int64)
    launches, arguments, held, shapes = names["plan"](x, label)
    assert (launches, set(held), shapes) == ([((4, "whole"), 10, 128)], {10}, [(2, 5)]) and len(arguments) == 9
    assert names["plan"](on_device(4, 2**31 - 2**16), label[0, :1])[3] == [(1,)]
    assert names["plan"](x[:, :, :512].copy(), label[0])[0] == [((1, "whole"), 2, 256)]
    assert names["plan"](np.zeros((5, 1 << 20), np.float32), label[0])[0] == [((8, "part"), 5 * 128, 256), ((8, "join"), 5, 256)]
    for wrong, said in ((x.astype("f8"), "convert it"), (x[..., ::2], "contiguous"), (x[:, :3].copy(), "lengths must agree"), (x[0, 0], "it needs the axes"),
                        (on_device(2, 9), "multiples of 4 bytes"), (on_device(0, 2**31 - 2**16 + 1), "from 1 to 2")):
        with pytest.raises((ValueError, TypeError), match=said):
            names["plan"](wrong, label)
    if not cuda.is_available():
        assert names["main"]() == 1 and "no GPU here" in capsys.readouterr().out
        with pytest.raises(OperatorError, match="there is no GPU"):
            kernel("softmax")(np.zeros(3, np.float32))


@needs_toolchain
@pytest.mark.parametrize("name", [*SOME[:4], "max_subarray", "iir_biquad", "lindley_total_wait", *(pytest.param(name, marks=pytest.mark.slow) for name in (
    *SOME[4:], "boyer_moore_majority", "attn_forgetting", "log_cumulative_sum_exp"))])
def test_ragged_lengths(name):
    made = kernel(name)
    for length in (1, 3, 31, 255):
        if length >= ra.operators.entry(name).shortest:
            ran, error = run(made, drawn_case(made, length))
            shared = [t for kind, t in ran.counts.traffic.items() if kind.startswith("shared")]
            assert error <= limit(made) and sum(t.moved for t in shared) <= 1.05 * sum(t.least for t in shared), (length, error)
    assert all(binary.spilled == binary.stack == 0 for binary, _ in ran.binaries)


@needs_toolchain
@pytest.mark.parametrize(("name", "dtype"), [
    ("softmax", "float32"), ("softmax_entropy", "float16"), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (
        ("softmax", "bfloat16"), ("variance", "float32"), ("variance", "float64"), ("batchnorm_train", "float16")))])
def test_long_rows_are_right_in_any_order_of_warps_and_move_no_byte_twice(name, dtype):
    made = kernel(name, dtype)
    for length in (8191, 8192):
        binding = drawn_case(made, length)
        ran, error = run(made, binding)
        moved = sum(t.moved for kind, t in ran.counts.traffic.items() if kind.startswith("global"))
        ideal = sum(a.nbytes for a in (*made.given(binding), *ran.outputs) if isinstance(a, np.ndarray))
        shared = [t for kind, t in ran.counts.traffic.items() if kind.startswith("shared")]
        assert error <= limit(made) and moved <= 1.02 * ideal and sum(t.moved for t in shared) <= 1.05 * sum(t.least for t in shared)
        assert "local load" not in ran.counts.traffic
    _, error = run(made, binding, Mode(together=False, rough=True, counts=False, seed=1))
    assert error <= limit(made)


@needs_toolchain
@pytest.mark.parametrize("name", ["kurtosis", *(pytest.param(name, marks=pytest.mark.slow) for name in ("logsumexp", "argmax_argmin", "cross_entropy", "max_subarray"))])
def test_few_long_rows_are_shared_by_blocks(name):
    """8 parts of 65,550 elements; 9 parts of 73,800, of which the last is short."""
    made = kernel(name)
    for length in (65_550, 73_800):
        binding = drawn_case(made, length)
        assert [chosen[:2] for chosen, _, _ in made.file.plan(made.given(binding))[0]] == [(8, "part"), (8, "join")]
        ran, error = run(made, binding)
        moved = sum(t.moved for kind, t in ran.counts.traffic.items() if kind.startswith("global"))
        assert error <= limit(made) and moved <= 1.02 * sum(a.nbytes for a in made.given(binding) if isinstance(a, np.ndarray))


@needs_toolchain
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_arrays_may_begin_anywhere(shift):
    made = kernel("layernorm")
    _, error = run(made, drawn_case(made, 77), shifts=(shift, 0, 3))
    assert error <= limit(made)


@needs_toolchain
def test_truth_values_come_in_vectors_where_rows_are_aligned():
    @ra.operator
    def kept(x: "l", k: "l"):
        return ra.sum(x, "l", where=k)

    made = made_cuda(kept, ra.fuse(kept).form)
    assert made.signature.arrays["k"] == "b1"
    for length, shifts in ((703, (1,)), (8192, ())):
        binding = case(made, draws(kept), length, 0)
        ran, error = run(made, binding, shifts=shifts)
        moved = sum(t.moved for kind, t in ran.counts.traffic.items() if kind.startswith("global"))
        ideal = sum(a.nbytes for a in (*made.given(binding), *ran.outputs) if isinstance(a, np.ndarray))
        assert error <= limit(made) and (shifts or moved <= 1.02 * ideal)


@needs_toolchain
@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan, 0.0])
def test_special_values(special):
    for name in ("softmax", "softmax_entropy", "argmax_argmin", "count_max"):
        made = kernel(name)
        x = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32).astype(np.float64)
        x[0, :13], x[1] = special, special
        binding = made.operator.bind(x=x)
        assert run(made, binding)[1] <= limit(made), (name, special)


@needs_toolchain
def test_a_large_mean_does_not_spoil_the_variance():
    made = kernel("variance")
    x = (np.random.default_rng(0).normal(size=(2, 5000)) + 1e4).astype(np.float32).astype(np.float64)
    assert run(made, made.operator.bind(x=x))[1] <= 1e-6


@needs_toolchain
def test_names_that_kernels_use_themselves_are_free_for_operators():
    @ra.operator
    def clash(thread: "row l", at: "l", items: "", seen: float = 2.0):
        return ra.sum(thread * at, "l") * items + seen

    fused = ra.fuse(clash)
    made = made_cuda(clash, fused.form)
    binding = clash.bind(np.ones((2, 3)), np.arange(3.0), np.array(5.0))
    assert run(made, binding)[1] <= 1e-6


@needs_toolchain
def test_an_operator_that_the_catalogue_does_not_have():
    @ra.operator
    def gated(x: "l", g: "l"):
        m = ra.max(ra.tanh(x) * 3, "l", where=g > 0)
        e = ra.exp(ra.tanh(x) * 3 - m)
        return ra.sum(e * e * g, "l", where=g > 0) / ra.sum(e, "l", where=g > 0)

    fused = ra.fuse(gated)
    made = made_cuda(gated, fused.form)
    rng = np.random.default_rng(0)
    for length in (5, 200):
        binding = gated.bind(rng.normal(size=(3, length)).astype("f4").astype("f8"), rng.normal(size=(3, length)).astype("f4").astype("f8"))
        assert run(made, binding)[1] <= 1e-5


@needs_toolchain
@pytest.mark.slow
@pytest.mark.parametrize("name", (*FUSABLE, *ORDERED))
def test_every_operator_has_a_right_kernel(name):
    if program(name) is None:
        pytest.skip("the search finds no form")
    made = kernel(name)
    if made.printed.tiles:
        pytest.skip("see the tests of kernels with matrix products")
    for length in (31, 200):
        ran, error = run(made, drawn_case(made, length))
        assert error <= limit(made) and all(binary.spilled == 0 for binary, _ in ran.binaries), (length, error)


def test_registers_hold_what_a_thread_has_of_its_row():
    for name in ("softmax", "variance", "kurtosis"):
        assert len(re.findall("cuda.local.array", kernel(name).source)) == 3 + bool(program(name).maps)


@needs_toolchain
@pytest.mark.parametrize("text", ["f({0}[aa ee], {1}[ee]; {2}=1): sum(exp({0} - max({0}, ee)) * {1}, ee) * {2}",
                                  "f({0}[aa cc], {1}[ee cc], {2}[ee gg]): sum(exp(sum({0} * {1}, cc) - max(sum({0} * {1}, cc), ee)) * {2}, ee)"], ids=["rows", "tiles"])
def test_inputs_may_have_any_name_that_the_module_uses(text):
    """Three at a time take names that occur in the module itself; its plan stays what it was."""
    def planned(*names):
        fused = ra.fuse(parse_operator(text.format(*names)))
        made = made_cuda(fused.operator, fused.form, "float16")
        launches, _, *more = made.file.names["plan"](*made.given(case(made, dict.fromkeys(fused.operator.inputs, "normal"), 5, 0)))
        return made.source, repr((launches, more))

    source, wanted = planned("first_one", "second_one", "third_one")
    found = sorted({node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and not hasattr(builtins, node.id)} - {"inf", "nan"})
    for at in range(0, len(found) - 2, 3):
        assert planned(*found[at:at + 3])[1] == wanted, found[at:at + 3]
