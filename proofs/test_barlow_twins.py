"""barlow_twins: one pass is enough.

    barlow_twins(A[l, i], C[l, j]):
        t1 = A - sum(A, l) / size(l)
        t2 = C - sum(C, l) / size(l)
        t3 = sum(t1 / sqrt(sum(t1 ** 2, l) / size(l)) * (t2 / sqrt(sum(t2 ** 2, l) / size(l))), l) / size(l)
        return sum(sum(where(index(i) == index(j), (t3 - 1.0) ** 2, 0.005 * t3 ** 2), j), i)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    sA'   = sA + A[l,i]
    N'    = N + 1
    mu_A' = sA'/N'
    δ1    = mu_A − mu_A'  ¹
    M20'  = M20 + δ1²·N + (A[l,i] − mu_A')²  ¹ ²
    sC'   = sC + C[l,j]
    mu_C' = sC'/N'
    δ2    = mu_C − mu_C'  ¹
    M02'  = M02 + δ2²·N + (C[l,j] − mu_C')²  ¹ ²
    M11'  = M11 + δ1·δ2·N + (A[l,i] − mu_A')·(C[l,j] − mu_C')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    sigma_A divides and may be 0: the result is then what IEEE division gives
    sigma_C divides and may be 0: the result is then what IEEE division gives

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

    sA: np.ndarray  # Σ_l A[l,i]
    N: np.ndarray  # Σ_l 1
    M20: np.ndarray  # Σ_l (A[l,i] − mu_A)²
    sC: np.ndarray  # Σ_l C[l,j]
    M02: np.ndarray  # Σ_l (C[l,j] − mu_C)²
    M11: np.ndarray  # Σ_l (A[l,i] − mu_A)·(C[l,j] − mu_C)


def lift(A, C):
    """The state of some elements."""
    sA = np.sum(A, axis=0)
    N = np.float64(len(A))
    mu_A = sA / N
    dA = minus(A, finite(mu_A))
    M20 = np.sum(dA ** 2, axis=0)
    sC = np.sum(C, axis=0)
    mu_C = sC / N
    dC = minus(C, finite(mu_C))
    M02 = np.sum(dC ** 2, axis=0)
    M11 = np.sum(dA[..., None] * dC[:, None], axis=0)
    return State(sA, N, M20, sC, M02, M11)


def moved_by_mu_A(part, mu_A_new):
    """A part as it is at a new mu_A."""
    mu_A = part.sA / part.N
    return part._replace(M20=part.M20 + times(minus(finite(mu_A), finite(mu_A_new)) ** 2, part.N))


def moved_by_mu_C(part, mu_C_new):
    """A part as it is at a new mu_C."""
    mu_C = part.sC / part.N
    return part._replace(M02=part.M02 + times(minus(finite(mu_C), finite(mu_C_new)) ** 2, part.N))


def moved_by_mu_A_mu_C(part, mu_A_new, mu_C_new):
    """A part as it is at a new mu_A and mu_C."""
    mu_A = part.sA / part.N
    mu_C = part.sC / part.N
    M11 = (
        part.M11 + times(minus(finite(mu_A), finite(mu_A_new))[..., None] * minus(finite(mu_C), finite(mu_C_new)),
        part.N)
    )
    return part._replace(M11=M11)


def merge(one, two):
    """The state of two parts together."""
    sA = one.sA + two.sA
    N = one.N + two.N
    mu_A = sA / N
    left, right = moved_by_mu_A(one, mu_A), moved_by_mu_A(two, mu_A)
    M20 = left.M20 + right.M20
    sC = one.sC + two.sC
    mu_C = sC / N
    left, right = moved_by_mu_C(one, mu_C), moved_by_mu_C(two, mu_C)
    M02 = left.M02 + right.M02
    left, right = moved_by_mu_A_mu_C(one, mu_A, mu_C), moved_by_mu_A_mu_C(two, mu_A, mu_C)
    M11 = left.M11 + right.M11
    return State(sA, N, M20, sC, M02, M11)


def finalize(state, A, C):
    """The results of a state."""
    sA, N, M20, sC, M02, M11 = state
    sigma_A = np.sqrt(M20 / N)
    sigma_C = np.sqrt(M02 / N)
    t = M11 / (sigma_A[..., None] * sigma_C)
    return np.sum(
        np.sum(
            np.where(
                np.arange(A.shape[1])[..., None] == np.arange(C.shape[1]),
                (t / N - 1) ** 2,
                0.005 * (t / N) ** 2,
            ),
            axis=1,
        ),
    )


def definition(A, C):
    """The operator as written."""
    dA = A - np.sum(A, axis=0) / len(A)
    dC = C - np.sum(C, axis=0) / len(A)
    mu = (
        np.sum((dA / np.sqrt(np.sum(dA ** 2, axis=0) / len(A)))[..., None]
        * (dC / np.sqrt(np.sum(dC ** 2, axis=0) / len(A)))[:, None], axis=0) / len(A)
    )
    return np.sum(
        np.sum(
            np.where(np.arange(A.shape[1])[..., None] == np.arange(C.shape[1]), (mu - 1) ** 2, 0.005 * mu ** 2),
            axis=1,
        ),
    )


def of(at, A, C):
    """The state of the elements at these places."""
    return lift(A[at], C[at])


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
    A = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    C = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return A, C, owner


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
    A, C, owner = example
    one = of(owner == 0, A, C)
    two = of(owner == 1, A, C)
    three = of(owner == 2, A, C)
    nothing = of(owner < 0, A, C)
    states = (
        of(owner >= 0, A, C),
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
    want = definition(A, C)
    around = [finalize(each, A, C) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, A, C), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("A1 C1", real=True), sympy.symbols("A2 C2", real=True)]
    mu_A_new, mu_C_new = sympy.symbols("mu_A_new mu_C_new", real=True)
    sA = sum(A for A, C in elements)
    N = sum(1 for A, C in elements)
    mu_A = sA / N
    M20 = sum((A - mu_A) ** 2 for A, C in elements)
    sC = sum(C for A, C in elements)
    mu_C = sC / N
    M02 = sum((C - mu_C) ** 2 for A, C in elements)
    M11 = sum((A - mu_A) * (C - mu_C) for A, C in elements)
    differences = {
        "M20": sum((A - mu_A_new) ** 2 for A, C in elements) - (M20 + N * (mu_A - mu_A_new) ** 2),
        "M02": sum((C - mu_C_new) ** 2 for A, C in elements) - (M02 + N * (mu_C - mu_C_new) ** 2),
        "M11": (
            sum((A - mu_A_new) * (C - mu_C_new) for A, C in elements)
            - (M11 + N * (mu_A - mu_A_new) * (mu_C - mu_C_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
