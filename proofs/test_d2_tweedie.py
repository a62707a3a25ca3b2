"""d2_tweedie: one pass is enough.

    d2_tweedie(y[l], p[l]):
        t1 = y / p
        t2 = sum(y, l) / size(l)
        t3 = y / t2
        assume(y > 0, p > 0)
        return 1.0 - sum(y * log(t1) - y + p, l) / sum(y * log(t3) - y + t2, l), 1.0 - sum(log(p / y) + t1 - 1.0, l) /
                sum(log(t2 / y) + t3 - 1.0, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    t'  = t + y[l]·log(y[l]/p[l]) − y[l] + p[l]
    sy' = sy + y[l]
    u'  = u + y[l]·log(y[l]) − y[l]
    N'  = N + 1
    v'  = v + log(p[l]/y[l]) + y[l]/p[l] − 1
    r'  = r + log(1/y[l]) − 1

Dangers:

    h divides and may be 0: the result is then what IEEE division gives
    g divides and may be 0: the result is then what IEEE division gives
    h = u − sy·log(mu) + mu·N is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, log_of_product, log_of_reciprocal.

Nothing below is a proof: the update rule is none that SymPy decides. Tested below, by Hypothesis on small examples in
float64: everything else the theorem says. Assumed: y[l] > 0, p[l] > 0.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


class State(NamedTuple):
    """What is kept of a part of the elements."""

    t: np.ndarray  # Σ_l y[l]·log(y[l]/p[l]) − y[l] + p[l]
    sy: np.ndarray  # Σ_l y[l]
    u: np.ndarray  # Σ_l y[l]·log(y[l]) − y[l]
    N: np.ndarray  # Σ_l 1
    v: np.ndarray  # Σ_l log(p[l]/y[l]) + y[l]/p[l] − 1
    r: np.ndarray  # Σ_l log(1/y[l]) − 1


def lift(y, p):
    """The state of some elements."""
    t = np.sum(y * np.log(y / p) - y + p)
    sy = np.sum(y)
    u = np.sum(y * np.log(y) - y)
    N = np.float64(len(y))
    v = np.sum(np.log(p / y) + y / p - 1)
    r = np.sum(np.log(1 / y) - 1)
    return State(t, sy, u, N, v, r)


def merge(one, two):
    """The state of two parts together."""
    t = one.t + two.t
    sy = one.sy + two.sy
    u = one.u + two.u
    N = one.N + two.N
    v = one.v + two.v
    r = one.r + two.r
    return State(t, sy, u, N, v, r)


def finalize(state):
    """The results of a state."""
    t, sy, u, N, v, r = state
    mu = sy / N
    h = u - sy * np.log(mu) + mu * N
    g = N * np.log(mu) + r + sy / mu
    return 1 - t / h, 1 - v / g


def definition(y, p):
    """The operator as written."""
    mu_y = np.sum(y) / len(y)
    return (
        1 - np.sum(y * np.log(y / p) - y + p) / np.sum(y * np.log(y / mu_y) - y + mu_y),
        1 - np.sum(np.log(p / y) + y / p - 1) / np.sum(np.log(mu_y / y) + y / mu_y - 1),
    )


def of(at, y, p):
    """The state of the elements at these places."""
    return lift(y[at], p[at])


POSITIVE = (1, 2, 0.5, 3, 0.25, 1.5)
UNIT = (0.5, 0.25, 0.75, 0.125)


def array(draw, shape, *palettes):
    """An array of simple numbers, so that equal ones are drawn."""
    numbers = draw(st.sampled_from(palettes))
    return draw(arrays(float, shape, elements=st.sampled_from(numbers)))


@st.composite
def examples(draw):
    """A few elements, the parameters, and to which part each element belongs."""
    n = draw(st.integers(1, 6))
    y = array(draw, (n,), POSITIVE, UNIT)
    p = array(draw, (n,), POSITIVE, UNIT)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return y, p, owner


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
    y, p, owner = example
    one = of(owner == 0, y, p)
    two = of(owner == 1, y, p)
    three = of(owner == 2, y, p)
    nothing = of(owner < 0, y, p)
    states = (
        of(owner >= 0, y, p),
        merge(merge(one, two), three),
        merge(one, merge(two, three)),
        merge(merge(three, one), two),
    )

    # merge is associative and commutative, and the state of no elements is its identity
    same(states[1], states[2])
    same(merge(one, two), merge(two, one))
    same(merge(states[0], nothing), states[0])
    same(merge(nothing, states[0]), states[0])

    # any split in any bracketing gives the definition
    want = definition(y, p)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
