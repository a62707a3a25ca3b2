"""Tiles that are no piece of an input as it lies in memory: a device function that makes one in shared memory, chunk by chunk.

In: an operand, and what its formula reads.  Out: the function's text.
"""
from __future__ import annotations

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.fragment_code import FragmentCode
from redfuser_algebra.lower.operands_cuda import Operand, Products
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage import Signature, Storage
from redfuser_algebra.lower.templates import filled


class OperandCode(FragmentCode):
    """The function `make_…` of operands that have the same places and read the same inputs."""

    there = ("there",)

    def __init__(self, operands: tuple[Operand, ...], parts: Products, signature: Signature, storage: Storage, fast: bool) -> None:
        super().__init__("_".join(("make", *(operand.name for operand in operands))), parts, signature, storage, fast)
        self.operands, self.whole, self.vectors = operands, {}, set()
        self.kept: dict[str, str] = {}
        self.operand = operand = operands[0]
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

    def _read(self, term: Expr) -> Code:
        if term.op == "input" and term.name in self.parts.kept and self.program.inputs[term.name][-1] == self.operand.columns:
            self.kept[f"v_{term.name}"] = f"{self._given('shared')} + AT_x_{term.name}"
            return Code(f"v_{term.name}[e]", "f4")
        if term.op == "input" and self._has_rows(self.program.inputs[term.name]) and self.storage.kind(term) == "f":
            self.whole[f"v_{term.name}"] = self._given(f"p_{term.name}")
            return Code(f"v_{term.name}[e]", "f4")
        return super()._read(term)

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
        """Close the loop over a chunk, or the loops over the tile."""
        loop, rows, columns = self.nest.pop(), self.operand.rows, self.operand.columns
        if loop.axis == columns:
            self.nest[-1].lines += ["for e in range(CHUNK):", f"    at_{columns} = i4(first_{columns} + e)", *(f"    {line}" for line in loop.lines)]
            return
        begin = "t0" if rows == self.program.axis else self._given(f"begin_{rows}")
        along = columns == self.program.axis
        column = "t0" if along else self._given(f"begin_{columns}") if columns in self.parts.columns else "0"
        size = self._given(f"n_{columns}")
        lines = [f"at_{rows}, first_{columns} = i4({begin} + row), i4({column} + chunk * CHUNK)",
                 f"there = (at_{rows} < {self._given(f'n_{rows}')}) & (first_{columns} < {size})" + " & (chunk * CHUNK < TILE)" * along]
        for variable, pointer in self.whole.items():
            kind, wide = self._kind(variable[2:]), self._size(variable[2:])
            at = f"{pointer} + (i8({self._row_of(variable[2:])}) * {size} + first_{columns}){wide}"
            lines += [f"if even_{columns}:", f"    load_vector{kind}({at}, there, {variable}, 0)", "else:", "    for e in range(CHUNK):",
                      f"        {variable}[e] = load_one{kind}({at} + e{wide}, there & (first_{columns} + e < {size}))"]
        name, made = self.operand.name, [each.name for each in self.operands]
        lines += [*loop.lines, f"place = i4(to + chunk_at(row, chunk, WIDTH_{name}, {self.parts.height(self.operand)}))",
                  *(f"keep_chunk(i4(place + AT_{each}), y_{each})" for each in made)]
        arrays = [f"{variable} = cuda.local.array(CHUNK, f4)" for variable in (*(f"y_{each}" for each in made), *self.whole, *self.kept)]
        kept = [f"take_chunk(i4({row} + 16 * i4((thread & 7) + 8 * panel)), {variable})" for variable, row in self.kept.items()]
        self.nest[0].lines += filled(f"""
            <arrays>
            for panel in range(WIDTH_{name} // 128):
                <kept>
                for i in range({self.parts.height(self.operand)} * 8 // THREADS):
                    row, chunk = i4((thread >> 3) + i * (THREADS // 8)), i4((thread & 7) + 8 * panel)
                    <lines>
        """, arrays=arrays, kept=kept, lines=lines)
