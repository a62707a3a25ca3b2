"""The interpreter of a fused form: lift a chunk to a state, merge two states, finalize, and sweep the maps.

In: a FusedForm and Environments (whole or one chunk of the axis).  Out: laid-out arrays.  The formulas of the form
are evaluated as they stand; nothing here repairs a form that lacks a guard.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.discover.ending import ending
from redfuser_algebra.discover.late_starts import AT_THE_END, state_after, waits
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, pivots_moved, symbol_names
from redfuser_algebra.run.environment import Environment, stretched, whole_number
from redfuser_algebra.run.evaluate import Evaluation, evaluate, nothing_to_choose_from, too_few
from redfuser_algebra.run.ordered import joined_elements, joined_parts
from redfuser_algebra.run.recurrence import stepped
from redfuser_algebra.run.reductions import NO_POSITION, combined, winner, winners

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import Component, FusedForm


@dataclass(frozen=True)
class Held:
    """What a part holds of one component: its value, laid out with size 1 along the reduced axis.

    `present` says where any element took part.  Positions (argmax, argtopk) come with the values they won with.
    """

    value: np.ndarray
    present: np.ndarray
    won: np.ndarray | None = None


@dataclass(frozen=True)
class State:
    """The state of a part of the axis: every component, how many elements it saw, and where it starts.

    `environment` keeps the inputs and parameters that do not vary along the axis.  `means` are the pivots that are
    means, as they were carried here; where one is missing its formula says what it is.
    """

    components: dict[str, Held]
    length: int
    start: int
    environment: Environment
    means: dict[str, np.ndarray] = field(default_factory=dict)


class _Values:
    """The symbols of one part: components as they become known, results and pivots computed when first asked for."""

    def __init__(self, form: FusedForm, environment: Environment) -> None:
        self.definitions = form.definitions
        self.monoids = {row.name: row.monoid for row in form.results if row.monoid not in ("", "compose")}
        self.takers = {row.name: {c.name for c in form.state if c.mask is row.mask} for row in form.results}
        self.present: dict[str, np.ndarray] = {}
        self.evaluation = Evaluation(replace(environment, symbols={}))
        self.symbols = self.evaluation.environment.symbols
        self.means = {pivot.name: pivot.mean for pivot in form.pivots if pivot.mean is not None}
        self.carry: Callable[[str, np.ndarray], np.ndarray] = lambda name, value: value

    def of(self, expr: Expr) -> np.ndarray:
        """The value of an expression over components, pivots and results."""
        for name in symbol_names(expr):
            self.named(name)
        return self.evaluation.of(expr)

    def hold(self, name: str, held: Held) -> None:
        """Bind a component's symbol, and for positions the symbol of the values they won with."""
        self.symbols[name], self.present[name] = held.value, held.present
        if held.won is not None:
            self.symbols[name + WON] = held.won

    def named(self, name: str) -> np.ndarray:
        """The value of a symbol.  Raises OperatorError for a component that is not known yet."""
        if name not in self.symbols:
            if name not in self.definitions:
                raise OperatorError(
                    f"the value of {name!r} in a fused form", "it is no component before this one, result or pivot",
                    "order the components so that each needs only earlier ones")
            value = self._or_nothing(name, self.of(self.definitions[name]))
            self.symbols[name] = self.carry(name, value) if name in self.means else value
        return self.symbols[name]

    def _or_nothing(self, name: str, value: np.ndarray) -> np.ndarray:
        """The value of a result, and where no element took part in it, its identity: pivots may have no value there."""
        own = [self.present[part] for part in self.takers.get(name, ()) if part in self.present]
        if name not in self.monoids or not own or own[0].all():
            return value
        return np.where(own[0], value, np.asarray(MONOIDS[self.monoids[name]].identity, value.dtype))


def identity(form: FusedForm, chunk: Environment) -> State:
    """The state of no elements."""
    invariant = _invariant(form, chunk)
    if not form.merges:
        return State({c.name: _whole(evaluate([c.start], invariant)[0], invariant) for c in form.state}, 0, chunk.starts.get(form.axis, 0), invariant)
    return State({c.name: _nothing(c, invariant) for c in form.state}, 0, chunk.starts.get(form.axis, 0), invariant)


def lift(form: FusedForm, chunk: Environment) -> State:
    """The state of all elements of a chunk (pivots from the chunk itself); of an empty chunk, the identity."""
    if chunk.sizes[form.axis] == 0 or not form.merges:
        return advanced(form, identity(form, chunk), chunk)
    values, components = _Values(form, chunk), {}
    values.carry = lambda name, value: _corrected(values, name, value)
    ordered = joined_elements(form, chunk, values.of)
    for component in form.state:
        components[component.name] = held = (
            _whole(ordered[component.name], chunk) if component.name in form.joined_names else _lifted(form, component, values))
        values.hold(component.name, held)
    means = {name: values.named(name) for name in values.means}
    return State(components, chunk.sizes[form.axis], chunk.starts.get(form.axis, 0), _invariant(form, chunk), means)


def merge(form: FusedForm, a: State, b: State) -> State:
    """a ⊕ b: both are moved to the merged pivots, component by component.  For ordered forms a comes first."""
    if not (a.length and b.length):
        return a if a.length else b
    if not form.merges:
        raise OperatorError("a merge of two parts", "this form is online: what a part makes depends on all before it",
                            "feed one stream the elements in their order, or cut the work along another axis")
    return merge_seen(form, a, b)[0]


def advanced(form: FusedForm, before: State, chunk: Environment) -> State:
    """The state after a chunk that follows those of `before`."""
    if form.merges:
        return merge(form, before, lift(form, chunk)) if chunk.sizes[form.axis] else before
    values = [before.components[name].value for name in form.steps]
    with np.errstate(all="ignore"):
        for values in stepped(Evaluation(chunk), form.axis, [*form.steps], values, [*form.steps.values()]):
            pass
    components = {name: _whole(value, chunk) for name, value in zip(form.steps, values, strict=True)}
    return replace(before, components=components, length=before.length + chunk.sizes[form.axis])


def merge_seen(form: FusedForm, a: State, b: State) -> tuple[State, tuple[dict[str, Held], dict[str, Held]]]:
    """a ⊕ b of parts that are not empty, and what it is made of: the components of either part at the merged pivots."""
    length = a.length + b.length
    parts = [_part_values(form, part) for part in (a, b)]
    merged = _Values(form, replace(a.environment, lengths={form.axis: length}))
    merged.carry = lambda name, value: _between(merged, *parts, name, value)
    components, moved = {}, ({}, {})
    ordered = joined_parts(form, a.environment, *({name: held.value for name, held in part.components.items()} for part in (a, b)))
    for component in form.state:
        for part, values, own in zip((a, b), parts, moved, strict=True):
            own[component.name] = replace(part.components[component.name], value=_rebased(component, values, merged))
        components[component.name] = held = (
            _whole(ordered[component.name], a.environment) if component.name in form.joined_names
            else _joined(form, component, a.environment, *(own[component.name] for own in moved)))
        merged.hold(component.name, held)
    means = {name: merged.named(name) for name in merged.means}
    return State(components, length, min(a.start, b.start), a.environment, means), moved


def _whole(value: np.ndarray, environment: Environment) -> Held:
    """A component of which every element is a part."""
    return Held(value, np.full((1,) * environment.ndim, True))


def _corrected(values: _Values, name: str, value: np.ndarray) -> np.ndarray:
    """The mean of a chunk without what rounding its sum left: the mean of equal elements is one of them."""
    environment = values.evaluation.environment
    left = evaluate(values.means[name].left, replace(environment, symbols={**values.symbols, name: value}))
    return np.where(np.isfinite(left), value + left, value)


def _between(merged: _Values, a: _Values, b: _Values, name: str, value: np.ndarray) -> np.ndarray:
    """The mean of two parts, from one towards the other by the other's share: that of equal means is the same mean.

    A part of no weight has no mean and no share; one whose weights cancel has x/0, and then the formula says what it is.
    """
    own, other, total = a.named(name), b.named(name), merged.means[name].total
    with np.errstate(all="ignore"):
        share = b.of(total) / merged.of(total)
        moved = np.where(np.isnan(other) & (share == 0), own,
                         np.where(np.isnan(own) & (share == 1), other, own + (other - own) * share))
    return np.where(np.isfinite(moved) & np.isfinite(value), moved, value)


def pivots_of(form: FusedForm, part: State) -> dict[str, np.ndarray]:
    """The pivots of a part that is not empty, by name: those that its components move with, results among them."""
    values = _part_values(form, part)
    return {name: values.named(name) for c in form.state for name in pivots_moved(c.rebase)}


def finalize(form: FusedForm, state: State) -> tuple[np.ndarray | None, ...]:
    """The outputs of the form, laid out; None for maps (outputs that keep the axis), see `mapped`.

    Raises OperatorError where the operator has no value: an unmasked max of no elements, a topk of too few.
    """
    values = _final_values(form, state)
    return tuple(None if form.axis in output.axes else values.of(output) for output in form.outputs)


def mapped(form: FusedForm, state: State, chunk: Environment, before: State | None = None) -> tuple[np.ndarray | None, ...]:
    """The maps of the form for one chunk, with the results of the whole `state`; None for other outputs.

    Maps that see what came before an element go on from `before`, the state of all elements before the chunk.
    """
    final = _final_values(form, state)
    values = _Values(form, replace(chunk, lengths={form.axis: state.length}))
    going_on = _going_on(form, before, values, final) if before is not None and before.length else {}
    for output in form.outputs:
        for name in symbol_names(output):
            values.symbols[name] = final.named(name)
    return tuple(values.of(substitute(output, going_on)) if form.axis in output.axes else None for output in form.outputs)


def _going_on(form: FusedForm, before: State, values: _Values, final: _Values) -> dict[Expr, Expr]:
    """The scans that maps see, as they go on from a state: its results are bound under names of their own."""
    so_far, going_on = _part_values(form, before), {}
    waiting = {each.name: state_after(each, form.axis) for each in form.recurrences if waits(each)}
    for name in (name for value in waiting.values() for name in symbol_names(value)):
        if name.endswith(AT_THE_END):
            known = name.removesuffix(AT_THE_END)
            so_far.symbols[name] = final.of(Expr("size", (), (form.axis,))) if known == "size" else final.named(known)
    for scan, names in form.prefixes:
        starts = [symbol(f"{name} so far", tuple(a for a in scan.axes if a != form.axis)) for name in names]
        values.symbols.update({start.name: so_far.of(waiting[name]) if name in waiting else so_far.named(name)
                               for start, name in zip(starts, names, strict=True)})
        going_on[scan] = Expr("scan", (*starts, *(substitute(step, going_on) for step in scan.args[len(names):])), scan.attrs)
    return going_on


def _lifted(form: FusedForm, component: Component, values: _Values) -> Held:
    chunk = values.evaluation.environment
    dim, length = chunk.dim(form.axis), chunk.sizes[form.axis]
    mask = None if component.mask is None else stretched(values.of(component.mask).astype(bool), dim, length)
    present = np.full((1,) * chunk.ndim, True) if mask is None else mask.any(axis=dim, keepdims=True)
    monoid = MONOIDS[component.monoid]
    if not (monoid.indexed or monoid.counted):
        operands = (component.lift,) if component.mask is None else (component.lift, component.mask)
        return Held(values.of(Expr("reduce", operands, (component.monoid, form.axis, ""))), present)
    elements = stretched(values.of(component.lift), dim, length)
    start = chunk.starts.get(form.axis, 0)
    positions = chunk.along(form.axis, np.arange(start, start + length))
    best, at = _best(component, chunk, dim, elements, positions, np.array(True) if mask is None else mask)
    if monoid.counted:
        made = chunk.dim(component.axes[-1])
        best, at = np.swapaxes(best, dim, made), np.swapaxes(at, dim, made)
    return Held(at, present, best) if monoid.indexed else Held(best, present)


def _joined(form: FusedForm, component: Component, environment: Environment, a: Held, b: Held) -> Held:
    present, monoid = a.present | b.present, MONOIDS[component.monoid]
    if not (monoid.indexed or monoid.counted):
        return Held(combined(component.monoid, a.value, b.value), present)
    dim = environment.dim(component.axes[-1] if monoid.counted else form.axis)
    value = _side_by_side(a.value, b.value, dim)
    if not monoid.indexed:
        return Held(_best(component, environment, dim, value, np.array(0), np.array(True))[0], present)
    won = _side_by_side(a.won, b.won, dim)
    best, at = _best(component, environment, dim, won, value, value != NO_POSITION)
    return Held(at, present, best)


def _best(
    component: Component, environment: Environment, dim: int,
    values: np.ndarray, positions: np.ndarray, valid: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The winning values along `dim` and their positions."""
    if not MONOIDS[component.monoid].counted:
        return winner(values, positions, valid, dim, component.monoid == "argmin")
    exact = component.mask is None and MONOIDS[component.monoid].indexed
    return winners(values if exact else values.astype(np.float64), positions, valid, dim, _places(component, environment))


def _side_by_side(a: np.ndarray, b: np.ndarray, dim: int) -> np.ndarray:
    return np.concatenate(np.broadcast_arrays(a, b), axis=dim)


def _nothing(component: Component, environment: Environment) -> Held:
    monoid, shape = MONOIDS[component.monoid], [1] * environment.ndim
    if monoid.counted:
        shape[environment.dim(component.axes[-1])] = _places(component, environment)
    lowest = np.inf if component.monoid == "argmin" else -np.inf
    won = np.full(shape, lowest) if monoid.indexed else None
    return Held(np.full(shape, component.nothing), np.full((1,) * environment.ndim, False), won)


def _rebased(component: Component, part: _Values, onto: _Values) -> np.ndarray:
    """The component of a part, moved from the part's pivots p to the pivots p′ of `onto`."""
    for name in pivots_moved(component.rebase):
        part.symbols[name + PRIME] = onto.named(name)
    return part.of(component.rebase)


def _final_values(form: FusedForm, state: State) -> _Values:
    """Components, pivots and results of the whole axis, with what the operator as written has at pivots of ±inf or 0.

    The total twins kept parts whose pivot is infinite alive, since a later part could still replace that pivot.
    Now none comes: what saw an element goes to its pivot wherever the partial operations cannot move it from p to p.
    """
    _check_enough(form, state)
    still = [component.name for component in form.state if component.fixed]
    final = _Values(form, replace(state.environment, lengths={form.axis: state.length}))
    final.symbols.update(state.means)
    for component in form.state:
        held = state.components[component.name]
        end = ending(component.symbol, component.rebase, still)
        final.hold(component.name, held if end is None else _ended(component, held, state, final, *end))
    return final


def _ended(component: Component, held: Held, state: State, final: _Values, stuck: Expr, moved: Expr) -> Held:
    """A component at its pivots as they ended."""
    names = set(symbol_names(stuck))
    values = {name: final.named(name) for name in names} | {name: part.value for name, part in state.components.items() if name not in names}
    environment = replace(final.evaluation.environment, symbols=values, partial=True)
    lost = evaluate(stuck, environment) & held.present
    return replace(held, value=np.where(lost, evaluate(moved, environment), held.value)) if lost.any() else held


def _check_enough(form: FusedForm, state: State) -> None:
    """The operator as written has no value on too few elements, so neither has its form."""
    rows = [row for row in form.results if row.monoid] if form.recurrences or form.clips or not form.merges else form.state
    for row in rows if state.length == 0 else ():
        if row.mask is None and not MONOIDS[row.monoid].empty:
            raise nothing_to_choose_from(row.monoid, form.axis)
    for component in form.state:
        monoid = MONOIDS[component.monoid]
        if monoid.counted and _places(component, state.environment) > state.length:
            raise too_few(monoid.name, _places(component, state.environment), form.axis, state.length)


def _places(component: Component, environment: Environment) -> int:
    return whole_number(evaluate(component.count, environment), f"{component.monoid} of a fused form")


def _part_values(form: FusedForm, part: State) -> _Values:
    values = _Values(form, replace(part.environment, lengths={form.axis: part.length}))
    values.symbols.update(part.means)
    for name, held in part.components.items():
        values.hold(name, held)
    return values


def _invariant(form: FusedForm, chunk: Environment) -> Environment:
    """The environment without the inputs that vary along the axis, so that a state does not keep its chunk alive."""
    formulas = [*form.definitions.values()]
    formulas += [expr for c in form.state for expr in (c.rebase, c.count, c.joined, c.start) if expr is not None]
    formulas += [start for scan, names in form.prefixes for start in scan.args[:len(names)]]
    formulas += [output for output in form.outputs if form.axis not in output.axes]
    names = {term.name for term in subterms(*formulas) if term.op in ("input", "param")}
    return replace(chunk, values={name: chunk.values[name] for name in names if name in chunk.values}, starts={})
