"""Monoids ⊕: identity, meaning on floats, and the maps that commute with them (endomorphisms).

The meaning is NumPy's in float64: NaN propagates, ties go to the lowest index, an empty sum is 0, and an empty
max has no value unless a mask says that nothing takes part (then it is the identity).
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Monoid:
    """⊕ with its identity and its endomorphisms, the maps T with T(a ⊕ b) = T(a) ⊕ T(b).

    `endomorphism` names the kind: "linear", "increasing", "power", "constant", "index", "identity", or "declared":
    those that a user's laws name.  `apply` is a ⊕ b of arrays, for what is neither indexed nor counted.
    `dual` is the monoid it turns into under a decreasing map.  `indexed` results are positions along the axis;
    `counted` ones (top-k) take a number k and make a new axis of that length.
    `empty` says whether an empty reduction has a value: `sum` of nothing is 0, `max` of nothing is an error.
    `nan` is what a NaN among the elements does: it "propagates", is "skipped", or "varies".  `whole` monoids take
    whole numbers only.  `source` is what a user declared; "" for the rows of this table.
    """

    name: str
    symbol: str
    identity: float | bool | int
    endomorphism: str
    dual: str = ""
    indexed: bool = False
    counted: bool = False
    empty: bool = True
    idempotent: bool = False
    apply: Callable[..., np.ndarray] | None = None
    commutative: bool = True
    nan: str = "propagates"
    whole: bool = False
    source: str = ""


MONOIDS: dict[str, Monoid] = {
    m.name: m
    for m in (
        Monoid("sum", "Σ", 0.0, "linear", apply=np.add),
        Monoid("prod", "Π", 1.0, "power", apply=np.multiply),
        Monoid("max", "max", -np.inf, "increasing", dual="min", empty=False, idempotent=True, apply=np.maximum),
        Monoid("min", "min", np.inf, "increasing", dual="max", empty=False, idempotent=True, apply=np.minimum),
        Monoid("fmax", "fmax", -np.inf, "increasing", dual="fmin", idempotent=True, apply=np.fmax, nan="skipped"),
        Monoid("fmin", "fmin", np.inf, "increasing", dual="fmax", idempotent=True, apply=np.fmin, nan="skipped"),
        Monoid("argmax", "argmax", -1, "index", dual="argmin", indexed=True, empty=False, idempotent=True),
        Monoid("argmin", "argmin", -1, "index", dual="argmax", indexed=True, empty=False, idempotent=True),
        Monoid("topk", "topk", -np.inf, "increasing", counted=True, empty=False),
        Monoid("argtopk", "argtopk", -1, "index", counted=True, indexed=True, empty=False),
        Monoid("any", "any", False, "constant", dual="all", idempotent=True, apply=np.logical_or, nan="varies"),
        Monoid("all", "all", True, "constant", dual="any", idempotent=True, apply=np.logical_and, nan="varies"),
        Monoid("compose", "∘", 0.0, "none", commutative=False, nan="varies"),
    )
}
"""fmax and fmin skip NaN, as NumPy's do: a threshold test skips it too.  argmax and argtopk carry the values they won with: their state is (values, positions).
compose joins the maps that the elements of a recurrence are, later after earlier: an entry of such a map says itself
what two neighbouring parts make of it, and what it is where there is no element."""

WON = "_value"
"""What a component's name is followed by where an expression reads the values that its positions won with."""

SMALLEST = frozenset(("min", "fmin", "argmin"))
"""Those for which the least element is the best."""

STEPS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and"}
"""The function a ⊕ b of two numbers, by monoid: what an element does to what came before it."""

RUNNING = {name: (step, MONOIDS[name].identity) for name, step in STEPS.items()} | {"logadd": ("logadd", -np.inf)}
"""What may run along an axis: the function of two numbers, and what it starts from."""
