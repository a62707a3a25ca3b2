"""Recurrences evaluated as they are written: one element after the other, in float64.

In: an evaluation and a scan.  Out: laid-out arrays.  This is the meaning that parts and merges are compared with.
"""
from __future__ import annotations

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
    environment = evaluation.environment
    dim, length = environment.dim(axis), environment.sizes[axis]
    states = [_wide(evaluation.value(start)) for start in term.args[:len(names)]]
    elements: dict[Expr, Expr] = {}
    steps = [with_elements(step, axis, elements) for step in term.args[len(names):]]
    values = {name.name: evaluation.value(element) for element, name in elements.items()}
    passed = []
    for at in range(length):
        here = {name: np.take(value, [at if value.shape[dim] > 1 else 0], dim) for name, value in values.items()}
        inside = evaluation.inside(**here, **{f"state {name}": state for name, state in zip(names, states, strict=True)})
        before, states = states, [_wide(inside.value(step)) for step in steps]
        passed.append((states if every == "after" else before)[place])
    if not every:
        return states[place]
    nothing = np.zeros([0 if d == dim % environment.ndim else 1 for d in range(environment.ndim)])
    return np.concatenate(np.broadcast_arrays(*passed), dim) if passed else nothing


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64, copy=False)
