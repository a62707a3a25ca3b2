"""A recurrence in one piece: scans, running reductions and reductions over them as one step of one state.

In: a reduction of a cascade that is a scan, or whose elements see what came before them.  Out: a `Recurrence`.  What
is known only at the end (results, the length) is a state of its own, which no element changes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from redfuser_algebra.algebra.monoids import MONOIDS, STEPS
from redfuser_algebra.language.cascade import Reduction
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, substitute, subterms, unbound_states
from redfuser_algebra.language.names import unused


@dataclass(frozen=True)
class Recurrence:
    """h_l = `steps`(h_(l−1), x_l) from `starts`, state by state; `target` is the state that is asked for."""

    starts: dict[Expr, Expr]
    steps: dict[Expr, Expr]
    target: Expr

    def holds(self, other: Recurrence) -> bool:
        """Whether the states of another one are among these, with the same starts and steps."""
        return all(self.steps.get(state) is step and self.starts[state] is other.starts[state] for state, step in other.steps.items())


def reached(starts: Mapping[Expr, Expr], steps: Mapping[Expr, Expr], target: Expr) -> Recurrence:
    """The recurrence of the states that a target depends on."""
    needed, todo = {target: None}, [target]
    while todo:
        fresh = [state for state in unbound_states(steps[todo.pop()]) if state not in needed]
        needed |= dict.fromkeys(fresh)
        todo += fresh
    return Recurrence(*({state: own[state] for state in own if state in needed} for own in (starts, steps)), target)


def is_ordered(term: Expr, axis: str) -> bool:
    """Whether a value depends on the order of elements along an axis: there is a scan along it."""
    return any(part.op == "scan" and part.axis == axis for part in subterms(term))


def recurrence(reduction: Reduction, axis: str, moves: Callable[[Expr], bool]) -> Recurrence | None:
    """The one recurrence that a reduction amounts to; None for a monoid that is no step of one number."""
    joint = _Joint(axis, moves)
    target = joint.target(reduction)
    return None if target is None else joint.of(target)


def together(reductions: Iterable[Reduction], axis: str, moves: Callable[[Expr], bool]) -> tuple[Recurrence, ...] | None:
    """The recurrences of several reductions, over states that they share; None if one is no step of one number."""
    joint = _Joint(axis, moves)
    targets = [joint.target(reduction) for reduction in reductions]
    return None if any(target is None for target in targets) else tuple(map(joint.of, targets))


@dataclass(frozen=True)
class Unrolled:
    """Outputs over the states before each element, with their starts and steps; `states` are those of each scan."""

    outputs: tuple[Expr, ...]
    starts: dict[Expr, Expr]
    steps: dict[Expr, Expr]
    states: dict[Expr, tuple[Expr, ...]]


def unrolled(outputs: tuple[Expr, ...], axis: str, scans: Iterable[Expr]) -> Unrolled:
    """What outputs see of the scans along an axis, element by element."""
    joint = _Joint(axis, lambda value: False)
    flat = tuple(map(joint.flat, outputs))
    return Unrolled(flat, joint.starts, joint.steps, {scan: tuple(joint.states_of(scan)) for scan in scans})


class _Joint:
    """States under names of their own, with their starts and steps."""

    def __init__(self, axis: str, moves: Callable[[Expr], bool]) -> None:
        self.axis, self.moves = axis, moves
        self.starts: dict[Expr, Expr] = {}
        self.steps: dict[Expr, Expr] = {}
        self._scans: dict[tuple, list[Expr]] = {}
        self._names: set[str] = set()

    def of(self, target: Expr) -> Recurrence:
        """All states entered so far, asked for one of them."""
        return Recurrence(self.starts, self.steps, target)

    def target(self, reduction: Reduction) -> Expr | None:
        """The state that a reduction is; None for a monoid that is no step of one number."""
        if reduction.monoid == "compose":
            return self.states_of(reduction.body)[reduction.body.attrs[2]]
        if reduction.monoid not in STEPS:
            return None
        step = self.flat(reduction.body)
        d = self.fresh(reduction.name, tuple(name for name in step.axes if name != self.axis))
        after = call(STEPS[reduction.monoid], d, step)
        self.add(d, const(MONOIDS[reduction.monoid].identity),
                 after if reduction.mask is None else call("where", self.flat(reduction.mask), after, d))
        return d

    def fresh(self, name: str, axes: tuple[str, ...]) -> Expr:
        """A state that no other one has the name of."""
        own = unused(name, self._names)
        self._names.add(own)
        return Expr("state", (), (own, axes))

    def add(self, state: Expr, start: Expr, step: Expr) -> None:
        """Enter a state."""
        self.starts[state], self.steps[state] = start, step

    def states_of(self, scan: Expr) -> list[Expr]:
        """The states of a scan, entered on first sight."""
        axis, names, *_ = scan.attrs
        key = (scan.args, names)
        if key not in self._scans:
            starts, steps = scan.args[:len(names)], scan.args[len(names):]
            inside = {state.name: state for state in unbound_states(*steps)}
            own = [self.fresh(name, inside[name].axes if name in inside else tuple(a for a in step.axes if a != axis))
                   for name, step in zip(names, steps, strict=True)]
            self._scans[key] = own
            renamed = {inside[name]: state for name, state in zip(names, own, strict=True) if name in inside}
            for state, start, step in zip(own, starts, steps, strict=True):
                self.add(state, start, self.flat(substitute(step, renamed)))
        return self._scans[key]

    def flat(self, term: Expr) -> Expr:
        """A term in which every scan is a state before this element, or what the element makes of it."""
        if term.op == "scan" and term.axis == self.axis:
            state = self.states_of(term)[term.attrs[2]]
            return state if term.attrs[3] == "before" else self.steps[state]
        if self.axis not in term.axes and not unbound_states(term) and self.moves(term):
            return self._still(term)
        return children_replaced(term, tuple(map(self.flat, term.args)))

    def _still(self, value: Expr) -> Expr:
        """The state that holds a value known only at the end."""
        for state, start in self.starts.items():
            if start is value and self.steps[state] is state:
                return state
        state = self.fresh(value.name if value.op == "symbol" else "still", value.axes)
        self.add(state, value, state)
        return state
