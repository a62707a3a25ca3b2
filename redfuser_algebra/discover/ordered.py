"""From a recurrence to the matrices of its parts: what one element gives, and what two neighbouring parts make.

In: a recurrence.  Out: `Matrices`, or NotClosed with the step that no finite set of functions of the state follows.  A
step that also sees the element before (a state that every element replaces) is a matrix once both are known: a part
then keeps its first element and its last, and the step between two parts is taken when they meet.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

from redfuser_algebra.algebra.semirings import SEMIRINGS, Semiring
from redfuser_algebra.discover.centred import Centre, Centred, centred
from redfuser_algebra.discover.polynomials import Algebra, Closed, Monomial, NotClosed, Polynomial, closed, factors, folded, multiplied
from redfuser_algebra.discover.recurrence import Recurrence
from redfuser_algebra.discover.simplify import is_number
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, substitute, subterms, symbol, unbound_states

Place = tuple[int, int]
Entries = dict[Place, Expr]
"""A matrix by row and column; what is missing is zero."""

Named = Callable[[Place], Expr]


@dataclass(frozen=True)
class Window:
    """What a part keeps of its ends, where a step sees the element before: names in the step → what they hold.

    `last` are the states that every element replaces, with what it replaces them by and where they start; `first` is
    what a step takes of its own element.
    """

    last: dict[Expr, tuple[Expr, Expr]] = field(default_factory=dict)
    first: dict[Expr, Expr] = field(default_factory=dict)


@dataclass(frozen=True)
class Matrices:
    """The matrices of parts: `step` is that of one element, `carried` are the entries that differ between parts.

    `fixed` entries are the same for all.  `window` is there where a step takes place between two elements, `about` where
    every part has a centre of its own; `turned` then makes functions of states about the earlier centre those about the later one.
    """

    axis: str
    found: Recurrence
    steps: dict[Expr, Expr]
    closed: Closed
    step: Entries
    carried: tuple[Place, ...]
    fixed: Entries
    derived: tuple[int, ...] = ()
    window: Window | None = None
    about: Centred | None = None
    turned: Entries = field(default_factory=dict)

    @property
    def semiring(self) -> Semiring:
        """What the entries are added and multiplied with."""
        return self.closed.semiring

    @property
    def words(self) -> int:
        """How many numbers a part carries."""
        return len(self.carried) + (0 if self.window is None else len(self.window.last) + len(self.window.first))

    @property
    def lifts(self) -> Entries:
        """The matrix of a part of one element: its step, or nothing yet where that waits for the element before."""
        if self.window is not None:
            return _unit(self.closed)
        if self.about is None:
            return self.step
        return {place: _tidy(substitute(entry, self.about.of_first)) for place, entry in self.step.items()}

    def named(self, name: Named) -> Entries:
        """The matrix of a part whose carried entries have these names; rows of products follow from those of their factors."""
        own = self.fixed | {place: name(place) for place in self.carried}
        basis, places = self.closed.basis, {monomial: j for j, monomial in enumerate(self.closed.basis)}
        rows = {monomial: {basis[j]: entry for (row, j), entry in own.items() if row == k} for k, monomial in enumerate(basis)}
        return own | {(k, places[m]): entry for k in self.derived for m, entry in self._multiplied(k, rows).items()}

    def _multiplied(self, k: int, rows: dict[Monomial, Polynomial]) -> Polynomial:
        algebra = Algebra(self.semiring)
        return reduce(algebra.multiplied, (rows[factor] for factor in factors(self.closed.basis[k])))

    def joined(self, earlier: Named, later: Named, between: Mapping[Expr, Expr]) -> Entries:
        """The matrix of two neighbouring parts; `between` gives names to what the step between them sees."""
        parts = [self.named(later), self.named(earlier)]
        if self.window is not None:
            parts.insert(1, _substituted(self.step, between))
        if self.about is not None:
            parts = [_substituted(self.turned, self.about.swapped), parts[0], self.turned, parts[1]]
        made = reduce(lambda a, b: _product(self.closed, a, b), parts)
        return made if self.about is None else self._with_steady(made)

    def _with_steady(self, made: Entries) -> Entries:
        """Entries in which the functions of what no element changes stay as they are: about another centre, no element changes them either."""
        steady = {k for k, monomial in enumerate(self.closed.basis) if all(self.steps[state] is state for state, _ in monomial)}
        return {place: entry for place, entry in made.items() if place[0] not in steady} | {(k, k): const(self.semiring.one) for k in steady}

    def row(self, found: Recurrence) -> int | None:
        """The row of the target of a recurrence whose states are among these; None for others."""
        if not (self.found if self.about is None else self.about.of).holds(found):
            return None
        return {monomial: k for k, monomial in enumerate(self.closed.basis)}.get(((found.target, 1),))

    def read(self, k: int, name: Named, first: Mapping[Expr, Expr], below: int | None = None) -> Expr:
        """The k-th monomial after a part, from where the recurrence starts, or what it is over number `below`, which starts at 1.

        `first` names what the part keeps of its first element.
        """
        whole = self.named(name)
        if self.window is not None:
            starts = {state: start for state, (_, start) in self.window.last.items()}
            whole = _product(self.closed, whole, _substituted(self.step, starts | dict(first)))
        value, *divisors = (self._combined(whole, row) for row in (k, below) if row is not None)
        value = reduce(lambda above, divisor: above / divisor, divisors, value)
        waits = first_taken(Algebra(self.semiring).written(self.closed.basis[k]), self.found.steps, self.axis) if below is None else 0
        if waits and any(start.op != "const" for start in self.found.starts.values()):
            return call("where", call("less_equal", Expr("size", (), (self.axis,)), waits), self._start(k), value)
        if self.window is None and self._starts(k, whole) and (below is None or (below, below) in whole):
            return value
        return call("where", call("equal", Expr("size", (), (self.axis,)), 0), self._start(k), value)

    def _starts(self, k: int, whole: Entries) -> bool:
        """Whether a part of no elements has what the k-th monomial starts from: its entry on the diagonal, or zero."""
        return (k, k) in whole or is_number(self._start(k), self.semiring.zero)

    def _combined(self, whole: Entries, k: int) -> Expr:
        """⊕_j of the k-th row times what the monomials start from."""
        algebra = Algebra(self.semiring)
        return reduce(algebra.plus, (algebra.times(whole.get((k, j), algebra.zero), self._start(j)) for j in range(len(self.closed.basis))))

    def _start(self, j: int) -> Expr:
        algebra = Algebra(self.semiring)
        starts = ((self.found.starts[state], power) for state, power in self.closed.basis[j])
        return algebra.product([factor for start, power in starts for factor in [start if power > 0 else folded(-start)] * abs(power)])

    def axes(self) -> dict[Place, tuple[str, ...]]:
        """The axes of every carried entry."""
        axis = self.axis
        own = {place: symbol("entry", tuple(a for a in entry.axes if a != axis)) for place, entry in self.step.items()}
        whole = {place: own.get(place, const(0)) for place in self.carried}
        while True:
            made = self.joined(lambda place: whole[place], lambda place: whole[place], {})
            grown = {place: symbol("entry", tuple(dict.fromkeys(a for a in (*whole[place].axes, *made[place].axes) if a != axis)))
                     if place in made else whole[place] for place in self.carried}
            if [e.axes for e in grown.values()] == [e.axes for e in whole.values()]:
                return {place: entry.axes for place, entry in whole.items()}
            whole = grown


def matrices(found: Recurrence, axis: str, also: tuple[Expr, ...] = ()) -> Matrices:
    """The smallest matrices of a recurrence, over a semiring in which its step is linear, with rows for `also`.  Raises NotClosed.

    What multiplies states would take a step apart, as (x − y)² into x² − 2xy + y², of which floats lose the small difference:
    where fewer products do, a step between two elements is kept as it is written.
    """
    refusals, made = [], []
    window = _window(found, axis)
    for steps in (found.steps, *([window] if window else [])):
        for semiring in SEMIRINGS.values():
            try:
                made.append(_of(found, steps, closed(steps, (found.target, *also), semiring), axis))
            except NotClosed as refusal:
                refusals.append(refusal)
    if not made:
        raise refusals[0]
    return min(made, key=lambda each: (max(len(factors(m)) for m in each.closed.basis), each.words))


def first_taken(state: Expr, steps: Mapping[Expr, Expr], axis: str) -> int:
    """How many elements leave a state as it starts, come what may: with 0/0 for a mean, 0 of none would be NaN."""
    step = steps.get(state)
    if step is not None and step.op == "where" and step.args[2] is state and step.args[0].op == "greater_equal":
        place, bound = step.args[0].args
        if place is Expr("index", (), (axis,)) and bound.op == "const":
            return bound.value
    return 0


def about_centres(found: Recurrence, axis: str, centre: Centre) -> Matrices | None:
    """The matrices of a recurrence about centres; None where there are none.  Raises NotClosed."""
    about = centred(found, axis, centre)
    if about is None:
        return None
    over = closed(about.found.steps, (about.found.target,), SEMIRINGS["sum-product"])
    return _of(about.found, about.found.steps, over, axis, about)


def _window(found: Recurrence, axis: str) -> dict[Expr, Expr] | None:
    """The steps of the other states, with symbols for the states that every element replaces; None if there are none."""
    replaced = {state: _before(state) for state, step in found.steps.items()
                if state is not found.target and not unbound_states(step) and axis in step.axes}
    return {state: substitute(step, replaced) for state, step in found.steps.items() if state not in replaced} if replaced else None


def _before(state: Expr) -> Expr:
    return symbol(f"{state.name} before", state.axes)


def _of(found: Recurrence, steps: dict[Expr, Expr], over: Closed, axis: str, about: Centred | None = None) -> Matrices:
    step: Entries = {(k, j): entry for k, row in enumerate(over.rows) for j, entry in row.items()}
    window = None
    if steps is not found.steps:
        first: dict[Expr, Expr] = {}
        step = {place: _with_first(entry, axis, first) for place, entry in step.items()}
        seen = {term for entry in step.values() for term in subterms(entry) if term.op == "symbol"}
        last = {_before(state): (found.steps[state], found.starts[state]) for state in found.steps if _before(state) in seen}
        window = Window(last, {name: element for element, name in first.items()})
    derived, turned = _derived(over), {} if about is None else _turned(over, about.moves)
    lifts = Matrices(axis, found, steps, over, step, (), {}, window=window, about=about).lifts
    own = {place: entry for place, entry in lifts.items() if place[0] not in derived}
    fixed = {place: entry for place, entry in own.items() if is_number(entry, over.semiring.one)}
    carried = set(own) - set(fixed)
    while True:
        made = Matrices(axis, found, steps, over, step, tuple(sorted(carried)), fixed, derived, window, about, turned)
        whole = made.named(lambda place: symbol("entry"))
        joined = made.joined(lambda place: symbol("entry"), lambda place: symbol("entry"), {})
        changed = {place for place in {*whole, *joined} if place not in carried and place[0] not in derived
                   and whole.get(place) is not joined.get(place)}
        if not changed:
            return made
        carried |= changed
        fixed = {place: entry for place, entry in fixed.items() if place not in changed}


def _turned(over: Closed, moves: Mapping[Expr, Expr]) -> Entries:
    """What functions of states about one centre are, of those about another.  Raises NotClosed."""
    algebra, places, turned = Algebra(over.semiring), {monomial: j for j, monomial in enumerate(over.basis)}, {}
    for k, monomial in enumerate(over.basis):
        for other, factor in algebra.of(substitute(algebra.written(monomial), dict(moves))).items():
            if other not in places:
                raise NotClosed(algebra.written(other), "about another centre there is another function of the state")
            turned[k, places[other]] = factor
    return turned


def _tidy(term: Expr) -> Expr:
    """A term with numbers computed with."""
    algebra, args = Algebra(SEMIRINGS["sum-product"]), tuple(map(_tidy, term.args))
    if term.op == "subtract":
        return algebra.plus(args[0], folded(-args[1]))
    if term.op in ("add", "multiply"):
        return (algebra.plus if term.op == "add" else algebra.times)(*args)
    if term.op == "where" and args[1] is args[2]:
        return args[1]
    return folded(children_replaced(term, args)) if term.op == "negative" else children_replaced(term, args)


def _derived(over: Closed) -> tuple[int, ...]:
    """The monomials that are products of others, all of which are there, as are all products of what these become."""
    single = {m: {over.basis[j] for j in over.rows[k]} for k, m in enumerate(over.basis) if len(factors(m)) == 1}
    while True:
        grown = {m: row.union(*(single.get(each, set()) for each in row)) for m, row in single.items()}
        if grown == single:
            break
        single = grown
    known = set(over.basis)
    return tuple(k for k, m in enumerate(over.basis) if len(factors(m)) > 1 and all(f in single for f in factors(m))
                 and {multiplied(*each) for each in product(*(single[f] | {f} for f in factors(m)))} <= known)


def _with_first(term: Expr, axis: str, first: dict[Expr, Expr]) -> Expr:
    """A step with its largest parts that see its own element alone as symbols; `first` has them."""
    if axis not in term.axes:
        return term
    if not any(part.op == "symbol" for part in subterms(term)):
        return first.setdefault(term, symbol(f"first {len(first)}", tuple(a for a in term.axes if a != axis)))
    return children_replaced(term, tuple(_with_first(arg, axis, first) for arg in term.args))


def _unit(over: Closed) -> Entries:
    return {(k, k): const(over.semiring.one) for k in range(len(over.basis))}


def _substituted(entries: Entries, names: Mapping[Expr, Expr]) -> Entries:
    return {place: substitute(entry, dict(names)) for place, entry in entries.items()}


def _product(over: Closed, a: Entries, b: Entries) -> Entries:
    """⊕_i a_ki ⊗ b_ij, without zeros."""
    algebra, size = Algebra(over.semiring), range(len(over.basis))
    found = {(k, j): reduce(algebra.plus, (algebra.times(a.get((k, i), algebra.zero), b.get((i, j), algebra.zero)) for i in size))
             for k in size for j in size}
    return {place: entry for place, entry in found.items() if not is_number(entry, over.semiring.zero)}
