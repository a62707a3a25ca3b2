"""Means that are carried from tile to tile, as statements of a CPU kernel: that of equal numbers is the same number.

A sum of many equal numbers is rounded, and divided by their count it may be off by its last bit, of which the state would
make a spread.  In float64 the mean of a tile is taken apart from the sum: where it lies next to an element, what rounding
has left is added; and means of neighbours move towards each other by their shares.  (Sums of numbers of float32 are exact.)
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from redfuser_algebra.lower.ordered_cpu import OrderedPrinter
from redfuser_algebra.lower.tile import Update, Value

@dataclass(frozen=True)
class _Carried:
    """A pivot that is the mean of what an update sums; the variables of the tile's mean, and of the mean before the tile."""

    update: Update
    here: str
    before: str


class MeanPrinter(OrderedPrinter):
    """The functions printed so far; methods return lines."""

    @cached_property
    def means(self) -> dict[str, _Carried]:
        """The pivots that are carried: means of elements as they lie in memory, of rows one by one."""
        plain = (u for u in self.program.updates if u.monoid == "sum" and u.mask is None and u.lift.op == "input")
        updates = {u.name: u for u in plain if not self.program.columns(u.lift.axes)}
        if self.signature.real != "f8":
            return {}
        found = {v.name: updates[v.mean_of] for v in self.program.values if v.mean_of in updates and v.name in self.storage.moving}
        return {name: _Carried(update, self.storage.fresh(f"mean_{name}"), self.storage.fresh(f"was_{name}")) for name, update in found.items()
                if not self.storage.held[name].is_array and not self.storage.held[update.name].is_array}

    def means_of_tile(self, updates: Iterable[Update], sums: dict[str, str]) -> Iterator[str]:
        """The means of a tile, of which `sums` has the sums."""
        for carried in self.means.values():
            if carried.update in updates:
                yield f"{carried.here} = mean_of({self.storage.tile_of(carried.update.lift.name)}, {sums[carried.update.name]})"

    def moved_towards(self, values: Iterable[Value], lines: list[str], share: str, other: str = "") -> list[str]:
        """Lines that give pivots new values, those of means as they are carried; `other` is how the other part's variables begin, if it is no tile."""
        carried = {self.storage.held[v.name].name: self.means[v.name] for v in values if v.name in self.means}
        return [*(f"{each.before} = {name}" for name, each in carried.items()), *lines,
                *(f"{name} = towards({each.before}, {f'{other}{name}' if other else each.here}, {share}, {name})" for name, each in carried.items())]
