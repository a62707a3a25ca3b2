"""Forms, refusals and verdicts as notebooks show them.

In: what was decided.  Out: HTML with LaTeX between dollar signs.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redfuser_algebra.discover.show import form_latex, summary
from redfuser_algebra.language.html import (
    Fragment, displayed, element, folded, formula, joined, listed, paragraphs, preformatted, said, table, titled)
from redfuser_algebra.language.latex import latex, name_latex, operator_latex
from redfuser_algebra.language.tidy import tidied

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm
    from redfuser_algebra.discover.refusal import Refusal
    from redfuser_algebra.discover.report import Verdict
    from redfuser_algebra.language.operator import Operator

COLOURS = {"fusable": "#2e8b57", "partly": "#b8860b", "not fusable": "#c0392b", "undecided": "#7f8c8d"}


def verdict_html(verdict: Verdict) -> Fragment:
    """The verdict, the operator, its cascades, then the update rule or the refusal."""
    told = [verdict_line(verdict), displayed(operator_latex(verdict.operator))]
    told += [found.cascade._repr_html_() for found in verdict.discoveries]
    if verdict.fused:
        told.append(form_html(verdict.fused.form))
    if verdict.refusal:
        told.append(refusal_html(verdict.refusal))
    if not verdict.fused:
        told.append(paragraphs(["What to do: in_passes() of this verdict runs the operator in as few passes as can be; "
                                "nearest() looks for variants that fuse."]))
    return joined(*map(Fragment, told))


def verdict_line(verdict: Verdict) -> Fragment:
    """What was decided, in a line."""
    dot = element("span", "● ", style=f"color:{COLOURS[verdict.status]}")
    return element("div", dot, element("b", f"{verdict.operator.name}: {verdict.status} ({verdict.reason})"))


def form_html(form: FusedForm) -> Fragment:
    """What one more element does, and what to beware of; the form itself has the rest."""
    dangers = list(dict.fromkeys(map(str, form.dangers)))
    return joined(titled(f"Fused: {summary(form)}", displayed(form_latex(form))), titled("Dangers", listed(dangers)))


def refusal_html(refusal: Refusal) -> Fragment:
    """The reduction that is stuck, on what, the passes that the operator needs, and the witness."""
    return joined(stuck_html(refusal), _witness(refusal))


def stuck_html(refusal: Refusal) -> Fragment:
    """The reduction that is stuck, on what, and the passes that the operator needs."""
    reduction = refusal.reduction
    rows = [["reduction", joined(formula(name_latex(reduction.name)), " = ", formula(latex(tidied(reduction.stated))))],
            ["what failed", said(refusal.obligation)]]
    if refusal.residual is not None:
        rows.append(["left over", formula(latex(tidied(refusal.residual)))])
    rows += [[joined("pivot ", formula(name_latex(name))), formula(latex(tidied(value)))] for name, value in refusal.pivots.items()]
    if refusal.passes:
        rows.append(["passes needed", "; ".join(f"{number}: {', '.join(names)}" for number, names in enumerate(refusal.passes, 1))])
    return titled("Refused", table(("", ""), rows))


def _witness(refusal: Refusal) -> Fragment:
    if refusal.witness is None:
        return paragraphs(["No witness was found: this is not a proof that there is no fused form."])
    sentences = re.sub(r"(?<![.:])\n", " ", str(refusal.witness)).splitlines()
    return folded("Witness: numbers that no fused form can fit", paragraphs(sentences), unfolded=True)


def fused_html(operator: Operator, form: FusedForm) -> Fragment:
    """An operator as written, and in one pass."""
    return joined(titled(operator.name, displayed(operator_latex(operator))), form_html(form), folded("All of the fused form", preformatted(form)))
