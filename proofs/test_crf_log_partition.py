"""crf_log_partition: one pass is enough.

    crf_log_partition(E[l, s], A[s, t], pi[s]):
        t1 = index(s) == 0
        t2 = index(l) == 0
        t3 = index(t) == 0
        d1 = sum(where(t1, A, 0), s)
        t4 = index(s) == 1
        d2 = sum(where(t4, A, 0), s)
        t5 = index(t) == 1
        return logadd(scan(lambda a, b: (sum(where(t1, E, 0), s) + where(t2, sum(where(t1, pi, 0), s), logadd(a +
                sum(where(t3, d1, 0), t), b + sum(where(t3, d2, 0), t))), sum(where(t4, E, 0), s) + where(t2,
                sum(where(t4, pi, 0), s), logadd(a + sum(where(t5, d1, 0), t), b + sum(where(t5, d2, 0), t)))), l,
                (0.0, 0.0), place=0), scan(lambda a, b: (sum(where(t1, E, 0), s) + where(t2, sum(where(t1, pi, 0), s),
                logadd(a + sum(where(t3, d1, 0), t), b + sum(where(t3, d2, 0), t))), sum(where(t4, E, 0), s) +
                where(t2, sum(where(t4, pi, 0), s), logadd(a + sum(where(t5, d1, 0), t), b + sum(where(t5, d2, 0),
                t)))), l, (0.0, 0.0), place=1))

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 6 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    h_EA'   = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else
        0)) + h_EA, (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else
        0)) + u)  ¹
    h_E_pi' = logadd(logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t =
        0 else 0)) + h_E_pi, Σ_s (E[l,s] if s = 0 else 0) + Σ_s (pi[s] if s = 0 else 0) if l = 0 else −∞), (−∞ if l =
        0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)) + v)  ¹
    h'      = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else
        0)) + h, (−∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0))
        + r)  ¹
    u'      = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else
        0)) + h_EA, (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else
        0)) + u)  ¹
    v'      = logadd(logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t =
        1 else 0)) + h_E_pi, Σ_s (E[l,s] if s = 1 else 0) + Σ_s (pi[s] if s = 1 else 0) if l = 0 else −∞), (−∞ if l =
        0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)) + v)  ¹
    r'      = logadd((−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else
        0)) + h, (−∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0))
        + r)  ¹

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


def log_of_sum(a, b):
    """log(eᵃ + eᵇ), also of SymPy's numbers."""
    return sympy.log(sympy.exp(a) + sympy.exp(b)) if isinstance(a + b, sympy.Basic) else np.logaddexp(a, b)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    # ∘_l −∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 0 else 0)
    h_EA: np.ndarray
    h_E_pi: np.ndarray  # ∘_l Σ_s (E[l,s] if s = 0 else 0) + Σ_s (pi[s] if s = 0 else 0) if l = 0 else −∞
    # ∘_l −∞ if l = 0 else Σ_s (E[l,s] if s = 0 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 0 else 0)
    h: np.ndarray
    # ∘_l −∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 0 else 0) if t = 1 else 0)
    u: np.ndarray
    v: np.ndarray  # ∘_l Σ_s (E[l,s] if s = 1 else 0) + Σ_s (pi[s] if s = 1 else 0) if l = 0 else −∞
    # ∘_l −∞ if l = 0 else Σ_s (E[l,s] if s = 1 else 0) + Σ_t (Σ_s (A[s,t] if s = 1 else 0) if t = 1 else 0)
    r: np.ndarray


def lift(E, A, pi, l):
    """The state of one element, whose arrays have no axis l any more."""
    h_EA = np.where(
        l == 0,
        -np.inf,
        (
            np.sum(np.where(np.arange(len(E)) == 0, E, 0))
            + np.sum(np.where(np.arange(A.shape[1]) == 0,
            np.sum(np.where((np.arange(len(E)) == 0)[..., None], A, 0), axis=0), 0))
        ),
    )
    h_E_pi = np.where(
        l == 0,
        np.sum(np.where(np.arange(len(E)) == 0, E, 0)) + np.sum(np.where(np.arange(len(E)) == 0, pi, 0)),
        -np.inf,
    )
    h = np.where(
        l == 0,
        -np.inf,
        (
            np.sum(np.where(np.arange(len(E)) == 0, E, 0))
            + np.sum(np.where(np.arange(A.shape[1]) == 0,
            np.sum(np.where((np.arange(len(E)) == 1)[..., None], A, 0), axis=0), 0))
        ),
    )
    u = np.where(
        l == 0,
        -np.inf,
        (
            np.sum(np.where(np.arange(len(E)) == 1, E, 0))
            + np.sum(np.where(np.arange(A.shape[1]) == 1,
            np.sum(np.where((np.arange(len(E)) == 0)[..., None], A, 0), axis=0), 0))
        ),
    )
    v = np.where(
        l == 0,
        np.sum(np.where(np.arange(len(E)) == 1, E, 0)) + np.sum(np.where(np.arange(len(E)) == 1, pi, 0)),
        -np.inf,
    )
    r = np.where(
        l == 0,
        -np.inf,
        (
            np.sum(np.where(np.arange(len(E)) == 1, E, 0))
            + np.sum(np.where(np.arange(A.shape[1]) == 1,
            np.sum(np.where((np.arange(len(E)) == 1)[..., None], A, 0), axis=0), 0))
        ),
    )
    return State(h_EA, h_E_pi, h, u, v, r)


def merge(one, two):
    """The state of two parts together."""
    h_EA = log_of_sum(two.h_EA + one.h_EA, two.h + one.u)
    h_E_pi = log_of_sum(log_of_sum(two.h_EA + one.h_E_pi, two.h_E_pi), two.h + one.v)
    h = log_of_sum(two.h_EA + one.h, two.h + one.r)
    u = log_of_sum(two.u + one.h_EA, two.r + one.u)
    v = log_of_sum(log_of_sum(two.u + one.h_E_pi, two.v), two.r + one.v)
    r = log_of_sum(two.u + one.h, two.r + one.r)
    return State(h_EA, h_E_pi, h, u, v, r)


def finalize(state):
    """The results of a state."""
    h_EA, h_E_pi, h, u, v, r = state
    y = np.logaddexp(np.logaddexp(h_EA, h_E_pi), h)
    g = np.logaddexp(np.logaddexp(u, v), r)
    return np.logaddexp(y, g)


def definition(E, A, pi):
    """The operator as written."""
    a = np.float64(0)
    b = np.float64(0)
    for at in range(len(E)):
        a, b = (
            (
                np.sum(np.where(np.arange(E.shape[1]) == 0, E[at], 0))
                + np.where(at == 0, np.sum(np.where(np.arange(E.shape[1]) == 0, pi, 0)),
                np.logaddexp(a + np.sum(np.where(np.arange(A.shape[1]) == 0,
                np.sum(np.where((np.arange(E.shape[1]) == 0)[..., None], A, 0), axis=0), 0)), b
                + np.sum(np.where(np.arange(A.shape[1]) == 0,
                np.sum(np.where((np.arange(E.shape[1]) == 1)[..., None], A, 0), axis=0), 0))))
            ),
            (
                np.sum(np.where(np.arange(E.shape[1]) == 1, E[at], 0))
                + np.where(at == 0, np.sum(np.where(np.arange(E.shape[1]) == 1, pi, 0)),
                np.logaddexp(a + np.sum(np.where(np.arange(A.shape[1]) == 1,
                np.sum(np.where((np.arange(E.shape[1]) == 0)[..., None], A, 0), axis=0), 0)), b
                + np.sum(np.where(np.arange(A.shape[1]) == 1,
                np.sum(np.where((np.arange(E.shape[1]) == 1)[..., None], A, 0), axis=0), 0))))
            ),
        )
    return np.logaddexp(a, b)


def between(first, last, E, A, pi):
    """The state of the elements from one place to before another, one after the other."""
    at = first
    state = lift(E[at], A, pi, at)
    for at in range(first + 1, last):
        state = merge(state, lift(E[at], A, pi, at))
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
    E = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    A = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    pi = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=2)))
    return E, A, pi, cuts


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
    E, A, pi, cuts = example
    one = between(0, cuts[0], E, A, pi)
    two = between(cuts[0], cuts[1], E, A, pi)
    three = between(cuts[1], len(E), E, A, pi)
    whole = between(0, len(E), E, A, pi)
    left, right = merge(merge(one, two), three), merge(one, merge(two, three))

    # merge is associative
    same(left, right)

    # neighbours in any bracketing give the definition
    want = definition(E, A, pi)
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
    return {sympy.expand(sympy.exp(value))}


def test_merge_is_associative_for_all_numbers():
    """SymPy, over the reals, for any three states: both bracketings are the same sums."""

    def state(part):
        return State(*(sympy.Symbol(f"{name}_{part}", real=True) for name in State._fields))

    a, b, c = map(state, "abc")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for name, one, other in zip(State._fields, left, right, strict=True):
        assert sums(sympy.sympify(one)) == sums(sympy.sympify(other)), name
