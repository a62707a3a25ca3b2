"""ece_fixed_bins: one pass is enough.

    ece_fixed_bins(c[l], y[l]):
        t1 = minimum(floor(5.0 * c), 4)
        t2 = t1 == 0
        t3 = t1 == 1
        t4 = t1 == 2
        t5 = t1 == 3
        t6 = t1 == 4
        return (0 + abs(sum(c, l, where=t2) - sum(y, l, where=t2)) + abs(sum(c, l, where=t3) - sum(y, l, where=t3)) +
                abs(sum(c, l, where=t4) - sum(y, l, where=t4)) + abs(sum(c, l, where=t5) - sum(y, l, where=t5)) +
                abs(sum(c, l, where=t6) - sum(y, l, where=t6))) / size(l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 11 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = min(⌊5·c[l]⌋, 4)

Update by one element:

    N'     = N + 1
    sc_c'  = sc_c + c[l]   element where x = 0
    sy_yc' = sy_yc + y[l]   element where x = 0
    sc'    = sc + c[l]   element where x = 1
    sy'    = sy + y[l]   element where x = 1
    t'     = t + c[l]   element where x = 2
    u'     = u + y[l]   element where x = 2
    v'     = v + c[l]   element where x = 3
    r'     = r + y[l]   element where x = 3
    h'     = h + c[l]   element where x = 4
    g'     = g + y[l]   element where x = 4

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
    sc_c: np.ndarray  # Σ_l c[l] where min(⌊5·c[l]⌋, 4) = 0
    sy_yc: np.ndarray  # Σ_l y[l] where min(⌊5·c[l]⌋, 4) = 0
    sc: np.ndarray  # Σ_l c[l] where min(⌊5·c[l]⌋, 4) = 1
    sy: np.ndarray  # Σ_l y[l] where min(⌊5·c[l]⌋, 4) = 1
    t: np.ndarray  # Σ_l c[l] where min(⌊5·c[l]⌋, 4) = 2
    u: np.ndarray  # Σ_l y[l] where min(⌊5·c[l]⌋, 4) = 2
    v: np.ndarray  # Σ_l c[l] where min(⌊5·c[l]⌋, 4) = 3
    r: np.ndarray  # Σ_l y[l] where min(⌊5·c[l]⌋, 4) = 3
    h: np.ndarray  # Σ_l c[l] where min(⌊5·c[l]⌋, 4) = 4
    g: np.ndarray  # Σ_l y[l] where min(⌊5·c[l]⌋, 4) = 4


def lift(c, y):
    """The state of some elements."""
    N = np.float64(len(c))
    z = np.minimum(np.floor(5 * c), 4)
    sc_c = np.sum(np.where(z == 0, c, 0))
    sy_yc = np.sum(np.where(z == 0, y, 0))
    sc = np.sum(np.where(z == 1, c, 0))
    sy = np.sum(np.where(z == 1, y, 0))
    t = np.sum(np.where(z == 2, c, 0))
    u = np.sum(np.where(z == 2, y, 0))
    v = np.sum(np.where(z == 3, c, 0))
    r = np.sum(np.where(z == 3, y, 0))
    h = np.sum(np.where(z == 4, c, 0))
    g = np.sum(np.where(z == 4, y, 0))
    return State(N, sc_c, sy_yc, sc, sy, t, u, v, r, h, g)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    sc_c = one.sc_c + two.sc_c
    sy_yc = one.sy_yc + two.sy_yc
    sc = one.sc + two.sc
    sy = one.sy + two.sy
    t = one.t + two.t
    u = one.u + two.u
    v = one.v + two.v
    r = one.r + two.r
    h = one.h + two.h
    g = one.g + two.g
    return State(N, sc_c, sy_yc, sc, sy, t, u, v, r, h, g)


def finalize(state):
    """The results of a state."""
    N, sc_c, sy_yc, sc, sy, t, u, v, r, h, g = state
    return (np.abs(sc_c - sy_yc) + np.abs(sc - sy) + np.abs(t - u) + np.abs(v - r) + np.abs(h - g)) / N


def definition(c, y):
    """The operator as written."""
    z = np.minimum(np.floor(5 * c), 4)
    return (
        (0 + np.abs(np.sum(np.where(z == 0, c, 0)) - np.sum(np.where(z == 0, y, 0)))
        + np.abs(np.sum(np.where(z == 1, c, 0)) - np.sum(np.where(z == 1, y, 0)))
        + np.abs(np.sum(np.where(z == 2, c, 0)) - np.sum(np.where(z == 2, y, 0)))
        + np.abs(np.sum(np.where(z == 3, c, 0)) - np.sum(np.where(z == 3, y, 0)))
        + np.abs(np.sum(np.where(z == 4, c, 0)) - np.sum(np.where(z == 4, y, 0)))) / len(c)
    )


def of(at, c, y):
    """The state of the elements at these places."""
    return lift(c[at], y[at])


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
    c = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    y = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return c, y, owner


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
    c, y, owner = example
    one = of(owner == 0, c, y)
    two = of(owner == 1, c, y)
    three = of(owner == 2, c, y)
    nothing = of(owner < 0, c, y)
    states = (
        of(owner >= 0, c, y),
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
    want = definition(c, y)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
