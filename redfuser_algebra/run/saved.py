"""Streams as files: a state saved on one machine goes on, or is merged, on another.

In: a stream.  Out: an `.npz` archive of plain arrays with a JSON header: no code is stored, and none is run on reading.
The header names the format's version and the form, by a hash of its text; only a stream of that form takes it.
"""
from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.run.dtypes import as_numpy
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.files import writable, written
from redfuser_algebra.run.positions import joined_spans
from redfuser_algebra.run.reference import has_maps
from redfuser_algebra.run.state import Held, State

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm
    from redfuser_algebra.run.stream import Snapshot

FORMAT = "redfuser stream"
VERSION = 1
"""Raised whenever a file of before would be read wrongly; older files are then refused with this number."""

DAMAGED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What reading raises of a file that holds something else than what was written."""

Arrays = dict[str, np.ndarray]
File = str | Path | IO[bytes]


def fingerprint(operator: object, form: object) -> str:
    """What an operator and its form say, as a short text that is the same on every machine."""
    return sha256(f"{operator}\n{form}".encode()).hexdigest()


def write(file: File, snapshot: Snapshot, form: str) -> None:
    """Save what a stream holds."""
    arrays: Arrays = {}
    header = {
        "format": FORMAT, "version": VERSION, "form": form, "placed": snapshot.placed, "next": snapshot.next,
        "final": snapshot.final, "spans": [list(map(int, span)) for span in snapshot.spans],
        "dtypes": {name: as_numpy(np.dtype(dtype)).name for name, dtype in snapshot.dtypes.items()},
        "given": _put_all(arrays, "given", snapshot.given),
        "fixed": snapshot.fixed and _put_environment(arrays, "fixed", snapshot.fixed),
        "state": snapshot.state and _put_state(arrays, snapshot.state),
        "chunks": [_put_environment(arrays, f"chunk{place}", chunk) for place, chunk in enumerate(snapshot.chunks)],
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    if hasattr(file, "write"):
        np.savez(file, **arrays)
    else:
        written(writable(Path(file)), lambda opened: np.savez(opened, **arrays))


def read(file: File, operator: Operator, form: FusedForm) -> dict[str, object]:
    """The fields of a `Snapshot` from a file.  Raises OperatorError for a file of something else, or damaged."""
    asked = f"a saved stream from {getattr(file, 'name', file)}"
    try:
        with nullcontext(file) if hasattr(file, "read") else open(file, "rb") as opened, np.load(opened, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise OperatorError(asked, "there is no such file", "save one: stream.save(path)") from None
    except (OSError, EOFError, *DAMAGED, zipfile.BadZipFile) as error:
        raise OperatorError(asked, f"it is not readable: {error}", "give a file that stream.save(…) has written") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
        told = header.get("version") if isinstance(header, dict) else None
        raise OperatorError(asked, f"it is no stream of version {VERSION} (it says {told})", "save it again with this version")
    if header.get("form") != fingerprint(operator, form):
        raise OperatorError(asked, "it belongs to another operator or form", "load it with the fused operator that made it")
    try:
        return _Reading(operator, form, arrays).snapshot(header)
    except DAMAGED as error:
        raise OperatorError(asked, f"it is damaged: {type(error).__name__}: {error}", "save the stream again") from None


def _put(arrays: Arrays, name: str, value: object) -> str:
    """An array of its own in the archive; the key under which it is."""
    value = np.asarray(value)
    arrays[name] = value.astype(as_numpy(value.dtype), copy=False)
    return name


def _put_all(arrays: Arrays, prefix: str, values: Mapping[str, object]) -> dict[str, str]:
    return {name: _put(arrays, f"{prefix}.{name}", value) for name, value in values.items()}


def _put_environment(arrays: Arrays, prefix: str, environment: Environment) -> dict:
    sizes = {key: {axis: int(n) for axis, n in getattr(environment, key).items()} for key in ("sizes", "starts", "lengths")}
    return {"axes": list(environment.axes), "batch": list(map(int, environment.batch)), **sizes,
            "own": {name: list(axes) for name, axes in environment.own.items()},
            "values": _put_all(arrays, prefix, environment.values)}


def _put_state(arrays: Arrays, state: State) -> dict:
    parts = {name: {part: _put(arrays, f"state.{name}.{part}", value)
                    for part, value in (("value", held.value), ("present", held.present), ("won", held.won)) if value is not None}
             for name, held in state.components.items()}
    return {"components": parts, "length": int(state.length), "start": int(state.start),
            "means": _put_all(arrays, "mean", state.means), "environment": _put_environment(arrays, "invariant", state.environment)}


@dataclass(frozen=True)
class _Reading:
    """A header and its arrays on their way back: raises one of DAMAGED for what this form cannot have written."""

    operator: Operator
    form: FusedForm
    arrays: Arrays

    def snapshot(self, header: dict) -> dict[str, object]:
        """The fields of a `Snapshot`."""
        spans = tuple((_whole(start), _whole(stop)) for start, stop in header["spans"])
        fixed, state = (header[key] and read(header[key]) for key, read in (("fixed", self._environment), ("state", self._state)))
        seen = sum(stop - start for start, stop in spans)
        _check(joined_spans(spans, ()) == spans and seen == (state.length if state else 0) and bool(fixed) == bool(state),
               "positions, length and state do not go together")
        chunks = tuple(map(self._environment, header["chunks"]))
        _check(sum(chunk.sizes[self.form.axis] for chunk in chunks) == (seen if has_maps(self.form) else 0)
               and all(self.form.axis in chunk.starts for chunk in chunks), "chunks are missing")
        _check({*header["dtypes"]} <= {*self.operator.inputs}, "it has dtypes of other inputs")
        return {
            "placed": bool(header["placed"]), "next": _whole(header["next"]),
            "final": None if header["final"] is None else _whole(header["final"]), "spans": spans,
            "dtypes": {name: _real(np.dtype(str(dtype))) for name, dtype in header["dtypes"].items()},
            "given": self._all(header["given"]), "fixed": fixed or None, "state": state or None,
            "chunks": chunks,
        }

    def _array(self, key: str) -> np.ndarray:
        _real(self.arrays[key].dtype)
        return self.arrays[key]

    def _all(self, keys: Mapping[str, str]) -> Arrays:
        _check({*keys} <= {*self.operator.inputs, *self.operator.params}, "it has values of other inputs")
        return {name: self._array(key) for name, key in keys.items()}

    def _environment(self, stored: dict) -> Environment:
        axes, own = (*self.operator.axes, *self.form.axis_copies), self.operator.inputs | self.form.symbol_axes
        _check(stored["axes"] == [*axes] and {*stored["sizes"]} == {*axes} and stored["own"] == {name: [*each] for name, each in own.items()},
               "its axes are those of another operator")
        sizes, starts, lengths = ({axis: _whole(n) for axis, n in stored[key].items()} for key in ("sizes", "starts", "lengths"))
        environment = Environment(axes, sizes, self._all(stored["values"]), batch=tuple(map(_whole, stored["batch"])),
                                  starts=starts, lengths=lengths, own=own)
        for value in environment.values.values():
            _check_laid_out(value, environment)
        return environment

    def _state(self, stored: dict) -> State:
        environment = self._environment(stored["environment"])
        _check({name: "won" in keys for name, keys in stored["components"].items()} == {c.name: MONOIDS[c.monoid].indexed for c in self.form.state},
               "its components are those of another form")
        held = {name: Held(*(self._array(keys[part]) if part != "won" or part in keys else None for part in ("value", "present", "won")))
                for name, keys in stored["components"].items()}
        means = {name: self._array(key) for name, key in stored["means"].items()}
        for value in (*means.values(), *(part for each in held.values() for part in (each.value, each.present, each.won) if part is not None)):
            _check_laid_out(value, environment, self.form.axis)
        _check({*means} <= {pivot.name for pivot in self.form.pivots} and all(each.present.dtype == bool for each in held.values()),
               "its state is that of another form")
        return State(held, _whole(stored["length"]), _whole(stored["start"]), environment, means)


def _check_laid_out(value: np.ndarray, environment: Environment, reduced: str = "") -> None:
    """A value has a dimension for each of the batch and each axis, as long as it or of length one."""
    whole = (*environment.batch, *(1 if axis == reduced else environment.sizes[axis] for axis in environment.axes))
    _check(value.ndim == len(whole) and all(own in (1, length) for own, length in zip(value.shape, whole, strict=True)),
           f"an array of shape {value.shape} is not one of {whole}")


def _real(dtype: np.dtype) -> np.dtype:
    _check(dtype.kind in "biuf", f"{dtype} is no dtype of real numbers")
    return dtype


def _whole(number: object) -> int:
    _check(type(number) is int and number >= 0, f"{number!r:.40} is no length or position")
    return number


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
