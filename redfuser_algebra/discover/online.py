"""Online forms: a state of bounded size that goes on from element to element, and need not merge.

In: a cascade with scans that no matrix follows.  Out: an online form, or None where a step needs what is known
only at the end.  Whether parts of such an operator could merge in another way is not decided here.
"""
from __future__ import annotations

from collections.abc import Iterable

from redfuser_algebra.discover.build import prefixes
from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.discover.form import Component, FusedForm, Result
from redfuser_algebra.discover.recurrence import is_ordered, together
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol, unbound_states
from redfuser_algebra.language.names import unused


def online(cascade: Cascade, assume: tuple[Expr, ...]) -> FusedForm | None:
    """The form of a cascade whose reductions are all steps of states that are known before the end."""
    facts = Facts(cascade.axis, cascade.reductions, assume)
    parts = [part for r in cascade.reductions for part in r.elements]
    if not any(is_ordered(part, cascade.axis) for part in parts):
        return None
    found = together(cascade.reductions, cascade.axis, facts.moves)
    if not found:
        return None
    starts, steps = found[0].starts, found[0].steps
    kept = _needed([each.target for each in found], steps)
    if any(term.op == "symbol" or facts.moves(start) for state in kept for start in (starts[state],) for term in subterms(start)):
        return None
    names = _names(cascade, kept, {each.target: r.name for r, each in reversed(list(zip(cascade.reductions, found, strict=True)))})
    now, first = {state: symbol(name, state.axes) for state, name in names.items()}, {state: starts[state] for state in kept}
    state = tuple(Component(name, "compose", substitute(steps[each], first), None, None, each.axes, now[each],
                            start=starts[each], step=substitute(steps[each], now)) for each, name in names.items())
    results = tuple(Result(r.name, now[each.target], r.source.axes, r.monoid, r.mask) for r, each in zip(cascade.reductions, found, strict=True))
    return FusedForm(cascade.axis, state, (), results, cascade.outputs, (), (), dict.fromkeys((r.name for r in cascade.reductions), 1),
                     order="online", prefixes=tuple(prefixes(cascade)))


def _needed(targets: Iterable[Expr], steps: dict[Expr, Expr]) -> list[Expr]:
    """The states that targets depend on, in the order in which they are stated."""
    found, todo = set(targets), list(targets)
    while todo:
        fresh = unbound_states(steps[todo.pop()]) - found
        found |= fresh
        todo += fresh
    return [state for state in steps if state in found]


def _names(cascade: Cascade, kept: list[Expr], results: dict[Expr, str]) -> dict[Expr, str]:
    """A result's name for the state that it is; their own for others, where nothing else has it."""
    parts = [part for r in cascade.reductions for part in r.elements]
    taken = {term.name for term in subterms(*cascade.outputs, *parts) if term.op in ("input", "param", "symbol")}
    taken |= {axis for term in subterms(*parts) for axis in term.axes} | {r.name for r in cascade.reductions}
    names: dict[Expr, str] = {}
    for state in kept:
        names[state] = results.get(state) or unused(state.name, taken)
        taken.add(names[state])
    return names
