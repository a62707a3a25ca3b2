"""Exact linear algebra over named vectors: which sums a set of kept sums already determines."""
from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

Vector = dict[Hashable, Fraction]


class Span:
    """A growing list of independent vectors, able to write others in terms of them."""

    def __init__(self) -> None:
        self.basis: list[Vector] = []
        self._rows: list[tuple[Hashable, Vector, Vector]] = []

    def coordinates(self, vector: Vector) -> dict[int, Fraction] | None:
        """`vector` as a combination of the basis (index → factor), or None if it is not one."""
        rest, used = self._reduced(vector)
        return None if rest else {index: factor for index, factor in used.items() if factor}

    def add(self, vector: Vector) -> int:
        """The index of `vector` as a new member of the basis.  It must be independent of the others."""
        rest, used = self._reduced(vector)
        if not rest:
            raise ValueError("the vector is already determined")
        index = len(self.basis)
        self.basis.append(dict(vector))
        lead = next(iter(rest))
        scale = rest[lead]
        combination = {index: 1 / scale} | {k: -factor / scale for k, factor in used.items()}
        self._rows.append((lead, {key: value / scale for key, value in rest.items()}, combination))
        return index

    def _reduced(self, vector: Vector) -> tuple[Vector, Vector]:
        rest: Vector = dict(vector)
        used: Vector = {}
        for lead, row, combination in self._rows:
            factor = rest.get(lead, Fraction(0))
            if factor:
                rest = _plus(rest, row, -factor)
                used = _plus(used, combination, factor)
        return rest, used


def _plus(a: Vector, b: Vector, factor: Fraction) -> Vector:
    keys = dict.fromkeys((*a, *b))
    summed = {key: a.get(key, Fraction(0)) + factor * b.get(key, Fraction(0)) for key in keys}
    return {key: value for key, value in summed.items() if value}
