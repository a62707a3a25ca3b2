"""lomb_scargle: one pass is enough.

    lomb_scargle(t[l], y[l]):
        t1 = y - sum(y, l) / size(l)
        t2 = 3.4 * t
        t3 = 1.7 * (t - arctan2(sum(sin(t2), l), sum(cos(t2), l)) / 3.4)
        t4 = cos(t3)
        t5 = sin(t3)
        return 0.5 * (sum(t1 * t4, l) ** 2 / sum(t4 * t4, l) + sum(t1 * t5, l) ** 2 / sum(t5 * t5, l))

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 11 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    N'     = N + 1
    sy'    = sy + y[l]
    u'     = u + sin(3.4·t[l])
    v'     = v + cos(3.4·t[l])
    beta'  = arctan2(u', v')/3.4
    mu'    = sy'/N'
    δ      = mu − mu'  ¹
    r'     = r·cos(1.7·(beta − beta')) − h·sin(1.7·(beta − beta')) + δ·z·cos(1.7·(beta − beta')) − δ·g·sin(1.7·(beta −
        beta')) + cos(1.7·(t[l] − beta'))·(y[l] − mu')  ¹ ²
    h'     = h·cos(1.7·(beta − beta')) + r·sin(1.7·(beta − beta')) + δ·g·cos(1.7·(beta − beta')) + δ·z·sin(1.7·(beta −
        beta')) + (y[l] − mu')·sin(1.7·(t[l] − beta'))  ¹ ²
    g'     = g·cos(1.7·(beta − beta')) + z·sin(1.7·(beta − beta')) + sin(1.7·(t[l] − beta'))  ¹ ²
    z'     = z·cos(1.7·(beta − beta')) − g·sin(1.7·(beta − beta')) + cos(1.7·(t[l] − beta'))  ¹ ²
    w'     = w·(cos(1.7·(beta − beta'))² + sin(1.7·(beta − beta'))²) − 2·f·cos(1.7·(beta − beta'))·sin(1.7·(beta −
        beta')) − alpha·sin(1.7·(beta − beta'))² + cos(1.7·(t[l] − beta'))²  ¹ ²
    f'     = f·(cos(1.7·(beta − beta'))² − sin(1.7·(beta − beta'))²) + alpha·cos(1.7·(beta − beta'))·sin(1.7·(beta −
        beta')) + cos(1.7·(t[l] − beta'))·sin(1.7·(t[l] − beta'))  ¹ ²
    alpha' = alpha·(cos(1.7·(beta − beta'))² − sin(1.7·(beta − beta'))²) − 4·f·cos(1.7·(beta − beta'))·sin(1.7·(beta −
        beta')) + cos(1.7·(t[l] − beta'))² − sin(1.7·(t[l] − beta'))²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    w divides and may be 0: the result is then what IEEE division gives
    gamma divides and may be 0: the result is then what IEEE division gives

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

    N: np.ndarray  # Σ_l 1
    sy: np.ndarray  # Σ_l y[l]
    u: np.ndarray  # Σ_l sin(3.4·t[l])
    v: np.ndarray  # Σ_l cos(3.4·t[l])
    r: np.ndarray  # Σ_l cos(1.7·(t[l] − beta))·(y[l] − mu)
    h: np.ndarray  # Σ_l (y[l] − mu)·sin(1.7·(t[l] − beta))
    g: np.ndarray  # Σ_l sin(1.7·(t[l] − beta))
    z: np.ndarray  # Σ_l cos(1.7·(t[l] − beta))
    w: np.ndarray  # Σ_l cos(1.7·(t[l] − beta))²
    f: np.ndarray  # Σ_l cos(1.7·(t[l] − beta))·sin(1.7·(t[l] − beta))
    alpha: np.ndarray  # Σ_l cos(1.7·(t[l] − beta))² − sin(1.7·(t[l] − beta))²


def lift(t, y):
    """The state of some elements."""
    N = np.float64(len(t))
    sy = np.sum(y)
    u = np.sum(np.sin(3.4 * t))
    v = np.sum(np.cos(3.4 * t))
    beta = np.arctan2(u, v) / 3.4
    mu = sy / N
    dy = minus(y, finite(mu))
    eta = 1.7 * minus(t, finite(beta))
    r = np.sum(dy * np.cos(eta))
    h = np.sum(dy * np.sin(eta))
    g = np.sum(np.sin(eta))
    z = np.sum(np.cos(eta))
    w_t = np.cos(eta) ** 2
    w = np.sum(w_t)
    f = np.sum(np.cos(eta) * np.sin(eta))
    alpha = np.sum(w_t - np.sin(eta) ** 2)
    return State(N, sy, u, v, r, h, g, z, w, f, alpha)


def moved_by_beta_mu(part, beta_new, mu_new):
    """A part as it is at a new beta and mu."""
    beta = np.arctan2(part.u, part.v) / 3.4
    mu = part.sy / part.N
    eta = 1.7 * minus(finite(beta), finite(beta_new))
    d = minus(finite(mu), finite(mu_new))
    theta = d * np.cos(eta)
    kappa = d * np.sin(eta)
    r = times(np.cos(eta), part.r) + times(-np.sin(eta), part.h) + times(theta, part.z) + times(-kappa, part.g)
    h = times(np.cos(eta), part.h) + times(np.sin(eta), part.r) + times(theta, part.g) + times(kappa, part.z)
    return part._replace(r=r, h=h)


def moved_by_beta(part, beta_new):
    """A part as it is at a new beta."""
    beta = np.arctan2(part.u, part.v) / 3.4
    eta = 1.7 * minus(finite(beta), finite(beta_new))
    theta = np.cos(eta) ** 2
    kappa = np.sin(eta) ** 2
    d = theta - kappa
    g = times(np.cos(eta), part.g) + times(np.sin(eta), part.z)
    z = times(np.cos(eta), part.z) + times(-np.sin(eta), part.g)
    w = times(theta + kappa, part.w) + times(-(2 * np.cos(eta) * np.sin(eta)), part.f) + times(-kappa, part.alpha)
    f = times(d, part.f) + times(np.cos(eta) * np.sin(eta), part.alpha)
    alpha = times(d, part.alpha) + times(-(4 * np.cos(eta) * np.sin(eta)), part.f)
    return part._replace(g=g, z=z, w=w, f=f, alpha=alpha)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    sy = one.sy + two.sy
    u = one.u + two.u
    v = one.v + two.v
    beta = np.arctan2(u, v) / 3.4
    mu = sy / N
    left, right = moved_by_beta_mu(one, beta, mu), moved_by_beta_mu(two, beta, mu)
    r = left.r + right.r
    h = left.h + right.h
    left, right = moved_by_beta(one, beta), moved_by_beta(two, beta)
    g = left.g + right.g
    z = left.z + right.z
    w = left.w + right.w
    f = left.f + right.f
    alpha = left.alpha + right.alpha
    return State(N, sy, u, v, r, h, g, z, w, f, alpha)


def finalize(state):
    """The results of a state."""
    N, sy, u, v, r, h, g, z, w, f, alpha = state
    gamma = np.maximum(-alpha + w, 0)
    return 0.5 * (r ** 2 / w + h ** 2 / gamma)


def definition(t, y):
    """The operator as written."""
    dy = y - np.sum(y) / len(t)
    eta = 1.7 * (t - np.arctan2(np.sum(np.sin(3.4 * t)), np.sum(np.cos(3.4 * t))) / 3.4)
    return (
        0.5 * (np.sum(dy * np.cos(eta)) ** 2 / np.sum(np.cos(eta) * np.cos(eta)) + np.sum(dy * np.sin(eta)) ** 2
        / np.sum(np.sin(eta) * np.sin(eta)))
    )


def of(at, t, y):
    """The state of the elements at these places."""
    return lift(t[at], y[at])


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
    t = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    y = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return t, y, owner


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
    t, y, owner = example
    one = of(owner == 0, t, y)
    two = of(owner == 1, t, y)
    three = of(owner == 2, t, y)
    nothing = of(owner < 0, t, y)
    states = (
        of(owner >= 0, t, y),
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
    want = definition(t, y)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("y1 t1", real=True), sympy.symbols("y2 t2", real=True)]
    beta, beta_new, mu_new = sympy.symbols("beta beta_new mu_new", real=True)
    sy = sum(y for y, t in elements)
    N = sum(1 for y, t in elements)
    mu = sy / N
    r = sum(sympy.cos(sympy.Rational('1.7') * (t - beta)) * (y - mu) for y, t in elements)
    h = sum((y - mu) * sympy.sin(sympy.Rational('1.7') * (t - beta)) for y, t in elements)
    z = sum(sympy.cos(sympy.Rational('1.7') * (t - beta)) for y, t in elements)
    g = sum(sympy.sin(sympy.Rational('1.7') * (t - beta)) for y, t in elements)
    w = sum(sympy.cos(sympy.Rational('1.7') * (t - beta)) ** 2 for y, t in elements)
    f = sum(
        sympy.cos(sympy.Rational('1.7') * (t - beta)) * sympy.sin(sympy.Rational('1.7') * (t - beta))
        for y, t in elements
    )
    alpha = sum(
        sympy.cos(sympy.Rational('1.7') * (t - beta)) ** 2 - sympy.sin(sympy.Rational('1.7') * (t - beta)) ** 2
        for y, t in elements
    )
    differences = {
        "r": (
            sum(sympy.cos(sympy.Rational('1.7') * (t - beta_new)) * (y - mu_new) for y, t in elements)
            - (r * sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) - h
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) + z
            * sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) * (mu - mu_new) - g * (mu - mu_new)
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)))
        ),
        "h": (
            sum((y - mu_new) * sympy.sin(sympy.Rational('1.7') * (t - beta_new)) for y, t in elements)
            - (h * sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) + r
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) + g
            * sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) * (mu - mu_new) + z * (mu - mu_new)
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)))
        ),
        "g": (
            sum(sympy.sin(sympy.Rational('1.7') * (t - beta_new)) for y, t in elements)
            - (g * sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) + z
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)))
        ),
        "z": (
            sum(sympy.cos(sympy.Rational('1.7') * (t - beta_new)) for y, t in elements)
            - (z * sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) - g
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)))
        ),
        "w": (
            sum(sympy.cos(sympy.Rational('1.7') * (t - beta_new)) ** 2 for y, t in elements)
            - (w * (sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) ** 2
            + sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) ** 2) - 2 * f
            * sympy.cos(sympy.Rational('1.7') * (beta - beta_new))
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) - alpha
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) ** 2)
        ),
        "f": (
            sum(sympy.cos(sympy.Rational('1.7') * (t - beta_new))
            * sympy.sin(sympy.Rational('1.7') * (t - beta_new)) for y, t in elements)
            - (f * (sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) ** 2
            - sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) ** 2) + alpha
            * sympy.cos(sympy.Rational('1.7') * (beta - beta_new))
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)))
        ),
        "alpha": (
            sum(sympy.cos(sympy.Rational('1.7') * (t - beta_new)) ** 2
            - sympy.sin(sympy.Rational('1.7') * (t - beta_new)) ** 2 for y, t in elements)
            - (alpha * (sympy.cos(sympy.Rational('1.7') * (beta - beta_new)) ** 2
            - sympy.sin(sympy.Rational('1.7') * (beta - beta_new)) ** 2) - 4 * f
            * sympy.cos(sympy.Rational('1.7') * (beta - beta_new))
            * sympy.sin(sympy.Rational('1.7') * (beta - beta_new)))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference.rewrite((sympy.sin, sympy.cos), sympy.exp))) == 0, name
