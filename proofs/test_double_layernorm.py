"""double_layernorm: one pass is enough.

    double_layernorm(x[l], g[l], b[l]):
        t1 = x - sum(x, l) / size(l)
        t2 = t1 / sqrt(sum(t1 * t1, l) / size(l) + 1e-05) * g + b
        t3 = t2 - sum(t2, l) / size(l)
        return t3 / sqrt(sum(t3 * t3, l) / size(l) + 1e-05)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 12 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x1 = g[l]²
    x2 = b[l]·g[l]

Update by one element:

    sx'   = sx + x[l]
    N'    = N + 1
    mu'   = sx'/N'
    δ     = mu − mu'  ¹
    M2'   = M2 + δ²·N + (x[l] − mu')²  ¹ ²
    M1g'  = M1g + δ·sg + g[l]·(x[l] − mu')  ¹ ²
    sg'   = sg + g[l]
    sb'   = sb + b[l]
    M2gg' = M2gg + 2·δ·M1gg + δ²·sgg + x1·(x[l] − mu')²  ¹ ²
    M1gg' = M1gg + δ·sgg + x1·(x[l] − mu')  ¹ ²
    sgg'  = sgg + x1
    M1bg' = M1bg + δ·sbg + x2·(x[l] − mu')  ¹ ²
    sbg'  = sbg + x2
    sbb'  = sbb + b[l]²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    v = M2gg/p2² + 2·M1bg/sigma − 2·t·M1g/sigma + sbb − 2·t·sb + p3²·N is a difference of sums: it cancels where they
        are large against it

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
    M1g: np.ndarray  # Σ_l g[l]·(x[l] − mu)
    sg: np.ndarray  # Σ_l g[l]
    sb: np.ndarray  # Σ_l b[l]
    M2gg: np.ndarray  # Σ_l g[l]²·(x[l] − mu)²
    M1gg: np.ndarray  # Σ_l g[l]²·(x[l] − mu)
    sgg: np.ndarray  # Σ_l g[l]²
    M1bg: np.ndarray  # Σ_l b[l]·g[l]·(x[l] − mu)
    sbg: np.ndarray  # Σ_l b[l]·g[l]
    sbb: np.ndarray  # Σ_l b[l]²


def lift(x, g, b):
    """The state of some elements."""
    sx = np.sum(x)
    N = np.float64(len(x))
    mu = sx / N
    dx = minus(x, finite(mu))
    M2 = np.sum(dx ** 2)
    M1g = np.sum(dx * g)
    sg = np.sum(g)
    sb = np.sum(b)
    M2gg = np.sum(dx ** 2 * g ** 2)
    M1gg = np.sum(dx * g ** 2)
    sgg = np.sum(g ** 2)
    M1bg = np.sum(dx * b * g)
    sbg = np.sum(b * g)
    sbb = np.sum(b ** 2)
    return State(sx, N, M2, M1g, sg, sb, M2gg, M1gg, sgg, M1bg, sbg, sbb)


def moved(part, mu_new):
    """A part as it is at a new mu."""
    mu = part.sx / part.N
    d = minus(finite(mu), finite(mu_new))
    M2 = part.M2 + times(d ** 2, part.N)
    M1g = part.M1g + times(d, part.sg)
    M2gg = part.M2gg + times(2 * d, part.M1gg) + times(d ** 2, part.sgg)
    M1gg = part.M1gg + times(d, part.sgg)
    M1bg = part.M1bg + times(d, part.sbg)
    return part._replace(M2=M2, M1g=M1g, M2gg=M2gg, M1gg=M1gg, M1bg=M1bg)


def merge(one, two):
    """The state of two parts together."""
    sx = one.sx + two.sx
    N = one.N + two.N
    mu = sx / N
    left, right = moved(one, mu), moved(two, mu)
    M2 = left.M2 + right.M2
    M1g = left.M1g + right.M1g
    M2gg = left.M2gg + right.M2gg
    M1gg = left.M1gg + right.M1gg
    M1bg = left.M1bg + right.M1bg
    sg = one.sg + two.sg
    sb = one.sb + two.sb
    sgg = one.sgg + two.sgg
    sbg = one.sbg + two.sbg
    sbb = one.sbb + two.sbb
    return State(sx, N, M2, M1g, sg, sb, M2gg, M1gg, sgg, M1bg, sbg, sbb)


def finalize(state, x, g, b):
    """The results of a state; they keep the axis, so the elements are read again."""
    sx, N, M2, M1g, sg, sb, M2gg, M1gg, sgg, M1bg, sbg, sbb = state
    sigma = np.sqrt(M2 / N + 1e-05)
    u = M1g / sigma + sb
    t = u / N
    v = np.maximum(M2gg / sigma ** 2 + 2 * M1bg / sigma - 2 * t * M1g / sigma + sbb - 2 * t * sb + t ** 2 * N, 0)
    return (g * (x - sx / N) / sigma + b - t) / np.sqrt(v / N + 1e-05)


def definition(x, g, b):
    """The operator as written."""
    dx = x - np.sum(x) / len(x)
    r = dx / np.sqrt(np.sum(dx * dx) / len(x) + 1e-05) * g + b
    d = r - np.sum(r) / len(x)
    return d / np.sqrt(np.sum(d * d) / len(x) + 1e-05)


def of(at, x, g, b):
    """The state of the elements at these places."""
    return lift(x[at], g[at], b[at])


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
    g = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    b = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, g, b, owner


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
    x, g, b, owner = example
    one = of(owner == 0, x, g, b)
    two = of(owner == 1, x, g, b)
    three = of(owner == 2, x, g, b)
    nothing = of(owner < 0, x, g, b)
    states = (
        of(owner >= 0, x, g, b),
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
    want = definition(x, g, b)
    around = [finalize(each, x, g, b) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, x, g, b), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 g1 b1", real=True), sympy.symbols("x2 g2 b2", real=True)]
    mu_new = sympy.symbols("mu_new", real=True)
    sx = sum(x for x, g, b in elements)
    N = sum(1 for x, g, b in elements)
    mu = sx / N
    M2 = sum((x - mu) ** 2 for x, g, b in elements)
    M1g = sum(g * (x - mu) for x, g, b in elements)
    sg = sum(g for x, g, b in elements)
    M2gg = sum(g ** 2 * (x - mu) ** 2 for x, g, b in elements)
    M1gg = sum(g ** 2 * (x - mu) for x, g, b in elements)
    sgg = sum(g ** 2 for x, g, b in elements)
    M1bg = sum(b * g * (x - mu) for x, g, b in elements)
    sbg = sum(b * g for x, g, b in elements)
    differences = {
        "M2": sum((x - mu_new) ** 2 for x, g, b in elements) - (M2 + N * (mu - mu_new) ** 2),
        "M1g": sum(g * (x - mu_new) for x, g, b in elements) - (M1g + sg * (mu - mu_new)),
        "M2gg": (
            sum(g ** 2 * (x - mu_new) ** 2 for x, g, b in elements)
            - (M2gg + 2 * M1gg * (mu - mu_new) + sgg * (mu - mu_new) ** 2)
        ),
        "M1gg": sum(g ** 2 * (x - mu_new) for x, g, b in elements) - (M1gg + sgg * (mu - mu_new)),
        "M1bg": sum(b * g * (x - mu_new) for x, g, b in elements) - (M1bg + sbg * (mu - mu_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
