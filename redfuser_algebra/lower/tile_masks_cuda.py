"""Tiles of a CUDA kernel in which masks hold nowhere, which are passed over, or everywhere, where none is evaluated.

In: a tile program.  Out: conditions and lines of source, about a tile that begins at a given place, for the rows of a block.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.lower.bounds import may_hold, must_hold
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import TileProgram


@dataclass(frozen=True)
class TileMasks:
    """The masks of a program whose arrays and scalars have `names`."""

    program: TileProgram
    signature: Signature
    names: Mapping[str, str]

    def passed_over(self, start: str) -> list[str]:
        """Go on to a tile of which some element may take part."""
        masks = {update.where for update in self.program.updates}
        found = [None if mask is None else may_hold(mask, lambda term: self._bounds(term, start)) for mask in masks]
        if None in found:
            return []
        return [f"while {start} < end and not ({' or '.join(sorted(found))}):", f"    {start} = i4({start} + TILE)"]

    def all_hold(self, start: str) -> str:
        """Whether every element of the tile takes part; "" where that cannot be told."""
        masks = {update.mask for update in self.program.updates} - {None}
        found = [must_hold(mask, lambda term: self._bounds(term, start)) for mask in masks]
        return "" if None in found else " and ".join(["many == TILE", *sorted(found)])

    def _bounds(self, term: Expr, start: str) -> tuple[str, str] | None:
        """What is known of a leaf of masks; of whole numbers only."""
        program = self.program
        if term.op == "index" and term.axis == program.axis:
            return start, f"({start} + TILE - 1)"
        if term.op == "index" and term.axis == program.block:
            return f"begin_{term.axis}", f"(min(begin_{term.axis} + ROWS, n_{term.axis}) - 1)"
        if term.op == "index" and term.axis in program.joined:
            return self._of_joined(program.joined.index(term.axis))
        if term.op == "index" and term.axis in program.rows:
            return (f"at_{term.axis}",) * 2
        if term.op == "size":
            return (f"n_{program.copies.get(term.axis, term.axis)}",) * 2
        if term.op == "param" and self.signature.params[term.name] == "i8":
            return (self.names[term.name],) * 2
        if term.op == "input" and self.signature.arrays[term.name] == "i8" and set(term.axes) <= set(program.rows[:-1]):
            return (f"{self.names[term.name]}[o_{term.name}]",) * 2
        return None

    def _of_joined(self, place: int) -> tuple[str, str]:
        """The least and the largest place along an axis that numbers rows with others: those behind it are passed, and it may begin anew."""
        block, sizes = self.program.block, [f"n_{axis}" for axis in self.program.joined]
        inner, size = " * ".join(["1", *sizes[place + 1:]]), sizes[place]
        first, last = f"begin_{block} // ({inner})", f"(min(begin_{block} + ROWS, n_{block}) - 1) // ({inner})"
        within = f"{first} // {size} == {last} // {size}"
        return f"({first} % {size} if {within} else 0)", f"({last} % {size} if {within} else {size} - 1)"
