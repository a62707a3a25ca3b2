"""Device functions for states with places per column: sums of vectors and matrices, the k largest, values at their positions.

In: a tile program.  Out: definitions as in `device_functions`.  Numbers are passed and returned; arrays of a thread's
own (flat, the last axis fastest) are changed where they are, and what rebases read of them as it was is copied first.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME, symbol_names
from redfuser_algebra.lower.device_code import DeviceFunction, in_dialect
from redfuser_algebra.lower.device_functions import RowFunctions, in_single, moved, nothing_of
from redfuser_algebra.lower.functions import Accumulator, Function, Leaf, joined
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.tile import TileProgram, Update, Value


class DeviceAccumulator(Accumulator):
    """⊕ over columns in a thread."""

    def _position(self, value: str, mask: str | None, position: str, won: str) -> list[str]:
        sign, taken = "" if self.monoid == "argmax" else "-", f"{mask} and " if mask else ""
        return [f"if {taken}comes_first({sign}{value}, {sign}{won}, {position}, {self.into}):", f"    {self.into}, {won} = {position}, {value}"]


class ColumnFunction(DeviceFunction):
    """A device function that reads and writes places of flat arrays, and elements with columns from shared memory."""

    def accumulator(self, into: str, monoid: str, type_: str) -> Accumulator:
        return DeviceAccumulator(into, monoid, type_)

    def slots(self) -> str:
        return self.argument("slots", "slots") if self.printer.staged else "SLOTS"

    def place(self, axes: tuple[str, ...], named: tuple[str, ...] = ()) -> str:
        """Where an element of an array with these axes lies; `named` are the axes whose indices are meant, if others."""
        text = ""
        for axis, meant in zip(axes, named or axes, strict=True):
            size = f"n_{self.printer.program.copies.get(axis, axis)}"
            text = f"({text}) * {self.argument(size, size)} + {self.index(meant)}" if text else self.index(meant)
        return text

    def own(self, slot: str) -> str:
        """The number of an element in the block's tile."""
        return self.cell(slot)

    def cell(self, slot: str) -> str:
        """Where a thread has a place for a slot in arrays of all threads."""
        return f"{slot} * {self.argument('span', 'span')} + {self.argument('thread', 'thread')}"

    def taken(self, slot: str) -> str:
        if not self.printer.staged:
            return super().taken(slot)
        return f"(i4({self.argument('first', 'first')} + {self.own(slot)}) < i4({self.argument('length', 'length')}))"

    def by_vectors(self) -> bool:
        return not self.printer.staged

    def count(self) -> None:
        if not self.printer.staged:
            super().count()
            return
        self.line("many = i4(0)")
        self.line(f"for slot in range({self.slots()}):")
        self.line(f"    many = i4(many + sel({self.taken('slot')}, i4(1), i4(0)))")

    def place_of(self, slot: str) -> str:
        if not self.printer.staged:
            return super().place_of(slot)
        return f"({self.argument('begin', 'begin')} + {self.argument('first', 'first')} + {self.own(slot)})"

    def _computed(self, term: Expr, depth: int) -> Code:
        """A number of an array at a place that is found is chosen, not branched for: behind the branch the compiler would read it by that place, from memory."""
        if term.op != "where" or term.args[0].op != "equal" or not self._holds_at(term.args[0], term.args[1]):
            return super()._computed(term, depth)
        type_, (condition, value, other) = self._type(term, depth), self._args(term)
        return self._named(Code(f"sel({condition.to('b1').text}, {value.to(type_).text}, {other.to(type_).text})", type_))

    def _holds_at(self, condition: Expr, value: Expr) -> bool:
        """Whether a value reads an array of the thread's own at the place that a condition asks for."""
        asked = {arg.axis for arg in condition.args if arg.op == "index" and arg.axis != self.axis}
        return any(t.op == "symbol" and asked & set(t.axes) for t in subterms(value))

    def _read(self, term: Expr) -> Code:
        program = self.printer.program
        if term.op == "input" and (program.columns(program.inputs[term.name]) or term.name in self.printer.staged):
            return self._element(term)
        if term.op == "symbol" and term.name in self.printer.made:
            meant = tuple(axis for axis in term.axes if axis != self.axis and axis not in program.rows)
            return Code(self.cell_of(term.name, meant), self.printer.storage.produced_type(term.name))
        leaf = self.scope.leaf(term)
        if term.op != "symbol" or not leaf.axes:
            return super()._read(term)
        named = dict(zip(map(copied_axis, term.axes), term.axes, strict=True))
        order = term.axes if set(term.axes) != set(leaf.axes) and len(term.axes) == len(leaf.axes) else ()
        meant = order or tuple(axis if axis in term.axes else named[axis] for axis in leaf.axes)
        return Code(f"{self.argument(leaf.variable, leaf.given)}[{self.place(leaf.axes, meant)}]", leaf.type)

    def cell_of(self, producer: str, meant: tuple[str, ...]) -> str:
        """Where a thread keeps what it made of the element, for each column."""
        columns = self.printer.program.columns(self.printer.made[producer].axes)
        own, cells = self.cell(self.index(self.axis)), self.argument(f"cells_{producer}", "")
        return f"{cells}[({self.place(columns, meant)}) * {self.slots()} * span + {own}]" if columns else f"{cells}[{own}]"

    def _element(self, term: Expr) -> Code:
        """A number of an input: of the tile in shared memory, or of what a row has once."""
        own, name = self.printer.program.inputs[term.name], term.name
        columns = self.printer.program.columns(own)
        meant = tuple(axis for axis in term.axes if axis != self.axis and axis not in self.printer.program.rows)
        place, cells = self.place(columns, meant), self.argument(f"cells_{name}", "")
        if self.axis in own:
            words = [self.argument(word, word) for word in (f"n_{self.printer.program.copies.get(axis, axis)}" for axis in columns)]
            place = f"{place} + {self.argument(f'skew_{name}', '')}" if columns else self.argument(f"skew_{name}", "")
            turns = ", ".join(self.argument(f"{word}_{name}", "") for word in ("shift", "mask"))
            place = f"cell({self.own(self.index(self.axis))}, {' * '.join(words) or '1'}, {place}, {turns})"
        return Code(f"{cells}[{place}]", self.printer.signature.arrays[name])


class ColumnFunctions(RowFunctions):
    """Device functions of a program; `kept` are the arrays of which rebases read what was there before,
    `staged` the inputs of which a tile goes through shared memory."""

    kind = ColumnFunction

    def __init__(self, program: TileProgram, signature: Signature, fast: bool = False) -> None:
        super().__init__(program, replace(signature, products=True), fast)
        along = [name for name, axes in program.inputs.items() if program.axis in axes]
        self.staged = along if self.must_stage(along) else []
        read = [name for value in self.storage.old_values() for name in symbol_names(value.value)]
        self.kept = [v for name, v in self.components().items() if v.columns and (name in self.storage.old or name in read)]

    def must_stage(self, along: list[str]) -> bool:
        """Whether a tile of the inputs along the axis has to go through shared memory."""
        return any(self.program.columns(self.program.inputs[name]) for name in along)

    def components(self) -> dict[str, Variable]:
        """The variables of the state by the names of formulas; values are not among them."""
        values = {value.name for value in self.storage.values}
        return {name: v for name, v in self.storage.held.items() if name not in values}

    @property
    def state(self) -> list[tuple[str, str]]:
        return [(v.name, v.type) for v in self.components().values() if not v.columns]

    @property
    def arrays(self) -> list[Variable]:
        """The components that have places per column."""
        return [v for v in self.components().values() if v.columns]

    def scratch(self) -> list[Variable]:
        """Arrays that hold no state: values, and what was there before."""
        values = [v for v in self.storage.held.values() if v.columns and v not in self.arrays]
        before = [*self.kept, *(self.storage.held[value.name] for value in self.storage.old_values() if value.axes and self.storage.held[value.name].columns)]
        return [*values, *(replace(v, name=f"{v.name}_old") for v in before)]

    def variable_types(self) -> dict[str, str]:
        return {v.name: v.type for v in self.storage.held.values() if not v.columns}

    def identity(self, name: str) -> str:
        """The empty state of a component."""
        updates = {u.name: u for u in self.program.updates}
        if name in updates:
            monoid = MONOIDS[updates[name].monoid]
            return nothing_of("max" if monoid.counted and not monoid.indexed else monoid.name, self.storage.held[name].type)
        if name.endswith(WON):
            return "inf" if updates[name.removesuffix(WON)].monoid == "argmin" else "-inf"
        return "i8(-1)"

    def identities(self) -> list[str]:
        return ["i4(0)", *(self.identity(name) for name, v in self.components().items() if not v.columns)]

    def empty_arrays(self) -> list[tuple[Variable, str]]:
        return [(v, self.identity(name)) for name, v in self.components().items() if v.columns]

    def words(self, axes: Iterable[str]) -> str:
        """The number of places per column, as code; 1 for none."""
        return " * ".join(f"n_{self.program.copies.get(axis, axis)}" for axis in axes) or "1"

    def leaves(self, variable: Callable[[str], str]) -> Callable:
        plain = super().leaves(variable)

        def leaf(term: Expr) -> object:
            if term.op == "symbol" and term.name in self.made:
                return Leaf(term.name, (), self.storage.produced_type(term.name), "")
            found = plain(term)
            return replace(found, axes=self.storage.held[term.name.removesuffix(PRIME)].columns) if term.op == "symbol" else found

        return leaf

    # formulas

    def assigning(self, name: str, expr: Expr, held: Variable, partial: bool = False) -> str:
        """A function that writes a formula into an array, place by place; the name to call it by."""
        if name not in self.texts:
            function = self.kind(name, self, self._current, partial=partial)
            into = function.argument("into", "into")
            for axis in held.columns:
                function.open(axis)
            function.line(f"{into}[{function.place(held.columns)}] = {in_dialect(function.code(expr).to(held.type).text, self.fast)}")
            for _ in held.columns:
                function.close()
            self.define(function)
        return name

    def value(self, value: Value, suffix: str, seen: str, inside: Function) -> str:
        held = self.storage.held[value.name]
        if not held.columns:
            return super().value(value, suffix, seen, inside)
        name = self.assigning(f"value_{held.name}", value.value, held)
        into = inside.argument(f"{held.name}{suffix}", f"{held.name}{suffix}")
        return self.called(name, self._with_suffix(suffix) | {"into": into, f"n_{self.program.axis}": seen}, inside)

    def _with_suffix(self, suffix: str) -> dict[str, str]:
        return {v.name: v.name if v.columns and v in self.arrays and v not in self.kept else f"{v.name}{suffix}" for v in self.storage.held.values()}

    def rebased_in_place(self, update: Update, inside: Function) -> str:
        """A call that moves an array's places to the new pivots, from what `kept` arrays were."""
        held = self.storage.held[update.name]
        name = self.assigning(f"rebase_{held.name}", update.rebase, held)
        moved_ = {f"{v.name}_new": v.name for v in self.storage.held.values()}
        return self.called(name, self._with_suffix("_old") | moved_ | {"into": held.name, f"n_{self.program.axis}": "seen_old"}, inside)

    def called(self, name: str, names: dict[str, str], inside: Function | None = None) -> str:
        text = super().called(name, names, inside)
        for argument in self.calls[name] if inside is not None else ():
            given = names.get(argument, argument)
            if given.isidentifier() and given in self._array_names():
                inside.argument(given, given)
        return text

    def _array_names(self) -> set[str]:
        return {v.name for v in (*self.arrays, *self.scratch())}

    # a tile

    def produce(self) -> None:
        """What elements are made of, once for each: inner sums."""
        for name, producer in self.made.items():
            single, columns = self.signature.real == "f4" and producer.contraction is not None, self.program.columns(producer.axes)
            f = self.kind(f"make_{name}", self, self._current, "f4" if single else "f8")
            for axis in (self.program.axis, *columns):
                f.open(axis)
            f.line(f"{f.cell_of(name, columns)} = {f.code(producer.value).to(self.storage.produced_type(name)).text}")
            for _ in (self.program.axis, *columns):
                f.close()
            self.define(f)

    def _before(self, f: DeviceFunction) -> None:
        """Copies of what changes before it is read."""
        for v in self.kept:
            self._each(f, [v], lambda word, v=v: f"{f.argument(f'{v.name}_old', '')}[{word}] = {f.argument(v.name, '')}[{word}]")

    def _each(self, f: DeviceFunction, arrays: list[Variable], line: Callable[[str], str]) -> None:
        for axis in arrays[0].columns:
            f.argument(f"n_{self.program.copies.get(axis, axis)}", "")
        f.line(f"for word in range({self.words(arrays[0].columns)}):")
        f.line(f"    {line('word')}")

    def _fold_stage(self, f: DeviceFunction, stage: Iterable[Update]) -> None:
        stage = list(stage)
        for update in stage:
            if self.storage.held[update.name].columns and not update.fixed:
                f.line("if seen_old > 0:")
                f.line(f"    {self.rebased_in_place(update, f)}")
        super()._fold_stage(f, [u for u in stage if not self.storage.held[u.name].columns])
        arrays = [u for u in stage if self.storage.held[u.name].columns]
        groups: dict[tuple[bool, tuple[str, ...]], list[Update]] = {}
        for update in arrays:
            columns = self.storage.held[update.name].columns
            key = update.name in self.storage.products, columns[:-1] if MONOIDS[update.monoid].counted else columns
            groups.setdefault(key, []).append(update)
        for (product, columns), group in groups.items():
            self._fold_columns(f, product, columns, group)

    def _fold_columns(self, f: DeviceFunction, product: bool, columns: tuple[str, ...], updates: list[Update]) -> None:
        axis, real = self.program.axis, self.signature.real
        exprs = [e for u in updates for e in u.elements]
        choosing = not [u for u in updates if u.monoid in ("sum", "prod")]
        f.wide = "f4" if real == "f4" and (product or choosing or in_single(exprs, (axis, *columns))) else "f8"
        f.open(axis)
        for column in columns:
            f.open(column)
        for update in updates:
            self._accumulate_column(f, update, columns)
        for _ in (axis, *columns):
            f.close()

    def _accumulate_column(self, f: DeviceFunction, update: Update, columns: tuple[str, ...]) -> None:
        held, index, monoid = self.storage.held[update.name], f.index(self.program.axis), MONOIDS[update.monoid]
        mask = "" if update.mask is None else f.code(update.mask).to("b1").text
        value = f.code(update.lift)
        taken = f.taken(index) + (f" & {mask}" if mask else "")
        place = f.place(columns)
        if monoid.counted:
            best, at = (f.argument(v.name, "") for v in self.storage.places(update))
            count = f.argument(f"n_{held.columns[-1]}", "")
            f.line(f"if {taken}:")
            f.line(f"    insert({best}, {at}, {f'({place}) * {count}' if place else '0'}, {count}, {value.to('f8').text}, i8({f.place_of(index)}))")
            return
        into = f"{f.argument(held.name, '')}[{place}]"
        if monoid.indexed:
            won = f"{f.argument(self.storage.held[update.name + WON].name, '')}[{place}]"
            sign = "" if update.monoid == "argmax" else "-"
            f.line(f"ahead = {taken} and comes_first({sign}{value.to('f8').text}, {sign}{won}, {f.place_of(index)}, {into})")
            f.line(f"{won}, {into} = sel(ahead, {value.to('f8').text}, {won}), sel(ahead, i8({f.place_of(index)}), {into})")
            return
        identity = Accumulator("", update.monoid, held.type).identity()
        f.line(f"{into} = {joined(update.monoid, into, f'sel({taken}, {value.to(held.type).text}, {identity})', held.type)}")

    # the states of many threads

    def _combine_stage(self, f: DeviceFunction, stage: Iterable[Update]) -> None:
        stage = list(stage)
        arrays = [u for u in stage if self.storage.held[u.name].columns]
        for update in arrays:
            if not update.fixed:
                f.line("if seen_old > 0:")
                f.line(f"    {self.rebased_in_place(update, f)}")
        super()._combine_stage(f, [u for u in stage if u not in arrays])
        for update in arrays:
            self._join_columns(f, update)

    def _join_columns(self, f: DeviceFunction, update: Update) -> None:
        held, monoid = self.storage.held[update.name], MONOIDS[update.monoid]
        if monoid.counted:
            best, at = (f.argument(v.name, "") for v in self.storage.places(update))
            count, inner = f.argument(f"n_{held.columns[-1]}", ""), held.columns[:-1]
            for axis in inner:
                f.argument(f"n_{self.program.copies.get(axis, axis)}", "")
            f.line(f"for word in range({self.words(inner)}):")
            f.line(f"    join_lists({best}, {at}, word * {count}, {count}, width)")
            return
        place = f"{f.argument(held.name, '')}[word]"
        for axis in held.columns:
            f.argument(f"n_{self.program.copies.get(axis, axis)}", "")
        if monoid.indexed:
            won, sign = f"{f.argument(self.storage.held[update.name + WON].name, '')}[word]", "" if update.monoid == "argmax" else "-"
            lines = [f"other, value = {moved(place, 'i8', 'by')}, {moved(won, 'f8', 'by')}",
                     f"ahead = other >= 0 and comes_first({sign}value, {sign}{won}, other, {place})",
                     f"{place}, {won} = sel(ahead, other, {place}), sel(ahead, value, {won})"]
        else:
            lines = [f"{place} = {joined(update.monoid, place, moved(place, held.type, 'by'), held.type)}"]
        self._over_lanes(f, [f"for word in range({self.words(held.columns)}):", *(f"    {line}" for line in lines)])

    # the end of a row

    def settled(self, f: DeviceFunction, update: Update, end: Expr) -> None:
        held = self.storage.held[update.name]
        if not held.columns:
            super().settled(f, update, end)
            return
        name = self.assigning(f"settle_{held.name}", end, held, partial=True)
        f.line(self.called(name, {"into": f.argument(held.name, ""), f"n_{self.program.axis}": "seen"}, f))

    def result(self, f: DeviceFunction, place: int, output: Expr, type_: str) -> list[str]:
        columns = self.program.columns(self.program.output_axes[place])
        if not columns:
            return super().result(f, place, output, type_)
        into = Variable(f"result_{place}", False, columns, type_)
        name = self.assigning(f"output_{place}", output, into)
        f.line(self.called(name, {"into": f.argument(into.name, ""), f"n_{self.program.axis}": "seen"}, f))
        return []

    def writes(self, place: int) -> bool:
        """Whether a map writes element by element, from within its loops."""
        return bool(self.staged or self.program.columns(self.program.output_axes[place]))

    def map(self, place: int, type_: str) -> None:
        if not self.writes(place):
            super().map(place, type_)
            return
        output, axis = self.program.outputs[place], self.program.axis
        columns = self.program.columns(self.program.output_axes[place])
        single = self.signature.real == "f4" and in_single([output], (axis, *columns))
        f = self.kind(f"map_{place}", self, self._current, "f4" if single else "f8")
        out, length = f.argument(f"out_{place}", ""), f.argument(f"n_{axis}", "")
        for name in ("live", "item"):
            f.argument(name, name)
        f.open(axis)
        for column in columns:
            f.open(column)
        value, index = f.code(output).to(type_).text, f.index(axis)
        words, at = self.words(columns), f"(item * {length} + {f.place_of(index)})"
        target = f"{at} * ({words}) + {f.place(columns)}" if columns else at
        f.line(f"if live and {f.taken(index)}:")
        f.line(f"    store_one(address({out}) + ({target}) * SIZE, {value})" if type_ in ("f4", "f8") else f"    {out}[{target}] = {value}")
        for _ in (axis, *columns):
            f.close()
        self.define(f)
