"""`verdict.nearest()`: operators that differ from a refused one in as little as possible, and fuse.

In: an operator.  Out: what was changed, in words, with the verdict on the changed operator.  Each change is tried, alone
and then with another, by the same search; nothing here knows what will fuse.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from redfuser_algebra.discover.display import verdict_line
from redfuser_algebra.discover.refusal import ROUNDINGS
from redfuser_algebra.language.expr import Expr, const, rewritten, subterms
from redfuser_algebra.language.html import Fragment, displayed, joined, paragraphs
from redfuser_algebra.language.latex import operator_latex
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.tracing.elementwise import regrouped

if TYPE_CHECKING:
    from redfuser_algebra.fused import Verdict


@dataclass(frozen=True)
class Variant:
    """An operator that fuses, and how it differs from the one that was asked for."""

    change: str
    verdict: Verdict

    @property
    def operator(self) -> Operator:
        """The changed operator."""
        return self.verdict.operator

    def __str__(self) -> str:
        return f"{self.change}: {self.verdict.status} ({self.verdict.reason})"

    __repr__ = __str__

    def _repr_html_(self) -> Fragment:
        return joined(paragraphs([f"{self.change}:"]), verdict_line(self.verdict), displayed(operator_latex(self.operator)))


Change = Callable[[Expr], Expr]
"""What a term becomes, whose operands have been changed already."""


def nearest(operator: Operator, decide: Callable[[Operator], Verdict], fuses: Callable[[Operator], bool]) -> tuple[Variant, ...]:
    """The variants with one change that fuse; if none does, those with two."""
    changes = {said: change for said, change in _changes(operator) if _changed(operator, [change]) != operator}
    for number in (1, 2):
        tried = {" and ".join(said): _changed(operator, [changes[each] for each in said]) for said in combinations(changes, number)}
        found = [Variant(said, decide(changed)) for said, changed in tried.items() if fuses(changed)]
        if found:
            break
    return tuple(found)


def _changes(operator: Operator) -> Iterator[tuple[str, Change]]:
    """Every change that may be tried, in words."""
    yield "with reassociate=True on its roundings", regrouped
    yield "without its roundings", lambda term: term.args[0] if term.op in ROUNDINGS else term
    for name, default in operator.params.items():
        if default is not None and any(_is_exponent(term, name) for term in subterms(*operator.outputs)):
            number = const(int(default) if float(default).is_integer() else default)
            yield f"with {number} in place of {name}", lambda term, name=name, number=number: number if _is_param(term, name) else term
    yield "without bounds that move", lambda term: _unbounded(term) if term.op in ("maximum", "minimum") else term


def _is_param(term: Expr, name: str) -> bool:
    return term.op == "param" and term.name == name


def _is_exponent(term: Expr, name: str) -> bool:
    return term.op == "power" and any(_is_param(part, name) for part in subterms(term.args[1]))


def _unbounded(term: Expr) -> Expr:
    """An element in place of the larger or smaller of it and something that lacks one of its axes, where pivots meet."""
    wide, narrow = sorted(term.args, key=lambda arg: -len(arg.axes))
    moves = any(part.op == "reduce" for part in subterms(term))
    return wide if moves and set(narrow.axes) < set(wide.axes) else term


def _changed(operator: Operator, changes: Sequence[Change]) -> Operator:
    """The operator with every term changed, and without the parameters that are gone then."""
    outputs = operator.outputs
    for change in changes:
        outputs = tuple(rewritten(output, change) for output in outputs)
    before, after = ({term.name for term in subterms(*each) if term.op == "param"} for each in (operator.outputs, outputs))
    return replace(operator, outputs=outputs, params={name: default for name, default in operator.params.items() if name not in before - after})
