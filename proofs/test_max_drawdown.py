"""max_drawdown: one pass is enough.

    max_drawdown(x[l]):
        t1 = log(x)
        assume(x > 0)
        return max(scan(lambda c1: maximum(c1, x), l, -inf, after) - x, l), 1 - exp(-max(scan(lambda c1: maximum(c1,
                t1), l, -inf, after) - t1, l)), max(x - scan(lambda c1: minimum(c1, x), l, inf, after), l)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 7 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Elements:

    x = x[l] − x[l]

Update by one element:

    m_x' = max(m_x, −x[l])
    h_x' = max(max(h_x, −x[l] + m), x)
    m'   = max(m, x[l])
    M'   = max(M, −log(x[l]))
    h'   = max(max(h, −log(x[l]) + M_x), log(x[l]) − log(x[l]))
    M_x' = max(M_x, log(x[l]))
    t'   = max(max(t, x[l] + m_x), x)

Laws: none beyond those of the monoids.

Proved below, by SymPy over the reals: merge is associative (it does not commute). Tested below, by Hypothesis on
small examples in float64: everything else the theorem says. Assumed: x[l] > 0.
"""

from typing import NamedTuple

import numpy as np
import sympy
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def larger(a, b):
    """The larger of two numbers, also of SymPy's."""
    return sympy.Max(a, b) if isinstance(a + b, sympy.Basic) else np.maximum(a, b)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    m_x: np.ndarray  # max_l −x[l]
    h_x: np.ndarray  # ∘_l x[l] − x[l]
    m: np.ndarray  # max_l x[l]
    M: np.ndarray  # max_l −log(x[l])
    h: np.ndarray  # ∘_l log(x[l]) − log(x[l])
    M_x: np.ndarray  # max_l log(x[l])
    t: np.ndarray  # ∘_l x[l] − x[l]


def lift(x):
    """The state of one element, whose arrays have no axis l any more."""
    m_x = -x
    h_x = x - x
    m = x
    M = -np.log(x)
    h = np.log(x) - np.log(x)
    M_x = np.log(x)
    t = x - x
    return State(m_x, h_x, m, M, h, M_x, t)


def merge(one, two):
    """The state of two parts together."""
    m_x = larger(one.m_x, two.m_x)
    h_x = larger(larger(one.h_x, two.m_x + one.m), two.h_x)
    m = larger(one.m, two.m)
    M = larger(one.M, two.M)
    h = larger(larger(one.h, two.M + one.M_x), two.h)
    M_x = larger(one.M_x, two.M_x)
    t = larger(larger(one.t, two.m + one.m_x), two.t)
    return State(m_x, h_x, m, M, h, M_x, t)


def finalize(state):
    """The results of a state."""
    m_x, h_x, m, M, h, M_x, t = state
    return h_x, 1 - np.exp(-h), t


def definition(x):
    """The operator as written."""
    c1 = -np.inf
    c1_seen = []
    for at in range(len(x)):
        c1 = np.maximum(c1, x[at])
        c1_seen.append(c1)
    c1s = np.stack(np.broadcast_arrays(*c1_seen), axis=0)
    u = -np.inf
    u_seen = []
    for v in range(len(x)):
        u = np.maximum(u, np.log(x[v]))
        u_seen.append(u)
    us = np.stack(np.broadcast_arrays(*u_seen), axis=0)
    r = np.inf
    r_seen = []
    for y in range(len(x)):
        r = np.minimum(r, x[y])
        r_seen.append(r)
    rs = np.stack(np.broadcast_arrays(*r_seen), axis=0)
    return np.max(c1s - x), 1 - np.exp(-np.max(us - np.log(x))), np.max(x - rs)


def between(first, last, x):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(x[at])
    for at in range(first + 1, last):
        state = merge(state, lift(x[at]))
    return state


POSITIVE = (1, 2, 0.5, 3, 0.25, 1.5)
UNIT = (0.5, 0.25, 0.75, 0.125)


def array(draw, shape, *palettes):
    """An array of simple numbers, so that equal ones are drawn."""
    numbers = draw(st.sampled_from(palettes))
    return draw(arrays(float, shape, elements=st.sampled_from(numbers)))


@st.composite
def examples(draw):
    """A few elements, the parameters, and where they are cut into three neighbours."""
    n = draw(st.integers(3, 6))
    x = array(draw, (n,), POSITIVE, UNIT)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return x, cuts


def nudged(state):
    """The state with its numbers moved by some roundings: up and down, the first or the last of them most."""
    for by, turn in ((1e-13, 1), (-1e-13, 1), (1e-13, -1), (-1e-13, -1)):
        moved = (
            word * (1 + by * at**turn) if np.asarray(word).dtype.kind == "f" else word
            for at, word in enumerate(state, 1)
        )
        yield State(*moved)


def agree(got, want, *around):
    """Equal up to rounding (and roots of it) where roundings leave both alone, and NaN where neither is a number."""
    for outputs in zip(got, want, *around, strict=True):
        one, other, at_once, *beside = np.broadcast_arrays(*outputs)
        known = np.isfinite(other) & np.isfinite(at_once) & np.isclose(beside, beside[0], rtol=1e-9, atol=1e-7).all(0)
        assert np.isnan(one[np.isnan(other) & np.isnan(at_once)]).all()
        assume(known.any())
        np.testing.assert_allclose(one[known], other[known], rtol=1e-9, atol=1e-7)


def same(one, two):
    """Two states are equal up to rounding."""
    for name in State._fields:
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-9, err_msg=name)


@settings(max_examples=50, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.filter_too_much])
@given(examples())
@np.errstate(all="ignore")
def test_the_theorem(example):
    """On fifty small examples, the same ones every time."""
    x, cuts = example
    one = between(0, cuts[0], x)
    two = between(cuts[0], cuts[1], x)
    three = between(cuts[1], len(x), x)
    whole = between(0, len(x), x)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(x)
    around = [finalize(each) for each in (whole, *nudged(whole))]
    for state in (left, right):
        agree(finalize(state), want, *around)


def sums(value):
    """A largest (or smallest) of sums as the set of its sums, and a sum of products multiplied out."""
    value = sympy.expand(value)
    if isinstance(value, (sympy.Max, sympy.Min)):
        return set().union(*map(sums, value.args))
    if value.has(sympy.Max, sympy.Min) and isinstance(value, sympy.Add):
        return {sympy.expand(one + other) for one in sums(value.args[0]) for other in sums(value.func(*value.args[1:]))}
    return {value}


def test_merge_is_associative_for_all_numbers():
    """SymPy, over the reals, for any three states: both bracketings are the same sums."""

    def state(part):
        return State(*(sympy.Symbol(f"{name}_{part}", real=True) for name in State._fields))

    a, b, c = map(state, "abc")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for name, one, other in zip(State._fields, left, right, strict=True):
        assert sums(sympy.sympify(one)) == sums(sympy.sympify(other)), name
