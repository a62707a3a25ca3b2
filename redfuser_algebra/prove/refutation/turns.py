"""Suffixes found by looking: between two after which the conditions of a reduction hold for different elements, one more.

In: a reduction that chooses among elements.  Out: shapes whose suffixes all let other elements of the prefix through.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.prove.refutation.elements import Domain, Shape, Steered, mapped, ridges
from redfuser_algebra.prove.refutation.evaluation import Unsupported
from redfuser_algebra.prove.refutation.numbers import balls, working
from redfuser_algebra.prove.refutation.problem import Problem
from redfuser_algebra.prove.refutation.reason import answers, choices

_BITS, _HALVINGS, _PATIENCE, _MOST = 128, 14, 7, 64
_MANY = 10
"""Among so many that steer, of each that is asked for, a shorter prefix will do."""
_START = sorted({Fraction(64, 63) + sign * Fraction(2) ** k for k in range(-5, 7) for sign in (-1, 1)})
_CUTS = (Fraction(1, 2), Fraction(15, 32))
"""Where an interval is cut: a tie in its middle is one no more at the next turn."""


def turns(problem: Problem, reduction: Reduction, domains: list[Domain], often: int = 1) -> Iterator[Shape]:
    """Shapes whose suffixes of `often` elements give different answers; none where nothing is asked, or too few are found."""
    asked = choices(reduction.source, problem.axis)
    count = 2 * problem.order if often < _MANY * problem.order else problem.order * 4 // 3
    for shape, steered in ridges(count, len(problem.coordinates), often) if asked else ():
        values = _Looking(problem, asked, mapped(shape.prefix, domains), steered, domains).values()
        if len(values) >= problem.order:
            yield Shape(shape.prefix, ([steered(value) for value in values],), shape.moving)


class _Looking:
    """One prefix and one way to steer: the answers after each value that was looked at."""

    def __init__(self, problem: Problem, asked: Sequence, prefix: np.ndarray, steered: Steered, domains: list[Domain]) -> None:
        self.problem, self.asked, self.prefix = problem, asked, prefix
        self.suffix = lambda value: mapped(steered(value), domains)
        self.seen: dict[Fraction, bytes] = {}

    def values(self) -> list[Fraction]:
        """One value for each different answer, as they come along the line."""
        try:
            self._look(_START)
            known: list[int] = []
            for turn in range(_HALVINGS):
                places, cut = sorted(self.seen), _CUTS[turn % 2]
                between = [a + (b - a) * cut for a, b in zip(places, places[1:], strict=False) if self.seen[a] != self.seen[b]]
                known.append(len(set(self.seen.values())))
                if not between or known[-1] >= _MOST or known[-_PATIENCE:-_PATIENCE + 1] == known[-1:]:
                    break
                self._look(between[:_MOST])
        except Unsupported:
            return []
        return list({self.seen[value]: value for value in sorted(self.seen)}.values())

    def _look(self, values: Sequence[Fraction]) -> None:
        with working(balls(_BITS)):
            evaluation = self.problem.evaluation(balls(_BITS), self.prefix, [self.suffix(value) for value in values])
            for output in self.problem.outputs:
                evaluation.node(output)
            holds = self.problem.holds(evaluation)
        found = [answers(self.problem, evaluation, term, len(self.prefix)) for term in self.asked]
        for at, value in enumerate(values):
            if holds[at]:
                self.seen[value] = b"".join(each[at].tobytes() for each in found if each is not None)
