"""Cascades and reductions as notebooks show them.

In: a cascade.  Out: HTML with LaTeX between dollar signs.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.html import Fragment, formula, joined, said, table, titled
from redfuser_algebra.language.latex import latex, name_latex
from redfuser_algebra.language.mathematics import output_names
from redfuser_algebra.language.tidy import tidied

if TYPE_CHECKING:
    from redfuser_algebra.language.cascade import Cascade


def cascade_html(cascade: Cascade) -> Fragment:
    """The reductions in order with what each waits for, then the outputs."""
    passes = "1 pass" if cascade.depth == 1 else f"{cascade.depth} passes"
    count = "1 reduction" if len(cascade.reductions) == 1 else f"{len(cascade.reductions)} reductions"
    rows = [[formula(name_latex(r.name)), formula(latex(tidied(r.stated))), ", ".join(symbols_in(r.stated)) or "nothing"]
            for r in cascade.reductions]
    names = output_names(cascade.outputs, cascade.axis)
    rows += [[said(name), formula(latex(tidied(output))), ", ".join(symbols_in(output)) or "nothing"]
             for name, output in zip(names, cascade.outputs, strict=True)]
    return titled(joined("Cascade over ", cascade.axis, f": {count}, {passes} as written"), table(("result", "definition", "waits for"), rows))


def symbols_in(*exprs: Expr) -> list[str]:
    """The names of the results in expressions."""
    return list(dict.fromkeys(term.name for term in subterms(*exprs) if term.op == "symbol"))
