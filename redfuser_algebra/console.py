"""What the command shows: lines and tables on standard output, progress and complaints on standard error.

Tables, bars and colour are for terminals; piped output is plain text.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from redfuser_algebra.discover.show import columns

out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)


def working(what: str) -> AbstractContextManager:
    """A line on the terminal while something is going on; nothing where nobody watches."""
    return err.status(what) if err.is_terminal else nullcontext()


class progress:
    """A bar on the terminal; entering it gives the function that is told (done, of how many)."""

    def __init__(self, what: str) -> None:
        self.bar = Progress(TextColumn(what), BarColumn(), TimeRemainingColumn(), console=err, transient=True,
                            disable=not err.is_terminal)

    def __enter__(self) -> Callable[[int, int], None]:
        self.bar.start()
        task = self.bar.add_task("")
        return lambda done, whole: self.bar.update(task, completed=done, total=whole)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def show(sections: Iterable[tuple[str, list[str]]]) -> None:
    """Titles, and below each its lines."""
    for title, lines in sections:
        out.print(Text(title, style="bold cyan"))
        show_lines(f"  {line}" for line in lines)
        out.print()


def show_lines(lines: Iterable[str]) -> None:
    """Lines as they are: square brackets are axes, not markup."""
    for line in lines:
        out.print(line, markup=False)


def show_table(head: list[str], rows: list[list[str]]) -> None:
    """A table on a terminal, aligned columns elsewhere."""
    if not out.is_terminal:
        return show_lines(columns([head, *rows]))
    return out.print(table_of(head, rows))


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table for terminals."""
    table = Table(*head, header_style="bold cyan")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_json(value: object) -> None:
    """Data as JSON on standard output."""
    out.print(json.dumps(value, indent=2, ensure_ascii=False), markup=False)
