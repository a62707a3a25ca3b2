"""The functions of a form whose elements keep their order: lift takes one element, merge two neighbours, and the
definition is a loop.

In: an operator and its form.  Out: source text of each, as `functions` has them for the other forms.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.discover.form import Component, FusedForm
from redfuser_algebra.language.expr import Expr, call, substitute, subterms, symbol, unbound_states
from redfuser_algebra.language.names import PRIME
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.prove.export.blocks import INDENT, Block, wrapped
from redfuser_algebra.prove.export.functions import JOINS, Function, Functions
from redfuser_algebra.prove.export.numpy_text import Unprintable, spelt

SPOKEN = {"np.maximum(": "larger(", "np.minimum(": "smaller(", "np.logaddexp(": "log_of_sum(", "np.where(": "chosen("}
"""How merge spells what SymPy has another word for."""


class OrderedFunctions(Functions):
    """Everything that a module states about an ordered form.  Raises Unprintable for what has no spelling in NumPy."""

    def __init__(self, operator: Operator, form: FusedForm) -> None:
        if form.prefixes or any(MONOIDS[c.monoid].indexed or MONOIDS[c.monoid].counted for c in form.state):
            raise Unprintable("maps or positions next to a recurrence")
        super().__init__(operator, form)

    # one element

    @cached_property
    def lift(self) -> Function:
        """The state of one element."""
        own = {name: name for name in (*self.fields, *self.definitions)}
        known: dict[str, str] = {}
        block = self._block(known)
        block.printer.plan = replace(self.plan, inputs={name: tuple(a for a in own if a != self.axis) for name, own in self.operator.inputs.items()})
        for component in self.form.state:
            for term in subterms(component.lift):
                if term.op == "symbol":
                    self._ensure(block, known, term.name, own)
            block.assign(component.name, self._number(block.text(self._element(block, component))))
            known[component.name] = component.name
        return self._function("lift", [], f"The state of one element, whose arrays have no axis {self.axis} any more.", block, self._made_state())

    def _element(self, block: Block, component: Component) -> Expr:
        value = component.lift if component.mask is None else call("where", component.mask, component.lift, MONOIDS[component.monoid].identity)
        if any(term.op == "size" and term.axis == self.axis for term in subterms(value)):
            raise Unprintable("an element that knows how many there are")
        block.printer.symbols[self.axis] = self.axis
        return here(value, self.axis, lambda name, axes: self._named(block, spelt(name), spelt(name), axes), self.axis)

    def _named(self, block: Block, name: str, text: str, axes: tuple[str, ...]) -> Expr:
        """A symbol that is written so; its dimensions are those of the array without the axis of elements."""
        if axes != self.plan.sorted(axes):
            raise Unprintable("arrays whose axes are in different orders")
        named = symbol(f"{name} here", axes)
        block.printer.symbols[named.name] = text
        return named

    def _number(self, text: str) -> str:
        return f"np.float64({text})" if text.lstrip("-").replace(".", "").replace("np.inf", "0").isdigit() else text

    # two neighbours

    def _joined(self, block: Block, c: Component, left: str, right: str) -> None:
        if c.joined is None:
            text = JOINS[c.monoid].format(f"{left}.{c.name}", f"{right}.{c.name}")
        else:
            sides = {name: f"one.{name}" for name in self.fields} | {name + PRIME: f"two.{name}" for name in self.fields}
            text = self._number(self._block(sides).text(c.joined))
        for word, spoken in SPOKEN.items():
            self.helpers |= {spoken[:-1]} if word in text else set()
            text = text.replace(word, spoken)
        return block.assign(c.name, text)

    # the definition

    @cached_property
    def definition(self) -> Function:
        """The operator as it is written: a loop over the elements for each recurrence."""
        block = self._block({}, as_written=True)
        found: dict[Expr, Expr] = {}
        loops: dict[tuple, dict[str, str]] = {}
        for term in subterms(*self.operator.outputs):
            if term.op == "scan" and not unbound_states(term):
                found[term] = self._looped(block, term, found, loops)
        outputs = [substitute(output, found) for output in self.operator.outputs]
        return self._function("definition", [], "The operator as written.", block, self._returned(block, outputs))

    def _looped(self, block: Block, scan: Expr, found: dict[Expr, Expr], loops: dict[tuple, dict[str, str]]) -> Expr:
        """A loop from state to state, once for all that is asked of it; what is asked for, under a name."""
        axis, names, place, every = scan.attrs
        if axis != self.axis:
            raise Unprintable(f"a recurrence along {axis}")
        key = (scan.args, names, every if every else "after")
        if key not in loops:
            loops[key] = self._loop(block, scan, found, every or "after")
        text = loops[key][names[place]]
        axes = scan.axes
        if every:
            at = self.plan.sorted(axes).index(axis)
            text = f"np.stack(np.broadcast_arrays(*{loops[key]['seen ' + names[place]]}), axis={at})"
        if not every:
            return self._as_symbol(block, text, axes)
        result = block.names.fresh(f"{loops[key][names[place]]}s")
        block.assign(result, text)
        return self._as_symbol(block, result, axes)

    def _loop(self, block: Block, scan: Expr, found: dict[Expr, Expr], every: str) -> dict[str, str]:
        axis, names, *_ = scan.attrs
        own = {name: block.names.fresh(name) for name in names}
        asked = [term for term in subterms(*self.operator.outputs) if term.op == "scan" and term.attrs[3] == every
                 and term.attrs[1] == names and all(one is other for one, other in zip(term.args, scan.args, strict=True))]
        wanted = [names[term.attrs[2]] for term in asked]
        seen = {name: block.names.fresh(f"{own[name]}_seen") for name in dict.fromkeys(wanted)}
        length = block.printer.plan.length(axis)
        at = block.names.fresh("at")
        block.printer.symbols[at] = at
        starts, steps = scan.args[:len(names)], scan.args[len(names):]
        for name, start in zip(names, starts, strict=True):
            block.assign(own[name], self._number(block.text(substitute(start, found))))
        for name in seen:
            block.assign(seen[name], "[]")
        block.lines.append(f"{INDENT}for {at} in range({length}):")
        keep = [f"{INDENT * 2}{seen[name]}.append({own[name]})" for name in seen]
        block.lines += keep if every == "before" else []
        states = {state: self._as_symbol(block, own[state.name], state.axes) for state in unbound_states(*steps)}
        inside = [here(substitute(substitute(step, found), states), axis, lambda name, axes: self._sliced(block, name, axes, at), at) for step in steps]
        texts = [block.printer.text(step) for step in inside]
        block.lines += wrapped(f"{INDENT * 2}{', '.join(own.values())} = ", ", ".join(texts))
        block.lines += keep if every == "after" else []
        return own | {f"seen {name}": word for name, word in seen.items()}

    def _as_symbol(self, block: Block, name: str, axes: tuple[str, ...]) -> Expr:
        block.printer.symbols[name] = name
        return symbol(name, self.plan.sorted(axes))

    def _sliced(self, block: Block, name: str, axes: tuple[str, ...], at: str) -> Expr:
        """An array at one element; `axes` are those that are left, of an input or of what is known at every element."""
        own = self.operator.inputs.get(name)
        whole = own or self.plan.sorted((*axes, self.axis))
        index = [":" if axis != self.axis else at for axis in whole]
        while index[-1] == ":":
            index.pop()
        return self._named(block, name, f"{spelt(name) if own else name}[{', '.join(index)}]", axes)


def here(term: Expr, axis: str, named: Callable[[str, tuple[str, ...]], Expr], position: str) -> Expr:
    """A term at one element: what has the axis without it, and the position as a number."""
    if axis not in term.axes:
        return term
    if term.op in ("input", "symbol"):
        return named(term.name, tuple(a for a in term.axes if a != axis))
    if term.op == "index":
        return symbol(position, ())
    return Expr(term.op, tuple(here(arg, axis, named, position) for arg in term.args), term.attrs)
