"""Contractions of traced arrays: matmul, einsum and their kin, as Σ of products over named axes."""
from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from redfuser_algebra.language.tracing.alignment import aligned
from redfuser_algebra.language.tracing.array import Traced, implements, lifted
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.reductions import total


Labels = Sequence[Hashable]
"""A label for each dimension of an array: dimensions of one label meet."""


def contracted(arrays: Sequence[Traced], labels: Sequence[Labels], kept: Labels, what: str) -> Traced:
    """Σ of the products of arrays over the dimensions whose labels are not kept."""
    exprs, dims = aligned([array.expr for array in arrays], [array.dims for array in arrays], labels, what, kept)
    expr = exprs[0]
    for other in exprs[1:]:
        expr = expr * other
    gone = tuple(name for label in dims if label not in kept for name in dims[label])
    return Traced(total(expr, gone, None) if gone else expr, tuple(dims[label] for label in kept))


def _needs_dimensions(name: str, *arrays: Traced) -> None:
    if not all(array.dims for array in arrays):
        raise refused(name, "one operand is a number", "multiply by it with *")


@implements(np.matmul)
def _matmul(a, b):
    a, b = lifted(a), lifted(b)
    _needs_dimensions("a matrix product", a, b)
    batch = range(-max(a.ndim, b.ndim), -2)
    rows, columns = ("row",) * (a.ndim > 1), ("column",) * (b.ndim > 1)
    left, right = (*range(-a.ndim, -2), *rows, "shared"), (*range(-b.ndim, -2), "shared", *columns)
    return contracted((a, b), (left, right), (*batch, *rows, *columns), "a matrix product")


@implements(np.dot)
def _dot(a, b, out=None):
    a, b = lifted(a), lifted(b)
    if not a.dims or not b.dims:
        return a * b
    return _tensordot(a, b, (-1, -2 if b.ndim > 1 else -1))


@implements(np.inner)
def _inner(a, b):
    a, b = lifted(a), lifted(b)
    return a * b if not a.dims or not b.dims else _tensordot(a, b, (-1, -1))


@implements(np.vdot)
def _vdot(a, b):
    return _inner(np.ravel(lifted(a)), np.ravel(lifted(b)))


@implements(np.outer)
def _outer(a, b, out=None):
    return _tensordot(np.ravel(lifted(a)), np.ravel(lifted(b)), 0)


@implements(*(function for name in ("vecdot",) if (function := getattr(np, name, None))), np.linalg.vecdot)
def _vecdot(a, b, /, *, axis=-1):
    product = lifted(a) * lifted(b)
    return np.sum(product, axis=axis)


@implements(np.tensordot, np.linalg.tensordot)
def _tensordot(a, b, axes=2):
    a, b = lifted(a), lifted(b)
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    left, right = ([int(place) % array.ndim for place in (given if isinstance(given, Sequence) else (given,))]
                   for array, given in zip((a, b), axes, strict=True))
    labels = [("a", place) for place in range(a.ndim)], [("b", place) for place in range(b.ndim)]
    for one, other in zip(left, right, strict=True):
        labels[1][other] = labels[0][one]
    kept = [label for own, gone in zip(labels, (left, right), strict=True) for place, label in enumerate(own) if place not in gone]
    return contracted((a, b), labels, kept, "np.tensordot")


@implements(np.einsum)
def _einsum(subscripts, *operands, optimize=False, **options):
    if not isinstance(subscripts, str):
        raise refused("np.einsum with lists of numbers", "only subscripts in a string are read", 'write np.einsum("mk,lk->ml", …)')
    arrays = [lifted(operand) for operand in operands]
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    labels = _labelled(left.split(","), arrays)
    batch = sorted({label for own in labels for label in own if isinstance(label, int)})
    letters = [letter for part in left.split(",") for letter in part.replace("...", "")]
    if not arrow:
        right = "..." * ("..." in left) + "".join(sorted({letter for letter in letters if letters.count(letter) == 1}))
    before, dots, after = right.partition("...")
    return contracted(arrays, labels, (*before, *(batch if dots else ()), *after), "np.einsum")


def _labelled(parts: list[str], arrays: list[Traced]) -> list[list[Hashable]]:
    """The label of each dimension: its letter, or its place, from the end, among those that the dots stand for."""
    if len(parts) != len(arrays):
        raise refused(f"np.einsum of {len(arrays)} arrays", f"its subscripts name {len(parts)}", "give one part for each array")
    labels = []
    for part, array in zip(parts, arrays, strict=True):
        before, dots, after = part.partition("...")
        middle = array.ndim - len(before) - len(after)
        if middle < 0 or middle and not dots or len(set(part.replace("...", ""))) < len(before + after):
            raise refused(f'np.einsum with "{part}"', f"the array has {array.ndim} dimensions, and each letter stands for one of them",
                          "name every dimension once")
        labels.append([*before, *range(-middle, 0), *after])
    return labels


class Moments:
    """The symmetric 2 × 2 matrix of np.cov or np.corrcoef of two variables: its elements can be picked, it is no array."""

    def __init__(self, elements: tuple[tuple[Traced, ...], ...]) -> None:
        self.elements = elements

    def __getitem__(self, key: tuple[int, int]) -> Traced:
        return self.elements[key[0]][key[1]]

    def __getattr__(self, name: str) -> object:
        raise refused("a matrix of covariances as an array", "it is not an array with named axes", "pick its elements: np.cov(x, y)[0, 1]")


def _cov_pair(x: Traced, y: Traced, ddof: object) -> Traced:
    product = (x - np.mean(x)) * (y - np.mean(y))
    return np.sum(product) / (x.size - ddof)


def _rows(x: object, rowvar: bool) -> Traced:
    x = lifted(x)
    return x if rowvar else np.transpose(x)


@implements(np.cov)
def _cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, **options):
    if fweights is not None or aweights is not None:
        raise refused("np.cov with weights", "only equal weights are read", "write the weighted sums out")
    ddof = (0 if bias else 1) if ddof is None else ddof
    if y is None:
        x = _rows(m, rowvar)
        d = x - np.mean(x, axis=-1, keepdims=True)
        return np.matmul(d, np.swapaxes(d, -1, -2) if x.ndim > 1 else d) / (x.shape[-1] - ddof)
    pair = _two_rows(m, y, "np.cov")
    return Moments(tuple(tuple(_cov_pair(a, b, ddof) for b in pair) for a in pair))


def _two_rows(x: object, y: object, name: str) -> tuple[Traced, Traced]:
    if lifted(x).ndim != 1 or lifted(y).ndim != 1:
        raise refused(f"{name} of two tables", "their rows are joined end to end", f"give two vectors, {name}(x, y), or one table")
    return lifted(x), lifted(y)


@implements(np.corrcoef)
def _corrcoef(x, y=None, rowvar=True, **options):
    if y is None:
        x = _rows(x, rowvar)
        d = x - np.mean(x, axis=-1, keepdims=True)
        d = d / np.sqrt(np.sum(d * d, axis=-1, keepdims=True))
        return np.matmul(d, np.swapaxes(d, -1, -2))
    pair = _two_rows(x, y, "np.corrcoef")
    spread = [np.sqrt(_cov_pair(a, a, 1)) for a in pair]
    return Moments(tuple(tuple(_cov_pair(a, b, 1) / spread[i] / spread[j] for j, b in enumerate(pair)) for i, a in enumerate(pair)))
