"""Names of an operator's own in printed source: as the operator has them, unless the source uses them for something else.

While source is printed they stand between marks, which no other name has.  When it is whole the marks are taken off.
"""
from __future__ import annotations

import re
import symtable
from collections.abc import Iterable

MARK = "ˑ"

_STRINGS = re.compile(r'"""[\s\S]*?"""|"[^"\n]*"|\'[^\'\n]*\'')


def marked(name: str) -> str:
    """A name while source is printed; what is put before or behind it stays apart from it."""
    return f"{MARK}{name}{MARK}"


def unmarked(source: str, reserved: Iterable[str] | None = None) -> str:
    """Source without marks; a name that is `reserved` (by default all that stand there without a mark) gets a _ behind it."""
    words = dict.fromkeys(re.findall(r"(?<![\w.])\w+", _STRINGS.sub("", source)))
    taken, names = {word for word in words if MARK not in word} if reserved is None else set(reserved), {}
    for word in words:
        if MARK in word:
            name = word.replace(MARK, "")
            while name in taken:
                name += "_"
            taken.add(name)
            names[word] = name
    return re.sub(r"\w+", lambda found: names.get(found[0], found[0].replace(MARK, "")), source)


def taken_from_outside(source: str) -> set[str]:
    """The names that functions take from their module or from Python."""
    found, todo = set[str](), [symtable.symtable(source, "printed", "exec")]
    while todo:
        table = todo.pop()
        found |= {each.get_name() for each in table.get_symbols() if each.is_global()} if table.get_type() == "function" else set()
        todo += table.get_children()
    return found
