"""Operators of the shared coverage list that the catalogue does not hold yet, each with what it lacks."""
from __future__ import annotations

_LABELS = "a witness against a merge of labels"
_RANKED = "a witness for what is done with elements in order"
_PAIRS = "a witness for pairs of elements of one input"
_KEYS = "a state of unbounded size"

AWAITED: dict[str, str] = {
    name: lacks
    for lacks, names in {
        _LABELS: "boyer_moore_majority",
        _RANKED: "median_abs_deviation max_intersections interval_union_length",
        _PAIRS: "kendall_inversions energy_distance",
        _KEYS: "mode_unbounded n_unique lis_length",
    }.items()
    for name in names.split()
}
