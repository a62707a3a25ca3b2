"""Cascades: the reductions of an operator grouped by axis and put in order.

In: expressions with reductions in any writing order.  Out: one `Cascade` per axis that is reduced in its own
right, inner ones first.  A reduction over another axis that only feeds the elements of a cascade (a contraction
such as Σ_k Q·K) is a producer: part of the element, not a cascade.
"""
from __future__ import annotations

from dataclasses import dataclass

from redfuser_algebra.algebra.monoids import WON
from redfuser_algebra.language.display import cascade_html
from redfuser_algebra.language.expr import Expr, substitute, subterms, symbol, unbound_states
from redfuser_algebra.language.mathematics import cascade_text
from redfuser_algebra.language.names import unused
from redfuser_algebra.language.operator import Operator

STEMS = {"sum": "s", "prod": "q", "max": "m", "min": "n", "argmax": "i", "argmin": "j", "topk": "top",
            "argtopk": "pos", "any": "some", "all": "every", "compose": "h"}

MAIN = "l"
"""The axis that is reduced, by convention: one of this name is always a cascade of its own."""


@dataclass(frozen=True)
class Reduction:
    """d = ⊕_l F(x_l; p): `body` is F, over inputs and the symbols of earlier results; so are `mask` and `count`."""

    name: str
    monoid: str
    body: Expr
    mask: Expr | None
    count: Expr | None
    source: Expr

    @property
    def symbol(self) -> Expr:
        """What later reductions and the epilogue call this result."""
        return symbol(self.name, self.source.axes)

    @property
    def stated(self) -> Expr:
        """The reduction over the symbols of earlier results."""
        return self.body if self.monoid == "compose" else Expr("reduce", self.operands, self.source.attrs)

    @property
    def elements(self) -> tuple[Expr, ...]:
        """What is asked of an element: F, and whether it takes part if not all do."""
        return self.operands[:1 if self.mask is None else 2]

    @property
    def operands(self) -> tuple[Expr, ...]:
        """Body, mask and count, as far as there are any."""
        return tuple(part for part in (self.body, self.mask, self.count) if part is not None)


@dataclass(frozen=True)
class Cascade:
    """Reductions over one axis, each allowed to use the results of earlier ones, then the outputs made of them.

    `outputs` holds the epilogue (over result symbols) and the maps (outputs that keep the axis).  `depth` is the
    longest chain of reductions that wait for each other: the number of passes without fusion.
    """

    axis: str
    reductions: tuple[Reduction, ...]
    outputs: tuple[Expr, ...]
    depth: int

    @property
    def maps(self) -> tuple[Expr, ...]:
        """The outputs that keep the axis."""
        return tuple(output for output in self.outputs if self.axis in output.axes)

    def __str__(self) -> str:
        return cascade_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return cascade_html(self)


def cascades(operator: Operator) -> tuple[Cascade, ...]:
    """The cascades of an operator, inner ones first; none for an operator without reductions.  One element is no sweep."""
    terms = subterms(*operator.outputs)
    reductions = [*filter(_reduces, terms), *final_states(operator.outputs)]
    axes = dict.fromkeys(term.axis for term in reductions)
    long = [axis for axis in axes if operator.lengths.get(axis) != 1] or list(axes)
    own = [axis for axis in long if axis == MAIN or not _feeds_only(axis, reductions, terms, operator.outputs)]
    return tuple(cascade_over(axis, operator) for axis in own)


def _reduces(term: Expr) -> bool:
    """Whether a term is the result of a reduction, and not part of a scan's step."""
    return (term.op == "reduce" or term.op == "scan" and not term.attrs[3]) and not unbound_states(term)


def final_states(outputs: tuple[Expr, ...]) -> list[Expr]:
    """The last states of the scans that outputs see element by element: a map goes on from them in the next chunk."""
    inside = [term for output in outputs for term in seen_by_element(output)]
    return list(dict.fromkeys(final for scan in inside for final in last_states(scan).values()))


def seen_by_element(term: Expr) -> list[Expr]:
    """The scans that a term sees at every element, outside of reductions over their axis, each after those that it sees itself."""
    if term.op == "scan" and not term.attrs[3]:
        return []
    inside = [scan for arg in term.args for scan in seen_by_element(arg) if term.op != "reduce" or scan.axis != term.axis]
    return [*inside, term] if term.op == "scan" and not unbound_states(term) else inside


def last_states(scan: Expr) -> dict[str, Expr]:
    """The last state of each name of a scan."""
    axis, names, *_ = scan.attrs
    return {name: Expr("scan", scan.args, (axis, names, place, "")) for place, name in enumerate(names)}


def primary(found: tuple[Cascade, ...]) -> Cascade:
    """The cascade an operator is about: over the axis called l; otherwise the deepest, with most reductions, inner."""
    return max(found, key=lambda cascade: (cascade.axis == MAIN, cascade.depth, len(cascade.reductions)))


def paired(operator: Operator, axis: str) -> tuple[str, str] | None:
    """An input, and its second reading, whose pairs of elements along `axis` are all reduced; None if there is none.

    Over two arrays that is a sweep of one while the other stays; elements of one array have met only those before them.
    """
    reductions = [term for term in subterms(*operator.outputs) if _reduces(term)]
    for copy, source in operator.again.items():
        pair = set(operator.inputs[source]) ^ set(operator.inputs[copy])
        if len(pair) == 2 and axis in pair and any(_sums_pairs(term, pair) for term in reductions):
            return source, copy
    return None


def _sums_pairs(term: Expr, pair: set[str]) -> bool:
    """Whether a reduction over one axis of a pair is of reductions over the other that vary along both."""
    return any(_reduces(part) and {term.axis, part.axis} == pair <= {axis for arg in part.args for axis in arg.axes}
               for part in subterms(*term.args))


def cascade_over(axis: str, operator: Operator) -> Cascade:
    """The reductions over `axis`, named and in order, with the outputs over their results."""
    kept = [scan for scan in final_states(operator.outputs) if scan.axis == axis]
    terms = [term for term in subterms(*operator.outputs, *kept) if _reduces(term) and term.axis == axis]
    taken = {*operator.inputs, *operator.params, *operator.axes}
    results: dict[Expr, Expr] = {}
    found = []
    for term in terms:
        name = _fresh(STEMS.get(term.monoid, "d"), taken)
        inner = [None if part is None else substitute(part, results) for part in (term.body, term.mask, term.count)]
        found.append(Reduction(name, term.monoid, *inner, source=term))
        results[term] = found[-1].symbol
    outputs = tuple(substitute(output, results) for output in operator.outputs)
    return Cascade(axis, tuple(found), outputs, _depth(found))


def _fresh(letter: str, taken: set[str]) -> str:
    name = unused(letter, {*taken, *(name.removesuffix(WON) for name in taken)})
    taken.add(name)
    return name


def _depth(reductions: list[Reduction]) -> int:
    depths: dict[str, int] = {}
    for reduction in reductions:
        parts = [*reduction.elements]
        used = [term.name for term in subterms(*parts) if term.op == "symbol"]
        depths[reduction.name] = 1 + max((depths[name] for name in used), default=0)
    return max(depths.values(), default=0)


def _feeds_only(axis: str, reductions: list[Expr], terms: list[Expr], outputs: tuple[Expr, ...]) -> bool:
    """Whether the reductions over `axis` are producers: independent, and seen only inside elements of other axes."""
    group = {term for term in reductions if term.axis == axis}
    if [term for term in group if group.intersection(subterms(*term.args)) ]:
        return False
    return not _escapes(group, reductions, outputs)


def _escapes(group: set[Expr], reductions: list[Expr], outputs: tuple[Expr, ...]) -> bool:
    """Whether some term of the group reaches an output without passing an element that varies with it."""
    absorbing = {term for term in reductions if term not in group}
    seen: set[Expr] = set()
    todo = list(outputs)
    while todo:
        term = todo.pop()
        if term in seen:
            continue
        seen.add(term)
        if term in group:
            return True
        if term in absorbing and _varies_inside(group, term):
            continue
        todo.extend(term.args)
    return False


def _varies_inside(group: set[Expr], reduction: Expr) -> bool:
    inside = [term for term in subterms(*reduction.args) if term in group]
    return inside != [] and [term for term in inside if reduction.axis not in term.axes] == []
