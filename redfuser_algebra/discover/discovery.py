"""Discovery: a cascade in, its fused form or a refusal out.

The search is tried as declared.  If it is stuck and elements see the length of the axis by itself, it is tried with
the length known beforehand, of which the form then has a guard; if that does not help, once more as if inputs and
parameters were positive, and then the form says so in its assumptions.  Where nothing merges, a form may still be online.
"""
from __future__ import annotations

import time
from dataclasses import dataclass, replace

from redfuser_algebra.algebra.laws import LAWS
from redfuser_algebra.discover.asking import Settings
from redfuser_algebra.discover.build import built
from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.discover.length_given import length_given
from redfuser_algebra.discover.online import online
from redfuser_algebra.discover.products import with_scaled_products
from redfuser_algebra.discover.question import Question
from redfuser_algebra.discover.refusal import Refusal, refused
from redfuser_algebra.discover.scaling import scaled
from redfuser_algebra.discover.search import Search, Stuck
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import Expr, call, subterms


@dataclass(frozen=True)
class Discovery:
    """What was found for one cascade: a form, or a refusal, with the questions asked and the time taken (seconds).

    There are both where a form is online: the refusal is that of merging its parts.
    """

    cascade: Cascade
    form: FusedForm | None
    refusal: Refusal | None
    trace: tuple[Question, ...]
    seconds: float

    @property
    def nodes(self) -> int:
        """The size of the largest e-graph."""
        return max((question.answer.nodes for question in self.trace), default=0)

    @property
    def moves_rounding(self) -> bool:
        """Whether some answer rests on a law that moves a rounding."""
        return any(LAWS[law].tag == "rounding" for question in self.trace for law in question.answer.fired)


def discover(cascade: Cascade, assume: tuple[Expr, ...] = (), settings: Settings = Settings()) -> Discovery:
    """The fused form of a cascade, or why there is none."""
    start = time.perf_counter()
    search, known = Search(cascade, assume, settings), length_given(cascade)
    try:
        search.run()
        return Discovery(cascade, with_scaled_products(scaled(built(search))), None, tuple(search.questions), time.perf_counter() - start)
    except Stuck as stuck:
        refusal = refused(stuck, search)
        form, trace, again = _searched(known, assume, settings) if known else (None, (), None)
        refusal = again or refusal
        if form is None:
            form, hopeful = _conditional(known or cascade, assume, settings)
            trace += hopeful
        form = form or online(cascade, assume)
        return Discovery(cascade, form, None if form and form.merges else refusal, (*search.questions, *trace), time.perf_counter() - start)


def _searched(
    cascade: Cascade, assume: tuple[Expr, ...], settings: Settings
) -> tuple[FusedForm | None, tuple[Question, ...], Refusal | None]:
    """The form of a cascade, if the search finds one, the questions asked, and else why there is none."""
    search = Search(cascade, assume, settings)
    try:
        search.run()
        return with_scaled_products(scaled(built(search))), tuple(search.questions), None
    except Stuck as stuck:
        return None, tuple(search.questions), refused(stuck, search)


def _conditional(
    cascade: Cascade, assume: tuple[Expr, ...], settings: Settings
) -> tuple[FusedForm | None, tuple[Question, ...]]:
    """The form under as few assumptions x > 0 on inputs and parameters as will do, and the questions asked for it."""
    declared = {condition.args[0] for condition in assume if condition.args}
    parts = [part for r in cascade.reductions for part in r.elements]
    leaves = [term for term in subterms(*parts) if term.op in ("input", "param") and term not in declared]
    assumed = [call("greater", leaf, 0) for leaf in leaves]
    questions: list[Question] = []

    def form(conditions: list[Expr]) -> FusedForm | None:
        found, asked, _ = _searched(cascade, (*assume, *conditions), settings)
        questions.extend(asked)
        return found and replace(found, assumptions=tuple(conditions))

    found = form(assumed)
    for condition in list(assumed) if found else ():
        fewer = [other for other in assumed if other is not condition]
        smaller = form(fewer)
        if smaller:
            found, assumed = smaller, fewer
    return found, tuple(questions)
