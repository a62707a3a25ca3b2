"""linreg_residual_ss: one pass is enough.

    linreg_residual_ss(x[l], y[l]):
        t1 = sum(y, l) / size(l)
        t2 = sum(x, l) / size(l)
        t3 = x - t2
        t4 = sum(t3 * (y - t1), l) / sum(t3 ** 2, l)
        t5 = y - (t1 - t4 * t2) - t4 * x
        return sum(t5 ** 2, l), sum(t5 ** 3, l) / size(l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 10 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    sy'   = sy + y[l]
    sx'   = sx + x[l]
    N'    = N + 1
    mu_x' = sx'/N'
    mu_y' = sy'/N'
    δ1    = mu_x − mu_x'  ¹
    δ2    = mu_y − mu_y'  ¹
    M11'  = M11 + δ1·δ2·N + (x[l] − mu_x')·(y[l] − mu_y')  ¹ ²
    M20'  = M20 + δ1²·N + (x[l] − mu_x')²  ¹ ²
    M02'  = M02 + δ2²·N + (y[l] − mu_y')²  ¹ ²
    M03'  = M03 + 3·δ2·M02 + δ2³·N + (y[l] − mu_y')³  ¹ ²
    M12'  = M12 + 2·δ2·M11 + δ1·M02 + δ1·δ2²·N + (x[l] − mu_x')·(y[l] − mu_y')²  ¹ ²
    M21'  = M21 + 2·δ1·M11 + δ2·M20 + δ1²·δ2·N + (x[l] − mu_x')²·(y[l] − mu_y')  ¹ ²
    M30'  = M30 + 3·δ1·M20 + δ1³·N + (x[l] − mu_x')³  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    M20 divides and may be 0: the result is then what IEEE division gives
    t = M02 − 2·mu_xy·M11 + p3²·M20 is a difference of sums: it cancels where they are large against it
    u = M03 − 3·mu_xy·M12 + 3·p3²·M21 − p3³·M30 is a difference of sums: it cancels where they are large against it

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

    sy: np.ndarray  # Σ_l y[l]
    sx: np.ndarray  # Σ_l x[l]
    N: np.ndarray  # Σ_l 1
    M11: np.ndarray  # Σ_l (x[l] − mu_x)·(y[l] − mu_y)
    M20: np.ndarray  # Σ_l (x[l] − mu_x)²
    M02: np.ndarray  # Σ_l (y[l] − mu_y)²
    M03: np.ndarray  # Σ_l (y[l] − mu_y)³
    M12: np.ndarray  # Σ_l (x[l] − mu_x)·(y[l] − mu_y)²
    M21: np.ndarray  # Σ_l (x[l] − mu_x)²·(y[l] − mu_y)
    M30: np.ndarray  # Σ_l (x[l] − mu_x)³


def lift(x, y):
    """The state of some elements."""
    sy = np.sum(y)
    sx = np.sum(x)
    N = np.float64(len(x))
    mu_x = sx / N
    mu_y = sy / N
    dx = minus(x, finite(mu_x))
    dy = minus(y, finite(mu_y))
    M11 = np.sum(dx * dy)
    M20 = np.sum(dx ** 2)
    M02 = np.sum(dy ** 2)
    M03 = np.sum(dy ** 3)
    M12 = np.sum(dx * dy ** 2)
    M21 = np.sum(dx ** 2 * dy)
    M30 = np.sum(dx ** 3)
    return State(sy, sx, N, M11, M20, M02, M03, M12, M21, M30)


def moved_by_mu_x_mu_y(part, mu_x_new, mu_y_new):
    """A part as it is at a new mu_x and mu_y."""
    mu_x = part.sx / part.N
    mu_y = part.sy / part.N
    d = minus(finite(mu_x), finite(mu_x_new))
    v = minus(finite(mu_y), finite(mu_y_new))
    M11 = part.M11 + times(d * v, part.N)
    M21 = part.M21 + times(2 * d, part.M11) + times(v, part.M20) + times(d ** 2 * v, part.N)
    return part._replace(M11=M11, M21=M21)


def moved_by_mu_x(part, mu_x_new):
    """A part as it is at a new mu_x."""
    mu_x = part.sx / part.N
    d = minus(finite(mu_x), finite(mu_x_new))
    M20 = part.M20 + times(d ** 2, part.N)
    M30 = part.M30 + times(3 * d, part.M20) + times(d ** 3, part.N)
    return part._replace(M20=M20, M30=M30)


def moved_by_mu_y(part, mu_y_new):
    """A part as it is at a new mu_y."""
    mu_y = part.sy / part.N
    d = minus(finite(mu_y), finite(mu_y_new))
    M02 = part.M02 + times(d ** 2, part.N)
    M03 = part.M03 + times(3 * d, part.M02) + times(d ** 3, part.N)
    return part._replace(M02=M02, M03=M03)


def moved_by_mu_y_mu_x(part, mu_y_new, mu_x_new):
    """A part as it is at a new mu_y and mu_x."""
    mu_y = part.sy / part.N
    mu_x = part.sx / part.N
    d = minus(finite(mu_y), finite(mu_y_new))
    v = minus(finite(mu_x), finite(mu_x_new))
    return part._replace(M12=part.M12 + times(2 * d, part.M11) + times(v, part.M02) + times(v * d ** 2, part.N))


def merge(one, two):
    """The state of two parts together."""
    sy = one.sy + two.sy
    sx = one.sx + two.sx
    N = one.N + two.N
    mu_x = sx / N
    mu_y = sy / N
    left, right = moved_by_mu_x_mu_y(one, mu_x, mu_y), moved_by_mu_x_mu_y(two, mu_x, mu_y)
    M11 = left.M11 + right.M11
    M21 = left.M21 + right.M21
    left, right = moved_by_mu_x(one, mu_x), moved_by_mu_x(two, mu_x)
    M20 = left.M20 + right.M20
    M30 = left.M30 + right.M30
    left, right = moved_by_mu_y(one, mu_y), moved_by_mu_y(two, mu_y)
    M02 = left.M02 + right.M02
    M03 = left.M03 + right.M03
    left, right = moved_by_mu_y_mu_x(one, mu_y, mu_x), moved_by_mu_y_mu_x(two, mu_y, mu_x)
    M12 = left.M12 + right.M12
    return State(sy, sx, N, M11, M20, M02, M03, M12, M21, M30)


def finalize(state):
    """The results of a state."""
    sy, sx, N, M11, M20, M02, M03, M12, M21, M30 = state
    mu_xy = M11 / M20
    t = np.maximum(M02 - 2 * mu_xy * M11 + mu_xy ** 2 * M20, 0)
    u = M03 - 3 * mu_xy * M12 + 3 * mu_xy ** 2 * M21 - mu_xy ** 3 * M30
    return t, u / N


def definition(x, y):
    """The operator as written."""
    mu = np.sum(y) / len(x)
    v = np.sum(x) / len(x)
    r = np.sum((x - v) * (y - mu)) / np.sum((x - v) ** 2)
    d = y - (mu - r * v) - r * x
    return np.sum(d ** 2), np.sum(d ** 3) / len(x)


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
    elements = [sympy.symbols("y1 x1", real=True), sympy.symbols("y2 x2", real=True)]
    mu_x_new, mu_y_new = sympy.symbols("mu_x_new mu_y_new", real=True)
    sx = sum(x for y, x in elements)
    N = sum(1 for y, x in elements)
    mu_x = sx / N
    sy = sum(y for y, x in elements)
    mu_y = sy / N
    M11 = sum((x - mu_x) * (y - mu_y) for y, x in elements)
    M20 = sum((x - mu_x) ** 2 for y, x in elements)
    M02 = sum((y - mu_y) ** 2 for y, x in elements)
    M03 = sum((y - mu_y) ** 3 for y, x in elements)
    M12 = sum((x - mu_x) * (y - mu_y) ** 2 for y, x in elements)
    M21 = sum((x - mu_x) ** 2 * (y - mu_y) for y, x in elements)
    M30 = sum((x - mu_x) ** 3 for y, x in elements)
    differences = {
        "M11": (
            sum((x - mu_x_new) * (y - mu_y_new) for y, x in elements)
            - (M11 + N * (mu_x - mu_x_new) * (mu_y - mu_y_new))
        ),
        "M20": sum((x - mu_x_new) ** 2 for y, x in elements) - (M20 + N * (mu_x - mu_x_new) ** 2),
        "M02": sum((y - mu_y_new) ** 2 for y, x in elements) - (M02 + N * (mu_y - mu_y_new) ** 2),
        "M03": (
            sum((y - mu_y_new) ** 3 for y, x in elements)
            - (M03 + 3 * M02 * (mu_y - mu_y_new) + N * (mu_y - mu_y_new) ** 3)
        ),
        "M12": (
            sum((x - mu_x_new) * (y - mu_y_new) ** 2 for y, x in elements)
            - (M12 + 2 * M11 * (mu_y - mu_y_new) + M02 * (mu_x - mu_x_new) + N * (mu_x - mu_x_new)
            * (mu_y - mu_y_new) ** 2)
        ),
        "M21": (
            sum((x - mu_x_new) ** 2 * (y - mu_y_new) for y, x in elements)
            - (M21 + 2 * M11 * (mu_x - mu_x_new) + M20 * (mu_y - mu_y_new) + N * (mu_x - mu_x_new) ** 2
            * (mu_y - mu_y_new))
        ),
        "M30": (
            sum((x - mu_x_new) ** 3 for y, x in elements)
            - (M30 + 3 * M20 * (mu_x - mu_x_new) + N * (mu_x - mu_x_new) ** 3)
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
