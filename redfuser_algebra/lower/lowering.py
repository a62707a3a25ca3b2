"""From a fused form to its tile program: which axes are rows, what a tile makes once, which updates share a loop.

In: an operator and its form.  Out: a TileProgram.  Nothing is decided here that depends on sizes or on a machine.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.expr import Expr, call, children_replaced, const, substitute, subterms, symbol
from redfuser_algebra.language.names import numbered, stem, symbol_names
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.evaluation import COMBINE
from redfuser_algebra.lower.ordered import running, slow_parts, stepped
from redfuser_algebra.lower.tile import Contraction, LoweringError, Producer, TileProgram, Update, Value, new_reads

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import Component, FusedForm, Result, Scaling


def lower(operator: Operator, form: FusedForm) -> TileProgram:
    """The tile program of a form.  Raises LoweringError for a form whose parts cannot be put in order."""
    outputs, states = running(operator, form)
    _check_words(form, [*outputs, *(part for state in states for part in (state.start, state.step))])
    rows = _rows(operator, form)
    named, producers = _with_producers(operator, form, rows, [*outputs, *(state.step for state in states)] if states else [])
    updates = stepped([_update(form, component, named, rows) for component in form.state], form)
    block = rows[-1] if rows and _multiplies(producers, updates, rows[-1]) else ""
    watched = {name for row in form.results if _identity(row) is not None for name in symbol_names(row.value)}
    updates = _with_presence(updates, watched, {*operator.inputs, *operator.params, *form.symbol_axes})
    values = tuple(_values(form, {update.name: update for update in updates}, named))
    holds = form.symbol_axes | {row.name: row.axes for row in (*updates, *producers, *states)}
    if states:
        outputs, states = tuple(substitute(output, named) for output in outputs), tuple(replace(s, step=substitute(s.step, named)) for s in states)
    return TileProgram(
        operator.name, form.axis, {name: _canonical(axes, rows, form.axis) for name, axes in operator.inputs.items()},
        tuple(operator.params), rows, block, producers, _stages(updates, values), values,
        outputs, tuple(operator.output_axes), form.axis_copies, holds, states, _scalings(form, rows))


def _scalings(form: FusedForm, rows: tuple[str, ...]) -> tuple[Scaling, ...]:
    """The scalings of a form.  Raises LoweringError where columns of a row scale together: loops see one number at a time."""
    names = {name for scaling in form.scalings for name in scaling.names}
    if any(axis not in rows for name in names for axis in form.component(name).axes):
        raise LoweringError("a tile program", "states with columns are multiplied together, and it has no loops for that", "run the operator with NumPy")
    return form.scalings


def _check_words(form: FusedForm, ends: Sequence[Expr]) -> None:
    """Loops are made of the monoids and functions of the package's own tables; `ends` are what is made of the results."""
    formulas = [*ends, *_formulas(form)]
    monoids = [c.monoid for c in form.state if c.monoid != "compose"] + [t.monoid for t in subterms(*formulas) if t.op == "reduce"]
    foreign = [m for m in monoids if m not in COMBINE and not (MONOIDS[m].indexed or MONOIDS[m].counted)]
    foreign += [f"{t.monoid} over {t.axis}" for t in subterms(*formulas) if t.op == "reduce" and MONOIDS[t.monoid].counted and t.axis != form.axis]
    foreign += [t.op for t in subterms(*formulas) if t.op == "scan" or t.op in FUNCTIONS and (FUNCTIONS[t.op].source or FUNCTIONS[t.op].whole)]
    if foreign:
        raise LoweringError("a tile program", f"it has no loops for {foreign[0]}", "run the operator with NumPy")


def _formulas(form: FusedForm) -> list[Expr]:
    return [*form.definitions.values(), *(e for c in form.state for e in (c.lift, c.rebase, c.mask, c.joined, c.step) if e is not None)]


def _canonical(axes: tuple[str, ...], rows: tuple[str, ...], axis: str) -> tuple[str, ...]:
    """Rows first, then the reduced axis, then the others: a tile of a row is one piece of memory."""
    front = [a for a in (*rows, axis) if a in axes]
    return (*front, *(a for a in axes if a not in front))


def _rows(operator: Operator, form: FusedForm) -> tuple[str, ...]:
    """Axes along which the work falls apart: every output has them, no formula sums over them or copies them.

    An axis that stands behind the reduced one in every array that has both is left as a column: there a tile lies
    in memory with all its columns.
    """
    formulas = [*form.outputs, *_formulas(form)]
    summed = {term.axis for term in subterms(*formulas) if term.op == "reduce"} | {*form.axis_copies.values(), form.axis}
    made = {term.attrs[2] for term in subterms(*operator.outputs) if term.op == "reduce"}

    def is_row(axis: str) -> bool:
        shared = [axes for axes in operator.inputs.values() if axis in axes and form.axis in axes]
        behind = shared != [] and all(axes.index(axis) > axes.index(form.axis) for axes in shared)
        return not behind and axis not in summed | made and all(axis in axes for axes in operator.output_axes)

    return tuple(axis for axis in operator.axes if is_row(axis))


def _with_producers(operator: Operator, form: FusedForm, rows: tuple[str, ...], again: Sequence[Expr]) -> tuple[dict[Expr, Expr], tuple[Producer, ...]]:
    """Sums inside elements that see no pivot, each once, and the symbols that stand for them.

    Where elements are taken one by one, as maps take them that go on from state to state (`again`), so is what takes long.
    """
    taken = {*operator.inputs, *operator.params, *form.symbol_axes}
    names = numbered("S", taken)
    exprs = [expr for c in form.state for expr in (c.lift, c.mask, c.step) if expr is not None]
    found = dict.fromkeys(term for expr in (*exprs, *again) for term in _inner_sums(expr, form.axis))
    ordered = [part for c in form.state if c.monoid == "compose" for part in (c.lift, c.step) if part is not None]
    found |= dict.fromkeys(term for expr in (*ordered, *again) for term in slow_parts(expr, form.axis))
    named, producers = {}, []
    for term in found:
        value = children_replaced(term, tuple(substitute(arg, named) for arg in term.args))
        producers.append(Producer(next(names), value, _scores(value, form.axis, rows)))
        named[term] = symbol(producers[-1].name, term.axes)
    return named, tuple(producers)


def _inner_sums(term: Expr, axis: str) -> Iterator[Expr]:
    if term.op == "reduce" and axis in term.axes and not symbol_names(term):
        yield term
    else:
        for arg in term.args:
            yield from _inner_sums(arg, axis)


def _scores(term: Expr, axis: str, rows: tuple[str, ...]) -> Contraction | None:
    """Σ_k left[…, block, k] · right[…, l, k] of two inputs as a matrix product."""
    found = factors(term.body) if term.op == "reduce" else []
    if term.op != "reduce" or term.monoid != "sum" or term.mask is not None or len(found) != 2 or not rows:
        return None
    left, right = sorted(found, key=lambda factor: axis in factor.axes)
    block, k = rows[-1], term.axis
    fits = (left.op == right.op == "input" and axis not in left.axes and block in left.axes and block not in right.axes
            and set(left.axes) <= {*rows, k} and set(right.axes) <= {*rows, axis, k} and k in left.axes and k in right.axes)
    return Contraction(left, right, k) if fits else None


def factors(term: Expr) -> list[Expr]:
    """The factors of a product; a / b has the factors of a and 1 / b."""
    if term.op == "multiply":
        return factors(term.args[0]) + factors(term.args[1])
    if term.op == "divide":
        return [*factors(term.args[0]), call("reciprocal", term.args[1])]
    return [*factors(term.args[0]), const(-1)] if term.op == "negative" else [term]


def _update(form: FusedForm, component: Component, named: dict[Expr, Expr], rows: tuple[str, ...]) -> Update:
    lift = substitute(component.lift, named)
    mask = None if component.mask is None else substitute(component.mask, named)
    update = Update(component.name, component.monoid, component.axes, lift, None, None, component.rebase)
    if component.step is not None:
        return replace(update, step=substitute(component.step, named))
    if component.name in form.joins:
        return replace(update, joined=form.joins[component.name], empty=component.nothing)
    update = replace(update, mask=mask, count=component.count)
    return replace(update, contraction=_columns(update, form.axis, rows))


def _columns(update: Update, axis: str, rows: tuple[str, ...]) -> Contraction | None:
    """Σ_l left[…, block, l] · right[…, l, columns] with an input on the right as a matrix product."""
    columns = {a for a in update.axes if a not in rows}
    if update.monoid != "sum" or not columns or update.mask is not None and columns & set(update.mask.axes):
        return None
    found = factors(update.lift)
    right = [factor for factor in found if columns & set(factor.axes)]
    left = [factor for factor in found if not columns & set(factor.axes)]
    if len(right) != 1 or right[0].op != "input" or not left or axis not in right[0].axes:
        return None
    own = set(right[0].axes)
    varies = axis in {a for factor in left for a in factor.axes}
    if not varies or own != {axis} | columns | own.intersection(rows[:-1]):
        return None
    product = left[0]
    for factor in left[1:]:
        product = product * factor
    return Contraction(product, right[0], axis)


def _multiplies(producers: Sequence[Producer], updates: Sequence[Update], block: str) -> bool:
    """Whether several rows at a time make a matrix product."""
    return any(p.contraction for p in producers) or any(u.contraction and block in u.axes for u in updates)


def _identity(result: Result) -> float | None:
    """What a result is where no element took part in it, if its form says so."""
    monoid = getattr(result, "monoid", None)
    return MONOIDS[monoid].identity if monoid else None


def _values(form: FusedForm, updates: dict[str, Update], named: dict[Expr, Expr]) -> Iterator[Value]:
    """Pivots and results that are not components by another name.

    Where no element took part in a result it is the identity of its monoid: what else it is made of may have no value there.
    """
    for row in form.pivots:
        plain = row.mean is not None and row.value.args[0].op == "symbol" and (row.value.args[1].op == "size" or updates[row.value.args[1].name].counts)
        yield Value(row.name, row.value, row.axes, row.value.args[0].name if plain else "")
    for row in form.results:
        if row.name in updates:
            continue
        mask, value = None if row.mask is None else substitute(row.mask, named), row.value
        parts = [updates[name] for name in symbol_names(value) if name in updates and updates[name].mask is mask]
        if _identity(row) is not None and parts and all(part.present for part in parts):
            flags = [symbol(part.present, updates[part.present].axes) for part in parts]
            value = call("where", reduce(lambda a, b: a | b, flags), value, const(_identity(row)))
        yield Value(row.name, value, row.axes)


def _with_presence(updates: list[Update], watched: set[str], taken: set[str]) -> list[Update]:
    """Each mask of a component that moves, or is watched, gets an update that says whether anything took part."""
    names = numbered("any", taken)
    seen: dict[Expr, str] = {}
    result = []
    for update in updates:
        mask = update.mask
        if mask is not None and (not update.fixed or update.name in watched):
            if mask not in seen:
                seen[mask] = name = next(names)
                axes = tuple(axis for axis in update.axes if axis in mask.axes)
                result.append(Update(name, "any", axes, mask, None, None, symbol(name, axes)))
            update = replace(update, present=seen[mask])
        result.append(update)
    return result


def _stages(updates: Sequence[Update], values: Sequence[Value]) -> tuple[tuple[Update, ...], ...]:
    """Updates by how long a chain of others they wait for."""
    formulas = {value.name: value.value for value in values}
    level: dict[str, int] = {}
    for update in updates:
        waits = _components(new_reads(update), formulas)
        level[update.name] = 1 + max((level.get(name, -1) for name in waits if name != update.name), default=-1)
    return tuple(tuple(u for u in updates if level[u.name] == at) for at in range(max(level.values(), default=-1) + 1))


def _components(names: Sequence[str], formulas: dict[str, Expr]) -> dict[str, None]:
    """The components that symbols depend on, through values."""
    found: dict[str, None] = {}
    todo, seen = [stem(name) for name in names], set()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name in formulas:
            todo += [stem(each) for each in symbol_names(formulas[name])]
        else:
            found[name] = None
    return found

