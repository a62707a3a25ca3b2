"""What a recurrence's components claim, as equations: with them, the matrix of a part is the product of its elements'.

In: a form and a record of one of its recurrences.  Out: pairs of terms over free states, elements and components that
have to be equal.  By induction over the elements, they make the result that is read off the state that of the steps.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from redfuser_algebra.algebra.monoids import STEPS
from redfuser_algebra.algebra.semirings import SEMIRINGS, Semiring
from redfuser_algebra.discover.clipped import Clip
from redfuser_algebra.discover.form import Clipped, FusedForm, Recurred, Scaling
from redfuser_algebra.discover.ordered import first_taken
from redfuser_algebra.discover.scaling import Degrees, zero_later
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, primed, symbol_names
from redfuser_algebra.prove.places import what_outputs_see

LAMBDA, MU = symbol("λ"), symbol("μ")
Rows = Sequence[Sequence[Expr]]
Equation = tuple[str, Expr, Expr]


def equations(form: FusedForm, recurred: Recurred) -> Iterator[Equation]:
    """Of the step, of one element, of two parts, and of the result: what, left side, right side."""
    semiring = SEMIRINGS[recurred.semiring]
    carried = {component.name: component for component in form.state}
    symbols = {part for row in (*recurred.entries, centres_of(recurred)) for entry in row for part in subterms(entry) if part.op == "symbol"}
    lifts = {part: carried[part.name].lift for part in symbols}
    joins = {part: joined(form, part.name) for part in symbols}
    later = {part: primed(part) for part in symbols}
    step = dict(recurred.steps)
    for number, (function, row) in enumerate(zip(recurred.basis, recurred.rows, strict=True), 1):
        yield f"step, row {number}", substitute(function, step), _combination(semiring, row, recurred.basis)
    lifted = _identity(semiring, len(recurred.basis)) if recurred.between else _at(recurred.rows, lifts if recurred.moves else {})
    yield from _pairs("one element", _at(recurred.entries, lifts), lifted)
    parts = [_at(recurred.entries, later), recurred.entries]
    if recurred.between:
        parts.insert(1, _at(recurred.rows, dict(recurred.between)))
    if recurred.moves:
        parts = [_at(recurred.turned, _swapped(later)), parts[0], recurred.turned, parts[1]]
    yield from _pairs("two parts", _at(recurred.entries, joins), reduce(lambda a, b: _product(semiring, a, b), parts))
    whole = recurred.entries if not recurred.between else _product(semiring, recurred.entries, _at(recurred.rows, dict(recurred.begins)))
    value = {result.name: result.value for result in form.results}[recurred.name] if recurred.reached is None else recurred.reached
    seen = value.args[2] if value.op == "where" and any(value.args[0] is each for each in _of_nothing(form.axis, recurred)) else value
    starts = [substitute(function, dict(recurred.starts)) for function in recurred.basis]
    read = _combination(semiring, whole[recurred.row], starts)
    yield "the result", seen, read if recurred.below is None else read / _combination(semiring, whole[recurred.below], starts)
    fractions = {state: fraction for state, _, fraction in recurred.fractions}
    for state, written, fraction in recurred.fractions:
        yield f"the fraction {state.name}", substitute(written, fractions), substitute(fraction, step)
    if recurred.moves:
        yield from _about_another(recurred, semiring)


def _of_nothing(axis: str, recurred: Recurred) -> list[Expr]:
    """Conditions under which a result is where it starts: no element, or none that its step is taken for."""
    size = Expr("size", (), (axis,))
    waits = first_taken(recurred.basis[recurred.row], dict(recurred.steps), axis)
    return [call("equal", size, 0), *([call("less_equal", size, waits)] if waits else [])]


def _about_another(recurred: Recurred, semiring: Semiring) -> Iterator[Equation]:
    """Of states about the later centre: that they stand for the same, and what the functions of the basis are of them."""
    moves = dict(recurred.moves)
    for state, _, fraction in recurred.fractions:
        yield f"{state.name} about another centre", substitute(primed(fraction), moves), fraction
    for number, (function, row) in enumerate(zip(recurred.basis, recurred.turned, strict=True), 1):
        yield f"about another centre, row {number}", substitute(function, moves), _combination(semiring, row, recurred.basis)


def centres_of(recurred: Recurred) -> list[Expr]:
    """The components that states are about."""
    return list({part: part for _, moved in recurred.moves for part in subterms(moved) if part.op == "symbol" and not part.name.endswith(PRIME)})


def _swapped(later: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    return {**later, **{value: own for own, value in later.items()}}


def of_clip(form: FusedForm, clip: Clipped) -> Iterator[Equation]:
    """The same of a state that is moved and kept within bounds."""
    made, symbols = Clip(*clip.part), {part for term in clip.part for part in subterms(term) if part.op == "symbol"}
    lifts = {part: form.component(part.name).lift for part in symbols}
    joins = {part: joined(form, part.name) for part in symbols}
    yield "step", clip.step, Clip(*clip.element).of(clip.state)
    for what, part, element in zip(("what is added", "the lower bound", "the upper bound"), clip.part, clip.element, strict=True):
        yield f"one element, {what}", substitute(part, lifts), element
    later = Clip(*(substitute(part, {each: primed(each) for each in symbols}) for part in clip.part))
    yield "two parts", Clip(*(substitute(part, joins) for part in clip.part)).of(clip.state), later.of(made.of(clip.state))
    yield "the result", {result.name: result.value for result in form.results}[clip.name], made.of(clip.start)


def entries_of(recurred: Recurred) -> list[Expr]:
    """What a part holds."""
    return [entry for row in recurred.entries for entry in row] + [value for _, value in recurred.between] + centres_of(recurred)


def associativity(form: FusedForm, entries: Sequence[Expr]) -> Iterator[Equation]:
    """(a ∘ b) ∘ c = a ∘ (b ∘ c), component by component."""
    names = dict.fromkeys(name.removesuffix(PRIME) for name in symbol_names(*entries))
    axes = {name: form.component(name).axes for name in names}

    def part(letter: str) -> dict[str, Expr]:
        return {name: symbol(f"{name}_{letter}", axes[name]) for name in names}

    def both(a: Mapping[str, Expr], b: Mapping[str, Expr]) -> dict[str, Expr]:
        values = {symbol(name, axes[name]): a[name] for name in names} | {symbol(name + PRIME, axes[name]): b[name] for name in names}
        return {name: substitute(joined(form, name), values) for name in names}

    first, last = both(both(part("a"), part("b")), part("c")), both(part("a"), both(part("b"), part("c")))
    yield from ((f"(a ∘ b) ∘ c for {name}", first[name], last[name]) for name in names)


def scalings(form: FusedForm, scaling: Scaling) -> Iterator[Equation]:
    """Joins of parts that are multiplied by λ and μ, and what outputs see of that."""
    weights, axes = dict(scaling.weights), {c.name: c.axes for c in form.state}
    degrees, first = Degrees(form), zero_later(form)

    def moved(term: Expr, prime: str, by: Expr) -> Expr:
        return substitute(term, {symbol(name + prime, axes[name]): call("power", by, weight) * symbol(name + prime, axes[name])
                                 for name, weight in weights.items()})

    for name, weight in weights.items():
        whole = substitute(joined(form, name), {symbol(each + PRIME, axes[each]): const(0) for each in first})
        yield f"the join of {name}", moved(moved(whole, "", LAMBDA), PRIME, MU), call("power", LAMBDA * MU, weight) * whole
    if scaling.exponent:
        yield from what_outputs_see(form, scaling)
        return
    values = {symbol(row.name, row.axes): row.value for row in form.results}
    read = [arg for term in subterms(*form.outputs) if term.op in ("log", "log2", "divide", "sqrt") for arg in term.args]
    read += [arg for row in form.results for term in subterms(row.value) if term.op == "divide" for arg in term.args]
    for part in dict.fromkeys(substitute(part, values) for part in read):
        degree = sum(factor * weights.get(name, 0) for name, factor in (degrees.of(part) or {}).items())
        yield f"what an output reads, {part}", moved(part, "", LAMBDA), call("power", LAMBDA, int(degree)) * part


def joined(form: FusedForm, name: str) -> Expr:
    """What two neighbouring parts make of a component, over its symbols in the earlier and, primed, in the later one."""
    component = form.component(name)
    if component.joined is not None:
        return component.joined
    return call(STEPS[component.monoid], component.symbol, primed(component.symbol))


def _at(rows: Rows, values: Mapping[Expr, Expr]) -> Rows:
    return [[substitute(entry, dict(values)) for entry in row] for row in rows]


def _pairs(what: str, left: Rows, right: Rows) -> Iterator[Equation]:
    for k, (own, other) in enumerate(zip(left, right, strict=True), 1):
        for j, pair in enumerate(zip(own, other, strict=True), 1):
            yield f"{what}, entry {k}, {j}", *pair


def _identity(semiring: Semiring, size: int) -> Rows:
    return [[const(semiring.one if k == j else semiring.zero) for j in range(size)] for k in range(size)]


def _combination(semiring: Semiring, factors: Sequence[Expr], values: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: call(semiring.plus, a, b),
                  (call(semiring.times, factor, value) for factor, value in zip(factors, values, strict=True)))


def _product(semiring: Semiring, a: Rows, b: Rows) -> Rows:
    columns = list(zip(*b, strict=True))
    return [[_combination(semiring, row, column) for column in columns] for row in a]
