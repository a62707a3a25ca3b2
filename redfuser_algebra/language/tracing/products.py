"""Contractions of traced arrays: matmul, einsum and their kin, as Σ of products over named axes."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.tracing.array import Traced, implements, lifted
from redfuser_algebra.language.tracing.lengths import Dim, broadcast, current
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.reductions import total


def _contracted(expr: Expr, dim: Dim, dims: tuple[Dim, ...]) -> Traced:
    """Σ over the axes of one dimension; the others are left."""
    return Traced(total(expr, dim, None) if dim else expr, dims)


def _needs_dimensions(name: str, *arrays: Traced) -> None:
    if not all(array.dims for array in arrays):
        raise refused(name, "one operand is a number", "multiply by it with *")


@implements(np.matmul)
def _matmul(a, b):
    a, b = lifted(a), lifted(b)
    _needs_dimensions("a matrix product", a, b)
    row, column = a.dims[:-1], b.dims[:-2] + b.dims[-1:] if b.ndim > 1 else b.dims[:0]
    shared = current.get().met(a.dims[-1], b.dims[-2 if b.ndim > 1 else -1], "a matrix product")
    batch = broadcast((row[:-1], column[:-1]), "a matrix product")
    return _contracted(a.expr * b.expr, shared, batch + row[-1:] + column[-1:])


@implements(np.dot)
def _dot(a, b, out=None):
    a, b = lifted(a), lifted(b)
    if not a.dims or not b.dims:
        return a * b
    if a.ndim <= 2 and b.ndim <= 2:
        return _matmul(a, b)
    shared = current.get().met(a.dims[-1], b.dims[-2 if b.ndim > 1 else -1], "np.dot")
    rest = b.dims[:-2] + b.dims[-1:] if b.ndim > 1 else ()
    return _contracted(a.expr * b.expr, shared, a.dims[:-1] + rest)


@implements(np.inner)
def _inner(a, b):
    a, b = lifted(a), lifted(b)
    if not a.dims or not b.dims:
        return a * b
    return _contracted(a.expr * b.expr, current.get().met(a.dims[-1], b.dims[-1], "np.inner"), a.dims[:-1] + b.dims[:-1])


@implements(np.vdot)
def _vdot(a, b):
    return _inner(np.ravel(lifted(a)), np.ravel(lifted(b)))


@implements(np.outer)
def _outer(a, b, out=None):
    a, b = np.ravel(lifted(a)), np.ravel(lifted(b))
    return Traced(a.expr * b.expr, a.dims + b.dims)


@implements(*(function for name in ("vecdot",) if (function := getattr(np, name, None))))
def _vecdot(a, b, axis=-1):
    product = lifted(a) * lifted(b)
    return np.sum(product, axis=axis)


@implements(np.tensordot)
def _tensordot(a, b, axes=2):
    a, b = lifted(a), lifted(b)
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    left, right = ([int(place) % array.ndim for place in (given if isinstance(given, Sequence) else (given,))]
                   for array, given in zip((a, b), axes, strict=True))
    shared = tuple(name for i, j in zip(left, right, strict=True) for name in current.get().met(a.dims[i], b.dims[j], "np.tensordot"))
    kept = [dim for array, gone in ((a, left), (b, right)) for place, dim in enumerate(array.dims) if place not in gone]
    return _contracted(a.expr * b.expr, shared, tuple(kept))


@implements(np.einsum)
def _einsum(subscripts, *operands, optimize=False, **options):
    if not isinstance(subscripts, str):
        raise refused("np.einsum with lists of numbers", "only subscripts in a string are read", 'write np.einsum("mk,lk->ml", …)')
    arrays = [lifted(operand) for operand in operands]
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    labels, batch = _labelled(left.split(","), arrays)
    letters = [letter for part in left.split(",") for letter in part.replace("...", "")]
    if not arrow:
        right = "..." * ("..." in left) + "".join(sorted({letter for letter in letters if letters.count(letter) == 1}))
    before, dots, after = right.partition("...")
    kept = [labels[letter] for letter in before] + list(batch if dots else ()) + [labels[letter] for letter in after]
    gone = tuple(name for letter in dict.fromkeys(letters) if letter not in right for name in labels[letter])
    expr = arrays[0].expr
    for array in arrays[1:]:
        expr = expr * array.expr
    return _contracted(expr, gone, tuple(kept))


def _labelled(parts: list[str], arrays: list[Traced]) -> tuple[dict[str, Dim], tuple[Dim, ...]]:
    """The dimension of each letter, and those that the dots stand for."""
    if len(parts) != len(arrays):
        raise refused(f"np.einsum of {len(arrays)} arrays", f"its subscripts name {len(parts)}", "give one part for each array")
    labels: dict[str, Dim] = {}
    batches = []
    for part, array in zip(parts, arrays, strict=True):
        before, dots, after = part.partition("...")
        middle = array.ndim - len(before) - len(after)
        if middle < 0 or middle and not dots or len(set(part.replace("...", ""))) < len(before + after):
            raise refused(f'np.einsum with "{part}"', f"the array has {array.ndim} dimensions, and each letter stands for one of them",
                          "name every dimension once")
        batches.append(array.dims[len(before):array.ndim - len(after)])
        own = zip(before + after, array.dims[:len(before)] + array.dims[array.ndim - len(after):], strict=True)
        for letter, dim in own:
            labels[letter] = current.get().met(labels.get(letter, ()), dim, f'np.einsum along "{letter}"')
    return labels, broadcast(batches, "np.einsum")


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


def _two_rows(x: object, y: object, name: str) -> tuple[Traced, Traced]:
    if y is None or lifted(x).ndim != 1 or lifted(y).ndim != 1:
        raise refused(f"{name} of one table", "the result holds every pair of its rows", f"give two vectors: {name}(x, y)")
    return lifted(x), lifted(y)


@implements(np.cov)
def _cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, **options):
    if fweights is not None or aweights is not None:
        raise refused("np.cov with weights", "only equal weights are read", "write the weighted sums out")
    pair = _two_rows(m, y, "np.cov")
    ddof = (0 if bias else 1) if ddof is None else ddof
    return Moments(tuple(tuple(_cov_pair(a, b, ddof) for b in pair) for a in pair))


@implements(np.corrcoef)
def _corrcoef(x, y=None, rowvar=True, **options):
    pair = _two_rows(x, y, "np.corrcoef")
    spread = [np.sqrt(_cov_pair(a, a, 1)) for a in pair]
    return Moments(tuple(tuple(_cov_pair(a, b, 1) / spread[i] / spread[j] for j, b in enumerate(pair)) for i, a in enumerate(pair)))
