"""`verdict.in_passes()`: an operator that one pass cannot run, in as few as the laws can find.

In: an operator, and which reductions each pass makes.  Out: `Passes`: an operator for each pass, decided and fused by
itself, which takes what the passes before it found as inputs; together they are called as the operator would be.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redfuser_algebra.discover.display import verdict_line
from redfuser_algebra.language.cascade import Cascade, Reduction
from redfuser_algebra.language.display import symbols_in
from redfuser_algebra.language.expr import Expr, substitute, subterms
from redfuser_algebra.language.html import Fragment, displayed, joined
from redfuser_algebra.language.latex import operator_latex
from redfuser_algebra.language.operator import Operator, define
from redfuser_algebra.run.dtypes import in_dtypes, result_dtypes
from redfuser_algebra.run.reference import as_written

if TYPE_CHECKING:
    from redfuser_algebra.fused import Verdict


@dataclass(frozen=True)
class Passes:
    """An operator in several passes: `verdicts` has one for each, in order, with its form, certificate and kernels.

    A pass gives the results that later ones need, by name; the last gives the operator's outputs.  What does not fuse even
    by itself, such as a sort, is computed as written.
    """

    operator: Operator
    verdicts: tuple[Verdict, ...]

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operator of each pass."""
        return tuple(verdict.operator for verdict in self.verdicts)

    def __call__(self, /, *arrays: object, backend: str = "auto", **named: object) -> object:
        """The outputs for arrays as the operator takes them; `backend` is as for a fused operator.

        What a pass hands on has the dtype that results have.  Raises OperatorError for arrays that do not fit.
        """
        binding = self.operator.bind(*arrays, **named)
        dtypes = result_dtypes(self.operator, {name: array.dtype for name, array in binding.arrays.items()}, binding.params)
        given = binding.arrays | binding.params
        for verdict in self.verdicts:
            operator = verdict.operator
            operands = {name: given[name] for name in (*operator.inputs, *operator.params)}
            result = verdict.fused(**operands, backend=backend) if verdict.fused else as_written(operator, operands)
            given |= result if verdict is not self.verdicts[-1] else {}
        return self.operator.widened(in_dtypes(self.operator, result, dtypes))

    def __str__(self) -> str:
        return "\n\n".join(f"{number}. {verdict.status} ({verdict.reason})\n{verdict.operator}" for number, verdict in enumerate(self.verdicts, 1))

    __repr__ = __str__

    def _repr_html_(self) -> Fragment:
        return joined(*(joined(verdict_line(verdict), displayed(operator_latex(verdict.operator))) for verdict in self.verdicts))


def in_passes(operator: Operator, cascade: Cascade, passes: tuple[tuple[str, ...], ...], decide: Callable[[Operator], Verdict]) -> Passes:
    """An operator cut before each of these passes over a cascade's axis; `decide` says of each pass how it is run."""
    reductions = {reduction.name: reduction for reduction in cascade.reductions}
    known: dict[Expr, Expr] = {}
    made = []
    for number, names in enumerate(passes[:-1], 1):
        later = [reductions[name] for each in passes[number:] for name in each]
        handed = {name: substitute(reductions[name].source, known) for name in names if name in _read(later, cascade.outputs)}
        made.append(_part(operator, number, handed))
        known |= {reductions[name].source: Expr("input", (), (name, axes)) for name, axes in zip(handed, made[-1].output_axes, strict=True)}
    made.append(_part(operator, len(passes), operator.packed(tuple(substitute(output, known) for output in operator.outputs)),
                      ", ".join(map(" ".join, operator.output_axes))))
    return Passes(operator, tuple(map(decide, made)))


def _read(reductions: list[Reduction], outputs: tuple[Expr, ...]) -> set[str]:
    """The results that reductions and outputs are made of."""
    parts = [part for each in reductions for part in (each.body, each.mask, each.count) if part is not None]
    return set(symbols_in(*parts, *outputs))


def _part(operator: Operator, number: int, result: object, order: str | None = None) -> Operator:
    """The operator of one pass: the inputs and parameters that its result reads, and the conditions on these."""
    outputs = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
    leaves = {term.name: term for term in subterms(*outputs) if term.op in ("input", "param")}
    inputs = {name: leaves[name].axes for name in (*operator.inputs, *leaves) if name in leaves and leaves[name].op == "input"}
    params = {name: default for name, default in operator.params.items() if name in leaves}
    conditions = operator.conditions_on(inputs, params)
    return define(f"{operator.name}_pass{number}", inputs, params, result, conditions, f"Pass {number} of {operator.name}.", order)
