"""Recurrences evaluated as they are written: one element after the other, in float64.

In: an evaluation and a scan.  Out: laid-out arrays.  This is the meaning that parts and merges are compared with.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.recurrence import with_elements

if TYPE_CHECKING:
    from redfuser_algebra.run.evaluate import Evaluation


def state_symbol(state: Expr) -> str:
    """The symbol that holds a state's value while a step is evaluated; no other symbol has a name like it."""
    return f"state {state.name}"


def scanned(evaluation: Evaluation, term: Expr) -> np.ndarray:
    """The state that a scan asks for: the last one, or, laid out along the axis, that after or before every element."""
    axis, names, place, every = term.attrs
    environment, states = evaluation.environment, [evaluation.value(start) for start in term.args[:len(names)]]
    dim, passed = environment.dim(axis), [[_wide(state) for state in states]]
    for states in stepped(evaluation, axis, names, states, term.args[len(names):]):
        passed.append(states)
    if not every:
        return passed[-1][place]
    passed = [states[place] for states in (passed[1:] if every == "after" else passed[:-1])]
    nothing = np.zeros([0 if d == dim % environment.ndim else 1 for d in range(environment.ndim)])
    return np.concatenate(np.broadcast_arrays(*passed), dim) if passed else nothing


def stepped(evaluation: Evaluation, axis: str, names: Sequence[str], states: Sequence[np.ndarray], steps: Sequence[Expr]) -> Iterator[list[np.ndarray]]:
    """The states after every element, in order; only the last ones need be kept."""
    environment, elements = evaluation.environment, {}
    dim, length = environment.dim(axis), environment.sizes[axis]
    steps = [with_elements(step, axis, elements) for step in steps]
    values = {name.name: evaluation.of(element) for element, name in elements.items()}
    states = list(map(_wide, states))
    for at in range(length):
        here = {name: np.take(value, [at if value.shape[dim] > 1 else 0], dim) for name, value in values.items()}
        inside = evaluation.inside(**here, **{f"state {name}": state for name, state in zip(names, states, strict=True)})
        states = [_wide(inside.of(step)) for step in steps]
        yield states


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64, copy=False)
