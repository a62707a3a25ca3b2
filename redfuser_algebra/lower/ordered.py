"""What a tile program does element by element: steps of ordered components, and the states that maps see.

In: an operator, its form, updates.  Out: the steps of updates, and `Running` states with the outputs over them.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from redfuser_algebra.discover.late_starts import waits
from redfuser_algebra.discover.recurrence import unrolled
from redfuser_algebra.language.expr import Expr, children_replaced, const, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, stem
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.tile import LoweringError, Running, Update

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

SLOW = frozenset(("exp", "exp2", "log", "log2", "log1p", "logadd", "expm1", "tanh", "sin", "cos"))
"""Functions that loops over independent elements compute several times as fast as loops from state to state."""


def running(operator: Operator, form: FusedForm) -> tuple[tuple[Expr, ...], tuple[Running, ...]]:
    """The outputs of a form over the states that they see at every element, and these states."""
    if not form.prefixes:
        return form.outputs, ()
    seen = unrolled(form.outputs, form.axis, (scan for scan, _ in form.prefixes))
    taken = {*operator.inputs, *operator.params, *form.symbol_axes}
    waiting = {each.name for each in form.recurrences if waits(each)}
    after = {state: "" if result in waiting else result for scan, results in form.prefixes for state, result in zip(seen.states[scan], results, strict=True)}
    names: dict[Expr, str] = {}
    for state in seen.steps:
        names[state] = _free(state.name, {*taken, *names.values()})
    here = {state: symbol(name, (*state.axes, form.axis)) for state, name in names.items()}
    states = tuple(Running(names[state], state.axes, seen.starts[state], substitute(step, here), after[state]) for state, step in seen.steps.items())
    return tuple(substitute(output, here) for output in seen.outputs), states


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"{name}_now"
    return name


def in_turn(name: str, news: Sequence[tuple[tuple[str, ...], Expr, str]]) -> list[tuple[str, ...]]:
    """The columns of what takes new values, (columns, value, state or ""), in an order in which no state is read after it took its own.

    Raises LoweringError where there is none, for the program of that name.
    """
    reads, written = dict[tuple[str, ...], set[str]](), dict[tuple[str, ...], set[str]]()
    for columns, value, state in news:
        reads.setdefault(columns, set()).update(term.name for term in subterms(value) if term.op == "symbol")
        written.setdefault(columns, set()).add(state)
    left, turns = list(reads), []
    while left:
        ready = [c for c in left if not any(written[c] & reads[other] for other in left if other != c)]
        if not ready:
            raise LoweringError(f"a kernel of {name}", "states with different axes need each other before an element",
                                'run the operator with NumPy: backend="numpy"')
        turns.append(ready[0])
        left.remove(ready[0])
    return turns


def slow_parts(term: Expr, axis: str) -> Iterator[Expr]:
    """The parts of an element that take long and see no state: they are better made for a whole tile at once."""
    if axis in term.axes and term.op in SLOW and not any(part.op == "symbol" for part in subterms(term)):
        yield term
    elif term.op != "reduce":
        for arg in term.args:
            yield from slow_parts(arg, axis)


def stepped(updates: Sequence[Update], form: FusedForm) -> list[Update]:
    """The updates, ordered ones with their steps: their own, or two neighbouring parts of which the later one is an element."""
    lifts = {update.name: update.lift for update in updates if update.ordered}
    from_state = [replace(u, step=_at_element(u.step, form.axis)) if u.step is not None else u for u in updates]
    return [replace(u, step=_step(u.joined, lifts, form.axis), from_empty=form.from_empty) if u.joined is not None else u for u in from_state]


def _at_element(step: Expr, axis: str) -> Expr:
    """A step over what states are before an element."""
    return substitute(step, {part: symbol(part.name, (*part.axes, axis)) for part in subterms(step) if part.op == "symbol"})


def _step(joined: Expr, lifts: dict[str, Expr], axis: str) -> Expr:
    parts = {part: lifts[stem(part.name)] if part.name.endswith(PRIME) else symbol(part.name, (*part.axes, axis))
             for part in subterms(joined) if part.op == "symbol"}
    return _plain(substitute(joined, parts))


def _plain(term: Expr) -> Expr:
    """A term without zeros and ones: those of matrices stand for entries that are not there."""
    term = children_replaced(term, tuple(map(_plain, term.args)))
    if term.op in _NEUTRAL:
        neutral, absorbing = _NEUTRAL[term.op]
        a, b = term.args
        if absorbing is not None and (_is(a, absorbing) or _is(b, absorbing)):
            return const(absorbing)
        return b if _is(a, neutral) else a if _is(b, neutral) else term
    return term


def _is(term: Expr, value: float) -> bool:
    return term.op == "const" and not isinstance(term.value, bool) and term.value == value


_NEUTRAL = {"add": (0, None), "multiply": (1, 0), "maximum": (float("-inf"), None), "minimum": (float("inf"), None),
            "logadd": (float("-inf"), None)}
"""By function, what leaves every number as it is, and what makes every number itself."""
