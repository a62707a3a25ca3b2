"""Recurrences evaluated as they are written: one element after the other, in float64.

In: an evaluation and a scan.  Out: laid-out arrays.  This is the meaning that parts and merges are compared with.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.recurrence import with_elements

if TYPE_CHECKING:
    from redfuser_algebra.run.evaluate import Evaluation


def state_symbol(state: Expr) -> str:
    """The symbol that holds a state's value while a step is evaluated; no other symbol has a name like it."""
    return f"state {state.name}"


def scanned(evaluation: Evaluation, term: Expr) -> np.ndarray:
    """The state that a scan asks for: the last one, or, laid out along the axis, that after or before every element.

    The other states of the same steps are found on the way, and are known from then on.
    """
    axis, names, _, every = term.attrs
    environment, states = evaluation.environment, [evaluation.value(start) for start in term.args[:len(names)]]
    dim, passed = environment.dim(axis), [[_wide(state) for state in states]]
    for states in stepped(evaluation, axis, names, states, term.args[len(names):]):
        passed[len(passed) if every else 0:] = [states]
    for place in range(len(names)):
        own = [states[place] for states in passed]
        evaluation.known[Expr("scan", term.args, (axis, names, place, every))] = _along(own, every, dim) if every else own[-1]
    return evaluation.known[term]


def _along(passed: Sequence[np.ndarray], every: str, dim: int) -> np.ndarray:
    """A state before the first element and after each, as an array of those after or before every element."""
    asked = passed[1:] if every == "after" else passed[:-1]
    nothing = np.zeros([0 if d == dim % passed[0].ndim else 1 for d in range(passed[0].ndim)])
    return np.concatenate(np.broadcast_arrays(*asked), dim) if asked else nothing


def stepped(evaluation: Evaluation, axis: str, names: Sequence[str], states: Sequence[np.ndarray], steps: Sequence[Expr]) -> Iterator[list[np.ndarray]]:
    """The states after every element, in order; only the last ones need be kept.

    What the steps hold that is the same at every element is evaluated once.  What NumPy warns of is the caller's.
    """
    environment, elements = evaluation.environment, {}
    dim, length = environment.dim(axis), environment.sizes[axis]
    steps = [with_elements(step, axis, elements) for step in steps]
    values = {name.name: evaluation.value(element) for element, name in elements.items()}
    steady = {part: evaluation.value(part) for step in steps for part in _steady(step, {*elements.values()})} if length else {}
    states = list(map(_wide, states))
    for at in range(length):
        here = {name: np.take(value, [at if value.shape[dim] > 1 else 0], dim) for name, value in values.items()}
        inside = evaluation.inside(**here, **{f"state {name}": state for name, state in zip(names, states, strict=True)})
        inside.known.update(steady)
        states = [_wide(inside.value(step)) for step in steps]
        yield states


def _steady(term: Expr, elements: Collection[Expr]) -> Iterator[Expr]:
    """The largest parts of a step without states and without elements."""
    if not any(part.op == "state" or part in elements for part in subterms(term)):
        yield term
    else:
        for arg in term.args:
            yield from _steady(arg, elements)


def _wide(value: np.ndarray) -> np.ndarray:
    return value if value.dtype.kind == "f" else value.astype(np.float64)
