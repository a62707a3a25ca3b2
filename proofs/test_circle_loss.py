"""circle_loss: one pass is enough.

    circle_loss(sp[l], sn[l]):
        t1 = -8.0 * maximum(1.25 - sp, 0) * (sp - 0.75)
        d1 = max(t1, l)
        t2 = 8.0 * maximum(sn + 0.25, 0) * (sn - 0.25)
        d2 = max(t2, l)
        t3 = d1 + log(sum(exp(t1 - d1), l)) + (d2 + log(sum(exp(t2 - d2), l)))
        return maximum(t3, 0) + log1p(exp(-abs(t3)))

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m_sp' = max(m_sp, −8·max(1.25 − sp[l], 0)·(sp[l] − 0.75))
    Z_sp' = Z_sp·exp(m_sp − m_sp') + exp(−8·max(1.25 − sp[l], 0)·(sp[l] − 0.75) − m_sp')  ¹ ²
    m_sn' = max(m_sn, 8·max(sn[l] + 0.25, 0)·(sn[l] − 0.25))
    Z_sn' = Z_sn·exp(m_sn − m_sn') + exp(8·max(sn[l] + 0.25, 0)·(sn[l] − 0.25) − m_sn')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    exp(−8·max(1.25 − sp[l], 0)·(sp[l] − 0.75) − m_sp) may overflow: nothing bounds its exponent
    exp(8·max(sn[l] + 0.25, 0)·(sn[l] − 0.25) − m_sn) may overflow: nothing bounds its exponent

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

    m_sp: np.ndarray  # max_l −8·max(1.25 − sp[l], 0)·(sp[l] − 0.75)
    Z_sp: np.ndarray  # Σ_l exp(−8·max(1.25 − sp[l], 0)·(sp[l] − 0.75) − m_sp)
    m_sn: np.ndarray  # max_l 8·max(sn[l] + 0.25, 0)·(sn[l] − 0.25)
    Z_sn: np.ndarray  # Σ_l exp(8·max(sn[l] + 0.25, 0)·(sn[l] − 0.25) − m_sn)


def lift(sp, sn):
    """The state of some elements."""
    t = np.maximum(1.25 - sp, 0)
    m_sp = np.max(-(8 * t * (sp - 0.75)), initial=-np.inf)
    Z_sp = np.sum(np.exp(minus(-(8 * t * (sp - 0.75)), finite(m_sp))))
    u = np.maximum(sn + 0.25, 0)
    m_sn = np.max(8 * u * (sn - 0.25), initial=-np.inf)
    Z_sn = np.sum(np.exp(minus(8 * u * (sn - 0.25), finite(m_sn))))
    return State(m_sp, Z_sp, m_sn, Z_sn)


def moved_by_m_sp(part, m_sp_new):
    """A part as it is at a new m_sp."""
    return part._replace(Z_sp=times(np.exp(minus(finite(part.m_sp), finite(m_sp_new))), part.Z_sp))


def moved_by_m_sn(part, m_sn_new):
    """A part as it is at a new m_sn."""
    return part._replace(Z_sn=times(np.exp(minus(finite(part.m_sn), finite(m_sn_new))), part.Z_sn))


def merge(one, two):
    """The state of two parts together."""
    m_sp = np.maximum(one.m_sp, two.m_sp)
    left, right = moved_by_m_sp(one, m_sp), moved_by_m_sp(two, m_sp)
    Z_sp = left.Z_sp + right.Z_sp
    m_sn = np.maximum(one.m_sn, two.m_sn)
    left, right = moved_by_m_sn(one, m_sn), moved_by_m_sn(two, m_sn)
    Z_sn = left.Z_sn + right.Z_sn
    return State(m_sp, Z_sp, m_sn, Z_sn)


def finalize(state):
    """The results of a state."""
    m_sp, Z_sp, m_sn, Z_sn = state
    t = m_sp + np.log(Z_sp) + m_sn + np.log(Z_sn)
    return np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))


def definition(sp, sn):
    """The operator as written."""
    t = -8 * np.maximum(1.25 - sp, 0) * (sp - 0.75)
    u = 8 * np.maximum(sn + 0.25, 0) * (sn - 0.25)
    v = np.max(t) + np.log(np.sum(np.exp(t - np.max(t)))) + (np.max(u) + np.log(np.sum(np.exp(u - np.max(u)))))
    return np.maximum(v, 0) + np.log1p(np.exp(-np.abs(v)))


def of(at, sp, sn):
    """The state of the elements at these places."""
    return lift(sp[at], sn[at])


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
    sp = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    sn = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return sp, sn, owner


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
    sp, sn, owner = example
    one = of(owner == 0, sp, sn)
    two = of(owner == 1, sp, sn)
    three = of(owner == 2, sp, sn)
    nothing = of(owner < 0, sp, sn)
    states = (
        of(owner >= 0, sp, sn),
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
    want = definition(sp, sn)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("sp1 sn1 g1 t1", real=True), sympy.symbols("sp2 sn2 g2 t2", real=True)]
    m_sp, m_sp_new, m_sn, m_sn_new = sympy.symbols("m_sp m_sp_new m_sn m_sn_new", real=True)
    Z_sp = sum(sympy.exp(-(8 * g * (sp - sympy.Rational('0.75'))) - m_sp) for sp, sn, g, t in elements)
    Z_sn = sum(sympy.exp(8 * t * (sn - sympy.Rational('0.25')) - m_sn) for sp, sn, g, t in elements)
    differences = {
        "Z_sp": (
            sum(sympy.exp(-(8 * g * (sp - sympy.Rational('0.75'))) - m_sp_new) for sp, sn, g, t in elements)
            - (Z_sp * sympy.exp(m_sp - m_sp_new))
        ),
        "Z_sn": (
            sum(sympy.exp(8 * t * (sn - sympy.Rational('0.25')) - m_sn_new) for sp, sn, g, t in elements)
            - (Z_sn * sympy.exp(m_sn - m_sn_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
