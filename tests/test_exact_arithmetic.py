"""Exact numbers with infinities: what they compute is what NumPy computes, up to rounding, wherever NumPy rounds."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redfuser_algebra.algebra.functions import FUNCTIONS
from redfuser_algebra.prove.refutation.numbers import exact_bounds
from redfuser_algebra.prove.trials.exact_functions import FUNCTION_OF, TRUTH_OF, cast, maximum
from redfuser_algebra.prove.trials.extended import Undecided, agree, exact, exactly, is_special, radius, simplest

VALUES = (0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, -2.0, math.inf, -math.inf, math.nan)


def number(value):
    """An exact number as the nearest float."""
    if is_special(value):
        return value
    low, high = exact_bounds(value)
    return float((low + high) / 2)


@pytest.mark.parametrize("name", sorted({*FUNCTION_OF, *TRUTH_OF}))
def test_every_function_means_what_numpy_means(name):
    row = FUNCTIONS[name]
    apply = (FUNCTION_OF | TRUTH_OF)[name]
    for args in itertools.product(VALUES, repeat=row.arity):
        with exactly():
            got = apply(*map(exact, args))
            expected = row.apply(*(np.float64(arg) for arg in args))
            got = got if isinstance(got, bool) else number(got)
        assert got == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True), args


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "bool"])
@given(value=st.floats(-100, 100))
def test_casts_round_to_the_nearest(dtype, value):
    with exactly():
        got = number(cast(dtype)(exact(Fraction(value))))
    rounded = np.clip(np.rint(value), np.iinfo(dtype).min, np.iinfo(dtype).max) if "int" in dtype else np.dtype(dtype).type(value)
    assert got == rounded


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_constant_is_the_simplest_fraction_that_rounds_to_it(value):
    assert float(simplest(value)) == value


def test_simple_constants_are_what_people_mean():
    assert [simplest(value) for value in (0.2, 1 / 3, 1e-5)] == [Fraction(1, 5), Fraction(1, 3), Fraction(1, 100_000)]


def test_balls_agree_if_they_overlap_and_are_undecided_if_they_are_wide():
    with exactly():
        e = FUNCTION_OF["exp"]
        assert agree(FUNCTION_OF["multiply"](e(exact(1)), e(exact(2))), e(exact(3)))
        assert not agree(e(exact(1)), exact(2.7182818284590452)) and 0 < radius(e(exact(1))) < 1e-40
        assert maximum(e(exact(1)), e(exact(1))) is e(exact(1)), "a tie of equal terms is a tie"
        with pytest.raises(Undecided):
            maximum(FUNCTION_OF["multiply"](e(exact(1)), e(exact(2))), e(exact(3)))
