"""The search for independent observations: prefixes and suffixes whose exact Jacobian has full rank.

In: a problem and the reduction that was refused.  Out: `Found`, the rows and columns of a nonsingular Jacobian.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from redfuser_algebra.discover.facts import NEGATIVE, NONNEGATIVE, NONPOSITIVE, POSITIVE, Facts
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.refutation.elements import (
    Domain, Shape, circles, finer, mapped, negative, opposed, pairs, positive, ramps, real, shifted, unit)
from redfuser_algebra.prove.refutation.envelope import SELECTING, envelopes, wins
from redfuser_algebra.prove.refutation.evaluation import Evaluation, Unsupported
from redfuser_algebra.prove.refutation.numbers import RATIONAL, Field, balls, is_finite, working
from redfuser_algebra.prove.refutation.problem import Observation, Problem
from redfuser_algebra.prove.refutation.rank import Basis

SPARE = 2
"""Elements of a prefix beyond the order that is asked for."""

_CHUNK, _SEEN = 36, 4
_BITS = (640, 1536)
_PROMISING = 6


@dataclass(frozen=True)
class Row:
    """One observation after one suffix."""

    suffix: np.ndarray
    seen: Observation


@dataclass(frozen=True)
class Found:
    """A prefix, and rows and columns (element, coordinate) of its Jacobian that are certainly independent."""

    field: Field
    prefix: np.ndarray
    moving: tuple[int, ...]
    rows: tuple[Row, ...]
    columns: tuple[tuple[int, int], ...]


class Effort:
    """How much may still be computed, in entries of arrays: the same question gets the same answer on any machine."""

    def __init__(self, entries: int) -> None:
        self.left = entries

    @property
    def over(self) -> bool:
        """Whether nothing new should be started."""
        return self.left <= 0

    def spend(self, evaluation: Evaluation, sweeps: int = 0) -> None:
        """Take note of an evaluation and of sweeps back through it."""
        entries = sum(node.value.size for node in evaluation.nodes.values())
        self.left -= entries * (1 + sweeps) * (1 + evaluation.field.bits // _BITS[0])


def independent(problem: Problem, reduction: Reduction, effort: Effort) -> Found | None:
    """Independent observations of outputs that depend on `reduction`, or None."""
    for domains in domains_of(problem):
        met = False
        for shape in _shapes(problem, reduction, domains):
            trial = Trial(problem, reduction.source, shape, domains, effort)
            found = trial.run()
            if shape.scalable and not problem.rational and trial.best >= _PROMISING and not (found or effort.over):
                found = Trial(problem, reduction.source, shape, list(map(finer, domains)), effort).run(_BITS)
            met = met or trial.valid > 0
            if found or effort.over:
                return found
        if met:
            return None
    return None


def domains_of(problem: Problem) -> Iterator[list[Domain]]:
    """Where to draw from: what was declared; then away from kinks at whole numbers; then positive numbers; then 0 to 1."""
    facts = Facts(problem.axis, problem.cascade.reductions, problem.assume)
    signs = [facts.sign(Expr("input", (), (name, problem.inputs[name]))) for name, _ in problem.coordinates]
    by_sign = {POSITIVE: positive, NONNEGATIVE: positive, NEGATIVE: negative, NONPOSITIVE: negative}
    declared = [by_sign.get(sign, real) for sign in signs]
    yield declared
    yield [shifted if domain is real else domain for domain in declared]
    yield [positive] * len(signs)
    yield [unit] * len(signs)


def _shapes(problem: Problem, reduction: Reduction, domains: list[Domain]) -> Iterator[Shape]:
    width, count = len(problem.coordinates), problem.order + SPARE
    yield from ramps(count, width, together=False)
    if reduction.monoid in SELECTING:
        made = chain(opposed(count, width), circles(count, width), envelopes(problem, reduction, count, domains))
        yield from (shape for shape in made if wins(problem, reduction, shape, domains))
    if width > 1:
        yield from ramps(count, width, together=True)
    yield from ramps(2 * count, width, together=True)
    yield from pairs(count, width)
    yield from circles(count, width)


class Trial:
    """One shape: observations after its suffixes, until enough are independent or no more turn up."""

    def __init__(self, problem: Problem, of: Expr, shape: Shape, domains: list[Domain], effort: Effort) -> None:
        self.problem, self.of, self.shape, self.effort = problem, of, shape, effort
        self.prefix = mapped(shape.prefix, domains)
        self.pools = [[mapped(suffix, domains) for suffix in pool] for pool in shape.pools]
        self.valid = self.best = 0

    def run(self, precisions: tuple[int, ...] = _BITS[:1]) -> Found | None:
        """Rationals if they will do; then balls, more precise ones only if the first ones got somewhere."""
        if self.problem.rational:
            try:
                return self._found(RATIONAL)
            except Unsupported:
                pass
        for bits in precisions:
            try:
                basis = self._basis(balls(bits))
            except Unsupported:
                return None
            self.best = len(basis)
            if len(basis) >= self.problem.order or len(basis) < _PROMISING or self.effort.over:
                return self._from(basis)
        return None

    def _found(self, field: Field) -> Found | None:
        return self._from(self._basis(field))

    def _from(self, basis: Basis) -> Found | None:
        if len(basis) < self.problem.order:
            return None
        moving = self.shape.moving or tuple(range(self.prefix.shape[1]))
        columns = tuple((column // len(moving), moving[column % len(moving)]) for _, column in basis.pivots)
        return Found(basis.field, self.prefix, moving, tuple(row for row, _ in basis.pivots), columns)

    def _basis(self, field: Field) -> Basis:
        basis = Basis(field)
        with working(field):
            for pool in self.pools:
                for start in range(0, len(pool), _CHUNK):
                    before = len(basis)
                    rows, labels = self._rows(field, pool[start:start + _CHUNK])
                    if labels:
                        basis.extend(rows, labels, self.problem.order)
                    if len(basis) >= self.problem.order or self.effort.over:
                        return basis
                    if len(basis) == before:
                        break
        return basis

    def _rows(self, field: Field, suffixes: list[np.ndarray]) -> tuple[np.ndarray, list[Row]]:
        """The derivatives of each observation after each suffix that meets no tie and breaks no assumption."""
        problem = self.problem
        moving = [problem.coordinates[at] for at in self.shape.moving]
        evaluation = problem.evaluation(field, self.prefix, suffixes, moving=moving)
        rows, labels = [], []
        observations = problem.observations(len(suffixes[0]), self.of)[:_SEEN]
        for seen in observations:
            slopes = problem.slopes(evaluation, seen)[:, :len(self.prefix), list(self.shape.moving) or slice(None)]
            flat = slopes.reshape(len(suffixes), -1)
            for at in np.flatnonzero(problem.holds(evaluation)):
                if all(map(is_finite, flat[at])):
                    rows.append(flat[at])
                    labels.append(Row(suffixes[at], seen))
        self.valid += len(rows)
        self.effort.spend(evaluation, len(observations))
        return np.array(rows, object).reshape(len(rows), -1 if rows else 0), labels
