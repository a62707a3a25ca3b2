"""The properties that declarations claim: of monoids, of functions, and of laws.

In: a row, or a law.  Out: nothing; `Examiner` keeps the record, and raises FalseDeclaration.  Record is not proved.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from redfuser_algebra.algebra.functions import Function
from redfuser_algebra.algebra.monoids import MONOIDS, Monoid
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.language.law_text import SIGN_CONDITIONS, STILL, Statement
from redfuser_algebra.prove.declaring.law_values import (
    FLOATS, RATIONALS, WHOLE, Numbers, TooLarge, Undefined, agree, applied, as_number, is_finite, kinds_of, values_of)
from redfuser_algebra.prove.declaring.testing import Examiner, Property, Seen

LONGEST = 4
"""Elements of the longest axis that laws are tried on."""

STEP = 1e-6
"""How far apart the values are that slopes are measured between."""

DOMAINS = {"real": "", "nonnegative": "nonnegative", "positive": "positive", "unit": "unit", "integer": "", "natural": "nonnegative"}
"""What a monoid may be declared on: all reals, those ≥ 0, > 0, from 0 to 1; whole numbers, and those ≥ 0."""

_LOGICAL = ("logical_and", "logical_or", "logical_not")
_HOLDS = {"positive": lambda value: value > 0, "nonnegative": lambda value: value >= 0, "": lambda value: value == value,
          "unit": lambda value: (value >= 0) & (value <= 1)}
_KINDS = {True: (WHOLE,), False: (RATIONALS, FLOATS)}


def _given(numbers: Numbers, values: tuple) -> dict[str, np.ndarray]:
    return {letter: numbers.array([value]) for letter, value in zip("abc", values, strict=False)}


# monoids

def check_monoid(examiner: Examiner, row: Monoid, domain: str) -> None:
    """Closed on its domain, with the identity on both sides, associative, and commutative where that is declared."""
    name, sign, e = row.name, DOMAINS[domain], as_number(row.identity)
    remedy = f"correct it, or declare the domain it is a monoid on: domain= one of {', '.join(DOMAINS)}"

    def equation(text: str, size: int, left: Callable, right: Callable, remedy: str = remedy) -> None:
        def look(numbers: Numbers, values: tuple) -> Seen:
            given, met = _given(numbers, values), []
            op, identity = _recording(row.apply, numbers, met), numbers.array([e])
            sides = tuple(side(op, identity, *given.values()) for side in (left, right))
            return Seen(given, sides, agree(*sides, (*given.values(), *met)))

        examiner.check(Property(text, elements(size), look, remedy), _KINDS[row.whole])

    def elements(size: int) -> Callable[[Numbers], st.SearchStrategy]:
        return lambda numbers: st.tuples(*[numbers.drawn(sign) | st.just(e)] * size)

    def closed(numbers: Numbers, values: tuple) -> Seen:
        given = _given(numbers, values)
        result = applied(row.apply, given.values(), numbers)
        return Seen(given, (result,), bool(np.all(_HOLDS[sign](result) | (result == row.identity))))

    inside = {"": "a number", "unit": "from 0 to 1"}.get(sign, sign)
    examiner.check(Property(f"{name}(a, b) is {inside}", elements(2), closed, remedy), _KINDS[row.whole])
    equation(f"{name}({row.identity}, a) = a", 1, lambda op, e, a: op(e, a), lambda op, e, a: a)
    equation(f"{name}(a, {row.identity}) = a", 1, lambda op, e, a: op(a, e), lambda op, e, a: a)
    equation(f"{name}({name}(a, b), c) = {name}(a, {name}(b, c))", 3,
             lambda op, e, a, b, c: op(op(a, b), c), lambda op, e, a, b, c: op(a, op(b, c)))
    if row.commutative:
        equation(f"{name}(a, b) = {name}(b, a)", 2, lambda op, e, a, b: op(a, b), lambda op, e, a, b: op(b, a),
                 "declare it with commutative=False")


def _recording(apply: Callable, numbers: Numbers, met: list[np.ndarray]) -> Callable:
    def op(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        met.append(applied(apply, (a, b), numbers))
        return met[-1]

    return op


def nan_behaviour(apply: Callable) -> str:
    """What a NaN among the elements does: "propagates", "skipped" or "varies"."""
    usual, nan = np.array([1.5, -2.0]), np.array([math.nan, math.nan])
    with np.errstate(all="ignore"):
        found = np.concatenate([apply(usual, nan), apply(nan, usual)])
    if np.isnan(found).all():
        return "propagates"
    return "skipped" if (found == np.concatenate([usual, usual])).all() else "varies"


# functions

def check_function(examiner: Examiner, row: Function) -> None:
    """How it moves with each argument, and its sign."""
    for place, mark in enumerate(row.monotone):
        if mark:
            _check_mark(examiner, row, place, mark)
    if row.sign:
        _check_sign(examiner, row, "nonnegative", Numbers.drawn)
    if row.sign == "positive":
        _check_sign(examiner, row, "positive", Numbers.apart)


def _check_sign(examiner: Examiner, row: Function, sign: str, pool: Callable[[Numbers], st.SearchStrategy]) -> None:
    def look(numbers: Numbers, values: tuple) -> Seen:
        given = _given(numbers, values)
        result = _value(row, given, numbers)
        return Seen(given, (result,), bool(np.all(_HOLDS[sign](result))))

    claim = Property(f"{_call(row)} is {sign}", lambda numbers: st.tuples(*[pool(numbers)] * row.arity), look, "leave the sign out")
    examiner.check(claim, _KINDS[row.whole])


def _check_mark(examiner: Examiner, row: Function, place: int, mark: str) -> None:
    moved, sign = "abc"[place], {"s": "<", "+": "<=", "-": ">="}[mark]

    def look(numbers: Numbers, values: tuple) -> Seen:
        low, high = sorted((values[place], values[-1]))
        if low == high:
            raise Undefined("there is nothing to compare")
        given = _given(numbers, values[:-1]) | {moved: numbers.array([low])}
        second = numbers.array([high])
        results = _value(row, given, numbers), _value(row, given | {moved: second}, numbers)
        return Seen(given | {f"{moved}'": second}, results, _ordered(mark, *results))

    def drawn(numbers: Numbers) -> st.SearchStrategy:
        return st.tuples(*[numbers.apart() if mark == "s" else numbers.drawn()] * (row.arity + 1))

    text = f"{_call(row)} {sign} {_call(row, moved)} where {moved} < {moved}'"
    examiner.check(Property(text, drawn, look, 'mark it "s", "+", "-" or ""'), _KINDS[row.whole])


def check_derivative(examiner: Examiner, row: Function, place: int, formula: Expr) -> None:
    """A formula of a derivative lies between the slopes on either side, which are one except at kinks."""
    def look(numbers: Numbers, values: tuple) -> Seen:
        given, moved = _given(numbers, values), "abc"[place]
        behind, here, ahead = (_value(row, given | {moved: given[moved] + step}, numbers) for step in (-STEP, 0, STEP))
        left, right = (here - behind) / STEP, (ahead - here) / STEP
        slope = np.broadcast_to(values_of(formula, numbers, given, 1)[formula], here.shape)
        slack = 1e-4 * (1 + abs(left) + abs(right) + abs(here))
        between = (np.minimum(left, right) - slack <= slope) & (slope <= np.maximum(left, right) + slack)
        return Seen(given, (slope, (left + right) / 2), bool(np.all(between)))

    claim = Property(f"d{_call(row)}/d{'abc'[place]} = {formula!r}".replace("[l]", ""),
                     lambda numbers: st.tuples(*[numbers.apart()] * row.arity), look, "correct the derivative")
    examiner.check(claim, (replace(FLOATS, name=f"floats, next to differences over {STEP:g}"),))


def _call(row: Function, moved: str = "") -> str:
    return f"{row.name}({', '.join(each + chr(39) if each == moved else each for each in 'abc'[:row.arity])})"


def _ordered(mark: str, first: np.ndarray, second: np.ndarray) -> bool:
    if mark == "s":
        return bool(np.all(first < second))
    low, high = (first, second) if mark == "+" else (second, first)
    return bool(np.all(low <= high)) or agree(low, high)


def _value(row: Function, given: Mapping[str, np.ndarray], numbers: Numbers) -> np.ndarray:
    """A value of a function.  Raises Undefined where it has none, or none that is finite."""
    result = applied(row.apply, given.values(), numbers)
    if not is_finite(result):
        raise Undefined(row.name)
    return result


# laws

def check_law(examiner: Examiner, statement: Statement) -> None:
    """A law at values that meet its conditions; wherever the left side is defined the right side must agree."""
    law, variables = statement.law, _variables(statement)

    def look(numbers: Numbers, example: tuple[int, dict[str, list]]) -> Seen:
        length, drawn = example
        given = {name: numbers.array(values) for name, values in drawn.items()}
        left = values_of(statement.left, numbers, given, length)
        if not all(map(is_finite, left.values())):
            raise Undefined("the left side")
        return _compared(statement, numbers, given, length, left)

    condition = f" where {law.requires}" if law.requires else ""
    claim = Property(f"{law.lhs} = {law.rhs}{condition}", lambda numbers: _assignments(statement, variables, numbers), look,
                  "correct the law, or state the condition under which it holds")
    examiner.check(claim, kinds_of(statement.left, statement.right))


def _compared(statement: Statement, numbers: Numbers, given: dict[str, np.ndarray], length: int,
              left: dict[Expr, np.ndarray]) -> Seen:
    expected = left[statement.left]
    try:
        right = values_of(statement.right, numbers, given, length)
    except TooLarge:
        raise
    except Undefined:
        return Seen(given, (expected, np.array([math.nan])), False)
    got = right[statement.right]
    return Seen(given, (expected, got), agree(expected, got, [*left.values(), *right.values()]))


def _variables(statement: Statement) -> dict[str, bool]:
    """The variables of a law, and which of them are truth values."""
    terms = subterms(statement.left, statement.right)
    logical = [arg for term in terms if term.op in _LOGICAL for arg in term.args]
    logical += [term.args[0] for term in terms if term.op == "where"]
    logical += [term.body for term in terms if term.op == "reduce" and term.monoid in ("any", "all")]
    return {term.name: any(term is each for each in logical) for term in terms if term.op == "input"}


@st.composite
def _assignments(draw: Callable, statement: Statement, variables: Mapping[str, bool], numbers: Numbers) -> tuple[int, dict]:
    reduced = [MONOIDS[term.monoid] for term in subterms(statement.left, statement.right) if term.op == "reduce"]
    empty = bool(reduced) and all(row.empty and math.isfinite(row.identity) for row in reduced)
    length = draw(st.sampled_from(range(0 if empty else 1, LONGEST + 1))) if reduced else 1
    signs = {variable: condition for condition, variable in statement.conditions if condition in SIGN_CONDITIONS}
    still = {variable for condition, variable in statement.conditions if condition in STILL}
    values = {}
    for name, truth in variables.items():
        pool = st.booleans() if truth else numbers.drawn(signs.get(name, ""))
        values[name] = [draw(pool) for _ in range(1 if name in still else length)]
    return length, values
