"""kb_bn_scale_gap: one pass is enough.

    kb_bn_scale_gap(x[l], c[l]):
        t1 = 0.5 * x
        t2 = t1 - sum(t1, l) / size(l)
        t3 = t2 / sqrt(sum(t2 * t2, l) / size(l) + 1e-05)
        t4 = c == 0
        t5 = c == 1
        return sum(t3, l, where=t4) / sum(1, l, where=t4), sum(t3, l, where=t5) / sum(1, l, where=t5)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 9 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = 0.5·x[l]

Update by one element:

    sx'    = sx + x[l]
    N'     = N + 1
    u'     = 0.5·sx'
    t'     = u'/N'
    δ      = t − t'  ¹
    M2'    = M2 + δ²·N + (x − t')²  ¹ ²
    M1_xc' = M1_xc + δ·n_c + x − t'   element where c[l] = 0  ¹ ²
    n_c'   = n_c + 1   element where c[l] = 0
    M1'    = M1 + δ·n + x − t'   element where c[l] = 1  ¹ ²
    n'     = n + 1   element where c[l] = 1
    seen'  = seen ∨ c[l] = 0
    v'     = v ∨ c[l] = 1

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    n_c divides and may be 0: the result is then what IEEE division gives
    n divides and may be 0: the result is then what IEEE division gives

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
    M2: np.ndarray  # Σ_l (0.5·x[l] − t)²
    M1_xc: np.ndarray  # Σ_l 0.5·x[l] − t where c[l] = 0
    n_c: np.ndarray  # Σ_l 1 where c[l] = 0
    M1: np.ndarray  # Σ_l 0.5·x[l] − t where c[l] = 1
    n: np.ndarray  # Σ_l 1 where c[l] = 1
    seen: np.ndarray  # any_l c[l] = 0
    v: np.ndarray  # any_l c[l] = 1


def lift(x, c):
    """The state of some elements."""
    sx = np.sum(x)
    N = np.float64(len(x))
    u = 0.5 * sx
    t = u / N
    dx = minus(0.5 * x, finite(t))
    M2 = np.sum(dx ** 2)
    M1_xc = np.sum(np.where(c == 0, dx, 0))
    n_c = np.sum(np.where(c == 0, 1, 0))
    M1 = np.sum(np.where(c == 1, dx, 0))
    n = np.sum(np.where(c == 1, 1, 0))
    seen = np.any(c == 0)
    v = np.any(c == 1)
    return State(sx, N, M2, M1_xc, n_c, M1, n, seen, v)


def moved(part, t_new):
    """A part as it is at a new t."""
    u = 0.5 * part.sx
    t = u / part.N
    d = minus(finite(t), finite(t_new))
    M2 = part.M2 + times(d ** 2, part.N)
    M1_xc = part.M1_xc + times(d, part.n_c)
    M1 = part.M1 + times(d, part.n)
    return part._replace(M2=M2, M1_xc=M1_xc, M1=M1)


def merge(one, two):
    """The state of two parts together."""
    sx = one.sx + two.sx
    N = one.N + two.N
    u = 0.5 * sx
    t = u / N
    left, right = moved(one, t), moved(two, t)
    M2 = left.M2 + right.M2
    M1_xc = left.M1_xc + right.M1_xc
    M1 = left.M1 + right.M1
    n_c = one.n_c + two.n_c
    n = one.n + two.n
    seen = one.seen | two.seen
    v = one.v | two.v
    return State(sx, N, M2, M1_xc, n_c, M1, n, seen, v)


def finalize(state):
    """The results of a state."""
    sx, N, M2, M1_xc, n_c, M1, n, seen, v = state
    sigma = np.sqrt(M2 / N + 1e-05)
    mu_x = np.where(seen, M1_xc / sigma, 0)
    mu = np.where(v, M1 / sigma, 0)
    return mu_x / n_c, mu / n


def definition(x, c):
    """The operator as written."""
    dx = 0.5 * x - np.sum(0.5 * x) / len(x)
    p = dx / np.sqrt(np.sum(dx * dx) / len(x) + 1e-05)
    return (
        np.sum(np.where(c == 0, p, 0)) / np.sum(np.where(c == 0, 1, 0)),
        np.sum(np.where(c == 1, p, 0)) / np.sum(np.where(c == 1, 1, 0)),
    )


def of(at, x, c):
    """The state of the elements at these places."""
    return lift(x[at], c[at])


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
    c = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return x, c, owner


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
    x, c, owner = example
    one = of(owner == 0, x, c)
    two = of(owner == 1, x, c)
    three = of(owner == 2, x, c)
    nothing = of(owner < 0, x, c)
    states = (
        of(owner >= 0, x, c),
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
    want = definition(x, c)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("x1 taking1 r1", real=True), sympy.symbols("x2 taking2 r2", real=True)]
    t_new = sympy.symbols("t_new", real=True)
    sx = sum(x for x, taking, r in elements)
    u = sympy.Rational('0.5') * sx
    N = sum(1 for x, taking, r in elements)
    t = u / N
    M2 = sum((sympy.Rational('0.5') * x - t) ** 2 for x, taking, r in elements)
    M1_xc = sum(taking * (sympy.Rational('0.5') * x - t) for x, taking, r in elements)
    n_c = sum(taking for x, taking, r in elements)
    M1 = sum(r * (sympy.Rational('0.5') * x - t) for x, taking, r in elements)
    n = sum(r for x, taking, r in elements)
    differences = {
        "M2": sum((sympy.Rational('0.5') * x - t_new) ** 2 for x, taking, r in elements) - (M2 + N * (t - t_new) ** 2),
        "M1_xc": (
            sum(taking * (sympy.Rational('0.5') * x - t_new) for x, taking, r in elements)
            - (M1_xc + n_c * (t - t_new))
        ),
        "M1": sum(r * (sympy.Rational('0.5') * x - t_new) for x, taking, r in elements) - (M1 + n * (t - t_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
