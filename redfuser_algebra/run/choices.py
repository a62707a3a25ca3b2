"""Choices among whole numbers: kernels keep what won in float64, where neighbours beyond 2⁵³ are equal.

In: a form and the arrays of a call.  Out: whether a choice compares whole numbers of 64 bits, and a refusal of those that are too large.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import Expr, subterms
from redfuser_algebra.lower.kinds import kinds

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

EXACT = 2**53
"""Up to which whole numbers are told apart in float64."""


def compared_whole(form: FusedForm, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    """The arrays of whole numbers of 64 bits that an argmax or top-k compares."""
    def leaf(term: Expr) -> str:
        return {"b": "b", "i": "i", "u": "i"}.get(arrays[term.name].dtype.kind, "f") if term.op == "input" else "f"

    for lift in (c.lift for c in form.state if MONOIDS[c.monoid].indexed or MONOIDS[c.monoid].counted):
        if kinds(lift, leaf)[lift] == "i":
            yield from (term.name for term in subterms(lift) if term.op == "input" and arrays[term.name].dtype.itemsize == 8)


def check_choices(name: str, form: FusedForm, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises OperatorError for numbers that a kernel would confuse."""
    for compared in compared_whole(form, arrays):
        if arrays[compared].size and not -EXACT <= arrays[compared].min() <= arrays[compared].max() <= EXACT:
            raise OperatorError(f"the kernel of {name} with whole numbers beyond 2⁵³ in {compared}", "it compares them in float64, where neighbours are equal",
                                "call the fused operator, which compares whole numbers of 64 bits exactly")
