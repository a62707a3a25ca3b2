"""Operators of the shared coverage list that the language cannot say yet, each with the word it lacks."""
from __future__ import annotations

_ORDERED = "an ordered reduction over a sequential state"
_SORT = "a rank, quantile or sort along an axis"
_PAIRS = "pairs of elements of one input"
_KEYS = "a state of unbounded size"

AWAITED: dict[str, str] = {
    name: lacks
    for lacks, names in {
        _ORDERED: """attn_gated_linear rwkv_wkv attn_forgetting max_drawdown max_subarray ewma_ewvar abs_change_trapz
            runs_and_streaks turning_points cum_scans iir_biquad hmm_forward ctc_forward kalman_scalar lindley_wait
            bracket_balance dfa_transition kpss_statistic lindley_total_wait gru_final_state sgd_logistic page_hinkley
            running_zscore_outliers boyer_moore_majority spectral_rolloff lis_length""",
        "the neighbour of an element along the axis": "autocorr_lag1",
        "top-k over two axes at once": "moe_group_limited",
        _SORT: """median median_abs_deviation iqr trim_mean_proportion gini spearman expectile sparsemax entmax15
            top_p_nucleus ndcg_full max_intersections interval_union_length""",
        _PAIRS: "kendall_inversions energy_distance roc_auc",
        _KEYS: "mode_unbounded n_unique",
    }.items()
    for name in names.split()
}
