"""Operators read from text: a formula in one line, definitions before a result, or what `str(operator)` prints.

In: text.  Out: an `Operator`; `parse_operator(str(op)) == op`.
"""
from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.formula import Reader, SCANS, is_reduction, parse, word
from redfuser_algebra.language.operator import Operator, Scalar, define
from redfuser_algebra.language.program import NUMBERS, Program, names_in, read_program

HEADER = re.compile(r"\s*([^\W\d]\w*)\s*\(([^()]*)\)\s*(?:->\s*([^:\n]*?)\s*)?:(.*)", re.DOTALL)
ITEM = re.compile(r"\s*([^\W\d]\w*)\s*(?:\[([^\]]*)\])?(?:\s*=\s*([^,;\s]+))?\s*(?:[,;]|$)")

Inputs = dict[str, tuple[str, ...]]
Params = dict[str, Scalar | None]


def parse_operator(text: str, name: str = "formula") -> Operator:
    """The operator that a text describes, in one of three spellings.

    - `softmax(x[l]; t=1.0): …` declares inputs with their axes and scalar parameters, as `str(operator)` prints them.
    - Without that, if some name carries subscripts (`x[b, l]`), those names are inputs and the other names scalars.
    - If no name does, a name gets the axes of every reduction around any of its uses, outermost first, through
      definitions as well; a name that is never inside a reduction is a scalar.

    Definitions `name = formula`, one per line or with `;` between them, come before the result, which is a formula
    or `return a, b` or `return {"a": a, "b": b}`.  Raises OperatorError with the place in the text.

    >>> parse_operator("sum(exp(x - max(x, l)), l)").inputs
    {'x': ('l',)}
    """
    header = HEADER.fullmatch(text) if isinstance(text, str) else None
    program = read_program(header[4] if header else text)
    inputs, params, again = _declared(header[2]) if header else (*_inferred(program), {})
    reader = Reader(program, inputs, params, {})
    assume = tuple(map(reader.read, program.assume))
    return define(header[1] if header else name, inputs, params, _result(program, reader), assume,
                  order=header[3] if header else None, again=again)


def _declared(text: str) -> tuple[Inputs, Params, dict[str, str]]:
    inputs, params, again, place = {}, {}, {}, 0
    while text[place:].strip():
        item = ITEM.match(text, place)
        if item is None or item[1] in inputs or item[1] in params:
            raise OperatorError(f"the signature ({text})", f"{text[place:].strip()!r:.40} cannot be read here",
                                "list each input with its axes and then each scalar: (Q[m, k], K[l, k]; scale=1.0)")
        if item[2] is not None:
            inputs[item[1]] = tuple(item[2].replace(",", " ").split())
            again |= {} if item[3] is None else {item[1]: item[3]}
        else:
            params[item[1]] = None if item[3] is None else _default(item[1], item[3])
        place = item.end()
    return inputs, params, again


def _default(name: str, text: str) -> Scalar:
    value = parse(text, {}, ())
    if value.op != "const":
        raise OperatorError(f"the default {name}={text}", "it is not a number", "write a number")
    return value.value


def _result(program: Program, reader: Reader) -> Expr | tuple | dict:
    node = program.result
    if isinstance(node, ast.Tuple):
        return tuple(map(reader.read, node.elts))
    if not isinstance(node, ast.Dict):
        return reader.read(node)
    keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
    if [key for key in keys if not isinstance(key, str)] or len(set(keys)) < len(keys):
        raise program.error(node, "the results are not named by different strings", 'write return {"a": a, "b": b}')
    return dict(zip(keys, map(reader.read, node.values), strict=True))


def _inferred(program: Program) -> tuple[Inputs, Params]:
    roots = [*program.definitions.values(), *program.assume, program.result]
    names = dict.fromkeys(name for root in roots for name in _free_names(root, program.definitions))
    subscripts = _subscripts(roots)
    axes = subscripts or _enclosing_axes(program, roots)
    inputs = {name: axes[name] for name in names if axes.get(name) or name in subscripts}
    return inputs, {name: None for name in names if name not in inputs}


def _free_names(root: ast.expr, definitions: Mapping[str, ast.expr]) -> Iterator[str]:
    """Names used as values, in the order of the text: not axes, functions, numbers or definitions."""
    for node, _ in _values(root, ()):
        name = node.value.id if isinstance(node, ast.Subscript) else node.id
        if name not in definitions and name not in NUMBERS:
            yield name


def _subscripts(roots: list[ast.expr]) -> Inputs:
    """The axes of names that carry subscripts, as first written."""
    found: Inputs = {}
    for root in roots:
        for node, _ in _values(root, ()):
            if isinstance(node, ast.Subscript):
                found.setdefault(node.value.id, tuple(_axes(node.slice)))
    return found


def _enclosing_axes(program: Program, roots: list[ast.expr]) -> Inputs:
    found: dict[str, dict[str, None]] = {}
    pending, seen = [(root, ()) for root in roots], set()
    while pending:
        root, outer = pending.pop(0)
        for node, axes in _values(root, outer):
            if node.id not in program.definitions:
                found.setdefault(node.id, {}).update(dict.fromkeys(axes))
            elif (node.id, axes) not in seen:
                seen.add((node.id, axes))
                pending.append((program.definitions[node.id], axes))
    return {name: tuple(axes) for name, axes in found.items()}


def _values(node: ast.AST, axes: tuple[str, ...]) -> Iterator[tuple[ast.Name | ast.Subscript, tuple[str, ...]]]:
    """The names and subscripted names that a syntax tree uses as values, each with the axes reduced around it."""
    if isinstance(node, ast.Name) or isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield node, axes
    elif isinstance(node, ast.Call):
        yield from _values_of_call(node, axes)
    elif isinstance(node, ast.Lambda):
        states = {argument.arg for argument in node.args.args}
        yield from (value for value in _values(node.body, axes) if getattr(value[0], "id", "") not in states)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _values(child, axes)


def _values_of_call(node: ast.Call, axes: tuple[str, ...]) -> Iterator:
    name = getattr(node.func, "id", "")
    given = _arguments(name, node)
    inner = axes
    if is_reduction(name) or name in SCANS:
        unnamed = ["top"] if "topk" in name else [f"sorted_{axis}" for axis in _axes(given.get("axis"))] if "sort" in name else []
        made = _axes(given["name"]) if "name" in given else unnamed
        reduced = [axis for axis in _axes(given.get("axis")) if axis not in axes]
        inner = (*(axis for axis in axes if axis not in made), *reduced)
    for key, value in given.items():
        if key not in ("axis", "name", "dtype", "reassociate", "monoid", "every", "place"):
            yield from _values(value, inner if key in ("expr", "where", "mask", "step") else () if key == "k" else axes)


def _arguments(name: str, node: ast.Call) -> dict[str, ast.expr]:
    """The operands of a call by parameter name; a call that makes no sense is left to the reader to refuse."""
    keywords = {each.arg: each.value for each in node.keywords if each.arg}
    called = word(name)
    if called is not None:
        try:
            return dict(inspect.signature(called).bind(*node.args, **keywords).arguments)
        except TypeError:
            pass
    return {str(place): value for place, value in enumerate(node.args)} | keywords


def _axes(node: ast.expr | None) -> list[str]:
    if node is None:
        return []
    words = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [*names_in(node), *" ".join(words).split()]
