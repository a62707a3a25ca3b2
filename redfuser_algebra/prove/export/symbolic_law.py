"""The rebase law as a SymPy test: for two elements, the sums about a new pivot minus those that were moved is 0.

In: the functions of a form.  Out: lines of a test, or None where no moving component has a law that SymPy can be asked
about (choices that depend on a pivot, positions, maxima).
"""
from __future__ import annotations

from collections.abc import Iterator

from redfuser_algebra.algebra.functions import TOTAL_TWINS
from redfuser_algebra.discover.form import Component
from redfuser_algebra.language.expr import Expr, call, const, rewritten, substitute, subterms, symbol
from redfuser_algebra.language.names import PRIME, pivots_moved, primed, symbol_names
from redfuser_algebra.language.tidy import is_certain, tidied
from redfuser_algebra.prove.export.blocks import INDENT, wrapped
from redfuser_algebra.prove.export.functions import Functions
from redfuser_algebra.prove.export.naming import Names
from redfuser_algebra.prove.export.numpy_text import RESERVED, SympyText, Unprintable, spelt

ADDED = {"sum": "sum", "prod": "sympy.prod"}


def symbolic_law(functions: Functions) -> list[str] | None:
    """A test of every moving sum and product, as lines."""
    law = _Law(functions)
    moving = [c for c in functions.form.state if not c.fixed and law.speaks_of(c)]
    return law.lines(moving) if moving else None


class _Law:
    """What the test speaks of: elements with their numbers, sums over them, pivots old and new."""

    def __init__(self, functions: Functions) -> None:
        self.functions, self.axis = functions, functions.axis
        operator = functions.operator
        self.names = Names({*RESERVED, *functions.fields, *functions.definitions, *map(spelt, (*operator.inputs, *operator.params)),
                            *functions.form.symbol_axes})
        self.opaque: dict[Expr, Expr] = {}
        self.numbers: list[str] = []
        self.inside = False
        self.spoken: dict[str, bool] = {}
        self.made: dict[str, bool] = {}
        symbols = {name: name for name in (*functions.fields, *functions.definitions)}
        self.printer = SympyText(functions.plan, symbols | {name + PRIME: f"{name}_new" for name in symbols})

    def speaks_of(self, component: Component) -> bool:
        """Whether a component moves by a formula that SymPy reads."""
        if component.name not in self.spoken:
            self.spoken[component.name] = self._can_speak_of(component)
        return self.spoken[component.name]

    def _can_speak_of(self, component: Component) -> bool:
        try:
            used = [self.functions.components[name] for name in self._held(component)]
            if any(c.monoid not in ADDED for c in (component, *used)):
                return False
            self.text(component.rebase)
            for c in (component, *used):
                self.summand(c)
            return True
        except Unprintable:
            return False

    def _held(self, component: Component) -> list[str]:
        """The components that a rebase moves together with this one; pivots are not among them."""
        pivots = pivots_moved(component.rebase)
        return [name for name in symbol_names(self.real(component.rebase)) if name in self.functions.components and name not in pivots]

    def real(self, expr: Expr) -> Expr:
        """`expr` over the reals: total twins are what they complete, and what is equal to itself is."""
        def over_the_reals(term: Expr) -> Expr:
            if term.op == "anchor":
                return term.args[0]
            if term.op == "where" and is_certain(term.args[0]):
                return term.args[1]
            return call(TOTAL_TWINS[term.op], *term.args) if term.op in TOTAL_TWINS else term

        return rewritten(expr, over_the_reals)

    def generic(self, expr: Expr) -> Expr:
        """`expr` with what SymPy does not read, and no pivot is in, as a number of the element."""
        done: dict[Expr, Expr] = {}
        real = self.real(expr)
        for term in subterms(real):
            done[term] = Expr(term.op, tuple(done[arg] for arg in term.args), term.attrs) if term.args else term
            if not self._is_read(term):
                if any(part.op == "symbol" and part.name in self.printer.symbols for part in subterms(term)):
                    raise Unprintable(term.op)
                done[term] = self.opaque.setdefault(term, self._named(term))
        return tidied(done[real])

    def _is_read(self, term: Expr) -> bool:
        if term.op in ("input", "param", "symbol", "const"):
            return True
        try:
            self.printer.written(Expr(term.op, tuple(const(1) for _ in term.args), term.attrs))
        except Unprintable:
            return False
        return True

    def _named(self, term: Expr) -> Expr:
        if term in self.opaque:
            return self.opaque[term]
        name = self.names.fresh("S" if term.op == "reduce" else "taking" if term.op in ("equal", "less", "greater") else "g")
        self.printer.symbols[name] = name
        return symbol(name, term.axes)

    def summand(self, component: Component) -> Expr:
        """What a component adds up, with a factor 0 or 1 for its mask."""
        lift = self.generic(component.lift)
        if component.mask is None:
            return lift
        if component.monoid != "sum":
            raise Unprintable("a masked product")
        if component.mask not in self.opaque:
            if any(part.op == "symbol" for part in subterms(component.mask)):
                raise Unprintable("a mask with a pivot in it")
            name = self.names.fresh("taking")
            self.printer.symbols[name] = name
            self.opaque[component.mask] = symbol(name, (self.axis,))
        return tidied(call("multiply", self.opaque[component.mask], lift))

    def text(self, expr: Expr) -> str:
        """A formula."""
        return self.printer.text(self.generic(expr))

    # the test

    def lines(self, moving: list[Component]) -> list[str]:
        """The test."""
        self._collected(moving)
        self.numbers = list(self._element_names())
        return self._assembled(self._collected(moving))

    def _collected(self, moving: list[Component]) -> list[str]:
        """Lines of the differences that must be 0; what they speak of is left in `defined` and `free`."""
        self.defined: dict[str, list[str]] = {}
        self.free: dict[str, None] = {}
        laws: list[str] = []
        for component in moving:
            for name in self._held(component):
                self._define(name)
            for name in symbol_names(component.rebase, component.lift):
                self._define(name.removesuffix(PRIME))
                if name.endswith(PRIME):
                    self.free[f"{name.removesuffix(PRIME)}_new"] = None
            new = self._at_new(component)
            laws += wrapped(f'{INDENT * 2}"{component.name}": ', f"{self._added(component, new)} - ({self.text(component.rebase)})")
            laws[-1] += ","
        return laws

    def _assembled(self, laws: list[str]) -> list[str]:
        free = [*self.free, *self._invariant_names()]
        one, two = (" ".join(f"{name}{number}" for name in self.numbers) for number in (1, 2))
        lines = ["def test_moving_sums_to_a_new_pivot_is_an_identity():",
                 f'{INDENT}"""SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""']
        if len(self.numbers) == 1:
            lines += [f'{INDENT}elements = sympy.symbols("{one} {two}", real=True)']
        else:
            lines += wrapped(f"{INDENT}elements = ", f'[sympy.symbols("{one}", real=True), sympy.symbols("{two}", real=True)]')
        if free:
            lines += [f'{INDENT}{", ".join(free)} = sympy.symbols("{" ".join(free)}", real=True)']
        lines += [line for own in self.defined.values() for line in own]
        waves = any(word in line for line in (*lines, *laws) for word in ("sympy.sin", "sympy.cos"))
        read = "difference.rewrite((sympy.sin, sympy.cos), sympy.exp)" if waves else "difference"
        return [*lines, f"{INDENT}differences = {{", *laws, f"{INDENT}}}", f"{INDENT}for name, difference in differences.items():",
                f"{INDENT * 2}assert sympy.simplify(sympy.expand({read})) == 0, name"]

    def _used(self) -> list[Expr]:
        moving = self._moving_names()
        return [self.generic(c.lift) for c in self.functions.form.state if c.name in self.defined or c.name in moving]

    def _moving_names(self) -> set[str]:
        return {c.name for c in self.functions.form.state if not c.fixed and self.speaks_of(c)}

    def _element_names(self) -> Iterator[str]:
        """The numbers of an element that the sums read."""
        terms = subterms(*self._used())
        named = {expr.name for expr in self.opaque.values()}
        yield from dict.fromkeys(
            [spelt(t.name) for t in terms if t.op == "input" and self.axis in t.axes]
            + [t.name for key, t in self.opaque.items() if self.axis in t.axes and t.name in named])

    def _invariant_names(self) -> Iterator[str]:
        terms = subterms(*self._used(), *(self.generic(c.rebase) for c in self.functions.form.state if c.name in self._moving_names()))
        yield from dict.fromkeys(spelt(t.name) for t in terms if t.op == "param" or t.op == "input" and self.axis not in t.axes)
        yield from (t.name for t in self.opaque.values() if self.axis not in t.axes)

    def _define(self, name: str) -> None:
        """Lines for a component or a pivot; what depends on a maximum is any number."""
        if name in self.defined or name in self.free:
            return
        component = self.functions.components.get(name)
        if component is not None and component.monoid in ADDED and (component.fixed or self.speaks_of(component)):
            for pivot in symbol_names(component.lift):
                self._define(pivot)
            self.defined[name] = wrapped(f"{INDENT}{name} = ", self._added(component, self.summand(component)))
        elif name in self.functions.definitions and (self.inside or self._is_mean(name)) and self._is_made_of_sums(name):
            value = self.functions.definitions[name]
            outer, self.inside = self.inside, True
            for part in symbol_names(value):
                self._define(part)
            self.inside = outer
            self.defined[name] = wrapped(f"{INDENT}{name} = ", self.text(value))
        else:
            self.free[name] = None

    def _is_mean(self, name: str) -> bool:
        """Whether a pivot is a mean: about its own, sums may have been dropped that are 0; other pivots may be any number."""
        value = self.functions.definitions[name]
        return value.op == "divide" and value.args[1].op != "const"

    def _is_made_of_sums(self, name: str) -> bool:
        if name not in self.made:
            self.made[name] = False
            self.made[name] = self._can_be_made_of_sums(name)
        return self.made[name]

    def _can_be_made_of_sums(self, name: str) -> bool:
        try:
            self.text(self.functions.definitions[name])
        except Unprintable:
            return False
        parts = symbol_names(self.functions.definitions[name])
        return all(self._is_sum(self.functions.components[part]) if part in self.functions.components else self._is_made_of_sums(part) for part in parts)

    def _is_sum(self, component: Component) -> bool:
        return component.monoid == "sum" and (component.fixed or self.speaks_of(component))

    def _at_new(self, component: Component) -> Expr:
        body = self.summand(component)
        pivots = pivots_moved(component.rebase)
        return substitute(body, {t: primed(t) for t in subterms(body) if t.op == "symbol" and t.name in pivots})

    def _added(self, component: Component, summand: Expr) -> str:
        names = ", ".join(self.numbers)
        return f"{ADDED[component.monoid]}({self.printer.text(summand)} for {names} in elements)"
