"""The interpreter of fused forms: every split, tree and order of parts gives what the operator as written gives."""

from dataclasses import replace

import numpy as np
import pytest
from hand_forms import CASES, both, component, scale, shift
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import call, symbol
from redfuser_algebra.run.laid_out import environment_of
from redfuser_algebra.run.reference import cut, fused_by_chunks, fused_by_fold, fused_by_tree, reference
from redfuser_algebra.run.state import finalize, identity, lift, merge
from redfuser_algebra.run.tolerance import agree

SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
NUMBERS = st.floats(-9, 9, width=32)
SCALE = 1e4
"""The size of the terms that results are made of: a dozen squares of numbers up to 18, a product of a few."""


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def same(got, expected, scale=SCALE):
    return all(agree(a, b, scale=scale) for a, b in zip(outputs(got), outputs(expected), strict=True))


@st.composite
def calls(draw, names=tuple(CASES), numbers=NUMBERS, special=True):
    """A case with arrays that fit it: (case, binding, chunk sizes)."""
    case = CASES[draw(st.sampled_from(names))]
    sizes = {"l": draw(st.integers(3, 12)), "m": 4, "k": 2, "j": 2}
    batch = draw(st.sampled_from([(), (2,)]))
    elements = st.one_of(numbers, SPECIAL) if special and draw(st.booleans()) else numbers
    given_arrays = [
        draw(arrays.arrays(float, batch + tuple(sizes[axis] for axis in axes), elements=elements))
        for axes in case.operator.inputs.values()
    ]
    cuts = sorted(draw(st.lists(st.integers(0, sizes["l"]), max_size=5)))
    return case, case.operator.bind(*given_arrays), list(np.diff([0, *cuts, sizes["l"]]))


@given(calls(), st.integers(0, 2**16))
def test_every_split_and_tree_agrees_with_the_reference(call, seed):
    case, binding, sizes = call
    expected = reference(case.operator, binding)
    assert same(fused_by_chunks(case.operator, case.form, binding, sizes), expected)
    assert same(fused_by_tree(case.operator, case.form, binding, sizes, seed), expected)
    assert same(fused_by_fold(case.operator, case.form, binding), expected)


@given(calls(), st.integers(0, 2**16))
def test_the_identity_is_neutral_and_merge_commutes(call, seed):
    case, binding, _ = call
    environment = environment_of(case.operator, binding)
    length = environment.sizes["l"]
    nothing, a, b = (lift(case.form, chunk) for chunk in cut(environment, "l", [0, length // 2, length - length // 2]))
    empty = identity(case.form, environment)
    for left, right in [(merge(case.form, a, empty), a), (merge(case.form, nothing, a), a),
                        (merge(case.form, a, b), merge(case.form, b, a))]:
        for name in left.components:
            assert agree(left.components[name].value, right.components[name].value, scale=SCALE)
        assert (left.length, left.start) == (right.length, right.start)


@pytest.mark.parametrize("name", ["softmax", "variance", "count_of_max", "value_at_argmax", "scaled_sum"])
@pytest.mark.parametrize("values", [
    [-np.inf, -np.inf, -np.inf], [-np.inf, -np.inf, 2.0], [np.inf, 1.0, np.inf], [np.inf, -np.inf, 0.0],
    [np.nan, np.inf, 1.0], [1.0, 2.0, np.nan], [0.0, 0.0, 0.0], [-0.0, 0.0, -0.0], [5e-324, 1.0, -1.0],
    [1e300, -1e300, 1e300], [800.0, -800.0, 0.0],
], ids=str)
def test_edges(name, values):
    case = CASES[name]
    binding = case.operator.bind(*[np.array(values)] * len(case.operator.inputs))
    expected = reference(case.operator, binding)
    for sizes in ([3], [1, 1, 1], [2, 1], [1, 0, 2]):
        assert same(fused_by_chunks(case.operator, case.form, binding, sizes), expected, scale=1.0)


def test_a_large_offset_costs_no_digits(rng):
    case, x = CASES["variance"], 1e8 + rng.standard_normal(4096)
    mean, variance = fused_by_tree(case.operator, case.form, case.operator.bind(x), [1] * 96 + [500] * 8, seed=1)
    exact = np.var(x - 1e8)
    assert agree(mean, np.mean(x)) and abs(variance - exact) < 1e-7 * exact


def test_masked_rows_are_empty_rows():
    case = CASES["masked_softmax"]
    x, w = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.inf]]), np.array([[1, 0, 1], [0, 0, 0]])
    binding = case.operator.bind(x, w)
    expected = reference(case.operator, binding)
    assert expected[0].tolist() == [3.0, -np.inf] and expected[1].tolist() == [1 + np.exp(-2.0), 0.0]
    for seed in range(9):
        assert same(fused_by_tree(case.operator, case.form, binding, [1, 1, 0, 1], seed), expected)


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_empty_axis_is_an_error_exactly_where_the_operator_says_so(name):
    case = CASES[name]
    shapes = [tuple({"l": 0}.get(axis, 2) for axis in axes) for axes in case.operator.inputs.values()]
    binding = case.operator.bind(*map(np.zeros, shapes))
    results = []
    for compute in (reference, lambda operator, b: fused_by_chunks(operator, case.form, b, [0])):
        try:
            results.append(compute(case.operator, binding))
        except OperatorError as error:
            results.append(error.failed)
    if isinstance(results[0], str):
        assert results[0] == results[1]
    else:
        assert same(*results)


def test_positions_count_from_where_the_data_starts():
    case, x = CASES["value_at_argmax"], np.array([4.0, 9.0, 9.0])
    environment = replace(environment_of(case.operator, case.operator.bind(x, x)), starts={"l": 100})
    states = [lift(case.form, chunk) for chunk in cut(environment, "l", [1, 2])]
    first, last, value = finalize(case.form, merge(case.form, states[1], states[0]))
    assert (first.item(), last.item(), value.item()) == (101, 100, 9.0)


def test_ties_go_to_the_lowest_position_whatever_the_order_of_merging():
    case, x = CASES["largest_three"], np.array([2.0, 5.0, 5.0, np.nan, 5.0, np.nan])
    environment = environment_of(case.operator, case.operator.bind(x))
    first, second, third = (lift(case.form, chunk) for chunk in cut(environment, "l", [2, 2, 2]))
    at, best = finalize(case.form, merge(case.form, third, merge(case.form, second, first)))
    assert at.reshape(-1).tolist() == [3, 5, 1]
    assert agree(best.reshape(-1), [np.nan, np.nan, 5.0])


def test_the_worst_value_still_beats_no_value():
    case = CASES["masked_positions"]
    for worst, which in [(-np.inf, 0), (np.inf, 1)]:
        binding = case.operator.bind(np.array([7.0, worst]), np.array([0, 1]))
        assert fused_by_fold(case.operator, case.form, binding)[which] == 1 == reference(case.operator, binding)[which]


def test_a_state_does_not_keep_its_chunk_alive():
    case = CASES["attention"]
    binding = case.operator.bind(np.ones((4, 2)), np.ones((6, 2)), np.ones((6, 2)))
    assert not lift(case.form, environment_of(case.operator, binding)).environment.values


def test_chunks_must_cover_the_axis():
    case = CASES["softmax"]
    with pytest.raises(OperatorError, match="add up to 2"):
        fused_by_chunks(case.operator, case.form, case.operator.bind(np.zeros(3)), [1, 1])


def test_a_component_that_comes_too_early_is_named():
    case = CASES["softmax"]
    backwards = replace(case.form, state=case.form.state[::-1], results=(), pivots=())
    with pytest.raises(OperatorError, match="order the components"):
        fused_by_chunks(case.operator, backwards, case.operator.bind(np.zeros(3)), [3])


def broken_forms():
    """Forms with one fault each, of the kinds a search could make."""
    m, m1 = both("m")
    x = CASES["softmax"].form.state[0].lift
    factor = call("exp", shift(m, m1))
    s = call("exp", shift(x, m))
    yield "softmax", "no rebase", component("s", "sum", s)
    yield "softmax", "rebase the wrong way", component("s", "sum", s, lambda s: scale(call("exp", shift(m1, m)), s))
    yield "softmax", "no guard", component("s", "sum", s, lambda s: scale(call("exp", call("subtract", m, m1)), s))
    yield "softmax", "wrong monoid", component("s", "max", s, lambda s: scale(factor, s))
    yield "count_of_max", "no reset", component("c", "sum", CASES["count_of_max"].form.state[1].lift)
    yield "largest_three", "mask lost", replace(CASES["largest_three"].form.state[1], mask=None)
    yield "variance", "one term missing", component(
        "s2", "sum", CASES["variance"].form.state[3].lift, lambda s2: s2 + 2 * shift(*both("p")) * symbol("s1"))


@pytest.mark.parametrize("name, fault, wrong", [*broken_forms()], ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_form_is_found_out(name, fault, wrong):
    case = CASES[name]
    form = replace(case.form, state=tuple(wrong if c.name == wrong.name else c for c in case.form.state))
    tries = [[1.0, 3.0, 2.0, 1.0], [-np.inf, -np.inf, -np.inf, 2.0], [1.0, -2.0, 0.5, 1.0]]
    bindings = [case.operator.bind(np.array(x)) for x in tries]
    assert not all(
        same(fused_by_chunks(case.operator, form, b, [1, 1, 2]), reference(case.operator, b)) for b in bindings)
