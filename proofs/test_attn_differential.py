"""attn_differential: one pass is enough.

    attn_differential(q1[d], q2[d], K1[l, d], K2[l, d], V[l, v], lam[]):
        t1 = sqrt(size(d))
        t2 = sum(q1 * K1, d) / t1
        t3 = exp(t2 - max(t2, l))
        t4 = sum(q2 * K2, d) / t1
        t5 = exp(t4 - max(t4, l))
        t6 = sum(t3 * V, l) / sum(t3, l) - lam * (sum(t5 * V, l) / sum(t5, l))
        return t6 / sqrt(sum(t6 * t6, v) / size(v) + 1e-06)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x1 = (Σ_d q1[d]·K1[l,d])/√(N_d)
    x2 = (Σ_d q2[d]·K2[l,d])/√(N_d)

Update by one element:

    m_q1_K1'   = max(m_q1_K1, x1)
    o_V_q1_K1' = o_V_q1_K1·exp(m_q1_K1 − m_q1_K1') + V[l,v]·exp(x1 − m_q1_K1')  ¹ ²
    Z_q1_K1'   = Z_q1_K1·exp(m_q1_K1 − m_q1_K1') + exp(x1 − m_q1_K1')  ¹ ²
    m_q2_K2'   = max(m_q2_K2, x2)
    o_V_q2_K2' = o_V_q2_K2·exp(m_q2_K2 − m_q2_K2') + V[l,v]·exp(x2 − m_q2_K2')  ¹ ²
    Z_q2_K2'   = Z_q2_K2·exp(m_q2_K2 − m_q2_K2') + exp(x2 − m_q2_K2')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    exp((Σ_d q1[d]·K1[l,d])/√(N_d) − m_q1_K1) may overflow: nothing bounds its exponent
    exp((Σ_d q2[d]·K2[l,d])/√(N_d) − m_q2_K2) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum.

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

    m_q1_K1: np.ndarray  # max_l (Σ_d q1[d]·K1[l,d])/√(N_d)
    o_V_q1_K1: np.ndarray  # Σ_l V[l,v]·exp((Σ_d q1[d]·K1[l,d])/√(N_d) − m_q1_K1)
    Z_q1_K1: np.ndarray  # Σ_l exp((Σ_d q1[d]·K1[l,d])/√(N_d) − m_q1_K1)
    m_q2_K2: np.ndarray  # max_l (Σ_d q2[d]·K2[l,d])/√(N_d)
    o_V_q2_K2: np.ndarray  # Σ_l V[l,v]·exp((Σ_d q2[d]·K2[l,d])/√(N_d) − m_q2_K2)
    Z_q2_K2: np.ndarray  # Σ_l exp((Σ_d q2[d]·K2[l,d])/√(N_d) − m_q2_K2)


def lift(q1, q2, K1, K2, V):
    """The state of some elements."""
    sigma = np.sqrt(len(q1))
    S = np.sum(q1 * K1, axis=1) / sigma
    m_q1_K1 = np.max(S, initial=-np.inf)
    e = np.exp(minus(S, finite(m_q1_K1)))
    o_V_q1_K1 = np.sum(V * e[..., None], axis=0)
    Z_q1_K1 = np.sum(e)
    S_q2_K2 = np.sum(q2 * K2, axis=1) / sigma
    m_q2_K2 = np.max(S_q2_K2, initial=-np.inf)
    e_q2_K2 = np.exp(minus(S_q2_K2, finite(m_q2_K2)))
    o_V_q2_K2 = np.sum(V * e_q2_K2[..., None], axis=0)
    Z_q2_K2 = np.sum(e_q2_K2)
    return State(m_q1_K1, o_V_q1_K1, Z_q1_K1, m_q2_K2, o_V_q2_K2, Z_q2_K2)


def moved_by_m_q1_K1(part, m_q1_K1_new):
    """A part as it is at a new m_q1_K1."""
    e = np.exp(minus(finite(part.m_q1_K1), finite(m_q1_K1_new)))
    o_V_q1_K1 = times(e, part.o_V_q1_K1)
    Z_q1_K1 = times(e, part.Z_q1_K1)
    return part._replace(o_V_q1_K1=o_V_q1_K1, Z_q1_K1=Z_q1_K1)


def moved_by_m_q2_K2(part, m_q2_K2_new):
    """A part as it is at a new m_q2_K2."""
    e = np.exp(minus(finite(part.m_q2_K2), finite(m_q2_K2_new)))
    o_V_q2_K2 = times(e, part.o_V_q2_K2)
    Z_q2_K2 = times(e, part.Z_q2_K2)
    return part._replace(o_V_q2_K2=o_V_q2_K2, Z_q2_K2=Z_q2_K2)


def merge(one, two):
    """The state of two parts together."""
    m_q1_K1 = np.maximum(one.m_q1_K1, two.m_q1_K1)
    left, right = moved_by_m_q1_K1(one, m_q1_K1), moved_by_m_q1_K1(two, m_q1_K1)
    o_V_q1_K1 = left.o_V_q1_K1 + right.o_V_q1_K1
    Z_q1_K1 = left.Z_q1_K1 + right.Z_q1_K1
    m_q2_K2 = np.maximum(one.m_q2_K2, two.m_q2_K2)
    left, right = moved_by_m_q2_K2(one, m_q2_K2), moved_by_m_q2_K2(two, m_q2_K2)
    o_V_q2_K2 = left.o_V_q2_K2 + right.o_V_q2_K2
    Z_q2_K2 = left.Z_q2_K2 + right.Z_q2_K2
    return State(m_q1_K1, o_V_q1_K1, Z_q1_K1, m_q2_K2, o_V_q2_K2, Z_q2_K2)


def finalize(state, V, lam):
    """The results of a state."""
    m_q1_K1, o_V_q1_K1, Z_q1_K1, m_q2_K2, o_V_q2_K2, Z_q2_K2 = state
    d = o_V_q1_K1 / Z_q1_K1 - o_V_q2_K2 * lam / Z_q2_K2
    return d / np.sqrt(np.sum(d ** 2) / V.shape[1] + 1e-06)


def definition(q1, q2, K1, K2, V, lam):
    """The operator as written."""
    sigma = np.sqrt(len(q1))
    S = np.sum(q1 * K1, axis=1) / sigma
    e = np.exp(S - np.max(S))
    S_q2_K2 = np.sum(q2 * K2, axis=1) / sigma
    e_q2_K2 = np.exp(S_q2_K2 - np.max(S_q2_K2))
    d = (
        np.sum(e[..., None] * V, axis=0) / np.sum(e) - lam
        * (np.sum(e_q2_K2[..., None] * V, axis=0) / np.sum(e_q2_K2))
    )
    return d / np.sqrt(np.sum(d * d) / V.shape[1] + 1e-06)


def of(at, q1, q2, K1, K2, V):
    """The state of the elements at these places."""
    return lift(q1, q2, K1[at], K2[at], V[at])


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
    q1 = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    q2 = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    K1 = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    K2 = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    V = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    lam = array(draw, (), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return q1, q2, K1, K2, V, lam, owner


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
    q1, q2, K1, K2, V, lam, owner = example
    one = of(owner == 0, q1, q2, K1, K2, V)
    two = of(owner == 1, q1, q2, K1, K2, V)
    three = of(owner == 2, q1, q2, K1, K2, V)
    nothing = of(owner < 0, q1, q2, K1, K2, V)
    states = (
        of(owner >= 0, q1, q2, K1, K2, V),
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
    want = definition(q1, q2, K1, K2, V, lam)
    around = [finalize(each, V, lam) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, V, lam), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("V1 S1 t1", real=True), sympy.symbols("V2 S2 t2", real=True)]
    m_q1_K1, m_q1_K1_new, m_q2_K2, m_q2_K2_new, g = sympy.symbols("m_q1_K1 m_q1_K1_new m_q2_K2 m_q2_K2_new g", real=True)
    o_V_q1_K1 = sum(V * sympy.exp(S / sympy.sqrt(g) - m_q1_K1) for V, S, t in elements)
    Z_q1_K1 = sum(sympy.exp(S / sympy.sqrt(g) - m_q1_K1) for V, S, t in elements)
    o_V_q2_K2 = sum(V * sympy.exp(t / sympy.sqrt(g) - m_q2_K2) for V, S, t in elements)
    Z_q2_K2 = sum(sympy.exp(t / sympy.sqrt(g) - m_q2_K2) for V, S, t in elements)
    differences = {
        "o_V_q1_K1": (
            sum(V * sympy.exp(S / sympy.sqrt(g) - m_q1_K1_new) for V, S, t in elements)
            - (o_V_q1_K1 * sympy.exp(m_q1_K1 - m_q1_K1_new))
        ),
        "Z_q1_K1": (
            sum(sympy.exp(S / sympy.sqrt(g) - m_q1_K1_new) for V, S, t in elements)
            - (Z_q1_K1 * sympy.exp(m_q1_K1 - m_q1_K1_new))
        ),
        "o_V_q2_K2": (
            sum(V * sympy.exp(t / sympy.sqrt(g) - m_q2_K2_new) for V, S, t in elements)
            - (o_V_q2_K2 * sympy.exp(m_q2_K2 - m_q2_K2_new))
        ),
        "Z_q2_K2": (
            sum(sympy.exp(t / sympy.sqrt(g) - m_q2_K2_new) for V, S, t in elements)
            - (Z_q2_K2 * sympy.exp(m_q2_K2 - m_q2_K2_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
