"""Every array that NumPy can make is an argument: dtypes, layouts, batches, lists, and what is refused."""

import numpy as np
import pytest
import redfuser_algebra as ra
from redfuser_algebra.catalogue import operators
from redfuser_algebra.run.rounding import rounded

NAMES = ("softmax", "variance", "argmax_argmin", "count_max", "topk_mean_fixed", "weighted_variance", "attention")
FLOATS = ("float16", "float32", "float64", ">f4", ">f8", "longdouble")
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.fixture(scope="module")
def fused():
    return {name: ra.fuse(operators[name]) for name in NAMES}


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def small_whole_numbers(fused, rng, batch=()):
    """Arguments that every format holds exactly."""
    sizes = {"l": 9, "m": 3, "k": 4, "j": 2}
    return {name: rng.integers(0, 8, batch + tuple(sizes[axis] for axis in axes)).astype(float)
            for name, axes in fused.operator.inputs.items()}


def all_ways(fused, given):
    """The results of the form and of the operator as written, in NumPy, and of a stream in two pieces."""
    stream = fused.stream()
    for piece in (slice(0, 4), slice(4, None)):
        stream.update(**{name: np.asarray(value)[_along(fused, name, piece)] for name, value in given.items()})
    return outputs(fused(**given, backend="numpy")), outputs(fused(**given, backend="reference")), outputs(stream.result())


def _along(fused, name, piece):
    axes = fused.operator.inputs[name]
    after = len(axes) - axes.index("l") - 1 if "l" in axes else 0
    return (..., piece, *[slice(None)] * after) if "l" in axes else ...


def assert_same(got, expected):
    for way in got:
        for value, right in zip(way, expected, strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-12, atol=1e-13, strict=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_computed_in_float64_and_rounded_once(fused, name, dtype, rng):
    given = small_whole_numbers(fused[name], rng)
    expected = outputs(fused[name](**given, backend="numpy"))
    kept = np.dtype(np.float32 if np.dtype(dtype).itemsize <= 4 else np.float64)
    for way in all_ways(fused[name], {key: value.astype(dtype) for key, value in given.items()}):
        for value, right in zip(way, expected, strict=True):
            assert value.dtype == (kept if right.dtype.kind == "f" else right.dtype)
            unit = 1e-12 if kept == np.float64 else 2.0**-23
            np.testing.assert_allclose(value, right, rtol=unit, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_do_not_wrap(fused, name, dtype, rng):
    given = small_whole_numbers(fused[name], rng)
    given = {key: value + 100 if key == "x" else value for key, value in given.items()}
    expected = outputs(fused[name](**given))
    for way in all_ways(fused[name], {key: value.astype(dtype) for key, value in given.items()}):
        for value, right in zip(way, expected, strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [*WHOLE, "bool", "float16"])
@pytest.mark.parametrize("reduce", ["sum", "prod", "max", "min", "argmax", "any", "all"])
def test_result_types_are_numpys(reduce, dtype):
    @ra.operator
    def reduced(x: "l"):
        return getattr(ra, reduce)(x, "l")

    x = np.array([1, 0, 1, 1], dtype)
    # float16 is widened to float32: results are never narrower than that.
    right = getattr(np, reduce)(x.astype(np.float32) if dtype == "float16" else x)
    for way in all_ways(ra.fuse(reduced), {"x": x}):
        assert way[0] == right and way[0].dtype == right.dtype


def test_truth_values_have_no_difference(fused):
    with pytest.raises(ra.OperatorError, match="subtract of bool, bool.*multiply truth values by 1"):
        fused["softmax"]([True, False])
    with pytest.raises(ra.OperatorError, match="subtract of bool, bool"):
        fused["softmax"]([True, False], backend="reference")


@pytest.mark.parametrize("values", [[1j, 2.0], ["a", "b"], [None, 1.0], np.array(["2020-01-01"], "datetime64[D]")], ids=str)
def test_what_is_not_a_real_number_is_refused(fused, values):
    with pytest.raises(ra.OperatorError) as caught:
        fused["softmax"](values)
    assert caught.value.asked and caught.value.failed and caught.value.remedy


LAYOUTS = {
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "Fortran": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    "read-only": lambda a: np.lib.stride_tricks.as_strided(a, writeable=False),
    "nested lists": np.ndarray.tolist,
    "masked no more": lambda a: np.ma.masked_array(a).data,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_layouts_do_not_matter(fused, name, layout, rng):
    given = small_whole_numbers(fused[name], rng, batch=(2,))
    expected = outputs(fused[name](**given))
    before = {key: value.copy() for key, value in given.items()}
    assert_same(all_ways(fused[name], {key: LAYOUTS[layout](value) for key, value in given.items()}), expected)
    assert all((given[key] == before[key]).all() for key in given)


@pytest.mark.parametrize("name", NAMES)
def test_extra_dimensions_are_a_batch(fused, name, rng):
    """Broadcast as in NumPy: each batch element is a call of its own."""
    given = small_whole_numbers(fused[name], rng, batch=(2, 1))
    first = next(iter(given))
    given[first] = small_whole_numbers(fused[name], rng, batch=(3,))[first]
    batch = (3,) if len(given) == 1 else (2, 3)
    whole = all_ways(fused[name], given)
    for index in np.ndindex(*batch):
        one = {key: np.broadcast_to(value, batch + value.shape[value.ndim - len(fused[name].operator.inputs[key]):])[index]
               for key, value in given.items()}
        assert_same([[value[index] for value in way] for way in whole], [np.asarray(v) for v in outputs(fused[name](**one))])


@pytest.mark.parametrize("batch", [(0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_has_empty_results(fused, name, batch, rng):
    given = small_whole_numbers(fused[name], rng, batch)
    one = outputs(fused[name](**small_whole_numbers(fused[name], rng)))
    for way in all_ways(fused[name], given):
        assert [value.shape for value in way] == [batch + np.shape(value) for value in one]


@pytest.mark.parametrize("scale", [0.5, np.float32(0.5), np.array(0.5), np.array(0.5, np.float16)], ids=repr)
def test_scalars_may_be_arrays_without_dimensions(fused, scale, rng):
    given = small_whole_numbers(fused["attention"], rng)
    expected = outputs(fused["attention"](**given, scale=0.5))
    assert_same([outputs(fused["attention"](**given, scale=scale))], expected)


def test_a_result_is_the_callers_own(fused):
    x = np.array([1.0, 2.0])
    y = fused["softmax"](x)
    y[:] = 7
    assert x.tolist() == [1.0, 2.0] and fused["softmax"](x).tolist() != y.tolist()


def test_the_largest_whole_numbers_stay_exact():
    @ra.operator
    def largest(x: "l"):
        return ra.max(x, "l"), ra.argmin(x, "l"), ra.sum(x, "l")

    ends = np.array([2**64 - 1, 2**63], np.uint64)
    assert ra.fuse(largest)(ends)[:2] == (2**64 - 1, 1)
    lows = np.array([-(2**63), 2**63 - 1])
    assert ra.fuse(largest)(lows) == (2**63 - 1, 0, -1)


def test_a_cast_in_an_operator_rounds_and_what_follows_is_wide():
    @ra.operator
    def rounded_sum(x: "l"):
        return ra.sum(ra.cast(x, "float16"), "l")

    x = np.array([1 / 3, 2049.0])
    assert ra.fuse(rounded_sum)(x) == rounded(x, "float16").sum() == np.float64(np.float16(1 / 3)) + 2048.0
