"""rwkv_wkv: one pass is enough.

    rwkv_wkv(k[l], v[l], w[], u[]):
        t1 = exp(u + k)
        t2 = exp(-w)
        t3 = exp(k)
        return scan(lambda y, a: (a + t1 * v, t2 * a + t3 * v), l, (0.0, 0.0), place=0) / scan(lambda z, b: (b + t1,
                t2 * b + t3), l, (0.0, 0.0), place=0)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 7 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    h'     = q
    h_vuk' = h_vk + v[l]·exp(u + k[l])
    q'     = q·exp(−w)
    h_vk'  = h_vk·exp(−w) + v[l]·exp(k[l])
    t'     = q
    h_uk'  = h_k + exp(u + k[l])
    h_k'   = h_k·exp(−w) + exp(k[l])

Dangers:

    exp(u + k[l]) may overflow: nothing bounds its exponent
    exp(k[l]) may overflow: nothing bounds its exponent
    h_uk divides and may be 0: the result is then what IEEE division gives

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

    h: np.ndarray  # ∘_l 1
    h_vuk: np.ndarray  # ∘_l v[l]·exp(u + k[l])
    q: np.ndarray  # Π_l exp(−w)
    h_vk: np.ndarray  # ∘_l v[l]·exp(k[l])
    t: np.ndarray  # ∘_l 1
    h_uk: np.ndarray  # ∘_l exp(u + k[l])
    h_k: np.ndarray  # ∘_l exp(k[l])


def lift(k, v, w, u):
    """The state of one element, whose arrays have no axis l any more."""
    h = np.float64(1)
    h_vuk = v * np.exp(u + k)
    q = np.exp(-w)
    h_vk = v * np.exp(k)
    t = np.float64(1)
    h_uk = np.exp(u + k)
    h_k = np.exp(k)
    return State(h, h_vuk, q, h_vk, t, h_uk, h_k)


def merge(one, two):
    """The state of two parts together."""
    h = two.h * one.q
    h_vuk = two.h * one.h_vk + two.h_vuk
    q = one.q * two.q
    h_vk = two.q * one.h_vk + two.h_vk
    t = two.t * one.q
    h_uk = two.t * one.h_k + two.h_uk
    h_k = two.q * one.h_k + two.h_k
    return State(h, h_vuk, q, h_vk, t, h_uk, h_k)


def finalize(state):
    """The results of a state."""
    h, h_vuk, q, h_vk, t, h_uk, h_k = state
    return h_vuk / h_uk


def definition(k, v, w, u):
    """The operator as written."""
    y = np.float64(0)
    a = np.float64(0)
    for at in range(len(k)):
        y, a = a + np.exp(u + k[at]) * v[at], np.exp(-w) * a + np.exp(k[at]) * v[at]
    z = np.float64(0)
    b = np.float64(0)
    for r in range(len(k)):
        z, b = b + np.exp(u + k[r]), np.exp(-w) * b + np.exp(k[r])
    return y / z


def between(first, last, k, v, w, u):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(k[at], v[at], w, u)
    for at in range(first + 1, last):
        state = merge(state, lift(k[at], v[at], w, u))
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
    k = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    v = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    w = array(draw, (), ANY, POSITIVE, UNIT, FEW)
    u = array(draw, (), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return k, v, w, u, cuts


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
    k, v, w, u, cuts = example
    one = between(0, cuts[0], k, v, w, u)
    two = between(cuts[0], cuts[1], k, v, w, u)
    three = between(cuts[1], len(k), k, v, w, u)
    whole = between(0, len(k), k, v, w, u)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(k, v, w, u)
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
