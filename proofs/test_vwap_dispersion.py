"""vwap_dispersion: one pass is enough.

    vwap_dispersion(p[l], v[l]):
        d1 = sum(v, l)
        t1 = sum(p * v, l) / d1
        return t1, sqrt(sum(v * (p - t1) ** 2, l) / d1)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    spv' = spv + p[l]·v[l]
    sv'  = sv + v[l]
    mu'  = spv'/sv'
    δ    = mu − mu'  ¹
    M2v' = M2v + δ²·sv + v[l]·(p[l] − mu')²  ¹ ² ³

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sv divides and may be 0: the result is then what IEEE division gives

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

    spv: np.ndarray  # Σ_l p[l]·v[l]
    sv: np.ndarray  # Σ_l v[l]
    M2v: np.ndarray  # Σ_l v[l]·(p[l] − mu)²


def lift(p, v):
    """The state of some elements."""
    spv = np.sum(p * v)
    sv = np.sum(v)
    mu = spv / sv
    M2v = np.sum(minus(p, finite(mu)) ** 2 * v)
    return State(spv, sv, M2v)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.spv / part.sv
    d = minus(finite(mu), finite(mu_new))
    M2v = part.M2v + times(2 * d, np.where(mu == finite(mu), 0, part.spv)) + times(d ** 2, part.sv)
    return part._replace(M2v=M2v)


def merge(one, two):
    """The state of two parts together."""
    spv = one.spv + two.spv
    sv = one.sv + two.sv
    mu = spv / sv
    left, right = moved(one, mu), moved(two, mu)
    M2v = left.M2v + right.M2v
    return State(spv, sv, M2v)


def finalize(state):
    """The results of a state."""
    spv, sv, M2v = state
    return spv / sv, np.sqrt(M2v / sv)


def definition(p, v):
    """The operator as written."""
    mu_pv = np.sum(p * v) / np.sum(v)
    return mu_pv, np.sqrt(np.sum(v * (p - mu_pv) ** 2) / np.sum(v))


def of(at, p, v):
    """The state of the elements at these places."""
    return lift(p[at], v[at])


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
    p = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    v = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return p, v, owner


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
    p, v, owner = example
    one = of(owner == 0, p, v)
    two = of(owner == 1, p, v)
    three = of(owner == 2, p, v)
    nothing = of(owner < 0, p, v)
    states = (
        of(owner >= 0, p, v),
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
    want = definition(p, v)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("p1 v1", real=True), sympy.symbols("p2 v2", real=True)]
    mu_new = sympy.symbols("mu_new", real=True)
    spv = sum(p * v for p, v in elements)
    sv = sum(v for p, v in elements)
    mu = spv / sv
    M2v = sum(v * (p - mu) ** 2 for p, v in elements)
    differences = {
        "M2v": sum(v * (p - mu_new) ** 2 for p, v in elements) - (M2v + sv * (mu - mu_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
