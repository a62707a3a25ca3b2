"""Formulas read from text, by a whitelist over Python's own syntax tree: nothing is ever executed.

In: text such as `sum(exp(x[l] - max(x[l], l)), l)`, or definitions `name = formula` before a result; `np.exp` is `exp`.
Out: expressions.
"""
from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language import functions, recurrence
from redfuser_algebra.language.binding import suggestion
from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.language.program import NUMBERS, PRIME, Program, cycle, read_program

OPERATORS = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power", ast.Mod: "mod",
    ast.FloorDiv: "floor_divide", ast.BitAnd: "logical_and", ast.BitOr: "logical_or", ast.And: "logical_and",
    ast.Or: "logical_or", ast.USub: "negative", ast.Invert: "logical_not", ast.Not: "logical_not", ast.Eq: "equal",
    ast.NotEq: "not_equal", ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
}
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "topk", "argtopk", "sort", "argsort", "quantile",
              "median", "count", "mean", "var", "std", "softmax", "logsumexp", "take")
SCANS = ("scan", "cumulative", "previous")
WORDS = {name: getattr(functions, name) for name in (
    *REDUCTIONS, "index", "size", "square", "sigmoid", "relu", "clip", "divide", "round", "cast")} | {
    name: getattr(recurrence, name) for name in SCANS}
"""Functions of the front door that are more than a row of FUNCTIONS."""


def parse(text: str, inputs: Mapping[str, tuple[str, ...]] | None = None, params: Collection[str] | None = None,
          symbols: Mapping[str, Expr] | None = None) -> Expr:
    """The expression that a formula describes; `parse(text(e)) is e`.

    `x[b, l]` is an input with its axes, and so is a bare name in `inputs`; other names are symbols or parameters.
    Where `inputs` or `params` are given, nothing else may be used.  Raises OperatorError with the column.
    """
    result = parse_all(text, inputs, params, symbols)
    if len(result) != 1:
        raise OperatorError(f"the formula {text!r:.60}", f"it lists {len(result)} results", "write one expression")
    return result[0]


def parse_all(text: str, inputs: Mapping[str, tuple[str, ...]] | None = None, params: Collection[str] | None = None,
              symbols: Mapping[str, Expr] | None = None) -> tuple[Expr, ...]:
    """The expressions of a list of formulas with commas between them."""
    program = read_program(text, symbols or {})
    reader = Reader(program, inputs, params, symbols or {})
    listed = program.result.elts if isinstance(program.result, ast.Tuple) else [program.result]
    return tuple(map(reader.read, listed))


class Reader:
    """Reads the syntax trees of one program; a definition is read where it stands."""

    def __init__(self, program: Program, inputs: Mapping[str, tuple[str, ...]] | None,
                 params: Collection[str] | None, symbols: Mapping[str, Expr]) -> None:
        self.program, self.inputs, self.params = program, inputs, params
        self.known = {name.replace("'", PRIME): symbol for name, symbol in symbols.items()}
        self.subscripts: dict[str, tuple[str, ...]] = dict(inputs or {})
        for name, node in program.definitions.items():
            if name in self.subscripts or name in (params or ()):
                raise program.error(node, f"{name} is already an input or a parameter", "give the definition another name")
            value = self.read(node)
            self.known[name] = value

    def read(self, node: ast.expr) -> Expr:
        """The expression of a syntax tree."""
        reading = getattr(self, f"_read_{type(node).__name__.lower()}", None)
        if reading is None:
            raise self.program.error(node, f"{ast.unparse(node):.40} has no meaning in a formula",
                                     "use numbers, names, operators, calls and subscripts such as x[b, l]")
        try:
            return reading(node)
        except RecursionError:
            raise OperatorError("a formula", "it is nested too deeply", "split it into definitions") from None
        except RedfuserError as error:
            if error.excerpt:
                raise
            place = self.program.error(node, error.failed, error.remedy)
            raise OperatorError(f"{error.asked}, in {place.asked}", error.failed, error.remedy, place.excerpt) from None

    def _read_constant(self, node: ast.Constant) -> Expr:
        if not isinstance(node.value, bool | int | float):
            raise self.program.error(node, f"{node.value!r:.40} is not a real number", "write a number, or name an input")
        return const(node.value)

    def _read_binop(self, node: ast.BinOp) -> Expr:
        return call(self._operator(node, node.op), self.read(node.left), self.read(node.right))

    def _read_boolop(self, node: ast.BoolOp) -> Expr:
        first, *rest = map(self.read, node.values)
        for value in rest:
            first = call(self._operator(node, node.op), first, value)
        return first

    def _read_unaryop(self, node: ast.UnaryOp) -> Expr:
        operand = self.read(node.operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        plain = isinstance(node.operand, ast.Constant | ast.Name) and operand.op == "const"
        if plain and isinstance(node.op, ast.USub) and not isinstance(operand.value, bool):
            return const(-operand.value)
        return call(self._operator(node, node.op), operand)

    def _read_compare(self, node: ast.Compare) -> Expr:
        if len(node.ops) > 1:
            raise self.program.error(node, "comparisons are chained", "write (a < b) & (b < c), with the brackets")
        return call(self._operator(node, node.ops[0]), self.read(node.left), self.read(node.comparators[0]))

    def _operator(self, node: ast.expr, operator: ast.AST) -> str:
        if type(operator) not in OPERATORS:
            matrix = isinstance(operator, ast.MatMult)
            raise self.program.error(node, f"the operator {type(operator).__name__} has no meaning here",
                                     "write a matrix product as sum(a * b, k)" if matrix else "use + - * / // % ** & | ~")
        return OPERATORS[type(operator)]

    def _read_name(self, node: ast.Name) -> Expr:
        name = node.id
        if name in self.known:
            return self.known[name]
        if name in self.program.definitions:
            raise self._too_early(node)
        if name in NUMBERS:
            return const(NUMBERS[name])
        if name in self.subscripts:
            return Expr("input", (), (name, self.subscripts[name]))
        if self.params is not None and name not in self.params:
            raise self.program.error(node, f"there is no {name.replace(PRIME, chr(39))}",
                                     suggestion(name, [*self.subscripts, *self.params, *self.known]))
        return Expr("param", (), (name,))

    def _too_early(self, node: ast.Name) -> OperatorError:
        circle = cycle(self.program.definitions, node.id)
        if circle:
            return self.program.error(node, f"the definitions go in a circle: {' → '.join(circle)}",
                                      "break the circle: a definition may use only earlier ones")
        return self.program.error(node, f"{node.id} is used before it is defined", "move its definition up")

    def _read_subscript(self, node: ast.Subscript) -> Expr:
        if not isinstance(node.value, ast.Name) or node.value.id in self.program.definitions:
            raise self.program.error(node, "only an input has subscripts", "name the axes where the input is used: x[b, l]")
        name, axes = node.value.id, tuple(self.axes(node.slice))
        if self.inputs is not None and name not in self.inputs:
            raise self.program.error(node, f"there is no input {name}", suggestion(name, self.inputs))
        if self.subscripts.setdefault(name, axes) != axes:
            raise self.program.error(node, f"{name} has the axes [{', '.join(self.subscripts[name])}] elsewhere",
                                     "an input has one list of axes")
        return Expr("input", (), (name, axes))

    def axes(self, node: ast.expr) -> list[str]:
        """The names that a list of axes consists of."""
        if isinstance(node, ast.Tuple):
            return [name for each in node.elts for name in self.axes(each)]
        return self._word(node).split()

    def _word(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self.program.error(node, "a name is needed here", "write the name of an axis, such as l")

    def _read_call(self, node: ast.Call) -> Expr:
        name = self._function(node)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.program.error(node, "a formula cannot spread arguments with **", "write them out")
        called = word(name)
        if called is None:
            return self._elementwise(node, name)
        try:
            given = inspect.signature(called).bind(*node.args, **{each.arg: each.value for each in node.keywords})
        except TypeError as error:
            raise self.program.error(node, f"{name}: {error}", f"write {_usage(name)}") from None
        return _value(called(**{key: self._argument(key, value) for key, value in given.arguments.items()}))

    def _elementwise(self, node: ast.Call, name: str) -> Expr:
        if len(node.args) != FUNCTIONS[name].arity or node.keywords:
            raise self.program.error(node, f"{name} does not take these operands",
                                     f"write {name}({', '.join('abc'[:FUNCTIONS[name].arity])})")
        return call(name, *map(self.read, node.args))

    def _function(self, node: ast.Call) -> str:
        known = [*WORDS, *MONOIDS, *FUNCTIONS]
        if isinstance(node.func, ast.Attribute):
            raise self.program.error(node, f"{ast.unparse(node.func)} is not a function of formulas",
                                     f"write {node.func.attr}(…)" if node.func.attr in known else "write its name alone")
        if not isinstance(node.func, ast.Name) or node.func.id not in known:
            name = ast.unparse(node.func)
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise self.program.error(node, f"there is no function {name}", f"did you mean {near[0]}?" if near
                                     else "use functions such as sum, max, topk, exp, where, index")
        return node.func.id

    def _argument(self, key: str, node: ast.expr) -> object:
        if key == "axis":
            return tuple(self.axes(node))
        if key in ("name", "dtype", "monoid", "every"):
            return self._word(node)
        if key == "step":
            return self._step(node)
        if key == "initial" and isinstance(node, ast.Tuple):
            return tuple(map(self.read, node.elts))
        if key == "place":
            return node.value if isinstance(node, ast.Constant) else self._word(node)
        if key == "reassociate":
            if not isinstance(node, ast.Constant) or not isinstance(node.value, bool):
                raise self.program.error(node, "reassociate is True or False", "write reassociate=True")
            return node.value
        return self.read(node)

    def _step(self, node: ast.expr) -> Callable[..., Expr | tuple[Expr, ...]]:
        """What a lambda makes of the states that are its parameters."""
        if not isinstance(node, ast.Lambda):
            raise self.program.error(node, "a step is a lambda of the states", "write scan(lambda h: a * h + x, l, 0)")
        names = [argument.arg for argument in node.args.args]

        def step(*states: Expr) -> tuple[Expr, ...]:
            around, self.known = self.known, self.known | dict(zip(names, states, strict=True))
            try:
                return tuple(map(self.read, node.body.elts if isinstance(node.body, ast.Tuple) else [node.body]))
            finally:
                self.known = around

        return recurrence.with_states(step, names)


def word(name: str) -> Callable[..., object] | None:
    """What a formula calls by this name: a function of the front door, or the reduction of any other monoid."""
    return WORDS.get(name) or (partial(functions.reduce, name) if name in MONOIDS else None)


def is_reduction(name: str) -> bool:
    """Whether a formula reduces by calling this name."""
    return name in REDUCTIONS or name in MONOIDS


def _value(result: Expr | functions.TopK) -> Expr:
    return result.values if isinstance(result, functions.TopK) else result


def _usage(name: str) -> str:
    parameters = [each.replace(annotation=inspect.Parameter.empty)
                  for each in inspect.signature(word(name)).parameters.values()]
    return f"{name}{inspect.Signature(parameters)}"
