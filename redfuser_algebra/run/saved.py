"""Streams as files: a state saved on one machine goes on, or is merged, on another.

In: a stream.  Out: an `.npz` archive of plain arrays with a JSON header: no code is stored, and none is run on reading.
The header names the format's version and the form, by a hash of its text; only a stream of that form takes it.
"""
from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.run.environment import Environment
from redfuser_algebra.run.files import writable, written
from redfuser_algebra.run.state import Held, State

if TYPE_CHECKING:
    from redfuser_algebra.run.stream import Snapshot

FORMAT = "redfuser stream"
VERSION = 1
"""Raised whenever a file of before would be read wrongly; older files are then refused with this number."""

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
        "dtypes": {name: np.dtype(dtype).name for name, dtype in snapshot.dtypes.items()},
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


def read(file: File, form: str) -> dict[str, object]:
    """The fields of a `Snapshot` from a file.  Raises OperatorError for a file of something else."""
    asked = f"a saved stream from {getattr(file, 'name', file)}"
    try:
        with nullcontext(file) if hasattr(file, "read") else open(file, "rb") as opened, np.load(opened, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise OperatorError(asked, "there is no such file", "save one: stream.save(path)") from None
    except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise OperatorError(asked, f"it is not readable: {error}", "give a file that stream.save(…) has written") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
        told = header.get("version") if isinstance(header, dict) else None
        raise OperatorError(asked, f"it is no stream of version {VERSION} (it says {told})", "save it again with this version")
    if header["form"] != form:
        raise OperatorError(asked, "it belongs to another operator or form", "load it with the fused operator that made it")
    return {
        "placed": bool(header["placed"]), "next": int(header["next"]), "final": header["final"],
        "spans": tuple((int(start), int(stop)) for start, stop in header["spans"]),
        "dtypes": {name: np.dtype(dtype) for name, dtype in header["dtypes"].items()},
        "given": _get_all(arrays, header["given"]),
        "fixed": header["fixed"] and _get_environment(arrays, header["fixed"]),
        "state": header["state"] and _get_state(arrays, header["state"]),
        "chunks": tuple(_get_environment(arrays, chunk) for chunk in header["chunks"]),
    }


def _put(arrays: Arrays, name: str, value: object) -> str:
    """An array of its own in the archive; the key under which it is."""
    arrays[name] = np.asarray(value)
    return name


def _put_all(arrays: Arrays, prefix: str, values: Mapping[str, object]) -> dict[str, str]:
    return {name: _put(arrays, f"{prefix}.{name}", value) for name, value in values.items()}


def _get_all(arrays: Arrays, keys: Mapping[str, str]) -> Arrays:
    return {name: arrays[key] for name, key in keys.items()}


def _put_environment(arrays: Arrays, prefix: str, environment: Environment) -> dict:
    sizes = {key: {axis: int(n) for axis, n in getattr(environment, key).items()} for key in ("sizes", "starts", "lengths")}
    return {"axes": list(environment.axes), "batch": list(map(int, environment.batch)), **sizes,
            "own": {name: list(axes) for name, axes in environment.own.items()},
            "values": _put_all(arrays, prefix, environment.values)}


def _get_environment(arrays: Arrays, stored: dict) -> Environment:
    return Environment(tuple(stored["axes"]), stored["sizes"], _get_all(arrays, stored["values"]), batch=tuple(stored["batch"]),
                       starts=stored["starts"], lengths=stored["lengths"],
                       own={name: tuple(axes) for name, axes in stored["own"].items()})


def _put_state(arrays: Arrays, state: State) -> dict:
    parts = {name: {part: _put(arrays, f"state.{name}.{part}", value)
                    for part, value in (("value", held.value), ("present", held.present), ("won", held.won)) if value is not None}
             for name, held in state.components.items()}
    return {"components": parts, "length": int(state.length), "start": int(state.start),
            "means": _put_all(arrays, "mean", state.means), "environment": _put_environment(arrays, "invariant", state.environment)}


def _get_state(arrays: Arrays, stored: dict) -> State:
    held = {name: Held(arrays[keys["value"]], arrays[keys["present"]], arrays.get(keys.get("won", "")))
            for name, keys in stored["components"].items()}
    environment = _get_environment(arrays, stored["environment"])
    return State(held, stored["length"], stored["start"], environment, _get_all(arrays, stored["means"]))
