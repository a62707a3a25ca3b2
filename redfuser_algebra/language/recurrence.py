"""Recurrences along an axis: a state that every element turns into the next one, in order.

In: a step, traced once, and where it starts.  Out: expressions, of the last state or of the state at every element.
Whether such a recurrence can be cut into parts is for the search to find out.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from redfuser_algebra.algebra.monoids import RUNNING
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, call, children_replaced, lift, subterms, symbol, unbound_states
from redfuser_algebra.language.functions import Operand, axis_names
from redfuser_algebra.language.names import numbered

EVERY = ("", "after", "before")


def scan(step: Callable[..., Operand | tuple], axis: str, initial: Operand | tuple = 0.0, every: str = "",
         place: int | None = None) -> Expr | tuple[Expr, ...]:
    """The state after the last element: h_l = step(h_(l−1)), starting from `initial`.

    The parameters of `step` are the states, the elements are the expressions it uses:
    `ra.scan(lambda h: a * h + x, "l")`.  Several states come and go as a tuple.  `every="after"` (or "before") keeps
    the axis: the state after (before) each element.  `place` asks for one state of several.  Raises OperatorError
    for a step that returns another number of states, and for names of states that a scan inside it has, too.
    """
    names, axis = _state_names(step), _one_axis(axis)
    if every not in EVERY:
        raise OperatorError(f"a scan with every={every!r}", "it is neither after nor before", 'write every="after", or leave it out')
    starts = tuple(map(lift, initial if isinstance(initial, tuple) else (initial,) * len(names)))
    if len(starts) != len(names):
        raise OperatorError(f"a scan of {', '.join(names)}", f"it has {len(starts)} initial values", "give one to each state")
    nexts = _stepped(step, names, axis, starts)
    _check(names, axis, (*starts, *nexts))
    results = tuple(_of_one(at, names, axis, starts, nexts, every) for at in range(len(names)))
    return results if len(names) > 1 and place is None else results[place or 0]


def _of_one(place: int, names: tuple[str, ...], axis: str, starts: tuple[Expr, ...], nexts: tuple[Expr, ...], every: str) -> Expr:
    """The scan of one state, together with those that it depends on and no others."""
    needed, todo = {place}, [place]
    while todo:
        read = {state.name for state in unbound_states(nexts[todo.pop()])}
        fresh = {at for at, name in enumerate(names) if name in read} - needed
        needed |= fresh
        todo += fresh
    kept = sorted(needed)
    parts = (*(starts[at] for at in kept), *(nexts[at] for at in kept))
    return Expr("scan", parts, (axis, tuple(names[at] for at in kept), kept.index(place), every))


def cumulative(monoid: object, expr: Operand, axis: str, exclusive: bool = False) -> Expr:
    """⊕ over the elements up to each one: `ra.cumulative(ra.max, x, "l")`; without the element itself if `exclusive`.

    The monoid is sum, prod, max, min, any, all or logadd, by its function or its name.
    """
    name = monoid if isinstance(monoid, str) else getattr(monoid, "__name__", repr(monoid))
    if name not in RUNNING:
        raise OperatorError(f"a cumulative {name:.40}", "there is no such running reduction",
                            f"take one of {', '.join(RUNNING)}, or write its step: ra.scan(lambda h: …, every=\"after\")")
    step, start = RUNNING[name]
    return _named(lambda h: call(step, h, expr), lift(expr), axis, start, exclusive)


def previous(expr: Operand, axis: str, initial: Operand = 0.0) -> Expr:
    """The element before each one along `axis`; `initial` before the first."""
    return _named(lambda h: lift(expr), lift(expr), axis, initial, True)


def with_states(step: Callable, names: Sequence[str]) -> Callable:
    """A step whose states are called by these names."""
    step.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    return step


def with_elements(term: Expr, axis: str, elements: dict[Expr, Expr]) -> Expr:
    """A step with every largest part that is free of states, but varies along the axis, as a symbol; `elements` has them."""
    if unbound_states(term):
        return term if term.op == "state" else children_replaced(term, tuple(with_elements(arg, axis, elements) for arg in term.args))
    if axis not in term.axes:
        return term
    return elements.setdefault(term, symbol(f"element {len(elements)}", tuple(a for a in term.axes if a != axis)))


def _named(step: Callable, expr: Expr, axis: str, initial: Operand, exclusive: bool) -> Expr:
    return scan(with_states(step, [_fresh_state(expr)]), axis, initial, "before" if exclusive else "after")


def _fresh_state(expr: Expr) -> str:
    """A name that no scan inside an expression gives to its states."""
    taken = {name for term in subterms(expr) if term.op == "scan" for name in term.attrs[1]}
    return next(numbered("c", taken))


def _one_axis(axis: str) -> str:
    names = axis_names(axis)
    if len(names) > 1:
        raise OperatorError(f"a scan over the axes {', '.join(names)}", "its elements have one order", "scan along one axis")
    return names[0]


def _state_names(step: Callable) -> tuple[str, ...]:
    try:
        names = tuple(inspect.signature(step).parameters)
    except (TypeError, ValueError):
        names = ()
    if not names:
        raise OperatorError(f"a scan by {step!r:.60}", "its step has no parameters that name the states",
                            'write ra.scan(lambda h: a * h + x, "l")')
    return names


def _stepped(step: Callable, names: tuple[str, ...], axis: str, starts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The next states; traced again while a step gives a state axes that it did not have."""
    axes = [start.axes for start in starts]
    while True:
        result = step(*(Expr("state", (), (name, own)) for name, own in zip(names, axes, strict=True)))
        nexts = tuple(map(lift, result if isinstance(result, tuple | list) else (result,)))
        if len(nexts) != len(names):
            raise OperatorError(f"a scan of {', '.join(names)}", f"its step returns {len(nexts)} states", "return each state once")
        grown = [tuple(dict.fromkeys((*own, *(a for a in after.axes if a != axis)))) for own, after in zip(axes, nexts, strict=True)]
        if grown == axes:
            return nexts
        axes = grown


def _check(names: tuple[str, ...], axis: str, parts: tuple[Expr, ...]) -> None:
    inner = {name for term in subterms(*parts) if term.op == "scan" for name in term.attrs[1]}
    inputs = {term.name for term in subterms(*parts) if term.op in ("input", "param")}
    for name in names:
        if name in inner or name in inputs:
            raise OperatorError(f"a scan of {', '.join(names)}", f"{name} means something else inside its step, too",
                                "give the state another name")
    if [start for start in parts[:len(names)] if axis in start.axes]:
        raise OperatorError(f'a scan along "{axis}"', f"an initial value varies along {axis}", "start from a value without that axis")
