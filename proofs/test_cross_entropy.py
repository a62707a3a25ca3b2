"""cross_entropy: one pass is enough.

    cross_entropy(x[m, l], label[m]):
        d1 = max(x, l)
        return d1 + log(sum(exp(x - d1), l)) - sum(where(index(l) == label, x, 0), l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    M'    = max(M, x[m,l])
    Z'    = Z·exp(M − M') + exp(x[m,l] − M')  ¹ ²
    x_at' = x_at + (x[m,l] if l = label[m] else 0)  ³

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

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

    M: np.ndarray  # max_l x[m,l]
    Z: np.ndarray  # Σ_l exp(x[m,l] − M)
    x_at: np.ndarray  # Σ_l x[m,l] if l = label[m] else 0


def lift(x, label, l):
    """The state of some elements."""
    M = np.max(x, axis=1, initial=-np.inf)
    Z = np.sum(np.exp(minus(x, finite(M)[..., None])), axis=1)
    x_at = np.sum(np.where(l == label[..., None], x, 0), axis=1)
    return State(M, Z, x_at)


def moved(part, M_new):
    """A part as it is at a new M."""
    return part._replace(Z=times(np.exp(minus(finite(part.M), finite(M_new))), part.Z))


def merge(one, two):
    """The state of two parts together."""
    M = np.maximum(one.M, two.M)
    left, right = moved(one, M), moved(two, M)
    Z = left.Z + right.Z
    x_at = one.x_at + two.x_at
    return State(M, Z, x_at)


def finalize(state):
    """The results of a state."""
    M, Z, x_at = state
    return M + np.log(Z) - x_at


def definition(x, label):
    """The operator as written."""
    m = np.max(x, axis=1)
    return (
        m + np.log(np.sum(np.exp(x - m[..., None]), axis=1))
        - np.sum(np.where(np.arange(x.shape[1]) == label[..., None], x, 0), axis=1)
    )


def of(at, x, label):
    """The state of the elements at these places."""
    return lift(x[:, at], label, 1.0 * np.flatnonzero(at))


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
    x = array(draw, (2, n), ANY, POSITIVE, UNIT, FEW)
    label = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, label, owner


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
    x, label, owner = example
    one = of(owner == 0, x, label)
    two = of(owner == 1, x, label)
    three = of(owner == 2, x, label)
    nothing = of(owner < 0, x, label)
    states = (
        of(owner >= 0, x, label),
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
    want = definition(x, label)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = sympy.symbols("x1 x2", real=True)
    M, M_new = sympy.symbols("M M_new", real=True)
    Z = sum(sympy.exp(x - M) for x in elements)
    differences = {
        "Z": sum(sympy.exp(x - M_new) for x in elements) - (Z * sympy.exp(M - M_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
