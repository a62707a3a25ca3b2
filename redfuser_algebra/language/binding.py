"""Arrays meet the axes of an operator: which array is which input, how long each axis is, what is batch.

In: the declared inputs and parameters, and the arrays and scalars of one call.  Out: a `Binding`.
"""
from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr


@dataclass(frozen=True)
class Binding:
    """One call's arrays (in their own dtype), scalars, axis lengths and common batch shape.

    An array's last dimensions are its input's axes; the dimensions before them broadcast to `batch`.
    """

    arrays: dict[str, np.ndarray]
    params: dict[str, bool | int | float]
    sizes: dict[str, int]
    batch: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """What a call is checked against: inputs with their axes, parameters with defaults, lengths of top-k axes.

    `again` says which inputs are another one once more, where a call does not give them, and `constants` which are these
    numbers; `lengths` are those that axes must have.
    """

    name: str
    inputs: Mapping[str, tuple[str, ...]]
    params: Mapping[str, bool | int | float | None]
    tops: Mapping[str, Expr]
    again: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def completed(self, given: dict[str, object]) -> dict[str, object]:
        """What was given, inputs that are numbers of the code, and inputs that are another one once more."""
        if self.constants:
            given = {**self.constants, **given}
        return given | {name: given[source] for name, source in self.again.items() if name not in given and source in given} if self.again else given

    def __str__(self) -> str:
        scalars = [name if default is None else f"{name}={default}" for name, default in self.params.items()]
        arrays = ", ".join(f"{name}[{', '.join(axes)}]{'=' * (name in self.again)}{self.again.get(name, '')}" for name, axes in self.inputs.items())
        return f"{self.name}({'; '.join(filter(None, (arrays, ', '.join(scalars))))})"


def bind(signature: Signature, arrays: tuple, named: dict[str, object]) -> Binding:
    """Match arrays and scalars to a signature.

    Raises OperatorError for missing or unknown names, arrays that are not real numbers, too few dimensions, an
    axis with two lengths, batch shapes that do not broadcast, and a k that is not a whole number of at least 1.
    """
    given = given_by_name(signature, arrays, named)
    values = {name: real_array(signature, name, given[name]) for name in signature.inputs}
    params = {name: real_scalar(signature, name, given.get(name, default)) for name, default in signature.params.items()}
    sizes = _sizes(signature, values, params)
    return Binding(values, params, sizes, _batch(signature, values))


def given_by_name(signature: Signature, positional: tuple, named: Mapping[str, object]) -> dict[str, object]:
    """The operands of a call by name: every input is there, nothing unknown is.  Raises OperatorError otherwise."""
    if len(positional) > len(signature.inputs):
        raise OperatorError(f"a call of {signature} with {len(positional)} operands by position",
                            f"it has {_number(len(signature.inputs), 'input')}", "give scalar parameters by name")
    given = dict(zip(signature.inputs, positional, strict=False))
    check_known(signature, named)
    for name, value in named.items():
        if name in given:
            raise OperatorError(f"a call of {signature} with {name}=", f"{name} was also given by position", "give it once")
        given[name] = value
    given = signature.completed(given)
    missing = [name for name in signature.inputs if name not in given]
    missing += [name for name, default in signature.params.items() if default is None and name not in given]
    if missing:
        raise OperatorError(f"a call of {signature}", f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                            "give every input, and every parameter that has no default")
    return given


def check_known(signature: Signature, names: Iterable[str]) -> None:
    """Raises OperatorError for the name of no input or parameter."""
    known = [*signature.inputs, *signature.params]
    for name in names:
        if name not in known:
            raise OperatorError(f"a call of {signature} with {name}=", "it has no such input or parameter", suggestion(name, known))


def suggestion(name: str, known: Iterable[str]) -> str:
    """A remedy for a name nobody knows: the nearest known one, or the list."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"use one of: {', '.join(known)}" if known else "leave it out"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def real_array(signature: Signature, name: str, value: object) -> np.ndarray:
    """What is given for an input, as an array.  Raises OperatorError unless it holds real numbers and has the dimensions."""
    asked = f"input {name} of {signature}"
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # NumPy loads np.ma when it is first named
        raise OperatorError(asked, "a masked array would lose its mask",
                            "pass its data, and its mask as an input used in `where=`")
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        ways = " or ".join(f"x.{name}()" for name in ("detach", "float") if hasattr(value, name))
        instead = f"convert it first, with {ways}" if ways else "pass a rectangular array of numbers"
        raise OperatorError(asked, f"it does not make an array: {error}", instead) from error
    if array.dtype.kind not in "biuf" and not (array.dtype.kind == "V" and np.can_cast(array.dtype, np.float64)):
        raise OperatorError(asked, f"its dtype {array.dtype} is not a real number", _conversion(array.dtype.kind))
    if array.ndim < len(signature.inputs[name]):
        raise OperatorError(asked, f"an array of shape {array.shape} has too few dimensions for the axes "
                                   f"[{', '.join(signature.inputs[name])}]",
                            "add dimensions of length 1, for example x[None, :]")
    return array


def _conversion(kind: str) -> str:
    return {
        "O": "convert it first, for example with x.astype(float)",
        "c": "pass real and imaginary parts as two inputs",
        "M": "subtract a start time and divide by a unit, for example (t - t0) / np.timedelta64(1, 's')",
        "m": "divide it by a unit, for example np.timedelta64(1, 's')",
    }.get(kind, "convert it to numbers first")


def real_scalar(signature: Signature, name: str, value: object) -> bool | int | float:
    """What is given for a parameter, as a number of Python's.  Raises OperatorError unless it is a real number."""
    number = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    if not isinstance(number, bool | int | float):
        raise OperatorError(f"parameter {name} of {signature}", f"{type(value).__name__} {value!r:.40} is not a real number",
                            "pass a scalar, or declare an input with axes if it is an array")
    return number


def _sizes(signature: Signature, values: dict[str, np.ndarray], params: dict) -> dict[str, int]:
    sizes, origin = {}, {}
    for name, axes in signature.inputs.items():
        for axis, length in zip(axes, values[name].shape[values[name].ndim - len(axes):], strict=True):
            if sizes.setdefault(axis, length) != length:
                raise OperatorError(f"a call of {signature}", f"axis {axis} has length {sizes[axis]} in {origin[axis]} "
                                    f"and {length} in {name}", _shapes(signature, values, axis))
            if signature.lengths.get(axis, length) != length:
                raise OperatorError(f"a call of {signature}", f"axis {axis} has length {length} in {name}", f"it is written for {signature.lengths[axis]}")
            origin.setdefault(axis, name)
    for axis, count in signature.tops.items():
        k = places(signature, count, sizes, params)
        if sizes.setdefault(axis, k) != k:
            raise OperatorError(f"a call of {signature}", f"axis {axis} has length {sizes[axis]} in {origin[axis]} "
                                f"and {k} from topk", "make them equal, or give the topk axis another name")
    return sizes


def places(signature: Signature, count: Expr, sizes: Mapping[str, int], params: Mapping[str, object]) -> int:
    """How many elements a top-k chooses.  Raises OperatorError unless that is a whole number of at least 1."""
    k = _chosen(count, sizes, params)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise OperatorError(f"a call of {signature}", f"{text_of_count(count)} = {k!r} elements cannot be chosen",
                            "choose a whole number of at least 1")
    return k


def _chosen(count: Expr, sizes: Mapping[str, int], params: Mapping[str, object]) -> object:
    """How many a top-k chooses: at least one where it follows from lengths, so that an empty axis can be spoken of."""
    if count.op in ("const", "param"):
        return count.value if count.op == "const" else params[count.name]
    k = number_at(count, sizes, params)
    return max(1, int(k)) if float(k).is_integer() else k


def number_at(term: Expr, sizes: Mapping[str, int], params: Mapping[str, object]) -> object:
    """The number that a term of lengths, parameters and constants comes to."""
    if term.op in ("const", "param", "size"):
        return term.value if term.op == "const" else params[term.name] if term.op == "param" else sizes[term.axis]
    return FUNCTIONS[term.op].apply(*(number_at(arg, sizes, params) for arg in term.args))


def text_of_count(count: Expr) -> str:
    """How an error speaks of a top-k number."""
    return count.name if count.op == "param" else "k" if count.op == "const" else str(count)


def _shapes(signature: Signature, values: dict[str, np.ndarray], axis: str) -> str:
    users = [name for name, axes in signature.inputs.items() if axis in axes]
    return "make them equal: " + ", ".join(f"{name} has shape {values[name].shape}" for name in users)


def _batch(signature: Signature, values: dict[str, np.ndarray]) -> tuple[int, ...]:
    leading = {name: values[name].shape[:values[name].ndim - len(axes)] for name, axes in signature.inputs.items()}
    try:
        return np.broadcast_shapes(*leading.values())
    except ValueError:
        shapes = ", ".join(f"{name} {shape}" for name, shape in leading.items() if shape)
        raise OperatorError(f"a call of {signature}", f"the batch dimensions before the axes do not broadcast: {shapes}",
                            "make them equal, or 1, from the right") from None
