"""`redfuser fuse`, `prove`, `gradient`, `explain`: what was found of an operator, and of a law."""
from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

import redfuser_algebra as ra
from redfuser_algebra.cli.asking import (
    CODES, FAULT, SEVERITY, STOPPED, AxisOption, JsonOption, Preference, PreferOption, Target, complain, operators_of,
    several)
from redfuser_algebra.console import print_json, progress, show, show_lines, working
from redfuser_algebra.discover import report
from redfuser_algebra.discover.show import columns
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.python_file import operators_in
from redfuser_algebra.prove.certificate_text import checked_suffix
from redfuser_algebra.run import files
from redfuser_algebra.run.law_examples import explained

STANDINGS = {"established": 0, "refused": 1, "open": 3, "wrong": FAULT}


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
    return max(codes, key=SEVERITY.index)


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
