"""The facts a form states, as relations between its terms, so that they can be checked.

In: a fused form.  Out: one Claim per fact that is a relation; dangers and domains are warnings, and a scaling is an
obligation of its own.
"""
from __future__ import annotations

from dataclasses import dataclass

from redfuser_algebra.discover.form import FusedForm
from redfuser_algebra.language.expr import Expr

NO_RELATIONS = ("danger", "domain", "scale")
"""Kinds of facts that state no relation."""


@dataclass(frozen=True)
class Claim:
    """`left` `relation` `right` for every element that takes part; "bounded" says that right = 0 leaves only left = 0."""

    kind: str
    left: Expr
    relation: str
    right: Expr
    statement: str


def claims(form: FusedForm) -> tuple[Claim, ...]:
    """The facts of a form as relations.  A fact that is none is left out; `unread` lists those."""
    return tuple(claim for claim in _read(form) if isinstance(claim, Claim))


def unread(form: FusedForm) -> tuple[str, ...]:
    """The facts that are not relations between terms of the form."""
    return tuple(claim for claim in _read(form) if isinstance(claim, str))


def _read(form: FusedForm) -> list[Claim | str]:
    facts = [fact for fact in dict.fromkeys(form.facts) if fact.kind not in NO_RELATIONS]
    return [Claim(fact.kind, *fact.about, fact.statement) if fact.about else fact.statement for fact in facts]
