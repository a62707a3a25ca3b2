"""`redfuser bench`: the measurements as commands.  What was measured until Ctrl-C is written all the same."""
from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

import redfuser_algebra as ra
from redfuser_algebra.bench import discovery, gpu, levels, measure, peers, plot, report, scaling
from redfuser_algebra.bench.gpu_workloads import GPU_WORKLOADS
from redfuser_algebra.bench.workloads import WORKLOADS, Workload
from redfuser_algebra.console import progress, show_lines, show_table
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.run import files
from redfuser_algebra.run.threads import MOST_THREADS

LENGTHS, COMPILE = "lengths", "compile"
OTHERS = {LENGTHS: "time against the length of the axis", COMPILE: "first calls, cold and from the cache"}


class Measurements(TyperGroup):
    """A group whose arguments are workloads, unless the first is the name of a command."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """`redfuser bench variance --quick` is `redfuser bench workloads variance --quick`."""
        known = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if known else ["workloads", *args])


bench = typer.Typer(cls=Measurements, help="Measurements: of workloads (the default), of fusion levels, of discovery.")
JsonFile = Annotated[str | None, typer.Option("--json", help="Also write the table here.")]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Draw the ratios here: .png, .svg or .pdf.")]


@bench.command("workloads")
def bench_workloads(
        names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help=f"Of: {', '.join(WORKLOADS)}, {', '.join(OTHERS)}.")] = None,
        shape: Annotated[str | None, typer.Option(help="Instead of the shapes in the table, such as 4096x8192.")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="Small shapes and few runs: whether everything works.")] = False,
        runs: Annotated[int | None, typer.Option(min=1, help="Turns of each contestant; 15, or 3 if quick.")] = None,
        json_file: JsonFile = None, plot_file: PlotFile = None,
        report_file: Annotated[Path | None, typer.Option("--report", help="Write a report in Markdown here.")] = None,
        on_gpu: Annotated[bool, typer.Option(
            "--gpu", help=f"On a GPU, next to torch, FlashAttention, flex_attention and Triton: {', '.join(GPU_WORKLOADS)}.")] = False) -> int:
    """Kernels next to NumPy, SciPy, torch, JAX and what reading and copying alone take, in one process, by turns."""
    if on_gpu:
        if shape or plot_file:
            raise OperatorError("redfuser bench --gpu", "--shape and --plot are for CPUs alone", "leave them out; --quick takes small shapes")
        return _bench_gpu(names, quick, runs or (5 if quick else 30), json_file, report_file)
    chosen, others = _chosen(names)
    size = _shape(shape, chosen) if shape else None
    checked = plot.checked(plot_file) if plot_file else None
    for path in filter(None, (json_file, report_file, plot_file)):
        files.writable(Path(path))
    results = report.Results(MOST_THREADS, runs or (3 if quick else 15))
    steps = _steps(results, chosen, others, size, quick)
    try:
        with peers.equal_threads(MOST_THREADS), progress("measuring") as told:
            for done, _ in enumerate(steps):
                told(done, len(chosen) + len(others))
        results.complete = True
    finally:
        _show(results)
        if json_file:
            _write_json(json_file, results.record())
        if report_file:
            files.save_text(report_file, report.markdown(results, f"redfuser {' '.join(sys.argv[1:])}"))
        if checked:
            plot.ratios(results.rows, checked)
    return 0


def _bench_gpu(names: list[str] | None, quick: bool, runs: int, json_file: str | None, report_file: Path | None) -> int:
    """What was measured until Ctrl-C is shown and written all the same."""
    chosen = [GPU_WORKLOADS[name] for name in GPU_WORKLOADS if name in _known(names, list(GPU_WORKLOADS))]
    device = gpu.this_device()
    for path in filter(None, (json_file, report_file)):
        files.writable(Path(path))
    results = gpu.GpuResults(device.about, runs)
    try:
        _collect("measuring", (gpu.measured(each, device, each.workload.quick if quick else None, runs) for each in chosen), results.rows, len(chosen))
        results.complete = True
    finally:
        show_table(*gpu.table(results.rows))
        show_lines([*report.remarks(row.measured for row in results.rows), gpu.summary(results)])
        if json_file:
            _write_json(json_file, results.record())
        if report_file:
            files.save_text(report_file, gpu.markdown(results, f"redfuser {' '.join(sys.argv[1:])}"))
    return 0


def _steps(results: report.Results, chosen: list[Workload], others: list[str], size: tuple[int, ...] | None, quick: bool) -> Iterator[None]:
    """Measure one thing after the other; what is known is in the results at once."""
    yield
    for workload in chosen:
        results.rows.append(measure.measured(workload, size or (workload.quick if quick else None), results.runs))
        yield
    if LENGTHS in others:
        results.lengths.extend(scaling.lengths(powers=range(10, 15) if quick else scaling.POWERS, runs=min(results.runs, 7)))
        yield
    if COMPILE in others:
        for row in scaling.compiled(scaling.COMPILED[:1] if quick else scaling.COMPILED):
            results.compiled.append(row)
        yield


def _chosen(names: list[str] | None) -> tuple[list[Workload], list[str]]:
    """Workloads and other measurements by name; all if none is named.  Raises OperatorError."""
    wanted = _known(names, [*WORKLOADS, *OTHERS])
    return [WORKLOADS[name] for name in WORKLOADS if name in wanted], [name for name in OTHERS if name in wanted]


def _known(names: list[str] | None, known: list[str]) -> list[str]:
    """The names, all if none is given.  Raises OperatorError for one that is unknown."""
    for name in names or []:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise OperatorError(f"the workload {name!r}", "there is none of that name",
                                f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known)}")
    return names or known


def _shape(text: str, chosen: list[Workload]) -> tuple[int, ...]:
    sizes = text.lower().replace("×", "x").split("x")
    if not all(each.isdecimal() and int(each) > 0 for each in sizes):
        raise OperatorError(f"--shape {text}", "it is no list of lengths", "write lengths with x between them, such as 4096x8192")
    unlike = [workload.name for workload in chosen if len(workload.shape) != len(sizes)]
    if unlike:
        wanted = " × ".join(map(str, WORKLOADS[unlike[0]].shape))
        raise OperatorError(f"--shape {text} for {unlike[0]}", f"its shape has {len(WORKLOADS[unlike[0]].shape)} lengths, as in {wanted}",
                            "name workloads of one kind, and give all lengths")
    return tuple(map(int, sizes))


def _show(results: report.Results) -> None:
    if results.rows:
        show_table(*report.table(results.rows))
        show_lines(report.remarks(results.rows))
    if results.lengths:
        show_table(["operator", "elements", "µs", "ns per element"],
                   [[r.operator, f"{r.length:,}", f"{r.microseconds:,.1f}", f"{1000 * r.microseconds / r.length:.2f}"] for r in results.lengths])
    if results.compiled:
        show_table(*report.first_calls(results.compiled))
    show_lines(f"{name}={value} is set, which changes what peers do" for name, value in peers.unsettled().items())
    show_lines([report.summary(results) + ("" if results.complete else "; stopped before the end"), *(f"missed: {line}" for line in report.missed(results))])


def _write_json(path: str, value: object) -> None:
    files.save_text(Path(path), json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def _kept(rows: list, record: Callable[[], object], json_file: str | None) -> Iterator[None]:
    """Writes what there is, however the block ends."""
    try:
        yield
    finally:
        if json_file and rows:
            _write_json(json_file, record())


@bench.command("levels")
def bench_levels(runs: Annotated[int, typer.Option(min=1, help="The median of so many runs is shown.")] = 7,
                 quick: Annotated[bool, typer.Option("--quick", help="Small shapes.")] = False,
                 json_file: JsonFile = None, plot_file: PlotFile = None) -> int:
    """When a state is rebased: at every element, once per tile, or once per part of the axis."""
    checked = plot.checked(plot_file) if plot_file else None
    cases = levels.QUICK if quick else levels.CASES
    rows: list[tuple[levels.Level, ...]] = []
    with _kept(rows, lambda: [level.record() for row in rows for level in row], json_file):
        _collect("measuring", levels.measured(cases, runs), rows, len(cases))
    show_table(*levels.table(rows))
    if checked:
        plot.bars(levels.series(rows), f"times as long as per {levels.USUAL}", checked)
    return 0


@bench.command("discovery")
def bench_discovery(runs: Annotated[int, typer.Option(min=1, help="The median of so many runs is shown.")] = 5,
                    group: Annotated[str | None, typer.Option(help="Only this group of the catalogue.")] = None,
                    json_file: JsonFile = None) -> int:
    """How long discovery takes for every operator of the catalogue."""
    names = [name for title, members in ra.operators.groups().items() for name in members if group in (None, title)]
    if not names:
        raise OperatorError(f"the group {group!r}", "there is none of that name", f"choose one of {', '.join(ra.operators.groups())}")
    rows: list[discovery.Row] = []
    with _kept(rows, lambda: [row.record() for row in rows], json_file):
        _collect("discovering", discovery.measured(names, runs), rows, len(names))
    show_table(["operator", "verdict", "ms", "e-nodes", "words"],
               [[r.operator, f"{r.status} ({r.reason})", f"{r.milliseconds:.1f}", f"{r.nodes:,}",
                 "" if r.words is None else str(r.words)] for r in rows])
    show_lines([discovery.summary(rows)])
    return 0


def _collect(title: str, source: Iterable, rows: list, whole: int) -> None:
    """Rows as they come, with a bar."""
    with progress(title) as told:
        for row in source:
            rows.append(row)
            told(len(rows), whole)
