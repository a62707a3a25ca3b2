"""thermal_kinetic: one pass is enough.

    thermal_kinetic(m[l], v[l, c]):
        d1 = sum(m * v, l)
        return sum(0.5 * m * sum((v - d1 / sum(m, l)) ** 2, c), l), d1

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    smv' = smv + m[l]·v[l,c]
    sm'  = sm + m[l]
    mu'  = smv'/sm'
    δ    = mu − mu'  ¹
    t'   = t + Σ_c δ²·sm + Σ_c m[l]·(v[l,c] − mu')²  ¹ ² ³

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sm divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference.

Nothing below is a proof: the update rule is none that SymPy decides. Tested below, by Hypothesis on small examples in
float64: everything else the theorem says.
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

    smv: np.ndarray  # Σ_l m[l]·v[l,c]
    sm: np.ndarray  # Σ_l m[l]
    t: np.ndarray  # Σ_l Σ_c m[l]·(v[l,c] − mu)²


def lift(m, v):
    """The state of some elements."""
    smv = np.sum(m[..., None] * v, axis=0)
    sm = np.sum(m)
    mu = smv / sm
    t = np.sum(np.sum(minus(v, finite(mu)) ** 2 * m[..., None], axis=1))
    return State(smv, sm, t)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.smv / part.sm
    d = minus(finite(mu), finite(mu_new))
    t = part.t + np.sum(times(2 * d, np.where(mu == finite(mu), 0, part.smv))) + np.sum(times(d ** 2, part.sm))
    return part._replace(t=t)


def merge(one, two):
    """The state of two parts together."""
    smv = one.smv + two.smv
    sm = one.sm + two.sm
    mu = smv / sm
    left, right = moved(one, mu), moved(two, mu)
    t = left.t + right.t
    return State(smv, sm, t)


def finalize(state):
    """The results of a state."""
    smv, sm, t = state
    u = 0.5 * t
    return u, smv


def definition(m, v):
    """The operator as written."""
    smv_mv = np.sum(m[..., None] * v, axis=0)
    return np.sum(0.5 * m * np.sum((v - smv_mv / np.sum(m)) ** 2, axis=1)), smv_mv


def of(at, m, v):
    """The state of the elements at these places."""
    return lift(m[at], v[at])


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
    m = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    v = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return m, v, owner


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
    m, v, owner = example
    one = of(owner == 0, m, v)
    two = of(owner == 1, m, v)
    three = of(owner == 2, m, v)
    nothing = of(owner < 0, m, v)
    states = (
        of(owner >= 0, m, v),
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
    want = definition(m, v)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
