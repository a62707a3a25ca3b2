"""What stands for Python's `float`, `int` and `bool` in traced code: as functions they let traced numbers pass.

As types they are the originals in every test, and to NumPy.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.tracing.array import Traced
from redfuser_algebra.language.tracing.elementwise import is_boolean, truncated, truth
from redfuser_algebra.language.tracing.shapes import is_whole


class _Kind(type):
    """The type of the stand-ins: `original` is what each one stands for."""

    original: type
    converted: Callable[[Expr], Expr]

    def __call__(cls, *args: object, **options: object) -> object:
        if len(args) == 1 and isinstance(args[0], Traced) and not args[0].dims:
            return Traced(cls.converted(args[0].expr))
        return cls.original(*args, **options)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.original)

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, cls.original)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)

    def __getattr__(cls, name: str) -> object:
        return getattr(cls.original, name)


def _number(expr: Expr) -> Expr:
    return ra.where(expr, 1, 0) if is_boolean(expr) else expr


class _Float(metaclass=_Kind):
    original, converted, dtype = float, _number, np.dtype(float)


class _Int(metaclass=_Kind):
    original, converted, dtype = int, (lambda expr: _number(expr) if is_whole(expr) else truncated(expr)), np.dtype(int)


class _Bool(metaclass=_Kind):
    original, converted, dtype = bool, (lambda expr: expr if is_boolean(expr) else truth(expr)), np.dtype(bool)


KINDS = {"float": _Float, "int": _Int, "bool": _Bool}
