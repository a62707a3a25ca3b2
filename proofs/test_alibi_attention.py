"""alibi_attention: one pass is enough.

    alibi_attention(Q[h, m, k], K[l, k], V[l, j], slope[h]; scale=1.0):
        t1 = sum(Q * K, k) * scale + slope * (index(l) - index(m))
        t2 = exp(t1 - max(t1, l))
        return sum(t2 * V, l) / sum(t2, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = scale·Σ_k Q[h,m,k]·K[l,k] + slope[h]·(l − m)

Update by one element:

    M' = max(M, x)
    o' = o·exp(M − M') + V[l,j]·exp(x − M')  ¹ ²
    Z' = Z·exp(M − M') + exp(x − M')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum.

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

    M: np.ndarray  # max_l scale·Σ_k Q[h,m,k]·K[l,k] + slope[h]·(l − m)
    o: np.ndarray  # Σ_l V[l,j]·exp(scale·Σ_k Q[h,m,k]·K[l,k] + slope[h]·(l − m) − M)
    Z: np.ndarray  # Σ_l exp(scale·Σ_k Q[h,m,k]·K[l,k] + slope[h]·(l − m) − M)


def lift(Q, K, V, slope, scale, l):
    """The state of some elements."""
    S = scale * np.sum(Q[:, :, None] * K, axis=3) + slope[..., None, None] * (l - np.arange(Q.shape[1])[..., None])
    M = np.max(S, axis=2, initial=-np.inf)
    e = np.exp(minus(S, finite(M)[..., None]))
    o = np.sum(V * e[..., None], axis=2)
    Z = np.sum(e, axis=2)
    return State(M, o, Z)


def moved(part, M_new):
    """A part as it is at a new M."""
    e = np.exp(minus(finite(part.M), finite(M_new)))
    o = times(e[..., None], part.o)
    Z = times(e, part.Z)
    return part._replace(o=o, Z=Z)


def merge(one, two):
    """The state of two parts together."""
    M = np.maximum(one.M, two.M)
    left, right = moved(one, M), moved(two, M)
    o = left.o + right.o
    Z = left.Z + right.Z
    return State(M, o, Z)


def finalize(state):
    """The results of a state."""
    M, o, Z = state
    return o / Z[..., None]


def definition(Q, K, V, slope, scale):
    """The operator as written."""
    S = (
        np.sum(Q[:, :, None] * K, axis=3) * scale + slope[..., None, None]
        * (np.arange(len(K)) - np.arange(Q.shape[1])[..., None])
    )
    e = np.exp(S - np.max(S, axis=2)[..., None])
    return np.sum(e[..., None] * V, axis=2) / np.sum(e, axis=2)[..., None]


def of(at, Q, K, V, slope, scale):
    """The state of the elements at these places."""
    return lift(Q, K[at], V[at], slope, scale, 1.0 * np.flatnonzero(at))


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
    Q = array(draw, (2, 2, 2), ANY, POSITIVE, UNIT, FEW)
    K = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    V = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    slope = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    scale = draw(st.sampled_from([1.0, 2, 0.5, -1]))
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return Q, K, V, slope, scale, owner


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
    Q, K, V, slope, scale, owner = example
    one = of(owner == 0, Q, K, V, slope, scale)
    two = of(owner == 1, Q, K, V, slope, scale)
    three = of(owner == 2, Q, K, V, slope, scale)
    nothing = of(owner < 0, Q, K, V, slope, scale)
    states = (
        of(owner >= 0, Q, K, V, slope, scale),
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
    want = definition(Q, K, V, slope, scale)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("V1 S1 g1", real=True), sympy.symbols("V2 S2 g2", real=True)]
    M, M_new, scale, slope, t = sympy.symbols("M M_new scale slope t", real=True)
    o = sum(V * sympy.exp(scale * S + slope * (g - t) - M) for V, S, g in elements)
    Z = sum(sympy.exp(scale * S + slope * (g - t) - M) for V, S, g in elements)
    differences = {
        "o": (
            sum(V * sympy.exp(scale * S + slope * (g - t) - M_new) for V, S, g in elements)
            - (o * sympy.exp(M - M_new))
        ),
        "Z": sum(sympy.exp(scale * S + slope * (g - t) - M_new) for V, S, g in elements) - (Z * sympy.exp(M - M_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
