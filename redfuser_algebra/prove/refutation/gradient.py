"""Exact derivatives of an evaluated operator, by one sweep backwards through its terms.

In: an evaluation and weights on the entries of some terms.  Out: for each moving input, the derivative of the
weighted sum with respect to each of its entries, in every continuation separately.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.derivatives import derivatives
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.prove.refutation.elementwise import ELEMENTWISE
from redfuser_algebra.prove.refutation.evaluation import Evaluation, Setting
from redfuser_algebra.prove.refutation.folding import NOTHING, folded, leave_one_out
from redfuser_algebra.prove.refutation.stepping import stepped, through_steps

Pulled = tuple[np.ndarray | None, ...]


def evaluated(setting: Setting, side: int | None = None) -> Evaluation:
    """An evaluation that knows every operation; open choices are answered with `side` if it is given."""
    return Evaluation(setting, {**ELEMENTWISE, "reduce": folded, "scan": stepped}, side, vanishes)


def vanishes(evaluation: Evaluation, seeds: Sequence[tuple[Expr, np.ndarray]]) -> np.ndarray:
    """In which continuations Σ seed · term is 0 for all numbers nearby, where it is 0 here: it is affine there, with slope 0."""
    if not all(_affine(evaluation, term) for term in subterms(*(term for term, _ in seeds))):
        return np.zeros(evaluation.setting.continuations, bool)
    slopes = gradient(evaluation, seeds).values()
    still = [np.equal(slope, 0).astype(bool).reshape(len(slope), -1).all(axis=1) for slope in slopes]
    return np.logical_and.reduce([np.ones(evaluation.setting.continuations, bool), *still])


def _affine(evaluation: Evaluation, term: Expr) -> bool:
    """Whether a term is affine in its operands, or does not move, near numbers at which no choice is a tie."""
    moving = [not evaluation.nodes[arg].fixed.all() for arg in term.args if arg in evaluation.nodes]
    return term.op in _AFFINE or not any(moving) or moving == [True, False] and term.op in ("multiply", "divide") or \
        moving == [False, True] and term.op == "multiply" or term.op == "reduce" and term.monoid != "prod"


def gradient(evaluation: Evaluation, seeds: Sequence[tuple[Expr, np.ndarray]]) -> dict[str, np.ndarray]:
    """∂(Σ seed · term)/∂x for each moving input x, per continuation.  Raises Unsupported."""
    return {term.name: weight for term, weight in _weights(evaluation, seeds).items() if term.op == "input"}


_AFFINE = ("add", "subtract", "negative", "where", "maximum", "minimum", "abs")


def _weights(evaluation: Evaluation, seeds: Sequence[tuple[Expr, np.ndarray]]) -> dict[Expr, np.ndarray]:
    """The weight of every term that seeds reach."""
    weights: dict[Expr, np.ndarray] = {}
    for term, seed in seeds:
        _gather(weights, evaluation, term, seed)
    for term in reversed(subterms(*(term for term, _ in seeds))):
        if term.args and term in weights:
            evaluation.setting.spend(term)
            below = through_steps(evaluation, term, weights[term], _weights) if term.op == "scan" else \
                zip(term.args, _pulled(evaluation, term, weights[term]), strict=False)
            for arg, pulled in below:
                if pulled is not None:
                    _gather(weights, evaluation, arg, pulled)
    return weights


def _gather(weights: dict[Expr, np.ndarray], evaluation: Evaluation, term: Expr, pulled: np.ndarray) -> None:
    """Add to the weights of a term; where it was stretched, what reached its copies belongs to it."""
    node = evaluation.nodes[term]
    if node.fixed.all():
        return
    shape = (evaluation.setting.continuations, *node.value.shape[1:])
    for dim in range(1, pulled.ndim):
        if shape[dim] == 1 and pulled.shape[dim] > 1:
            pulled = np.add.reduce(pulled, axis=dim, keepdims=True)
    pulled = pulled if pulled.shape == shape else np.broadcast_to(pulled, shape)
    weights[term] = pulled if term not in weights else weights[term] + pulled


def _pulled(evaluation: Evaluation, term: Expr, weight: np.ndarray) -> Pulled:
    """What the weight of a term becomes on its operands."""
    if term.op == "reduce":
        return _through_reduction(evaluation, term, weight)
    if term.op in _CHOOSING:
        return _CHOOSING[term.op](evaluation, term, weight)
    if term.op == "cast":
        return (weight,)
    moves = [not evaluation.node(arg).fixed.all() for arg in term.args]
    return tuple(weighted(weight, evaluation.number(slope).value) if moving else None
                 for slope, moving in zip(derivatives(term), moves, strict=False))


def weighted(weight: np.ndarray, slope: object) -> np.ndarray:
    """weight · slope; 0 stays 0 even where there is no slope, so that a choice not taken cannot spoil anything."""
    product = np.asarray(np.multiply(weight, slope), object)
    zero = np.equal(weight, 0).astype(bool)
    return np.where(zero, weight, product) if zero.any() else product


def _masked(evaluation: Evaluation, mask: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.where(mask, weight, evaluation.zero)


# terms that choose pass their weight to what was chosen

def _to_chosen(evaluation: Evaluation, term: Expr, weight: np.ndarray) -> Pulled:
    first = evaluation.picked[term]
    branches = _masked(evaluation, first, weight), _masked(evaluation, ~first, weight)
    return (None, *branches) if term.op == "where" else branches


def _to_size(evaluation: Evaluation, term: Expr, weight: np.ndarray) -> Pulled:
    return (np.where(evaluation.picked[term] < 0, -weight, weight),)


def _to_remainder(evaluation: Evaluation, term: Expr, weight: np.ndarray) -> Pulled:
    return weight, weighted(weight, -evaluation.picked[term])


_CHOOSING = {"where": _to_chosen, "maximum": _to_chosen, "minimum": _to_chosen, "abs": _to_size, "mod": _to_remainder}


def _through_reduction(evaluation: Evaluation, term: Expr, weight: np.ndarray) -> Pulled:
    monoid, dim = MONOIDS[term.monoid], evaluation.setting.dim(term.axis)
    if term.monoid in ("any", "all") or monoid.indexed:
        return ()
    if term.monoid not in ("sum", "prod"):
        return (_to_picked(evaluation, term, weight, dim),)
    body = evaluation.number(term.body).stretched(dim, evaluation.setting.sizes[term.axis])
    valid = None if term.mask is None else evaluation.truth(term.mask)
    shape = np.broadcast_shapes(weight.shape, body.value.shape, () if valid is None else valid.shape)
    spread = np.broadcast_to(weight, shape)
    if term.monoid == "prod":
        factors = body.value if valid is None else np.where(valid, body.value, evaluation.one)
        spread = weighted(spread, leave_one_out(np.broadcast_to(factors, shape), dim, evaluation.one))
    return (spread if valid is None else _masked(evaluation, valid, spread),)


def _to_picked(evaluation: Evaluation, term: Expr, weight: np.ndarray, dim: int) -> np.ndarray:
    picked, length = evaluation.picked[term], evaluation.setting.sizes[term.axis]
    if term.count is not None:
        own = evaluation.setting.dim(term.attrs[2])
        weights = (np.take(weight, [k], axis=own) for k in range(picked.shape[own]))
        read = [(k, each) for k, each in enumerate(weights) if k == 0 or not np.equal(each, 0).all()]
        return np.add.reduce([_scattered(evaluation, np.take(picked, [k], axis=own), each, dim, length) for k, each in read])
    return _scattered(evaluation, picked, weight, dim, length)


def _scattered(evaluation: Evaluation, picked: np.ndarray, weight: np.ndarray, dim: int, length: int) -> np.ndarray:
    shape = tuple(length if d == dim else n for d, n in enumerate(np.broadcast_shapes(picked.shape, weight.shape)))
    places = np.indices(shape, sparse=True)[dim]
    return np.where((places == picked) & (picked != NOTHING), weight, evaluation.zero)

