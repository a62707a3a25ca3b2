"""Operators that see elements only by comparing them, and suffixes that tell their prefixes apart.

If all that happens to elements is that they are compared with each other and with constants, chosen and counted, what
comes out depends on their order pattern alone: it is a number, or one of the elements.  So one evaluation in exact
fractions settles a whole cell: all elements that stand in the same order.  In: a problem.  Out: `Told`, a prefix with
numbers each of which decides what comes out as an element of a suffix is a little less, as large, or a little larger.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, const, substitute, subterms, unbound_states
from redfuser_algebra.prove.refutation.bounded import FEW
from redfuser_algebra.prove.refutation.elements import mapped, stairs
from redfuser_algebra.prove.refutation.evaluation import Evaluation, Unsupported
from redfuser_algebra.prove.refutation.gradient import evaluated
from redfuser_algebra.prove.refutation.independence import SPARE, domains_of
from redfuser_algebra.prove.refutation.numbers import RATIONAL
from redfuser_algebra.prove.refutation.problem import Observation, Problem

_COUNTED, _ELEMENT = "counted", "element"
"""A value that the order pattern decides; one of the elements, and the pattern decides which.  A constant is both."""
Kinds = frozenset[str]
_NEITHER: Kinds = frozenset()
_BOTH: Kinds = frozenset((_COUNTED, _ELEMENT))
_SELECTING = ("max", "min", "fmax", "fmin", "topk", "argmax", "argmin", "argtopk")
_SIDES = (-1, 0, 1)
_BOUNDING = COMPARISONS | {"maximum", "minimum"}
_NEAR, _APART = 8, 2
"""The steered number comes as close as this part of the smallest distance between numbers; elements further apart than that are two."""
_FAMILY = 4000
"""What a family costs in entries of arrays, however few numbers it is tried with."""


@dataclass(frozen=True)
class Steering:
    """Suffixes in which one number is a little less than a number of the prefix, equal to it, and a little more; what is looked at."""

    suffixes: tuple[np.ndarray, np.ndarray, np.ndarray]
    seen: Observation


@dataclass(frozen=True)
class Told:
    """A prefix, and for each of some numbers of it (element, coordinate) suffixes that tell it."""

    prefix: np.ndarray
    columns: tuple[tuple[int, int], ...]
    steerings: tuple[Steering, ...]


def seen_by_order(problem: Problem) -> bool:
    """Whether the order pattern of the elements decides every output, and whether the elements are allowed."""
    known: dict[Expr, Kinds] = {}
    return all(_kinds(term, known, {}) for term in problem.outputs) and all(
        _COUNTED in _kinds(term, known, {}) for term in problem.assume)


def _kinds(term: Expr, known: dict[Expr, Kinds], states: dict[str, Kinds]) -> Kinds:
    if term.op == "state":
        return states[term.name]
    if term not in known or states:
        found = _of_scan(term, known, states) if term.op == "scan" else _of_term(
            term, [_kinds(arg, known, states) for arg in term.args])
        if states:
            return found
        known[term] = found
    return known[term]


def _of_scan(scan: Expr, known: dict[Expr, Kinds], states: dict[str, Kinds]) -> Kinds:
    """The kinds that the states have at the start and keep at every step."""
    _, names, place, _ = scan.attrs
    own = dict(zip(names, (_kinds(start, known, states) for start in scan.args[:len(names)]), strict=True))
    while True:
        inner = states | own
        after = {name: own[name] & _kinds(step, known, inner) for name, step in zip(names, scan.args[len(names):], strict=True)}
        if after == own:
            return own[names[place]]
        own = after


def _of_term(term: Expr, args: list[Kinds]) -> Kinds:
    if term.op in ("input", "const", "param"):
        return frozenset((_ELEMENT,)) if term.op == "input" or _is_infinite(term) else _BOTH
    alike = frozenset.intersection(*args) if args else frozenset((_COUNTED,))
    if term.op in COMPARISONS:
        return frozenset((_COUNTED,)) if alike else _NEITHER
    if term.op in ("maximum", "minimum"):
        return alike
    if term.op == "where":
        return args[1] & args[2] if _COUNTED in args[0] else _NEITHER
    if term.op == "reduce" and term.monoid in _SELECTING:
        rest = _COUNTED in frozenset.intersection(_BOTH, *args[1:])
        return _NEITHER if not rest else frozenset((_COUNTED,)) if args[0] and MONOIDS[term.monoid].indexed else args[0]
    return frozenset((_COUNTED,)) if _COUNTED in alike else _NEITHER


def limit(problem: Problem) -> Fraction:
    """The largest constant that a number of elements is compared with: as many of them may be all that a state keeps."""
    known: dict[Expr, Kinds] = {}
    compared = [term for term in subterms(*problem.outputs) if term.op in _BOUNDING
                and any(unbound_states(arg) or _kinds(arg, known, {}) == {_COUNTED} for arg in term.args)]
    return max((_largest(arg, problem) for term in compared for arg in term.args), default=Fraction(0))


def _largest(term: Expr, problem: Problem) -> Fraction:
    """The largest constant or parameter of a number, but for those of what is reduced in it."""
    if term.op == "const":
        return abs(Fraction(term.value)) if abs(term.value) < float("inf") else Fraction(0)
    if term.op == "param":
        return abs(problem.params[term.name])
    return Fraction(0) if term.op in ("reduce", "scan") else max((_largest(arg, problem) for arg in term.args), default=Fraction(0))


def told_apart(problem: Problem, reduction: Reduction) -> Told | None:
    """A prefix with as many numbers as are asked for, each of them told by suffixes of its own; or None.

    Nothing is said where elements are counted up to a constant, such as the last 30 or the 30 first to differ.
    """
    if limit(problem) > FEW:
        return None
    count, width = problem.order + SPARE, len(problem.coordinates)
    for (domains, _), shape in product(domains_of(problem), stairs(count, width)):
        prefix = mapped(shape, domains)
        for coordinate, family in product(range(width), _families(count, width)) if _gap(problem, prefix) else ():
            found = _told_by(problem, reduction, prefix, coordinate, family)
            if found:
                return found
    return None


def _told_by(problem: Problem, reduction: Reduction, prefix: np.ndarray, coordinate: int, family: _Family) -> Told | None:
    """The numbers of one coordinate that suffixes of one family tell, if they are enough; one of them is tried first."""
    seen, gap = problem.observations(1, reduction.source)[:1], _gap(problem, prefix)
    columns = [(at, coordinate) for at in range(len(prefix))]

    def steered(some: Sequence[tuple[int, int]]) -> list[Steering]:
        return [Steering(_suffixes(prefix, *column, family, gap), each) for column in some for each in seen]

    problem.effort.spend(_FAMILY)
    middle = len(prefix) // 2
    if not any(told(problem, prefix, steered(columns[middle:middle + 1]))):
        return None
    steerings = steered(columns)
    good = [at for at, is_told in enumerate(told(problem, prefix, steerings)) if is_told]
    return Told(prefix, tuple(columns[at] for at in good), tuple(steerings[at] for at in good)) if len(good) >= problem.order else None


def told(problem: Problem, prefix: np.ndarray, steerings: Sequence[Steering]) -> list[bool]:
    """Whether what is seen differs between the three suffixes of each steering, for all prefixes in the same order.

    Where one of the elements comes out, it differs if it is another element, not if it is the same one and close.
    """
    suffixes = [suffix for steering in steerings for suffix in steering.suffixes]
    problem = _without_infinities(problem, max((abs(value) for part in (prefix, *suffixes) for value in part.flat), default=Fraction(0)))
    try:
        evaluation = _exactly(problem, prefix, suffixes)
        values = [problem.observed(evaluation, steering.seen)[len(_SIDES) * at:len(_SIDES) * (at + 1)] for at, steering in enumerate(steerings)]
        holds = problem.holds(evaluation).reshape(-1, len(_SIDES)).all(axis=1)
    except Unsupported:
        return [False] * len(steerings)
    near = RATIONAL.number(_gap(problem, prefix) / _APART)
    counted = [_COUNTED in _kinds(output, {}, {}) for output in problem.outputs]
    return [bool(hold) and bool(max(value) - min(value) > (0 if counted[steering.seen.output] else near))
            for hold, steering, value in zip(holds, steerings, values, strict=True)]


def _is_infinite(term: Expr) -> bool:
    return term.op == "const" and abs(term.value) == float("inf")


def _without_infinities(problem: Problem, largest: Fraction) -> Problem:
    """The problem with numbers beyond all others where it has infinities: these are compared and chosen, and no more."""
    terms = subterms(*problem.outputs, *problem.assume)
    constants = [Fraction(term.value) for term in terms if term.op == "const" and abs(term.value) < float("inf")]
    fixed = [*constants, *problem.params.values(), *(value for _, values in problem.others.values() for value in values.flat)]
    beyond = 1 + int(max(map(abs, fixed), default=0) + largest)
    instead = {term: const(beyond if term.value > 0 else -beyond) for term in terms if _is_infinite(term)}
    outputs, assume = (tuple(substitute(term, instead) for term in some) for some in (problem.outputs, problem.assume))
    return replace(problem, outputs=outputs, assume=assume) if instead else problem


def _exactly(problem: Problem, prefix: np.ndarray, suffixes: Sequence[np.ndarray]) -> Evaluation:
    """The outputs for these numbers and no others: equal ones are equal."""
    setting = problem.evaluation(RATIONAL, prefix, suffixes).setting
    evaluation = evaluated(replace(setting, moving={name: np.zeros_like(moves) for name, moves in setting.moving.items()}))
    for output in problem.outputs:
        evaluation.number(output)
    return evaluation


def _gap(problem: Problem, prefix: np.ndarray) -> Fraction:
    """The smallest distance of the prefix's numbers from each other and from all that is fixed; 0 where two are equal."""
    constants = {Fraction(term.value) for term in subterms(*problem.outputs, *problem.assume)
                 if term.op == "const" and abs(term.value) < float("inf")}
    fixed = constants.union(problem.params.values(), *(values.flat for _, values in problem.others.values()))
    numbers = sorted([*prefix.flat, *fixed])
    return min(after - before for before, after in zip(numbers, numbers[1:], strict=False))


@dataclass(frozen=True)
class _Family:
    """How a suffix is made about a number: which coordinate of its first element is near it, where the others are, what follows."""

    steered: int
    others: tuple[str, ...]
    follows: str
    count: int


def _families(count: int, width: int) -> Iterator[_Family]:
    """One element; then many that are equal; then one, and many a little above it that grow, or below it that fall."""
    for follows, number in (("", 0), ("alike", count - 2), ("rising", count), ("falling", count)):
        for others in product(("above", "below", "high", "low"), repeat=width - 1):
            for steered in range(width):
                yield _Family(steered, others, follows, number)


def _suffixes(prefix: np.ndarray, at: int, coordinate: int, family: _Family,
              gap: Fraction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The suffixes about one number of the prefix."""
    number = prefix[at, coordinate]
    places = {"above": number + gap / 4, "below": number - gap / 4, "high": max(prefix.flat) + gap, "low": min(prefix.flat) - gap}
    first = [places[place] for place in family.others]
    first.insert(family.steered, number)
    made = []
    for side in _SIDES:
        steered = np.array([first] * (1 + family.count), object)
        moves = 1 if family.follows in ("rising", "falling") else len(steered)
        steered[:moves, family.steered] += side * gap / _NEAR
        for later in range(moves, len(steered)):
            way = 1 if family.follows == "rising" else -1
            steered[later, family.steered] += way * gap * (Fraction(1, 4) + Fraction(later, 4 * len(steered)))
        made.append(steered)
    return tuple(made)
