"""Elements that each win a maximum (or minimum) at a pivot of their own: an envelope with as many lines as wanted.

Near one element the body is linear: F(x; p) ≈ F(x₀; p) + g(p)·(x − x₀).  If the direction of g turns as suffixes move
the pivot, then elements along a parabola in the plane in which it turns win one after the other.  Only the plane and
the directions are found here, in low precision; whether the elements win is for exact arithmetic to say.
"""
from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations

import numpy as np

from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.prove.refutation.elements import Domain, Shape, all_steerings, between, mapped, still
from redfuser_algebra.prove.refutation.evaluation import Evaluation, Unsupported
from redfuser_algebra.prove.refutation.gradient import gradient
from redfuser_algebra.prove.refutation.numbers import balls, working
from redfuser_algebra.prove.refutation.problem import Problem

SELECTING = {"max": 1, "fmax": 1, "argmax": 1, "topk": 1, "argtopk": 1, "min": -1, "fmin": -1, "argmin": -1}
"""Reductions that pick an element: 1 for the largest, −1 for the smallest."""

_SCALES = tuple(Fraction(1, scale) for scale in (16, 256, 1, 4096))
_LEAST_TURN = 1e-9
_AHEAD, _PLANES = 4, 2
_LOW, _LOOKS = 64, 36

WINNERS = 6
"""Elements that win, before an envelope is taken seriously."""


def envelopes(problem: Problem, reduction: Reduction, count: int, domains: list[Domain]) -> Iterator[Shape]:
    """Shapes whose elements should win one after the other; flatter and flatter parabolas.

    The elements start out ahead of any suffix, by `_AHEAD` in the coordinate that is not steered.
    """
    width = len(problem.coordinates)
    pools = all_steerings(count, width)
    suffixes = [mapped(suffix, domains) for pool in pools for suffix in pool]
    directions = _directions(problem, reduction, mapped(still(count, width), domains), suffixes)
    for slope, offset, sign in _planes(directions, count):
        better = sign * SELECTING[reduction.monoid]
        base = still(count, width)
        base[:, offset] += _AHEAD * better
        turning = _directions(problem, reduction, mapped(base, domains), suffixes, only_behind=True)
        turns, _ = _turns(turning, slope, offset, count)
        for scale in _SCALES if turns else ():
            steps = np.array(_parabola(turns, scale * better), object)
            prefix = base.copy()
            prefix[:, [slope, offset]] += steps
            yield Shape(prefix, pools)


def wins(problem: Problem, reduction: Reduction, shape: Shape, domains: list[Domain]) -> bool:
    """Whether several elements of a shape seem to win; in low precision, to save looking closer."""
    field = balls(_LOW)
    looks = [suffix for pool in shape.pools for suffix in pool[:_LOOKS]]
    prefix, suffixes = mapped(shape.prefix, domains), [mapped(suffix, domains) for suffix in looks]
    with working(field):
        try:
            evaluation = problem.evaluation(field, prefix, suffixes)
            evaluation.node(reduction.source)
        except Unsupported:
            return False
    winners = set(np.unique(evaluation.picked[reduction.source]))
    return len(winners & set(range(len(prefix)))) >= WINNERS


def _directions(problem: Problem, reduction: Reduction, prefix: np.ndarray, suffixes: list[np.ndarray],
                only_behind: bool = False) -> np.ndarray:
    """g(p) for each suffix (that does not win itself): how the body of one element changes with that element alone."""
    field = balls(_LOW)
    with working(field):
        evaluation = problem.evaluation(field, prefix, suffixes)
        body = reduction.source.body
        node = evaluation.number(body)
        if node.value.shape[evaluation.setting.dim(problem.axis)] == 1:
            return np.zeros((0, prefix.shape[1]))
        seeds = [(body, _difference(evaluation, problem, node.value))]
        found = problem.by_coordinate(evaluation, gradient(evaluation, seeds))
        evaluation.node(reduction.source)
    won = evaluation.picked[reduction.source]
    behind = np.broadcast_to(won.reshape(len(won), -1)[:, 0], len(suffixes)) < len(prefix)
    slopes = np.asarray(np.frompyfunc(float, 1, 1)(found[:, 0] - found[:, 2])).astype(float) / 2
    return slopes[behind] if only_behind else slopes


def _difference(evaluation: Evaluation, problem: Problem, value: np.ndarray) -> np.ndarray:
    """+1 on the first element's body, −1 on the third's: what both owe to the pivots cancels."""
    seed = np.full((evaluation.setting.continuations, *value.shape[1:]), evaluation.zero, object)
    first = (slice(None), *(slice(0, 1) if axis == problem.axis else 0 for axis in problem.axes))
    third = (slice(None), *(slice(2, 3) if axis == problem.axis else 0 for axis in problem.axes))
    seed[first], seed[third] = evaluation.one, -evaluation.one
    return seed


def _planes(directions: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """Pairs of coordinates (slope, offset) in which the direction turns, most first, with the offset's sign."""
    found = []
    for offset, slope in permutations(range(directions.shape[1]), 2):
        turns, sign = _turns(directions, slope, offset, count)
        if turns:
            found.append((turns[-1] - turns[0], slope, offset, sign))
    return [plane[1:] for plane in sorted(found, reverse=True)[:_PLANES]]


def _turns(directions: np.ndarray, slope: int, offset: int, count: int) -> tuple[list[float], int]:
    """The ratios slope : offset of the direction, `count` of them, well apart, where the offset has its usual sign."""
    finite = directions[np.isfinite(directions).all(axis=1)]
    sign = 1 if 2 * (finite[:, offset] > 0).sum() >= len(finite) else -1
    usual = finite[finite[:, offset] * sign > 0]
    with np.errstate(over="ignore"):
        ratios = np.unique(usual[:, slope] / usual[:, offset])
    return _spread(ratios[np.isfinite(ratios)], count), sign


def _spread(ratios: np.ndarray, count: int) -> list[float]:
    """`count` of the ratios, as evenly spread as they allow; none if there are too few that differ."""
    span = ratios[-1] - ratios[0] if len(ratios) else 0.0
    for parts in (2 * count, 8 * count, 64 * count):
        kept: list[float] = []
        for ratio in ratios:
            if not kept or ratio - kept[-1] > max(span / parts, _LEAST_TURN):
                kept.append(ratio)
        if len(kept) >= count:
            chosen = np.linspace(0, len(kept) - 1, count).round().astype(int)
            return [float(kept[at]) for at in chosen]
    return []


def _parabola(turns: list[float], scale: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Steps (a, b) such that a·ρ + b, times the sign of `scale`, is largest for the element whose turn ρ is."""
    steps = [(Fraction(0), Fraction(0))]
    for turning in between(turns):
        steps.append((steps[-1][0] + scale, steps[-1][1] - scale * turning))
    return steps
