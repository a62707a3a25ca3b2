"""kb_bmm_instancenorm_residual: one pass is enough.

    kb_bmm_instancenorm_residual(X[m, k], W[k, l], y[m, l]):
        d1 = sum(X * W, k)
        t1 = d1 - sum(d1, l) / size(l)
        return (t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) + y) * y

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = Σ_k X[m,k]·W[k,l]

Update by one element:

    t'  = t + x
    N'  = N + 1
    mu' = t'/N'
    δ   = mu − mu'  ¹
    M2' = M2 + δ²·N + (x − mu')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, cancel, recentre_difference.

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

    t: np.ndarray  # Σ_l Σ_k X[m,k]·W[k,l]
    N: np.ndarray  # Σ_l 1
    M2: np.ndarray  # Σ_l (Σ_k X[m,k]·W[k,l] − mu)²


def lift(X, W):
    """The state of some elements."""
    S = np.sum(X[..., None] * W, axis=1)
    t = np.sum(S, axis=1)
    N = np.float64(W.shape[1])
    mu = t / N
    M2 = np.sum(minus(S, finite(mu)[..., None]) ** 2, axis=1)
    return State(t, N, M2)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.t / part.N
    return part._replace(M2=part.M2 + times(minus(finite(mu), finite(mu_new)) ** 2, part.N))


def merge(one, two):
    """The state of two parts together."""
    t = one.t + two.t
    N = one.N + two.N
    mu = t / N
    left, right = moved(one, mu), moved(two, mu)
    M2 = left.M2 + right.M2
    return State(t, N, M2)


def finalize(state, X, W, y):
    """The results of a state; they keep the axis, so the elements are read again."""
    t, N, M2 = state
    return y * ((np.sum(X[..., None] * W, axis=1) - (t / N)[..., None]) / np.sqrt(M2 / N + 1e-05)[..., None] + y)


def definition(X, W, y):
    """The operator as written."""
    S = np.sum(X[..., None] * W, axis=1)
    S_XW = S - (np.sum(S, axis=1) / W.shape[1])[..., None]
    return (S_XW / np.sqrt(np.sum(S_XW * S_XW, axis=1) / W.shape[1] + 1e-05)[..., None] + y) * y


def of(at, X, W):
    """The state of the elements at these places."""
    return lift(X, W[:, at])


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
    X = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    W = array(draw, (2, n), ANY, POSITIVE, UNIT, FEW)
    y = array(draw, (2, n), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return X, W, y, owner


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
    X, W, y, owner = example
    one = of(owner == 0, X, W)
    two = of(owner == 1, X, W)
    three = of(owner == 2, X, W)
    nothing = of(owner < 0, X, W)
    states = (
        of(owner >= 0, X, W),
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
    want = definition(X, W, y)
    around = [finalize(each, X, W, y) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, X, W, y), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = sympy.symbols("S1 S2", real=True)
    mu_new = sympy.symbols("mu_new", real=True)
    t = sum(S for S in elements)
    N = sum(1 for S in elements)
    mu = t / N
    M2 = sum((S - mu) ** 2 for S in elements)
    differences = {
        "M2": sum((S - mu_new) ** 2 for S in elements) - (M2 + N * (mu - mu_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
