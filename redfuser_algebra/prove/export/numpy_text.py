"""Expressions as the NumPy (or SymPy) that a person would write: `np.sum(np.exp(x - m) * V, axis=0)`.

In: expressions over named axes, and the order of dimensions.  Out: Python text.  There is one spelling per operation;
total twins are calls of small functions (`helpers`), whose names are collected.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr, call, children_replaced, replaced, substitute, subterms, symbol
from redfuser_algebra.language.numpy_text import IDENTITIES, spelt_function, spelt_number, spelt_reduction
from redfuser_algebra.language.text import ATOM, COMPARISON, POWER, PRECEDENCE, UNARY
from redfuser_algebra.language.tidy import tidied

TWINS = {"shift": "minus", "anchor": "finite", "ratio": "ratio", "scaled": "over", "scale": "times"}
"""What total twins are called."""

BITWISE = ("&", "|", "~")
"""Signs that mean something else between numbers that are no truth values."""

TOTAL = "total"
"""What the length of the whole axis is called where it is known beforehand."""


RESERVED = frozenset("""np st sympy given settings arrays NamedTuple State minus finite ratio over times first_largest first_smallest
    best largest places total lift moved merge finalize definition part one two left right state array examples example agree same
    whole want element elements owner of nudged each around beside at_once""".split())
"""Names that the exported files use for something else."""

_OF_TESTS = frozenset("""n at draw three nothing states cuts known number numbers palettes shape difference differences len sum zip range int float getattr
    enumerate isinstance set sorted map between first last assume HealthCheck math ANY POSITIVE UNIT FEW WHOLE SIGNED NEGATIVE""".split())
"""Names that the tests in them use, where inputs are at hand, too."""


def spelt(name: str) -> str:
    """The name of an input or a parameter in an exported file."""
    return f"{name}_" if name in RESERVED | _OF_TESTS else name


class Unprintable(Exception):
    """An operation that has no spelling here."""


@dataclass(frozen=True)
class Layout:
    """The order of dimensions, and where the length of each axis can be read off."""

    order: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]
    axis: str
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)

    def sorted(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes in the order of dimensions."""
        return tuple(sorted(axes, key=self.order.index))

    def length(self, axis: str) -> str:
        """The length of an axis, as text."""
        axis = copied_axis(axis)
        if axis in self.made:
            return self.made[axis]
        name, own = next((name, own) for name, own in self.inputs.items() if axis in own)
        return f"len({spelt(name)})" if own[0] == axis else f"{spelt(name)}.shape[{own.index(axis)}]"


def layout(inputs: Mapping[str, tuple[str, ...]], roots: tuple[Expr, ...], axis: str, own: Mapping[str, tuple[str, ...]],
           ) -> Layout:
    """Dimensions in an order that agrees with the arrays as they are given, as far as one does."""
    given = list(dict.fromkeys(name for axes in inputs.values() for name in axes))
    order: list[str] = []
    while left := [name for name in given if name not in order]:
        free = [name for name in left if not any(
            name in axes and any(before in left for before in axes[: axes.index(name)]) for axes in inputs.values())]
        order.append((free or left)[0])
    made = {}
    for term in subterms(*roots):
        if term.op == "reduce" and term.attrs[2] and term.attrs[2] not in order:
            order.insert(order.index(term.axis) + 1 if term.axis in order else len(order), term.attrs[2])
            made[term.attrs[2]] = term.count
    axes = dict.fromkeys(name for term in subterms(*roots) for name in (*term.axes, *([term.axis] if term.op == "reduce" else [])))
    for name in axes:
        if name not in order:
            order.insert(order.index(copied_axis(name)) + 1 if copied_axis(name) in order else len(order), name)
    lengths = {name: str(count.value) if count.op == "const" else spelt(count.name) for name, count in made.items()}
    return Layout(tuple(order), dict(inputs), axis, dict(own), lengths)


@dataclass(frozen=True)
class Written:
    """Text, how tightly it binds, and its dimensions."""

    text: str
    level: int
    axes: tuple[str, ...] = ()

    def at_least(self, level: int) -> str:
        """The text, in parentheses if it binds less tightly than that."""
        return self.text if self.level >= level else f"({self.text})"


class NumpyText:
    """A printer.  `symbols` are what symbols are called here, `positions` what the positions along the reduced axis are.

    `empty` says that the reduced axis may have no elements, so that a maximum needs a first value.
    """

    flat = False

    def __init__(self, plan: Layout, symbols: Mapping[str, str], positions: str = "", empty: bool = False) -> None:
        self.plan, self.symbols, self.positions, self.empty = plan, symbols, positions, empty
        self.names: dict[Expr, str] = {}
        self.helpers: set[str] = set()

    def text(self, term: Expr) -> str:
        """The formula of a term."""
        return self.written(term).text

    def aligned(self, term: Expr, axes: tuple[str, ...]) -> str:
        """The formula of a term with new dimensions where it lacks some of these axes."""
        return self._along(self.written(term), axes).text

    def written(self, term: Expr) -> Written:
        """The formula of a term, or the name it has."""
        axes = () if self.flat else self.plan.sorted(term.axes)
        if term in self.names:
            return Written(self.names[term], ATOM, axes)
        rule = getattr(self, f"_{term.op}", None)
        return rule(term) if rule else self._function(term, axes)

    # leaves

    def _const(self, term: Expr) -> Written:
        value = term.value
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        text = spelt_number(value)
        return Written(text, UNARY if text.startswith("-") else ATOM)

    def _input(self, term: Expr) -> Written:
        return self._array(spelt(term.name), term.axes, term.axes)

    def _symbol(self, term: Expr) -> Written:
        if term.name not in self.symbols:
            raise Unprintable(f"the symbol {term.name}")
        return self._array(self.symbols[term.name], self.plan.sorted(self.plan.own.get(term.name, term.axes)), term.axes,
                           self.plan.own.get(term.name))

    def _array(self, name: str, stored: tuple[str, ...], axes: tuple[str, ...], own: tuple[str, ...] | None = None) -> Written:
        """An array with its dimensions in order; `axes` are those that its `own` ones are read along."""
        if own is not None and set(own) != set(axes):
            stored = tuple(dict(zip(own, axes, strict=True))[axis] for axis in stored)
        order = self.plan.sorted(stored)
        if order == stored:
            return Written(name, ATOM, order)
        turned = f"{name}.T" if len(order) == 2 else f"np.transpose({name}, {tuple(map(stored.index, order))})"
        return Written(turned, ATOM, order)

    def _param(self, term: Expr) -> Written:
        return Written(spelt(term.name), ATOM)

    def _index(self, term: Expr) -> Written:
        if term.axis == self.plan.axis and self.positions:
            return Written(self.positions, ATOM, (term.axis,))
        return Written(f"np.arange({self.plan.length(term.axis)})", ATOM, (term.axis,))

    def _size(self, term: Expr) -> Written:
        if copied_axis(term.axis) == self.plan.axis != term.axis:
            return Written(TOTAL, ATOM)
        return Written(self.plan.length(term.axis), ATOM)

    # operations

    def _function(self, term: Expr, axes: tuple[str, ...]) -> Written:
        args = [self.written(arg) for arg in term.args]
        infix = FUNCTIONS[term.op].infix if term.op in FUNCTIONS else ""
        if infix in BITWISE and not all(map(_is_truth, term.args)):
            infix = ""
        if infix and len(args) == 2:
            return self._infix(infix, *(self._along(arg, axes) for arg in args), axes)
        if infix:
            return Written(infix + args[0].at_least(UNARY), UNARY, axes)
        if term.op in TWINS:
            self.helpers.add(TWINS[term.op])
        elif term.op not in FUNCTIONS or FUNCTIONS[term.op].source:
            raise Unprintable(term.op)
        name = TWINS.get(term.op) or self._spelt(term.op)
        return Written(f"{name}({', '.join(self._along(arg, axes).text for arg in args)})", ATOM, axes)

    def _spelt(self, op: str) -> str:
        return spelt_function(op)

    def _infix(self, sign: str, left: Written, right: Written, axes: tuple[str, ...]) -> Written:
        level = PRECEDENCE.get(sign, COMPARISON)
        if level == POWER:
            return Written(f"{left.at_least(ATOM)} ** {right.at_least(UNARY)}", level, axes)
        first = left.at_least(level + 1 if level == COMPARISON else level)
        return Written(f"{first} {sign} {right.at_least(level + 1)}", level, axes)

    def _reciprocal(self, term: Expr) -> Written:
        arg = self.written(term.args[0])
        return self._infix("/", Written("1", ATOM), arg, arg.axes)

    def _power(self, term: Expr) -> Written:
        axes = self.plan.sorted(term.axes)
        base, exponent = (self._along(self.written(arg), axes) for arg in term.args)
        if term.args[0].op == "const":
            base = Written(repr(float(term.args[0].value)), ATOM)
        return self._infix("**", base, exponent, axes)

    def _round(self, term: Expr) -> Written:
        """A rounding that may be regrouped is left out on both sides: what is proved then is the form without it."""
        arg = self.written(term.args[0])
        return arg if term.attrs[-1] else Written(f"np.round({arg.text})", ATOM, arg.axes)

    def _cast(self, term: Expr) -> Written:
        if term.attrs[-1]:
            return self.written(term.args[0])
        if term.attrs[0] not in ("float16", "float32", "float64"):
            raise Unprintable(f"a cast to {term.attrs[0]}")
        arg = self.written(term.args[0])
        return Written(f"np.asarray({arg.text}).astype(np.{term.attrs[0]})", ATOM, arg.axes)

    def _reduce(self, term: Expr) -> Written:
        monoid = MONOIDS[term.monoid]
        if monoid.source:
            raise Unprintable(f"the monoid {term.monoid}")
        body, axes = self.written(term.body), self.plan.sorted(tuple(dict.fromkeys((*term.body.axes, *(term.mask.axes if term.mask is not None else ())))))
        if term.mask is not None:
            inside = self._along(self.written(term.mask), axes).text
            body = Written(f"np.where({inside}, {self._along(body, axes).text}, {IDENTITIES[term.monoid]})", ATOM, axes)
        left = tuple(axis for axis in axes if axis != term.axis)
        if term.axis not in axes:
            return self._of_invariant(term, body)
        place = axes.index(term.axis)
        if monoid.counted:
            self.helpers.add("places" if monoid.indexed else "largest")
            made = (*axes[:place], term.attrs[2], *axes[place + 1:])
            word = "places" if monoid.indexed else "largest"
            return Written(f"{word}({body.text}, {self.text(term.count)}, axis={place})", ATOM, made)
        if monoid.indexed and term.mask is not None:
            word = {"argmax": "first_largest", "argmin": "first_smallest"}[term.monoid]
            self.helpers.add(word)
            at = self.aligned(call("where", term.mask, Expr("index", (), (term.axis,)), -1), axes)
            return Written(f"{word}({body.text}, {at}, axis={place})[1]", ATOM, left)
        where = f", axis={place}" if len(axes) > 1 else ""
        choosing = term.monoid in ("max", "min", "fmax", "fmin") and self.empty and term.axis == self.plan.axis
        first = f", initial={IDENTITIES[term.monoid]}" if choosing else ""
        return Written(f"{spelt_reduction(term.monoid)}({body.text}{where}{first})", ATOM, left)

    def _of_invariant(self, term: Expr, body: Written) -> Written:
        """⊕ of as many equal elements as the axis is long."""
        length = self._size(Expr("size", (), (term.axis,)))
        if term.monoid == "sum":
            return length if body.text == "1" else self._infix("*", body, length, body.axes)
        return self._infix("**", body, length, body.axes) if term.monoid == "prod" else body

    def _along(self, arg: Written, axes: tuple[str, ...]) -> Written:
        """An operand with new dimensions where the result has some that it lacks."""
        if not arg.axes or arg.axes == axes[len(axes) - len(arg.axes):]:
            return arg
        places = [":" if axis in arg.axes else "None" for axis in axes[axes.index(arg.axes[0]):]]
        inner = places[: len(places) - places[::-1].index(":")]
        if "None" not in inner:
            index = ", ".join(["...", *["None"] * (len(places) - len(inner))])
        else:
            while places[-1] == ":":
                places.pop()
            index = ", ".join(places)
        return Written(f"{arg.at_least(ATOM)}[{index}]", ATOM, axes)


class SympyText(NumpyText):
    """The same for one element in SymPy, over the reals: no dimensions, and total twins are what they complete."""

    flat = True

    def __init__(self, plan: Layout, symbols: Mapping[str, str]) -> None:
        super().__init__(plan, symbols)

    def _array(self, name: str, stored: tuple[str, ...], axes: tuple[str, ...], own: tuple[str, ...] | None = None) -> Written:
        return Written(name, ATOM)

    def _spelt(self, op: str) -> str:
        if op not in ("exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "sign"):
            raise Unprintable(op)
        return f"sympy.{op.capitalize() if op == 'abs' else op}"

    def _const(self, term: Expr) -> Written:
        if isinstance(term.value, float) and not term.value.is_integer():
            return Written(f"sympy.Rational('{term.value!r}')", ATOM)
        return super()._const(term)

    def _power(self, term: Expr) -> Written:
        return self._infix("**", *map(self.written, term.args), ())

    def _reduce(self, term: Expr) -> Written:
        raise Unprintable("a reduction")

    def _index(self, term: Expr) -> Written:
        raise Unprintable("a position")

    def _size(self, term: Expr) -> Written:
        raise Unprintable("a length")


def _is_truth(term: Expr) -> bool:
    """Whether NumPy has truth values for a term, and no numbers."""
    if term.op == "where":
        return all(map(_is_truth, term.args[1:]))
    if term.op == "reduce":
        return term.monoid in ("any", "all") and _is_truth(term.body)
    return term.op in FUNCTIONS and FUNCTIONS[term.op].boolean


def readable(expr: Expr) -> Expr:
    """`expr` tidied for reading, with its total twins left where they are: they say what happens at ±inf and 0."""
    holes: dict[Expr, Expr] = {}

    def hole(term: Expr) -> Expr | None:
        if term.op not in TOTAL_TWINS:
            return None
        made = symbol(f"·{len(holes)}", term.axes)
        holes[made] = children_replaced(term, tuple(map(readable, term.args)))
        return made

    return substitute(tidied(replaced(expr, hole)), holes)
