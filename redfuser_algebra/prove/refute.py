"""From a refusal to a proof that there is no fused form, where there is one.

In: a cascade that the search could not fuse.  Out: a Witness, which can be checked again by itself; or None, and then
nothing is known.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from redfuser_algebra.discover.refusal import Refusal
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.operator import Scalar
from redfuser_algebra.prove.refutation.bounded import of_finite_rank, rounds_with_pivots, windowed
from redfuser_algebra.prove.refutation.crossings import Crossed, crossed, is_discrete
from redfuser_algebra.prove.refutation.evaluation import Effort, Spent, Unsupported
from redfuser_algebra.prove.refutation.independence import Found, independent
from redfuser_algebra.prove.refutation.numbers import Field, balls, fraction, working, written
from redfuser_algebra.prove.refutation.patterns import seen_by_order, told_apart
from redfuser_algebra.prove.refutation.problem import Problem, posed
from redfuser_algebra.prove.refutation.rank import certainly_not_zero, determinants
from redfuser_algebra.prove.refutation.reason import ENVELOPE, ONLINE, ORDER_STATISTIC, PAIRWISE, ROUNDING, THRESHOLD, UNBOUNDED_STATE, blame, choices
from redfuser_algebra.prove.fooling import FoolingSet
from redfuser_algebra.prove.witness import Crossings, Independence, Witness, evaluation_of, jacobian, pivot_values

_FOR_RANKS, _FOR_CHOICES = 2, 1
"""How much more is spent where elements are put in order, and where they are compared."""
BUDGET = 3_000_000
"""Array entries that may be computed: some seconds."""
NONE: Mapping[str, str] = MappingProxyType({})
"""No input is another one once more."""


def refute(cascade: Cascade, assume: tuple[Expr, ...], refusal: Refusal, budget: int = BUDGET,
           params: Mapping[str, Scalar | None] | None = None, again: Mapping[str, str] = NONE) -> Witness | None:
    """A witness that no bounded state carries the results that need `refusal.reduction`, or None.

    `params` are the operator's parameters with their defaults, and `again` its inputs that are another one once more.
    Never a witness for a body that is certainly of finite rank, nor where positions are compared with constants (a
    window), nor along an axis that a top-k makes.
    """
    if any(term.op == "reduce" and term.attrs[2] == cascade.axis for term in subterms(*_formulas(cascade))):
        return None
    others = frozenset(own for _, own in posed(cascade, assume, again=again).copies.values())
    if of_finite_rank(refusal.reduction, cascade.axis, others) or windowed(subterms(*_formulas(cascade)), cascade.axis):
        return None
    return _sought(cascade, assume, refusal, budget, params, again)


def refute_merge(cascade: Cascade, assume: tuple[Expr, ...], refusal: Refusal, budget: int = BUDGET,
                 params: Mapping[str, Scalar | None] | None = None, again: Mapping[str, str] = NONE) -> Witness | None:
    """A witness that no bounded state of a part merges with what precedes it, though one goes on from element to element, or None."""
    return _sought(cascade, assume, refusal, budget, params, again, behind=True)


def _sought(cascade: Cascade, assume: tuple[Expr, ...], refusal: Refusal, budget: int, params: Mapping[str, Scalar | None] | None,
            again: Mapping[str, str], behind: bool = False) -> Witness | None:
    """What is found within the budget about a state of all that has been seen, or of a part with something `behind` it."""
    effort = Effort(budget)
    for values in _parameters(params or {}):
        problem = posed(cascade, assume, values, behind, again)
        if not behind:
            compares = bool(choices(refusal.reduction.source, cascade.axis))
            effort.left += (_FOR_RANKS if problem.growing else _FOR_CHOICES * compares) * budget
        if problem.coordinates and not problem.entangled:
            try:
                found = _witness(problem, problem.within(effort), problem.own(refusal.reduction), refusal)
            except Unsupported:
                continue
            except Spent:
                return None
            if found:
                return found
    return None


def _formulas(cascade: Cascade) -> list[Expr]:
    parts = [part for each in cascade.reductions for part in each.operands]
    return [*parts, *cascade.outputs]


def _parameters(params: Mapping[str, Scalar | None]) -> list[dict[str, Fraction]]:
    """Values to try: the defaults; then, where they are not whole by declaration, others (1/2 if none is said)."""
    defaults = {name: fraction(value) for name, value in params.items() if value is not None}
    whole = {name: fraction(value) for name, value in params.items() if isinstance(value, int)}
    return [defaults] if whole == defaults else [defaults, whole]


def _witness(problem: Problem, within: Problem, reduction: Reduction, refusal: Refusal) -> Witness | None:
    """What the search finds that is made `within` an effort; the witness itself may be checked again at any time."""
    if (problem.copies or problem.behind) and seen_by_order(problem):
        told = told_apart(within, reduction)
        return told and FoolingSet(_unbounded(problem, reduction), reduction, problem, told.prefix, told.columns, {}, told.steerings)
    if is_discrete(within, reduction):
        jumps = crossed(within, reduction)
        if jumps:
            return _of_jumps(problem, reduction, refusal, jumps)
    found = independent(within, reduction)
    return _of_results(problem, refusal, found) if found else None


def _of_results(problem: Problem, refusal: Refusal, found: Found) -> Independence | None:
    """The witness of independent results; determinants that are too blurred are computed again, more precisely."""
    bits = found.field.bits
    for field in (found.field, balls(4 * bits), balls(16 * bits)) if bits else (found.field,):
        with working(field):
            made = _precise(problem, refusal, found, field)
        if made:
            return made
    return None


def _precise(problem: Problem, refusal: Refusal, found: Found, field: Field) -> Independence | None:
    suffixes, seen = (tuple(row.suffix for row in found.rows), tuple(row.seen for row in found.rows))
    moving = tuple(sorted({coordinate for _, coordinate in found.columns}))
    matrix = jacobian(problem, field, found.prefix, moving, suffixes, seen, found.columns)
    minors = determinants(matrix) if matrix else {}
    if not minors or not all(map(certainly_not_zero, minors.values())):
        return None
    evaluation = evaluation_of(problem, field, found.prefix, moving, suffixes)
    minors_written = {order: written(value) for order, value in minors.items()}
    if problem.behind or problem.copies:
        reduction = problem.own(refusal.reduction)
        return Independence(_unbounded(problem, reduction), reduction, problem, found.prefix, found.columns, minors_written, suffixes, seen,
                            {}, None, field.bits)
    to_blame = blame(problem, _suspects(problem, refusal.reduction.name), evaluation, len(found.prefix))
    return Independence(
        to_blame.reason, to_blame.reduction, problem, found.prefix, found.columns,
        minors_written, suffixes, seen,
        pivot_values(evaluation, problem, refusal.pivots), to_blame.table, field.bits)


def _unbounded(problem: Problem, reduction: Reduction) -> str:
    """Why parts do not merge; of elements that meet one another, whether they are summed pair by pair."""
    if problem.behind:
        return ONLINE
    inner = [term for term in subterms(*reduction.elements) if term.op in ("reduce", "scan") and term.axis in problem.growing]
    return PAIRWISE if all(term.monoid == "sum" for term in (reduction, *inner)) else UNBOUNDED_STATE


def _suspects(problem: Problem, refused: str) -> list[Reduction]:
    """The reduction that was refused, and those after it."""
    names = [reduction.name for reduction in problem.cascade.reductions]
    return list(problem.cascade.reductions[names.index(refused):])


def _of_jumps(problem: Problem, reduction: Reduction, refusal: Refusal, found: Crossed) -> Crossings | None:
    ranked = reduction.source.attrs[2] in problem.growing
    of_kind = ROUNDING if refusal.rounding or rounds_with_pivots(reduction, problem.axis) else THRESHOLD if reduction.monoid in ("sum", "prod") else ENVELOPE
    reason = ONLINE if problem.behind else ORDER_STATISTIC if ranked else of_kind
    draft = Crossings(reason, reduction, problem, found.prefix, found.columns, {}, found.jumps)
    minors = draft.minors()
    if not minors or not all(map(certainly_not_zero, minors.values())):
        return None
    return replace(draft, determinants={order: written(value) for order, value in minors.items()})
