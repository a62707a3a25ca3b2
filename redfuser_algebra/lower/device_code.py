"""Device functions of a CUDA kernel under construction: loops over the slots of a thread's tile, in numbers of 32 bits where they do.

In: what prints the functions of a program, which knows its leaves.  Out: definitions.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.functions import Accumulator, Function, Scope, indented, joined
from redfuser_algebra.lower.inlining import inlined
from redfuser_algebra.lower.scalar_code import Code, constant

if TYPE_CHECKING:
    from redfuser_algebra.lower.device_functions import RowFunctions

_DIALECT = {"np.rint": "rint", "np.floor": "floor", "np.ceil": "ceil", "np.sign": "sign", "np.fmax": "fmax", "np.fmin": "fmin",
            "np.isfinite": "math.isfinite", "np.arctan": "math.atan", "np.arctan2": "math.atan2", "exp4": "math.exp", "exp8": "math.exp"}
"""What NumPy's names and the CPU's own functions are called in a CUDA kernel; other names of np are math's."""

UNROLLED = "unrolled()"
"""What ends a loop over arrays that must lie in registers; LLVM writes out short loops alone by itself."""

CHOOSING = frozenset(("negative", "abs", "maximum", "minimum", "identity"))
"""Functions whose result is a number that they are given, or its negative."""

_COMPARED_BY = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
"""Comparisons as they are written."""


def in_dialect(text: str, fast: bool = False) -> str:
    """Scalar code as CUDA kernels write it; `fast`: for results in float32, exponentials by the machine's own instruction, x off by a rounding or two."""
    text = re.sub(r"\b(exp4|np\.cos|np\.sin)\(", lambda m: {"exp4": "fast_exp"}.get(m[1], m[1][3:]) + "(", text) if fast else text
    return re.sub(r"\b(np\.\w+|exp[48])\(", lambda m: f"{_DIALECT.get(m[1], m[1].replace('np.', 'math.'))}(", text)


class DeviceFunction(Function):
    """A device function; its loop over the reduced axis goes over the slots of a thread's tile."""

    picks, instructions = False, MappingProxyType({})

    def __init__(self, name: str, printer: RowFunctions, variable: Callable[[str], str], wide: str = "f8", partial: bool = False) -> None:
        axis = printer.program.axis
        super().__init__(name, Scope(printer.leaves(variable), printer.sizes), wide)
        self.printer, self.axis, self.partial, self.single = printer, axis, partial, False
        self.returned: list[Code] = []
        self.begun, self.ended = list[str](), list[str]()

    def line(self, text: str) -> None:
        """A statement, in the dialect of CUDA kernels."""
        super().line(in_dialect(text, self.printer.fast))

    # numbers of 32 bits, of which a GPU computes with twice as many as with those of 64

    def _type(self, term: Expr, depth: int) -> str:
        type_ = super()._type(term, depth)
        return "f4" if type_ == "f8" and depth > 0 and self.stores(term) else type_

    def stores(self, term: Expr) -> bool:
        """Whether a real term that varies is float32 by itself: a number as it was stored, or a choice of such."""
        if term.op == "const":
            return float(np.float32(term.value)) == term.value
        if term.op == "input":
            return self.scope.leaf(term).type == "f4"
        args = term.args[1:] if term.op == "where" else term.args if term.op in CHOOSING else ()
        return bool(args) and all(map(self.stores, args))

    def _number(self, const: Expr, term: Expr, meets: str) -> Code:
        return super()._number(const, term, "f8" if meets == "f4" and self.wide == "f8" and not self.stores(const) else meets)

    def _computed(self, term: Expr, depth: int) -> Code:
        if self.printer.fast and self.single and term.op == "exp" and depth == 0:
            return self._named(Code(f"f8(exp4(f4({self.code(term.args[0]).text})))", "f8"))
        if term.op == "power" and term.args[1].op == "const" and term.args[1].value in (0.5, 1.5, 2.5):
            return self._half_power(term, self._type(term, depth))
        if term.op in _COMPARED_BY and depth > 0:
            places = [arg.op == "index" and arg.axis == self.axis for arg in term.args]
            other = term.args[places.index(True) - 1] if places.count(True) == 1 else None
            if other is not None and self.axis not in other.axes and self.types[other] == "i":
                return self._compared(term, other)
        return super()._computed(term, depth)

    def _half_power(self, term: Expr, type_: str) -> Code:
        """A power by a root; of −inf it is inf."""
        base = self._named(self.code(term.args[0]).to(type_)).text
        text = " * ".join([f"math.sqrt({base})", *[base] * int(term.args[1].value)])
        return self._named(Code(f"sel({base} == {constant(-math.inf, type_).text}, {constant(math.inf, type_).text}, {text})", type_))

    def _compared(self, term: Expr, other: Expr) -> Code:
        """A place on the reduced axis, of 31 bits, compared with a whole number: clamped, that compares as it does."""
        outer, self.nest = self.nest, self.nest[: self._depth(other) + 1]
        bound = self._named(Code(f"i4(min(max({self.code(other).text}, -1), {2**31 - 1}))", "i4"))
        self.nest = outer
        place = Code(f"i4({self.place_of(self.index(self.axis))})", "i4")
        args = [bound if arg is other else place for arg in term.args]
        return self._named(Code(f" {_COMPARED_BY[term.op]} ".join(arg.text for arg in args), "b1"))

    def close(self) -> None:
        """Close the innermost loop; over the reduced axis it has as many steps as a tile has slots."""
        if self.nest[-1].axis != self.axis:
            super().close()
            return
        loop, index = self.nest.pop(), self.index(self.axis)
        self.nest[-1].lines += self.begun
        self.line(f"for {index} in range({self.slots()}):")
        if not self.by_vectors():
            self.nest[-1].lines += [f"    {line}" for line in loop.lines]
            return
        self.nest[-1].lines += [f"    if {index} == TILE and not {self.taken('TILE')}:", "        break"]
        if not self.begun:
            self.nest[-1].lines += [f"    {line}" for line in (*loop.lines, UNROLLED)]
            return
        turned = [line for pair in zip(self.ended, self.begun, strict=True) for line in pair]
        ends = [f"if {index} % VECTOR == VECTOR - 1 or {index} == TILE:", *indented(turned)]
        self.nest[-1].lines += [f"    {line}" for line in (*loop.lines, *ends, UNROLLED)]
        self.begun, self.ended = [], []

    def by_vectors(self) -> bool:
        """Whether elements lie in whole vectors, which are there or not, but for the last slot."""
        return True

    def join_vector(self, name: str, monoid: str, value: Code, type_: str) -> None:
        """An element joins those of its vector, and these the tile's, if they are there."""
        nothing, there = Accumulator("", monoid, type_).identity(), self.taken(self.index(self.axis))
        self.begun.append(f"{name}_of = {nothing}")
        self.line(f"{name}_of = {joined(monoid, f'{name}_of', value.to(type_).text, type_)}")
        self.ended.append(f"{name}_it = {joined(monoid, f'{name}_it', f'sel({there}, {name}_of, {nothing})', type_)}")

    def slots(self) -> str:
        """How many elements a thread has at a time, as code."""
        return "SLOTS"

    def taken(self, slot: str) -> str:
        """Whether there is an element in a slot."""
        return f"{self.argument('ok', 'ok')}[{slot}]"

    def count(self) -> None:
        """`many` becomes the number of elements of the tile; whole vectors are there or not."""
        self.line(f"many = sel({self.taken('TILE')}, i4(1), i4(0))")
        self.line("for flight in range(FLIGHT):")
        self.line(f"    many = i4(many + sel({self.taken('flight * VECTOR')}, i4(VECTOR), i4(0)))")

    def place_of(self, slot: str) -> str:
        """Where on its axis the element in a slot is."""
        return f"{self.argument('at', 'at')}[{slot}]"

    def _position(self, axis: str) -> Code:
        return super()._position(axis) if axis != self.axis else Code(f"i8({self.place_of(self.index(axis))})", "i8")

    def text(self, loop: bool = False) -> str:
        """The definition."""
        body = [*self.nest[0].lines, *(["return " + ", ".join(code.text for code in self.returned)] if self.returned else [])]
        return inlined("\n".join(["@cuda.jit(device=True)", f"def {self.name}({', '.join(self.arguments)}):", *indented(body or ["pass"])])) + "\n"
