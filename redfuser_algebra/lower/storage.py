"""Where a kernel keeps things: the names of variables, what has a place per row of a block, types, buffers.

In: a tile program and the types of its inputs.  Out: variables, and the leaves that formulas read at one row.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.expr import Expr, subterms, symbol
from redfuser_algebra.language.names import PRIME, pivots_moved, stem, symbol_names, unused
from redfuser_algebra.lower.functions import Leaf
from redfuser_algebra.lower.kinds import kinds, reduced_kind
from redfuser_algebra.lower.marks import marked
from redfuser_algebra.lower.precision import Precision
from redfuser_algebra.lower.tile import TileProgram, Update, Value


@dataclass(frozen=True)
class Signature:
    """What a kernel is made for: the type of each array and scalar (f4, f8, i8 or b1), and whether it has matrix products.

    `sizes` holds the lengths of short column axes that the kernel is made for, too: their loops are written out.
    """

    arrays: Mapping[str, str]
    params: Mapping[str, str]
    products: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def real(self) -> str:
        """The type of stored real numbers."""
        return "f4" if "f4" in self.arrays.values() and "f8" not in self.arrays.values() else "f8"


@dataclass(frozen=True)
class Variable:
    """A variable of the kernel: `block` if it has a place per row of the block, then its columns, then its type."""

    name: str
    block: bool
    columns: tuple[str, ...]
    type: str

    @property
    def is_array(self) -> bool:
        """Whether it lives in memory."""
        return self.block or self.columns != ()

    def at_row(self) -> str:
        """The variable at the current row: a number, or an array of the columns."""
        return f"{self.name}[i]" if self.block else self.name


class Storage:
    """All variables of a kernel, by the name that formulas use."""

    def __init__(self, program: TileProgram, signature: Signature) -> None:
        self.program, self.signature = program, signature
        self.taken: set[str] = set()
        self.names = {name: self.fresh(name) for name in (*program.inputs, *program.params)}
        self.held: dict[str, Variable] = {}
        self.running: dict[str, Variable] = {}
        self.moving = _moving(program)
        self.products = {u.name for u in program.updates if self._multiplied(u)}
        for update in program.updates:
            self._hold(update)
        self.values = [value for value in program.values if value.name in self.moving | used(program, [*program.outputs, *ends(program), *_seen(program)])]
        for value in self._in_order():
            self._add(value.name, value.axes, self._value_type(value.value, value.axes))
        self.running = {state.name: Variable(self.fresh(state.name), bool(program.block) and program.block in state.axes, program.columns(state.axes), "f8")
                        for state in program.running}
        self.old = {name: self._old(name) for name in self._snapshots()}
        self.precision = Precision(program, self._is_single, self.moving)
        self.tiles: dict[str, str] = {}
        self._tile_names: dict[str, str] = {}

    def fresh(self, name: str) -> str:
        """A variable's name, marked and other than those in use."""
        name = unused(name, self.taken)
        self.taken.add(name)
        return marked(name)

    def kind(self, term: Expr) -> str:
        """Real, whole or truth: the kind of a formula."""
        return kinds(term, self._leaf_kind)[term]

    def _leaf_kind(self, leaf: Expr) -> str:
        types = {"f4": "f", "f8": "f", "i8": "i", "b1": "b"}
        if leaf.op != "symbol":
            return types[(self.signature.arrays if leaf.op == "input" else self.signature.params)[leaf.name]]
        name = leaf.name.removesuffix(PRIME)
        if name in self.held or name in self.running:
            return types[(self.held.get(name) or self.running[name]).type]
        formulas = {row.name: row.value for row in (*self.program.producers, *self.program.values)}
        return self.kind(formulas[name])

    def _is_single(self, leaf: Expr) -> bool:
        """Whether an input or a producer is stored in float32."""
        if leaf.op == "input":
            return self.signature.arrays[leaf.name] == "f4"
        return leaf.name in {p.name for p in self.program.producers} and self.produced_type(leaf.name) == "f4"

    def _multiplied(self, update: Update) -> bool:
        """Sums by matrix products are not for pivots: those want float64."""
        return bool(update.contraction and self.signature.products and self._ordered_alike(update)
                    and self.signature.arrays[update.contraction.right.name] == self.signature.real
                    and (update.name not in self.moving or self.signature.real == "f8"))

    def _ordered_alike(self, update: Update) -> bool:
        own = self.program.inputs[update.contraction.right.name]
        return self.program.columns(own) == self.program.columns(update.axes)

    def _hold(self, update: Update) -> None:
        name, monoid = update.name, MONOIDS[update.monoid]
        if update.ordered:
            return self._add(name, update.axes, "f8")
        real = self.signature.real if name in self.products else "f8"
        kind = reduced_kind(update.monoid, self.kind(update.lift), update.mask is not None)
        if kind == "i" and not update.fixed:
            self._add(name, update.axes, "i8")
            kind = self.kind(update.rebase.args[1] if update.rebase.op == "where" else update.rebase)
        self._add(name, update.axes, {"i": "i8", "b": "b1"}.get(kind, real))
        if monoid.indexed:
            self.held[name + WON] = replace(self.held[name], name=f"{self.held[name].name}{WON}", type="f8")
        elif monoid.counted:
            self._add(positions(name), update.axes, "i8")

    def _add(self, name: str, axes: tuple[str, ...], type_: str) -> None:
        block = self.program.block != "" and self.program.block in axes
        variable = self.held[name].name if name in self.held else self.fresh(name)
        self.held[name] = Variable(variable, block, self.program.columns(axes), type_)

    def _value_type(self, value: Expr, axes: tuple[str, ...]) -> str:
        kind = self.kind(value)
        stored = [self.held[stem(t.name)] for t in subterms(value) if t.op == "symbol" and stem(t.name) in self.held]
        single = self.program.columns(axes) and any(v.columns and v.type == "f4" for v in stored)
        return {"i": "i8", "b": "b1"}.get(kind) or ("f4" if single else "f8")

    def _in_order(self) -> list:
        """Values, each after those it reads."""
        left, done = list(self.values), []
        while left:
            ready = [v for v in left if not {stem(n) for n in symbol_names(v.value)} & {w.name for w in left}]
            done += ready
            left = [v for v in left if v not in ready]
        return done

    def known(self, names: set[str]) -> list[Value]:
        """The values that can be computed from what has the names, in an order in which they can."""
        found: list[Value] = []
        while True:
            fresh = [v for v in self.values if v not in found and {stem(n) for n in symbol_names(v.value)} <= names]
            if not fresh:
                return found
            found += fresh
            names = names | {v.name for v in fresh}

    def moving_values(self, place: int) -> list[Value]:
        """The values that pivots are made of and that become known just before a stage: before the first one, those that only see how many came."""
        before, ready = (self.known({u.name for stage in self.program.stages[:stop] for u in stage}) if stop >= 0 else [] for stop in (place - 1, place))
        return [value for value in ready if value not in before and value.name in self.moving]

    def old_values(self) -> list[Value]:
        """The values that rebases read as they were, in an order in which they can be computed."""
        needed = {name for name in self.old if name in {v.name for v in self.values}}
        ordered = self.known({update.name for update in self.program.updates})
        for value in reversed(ordered):
            needed |= {stem(n) for n in symbol_names(value.value)} if value.name in needed else set()
        return [value for value in ordered if value.name in needed]

    def _snapshots(self) -> list[str]:
        """What is needed as it was before the tile."""
        found: dict[str, None] = {}
        for update in self.program.updates:
            for term in subterms(update.rebase):
                if term.op == "symbol" and not term.name.endswith(PRIME) and not (
                        stem(term.name) == update.name and set(term.axes) == set(update.axes)):
                    found[term.name] = None
        return list(found)

    def _old(self, name: str) -> Variable:
        held = self.held[name]
        return Variable(self.fresh(f"old_{held.name}"), held.block, held.columns, held.type)

    def places(self, update: Update) -> tuple[Variable, Variable]:
        """What the k largest values and their positions are held in."""
        names = (update.name + WON, update.name) if MONOIDS[update.monoid].indexed else (update.name, positions(update.name))
        return tuple(self.held[name] for name in names)

    def leaves(self, symbol: Callable[[str], Variable]) -> Callable[[Expr], Leaf]:
        """What formulas read at one row; `symbol` says which variable a symbol is."""
        def leaf(term: Expr) -> Leaf:
            if term.op == "input":
                return self._input(term)
            if term.op == "param":
                return Leaf(self.names[term.name], (), self.signature.params[term.name], self.names[term.name])
            if term.name in {producer.name for producer in self.program.producers}:
                return self._produced(term)
            variable = symbol(term.name)
            return Leaf(variable.name, variable.columns, variable.type, variable.at_row())
        return leaf

    def _input(self, term: Expr) -> Leaf:
        own, name = self.program.inputs[term.name], self.names[term.name]
        left = tuple(axis for axis in own if axis not in self.program.rows)
        places = [f"b_{term.name}[b]", *(f"i_{axis}" for axis in self.program.rows if axis in own)]
        given = self.tile_of(term.name) if self.program.axis in own else f"{name}[{', '.join(places)}]"
        return Leaf(name, left, self.signature.arrays[term.name], given)

    def tile_of(self, name: str) -> str:
        """The part of an array that a tile reads: a variable made once per tile (`tiles`), where rows of a block share it."""
        own = self.program.inputs[name]
        places = [f"b_{name}[b]", *(f"i_{axis}" for axis in self.program.rows if axis in own), "t0:t0 + n"]
        code = f"{self.names[name]}[{', '.join(places)}]"
        if self.program.block and self.program.block in own:
            return code
        variable = self._tile_names[name] = self._tile_names.get(name) or self.fresh(f"{self.names[name]}_tile")
        self.tiles[variable] = code
        return variable

    def _produced(self, term: Expr) -> Leaf:
        block = self.program.block != "" and self.program.block in term.axes
        left = (self.program.axis, *self.program.columns(term.axes))
        return Leaf(term.name, left, self.produced_type(term.name), f"{term.name}[i]" if block else term.name)

    def produced_type(self, name: str) -> str:
        """The type of a producer's buffer."""
        producer = {p.name: p for p in self.program.producers}[name]
        return {"i": "i8", "b": "b1"}.get(self.kind(producer.value), self.signature.real)


def positions(name: str) -> str:
    """What the positions of the k largest values are held under."""
    return f"{name}_at"


def used(program: TileProgram, exprs: Iterable[Expr]) -> set[str]:
    """The names that expressions read, through values."""
    formulas = {value.name: value.value for value in program.values}
    found: set[str] = set()
    todo = [stem(name) for name in symbol_names(*exprs)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [stem(each) for each in symbol_names(formulas[name])] if name in formulas else []
    return found


def ends(program: TileProgram) -> list[Expr]:
    """What components become at the end of a row."""
    return [end for update in program.updates if (end := program.ended(update)) is not None]


def _seen(program: TileProgram) -> list[Expr]:
    """Where the states that maps see start, in all and in a part."""
    return [each for state in program.running for each in (state.start, *([symbol(state.after, state.axes)] if state.after else []))]


def _moving(program: TileProgram) -> set[str]:
    """Components and values that are needed tile by tile: what pivots are made of."""
    read = [expr for u in program.updates for expr in u.elements]
    moved = [symbol(name) for u in program.updates for name in pivots_moved(u.rebase)]
    return used(program, [*read, *moved])
