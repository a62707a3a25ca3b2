"""`redfuser run`, `export`, `tune`, `audit`: kernels of an operator."""
from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import redfuser_algebra as ra
from redfuser_algebra.bench import audits
from redfuser_algebra.cli.asking import (
    BAD_INPUT, CODES, FAILED, TARGET, AxisOption, JsonOption, Target, complain, operator_of, operators_of)
from redfuser_algebra.console import progress, show_lines, show_table, working
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.run import files
from redfuser_algebra.run import tune as tuning
from redfuser_algebra.run.audit import FULL, QUICK
from redfuser_algebra.run.threads import MOST_THREADS


class Precision(StrEnum):
    """The real numbers that kernels have."""

    float32 = "float32"
    float64 = "float64"


def run(context: typer.Context, target: Target, axis: AxisOption = None,
        output: Annotated[str | None, typer.Option("--output", "-o", help="A .npy, .npz, .csv or .txt file.")] = None,
        chunk: Annotated[int, typer.Option(min=1, help="Elements of the reduced axis at a time.")] = 4096) -> int:
    """Run an operator on files: `redfuser run attention --Q q.npy --K k.npy --V v.npy --scale 0.125 -o out.npy`.

    Arrays come from .npy (mapped, not read whole), .csv or .txt; numbers are given as they are.
    """
    operator = operator_of(target, f"running {target}")
    path = files.checked_destination(output) if output else None
    values = files.given(operator, context.args)
    operator.bind(**values)
    with working(f"fusing {operator.name}"):
        verdict = ra.decide(operator, axis=axis)
    if verdict.fused is None:
        complain(ra.NotFusable(verdict))
        return CODES[verdict.status]
    with progress(f"running {operator.name}") as told:
        outputs = files.named_outputs(operator, files.streamed(verdict.fused, values, chunk, told))
    if path:
        show_lines(f"{name} → {written}: {files.size_of(outputs[name])}" for name, written in files.save(path, outputs).items())
    else:
        show_lines(f"{name} = {array}" for name, array in outputs.items())
    return 0


FACTORS = "Which inputs of a CUDA kernel are floats of eight bits: float8_e4m3 or float8_e5m2 for all factors of products, or K=float8_e4m3,…"
WGMMA = "Matrix products by wgmma, and tiles by TMA, which sm_90a alone has (float16 or bfloat16; no GPU has run them yet)."


def export(targets: Annotated[list[str] | None, typer.Argument(metavar="TARGET…", help=TARGET.help)] = None,
           target: Annotated[str, typer.Option(help="What the kernel runs on: cpu or cuda.")] = "cpu",
           every: Annotated[bool, typer.Option("--all", help="All operators of the catalogue that can be fused.")] = False,
           output: Annotated[str | None, typer.Option("--output", "-o", help="A file, or a folder for several; by default this one.")] = None,
           dtype: Annotated[str, typer.Option(help="Of the arrays that the kernel reads: float32 or float64; for cuda float16 or bfloat16, too.")] = "float32",
           certificates: Annotated[Path | None, typer.Option(help="Take the hashes of certificates from files in this folder, where it has them.")] = None,
           wgmma: Annotated[bool, typer.Option("--wgmma", help=WGMMA)] = False,
           factors: Annotated[str | None, typer.Option(help=FACTORS)] = None,
           arch: Annotated[str, typer.Option(help="What a CUDA kernel may ask for: before sm_89, floats of eight bits are widened.")] = "sm_90a",
           gradient: Annotated[bool, typer.Option("--gradient", help="The operators of the gradient, in place of the operator.")] = False,
           passes: Annotated[bool, typer.Option("--passes", help="What is refused in as few passes as can be: the operator of each, in its place.")] = False,
           as_proof: Annotated[bool, typer.Option("--proof", help="Write proofs instead, which pytest runs.")] = False) -> int:
    """Write kernels as files of their own, which need NumPy and Numba (or numba-cuda) and check themselves when run; or their proofs.

    The header of a kernel names the hash of the certificate, which takes some seconds each.  A proof needs NumPy, Hypothesis and SymPy.
    """
    if bool(targets) == every:
        raise OperatorError("exporting kernels", "both names and --all are given" if every else "nothing is named",
                            "name operators, a Python file or a formula, or write --all")
    operators = list(ra.operators.values()) if every else [operator for word in targets for operator in operators_of(word)]
    if gradient:
        operators = [verdict.operator for operator in operators for verdict in ra.fuse(operator).gradient().verdicts.values()]
    if passes:
        operators = [part for operator in operators for part in ra.decide(operator).in_passes().operators]
    path, left_out = Path(output or "."), []
    into = output is None or len(operators) > 1 or path.is_dir() or output.endswith("/")
    (path if into else path.parent).mkdir(parents=True, exist_ok=True)
    schedule = Schedule(1, wgmma=True) if wgmma else None
    with progress("exporting") as told:
        for done, operator in enumerate(operators):
            told(done, len(operators))
            if as_proof:
                left_out += proof_written(operator, path / f"test_{operator.name}.py" if into else path)
                continue
            try:
                fused = ra.fuse(operator)
                recorded = files.recorded_certificate(certificates, operator, fused.form) if certificates else None
                show_lines([str(fused.export(path / f"{operator.name}_{target}.py" if into else path, target=target, dtype=dtype,
                                             certificate=recorded, schedule=schedule, arch=arch, factors=factors))])
            except (ra.NotFusable, LoweringError) as error:
                left_out.append(error)
    if every:
        why = "are undecided, or are proved in words that the files do not have" if as_proof else "cannot be fused, or have no loops"
        show_lines([f"{len(operators) - len(left_out)} {'proofs' if as_proof else 'kernels'}; {len(left_out)} operators {why}"])
        return 0
    for error in left_out:
        complain(error)
    return max((CODES[error.verdict.status] if isinstance(error, ra.NotFusable) else BAD_INPUT for error in left_out), default=0)


def proof_written(operator: ra.Operator, path: Path) -> list[OperatorError]:
    """Write what proves the verdict on an operator; the error of one that has no such file."""
    try:
        text = ra.decide(operator).proof_text()
    except OperatorError as error:
        return [error]
    show_lines([str(files.written(path, lambda file: file.write(text.encode())))])
    return []


def tune(target: Target,
         shape: Annotated[str, typer.Option(help="The length of every axis: m=4096,l=8192.")],
         batch: Annotated[int, typer.Option(min=1, help="Arrays with the longest axis come in so many copies.")] = 1,
         dtype: Annotated[Precision, typer.Option(help="Of the arrays.")] = Precision.float32) -> int:
    """Measure the schedules of an operator's CPU kernel on random arrays; the fastest is kept and used from then on.

    Ctrl-C keeps what was measured; the next run goes on from there.
    """
    operator = operator_of(target, f"tuning {target}")
    arrays = tuning.arrays_for(operator, tuning.lengths_in(shape), batch, dtype.value)
    with working(f"fusing {operator.name}"):
        fused = ra.fuse(operator)
    with progress(f"measuring {operator.name}") as told:
        found = fused.tune(**arrays, progress=told)
    show_table(["ms", "schedule"], [[f"{1e3 * seconds:.3f}", str(schedule)] for schedule, seconds in found.items()])
    return 0


def audit(target: Annotated[str | None, TARGET] = None,
          every: Annotated[bool, typer.Option("--all", help="All kernels of the catalogue, one line each; --table keeps them.")] = False,
          dtype: Annotated[str, typer.Option(help="Of the numbers in memory: float32, float64, float16 or bfloat16; several with commas between.")] = "float32",
          full: Annotated[bool, typer.Option("--full", help="All sizes, not only the quick ones.")] = False,
          card: Annotated[str, typer.Option(help="The card that times are estimated for: A100, H100, H200, B200 or RTX 4090.")] = "H100",
          wgmma: Annotated[bool, typer.Option("--wgmma", help=WGMMA)] = False,
          factors: Annotated[str | None, typer.Option(help=FACTORS)] = None,
          plot: Annotated[Path | None, typer.Option(
              help="Draw the roofline and the occupancy to this SVG file; for several operators each name goes in front of the ending.")] = None,
          table: Annotated[Path | None, typer.Option(
              help="With --all: the file that keeps the audits, a table in Markdown (audits.md); what it holds of the same kernels is not made again.")] = None,
          jobs: Annotated[int, typer.Option(min=1, help="With --all: how many kernels are audited at a time.")] = MOST_THREADS,
          as_json: JsonOption = False) -> int:
    """Audit CUDA kernels without a GPU: compile them, execute their PTX on the CPU, count what they move, estimate times.

    Exits with 4 if something is wrong with a kernel.  Ctrl-C keeps what --all has found.
    """
    if (target is None) != every:
        raise OperatorError("auditing kernels", "both a name and --all are given" if every else "nothing is named", "name an operator, or write --all")
    if (plot, factors) != (None, None) if every else table is not None:
        raise OperatorError("auditing kernels", "--plot and --factors are for one kernel, --table is of all", "name the operator, or write --all --table FILE")
    dtypes, sizes = dtype.split(","), FULL if full else QUICK
    if every:
        asked = audits.Asked(list(ra.operators.values()), dtypes, sizes, card)
        return 0 if audits.show_all(asked, files.writable(table or Path("audits.md")), jobs, as_json) else FAILED
    asked = audits.Asked(operators_of(target), dtypes, sizes, card)
    schedule = Schedule(1, wgmma=True) if wgmma else None
    return 0 if audits.show_each(asked, schedule, factors, plot and files.writable(plot), as_json) else FAILED
