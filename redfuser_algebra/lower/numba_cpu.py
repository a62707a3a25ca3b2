"""Print a tile program as Numba source for CPUs.

Out: a module that needs NumPy and Numba.  `sweep` does a range of work items, one row
(or one block of rows) each; `kernel` shares all of them between threads.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from redfuser_algebra.algebra.monoids import WON
from redfuser_algebra.language.expr import Expr, symbol
from redfuser_algebra.language.names import stem, symbol_names
from redfuser_algebra.lower.arithmetic_cpu import prelude
from redfuser_algebra.lower.bounds import may_hold, must_hold
from redfuser_algebra.lower.formulas_cpu import Step
from redfuser_algebra.lower.functions import Accumulator, indented
from redfuser_algebra.lower.join_cpu import JoinPrinter
from redfuser_algebra.lower.marks import unmarked
from redfuser_algebra.lower.ordered_cpu import Seen
from redfuser_algebra.lower.scalar_code import constant
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import Producer, TileProgram


@dataclass(frozen=True)
class CpuSource:
    """A printed kernel: the module's text, the order of array and scalar arguments, and the type of each output.

    `state` is what `fold` leaves for a part of the reduced axis, by the names of the form; empty if there is no `fold`.
    With `joins`, `join` makes the outputs of what it left for all parts; if there are maps, it leaves for each part what
    it and all before it come to, and `replay` writes the maps of a part from there on.
    """

    text: str
    arrays: tuple[str, ...]
    params: tuple[str, ...]
    sizes: tuple[str, ...]
    outputs: tuple[str, ...]
    state: tuple[Variable, ...]
    joins: bool


def print_cpu(program: TileProgram, signature: Signature) -> CpuSource:
    """The kernel of a program for arrays and scalars of these types.  Raises LoweringError where there is none."""
    return _Printer(program, signature).source()


class _Printer(JoinPrinter):
    """The functions printed so far; methods return the lines that call them."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        super().__init__(program, signature)
        self.outputs = tuple(self._output_type(output) for output in program.outputs)

    def source(self) -> CpuSource:
        """Everything, in the order of a module."""
        known = (*self.program.inputs.values(), *self.program.holds.values(), *self.program.output_axes)
        sizes = tuple(dict.fromkeys(axis for own in known for axis in own if axis not in self.program.copies))
        tile, end = self._tile(), self._end()
        arrays = [word for name in self.program.inputs for word in (f"b_{name}", self.storage.names[name])]
        given = ["tile", "block", *arrays, *(self.storage.names[p] for p in self.program.params), *(f"n_{a}" for a in sizes)]
        arguments = [*given, *(f"out{place}" for place in range(len(self.outputs)))]
        axis, program = self.program.axis, self.program
        whole = ["for t0 in range(begin, end, tile):", *indented(self.of_whole_rows(tile))] if program.folds else []
        starts, maps = self._starts_of_maps(), self._maps()
        sweep = self._over_items("sweep", ["first", "last", *arguments], [f"begin, end = 0, n_{axis}"], "first, last", [*whole, *end, *starts, *maps])
        kernel = filled(f"""
            @njit(cache=True, parallel=True, error_model="numpy")
            def kernel({', '.join(['threads', 'items', *arguments])}):
                pieces = items if items < 8 * threads else 8 * threads
                for part in prange(threads):
                    for piece in range(part, pieces, threads):
                        sweep(piece * items // pieces, (piece + 1) * items // pieces, {', '.join(arguments)})
        """)
        parts = self._parts(given, arguments[len(given):], tile, end, starts, maps) if program.splits else []
        text = unmarked("\n\n".join([*self.functions, *("\n".join(lines) + "\n" for lines in (sweep, kernel, *parts))]))
        state = tuple(Variable(name, v.block, v.columns, v.type) for name, v in self._state().items())
        return CpuSource(f"{prelude([text])}\n\n{text}", tuple(program.inputs), tuple(program.params),
                         sizes, self.outputs, state, program.splits and program.joins)

    def _parts(self, given: list[str], outputs: list[str], tile: list[str], end: list[str], starts: list[str], maps: list[str]) -> list[list[str]]:
        """The functions for parts of the reduced axis: `fold` one, `join` all, and with maps `replay` one."""
        state = list(self._state().values())
        if not state:
            return []
        held = [f"held_{v.name}" for v in state]
        fold = self._over_items("fold", ["items", "part", "begin", "end", *given, *held], [], "items",
                                ["for t0 in range(begin, end, tile):", *indented(tile), *self.stored(state)])
        if not self.program.joins:
            return [fold]
        join = self._over_items("join", ["parts", "items", *given, *held, *outputs], [], "items",
                                [*self.join(state, self._snapshots(), kept=bool(maps)), *end])
        if not maps:
            return [fold, join]
        last = [f"{v.name} = held_{v.name}[last, item]" for v in state]
        going_on = ["if part > 0:", *indented(self._from_part(state)), *last, *self._values_of_maps(), "if part == 0:", *indented(starts), *maps]
        replay = self._over_items("replay", ["items", "part", "begin", "end", *given, *held, *outputs], [f"last = {held[0]}.shape[0] - 1"], "items", going_on)
        return [fold, join, replay]

    def _over_items(self, name: str, arguments: list[str], before: list[str], items: str, lines: list[str]) -> list[str]:
        return filled(f"""
            @njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
            def {name}({', '.join(arguments)}):
                wide_vectors()
                <allocations>
                <before>
                for item in range({items}):
                    <item>
                    <lines>
        """, allocations=self._allocations(), before=before, item=self._item(), lines=lines)

    def _state(self) -> dict[str, Variable]:
        """What a part of the reduced axis leaves behind; nothing where it is not cut."""
        values = {value.name for value in self.storage.values} - self.means.keys()
        return {} if not self.program.splits else {name: variable for name, variable in self.storage.held.items() if name not in values}

    def _output_type(self, output: Expr) -> str:
        return {"i": "i8", "b": "b1"}.get(self.storage.kind(output), self.signature.real)

    # the loops

    def _item(self) -> list[str]:
        """One row or block of rows: where it is, and its empty state."""
        rows = list(self.program.rows)
        lines = ["rest = item"]
        if self.program.block:
            m = rows.pop()
            lines += [f"blocks = (n_{m} + block - 1) // block", "i0 = rest % blocks * block",
                      f"nb = block if i0 + block < n_{m} else n_{m} - i0", "rest //= blocks"]
        for axis in reversed(rows):
            lines += [f"i_{axis} = rest % n_{axis}", f"rest //= n_{axis}"]
        return [*lines, "b = rest", *self._empty()]

    def _tile(self) -> list[str]:
        read = _read(self.program, [e for u in self.program.updates for e in (u.lift, u.mask, u.step) if e is not None])
        made = [line for producer in self.program.producers if producer.name in read for line in self._produce(producer)]
        passed_over, whole = self._of_mask()
        stages = self._stages()
        if whole:
            stages = [f"if {whole}:", *indented(self._stages(whole=True)), "else:", *indented(stages)]
        return ["n = tile if t0 + tile < end else end - t0", "seen = t0 + n - begin", *passed_over, *self._tiles(), *self.reshaped, *made,
                *self._snapshots(), *stages]

    def _stages(self, whole: bool = False) -> list[str]:
        """All stages; the second one, or the only one, has the next tile fetched."""
        lines: list[str] = []
        for place in range(len(self.program.stages)):
            if place == 1 or len(self.program.stages) == 1:
                self.fetched = [name for name in self._streams() if place or not self.program.columns(self.program.inputs[name])]
            lines += self.stage(place, whole)
        return lines

    def _snapshots(self) -> list[str]:
        """What moves need as it was."""
        now = [(self.held(name), old) for name, old in self.storage.old.items()]
        return [f"copy({held.name}, {old.name})" if old.is_array else f"{old.name} = {held.name}" for held, old in now]

    def _streams(self) -> list[str]:
        """Inputs that are worth fetching while others are computed with: what is read anew for each row.

        Where rows share a matrix product, that takes longer than memory does.
        """
        axis, rows = self.program.axis, set(self.program.rows)
        return [name for name, own in self.program.inputs.items() if axis in own and rows <= set(own) and not self.program.block]

    def _tiles(self) -> list[str]:
        """The parts of arrays that a tile reads, which were asked for since the last call."""
        lines = [f"{name} = {code}" for name, code in self.storage.tiles.items()]
        self.storage.tiles.clear()
        return lines

    def _of_mask(self) -> tuple[list[str], str | None]:
        """If all updates have the same mask: lines that pass over a tile where it can hold nowhere, as that changes nothing,
        and when it holds everywhere, if there are products that need not ask it then."""
        masks = dict.fromkeys(u.where for u in self.program.updates)
        mask = next(iter(masks))
        if len(masks) > 1 or mask is None or symbol_names(mask):
            return [], None
        condition = may_hold(mask, self._tile_bounds)
        whole = must_hold(mask, self._tile_bounds) if self.storage.products else None
        return [f"if not ({condition}):", "    continue"] if condition else [], whole

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
            return (self.storage.leaves(self.held)(leaf).given,) * 2
        return None

    def _empty(self) -> list[str]:
        """The state of no elements."""
        identities = {variable: self._identity(name, variable) for name, variable in self.storage.held.items()}
        running = [f"{v.name} = 0.0" for v in self.storage.running.values() if not v.is_array]
        return running + [f"fill({v.name}, {identity})" if v.is_array else f"{v.name} = {v.type}({identity})" for v, identity in identities.items()]

    def _identity(self, name: str, variable: Variable) -> str:
        updates = {u.name: u for u in self.program.updates}
        if name in updates and updates[name].ordered:
            return constant(updates[name].empty, variable.type).text
        if name in updates:
            return Accumulator("", updates[name].monoid, variable.type).identity()
        if name.removesuffix(WON) in updates:
            return "inf" if updates[name.removesuffix(WON)].monoid == "argmin" else "-inf"
        return "-1" if name.removesuffix("_at") in updates else "0"

    def _allocations(self) -> list[str]:
        lines = []
        for variable in (*self.storage.held.values(), *self.storage.running.values(), *self.storage.old.values()):
            if variable.is_array:
                shape = ", ".join([*(["block"] if variable.block else []), *map(self.size, variable.columns)])
                lines.append(f"{variable.name} = empty(({shape},), {variable.type})")
        if self.summed:
            longest = f"max({', '.join(self.summed)})" if len(self.summed) > 1 else self.summed[0]
            lines.append(f"panel = empty(({longest} + WIDE // {self.signature.real[1]}, VECTORS * WIDE // {self.signature.real[1]}), {self.signature.real})")
        return lines + self.buffers

    # producers

    def _buffer(self, name: str, rows: bool, columns: Iterable[str], type_: str) -> None:
        """A buffer for a tile, of which the part in use is one piece of memory."""
        inner = "".join(f" * {self.size(axis)}" for axis in columns)
        if any(line.startswith(f"{name}_all ") for line in self.buffers):
            return
        self.buffers.append(f"{name}_all = empty(({'block * ' if rows else ''}tile{inner},), {type_})")
        shape = ", ".join([*(["nb"] if rows else []), "n", *map(self.size, columns)])
        self.reshaped.append(f"{name} = shaped({name}_all, ({shape},))")

    def _produce(self, producer: Producer) -> list[str]:
        rows = self.program.block != "" and self.program.block in producer.axes
        columns = self.program.columns(producer.axes)
        type_ = self.storage.produced_type(producer.name)
        self._buffer(producer.name, rows, columns, type_)
        contraction = producer.contraction
        if contraction and self.signature.products and self._both_real(contraction.left, contraction.right):
            self.sums_over(self.size(contraction.axis))
            return [f"multiply({self._matrix(contraction.left)}, {self._matrix(contraction.right)}, b1(True), panel, {producer.name})"]
        function = self.function(f"make_{producer.name}", self.held, [producer.value], (self.program.axis, *columns))
        target = function.argument(producer.name, f"{producer.name}[i]" if rows else producer.name)
        self.nested(function, (self.program.axis, *columns), lambda: self.write(function, target, (self.program.axis, *columns), producer.value, type_))
        lines = [self.printed(function)]
        return self.rows(lines) if rows else lines

    def _both_real(self, *inputs: Expr) -> bool:
        return all(self.signature.arrays[each.name] == self.signature.real for each in inputs)

    def _matrix(self, term: Expr) -> str:
        """The part of an input that a matrix product takes: the block or the tile, and what is summed."""
        own, block = self.program.inputs[term.name], self.program.block
        if block not in own:
            return self.storage.tile_of(term.name)
        places = [f"b_{term.name}[b]", *(f"i_{axis}" for axis in self.program.rows if axis in own and axis != block), "i0:i0 + nb"]
        return f"{self.storage.names[term.name]}[{', '.join(places)}]"

    # the end of a row

    def _end(self) -> list[str]:
        """Settle the pivots, then the values that are left, the outputs, and a second sweep for the maps."""
        steps: list[Step] = []
        for update in self.program.updates:
            end = self.program.ended(update)
            if end is not None:
                self._add_values(steps, self._needs(end))
                steps.append(Step(update.name, self.held(update.name), end, partial=True))
        for place, output in enumerate(self.program.outputs):
            self._add_values(steps, self._needs(output))
            if place not in self.program.maps:
                steps.append(self._output(place, output))
        return self._finished("finish", steps)

    def _finished(self, name: str, steps: list[Step]) -> list[str]:
        """Steps at the end of a row, or of each row of a block."""
        lines: list[str] = []
        for number, (row, group) in enumerate(groupby(steps, lambda step: self.program.block != "" and (step.target.block or step.given != ""))):
            called = self.assigned(f"{name}{number or ''}", list(group), self.held, f"n_{self.program.axis}")
            lines += self.rows(called) if row else called
        return lines

    def _needs(self, expr: Expr) -> list[str]:
        return [stem(name) for name in symbol_names(expr)]

    def _add_values(self, steps: list[Step], names: list[str]) -> None:
        for value in self.program.values:
            if value.name in names and value.name not in self.means and value.name not in [step.symbol for step in steps]:
                self._add_values(steps, self._needs(value.value))
                steps.append(Step(value.name, self.held(value.name), value.value))

    def _output(self, place: int, output: Expr) -> Step:
        target = Variable(f"out{place}", False, self.program.columns(self.program.output_axes[place]), self.outputs[place])
        return Step("", target, output, given=f"out{place}[{', '.join(['b', *(f'i_{axis}' for axis in self.program.rows)])}]")

    # maps

    def _maps(self) -> list[str]:
        """A second sweep for the outputs that keep the axis; the only one where they see nothing but what came before."""
        axis, maps = self.program.axis, self.program.maps
        begin, end = ("begin", "end") if self.program.running else ("0", f"n_{axis}")
        lines = [] if self.program.running else [self._map(place) for place in maps]
        if self.program.running:
            lines = self.map_ordered("map", [self._seen(place) for place in maps])
        lines = self.rows(lines)
        if not lines:
            return []
        read = _read(self.program, self.program.again)
        made = [line for p in self.program.producers if p.name in read for line in self._produce(p)]
        shaped = [line for line in self.reshaped if line.partition(" ")[0] in read]
        ahead = [] if self.program.running else self.ahead_of_tile(self._streams(), end)
        return [f"for t0 in range({begin}, {end}, tile):", *indented([
            f"n = tile if t0 + tile < {end} else {end} - t0", *self._tiles(), *ahead, *shaped, *made, *lines])]

    def _seen(self, place: int) -> Seen:
        name, axes = f"out{place}", self.program.output_axes[place]
        return Seen(name, self._of_tile(place), self.program.columns(axes), self.program.outputs[place], self.outputs[place])

    def _of_tile(self, place: int) -> str:
        """The part of an output that a tile writes."""
        return f"out{place}[{', '.join(['b', *(f'i_{a}' for a in self.program.rows), 't0:t0 + n'])}]"

    def _starts_of_maps(self) -> list[str]:
        """The states that maps see before the first element."""
        steps = [Step(state.name, self.storage.running[state.name], state.start) for state in self.program.running]
        return self._finished("begin_maps", steps)

    def _values_of_maps(self) -> list[str]:
        """What maps read of the results of all parts."""
        steps: list[Step] = []
        for output in self.program.again:
            self._add_values(steps, self._needs(output))
        return self._finished("value_of_map", steps)

    def _from_part(self, state: list[Variable]) -> list[str]:
        """The states that maps see, as the parts before this one have left them."""
        steps: list[Step] = []
        for running in self.program.running:
            self._add_values(steps, [running.after])
        steps += [Step(r.name, self.storage.running[r.name], symbol(r.after, r.axes)) for r in self.program.running]
        return [*(f"{v.name} = held_{v.name}[part - 1, item]" for v in state), *self.assigned("go_on", steps, self._going_on, "begin")]

    def _going_on(self, name: str) -> Variable:
        return self.storage.running.get(name) or self.held(name)

    def _map(self, place: int) -> str:
        axis, output = self.program.axis, self.program.outputs[place]
        loops = (axis, *self.program.columns(self.program.output_axes[place]))
        function = self.function(f"map_{place}", self.held, [output], loops)
        target = function.argument(f"out{place}", self._of_tile(place))
        self.nested(function, loops, lambda: self.write(function, target, loops, output, self.outputs[place]))
        return self.printed(function)


def _read(program: TileProgram, exprs: Iterable[Expr]) -> set[str]:
    """The producers that formulas read, and that these read."""
    made = {producer.name: producer.value for producer in program.producers}
    found, todo = set(), list(symbol_names(*exprs))
    while todo:
        name = todo.pop()
        if name in made and name not in found:
            found.add(name)
            todo += symbol_names(made[name])
    return found
