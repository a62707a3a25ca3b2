"""How long discovery takes, operator by operator.

In: names of the catalogue.  Out: one row per operator, with the median time and the size of the largest e-graph.
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import median

import redfuser_algebra as ra


@dataclass(frozen=True)
class Row:
    """One operator: verdict, median milliseconds over the runs, e-nodes, and the words of state (None if refused)."""

    operator: str
    group: str
    status: str
    reason: str
    milliseconds: float
    nodes: int
    words: int | None

    def record(self) -> dict[str, object]:
        """The row as data for JSON."""
        return asdict(self)


def measured(names: Iterable[str], runs: int = 5) -> Iterator[Row]:
    """A row for each name, as soon as it is known.  Loading the law table is not counted: it happens once."""
    ra.decide(ra.operators["softmax"])
    groups = {name: group for group, members in ra.operators.groups().items() for name in members}
    for name in names:
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            verdict = ra.decide(ra.operators[name])
            times.append(1000 * (time.perf_counter() - start))
        nodes = max((found.nodes for found in verdict.discoveries), default=0)
        words = verdict.fused.form.words if verdict.fused else None
        yield Row(name, groups[name], verdict.status, verdict.reason, round(median(times), 2), nodes, words)


def summary(rows: list[Row]) -> str:
    """The figures that matter, in one line."""
    times = sorted(row.milliseconds for row in rows)
    return (f"{len(rows)} operators: median {median(times):.0f} ms, worst {times[-1]:.0f} ms, "
            f"largest e-graph {max(row.nodes for row in rows):,} nodes")
