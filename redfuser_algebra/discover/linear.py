"""Exact linear algebra over named vectors: which sums a set of kept sums already determines, what equations leave free."""
from __future__ import annotations

from collections.abc import Hashable, Sequence
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
                rest = combined(rest, row, -factor)
                used = combined(used, combination, factor)
        return rest, used


def nullspace(equations: Sequence[Vector], names: Sequence[Hashable]) -> list[Vector]:
    """Vectors over `names` whose combinations are all that make every equation 0: one for each name that they leave free."""
    rows: dict[Hashable, Vector] = {}
    for equation in equations:
        for lead in [lead for lead in rows if lead in equation]:
            equation = combined(equation, rows[lead], -equation[lead])
        if equation:
            lead, scale = next(iter(equation.items()))
            equation = {name: factor / scale for name, factor in equation.items()}
            rows = {other: combined(row, equation, -row[lead]) if lead in row else row for other, row in rows.items()} | {lead: equation}
    free = [name for name in names if name not in rows]
    return [{name: Fraction(1)} | {lead: -row[name] for lead, row in rows.items() if name in row} for name in free]


def combined(a: Vector, b: Vector, factor: Fraction) -> Vector:
    """a + factor · b."""
    keys = dict.fromkeys((*a, *b))
    summed = {key: a.get(key, Fraction(0)) + factor * b.get(key, Fraction(0)) for key in keys}
    return {key: value for key, value in summed.items() if value}
