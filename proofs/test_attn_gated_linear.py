"""attn_gated_linear: one pass is enough.

    attn_gated_linear(q[d], K[l, d], V[l, v], g[l, d]):
        return sum(q * scan(lambda S: g * S + K * V, l, 0.0), d)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 2 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    q_g' = q_g·g[l,d]
    h'   = h·g[l,d] + K[l,d]·V[l,v]

Laws: none beyond those of the monoids.

Proved below, by SymPy over the reals: merge is associative (it does not commute). Tested below, by Hypothesis on
small examples in float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
import sympy
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


class State(NamedTuple):
    """What is kept of a part of the elements."""

    q_g: np.ndarray  # Π_l g[l,d]
    h: np.ndarray  # ∘_l K[l,d]·V[l,v]


def lift(K, V, g):
    """The state of one element, whose arrays have no axis l any more."""
    q_g = g
    h = K[..., None] * V
    return State(q_g, h)


def merge(one, two):
    """The state of two parts together."""
    q_g = one.q_g * two.q_g
    h = two.q_g[..., None] * one.h + two.h
    return State(q_g, h)


def finalize(state, q):
    """The results of a state."""
    q_g, h = state
    return np.sum(h * q[..., None], axis=0)


def definition(q, K, V, g):
    """The operator as written."""
    S = np.float64(0)
    for at in range(len(K)):
        S = g[at][..., None] * S + K[at][..., None] * V[at]
    return np.sum(q[..., None] * S, axis=0)


def between(first, last, K, V, g):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(K[at], V[at], g[at])
    for at in range(first + 1, last):
        state = merge(state, lift(K[at], V[at], g[at]))
    return state


ANY = (0, 1, -1, 2, 0.5, -2, -0.5, 3)
POSITIVE = (1, 2, 0.5, 3, 0.25, 1.5)
UNIT = (0.5, 0.25, 0.75, 0.125)
FEW = (0, 1)


def array(draw, shape, *palettes):
    """An array of simple numbers, so that equal ones are drawn."""
    numbers = draw(st.sampled_from(palettes))
    return draw(arrays(float, shape, elements=st.sampled_from(numbers)))


@st.composite
def examples(draw):
    """A few elements, the parameters, and where they are cut into three neighbours."""
    n = draw(st.integers(3, 6))
    q = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    K = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    V = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    g = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return q, K, V, g, cuts


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
    got, want, *around = np.broadcast_arrays(got, want, *around)
    at_once, *beside = around
    known = np.isfinite(want) & np.isfinite(at_once) & np.isclose(beside, beside[0], rtol=1e-9, atol=1e-7).all(0)
    assert np.isnan(got[np.isnan(want) & np.isnan(at_once)]).all()
    assume(known.any())
    np.testing.assert_allclose(got[known], want[known], rtol=1e-9, atol=1e-7)


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
    q, K, V, g, cuts = example
    one = between(0, cuts[0], K, V, g)
    two = between(cuts[0], cuts[1], K, V, g)
    three = between(cuts[1], len(K), K, V, g)
    whole = between(0, len(K), K, V, g)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(q, K, V, g)
    around = [finalize(each, q) for each in (whole, *nudged(whole))]
    for state in (left, right):
        agree(finalize(state, q), want, *around)


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
    dims = {"q_g": 1, "h": 2}

    def state(part):
        return State(*(np.full((1,) * d, sympy.Symbol(f"{name}_{part}", real=True)) for name, d in dims.items()))

    a, b, c = map(state, "abc")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for name, one, other in zip(State._fields, left, right, strict=True):
        assert sums(np.asarray(one).item()) == sums(np.asarray(other).item()), name
