"""Audits of many CUDA kernels, each kept as soon as it is made, and the table of them that `kernels/AUDIT.md` holds.

In: operators, and a file of JSON lines.  Out: for each kernel what its audit found, as plain data.  What the file holds
of the same source is not made again if it passed, so that a run that was stopped goes on where it was.
"""
from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import perf_counter

import redfuser_algebra as ra
from redfuser_algebra.console import print_json, progress, show_lines, show_table
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.ptx.cards import Occupancy
from redfuser_algebra.run import files
from redfuser_algebra.run.audit import FULL, SIZES, Binary, Case, Draw, Size, rows_and_length, sizes_of
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

    redfuser audit --all {full}--dtype {dtypes} --record FILE.jsonl --table kernels/AUDIT.md

writes this file, and goes on where it was stopped.
"""


@dataclass(frozen=True)
class Asked:
    """What to audit: the kernels of operators for real numbers of these dtypes, at the sizes of a name, and for which card."""

    operators: Sequence[ra.Operator]
    dtypes: Sequence[str]
    sizes: str
    card: str


def sizes_for(kernel: CudaKernel, name: str) -> list[Size]:
    """The sizes of a name at which the operator is defined; the catalogue says from which length on that is."""
    own = kernel.operator.name
    shortest = ra.operators.entry(own).shortest if own in ra.operators else 1
    return [size for size in sizes_of(kernel, name) if rows_and_length(size)[1] >= shortest]


def declared_draws(operator: ra.Operator) -> Mapping[str, Draw]:
    """How the catalogue draws inputs of its operators."""
    return ra.operators.entry(operator.name).draws if operator.name in ra.operators else {}


def audits(asked: Asked, record: Path, told: Callable[[int, int], None]) -> Iterator[dict]:
    """What each audit found, with its `source`, a hash, and its `seconds`; operators that have no kernel are passed over.

    Raises OperatorError for a file that holds something else.
    """
    known, whole = recorded(record), len(asked.operators) * len(asked.dtypes)
    for done, operator in enumerate(asked.operators):
        for place, dtype in enumerate(asked.dtypes):
            told(done * len(asked.dtypes) + place, whole)
            try:
                kernel = ra.fuse(operator).kernel("cuda", dtype=dtype)
            except (ra.NotFusable, LoweringError):
                continue
            sizes, begun = sizes_for(kernel, asked.sizes), perf_counter()
            source = sha256(f"{asked.card}\n{sizes}\n{nameless(kernel.source)}".encode()).hexdigest()
            if source not in known or not known[source]["passed"]:
                found = kernel.audit(card=asked.card, sizes=sizes, drawn_by=declared_draws(operator)).to_json()
                known[source] = found | {"tiles": kernel.printed.tiles, "source": source, "seconds": perf_counter() - begun}
                with record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[source]) + "\n")
            yield known[source]


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


def recorded(record: Path) -> dict[str, dict]:
    """The audits in a file, by source; none if there is no file."""
    try:
        found = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()] if record.exists() else []
        return {each["source"]: each for each in found}
    except (ValueError, TypeError, KeyError) as error:
        raise OperatorError(f"going on with the audits in {record}", "the file holds something else", "name another one, or a new one") from error


def cells(found: dict) -> list[str]:
    """An audit in the words of HEAD: the worst of its binaries and cases."""
    cases, binaries = found["cases"], found["binaries"]
    worst = max(("inf" if case["fault"] else case["error"] / case["limit"] for case in cases), key=float, default=0.0)
    part = {name: max((case[name] for case in cases[-1:] if case[name]), default=0.0) for name in ("traffic", "conflicts")}
    ran = {_said(case["rows"], case["length"]): "" if case.get("compared", True) else " (not compared)" for case in cases}
    full = (_said(*rows_and_length(size)) for size in SIZES[FULL][found["tiles"]])
    return [found["operator"], found["dtype"], "yes" if found["passed"] else "NO",
            ", ".join(size + remark for size, remark in ran.items()), ", ".join(size for size in full if size not in ran),
            str(max((b["registers"] for b in binaries), default=0)), str(max((b["spilled"] + b["stack"] for b in binaries), default=0)),
            f"{float(worst):.2f}", f"{part['traffic']:.3f}", f"{part['conflicts']:.2f}",
            found.get("bound", ""), f"{found['roofline']:.0%}" if "roofline" in found else "", f"{found['seconds']:.0f}", found["source"][:8]]


def _said(rows: int, length: int) -> str:
    return f"{rows}×{length}" if rows else str(length)


def markdown(asked: Asked, found: Iterable[dict]) -> str:
    """The last audit of each kernel in a table, below counts and what failed; operators of the catalogue that are to fuse and have none are listed."""
    last = {(each["operator"], each["dtype"]): each for each in found if each["dtype"] in asked.dtypes}
    rows = {key: cells(each) for key, each in last.items()}
    fusing = [operator.name for operator in asked.operators if ra.operators.entry(operator.name).verdict != "not fusable"]
    missing = [f"{dtype}: {', '.join(names)}." for dtype in asked.dtypes
               if (names := [name for name in fusing if (name, dtype) not in rows])]
    title = TITLE.format(card=asked.card, full="--full " if asked.sizes == FULL else "", dtypes=",".join(asked.dtypes))
    return "\n".join([title, *_table([COUNTED, *_counts(asked, fusing, rows)]), "", *_failed(last.values()),
                      "## All that ran", "", *_table([HEAD, *(rows[key] for key in sorted(rows))]), "",
                      "## Not run, or without a kernel", "", *missing, ""])


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as a table in Markdown, the first its head."""
    return ["| " + " | ".join(line) + " |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:])]


def _counts(asked: Asked, fusing: Sequence[str], rows: Mapping[tuple[str, str], list[str]]) -> Iterator[list[str]]:
    """For each dtype how many kernels passed and failed, how many have something in local memory, and how many are still to run."""
    for dtype in asked.dtypes:
        own = [row for (name, its), row in rows.items() if its == dtype and name in fusing]
        passed, spilled = sum(row[HEAD.index("passed")] == "yes" for row in own), sum(row[HEAD.index("spilled")] != "0" for row in own)
        yield [dtype, str(passed), str(len(own) - passed), str(spilled), str(len(fusing) - len(own))]


def _failed(found: Iterable[dict]) -> list[str]:
    """What failed, a line each, and why."""
    lines = [f"- {each['operator']}, {each['dtype']}: {'; '.join(_faults(each))}." for each in found if not each["passed"]]
    return ["## What failed", "", *sorted(lines), ""] if lines else []


def _faults(found: dict) -> list[str]:
    """What is wrong with a kernel, by its audit."""
    binaries = [Binary(**each | {"fits": Occupancy(**each["fits"])}) for each in found["binaries"]]
    cases = [Case(**each) for each in found["cases"]]
    named = [*((each.architecture, each.faults) for each in binaries), *((_said(each.rows, each.length), each.faults) for each in cases)]
    own = [found["fault"]] if found.get("fault") else []
    return own + list(dict.fromkeys(f"{name}: {', '.join(faults)}" for name, faults in named if faults))


def show_all(asked: Asked, record: Path, as_json: bool, table: Callable[[str], object] | None = None) -> bool:
    """Print a table or data of all audits, also of those so far if it is stopped; whether every kernel passed.

    `table` is given the Markdown of all audits that the record holds.
    """
    found = []
    try:
        with progress("auditing") as told:
            for each in audits(asked, record, told):
                found.append(each)
    finally:
        if as_json:
            print_json(found)
        else:
            show_table(list(HEAD), [cells(each) for each in found])
            show_lines([f"{sum(each['passed'] for each in found)} of {len(found)} kernels passed; all audits are in {record}"])
        if table is not None:
            table(markdown(asked, recorded(record).values()))
    return all(each["passed"] for each in found)


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
