"""What was measured, as rows of a table, as JSON and as Markdown.

In: measured rows.  Out: text and data; nothing is printed.
"""
from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from redfuser_algebra.bench.measure import OURS, Measured, Timed
from redfuser_algebra.bench.peers import PEERS, library, unsettled, versions
from redfuser_algebra.bench.scaling import COLD, STEEPEST, WARM, Compiled, Length, steepest

SCHEMA = 1
COLUMNS = ("NumPy", "SciPy", "torch eager", "torch.compile", "torch SDPA", "JAX jit", "reading alone", "row sum", "copy", "bare GEMM")
JOINED = {name: (name, f"{name}, torch") for name in ("reading alone", "row sum", "copy")}
"""Floors that two libraries measure: the faster one is shown."""


@dataclass
class Results:
    """One run: rows so far, and the machine they come from.  `complete` is False if it was stopped."""

    threads: int
    runs: int
    rows: list[Measured] = field(default_factory=list)
    lengths: list[Length] = field(default_factory=list)
    compiled: list[Compiled] = field(default_factory=list)
    complete: bool = False

    def record(self) -> dict[str, object]:
        """Everything as data for JSON."""
        return {"schema": SCHEMA, "complete": self.complete, "machine": machine(), "versions": versions(), "environment": unsettled(),
                "threads": self.threads, "runs": self.runs, "missing": missing(), "rows": [row.record() for row in self.rows],
                "lengths": [row.record() for row in self.lengths], "compiled": [row.record() for row in self.compiled]}


def machine() -> dict[str, str]:
    """The processor, its cores, the system and the Python."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    told = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"processor": told[0] if told else platform.processor() or platform.machine(), "cores": str(os.cpu_count()),
            "system": f"{platform.system()} {platform.machine()}", "python": platform.python_version()}


def missing() -> dict[str, str]:
    """The peers that cannot be used, and why."""
    return {peer.name: reason for peer in PEERS if isinstance(reason := library(peer.module), str)}


def table(rows: Iterable[Measured]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: the kernel's milliseconds, how many times as long each contestant takes, and the targets."""
    rows = list(rows)
    columns = [name for name in COLUMNS if any(_entrants(row, name) for row in rows)]
    return (["workload", "shape", f"{OURS}, ms", *columns, "targets"],
            [[row.workload, " × ".join(map(str, row.shape)), _time(row.contestants[OURS]), *(_times_as_long(row, name) for name in columns),
              _targets(row)] for row in rows])


def _entrants(row: Measured, column: str) -> list[Timed]:
    return [row.contestants[name] for name in JOINED.get(column, (column,)) if name in row.contestants]


def _time(each: Timed) -> str:
    return status(each) if each.milliseconds is None else f"{each.milliseconds:.3g}"


def status(each: Timed) -> str:
    """In a word, why a contestant has no time."""
    return {"not": "missing", "failed:": "failed", "wrong:": "wrong"}[each.why.split()[0]]


def _times_as_long(row: Measured, column: str) -> str:
    entrants = _entrants(row, column)
    timed = [each.milliseconds for each in entrants if each.milliseconds is not None]
    if not timed or not row.ours:
        return status(entrants[0]) if entrants and not timed else ""
    return f"{min(timed) / row.ours:.2f}"


def _targets(row: Measured) -> str:
    told = [(target, row.ratio(target)) for target in row.targets]
    return "; ".join(f"{target}: {_ratio(target.most, ratio)}" for target, ratio in told)


def _ratio(most: float, ratio: float | None) -> str:
    if ratio is None:
        return "nothing to compare with"
    return f"{_number(most, ratio)} {'met' if ratio <= most else 'MISSED'}"


def _number(most: float, ratio: float | None) -> str:
    """A ratio as its target counts: how many times the time, or how many times as fast."""
    return "" if ratio is None else f"{ratio:.2f}" if most >= 1 else f"{1 / ratio:.2f}"


def remarks(rows: Iterable[Measured]) -> list[str]:
    """Every contestant that was not timed, and why: by contestant and reason, with the workloads."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, each in row.contestants.items():
            if each.why:
                found.setdefault((name, each.why), []).append(row.workload)
    return [f"{name} {why}" + ("" if why.startswith("not installed") else f" ({', '.join(where)})") for (name, why), where in found.items()]


def first_calls(rows: Iterable[Compiled]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of first calls."""
    head = ["operator", "compiled, s", "from the cache, s", "Numba's start in either, s", "Numba's import before, s"]
    return head, [[row.operator, f"{row.cold:.2f}", f"{row.warm:.2f}", f"{row.start:.2f}", f"{row.imported:.2f}"] for row in rows]


def missed(results: Results) -> list[str]:
    """Every target that was not reached."""
    lines = [f"{row.workload}: {target}, measured {_number(target.most, row.ratio(target))}; reading alone allows {_number(target.most, row.allowed(target))}"
             for row in results.rows for target in row.targets if (row.ratio(target) or 0) > target.most]
    if steepest(results.lengths) > STEEPEST:
        lines.append(f"time linear in the length: an element takes {steepest(results.lengths):.2f} times as long at twice the length somewhere; "
                     f"where it is only read, {steepest(results.lengths, reading=True):.2f}")
    lines += [f"compiling {row.operator}: ≤ {COLD:g} s, measured {row.cold:.2f} s" for row in results.compiled if row.cold > COLD]
    return lines + [f"loading {row.operator} from the cache: ≤ {WARM:g} s, measured {row.warm:.2f} s" for row in results.compiled if row.warm > WARM]


def summary(results: Results) -> str:
    """One line: how many targets were reached."""
    ratios = [(target, row.ratio(target)) for row in results.rows for target in row.targets]
    compared = [(target, ratio) for target, ratio in ratios if ratio is not None]
    return (f"{len(results.rows)} workloads: {sum(ratio <= target.most for target, ratio in compared)} of {len(compared)} targets met"
            + (f", {len(ratios) - len(compared)} without a peer to compare with" if len(compared) < len(ratios) else ""))


def markdown(results: Results, command: str) -> str:
    """The report: machine, versions, all ratios, what was missed."""
    about, head, rows = machine(), *table(results.rows)
    lines = ["# Benchmarks", "",
             "Written by `redfuser bench --report`; changes are lost when it is written again.  Every figure comes from one run, in one",
             "process: all contestants take turns, each starting from NumPy arrays in float32, and medians are compared.  A contestant",
             "whose result is further than 10⁻³ from float64 NumPy is not timed.  BLAS settings of the environment matter: variables such",
             "as OPENBLAS_CORETYPE make OpenBLAS run for another processor, so leave them unset.", "",
             f"    {command}", "",
             f"{about['processor']}, {about['cores']} cores; {about['system']}, Python {about['python']}; {results.threads} threads for all; "
             f"{results.runs} runs." + ("" if results.complete else "  The run was stopped before its end."), "",
             ", ".join(f"{name} {version}" for name, version in versions().items()) + ".", ""]
    if unsettled():
        lines += ["Set in this environment: " + ", ".join(f"{name}={value}" for name, value in unsettled().items()) + ".", ""]
    lines += ["## Side by side", "", f"The column {OURS} is in milliseconds; the others say how many times as long the contestant takes.", "",
              *markdown_table(head[:-1], [row[:-1] for row in rows]), "", *listed("Not timed", remarks(results.rows)),
              "## Targets", "", summary(results) + ".", "",
              "A kernel has to read its inputs.  The last column is the ratio of one that did this once and took no time for anything",
              "else, at the highest speed of this run: that of a sum of each input, by a kernel or torch, or that of the fastest contestant.", "",
              *markdown_table(["workload", "target", "measured", "reading alone allows"], [
                  [row.workload, str(target), _ratio(target.most, row.ratio(target)), _number(target.most, row.allowed(target))]
                  for row in results.rows for target in row.targets])]
    lines += [*_scaling(results), "", "## Missed", "", *([f"- {line}" for line in missed(results)] or ["Nothing."])]
    return "\n".join(lines) + "\n"


def _scaling(results: Results) -> list[str]:
    lines = []
    if results.lengths:
        by_length: dict[int, dict[str, float]] = {}
        for row in results.lengths:
            by_length.setdefault(row.length, {})[row.operator] = row.microseconds
        names = list(dict.fromkeys(row.operator for row in results.lengths))
        rows = [[f"{length:,}", *(_both(times, name, length) for name in names)] for length, times in by_length.items()]
        lines += ["", "## Length", "", "One row; microseconds of a call, and nanoseconds of an element.", "", *markdown_table(["elements", *names], rows)]
    if results.compiled:
        lines += ["", "## First call", "", f"In a new process: compiled (at most {COLD:g} s), and from the cache (at most {WARM:g} s).", "",
                  *markdown_table(*first_calls(results.compiled))]
    return lines


def _both(times: Mapping[str, float], name: str, length: int) -> str:
    return f"{times[name]:,.1f} ({1000 * times[name] / length:.2f})" if name in times else ""


def listed(title: str, lines: list[str]) -> list[str]:
    """A title and a list in Markdown; nothing if the list is empty."""
    return [f"{title}:", "", *(f"- {line}" for line in lines), ""] if lines else []


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
