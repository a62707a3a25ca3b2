"""Lines of a function: assignments in order, terms that occur twice by a name, and nothing wider than a line.

In: names and expressions.  Out: lines of Python.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from redfuser_algebra.language.expr import LEAVES, Expr, subterms
from redfuser_algebra.prove.export.naming import Names, local_stem, tags
from redfuser_algebra.prove.export.numpy_text import NumpyText, readable

WIDTH = 118
SHORT = 12
"""A term that is no longer than this when it is written out gets no name of its own."""

INDENT = "    "


class Block:
    """The body of a function while it is written."""

    def __init__(self, printer: NumpyText, taken: Iterable[str], as_written: bool = False) -> None:
        self.printer, self.names, self.lines = printer, Names(taken), []
        self._read = (lambda expr: expr) if as_written else readable
        self._uses: Counter[Expr] = Counter()

    def expect(self, *roots: Expr) -> None:
        """Count what will be written, so that what occurs twice gets a name."""
        roots = tuple(map(self._read, roots))
        self._uses += Counter(arg for term in subterms(*roots) for arg in term.args) + Counter(roots)

    def text(self, expr: Expr, also_whole: bool = False) -> str:
        """A formula, after lines for the terms in it that deserve a name (the whole of it, too, where that is asked for)."""
        expr = self._read(expr)
        for term in subterms(expr):
            if (also_whole or term is not expr) and term not in self.printer.names and self._uses[term] > 1 and term.op not in (*LEAVES, "anchor"):
                written = self.printer.text(term)
                if len(written) > SHORT and not _needs_more(term, self.printer):
                    name = self.names.fresh(local_stem(term, self.printer.plan.axis), tags(term))
                    self.assign(name, written)
                    self.printer.names[term] = name
        return self.printer.text(expr)

    def define(self, name: str, expr: Expr, note: str = "") -> None:
        """A line `name = formula`; from there on the formula is called that."""
        self.assign(name, self.text(expr), note)
        self.printer.names[self._read(expr)] = name

    def assign(self, name: str, text: str, note: str = "") -> None:
        """A line with text that is already written."""
        self.lines += wrapped(f"{INDENT}{name} = ", text, note)


def _needs_more(term: Expr, printer: NumpyText) -> bool:
    """Whether a term has no value of its own here."""
    return any(part.op == "symbol" and part.name not in printer.symbols for part in subterms(term))


def wrapped(head: str, text: str, note: str = "") -> list[str]:
    """`head` and `text` as one line, or as several in parentheses; the note is a comment."""
    indent = head[: len(head) - len(head.lstrip())]
    comment = f"  # {note}" if note else ""
    if len(head) + len(text) + len(comment) <= WIDTH:
        return [head + text + comment]
    said = [f"{indent}# {note}"] if note else []
    if len(head) + len(text) <= WIDTH:
        return [*said, head + text]
    if text[0] == "[" and _closes_last(text):
        inside = [line for part in _at_commas(text[1:-1]) for line in entry(wrapped(indent + INDENT, part))]
        flat = _filled(indent + INDENT, text[1:-1] + ",")
        return [*said, f"{head}[", *(flat if len(flat) < len(inside) else inside), f"{indent}]"]
    parts, call = _at_commas(text), re.fullmatch(r"([\w.]+)\((.*)\)", text)
    if len(parts) > 1:
        inside = [line for part in parts for line in entry(wrapped(indent + INDENT, part))]
        return [*said, f"{head}(", *inside, f"{indent})"]
    if call and _closes_last(text):
        summand, generated, over = call[2].rpartition(" for ")
        if generated and _depths(summand)[-1] == 0:
            return [*said, f"{head}{call[1]}(", *_filled(indent + INDENT, summand), f"{indent}{INDENT}for {over}", f"{indent})"]
        inside = [line for part in _at_commas(call[2]) for line in entry(wrapped(indent + INDENT, part))]
        return [*said, f"{head}{call[1]}(", *inside, f"{indent})"]
    return [*said, f"{head}(", *_filled(indent + INDENT, text), f"{indent})"]


def entry(lines: list[str]) -> list[str]:
    """Lines of one entry of a list."""
    return [*lines[:-1], lines[-1] + ","]


def _filled(indent: str, text: str) -> list[str]:
    lines = []
    while len(indent) + len(text) > WIDTH:
        cut = _cut(text, WIDTH - len(indent))
        lines.append((indent + text[:cut]).rstrip())
        text = text[cut:].lstrip()
    return [*lines, indent + text]


def _depths(text: str) -> list[int]:
    """How many brackets are open after each letter."""
    depth, found = 0, []
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        found.append(depth)
    return found


def _at_commas(text: str) -> list[str]:
    """What stands between the outermost commas."""
    depths, parts, start = _depths(text), [], 0
    for at, letter in enumerate(text):
        if letter == "," and depths[at] == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def _closes_last(text: str) -> bool:
    """Whether the first bracket of a text is closed by its last letter."""
    depths = _depths(text)
    return 0 not in depths[min(text.find("(") % (len(text) + 1), text.find("[") % (len(text) + 1)):-1]


def _cut(text: str, room: int) -> int:
    """Where to break a formula: before an operator, in as few brackets as possible, then as late as possible."""
    depths = _depths(text)
    signs = [(depths[at], at + 1) for at in range(room) if re.match(r" [-+*/&|] ", text[at: at + 3]) or text[at - 1: at + 1] == ", "]
    late = [place for place in signs if place[1] > room // 3] or signs
    return min(late, key=lambda place: (place[0], -place[1]))[1] if late else text.rindex(" ", 0, room) + 1
