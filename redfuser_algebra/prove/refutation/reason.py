"""Which reduction is to blame, why, and the numbers of it that are easiest to check by hand.

In: an evaluation of the operator after one prefix and several suffixes.  Out: a Blame: the sub-reason of the verdict,
and for a sum the matrix [F(x_i; p_j)] with its determinants, for a maximum two elements whose order flips.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.refusal import ROUNDINGS
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.refutation.envelope import SELECTING, WINNERS
from redfuser_algebra.prove.refutation.evaluation import Evaluation
from redfuser_algebra.prove.refutation.numbers import is_finite, written
from redfuser_algebra.prove.refutation.problem import Problem
from redfuser_algebra.prove.refutation.rank import Basis, determinants

UNBOUNDED_RANK, THRESHOLD, ENVELOPE, ROUNDING, ORDER_STATISTIC, ONLINE, PAIRWISE, UNBOUNDED_STATE = (
    "unbounded-rank", "threshold", "envelope", "rounding", "order-statistic", "online-only", "pairwise", "unbounded-state")

KERNEL = 12
"""The largest order of the matrix [F(x_i; p_j)] that is looked at."""

_SEVERAL = 4
_STEPPING = (*COMPARISONS, "sign", "where")


@dataclass(frozen=True)
class Table:
    """F of elements (positions in the prefix) after suffixes (positions in the witness), and what it shows.

    For a sum `determinants` are the leading minors of [F(x_i; p_j)] at 1 … 8 and 12: with R components, all of order
    more than R would be 0.  For a maximum there are none: each of the two elements wins after one of the two suffixes.
    """

    elements: tuple[int, ...]
    suffixes: tuple[int, ...]
    values: tuple[tuple[str, ...], ...]
    determinants: dict[int, str]


@dataclass(frozen=True)
class Blame:
    """The reduction that cannot be carried, the sub-reason, and a table to check by hand (None if there is none)."""

    reduction: Reduction
    reason: str
    table: Table | None


def blame(problem: Problem, suspects: Sequence[Reduction], evaluation: Evaluation, count: int) -> Blame:
    """The first suspect that needs more than a few components over these suffixes; `count` elements are the prefix."""
    for reduction in suspects:
        table = _table(problem, reduction, evaluation, count)
        if table:
            return Blame(reduction, reason(problem, reduction, evaluation, count), table)
    return Blame(suspects[0], reason(problem, suspects[0], evaluation, count), None)


def reason(problem: Problem, reduction: Reduction, evaluation: Evaluation, count: int) -> str:
    """The sub-reason: what in the reduction's own formula turns with the pivot."""
    own = list(_own_terms(reduction.source, problem.axis))
    if any(term.op in ROUNDINGS and _turns(problem, evaluation, term, count) for term in own):
        return ROUNDING
    if reduction.source.attrs[2] in problem.growing:
        return ORDER_STATISTIC
    if reduction.monoid != "sum" and reduction.monoid != "prod":
        return ENVELOPE
    if any(term.op in _STEPPING and _turns(problem, evaluation, term, count) for term in own):
        return THRESHOLD
    return UNBOUNDED_RANK


def choices(source: Expr, axis: str) -> list[Expr]:
    """The terms of a reduction that choose by comparing."""
    return [term for term in _own_terms(source, axis) if term.op in (*_STEPPING, "abs", "maximum", "minimum")]


def _own_terms(source: Expr, axis: str) -> Iterator[Expr]:
    """The terms of a reduction that vary along the axis, without what is inside other reductions over it."""
    seen, todo = set(), list(source.args)
    while todo:
        term = todo.pop()
        if term not in seen and not (term.op == "reduce" and term.axis == axis):
            seen.add(term)
            todo += term.args
            if axis in term.axes:
                yield term


def _turns(problem: Problem, evaluation: Evaluation, term: Expr, count: int) -> bool:
    """Whether the answers for several elements of the prefix depend on the suffix (an extreme element alone may)."""
    values = answers(problem, evaluation, term, count)
    if values is None:
        return False
    alike = np.equal(values, values[:1]).astype(bool).all(axis=(0, 2))
    return int((~alike).sum()) >= _SEVERAL


def answers(problem: Problem, evaluation: Evaluation, term: Expr, count: int) -> np.ndarray | None:
    """What a term that chooses says of each element of the prefix, by continuation; None if it was not evaluated."""
    if term not in evaluation.nodes:
        return None
    values = evaluation.picked.get(term, evaluation.nodes[term].value)
    values = np.moveaxis(values, evaluation.setting.dim(problem.axis), 1)[:, :count]
    each = np.broadcast_to(values, (evaluation.setting.continuations, *values.shape[1:]))
    return each.reshape(-1, values.shape[1], math.prod(values.shape[2:]))


def bodies(problem: Problem, reduction: Reduction, evaluation: Evaluation, count: int) -> np.ndarray:
    """F of each element of the prefix after each suffix: suffixes × elements, at the first place of other axes."""
    source, dim = reduction.source, evaluation.setting.dim(problem.axis)
    node = evaluation.number(source.body).stretched(dim, evaluation.setting.sizes[problem.axis])
    value = node.value
    if source.mask is not None:
        nothing = evaluation.constant(float(MONOIDS[reduction.monoid].identity)).value
        value = np.where(evaluation.truth(source.mask), value, nothing)
    first = np.moveaxis(value, dim, 1)
    flat = first.reshape(*first.shape[:2], -1)[:, :count, 0]
    return np.broadcast_to(flat, (evaluation.setting.continuations, count))


def _table(problem: Problem, reduction: Reduction, evaluation: Evaluation, count: int) -> Table | None:
    if reduction.monoid in SELECTING and reduction.count is None:
        return _flip(problem, reduction, evaluation, count)
    return _kernel(problem, reduction, evaluation, count) if reduction.monoid == "sum" else None


def _kernel(problem: Problem, reduction: Reduction, evaluation: Evaluation, count: int) -> Table | None:
    values = bodies(problem, reduction, evaluation, count)
    good = [at for at in range(len(values)) if not evaluation.spoiled[at] and all(map(is_finite, values[at]))]
    basis = Basis(evaluation.field)
    if good:
        basis.extend(values[good], good, KERNEL)
    if len(basis) < KERNEL:
        return None
    rows, columns = zip(*basis.pivots, strict=True)
    return kernel_at(values, columns, rows)


def kernel_at(values: np.ndarray, elements: Sequence[int], suffixes: Sequence[int]) -> Table:
    """The table of a sum for chosen elements and suffixes."""
    matrix = [[values[row, column] for column in elements] for row in suffixes]
    found = {order: written(value) for order, value in determinants(matrix).items()}
    corner = tuple(tuple(written(value) for value in row[:2]) for row in matrix[:2])
    return Table(tuple(elements), tuple(suffixes), corner, found)


def _flip(problem: Problem, reduction: Reduction, evaluation: Evaluation, count: int) -> Table | None:
    winners = evaluation.picked[reduction.source].reshape(evaluation.setting.continuations, -1)[:, 0]
    first = {int(element): at for at, element in reversed(list(enumerate(winners)))
             if 0 <= element < count and not evaluation.spoiled[at]}
    if len(first) < WINNERS:
        return None
    (a, at), (b, then), *_ = sorted(first.items(), key=lambda item: item[1])
    return flip_at(bodies(problem, reduction, evaluation, count), (a, b), (at, then))


def flip_at(values: np.ndarray, elements: Sequence[int], suffixes: Sequence[int]) -> Table:
    """The table of a maximum or minimum for two elements and two suffixes."""
    corner = tuple(tuple(written(values[row, column]) for column in elements) for row in suffixes)
    return Table(tuple(elements), tuple(suffixes), corner, {})
