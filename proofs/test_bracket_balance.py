"""bracket_balance: one pass is enough.

    bracket_balance(x[l]):
        t1 = where(x == 1, 1, where(x == 2, -1, 0))
        d1 = scan(lambda c1: c1 + t1, l, 0.0, after)
        return (min(d1, l) >= 0) & (sum(t1, l) == 0), maximum(max(d1, l), 0)

Theorem. Lift the elements along the axis l to their states, and merge neighbours in any bracketing: finalize gives
what the definition gives (one pass over l, 3 words of state per row, ordered merge). merge is associative, and keeps
the order of its parts.

Elements:

    x = 1 if x[l] = 1 else −1 if x[l] = 2 else 0

Update by one element:

    h_x' = min(h_x, x + t)  ¹
    t'   = t + x  ¹
    h'   = max(h, x + t)  ¹

Guards:

    ¹ an element or state that does not take part is left out, not multiplied by 0

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


def smaller(a, b):
    """The smaller of two numbers, also of SymPy's."""
    return sympy.Min(a, b) if isinstance(a + b, sympy.Basic) else np.minimum(a, b)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    h_x: np.ndarray  # ∘_l 1 if x[l] = 1 else −1 if x[l] = 2 else 0
    t: np.ndarray  # Σ_l 1 if x[l] = 1 else −1 if x[l] = 2 else 0
    h: np.ndarray  # ∘_l 1 if x[l] = 1 else −1 if x[l] = 2 else 0


def lift(x):
    """The state of one element, whose arrays have no axis l any more."""
    h_x = np.where(x == 1, 1, np.where(x == 2, -1, 0))
    t = np.where(x == 1, 1, np.where(x == 2, -1, 0))
    h = np.where(x == 1, 1, np.where(x == 2, -1, 0))
    return State(h_x, t, h)


def merge(one, two):
    """The state of two parts together."""
    h_x = smaller(one.h_x, two.h_x + one.t)
    t = one.t + two.t
    h = larger(one.h, two.h + one.t)
    return State(h_x, t, h)


def finalize(state):
    """The results of a state."""
    h_x, t, h = state
    return (h_x >= 0) & (t == 0), np.maximum(h, 0)


def definition(x):
    """The operator as written."""
    c1 = np.float64(0)
    c1_seen = []
    for at in range(len(x)):
        c1 = c1 + np.where(x[at] == 1, 1, np.where(x[at] == 2, -1, 0))
        c1_seen.append(c1)
    c1s = np.stack(np.broadcast_arrays(*c1_seen), axis=0)
    return (
        (np.min(c1s) >= 0) & (np.sum(np.where(x == 1, 1, np.where(x == 2, -1, 0))) == 0),
        np.maximum(np.max(c1s), 0),
    )


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
