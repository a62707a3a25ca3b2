"""Scans among exact numbers: one element after the other, as they are written.

In: an evaluation and a scan.  Out: laid-out arrays.  Written a second time, apart from `run`.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.expr import Expr, children_replaced, symbol, unbound_states

if TYPE_CHECKING:
    from redfuser_algebra.prove.trials.arithmetic import Evaluation


def scanned(evaluation: Evaluation, term: Expr) -> np.ndarray:
    """The last state, or the states after or before every element along the axis."""
    axis, names, place, every = term.attrs
    number, dim = len(names), evaluation.instance.dim(axis)
    held = {name: evaluation.number(start) for name, start in zip(names, term.args[:number], strict=True)}
    passed = [held, *stepped(evaluation, axis, held, dict(zip(names, term.args[number:], strict=True)))]
    if not every:
        return passed[-1][names[place]]
    seen = [states[names[place]] for states in (passed[1:] if every == "after" else passed[:-1])]
    if not seen:
        return np.take(evaluation.arithmetic.full(0, evaluation.ndim), [], dim)
    return np.concatenate(np.broadcast_arrays(*seen), dim)


def stepped(evaluation: Evaluation, axis: str, held: Mapping[str, np.ndarray], steps: Mapping[str, Expr]) -> Iterator[dict[str, np.ndarray]]:
    """The states after every element, from those held before."""
    dim, parts = evaluation.instance.dim(axis), {}
    steps = {name: _taken_apart(step, axis, parts) for name, step in steps.items()}
    values = {name.name: evaluation.number(part) for part, name in parts.items()}
    for at in range(len(evaluation.along_positions(axis))):
        step = evaluation.with_symbols({f"state {name}": value for name, value in held.items()} | {
            name: np.take(value, [at] if value.shape[dim] > 1 else [0], dim) for name, value in values.items()})
        held = {name: step.number(each) for name, each in steps.items()}
        yield held


def _taken_apart(step: Expr, axis: str, parts: dict[Expr, Expr]) -> Expr:
    """A step over symbols for what it takes of an element alone, and for states; `parts` has the former."""
    if step.op == "state":
        return symbol(f"state {step.name}", step.axes)
    if axis in step.axes and not unbound_states(step):
        return parts.setdefault(step, symbol(f"part {len(parts)}", tuple(a for a in step.axes if a != axis)))
    return children_replaced(step, tuple(_taken_apart(arg, axis, parts) for arg in step.args))
