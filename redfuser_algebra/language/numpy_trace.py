"""Plain NumPy functions become operators: they are called once with arrays that record what is done to them.

In: a function of arrays, and the axes of each (by name, or by example).  Out: an `Operator`.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from types import MappingProxyType

import numpy as np

from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.expr import Expr, call, const, rewritten, substitute, subterms
from redfuser_algebra.language.formula import parse_all
from redfuser_algebra.language.operator import ONE, SCALAR_TYPES, Operator, define, is_name
from redfuser_algebra.language.tracing import bins, complex_numbers, neighbours, products, reductions, shapes  # noqa: F401  (they enter what they handle)
from redfuser_algebra.language.tracing.alignment import with_copies
from redfuser_algebra.language.tracing.array import Traced, lifted
from redfuser_algebra.language.tracing.elementwise import regrouped
from redfuser_algebra.language.tracing.halves import on_both_halves
from redfuser_algebra.language.tracing.lengths import Axes, current, evened, primes, written
from redfuser_algebra.language.tracing.mirrors import from_the_start
from redfuser_algebra.language.tracing.patched import letting_arrays_pass
from redfuser_algebra.language.tracing.place import excerpt
from redfuser_algebra.language.tracing.stretches import on_whole_axes

ROUNDS = 20
"""How often axes that meet are made one before the function is given up."""


def trace(function: Callable, /, *, name: str | None = None, assume: str = "", reassociate: bool = False, **given: object) -> Operator:
    """The operator that a function written with NumPy computes.

    Each argument of the function is given by name: an array as the names of its axes (`X="b l"`, `""` for a number
    that varies from call to call in batches), or as an example array whose axes are to be named by what meets what; a
    scalar parameter as `float`, `int`, `bool`, or as its default.  Arguments annotated with axes need not be given,
    and those with a default are parameters if it is a float, and otherwise keep it.  Anything of NumPy with
    a meaning over named axes may be used: ufuncs, reductions, products, broadcasting, indexing, np.where.  `assume` states
    conditions ("x > 0, w >= 0"), and `reassociate` permits what `ra.round(…, reassociate=True)` does for all roundings.

    Raises OperatorError, with the line named, for branches and loops that depend on elements, functions without a
    meaning here, and axes that cannot be told apart.

    >>> import numpy as np
    >>> def spread(x):
    ...     return np.sqrt(np.mean((x - x.mean()) ** 2))
    >>> trace(spread, x="l").name
    'spread'
    """
    name = name or _name_of(function)
    arguments = _arguments(name, function, given)
    inputs, params, fixed = _sorted_out(name, arguments)
    asked = _Asked(name, function, _named(inputs), tuple(params), fixed, any(not isinstance(axes, str) for axes in inputs.values()))
    lengths: dict[str, int] = {}
    for _ in range(ROUNDS):
        first, axes = asked.traced(lengths)
        if not axes.unions and not axes.fixed and axes.even <= asked.even:
            break
        asked, lengths = replace(asked, inputs=_united(asked.inputs, axes.unions), even=asked.even | axes.even), lengths | axes.fixed
    else:
        raise OperatorError(f"a trace of {name}", "its axes cannot be told apart: one meets arrays of different lengths",
                            "name the axes of its inputs, and pass lists of numbers as inputs")
    others = (asked.traced(lengths, skip)[0] for skip in (1, 2))
    arrays = _agreed(name, first, others)
    order = _order(name, arrays, axes)
    exprs = [rewritten(array.expr, regrouped) if reassociate else array.expr for array in arrays]
    exprs = [on_both_halves(from_the_start(on_whole_axes(expr, axes), axes), axes) for expr in exprs]
    exprs, constants = _with_constants(exprs, asked.inputs, axes)
    declared = {key: axes.distinct(own) for key, own in asked.inputs.items()} | {key: own for key, (own, _) in constants.items()}
    exprs, inputs, again = with_copies(exprs, declared)
    numbers = {key: array for key, (_, array) in constants.items()}
    numbers |= {key: numbers[again.pop(key)] for key, source in [*again.items()] if source in numbers}
    conditions = parse_all(assume, inputs, params) if assume else ()
    conditions += tuple(call("equal", Expr("size", (), (axis,)), length) for axis, length in lengths.items())
    return define(name, inputs, params, _structured(first, exprs), conditions, inspect.getdoc(function) or "", order, again,
                  numbers)


def _with_constants(exprs: list[Expr], inputs: Mapping[str, tuple[str, ...]], axes: Axes) -> tuple[list[Expr], dict[str, tuple[tuple[str, ...], np.ndarray]]]:
    """Expressions in which what the code lists itself is an input, and those inputs: their axes and their numbers.

    A listed axis that no input has, as that of np.arange(4), is the axis of its positions.
    """
    terms, own = subterms(*exprs), {axis for names in inputs.values() for axis in names}
    alone = [term for term in terms if term.op in ("index", "size") and axes.origin(term.axis) in axes.listed - own]
    named = {term: Expr("input", (), (f"positions{axes.lengths[term.axis]}", (term.axis,))) for term in alone if term.op == "index"}
    lengths = {term: const(axes.lengths[term.axis]) for term in alone if term.op == "size"}
    found = {term.name: (term.axes, axes.tables[term.name]) for term in terms if term.op == "input" and term.name in axes.tables}
    found |= {term.name: (term.axes, np.arange(axes.lengths[term.axes[0]])) for term in reversed(named.values())}
    return [substitute(expr, named | lengths) for expr in exprs], found


def _name_of(function: Callable) -> str:
    own = getattr(function, "__name__", "")
    return own if is_name(own) else "traced"


def _arguments(name: str, function: Callable, given: Mapping[str, object]) -> dict[str, object]:
    """What stands for each argument of the function, in its order."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise OperatorError(f"a trace of {function!r:.60}", "its arguments are not known", "wrap it: lambda x: …") from None
    unknown = [key for key in given if key not in parameters]
    if unknown:
        raise OperatorError(f"a trace of {name} with {unknown[0]}=", "the function has no such argument",
                            f"give the axes of: {', '.join(parameters)}")
    found = {}
    for key, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if key in given:
                raise OperatorError(f"a trace of {name} with {key}=", "an operator has a fixed list of inputs", "wrap the function")
        elif key in given:
            found[key] = given[key]
        elif isinstance(parameter.annotation, str) and parameter.annotation not in SCALAR_TYPES and _axes(parameter.annotation) is not None:
            found[key] = parameter.annotation
        elif isinstance(parameter.default, float):
            found[key] = parameter.default
        elif parameter.default is parameter.empty:
            raise OperatorError(f"a trace of {name}", f"nothing says what {key} is",
                                f'name its axes, as in {key}="l", or give an example array, or {key}=float')
    return found


def _axes(text: str) -> tuple[str, ...] | None:
    axes = tuple(text.split())
    return axes if all(map(is_name, axes)) else None


def _sorted_out(name: str, arguments: Mapping[str, object]) -> tuple[dict, dict, dict]:
    """Arrays with their axes (text) or their example's shape, and parameters with their defaults."""
    inputs, params, fixed = {}, {}, {}
    for key, value in arguments.items():
        if isinstance(value, str):
            if _axes(value) is None:
                raise OperatorError(f"a trace of {name} with {key}={value!r}", "that does not name axes", 'write names with spaces: "b l"')
            inputs[key] = value
        elif isinstance(value, type) and value.__name__ in SCALAR_TYPES:
            params[key] = None
        elif isinstance(value, bool) or isinstance(value, np.bool_):
            fixed[key] = bool(value)
        elif isinstance(value, Real):
            params[key] = value.item() if isinstance(value, np.generic) else value
        elif isinstance(value, np.ndarray | list):
            inputs[key] = np.shape(value)
        else:
            raise OperatorError(f"a trace of {name} with {key}={value!r:.40}", "it is neither axes, an example array, nor a number",
                                f'write {key}="b l" for an array, {key}=float for a parameter')
    return inputs, params, fixed


def _named(inputs: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Axis names for every input; examples get one of their own for each dimension until dimensions meet."""
    taken = {axis for axes in inputs.values() if isinstance(axes, str) for axis in axes.split()} | set(inputs)
    free = (letter for letter in (*"ijklmnpqrstuvw", *(f"a{n}" for n in range(99))) if letter not in taken)
    return {key: tuple(axes.split()) if isinstance(axes, str) else tuple(next(free) for _ in axes) for key, axes in inputs.items()}


def _united(inputs: Mapping[str, tuple[str, ...]], unions: list[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The inputs with axes that met under one name, that of the first."""
    same = joined(list(dict.fromkeys(axis for axes in inputs.values() for axis in axes)), unions)
    return {key: tuple(same[axis] for axis in axes) for key, axes in inputs.items()}


def joined(order: list[str], unions: list[tuple[str, str]], known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Which axis each one is after some have met, the first in order standing for all that are one."""
    same = {axis: known.get(axis, axis) for axis in order}
    for pair in unions:
        one, other = sorted((same[axis] for axis in pair), key=order.index)
        same = {axis: one if now == other else now for axis, now in same.items()}
    return same


@dataclass(frozen=True)
class _Asked:
    """A function to trace: the axes of its inputs, `inferred` or given, its parameters, and what other arguments are."""

    name: str
    function: Callable
    inputs: dict[str, tuple[str, ...]]
    params: tuple[str, ...]
    fixed: dict[str, bool]
    inferred: bool
    even: frozenset[str] = frozenset()

    def traced(self, lengths: dict[str, int], skip: int = 0) -> tuple[object, Axes]:
        """What the function returns for traced arrays, and what was found out about axes; `skip` chooses the lengths of the others.

        Where some axes turn out to have lengths of their own, it is to be traced again with those, and nothing is returned.
        """
        names = list(dict.fromkeys(axis for axes in self.inputs.values() for axis in axes))
        axes = Axes(evened(dict(zip(names, primes(len(names), skip), strict=True)) | lengths, self.even), self.inferred)
        token = current.set(axes)
        try:
            arrays = {key: _input(key, axes.distinct(own)) for key, own in self.inputs.items()}
            arrays |= {key: Traced(Expr("param", (), (key,))) for key in self.params}
            with letting_arrays_pass(self.function), np.errstate(all="ignore"):
                return _results(_called(self.name, self.function, arrays | self.fixed)), axes
        except RedfuserError:
            if not axes.fixed and axes.even <= self.even:
                raise
            return None, axes
        finally:
            current.reset(token)


def _input(name: str, axes: tuple[str, ...]) -> Traced:
    return Traced(Expr("input", (), (name, axes)), tuple((axis,) for axis in axes))


def _called(name: str, function: Callable, given: dict[str, object]) -> object:
    parameters = inspect.signature(function).parameters.values()
    bound = inspect.signature(function).bind_partial()
    bound.arguments = {each.name: given[each.name] for each in parameters if each.name in given}
    try:
        return function(*bound.args, **bound.kwargs)
    except RedfuserError:
        raise
    except Exception as error:
        line = excerpt_of(error)
        raise OperatorError(f"a trace of {name}", f"its function raised {type(error).__name__}: {error}",
                            "use NumPy's functions over whole arrays, or write that part in the front-door language", line) from error


def excerpt_of(error: Exception) -> str:
    """The user's line that an error came from."""
    frame, last = error.__traceback__, None
    while frame is not None:
        last, frame = excerpt(frame.tb_frame) or last, frame.tb_next
    return last or ""


def _results(result: object) -> dict | tuple | Traced:
    """The returned arrays in their structure."""
    if isinstance(result, dict):
        return {key: lifted(value) for key, value in result.items()}
    if isinstance(result, tuple | list):
        return tuple(map(lifted, result))
    return lifted(result)


def _flat(result: object) -> list[Traced]:
    return list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, tuple) else [result]


def _agreed(name: str, first: object, others: Iterator[object]) -> list[Traced]:
    """The arrays that two traces with different lengths agree on: a number of the code may equal a length in one of them.

    Raises OperatorError if no two agree.
    """
    seen = [_flat(first)]
    for other in (_flat(each) for each in others if each is not None):
        for one in seen:
            if len(one) == len(other) and all(a.expr is b.expr and a.dims == b.dims for a, b in zip(one, other, strict=True)):
                return one
        seen.append(other)
    raise OperatorError(f"a trace of {name}", "a number in it depends on the length of an axis in a way that NumPy does not see",
                        "compute it from x.shape or x.size with NumPy's functions, or pass it as a parameter")


def _order(name: str, arrays: list[Traced], axes: Axes) -> str:
    """The dimensions of each array, for `define`."""
    return ", ".join(" ".join(axis for dim in array.dims for axis in _dimension(name, array, dim, axes)) for array in arrays)


def _structured(result: object, exprs: list[Expr]) -> object:
    """Expressions in the structure of the result."""
    if isinstance(result, dict):
        return dict(zip(result, exprs, strict=True))
    return tuple(exprs) if isinstance(result, tuple) else exprs[0]


def _dimension(name: str, array: Traced, dim: tuple[str, ...], axes: Axes) -> tuple[str, ...]:
    """The one axis of a dimension of a result."""
    if not dim:
        return (ONE,)
    if len(dim) > 1:
        raise OperatorError(f"a trace of {name}", f"its result has the flattened dimension {written(dim)}", "reshape it back before returning it")
    if dim[0] in axes.mirrors:
        raise OperatorError(f"a trace of {name}", f'its result runs over axis "{axes.mirrors[dim[0]]}" from its end', "reverse the result after the call")
    if dim[0] in axes.stretches or dim[0] in axes.halves:
        whole = axes.halves.get(dim[0]) or axes.stretches[dim[0]][0]
        raise OperatorError(f"a trace of {name}", f'its result has a part of axis "{whole}"',
                            "return the whole axis, with a number such as 0 where there is no result")
    if dim[0] not in array.expr.axes:
        raise OperatorError(f"a trace of {name}", f"its result is the same all along {written(dim)}", "return it without that dimension")
    return dim
