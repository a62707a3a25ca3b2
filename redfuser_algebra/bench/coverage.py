"""What the catalogue comes to: for every operator its verdict, its state, the laws it rests on, and its kernels.

In: verdicts on operators of the catalogue.  Out: one row for each, and the table of them in Markdown, which `kernels/README.md` holds.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import redfuser_algebra as ra
from redfuser_algebra.language.errors import RedfuserError
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.run.cuda import made_cuda

HEAD = ("operator", "verdict", "reason", "state", "laws", "CPU", "CUDA")
TITLE = """# The catalogue, and its kernels

Every operator of the catalogue with its verdict, the words of state that a row carries, the laws its form rests on, and
whether there are kernels of it.  A word is written as `name ⊕`.  `redfuser catalogue --table` prints this table.
"""


@dataclass(frozen=True)
class Status:
    """One operator.  `state` and `laws` are empty where there is no form, `cpu` and `cuda` say yes or no."""

    operator: str
    verdict: str
    reason: str
    state: tuple[str, ...]
    laws: tuple[str, ...]
    cpu: str
    cuda: str

    def cells(self) -> list[str]:
        """The row as text, in the order of HEAD."""
        return [self.operator, self.verdict, self.reason, ", ".join(self.state), ", ".join(self.laws), self.cpu, self.cuda]


def statuses(verdicts: Iterable[ra.Verdict]) -> Iterator[Status]:
    """A row for each verdict, as soon as it is known.  Kernels are printed for it, and not compiled."""
    for verdict in verdicts:
        name = verdict.operator.name
        if verdict.fused is None:
            yield Status(name, verdict.status, verdict.reason, (), (), "—", "—")
            continue
        operator, form = verdict.operator, verdict.fused.form
        state = tuple(f"{component.name} {component.monoid}" for component in form.state)
        yield Status(name, verdict.status, verdict.reason, state, form.laws,
                     _there_is(lambda: lower(operator, form)), _there_is(lambda: made_cuda(operator, form)))  # noqa: B023


def _there_is(kernel: Callable[[], object]) -> str:
    try:
        kernel()
    except RedfuserError:
        return "no"
    return "yes"


def markdown(rows: Iterable[Status]) -> str:
    """The rows as a table in Markdown, below its title."""
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in rows)]
    return TITLE + "\n" + "".join("| " + " | ".join(line) + " |\n" for line in lines)
