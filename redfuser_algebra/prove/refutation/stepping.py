"""Scans on numbers that cannot lie: one element after the other.

In: an evaluation and a scan.  Out: its node.  What the steps choose between must be certain in every continuation, or
that continuation is spoiled.  Derivatives go back through the steps, one after the other.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from redfuser_algebra.language.expr import Expr, children_replaced, symbol, unbound_states
from redfuser_algebra.prove.refutation.evaluation import Evaluation, Node, Unsupported

Back = Callable[[Evaluation, Sequence[tuple[Expr, np.ndarray]]], dict[Expr, np.ndarray]]


def stepped(evaluation: Evaluation, term: Expr) -> Node:
    """The last state, or the states after or before every element.  Raises Unsupported."""
    axis, names, place, every = term.attrs
    dim, length = evaluation.setting.dim(axis), evaluation.setting.sizes[axis]
    leaves, parts, nexts = _taken_apart(term)
    elements = {name: evaluation.number(part).stretched(dim, length) for part, name in parts.items()}
    states, passed, steps = [evaluation.number(start) for start in term.args[:len(names)]], [], []
    for at in range(length):
        step = evaluation.beside(dict(zip(leaves, states, strict=True)) | {name: _at(node, dim, at) for name, node in elements.items()})
        before, states = states, [step.number(each) for each in nexts]
        if step.choices:
            raise Unsupported("a choice inside a scan")
        evaluation.spoiled |= step.spoiled
        passed.append((states if every == "after" else before)[place])
        steps.append(step)
    evaluation.passed[term] = tuple(steps)
    if not every:
        return states[place]
    values, fixed = (np.concatenate(np.broadcast_arrays(*parts), dim) for parts in zip(*((n.value, n.fixed) for n in passed), strict=True))
    return Node(values, fixed)


def through_steps(evaluation: Evaluation, term: Expr, weight: np.ndarray, back: Back) -> Iterator[tuple[Expr, np.ndarray]]:
    """What the weight of a scan becomes on what its steps take of elements, and on where it starts.

    `back` takes the weights of some terms of one evaluation to the terms below them.
    """
    axis, names, place, every = term.attrs
    dim, (leaves, parts, nexts) = evaluation.setting.dim(axis), _taken_apart(term)
    weights: list[np.ndarray | None] = [None] * len(names)
    pulled: dict[Expr, list[np.ndarray | None]] = {name: [] for name in parts.values()}
    if not every:
        weights[place] = weight
    for at, step in reversed(list(enumerate(evaluation.passed[term]))):
        if every == "after":
            weights[place] = _plus(weights[place], np.take(weight, [at], dim))
        found = back(step, [(each, own) for each, own in zip(nexts, weights, strict=True) if own is not None])
        weights = [found.get(leaf) for leaf in leaves]
        if every == "before":
            weights[place] = _plus(weights[place], np.take(weight, [at], dim))
        for name in parts.values():
            pulled[name].insert(0, found.get(name))
    for part, name in parts.items():
        known = [each for each in pulled[name] if each is not None]
        if known:
            nothing = np.full(known[0].shape, evaluation.zero, object)
            yield part, np.concatenate([nothing if each is None else each for each in pulled[name]], dim)
    yield from ((start, own) for start, own in zip(term.args, weights, strict=False) if own is not None)


def _plus(a: np.ndarray | None, b: np.ndarray) -> np.ndarray:
    return b if a is None else a + b


def _at(node: Node, dim: int, at: int) -> Node:
    return Node(np.take(node.value, [at], dim), np.take(node.fixed, [at], dim))


def _taken_apart(term: Expr) -> tuple[list[Expr], dict[Expr, Expr], list[Expr]]:
    """The states of a scan, what its steps take of an element alone with symbols for it, and the steps over these."""
    axis, names, *_ = term.attrs
    inside = {state.name: state for step in term.args[len(names):] for state in unbound_states(step)}
    parts: dict[Expr, Expr] = {}

    def apart(step: Expr) -> Expr:
        if axis in step.axes and not unbound_states(step):
            return parts.setdefault(step, symbol(f"part {len(parts)}", tuple(a for a in step.axes if a != axis)))
        return children_replaced(step, tuple(map(apart, step.args)))

    nexts = [apart(step) for step in term.args[len(names):]]
    return [inside.get(name, Expr("state", (), (name, ()))) for name in names], parts, nexts
