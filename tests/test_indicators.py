"""Signs and answers that a step compares with those of the element before: followed by states that are 0 or 1, next to NumPy."""

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.prove.certificate import certify
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_tree


def turning_points(x):
    d = np.sign(np.diff(x))
    return (d[1:] != d[:-1]).sum()


def peaks(x):
    top = (x[1:-1] > x[:-2]) & (x[1:-1] > x[2:])
    return top.sum(), np.where(top, x[1:-1], 0).sum()


def runs(x):
    up = np.diff(x) > 0
    return np.sum(up[1:] != up[:-1]) + 1, np.count_nonzero(np.diff(np.sign(x)))


@pytest.mark.parametrize("function", [turning_points, peaks, runs])
def test_in_parts_it_is_what_numpy_gives(function, rng):
    fused = ra.fuse(ra.trace(function, x="l"))
    assert ra.decide(fused.operator).reason == "scan"
    for length in (1, 2, 3, 24):
        x = rng.integers(-2, 3, length).astype(float)
        binding, want = fused.operator.bind(x), function(x)
        np.testing.assert_array_equal(fused(x, backend="reference"), want)
        np.testing.assert_array_equal(fused_by_chunks(fused.operator, fused.form, binding, [1] * length), want)
        np.testing.assert_array_equal(fused_by_tree(fused.operator, fused.form, binding, [length - length // 3, 0, length // 3], 1), want)
    if function is not peaks:
        x[7] = np.nan
        np.testing.assert_array_equal(fused(x), function(x))


def test_it_is_proved_and_a_kernel_computes_it(rng):
    fused, x = ra.fuse(ra.trace(peaks, x="l")), rng.standard_normal(3000)
    certificate = certify(fused.operator, fused.decision.main.cascade, fused.form, examples=3)
    assert {row.id for row in certificate.rows if row.kind in ("recurrence", "readout")} <= certificate.proved
    np.testing.assert_allclose(fused(x, backend="cpu"), peaks(x), 1e-12)


def test_what_has_many_values_is_not_told_apart():
    verdict = ra.decide(ra.trace(lambda x: ((x[2:] - x[1:-1]) * (x[1:-1] - x[:-2]) < 0).sum(), x="l"))
    assert not verdict.fusable and verdict.status == "undecided"
