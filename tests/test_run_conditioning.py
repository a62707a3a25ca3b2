"""Bounds on rounding: they hold against exact arithmetic, follow cancellation, and say inf where nothing is certain."""

from fractions import Fraction

import numpy as np
import pytest
import redfuser_algebra as ra
from hypothesis import given
from hypothesis import strategies as st
from redfuser_algebra.catalogue import operators
from redfuser_algebra.run.conditioning import error_bounds, form_error_bounds
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.tolerance import UNIT, agree

ROUNDOFF = 2.0**-53
MODERATE = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


def bound(function, *arrays, unit=4 * ROUNDOFF, **named):
    described = ra.operator(function)
    return error_bounds(described, described.bind(*arrays, **named), unit)


def value(function, *arrays):
    described = ra.operator(function)
    return reference(described, described.bind(*arrays))


def polynomial(x: "l", y: "l"):
    mean = ra.mean(x, "l")
    return ra.sum((x - mean) ** 2 * y, "l") - 3.0 * ra.sum(x * y, "l"), ra.prod(1.0 + x / 8.0, "l"), ra.max(x - y, "l") * y


def exactly(x, y):
    x, y = ([Fraction(v) for v in values] for values in (x, y))
    mean = sum(x) / len(x)
    product = Fraction(1)
    for v in x:
        product *= 1 + v / 8
    largest = max(a - b for a, b in zip(x, y, strict=True))
    return (sum((a - mean) ** 2 * b for a, b in zip(x, y, strict=True)) - 3 * sum(a * b for a, b in zip(x, y, strict=True)),
            product, [largest * b for b in y])


@given(st.lists(st.tuples(MODERATE, MODERATE), min_size=1, max_size=9))
def test_the_exact_value_is_within_the_bound(pairs):
    x, y = (np.array(values) for values in zip(*pairs, strict=True))
    # Two roundoffs: NumPy's mean divides, and the bound of one operation is first order.
    for got, exact, allowed in zip(value(polynomial, x, y), exactly(x, y), bound(polynomial, x, y, unit=2 * ROUNDOFF), strict=True):
        far = [abs(Fraction(float(g)) - e) for g, e in zip(np.ravel(got), exact if isinstance(exact, list) else [exact], strict=True)]
        assert all(f <= Fraction(float(b)) for f, b in zip(far, np.ravel(allowed), strict=True))


def test_the_bound_follows_cancellation():
    def variance(x: "l"):
        return ra.var(x, "l")

    def raw(x: "l"):
        return ra.mean(x * x, "l") - ra.mean(x, "l") ** 2

    x = np.arange(16.0) / 3
    near, far = (bound(variance, x + shift, unit=UNIT["float64"]) for shift in (0.0, 1e8))
    assert near < 1e-12 < far < 1e-3
    assert bound(raw, x + 1e8, unit=UNIT["float64"]) > 10.0


@pytest.mark.parametrize("describe, x", [
    (lambda x: ra.log(ra.sum(x, "l")), [0.1, 0.2, -0.30000000000000004]),
    (lambda x: 1.0 / (ra.sum(x, "l") - 0.6), [0.1, 0.2, 0.3]),
    (lambda x: ra.sum(x * x, "l"), [1e200, 1.0, 1.0]),
    (lambda x: ra.sum(x, "l"), [1.7e308, 1.7e308, -1.7e308]),
    (lambda x: ra.prod(x, "l"), [1e200, 1e200, 1e-200]),
    (lambda x: ra.sqrt(ra.sum(x, "l") - 0.6), [0.1, 0.2, 0.3]),
], ids=["a pole", "a divisor", "overflow", "overflow in some order", "order of factors", "sign"])
def test_what_is_not_determined_has_no_bound(describe, x):
    def described(x: "l"):
        return describe(x)

    assert np.isinf(bound(described, np.array(x)))


def test_a_weight_that_underflows_next_to_an_infinite_value_determines_nothing():
    def weighted(x: "l", v: "l"):
        return ra.sum(ra.exp(x) * v, "l"), ra.sum(ra.where(x < -700, 0, ra.exp(x)) * v, "l")

    assert np.isinf(bound(weighted, np.array([-800.0, 0.0]), np.array([np.inf, 1.0]))).tolist() == [True, False]


@pytest.mark.parametrize("describe, x, expected", [
    (lambda x: ra.argmax(x, "l"), [1.0, 3.0, 3.0], 0),
    (lambda x: ra.argmax(x - ra.mean(x, "l"), "l"), [0.1, 0.3, 0.3], 3),
    (lambda x: ra.argmax(x - ra.mean(x, "l"), "l"), [0.1, 0.2, 0.3], 0),
    (lambda x: ra.argtopk(x * 0.7, "l", 2, name="t"), [0.1, 0.3, 0.3], 3),
    (lambda x: ra.argtopk(x, "l", 2, name="t"), [0.1, 0.3, 0.3], 0),
    (lambda x: ra.any(x * 0.7 > 0.21, "l"), [0.1, 0.3, 0.2], 1),
    (lambda x: ra.any(x > 0.3, "l"), [0.1, 0.3, 0.2], 0),
    (lambda x: ra.round(x * 5.0), [0.1, 0.2, 0.3], [1, 0, 1]),
    (lambda x: ra.where(x * 3.0 == 0.3, x, 5.0), [0.1, 1.0, 2.0], [4.9, 0, 0]),
    (lambda x: ra.max(x, "l", where=x > 9), [0.1, 0.2, 0.3], 0),
    (lambda x: ra.sum(x, "l"), [np.nan, 1.0, np.inf], 0),
    (lambda x: ra.sum(x * 0.1, "l"), [-np.inf, 1.0, 2.0], 0),
    (lambda x: 1.0 / x, [0.0, np.inf, 2.0], [0, 0, 0]),
    (lambda x: ra.sum(x * x, "l"), [1.0, 2.0, 3.0], 0),
])
def test_choices_are_certain_or_say_how_far_they_may_fall(describe, x, expected):
    def described(x: "l"):
        return describe(x)

    got = bound(described, np.array(x))
    np.testing.assert_allclose(got, np.broadcast_to(np.asarray(expected, float), np.shape(got)), atol=1e-12)


def test_a_rounding_that_may_move_has_a_step_to_spare():
    def quantised(x: "l"):
        return ra.round(x, reassociate=True), ra.cast(x, "float8_e4m3", reassociate=True), ra.round(x)

    rounds, casts, firm = bound(quantised, np.array([20.0, 0.25]))
    assert rounds.tolist() == [1, 1] and casts.tolist() == [20 / 8, 0.25 / 8] and firm.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["softmax", "attention", "variance", "moe_routing", "value_at_argmax", "rmsnorm_gemm"])
def test_a_form_has_bounds_of_its_own(name, rng):
    row, fused = operators.entry(name), ra.fuse(operators[name])
    binding = row.operator.bind(**row.inputs(rng, 12))
    own = error_bounds(row.operator, binding, UNIT["float64"])
    form = form_error_bounds(row.operator, fused.form, binding, UNIT["float64"])
    for a, b in zip(own if isinstance(own, tuple) else (own,), form if isinstance(form, tuple) else (form,), strict=True):
        assert np.shape(a) == np.shape(b) and (b <= 4 * a + 1e-14).all()


def test_bounds_replace_the_table_and_inf_is_no_bound():
    assert agree(1.0 + 1e-13, 1.0, error=1e-12) and not agree(1.0 + 1e-10, 1.0, error=1e-12)
    assert agree(np.nan, 1.0, error=np.inf) and not agree(np.nan, 1.0, error=1e300)
    assert agree([np.inf, np.nan], [np.inf, np.nan], error=[0.0, 0.0]) and not agree(np.inf, -np.inf, error=0.0)


def test_with_inexact_inputs_values_move_and_choices_stay():
    """A difference of x² and itself moves by a few roundings of the input, a count or a rounded number by none, whole numbers not at all."""
    @ra.operator
    def mixed(x: "l"):
        best = ra.max(x, "l")
        return ra.sum(x * x, "l") - ra.sum(x * x, "l"), ra.sum(ra.where(x + x >= best, 1.0, 0.0), "l"), ra.round(best)

    for x, moves in ((np.array([0.5, 1.25]), True), (np.array([1.0, 2.0]), False)):
        moved, counted, rounded = error_bounds(mixed, mixed.bind(x), 0.0, given=1e-6)
        assert (1e-6 < moved < 1e-5) == moves and (moves or moved == 0) and counted == rounded == 0
