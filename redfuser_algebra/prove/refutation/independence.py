"""The search for independent observations: prefixes and suffixes whose exact Jacobian has full rank.

In: a problem and the reduction that was refused.  Out: `Found`, the rows and columns of a nonsingular Jacobian.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np

from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.prove.refutation.elements import (
    ALL, OTHERS, OWN, Domain, Shape, centred, circles, crowds, far_pads, finer, flights, geometric, geometric_negative, geometric_unit,
    hitting_levels, mapped, negative, negative_unit, opposed, pads, pairs, positive, ramps, real, scaled, shifted, spread, unit,
    walks)
from redfuser_algebra.prove.refutation.envelope import SELECTING, envelopes, wins
from redfuser_algebra.prove.refutation.evaluation import Unsupported
from redfuser_algebra.prove.refutation.numbers import RATIONAL, Field, balls, is_finite, working
from redfuser_algebra.prove.refutation.problem import Observation, Problem
from redfuser_algebra.prove.refutation.rank import Basis
from redfuser_algebra.prove.refutation.turns import turns

SPARE = 2
"""Elements of a prefix beyond the order that is asked for."""

_CHUNK, _SEEN, _LOOKS = 36, 4, 8
_BITS = (640, 1536, 8192)
_PROMISING = 6
_FAR = 26
"""How many times as long a suffix is that moves ranks by less than its length: to a twentieth of the elements and back."""
_CROWDS = (6, 14)
"""How many elements steer together, of each that is asked for."""
_POWERS = {positive: geometric, negative: geometric_negative, unit: geometric_unit}
_SAMPLES = tuple(map(Fraction, (-100, -2, 0, 1, 3, 100)))


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


def independent(problem: Problem, reduction: Reduction) -> Found | None:
    """Independent observations of outputs that depend on `reduction`, or None."""
    refined = _PROMISING - 1
    for shape, domains in _plan(problem, reduction):
        trial = Trial(problem, reduction.source, shape, domains)
        found = trial.run()
        if trial.best > refined and shape.scalable and not (found or problem.rational):
            refined = trial.best
            closer = Trial(problem, reduction.source, shape, list(map(finer, domains)))
            found = closer.run() or next(filter(None, (max(trial, closer, key=lambda each: each.best).run(bits)
                                                       for bits in (_BITS[1:] if problem.behind else _BITS[1:2]))), None)
        if found:
            return found
    return None


def _plan(problem: Problem, reduction: Reduction) -> Iterator[tuple[Shape, list[Domain]]]:
    """What to try, in order: the simple shapes in every domain that has values, then the others there."""
    used = []
    for domains, always in domains_of(problem):
        if not used or always:
            shapes = list(_simple(problem, domains))
            fields = (RATIONAL, balls(_BITS[0])) if problem.rational else (balls(_BITS[0]),)
            if any(_has_values(problem, shape, domains, field) for field in fields for shape in (shapes[0], *spread(shapes[0]))):
                used.append(domains)
                yield from ((shape, domains) for shape in shapes)
    yield from ((shape, used[0]) for shape in turns(problem, reduction, used[0])) if used else ()
    for domains in used:
        yield from ((shape, domains) for shape in _others(problem, reduction, domains))
    for often in _CROWDS if used and not problem.growing else ():
        yield from ((shape, used[0]) for shape in turns(problem, reduction, used[0], often * problem.order))
    for domains in used:
        yield from ((made, domains) for shape in _simple(problem, domains) for made in spread(shape))


def _has_values(problem: Problem, shape: Shape, domains: list[Domain], field: Field) -> bool:
    """Whether the operator has a certain value after some suffix of a shape."""
    suffixes = [mapped(suffix, domains) for pool in shape.pools for suffix in pool[:_LOOKS]]
    with working(field):
        try:
            moving = [problem.coordinates[at] for at in shape.moving]
            evaluation = problem.evaluation(field, mapped(shape.prefix, domains), suffixes, moving=moving)
            values = [evaluation.number(output).value for output in problem.outputs]
        except Unsupported:
            return False
    finite = [np.asarray(np.frompyfunc(is_finite, 1, 1)(value)).astype(bool) for value in values]
    rows = [np.broadcast_to(each.reshape(len(each), -1).all(axis=1), len(suffixes)) for each in finite]
    return bool((np.logical_and.reduce(rows) & problem.holds(evaluation)).any())


def domains_of(problem: Problem) -> Iterator[tuple[list[Domain], bool]]:
    """Where to draw from, and whether also when an earlier domain has led to values.

    What was declared; then away from kinks at whole numbers; then, for what is positive, on a scale of powers; then
    positive numbers and numbers between 0 and 1, though nothing was declared.
    """
    declared = [_declared(problem, at) for at in range(len(problem.coordinates))]
    yield declared, True
    yield [shifted if domain is real else domain for domain in declared], False
    if {*_POWERS} & {*declared}:
        yield [_POWERS.get(domain, domain) for domain in declared], True
    yield [positive if domain is real else domain for domain in declared], False
    yield [unit if domain is real else domain for domain in declared], False


def _declared(problem: Problem, at: int) -> Domain:
    """The widest domain of a coordinate for which the conditions on its input alone hold."""
    name = problem.coordinates[at][0]
    own = [condition for condition in problem.assume if _inputs(condition) == {name}]
    return next((domain for domain in (real, positive, unit, negative, negative_unit) if _hold(problem, own, domain)), real)


def _inputs(condition: Expr) -> set[str]:
    return {term.name for term in subterms(condition) if term.op == "input"}


def _hold(problem: Problem, conditions: list[Expr], domain: Domain) -> bool:
    """Whether conditions hold for some numbers of a domain, small and large."""
    if not conditions:
        return True
    width = len(problem.coordinates)
    some = mapped(np.array([[value] * width for value in _SAMPLES], object), [domain] * width)
    field = balls(_BITS[0])
    with working(field):
        evaluation = problem.evaluation(field, some[:-1], [some[-1:]])
        return all(evaluation.truth(condition).all() for condition in conditions) and not evaluation.spoiled.any()


def _simple(problem: Problem, domains: list[Domain]) -> Iterator[Shape]:
    width, count = len(problem.coordinates), problem.order + SPARE
    if problem.ranked and any(term.op == "scan" for term in subterms(*problem.outputs)):
        yield from scaled(2 * count, width)
    if problem.rational and len(problem.ranked) > 1:
        yield from centred(count, width)
    if problem.ranked:
        yield from chain(pads(count, width), ramps(count, width, OTHERS) if width > 1 else (), pads(count, width, 2))
    if problem.copies:
        yield from flights(count, width)
    yield from ramps(count, width, OWN)
    if problem.behind:
        yield from walks(count, width)
    if {positive, negative, unit, negative_unit} & {*domains}:
        yield from crowds(count, width)


def _others(problem: Problem, reduction: Reduction, domains: list[Domain]) -> Iterator[Shape]:
    width, count = len(problem.coordinates), problem.order + SPARE
    if reduction.monoid in SELECTING:
        made = chain(opposed(count, width), circles(count, width), envelopes(problem, reduction, count, domains))
        yield from (shape for shape in made if wins(problem, reduction, shape, domains))
    if width > 1:
        yield from ramps(count, width, OTHERS, hitting_levels(count))
        if any(part.op == "log2" for part in subterms(reduction.body)):
            yield from ramps(count, width, OTHERS, hitting_levels(2 * count), step=2)
        yield from ramps(count, width, ALL)
    yield from ramps(2 * count, width, ALL)
    yield from pairs(count, width)
    yield from circles(count, width)
    if width > 1 and any(part.op == "round" for part in subterms(reduction.body)):
        yield from ramps(2 * count, width, OTHERS)
    if problem.growing:
        yield from far_pads(count, width, _FAR)


class Trial:
    """One shape: observations after its suffixes, until enough are independent or no more turn up."""

    def __init__(self, problem: Problem, of: Expr, shape: Shape, domains: list[Domain]) -> None:
        self.problem, self.of, self.shape = problem, of, shape
        self.prefix = mapped(shape.prefix, domains)
        self.pools = [[mapped(suffix, domains) for suffix in pool] for pool in shape.pools]
        self.best = 0

    def run(self, bits: int = _BITS[0]) -> Found | None:
        """Rationals if they will do; then balls of this precision."""
        if self.problem.rational:
            try:
                return self._from(self._basis(RATIONAL))
            except Unsupported:
                pass
        try:
            return self._from(self._basis(balls(bits)))
        except Unsupported:
            return None

    def _from(self, basis: Basis) -> Found | None:
        self.best = len(basis)
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
                    if len(basis) >= self.problem.order:
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
            part = problem.part(len(self.prefix), len(self.prefix) + len(suffixes[0]))
            slopes = problem.slopes(evaluation, seen)[:, part, list(self.shape.moving) or slice(None)]
            flat = slopes.reshape(len(suffixes), -1)
            for at in np.flatnonzero(problem.holds(evaluation)):
                if all(map(is_finite, flat[at])):
                    rows.append(flat[at])
                    labels.append(Row(suffixes[at], seen))
        return np.array(rows, object).reshape(len(rows), -1 if rows else 0), labels
