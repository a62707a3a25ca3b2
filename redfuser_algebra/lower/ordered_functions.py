"""Device functions for states in which the order of elements counts: steps from element to element, and the merge of neighbours.

In: a tile program with ordered updates.  Out: definitions as in `column_functions`.  A thread takes neighbouring elements,
the next thread those after them; lanes, and then warps, are merged with their neighbours, the earlier state first.
A state of no elements (`seen` is 0) is left out of merges: what is there stays as it is, infinities and NaN included.
"""
from __future__ import annotations

from collections.abc import Iterable

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.lower.column_functions import ColumnFunction, ColumnFunctions
from redfuser_algebra.lower.device_code import DeviceFunction
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.rescaling import rescaling
from redfuser_algebra.lower.scalar_code import Code, constant
from redfuser_algebra.lower.tile import Update


class OrderedFunction(ColumnFunction):
    """A device function whose thread takes neighbouring elements of the block's tile."""

    def own(self, slot: str) -> str:
        """The number of an element in the block's tile: those of a thread are neighbours."""
        return f"{self.argument('thread', 'thread')} * {self.slots()} + {slot}"

    def _element(self, term: Expr) -> Code:
        return self._named(super()._element(term))


class OrderedFunctions(ColumnFunctions):
    """Device functions of a program with ordered components; all inputs along the axis are staged."""

    kind = OrderedFunction

    def must_stage(self, along: list[str]) -> bool:
        """So that neighbouring elements of one thread are read as whole pieces of memory."""
        return True

    def identity(self, name: str) -> str:
        """The empty state of a component."""
        empty = {u.name: u.empty for u in self.program.updates if u.ordered}
        return constant(empty[name], "f8").text if name in empty else super().identity(name)

    # a tile

    def _fold_stage(self, f: DeviceFunction, stage: Iterable[Update]) -> None:
        ordered, others = split(stage)
        if ordered:
            self._steps(f, ordered)
        if others:
            super()._fold_stage(f, others)

    def _steps(self, f: DeviceFunction, updates: list[Update]) -> None:
        """Element after element; the first one of a state is where it starts, unless that is before the first of all.

        All threads take as many turns, side by side.
        """
        f.wide, index = "f8", f.index(self.program.axis)
        names = [self.storage.held[u.name].name for u in updates]
        f.line(f"{', '.join(names)} = {', '.join(f'{name}_old' for name in names)}")
        later = f" and {f.place_of('i8(0)')} > 0" if all(u.from_empty for u in updates) else ""
        f.line(f"begins = sel(seen_old == 0{later}, i4(1), i4(0))")
        lifted, stepped = (self._advance(f, names, values) for values in ([u.lift for u in updates], [u.step for u in updates]))
        stepped += rescaling(self.program.scalings, dict(zip((u.name for u in updates), names, strict=True)))
        f.nest[-1].lines += ["if begins > 0:", *indented([f"{index} = i4(0)", *lifted]),
                              f"for {index} in range({f.slots()}):", f"    if begins <= {index} and {index} < many:", *indented(indented(stepped))]

    def _advance(self, f: DeviceFunction, names: list[str], values: list[Expr]) -> list[str]:
        """The lines in which all states take their new values at once."""
        f.open(self.program.axis)
        codes = [f.code(value).to("f8").text for value in values]
        pairs = [pair for pair in zip(names, codes, strict=True) if pair[0] != pair[1]]
        f.line(f"{', '.join(name for name, _ in pairs)} = {', '.join(code for _, code in pairs)}")
        return f.nest.pop().lines

    # the states of many threads

    def _combine_stage(self, f: DeviceFunction, stage: Iterable[Update]) -> None:
        ordered, others = split(stage)
        if ordered:
            self._merged(f, ordered)
        super()._combine_stage(f, others)

    def _merged(self, f: DeviceFunction, updates: list[Update]) -> None:
        """Pairs of lanes, then pairs of pairs, and so on: the lower ones hold what comes first."""
        names = [self.storage.held[u.name].name for u in updates]
        counted = ["many", *names]
        f.argument("lane", "lane")
        f.line(f"{', '.join(counted)} = {', '.join(['seen_old', *(f'{name}_old' for name in names)])}")
        merged = self.called(self.merge(updates), {}, f)
        for part in (f"{name}_{which}" for name in names for which in "ab"):
            f.arguments.pop(part, None)
        lines = ["ahead = lane & by == 0", *(f"{name}_b = cuda.shfl_xor_sync(0xFFFFFFFF, {name}, by)" for name in counted),
                 *(f"{name}_a, {name}_b = sel(ahead, {name}, {name}_b), sel(ahead, {name}_b, {name})" for name in counted),
                 "if many_a > 0 and many_b > 0:", f"    {', '.join(names)} = {merged}",
                 *indented(rescaling(self.program.scalings, dict(zip((u.name for u in updates), names, strict=True)))),
                 "else:", f"    {', '.join(names)} = {', '.join(f'sel(many_a > 0, {name}_a, {name}_b)' for name in names)}",
                 "many = i4(many_a + many_b)"]
        for line in ["for step in range(5):", "    by = 1 << step", "    if by < width:", *(f"        {line}" for line in lines)]:
            f.line(line)

    def merge(self, updates: list[Update]) -> str:
        """A function that joins two neighbouring parts: `_a` is the earlier one; the name to call it by."""
        if "merge" not in self.texts:
            f = self.kind("merge", self, self._part)
            f.returned += [f.code(u.joined).to("f8") for u in updates]
            self.define(f)
        return "merge"

    def _part(self, name: str) -> str:
        return f"{self.storage.held[name.removesuffix(PRIME)].name}_{'b' if name.endswith(PRIME) else 'a'}"


def split(stage: Iterable[Update]) -> tuple[list[Update], list[Update]]:
    """Ordered updates, and the others."""
    stage = list(stage)
    return [u for u in stage if u.ordered], [u for u in stage if not u.ordered]
