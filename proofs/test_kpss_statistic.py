"""kpss_statistic: one pass is enough.

    kpss_statistic(x[l]):
        t1 = x - sum(x, l) / size(l)
        return sum(scan(lambda c1: c1 + t1, l, 0.0, after) ** 2, l) / size(l) ** 2 / (sum(t1 ** 2, l) / size(l))

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 10 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    sx' = sx + x[l]
    h'  = h
    N'  = N + 1
    t'  = t + 2·g − 2·(h − x[l])
    u'  = u − 2·N − 2
    v'  = v + g² − 2·g·(h − x[l]) + (h − x[l])²
    r'  = r − g·N − N·g + 2·N·(h − x[l]) − 2·g + 2·(h − x[l])
    y'  = y + N² + 2·N + 1
    g'  = g − h + x[l]
    mu' = sx'/N'
    δ   = mu − mu'  ¹
    M2' = M2 + δ²·N + (x[l] − mu')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    M2/N_l divides and may be 0: the result is then what IEEE division gives
    z = v + r·(sx/N_l − h) + y·(sx/N_l − h)² is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference.

Nothing below is a proof: merge moves sums to new pivots. Tested below, by Hypothesis on small examples in float64:
everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def minus(x, p):
    """x - p, and 0 where they are equal, also at ±inf."""
    return np.where(np.equal(x, p), 0.0, np.subtract(x, p))


def finite(p):
    """p, and 0 where it is not finite: a part without elements has no pivot of its own."""
    return np.where(np.isfinite(p), p, 0.0)


def times(c, s):
    """c · s, and 0 where s = 0: an empty sum stays empty under any factor."""
    return np.where(np.equal(s, 0), 0.0, np.multiply(c, s))


class State(NamedTuple):
    """What is kept of a part of the elements."""

    sx: np.ndarray  # Σ_l x[l]
    h: np.ndarray  # ∘_l x[l]
    N: np.ndarray  # Σ_l 1
    t: np.ndarray  # ∘_l 0
    u: np.ndarray  # ∘_l −2
    v: np.ndarray  # ∘_l 0
    r: np.ndarray  # ∘_l 0
    y: np.ndarray  # ∘_l 1
    g: np.ndarray  # ∘_l 0
    M2: np.ndarray  # Σ_l (x[l] − mu)²


def lift(x):
    """The state of one element, whose arrays have no axis l any more."""
    sx = x
    h = x
    N = np.float64(1)
    t = np.float64(0)
    u = np.float64(-2)
    v = np.float64(0)
    r = np.float64(0)
    y = np.float64(1)
    g = np.float64(0)
    mu = sx / N
    M2 = minus(x, finite(mu)) ** 2
    return State(sx, h, N, t, u, v, r, y, g, M2)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.sx / part.N
    return part._replace(M2=part.M2 + times(minus(finite(mu), finite(mu_new)) ** 2, part.N))


def merge(one, two):
    """The state of two parts together."""
    sx = one.sx + two.sx
    h = one.h
    N = one.N + two.N
    t = one.t + 2 * two.N * one.g + two.t + two.u * (one.h - two.h)
    u = one.u - 2 * two.N * one.N + two.u
    v = (
        one.v + two.N * one.g ** 2 + one.g * (two.t + two.u * (one.h - two.h)) + two.v + two.r * (one.h - two.h)
        + two.y * (one.h - two.h) ** 2
    )
    r = (
        one.r + two.N * (-(one.g * one.N) - one.N * one.g) - one.N * (two.t + two.u * (one.h - two.h)) + two.u
        * one.g + two.r + 2 * two.y * (one.h - two.h)
    )
    y = one.y + two.N * one.N ** 2 - two.u * one.N + two.y
    g = one.g + two.g - two.N * (one.h - two.h)
    mu = sx / N
    left, right = moved(one, mu), moved(two, mu)
    M2 = left.M2 + right.M2
    return State(sx, h, N, t, u, v, r, y, g, M2)


def finalize(state):
    """The results of a state."""
    sx, h, N, t, u, v, r, y, g, M2 = state
    z = v + r * (sx / N - h) + y * (sx / N - h) ** 2
    return z * N / (N ** 2 * M2)


def definition(x):
    """The operator as written."""
    c1 = np.float64(0)
    c1_seen = []
    for at in range(len(x)):
        c1 = c1 + (x[at] - np.sum(x) / len(x))
        c1_seen.append(c1)
    c1s = np.stack(np.broadcast_arrays(*c1_seen), axis=0)
    return np.sum(c1s ** 2) / len(x) ** 2 / (np.sum((x - np.sum(x) / len(x)) ** 2) / len(x))


def between(first, last, x):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(x[at])
    for at in range(first + 1, last):
        state = merge(state, lift(x[at]))
    return state


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
    """A few elements, the parameters, and where they are cut into three neighbours."""
    n = draw(st.integers(3, 6))
    x = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return x, cuts


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
    x, cuts = example
    one = between(0, cuts[0], x)
    two = between(cuts[0], cuts[1], x)
    three = between(cuts[1], len(x), x)
    whole = between(0, len(x), x)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(x)
    around = [finalize(each) for each in (whole, *nudged(whole))]
    for state in (left, right):
        agree(finalize(state), want, *around)
