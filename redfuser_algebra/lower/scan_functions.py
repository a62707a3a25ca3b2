"""Device functions for outputs that see what came before them, where states merge: neighbouring states become one, and maps go on from there.

In: a tile program whose states are numbers.  Out: definitions as in `ordered_functions`.  Of two states the earlier one is `_a`;
one of no elements leaves the other as it is.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import symbol_names
from redfuser_algebra.lower.device_code import DeviceFunction
from redfuser_algebra.lower.functions import Leaf, indented, joined
from redfuser_algebra.lower.ordered_functions import OrderedFunctions, split
from redfuser_algebra.lower.rescaling import rescaling
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage import Variable
from redfuser_algebra.lower.tile import Update


class ScanFunctions(OrderedFunctions):
    """Device functions of a program whose outputs at every element see states."""

    @property
    def running(self) -> list[Variable]:
        """The states that maps see."""
        return list(self.storage.running.values())

    def numbers(self) -> list[tuple[str, str]]:
        """The variables of a state, and their types."""
        return [("seen", "i4"), *self.state]

    def leaves(self, variable: Callable[[str], str]) -> Callable:
        others = super().leaves(variable)

        def leaf(term: Expr) -> Leaf:
            own = self.storage.running.get(term.name) if term.op == "symbol" else None
            return others(term) if own is None else Leaf(own.name, (), own.type, own.name)

        return leaf

    def names_read(self, place: int) -> Iterable[str]:
        more = [each for state in self.program.running for each in (state.start, state.step)] if place in self.program.maps else []
        return [name for name in symbol_names(self.program.outputs[place], *more) if name not in self.storage.running]

    # two states

    def join(self) -> None:
        """Two neighbouring states as one, pivot by pivot."""
        f = self.kind("join", self, self._current)
        for which in "ab":
            for name, _ in self.numbers():
                f.argument(f"{name}_{which}", "")
        f.line("if seen_a == 0:")
        f.line(f"    return {self.listed('_b')}")
        f.line("if seen_b == 0:")
        f.line(f"    return {self.listed('_a')}")
        f.line("seen = i4(seen_a + seen_b)")
        for value in self.storage.old_values():
            for which in "ab":
                f.line(self.value(value, f"_{which}", f"seen_{which}", f))
        for place, stage in enumerate(self.program.stages):
            for value in self.storage.moving_values(place):
                f.line(self.value(value, "", "seen", f))
            ordered, others = split(stage)
            for line in [*(self._composed(f, ordered) if ordered else []), *(line for update in others for line in self._both(f, update))]:
                f.line(line)
        f.returned += [Code(name, type_) for name, type_ in self.numbers()]
        local = [name for name in self.variable_types() if name not in dict(self.state)]
        self.define(f, ["seen", *self.variable_types(), *(f"{name}_{which}" for name in local for which in "ab")])

    def _composed(self, f: DeviceFunction, updates: list[Update]) -> list[str]:
        names = {u.name: self.storage.held[u.name].name for u in updates}
        called = self.called(self.merge(updates), {}, f)
        return [f"{', '.join(names.values())} = {called}", *rescaling(self.program.scalings, names)]

    def _both(self, f: DeviceFunction, update: Update) -> list[str]:
        """A component that elements join in any order."""
        held = self.storage.held[update.name]
        a, b = (f"{held.name}_{which}" if update.fixed else self.rebased(update, f"_{which}", f) for which in "ab")
        if not MONOIDS[update.monoid].indexed:
            return [f"{held.name} = {joined(update.monoid, a, b, held.type)}"]
        sign, won = "" if update.monoid == "argmax" else "-", f"{held.name}{WON}"
        return [f"ahead = {b} >= 0 and comes_first({sign}{won}_b, {sign}{won}_a, {b}, {a})",
                f"{held.name}, {won} = sel(ahead, {b}, {a}), sel(ahead, {won}_b, {won}_a)"]

    def scan(self) -> None:
        """The state of each of `width` lanes and all before it."""
        f, names = self.kind("scan", self, self._current), [name for name, _ in self.numbers()]
        for name in (*(f"{name}_old" for name in names), "width", "lane"):
            f.argument(name, name)
        f.line(f"{', '.join(names)} = {', '.join(f'{name}_old' for name in names)}")
        earlier = [f"{name}_a = {from_lane(name, type_, 'up', 'by')}" for name, type_ in self.numbers()]
        called = self.called("join", {f"{name}_b": name for name in names})
        for line in ["for step in range(5):", "    by = 1 << step", "    if by < width:", *indented(earlier, 2), "        if lane >= by:",
                     f"            {', '.join(names)} = {called}"]:
            f.line(line)
        f.returned += [Code(name, type_) for name, type_ in self.numbers()]
        self.define(f)

    # the states that maps see

    def begin(self) -> None:
        """These states before the first element."""
        f = self.kind("initial", self, self._current)
        f.returned += [f.code(state.start).to("f8") for state in self.program.running]
        self.define(f)

    def resume(self) -> None:
        """These states after the elements that a state has seen; before any they begin."""
        f, done = self.kind("resume", self, self._current), set[str]()
        for name, _ in self.numbers():
            f.argument(name, name)
        f.line("if seen == 0:")
        f.line(f"    return {', '.join(f.argument(f'{v.name}_start', '') for v in self.running)}")
        self._final_values(f, [state.after for state in self.program.running], done)
        f.returned += [Code(self.storage.held[state.after].name, self.storage.held[state.after].type).to("f8") for state in self.program.running]
        self.define(f, [self.storage.held[name].name for name in done])

    def see(self, types: Sequence[str]) -> None:
        """The outputs of a thread's elements go to shared memory, from state to state."""
        f, axis = self.kind("see", self, self._current), self.program.axis
        for v in self.running:
            f.argument(v.name, v.name)
        f.open(axis)
        for place in self.program.maps:
            cells, *turns = (f.argument(f"{word}_out_{place}", "") for word in ("cells", "skew", "shift", "mask"))
            value = f.code(self.program.outputs[place]).to(types[place]).text
            f.line(f"{cells}[cell({f.own(f.index(axis))}, 1, {', '.join(turns)})] = {value}")
        pairs = [(v.name, f.code(state.step).to("f8").text) for v, state in zip(self.running, self.program.running, strict=True)]
        f.line(f"{', '.join(name for name, _ in pairs)} = {', '.join(code for _, code in pairs)}")
        loop = f.nest.pop()
        f.line(f"for {f.index(axis)} in range({f.slots()}):")
        f.line(f"    if {f.taken(f.index(axis))}:")
        f.nest[-1].lines += indented(loop.lines, 2)
        f.returned += [Code(v.name, v.type) for v in self.running]
        self.define(f)


def from_lane(name: str, type_: str, how: str, lane: str) -> str:
    """A variable of another lane: `how` is a shuffle's; truth values travel as whole numbers."""
    shuffle = f"cuda.shfl_{how}_sync(0xFFFFFFFF, " if how else "cuda.shfl_sync(0xFFFFFFFF, "
    return f"({shuffle}sel({name}, i4(1), i4(0)), {lane}) != 0)" if type_ == "b1" else f"{shuffle}{name}, {lane})"
