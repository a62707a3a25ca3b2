"""Reductions of laid-out arrays along one dimension, which is kept (size 1, or k for topk), with masks.

Elements outside the mask do not take part: they are replaced by the identity before NumPy sees them.  NaN
propagates and wins comparisons as in numpy.max and numpy.argmax; ties go to the lowest position.
"""
from __future__ import annotations

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, Monoid
from redfuser_algebra.language.errors import OperatorError

NO_POSITION = int(MONOIDS["argmax"].identity)
_LAST = np.iinfo(np.int64).max


def combined(monoid: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a ⊕ b for a monoid that is neither indexed nor counted."""
    return _applied(MONOIDS[monoid], a, b)


def reduced(monoid: str, values: np.ndarray, dim: int, mask: np.ndarray | None = None) -> np.ndarray:
    """⊕ of `values` along `dim`, kept with size 1, for a monoid that is neither indexed nor counted.

    A masked max or min is float64 whatever the values are, since its identity is ±inf.
    """
    row = MONOIDS[monoid]
    identity = row.identity
    if row.source:
        return _folded(row, values, dim, mask)
    if monoid in ("any", "all"):
        values = values != 0
    elif monoid in ("max", "min", "fmax", "fmin"):
        values = values.astype(np.float64) if mask is not None else values
    else:
        identity = 0 if monoid == "sum" else 1
    if mask is not None:
        values = np.where(mask, values, np.asarray(identity, values.dtype))
    if values.shape[dim] == 0 or monoid in ("any", "all"):
        return row.apply.reduce(values, axis=dim, keepdims=True, initial=identity)
    return (np.sum if monoid == "sum" else np.prod if monoid == "prod" else row.apply.reduce)(
        values, axis=dim, keepdims=True)


def _folded(row: Monoid, values: np.ndarray, dim: int, mask: np.ndarray | None) -> np.ndarray:
    """⊕ along `dim` by the callable that was declared: neighbours are combined, so that only the bracketing is chosen."""
    if values.dtype.kind in "bui":
        values = values.astype(np.int64 if row.whole else np.float64)
    if mask is not None:
        values = np.where(mask, values, values.dtype.type(row.identity))
    dim %= values.ndim
    if values.shape[dim] == 0:
        return np.full((*values.shape[:dim], 1, *values.shape[dim + 1:]), row.identity, values.dtype)
    if isinstance(row.apply, np.ufunc) and values.shape[dim] > 1:
        return _applied(row, values, axis=dim)
    while (length := values.shape[dim]) > 1:
        left, right, rest = (values[(slice(None),) * dim + (part,)] for part in (
            slice(0, length - 1, 2), slice(1, None, 2), slice(length - length % 2, None)))
        values = np.concatenate([_applied(row, left, right), rest], axis=dim)
    return values


def _applied(row: Monoid, *operands: np.ndarray, axis: int | None = None) -> np.ndarray:
    """a ⊕ b, or ⊕ along an axis by a ufunc's own reduce.  Raises OperatorError for numbers that it does not take."""
    try:
        with np.errstate(all="ignore"):
            return row.apply(*operands) if axis is None else row.apply.reduce(*operands, axis=axis, keepdims=True)
    except TypeError as error:
        kinds = ", ".join(str(operand.dtype) for operand in operands)
        raise OperatorError(f"{row.name} of {kinds}", f"its callable does not take them ({error})",
                            "give it whole numbers" if row.whole else "declare a callable that does") from error


def winner(
    values: np.ndarray, positions: np.ndarray, valid: np.ndarray, dim: int, smallest: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The largest valid value along `dim` and its position (ties: the lowest), as (values, positions).

    With `smallest`, the smallest.  NaN wins.  Where nothing is valid, the position is −1.  A 0-d `valid` means that
    all elements take part, and then positions ascend along `dim`.
    """
    if valid.ndim == 0 and values.shape[dim]:
        at = (np.argmin if smallest else np.argmax)(values, axis=dim, keepdims=True)
        return np.take_along_axis(values, at, dim), np.take(positions, at)
    key = np.where(valid, _better_is_larger(values, smallest), _lowest(values.dtype))
    best = key.max(axis=dim, keepdims=True, initial=_lowest(values.dtype))
    won = valid & ((key == best) | (key != key))
    position = np.where(won, positions, _LAST).min(axis=dim, keepdims=True, initial=_LAST)
    position = np.where(position == _LAST, NO_POSITION, position)
    return _better_is_larger(best, smallest), position


def winners(
    values: np.ndarray, positions: np.ndarray, valid: np.ndarray, dim: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest valid values along `dim`, largest first, NaN before all, and their positions.

    `dim` has size k in both results; places that nothing valid fills hold the lowest number and −1.  Ties: lowest position first.
    """
    values, positions, valid = np.broadcast_arrays(values, positions, valid)
    is_nan = values != values
    key = np.where(is_nan, np.zeros((), values.dtype), _better_is_larger(values, smallest=True))
    order = np.lexsort((positions, key, ~is_nan, ~valid), axis=dim)
    order = np.take(order, range(min(k, order.shape[dim])), axis=dim)
    filled = np.take_along_axis(valid, order, dim)
    best = np.where(filled, np.take_along_axis(values, order, dim), _lowest(values.dtype))
    where = np.where(filled, np.take_along_axis(positions, order, dim), NO_POSITION)
    return _padded(best, dim, k, _lowest(values.dtype)), _padded(where, dim, k, NO_POSITION)


def _padded(values: np.ndarray, dim: int, k: int, fill: float) -> np.ndarray:
    width = [(0, 0)] * values.ndim
    width[dim] = (0, k - values.shape[dim])
    return np.pad(values, width, constant_values=fill) if width[dim][1] else values


def _better_is_larger(values: np.ndarray, smallest: bool) -> np.ndarray:
    """`values`, or with `smallest` their order reversed: −v would overflow for the least integer, ~v does not."""
    if not smallest:
        return values
    return -values if values.dtype.kind == "f" else ~values


def _lowest(dtype: np.dtype) -> np.ndarray:
    lowest = -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min
    return np.asarray(lowest, dtype)
