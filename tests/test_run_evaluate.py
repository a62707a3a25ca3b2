"""Expressions in NumPy: against loops over the elements that take part, and against NumPy written out."""

import tracemalloc
import warnings

import numpy as np
import pytest
import redfuser_algebra.language.functions as ra
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, call, const
from redfuser_algebra.language.operator import operator
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.evaluate import evaluate
from redfuser_algebra.run.reference import reference
from redfuser_algebra.run.rounding import CASTS, FORMATS, rounded
from redfuser_algebra.run.tolerance import TOLERANCE, agree

SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
VALUES = st.one_of(st.floats(-100, 100), SPECIAL)
X, W = (Expr("input", (), (name, ("l",))) for name in "xw")


def along_l(**vectors):
    """An environment of one axis l."""
    length = len(next(iter(vectors.values())))
    return Environment(("l", "top"), {"l": length}, {name: np.reshape(v, (-1, 1)) for name, v in vectors.items()})


def computed(function, *args, **named):
    """The operator that a function describes, applied to arrays, with warnings as errors."""
    described = operator(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return reference(described, described.bind(*args, **named))


def first_best(values, better):
    """The position that numpy.argmax would give: the first NaN, else the first of the best."""
    for position, value in values:
        if np.isnan(value):
            return position
    return next((p for p, v in values if all(v == u or better(v, u) for _, u in values)), -1)


def sorted_best(values):
    """(position, value) with NaN first, then the largest, ties at the lowest position."""
    return sorted(values, key=lambda pair: (not np.isnan(pair[1]), 0 if np.isnan(pair[1]) else -pair[1], pair[0]))


ORACLES = {
    "sum": lambda v: np.sum([x for _, x in v]),
    "prod": lambda v: np.prod([x for _, x in v]),
    "max": lambda v: np.max([x for _, x in v], initial=-np.inf),
    "min": lambda v: np.min([x for _, x in v], initial=np.inf),
    "any": lambda v: any(x != 0 for _, x in v),
    "all": lambda v: all(x != 0 for _, x in v),
    "argmax": lambda v: first_best(v, lambda a, b: a > b),
    "argmin": lambda v: first_best(v, lambda a, b: a < b),
    "topk": lambda v: ([x for _, x in sorted_best(v)[:2]] + [-np.inf] * 2)[:2],
    "argtopk": lambda v: ([p for p, _ in sorted_best(v)[:2]] + [-1] * 2)[:2],
}


@given(st.sampled_from(sorted(ORACLES)), st.lists(st.tuples(VALUES, st.booleans()), min_size=2, max_size=9))
def test_a_masked_reduction_sees_only_its_elements(monoid, elements):
    values, mask = map(np.array, zip(*elements, strict=True))
    operands = (X, W, const(2)) if "top" in monoid else (X, W)
    got = evaluate(Expr("reduce", operands, (monoid, "l", "top" if "top" in monoid else "")), along_l(x=values, w=mask))
    with np.errstate(all="ignore"):
        expected = ORACLES[monoid]([(p, v) for p, (v, taken) in enumerate(elements) if taken])
    assert agree(got.reshape(-1), np.reshape(expected, -1), scale=100)


@given(st.sampled_from(["sum", "prod", "max", "min", "argmax", "argmin"]), st.lists(VALUES, min_size=1, max_size=9))
def test_an_unmasked_reduction_is_numpys(monoid, values):
    got = evaluate(Expr("reduce", (X,), (monoid, "l", "")), along_l(x=np.array(values)))
    with np.errstate(all="ignore"):
        assert agree(got.reshape(()), getattr(np, monoid)(values), scale=100)


SHAPES = {"a": (4, 1, 5, 1), "b": (1, 3, 5, 1), "c": (4, 1, 1, 1), "d": (1, 1, 5, 2), "mask": (4, 1, 5, 1)}


@given(st.data(), st.sets(st.sampled_from("abcd"), min_size=1), st.booleans())
def test_a_sum_of_products_is_the_sum_of_the_outer_product(data, names, masked):
    axes = ("i", "j", "l", "k")
    values = {n: data.draw(arrays.arrays(float, SHAPES[n], elements=VALUES, fill=st.just(2.0)), n) for n in names}
    mask = data.draw(arrays.arrays(bool, SHAPES["mask"])) if masked else np.array(True)
    environment = Environment(axes, {"i": 4, "j": 3, "l": 5, "k": 2}, {**values, "mask": mask})
    inputs = [Expr("input", (), (n, tuple(a for a, s in zip(axes, SHAPES[n], strict=True) if s > 1))) for n in names]
    body, product = inputs[0], 1.0
    for factor in inputs[1:]:
        body = body * factor
    where = (Expr("input", (), ("mask", ("i", "l"))),) if masked else ()
    with np.errstate(all="ignore"):
        for term in inputs:
            product = product * values[term.name]
        terms = np.where(mask, np.broadcast_to(product, np.broadcast_shapes(np.shape(product), (1, 1, 5, 1))), 0.0)
        expected = terms.sum(axis=2, keepdims=True)
    got = evaluate(Expr("reduce", (body, *where), ("sum", "l", "")), environment)
    assert agree(*np.broadcast_arrays(got, expected), scale=1e8)


def test_a_matrix_product_needs_no_outer_product(rng):
    def product(Q: "m k", K: "l k", V: "l j", scale: float = 0.1):
        S = ra.sum(Q * K * scale, "k") / 3
        return ra.sum(ra.where(S > 0, S, 0) * V, "l", where=ra.index("l") <= ra.index("m"))

    Q, K, V = (rng.standard_normal((300, 300)) for _ in range(3))
    S = np.tril(np.maximum(Q @ K.T * 0.1 / 3, 0))
    tracemalloc.start()
    got = computed(product, Q, K, V)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert agree(got, S @ V, scale=100)
    assert peak < 300**3


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_mask_keeps_poison_out_of_a_matrix_product(poison, rng):
    def causal(P: "m l", V: "l j"):
        return ra.sum(P * V, "l", where=ra.index("l") <= ra.index("m"))

    P, V = rng.uniform(1, 2, (6, 6)), rng.standard_normal((6, 3))
    V[4] = poison
    got = computed(causal, P, V)
    assert agree(got[:4], (np.tril(P)[:4, :4] @ V[:4])) and not np.isfinite(got[4:]).any()


def test_attention_is_numpys(rng):
    def attention(Q: "m k", K: "l k", V: "l j", scale: float = 1.0) -> "j m":
        S = ra.sum(Q * K, "k") * scale
        P = ra.exp(S - ra.max(S, "l"))
        return ra.sum(P * V, "l") / ra.sum(P, "l")

    Q, K, V = rng.standard_normal((2, 1, 5, 4)), rng.standard_normal((3, 7, 4)), rng.standard_normal((7, 3))[::-1]
    S = Q @ np.swapaxes(K, -1, -2) * 0.5
    P = np.exp(S - S.max(-1, keepdims=True))
    assert agree(computed(attention, Q, K, V, scale=0.5), np.swapaxes(P @ V / P.sum(-1, keepdims=True), -1, -2))


def test_a_constant_is_summed_once_per_element():
    def counts(x: "l", w: "m"):
        return ra.count(x > 0, "l"), ra.sum(w, "m", where=ra.index("l") < 2), ra.sum(x * 0 + 2, "l")

    number, masked, twos = computed(counts, np.array([1.0, -1.0, 3.0]), np.array([5.0, 7.0]))
    assert (number, masked.tolist(), twos) == (2, [12.0, 12.0, 0.0], 6.0)
    plain = evaluate(Expr("reduce", (const(2.5),), ("sum", "l", "")), along_l(x=np.zeros(4)))
    assert plain.reshape(()) == 10.0


def test_dtypes_are_numpys():
    def several(x: "l"):
        return ra.sum(x, "l"), ra.mean(x, "l"), ra.max(x, "l"), ra.max(x, "l", where=x > 0), ra.sum(x > 0, "l")

    kinds = {np.int32: ("int64", "float64", "int32", "float64", "int64"), np.float16: ("float64",) * 4 + ("int64",)}
    for dtype, expected in kinds.items():
        got = computed(several, np.array([1, 2], dtype))
        assert tuple(value.dtype.name for value in got) == expected
        assert all(isinstance(value, np.generic) for value in got)


def test_whole_numbers_to_negative_powers_are_fractions():
    assert evaluate(ra.power(X, const(-1)), along_l(x=np.array([2, 4]))).reshape(-1).tolist() == [0.5, 0.25]
    assert evaluate(ra.power(X, const(2)), along_l(x=np.array([2, 4]))).dtype == np.int64


def test_an_axis_that_starts_later():
    x = np.array([3.0, 9.0, 1.0])
    environment = Environment(("l",), {"l": 3}, {"x": x}, starts={"l": 10}, lengths={"l": 13})
    best, last, size = evaluate([ra.argmax(X, "l"), ra.max(ra.index("l"), "l"), ra.size("l")], environment)
    assert (best.item(), last.item(), size.item()) == (11, 12, 13)


def test_a_shared_subterm_is_evaluated_once():
    doubled = X
    for _ in range(190):
        doubled = doubled + doubled
    assert evaluate(doubled, along_l(x=np.ones(1))).item() == 2.0**190


def test_partial_operations_replace_the_total_twins():
    x = np.array([-np.inf])
    term = call("shift", X, X)
    assert evaluate(term, along_l(x=x)).item() == 0
    environment = Environment(("l", "top"), {"l": 1}, {"x": x.reshape(1, 1)}, partial=True)
    assert np.isnan(evaluate(term, environment).item())


@pytest.mark.parametrize("expr, part", [
    (ra.max(X, "l"), "the axis is empty"),
    (ra.argmin(X, "l"), "the axis is empty"),
    (ra.topk(X, "l", 3, name="top").values, "the axis is empty"),
    (ra.topk(X, "l", 3, where=X > 0, name="top").indices, "only 0 elements"),
    (Expr("input", (), ("y", ())), "no input"),
    (Expr("size", (), ("q",)), "no input has this axis"),
    ((X > 0) - (X < 0), "no such operation"),
    (Expr("cast", (X,), ("float7", False)), "no such number format"),
])
def test_errors_name_what_was_asked_what_failed_and_a_remedy(expr, part):
    with pytest.raises(OperatorError) as caught:
        evaluate(expr, along_l(x=np.zeros(0)))
    assert part in caught.value.failed and caught.value.asked and caught.value.remedy


@pytest.mark.parametrize("expr, value", [
    (ra.max(X, "l", where=X > 0), -np.inf), (ra.min(X, "l", where=X > 0), np.inf), (ra.argmax(X, "l", where=X > 0), -1),
    (ra.sum(X, "l"), 0), (ra.prod(X, "l"), 1), (ra.any(X, "l"), False), (ra.all(X, "l"), True),
])
def test_nothing_is_the_identity(expr, value):
    assert evaluate(expr, along_l(x=np.zeros(0))).item() == value


def table(name):
    """Every finite nonnegative value of a format, by decoding its bits: even indices have an even last bit."""
    bits, exponent_bits, bias, last = {
        "bfloat16": (15, 8, 127, 0x7F7F), "float8_e4m3": (7, 4, 7, 0x7E), "float8_e5m2": (7, 5, 15, 0x7B)}[name]
    mantissa_bits = bits - exponent_bits
    code = np.arange(last + 1)
    exponent, mantissa = code >> mantissa_bits, (code & ((1 << mantissa_bits) - 1)) / 2.0**mantissa_bits
    return np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_casts_choose_the_nearest_value_and_even_ones_at_ties(name, rng):
    values = table(name)
    middle = (values[1:] + values[:-1]) / 2
    even = np.where(np.arange(len(middle)) % 2 == 0, values[:-1], values[1:])
    assert (rounded(middle, name) == even).all() and (rounded(-middle, name) == -even).all()
    assert (rounded(np.nextafter(middle, 0), name) == values[:-1]).all()
    assert (rounded(np.nextafter(middle, np.inf), name) == values[1:]).all()
    assert (rounded(values, name) == values).all()
    beyond = values[-1] if name == "float8_e4m3" else np.inf
    # One half step beyond the largest still rounds to it or, at the tie, to the even value after it.
    above = values[-1] + (values[-1] - values[-2]) * 0.51
    assert (rounded(np.array([above, np.inf, -np.inf]), name) == [beyond, beyond, -beyond]).all()
    assert np.isnan(rounded(np.array([np.nan]), name)).all() and np.signbit(rounded(np.array([-0.0]), name)).all()


def test_every_cast_that_can_be_written_can_be_computed():
    assert set(CASTS) == set(ra.CASTS)


def test_casts_to_numpy_types():
    x = np.array([0.5, 1.5, -2.5, 127.6, -1e30, 1e30, np.nan, np.inf])
    assert rounded(x, "int8").tolist() == [0, 2, -2, 127, -128, 127, 0, 127]
    assert rounded(x, "uint8").tolist() == [0, 2, 0, 128, 0, 255, 0, 255]
    assert rounded(x, "int64").tolist()[-4:] == [-(2**63), 2**63 - 1, 0, 2**63 - 1]
    assert rounded(x, "uint64").tolist()[-3:] == [2**64 - 1, 0, 2**64 - 1]
    assert rounded(np.array([-7, 300]), "int8").tolist() == [-7, 127]
    assert rounded(np.array([1 + 2.0**-11, 1e9]), "float16").tolist() == [1.0, np.inf]
    assert rounded(np.array([1 + 2.0**-30]), "float32").dtype == np.float64
    assert rounded(x, "bool").all()


def test_agreement_is_strict_about_shapes_infinities_and_nan():
    assert agree([1.0, np.nan, np.inf], [1 + 1e-12, np.nan, np.inf])
    for a, b in [([1.0], 1.0), (np.inf, -np.inf), (np.nan, 1.0), (1.0, 1.0001), (np.inf, 1e308)]:
        assert not agree(a, b)
    assert agree(1e-13, 0.0) and not agree(1e-9, 0.0) and agree(1e-9, 0.0, scale=1e6)
    assert not agree(2**60, 2**60 + 1, "int64")
    assert set(FORMATS) < set(TOLERANCE)
