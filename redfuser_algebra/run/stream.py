"""Streams: a fused form fed chunk by chunk, merged with other streams, asked for its result at any time."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.binding import check_known
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.expr import subterms
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run import saved
from redfuser_algebra.run.dtypes import in_dtypes, result_dtypes, wider
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.laid_out import environment_of, structured
from redfuser_algebra.run.positions import Spans, joined_spans, moved, moves_freely
from redfuser_algebra.run.reference import completed, has_maps
from redfuser_algebra.run.state import State, advanced, identity, lift, mapped, merge

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm


@dataclass(frozen=True)
class Snapshot:
    """All that a stream holds, as plain data; see `Stream`."""

    placed: bool
    next: int
    final: int | None
    spans: Spans
    dtypes: dict[str, np.dtype]
    given: dict[str, object]
    fixed: Environment | None
    state: State | None
    chunks: tuple[Environment, ...]


class Stream:
    """The running state of an operator over its reduced axis.

    `start` is the absolute position of the first element (what `ra.index` and argmax speak of); by default 0, and
    a stream merged into another follows it.  `length` is how many elements there will be in all, which forms need
    whose elements see it (their guards say so).  Inputs without the axis and parameters may be given here, or with any
    update; they must not change.  If the operator has maps, the stream refers to the chunks it was given (it does
    not copy them) so that `result` can sweep them again: do not overwrite them.
    """

    def __init__(self, operator: Operator, form: FusedForm, /, start: int | None = None, length: int | None = None,
                 **given: object) -> None:
        if form.length_given and length is None:
            raise OperatorError(f"a stream of {operator.name}", f"its elements see the length of {form.axis!r} from the "
                                "first one on", "say how many there will be: stream(length=…)")
        check_known(operator.signature, given)
        self._operator, self._form, self._given, self._final = operator, form, given, length
        for what, number in (("start", start), ("length", length)):
            if number is not None and not (isinstance(number, Integral) and number >= 0):
                raise OperatorError(f"a stream of {operator.name} with {what}={number!r:.40}", "it is no position along the axis",
                                    "give a whole number of at least 0")
        self._placed, self._next = start is not None, start or 0
        self._fixed: Environment | None = None
        self._state: State | None = None
        self._spans: Spans = ()
        self._chunks: list[Environment] = []
        self._dtypes: dict[str, np.dtype] = {}

    @property
    def length(self) -> int:
        """The number of elements seen."""
        return self._state.length if self._state else 0

    def __repr__(self) -> str:
        return f"Stream({self._operator.name}, length={self.length})"

    def update(self, /, *chunk: object, **named: object) -> Stream:
        """Add the next elements and return the stream.

        By position: all inputs, or only those that have the axis.  Raises OperatorError for a chunk that does not
        fit the operator, or the chunks before it.
        """
        environment = self._bound(chunk, named, self._next)
        self._fixed = self._fixed or self._without_chunk(environment)
        return self._add(lift(self._form, environment) if self._form.merges else environment, [environment], (self._span(environment),))

    def merge(self, other: Stream) -> Stream:
        """Add all that `other` has seen and return this stream; `other` stays as it is.

        Raises OperatorError for a stream of another form or other inputs, for positions that overlap, and where
        only `stream(start=…)` can say what the positions in `other` are.
        """
        if not isinstance(other, Stream) or other._form is not self._form:
            raise OperatorError(f"merging {other!r} into {self!r}", "they run different fused forms",
                                "make both with .stream() of the same fused operator")
        if other._state is None:
            return self
        self._check_same(other._fixed)
        self._fixed = self._fixed or other._fixed
        self._given = other._given | self._given
        self._note(other._dtypes)
        if other._placed:
            self._add(other._state, other._chunks, other._spans)
            self._placed = True
            return self
        by = self._next if other.length else 0
        if by and not moves_freely(self._form):
            raise OperatorError(
                f"merging {other!r} into {self!r}", f"the operator depends on positions along {self._form.axis!r}, "
                "and where the second stream starts is not said", f"make it with stream(start={by})")
        spans = tuple((start + by, stop + by) for start, stop in other._spans)
        return self._add(moved(self._form, other._state, by), [self._moved(c, by) for c in other._chunks], spans)

    def result(self) -> object:
        """The operator's outputs for all elements seen so far.

        Raises OperatorError before the first update, and where the operator has no value (the max of no elements).
        """
        self._check_started("the result")
        if self._form.length_given and self.length != self._final:
            raise OperatorError(f"the result of {self!r}", f"its elements were to be {self._final}",
                                "add the others first, or make the stream with another length")
        whole = replace(self._fixed, sizes={**self._fixed.sizes, self._form.axis: self.length})
        outputs = completed(self._operator, self._form, self._state, sorted(self._chunks, key=self._span), whole)
        return self._operator.widened(self._narrow(self._operator, outputs))

    def map(self, /, *chunk: object, start: int | None = None, **named: object) -> object:
        """The maps (outputs that keep the axis) of one chunk, with the results of all elements seen so far.

        `start` is the chunk's position, needed only if a map uses `ra.index` of the axis.  With several outputs,
        those that keep the axis come as a tuple, or a dict by name.
        """
        self._check_started("a map")
        axis, maps = self._form.axis, _maps_only(self._operator, self._form)
        if self._form.prefixes:
            raise OperatorError(f"a map of {self!r}", "it sees what came before the chunk", "call .result(), which has all chunks")
        positional = [term for term in subterms(*self._form.outputs) if term.op == "index" and term.axis == axis]
        if start is None and positional:
            raise OperatorError(f"a map of {self!r}", f"it depends on positions along {axis!r}",
                                "say where the chunk starts: .map(…, start=0)")
        environment = self._bound(chunk, named, start or 0)
        values = [value for value in mapped(self._form, self._state, environment) if value is not None]
        return self._narrow(maps, structured(maps, values, environment))

    def save(self, file: str | Path | IO[bytes]) -> None:
        """Write all that was seen to a file, for `fused.load_stream` here or on another machine.

        The file holds numbers only, no code; for operators with maps also the chunks themselves.
        """
        held = Snapshot(self._placed, self._next, self._final, self._spans, self._dtypes, self._given, self._fixed,
                        self._state, tuple(self._chunks))
        saved.write(file, held, saved.fingerprint(self._operator, self._form))

    @classmethod
    def load(cls, operator: Operator, form: FusedForm, file: str | Path | IO[bytes]) -> Stream:
        """The stream that `save` wrote.  Raises OperatorError for a file of anything else, also of another form."""
        held = Snapshot(**saved.read(file, operator, form))
        stream = cls(operator, form, held.next if held.placed else None, held.final, **held.given)
        stream._next, stream._fixed, stream._state = held.next, held.fixed, held.state
        stream._spans, stream._chunks, stream._dtypes = held.spans, list(held.chunks), held.dtypes
        return stream

    def _note(self, dtypes: Mapping[str, np.dtype]) -> None:
        """Arrays of these dtypes were seen; of chunks that differ the wider one counts."""
        self._dtypes |= {name: wider(self._dtypes.get(name, dtype), dtype) for name, dtype in dtypes.items()}

    def _narrow(self, operator: Operator, result: object) -> object:
        """Outputs in the dtypes that a call with all chunks at once would give."""
        return in_dtypes(operator, result, result_dtypes(operator, self._dtypes, self._fixed.values))

    def _add(self, part: State | Environment, chunks: Sequence[Environment], spans: Spans) -> Stream:
        """Add a state, or, where parts do not merge, the chunk that follows."""
        joined = joined_spans(self._spans, spans)
        if joined is None:
            told = ", ".join(f"{start} … {stop - 1}" for start, stop in spans)
            raise OperatorError(f"adding the positions {told} to {self!r}", "it has already seen some of them",
                                "give each stream a start of its own")
        if isinstance(part, Environment):
            self._state = advanced(self._form, self._state or identity(self._form, part), part)
        else:
            self._state = part if self._state is None else merge(self._form, *self._in_order(part, spans))
        self._spans, self._next = joined, max([self._next, *(stop for _, stop in spans)])
        if has_maps(self._form):
            self._chunks += chunks
        return self

    def _in_order(self, state: State, spans: Spans) -> tuple[State, State]:
        """The state so far and another one, in the order of their elements.  Raises OperatorError if they interleave."""
        if self._form.order == "commutative" or not (spans and self._spans) or self._spans[-1][1] <= spans[0][0]:
            return self._state, state
        if spans[-1][1] <= self._spans[0][0]:
            return state, self._state
        raise OperatorError(f"adding the positions {spans[0][0]} … {spans[-1][1] - 1} to {self!r}",
                            "it has seen elements before and after them, and its monoid does not commute",
                            "merge neighbours first")

    def _bound(self, chunk: Sequence, named: dict[str, object], start: int) -> Environment:
        """The environment of one chunk, checked against those before it; what must stay the same is remembered."""
        operator, axis = self._operator, self._form.axis
        varying = [name for name, axes in operator.inputs.items() if axis in axes]
        by_position = self._by_position(chunk, list(operator.inputs), varying)
        twice = [name for name in named if name in by_position]
        if twice:
            raise OperatorError(f"a chunk of {operator.name} with {twice[0]}=",
                                f"{twice[0]} was also given by position", "give it once")
        given = self._given | by_position | named
        binding = operator.bind(**given)
        environment = environment_of(operator, binding, self._form)
        if self._form.length_given:
            final = {**environment.sizes, **self._form.lengths(self._final), axis: environment.sizes[axis]}
            environment = replace(environment, sizes=final)
        self._check_same(environment)
        self._note({name: array.dtype for name, array in binding.arrays.items()})
        self._given = {name: value for name, value in given.items() if name not in varying}
        return replace(environment, starts={axis: start})

    def _by_position(self, chunk: Sequence, inputs: list[str], varying: list[str]) -> dict[str, object]:
        names = inputs if len(chunk) == len(inputs) else varying
        if len(chunk) > len(names):
            raise OperatorError(
                f"a chunk of {self._operator.name} with {len(chunk)} arrays by position",
                f"{', '.join(varying)} have the axis {self._form.axis!r}", "give other inputs and scalars by name")
        return dict(zip(names, chunk, strict=False))

    def _check_same(self, other: Environment) -> None:
        """Raises OperatorError unless `other` has the same batch, lengths and values, apart from the axis."""
        if self._fixed is None:
            return
        fixed, axis = self._fixed, self._form.axis
        changed = ["the batch shape"] if fixed.batch != other.batch else []
        changed += [f"the length of axis {name}" for name, length in fixed.sizes.items()
                    if name != axis and other.sizes[name] != length]
        changed += [name for name, value in fixed.values.items() if not _same(value, other.values[name])]
        if changed:
            raise OperatorError(f"adding to {self!r}", f"{changed[0]} differs from what came before",
                                f"keep it the same along the axis {axis!r}, or start another stream")

    def _check_started(self, what: str) -> None:
        if self._state is None:
            raise OperatorError(f"{what} of {self!r}", "no chunk has been given yet",
                                "call .update(…) first; a chunk of length 0 will do")

    def _without_chunk(self, chunk: Environment) -> Environment:
        """The environment with only what stays the same, so that a stream does not keep its chunks alive."""
        varying = [name for name, axes in self._operator.inputs.items() if self._form.axis in axes]
        return replace(chunk, values={name: v for name, v in chunk.values.items() if name not in varying}, starts={})

    def _span(self, chunk: Environment) -> tuple[int, int]:
        start = chunk.starts[self._form.axis]
        return start, start + chunk.sizes[self._form.axis]

    def _moved(self, chunk: Environment, by: int) -> Environment:
        return replace(chunk, starts={self._form.axis: chunk.starts[self._form.axis] + by})


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))


def _maps_only(operator: Operator, form: FusedForm) -> Operator:
    """The operator with only the outputs that keep the axis.  Raises OperatorError if there are none."""
    kept = [i for i, output in enumerate(form.outputs) if form.axis in output.axes]
    if not kept:
        raise OperatorError(f"a map of {operator.name}", f"none of its outputs keeps the axis {form.axis!r}",
                            "call .result()")
    named = not isinstance(operator.structure, str)
    return replace(
        operator, outputs=tuple(operator.outputs[i] for i in kept),
        output_axes=tuple(operator.output_axes[i] for i in kept), kept=tuple(operator.kept[i] for i in kept),
        structure=tuple(operator.structure[i] for i in kept) if named else operator.structure)
