"""kstat4: one pass is enough.

    kstat4(x[l]):
        d1 = sum(x ** 1, l)
        t1 = d1 ** 2
        d2 = sum(x ** 2, l)
        t2 = size(l) - 1
        t3 = size(l) + 1
        t4 = size(l) * t2
        t5 = (-6 * d1 ** 4 + 12 * size(l) * t1 * d2 - 3 * size(l) * t2 * d2 ** 2 - 4 * size(l) * t3 * d1 * sum(x ** 3,
                l) + size(l) ** 2 * t3 * sum(x ** 4, l)) / (t4 * (size(l) - 2) * (size(l) - 3))
        return t5, (2 * size(l) * ((size(l) * d2 - t1) / t4) ** 2 + t2 * t5) / (size(l) * t3)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 5 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    N'     = N + 1
    t'     = t + x[l]¹
    sxx'   = sxx + x[l]²
    sxxx'  = sxxx + x[l]³
    sxxxx' = sxxxx + x[l]⁴

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
    t: np.ndarray  # Σ_l x[l]¹
    sxx: np.ndarray  # Σ_l x[l]²
    sxxx: np.ndarray  # Σ_l x[l]³
    sxxxx: np.ndarray  # Σ_l x[l]⁴


def lift(x):
    """The state of some elements."""
    N = np.float64(len(x))
    t = np.sum(x ** 1)
    sxx = np.sum(x ** 2)
    sxxx = np.sum(x ** 3)
    sxxxx = np.sum(x ** 4)
    return State(N, t, sxx, sxxx, sxxxx)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    t = one.t + two.t
    sxx = one.sxx + two.sxx
    sxxx = one.sxxx + two.sxxx
    sxxxx = one.sxxxx + two.sxxxx
    return State(N, t, sxx, sxxx, sxxxx)


def finalize(state):
    """The results of a state."""
    N, t, sxx, sxxx, sxxxx = state
    u = (
        -(6 * t ** 4) + 12 * N * t ** 2 * sxx - 3 * N * sxx ** 2 * (N - 1) - 4 * N * t * sxxx * (N + 1) + N ** 2
        * sxxxx * (N + 1)
    )
    v = N * (N - 1) * (N - 2) * (N - 3)
    return u / v, (2 * N * ((N * sxx - t ** 2) / (N * (N - 1))) ** 2 + (N - 1) * u / v) / (N * (N + 1))


def definition(x):
    """The operator as written."""
    u = np.sum(x ** 1)
    sxx_x = np.sum(x ** 2)
    v = len(x) * (len(x) - 1)
    p = (
        (-6 * u ** 4 + 12 * len(x) * u ** 2 * sxx_x - 3 * len(x) * (len(x) - 1) * sxx_x ** 2 - 4 * len(x)
        * (len(x) + 1) * u * np.sum(x ** 3) + len(x) ** 2 * (len(x) + 1) * np.sum(x ** 4))
        / (v * (len(x) - 2) * (len(x) - 3))
    )
    return p, (2 * len(x) * ((len(x) * sxx_x - u ** 2) / v) ** 2 + (len(x) - 1) * p) / (len(x) * (len(x) + 1))


def of(at, x):
    """The state of the elements at these places."""
    return lift(x[at])


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
    x = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, owner


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
    x, owner = example
    one = of(owner == 0, x)
    two = of(owner == 1, x)
    three = of(owner == 2, x)
    nothing = of(owner < 0, x)
    states = (
        of(owner >= 0, x),
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
    want = definition(x)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
