"""Scans on numbers that cannot lie: one element after the other.

In: an evaluation and a scan.  Out: its node.  What the steps choose between must be certain in every continuation, or
that continuation is spoiled; derivatives are not taken through a scan.
"""
from __future__ import annotations

import numpy as np

from redfuser_algebra.language.expr import Expr, children_replaced, symbol, unbound_states
from redfuser_algebra.prove.refutation.evaluation import Evaluation, Node, Unsupported


def stepped(evaluation: Evaluation, term: Expr) -> Node:
    """The last state, or the states after or before every element.  Raises Unsupported."""
    axis, names, place, every = term.attrs
    dim, length = evaluation.setting.dim(axis), evaluation.setting.sizes[axis]
    inside = {state.name: state for step in term.args[len(names):] for state in unbound_states(step)}
    leaves = [inside.get(name, Expr("state", (), (name, ()))) for name in names]
    parts: dict[Expr, Expr] = {}
    steps = [_taken_apart(step, axis, parts) for step in term.args[len(names):]]
    elements = {name: evaluation.number(part).stretched(dim, length) for part, name in parts.items()}
    states, passed = [evaluation.number(start) for start in term.args[:len(names)]], []
    for at in range(length):
        step = evaluation.beside(dict(zip(leaves, states, strict=True)) | {name: _at(node, dim, at) for name, node in elements.items()})
        before, states = states, [step.number(each) for each in steps]
        if step.choices:
            raise Unsupported("a choice inside a scan")
        evaluation.spoiled |= step.spoiled
        passed.append((states if every == "after" else before)[place])
    if not every:
        return states[place]
    values, fixed = (np.concatenate(np.broadcast_arrays(*parts), dim) for parts in zip(*((n.value, n.fixed) for n in passed), strict=True))
    return Node(values, fixed)


def _at(node: Node, dim: int, at: int) -> Node:
    return Node(np.take(node.value, [at], dim), np.take(node.fixed, [at], dim))


def _taken_apart(step: Expr, axis: str, parts: dict[Expr, Expr]) -> Expr:
    """A step with symbols for what it takes of an element alone; `parts` has them."""
    if axis in step.axes and not unbound_states(step):
        return parts.setdefault(step, symbol(f"part {len(parts)}", tuple(a for a in step.axes if a != axis)))
    return children_replaced(step, tuple(_taken_apart(arg, axis, parts) for arg in step.args))
