"""attn_natten2d: one pass is enough.

    attn_natten2d(q[d], K[l, d], V[l, v], qx[], qy[]):
        t1 = sum(q * K, d) / sqrt(size(d))
        t2 = (abs(index(l) // 8 - qx) <= 1) & (abs(index(l) % 8 - qy) <= 2)
        d1 = max(t1, l, where=t2)
        t3 = exp(t1 - d1)
        d2 = sum(t3, l, where=t2)
        return sum(t3 * V, l, where=t2) / d2, d1 + log(d2)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x1 = (Σ_d q[d]·K[l,d])/√(N_d)
    x2 = |l // 8 − qx|
    x3 = |l mod 8 − qy|

Update by one element:

    m' = max(m, x1)   element where x2 ≤ 1 ∧ x3 ≤ 2
    o' = o·exp(m − m') + V[l,v]·exp(x1 − m')   element where x2 ≤ 1 ∧ x3 ≤ 2  ¹ ²
    Z' = Z·exp(m − m') + exp(x1 − m')   element where x2 ≤ 1 ∧ x3 ≤ 2  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    exp((Σ_d q[d]·K[l,d])/√(N_d) − m) may overflow: nothing bounds its exponent
    Z divides and may be 0: the result is then what IEEE division gives

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

    m: np.ndarray  # max_l (Σ_d q[d]·K[l,d])/√(N_d) where |l // 8 − qx| ≤ 1 ∧ |l mod 8 − qy| ≤ 2
    # Σ_l V[l,v]·exp((Σ_d q[d]·K[l,d])/√(N_d) − m) where |l // 8 − qx| ≤ 1 ∧ |l mod 8 − qy| ≤ 2
    o: np.ndarray
    Z: np.ndarray  # Σ_l exp((Σ_d q[d]·K[l,d])/√(N_d) − m) where |l // 8 − qx| ≤ 1 ∧ |l mod 8 − qy| ≤ 2


def lift(q, K, V, qx, qy, l):
    """The state of some elements."""
    S = np.sum(q * K, axis=1) / np.sqrt(len(q))
    t = (np.abs(l // 8 - qx) <= 1) & (np.abs(l % 8 - qy) <= 2)
    m = np.max(np.where(t, S, -np.inf), initial=-np.inf)
    e = np.exp(minus(S, finite(m)))
    o = np.sum(np.where(t[..., None], V * e[..., None], 0), axis=0)
    Z = np.sum(np.where(t, e, 0))
    return State(m, o, Z)


def moved(part, m_new):
    """A part as it is at a new m."""
    e = np.exp(minus(finite(part.m), finite(m_new)))
    o = times(e, part.o)
    Z = times(e, part.Z)
    return part._replace(o=o, Z=Z)


def merge(one, two):
    """The state of two parts together."""
    m = np.maximum(one.m, two.m)
    left, right = moved(one, m), moved(two, m)
    o = left.o + right.o
    Z = left.Z + right.Z
    return State(m, o, Z)


def finalize(state):
    """The results of a state."""
    m, o, Z = state
    return o / Z, m + np.log(Z)


def definition(q, K, V, qx, qy):
    """The operator as written."""
    S = np.sum(q * K, axis=1) / np.sqrt(len(q))
    t = (np.abs(np.arange(len(K)) // 8 - qx) <= 1) & (np.abs(np.arange(len(K)) % 8 - qy) <= 2)
    M = np.max(np.where(t, S, -np.inf))
    e = np.exp(S - M)
    Z_q_K_qx_qy = np.sum(np.where(t, e, 0))
    return np.sum(np.where(t[..., None], e[..., None] * V, 0), axis=0) / Z_q_K_qx_qy, M + np.log(Z_q_K_qx_qy)


def of(at, q, K, V, qx, qy):
    """The state of the elements at these places."""
    return lift(q, K[at], V[at], qx, qy, 1.0 * np.flatnonzero(at))


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
    qx = array(draw, (), ANY, POSITIVE, UNIT, FEW)
    qy = array(draw, (), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return q, K, V, qx, qy, owner


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
    q, K, V, qx, qy, owner = example
    one = of(owner == 0, q, K, V, qx, qy)
    two = of(owner == 1, q, K, V, qx, qy)
    three = of(owner == 2, q, K, V, qx, qy)
    nothing = of(owner < 0, q, K, V, qx, qy)
    states = (
        of(owner >= 0, q, K, V, qx, qy),
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
    want = definition(q, K, V, qx, qy)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("V1 S1 taking1", real=True), sympy.symbols("V2 S2 taking2", real=True)]
    m, m_new, g = sympy.symbols("m m_new g", real=True)
    o = sum(taking * V * sympy.exp(S / sympy.sqrt(g) - m) for V, S, taking in elements)
    Z = sum(taking * sympy.exp(S / sympy.sqrt(g) - m) for V, S, taking in elements)
    differences = {
        "o": (
            sum(taking * V * sympy.exp(S / sympy.sqrt(g) - m_new) for V, S, taking in elements)
            - (o * sympy.exp(m - m_new))
        ),
        "Z": (
            sum(taking * sympy.exp(S / sympy.sqrt(g) - m_new) for V, S, taking in elements)
            - (Z * sympy.exp(m - m_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
