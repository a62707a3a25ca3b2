"""kb_gemm_max_gelu: one pass is enough.

    kb_gemm_max_gelu(X[m, k], W[k, l], c[]):
        t1 = max(sum(X * W, k), l) - c
        return 0.5 * t1 * (1.0 + tanh(0.7978845608028654 * (t1 + 0.044715 * t1 ** 3)))

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 1 word of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    M' = max(M, Σ_k X[m,k]·W[k,l])

Laws: none beyond those of the monoids.

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

    M: np.ndarray  # max_l Σ_k X[m,k]·W[k,l]


def lift(X, W):
    """The state of some elements."""
    M = np.max(np.sum(X[..., None] * W, axis=1), axis=1, initial=-np.inf)
    return State(M)


def merge(one, two):
    """The state of two parts together."""
    M = np.maximum(one.M, two.M)
    return State(M)


def finalize(state, c):
    """The results of a state."""
    M, = state
    return 0.5 * (M - c) * (1 + np.tanh(0.7978845608028654 * (M - c + 0.044715 * (M - c) ** 3)))


def definition(X, W, c):
    """The operator as written."""
    d = np.max(np.sum(X[..., None] * W, axis=1), axis=1) - c
    return 0.5 * d * (1 + np.tanh(0.7978845608028654 * (d + 0.044715 * d ** 3)))


def of(at, X, W):
    """The state of the elements at these places."""
    return lift(X, W[:, at])


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
    X = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    W = array(draw, (2, n), ANY, POSITIVE, UNIT, FEW)
    c = array(draw, (), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return X, W, c, owner


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
    X, W, c, owner = example
    one = of(owner == 0, X, W)
    two = of(owner == 1, X, W)
    three = of(owner == 2, X, W)
    nothing = of(owner < 0, X, W)
    states = (
        of(owner >= 0, X, W),
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
    want = definition(X, W, c)
    around = [finalize(each, c) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, c), want, *around)
