"""Simplified coefficients have the value they had, and what is trivial is gone."""

import random

import numpy as np
import pytest
import redfuser_algebra.language.functions as ra
from hypothesis import given
from hypothesis import strategies as st
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.discover.simplify import folded, settled, sorted_operands
from redfuser_algebra.language.expr import call, children_replaced, const, substitute, subterms, symbol
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.evaluate import Evaluation

p, q, new_p, new_q, s = (symbol(name) for name in ("p", "q", "p'", "q'", "s"))
OLD = {new_p: p, new_q: q}
zero, one, two = const(0), const(1), const(2)
# arctan2 alone tells −0 from 0 by more than a sign.
NUMERIC = [name for name, row in FUNCTIONS.items() if not row.boolean and name not in ("where", "arctan2")]


def value(term, numbers):
    """The value of a term, or None where some part of it has none."""
    symbols = {name: np.full((1,), float(number)) for name, number in numbers.items()}
    evaluation = Evaluation(Environment(("l",), {"l": 1}, {}, symbols))
    evaluation.of(term)
    finite = all(np.isfinite(np.asarray(evaluation.of(part), float)).all() for part in subterms(term))
    return float(evaluation.of(term).item()) if finite else None


def random_term(choose, depth):
    if depth == 0 or choose.random() < 0.15:
        return choose.choice([p, q, new_p, new_q, s, zero, one, const(1.0), const(0.0), const(-1), two, const(0.5)])
    a, b = (random_term(choose, depth - 1) for _ in range(2))
    name = choose.choice(["add", "subtract", "multiply", "divide", "shift", "ratio", "scale", "scaled", "negative", "exp",
                          "exp2", "sin", "cos", "power", "where", "anchor", choose.choice(NUMERIC)])
    if name == "where":
        condition = choose.choice([a == b, a != b, a < b, const(True), const(False), (a == b) & (p == new_p)])
        return ra.where(condition, *choose.choice([(a, b), (a, a)]))
    arity = FUNCTIONS[name].arity
    return call(name, *choose.choice([(a, b), (a, a), (b, a)])[:arity])


@given(st.integers(0, 2**32))
def test_a_settled_term_is_the_term_at_pivots_that_have_not_moved(seed):
    choose = random.Random(seed)
    for _ in range(8):
        term = random_term(choose, 4)
        numbers = {name: choose.choice([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]) for name in ("p", "q", "s")}
        expected = value(substitute(term, OLD), numbers)
        if expected is not None:
            got = value(settled(term, OLD.get), numbers)
            assert got is not None and np.isclose(got, expected, rtol=1e-12, atol=1e-12), (term, numbers)


@given(st.integers(0, 2**32))
def test_sorted_operands_have_the_same_value_and_no_order(seed):
    choose = random.Random(seed)
    term = random_term(choose, 4)
    numbers = {name: choose.choice([-2.0, 0.0, 0.5, 3.0]) for name in ("p", "q", "s", "p'", "q'")}
    expected, turned = value(term, numbers), sorted_operands(term)
    if expected is not None and abs(expected) < 1e9:
        got = value(turned, numbers)
        assert got is None or np.isclose(got, expected, rtol=1e-9, atol=1e-6), (term, numbers)
    assert sorted_operands(turned) is turned
    assert sorted_operands(_commuted(term)) is turned


def _commuted(term):
    args = tuple(map(_commuted, term.args))
    return children_replaced(term, args[::-1] if term.op in ("add", "multiply") else args)


@pytest.mark.parametrize("term, simple", [
    (p - p, zero), (p - 0, p), (call("shift", p, p), zero), (p + 0, p), (0 + p, p), (p * 1, p), (1 * p, p), (p * 0, zero),
    (0.0 * p, zero), (call("scale", one, s), s), (call("scale", zero, s), zero), (call("ratio", p, p), one), (p / p, one),
    (p / 1, p), (call("ratio", p, one), p), (-zero, zero), (ra.exp(zero), one), (ra.exp2(const(0.0)), one),
    (ra.cos(zero), one), (ra.sin(zero), zero), (one ** p, one), (p == p, const(True)), (p != p, const(False)),
    (ra.where(const(True), p, q), p), (ra.where(const(False), p, q), q), (ra.where(p < q, s, s), s),
    (ra.where(p < q, s, p), ra.where(p < q, s, p)), (p - q, p - q), (p / q, p / q), (p * 2, p * 2), (p ** 1, p ** 1),
    (ra.exp(p), ra.exp(p)), (ra.tanh(zero), ra.tanh(zero)), (p == q, p == q), (1 - p, 1 - p), (0 - p, 0 - p),
])
def test_what_is_trivial_at_the_root_is_gone(term, simple):
    assert folded(term) is simple


def test_a_rebase_rule_is_the_identity_where_nothing_has_moved():
    shift = call("shift", p, new_p)
    softmax = call("scale", ra.exp(shift), s)
    variance = s + call("scale", two * shift, q) + call("scale", shift * shift, p)
    reset = ra.where(p == new_p, s, 0)
    for rule in (softmax, variance, reset, s * call("ratio", p, new_p)):
        assert settled(rule, OLD.get) is s
    assert settled(softmax, {new_q: q}.get) is softmax


def test_operands_of_a_difference_keep_their_places():
    assert sorted_operands(q + p) is sorted_operands(p + q) is not sorted_operands(p - q)
    assert sorted_operands(p - q) is not sorted_operands(q - p)
    assert sorted_operands((q * p) * s) is sorted_operands(s * (p * q))
    assert sorted_operands(ra.exp(q + p) / (s * q)) is sorted_operands(ra.exp(p + q) / (q * s))
