"""Print a tile program whose elements are taken in order by one thread: a thread has a row, or a column of a row.

Out: a module that needs NumPy and numba-cuda.  Nothing is merged, so any step will do, of states that do not merge and of states with
columns too.  The threads of a block, of up to 32 rows, fill rings in shared memory with the next elements of all its rows, in whole
sectors of memory; then each goes on through its own.  Arrays of a row need not begin at the same place of a sector: elements
are taken DELAY later than they come, and written as much later again, so that rings hold what any of them needs.
Outputs that see what came before are written in the same walk, or in a second one where they need what a row comes to.
"""
from __future__ import annotations

from redfuser_algebra.lower.arithmetic_cuda import BYTES, IMPORTS, CudaSource, accesses, used
from redfuser_algebra.lower.columns_cuda import ROOM, WIDTHS, WORDS, counted_sizes, refused
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.host_cuda import Host
from redfuser_algebra.lower.kernel_cuda import KernelPrinter
from redfuser_algebra.lower.marks import unmarked
from redfuser_algebra.lower.rings_cuda import rings
from redfuser_algebra.lower.rows_cuda import SECTOR
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.lower.walk_functions import WalkFunctions
from redfuser_algebra.lower.whole_rows import walked

ROWS, LANES, BLOCKS = 32, 256, 128
"""The most rows of a block, the most columns of a row in a block, and how many blocks are enough to have rows share them."""

_PLACES = {"i8": 8, "b1": 1}
"""Bytes in memory of what is no real number."""


class WalkPrinter(KernelPrinter):
    """The pieces of the module, each a method that returns lines."""

    counts = ("items",)

    def __init__(self, program: TileProgram, signature: Signature, dtype: str) -> None:
        self.program, self.signature, self.dtype = program, signature, dtype
        self.walked = walked(program)
        self.functions = WalkFunctions(self.walked, program, signature, BYTES[dtype] <= 4)
        self.names, axis = self.functions.storage.names, program.axis
        kinds = [self.functions.storage.kind(output) for output in self.walked.outputs]
        self.outputs = tuple({"i": "i8", "b": "b1"}.get(kind, signature.real) for kind in kinds)
        self.swept = [name for name, axes in program.inputs.items() if axis in axes]
        self.once = [name for name, axes in program.inputs.items() if axis not in axes and program.columns(axes)]
        self.fixed = [name for name in program.inputs if name not in (*self.swept, *self.once)]
        known = [a for axes in (*program.inputs.values(), *program.output_axes) for a in axes if a not in program.copies]
        self.columns = program.columns(tuple(dict.fromkeys(known)))
        self.sizes = tuple(a for a in dict.fromkeys(known) if a not in self.columns)
        self.lanes = self.walked.rows[len(program.rows):]

    def source(self) -> CudaSource:
        """Everything, in the order of a module."""
        functions = self.functions
        if self.walked.updates:
            functions.fold()
        read = [name for place in self.program.maps for name in functions.names_read(place)]
        self.first_walk = read != [] or not self.program.maps
        self.final = functions.finish(self.outputs) if self.first_walk or len(self.program.maps) < len(self.outputs) else []
        if self.program.maps:
            functions.begin()
            functions.walk(self.outputs)
        kernel = unmarked("\n\n".join([*functions.texts.values(), "\n".join(self._kernel()) + "\n"]))
        host = Host(self.program, self.signature, self.dtype, self.outputs, [])
        text = "\n\n".join([kernel, "\n".join(host.lines(host.plan(self._chosen(), self.columns, self.counts))) + "\n"])
        constants = f"SIZE, DELAY = {BYTES[self.dtype]}, {self._delay()}\n"
        body = "\n\n".join([used(rings(accesses(self.dtype), BYTES[self.dtype], self.signature.real), text), constants, text])
        return CudaSource(IMPORTS, body.strip() + "\n", self.dtype, self.outputs)

    def _delay(self) -> int:
        """As many elements as a sector of any array holds."""
        sizes = [self._place(self.signature.arrays[name]) for name in self.swept] + [self._place(self.outputs[place]) for place in self.program.maps]
        return SECTOR // min(sizes)

    def _place(self, type_: str) -> int:
        """Bytes of a number in memory."""
        return _PLACES.get(type_, BYTES[self.dtype])

    # the choice of a kernel

    def _chosen(self) -> list[str]:
        sizes = {axis: f"sizes[{axis!r}]" for axis in self.columns}
        wide = " * ".join(sizes[axis] for axis in self.lanes) or "1"
        items = " * ".join(["math.prod(leading)", *(f"sizes[{a!r}]" for a in self.program.rows)])
        rings = [(self.signature.arrays[n], self.program.columns(self.program.inputs[n])) for n in self.swept]
        rings += [(self.outputs[place], self.program.columns(self.program.output_axes[place])) for place in self.program.maps]
        room = [f"{WIDTHS[_cell(type_)]} * room(ring * {self._sized(own)})" for type_, own in rings]
        room += [f"{WIDTHS[_cell(self.signature.arrays[n])]} * room({self._sized(self.program.columns(self.program.inputs[n]))})" for n in self.once]
        state = self._total([(v.type, v.columns) for v in (*self.functions.arrays, *self.functions.scratch(), *self._local())])
        said = f"a thread holds {{state}} bytes of a row's state, and has room for {4 * WORDS}: take fewer columns at a time"
        full = f"{3 * self._delay()} elements and what goes with them take more than {ROOM} bytes: take fewer columns at a time"
        alone = refused(f"lanes > {LANES}", f"outputs have {{lanes}} columns at every element, and a block writes {LANES}: take fewer columns at a time")
        made = ", ".join(["rows", "wide", "step", *sizes.values()])
        return filled(f"""
            items, length, parts = {items}, sizes[{self.program.axis!r}], 1
            <counted>
            <long>
            lanes = {wide}
            wide, state = min(lanes, {LANES}), {state}
            <state>
            <alone>
            room = lambda words: -(-words // 32) * 32 + 32
            needed = lambda ring: {' + '.join(room)}
            most = min(max(8, items // {BLOCKS}), 2 * items - 1, {ROWS}, max(1, {LANES} // wide))
            shapes = [(rows, step) for rows in (32, 16, 8, 4, 2, 1) for step in (4 * DELAY, 2 * DELAY, DELAY) if rows <= most]
            fits = [(rows, step) for rows, step in shapes if rows * needed(step + 2 * DELAY) <= {ROOM}]
            <full>
            rows, step = fits[0]
            blocks, threads = -(-items // rows) * -(-lanes // wide), -(-rows * wide // 32) * 32
            launches = [(({made}), blocks, threads)]
        """, counted=counted_sizes(self.program), long=self._long(), state=refused(f"state > {4 * WORDS}", said), alone=alone if self.program.maps and self.lanes else [], full=refused("not fits", full))

    def _long(self) -> list[str]:
        """Places in a row are numbers of 31 bits."""
        arrays = [self.program.inputs[name] for name in self.swept] + [self.program.output_axes[place] for place in self.program.maps]
        sized = dict.fromkeys(self._sized(self.program.columns(axes)) for axes in arrays)
        most = f"max({', '.join(sized)})" if len(sized) > 1 else next(iter(sized), "1")
        return refused(f"length * {most} >= 2**31 - 2**10", "a row has {length} elements, too many for places of 31 bits: take fewer columns at a time")

    def _sized(self, axes: tuple[str, ...]) -> str:
        """Code for the number of places along axes."""
        return " * ".join(f"sizes[{self.program.copies.get(axis, axis)!r}]" for axis in axes) or "1"

    def _total(self, arrays: list[tuple[str, tuple[str, ...]]]) -> str:
        """Code for the bytes of arrays of these types and columns."""
        return " + ".join(f"{WIDTHS[type_]} * {self._sized(columns)}" for type_, columns in arrays) or "0"

    def _local(self) -> list[Variable]:
        """Arrays of a thread that hold what maps see, and what it writes in the end."""
        seen = [v for v in self.functions.storage.running.values() if v.columns]
        ends = [(place, self.walked.columns(axes)) for place, axes in enumerate(self.walked.output_axes) if place not in self.walked.maps]
        return [*seen, *(Variable(f"result_{place}", False, own, self.outputs[place]) for place, own in ends if own)]

    # the kernel

    def _kernel(self) -> list[str]:
        return filled(f"""
            @cache
            def make(rows, wide, step{''.join(f', n_{axis}' for axis in self.columns)}):
                \"\"\"The kernel in which so many rows share a block, a thread for each of `wide` columns; `step` elements of a row come at a time.\"\"\"
                ring, lanes = step + 2 * DELAY, {' * '.join(f'n_{axis}' for axis in self.lanes) or '1'}
                span, pieces = -(-rows * wide // 32) * 32, -(-lanes // wide)
                <constants>

                @cuda.jit(launch_bounds=(span, 1))
                def kernel({', '.join(self._arguments())}):
                    <row>
                    <rings>
                    <walks>
                    <results>

                return kernel
        """, constants=self._constants(), row=self._row(), rings=self._rings(), walks=self._walks(), results=self._results())

    def _held(self) -> list[Variable]:
        return []

    def _words(self, columns: tuple[str, ...]) -> str:
        return self.functions.words(columns)

    def _constants(self) -> list[str]:
        """Words of an element, of a ring, and of rings of neighbouring rows, which begin at different banks."""
        program = self.program
        lines = [f"n_{copy} = n_{axis}" for copy, axis in program.copies.items() if axis in self.columns]
        rings = [(name, program.inputs[name]) for name in self.swept] + [(f"out_{place}", program.output_axes[place]) for place in program.maps]
        for name, axes in rings:
            lines += [f"words_{name} = {self._words(program.columns(axes))}", f"ring_{name} = ring * words_{name}", *self._room(name, f"ring_{name}")]
        for name in self.once:
            lines += [f"words_{name} = {self._words(program.columns(program.inputs[name]))}", *self._room(name, f"words_{name}")]
        arrays = (*self.functions.arrays, *self.functions.scratch(), *self._local())
        return [*lines, *(f"words_{v.name} = {self._words(v.columns)}" for v in arrays)]

    def _room(self, name: str, size: str) -> list[str]:
        return [f"room_{name} = -(-{size} // 32) * 32 + max(wide, words_{name} | 1) % 32", f"all_{name} = rows * room_{name}"]

    def _row(self) -> list[str]:
        """Which row a thread has, and which of its columns; where there are no more, another one, of which nothing is written."""
        places = [line for axis in reversed(self.lanes) for line in (f"i_{axis} = column % n_{axis}", f"column //= n_{axis}")]
        return filled(f"""
            thread = i4(cuda.threadIdx.x)
            mine, column = i4(thread // wide), i8(thread % wide + cuda.blockIdx.x % pieces * wide)
            start = i8(cuda.blockIdx.x // pieces) * rows
            present = i4(min(items - start, rows))
            live = mine < present and column < lanes
            mine = sel(mine < present, mine, i4(0))
            item = start + mine
            rest = item
            <begins>
            <fixed>
            <places>
        """, begins=self._begins(self.program.rows, "i"), places=places,
            fixed=[f"x_{name} = load_one(p_{name}, 1)" if self._real(name) else f"x_{name} = {self.names[name]}[o_{name}]" for name in self.fixed])

    def _rings(self) -> list[str]:
        """The rings of a row, and where its arrays begin in memory; rows that read the same share a ring."""
        lines: list[str] = []
        for name in (*self.swept, *self.once):
            type_ = self.signature.arrays[name]
            at = f"p_{name}" if self._real(name) else f"address({self.names[name]}) + o_{name} * {_PLACES[type_]}"
            lines += [f"all_cells_{name} = cuda.shared.array(all_{name}, {_cell(type_)})", f"origins_{name} = cuda.shared.array(rows, i8)", f"origin_{name} = {at}",
                      "if thread == mine * wide:", f"    origins_{name}[mine] = origin_{name}"]
        for place in self.program.maps:
            size = self._place(self.outputs[place])
            lines += [f"all_cells_out_{place} = cuda.shared.array(all_out_{place}, {_cell(self.outputs[place])})",
                      f"begin_out_{place} = address(out_{place}) + start * n_{self.program.axis} * words_out_{place} * {size}",
                      f"skew_out_{place} = i4((begin_out_{place} + mine * n_{self.program.axis} * words_out_{place} * {size}) % {SECTOR} // {size})",
                      f"cells_out_{place} = all_cells_out_{place}[mine * room_out_{place}:]"]
        lines += ["cuda.syncthreads()"]
        for name in (*self.swept, *self.once):
            size = self._place(self.signature.arrays[name])
            lines += [f"own = first_like(origins_{name}, mine)", f"cells_{name} = all_cells_{name}[own * room_{name}:]"]
            lines += [f"skew_{name} = i4(origin_{name} % {SECTOR} // {size})"] if name in self.swept else []
        for name in self.once:
            lines += self._staged(name, "i4(0)", f"words_{name}", f"words_{name}", f"words_{name}", str(self._place(self.signature.arrays[name])))
        lines += ["cuda.syncthreads()"] if self.once else []
        return lines + [f"{v.name} = cuda.local.array(words_{v.name}, {v.type})" for v in (*self.functions.arrays, *self.functions.scratch(), *self._local())]

    def _staged(self, name: str, first: str, count: str, ring: str, length: str, sector: str) -> list[str]:
        type_ = self.signature.arrays[name]
        stage = {"i8": "stage_wholes", "b1": "stage_truths"}.get(type_, "stage_rows")
        return [f"{stage}(all_cells_{name}, room_{name}, origins_{name}, present, {first}, {count}, {ring}, {length}, {sector}, thread, span)"]

    def _walks(self) -> list[str]:
        """One walk, or two where outputs at every element read what the row comes to; then results."""
        folds, maps = bool(self.walked.updates), bool(self.program.maps)
        fold, see, ends = self._fold() if folds else [], self._see() if maps else [], self._finish() if "finish" in self.functions.texts else []
        empty = self._empty() if folds or ends else []
        if maps and self.first_walk:
            return [*empty, *self._walk(fold, []), *ends, *self._begin(), *self._walk([], see)]
        return [*empty, *(self._begin() if maps else []), *self._walk(fold, see), *ends]

    def _empty(self) -> list[str]:
        lines = [f"{self.functions.listed('')} = {', '.join(self.functions.identities())}"]
        for v, identity in self.functions.empty_arrays():
            lines += [f"for word in range(words_{v.name}):", f"    {v.name}[word] = {identity}"]
        return lines

    def _fold(self) -> list[str]:
        old = {f"{name}_old": name for name in ("seen", *(v for v, _ in self.functions.state))}
        return [f"{self.functions.listed('')} = {self.functions.called('fold', old)}"]

    def _begin(self) -> list[str]:
        return self._given(self.functions.called("initial", {}))

    def _see(self) -> list[str]:
        return self._given(self.functions.called("walk", {}))

    def _given(self, called: str) -> list[str]:
        """The states that maps see become what a call returns."""
        names = [v.name for v in self.functions.storage.running.values() if not v.columns]
        return [f"{', '.join(names)} = {called}" if names else called]

    def _walk(self, fold: list[str], see: list[str]) -> list[str]:
        """All elements in order."""
        lead, axis = f"skew_{self.swept[0]} // words_{self.swept[0]}" if self.swept else "0", self.program.axis
        stages = [line for name in self.swept for line in self._staged(
            name, f"i4(turn) * words_{name}", f"step * words_{name}", f"ring_{name}", f"n_{axis} * words_{name}", str(SECTOR))]
        flushes = ["cuda.syncthreads()", *(line for place in self.program.maps for line in self._flushed(place))] if see else []
        return filled(f"""
            for turn in range(0, n_{axis} + {3 if see else 2} * DELAY, step):
                cuda.syncthreads()
                <stages>
                cuda.syncthreads()
                for at in range(turn - DELAY - {lead}, turn + step - DELAY - {lead}):
                    if 0 <= at < n_{axis}:
                        <fold>
                        <see>
                <flushes>
        """, stages=stages, fold=fold, see=see, flushes=flushes)

    def _flushed(self, place: int) -> list[str]:
        """What the rings of outputs have in whole sectors goes to memory."""
        name, type_ = f"out_{place}", self.outputs[place]
        flush = {"i8": "flush_wholes", "b1": "flush_truths"}.get(type_, "flush_rows")
        return [f"{flush}(all_cells_{name}, room_{name}, begin_{name}, present, i4(turn - 2 * DELAY) * words_{name}, step * words_{name}, ring_{name}, "
                f"n_{self.program.axis} * words_{name}, thread, span)"]

    def _finish(self) -> list[str]:
        called = self.functions.called("finish", {})
        return [f"{', '.join(self.final)} = {called}" if self.final else called]

    def _results(self) -> list[str]:
        """What the row comes to, written by the threads whose columns an output has; others have the same numbers."""
        return [line for place in range(len(self.outputs)) if place not in self.program.maps for line in self._write(place)]

    def _write(self, place: int) -> list[str]:
        axes, inner = self.program.columns(self.program.output_axes[place]), self.walked.columns(self.program.output_axes[place])
        at = "item"
        for axis in axes:
            at = f"({at}) * n_{axis} + i_{axis}"
        others = [f"i_{axis} == 0" for axis in self.lanes if axis not in axes]
        value = f"result_{place}[{_flat(inner)}]" if inner else f"result_{place}"
        real = self.outputs[place] in ("f4", "f8")
        lines = [f"store_one(address(out_{place}) + ({at}) * SIZE, {self.signature.real}({value}))" if real else f"out_{place}[{at}] = {value}"]
        for axis in reversed(inner):
            lines = [f"for i_{axis} in range(n_{axis}):", *indented([*lines, "unrolled()"])]
        return [f"if {' and '.join(['live', *others])}:", *indented(lines)]


def _cell(type_: str) -> str:
    """The type of a number in shared memory; truth values of neighbouring rows are in banks of their own."""
    return "i4" if type_ == "b1" else type_


def _flat(axes: tuple[str, ...]) -> str:
    """The place of an element in an array of these axes."""
    at = ""
    for axis in axes:
        at = f"({at}) * n_{axis} + i_{axis}" if at else f"i_{axis}"
    return at
