"""The fused form: what is kept, how an element enters, how a state moves to a new pivot, how results are read off.

Everything in it is an expression.  Symbols stand for components, results and old pivots; `m'` is the new value of
pivot m.  Components are in merge order: the pivots that one of them needs depend only on results read from earlier
ones.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from redfuser_algebra.algebra.monoids import MONOIDS, STEPS, WON
from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.facts import Fact
from redfuser_algebra.discover.question import Question, needed_laws
from redfuser_algebra.discover.show import form_latex, form_markdown, form_text, merge_text, update_text
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr, call, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, primed, symbol_names


@dataclass(frozen=True)
class Component:
    """One ⊕ that is carried: s = ⊕_l `lift` over the elements in `mask`.

    `lift` is over inputs and old pivots.  `rebase` is s at the new pivots, over component symbols and old and new
    pivots (its own symbol alone if it has no pivot).  For argmax and its twins the symbol is the position.
    Of an ordered component (compose) `joined` is what two neighbouring parts make, over the symbols of the earlier part
    and, primed, of the later one, and `empty` what it is where there is no element.  One of an online form has
    no `joined`: from `start` on, each element makes it `step`, over component symbols; `lift` is the first step.
    """

    name: str
    monoid: str
    lift: Expr
    mask: Expr | None
    count: Expr | None
    axes: tuple[str, ...]
    rebase: Expr
    joined: Expr | None = None
    empty: float = 0.0
    start: Expr | None = None
    step: Expr | None = None

    @property
    def symbol(self) -> Expr:
        """The component's value in expressions."""
        return symbol(self.name, self.axes)

    @property
    def elements(self) -> tuple[Expr, ...]:
        """What is asked of an element: its lift, and whether it takes part if not all do."""
        return (self.lift,) if self.mask is None else (self.lift, self.mask)

    @property
    def operands(self) -> tuple[Expr, ...]:
        """Lift, mask and count, as far as there are any."""
        return self.elements if self.count is None else (*self.elements, self.count)

    @property
    def nothing(self) -> float:
        """What it is where there is no element."""
        return MONOIDS[self.monoid].identity if self.joined is None else self.empty

    @property
    def fixed(self) -> bool:
        """Whether the component has no pivot: a new pivot leaves it as it is."""
        return self.rebase is self.symbol

    @property
    def takes_over(self) -> bool:
        """Whether a new pivot may make it another component: then nothing becomes nothing where the other one is nothing, too."""
        return self.rebase.op == "where" and any(arg.op == "symbol" and arg is not self.symbol for arg in self.rebase.args[1:])


@dataclass(frozen=True)
class Mean:
    """What makes a pivot p a mean: Σ w (x − p) / Σ w = 0.  `left` is the left side, `total` is Σ w over components.

    So p can be carried as it is, from equal means to the same mean exactly, instead of being divided anew each time.
    """

    left: Expr
    total: Expr


@dataclass(frozen=True)
class Pivot:
    """A loop-invariant value made of earlier results; `value` is over result symbols, parameters and sizes."""

    name: str
    value: Expr
    axes: tuple[str, ...]
    mean: Mean | None = None


@dataclass(frozen=True)
class Result:
    """d_i = `value`, over component and pivot symbols; where no element is in `mask`, the identity of `monoid`."""

    name: str
    value: Expr
    axes: tuple[str, ...]
    monoid: str = ""
    mask: Expr | None = None


@dataclass(frozen=True)
class Guard:
    """Where the reals and floats part: which operation is completed, how, and why that is right."""

    operation: str
    statement: str

    def __str__(self) -> str:
        return self.statement


@dataclass(frozen=True)
class Recurred:
    """What the result `name` rests on: its states, and the matrices over a semiring that follow their steps.

    One element moves functions of the states linearly: φ_k(`steps`) = ⊕_j `rows`[k][j] ⊗ φ_j, with φ the `basis`; the
    result is φ number `row`.  `entries` is the matrix of a part, over components.  Where a step sees the element before,
    `between` says what its terms are between two parts, and `begins` what they are at the first element of all.
    Where the states are fractions, the result is φ number `row` over φ number `below`, and `fractions` holds each state
    with its step as written and the fraction of other states that it is.  So it does where states are about centres, which
    are components: `moves` says what a state about the later part's centre (primed) is of that about the earlier part's, and
    `turned` what the functions of the basis then are.  Where the result is a function of φ number `row`,
    `reached` is what that comes to over the components.
    """

    name: str
    semiring: str
    starts: tuple[tuple[Expr, Expr], ...]
    steps: tuple[tuple[Expr, Expr], ...]
    basis: tuple[Expr, ...]
    rows: tuple[tuple[Expr, ...], ...]
    row: int
    entries: tuple[tuple[Expr, ...], ...]
    between: tuple[tuple[Expr, Expr], ...] = ()
    begins: tuple[tuple[Expr, Expr], ...] = ()
    below: int | None = None
    fractions: tuple[tuple[Expr, Expr, Expr], ...] = ()
    moves: tuple[tuple[Expr, Expr], ...] = ()
    turned: tuple[tuple[Expr, ...], ...] = ()
    reached: Expr | None = None


@dataclass(frozen=True)
class Clipped:
    """That the result `name` is a `state` which every element moves and keeps within bounds: h ← min(max(h + a, b), c).

    The `step` as it is written is that with (a, b, c) = `element`; `part` are those of a part, over components.
    """

    name: str
    state: Expr
    start: Expr
    step: Expr
    element: tuple[Expr, Expr, Expr]
    part: tuple[Expr, Expr, Expr]


PLACES = 600
"""By how many binary places the heaviest components of a scaling are moved at a time."""


@dataclass(frozen=True)
class Scaling:
    """Components c that may be multiplied by λ^w(c), all together and in every part of the axis by another λ > 0.

    A merge of parts then has the product of their λ, and no output sees it: where one is a logarithm, `exponent` names
    the component that counts log₂ λ.  `spread` are the axes of components along which λ is the same.  By powers of two
    nothing is rounded, so products of many elements stay within the range of floats.
    """

    weights: tuple[tuple[str, int], ...]
    spread: tuple[str, ...] = ()
    exponent: str = ""

    @property
    def shift(self) -> int:
        """log₂ λ, when the components are moved back towards 1."""
        return PLACES // max(weight for _, weight in self.weights)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that moves."""
        return (*(name for name, _ in self.weights), *filter(None, [self.exponent]))


@dataclass(frozen=True)
class FusedForm:
    """A cascade in one pass: state, pivots, results, outputs, and what makes it safe.

    `outputs` are over result symbols; those whose axes contain `axis` are maps and read the inputs again.
    `ranks` is R for each result: the components that move together with it, sums that are always 0 included.
    `trace` holds the questions that were asked of the e-graph, with their answers.
    `order` is "commutative", "ordered", or "online" where parts do not merge: a state only goes on from element to element.
    `recurrences` and `clips` say why an ordered state follows its steps, and `prefixes` which results the scans that maps see element by
    element have come to.  `scalings` say which components may be multiplied together.  `assumptions` are conditions the user
    did not declare but the form needs.
    """

    axis: str
    state: tuple[Component, ...]
    pivots: tuple[Pivot, ...]
    results: tuple[Result, ...]
    outputs: tuple[Expr, ...]
    guards: tuple[Guard, ...]
    facts: tuple[Fact, ...]
    ranks: dict[str, int]
    assumptions: tuple[Expr, ...] = ()
    order: str = "commutative"
    recurrences: tuple[Recurred, ...] = ()
    prefixes: tuple[tuple[Expr, tuple[str, ...]], ...] = ()
    scalings: tuple[Scaling, ...] = ()
    clips: tuple[Clipped, ...] = ()
    trace: tuple[Question, ...] = field(default=(), compare=False, repr=False)

    @property
    def words(self) -> int:
        """The number of components that a row carries; an accumulator with more axes counts as one."""
        return len(self.state)

    @property
    def merges(self) -> bool:
        """Whether the states of two parts make that of both."""
        return self.order != "online"

    @cached_property
    def laws(self) -> tuple[str, ...]:
        """The laws the form rests on: leaving out any one of them leaves some question without as good an answer."""
        return needed_laws(self.trace)

    @property
    def dangers(self) -> tuple[Fact, ...]:
        """The facts that warn: what may overflow, cancel or divide by 0."""
        return tuple(fact for fact in self.facts if fact.kind == "danger")

    @cached_property
    def definitions(self) -> dict[str, Expr]:
        """What pivots and results are, over components and one another, by name."""
        return {row.name: row.value for row in (*self.pivots, *self.results)}

    @cached_property
    def joins(self) -> dict[str, Expr]:
        """What joins two neighbouring parts of the ordered components, and of all that this reads or scales with, ordinary ones included."""
        joins = {component.name: component.joined for component in self.state if component.joined is not None}
        read = self._scaled.union(name.removesuffix(PRIME) for name in symbol_names(*joins.values()))
        plain = {c.name: call(STEPS[c.monoid], c.symbol, primed(c.symbol)) for c in self.state if c.name in read - joins.keys()}
        return joins | plain

    @property
    def from_empty(self) -> bool:
        """Whether recurrences start from the state of no elements, so that the first element is a step like any other."""
        zero = lambda start, semiring: start.op == "const" and start.value == SEMIRINGS[semiring].zero
        return all(not each.between and each.below is None and all(zero(start, each.semiring) for _, start in each.starts)
                   for each in self.recurrences)

    @cached_property
    def steps(self) -> dict[str, Expr]:
        """What an element makes of each component of an online form, over states with the components' names."""
        states = {c.symbol: Expr("state", (), (c.name, c.axes)) for c in self.state}
        return {c.name: substitute(c.step, states) for c in self.state}

    @cached_property
    def joined_names(self) -> frozenset[str]:
        """The components that parts hold as `joins` makes them of their elements, one after the other."""
        return self._scaled.union(component.name for component in self.state if component.joined is not None)

    @property
    def _scaled(self) -> frozenset[str]:
        return frozenset(name for scaling in self.scalings for name in scaling.names)

    @cached_property
    def symbol_axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of every symbol, new pivots included, in the order in which expressions name them."""
        axes = {row.name: row.axes for row in (*self.pivots, *self.results)}
        axes |= {name + PRIME: own for name, own in axes.items()}
        for component in self.state:
            axes[component.name] = axes[component.name + WON] = component.axes
        return axes

    @cached_property
    def axis_copies(self) -> dict[str, str]:
        """Axes next to the axis they copy, copy → axis: those the formulas contract over, and the reduced one at its final length."""
        formulas = [expr for c in self.state for expr in (c.rebase, *c.elements)]
        terms = subterms(*formulas, *self.definitions.values())
        axes = dict.fromkeys(axis for term in terms for axis in ((term.axis,) if term.op == "size" else term.axes))
        return {axis: copied_axis(axis) for axis in axes if copied_axis(axis) != axis}

    @property
    def length_given(self) -> bool:
        """Whether the final length of the axis must be known before the sweep: elements see the size of a copy of it."""
        return self.axis in self.axis_copies.values()

    def lengths(self, final: int) -> dict[str, int]:
        """The sizes that follow from the final length: those of the axis and of the copies that stand for all of it."""
        return {self.axis: final} | {copy: final for copy, axis in self.axis_copies.items() if axis == self.axis}

    def component(self, name: str) -> Component:
        """The component of that name.  Raises KeyError."""
        return {component.name: component for component in self.state}[name]

    @property
    def update(self) -> str:
        """What one more element does to the state, in plain mathematics: `s' = s·exp(m − m') + exp(x[l] − m')`."""
        return update_text(self)

    @property
    def merge(self) -> str:
        """What two states a and b make together, in plain mathematics."""
        return merge_text(self)

    def __str__(self) -> str:
        return form_text(self)

    __repr__ = __str__

    def _repr_latex_(self) -> str:
        return f"$${form_latex(self)}$$"

    def _repr_markdown_(self) -> str:
        return form_markdown(self)
