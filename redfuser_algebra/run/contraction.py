"""Sums of products along one dimension without the outer product: Σ_l P[m,l]·V[l,j] as one matrix product.

`contracted` answers None wherever the plain way (multiply everything, then sum) is as good, or where only the plain
way gives the IEEE result: a mask that some factor cannot follow meets a NaN, or regrouped factors overflow.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redfuser_algebra.run.reductions import reduced


def contracted(
    factors: Sequence[np.ndarray], varies: Sequence[bool], dim: int, mask: np.ndarray | None
) -> np.ndarray | None:
    """Σ along `dim` (kept, size 1) of the product of laid-out factors where `mask` holds, or None.

    `varies` says which factors have the axis; the others multiply the sum.
    """
    if np.result_type(*factors) != np.float64 or not any(varies):
        return None
    operands = [*factors] if mask is None else [*factors, mask]
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    if any(factor.shape == shape for factor in factors):
        return None
    inner = [factor for factor, has_axis in zip(factors, varies, strict=True) if has_axis]
    outer = [factor for factor, has_axis in zip(factors, varies, strict=True) if not has_axis]
    pair = _masked(_two_groups(inner), mask)
    if pair is None or any(operand.shape == shape for operand in pair):
        return None
    total = reduced("sum", pair[0], dim) if len(pair) == 1 else _matrix_product(*pair, dim)
    for factor in outer:
        total = total * factor
    regrouped = outer or len(inner) > 2
    return None if regrouped and not np.isfinite(total).all() else total


def _two_groups(factors: list[np.ndarray]) -> list[np.ndarray]:
    """The factors multiplied into one or two: the largest takes those that fit its shape, the rest are the other."""
    first, *others = sorted(factors, key=lambda factor: -factor.size)
    second = None
    for factor in others:
        if np.broadcast_shapes(first.shape, factor.shape) == first.shape:
            first = first * factor
        else:
            second = factor if second is None else second * factor
    return [first] if second is None else [first, second]


def _masked(pair: list[np.ndarray], mask: np.ndarray | None) -> list[np.ndarray] | None:
    """The operands with zeros outside the mask; None if an operand that the mask outgrows is not finite."""
    if mask is None:
        return pair
    follows = [np.broadcast_shapes(operand.shape, mask.shape) == operand.shape for operand in pair]
    if not any(follows):
        follows[0] = True
    if not all(np.isfinite(operand).all() for operand, covers in zip(pair, follows, strict=True) if not covers):
        return None
    return [np.where(mask, operand, 0.0) if covers else operand for operand, covers in zip(pair, follows, strict=True)]


def _matrix_product(a: np.ndarray, b: np.ndarray, dim: int) -> np.ndarray:
    """Σ of a·b along `dim` by numpy.matmul: dimensions of a alone are rows, of b alone columns, shared ones a stack."""
    dim %= a.ndim
    others = [d for d in range(a.ndim) if d != dim]
    rows = [d for d in others if b.shape[d] == 1 and a.shape[d] != 1]
    columns = [d for d in others if a.shape[d] == 1 and b.shape[d] != 1]
    stack = [d for d in others if d not in rows and d not in columns]
    order = (*stack, *rows, *columns, dim)
    a, b = np.transpose(a, order), np.transpose(b, order)
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    stacked = shape[: len(stack)]
    product = np.matmul(
        a.reshape(*stacked, _count(a.shape[len(stack):-1]), a.shape[-1]),
        b.reshape(*stacked, _count(b.shape[len(stack):-1]), b.shape[-1]).swapaxes(-1, -2),
    )
    return np.transpose(product.reshape(*shape, 1), np.argsort(order))


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
