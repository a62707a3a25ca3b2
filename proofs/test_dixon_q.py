"""dixon_q: one pass is enough.

    dixon_q(x[l]):
        d1 = topk(x, l, 2, name=t)
        d2 = max(d1, t)
        t1 = -topk(-x, l, 2, name=t)
        d3 = min(t1, t)
        t2 = d2 - d3
        return (d2 - min(d1, t)) / t2, (max(t1, t) - d3) / t2

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 2 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    top_x' = best_values(2, top_x, x[l])
    top'   = best_values(2, top, −x[l])

Dangers:

    max_t top_x − min_t (−top) divides and may be 0: the result is then what IEEE division gives

Laws: none beyond those of the monoids.

Nothing below is a proof: the update rule is none that SymPy decides. Tested below, by Hypothesis on small examples in
float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def largest(values, k, axis):
    """The k largest values along an axis, largest first; -inf if there are fewer."""
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    return np.take(-np.sort(-np.pad(values, room, constant_values=-np.inf), axis=axis), range(k), axis=axis)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    top_x: np.ndarray  # topk_l^2 x[l]
    top: np.ndarray  # topk_l^2 −x[l]


def lift(x):
    """The state of some elements."""
    top_x = largest(x, 2, axis=0)
    top = largest(-x, 2, axis=0)
    return State(top_x, top)


def merge(one, two):
    """The state of two parts together."""
    top_x = largest(np.concatenate([one.top_x, two.top_x], axis=0), 2, axis=0)
    top = largest(np.concatenate([one.top, two.top], axis=0), 2, axis=0)
    return State(top_x, top)


def finalize(state):
    """The results of a state."""
    top_x, top = state
    m = np.max(top_x)
    d = m - np.min(-top)
    return (m - np.min(top_x)) / d, (np.max(-top) - np.min(-top)) / d


def definition(x):
    """The operator as written."""
    t = largest(x, 2, axis=0)
    u = -largest(-x, 2, axis=0)
    d = np.max(t) - np.min(u)
    return (np.max(t) - np.min(t)) / d, (np.max(u) - np.min(u)) / d


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
    n = draw(st.integers(2, 6))
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
