"""A fused form carried out on parts of a few elements, in exact arithmetic or in floats of one width.

In: a form and Instances.  Out: what a part holds of every component, moved, merged and finalized.  This is the
meaning of a form written down a second time, apart from the interpreter in `run`, so that each can catch the other.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, SMALLEST, STEPS, WON
from redfuser_algebra.discover.ending import ending
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.expr import Expr, call
from redfuser_algebra.language.names import PRIME, pivots_moved, primed, symbol_names
from redfuser_algebra.prove.trials.arithmetic import NOWHERE, Arithmetic, Evaluation, Instance, count, elements, folded, winners


class Incomplete(Exception):
    """A form that speaks of something it does not hold."""


@dataclass(frozen=True)
class Held:
    """What a part holds of a component; positions come with the values they won with."""

    value: np.ndarray
    present: np.ndarray
    won: np.ndarray | None = None


@dataclass(frozen=True)
class Part:
    """The state of some elements, and the values of results and pivots that it implies."""

    held: dict[str, Held]
    length: int
    values: Values


class Values:
    """The symbols of one part: components as they become known, pivots and results computed when first asked for."""

    def __init__(self, form: FusedForm, arithmetic: Arithmetic, instance: Instance, length: int, partial: bool = False) -> None:
        self.evaluation = Evaluation(arithmetic, instance, length, partial)
        self._definitions = dict(form.definitions)
        self._takers = {row.name: ([c.name for c in form.state if c.mask is row.mask], row.monoid) for row in form.results if row.mask is not None}
        self._present: dict[str, np.ndarray] = {}

    def of(self, term: Expr) -> np.ndarray:
        """The value of an expression over components, pivots and results."""
        self.ready(term)
        return self.evaluation.of(term)

    def ready(self, term: Expr) -> None:
        """Bind every symbol in a term.  Raises Incomplete for a component that is not there yet."""
        for name in symbol_names(term):
            self.named(name)

    def named(self, name: str) -> np.ndarray:
        """The value of a symbol."""
        symbols = self.evaluation.symbols
        if name not in symbols:
            definition = self._definitions.pop(name, None)
            if definition is None:
                raise Incomplete(f"{name} is needed, and the state does not hold it at that point")
            symbols[name] = self._or_nothing(name, self.of(definition))
        return symbols[name]

    def _or_nothing(self, name: str, value: np.ndarray) -> np.ndarray:
        """The value of a result, and where no element took part in it, its identity: what else it is made of may have no value there."""
        takers, monoid = self._takers.get(name, ((), ""))
        own = next((self._present[taker] for taker in takers if taker in self._present), None)
        if not monoid or own is None or own.all():
            return value
        return np.where(own, value, self.evaluation.arithmetic.full(MONOIDS[monoid].identity, value.ndim).astype(value.dtype))

    def hold(self, name: str, held: Held) -> None:
        """Bind a component's symbol."""
        self.evaluation.symbols[name], self._present[name] = held.value, held.present
        if held.won is not None:
            self.evaluation.symbols[name + WON] = held.won


class Carrier:
    """A form in one arithmetic: lift, rebase, merge, finalize."""

    def __init__(self, form: FusedForm, arithmetic: Arithmetic) -> None:
        self.form, self.arithmetic = form, arithmetic

    def values(self, instance: Instance, length: int, partial: bool = False) -> Values:
        """No symbols yet."""
        return Values(self.form, self.arithmetic, instance, length, partial)

    def lift(self, instance: Instance, about: Part | None = None) -> Part:
        """The state of all elements of an instance, at their own pivots or at those of another part."""
        values, held = self.values(instance, len(instance.positions)), {}
        whole = self.composed_elements(values)
        for component in self.form.state:
            if about is not None:
                self._bind_pivots(values, component, about)
            held[component.name] = self._lifted(component, values) if component.joined is None else whole[component.name]
            if about is None:
                values.hold(component.name, held[component.name])
        return Part(held, len(instance.positions), values if about is None else about.values)

    def _bind_pivots(self, values: Values, component: Component, about: Part) -> None:
        for name in symbol_names(component.lift, component.mask):
            values.evaluation.symbols[name] = about.values.named(name)

    def _lifted(self, component: Component, values: Values) -> Held:
        evaluation, monoid = values.evaluation, MONOIDS[component.monoid]
        for term in component.operands:
            values.ready(term)
        instance = evaluation.instance
        dim, length = instance.dim(self.form.axis), len(instance.positions)
        mask = None if component.mask is None else evaluation.truth(component.mask)
        present = np.full((1,) * evaluation.ndim, length > 0) if mask is None else mask.any(axis=dim, keepdims=True)
        if not (monoid.indexed or monoid.counted):
            taken = elements(evaluation, component.monoid, component.lift)
            return Held(folded(self.arithmetic, component.monoid, taken, dim, length, mask), present)
        positions = evaluation.along(self.form.axis, instance.positions)
        lift = evaluation.number(component.lift)
        best, at = winners(evaluation, component.monoid, lift, positions, mask, dim, count(evaluation, component.count))
        if monoid.counted:
            made = instance.dim(component.axes[-1])
            best, at = np.swapaxes(best, dim, made), np.swapaxes(at, dim, made)
        return Held(at, present, best) if monoid.indexed else Held(best, present)

    def rebased(self, component: Component, part: Part, onto: Values) -> Held:
        """What a part holds of a component, moved from the pivots its state is about to those of `onto`."""
        held = part.held[component.name]
        if component.fixed:
            return held
        values = self._about(component, part)
        for name in pivots_moved(component.rebase):
            values.evaluation.symbols[name + PRIME] = onto.named(name)
        return replace(held, value=values.of(component.rebase))

    def moved(self, part: Part, onto: Part) -> Part:
        """A part with every component moved to the pivots of another one."""
        held = {component.name: self.rebased(component, part, onto.values) for component in self.form.state}
        return Part(held, part.length, onto.values)

    def _about(self, component: Component, part: Part, partial: bool = False) -> Values:
        """The symbols that a rebase may read: what the part holds, and the pivots its state is about."""
        values = self.values(part.values.evaluation.instance, part.length, partial)
        for name, held in part.held.items():
            values.hold(name, held)
        for name in pivot_names(component):
            values.evaluation.symbols[name] = part.values.named(name)
        return values

    def merge(self, a: Part, b: Part) -> Part:
        """Two states as one, at the pivots of both."""
        if not (a.length and b.length):
            return a if a.length else b
        length, held = a.length + b.length, {}
        merged = self.values(a.values.evaluation.instance, length)
        whole = self.composed(a.held, b.held, merged.evaluation)
        for component in self.form.state:
            moved = [self.rebased(component, part, merged) for part in (a, b)]
            held[component.name] = (
                self.joined(component, *moved, merged.evaluation) if component.joined is None else whole[component.name])
            merged.hold(component.name, held[component.name])
        return Part(held, length, merged)

    def composed(self, a: Mapping[str, Held], b: Mapping[str, Held], evaluation: Evaluation) -> dict[str, Held]:
        """What an earlier and a later part hold together of the ordered components, and of the sums they read."""
        symbols = {name + mark: held.value for part, mark in ((a, ""), (b, PRIME)) for name, held in part.items()}
        joins = {c.name: joined for c in self.form.state if (joined := self._joins.get(c.name)) is not None}
        step = evaluation.with_symbols(symbols)
        return {name: Held(step.number(joined), a[name].present | b[name].present) for name, joined in joins.items()}

    def composed_elements(self, values: Values) -> dict[str, Held]:
        """The elements of an instance composed one after the other; of none, what is there before the first."""
        evaluation, joins = values.evaluation, self._joins
        dim, length = evaluation.instance.dim(self.form.axis), len(evaluation.instance.positions)
        present = np.full((1,) * evaluation.ndim, length > 0)
        components = [component for component in self.form.state if component.name in joins]
        if not length:
            return {c.name: Held(self.arithmetic.full(c.empty, evaluation.ndim), present) for c in components}
        lifts = {c.name: values.evaluation.number(c.lift) for c in components}
        elements = [{name: Held(np.take(lift, [at] if lift.shape[dim] > 1 else [0], dim), present) for name, lift in lifts.items()}
                    for at in range(length)]
        return reduce(lambda a, b: self.composed(a, b, evaluation), elements)

    @cached_property
    def _joins(self) -> dict[str, Expr]:
        """What joins the ordered components and those that they read."""
        own = {c.name: c.joined for c in self.form.state if c.joined is not None}
        read = {name.removesuffix(PRIME) for name in symbol_names(*own.values())}
        return own | {c.name: call(STEPS[c.monoid], c.symbol, primed(c.symbol))
                      for c in self.form.state if c.name in read and c.joined is None}

    def joined(self, component: Component, a: Held, b: Held, evaluation: Evaluation) -> Held:
        """a ⊕ b at the same pivots."""
        present, monoid = a.present | b.present, MONOIDS[component.monoid]
        if not (monoid.indexed or monoid.counted):
            with np.errstate(all="ignore"):
                join = self.arithmetic.joins[component.monoid]
                return Held(np.asarray(join(a.value, b.value), a.value.dtype), present)
        dim = evaluation.instance.dim(component.axes[-1] if monoid.counted else self.form.axis)
        value = _side_by_side(a.value, b.value, dim)
        k = count(evaluation, component.count)
        if not monoid.indexed:
            positions = np.zeros((1,) * evaluation.ndim, int)
            return Held(winners(evaluation, component.monoid, value, positions, None, dim, k)[0], present)
        won, taken = _side_by_side(a.won, b.won, dim), ~np.asarray(np.equal(value, NOWHERE), bool)
        best, at = winners(evaluation, component.monoid, won, value, taken, dim, k)
        return Held(at, present, best)

    def identity(self, component: Component, like: Held) -> Held:
        """What no elements hold of a component, in the shape of what some hold."""
        monoid = MONOIDS[component.monoid]
        lowest = float("inf") if component.monoid in SMALLEST else -float("inf")
        ndim = like.value.ndim
        nothing = np.broadcast_to(
            self.arithmetic.full(monoid.identity if component.joined is None else component.empty, ndim), like.value.shape)
        won = np.broadcast_to(self.arithmetic.full(lowest, ndim), like.value.shape) if monoid.indexed else None
        return Held(nothing, np.zeros(like.present.shape, bool), won)

    def finalized(self, part: Part, instance: Instance) -> Values:
        """Results, and what outputs are made of, at the elements of `instance`.

        No element comes any more: what saw one is moved from p to p with partial operations, and where that is NaN
        goes to p as `ending` says, so that a pivot that ends at ±inf gives what the operator as written gives.
        """
        final = self.values(instance, part.length)
        for component in self.form.state:
            held = part.held[component.name]
            if not component.fixed:
                held = replace(held, value=np.where(held.present, self._ended(component, part, final), held.value))
            final.hold(component.name, held)
        return final

    def _ended(self, component: Component, part: Part, final: Values) -> np.ndarray:
        about = self._about(component, part, partial=True)
        for name in pivot_names(component):
            about.evaluation.symbols[name + PRIME] = final.named(name)
        stayed = about.of(component.rebase)
        stuck = np.asarray(stayed != stayed, bool)
        if not stuck.any():
            return stayed
        end = ending(component.symbol, component.rebase, [each.name for each in self.form.state if each.fixed])
        if end is None:
            return stayed
        about = self._about(component, part, partial=True)
        about.evaluation.symbols |= {name: final.named(name) for name in pivot_names(component)}
        return np.where(stuck, about.of(end[1]), stayed)


def pivot_names(component: Component) -> tuple[str, ...]:
    """The pivots that a component is about."""
    return _pivot_names(component.name, component.rebase, component.lift, component.mask)


@lru_cache(maxsize=1024)
def _pivot_names(own: str, rebase: Expr, lift: Expr, mask: Expr | None) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys((*pivots_moved(rebase), *symbol_names(lift, mask))) if name != own)


def _side_by_side(a: np.ndarray, b: np.ndarray, dim: int) -> np.ndarray:
    return np.concatenate(np.broadcast_arrays(a, b), axis=dim)
