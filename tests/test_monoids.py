"""Monoids and elementwise functions: what their rows say, on values.

Identity, order of operands, repeats, duals and the maps that commute; NumPy's meaning at NaN, infinities, ties and
nothing; marks of motion and sign; and the total twins where the operation they complete has no value.
"""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from redfuser_algebra.algebra.functions import FUNCTIONS, TOTAL_TWINS
from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.run.reductions import combined, reduced, winner, winners

INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, 1e300, -1e300, 5e-324, INF, -INF, NAN]
K = 3
NUMBERS = [m.name for m in MONOIDS.values() if m.name != "compose"]  # the entries of composed maps: tests/test_recurrences.py
PLAIN = [name for name in NUMBERS if not MONOIDS[name].indexed and not MONOIDS[name].counted]
ORDERED = [m.name for m in MONOIDS.values() if m.endomorphism == "increasing"]
# Sums and products of these are exact, so that the order of operands can only matter where it must not.
EXACT = st.integers(-8, 8).map(float)
ANY = st.one_of(EXACT, st.sampled_from(SPECIAL), st.floats())

each_monoid = pytest.mark.parametrize("name", NUMBERS)
each_plain = pytest.mark.parametrize("name", PLAIN)
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def same(a, b):
    """Equal, with NaN equal to NaN and 0 to −0."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))


# states: a number, (numbers, positions) for the indexed and counted ones


def of_elements(name, values, start=0, places=K):
    """The state of a few elements, the first of them at position `start`."""
    values = np.asarray(values, float).reshape(-1)
    monoid = MONOIDS[name]
    if not (monoid.indexed or monoid.counted):
        with np.errstate(all="ignore"):
            return (reduced(name, values, 0, np.ones(len(values), bool)),)
    positions = np.arange(start, start + len(values))
    if monoid.counted:
        return winners(values, positions, np.ones(len(values), bool), 0, places)
    return winner(values, positions, np.ones(len(values), bool), 0, name == "argmin")


def together(name, a, b):
    """a ⊕ b."""
    monoid = MONOIDS[name]
    if not (monoid.indexed or monoid.counted):
        return (combined(name, a[0], b[0]),)
    values, positions = (np.concatenate(pair) for pair in zip(a, b, strict=True))
    valid = positions != MONOIDS["argmax"].identity
    if monoid.counted:
        return winners(values, positions, valid, 0, K)
    return winner(values, positions, valid, 0, name == "argmin")


def same_state(a, b):
    return all(map(same, a, b))


def drawn_parts(data, name, number, values):
    """States of consecutive parts of one axis.

    Parts of nothing but NaN are left out for fmax and fmin: they skip NaN, so that such a part says no more than an
    empty one, but NumPy's value of it is NaN, and that of no elements is the identity.
    """
    values = values.filter(lambda value: value == value) if name in ("fmax", "fmin") else values
    lengths = [data.draw(st.integers(0, 3)) for _ in range(number)]
    starts = np.cumsum([0, *lengths])
    return [of_elements(name, data.draw(st.lists(values, min_size=n, max_size=n)), start)
            for n, start in zip(lengths, starts, strict=False)]


def exact_for(name):
    return EXACT if name == "sum" else st.sampled_from([0.0, 1.0, -1.0, 2.0, -0.5]) if name == "prod" else ANY


@each_monoid
@given(data=st.data())
def test_nothing_is_the_identity(name, data):
    (a,) = drawn_parts(data, name, 1, ANY)
    nothing = of_elements(name, [])
    last = nothing[-1] if MONOIDS[name].indexed else nothing[0]
    assert (last == MONOIDS[name].identity).all()
    assert same_state(together(name, nothing, a), a) and same_state(together(name, a, nothing), a)


@each_monoid
@given(data=st.data())
def test_parts_can_be_put_together_in_any_order(name, data):
    a, b, c = drawn_parts(data, name, 3, exact_for(name))
    left = together(name, together(name, a, b), c)
    assert same_state(left, together(name, a, together(name, b, c)))
    assert same_state(left, together(name, c, together(name, b, a)))


@each_monoid
@given(data=st.data())
def test_parts_give_what_the_whole_gives(name, data):
    values = data.draw(st.lists(exact_for(name), min_size=0, max_size=6))
    assume(name not in ("fmax", "fmin") or not np.isnan(values).any())
    cut = data.draw(st.integers(0, len(values)))
    parts = of_elements(name, values[:cut]), of_elements(name, values[cut:], cut)
    assert same_state(together(name, *parts), of_elements(name, values))


@each_monoid
def test_repeats_change_nothing_exactly_where_the_row_says_so(name):
    repeats = [same_state(together(name, a, a), a) for a in (of_elements(name, [v]) for v in (2.0, -3.0, 0.5))]
    assert (False not in repeats) == MONOIDS[name].idempotent


@each_monoid
def test_the_dual_of_the_dual_is_the_monoid_itself(name):
    dual = MONOIDS[name].dual
    assert not dual or MONOIDS[dual].dual == name
    assert not dual or MONOIDS[dual].endomorphism == MONOIDS[name].endomorphism


@pytest.mark.parametrize("name", [name for name in MONOIDS if MONOIDS[name].dual])
@given(values=st.lists(ANY, min_size=1, max_size=6))
def test_a_decreasing_map_turns_a_monoid_into_its_dual(name, values):
    turned = np.logical_not if name in ("any", "all") else np.negative
    got, expected = of_elements(MONOIDS[name].dual, turned(np.array(values))), of_elements(name, values)
    assert same(got[-1], expected[-1] if MONOIDS[name].indexed else turned(expected[0]))


# NumPy's meaning

NUMPYS = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
    "argmax": np.argmax, "argmin": np.argmin,
    "topk": lambda v: np.sort(v)[::-1][:K],  # NumPy sorts NaN last, so reversed it comes first
    "argtopk": lambda v: np.array(sorted(range(len(v)), key=lambda i: (v[i] == v[i], -v[i], i))[:K]),
    "fmax": np.fmax.reduce, "fmin": np.fmin.reduce,
}


@each_monoid
@given(values=st.lists(st.one_of(st.sampled_from(SPECIAL), EXACT), min_size=K, max_size=9))
def test_a_monoid_is_numpys(name, values):
    values = np.array(values)
    with np.errstate(all="ignore"):
        expected = np.reshape(NUMPYS[name](values), -1)
    got = of_elements(name, values)[-1 if MONOIDS[name].indexed else 0]
    near = name in ("sum", "prod") and np.allclose(got, expected, rtol=1e-12, equal_nan=True)
    assert near or same(got, expected)


@pytest.mark.parametrize("name", sorted(set(NUMBERS) - {"fmax", "fmin", "topk", "argtopk"}))
def test_nothing_has_a_value_where_numpy_gives_it_one(name):
    if MONOIDS[name].empty:
        assert NUMPYS[name](np.zeros(0)) == MONOIDS[name].identity
    else:
        with pytest.raises(ValueError, match="empty|zero-size"):
            NUMPYS[name](np.zeros(0))


# the maps that commute

INCREASING = [np.exp, np.tanh, np.arctan, np.floor, np.ceil, np.round, np.sign, lambda v: 2 * v, lambda v: 0 * v,
              lambda v: v + 3, lambda v: np.maximum(v, 0.5), lambda v: np.minimum(v, 0.5)]
STRICT = [np.exp, np.tanh, np.arctan, lambda v: 2 * v, lambda v: v + 3, lambda v: v**3]
COMMUTE = {
    "linear": [lambda v: 3 * v, lambda v: -v, lambda v: 0 * v, lambda v: v / 4],
    "power": [lambda v: v**2, lambda v: v**0, lambda v: 1 / v],
    "increasing": INCREASING,
    "index": STRICT,
    "constant": [lambda v: v, lambda v: v * 0, lambda v: v * 0 + 1],
}
"""For each kind of endomorphism, maps of that kind."""
DO_NOT = {
    "linear": [lambda v: v + 1, np.abs, np.exp], "power": [lambda v: 2 * v, lambda v: v + 1],
    "increasing": [np.negative, np.cos], "index": [np.negative, np.cos], "constant": [lambda v: 1 - v],
}
"""For each kind, maps that are not of it: each must fail on some values, or the kind says too little."""


def commutes(name, function, values):
    places = min(K, len(values))
    got, expected = of_elements(name, function(values), 0, places), of_elements(name, values, 0, places)
    return same(got[-1], expected[-1]) if MONOIDS[name].indexed else same(got[0], function(expected[0]))


def elements_for(name):
    """Values on which the maps are exact: powers of 2 for products, truth values for any and all."""
    small = {"power": [1.0, 2.0, -2.0, 0.5], "constant": [0.0, 1.0]}.get(MONOIDS[name].endomorphism)
    return st.sampled_from(small) if small else EXACT


@each_monoid
@given(data=st.data())
def test_endomorphisms_commute(name, data):
    values = np.array(data.draw(st.lists(elements_for(name), min_size=1, max_size=6)))
    for function in COMMUTE[MONOIDS[name].endomorphism]:
        assert commutes(name, function, values)


@each_monoid
def test_other_maps_do_not_commute(name, rng):
    pool = np.array({"power": [1.0, 2.0, -2.0, 0.5], "constant": [0.0, 1.0]}.get(
        MONOIDS[name].endomorphism, np.arange(-8.0, 9)))
    for function in DO_NOT[MONOIDS[name].endomorphism]:
        assert not all(commutes(name, function, rng.choice(pool, 4)) for _ in range(100))


# elementwise functions

DOMAIN = {"log": st.floats(0, INF), "log2": st.floats(0, INF), "sqrt": st.floats(0, INF), "log1p": st.floats(-1, INF)}
SEPARATE = {"log": range(1, 9), "log2": range(1, 9), "sqrt": range(0, 9), "log1p": range(0, 9), "erf": np.linspace(-4, 4, 17)}


@each_function
def test_a_row_fits_its_function(name):
    row = FUNCTIONS[name]
    result = np.asarray(row.apply(*np.full((row.arity, 2), 0.5) > 0.2) if row.infix in ("&", "|", "~") else
                        row.apply(*np.full((row.arity, 2), 0.5)))
    assert result.shape == (2,) and (result.dtype == bool) == row.boolean
    assert len(row.monotone) in (0, row.arity) and set(row.monotone) <= {"+", "-", "s", ""}
    assert row.sign in ("", "positive", "nonnegative")


@pytest.mark.parametrize("name, place", [(n, i) for n, row in FUNCTIONS.items() for i, mark in enumerate(row.monotone)
                                         if mark])
@given(data=st.data())
def test_a_function_moves_as_its_mark_says(name, place, data):
    row, values = FUNCTIONS[name], DOMAIN.get(name, st.floats(allow_nan=False))
    if row.boolean:
        values = st.booleans()
    low, high = sorted(data.draw(st.tuples(values, values)))
    others = [data.draw(values) for _ in range(row.arity)]
    with np.errstate(all="ignore"):
        first, second = (row.apply(*map(np.asarray, (*others[:place], v, *others[place + 1:]))) for v in (low, high))
    assume(first == first and second == second)
    assert first >= second if row.monotone[place] == "-" else first <= second


@pytest.mark.parametrize("name", [n for n, row in FUNCTIONS.items() if "s" in row.monotone])
def test_a_strict_function_tells_values_apart(name):
    row = FUNCTIONS[name]
    for place, mark in enumerate(row.monotone):
        if mark == "s":
            values = np.array(SEPARATE.get(name, range(-8, 9)), float)
            moved = row.apply(*(values if i == place else np.ones_like(values) for i in range(row.arity)))
            assert (np.diff(moved) > 0).all()


# Conditions only select; the twin of the identity is one wherever its argument is finite.
UNMARKED = [n for n, row in FUNCTIONS.items()
            if not (row.boolean or all(row.monotone) and row.monotone) and n not in ("where", "anchor", "identity")]


@pytest.mark.parametrize("name", UNMARKED)
def test_an_argument_without_a_mark_moves_the_result_both_ways(name):
    row, grid = FUNCTIONS[name], np.array([-2.5, -1.0, -0.3, 0.4, 1.0, 2.0, 7.0])
    for place in [i for i in range(row.arity) if not row.monotone or not row.monotone[i]]:
        steps = set()
        for other in grid:
            with np.errstate(all="ignore"):
                moved = row.apply(*(grid if i == place else np.full_like(grid, other) for i in range(row.arity)))
            steps |= set(np.sign(np.diff(moved[np.isfinite(moved)])))
        assert steps >= {-1, 1}, f"{name}: argument {place} could carry a mark"


@pytest.mark.parametrize("name", [n for n, row in FUNCTIONS.items() if row.sign])
@given(value=st.floats(allow_nan=False))
def test_a_function_has_the_sign_its_row_says(name, value):
    with np.errstate(all="ignore"):
        result = FUNCTIONS[name].apply(np.asarray(value))
    underflows = FUNCTIONS[name].sign == "positive" and value < -700
    assert result > 0 or np.isnan(result) or (result == 0 and (FUNCTIONS[name].sign == "nonnegative" or underflows))


# total twins

GUARDED = {
    "shift": lambda a, p: a == p, "ratio": lambda p, q: p == q, "scaled": lambda a, p: p == 0,
    "scale": lambda c, s: s == 0,
}
GIVES = {"shift": 0.0, "ratio": 1.0, "scaled": 0.0, "scale": 0.0}
"""Where a total twin differs from the operation it completes, and what it is there."""


def test_every_total_twin_has_its_guard_stated():
    two_sided = {name for name in TOTAL_TWINS if FUNCTIONS[name].arity == 2}
    assert two_sided == set(GUARDED) == set(GIVES)
    assert [name for name in TOTAL_TWINS.values() if name not in FUNCTIONS] == []


@pytest.mark.parametrize("name", GUARDED)
@given(a=st.one_of(st.sampled_from(SPECIAL), st.floats()), b=st.one_of(st.sampled_from(SPECIAL), st.floats()))
def test_a_total_twin_differs_from_its_operation_only_under_its_guard(name, a, b):
    with np.errstate(all="ignore"):
        got = FUNCTIONS[name].apply(np.asarray(a), np.asarray(b))
        expected = FUNCTIONS[TOTAL_TWINS[name]].apply(np.asarray(a), np.asarray(b))
    assert same(got, GIVES[name] if GUARDED[name](a, b) else expected)


@pytest.mark.parametrize("p", [0.0, -0.0, 3.0, INF, -INF])
def test_a_state_moved_to_its_own_pivot_is_unchanged(p):
    shift, ratio, scale = (FUNCTIONS[name].apply for name in ("shift", "ratio", "scale"))
    for state in (0.0, 1.0, -2.5, INF, NAN):
        assert same(state + shift(p, p), state) and same(scale(ratio(p, p), state), state)
        assert same(scale(np.exp(shift(p, p)), state), state)


@pytest.mark.parametrize("factor", [0.0, 1.0, INF, -INF, NAN])
def test_an_empty_sum_stays_empty_under_any_factor(factor):
    assert FUNCTIONS["scale"].apply(factor, 0.0) == 0 and FUNCTIONS["scale"].apply(factor, -0.0) == 0


@pytest.mark.parametrize("values", [[0.0, 0.0], [1.0, -2.0], [INF, 1.0], [5e-324, 0.0]])
def test_scaling_by_the_largest_size_has_a_value_for_every_finite_element(values):
    values = np.array(values)
    result = FUNCTIONS["scaled"].apply(values, np.abs(values).max())
    assert (np.abs(result[np.isfinite(values)]) <= 1).all()


@given(a=EXACT, p=EXACT, q=EXACT)
def test_moving_twice_is_moving_once(a, p, q):
    shift, ratio = FUNCTIONS["shift"].apply, FUNCTIONS["ratio"].apply
    assert shift(a, p) + shift(p, q) == shift(a, q)
    if a and p and q:
        assert np.isclose(ratio(a, p) * ratio(p, q), ratio(a, q), rtol=1e-15)
