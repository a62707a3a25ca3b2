"""The parts of a fused form as device functions of a CUDA kernel: fold a tile, rebase, combine states, finish, map.

In: a tile program whose state is a few numbers per row.  Out: definitions, and what calls of them look like.  A thread
holds a state; those of a warp's lanes, and then of a block's warps, become one by the same `combine`.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.names import PRIME, stem, symbol_names
from redfuser_algebra.lower.device_code import DeviceFunction, in_dialect
from redfuser_algebra.lower.functions import Accumulator, Function, Leaf, joined
from redfuser_algebra.lower.scalar_code import Code, constant
from redfuser_algebra.lower.storage import Signature, Storage, Variable
from redfuser_algebra.lower.tile import TileProgram, Update, Value

LONG = frozenset(("exp", "exp2", "log", "log2", "log1p", "logadd", "tanh", "erf", "sin", "cos", "sqrt", "reciprocal"))
"""Functions that take many steps in float64; besides them divisions by what varies, and powers."""


class RowFunctions:
    """Device functions of a program whose components are numbers; `kind` is the class of functions; `fast` as for `in_dialect`."""

    kind = DeviceFunction

    def __init__(self, program: TileProgram, signature: Signature, fast: bool = False) -> None:
        self.program, self.signature, self.fast = program, signature, fast
        self.storage = Storage(program, signature)
        self.made = {producer.name: producer for producer in program.producers}
        self.sizes = {copy: f"n_{axis}" for copy, axis in program.copies.items()}
        self.texts: dict[str, str] = {}
        self.calls: dict[str, list[str]] = {}

    @property
    def state(self) -> list[tuple[str, str]]:
        """The variables of a state with their types, without the number of elements seen."""
        values = {value.name for value in self.storage.values}
        return [(v.name, v.type) for name, v in self.storage.held.items() if name not in values]

    @property
    def arrays(self) -> list[Variable]:
        """The components of a state that are arrays."""
        return []

    def scratch(self) -> list[Variable]:
        """Arrays that a thread needs besides."""
        return []

    def empty_arrays(self) -> list[tuple[Variable, str]]:
        """The arrays of a state, and what their places hold before any element."""
        return []

    def variable_types(self) -> dict[str, str]:
        """The types of all variables that components and values are held in."""
        return {v.name: v.type for v in self.storage.held.values()}

    def identities(self) -> list[str]:
        """The state of no elements, as code."""
        updates = {u.name: u for u in self.program.updates}
        values = {value.name for value in self.storage.values}
        found = ["i4(0)"]
        for name, variable in self.storage.held.items():
            if name in updates:
                found.append(nothing_of(updates[name].monoid, variable.type))
            elif name not in values:
                found.append("inf" if updates[name.removesuffix(WON)].monoid == "argmin" else "-inf")
        return found

    def leaves(self, variable: Callable[[str], str]) -> Callable[[Expr], Leaf]:
        """What formulas read: elements from the tile of the thread, what a row has once from variables."""
        def leaf(term: Expr) -> Leaf:
            if term.op == "param":
                name = self.storage.names[term.name]
                return Leaf(name, (), self.signature.params[term.name], name)
            if term.op == "symbol" and term.name in self.made:
                return Leaf(f"v_{term.name}", (self.program.axis,), self.storage.produced_type(term.name), f"v_{term.name}")
            if term.op == "symbol":
                return Leaf(variable(term.name), (), self._type(term.name), variable(term.name))
            own, type_ = self.program.inputs[term.name], self.signature.arrays[term.name]
            name = f"v_{term.name}" if self.program.axis in own else f"x_{term.name}"
            return Leaf(name, (self.program.axis,) if self.program.axis in own else (), type_, name)

        return leaf

    def _type(self, name: str) -> str:
        return self.storage.held[name.removesuffix(PRIME)].type

    def _current(self, name: str) -> str:
        held = self.storage.held[name.removesuffix(PRIME)].name
        return f"{held}_new" if name.endswith(PRIME) else held

    def formula(self, name: str, expr: Expr, type_: str, partial: bool = False, single: bool = False) -> str:
        """A function that computes a formula of symbols, its exponentials in float32 if `single`; the name to call it by."""
        if name not in self.texts:
            function = self.kind(name, self, self._current, partial=partial)
            function.single = single
            self._return(function, expr, type_)
            self.define(function)
        return name

    def _return(self, function: DeviceFunction, expr: Expr, type_: str) -> None:
        function.returned.append(Code(in_dialect(function.code(expr).to(type_).text, self.fast), type_))

    def define(self, function: DeviceFunction, local: Iterable[str] = ()) -> None:
        """Keep a definition and the order of its arguments, which are all it reads but what is `local` to it."""
        for name in local:
            function.arguments.pop(name, None)
        self.texts[function.name], self.calls[function.name] = function.text(), list(function.arguments)

    def arguments_but_of(self, name: str) -> set[str]:
        """What functions need, other than one and those that it calls alone."""
        calling = {called for text in self.texts.values() for called in re.findall(r"(?<!def )\b(\w+)\(", text)}
        return {argument for other, arguments in self.calls.items() if other not in (name, *calling) for argument in arguments}

    def called(self, name: str, names: Mapping[str, str], inside: Function | None = None) -> str:
        """A call of a function with `names` for its arguments, the rest under their own; `inside` a function, which then has them, too."""
        for argument in self.calls[name]:
            if inside is not None and argument not in names:
                inside.argument(argument, argument)
        return f"{name}({', '.join(names.get(argument, argument) for argument in self.calls[name])})"

    def value(self, value: Value, suffix: str, seen: str, inside: Function) -> str:
        """The statement that computes a value from the components with a suffix."""
        held = self.storage.held[value.name]
        name = self.formula(f"value_{held.name}", value.value, held.type)
        return f"{held.name}{suffix} = {self.called(name, self._with_suffix(suffix) | {f'n_{self.program.axis}': seen}, inside)}"

    def _with_suffix(self, suffix: str) -> dict[str, str]:
        return {v.name: f"{v.name}{suffix}" for v in self.storage.held.values()}

    def rebased(self, update: Update, suffix: str, inside: Function) -> str:
        """A call that moves a component with a suffix to the pivots without one."""
        held = self.storage.held[update.name]
        name = self.formula(f"rebase_{held.name}", update.rebase, held.type, single=True)
        moved = {f"{v.name}_new": v.name for v in self.storage.held.values()}
        return self.called(name, self._with_suffix(suffix) | moved | {f"n_{self.program.axis}": f"seen{suffix}"}, inside)

    # a tile

    def produce(self) -> None:
        """What several loops need of elements, once for each."""
        for name, producer in self.made.items():
            f = self.kind(f"make_{name}", self, self._current, "f4" if self.signature.real == "f4" else "f8")
            f.open(self.program.axis)
            f.line(f"{f.argument(f'v_{name}', f'v_{name}')}[{f.index(self.program.axis)}] = {f.code(producer.value).to(self.storage.produced_type(name)).text}")
            f.close()
            self.define(f)

    def fold(self) -> None:
        """The state after the elements of a tile, pivot by pivot."""
        f = self.kind("fold", self, self._current)
        for name in ("seen_old", *(f"{v}_old" for v, _ in self.state)):
            f.argument(name, name)
        self._counted(f)
        self._by_stages(f, self._fold_stage)

    def _counted(self, f: DeviceFunction) -> None:
        """How many elements are seen in the end; without any there is nothing to do."""
        f.count()
        f.line("if many == 0:")
        f.line(f"    return {self.listed('_old')}")
        f.line("seen = i4(seen_old + many)")

    def _by_stages(self, f: DeviceFunction, join: Callable[[DeviceFunction, Iterable[Update]], None]) -> None:
        """The rest of a function that adds to a state: stage by stage its new values, then what `join` writes for the stage."""
        self._before(f)
        for value in self.storage.old_values():
            f.line(self.value(value, "_old", "seen_old", f))
        for place, stage in enumerate(self.program.stages):
            for value in self.storage.moving_values(place):
                f.line(self.value(value, "", "seen", f))
            join(f, stage)
        f.returned += [Code("seen", "i4"), *(Code(v, t) for v, t in self.state)]
        self.define(f, ["seen", *self.variable_types()])

    def _before(self, f: DeviceFunction) -> None:
        """What must be kept as it was; numbers are: new ones have other names."""

    def listed(self, suffix: str) -> str:
        """The variables of a state, as a tuple is written."""
        return ", ".join([f"seen{suffix}", *(f"{v}{suffix}" for v, _ in self.state)])

    def _fold_stage(self, f: DeviceFunction, stage: Iterable[Update]) -> None:
        axis = self.program.axis
        stage = list(stage)
        folded = [u for u in stage if not u.counts]
        exprs = [e for u in folded for e in u.elements]
        choosing = not [u for u in folded if u.monoid in ("sum", "prod")]
        f.wide = "f4" if self.signature.real == "f4" and (choosing or in_single(exprs, (axis,))) else "f8"
        joins = []
        for update in stage:
            held = self.storage.held[update.name].name
            moved = f"{held}_old" if update.fixed else f"({self.rebased(update, '_old', f)} if seen_old > 0 else {held}_old)"
            if update.counts:
                f.line(f"{held} = {moved} + {int(update.lift.value)} * many")
                continue
            f.line(f"{held} = {moved}")
            if MONOIDS[update.monoid].indexed:
                f.line(f"{held}{WON} = {held}{WON}_old")
                joins += self._race(f, update)
            else:
                joins.append(self._accumulator(f, update))
        if folded:
            f.open(axis)
            for update in folded:
                self._accumulate(f, update)
            f.close()
        for line in joins:
            f.line(line)

    def _race(self, f: DeviceFunction, update: Update) -> list[str]:
        """Start the race of a tile's elements; the statements by which its winner meets the component's."""
        held, sign = self.storage.held[update.name].name, "" if update.monoid == "argmax" else "-"
        f.line(f"{held}_at, {held}_it = i4(-1), {constant(0.0, self._race_type(f, update)).text}")
        return [f"ahead = ({held}_at >= 0) & comes_first({sign}f8({held}_it), {sign}{held}{WON}, {held}_at, {held})",
                f"{held}{WON}, {held} = sel(ahead, f8({held}_it), {held}{WON}), sel(ahead, i8({held}_at), {held})"]

    def _race_type(self, f: DeviceFunction, update: Update) -> str:
        return "f4" if f.wide == "f4" or f.stores(update.lift) else "f8"

    def _accumulator(self, f: DeviceFunction, update: Update) -> str:
        """Start the sum of a tile; the statement that adds it to the component."""
        held = self.storage.held[update.name]
        type_ = self._tile_type(f, update)
        f.line(f"{held.name}_it = {Accumulator('', update.monoid, type_).identity()}")
        return f"{held.name} = {joined(update.monoid, held.name, Code(f'{held.name}_it', type_).to(held.type).text, held.type)}"

    def _tile_type(self, f: DeviceFunction, update: Update) -> str:
        """The type in which a tile's elements are joined."""
        held = self.storage.held[update.name].type
        chosen = update.monoid in OVER.keys() - {"sum", "prod"} and f.stores(update.lift)
        return held if held in ("i8", "b1") or f.wide != "f4" and not chosen else "f4"

    def _accumulate(self, f: DeviceFunction, update: Update) -> None:
        held, index = self.storage.held[update.name], f.index(self.program.axis)
        mask = "" if update.mask is None else f.code(update.mask).to("b1").text
        value = f.code(update.lift)
        taken = f.taken(index) + (f" & {mask}" if mask else "")
        if MONOIDS[update.monoid].indexed:
            sign = "" if update.monoid == "argmax" else "-"
            value, won, place = value.to(self._race_type(f, update)), f"{held.name}_it", f"i4({f.place_of(index)})"
            edge = f" | ({index} == TILE) & comes_first({sign}{value.text}, {sign}{won}, {place}, {held.name}_at)" if f.by_vectors() else ""
            f.line(f"ahead = {taken} & (({held.name}_at < 0) | beats({sign}{value.text}, {sign}{won}){edge})")
            f.line(f"{won}, {held.name}_at = sel(ahead, {value.text}, {won}), sel(ahead, {place}, {held.name}_at)")
            return
        type_ = self._tile_type(f, update)
        own, part = "f4" if value.type == "f4" else type_, f.by_vectors()
        if mask or not part:
            value = Code(f"sel({mask if part else taken}, {value.to(own).text}, {Accumulator('', update.monoid, own).identity()})", own)
        if part:
            f.join_vector(held.name, update.monoid, value, type_)
        else:
            f.line(f"{held.name}_it = {joined(update.monoid, f'{held.name}_it', value.to(type_).text, type_)}")

    # the states of many threads

    def combine(self) -> None:
        """The states of `width` lanes as one: component by component, each lane moves its own once, to the pivots of all."""
        f = self.kind("combine", self, self._current)
        for name in ("seen_old", *(f"{v}_old" for v, _ in self.state), "width"):
            f.argument(name, name)
        f.line(f"seen = {over_lanes('sum', 'seen_old', 'i4', 'width')}")
        self._by_stages(f, self._combine_stage)

    def _combine_stage(self, f: DeviceFunction, stage: Iterable[Update]) -> None:
        for update in stage:
            held = self.storage.held[update.name]
            identity = Accumulator("", update.monoid, held.type).identity()
            own = f"{held.name}_old" if update.fixed else f"{self.rebased(update, '_old', f)} if seen_old > 0 else {identity}"
            if MONOIDS[update.monoid].indexed:
                f.line(f"{held.name}, {held.name}{WON} = {own}, {held.name}{WON}_old")
                self._over_lanes(f, self._join(update))
            else:
                f.line(f"{held.name} = {over_lanes(update.monoid, own, held.type, 'width')}")

    def _over_lanes(self, f: DeviceFunction, lines: list[str]) -> None:
        f.line("for step in range(5):")
        f.line("    by = width >> step + 1")
        f.line("    if by > 0:")
        for line in lines:
            f.line(f"        {line}")

    def _join(self, update: Update) -> list[str]:
        held, sign = self.storage.held[update.name].name, "" if update.monoid == "argmax" else "-"
        won = f"{held}{WON}"
        return [f"{held}_b, {won}_b = {moved(held, 'i8', 'by')}, {moved(won, 'f8', 'by')}",
                f"{held}_it = {held}_b >= 0 and comes_first({sign}{won}_b, {sign}{won}, {held}_b, {held})",
                f"{held}, {won} = sel({held}_it, {held}_b, {held}), sel({held}_it, {won}_b, {won})"]

    # the end of a row

    def finish(self, output_types: Iterable[str]) -> list[str]:
        """Components at their pivots as they ended, then results and what maps read; the names of what is returned."""
        f = self.kind("finish", self, self._current)
        for name in ("seen", *(v for v, _ in self.state)):
            f.argument(name, name)
        done: set[str] = set()
        for update in self.program.updates:
            end = self.program.ended(update)
            if end is not None:
                self._final_values(f, symbol_names(end), done)
                self.settled(f, update, end)
        names, output_types = [], list(output_types)
        together = self._together()
        if together:
            self._final_values(f, (name for place in together for name in self.names_read(place)), done)
            self._results(f, {place: output_types[place] for place in together})
        for place, (output, type_) in enumerate(zip(self.program.outputs, output_types, strict=True)):
            self._final_values(f, self.names_read(place), done)
            if place in self.program.maps:
                found = [(v.name, v.type) for v in self.read_by(place) if not v.columns]
                f.returned += [Code(n, t) for n, t in found if n not in names]
                names += [n for n, _ in found if n not in names]
            elif place in together:
                f.returned.append(Code(f"result_{place}", type_))
                names.append(f"result_{place}")
            else:
                names += self.result(f, place, output, type_)
        self.define(f, [name for name in self.variable_types() if name not in [v for v, _ in self.state]])
        return names

    def names_read(self, place: int) -> Iterable[str]:
        """The symbols that an output reads."""
        return symbol_names(self.program.outputs[place])

    def read_by(self, place: int) -> list[Variable]:
        """The variables that a map reads."""
        return [self.storage.held[name] for name in map(stem, self.names_read(place)) if name not in self.made]

    def settled(self, f: DeviceFunction, update: Update, end: Expr) -> None:
        """A component as it ends."""
        held = self.storage.held[update.name]
        name = self.formula(f"settle_{held.name}", end, held.type, partial=True)
        f.line(f"{held.name} = {self.called(name, {f'n_{self.program.axis}': 'seen'}, f)}")

    def result(self, f: DeviceFunction, place: int, output: Expr, type_: str) -> list[str]:
        """An output that a row has once; the names of what is returned for it."""
        name = self.formula(f"output_{place}", output, type_)
        f.returned.append(Code(self.called(name, {f"n_{self.program.axis}": "seen"}, f), type_))
        return [f"result_{place}"]

    def _together(self) -> list[int]:
        """The outputs that a row has once, if some of them need the same reduction over columns; otherwise each is by itself."""
        single = [place for place, axes in enumerate(self.program.output_axes)
                  if place not in self.program.maps and not self.program.columns(axes)]
        loops = Counter(term for place in single for term in subterms(self.program.outputs[place]) if term.op == "reduce")
        return single if max(loops.values(), default=0) > 1 else []

    def _results(self, f: DeviceFunction, types: Mapping[int, str]) -> None:
        """One function of several outputs."""
        function = self.kind("outputs", self, self._current)
        for place, type_ in types.items():
            self._return(function, self.program.outputs[place], type_)
        self.define(function)
        call = self.called("outputs", {f"n_{self.program.axis}": "seen"}, f)
        f.line(f"{', '.join(f'result_{place}' for place in types)} = {call}")

    def _final_values(self, f: DeviceFunction, names: Iterable[str], done: set[str]) -> None:
        for value in self.program.values:
            if value.name in set(map(stem, names)) and value.name not in done:
                done.add(value.name)
                self._final_values(f, symbol_names(value.value), done)
                f.line(self.value(value, "", "seen", f))

    def map(self, place: int, type_: str) -> None:
        """An output that keeps the reduced axis, for the elements of a tile."""
        output, axis = self.program.outputs[place], self.program.axis
        wide = "f4" if self.signature.real == "f4" and in_single([output], (axis,)) else "f8"
        f = self.kind(f"map_{place}", self, self._current, wide)
        target = f.argument(f"y_{place}", f"y_{place}")
        f.open(axis)
        f.line(f"{target}[{f.index(axis)}] = {f.code(output).to(type_).text}")
        f.close()
        self.define(f)


def in_single(terms: list[Expr], axes: tuple[str, ...]) -> bool:
    """Whether a loop over `axes` computes in float32 where numbers are stored so: if it has a function that takes a GPU many
    steps in float64, of which most cards have few."""
    return any(takes_long(term, set(axes)) for term in subterms(*terms) if set(axes) & set(term.axes))


def takes_long(term: Expr, axes: set[str]) -> bool:
    """Whether a term that varies along `axes` is a function of many steps, or was one."""
    if term.op == "symbol":
        return bool(axes & set(term.axes))
    if term.op == "divide":
        return bool(axes & set(term.args[1].axes))
    return term.op in LONG or term.op == "power" and not (term.args[1].op == "const" and term.args[1].value in (1, 2, 3, 4))


def nothing_of(monoid: str, type_: str) -> str:
    """The state of no elements as code; whole numbers say their type, as literals have types of their own, for which functions would be compiled once more."""
    text = Accumulator("", monoid, type_).identity()
    return f"{type_}({text})" if type_ in ("i8", "b1") else text


OVER = {"sum": "sum_over", "prod": "prod_over", "max": "larger_over", "min": "smaller_over", "fmax": "fmax_over", "fmin": "fmin_over"}
"""What makes one value of those of lanes, by monoid; of whole numbers `max_over` and `min_over` do."""


def over_lanes(monoid: str, value: str, type_: str, width: str) -> str:
    """⊕ of what `width` neighbouring lanes have; truth values travel as whole numbers."""
    if type_ == "b1":
        return f"({'max_over' if monoid == 'any' else 'min_over'}(sel({value}, i4(1), i4(0)), {width}) != 0)"
    return f"{f'{monoid}_over' if monoid in ('max', 'min') and type_ == 'i8' else OVER[monoid]}({value}, {width})"


def moved(variable: str, type_: str, by: str) -> str:
    """A variable of the lane whose number differs in the bits `by`; truth values travel as whole numbers."""
    if type_ == "b1":
        return f"(cuda.shfl_xor_sync(0xFFFFFFFF, sel({variable}, i4(1), i4(0)), {by}) != 0)"
    return f"cuda.shfl_xor_sync(0xFFFFFFFF, {variable}, {by})"
