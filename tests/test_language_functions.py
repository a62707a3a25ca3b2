"""The front-door functions: what they mean, next to NumPy, and what they refuse."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, call
from redfuser_algebra.language.operator import define
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.rounding import CASTS

X = Expr("input", (), ("x", ("b", "l")))
Y = Expr("input", (), ("y", ("b", "l")))
K = Expr("param", (), ("k",))


def value(result, x, y=None, k=2):
    """What expressions over X, Y and k are for these arrays."""
    inputs = {"x": ("b", "l")} | ({} if y is None else {"y": ("b", "l")})
    op = define("f", inputs, {"k": k}, result)
    return reference(op, op.bind(x, *([] if y is None else [y])))


ELEMENTWISE = {
    **{name: getattr(np, name) for name in "exp exp2 expm1 log log2 log1p sqrt abs sign sin cos tanh arctan".split()},
    **{name: getattr(np, name) for name in "floor ceil isnan reciprocal square round".split()},
    "erf": np.vectorize(math.erf), "relu": lambda a: np.maximum(a, 0),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "clip": lambda a: np.clip(a, None, None),
}
BINARY = {name: getattr(np, name) for name in "maximum minimum power arctan2 divide".split()} | {"logadd": np.logaddexp}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions_are_numpy_s(name, rng):
    x = rng.uniform(0.1, 3, (2, 5))
    np.testing.assert_allclose(value(getattr(ra, name)(X), x), ELEMENTWISE[name](x), rtol=1e-14)


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_take_their_operands_in_order(name, rng):
    x, y = rng.uniform(0.1, 3, (2, 2, 5))
    np.testing.assert_allclose(value(getattr(ra, name)(X, Y), x, y), BINARY[name](x, y), rtol=1e-14)


@pytest.mark.parametrize("name", "sum prod max min any all mean var std argmax argmin".split())
def test_reductions_are_numpy_s(name, rng):
    x = rng.integers(0, 2, (3, 5)) if name in ("any", "all") else rng.standard_normal((3, 5))
    np.testing.assert_allclose(value(getattr(ra, name)(X, "l"), x), getattr(np, name)(x, axis=1), rtol=1e-12)
    np.testing.assert_allclose(value(getattr(ra, name)(X, "b"), x), getattr(np, name)(x, axis=0), rtol=1e-12)


@pytest.mark.parametrize("axis, dims", [("l", (1,)), ("b", (0,)), ("b l", (0, 1))])
def test_softmax_and_logsumexp_are_about_the_largest_element(axis, dims, rng):
    x = 1000 + rng.standard_normal((3, 5))
    weights = np.exp(x - x.max())
    np.testing.assert_allclose(value(ra.softmax(X, axis), x), weights / weights.sum(dims, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(value(ra.logsumexp(X, axis), x), np.log(weights.sum(dims)) + x.max(), rtol=1e-12)


@pytest.mark.parametrize("name", "sum prod mean var std any all".split())
def test_masked_elements_take_no_part(name, rng):
    x = rng.standard_normal((3, 6))
    x[:, 0] = np.nan
    mask = np.ones((3, 6), dtype=bool)
    mask[:, 0] = mask[1, 3] = False
    got = value(getattr(ra, name)(X, "l", where=Y), x, mask)
    np.testing.assert_allclose(got, getattr(np, name)(x, axis=1, where=mask), rtol=1e-12)


@pytest.mark.parametrize("name", "sum prod max min any all mean var std".split())
@pytest.mark.parametrize("axis", ["b l", ("l", "b"), ["b", "l"]])
def test_several_axes_at_once(name, axis, rng):
    x = rng.standard_normal((3, 5))
    np.testing.assert_allclose(value(getattr(ra, name)(X, axis), x), getattr(np, name)(x), rtol=1e-12)


def test_a_mask_over_some_of_the_axes(rng):
    x, rows = rng.standard_normal((3, 5)), ra.index("b") < 2
    np.testing.assert_allclose(value(ra.mean(X, "b l", where=rows), x), x[:2].mean(), rtol=1e-12)
    np.testing.assert_allclose(value(ra.var(X, "l", where=rows), x)[:2], x[:2].var(axis=1), rtol=1e-12)


@given(st.integers(0, 2), st.integers(3, 6))
def test_var_divides_by_n_minus_ddof(ddof, length):
    x = np.arange(length * 2.0).reshape(2, length) ** 2
    np.testing.assert_allclose(value(ra.var(X, "l", ddof=ddof), x), x.var(axis=1, ddof=ddof), rtol=1e-12)


def test_count_counts_the_mask(rng):
    x = rng.standard_normal((3, 5))
    np.testing.assert_array_equal(value(ra.count(X > 0, "l"), x), (x > 0).sum(axis=1))
    assert ra.count(X > 0, "l") is ra.sum(1, "l", where=X > 0)


def test_topk_gives_values_and_positions_largest_first(rng):
    x = rng.standard_normal((3, 5))
    values, indices = value(tuple(ra.topk(X, "l", K)), x)
    order = np.argsort(-x, axis=1)[:, :2]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    assert ra.argtopk(X, "l", K) is ra.topk(X, "l", K).indices


def test_order_statistics_are_those_of_numpy(rng):
    for length in (1, 2, 7, 8):
        x = np.round(rng.standard_normal((3, length)), 1)
        got = value((ra.sort(X, "l"), ra.argsort(X, "l"), ra.median(X, "l"), ra.quantile(X, "l", 0.3), ra.quantile(X, "l", 1)), x)
        want = (np.sort(x), np.argsort(x, kind="stable"), np.median(x, 1), np.quantile(x, 0.3, 1), x.max(1))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, 1e-12)
    assert ra.sort(X, "l", "t").axes == ("b", "t") and ra.topk(X, "l", ra.size("l") // 2).values.axes == ("b", "top")


def test_topk_names_its_axis():
    inner = ra.topk(X, "l", 3).values
    assert inner.axes == ("b", "top") and inner.count.value == 3
    assert ra.topk(inner, "b", 2).values.axes == ("top", "top2")
    assert ra.topk(ra.sum(inner, "top"), "b", 2).values.axes == ("top2",), "the name stays taken after a reduction"
    assert ra.topk(X, "l", 3, name="best").values.axes == ("b", "best")
    assert ra.topk(X, "l", 3, where=Y > 0).values.mask is (Y > 0)


def test_take_reads_one_position(rng):
    x = rng.standard_normal((3, 5))
    np.testing.assert_array_equal(value(ra.take(X, ra.argmax(X, "l"), "l"), x), x.max(axis=1))
    np.testing.assert_array_equal(value(ra.take(X, 7, "l"), x), np.zeros(3))


def test_divide_is_total_where_asked(rng):
    x = rng.standard_normal((3, 5))
    y = np.where(x > 0, x, 0)
    np.testing.assert_array_equal(value(ra.divide(X, Y, where_zero=-1), x, y), np.where(x > 0, 1.0, -1.0))
    assert ra.divide(X, Y) is X / Y


def test_sigmoid_does_not_overflow():
    x = np.array([[-1e300, -800.0, 0.0, 800.0, np.inf]])
    np.testing.assert_array_equal(value(ra.sigmoid(X), x), [[0, 0, 0.5, 1, 1]])


def test_clip_bounds_each_side(rng):
    x = rng.standard_normal((3, 5))
    np.testing.assert_array_equal(value(ra.clip(X, -0.5, 1), x), np.clip(x, -0.5, 1))
    np.testing.assert_array_equal(value(ra.clip(X, high=0), x), np.minimum(x, 0))
    np.testing.assert_array_equal(value(ra.clip(X, low=0), x), np.maximum(x, 0))


def test_index_and_size_speak_of_axes():
    x = np.zeros((3, 5))
    np.testing.assert_array_equal(value(X * 0 + ra.index("l"), x), np.tile(np.arange(5), (3, 1)))
    assert value(ra.size("l") + 0 * ra.sum(X, "b l"), x) == 5
    assert value(ra.size("b l") + 0 * ra.sum(X, "b l"), x) == 15


def test_rounding_says_whether_it_may_move():
    assert ra.round(X).attrs == (False,) and call("round", X) is ra.round(X) and ra.round(X, reassociate=True).attrs == (True,)
    assert ra.cast(X, np.float16).attrs == ("float16", False)
    assert ra.cast(X, "bfloat16", reassociate=True).attrs == ("bfloat16", True)
    assert set(ra.CASTS) == set(CASTS), "what can be written is what can be computed"


def test_nothing_is_simplified():
    assert (X + 0) is not X and (X * 1) is not X and ra.exp(0.0).op == "exp"


def test_functions_show_their_parameters():
    assert str(inspect.signature(ra.where)) == "(condition, a, b, /)"
    assert ra.exp.__name__ == "exp" and "exp(a)" in ra.exp.__doc__


REFUSED = {
    "a missing axis": (lambda: ra.sum(X, "z"), 'sum over axis "z"', "has the axes b, l", 'ra.size("z")'),
    "a constant": (lambda: ra.max(1, "l"), 'max over axis "l"', "has no axes", 'ra.size("l")'),
    "a missing axis of several": (lambda: ra.mean(X, "l z"), 'sum over axis "z"', "has the axes b, l", "reduce over"),
    "a missing axis of take": (lambda: ra.take(X, 0, "z"), 'take over axis "z"', "has the axes b, l", "reduce over"),
    "an axis that is no name": (lambda: ra.sum(X, 1), "an axis 1", "does not name", 'such as "l"'),
    "no axis": (lambda: ra.sum(X, ""), "an axis ''", "does not name", 'such as "l"'),
    "an axis twice": (lambda: ra.sum(X, "l l"), "an axis 'l l'", "different", 'such as "l"'),
    "argmax of several axes": (lambda: ra.argmax(X, "b l"), "argmax over the axes b, l", "one axis", "ra.max takes"),
    "argmin of several axes": (lambda: ra.argmin(X, "b l"), "argmin over the axes b, l", "one axis", "ra.min takes"),
    "topk as torch has it": (lambda: ra.topk(X, 2, "l"), "the axis 2 and k = 'l'", "the axis comes first", 'ra.topk(x, "l", 2)'),
    "topk of several axes": (lambda: ra.topk(X, "b l", 2), "topk over the axes b, l", "one axis", "at a time"),
    "k = 0": (lambda: ra.topk(X, "l", 0), "the 0 largest", "at least 1", "k: int"),
    "k = 2.0": (lambda: ra.topk(X, "l", 2.0), "the 2.0 largest", "whole number", "k: int"),
    "k = True": (lambda: ra.topk(X, "l", True), "the True largest", "whole number", "k: int"),
    "k with axes": (lambda: ra.topk(X, "l", Y), "the y[b, l] largest", "parameter", "k: int"),
    "a taken name": (lambda: ra.topk(X, "l", 2, name="b"), 'name="b"', 'has an axis "b"', "name of its own"),
    "a taken name, masked": (
        lambda: ra.topk(X, "l", 2, ra.index("l") > 0, "b"), 'name="b"', 'has an axis "b"', "name of its own"),
    "a name the mask has": (
        lambda: ra.topk(X, "l", 2, ra.index("m") > 0, "m"), 'name="m"', 'has an axis "m"', "name of its own"),
    "an array": (lambda: ra.exp(np.ones(3)), "built with ndarray", "not an expression", "inputs of the operator"),
    "text": (lambda: X + "1", "built with str", "not an expression", "inputs of the operator"),
    "a complex number": (lambda: X * 1j, "built with complex", "real number", "inputs of the operator"),
    "a NumPy complex number": (lambda: X * np.complex64(1), "built with complex64", "real number", "inputs"),
    "a mask that is no expression": (lambda: ra.sum(X, "l", where="yes"), "built with str", "real number", "inputs"),
    "an unknown format": (lambda: ra.cast(X, "float7"), "cast to 'float7'", "no such number format", "float16"),
    "a complex format": (lambda: ra.cast(X, complex), "cast to", "no such number format", "float16"),
    "too few operands": (lambda: ra.where(X, 1), "where of 2 operands", "takes 3", "ra.where(condition, a, b)"),
    "a truth value": (lambda: bool(X > 0), "a truth value", "Python's `if`", "ra.where"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_was_asked_what_failed_and_what_to_try(case):
    attempt, asked, failed, remedy = REFUSED[case]
    with pytest.raises(OperatorError) as caught:
        attempt()
    assert asked in caught.value.asked and failed in caught.value.failed and remedy in caught.value.remedy, caught.value
