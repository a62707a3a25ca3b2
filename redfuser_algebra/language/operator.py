"""Operators: named inputs with named axes, scalar parameters, and the expressions traced from a function.

In: a Python function whose annotations name axes, or the same things as data.  Out: an immutable `Operator`.
"""
from __future__ import annotations

import __future__
import ast
import inspect
import keyword
import unicodedata
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from redfuser_algebra.language.binding import Binding, Signature, bind, given_by_name
from redfuser_algebra.language.composition import axes_of_call, copied_axis, with_leaves
from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.expr import Expr, lift, subterms, unbound_states
from redfuser_algebra.language.formula import parse_all
from redfuser_algebra.language.latex import operator_latex
from redfuser_algebra.language.text import operator_text

Scalar = bool | int | float
Structure = str | tuple[str, ...]
ONE = "1"
"""A dimension of length one among the axes of an output."""
SCALAR_TYPES = {"float": float, "int": int, "bool": bool}

_assumed: ContextVar[dict[Expr, None] | None] = ContextVar("_assumed", default=None)
"""What the operators used in the one being traced assume of what they are given."""


@dataclass(frozen=True, eq=False)
class Operator:
    """A function of arrays with named axes, as expressions.

    `inputs` maps each array to its axes in dimension order; `params` each scalar to its default (None: required).
    `structure` is "single", "tuple" or the names of a dict result.  `axes` are all axes, in order of appearance in
    the signature and then those made by topk; `output_axes` is the dimension order of each output, and `kept` says where
    an output has dimensions of length one besides, counted from its end.  `assume` are declared side conditions.  `again`
    names the inputs that are another input once more, with other axes, where a call does not give them, and `constants`
    those that are numbers of the traced code.  `written` is the operator over pairs of elements that this one is, too, without
    the inputs that are another one once more.  Two operators are equal when all but their documentation is.
    """

    name: str
    inputs: dict[str, tuple[str, ...]]
    params: dict[str, Scalar | None]
    outputs: tuple[Expr, ...]
    structure: Structure
    axes: tuple[str, ...]
    assume: tuple[Expr, ...]
    doc: str
    output_axes: tuple[tuple[str, ...], ...]
    kept: tuple[tuple[int, ...], ...] = ()
    again: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    written: Operator | None = None

    @cached_property
    def signature(self) -> Signature:
        """What calls are checked against."""
        return Signature(self.name, self.inputs, self.params, _tops(self.outputs), self.again, self.lengths, self.constants)

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths that axes are assumed to have: conditions such as size(c) = 3."""
        sizes = [condition for condition in self.assume if condition.op == "equal" and condition.args[0].op == "size"]
        return {condition.args[0].axis: condition.args[1].value for condition in sizes if condition.args[1].op == "const"}

    @property
    def as_written(self) -> Operator:
        """The operator as it was written, over pairs if it was."""
        return self.written or self

    @property
    def copies(self) -> dict[str, tuple[str, str, str]]:
        """The inputs of the operator as written that are another one once more, and no inputs here: that one, its axis and their own."""
        whole = self.as_written
        pairs = {copy: (source, *(set(whole.inputs[a]) - set(whole.inputs[b]) for a, b in ((source, copy), (copy, source))))
                 for copy, source in whole.again.items() if copy not in self.inputs}
        return {copy: (source, *own, *other) for copy, (source, own, other) in pairs.items()}

    def conditions_on(self, inputs: Mapping[str, tuple[str, ...]], params: Mapping[str, object]) -> tuple[Expr, ...]:
        """What is assumed of these inputs and parameters, and of nothing else."""
        known, axes = {*inputs, *params}, {axis for own in inputs.values() for axis in own}
        return tuple(condition for condition in self.assume if all(
            term.axis in axes if term.op == "size" else term.op not in ("input", "param") or term.name in known for term in subterms(condition)))

    @property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """The dimensions of each output, "1" for one of length one."""
        return tuple(map(_with_ones, self.output_axes, self.kept))

    def bind(self, /, *arrays: object, **named: object) -> Binding:
        """The arrays and scalars of one call by name, with axis lengths and batch shape; see `binding.bind`."""
        return bind(self.signature, arrays, named)

    def packed(self, values: tuple) -> object:
        """One value per output in the structure of the result: alone, as a tuple, or as a dict."""
        if self.structure == "single":
            return values[0]
        return tuple(values) if self.structure == "tuple" else dict(zip(self.structure, values, strict=True))

    def widened(self, result: object) -> object:
        """A result with the dimensions of length one that its outputs have."""
        if not any(self.kept):
            return result
        parts = result if isinstance(result, tuple) else tuple(result.values()) if isinstance(result, dict) else (result,)
        return self.packed(tuple(np.expand_dims(part, places) if places else part for part, places in zip(parts, self.kept, strict=True)))

    def narrowed(self, arrays: tuple) -> tuple:
        """Arrays of the outputs' shapes without those dimensions, as views.  Raises OperatorError where they have none."""
        if len(arrays) != len(self.kept) or not any(self.kept):
            return arrays
        return tuple(self._squeezed(array, places) if places else array for array, places in zip(arrays, self.kept, strict=True))

    def _squeezed(self, array: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
        if np.ndim(array) < len(places) or any(array.shape[place] != 1 for place in places):
            raise OperatorError(f"{self.name} with an array of shape {array.shape} for its result", "the result has a dimension of length one",
                                f"give arrays of {', '.join(' '.join(order) for order in self.orders)}")
        return np.squeeze(array, places)

    def renamed(self, /, **axes: str) -> Operator:
        """The same operator with other axis names: `softmax.renamed(l="j")`."""
        unknown = [axis for axis in axes if axis not in self.axes]
        if unknown:
            raise OperatorError(f"{self.signature} with axis {unknown[0]} renamed", "it has no such axis",
                                f"rename one of: {', '.join(self.axes)}")
        inputs = {name: tuple(axes.get(axis, axis) for axis in own) for name, own in self.inputs.items()}
        outputs = tuple(with_leaves(output, {}, axes) for output in self.outputs)
        order = [" ".join(axes.get(axis, axis) for axis in own) for own in self.orders]
        assume = tuple(with_leaves(condition, {}, axes) for condition in self.assume)
        return define(self.name, inputs, self.params, self.packed(outputs), assume, self.doc, ", ".join(order), self.again, self.constants)

    def __call__(self, /, *operands: Expr | Scalar, **named: Expr | Scalar) -> object:
        """The result as expressions over other expressions: an operator used inside another one.

        Each input's axes are found by name in the expression given for it, or else in order if the expression has
        as many; other axes of the expression are batch.  Raises OperatorError for arrays: fuse the operator first.
        """
        given = given_by_name(self.signature, operands, named)
        if not [value for value in given.values() if isinstance(value, Expr)]:
            raise OperatorError(f"a call of {self.signature} with arrays or numbers",
                                "an operator is a description, and only a fused one computes",
                                f"call ra.fuse({self.name})(…)")
        defaults = {name: default for name, default in self.params.items() if default is not None}
        leaves = {name: lift(value) for name, value in (defaults | given).items()}
        axes = axes_of_call(self.signature, leaves)
        assumed = _assumed.get()
        if assumed is not None:
            assumed.update((with_leaves(condition, leaves, axes), None) for condition in self.assume)
        return self.packed(tuple(with_leaves(output, leaves, axes) for output in self.outputs))

    def __str__(self) -> str:
        return operator_text(self)

    __repr__ = __str__

    def _repr_latex_(self) -> str:
        return f"$${operator_latex(self)}$$"

    def _key(self) -> tuple:
        return (self.name, tuple(self.inputs.items()), tuple(self.params.items()), tuple(map(id, self.outputs)),
                self.structure, self.axes, tuple(map(id, self.assume)), self.output_axes, self.kept, tuple(self.again.items()),
                tuple((name, array.shape, array.tobytes()) for name, array in self.constants.items()),
                self.written and self.written._key())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Operator) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def operator(function: Callable | None = None, *, name: str | None = None, assume: str = "") -> Operator | Callable:
    """The operator that a function describes; use as `@operator` or `@operator(assume="x > 0, w >= 0")`.

    A parameter annotated with a string of axis names is an array (`Q: "m k"`; `""` has no axes), and with the name of
    another one as its default it is that array once more (`y: "k" = "x"`); one annotated float, int or bool, or with a
    numeric default, is a scalar.  A return annotation such as `"m j"` fixes the order
    of the output's dimensions; a comma separates several outputs.  What operators used inside assume is assumed of
    what they are given here.  Raises OperatorError if the function raises or
    returns something other than expressions.
    """
    if function is None:
        return lambda function: operator(function, name=name, assume=assume)
    name = name or function.__name__
    inputs, params, again = _declared(name, function)
    around = _assumed.set({})
    try:
        result, assumed = _traced(name, function, inputs, params), tuple(_assumed.get())
    finally:
        _assumed.reset(around)
    order = _annotation(function, inspect.signature(function).return_annotation)
    conditions = parse_all(assume, inputs, params) if assume else ()
    conditions = tuple(dict.fromkeys((*conditions, *filter(_has_subject, assumed))))
    return define(name, inputs, params, result, conditions, inspect.getdoc(function) or "",
                  order if isinstance(order, str) and order not in SCALAR_TYPES else None, again)


def _has_subject(condition: Expr) -> bool:
    """Whether a condition says something of inputs or parameters, and not of numbers alone."""
    return any(term.op in ("input", "param") for term in subterms(condition))


def define(name: str, inputs: Mapping[str, tuple[str, ...]], params: Mapping[str, Scalar | None], result: object,
           assume: tuple[Expr, ...] = (), doc: str = "", order: str | None = None, again: Mapping[str, str] = MappingProxyType({}),
           constants: Mapping[str, np.ndarray] = MappingProxyType({})) -> Operator:
    """An operator from its parts, checked: names, axes, leaves, top-k lengths, and the order of output dimensions ("b 1").

    `result` is an expression, a tuple or list of them, or a dict from names to them.
    """
    outputs, structure = _unpacked(name, result)
    _check_names(name, inputs, params)
    _check_copies(name, inputs, again)
    _check_leaves(name, inputs, params, (*outputs, *assume))
    _check_tops(name, outputs)
    axes = tuple(dict.fromkeys([axis for own in inputs.values() for axis in own] + list(_tops(outputs))))
    output_axes = tuple(tuple(axis for axis in axes if axis in output.axes) for output in outputs)
    return Operator(name, dict(inputs), dict(params), outputs, structure, axes, tuple(assume), doc,
                    *_ordered(name, output_axes, order), dict(again), dict(constants))


def _declared(name: str, function: Callable) -> tuple[dict, dict, dict]:
    inputs, params, again = {}, {}, {}
    for parameter in inspect.signature(function).parameters.values():
        annotation = _annotation(function, parameter.annotation)
        default = None if parameter.default is parameter.empty else parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise OperatorError(f"operator {name} with *{parameter.name}", "an operator has a fixed list of inputs",
                                "name every input and give it its axes")
        if annotation in SCALAR_TYPES or annotation is None and isinstance(default, Scalar):
            params[parameter.name] = _checked_default(name, parameter.name, default)
        elif isinstance(annotation, str) and (default is None or isinstance(default, str)):
            inputs[parameter.name] = tuple(annotation.split())
            again |= {} if default is None else {parameter.name: default}
        else:
            _refuse_parameter(name, parameter)
    return inputs, params, again


def _annotation(function: Callable, raw: object) -> str | None:
    """Axes or the name of a scalar type; None for no annotation and for types.

    Under `from __future__ import annotations` Python keeps the source text, so that axes arrive quoted twice.
    """
    deferred = getattr(function, "__code__", None) and function.__code__.co_flags & __future__.annotations.compiler_flag
    if isinstance(raw, type) and raw.__name__ in SCALAR_TYPES:
        return raw.__name__
    if not isinstance(raw, str) or not deferred:
        return raw if isinstance(raw, str) else None
    try:
        literal = ast.literal_eval(raw)
    except (ValueError, SyntaxError):
        literal = None
    return literal if isinstance(literal, str) else raw if raw in SCALAR_TYPES else None


def _checked_default(operator: str, name: str, default: object) -> Scalar | None:
    if default is None or isinstance(default, Scalar):
        return default
    raise OperatorError(f"operator {operator} with {name} = {default!r:.40}", "the default is not a real number",
                        "give a float, int or bool, or no default")


def _refuse_parameter(operator: str, parameter: inspect.Parameter) -> None:
    if isinstance(parameter.annotation, str) and parameter.default is not parameter.empty:
        raise OperatorError(f"operator {operator} with a default for the array {parameter.name}",
                            "only scalars have defaults",
                            'leave the default out, or give the name of the input that it is once more: y: "k" = "x"')
    raise OperatorError(f"operator {operator} with the parameter {parameter.name}",
                        "nothing says whether it is an array or a scalar",
                        f'name its axes, as in {parameter.name}: "l", or write {parameter.name}: float')


def _traced(name: str, function: Callable, inputs: dict, params: dict) -> object:
    leaves = {key: Expr("input", (), (key, axes)) for key, axes in inputs.items()}
    leaves |= {key: Expr("param", (), (key,)) for key in params}
    signature = inspect.signature(function)
    call = signature.bind_partial()
    call.arguments = {key: leaves[key] for key in signature.parameters}
    try:
        return function(*call.args, **call.kwargs)
    except RedfuserError:
        raise
    except Exception as error:
        raise OperatorError(
            f"operator {name}", f"its function raised {type(error).__name__}: {error}",
            "inside an operator use the functions of redfuser_algebra (ra.sum, ra.exp, …) over axes by name, or "
            "hand a function written with NumPy to ra.trace") from error


def _unpacked(name: str, result: object) -> tuple[tuple[Expr, ...], Structure]:
    if isinstance(result, Expr):
        return (result,), "single"
    structure = tuple(result) if isinstance(result, dict) else "tuple"
    values = tuple(result.values()) if isinstance(result, dict) else result
    if not isinstance(values, tuple | list) or not values:
        _refuse_result(name, result)
    for value in values:
        if not isinstance(value, Expr):
            _refuse_result(name, value)
    return tuple(values), structure


def _refuse_result(name: str, value: object) -> None:
    raise OperatorError(f"operator {name}", f"its function returned {type(value).__name__} {value!r:.60}",
                        "return an expression, a tuple of expressions, or a dict from names to expressions")


def _check_names(operator: str, inputs: Mapping, params: Mapping) -> None:
    axes = dict.fromkeys(axis for own in inputs.values() for axis in own)
    for kind, names in (("operator", [operator]), ("input", inputs), ("parameter", params), ("axis", axes)):
        for name in names:
            if not is_name(name):
                raise OperatorError(f"operator {operator} with the {kind} {name!r}", "that is not a name",
                                    "use letters, digits and _, and no Python keyword; separate axes by spaces")
    for name in (*inputs, *params):
        if name in axes or name in inputs and name in params:
            raise OperatorError(f"operator {operator} with the name {name}", "it names two different things",
                                "rename the axis, the input or the parameter")
    for axis in axes:
        if copied_axis(axis) != axis:
            raise OperatorError(f"operator {operator} with the axis {axis!r}",
                                "a name with __ in it stands for a copy of an axis", "use a single _")
    for name, own in inputs.items():
        if len(set(own)) < len(own):
            raise OperatorError(f"operator {operator} with {name}[{', '.join(own)}]", "an axis is repeated in one input",
                                "give each dimension its own axis and join them with ra.take or a mask")


def is_name(name: object) -> bool:
    """Whether formulas can speak of something under this name."""
    return (isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
            and unicodedata.normalize("NFKC", name) == name and name != "inf" and name != "nan")


def _check_copies(operator: str, inputs: Mapping, again: Mapping[str, str]) -> None:
    for name, source in again.items():
        if source not in inputs or source in again or len(inputs[source]) != len(inputs[name]):
            raise OperatorError(f"operator {operator} with {name} = {source!r}", f"{source} is no input of its own with as many axes as {name}",
                                "name an input that has no default")


def _check_leaves(operator: str, inputs: Mapping, params: Mapping, roots: tuple[Expr, ...]) -> None:
    if unbound := unbound_states(*roots):
        raise OperatorError(f"operator {operator}", f"it uses {unbound.pop()!r}, a state, outside of its scan",
                            "use states in the step of their scan alone, and what the scan returns elsewhere")
    terms = subterms(*roots)
    axes = {axis for own in inputs.values() for axis in own} | {term.attrs[2] for term in terms if term.op == "reduce"}
    for term in terms:
        known = {"input": term.op == "input" and inputs.get(term.name) == term.axes,
                 "param": term.op == "param" and term.name in params, "symbol": False,
                 "index": set(term.attrs) <= axes, "size": set(term.attrs) <= axes,
                 "scan": term.op == "scan" and term.axis in axes}.get(term.op, True)
        if not known:
            raise OperatorError(f"operator {operator}", f"it uses {term!r}, which its signature does not declare",
                                "declare every array and scalar as a parameter, and every axis in some array's annotation")


def _tops(outputs: tuple[Expr, ...]) -> dict[str, Expr]:
    """The axes that topk makes, with their lengths."""
    return {term.attrs[2]: term.count for term in subterms(*outputs) if term.op == "reduce" and term.attrs[2]}


def _check_tops(operator: str, outputs: tuple[Expr, ...]) -> None:
    lengths = _tops(outputs)
    for term in subterms(*outputs):
        if term.op == "reduce" and term.attrs[2]:
            if not is_name(term.attrs[2]):
                raise OperatorError(f'operator {operator} with topk(…, name="{term.attrs[2]}")', "that is not a name",
                                    "use letters, digits and _, and no Python keyword")
            if term.count is not lengths[term.attrs[2]]:
                raise OperatorError(f"operator {operator}", f"two topk reductions of different k make the axis {term.attrs[2]}",
                                    'give each its own axis: ra.topk(x, "l", k, name="best")')


def _ordered(operator: str, output_axes: tuple[tuple[str, ...], ...], order: str | None) -> tuple[tuple, tuple]:
    """The axes of each output in the order asked for, and where its dimensions of length one are, from the end."""
    if order is None:
        return output_axes, ((),) * len(output_axes)
    asked = [part.split() for part in order.split(",")]
    named = tuple(tuple(axis for axis in part if axis != ONE) for part in asked)
    if list(map(sorted, named)) != list(map(sorted, output_axes)):
        have = ", ".join(" ".join(axes) for axes in output_axes)
        raise OperatorError(f'operator {operator} with the result "{order}"', f'its outputs have the axes "{have}"',
                            "list the axes of each output once, in the order you want; a comma separates outputs")
    return named, tuple(tuple(place - len(part) for place, axis in enumerate(part) if axis == ONE) for part in asked)


def _with_ones(axes: tuple[str, ...], kept: tuple[int, ...]) -> tuple[str, ...]:
    rest, whole = iter(axes), len(axes) + len(kept)
    return tuple(ONE if place - whole in kept else next(rest) for place in range(whole))
