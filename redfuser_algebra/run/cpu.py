"""Run fused forms as compiled CPU kernels: arrays brought into the kernel's layout, rows shared between threads.

In: an operator, its form and a bound call.  Out: the operator's outputs, or None where there is no kernel.
"""
from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import OperatorError, RedfuserError
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.cost import default_schedule
from redfuser_algebra.lower.schedule import Machine, Schedule, check
from redfuser_algebra.lower.storage_cpu import Signature, Variable
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.run.call import environment_of, structured
from redfuser_algebra.run.environment import Environment, laid_out
from redfuser_algebra.run.kernels import Compiled, give_up, kernel_for, known_kernel, short_columns
from redfuser_algebra.run.state import Held, State, finalize, merge
from redfuser_algebra.run.schedules import tuned
from redfuser_algebra.run.threads import MOST_THREADS, one_blas_thread, side_by_side

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

DTYPES = {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64), "i8": np.dtype(np.int64), "b1": np.dtype(np.bool_)}


def run_cpu(operator: Operator, form: FusedForm, binding: Binding, schedule: Schedule | None = None,
            out: Sequence[np.ndarray] = (), signature: Signature | None = None) -> object | None:
    """The outputs of a call by a compiled kernel, written to `out` if given; None where there is no kernel for it.

    There is none for empty axes or batches, where no array is real, and where Numba cannot be used (that is said once).
    """
    signature = signature or signature_of(binding)
    compiled = kernel_of_call(operator, form, binding, signature)
    if compiled is None:
        return None
    signature = compiled.signature
    batch = math.prod(binding.batch)
    schedule = schedule or chosen_schedule(compiled, signature, binding.sizes, batch)
    check(compiled.program, schedule, binding.sizes[form.axis])
    try:
        result = _Call(compiled, operator, form, binding, signature, schedule, batch).outputs(tuple(out))
        compiled.has_run()
        return result
    except RedfuserError:
        raise
    except Exception as error:  # Numba compiles at the first call, and may fail in as many ways as there are machines
        give_up(operator, form, signature, error)
        return None


def chosen_schedule(compiled: Compiled, signature: Signature, sizes: Mapping[str, int], batch: int) -> Schedule:
    """The schedule of calls with these axis lengths: the one that tuning found, else the one that the cost model finds."""
    key = (*sizes.values(), batch)
    if key not in compiled.schedules:
        width = DTYPES[signature.real].itemsize
        found = tuned(compiled.title, sizes, batch)
        compiled.schedules[key] = found or default_schedule(compiled.program, sizes, batch, width, machine())
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
    """Operations on elements that the formulas of one sweep take."""
    sizes = binding.sizes | {copy: binding.sizes[axis] for copy, axis in form.axis_copies.items()}
    formulas = [e for c in form.state for e in (c.lift, c.mask) if e is not None]
    per_batch = sum(math.prod(sizes[axis] for axis in (term.body if term.op == "reduce" else term).axes)
                    for term in subterms(*formulas, *form.outputs) if term.args)
    return per_batch * math.prod(binding.batch)


def signature_of(binding: Binding) -> Signature | None:
    """The types of a call's arrays and scalars; None where kernels have none for them."""
    arrays = {name: _type(array.dtype) for name, array in binding.arrays.items()}
    if None in arrays.values():
        return None
    if "f8" in arrays.values():
        arrays = {name: "f8" if type_ == "f4" else type_ for name, type_ in arrays.items()}
    params = {name: "b1" if isinstance(value, bool) else "i8" if isinstance(value, int) else "f8" for name, value in binding.params.items()}
    return Signature(arrays, params, _blas_is_there())


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


def _blas_is_there() -> bool:
    return importlib.util.find_spec("scipy") is not None


@dataclass(frozen=True)
class _Call:
    """One call of a kernel."""

    compiled: Compiled
    operator: Operator
    form: FusedForm
    binding: Binding
    signature: Signature
    schedule: Schedule
    batch: int

    @property
    def program(self) -> TileProgram:
        return self.compiled.program

    def outputs(self, out: tuple[np.ndarray, ...]) -> object:
        """What the operator returns: arrays of its own, or those of `out`, filled."""
        if self.schedule.parts > 1:
            return delivered(self.operator, self._split(), out)
        types = self.compiled.source.outputs
        written = [self._written_into(place, type_, out) for place, type_ in enumerate(types)]
        fixed = (*self._arguments(), *written)
        items, threads = self.items, max(1, min(self.schedule.threads, self.items))
        cuts = [items * part // threads for part in range(threads + 1)]
        with self._blas():
            side_by_side(lambda part: self.compiled.module.sweep(cuts[part], cuts[part + 1], *fixed), threads)
        return delivered(self.operator, self.operator.packed(tuple(map(self._taken, written, self.program.output_axes))), out)

    def _blas(self) -> object:
        return one_blas_thread() if self.compiled.source.multiplies else nullcontext()

    @cached_property
    def items(self) -> int:
        """Pieces of independent work: rows, or blocks of them."""
        items, sizes = self.batch, self.binding.sizes
        for axis in self.program.rows:
            items *= -(-sizes[axis] // self.schedule.block) if axis == self.program.block else sizes[axis]
        return items

    def _arguments(self) -> tuple:
        """What all functions of a kernel take: schedule, arrays, scalars, sizes."""
        source, sizes = self.compiled.source, self.binding.sizes
        arrays = [part for name in source.arrays for part in self._laid_out(name)]
        scalars = [DTYPES[self.signature.params[name]].type(self.binding.params[name]) for name in source.params]
        return (self.schedule.tile, self.schedule.block, *arrays, *scalars, *(sizes[a] for a in source.sizes))

    def _laid_out(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Which of an array's own batch each batch element reads, and the array: (own batch, axes in the program's order)."""
        array, axes, binding = self.binding.arrays[name], self.operator.inputs[name], self.binding
        leading = array.ndim - len(axes)
        own = array.shape[:leading]
        order = (*range(leading), *(leading + axes.index(axis) for axis in self.program.inputs[name]))
        flat = np.ascontiguousarray(array.transpose(order), DTYPES[self.signature.arrays[name]])
        which = np.arange(int(np.prod(own, dtype=np.int64))).reshape((1,) * (len(binding.batch) - leading) + own)
        shape = tuple(binding.sizes[a] for a in self.program.inputs[name])
        return np.ascontiguousarray(np.broadcast_to(which, binding.batch)).reshape(-1), flat.reshape(-1, *shape)

    # outputs

    def _order(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The order in which a kernel writes the axes of an output."""
        return (*self.program.rows, *([self.program.axis] if self.program.axis in axes else []), *self.program.columns(axes))

    def _written_into(self, place: int, type_: str, out: tuple[np.ndarray, ...]) -> np.ndarray:
        """Where an output is written: the caller's array if it has the kernel's layout, else a new one."""
        axes = self.program.output_axes[place]
        order = self._order(axes)
        shape = (self.batch, *(self.binding.sizes[a] for a in order))
        given = out[place] if out else None
        if given is not None and order == axes and given.dtype == DTYPES[type_] and given.flags.c_contiguous and given.size == np.prod(shape):
            return given.reshape(shape)
        return np.empty(shape, DTYPES[type_])

    def _taken(self, output: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
        """An output as the operator returns it: dimensions (batch…, its axes…), a scalar if there are none."""
        written, leading = self._order(axes), len(self.binding.batch)
        full = output.reshape(self.binding.batch + output.shape[1:])
        return full.transpose(*range(leading), *(leading + written.index(axis) for axis in axes))[()]

    # the reduced axis in parts

    def _split(self) -> object:
        """The parts of the reduced axis folded side by side; their states are merged and finalized by the form's rules."""
        binding, form, operator = self.binding, self.form, self.operator
        length, parts = binding.sizes[form.axis], self.schedule.parts
        held = {v.name: np.empty((parts, self.items, *([self.schedule.block] if v.block else []), *self._lengths(v.columns)), DTYPES[v.type])
                for v in self.compiled.source.state}
        cuts = [length * part // parts for part in range(parts + 1)]
        fixed = (*self._arguments(), *held.values())
        with self._blas():
            side_by_side(lambda part: self.compiled.module.fold(self.items, part, cuts[part], cuts[part + 1], *fixed), parts)
        fixed_inputs = {name: array for name, array in binding.arrays.items() if form.axis not in operator.inputs[name]}
        environment = environment_of(operator, replace(binding, arrays=fixed_inputs), form)
        states = [State(self._components(held, part, environment), cuts[part + 1] - cuts[part], cuts[part], environment) for part in range(parts)]
        outputs = finalize(form, reduce(lambda a, b: merge(form, a, b), states))
        with np.errstate(over="ignore"):
            narrow = [np.asarray(value).astype(DTYPES[type_]) for value, type_ in zip(outputs, self.compiled.source.outputs, strict=True)]
        return structured(operator, narrow, environment)

    def _lengths(self, axes: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.binding.sizes[self.program.copies.get(axis, axis)] for axis in axes)

    def _components(self, held: dict[str, np.ndarray], part: int, environment: Environment) -> dict[str, Held]:
        """What one part holds, laid out as the form's rules want it."""
        variables = {v.name: v for v in self.compiled.source.state}
        present = {update.name: update.present for update in self.program.updates}
        laid = lambda name: self._laid(variables[name], held[name][part], environment)
        everywhere = np.full((1,) * environment.ndim, True)
        return {c.name: Held(laid(c.name), laid(present[c.name]) if present[c.name] else everywhere,
                             laid(c.name + WON) if MONOIDS[c.monoid].indexed else None) for c in self.form.state}

    def _laid(self, variable: Variable, value: np.ndarray, environment: Environment) -> np.ndarray:
        """A variable of all items, (items, its columns) or (items, rows of a block, its columns), laid out."""
        batch, rows, columns, block = self.binding.batch, self.program.rows, variable.columns, self.program.block
        if block and variable.block:
            per_block = (math.prod((*batch, *self._lengths(rows[:-1]))), -1, *value.shape[2:])
            value = value.reshape(per_block)[:, :self.binding.sizes[block]]
        elif block:
            value = value.reshape(math.prod((*batch, *self._lengths(rows[:-1]))), -1, *value.shape[1:])[:, 0]
            rows = rows[:-1]
        return laid_out(value.reshape((*batch, *self._lengths(rows), *self._lengths(columns))), (*rows, *columns), environment.axes, len(batch))


def delivered(operator: Operator, result: object, out: tuple[np.ndarray, ...]) -> object:
    """The result, or the arrays of `out` (one per output) that hold it now."""
    if not out:
        return result
    parts = result if isinstance(result, tuple) else tuple(result.values()) if isinstance(result, dict) else (result,)
    if len(out) != len(parts):
        raise OperatorError(f"{operator.name} with out={len(out)} arrays", f"it has {len(parts)} outputs", "give one array per output")
    for given, part in zip(out, parts, strict=True):
        if given.shape != np.shape(part):
            raise OperatorError(f"{operator.name} with an out of shape {given.shape}", f"that output has shape {np.shape(part)}",
                                "give an array of that shape")
        if not np.may_share_memory(given, part):
            np.copyto(given, part, casting="same_kind")
    return operator.packed(out)


@cache
def machine() -> Machine:
    """This computer's caches and the threads that may be used."""
    return Machine(_cache_bytes(0, 32 * 1024), _cache_bytes(2, 1024 * 1024), MOST_THREADS)


def _cache_bytes(index: int, default: int) -> int:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text(encoding="utf-8").strip()
        return int(text.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(text[-1], 1)
    except (OSError, ValueError):
        return default
