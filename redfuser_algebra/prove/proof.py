"""What can be said about fusing one operator: its certificate, or its refusal with the witness computed again.

In: a verdict, and how thoroughly to test.  Out: a Proof, for people (sections of lines) and for programs (JSON).
"""
from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from redfuser_algebra.discover.show import WIDTH, columns
from redfuser_algebra.prove.certificate import Certificate, Progress, Stopped
from redfuser_algebra.prove.certificate_text import counterexample, counts, loss, page, tested_by, what_was_measured
from redfuser_algebra.prove.evidence import CANNOT, PROVED, REFUTED

if TYPE_CHECKING:
    from redfuser_algebra.discover.refusal import Refusal
    from redfuser_algebra.language.operator import Operator

ESTABLISHED, REFUSED, OPEN, WRONG = "established", "refused", "open", "wrong"


class Certified(Protocol):
    """A fused operator that can be certified."""

    certify: Callable[..., Certificate]


class Verdict(Protocol):
    """What was decided about an operator."""

    operator: Operator
    status: str
    reason: str
    fused: Certified | None
    refusal: Refusal | None


@dataclass(frozen=True)
class Proof:
    """The evidence for a verdict: a certificate of the form, or a refusal.

    `rechecked` says whether the witness of a refusal still proves it (None: there is no witness).  `stopped` is set
    where Ctrl-C left obligations without evidence.
    """

    verdict: Verdict
    certificate: Certificate | None = None
    rechecked: bool | None = None
    stopped: bool = False

    @property
    def standing(self) -> str:
        """ESTABLISHED (certified), REFUSED (with a witness), OPEN (neither), WRONG (something claimed does not hold)."""
        if self.rechecked is False or self.certificate and self.certificate.status == REFUTED:
            return WRONG
        if self.certificate:
            return OPEN if self.stopped or self.certificate.status == "incomplete" else ESTABLISHED
        return REFUSED if self.rechecked else OPEN

    @property
    def headline(self) -> str:
        """The verdict and how it is known."""
        verdict = self.verdict
        known = self.certificate.status if self.certificate else {None: "not proved", True: "proved by a witness, computed again",
                                                                  False: "the witness does not prove it"}[self.rechecked]
        return f"{verdict.operator.name}: {verdict.status} ({verdict.reason}): {known}"

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Titles and lines."""
        if self.certificate:
            yield self.headline, [counts(self.certificate), *str(self.verdict.operator).splitlines()]
            yield from ((title, lines) for title, lines in _told(self.certificate) if lines)
        else:
            yield self.headline, str(self.verdict.operator).splitlines()
            yield "refusal", textwrap.wrap(str(self.verdict.refusal), WIDTH)
            yield from self._witness()

    def _witness(self) -> Iterator[tuple[str, list[str]]]:
        refusal = self.verdict.refusal
        if refusal.witness:
            yield "witness", [line for part in str(refusal.witness).splitlines() for line in textwrap.wrap(part, WIDTH)]
        if refusal.passes:
            yield "passes", [f"{number}: {', '.join(names)}" for number, names in enumerate(refusal.passes, 1)]

    def to_markdown(self) -> str:
        """The certificate or the refusal as Markdown."""
        if self.certificate:
            return self.certificate.to_markdown()
        return "\n\n".join("\n".join([f"## {title}", "", "```", *lines, "```"]) for title, lines in self.sections()) + "\n"

    def record(self) -> dict[str, object]:
        """The certificate as it is read back, or the refusal, as data."""
        if self.certificate:
            return json.loads(self.certificate.to_json())
        refusal = self.verdict.refusal
        return {"operator": str(self.verdict.operator), "status": self.verdict.status, "reason": self.verdict.reason,
                "refusal": str(refusal), "passes": [list(names) for names in refusal.passes],
                "witness": json.loads(refusal.witness.to_json()) if refusal.witness else None, "rechecked": self.rechecked}

    def written(self, suffix: str) -> str:
        """The text of a file of that kind."""
        if suffix == ".json":
            return json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n"
        return self.to_markdown() if suffix == ".md" else page(self.headline, self.certificate, self.sections())


def proved(verdict: Verdict, progress: Progress | None = None, **how: object) -> Proof:
    """Certify the form of a verdict (`how` goes to `certify`), or compute the witness of its refusal again."""
    if verdict.fused is None:
        witness = verdict.refusal.witness
        return Proof(verdict, rechecked=witness.recheck() if witness else None)
    try:
        return Proof(verdict, verdict.fused.certify(progress=progress, **how))
    except Stopped as stopped:
        return Proof(verdict, stopped.certificate, stopped=True)


def _told(c: Certificate) -> Iterator[tuple[str, list[str]]]:
    """What a terminal shows of a certificate: every obligation in a line, what is open or wrong, what floats lose."""
    yield "obligations", columns([["obligation", "proved", "tested"], *(
        [row.id, ", ".join(e.checker for e in row.by(PROVED)) or "follows" * (row.id in c.proved), tested_by(row)]
        for row in c.rows if row.evidence)])
    yield "refuted", [f"{row.id}: {row.statement}: {counterexample(row)}" for row in c.refuted]
    yield "limits", [f"{row.id}: {counterexample(row)}" for row in c.limits]
    yield "not looked at", [f"{row.id}: {row.statement}" for row in c.unseen]
    yield "not decided", [f"{row.id}: {row.statement}" for row in c.rows if row.evidence and row.verdict == CANNOT]
    yield "what floats lose far from 0", [line for row in c.rows if loss(row) for line in textwrap.wrap(what_was_measured(row), WIDTH)]
    yield "dangers", list(c.dangers)
    yield f"seed {c.seed}, {c.examples} examples", [f"hash {c.hash}"]
