"""block_sparse_attention: one pass is enough.

    block_sparse_attention(Q[m, k], K[l, k], V[l, j], keep[r, b]; scale=1.0):
        t1 = sum(Q * K, k) * scale
        t2 = sum(sum(where((index(m) // 2 == index(r)) & (index(l) // 16 == index(b)), keep, 0), r), b) > 0
        t3 = exp(t1 - max(t1, l, where=t2))
        return sum(t3 * V, l, where=t2) / sum(t3, l, where=t2)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x1 = scale·Σ_k Q[m,k]·K[l,k]
    x2 = Σ_b Σ_r (keep[r,b] if m // 2 = r ∧ l // 16 = b else 0)

Update by one element:

    M' = max(M, x1)   element where x2 > 0
    o' = o·exp(M − M') + V[l,j]·exp(x1 − M')   element where x2 > 0  ¹ ²
    Z' = Z·exp(M − M') + exp(x1 − M')   element where x2 > 0  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    Z divides and may be 0: the result is then what IEEE division gives

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

    # max_l scale·Σ_k Q[m,k]·K[l,k] where Σ_b Σ_r (keep[r,b] if m // 2 = r ∧ l // 16 = b else 0) > 0
    M: np.ndarray
    # Σ_l V[l,j]·exp(scale·Σ_k Q[m,k]·K[l,k] − M) where Σ_b Σ_r (keep[r,b] if m // 2 = r ∧ l // 16 = b else 0) > 0
    o: np.ndarray
    # Σ_l exp(scale·Σ_k Q[m,k]·K[l,k] − M) where Σ_b Σ_r (keep[r,b] if m // 2 = r ∧ l // 16 = b else 0) > 0
    Z: np.ndarray


def lift(Q, K, V, keep, scale, l):
    """The state of some elements."""
    S = scale * np.sum(Q[:, None] * K, axis=2)
    S_keep = (
        np.sum(np.sum(np.where(((np.arange(len(Q)) // 2)[..., None] == np.arange(len(keep)))[:, None, :, None]
        & ((l // 16)[..., None] == np.arange(keep.shape[1]))[:, None], keep, 0), axis=2), axis=2) > 0
    )
    M = np.max(np.where(S_keep, S, -np.inf), axis=1, initial=-np.inf)
    e = np.exp(minus(S, finite(M)[..., None]))
    o = np.sum(np.where(S_keep[..., None], V * e[..., None], 0), axis=1)
    Z = np.sum(np.where(S_keep, e, 0), axis=1)
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


def definition(Q, K, V, keep, scale):
    """The operator as written."""
    S = np.sum(Q[:, None] * K, axis=2) * scale
    S_keep = (
        np.sum(np.sum(np.where(((np.arange(len(Q)) // 2)[..., None] == np.arange(len(keep)))[:, None, :, None]
        & ((np.arange(len(K)) // 16)[..., None] == np.arange(keep.shape[1]))[:, None], keep, 0), axis=2), axis=2) > 0
    )
    e = np.exp(S - np.max(np.where(S_keep, S, -np.inf), axis=1)[..., None])
    return (
        np.sum(np.where(S_keep[..., None], e[..., None] * V, 0), axis=1)
        / np.sum(np.where(S_keep, e, 0), axis=1)[..., None]
    )


def of(at, Q, K, V, keep, scale):
    """The state of the elements at these places."""
    return lift(Q, K[at], V[at], keep, scale, 1.0 * np.flatnonzero(at))


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
    Q = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    K = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    V = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    keep = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    scale = draw(st.sampled_from([1.0, 2, 0.5, -1]))
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return Q, K, V, keep, scale, owner


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
    Q, K, V, keep, scale, owner = example
    one = of(owner == 0, Q, K, V, keep, scale)
    two = of(owner == 1, Q, K, V, keep, scale)
    three = of(owner == 2, Q, K, V, keep, scale)
    nothing = of(owner < 0, Q, K, V, keep, scale)
    states = (
        of(owner >= 0, Q, K, V, keep, scale),
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
    want = definition(Q, K, V, keep, scale)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("V1 S1 taking1", real=True), sympy.symbols("V2 S2 taking2", real=True)]
    M, M_new, scale = sympy.symbols("M M_new scale", real=True)
    o = sum(taking * V * sympy.exp(scale * S - M) for V, S, taking in elements)
    Z = sum(taking * sympy.exp(scale * S - M) for V, S, taking in elements)
    differences = {
        "o": sum(taking * V * sympy.exp(scale * S - M_new) for V, S, taking in elements) - (o * sympy.exp(M - M_new)),
        "Z": sum(taking * sympy.exp(scale * S - M_new) for V, S, taking in elements) - (Z * sympy.exp(M - M_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
