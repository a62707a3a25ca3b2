"""Formulas of a tile program as functions of generated Python, and the statements that call them.

In: formulas and the variables that their symbols are.  Out: the definitions, and one statement each.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.lower.cost import is_costly
from redfuser_algebra.lower.functions import Function, Leaf, Scope, computed_in_single
from redfuser_algebra.lower.precision import is_difference
from redfuser_algebra.lower.scalar_code import Code
from redfuser_algebra.lower.storage import Signature, Storage, Variable
from redfuser_algebra.lower.tile import TileProgram

Symbols = Callable[[str], Variable]


@dataclass(frozen=True)
class Step:
    """A variable (or an output, in `given`) takes the value of a formula; `symbol` is what formulas call it.

    With `partial`, total twins are the operations that they complete.
    """

    symbol: str
    target: Variable
    value: Expr
    partial: bool = False
    given: str = ""


class FormulaPrinter:
    """The functions printed so far, and where things are kept; `buffers` are allocated once per call.

    While `in_pieces` holds, functions go over a piece of a tile.
    """

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        self.program, self.signature = program, signature
        self.storage = Storage(program, signature)
        self.fixed = signature.sizes | {copy: signature.sizes[axis] for copy, axis in program.copies.items() if axis in signature.sizes}
        self.short = {u.axes[-1] for u in program.updates if MONOIDS[u.monoid].counted}
        self.functions: list[str] = []
        self.buffers: list[str] = []
        self.in_pieces = False

    def size(self, axis: str) -> str:
        """The variable that holds an axis's length."""
        return f"n_{self.program.copies.get(axis, axis)}"

    def function(self, name: str, symbol: Symbols, exprs: list[Expr], loops: tuple[str, ...], choosing: bool = False) -> Function:
        """A function whose loops include the tile, in float32 if it takes exponentials of such numbers or chooses among them."""
        single = self.signature.real == "f4" and (choosing or computed_in_single(exprs, loops))
        return self.tile_function(name, symbol, "f4" if single else "f8")

    def tile_function(self, name: str, symbol: Symbols, wide: str) -> Function:
        """A function whose loops include the tile, with real numbers of type `wide`."""
        axis, leaf = self.program.axis, self.storage.leaves(symbol)
        if self.in_pieces:
            sizes, leaves = {f"tile {axis}": "piece", f"start {axis}": "t0 + at"}, lambda term: _piece(leaf(term), axis)
        else:
            sizes, leaves = {f"tile {axis}": "n", f"start {axis}": "t0"}, leaf
        function = Function(name, Scope(leaves, sizes | self._copy_sizes(), self.fixed), wide)
        function.falls = self._falls
        return function

    def _falls(self, term: Expr) -> bool:
        """Whether a term is an element less the largest of those seen, itself among them."""
        if not is_difference(term):
            return False
        element, pivot = term.args[0], term.args[1].args[0] if term.args[1].op == "anchor" else term.args[1]
        return pivot.op == "symbol" and any(u.name == pivot.name and u.monoid == "max" and u.lift is element and u.mask is None for u in self.program.updates)

    def _copy_sizes(self) -> dict[str, str]:
        return {copy: f"n_{axis}" for copy, axis in self.program.copies.items()}

    def assigned(self, name: str, steps: list[Step], symbol: Symbols, length: str) -> list[str]:
        """Statements that do the steps in order; neighbours share a function."""
        axis, lines = self.program.axis, []
        for number, (wide, group) in enumerate(groupby(steps, lambda step: self._wide(step, symbol))):
            scope = Scope(self.storage.leaves(symbol), {axis: length} | self._copy_sizes(), self.fixed, self.short)
            function = Function(f"{name}{'_' + 'abcdefgh'[number] if number else ''}", scope, wide)
            function.inverts = wide == "f4"
            for step in group:
                self._assign(function, step)
            lines.append(self.printed(function, loop=False))
        return lines

    def _wide(self, step: Step, symbol: Symbols) -> str:
        """The type of real numbers in the loops of a step: float32 where what they move is stored so."""
        deep = [symbol(t.name) for t in subterms(step.value) if t.op == "symbol" and not self._is_produced(t.name)]
        return "f4" if self.signature.real == "f4" and any(v.columns and v.type == "f4" for v in deep) else "f8"

    def _assign(self, function: Function, step: Step) -> None:
        function.partial, target = step.partial, step.target
        for term in dict.fromkeys(_computed_again(step.value, target.columns)):
            self._keep(function, term)
        if target.columns:
            into = function.argument(target.name, step.given or target.at_row())
            self.nested(function, target.columns, lambda: self.write(function, into, target.columns, step.value, target.type))
        else:
            function.line(f"{target.name} = {function.code(step.value).to(target.type).text}")
            function.results[target.name] = step.given or target.at_row()
        function.forget(step.symbol)

    def _keep(self, function: Function, term: Expr) -> None:
        """A term goes to a buffer, where loops over other axes find it."""
        axes, type_ = self.program.columns(term.axes), function.type_in_loop(term)
        name = f"H{len([line for line in self.buffers if line.startswith('H')]) + 1}"
        self.buffers.append(f"{name} = empty(({', '.join(map(self.size, axes))},), {type_})")
        self.nested(function, axes, lambda: self.write(function, function.argument(name, name), axes, term, type_))
        function.nest[0].known[term, function.partial] = Code(f"{name}[{', '.join(map(function.index, axes))}]", type_)

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

    def printed(self, function: Function, loop: bool = True) -> str:
        """The statement that calls a function, whose definition is kept."""
        text = function.text(loop)
        if text not in self.functions:
            self.functions.append(text)
        return function.call()


def _computed_again(term: Expr, loops: tuple[str, ...]) -> Iterator[Expr]:
    """Costly parts of a term that open loops, outermost first, would compute again, as they run over an axis that those lack."""
    inside = loops[:max((place for place, axis in enumerate(loops, 1) if axis in term.axes), default=0)]
    if not set(inside) <= set(term.axes) and is_costly(term):
        yield term
    elif term.op == "reduce":
        for each in (term.body, term.mask):
            yield from _computed_again(each, (*inside, term.axis)) if each is not None else ()
    else:
        for each in term.args:
            yield from _computed_again(each, inside)


def _piece(leaf: Leaf, axis: str) -> Leaf:
    """A leaf of a tile as a piece of the tile has it."""
    return replace(leaf, given=f"{leaf.given}[at:at + piece]") if leaf.axes[:1] == (axis,) else leaf
