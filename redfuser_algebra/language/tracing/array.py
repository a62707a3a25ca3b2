"""The array that traced code computes with: an expression, and which axes each dimension runs over.

It takes part in NumPy's protocols, so code that calls NumPy's functions, operators and methods, or those of the array
API standard, needs no change.  What depends on values that are not known yet is refused with the line named.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from numbers import Integral

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from redfuser_algebra.language.expr import Expr, call
from redfuser_algebra.language.functions import size
from redfuser_algebra.language.tracing.alignment import aligned
from redfuser_algebra.language.tracing.constants import number, read
from redfuser_algebra.language.tracing.elementwise import ELEMENTWISE
from redfuser_algebra.language.tracing.lengths import Dim, broadcast, current, written
from redfuser_algebra.language.tracing.place import refused

HANDLERS: dict[Callable, Callable] = {}
"""NumPy's functions (and ufunc reductions) that have a meaning here, filled by `tracing.reductions` and its neighbours."""


def implements(*functions: Callable) -> Callable[[Callable], Callable]:
    """Enter a meaning of some of NumPy's functions for traced arrays."""
    def enter(handler: Callable) -> Callable:
        HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return enter


class _Dispatching:
    """NumPy's protocols, shared by arrays and lengths."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: object, out: tuple = (), **options: object) -> object:
        options = {key: value for key, value in options.items() if value is not True or key != "where"}
        if any(map(is_complex, operands)):
            return HANDLERS[complex](ufunc if method == "__call__" else (ufunc, method), *operands, out=out, **options)
        if method == "__call__" and ufunc.__name__ in ELEMENTWISE and not set(options) - {"dtype", "casting"}:
            result = elementwise(ufunc.__name__, *operands)
        elif method == "__call__" and ufunc in HANDLERS:
            result = HANDLERS[ufunc](*operands, **options)
        elif (ufunc, method) in HANDLERS:
            result = HANDLERS[ufunc, method](*operands, **options)
        else:
            raise unsupported(f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"))
        return out[0].overwritten(result) if out and out[0] is not None else result

    def __array_function__(self, function: Callable, types: Sequence, args: tuple, kwargs: dict) -> object:
        if any(map(is_complex, args)):
            return HANDLERS[complex](function, *args, **kwargs)
        if function not in HANDLERS:
            raise unsupported(f"np.{function.__name__}")
        return HANDLERS[function](*args, **kwargs)


def is_complex(value: object) -> bool:
    """Whether a value is a complex number, or an array of them."""
    return isinstance(value, complex) or getattr(getattr(value, "dtype", None), "kind", "") == "c"


def unsupported(name: str) -> Exception:
    """The error of a function without a meaning here."""
    return refused(f"{name} in traced code", WHY.get(name.removeprefix("np."), "it is not followed"),
                   "write that part in the front-door language (ra.sum, ra.exp, …), or pass its result as an input")


WHY = {name: reason for reason, names in {
    "neighbours along an axis meet": "gradient",
    "an order statistic needs all elements at once": "nanmedian nanquantile nanpercentile unique",
    "how many there are depends on the values": "bincount compress extract delete",
    "arrays are joined end to end": "concatenate hstack append concat",
}.items() for name in names.split()}


_UFUNCS = {operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", operator.floordiv: "floor_divide", operator.mod: "remainder"}


class Length(_Dispatching):
    """A length, or a whole number computed from lengths: to Python's indexing a number, to the operator an expression."""

    def __init__(self, value: int, expr: Expr) -> None:
        self.value, self.expr = value, expr

    def _with(self, other: object, compute: Callable, swapped: bool = False) -> object:
        """A whole number computed with another; with a float or complex number what NumPy makes of the expression."""
        one, two = (self, other)[::-1 if swapped else 1]
        if isinstance(other, float | complex):
            return getattr(np, _UFUNCS[compute])(one, two)
        if not isinstance(other, Length | int) or isinstance(other, bool):
            return NotImplemented
        return Length(compute(int(one), int(two)), compute(number_of(one), number_of(two)))

    def __add__(self, other): return self._with(other, operator.add)
    def __radd__(self, other): return self._with(other, operator.add, True)
    def __sub__(self, other): return self._with(other, operator.sub)
    def __rsub__(self, other): return self._with(other, operator.sub, True)
    def __mul__(self, other): return self._with(other, operator.mul)
    def __rmul__(self, other): return self._with(other, operator.mul, True)
    def __floordiv__(self, other): return self._with(other, operator.floordiv)
    def __rfloordiv__(self, other): return self._with(other, operator.floordiv, True)
    def __mod__(self, other): return self._with(other, operator.mod)
    def __rmod__(self, other): return self._with(other, operator.mod, True)
    def __neg__(self): return Length(-self.value, -self.expr)
    def __truediv__(self, other): return np.divide(self, other)
    def __rtruediv__(self, other): return np.divide(other, self)
    def __pow__(self, other): return np.power(self, other)
    def __rpow__(self, other): return np.power(other, self)
    def __index__(self): return self.value
    def __float__(self): return float(self.value)
    def __bool__(self): return bool(self.value)
    def __eq__(self, other): return self.value == other
    def __lt__(self, other): return self.value < other
    def __le__(self, other): return self.value <= other
    def __gt__(self, other): return self.value > other
    def __ge__(self, other): return self.value >= other
    def __hash__(self): return hash(self.value)
    def __repr__(self): return f"{self.value}"


Integral.register(Length)


def number_of(value: Length | int) -> Expr:
    """The expression of a whole number."""
    return value.expr if isinstance(value, Length) else number(value)


class Traced(_Dispatching, NDArrayOperatorsMixin):
    """An array of float64 in the eyes of the code that computes with it.

    `expr` gives its elements, `dims` the axes of each dimension; an axis that `expr` lacks is one along which all are
    equal.  `shared` marks arrays that others may be views of, which must not be written to.
    """

    dtype = np.dtype(np.float64)
    __array_priority__ = 1000

    def __init__(self, expr: Expr, dims: tuple[Dim, ...] = ()) -> None:
        axes = [axis for dim in dims for axis in dim]
        repeated = [axis for axis in axes if axes.count(axis) > 1]
        if repeated:
            raise refused(f'an array with axis "{repeated[0]}" in two dimensions', "it holds every pair of elements of one axis",
                          "pass the second copy as an input of its own, with another name for that axis")
        self.expr, self.dims, self.shared = expr, dims, False

    @property
    def shape(self) -> tuple[Length | int, ...]:
        axes = current.get()
        return tuple(Length(axes.length(dim), size(dim)) if dim else 1 for dim in self.dims)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> Length | int:
        axes = tuple(axis for dim in self.dims for axis in dim)
        return Length(current.get().length(axes), size(axes)) if axes else 1

    @property
    def T(self) -> Traced:
        return np.transpose(self)

    @property
    def mT(self) -> Traced:
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Traced:
        return self

    @property
    def imag(self) -> Traced:
        return np.imag(self)

    def view(self, expr: Expr, dims: tuple[Dim, ...]) -> Traced:
        """An array that in NumPy would share memory with this one."""
        made = Traced(expr, dims)
        made.shared = self.shared = True
        return made

    def overwritten(self, value: object) -> Traced:
        """This array, with all elements replaced."""
        if self.shared:
            raise refused("an array written in place", "other arrays are views of it", "write the result to a new name, or .copy() first")
        value = lifted(value)
        if broadcast((self.dims, value.dims), "an assignment in place") != self.dims:
            raise refused("an array written in place", "the value has more dimensions", "write the result to a new name")
        self.expr = value.expr
        return self

    def __setitem__(self, key: object, value: object) -> None:
        mask = lifted(key) if isinstance(key, Traced | np.ndarray) else None
        if mask is None or mask.dims != self.dims:
            raise refused("an assignment to elements", "only a mask of the same shape may choose them", "use np.where(mask, new, old)")
        value = lifted(value)
        if value.dims:
            raise refused("an assignment to elements", "the value is not one number", "use np.where(mask, new, old)")
        self.overwritten(Traced(call("where", mask.expr, value.expr, self.expr), self.dims))

    def __getitem__(self, key: object) -> object:
        return HANDLERS[Traced.__getitem__](self, key)

    def __len__(self) -> int:
        if not self.dims:
            raise TypeError("len() of a number")
        return int(self.shape[0])

    def _unknown(self, what: str) -> Exception:
        return refused(what, "it depends on values that are known only when the operator is called",
                       "choose between results by np.where, or select elements by a where= mask")

    def __bool__(self) -> bool:
        raise self._unknown("a branch on the elements of an array (if, while, and, or, min(), max())")

    def __float__(self) -> float:
        raise self._unknown("an element as a Python number")

    __int__ = __complex__ = __float__

    def __index__(self) -> int:
        raise self._unknown("an element as a position or length in Python")

    def __iter__(self) -> object:
        if self.dims and len(self.dims[0]) <= 1 and {*self.dims[0]} <= current.get().listed:
            return iter([self[place] for place in range(int(self.shape[0]))])
        raise refused(f"a Python loop over axis {written(self.dims[0]) if self.dims else ''}", "its length is known only at the call",
                      "use NumPy's reductions and broadcasting over the whole axis; write a recurrence as ra.scan in an operator")

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        raise refused("a traced array turned into a plain one", "the code leaves NumPy's protocols (a C extension, or a library that copies)",
                      "call NumPy's own functions, or write that part in the front-door language")

    def __array_namespace__(self, api_version: str | None = None) -> object:
        return np

    def __round__(self, decimals: int = 0) -> Traced:
        return np.round(self, decimals)

    def astype(self, dtype: object, **options: object) -> Traced:
        return HANDLERS[Traced.astype](self, np.dtype(dtype))

    def copy(self, order: str = "C") -> Traced:
        return Traced(self.expr, self.dims)

    def item(self) -> Traced:
        return Traced(self.expr)

    def __repr__(self) -> str:
        return f"Traced({self.expr!r}, {self.dims!r})"


def _method(name: str) -> Callable:
    def method(self: Traced, *args: object, **kwargs: object) -> object:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"np.{name} of this array."
    return method


for _name in """sum prod max min mean var std any all argmax argmin clip round dot ravel swapaxes squeeze cumsum cumprod
        argsort argpartition take repeat diagonal trace conj conjugate""".split():
    setattr(Traced, _name, _method(_name))
Traced.flatten = Traced.ravel


def _variadic(name: str) -> Callable:
    """A method that takes a tuple, or its elements one by one."""
    def method(self: Traced, *args: object, **kwargs: object) -> object:
        given = args[0] if len(args) == 1 and (args[0] is None or isinstance(args[0], tuple | list)) else args or None
        return getattr(np, name)(self, given, **kwargs)

    method.__name__, method.__doc__ = name, f"np.{name} of this array."
    return method


for _name in ("reshape", "transpose"):
    setattr(Traced, _name, _variadic(_name))


def lifted(value: object) -> Traced:
    """Anything that code may mix with arrays, as one."""
    if isinstance(value, Traced):
        return value
    if isinstance(value, Length):
        return Traced(value.expr)
    if is_complex(value):
        raise refused("complex numbers among real arrays", "operators and arrays hold real numbers", "return or use their .real and .imag, or np.abs")
    if isinstance(value, bool | int | float | np.generic | np.ndarray) or _is_table(value):
        return Traced(*read(np.asarray(value)))
    if hasattr(value, "__array__"):
        return lifted(np.asarray(value))
    raise refused(f"{type(value).__name__} {value!r:.40} among arrays", "it is neither an array nor a number",
                  "pass it as an input or a parameter")


def _is_table(value: object) -> bool:
    """Whether lists hold numbers alone."""
    return isinstance(value, int | float | np.generic) or isinstance(value, list | tuple) and bool(value) and all(map(_is_table, value))


def elementwise(name: str, *operands: object) -> Traced:
    """NumPy's elementwise function of that name."""
    exprs, dims = together(list(map(lifted, operands)), f"np.{name}")
    return Traced(ELEMENTWISE[name](*exprs), dims)


def together(arrays: Sequence[Traced], what: str) -> tuple[list[Expr], tuple[Dim, ...]]:
    """What arrays are over the dimensions that they make together, aligned at the last one, as NumPy does."""
    places = range(-max((array.ndim for array in arrays), default=0), 0)
    exprs, dims = aligned([array.expr for array in arrays], [array.dims for array in arrays],
                          [range(-array.ndim, 0) for array in arrays], what, places)
    return exprs, tuple(dims[place] for place in places)
