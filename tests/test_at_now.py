"""Elements that see how far a running sum is from its end: kept at where the sum is now, next to a loop, in parts, and proved."""

import numpy as np
import pytest

import redfuser_algebra.language.functions as ra
from redfuser_algebra.fused import fuse
from redfuser_algebra.language.expr import symbol
from redfuser_algebra.language.operator import operator
from redfuser_algebra.language.recurrence import cumulative
from redfuser_algebra.prove.by_distribution import equal
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_tree, reference


@operator
def remembered(x: "l", f: "l"):
    """A softmax that forgets by f at each element, as written with the sum of f and what it has come to; and the like of a minimum."""
    left = ra.sum(f, "l") - cumulative(ra.sum, f, "l")
    m = ra.max(x + left, "l")
    e = ra.exp(x + left - m)
    return ra.sum(e * x, "l") / ra.sum(e, "l"), m + ra.log(ra.sum(e, "l")), ra.min(x - 2 * left, "l")


FUSED = fuse(remembered)


def by_hand(x, f):
    total = below = 0.0
    least = np.inf
    for element, forgotten in zip(x, f, strict=True):
        total, below = np.exp(forgotten) * total + np.exp(element) * element, np.exp(forgotten) * below + np.exp(element)
        least = min(least - 2 * forgotten, element)
    return total / below, np.log(below), least


def test_in_parts_it_is_what_a_loop_gives(rng):
    for length in (1, 2, 12):
        x, f = rng.standard_normal((2, length))
        binding, want = remembered.bind(x, f), by_hand(x, f)
        np.testing.assert_allclose(reference(remembered, binding), want, 1e-10, 1e-12)
        np.testing.assert_allclose(fused_by_chunks(remembered, FUSED.form, binding, [1] * length), want, 1e-10, 1e-12)
        np.testing.assert_allclose(fused_by_tree(remembered, FUSED.form, binding, [length - length // 3, 0, length // 3], 1), want, 1e-10, 1e-12)


def test_in_long_rows_neither_the_decay_nor_its_inverse_is_a_number(rng):
    x, f = rng.standard_normal(3000), -rng.random(3000)
    np.testing.assert_allclose(FUSED(x, f), by_hand(x, f), 1e-10)
    np.testing.assert_allclose(fused_by_chunks(remembered, FUSED.form, remembered.bind(x, f), [1000, 2000]), by_hand(x, f), 1e-10)


def test_a_sum_that_is_infinite_is_at_no_distance():
    x, f = np.ones(9), np.array([0, -np.inf, *[-1.0] * 7])
    assert np.isnan(reference(remembered, remembered.bind(x, f))).all() and np.isnan(FUSED(x, f)).all()


def test_it_is_proved():
    certificate = certify(remembered, FUSED.decision.main.cascade, FUSED.form, examples=5)
    assert {row.id for row in certificate.rows if row.kind in ("recurrence", "readout")} <= certificate.proved


A, B = symbol("a"), symbol("b")


@pytest.mark.parametrize("left, right, same", [(-2 * (A + B), -A - 2 * B - A, True), (-2 * A, -A, False)], ids=str)
def test_multiples_of_opposites_multiply_out(left, right, same):
    assert equal("min-plus", left, right) is same
