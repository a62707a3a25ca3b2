"""Print a tile program with ordered states: elements are taken, and states merged, in the order in which they lie.

Out: a module as `columns_cuda` prints it.  A tile passes through shared memory; each thread folds neighbouring elements,
the block merges its threads' states, and the first thread goes on from there to the next tile.
"""
from __future__ import annotations

from redfuser_algebra.lower.columns_cuda import ColumnPrinter
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.ordered_functions import OrderedFunctions
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram


def has_order(program: TileProgram) -> bool:
    """Whether the order of elements counts in the state of a program."""
    return any(update.ordered for update in program.updates)


def is_walked(program: TileProgram) -> bool:
    """Whether a thread takes all elements of a row, if no scan over threads does: for an output at every element, for
    states with columns, or for such as do not merge."""
    ordered = [update for update in program.updates if update.ordered]
    return bool(program.running or ordered and program.maps) or any(program.columns(u.axes) or u.joined is None for u in ordered)


class OrderedRowPrinter(ColumnPrinter):
    """The pieces of the module; long tiles of few warps, as a merge takes longer than a step."""

    functions_of = OrderedFunctions
    together = 1
    shapes = "for slots in (32, 16, 8, 4, 2, 1) for w in (8, 4, 2, 1) if 16 * w * slots < length or w == slots == 1"

    def _stride(self, name: str) -> str:
        return f"slots * words_{name}"

    def _sweep(self) -> list[str]:
        """Tile after tile; in a join, the parts are the only one."""
        identities = zip(self._numbers(), self.functions.identities(), strict=True)
        tile, parts = [*self._loaded(), self._folded()], self._joined_parts()
        return filled("""
            <empty>
            first, more = i8(0), True
            while more:
                <tile>
                <merges>
                first += slots * span
                more = first < length<whole>
                <kept>
        """.replace("<whole>", " and not joins" if parts else ""), empty=self._empty(), tile=[*parts, "else:", *indented(tile)] if parts else tile,
            merges=self._merges(), kept=[f"{v.name} = sel(thread == 0, {v.name}, {identity})" for v, identity in identities])
