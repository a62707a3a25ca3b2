"""The functions of a form as Python source: State, lift, moved, merge, finalize, and the definition they must agree with.

In: an operator and its (renamed) form.  Out: source text of each, with the arguments that each takes.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.expr import Expr, call, const, substitute, subterms, symbol
from redfuser_algebra.language.mathematics import mathematics
from redfuser_algebra.language.names import PRIME, pivots_moved
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.language.tidy import tidied
from redfuser_algebra.prove.export.blocks import INDENT, Block, wrapped
from redfuser_algebra.prove.export.naming import Names, renamed
from redfuser_algebra.prove.export.numpy_text import RESERVED, TOTAL, Layout, NumpyText, layout, spelt
from redfuser_algebra.prove.trials.parts import pivot_names

JOINS = {"sum": "{} + {}", "prod": "{} * {}", "max": "np.maximum({}, {})", "min": "np.minimum({}, {})", "fmax": "np.fmax({}, {})",
         "fmin": "np.fmin({}, {})", "any": "{} | {}", "all": "{} & {}"}


@dataclass(frozen=True)
class Function:
    """Source of a function, and the inputs and parameters it takes, in order."""

    name: str
    source: tuple[str, ...]
    arguments: tuple[str, ...]

    def called(self, *first: str) -> str:
        """A call with these arguments in front of its own."""
        return f"{self.name}({', '.join((*first, *self.arguments))})"


class Functions:
    """Everything that a module states about a form.  Raises Unprintable for what has no spelling in NumPy."""

    def __init__(self, operator: Operator, form: FusedForm) -> None:
        self.operator = operator
        self.form = counted(watched(renamed(operator, form), operator), operator)
        self.helpers: set[str] = set()
        self.axis = form.axis
        roots = [expr for c in self.form.state for expr in (*c.elements, c.rebase)]
        roots += [*self.form.definitions.values(), *self.form.outputs, *operator.outputs]
        self.plan: Layout = layout(operator.inputs, tuple(roots), self.axis, self.form.symbol_axes)
        self.components = {c.name: c for c in self.form.state}
        self.definitions = {name: value for name, value in self.form.definitions.items() if name not in self.components}

    @cached_property
    def fields(self) -> list[str]:
        """The fields of a state: components, and for positions the values they won with."""
        return [name for c in self.form.state for name in ((c.name, c.name + WON) if MONOIDS[c.monoid].indexed else (c.name,))]

    @cached_property
    def groups(self) -> list[tuple[tuple[str, ...], list[Component]]]:
        """Components in merge order; those that move with the same pivots go together, at the place of the first."""
        found: list[tuple[tuple[str, ...], list[Component]]] = []
        for component in self.form.state:
            pivots = () if component.fixed else self.moved_by(component)
            same = [group for own, group in found if own == pivots and pivots]
            if same:
                same[0].append(component)
            else:
                found.append((pivots, [component]))
        return found

    def moved_by(self, component: Component) -> tuple[str, ...]:
        """The pivots at whose new values a component is wanted."""
        return tuple(pivots_moved(component.rebase))

    # source

    def state(self) -> list[str]:
        """The class of states."""
        rows = []
        for component in self.form.state:
            where = f" where {mathematics(tidied(component.mask))}" if component.mask is not None else ""
            count = f"^{mathematics(component.count)}" if component.count is not None else ""
            sign = MONOIDS[component.monoid].symbol
            note = f"{sign}_{self.axis}{count} {mathematics(tidied(component.lift))}{where}"
            rows += [(component.name, note)]
            if MONOIDS[component.monoid].indexed:
                rows += [(component.name + WON, f"the value{'s' if component.count is not None else ''} there")]
        lines = ["class State(NamedTuple):", f'{INDENT}"""What is kept of a part of the elements."""', ""]
        for name, note in rows:
            lines += [f"{INDENT}{name}: np.ndarray  # {note}"] if len(note) < 85 else [f"{INDENT}# {note}"[:118], f"{INDENT}{name}: np.ndarray"]
        return lines

    @cached_property
    def lift(self) -> Function:
        """The state of some elements, at their own pivots."""
        own = {name: name for name in (*self.fields, *self.definitions)}
        known: dict[str, str] = {}
        block = self._block(known, positions=self.axis if self._sees_positions() else "", empty=True)
        block.expect(*[term for c in self.form.state for term in c.operands],
                     *self._needed(name for c in self.form.state for name in pivot_names(c)))
        for component in self.form.state:
            for name in pivot_names(component):
                self._ensure(block, known, name, own)
            self._lifted(block, component)
            known |= {name: name for name in (component.name, component.name + WON) if name in self.fields}
        return self._function("lift", [], "The state of some elements.", block, self._made_state())

    def _lifted(self, block: Block, component: Component) -> None:
        monoid = MONOIDS[component.monoid]
        if monoid.indexed or monoid.counted:
            return self._lifted_best(block, component)
        parts = (component.lift,) if component.mask is None else (component.lift, component.mask)
        whole = Expr("reduce", parts, (component.monoid, self.axis, ""))
        if self.axis not in whole.args[0].axes and component.mask is None and component.lift is const(1):
            return block.assign(component.name, f"np.float64({block.printer.plan.length(self.axis)})")
        for part in parts:
            block.text(part)
        return block.assign(component.name, block.text(whole))

    def _lifted_best(self, block: Block, component: Component) -> None:
        monoid, helper = MONOIDS[component.monoid], self._helper(component)
        self.helpers.add(helper)
        axes = self.plan.sorted(tuple(dict.fromkeys((*component.lift.axes, *(component.mask.axes if component.mask is not None else ())))))
        values = block.text(component.lift)
        if component.mask is not None:
            masked = Expr("where", (component.mask, component.lift, const(float("inf") if component.monoid == "argmin" else -float("inf"))))
            values = block.text(masked)
        at = axes.index(self.axis)
        count = f", {block.text(component.count)}" if component.count is not None else ""
        index = Expr("index", (), (self.axis,))
        places = index if component.mask is None else call("where", component.mask, index, -1)
        aligned = block.printer.aligned(places, axes)
        target = f"{component.name + WON}, {component.name}"
        if not monoid.indexed:
            return block.assign(component.name, f"largest({values}{count}, axis={at})")
        return block.assign(target, f"{helper}({values}, {aligned}{count}, axis={at})")

    def _helper(self, component: Component) -> str:
        if not MONOIDS[component.monoid].indexed:
            return "largest"
        return {"argmax": "first_largest", "argmin": "first_smallest"}.get(component.monoid, "best")

    @cached_property
    def moved(self) -> list[tuple[tuple[str, ...], Function]]:
        """For each group that moves, what moves it to new pivots."""
        groups = [(pivots, group) for pivots, group in self.groups if pivots]
        return [(pivots, self._moving(pivots, group, "moved" if len(groups) == 1 else f"moved_by_{'_'.join(pivots)}"))
                for pivots, group in groups]

    def _moving(self, pivots: tuple[str, ...], group: list[Component], name: str) -> Function:
        known = {field: f"part.{field}" for field in self.fields} | {pivot + PRIME: f"{pivot}_new" for pivot in pivots}
        block = self._block(known, more=[f"{pivot}_new" for pivot in pivots])
        used = [term.name for c in group for term in subterms(c.rebase) if term.op == "symbol" and not term.name.endswith(PRIME)]
        block.expect(*(c.rebase for c in group), *self._needed(used))
        for symbol_name in used:
            self._ensure(block, known, symbol_name, {})
        moved = [(c.name, block.text(c.rebase)) for c in group]
        news = ", ".join(f"{pivot}_new" for pivot in pivots)
        ends = [f"{INDENT}return part._replace({moved[0][0]}={moved[0][1]})"]
        if len(moved) > 1 or len(ends[0]) > 118:
            for c, (own, text) in zip(group, moved, strict=True):
                block.assign(own, text)
            ends = wrapped(f"{INDENT}return ", f"part._replace({', '.join(f'{own}={own}' for own, _ in moved)})")
        return self._function(name, ["part", *news.split(", ")], f"A part as it is at a new {' and '.join(pivots)}.", block, ends)

    @cached_property
    def merge(self) -> Function:
        """The state of two parts together."""
        own = {name: name for name in (*self.fields, *self.definitions)}
        known: dict[str, str] = {}
        block = self._block(known)
        block.expect(*self._needed(pivot for pivots, _ in self.groups for pivot in pivots))
        moves = dict(self.moved)
        arguments: list[str] = []
        for pivots, group in self.groups:
            sides = ("one", "two")
            if pivots:
                for pivot in pivots:
                    self._ensure(block, known, pivot, own)
                function = moves[pivots]
                arguments += function.arguments
                calls = [f"{function.name}({', '.join((side, *(known[pivot] for pivot in pivots), *function.arguments))})" for side in sides]
                sides = ("left", "right")
                block.assign("left, right", ", ".join(calls))
            for component in group:
                self._joined(block, component, *sides)
                known |= {name: name for name in (component.name, component.name + WON) if name in self.fields}
        return self._function("merge", ["one", "two"], "The state of two parts together.", block, self._made_state(), arguments)

    def _joined(self, block: Block, c: Component, left: str, right: str) -> None:
        monoid, name, won = MONOIDS[c.monoid], c.name, c.name + WON
        if not (monoid.indexed or monoid.counted):
            return block.assign(name, JOINS[c.monoid].format(f"{left}.{name}", f"{right}.{name}"))
        axes = self.plan.sorted(c.axes)
        self.helpers.add(self._helper(c))
        if not monoid.counted:
            pair = [f"np.stack([{left}.{field}, {right}.{field}])" for field in (won, name)]
            return block.assign(f"{won}, {name}", f"{self._helper(c)}({pair[0]}, {pair[1]}, axis=0)")
        at, count = axes.index(c.axes[-1]), block.text(c.count)
        both = [f"np.concatenate([{left}.{field}, {right}.{field}], axis={at})" for field in ((won, name) if monoid.indexed else (name,))]
        target = f"{won}, {name}" if monoid.indexed else name
        return block.assign(target, f"{self._helper(c)}({', '.join(both)}, {count}, axis={at})")

    @cached_property
    def finalize(self) -> Function:
        """The results of a state; those that keep the axis read the elements again."""
        known = {name: name for name in self.fields}
        own = known | {name: name for name in self.definitions}
        block = self._block(known)
        block.lines += wrapped(f"{INDENT}{', '.join(self.fields)}{',' if len(self.fields) == 1 else ''} = ", "state")
        used = [term.name for output in self.form.outputs for term in subterms(output) if term.op == "symbol"]
        block.expect(*self.form.outputs, *self._needed(used))
        for name in used:
            self._ensure(block, known, name, own)
        what = "The results of a state."
        if any(self.axis in output.axes for output in self.form.outputs):
            what = "The results of a state; they keep the axis, so the elements are read again."
        return self._function("finalize", ["state"], what, block, self._returned(block, self.form.outputs))

    @cached_property
    def definition(self) -> Function:
        """The operator as it is written."""
        block = self._block({}, as_written=True)
        outputs = self.operator.outputs
        block.expect(*outputs)
        return self._function("definition", [], "The operator as written.", block, self._returned(block, outputs))

    # parts of the above

    def _returned(self, block: Block, outputs: Iterable[Expr]) -> list[str]:
        return wrapped(f"{INDENT}return ", ", ".join([block.text(output, also_whole=True) for output in outputs]))

    def _made_state(self) -> list[str]:
        return wrapped(f"{INDENT}return ", f"State({', '.join(self.fields)})")

    def _block(self, known: dict[str, str], positions: str = "", empty: bool = False, more: Iterable[str] = (),
               as_written: bool = False) -> Block:
        printer = NumpyText(self.plan, known, positions, empty)
        taken = {*RESERVED, *map(spelt, (*self.operator.inputs, *self.operator.params)), self.axis, *self.fields, *self.definitions, *more}
        return Block(printer, taken, as_written)

    def _ensure(self, block: Block, known: dict[str, str], name: str, own: dict[str, str]) -> None:
        """A line for a pivot or a result and for those it is made of, where they have none yet."""
        if name in known or name not in self.definitions:
            return
        for term in subterms(self.definitions[name]):
            if term.op == "symbol":
                self._ensure(block, known, term.name, own)
        value = self.definitions[name]
        if value.op == "symbol" and value.name in known:
            known[name] = known[value.name]
        else:
            block.define(name, value)
            known[name] = name

    def _needed(self, names: Iterable[str]) -> list[Expr]:
        """The formulas of pivots and results, and of those they are made of."""
        found: dict[str, Expr] = {}
        left = list(names)
        while left:
            name = left.pop()
            if name in self.definitions and name not in found:
                found[name] = self.definitions[name]
                left += [term.name for term in subterms(found[name]) if term.op == "symbol"]
        return list(found.values())

    def _sees_positions(self) -> bool:
        terms = subterms(*(part for c in self.form.state for part in c.elements))
        return any(term.op == "index" and term.axis == self.axis for term in terms) or any(
            MONOIDS[c.monoid].indexed for c in self.form.state)

    def _function(self, name: str, first: list[str], duty: str, block: Block, ends: list[str], passed: Iterable[str] = ()) -> Function:
        body = [*block.lines, *ends]
        self.helpers |= block.printer.helpers
        words = set("".join(f" {letter} " if not (letter.isalnum() or letter == "_") else letter for line in body for letter in line + " ").split())
        words |= set(passed)
        known = list(map(spelt, (*self.operator.inputs, *self.operator.params)))
        arguments = known if name == "definition" else [each for each in known if each in words]
        if name == "lift" and self._sees_positions():
            arguments.append(self.axis)
        if TOTAL in words:
            arguments.append(TOTAL)
        source = [f"def {name}({', '.join((*first, *arguments))}):", f'{INDENT}"""{duty}"""', *body]
        return Function(name, tuple(source), tuple(arguments))


def watched(form: FusedForm, operator: Operator) -> FusedForm:
    """The form with a word on whether any element took part, where a masked result is made of more than its component.

    Of no elements it is the identity of its monoid, whatever else it is made of: that may be 0 and divide it.
    """
    state, results, words = list(form.state), [], {}
    for row in form.results:
        if row.monoid and row.value.op != "symbol" and any(c.mask is row.mask is not None for c in form.state):
            if row.mask not in words:
                axes = tuple(axis for axis in row.mask.axes if axis != form.axis)
                words[row.mask] = symbol(free_name("seen", form, operator, *(word.name for word in words.values())), axes)
                state.append(Component(words[row.mask].name, "any", row.mask, None, None, axes, words[row.mask]))
            row = replace(row, value=call("where", words[row.mask], row.value, const(MONOIDS[row.monoid].identity)))
        results.append(row)
    return replace(form, state=tuple(state), results=tuple(results))


def free_name(stem: str, form: FusedForm, operator: Operator, *more: str) -> str:
    """A name for one more component."""
    return Names({*RESERVED, *map(spelt, (*operator.inputs, *operator.params)), *operator.axes, *form.symbol_axes, *more}).fresh(stem)


def counted(form: FusedForm, operator: Operator) -> FusedForm:
    """The form with the number of elements in its state, where its formulas speak of it."""
    size = Expr("size", (), (form.axis,))
    rows = [*form.pivots, *form.results]
    if size not in set(subterms(*(row.value for row in rows), *form.outputs)):
        return form
    own = next((c for c in form.state if c.lift is const(1) and c.mask is None and c.monoid == "sum"), None)
    state = form.state
    if own is None:
        name = free_name("N", form, operator)
        own = Component(name, "sum", const(1), None, None, (), symbol(name))
        state = (own, *state)
    swap = {size: own.symbol}
    return replace(form, state=state, pivots=tuple(replace(p, value=substitute(p.value, swap)) for p in form.pivots),
                   results=tuple(replace(r, value=substitute(r.value, swap)) for r in form.results),
                   outputs=tuple(substitute(o, swap) for o in form.outputs))
