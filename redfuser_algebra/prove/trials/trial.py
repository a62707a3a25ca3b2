"""One experiment: a few elements in up to three parts, on which every statement about a form can be tried.

In: what Hypothesis draws.  Out: states of parts and of their unions, moved and merged; each is computed once.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.prove.trials.arithmetic import EXACT, Arithmetic, Evaluation, Instance
from redfuser_algebra.prove.trials.extended import shown
from redfuser_algebra.prove.trials.online import OnlineCarrier
from redfuser_algebra.prove.trials.parts import Carrier, Held, Part, Values

PARTS = "ABC"


@dataclass(repr=False)
class Trial:
    """`places` are the elements of the parts A, B and C, which together are all elements of the instance.

    `least` is the number of elements that the operator needs to have a value.
    """

    form: FusedForm
    outputs: tuple[Expr, ...]
    instance: Instance
    places: tuple[tuple[int, ...], ...]
    least: int = 1
    arithmetic: Arithmetic = EXACT
    _known: dict[tuple, Part] = field(default_factory=dict)
    _final: dict[str, Values] = field(default_factory=dict)

    @property
    def carrier(self) -> Carrier:
        """The form in the arithmetic of the trial."""
        return (Carrier if self.form.merges else OnlineCarrier)(self.form, self.arithmetic)

    def of(self, letters: str) -> Instance:
        """The elements of some parts, in order."""
        chosen = [place for letter in letters for place in self.places[PARTS.index(letter)]]
        return self.instance.taking(tuple(sorted(chosen)))

    def lifted(self, letters: str, about: str = "") -> Part:
        """The state of some parts, at their own pivots or at those of others."""
        key = ("lifted", letters, about)
        if key not in self._known:
            self._known[key] = self.carrier.lift(self.of(letters), self.lifted(about) if about else None)
        return self._known[key]

    def moved(self, letters: str, *stops: str) -> Part:
        """The state of some parts, moved to the pivots of others, one after the other."""
        key = ("moved", letters, *stops)
        if key not in self._known:
            start = self.moved(letters, *stops[:-1]) if len(stops) > 1 else self.lifted(letters)
            self._known[key] = self.carrier.moved(start, self.lifted(stops[-1]))
        return self._known[key]

    def merged(self, first: str, second: str) -> Part:
        """The merge of two states; a pair in parentheses is merged before: `merged("(AB)", "C")`."""
        key = ("merged", first, second)
        if key not in self._known:
            self._known[key] = self.carrier.merge(*map(self._state, (first, second)))
        return self._known[key]

    def _state(self, name: str) -> Part:
        return self.merged(name[1], name[2]) if name.startswith("(") else self.lifted(name)

    def joined(self, first: str, second: str, about: str) -> Part:
        """Two parts about the same pivots, combined."""
        key = ("joined", first, second, about)
        if key not in self._known:
            a, b = self.lifted(first, about), self.lifted(second, about)
            held = {c.name: self.join(c, a.held[c.name], b.held[c.name]) for c in self.form.state if c.joined is None}
            held |= self.carrier.composed(a.held, b.held, self.lifted("ABC").values.evaluation)
            self._known[key] = Part(held, a.length + b.length, a.values)
        return self._known[key]

    def join(self, component: Component, a: Held, b: Held) -> Held:
        """a ⊕ b."""
        return self.carrier.joined(component, a, b, self.lifted("ABC").values.evaluation)

    def nothing(self, about: str) -> Part:
        """No elements, about the pivots of some."""
        like = self.lifted(about)
        return Part({c.name: self.carrier.identity(c, like.held[c.name]) for c in self.form.state}, 0, like.values)

    def final(self, letters: str) -> Values:
        """The results of some parts."""
        if letters not in self._final:
            self._final[letters] = self.carrier.finalized(self.lifted(letters), self.of(letters))
        return self._final[letters]

    def one_by_one(self) -> Part:
        """The elements merged one after the other, part by part."""
        key = ("one by one",)
        if key not in self._known:
            nothing = self.carrier.lift(self.instance.taking(()))
            self._known[key] = reduce(self.carrier.merge, self.singles(), nothing)
        return self._known[key]

    def singles(self) -> list[Part]:
        """The state of each element alone, part by part."""
        places = [place for group in self.places for place in group]
        for place in places:
            if ("single", place) not in self._known:
                self._known["single", place] = self.carrier.lift(self.instance.taking((place,)))
        return [self._known["single", place] for place in places]

    def ordinary(self) -> bool:
        """Whether every element alone has a finite state: nothing is claimed of log 0 or 0/0 within an element."""
        return all(bool(self.finite(component, part.held[component.name]).all())
                   for part in self.singles() for component in self.form.state)

    def finite(self, component: Component, held: Held) -> np.ndarray:
        """Where a component is finite, or nothing took part; a top-k may have places that nothing fills, and a runner-up may be missing.

        An entry of a matrix may be the zero of its semiring.
        """
        if component.joined is not None:
            zeros = [SEMIRINGS[recurred.semiring].zero for recurred in self.form.recurrences]
            zeros += [component.empty] if self.form.clips else []
            return is_finite(held.value) | ~held.present | np.isin(held.value, zeros)
        if not (MONOIDS[component.monoid].counted or component.takes_over):
            return is_finite(held.value) | ~held.present
        nothing = self.carrier.identity(component, held).value
        return is_finite(held.value) | np.asarray(np.equal(held.value, nothing), bool)

    def as_written(self) -> tuple[np.ndarray, ...]:
        """The outputs of the operator as written."""
        evaluation = Evaluation(self.arithmetic, self.instance)
        return tuple(evaluation.of(output) for output in self.outputs)

    def described(self) -> dict[str, object]:
        """The elements and parts in plain text."""
        arrays = {name: _written(array) for name, array in self.instance.arrays.items()}
        params = {name: str(value) for name, value in self.instance.params.items()}
        parts = {letter: list(places) for letter, places in zip(PARTS, self.places, strict=True)}
        return {"inputs": arrays | params, "parts": parts}


def is_finite(values: np.ndarray) -> np.ndarray:
    """Where values are neither infinite nor NaN; among exact numbers those are Python floats."""
    if values.dtype == object:
        return np.asarray(np.frompyfunc(lambda value: not isinstance(value, float), 1, 1)(values), bool)
    return np.ones(values.shape, bool) if values.dtype == bool else np.isfinite(values)


def _written(array: np.ndarray) -> object:
    """Nested lists of text, without dimensions of size 1."""
    texts = np.empty(array.shape, object)
    for place in np.ndindex(*array.shape):
        texts[place] = shown(array[place]) if array.dtype in (object, bool) else str(array[place])
    return np.squeeze(texts).tolist()
