"""Calls like those before: what was decided for a call is remembered, and the next one of its kind goes straight to the kernel.

In: the arrays and scalars of a call, by position and name.  Out: the operator's outputs, where such a call ran a kernel.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.run.cpu import attempted, chosen_schedule, planned
from redfuser_algebra.run.dtypes import in_dtypes
from redfuser_algebra.run.plan import Plan

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

MOST, MOST_ROWS = 64, 1 << 16
"""How many kinds of calls are remembered, and the rows of a batch from which on working them out again costs little."""


@dataclass(frozen=True)
class _Known:
    """A plan, and the dtypes of its results if they are not the kernel's own.

    Only what tuning finds can make it old: words that are declared, and may be gone later, have no kernels.
    """

    plan: Plan
    dtypes: tuple[np.dtype, ...] | None

    def holds(self, chosen: Schedule | None) -> bool:
        """Whether the schedule is still the one to take."""
        plan = self.plan
        return (chosen or chosen_schedule(plan.compiled, plan.sizes, plan.rows)) is plan.schedule


@dataclass
class Calls:
    """The calls of one form, with the schedule and types of arrays given or chosen for each."""

    operator: Operator
    form: FusedForm
    schedule: Schedule | None = None
    signature: Signature | None = None
    known: dict[tuple, _Known] = field(default_factory=dict)

    def again(self, arrays: tuple, named: Mapping[str, object], out: tuple[np.ndarray, ...]) -> object | None:
        """The outputs of a call that ran before with arrays of these shapes and dtypes; None for another one.

        Raises OperatorError for an `out` that does not fit.
        """
        key = self._key(arrays, named)
        known = self.known.get(key)
        if known is None:
            return None
        if not known.holds(self.schedule):
            self.known.pop(key, None)
            return None
        given = self.operator.signature.completed(self._defaults | dict(zip(self.operator.inputs, arrays, strict=False)) | named)
        result = attempted(known.plan, {name: given[name] for name in self.operator.inputs}, given, out)
        return result if out or result is None or known.dtypes is None else in_dtypes(self.operator, result, known.dtypes)

    def first(self, binding: Binding, arrays: tuple, named: Mapping[str, object], out: tuple[np.ndarray, ...],
              dtypes: tuple[np.dtype, ...] | None = None) -> object | None:
        """The outputs of a call as a kernel gives them, in these dtypes; None where there is no kernel.  It is remembered."""
        plan = planned(self.operator, self.form, binding, self.schedule, self.signature)
        result = attempted(plan, binding.arrays, binding.params, out) if plan else None
        if result is None:
            return None
        key = self._key(arrays, named)
        if key is not None and plan.rows < MOST_ROWS:
            self.known[key] = _Known(plan, None if dtypes == plan.dtypes else dtypes)
            for oldest in list(self.known)[:-MOST]:  # a copy: other threads may be here, too
                self.known.pop(oldest, None)
        return result if out or dtypes is None else in_dtypes(self.operator, result, dtypes)

    def _key(self, arrays: tuple, named: Mapping[str, object]) -> tuple | None:
        """All that decides how a call runs; None where an operand is neither a plain array nor a number."""
        inputs, found = self.operator.inputs, [len(arrays)]
        for name, value in (*zip(inputs, arrays, strict=False), *named.items()):
            kind = type(value)
            if name not in inputs and (kind in (float, int, bool) or isinstance(value, np.generic)):
                found += (name, kind, value if name in self._counts else None)
            elif name in inputs and kind is np.ndarray:
                found += (name, value.shape, value.dtype)
            else:
                return None
        return tuple(found)

    @cached_property
    def _counts(self) -> frozenset[str]:
        """Parameters that are lengths of axes."""
        return frozenset(count.name for count in self.operator.signature.tops.values() if count.op == "param")

    @cached_property
    def _defaults(self) -> dict[str, object]:
        return {name: value for name, value in self.operator.params.items() if value is not None}
