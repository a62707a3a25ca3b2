"""Reductions of numbers that cannot lie, and which elements they picked."""
from __future__ import annotations

import operator
from functools import cmp_to_key, reduce
from itertools import pairwise

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, SMALLEST
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.refutation.evaluation import Choice, Evaluation, Node, Unsupported, same
from redfuser_algebra.prove.refutation.numbers import OPEN

NOTHING = -1
_KNOWN = ("sum", "prod", "max", "min", "fmax", "fmin", "argmax", "argmin", "topk", "argtopk", "any", "all")


def folded(evaluation: Evaluation, term: Expr) -> Node:
    """⊕ over an axis, which is kept with one entry (k for topk)."""
    if term.monoid not in _KNOWN:
        raise Unsupported(f"reduction by {term.monoid}")
    dim, length = evaluation.setting.dim(term.axis), evaluation.setting.sizes[term.axis]
    valid = None if term.mask is None else evaluation.truth(term.mask)
    if term.monoid in ("any", "all"):
        return _of_truths(evaluation.truth(term.body), valid, dim, term.monoid == "any")
    body = evaluation.number(term.body).stretched(dim, length)
    if term.monoid in ("sum", "prod"):
        return _of_numbers(evaluation, term.monoid, body, valid, dim)
    return _selected(evaluation, term, body, valid, dim)


def _of_truths(truths: np.ndarray, valid: np.ndarray | None, dim: int, some: bool) -> Node:
    if valid is not None:
        truths = truths & valid if some else truths | ~valid
    value = (np.any if some else np.all)(truths, axis=dim, keepdims=True)
    return Node(value, np.ones(value.shape, bool))


def _of_numbers(evaluation: Evaluation, monoid: str, body: Node, valid: np.ndarray | None, dim: int) -> Node:
    value, fixed = body.value, body.fixed
    if valid is not None:
        value = np.where(valid, value, evaluation.zero if monoid == "sum" else evaluation.one)
        fixed = fixed | ~valid
    total = (np.add if monoid == "sum" else np.multiply).reduce(value, axis=dim, keepdims=True)
    return Node(np.asarray(total, object), np.all(fixed, axis=dim, keepdims=True))


def _selected(evaluation: Evaluation, term: Expr, body: Node, valid: np.ndarray | None, dim: int) -> Node:
    taking = np.ones(body.value.shape, bool) if valid is None else np.broadcast_to(valid, np.broadcast_shapes(
        valid.shape, body.value.shape))
    body = Node(np.broadcast_to(body.value, taking.shape), np.broadcast_to(body.fixed, taking.shape))
    monoid, count = MONOIDS[term.monoid], _count(evaluation, term)
    places = _in_order(evaluation, body, dim) if count == body.value.shape[dim] > 1 and valid is None else []
    for _ in range(count - len(places)):
        evaluation.setting.spend(term)
        places.append(_winner(evaluation, term, body, taking, dim))
        taking = taking & (np.indices(taking.shape)[dim] != places[-1])
    picked = np.concatenate(places, axis=evaluation.setting.dim(term.attrs[2])) if monoid.counted else places[0]
    evaluation.picked[term] = picked
    return _read_off(evaluation, term, body, picked, dim)


def _in_order(evaluation: Evaluation, body: Node, dim: int) -> list[np.ndarray]:
    """The positions of all entries along a dimension, that of the largest first; none where two are not told apart."""
    values, compare = np.moveaxis(body.value, dim, -1), evaluation.field.order
    places = np.empty(values.shape, int)
    for at in np.ndindex(values.shape[:-1]):
        row = values[at]
        order = sorted(range(len(row)), key=cmp_to_key(lambda a, b: int(compare(row[b], row[a]))))  # noqa: B023
        if not all(compare(row[a], row[b]) == 1 for a, b in pairwise(order)):
            return []
        places[at] = order
    return [np.moveaxis(places[..., [k]], -1, dim) for k in range(values.shape[-1])]


def _count(evaluation: Evaluation, term: Expr) -> int:
    if term.count is None:
        return 1
    k = evaluation.field.whole(evaluation.node(term.count).value.reshape(-1)[0])
    if k is None or k > evaluation.setting.sizes[term.axis]:
        raise Unsupported(f"{term.monoid} over too few elements")
    return k


def _read_off(evaluation: Evaluation, term: Expr, body: Node, picked: np.ndarray, dim: int) -> Node:
    monoid = MONOIDS[term.monoid]
    if monoid.indexed:
        start = evaluation.setting.starts.get(term.axis, 0)
        value = evaluation.field.array(np.where(picked == NOTHING, NOTHING, picked + start))
        return Node(value, np.ones(value.shape, bool))
    at = np.maximum(picked, 0)
    value, fixed = (_taken(array, at, dim) for array in (body.value, body.fixed))
    if (picked == NOTHING).any():
        value = np.where(picked == NOTHING, evaluation.constant(float(monoid.identity)).value, value)
    return Node(value, fixed | (picked == NOTHING))


def _taken(array: np.ndarray, at: np.ndarray, dim: int) -> np.ndarray:
    """The entries at positions along a dimension; `at` may have more entries than 1 along others (topk's own axis)."""
    shape = np.broadcast_shapes(tuple(1 if d == dim else n for d, n in enumerate(array.shape)), at.shape)
    at = np.broadcast_to(at, shape)
    wide = np.broadcast_to(array, tuple(array.shape[d] if d == dim else n for d, n in enumerate(shape)))
    return np.take_along_axis(wide, at, dim)


def _winner(evaluation: Evaluation, term: Expr, body: Node, taking: np.ndarray, dim: int) -> np.ndarray:
    """The position of the best entry that takes part, kept with size 1; NOTHING where none does.

    Spoils a continuation whose winner is not strict, unless the rivals are fixed, or one and the same number.
    """
    if not evaluation.field.bits and taking.all() and body.fixed.all():
        return np.expand_dims((np.argmin if term.monoid in SMALLEST else np.argmax)(body.value, axis=dim), dim)
    certain = _certain(evaluation, term, body, taking, dim)
    if certain is not None:
        return certain
    best, found, tied = None, None, None
    for position in range(body.value.shape[dim]):
        here = (slice(None),) * dim + (slice(position, position + 1),)
        entry, takes = Node(body.value[here], body.fixed[here]), taking[here]
        if best is None:
            best, found, tied = entry, np.where(takes, position, NOTHING), np.zeros(takes.shape, bool)
            continue
        order = evaluation.field.orders(entry.value, best.value)
        rivals = takes & (found != NOTHING)
        order = _settled(evaluation, term, order, rivals & (order == OPEN), found, position, dim)
        better = takes & (~rivals | ((order < 0) if term.monoid in SMALLEST else (order > 0)))
        equal = rivals & (order == 0) & ~(entry.fixed & best.fixed)
        if equal.any():
            equal &= ~same(entry.value, best.value)
        tied, found = (tied & ~better) | equal, np.where(better, position, found)
        best = Node(np.where(better, entry.value, best.value), np.where(better, entry.fixed, best.fixed))
    if tied.any():
        evaluation.open(Choice((term, "tie"), tied, ()))
    return found


def _certain(evaluation: Evaluation, term: Expr, body: Node, taking: np.ndarray, dim: int) -> np.ndarray | None:
    """The winner's position where it beats every other entry for certain; None if somewhere it does not.

    Floats say who may win, and numbers that cannot lie whether it does.
    """
    sign = -1 if term.monoid in SMALLEST else 1
    likely = np.where(taking, sign * body.value.astype(float), -np.inf)
    found = np.expand_dims(likely.argmax(axis=dim), dim)
    best, fixed = (np.take_along_axis(each, found, dim) for each in (body.value, body.fixed))
    order = sign * evaluation.field.orders(body.value, best)
    beaten = (order == -1) | ((order == 0) & ((body.fixed & fixed) | same(body.value, best)))
    return np.where(taking.any(axis=dim, keepdims=True), found, NOTHING) if (beaten | ~taking).all() else None


def _settled(evaluation: Evaluation, term: Expr, order: np.ndarray, undecided: np.ndarray, found: np.ndarray,
             position: int, dim: int) -> np.ndarray:
    """`order` with open comparisons answered; they turn where the entry equals the best one so far."""
    if not undecided.any():
        return np.where(order == OPEN, 0, order)
    if evaluation.side is None:
        evaluation.open(Choice((term, position), undecided, ()))
        return np.where(order == OPEN, 0, order)
    length = evaluation.setting.sizes[term.axis]
    places = np.indices(tuple(length if d == dim else n for d, n in enumerate(undecided.shape)))[dim]
    seed = np.where(undecided & (places == position), evaluation.one, evaluation.zero)
    seed = np.where(undecided & (places == found), -evaluation.one, seed)
    evaluation.open(Choice((term, position), undecided, ((term.body, seed),)))
    return np.where(order == OPEN, evaluation.side or 0, order)


def leave_one_out(values: np.ndarray, dim: int, one: object) -> np.ndarray:
    """The product of all other entries along a dimension."""
    moved = np.moveaxis(values, dim, 0)
    ahead, behind = [np.full(moved.shape[1:], one, object)], [np.full(moved.shape[1:], one, object)]
    for entry in moved[:-1]:
        ahead.append(ahead[-1] * entry)
    for entry in moved[:0:-1]:
        behind.append(behind[-1] * entry)
    return np.moveaxis(np.array([reduce(operator.mul, pair) for pair in zip(ahead, behind[::-1], strict=True)]), 0, dim)
