"""gram_power_iteration: one pass is enough.

    gram_power_iteration(X[l, c]):
        d1 = sum(sum(X * 1.0, c) * X, l)
        d2 = sum(sum(X * (d1 / sqrt(sum(d1 * d1, c))), c) * X, l)
        d3 = sum(sum(X * (d2 / sqrt(sum(d2 * d2, c))), c) * X, l)
        t1 = d3 / sqrt(sum(d3 * d3, c))
        return t1, sum(sum(X * t1, c) ** 2, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 2 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    t'   = t + X[l,c]·Σ_c X[l,c]
    sXX' = sXX + X[l,c]·X[l,c__1]

Dangers:

    √(Σ_c s²) divides and may be 0: the result is then what IEEE division gives
    √(Σ_c s2²) divides and may be 0: the result is then what IEEE division gives
    √(Σ_c s3²) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract.

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

    t: np.ndarray  # Σ_l X[l,c]·Σ_c X[l,c]
    sXX: np.ndarray  # Σ_l X[l,c]·X[l,c__1]


def lift(X):
    """The state of some elements."""
    t = np.sum(X * np.sum(X, axis=1)[..., None], axis=0)
    sXX = np.sum(X[..., None] * X[:, None], axis=0)
    return State(t, sXX)


def merge(one, two):
    """The state of two parts together."""
    t = one.t + two.t
    sXX = one.sXX + two.sXX
    return State(t, sXX)


def finalize(state):
    """The results of a state."""
    t, sXX = state
    u = t / np.sqrt(np.sum(t ** 2))
    y = np.sum(u * sXX, axis=1)
    v = y / np.sqrt(np.sum(y ** 2))
    h = np.sum(v * sXX, axis=1)
    r = h / np.sqrt(np.sum(h ** 2))
    g = np.maximum(np.sum(np.sum(r[..., None] * r * sXX, axis=0)), 0)
    return r, g


def definition(X):
    """The operator as written."""
    z = np.sum(np.sum(X * 1, axis=1)[..., None] * X, axis=0)
    w = np.sum(np.sum(X * (z / np.sqrt(np.sum(z * z))), axis=1)[..., None] * X, axis=0)
    f = np.sum(np.sum(X * (w / np.sqrt(np.sum(w * w))), axis=1)[..., None] * X, axis=0)
    p = f / np.sqrt(np.sum(f * f))
    return p, np.sum(np.sum(X * p, axis=1) ** 2)


def of(at, X):
    """The state of the elements at these places."""
    return lift(X[at])


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
    X = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return X, owner


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
    X, owner = example
    one = of(owner == 0, X)
    two = of(owner == 1, X)
    three = of(owner == 2, X)
    nothing = of(owner < 0, X)
    states = (
        of(owner >= 0, X),
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
    want = definition(X)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
