"""The pieces that exported files are put together from: what a module needs of another, its imports, its header.

In: sources of modules.  Out: text.
"""
from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from redfuser_algebra.discover.show import WIDTH, summary
from redfuser_algebra.language.operator import Operator

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm


def reachable(source: str, wanted: Iterable[str], **constants: str) -> str:
    """The constants and definitions of a module that something wanted needs, in their order."""
    lines, nodes = source.splitlines(), ast.parse(source).body
    defined = {name: node for node in nodes for name in defined_by(node)}
    todo, needed = [name for name in wanted if name in defined], set()
    while todo:
        node = defined[todo.pop()]
        if node not in needed:
            needed.add(node)
            todo += [name for name in _names(node) if name in defined]
    kept = []
    for node in nodes:
        if node in needed:
            name = next(iter(defined_by(node)), "")
            text = f"{name} = {constants[name]}" if name in constants else segment(lines, node)
            tight = kept and not isinstance(node, ast.FunctionDef) and kept[-1][0] is type(node)
            kept.append((type(node), ("\n" if tight else "\n\n\n") + text))
    return "".join(text for _, text in kept).strip("\n")


def defined_by(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def segment(lines: list[str], node: ast.stmt) -> str:
    """The text of a statement with its decorators."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return "\n".join(lines[first - 1:node.end_lineno])


def names_in(source: str) -> list[str]:
    """The names that a source reads or writes."""
    return sorted(_names(ast.parse(textwrap.dedent(source))))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def body_of(module: object) -> str:
    """A module without its docstring and imports."""
    source = inspect.getsource(module)
    nodes = [node for node in ast.parse(source).body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n\n\n" + "\n\n\n".join(segment(source.splitlines(), node) for node in nodes)


def imports_of(kernel: str, used: list[str], tools: Iterable[object], more: str) -> str:
    """The imports of the printed kernel and of the tools that define a name in use: of Python itself first, then of others."""
    known = {}
    for source in (kernel, *map(inspect.getsource, tools), more):
        for node in ast.parse(source).body:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else []:
                known[alias.asname or alias.name] = (getattr(node, "module", None), alias.name, alias.asname)
    wanted = sorted({known[name] for name in used if name in known}, key=lambda each: (each[0] or "", each[1]))
    lines: dict[str, list[str]] = {}
    for module, name, renamed in wanted:
        written = f"{name} as {renamed}" if renamed else name
        lines.setdefault(f"from {module} import " if module else f"import {written}", []).extend([written] if module else [])
    blocks: tuple[list[str], list[str]] = ([], [])
    for start, names in lines.items():
        blocks[start.split()[1].partition(".")[0] not in sys.stdlib_module_names].append(start + ", ".join(names))
    return "\n\n".join("\n".join(block) for block in blocks)


def header(operator: Operator, form: FusedForm, certificate: str, closing: list[str]) -> str:
    """The docstring of a file: the operator, its rules, what they rest on, and lines that close it."""
    dangers = list(dict.fromkeys(map(str, form.dangers)))
    parts = [f"{operator.name}: {summary(form)}.", operator.doc, _listed("The operator", str(operator).splitlines()),
             _listed("One more element (a prime marks the new value)", form.update.splitlines()),
             _listed("Two states a and b", form.merge.splitlines()),
             _listed("Holds only where", list(map(str, form.assumptions))), _listed("Dangers", dangers),
             "\n".join([*textwrap.wrap(f"Laws: {', '.join(form.laws)}", WIDTH), f"Certificate: sha256 {certificate}", *closing,
                        "Written by `redfuser export`; changes are lost when it is written again."])]
    text = "\n\n".join(filter(None, parts))
    return ('r' if "\\" in text else "") + '"""' + text.replace('"""', "'''") + '\n"""'


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"    {line}" for line in lines)]) if lines else ""
