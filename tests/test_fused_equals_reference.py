"""The fused form of every catalogue operator gives what the operator as written gives, whatever the split.

The tolerance is carried with the values (`run/conditioning.py`): what rounding may do to the operator as written and
to the formulas of the form.  One class of inputs is left out, see DISTRIBUTES.
"""

import functools

import numpy as np
import pytest
import redfuser_algebra as ra
from adversarial import SITUATION_CHUNKS, SITUATIONS, domain, drawn, in_situation, spoilt_call
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import verdict
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.catalogue import operators
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.run.conditioning import error_bounds, form_error_bounds
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_fold, fused_by_tree, reference
from redfuser_algebra.run.tolerance import UNIT, agree

EXPECTED = [name for name in operators if operators.entry(name).verdict != "not fusable"]
# A law that is true over the reals moves a factor into or out of a sum; where the factor is 0 and an element infinite
# (or the other way round), the operator has 0 · inf = NaN and its form has not, or the form alone.  No one-pass form
# of these operators can know: whether a coefficient of an element is 0 is settled when its last pivot is.
DISTRIBUTES = frozenset((
    "ce_label_smoothing", "focal_soft_gamma2", "poly1_ce_soft", "layernorm_gemm", "layernorm_gemv",
    "minmax_normalised_sum", "xnor_binary_gemv", "dipole_quadrupole", "center_of_mass_inertia",
    "trend_slope",
    # a recurrence's matrices are multiplied from the middle, and the sums of its stretches are taken there
    "abs_change_trapz", "attn_forgetting", "attn_gated_linear", "crf_log_partition", "ctc_forward", "hmm_forward", "iir_biquad",
    "max_drawdown", "max_subarray"))
# An element that is inf − inf = NaN is the first of the largest to NumPy.  The form compares what it keeps of x itself,
# which is not NaN there, and its dangers say so.
COMPARES_RAW = frozenset(("farthest_index_1d",))
EXAMPLES = settings.default.max_examples // 4
ROUNDING = UNIT["float64"]


def fused(name, *prefer):
    found = verdict(name, *prefer)
    return found.fused or pytest.skip(f"no fused form: {found.status} ({found.reason})")


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def by_streams(fused, given, sizes):
    """One stream per chunk, each told where it starts, merged from the last to the first where the form commutes; one for all where
    nothing merges."""
    starts = np.cumsum([0, *sizes]).tolist()
    one = fused.stream()
    varying = [name for name, axes in fused.operator.inputs.items() if fused.form.axis in axes]
    streams = []
    for start, stop in zip(starts, starts[1:], strict=False):
        chunk = {name: np.take(given[name], range(start, stop), axis=fused.operator.inputs[name].index(fused.form.axis))
                 for name in varying}
        streams.append((fused.stream(start=start) if fused.form.merges else one).update(**given | chunk))
    if not fused.form.merges:
        return one.result()
    if fused.form.order == "commutative":
        streams.reverse()
    return functools.reduce(lambda a, b: a.merge(b), streams).result()


def lost_to_infinity(name, got, right, given):
    """Where one of the two is NaN and an input holds an infinity, for the operators named in DISTRIBUTES."""
    infinite = any(np.isinf(value).any() for value in given.values())
    if name in COMPARES_RAW and not all(np.isfinite(value).all() for value in given.values()):
        return np.full(np.shape(right), True)
    return np.array(infinite and name in DISTRIBUTES) & (np.isnan(got) != np.isnan(right))


class Expected:
    """What the operator as written gives for these arguments, with bounds, or the error it raises."""

    def __init__(self, fused, given):
        self.fused, self.given = fused, given
        self.binding = fused.operator.bind(**given)
        try:
            self.values, self.failed = outputs(reference(fused.operator, self.binding)), None
            self.own = outputs(error_bounds(fused.operator, self.binding, ROUNDING))
            self.form = outputs(form_error_bounds(fused.operator, fused.form, self.binding, ROUNDING))
            self.bounds = [a + b for a, b in zip(self.own, self.form, strict=True)]
        except ra.OperatorError as error:
            self.values, self.failed = (), error.failed

    def check(self, compute, what=""):
        """Assert that `compute` gives these values within the bounds, or raises the same error."""
        try:
            got = outputs(compute())
        except ra.OperatorError as error:
            assert error.failed == self.failed, error
            return
        assert self.failed is None, f"no error: {self.failed}"
        for i, (value, right, bound) in enumerate(zip(got, self.values, self.bounds, strict=True)):
            excused = lost_to_infinity(self.fused.operator.name, value, right, self.given)
            assert np.shape(value) == np.shape(right), f"output {i}"
            assert agree(np.where(excused, right, value), right, error=bound), (
                f"{what}\noutput {i}: {value}\nshould be {right}\nwithin {bound}")


def check_all_ways(fused, given, sizes, seed):
    operator, form = fused.operator, fused.form
    expected = Expected(fused, given)
    expected.check(lambda: fused(**given))
    expected.check(lambda: fused_by_chunks(operator, form, expected.binding, sizes))
    expected.check(lambda: fused_by_fold(operator, form, expected.binding))
    if form.merges:
        expected.check(lambda: fused_by_tree(operator, form, expected.binding, sizes, seed))
    expected.check(lambda: by_streams(fused, given, sizes))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_adversarial_inputs(name, data):
    found = fused(name)
    given, sizes = data.draw(spoilt_call(operators.entry(name), found.form))
    check_all_ways(found, given, sizes, data.draw(st.integers(0, 2**16), "tree"))


def order_matters(operator):
    """Whether an output keeps the axis, or depends on where along it an element stands."""
    terms = subterms(*operator.outputs)
    return any("l" in output.axes for output in operator.outputs) or any(
        term.op == "scan" or term.op == "index" and term.axis == "l" or
        term.op == "reduce" and term.axis == "l" and (MONOIDS[term.monoid].indexed or not MONOIDS[term.monoid].commutative)
        for term in terms)


@pytest.mark.parametrize("name", EXPECTED)
def test_ordinary_inputs(name):
    """Every split agrees with the entry's NumPy reference, and rounding does not matter."""
    row, found = operators.entry(name), fused(name)
    for length in {0, 1, row.shortest, row.shortest + 1, 17}:
        given = drawn(row, length, length)
        check_all_ways(found, given, [length // 3, 0, length - length // 3], seed=length)
        if length < row.shortest or verdict(name).reason == "rounding":
            continue
        with np.errstate(all="ignore"):
            right = outputs(row.reference(**given))
        for value, exact, bound in zip(outputs(found(**given)), right, Expected(found, given).bounds, strict=True):
            np.testing.assert_allclose(value, np.asarray(exact, float), rtol=1e-9, atol=1e-11)
            assert length < 17 or (bound <= 1e-9 * (1 + np.abs(value))).all(), "the test would not notice a fault"


@pytest.mark.parametrize("name", [name for name in EXPECTED if not order_matters(operators[name])])
def test_elements_in_another_order(name):
    found = fused(name)
    given = drawn(operators.entry(name), 3, 12)
    expected = Expected(found, given)
    order = np.random.default_rng(4).permutation(12)
    permuted = given | {key: np.take(given[key], order, axis=axes.index("l"))
                        for key, axes in found.operator.inputs.items() if "l" in axes}
    expected.check(lambda: fused_by_chunks(found.operator, found.form, found.operator.bind(**permuted), [5, 7]))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_situations(name):
    """What each guard is there for, happening to all inputs of every operator."""
    found = fused(name)
    for situation in SITUATIONS:
        given = in_situation(operators.entry(name), found.form, situation)
        expected = Expected(found, given)
        for sizes in (SITUATION_CHUNKS, SITUATION_CHUNKS[::-1]):
            expected.check(lambda sizes=sizes: fused_by_chunks(found.operator, found.form, expected.binding, sizes), situation)


@pytest.mark.slow
@pytest.mark.parametrize("prefer", ["centred", "raw"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_form_that_loses_digits_says_so(name, prefer):
    """Where all elements are far from 0, either the form is as good as the operator or its dangers tell."""
    row, found = operators.entry(name), fused(name, prefer)
    given = drawn(row, 5, 17)
    given |= {key: given[key] + 1e6 for key in domain(name, ()).kinds if "l" in row.operator.inputs[key]}
    expected = Expected(found, given)
    run = functools.partial(fused_by_tree, seed=3) if found.form.merges else fused_by_chunks
    expected.check(lambda: run(found.operator, found.form, expected.binding, [5, 1, 11]))
    warned = [danger for danger in found.form.dangers if "cancels" in str(danger) or "flow" in str(danger)]
    assert warned or all(
        not (form > 1000 * own + 1e-12 * np.abs(value)).any()
        for own, form, value in zip(expected.own, expected.form, expected.values, strict=True))
