"""Extremes of quotients and products of positive numbers over what came before: followed by their logarithms, next to NumPy."""

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_tree


def drawdowns(x):
    peak = np.maximum.accumulate(x)
    return (peak - x).max(), (1 - x / peak).max(), ((x - peak) / peak).min(), 100 * np.max((peak - x) / peak)


def of_returns(x):
    worth = np.cumprod(1 + x)
    return (worth / np.maximum.accumulate(worth) - 1).min(), -np.max(worth * np.maximum.accumulate(x))


def under_a_mask(x):
    rise = x / np.minimum.accumulate(x)
    return np.max(rise, where=x > 1, initial=-np.inf), np.min(2 - rise, where=x < 1, initial=np.inf)


each = pytest.mark.parametrize("function", [drawdowns, of_returns, under_a_mask])


@each
def test_in_parts_it_is_what_numpy_gives(function, rng):
    fused = ra.fuse(ra.trace(function, x="l", assume="x > 0"))
    for length in (1, 2, 30):
        x = 0.5 + rng.random(length)
        binding, want = fused.operator.bind(x), function(x)
        np.testing.assert_allclose(fused(x, backend="reference"), want, 1e-12, 1e-14)
        np.testing.assert_allclose(fused_by_chunks(fused.operator, fused.form, binding, [1] * length), want, 1e-12, 1e-14)
        np.testing.assert_allclose(fused_by_tree(fused.operator, fused.form, binding, [length - length // 3, 0, length // 3], 1), want, 1e-12, 1e-14)


def test_a_kernel_computes_it(rng):
    x = 0.5 + rng.random(3000)
    np.testing.assert_allclose(ra.fuse(ra.trace(drawdowns, x="l", assume="x > 0"))(x, backend="cpu"), drawdowns(x), 1e-12)


def test_it_is_proved():
    fused = ra.fuse(ra.trace(drawdowns, x="l", assume="x > 0"))
    certificate = certify(fused.operator, fused.decision.main.cascade, fused.form, examples=3)
    assert {row.id for row in certificate.rows if row.kind in ("recurrence", "readout")} <= certificate.proved


@pytest.mark.parametrize("function", [drawdowns, lambda x: np.max(x / np.minimum.accumulate(x), where=x > 0, initial=-np.inf)])
def test_that_all_numbers_are_positive_is_a_condition(function):
    verdict = ra.decide(ra.trace(function, x="l"))
    assert (verdict.status, verdict.reason) == ("partly", "conditional") and [str(each) for each in verdict.fused.form.assumptions] == ["x[l] > 0"]
