"""Operators of the shared coverage list that the catalogue does not hold yet, each with what it lacks."""
from __future__ import annotations

_SEQUENTIAL = "a witness against a merge of discrete states"
_WITNESS = "a witness against a scan"
_RANKED = "a witness for what is done with elements in order"
_PAIRS = "pairs of elements of one input"
_KEYS = "a state of unbounded size"

AWAITED: dict[str, str] = {
    name: lacks
    for lacks, names in {
        _SEQUENTIAL: """running_zscore_outliers boyer_moore_majority""",
        _WITNESS: "spectral_rolloff lis_length",
        "top-k over two axes at once": "moe_group_limited",
        _RANKED: "sparsemax median_abs_deviation expectile entmax15 top_p_nucleus max_intersections interval_union_length",
        _PAIRS: "kendall_inversions energy_distance roc_auc",
        _KEYS: "mode_unbounded n_unique",
    }.items()
    for name in names.split()
}
