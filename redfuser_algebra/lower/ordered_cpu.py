"""Elements taken one by one, as statements of a CPU kernel: steps from state to state, and what maps see of them.

In: ordered updates, or the states that maps see.  Out: lines that call the functions printed for them.  All states take
their new values at once; those with columns do so column by column.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from redfuser_algebra.language.expr import Expr
from redfuser_algebra.language.names import PRIME, symbol_names
from redfuser_algebra.lower.formulas_cpu import FormulaPrinter, Symbols
from redfuser_algebra.lower.functions import Function, indented
from redfuser_algebra.lower.ordered import in_turn
from redfuser_algebra.lower.rescaling import rescaling
from redfuser_algebra.lower.storage import Signature, Variable, ends, used
from redfuser_algebra.lower.tile import TileProgram, Update


@dataclass(frozen=True)
class Next:
    """A state and its value after an element."""

    name: str
    target: Variable
    value: Expr


@dataclass(frozen=True)
class Seen:
    """An output with the swept axis, as its array is called and given, of a type."""

    name: str
    given: str
    columns: tuple[str, ...]
    value: Expr
    type: str


class OrderedPrinter(FormulaPrinter):
    """The functions printed so far; methods return the lines that call them."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        super().__init__(program, signature)
        self.in_whole_rows: dict[str, str] = {}

    def of_whole_rows(self, lines: list[str]) -> list[str]:
        """The lines of a tile where no other part of the row is folded elsewhere."""
        for called, instead in self.in_whole_rows.items():
            lines = [line.replace(called, instead) for line in lines]
        return lines

    def fold_ordered(self, label: str, updates: Sequence[Update]) -> list[str]:
        """The elements of a tile, one after the other; the first of all is where the components start.

        Where a whole row is folded, what only its parts are joined by is left out: `in_whole_rows` says how that is called.
        """
        called, wanted = self._folded(f"steps_{label}", updates, lifted=True), self._wanted
        kept, lifted = [update for update in updates if update.name in wanted], not all(update.from_empty for update in updates)
        if len(kept) < len(updates) or not lifted:
            self.in_whole_rows[called] = self._folded(f"steps_{label}_of_row", kept, lifted) if kept else "pass"
        return [called]

    def _folded(self, name: str, updates: Sequence[Update], lifted: bool) -> str:
        """The call of a function that takes the elements of a tile; the first of a part is `lifted`, or a step like the others."""
        axis, held = self.program.axis, self.storage.held
        function, begins = self._stepping(name, [(u.name, held[u.name]) for u in updates]), "0"
        if lifted:
            later = " and begin > 0" if all(update.from_empty for update in updates) else ""
            begins = function.argument("begins", f"i8(t0 == begin{later})")
            function.open(axis)
            self._advance(function, [Next(u.name, held[u.name], u.lift) for u in updates])
            first = function.nest.pop().lines
            function.nest[-1].lines += [f"if {begins}:", *indented([f"{function.index(axis)} = 0", *first])]
        self._over_elements(function, begins, [Next(u.name, held[u.name], u.step) for u in updates])
        return self.printed(function, loop=False)

    @cached_property
    def _wanted(self) -> set[str]:
        """The components that the results of a whole row are made of."""
        program, steps = self.program, {update.name: update.step for update in self.program.updates if update.ordered}
        reads = [expr for u in program.updates if not u.ordered for expr in (*u.elements, u.rebase)]
        found = used(program, [*program.outputs, *(state.start for state in program.running), *ends(program), *reads])
        todo = list(found)
        while todo:
            fresh = symbol_names(steps.get(todo.pop())).keys() - found
            found |= fresh
            todo += fresh
        return found

    def join_ordered(self, label: str, updates: Sequence[Update], other: Callable[[Variable], Variable]) -> list[str]:
        """What two neighbouring parts make: `other` has the variables of the later one."""
        if not updates:
            return []
        held = self.storage.held
        symbols = lambda name: other(held[name.removesuffix(PRIME)]) if name.endswith(PRIME) else held[name]
        function = self._stepping(f"join_{label}", [(u.name, held[u.name]) for u in updates], symbols)
        self._advance(function, [Next(u.name, held[u.name], u.joined) for u in updates])
        self._rescale(function, [u.name for u in updates])
        return [self.printed(function, loop=False)]

    def map_ordered(self, label: str, outputs: Sequence[Seen]) -> list[str]:
        """Maps of a tile that go on from state to state."""
        running = self.storage.running
        function = self._stepping(label, running.items(), lambda name: running.get(name) or self.storage.held[name])
        for output in outputs:
            function.argument(output.name, output.given)
        self._over_elements(function, "0", [Next(state.name, running[state.name], state.step) for state in self.program.running], outputs)
        return [self.printed(function, loop=False)]

    def _stepping(self, name: str, states: Iterable[tuple[str, Variable]], symbols: Symbols | None = None) -> Function:
        """A function that takes states and gives them back."""
        function = self.tile_function(name, symbols or self.storage.held.__getitem__, "f8")
        function.ordered, function.inverts = True, False
        for _, variable in states:
            function.argument(variable.name, variable.at_row())
            if not variable.columns:
                function.results[variable.name] = variable.at_row()
        return function

    def _over_elements(self, function: Function, start: str, news: Sequence[Next], outputs: Sequence[Seen] = ()) -> None:
        function.open(self.program.axis)
        self._advance(function, news, outputs)
        self._rescale(function, [new.name for new in news])
        lines, count = function.nest.pop().lines, function.argument("n", "n")
        function.nest[-1].lines += [f"for {function.index(self.program.axis)} in range({start}, {count}):", *indented(lines)]

    def _rescale(self, function: Function, names: Iterable[str]) -> None:
        """States that left the middle of the range of floats come back."""
        for line in rescaling(self.program.scalings, {name: self.storage.held[name].name for name in names if name in self.storage.held}):
            function.line(line)

    def _advance(self, function: Function, news: Sequence[Next], outputs: Sequence[Seen] = ()) -> None:
        """Outputs are written, and then all states take their new values; those of the same columns share loops."""
        for columns in self._in_turn(news, outputs):
            own, seen = [n for n in news if n.target.columns == columns], [o for o in outputs if o.columns == columns]
            self.nested(function, columns, lambda c=columns, o=own, s=seen: self._take(function, c, o, s))

    def _take(self, function: Function, columns: tuple[str, ...], news: Sequence[Next], outputs: Sequence[Seen]) -> None:
        for output in outputs:
            self.write(function, output.name, (self.program.axis, *columns), output.value, output.type)
        values = [function.code(new.value).to(new.target.type).text for new in news]
        place = f"[{', '.join(map(function.index, columns))}]" if columns else ""
        pairs = [(f"{new.target.name}{place}", value) for new, value in zip(news, values, strict=True)]
        pairs = [(target, value) for target, value in pairs if target != value]
        if pairs:
            function.line(f"{', '.join(target for target, _ in pairs)} = {', '.join(value for _, value in pairs)}")

    def _in_turn(self, news: Sequence[Next], outputs: Sequence[Seen]) -> list[tuple[str, ...]]:
        """The columns of states and outputs, in an order in which none is read after it took its new value.  Raises LoweringError."""
        return in_turn(self.program.name, [(n.target.columns, n.value, n.name) for n in news] + [(o.columns, o.value, "") for o in outputs])
