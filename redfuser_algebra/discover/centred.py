"""Recurrences about the first element of a part: what is known only at the end, such as a mean, is kept as what it differs by.

In: a recurrence whose steps subtract from elements what no element changes, as x − μ or x + y − 2μ for the element y before.
Out: the same about a centre c, with t = μ − c and y − c for states and x − c for elements, and how these move with c.  About
0 the polynomial in μ that a part holds has large coefficients that cancel; about an element its coefficients are of the size of the
elements' spread: (x_1 − μ)² is one of the squares in Σ (x − μ)².
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import isfinite

from redfuser_algebra.discover.recurrence import Recurrence
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, substitute, subterms, unbound_states
from redfuser_algebra.language.names import primed

Multiples = dict[Expr, Fraction]
"""Elements with how often they are added."""
Centre = Callable[[Expr], Expr]
"""An element → the symbol of its centre."""


class _Elsewhere(Exception):
    """Steps that see where the elements lie, and not only what they differ by."""


@dataclass(frozen=True)
class Centred:
    """`found` is about the `centres` of elements; `stands` says what each state of the recurrence `of` is, and `moves` what states are about others.

    In `moves` a centre is that of the earlier part, and primed that of the later one, for which the states are found.
    """

    of: Recurrence
    found: Recurrence
    centres: dict[Expr, Expr]
    stands: dict[Expr, Expr]
    moves: dict[Expr, Expr]

    @property
    def swapped(self) -> dict[Expr, Expr]:
        """The centre of the later part for that of the earlier one, and the other way round."""
        return {centre: primed(centre) for centre in self.centres.values()} | {primed(centre): centre for centre in self.centres.values()}

    @property
    def of_first(self) -> dict[Expr, Expr]:
        """What elements about the centre are at the first one."""
        return {call("subtract", element, centre): const(0) for element, centre in self.centres.items()}


def centred(found: Recurrence, axis: str, centre: Centre) -> Centred | None:
    """The recurrence about centres; None where its steps do not subtract what is known only at the end from elements."""
    for replaced_too in (True, False):
        try:
            return _Steps(found, axis, replaced_too).about(centre)
        except _Elsewhere:
            continue
    return None


class _Steps:
    """The steps of a recurrence, and for the states that lie among the elements their multiples of these."""

    def __init__(self, found: Recurrence, axis: str, replaced_too: bool) -> None:
        self.found, self.axis = found, axis
        self.still = {state for state, step in found.steps.items() if step is state}
        self.lies: dict[Expr, Multiples] = {state: {step: Fraction(1)} for state, step in found.steps.items() if replaced_too and step.op == "input"}
        while late := {state: self.lies[step] for state, step in found.steps.items() if step in self.lies and state not in self.lies}:
            self.lies |= late

    def about(self, centre: Centre) -> Centred:
        """The recurrence about centres.  Raises _Elsewhere."""
        for step in self.found.steps.values():
            self._learn(step)
        if not self.still or not any(self.lies.values()) or self.lies.get(self.found.target):
            raise _Elsewhere
        elements = dict.fromkeys(element for lies in self.lies.values() for element in lies)
        centres = {element: centre(element) for element in elements}
        names = {state: Expr("state", (), (f"{state.name}_about", state.axes)) for state, lies in self.lies.items() if lies}
        offsets = {state: _total(self.lies[state], centres) for state in names}
        steps, starts = {}, {}
        for state, step in self.found.steps.items():
            own = names.get(state, state)
            steps[own] = own if step is state else substitute(self._written(step, centres, self.lies.get(state, {})), names)
            starts[own] = self.found.starts[state] if state not in names else call("subtract", self.found.starts[state], offsets[state])
        stands = {state: own + offsets[state] if (own := names.get(state)) is not None else state for state in self.found.steps}
        moves = {own: own + _total(self.lies[state], {element: call("subtract", c, primed(c)) for element, c in centres.items()})
                 for state, own in names.items()}
        return Centred(self.found, Recurrence(starts, steps, self.found.target), centres, stands, moves)

    def _learn(self, term: Expr) -> None:
        """How often what no element changes has to be an element, so that sums see only what they differ by.  Raises _Elsewhere."""
        summands = list(_summands(term, Fraction(1)))
        open_ones = [(factor, part) for factor, part in summands if part in self.still and part not in self.lies]
        placed = [(factor, part) for factor, part in summands if part in self.lies]
        elements = [(factor, part) for factor, part in summands if self._element(part)]
        if len(open_ones) == 1 and (total := self._multiples(elements + placed)):
            [(factor, state)] = open_ones
            self.lies[state] = {element: -value / factor for element, value in total.items() if value}
        for _, part in summands:
            for arg in part.args if part.op != "state" else ():
                self._learn(arg)

    def _multiples(self, parts: list[tuple[Fraction, Expr]]) -> Multiples:
        total: Multiples = {}
        for factor, part in parts:
            for element, value in (self.lies[part] if part in self.lies else {part: Fraction(1)}).items():
                total[element] = total.get(element, Fraction(0)) + factor * value
        return total

    def _element(self, part: Expr) -> bool:
        return self.axis in part.axes and not unbound_states(part) and any(term.op == "input" for term in subterms(part))

    def _written(self, term: Expr, centres: Mapping[Expr, Expr], lies: Multiples) -> Expr:
        """A term about centres that lies at these multiples of them.  Raises _Elsewhere."""
        summands = list(_summands(term, Fraction(1)))
        placed = [(factor, part) for factor, part in summands if self.lies.get(part)]
        if not placed and not lies:
            return term if term.op == "state" or not unbound_states(term) else children_replaced(
                term, tuple(self._written(arg, centres, {}) for arg in term.args))
        elements = [(factor, part) for factor, part in summands if part in centres]
        if {e: v for e, v in self._multiples(elements + placed).items() if v} != lies:
            raise _Elsewhere
        parts = [(factor, part if part in self.lies else call("subtract", part, centres[part]) if part in centres
                  else self._written(part, centres, {})) for factor, part in summands]
        return _added(parts)


def _summands(term: Expr, factor: Fraction) -> Iterator[tuple[Fraction, Expr]]:
    """The parts of a sum with the numbers that they are multiplied by."""
    if term.op in ("add", "subtract"):
        yield from _summands(term.args[0], factor)
        yield from _summands(term.args[1], factor if term.op == "add" else -factor)
    elif term.op == "negative":
        yield from _summands(term.args[0], -factor)
    elif term.op == "multiply" and any(arg.op == "const" and isfinite(arg.value) for arg in term.args):
        number, other = sorted(term.args, key=lambda arg: arg.op != "const")
        yield from _summands(other, factor * Fraction(number.value))
    else:
        yield factor, term


def _added(parts: Sequence[tuple[Fraction, Expr]]) -> Expr:
    """The sum of parts times numbers.  Raises _Elsewhere where floats do not hold these."""
    terms = [(abs(factor), factor < 0, part) for factor, part in parts]
    first, *rest = ((part if size == 1 else _number(size) * part, less) for size, less, part in terms)
    return reduce(lambda total, each: call("subtract" if each[1] else "add", total, each[0]), rest, -first[0] if first[1] else first[0])


def _total(lies: Multiples, centres: Mapping[Expr, Expr]) -> Expr:
    return _added([(factor, centres[element]) for element, factor in lies.items()])


def _number(value: Fraction) -> Expr:
    if Fraction(float(value)) != value:
        raise _Elsewhere
    return const(int(value) if value.denominator == 1 else float(value))
