"""snis_variance: one pass is enough.

    snis_variance(x[l], h[l]):
        t1 = exp(x - max(x, l))
        t2 = t1 / sum(t1, l)
        d1 = sum(t2 * h, l)
        return d1, sum(t2 ** 2 * (h - d1) ** 2, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m'    = max(m, x[l])
    Z_x'  = Z_x·exp(m − m') + exp(x[l] − m')  ¹ ²
    o'    = o·exp(m − m') + h[l]·exp(x[l] − m')  ¹ ²
    mu'   = o'/Z_x'
    δ     = mu − mu'  ¹
    E_xh' = E_xh·exp(m − m')² + 2·δ·E·exp(m − m')² + δ²·Z·exp(m − m')² + exp(x[l] − m')²·(h[l] − mu')²  ¹ ²
    E'    = E·exp(m − m')² + δ·Z·exp(m − m')² + exp(x[l] − m')²·(h[l] − mu')  ¹ ²
    Z'    = Z·exp(m − m')² + exp(x[l] − m')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

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

    m: np.ndarray  # max_l x[l]
    Z_x: np.ndarray  # Σ_l exp(x[l] − m)
    o: np.ndarray  # Σ_l h[l]·exp(x[l] − m)
    E_xh: np.ndarray  # Σ_l exp(x[l] − m)²·(h[l] − mu)²
    E: np.ndarray  # Σ_l exp(x[l] − m)²·(h[l] − mu)
    Z: np.ndarray  # Σ_l exp(x[l] − m)²


def lift(x, h):
    """The state of some elements."""
    m = np.max(x, initial=-np.inf)
    e = np.exp(minus(x, finite(m)))
    Z_x = np.sum(e)
    o = np.sum(h * e)
    mu = o / Z_x
    dh = minus(h, finite(mu))
    E_xh = np.sum(dh ** 2 * e ** 2)
    E = np.sum(dh * e ** 2)
    Z = np.sum(e ** 2)
    return State(m, Z_x, o, E_xh, E, Z)


def moved_by_m(part, m_new):
    """A part as it is at a new m."""
    e = np.exp(minus(finite(part.m), finite(m_new)))
    Z_x = times(e, part.Z_x)
    o = times(e, part.o)
    Z = times(e ** 2, part.Z)
    return part._replace(Z_x=Z_x, o=o, Z=Z)


def moved_by_m_mu(part, m_new, mu_new):
    """A part as it is at a new m and mu."""
    mu = part.o / part.Z_x
    w = np.exp(minus(finite(part.m), finite(m_new))) ** 2
    d = minus(finite(mu), finite(mu_new))
    E_xh = times(w, part.E_xh) + times(2 * d * w, part.E) + times(d ** 2 * w, part.Z)
    E = times(w, part.E) + times(d * w, part.Z)
    return part._replace(E_xh=E_xh, E=E)


def merge(one, two):
    """The state of two parts together."""
    m = np.maximum(one.m, two.m)
    left, right = moved_by_m(one, m), moved_by_m(two, m)
    Z_x = left.Z_x + right.Z_x
    o = left.o + right.o
    Z = left.Z + right.Z
    mu = o / Z_x
    left, right = moved_by_m_mu(one, m, mu), moved_by_m_mu(two, m, mu)
    E_xh = left.E_xh + right.E_xh
    E = left.E + right.E
    return State(m, Z_x, o, E_xh, E, Z)


def finalize(state):
    """The results of a state."""
    m, Z_x, o, E_xh, E, Z = state
    mu = o / Z_x
    t = np.maximum(E_xh / Z_x ** 2, 0)
    return mu, t


def definition(x, h):
    """The operator as written."""
    e = np.exp(x - np.max(x))
    p = e / np.sum(e)
    u = np.sum(p * h)
    return u, np.sum(p ** 2 * (h - u) ** 2)


def of(at, x, h):
    """The state of the elements at these places."""
    return lift(x[at], h[at])


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
    x = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    h = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, h, owner


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
    x, h, owner = example
    one = of(owner == 0, x, h)
    two = of(owner == 1, x, h)
    three = of(owner == 2, x, h)
    nothing = of(owner < 0, x, h)
    states = (
        of(owner >= 0, x, h),
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
    want = definition(x, h)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 h1", real=True), sympy.symbols("x2 h2", real=True)]
    m, m_new, mu, mu_new = sympy.symbols("m m_new mu mu_new", real=True)
    Z_x = sum(sympy.exp(x - m) for x, h in elements)
    o = sum(h * sympy.exp(x - m) for x, h in elements)
    E_xh = sum(sympy.exp(x - m) ** 2 * (h - mu) ** 2 for x, h in elements)
    E = sum(sympy.exp(x - m) ** 2 * (h - mu) for x, h in elements)
    Z = sum(sympy.exp(x - m) ** 2 for x, h in elements)
    differences = {
        "Z_x": sum(sympy.exp(x - m_new) for x, h in elements) - (Z_x * sympy.exp(m - m_new)),
        "o": sum(h * sympy.exp(x - m_new) for x, h in elements) - (o * sympy.exp(m - m_new)),
        "E_xh": (
            sum(sympy.exp(x - m_new) ** 2 * (h - mu_new) ** 2 for x, h in elements)
            - (E_xh * sympy.exp(m - m_new) ** 2 + 2 * E * sympy.exp(m - m_new) ** 2 * (mu - mu_new) + Z
            * sympy.exp(m - m_new) ** 2 * (mu - mu_new) ** 2)
        ),
        "E": (
            sum(sympy.exp(x - m_new) ** 2 * (h - mu_new) for x, h in elements)
            - (E * sympy.exp(m - m_new) ** 2 + Z * sympy.exp(m - m_new) ** 2 * (mu - mu_new))
        ),
        "Z": sum(sympy.exp(x - m_new) ** 2 for x, h in elements) - (Z * sympy.exp(m - m_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
