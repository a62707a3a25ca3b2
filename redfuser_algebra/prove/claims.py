"""The facts a form states, read back as relations between its terms, so that they can be checked.

In: a fused form.  Out: one Claim per fact that is a relation; dangers are warnings, not claims.
"""
from __future__ import annotations

from dataclasses import dataclass

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.expr import Expr, const, subterms, symbol

PRIME = "'"
_RELATIONS = (" ≤ ", " ≥ ", " > ")
_BOUNDED = " is at most a fixed multiple of "


@dataclass(frozen=True)
class Claim:
    """`left` `relation` `right` for every element that takes part; "bounded" says that right = 0 leaves only left = 0."""

    kind: str
    left: Expr
    relation: str
    right: Expr
    statement: str


def claims(form: FusedForm) -> tuple[Claim, ...]:
    """The facts of a form as relations.  A fact that cannot be read back is left out; `unread` lists those."""
    return tuple(claim for claim in _read(form) if isinstance(claim, Claim))


def unread(form: FusedForm) -> tuple[str, ...]:
    """The facts that are not relations between terms of the form."""
    return tuple(claim for claim in _read(form) if isinstance(claim, str))


def _read(form: FusedForm) -> list[Claim | str]:
    terms = _terms(form)
    facts = [fact for fact in dict.fromkeys(form.facts) if fact.kind != "danger"]
    return [_claim(fact.kind, fact.statement, terms) or fact.statement for fact in facts]


def _claim(kind: str, statement: str, terms: dict[str, Expr]) -> Claim | None:
    head = statement.split(": ")[0]
    if _BOUNDED in head:
        left, right = head.split(_BOUNDED)
        return _related(kind, left.strip("|"), "bounded", right, statement, terms)
    for relation in _RELATIONS:
        left, found, right = head.rpartition(relation)
        if found:
            claim = _related(kind, left, relation.strip(), right, statement, terms)
            return _of_exponent(claim) if claim and kind == "bound" else claim
    return None


def _related(kind: str, left: str, relation: str, right: str, statement: str, terms: dict[str, Expr]) -> Claim | None:
    known = left in terms and right in terms
    return Claim(kind, terms[left], relation, terms[right], statement) if known else None


def _of_exponent(claim: Claim) -> Claim:
    """exp(a) ≤ 1 as what it rests on, a ≤ 0."""
    return Claim(claim.kind, claim.left.args[0], "≤", const(0), claim.statement)


def _terms(form: FusedForm) -> dict[str, Expr]:
    """Every term of the form by its text, old and new pivots and the bodies of anchors included."""
    formulas = [expr for c in form.state for expr in (c.lift, c.mask, c.rebase) if expr is not None]
    formulas += [row.value for row in (*form.pivots, *form.results)] + list(form.outputs)
    names = {name: axes for name, axes in form.symbol_axes.items()}
    symbols = [symbol(name + prime, axes) for name, axes in names.items() for prime in ("", PRIME)]
    terms = [*symbols, *subterms(*formulas), const(0), const(1)]
    return {repr(term): term for term in terms}
