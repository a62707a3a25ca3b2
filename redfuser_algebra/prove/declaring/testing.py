"""Trying a property on examples: a record of what held, or the simplest example that refutes it.

In: what is claimed, a strategy for examples, and how one of them is looked at.  Out: Record, or FalseDeclaration.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.prove.declaring.law_values import Numbers, Undefined, Unfit, plain


class FalseDeclaration(RedfuserError):
    """A declared property that does not hold; `counterexample` maps variables to the values that show it."""

    def __init__(self, asked: str, failed: str, remedy: str, counterexample: dict[str, object]) -> None:
        super().__init__(asked, failed, remedy)
        self.counterexample = counterexample
        self.args = (asked, failed, remedy, counterexample)


@dataclass(frozen=True)
class Record:
    """A claim that held on so many examples of these numbers; the seed draws them again."""

    claim: str
    numbers: str
    examples: int
    seed: int

    def __str__(self) -> str:
        return f"{self.claim}: tested on {self.examples} examples of {self.numbers} (seed {self.seed})"


@dataclass(frozen=True)
class Seen:
    """One example: the values, what was compared, and whether the claim holds there."""

    values: Mapping[str, np.ndarray]
    found: tuple[np.ndarray, ...]
    holds: bool


@dataclass(frozen=True)
class Property:
    """What is claimed, which examples it is tried on, and how one of them is looked at (it may raise Undefined, Unfit)."""

    text: str
    drawn: Callable[[Numbers], st.SearchStrategy]
    look: Callable[[Numbers, object], Seen]
    remedy: str


class Examiner:
    """The claims of one declaration, tried one after the other; `tested` is the record."""

    def __init__(self, about: str, examples: int, seed: int) -> None:
        if not isinstance(examples, int) or examples < 1:
            raise OperatorError(f"declaring {about} with examples={examples!r:.40}", "that is no number of examples",
                                "give a whole number of at least 1")
        self.about, self.examples, self.seed = about, examples, seed
        self.tested: list[Record] = []

    def check(self, stated: Property, kinds: tuple[Numbers, ...]) -> None:
        """Record that a claim holds on the first kind of number that fits.

        Raises FalseDeclaration, and OperatorError if no kind fits or no example gave it a value.
        """
        for numbers in kinds:
            try:
                self.tested.append(Record(stated.text, numbers.name, self._held(stated, numbers), self.seed))
                return
            except Unfit as error:
                unfit = error
        raise OperatorError(f"declaring {self.about}", f"no numbers fit {stated.text} ({unfit})",
                            "use functions that take the same kind of numbers") from unfit

    def _held(self, stated: Property, numbers: Numbers) -> int:
        """On how many examples a claim held.  Raises FalseDeclaration."""
        held = 0

        def refutes(example: object) -> bool:
            nonlocal held
            try:
                holds = stated.look(numbers, example).holds
            except Undefined:
                return False
            held += holds
            return not holds

        try:
            found = find(stated.drawn(numbers), refutes, settings=self._settings(), random=Random(self.seed))
        except NoSuchExample:
            if held:
                return held
            raise OperatorError(f"declaring {self.about}", f"{stated.text} could not be tried: no example gave it a value",
                                "state it for values at which it is defined") from None
        raise self._refuted(stated, stated.look(numbers, found))

    def _refuted(self, stated: Property, seen: Seen) -> FalseDeclaration:
        values = {name: plain(value) for name, value in seen.values.items()}
        given = ", ".join(f"{name} = {told(value)}" for name, value in values.items())
        got = " and ".join(told(plain(value)) for value in seen.found)
        return FalseDeclaration(f"declaring {self.about}", f"{stated.text} is false for {given}: it gives {got}",
                                stated.remedy, values)

    def _settings(self) -> settings:
        return settings(max_examples=self.examples, database=None, deadline=None, verbosity=Verbosity.quiet,
                        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck))


def told(value: object) -> str:
    """A number, or a list of numbers, as a person writes it."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
