"""Tile programs: every fused form becomes loops that mean what the operator means, and broken loops are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowered import EXACT, inputs, interpreted, parts, program

from redfuser_algebra.catalogue import operators
from redfuser_algebra.lower.marks import marked, taken_from_outside, unmarked
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.tolerance import agree


def check(name, arrays, tile):
    operator = operators[name]
    binding = operator.bind(**arrays)
    with np.errstate(all="ignore"):
        expected = parts(reference(operator, binding))
    got = interpreted(program(name), operator, binding, tile)
    assert len(got) == len(expected)
    for place, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert agree(a, b, "float64", scale=10.0), (name, place, a, b)


@pytest.mark.parametrize("name", EXACT)
def test_the_loops_mean_what_the_operator_means(name):
    if program(name) is None:
        pytest.skip("the search finds no form")
    for length in (1, 3, 7, 40):
        if length >= operators.entry(name).shortest:
            check(name, inputs(name, length), tile=7)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**32))
def test_any_tile_gives_the_same(length, tile, seed):
    for name in ("softmax", "kurtosis", "count_max"):
        check(name, inputs(name, length, seed), tile)


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "absmax_scaled_sum", "argmax_argmin", "count_max"])
def test_special_values_in_a_tile_of_their_own(name, special):
    arrays = inputs(name, 12)
    arrays["x"][:5] = special
    check(name, arrays, tile=5)
    arrays["x"][:] = special
    check(name, arrays, tile=5)


def test_batch_dimensions_broadcast(rng):
    check("attention", {"Q": rng.normal(size=(2, 1, 3, 4)), "K": rng.normal(size=(5, 9, 4)), "V": rng.normal(size=(9, 2))}, 4)


def test_what_a_mask_leaves_out_is_not_seen(rng):
    arrays = {"Q": rng.normal(size=(3, 2, 4)), "K": rng.normal(size=(3, 9, 4)), "V": rng.normal(size=(3, 9, 2)),
              "lengths": np.array([0, 4, 9])}
    arrays["K"][1, 4:], arrays["V"][1, 4:] = np.nan, np.inf
    check("padded_attention", arrays, tile=3)


def test_rows_blocks_and_products_of_attention():
    made = program("attention")
    assert made.rows == ("m",) and made.block == "m"
    assert [p.contraction.axis for p in made.producers] == ["k"]
    assert [u.name for u in made.updates if u.contraction] == ["s"]
    assert [[u.name for u in stage] for stage in made.stages] == [["m2"], ["s", "s2"]]


def test_an_axis_behind_the_reduced_one_is_a_column():
    assert program("barlow_twins").rows == () and program("cross_entropy").rows == ("m",)


def test_a_program_prints_its_loops():
    assert str(program("softmax")) == "\n".join([
        "softmax: rows […]",
        "for tile of l:",
        "  m[] max= x[l]",
        "  rebase s = scale(exp(shift(anchor(m), anchor(m'))), s)",
        "  s[] Σ= exp(shift(x[l], anchor(m)))",
        "then:",
        "  for l again: out0[l] = exp(x[l] - m) / s"])


@pytest.mark.parametrize(("broken", "said"), [
    (lambda p: replace(p, stages=p.stages[::-1]), "s reads m before it is there"),
    (lambda p: replace(p, stages=p.stages[:1]), "an output reads s before it is there"),
    (lambda p: replace(p, rows=("l",)), "l is reduced"),
    (lambda p: replace(p, rows=("b", "c"), block="b"), "not the last axis of rows"),
])
def test_a_program_that_breaks_its_rules_is_refused(broken, said):
    with pytest.raises(LoweringError, match=said):
        broken(program("softmax"))


@pytest.mark.parametrize("wrong", [
    lambda u: replace(u, rebase=u.symbol),
    lambda u: replace(u, lift=u.lift * 2),
    lambda u: replace(u, monoid="max"),
])
def test_the_check_notices_a_wrong_loop(wrong):
    """A sum that is not moved, counted twice, or turned into a maximum must not pass."""
    made, operator = program("softmax"), operators["softmax"]
    stages = (made.stages[0], tuple(wrong(update) for update in made.stages[1]))
    binding = operator.bind(**inputs("softmax", 20))
    got = interpreted(replace(made, stages=stages), operator, binding, 6)
    assert not agree(got[0], reference(operator, binding))


def test_names_of_an_operator_stay_unless_the_source_has_them():
    x, at, m, p_m = map(marked, ("x", "at", "m", "p_m"))
    source = f'def f({x}, {at}, p_{m}, {p_m}):\n    at = {x}.at\n    raise ValueError("{x} at", at)'
    assert unmarked(source) == 'def f(x, at_, p_m, p_m_):\n    at = x.at\n    raise ValueError("x at", at)'
    assert unmarked(source, taken_from_outside(source)) == source.replace("ˑ", "").replace(", p_m)", ", p_m_)")
