"""time_decayed_sum: one pass is enough.

    time_decayed_sum(v[l], t[l]):
        t1 = exp((t - max(t, l)) / 3.0)
        d1 = sum(v * t1, l)
        return d1, d1 / sum(t1, l), max(abs(v) * t1, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m_t'  = max(m_t, t[l])
    o'    = o·exp((m_t − m_t')/3) + v[l]·exp((t[l] − m_t')/3)  ¹ ²
    Z'    = Z·exp((m_t − m_t')/3) + exp((t[l] − m_t')/3)  ¹ ²
    m_vt' = max(m_vt if m_vt = −∞ else m_vt·exp((m_t − m_t')/3), |v[l]|·exp((t[l] − m_t')/3))  ¹ ³

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, difference, gather_varying,
sum_pulls_invariant, sum_of_invariant, recentre_difference, exp_of_sum, max_scales_by_nonnegative.

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

    m_t: np.ndarray  # max_l t[l]
    o: np.ndarray  # Σ_l v[l]·exp((t[l] − m_t)/3)
    Z: np.ndarray  # Σ_l exp((t[l] − m_t)/3)
    m_vt: np.ndarray  # max_l |v[l]|·exp((t[l] − m_t)/3)


def lift(v, t):
    """The state of some elements."""
    m_t = np.max(t, initial=-np.inf)
    e = np.exp(minus(t, finite(m_t)) / 3)
    o = np.sum(v * e)
    Z = np.sum(e)
    m_vt = np.max(np.abs(v) * e, initial=-np.inf)
    return State(m_t, o, Z, m_vt)


def moved(part, m_t_new):
    """A part as it is at a new m_t."""
    e = np.exp(minus(finite(part.m_t), finite(m_t_new)) / 3)
    o = times(e, part.o)
    Z = times(e, part.Z)
    m_vt = np.where(part.m_vt == -np.inf, part.m_vt, part.m_vt * e)
    return part._replace(o=o, Z=Z, m_vt=m_vt)


def merge(one, two):
    """The state of two parts together."""
    m_t = np.maximum(one.m_t, two.m_t)
    left, right = moved(one, m_t), moved(two, m_t)
    o = left.o + right.o
    Z = left.Z + right.Z
    m_vt = np.maximum(left.m_vt, right.m_vt)
    return State(m_t, o, Z, m_vt)


def finalize(state):
    """The results of a state."""
    m_t, o, Z, m_vt = state
    return o, o / Z, m_vt


def definition(v, t):
    """The operator as written."""
    e = np.exp((t - np.max(t)) / 3)
    o_vt = np.sum(v * e)
    return o_vt, o_vt / np.sum(e), np.max(np.abs(v) * e)


def of(at, v, t):
    """The state of the elements at these places."""
    return lift(v[at], t[at])


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
    v = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    t = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return v, t, owner


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
    v, t, owner = example
    one = of(owner == 0, v, t)
    two = of(owner == 1, v, t)
    three = of(owner == 2, v, t)
    nothing = of(owner < 0, v, t)
    states = (
        of(owner >= 0, v, t),
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
    want = definition(v, t)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("v1 t1", real=True), sympy.symbols("v2 t2", real=True)]
    m_t, m_t_new = sympy.symbols("m_t m_t_new", real=True)
    o = sum(v * sympy.exp((t - m_t) / 3) for v, t in elements)
    Z = sum(sympy.exp((t - m_t) / 3) for v, t in elements)
    differences = {
        "o": sum(v * sympy.exp((t - m_t_new) / 3) for v, t in elements) - (o * sympy.exp((m_t - m_t_new) / 3)),
        "Z": sum(sympy.exp((t - m_t_new) / 3) for v, t in elements) - (Z * sympy.exp((m_t - m_t_new) / 3)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
