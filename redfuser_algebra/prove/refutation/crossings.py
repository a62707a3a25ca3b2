"""The search for crossings: suffixes at which a discrete result jumps, each at a place that the prefix decides.

A count or a position has no slope.  But as one number τ of the suffix grows, the result jumps where some choice
turns, g(x, τ) = 0; what is kept of the prefix must give away every such τ*(x).  If ∂g/∂τ ≠ 0 all along a short
interval, and only that choice turns there, τ* is a smooth function of the prefix with gradient −∇g/∂g/∂τ.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

import numpy as np

from redfuser_algebra.discover.recurrence import is_ordered
from redfuser_algebra.discover.refusal import ROUNDINGS
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.prove.refutation.elements import ALL, OWN, Domain, Shape, crossing_levels, mapped, ramps, skewed, spread, zigzags
from redfuser_algebra.prove.refutation.evaluation import Choice, Evaluation, Unsupported
from redfuser_algebra.prove.refutation.gradient import gradient
from redfuser_algebra.prove.refutation.independence import domains_of
from redfuser_algebra.prove.refutation.numbers import RATIONAL, balls, between_ends, is_finite, working
from redfuser_algebra.prove.refutation.problem import Observation, Problem
from redfuser_algebra.prove.refutation.rank import Basis, certainly_not_zero
from redfuser_algebra.prove.refutation.turns import turns

_HALVINGS = 16
_TURNS = 4
"""In how many parts many jumps are looked at: the first may be enough."""
BITS = 320
"""The precision of the balls that a crossing is certified with."""


@dataclass(frozen=True)
class Jump:
    """The suffix is `still` but for one coordinate, which goes from `low` to `high`; the observation jumps between."""

    still: np.ndarray
    steered: int
    low: Fraction
    high: Fraction
    seen: Observation

    def at(self, value: object) -> np.ndarray:
        """The suffix with the steered coordinate at a value."""
        suffix = self.still.copy()
        suffix[0, self.steered] = value
        return suffix

    @property
    def span(self) -> np.ndarray:
        """The suffix with the whole interval as one ball."""
        return self.at(between_ends(self.low, self.high))


@dataclass(frozen=True)
class Crossed:
    """A prefix, and jumps whose places are independent functions of the columns (element, coordinate)."""

    prefix: np.ndarray
    moving: tuple[int, ...]
    jumps: tuple[Jump, ...]
    columns: tuple[tuple[int, int], ...]


def crossed(problem: Problem, reduction: Reduction) -> Crossed | None:
    """Enough independent crossings of a discrete reduction, seen in the outputs, or None."""
    rounding = any(term.op in ROUNDINGS for term in subterms(reduction.source))
    count, width = problem.order * 2 if rounding else problem.order * 3 // 2, len(problem.coordinates)
    met = False
    for domains, always in [([skewed] * width, True)] if rounding else domains_of(problem):
        plain = list(ramps(count, width, OWN, crossing_levels(count)))
        if is_ordered(reduction.source, problem.axis):
            plain += zigzags(count, width, crossing_levels(count))
        shapes = chain(plain, turns(problem, reduction, domains), *map(spread, plain))
        for shape in shapes if always or not met else ():
            search = _Search(problem, reduction, mapped(shape.prefix, domains), shape, domains)
            found = search.run()
            met = met or search.met
            if found:
                return found
    return None


def is_discrete(problem: Problem, reduction: Reduction) -> bool:
    """Whether a reduction does not change when the elements change a little: a count, a position, a truth."""
    field = RATIONAL if problem.rational else balls(BITS)
    plain = next(ramps(3, len(problem.coordinates), ALL))
    shape = next(spread(plain), plain)
    for domains, _ in domains_of(problem):
        try:
            with working(field):
                suffixes = [mapped(suffix, domains) for suffix in shape.pools[0][:3]]
                return bool(problem.evaluation(field, mapped(shape.prefix, domains), suffixes).number(
                    reduction.source).fixed.all())
        except Unsupported:
            continue
    return False


class _Search:
    """One shape: where the reduction jumps as suffixes grow, until enough of the places are independent."""

    def __init__(self, problem: Problem, reduction: Reduction, prefix: np.ndarray, shape: Shape, domains: list[Domain]) -> None:
        self.problem, self.reduction, self.prefix = problem, reduction, prefix
        self.moving = shape.moving
        self.pools = [[mapped(suffix, domains) for suffix in pool] for pool in shape.pools]
        self.met = False

    def run(self) -> Crossed | None:
        """Enough jumps, certified, or None."""
        basis = Basis(balls(BITS))
        with working(basis.field):
            for pool in self.pools:
                try:
                    jumps = list(self._scanned(pool))
                    for turn in range(_TURNS):
                        if len(basis) < self.problem.order:
                            self._extend(basis, self._narrowed(jumps[turn::_TURNS]))
                except Unsupported:
                    continue
                if len(basis) >= self.problem.order:
                    columns = tuple((column // len(self.moving), self.moving[column % len(self.moving)])
                                    for _, column in basis.pivots)
                    return Crossed(self.prefix, self.moving, tuple(jump for jump, _ in basis.pivots), columns)
        return None

    def _extend(self, basis: Basis, jumps: list[Jump]) -> None:
        """Accept the jumps that are certain; one that cannot be evaluated over its interval spoils no other."""
        if not jumps:
            return
        try:
            rows, kept = certified(self.problem, self.prefix, self.moving, jumps, self.reduction)
        except Unsupported:
            half = len(jumps) // 2
            for part in (jumps[:half], jumps[half:]) if half else ():
                self._extend(basis, part)
            return
        if kept:
            basis.extend(rows, kept, self.problem.order)

    def _values(self, suffixes: Sequence[np.ndarray]) -> tuple[list | None, np.ndarray]:
        return _discrete(self.problem, self.reduction, self.prefix, suffixes)

    def _scanned(self, pool: list[np.ndarray]) -> Iterator[Jump]:
        """Neighbouring values of the steered coordinate between which the reduction changes."""
        seen = self.problem.observations(1, self.reduction.source)
        varied = [at for at in range(pool[0].shape[1]) if len({suffix[0, at] for suffix in pool}) > 1]
        if len(varied) != 1 or not seen:
            return
        pool = sorted(pool, key=lambda suffix: suffix[0, varied[0]])
        values, holds = self._values(pool)
        good = [(suffix, value) for suffix, value, holding in zip(pool, values or [], holds, strict=False) if holding]
        self.met = self.met or bool(good)
        for (before, first), (after, second) in zip(good, good[1:], strict=False):
            if first != second:
                yield Jump(before, varied[0], before[0, varied[0]], after[0, varied[0]], seen[0])

    def _narrowed(self, jumps: list[Jump]) -> list[Jump]:
        """Each interval cut in two again and again, keeping a part over which the reduction changes.

        A cut that meets a tie is made elsewhere the next time.  Steps one after the other widen balls, so that these begin narrower.
        """
        for turn in range((2 if self.problem.behind else 1) * _HALVINGS if jumps else 0):
            cut = Fraction(15, 32) if turn % 4 == 0 else Fraction(1, 2)
            middles = [jump.low + (jump.high - jump.low) * cut for jump in jumps]
            suffixes = [jump.at(value) for jump, middle in zip(jumps, middles, strict=True) for value in (jump.low, middle)]
            values, holds = self._values(suffixes)
            jumps = [jump if not holds[2 * at + 1] else
                     replace(jump, low=middle) if values[2 * at] == values[2 * at + 1] else replace(jump, high=middle)
                     for at, (jump, middle) in enumerate(zip(jumps, middles, strict=True))]
        return jumps


def _discrete(problem: Problem, reduction: Reduction, prefix: np.ndarray, suffixes: Sequence[np.ndarray]) -> tuple[list | None, np.ndarray]:
    """The reduction after each suffix, if it is discrete, and whether it is certain there."""
    evaluation = problem.evaluation(RATIONAL if problem.rational else balls(BITS), prefix, suffixes)
    node = evaluation.number(reduction.source)
    holds = problem.holds(evaluation)
    if not node.fixed.all():
        return None, holds
    values = np.broadcast_to(node.value, (len(suffixes), *node.value.shape[1:])).reshape(len(suffixes), -1)
    return [tuple(map(str, row)) for row in values], holds


def certified(problem: Problem, prefix: np.ndarray, moving: tuple[int, ...], jumps: list[Jump],
              reduction: Reduction) -> tuple[np.ndarray, list[Jump]]:
    """∇g for every jump that is one for certain, over its whole interval, and those jumps.

    Certain: one choice turns in the interval and no other; ∂g/∂τ is not 0 anywhere in it; what is observed on one
    side differs from what is observed on the other; and the reduction differs between the ends.
    """
    field = balls(BITS)
    coordinates = [problem.coordinates[at] for at in moving]
    spans = [jump.span for jump in jumps]
    sides = [problem.evaluation(field, prefix, spans, side, coordinates, moving_suffix=True) for side in (-1, 1)]
    certain = _apart(problem, jumps, sides) & _differ(problem, reduction, prefix, jumps)
    turning = _turning(sides[0], len(jumps)) & _turning(sides[1], len(jumps)) & certain
    rows, kept, part = [], [], problem.part(len(prefix), len(prefix) + len(spans[0]))
    if turning.any():
        slopes = _slopes_of_choices(problem, sides[0])
        for at in np.flatnonzero(turning):
            row = slopes[at, part][:, list(moving)].reshape(-1)
            if certainly_not_zero(slopes[at, 0 if problem.behind else len(prefix), jumps[at].steered]) and all(map(is_finite, row)):
                rows.append(row)
                kept.append(jumps[at])
    return np.array(rows, object).reshape(len(rows), -1 if rows else 0), kept


def _apart(problem: Problem, jumps: list[Jump], sides: list[Evaluation]) -> np.ndarray:
    """Where the observation on one side of the turn certainly differs from that on the other."""
    apart = []
    for at, jump in enumerate(jumps):
        low, high = (problem.observed(side, jump.seen)[at] for side in sides)
        apart.append(bool(low < high or low > high))
    return np.array(apart, bool)


def _differ(problem: Problem, reduction: Reduction, prefix: np.ndarray, jumps: list[Jump]) -> np.ndarray:
    ends = [jump.at(value) for jump in jumps for value in (jump.low, jump.high)]
    values, holds = _discrete(problem, reduction, prefix, ends)
    return np.array([values is not None and values[at] != values[at + 1] and holds[at] and holds[at + 1]
                     for at in range(0, len(ends), 2)], bool)


def _turning(evaluation: Evaluation, count: int) -> np.ndarray:
    """Where exactly one pair of numbers is compared that cannot be told apart (in one formula or several)."""
    pairs: list[set[object]] = [set() for _ in range(count)]
    for choice in evaluation.choices:
        for at, place in _open_places(choice, count):
            pairs[at].add((choice.compared, place))
    return np.array([len(found) == 1 for found in pairs], bool)


def _open_places(choice: Choice, count: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    for place in np.argwhere(np.broadcast_to(choice.open, (count, *choice.open.shape[1:]))):
        yield int(place[0]), tuple(map(int, place[1:]))


def _slopes_of_choices(problem: Problem, evaluation: Evaluation) -> np.ndarray:
    """∇g per continuation; a pair compared by several formulas counts once."""
    seeds, seen = [], set()
    for choice in evaluation.choices:
        key = (choice.compared, choice.open.tobytes())
        if key not in seen:
            seen.add(key)
            seeds += choice.seeds
    return problem.by_coordinate(evaluation, gradient(evaluation, seeds))
