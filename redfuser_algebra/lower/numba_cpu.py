"""Print a tile program as Numba source for CPUs.

Out: a module that needs NumPy, Numba and, for matrix products, SciPy.  `sweep` does a range of work items, one row
(or one block of rows) each; `kernel` shares all of them between threads.
"""
from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.lower.arithmetic_cpu import prelude
from redfuser_algebra.lower.bounds_cpu import may_hold
from redfuser_algebra.lower.formulas_cpu import FormulaPrinter
from redfuser_algebra.lower.functions_cpu import Accumulator, Function, joined
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage_cpu import Signature, Variable, positions
from redfuser_algebra.lower.tile import PRIME, Producer, TileProgram, Update, Value, stem, symbol_names

@dataclass(frozen=True)
class CpuSource:
    """A printed kernel: the module's text, the order of array and scalar arguments, and the type of each output.

    `state` is what `fold` leaves for a part of the reduced axis, by the names of the form; empty if there is no `fold`.
    """

    text: str
    arrays: tuple[str, ...]
    params: tuple[str, ...]
    sizes: tuple[str, ...]
    outputs: tuple[str, ...]
    multiplies: bool
    state: tuple[Variable, ...]


def print_cpu(program: TileProgram, signature: Signature) -> CpuSource:
    """The kernel of a program for arrays and scalars of these types.  Raises LoweringError where there is none."""
    return _Printer(program, signature).source()


class _Printer(FormulaPrinter):
    """The functions printed so far; methods return the lines that call them."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        super().__init__(program, signature)
        self.buffers: list[str] = []
        self.reshaped: list[str] = []
        self.outputs = tuple(self._output_type(output) for output in program.outputs)

    def source(self) -> CpuSource:
        """Everything, in the order of a module."""
        known = (*self.program.inputs.values(), *self.program.holds.values(), *self.program.output_axes)
        sizes = tuple(dict.fromkeys(axis for own in known for axis in own if axis not in self.program.copies))
        tile, end = self._tile(), self._end()
        arrays = [word for name in self.program.inputs for word in (f"b_{name}", self.storage.names[name])]
        given = ["tile", "block", *arrays, *(self.storage.names[p] for p in self.program.params), *(f"n_{a}" for a in sizes)]
        arguments = [*given, *(f"out{place}" for place in range(len(self.outputs)))]
        sweep = self._loops("sweep", ["first", "last", *arguments], [f"begin, end = 0, n_{self.program.axis}"], "first, last", tile, end)
        state = self._state()
        stored = [f"copy({v.name}, held_{v.name}[part, item])" if v.is_array else f"held_{v.name}[part, item] = {v.name}" for v in state.values()]
        fold = self._loops("fold", ["items", "part", "begin", "end", *given, *(f"held_{v.name}" for v in state.values())], [], "items", tile, stored)
        kernel = ['@njit(cache=True, parallel=True, error_model="numpy")', f"def kernel({', '.join(['threads', 'items', *arguments])}):",
                  *_in(["for part in prange(threads):",
                        f"    sweep(part * items // threads, (part + 1) * items // threads, {', '.join(arguments)})"])]
        texts = [*self.functions, *("\n".join(lines) + "\n" for lines in (sweep, kernel, *([fold] if state else [])))]
        multiplies = any("np.dot(" in text or "product(" in text for text in texts)
        return CpuSource(prelude(texts) + "".join("\n\n" + text for text in texts), tuple(self.program.inputs), tuple(self.program.params),
                         sizes, self.outputs, multiplies, tuple(Variable(name, v.block, v.columns, v.type) for name, v in state.items()))

    def _loops(self, name: str, arguments: list[str], before: list[str], items: str, tile: list[str], end: list[str]) -> list[str]:
        """A function that goes over work items, and in each over the tiles between `begin` and `end`."""
        return ['@njit(cache=True, nogil=True, error_model="numpy")', f"def {name}({', '.join(arguments)}):",
                *_in(["wide_vectors()", *self._allocations(), *before, f"for item in range({items}):",
                      *_in([*self._item(), "for t0 in range(begin, end, tile):", *_in(tile), *end])])]

    def _state(self) -> dict[str, Variable]:
        """What a part of the reduced axis leaves behind; nothing where rows are blocked or maps need a second sweep."""
        if self.program.block or self.program.maps:
            return {}
        values = {value.name for value in self.storage.values}
        return {name: variable for name, variable in self.storage.held.items() if name not in values}

    def _output_type(self, output: Expr) -> str:
        return {"i": "i8", "b": "b1"}.get(self.storage.kind(output), self.signature.real)

    # the loops

    def _item(self) -> list[str]:
        """One row or block of rows: where it is, and its empty state."""
        rows = list(self.program.rows)
        lines = ["rest = item"]
        if self.program.block:
            m = rows.pop()
            lines += [f"blocks = (n_{m} + block - 1) // block", "i0 = rest % blocks * block", f"nb = min(block, n_{m} - i0)", "rest //= blocks"]
        for axis in reversed(rows):
            lines += [f"i_{axis} = rest % n_{axis}", f"rest //= n_{axis}"]
        return [*lines, "b = rest", *self._empty()]

    def _tile(self) -> list[str]:
        made = [line for producer in self.program.producers for line in self._produce(producer)]
        now = {old: self.storage.held[name].name for name, old in self.storage.old.items()}
        snapshots = [f"copy({held}, {old.name})" if old.is_array else f"{old.name} = {held}" for old, held in now.items()]
        stages = [line for place in range(len(self.program.stages)) for line in self._stage(place)]
        return ["n = min(tile, end - t0)", "seen = t0 + n - begin", *self._passed_over(), *self.reshaped, *made, *snapshots, *stages]

    def _passed_over(self) -> list[str]:
        """If all updates have the same mask, a tile where it can hold nowhere changes nothing."""
        masks = dict.fromkeys(u.lift if u.monoid == "any" and u.mask is None else u.mask for u in self.program.updates)
        mask = next(iter(masks))
        if len(masks) > 1 or mask is None or symbol_names(mask):
            return []
        condition = may_hold(mask, self._tile_bounds)
        return [f"if not ({condition}):", "    continue"] if condition else []

    def _tile_bounds(self, leaf: Expr) -> tuple[str, str] | None:
        """The bounds of a leaf over a tile and a block of rows."""
        axis, block = self.program.axis, self.program.block
        if leaf.op == "index" and leaf.axis == axis:
            return "t0", "(t0 + n - 1)"
        if leaf.op == "index" and leaf.axis in self.program.rows:
            return ("i0", "(i0 + nb - 1)") if leaf.axis == block else (f"i_{leaf.axis}",) * 2
        if leaf.op == "size":
            return (self.size(leaf.axis),) * 2
        if leaf.op == "input" and set(leaf.axes) <= set(self.program.rows) - {block} or leaf.op == "param":
            return (self.storage.leaves(self.storage.held.__getitem__)(leaf).given,) * 2
        return None

    def _rows(self, lines: list[str]) -> list[str]:
        """Lines for every row of the block."""
        if not lines or not self.program.block:
            return lines
        return ["for i in range(nb):", f"    i_{self.program.block} = i0 + i", *_in(lines)]

    def _empty(self) -> list[str]:
        updates = {u.name: u for u in self.program.updates}
        lines = []
        for name, variable in self.storage.held.items():
            update = updates.get(name)
            identity = "0" if update is None else Accumulator("", update.monoid, variable.type).identity()
            if name.removesuffix(WON) in updates and name not in updates:
                identity = "inf" if updates[name.removesuffix(WON)].monoid == "argmin" else "-inf"
            elif name.removesuffix("_at") in updates and name not in updates:
                identity = "-1"
            lines.append(f"fill({variable.name}, {identity})" if variable.is_array else f"{variable.name} = {variable.type}({identity})")
        return lines

    def _allocations(self) -> list[str]:
        lines = []
        for variable in (*self.storage.held.values(), *self.storage.old.values()):
            if variable.is_array:
                shape = ", ".join([*(["block"] if variable.block else []), *map(self.size, variable.columns)])
                lines.append(f"{variable.name} = np.empty(({shape},), {variable.type})")
        return lines + self.buffers

    # producers

    def _buffer(self, name: str, rows: bool, columns: Iterable[str], type_: str) -> None:
        """A buffer for a tile, of which the part in use is one piece of memory."""
        inner = "".join(f" * {self.size(axis)}" for axis in columns)
        self.buffers.append(f"{name}_all = np.empty({'block * ' if rows else ''}tile{inner}, {type_})")
        shape = ", ".join([*(["nb"] if rows else []), "n", *map(self.size, columns)])
        self.reshaped.append(f"{name} = {name}_all[:{'nb * ' if rows else ''}n{inner}].reshape(({shape},))")

    def _produce(self, producer: Producer) -> list[str]:
        rows = self.program.block != "" and self.program.block in producer.axes
        columns = self.program.columns(producer.axes)
        type_ = self.storage.produced_type(producer.name)
        self._buffer(producer.name, rows, columns, type_)
        contraction = producer.contraction
        if contraction and self.signature.blas and self._both_real(contraction.left, contraction.right):
            return [f"np.dot({self._matrix(contraction.left)}, {self._matrix(contraction.right)}.T, {producer.name})"]
        function = self.function(f"make_{producer.name}", self.storage.held.__getitem__, [producer.value], (self.program.axis, *columns))
        target = function.argument(producer.name, f"{producer.name}[i]" if rows else producer.name)
        self.nested(function, (self.program.axis, *columns), lambda: self.write(function, target, (self.program.axis, *columns), producer.value, type_))
        lines = [self.printed(function)]
        return self._rows(lines) if rows else lines

    def _both_real(self, *inputs: Expr) -> bool:
        return all(self.signature.arrays[each.name] == self.signature.real for each in inputs)

    def _matrix(self, term: Expr) -> str:
        """The part of an input that a matrix product takes: the block or the tile, and what is summed."""
        own, block = self.program.inputs[term.name], self.program.block
        places = [f"b_{term.name}[b]", *(f"i_{axis}" for axis in self.program.rows if axis in own and axis != block)]
        places.append("i0:i0 + nb" if block in own else "t0:t0 + n")
        return f"{self.storage.names[term.name]}[{', '.join(places)}]"

    # stages

    def _stage(self, place: int) -> list[str]:
        stage = self.program.stages[place]
        block = self.program.block
        shared = [u for u in stage if not block or block not in u.axes]
        own = [u for u in stage if block and block in u.axes]
        values = self._values_at(place)
        lines = self._values([v for v in values if not self.storage.held[v.name].block], "seen")
        lines += self._rows(self._values([v for v in values if self.storage.held[v.name].block], "seen"))
        lines += self._part(shared, f"{place}", rows=False)
        lines += self._part(own, f"{place}_rows" if shared else f"{place}", rows=True)
        return lines

    def _values_at(self, place: int) -> list[Value]:
        """The moving values that become known with the stages before, and were not known earlier."""
        ready = lambda stop: self._known({u.name for stage in self.program.stages[:stop] for u in stage})
        before, now = ready(place - 1) if place else [], ready(place)
        return [value for value in now if value not in before and value.name in self.storage.moving] if place else []

    def _known(self, known: set[str]) -> list[Value]:
        found, left = [], list(self.storage.values)
        while True:
            fresh = [v for v in left if {stem(n) for n in symbol_names(v.value)} <= known]
            if not fresh:
                return found
            found += fresh
            known = known | {v.name for v in fresh}
            left = [v for v in left if v not in fresh]

    def _values(self, values: list[Value], length: str, phase: str = "value") -> list[str]:
        return [self.assigned(f"{phase}_{value.name}", self.storage.held[value.name], value.value, self.storage.held.__getitem__, length)
                for value in values]

    def _part(self, updates: list[Update], label: str, rows: bool) -> list[str]:
        """The updates of a stage that have the block axis, or those that have not."""
        moves = [self._rebase(update) for update in updates if not update.fixed]
        counts = [u for u in updates if _is_count(u)]
        multiplied = [u for u in updates if u.name in self.storage.products]
        lines = ["if t0 > begin:", *_in(moves)] if moves else []
        lines += [f"{self.storage.held[u.name].at_row()} += {int(u.lift.value)} * n" for u in counts]
        left = {u.name: self._left(u, rows) for u in multiplied}
        groups: dict[tuple[str, ...], list[Update]] = {}
        for update in updates:
            if update not in counts:
                groups.setdefault(() if update in multiplied else self._columns(update), []).append(update)
        for number, (columns, group) in enumerate(groups.items()):
            lines += self._fold(f"fold_{label}{'abcdefgh'[number] if len(groups) > 1 else ''}", columns, group, left)
        lines = self._rows(lines) if rows else lines
        return lines + [line for u in multiplied for line in self._multiply(u, *left[u.name], rows)]

    def _columns(self, update: Update) -> tuple[str, ...]:
        columns = self.program.columns(update.axes)
        return columns[:-1] if MONOIDS[update.monoid].counted else columns

    def _rebase(self, update: Update) -> str:
        def variable(name: str) -> Variable:
            if name.endswith(PRIME):
                return self.storage.held[name.removesuffix(PRIME)]
            return self.storage.old[name] if name in self.storage.old else self.storage.held[name]

        return self.assigned(f"rebase_{update.name}", self.storage.held[update.name], update.rebase, variable, "seen")

    def _fold(self, name: str, columns: tuple[str, ...], updates: list[Update], left: dict[str, tuple[str, str]]) -> list[str]:
        axis = self.program.axis
        exprs = [e for u in updates for e in (u.lift, u.mask, u.contraction and u.contraction.left) if e is not None]
        choosing = not [u for u in updates if u.monoid in ("sum", "prod")]
        function = self.function(name, self.storage.held.__getitem__, exprs, (axis, *columns), choosing)
        plain = [u for u in updates if u.name not in left]
        scalars = [u for u in plain if not columns and not MONOIDS[u.monoid].counted]
        results = self._starts(function, scalars)

        def body() -> None:
            for update in updates:
                if update.name in left:
                    self._write_left(function, update, *left[update.name])
                else:
                    self._accumulate(function, update, columns)

        self.nested(function, (axis, *columns), body)
        called = self.printed(function)
        return self._join(results, called)

    def _starts(self, function: Function, updates: list[Update]) -> list[tuple[Update, str]]:
        """Accumulators of a loop; positions go on from where they are."""
        results = []
        for update in updates:
            held = self.storage.held[update.name]
            if MONOIDS[update.monoid].indexed:
                for variable in (held, self.storage.held[update.name + WON]):
                    function.returned.append(Code(function.argument(variable.name, variable.at_row()), variable.type))
                results.append((update, ""))
            else:
                type_ = held.type if held.type in ("i8", "b1") or function.wide != "f4" else "f4"
                function.line(f"{held.name} = {Accumulator('', update.monoid, type_).identity()}")
                function.returned.append(Code(held.name, type_))
                results.append((update, type_))
        return results

    def _join(self, results: list[tuple[Update, str]], called: str) -> list[str]:
        """The call of a loop, and what its sums do to the state."""
        targets, joins = [], []
        for number, (update, type_) in enumerate(results):
            held = self.storage.held[update.name]
            if not type_:
                targets += [held.at_row(), self.storage.held[update.name + WON].at_row()]
                continue
            targets.append(f"r{number}")
            part = Code(f"r{number}", type_).to(held.type).text
            joins.append(f"{held.at_row()} = {joined(update.monoid, held.at_row(), part, held.type)}")
        return [f"{', '.join(targets)} = {called}" if targets else called, *joins]

    def _accumulate(self, function: Function, update: Update, columns: tuple[str, ...]) -> None:
        mask = None if update.mask is None else function.code(update.mask).to("b1").text
        value, held = function.code(update.lift), self.storage.held[update.name]
        position = function.code(Expr("index", (), (self.program.axis,))).text if MONOIDS[update.monoid].indexed | MONOIDS[update.monoid].counted else ""
        places = f"[{', '.join(map(function.index, columns))}]" if columns else ""
        if MONOIDS[update.monoid].counted:
            pair = (update.name + WON, update.name) if MONOIDS[update.monoid].indexed else (update.name, positions(update.name))
            best, at = (function.argument(v.name, v.at_row()) + places for v in (self.storage.held[n] for n in pair))
            call_ = f"insert({best}, {at}, {value.to('f8').text}, {position})"
            function.line(call_ if mask is None else f"if {mask}: {call_}")
            return
        type_ = next((code.type for code in function.returned if code.text == held.name), held.type)
        if columns:
            function.argument(held.name, held.at_row())
        accumulator = Accumulator(held.name + places, update.monoid, type_)
        won = ""
        if MONOIDS[update.monoid].indexed:
            variable = self.storage.held[update.name + WON]
            won = (function.argument(variable.name, variable.at_row()) if columns else variable.name) + places
        for line in accumulator.then(value, mask, position, won):
            function.line(line)

    # sums by matrix products

    def _left(self, update: Update, rows: bool) -> tuple[str, str]:
        """Buffers for the left factor and, under a mask, for which elements take part."""
        number = sum("P" in line.split("_all")[0] for line in self.buffers) + 1
        left, taken = f"P{number}", f"M{number}" if update.mask is not None else ""
        for name, type_ in ((left, self.signature.real), (taken, "b1")):
            if name:
                inner = "block * tile" if rows else "tile"
                self.buffers.append(f"{name}_all = np.empty({inner}, {type_})")
                count = "nb" if rows else "1"
                self.reshaped.append(f"{name} = {name}_all[:{count} * n].reshape(({count}, n))")
        columns = " * ".join(map(self.size, self.program.columns(update.axes)))
        self.buffers.append(f"R{number}_all = np.empty(({'block' if rows else '1'}, {columns}), {self.signature.real})")
        return left, taken

    def _write_left(self, function: Function, update: Update, left: str, taken: str) -> None:
        row = "[i]" if self.program.block and self.program.block in update.axes else "[0]"
        value = function.code(update.contraction.left).to(self.signature.real)
        index = function.index(self.program.axis)
        target = function.argument(left, left + row)
        if not taken:
            function.line(f"{target}[{index}] = {value.text}")
            return
        mask = function.code(update.mask).to("b1").text
        zero = Code("0", "i8").to(self.signature.real).text
        function.line(f"{target}[{index}] = {value.text} if {mask} else {zero}")
        function.line(f"{function.argument(taken, taken + row)}[{index}] = {mask}")

    def _multiply(self, update: Update, left: str, taken: str, rows: bool) -> list[str]:
        held, result = self.storage.held[update.name], f"R{left[1:]}_all[:{'nb' if rows else '1'}]"
        columns = " * ".join(map(self.size, held.columns))
        right = f"{self._tile_of(update.contraction.right)}.reshape((n, {columns}))"
        call_ = f"product({left}, {taken}, {right}, {result})" if taken else f"np.dot({left}, {right}, {result})"
        into = f"{held.name}[:nb].reshape((nb, {columns}))" if rows else f"{held.name}.reshape((1, {columns}))"
        return [call_, f"add({into}, {result})"]

    def _tile_of(self, term: Expr) -> str:
        own = self.program.inputs[term.name]
        places = [f"b_{term.name}[b]", *(f"i_{axis}" for axis in self.program.rows if axis in own), "t0:t0 + n"]
        return f"{self.storage.names[term.name]}[{', '.join(places)}]"

    # the end of a row

    def _end(self) -> list[str]:
        """Settle the pivots, then the values that are left, the outputs, and a second sweep for the maps."""
        axis, block = self.program.axis, self.program.block
        steps: list[tuple[bool, str]] = []
        done: set[str] = set()
        for update in self.program.updates:
            if update.stuck is not None:
                steps += self._final_values(self._needs(update.stuck), done)
                steps.append((self.storage.held[update.name].block, self._settle(update)))
        for place, output in enumerate(self.program.outputs):
            steps += self._final_values(self._needs(output), done)
            if place not in self.program.maps:
                steps.append((bool(block), self._output(place, output)))
        lines: list[str] = []
        for row, line in steps:
            lines += self._rows([line]) if row else [line]
        maps = self._rows([self._map(place) for place in self.program.maps])
        if maps:
            lines += [f"for t0 in range(0, n_{axis}, tile):", *_in([f"n = min(tile, n_{axis} - t0)", *maps])]
        return lines

    def _needs(self, expr: Expr) -> list[str]:
        return [stem(name) for name in symbol_names(expr)]

    def _final_values(self, names: list[str], done: set[str]) -> list[tuple[bool, str]]:
        steps = []
        for value in self.program.values:
            if value.name in names and value.name not in done:
                done.add(value.name)
                steps += self._final_values(self._needs(value.value), done)
                held = self.storage.held[value.name]
                steps.append((held.block, self.assigned(f"final_{value.name}", held, value.value, self.storage.held.__getitem__, f"n_{self.program.axis}")))
        return steps

    def _settle(self, update: Update) -> str:
        """NaN where a component has no value at its own pivot."""
        lost = update.stuck
        if update.present:
            lost = call("logical_and", lost, next(u for u in self.program.updates if u.name == update.present).symbol)
        settled = call("where", lost, const(math.nan), update.symbol)
        return self.assigned(f"settle_{update.name}", self.storage.held[update.name], settled, self.storage.held.__getitem__,
                              f"n_{self.program.axis}", partial=True)

    def _output(self, place: int, output: Expr) -> str:
        columns = self.program.columns(self.program.output_axes[place])
        target = Variable(f"out{place}", False, columns, self.outputs[place])
        return self.assigned(f"output_{place}", target, output, self.storage.held.__getitem__, f"n_{self.program.axis}",
                              given=f"out{place}[{', '.join(['b', *(f'i_{axis}' for axis in self.program.rows)])}]")

    def _map(self, place: int) -> str:
        axis, output = self.program.axis, self.program.outputs[place]
        loops = (axis, *self.program.columns(self.program.output_axes[place]))
        function = self.function(f"map_{place}", self.storage.held.__getitem__, [output], loops)
        target = function.argument(f"out{place}", f"out{place}[{', '.join(['b', *(f'i_{a}' for a in self.program.rows), 't0:t0 + n'])}]")
        self.nested(function, loops, lambda: self.write(function, target, loops, output, self.outputs[place]))
        return self.printed(function)


def _in(lines: Iterable[str]) -> list[str]:
    """Lines one level further in."""
    return [f"    {line}" for line in lines]


def _is_count(update: Update) -> bool:
    """Whether a component counts elements, so that a tile adds its length."""
    return update.monoid == "sum" and update.lift.op == "const" and update.mask is None and isinstance(update.lift.value, int)
