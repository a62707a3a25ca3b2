"""What NumPy code does to the dimensions of a traced array: transpose, reshape, index, sort for a top-k."""
from __future__ import annotations

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr, const, rewritten, substitute
from redfuser_algebra.language.tracing.array import Length, Traced, implements, lifted, number_of, together
from redfuser_algebra.language.tracing.elementwise import is_boolean, truncated
from redfuser_algebra.language.tracing.lengths import Dim, broadcast, current, regrouped, written
from redfuser_algebra.language.tracing.place import refused
from redfuser_algebra.language.tracing.selected import Selected, positions_where
from redfuser_algebra.language.tracing.stretches import part_of


def _reordered(array: Traced, order: list[int]) -> Traced:
    return array.view(array.expr, tuple(array.dims[place] for place in order))


@implements(np.transpose)
def _transpose(a, axes=None):
    a = lifted(a)
    return _reordered(a, list(range(a.ndim))[::-1] if axes is None else [int(place) % a.ndim for place in axes])


@implements(np.swapaxes)
def _swapaxes(a, axis1, axis2):
    a = lifted(a)
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _reordered(a, order)


@implements(*(function for name in ("matrix_transpose",) if (function := getattr(np, name, None))))
def _matrix_transpose(x):
    return _swapaxes(x, -1, -2)


@implements(np.moveaxis)
def _moveaxis(a, source, destination):
    a = lifted(a)
    source, destination = (tuple(p % a.ndim for p in (places if isinstance(places, tuple | list) else (places,)))
                           for places in (source, destination))
    order = [place for place in range(a.ndim) if place not in source]
    for to, place in sorted(zip(destination, source, strict=True)):
        order.insert(to, place)
    return _reordered(a, order)


@implements(np.reshape)
def _reshape(a, /, shape=None, order="C", *, copy=None):
    a = lifted(a)
    shape = shape if isinstance(shape, tuple | list) else (shape,)
    return a.view(a.expr, regrouped(a.dims, shape))


@implements(np.ravel)
def _ravel(a, order="C"):
    a = lifted(a)
    return a.view(a.expr, (tuple(axis for dim in a.dims for axis in dim),))


@implements(np.expand_dims)
def _expand_dims(a, axis):
    a = lifted(a)
    wanted = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = a.ndim + len(wanted)
    dims = list(a.dims)
    for place in sorted(int(place) % ndim for place in wanted):
        dims.insert(place, ())
    return a.view(a.expr, tuple(dims))


@implements(np.squeeze)
def _squeeze(a, axis=None):
    a = lifted(a)
    wanted = range(a.ndim) if axis is None else [int(p) % a.ndim for p in (axis if isinstance(axis, tuple) else (axis,))]
    if axis is not None and any(a.dims[place] for place in wanted):
        raise refused(f"np.squeeze of axis {axis}", "its length is not one", "index or reduce it")
    return a.view(a.expr, tuple(dim for place, dim in enumerate(a.dims) if place not in wanted or dim))


@implements(np.broadcast_to)
def _broadcast_to(array, shape, subok=False):
    array = lifted(array)
    wanted = current.get().dims_of(shape if isinstance(shape, tuple) else (shape,), "np.broadcast_to a shape")
    return array.view(array.expr, broadcast((array.dims, wanted), "np.broadcast_to"))


@implements(np.broadcast_arrays)
def _broadcast_arrays(*arrays, subok=False):
    arrays = list(map(lifted, arrays))
    exprs, dims = together(arrays, "np.broadcast_arrays")
    return tuple(array.view(expr, dims) for array, expr in zip(arrays, exprs, strict=True))


@implements(np.shape)
def _shape(a):
    return lifted(a).shape


@implements(np.ndim)
def _ndim(a):
    return lifted(a).ndim


@implements(np.size)
def _size(a, axis=None):
    return lifted(a).size if axis is None else lifted(a).shape[axis]


@implements(np.copy)
def _copy(a, order="K", subok=False):
    return lifted(a).copy()


# elements chosen and made

@implements(np.where)
def _where(condition, x=None, y=None):
    if x is None and y is None:
        return positions_where(condition)
    exprs, dims = together([lifted(condition), lifted(x), lifted(y)], "np.where")
    return Traced(ra.where(*exprs), dims)


@implements(np.select)
def _select(condlist, choicelist, default=0):
    result = default
    for condition, choice in reversed([*zip(condlist, choicelist, strict=True)]):
        result = _where(condition, choice, result)
    return result


@implements(np.divmod)
def _divmod(a, b):
    return np.floor_divide(a, b), np.remainder(a, b)


@implements(np.sinc)
def _sinc(x):
    angle = np.where(x == 0, 1, x * np.pi)
    return np.where(x == 0, 1, np.sin(angle) / angle)


@implements(np.real, np.real_if_close)
def _real(val):
    return lifted(val)


@implements(np.clip)
def _clip(a, a_min=None, a_max=None, out=None, *, min=None, max=None):
    low, high = (given if given is not None else other for given, other in ((a_min, min), (a_max, max)))
    a = lifted(a) if low is None else np.maximum(lifted(a), low)
    return a if high is None else np.minimum(a, high)


@implements(np.nan_to_num)
def _nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    x, limits = lifted(x), np.finfo(np.float64)
    expr = ra.where(ra.isnan(x.expr), nan, x.expr)
    expr = ra.where(x.expr == np.inf, limits.max if posinf is None else posinf, expr)
    return Traced(ra.where(x.expr == -np.inf, limits.min if neginf is None else neginf, expr), x.dims)


@implements(np.round, np.around)
def _round(a, decimals=0, out=None):
    a = lifted(a)
    return Traced(ra.round(a.expr) if decimals == 0 else ra.round(a.expr * 10.0**decimals) / 10.0**decimals, a.dims)


@implements(np.fix)
def _fix(x, out=None):
    return Traced(truncated(lifted(x).expr), lifted(x).dims)


@implements(Traced.astype, *(function for name in ("astype",) if (function := getattr(np, name, None))))
def _astype(a, dtype, /, *, copy=True):
    dtype = np.dtype(dtype)
    if dtype.name in ("float64", "longdouble") or dtype.kind in "iu" and is_whole(a.expr):
        return a.copy()
    if dtype.kind == "c":
        return a + 0j
    if dtype.kind == "b":
        return Traced(a.expr if is_boolean(a.expr) else a.expr != 0, a.dims)
    if dtype.name in ("int64", "uint64"):
        return Traced(truncated(a.expr), a.dims)
    return Traced(ra.cast(a.expr, dtype.name), a.dims)


def is_whole(expr: Expr) -> bool:
    """Whether the values are whole numbers by how they are made."""
    return (is_boolean(expr) or expr.op in ("index", "size", "floor", "ceil", "round") or expr.op == "const" and float(expr.value).is_integer()
            or expr.op == "reduce" and expr.monoid in ("argmax", "argmin", "argtopk"))


def _like(value: float):
    return lambda a, dtype=None, order="K", subok=True, shape=None, **options: Traced(ra.lift(value), lifted(a).dims)


implements(np.zeros_like)(_like(0.0))
implements(np.ones_like)(_like(1.0))


@implements(np.full_like)
def _full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, **options):
    return Traced(lifted(fill_value).expr, lifted(a).dims)


def _triangle(holds):
    def handler(m, k=0):
        m = lifted(m)
        if m.ndim < 2 or len(m.dims[-1]) != 1 or len(m.dims[-2]) != 1:
            raise refused("a triangle of an array", "its last two dimensions are not an axis each", "use it on matrices")
        row, column = ra.index(m.dims[-2][0]), ra.index(m.dims[-1][0])
        return Traced(ra.where(holds(column, row + k if k else row), m.expr, 0), m.dims)

    return handler


implements(np.tril)(_triangle(lambda column, edge: column <= edge))
implements(np.triu)(_triangle(lambda column, edge: column >= edge))


# indexing

@implements(Traced.__getitem__)
def _getitem(a, key):
    if isinstance(key, Traced | np.ndarray) and is_boolean(lifted(key).expr):
        return Selected(a, lifted(key))
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = _without_dots(a, keys)
    arrays = [lifted(each) if isinstance(each, Traced | np.ndarray) else None for each in keys]
    expr, dims, place, chosen = a.expr, [], 0, None
    joint = broadcast((array.dims for array in arrays if array is not None), "an index")
    for each, array in zip(keys, arrays, strict=True):
        if each is None:
            dims.append(())
            continue
        dim = a.dims[place]
        place += 1
        if isinstance(each, slice):
            expr, dim = part_of(expr, dim, each)
            dims.append(dim)
        elif array is None:
            expr = _picked(expr, dim, each)
        else:
            chosen = len(dims) if chosen is None else chosen
            expr = _picked_by(expr, dim, array)
    if chosen is not None:
        dims[chosen:chosen] = joint
    return a.view(expr, tuple(dims) + a.dims[place:])


def _without_dots(a: Traced, keys: list) -> list:
    """The keys with `...` written out as full slices."""
    dots = [place for place, each in enumerate(keys) if each is Ellipsis]
    used = sum(each is not None and each is not Ellipsis for each in keys)
    if used > a.ndim or len(dots) > 1:
        raise refused("an index", f"the array has {a.ndim} dimensions", "index each of them once")
    if dots:
        keys[dots[0]:dots[0] + 1] = [slice(None)] * (a.ndim - used)
    return keys


def _picked(expr: Expr, dim: Dim, position: Length | int) -> Expr:
    """One element at a fixed position."""
    if len(dim) != 1:
        if dim == () and position in (0, -1):
            return expr
        raise refused(f"an index into {written(dim)}", "it is no single axis", "index before the reshape")
    if expr.op == "scan" and (expr.axis, expr.attrs[3]) == (dim[0], "after") and int(position) in (-1, current.get().length(dim) - 1):
        return Expr("scan", expr.args, (*expr.attrs[:3], ""))
    if dim[0] in current.get().listed and 0 <= (place := int(position) % current.get().length(dim)):
        return _listed_at(expr, dim[0], place)
    where = number_of(position) if isinstance(position, Length) or position >= 0 else ra.size(dim[0]) + int(position)
    return ra.take(expr, where, dim[0]) if dim[0] in expr.axes else expr


def _listed_at(expr: Expr, axis: str, place: int) -> Expr:
    """One of a few elements that are spoken of one by one."""
    def known(term: Expr) -> Expr:
        if term.op == "where" and term.args[0].op == "equal" and all(arg.op == "const" for arg in term.args[0].args):
            one, other = (arg.value for arg in term.args[0].args)
            return term.args[1 if one == other else 2]
        return term

    found = rewritten(substitute(expr, {ra.index(axis): const(place)}), known)
    return ra.take(expr, place, axis) if axis in found.axes else found


def _picked_by(expr: Expr, dim: Dim, array: Traced) -> Expr:
    """The elements at the positions an array holds."""
    if is_boolean(array.expr):
        raise refused("elements selected by a mask", "how many there are depends on the values", "reduce with where=mask, or use np.where(mask, x, 0)")
    if len(dim) != 1:
        raise refused(f"an index into {written(dim)}", "it is no single axis", "index before the reshape")
    if array.expr is ra.index(dim[0]) or dim[0] not in expr.axes:
        return expr
    if dim[0] in array.expr.axes:
        raise refused(f'elements of axis "{dim[0]}" looked up in another order', "each result may need any element", "pass the gathered array as an input")
    return ra.take(expr, array.expr, dim[0])


@implements(np.take_along_axis)
def _take_along_axis(arr, indices, axis=-1):
    arr, indices = lifted(arr), lifted(indices)
    place = axis % arr.ndim
    others = broadcast((arr.dims[:place] + ((),) + arr.dims[place + 1:], indices.dims), "np.take_along_axis")
    return Traced(_picked_by(arr.expr, arr.dims[place], indices), others)


@implements(np.take)
def _take(a, indices, axis=None, out=None, mode="raise"):
    a = lifted(a) if axis is not None else np.ravel(lifted(a))
    place = (axis or 0) % a.ndim
    return _getitem(a, (slice(None),) * place + (indices,))


# sorting, of which only the ends are reductions

NEAR = 16
"""Elements of a sorted array so near to an end are read as those of a top-k."""


class Sorted(NDArrayOperatorsMixin):
    """A sorted or partitioned array, or its positions: its first or last k elements can be taken, it is no array."""

    __array_priority__ = 2000

    def __init__(self, source: Traced, place: int, positions: bool, loose: bool, descending: bool = False) -> None:
        self.source, self.place, self.positions, self.loose, self.descending = source, place, positions, loose, descending

    def _whole(self) -> Exception:
        return refused("a sorted array as a whole", "an order statistic needs all elements at once", "take its first or last k elements: [..., -k:]")

    def __getattr__(self, name: str) -> object:
        raise self._whole()

    def _refused(self, *given: object, **options: object) -> object:
        raise self._whole()

    __array_ufunc__ = __array_function__ = __array__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __index__ = __setitem__ = _refused

    def __getitem__(self, key: object) -> object:
        keys = _without_dots(self.source, list(key) if isinstance(key, tuple) else [key])
        keys += [slice(None)] * (self.source.ndim - len(keys))
        part = keys.pop(self.place)
        if any(each != slice(None) for each in keys):
            raise refused("an index into a sorted array", "another dimension is cut as well", "index the other dimensions before or after")
        if part == slice(None, None, -1):
            return Sorted(self.source, self.place, self.positions, self.loose, not self.descending)
        return self._ends(part)

    def _ends(self, part: object) -> Traced:
        """The k elements at one end, or the one."""
        if isinstance(part, int) and -NEAR <= part < NEAR:
            return self._element(part)
        start, stop, step = (part.start, part.stop, part.step) if isinstance(part, slice) else (0, 0, None)
        first = start in (None, 0) and isinstance(stop, int) and stop > 0
        last = stop is None and isinstance(start, int) and start < 0
        if step is not None or not first and not last:
            raise refused("a part inside a sorted array", "an order statistic needs all elements at once",
                          "take the first or last k elements")
        k = int(stop if first else -start)
        top = self._top(k, largest=first == self.descending)
        return self._backwards(top, k) if last and not self.loose and k > 1 else top

    def _backwards(self, top: Traced, k: int) -> Traced:
        """The last k in their own order, which is that of a top-k from its end."""
        (name,), listed = top.dims[self.place], current.get().listing(k)
        expr = ra.take(top.expr, k - 1 - ra.index(listed), name)
        return Traced(expr, tuple((listed,) if place == self.place else dim for place, dim in enumerate(top.dims)))

    def _element(self, part: int) -> Traced:
        """One of the first or last few."""
        if self.loose:
            raise refused("an element of a partitioned array", "which one is where depends on the values", "take the first or last k elements")
        place = part if part >= 0 else -1 - part
        top = self._top(place + 1, largest=(part >= 0) == self.descending)
        (name,) = top.dims[self.place]
        expr = top.expr if place == 0 else ra.where(ra.index(name) == place, top.expr, 0)
        return Traced(ra.sum(expr, name), top.dims[:self.place] + top.dims[self.place + 1:])

    def _top(self, k: int, largest: bool) -> Traced:
        """The k largest, largest first, or the k smallest, smallest first."""
        (axis,) = self.source.dims[self.place]
        source = self.source.expr if largest else -self.source.expr
        source = source.args[0].args[0] if source.op == "negative" == source.args[0].op else source
        name = ra.fresh_axis("top", source)
        while current.get().lengths.setdefault(name, k) != k:
            name += "_"
        top = ra.topk(source, axis, k, name=name)
        values = top.indices if self.positions else top.values if largest else -top.values
        return Traced(values, tuple((name,) if place == self.place else dim for place, dim in enumerate(self.source.dims)))


def _sorting(positions: bool, loose: bool):
    def handler(a, *kth, axis=-1, **options):
        a = lifted(a)
        if loose and len(kth) > 1:
            *_, axis = kth
        elif not loose and kth:
            (axis,) = kth[:1]
        place = axis % a.ndim
        if len(a.dims[place]) != 1 or a.dims[place][0] not in a.expr.axes:
            raise refused("a sort", "the dimension is no axis along which elements differ", "sort along an axis of the inputs")
        return Sorted(a, place, positions, loose)

    return handler


implements(np.sort)(_sorting(False, False))
implements(np.argsort)(_sorting(True, False))
implements(np.partition)(_sorting(False, True))
implements(np.argpartition)(_sorting(True, True))
