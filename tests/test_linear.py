"""Span: exact linear algebra over named vectors, by its properties and next to a rank found another way."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redfuser_algebra.discover.linear import Span

KEYS = "abcd"
NUMBERS = st.sampled_from([Fraction(n, d) for n in range(-4, 5) for d in (1, 2, 3)])
vectors = st.tuples(*(st.just(Fraction(0)) | NUMBERS for _ in KEYS)).map(
    lambda entries: {key: entry for key, entry in zip(KEYS, entries, strict=True) if entry})


def combined(vectors, factors):
    """Σ factor · vector, without zeros."""
    total = {}
    for index, factor in factors.items():
        for key, value in vectors[index].items():
            total[key] = total.get(key, Fraction(0)) + factor * value
    return {key: value for key, value in total.items() if value}


def rank(vectors):
    """The largest number of vectors whose minor is not 0: cleared column by column."""
    rows, found = [[vector.get(key, Fraction(0)) for key in KEYS] for vector in vectors], 0
    for column in range(len(KEYS)):
        pivot = next((row for row in rows if row[column]), None)
        if pivot:
            rows.remove(pivot)
            rows = [[entry - row[column] / pivot[column] * by for entry, by in zip(row, pivot, strict=True)]
                    for row in rows]
            found += 1
    return found


def filled(vectors):
    """A span that was offered each vector in turn."""
    span = Span()
    for vector in vectors:
        if span.coordinates(vector) is None:
            span.add(vector)
    return span


@given(st.lists(vectors, max_size=6))
def test_the_basis_is_independent_and_spans_what_was_offered(offered):
    span = filled(offered)
    assert len(span.basis) == rank(span.basis) == rank(offered)
    assert all(vector in offered for vector in span.basis)


@given(st.lists(vectors, max_size=6), vectors)
def test_coordinates_give_the_vector_back_or_it_is_new(offered, vector):
    span = filled(offered)
    found = span.coordinates(vector)
    assert (found is None) == (rank([*span.basis, vector]) > len(span.basis))
    if found is not None:
        assert combined(span.basis, found) == vector and 0 not in found.values()


@given(st.lists(vectors, min_size=1, max_size=6), st.data())
def test_any_combination_of_the_basis_is_found_with_its_own_factors(offered, data):
    span = filled(offered)
    factors = {index: data.draw(NUMBERS) for index in range(len(span.basis))}
    found = span.coordinates(combined(span.basis, factors))
    assert found == {index: factor for index, factor in factors.items() if factor}


@given(st.lists(vectors, max_size=6), vectors)
def test_coordinates_stay_as_the_basis_grows(offered, vector):
    span = filled(offered)
    before = span.coordinates(vector)
    for key in KEYS:
        if span.coordinates({key: Fraction(1)}) is None:
            assert span.add({key: Fraction(1)}) == len(span.basis) - 1
    assert len(span.basis) == len(KEYS) and before in (None, span.coordinates(vector))


@given(vectors)
def test_vectors_are_taken_as_they_are_and_left_alone(vector):
    span, copy = Span(), dict(vector)
    assert (span.coordinates(vector) is None) == bool(vector)
    if vector:
        assert span.add(vector) == 0 and span.coordinates(vector) == {0: Fraction(1)}
        vector.clear()
        assert span.basis == [copy] and span.coordinates(copy) == {0: Fraction(1)}


def test_nothing_determines_only_zero():
    assert Span().coordinates({}) == {} and Span().coordinates({"a": Fraction(1)}) is None


@pytest.mark.parametrize("vector", [{}, {"a": Fraction(2)}, {"a": Fraction(2), "b": Fraction(3)}])
def test_a_determined_vector_cannot_be_added(vector):
    span = filled([{"a": Fraction(1)}, {"a": Fraction(1), "b": Fraction(1)}])
    with pytest.raises(ValueError, match="already determined"):
        span.add(vector)
    assert len(span.basis) == 2


def test_moments_about_a_mean_determine_each_other():
    """Σ(x−p)², Σ(x−p) and N carry Σ(x−q)² = Σ(x−p)² + 2δ Σ(x−p) + δ² N; without the middle one they do not."""
    square, first, number = {"xx": Fraction(1)}, {"x": Fraction(1)}, {"1": Fraction(1)}
    moved = {"xx": Fraction(1), "x": Fraction(4), "1": Fraction(4)}
    assert filled([square, first, number]).coordinates(moved) == {0: Fraction(1), 1: Fraction(4), 2: Fraction(4)}
    assert filled([square, number]).coordinates(moved) is None
