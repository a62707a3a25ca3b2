"""The tile program: the loops that a fused form becomes, before any target is chosen.

For each row (or block of rows) the reduced axis is read once, tile by tile.  A tile first makes the values its
elements are made of (producers), then goes through the stages: the new pivots, the rebase of what is held, and what
the elements of the tile add at the new pivots.  After the last tile come the epilogue and, for maps, a second sweep.
Where the order of elements counts, they are taken one by one, and maps go on from state to state.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.ending import ending
from redfuser_algebra.language.errors import RedfuserError
from redfuser_algebra.language.expr import Expr, call, const, symbol
from redfuser_algebra.language.html import preformatted, titled
from redfuser_algebra.language.names import pivots_moved, stem, symbol_names

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import Scaling


class LoweringError(RedfuserError):
    """A form that no tile program can be made of, or a program that breaks its own rules."""


@dataclass(frozen=True)
class Contraction:
    """Σ over `axis` of left · right as a matrix product: `left` has the block of rows, `right` the columns."""

    left: Expr
    right: Expr
    axis: str


@dataclass(frozen=True)
class Producer:
    """A value per element that is made once per tile; by a matrix product if `contraction` says so."""

    name: str
    value: Expr
    contraction: Contraction | None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the value."""
        return self.value.axes


@dataclass(frozen=True)
class Update:
    """One component in a stage: held ← rebase(held) ⊕ (⊕ over the tile of `lift` where `mask`).

    `lift` and `mask` read the new pivots; `rebase` reads old ones and, primed, new ones.  `present` names the update
    that tells whether any element took part; "" means that all do.  An ordered update takes element by element: it is
    `lift` after the first, and every further one makes it `step`, over the symbols of such updates with the swept axis;
    `joined` is what two neighbouring parts make, and `empty` what it is where there is no element; where a recurrence
    starts from that (`from_empty`), the first element is a step like any other.
    """

    name: str
    monoid: str
    axes: tuple[str, ...]
    lift: Expr
    mask: Expr | None
    count: Expr | None
    rebase: Expr
    present: str = ""
    contraction: Contraction | None = None
    joined: Expr | None = None
    step: Expr | None = None
    empty: float = 0.0
    from_empty: bool = False

    @property
    def ordered(self) -> bool:
        """Whether the order of elements counts."""
        return self.step is not None or self.joined is not None

    @property
    def symbol(self) -> Expr:
        """What formulas call the component."""
        return symbol(self.name, self.axes)

    @property
    def elements(self) -> tuple[Expr, ...]:
        """What is asked of an element: its lift, and whether it takes part if not all do."""
        return (self.lift,) if self.mask is None else (self.lift, self.mask)

    @property
    def where(self) -> Expr | None:
        """Which elements can change the component; None if all can."""
        return self.lift if self.monoid == "any" and self.mask is None else self.mask

    @property
    def counts(self) -> bool:
        """Whether it counts elements."""
        return not self.ordered and self.monoid == "sum" and self.lift.op == "const" and self.mask is None and isinstance(self.lift.value, int)

    @property
    def unmasked(self) -> Update:
        """The same update where all elements can change the component."""
        return replace(self, mask=None, lift=const(True) if self.where is self.lift else self.lift)

    @property
    def fixed(self) -> bool:
        """Whether new pivots leave the component as it is."""
        return self.rebase is self.symbol


@dataclass(frozen=True)
class Value:
    """A pivot or result: `value` over components and other values, recomputed when they change; `mean_of` names the sum of which it is the mean."""

    name: str
    value: Expr
    axes: tuple[str, ...]
    mean_of: str = ""


@dataclass(frozen=True)
class Running:
    """A state of a scan, as maps see it: `start` before the first element, and `step` after each further one.

    `step` and maps read it before an element, as a symbol that has the swept axis.  `after` names what it has come to
    at the end of a part; "" where that is known only when all parts are.
    """

    name: str
    axes: tuple[str, ...]
    start: Expr
    step: Expr
    after: str


@dataclass(frozen=True)
class TileProgram:
    """The loops of an operator over `axis`.

    `inputs` maps each array to its axes in the order in which kernels read it: rows first, then `axis`, then the
    rest.  `rows` are the axes of independent work, `block` the last of them if matrix products take several at a time.
    `stages` holds the updates in merge order, those that can share a loop together.  `outputs` are over symbols;
    those with `axis` are maps, which may read `running` states.  `copies` are second names of axes; `holds` gives the
    axes of every symbol.  Ordered updates may be multiplied together as `scalings` say.  The block may be several axes `joined`,
    whose places number its rows, the last one's fastest.
    """

    name: str
    axis: str
    inputs: Mapping[str, tuple[str, ...]]
    params: tuple[str, ...]
    rows: tuple[str, ...]
    block: str
    producers: tuple[Producer, ...]
    stages: tuple[tuple[Update, ...], ...]
    values: tuple[Value, ...]
    outputs: tuple[Expr, ...]
    output_axes: tuple[tuple[str, ...], ...]
    copies: Mapping[str, str]
    holds: Mapping[str, tuple[str, ...]]
    running: tuple[Running, ...] = ()
    scalings: tuple[Scaling, ...] = ()
    joined: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for complaint in _complaints(self):
            raise LoweringError(f"the tile program of {self.name}", complaint, "this is a fault of the lowering, not of the operator")

    @property
    def updates(self) -> tuple[Update, ...]:
        """All updates in merge order."""
        return tuple(update for stage in self.stages for update in stage)

    def ended(self, update: Update) -> Expr | None:
        """What an update holds when no element comes any more, with the partial operations; None if it has no pivots."""
        end = ending(update.symbol, update.rebase, [each.name for each in self.updates if each.fixed])
        if end is None:
            return None
        present = [each.symbol for each in self.updates if each.name == update.present]
        stuck, moved = end
        return call("where", call("logical_and", stuck, *present) if present else stuck, moved, update.symbol)

    @property
    def maps(self) -> tuple[int, ...]:
        """Which outputs keep the reduced axis."""
        return tuple(place for place, axes in enumerate(self.output_axes) if self.axis in axes)

    @property
    def again(self) -> tuple[Expr, ...]:
        """The formulas of the second sweep: maps, and the steps of what they see at every element."""
        return (*(self.outputs[place] for place in self.maps), *(state.step for state in self.running))

    @property
    def folds(self) -> bool:
        """Whether anything but running states is read in the end, so that all elements have to be folded first."""
        states = {state.name for state in self.running} | {producer.name for producer in self.producers}
        return bool(symbol_names(*self.outputs, *(state.start for state in self.running)).keys() - states)

    @property
    def joins(self) -> bool:
        """Whether a kernel can join parts by itself: where each row holds numbers, and columns of numbers that nothing moves."""
        chosen = [u for u in self.updates if MONOIDS[u.monoid].indexed or MONOIDS[u.monoid].counted]
        return not chosen and all(self.block not in u.axes and (u.fixed or not self.columns(u.axes)) for u in self.updates)

    @property
    def splits(self) -> bool:
        """Whether the reduced axis can be cut into parts: maps that every element sees from the start on go on from part to part."""
        merges = all(update.joined is not None for update in self.updates if update.ordered)
        return merges and (not self.maps or self.running != () and self.joins and all(state.after for state in self.running))

    def stored(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes in the order in which kernels have them: rows, the reduced axis, columns."""
        front = tuple(axis for axis in (*self.rows, self.axis) if axis in axes)
        return (*front, *(axis for axis in axes if axis not in front))

    @property
    def chosen(self) -> set[str]:
        """The parameters that say how many of the largest elements are wanted."""
        return {update.count.name for update in self.updates if update.count is not None and update.count.op == "param"}

    def columns(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes among `axes` that are looped over inside a row: neither rows nor the reduced axis."""
        return tuple(axis for axis in axes if axis not in self.rows and axis != self.axis)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return titled(f"Tile program of {self.name}", preformatted(self))


def _complaints(program: TileProgram) -> Iterator[str]:
    if program.axis in program.rows:
        yield f"{program.axis} is reduced, so it is no axis of rows"
    if program.block and program.block != program.rows[-1]:
        yield f"the block {program.block} is not the last axis of rows"
    known, values = set(), {value.name: value.value for value in program.values}
    for producer in program.producers:
        if symbol_names(producer.value).keys() - known:
            yield f"the producer {producer.name} depends on a pivot"
        known.add(producer.name)
    known |= {state.name for state in program.running}
    for stage in program.stages:
        for update in stage:
            yield from _unknown(update.name, new_reads(update), known, values)
        known |= {update.name for update in stage}
    for output in program.outputs:
        yield from _unknown("an output", symbol_names(output), known, values)


def new_reads(update: Update) -> list[str]:
    """The symbols of the merged state that an update needs before its own."""
    return [*symbol_names(update.lift, update.mask), *pivots_moved(update.rebase)]


def _unknown(who: str, names: list[str] | dict[str, None], known: set[str], values: Mapping[str, Expr]) -> Iterator[str]:
    todo, seen = [stem(name) for name in names], set()
    while todo:
        name = todo.pop()
        if name in known or name in seen:
            continue
        seen.add(name)
        if name not in values:
            yield f"{who} reads {name} before it is there"
        else:
            todo += [stem(each) for each in symbol_names(values[name])]


def _lines(program: TileProgram) -> Iterator[str]:
    rows = " ".join(("…", *program.rows))
    yield f"{program.name}: rows [{rows}]" + (f", {program.block} in blocks" if program.block else "")
    yield f"for tile of {program.axis}:"
    for producer in program.producers:
        yield f"  {producer.name}[{' '.join(producer.axes)}] = {_product(producer.contraction) or producer.value}"
    made: set[str] = set()
    for stage in program.stages:
        for value in program.values:
            ready = {stem(n) for n in symbol_names(value.value)} <= made
            if value.name not in made and ready:
                made.add(value.name)
                yield f"  {value.name} = {value.value}"
        for update in stage:
            yield from _update_lines(update)
            made.add(update.name)
    yield "then:"
    if program.running:
        yield "  " + ", ".join(f"{state.name} = {state.start}" for state in program.running)
    for place, output in enumerate(program.outputs):
        sweep = f"for {program.axis} again: " if place in program.maps else ""
        yield f"  {sweep}out{place}[{' '.join(program.output_axes[place])}] = {output}"
    if program.running:
        names, steps = ", ".join(s.name for s in program.running), ", ".join(str(s.step) for s in program.running)
        yield f"    after each element: {names} = {steps}"


def _product(contraction: Contraction | None) -> str:
    return "" if contraction is None else f"dot over {contraction.axis} of {contraction.left} and {contraction.right}"


def _update_lines(update: Update) -> Iterator[str]:
    if update.ordered:
        yield f"  {update.name}[{' '.join(update.axes)}] ∘= {update.step}   from {update.lift}"
        return
    if not update.fixed:
        yield f"  rebase {update.name} = {update.rebase}"
    mask = "" if update.mask is None else f"   where {update.mask}"
    count = "" if update.count is None else f" {update.count}"
    symbol_ = MONOIDS[update.monoid].symbol
    yield f"  {update.name}[{' '.join(update.axes)}] {symbol_}={count} {_product(update.contraction) or update.lift}{mask}"
