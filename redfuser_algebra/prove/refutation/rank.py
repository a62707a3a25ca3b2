"""Which rows of a matrix are certainly independent, and the exact determinants that prove it."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat

from redfuser_algebra.prove.refutation.numbers import Field, Number, is_zero, size

ORDERS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24)
"""The orders at which determinants are stated."""

_PRIME = 2**31 - 1


class Basis:
    """Rows that are certainly independent, each with the column it was accepted for.

    In the order of acceptance, every leading minor of the accepted rows and columns is certainly not 0.  Rationals
    are followed modulo a prime: what is independent there is independent.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self.pivots: list[tuple[object, int]] = []
        self._reduced: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self.pivots)

    def extend(self, rows: np.ndarray, labels: Sequence[object], want: int) -> None:
        """Accept rows that are independent of all before them, in order, until there are `want`."""
        rest = rows if self.field.bits else _residues(rows)
        for (_, column), reduced in zip(self.pivots, self._reduced, strict=True):
            rest = self._cleared(rest, column, reduced)
        for at, label in enumerate(labels):
            if len(self) >= want:
                return
            column = self._pivot(rest[at])
            if column is not None:
                self._reduced.append(self._normalised(rest[at], column))
                self.pivots.append((label, column))
                rest[at + 1:] = self._cleared(rest[at + 1:], column, self._reduced[-1])

    def _cleared(self, rows: np.ndarray, column: int, reduced: np.ndarray) -> np.ndarray:
        difference = rows - rows[:, column:column + 1] * reduced[None]
        return difference if self.field.bits else difference % _PRIME

    def _normalised(self, row: np.ndarray, column: int) -> np.ndarray:
        return row / row[column] if self.field.bits else row * pow(int(row[column]), -1, _PRIME) % _PRIME

    def _pivot(self, row: np.ndarray) -> int | None:
        if not self.field.bits:
            found = np.flatnonzero(row)
            return int(found[0]) if len(found) else None
        sizes = [(exponent, -column) for column, entry in enumerate(row) if (exponent := size(entry)) is not None]
        return -max(sizes)[1] if sizes else None


def _residues(rows: np.ndarray) -> np.ndarray:
    residue = np.frompyfunc(lambda q: int(q.p) * pow(int(q.q), -1, _PRIME) % _PRIME, 1, 1)
    return np.asarray(residue(rows)).astype(np.int64)


def determinants(matrix: Sequence[Sequence[Number]]) -> dict[int, Number]:
    """The leading minors of a square matrix at ORDERS, exact or as balls."""
    n = len(matrix)
    kind = fmpq_mat if isinstance(matrix[0][0], fmpq) else arb_mat
    return {k: kind([list(row[:k]) for row in matrix[:k]]).det() for k in sorted({*ORDERS, n}) if k <= n}


def certainly_not_zero(value: Number) -> bool:
    """Whether a number is not 0, for certain."""
    return value != 0 if isinstance(value, arb) else not is_zero(value)
