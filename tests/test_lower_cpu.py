"""Printed CPU kernels: the source, run as plain Python, means what the operator means; its text is Python and stable."""

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowered import EXACT, inputs, parts, plain_module, program, verdict

from redfuser_algebra.catalogue import operators
from redfuser_algebra.fused import fuse
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.operator import operator
from redfuser_algebra.lower.bounds import may_hold, must_hold
from redfuser_algebra.lower.cost import default_schedule, estimate, work_of
from redfuser_algebra.lower.numba_cpu import print_cpu
from redfuser_algebra.lower.schedule import LEVELS, Machine, Schedule, levels
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.run import cpu, kernels
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.state import merge
from redfuser_algebra.run.tolerance import agree


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
def test_a_kernel_means_what_the_operator_means(name, plain_kernels):
    if program(name) is None:
        pytest.skip("the search finds no form")
    for dtype, length in (("float64", 3), ("float64", 31), ("float32", 31)):
        if length >= operators.entry(name).shortest:
            check(name, inputs(name, length), dtype, Schedule(7, 2, 2))


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "absmax_scaled_sum", "argmax_argmin", "count_max", "softmax_entropy"])
def test_special_values(name, special, plain_kernels):
    arrays = inputs(name, 12)
    arrays["x"][:5] = special
    check(name, arrays, "float64", Schedule(5))
    arrays["x"][:] = special
    check(name, arrays, "float64", Schedule(5))


@pytest.mark.parametrize("name, want", [("variance", 0.0), ("correlation", np.nan), ("skewness", np.nan)])
def test_a_constant_column_of_float64_has_no_spread(name, want, plain_kernels):
    """0.1 · 7 / 7 is not 0.1, and squares about that are not 0."""
    fused = verdict(name).fused
    for value, length in ((0.1, 7), (5.81, 7), (1e8 / 3, 40)):
        binding = operators[name].bind(**dict.fromkeys(fused.operator.inputs, np.full(length, value)))
        for schedule in (Schedule(64), Schedule(3), Schedule(3, 1, 2, 2)):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(parts(cpu.run_cpu(fused.operator, fused.form, binding, schedule))[-1], want)


def test_a_value_that_a_mask_leaves_out_does_not_leak(plain_kernels, rng):
    arrays = {"Q": rng.normal(size=(3, 5, 4)), "K": rng.normal(size=(3, 9, 4)), "V": rng.normal(size=(3, 9, 2)),
              "lengths": np.array([0, 4, 9])}
    arrays["K"][1, 4:], arrays["V"][1, 4:] = np.nan, np.inf
    check("padded_attention", arrays, "float64", Schedule(3, 2, 2))


def test_names_that_kernels_use_themselves_are_free_for_operators(plain_kernels):
    @operator
    def clash(n: "b l", b_x: "l", t1: "", item: float = 2.0):
        return ra.sum(n * b_x, "l") * t1 + item

    fused = fuse(clash)
    binding = clash.bind(np.ones((2, 3)), np.arange(3.0), 5.0)
    assert list(cpu.run_cpu(clash, fused.form, binding)) == [17.0, 17.0]


def test_a_sum_with_one_element_reads_that_alone(plain_kernels):
    """At the edges of tiles, and where no element is meant; what lies elsewhere does not leak, be it NaN."""
    @operator
    def chosen(x: "l", at: "m"):
        return ra.sum(ra.where(ra.index("l") == at, x, 0.0), "l")

    fused, x, at = fuse(chosen), np.arange(1.0, 101.0, dtype=np.float32), np.array([0, 63, 64, 99, 50, 100, -1])
    for hole in (50, 63):
        binding = chosen.bind(np.where(np.arange(100) == hole, np.float32(np.nan), x), at)
        got = cpu.run_cpu(chosen, fused.form, binding, Schedule(64))
        assert np.array_equal(got, reference(chosen, binding), equal_nan=True)
    made = kernels.kernel_for(chosen, fused.form, cpu.signature_of(binding)).source.text
    assert "pick_" in made and "fold_" not in made, "one element is summed in a loop"


def test_a_sum_over_columns_with_one_element_reads_that_alone(plain_kernels):
    """Also through another sum, and where there is no such column; what lies elsewhere does not leak, be it NaN."""
    @operator
    def columns(X: "l c", Y: "l d"):
        s, t = ra.sum(X, "l"), ra.sum(Y, "l")
        column = lambda value, axis, place: ra.sum(ra.where(ra.index(axis) == place, value, 0.0), axis)
        return column(s, "c", 1), column(s, "c", 9), column(column(s * t, "c", 0), "d", 2), ra.sum(ra.where(ra.index("c") < 2, s, 0.0), "c")

    fused, X, Y = fuse(columns), np.arange(12.0).reshape(4, 3), np.arange(16.0).reshape(4, 4)
    X[:, 2] = Y[:, 3] = np.nan
    binding = columns.bind(X, Y)
    assert list(cpu.run_cpu(columns, fused.form, binding)) == list(reference(columns, binding)) == [22.0, 0.0, 18.0 * 32.0, 40.0]
    made = kernels.kernel_for(columns, fused.form, cpu.signature_of(binding)).source.text
    assert made.count("if 9 < n_c:") == 1 and "== 9" not in made and "i_c < 2" in made


def test_printing_twice_gives_the_same_text():
    signature = Signature({"x": "f4"}, {})
    text = print_cpu(program("softmax_entropy"), signature).text
    assert text == print_cpu(program("softmax_entropy"), signature).text
    ast.parse(text)


def test_no_flag_changes_what_infinity_and_nan_mean():
    text = print_cpu(program("softmax_entropy"), Signature({"x": "f4"}, {})).text
    allowed = {"reassoc", "contract", "arcp", "nsz"}
    flags = [set(re.findall(r'"(\w+)"', each)) for each in re.findall(r'fastmath"?[=:] *([{(][^})]*[})])', text)]
    assert len(flags) == text.count("fastmath") and set().union(*flags) == allowed
    exponential = text[text.index("EXACT ="):]
    exponential = exponential[:exponential.index("@njit")]
    assert 'EXACT = ("contract",)' in exponential, "rounding by a large number may not be reordered away"
    assert exponential.count("flags=EXACT") == len(re.findall(r"builder\.f(?:add|sub|mul)\(", exponential)) > 0


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
    assert all(default_schedule(program("softmax"), {"l": 8192}, rows, 4, machine).threads <= rows for rows in (1, 2, 3))


@given(st.integers(-9, 9) | st.just(math.nan), st.integers(0, 8), st.integers(1, 5), st.integers(0, 8), st.integers(1, 4), st.sampled_from([
    "index(l) <= index(m) + w", "abs(index(l) - index(m)) <= w", "(index(l) > w) & (index(l) < index(m))", "index(l) == index(m) - w",
    "(index(l) >= 4) | (-index(m) > w)", "~(index(l) > w)", "~((index(l) <= index(m) + w) & (index(l) >= 2))", "~(abs(index(l) - index(m)) > w)", "abs(index(l) - w) >= 0"]))
def test_a_mask_holds_somewhere_or_everywhere_in_a_tile_only_as_told(w, t0, n, i0, nb, mask):
    expr = parse_operator(f"masked(Q[m], K[l]; w): sum(Q * K, l, where={mask})").outputs[0].mask
    bounds = {"index l": ("t0", "(t0 + n - 1)"), "index m": ("i0", "(i0 + nb - 1)"), "param w": ("w", "w")}
    somewhere, everywhere = (rule(expr, lambda leaf: bounds[f"{leaf.op} {leaf.attrs[0]}"]) for rule in (may_hold, must_hold))
    l, m = np.arange(t0, t0 + n)[:, None], np.arange(i0, i0 + nb)
    holds = {"index(l)": "l", "index(m)": "m"}
    written = mask
    for long, short in holds.items():
        written = written.replace(long, short)
    values = {"l": l, "m": m, "w": w, "t0": t0, "n": n, "i0": i0, "nb": nb, "abs": np.abs, "max": max}
    if np.any(eval(written, values)):
        assert eval(somewhere, values)
    if everywhere and eval(everywhere, values):
        assert np.all(eval(written, values))


def test_causal_tiles_above_the_diagonal_are_passed_over():
    text = print_cpu(program("causal_attention"), Signature(dict.fromkeys("QKV", "f4"), {"scale": "f8", "offset": "i8"})).text
    assert "if not ((t0 <= ((i0 + nb - 1) + offset))):\n                continue" in text
    whole = text[text.index("if ((t0 + n - 1) <= (i0 + offset)):"):]
    assert whole.index("multiply(P1, V_tile") < whole.index("else:") < whole.index("product(P1, M1, V_tile")


SPLIT = ["kurtosis", "covariance", "count_max", "argmax_argmin", "moment_of_inertia", "attn_tree_mask", "topk_mean_fixed", "attention", "padded_attention", "linear_regression"]


@pytest.mark.parametrize("name", SPLIT)
def test_parts_of_the_axis_are_merged(name, plain_kernels, monkeypatch):
    merged = []
    monkeypatch.setattr("redfuser_algebra.run.plan.merge", lambda *given: merged.append(1) or merge(*given))
    check(name, inputs(name, 31), "float64", Schedule(4, 2 if program(name).block else 1, parts=3))
    assert len(merged) == (0 if next(iter(kernels._kernels.values())).source.joins else 2), "parts are joined by the kernel where it can"


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("name", ["softmax_entropy", "kl_softmax", "kurtosis"])
def test_a_part_of_special_values_joins_the_others(name, special, plain_kernels):
    for part in (slice(0, 13), slice(12, 25), slice(36, 37)):
        arrays = inputs(name, 37)
        arrays["x"][..., part] = special
        check(name, arrays, "float64", Schedule(4, parts=3))


@pytest.mark.parametrize("name", ["variance", "softmax_entropy", "attention", "softmax", "argmax_argmin", "absmax_scaled_sum"])
def test_every_level_means_the_same(name, plain_kernels):
    found = levels(program(name), Schedule(8, 2 if program(name).block else 1, 2), 31, 3)
    assert list(found) == list(LEVELS[:2] if program(name).maps else LEVELS)
    for schedule in found.values():
        check(name, inputs(name, 31), "float64", schedule)


@pytest.mark.parametrize(("name", "schedule", "said"), [
    ("softmax", Schedule(8, parts=2), "written in a second sweep"),
    ("variance", Schedule(8, parts=40), "it has 31 elements")])
def test_a_schedule_that_a_program_cannot_follow_is_refused(name, schedule, said, plain_kernels):
    with pytest.raises(LoweringError, match=said):
        check(name, inputs(name, 31), "float64", schedule)


def test_the_cost_model_knows_what_is_slower():
    machine, sizes = Machine(48 * 1024, 2 * 1024 * 1024, 2), {"l": 8192}
    cost = lambda name, schedule, batch, sizes: estimate(work_of(program(name), sizes, batch, 4), schedule, sizes.get(program(name).block, 1), 4, machine)
    for name in ("variance", "softmax", "softmax_entropy"):
        best = default_schedule(program(name), sizes, 4096, 4, machine)
        assert best.threads == 2 and best.parts == 1 and best.tile > 64
        assert cost(name, Schedule(1, 1, 2), 4096, sizes) > 3 * cost(name, best, 4096, sizes) < cost(name, Schedule(best.tile), 4096, sizes) * 2
    one_row = default_schedule(program("kurtosis"), {"l": 10**7}, 1, 4, machine)
    assert one_row.parts == 2 and default_schedule(program("kurtosis"), {"l": 100}, 1, 4, machine).parts == 1
    decoding = default_schedule(program("attention"), {"m": 1, "k": 64, "l": 32768, "j": 64}, 1, 4, machine)
    assert decoding.parts == 2 and decoding.block == 1
    gemm, small = dict.fromkeys("mn", 1024) | {"l": 4096}, Machine(32 * 1024, 512 * 1024, 2)
    best = default_schedule(program("rmsnorm_gemm"), gemm, 1, 4, small)
    assert (best.tile, best.block) == (512, 256), "right factors move again for each block, sums for each tile"
    for each in (Schedule(128, 256, 2), Schedule(4096, 256, 2)):
        times = [estimate(work_of(program("rmsnorm_gemm"), gemm, 1, 4), schedule, 1024, 4, small) for schedule in (each, best)]
        assert times[0] > 1.1 * times[1]


@pytest.mark.parametrize("name", ["variance", "logsumexp", "kurtosis", "covariance"])
def test_where_short_tiles_slow_memory_down_they_span_four_pages(name):
    tile = lambda spread: default_schedule(program(name), {"l": 8192}, 4096, 4, Machine(32 * 1024, 512 * 1024, 2, spread)).tile
    assert tile(0) * 4 * len(program(name).inputs) < 16384 <= tile(16384) * 4 * len(program(name).inputs)


@pytest.mark.parametrize(("vendor", "spread"), [("AuthenticAMD", 16384), ("GenuineIntel", 0)])
def test_a_computer_tells_whether_short_tiles_slow_it_down(vendor, spread, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path, **_: f"vendor_id : {vendor}")
    assert cpu.machine.__wrapped__().spread == spread


@pytest.mark.parametrize("name", ["moment_of_inertia", "center_of_mass_inertia", "attention", "farthest_from_centroid_2d", "barlow_twins", "moe_routing"])
def test_loops_over_short_columns_are_written_out(name, plain_kernels, monkeypatch):
    if program(name) is None:
        pytest.skip("the search finds no form")
    monkeypatch.setattr(kernels, "MANY", 8)
    check(name, inputs(name, 31), "float64", Schedule(7, 2 if program(name).block else 1))
    made = [each for each in kernels._kernels.values() if each and each.signature.sizes]
    for each in made:
        for axis, length in each.signature.sizes.items():
            assert length <= kernels.SHORT and f"range(n_{axis})" not in each.source.text
    assert made or name in ("barlow_twins", "moe_routing")


def test_a_kernel_for_three_columns_refuses_four():
    text = print_cpu(program("moment_of_inertia"), Signature({"m": "f8", "r": "f8"}, {}, sizes={"c": 3})).text
    with pytest.raises(ValueError, match="another number of columns"):
        plain_module(text, "inertia").sweep(0, 1, 4, 1, np.arange(1), np.ones((1, 8)), np.arange(1), np.ones((1, 8, 4)), 8, 4, np.empty(1))
