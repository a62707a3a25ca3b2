"""The k largest by compiled kernels: NaN before numbers, equals (0 and −0 among them) in their order, elements outside a mask never."""

from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redfuser_algebra.fused import fuse
from redfuser_algebra.language import functions as ra
from redfuser_algebra.language.operator import operator
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.topk_cpu import EIGHT, FALLING

POOLS = ([0.0, -0.0], [1.0], [-np.inf, np.inf], [-np.inf, np.nan, 2.0], [1.0, 1 + 2.0**-50], [1.0, 1 + 2.0**-20, 0.0, -0.0, -1.0])
"""Values to draw from, few enough that many are equal."""

ROWS = 6


@operator
def largest(x: "l", w: "l", k: int = 3):
    return tuple(ra.topk(x, "l", k))


@operator
def largest_taken(x: "l", w: "l", k: int = 3):
    return tuple(ra.topk(x, "l", k, where=w > 0))


@operator
def outermost(x: "l", w: "l"):
    return ra.argmax(x, "l"), ra.argmin(x, "l"), ra.argmax(x, "l", where=w > 0), ra.argmin(x, "l", where=w > 0)


@cache
def kernel(made, dtype):
    return fuse(made).kernel("cpu", dtype=dtype)


def in_order(row, taken):
    return sorted(np.flatnonzero(taken), key=lambda at: (not np.isnan(row[at]), -row[at], at))


def check(made, dtype, x, w, k, tile):
    values, places = replace(kernel(made, dtype), schedule=Schedule(tile))(x, w, k=k)
    for row, mask, value, place in zip(x, w > 0, values, places, strict=True):
        order = in_order(row, mask)[:k]
        assert np.array_equal(place, order + [-1] * (k - len(order))), (row, place, order)
        assert value[:len(order)].tobytes() == row[order].tobytes() and (value[len(order):] == -np.inf).all(), (row, value)


def _rows_with_a_large_column(rng, n):
    """Half of the rows have their largest elements eight apart."""
    lifted = rng.integers(2, size=(ROWS, 1)) * (np.arange(n) % 8 == rng.integers(8, size=(ROWS, 1)))
    return rng.standard_normal((ROWS, n)) + 9.0 * lifted


@st.composite
def calls(draw, dtype):
    n = draw(st.sampled_from((1, 2, 7, 63, 64, 65, 130, 300, 600)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pool = draw(st.sampled_from(POOLS) | st.none())
    x = _rows_with_a_large_column(rng, n) if pool is None else rng.choice(pool, (ROWS, n))
    return x.astype(dtype), rng.choice([-1, 1], (ROWS, n), p=(0.3, 0.7)).astype(dtype), draw(st.just(n) | st.integers(1, min(n, 9))), draw(st.sampled_from((1, 5, 64, 100, 512)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(data=st.data())
def test_the_largest_in_their_order(dtype, data):
    x, w, k, tile = data.draw(calls(dtype))
    check(largest, dtype, x, np.ones_like(x), k, tile)
    check(largest_taken, dtype, x, w, k, tile)
    places = replace(kernel(outermost, dtype), schedule=Schedule(tile))(x, w)
    for got, sign, mask in zip(places, (1, -1, 1, -1), (w == w, w == w, w > 0, w > 0), strict=True):
        assert np.array_equal(got, [next(iter(in_order(sign * row, taken)), -1) for row, taken in zip(x, mask, strict=True)])


def compared(network, numbers):
    numbers = list(numbers)
    for i, j in network:
        numbers[i], numbers[j] = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
    return numbers


@pytest.mark.parametrize(("network", "turns"), [(EIGHT, 8), (FALLING, 2)], ids=["eight", "falling"])
def test_networks_put_in_order_what_they_are_for(network, turns):
    """Comparisons that put all zeros and ones in order do so for all numbers (the zero-one principle)."""
    for bits in product((0, 1), repeat=8):
        if sum(a != b for a, b in pairwise(bits)) <= turns:
            assert compared(network, bits) == sorted(bits, reverse=True)
