"""Printed CPU kernels: the source, run as plain Python, means what the operator means; its text is Python and stable."""

import ast
import math
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowered import EXACT, inputs, parts, program, verdict

from redfuser_algebra.catalogue import operators
from redfuser_algebra.fused import fuse
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.operator import operator
from redfuser_algebra.lower.bounds_cpu import may_hold
from redfuser_algebra.lower.numba_cpu import print_cpu
from redfuser_algebra.lower.schedule import Machine, Schedule, default_schedule
from redfuser_algebra.lower.storage_cpu import Signature
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.run import cpu, kernels, threads
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.state import merge
from redfuser_algebra.run.tolerance import agree


def plain_module(text, name):
    """The module as plain Python: what only a compiler understands (intrinsics, bits of a float) is NumPy's instead."""
    def as_it_is(*given, **flags):
        return given[0] if given and callable(given[0]) else lambda function: function

    _, _, body = text.partition("inf, nan = np.inf, np.nan\n")
    names = {"math": math, "np": np, "njit": as_it_is, "intrinsic": as_it_is, "prange": range, "ir": None, "inf": np.inf, "nan": np.nan,
             "f4": np.float32, "f8": np.float64, "i4": np.int32, "i8": np.int64, "b1": np.bool_}
    exec(compile(body, name, "exec"), names)
    names |= {"larger": np.maximum, "smaller": np.minimum, "exp4": np.exp, "exp8": np.exp, "wide_vectors": lambda: None}
    return types.SimpleNamespace(**names)


@pytest.fixture
def interpreted_kernels(monkeypatch):
    monkeypatch.setattr(kernels, "load", plain_module)
    monkeypatch.setattr(kernels, "_kernels", {})


def check(name, arrays, dtype, schedule):
    fused = verdict(name).fused
    arrays = {key: value.astype(dtype) if getattr(value, "dtype", None) == np.float64 else value for key, value in arrays.items()}
    binding = operators[name].bind(**arrays)
    with np.errstate(all="ignore"):
        got = cpu.run_cpu(fused.operator, fused.form, binding, schedule)
        expected = parts(reference(operators[name], binding))
    assert got is not None, "there is no kernel"
    for place, (a, b) in enumerate(zip(parts(got), expected, strict=True)):
        assert agree(a, b, dtype, scale=10.0), (name, place, a, b)


@pytest.mark.parametrize("name", EXACT)
def test_a_kernel_means_what_the_operator_means(name, interpreted_kernels):
    if program(name) is None:
        pytest.skip("the search finds no form")
    for dtype, length in (("float64", 3), ("float64", 31), ("float32", 31)):
        if length >= operators.entry(name).shortest:
            check(name, inputs(name, length), dtype, Schedule(7, 2, 2))


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "absmax_scaled_sum", "argmax_argmin", "count_max", "softmax_entropy"])
def test_special_values(name, special, interpreted_kernels):
    arrays = inputs(name, 12)
    arrays["x"][:5] = special
    check(name, arrays, "float64", Schedule(5))
    arrays["x"][:] = special
    check(name, arrays, "float64", Schedule(5))


def test_without_matrix_products_there_are_loops(interpreted_kernels, monkeypatch):
    monkeypatch.setattr(cpu, "_blas_is_there", lambda: False)
    check("attention", inputs("attention", 20), "float64", Schedule(7, 2, 2))
    assert "np.dot" not in print_cpu(program("attention"), Signature(dict.fromkeys("QKV", "f4"), {"scale": "f8"}, blas=False)).text


def test_a_value_that_a_mask_leaves_out_does_not_leak(interpreted_kernels, rng):
    arrays = {"Q": rng.normal(size=(3, 5, 4)), "K": rng.normal(size=(3, 9, 4)), "V": rng.normal(size=(3, 9, 2)),
              "lengths": np.array([0, 4, 9])}
    arrays["K"][1, 4:], arrays["V"][1, 4:] = np.nan, np.inf
    check("padded_attention", arrays, "float64", Schedule(3, 2, 2))


def test_names_that_kernels_use_themselves_are_free_for_operators(interpreted_kernels):
    @operator
    def clash(n: "b l", b_x: "l", t1: "", item: float = 2.0):
        return ra.sum(n * b_x, "l") * t1 + item

    fused = fuse(clash)
    binding = clash.bind(np.ones((2, 3)), np.arange(3.0), 5.0)
    assert list(cpu.run_cpu(clash, fused.form, binding)) == [17.0, 17.0]


def test_printing_twice_gives_the_same_text():
    signature = Signature({"x": "f4"}, {})
    text = print_cpu(program("softmax_entropy"), signature).text
    assert text == print_cpu(program("softmax_entropy"), signature).text
    ast.parse(text)


def test_no_flag_changes_what_infinity_and_nan_mean():
    text = print_cpu(program("softmax_entropy"), Signature({"x": "f4"}, {})).text
    flags = [ast.literal_eval(word.value) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
             for decorator in node.decorator_list if isinstance(decorator, ast.Call) for word in decorator.keywords if word.arg == "fastmath"]
    assert flags and set().union(*flags) <= {"reassoc", "contract", "arcp", "nsz", "afn"}
    exponential = text[text.index("def exp4") - 100:text.index("def exp4")]
    assert "reassoc" not in exponential


@pytest.mark.parametrize("wrong", [{"tile": 0}, {"tile": 64, "block": -1}, {"tile": 64, "threads": 1.5}])
def test_a_schedule_without_elements_is_refused(wrong):
    with pytest.raises(LoweringError, match="whole number of at least 1"):
        Schedule(**wrong)


def test_schedules_fit_their_caches():
    machine = Machine(32 * 1024, 1024 * 1024, 4)
    rows = default_schedule(program("softmax"), {"l": 8192}, 4096, 4, machine)
    assert rows.block == 1 and rows.threads == 4 and 256 <= rows.tile * 4 <= machine.first
    blocks = default_schedule(program("attention"), {"m": 1024, "k": 64, "l": 1024, "j": 64}, 8, 4, machine)
    assert blocks.block * blocks.tile * 4 <= machine.second and blocks.block > 1
    assert default_schedule(program("softmax"), {"l": 5}, 1, 4, machine) == Schedule(5, 1, 1)


@given(st.integers(-9, 9), st.integers(0, 8), st.integers(1, 5), st.integers(0, 8), st.integers(1, 4), st.sampled_from([
    "index(l) <= index(m) + w", "abs(index(l) - index(m)) <= w", "(index(l) > w) & (index(l) < index(m))", "index(l) == index(m) - w",
    "(index(l) >= 4) | (-index(m) > w)"]))
def test_a_tile_is_passed_over_only_where_its_mask_holds_nowhere(w, t0, n, i0, nb, mask):
    expr = parse_operator(f"masked(Q[m], K[l]; w): sum(Q * K, l, where={mask})").outputs[0].mask
    bounds = {"index l": ("t0", "(t0 + n - 1)"), "index m": ("i0", "(i0 + nb - 1)"), "param w": ("w", "w")}
    condition = may_hold(expr, lambda leaf: bounds[f"{leaf.op} {leaf.attrs[0]}"])
    l, m = np.arange(t0, t0 + n)[:, None], np.arange(i0, i0 + nb)
    holds = {"index(l)": "l", "index(m)": "m"}
    written = mask
    for long, short in holds.items():
        written = written.replace(long, short)
    values = {"l": l, "m": m, "w": w, "t0": t0, "n": n, "i0": i0, "nb": nb, "abs": np.abs, "max": max}
    if np.any(eval(written, values)):
        assert eval(condition, values)


def test_causal_tiles_above_the_diagonal_are_passed_over():
    text = print_cpu(program("causal_attention"), Signature(dict.fromkeys("QKV", "f4"), {"scale": "f8", "offset": "i8"})).text
    assert "if not ((t0 <= ((i0 + nb - 1) + offset))):\n                continue" in text


@pytest.mark.parametrize("name", ["kurtosis", "covariance", "count_max", "argmax_argmin", "moment_of_inertia", "attn_tree_mask", "topk_mean_fixed"])
def test_parts_of_one_long_row_are_merged(name, interpreted_kernels, monkeypatch):
    monkeypatch.setattr(cpu, "LONG", 8)
    monkeypatch.setattr(cpu, "MOST_THREADS", 3)
    monkeypatch.setattr(threads, "_pools", {})
    monkeypatch.setattr(threads, "MOST_THREADS", 3)
    merged = []
    monkeypatch.setattr(cpu, "merge", lambda *given: merged.append(1) or merge(*given))
    check(name, inputs(name, 31), "float64", Schedule(4))
    assert len(merged) == 2
