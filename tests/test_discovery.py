"""The search decides: what must fuse does, with little state, and computes the operator; what must not, does not."""
from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import surface_forms
from surface_forms import FUSABLE, STUCK

import redfuser_algebra as ra
from redfuser_algebra.discover.egraph import UnsoundLaws, ask
from redfuser_algebra.discover.encode import Encoder
from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.discover.question import asked
from redfuser_algebra.language.expr import Expr, subterms, symbol
from redfuser_algebra.language.operator import define
from redfuser_algebra.run.conditioning import form_error_bounds
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_fold, fused_by_tree, reference
from redfuser_algebra.run.tolerance import UNIT

WORDS = {
    "softmax": 2, "attention": 3, "mla": 3, "moe_routing": 3, "logsumexp": 2, "variance": 3, "moment_of_inertia": 3,
    "softmax_entropy": 3, "skewness": 4, "kurtosis": 5, "covariance": 4, "correlation": 6, "count_max": 2,
    "layernorm_gemm": 6, "cross_entropy": 3, "kl_divergence": 5,
}
MUST_FUSE = (
    *WORDS, "layernorm", "rmsnorm", "rmsnorm_gemm", "linear_regression", "weighted_mean", "weighted_variance",
    "cosine_similarity", "value_at_argmax", "geometric_mean", "minmax_normalised_sum", "absmax_scaled_sum",
)
MUST_NOT_FUSE = (
    "mean_absolute_deviation", "relu_about_mean", "sin_of_scaled_mean", "softmax_of_deviation", "quant_gemm",
    "count_above_mean", "twn_ternary_alpha",
)


def agree(operator: ra.Operator, form: ra.FusedForm, seed: int, sizes: tuple[int, ...] = (2, 0, 1, 8)) -> None:
    rng = np.random.default_rng(seed)
    lengths = {axis: sum(sizes) if axis == form.axis else 2 + i for i, axis in enumerate(operator.axes)}
    arrays = {name: rng.standard_normal([lengths[axis] for axis in axes]) for name, axes in operator.inputs.items()}
    binding = operator.bind(**arrays)
    for got, want in zip(_list(fused_by_tree(operator, form, binding, sizes, seed)),
                         _list(reference(operator, binding)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def _list(result: object) -> list:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", MUST_FUSE)
def test_must_fuse(name):
    verdict = ra.decide(ra.operators[name])
    assert verdict.status == "fusable"
    assert verdict.fused.form.words <= WORDS.get(name, 9)


@pytest.mark.parametrize("name", MUST_NOT_FUSE)
def test_must_not_fuse(name):
    verdict = ra.decide(ra.operators[name])
    assert not verdict.fusable
    assert verdict.fused is None
    assert verdict.refusal.residual is not None
    with pytest.raises(ra.NotFusable) as caught:
        ra.fuse(ra.operators[name])
    assert caught.value.refusal.reduction.name == verdict.refusal.reduction.name


@pytest.mark.parametrize("operator", FUSABLE, ids=lambda operator: operator.name)
def test_surface_forms_fuse_and_compute_the_operator(operator):
    verdict = ra.decide(operator)
    assert verdict.fusable, verdict
    for seed in range(3):
        agree(operator, verdict.fused.form, seed)


@pytest.mark.parametrize(("operator", "words"), [
    (surface_forms.everything_but_unequal, 2), (surface_forms.ties_under_a_mask_in_one_condition, 2),
    (surface_forms.clipped_to_its_own_range, 3), (surface_forms.extremes_about_the_mean, 3),
    (surface_forms.ninth_moment, 10), (surface_forms.entropy_through_one_logsumexp, 3),
    (surface_forms.payload_at_a_choice_of_positions, 5), (surface_forms.unexplained_share, 6), (ra.operators["linreg_residual_ss"], 10),
     (surface_forms.fourth_order_contraction, 6), (surface_forms.product_of_contractions, 4), (ra.operators["grubbs"], 5), (ra.operators["si_sdr"], 6),
], ids=lambda part: getattr(part, "name", part))
def test_nothing_is_kept_that_other_state_determines(operator, words):
    assert ra.fuse(operator).form.words == words


def test_exponentials_beside_a_constant_one_are_kept_about_a_pivot_that_keeps_both_small():
    operator = ra.operators["softpick"]
    form = ra.fuse(operator).form
    assert form.words == 3 and not any("overflow" in str(danger) for danger in form.dangers)
    binding = operator.bind(np.array([-800.0, -900.0, 2.0, 1.5]), np.array([1.0, 2.0, 3.0, -1.0]))
    np.testing.assert_allclose(fused_by_tree(operator, form, binding, (1, 1, 2), 0), reference(operator, binding), rtol=1e-12)


def test_a_contraction_gets_an_axis_that_nothing_else_in_the_question_has():
    z, w = (Expr("input", (), (name, ("l", axis))) for name, axis in (("z", "k"), ("w", "k__1")))
    p = symbol("p", ("k",))
    encoder = Encoder("l", Facts("l", ()))
    encoder.term(ra.sum(z - p, "k") * 1 * (w + 1))
    assert [line for line in encoder.lines if '(Con "k__2"' in line]


def test_a_position_among_moved_elements_warns_of_nan():
    warned = [any("first NaN" in str(danger) for danger in ra.fuse(ra.operators[name]).form.dangers)
              for name in ("farthest_index_1d", "value_at_argmax")]
    assert warned == [True, False]


def test_only_means_are_pivots_of_residuals():
    form = ra.fuse(ra.operators["linreg_residual_ss"]).form
    centres = {str(term.args[1].args[0]) for component in form.state for term in subterms(component.lift) if term.op == "shift"}
    assert {str(pivot.value) for pivot in form.pivots if pivot.name in centres} == {"s / N", "s2 / N"}


def test_residuals_of_close_points_keep_their_digits():
    operator = ra.operators["linreg_residual_ss"]
    form = ra.fuse(operator).form
    x = np.array([-0.609, -0.609 + 1e-7, 0.051, 1.617])
    binding = operator.bind(x, np.array([0.3, -1.2, 0.4, 2.0]))
    np.testing.assert_allclose(fused_by_tree(operator, form, binding, (1, 1, 1, 1), 0), reference(operator, binding), rtol=1e-12)


def test_places_of_a_top_k_that_nothing_fills_are_the_identity():
    operator = surface_forms.top_of_scaled_under_a_mask
    form = ra.fuse(operator).form
    for x, mask, want in (([1, 2, 5], [0, 1, 0], [math.exp(-3), -np.inf]), ([1, 2, 5], [0, 0, 0], [-np.inf] * 2),
                          ([-np.inf, 2, 5], [1, 0, 0], [0, -np.inf]), ([-np.inf, 2, 5], [1, 0, 1], [1, 0])):
        for sizes in ((3,), (1, 2), (1, 1, 1)):
            got = fused_by_tree(operator, form, operator.bind(np.array(x, float), np.array(mask, float)), sizes, 0)
            np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("operator", STUCK, ids=lambda operator: operator.name)
def test_near_twins_do_not_fuse(operator):
    assert not ra.decide(operator).fusable


@pytest.mark.parametrize("name", ["quant_gemm_reassociate", "mxfp8_gemv"])
def test_reassociable_rounding_is_partly_fusable(name):
    verdict = ra.decide(ra.operators[name])
    assert (verdict.status, verdict.reason, verdict.fusable) == ("partly", "rounding", True)


@pytest.mark.parametrize("rounded", [
    "round(x * (127 / max(abs(x), l)), {})", "round(127 * x / max(abs(x), l), {})", "cast(x / sqrt(sum(x * x, l) / 8), 'bfloat16', {})",
    "cast(exp(x - max(x, l)), 'float8_e4m3', {})", "round(255 * exp2(x - max(x, l)), {})",
    "cast(exp(x - max(x, l)) / sum(exp(x - max(x, l)), l), 'float16', {})",
])
def test_a_rounding_moves_with_its_scale_however_that_is_written(rounded):
    """One part gives the operator as written: only between parts anything is rounded at another scale."""
    operator, x = ra.parse_operator(f"sum({rounded.format('reassociate=True')} * y, l)"), np.random.default_rng(3).standard_normal((2, 8))
    verdict, binding = ra.decide(operator), operator.bind(*x)
    assert (verdict.status, verdict.reason) == ("partly", "rounding")
    right, form = reference(operator, binding), verdict.fused.form
    bound = form_error_bounds(operator, form, binding, UNIT["float64"])
    assert math.isclose(fused_by_tree(operator, form, binding, (8,), 0), right, rel_tol=1e-12)
    assert abs(fused_by_tree(operator, form, binding, (3, 1, 4), 0) - right) <= bound


def test_an_undeclared_sign_is_a_condition_and_a_declared_one_is_not():
    undeclared = ra.decide(surface_forms.log_share)
    assert (undeclared.status, undeclared.reason) == ("partly", "conditional")
    assert [str(condition) for condition in undeclared.fused.form.assumptions] == ["x[l] > 0"]
    assert ra.decide(surface_forms.log_share_of_positive).status == "fusable"


@pytest.mark.parametrize("name", ["variance", "softmax", "layernorm_gemm", "attention", "kurtosis"])
def test_raw_forms_never_move_and_state_their_danger(name):
    form = ra.fuse(ra.operators[name], prefer="raw").form
    assert all(component.fixed for component in form.state)
    assert form.dangers
    entry = ra.operators.entry(name)
    binding = entry.operator.bind(**entry.inputs(np.random.default_rng(0), 11))
    for got, want in zip(_list(fused_by_tree(entry.operator, form, binding, (2, 9), 1)),
                         _list(reference(entry.operator, binding)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


def test_the_default_is_raw_only_where_that_is_safe():
    assert all(component.fixed for component in ra.fuse(ra.operators["rmsnorm_gemm"]).form.state)
    assert not all(component.fixed for component in ra.fuse(ra.operators["layernorm_gemm"]).form.state)


@pytest.mark.parametrize("limits", [ra.Limits(nodes=30), ra.Limits(iterations=2)])
def test_a_limit_that_is_hit_is_undecided_never_a_no(limits):
    verdict = ra.decide(ra.operators["kurtosis"], limits=limits)
    assert (verdict.status, verdict.reason) == ("undecided", "limit")
    assert verdict.refusal.exhausted


@pytest.mark.parametrize("values", [[1, 1, 1], [1, 2, 1], [2, 1, 1], [np.nan, np.nan], [1, np.nan], [np.nan, 1], [np.inf] * 2, [3]])
def test_all_or_any_against_one_value_see_both_extremes(values):
    first = ra.take(ra.parse("x[l]"), 0, "l")
    for output in (ra.all(ra.parse("x[l]") == first, "l"), ra.any(first != ra.parse("x[l]"), "l")):
        operator = define("f", {"x": ("l",)}, {}, output)
        form, binding = ra.fuse(operator).form, operator.bind(np.array(values, float))
        assert form.words == 3
        for sizes in ((len(values),), (1,) * len(values)):
            assert fused_by_tree(operator, form, binding, sizes, 0) == reference(operator, binding)


def test_the_same_question_is_put_to_the_e_graph_once(monkeypatch):
    put = []
    monkeypatch.setattr("redfuser_algebra.discover.question.ask", lambda *words: put.append(words) or ask(*words))
    question = (("(let $a (Num (rational 7 1)))",), "(Add $a $a)", ("distribute",), ra.Limits(), {})
    assert asked(*question) == asked(*question) and len(put) == 1
    assert asked(*question[:3], ra.Limits(iterations=1), {}).answer.iterations <= 1 and len(put) == 2


def test_needed_laws_are_needed():
    form = ra.fuse(ra.operators["softmax_entropy"]).form
    assert {"recentre_difference", "exp_of_sum", "distribute", "sum_adds"} <= set(form.laws)
    for law in ("recentre_difference", "exp_of_sum"):
        answers = [question.again([other for other in question.laws if other != law]) for question in form.trace]
        assert not all(answer.finite for answer in answers)


def test_a_law_that_identifies_two_constants_is_noticed(monkeypatch):
    from redfuser_algebra.algebra import laws

    false_law = laws.Law("one_is_nothing", "exp(a)", "0", role="always")
    monkeypatch.setitem(laws.LAWS, "one_is_nothing", false_law)
    monkeypatch.setitem(laws.LAWS, "zero_is_one", laws.Law("zero_is_one", "exp(a)", "1", role="always"))
    with pytest.raises(UnsoundLaws):
        ra.decide(ra.operators["softmax"])


def test_the_facts_of_softmax_make_every_exponent_safe():
    form = ra.fuse(ra.operators["attention"]).form
    kinds = {fact.kind for fact in form.facts}
    assert {"order", "motion", "bound"} <= kinds
    assert "danger" not in kinds


def test_an_unknown_sign_of_the_scale_gives_no_order_fact():
    form = ra.fuse(surface_forms.scale_outside_the_max).form
    assert any("may overflow" in str(danger) for danger in form.dangers)


def test_threads_find_the_same_form():
    with ThreadPoolExecutor(4) as pool:
        forms = list(pool.map(lambda _: str(ra.fuse(ra.operators["kurtosis"]).form), range(4)))
    assert len(set(forms)) == 1


def test_an_axis_can_be_chosen():
    fused = ra.fuse(surface_forms.variance_of_both_axes, axis="h")
    assert fused.form.axis == "h"
    agree(fused.operator, fused.form, 0)
    with pytest.raises(ra.OperatorError, match="no reduction over that axis"):
        ra.fuse(ra.operators["softmax"], axis="b")


def test_an_operator_without_reductions_is_refused():
    @ra.operator
    def doubled(x: "l"):
        return 2 * x

    with pytest.raises(ra.OperatorError, match="no reduction"):
        ra.fuse(doubled)


def test_a_product_that_is_one_does_not_multiply_itself():
    @ra.operator
    def quantised(x: "l", w: "l"):
        y = x / (ra.max(ra.abs(x), "l") / 448)
        step = 2.0 ** ra.floor(ra.log2(ra.maximum(ra.abs(y), 2.0**-20)))
        return ra.sum(ra.sign(y) * ra.minimum(ra.round(ra.abs(y) / step) * step, 448) * w, "l")

    verdict = ra.decide(quantised)
    assert verdict.fused is None and max(found.nodes for found in verdict.discoveries) < 1_000


def test_a_negated_product_of_conditions_selects_as_well():
    """Σ over c of −s·[c = 1]·[d = 2] leaves the other places out; they may be infinite, and are not multiplied by 0."""
    fused = ra.fuse(ra.operators["angular_momentum_com"])
    r, v = np.ones((1, 3)), np.arange(3.0)[None]
    r[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        first, second, third = fused(m=np.array([1.5]), r=r, v=v, backend="numpy")
    assert first == 0 and np.isnan(second) and np.isnan(third)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -800.0])
@pytest.mark.parametrize("asked", [lambda p, y: ra.sum(p * y, "l", where=p > 0), lambda p, y: ra.sum(ra.where(p > 0, p * y, 0), "l"),
                                   lambda p, y: ra.sum(ra.where(p == 0, 0, p * y), "l"), lambda p, y: -ra.sum(-p, "l", where=(y < 2) & (p > 0))])
@pytest.mark.parametrize("normalised", [True, False])
def test_what_has_a_weight_is_asked_of_the_elements(asked, special, normalised):
    """NaN is not above 0, nor is anything where the largest element is infinite; an element at −inf has no weight."""
    def formula(x: "l", y: "l"):
        e = ra.exp(x - ra.max(x, "l"))
        return asked(e / ra.sum(e, "l") if normalised else e, y)
    operator = ra.operator(formula)
    form = ra.decide(operator).fused.form
    for places in ([], [0], [3], [1, 2], [0, 1, 2, 3]):
        x, y = np.array([0.5, -1.0, 2.0, 2.0]), np.array([1.0, -2.0, 3.0, 0.5])
        x[places] = special
        given = operator.bind(x=x, y=y)
        with np.errstate(all="ignore"):
            right = reference(operator, given)
            for got in (fused_by_chunks(operator, form, given, [1, 0, 3]), fused_by_fold(operator, form, given)):
                np.testing.assert_allclose(got, right, rtol=1e-12)


@pytest.mark.parametrize("asked", [lambda p, y: ra.count(p > 0, "l"), lambda p, y: ra.sum(y, "l", where=p > 0), lambda p, y: ra.max(y, "l", where=p > 0)])
def test_a_weight_that_underflows_is_left_out_where_it_is_no_factor(asked):
    def formula(x: "l", y: "l"):
        return asked(ra.exp(x - ra.max(x, "l")), y)
    assert not ra.decide(ra.operator(formula)).fusable


@pytest.mark.parametrize("formula", [
    "any((x == max(x, l)) & (y > 0), l)", "any((y > 0) & (x >= max(x, l)), l)", "all((y > 0) | (x < max(x, l)), l)",
    "max(where((x == max(x, l)) & (y > 0), y, 0), l)", "min(where((y > 0) & (x == min(x, l)), index(l), 99), l)"])
def test_what_holds_at_the_extreme_element_and_something_else_there(formula):
    fused, rng = ra.fuse(ra.parse_operator(formula)), np.random.default_rng(1)
    for _ in range(20):
        x, y = rng.integers(0, 4, 12).astype(float), rng.integers(-1, 2, 12).astype(float)
        cuts = (slice(0, 5), slice(5, 6), slice(6, 12))
        parts = [fused.stream(at.start) for at in cuts]
        for part, at in zip(parts, cuts, strict=True):
            part.update(x[at], y[at])
        assert fused(x, y, backend="reference") == parts[0].merge(parts[2]).merge(parts[1]).result()


@pytest.mark.parametrize("written", [
    lambda x, y: ra.sqrt(ra.sum(ra.square(x / ra.sqrt(ra.sum(x * x, "l")) - y / ra.sqrt(ra.sum(y * y, "l"))), "l")),
    lambda x, y: ra.sqrt(ra.sum(ra.square(y - ra.sum(x * y, "l") / ra.sum(x * x, "l") * x), "l")),
    lambda x, y: ra.sqrt(ra.sum(ra.abs(x) * ra.square(x / ra.sum(ra.abs(x), "l") - y / ra.sum(ra.abs(y), "l")), "l"))])
def test_a_sum_of_squares_is_never_below_zero_where_it_cancels(written, rng):
    def formula(x: "l", y: "l"):
        return written(x, y)

    fused, x = ra.fuse(ra.operator(formula)), rng.uniform(1, 2, (200, 64))
    near = 3 * x * (1 + 1e-9 * rng.standard_normal(x.shape))
    for backend in ("numpy", "cpu"):
        np.testing.assert_allclose(fused(x, near, backend=backend), 0, atol=1e-6)
    assert any(result.value.op == "maximum" for result in fused.form.results)
    assert {obligation.id for obligation in fused.certificate.obligations} >= {f"readout:{result.name}" for result in fused.form.results}
