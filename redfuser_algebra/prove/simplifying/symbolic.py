"""Expressions as SymPy understands them: one element with a generic index, inner axes written out at length 2.

In: an expression, places on its other axes, and what its symbols stand for.  Out: a SymPy expression.  What a form
only reads as an element (a rounding, a contraction, a comparison free of pivots) is one real unknown.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.language.composition import copied_axis, with_leaves
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.prove.trials.extended import simplest

if TYPE_CHECKING:
    import sympy

Places = Mapping[str, int | str]
"""Where on its axes a term is looked at; an axis that is not mentioned stands for any place."""

Lookup = Callable[[Expr, Places], "sympy.Expr"]
WRITTEN_OUT = 2
"""The length at which an inner axis is written out."""

ASSUMPTIONS = {"greater": "positive", "greater_equal": "nonnegative", "less": "negative", "less_equal": "nonpositive"}


class Untranslated(Exception):
    """A term that SymPy is not asked about."""


class Branch(Exception):
    """A condition that must be taken both ways."""

    def __init__(self, key: object) -> None:
        super().__init__(str(key))
        self.key = key


def sympy_module() -> ModuleType:
    """SymPy, imported when it is first needed."""
    import sympy

    return sympy


@dataclass
class Translation:
    """How terms are translated: signs of leaves, which conditions hold, and what symbols mean.

    `element` numbers the element, so that two of them can be told apart.  `links` maps a comparison with a pivot to
    the conditions that it is made of.
    """

    axis: str
    lookup: Lookup
    signs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    choices: Mapping[object, bool] = field(default_factory=dict)
    links: Callable[[Expr, Expr], Iterable[object] | None] = lambda a, b: None
    element: int = 0

    def __post_init__(self) -> None:
        self.sp = sympy_module()

    def of(self, term: Expr, places: Places = {}) -> sympy.Expr:  # noqa: B006  (never changed)
        """A term with its axes at these places.  Raises Untranslated, and Branch for an open condition."""
        if term.op in _LEAVES:
            return _LEAVES[term.op](self, term, places)
        if term.op in _OPAQUE and not _sees_symbol(term):
            return self.unknown(term, places)
        if term.op in FUNCTIONS and FUNCTIONS[term.op].boolean:
            return self.sp.Integer(int(self.holds(term, places)))
        if term.op == "where":
            return self.of(term.args[1 if self.holds(term.args[0], places) else 2], places)
        if term.op == "reduce":
            return self._written_out(term, places)
        if term.op not in _TRANSLATED:
            return self._rounded(term, places)
        return _TRANSLATED[term.op](self.sp, *(self.of(arg, places) for arg in term.args))

    def _rounded(self, term: Expr, places: Places) -> sympy.Expr:
        if term.op in ("cast", "round") and term.attrs[-1]:
            return self.of(term.args[0], places)
        raise Untranslated(term.op)

    def unknown(self, term: Expr, places: Places) -> sympy.Symbol:
        """A real unknown that stands for a term at these places."""
        at = [f"{axis}{self.element}" if axis == self.axis else str(places.get(axis, axis)) for axis in term.axes]
        name = f"{_canonical(term)}[{','.join(at)}]" if at else repr(term)
        sign = self.signs.get((term.op, term.attrs[0] if term.op in ("input", "param") else ""))
        if FUNCTIONS.get(term.op) and FUNCTIONS[term.op].sign:
            sign = FUNCTIONS[term.op].sign
        return self.sp.Symbol(name, real=True, **({sign: True} if sign else {}))

    def holds(self, condition: Expr, places: Places) -> bool:
        """Whether a condition holds, as chosen.  Raises Branch if that is open."""
        if condition.op == "const":
            return bool(condition.value)
        if condition.op == "logical_not":
            return not self.holds(condition.args[0], places)
        if condition.op in ("logical_and", "logical_or"):
            join = all if condition.op == "logical_and" else any
            return join([self.holds(arg, places) for arg in condition.args])
        if condition.op in ("equal", "not_equal"):
            if len(set(map(_unanchored, condition.args))) == 1:
                return condition.op == "equal"
            if any(arg.op == "const" and abs(arg.value) == float("inf") for arg in condition.args):
                return condition.op == "not_equal"
            links = self.links(*condition.args)
            if links is not None:
                return all([self._chosen(link) for link in links]) == (condition.op == "equal")
        if _sees_symbol(condition):
            raise Untranslated(condition.op)
        return self._chosen(self.unknown(condition, places))

    def _chosen(self, key: object) -> bool:
        if key not in self.choices:
            raise Branch(key)
        return self.choices[key]

    def _written_out(self, term: Expr, places: Places) -> sympy.Expr:
        if term.axis == self.axis or term.count is not None or term.monoid not in _JOINS:
            raise Untranslated(f"{term.monoid} over {term.axis}")
        identity = self.sp.Integer(0 if term.monoid == "sum" else 1)
        parts = []
        for at in range(WRITTEN_OUT):
            here = {**places, term.axis: at}
            if term.mask is None or self.holds(term.mask, here):
                parts.append(self.of(term.body, here))
            elif term.monoid in ("sum", "prod"):
                parts.append(identity)
        if not parts:
            raise Untranslated("a masked maximum of nothing")
        return _JOINS[term.monoid](self.sp, *parts)


def cases(translate: Callable[[Mapping[object, bool]], sympy.Expr], most: int) -> Iterator[sympy.Expr]:
    """What a translation gives for every way its conditions can turn out.  Raises Untranslated beyond `most` cases."""
    todo: list[dict[object, bool]] = [{}]
    found = 0
    while todo:
        choices = todo.pop()
        try:
            value = translate(choices)
        except Branch as branch:
            todo += [{**choices, branch.key: answer} for answer in (True, False)]
            if len(todo) > most:
                raise Untranslated(f"more than {most} cases") from branch
        else:
            found += 1
            yield value


def vanishes(value: sympy.Expr) -> bool:
    """Whether SymPy finds an expression to be 0, by means that end soon."""
    sp = sympy_module()
    if value.is_zero:
        return True
    expanded = sp.expand(value)
    if expanded == 0:
        return True
    for rewrite, largest in ((sp.powsimp, 400), (lambda e: sp.fraction(sp.together(e))[0], 400), (lambda e: e.rewrite(sp.exp), 1000),
                             (lambda e: sp.logcombine(sp.expand_log(e)), 100), (sp.simplify, 40)):
        if sp.count_ops(expanded) <= largest and sp.expand(rewrite(expanded)) == 0:
            return True
    return False


@functools.cache
def _canonical(term: Expr) -> str:
    """A name that does not depend on which copies of its axes a term is read under."""
    if term.op == "input":
        return term.name
    names = {axis: copied_axis(axis) for part in subterms(term) for axis in part.axes}
    apart = len(set(names.values())) == len(names)
    return repr(with_leaves(term, {}, names)) if apart else repr(term)


def _unanchored(term: Expr) -> Expr:
    """A pivot itself: over the reals it is finite."""
    return term.args[0] if term.op == "anchor" else term


@functools.cache
def _sees_symbol(term: Expr) -> bool:
    return any(part.op == "symbol" for part in subterms(term))


def _constant(translation: Translation, term: Expr, places: Places) -> sympy.Expr:
    if isinstance(term.value, float) and not abs(term.value) < float("inf"):
        raise Untranslated(str(term.value))
    value = simplest(term.value) if isinstance(term.value, float) else int(term.value)
    return translation.sp.Rational(getattr(value, "numerator", value), getattr(value, "denominator", 1))


def _index(translation: Translation, term: Expr, places: Places) -> sympy.Expr:
    at = places.get(term.axis)
    return translation.sp.Integer(at) if isinstance(at, int) and term.axis != translation.axis else translation.unknown(term, places)


def _size(translation: Translation, term: Expr, places: Places) -> sympy.Expr:
    if term.axis == translation.axis:
        return translation.lookup(term, places)
    return translation.sp.Symbol(f"N_{term.axis}", integer=True, positive=True)


_LEAVES: dict[str, Callable[[Translation, Expr, Places], sympy.Expr]] = {
    "const": _constant, "index": _index, "size": _size,
    "input": Translation.unknown, "param": Translation.unknown,
    "symbol": lambda translation, term, places: translation.lookup(term, places),
}
_OPAQUE = ("reduce", "cast", "round", "floor", "ceil", "sign", "mod", "floor_divide", "arctan2", "isnan", "maximum",
           "minimum", "tanh", "arctan", "erf")
_JOINS: dict[str, Callable] = {
    "sum": lambda sp, *parts: sp.Add(*parts), "prod": lambda sp, *parts: sp.Mul(*parts),
    "max": lambda sp, *parts: sp.Max(*parts), "min": lambda sp, *parts: sp.Min(*parts),
}
_TRANSLATED: dict[str, Callable] = {
    "add": lambda sp, a, b: a + b, "subtract": lambda sp, a, b: a - b, "shift": lambda sp, a, b: a - b,
    "multiply": lambda sp, a, b: a * b, "scale": lambda sp, a, b: a * b,
    "divide": lambda sp, a, b: a / b, "ratio": lambda sp, a, b: a / b, "scaled": lambda sp, a, b: a / b,
    "power": lambda sp, a, b: a ** b, "negative": lambda sp, a: -a, "reciprocal": lambda sp, a: 1 / a,
    "anchor": lambda sp, a: a, "identity": lambda sp, a: a,
    "exp": lambda sp, a: sp.exp(a), "exp2": lambda sp, a: sp.exp(a * sp.log(2)), "expm1": lambda sp, a: sp.exp(a) - 1,
    "log": lambda sp, a: sp.log(a), "log2": lambda sp, a: sp.log(a) / sp.log(2), "log1p": lambda sp, a: sp.log(1 + a),
    "sqrt": lambda sp, a: sp.sqrt(a), "abs": lambda sp, a: sp.Abs(a), "sign": lambda sp, a: sp.sign(a),
    "sin": lambda sp, a: sp.sin(a), "cos": lambda sp, a: sp.cos(a), "tanh": lambda sp, a: sp.tanh(a),
    "arctan": lambda sp, a: sp.atan(a), "erf": lambda sp, a: sp.erf(a), "logadd": lambda sp, a, b: sp.log(sp.exp(a) + sp.exp(b)),
    "maximum": lambda sp, a, b: sp.Max(a, b), "minimum": lambda sp, a, b: sp.Min(a, b),
}
"""Elementwise functions over the reals; a total twin is the operation it completes."""
