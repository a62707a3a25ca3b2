"""From what the search found to the fused form: names, guards and facts.

In: a finished Search.  Out: a FusedForm whose names are unique, whose guards are those its formulas contain, and
whose facts are derived, not assumed.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.algebra.semirings import SEMIRINGS
from redfuser_algebra.discover.decode import times
from redfuser_algebra.discover.draft import Draft
from redfuser_algebra.discover.facts import NEGATIVE, NONNEGATIVE, NONPOSITIVE, POSITIVE, Fact, Facts
from redfuser_algebra.discover.form import Component, FusedForm, Guard, Mean, Pivot, Recurred, Result
from redfuser_algebra.discover.nonnegative import cancelling, never_below_zero
from redfuser_algebra.discover.search import Search
from redfuser_algebra.discover.simplify import operands
from redfuser_algebra.language.cascade import Cascade, last_states, seen_by_element
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.mathematics import mathematics
from redfuser_algebra.language.names import PRIME, numbered, pivots_moved, primed, stem, symbol_names
from redfuser_algebra.language.tidy import tidied

_LETTERS = {"sum": "s", "prod": "q", "max": "m", "min": "n", "argmax": "i", "argmin": "j", "topk": "top",
            "argtopk": "pos", "any": "some", "all": "every", "fmax": "high", "fmin": "low", "compose": "h"}

_GUARDS = (
    ("anchor", "a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged"),
    ("ratio", "p / p′ is 1 where p = p′, also at 0 and inf, so that rescaling a state to its own pivot changes nothing"),
    ("scaled", "x / p is 0 where p = 0: |x| ≤ p leaves only x = 0"),
    ("scale", "a sum that is 0 stays 0 under any factor, so an empty part stays empty"),
    ("where", "an element or state that does not take part is left out, not multiplied by 0"),
)


def said(term: Expr) -> str:
    """A term in mathematics, without what guards it."""
    return mathematics(tidied(term))


def built(search: Search) -> FusedForm:
    """The fused form of a finished search."""
    drafts, doubles = _without_doubles(search.drafts)
    names = _final_names(search, drafts)
    names |= {plain: names[indexed] + WON for plain, indexed in doubles.items()}
    rename = _Renaming(names).expr
    for draft in drafts:
        draft.lift = rename(draft.lift)
    search.pivots.values.update({name: rename(value) for name, value in search.pivots.values.items()})
    state = tuple(
        Component(names[d.name], d.monoid, _anchored(d.lift), d.mask, d.count, d.axes,
                  _anchored(rename(d.rebase)), None if d.joined is None else rename(d.joined), d.empty) for d in drafts)
    length = {Expr("size", (), (search.axis,)): component.symbol for component in state
              if component.lift is const(1) and component.mask is None and component.monoid == "sum"}
    values = {name: substitute(value, length) for name, value in _pivots(search)}
    pivots = tuple(Pivot(name, value, value.axes, _mean(symbol(name, value.axes), value, state, search.facts))
                   for name, value in values.items())
    results = tuple(Result(r.name, rename(search.results[r.name]), r.source.axes, r.monoid, search.masks.get(r.name, r.mask))
                    for r in search.cascade.reductions)
    facts = tuple(dict.fromkeys(_facts(search, state, results)))
    if search.settings.prefer != "raw":
        low = set(cancelling(search.cascade, results, state, search.facts))
        results = tuple(never_below_zero(result) if result.name in low else result for result in results)
    return FusedForm(
        axis=search.axis, state=_in_merge_order(state, pivots, results), pivots=pivots, results=results, outputs=search.cascade.outputs,
        guards=tuple(_guards(state, search.axis)), facts=facts, ranks=dict(search.ranks), order=_order_of_parts(state),
        recurrences=tuple(_renamed(each, rename) for each in search.recurrences),
        clips=tuple(replace(each, part=tuple(map(rename, each.part))) for each in search.clips), prefixes=tuple(prefixes(search.cascade)), trace=tuple(search.questions))


def _mean(pivot: Expr, value: Expr, state: tuple[Component, ...], facts: Facts) -> Mean | None:
    """What makes a pivot s / W the mean of x: s is kept as Σ w x and W as Σ w ≥ 0, over the same elements; None if it is none.

    Weights of any sign may cancel in a part, whose mean is then far from everything: such are divided anew.
    """
    sums = {component.name: component for component in state if component.monoid == "sum" and component.fixed}
    above, below = (sums.get(part.name) if part.op == "symbol" else None for part in (*value.args, value, value)[:2])
    if value.op != "divide" or above is None or (below is None and value.args[1].op != "size"):
        return None
    weight, mask = (const(1), None) if below is None else (below.lift, below.mask)
    factors = operands(above.lift, "multiply")
    at = next((place for place, factor in enumerate(factors) if factor is weight), None)
    rest = factors if weight is const(1) else [] if at is None else factors[:at] + factors[at + 1:]
    if mask is not above.mask or not rest or facts.under(mask).sign(weight) not in (POSITIVE, NONNEGATIVE):
        return None
    left = times(weight, call("subtract", reduce(lambda a, b: a * b, rest), pivot))
    return Mean(Expr("reduce", (left,) if mask is None else (left, mask), ("sum", facts.axis, "")) / value.args[1], value.args[1])


def _renamed(recurred: Recurred, rename: Callable[[Expr], Expr]) -> Recurred:
    """A record over the final names of components."""
    rows = {name: tuple(tuple(map(rename, row)) for row in getattr(recurred, name)) for name in ("rows", "entries", "turned", "fractions")}
    pairs = {name: tuple((key, rename(value)) for key, value in getattr(recurred, name)) for name in ("starts", "steps", "between", "begins", "moves")}
    return replace(recurred, **rows, **pairs, reached=None if recurred.reached is None else rename(recurred.reached))


def prefixes(cascade: Cascade) -> Iterator[tuple[Expr, tuple[str, ...]]]:
    """The scans that outputs see at every element, and the results that their states have come to."""
    names = {reduction.body: reduction.name for reduction in cascade.reductions}
    for scan in dict.fromkeys(scan for output in cascade.outputs for scan in seen_by_element(output) if scan.axis == cascade.axis):
        yield scan, tuple(names[final] for final in last_states(scan).values())


def _order_of_parts(state: tuple[Component, ...]) -> str:
    return "commutative" if all(MONOIDS[component.monoid].commutative for component in state) else "ordered"


def _in_merge_order(state: tuple[Component, ...], pivots: tuple[Pivot, ...], results: tuple[Result, ...]
                    ) -> tuple[Component, ...]:
    """The components, each after those that its pivots are made of."""
    values = {row.name: row.value for row in (*results, *pivots)}
    components = {component.name: component for component in state}
    ordered: dict[str, Component] = {}

    def place(component: Component) -> None:
        if component.name in ordered:
            return
        moving = map(symbol, pivots_moved(component.rebase))
        for name in _read(values, *moving, component.lift, component.mask):
            if name in components and name != component.name:
                place(components[name])
        ordered[component.name] = component

    for component in state:
        place(component)
    return tuple(ordered.values())


def _read(values: dict[str, Expr], *exprs: Expr | None) -> list[str]:
    """The names of the components that expressions depend on, through results and pivots."""
    found: dict[str, None] = {}
    todo = list(map(stem, symbol_names(*exprs)))
    while todo:
        name = todo.pop(0)
        if name not in found:
            found[name] = None
            todo += map(stem, symbol_names(values.get(name)))
    return list(found)


def _pivots(search: Search) -> list[tuple[str, Expr]]:
    read = symbol_names(*(expr for draft in search.drafts for expr in (draft.lift, draft.rebase)), *search.results.values())
    used = {name.removesuffix(PRIME) for name in read}
    return [(name, value) for name, value in search.pivots.values.items() if name in used]


def _without_doubles(drafts: list[Draft]) -> tuple[list[Draft], dict[str, str]]:
    """Positions come with the values they won with: a max next to the argmax of the same elements is not kept twice."""
    indexed = {(d.monoid, d.lift, d.mask, d.count, d.axes): d
               for d in drafts if MONOIDS[d.monoid].indexed and d.rebase is d.symbol}
    doubles = {d.name: indexed[key].name
               for d in drafts if (key := (f"arg{d.monoid}", d.lift, d.mask, d.count, d.axes)) in indexed}
    taken_over = {indexed_name: plain for plain, indexed_name in doubles.items()}
    by_name = {d.name: d for d in drafts}
    first = {min(name, plain, key=list(by_name).index): by_name[name] for name, plain in taken_over.items()}
    kept = [first.get(d.name, d) for d in drafts if d.name in first or d.name not in (*doubles, *taken_over)]
    return kept, doubles


def _final_names(search: Search, drafts: list[Draft]) -> dict[str, str]:
    """A component that is a result has the result's name; N is the length; others get a letter and a number."""
    names = {value.name: result for result, value in reversed(search.results.items()) if value.op == "symbol"}
    taken = search.taken
    for draft in drafts:
        if draft.name not in names:
            names[draft.name] = _fresh(draft, taken)
        taken.add(names[draft.name])
    return {draft.name: names[draft.name] for draft in drafts}


def _fresh(draft: Draft, taken: set[str]) -> str:
    if draft.monoid == "sum" and draft.lift is const(1) and draft.mask is None and "N" not in taken:
        return "N"
    return next(numbered(_LETTERS.get(draft.monoid, "d"), {*taken, *(name.removesuffix(WON) for name in taken)}))


class _Renaming:
    """Provisional component names to final ones, whatever axes a symbol carries."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def expr(self, expr: Expr) -> Expr:
        """`expr` with every provisional symbol renamed."""
        found = {term: symbol(self.names[name] + term.name[len(name):], term.axes)
                 for term in subterms(expr) if term.op == "symbol" and (name := term.name.removesuffix(PRIME)) in self.names}
        return substitute(expr, found)


def _anchored(expr: Expr) -> Expr:
    """`expr` with every shift from or to a pivot taken about the pivot's anchor, which is finite in every part."""
    def anchor(term: Expr) -> Expr:
        return call("anchor", term) if term.op == "symbol" else term

    return substitute(expr, {term: call("shift", *map(anchor, term.args)) for term in subterms(expr) if term.op == "shift"})


def _guards(state: tuple[Component, ...], axis: str) -> Iterator[Guard]:
    formulas = [expr for component in state for expr in (component.lift, component.rebase)]
    used = {term.op for term in subterms(*formulas)}
    elements = subterms(*formulas, *(component.mask for component in state if component.mask is not None))
    if any(term.op == "size" and copied_axis(term.axis) == axis != term.axis for term in elements):
        yield Guard("size", f"the length of {axis} is known before the sweep: elements take part by it from the first one on")
    for operation, statement in _GUARDS:
        if operation in used:
            yield Guard(operation, statement)
    if used & {"shift", "ratio"}:
        yield Guard("finalize", "a pivot that ends at ±inf or 0 gives what the formula as written gives there")


def _facts(search: Search, state: tuple[Component, ...], results: tuple[Result, ...]) -> Iterator[Fact]:
    yield from _order_facts(search)
    for component in state:
        facts = search.facts.under(component.mask)
        yield from _exponent_facts(component, facts, search.settings.prefer == "raw")
        if component.monoid == "sum" and facts.sign(component.lift) in ("nonnegative", "positive"):
            yield _related("sign", component.symbol, "≥", const(0))
    yield from _positions(search)
    yield from _divisors(search, results)
    yield from _cancellations(search, results)
    yield from _uncentred(search)
    yield from _infinite_elements(search)
    yield from _infinite_moves(search)
    for weight in search.weights:
        yield Fact("domain", f"an element whose {said(weight)} only underflows takes part: where it is infinite, it shows")



def _order_facts(search: Search) -> Iterator[Fact]:
    for draft in search.drafts:
        facts = search.facts.under(draft.mask)
        for term in subterms(draft.lift):
            if term.op in ("shift", "scaled", "equal") and term.args[1].op == "symbol":
                a, p = term.args
                yield from _order(facts, a, p, term.op)


def _order(facts: Facts, a: Expr, p: Expr, meets: str) -> Iterator[Fact]:
    if facts.below(a, p):
        yield _related("order", a, "≤", p)
    elif facts.above(a, p):
        yield _related("order", a, "≥", p)
    elif meets == "scaled":
        stated = f"|{said(a)}| is at most a fixed multiple of {said(p)}" if facts.bounded(a, p) else f"{said(p)} is 0 only where every {said(a)} is"
        yield Fact("order", stated, (a, "bounded", p))
    motion = facts.motion(p)
    if motion:
        yield _related("motion", p, "≤" if motion == POSITIVE else "≥", primed(p))


def _related(kind: str, left: Expr, relation: str, right: Expr, why: str = "") -> Fact:
    return Fact(kind, f"{said(left)} {relation} {said(right)}{why}", (left, relation, right))


def _exponent_facts(component: Component, facts: Facts, raw: bool) -> Iterator[Fact]:
    for term in subterms(component.lift):
        if term.op in ("exp", "exp2") and facts.axis in term.axes:
            if facts.sign(term.args[0]) in (NONPOSITIVE, NEGATIVE):
                why = "the exponent is never positive, so it cannot overflow"
                yield Fact("bound", f"{said(term)} ≤ 1: {why}", (term.args[0], "≤", const(0)))
                if raw and "shift" not in {part.op for part in subterms(term)}:
                    yield Fact("danger", f"{said(term)} may underflow: nothing keeps its exponent near 0")
            else:
                yield Fact("danger", f"{said(term)} may overflow: nothing bounds its exponent")


def _positions(search: Search) -> Iterator[Fact]:
    for reduction in search.cascade.reductions:
        if MONOIDS[reduction.monoid].indexed and search.facts.moves(reduction.body):
            yield Fact("danger", f"{reduction.name} is found among elements without their pivots: where these are not "
                                 "finite, NumPy's is the position of the first NaN")


def _divisors(search: Search, results: tuple[Result, ...]) -> Iterator[Fact]:
    formulas = [*search.pivots.values.values(), *search.cascade.outputs, *(result.value for result in results)]
    divisors = dict.fromkeys(term.args[-1] for term in subterms(*formulas) if term.op in ("divide", "reciprocal"))
    for divisor in divisors:
        varies = any(term.op in ("input", "param", "symbol") for term in subterms(divisor))
        if not varies or search.axis in divisor.axes:
            continue
        if search.facts.sign(divisor) == POSITIVE:
            yield _related("sign", divisor, ">", const(0), ": a safe divisor once an element took part")
        else:
            yield Fact("danger", f"{said(divisor)} divides and may be 0: the result is then what IEEE division gives")


def _uncentred(search: Search) -> Iterator[Fact]:
    for recurred in search.recurrences:
        steps, about = dict(recurred.steps), dict(recurred.moves)
        for state, start in recurred.starts:
            if steps.get(state) is state and state not in about and start.op != "size":
                yield Fact("danger", f"{recurred.name} is kept apart from {said(start)}, which is known only at the end: it cancels "
                                     "where that is large against the elements' spread")


def _infinite_elements(search: Search) -> Iterator[Fact]:
    """Matrices multiply what the loop has never multiplied: inf · 0 and inf − inf are other numbers there."""
    for recurred in search.recurrences:
        one = const(SEMIRINGS[recurred.semiring].one)
        if any(part.op == "symbol" for row in recurred.entries for entry, function in zip(row, recurred.basis, strict=True)
               if function is not one for part in subterms(entry)):
            yield Fact("domain", f"where an element is infinite, {recurred.name} of several parts is that of the loop only if that is finite")


def _infinite_moves(search: Search) -> Iterator[Fact]:
    """Parts add what the loop has never added: inf − inf."""
    for clip in search.clips:
        yield Fact("domain", f"where an element is infinite, {clip.name} of several parts may be NaN where the loop has one of its bounds")


def _cancellations(search: Search, results: tuple[Result, ...]) -> Iterator[Fact]:
    for result, reduction in zip(results, search.cascade.reductions, strict=True):
        if reduction.monoid != "sum":
            continue
        components = {term.name for term in subterms(result.value) if term.op == "symbol"}
        differs = any(term.op == "negative" or term.op == "subtract" and term.args[0] is not term.args[1] or term.op == "const" and term.value < 0
                      for term in _outside_exponents(result.value))
        if differs and len(components) > 2:
            yield Fact("danger", f"{result.name} = {said(result.value)} is a difference of sums: it cancels where they are large "
                                 "against it")


def _outside_exponents(term: Expr) -> Iterator[Expr]:
    yield term
    for arg in term.args if term.op not in ("exp", "exp2") else ():
        yield from _outside_exponents(arg)
