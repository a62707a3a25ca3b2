"""Arrays that traced code makes from lengths alone (ranges, ones, triangles), read back as expressions of positions."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr, const
from redfuser_algebra.language.tracing.lengths import LISTED, NEAR, Dim, current
from redfuser_algebra.language.tracing.place import refused


_OF_LENGTHS: tuple[tuple[Callable[[float], float], Callable[[Expr], Expr]], ...] = (
    (math.sqrt, ra.sqrt), (lambda n: 1 / math.sqrt(n), lambda n: 1 / ra.sqrt(n)), (lambda n: 1 / n, lambda n: 1 / n),
    (math.log, ra.log), (math.log2, ra.log2), (math.log10, lambda n: ra.log(n) / math.log(10)), (lambda n: n / 2, lambda n: n / 2),
    (lambda n: n * n, ra.square), (lambda n: n**0.25, lambda n: ra.power(n, 0.25)), (lambda n: n**-0.25, lambda n: ra.power(n, -0.25)))
"""What Python's numbers may have become of a length, which they do not know for one: as numbers, as expressions.

What only looks like it is found out, since functions are traced with several lengths."""
_ROUNDED, _GAPS = 2.0**-23, (0, -1, 1, -2)


def number(value: float) -> Expr:
    """A constant, or what it is of the length of an axis in this trace."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2.0**53:
        return const(value)
    found = (_of_length(value, name, length) for name, length in current.get().known_lengths)
    return next((expr for expr in found if expr is not None), const(value))


def _of_length(value: float, name: str, length: int) -> Expr | None:
    """A number as an expression of one axis's length; None if it is none.  Numbers of float32 are good enough."""
    if abs(value - length) <= NEAR:
        return _more(ra.size(name), value - length)
    for of, expr in _OF_LENGTHS:
        for gap in _GAPS:
            if math.isclose(of(length + gap), abs(value), rel_tol=_ROUNDED):
                found = expr(_more(ra.size(name), gap))
                return found if value > 0 else -found
    return None


def _more(expr: Expr, gap: float) -> Expr:
    return expr if gap == 0 else expr + gap if gap > 0 else expr - -gap


def read(array: np.ndarray) -> tuple[Expr, tuple[Dim, ...]]:
    """The expression and dimensions of an array of constants.

    It may be constant, linear in the positions, or a truth value (or 0 and 1) that is a comparison of two positions or
    of one with a number; along axes of a few elements anything.  Raises OperatorError for anything else.
    """
    if array.ndim == 0:
        return number(array.item()), ()
    dims = current.get().dims_of(array.shape, "an array of constants")
    axes = tuple(dim[0] for dim in dims if dim)
    core = array.reshape([length for length in array.shape if length != 1])
    for recognise in (_uniform, _linear, _threshold, _triangle, _listed, _table):
        found = recognise(core, axes)
        if found is not None:
            return found, dims
    raise refused(f"an array of constants of shape {array.shape}", "its elements are no simple function of their positions",
                  "make it an input with axes of its own")


def _uniform(core: np.ndarray, axes: Sequence[str]) -> Expr | None:
    first = core.flat[0]
    same = np.all(core == first) or first != first and np.all(core != core)
    return number(first) if same else None


def _linear(core: np.ndarray, axes: Sequence[str]) -> Expr | None:
    """a + Σ b·index, for exactly representable values."""
    if core.dtype.kind not in "iuf":
        return None
    start = core[(0,) * core.ndim].item()
    slopes = [core[tuple(int(i == place) for i in range(core.ndim))].item() - start for place in range(core.ndim)]
    grids = np.indices(core.shape, sparse=True)
    if not np.array_equal(start + sum(slope * grid for slope, grid in zip(slopes, grids, strict=True)), core):
        return None
    terms = [ra.index(axis) if slope == 1 else number(slope) * ra.index(axis) for axis, slope in zip(axes, slopes, strict=True) if slope]
    total = sum(terms[1:], terms[0])
    return total if start == 0 else total + number(start)


def _as_truth(core: np.ndarray) -> np.ndarray | None:
    if core.dtype == bool:
        return core
    return core.astype(bool) if set(np.unique(core)) == {0, 1} else None


def _found(core: np.ndarray, condition: Expr) -> Expr:
    return condition if core.dtype == bool else ra.where(condition, 1, 0)


def _threshold(core: np.ndarray, axes: Sequence[str]) -> Expr | None:
    """index < n or index >= n along one axis."""
    truth = _as_truth(core)
    for place, axis in enumerate(axes if truth is not None else ()):
        line = truth[tuple(slice(None) if i == place else 0 for i in range(core.ndim))]
        shape = [-1 if i == place else 1 for i in range(core.ndim)]
        if not np.array_equal(np.broadcast_to(line.reshape(shape), core.shape), truth):
            continue
        turn = int(np.argmax(line != line[0]))
        if np.all(line[turn:] != line[0]):
            condition = ra.index(axis) < number(turn) if line[0] else ra.index(axis) >= number(turn)
            return _found(core, condition)
    return None


def _triangle(core: np.ndarray, axes: Sequence[str]) -> Expr | None:
    """index − index ≤ n or ≥ n or = n for two axes."""
    truth = _as_truth(core)
    grids = np.indices(core.shape, sparse=True)
    for i, j in combinations(range(core.ndim if truth is not None else 0), 2):
        gap = np.broadcast_to(grids[j] - grids[i], core.shape)
        difference = ra.index(axes[j]) - ra.index(axes[i])
        low, high = gap[truth].min(), gap[truth].max()
        for condition, holds in ((difference <= number(high), gap <= high), (difference >= number(low), gap >= low),
                                 (difference == number(low), gap == low)):
            if np.array_equal(holds, truth):
                return _found(core, tidy_difference(condition))
    return None


def _listed(core: np.ndarray, axes: Sequence[str]) -> Expr | None:
    """A few numbers along one axis of a fixed length, such as a top-k makes."""
    if core.ndim != 1 or core.size > LISTED:
        return None
    result = number(core[-1])
    for position in reversed(range(core.size - 1)):
        result = ra.where(ra.index(axes[0]) == position, number(core[position]), result)
    return result


def _table(core: np.ndarray, axes: Sequence[str]) -> Expr | None:
    """Some numbers along several axes of fixed lengths, as an input that need not be given."""
    known = current.get()
    if core.dtype.kind not in "biuf" or any(known.origin(axis) not in known.listed for axis in axes):
        return None
    return Expr("input", (), (known.table(core), tuple(axes)))


def tidy_difference(condition: Expr) -> Expr:
    """j − i ≤ 0 as j ≤ i, which is how people write a causal mask."""
    gap, bound = condition.args
    if bound.op == "const" and bound.value == 0:
        return Expr(condition.op, gap.args)
    return condition
