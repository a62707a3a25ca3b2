"""Asking the e-graph about one cascade: terms in, answers out, every question kept with its answer."""
from __future__ import annotations

from dataclasses import dataclass

from redfuser_algebra.discover.decode import Decoder
from redfuser_algebra.discover.egraph import Answer, Limits, Sexp
from redfuser_algebra.discover.encode import Encoder
from redfuser_algebra.discover.facts import Facts
from redfuser_algebra.discover.question import Question, asked
from redfuser_algebra.discover.rulesets import relevant
from redfuser_algebra.language.expr import Expr, symbol


@dataclass(frozen=True)
class Settings:
    """How to search: limits, raw or centred states, and laws to leave out."""

    limits: Limits = Limits()
    prefer: str = "centred"
    without: frozenset[str] = frozenset()


class Unmoved(Exception):
    """A question whose answer still has a reduction in it: `residual` is what the laws could not take apart."""

    def __init__(self, residual: Expr | None, reason: str, exhausted: bool = False) -> None:
        super().__init__(reason)
        self.residual, self.reason, self.exhausted = residual, reason, exhausted


@dataclass(frozen=True)
class Asked:
    """An answer with what is needed to read it."""

    answer: Answer
    decoder: Decoder

    def found(self) -> Asked:
        """The same, if no reduction is left in the answer.  Raises Unmoved."""
        if self.answer.finite:
            return self
        raise Unmoved(_residual(self.answer.term, self.decoder), "a pivot could not be moved out of the elements",
                      not self.answer.saturated)


class Asker:
    """Questions about the reductions of one cascade.  `questions` keeps them all."""

    def __init__(self, axis: str, facts: Facts, settings: Settings) -> None:
        self.axis, self.facts, self.settings = axis, facts, settings
        self.questions: list[Question] = []
        self._masks: dict[Expr | None, str] = {None: ""}

    def moving(self, monoid: str, body: Expr, mask: Expr | None, style: str) -> Asked:
        """⊕ body at new pivots, over what is kept at old ones."""
        encoder = Encoder(self.axis, self.facts.under(mask), linear=monoid == "sum")
        return self.ask(encoder, monoid, encoder.term(body), mask, style)

    def still(self, mask: Expr | None) -> Encoder:
        """An encoder for which pivots stand still."""
        return Encoder(self.axis, self.facts.under(mask), moving=False)

    def ask(self, encoder: Encoder, monoid: str, body: str, mask: Expr | None, style: str) -> Asked:
        """⊕ of an encoded body under the laws of a style, "centred" or "raw"."""
        roles = frozenset(("always", style) if monoid == "sum" else ("always", style, "ordered"))
        laws = tuple(law.name for law in relevant(frozenset(encoder.names | {monoid}), roles, self.settings.without))
        question = asked(tuple(encoder.lines), self.reduction(monoid, mask, body), laws, self.settings.limits, encoder.leaves)
        self.questions.append(question)
        return Asked(question.answer, encoder.decoder())

    def reduction(self, monoid: str, mask: Expr | None, body: str) -> str:
        """⊕ of an encoded body, as text of the e-graph's language."""
        name = self._masks.setdefault(mask, f"mask{len(self._masks)}")
        return f'(Red "{monoid}" "{name}" {body})'


def _residual(term: Sexp, decoder: Decoder) -> Expr | None:
    """The smallest reduction that is left in a stuck answer, as an expression."""
    found: list[Sexp] = []

    def walk(part: Sexp) -> None:
        if isinstance(part, tuple):
            if part and part[0] == "Red":
                found.append(part)
            for inner in part:
                walk(inner)

    walk(term)
    if not found:
        return None
    smallest = min(found, key=lambda part: len(str(part)))
    return decoder.expr(smallest[3], lambda kept: symbol("kept"))
