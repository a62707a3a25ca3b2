"""`redfuser catalogue`, `demo`, `lab`: what there is to see."""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

import redfuser_algebra as ra
from redfuser_algebra.bench import coverage
from redfuser_algebra.bench import demo as demonstration
from redfuser_algebra.catalogue.lists import LISTS
from redfuser_algebra.console import out, progress, show, show_lines, show_table, working
from redfuser_algebra.language.errors import OperatorError


def catalogue(group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
              published: Annotated[str | None, typer.Option(
                  "--list", help="A published list, task by task, with verdicts: RedFuser, Neptune, AttnFuse, Opera or KernelBench.")] = None,
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
        for row in coverage.statuses(ra.decide(ra.operators[name]) for name in asked):
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
        for row in coverage.statuses(ra.decide(ra.operators[name]) for name in asked):
            rows[row.operator] = row
            told(len(rows), len(asked))
    shown = [at for at, title in enumerate(coverage.HEAD) if title != "laws"]
    show_table(["task", *(coverage.HEAD[at] for at in shown)],
               [[task, *(rows[operator].cells()[at] for at in shown)] for task, operator in tasks.items()])
    decided = [task for task, operator in tasks.items() if rows[operator].verdict != "undecided"]
    show_lines([f"{len(decided)} of {len(tasks)} decided"])
    return 0


def demo() -> int:
    """Discover, run and check the workloads of the RedFuser paper and two from outside machine learning."""
    with working("") as status:
        watched = status.update if status else lambda title: None
        agreed = demonstration.run(lambda line: show_lines([line]), watched)
    return 0 if agreed else 1


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
