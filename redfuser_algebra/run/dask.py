"""A fused form over dask arrays: dask's own reduction tree, with our lift, merge and finalize in its blocks.

In: an operator, its form and dask arrays with any chunks.  Out: dask arrays, lazily.  A state travels as the one
element of an object array.  The same chunks give the same tree, hence the same bits, under every scheduler.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import given_by_name, places, real_array, real_scalar
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.dtypes import result_dtypes
from redfuser_algebra.run.environment import Environment, taken_out
from redfuser_algebra.run.laid_out import environment_of
from redfuser_algebra.run.state import State, finalize, lift, mapped, merge

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

_STATE = "the state"
"""The dimension of an array of states that the reduced axis has become."""

_BATCH = "batch dimension"


def run_dask(operator: Operator, form: FusedForm, arrays: Sequence, named: Mapping[str, object]) -> object:
    """The outputs as dask arrays, in the operator's structure; nothing is computed yet.

    Arrays may be chunked along any axis; those over which the operator contracts, and those whose length it asks for,
    are made one chunk each.  Raises OperatorError where dask is not installed, for arrays that do not fit, and for
    chunks of unknown size.
    """
    da = _dask_array()
    if not form.merges:
        raise OperatorError(f"{operator.name} over dask arrays", f"it is online along {form.axis!r}: chunks do not merge",
                            "call it with NumPy arrays, or stream it")
    if form.prefixes:
        raise OperatorError(f"{operator.name} over dask arrays", f"an output sees what came before each element of {form.axis!r}",
                            "call it with NumPy arrays, or stream it")
    given = given_by_name(operator.signature, arrays, named)
    params = {name: real_scalar(operator.signature, name, given.get(name, default)) for name, default in operator.params.items()}
    blocks = _Blocks(operator, replace(form, trace=()), params, *_aligned(da, operator, form, given))
    state = blocks.states(da)
    return operator.widened(operator.packed(tuple(blocks.output(da, place, state) for place in range(len(operator.outputs)))))


def _dask_array() -> ModuleType:
    try:
        import dask.array as da
    except ImportError:
        raise OperatorError("a run over dask arrays", "dask is not installed", 'pip install "redfuser-algebra[dask]"') from None
    return da


def whole_axes(operator: Operator, form: FusedForm) -> set[str]:
    """The axes that must not be cut: reduced or copied ones, and those whose positions or lengths a result sees."""
    late = [*form.definitions.values()] + [c.rebase for c in form.state if c.rebase is not None]
    early = [part for c in form.state for part in c.operands]
    terms = subterms(*late, *early, *form.outputs)
    seen = {term.axis for term in terms if term.op in ("reduce", "size")} | set(form.axis_copies.values()) | set(operator.signature.tops)
    seen |= {term.axis for term in subterms(*late, *form.outputs) if term.op == "index"}
    return seen - {form.axis}


def _aligned(da: ModuleType, operator: Operator, form: FusedForm, given: Mapping[str, object]) -> tuple[dict, dict]:
    """The inputs with equal chunks along equal axes, those of the largest array, and the chunks of each dimension."""
    arrays = {name: each if isinstance(each := given[name], da.Array) else da.asarray(real_array(operator.signature, name, each))
              for name in operator.inputs}
    for name, array in arrays.items():
        if array.ndim < len(operator.inputs[name]) or np.isnan(array.size):
            raise OperatorError(f"input {name} of {operator.signature}", f"its shape is {array.shape}",
                                "give a dimension to each axis, and call .compute_chunk_sizes() where a length is unknown")
    chunks = dict.fromkeys(whole_axes(operator, form), None)
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].nbytes):
        for label, own in zip(_labels(operator, name, array.ndim), array.chunks, strict=True):
            whole = chunks.get(label, own) is None
            known = chunks.setdefault(label, own) or (sum(own),)
            chunks[label] = own if _stretches(label, known) else (sum(own),) if whole else known
            if sum(own) != sum(chunks[label]) and not _stretches(label, own):
                raise OperatorError(f"a call of {operator.signature}", f"{label} has length {sum(chunks[label])} and, in {name}, {sum(own)}",
                                    "make equal axes equally long")
    return {name: _rechunked(operator, name, array, chunks) for name, array in arrays.items()}, chunks


def _stretches(label: str, chunks: tuple[int, ...]) -> bool:
    """Whether this is a batch dimension of length one, which fits any other."""
    return label.startswith(_BATCH) and chunks == (1,)


def _rechunked(operator: Operator, name: str, array: object, chunks: Mapping[str, tuple]) -> object:
    labels = _labels(operator, name, array.ndim)
    return array.rechunk(tuple(own if _stretches(label, own) else chunks[label]
                               for label, own in zip(labels, array.chunks, strict=True)))


def _labels(operator: Operator, name: str, ndim: int) -> tuple[str, ...]:
    """A label for each dimension of an input: batch dimensions are counted from the last one, then come the axes."""
    axes = operator.inputs[name]
    return (*(f"{_BATCH} {place}" for place in range(ndim - len(axes), 0, -1)), *axes)


def _boxed(state: State, ndim: int) -> np.ndarray:
    box = np.empty((1,) * ndim, object)
    box[(0,) * ndim] = state
    return box


def _unboxed(box: object) -> State:
    """The state in a box, or in the first of many that are alike: blocks of an axis that the output lacks."""
    while isinstance(box, list):
        box = box[0]
    return box.flat[0]


@dataclass(frozen=True)
class _Blocks:
    """One call: what is done in each block, and how the blocks of inputs, states and outputs are labelled."""

    operator: Operator
    form: FusedForm
    params: Mapping[str, object]
    arrays: Mapping[str, object]
    chunks: Mapping[str, tuple[int, ...]]

    @cached_property
    def parallel(self) -> tuple:
        """The dimensions along which states are independent."""
        whole = whole_axes(self.operator, self.form)
        rows = [axis for axis in self.operator.axes if axis in self.chunks and axis != self.form.axis and axis not in whole]
        return (*self.batch, *rows)

    @cached_property
    def batch(self) -> tuple[str, ...]:
        """The batch dimensions, first to last."""
        return tuple(sorted((label for label in self.chunks if label.startswith(_BATCH)), key=lambda label: -int(label.split()[-1])))

    @cached_property
    def work(self) -> _Work:
        """What travels to the workers."""
        lengths = {axis: sum(sizes) for axis, sizes in self.chunks.items() if axis in self.operator.axes and sizes}
        return _Work(self.operator, self.form, dict(self.params), tuple(self.arrays), self._placed, lengths)

    @cached_property
    def _placed(self) -> tuple[str, ...]:
        """The axes whose blocks must know where they start."""
        return (self.form.axis, *(axis for axis in self.parallel if axis not in self.batch))

    def states(self, da: ModuleType) -> object:
        """The state of every row block: lifted blocks, merged along the axis by dask's reduction."""
        labels = (*self.parallel, self.form.axis)
        lifted = da.blockwise(self.work.lifted, labels, *self._inputs(da), dtype=object, concatenate=True, align_arrays=False,
                              meta=np.empty((0,) * len(labels), object))
        combine = partial(_merged, self.work.form)
        return da.reduction(lifted, chunk=_kept, combine=combine, aggregate=combine, axis=len(labels) - 1, keepdims=True,
                            concatenate=False, dtype=object, meta=np.empty((0,) * len(labels), object))

    def output(self, da: ModuleType, place: int, state: object) -> object:
        """One output, from the states and, if it keeps the axis, the inputs once more."""
        operator, axis = self.operator, self.form.axis
        axes = operator.output_axes[place]
        dtypes = result_dtypes(operator, {name: array.dtype for name, array in self.arrays.items()}, self.params)
        lengths, signature = self.work.lengths, operator.signature
        known = lengths | {top: places(signature, count, lengths, self.params) for top, count in signature.tops.items()}
        made = {label: known[label] for label in axes if label not in self.parallel and label != axis}
        inputs = self._inputs(da) if axis in axes else ()
        labels = (*self.batch, *axes)
        return da.blockwise(partial(self.work.output, place, dtypes[place]), labels, state, (*self.parallel, _STATE), *inputs,
                            dtype=dtypes[place], new_axes={label: length for label, length in made.items()
                                                           if axis not in axes or not self._is_read(label)},
                            concatenate=True, align_arrays=False, meta=np.empty((0,) * len(labels), dtypes[place]))

    def _is_read(self, label: str) -> bool:
        return any(label in self.operator.inputs[name] for name in self.arrays)

    def _inputs(self, da: ModuleType) -> list:
        """The arguments of a blockwise call: every input, and the positions at which its blocks start."""
        pairs = [part for name, array in self.arrays.items() for part in (array, _labels(self.operator, name, array.ndim))]
        for axis in self._placed:
            starts = np.cumsum([0, *self.chunks[axis][:-1]])
            pairs += [da.from_array(starts, chunks=1), (axis,)]
        return pairs


@dataclass(frozen=True)
class _Work:
    """What a worker does with its blocks; holds no array."""

    operator: Operator
    form: FusedForm
    params: dict[str, object]
    names: tuple[str, ...]
    placed: tuple[str, ...]
    lengths: dict[str, int]

    def environment(self, blocks: Sequence[np.ndarray]) -> Environment:
        """The inputs of one block, and the positions where it starts."""
        arrays, starts = blocks[:len(self.names)], blocks[len(self.names):]
        binding = self.operator.bind(**dict(zip(self.names, arrays, strict=True)), **self.params)
        environment = environment_of(self.operator, binding, self.form)
        sizes = dict(environment.sizes)
        if self.form.length_given:
            sizes |= self.form.lengths(self.lengths[self.form.axis]) | {self.form.axis: environment.sizes[self.form.axis]}
        return replace(environment, sizes=sizes, starts={axis: int(np.ravel(start)[0]) for axis, start in zip(self.placed, starts, strict=True)})

    def lifted(self, *blocks: np.ndarray) -> np.ndarray:
        """The state of one block."""
        environment = self.environment(blocks)
        rows = len(environment.batch) + len(self.placed)
        return _boxed(lift(self.form, environment), rows)

    def output(self, place: int, dtype: np.dtype, box: object, *blocks: np.ndarray) -> np.ndarray:
        """A block of one output."""
        state = _unboxed(box)
        if blocks:
            environment = self.environment(blocks)
            value = mapped(self.form, state, environment)[place]
        else:
            environment = replace(state.environment, sizes={**state.environment.sizes, self.form.axis: state.length})
            value = finalize(self.form, state)[place]
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(taken_out(value, self.operator.output_axes[place], environment)).astype(dtype, copy=False)


def _kept(box: np.ndarray, axis: object, keepdims: bool) -> np.ndarray:
    return box


def _merged(form: FusedForm, boxes: object, axis: object, keepdims: bool) -> np.ndarray:
    """The box of the merged states of neighbouring blocks, in order."""
    boxes = boxes if isinstance(boxes, list) else [boxes]
    return _boxed(reduce(partial(merge, form), map(_unboxed, boxes)), boxes[0].ndim)
