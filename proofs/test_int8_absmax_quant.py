"""int8_absmax_quant: one pass is enough.

    int8_absmax_quant(x[l]):
        t1 = max(abs(x), l) / 127.0
        return minimum(maximum(round(x / t1), -127), 127), t1

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 1 word of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m' = max(m, |x[l]|)

Dangers:

    m/127 divides and may be 0: the result is then what IEEE division gives

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

    m: np.ndarray  # max_l |x[l]|


def lift(x):
    """The state of some elements."""
    m = np.max(np.abs(x), initial=-np.inf)
    return State(m)


def merge(one, two):
    """The state of two parts together."""
    m = np.maximum(one.m, two.m)
    return State(m)


def finalize(state, x):
    """The results of a state; they keep the axis, so the elements are read again."""
    m, = state
    return np.minimum(np.maximum(np.round(127 * x / m), -127), 127), m / 127


def definition(x):
    """The operator as written."""
    p = np.max(np.abs(x)) / 127
    return np.minimum(np.maximum(np.round(x / p), -127), 127), p


def of(at, x):
    """The state of the elements at these places."""
    return lift(x[at])


ANY = (0, 1.1, -1.3, 2.1, 0.7, -1.9, -0.6, 3.1)
POSITIVE = (1.1, 2.1, 0.7, 3.1, 0.3, 1.7)
UNIT = (0.6, 0.3, 0.7, 0.1)
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
    around = [finalize(each, x) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, x), want, *around)
