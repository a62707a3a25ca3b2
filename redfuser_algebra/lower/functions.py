"""Loops over columns and tile elements as small functions of generated Python.

A function gets slices of arrays and scalars, one per leaf of its formulas, and works at one row.  Each subterm is
computed in the outermost loop that knows all its axes, and once.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.composition import copied_axis
from redfuser_algebra.language.expr import Expr, call, children_replaced, subterms
from redfuser_algebra.lower.kinds import kinds
from redfuser_algebra.lower.precision import is_difference
from redfuser_algebra.lower.scalar_code import Code, constant, elementwise, prefers_single

_REAL = ("f4", "f8", "real")
"""Types of real numbers."""

MANY_LOOPS = 8
"""Loops of a function outside the sweep over elements from which on it is compiled for size."""


@dataclass(frozen=True)
class Leaf:
    """A leaf as seen inside a row: its variable, the axes left to index (in order), its type, and the caller's code."""

    variable: str
    axes: tuple[str, ...]
    type: str
    given: str


@dataclass
class Loop:
    """One level of a nest: the axis it runs over ("" for none), its lines, and what is known there."""

    axis: str
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[Expr, bool], Code] = field(default_factory=dict)


@dataclass(frozen=True)
class Scope:
    """What a function sees where it is called: what leaves of formulas are, and the caller's code for lengths of axes.

    Loops over axes with a `fixed` length are written out; loops over `short` axes are not worth vectors.
    """

    leaf: Callable[[Expr], Leaf]
    sizes: Mapping[str, str]
    fixed: Mapping[str, int] = field(default_factory=dict)
    short: Collection[str] = ()


class Function:
    """A function under construction: `nest` holds the loops that are open, outermost first.

    `results` maps each variable that is returned to where the caller puts it.  While `partial` holds, total twins are
    the operations that they complete.  Real numbers in loops are of type `wide`; where that is `real`, the caller says
    which type it is.  Arrays are read at `places`, where an axis has one, instead of at the variable of its loop.  Where it
    is `ordered`, it goes from state to state and nothing is reordered.  Where it `inverts`, a loop multiplies by the inverse
    of what is the same all the time; where it `picks`, a sum of one element at a known place reads that alone.
    `instructions` are templates of operations that the target has functions for; of a term that `falls` it has another exponential.
    """

    picks = inverts = True
    instructions: Mapping[str, str] = MappingProxyType({"anchor": "anchored({0})", "scale": "times({0}, {1})"})

    def __init__(self, name: str, scope: Scope, wide: str) -> None:
        self.name, self.scope, self.wide = name, scope, wide
        self.partial, self.ordered, self.guards = False, False, {}
        self.falls: Callable[[Expr], bool] = lambda term: False
        self.nest = [Loop("")]
        self.places: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.results: dict[str, str] = {}
        self.types: dict[Expr, str] = {}
        self.temporaries = 0

    def accumulator(self, into: str, monoid: str, type_: str) -> Accumulator:
        """⊕ into a variable, as the target writes it."""
        return Accumulator(into, monoid, type_)

    def argument(self, variable: str, given: str) -> str:
        """The name of an argument, for which the caller writes `given`."""
        self.arguments[variable] = given
        return variable

    def index(self, axis: str) -> str:
        """The variable of the loop over an axis."""
        return f"i_{axis}"

    def line(self, text: str) -> None:
        """A statement in the innermost open loop."""
        self.nest[-1].lines.append(text)

    def open(self, axis: str) -> None:
        """Open a loop over an axis."""
        self.nest.append(Loop(axis))

    def close(self) -> None:
        """Close the innermost loop and put it where it was opened."""
        loop = self.nest.pop()
        if loop.axis in self.scope.fixed:
            for place in range(self.scope.fixed[loop.axis]):
                self.nest[-1].lines += self._turn(loop, place)
            return
        size = self.argument(*_size_argument(loop.axis, self.scope.sizes))
        self.line(f"for {self.index(loop.axis)} in range({size}):")
        self.nest[-1].lines += [f"    {line}" for line in loop.lines]

    def close_at(self, place: int) -> None:
        """Close the innermost loop, of which one turn is all that matters."""
        loop = self.nest.pop()
        self.line(f"if {place} < {self.argument(*_size_argument(loop.axis, self.scope.sizes))}:")
        self.nest[-1].lines += [f"    {line}" for line in self._turn(loop, place)]

    def _turn(self, loop: Loop, place: int) -> list[str]:
        return [re.sub(rf"\b{self.index(loop.axis)}\b", str(place), line) for line in loop.lines]

    def code(self, term: Expr) -> Code:
        """A term's value, computed in the outermost open loop that has all its axes."""
        for loop in self.nest:
            if (term, self.partial) in loop.known:
                return loop.known[term, self.partial]
        self._learn_types(term)
        depth = self._depth(term)
        outer, self.nest = self.nest, self.nest[: depth + 1]
        code = self._computed(term, depth)
        self.nest[-1].known[term, self.partial] = code
        self.nest = outer
        return code

    def _depth(self, term: Expr) -> int:
        """The outermost open loop that has all axes of a term."""
        return max((place for place, loop in enumerate(self.nest) if loop.axis in term.axes), default=0)

    def forget(self, name: str) -> None:
        """A symbol has another value from here on."""
        for loop in self.nest:
            loop.known = {key: code for key, code in loop.known.items() if not any(t.op == "symbol" and t.name == name for t in subterms(key[0]))}

    def _learn_types(self, term: Expr) -> None:
        if term not in self.types:
            self.types |= kinds(term, lambda leaf: {"f4": "f", "f8": "f", "i8": "i", "b1": "b"}[self.scope.leaf(leaf).type])

    def _type(self, term: Expr, depth: int) -> str:
        kind = self.types[term]
        return {"i": "i8", "b": "b1"}.get(kind) or ("f8" if depth == 0 or self.wide == "real" and not self._varies(term) else self.wide)

    def type_in_loop(self, term: Expr) -> str:
        """The type in which a loop over columns computes a term."""
        self._learn_types(term)
        return self._type(term, 1)

    def _varies(self, term: Expr) -> bool:
        """Whether a term is another one for each element of a tile."""
        return any(f"tile {axis}" in self.scope.sizes for axis in term.axes)

    def _computed(self, term: Expr, depth: int) -> Code:
        type_ = self._type(term, depth)
        if term.op in ("input", "param", "symbol"):
            return self._read(term).to(type_) if self.types[term] == "f" else self._read(term)
        if term.op == "const":
            return constant(term.value, {"f": self.wide if len(self.nest) > 1 else "f8", "i": "i8", "b": "b1"}[self.types[term]])
        if term.op == "size":
            return Code(self.argument(*_size_argument(term.axis, self.scope.sizes, whole=True)), "i8")
        if term.op == "index":
            return self._position(term.axis)
        if term.op == "reduce":
            return self._sum(term, type_)
        if term.op in ("multiply", "scale") and term.args[1].op == "const" and term.args[1].value == 1:
            return self.code(term.args[0]).to(type_)
        if self._divides_by_invariant(term, depth):
            inverse = self.code(call("reciprocal", term.args[1])).to(type_)
            return self._named(Code(f"{self.code(term.args[0]).to(type_).text} * {inverse.text}", type_, atom=False))
        if self.wide == "real" and is_difference(term) and self._varies(term):
            return self._named(self._difference(*map(self.code, term.args)))
        own = self.instructions | ({"exp": "decay{w}({0})"} if term.op == "exp" and self.falls(term.args[0]) else {})
        looped = any(loop.axis not in self.scope.short for loop in self.nest[1:])
        return self._named(elementwise(term, self._args(term), type_, self.partial, looped=looped, own=own))

    def _difference(self, a: Code, b: Code) -> Code:
        """a − b, which no compiler may take apart; of an element and a pivot as exact as if that were an element."""
        if "real" not in (a.type, b.type):
            return Code(f"{a.to('real').text} - {b.to('real').text}", "real", atom=False)
        if a.type == b.type:
            return Code(f"minus({a.text}, {b.text})", "real", atom=False)
        element, pivot, sign = (a, b, "") if a.type == "real" else (b, a, "-")
        return Code(f"{sign}apart({element.text}, {pivot.to('f8').text}, real)", "real", atom=False)

    def _divides_by_invariant(self, term: Expr, depth: int) -> bool:
        """Whether a loop would divide by the same number all the time; its inverse is taken once, in float64."""
        return self.inverts and depth > 0 and term.op == "divide" and not [loop for loop in self.nest[1:] if loop.axis in term.args[1].axes]

    def _args(self, term: Expr) -> list[Code]:
        """The operands; a number is written in the type of the real ones that it meets."""
        codes = [None if arg.op == "const" else self.code(arg) for arg in term.args]
        real = [code.type for code in codes if code is not None and code.type in _REAL]
        meets = real[-1] if real else self._type(term, len(self.nest) - 1)
        return [code or self._number(arg, term, meets) for code, arg in zip(codes, term.args, strict=True)]

    def _number(self, const: Expr, term: Expr, meets: str) -> Code:
        if isinstance(const.value, bool) or term.op == "where" or meets not in _REAL:
            return self.code(const)
        return constant(const.value, meets)

    def _named(self, code: Code) -> Code:
        self.temporaries += 1
        name = f"t{self.temporaries}"
        self.line(f"{name} = {code.text}")
        return Code(name, code.type)

    def _read(self, term: Expr) -> Code:
        leaf = self.scope.leaf(term)
        variable = self.argument(leaf.variable, leaf.given)
        named = dict(zip(map(copied_axis, term.axes), term.axes, strict=True))
        order = term.axes if term.op == "symbol" and set(term.axes) != set(leaf.axes) and len(term.axes) == len(leaf.axes) else ()
        self.guards |= {f"{variable}.shape[{dim}]": self.scope.fixed[axis] for dim, axis in enumerate(leaf.axes) if axis in self.scope.fixed}
        places = order or tuple(axis if axis in term.axes else named[axis] for axis in leaf.axes)
        text = f"{variable}[{', '.join(self.places.get(axis) or self.index(axis) for axis in places)}]" if leaf.axes else variable
        return Code(text, leaf.type)

    def _position(self, axis: str) -> Code:
        """The absolute position along an axis; inside a tile its start is added."""
        if axis in [loop.axis for loop in self.nest]:
            start = self.scope.sizes.get(f"start {axis}", "")
            return Code(f"({self.argument('start', start)} + {self.index(axis)})" if start else self.index(axis), "i8")
        return Code(self.argument(self.index(axis), self.index(axis)), "i8")

    def _sum(self, term: Expr, type_: str) -> Code:
        """A reduction inside a formula: a loop of its own."""
        self.temporaries += 1
        into = f"t{self.temporaries}"
        accumulator = self.accumulator(into, term.monoid, type_)
        for line in accumulator.first():
            self.line(line)
        found = picked(term.body, term.axis) if self.picks and term.mask is None else None
        known = found if found and _is_known(found[0]) else None
        self.open(term.axis)
        mask = None if term.mask is None else self.code(term.mask).to("b1").text
        value = self.code(known[1] if known else term.body)
        for line in accumulator.then(value, mask, self._position(term.axis).text):
            self.line(line)
        if known:
            self.close_at(known[0].value)
        else:
            self.close()
        return Code(into, type_)

    def text(self, loop: bool) -> str:
        """The definition; a loop over elements may be reordered, and the rest is computed as written."""
        lines = self.nest[0].lines
        loops = sum(line.lstrip().startswith("for ") for line in lines)
        body = ["wide_vectors()", *self._guarded(), *lines] if loop else [*(["seldom()"] if loops > MANY_LOOPS else []), *lines]
        if self.results:
            body.append("return " + ", ".join(self.results))
        flags = 'PART, fastmath={"contract"}' if self.ordered else "LOOP" if loop else "PART"
        return "\n".join([f"@njit(**{flags})", f"def {self.name}({', '.join(self.arguments)}):", *(f"    {line}" for line in body or ["pass"]), ""])

    def _guarded(self) -> list[str]:
        """From here on the compiler, too, knows how far apart the elements of a column are."""
        wrong = " or ".join(f"{extent} != {length}" for extent, length in self.guards.items())
        return [f"if {wrong}:", '    raise ValueError("this kernel was printed for another number of columns")'] if wrong else []

    def call(self) -> str:
        """The caller's statement."""
        called = f"{self.name}({', '.join(self.arguments.values())})"
        return f"{', '.join(self.results.values())} = {called}" if self.results else called


def indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Lines further in."""
    return ["    " * levels + line if line else "" for line in lines]


def picked(term: Expr, axis: str) -> tuple[Expr, Expr] | None:
    """The one position along an axis at which a term may differ from 0, as in Σ [l = 2]·x, and the term without that condition."""
    if term.op == "reduce" and term.monoid == "sum" and term.mask is None and term.axis != axis:
        found = picked(term.body, axis)
        return (found[0], children_replaced(term, (found[1],))) if found and term.axis not in found[0].axes else None
    if term.op != "where" or term.args[2].op != "const" or term.args[2].value != 0:
        return None
    condition, value, zero = term.args
    if condition.op == "logical_and":
        return picked(call("where", condition.args[0], call("where", condition.args[1], value, zero), zero), axis)
    at, place = sorted(condition.args, key=lambda arg: arg.op != "index" or arg.axis != axis) if condition.op == "equal" else (condition, condition)
    if at.op == "index" and at.axis == axis and axis not in place.axes:
        return place, value
    found = picked(value, axis)
    return found and (found[0], call("where", condition, found[1], zero))


def _is_known(place: Expr) -> bool:
    return place.op == "const" and isinstance(place.value, int) and place.value >= 0


def _size_argument(axis: str, sizes: Mapping[str, str], whole: bool = False) -> tuple[str, str]:
    """The name and the caller's code of an axis's length; inside a tile a loop is shorter than the axis."""
    if not whole and f"tile {axis}" in sizes:
        return "n", sizes[f"tile {axis}"]
    return f"n_{axis}", sizes.get(axis, f"n_{axis}")


@dataclass(frozen=True)
class Accumulator:
    """⊕ into a variable (or an array element): how it starts, and what an element does to it."""

    into: str
    monoid: str
    type: str

    def identity(self) -> str:
        """The value of no elements."""
        identity, type_ = MONOIDS[self.monoid].identity, "i8" if MONOIDS[self.monoid].indexed else self.type
        if type_ == "i8" and math.isinf(identity):
            identity = math.copysign(1, identity) * 2**62
        return constant(identity, type_).text

    def first(self) -> list[str]:
        """Statements before the loop."""
        lines = [f"{self.into} = {self.identity()}"]
        if MONOIDS[self.monoid].indexed:
            lines.append(f"{self.into}{WON} = {'inf' if self.monoid == 'argmin' else '-inf'}")
        return lines

    def then(self, value: Code, mask: str | None, position: str, won: str = "") -> list[str]:
        """Statements for one element; `mask` says whether it takes part, `won` is where a position's value is kept."""
        if self.monoid in ("argmax", "argmin"):
            return self._position(value.to("f8").text, mask, position, won or f"{self.into}{WON}")
        value = value.to(self.type)
        taken = value.text if mask is None else f"({value.text} if {mask} else {self.identity()})"
        return [f"{self.into} = {joined(self.monoid, self.into, taken, self.type)}"]

    def _position(self, value: str, mask: str | None, position: str, won: str) -> list[str]:
        sign = "" if self.monoid == "argmax" else "-"
        condition = f"comes_first({sign}{value}, {sign}{won}, {self.into})"
        condition = condition if mask is None else f"{mask} and {condition}"
        return [f"if {condition}:", f"    {self.into}, {won} = {position}, {value}"]


def joined(monoid: str, a: str, b: str, type_: str) -> str:
    """a ⊕ b as code."""
    if monoid in ("max", "min") and type_ == "i8":
        return f"{monoid}({a}, {b})"
    return {"sum": "{} + {}", "prod": "{} * {}", "max": "larger({}, {})", "min": "smaller({}, {})", "any": "{} | {}", "all": "{} & {}",
            "fmax": "np.fmax({}, {})", "fmin": "np.fmin({}, {})"}[monoid].format(a, b)


def computed_in_single(terms: list[Expr], axes: tuple[str, ...]) -> bool:
    """Whether a loop over `axes` computes in float32 where numbers are stored so."""
    return any(prefers_single(term) for term in subterms(*terms) if set(axes) & set(term.axes))
