"""Verdicts: one vocabulary for what was decided, and why."""
from __future__ import annotations

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.discovery import Discovery
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.discover.refusal import Refusal
from redfuser_algebra.language.expr import subterms

FUSABLE, PARTLY, NOT_FUSABLE, UNDECIDED = "fusable", "partly", "not fusable", "undecided"


def status_and_reason(found: Discovery) -> tuple[str, str]:
    """The verdict on one cascade and its sub-reason."""
    if found.form is None:
        return _refused(found.refusal)
    if not found.form.merges:
        return (PARTLY, "online-only") if found.refusal.witness else (UNDECIDED, "online")
    if found.moves_rounding:
        return PARTLY, "rounding"
    if found.form.assumptions:
        return PARTLY, "conditional"
    return FUSABLE, _kind(found.form)


def _refused(refusal: Refusal) -> tuple[str, str]:
    if refusal.exhausted:
        return UNDECIDED, "limit"
    if refusal.witness:
        return NOT_FUSABLE, refusal.witness.reason
    return UNDECIDED, "no law applies"


def _kind(form: FusedForm) -> str:
    moving = [component for component in form.state if not component.fixed]
    if form.prefixes or form.order == "ordered" and (form.recurrences or form.clips):
        return "scan"
    if any(component.rebase.op == "where" for component in moving):
        return "reset"
    rank = max(form.ranks.values(), default=0)
    if moving or _has_pivot_sum(form):
        return "rank-1" if rank <= 1 else f"rank-R {rank}"
    derived = [result for result in form.results if result.value.op != "symbol"]
    if derived:
        return "monotone" if rank <= 1 else f"tropical-R {rank}"
    return "topk-payload" if any(MONOIDS[component.monoid].counted for component in form.state) else "no-pivot"


def _has_pivot_sum(form: FusedForm) -> bool:
    """Whether some result is a sum with a pivot pulled out of it."""
    sums = {component.name for component in form.state if component.monoid == "sum"}
    return any(result.value.op != "symbol" and any(term.op == "symbol" and term.name in sums
               for term in subterms(result.value)) for result in form.results)
