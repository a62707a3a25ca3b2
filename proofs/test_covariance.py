"""covariance: one pass is enough.

    covariance(x[l], y[l]):
        return sum((x - sum(x, l) / size(l)) * (y - sum(y, l) / size(l)), l) / (size(l) - 1)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    sx'   = sx + x[l]
    sy'   = sy + y[l]
    N'    = N + 1
    mu_x' = sx'/N'
    mu_y' = sy'/N'
    M11'  = M11 + N·(mu_x − mu_x')·(mu_y − mu_y') + (x[l] − mu_x')·(y[l] − mu_y')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

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

    sx: np.ndarray  # Σ_l x[l]
    sy: np.ndarray  # Σ_l y[l]
    N: np.ndarray  # Σ_l 1
    M11: np.ndarray  # Σ_l (x[l] − mu_x)·(y[l] − mu_y)


def lift(x, y):
    """The state of some elements."""
    sx = np.sum(x)
    sy = np.sum(y)
    N = np.float64(len(x))
    mu_x = sx / N
    mu_y = sy / N
    M11 = np.sum(minus(x, finite(mu_x)) * minus(y, finite(mu_y)))
    return State(sx, sy, N, M11)


def moved(part, mu_x_new, mu_y_new):
    """A part as it is at a new mu_x and mu_y."""
    mu_x = part.sx / part.N
    mu_y = part.sy / part.N
    M11 = part.M11 + times(minus(finite(mu_x), finite(mu_x_new)) * minus(finite(mu_y), finite(mu_y_new)), part.N)
    return part._replace(M11=M11)


def merge(one, two):
    """The state of two parts together."""
    sx = one.sx + two.sx
    sy = one.sy + two.sy
    N = one.N + two.N
    mu_x = sx / N
    mu_y = sy / N
    left, right = moved(one, mu_x, mu_y), moved(two, mu_x, mu_y)
    M11 = left.M11 + right.M11
    return State(sx, sy, N, M11)


def finalize(state):
    """The results of a state."""
    sx, sy, N, M11 = state
    return M11 / (N - 1)


def definition(x, y):
    """The operator as written."""
    return np.sum((x - np.sum(x) / len(x)) * (y - np.sum(y) / len(x))) / (len(x) - 1)


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
    mu_x_new, mu_y_new = sympy.symbols("mu_x_new mu_y_new", real=True)
    sx = sum(x for x, y in elements)
    N = sum(1 for x, y in elements)
    mu_x = sx / N
    sy = sum(y for x, y in elements)
    mu_y = sy / N
    M11 = sum((x - mu_x) * (y - mu_y) for x, y in elements)
    differences = {
        "M11": (
            sum((x - mu_x_new) * (y - mu_y_new) for x, y in elements)
            - (M11 + N * (mu_x - mu_x_new) * (mu_y - mu_y_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
