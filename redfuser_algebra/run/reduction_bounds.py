"""How far rounding may move a reduction: from bounds for its terms to a bound for its value.

In: the terms along one dimension, a bound for each, and which of them take part.  Out: bounds, with that dimension
kept at size 1 (k for the k largest).  A bound of inf means that the value is not determined, see `conditioning`.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS

LARGEST, SMALLEST, WHOLE = np.finfo(float).max, np.finfo(float).tiny, 2.0**53


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a − b|; 0 where they are the same infinity or both NaN, inf where only one is finite."""
    with np.errstate(all="ignore"):
        far = np.abs(np.subtract(a, b, dtype=np.float64))
    return np.where(same(a, b), 0.0, np.where(far != far, np.inf, far))


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two values are equal or both NaN."""
    return (a == b) | ((a != a) & (b != b))


@dataclass(frozen=True)
class Terms:
    """The terms of a reduction along `dim`, in float64, with their bounds.

    `taken` says which may take part, `unsure` which of those may not.  `unit` is the relative error of one operation.
    `plain` terms are an input as given: then the order among several NaN is known.
    """

    values: np.ndarray
    errors: np.ndarray
    taken: np.ndarray
    unsure: np.ndarray
    dim: int
    unit: float
    plain: bool

    def bound(self, monoid: str, k: int | None = None) -> np.ndarray:
        """The bound of ⊕ of the terms; of the k best for a counted monoid.

        inf for a monoid of a user's own: how its callable passes errors on is not known.
        """
        if MONOIDS[monoid].source:
            return np.full_like(self._count(self.taken), np.inf)
        if k is not None:
            return self._places(k, MONOIDS[monoid].indexed)
        if monoid in ("any", "all"):
            return self._truth(monoid == "any")
        if monoid in ("sum", "prod"):
            return self._sum() if monoid == "sum" else self._product()
        sign = -1.0 if monoid in ("min", "argmin", "fmin") else 1.0
        return self._position(sign) if MONOIDS[monoid].indexed else self._extreme(sign)

    @property
    def certain(self) -> np.ndarray:
        """The terms that take part for sure and are exact."""
        return self.taken & ~self.unsure & (self.errors == 0)

    @property
    def nan(self) -> np.ndarray:
        """Where a NaN takes part for sure."""
        return self._any(self.certain & (self.values != self.values))

    def _over(self, ufunc: np.ufunc, values: np.ndarray, start: float) -> np.ndarray:
        return ufunc.reduce(values, axis=self.dim, keepdims=True, initial=start)

    def _any(self, condition: np.ndarray) -> np.ndarray:
        return self._over(np.logical_or, condition, False)

    def _count(self, condition: np.ndarray) -> np.ndarray:
        return np.sum(condition, axis=self.dim, keepdims=True, dtype=np.float64)

    def _sum(self) -> np.ndarray:
        """The bounds of the terms, and one rounding of the size of all terms per addition."""
        finite = self.taken & np.isfinite(self.values)
        sizes = np.where(finite, np.abs(self.values), 0.0)
        size = self._over(np.add, sizes, 0.0)
        whole = self._over(np.logical_and, ~finite | (self.values == np.floor(self.values)), True) & (size <= WHOLE)
        own = np.where(self.taken, self.errors + np.where(self.unsure, sizes, 0.0), 0.0)
        error = self._over(np.add, own, 0.0) + np.where(whole, 0.0, self.unit * self._count(finite) * size)
        infinite = self._any(self.taken & np.isinf(self.values))
        error = np.where(np.isinf(size + error), np.inf, np.where(infinite, 0.0, error))
        return np.where(self.nan, 0.0, error)

    def _product(self) -> np.ndarray:
        """What the factors at the ends of their bounds give; inf where the order of the factors may matter."""
        sizes = np.where(self.taken, np.abs(self.values), 1.0)
        reach = np.where(self.taken, sizes + self.errors + np.where(self.unsure, 1.0, 0.0), 1.0)
        total = self._over(np.multiply, sizes, 1.0)
        error = self._over(np.multiply, reach, 1.0) - total + self.unit * self._count(self.taken) * total
        special = np.isinf(sizes) | (sizes == 0)
        largest = self._over(np.multiply, np.where(np.isinf(sizes), 1.0, np.maximum(reach, 1.0)), 1.0)
        smallest = self._over(np.multiply, np.where(sizes == 0, 1.0, np.minimum(sizes, 1.0)), 1.0)
        in_order = (largest < LARGEST) & (smallest > SMALLEST)
        decided = self._any(special) & ~self._any(self.taken & ~self.certain)
        return np.where(self.nan, 0.0, np.where(in_order, np.where(decided, 0.0, error), np.inf))

    def _truth(self, any_holds: bool) -> np.ndarray:
        decides = (self.values != 0) == any_holds
        flips = self.taken & ((self.errors > 0) | self.unsure & decides)
        return np.where(~self._any(self.certain & decides) & self._any(flips), 1.0, 0.0)

    def _reach(self, sign: float) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest that each term may count as, for a maximum of sign · term."""
        low = np.where(self.taken & ~self.unsure, sign * self.values - self.errors, -np.inf)
        high = np.where(self.taken, sign * self.values + self.errors, -np.inf)
        return np.where(low != low, -np.inf, low), np.where(high != high, np.inf, high)

    def _extreme(self, sign: float) -> np.ndarray:
        best = self._over(np.maximum, np.where(self.taken, sign * self.values, -np.inf), -np.inf)
        ends = (self._over(np.maximum, end, -np.inf) for end in self._reach(sign))
        return np.where(self.nan, 0.0, np.maximum(*(distance(end, best) for end in ends)))

    def _position(self, sign: float) -> np.ndarray:
        """0 where the winner is known; else the length of the axis: any position that could win."""
        low, high = self._reach(sign)
        close = self.taken & (high >= self._over(np.maximum, low, -np.inf))
        nans = self._count(self.taken & (self.values != self.values))
        exact = ~self._any(close & (self.errors > 0)) & ((nans == 0) | self.plain)
        first_nan = self.nan & ((nans == 1) | self.plain) & ~self._any(np.isinf(self.errors))
        decided = (first_nan | (self._count(close) <= 1) | exact) & ~self._any(self.unsure)
        return np.where(decided, 0.0, float(self.values.shape[self.dim]))

    def _places(self, k: int, positions: bool) -> np.ndarray:
        """For the k largest (or their positions), with size k along `dim`."""
        unclear = self._any(self.taken & ~self.certain)
        nans = self._any(self.taken & (self.values != self.values)) & ~np.array(self.plain)
        ends = (np.where(self.taken, self.values, -np.inf), *self._reach(1.0))
        best, low, high = (-np.sort(-end, axis=self.dim) for end in ends)
        if positions:
            error = self._swaps(best)
        else:
            error = np.take(np.maximum(distance(low, best), distance(high, best)), range(k), axis=self.dim)
        return np.where(nans, np.inf, np.where(unclear, error, 0.0)) + np.zeros_like(np.take(best, range(k), axis=self.dim))

    def _swaps(self, best: np.ndarray) -> np.ndarray:
        """0 where no two neighbours in the order could change places; else the length of the axis."""
        reach = 2 * self._over(np.maximum, np.where(self.taken, self.errors, 0.0), 0.0)
        close = -np.diff(best, axis=self.dim)
        return np.where(self._any(~(close > reach)), float(self.values.shape[self.dim]), 0.0)
