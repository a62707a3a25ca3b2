"""Print a tile program as Numba source for GPUs: rows of numbers, each shared by the threads of one or more warps.

Out: a module that needs NumPy and numba-cuda.  Every thread folds tiles of its row into a state of its own; states are
merged within the warp by shuffles, then within the block through shared memory.  Maps are written from the registers
that the row still lies in, or in a second sweep if it is longer than the block's tile.  Where there are few long rows
several blocks share one: each leaves its state in memory, and a second launch joins them.
"""
from __future__ import annotations

from redfuser_algebra.lower.arithmetic_cuda import BYTES, IMPORTS, CudaSource, accesses, accesses_of_others, used
from redfuser_algebra.lower.device_functions import RowFunctions
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.host_cuda import Choice, Host
from redfuser_algebra.lower.kernel_cuda import KernelPrinter
from redfuser_algebra.lower.marks import unmarked
from redfuser_algebra.lower.rings_cuda import rings
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram

SLOTS = 16
"""Elements of a row that a thread holds at a time: of all inputs together, or of each if maps read them again."""

NUMBERS = {16: 96, 8: 176}
"""Registers that a thread has for elements and a state, by how many warps share the row."""

_WORDS = {"f8": 2, "i8": 2}
"""Registers that a number takes, if not one."""

_LOADS = {"b1": ("load_truths", ""), "i8": ("load_wholes", " * 8")}
"""How what is no real number is loaded, and the size of one."""

SECTOR = 32
"""Bytes that memory hands out at a time: the first whole vector of a row begins such a piece."""


class RowPrinter(KernelPrinter):
    """The pieces of the module, each a method that returns lines."""

    functions_of = RowFunctions
    counts = "items", "parts", "piece"
    rows_of_a_block = 8
    """How many rows share a block if each has one warp."""

    def __init__(self, program: TileProgram, signature: Signature, dtype: str) -> None:
        self.program, self.signature, self.dtype = program, signature, dtype
        self.functions = self.functions_of(program, signature, BYTES[dtype] <= 4)
        self.names = self.functions.storage.names
        kinds = [self.functions.storage.kind(output) for output in program.outputs]
        self.outputs = tuple({"i": "i8", "b": "b1"}.get(kind, signature.real) for kind in kinds)
        axis = program.axis
        own = {name: axes for name, axes in program.inputs.items() if axis in axes and not program.columns(axes)}
        self.streams = [name for name in own if self._real(name)]
        self.others = [name for name in own if not self._real(name)]
        self.fixed = [name for name, axes in program.inputs.items() if axis not in axes and not program.columns(axes)]
        known = [a for axes in (*program.inputs.values(), *program.output_axes, *program.holds.values()) for a in axes if a not in program.copies]
        self.columns = program.columns(tuple(dict.fromkeys(known)))
        self.sizes = tuple(a for a in dict.fromkeys(known) if a not in self.columns)

    def source(self) -> CudaSource:
        """Everything, in the order of a module."""
        self.functions.produce()
        self.functions.fold()
        self.functions.combine()
        self.final = self.functions.finish(self.outputs)
        self._prepared()
        pieces = [lines for lines in (self._load(), self._store() if self._real_maps() else [], self._kernel()) if lines]
        kernel = unmarked("\n\n".join([*self.functions.texts.values(), *("\n".join(lines) + "\n" for lines in pieces)]))
        text = "\n\n".join([kernel, "\n".join(self._host()) + "\n"])
        vector = 16 // BYTES[self.dtype]
        flight = max(1, self._slots() // (vector * (1 if self.program.maps else max(len(self.streams), 1))))
        constants = f"SIZE, VECTOR, FLIGHT, ROWS = {BYTES[self.dtype]}, {vector}, {flight}, {self.rows_of_a_block}\nTILE = VECTOR * FLIGHT\nSLOTS = TILE + 1\n"
        body = "\n\n".join([used(rings(accesses(self.dtype) + accesses_of_others(self.dtype), BYTES[self.dtype], self.signature.real), text), constants, text])
        return CudaSource(IMPORTS, body.strip() + "\n", self.dtype, self.outputs)

    def _prepared(self) -> None:
        """The functions of maps."""
        for place in self.program.maps:
            self.functions.map(place, self.outputs[place])

    def _real_maps(self) -> list[int]:
        return [place for place in self.program.maps if self.outputs[place] in ("f4", "f8")]

    def _host(self) -> list[str]:
        host = Host(self.program, self.signature, self.dtype, self.outputs, self._held())
        return host.lines(host.rows_plan(self._choice(), self.columns))

    def _slots(self) -> int:
        """Elements that a thread holds."""
        return 2 * SLOTS if self._crowded() else SLOTS

    def _crowded(self) -> bool:
        """Whether 16 warps have too few registers for elements that maps read again beside a state (as it was, of the tile and of a vector),
        and half of the warps, of twice as many elements, have enough."""
        elements = SLOTS * (len(self.streams) + len(self.functions.made)) * _WORDS.get(self.signature.real, 1)
        state = 3 * sum(_WORDS.get(type_, 1) for _, type_ in self.functions.state)
        return bool(self.program.maps) and elements + state > NUMBERS[16] and 2 * elements + state <= NUMBERS[8]

    def _choice(self) -> Choice:
        """How many warps share a row: the least whose tile holds it, or 8 of them in a loop; 4 where nothing is read again and a thread has few tiles.

        Where a state is so large that its threads are better few, 8.
        """
        if self._crowded():
            return Choice(["warps = 8"], "")
        if self.program.maps:
            return Choice(["warps = next((w for w in (1, 2, 4, 8, 16) if length <= 32 * w * TILE), 8)"], "")
        return Choice(["warps = 1 if length <= 32 * TILE else 4 if length <= 512 * TILE else 8"], "")

    # a thread's tile

    def _load(self) -> list[str]:
        """Fill a thread's tile: whole vectors, and one slot for what lies before the first or after the last of them."""
        vectors = []
        for name in self.streams:
            together, single = f"load_vector(p_{name} + place * SIZE, full, v_{name}, flight * VECTOR)", f"load_one(p_{name} + (place + k) * SIZE, full)"
            vectors += self._vector(name, together, single) if vectors else [together]
        for name in self.others:
            load, size = _LOADS[self.signature.arrays[name]]
            vectors += self._vector(name, f"{load}(p_{name} + place{size}, full, v_{name}, flight * VECTOR)", self._other(name, "full", "i4(place + k)"))
        return filled(f'''
            @cuda.jit(device=True)
            def load({', '.join(self._load_arguments())}):
                """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""
                for flight in range(FLIGHT):
                    number = i4(first + flight * span + thread)
                    full = number < vectors
                    place = i4(begin + head + number * VECTOR)
                    for k in range(VECTOR):
                        ok[flight * VECTOR + k], at[flight * VECTOR + k] = full, i4(place + k)
                    <vectors>
                edge = first == 0 and thread < edges
                ok[TILE], at[TILE] = edge, i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))
                <edges>
        ''', vectors=vectors, edges=[*(f"v_{name}[TILE] = load_one(p_{name} + at[TILE] * SIZE, edge)" for name in self.streams),
                                     *(f"v_{name}[TILE] = {self._other(name, 'edge', 'at[TILE]')}" for name in self.others)])

    def _vector(self, name: str, together: str, single: str) -> list[str]:
        """A vector of an array that need not begin where the first array's does."""
        return filled(f"""
            if even_{name}:
                {together}
            else:
                for k in range(VECTOR):
                    v_{name}[flight * VECTOR + k] = {single}
        """)

    def _other(self, name: str, there: str, place: str) -> str:
        """An element that is no real number, if it is there."""
        return f"{self.names[name]}[o_{name} + sel({there}, {place}, i4(0))]"

    def _load_arguments(self) -> list[str]:
        return ["first", "thread", "span", "begin", "head", "vectors", "edges", *(f"p_{n}" for n in self.streams), *(f"even_{n}" for n in self.streams[1:]),
                *(part for n in self.others for part in (self.names[n], f"o_{n}", f"p_{n}", f"even_{n}")),
                "ok", "at", *(f"v_{n}" for n in (*self.streams, *self.others))]

    def _store(self) -> list[str]:
        return filled('''
            @cuda.jit(device=True)
            def store(pointer, even, ok, at, y):
                """Write a tile of the row."""
                for flight in range(FLIGHT):
                    if ok[flight * VECTOR] and even:
                        store_vector(pointer + at[flight * VECTOR] * SIZE, y, flight * VECTOR)
                    elif ok[flight * VECTOR]:
                        for k in range(VECTOR):
                            store_one(pointer + (at[flight * VECTOR] + k) * SIZE, y[flight * VECTOR + k])
                if ok[TILE]:
                    store_one(pointer + at[TILE] * SIZE, y[TILE])
        ''')

    # the kernel

    def _kernel(self) -> list[str]:
        return filled(f"""
            @cache
            def make({', '.join(['warps', 'stage', *self._made_for()])}):
                <said>
                span = 32 * warps
                alone, splits, joins = warps == 1, stage == 'part', stage == 'join'
                <constants>

                @cuda.jit(launch_bounds=({self._threads()}, 1))
                def kernel({', '.join(self._arguments())}):
                    <row>
                    <bounds>
                    <tile>
                    <sweep>
                    <results>

                return kernel
        """, said=self._said_of_make(), constants=self._constants(), row=self._row(), bounds=self._bounds(), tile=self._tile_arrays(),
            sweep=self._sweep(), results=self._results())

    def _threads(self) -> str:
        """The threads of a block, as code."""
        return "32 * max(warps, ROWS if alone else 1)"

    def _seat(self, warp: str) -> str:
        """Where a warp of the row leaves what it has for others."""
        return warp

    def _place(self) -> str:
        """Which of the block's rows this is, as code."""
        return "sel(alone, i8(cuda.threadIdx.x) >> 5, i8(0))"

    def _told(self, v: Variable) -> str:
        """How many places what maps read of a variable has, for all rows of a block."""
        return f"words_{v.name}" if v.columns else "ROWS"

    def _sweep(self) -> list[str]:
        """From the state of no elements to that of all."""
        return filled("""
            <empty>
            first = i8(0)
            more = not joins
            while more:
                <loaded>
                <folded>
                <onward>
            <joined>
            <merges>
        """, empty=self._empty(), loaded=self._loaded(), folded=[self._folded()], onward=self._onward(), joined=self._joined_parts(), merges=self._merges())

    def _folded(self) -> str:
        """The state takes in a tile."""
        old = {f"{v.name}_old": v.name for v in self._numbers()}
        return f"{self.functions.listed('')} = {self.functions.called('fold', old)}"

    def _said_of_make(self) -> list[str]:
        return ['"""The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""']

    def _made_for(self) -> list[str]:
        """What else a kernel is made for."""
        return []

    def _constants(self) -> list[str]:
        """What kernels take for constants."""
        arrays = [*self.functions.arrays, *self.functions.scratch(), *self._results_with_columns()]
        lines = [f"words_{v.name} = {self.functions.words(v.columns)}" for v in arrays]
        return [*lines, *(f"room_{v.name} = warps * (words_{v.name} | 1)" for v in self.functions.arrays)]

    def _results_with_columns(self) -> list[Variable]:
        """Outputs that a row has once, in places per column."""
        own = [(place, self.program.columns(axes)) for place, axes in enumerate(self.program.output_axes) if place not in self.program.maps]
        return [Variable(f"result_{place}", False, columns, self.outputs[place]) for place, columns in own if columns]

    def _empty(self) -> list[str]:
        """The state of no elements."""
        lines = [f"{self.functions.listed('')} = {', '.join(self.functions.identities())}"]
        for v, identity in self.functions.empty_arrays():
            lines += [f"for word in range(words_{v.name}):", f"    {v.name}[word] = {identity}"]
        return lines

    def _loaded(self) -> list[str]:
        """A tile."""
        return [f"load({', '.join(self._load_arguments())})", *(self.functions.called(f"make_{name}", {}) for name in self.functions.made)]

    def _loaded_again(self) -> list[str]:
        """A tile for maps."""
        return self._loaded()

    def _onward(self) -> list[str]:
        """To the next tile, if there is one."""
        return ["first += FLIGHT * span", "more = first < vectors"]

    def _numbers(self) -> list[Variable]:
        """The numbers of a state."""
        return [Variable(name, False, (), type_) for name, type_ in (("seen", "i4"), *self.functions.state)]

    def _held(self) -> list[Variable]:
        """What a part of a row leaves in memory."""
        return [] if self.program.maps else [*self._numbers(), *self.functions.arrays]

    def _joined_parts(self) -> list[str]:
        """In a join each thread takes the state of one part."""
        if self.program.maps:
            return []
        loads = [f"{v.name} = sel(there, part_{v.name}[place], {identity})" for v, identity in zip(self._numbers(), self.functions.identities(), strict=True)]
        for v, identity in self.functions.empty_arrays():
            loads += [f"for word in range(words_{v.name}):", f"    {v.name}[word] = sel(there, part_{v.name}[place * words_{v.name} + word], {identity})"]
        return filled("""
            if joins:
                there = thread < parts
                place = row * parts + sel(there, thread, i8(0))
                <loads>
        """, loads=loads)

    def _row(self) -> list[str]:
        """Which row this is, and where its parts begin."""
        return filled("""
            thread = i8(cuda.threadIdx.x)
            lane, warp = thread & 31, thread >> 5 & warps - 1
            item, part = i8(cuda.blockIdx.x), i8(0)
            if splits:
                item, part = item // parts, item % parts
            if alone:
                item, thread = item * ROWS + (thread >> 5), lane
            live = item < items
            row = sel(live, item, i8(0))
            rest = row
            <begins>
            <fixed>
        """, begins=self._begins(self.program.rows, "i"), fixed=self._fixed(early=True))

    def _fixed(self, early: bool) -> list[str]:
        """The inputs of which a row has one number: those that all threads need, or those for the warp that ends the row."""
        needed = self.functions.arguments_but_of("finish")
        return [f"x_{name} = load_one(p_{name}, 1)" if self._real(name) else f"x_{name} = {self.names[name]}[o_{name}]"
                for name in self.fixed if (f"x_{name}" in needed) == early]

    def _bounds(self) -> list[str]:
        """Where the row's part begins, and what of it is whole vectors."""
        lead = f"p_{self.streams[0]} + begin * SIZE" if self.streams else "0"
        return [*self._part(), f"head = min((-({lead}) & {SECTOR - 1}) // SIZE, length)",
                "vectors = i4((length - head) // VECTOR)", "edges = i4(length - vectors * VECTOR)",
                *(f"even_{name} = (p_{name} + (begin + head) * SIZE) % 16 == 0" for name in self.streams[1:]),
                *(line for name in self.others for line in self._pointed(name))]

    def _pointed(self, name: str) -> list[str]:
        """Where whole numbers or truth values of the row lie, and whether those of a vector can be loaded together."""
        size, vector = ("", "VECTOR") if self.signature.arrays[name] == "b1" else (" * 8", "16")
        return [f"p_{name} = address({self.names[name]}) + o_{name}{size}", f"even_{name} = (p_{name} + (begin + head){size}) % {vector} == 0"]

    def _part(self) -> list[str]:
        copies = [f"n_{copy} = n_{axis}" for copy, axis in self.program.copies.items() if axis == self.program.axis]
        return [*copies, "begin = part * piece", f"length = max(min(piece, n_{self.program.axis} - begin), i8(0))"]

    def _tile_arrays(self) -> list[str]:
        real = self.signature.real
        kinds = [("ok", "b1"), ("at", "i4"), *((f"v_{n}", real) for n in self.streams), *((f"v_{n}", self.signature.arrays[n]) for n in self.others)]
        kinds += [(f"v_{name}", self.functions.storage.produced_type(name)) for name in self.functions.made]
        kinds += [(f"y_{place}", self.outputs[place]) for place in self.program.maps]
        return [f"{name} = cuda.local.array(SLOTS, {type_})" for name, type_ in kinds]

    def _merges(self) -> list[str]:
        """The states of a warp become one, then those of a block's warps."""
        functions, numbers = self.functions, self._numbers()
        old = {f"{v.name}_old": v.name for v in numbers}
        of_a_warp, of_the_block = (f"{functions.listed('')} = {functions.called('combine', old | {'width': width})}" for width in ("32", "warps"))
        mine, theirs = self._seat("warp"), self._seat("lane % warps")
        leave = [f"shared_{v.name}[{mine}] = {v.name}" for v in numbers]
        take = [f"{v.name} = sel(lane < warps, shared_{v.name}[{theirs}], {identity})" for v, identity in zip(numbers, functions.identities(), strict=True)]
        for v, identity in functions.empty_arrays():
            each, place = f"for word in range(words_{v.name}):", f"(words_{v.name} | 1) + word"
            leave += [each, f"    shared_{v.name}[{mine} * {place}] = {v.name}[word]"]
            take += [each, f"    {v.name}[word] = sel(lane < warps, shared_{v.name}[{theirs} * {place}], {identity})"]
        return filled(f"""
            {of_a_warp}
            <shared>
            if not alone:
                if lane == 0:
                    <leave>
                cuda.syncthreads()
                if warp == 0:
                    <take>
                    {of_the_block}
        """, leave=leave, take=take, shared=[*(f"shared_{v.name} = cuda.shared.array(32, {v.type})" for v in numbers),
                                             *(f"shared_{v.name} = cuda.shared.array(room_{v.name}, {v.type})" for v in functions.arrays)])

    def _results(self) -> list[str]:
        """What the row comes to: the first warp knows, and tells the others what maps read."""
        types = self.functions.variable_types()
        told = [Variable(name, False, (), types[name]) for name in self.final if name in types]
        told += list(dict.fromkeys(v for place in self.program.maps for v in self.functions.read_by(place) if v.columns))
        writes = [line for place in range(len(self.outputs)) if place not in self.program.maps for line in self._write(place)]
        called = self.functions.called("finish", {})
        lines = [*self._fixed(early=False), f"{', '.join(self.final)} = {called}" if self.final else called] if self.final or writes or told else []
        lines += ["if live and thread == 0:", *indented(writes)] if writes else []
        lines += ["if thread == 0:", *indented(self._moved([(f"final_{v.name}", "place", v.name, "", v) for v in told]))] if told else []
        keeps = ["if live and thread == 0:", *indented(self._moved([(f"part_{v.name}", "item * parts + part", v.name, "", v) for v in self._held()]))]
        first = ["if splits:", *indented(keeps), "elif warp == 0 or alone:", *indented(lines)] if self._held() else ["if warp == 0 or alone:", *indented(lines)]
        if not told:
            return [*first, *(self._maps() if self.program.maps else [])]
        shared = [f"place = {self._place()}"]
        shared += [f"final_{v.name} = cuda.shared.array({self._told(v)}, {v.type})" for v in told]
        return [*shared, *first, "cuda.syncthreads()", *self._moved([(v.name, "", f"final_{v.name}", "place", v) for v in told]), *self._maps()]

    def _moved(self, pairs: list[tuple[str, str, str, str, Variable]]) -> list[str]:
        """Numbers and arrays from one place to another: (to what, at which row there, from what, at which row there, the variable)."""
        lines = []
        for into, there, source, here, v in pairs:
            if not v.columns:
                lines.append(f"{into}{there and f'[{there}]'} = {source}{here and f'[{here}]'}")
                continue
            target, given = (f"({at}) * words_{v.name} + word" if at else "word" for at in (there, here))
            lines += [f"for word in range(words_{v.name}):", f"    {into}[{target}] = {source}[{given}]"]
        return lines

    def _write(self, place: int) -> list[str]:
        """An output that a row has once."""
        columns = self.program.columns(self.program.output_axes[place])
        at, value = (f"item * words_result_{place} + word", f"result_{place}[word]") if columns else ("item", f"result_{place}")
        real = self.outputs[place] in ("f4", "f8")
        line = f"store_one(address(out_{place}) + ({at}) * SIZE, {self.signature.real}({value}))" if real else f"out_{place}[{at}] = {value}"
        return [f"for word in range(words_result_{place}):", f"    {line}"] if columns else [line]

    def _maps(self) -> list[str]:
        """Every thread writes its elements, from registers if the row was one tile."""
        writes = [line for place in self.program.maps for line in (self.functions.called(f"map_{place}", {}), *self._map_written(place))]
        return filled(f"""
            long = first > {self._tile_length()} * span
            first, more = i8(0), True
            while more:
                if long:
                    <loaded>
                <writes>
                <onward>
        """, loaded=self._loaded_again(), writes=writes, onward=self._onward())

    def _tile_length(self) -> str:
        """How far apart a thread's elements of neighbouring tiles are, in units of threads."""
        return "FLIGHT"

    def _map_written(self, place: int) -> list[str]:
        axis = self.program.axis
        if place not in self._real_maps():
            return ["for slot in range(SLOTS):", "    if live and ok[slot]:", f"        out_{place}[item * n_{axis} + at[slot]] = y_{place}[slot]"]
        pointer = f"address(out_{place}) + item * n_{axis} * SIZE"
        return ["if live:", f"    store({pointer}, ({pointer} + head * SIZE) % 16 == 0, ok, at, y_{place})"]
