"""The checker that derives: every question behind a form is asked again with as few laws as will do.

In: a cascade and its form.  Out: evidence that the form's rebase rules and results are what these laws give, and the
laws.  What is proved here is proved relative to the rows of the law table, which are tested on values.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from redfuser_algebra.algebra.laws import LAWS
from redfuser_algebra.discover.asking import Settings
from redfuser_algebra.discover.discovery import discover
from redfuser_algebra.discover.form import Component, FusedForm, Pivot, Result
from redfuser_algebra.discover.question import Question, needed_laws
from redfuser_algebra.language.cascade import Cascade
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.evidence import CANNOT, PROVED, Evidence
from redfuser_algebra.prove.obligations import Obligation

CHECKER = "e-graph"
STYLES = ("centred", "raw")
OVER = "the reals, where no divisor is 0, relative to the rows of the law table"


@dataclass(frozen=True)
class Derivation:
    """What a cascade's form is when only these laws are allowed; `confirmed` if fresh e-graphs gave every answer again."""

    form: FusedForm | None
    laws: tuple[str, ...]
    questions: int
    confirmed: bool


def derived(cascade: Cascade, assume: tuple[Expr, ...], form: FusedForm, obligations: Sequence[Obligation], laws: list[str],
            told: Callable[[int, int], None] = lambda done, whole: None) -> Iterator[tuple[str, Evidence]]:
    """The ids of rebase rules and results with the evidence; the laws that they rest on are added to `laws`."""
    needed: dict[str, None] = {}
    confirmed = True
    for number, question in enumerate(form.trace, 1):
        confirmed = _again(question, needed) and confirmed
        told(number, len(form.trace))
    laws += [law for law in LAWS if law in needed]
    found = _derivation(cascade, (*assume, *form.assumptions), form, tuple(laws), confirmed)
    yield from ((o.id, _evidence(o, form, found)) for o in obligations if o.kind in ("rebase", "readout") and not o.follows_from)


def _again(question: Question, needed: dict[str, None]) -> bool:
    """Whether a fresh e-graph has as good an answer, with the laws needed so far or with those this question adds."""
    if not question.answer.finite:
        return True
    needed.update(dict.fromkeys(law for law in question.answer.fired if law not in question.laws))
    if not _answered(question, needed):
        needed.update(dict.fromkeys(needed_laws((question,))))
        return _answered(question, needed)
    return True


def _answered(question: Question, laws: dict[str, None]) -> bool:
    answer = question.recheck([law for law in laws if law in question.laws])
    return answer.finite and answer.cost <= question.answer.cost


def _derivation(cascade: Cascade, assume: tuple[Expr, ...], form: FusedForm, laws: tuple[str, ...],
                confirmed: bool) -> Derivation:
    """The form that the search finds with these laws; or, if that is another one, with all that had a say."""
    fired = tuple(law for law in LAWS if any(law in question.answer.fired for question in form.trace))
    for style, allowed in product(STYLES, (laws, fired)):
        without = frozenset(name for name, law in LAWS.items() if name not in allowed and law.role != "normal form")
        found = discover(cascade, assume, Settings(prefer=style, without=without)).form
        if found is not None and _same_state(found, form):
            return Derivation(found, allowed, len(form.trace), confirmed)
    return Derivation(None, laws, len(form.trace), confirmed)


def _same_state(a: FusedForm, b: FusedForm) -> bool:
    """Whether two forms carry the same reductions."""
    return len(a.state) == len(b.state) and all(
        x.name == y.name and x.monoid == y.monoid and x.lift is y.lift and x.mask is y.mask
        for x, y in zip(a.state, b.state, strict=True))


def _evidence(obligation: Obligation, form: FusedForm, found: Derivation) -> Evidence:
    if found.form is None:
        return Evidence(CHECKER, CANNOT, {"reason": "with the laws of the form the search gives another state"})
    if not found.confirmed:
        return Evidence(CHECKER, CANNOT, {"reason": "a fresh e-graph with these laws did not give the answer again"})
    if not _stated(obligation, form, found.form):
        return Evidence(CHECKER, CANNOT, {"reason": "the laws give another formula"})
    return Evidence(CHECKER, PROVED, {"laws": list(found.laws), "questions": found.questions, "over": OVER})


def _stated(obligation: Obligation, form: FusedForm, derived: FusedForm) -> bool:
    """Whether what the form states is, term for term, what was derived: the formula, and what its pivots mean."""
    pairs = [(form.pivots, derived.pivots), (form.results, derived.results)]
    if obligation.kind == "rebase":
        name = obligation.about[0]
        pairs.append(([form.component(name)], [derived.component(name)]))
    return all(len(a) == len(b) and all(x.name == y.name and _formula(x) is _formula(y) for x, y in zip(a, b, strict=True))
               for a, b in pairs)


def _formula(row: Component | Pivot | Result) -> Expr:
    return row.rebase if isinstance(row, Component) else row.value
