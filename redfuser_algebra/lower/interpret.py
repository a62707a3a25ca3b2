"""The interpreter of tile programs: the loops as they are printed, rows all at once, the reduced axis tile by tile.

In: a tile program, arrays (batch…, then the axes in the program's order) and scalars.  Out: one array per output.
What a kernel computes is judged against this, and this against the operator as written.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME, symbol_names
from redfuser_algebra.lower.evaluation import COMBINE, Formulas, Layout, Rounding, best
from redfuser_algebra.lower.tile import TileProgram, Update

Names = dict[str, np.ndarray]


def interpret(program: TileProgram, arrays: Mapping[str, np.ndarray], params: Mapping[str, float], sizes: Mapping[str, int],
              batch: tuple[int, ...], tile: int, rounded: Rounding) -> list[np.ndarray]:
    """The outputs, with dimensions (batch…, output axes…), in float64 (whole numbers stay whole).

    `rounded(values, dtype)` is what a cast means.
    """
    axes = tuple(dict.fromkeys([*(a for own in program.inputs.values() for a in own), *sizes, *program.copies]))
    own_sizes = dict(sizes) | {copy: sizes[axis] for copy, axis in program.copies.items()}
    layout = Layout(axes, own_sizes, batch, program.axis, rounded)
    given = {name: layout.laid_out(_wide(arrays[name]), own) for name, own in program.inputs.items()}
    given |= {name: np.full((1,) * layout.ndim, value) for name, value in params.items()}
    return _Sweep(program, layout, given, tile).outputs()


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in "bui" else array.astype(np.float64)


class _Sweep:
    """The state that one sweep holds."""

    def __init__(self, program: TileProgram, layout: Layout, given: Names, tile: int) -> None:
        self.program, self.layout, self.given, self.tile = program, layout, given, tile
        self.length = layout.sizes[program.axis]
        self.own = {**program.inputs, **program.holds}
        self.values = {value.name: value.value for value in program.values}
        self.held = {}
        for update in program.updates:
            self.held |= self._identity(update)

    def outputs(self) -> list[np.ndarray]:
        """Fold all tiles, move components to their pivots as they ended, and evaluate."""
        for start in range(0, self.length, self.tile):
            self._fold(self._tile(start), first=start == 0)
        self._settle()
        if self.program.running:
            results = self._going_on()
        else:
            results = [self._whole(place) for place in range(len(self.program.outputs))]
        return [self._taken(result, axes) for result, axes in zip(results, self.program.output_axes, strict=True)]

    def _tile(self, start: int) -> tuple[Layout, Names]:
        stop = min(start + self.tile, self.length)
        axis = self.program.axis
        layout = replace(self.layout, sizes=self.layout.sizes | {axis: stop - start}, start=start, seen=stop)
        dim = layout.dim(axis)
        names = {name: value if value.shape[dim] == 1 else np.take(value, range(start, stop), axis=dim)
                 for name, value in self.given.items()}
        for producer in self.program.producers:
            names[producer.name] = Formulas(replace(layout, seen=self.length), names, self.own).of(producer.value)
        return layout, names

    def _fold(self, tile: tuple[Layout, Names], first: bool) -> None:
        layout, names = tile
        old = self._with_values(replace(layout, seen=layout.start), dict(self.held)) if not first else {}
        for stage in self.program.stages:
            new = self._with_values(layout, dict(self.held))
            moving = old | {name + PRIME: value for name, value in new.items()}
            ordered = [update for update in stage if update.ordered]
            self.held |= self._one_by_one(ordered, layout, names, first)
            for update in stage:
                if update.ordered:
                    continue
                value = self.held[update.name]
                if not (update.fixed or first):
                    value = Formulas(layout, self.given | moving, self._own_primed()).of(update.rebase)
                self.held |= self._added(update, value, layout, names | new)

    def _one_by_one(self, updates: list[Update], layout: Layout, names: Names, first: bool) -> Names:
        """Ordered components after every element of a tile; the first element of all is where they start."""
        held = {update.name: self.held[update.name] for update in updates}
        for at in range(layout.sizes[self.program.axis] if updates else 0):
            formulas = self._at(layout, names | held, at)
            held = {u.name: formulas.of(u.lift if first and at == 0 and not u.from_empty else u.step).astype(np.float64) for u in updates}
        return held

    def _at(self, layout: Layout, names: Names, at: int) -> Formulas:
        """Formulas at one element of a tile."""
        axis, dim = self.program.axis, layout.dim(self.program.axis)
        here = {name: value if value.shape[dim] == 1 else np.take(value, [at], axis=dim) for name, value in names.items()}
        own = self.own | {name: (*self.own[name], axis) for name in self._states}
        return Formulas(replace(layout, sizes=layout.sizes | {axis: 1}, start=layout.start + at, seen=self.length), here, own)

    @cached_property
    def _states(self) -> set[str]:
        """What has the swept axis where elements are taken one by one."""
        return {update.name for update in self.program.updates if update.ordered} | {state.name for state in self.program.running}

    def _with_values(self, layout: Layout, symbols: Names) -> Names:
        """The components and every value that can be computed of them."""
        for value in self.program.values:
            symbols[value.name] = self._valued(value.value, layout, symbols)
        return symbols

    def _valued(self, expr: Expr, layout: Layout, symbols: Names) -> np.ndarray:
        for name in symbol_names(expr):
            if name not in symbols:
                symbols[name] = self._valued(self.values[name], layout, symbols)
        return Formulas(layout, self.given | symbols, self.own).of(expr)

    def _own_primed(self) -> dict[str, tuple[str, ...]]:
        return self.own | {name + PRIME: axes for name, axes in self.own.items()}

    def _added(self, update: Update, held: np.ndarray, layout: Layout, names: Names) -> Names:
        formulas, k = Formulas(layout, names, self.own), self._places(update)
        mask = None if update.mask is None else formulas.of(update.mask)
        value, won = formulas.reduction(update.monoid, formulas.of(update.lift), mask, self.program.axis, k)
        monoid = MONOIDS[update.monoid]
        if not (monoid.indexed or monoid.counted):
            with np.errstate(all="ignore"):
                return {update.name: COMBINE[update.monoid](held, value)}
        dim = layout.dim(update.axes[-1] if monoid.counted else self.program.axis)
        if monoid.counted:
            value, won = (np.swapaxes(v, dim, layout.dim(self.program.axis)) for v in (value, won))
        at, values = (value, won) if monoid.indexed else (won, value)
        before = self.held[update.name + WON] if monoid.indexed else self.held[update.name]
        places = self.held[update.name] if monoid.indexed else self.held[_positions(update)]
        values, at = (np.concatenate(np.broadcast_arrays(*pair), axis=dim) for pair in ((before, values), (places, at)))
        values, at = best(values, at, at >= 0, dim, k or 1, update.monoid == "argmin")
        return {update.name: at, update.name + WON: values} if monoid.indexed else {update.name: values, _positions(update): at}

    def _identity(self, update: Update) -> Names:
        monoid, shape = MONOIDS[update.monoid], [1] * self.layout.ndim
        if monoid.counted:
            shape[self.layout.dim(update.axes[-1])] = self._places(update)
        if update.ordered:
            return {update.name: np.full(shape, float(update.empty))}
        identity = int(monoid.identity) if update.monoid in ("sum", "prod") else monoid.identity
        held = {update.name: np.full(shape, identity)}
        if monoid.indexed:
            held[update.name + WON] = np.full(shape, np.inf if update.monoid == "argmin" else -np.inf)
        elif monoid.counted:
            held[_positions(update)] = np.full(shape, -1)
        return held

    def _places(self, update: Update) -> int | None:
        return None if update.count is None else int(Formulas(self.layout, self.given, self.own).of(update.count).flat[0])

    def _settle(self) -> None:
        """No element comes any more: a component goes to its pivot where that ended at ±inf or 0."""
        layout = replace(self.layout, seen=self.length, partial=True)
        for update in self.program.updates if self.length else ():
            end = self.program.ended(update)
            if end is not None:
                now = self._with_values(replace(layout, partial=False), dict(self.held))
                self.held[update.name] = Formulas(layout, self.given | now, self.own).of(end)

    def _whole(self, place: int) -> np.ndarray:
        output, layout = self.program.outputs[place], replace(self.layout, seen=self.length)
        symbols = self._with_values(layout, dict(self.held))
        value = Formulas(layout, self.given | symbols, self.own).of(output)
        return layout.full(value, self.program.output_axes[place])

    def _going_on(self) -> list[np.ndarray]:
        """The outputs, maps element by element from state to state."""
        layout, maps = replace(self.layout, seen=self.length), self.program.maps
        results = [None if place in maps else self._whole(place) for place in range(len(self.program.outputs))]
        final = self._with_values(layout, dict(self.held))
        formulas = Formulas(layout, self.given | final, self.own)
        states = {state.name: formulas.of(state.start).astype(np.float64) for state in self.program.running}
        written: list[list[np.ndarray]] = [[] for _ in maps]
        for start in range(0, self.length, self.tile):
            tile, names = self._tile(start)
            for at in range(tile.sizes[self.program.axis]):
                here = self._at(tile, names | final | states, at)
                for column, place in zip(written, maps, strict=True):
                    column.append(here.layout.full(here.of(self.program.outputs[place]), self.program.output_axes[place]))
                states = {state.name: here.of(state.step).astype(np.float64) for state in self.program.running}
        for column, place in zip(written, maps, strict=True):
            results[place] = np.concatenate(column, axis=layout.dim(self.program.axis))
        return results

    def _taken(self, value: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
        """The dimensions (batch…, `axes`…) of a laid-out value."""
        layout = self.layout
        leading = len(layout.batch)
        kept = [axis for axis in layout.axes if axis in axes]
        flat = value.reshape(layout.batch + tuple(layout.sizes[axis] for axis in kept))
        return flat.transpose(*range(leading), *(leading + kept.index(axis) for axis in axes))


def _positions(update: Update) -> str:
    """Where the positions that go with the k largest values are held."""
    return f"{update.name}_at"
