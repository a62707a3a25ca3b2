"""Elements that see how far a running sum is from what it ends at, c_N − c_l: kept at where the sum is now.

In: a recurrence of which a state holds c_N, known at the end only.  Out: one with the c of now in its place, that moves what it
has kept as c moves.  Σ e^(c_N − c_l)·x is multiplied by e^(c' − c), max (c_N − c_l + x) goes up by c' − c: decays never overflow.
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.exponentials import added, linear
from redfuser_algebra.discover.polynomials import Algebra
from redfuser_algebra.discover.recurrence import Recurrence, reached
from redfuser_algebra.discover.simplify import folded, operands
from redfuser_algebra.language.expr import Expr, call, const, rewritten, substitute, subterms

_REALS = Algebra(SEMIRINGS["sum-product"])

Moved = tuple[Expr, Expr]
"""What has been kept after its move, and what an element gives."""


def kept_at_now(found: Recurrence, ends: Iterable[tuple[Expr, Recurrence]]) -> tuple[Recurrence, list[Expr]]:
    """The recurrence without the results that can be taken at now, and those results.

    `ends` are final results with their own recurrences.
    """
    unseen = []
    for result, own in ends:
        still = next((state for state, start in found.starts.items() if start is result and found.steps[state] is state), None)
        running = None if still is None else _running(found, own)
        moved = None if running is None else _at_now(found, still, running)
        if moved is not None:
            unseen.append(result)
            found = reached(found.starts, found.steps | {found.target: moved}, found.target)
    return found, unseen


def _running(found: Recurrence, own: Recurrence) -> Expr | None:
    """The state of a recurrence that is the target of another one, under whatever name; None if there is none."""
    start, step = own.starts[own.target], own.steps[own.target]
    same = (state for state in found.steps if _is_start(found.starts[state], start)
            and substitute(found.steps[state], {state: own.target}) is step)
    others = {state for state in own.steps if state is not own.target}
    return next(same, None) if all(found.steps.get(state) is own.steps[state] for state in others) else None


def _is_start(one: Expr, other: Expr) -> bool:
    return one is other or one.op == other.op == "const" and one.value == other.value


def _at_now(found: Recurrence, still: Expr, running: Expr) -> Expr | None:
    """The step of the target with the c of now in the place of `still`; None where the target does not move with it."""
    target, step, now = found.target, found.steps[found.target], found.steps[running]
    change = added(running, now)
    if change is None or step.op not in _MOVES or step.args[0] is not target or _sees(change, target):
        return None
    moved = _MOVES[step.op](target, step.args[1], still, change)
    return None if moved is None else call(step.op, moved, _seen_from(step.args[1], still, now, running, change))


def _seen_from(element: Expr, still: Expr, now: Expr, running: Expr, change: Expr) -> Expr:
    """An element with the c of now in the place of `still`: what it adds and takes away of c is counted."""
    here = substitute(substitute(element, {now: still}), {running: still - change})

    def counted(term: Expr) -> Expr:
        terms = linear(term) if term.op in ("add", "subtract", "negative") and _sees(term, still) else None
        parts = terms and [_REALS.times(factor, state) if state is not None else factor for state, factor in terms.items()]
        return term if terms is None else reduce(_REALS.plus, parts, _REALS.zero)

    return substitute(rewritten(rewritten(here, counted), folded), {still: now})


def _multiplied(target: Expr, element: Expr, still: Expr, change: Expr) -> Expr | None:
    """Σ, of whose elements one factor is an exponential of c_N."""
    powers = [_power(factor.args[0], still) if factor.op == "exp" else None if _sees(factor, still) else 0
              for factor in operands(element, "multiply")]
    return target * call("exp", _REALS.times(const(sum(powers)), change)) if None not in powers and sum(powers) else None


def _shifted(target: Expr, element: Expr, still: Expr, change: Expr) -> Expr | None:
    """A maximum or minimum, to whose elements c_N is added."""
    power = _power(element, still)
    return _REALS.plus(target, _REALS.times(const(power), change)) if power else None


_MOVES = {"add": _multiplied, "maximum": _shifted, "minimum": _shifted}


def _power(term: Expr, still: Expr) -> float | None:
    """What a sum has c_N multiplied by; None for what is no such sum."""
    powers = linear(term)
    return None if powers is None else powers[still].value if still in powers else 0


def _sees(term: Expr, state: Expr) -> bool:
    return any(part is state for part in subterms(term))
