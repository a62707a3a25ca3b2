"""dipole_quadrupole: one pass is enough.

    dipole_quadrupole(q[l], m[l], r[l, c], basis[c, u]):
        t1 = r - sum(m * r, l) / sum(m, l)
        return sum(q * t1, l), sum(q * (3.0 * t1 * sum(t1 * basis, c) - sum(t1 * t1, c) * basis), l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    smr'  = smr + m[l]·r[l,c]
    sm'   = sm + m[l]
    mu'   = smr'/sm'
    δ2    = mu − mu'  ¹
    M10q' = M10q + δ2·sq + q[l]·(r[l,c] − mu')  ¹ ²
    sq'   = sq + q[l]
    δ1    = mu − mu'  ¹
    M11q' = M11q + δ1·M10q + δ2·δ1·sq + δ2·M10q + q[l]·(r[l,c] − mu')·(r[l,c__1] − mu')  ¹ ²
    t'    = t + Σ_c 2·δ2·M10q + Σ_c δ2²·sq + Σ_c q[l]·(r[l,c] − mu')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sm divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, recentre_difference.

Proved below, by SymPy over the reals: the sums about a new pivot are those that `moved` gives. Tested below, by
Hypothesis on small examples in float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
import sympy
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

    smr: np.ndarray  # Σ_l m[l]·r[l,c]
    sm: np.ndarray  # Σ_l m[l]
    M10q: np.ndarray  # Σ_l q[l]·(r[l,c] − mu)
    sq: np.ndarray  # Σ_l q[l]
    M11q: np.ndarray  # Σ_l q[l]·(r[l,c] − mu)·(r[l,c__1] − mu)
    t: np.ndarray  # Σ_l Σ_c q[l]·(r[l,c] − mu)²


def lift(q, m, r):
    """The state of some elements."""
    smr = np.sum(m[..., None] * r, axis=0)
    sm = np.sum(m)
    mu = smr / sm
    dr = minus(r, finite(mu))
    M10q = np.sum(dr * q[..., None], axis=0)
    sq = np.sum(q)
    M11q = np.sum(dr[..., None] * minus(r, finite(mu))[:, None] * q[..., None, None], axis=0)
    t = np.sum(np.sum(dr ** 2 * q[..., None], axis=1))
    return State(smr, sm, M10q, sq, M11q, t)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.smr / part.sm
    d = minus(finite(mu), finite(mu_new))
    u = minus(finite(mu), finite(mu_new))
    M10q = part.M10q + times(d, part.sq)
    M11q = (
        part.M11q + times(u, part.M10q[..., None]) + times(d[..., None] * u, part.sq) + times(d[..., None], part.M10q)
    )
    t = part.t + np.sum(times(2 * d, part.M10q)) + np.sum(times(d ** 2, part.sq))
    return part._replace(M10q=M10q, M11q=M11q, t=t)


def merge(one, two):
    """The state of two parts together."""
    smr = one.smr + two.smr
    sm = one.sm + two.sm
    mu = smr / sm
    left, right = moved(one, mu), moved(two, mu)
    M10q = left.M10q + right.M10q
    M11q = left.M11q + right.M11q
    t = left.t + right.t
    sq = one.sq + two.sq
    return State(smr, sm, M10q, sq, M11q, t)


def finalize(state, basis):
    """The results of a state."""
    smr, sm, M10q, sq, M11q, t = state
    v = -(t * basis) + np.sum((3 * M11q)[..., None] * basis, axis=1)
    return M10q, v


def definition(q, m, r, basis):
    """The operator as written."""
    dr = r - np.sum(m[..., None] * r, axis=0) / np.sum(m)
    return (
        np.sum(q[..., None] * dr, axis=0),
        np.sum(
            (
                q[..., None, None] * ((3 * dr)[..., None] * np.sum(dr[..., None] * basis, axis=1)[:, None]
                - np.sum(dr * dr, axis=1)[..., None, None] * basis)
            ),
            axis=0,
        ),
    )


def of(at, q, m, r):
    """The state of the elements at these places."""
    return lift(q[at], m[at], r[at])


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
    q = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    m = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    r = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    basis = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return q, m, r, basis, owner


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
    q, m, r, basis, owner = example
    one = of(owner == 0, q, m, r)
    two = of(owner == 1, q, m, r)
    three = of(owner == 2, q, m, r)
    nothing = of(owner < 0, q, m, r)
    states = (
        of(owner >= 0, q, m, r),
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
    want = definition(q, m, r, basis)
    around = [finalize(each, basis) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, basis), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("m1 r1 q1", real=True), sympy.symbols("m2 r2 q2", real=True)]
    mu_new = sympy.symbols("mu_new", real=True)
    smr = sum(m * r for m, r, q in elements)
    sm = sum(m for m, r, q in elements)
    mu = smr / sm
    M10q = sum(q * (r - mu) for m, r, q in elements)
    sq = sum(q for m, r, q in elements)
    M11q = sum(q * (r - mu) * (r - mu) for m, r, q in elements)
    differences = {
        "M10q": sum(q * (r - mu_new) for m, r, q in elements) - (M10q + sq * (mu - mu_new)),
        "M11q": (
            sum(q * (r - mu_new) * (r - mu_new) for m, r, q in elements)
            - (M11q + M10q * (mu - mu_new) + sq * (mu - mu_new) * (mu - mu_new) + M10q * (mu - mu_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
