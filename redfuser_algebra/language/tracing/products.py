"""Contractions of traced arrays: matmul, einsum and their kin, as Σ of products over named axes."""
from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.tracing.alignment import aligned, made_one
from redfuser_algebra.language.tracing.array import Traced, implements, lifted, together
from redfuser_algebra.language.tracing.lengths import current
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


@implements(np.cross)
def _cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    (one, other), dims = together([lifted(a), lifted(b)], "np.cross")
    if (axisa, axisb, axisc, axis) != (-1, -1, -1, None) or not dims or len(dims[-1]) != 1:
        raise refused("np.cross", "it is read along the last dimension", "move the three components there")
    c, three = dims[-1][0], range(3)
    current.get().fix(c, 3)
    x, y = ([ra.take(expr, k, c) if c in expr.axes else expr for k in three] for expr in (one, other))
    parts = [x[(k + 1) % 3] * y[(k + 2) % 3] - x[(k + 2) % 3] * y[(k + 1) % 3] for k in three]
    return Traced(ra.where(ra.index(c) == 0, parts[0], ra.where(ra.index(c) == 1, parts[1], parts[2])), dims)


# matrices of one axis and its copy

@implements(np.diag)
def _diag(v, k=0):
    v = lifted(v)
    if v.ndim != 1:
        return _diagonal(v, k)
    if k or len(v.dims[0]) != 1:
        raise refused("np.diag of a vector", "it is read for one axis, and for the main diagonal", "write np.where of the two positions")
    axis, other = v.dims[0][0], current.get().apart(v.dims[0][0], v.dims[0])
    return Traced(ra.where(ra.index(axis) == ra.index(other), v.expr, 0), ((axis,), (other,)))


@implements(np.diagonal)
def _diagonal(a, offset=0, axis1=0, axis2=1):
    a, axes = lifted(a), current.get()
    first, second = (a.dims[place % a.ndim] for place in (axis1, axis2))
    if offset or len(first) != 1 or len(second) != 1 or axes.origin(first[0]) != axes.origin(second[0]):
        raise refused("a diagonal", "its two dimensions are not one axis twice", "take the main diagonal of a square matrix over one axis")
    kept = tuple(dim for place, dim in enumerate(a.dims) if place not in (axis1 % a.ndim, axis2 % a.ndim))
    return Traced(made_one(a.expr, second[0], first[0], axes.apart(first[0], a.expr.axes)), (*kept, first))


@implements(np.trace)
def _trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1)


@implements(np.bincount)
def _bincount(x, /, weights=None, minlength=0):
    x, axes = lifted(x), current.get()
    found = axes.axis_of(int(minlength))
    if found is None or len(x.dims) != 1:
        raise refused("np.bincount", "how many there are depends on the values", "give the length of an axis as minlength=")
    axis = axes.apart(found, x.dims[0])
    (at, weight), dims = together([x, lifted(1 if weights is None else weights)], "np.bincount")
    return Traced(total(weight, dims[0], at == ra.index(axis)), ((axis,),))


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
