"""anova_f: one pass is enough.

    anova_f(x[l], g[l]):
        t1 = g == 0
        d1 = sum(1, l, where=t1)
        t2 = sum(x, l, where=t1) / d1
        t3 = sum(x, l) / size(l)
        t4 = g == 1
        d2 = sum(1, l, where=t4)
        t5 = sum(x, l, where=t4) / d2
        return (0 + d1 * (t2 - t3) ** 2 + d2 * (t5 - t3) ** 2) / ((0 + sum((x - t2) ** 2, l, where=t1) + sum((x - t5)
                ** 2, l, where=t4)) / (size(l) - 2))

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 8 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    N'     = N + 1
    n_g'   = n_g + 1   element where g[l] = 0
    sx_xg' = sx_xg + x[l]   element where g[l] = 0
    sx_x'  = sx_x + x[l]
    n'     = n + 1   element where g[l] = 1
    sx'    = sx + x[l]   element where g[l] = 1
    mu_x'  = sx_xg'/n_g'
    δ1     = mu_x − mu_x'  ¹
    M20'   = M20 + δ1²·n_g + (x[l] − mu_x')²   element where g[l] = 0  ¹ ² ³
    mu'    = sx'/n'
    δ2     = mu − mu'  ¹
    M02'   = M02 + δ2²·n + (x[l] − mu')²   element where g[l] = 1  ¹ ² ³

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    n_g divides and may be 0: the result is then what IEEE division gives
    n divides and may be 0: the result is then what IEEE division gives
    (M20 + M02)/(N_l − 2) divides and may be 0: the result is then what IEEE division gives

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
    n_g: np.ndarray  # Σ_l 1 where g[l] = 0
    sx_xg: np.ndarray  # Σ_l x[l] where g[l] = 0
    sx_x: np.ndarray  # Σ_l x[l]
    n: np.ndarray  # Σ_l 1 where g[l] = 1
    sx: np.ndarray  # Σ_l x[l] where g[l] = 1
    M20: np.ndarray  # Σ_l (x[l] − mu_x)² where g[l] = 0
    M02: np.ndarray  # Σ_l (x[l] − mu)² where g[l] = 1


def lift(x, g):
    """The state of some elements."""
    N = np.float64(len(x))
    n_g = np.sum(np.where(g == 0, 1, 0))
    sx_xg = np.sum(np.where(g == 0, x, 0))
    sx_x = np.sum(x)
    n = np.sum(np.where(g == 1, 1, 0))
    sx = np.sum(np.where(g == 1, x, 0))
    mu_x = sx_xg / n_g
    M20 = np.sum(np.where(g == 0, minus(x, finite(mu_x)) ** 2, 0))
    mu = sx / n
    M02 = np.sum(np.where(g == 1, minus(x, finite(mu)) ** 2, 0))
    return State(N, n_g, sx_xg, sx_x, n, sx, M20, M02)


def moved_by_mu_x(part, mu_x_new):
    """A part as it is at a new mu_x."""
    mu_x = part.sx_xg / part.n_g
    d = minus(finite(mu_x), finite(mu_x_new))
    M20 = part.M20 + times(2 * d, np.where(mu_x == finite(mu_x), 0, part.sx_xg)) + times(d ** 2, part.n_g)
    return part._replace(M20=M20)


def moved_by_mu(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.sx / part.n
    d = minus(finite(mu), finite(mu_new))
    return part._replace(M02=part.M02 + times(2 * d, np.where(mu == finite(mu), 0, part.sx)) + times(d ** 2, part.n))


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    n_g = one.n_g + two.n_g
    sx_xg = one.sx_xg + two.sx_xg
    sx_x = one.sx_x + two.sx_x
    n = one.n + two.n
    sx = one.sx + two.sx
    mu_x = sx_xg / n_g
    left, right = moved_by_mu_x(one, mu_x), moved_by_mu_x(two, mu_x)
    M20 = left.M20 + right.M20
    mu = sx / n
    left, right = moved_by_mu(one, mu), moved_by_mu(two, mu)
    M02 = left.M02 + right.M02
    return State(N, n_g, sx_xg, sx_x, n, sx, M20, M02)


def finalize(state):
    """The results of a state."""
    N, n_g, sx_xg, sx_x, n, sx, M20, M02 = state
    return (n_g * (sx_xg / n_g - sx_x / N) ** 2 + n * (sx / n - sx_x / N) ** 2) * (N - 2) / (M20 + M02)


def definition(x, g):
    """The operator as written."""
    t = np.sum(np.where(g == 0, 1, 0))
    mu_xg = np.sum(np.where(g == 0, x, 0)) / t
    u = np.sum(x) / len(x)
    v = np.sum(np.where(g == 1, 1, 0))
    r = np.sum(np.where(g == 1, x, 0)) / v
    return (
        (0 + t * (mu_xg - u) ** 2 + v * (r - u) ** 2)
        / ((0 + np.sum(np.where(g == 0, (x - mu_xg) ** 2, 0)) + np.sum(np.where(g == 1, (x - r) ** 2, 0)))
        / (len(x) - 2))
    )


def of(at, x, g):
    """The state of the elements at these places."""
    return lift(x[at], g[at])


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
    g = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, g, owner


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
    x, g, owner = example
    one = of(owner == 0, x, g)
    two = of(owner == 1, x, g)
    three = of(owner == 2, x, g)
    nothing = of(owner < 0, x, g)
    states = (
        of(owner >= 0, x, g),
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
    want = definition(x, g)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 taking1 t1", real=True), sympy.symbols("x2 taking2 t2", real=True)]
    mu_x_new, mu_new = sympy.symbols("mu_x_new mu_new", real=True)
    sx_xg = sum(taking * x for x, taking, t in elements)
    n_g = sum(taking for x, taking, t in elements)
    mu_x = sx_xg / n_g
    M20 = sum(taking * (x - mu_x) ** 2 for x, taking, t in elements)
    sx = sum(t * x for x, taking, t in elements)
    n = sum(t for x, taking, t in elements)
    mu = sx / n
    M02 = sum(t * (x - mu) ** 2 for x, taking, t in elements)
    differences = {
        "M20": sum(taking * (x - mu_x_new) ** 2 for x, taking, t in elements) - (M20 + n_g * (mu_x - mu_x_new) ** 2),
        "M02": sum(t * (x - mu_new) ** 2 for x, taking, t in elements) - (M02 + n * (mu - mu_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
