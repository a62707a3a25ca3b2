"""Evidence: what one checker says about one obligation.  Proved and tested are different words."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROVED, TESTED, REFUTED, CANNOT = "proved", "tested", "refuted", "cannot decide"
VERDICTS = (PROVED, TESTED, REFUTED, CANNOT)


@dataclass(frozen=True)
class Evidence:
    """A checker's verdict, with what it rests on: examples, seed, radius, laws, a counterexample, a reason.

    `measured` holds figures that depend on the machine; they are shown, and no part of a certificate's hash.
    """

    checker: str
    verdict: str
    detail: Mapping[str, object] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One obligation of a certificate, in words and in LaTeX, with everything the checkers say about it."""

    id: str
    kind: str
    statement: str
    latex: str
    conditions: tuple[str, ...] = ()
    follows_from: tuple[str, ...] = ()
    limit: bool = False
    evidence: tuple[Evidence, ...] = ()

    @property
    def verdict(self) -> str:
        """The strongest thing said: refuted, else proved, else tested; cannot decide if nobody could."""
        said = {evidence.verdict for evidence in self.evidence}
        return next((verdict for verdict in (REFUTED, PROVED, TESTED) if verdict in said), CANNOT)

    def by(self, verdict: str) -> list[Evidence]:
        """The evidence with this verdict."""
        return [evidence for evidence in self.evidence if evidence.verdict == verdict]
