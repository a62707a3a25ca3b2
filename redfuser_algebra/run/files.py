"""A fused operator run on files: arrays mapped from disk, streamed in chunks, results written whole or not at all.

In: a fused operator, and for each input or parameter the text given for it: a path or a number.  Out: files.
"""
from __future__ import annotations

import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from redfuser_algebra.language.binding import suggestion
from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.language.operator import Operator

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm
    from redfuser_algebra.run.stream import Stream

READABLE = (".npy", ".csv", ".txt")
WRITABLE = (".npy", ".npz", ".csv", ".txt")


class Fused(Protocol):
    """A fused operator that makes streams."""

    operator: Operator
    form: FusedForm

    def stream(self, **given: object) -> Stream:
        """A running state."""


def given(operator: Operator, words: list[str]) -> dict[str, object]:
    """The inputs and parameters that a command line names: `--X x.npy --scale 0.125`, or with `=` between.

    Raises OperatorError for a name the operator does not have, a value missing, or a file that cannot be read.
    """
    known = [*operator.inputs, *operator.params]
    values: dict[str, object] = {}
    for name, text in _pairs(operator, words):
        if name not in known:
            raise OperatorError(f"--{name} for {operator.signature}", "it has no such input or parameter", suggestion(name, known))
        if name in values:
            raise OperatorError(f"--{name} for {operator.signature}", "it is given twice", "give it once")
        values[name] = array_from(text) if name in operator.inputs else scalar_from(name, text)
    return values


def _pairs(operator: Operator, words: list[str]) -> Iterator[tuple[str, str]]:
    left = list(words)
    while left:
        word = left.pop(0)
        name, joined, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name or not (joined or left):
            raise OperatorError(f"{word!r} for {operator.signature}", "it is not an option with a value",
                                "write --NAME FILE for arrays and --NAME NUMBER for scalars")
        yield name, value if joined else left.pop(0)


def array_from(text: str) -> np.ndarray:
    """The array in a file (.npy is mapped, not read; .csv and .txt are read), or a number."""
    path = Path(text).expanduser()
    number = _number(text)
    if number is not None and not path.exists():
        return np.asarray(number)
    if path.suffix not in READABLE:
        raise OperatorError(f"the array {text}", f"{path.suffix or 'no ending'} is no known kind of file",
                            f"give a file ending in one of {', '.join(READABLE)}")
    try:
        if path.suffix == ".npy":
            return _mapped(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "loadtxt: input contained no data")
            return np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None)
    except FileNotFoundError:
        raise OperatorError(f"the array {text}", "there is no such file", "check the path") from None
    except (OSError, EOFError, ValueError, UserWarning) as error:
        raise OperatorError(f"the array {text}", f"it cannot be read: {str(error).rstrip('.')}", "save it with numpy.save, or as plain "
                            "numbers in columns, comments behind #") from None


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # NumPy speaks of pickles and of unsafe ways to load them
        raise ValueError("it holds no array of numbers as numpy.save writes it") from None


def scalar_from(name: str, text: str) -> bool | int | float:
    """The number or truth value that a text spells."""
    number = _number(text)
    if number is None:
        raise OperatorError(f"--{name} {text}", "it is not a number", "write a number, true or false")
    return number


def _number(text: str) -> bool | int | float | None:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return None


def streamed(fused: Fused, values: Mapping[str, object], chunk: int, told: Callable[[int, int], object]) -> object:
    """The outputs, with the axis taken `chunk` elements at a time; `told(done, length)` hears of every chunk."""
    operator, axis = fused.operator, fused.form.axis
    binding = operator.bind(**values)
    length = binding.sizes[axis]
    varying = {name: axes.index(axis) - len(axes) for name, axes in operator.inputs.items() if axis in axes}
    stream = fused.stream(**{name: value for name, value in values.items() if name not in varying})
    told(0, length)
    for start in range(0, max(length, 1), chunk):
        stop = min(start + chunk, length)
        stream.update(**{name: _slice(binding.arrays[name], dim, start, stop) for name, dim in varying.items()})
        told(stop, length)
    return stream.result()


def _slice(array: np.ndarray, dim: int, start: int, stop: int) -> np.ndarray:
    return array[(..., slice(start, stop)) + (slice(None),) * (-dim - 1)]


def named_outputs(operator: Operator, result: object) -> dict[str, np.ndarray]:
    """Results by name: the operator's own names, or out1, out2, …, or out."""
    if operator.structure == "single":
        return {"out": np.asarray(result)}
    if operator.structure == "tuple":
        return {f"out{place}": np.asarray(value) for place, value in enumerate(result, 1)}
    return {name: np.asarray(value) for name, value in result.items()}


def checked_destination(text: str) -> Path:
    """The path that results are to be written to.  Raises OperatorError, before anything is computed."""
    path = Path(text).expanduser()
    if path.suffix not in WRITABLE:
        raise OperatorError(f"writing {text}", f"{path.suffix or 'no ending'} is no known kind of file",
                            f"choose a name ending in one of {', '.join(WRITABLE)}")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise OperatorError(f"writing {text}", f"{path.parent} is not a folder that can be written to", "choose another folder")
    return path


def save(path: Path, outputs: Mapping[str, np.ndarray]) -> dict[str, Path]:
    """Write outputs, and return where each went: all into one .npz, or each into a file with its name in front of the ending."""
    if path.suffix == ".npz":
        return dict.fromkeys(outputs, written(path, lambda file: np.savez(file, **outputs)))
    targets = {name: path.with_stem(f"{path.stem}_{name}") if len(outputs) > 1 else path for name in outputs}
    return {name: written(target, lambda file, name=name: _save_one(file, path.suffix, outputs[name]))
            for name, target in targets.items()}


def _save_one(file: object, suffix: str, array: np.ndarray) -> None:
    if suffix == ".npy":
        np.save(file, array)
    elif array.ndim > 2:
        raise OperatorError(f"writing an array of shape {array.shape} as {suffix}", "text files have rows and columns only",
                            "choose a name ending in .npy or .npz")
    else:
        np.savetxt(file, np.atleast_1d(array), fmt="%.17g", delimiter="," if suffix == ".csv" else " ")


def recorded_certificate(folder: Path, operator: Operator, form: FusedForm) -> str | None:
    """The hash of the certificate that a file of a folder names for this operator and form; None if there is none.

    Looked for in the files whose name starts with the operator's and that hold its text and update rule.
    """
    for path in sorted(folder.glob(f"{operator.name}_*.py")):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^Certificate: sha256 ([0-9a-f]{64})$", text, re.MULTILINE)
        if found and all(line.strip() in text for line in (*str(operator).splitlines(), *form.update.splitlines())):
            return found[1]
    return None


def save_text(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all.  Raises OperatorError for a path that cannot be written."""
    return written(writable(path), lambda file: file.write(text.encode()))


def writable(path: Path) -> Path:
    """A path that a file can be written to.  Raises OperatorError otherwise, before work is done in vain."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        failed = "it is a folder" if path.is_dir() else f"{path.parent} is not a folder that can be written to"
        raise OperatorError(f"writing {path}", failed, "choose another path")
    return path


def written(path: Path, write: Callable[[object], None]) -> Path:
    """Write to a file beside the target, then rename: whatever happens, the target is whole or as it was.

    Raises OperatorError where the file system does not take it.
    """
    try:
        return _renamed(path, write)
    except OSError as error:
        raise OperatorError(f"writing {path}", f"it cannot be written: {error.strerror or error}", "choose another path") from None


def _renamed(path: Path, write: Callable[[object], None]) -> Path:
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def size_of(array: np.ndarray) -> str:
    """What an array is, in a few words."""
    return f"{array.dtype} {' × '.join(map(str, array.shape)) or 'scalar'} ({math.prod(array.shape) * array.itemsize:,} bytes)"
