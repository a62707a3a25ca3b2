"""kalman_scalar: one pass is enough.

    kalman_scalar(y[l]; drift=0.2, noise=0.5):
        return scan(lambda m, p: ((noise * (0.9 * m) + (0.81 * p + drift) * y) / (0.81 * p + drift + noise), noise *
                (0.81 * p + drift) / (0.81 * p + drift + noise)), l, (0.0, 1.0), place=0), scan(lambda p: noise *
                (0.81 * p + drift) / (0.81 * p + drift + noise), l, 1.0)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 7 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    q'   = 0.9·noise·q
    h_y' = 0.9·noise·h_y + 0.81·t·y[l] + drift·v·y[l]
    h'   = 0.9·noise·h + 0.81·u·y[l] + drift·r·y[l]
    t'   = 0.81·noise·t + noise·drift·v
    u'   = 0.81·noise·u + noise·drift·r
    v'   = 0.81·t + v·(drift + noise)
    r'   = 0.81·u + r·(drift + noise)

Dangers:

    v + r divides and may be 0: the result is then what IEEE division gives

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

    q: np.ndarray  # Π_l 0.9·noise
    h_y: np.ndarray  # ∘_l 0.81·y[l]
    h: np.ndarray  # ∘_l drift·y[l]
    t: np.ndarray  # ∘_l 0.81·noise
    u: np.ndarray  # ∘_l noise·drift
    v: np.ndarray  # ∘_l 0.81
    r: np.ndarray  # ∘_l drift + noise


def lift(y, drift, noise):
    """The state of one element, whose arrays have no axis l any more."""
    q = 0.9 * noise
    h_y = 0.81 * y
    h = drift * y
    t = 0.81 * noise
    u = noise * drift
    v = np.float64(0.81)
    r = drift + noise
    return State(q, h_y, h, t, u, v, r)


def merge(one, two):
    """The state of two parts together."""
    q = one.q * two.q
    h_y = two.q * one.h_y + two.h_y * one.t + two.h * one.v
    h = two.q * one.h + two.h_y * one.u + two.h * one.r
    t = two.t * one.t + two.u * one.v
    u = two.t * one.u + two.u * one.r
    v = two.v * one.t + two.r * one.v
    r = two.v * one.u + two.r * one.r
    return State(q, h_y, h, t, u, v, r)


def finalize(state):
    """The results of a state."""
    q, h_y, h, t, u, v, r = state
    g = (h_y + h) / (v + r)
    z = (t + u) / (v + r)
    return g, z


def definition(y, drift, noise):
    """The operator as written."""
    m = np.float64(0)
    p = np.float64(1)
    for at in range(len(y)):
        m, p = (
            (noise * (0.9 * m) + (0.81 * p + drift) * y[at]) / (0.81 * p + drift + noise),
            noise * (0.81 * p + drift) / (0.81 * p + drift + noise),
        )
    w = np.float64(1)
    for f in range(len(y)):
        w = noise * (0.81 * w + drift) / (0.81 * w + drift + noise)
    return m, w


def between(first, last, y, drift, noise):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(y[at], drift, noise)
    for at in range(first + 1, last):
        state = merge(state, lift(y[at], drift, noise))
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
    y = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    drift = draw(st.sampled_from([0.2, 1, 2, 0.5, -1]))
    noise = draw(st.sampled_from([0.5, 1, 2, -1]))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return y, drift, noise, cuts


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
    y, drift, noise, cuts = example
    one = between(0, cuts[0], y, drift, noise)
    two = between(cuts[0], cuts[1], y, drift, noise)
    three = between(cuts[1], len(y), y, drift, noise)
    whole = between(0, len(y), y, drift, noise)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(y, drift, noise)
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
