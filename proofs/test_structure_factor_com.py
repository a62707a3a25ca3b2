"""structure_factor_com: one pass is enough.

    structure_factor_com(m[l], x[l]):
        t1 = 1.3 * (x - sum(m * x, l) / sum(m, l))
        return sum(cos(t1), l), sum(sin(t1), l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    smx' = smx + m[l]·x[l]
    sm'  = sm + m[l]
    mu'  = smx'/sm'
    t'   = t·cos(1.3·(mu − mu')) − u·sin(1.3·(mu − mu')) + cos(1.3·(x[l] − mu'))  ¹ ²
    u'   = u·cos(1.3·(mu − mu')) + t·sin(1.3·(mu − mu')) + sin(1.3·(x[l] − mu'))  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sm divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, sin_of_sum, cos_of_sum.

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

    smx: np.ndarray  # Σ_l m[l]·x[l]
    sm: np.ndarray  # Σ_l m[l]
    t: np.ndarray  # Σ_l cos(1.3·(x[l] − mu))
    u: np.ndarray  # Σ_l sin(1.3·(x[l] − mu))


def lift(m, x):
    """The state of some elements."""
    smx = np.sum(m * x)
    sm = np.sum(m)
    mu = smx / sm
    v = 1.3 * minus(x, finite(mu))
    t = np.sum(np.cos(v))
    u = np.sum(np.sin(v))
    return State(smx, sm, t, u)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.smx / part.sm
    v = 1.3 * minus(finite(mu), finite(mu_new))
    t = times(np.cos(v), part.t) + times(-np.sin(v), part.u)
    u = times(np.cos(v), part.u) + times(np.sin(v), part.t)
    return part._replace(t=t, u=u)


def merge(one, two):
    """The state of two parts together."""
    smx = one.smx + two.smx
    sm = one.sm + two.sm
    mu = smx / sm
    left, right = moved(one, mu), moved(two, mu)
    t = left.t + right.t
    u = left.u + right.u
    return State(smx, sm, t, u)


def finalize(state):
    """The results of a state."""
    smx, sm, t, u = state
    return t, u


def definition(m, x):
    """The operator as written."""
    v = 1.3 * (x - np.sum(m * x) / np.sum(m))
    return np.sum(np.cos(v)), np.sum(np.sin(v))


def of(at, m, x):
    """The state of the elements at these places."""
    return lift(m[at], x[at])


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
    x = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return m, x, owner


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
    m, x, owner = example
    one = of(owner == 0, m, x)
    two = of(owner == 1, m, x)
    three = of(owner == 2, m, x)
    nothing = of(owner < 0, m, x)
    states = (
        of(owner >= 0, m, x),
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
    want = definition(m, x)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("m1 x1", real=True), sympy.symbols("m2 x2", real=True)]
    mu_new = sympy.symbols("mu_new", real=True)
    smx = sum(m * x for m, x in elements)
    sm = sum(m for m, x in elements)
    mu = smx / sm
    t = sum(sympy.cos(sympy.Rational('1.3') * (x - mu)) for m, x in elements)
    u = sum(sympy.sin(sympy.Rational('1.3') * (x - mu)) for m, x in elements)
    differences = {
        "t": (
            sum(sympy.cos(sympy.Rational('1.3') * (x - mu_new)) for m, x in elements)
            - (t * sympy.cos(sympy.Rational('1.3') * (mu - mu_new)) - u
            * sympy.sin(sympy.Rational('1.3') * (mu - mu_new)))
        ),
        "u": (
            sum(sympy.sin(sympy.Rational('1.3') * (x - mu_new)) for m, x in elements)
            - (u * sympy.cos(sympy.Rational('1.3') * (mu - mu_new)) + t
            * sympy.sin(sympy.Rational('1.3') * (mu - mu_new)))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference.rewrite((sympy.sin, sympy.cos), sympy.exp))) == 0, name
