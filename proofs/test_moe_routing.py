"""moe_routing: one pass is enough.

    moe_routing(X[m, d], W[d, l]; k=2):
        d1 = sum(X * W, d)
        t1 = exp(d1 - max(d1, l))
        t2 = t1 / sum(t1, l)
        return topk(t2, l, k), argtopk(t2, l, k)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = Σ_d X[m,d]·W[d,l]

Update by one element:

    M'   = max(M, x)
    Z'   = Z·exp(M − M') + exp(x − M')  ¹ ²
    pos' = best_positions(k, pos, l)

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    pos is found among elements without their pivots: where these are not finite, NumPy's is the position of the first
        NaN

Laws: multiply_commutes, multiply_associates, multiply_one, difference, sum_pulls_invariant, sum_of_invariant,
recentre_difference, exp_of_sum, topk_shifts, topk_scales_by_nonnegative, topk_of_exp, argtopk_ignores_shift,
argtopk_ignores_positive_scale, argtopk_ignores_exp.

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


def best(values, positions, k, axis):
    """The k largest values along an axis and their positions, the first of equal ones first; then -inf and -1."""
    values, positions = np.broadcast_arrays(values, positions)
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    values, positions = np.pad(values, room, constant_values=-np.inf), np.pad(positions, room, constant_values=-1)
    order = np.lexsort((positions, -values, positions < 0), axis=axis)
    order = np.take(order, range(k), axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(positions, order, axis)


def largest(values, k, axis):
    """The k largest values along an axis, largest first; -inf if there are fewer."""
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    return np.take(-np.sort(-np.pad(values, room, constant_values=-np.inf), axis=axis), range(k), axis=axis)


def places(values, k, axis):
    """The positions of the k largest values along an axis, largest first, the first of equal ones first."""
    return np.take(np.argsort(-values, axis=axis, kind="stable"), range(k), axis=axis)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    M: np.ndarray  # max_l Σ_d X[m,d]·W[d,l]
    Z: np.ndarray  # Σ_l exp(Σ_d X[m,d]·W[d,l] − M)
    pos: np.ndarray  # argtopk_l^k Σ_d X[m,d]·W[d,l]
    pos_value: np.ndarray  # the values there


def lift(X, W, k, l):
    """The state of some elements."""
    S = np.sum(X[..., None] * W, axis=1)
    M = np.max(S, axis=1, initial=-np.inf)
    Z = np.sum(np.exp(minus(S, finite(M)[..., None])), axis=1)
    pos_value, pos = best(S, l, k, axis=1)
    return State(M, Z, pos, pos_value)


def moved(part, M_new):
    """A part as it is at a new M."""
    return part._replace(Z=times(np.exp(minus(finite(part.M), finite(M_new))), part.Z))


def merge(one, two, k):
    """The state of two parts together."""
    M = np.maximum(one.M, two.M)
    left, right = moved(one, M), moved(two, M)
    Z = left.Z + right.Z
    pos_value, pos = best(
        np.concatenate([one.pos_value, two.pos_value], axis=1),
        np.concatenate([one.pos, two.pos], axis=1),
        k,
        axis=1,
    )
    return State(M, Z, pos, pos_value)


def finalize(state):
    """The results of a state."""
    M, Z, pos, pos_value = state
    t = np.exp(pos_value - M[..., None]) / Z[..., None]
    return t, pos


def definition(X, W, k):
    """The operator as written."""
    S = np.sum(X[..., None] * W, axis=1)
    e = np.exp(S - np.max(S, axis=1)[..., None])
    p = e / np.sum(e, axis=1)[..., None]
    return largest(p, k, axis=1), places(p, k, axis=1)


def of(at, X, W, k):
    """The state of the elements at these places."""
    return lift(X, W[:, at], k, 1.0 * np.flatnonzero(at))


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
    n = draw(st.integers(2, 6))
    X = array(draw, (2, 2), ANY, POSITIVE, UNIT, FEW)
    W = array(draw, (2, n), ANY, POSITIVE, UNIT, FEW)
    k = draw(st.sampled_from([2]))
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return X, W, k, owner


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
    X, W, k, owner = example
    one = of(owner == 0, X, W, k)
    two = of(owner == 1, X, W, k)
    three = of(owner == 2, X, W, k)
    nothing = of(owner < 0, X, W, k)
    states = (
        of(owner >= 0, X, W, k),
        merge(merge(one, two, k), three, k),
        merge(one, merge(two, three, k), k),
        merge(merge(three, one, k), two, k),
    )

    # merge is associative and commutative, and the state of no elements is its identity
    same(states[1], states[2])
    same(merge(one, two, k), merge(two, one, k))
    same(merge(states[0], nothing, k), states[0])
    same(merge(nothing, states[0], k), states[0])

    # any split in any bracketing gives the definition
    want = definition(X, W, k)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = sympy.symbols("S1 S2", real=True)
    M, M_new = sympy.symbols("M M_new", real=True)
    Z = sum(sympy.exp(S - M) for S in elements)
    differences = {
        "Z": sum(sympy.exp(S - M_new) for S in elements) - (Z * sympy.exp(M - M_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
