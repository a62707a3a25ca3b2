"""softmax_then_layernorm: one pass is enough.

    softmax_then_layernorm(x[l]):
        t1 = exp(x - max(x, l))
        t2 = t1 / sum(t1, l)
        t3 = t2 - sum(t2, l) / size(l)
        return t3 / sqrt(sum(t3 * t3, l) / size(l) + 1e-12)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 4 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    m'   = max(m, x[l])
    Z_x' = Z_x·exp(m − m') + exp(x[l] − m')  ¹ ²
    Z'   = Z·exp(m − m')² + exp(x[l] − m')²  ¹ ²
    N'   = N + 1

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    u = Z/s² − 2·t·Z_x/Z_x + p1²·N is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, recentre_difference, exp_of_sum.

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

    m: np.ndarray  # max_l x[l]
    Z_x: np.ndarray  # Σ_l exp(x[l] − m)
    Z: np.ndarray  # Σ_l exp(x[l] − m)²
    N: np.ndarray  # Σ_l 1


def lift(x):
    """The state of some elements."""
    m = np.max(x, initial=-np.inf)
    e = np.exp(minus(x, finite(m)))
    Z_x = np.sum(e)
    Z = np.sum(e ** 2)
    N = np.float64(len(x))
    return State(m, Z_x, Z, N)


def moved(part, m_new):
    """A part as it is at a new m."""
    e = np.exp(minus(finite(part.m), finite(m_new)))
    Z_x = times(e, part.Z_x)
    Z = times(e ** 2, part.Z)
    return part._replace(Z_x=Z_x, Z=Z)


def merge(one, two):
    """The state of two parts together."""
    m = np.maximum(one.m, two.m)
    left, right = moved(one, m), moved(two, m)
    Z_x = left.Z_x + right.Z_x
    Z = left.Z + right.Z
    N = one.N + two.N
    return State(m, Z_x, Z, N)


def finalize(state, x):
    """The results of a state; they keep the axis, so the elements are read again."""
    m, Z_x, Z, N = state
    mu = Z_x / Z_x
    t = mu / N
    u = np.maximum(Z / Z_x ** 2 - 2 * t * Z_x / Z_x + t ** 2 * N, 0)
    return (np.exp(x - m) / Z_x - t) / np.sqrt(u / N + 1e-12)


def definition(x):
    """The operator as written."""
    e = np.exp(x - np.max(x))
    p = e / np.sum(e)
    dx = p - np.sum(p) / len(x)
    return dx / np.sqrt(np.sum(dx * dx) / len(x) + 1e-12)


def of(at, x):
    """The state of the elements at these places."""
    return lift(x[at])


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
    x = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, owner


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
    x, owner = example
    one = of(owner == 0, x)
    two = of(owner == 1, x)
    three = of(owner == 2, x)
    nothing = of(owner < 0, x)
    states = (
        of(owner >= 0, x),
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
    want = definition(x)
    around = [finalize(each, x) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, x), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = sympy.symbols("x1 x2", real=True)
    m, m_new = sympy.symbols("m m_new", real=True)
    Z_x = sum(sympy.exp(x - m) for x in elements)
    Z = sum(sympy.exp(x - m) ** 2 for x in elements)
    differences = {
        "Z_x": sum(sympy.exp(x - m_new) for x in elements) - (Z_x * sympy.exp(m - m_new)),
        "Z": sum(sympy.exp(x - m_new) ** 2 for x in elements) - (Z * sympy.exp(m - m_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
