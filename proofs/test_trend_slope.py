"""trend_slope: one pass is enough.

    trend_slope(x[l]):
        t1 = index(l) - (size(l) - 1) / 2
        t2 = sum(t1 * x, l) / sum(t1 * t1, l)
        return t2, sum((x - sum(x, l) / size(l) - t2 * t1) ** 2, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 7 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    N'    = N + 1
    t'    = (N' − 1)/2
    δ1    = t − t'  ¹
    M10x' = M10x + δ1·sx + x[l]·(l − t')  ¹ ²
    sx'   = sx + x[l]
    M20'  = M20 + 2·δ1·M10 + δ1²·N + (l − t')²  ¹ ²
    M10'  = M10 + δ1·N + l − t'  ¹ ²
    mu_x' = sx'/N'
    δ2    = mu_x − mu_x'  ¹
    M02'  = M02 + δ2²·N + (x[l] − mu_x')²  ¹ ²
    M11'  = M11 + δ2·M10 + δ1·δ2·N + (l − t')·(x[l] − mu_x')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    M20 divides and may be 0: the result is then what IEEE division gives
    u = M02 − 2·mu·M11 + p3²·M20 is a difference of sums: it cancels where they are large against it

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

    N: np.ndarray  # Σ_l 1
    M10x: np.ndarray  # Σ_l x[l]·(l − t)
    sx: np.ndarray  # Σ_l x[l]
    M20: np.ndarray  # Σ_l (l − t)²
    M10: np.ndarray  # Σ_l l − t
    M02: np.ndarray  # Σ_l (x[l] − mu_x)²
    M11: np.ndarray  # Σ_l (l − t)·(x[l] − mu_x)


def lift(x, l):
    """The state of some elements."""
    N = np.float64(len(x))
    t = (N - 1) / 2
    d = minus(l, finite(t))
    M10x = np.sum(d * x)
    sx = np.sum(x)
    M20 = np.sum(d ** 2)
    M10 = np.sum(d)
    mu_x = sx / N
    dx = minus(x, finite(mu_x))
    M02 = np.sum(dx ** 2)
    M11 = np.sum(d * dx)
    return State(N, M10x, sx, M20, M10, M02, M11)


def moved_by_t(part, t_new):
    """A part as it is at a new t."""
    t = (part.N - 1) / 2
    d = minus(finite(t), finite(t_new))
    M10x = part.M10x + times(d, part.sx)
    M20 = part.M20 + times(2 * d, part.M10) + times(d ** 2, part.N)
    M10 = part.M10 + times(d, part.N)
    return part._replace(M10x=M10x, M20=M20, M10=M10)


def moved_by_mu_x(part, mu_x_new):
    """A part as it is at a new mu_x."""
    mu_x = part.sx / part.N
    return part._replace(M02=part.M02 + times(minus(finite(mu_x), finite(mu_x_new)) ** 2, part.N))


def moved_by_mu_x_t(part, mu_x_new, t_new):
    """A part as it is at a new mu_x and t."""
    mu_x = part.sx / part.N
    t = (part.N - 1) / 2
    d = minus(finite(mu_x), finite(mu_x_new))
    return part._replace(M11=part.M11 + times(d, part.M10) + times(minus(finite(t), finite(t_new)) * d, part.N))


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    t = (N - 1) / 2
    left, right = moved_by_t(one, t), moved_by_t(two, t)
    M10x = left.M10x + right.M10x
    M20 = left.M20 + right.M20
    M10 = left.M10 + right.M10
    sx = one.sx + two.sx
    mu_x = sx / N
    left, right = moved_by_mu_x(one, mu_x), moved_by_mu_x(two, mu_x)
    M02 = left.M02 + right.M02
    left, right = moved_by_mu_x_t(one, mu_x, t), moved_by_mu_x_t(two, mu_x, t)
    M11 = left.M11 + right.M11
    return State(N, M10x, sx, M20, M10, M02, M11)


def finalize(state):
    """The results of a state."""
    N, M10x, sx, M20, M10, M02, M11 = state
    mu = M10x / M20
    u = np.maximum(M02 - 2 * mu * M11 + mu ** 2 * M20, 0)
    return mu, u


def definition(x):
    """The operator as written."""
    d = np.arange(len(x)) - (len(x) - 1) / 2
    v = np.sum(d * x) / np.sum(d * d)
    return v, np.sum((x - np.sum(x) / len(x) - v * d) ** 2)


def of(at, x):
    """The state of the elements at these places."""
    return lift(x[at], 1.0 * np.flatnonzero(at))


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
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, owner


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
    x, owner = example
    one = of(owner == 0, x)
    two = of(owner == 1, x)
    three = of(owner == 2, x)
    nothing = of(owner < 0, x)
    states = (
        of(owner >= 0, x),
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
    want = definition(x)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 g1", real=True), sympy.symbols("x2 g2", real=True)]
    t, t_new, mu_x_new = sympy.symbols("t t_new mu_x_new", real=True)
    M10x = sum(x * (g - t) for x, g in elements)
    sx = sum(x for x, g in elements)
    M20 = sum((g - t) ** 2 for x, g in elements)
    M10 = sum(g - t for x, g in elements)
    N = sum(1 for x, g in elements)
    mu_x = sx / N
    M02 = sum((x - mu_x) ** 2 for x, g in elements)
    M11 = sum((g - t) * (x - mu_x) for x, g in elements)
    differences = {
        "M10x": sum(x * (g - t_new) for x, g in elements) - (M10x + sx * (t - t_new)),
        "M20": sum((g - t_new) ** 2 for x, g in elements) - (M20 + 2 * M10 * (t - t_new) + N * (t - t_new) ** 2),
        "M10": sum(g - t_new for x, g in elements) - (M10 + N * (t - t_new)),
        "M02": sum((x - mu_x_new) ** 2 for x, g in elements) - (M02 + N * (mu_x - mu_x_new) ** 2),
        "M11": (
            sum((g - t_new) * (x - mu_x_new) for x, g in elements)
            - (M11 + M10 * (mu_x - mu_x_new) + N * (t - t_new) * (mu_x - mu_x_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
