"""Print a tile program whose rows have columns: states that are arrays, inputs of which an element is a vector.

Out: a module as `rows_cuda` prints it, made for numbers of columns when it is launched.  Elements with columns, and what
goes with them, pass through shared memory, which a block fills with whole pieces of memory; each thread then folds elements of its own.
"""
from __future__ import annotations

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.lower.column_functions import ColumnFunctions
from redfuser_algebra.lower.host_cuda import Choice
from redfuser_algebra.lower.rows_cuda import SECTOR, RowPrinter
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram

ROOM, WORDS, LISTED = 44 * 1024, 160, 32
"""Bytes of shared memory that a block may take, words of 4 bytes that a thread's state may take, and the most of a top k."""

_WIDTHS = {"f4": 4, "f8": 8, "i8": 8, "b1": 1}


def has_columns(program: TileProgram) -> bool:
    """Whether rows of a program have columns, in arrays, in their state or in results."""
    known = (*program.inputs.values(), *program.holds.values(), *program.output_axes)
    return any(program.columns(axes) for axes in known) or any(MONOIDS[u.monoid].counted for u in program.updates)


def _refused(condition: str, said: str) -> list[str]:
    """What does not fit raises an error, of which `said` is the text as code."""
    return [f"if {condition}:", f'    raise ValueError(f"{said}")']


class ColumnPrinter(RowPrinter):
    """The pieces of the module; where no element has columns of its own, threads take whole vectors of elements as in other rows."""

    functions_of = ColumnFunctions
    functions: ColumnFunctions
    rows_of_a_block = 1
    shapes = "(w, slots) for w in (8, 4, 2, 1) for slots in (8, 4, 2, 1) if w == 1 or 16 * w * slots < length"
    """Warps of a block and elements of a thread, in the order in which they are tried."""

    @property
    def staged(self) -> list[str]:
        """The inputs of which a tile goes through shared memory."""
        return self.functions.staged

    @property
    def once(self) -> list[str]:
        """The inputs with columns of which a row has all once."""
        program = self.program
        return [name for name, axes in program.inputs.items() if program.axis not in axes and program.columns(axes)]

    def _width(self, name: str) -> str:
        return self.functions.words(self.program.columns(self.program.inputs[name]))

    # the choice of a kernel

    def _choice(self) -> Choice:
        sizes = [f"sizes[{axis!r}]" for axis in self.columns]
        lines = [line for axis, count in self._counts() for line in self._counted(axis, count)]
        said = f"a thread holds {{state}} bytes of a row's state, and has room for {4 * WORDS}: take fewer columns at a time"
        lines += [f"state = {self._total([(v.type, v.columns) for v in self.functions.arrays])}", *_refused(f"state > {4 * WORDS}", said)]
        if not self.staged:
            return Choice([*lines, "warps = next((w for w in (1, 2, 4) if length <= 32 * w * TILE), 8)"], f", {', '.join(sizes)}" if sizes else "")
        cells = [(self.signature.arrays[name], self.program.columns(self.program.inputs[name])) for name in self.staged]
        cells += [(self.functions.storage.produced_type(name), self.program.columns(p.axes)) for name, p in self.functions.made.items()]
        lines += [f"element = {self._total(cells)}", f"shapes = [{self.shapes}]",
                  f"fits = [(w, slots) for w, slots in shapes if w * (32 * slots * element + state) <= {ROOM}]",
                  *_refused("not fits", f"an element takes {{element}} bytes, and a block has room for {ROOM // 32}: take fewer columns at a time"),
                  "warps, slots = fits[0]"]
        return Choice(lines, ", ".join(["", "slots", *sizes]))

    def _counted(self, axis: str, count: str) -> list[str]:
        """The length of an axis that top-k makes."""
        size = f"sizes[{axis!r}]"
        said = f"the {{{size}}} largest of {{length}}: this kernel finds 1 to {LISTED} of as many or more"
        return [f"{size} = {count}", *_refused(f"not 1 <= {size} <= min(length, {LISTED})", said)]

    def _total(self, arrays: list[tuple[str, tuple[str, ...]]]) -> str:
        """Code for the bytes of arrays of these types and columns."""
        lengths = ([f"sizes[{self.program.copies.get(axis, axis)!r}]" for axis in columns] for _, columns in arrays)
        return " + ".join(f"{_WIDTHS[type_]} * {' * '.join(own) or '1'}" for (type_, _), own in zip(arrays, lengths, strict=True)) or "0"

    def _counts(self) -> list[tuple[str, str]]:
        """The axes that top-k makes, and their lengths as code."""
        counted = [u for u in self.program.updates if MONOIDS[u.monoid].counted]
        return list(dict.fromkeys((u.axes[-1], f"int(numbers[{u.count.name!r}])" if u.count.op == "param" else repr(u.count.value)) for u in counted))

    def _stride(self, name: str) -> str:
        """How far apart the elements of neighbouring threads lie."""
        return f"words_{name}"

    def _bytes(self, name: str) -> int:
        """The bytes of a cell in shared memory."""
        return _WIDTHS[self.signature.arrays[name]]

    # what kernels are made for

    def _made_for(self) -> list[str]:
        return [*(["slots"] if self.staged else []), *(f"n_{axis}" for axis in self.columns)]

    def _constants(self) -> list[str]:
        copies = [f"n_{copy} = n_{axis}" for copy, axis in self.program.copies.items() if axis in self.columns]
        made = [f"room_{name} = slots * span * {self.functions.words(self.program.columns(p.axes))}" for name, p in self.functions.made.items()]
        return [*copies, *super()._constants(), *(line for name in self.staged for line in self._cells(name)), *made,
                *(f"words_{name} = {self._width(name)}" for name in self.once)]

    def _cells(self, name: str) -> list[str]:
        """How a tile of an input lies in shared memory."""
        size = "SIZE" if self._real(name) else self._bytes(name)
        return filled(f"""
            words_{name} = {self._width(name)}
            shift_{name}, mask_{name} = turns_of({self._stride(name)}, {128 // max(self._bytes(name), 4)})
            steps_{name} = 0 if joins else -(-(slots * span * words_{name} + {SECTOR} // {size}) // span)
            room_{name} = max(steps_{name} * span, 1)
        """)

    # the kernel

    def _row(self) -> list[str]:
        lines = super()._row()
        for name in self.once:
            given = f"load_one(p_{name} + word * SIZE, 1)" if self._real(name) else f"{self.names[name]}[o_{name} + word]"
            lines += [f"cells_{name} = cuda.shared.array(words_{name}, {self.signature.arrays[name]})",
                      f"for word in range(thread, words_{name}, span):", f"    cells_{name}[word] = {given}"]
        return [*lines, *(["cuda.syncthreads()"] if self.once else [])]

    def _bounds(self) -> list[str]:
        if not self.staged:
            return super()._bounds()
        made = [(name, self.functions.storage.produced_type(name)) for name in self.functions.made]
        return [*self._part(), *(f"cells_{name} = cuda.shared.array(room_{name}, {self.signature.arrays[name]})" for name in self.staged),
                *(f"cells_{name} = cuda.shared.array(room_{name}, {type_})" for name, type_ in made)]

    def _tile_arrays(self) -> list[str]:
        functions = self.functions
        held = (*functions.arrays, *functions.scratch(), *self._results_with_columns())
        lines = [f"{v.name} = cuda.local.array(words_{v.name}, {v.type})" for v in held]
        return lines if self.staged else [*super()._tile_arrays(), *lines]

    def _loaded(self) -> list[str]:
        if not self.staged:
            return super()._loaded()
        staged = [line for name in self.staged for line in self._stage(name)]
        return ["cuda.syncthreads()", *staged, "cuda.syncthreads()", *(self.functions.called(f"make_{name}", {}) for name in self.functions.made)]

    def _stage(self, name: str) -> list[str]:
        """A tile of an input from memory into shared memory, from a whole sector on."""
        count, place = f"min(slots * span, length - first) * words_{name}", f"(begin + first) * words_{name}"
        turned = f"steps_{name}, shift_{name}, mask_{name}, thread, span"
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
