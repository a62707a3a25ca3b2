"""kabsch_rmsd: one pass is enough.

    kabsch_rmsd(X[l, plane], Y[l, plane]):
        t1 = index(plane) == 0
        t2 = X - sum(X, l) / size(l)
        d1 = sum(where(t1, t2, 0), plane)
        t3 = index(plane) == 1
        t4 = Y - sum(Y, l) / size(l)
        d2 = sum(where(t3, t4, 0), plane)
        d3 = sum(where(t3, t2, 0), plane)
        d4 = sum(where(t1, t4, 0), plane)
        t5 = arctan2(sum(d1 * d2 - d3 * d4, l), sum(d1 * d4 + d3 * d2, l))
        t6 = cos(t5)
        t7 = sin(t5)
        return sqrt(sum((t6 * d1 - t7 * d3 - d4) ** 2 + (t7 * d1 + t6 * d3 - d2) ** 2, l) / size(l))

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    sX'    = sX + X[l,plane]
    sY'    = sY + Y[l,plane]
    N'     = N + 1
    mu_X'  = sX'/N'
    mu_Y'  = sY'/N'
    M1100' = M1100 + N·(mu_X − mu_X')·(mu_Y − mu_Y') + (X[l,plane] − mu_X')·(Y[l,plane__1] − mu_Y')  ¹ ²
    M1010' = M1010 + N·(mu_X − mu_X')·(mu_X − mu_X') + (X[l,plane] − mu_X')·(X[l,plane__1] − mu_X')  ¹ ²
    M0101' = M0101 + N·(mu_Y − mu_Y')·(mu_Y − mu_Y') + (Y[l,plane] − mu_Y')·(Y[l,plane__1] − mu_Y')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    y = Σ_plane__2 Σ_plane ((p3²·M1010 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((−2·t·M1100
        if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((p4²·M1010 if plane = 1 else 0) if plane__2
        = 1 else 0) + Σ_plane__2 Σ_plane ((2·u·M1100 if plane = 1 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane
        ((M0101 if plane = 0 else 0) if plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((p4²·M1010 if plane = 0 else 0) if
        plane__2 = 0 else 0) + Σ_plane__2 Σ_plane ((−2·u·M1100 if plane = 0 else 0) if plane__2 = 1 else 0) +
        Σ_plane__2 Σ_plane ((p3²·M1010 if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((−2·t·M1100
        if plane = 1 else 0) if plane__2 = 1 else 0) + Σ_plane__2 Σ_plane ((M0101 if plane = 1 else 0) if plane__2 = 1
        else 0) is a difference of sums: it cancels where they are large against it

Laws: multiply_commutes, multiply_associates, multiply_one, distribute, sum_adds, sum_pulls_invariant,
sum_of_invariant, contract_absorbs_factor, sum_enters_contract, cancel, recentre_difference.

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

    sX: np.ndarray  # Σ_l X[l,plane]
    sY: np.ndarray  # Σ_l Y[l,plane]
    N: np.ndarray  # Σ_l 1
    M1100: np.ndarray  # Σ_l (X[l,plane] − mu_X)·(Y[l,plane__1] − mu_Y)
    M1010: np.ndarray  # Σ_l (X[l,plane] − mu_X)·(X[l,plane__1] − mu_X)
    M0101: np.ndarray  # Σ_l (Y[l,plane] − mu_Y)·(Y[l,plane__1] − mu_Y)


def lift(X, Y):
    """The state of some elements."""
    sX = np.sum(X, axis=0)
    sY = np.sum(Y, axis=0)
    N = np.float64(len(X))
    mu_X = sX / N
    mu_Y = sY / N
    dX = minus(X, finite(mu_X))
    dY = minus(Y, finite(mu_Y))
    M1100 = np.sum(dX[..., None] * dY[:, None], axis=0)
    M1010 = np.sum(dX[..., None] * minus(X, finite(mu_X))[:, None], axis=0)
    M0101 = np.sum(minus(Y, finite(mu_Y))[..., None] * dY[:, None], axis=0)
    return State(sX, sY, N, M1100, M1010, M0101)


def moved_by_mu_X_mu_Y(part, mu_X_new, mu_Y_new):
    """A part as it is at a new mu_X and mu_Y."""
    mu_X = part.sX / part.N
    mu_Y = part.sY / part.N
    M1100 = (
        part.M1100 + times(minus(finite(mu_X), finite(mu_X_new))[..., None] * minus(finite(mu_Y), finite(mu_Y_new)),
        part.N)
    )
    return part._replace(M1100=M1100)


def moved_by_mu_X(part, mu_X_new):
    """A part as it is at a new mu_X."""
    mu_X = part.sX / part.N
    M1010 = (
        part.M1010 + times(minus(finite(mu_X), finite(mu_X_new))[..., None] * minus(finite(mu_X), finite(mu_X_new)),
        part.N)
    )
    return part._replace(M1010=M1010)


def moved_by_mu_Y(part, mu_Y_new):
    """A part as it is at a new mu_Y."""
    mu_Y = part.sY / part.N
    M0101 = (
        part.M0101 + times(minus(finite(mu_Y), finite(mu_Y_new))[..., None] * minus(finite(mu_Y), finite(mu_Y_new)),
        part.N)
    )
    return part._replace(M0101=M0101)


def merge(one, two):
    """The state of two parts together."""
    sX = one.sX + two.sX
    sY = one.sY + two.sY
    N = one.N + two.N
    mu_X = sX / N
    mu_Y = sY / N
    left, right = moved_by_mu_X_mu_Y(one, mu_X, mu_Y), moved_by_mu_X_mu_Y(two, mu_X, mu_Y)
    M1100 = left.M1100 + right.M1100
    left, right = moved_by_mu_X(one, mu_X), moved_by_mu_X(two, mu_X)
    M1010 = left.M1010 + right.M1010
    left, right = moved_by_mu_Y(one, mu_Y), moved_by_mu_Y(two, mu_Y)
    M0101 = left.M0101 + right.M0101
    return State(sX, sY, N, M1100, M1010, M0101)


def finalize(state, X):
    """The results of a state."""
    sX, sY, N, M1100, M1010, M0101 = state
    here = np.arange(X.shape[1]) == 1
    h = np.arange(X.shape[1]) == 0
    g = np.where(h[..., None], M1100, 0)
    z = np.arange(X.shape[1]) == 0
    w = np.arange(X.shape[1]) == 1
    v = (
        np.sum(np.sum(np.where(here, g, 0), axis=0))
        + np.sum(np.sum(np.where(z, np.where(w[..., None], -M1100, 0), 0), axis=0))
    )
    r = (
        np.sum(np.sum(np.where(z, g, 0), axis=0))
        + np.sum(np.sum(np.where(here, np.where(w[..., None], M1100, 0), 0), axis=0))
    )
    f = np.arctan2(v, r)
    t = np.cos(f)
    u = np.sin(f)
    alpha = t ** 2 * M1010
    beta = -(2 * t * M1100)
    gamma = u ** 2 * M1010
    eta = 2 * u * M1100
    y = np.maximum(
        (
            np.sum(np.sum(np.where(z, np.where(h[..., None], alpha, 0), 0), axis=0))
            + np.sum(np.sum(np.where(z, np.where(h[..., None], beta, 0), 0), axis=0))
            + np.sum(np.sum(np.where(here, np.where(w[..., None], gamma, 0), 0), axis=0))
            + np.sum(np.sum(np.where(z, np.where(w[..., None], eta, 0), 0), axis=0))
            + np.sum(np.sum(np.where(z, np.where(h[..., None], M0101, 0), 0), axis=0))
            + np.sum(np.sum(np.where(z, np.where(h[..., None], gamma, 0), 0), axis=0))
            + np.sum(np.sum(np.where(here, np.where(h[..., None], -eta, 0), 0), axis=0))
            + np.sum(np.sum(np.where(here, np.where(w[..., None], alpha, 0), 0), axis=0))
            + np.sum(np.sum(np.where(here, np.where(w[..., None], beta, 0), 0), axis=0))
            + np.sum(np.sum(np.where(here, np.where(w[..., None], M0101, 0), 0), axis=0))
        ),
        0,
    )
    return np.sqrt(y / N)


def definition(X, Y):
    """The operator as written."""
    here = np.arange(X.shape[1]) == 0
    dX = X - np.sum(X, axis=0) / len(X)
    S = np.sum(np.where(here, dX, 0), axis=1)
    h = np.arange(X.shape[1]) == 1
    dY = Y - np.sum(Y, axis=0) / len(X)
    S_Y = np.sum(np.where(h, dY, 0), axis=1)
    S_X = np.sum(np.where(h, dX, 0), axis=1)
    g = np.sum(np.where(here, dY, 0), axis=1)
    z = np.arctan2(np.sum(S * S_Y - S_X * g), np.sum(S * g + S_X * S_Y))
    return np.sqrt(
        np.sum((np.cos(z) * S - np.sin(z) * S_X - g) ** 2 + (np.sin(z) * S + np.cos(z) * S_X - S_Y) ** 2) / len(X),
    )


def of(at, X, Y):
    """The state of the elements at these places."""
    return lift(X[at], Y[at])


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
    X = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    Y = array(draw, (n, 2), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return X, Y, owner


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
    X, Y, owner = example
    one = of(owner == 0, X, Y)
    two = of(owner == 1, X, Y)
    three = of(owner == 2, X, Y)
    nothing = of(owner < 0, X, Y)
    states = (
        of(owner >= 0, X, Y),
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
    want = definition(X, Y)
    around = [finalize(each, X) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, X), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("X1 Y1", real=True), sympy.symbols("X2 Y2", real=True)]
    mu_X_new, mu_Y_new = sympy.symbols("mu_X_new mu_Y_new", real=True)
    sX = sum(X for X, Y in elements)
    N = sum(1 for X, Y in elements)
    mu_X = sX / N
    sY = sum(Y for X, Y in elements)
    mu_Y = sY / N
    M1100 = sum((X - mu_X) * (Y - mu_Y) for X, Y in elements)
    M1010 = sum((X - mu_X) * (X - mu_X) for X, Y in elements)
    M0101 = sum((Y - mu_Y) * (Y - mu_Y) for X, Y in elements)
    differences = {
        "M1100": (
            sum((X - mu_X_new) * (Y - mu_Y_new) for X, Y in elements)
            - (M1100 + N * (mu_X - mu_X_new) * (mu_Y - mu_Y_new))
        ),
        "M1010": (
            sum((X - mu_X_new) * (X - mu_X_new) for X, Y in elements)
            - (M1010 + N * (mu_X - mu_X_new) * (mu_X - mu_X_new))
        ),
        "M0101": (
            sum((Y - mu_Y_new) * (Y - mu_Y_new) for X, Y in elements)
            - (M0101 + N * (mu_Y - mu_Y_new) * (mu_Y - mu_Y_new))
        ),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
