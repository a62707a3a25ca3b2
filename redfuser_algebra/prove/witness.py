"""Witnesses: numbers that prove that an operator cannot be carried in bounded state, and how to check them again.

The argument, in both kinds of witness.  Let a prefix be given, and let n numbers of it vary.  What is kept of the
prefix must determine the result after every suffix.  If n quantities that it must determine are smooth functions of
the n numbers, with a Jacobian that is not singular, then near the prefix different numbers are kept differently; a
continuous map that keeps them apart needs at least n numbers (invariance of domain).  So no state with fewer than n
numbers exists that depends continuously on the elements, with or without pivots, commutative or ordered; nor one
that does so piece by piece.  That the pivots are reached needs no argument: they are those that the suffixes produce.

What is proved is the order reached, 24 or more, which exceeds the 16 components that a form may have for a reduction.
That there is no end to it is not proved; a witness is only made where every order that was asked for was reached and
the formula is not one of finite rank or with a bounded window (`refutation.bounded`).
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, substitute
from redfuser_algebra.prove.refutation.crossings import BITS, Jump, certified
from redfuser_algebra.prove.refutation.evaluation import Evaluation
from redfuser_algebra.prove.refutation.numbers import RATIONAL, Field, Number, balls, working, written
from redfuser_algebra.prove.refutation.problem import Observation, Problem
from redfuser_algebra.prove.refutation.rank import certainly_not_zero, determinants
from redfuser_algebra.prove.refutation.reason import (
    ENVELOPE, ONLINE, ORDER_STATISTIC, PAIRWISE, ROUNDING, THRESHOLD, UNBOUNDED_RANK, UNBOUNDED_STATE, Table, bodies, flip_at, kernel_at)

_HEADLINES = {
    UNBOUNDED_RANK: "F(x; p) is not a sum of finitely many products g(x)·h(p)",
    THRESHOLD: "which elements take part depends on a pivot that moves",
    ORDER_STATISTIC: "which element has a rank depends on all elements, and later ones move the ranks",
    ENVELOPE: "ever more elements can win, each at a pivot of its own",
    ROUNDING: "a rounding sits between the pivot and the reduction, and does not commute with moving the pivot",
    PAIRWISE: "every element meets every other, and all of them tell in what comes later",
    UNBOUNDED_STATE: "ever more of the elements tell in what comes later",
    ONLINE: "what a part makes of the state that comes to it takes ever more numbers to say",
}
_SHOWN = 4


@dataclass(frozen=True, eq=False)
class Witness:
    """A refusal's proof: `reason`, the reduction to blame, the prefix, which of its numbers vary, the determinants.

    `columns` are the numbers that vary, as (element, coordinate).  `determinants` are the leading minors of the
    Jacobian, exact or as balls that exclude 0, by order.
    """

    reason: str
    reduction: Reduction
    problem: Problem = field(repr=False)
    prefix: np.ndarray = field(repr=False)
    columns: tuple[tuple[int, int], ...]
    determinants: dict[int, str]

    @property
    def order(self) -> int:
        """No state of fewer numbers exists."""
        return len(self.columns)

    @property
    def moving(self) -> tuple[int, ...]:
        """The coordinates that vary."""
        return tuple(sorted({coordinate for _, coordinate in self.columns}))

    def recheck(self) -> bool:
        """Compute everything again from the numbers, exactly or in balls; whether it proves what it claims."""
        found = self.minors()
        return found is not None and {order: written(value) for order, value in found.items()} == self.determinants \
            and all(map(certainly_not_zero, found.values()))

    def minors(self) -> dict[int, Number] | None:
        """The leading minors of the Jacobian, computed now; None where the witness does not hold."""
        raise NotImplementedError

    def _facts(self) -> dict[str, object]:
        raise NotImplementedError

    def to_json(self) -> str:
        """Everything that a check needs, as text."""
        problem = self.problem
        facts = {
            "kind": type(self).__name__, "reason": self.reason,
            "reduction": f"{self.reduction.name} = {self.reduction.source}",
            "outputs": [str(output) for output in problem.outputs], "assume": [str(term) for term in problem.assume],
            "axis": problem.axis, "sizes": problem.sizes, "parameters": {k: str(v) for k, v in problem.params.items()},
            "others": {name: numbers_as_text(values) for name, (_, values) in problem.others.items()},
            "coordinates": [coordinate_name(problem, at) for at in range(len(problem.coordinates))],
            "prefix": numbers_as_text(self.prefix), "columns": [list(column) for column in self.columns],
            "determinants": {str(order): value for order, value in self.determinants.items()}, **self._facts()}
        return json.dumps(facts, indent=2, ensure_ascii=False)

    def _lines(self) -> list[str]:
        what = "Part" if self.problem.behind else "Prefix"
        return [f"{self.reduction.name} = {stated(self.reduction)}: {self.reason}: {_HEADLINES[self.reason]}.",
                f"{what}: {elements_text(self.problem, self.prefix)}."]

    def _conclusion(self) -> list[str]:
        shown = ", ".join(f"{_short(value)} (n = {order})" for order, value in self.determinants.items())
        if self.problem.behind:
            return [f"has the determinant {shown}, never 0.",
                    f"So whatever is kept of a part, if it depends continuously on the elements and gives the result with "
                    f"all that may precede it, is at least {self.order} numbers."]
        return [f"has the determinant {shown}, never 0.",
                f"So whatever is kept of a prefix, if it depends continuously on the elements and determines the "
                f"result after every suffix, is at least {self.order} numbers."]


@dataclass(frozen=True, eq=False)
class Independence(Witness):
    """Results after n suffixes are independent functions of n numbers of the prefix.

    `suffixes[j]` and `seen[j]` say which result is row j; `pivots` are the values that the suffixes produce, for the
    reader; `table` holds numbers of the reduction itself; `bits` is the precision (0: exact rationals).
    """

    suffixes: tuple[np.ndarray, ...] = field(repr=False)
    seen: tuple[Observation, ...]
    pivots: dict[str, tuple[str, ...]]
    table: Table | None
    bits: int

    @property
    def field(self) -> Field:
        """The numbers that it is checked with."""
        return balls(self.bits) if self.bits else RATIONAL

    def recheck(self) -> bool:
        """Also the table."""
        return super().recheck() and self._table_again() == self.table

    def minors(self) -> dict[int, Number] | None:
        with working(self.field):
            matrix = jacobian(
                self.problem, self.field, self.prefix, self.moving, self.suffixes, self.seen, self.columns)
            return None if matrix is None else determinants(matrix)

    def _table_again(self) -> Table | None:
        if self.table is None:
            return None
        with working(self.field):
            evaluation = evaluation_of(self.problem, self.field, self.prefix, self.moving, self.suffixes)
            values = bodies(self.problem, self.reduction, evaluation, len(self.prefix))
            at = kernel_at if self.table.determinants else flip_at
            return at(values, self.table.elements, self.table.suffixes)

    def _facts(self) -> dict[str, object]:
        table = self.table
        return {"suffixes": [numbers_as_text(suffix) for suffix in self.suffixes],
                "seen": [[seen.output, list(seen.place)] for seen in self.seen],
                "pivots": {name: list(values) for name, values in self.pivots.items()}, "bits": self.bits,
                "table": table and {"elements": table.elements, "suffixes": table.suffixes, "values": table.values,
                                    "determinants": {str(k): v for k, v in table.determinants.items()}}}

    def __str__(self) -> str:
        shown = "; ".join(elements_text(self.problem, suffix) for suffix in self.suffixes[:_SHOWN])
        steered = ", ".join(f"{name} = {', '.join(values[:_SHOWN])}, …" for name, values in self.pivots.items())
        others, those, part = ("Before it", "what precedes", "part") if self.problem.behind else ("Suffixes", "n suffixes", "prefix")
        lines = [*self._lines(), f"{others}: {shown}; …" + (f", which steer {steered}" if steered else "") + ".",
                 f"The Jacobian of the results after {those} by n numbers of the {part} "
                 f"({', '.join(coordinate_name(self.problem, at) for at in self.moving)})",
                 *self._conclusion()]
        return "\n".join([*lines, *self._by_hand()])

    def _by_hand(self) -> list[str]:
        if self.table is None:
            return []
        a, b = (elements_text(self.problem, self.prefix[at:at + 1]) for at in self.table.elements[:2])
        (ap, bp), (aq, bq) = ([_short(value) for value in row[:2]] for row in self.table.values)
        p, q = map(self._pivots_after, self.table.suffixes[:2])
        both = f"F is {ap} for ({a}) and {bp} for ({b}) {p}, but {aq} and {bq} {q}"
        if not self.table.determinants:
            return [f"By hand: {both}: their order flips."]
        orders = ", ".join(f"{_short(value)} (n = {order})" for order, value in self.table.determinants.items())
        return [f"By hand: {both}: no factor moves both.",
                f"det [F(x_i; p_j)] is {orders}: no form with fewer than {max(self.table.determinants)} components "
                "fits these points."]

    def _pivots_after(self, at: int) -> str:
        values = ", ".join(f"{name} = {values[at]}" for name, values in self.pivots.items())
        return f"at {values}" if values else f"after the suffix ({elements_text(self.problem, self.suffixes[at])})"


@dataclass(frozen=True, eq=False)
class Crossings(Witness):
    """A discrete result jumps, as one number of the suffix grows, at n places that the prefix decides."""

    jumps: tuple[Jump, ...]

    def minors(self) -> dict[int, Number] | None:
        with working(balls(BITS)):
            rows, kept = certified(self.problem, self.prefix, self.moving, list(self.jumps), self.reduction)
            if len(kept) < len(self.jumps):
                return None
            width = len(self.moving)
            places = [element * width + self.moving.index(coordinate) for element, coordinate in self.columns]
            return determinants([[row[place] for place in places] for row in rows])

    def _facts(self) -> dict[str, object]:
        return {"jumps": [
            {"suffix": numbers_as_text(jump.still), "steered": jump.steered, "low": str(jump.low), "high": str(jump.high),
             "seen": [jump.seen.output, list(jump.seen.place)]} for jump in self.jumps]}

    def __str__(self) -> str:
        places = ", ".join(f"{float(jump.low):.6g}" for jump in self.jumps[:_SHOWN])
        width = float(max(jump.high - jump.low for jump in self.jumps))
        name, what = coordinate_name(self.problem, self.jumps[0].steered), "part" if self.problem.behind else "prefix"
        return "\n".join([
            *self._lines(),
            f"{'Before' if self.problem.behind else 'After'} it, as {name} of one element grows, the result jumps near {places}, … (each place known "
            f"to within {width:.1g}): each time one choice turns, g = 0, and no other.",
            f"Where it turns is a function of the {what}.  The Jacobian of n such g by n numbers of the {what}",
            *self._conclusion()])


def stated(reduction: Reduction) -> Expr:
    """A reduction over the names of earlier results."""
    if reduction.source.op == "scan":
        return reduction.source
    parts = [*reduction.operands]
    return Expr("reduce", tuple(parts), reduction.source.attrs)


def evaluation_of(problem: Problem, numbers: Field, prefix: np.ndarray, moving: tuple[int, ...],
                  suffixes: tuple[np.ndarray, ...]) -> Evaluation:
    """The operator's outputs after the prefix and each suffix."""
    evaluation = problem.evaluation(numbers, prefix, suffixes, moving=[problem.coordinates[at] for at in moving])
    for output in problem.outputs:
        evaluation.node(output)
    return evaluation


def jacobian(problem: Problem, numbers: Field, prefix: np.ndarray, moving: tuple[int, ...],
             suffixes: tuple[np.ndarray, ...], seen: tuple[Observation, ...], columns: tuple[tuple[int, int], ...],
             ) -> list[list[Number]] | None:
    """∂ (what is seen after suffix j) / ∂ (number i of the prefix); None if a tie or an assumption is in the way."""
    evaluation = evaluation_of(problem, numbers, prefix, moving, suffixes)
    if not problem.holds(evaluation).all():
        return None
    slopes = {each: problem.slopes(evaluation, each) for each in dict.fromkeys(seen)}
    first = problem.part(len(prefix), len(prefix) + len(suffixes[0])).start
    return [[slopes[each][at, first + element, coordinate] for element, coordinate in columns] for at, each in enumerate(seen)]


def pivot_values(evaluation: Evaluation, problem: Problem, pivots: dict[str, Expr]) -> dict[str, tuple[str, ...]]:
    """What the suffixes make of each pivot, at the first place of other axes, as text."""
    results = {reduction.symbol: reduction.source for reduction in problem.cascade.reductions}
    found = {}
    for name, value in pivots.items():
        numbers = evaluation.number(substitute(value, results)).value
        flat = np.broadcast_to(numbers, (evaluation.setting.continuations, *numbers.shape[1:])).reshape(
            evaluation.setting.continuations, -1)
        found[name] = tuple(_short(written(number)) for number in flat[:, 0])
    return found


def coordinate_name(problem: Problem, at: int) -> str:
    """A coordinate as x, or X[1] where its input has other axes."""
    name, place = problem.coordinates[at]
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def elements_text(problem: Problem, elements: np.ndarray) -> str:
    """Elements, coordinate by coordinate; a coordinate that does not vary is written once."""
    parts = []
    for at in range(elements.shape[1]):
        values = [str(value) for value in elements[:, at]]
        short = values[:1] if len(set(values)) == 1 else values if len(values) <= 2 * _SHOWN else [
            *values[:_SHOWN], "…", values[-1]]
        parts.append(f"{coordinate_name(problem, at)} = {', '.join(short)}")
    return "; ".join(parts) if len(elements) > 1 else ", ".join(parts)


def _short(text: str) -> str:
    """A long rational, or a ball, to six digits."""
    if len(text) <= 12 and "[" not in text:
        return text
    digits = text.strip("[]").split(" ")[0]
    return digits if "e" in digits else f"{float(Fraction(digits)):.6g}"


def numbers_as_text(elements: np.ndarray) -> list:
    """Numbers as they are written in JSON."""
    return np.asarray(np.frompyfunc(str, 1, 1)(elements)).tolist()
