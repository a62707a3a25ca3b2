"""Print a tile program whose rows have columns: states that are arrays, inputs of which an element is a vector.

Out: a module as `rows_cuda` prints it, made for numbers of columns when it is launched.  Elements with columns, and what
goes with them, pass through shared memory, which a block fills with whole pieces of memory; each thread then folds elements of its own.
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import takewhile

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.lower.column_functions import ColumnFunctions
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.host_cuda import Choice
from redfuser_algebra.lower.rows_cuda import SECTOR, RowPrinter
from redfuser_algebra.lower.storage import Variable
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram

ROOM, WORDS, LISTED = 44 * 1024, 160, 32
"""Bytes of shared memory that a block may take, words of 4 bytes that a thread's state may take, and the most of a top k."""

WIDTHS = {"i4": 4, "f4": 4, "f8": 8, "i8": 8, "b1": 1}
"""Bytes of a number in shared memory."""


def has_columns(program: TileProgram) -> bool:
    """Whether rows of a program have columns, in arrays, in their state or in results."""
    known = (*program.inputs.values(), *program.holds.values(), *program.output_axes)
    return any(program.columns(axes) for axes in known) or any(MONOIDS[u.monoid].counted for u in program.updates)


def refused(condition: str, said: str) -> list[str]:
    """What does not fit raises an error, of which `said` is the text as code."""
    return [f"if {condition}:", f'    raise ValueError(f"{said}")']


def counted_sizes(program: TileProgram) -> list[str]:
    """The lengths of the axes that top-k makes, which are refused if they are none of a list."""
    counted, lines = [u for u in program.updates if MONOIDS[u.monoid].counted], list[str]()
    for axis, count in dict.fromkeys((u.axes[-1], f"int(numbers[{u.count.name!r}])" if u.count.op == "param" else repr(u.count.value)) for u in counted):
        size = f"sizes[{axis!r}]"
        said = f"the {{{size}}} largest of {{length}}: this kernel finds 1 to {LISTED} of as many or more"
        lines += [f"{size} = {count}", *refused(f"not 1 <= {size} <= min(length, {LISTED})", said)]
    return lines


class ColumnPrinter(RowPrinter):
    """The pieces of the module; where no element has columns of its own, threads take whole vectors of elements as in other rows."""

    functions_of = ColumnFunctions
    functions: ColumnFunctions
    rows_of_a_block = 1
    shapes = "for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length"
    """Warps of a row and elements of a thread, in the order in which they are tried."""
    together = 8
    """How many rows that share elements a block has, at most; of all its rows it has as many warps, too."""

    @property
    def staged(self) -> list[str]:
        """The inputs of which a tile goes through shared memory."""
        return self.functions.staged

    @property
    def once(self) -> list[str]:
        """The inputs with columns of which a row has all once."""
        program = self.program
        return [name for name, axes in program.inputs.items() if program.axis not in axes and program.columns(axes)]

    @cached_property
    def shared(self) -> list[str]:
        """The staged inputs that neighbouring rows have in common."""
        return [name for name in self.staged if self.together > 1 and self.program.rows and self.program.rows[-1] not in self.program.inputs[name]]

    @cached_property
    def joined(self) -> tuple[str, ...]:
        """The axes of rows along which these do not change; none if there are no such inputs."""
        known = {axis for name in self.shared for axis in self.program.inputs[name]}
        return tuple(takewhile(lambda axis: axis not in known, reversed(self.program.rows)))[::-1] if self.shared else ()

    def _of_all_rows(self, name: str) -> bool:
        """Whether all rows of a block read the same of an input."""
        return self.joined != () and not set(self.joined) & set(self.program.inputs.get(name, self.joined))

    def _width(self, name: str) -> str:
        return self.functions.words(self.program.columns(self.program.inputs[name]))

    # the choice of a kernel

    def _crowded(self) -> bool:
        """No row has 16 warps."""
        return False

    def _choice(self) -> Choice:
        sizes = [f"sizes[{axis!r}]" for axis in self.columns]
        lines = counted_sizes(self.program)
        said = f"a thread holds {{state}} bytes of a row's state, and has room for {4 * WORDS}: take fewer columns at a time"
        lines += [f"state = {self._total([(v.type, v.columns) for v in self.functions.arrays])}", *refused(f"state > {4 * WORDS}", said)]
        if not self.staged:
            return Choice([*lines, "warps = next((w for w in (1, 2, 4) if length <= 32 * w * TILE), 8)"], f", {', '.join(sizes)}" if sizes else "")
        cells = {name: (self.signature.arrays[name], self.program.columns(self.program.inputs[name])) for name in self.staged}
        made = [(self.functions.storage.produced_type(name), self.program.columns(p.axes)) for name, p in self.functions.made.items()]
        own = self._total([*(cell for name, cell in cells.items() if not self._of_all_rows(name)), *made, *self._cells_of()])
        too_much = refused("not fits", f"an element takes {{element}} bytes, and a block has room for {ROOM // 32}: take fewer columns at a time")
        if not self.joined:
            lines += [f"element = {own}", f"shapes = [(w, slots) {self.shapes}]",
                      f"fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= {ROOM}]",
                      *too_much, "warps, slots = fits[0]"]
            return Choice(lines, ", ".join(["", "slots", *sizes]))
        number = " * ".join(f"sizes[{axis!r}]" for axis in self.joined)
        lines += [f"number, own, element = {number}, {own}, {self._total([cells[name] for name in cells if self._of_all_rows(name)])}",
                  f"shapes = [(r, w, slots) for r in range(min(number, {self.together}), 0, -1) {self.shapes}]",
                  f"fits = [(r, w, slots) for r, w, slots in shapes "
                  f"if r * w <= {self.together} and w * (32 * slots * (element + r * own) + r * state) <= {ROOM}]",
                  *too_much, "rows, warps, slots = fits[0]"]
        return Choice(lines, ", ".join(["", "rows", "slots", *sizes]), "items // number * -(-number // rows), 32 * warps * rows")

    def _cells_of(self) -> list[tuple[str, tuple[str, ...]]]:
        """The types and columns of what else a tile has in shared memory."""
        return []

    def _total(self, arrays: list[tuple[str, tuple[str, ...]]]) -> str:
        """Code for the bytes of arrays of these types and columns."""
        lengths = ([f"sizes[{self.program.copies.get(axis, axis)!r}]" for axis in columns] for _, columns in arrays)
        return " + ".join(f"{WIDTHS[type_]} * {' * '.join(own) or '1'}" for (type_, _), own in zip(arrays, lengths, strict=True)) or "0"

    def _stride(self, name: str) -> str:
        """How far apart the elements of neighbouring threads lie."""
        return f"words_{name}"

    def _bytes(self, name: str) -> int:
        """The bytes of a cell in shared memory."""
        return WIDTHS[self.signature.arrays[name]]

    # what kernels are made for

    def _made_for(self) -> list[str]:
        return [*(["together"] if self.joined else []), *(["slots"] if self.staged else []), *(f"n_{axis}" for axis in self.columns)]

    def _constants(self) -> list[str]:
        copies = [f"n_{copy} = n_{axis}" for copy, axis in self.program.copies.items() if axis in self.columns]
        made = [f"room_{name} = slots * span * {self.functions.words(self.program.columns(p.axes))}" for name, p in self.functions.made.items()]
        lines = [*copies, *super()._constants(), *(line for name in self.staged for line in self._cells(name)), *made,
                 *(f"words_{name} = {self._width(name)}" for name in self.once)]
        if not self.joined:
            return lines
        own = [f"{'words' if name in self.once else 'room'}_{name}" for name in (*self.staged, *self.functions.made, *self.once) if not self._of_all_rows(name)]
        places = [f"words_{v.name}" for v in (*self.functions.arrays, *self.functions.scratch()) if self.program.maps]
        return ["rows = 1 if joins else together", *lines, *(f"all_{each} = rows * {each}" for each in (*own, *places)),
                *(f"room_{v.name} *= rows" for v in self.functions.arrays)]

    def _cells(self, name: str) -> list[str]:
        """How a tile of an input lies in shared memory."""
        size = "SIZE" if self._real(name) else self._bytes(name)
        span = "(rows * span)" if self._of_all_rows(name) else "span"
        return filled(f"""
            words_{name} = {self._width(name)}
            shift_{name}, mask_{name} = turns_of({self._stride(name)}, {128 // max(self._bytes(name), 4)})
            steps_{name} = 0 if joins else -(-(slots * span * words_{name} + {SECTOR} // {size}) // {span})
            room_{name} = max(steps_{name} * {span}, 1)
        """)

    # the kernel

    def _row(self) -> list[str]:
        lines = self._joined_row() if self.joined else super()._row()
        for name in self.once:
            given = f"load_one(p_{name} + word * SIZE, 1)" if self._real(name) else f"{self.names[name]}[o_{name} + word]"
            lines += [*self._room(name, f"words_{name}", self.signature.arrays[name]),
                      f"for word in range({self._crowd(name, f'words_{name}')}):", f"    cells_{name}[word] = {given}"]
        return [*lines, *(["cuda.syncthreads()"] if self.once else [])]

    def _joined_row(self) -> list[str]:
        """Which row this is, of those that share elements; where there are no more, another one, of which nothing is written."""
        return filled(f"""
            everyone = i8(cuda.threadIdx.x)
            mine, thread = everyone // span, everyone % span
            lane, warp = thread & 31, thread >> 5
            item, part = i8(cuda.blockIdx.x), i8(0)
            if splits:
                item, part = item // parts, item % parts
            number = {' * '.join(f'n_{axis}' for axis in self.joined)}
            blocks = -(-number // rows)
            place = item % blocks * rows + mine
            live, item = place < number, item // blocks * number + place
            row = sel(live, item, item - place)
            rest = row
            <begins>
            <fixed>
        """, begins=self._begins(self.program.rows, "i"), fixed=self._fixed(early=True))

    def _room(self, name: str, size: str, type_: str) -> list[str]:
        """Shared memory for what comes of an input, or is made: of this row alone, or of all."""
        if not self.joined or self._of_all_rows(name):
            return [f"cells_{name} = cuda.shared.array({size}, {type_})"]
        return [f"cells_{name} = cuda.shared.array(all_{size}, {type_})[mine * {size}:]"]

    def _crowd(self, name: str, size: str) -> str:
        """The places that a thread fills, of as many as an input has."""
        return f"everyone, {size}, rows * span" if self._of_all_rows(name) else f"thread, {size}, span"

    def _threads(self) -> str:
        return "span * rows" if self.joined else super()._threads()

    def _seat(self, warp: str) -> str:
        return f"(mine * warps + {warp})" if self.joined else warp

    def _place(self) -> str:
        return "mine" if self.joined else super()._place()

    def _told(self, v: Variable) -> str:
        if not self.joined:
            return super()._told(v)
        return f"all_words_{v.name}" if v.columns else "rows"

    def _bounds(self) -> list[str]:
        if not self.staged:
            return super()._bounds()
        made = [(name, self.functions.storage.produced_type(name)) for name in self.functions.made]
        cells = [*((name, self.signature.arrays[name]) for name in self.staged), *made]
        return [*self._part(), *(line for name, type_ in cells for line in self._room(name, f"room_{name}", type_))]

    def _tile_arrays(self) -> list[str]:
        functions = self.functions
        held = (*functions.arrays, *functions.scratch(), *self._results_with_columns())
        lines = [f"{v.name} = cuda.local.array(words_{v.name}, {v.type})" for v in held]
        return lines if self.staged else [*super()._tile_arrays(), *lines]

    def _loaded(self) -> list[str]:
        if not self.staged:
            return super()._loaded()
        read = self._read([e for update in self.program.updates for e in update.elements])
        later = [line for name in self.staged if name not in read for line in self._stage(name)]
        return self._tile_of(read, ["if length <= slots * span:", *indented(later)] if later else [])

    def _loaded_again(self) -> list[str]:
        return self._tile_of(self._read([self.program.outputs[place] for place in self.program.maps])) if self.staged else super()._loaded_again()

    def _read(self, formulas: Iterable[Expr]) -> set[str]:
        """The inputs and producers that formulas read, and what these are made of."""
        names = {term.name for term in subterms(*formulas) if term.op in ("input", "symbol")}
        made = [self.functions.made[name].value for name in names if name in self.functions.made]
        return names | self._read(made) if made else names

    def _tile_of(self, read: set[str], later: Iterable[str] = ()) -> list[str]:
        """A tile of what is read, and what is made of it."""
        staged = [line for name in self.staged if name in read for line in self._stage(name)]
        return ["cuda.syncthreads()", *staged, *later, "cuda.syncthreads()", *(self.functions.called(f"make_{name}", {}) for name in self.functions.made if name in read)]

    def _stage(self, name: str) -> list[str]:
        """A tile of an input from memory into shared memory, from a whole sector on."""
        count, place = f"min(slots * span, length - first) * words_{name}", f"(begin + first) * words_{name}"
        turned = f"steps_{name}, shift_{name}, mask_{name}, {'everyone, rows * span' if self._of_all_rows(name) else 'thread, span'}"
        if not self._real(name):
            return [f"skew_{name} = 0", f"stage_whole(cells_{name}, {self.names[name]}, o_{name} + {place}, {count}, {turned})"]
        return filled(f"""
            lead = p_{name} + {place} * SIZE
            skew_{name} = lead // SIZE % ({SECTOR} // SIZE)
            stage_real(cells_{name}, lead - skew_{name} * SIZE, skew_{name}, skew_{name} + {count}, {turned})
        """)

    def _onward(self) -> list[str]:
        return ["first += slots * span", "more = first < length"] if self.staged else super()._onward()

    def _load(self) -> list[str]:
        return [] if self.staged else super()._load()

    def _real_maps(self) -> list[int]:
        return [place for place in super()._real_maps() if not self.functions.writes(place)]

    def _tile_length(self) -> str:
        return "slots" if self.staged else super()._tile_length()

    def _map_written(self, place: int) -> list[str]:
        return [] if self.functions.writes(place) else super()._map_written(place)
