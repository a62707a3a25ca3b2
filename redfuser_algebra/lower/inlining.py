"""Printed functions as one would write them: a temporary that is read once stands where it is read.

In: the text of definitions whose temporaries are called t1, t2, ….  Out: text that computes the same in the same order.
"""
from __future__ import annotations

import ast
import re
from collections import Counter

from redfuser_algebra.lower.marks import MARK

WIDEST = 120
"""Characters of a line beyond which temporaries stay."""

_TEMPORARY = re.compile(r"t\d+|both\d+")


def inlined(text: str) -> str:
    """The definitions without temporaries that only one statement of the same block reads."""
    tree = ast.parse(text)
    for function in tree.body:
        while _shortened(function):
            pass
    return "\n".join(map(_bare, ast.unparse(tree).splitlines()))


def _bare(line: str) -> str:
    """A line without the brackets that Python puts round the numbers which a statement lists."""
    found = re.fullmatch(r"(\s*(?:return|[^=(]+ =) )\((.*)\)", line)
    bare = found and f"{found[1]}{found[2]}"
    try:
        return bare if bare and ast.dump(ast.parse(bare.strip())) == ast.dump(ast.parse(line.strip())) else line
    except SyntaxError:
        return line


def _shortened(function: ast.stmt) -> bool:
    """Whether a temporary of a function was put where it is read."""
    reads = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    writes = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    for owner in ast.walk(function):
        for block in (getattr(owner, "body", None), getattr(owner, "orelse", None)):
            for place, statement in enumerate(block if isinstance(block, list) else []):
                name = _temporary(statement)
                if name and reads[name] == writes[name] == 1 and _put(name, statement.value, block, place, 4 + owner.col_offset):
                    return True
    return False


def _temporary(statement: ast.stmt) -> str:
    """The temporary that a statement gives a value; "" for other statements."""
    single = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    return statement.targets[0].id if single and _TEMPORARY.fullmatch(statement.targets[0].id) else ""


def _put(name: str, value: ast.expr, block: list[ast.stmt], place: int, indent: int) -> bool:
    """Put a value where its name is read, if that is further on in the block and nothing that it is made of changes before."""
    needed = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    for later, statement in enumerate(block[place + 1:], place + 1):
        if name in (node.id for node in ast.walk(statement) if isinstance(node, ast.Name)):
            changed = None if isinstance(statement, ast.For | ast.While | ast.If) else _Put(name, value).visit(ast.parse(ast.unparse(statement)).body[0])
            if changed is None or _called_under_condition(changed, value) or indent + len(ast.unparse(changed).replace(MARK, "")) > WIDEST:
                return False
            block[later] = changed
            del block[place]
            return True
        if needed & _changed(statement):
            return False
    return False


class _Put(ast.NodeTransformer):
    """An expression in place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node


def _changed(statement: ast.stmt) -> set[str]:
    """The names whose values, or whose elements, a statement may change."""
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found |= {node.value.id for node in ast.walk(statement) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)}
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Expr)]
    return found | {node.id for call in calls for node in ast.walk(call) if isinstance(node, ast.Name)}


def _called_under_condition(statement: ast.stmt, value: ast.expr) -> bool:
    """Whether a value with calls would be computed for some threads alone."""
    called = any(isinstance(node, ast.Call) for node in ast.walk(value))
    branches = [branch for node in ast.walk(statement) if isinstance(node, ast.IfExp) for branch in (node.body, node.orelse)]
    return called and any(node is value for branch in branches for node in ast.walk(branch))
