"""attn_bwd_dq: one pass is enough.

    attn_bwd_dq(q[d], K[l, d], V[l, v], dO[v]):
        t1 = sqrt(size(d))
        t2 = sum(q * K, d) / t1
        t3 = exp(t2 - max(t2, l))
        t4 = t3 / sum(t3, l)
        d1 = sum(V * dO, v)
        return sum(t4 * (d1 - sum(t4 * d1, l)) * K, l) / t1

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 5 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x1 = (Σ_d q[d]·K[l,d])/√(N_d)
    x2 = Σ_v V[l,v]·dO[v]

Update by one element:

    m'          = max(m, x1)
    Z'          = Z·exp(m − m') + exp(x1 − m')  ¹ ²
    E_q_K_V_dO' = E_q_K_V_dO·exp(m − m') + exp(x1 − m')·x2  ¹ ²
    mu_qK'      = E_q_K_V_dO'/Z'
    E_K_q_V_dO' = E_K_q_V_dO·exp(m − m') + o·exp(m − m')·(mu_qK − mu_qK') + K[l,d]·exp(x1 − m')·(x2 − mu_qK')  ¹ ²
    o'          = o·exp(m − m') + K[l,d]·exp(x1 − m')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    exp((Σ_d q[d]·K[l,d])/√(N_d) − m) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, exp_of_sum.

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

    m: np.ndarray  # max_l (Σ_d q[d]·K[l,d])/√(N_d)
    Z: np.ndarray  # Σ_l exp((Σ_d q[d]·K[l,d])/√(N_d) − m)
    E_q_K_V_dO: np.ndarray  # Σ_l exp((Σ_d q[d]·K[l,d])/√(N_d) − m)·Σ_v V[l,v]·dO[v]
    E_K_q_V_dO: np.ndarray  # Σ_l K[l,d]·exp((Σ_d q[d]·K[l,d])/√(N_d) − m)·(Σ_v V[l,v]·dO[v] − mu_qK)
    o: np.ndarray  # Σ_l K[l,d]·exp((Σ_d q[d]·K[l,d])/√(N_d) − m)


def lift(q, K, V, dO):
    """The state of some elements."""
    S = np.sum(q * K, axis=1) / np.sqrt(len(q))
    m = np.max(S, initial=-np.inf)
    e = np.exp(minus(S, finite(m)))
    Z = np.sum(e)
    S_V_dO = np.sum(V * dO, axis=1)
    E_q_K_V_dO = np.sum(e * S_V_dO)
    mu_qK = E_q_K_V_dO / Z
    E_K_q_V_dO = np.sum(minus(S_V_dO, finite(mu_qK))[..., None] * K * e[..., None], axis=0)
    o = np.sum(K * e[..., None], axis=0)
    return State(m, Z, E_q_K_V_dO, E_K_q_V_dO, o)


def moved_by_m(part, m_new):
    """A part as it is at a new m."""
    e = np.exp(minus(finite(part.m), finite(m_new)))
    Z = times(e, part.Z)
    E_q_K_V_dO = times(e, part.E_q_K_V_dO)
    o = times(e, part.o)
    return part._replace(Z=Z, E_q_K_V_dO=E_q_K_V_dO, o=o)


def moved_by_m_mu_qK(part, m_new, mu_qK_new):
    """A part as it is at a new m and mu_qK."""
    mu_qK = part.E_q_K_V_dO / part.Z
    e = np.exp(minus(finite(part.m), finite(m_new)))
    E_K_q_V_dO = times(e, part.E_K_q_V_dO) + times(minus(finite(mu_qK), finite(mu_qK_new)) * e, part.o)
    return part._replace(E_K_q_V_dO=E_K_q_V_dO)


def merge(one, two):
    """The state of two parts together."""
    m = np.maximum(one.m, two.m)
    left, right = moved_by_m(one, m), moved_by_m(two, m)
    Z = left.Z + right.Z
    E_q_K_V_dO = left.E_q_K_V_dO + right.E_q_K_V_dO
    o = left.o + right.o
    mu_qK = E_q_K_V_dO / Z
    left, right = moved_by_m_mu_qK(one, m, mu_qK), moved_by_m_mu_qK(two, m, mu_qK)
    E_K_q_V_dO = left.E_K_q_V_dO + right.E_K_q_V_dO
    return State(m, Z, E_q_K_V_dO, E_K_q_V_dO, o)


def finalize(state, q):
    """The results of a state."""
    m, Z, E_q_K_V_dO, E_K_q_V_dO, o = state
    mu = E_K_q_V_dO / Z
    return mu / np.sqrt(len(q))


def definition(q, K, V, dO):
    """The operator as written."""
    sigma = np.sqrt(len(q))
    S = np.sum(q * K, axis=1) / sigma
    e = np.exp(S - np.max(S))
    p = e / np.sum(e)
    S_V_dO = np.sum(V * dO, axis=1)
    return np.sum((p * (S_V_dO - np.sum(p * S_V_dO)))[..., None] * K, axis=0) / sigma


def of(at, q, K, V, dO):
    """The state of the elements at these places."""
    return lift(q, K[at], V[at], dO)


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
    q = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    K = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    V = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    dO = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return q, K, V, dO, owner


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
    q, K, V, dO, owner = example
    one = of(owner == 0, q, K, V, dO)
    two = of(owner == 1, q, K, V, dO)
    three = of(owner == 2, q, K, V, dO)
    nothing = of(owner < 0, q, K, V, dO)
    states = (
        of(owner >= 0, q, K, V, dO),
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
    want = definition(q, K, V, dO)
    around = [finalize(each, q) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, q), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("K1 S1 t1", real=True), sympy.symbols("K2 S2 t2", real=True)]
    m, m_new, mu_qK, mu_qK_new, g = sympy.symbols("m m_new mu_qK mu_qK_new g", real=True)
    Z = sum(sympy.exp(S / sympy.sqrt(g) - m) for K, S, t in elements)
    E_q_K_V_dO = sum(t * sympy.exp(S / sympy.sqrt(g) - m) for K, S, t in elements)
    E_K_q_V_dO = sum(K * sympy.exp(S / sympy.sqrt(g) - m) * (t - mu_qK) for K, S, t in elements)
    o = sum(K * sympy.exp(S / sympy.sqrt(g) - m) for K, S, t in elements)
    differences = {
        "Z": sum(sympy.exp(S / sympy.sqrt(g) - m_new) for K, S, t in elements) - (Z * sympy.exp(m - m_new)),
        "E_q_K_V_dO": (
            sum(t * sympy.exp(S / sympy.sqrt(g) - m_new) for K, S, t in elements)
            - (E_q_K_V_dO * sympy.exp(m - m_new))
        ),
        "E_K_q_V_dO": (
            sum(K * sympy.exp(S / sympy.sqrt(g) - m_new) * (t - mu_qK_new) for K, S, t in elements)
            - (E_K_q_V_dO * sympy.exp(m - m_new) + o * sympy.exp(m - m_new) * (mu_qK - mu_qK_new))
        ),
        "o": sum(K * sympy.exp(S / sympy.sqrt(g) - m_new) for K, S, t in elements) - (o * sympy.exp(m - m_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
