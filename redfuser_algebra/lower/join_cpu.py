"""Parts of the reduced axis become one, as statements of a CPU kernel: both are moved to the pivots they have together.

In: what a part holds.  Out: lines that take over the state of the first part and add that of another, with the functions
that move a state from tile to tile.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redfuser_algebra.language.names import PRIME
from redfuser_algebra.lower.formulas_cpu import Step
from redfuser_algebra.lower.functions import indented, joined
from redfuser_algebra.lower.stages_cpu import StagePrinter
from redfuser_algebra.lower.storage import Variable
from redfuser_algebra.lower.tile import Update


@dataclass(frozen=True)
class _Other(Variable):
    """A variable of the part that is added; functions know it by the name that it has in the first."""

    def at_row(self) -> str:
        return f"o_{self.name}"


class JoinPrinter(StagePrinter):
    """The functions printed so far; methods return the lines that call them."""

    def join(self, state: list[Variable], snapshots: list[str], kept: bool) -> list[str]:
        """The state of all parts, of which `held_…` has the components; `snapshots` keep what a move needs as it was.

        Where it is `kept`, each part then has that of itself and all before it.
        """
        axis, arrays = self.program.axis, [v for v in self.storage.held.values() if v.is_array]
        first = self.loaded(state) if kept else [f"{v.name} = held_{v.name}[0, item]" for v in state]
        buffers = [f"o_{v.name} = empty(({', '.join(map(self.size, v.columns))},), {v.type})" for v in arrays if v not in state]
        other = [*(f"o_{v.name} = held_{v.name}[part, item]" for v in state), f"seen = n_{axis} * (part + 1) // parts - n_{axis} * part // parts",
                 *self._pivots(self._other), *(f"o_{old.name} = o_{self.held(name).name}" for name, old in self.storage.old.items())]
        merged = [*snapshots, "n = seen", f"seen = n_{axis} * (part + 1) // parts"]
        for place, stage in enumerate(self.program.stages):
            values = self.storage.moving_values(place)
            merged += self.moved_towards(values, self._values(f"value_{place}", values), "n / seen", "o_")
            moving = [u for u in stage if not u.fixed]
            for held, before in ((self.held, self._before), (self._other, self._before_in_other)):
                merged += self.assigned(f"rebase_{place}", [Step(u.name, held(u.name), u.rebase) for u in moving], before, "seen")
            merged += self.join_ordered(f"{place}", [u for u in stage if u.ordered], _of_later)
            merged += [line for update in stage if not update.ordered for line in self._summed(update)]
        if kept:
            merged += self.stored(state)
        return [*buffers, *first, f"seen = n_{axis} // parts", *self._pivots(self.held), "for part in range(1, parts):", *indented([*other, *merged])]

    def stored(self, state: Iterable[Variable]) -> list[str]:
        """What a part leaves is put where `held_…` has its place."""
        lines = [f"held_{v.name}[part, item] = {v.name}" for v in state if not v.is_array]
        return lines + [f"copy({v.name}, held_{v.name}[part, item])" for v in state if v.is_array]

    def loaded(self, state: Iterable[Variable]) -> list[str]:
        """A part starts from what the first one left."""
        return [f"copy(held_{v.name}[0, item], {v.name})" if v.is_array else f"{v.name} = held_{v.name}[0, item]" for v in state]

    def _pivots(self, held: Callable[[str], Variable]) -> list[str]:
        """The moving values of a part as its components have them; means are there."""
        lines = []
        for place in range(len(self.program.stages)):
            values = self.storage.moving_values(place)
            rest = [v for v in values if v.name not in self.means]
            name = f"value_{place}" if len(rest) == len(values) else f"rest_{place}"
            lines += self.assigned(name, [Step(v.name, held(v.name), v.value) for v in rest], held, "seen")
        return lines

    def _other(self, name: str) -> Variable:
        return _of_other(self.held(name))

    def _before_in_other(self, name: str) -> Variable:
        """The variable of a symbol in a rebase of the other part: primed it is that of the merged one."""
        return self._before(name) if name.endswith(PRIME) else _of_other(self._before(name))

    def _summed(self, update: Update) -> list[str]:
        """A component takes in that of the other part."""
        held = self.held(update.name)
        if not held.is_array:
            return [f"{held.name} = {joined(update.monoid, held.name, f'o_{held.name}', held.type)}"]
        loops = _each(held, lambda at: f"{held.name}[{at}] = {joined(update.monoid, f'{held.name}[{at}]', f'o_{held.name}[{at}]', held.type)}")
        text = "\n".join(["@njit(**PART)", f"def join_{held.name}({held.name}, o_{held.name}):", *indented(loops), ""])
        self.functions += [] if text in self.functions else [text]
        return [f"join_{held.name}({held.name}, o_{held.name})"]


def _of_later(variable: Variable) -> Variable:
    """A variable of the part that is added, by a name of its own."""
    return Variable(f"o_{variable.name}", variable.block, variable.columns, variable.type)


def _of_other(variable: Variable) -> Variable:
    return _Other(variable.name, variable.block, variable.columns, variable.type)


def _each(variable: Variable, statement: Callable[[str], str]) -> list[str]:
    """Loops over all places of an array."""
    places = [f"at{dim}" for dim in range(variable.block + len(variable.columns))]
    lines = [statement(", ".join(places))]
    for dim, place in reversed(list(enumerate(places))):
        lines = [f"for {place} in range({variable.name}.shape[{dim}]):", *indented(lines)]
    return lines
