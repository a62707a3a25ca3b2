"""attn_vsa_two_stage: one pass is enough.

    attn_vsa_two_stage(q[d], Kt[l, b, d], Vt[l, b, v]):
        t1 = sqrt(size(d))
        t2 = sum(q * (sum(Kt, b) / size(b)), d) / t1
        t3 = index(l) == argtopk(t2, l, 2, name=t)
        t4 = sum(q * sum(where(t3, Kt, 0), l), d) / t1
        t5 = exp(t4 - max(max(t4, b), t))
        t6 = exp(t2 - max(t2, l))
        return sum(sum(t5 * sum(where(t3, Vt, 0), l), b), t) / sum(sum(t5, b), t), sum(t6 * (sum(Vt, b) / size(b)), l)
                / sum(t6, l)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 6 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Elements:

    x = (Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d)

Update by one element:

    pos'   = best_positions(2, pos, l)
    Kt_at' = Σ_t__1 (Kt_at if pos = pos' else 0) + (Kt[l,b,d] if l = pos' else 0)  ³
    Vt_at' = Σ_t__1 (Vt_at if pos = pos' else 0) + (Vt[l,b,v] if l = pos' else 0)  ³
    m'     = max(m, x)
    E'     = E·exp(m − m') + exp(x − m')·Σ_b Vt[l,b,v]  ¹ ²
    Z'     = Z·exp(m − m') + exp(x − m')  ¹ ²

Guards:

    ¹ a pivot that is not finite in one part (±inf, 0/0) is taken as 0 there until the parts are merged
    ² a sum that is 0 stays 0 under any factor, so an empty part stays empty
    ³ an element or state that does not take part is left out, not multiplied by 0
    ⁴ a pivot that ends at ±inf or 0 gives what the formula as written gives there

Dangers:

    exp((Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d) − m) may overflow: nothing bounds its exponent

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, recentre_difference, reset_among, exp_of_sum.

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


def places(values, k, axis):
    """The positions of the k largest values along an axis, largest first, the first of equal ones first."""
    return np.take(np.argsort(-values, axis=axis, kind="stable"), range(k), axis=axis)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    pos: np.ndarray  # argtopk_l^2 (Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d)
    pos_value: np.ndarray  # the values there
    Kt_at: np.ndarray  # Σ_l Kt[l,b,d] if l = pos else 0
    Vt_at: np.ndarray  # Σ_l Vt[l,b,v] if l = pos else 0
    m: np.ndarray  # max_l (Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d)
    E: np.ndarray  # Σ_l exp((Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d) − m)·Σ_b Vt[l,b,v]
    Z: np.ndarray  # Σ_l exp((Σ_d (q[d]·Σ_b Kt[l,b,d])/N_b)/√(N_d) − m)


def lift(q, Kt, Vt, l):
    """The state of some elements."""
    pos_value, pos = best(np.sum(q * np.sum(Kt, axis=1) / Kt.shape[1], axis=1) / np.sqrt(len(q)), l, 2, axis=0)
    here = l[..., None] == pos
    Kt_at = np.sum(np.where(here[..., None, None], Kt[:, None], 0), axis=0)
    Vt_at = np.sum(np.where(here[..., None, None], Vt[:, None], 0), axis=0)
    S = np.sum(q * np.sum(Kt, axis=1) / Kt.shape[1], axis=1) / np.sqrt(len(q))
    m = np.max(S, initial=-np.inf)
    e = np.exp(minus(S, finite(m)))
    E = np.sum(e[..., None] * np.sum(Vt, axis=1), axis=0)
    Z = np.sum(e)
    return State(pos, pos_value, Kt_at, Vt_at, m, E, Z)


def moved_by_pos(part, pos_new):
    """A part as it is at a new pos."""
    here = part.pos == pos_new[..., None]
    Kt_at = np.sum(np.where(here[..., None, None], part.Kt_at, 0), axis=1)
    Vt_at = np.sum(np.where(here[..., None, None], part.Vt_at, 0), axis=1)
    return part._replace(Kt_at=Kt_at, Vt_at=Vt_at)


def moved_by_m(part, m_new):
    """A part as it is at a new m."""
    e = np.exp(minus(finite(part.m), finite(m_new)))
    E = times(e, part.E)
    Z = times(e, part.Z)
    return part._replace(E=E, Z=Z)


def merge(one, two):
    """The state of two parts together."""
    pos_value, pos = best(
        np.concatenate([one.pos_value, two.pos_value], axis=0),
        np.concatenate([one.pos, two.pos], axis=0),
        2,
        axis=0,
    )
    left, right = moved_by_pos(one, pos), moved_by_pos(two, pos)
    Kt_at = left.Kt_at + right.Kt_at
    Vt_at = left.Vt_at + right.Vt_at
    m = np.maximum(one.m, two.m)
    left, right = moved_by_m(one, m), moved_by_m(two, m)
    E = left.E + right.E
    Z = left.Z + right.Z
    return State(pos, pos_value, Kt_at, Vt_at, m, E, Z)


def finalize(state, q, Kt):
    """The results of a state."""
    pos, pos_value, Kt_at, Vt_at, m, E, Z = state
    here = pos == pos[..., None]
    u = np.sum(np.where(here[..., None, None], Kt_at, 0), axis=1)
    r = np.sum(np.where(here[..., None, None], Vt_at, 0), axis=1)
    mu = E / Kt.shape[1]
    p = np.sum(u * q, axis=2) / np.sqrt(len(q))
    e = np.exp(p - np.max(np.max(p, axis=1)))
    return np.sum(np.sum(r * e[..., None], axis=1), axis=0) / np.sum(np.sum(e, axis=1)), mu / Z


def definition(q, Kt, Vt):
    """The operator as written."""
    sigma = np.sqrt(len(q))
    S = np.sum(q * (np.sum(Kt, axis=1) / Kt.shape[1]), axis=1) / sigma
    S_q_Kt = np.arange(len(Kt))[..., None] == places(S, 2, axis=0)
    p = np.sum(q * np.sum(np.where(S_q_Kt[..., None, None], Kt[:, None], 0), axis=0), axis=2) / sigma
    e = np.exp(p - np.max(np.max(p, axis=1)))
    e_q_Kt = np.exp(S - np.max(S))
    return (
        (
            np.sum(np.sum(e[..., None] * np.sum(np.where(S_q_Kt[..., None, None], Vt[:, None], 0), axis=0), axis=1),
            axis=0) / np.sum(np.sum(e, axis=1))
        ),
        np.sum(e_q_Kt[..., None] * (np.sum(Vt, axis=1) / Kt.shape[1]), axis=0) / np.sum(e_q_Kt),
    )


def of(at, q, Kt, Vt):
    """The state of the elements at these places."""
    return lift(q, Kt[at], Vt[at], 1.0 * np.flatnonzero(at))


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
    q = array(draw, (2,), ANY, POSITIVE, UNIT, FEW)
    Kt = array(draw, (n, 2, 2), ANY, POSITIVE, UNIT, FEW)
    Vt = array(draw, (n, 2, 2), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return q, Kt, Vt, owner


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
    q, Kt, Vt, owner = example
    one = of(owner == 0, q, Kt, Vt)
    two = of(owner == 1, q, Kt, Vt)
    three = of(owner == 2, q, Kt, Vt)
    nothing = of(owner < 0, q, Kt, Vt)
    states = (
        of(owner >= 0, q, Kt, Vt),
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
    want = definition(q, Kt, Vt)
    around = [finalize(each, q, Kt) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state, q, Kt), want, *around)


def test_moving_sums_to_a_new_pivot_is_an_identity():
    """SymPy, over the reals, for any two elements: the sums at a new pivot are those that were moved."""
    elements = [sympy.symbols("S1 v1 y1", real=True), sympy.symbols("S2 v2 y2", real=True)]
    m, m_new, g, t = sympy.symbols("m m_new g t", real=True)
    E = sum(y * sympy.exp(v / sympy.sqrt(g) - m) for S, v, y in elements)
    Z = sum(sympy.exp(v / sympy.sqrt(g) - m) for S, v, y in elements)
    differences = {
        "E": sum(y * sympy.exp(v / sympy.sqrt(g) - m_new) for S, v, y in elements) - (E * sympy.exp(m - m_new)),
        "Z": sum(sympy.exp(v / sympy.sqrt(g) - m_new) for S, v, y in elements) - (Z * sympy.exp(m - m_new)),
    }
    for name, difference in differences.items():
        assert sympy.simplify(sympy.expand(difference)) == 0, name
