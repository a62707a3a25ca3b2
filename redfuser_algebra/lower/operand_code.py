"""Tiles that are no piece of an input as it lies in memory: a device function that makes one in shared memory, piece by piece.

In: an operand, and what its formula reads.  Out: the function's text.  A thread makes so many neighbouring numbers of a row as it
can load together, and neighbouring threads neighbouring ones.
"""
from __future__ import annotations

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.fragment_code import FragmentCode
from redfuser_algebra.lower.operands_cuda import Operand, Products, tail_of
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage import Signature, Storage
from redfuser_algebra.lower.templates import filled


class OperandCode(FragmentCode):
    """The function `make_…` of operands that have the same places and read the same inputs."""

    there = ("there",)

    def __init__(self, operands: tuple[Operand, ...], parts: Products, signature: Signature, storage: Storage, fast: bool) -> None:
        super().__init__("_".join(("make", *(operand.name for operand in operands))), parts, signature, storage, fast)
        self.operands, self.whole, self.vectors, self.looked_up = operands, {}, set(), {}
        self.kept: dict[str, str] = {}
        self.operand = operand = operands[0]
        self.tail = next((tail for each in operands if (tail := tail_of(self.program, each))), "")
        for name in ("to", "t0", "thread"):
            self.argument(name, name)
        self.open(operand.rows)
        self.open(operand.columns)
        values = [self.code(each.value).to("f4").text for each in operands]
        inside = f"there & ({self.position(operand.columns).text} < {self.argument(f'n_{operand.columns}', '')})"
        for each, value in zip(operands, values, strict=True):
            self.line(f"y_{each.name}[e] = sel({inside}, {value}, f4(0))")
        self.close()
        self.close()

    @property
    def sizes(self) -> list[str]:
        """How many numbers a thread makes at a time, where rows have whole vectors, and how many threads work on a row at a time."""
        name, even = self.operand.name, f"even_{self.operand.columns}"
        if not self.whole:
            return [f"PER_{name}, LANES_{name} = {'1, 32' if self.operand in self.parts.elements else 'CHUNK, 8'}"]
        if not self.tail:
            return [f"PER_{name}, LANES_{name} = (CHUNK, 8) if {even} else (1, 32)"]
        size = f"n_{self.tail}"
        return [f"PER_{name}, LANES_{name} = (CHUNK // {size}, 8 * {size}) if {even} and 2 * {size} <= CHUNK and CHUNK % {size} == 0 else (1, 32)"]

    def _read(self, term: Expr) -> Code:
        own = self.program.inputs[term.name] if term.op == "input" else ()
        if term.op == "input" and term.name in self.parts.kept and own[-1] == self.operand.columns:
            self.kept[f"v_{term.name}"] = f"{self._given('shared')} + AT_x_{term.name}"
            return Code(f"v_{term.name}[e]", "f4")
        if term.op == "input" and self.tail in own[-1:] and self._has_rows(own[:-1]) and self.storage.kind(term) == "f":
            return self._of_a_tail(term)
        if term.op == "input" and self._has_rows(own) and self.storage.kind(term) == "f":
            self.whole[f"v_{term.name}"] = self._given(f"p_{term.name}")
            return Code(f"v_{term.name}[e]", "f4")
        return super()._read(term)

    def _of_a_tail(self, term: Expr) -> Code:
        """A number of those at a place of a row: of a vector of all of some places, if such are loaded."""
        self.whole[f"v_{term.name}"] = self._given(f"p_{term.name}")
        size, place = self._given(f"n_{self.tail}"), self.position(self.tail).text
        single = self._loaded(term, self._leaf(term)).text
        alone = self.nest[-1].lines.pop()
        self.nest[-1].lines += [f"if PER_{self.operand.name} > 1:", f"    {single} = v_{term.name}[e * {size} + {place}]", "else:", f"    {alone}"]
        return Code(single, "f4")

    def _has_rows(self, own: tuple[str, ...]) -> bool:
        """Whether an input with these axes lies in memory as the tile does, has a part of the axes that number its rows, or is one row."""
        joined = self.program.joined if self.operand.rows == self.program.block else ()
        rest = [axis for axis in own if axis not in self.program.rows or axis == self.operand.rows]
        return rest[-1:] == [self.operand.columns] and all(axis == self.operand.rows or axis in joined for axis in rest[:-1])

    def _row_of(self, name: str) -> str:
        """Which row of an input the tile's row is."""
        place = ""
        for axis in self.program.inputs[name]:
            if axis in (self.operand.rows, *self.program.joined):
                place = f"({place}) * {self._given(f'n_{axis}')} + {self.position(axis).text}" if place else self.position(axis).text
        return place or "0"

    def position(self, axis: str) -> Code:
        return Code(f"at_{axis}", "i8") if axis in (self.operand.rows, self.operand.columns) else super().position(axis)

    def close(self) -> None:
        """Close the loop over the numbers of a thread, or the loops over the tile."""
        loop, rows, columns, name = self.nest.pop(), self.operand.rows, self.operand.columns, self.operand.name
        if loop.axis == columns:
            self.nest[-1].lines += [f"for e in range(PER_{name}):", f"    at_{columns} = i4(first_{columns} + e)", *(f"    {line}" for line in loop.lines)]
            return
        begin = "t0" if rows == self.program.axis else self._given(f"begin_{rows}")
        along = columns == self.program.axis
        column = "t0" if along else self._given(f"begin_{columns}") if columns in self.parts.columns else "0"
        size, made = self._given(f"n_{columns}"), [each.name for each in self.operands]
        lines = [f"at_{rows}, first_{columns} = i4({begin} + row), i4({column} + column)",
                 f"there = (at_{rows} < {self._given(f'n_{rows}')}) & (first_{columns} < {size})" + " & (column < TILE)" * along,
                 *(line for variable, pointer in self.whole.items() for line in self._vector(variable, pointer, size)), *loop.lines,
                 f"place = i4(to + chunk_at(row, column // CHUNK, WIDTH_{name}, {self.parts.height(self.operand)}) + column % CHUNK * SIZE)",
                 *(f"keep_numbers(i4(place + AT_{each}), y_{each}, PER_{name})" for each in made)]
        arrays = [f"{variable} = cuda.local.array(CHUNK, f4)" for variable in (*(f"y_{each}" for each in made), *self.whole, *self.kept)]
        kept = [f"take_numbers(i4({row} + column * SIZE), {variable}, PER_{name})" for variable, row in self.kept.items()]
        self.nest[0].lines += filled(f"""
            <arrays>
            for panel in range(WIDTH_{name} // SIZE // (LANES_{name} * PER_{name})):
                column = i4(i4((thread & LANES_{name} - 1) + LANES_{name} * panel) * PER_{name})
                <kept>
                for i in range({self.parts.height(self.operand)} * LANES_{name} // THREADS):
                    row = i4(i4(np.uint32(thread) // LANES_{name}) + i * (THREADS // LANES_{name}))
                    <lines>
        """, arrays=arrays, kept=kept, lines=lines)

    def _vector(self, variable: str, pointer: str, size: str) -> list[str]:
        """What a thread has of an input: a whole vector, or number by number."""
        own = variable[2:]
        kind, wide, columns, name = self._kind(own), self._size(own), self.operand.columns, self.operand.name
        ends = bool(self.tail) and self.program.inputs[own][-1] == self.tail
        place = f"(i8({self._row_of(own)}) * {size} + first_{columns})" + (f" * {self._given(f'n_{self.tail}')}" if ends else "")
        together = f"load_vector{kind}({pointer} + {place}{wide}, there, {variable}, 0)"
        if ends:
            return [f"if PER_{name} > 1:", f"    {together}"]
        single = [f"for e in range(PER_{name}):", f"    {variable}[e] = load_one{kind}({pointer} + {place}{wide} + e{wide}, there & (first_{columns} + e < {size}))"]
        return [f"if PER_{name} == CHUNK:", f"    {together}", "else:", *(f"    {line}" for line in single)]
