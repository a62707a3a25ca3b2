"""Print a tile program as Numba source for GPUs: blocks of rows, whose matrix products are made by tensor cores.

Out: a module that needs NumPy and numba-cuda.  A warp has 16 rows.  While one tile of the reduced axis is worked on, the
next is copied to shared memory.  Of a tile, scores are made first (the producers), as fragments in registers; `fold`
takes them into the state of the rows, moves sums with columns to the new pivots, and leaves weights; these, turned into
factors where they are, are multiplied with the tile's rows of each matrix that is added up.  Tiles in which no mask can
hold are passed over, and where all hold, none is evaluated.  Columns beyond what registers hold are other blocks' work.
"""
from __future__ import annotations

from redfuser_algebra.lower.arithmetic_cuda import BYTES, IMPORTS, SINGLE_EXTREMES, CudaSource, accesses, used
from redfuser_algebra.lower.float8 import Float8
from redfuser_algebra.lower.float8_cuda import loads_of_bytes, products_of_bytes
from redfuser_algebra.lower.folding_cuda import Folding, sums_of, weights_of
from redfuser_algebra.lower.fragment_code import left_of
from redfuser_algebra.lower.fragments_cuda import fragments
from redfuser_algebra.lower.functions import Accumulator, indented
from redfuser_algebra.lower.host_cuda import Host
from redfuser_algebra.lower.kernel_cuda import KernelPrinter
from redfuser_algebra.lower.marks import unmarked
from redfuser_algebra.lower.operand_code import OperandCode
from redfuser_algebra.lower.operands_cuda import INSTEAD, Operand, Products, Scores, Weighted, blocks, lies, products
from redfuser_algebra.lower.storage import Signature, Storage, Variable
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import LoweringError, TileProgram
from redfuser_algebra.lower.tile_masks_cuda import TileMasks
from redfuser_algebra.lower.tiles_host_cuda import OF_BYTES, SCHEDULES, tiles_host
from redfuser_algebra.lower.variants import variant


def print_tiles(program: TileProgram, signature: Signature, dtype: str, float8: Float8 = Float8()) -> CudaSource:
    """The kernel of a program with matrix products for real numbers of a dtype, by mma.  Raises LoweringError where there is none.

    Floats of eight bits are multiplied as they are where they are native.
    """
    if BYTES.get(dtype, 8) > 4:
        raise LoweringError(f"a CUDA kernel of {program.name} with {dtype}", "kernels with matrix products have no such numbers", INSTEAD)
    return TilePrinter(program, signature, dtype, float8).source()


class TilePrinter(KernelPrinter):
    """The pieces of the module, each a method that returns lines."""

    counts: tuple[str, ...] = "parts", "piece"
    wgmma = False

    def __init__(self, program: TileProgram, signature: Signature, dtype: str, float8: Float8) -> None:
        self.whole, self.signature, self.dtype = program, signature, dtype
        self.program, self.float8 = program, float8 = blocks(program, signature), float8
        self.parts = self._products()
        self.storage = Storage(program, signature)
        self.names = self.storage.names
        self.masks = TileMasks(program, signature, self.names)
        self.folding = Folding(self.parts, signature, self.storage, BYTES[dtype] == 2)
        known = (*self.whole.inputs.values(), *self.whole.output_axes)
        self.sizes = tuple(a for a in dict.fromkeys(a for axes in known for a in axes if a not in program.copies) if a not in self.parts.lengths)
        self.outputs = tuple("f4" if (kind := self.folding.output_type(place)) == "f4" else kind for place in range(len(program.outputs)))

    def _products(self) -> Products:
        """What the program's products are made of."""
        return products(self.program, self.signature, self.float8)

    def source(self) -> CudaSource:
        """Everything, in the order of a module."""
        self.fold, self.merge, self.finish = self.folding.fold(), self.folding.merge(), self.folding.finish()
        self.once = self.folding.once(self.fold.hoisted)
        groups = [group for group in (*((left,) for left in self.parts.lefts), *self.parts.alike) if not all(map(self._copied, group))]
        self.makers = {operand: maker for group in groups for maker in (self._maker(group),) for operand in group}
        make = unmarked("\n".join(self._make()))
        host = self._host(Host(self.whole, self.signature, self.dtype, self.outputs, self._held(), self.float8))
        found = used(f"{accesses(self.dtype)}\n{fragments(self.dtype, self.wgmma)}\n{self._in_bytes()}", f"{make}\n{host}", SINGLE_EXTREMES)
        body = "\n\n\n".join([f"{found}\n\nSIZE, CHUNK = {BYTES[self.dtype]}, {16 // BYTES[self.dtype]}", make, host])
        return CudaSource(self._imports(), body.strip() + "\n", self.dtype, self.outputs, tiles=True, wgmma=self.wgmma, float8=self.float8)

    def _imports(self) -> str:
        return variant(IMPORTS, ("import math\n", "import math\nimport sys\n")) if self.float8.formats else IMPORTS

    def _host(self, host: Host) -> str:
        """The host's half of the module."""
        return "\n".join(tiles_host(self.parts, host, SCHEDULES if self.parts.near == 2 else OF_BYTES))

    def _in_bytes(self) -> str:
        """Definitions for floats of eight bits, where there are any."""
        if not self.float8.formats:
            return ""
        loads = loads_of_bytes(self.dtype, sorted(set(map(self.float8.kind, self.float8.formats))), self.float8.native)
        scores = [(s.left.kind, s.right.kind) for s in self.parts.scores if s.left.kind]
        weighted = [(w.kind, w.right.kind) for w in self.parts.weighted if w.right.kind]
        return f"{loads}\n{products_of_bytes(self.dtype, scores, weighted)}"

    # sizes that a kernel is made for

    def _make(self) -> list[str]:
        lengths = "".join(f", n_{a}" for a in self.parts.lengths)
        makers = [line for maker in dict.fromkeys(self.makers.values()) for line in [*maker.text().splitlines(), ""]]
        printed = [*([self.once] if self.fold.hoisted else []), self.fold, self.merge, self.finish]
        functions = [line for each in printed for line in (*each.text().splitlines(), "")]
        return filled(f'''
            @cache
            def make(stage, warps, TILE, even{lengths}):
                """The kernel in which a block has 16 rows per warp, tiles are TILE elements long, and rows along `even` axes have
                whole vectors: of "whole" rows, of a "part" of each, or the "join" of parts."""
                <sizes>

                <makers>
                <fetch>

                <functions>
                <kernel>

                return kernel
        ''', sizes=self._sizes(), makers=makers, fetch=self._fetch(), functions=functions, kernel=self._kernel())

    def _sizes(self) -> list[str]:
        block = self.program.block
        axes = [f"n_{a}" for a in self.parts.lengths]
        one = [] if self.program.joined or block in (*self.sizes, *self.parts.lengths) else [f"n_{block} = 1"]
        lines = [*one, "ROWS, THREADS, COLUMNS, splits, joins = 16 * warps, 32 * warps, TILE // 4, stage == 'part', stage == 'join'",
                 *(f"even_{a} = {a!r} in even" for a in self.parts.contiguous), *(f"SPAN_{a} = span_of(n_{a})" for a in self.parts.columns)]
        lines += [*self._places(), "SCORES = 2, COLUMNS", *(f"SUMS_{a} = 2, SPAN_{a} // 4" for a in self.parts.columns)]
        return [*lines, f"BYTES, _ = needs(warps, TILE, {', '.join(axes)})"]

    def _places(self) -> list[str]:
        """Where tiles lie in shared memory: those that stay, and, in each of two stages behind them, those that come."""
        lines = []
        for into, operands in (("STAGES", self.parts.lefts), ("STAGE", self.parts.streamed)):
            place = "0"
            for operand in operands:
                lines.append(f"AT_{operand.name}, WIDTH_{operand.name} = {place}, {self.parts.width(operand)}")
                place = f"AT_{operand.name} + {self.parts.height(operand)} * WIDTH_{operand.name}"
            for name in self.parts.vectors if into == "STAGE" else self.parts.kept:
                width = f"width_of({'TILE' if into == 'STAGE' else self._long(name)})" if self._real(name) else "TILE * 8"
                lines.append(f"AT_x_{name}, WIDTH_x_{name} = {place}, {width}")
                place = f"AT_x_{name} + WIDTH_x_{name}"
            lines.append(f"{into} = {place}")
        return [*lines, *(line for maker in dict.fromkeys(self.makers.values()) for line in maker.sizes)]

    def _long(self, name: str) -> str:
        """How many numbers of an input stay in shared memory."""
        return f"n_{self.program.inputs[name][-1]}"

    # what comes into shared memory

    def _fetch(self) -> list[str]:
        """Tiles of the elements from t0 on, to one of two stages."""
        lines = [line for operand in self.parts.streamed for line in self._load(operand, "to")]
        for name in self.parts.vectors:
            load, source = ("load_row", f"p_{name} + t0 * SIZE") if self._real(name) else ("load_wholes", f"address({self.names[name]}) + (o_{name} + t0) * 8")
            lines.append(f"{load}(to + AT_x_{name}, {source}, i4(n_{self.program.axis} - t0), TILE, thread)")
        names = [f"p_{name}" for name in (*(o.value.name for o in self.parts.streamed if o not in self.makers), *filter(self._real, self.parts.vectors))]
        names += [part for name in self.parts.vectors if not self._real(name) for part in (self.names[name], f"o_{name}")]
        names += [f"begin_{a}" for a in (*self.parts.columns, self.program.block)] + [f"n_{a}" for a in (self.program.axis, self.program.block)] + ["thread"]
        names += [name for o in self.parts.streamed if o in self.makers for name in self.makers[o].arguments if name not in ("to", "t0")]
        self.fetch = ", ".join(dict.fromkeys(names))
        return ["@cuda.jit(device=True, forceinline=True)", f"def fetch(to, t0, {self.fetch}):", *indented(lines)]

    def _maker(self, operands: tuple[Operand, ...]) -> OperandCode:
        return OperandCode(operands, self.parts, self.signature, self.storage, BYTES[self.dtype] == 2)

    def _copied(self, operand: Operand) -> bool:
        """Whether an operand is a piece of an input as it lies in memory, so that it can be copied while something else is done."""
        own = lies(self.program, operand) and self._real(operand.value.name)
        return own and self.float8.kind(operand.value.name) == operand.kind

    def _load(self, operand: Operand, to: str) -> list[str]:
        """The statement that brings a tile, with zeros where its matrix has ended."""
        if operand in self.makers:
            maker = self.makers[operand]
            return [f"{maker.name}({', '.join([to, *list(maker.arguments)[1:]])})"] if operand is maker.operands[0] else []
        streams, name = operand.rows == self.program.axis, operand.name
        row = "t0" if streams else f"begin_{operand.rows}"
        column = "t0" if operand.columns == self.program.axis else f"begin_{operand.columns}" if operand.columns in self.parts.columns else "0"
        width = f"n_{operand.columns}"
        left = f"min({width} - {column}, TILE)" if column == "t0" else f"{width} - {column}"
        place = f"({row} * {width} + {column})" if column != "0" else f"{row} * {width}"
        load, size = ("load_tile_of_bytes", "") if operand.kind else ("load_tile", " * SIZE")
        return [f"{load}({to} + AT_{name}, p_{operand.value.name} + {place}{size}, {width}{size}, i4(n_{operand.rows} - {row}), {left}, "
                f"{self.parts.height(operand)}, WIDTH_{name}, even_{operand.columns}, thread, THREADS)"]

    # the kernel

    def _held(self) -> list[Variable]:
        """What a part of the elements leaves in memory."""
        numbers = [Variable(self.folding.held(u.name), True, (), self.fold.type_of(u.name)) for u in self.parts.numbers]
        return numbers + [Variable(self.folding.held(w.update.name), True, (w.columns,), "f4") for w in self.parts.weighted]

    def _scale(self, name: str) -> str:
        return "" if name in self.float8.formats else " * SIZE"

    def _kernel(self) -> list[str]:
        return filled(f"""
            @cuda.jit(launch_bounds=(THREADS, 1))
            def kernel({', '.join(self._arguments())}):
                thread, number, part = i4(cuda.threadIdx.x), i8(cuda.blockIdx.x), i8(0)
                if not joins:
                    part, number = number % parts, number // parts
                <place>
                <fragments>
                <state>
                shared = shared_address(cuda.shared.array(BYTES, types.uint8, 1024))
                if joins:
                    <joined>
                else:
                    <folded>
                if splits:
                    <leave>
                else:
                    <results>
        """, place=self._place(), fragments=self._fragments(), state=self._state(), joined=self._joined(), folded=self._folded(),
            leave=self._leave(), results=self._results())

    def _folded(self) -> list[str]:
        """The state of the block's rows after this part of their elements, tile by tile."""
        lefts = [line for operand in self.parts.lefts for line in self._load(operand, "shared")]
        kept = [f"load_row(shared + AT_x_{name}, p_{name}, i4({self._long(name)}), WIDTH_x_{name} // SIZE, thread)" for name in self.parts.kept]
        return filled(f"""
            begin = i4(part * piece)
            end = i4(min(begin + piece, n_{self.program.axis}))
            t0, half = begin, i4(0)
            <pass_over>
            <once>
            <kept>
            <lefts>
            if t0 < end:
                fetch(shared + STAGES, t0, {self.fetch})
            copies_end()
            while t0 < end:
                <tile>
            wait_for_copies()
            cuda.syncthreads()
        """, pass_over=self.masks.passed_over("t0"), once=self._once(), lefts=lefts,
            kept=[*kept, "copies_end()", "wait_for_copies()", "cuda.syncthreads()"] if kept else [], tile=self._tile())

    def _once(self) -> list[str]:
        """What is read of the rows before the first tile."""
        hoisted = self.fold.hoisted
        return [*(f"{name} = cuda.local.array(2, {type_})" for name, type_ in hoisted.values()), f"once({', '.join(self.once.arguments)})"] if hoisted else []

    def _joined(self) -> list[str]:
        """The state of whole rows from what parts left."""
        return filled(f"""
            <pairs>
            for part in range(parts):
                seen_old, seen_part = part * piece, min(piece, n_{self.program.axis} - part * piece)
                seen = seen_old + seen_part
                merge({', '.join(self.merge.arguments)})
        """, pairs=[f"{left_of(self.folding.held(w.update.name))} = cuda.local.array(2, f4)" for w in self.parts.weighted])

    def _leave(self) -> list[str]:
        """The state of this part goes to memory."""
        block, mine = self.program.block, "".join(f" and begin_{a} == 0" for a in self.parts.columns)
        numbers = [self.folding.held(u.name) for u in self.parts.numbers]
        return filled(f"""
            for r in range(2):
                inside = first_{block} + 8 * r < n_{block}
                place = (item * n_{block} + first_{block} + 8 * r) * parts + part
                if inside and lane % 4 == 0{mine}:
                    <numbers>
                <sums>
        """, numbers=[f"part_{n}[place] = held_{n}[r]" for n in numbers] or ["pass"],
            sums=[line for each in self.parts.weighted for line in self._leave_columns(each)])

    def _leave_columns(self, each: Weighted) -> list[str]:
        """What a lane has of a sum with columns goes to memory: neighbours together where rows begin at even places."""
        axis, near, name = each.columns, self.parts.near, self.folding.held(each.update.name)
        return filled(f"""
            for i in range(SPAN_{axis} // 8):
                column, first, second = first_{axis} + 2 * i // {near} * {4 * near} + 2 * i % {near}, 2 * i, 2 * i + 1
                at = address(part_{name}) + (place * n_{axis} + column) * 4
                if n_{axis} % 2 == 0 and inside and column < n_{axis}:
                    store_two(at, o_{name}[r, first], o_{name}[r, second])
                if n_{axis} % 2 == 1:
                    for own in range(2):
                        if inside and column + own < n_{axis}:
                            store_single(at + 4 * own, o_{name}[r, first + own])
        """)

    def _place(self) -> list[str]:
        """Which rows and columns are this block's, and where their numbers begin."""
        block, joined, near = self.program.block, self.program.joined, self.parts.near
        columns = []
        for a in self.parts.columns:
            shared = [f"begin_{a} = number % -(-n_{a} // SPAN_{a}) * SPAN_{a}", f"number //= -(-n_{a} // SPAN_{a})"]
            columns += [*(shared if a == self.parts.divided else [f"begin_{a} = i8(0)"]), f"first_{a} = begin_{a} + (lane & 3) * {near}"]
        return filled(f"""
            lane, warp = thread % 32, thread // 32
            <joined>
            <columns>
            blocks = -(-n_{block} // ROWS)
            begin_{block} = (blocks - 1 - number % blocks) * ROWS
            first_{block} = begin_{block} + warp * 16 + lane // 4
            item = number // blocks
            rest = item
            <begins>
        """, joined=[f"n_{block} = {' * '.join(f'n_{axis}' for axis in joined)}"] if joined else [], columns=columns,
            begins=self._begins(self.program.rows[:-1], "at"))

    def _state(self) -> list[str]:
        """Numbers and sums of the rows' state, as of no elements."""
        numbers = [(self.folding.held(u.name), u.monoid, self.fold.type_of(u.name)) for u in self.parts.numbers]
        weighted = [(sums_of(w, self.storage), w.columns) for w in self.parts.weighted]
        return filled("""
            <arrays>
            for r in range(2):
                <empty>
        """, arrays=[*(f"{name} = cuda.local.array(SUMS_{columns}, f4)" for name, columns in weighted),
                     *(f"held_{name} = cuda.local.array(2, {type_})" for name, _, type_ in numbers)],
            empty=[*(f"held_{name}[r] = {Accumulator('', monoid, type_).identity()}" for name, monoid, type_ in numbers),
                   *(line for name, columns in weighted for line in (f"for i in range(SPAN_{columns} // 4):", f"    {name}[r, i] = f4(0)"))])

    def _fragments(self) -> list[str]:
        """What a lane has of a tile."""
        scores = (*self.parts.produced, *(f"x_{o.name}" for o in self.parts.elements), *map(weights_of, self.parts.weighted))
        return [*(f"{name} = cuda.local.array(SCORES, f4)" for name in scores),
                *(f"x_{name} = cuda.local.array(COLUMNS, f4)" for name in filter(self._real, self.parts.vectors))]

    def _tile(self) -> list[str]:
        """One tile: the next is sent for, scores, the state, weighted rows."""
        axis = self.program.axis
        return filled(f"""
            ahead = i4(t0 + TILE)
            <pass_over>
            if ahead < end:
                fetch(shared + STAGES + (1 - half) * STAGE, ahead, {self.fetch})
            copies_end()
            wait_for_all_but_the_last()
            cuda.syncthreads()
            tile = shared + STAGES + half * STAGE
            first_{axis} = i4(t0 + lane % 4 * 2)
            many = min(i4(TILE), i4(n_{axis} - t0))
            seen, seen_old = i4(t0 - begin + many), i4(t0 - begin)
            <scores>
            <taken_in>
            <added>
            cuda.syncthreads()
            t0, half = ahead, i4(1 - half)
        """, pass_over=self.masks.passed_over("ahead"), scores=self._scored(), taken_in=self._taken_in(),
            added=[line for w in self.parts.weighted for line in self._added(w)])

    def _scored(self) -> list[str]:
        """The scores of a tile, and its elements that are no scores."""
        return [*self._nothing(), *map(self._multiplied, self.parts.scores), *self._taken()]

    def _nothing(self) -> list[str]:
        """The scores of a tile, before any product."""
        nothing = ["for r in range(2):", "    for i in range(COLUMNS):", *(f"        {name}[r, i] = f4(0)" for name in self.parts.produced)]
        return nothing if self.parts.scores else []

    def _taken(self) -> list[str]:
        """The elements of a tile that are no scores."""
        return [*(f"take_fragment(tile + AT_{o.name}, warp * 16, lane, ROWS, WIDTH_{o.name}, TILE, x_{o.name})" for o in self.parts.elements),
                *(f"take_row(tile + AT_x_{name}, lane, TILE, x_{name})" for name in filter(self._real, self.parts.vectors))]

    def _taken_in(self) -> list[str]:
        """A tile goes into the state; where some of it takes no part, a matrix that is to be multiplied is looked through for what 0 does not hide."""
        given = ", ".join(list(self.fold.arguments)[1:])
        cut = [w for w in self.parts.weighted if w.update.mask is not None]
        masked = [f"fold(False, {given})", *map(self._looked_through, cut)]
        whole = self.masks.all_hold("t0")
        if not whole:
            return masked
        return filled(f"""
            <clean>
            if {whole}:
                fold(True, {given})
            else:
                <masked>
        """, clean=[f"clean_{w.update.name} = True" for w in cut], masked=masked)

    def _looked_through(self, w: Weighted) -> str:
        own = f"_{w.right.kind}" if w.right.kind else ""
        return f"clean_{w.update.name} = all_finite{own}({self.lies(w.right)}, TILE * WIDTH_{w.right.name}, thread, THREADS)"

    def _multiplied(self, s: Scores) -> str:
        """The scores of a tile."""
        left, right = f"shared + AT_{s.left.name}", self.lies(s.right)
        own, step = (f"_{s.left.kind}_{s.right.kind}", 32) if s.left.kind else ("", 16)
        width, steps = f"WIDTH_{s.left.name}", f"-(-n_{s.left.columns} // {step})"
        return f"multiply_rows{own}({left} + warp * 16 * {width}, {right}, lane, {steps}, {width}, TILE, {s.name})"

    def _added(self, w: Weighted) -> list[str]:
        """Weights times rows of a tile."""
        line = f"add_weighted_rows{self._adds(w)}"
        return [line] if w.update.mask is None else [f"if clean_{w.update.name}:", f"    {line}", "else:", f"    {self._taken_rows(w)}"]

    def _taken_rows(self, w: Weighted) -> str:
        """The same where not every number is finite."""
        return f"add_taken_rows{self._adds(w)}"

    def _adds(self, w: Weighted) -> str:
        own = f"_{w.kind}_{w.right.kind}" if w.right.kind else ""
        return f"{own}({weights_of(w)}, {self.lies(w.right)}, lane, WIDTH_{w.right.name}, TILE, SPAN_{w.columns}, {sums_of(w, self.storage)})"

    def lies(self, operand: Operand) -> str:
        """Where the tile that is worked on lies of an operand that comes."""
        return f"tile + AT_{operand.name}"

    # what is written

    def _results(self) -> list[str]:
        """What the rows come to, and their way to memory."""
        program, lines = self.program, list[str]()
        for place, type_ in enumerate(self.outputs):
            columns = program.columns(program.output_axes[place])
            lines.append(f"y_{place} = cuda.local.array({f'SUMS_{columns[0]}' if columns else '2'}, {type_})")
        lines.append(f"finish({', '.join(self.finish.arguments)})")
        for place, type_ in enumerate(self.outputs):
            columns = program.columns(program.output_axes[place])
            lines += self._wide(place, columns[0], type_) if columns else self._narrow(place, type_)
        return lines

    def _wide(self, place: int, axis: str, type_: str) -> list[str]:
        block = self.program.block
        if type_ != "f4":
            raise LoweringError(f"a CUDA kernel for {self.program.name}", f"its output {place} has columns that are no real numbers", INSTEAD)
        return [f"store_tile(shared, y_{place}, address(out_{place}) + ((item * n_{block} + begin_{block}) * n_{axis} + begin_{axis}) * SIZE, n_{axis} * SIZE, "
                f"n_{block} - begin_{block}, n_{axis} - begin_{axis}, ROWS, SPAN_{axis}, even_{axis}, thread, THREADS)"]

    def _narrow(self, place: int, type_: str) -> list[str]:
        block = self.program.block
        index = f"item * n_{block} + first_{block} + 8 * r"
        write = f"store_one(address(out_{place}) + ({index}) * SIZE, y_{place}[r])" if type_ == "f4" else f"out_{place}[{index}] = y_{place}[r]"
        mine = "".join(f" and begin_{a} == 0" for a in self.parts.columns)
        return ["for r in range(2):", f"    if lane % 4 == 0 and first_{block} + 8 * r < n_{block}{mine}:", f"        {write}"]
