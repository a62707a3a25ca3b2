"""hellinger_softmax: one pass is enough.

    hellinger_softmax(x[l], y[l]):
        t1 = exp(x - max(x, l))
        t2 = exp(y - max(y, l))
        return sqrt(maximum(1.0 - sum(sqrt(t1 / sum(t1, l) * (t2 / sum(t2, l))), l), 0.0))

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 5 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m_x'  = max(m_x, x[l])
    Z_x'  = Z_x·exp(m_x − m_x') + exp(x[l] − m_x')  ¹ ²
    m_y'  = max(m_y, y[l])
    Z_y'  = Z_y·exp(m_y − m_y') + exp(y[l] − m_y')  ¹ ²
    Z_xy' = Z_xy·exp(0.5·(m_x − m_x'))·exp(0.5·(m_y − m_y')) + exp(0.5·(x[l] − m_x'))·exp(0.5·(y[l] − m_y'))  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum, sqrt_of_exp, sqrt_of_product.

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

    m_x: np.ndarray  # max_l x[l]
    Z_x: np.ndarray  # Σ_l exp(x[l] − m_x)
    m_y: np.ndarray  # max_l y[l]
    Z_y: np.ndarray  # Σ_l exp(y[l] − m_y)
    Z_xy: np.ndarray  # Σ_l exp(0.5·(x[l] − m_x))·exp(0.5·(y[l] − m_y))


def lift(x, y):
    """The state of some elements."""
    m_x = np.max(x, initial=-np.inf)
    dx = minus(x, finite(m_x))
    Z_x = np.sum(np.exp(dx))
    m_y = np.max(y, initial=-np.inf)
    dy = minus(y, finite(m_y))
    Z_y = np.sum(np.exp(dy))
    Z_xy = np.sum(np.exp(0.5 * dx) * np.exp(0.5 * dy))
    return State(m_x, Z_x, m_y, Z_y, Z_xy)


def moved_by_m_x(part, m_x_new):
    """A part as it is at a new m_x."""
    return part._replace(Z_x=times(np.exp(minus(finite(part.m_x), finite(m_x_new))), part.Z_x))


def moved_by_m_y(part, m_y_new):
    """A part as it is at a new m_y."""
    return part._replace(Z_y=times(np.exp(minus(finite(part.m_y), finite(m_y_new))), part.Z_y))


def moved_by_m_x_m_y(part, m_x_new, m_y_new):
    """A part as it is at a new m_x and m_y."""
    Z_xy = times(
        (
            np.exp(0.5 * minus(finite(part.m_x), finite(m_x_new)))
            * np.exp(0.5 * minus(finite(part.m_y), finite(m_y_new)))
        ),
        part.Z_xy,
    )
    return part._replace(Z_xy=Z_xy)


def merge(one, two):
    """The state of two parts together."""
    m_x = np.maximum(one.m_x, two.m_x)
    left, right = moved_by_m_x(one, m_x), moved_by_m_x(two, m_x)
    Z_x = left.Z_x + right.Z_x
    m_y = np.maximum(one.m_y, two.m_y)
    left, right = moved_by_m_y(one, m_y), moved_by_m_y(two, m_y)
    Z_y = left.Z_y + right.Z_y
    left, right = moved_by_m_x_m_y(one, m_x, m_y), moved_by_m_x_m_y(two, m_x, m_y)
    Z_xy = left.Z_xy + right.Z_xy
    return State(m_x, Z_x, m_y, Z_y, Z_xy)


def finalize(state):
    """The results of a state."""
    m_x, Z_x, m_y, Z_y, Z_xy = state
    t = Z_xy * np.sqrt(1 / Z_x) * np.sqrt(1 / Z_y)
    return np.sqrt(np.maximum(1 - t, 0))


def definition(x, y):
    """The operator as written."""
    e = np.exp(x - np.max(x))
    e_y = np.exp(y - np.max(y))
    return np.sqrt(np.maximum(1 - np.sum(np.sqrt(e / np.sum(e) * (e_y / np.sum(e_y)))), 0))


def of(at, x, y):
    """The state of the elements at these places."""
    return lift(x[at], y[at])


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
    y = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, y, owner


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
    x, y, owner = example
    one = of(owner == 0, x, y)
    two = of(owner == 1, x, y)
    three = of(owner == 2, x, y)
    nothing = of(owner < 0, x, y)
    states = (
        of(owner >= 0, x, y),
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
    want = definition(x, y)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 y1", real=True), sympy.symbols("x2 y2", real=True)]
    m_x, m_x_new, m_y, m_y_new = sympy.symbols("m_x m_x_new m_y m_y_new", real=True)
    Z_x = sum(sympy.exp(x - m_x) for x, y in elements)
    Z_y = sum(sympy.exp(y - m_y) for x, y in elements)
    Z_xy = sum(
        sympy.exp(sympy.Rational('0.5') * (x - m_x)) * sympy.exp(sympy.Rational('0.5') * (y - m_y))
        for x, y in elements
    )
    differences = {
        "Z_x": sum(sympy.exp(x - m_x_new) for x, y in elements) - (Z_x * sympy.exp(m_x - m_x_new)),
        "Z_y": sum(sympy.exp(y - m_y_new) for x, y in elements) - (Z_y * sympy.exp(m_y - m_y_new)),
        "Z_xy": (
            sum(sympy.exp(sympy.Rational('0.5') * (x - m_x_new))
            * sympy.exp(sympy.Rational('0.5') * (y - m_y_new)) for x, y in elements)
            - (Z_xy * sympy.exp(sympy.Rational('0.5') * (m_x - m_x_new))
            * sympy.exp(sympy.Rational('0.5') * (m_y - m_y_new)))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
