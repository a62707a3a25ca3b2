"""r2_explained_variance: one pass is enough.

    r2_explained_variance(y[l], p[l]):
        t1 = y - p
        d1 = sum((y - sum(y, l) / size(l)) ** 2, l)
        return 1.0 - sum(t1 * t1, l) / d1, 1.0 - sum((t1 - sum(t1, l) / size(l)) ** 2, l) / d1

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = y[l] − p[l]

Update by one element:

    t'     = t + x²
    sy'    = sy + y[l]
    N'     = N + 1
    mu_y'  = sy'/N'
    δ1     = mu_y − mu_y'  ¹
    M20'   = M20 + δ1²·N + (y[l] − mu_y')²  ¹ ²
    u'     = u + y[l] − p[l]
    mu_yp' = u'/N'
    δ2     = mu_yp − mu_yp'  ¹
    M02'   = M02 + δ2²·N + (x − mu_yp')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    M20 divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference.

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

    t: np.ndarray  # Σ_l (y[l] − p[l])²
    sy: np.ndarray  # Σ_l y[l]
    N: np.ndarray  # Σ_l 1
    M20: np.ndarray  # Σ_l (y[l] − mu_y)²
    u: np.ndarray  # Σ_l y[l] − p[l]
    M02: np.ndarray  # Σ_l (y[l] − p[l] − mu_yp)²


def lift(y, p):
    """The state of some elements."""
    t = np.sum((y - p) ** 2)
    sy = np.sum(y)
    N = np.float64(len(y))
    mu_y = sy / N
    M20 = np.sum(minus(y, finite(mu_y)) ** 2)
    u = np.sum(y - p)
    mu_yp = u / N
    M02 = np.sum(minus(y - p, finite(mu_yp)) ** 2)
    return State(t, sy, N, M20, u, M02)


def moved_by_mu_y(part, mu_y_new):
    """A part as it is at a new mu_y."""
    mu_y = part.sy / part.N
    return part._replace(M20=part.M20 + times(minus(finite(mu_y), finite(mu_y_new)) ** 2, part.N))


def moved_by_mu_yp(part, mu_yp_new):
    """A part as it is at a new mu_yp."""
    mu_yp = part.u / part.N
    return part._replace(M02=part.M02 + times(minus(finite(mu_yp), finite(mu_yp_new)) ** 2, part.N))


def merge(one, two):
    """The state of two parts together."""
    t = one.t + two.t
    sy = one.sy + two.sy
    N = one.N + two.N
    mu_y = sy / N
    left, right = moved_by_mu_y(one, mu_y), moved_by_mu_y(two, mu_y)
    M20 = left.M20 + right.M20
    u = one.u + two.u
    mu_yp = u / N
    left, right = moved_by_mu_yp(one, mu_yp), moved_by_mu_yp(two, mu_yp)
    M02 = left.M02 + right.M02
    return State(t, sy, N, M20, u, M02)


def finalize(state):
    """The results of a state."""
    t, sy, N, M20, u, M02 = state
    return 1 - t / M20, 1 - M02 / M20


def definition(y, p):
    """The operator as written."""
    M2 = np.sum((y - np.sum(y) / len(y)) ** 2)
    return 1 - np.sum((y - p) * (y - p)) / M2, 1 - np.sum((y - p - np.sum(y - p) / len(y)) ** 2) / M2


def of(at, y, p):
    """The state of the elements at these places."""
    return lift(y[at], p[at])


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
    y = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    p = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return y, p, owner


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
    y, p, owner = example
    one = of(owner == 0, y, p)
    two = of(owner == 1, y, p)
    three = of(owner == 2, y, p)
    nothing = of(owner < 0, y, p)
    states = (
        of(owner >= 0, y, p),
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
    want = definition(y, p)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("y1 p1", real=True), sympy.symbols("y2 p2", real=True)]
    mu_y_new, mu_yp_new = sympy.symbols("mu_y_new mu_yp_new", real=True)
    sy = sum(y for y, p in elements)
    N = sum(1 for y, p in elements)
    mu_y = sy / N
    M20 = sum((y - mu_y) ** 2 for y, p in elements)
    u = sum(y - p for y, p in elements)
    mu_yp = u / N
    M02 = sum((y - p - mu_yp) ** 2 for y, p in elements)
    differences = {
        "M20": sum((y - mu_y_new) ** 2 for y, p in elements) - (M20 + N * (mu_y - mu_y_new) ** 2),
        "M02": sum((y - p - mu_yp_new) ** 2 for y, p in elements) - (M02 + N * (mu_yp - mu_yp_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
