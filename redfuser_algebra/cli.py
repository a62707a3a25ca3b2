"""The command `redfuser`: fuse, prove, gradient, export, audit, run, tune, catalogue, explain, demo, bench, lab.

Exit codes: 0 fused, 1 not fusable, 2 bad input, 3 undecided, 4 a kernel failed its audit, 70 a fault of this package, 130 stopped by Ctrl-C.
Tables and colour are for terminals; piped output is plain text.
"""
from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import redfuser_algebra as ra
from redfuser_algebra.bench import audits, coverage
from redfuser_algebra.bench import demo as demonstration
from redfuser_algebra.bench.commands import bench
from redfuser_algebra.catalogue.lists import LISTS
from redfuser_algebra.console import err, out, print_json, progress, show, show_lines, show_table, working
from redfuser_algebra.discover import report
from redfuser_algebra.discover.show import columns
from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.python_file import operators_in
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError
from redfuser_algebra.prove.certificate_text import checked_suffix
from redfuser_algebra.run import files
from redfuser_algebra.run import tune as tuning
from redfuser_algebra.run.audit import FULL, QUICK
from redfuser_algebra.run.law_examples import explained

CODES = {"fusable": 0, "partly": 0, "not fusable": 1, "undecided": 3}
BAD_INPUT, FAILED, FAULT, STOPPED = 2, 4, 70, 130
STANDINGS = {"established": 0, "refused": 1, "open": 3, "wrong": FAULT}
SEVERITY = (0, 3, 1, FAULT)
"""Exit codes of several operators: the last of these that occurs is that of all."""

UsageError = typer.BadParameter.__base__
"""Newer typers carry their own click, older ones import it: this is the class that the one at hand raises."""

app = typer.Typer(name="redfuser", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Write a cascaded reduction as mathematics; learn whether it runs in one pass, and run it so.")
app.add_typer(bench, name="bench")


class Preference(StrEnum):
    """Which form to take where there are two."""

    centred = "centred"
    raw = "raw"


class Precision(StrEnum):
    """The real numbers that kernels have."""

    float32 = "float32"
    float64 = "float64"


TARGET = typer.Argument(help="A name of the catalogue, a Python file with operators, or a formula in quotes.")
Target = Annotated[str, TARGET]
AxisOption = Annotated[str | None, typer.Option(help="The axis to fuse over; by default that of the deepest cascade.")]
PreferOption = Annotated[Preference, typer.Option(help="Keep sums about moving pivots, or raw sums.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]


@app.command()
def fuse(target: Target, prefer: PreferOption = Preference.centred, axis: AxisOption = None,
         limit_nodes: Annotated[int | None, typer.Option(min=1, help="Give up beyond so many e-nodes.")] = None,
         as_json: JsonOption = False) -> int:
    """Find the fused form of an operator: cascade, pivots, state, update rule and merge, laws, guards, dangers."""
    limits = ra.Limits(nodes=limit_nodes) if limit_nodes else None
    records, codes = [], []
    for operator in operators_of(target):
        with working(f"fusing {operator.name}"):
            verdict, other = (ra.decide(operator, axis=axis, prefer=each, limits=limits) for each in
                              (prefer, *(each for each in Preference if each is not prefer)))
            told = report.record(verdict, other) if as_json else list(report.sections(verdict, other))
        codes.append(CODES[verdict.status])
        records.append(told)
        if not as_json:
            show(told)
    if as_json:
        print_json(records if len(records) > 1 else records[0])
    return next((code for code in (1, 3) if code in codes), 0)


@app.command()
def prove(target: Target, prefer: PreferOption = Preference.centred, axis: AxisOption = None,
          examples: Annotated[int | None, typer.Option(min=1, help="Exact experiments to make; 40, or 1000 with --deep.")] = None,
          seed: Annotated[int, typer.Option(min=0, help="What the experiments are drawn from.")] = 0,
          deep: Annotated[bool, typer.Option("--deep", help="Many more experiments; may take minutes.")] = False,
          as_json: JsonOption = False,
          as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the whole certificate as Markdown.")] = False,
          output: Annotated[str | None, typer.Option("--output", "-o", help="Write the certificate to this .json, .md or .html file.")] = None
          ) -> int:
    """Certify the fused form of an operator: every obligation, with what is proved and what is tested.

    An operator that is not fusable is refused with its witness, which is computed again.
    """
    operators = operators_of(target)
    path = Path(output) if output else None
    if path and checked_suffix(path.suffix) and len(operators) > 1:
        raise several(f"proving {target} into one file", operators)
    path = path and files.writable(path)
    made = []
    for operator in operators:
        with working(f"fusing {operator.name}"):
            verdict = ra.decide(operator, axis=axis, prefer=prefer)
        with progress(f"proving {operator.name}") as told:
            made.append(verdict.prove(progress=told, examples=examples, seed=seed, deep=deep))
        if as_markdown:
            show_lines(made[-1].to_markdown().splitlines())
        elif not as_json:
            show(made[-1].sections())
        if made[-1].stopped:
            break
    if as_json:
        print_json([each.record() for each in made] if len(operators) > 1 else made[0].record())
    if path:
        files.written(path, lambda file: file.write(made[0].written(path.suffix).encode()))
    return STOPPED if made[-1].stopped else max((STANDINGS[each.standing] for each in made), key=SEVERITY.index)


@app.command()
def gradient(target: Target, axis: AxisOption = None) -> int:
    """Show the vector–Jacobian product of an operator: what the forward pass saves, and the operators of the derivatives."""
    code = 0
    for operator in operators_of(target):
        with working(f"differentiating {operator.name}"):
            verdict = ra.decide(operator, axis=axis)
            shown = verdict.fused.gradient() if verdict.fused else None
        if shown is None:
            complain(ra.NotFusable(verdict))
        else:
            show_lines(str(shown).splitlines())
        code = max(code, CODES[verdict.status], key=SEVERITY.index)
    return code


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, target: Target, axis: AxisOption = None,
        output: Annotated[str | None, typer.Option("--output", "-o", help="A .npy, .npz, .csv or .txt file.")] = None,
        chunk: Annotated[int, typer.Option(min=1, help="Elements of the reduced axis at a time.")] = 4096) -> int:
    """Run an operator on files: `redfuser run attention --Q q.npy --K k.npy --V v.npy --scale 0.125 -o out.npy`.

    Arrays come from .npy (mapped, not read whole), .csv or .txt; numbers are given as they are.
    """
    operators = operators_of(target)
    if len(operators) > 1:
        raise several(f"running {target}", operators)
    path = files.checked_destination(output) if output else None
    values = files.given(operators[0], context.args)
    operators[0].bind(**values)
    with working(f"fusing {operators[0].name}"):
        verdict = ra.decide(operators[0], axis=axis)
    if verdict.fused is None:
        complain(ra.NotFusable(verdict))
        return CODES[verdict.status]
    with progress(f"running {operators[0].name}") as told:
        outputs = files.named_outputs(operators[0], files.streamed(verdict.fused, values, chunk, told))
    if path:
        show_lines(f"{name} → {written}: {files.size_of(outputs[name])}" for name, written in files.save(path, outputs).items())
    else:
        show_lines(f"{name} = {array}" for name, array in outputs.items())
    return 0


FACTORS = "Which inputs of a CUDA kernel are floats of eight bits: float8_e4m3 or float8_e5m2 for all factors of products, or K=float8_e4m3,…"
WGMMA = "Matrix products by the instruction that sm_90a alone has (float16 or bfloat16; no GPU has run it yet)."


@app.command()
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
        raise OperatorError("exporting kernels", "both names and --all are given" if every else "nothing is named", "name operators, a Python file or a formula, or write --all")
    operators = list(ra.operators.values()) if every else [operator for word in targets for operator in operators_of(word)]
    if gradient:
        operators = [verdict.operator for operator in operators for verdict in ra.fuse(operator).gradient().verdicts.values()]
    if passes:
        operators = [part for operator in operators for part in ra.decide(operator).in_passes().operators]
    path, left_out = Path(output or "."), []
    into = output is None or len(operators) > 1 or path.is_dir() or output.endswith("/")
    (path if into else path.parent).mkdir(parents=True, exist_ok=True)
    with progress("exporting") as told:
        for done, operator in enumerate(operators):
            told(done, len(operators))
            if as_proof:
                left_out += proof_written(operator, path / f"test_{operator.name}.py" if into else path)
                continue
            try:
                fused = ra.fuse(operator)
                recorded = files.recorded_certificate(certificates, operator, fused.form) if certificates else None
                written = fused.export(path / f"{operator.name}_{target}.py" if into else path, target=target, dtype=dtype, certificate=recorded, schedule=Schedule(1, wgmma=True) if wgmma else None,
                                       arch=arch, factors=factors)
                show_lines([str(written)])
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


@app.command()
def tune(target: Target,
         shape: Annotated[str, typer.Option(help="The length of every axis: m=4096,l=8192.")],
         batch: Annotated[int, typer.Option(min=1, help="Arrays with the longest axis come in so many copies.")] = 1,
         dtype: Annotated[Precision, typer.Option(help="Of the arrays.")] = Precision.float32) -> int:
    """Measure the schedules of an operator's CPU kernel on random arrays; the fastest is kept and used from then on.

    Ctrl-C keeps what was measured; the next run goes on from there.
    """
    operators = operators_of(target)
    if len(operators) > 1:
        raise several(f"tuning {target}", operators)
    arrays = tuning.arrays_for(operators[0], tuning.lengths_in(shape), batch, dtype.value)
    with working(f"fusing {operators[0].name}"):
        fused = ra.fuse(operators[0])
    with progress(f"measuring {operators[0].name}") as told:
        found = fused.tune(**arrays, progress=told)
    show_table(["ms", "schedule"], [[f"{1e3 * seconds:.3f}", str(schedule)] for schedule, seconds in found.items()])
    return 0


@app.command()
def audit(target: Annotated[str | None, TARGET] = None,
          every: Annotated[bool, typer.Option("--all", help="All kernels of the catalogue, one line each; --record keeps them.")] = False,
          dtype: Annotated[str, typer.Option(help="Of the numbers in memory: float32, float64, float16 or bfloat16; several with commas between.")] = "float32",
          full: Annotated[bool, typer.Option("--full", help="All sizes, not only the quick ones.")] = False,
          card: Annotated[str, typer.Option(help="The card that times are estimated for: A100, H100, H200, B200 or RTX 4090.")] = "H100",
          wgmma: Annotated[bool, typer.Option("--wgmma", help=WGMMA)] = False,
          factors: Annotated[str | None, typer.Option(help=FACTORS)] = None,
          plot: Annotated[Path | None, typer.Option(help="Draw the roofline and the occupancy to this SVG file; for several operators each name goes in front of the ending.")] = None,
          record: Annotated[Path, typer.Option(help="With --all: a file of JSON lines; audits of the same source in it are not made again.")] = Path("audits.jsonl"),
          table: Annotated[Path | None, typer.Option(help="With --all: write what the record holds to this file, as a table in Markdown.")] = None,
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
        write = None if table is None else partial(files.save_text, files.writable(table))
        return 0 if audits.show_all(asked, files.writable(record), as_json, write) else FAILED
    asked = audits.Asked(operators_of(target), dtypes, sizes, card)
    schedule = Schedule(1, wgmma=True) if wgmma else None
    return 0 if audits.show_each(asked, schedule, factors, plot and files.writable(plot), as_json) else FAILED


@app.command()
def catalogue(group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
              published: Annotated[str | None, typer.Option("--list", help="A published list, task by task, with verdicts: RedFuser, Neptune, AttnFuse, Opera or KernelBench.")] = None,
              table: Annotated[bool, typer.Option("--table", help="Verdict, state, laws and kernels of each, as kernels/README.md has them.")] = False) -> int:
    """List the operators that come with the package."""
    if published is not None:
        return listed(published)
    groups = ra.operators.groups()
    if group is not None and group not in groups:
        raise OperatorError(f"the group {group!r}", "there is none of that name", f"choose one of {', '.join(groups)}")
    chosen = {group: groups[group]} if group else groups
    if not table:
        show((title, list(names)) for title, names in chosen.items())
        return 0
    asked = [name for names in chosen.values() for name in names]
    rows = []
    with progress("deciding") as told:
        for row in coverage.statuses(asked):
            rows.append(row)
            told(len(rows), len(asked))
    if out.is_terminal:
        show_table(list(coverage.HEAD), [row.cells() for row in rows])
    else:
        show_lines(coverage.markdown(rows).splitlines())
    return 0


def listed(name: str) -> int:
    """Show a published list: the operator of each task, with its verdict, its state and its kernels."""
    if name not in LISTS:
        raise OperatorError(f"the list {name!r}", "there is none of that name", f"choose one of {', '.join(LISTS)}")
    tasks, rows = LISTS[name], {}
    asked = list(dict.fromkeys(tasks.values()))
    with progress("deciding") as told:
        for row in coverage.statuses(asked):
            rows[row.operator] = row
            told(len(rows), len(asked))
    shown = [at for at, title in enumerate(coverage.HEAD) if title != "laws"]
    show_table(["task", *(coverage.HEAD[at] for at in shown)],
               [[task, *(rows[operator].cells()[at] for at in shown)] for task, operator in tasks.items()])
    decided = [task for task, operator in tasks.items() if rows[operator].verdict != "undecided"]
    show_lines([f"{len(decided)} of {len(tasks)} decided"])
    return 0


@app.command()
def explain(law: Annotated[str, typer.Argument(help="The name of a law, as `redfuser fuse` prints it.")],
            file: Annotated[str | None, typer.Argument(help="The Python file that declares it, if it is one of your own.")] = None
            ) -> int:
    """Explain a law: statement, condition, what it is true for, when it is used, what needs it, an example."""
    own = operators_in(Path(file)) if file else ()
    if law not in ra.LAWS:
        near = difflib.get_close_matches(law, ra.LAWS, 3, 0.4)
        raise OperatorError(f"the law {law!r}", "there is none of that name",
                            f"did you mean {' or '.join(near)}?" if near else "look at the laws that `redfuser fuse` prints")
    row = ra.LAWS[law]
    lines = explained(row)
    if row.role != "disabled":
        with working(f"looking for an operator that needs {law}"):
            lines.append(("needed", needed_by(law, (*own, *map(ra.operators.__getitem__, NEEDY)))))
    show([(law, columns([list(line) for line in lines]))])
    return 0


@app.command()
def demo() -> int:
    """Discover, run and check the workloads of the RedFuser paper and two from outside machine learning."""
    with working("") as status:
        watched = status.update if status else lambda title: None
        agreed = demonstration.run(lambda line: show_lines([line]), watched)
    return 0 if agreed else 1


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open JupyterLab on the notebooks; an installed package first copies them to ./redfuser-notebooks."""
    program = shutil.which("jupyter-lab", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise OperatorError("opening the notebooks", "JupyterLab is not installed", "run `pip install 'redfuser-algebra[lab]'`")
    os.execv(program, [program, *context.args, str(notebooks())])


def notebooks(package: Path = Path(ra.__file__).parent) -> Path:
    """The folder of the notebooks: that of the source tree, or copies of those in the package; what is there is kept."""
    tree, packed, own = package.parent / "notebooks", package / "notebooks", Path.cwd() / "redfuser-notebooks"
    if not packed.is_dir():
        return tree if tree.is_dir() else Path.cwd()
    own.mkdir(exist_ok=True)
    for notebook in packed.glob("*.ipynb"):
        if not (own / notebook.name).exists():
            shutil.copy(notebook, own)
    return own


NEEDY = ("softmax", "variance", "softmax_entropy", "absmax_scaled_sum", "count_max", "value_at_argmax", "moe_routing",
         "mean_gap_to_max", "quant_gemm_reassociate", "kl_divergence", "minmax_normalised_sum", "prod_scaled", "power_means",
         "moment_of_inertia", "structure_factor_com", "any_outlier_sigma", "all_any_constant", "cosine_similarity")
"""Operators that `explain` tries: between them they need most of the laws."""


def needed_by(law: str, operators: Iterable[ra.Operator]) -> str:
    """An operator whose fused form is not found without a law."""
    for operator in operators:
        verdict = ra.decide(operator)
        fired = [1 for found in verdict.discoveries for question in found.trace if law in question.answer.fired]
        if fired and verdict.fused and law in verdict.fused.form.laws:
            return f"by {operator.name}, for one: without it the e-graph finds no update as good"
    return "by none of the operators tried here"


def operators_of(target: str) -> tuple[ra.Operator, ...]:
    """What a command line means by TARGET.  Raises OperatorError."""
    if target in ra.operators:
        return (ra.operators[target],)
    if target.endswith(".py") or Path(target).is_file():
        return operators_in(Path(target))
    if re.fullmatch(r"\w+", target):
        near = difflib.get_close_matches(target, ra.operators, 3)
        raise OperatorError(f"the operator {target!r}", "the catalogue has none of that name and there is no such file",
                            f"did you mean {' or '.join(near)}?" if near else "list the names with `redfuser catalogue`")
    return (ra.parse_operator(target),)


def several(asked: str, operators: tuple[ra.Operator, ...]) -> OperatorError:
    """The error where one operator is wanted and a file holds more."""
    return OperatorError(asked, f"it holds {len(operators)} operators: {', '.join(each.name for each in operators)}",
                         "name one of the catalogue, or give a file with one")


def complain(error: RedfuserError) -> None:
    """One message in three parts."""
    err.print(Text("redfuser: ", style="bold red") + Text(str(error)))


def status_of(arguments: list[str] | None = None) -> int:
    """Run a command line; its exit code."""
    try:
        return app(arguments, standalone_mode=False) or 0
    except RedfuserError as error:
        complain(error)
        return BAD_INPUT
    except UsageError as error:
        error.show()
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        err.print("redfuser: stopped")
        return STOPPED
    except Exception:
        traceback.print_exc()
        err.print("redfuser: this is a fault of redfuser_algebra, not of your input; please report it with the lines above")
        return FAULT


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")
    sys.exit(status_of())
