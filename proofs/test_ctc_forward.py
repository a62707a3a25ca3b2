"""ctc_forward: one pass is enough.

    ctc_forward(lp[l, c], y[u]):
        t1 = exp(sum(where(index(c) == 0, lp, 0), c))
        t2 = index(l) == 0
        d1 = sum(where(index(u) == 0, y, 0), u)
        d2 = sum(where(index(u) == 1, y, 0), u)
        return -log(scan(lambda a, b, c, d: (t1 * where(t2, 1, a), exp(sum(where(index(c) == d1, lp, 0), c)) *
                where(t2, 1, a + b), t1 * (b + c), exp(sum(where(index(c) == d2, lp, 0), c)) * (c + d + where(d1 !=
                d2, b, 0))), l, (0.0, 0.0, 0.0, 0.0), place=3) + scan(lambda a, b, c, d, e: (t1 * where(t2, 1, a),
                exp(sum(where(index(c) == d1, lp, 0), c)) * where(t2, 1, a + b), t1 * (b + c), exp(sum(where(index(c)
                == d2, lp, 0), c)) * (c + d + where(d1 != d2, b, 0)), t1 * (d + e)), l, (0.0, 0.0, 0.0, 0.0, 0.0),
                place=4))

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 20 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Elements:

    x1 = exp(Σ_c (lp[l,c] if c = 0 else 0))
    x2 = exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0))
    x3 = 0 if l = 0 else exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0))

Update by one element:

    q_lp'   = q_lp·x1  ¹
    h_lp'   = h_lp·x1 + q_y_lp·x1  ¹
    h'      = h·x1 + h_y_lp·x1  ¹
    t'      = t·x1 + g·x1  ¹
    v'      = v·x1 + z·x1  ¹
    r'      = r·x1 + w·x1  ¹
    q_y_lp' = q_y_lp·x2  ¹
    h_y_lp' = h_y_lp·x2 + q_lp·x2  ¹
    g'      = g·x2 + f·x2 + q·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)  ¹
    z'      = z·x2 + alpha·x2 + gamma·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)  ¹
    w'      = w·x2 + beta·x2 + eta·(x2 if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u = 1 else 0) else 0)  ¹
    f'      = f·x1 + q·x1  ¹
    alpha'  = alpha·x1 + gamma·x1  ¹
    beta'   = beta·x1 + eta·x1  ¹
    q'      = q·x3  ¹
    gamma'  = gamma·x3 + (exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) if l = 0 else 0) + theta·x3  ¹
    eta'    = eta·x3 + kappa·x3  ¹
    theta'  = (x1 if l = 0 else 0) + theta·(0 if l = 0 else x1)  ¹
    kappa'  = kappa·(0 if l = 0 else x1)  ¹
    rho'    = rho

Guards:

    ¹ an element or state that does not take part is left out, not multiplied by 0

Dangers:

    exp(Σ_c (lp[l,c] if c = 0 else 0)) may overflow: nothing bounds its exponent
    exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0)) may overflow: nothing bounds its exponent
    exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) may overflow: nothing bounds its exponent

Laws: none beyond those of the monoids.

Proved below, by SymPy over the reals: merge is associative (it does not commute). Tested below, by Hypothesis on
small examples in float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
import sympy
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


class State(NamedTuple):
    """What is kept of a part of the elements."""

    q_lp: np.ndarray  # Π_l exp(Σ_c (lp[l,c] if c = 0 else 0))
    h_lp: np.ndarray  # ∘_l exp(Σ_c (lp[l,c] if c = 0 else 0))
    h: np.ndarray  # ∘_l 0
    t: np.ndarray  # ∘_l 0
    v: np.ndarray  # ∘_l 0
    r: np.ndarray  # ∘_l 0
    q_y_lp: np.ndarray  # Π_l exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0))
    h_y_lp: np.ndarray  # ∘_l exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0))
    # ∘_l exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 1 else 0) else 0)) if Σ_u (y[u] if u = 0 else 0) ≠ Σ_u (y[u] if u =
    g: np.ndarray
    z: np.ndarray  # ∘_l 0
    w: np.ndarray  # ∘_l 0
    f: np.ndarray  # ∘_l exp(Σ_c (lp[l,c] if c = 0 else 0))
    alpha: np.ndarray  # ∘_l 0
    beta: np.ndarray  # ∘_l 0
    q: np.ndarray  # Π_l 0 if l = 0 else exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0))
    gamma: np.ndarray  # ∘_l exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0)) if l = 0 else 0
    eta: np.ndarray  # ∘_l 0 if l = 0 else exp(Σ_c (lp[l,c] if c = Σ_u (y[u] if u = 0 else 0) else 0))
    theta: np.ndarray  # ∘_l exp(Σ_c (lp[l,c] if c = 0 else 0)) if l = 0 else 0
    kappa: np.ndarray  # Π_l 0 if l = 0 else exp(Σ_c (lp[l,c] if c = 0 else 0))
    rho: np.ndarray  # Σ_l 0


def lift(lp, y, l):
    """The state of one element, whose arrays have no axis l any more."""
    q_lp = np.exp(np.sum(np.where(np.arange(len(lp)) == 0, lp, 0)))
    h_lp = np.exp(np.sum(np.where(np.arange(len(lp)) == 0, lp, 0)))
    h = np.float64(0)
    t = np.float64(0)
    v = np.float64(0)
    r = np.float64(0)
    q_y_lp = np.exp(np.sum(np.where(np.arange(len(lp)) == np.sum(np.where(np.arange(len(y)) == 1, y, 0)), lp, 0)))
    h_y_lp = np.exp(np.sum(np.where(np.arange(len(lp)) == np.sum(np.where(np.arange(len(y)) == 1, y, 0)), lp, 0)))
    g = np.where(
        np.sum(np.where(np.arange(len(y)) == 0, y, 0)) != np.sum(np.where(np.arange(len(y)) == 1, y, 0)),
        np.exp(np.sum(np.where(np.arange(len(lp)) == np.sum(np.where(np.arange(len(y)) == 1, y, 0)), lp, 0))),
        0,
    )
    z = np.float64(0)
    w = np.float64(0)
    f = np.exp(np.sum(np.where(np.arange(len(lp)) == 0, lp, 0)))
    alpha = np.float64(0)
    beta = np.float64(0)
    q = np.where(
        l == 0,
        0,
        np.exp(np.sum(np.where(np.arange(len(lp)) == np.sum(np.where(np.arange(len(y)) == 0, y, 0)), lp, 0))),
    )
    gamma = np.where(
        l == 0,
        np.exp(np.sum(np.where(np.arange(len(lp)) == np.sum(np.where(np.arange(len(y)) == 0, y, 0)), lp, 0))),
        0,
    )
    eta = np.where(
        l == 0,
        0,
        np.exp(np.sum(np.where(np.arange(len(lp)) == np.sum(np.where(np.arange(len(y)) == 0, y, 0)), lp, 0))),
    )
    theta = np.where(l == 0, np.exp(np.sum(np.where(np.arange(len(lp)) == 0, lp, 0))), 0)
    kappa = np.where(l == 0, 0, np.exp(np.sum(np.where(np.arange(len(lp)) == 0, lp, 0))))
    rho = np.float64(0)
    return State(q_lp, h_lp, h, t, v, r, q_y_lp, h_y_lp, g, z, w, f, alpha, beta, q, gamma, eta, theta, kappa, rho)


def merge(one, two):
    """The state of two parts together."""
    q_lp = one.q_lp * two.q_lp
    h_lp = two.q_lp * one.h_lp + two.h_lp * one.q_y_lp
    h = two.q_lp * one.h + two.h_lp * one.h_y_lp + two.h * one.q_lp
    t = two.q_lp * one.t + two.h_lp * one.g + two.h * one.f + two.t * one.q
    v = two.q_lp * one.v + two.h_lp * one.z + two.h * one.alpha + two.t * one.gamma + two.v + two.r * one.theta
    r = two.q_lp * one.r + two.h_lp * one.w + two.h * one.beta + two.t * one.eta + two.r * one.kappa
    q_y_lp = one.q_y_lp * two.q_y_lp
    h_y_lp = two.q_y_lp * one.h_y_lp + two.h_y_lp * one.q_lp
    g = two.q_y_lp * one.g + two.h_y_lp * one.f + two.g * one.q
    z = two.q_y_lp * one.z + two.h_y_lp * one.alpha + two.g * one.gamma + two.z + two.w * one.theta
    w = two.q_y_lp * one.w + two.h_y_lp * one.beta + two.g * one.eta + two.w * one.kappa
    f = two.q_lp * one.f + two.f * one.q
    alpha = two.q_lp * one.alpha + two.f * one.gamma + two.alpha + two.beta * one.theta
    beta = two.q_lp * one.beta + two.f * one.eta + two.beta * one.kappa
    q = one.q * two.q
    gamma = two.q * one.gamma + two.gamma + two.eta * one.theta
    eta = two.q * one.eta + two.eta * one.kappa
    theta = two.theta + two.kappa * one.theta
    kappa = one.kappa * two.kappa
    rho = one.rho + two.rho
    return State(q_lp, h_lp, h, t, v, r, q_y_lp, h_y_lp, g, z, w, f, alpha, beta, q, gamma, eta, theta, kappa, rho)


def finalize(state):
    """The results of a state."""
    q_lp, h_lp, h, t, v, r, q_y_lp, h_y_lp, g, z, w, f, alpha, beta, q, gamma, eta, theta, kappa, rho = state
    return -np.log(z + v) - 0.6931471805599453 * rho


def definition(lp, y):
    """The operator as written."""
    a = np.float64(0)
    b = np.float64(0)
    c = np.float64(0)
    d = np.float64(0)
    for at in range(len(lp)):
        a, b, c, d = (
            np.exp(np.sum(np.where(np.arange(lp.shape[1]) == 0, lp[at], 0))) * np.where(at == 0, 1, a),
            (
                np.exp(np.sum(np.where(np.arange(lp.shape[1]) == np.sum(np.where(np.arange(len(y)) == 0, y, 0)),
                lp[at], 0))) * np.where(at == 0, 1, a + b)
            ),
            np.exp(np.sum(np.where(np.arange(lp.shape[1]) == 0, lp[at], 0))) * (b + c),
            (
                np.exp(np.sum(np.where(np.arange(lp.shape[1]) == np.sum(np.where(np.arange(len(y)) == 1, y, 0)),
                lp[at], 0))) * (c + d + np.where(np.sum(np.where(np.arange(len(y)) == 0, y,
                0)) != np.sum(np.where(np.arange(len(y)) == 1, y, 0)), b, 0))
            ),
        )
    u = np.float64(0)
    tau = np.float64(0)
    phi = np.float64(0)
    psi = np.float64(0)
    e = np.float64(0)
    for omega in range(len(lp)):
        u, tau, phi, psi, e = (
            np.exp(np.sum(np.where(np.arange(lp.shape[1]) == 0, lp[omega], 0))) * np.where(omega == 0, 1, u),
            (
                np.exp(np.sum(np.where(np.arange(lp.shape[1]) == np.sum(np.where(np.arange(len(y)) == 0, y, 0)),
                lp[omega], 0))) * np.where(omega == 0, 1, u + tau)
            ),
            np.exp(np.sum(np.where(np.arange(lp.shape[1]) == 0, lp[omega], 0))) * (tau + phi),
            (
                np.exp(np.sum(np.where(np.arange(lp.shape[1]) == np.sum(np.where(np.arange(len(y)) == 1, y, 0)),
                lp[omega], 0))) * (phi + psi + np.where(np.sum(np.where(np.arange(len(y)) == 0, y,
                0)) != np.sum(np.where(np.arange(len(y)) == 1, y, 0)), tau, 0))
            ),
            np.exp(np.sum(np.where(np.arange(lp.shape[1]) == 0, lp[omega], 0))) * (psi + e),
        )
    return -np.log(d + e)


def between(first, last, lp, y):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(lp[at], y, at)
    for at in range(first + 1, last):
        state = merge(state, lift(lp[at], y, at))
    return state


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
    """A few elements, the parameters, and where they are cut into three neighbours."""
    n = draw(st.integers(3, 6))
    lp = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    y = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return lp, y, cuts


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
    lp, y, cuts = example
    one = between(0, cuts[0], lp, y)
    two = between(cuts[0], cuts[1], lp, y)
    three = between(cuts[1], len(lp), lp, y)
    whole = between(0, len(lp), lp, y)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(lp, y)
    around = [finalize(each) for each in (whole, *nudged(whole))]
    for state in (left, right):
        agree(finalize(state), want, *around)


def sums(value):
    """A largest (or smallest) of sums as the set of its sums, and a sum of products multiplied out."""
    value = sympy.expand(value)
    if isinstance(value, (sympy.Max, sympy.Min)):
        return set().union(*map(sums, value.args))
    if value.has(sympy.Max, sympy.Min) and isinstance(value, sympy.Add):
        return {sympy.expand(one + other) for one in sums(value.args[0]) for other in sums(value.func(*value.args[1:]))}
    return {value}


def test_merge_is_associative_for_all_numbers():
    """SymPy, over the reals, for any three states: both bracketings are the same sums."""

    def state(part):
        return State(*(sympy.Symbol(f"{name}_{part}", real=True) for name in State._fields))

    a, b, c = map(state, "abc")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for name, one, other in zip(State._fields, left, right, strict=True):
        assert sums(sympy.sympify(one)) == sums(sympy.sympify(other)), name
