"""moe_switch_aux: one pass is enough.

    moe_switch_aux(X[l, e]):
        d1 = max(X, e)
        t1 = exp(X - d1)
        d2 = sum(t1, e)
        return size(e) * sum(sum(where(index(e) == argmax(X, e), 1.0, 0.0), l) / size(l) * (sum(t1 / d2, l) /
                size(l)), e), sum((d1 + log(d2)) ** 2, l) / size(l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    N' = N + 1
    t' = t + (1 if e = argmax_e X[l,e] else 0)  ¹
    u' = u + exp(X[l,e] − max_e X[l,e])/(Σ_e exp(X[l,e] − max_e X[l,e]))
    v' = v + (max_e X[l,e] + log(Σ_e exp(X[l,e] − max_e X[l,e])))²

Guards:

    ¹ an element or state that does not take part is left out, not multiplied by 0

Dangers:

    exp(X[l,e] − max_e X[l,e]) may overflow: nothing bounds its exponent

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
    t: np.ndarray  # Σ_l 1 if e = argmax_e X[l,e] else 0
    u: np.ndarray  # Σ_l exp(X[l,e] − max_e X[l,e])/(Σ_e exp(X[l,e] − max_e X[l,e]))
    v: np.ndarray  # Σ_l (max_e X[l,e] + log(Σ_e exp(X[l,e] − max_e X[l,e])))²


def lift(X):
    """The state of some elements."""
    N = np.float64(len(X))
    t = np.sum(np.where(np.arange(X.shape[1]) == np.argmax(X, axis=1)[..., None], 1, 0), axis=0)
    S = np.max(X, axis=1)
    e = np.exp(X - S[..., None])
    Z = np.sum(e, axis=1)
    u = np.sum(e / Z[..., None], axis=0)
    v = np.sum((S + np.log(Z)) ** 2)
    return State(N, t, u, v)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    t = one.t + two.t
    u = one.u + two.u
    v = one.v + two.v
    return State(N, t, u, v)


def finalize(state, X):
    """The results of a state."""
    N, t, u, v = state
    return X.shape[1] * np.sum(t * u / N ** 2), v / N


def definition(X):
    """The operator as written."""
    S = np.max(X, axis=1)
    e = np.exp(X - S[..., None])
    Z = np.sum(e, axis=1)
    return (
        (
            X.shape[1] * np.sum(np.sum(np.where(np.arange(X.shape[1]) == np.argmax(X, axis=1)[..., None], 1, 0),
            axis=0) / len(X) * (np.sum(e / Z[..., None], axis=0) / len(X)))
        ),
        np.sum((S + np.log(Z)) ** 2) / len(X),
    )


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
    around = [finalize(each, X) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, X), want, *around)
