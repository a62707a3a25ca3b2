"""What a command line asks about: operators, options that several commands have, exit codes."""
from __future__ import annotations

import difflib
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import redfuser_algebra as ra
from redfuser_algebra.console import err
from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.python_file import operators_in

CODES = {"fusable": 0, "partly": 0, "not fusable": 1, "undecided": 3}
BAD_INPUT, FAILED, FAULT, STOPPED = 2, 4, 70, 130
SEVERITY = (0, 3, 1, FAULT)
"""Exit codes of several operators: the last of these that occurs is that of all."""


class Preference(StrEnum):
    """Which form to take where there are two."""

    centred = "centred"
    raw = "raw"


TARGET = typer.Argument(help="A name of the catalogue, a Python file with operators, or a formula in quotes.")
Target = Annotated[str, TARGET]
AxisOption = Annotated[str | None, typer.Option(help="The axis to fuse over; by default that of the deepest cascade.")]
PreferOption = Annotated[Preference, typer.Option(help="Keep sums about moving pivots, or raw sums.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]


def operators_of(target: str) -> tuple[ra.Operator, ...]:
    """What a command line means by TARGET.  Raises OperatorError."""
    if target in ra.operators:
        return (ra.operators[target],)
    if target.endswith(".py") or Path(target).is_file():
        return operators_in(Path(target))
    if target and Path(target).is_dir():
        raise OperatorError(f"the operators of {target!r}", "it is a folder", "name a Python file in it")
    if re.fullmatch(r"\w+", target):
        near = difflib.get_close_matches(target, ra.operators, 3)
        raise OperatorError(f"the operator {target!r}", "the catalogue has none of that name and there is no such file",
                            f"did you mean {' or '.join(near)}?" if near else "list the names with `redfuser catalogue`")
    return (ra.parse_operator(target),)


def operator_of(target: str, asked: str) -> ra.Operator:
    """The one operator that a command line means.  Raises OperatorError."""
    operator, *others = operators_of(target)
    if others:
        raise several(asked, (operator, *others))
    return operator


def several(asked: str, operators: tuple[ra.Operator, ...]) -> OperatorError:
    """The error where one operator is wanted and a file holds more."""
    return OperatorError(asked, f"it holds {len(operators)} operators: {', '.join(each.name for each in operators)}",
                         "name one of the catalogue, or give a file with one")


def complain(error: RedfuserError) -> None:
    """One message in three parts."""
    err.print(Text("redfuser: ", style="bold red") + Text(str(error)))
