"""Questions as they were asked, so that they can be asked again: with fewer laws, or only those claimed."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from redfuser_algebra.algebra.laws import LAWS
from redfuser_algebra.discover.egraph import Answer, Limits, ask
from redfuser_algebra.discover.rulesets import Content, content
from redfuser_algebra.language.expr import Expr


@dataclass(frozen=True)
class Question:
    """Definitions, the term asked about, the laws allowed, and the answer; `leaves` are the names that terms are made of."""

    lines: tuple[str, ...]
    text: str
    laws: tuple[str, ...]
    answer: Answer
    leaves: Mapping[str, Expr] = field(default_factory=dict, compare=False, repr=False)

    def steps(self) -> Iterator[Answer]:
        """The best answer after 0, 1, 2, … iterations, each asked anew, with the e-graph to look at; the last one is the answer."""
        for iterations in range(self.answer.iterations + 1):
            yield ask(self.lines, self.text, self.laws, Limits(iterations=iterations), look=True)

    def again(self, laws: Iterable[str]) -> Answer:
        """The answer with other laws allowed."""
        return _answer(self.lines, self.text, tuple(map(content, laws)), Limits())

    def recheck(self, laws: Iterable[str]) -> Answer:
        """The answer of a fresh e-graph that holds these laws and no others."""
        return ask(self.lines, self.text, laws, Limits(), fresh=True)


def asked(lines: tuple[str, ...], text: str, laws: tuple[str, ...], limits: Limits, leaves: Mapping[str, Expr]) -> Question:
    """Ask, and keep the question with its answer.

    What is asked again in the same words, as when part of a cascade is searched by itself, is answered from memory.
    """
    return Question(lines, text, laws, _answer(lines, text, tuple(map(content, laws)), limits), leaves)


@lru_cache(maxsize=2048)
def _answer(lines: tuple[str, ...], text: str, laws: tuple[Content, ...], limits: Limits) -> Answer:
    return ask(lines, text, [law.name for law, _ in laws], limits)


def needed_laws(questions: Iterable[Question]) -> tuple[str, ...]:
    """The laws without which some question has no answer as good, found by leaving out one at a time."""
    needed: dict[str, None] = {}
    for question in questions:
        needed.update(dict.fromkeys(_needed(question)))
    return tuple(law for law in LAWS if law in needed)


def _needed(question: Question) -> list[str]:
    order = {law: place for place, law in enumerate(LAWS)}
    used = sorted((law for law in question.answer.fired if law in question.laws), key=lambda law: (order.get(law, len(order)), law))
    kept = list(used)
    for law in used:
        fewer = [other for other in kept if other != law]
        answer = question.again(fewer)
        if answer.finite and answer.cost <= question.answer.cost:
            kept = fewer
    return kept + [law for law in question.answer.fired if law not in question.laws]
