"""Print a tile program as Numba source for GPUs: rows of numbers, each shared by the threads of one or more warps.

Out: a module that needs NumPy and numba-cuda.  Every thread folds tiles of its row into a state of its own; states are
merged within the warp by shuffles, then within the block through shared memory.  Maps are written from the registers
that the row still lies in, or in a second sweep if it is longer than the block's tile.  Where there are few long rows
several blocks share one: each leaves its state in memory, and a second launch joins them.
"""
from __future__ import annotations

from collections.abc import Iterable

from redfuser_algebra.lower.arithmetic_cuda import BYTES, IMPORTS, CudaSource, accesses, prelude
from redfuser_algebra.lower.device_functions import RowFunctions
from redfuser_algebra.lower.host_cuda import host, rows_plan
from redfuser_algebra.lower.storage_cpu import Signature
from redfuser_algebra.lower.tile import TileProgram

SLOTS = 16
"""Elements of a row that a thread holds at a time: of all inputs together, or of each if maps read them again."""

SECTOR = 32
"""Bytes that memory hands out at a time: the first whole vector of a row begins such a piece."""

CROWDED = 4
"""Real inputs from which on the compiler may take all registers: left to itself it keeps to 64 and spills one."""


class RowPrinter:
    """The pieces of the module, each a method that returns lines."""

    def __init__(self, program: TileProgram, signature: Signature, dtype: str) -> None:
        self.program, self.signature, self.dtype = program, signature, dtype
        self.functions = RowFunctions(program, signature)
        self.names = self.functions.storage.names
        kinds = [self.functions.storage.kind(self.functions.expanded(output)) for output in program.outputs]
        self.outputs = tuple({"i": "i8", "b": "b1"}.get(kind, signature.real) for kind in kinds)
        axis = program.axis
        own = {name: axes for name, axes in program.inputs.items() if axis in axes and not program.columns(axes)}
        self.streams = [name for name in own if self._real(name)]
        self.others = [name for name in own if not self._real(name)]
        self.fixed = [name for name, axes in program.inputs.items() if axis not in axes and not program.columns(axes)]
        known = (*program.inputs.values(), *program.output_axes)
        self.sizes = tuple(dict.fromkeys(a for axes in known for a in axes if a not in program.copies))

    def _real(self, name: str) -> bool:
        return self.signature.arrays[name] in ("f4", "f8")

    def source(self) -> CudaSource:
        """Everything, in the order of a module."""
        self.functions.fold()
        self.functions.combine()
        self.final = self.functions.finish(self.outputs)
        for place in self.program.maps:
            self.functions.map(place, self.outputs[place])
        pieces = [self._load(), *([self._store()] if self._real_maps() else []), self._kernel(), self._host()]
        text = "\n\n".join([*self.functions.texts.values(), *("\n".join(lines) + "\n" for lines in pieces)])
        used = "".join(line for name, line in accesses(self.dtype).items() if f"{name}(" in text)
        vector = 16 // BYTES[self.dtype]
        flight = max(1, SLOTS // (vector * (1 if self.program.maps else max(len(self.streams), 1))))
        constants = [f"SIZE, VECTOR, FLIGHT = {BYTES[self.dtype]}, {vector}, {flight}", "TILE = VECTOR * FLIGHT", "SLOTS = TILE + 1", "ROWS = 8"]
        body = prelude(used + text) + "\n\n" + used + "\n".join(constants) + "\n\n\n" + text
        return CudaSource(IMPORTS, body.strip() + "\n", self.dtype, self.outputs, dict(self.names))

    def _real_maps(self) -> list[int]:
        return [place for place in self.program.maps if self.outputs[place] in ("f4", "f8")]

    def _host(self) -> list[str]:
        return host(self.program, self.names, self.signature, self.dtype, self.outputs, [t for _, t in self._held()],
                    rows_plan(self.program, self.names, self.signature))

    # a thread's tile

    def _load(self) -> list[str]:
        """Fill a thread's tile: whole vectors, and one slot for what lies before the first or after the last of them."""
        lines = [f"def load({', '.join(self._load_arguments())}):",
                 '    """A tile of the row: FLIGHT vectors, then one element of the edges that are no whole vector."""',
                 "    for flight in range(FLIGHT):", "        number = first + flight * span + thread", "        full = number < vectors",
                 "        place = begin + head + number * VECTOR", "        for k in range(VECTOR):",
                 "            ok[flight * VECTOR + k] = full", "            at[flight * VECTOR + k] = i4(place + k)"]
        for number, name in enumerate(self.streams):
            values = ", ".join(f"v_{name}[flight * VECTOR + {k}]" for k in range(16 // BYTES[self.dtype]))
            vector = [f"{values} = load_vector(p_{name} + place * SIZE, sel(full, i4(1), i4(0)))"]
            single = ["for k in range(VECTOR):", f"    v_{name}[flight * VECTOR + k] = load_one(p_{name} + (place + k) * SIZE, sel(full, i4(1), i4(0)))"]
            lines += _in(vector if number == 0 else [f"if even_{name}:", *_in(vector), "else:", *_in(single)], 2)
        lines += ["    edge = first == 0 and thread < edges", "    ok[TILE] = edge", "    at[TILE] = i4(begin + sel(thread < head, thread, thread + vectors * VECTOR))"]
        lines += [f"    v_{name}[TILE] = load_one(p_{name} + at[TILE] * SIZE, sel(edge, i4(1), i4(0)))" for name in self.streams]
        for name in self.others:
            lines += ["    for slot in range(SLOTS):", f"        v_{name}[slot] = {self.names[name]}[o_{name} + sel(ok[slot], at[slot], i4(0))]"]
        return ["@cuda.jit(device=True)", *lines]

    def _load_arguments(self) -> list[str]:
        return ["first", "thread", "span", "begin", "head", "vectors", "edges", *(f"p_{n}" for n in self.streams), *(f"even_{n}" for n in self.streams[1:]),
                *(part for n in self.others for part in (self.names[n], f"o_{n}")), "ok", "at", *(f"v_{n}" for n in (*self.streams, *self.others))]

    def _store(self) -> list[str]:
        values = ", ".join(f"y[flight * VECTOR + {k}]" for k in range(16 // BYTES[self.dtype]))
        return ["@cuda.jit(device=True)", "def store(pointer, even, ok, at, y):", '    """Write a tile of the row."""', "    for flight in range(FLIGHT):",
                "        if ok[flight * VECTOR] and even:", f"            store_vector(pointer + at[flight * VECTOR] * SIZE, {values})",
                "        elif ok[flight * VECTOR]:", "            for k in range(VECTOR):",
                "                store_one(pointer + (at[flight * VECTOR] + k) * SIZE, y[flight * VECTOR + k])",
                "    if ok[TILE]:", "        store_one(pointer + at[TILE] * SIZE, y[TILE])"]

    # the kernel

    def _kernel(self) -> list[str]:
        state, functions = self.functions.state, self.functions
        fold = functions.called("fold", {f"{v}_old": v for v in ("seen", *(n for n, _ in state))})
        body = [*self._row(), *self._tile_arrays(), f"{functions.listed('')} = {self._identity()}", "first = 0", "more = not joins", "while more:",
                f"    load({', '.join(self._load_arguments())})", f"    {functions.listed('')} = {fold}",
                "    first += FLIGHT * span", "    more = first < vectors", *self._joined_parts(), *self._merges(), *self._results()]
        bounds = "32 * max(warps, ROWS if alone else 1)"
        bounds = f"({bounds}, 1)" if len(self.streams) >= CROWDED else bounds
        return ["def make(warps, stage):", '    """The kernel in which so many warps share a row, or what it is in parts: a "part", or the "join" of all; else it is "whole"."""',
                "    span = 32 * warps", "    alone, splits, joins = warps == 1, stage == 'part', stage == 'join'",
                "", f"    @cuda.jit(launch_bounds={bounds})", f"    def kernel({', '.join(self._arguments())}):", *_in(body, 2), "", "    return kernel"]

    def _held(self) -> list[tuple[str, str]]:
        """What a part of a row leaves in memory."""
        return [] if self.program.maps else [("seen", "i8"), *self.functions.state]

    def _joined_parts(self) -> list[str]:
        """In a join each thread takes the state of one part."""
        if self.program.maps:
            return []
        loads = [f"{v} = sel(there, part_{v}[place], {identity})" for (v, _), identity in zip(self._held(), self.functions.identities(), strict=True)]
        return ["if joins:", "    there = thread < parts", "    place = row * parts + sel(there, thread, i8(0))", *_in(loads)]

    def _arguments(self) -> list[str]:
        arrays = [part for name in self.program.inputs for part in (self.names[name], f"s_{name}")]
        return [*arrays, *(self.names[p] for p in self.program.params), *(f"n_{a}" for a in self.sizes), "items", "parts", "piece",
                *(f"part_{v}" for v, _ in self._held()), *(f"out_{place}" for place in range(len(self.outputs)))]

    def _row(self) -> list[str]:
        """Which row this is, and where its parts begin."""
        axis = self.program.axis
        lines = ["thread = i8(cuda.threadIdx.x)", "lane, warp = thread % 32, thread // 32 % warps", "item, part = i8(cuda.blockIdx.x), i8(0)", "if splits:", "    item, part = item // parts, item % parts", "if alone:",
                 "    item, thread = item * ROWS + thread // 32, lane", "live = item < items", "row = sel(live, item, i8(0))", "rest = row"]
        for each in reversed(self.program.rows):
            lines += [f"i_{each} = rest % n_{each}", f"rest //= n_{each}"]
        for name, axes in self.program.inputs.items():
            rows = [a for a in axes if a in self.program.rows]
            place = "0"
            for each in rows:
                place = f"({place}) * n_{each} + i_{each}" if place != "0" else f"i_{each}"
            inner = [f"n_{self.program.copies.get(a, a)}" for a in axes if a not in rows]
            lines.append(f"o_{name} = rest * s_{name}" + (f" + {' * '.join([f'({place})', *inner])}" if rows else ""))
            if self._real(name):
                lines.append(f"p_{name} = address({self.names[name]}) + o_{name} * SIZE")
        for name in self.fixed:
            lines.append(f"x_{name} = load_one(p_{name}, 1)" if self._real(name) else f"x_{name} = {self.names[name]}[o_{name}]")
        lead = f"p_{self.streams[0]} + begin * SIZE" if self.streams else "0"
        lines += ["begin = part * piece", f"length = max(min(piece, n_{axis} - begin), i8(0))", f"head = min((-({lead}) // SIZE) % ({SECTOR} // SIZE), length)",
                  "vectors = (length - head) // VECTOR", "edges = length - vectors * VECTOR"]
        return lines + [f"even_{name} = (p_{name} + (begin + head) * SIZE) % 16 == 0" for name in self.streams[1:]]

    def _tile_arrays(self) -> list[str]:
        real = self.signature.real
        kinds = [("ok", "b1"), ("at", "i4"), *((f"v_{n}", real) for n in self.streams), *((f"v_{n}", self.signature.arrays[n]) for n in self.others)]
        kinds += [(f"y_{place}", self.outputs[place]) for place in self.program.maps]
        return [f"{name} = cuda.local.array(SLOTS, {type_})" for name, type_ in kinds]

    def _identity(self) -> str:
        return ", ".join(self.functions.identities())

    def _merges(self) -> list[str]:
        """The states of a warp become one, then those of a block's warps."""
        functions = self.functions
        variables = [("seen", "i8"), *functions.state]
        combined = [f"{functions.listed('')} = {functions.called('combine', {f'{v}_old': v for v, _ in variables} | {'width': width})}" for width in ("32", "warps")]
        pairs = list(zip(variables, functions.identities(), strict=True))
        return [combined[0], *(f"shared_{v} = cuda.shared.array(32, {t})" for v, t in variables), "if not alone:",
                *_in(["if lane == 0:", *_in(f"shared_{v}[warp] = {v}" for v, _ in variables), "cuda.syncthreads()", "if warp == 0:",
                      *_in(f"{v} = sel(lane < warps, shared_{v}[lane % warps], {identity})" for (v, _), identity in pairs), f"    {combined[1]}"])]

    def _results(self) -> list[str]:
        """What the row comes to: the first warp knows, and tells the others what maps read."""
        types = self.functions.variable_types()
        plain = [place for place in range(len(self.outputs)) if place not in self.program.maps]
        writes = [f"store_one(address(out_{p}) + item * SIZE, {self.signature.real}(result_{p}))" if self.outputs[p] in ("f4", "f8") else f"out_{p}[item] = result_{p}"
                  for p in plain]
        told = [name for name in self.final if name in types]
        lines = [f"{', '.join(self.final)} = {self.functions.called('finish', {})}"] if self.final else []
        lines += ["if live and thread == 0:", *_in(writes)] if writes else []
        lines += ["if thread == 0:", *_in(f"final_{name}[place] = {name}" for name in told)] if told else []
        keeps = ["if thread == 0:", *_in(f"part_{v}[item * parts + part] = {v}" for v, _ in self._held())]
        first = ["if splits:", *_in(keeps), "elif warp == 0 or alone:", *_in(lines)] if self._held() else ["if warp == 0 or alone:", *_in(lines)]
        if not told:
            return [*first, *(self._maps() if self.program.maps else [])]
        shared = ["place = sel(alone, i8(cuda.threadIdx.x) // 32, i8(0))"] + [f"final_{name} = cuda.shared.array(ROWS, {types[name]})" for name in told]
        return [*shared, *first, "cuda.syncthreads()", *(f"{name} = final_{name}[place]" for name in told), *self._maps()]

    def _maps(self) -> list[str]:
        """Every thread writes its elements, from registers if the row was one tile."""
        writes = [self.functions.called(f"map_{place}", {}) for place in self.program.maps]
        axis = self.program.axis
        for place in self.program.maps:
            if place in self._real_maps():
                pointer = f"address(out_{place}) + item * n_{axis} * SIZE"
                writes += ["if live:", f"    store({pointer}, ({pointer} + head * SIZE) % 16 == 0, ok, at, y_{place})"]
            else:
                writes += ["for slot in range(SLOTS):", "    if live and ok[slot]:", f"        out_{place}[item * n_{axis} + at[slot]] = y_{place}[slot]"]
        return ["long = first > FLIGHT * span", "first, more = 0, True", "while more:", *_in(["if long:", f"    load({', '.join(self._load_arguments())})", *writes,
                "first += FLIGHT * span", "more = first < vectors"])]


def _in(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Lines further in."""
    return ["    " * levels + line for line in lines]
