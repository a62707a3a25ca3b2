"""Audits of many CUDA kernels, and the table of them that `kernels/AUDIT.md` is.

In: operators, and the file with the table, if there is one.  Out: the table, written anew after each audit.  It is the
record as well: a kernel that passed and has not changed since is not audited again, so that a run that was stopped goes
on where it was.
"""
from __future__ import annotations

import ast
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import product
from math import inf
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import redfuser_algebra as ra
from redfuser_algebra.console import print_json, progress, show_lines, show_table
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.run import files
from redfuser_algebra.run.audit import FULL, SIZES, Audit, Draw, Size, rows_and_length, sizes_of
from redfuser_algebra.run.cuda import CudaKernel

HEAD = ("kernel", "numbers", "passed", "sizes", "not run", "registers", "spilled", "error of limit", "of ideal bytes", "bank passes",
        "bound", "roofline", "s", "source")
COUNTED = ("numbers", "passed", "failed", "with spills or stack", "not run, or without a kernel")
TITLE = """# The CUDA kernels, audited without a GPU

Each kernel was compiled for sm_80 and sm_90a, and its PTX was executed on the CPU, warps in step and, at up to 2048 elements, in
random order, against the operator in float64, or in numpy.longdouble where it leaves the range of float64; results that leave the
range of that, too, are not compared.  A size is a length of the reduced axis, or rows × length where matrices are
multiplied in tiles; sizes below an operator's shortest length are not run.  Registers, and bytes spilled or on the stack, are
the most of any launch, the error is the largest in units of its limit, and bytes and passes over the banks of shared memory are
those of the last size, over the ideal.  Times are estimated for the {card};
no GPU was at hand.  `source` is how the hash of the kernel's text begins, names of variables aside: a kernel that has changed since is
audited again, and so is one that failed.

    redfuser audit --all --full --dtype {dtypes} --table kernels/AUDIT.md

writes this file, and goes on where it was stopped.
"""
FAILED, RAN = "## What failed", "## All that ran"


@dataclass(frozen=True)
class Asked:
    """What to audit: the kernels of operators for real numbers of these dtypes, at the sizes of a name, and for which card."""

    operators: Sequence[ra.Operator]
    dtypes: Sequence[str]
    sizes: str
    card: str


@dataclass(frozen=True)
class Line:
    """An audit as the table tells it: its cells in the order of HEAD, and what is wrong with the kernel, if anything."""

    cells: tuple[str, ...]
    faults: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The kernel and its numbers."""
        return self.cells[0], self.cells[1]

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.faults

    def __getitem__(self, title: str) -> str:
        return self.cells[HEAD.index(title)]

    def to_json(self) -> dict:
        """Plain data."""
        return dict(zip(HEAD, self.cells, strict=True)) | {"passed": self.passed, "faults": self.faults}


def sizes_for(kernel: CudaKernel, name: str) -> list[Size]:
    """The sizes of a name at which the operator is defined; the catalogue says from which length on that is."""
    own = kernel.operator.name
    shortest = ra.operators.entry(own).shortest if own in ra.operators else 1
    return [size for size in sizes_of(kernel, name) if rows_and_length(size)[1] >= shortest]


def declared_draws(operator: ra.Operator) -> Mapping[str, Draw]:
    """How the catalogue draws inputs of its operators."""
    return ra.operators.entry(operator.name).draws if operator.name in ra.operators else {}


def audits(asked: Asked, known: Mapping[tuple[str, str], Line], jobs: int, told: Callable[[int, int], None]) -> Iterator[Line]:
    """The audit of each kernel as soon as it is there, `jobs` at a time, each in a process; operators that have no kernel are passed over."""
    kernels = list(product((operator.name for operator in asked.operators), asked.dtypes))
    one = partial(_audited, sizes=asked.sizes, card=asked.card, known=known)
    with several(jobs, one) as results:
        for done, found in enumerate(results(kernels), 1):
            told(done, len(kernels))
            if found is not None:
                yield found


@contextmanager
def several(jobs: int, one: Callable) -> Iterator[Callable[[Iterable], Iterator]]:
    """What maps `one` over something, in any order; processes that do so end with it, at Ctrl-C too, and are renewed for the memory they hold."""
    if jobs == 1:
        yield partial(map, one)
    else:
        with get_context("spawn").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN), maxtasksperchild=8) as pool:
            yield partial(pool.imap_unordered, one)


def _audited(asked: tuple[str, str], sizes: str, card: str, known: Mapping[tuple[str, str], Line]) -> Line | None:
    """The audit of the kernel of an operator of the catalogue for a dtype, what is known of the same text if it passed; None without a kernel."""
    name, dtype = asked
    try:
        kernel = ra.fuse(ra.operators[name]).kernel("cuda", dtype=dtype)
    except (ra.NotFusable, LoweringError):
        return None
    own, begun = sizes_for(kernel, sizes), perf_counter()
    source = sha256(f"{card}\n{own}\n{nameless(kernel.source)}".encode()).hexdigest()[:8]
    if asked in known and known[asked].passed and known[asked]["source"] == source:
        return known[asked]
    return line_of(kernel.audit(card=card, sizes=own, drawn_by=declared_draws(kernel.operator)), kernel.printed.tiles, perf_counter() - begun, source)


def nameless(source: str) -> str:
    """What a module computes, whatever its functions and variables are called and its documentation says."""
    tree, names = ast.parse(source), {}
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        for part, kind in (("id", ast.Name), ("arg", ast.arg), ("name", ast.FunctionDef)):
            if isinstance(node, kind) and getattr(node, part) in own:
                setattr(node, part, names.setdefault(getattr(node, part), str(len(names))))
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)


def recorded(table: Path) -> dict[tuple[str, str], Line]:
    """The lines of a table in a file, by kernel and numbers; none if there is no file.

    Raises OperatorError for a file that holds something else.
    """
    if not table.exists():
        return {}
    try:
        before, ran = table.read_text(encoding="utf-8").split(f"\n{RAN}\n")
        faults = {(name, dtype): why for name, dtype, why in re.findall(r"^- (\w+), (\w+): (.*)\.$", before, re.MULTILINE)}
        rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in ran.splitlines() if line.startswith("|")]
        if rows[0] != HEAD:
            raise ValueError(rows[0])
        return {row[:2]: Line(row, "" if row[HEAD.index("passed")] == "yes" else faults[row[:2]]) for row in rows[2:]}
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise OperatorError(f"going on with the audits in {table}", "the file holds something else", "name another one, or a new one") from error


def line_of(found: Audit, tiles: bool, seconds: float, source: str) -> Line:
    """An audit in the words of HEAD: the worst of its binaries and cases."""
    worst = max((inf if case.fault else case.error / case.limit for case in found.cases), default=0.0)
    last = found.cases[-1:]
    ran = {_said(case.rows, case.length): "" if case.compared else " (not compared)" for case in found.cases}
    full = (_said(*rows_and_length(size)) for size in SIZES[FULL][tiles])
    return Line((found.operator, found.dtype, "yes" if found.passed else "NO",
                 ", ".join(size + remark for size, remark in ran.items()), ", ".join(size for size in full if size not in ran),
                 str(max((b.registers for b in found.binaries), default=0)), str(max((b.spilled + b.stack for b in found.binaries), default=0)),
                 f"{worst:.2f}", f"{max((case.traffic for case in last), default=0.0):.3f}", f"{max((case.conflicts for case in last), default=0.0):.2f}",
                 found.estimate.bound if found.estimate else "", f"{found.estimate.roofline:.0%}" if found.estimate else "",
                 f"{seconds:.0f}", source), "" if found.passed else _faults(found))


def _said(rows: int, length: int) -> str:
    return f"{rows}×{length}" if rows else str(length)


def markdown(asked: Asked, lines: Mapping[tuple[str, str], Line]) -> str:
    """The audits in a table, below counts and what failed; operators of the catalogue that are to fuse and have none are listed."""
    dtypes = list(dict.fromkeys([*asked.dtypes, *(dtype for _, dtype in lines)]))
    fusing = [operator.name for operator in ra.operators.values() if ra.operators.entry(operator.name).verdict != "not fusable"]
    missing = [f"{dtype}: {', '.join(names)}." for dtype in dtypes if (names := [name for name in fusing if (name, dtype) not in lines])]
    return "\n".join([TITLE.format(card=asked.card, dtypes=",".join(dtypes)), *_table([COUNTED, *_counts(dtypes, fusing, lines)]), "",
                      *_failed(lines.values()), RAN, "", *_table([HEAD, *(lines[key].cells for key in sorted(lines))]), "",
                      "## Not run, or without a kernel", "", *missing, ""])


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as a table in Markdown, the first its head."""
    return ["| " + " | ".join(line) + " |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:])]


def _counts(dtypes: Sequence[str], fusing: Sequence[str], lines: Mapping[tuple[str, str], Line]) -> Iterator[list[str]]:
    """For each dtype how many kernels passed and failed, how many have something in local memory, and how many are still to run."""
    for dtype in dtypes:
        own = [line for (name, its), line in lines.items() if its == dtype and name in fusing]
        passed, spilled = sum(line.passed for line in own), sum(line["spilled"] != "0" for line in own)
        yield [dtype, str(passed), str(len(own) - passed), str(spilled), str(len(fusing) - len(own))]


def _failed(lines: Iterable[Line]) -> list[str]:
    """What failed, a line each, and why."""
    failed = [f"- {', '.join(line.key)}: {line.faults}." for line in lines if not line.passed]
    return [FAILED, "", *sorted(failed), ""] if failed else []


def _faults(found: Audit) -> str:
    """What is wrong with a kernel, by its audit, in one line."""
    named = [*((each.architecture, each.faults) for each in found.binaries), *((_said(each.rows, each.length), each.faults) for each in found.cases)]
    every = [*([found.fault] if found.fault else []), *(f"{name}: {', '.join(faults)}" for name, faults in named if faults)]
    return " ".join("; ".join(dict.fromkeys(every)).split()) or "nothing was compared"


def show_all(asked: Asked, table: Path, jobs: int, as_json: bool) -> bool:
    """Audit every kernel and keep the table of all audits in a file; print those of this run, also of those so far if it is stopped.

    Whether every kernel passed.
    """
    lines, found = recorded(table), []
    try:
        with progress("auditing") as told:
            for each in audits(asked, dict(lines), jobs, told):
                found.append(each)
                lines[each.key] = each
                files.save_text(table, markdown(asked, lines))
    finally:
        if as_json:
            print_json([each.to_json() for each in found])
        else:
            show_table(list(HEAD), [list(each.cells) for each in found])
            show_lines([f"{sum(each.passed for each in found)} of {len(found)} kernels passed; all audits are in {table}"])
    return all(each.passed for each in found)


def show_each(asked: Asked, schedule: Schedule | None, factors: str | None, plot: Path | None, as_json: bool) -> bool:
    """Print each audit as soon as it is made, or data of all, and draw them if `plot` is a file; whether every kernel passed."""
    found = []
    for operator, dtype in product(asked.operators, asked.dtypes):
        kernel = ra.fuse(operator).kernel("cuda", dtype=dtype, schedule=schedule, factors=factors)
        with progress(f"auditing {operator.name}") as told:
            found.append(kernel.audit(card=asked.card, sizes=sizes_for(kernel, asked.sizes), progress=told, drawn_by=declared_draws(operator)))
        if not as_json:
            show_lines(str(found[-1]).splitlines())
        if plot is not None:
            several = [operator.name] * (len(asked.operators) > 1) + [dtype] * (len(asked.dtypes) > 1)
            files.save_text(plot.with_stem("_".join([plot.stem, *several])), f"{found[-1].picture}\n")
    if as_json:
        print_json([each.to_json() for each in found] if len(found) > 1 else found[0].to_json())
    return all(each.passed for each in found)
