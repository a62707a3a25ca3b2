"""Run fused forms as compiled CPU kernels: which calls get one, of which types, under which schedule.

In: an operator, its form and a bound call.  Out: the operator's outputs, or None where there is no kernel.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import RedfuserError
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.cost import default_schedule
from redfuser_algebra.lower.schedule import Machine, Schedule, check, is_legal
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.run.choices import compared_whole
from redfuser_algebra.run.kernels import Compiled, give_up, kernel_for, known_kernel, short_columns
from redfuser_algebra.run.plan import NUMPY_DTYPES, Plan
from redfuser_algebra.run.schedules import tuned
from redfuser_algebra.run.starting import remembered, uncollected
from redfuser_algebra.run.threads import MOST_THREADS

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm


def run_cpu(operator: Operator, form: FusedForm, binding: Binding, schedule: Schedule | None = None,
            out: Sequence[np.ndarray] = (), signature: Signature | None = None) -> object | None:
    """The outputs of a call by a compiled kernel, written to `out` if given; None where there is no kernel for it.

    There is none for empty axes or batches, where no array is real, and where Numba cannot be used (that is said once).
    """
    plan = planned(operator, form, binding, schedule, signature)
    return attempted(plan, binding.arrays, binding.params, tuple(out)) if plan else None


def planned(operator: Operator, form: FusedForm, binding: Binding, schedule: Schedule | None, signature: Signature | None) -> Plan | None:
    """How calls with these shapes and types run; None where there is no kernel.  Raises LoweringError for an illegal schedule."""
    exact = signature is not None or not any(compared_whole(form, binding.arrays))
    compiled = kernel_of_call(operator, form, binding, signature or signature_of(binding)) if exact else None
    if compiled is None:
        return None
    schedule = schedule or chosen_schedule(compiled, binding.sizes, math.prod(binding.batch))
    check(compiled.program, schedule, binding.sizes[form.axis])
    leading = {name: array.shape[:array.ndim - len(operator.inputs[name])] for name, array in binding.arrays.items()}
    return Plan(compiled, operator, form, schedule, binding.sizes, binding.batch, leading)


def attempted(plan: Plan, arrays: Mapping[str, np.ndarray], params: Mapping[str, object], out: tuple[np.ndarray, ...],
              anew: bool = False) -> object | None:
    """The outputs; None, said once, where Numba fails: it compiles at the first call, in as many ways as there are machines.

    Where compiled code was kept on disk it may be damaged: that is compiled `anew` once.
    """
    try:
        if plan.compiled.is_loaded:
            return plan.outputs(arrays, params, out)
        with uncollected(), remembered():
            result = plan.outputs(arrays, params, out)
        plan.compiled.has_run()
        return result
    except RedfuserError:
        raise
    except Exception as error:
        if not (anew or plan.compiled.is_loaded) and plan.compiled.threw_away():
            return attempted(plan, arrays, params, out, anew=True)
        give_up(plan.operator, plan.form, plan.compiled.signature, error)
        return None


def chosen_schedule(compiled: Compiled, sizes: Mapping[str, int], batch: int) -> Schedule:
    """The schedule of calls with these axis lengths: the one that tuning found, else the one that the cost model finds."""
    key = (*sizes.values(), batch)
    if key not in compiled.schedules:
        width = NUMPY_DTYPES[compiled.signature.real].itemsize
        found = tuned(compiled.title, sizes, batch)
        legal = found is not None and is_legal(compiled.program, found, sizes[compiled.program.axis])
        compiled.schedules[key] = found if legal else default_schedule(compiled.program, sizes, batch, width, machine())
    return compiled.schedules[key]


def kernel_of_call(operator: Operator, form: FusedForm, binding: Binding, signature: Signature | None) -> Compiled | None:
    """The kernel that a call would run."""
    if signature is None or not all(binding.sizes.values()) or not all(binding.batch) or _places_missing(form, binding):
        return None
    compiled = kernel_for(operator, form, signature)
    short = short_columns(compiled.program, binding.sizes) if compiled else {}
    return kernel_for(operator, form, replace(signature, sizes=short)) if short else compiled


COMPILES, LOADS = 1 << 27, 1 << 22
"""From so many operations on elements on NumPy takes as long as compiling a kernel does, or as loading a compiled one."""
STEP = 1 << 11
"""Operations on elements in the time that NumPy takes for a step of a recurrence, for all rows at once."""


def is_worth_a_kernel(operator: Operator, form: FusedForm, binding: Binding) -> bool:
    """Whether a kernel has run already for such a call, or the work is large enough to get one."""
    signature = signature_of(binding)
    if signature is None:
        return False
    work = _operations(form, binding)
    if work < LOADS:
        known = known_kernel(operator, form, signature)
        return known is not None and known.is_loaded
    compiled = kernel_of_call(operator, form, binding, signature)
    return compiled is not None and (work >= COMPILES or compiled.is_loaded or compiled.is_cached)


def _operations(form: FusedForm, binding: Binding) -> int:
    """Operations on elements that the formulas of one sweep take; steps from state to state take NumPy as long as many."""
    sizes = binding.sizes | {copy: binding.sizes[axis] for copy, axis in form.axis_copies.items()}
    formulas = [e for c in form.state for e in c.elements]
    per_batch = sum(math.prod(sizes[axis] for axis in (term.body if term.op == "reduce" else term).axes)
                    for term in subterms(*formulas, *form.outputs) if term.args)
    return per_batch * math.prod(binding.batch) + STEP * binding.sizes[form.axis] * len(form.prefixes)


def signature_of(binding: Binding) -> Signature | None:
    """The types of a call's arrays and scalars; None where kernels have none for them."""
    arrays = {name: _type(array.dtype) for name, array in binding.arrays.items()}
    if None in arrays.values():
        return None
    if "f8" in arrays.values():
        arrays = {name: "f8" if type_ == "f4" else type_ for name, type_ in arrays.items()}
    params = {name: "b1" if isinstance(value, bool) else "i8" if isinstance(value, int) else "f8" for name, value in binding.params.items()}
    return Signature(arrays, params)


def _type(dtype: np.dtype) -> str | None:
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return "f8" if dtype.itemsize == 8 else "f4"
    if dtype.kind in "iu" and dtype != np.uint64:
        return "i8"
    return "b1" if dtype.kind == "b" else "f4" if dtype.kind == "V" else None


def _places_missing(form: FusedForm, binding: Binding) -> bool:
    """Whether some top-k asks for more elements than there are: the error is the interpreter's to tell."""
    counted = [c for c in form.state if MONOIDS[c.monoid].counted]
    return any(binding.sizes[c.axes[-1]] > binding.sizes[form.axis] for c in counted)


@cache
def machine() -> Machine:
    """This computer's caches, the threads that may be used, and how long tiles have to be.

    A core of AMD (Zen 3) takes up to half as long again for tiles of less than four pages: the next tile, fetched in the
    meantime, then begins at too few.  On Intel's, with 48 KB of first cache, tiles are that long anyway.
    """
    return Machine(_cache_bytes(0, 32 * 1024), _cache_bytes(2, 1024 * 1024), MOST_THREADS, 4 * 4096 if _is_amd() else 0)


def _is_amd() -> bool:
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _cache_bytes(index: int, default: int) -> int:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text(encoding="utf-8").strip()
        return int(text.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(text[-1], 1)
    except (OSError, ValueError):
        return default
