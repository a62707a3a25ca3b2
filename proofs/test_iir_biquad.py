"""iir_biquad: one pass is enough.

    iir_biquad(x[l]):
        t1 = 0.1 * x
        return scan(lambda y, y1, s, s1: (s + 0.3 * x + 0.5 * y - 0.2 * y1, y, s1 + 0.2 * x, t1), l, (0.0, 0.0, 0.0,
                0.0), place=0), scan(lambda y, y1, s, s1: (s + 0.3 * x + 0.5 * y - 0.2 * y1, y, s1 + 0.2 * x, t1), l,
                (0.0, 0.0, 0.0, 0.0), place=1)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 13 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    h'     = 0.5·h − 0.2·g
    t'     = 0.5·t − 0.2·z
    h_x'   = 0.5·h_x + r + 0.3·x[l] − 0.2·w
    u'     = 0.5·u − 0.2·f
    v'     = 0.5·v + y − 0.2·alpha
    r'     = 0.2·x[l] + beta
    y'     = 0
    g'     = h
    z'     = t
    w'     = h_x
    f'     = u
    alpha' = v
    beta'  = 0.1·x[l]

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

    h: np.ndarray  # ∘_l 0.5
    t: np.ndarray  # ∘_l 1
    h_x: np.ndarray  # ∘_l 0.3·x[l]
    u: np.ndarray  # ∘_l −0.2
    v: np.ndarray  # ∘_l 0
    r: np.ndarray  # ∘_l 0.2·x[l]
    y: np.ndarray  # ∘_l 1
    g: np.ndarray  # ∘_l 1
    z: np.ndarray  # ∘_l 0
    w: np.ndarray  # ∘_l 0
    f: np.ndarray  # ∘_l 0
    alpha: np.ndarray  # ∘_l 0
    beta: np.ndarray  # ∘_l 0.1·x[l]


def lift(x):
    """The state of one element, whose arrays have no axis l any more."""
    h = np.float64(0.5)
    t = np.float64(1)
    h_x = 0.3 * x
    u = np.float64(-0.2)
    v = np.float64(0)
    r = 0.2 * x
    y = np.float64(1)
    g = np.float64(1)
    z = np.float64(0)
    w = np.float64(0)
    f = np.float64(0)
    alpha = np.float64(0)
    beta = 0.1 * x
    return State(h, t, h_x, u, v, r, y, g, z, w, f, alpha, beta)


def merge(one, two):
    """The state of two parts together."""
    h = two.h * one.h + two.u * one.g
    t = two.h * one.t + two.u * one.z
    h_x = two.h * one.h_x + two.t * one.r + two.h_x + two.u * one.w + two.v * one.beta
    u = two.h * one.u + two.u * one.f
    v = two.h * one.v + two.t * one.y + two.u * one.alpha
    r = two.r + two.y * one.beta
    y = np.float64(0)
    g = two.g * one.h + two.f * one.g
    z = two.g * one.t + two.f * one.z
    w = two.g * one.h_x + two.z * one.r + two.w + two.f * one.w + two.alpha * one.beta
    f = two.g * one.u + two.f * one.f
    alpha = two.g * one.v + two.z * one.y + two.f * one.alpha
    beta = two.beta
    return State(h, t, h_x, u, v, r, y, g, z, w, f, alpha, beta)


def finalize(state):
    """The results of a state."""
    h, t, h_x, u, v, r, y, g, z, w, f, alpha, beta = state
    return h_x, w


def definition(x):
    """The operator as written."""
    gamma = np.float64(0)
    y1 = np.float64(0)
    s = np.float64(0)
    s1 = np.float64(0)
    for at in range(len(x)):
        gamma, y1, s, s1 = s + 0.3 * x[at] + 0.5 * gamma - 0.2 * y1, gamma, s1 + 0.2 * x[at], 0.1 * x[at]
    return gamma, y1


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
