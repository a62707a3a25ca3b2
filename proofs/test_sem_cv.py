"""sem_cv: one pass is enough.

    sem_cv(x[l]):
        t1 = sum(x, l) / size(l)
        d1 = sum((x - t1) ** 2, l)
        t2 = d1 / size(l)
        return sqrt(d1 / (size(l) - 1) / size(l)), t2 / t1, sqrt(t2) / t1

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    sx' = sx + x[l]
    N'  = N + 1
    mu' = sx'/N'
    δ   = mu − mu'  ¹
    M2' = M2 + δ²·N + (x[l] − mu')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sx/N_l divides and may be 0: the result is then what IEEE division gives

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

    sx: np.ndarray  # Σ_l x[l]
    N: np.ndarray  # Σ_l 1
    M2: np.ndarray  # Σ_l (x[l] − mu)²


def lift(x):
    """The state of some elements."""
    sx = np.sum(x)
    N = np.float64(len(x))
    mu = sx / N
    M2 = np.sum(minus(x, finite(mu)) ** 2)
    return State(sx, N, M2)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.sx / part.N
    return part._replace(M2=part.M2 + times(minus(finite(mu), finite(mu_new)) ** 2, part.N))


def merge(one, two):
    """The state of two parts together."""
    sx = one.sx + two.sx
    N = one.N + two.N
    mu = sx / N
    left, right = moved(one, mu), moved(two, mu)
    M2 = left.M2 + right.M2
    return State(sx, N, M2)


def finalize(state):
    """The results of a state."""
    sx, N, M2 = state
    return np.sqrt(M2 / (N * (N - 1))), M2 * N / (N * sx), N * np.sqrt(M2 / N) / sx


def definition(x):
    """The operator as written."""
    mu_x = np.sum(x) / len(x)
    M2_x = np.sum((x - mu_x) ** 2)
    t = M2_x / len(x)
    return np.sqrt(M2_x / (len(x) - 1) / len(x)), t / mu_x, np.sqrt(t) / mu_x


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
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = sympy.symbols("x1 x2", real=True)
    mu_new = sympy.symbols("mu_new", real=True)
    sx = sum(x for x in elements)
    N = sum(1 for x in elements)
    mu = sx / N
    M2 = sum((x - mu) ** 2 for x in elements)
    differences = {
        "M2": sum((x - mu_new) ** 2 for x in elements) - (M2 + N * (mu - mu_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
