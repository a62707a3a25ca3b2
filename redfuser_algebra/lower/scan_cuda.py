"""Print a tile program whose outputs at every element see what came before, where states merge: threads share a row all the same.

Out: a module as `ordered_cuda` prints it.  A tile passes through shared memory; each thread folds neighbouring elements, and
a scan over lanes, and then over warps, tells it the state of all before these.  It goes on from there through its elements, which
lie in shared memory still, and the block writes their outputs, in whole sectors.  The first thread begins the next tile with
the state of all so far.  Where outputs read what the row comes to, that is found in a sweep of its own.
"""
from __future__ import annotations

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.lower.functions import indented
from redfuser_algebra.lower.ordered_cuda import OrderedRowPrinter
from redfuser_algebra.lower.rows_cuda import SECTOR
from redfuser_algebra.lower.scan_functions import ScanFunctions, from_lane
from redfuser_algebra.lower.templates import filled
from redfuser_algebra.lower.tile import TileProgram


def scans(program: TileProgram) -> bool:
    """Whether threads can share rows of such a program: states are numbers that merge, and say what maps see of them."""
    known = (*(u.axes for u in program.updates), *(state.axes for state in program.running), *program.output_axes)
    merges = all(u.joined is not None if u.ordered else not MONOIDS[u.monoid].counted for u in program.updates)
    return bool(program.running) and merges and all(state.after for state in program.running) and not any(program.columns(axes) for axes in known)


class ScanPrinter(OrderedRowPrinter):
    """The pieces of the module."""

    functions_of = ScanFunctions
    functions: ScanFunctions

    def _prepared(self) -> None:
        functions = self.functions
        for define in (functions.join, functions.scan, functions.begin, functions.resume):
            define()
        functions.see(self.outputs)
        for name, used in (("combine", self._totals), ("finish", self._totals or len(self.program.maps) < len(self.outputs))):
            if not used:
                del functions.texts[name]

    @property
    def _totals(self) -> bool:
        """Whether maps read what the row comes to."""
        return any(self.functions.names_read(place) for place in self.program.maps)

    def _cells_of(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(self.outputs[place], ()) for place in self.program.maps]

    def _constants(self) -> list[str]:
        lines = super()._constants()
        for place in self.program.maps:
            size = self._size(place)
            lines += filled(f"""
                shift_out_{place}, mask_out_{place} = turns_of(slots, {128 // (8 if self.outputs[place] in ("f8", "i8") else 4)})
                steps_out_{place} = -(-(slots * span + {SECTOR} // {size}) // span)
                room_out_{place} = steps_out_{place} * span
            """)
        return lines

    def _size(self, place: int) -> str:
        return {"i8": "8", "b1": "1"}.get(self.outputs[place], "SIZE")

    def _bounds(self) -> list[str]:
        lines = super()._bounds()
        for place in self.program.maps:
            lines += [f"cells_out_{place} = cuda.shared.array(room_out_{place}, {self.outputs[place]})",
                      f"lead_out_{place} = address(out_{place}) + item * n_{self.program.axis} * {self._size(place)}",
                      f"skew_out_{place} = lead_out_{place} // {self._size(place)} % ({SECTOR} // {self._size(place)})"]
        return lines

    def _sweep(self) -> list[str]:
        return super()._sweep() if self._totals else self._scanned(self._loaded_again())

    def _maps(self) -> list[str]:
        """The second sweep; what the first one found has other names than the state of the second."""
        if not self._totals:
            return []
        loaded = ["if long:", *indented(self._loaded_again())]
        return [f"long = first > {self._tile_length()} * span", *(f"{name}_whole = {name}" for name in self._whole()), *self._scanned(loaded)]

    def _loaded_again(self) -> list[str]:
        """A tile of all that states and outputs are made of."""
        steps = [each for u in self.program.updates for each in (*u.elements, u.step) if each is not None]
        return self._tile_of(self._read([*steps, *self.program.again]))

    def _whole(self) -> dict[str, str]:
        """What maps read of the whole row, and what it is called in the second sweep."""
        return {v.name: f"{v.name}_whole" for place in self.program.maps for v in self.functions.read_by(place)}

    def _results(self) -> list[str]:
        return super()._results() if self._totals or len(self.program.maps) < len(self.outputs) else []

    def _scanned(self, loaded: list[str]) -> list[str]:
        """Tile after tile, each `loaded` if it is not there, with the outputs of its elements."""
        functions, numbers = self.functions, self.functions.numbers()
        names, identities = [name for name, _ in numbers], functions.identities()
        listed = functions.listed("")
        nothing = lambda condition, codes: ", ".join(f"sel({condition}, {code}, {identity})" for code, identity in zip(codes, identities, strict=True))
        given = lambda called, suffix="": f"{', '.join(f'{v.name}{suffix}' for v in functions.running)} = {called}"
        before = functions.called("join", {f"{name}_{which}": f"{name}_{kind}" for name in names for which, kind in (("a", "above"), ("b", "up"))})
        return filled(f"""
            <begun>
            <empty>
            first, more = i8(0), True
            while more:
                <loaded>
                {functions.listed('_first')} = {listed}
                <folded>
                {listed} = {functions.called('scan', {f'{name}_old': name for name in names} | {'width': '32'})}
                <shared>
                {functions.listed('_above')} = {', '.join(identities)}
                if not alone:
                    if lane == 31:
                        <leave>
                    cuda.syncthreads()
                    {functions.listed('_all')} = {nothing('lane < warps', [f'shared_{name}[lane % warps]' for name in names])}
                    {functions.listed('_all')} = {functions.called('scan', {f'{name}_old': f'{name}_all' for name in names} | {'width': 'warps'})}
                    <above>
                <up>
                {functions.listed('_up')} = {nothing('lane > 0', [f'{name}_up' for name in names])}
                {functions.listed('_before')} = {before}
                {functions.listed('_before')} = {', '.join(f'sel(thread == 0, {name}_first, {name}_before)' for name in names)}
                <resumed>
                <seen>
                cuda.syncthreads()
                <written>
                <total>
                {listed} = {nothing('thread == 0', names)}
                first += slots * span
                more = first < length
        """, begun=[given(functions.called("initial", self._whole()), "_start")], empty=self._empty(), loaded=loaded, folded=[self._folded()],
            shared=[f"shared_{name} = cuda.shared.array(32, {type_})" for name, type_ in numbers],
            leave=[f"shared_{name}[warp] = {name}" for name in names],
            above=[*(f"{name}_above = {from_lane(f'{name}_all', type_, '', 'max(warp - 1, 0)')}" for name, type_ in numbers),
                   f"{functions.listed('_above')} = {nothing('warp > 0', [f'{name}_above' for name in names])}"],
            up=[f"{name}_up = {from_lane(name, type_, 'up', '1')}" for name, type_ in numbers],
            resumed=[given(functions.called("resume", {name: f"{name}_before" for name in names}))],
            seen=[given(functions.called("see", self._whole()))],
            written=[line for place in self.program.maps for line in self._unstaged(place)],
            total=["if alone:", *indented([f"{name} = {from_lane(name, type_, '', '31')}" for name, type_ in numbers]),
                   "else:", *indented([f"{name} = {from_lane(f'{name}_all', type_, '', 'warps - 1')}" for name, type_ in numbers])])

    def _unstaged(self, place: int) -> list[str]:
        """A tile of an output from shared memory into memory, from a whole sector on."""
        name, store = f"out_{place}", {"i8": "unstage_wholes", "b1": "unstage_truths"}.get(self.outputs[place], "unstage_real")
        size = self._size(place)
        return ["if live:", f"    {store}(cells_{name}, lead_{name} + (first - skew_{name}) * {size}, skew_{name}, "
                f"skew_{name} + min(slots * span, length - first), steps_{name}, shift_{name}, mask_{name}, thread, span)"]
