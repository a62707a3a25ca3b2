"""Functions outside NumPy's protocols, taught for the time of a trace to let traced arrays pass.

Such as `np.asarray(x)` at the start of a function, `math.sqrt(d)` of a length, and `max(x.max(), 0.0)`.
Each stand-in does what the original does to everything else, so other threads see no difference.
"""
from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce, wraps
from inspect import unwrap
from threading import RLock
from unittest.mock import patch

import numpy as np

from redfuser_algebra.language.functions import index
from redfuser_algebra.language.tracing.array import Length, Traced, elementwise
from redfuser_algebra.language.tracing.kinds import KINDS
from redfuser_algebra.language.tracing.lengths import current
from redfuser_algebra.language.tracing.selected import Selected
from redfuser_algebra.language.tracing.stacked import is_listed, stacked

_CONVERSIONS = ("asarray", "asanyarray", "array", "ascontiguousarray", "asfortranarray", "atleast_1d")
_MATH = {"sqrt": "sqrt", "exp": "exp", "log": "log", "log2": "log2", "log1p": "log1p", "expm1": "expm1", "sin": "sin", "cos": "cos",
         "tanh": "tanh", "fabs": "absolute", "pow": "power", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}
_lock = RLock()


def _converting(original: Callable) -> Callable:
    @wraps(original)
    def stand_in(value: object = None, *args: object, dtype: object = None, **options: object) -> object:
        if is_listed(value):
            value = stacked(value)
        if isinstance(value, Traced):
            dtype = args[0] if args else dtype
            return value if dtype is None else value.astype(dtype)
        return original(value, *args, **({} if dtype is None else {"dtype": dtype}), **options)

    return stand_in


def _computing(original: Callable, name: str) -> Callable:
    @wraps(original)
    def stand_in(*operands: object) -> object:
        traced = any(isinstance(operand, Traced | Length) for operand in operands)
        return elementwise(name, *operands) if traced else original(*operands)

    return stand_in


def _extreme(original: Callable, beats: Callable) -> Callable:
    """Python's min or max: of several values the first that no other one beats, also where one is not a number."""
    @wraps(original)
    def stand_in(*values: object, **options: object) -> object:
        if len(values) > 1 and not options and any(isinstance(value, Traced) and not value.dims for value in values):
            return reduce(lambda best, value: np.where(beats(value, best), value, best), values)
        return original(*values, **options)

    return stand_in


def _arange(original: Callable) -> Callable:
    """A range over a whole axis, upwards or downwards, is the positions along it."""
    @wraps(original)
    def stand_in(*numbers: object, **options: object) -> object:
        start, stop, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3] if numbers else (0, 0, 0)
        if step in (1, -1) and all(isinstance(each, Length | int) for each in (start, stop)) and set(options) <= {"dtype"}:
            number = (int(stop) - int(start)) * int(step)
            found = current.get().axis_of(number) or current.get().half_of_length(number)
            if found is not None:
                positions = Traced(index(found), ((found,),))
                return start - positions if step < 0 else positions if isinstance(start, int) and start == 0 else positions + start
        return original(*map(_plain, numbers), **options)

    return stand_in


def _length(original: Callable) -> Callable:
    """The length of a traced array is one that knows which axis it is of."""
    @wraps(original)
    def stand_in(value: object, /) -> object:
        return value.shape[0] if isinstance(value, Selected) or isinstance(value, Traced) and value.dims else original(value)

    return stand_in


def numeric(original: Callable) -> Callable:
    """The same function, to which a length is a plain number."""
    @wraps(original)
    def stand_in(*numbers: object, **options: object) -> object:
        return original(*map(_plain, numbers), **options)

    return stand_in


def _plain(number: object) -> object:
    return int(number) if isinstance(number, Length) else number


def _modules(function: Callable) -> Iterator[dict[str, object]]:
    """The names that a function's own module gives to things, and those of what it wraps."""
    for each in (function, unwrap(function), getattr(function, "func", None), getattr(type(function), "__call__", None)):
        if isinstance(names := getattr(each, "__globals__", None), dict):
            yield names


@contextmanager
def letting_arrays_pass(function: Callable) -> Iterator[None]:
    """While this holds, conversions leave traced arrays alone, ranges, `len` and `math` know lengths, and `min` and `max` choose.

    In the module of the function, so do `float`, `int` and `bool`: others take them for Python's types.
    """
    with _lock, ExitStack() as stack:
        for names in _modules(function):
            stack.enter_context(patch.dict(names, {name: kind for name, kind in KINDS.items() if name not in names}))
        for name in _CONVERSIONS:
            stack.enter_context(patch.object(np, name, _converting(getattr(np, name))))
        stack.enter_context(patch.object(np, "arange", _arange(np.arange)))
        stack.enter_context(patch.object(np, "tri", numeric(np.tri)))
        stack.enter_context(patch.object(builtins, "len", _length(builtins.len)))
        for name, beats in (("min", operator.lt), ("max", operator.gt)):
            stack.enter_context(patch.object(builtins, name, _extreme(getattr(builtins, name), beats)))
        for name, ours in _MATH.items():
            stack.enter_context(patch.object(math, name, _computing(getattr(math, name), ours)))
        yield
