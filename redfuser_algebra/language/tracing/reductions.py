"""NumPy's reductions of traced arrays: which dimensions go, and what is combined along them."""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from redfuser_algebra.algebra.monoids import RUNNING
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language import recurrence
from redfuser_algebra.language.expr import Expr, call
from redfuser_algebra.language.tracing.array import Traced, implements, lifted, together
from redfuser_algebra.language.tracing.elementwise import truth
from redfuser_algebra.language.tracing.lengths import broadcast, current
from redfuser_algebra.language.tracing.mirrors import from_the_end
from redfuser_algebra.language.tracing.place import refused

Axis = int | tuple[int, ...] | None
Combine = Callable[[Expr, tuple[str, ...], Expr | None], Expr]


def absent(option: object) -> bool:
    """Whether an option of a NumPy function was not given."""
    return option is None or option is np._NoValue


def places(array: Traced, axis: Axis) -> tuple[int, ...]:
    """The dimensions that `axis` names, from the start.  Raises OperatorError where there are none."""
    wanted = range(array.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    for place in wanted:
        if not -array.ndim <= place < array.ndim:
            raise refused(f"axis={place}", f"the array has {array.ndim} dimensions", "choose one that it has")
    return tuple(sorted(int(place) % array.ndim for place in wanted))


def reduced(array: object, axis: Axis, keepdims: object, combine: Combine, where: object = None) -> Traced:
    """`combine(elements, axes, mask)` over the axes of some dimensions."""
    array = lifted(array)
    mask = None if absent(where) or where is True else lifted(where)
    if mask is not None:
        (expr, condition), dims = together([array, mask], "where=")
        if dims != array.dims:
            raise refused("a where= mask", "it has more dimensions than the array", "broadcast the array first")
        array, mask = Traced(expr, dims), Traced(condition, dims)
    gone = places(array, axis)
    names = tuple(name for place in gone for name in array.dims[place])
    expr = combine(array.expr, names, None if mask is None else mask.expr)
    keep = not absent(keepdims) and keepdims
    dims = tuple(() if place in gone else dim for place, dim in enumerate(array.dims) if keep or place not in gone)
    return Traced(expr, dims)


def _varying(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> tuple[tuple[str, ...], list[str]]:
    """The axes along which elements or mask differ, and the others."""
    present = {*expr.axes, *(mask.axes if mask is not None else ())}
    return tuple(name for name in names if name in present), [name for name in names if name not in present]


def total(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
    """Σ, where equal elements count as often as they are there."""
    inside, same = _varying(expr, names, mask)
    if inside:
        result = ra.sum(expr, inside, mask)
    else:
        result = expr if mask is None else ra.where(mask, expr, 0)
    for name in same:
        result = result * ra.size(name)
    return result


def product(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
    """Π, where equal elements count as often as they are there."""
    inside, same = _varying(expr, names, mask)
    result = ra.prod(expr, inside, mask) if inside else expr if mask is None else ra.where(mask, expr, 1)
    for name in same:
        result = ra.power(result, ra.size(name))
    return result


def idempotent(reduction: Callable[..., Expr], identity: float | bool) -> Combine:
    """A reduction under which equal elements are one."""
    def combine(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
        inside, _ = _varying(expr, names, mask)
        return reduction(expr, inside, mask) if inside else expr if mask is None else ra.where(mask, expr, identity)

    return combine


def number_of(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
    """How many elements take part."""
    if not names:
        return call("where", mask, 1, 0) if mask is not None else ra.lift(1)
    return ra.taking_part(names, mask)


def mean(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
    """Σ x / N."""
    return total(expr, names, mask) / number_of(expr, names, mask) if names else expr


def variance(ddof: object) -> Combine:
    """Σ (x − mean)² / (N − ddof)."""
    def combine(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
        squares = total(ra.square(expr - mean(expr, names, mask)), names, mask)
        number = number_of(expr, names, mask)
        return squares / (number if ddof == 0 else number - ddof if mask is None else ra.maximum(number - ddof, 0))

    return combine


def nan_skipped(array: object) -> Expr:
    """The mask of what the nan-functions reduce."""
    return Traced(~ra.isnan(lifted(array).expr), lifted(array).dims)


def _in_float64(dtype: object) -> None:
    if not absent(dtype) and np.dtype(dtype).name not in ("float64", "int64", "bool"):
        raise refused(f"a reduction with dtype={np.dtype(dtype).name}", "elements are reduced in float64",
                      "use .astype(…) where rounding is meant")


def _started(result: Traced, initial: object, join: str) -> Traced:
    return result if absent(initial) else Traced(call(join, result.expr, lifted(initial).expr), result.dims)


def _sums(combine: Combine, join: str) -> Callable[..., Traced]:
    def handler(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
        _in_float64(dtype)
        return _started(reduced(a, axis, keepdims, combine, where), initial, join)

    return handler


def _extremes(combine: Combine, join: str) -> Callable[..., Traced]:
    def handler(a, axis=None, out=None, keepdims=False, initial=None, where=None):
        return _started(reduced(a, axis, keepdims, combine, where), initial, join)

    return handler


def _tests(combine: Combine) -> Callable[..., Traced]:
    def handler(a, axis=None, out=None, keepdims=False, *, where=None):
        return reduced(a, axis, keepdims, combine, where)

    return handler


def _along(handler: Callable[..., Traced]) -> Callable[..., Traced]:
    """The same as the `reduce` of a ufunc, whose axis is 0 unless given."""
    return lambda a, axis=0, **options: handler(a, axis, **options)


def _skipping(handler: Callable[..., Traced]) -> Callable[..., Traced]:
    """The same over the elements that are not NaN."""
    return lambda a, axis=None, **options: handler(a, axis, where=nan_skipped(a), **options)


LARGEST, SMALLEST = idempotent(ra.max, -math.inf), idempotent(ra.min, math.inf)

for _handler, _functions, _ufunc, _nan in (
    (_sums(total, "add"), (np.sum,), np.add, np.nansum),
    (_sums(product, "multiply"), (np.prod,), np.multiply, np.nanprod),
    (_extremes(LARGEST, "maximum"), (np.max, np.amax), np.maximum, np.nanmax),
    (_extremes(SMALLEST, "minimum"), (np.min, np.amin), np.minimum, np.nanmin),
    (_tests(idempotent(ra.any, False)), (np.any,), np.logical_or, None),
    (_tests(idempotent(ra.all, True)), (np.all,), np.logical_and, None),
):
    implements(*_functions)(_handler)
    implements((_ufunc, "reduce"))(_along(_handler))
    if _nan is not None:
        implements(_nan)(_skipping(_handler))


@implements(np.mean)
def _mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    _in_float64(dtype)
    return reduced(a, axis, keepdims, mean, where)


@implements(np.var)
def _var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
    _in_float64(dtype)
    return reduced(a, axis, keepdims, variance(ddof if absent(correction) else correction), where)


@implements(np.std)
def _std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, **options):
    return np.sqrt(_var(a, axis, dtype, out, ddof, keepdims, **options))


implements(np.nanmean)(_skipping(_mean))
implements(np.nanvar)(_skipping(_var))
implements(np.nanstd)(_skipping(_std))


@implements(np.average)
def _average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    if weights is None:
        return _mean(a, axis, keepdims=keepdims)
    a, weights = lifted(a), lifted(weights)
    if weights.ndim < a.ndim and isinstance(axis, int):
        weights = Traced(weights.expr, tuple(weights.dims[0] if place == axis % a.ndim else () for place in range(a.ndim)))
    spread = Traced(weights.expr, broadcast((a.dims, weights.dims), "np.average"))
    number = reduced(spread, axis, keepdims, total)
    result = reduced(a * weights, axis, keepdims, total) / number
    return (result, number) if returned else result


@implements(np.count_nonzero)
def _count_nonzero(a, axis=None, *, keepdims=False):
    a = lifted(a)
    return reduced(Traced(ra.lift(1), a.dims), axis, keepdims, total, Traced(truth(a.expr), a.dims))


@implements(np.ptp)
def _ptp(a, axis=None, out=None, keepdims=False):
    return reduced(a, axis, keepdims, LARGEST) - reduced(a, axis, keepdims, SMALLEST)


def _position(position: Callable[..., Expr], extreme: Callable[..., Expr]) -> Callable[..., Traced]:
    """A position along one axis, or in the array flattened along several."""
    def combine(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
        if not set(names) & set(expr.axes):
            return ra.lift(0)
        first, rest = names[0], names[1:]
        if not rest:
            return position(expr, first, mask)
        best = extreme(expr, tuple(name for name in rest if name in expr.axes), mask)
        at = position(best, first)
        return at * ra.size(rest) + ra.take(combine(expr, rest, mask), at, first)

    return lambda a, axis=None, out=None, *, keepdims=False, where=None: reduced(a, axis, keepdims, combine, where)


for _positions, _position_of, _extreme in (((np.argmax, np.nanargmax), ra.argmax, ra.max), ((np.argmin, np.nanargmin), ra.argmin, ra.min)):
    _handler = _position(_position_of, _extreme)
    implements(_positions[0])(_handler)
    implements(_positions[1])(_skipping(_handler))


def _running(monoid: str) -> Callable[..., Traced]:
    """A reduction of what has come so far, at every element along one axis."""
    def handler(a, axis=None, dtype=None, out=None):
        _in_float64(dtype)
        a = lifted(a)
        (place,) = places(a, axis) if axis is not None or a.ndim == 1 else (-1,)
        if len(a.dims[place]) != 1 or place < 0:
            raise refused("a running reduction of a flattened array", "it goes along one axis", "give axis=")
        axis = a.dims[place][0]
        if axis in current.get().mirrors:
            return Traced(from_the_end(monoid, a.expr, axis), a.dims)
        expr = ra.where(ra.index(axis) >= 0, a.expr, RUNNING[monoid][1]) if axis in current.get().stretches else a.expr
        return Traced(recurrence.cumulative(monoid, expr, axis), a.dims)

    return handler


for _monoid, _names, _ufunc in (("sum", "cumsum cumulative_sum", np.add), ("prod", "cumprod cumulative_prod", np.multiply),
                                ("max", "", np.maximum), ("min", "", np.minimum), ("logadd", "", np.logaddexp)):
    _handler = _running(_monoid)
    implements(*(function for name in _names.split() if (function := getattr(np, name, None))))(_handler)
    implements((_ufunc, "accumulate"))(lambda a, axis=0, handler=_handler, **options: handler(a, axis, **options))


def _ranked(statistic: Callable[[Expr, str], Expr]) -> Combine:
    """An order statistic along one axis; of equal elements it is any of them."""
    def combine(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
        if len(names) > 1:
            raise refused("an order statistic of a flattened array", "its elements are ordered along one axis", "give axis=")
        return statistic(expr, names[0]) if set(names) & set(expr.axes) else expr

    return combine


@implements(np.median)
def _median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    return reduced(a, axis, keepdims, _ranked(ra.median))


@implements(np.quantile)
def _quantile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None):
    q = lifted(q)
    if method != "linear" or weights is not None or len(q.dims) > 1:
        raise refused("np.quantile in traced code", "it has a meaning for some q, by the linear method, without weights",
                      "ask for quantiles so, or write them with np.sort")
    share = q.expr
    found = reduced(a, axis, keepdims, _ranked(lambda expr, name: ra.quantile(expr, name, share)))
    return Traced(found.expr, (*q.dims, *found.dims))


@implements(np.percentile)
def _percentile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None):
    return _quantile(a, lifted(q) / 100, axis, method=method, keepdims=keepdims, weights=weights)


def _logaddexp(exp: Callable, log: Callable) -> Combine:
    def combine(expr: Expr, names: tuple[str, ...], mask: Expr | None) -> Expr:
        top = LARGEST(expr, names, mask)
        return ra.where(ra.abs(top) < math.inf, top + log(total(exp(expr - top), names, mask)), top)

    return combine


for _ufunc, _combine in ((np.logaddexp, _logaddexp(ra.exp, ra.log)), (np.logaddexp2, _logaddexp(ra.exp2, ra.log2))):
    implements((_ufunc, "reduce"))(_along(_tests(_combine)))


@implements(np.linalg.vector_norm)
def _vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    return _norm(np.ravel(x) if axis is None else x, ord, axis, keepdims)


@implements(np.linalg.norm)
def _norm(x, ord=None, axis=None, keepdims=False):
    x = lifted(x)
    if isinstance(axis, tuple) or axis is None and x.ndim > 1 and ord is not None:
        if ord not in (None, "fro"):
            raise refused(f"a matrix norm of order {ord}", "it is no reduction of elements", "use the Frobenius norm")
    if ord in (None, 2, "fro"):
        return np.sqrt(reduced(x * x, axis, keepdims, total))
    if ord in (math.inf, -math.inf):
        return reduced(abs(x), axis, keepdims, LARGEST if ord > 0 else SMALLEST)
    if ord == 0:
        return reduced(x != 0, axis, keepdims, total)
    return reduced(abs(x) ** ord, axis, keepdims, total) ** (1 / ord)
