"""The catalogue: every operator means what its NumPy reference says, can be read back from its text, and says where
it comes from.  An entry becomes a test by being there."""

from pathlib import Path

import numpy as np
import pytest
from lowered import verdict

from redfuser_algebra.bench.coverage import markdown, statuses
from redfuser_algebra.catalogue import Catalogue, operators
from redfuser_algebra.catalogue.entry import ENTRIES, REASONS, entry
from redfuser_algebra.catalogue.lists import LISTS
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.definitions import parse_operator
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.run.reference import reference

LENGTHS = (1, 2, 7, 33, 100)

# The coverage list: fusable, partly and not fusable cascades from kernel benchmarks, statistics and stream engines.
COVERAGE = """
    log_softmax kb_gemv_gelu_softmax kb_softmax_bias_sigmoid logsumexp_signed softermax softmax_temperature soft_argmax
    boltzmann_mean softmax_entropy softmax_entropy_plogp softmax_varentropy tsallis_softmax max_softmax_prob kl_softmax
    hellinger_softmax cross_entropy_hard ce_label_smoothing focal_soft_gamma2 poly1_ce_soft gumbel_softmax infonce
    softpick snis_variance softmax_then_layernorm waic_column circle_loss attn_natten2d attn_tree_mask attn_graphormer
    attn_sink attn_qknorm_rope attn_differential attn_dropout_bias attn_sigmoid attn_activation_unsoftmax attn_linear
    attn_vsa_two_stage attn_bwd_dq attn_gaussian_kernel attn_gated_linear rwkv_wkv attn_forgetting layernorm
    batchnorm_train l1_mean_norm l2_norm l2_norm_safe layernorm_gemv double_layernorm rmsnorm_dynamic_quant
    kb_bn_scale_gap kb_gn_plain_min kb_in_clamp_max cosine_similarity lamb_trust_ratio grad_clip_global barlow_twins
    vicreg_reg int8_absmax_quant uint8_zero_point_quant xnor_binary_gemv moe_sigmoid_bias_topk moe_group_limited
    moe_switch_aux gemv_dot argmax_argmin variance_two_pass sem_cv skewness kurtosis describe_jarque_bera covariance
    linreg_residual_ss r2_explained_variance concordance_ccc power_means kstat4 trimmed_sem_limits weighted_mean_var
    grubbs dixon_q mean_gap_to_max value_at_argmax topk_mean_fixed ndcg_at_k lomb_scargle goertzel_dc d2_tweedie
    shannon_entropy_counts theil_atkinson herfindahl_simpson silog si_sdr mardia gram_power_iteration hinge_kl_triplet
    tversky_dice ece_fixed_bins confusion_mcc all_any_constant prod_scaled any_outlier_sigma farthest_index_1d
    topk_zscores rosner_esd center_of_mass_inertia dipole_quadrupole thermal_kinetic angular_momentum_com kabsch_rmsd
    structure_factor_com fox_wolfram_h2 chebyshev_radius_2d vwap_twap vwap_dispersion sharpe_sortino_omega max_drawdown
    max_subarray ewma_ewvar time_decayed_sum autocorr_lag1 kpss_statistic trend_slope abs_change_trapz runs_and_streaks
    turning_points cum_scans iir_biquad hmm_forward ctc_forward kalman_scalar lindley_wait bracket_balance
    dfa_transition last_value_dedup
    int8_absmax_gemv fp8_ptpc_quant_gemm mxfp8_gemv lindley_total_wait gru_final_state sgd_logistic page_hinkley
    running_zscore_outliers boyer_moore_majority
    twn_ternary_alpha irnet_sign_gemv hoover_index semivariance count_above_mean median median_abs_deviation iqr
    trim_mean_proportion mode_unbounded n_unique gini spearman kendall_inversions energy_distance expectile
    entropy_minmax shifted_geometric_mean mean_shift_step cauchy_irls_step berhu farthest_from_centroid_2d
    kb_gn_affine_min kb_softmax_sub_swish_max kb_gn_tanh_hswish_lse kb_bn_tanh_gn softmax_of_layernorm sparsemax
    entmax15 top_p_nucleus tv_softmax focal_soft_frac mean_distance_to_centroid kmeans_second_step pca_obb_extent
    roc_auc ndcg_full semi_hard_negative spectral_rolloff max_intersections interval_union_length weibull_newton_step
    lis_length
""".split()


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def check(operator, expected, inputs):
    """Each output of the operator is what the NumPy function gives: same shape, NaN and infinities included."""
    with np.errstate(all="ignore"):
        got, want = outputs(reference(operator, operator.bind(**inputs))), outputs(expected(**inputs))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-9, atol=1e-11, strict=True)


@pytest.mark.parametrize("name", operators)
def test_an_operator_is_what_numpy_says(name):
    row = operators.entry(name)
    for length in LENGTHS:
        if length >= row.shortest:
            check(row.operator, row.reference, row.inputs(np.random.default_rng(length), length))


@pytest.mark.parametrize("name", operators)
def test_an_operator_is_read_back_from_its_text(name):
    assert parse_operator(str(operators[name])) == operators[name]


@pytest.mark.parametrize("name", operators)
def test_an_entry_is_complete(name):
    row = operators.entry(name)
    assert row.operator.name == name and row.operator.doc.endswith(".") and row.source and row.group
    assert row.reason in REASONS[row.verdict]
    assert (row.words is None) == (row.verdict == "not fusable"), "a fused form has a size, a refusal has none"
    used = {term.name for term in subterms(*row.operator.outputs) if term.op in ("input", "param")}
    used |= {row.operator.again[name] for name in used & row.operator.again.keys()}
    assert used == {*row.operator.inputs, *row.operator.params}


@pytest.mark.parametrize("name", operators)
def test_drawing_inputs_twice_gives_the_same(name):
    first, second = (operators.entry(name).inputs(np.random.default_rng(3), 33) for _ in range(2))
    assert first.keys() == second.keys()
    assert [key for key in first if not np.array_equal(first[key], second[key])] == []


def test_the_coverage_list_is_covered():
    assert len(COVERAGE) == len(set(COVERAGE)) == 187
    assert not set(COVERAGE) - operators.keys()


def test_published_lists_name_operators_of_the_catalogue():
    assert {title: len(tasks) for title, tasks in LISTS.items()} == {
        "RedFuser": 6, "Neptune": 10, "AttnFuse": 10, "Opera": 33, "KernelBench": 46}
    assert not {name for tasks in LISTS.values() for name in tasks.values()} - operators.keys()
    assert {operators.entry(name).verdict for name in LISTS["Opera"].values()} == {"fusable"}


def test_groups_hold_every_operator_once():
    names = [name for group in operators.groups().values() for name in group]
    assert sorted(names) == sorted(operators) and len(names) == len(set(names))


def test_an_unknown_name_is_a_key_error_that_says_what_is_near():
    assert "atention" not in operators
    with pytest.raises(KeyError, match="did you mean attention") as caught:
        operators["atention"]
    assert isinstance(caught.value, OperatorError) and str(caught.value).startswith("the operator 'atention': ")


def test_a_new_operator_is_one_function(monkeypatch):
    fresh = {}
    monkeypatch.setattr("redfuser_algebra.catalogue.entry.ENTRIES", fresh)

    @entry(source="here", reason="no-pivot", words=1, reference=lambda x, w: w @ x ** 2)
    def weighted_energy(x: "l", w: "l"):
        """Σ w x²."""
        return ra.sum(w * x ** 2, "l")

    row = Catalogue(fresh).entry("weighted_energy")
    check(weighted_energy, row.reference, row.inputs(np.random.default_rng(0), 9))


@pytest.mark.parametrize(("right", "wrong"), [("variance", "variance_two_pass"), ("softmax", "log_softmax"),
                                              ("quant_gemm", "rmsnorm_gemm"), ("argmax_argmin", "dixon_q")])
def test_the_check_notices_another_function(right, wrong):
    row = ENTRIES[right]
    with pytest.raises(AssertionError):
        check(row.operator, ENTRIES[wrong].reference, row.inputs(np.random.default_rng(1), 9))


@pytest.mark.slow
def test_the_folder_of_kernels_holds_the_table_of_the_catalogue():
    path = Path(__file__).parents[1] / "kernels" / "README.md"
    assert not path.exists() or path.read_text(encoding="utf-8") == markdown(statuses(map(verdict, operators)))
