"""turning_points: one pass is enough.

    turning_points(x[l]):
        d1 = scan(lambda c1: x, l, 0.0, before)
        t1 = where(x > d1, 1, 0)
        t2 = where(x == d1, 1, 0)
        t3 = where(x < d1, 1, 0)
        return scan(lambda turns, rising, level, falling: (where(index(l) > 1, turns + 1 - (t1 * rising + t2 * level +
                t3 * falling), turns), t1, t2, t3), l, (0.0, 0.0, 0.0, 0.0), place=0)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 15 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    N'     = N + 1
    h_x'   = x[l]
    h'     = h
    t'     = t
    u'     = u
    v'     = v + (1 if l > 1 else 0) + (−z·(1 if x[l] > h_x else 0) if l > 1 else 0) + (−f·(1 if x[l] = h_x else 0) if
        l > 1 else 0) + (−beta·(1 if x[l] < h_x else 0) if l > 1 else 0)  ¹
    r'     = r + (−w·(1 if x[l] > h_x else 0) if l > 1 else 0)  ¹
    y'     = y + (−alpha·(1 if x[l] = h_x else 0) if l > 1 else 0)  ¹
    g'     = g + (−gamma·(1 if x[l] < h_x else 0) if l > 1 else 0)  ¹
    z'     = 1 if x[l] > h_x else 0  ¹
    w'     = 0
    f'     = 1 if x[l] = h_x else 0  ¹
    alpha' = 0
    beta'  = 1 if x[l] < h_x else 0  ¹
    gamma' = 0

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


def chosen(condition, a, b):
    """a where a condition holds, else b; for SymPy by a number that is 1 where it holds, else 0."""
    if not any(isinstance(each, sympy.Basic) for each in (condition, a, b)):
        return np.where(condition, a, b)
    return b + sympy.Symbol(f"[{condition}]") * (a - b)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    N: np.ndarray  # Σ_l 1
    h_x: np.ndarray  # ∘_l x[l]
    h: np.ndarray  # ∘_l 1 if l > 1 else 0
    t: np.ndarray  # ∘_l l > 1
    u: np.ndarray  # ∘_l x[l]
    v: np.ndarray  # ∘_l 0
    r: np.ndarray  # ∘_l 0
    y: np.ndarray  # ∘_l 0
    g: np.ndarray  # ∘_l 0
    z: np.ndarray  # ∘_l 0
    w: np.ndarray  # ∘_l 1
    f: np.ndarray  # ∘_l 0
    alpha: np.ndarray  # ∘_l 1
    beta: np.ndarray  # ∘_l 0
    gamma: np.ndarray  # ∘_l 1


def lift(x, l):
    """The state of one element, whose arrays have no axis l any more."""
    N = np.float64(1)
    h_x = x
    h = np.where(l > 1, 1, 0)
    t = l > 1
    u = x
    v = np.float64(0)
    r = np.float64(0)
    y = np.float64(0)
    g = np.float64(0)
    z = np.float64(0)
    w = np.float64(1)
    f = np.float64(0)
    alpha = np.float64(1)
    beta = np.float64(0)
    gamma = np.float64(1)
    return State(N, h_x, h, t, u, v, r, y, g, z, w, f, alpha, beta, gamma)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    h_x = two.h_x
    h = one.h
    t = one.t
    u = one.u
    v = (
        one.v + two.h + two.v + chosen(two.u > one.h_x, two.r, 0) + chosen(two.u == one.h_x, two.y, 0)
        + chosen(two.u < one.h_x, two.g, 0) + chosen(two.t, -(one.z * chosen(two.u > one.h_x, 1, 0)), 0)
        + chosen(two.t, -(one.f * chosen(two.u == one.h_x, 1, 0)), 0)
        + chosen(two.t, -(one.beta * chosen(two.u < one.h_x, 1, 0)), 0)
    )
    r = one.r + chosen(two.t, -(one.w * chosen(two.u > one.h_x, 1, 0)), 0)
    y = one.y + chosen(two.t, -(one.alpha * chosen(two.u == one.h_x, 1, 0)), 0)
    g = one.g + chosen(two.t, -(one.gamma * chosen(two.u < one.h_x, 1, 0)), 0)
    z = two.z + chosen(two.u > one.h_x, two.w, 0)
    w = np.float64(0)
    f = two.f + chosen(two.u == one.h_x, two.alpha, 0)
    alpha = np.float64(0)
    beta = two.beta + chosen(two.u < one.h_x, two.gamma, 0)
    gamma = np.float64(0)
    return State(N, h_x, h, t, u, v, r, y, g, z, w, f, alpha, beta, gamma)


def finalize(state):
    """The results of a state."""
    N, h_x, h, t, u, v, r, y, g, z, w, f, alpha, beta, gamma = state
    eta = np.where(N == 0, 0, h + v + np.where(u > 0, r, 0) + np.where(u == 0, y, 0) + np.where(u < 0, g, 0))
    return eta


def definition(x):
    """The operator as written."""
    c1 = np.float64(0)
    c1_seen = []
    for at in range(len(x)):
        c1_seen.append(c1)
        c1 = x[at]
    c1s = np.stack(np.broadcast_arrays(*c1_seen), axis=0)
    turns = np.float64(0)
    rising = np.float64(0)
    level = np.float64(0)
    falling = np.float64(0)
    for theta in range(len(x)):
        turns, rising, level, falling = (
            np.where(
                theta > 1,
                (
                    turns + 1 - (np.where(x[theta] > c1s[theta], 1, 0) * rising
                    + np.where(x[theta] == c1s[theta], 1, 0) * level + np.where(x[theta] < c1s[theta], 1, 0)
                    * falling)
                ),
                turns,
            ),
            np.where(x[theta] > c1s[theta], 1, 0),
            np.where(x[theta] == c1s[theta], 1, 0),
            np.where(x[theta] < c1s[theta], 1, 0),
        )
    return turns


def between(first, last, x):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(x[at], at)
    for at in range(first + 1, last):
        state = merge(state, lift(x[at], at))
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
    return {value.replace(lambda term: term.is_Pow and str(term.base)[0] == "[", lambda term: term.base)}


def test_merge_is_associative_for_all_numbers():
    """SymPy, over the reals, for any three states: both bracketings are the same sums."""

    def state(part):
        return State(*(sympy.Symbol(f"{name}_{part}", real=True) for name in State._fields))

    a, b, c = map(state, "abc")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for name, one, other in zip(State._fields, left, right, strict=True):
        assert sums(sympy.sympify(one)) == sums(sympy.sympify(other)), name
