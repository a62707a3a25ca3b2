"""One rule for the dtypes of results: NumPy, streams, the reference and kernels give the same, whatever the arrays are."""

import numpy as np
import pytest
import redfuser_algebra as ra
from lowered import inputs, parts, verdict

from redfuser_algebra.catalogue import operators
from redfuser_algebra.run.dtypes import real_dtype, result_dtypes

REAL = [(("float32",), "float32"), (("float16",), "float32"), (("float64",), "float64"), (("float32", "float64"), "float64"),
        (("float32", "int64", "bool"), "float32"), (("int32",), "float64"), ((), "float64")]


@pytest.mark.parametrize(("given", "right"), REAL)
def test_the_rule_for_real_results(given, right):
    assert real_dtype(map(np.dtype, given)) == right


@ra.operator
def chosen(x: "l", n: "l"):
    return {"most": ra.max(n, "l"), "total": ra.sum(n, "l"), "where": ra.argmax(x, "l"), "any": ra.any(x > 0, "l"), "mean": ra.mean(x, "l"),
            "weighed": ra.sum(x * n, "l")}


@pytest.mark.parametrize("x", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("n", ["int8", "uint8", "int32", "int64", "uint32", "bool"])
def test_numpy_the_stream_and_the_reference_follow_it(x, n):
    arrays = {"x": np.array([1, 3, 2], x), "n": np.array([1, 0, 1], n)}
    fused = ra.fuse(chosen)
    found = [fused(**arrays), fused(**arrays, backend="reference"), fused(**arrays, backend="numpy"), fused.stream().update(**arrays).result()]
    real = np.dtype("float32" if x in ("float16", "float32") else "float64")
    whole = [np.max(arrays["n"]).dtype, np.sum(arrays["n"]).dtype if n != "bool" else np.dtype(np.int64), np.dtype(np.int64), np.dtype(bool)]
    for each in found:
        assert [value.dtype for value in parts(each)] == [*whole, real, np.dtype(np.int64) if x == "int32" else real]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_operator_has_the_dtypes_of_the_rule(dtype):
    for name in ("softmax", "argmax_argmin", "moe_routing", "cross_entropy_hard", "all_any_constant"):
        arrays = {key: value.astype(dtype) if getattr(value, "dtype", None) == np.float64 else value for key, value in inputs(name, 12).items()}
        fused, binding = verdict(name).fused, operators[name].bind(**arrays)
        right = result_dtypes(operators[name], {key: array.dtype for key, array in binding.arrays.items()}, binding.params)
        for backend in ("numpy", "reference"):
            assert tuple(value.dtype for value in parts(fused(**arrays, backend=backend))) == right


def test_a_wider_chunk_widens_a_stream():
    fused = verdict("softmax").fused
    stream = fused.stream().update(np.ones(2, np.float32))
    assert stream.result().dtype == np.float32
    assert stream.merge(fused.stream().update(np.ones(2))).result().dtype == np.float64


def test_a_result_too_large_for_its_dtype_is_infinite_without_a_warning():
    x = np.array([2e19, 8e19], np.float32)
    assert ra.fuse(ra.operators["variance"])(x) == np.inf


def test_out_is_written_and_returned(rng):
    x, y = rng.normal(size=(3, 9)).astype(np.float32), np.empty((3, 9), np.float32)
    fused = verdict("softmax").fused
    assert fused(x, out=y, backend="numpy") is y and np.array_equal(y, fused(x, backend="numpy"))
    for wrong in (np.empty((3, 8), np.float32), (y, y)):
        with pytest.raises(ra.OperatorError, match="out"):
            fused(x, out=wrong, backend="numpy")
