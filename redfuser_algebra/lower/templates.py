"""Generated source, written as it will read.

In: a template, and lines for its holes.  Out: lines of source.
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import dedent

_HOLE = re.compile(r"( *)<(\w+)>")


def filled(template: str, **pieces: Iterable[str]) -> list[str]:
    """The lines of a template; one that is <name> alone stands for the lines of that piece, as far in as it is."""
    lines = []
    for line in dedent(template).strip("\n").split("\n"):
        hole = _HOLE.fullmatch(line)
        lines += [line] if hole is None else [each and hole[1] + each for each in pieces[hole[2]]]
    return lines
