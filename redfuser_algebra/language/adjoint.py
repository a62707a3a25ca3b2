"""The derivative of a recurrence: another one, that goes from the last element to the first.

In: the derivatives by the states of a scan, wherever they are seen.  Out: those by its elements and starts.  The
adjoint a of h_l ← f(h_(l−1), x_l) is a ← ∂f/∂hᵀ (a + ȳ_l), linear in a whatever f is; it is written as a scan that runs
in order where the axis is reversed.  States that ∂f depends on are read from what the forward pass saves, and where no
derivative sees the size of the states, they and their adjoint are kept without it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from redfuser_algebra.language.expr import Expr, children_replaced, const, subterms, unbound_states
from redfuser_algebra.language.factored import ONE, Factors, Product, single
from redfuser_algebra.language.normalised import Seen, normalised

Parts = dict[Expr, list[Product]]
PassOn = Callable[[Expr, Product, Parts, Callable[[Expr], bool], str], None]
"""Hand the derivative by a term to those of its operands that follow, without sums over an axis."""


@dataclass(frozen=True)
class Adjoint:
    """What comes out: the derivatives by elements and starts, and the forward states that they read."""

    passed: tuple[tuple[Expr, Expr], ...]
    read: tuple[Expr, ...]


def adjoint(scan: Expr, seen: Seen, factors: Factors, pass_on: PassOn, smooth: Mapping[Expr, bool], names: Iterator[str]) -> Adjoint:
    """The adjoint of a scan, of which `seen` are the derivatives by its states; `names` are for its own states."""
    axis, own, *_ = scan.attrs
    starts, steps = scan.args[:len(own)], scan.args[len(own):]
    kept = normalised(scan, seen)
    whole, seen, divided = (scan, seen, ONE) if kept is None else (kept.scan, kept.seen, single(kept.divisor).to_the(-1))
    forward = [Expr("scan", whole.args, (axis, own, place, "before")) for place in range(len(own))]
    bars = [Expr("state", (), (next(names), tuple(a for a in each.axes if a != axis))) for each in forward]
    parts: Parts = {}
    for place, (bar, step) in enumerate(zip(bars, steps, strict=True)):
        parts.setdefault(step, []).append(single(_total(bar, seen.get((place, "after")))) * divided)
    by_state, by_element = _pulled(steps, parts, axis, factors, pass_on, smooth)
    saved = {state: forward[own.index(state.name)] for state in unbound_states(*steps)}
    back = [_bound(_total(by_state.get(name), seen.get((place, "before"))), saved) for place, name in enumerate(own)]
    ends = [_total(seen.get((place, ""))) for place in range(len(own))]
    backward = [Expr("scan", (*ends, *back), (axis, tuple(bar.name for bar in bars), place, "before")) for place in range(len(own))]
    here = saved | dict(zip(bars, backward, strict=True))
    passed = [(element, _bound(value, here)) for element, value in by_element.items()]
    passed += [(start, Expr("scan", last.args, (*last.attrs[:3], ""))) for start, last in zip(starts, backward, strict=True) if smooth.get(start, False)]
    states = {*forward} if kept is None else kept.states
    return Adjoint(tuple(passed), tuple(term for term in subterms(*(value for _, value in passed)) if term in states))


def _pulled(steps: tuple[Expr, ...], parts: Parts, axis: str, factors: Factors, pass_on: PassOn, smooth: Mapping[Expr, bool]
            ) -> tuple[dict[str, Expr], dict[Expr, Expr]]:
    """From the derivatives by the next states to those by the states, by name, and by the elements that a step uses."""
    by_state: dict[str, Expr] = {}
    by_element: dict[Expr, Expr] = {}

    def follows(term: Expr) -> bool:
        return smooth.get(term, False) or bool(unbound_states(term))

    for term in reversed(subterms(*steps)):
        if term not in parts:
            continue
        total = factors.added(parts[term])
        if term.op == "state":
            by_state[term.name] = total.expr
        elif unbound_states(term):
            pass_on(term, total, parts, follows, axis)
        elif smooth.get(term, False):
            by_element[term] = total.expr
    return by_state, by_element


def _bound(term: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """A term with values for its states; those of scans inside it have the same names and are others."""
    if term in values or not unbound_states(term):
        return values.get(term, term)
    return children_replaced(term, tuple(_bound(arg, values) for arg in term.args))


def _total(*found: Expr | Product | None) -> Expr:
    """The sum of what there is."""
    terms = [each.expr if isinstance(each, Product) else each for each in found if each is not None]
    return reduce(lambda a, b: a + b, terms) if terms else const(0.0)
