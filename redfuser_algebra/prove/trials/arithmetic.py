"""Expressions evaluated among exact numbers, or among floats of one width, on small laid-out arrays.

In: an Instance (axis lengths, positions, arrays) and expressions.  Out: arrays with one dimension per axis, of size 1
where the value does not vary.  Truth values are bool; roundings declared reassociable are left out among exact
numbers, where they would hide the algebra.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.algebra.monoids import MONOIDS, SMALLEST
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.trials import exact_functions, extended
from redfuser_algebra.prove.trials.scans import scanned

NOWHERE = -1
"""The position of a winner where no element takes part."""
_JOINED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_LOGIC = {"any": np.logical_or, "all": np.logical_and}


class Unsupported(Exception):
    """An operation that this arithmetic does not have."""


@dataclass(frozen=True)
class Arithmetic:
    """A kind of number: how one is made, its functions on arrays, ⊕ as NumPy ufuncs, and the order of two numbers."""

    name: str
    dtype: np.dtype
    number: Callable[[object], object]
    applied: Callable[..., np.ndarray]
    joins: Mapping[str, np.ufunc]
    order: Callable[[object, object], int | None]

    def full(self, value: object, ndim: int) -> np.ndarray:
        """An array of size 1 in every dimension."""
        filled = np.empty((1,) * ndim, bool if isinstance(value, bool) else self.dtype)
        filled[...] = value if isinstance(value, bool) else self.number(value)
        return filled

    def numbers(self, array: np.ndarray) -> np.ndarray:
        """Truth values as 1 and 0; other arrays as they are."""
        if array.dtype != bool:
            return array
        return np.where(array, self.full(1, array.ndim), self.full(0, array.ndim))


def _skipping_nan(a: object, b: object, better: Callable) -> object:
    return b if a != a else a if b != b else better(a, b)


_EXACT_UFUNCS = {name: np.frompyfunc(function, FUNCTIONS[name].arity, 1)
                 for name, function in (exact_functions.FUNCTION_OF | exact_functions.TRUTH_OF).items()}


def _exactly(term: Expr, operands: list[np.ndarray]) -> np.ndarray:
    if term.op == "cast":
        return np.asarray(np.frompyfunc(exact_functions.cast(term.attrs[0]), 1, 1)(*operands), object)
    value = _EXACT_UFUNCS[term.op](*operands)
    return np.asarray(value, bool if term.op in exact_functions.TRUTH_OF else object)


EXACT = Arithmetic(
    "exact", np.dtype(object), extended.exact, _exactly,
    {monoid: _EXACT_UFUNCS[name] for monoid, name in _JOINED.items()} | _LOGIC | {
        "fmax": np.frompyfunc(lambda a, b: _skipping_nan(a, b, exact_functions.maximum), 2, 1),
        "fmin": np.frompyfunc(lambda a, b: _skipping_nan(a, b, exact_functions.minimum), 2, 1)},
    extended.order)


def floats(dtype: str) -> Arithmetic:
    """The arithmetic of NumPy's floats of this width."""
    kind = np.dtype(dtype)

    def applied(term: Expr, operands: list[np.ndarray]) -> np.ndarray:
        if term.op == "cast" and term.attrs[0] not in ("float16", "float32", "float64"):
            raise Unsupported(f"a cast to {term.attrs[0]} among floats")
        with np.errstate(all="ignore"):
            if term.op == "cast":
                return operands[0].astype(term.attrs[0]).astype(kind)
            value = FUNCTIONS[term.op].apply(*operands)
        return value if value.dtype == bool else value.astype(kind)

    joins = {monoid: getattr(np, name) for monoid, name in (_JOINED | {"fmax": "fmax", "fmin": "fmin"}).items()}
    return Arithmetic(dtype, kind, kind.type, applied, joins | _LOGIC,
                      lambda a, b: None if a != a or b != b else int(a > b) - int(a < b))


@dataclass(frozen=True)
class Instance:
    """Some elements of the axis, with everything an operator needs.

    `arrays` are laid out along `axes`; `positions` are those of the elements; `own` holds the axes of named values in
    the order in which expressions name them.
    """

    axis: str
    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    arrays: Mapping[str, np.ndarray]
    params: Mapping[str, object]
    positions: tuple[int, ...]
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def dim(self, axis: str) -> int:
        """The dimension of an axis."""
        return self.axes.index(axis)

    def taking(self, places: tuple[int, ...]) -> Instance:
        """The elements at these places alone."""
        dim = self.dim(self.axis)
        arrays = {name: np.take(array, places, dim) if array.shape[dim] == len(self.positions) and self.axis in self.own[name]
                  else array for name, array in self.arrays.items()}
        return replace(self, arrays=arrays, sizes={**self.sizes, self.axis: len(places)},
                       positions=tuple(self.positions[place] for place in places))


def laid_out(array: np.ndarray, own: tuple[str, ...], axes: tuple[str, ...]) -> np.ndarray:
    """An array with dimensions `own`, laid out along `axes`."""
    order = sorted(range(len(own)), key=lambda at: axes.index(own[at]))
    lengths = dict(zip(own, array.shape, strict=True))
    return np.transpose(array, order).reshape([lengths.get(axis, 1) for axis in axes])


class Evaluation:
    """The values of expressions on one instance; `symbols` may grow between questions.

    `length` is what the size of the reduced axis means.  With `partial`, a total twin is the operation it completes.
    """

    def __init__(self, arithmetic: Arithmetic, instance: Instance, length: int | None = None, partial: bool = False) -> None:
        self.arithmetic, self.instance, self.partial = arithmetic, instance, partial
        self.length = len(instance.positions) if length is None else length
        self.ndim = len(instance.axes)
        self.symbols: dict[str, np.ndarray] = {}
        self.known: dict[Expr, np.ndarray] = {}

    def of(self, term: Expr) -> np.ndarray:
        """The value of a term, laid out."""
        if term not in self.known:
            self.known[term] = _RULES.get(term.op, _applied)(self, term)
        return self.known[term]

    def number(self, term: Expr) -> np.ndarray:
        """The value of a term, truth counted as 1 and 0."""
        return self.arithmetic.numbers(self.of(term))

    def truth(self, term: Expr) -> np.ndarray:
        """Where a term is true, or not 0."""
        value = self.of(term)
        return value if value.dtype == bool else ~np.asarray(np.equal(value, 0), bool)

    def with_symbols(self, symbols: Mapping[str, np.ndarray]) -> Evaluation:
        """The same with other symbols next to its own, and nothing known yet."""
        made = Evaluation(self.arithmetic, self.instance, self.length, self.partial)
        made.symbols = {**self.symbols, **symbols}
        return made

    def along_positions(self, axis: str) -> tuple[int, ...] | range:
        """The positions of the elements along an axis."""
        return self.instance.positions if axis == self.instance.axis else range(self.instance.sizes[axis])

    def along(self, axis: str, values: list[int] | tuple[int, ...] | range) -> np.ndarray:
        """Whole numbers along an axis."""
        shape = [1] * self.ndim
        shape[self.instance.dim(axis)] = -1
        made = np.empty(len(values), self.arithmetic.dtype)
        made[:] = [self.arithmetic.number(value) for value in values]
        return made.reshape(shape)


def _applied(evaluation: Evaluation, term: Expr) -> np.ndarray:
    if evaluation.partial and term.op in TOTAL_TWINS:
        term = Expr(TOTAL_TWINS[term.op], term.args)
    return evaluation.arithmetic.applied(term, [evaluation.number(arg) for arg in term.args])


def _bound(evaluation: Evaluation, term: Expr) -> np.ndarray:
    instance = evaluation.instance
    value = evaluation.symbols[term.name] if term.op == "symbol" else instance.arrays[term.name]
    own = instance.own.get(term.name, term.axes)
    if set(own) == set(term.axes):
        return value
    source, target = map(instance.dim, own), map(instance.dim, term.axes)
    order = dict(zip(target, source, strict=True))
    free = iter(dim for dim in range(evaluation.ndim) if dim not in order.values())
    return np.transpose(value, [order[dim] if dim in order else next(free) for dim in range(evaluation.ndim)])


def _index(evaluation: Evaluation, term: Expr) -> np.ndarray:
    return evaluation.along(term.axis, evaluation.along_positions(term.axis))


def _size(evaluation: Evaluation, term: Expr) -> np.ndarray:
    instance = evaluation.instance
    length = evaluation.length if term.axis == instance.axis else instance.sizes[term.axis]
    return evaluation.arithmetic.full(length, evaluation.ndim)


def _where(evaluation: Evaluation, term: Expr) -> np.ndarray:
    chosen, a, b = evaluation.truth(term.args[0]), *map(evaluation.of, term.args[1:])
    if a.dtype != b.dtype:
        a, b = map(evaluation.number, term.args[1:])
    return np.where(chosen, a, b)


def _rounded(evaluation: Evaluation, term: Expr) -> np.ndarray:
    moves = term.attrs[-1] and evaluation.arithmetic is EXACT
    return evaluation.number(term.args[0]) if moves else _applied(evaluation, term)


def _logical(evaluation: Evaluation, term: Expr) -> np.ndarray:
    return getattr(np, term.op)(*map(evaluation.truth, term.args))


def _reduced(evaluation: Evaluation, term: Expr) -> np.ndarray:
    positions = evaluation.along_positions(term.axis)
    mask = None if term.mask is None else evaluation.truth(term.mask)
    dim = evaluation.instance.dim(term.axis)
    if not (MONOIDS[term.monoid].indexed or MONOIDS[term.monoid].counted):
        return folded(evaluation.arithmetic, term.monoid, elements(evaluation, term.monoid, term.body), dim, len(positions), mask)
    best, at = winners(evaluation, term.monoid, evaluation.number(term.body), evaluation.along(term.axis, positions), mask,
                       dim, count(evaluation, term.count))
    value = at if MONOIDS[term.monoid].indexed else best
    return value if term.count is None else np.swapaxes(value, dim, evaluation.instance.dim(term.attrs[2]))


def elements(evaluation: Evaluation, monoid: str, body: Expr) -> np.ndarray:
    """What a monoid combines: truth values for any and all, else numbers."""
    return evaluation.truth(body) if monoid in _LOGIC else evaluation.number(body)


def count(evaluation: Evaluation, k: Expr | None) -> int | None:
    """The k of a top-k."""
    return None if k is None else int(Fraction(str(evaluation.of(k).reshape(-1)[0])))


def folded(arithmetic: Arithmetic, monoid: str, values: np.ndarray, dim: int, length: int,
           mask: np.ndarray | None = None) -> np.ndarray:
    """⊕ along a dimension of `length` elements, which is kept with size 1."""
    identity = arithmetic.full(MONOIDS[monoid].identity, values.ndim)
    if mask is not None:
        values = np.where(mask, values, identity)
    taken = np.empty([length + 1 if d == dim else size for d, size in enumerate(values.shape)], np.result_type(identity, values))
    before = (slice(None),) * dim
    taken[*before, :1], taken[*before, 1:] = identity, values
    with np.errstate(all="ignore"):
        return arithmetic.joins[monoid].reduce(taken, axis=dim, keepdims=True)


def winners(evaluation: Evaluation, monoid: str, values: np.ndarray, positions: np.ndarray, mask: np.ndarray | None,
            dim: int, k: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The k best values along a dimension (one if k is None), best first, and their positions.

    NaN is best of all; ties go to the lowest position; places that nothing fills hold ∓inf and NOWHERE.
    """
    taken = np.full((1,) * values.ndim, True) if mask is None else mask
    shape = list(np.broadcast_shapes(values.shape, positions.shape, taken.shape))
    lines = [np.moveaxis(np.broadcast_to(array, shape), dim, -1) for array in (values, positions, taken)]
    made = [np.empty((*lines[0].shape[:-1], k or 1), evaluation.arithmetic.dtype) for _ in range(2)]
    for place in np.ndindex(*lines[0].shape[:-1]):
        best = _best(evaluation.arithmetic, monoid in SMALLEST, *(line[place] for line in lines), k or 1)
        for array, column in zip(made, zip(*best, strict=True), strict=True):
            array[place] = column
    return tuple(np.moveaxis(array, -1, dim) for array in made)


def _best(arithmetic: Arithmetic, smallest: bool, values: np.ndarray, positions: np.ndarray, taken: np.ndarray,
          k: int) -> list[tuple[object, object]]:
    rest = [pair for pair, takes in zip(zip(values, positions, strict=True), taken, strict=True) if takes]
    nothing = arithmetic.number(float("inf") if smallest else -float("inf")), arithmetic.number(NOWHERE)
    found = []
    while rest and len(found) < k:
        best = rest[0]
        for pair in rest[1:]:
            if _beats(arithmetic, smallest, pair, best):
                best = pair
        found.append(best)
        rest = [pair for pair in rest if pair is not best]
    return found + [nothing] * (k - len(found))


def _beats(arithmetic: Arithmetic, smallest: bool, a: tuple, b: tuple) -> bool:
    nan = [value != value for value, _ in (a, b)]
    if nan[0] != nan[1]:
        return nan[0]
    o = 0 if nan[0] else arithmetic.order(a[0], b[0])
    return a[1] < b[1] if o == 0 else (o < 0) == smallest


_RULES: dict[str, Callable[[Evaluation, Expr], np.ndarray]] = {
    "input": _bound, "symbol": _bound, "index": _index, "size": _size, "where": _where, "reduce": _reduced,
    "const": lambda evaluation, term: evaluation.arithmetic.full(term.value, evaluation.ndim),
    "param": lambda evaluation, term: evaluation.arithmetic.full(evaluation.instance.params[term.name], evaluation.ndim),
    "scan": scanned, "round": _rounded, "cast": _rounded, **dict.fromkeys(("logical_and", "logical_or", "logical_not"), _logical),
}
