"""Formulas of a tile program as functions of generated Python, and the statements that call them.

In: formulas and the variables that their symbols are.  Out: the definitions, and one statement each.
"""
from __future__ import annotations

from collections.abc import Callable

from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.lower.functions_cpu import FLAGS, Function, computed_in_single
from redfuser_algebra.lower.storage_cpu import Signature, Storage, Variable
from redfuser_algebra.lower.tile import TileProgram

Symbols = Callable[[str], Variable]

PRECISE = ""
"""No flags: pivots and moves are computed as written."""


class FormulaPrinter:
    """The functions printed so far, and where things are kept."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        self.program, self.signature = program, signature
        self.storage = Storage(program, signature)
        self.functions: list[str] = []

    def size(self, axis: str) -> str:
        """The variable that holds an axis's length."""
        return f"n_{self.program.copies.get(axis, axis)}"

    def function(self, name: str, symbol: Symbols, exprs: list[Expr], loops: tuple[str, ...], choosing: bool = False) -> Function:
        """A function whose loops include the tile.  Of float32 numbers sums are made in float64, unless they are of
        exponentials; what only chooses among elements stays in float32."""
        axis = self.program.axis
        single = self.signature.real == "f4" and (choosing or computed_in_single(exprs, loops))
        sizes = {f"tile {axis}": "n", f"start {axis}": "t0"} | self._copy_sizes()
        return Function(name, self.storage.leaves(symbol), sizes, "f4" if single else "f8", inverts=True)

    def _copy_sizes(self) -> dict[str, str]:
        return {copy: f"n_{axis}" for copy, axis in self.program.copies.items()}

    def assigned(self, name: str, target: Variable, expr: Expr, symbol: Symbols, length: str, partial: bool = False, given: str = "") -> str:
        """A statement that gives a variable (or an output) the value of a formula; its columns are looped over."""
        deep = [symbol(t.name) for t in subterms(expr) if t.op == "symbol" and not self._is_produced(t.name)]
        wide = "f4" if self.signature.real == "f4" and any(v.columns and v.type == "f4" for v in deep) else "f8"
        sizes = {self.program.axis: length} | self._copy_sizes()
        function = Function(name, self.storage.leaves(symbol), sizes, wide, partial, inverts=wide == "f4")
        if not target.columns:
            function.returned.append(function.code(expr).to(target.type))
            return f"{given or target.at_row()} = {self.printed(function, PRECISE)}"
        into = function.argument(target.name, given or target.at_row())
        self.nested(function, target.columns, lambda: self.write(function, into, target.columns, expr, target.type))
        return self.printed(function, PRECISE)

    def _is_produced(self, name: str) -> bool:
        return name in {producer.name for producer in self.program.producers}

    def nested(self, function: Function, axes: tuple[str, ...], body: Callable[[], None]) -> None:
        """Loops over axes around what `body` adds to a function."""
        for axis in axes:
            function.open(axis)
        body()
        for _ in axes:
            function.close()

    def write(self, function: Function, target: str, axes: tuple[str, ...], expr: Expr, type_: str) -> None:
        """An element of an array becomes the value of a formula."""
        value = function.code(expr).to(type_)
        function.line(f"{target}[{', '.join(map(function.index, axes))}] = {value.text}")

    def printed(self, function: Function, flags: str = FLAGS) -> str:
        """The call of a function, whose definition is kept."""
        text = function.text(flags)
        if text not in self.functions:
            self.functions.append(text)
        return function.call()
