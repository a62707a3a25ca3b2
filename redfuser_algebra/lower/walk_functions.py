"""Device functions of a thread that walks a row: the state after one more element, and the outputs that see what came before.

In: a tile program without merges, of which `outside` is as kernels have its arrays.  Out: definitions as in `column_functions`.
Elements lie in shared memory, where each array has a ring of places for a row.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import symbol_names
from redfuser_algebra.lower.column_functions import ColumnFunction
from redfuser_algebra.lower.device_code import UNROLLED, DeviceFunction
from redfuser_algebra.lower.functions import Leaf, indented
from redfuser_algebra.lower.ordered import in_turn
from redfuser_algebra.lower.ordered_functions import OrderedFunctions
from redfuser_algebra.lower.rescaling import rescaling
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.tile import TileProgram, Update


class WalkFunction(ColumnFunction):
    """A device function that sees one element: `at` is its number."""

    def close(self) -> None:
        """Close the innermost loop; that over the swept axis has the one element."""
        loop = self.nest[-1]
        if loop.axis == self.axis:
            self.nest.pop()
            self.nest[-1].lines += loop.lines
            return
        if loop.axis in self.printer.in_registers:
            loop.lines.append(UNROLLED)
        super().close()

    def taken(self, slot: str) -> str:
        """There is always an element."""
        return "True"

    def by_vectors(self) -> bool:
        return False

    def place_of(self, slot: str) -> str:
        return self.argument("at", "at")

    def index(self, axis: str) -> str:
        """A thread's own place along an axis is an argument."""
        name = super().index(axis)
        return self.argument(name, name) if axis in self.printer.program.rows else name

    def _element(self, term: Expr) -> Code:
        """A number of an input: of the element, or of what a row has once."""
        outside, name = self.printer.outside, term.name
        own = outside.columns(outside.inputs[name])
        meant = tuple(axis for axis in term.axes if axis in own)
        place, cells = self.place(own, meant if len(meant) == len(own) else own), self.argument(f"cells_{name}", "")
        if self.axis in outside.inputs[name]:
            words, skew, ring = (self.argument(f"{word}_{name}", "") for word in ("words", "skew", "ring"))
            place = f"turned({self.place_of('')} * {words} + {f'{place} + ' if place else ''}{skew}, {ring})"
        type_ = self.printer.signature.arrays[name]
        return self._named(Code(f"{cells}[{place}] != 0" if type_ == "b1" else f"{cells}[{place}]", type_))

    def _read(self, term: Expr) -> Code:
        outside = self.printer.outside
        if term.op == "input" and (outside.columns(outside.inputs[term.name]) or self.axis in outside.inputs[term.name]):
            return self._element(term)
        return super()._read(term)


class WalkFunctions(OrderedFunctions):
    """Device functions of `program`; those of lanes apart, arrays are as `outside` has them."""

    kind = WalkFunction

    def __init__(self, program: TileProgram, outside: TileProgram, signature: Signature, fast: bool = False) -> None:
        self.outside = outside
        super().__init__(program, signature, fast)
        held = (*self.storage.held.values(), *self.storage.running.values())
        self.in_registers = {axis for variable in held for axis in variable.columns}

    def leaves(self, variable: Callable[[str], str]) -> Callable:
        others = super().leaves(variable)

        def leaf(term: Expr) -> Leaf:
            own = self.storage.running.get(term.name) if term.op == "symbol" else None
            return others(term) if own is None else Leaf(own.name, own.columns, own.type, own.name)

        return leaf

    # what was seen

    def _counted(self, f: DeviceFunction) -> None:
        if any(u.counts for u in self.program.updates):
            f.line("many = i4(1)")
        f.line("seen = i4(seen_old + 1)")

    def _steps(self, f: DeviceFunction, updates: list[Update]) -> None:
        """The first element is where states start, unless they do so before it."""
        f.wide = "f8"
        states = [self.storage.held[u.name] for u in updates]
        for v in states:
            if v.columns:
                f.argument(v.name, v.name)
            else:
                f.line(f"{v.name} = {v.name}_old")
        stepped = self._taking(f, {u.name: (v, u.step) for v, u in zip(states, updates, strict=True)})
        stepped += rescaling(self.program.scalings, {u.name: v.name for u, v in zip(updates, states, strict=True)})
        if all(u.from_empty for u in updates):
            f.nest[-1].lines += stepped
        else:
            lifted = self._taking(f, {u.name: (v, u.lift) for v, u in zip(states, updates, strict=True)})
            f.nest[-1].lines += ["if seen_old == 0:", *indented(lifted), "else:", *indented(stepped)]

    def _taking(self, f: DeviceFunction, news: Mapping[str, tuple[Variable, Expr]], outputs: Sequence[tuple[int, str]] = ()) -> list[str]:
        """The lines in which outputs are written and all states take their new values at once; those of the same columns share loops."""
        f.open(self.program.axis)
        written = [(place, type_, self._columns_of(place)) for place, type_ in outputs]
        turns = in_turn(self.program.name, [(v.columns, value, name) for name, (v, value) in news.items()]
                        + [(columns, self.program.outputs[place], "") for place, _, columns in written])
        for columns in turns:
            for axis in columns:
                f.open(axis)
            for place, type_, own in written:
                if own == columns:
                    self._put(f, place, type_)
            pairs = [(f"{v.name}[{f.place(columns)}]" if columns else v.name, f.code(value).to(v.type).text) for v, value in news.values() if v.columns == columns]
            pairs = [pair for pair in pairs if pair[0] != pair[1]]
            if pairs:
                f.line(f"{', '.join(name for name, _ in pairs)} = {', '.join(code for _, code in pairs)}")
            for _ in columns:
                f.close()
        return f.nest.pop().lines

    def _columns_of(self, place: int) -> tuple[str, ...]:
        return self.program.columns(self.program.output_axes[place])

    # what is written at every element

    def walk(self, types: Sequence[str]) -> None:
        """The states that maps see, after one more element, of which the outputs go to their rings."""
        running = self.storage.running
        f = self.kind("walk", self, self._current)
        states = {state.name: (running[state.name], state.step) for state in self.program.running}
        f.nest[-1].lines += self._taking(f, states, [(place, types[place]) for place in self.program.maps])
        f.returned += [Code(v.name, v.type) for v in running.values() if not v.columns]
        for v in running.values():
            f.argument(v.name, v.name)
        self.define(f)

    def _put(self, f: DeviceFunction, place: int, type_: str) -> None:
        """An output at an element goes to the ring of the row."""
        own = self.outside.columns(self.outside.output_axes[place])
        words, skew, ring, cells = (f.argument(f"{word}_out_{place}", "") for word in ("words", "skew", "ring", "cells"))
        at = f.place(own)
        value = f.code(self.program.outputs[place]).to(type_).text
        f.line(f"if {f.argument('live', 'live')}:")
        f.line(f"    {cells}[turned({f.place_of('')} * {words} + {f'{at} + ' if at else ''}{skew}, {ring})] = {f'i4({value})' if type_ == 'b1' else value}")

    def names_read(self, place: int) -> Iterable[str]:
        """What maps read of the whole row, too, where they start and step by step; what came before elements is none of that."""
        program = self.program
        more = [each for state in program.running for each in (state.start, state.step)] if place in program.maps else []
        return [name for name in symbol_names(program.outputs[place], *more) if name not in self.storage.running]

    def begin(self) -> None:
        """The states that maps see before the first element."""
        f = self.kind("initial", self, self._current)
        for state in self.program.running:
            v = self.storage.running[state.name]
            if v.columns:
                for axis in v.columns:
                    f.open(axis)
                f.line(f"{f.argument(v.name, '')}[{f.place(v.columns)}] = {f.code(state.start).to('f8').text}")
                for _ in v.columns:
                    f.close()
            else:
                f.returned.append(f.code(state.start).to("f8"))
        self.define(f)
