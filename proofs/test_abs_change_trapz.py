"""abs_change_trapz: one pass is enough.

    abs_change_trapz(x[l], t[l]):
        d1 = scan(lambda c1: x, l, 0.0, before)
        t1 = x - d1
        t2 = index(l) > 0
        return sum(abs(t1), l, where=t2), sqrt(sum(t1 ** 2, l, where=t2)), sum(0.5 * (x + d1) * (t - scan(lambda c1:
                t, l, 0.0, before)), l, where=t2), sum(maximum(t1, 0), l, where=t2)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 10 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    N'   = N + 1
    h_x' = x[l]
    h'   = h
    u'   = u
    v'   = v + (|x[l] − h_x| if l > 0 else 0)
    r'   = r + ((x[l] − h_x)² if l > 0 else 0)
    h_t' = t[l]
    y'   = y
    g'   = g + (0.5·(x[l] + h_x)·(t[l] − h_t) if l > 0 else 0)
    z'   = z + (max(x[l] − h_x, 0) if l > 0 else 0)

Dangers:

    w = 0 if N_l = 0 else (|u − 0| if h else 0) + v is a difference of sums: it cancels where they are large against
        it
    f = 0 if N_l = 0 else ((u − 0)² if h else 0) + r is a difference of sums: it cancels where they are large against
        it
    alpha = 0 if N_l = 0 else (0.5·(u + 0)·(y − 0) if h else 0) + g is a difference of sums: it cancels where they are
        large against it
    beta = 0 if N_l = 0 else (max(u − 0, 0) if h else 0) + z is a difference of sums: it cancels where they are large
        against it

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


def larger(a, b):
    """The larger of two numbers, also of SymPy's."""
    return sympy.Max(a, b) if isinstance(a + b, sympy.Basic) else np.maximum(a, b)


def chosen(condition, a, b):
    """a where a condition holds, else b; for SymPy by a number that is 1 where it holds, else 0."""
    if not any(isinstance(each, sympy.Basic) for each in (condition, a, b)):
        return np.where(condition, a, b)
    return b + sympy.Symbol(f"[{condition}]") * (a - b)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    N: np.ndarray  # Σ_l 1
    h_x: np.ndarray  # ∘_l x[l]
    h: np.ndarray  # ∘_l l > 0
    u: np.ndarray  # ∘_l x[l]
    v: np.ndarray  # ∘_l 0
    r: np.ndarray  # ∘_l 0
    h_t: np.ndarray  # ∘_l t[l]
    y: np.ndarray  # ∘_l t[l]
    g: np.ndarray  # ∘_l 0
    z: np.ndarray  # ∘_l 0


def lift(x, t, l):
    """The state of one element, whose arrays have no axis l any more."""
    N = np.float64(1)
    h_x = x
    h = l > 0
    u = x
    v = np.float64(0)
    r = np.float64(0)
    h_t = t
    y = t
    g = np.float64(0)
    z = np.float64(0)
    return State(N, h_x, h, u, v, r, h_t, y, g, z)


def merge(one, two):
    """The state of two parts together."""
    N = one.N + two.N
    h_x = two.h_x
    h = one.h
    u = one.u
    v = one.v + chosen(two.h, np.abs(two.u - one.h_x), 0) + two.v
    r = one.r + chosen(two.h, (two.u - one.h_x) ** 2, 0) + two.r
    h_t = two.h_t
    y = one.y
    g = one.g + chosen(two.h, 0.5 * (two.u + one.h_x) * (two.y - one.h_t), 0) + two.g
    z = one.z + chosen(two.h, larger(two.u - one.h_x, 0), 0) + two.z
    return State(N, h_x, h, u, v, r, h_t, y, g, z)


def finalize(state):
    """The results of a state."""
    N, h_x, h, u, v, r, h_t, y, g, z = state
    w = np.where(N == 0, 0, np.where(h, np.abs(u - 0), 0) + v)
    f = np.where(N == 0, 0, np.where(h, (u - 0) ** 2, 0) + r)
    alpha = np.where(N == 0, 0, np.where(h, 0.5 * (u + 0) * (y - 0), 0) + g)
    beta = np.where(N == 0, 0, np.where(h, np.maximum(u - 0, 0), 0) + z)
    return w, np.sqrt(f), alpha, beta


def definition(x, t):
    """The operator as written."""
    c1 = np.float64(0)
    c1_seen = []
    for at in range(len(x)):
        c1_seen.append(c1)
        c1 = x[at]
    c1s = np.stack(np.broadcast_arrays(*c1_seen), axis=0)
    gamma = np.float64(0)
    gamma_seen = []
    for eta in range(len(x)):
        gamma_seen.append(gamma)
        gamma = t[eta]
    gammas = np.stack(np.broadcast_arrays(*gamma_seen), axis=0)
    return (
        np.sum(np.where(np.arange(len(x)) > 0, np.abs(x - c1s), 0)),
        np.sqrt(np.sum(np.where(np.arange(len(x)) > 0, (x - c1s) ** 2, 0))),
        np.sum(np.where(np.arange(len(x)) > 0, 0.5 * (x + c1s) * (t - gammas), 0)),
        np.sum(np.where(np.arange(len(x)) > 0, np.maximum(x - c1s, 0), 0)),
    )


def between(first, last, x, t):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(x[at], t[at], at)
    for at in range(first + 1, last):
        state = merge(state, lift(x[at], t[at], at))
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
    t = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return x, t, cuts


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
    x, t, cuts = example
    one = between(0, cuts[0], x, t)
    two = between(cuts[0], cuts[1], x, t)
    three = between(cuts[1], len(x), x, t)
    whole = between(0, len(x), x, t)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(x, t)
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
