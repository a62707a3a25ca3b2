"""Forms over dask arrays: any chunks give the operator's value, and every scheduler gives the same bits."""

import os
import sys

import numpy as np
import pytest
import redfuser_algebra as ra
from lowered import verdict

da = pytest.importorskip("dask.array", reason="the extra `dask` is not installed")

from redfuser_algebra.catalogue import ENTRIES  # noqa: E402

RNG = np.random.default_rng(3)


def fused(name):
    return verdict(name).fused


def chunked(array, rng):
    """The array in chunks of random sizes along every dimension."""
    def sizes(length):
        cuts = sorted(rng.choice(np.arange(1, length), size=min(length - 1, int(rng.integers(0, 4))), replace=False)) if length > 1 else []
        return tuple(int(n) for n in np.diff([0, *cuts, length]))

    return da.from_array(array, chunks=tuple(map(sizes, array.shape)))


def parts(value):
    return value if isinstance(value, tuple) else tuple(value.values()) if isinstance(value, dict) else (value,)


def given_to(name, length, rng):
    given = ENTRIES[name].inputs(rng, length)
    arrays = {key: chunked(np.asarray(value, float), rng) if key in ra.operators[name].inputs else value for key, value in given.items()}
    return given, arrays


FUSED = [name for name, row in ENTRIES.items() if row.verdict != "not fusable" and row.reason != "rounding"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if place % 8 == 0 else pytest.mark.slow) for place, name in enumerate(FUSED)])
def test_any_chunks_give_the_value(name):
    found = fused(name)
    if found is None:
        pytest.skip("no form is known")
    given, arrays = given_to(name, 23 + ENTRIES[name].shortest, np.random.default_rng(5))
    want = found(**given, backend="reference")
    if found.form.prefixes or not found.form.merges:
        with pytest.raises(ra.OperatorError, match="what came before each element" if found.form.merges else "is online"):
            found.dask(**arrays)
        return
    for got, right in zip(parts(found.dask(**arrays)), parts(want), strict=True):
        value = got.compute(scheduler="synchronous")
        assert got.shape == np.shape(right) == value.shape and got.dtype == value.dtype
        assert not np.isnan(got.size) and all(sum(c) == n for c, n in zip(got.chunks, got.shape, strict=True))
        np.testing.assert_allclose(np.asarray(value, float), np.asarray(right, float), 1e-8, 1e-9)


def attention_call(dtype=np.float64):
    Q, K, V = (RNG.standard_normal(shape).astype(dtype) for shape in ((2, 6, 4), (40, 4), (2, 40, 6)))
    arrays = da.from_array(Q, chunks=(1, 4, 3)), da.from_array(K, chunks=(7, 2)), da.from_array(V, chunks=(1, 9, 4))
    return (Q, K, V), arrays


def test_nothing_is_computed_before_it_is_asked_for_and_rows_stay_in_chunks():
    arrays, lazy = attention_call()
    result = fused("attention").dask(*lazy)
    assert isinstance(result, da.Array) and result.chunks == ((1, 1), (4, 2), (4, 2))
    np.testing.assert_allclose(result.compute(scheduler="synchronous"), fused("attention")(*arrays), 1e-12)


def test_every_scheduler_gives_the_same_bits_and_the_dtype_is_that_of_a_call():
    arrays, lazy = attention_call(np.float32)
    result = fused("attention").dask(*lazy)
    one = result.compute(scheduler="synchronous")
    assert one.dtype == result.dtype == fused("attention")(*arrays).dtype == np.float32
    np.testing.assert_array_equal(one, result.compute(scheduler="threads"))


def test_plain_arrays_and_batches_of_length_one_fit():
    f = fused("softmax")
    x = RNG.standard_normal((1, 3, 12))
    np.testing.assert_allclose(f.dask(x).compute(scheduler="synchronous"), f(x), 1e-12)


def test_a_mask_that_sees_positions_of_rows_and_of_the_axis():
    @ra.operator
    def causal(x: "m l"):
        return ra.sum(ra.exp(x), "l", where=ra.index("l") <= ra.index("m"))

    x = RNG.standard_normal((9, 9))
    result = ra.fuse(causal).dask(da.from_array(x, chunks=(2, 4)))
    assert result.numblocks == (5,)
    np.testing.assert_allclose(result.compute(scheduler="synchronous"), np.tril(np.exp(x)).sum(1), 1e-12)


@pytest.mark.parametrize("arrays, told", [
    (lambda: (np.zeros(3),), "missing"),
    (lambda: (np.zeros((3, 4)), np.zeros((5, 2)), np.zeros((6, 1))), "length"),
    (lambda: (np.zeros((3, 4)), da.from_array(np.zeros((5, 2)))[da.from_array(np.zeros(5)) > 1], np.zeros((5, 1))), "compute_chunk_sizes"),
    (lambda: (np.zeros(4), np.zeros((5, 4)), np.zeros((5, 1))), "too few dimensions")])
def test_arrays_that_do_not_fit(arrays, told):
    with pytest.raises(ra.OperatorError, match=told):
        fused("attention").dask(*arrays())


@pytest.mark.parametrize("name, told", [("ragged", "rectangular"), ("masked", "lose its mask"), ("lazy scalar", "not a real number")])
def test_operands_that_are_no_real_arrays_or_numbers_are_told_at_once(name, told):
    given = {"Q": np.zeros((3, 4)), "K": np.zeros((5, 4)), "V": np.zeros((5, 1))}
    given |= {"ragged": {"Q": [[1.0], [2.0, 3.0]]}, "masked": {"V": np.ma.masked_array(np.zeros((5, 1)), True)},
              "lazy scalar": {"scale": da.from_array(np.array(0.5))}}[name]
    for call in (fused("attention").dask, fused("attention")):
        with pytest.raises(ra.OperatorError, match=told):
            call(**given)


def test_a_top_k_may_choose_as_many_as_another_axis_is_long():
    @ra.operator
    def best(x: "m l"):
        return ra.topk(x, "l", ra.size("m"), name="t").values

    x = RNG.standard_normal((3, 10))
    result = ra.fuse(best, axis="l").dask(da.from_array(x, chunks=(2, 4)))
    assert result.shape == (3, 3)
    np.testing.assert_array_equal(result.compute(scheduler="synchronous"), -np.sort(-x)[:, :3])


def test_without_dask_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ra.OperatorError, match="dask is not installed"):
        fused("softmax").dask(np.zeros(3))


def dies_once(block, flag):
    """The block, but the first worker that sees it is killed."""
    if not os.path.exists(flag):
        open(flag, "w").close()
        os._exit(1)
    return block


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_four_processes_give_the_bits_of_one_and_a_killed_worker_loses_nothing(tmp_path):
    distributed = pytest.importorskip("distributed")
    _, (Q, K, V) = attention_call()
    flag = str(tmp_path / "killed")
    dying = K.map_blocks(dies_once, flag, dtype=K.dtype, meta=np.zeros((0, 0)))
    with distributed.LocalCluster(n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None,
                                  local_directory=str(tmp_path)) as cluster, distributed.Client(cluster) as client:
        got = client.compute(fused("attention").dask(Q, dying, V)).result(timeout=120)
    assert os.path.exists(flag)
    np.testing.assert_array_equal(got, fused("attention").dask(Q, K, V).compute(scheduler="synchronous"))
