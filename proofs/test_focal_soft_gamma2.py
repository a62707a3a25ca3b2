"""focal_soft_gamma2: one pass is enough.

    focal_soft_gamma2(x[l], t[l]):
        d1 = max(x, l)
        t1 = x - (d1 + log(sum(exp(x - d1), l)))
        return -sum(t * (1.0 - exp(t1)) ** 2 * t1, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 8 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m'    = max(m, x[l])
    Z'    = Z·exp(m − m') + exp(x[l] − m')  ¹ ²
    v'    = m' + log(Z')
    δ     = v − v'  ¹
    u'    = M1t·(1 − exp(δ)²) + δ·st_t + E·(−2·exp(δ) + 2·exp(δ)²) − 2·δ·o_tx·exp(δ) + u·exp(δ)² + δ·o·exp(δ)² +
        t[l]·(x[l] − v') − 2·t[l]·exp(x[l] − v')·(x[l] − v') + t[l]·exp(x[l] − v')²·(x[l] − v')  ¹ ²
    M1t'  = M1t + δ·st_t + t[l]·(x[l] − v')  ¹ ²
    st_t' = st_t + t[l]
    E'    = E·exp(δ) + δ·o_tx·exp(δ) + t[l]·exp(x[l] − v')·(x[l] − v')  ¹ ²
    o_tx' = o_tx·exp(δ) + t[l]·exp(x[l] − v')  ¹ ²
    o'    = o·exp(δ)² + t[l]·exp(x[l] − v')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    exp(x[l] − v) may overflow: nothing bounds its exponent

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
    Z: np.ndarray  # Σ_l exp(x[l] − m)
    # Σ_l t[l]·(x[l] − v) − 2·t[l]·exp(x[l] − v)·(x[l] − v) + t[l]·exp(x[l] − v)²·(x[l] − v)
    u: np.ndarray
    M1t: np.ndarray  # Σ_l t[l]·(x[l] − v)
    st_t: np.ndarray  # Σ_l t[l]
    E: np.ndarray  # Σ_l t[l]·exp(x[l] − v)·(x[l] − v)
    o_tx: np.ndarray  # Σ_l t[l]·exp(x[l] − v)
    o: np.ndarray  # Σ_l t[l]·exp(x[l] − v)²


def lift(x, t):
    """The state of some elements."""
    m = np.max(x, initial=-np.inf)
    Z = np.sum(np.exp(minus(x, finite(m))))
    v = m + np.log(Z)
    dx = minus(x, finite(v))
    w = np.exp(dx) ** 2
    u = np.sum(dx * t - 2 * dx * t * np.exp(dx) + dx * t * w)
    M1t = np.sum(dx * t)
    st_t = np.sum(t)
    E = np.sum(dx * t * np.exp(dx))
    o_tx = np.sum(t * np.exp(dx))
    o = np.sum(t * w)
    return State(m, Z, u, M1t, st_t, E, o_tx, o)


def moved_by_m(part, m_new):
    """A part as it is at a new m."""
    return part._replace(Z=times(np.exp(minus(finite(part.m), finite(m_new))), part.Z))


def moved_by_v(part, v_new):
    """A part as it is at a new v."""
    v = part.m + np.log(part.Z)
    d = minus(finite(v), finite(v_new))
    w = np.exp(d) ** 2
    r = times(d, part.st_t)
    u = (
        times(1 - w, part.M1t) + r + times(-(2 * np.exp(d)) + 2 * w, part.E) + times(-(2 * d * np.exp(d)), part.o_tx)
        + times(w, part.u) + times(d * w, part.o)
    )
    M1t = part.M1t + r
    E = times(np.exp(d), part.E) + times(d * np.exp(d), part.o_tx)
    o_tx = times(np.exp(d), part.o_tx)
    o = times(w, part.o)
    return part._replace(u=u, M1t=M1t, E=E, o_tx=o_tx, o=o)


def merge(one, two):
    """The state of two parts together."""
    m = np.maximum(one.m, two.m)
    left, right = moved_by_m(one, m), moved_by_m(two, m)
    Z = left.Z + right.Z
    v = m + np.log(Z)
    left, right = moved_by_v(one, v), moved_by_v(two, v)
    u = left.u + right.u
    M1t = left.M1t + right.M1t
    E = left.E + right.E
    o_tx = left.o_tx + right.o_tx
    o = left.o + right.o
    st_t = one.st_t + two.st_t
    return State(m, Z, u, M1t, st_t, E, o_tx, o)


def finalize(state):
    """The results of a state."""
    m, Z, u, M1t, st_t, E, o_tx, o = state
    return -u


def definition(x, t):
    """The operator as written."""
    dx = x - (np.max(x) + np.log(np.sum(np.exp(x - np.max(x)))))
    return -np.sum(t * (1 - np.exp(dx)) ** 2 * dx)


def of(at, x, t):
    """The state of the elements at these places."""
    return lift(x[at], t[at])


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
    t = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, t, owner


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
    x, t, owner = example
    one = of(owner == 0, x, t)
    two = of(owner == 1, x, t)
    three = of(owner == 2, x, t)
    nothing = of(owner < 0, x, t)
    states = (
        of(owner >= 0, x, t),
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
    want = definition(x, t)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 t1", real=True), sympy.symbols("x2 t2", real=True)]
    m, m_new, v, v_new = sympy.symbols("m m_new v v_new", real=True)
    Z = sum(sympy.exp(x - m) for x, t in elements)
    M1t = sum(t * (x - v) for x, t in elements)
    st_t = sum(t for x, t in elements)
    E = sum(t * sympy.exp(x - v) * (x - v) for x, t in elements)
    o_tx = sum(t * sympy.exp(x - v) for x, t in elements)
    u = sum(
        t * (x - v) - 2 * t * sympy.exp(x - v) * (x - v) + t * sympy.exp(x - v) ** 2 * (x - v)
        for x, t in elements
    )
    o = sum(t * sympy.exp(x - v) ** 2 for x, t in elements)
    differences = {
        "Z": sum(sympy.exp(x - m_new) for x, t in elements) - (Z * sympy.exp(m - m_new)),
        "u": (
            sum(t * (x - v_new) - 2 * t * sympy.exp(x - v_new) * (x - v_new) + t * sympy.exp(x - v_new) ** 2
            * (x - v_new) for x, t in elements)
            - (M1t * (1 - sympy.exp(v - v_new) ** 2) + st_t * (v - v_new) + E
            * (-(2 * sympy.exp(v - v_new)) + 2 * sympy.exp(v - v_new) ** 2) - 2 * o_tx * sympy.exp(v - v_new)
            * (v - v_new) + u * sympy.exp(v - v_new) ** 2 + o * sympy.exp(v - v_new) ** 2 * (v - v_new))
        ),
        "M1t": sum(t * (x - v_new) for x, t in elements) - (M1t + st_t * (v - v_new)),
        "E": (
            sum(t * sympy.exp(x - v_new) * (x - v_new) for x, t in elements)
            - (E * sympy.exp(v - v_new) + o_tx * sympy.exp(v - v_new) * (v - v_new))
        ),
        "o_tx": sum(t * sympy.exp(x - v_new) for x, t in elements) - (o_tx * sympy.exp(v - v_new)),
        "o": sum(t * sympy.exp(x - v_new) ** 2 for x, t in elements) - (o * sympy.exp(v - v_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
