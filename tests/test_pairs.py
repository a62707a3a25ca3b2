"""Sums over all pairs of elements of one array that are of finite rank: taken apart, they are sums over its elements."""
from __future__ import annotations

import numpy as np
import pytest

import redfuser_algebra as ra
from redfuser_algebra.discover.pairs import alone
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.run.reference import reference

K, L = ra.index("k"), ra.index("l")
TAKEN_APART = {
    "all products": lambda x, y: ra.sum(ra.sum(x * y, "k"), "l"),
    "products of those before": lambda x, y: ra.sum(ra.sum(x * y, "k", where=K < L), "l"),
    "products with those up to it": lambda x, y: ra.sum(ra.sum(ra.where(L >= K, x * y ** 2, 0), "k"), "l"),
    "mean square of differences": lambda x, y: ra.mean(ra.mean((x - y) ** 2, "k"), "l"),
    "squares of differences, each pair once": lambda x, y: ra.sum(ra.sum((y - x) ** 2, "k", where=L < K), "l"),
    "cubes of differences of all but itself": lambda x, y: ra.sum(ra.sum((x - y) ** 3 / (1 + x * x), "k", where=K != L), "l"),
    "fourth powers": lambda x, y: ra.sum(ra.sum((2 * x - 2 * y) ** 4, "k"), "l"),
    "cosines of differences": lambda x, y: ra.sum(ra.sum(ra.cos(x - y) + ra.sin(x + y), "k"), "l"),
    "pairs that are both positive": lambda x, y: ra.sum(ra.count((x > 0) & (y > 0), "k"), "l"),
    "products of positive ones": lambda x, y: ra.sum(ra.sum(x * y, "k", where=(x > 0) & (y > 0)), "l"),
    "farthest in squares": lambda x, y: ra.max(ra.sum((x - y) ** 2, "k"), "l"),
    "largest difference": lambda x, y: ra.max(ra.max(x - y - 1, "k"), "l"),
}
LEFT = {
    "differences from those before": lambda x, y: ra.sum(ra.sum(x - y, "k", where=K < L), "l"),
    "squares of positive differences": lambda x, y: ra.sum(ra.sum((x - y) ** 2, "k", where=x > y), "l"),
    "squares of differences of positive ones": lambda x, y: ra.sum(ra.sum((x - y) ** 2, "k", where=(x > 0) & (y > 0)), "l"),
    "exponentials": lambda x, y: ra.sum(ra.sum(ra.exp(x - y), "k"), "l"),
    "products of sums": lambda x, y: ra.sum(ra.max(x * y, "k"), "l"),
    "differences of the two": lambda x, y: ra.max(ra.sum((x - y) ** 2, "k", where=K != L), "l"),
}


def over_pairs(body):
    def formula(x: "l", y: "k" = "x"):
        return body(x, y)
    return ra.operator(formula)


@pytest.mark.parametrize("name", TAKEN_APART)
def test_sums_over_pairs_are_sums_over_elements(name, rng):
    """Far from 0, too: squares of small differences of large numbers keep their digits."""
    operator = over_pairs(TAKEN_APART[name])
    fused = ra.fuse(operator)
    for length, offset in ((1, 0), (2, 0), (37, 0), (2, 1e6), (37, 1e6)):
        x = offset + rng.standard_normal(length)
        whole = reference(operator, operator.bind(x))
        tolerance = 1e-9 if offset else 1e-11
        np.testing.assert_allclose(fused(x, backend="numpy"), whole, tolerance, 1e-11 * length)
        assert fused(x, backend="reference") == whole


@pytest.mark.parametrize("name", ["products with those up to it", "squares of differences, each pair once", "pairs that are both positive",
                                  "cosines of differences"])
def test_what_is_taken_apart_is_an_obligation(name):
    certificate = ra.fuse(over_pairs(TAKEN_APART[name])).certify(examples=8)
    assert certificate.status == "proved and tested" and certificate.row("pairs:1").verdict == "tested" and "result" not in certificate.proved


@pytest.mark.parametrize("name", LEFT)
def test_what_would_lose_digits_or_has_no_finite_rank_stays(name):
    assert alone(over_pairs(LEFT[name])) is None


def test_what_is_summed_meets_infinities_where_the_pairs_do():
    fused = ra.fuse(over_pairs(TAKEN_APART["squares of differences, each pair once"]))
    assert fused(np.array([np.inf]), backend="numpy") == 0 == fused(np.array([]), backend="numpy")


def test_vectors_that_meet_and_another_array_beside(rng):
    @ra.operator
    def gram(x: "l j", w: "l", y: "k j" = "x", v: "k" = "w"):
        return ra.sum(ra.sum(w * v * ra.sum((x - y) ** 2, "j"), "k"), "l")
    x, w = 1e4 + rng.standard_normal((21, 3)), rng.uniform(0, 1, 21)
    fused = ra.fuse(gram)
    assert list(fused.operator.inputs) == ["x", "w"]
    np.testing.assert_allclose(fused(x, w), reference(gram, gram.bind(x, w)), 1e-10)


def test_no_other_array_is_taken_for_the_second_one():
    fused = ra.fuse(over_pairs(TAKEN_APART["all products"]))
    with pytest.raises(OperatorError, match="y="):
        fused(np.ones(3), y=np.ones(3))
