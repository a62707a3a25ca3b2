"""Semirings (⊕, ⊗): what recurrences are linear over.  Their matrices under product are an ordered monoid.

⊗ distributes over ⊕, so the product of matrices is associative; it is not commutative.  ⊕ and ⊗ are elementwise
functions, whose identities are `zero` and `one`.
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Semiring:
    """⊕ and ⊗ by the names of their functions, and the monoids that ⊕ and ⊗ alone are ("" where the table has none)."""

    name: str
    plus: str
    times: str
    zero: float
    one: float
    sums: str
    products: str
    idempotent: bool = False


SEMIRINGS: dict[str, Semiring] = {
    row.name: row
    for row in (
        Semiring("sum-product", "add", "multiply", 0, 1, "sum", "prod"),
        Semiring("max-plus", "maximum", "add", float("-inf"), 0, "max", "sum", idempotent=True),
        Semiring("min-plus", "minimum", "add", float("inf"), 0, "min", "sum", idempotent=True),
        Semiring("log-plus", "logadd", "add", float("-inf"), 0, "", "sum"),
    )
}

DUAL = {"max-plus": "min-plus", "min-plus": "max-plus"}
"""What a tropical semiring turns into under negation."""
