"""dfa_transition: one pass is enough.

    dfa_transition(x[l]):
        t1 = 0 + where(x == 1, 1, 0)
        t2 = 0 + where(x == 2, 1, 0)
        t3 = 0 + where(x == 0, 1, 0)
        return scan(lambda p0, p1, p2, p3: (0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0 + t3 * p0 + t3 * p1 + 0 * p2 +
                t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), l, (1,
                0, 0, 0), place=1) + 2 * scan(lambda p0, p1, p2, p3: (0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0 + t3
                * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1 + t2
                * p2 + t3 * p3), l, (1, 0, 0, 0), place=2) + 3 * scan(lambda p0, p1, p2, p3: (0 + t1 * p0 + t2 * p1 +
                t3 * p2 + 0 * p3, 0 + t3 * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3,
                0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), l, (1, 0, 0, 0), place=3), scan(lambda visits, p0, p1, p2,
                p3: (visits + (0 + 0 * p0 + t1 * p1 + t2 * p2 + t3 * p3), 0 + t1 * p0 + t2 * p1 + t3 * p2 + 0 * p3, 0
                + t3 * p0 + t3 * p1 + 0 * p2 + t1 * p3, 0 + t2 * p0 + 0 * p1 + t1 * p2 + t2 * p3, 0 + 0 * p0 + t1 * p1
                + t2 * p2 + t3 * p3), l, (0, 1, 0, 0, 0), place=0)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 20 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Elements:

    x1 = 1 if x[l] = 1 else 0
    x2 = 1 if x[l] = 2 else 0
    x3 = 1 if x[l] = 0 else 0

Update by one element:

    h_x'   = h_x + v·x1 + z·x2 + beta·x3  ¹
    h'     = h + r·x1 + w·x2 + gamma·x3  ¹
    t'     = t + y·x1 + f·x2 + eta·x3  ¹
    u'     = u + g·x1 + alpha·x2 + theta·x3  ¹
    v'     = v·x3 + beta·x1 + kappa·x3  ¹
    r'     = r·x3 + gamma·x1 + rho·x3  ¹
    y'     = y·x3 + eta·x1 + tau·x3  ¹
    g'     = g·x3 + theta·x1 + phi·x3  ¹
    z'     = z·x1 + beta·x2 + kappa·x2  ¹
    w'     = w·x1 + gamma·x2 + rho·x2  ¹
    f'     = f·x1 + eta·x2 + tau·x2  ¹
    alpha' = alpha·x1 + theta·x2 + phi·x2  ¹
    beta'  = v·x1 + z·x2 + beta·x3  ¹
    gamma' = r·x1 + w·x2 + gamma·x3  ¹
    eta'   = y·x1 + f·x2 + eta·x3  ¹
    theta' = g·x1 + alpha·x2 + theta·x3  ¹
    kappa' = v·x2 + z·x3 + kappa·x1  ¹
    rho'   = r·x2 + w·x3 + rho·x1  ¹
    tau'   = y·x2 + f·x3 + tau·x1  ¹
    phi'   = g·x2 + alpha·x3 + phi·x1  ¹

Guards:

    ¹ an element or state that does not take part is left out, not multiplied by 0

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

    h_x: np.ndarray  # ∘_l 1 if x[l] = 1 else 0
    h: np.ndarray  # ∘_l 1 if x[l] = 2 else 0
    t: np.ndarray  # ∘_l 1 if x[l] = 0 else 0
    u: np.ndarray  # ∘_l 0
    v: np.ndarray  # ∘_l 1 if x[l] = 0 else 0
    r: np.ndarray  # ∘_l 0
    y: np.ndarray  # ∘_l 1 if x[l] = 1 else 0
    g: np.ndarray  # ∘_l 1 if x[l] = 0 else 0
    z: np.ndarray  # ∘_l 0
    w: np.ndarray  # ∘_l 1 if x[l] = 1 else 0
    f: np.ndarray  # ∘_l 1 if x[l] = 2 else 0
    alpha: np.ndarray  # ∘_l 1 if x[l] = 2 else 0
    beta: np.ndarray  # ∘_l 1 if x[l] = 1 else 0
    gamma: np.ndarray  # ∘_l 1 if x[l] = 2 else 0
    eta: np.ndarray  # ∘_l 1 if x[l] = 0 else 0
    theta: np.ndarray  # ∘_l 0
    kappa: np.ndarray  # ∘_l 1 if x[l] = 2 else 0
    rho: np.ndarray  # ∘_l 1 if x[l] = 0 else 0
    tau: np.ndarray  # ∘_l 0
    phi: np.ndarray  # ∘_l 1 if x[l] = 1 else 0


def lift(x):
    """The state of one element, whose arrays have no axis l any more."""
    h_x = np.where(x == 1, 1, 0)
    h = np.where(x == 2, 1, 0)
    t = np.where(x == 0, 1, 0)
    u = np.float64(0)
    v = np.where(x == 0, 1, 0)
    r = np.float64(0)
    y = np.where(x == 1, 1, 0)
    g = np.where(x == 0, 1, 0)
    z = np.float64(0)
    w = np.where(x == 1, 1, 0)
    f = np.where(x == 2, 1, 0)
    alpha = np.where(x == 2, 1, 0)
    beta = np.where(x == 1, 1, 0)
    gamma = np.where(x == 2, 1, 0)
    eta = np.where(x == 0, 1, 0)
    theta = np.float64(0)
    kappa = np.where(x == 2, 1, 0)
    rho = np.where(x == 0, 1, 0)
    tau = np.float64(0)
    phi = np.where(x == 1, 1, 0)
    return State(h_x, h, t, u, v, r, y, g, z, w, f, alpha, beta, gamma, eta, theta, kappa, rho, tau, phi)


def merge(one, two):
    """The state of two parts together."""
    h_x = one.h_x + two.h_x * one.v + two.h * one.z + two.t * one.beta + two.u * one.kappa
    h = one.h + two.h_x * one.r + two.h * one.w + two.t * one.gamma + two.u * one.rho
    t = one.t + two.h_x * one.y + two.h * one.f + two.t * one.eta + two.u * one.tau
    u = one.u + two.h_x * one.g + two.h * one.alpha + two.t * one.theta + two.u * one.phi
    v = two.v * one.v + two.r * one.z + two.y * one.beta + two.g * one.kappa
    r = two.v * one.r + two.r * one.w + two.y * one.gamma + two.g * one.rho
    y = two.v * one.y + two.r * one.f + two.y * one.eta + two.g * one.tau
    g = two.v * one.g + two.r * one.alpha + two.y * one.theta + two.g * one.phi
    z = two.z * one.v + two.w * one.z + two.f * one.beta + two.alpha * one.kappa
    w = two.z * one.r + two.w * one.w + two.f * one.gamma + two.alpha * one.rho
    f = two.z * one.y + two.w * one.f + two.f * one.eta + two.alpha * one.tau
    alpha = two.z * one.g + two.w * one.alpha + two.f * one.theta + two.alpha * one.phi
    beta = two.beta * one.v + two.gamma * one.z + two.eta * one.beta + two.theta * one.kappa
    gamma = two.beta * one.r + two.gamma * one.w + two.eta * one.gamma + two.theta * one.rho
    eta = two.beta * one.y + two.gamma * one.f + two.eta * one.eta + two.theta * one.tau
    theta = two.beta * one.g + two.gamma * one.alpha + two.eta * one.theta + two.theta * one.phi
    kappa = two.kappa * one.v + two.rho * one.z + two.tau * one.beta + two.phi * one.kappa
    rho = two.kappa * one.r + two.rho * one.w + two.tau * one.gamma + two.phi * one.rho
    tau = two.kappa * one.y + two.rho * one.f + two.tau * one.eta + two.phi * one.tau
    phi = two.kappa * one.g + two.rho * one.alpha + two.tau * one.theta + two.phi * one.phi
    return State(h_x, h, t, u, v, r, y, g, z, w, f, alpha, beta, gamma, eta, theta, kappa, rho, tau, phi)


def finalize(state):
    """The results of a state."""
    h_x, h, t, u, v, r, y, g, z, w, f, alpha, beta, gamma, eta, theta, kappa, rho, tau, phi = state
    return g + 2 * alpha + 3 * theta, u


def definition(x):
    """The operator as written."""
    p0 = np.float64(1)
    p1 = np.float64(0)
    p2 = np.float64(0)
    p3 = np.float64(0)
    for at in range(len(x)):
        p0, p1, p2, p3 = (
            (
                0 + (0 + np.where(x[at] == 1, 1, 0)) * p0 + (0 + np.where(x[at] == 2, 1, 0)) * p1
                + (0 + np.where(x[at] == 0, 1, 0)) * p2 + 0 * p3
            ),
            (
                0 + (0 + np.where(x[at] == 0, 1, 0)) * p0 + (0 + np.where(x[at] == 0, 1, 0)) * p1 + 0 * p2
                + (0 + np.where(x[at] == 1, 1, 0)) * p3
            ),
            (
                0 + (0 + np.where(x[at] == 2, 1, 0)) * p0 + 0 * p1 + (0 + np.where(x[at] == 1, 1, 0)) * p2
                + (0 + np.where(x[at] == 2, 1, 0)) * p3
            ),
            (
                0 + 0 * p0 + (0 + np.where(x[at] == 1, 1, 0)) * p1 + (0 + np.where(x[at] == 2, 1, 0)) * p2
                + (0 + np.where(x[at] == 0, 1, 0)) * p3
            ),
        )
    visits = np.float64(0)
    psi = np.float64(1)
    omega = np.float64(0)
    xi = np.float64(0)
    zeta = np.float64(0)
    for nu in range(len(x)):
        visits, psi, omega, xi, zeta = (
            (
                visits + (0 + 0 * psi + (0 + np.where(x[nu] == 1, 1, 0)) * omega + (0 + np.where(x[nu] == 2, 1, 0))
                * xi + (0 + np.where(x[nu] == 0, 1, 0)) * zeta)
            ),
            (
                0 + (0 + np.where(x[nu] == 1, 1, 0)) * psi + (0 + np.where(x[nu] == 2, 1, 0)) * omega
                + (0 + np.where(x[nu] == 0, 1, 0)) * xi + 0 * zeta
            ),
            (
                0 + (0 + np.where(x[nu] == 0, 1, 0)) * psi + (0 + np.where(x[nu] == 0, 1, 0)) * omega + 0 * xi
                + (0 + np.where(x[nu] == 1, 1, 0)) * zeta
            ),
            (
                0 + (0 + np.where(x[nu] == 2, 1, 0)) * psi + 0 * omega + (0 + np.where(x[nu] == 1, 1, 0)) * xi
                + (0 + np.where(x[nu] == 2, 1, 0)) * zeta
            ),
            (
                0 + 0 * psi + (0 + np.where(x[nu] == 1, 1, 0)) * omega + (0 + np.where(x[nu] == 2, 1, 0)) * xi
                + (0 + np.where(x[nu] == 0, 1, 0)) * zeta
            ),
        )
    return p1 + 2 * p2 + 3 * p3, visits


def between(first, last, x):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(x[at])
    for at in range(first + 1, last):
        state = merge(state, lift(x[at]))
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
    x = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return x, cuts


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
    x, cuts = example
    one = between(0, cuts[0], x)
    two = between(cuts[0], cuts[1], x)
    three = between(cuts[1], len(x), x)
    whole = between(0, len(x), x)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(x)
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
