"""si_sdr: one pass is enough.

    si_sdr(s[l], e[l]):
        t1 = s - sum(s, l) / size(l)
        t2 = e - sum(e, l) / size(l)
        t3 = sum(t1 * t2, l) / sum(t1 * t1, l) * t1
        return 10.0 * log(sum(t3 ** 2, l) / sum((t2 - t3) ** 2, l)) / log(10.0)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    ss'   = ss + s[l]
    se'   = se + e[l]
    N'    = N + 1
    mu_s' = ss'/N'
    mu_e' = se'/N'
    δ1    = mu_s − mu_s'  ¹
    δ2    = mu_e − mu_e'  ¹
    M11'  = M11 + δ1·δ2·N + (e[l] − mu_e')·(s[l] − mu_s')  ¹ ²
    M02'  = M02 + δ1²·N + (s[l] − mu_s')²  ¹ ²
    M20'  = M20 + δ2²·N + (e[l] − mu_e')²  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    M02 divides and may be 0: the result is then what IEEE division gives
    u divides and may be 0: the result is then what IEEE division gives
    u = M20 − 2·mu_es·M11 + p3²·M02 is a difference of sums: it cancels where they are large against it

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

    ss: np.ndarray  # Σ_l s[l]
    se: np.ndarray  # Σ_l e[l]
    N: np.ndarray  # Σ_l 1
    M11: np.ndarray  # Σ_l (e[l] − mu_e)·(s[l] − mu_s)
    M02: np.ndarray  # Σ_l (s[l] − mu_s)²
    M20: np.ndarray  # Σ_l (e[l] − mu_e)²


def lift(s, e):
    """The state of some elements."""
    ss = np.sum(s)
    se = np.sum(e)
    N = np.float64(len(s))
    mu_s = ss / N
    mu_e = se / N
    de = minus(e, finite(mu_e))
    ds = minus(s, finite(mu_s))
    M11 = np.sum(de * ds)
    M02 = np.sum(ds ** 2)
    M20 = np.sum(de ** 2)
    return State(ss, se, N, M11, M02, M20)


def moved_by_mu_s_mu_e(part, mu_s_new, mu_e_new):
    """A part as it is at a new mu_s and mu_e."""
    mu_s = part.ss / part.N
    mu_e = part.se / part.N
    M11 = part.M11 + times(minus(finite(mu_s), finite(mu_s_new)) * minus(finite(mu_e), finite(mu_e_new)), part.N)
    return part._replace(M11=M11)


def moved_by_mu_s(part, mu_s_new):
    """A part as it is at a new mu_s."""
    mu_s = part.ss / part.N
    return part._replace(M02=part.M02 + times(minus(finite(mu_s), finite(mu_s_new)) ** 2, part.N))


def moved_by_mu_e(part, mu_e_new):
    """A part as it is at a new mu_e."""
    mu_e = part.se / part.N
    return part._replace(M20=part.M20 + times(minus(finite(mu_e), finite(mu_e_new)) ** 2, part.N))


def merge(one, two):
    """The state of two parts together."""
    ss = one.ss + two.ss
    se = one.se + two.se
    N = one.N + two.N
    mu_s = ss / N
    mu_e = se / N
    left, right = moved_by_mu_s_mu_e(one, mu_s, mu_e), moved_by_mu_s_mu_e(two, mu_s, mu_e)
    M11 = left.M11 + right.M11
    left, right = moved_by_mu_s(one, mu_s), moved_by_mu_s(two, mu_s)
    M02 = left.M02 + right.M02
    left, right = moved_by_mu_e(one, mu_e), moved_by_mu_e(two, mu_e)
    M20 = left.M20 + right.M20
    return State(ss, se, N, M11, M02, M20)


def finalize(state):
    """The results of a state."""
    ss, se, N, M11, M02, M20 = state
    mu_es = M11 / M02
    t = mu_es ** 2 * M02
    u = np.maximum(M20 - 2 * mu_es * M11 + t, 0)
    return 10 * np.log(t / u) / np.log(10)


def definition(s, e):
    """The operator as written."""
    ds = s - np.sum(s) / len(s)
    de = e - np.sum(e) / len(s)
    v = np.sum(ds * de) / np.sum(ds * ds) * ds
    return 10 * np.log(np.sum(v ** 2) / np.sum((de - v) ** 2)) / np.log(10)


def of(at, s, e):
    """The state of the elements at these places."""
    return lift(s[at], e[at])


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
    s = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    e = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return s, e, owner


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
    s, e, owner = example
    one = of(owner == 0, s, e)
    two = of(owner == 1, s, e)
    three = of(owner == 2, s, e)
    nothing = of(owner < 0, s, e)
    states = (
        of(owner >= 0, s, e),
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
    want = definition(s, e)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("s1 e1", real=True), sympy.symbols("s2 e2", real=True)]
    mu_s_new, mu_e_new = sympy.symbols("mu_s_new mu_e_new", real=True)
    se = sum(e for s, e in elements)
    N = sum(1 for s, e in elements)
    mu_e = se / N
    ss = sum(s for s, e in elements)
    mu_s = ss / N
    M11 = sum((e - mu_e) * (s - mu_s) for s, e in elements)
    M02 = sum((s - mu_s) ** 2 for s, e in elements)
    M20 = sum((e - mu_e) ** 2 for s, e in elements)
    differences = {
        "M11": (
            sum((e - mu_e_new) * (s - mu_s_new) for s, e in elements)
            - (M11 + N * (mu_s - mu_s_new) * (mu_e - mu_e_new))
        ),
        "M02": sum((s - mu_s_new) ** 2 for s, e in elements) - (M02 + N * (mu_s - mu_s_new) ** 2),
        "M20": sum((e - mu_e_new) ** 2 for s, e in elements) - (M20 + N * (mu_e - mu_e_new) ** 2),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
