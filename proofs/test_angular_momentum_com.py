"""angular_momentum_com: one pass is enough.

    angular_momentum_com(m[l], r[l, c], v[l, c]):
        t1 = index(c) == 1
        d1 = sum(m, l)
        t2 = r - sum(m * r, l) / d1
        d2 = sum(where(t1, t2, 0), c)
        t3 = index(c) == 2
        t4 = v - sum(m * v, l) / d1
        d3 = sum(where(t3, t4, 0), c)
        d4 = sum(where(t3, t2, 0), c)
        d5 = sum(where(t1, t4, 0), c)
        t5 = index(c) == 0
        d6 = sum(where(t5, t4, 0), c)
        d7 = sum(where(t5, t2, 0), c)
        return sum(m * (d2 * d3 - d4 * d5), l), sum(m * (d4 * d6 - d7 * d3), l), sum(m * (d7 * d5 - d2 * d6), l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    smr'   = smr + m[l]·r[l,c]
    sm'    = sm + m[l]
    smv'   = smv + m[l]·v[l,c]
    mu_mv' = smv'/sm'
    mu_mr' = smr'/sm'
    δ1     = mu_mv − mu_mv'  ¹
    δ2     = mu_mr − mu_mr'  ¹
    M11m'  = M11m + δ2·δ1·sm + m[l]·(r[l,c] − mu_mr')·(v[l,c__1] − mu_mv')  ¹ ² ³

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sm divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference.

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
    smv: np.ndarray  # Σ_l m[l]·v[l,c]
    M11m: np.ndarray  # Σ_l m[l]·(r[l,c] − mu_mr)·(v[l,c__1] − mu_mv)


def lift(m, r, v):
    """The state of some elements."""
    smr = np.sum(m[..., None] * r, axis=0)
    sm = np.sum(m)
    smv = np.sum(m[..., None] * v, axis=0)
    mu_mv = smv / sm
    mu_mr = smr / sm
    M11m = np.sum(minus(r, finite(mu_mr))[..., None] * minus(v, finite(mu_mv))[:, None] * m[..., None, None], axis=0)
    return State(smr, sm, smv, M11m)


def moved(part, mu_mv_new, mu_mr_new):
    """A part as it is at a new mu_mv and mu_mr."""
    mu_mv = part.smv / part.sm
    mu_mr = part.smr / part.sm
    d = minus(finite(mu_mv), finite(mu_mv_new))
    h = minus(finite(mu_mr), finite(mu_mr_new))
    M11m = (
        part.M11m + times(d, np.where(mu_mr == finite(mu_mr), 0, part.smr)[..., None])
        + times(h[..., None] * d, part.sm) + times(h[..., None], np.where(mu_mv == finite(mu_mv), 0, part.smv))
    )
    return part._replace(M11m=M11m)


def merge(one, two):
    """The state of two parts together."""
    smr = one.smr + two.smr
    sm = one.sm + two.sm
    smv = one.smv + two.smv
    mu_mv = smv / sm
    mu_mr = smr / sm
    left, right = moved(one, mu_mv, mu_mr), moved(two, mu_mv, mu_mr)
    M11m = left.M11m + right.M11m
    return State(smr, sm, smv, M11m)


def finalize(state, r):
    """The results of a state."""
    smr, sm, smv, M11m = state
    here = np.arange(r.shape[1]) == 2
    h = np.arange(r.shape[1]) == 1
    g = np.arange(r.shape[1]) == 1
    z = np.arange(r.shape[1]) == 2
    t = (
        np.sum(np.sum(np.where(here, np.where(h[..., None], M11m, 0), 0), axis=0))
        + np.sum(np.sum(np.where(g, np.where(z[..., None], -M11m, 0), 0), axis=0))
    )
    w = np.arange(r.shape[1]) == 0
    f = np.arange(r.shape[1]) == 0
    u = (
        np.sum(np.sum(np.where(w, np.where(z[..., None], M11m, 0), 0), axis=0))
        + np.sum(np.sum(np.where(here, np.where(f[..., None], -M11m, 0), 0), axis=0))
    )
    y = (
        np.sum(np.sum(np.where(g, np.where(f[..., None], M11m, 0), 0), axis=0))
        + np.sum(np.sum(np.where(w, np.where(h[..., None], -M11m, 0), 0), axis=0))
    )
    return t, u, y


def definition(m, r, v):
    """The operator as written."""
    here = np.arange(r.shape[1]) == 1
    dr = r - np.sum(m[..., None] * r, axis=0) / np.sum(m)
    S = np.sum(np.where(here, dr, 0), axis=1)
    h = np.arange(r.shape[1]) == 2
    dv = v - np.sum(m[..., None] * v, axis=0) / np.sum(m)
    S_vm = np.sum(np.where(h, dv, 0), axis=1)
    S_rm = np.sum(np.where(h, dr, 0), axis=1)
    g = np.sum(np.where(here, dv, 0), axis=1)
    z = np.arange(r.shape[1]) == 0
    w = np.sum(np.where(z, dv, 0), axis=1)
    f = np.sum(np.where(z, dr, 0), axis=1)
    return np.sum(m * (S * S_vm - S_rm * g)), np.sum(m * (S_rm * w - f * S_vm)), np.sum(m * (f * g - S * w))


def of(at, m, r, v):
    """The state of the elements at these places."""
    return lift(m[at], r[at], v[at])


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
    r = array(draw, (n, 3), ANY, POSITIVE, UNIT, FEW)
    v = array(draw, (n, 3), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return m, r, v, owner


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
    m, r, v, owner = example
    one = of(owner == 0, m, r, v)
    two = of(owner == 1, m, r, v)
    three = of(owner == 2, m, r, v)
    nothing = of(owner < 0, m, r, v)
    states = (
        of(owner >= 0, m, r, v),
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
    want = definition(m, r, v)
    around = [finalize(each, r) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, r), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("m1 r1 v1", real=True), sympy.symbols("m2 r2 v2", real=True)]
    mu_mv_new, mu_mr_new = sympy.symbols("mu_mv_new mu_mr_new", real=True)
    smr = sum(m * r for m, r, v in elements)
    sm = sum(m for m, r, v in elements)
    mu_mr = smr / sm
    smv = sum(m * v for m, r, v in elements)
    mu_mv = smv / sm
    M11m = sum(m * (r - mu_mr) * (v - mu_mv) for m, r, v in elements)
    differences = {
        "M11m": (
            sum(m * (r - mu_mr_new) * (v - mu_mv_new) for m, r, v in elements)
            - (M11m + sm * (mu_mr - mu_mr_new) * (mu_mv - mu_mv_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
