"""Public bug reports on fused and cascaded reductions: here the operator is fused from the front-door language, run in
pieces, and gives the right value."""

import functools
import os

import numpy as np
import pytest
import redfuser_algebra as ra
from bug_cases import CASES
from redfuser_algebra.lower.schedule import Schedule, levels
from redfuser_algebra.run.cpu import kernel_of_call, run_cpu, signature_of
from redfuser_algebra.run.reference import fused_by_chunks, fused_by_tree, reference

MEMORY_FOR_TWO_GIB = 6 * 2**30


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def assert_right(case, got):
    want = as_tuple(case.want())
    assert len(as_tuple(got)) == len(want)
    for value, right in zip(as_tuple(got), want, strict=True):
        np.testing.assert_allclose(np.asarray(value, float), np.asarray(right, float), case.rtol, case.atol)
        assert np.shape(value) == np.shape(right)


def pieces(length, size):
    return [size] * (length // size) + [length % size] * bool(length % size)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_the_reported_fault_is_not_ours(case):
    fused = ra.fuse(case.operator)
    binding = case.operator.bind(**case.inputs())
    if case.error_is_right:
        with pytest.raises(ra.OperatorError, match="the axis is empty"):
            fused(**case.inputs())
        return
    length = binding.sizes["l"]
    assert fused.form.axis == "l"
    assert_right(case, fused(**case.inputs()))
    assert_right(case, fused(**case.inputs(), backend="reference"))
    for size in [case.chunk] if case.chunk else [1, 2, 3, length]:
        assert_right(case, fused_by_chunks(case.operator, fused.form, binding, pieces(length, size)))


@pytest.mark.parametrize("cuts", range(64))
def test_b31_a_constant_column_stays_constant_however_it_is_cut(cuts):
    case, fused = CASES["B31"], ra.fuse(CASES["B31"].operator)
    places = [0, *(place + 1 for place in range(6) if cuts >> place & 1), 7]
    sizes = [stop - start for start, stop in zip(places, places[1:], strict=False)]
    binding = case.operator.bind(**case.inputs())
    for run in (fused_by_chunks, functools.partial(fused_by_tree, seed=cuts)):
        assert_right(case, run(case.operator, fused.form, binding, sizes))


def test_the_weighted_variance_of_equal_numbers_is_nothing():
    @ra.operator(assume="w >= 0")
    def weighted_variance(x: "l", w: "l"):
        return ra.sum(w * (x - ra.sum(w * x, "l") / ra.sum(w, "l")) ** 2, "l")

    fused = ra.fuse(weighted_variance)
    binding = weighted_variance.bind(np.full(6, 0.83), np.array([0.0, 0.3, 2.7, 0.1, 0.7, 0.0]))
    for sizes in ((6,), (2, 4), (1, 1, 1, 1, 1, 1), (5, 1)):
        assert fused_by_chunks(weighted_variance, fused.form, binding, sizes) == 0.0


@pytest.mark.parametrize("sizes", [(1, 1, 2), (2, 2), (2, 1, 1), (1, 1, 1, 1)])
def test_a_part_whose_weights_cancel_has_no_mean_but_a_sum(sizes):
    @ra.operator
    def about_the_mean(x: "l", w: "l"):
        return ra.sum(w * (x - ra.sum(w * x, "l") / ra.sum(w, "l")) ** 2, "l")

    for x, w in (([3, -2.5, 1.5, -1.5], [0.5, 3, -1.5, 1.5]), ([1, 3, 2, -1], [1, -1, 3, -1]), ([1, 1, 2, 5], [1, -1, 1, 2]),
                 ([1, 1, 2, 5], [1, 1e-17 - 1, 1, 2])):
        binding = about_the_mean.bind(np.array(x, float), np.array(w, float))
        got = fused_by_chunks(about_the_mean, ra.fuse(about_the_mean).form, binding, sizes)
        np.testing.assert_allclose(got, reference(about_the_mean, binding), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES.values() if not case.error_is_right], ids=lambda case: case.id)
def test_the_reported_fault_is_not_in_a_compiled_kernel(case):
    fused = ra.fuse(case.operator)
    assert_right(case, fused(**case.inputs(), backend="cpu"))
    arrays = case.operator.bind(**case.inputs())
    kernel = kernel_of_call(fused.operator, fused.form, arrays, signature_of(arrays))
    assert kernel is not None and kernel.is_loaded, "NumPy ran instead"
    length = arrays.sizes[fused.form.axis]
    for schedule in [Schedule(case.chunk)] if case.chunk else levels(kernel.program, Schedule(2), length, min(3, length)).values():
        assert_right(case, run_cpu(fused.operator, fused.form, arrays, schedule))


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_the_check_of_a_case_can_fail(case):
    if case.error_is_right:
        return
    value = as_tuple(case.want())[0]
    with pytest.raises(AssertionError):
        assert_right(case, (np.asarray(value, float) * 2 + 1, *as_tuple(case.want())[1:]))


def quantised_product():
    """Dao-AILab/flash-attention#2713: what was rounded under an older, smaller maximum cannot be repaired."""
    a = np.array([1.0, -2.3, 0.7, 0.4, 90, -100, 35, 12.5], np.float32)
    b = np.array([[1, 3], [-2, 1], [4, 1], [1, -2], [1, 0], [0, 1], [2, -1], [1, 1]], np.float32)
    return a, b, np.array([1, -3, 1, 1, 114, -127, 44, 16]) @ b * 100 / 127


def quantise(a: "l", b: "l n"):
    s = ra.max(ra.abs(a), "l") / 127.0
    return ra.sum(ra.round(a / s) * b, "l") * s


def quantise_as_it_comes(a: "l", b: "l n"):
    s = ra.max(ra.abs(a), "l") / 127.0
    return ra.sum(ra.round(a / s, reassociate=True) * b, "l") * s


def test_b39_rounding_under_a_moving_maximum_is_refused():
    a, b, right = quantised_product()
    verdict = ra.decide(quantise)
    assert (verdict.status, verdict.reason) == ("not fusable", "rounding")
    with pytest.raises(ra.NotFusable, match="rounding"):
        ra.fuse(quantise)
    np.testing.assert_allclose(reference(verdict.operator, verdict.operator.bind(a, b)), right, rtol=1e-5)


def test_b39_rounding_as_it_comes_is_another_answer_and_says_so():
    a, b, right = quantised_product()
    verdict = ra.decide(quantise_as_it_comes)
    assert (verdict.status, verdict.reason) == ("partly", "rounding")
    whole, halves = (
        fused_by_chunks(verdict.operator, verdict.fused.form, verdict.operator.bind(a, b), sizes) for sizes in ([8], [4, 4]))
    np.testing.assert_allclose(whole, right, rtol=1e-5)
    step = 100 / 127
    assert 0.1 < abs(halves - right).max() <= step * np.abs(b).sum(0).max()


def test_a_k_beyond_the_length_is_a_named_error():
    @ra.operator
    def two_largest(x: "l", k: int = 2):
        return ra.topk(x, "l", k, name="t").values

    with pytest.raises(ra.OperatorError, match="only 1 elements.*choose k ≤ 1"):
        ra.fuse(two_largest)([3.0])


def free_memory():
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


@pytest.mark.slow
@pytest.mark.skipif(free_memory() < MEMORY_FOR_TWO_GIB, reason="needs 6 GiB of free memory")
def test_b17_a_position_beyond_32_bits():
    """cupy/cupy#8014: the index of a maximum past element 2³¹ came back negative."""
    @ra.operator
    def first_largest(x: "l"):
        return ra.argmax(x, "l")

    x = np.zeros(2**31 + 5, np.int8)
    x[-1] = 1
    stream = ra.fuse(first_largest).stream()
    for start in range(0, x.size, 2**20):
        stream.update(x[start : start + 2**20])
    assert stream.result() == 2**31 + 4
