"""Plans: how calls of a kernel with the same shapes and types run, worked out once.

In: a compiled kernel with its operator and form, the shapes of a call, a schedule; then arrays and scalars, as often as
there are calls.  Out: the operator's outputs.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.kinds import DTYPES
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.storage import Variable
from redfuser_algebra.lower.tile import TileProgram
from redfuser_algebra.run.environment import Environment, laid_out
from redfuser_algebra.run.kernels import Compiled
from redfuser_algebra.run.laid_out import check_out, delivered, environment_of, structured
from redfuser_algebra.run.state import Held, State, finalize, merge
from redfuser_algebra.run.threads import share_out, side_by_side

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

PIECE = 1 << 16
"""Elements of an input that a piece of work has at least: to call a kernel takes as long as a few thousand of them."""

NUMPY_DTYPES = {type_: np.dtype(dtype) for type_, dtype in DTYPES.items()}


@dataclass(frozen=True)
class _Input:
    """How a kernel wants an array: (own batch, axes in the program's order), of one dtype, in one piece of memory.

    `which` says for each batch element which of the array's own it reads.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    which: np.ndarray

    def of(self, array: np.ndarray) -> np.ndarray:
        """The array so, without a copy where it is so already."""
        moved = array.transpose(self.order)
        if not (moved.flags.carray and moved.dtype == self.dtype):
            moved = _writable(np.require(moved, self.dtype, ("C", "A")))
        return moved.reshape(self.shape)


@dataclass(frozen=True)
class _Output:
    """How a kernel writes an output: `shape` is (batch, axes in its own order); the operator's is `taken`, then `order`."""

    dtype: np.dtype
    shape: tuple[int, ...]
    taken: tuple[int, ...]
    order: tuple[int, ...]

    def written_into(self, given: np.ndarray | None, read: Iterable[np.ndarray]) -> np.ndarray:
        """The caller's array if it has the kernel's layout and shares no memory with what is read, else a new one."""
        fits = given is not None and given.flags.carray and given.dtype == self.dtype and given.shape == self.taken
        free = fits and self._is_in_order and not any(np.may_share_memory(given, array) for array in read)
        return given.reshape(self.shape) if free else np.empty(self.shape, self.dtype)

    @cached_property
    def _is_in_order(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def delivered(self, output: np.ndarray) -> np.ndarray:
        """What was written with dimensions (batch…, its axes…), a scalar if there are none."""
        full = output.reshape(self.taken)
        return (full if self._is_in_order else full.transpose(self.order))[()]


@dataclass(frozen=True)
class _Unprotected:
    """An array's memory, offered as one that may be written to."""

    array: np.ndarray

    @property
    def __array_interface__(self) -> dict[str, object]:
        return self.array.__array_interface__ | {"data": (self.array.__array_interface__["data"][0], False)}


def _writable(array: np.ndarray) -> np.ndarray:
    """The same memory without write protection: kernels only read their inputs, and Numba would compile them once more."""
    return array if array.flags.writeable else np.asarray(_Unprotected(array))


@dataclass(frozen=True)
class Plan:
    """How a kernel runs on arrays of these shapes: axis lengths, common batch shape, and the batch dimensions each array has (`leading`)."""

    compiled: Compiled
    operator: Operator
    form: FusedForm
    schedule: Schedule
    sizes: Mapping[str, int]
    batch: tuple[int, ...]
    leading: Mapping[str, tuple[int, ...]]

    @property
    def program(self) -> TileProgram:
        """The loops of the kernel."""
        return self.compiled.program

    @cached_property
    def rows(self) -> int:
        """Elements of the batch."""
        return math.prod(self.batch)

    @property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The dtype of each result."""
        return tuple(each.dtype for each in self._outputs)

    def outputs(self, arrays: Mapping[str, np.ndarray], params: Mapping[str, object], out: tuple[np.ndarray, ...] = ()) -> object:
        """What the operator returns: arrays of its own, or those of `out`, filled.  Raises OperatorError for an `out` that does not fit."""
        if out:
            check_out(self.operator, out, self._results)
        if self.schedule.parts > 1:
            return delivered(self.operator, self._merged(arrays, params), out)
        given = out or (None,) * len(self._outputs)
        written = [each.written_into(into, arrays.values()) for each, into in zip(self._outputs, given, strict=True)]
        fixed, cuts, sweep = (*self._arguments(arrays, params), *written), self._cuts, self.compiled.module.sweep
        share_out(lambda piece: sweep(cuts[piece], cuts[piece + 1], *fixed), len(cuts) - 1, self.schedule.threads)
        result = self.operator.packed(tuple([each.delivered(output) for each, output in zip(self._outputs, written, strict=True)]))
        return delivered(self.operator, result, out) if out else result

    def _arguments(self, arrays: Mapping[str, np.ndarray], params: Mapping[str, object]) -> list:
        """What all functions of a kernel take: schedule, arrays, scalars, sizes."""
        given: list = [self.schedule.tile, self.schedule.block]
        for name, each in self._inputs.items():
            given += (each.which, each.of(arrays[name]))
        given += [type_(params[name]) for name, type_ in self._scalars.items()]
        return [*given, *self._extents]

    # what is the same for all calls

    @cached_property
    def _items(self) -> int:
        """Pieces of independent work: rows, or blocks of them."""
        items = self.rows
        for axis in self.program.rows:
            items *= -(-self.sizes[axis] // self.schedule.block) if axis == self.program.block else self.sizes[axis]
        return items

    @cached_property
    def _cuts(self) -> list[int]:
        """Where pieces of work begin and end: the first ones are large, the last ones so small that all threads end together."""
        items, threads = self._items, max(1, min(self.schedule.threads, self._items))
        if threads == 1:
            return [0, items]
        largest = max(math.prod(each.shape) for each in self._inputs.values())
        smallest = min(-(-items // threads), max(1, items // (32 * threads), items * PIECE // largest))
        cuts = [0]
        while cuts[-1] < items:
            cuts.append(min(items, cuts[-1] + max(smallest, (items - cuts[-1]) // (2 * threads))))
        return cuts

    @cached_property
    def _inputs(self) -> dict[str, _Input]:
        return {name: self._input(name) for name in self.compiled.source.arrays}

    def _input(self, name: str) -> _Input:
        axes, wanted, own = self.operator.inputs[name], self.program.inputs[name], self.leading[name]
        which = np.arange(math.prod(own)).reshape((1,) * (len(self.batch) - len(own)) + own)
        return _Input((*range(len(own)), *(len(own) + axes.index(axis) for axis in wanted)), (which.size, *self._lengths(wanted)),
                      NUMPY_DTYPES[self.compiled.signature.arrays[name]], np.broadcast_to(which, self.batch).flatten())

    @cached_property
    def _scalars(self) -> dict[str, type]:
        return {name: NUMPY_DTYPES[self.compiled.signature.params[name]].type for name in self.compiled.source.params}

    @cached_property
    def _extents(self) -> tuple[int, ...]:
        return tuple(self.sizes[axis] for axis in self.compiled.source.sizes)

    @cached_property
    def _outputs(self) -> tuple[_Output, ...]:
        return tuple(map(self._output, self.program.output_axes, self.compiled.source.outputs))

    def _output(self, axes: tuple[str, ...], type_: str) -> _Output:
        program, leading = self.program, len(self.batch)
        written = (*program.rows, *([program.axis] if program.axis in axes else []), *program.columns(axes))
        lengths = self._lengths(written)
        return _Output(NUMPY_DTYPES[type_], (self.rows, *lengths), (*self.batch, *lengths),
                       (*range(leading), *(leading + written.index(axis) for axis in axes)))

    @cached_property
    def _results(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shape and dtype of each result."""
        lengths = [self._lengths(axes) for axes in self.program.output_axes]
        return [((*self.batch, *own), each.dtype) for own, each in zip(lengths, self._outputs, strict=True)]

    def _lengths(self, axes: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.sizes[self.program.copies.get(axis, axis)] for axis in axes)

    # the reduced axis in parts

    def _merged(self, arrays: Mapping[str, np.ndarray], params: Mapping[str, object]) -> object:
        """The parts of the reduced axis folded side by side; their states are joined by the kernel, or merged and finalized
        by the form's rules."""
        form, operator, length, parts = self.form, self.operator, self.sizes[self.form.axis], self.schedule.parts
        held = {v.name: np.empty((parts, self._items, *([self.schedule.block] if v.block else []), *self._lengths(v.columns)), NUMPY_DTYPES[v.type])
                for v in self.compiled.source.state}
        cuts = [length * part // parts for part in range(parts + 1)]
        fixed, module = (*self._arguments(arrays, params), *held.values()), self.compiled.module
        side_by_side(lambda part: module.fold(self._items, part, cuts[part], cuts[part + 1], *fixed), parts)
        if self.compiled.source.joins:
            written = [each.written_into(None, ()) for each in self._outputs]
            module.join(parts, self._items, *fixed, *written)
            if self.program.maps:
                side_by_side(lambda part: module.replay(self._items, part, cuts[part], cuts[part + 1], *fixed, *written), parts)
            return self.operator.packed(tuple([each.delivered(output) for each, output in zip(self._outputs, written, strict=True)]))
        invariant = {name: array for name, array in arrays.items() if form.axis not in operator.inputs[name]}
        scalars = {name: params[name] for name in operator.params}
        environment = environment_of(operator, Binding(invariant, scalars, dict(self.sizes), self.batch), form)
        states = [State(self._components(held, part, environment), cuts[part + 1] - cuts[part], cuts[part], environment,
                        self._means(held, part, environment)) for part in range(parts)]
        outputs = finalize(form, reduce(lambda a, b: merge(form, a, b), states))
        with np.errstate(over="ignore"):
            narrow = [np.asarray(value).astype(each.dtype) for value, each in zip(outputs, self._outputs, strict=True)]
        return structured(operator, narrow, environment)

    def _components(self, held: Mapping[str, np.ndarray], part: int, environment: Environment) -> dict[str, Held]:
        """What one part holds, laid out as the form's rules want it."""
        variables = {v.name: v for v in self.compiled.source.state}
        present = {update.name: update.present for update in self.program.updates}
        laid = lambda name: self._laid(variables[name], held[name][part], environment)
        everywhere = np.full((1,) * environment.ndim, True)
        return {c.name: Held(laid(c.name), laid(present[c.name]) if present[c.name] else everywhere,
                             laid(c.name + WON) if MONOIDS[c.monoid].indexed else None) for c in self.form.state}

    def _means(self, held: Mapping[str, np.ndarray], part: int, environment: Environment) -> dict[str, np.ndarray]:
        """The pivots that a part carried as means."""
        variables, pivots = {v.name: v for v in self.compiled.source.state}, {pivot.name for pivot in self.form.pivots}
        return {name: self._laid(variables[name], held[name][part], environment) for name in pivots & variables.keys()}

    def _laid(self, variable: Variable, value: np.ndarray, environment: Environment) -> np.ndarray:
        """A variable of all items, (items, its columns) or (items, rows of a block, its columns), laid out."""
        batch, rows, columns, block = self.batch, self.program.rows, variable.columns, self.program.block
        if block and variable.block:
            per_block = (math.prod((*batch, *self._lengths(rows[:-1]))), -1, *value.shape[2:])
            value = value.reshape(per_block)[:, :self.sizes[block]]
        elif block:
            value = value.reshape(math.prod((*batch, *self._lengths(rows[:-1]))), -1, *value.shape[1:])[:, 0]
            rows = rows[:-1]
        return laid_out(value.reshape((*batch, *self._lengths(rows), *self._lengths(columns))), (*rows, *columns), environment.axes, len(batch))
