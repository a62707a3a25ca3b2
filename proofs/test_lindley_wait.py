"""lindley_wait: one pass is enough.

    lindley_wait(x[l]):
        return scan(lambda w: maximum(0, w + x), l, 0.0), max(scan(lambda w: maximum(0, w + x), l, 0.0, after), l)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 5 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Update by one element:

    sx'  = sx + x[l]
    h'   = max(x[l] + h, 0)
    t'   = max(max(t, 0), x[l] + u)
    h_x' = max(h_x, x[l] + sx)
    u'   = max(0, x[l] + u)

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant.

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


class State(NamedTuple):
    """What is kept of a part of the elements."""

    sx: np.ndarray  # Σ_l x[l]
    h: np.ndarray  # ∘_l 0
    t: np.ndarray  # ∘_l 0
    h_x: np.ndarray  # ∘_l x[l]
    u: np.ndarray  # ∘_l 0


def lift(x):
    """The state of one element, whose arrays have no axis l any more."""
    sx = x
    h = np.float64(0)
    t = np.float64(0)
    h_x = x
    u = np.float64(0)
    return State(sx, h, t, h_x, u)


def merge(one, two):
    """The state of two parts together."""
    sx = one.sx + two.sx
    h = larger(two.sx + one.h, two.h)
    t = larger(larger(one.t, two.t), two.h_x + one.u)
    h_x = larger(one.h_x, two.h_x + one.sx)
    u = larger(two.u, two.sx + one.u)
    return State(sx, h, t, h_x, u)


def finalize(state):
    """The results of a state."""
    sx, h, t, h_x, u = state
    v = np.maximum(sx, h)
    r = np.maximum(t, h_x)
    return v, r


def definition(x):
    """The operator as written."""
    w = np.float64(0)
    w_seen = []
    for at in range(len(x)):
        w = np.maximum(0, w + x[at])
        w_seen.append(w)
    ws = np.stack(np.broadcast_arrays(*w_seen), axis=0)
    return w, np.max(ws)


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
