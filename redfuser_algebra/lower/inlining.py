"""Printed functions as one would write them: a temporary that is read once stands where it is read.

In: the text of definitions whose temporaries are called t1, t2, ….  Out: text that computes the same in the same order.
"""
from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from redfuser_algebra.lower.marks import MARK

WIDEST = 120
"""Characters of a line beyond which temporaries stay."""

_TEMPORARY = re.compile(r"t\d+|both\d+")


def inlined(text: str) -> str:
    """The definitions without temporaries that only one statement of the same block reads."""
    tree = ast.parse(text)
    for function in tree.body:
        _shorten(function)
    return "\n".join(map(_bare, ast.unparse(tree).splitlines()))


def _bare(line: str) -> str:
    """A line without the brackets that Python puts round the numbers which a statement lists."""
    found = re.fullmatch(r"(\s*(?:return|[^=(]+ =) )\((.*)\)", line)
    bare = found and f"{found[1]}{found[2]}"
    try:
        return bare if bare and ast.dump(ast.parse(bare.strip())) == ast.dump(ast.parse(line.strip())) else line
    except SyntaxError:
        return line


def _shorten(function: ast.stmt) -> None:
    """Put temporaries of a function where they are read, until there is none that can be."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    reads, writes = (Counter(node.id for node in names if isinstance(node.ctx, context)) for context in (ast.Load, ast.Store))
    once = {name for name in reads if reads[name] == writes[name] == 1 and _TEMPORARY.fullmatch(name)}
    blocks = [(block, 4 + owner.col_offset) for owner in ast.walk(function) for block in (getattr(owner, "body", None), getattr(owner, "orelse", None))
              if isinstance(block, list)]
    known: dict[ast.stmt, _Names] = {}
    while any(_put(statement, block, place, indent, known) for block, indent in blocks for place, statement in enumerate(block)
              if _given(statement) in once):
        pass


def _given(statement: ast.stmt) -> str:
    """The single name that a statement gives a value; "" for other statements."""
    single = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    return statement.targets[0].id if single else ""


@dataclass(frozen=True)
class _Names:
    """The names in a statement, and those whose values, or whose elements, it may change."""

    met: frozenset[str]
    changed: frozenset[str]

    @classmethod
    def of(cls, statement: ast.stmt) -> _Names:
        nodes = [*ast.walk(statement)]
        changed = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        changed |= {node.value.id for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)}
        changed |= {node.id for call in nodes if isinstance(call, ast.Expr) for node in ast.walk(call) if isinstance(node, ast.Name)}
        return cls(frozenset(node.id for node in nodes if isinstance(node, ast.Name)), frozenset(changed))


def _put(given: ast.Assign, block: list[ast.stmt], place: int, indent: int, known: dict[ast.stmt, _Names]) -> bool:
    """Put a value where its name is read, if that is further on in the block and nothing that it is made of changes before.

    Of a statement with blocks, what is `known` may name temporaries that are gone: nobody asks for those.
    """
    name, value = _given(given), given.value
    needed = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    for later, statement in enumerate(block[place + 1:], place + 1):
        if statement not in known:
            known[statement] = _Names.of(statement)
        if name in known[statement].met:
            if isinstance(statement, ast.For | ast.While | ast.If) or not _takes(statement, name, value, WIDEST - indent):
                return False
            del block[place], known[statement]
            return True
        if needed & known[statement].changed:
            return False
    return False


def _takes(statement: ast.stmt, name: str, value: ast.expr, width: int) -> bool:
    """Put a value in place of a name; not where the line would be too long, or a call stand under a condition."""
    fields, key = _place_of(statement, name)
    before, fields[key] = fields[key], value
    if _called_under_condition(statement, value) or len(ast.unparse(statement).replace(MARK, "")) > width:
        fields[key] = before
        return False
    return True


def _place_of(statement: ast.stmt, name: str) -> tuple[Any, Any]:
    """What holds the only mention of a name, and at which key."""
    held = ((fields, key, node) for owner in ast.walk(statement) for fields in (vars(owner), *filter(_is_list, vars(owner).values()))
            for key, node in (enumerate(fields) if _is_list(fields) else fields.items()))
    return next((fields, key) for fields, key, node in held if isinstance(node, ast.Name) and node.id == name)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _called_under_condition(statement: ast.stmt, value: ast.expr) -> bool:
    """Whether a value with calls would be computed for some threads alone."""
    if not any(isinstance(node, ast.Call) for node in ast.walk(value)):
        return False
    branches = [branch for node in ast.walk(statement) if isinstance(node, ast.IfExp) for branch in (node.body, node.orelse)]
    return any(node is value for branch in branches for node in ast.walk(branch))
