"""Complex numbers in traced code, as pairs of real arrays: operators themselves know real numbers alone.

In: NumPy's functions of arrays of which one at least is complex.  Out: pairs again, or real arrays where NumPy's results are real.
A real operand has no imaginary part, so it is not multiplied by one: for infinite elements, NumPy's own products are NaN.
"""
from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from redfuser_algebra.language.tracing.array import Traced, implements, is_complex, lifted, together
from redfuser_algebra.language.tracing.lengths import LISTED
from redfuser_algebra.language.tracing.place import refused


class Complex(NDArrayOperatorsMixin):
    """real + i·imag, of two traced arrays of one shape."""

    dtype = np.dtype(np.complex128)
    __array_priority__ = 3000
    __hash__ = None

    def __init__(self, real: object, imag: object) -> None:
        parts, dims = together([lifted(real), lifted(imag)], "a complex array")
        self.real, self.imag = (Traced(part, dims) for part in parts)

    shape = property(lambda self: self.real.shape)
    ndim = property(lambda self: self.real.ndim)
    size = property(lambda self: self.real.size)
    T = property(lambda self: np.transpose(self))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: object, **options: object) -> object:
        return _computed(ufunc if method == "__call__" else (ufunc, method), *operands, **options)

    def __array_function__(self, function: Callable, types: object, args: tuple, kwargs: dict) -> object:
        return _computed(function, *args, **kwargs)

    def __getitem__(self, key: object) -> Complex:
        return Complex(self.real[key], self.imag[key])

    def __len__(self) -> int:
        return len(self.real)

    def conj(self) -> Complex:
        return Complex(self.real, -self.imag)

    conjugate = conj

    def _refused(self, *given: object, **options: object) -> object:
        raise refused("a complex array as a real one", "arrays hold real numbers", "take its np.abs, .real or .imag")

    __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = __iter__ = __setitem__ = astype = _refused


def _method(name: str) -> Callable:
    def method(self: Complex, *args: object, **options: object) -> object:
        return getattr(np, name)(self, *args, **options)

    return method


for _name in "sum mean cumsum dot ravel reshape transpose swapaxes squeeze diagonal trace copy".split():
    setattr(Complex, _name, _method(_name))


def paired(value: object) -> Complex:
    """Anything that code may mix with complex arrays, as one."""
    if isinstance(value, Complex):
        return value
    return Complex(np.real(value), np.imag(value)) if is_complex(value) else Complex(value, 0.0)


@implements(complex)
def _computed(function: object, *operands: object, **options: object) -> object:
    """NumPy's function where some operand is complex.  Raises OperatorError where it has no meaning for those here."""
    if options.pop("out", None):
        raise refused("a complex array written in place", "other arrays may be views of it", "write the result to a new name")
    if function not in _MEANINGS:
        name = getattr(function, "__name__", None) or ".".join((function[0].__name__, function[1]))
        raise refused(f"np.{name} of complex numbers", "it is not followed", "take real and imaginary parts before, as with np.cos and np.sin")
    return _MEANINGS[function](*operands, **options)


def _is_zero(part: Traced) -> bool:
    return part.expr.op == "const" and part.expr.value == 0


def _sum_of(one: Traced | None, other: Traced | None) -> Traced | None:
    """The sum of parts that are None where they are zero."""
    return one if other is None else other if one is None else one + other


def _bilinear(function: Callable) -> Callable:
    """A function linear in each of two operands, which come first, or after a text such as that of np.einsum."""
    def meaning(*given: object, **options: object) -> Complex:
        start = 1 if isinstance(given[0], str) else 0
        one, other = map(paired, given[start:start + 2])

        def product(a: Traced, b: Traced) -> Traced | None:
            return None if _is_zero(a) or _is_zero(b) else function(*given[:start], a, b, *given[start + 2:], **options)

        real = _sum_of(product(one.real, other.real), product(-one.imag if not _is_zero(one.imag) else one.imag, other.imag))
        imag = _sum_of(product(one.real, other.imag), product(one.imag, other.real))
        if real is None and imag is None:
            real = function(*given[:start], one.real, other.real, *given[start + 2:], **options)
        return Complex(0.0 if real is None else real, 0.0 if imag is None else imag)

    return meaning


def _each_part(function: Callable) -> Callable:
    """A function linear in its operand: the same of both parts."""
    return lambda a, *given, **options: Complex(function(a.real, *given, **options), function(a.imag, *given, **options))


def _added(function: Callable) -> Callable:
    def meaning(one: object, other: object) -> Complex:
        one, other = paired(one), paired(other)
        return Complex(function(one.real, other.real), function(one.imag, other.imag))

    return meaning


def _squared_size(a: Complex) -> Traced:
    return a.real * a.real if _is_zero(a.imag) else a.imag * a.imag if _is_zero(a.real) else a.real * a.real + a.imag * a.imag


def _exp(a: Complex) -> Complex:
    if _is_zero(a.imag):
        return Complex(np.exp(a.real), 0.0)
    circle = Complex(np.cos(a.imag), np.sin(a.imag))
    return circle if _is_zero(a.real) else Complex(np.exp(a.real) * circle.real, np.exp(a.real) * circle.imag)


def _divided(one: object, other: object) -> Complex:
    one, other = paired(one), paired(other)
    if _is_zero(other.imag):
        return Complex(one.real / other.real, one.imag / other.real)
    product, size = one * other.conj(), _squared_size(other)
    return Complex(product.real / size, product.imag / size)


def _power(a: object, n: object) -> Complex:
    if not isinstance(n, Integral) or not 0 < n <= LISTED:
        raise refused(f"a complex number to the power {n!r:.40}", f"it has a meaning for whole powers from 1 to {LISTED}", "use np.abs and np.angle")
    result = paired(a)
    for _ in range(int(n) - 1):
        result = result * a
    return result


def _variance(a: Complex, axis: object = None, *, ddof: int = 0, keepdims: bool = False) -> Traced:
    return sum(np.var(part, axis=axis, ddof=ddof, keepdims=keepdims) for part in (a.real, a.imag))


def _chosen(condition: object, x: object, y: object) -> Complex:
    x, y = paired(x), paired(y)
    return Complex(np.where(condition, x.real, y.real), np.where(condition, x.imag, y.imag))


def _equal(one: object, other: object) -> Traced:
    one, other = paired(one), paired(other)
    return (one.real == other.real) & (one.imag == other.imag)


_MEANINGS: dict[object, Callable] = {
    function: rule(function) for rule, functions in (
        (_bilinear, (np.multiply, np.matmul, np.dot, np.inner, np.outer, np.tensordot, np.einsum)),
        (_added, (np.add, np.subtract)),
        (_each_part, (np.sum, np.mean, np.cumsum, np.negative, np.positive, np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis,
                      np.expand_dims, np.squeeze, np.diagonal, np.trace, np.copy, np.diff))) for function in functions
} | {
    np.divide: _divided, np.reciprocal: lambda a: _divided(1.0, a), np.power: _power, np.square: lambda a: a * a,
    np.exp: _exp, np.conjugate: Complex.conj, np.absolute: lambda a: np.sqrt(_squared_size(a)),
    np.log: lambda a: Complex(np.log(_squared_size(a)) / 2, np.arctan2(a.imag, a.real)),
    np.angle: lambda z, deg=False: np.arctan2(z.imag, z.real) * (180 / np.pi if deg else 1.0),
    np.real: lambda val: val.real, np.imag: lambda val: val.imag, np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim, np.size: lambda a: a.size,
    np.isnan: lambda a: np.isnan(a.real) | np.isnan(a.imag), np.equal: _equal, np.not_equal: lambda a, b: ~_equal(a, b),
    np.where: _chosen, np.vdot: lambda a, b: np.dot(np.ravel(paired(a).conj()), np.ravel(paired(b))),
    np.var: _variance, np.std: lambda a, *given, **options: np.sqrt(_variance(a, *given, **options)),
    np.linalg.norm: lambda x, ord=None, axis=None, keepdims=False: np.linalg.norm(abs(x), ord, axis, keepdims),
}
"""What NumPy's functions are for complex operands: one row each."""


@implements(np.imag)
def _imag(val: object) -> Traced:
    return Traced(lifted(0.0).expr, lifted(val).dims)


@implements(np.angle)
def _angle(z: object, deg: bool = False) -> Traced:
    return np.where(lifted(z) < 0, 180.0 if deg else np.pi, np.where(np.isnan(z), np.nan, 0.0))
