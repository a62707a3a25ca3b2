"""What an expression is over the reals: a polynomial whose unknowns are what no ring law takes apart.

In: expressions.  Out: polynomials, equal only where the expressions are.  Sums over axes are linear, what does not
vary leaves them, sums of sums are one sum, and a sum of a product in which axes do not meet is a product of sums.
Nothing computes with a polynomial: it tells what vanishes, such as Σ (x − mean x).
"""
from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from redfuser_algebra.algebra.functions import COMPARISONS
from redfuser_algebra.language.expr import Expr, subterms

LARGEST = 60
"""Terms of a polynomial; a larger one is left as one unknown, which hides what vanishes and invents nothing."""


class Unknown(NamedTuple):
    """What is taken as it is: a leaf, a function of polynomials, a sum over the axes `bound`, or a sum as a divisor."""

    op: str
    parts: tuple
    axes: frozenset[str]
    bound: frozenset[str] = frozenset()


Number = int | Fraction
Monomial = frozenset[tuple[Unknown, int]]
Polynomial = dict[Monomial, Number]

_ONE: Monomial = frozenset()


class Polynomials:
    """The polynomials of expressions, each made once."""

    def __init__(self) -> None:
        self.known: dict[Expr, Polynomial] = {}

    def vanishes(self, expr: Expr) -> bool:
        """Whether `expr` is 0 for all real values; False where that is not seen."""
        return not self.of(expr)

    def of(self, expr: Expr) -> Polynomial:
        """The polynomial of an expression."""
        for term in subterms(expr):
            if term not in self.known:
                found = _RULES.get(term.op, _unknown)(term, [self.known[arg] for arg in term.args])
                self.known[term] = found if len(found) <= LARGEST else _alone(Unknown("large", (term,), frozenset(term.axes)))
        return self.known[expr]


def _alone(unknown: Unknown, power: int = 1) -> Polynomial:
    return {frozenset({(unknown, power)}): 1}


def _key(polynomial: Polynomial) -> frozenset:
    return frozenset(polynomial.items())


def _unknown(term: Expr, args: list[Polynomial]) -> Polynomial:
    return _alone(Unknown(term.op, (term.attrs, *map(_key, args)), frozenset(term.axes)))


def _const(term: Expr, args: list[Polynomial]) -> Polynomial:
    if term.value != term.value or abs(term.value) == float("inf"):
        return _unknown(term, args)
    return {_ONE: int(term.value) if term.value == int(term.value) else Fraction(term.value)} if term.value else {}


def _plus(a: Polynomial, b: Polynomial, times: int = 1) -> Polynomial:
    total = dict(a)
    for monomial, number in b.items():
        total[monomial] = total.get(monomial, 0) + times * number
    return {monomial: number for monomial, number in total.items() if number}


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    if len(a) * len(b) > 10 * LARGEST:
        return _alone(Unknown("product", (_key(a), _key(b)), _axes(a) | _axes(b)))
    for one, number in a.items():
        for other, factor in b.items():
            monomial = _joined(one, other)
            total[monomial] = total.get(monomial, 0) + number * factor
    return {monomial: number for monomial, number in total.items() if number}


def _joined(one: Monomial, other: Monomial) -> Monomial:
    powers = dict(one)
    for unknown, power in other:
        powers[unknown] = 1 if unknown.op == "if" else powers.get(unknown, 0) + power
    return frozenset((unknown, power) for unknown, power in powers.items() if power)


def _axes(polynomial: Polynomial) -> frozenset[str]:
    return frozenset(axis for monomial in polynomial for unknown, _ in monomial for axis in unknown.axes)


def _inverse(a: Polynomial) -> Polynomial:
    if len(a) == 1:
        [(monomial, number)] = a.items()
        if all(unknown.op != "if" for unknown, _ in monomial):
            return {frozenset((unknown, -power) for unknown, power in monomial): number if number in (1, -1) else 1 / Fraction(number)}
    return _alone(Unknown("whole", (_key(a),), _axes(a)), -1)


def _power(term: Expr, args: list[Polynomial]) -> Polynomial:
    exponent = term.args[1].value if term.args[1].op == "const" else 0.5
    if exponent not in range(-4, 5):
        return _unknown(term, args)
    base, result = args[0] if exponent >= 0 else _inverse(args[0]), {_ONE: 1}
    for _ in range(abs(int(exponent))):
        result = _times(result, base)
    return result


def _truth(condition: Expr, value: Polynomial) -> Polynomial:
    """1 where a condition holds, otherwise 0: its own value if that is a truth value, not if it may be any number."""
    boolean = condition.op in _COMPARISONS or condition.op in _LOGIC or condition.op == "const" and isinstance(condition.value, bool)
    return value if boolean else _alone(Unknown("if", ("holds", _key(value)), frozenset(condition.axes)))


def _comparison(term: Expr, args: list[Polynomial]) -> Polynomial:
    return _alone(Unknown("if", (term.op, term.attrs, *map(_key, args)), frozenset(term.axes)))


def _logic(term: Expr, args: list[Polynomial]) -> Polynomial:
    truths = [_truth(arg, value) for arg, value in zip(term.args, args, strict=True)]
    return _times(*truths) if term.op == "logical_and" else _plus({_ONE: 1}, truths[0], -1)


def _where(term: Expr, args: list[Polynomial]) -> Polynomial:
    holds = _truth(term.args[0], args[0])
    return _plus(_times(holds, args[1]), _plus(args[2], _times(holds, args[2]), -1))


def _reduce(term: Expr, args: list[Polynomial]) -> Polynomial:
    if term.monoid != "sum":
        return _unknown(term, args)
    total: Polynomial = {}
    for monomial, number in (args[0] if term.mask is None else _times(args[0], _truth(term.mask, args[1]))).items():
        total = _plus(total, {_summed(monomial, term.axis): number})
    return total


def _summed(monomial: Monomial, axis: str) -> Monomial:
    """Σ over an axis of a product: what does not vary comes out, what is summed already is summed together."""
    varying = {pair for pair in monomial if axis in pair[0].axes}
    if not varying:
        return _joined(monomial, frozenset({(Unknown("size", ((axis,),), frozenset()), 1)}))
    names = [name for unknown, _ in varying for name in (*unknown.axes, *unknown.bound)]
    bound, inside = {axis}, _ONE
    for unknown, power in varying:
        merges = unknown.op == "sum" and power == 1 and all(names.count(name) == 1 for name in unknown.bound)
        bound |= unknown.bound if merges else set()
        inside = _joined(inside, unknown.parts[0] if merges else frozenset({(unknown, power)}))
    outside = monomial - varying
    for part, axes in _components(inside, bound):
        free = frozenset(name for unknown, _ in part for name in unknown.axes) - axes
        outside = _joined(outside, frozenset({(Unknown("sum", (part,), free, axes), 1)}) if axes else part)
    return outside


def _components(factors: Monomial, bound: set[str]) -> list[tuple[Monomial, frozenset[str]]]:
    """The factors in groups that share no bound axis, with the bound axes of each."""
    groups: list[tuple[set, set[str]]] = []
    for factor in factors:
        parts, axes = {factor}, set(factor[0].axes) & bound
        apart = []
        for group in groups:
            if group[1] & axes:
                parts, axes = parts | group[0], axes | group[1]
            else:
                apart.append(group)
        groups = [*apart, (parts, axes)]
    return [(frozenset(parts), frozenset(axes)) for parts, axes in groups]


_COMPARISONS = COMPARISONS | {"isnan"}
_LOGIC = ("logical_and", "logical_not")

_RULES = {
    "const": _const, "power": _power, "where": _where, "reduce": _reduce,
    **dict.fromkeys(_COMPARISONS, _comparison), **dict.fromkeys(_LOGIC, _logic),
    "add": lambda term, args: _plus(*args),
    "subtract": lambda term, args: _plus(*args, -1),
    "negative": lambda term, args: _plus({}, args[0], -1),
    "multiply": lambda term, args: _times(*args),
    "divide": lambda term, args: _times(args[0], _inverse(args[1])),
    "reciprocal": lambda term, args: _inverse(args[0]),
    "size": lambda term, args: _alone(Unknown("size", (term.attrs,), frozenset())),
}
