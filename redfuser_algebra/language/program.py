"""A text of formulas taken apart: definitions `name = formula`, side conditions, and the result.

In: text, one definition per line or with `;` between them.  Out: syntax trees in a `Program`, which knows how to
point at a place in the text.  Nothing is executed.
"""
from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from redfuser_algebra.language.errors import OperatorError

PRIME = "ʹ"
"""A letter as wide as an apostrophe: it stands for the prime of a symbol such as m' while Python reads the text."""
NUMBERS = {"inf": float("inf"), "nan": float("nan")}
NUMPY = ("np", "numpy")
"""What may stand before the name of a function or a number, and a dot: the name means what it means alone."""


@dataclass(frozen=True)
class Program:
    """Definitions in order, side conditions, the result, and the lines for error excerpts."""

    lines: list[str]
    definitions: dict[str, ast.expr]
    assume: list[ast.expr]
    result: ast.expr

    def error(self, node: ast.AST, failed: str, remedy: str) -> OperatorError:
        """An error that points at a place in the text."""
        return _error(self.lines, node.lineno, _column(self.lines, node), failed, remedy)


def read_program(text: str, symbols: Collection[str] = ()) -> Program:
    """The parts of a text.  Raises OperatorError for anything that is not a definition or a result."""
    if not isinstance(text, str):
        raise OperatorError("a formula", f"{type(text).__name__} {text!r:.40} is not text", "write it as a string")
    source = re.sub(r"([^\W\d]\w*)('+)", lambda match: _primed(match, symbols), textwrap.dedent(text).strip())
    lines = source.splitlines() or [""]
    definitions, assume, results = {}, [], []
    for statement in _statements(lines):
        if results:
            raise _error(lines, statement.lineno, 0, "something follows the result", "put the result last")
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in definitions or len(statement.targets) > 1:
                raise _error(lines, statement.lineno, 0, f"{name} is defined twice", "give every definition its own name")
            definitions[name] = statement.value
        elif _is_assume(statement):
            assume += statement.value.args
        elif isinstance(statement, ast.Expr | ast.Return) and statement.value is not None:
            results.append(statement.value)
        else:
            raise _error(lines, statement.lineno, 0, f"{ast.unparse(statement):.40} is not a formula",
                         "write definitions `name = formula` and then the result")
    if not results:
        raise _error(lines, len(lines), 0, "there is no result", "end with a formula, or `return a, b`")
    return Program(lines, definitions, assume, results[0])


def _primed(match: re.Match, symbols: Collection[str]) -> str:
    return match[1] + PRIME * len(match[2]) if match[0] in symbols else match[0]


def _statements(lines: list[str]) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _unprefixed(ast.parse("\n".join(lines))).body
    except SyntaxError as error:
        line = min(max(error.lineno or 1, 1), len(lines))
        raise _error(lines, line, max((error.offset or 1) - 1, 0), error.msg, "check brackets and operators") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise OperatorError("a formula", f"it cannot be read: {error or type(error).__name__}",
                            "split it into definitions `name = formula`") from None


def _unprefixed(tree: ast.Module) -> ast.Module:
    """`np.exp(x)` as `exp(x)` and `np.inf` as `inf`, at the same places."""
    for node in ast.walk(tree):
        for field, child in ast.iter_fields(node):
            found = [_alone(each, field) for each in child] if isinstance(child, list) else _alone(child, field)
            setattr(node, field, found)
    return tree


def _alone(node: object, field: str) -> object:
    prefixed = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NUMPY
    if not prefixed or field != "func" and node.attr not in NUMBERS:
        return node
    return ast.copy_location(ast.Name(node.attr, ast.Load()), node)


def _is_assume(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and getattr(value.func, "id", "") == "assume"


def _column(lines: list[str], node: ast.AST) -> int:
    """The column in characters; Python counts bytes."""
    return len(lines[node.lineno - 1].encode()[:node.col_offset].decode(errors="ignore"))


def _error(lines: list[str], line: int, column: int, failed: str, remedy: str) -> OperatorError:
    place = f"column {column + 1}" if len(lines) == 1 else f"line {line}, column {column + 1}"
    start = max(0, column - 60)
    shown = lines[line - 1][start:start + 100].replace(PRIME, "'")
    excerpt = f"    {shown}\n    {' ' * (column - start)}^"
    return OperatorError(f"a formula at {place}", failed, remedy, excerpt)


def names_in(node: ast.expr) -> Iterator[str]:
    """The names that a syntax tree uses as values or axes, not as functions."""
    called = {id(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in called)


def cycle(definitions: Mapping[str, ast.expr], start: str) -> list[str]:
    """A way from a definition back to itself, or nothing."""
    paths, seen = [[start]], set()
    while paths:
        path = paths.pop()
        for name in names_in(definitions[path[-1]]):
            if name == start:
                return [*path, start]
            if name in definitions and name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []
