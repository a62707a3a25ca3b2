"""hinge_kl_triplet: one pass is enough.

    hinge_kl_triplet(a[l], p[l], n_[l], t[l]):
        t1 = abs(p)
        return sum(maximum(1.0 - a * t, 0), l) / size(l), sum(maximum(abs(a - p) - abs(a - n_) + 1.0, 0), l) /
                size(l), sum(t1 * log(t1 / abs(a)), l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    N' = N + 1
    u' = u + max(1 − a[l]·t[l], 0)
    v' = v + max(|a[l] − p[l]| − |a[l] − n_[l]| + 1, 0)
    r' = r + |p[l]|·log(|p[l]|/|a[l]|)

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant.

Nothing below is a proof: the update rule is none that SymPy decides. Tested below, by Hypothesis on small examples in
float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


class State(NamedTuple):
    """What is kept of a part of the elements."""

    N: np.ndarray  # Σ_l 1
    u: np.ndarray  # Σ_l max(1 − a[l]·t[l], 0)
    v: np.ndarray  # Σ_l max(|a[l] − p[l]| − |a[l] − n_[l]| + 1, 0)
    r: np.ndarray  # Σ_l |p[l]|·log(|p[l]|/|a[l]|)


def lift(a, p, n_, t):
    """The state of some elements."""
    N = np.float64(len(a))
    u = np.sum(np.maximum(1 - a * t, 0))
    v = np.sum(np.maximum(np.abs(a - p) - np.abs(a - n_) + 1, 0))
    r = np.sum(np.abs(p) * np.log(np.abs(p) / np.abs(a)))
    return State(N, u, v, r)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    u = one.u + two.u
    v = one.v + two.v
    r = one.r + two.r
    return State(N, u, v, r)


def finalize(state):
    """The results of a state."""
    N, u, v, r = state
    return u / N, v / N, r


def definition(a, p, n_, t):
    """The operator as written."""
    return (
        np.sum(np.maximum(1 - a * t, 0)) / len(a),
        np.sum(np.maximum(np.abs(a - p) - np.abs(a - n_) + 1, 0)) / len(a),
        np.sum(np.abs(p) * np.log(np.abs(p) / np.abs(a))),
    )


def of(at, a, p, n_, t):
    """The state of the elements at these places."""
    return lift(a[at], p[at], n_[at], t[at])


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
    """A few elements, the parameters, and to which part each element belongs."""
    n = draw(st.integers(1, 6))
    a = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    p = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    n_ = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    t = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return a, p, n_, t, owner


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
    a, p, n_, t, owner = example
    one = of(owner == 0, a, p, n_, t)
    two = of(owner == 1, a, p, n_, t)
    three = of(owner == 2, a, p, n_, t)
    nothing = of(owner < 0, a, p, n_, t)
    states = (
        of(owner >= 0, a, p, n_, t),
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
    want = definition(a, p, n_, t)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
