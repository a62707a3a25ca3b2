"""The stages of a tile as statements of a CPU kernel: new pivots, the rebase of what is held, and what the tile adds.

In: the updates of a stage.  Out: lines that call the functions printed for them, and the buffers these need.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cached_property, partial

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.lower.formulas_cpu import Step
from redfuser_algebra.lower.functions import Accumulator, Function, computed_in_single, indented, joined
from redfuser_algebra.lower.means_cpu import MeanPrinter
from redfuser_algebra.lower.scalar_code import Code, constant, prefers_single
from redfuser_algebra.lower.storage import Signature, Variable
from redfuser_algebra.lower.tile import TileProgram, Update, Value

PIECE, STRIP, LINE, PAGES = 384, 128, 64, 4
"""Elements of a tile to fold between two looks ahead, those of a strip, bytes that memory gives at a time, and from how many
pages at once (one after another they take a sixth longer: each core has to find anew what comes next at each page).  Of two inputs
in float32 a piece is 48 lines, as many as a core waits for at a time; with up to three times as many a row takes as long or
up to 4 % longer.  Strips of twice the length take a tenth longer."""

SOUGHT = 256
"""Elements of which the largest is found by vectors before one of them is looked for."""

LANES = 64
"""Over so many lanes the elements of a tile are spread to find the k largest; the arithmetic knows this number, too."""


class StagePrinter(MeanPrinter):
    """`reshaped` are the parts of buffers that a tile uses, `summed` is what matrix products sum over; of `fetched` inputs
    the next fold fetches the next tile; exponentials that are `kept` lie in a buffer."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        super().__init__(program, signature)
        self.reshaped: list[str] = []
        self.fetched: list[str] = []
        self.summed: list[str] = []
        self.kept: set[Expr] = set()

    def held(self, name: str) -> Variable:
        """The variable of a component or value as it is now."""
        return self.storage.held[name]

    def rows(self, lines: list[str]) -> list[str]:
        """Lines for every row of the block."""
        if not lines or not self.program.block:
            return lines
        return ["for i in range(nb):", f"    i_{self.program.block} = i0 + i", *indented(lines)]

    def stage(self, place: int, whole: bool = False) -> list[str]:
        """One stage: first what has no place per row of the block, then the rows; in a `whole` tile masks hold everywhere."""
        block, end = self.program.block, "_whole" if whole else ""
        stage = [u.unmasked if whole else u for u in self.program.stages[place]]
        values = self.storage.moving_values(place)
        shared = [u for u in stage if not block or block not in u.axes]
        own = [u for u in stage if block and block in u.axes]
        lines = self.moved_towards(values, self._values(f"value_{place}", [v for v in values if not self.held(v.name).block]), "n / seen")
        lines += self.rows(self._values(f"value_{place}_rows", [v for v in values if self.held(v.name).block]))
        return lines + self._part(shared, f"{place}", end, rows=False) + self._part(own, f"{place}_rows" if shared else f"{place}", end, rows=True)

    def _values(self, name: str, values: list[Value]) -> list[str]:
        return self.assigned(name, [Step(v.name, self.held(v.name), v.value) for v in values], self.held, "seen")

    def _part(self, updates: list[Update], label: str, end: str, rows: bool) -> list[str]:
        """The updates of a stage that have the block axis, or those that have not."""
        steps = [Step(u.name, self.held(u.name), u.rebase) for u in updates if not u.fixed]
        moves = self.assigned(f"rebase_{label}", steps, self._before, "seen")
        counts = [u for u in updates if u.counts]
        multiplied = [u for u in updates if u.name in self.storage.products]
        lines = ["if t0 > begin:", *indented(moves)] if moves else []
        lines += [f"{self.held(u.name).at_row()} += {int(u.lift.value)} * n" for u in counts]
        ordered = [u for u in updates if u.ordered]
        lines += self.fold_ordered(label, ordered) if ordered else []
        left = {u.name: self._left(u, rows) for u in multiplied}
        scanned = [u for u in updates if self._is_scanned(u)]
        picked = [u for u in updates if self._picked(u)]
        sought = [u for u in updates if u.monoid in ("argmax", "argmin") and not self._columns(u)]
        groups = self._groups([u for u in updates if u not in (*counts, *ordered, *scanned, *picked, *sought)])
        for number, ((columns, single), group) in enumerate(groups.items()):
            name = f"fold_{label}{'abcdefgh'[number] if len(groups) > 1 else ''}{end}"
            fold = partial(self._fold_single, name, group) if single else partial(self._fold, name, columns, group, left)
            alone = single or columns or not any(map(_exponentials, group))
            lines += self._in_pieces(fold, group) if self.fetched and alone and not left.keys() & {u.name for u in group} else fold()
        lines += [self._scan(f"best_{update.name}", update) for update in scanned]
        lines += [self._seek(f"best_{update.name}", update) for update in sought]
        lines += [line for update in picked for line in self._pick(f"pick_{update.name}", update)]
        lines = self.rows(lines) if rows else lines
        return lines + [line for u in multiplied for line in self._multiply(u, *left[u.name], rows)]

    def _before(self, name: str) -> Variable:
        """The variable of a symbol in a rebase: primed as it is now, otherwise as it was before the tile."""
        if name.endswith(PRIME):
            return self.held(name.removesuffix(PRIME))
        return self.storage.old.get(name) or self.held(name)

    def _columns(self, update: Update) -> tuple[str, ...]:
        columns = self.program.columns(update.axes)
        return columns[:-1] if MONOIDS[update.monoid].counted else columns

    # sums and choices over the elements of a tile

    def _in_pieces(self, fold: Callable[[], list[str]], updates: list[Update]) -> list[str]:
        """A fold that has the next tile fetched in step with its own work: memory takes only a few wishes at a time.

        Sums of elements themselves are too short for that: a piece would take as long to begin.
        """
        fetched, self.fetched = self.fetched, []
        if any(map(self.storage.precision.of_elements, updates)):
            return [*self.ahead_of_tile(fetched), *fold()]
        self.in_pieces = True
        lines = fold()
        self.in_pieces = False
        wishes = [self.ahead(name, self.storage.tile_of(name), "n", "piece", len(fetched), "at") for name in fetched]
        return [f"for at in range(0, n, {PIECE}):", *indented([f"piece = {PIECE} if at + {PIECE} < n else n - at", *wishes, *lines])]

    def ahead_of_tile(self, fetched: list[str], distance: str = "n") -> list[str]:
        """What lies a tile behind one, or elsewhere, is fetched."""
        return [self.ahead(name, self.storage.tile_of(name), distance, "n", len(fetched)) for name in fetched]

    def ahead(self, name: str, tile: str, distance: str, count: str, inputs: int, at: str = "", size: Callable[[str], str] | None = None) -> str:
        """As much of an input as a tile holds, so far behind it, is fetched in step with `count` elements of the tile; so are other inputs."""
        columns = "".join(f" * {(size or self.size)(axis)}" for axis in self.program.columns(self.program.inputs[name]))
        pages = max(1, PAGES // inputs)
        each = f" // {pages}" if pages > 1 else ""
        places = [f"{distance} + {at}{each}" if at else distance, f"{count}{each}", f"n{each}"]
        line = LINE // int(self.signature.arrays[name][1])
        return ", ".join([f"ahead({tile}", *(f"({place}){columns}" if columns else place for place in places), f"{pages}", f"{line})"])

    def _in_strips(self, function: Function, types: dict[str, str], body: Callable[..., None]) -> None:
        """A loop over the elements of a tile.  Where the next tile is to be fetched, strips of them go in step with that.

        Each lane of a strip has results of its own, which come together after the last one.  That saves folds that take
        exponentials a tenth to a fifth of their time; others wait for memory all the same.
        """
        axis, fetched = self.program.axis, self.fetched
        if not fetched:
            return self.nested(function, (axis,), body)
        self.fetched, index, n = [], function.index(axis), function.argument("n", "n")
        function.places[axis] = f"np.uint64({index})"
        function.open(axis)
        body("_lanes[lane]")
        each = function.nest.pop().lines
        results = {self.held(name).name: self._lanes(function, self.held(name).name, type_) for name, type_ in types.items()}
        strip = [*(self._ahead_of_strip(function, name, len(fetched)) for name in fetched),
                 f"for lane in range({STRIP}):", *indented([f"{index} = i0 + lane", *each])]
        monoids = {self.held(u.name).name: (u.monoid, types[u.name]) for u in self.program.updates if u.name in types}
        together = [f"{name} = {joined(monoids[name][0], name, lanes, monoids[name][1])}" for name, lanes in results.items()]
        lanes = lambda lines: ["if whole > 0:", *indented([f"for lane in range({STRIP}):", *indented(lines)])]
        for line in [f"whole = {n} // {STRIP} * {STRIP}", *lanes([f"{each} = {name}" for name, each in results.items()]),
                     f"for i0 in range(0, whole, {STRIP}):", *indented(strip),
                     f"for {index} in range(whole, {n}):", *indented(line.replace("_lanes[lane]", "") for line in each), *lanes(together)]:
            function.line(line)

    def _lanes(self, function: Function, name: str, type_: str) -> str:
        """A result of each lane."""
        number = len([each for each in function.arguments if each.endswith("_lanes")])
        line = f"lanes_{type_}_{number} = empty(({STRIP},), {type_})"
        self.buffers += [] if line in self.buffers else [line]
        return function.argument(f"{name}_lanes", f"lanes_{type_}_{number}") + "[lane]"

    def _ahead_of_strip(self, function: Function, name: str, inputs: int) -> str:
        """What lies a tile behind a strip of an input is fetched."""
        tile, n = function.argument(self.storage.names[name], self.storage.tile_of(name)), function.argument("n", "n")
        return self.ahead(name, tile, n, f"{STRIP}", inputs, "i0", lambda axis: function.argument(self.size(axis), self.size(axis)))

    def _groups(self, updates: list[Update]) -> dict[tuple[tuple[str, ...], bool], list[Update]]:
        """Updates that share a loop: over the same columns, and whether that is in float32 where it can."""
        groups: dict[tuple[tuple[str, ...], bool], list[Update]] = {}
        for update in updates:
            groups.setdefault((() if update.name in self.storage.products else self._columns(update), False), []).append(update)
        shared = groups.get(((), False), [])
        if self.signature.real == "f4" and not self._in_single_anyway(shared):
            single = [u for u in shared if u.name not in self.storage.products and self.storage.precision.in_single(u)]
            groups |= {((), True): single, ((), False): [u for u in shared if u not in single]}
        return {key: group for key, group in groups.items() if group}

    def _in_single_anyway(self, updates: list[Update], columns: tuple[str, ...] = ()) -> bool:
        """Whether a loop is in float32 where numbers are stored so: it only chooses among them, or takes exponentials."""
        exprs = [e for u in updates for e in (u.lift, u.mask, u.contraction and u.contraction.left) if e is not None]
        return not [u for u in updates if u.monoid in ("sum", "prod")] or computed_in_single(exprs, (self.program.axis, *columns))

    def _fold_single(self, name: str, updates: list[Update]) -> list[str]:
        """A fold in float32; where numbers left its range, the tile is folded again in float64."""
        function = self.tile_function(name, self.held, "real")
        types, joins = self._starts(function, updates)
        near = {u.name: f"c{place}" for place, u in enumerate(updates) if self.storage.precision.of_elements(u)}
        for update in updates:
            if update.name in near:
                leaf = function.scope.leaf(update.lift)
                function.line(f"{near[update.name]} = middle({function.argument(leaf.variable, leaf.given)})")
        self.nested(function, (self.program.axis,), lambda: [
            self._accumulate(function, u, (), types[u.name], near.get(u.name, "")) for u in updates])
        for update in updates:
            if update.name in near:
                held = self.held(update.name).name
                function.line(f"{held} = f8({held}) + f8({function.argument('n', 'n')}) * f8({near[update.name]})")
        checks = [f"{'finite' if u.name in near else 'sound'}({function.results[self.held(u.name).name]})"
                  for u in updates if u.monoid == "sum" and types[u.name] == "real"]
        calls = []
        for type_ in ("f4", "f8"):
            function.argument("real", type_)
            calls.append(self.printed(function))
        failed = " or ".join(f"not {check}" for check in checks)
        again = [f"if {failed}:", f"    {calls[1]}"] if checks else []
        return [calls[0], *again, *joins]

    def _fold(self, name: str, columns: tuple[str, ...], updates: list[Update], left: dict[str, tuple[str, str]]) -> list[str]:
        axis = self.program.axis
        function = self.tile_function(name, self.held, "f4" if self.signature.real == "f4" and self._in_single_anyway(updates, columns) else "f8")
        scalars = [u for u in updates if u.name not in left and not columns and not MONOIDS[u.monoid].counted]
        types, joins = self._starts(function, scalars)

        def body(lane: str = "") -> None:
            shared = self._shared(function, updates) if function.wide == self.signature.real else []
            for update in updates:
                if update.name in left:
                    self._write_left(function, update, *left[update.name])
                else:
                    self._accumulate(function, update, columns, types.get(update.name, ""), lane=lane)
            for name, term in shared:
                function.line(f"{name}[{function.index(axis)}] = {function.code(term).to(self.signature.real).text}")

        if columns or not types or left.keys() & {u.name for u in updates}:
            self.nested(function, (axis, *columns), body)
        else:
            self._in_strips(function, types, body)
        if columns and all(column in self.fixed for column in columns):
            _in_registers(function, [self.held(u.name).name for u in updates if u.name not in left])
        return [self.printed(function), *joins]

    def _shared(self, function: Function, updates: list[Update]) -> list[tuple[str, Expr]]:
        """What the exponentials are kept in that this fold takes first, and later ones take again; those read them there."""
        axis, new = self.program.axis, []
        terms = dict.fromkeys(term for update in updates for term in _exponentials(update) if term in self._again)
        for term in terms if not self.program.block else ():
            name = self._again[term]
            given = f"{name}[at:at + piece]" if self.in_pieces else name
            if term in self.kept:
                function.nest[-1].known[term, False] = Code(f"{function.argument(name, given)}[{function.index(axis)}]", self.signature.real)
                continue
            self.kept.add(term)
            self.buffers.append(f"{name}_all = empty((tile,), {self.signature.real})")
            self.reshaped.append(f"{name} = shaped({name}_all, (n,))")
            new.append((function.argument(name, given), term))
        return new

    @cached_property
    def _again(self) -> dict[Expr, str]:
        """Buffers for the exponentials of elements that lifts of more than one stage take."""
        stages = [dict.fromkeys(term for update in stage for term in _exponentials(update)) for stage in self.program.stages]
        terms = dict.fromkeys(term for stage in stages for term in stage)
        fits = lambda term: self.program.axis in term.axes and not self.program.columns(term.axes) and sum(term in stage for stage in stages) > 1
        return {term: f"E{number}" for number, term in enumerate(filter(fits, terms), 1)}

    def _starts(self, function: Function, updates: list[Update]) -> tuple[dict[str, str], list[str]]:
        """The types of accumulators in a loop, and how they join what is held; positions go on from where they are."""
        types, joins = {}, []
        for number, update in enumerate(updates):
            held = self.held(update.name)
            if MONOIDS[update.monoid].indexed:
                for variable in (held, self.held(update.name + WON)):
                    function.results[function.argument(variable.name, variable.at_row())] = variable.at_row()
                continue
            types[update.name] = type_ = held.type if held.type in ("i8", "b1") else function.wide
            function.line(f"{held.name} = {Accumulator('', update.monoid, type_).identity()}")
            function.results[held.name] = f"r{number}"
            part = Code(f"r{number}", type_).to(held.type).text
            joins.append(f"{held.at_row()} = {joined(update.monoid, held.at_row(), part, held.type)}")
        joins += self.means_of_tile(updates, {update.name: f"r{number}" for number, update in enumerate(updates)})
        return types, joins

    def _picked(self, update: Update) -> tuple[Expr, Expr] | None:
        """Where a sum has but one element, at a position that is known, as Σ [l = j]·x_l: that position, and the element."""
        chosen, value, axis = update.mask, update.lift, self.program.axis
        if chosen is None and value.op == "where" and value.args[2].op == "const" and value.args[2].value == 0:
            chosen, value, _ = value.args
        if update.monoid != "sum" or chosen is None or chosen.op != "equal" or self._columns(update):
            return None
        at, position = sorted(chosen.args, key=lambda arg: arg.op != "index")
        fits = at.op == "index" and at.axis == axis and axis not in position.axes and self.storage.kind(position) == "i"
        return (position, value) if fits else None

    def _pick(self, name: str, update: Update) -> list[str]:
        """The element at a position, if the tile has it."""
        (position, value), held, axis = self._picked(update), self.held(update.name), self.program.axis
        function = self.tile_function(name, self.held, "f8")
        index, start, count = function.index(axis), function.argument("start", "t0"), function.argument("n", "n")
        function.line(f"{index} = {function.code(position).text} - {start}")
        function.line(f"{held.name} = {constant(0, held.type).text}")
        function.open(axis)
        function.line(f"{held.name} = {function.code(value).to(held.type).text}")
        each = function.nest.pop().lines
        for line in [f"if 0 <= {index} < {count}:", *indented(each)]:
            function.line(line)
        function.results[held.name] = "r0"
        return [self.printed(function, loop=False), f"{held.at_row()} = {held.at_row()} + r0"]

    def _is_scanned(self, update: Update) -> bool:
        """Whether an update looks for the k largest elements of a tile; with columns each has its own."""
        return MONOIDS[update.monoid].counted and not self._columns(update)

    def _scan(self, name: str, update: Update) -> str:
        """The k largest: elements are spread over lanes, and only lanes whose largest gets in are looked at one by one."""
        axis, last = self.program.axis, LANES - 1
        function = self.function(name, self.held, [*update.elements], (axis,), choosing=True)
        best, at = (function.argument(v.name, v.at_row()) for v in self.storage.places(update))
        index = function.index(axis)
        function.places[axis] = f"np.uint64({index})"
        function.open(axis)
        mask = None if update.mask is None else function.code(update.mask).to("b1").text
        lift, position = function.code(update.lift), function.code(Expr("index", (), (axis,))).text
        each, type_ = function.nest.pop().lines, "f4" if lift.type == "f4" else "f8"
        w, none, value = type_[1], constant(-math.inf, type_).text, lift.to(type_).text
        whole, most = f"i{w}", f"MOST{w}"
        start, n = function.argument("start", "t0"), function.argument("n", "n")
        lanes, keys = self._per_lane(function, f"lanes{w}", type_), self._per_lane(function, f"keys{w}", whole)
        ranks, value = self._per_lane(function, f"ranks{w}", whole, LANES + 1), value if mask is None else f"({value} if {mask} else {none})"
        looked = [*each, f"{lanes}[lane] = larger({lanes}[lane], {value})"]
        lines = [f"for lane in range({LANES}):", f"    {lanes}[lane] = {none}", f"whole = {n} // {LANES} * {LANES}",
                 f"for i0 in range(0, whole, {LANES}):", f"    for lane in range({LANES}):", *indented(indented([f"{index} = i0 + lane", *looked])),
                 f"for lane in range({n} - whole):", *indented([f"{index} = whole + lane", *looked]), f"ordered({lanes}, {keys})",
                 f"rank, bound, place, wanted = {most}, {best}[-1], 0, {at}.shape[0] if {at}[-1] < 0 else 0",
                 "if wanted > 0:", f"    ranked({keys}, wanted, {ranks})",
                 f"if 0 < wanted <= {LANES} < {n}:", *indented([
                     "bound = inf", "for each in range(wanted):", f"    bound = smaller(bound, f8({lanes}[{last} - ({ranks}[each] & {last})]))"]),
                 "while True:", *indented([
                     "if place < wanted:", f"    rank = {ranks}[place]",
                     f"elif 0 < wanted == place and {ranks}[place] >> 6 < rank >> 6:", "    break",
                     "else:", f"    rank = left_over({keys}, rank, {best}, {at}, {start})", "place += 1",
                     f"if rank == -{most}:", "    break",
                     f"for {index} in range({last} - (rank & {last}), {n}, {LANES}):",
                     *indented([*each, f"value = {lift.to('f8').text}", f"if {'' if mask is None else f'{mask} and '}not value < bound:",
                                f"    insert({best}, {at}, value, {position})"])])]
        function.nest[-1].lines += lines
        return self.printed(function)

    def _seek(self, name: str, update: Update) -> str:
        """The position of the largest or smallest: a few elements at a time are looked at one by one only if their best wins."""
        axis, most = self.program.axis, update.monoid == "argmax"
        function = self.function(name, self.held, [*update.elements], (axis,), choosing=True)
        held, won = self.held(update.name), self.held(update.name + WON)
        for variable in (held, won):
            function.results[function.argument(variable.name, variable.at_row())] = variable.at_row()
        index = function.index(axis)
        function.places[axis] = f"np.uint64({index})"
        function.open(axis)
        mask = None if update.mask is None else function.code(update.mask).to("b1").text
        lift, position = function.code(update.lift), function.code(Expr("index", (), (axis,))).text
        each, type_, n = [f"{index} = i0 + i", *function.nest.pop().lines], "f4" if lift.type == "f4" else "f8", function.argument("n", "n")
        none, sign = constant(-math.inf if most else math.inf, type_).text, "" if most else "-"
        value = lift.to(type_).text if mask is None else f"({lift.to(type_).text} if {mask} else {none})"
        looked = [*each, *Accumulator(held.name, update.monoid, held.type).then(lift, mask, position, won.name)]
        function.nest[-1].lines += [
            f"for i0 in range(0, {n}, {SOUGHT}):", *indented([
                f"nb = {SOUGHT} if i0 + {SOUGHT} < {n} else {n} - i0", f"r0 = {none}",
                "for i in range(nb):", *indented([*each, f"r0 = {'larger' if most else 'smaller'}(r0, {value})"]),
                f"if comes_first({sign}f8(r0), {sign}{won.name}, {held.name}):", "    for i in range(nb):", *indented(indented(looked))])]
        return self.printed(function)

    def _per_lane(self, function: Function, name: str, type_: str, count: int = LANES) -> str:
        """A buffer with a number per lane, which all updates share."""
        line = f"{name} = empty(({count},), {type_})"
        self.buffers += [] if line in self.buffers else [line]
        return function.argument(name, name)

    def _accumulate(self, function: Function, update: Update, columns: tuple[str, ...], type_: str, near: str = "", lane: str = "") -> None:
        mask = None if update.mask is None else function.code(update.mask).to("b1").text
        value, held, monoid = function.code(update.lift), self.held(update.name), MONOIDS[update.monoid]
        value = Code(f"minus({value.text}, {near})", value.type) if near else value
        position = function.code(Expr("index", (), (self.program.axis,))).text if monoid.indexed or monoid.counted else ""
        places = f"[{', '.join(map(function.index, columns))}]" if columns else ""
        if monoid.counted:
            best, at = (function.argument(v.name, v.at_row()) + places for v in self.storage.places(update))
            call_ = f"insert({best}, {at}, {value.to('f8').text}, {position})"
            function.line(call_ if mask is None else f"if {mask}: {call_}")
            return
        if columns:
            function.argument(held.name, held.at_row())
        won = ""
        if monoid.indexed:
            variable = self.held(update.name + WON)
            won = (function.argument(variable.name, variable.at_row()) if columns else variable.name) + places
        for line in Accumulator(held.name + lane + places, update.monoid, type_ or held.type).then(value, mask, position, won):
            function.line(line)

    # sums by matrix products

    def _left(self, update: Update, rows: bool) -> tuple[str, str]:
        """Buffers for the left factor and, under a mask, for which elements take part."""
        number = [u.name for u in self.program.updates if u.name in self.storage.products].index(update.name) + 1
        left, taken = f"P{number}", f"M{number}" if update.mask is not None else ""
        for name, type_ in ((left, self.signature.real), (taken, "b1")):
            if name and not any(line.startswith(f"{name}_all ") for line in self.buffers):
                inner = "block * tile" if rows else "tile"
                self.buffers.append(f"{name}_all = empty(({inner},), {type_})")
                count = "nb" if rows else "1"
                self.reshaped.append(f"{name} = shaped({name}_all, ({count}, n))")
        self.sums_over("tile")
        return left, taken

    def sums_over(self, length: str) -> None:
        """A matrix product that sums over `length` elements needs memory for a strip of its right factor."""
        self.summed += [length] if length not in self.summed else []

    def _write_left(self, function: Function, update: Update, left: str, taken: str) -> None:
        row = "[i]" if self.program.block and self.program.block in update.axes else "[0]"
        value = function.code(update.contraction.left).to(self.signature.real)
        index = function.index(self.program.axis)
        target = function.argument(left, left + row)
        if not taken:
            function.line(f"{target}[{index}] = {value.text}")
            return
        mask = function.code(update.mask).to("b1").text
        zero = Code("0", "i8").to(self.signature.real).text
        function.line(f"{target}[{index}] = {value.text} if {mask} else {zero}")
        function.line(f"{function.argument(taken, taken + row)}[{index}] = {mask}")

    def _multiply(self, update: Update, left: str, taken: str, rows: bool) -> list[str]:
        held = self.held(update.name)
        columns = " * ".join(map(self.size, held.columns))
        right = self.storage.tile_of(update.contraction.right.name)
        right = right if len(held.columns) == 1 else f"shaped({right}, (n, {columns}))"
        into = f"{held.name}[:nb]" if rows else f"shaped({held.name}, (1, {columns}))"
        into = into if not rows or len(held.columns) == 1 else f"shaped({held.name}, (nb, {columns}))"
        multiplied = f"multiply({left}, {right}, b1(False), panel, {into})"
        return [f"if all_finite({right}):", f"    {multiplied}", "else:", f"    product({left}, {taken}, {right}, {into})"] if taken else [multiplied]


def _in_registers(function: Function, arrays: list[str]) -> None:
    """Sums in places of arrays, all written out, become variables: memory would be read and written for each element."""
    lines = "\n".join(function.nest[0].lines)
    places = dict.fromkeys(re.findall(rf"\b(?:{'|'.join(arrays)})\[[\d, ]+\]", lines))
    names = {place: f"sum{number}" for number, place in enumerate(places)}
    for place, name in names.items():
        lines = lines.replace(place, name)
    taken, left = ([pattern.format(name, place) for place, name in names.items()] for pattern in ("{0} = {1}", "{1} = {0}"))
    function.nest[0].lines = [*taken, *lines.split("\n"), *left]


def _exponentials(update: Update) -> list[Expr]:
    return [term for term in subterms(*update.elements) if prefers_single(term)]
