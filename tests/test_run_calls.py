"""A call like one before goes straight to the kernel, and whatever differs is noticed: layouts, dtypes, schedules, words."""

import numpy as np
import pytest
import redfuser_algebra as ra

from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.run import schedules


@pytest.fixture(scope="module")
def variance():
    return ra.fuse(ra.operators["variance"])


@pytest.fixture(scope="module")
def best():
    @ra.operator
    def best(x: "l", k: int = 2, scale: float = 1.0):
        return ra.sum(ra.topk(x, "l", k, name="t").values * scale, "t")

    return ra.fuse(best)


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDFUSER_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


def layouts(x):
    """The same numbers in every layout that may not be mistaken for another."""
    unaligned = np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape)
    padded = np.zeros((*x.shape, 2), x.dtype)
    padded[..., 0] = x
    protected = x.copy()
    protected.flags.writeable = False
    return {"contiguous": x, "columns first": np.asfortranarray(x), "every other": padded[..., 0], "reversed": x[..., ::-1].copy()[..., ::-1],
            "protected": protected, "unaligned": unaligned, "other bytes": x.astype(x.dtype.newbyteorder()), "double": x.astype(np.float64),
            "half": x.astype(np.float16), "first rows": x[:1], "whole": x.astype(np.int32)}


def test_each_layout_and_dtype_of_a_shape_is_seen(variance, rng):
    """Twice in turn, so that the second round finds what the first one left."""
    arrays = layouts(rng.integers(-9, 9, (6, 6)).astype(np.float32))
    for _ in range(2):
        for name, x in arrays.items():
            got, right = variance(x, backend="cpu"), x.astype(np.float64).var(-1)
            assert got.shape == right.shape and np.allclose(got, right, rtol=1e-6), name
            assert got.dtype == (np.float64 if name in ("double", "whole") else np.float32), name


def test_a_layout_costs_no_compiling(variance, rng):
    """Numba compiles once per type of array, and write protection is part of the type."""
    x = rng.normal(size=(3, 8)).astype(np.float32)
    for each in layouts(x).values():
        variance(each.astype(np.float32) if each.dtype == np.float64 else each, backend="cpu")
    (compiled,) = {id(known.plan.compiled): known.plan.compiled for known in variance._calls.known.values()
                   if known.plan.compiled.signature.arrays == {"x": "f4"}}.values()
    assert len(compiled.module.sweep.signatures) == 1


def test_a_batch_that_is_broadcast_costs_no_compiling(rng):
    fused = ra.fuse(ra.operators["weighted_variance"])
    one, more = rng.uniform(1, 2, size=8).astype(np.float32), rng.uniform(1, 2, size=(3, 8)).astype(np.float32)
    for arrays in ((one, one), (more, more), (one, more), (more, one)):
        assert np.allclose(fused(*arrays, backend="cpu"), fused(*arrays, backend="reference"), rtol=1e-4)
    (module,) = {id(known.plan.compiled.module): known.plan.compiled.module for known in fused._calls.known.values()}.values()
    assert len(fused._calls.known) == 4 and len(module.sweep.signatures) == 1


def test_the_second_call_of_a_kind_binds_nothing(variance, rng, monkeypatch):
    x, more = rng.normal(size=(5, 7)).astype(np.float32), rng.normal(size=(5, 7)).astype(np.float32)
    variance(x, backend="cpu"), variance(x=x, backend="cpu")
    monkeypatch.setattr(Operator, "bind", lambda *given, **named: pytest.fail("bound again"))
    for backend in ("cpu", "auto"):
        assert np.allclose(variance(more, backend=backend), more.var(-1)) and np.allclose(variance(x=more, backend=backend), more.var(-1))


def test_a_schedule_found_since_is_used(variance, rng):
    x = rng.normal(size=(4, 3000)).astype(np.float32)
    expected = variance(x, backend="cpu")
    (plan,) = [known.plan for known in variance._calls.known.values() if known.plan.sizes == {"l": 3000}]
    wanted = Schedule(plan.schedule.tile // 2)
    schedules.keep(schedules.key_of(plan.compiled.title, plan.sizes, 4), wanted, 0.0)
    plan.compiled.schedules.clear()
    assert np.allclose(variance(x, backend="cpu"), expected)
    (plan,) = [known.plan for known in variance._calls.known.values() if known.plan.sizes == {"l": 3000}]
    assert plan.schedule == wanted


def test_a_word_that_is_gone_is_noticed(rng):
    x = rng.normal(size=9)
    with ra.declarations():
        cube = ra.function("cube", lambda a: a**3, laws=("cube(a * b) = cube(a) * cube(b)",))

        @ra.operator
        def cubes(x: "l"):
            return ra.sum(cube(x * ra.max(x, "l")), "l")

        fused = ra.fuse(cubes)
        assert fused(x, backend="cpu") == fused(x, backend="cpu")
    with pytest.raises(ra.OperatorError, match="cube"):
        fused(x, backend="cpu")


def test_scalars_may_change_and_lengths_made_of_them_are_seen(best):
    x = np.array([4.0, 1.0, 3.0])
    for _ in range(2):
        assert [best(x, k=k, backend="cpu") for k in (1, 2, 3)] == [4, 7, 8]
        assert [best(x, scale=scale, backend="cpu") for scale in (1.0, np.float32(2), 3)] == [7, 14, 21]
        for k in (True, 4, 1.0):
            with pytest.raises(ra.OperatorError):
                best(x, k=k, backend="cpu")


def test_mistakes_stay_mistakes(variance, rng):
    x = rng.normal(size=(2, 4)).astype(np.float32)
    variance(x, backend="cpu")
    for arrays, named in (((np.ma.masked_array(x, x > 0),), {}), ((x, x), {}), ((x,), {"y": x}), ((x,), {"x": x}), ((), {})):
        with pytest.raises(ra.OperatorError):
            variance(*arrays, **named, backend="cpu")


def test_a_tensor_that_is_followed_by_torch_is_told_to_be_detached(variance):
    class Followed:
        def detach(self):
            """What torch's tensors have."""

        def __array__(self, *how, **more):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    with pytest.raises(ra.OperatorError, match="detach"):
        variance(Followed())


def test_out_is_checked_at_every_call_and_filled(variance, rng):
    x, right = rng.normal(size=(2, 5)).astype(np.float32), None
    protected = np.empty(2, np.float32)
    protected.flags.writeable = False
    for _ in range(2):
        for out in (np.empty(3, np.float32), protected, np.empty(2, np.int32), [0.0, 0.0], (np.empty(2), np.empty(2))):
            with pytest.raises(ra.OperatorError, match="out"):
                variance(x, backend="cpu", out=out)
        right = variance(x, backend="cpu")
        for out in (np.zeros(2, np.float32), np.zeros(2), np.zeros(4, np.float32)[::2]):
            assert variance(x, backend="cpu", out=out) is out and np.array_equal(out, right.astype(out.dtype))


@pytest.mark.parametrize("backend", ["cpu", "numpy"])
def test_out_may_lie_on_what_is_read(backend, rng):
    """As with NumPy's own functions, the result is that of arrays apart."""
    (softmax, attention), memory = (ra.fuse(ra.operators[name]) for name in ("softmax", "attention")), np.zeros(207)
    x, beside = memory[:200].reshape(4, 50), memory[7:].reshape(4, 50)
    x[:] = rng.normal(size=x.shape)
    right = softmax(x.copy(), backend="reference")
    assert np.allclose(softmax(x, backend=backend, out=beside), right, rtol=1e-9)
    arrays = [rng.normal(size=(400, 4)) for _ in "QKV"]
    right = attention(*arrays, backend="reference")
    for place in range(3):
        copies = [array.copy() for array in arrays]
        assert np.allclose(attention(*copies, backend=backend, out=copies[place]), right, rtol=1e-9)


def test_whole_numbers_beyond_those_of_floats_are_told_apart():
    """As moments in nanoseconds are: 2⁵³ and 2⁵³ + 1 are one number in float64."""
    for text in ("last(x[l]): argmax(x, l)", "last(x[l]): argmin(1 - x, l)"):
        last = ra.fuse(ra.parse_operator(text))
        for dtype in (np.int64, np.uint64):
            x = np.arange(8, dtype=dtype) + 2**53 + 1
            assert [*ra.fuse(ra.parse_operator("two(x[l]): argtopk(x, l, 2)")).stream().update(x[:1]).update(x[1:]).result()] == [7, 6]
            assert dtype is np.uint64 and "-" in text or [last(x, backend=backend) for backend in ("cpu", "numpy", "auto")] == [7] * 3
    kernel = ra.fuse(ra.parse_operator("first(x[l]): argmax(x, l)")).kernel("cpu", dtype="int64")
    assert [int(kernel(small)) for small in ([2**53 - 1, 2**53], [-(2**53), 3], np.array([1, 2], np.int8))] == [1, 1, 1]
    for beyond in ([2**53, 2**53 + 1], [0, -(2**53) - 1], np.array([2**64 - 1, 0], np.uint64)):
        with pytest.raises(ra.OperatorError, match="beyond 2⁵³ in x"):
            kernel(beyond)


def test_two_outputs_do_not_share_memory():
    both, out, memory = ra.fuse(ra.parse_operator("both(x[l]): (x - max(x, l), x + max(x, l))")), np.empty(3), np.empty(6)
    with pytest.raises(ra.OperatorError, match="the same memory"):
        both([1.0, 2.0, 3.0], out=(out, out))
    assert [*map(list, both([1.0, 2.0, 3.0], out=(memory[::2], memory[1::2])))] == [[-2, -1, 0], [4, 5, 6]]


def test_no_more_is_remembered_than_fits(variance, monkeypatch):
    monkeypatch.setattr("redfuser_algebra.run.repeated_calls.MOST", 3)
    for length in range(2, 9):
        variance(np.arange(length, dtype=np.float32), backend="cpu")
    assert len(variance._calls.known) == 3
