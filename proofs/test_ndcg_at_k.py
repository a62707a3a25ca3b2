"""ndcg_at_k: one pass is enough.

    ndcg_at_k(s[l], rel[l]):
        t1 = 1.0 / log2(index(t) + 2)
        return sum(sum(where(index(l) == argtopk(s, l, 4, name=t), rel, 0), l) * t1, t) / sum(topk(rel, l, 4, name=t)
                * t1, t)

Theorem. Cut the axis l into parts in any way, lift each part to its state, and merge the states in any bracketing:
finalize gives what the definition gives (one pass over l, 3 words of state per row, commutative merge). merge is
associative and commutative, and the state of no elements is its identity.

Update by one element:

    pos'    = best_positions(4, pos, l)
    rel_at' = Σ_t__1 (rel_at if pos = pos' else 0) + (rel[l] if l = pos' else 0)  ¹
    top'    = best_values(4, top, rel[l])

Guards:

    ¹ an element or state that does not take part is left out, not multiplied by 0

Dangers:

    Σ_t top/log2(t + 2) divides and may be 0: the result is then what IEEE division gives

Laws: multiply_commutes, multiply_associates, multiply_one, sum_pulls_invariant, sum_of_invariant,
contract_absorbs_factor, sum_enters_contract, reset_among.

Nothing below is a proof: the update rule is none that SymPy decides. Tested below, by Hypothesis on small examples in
float64: everything else the theorem says.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def best(values, positions, k, axis):
    """The k largest values along an axis and their positions, the first of equal ones first; then -inf and -1."""
    values, positions = np.broadcast_arrays(values, positions)
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    values, positions = np.pad(values, room, constant_values=-np.inf), np.pad(positions, room, constant_values=-1)
    order = np.lexsort((positions, -values, positions < 0), axis=axis)
    order = np.take(order, range(k), axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(positions, order, axis)


def largest(values, k, axis):
    """The k largest values along an axis, largest first; -inf if there are fewer."""
    room = [(0, k if d == axis else 0) for d in range(values.ndim)]
    return np.take(-np.sort(-np.pad(values, room, constant_values=-np.inf), axis=axis), range(k), axis=axis)


def places(values, k, axis):
    """The positions of the k largest values along an axis, largest first, the first of equal ones first."""
    return np.take(np.argsort(-values, axis=axis, kind="stable"), range(k), axis=axis)


class State(NamedTuple):
    """What is kept of a part of the elements."""

    pos: np.ndarray  # argtopk_l^4 s[l]
    pos_value: np.ndarray  # the values there
    rel_at: np.ndarray  # Σ_l rel[l] if l = pos else 0
    top: np.ndarray  # topk_l^4 rel[l]


def lift(s, rel, l):
    """The state of some elements."""
    pos_value, pos = best(s, l, 4, axis=0)
    rel_at = np.sum(np.where(l[..., None] == pos, rel[..., None], 0), axis=0)
    top = largest(rel, 4, axis=0)
    return State(pos, pos_value, rel_at, top)


def moved(part, pos_new):
    """A part as it is at a new pos."""
    return part._replace(rel_at=np.sum(np.where(part.pos == pos_new[..., None], part.rel_at, 0), axis=1))


def merge(one, two):
    """The state of two parts together."""
    pos_value, pos = best(
        np.concatenate([one.pos_value, two.pos_value], axis=0),
        np.concatenate([one.pos, two.pos], axis=0),
        4,
        axis=0,
    )
    left, right = moved(one, pos), moved(two, pos)
    rel_at = left.rel_at + right.rel_at
    top = largest(np.concatenate([one.top, two.top], axis=0), 4, axis=0)
    return State(pos, pos_value, rel_at, top)


def finalize(state):
    """The results of a state."""
    pos, pos_value, rel_at, top = state
    u = np.sum(np.where(pos == pos[..., None], rel_at, 0), axis=1)
    t = np.log2(np.arange(4) + 2)
    return np.sum(u / t) / np.sum(top / t)


def definition(s, rel):
    """The operator as written."""
    p = 1 / np.log2(np.arange(4) + 2)
    return (
        np.sum(np.sum(np.where(np.arange(len(s))[..., None] == places(s, 4, axis=0), rel[..., None], 0), axis=0) * p)
        / np.sum(largest(rel, 4, axis=0) * p)
    )


def of(at, s, rel):
    """The state of the elements at these places."""
    return lift(s[at], rel[at], 1.0 * np.flatnonzero(at))


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
    n = draw(st.integers(4, 6))
    s = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    rel = array(draw, (n,), ANY, POSITIVE, UNIT, FEW)
    owner = draw(arrays(int, n, elements=st.integers(0, 2)))
    return s, rel, owner


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
    s, rel, owner = example
    one = of(owner == 0, s, rel)
    two = of(owner == 1, s, rel)
    three = of(owner == 2, s, rel)
    nothing = of(owner < 0, s, rel)
    states = (
        of(owner >= 0, s, rel),
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
    want = definition(s, rel)
    around = [finalize(each) for each in (states[0], *nudged(states[0]))]
    for state in states:
        agree(finalize(state), want, *around)
