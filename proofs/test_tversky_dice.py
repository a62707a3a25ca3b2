"""tversky_dice: one pass is enough.

    tversky_dice(p[l], t[l]):
        d1 = sum(p * t, l)
        t1 = 2.0 * d1
        d2 = sum(p * (1.0 - t), l)
        d3 = sum((1.0 - p) * t, l)
        return 1.0 - (t1 + 1.0) / (t1 + d2 + d3 + 1.0), 1.0 - d1 / (d1 + 0.3 * d2 + 0.7 * d3)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    spt' = spt + p[l]·t[l]
    u'   = u + p[l]·(1 − t[l])
    v'   = v + t[l]·(1 − p[l])

Dangers:

    2·spt + u + v + 1 divides and may be 0: the result is then what IEEE division gives
    spt + 0.3·u + 0.7·v divides and may be 0: the result is then what IEEE division gives

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

    spt: np.ndarray  # Σ_l p[l]·t[l]
    u: np.ndarray  # Σ_l p[l]·(1 − t[l])
    v: np.ndarray  # Σ_l t[l]·(1 − p[l])


def lift(p, t):
    """The state of some elements."""
    spt = np.sum(p * t)
    u = np.sum(p * (1 - t))
    v = np.sum(t * (1 - p))
    return State(spt, u, v)


def merge(one, two):
    """The state of two parts together."""
    spt = one.spt + two.spt
    u = one.u + two.u
    v = one.v + two.v
    return State(spt, u, v)


def finalize(state):
    """The results of a state."""
    spt, u, v = state
    return 1 - (2 * spt + 1) / (2 * spt + u + v + 1), 1 - spt / (spt + 0.3 * u + 0.7 * v)


def definition(p, t):
    """The operator as written."""
    spt_pt = np.sum(p * t)
    r = np.sum(p * (1 - t))
    y = np.sum((1 - p) * t)
    return 1 - (2 * spt_pt + 1) / (2 * spt_pt + r + y + 1), 1 - spt_pt / (spt_pt + 0.3 * r + 0.7 * y)


def of(at, p, t):
    """The state of the elements at these places."""
    return lift(p[at], t[at])


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
    p = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    t = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return p, t, owner


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
    p, t, owner = example
    one = of(owner == 0, p, t)
    two = of(owner == 1, p, t)
    three = of(owner == 2, p, t)
    nothing = of(owner < 0, p, t)
    states = (
        of(owner >= 0, p, t),
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
    want = definition(p, t)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
