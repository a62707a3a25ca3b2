"""Compiled kernels: printed and compiled once per form and types of arrays, kept on disk under the hash of their source.

In: an operator, its form and a Signature.  Out: a Compiled kernel, or None where there is none.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from redfuser_algebra.algebra.monoids import MONOIDS
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.cache import cache_folder, written_whole
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.numba_cpu import CpuSource, print_cpu
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.storage import Signature
from redfuser_algebra.lower.tile import LoweringError, TileProgram
from redfuser_algebra.run.inner import compile_with_callers
from redfuser_algebra.run.starting import start_numba

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

SHORT, MANY = 4, 1 << 16
"""The length up to which loops over a column axis are written out, and the elements from which on that is worth a kernel."""

_lock = threading.RLock()
_kernels: dict[tuple, Compiled | None] = {}
_ran: set[str] = set()
_warned: list[str] = []


def _after_fork() -> None:
    """The lock may have been held by a thread that the child does not have."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Compiled:
    """A kernel: its program, its printed source, and the form, whose terms it keeps alive.  `module` compiles when called.

    `schedules` remembers what was chosen for axis lengths.
    """

    program: TileProgram
    source: CpuSource
    form: FusedForm
    signature: Signature
    schedules: dict[tuple[int, ...], Schedule] = field(default_factory=dict)

    @cached_property
    def title(self) -> str:
        """The name of its module: another source is another module."""
        return _title(self.source.text, self.program.name)

    @cached_property
    def module(self) -> ModuleType:
        """The module made of the source."""
        return load(self.source.text, self.program.name)

    @property
    def is_loaded(self) -> bool:
        """Whether it ran in this process."""
        return self.title in _ran

    @property
    def is_cached(self) -> bool:
        """Whether it ran in some process under this version of Numba, so that compiled code lies in the cache."""
        try:
            return self._mark.read_bytes() == version("numba").encode()
        except OSError:
            return False

    def has_run(self) -> None:
        """Remember that its functions are compiled."""
        if self.title not in _ran:
            _ran.add(self.title)
            with suppress(OSError):  # a full disk: the next process compiles once more
                written_whole(self._mark, version("numba").encode())

    def threw_away(self) -> bool:
        """Whether compiled code was kept on disk; it is not any more, and the module is loaded anew.  It may be damaged."""
        kept = self.files
        for path in (*kept, self._mark):
            path.unlink(missing_ok=True)
        sys.modules.pop(self.title, None)
        self.__dict__.pop("module", None)
        return bool(kept)

    @property
    def files(self) -> list[Path]:
        """Where Numba keeps its compiled code, once it is loaded."""
        loaded = self.__dict__.get("module")
        return [*Path(loaded.sweep.stats.cache_path).glob(f"{self.title}.*.nb?")] if loaded else []

    @property
    def _mark(self) -> Path:
        return cache_folder() / f"{self.title}.compiled"


def kernel_for(operator: Operator, form: FusedForm, signature: Signature) -> Compiled | None:
    """The kernel of a form for a signature, made when first asked for; None where there is none."""
    key = _key(operator, form, signature)
    with _lock:
        if key not in _kernels:
            _kernels[key] = _made(operator, form, signature)
        return _kernels[key]


def short_columns(program: TileProgram, sizes: Mapping[str, int]) -> dict[str, int]:
    """The axes so short that loops over them are better written out, where there are many elements to pay for a kernel of their own."""
    places = {u.axes[-1] for u in program.updates if MONOIDS[u.monoid].counted}
    columns = {axis for own in program.inputs.values() for axis in program.columns(own)} - places
    return {axis: sizes[axis] for axis in sorted(columns) if sizes[axis] <= SHORT} if sizes[program.axis] >= MANY else {}


def known_kernel(operator: Operator, form: FusedForm, signature: Signature) -> Compiled | None:
    """The kernel if it was asked for before."""
    return _kernels.get(_key(operator, form, signature))


def _made(operator: Operator, form: FusedForm, signature: Signature) -> Compiled | None:
    try:
        program = lower(operator, form)
        return Compiled(program, print_cpu(program, signature), form, signature)
    except LoweringError:
        return None


def give_up(operator: Operator, form: FusedForm, signature: Signature, error: Exception) -> None:
    """From now on there is no such kernel; the first time in a process this is said."""
    with _lock:
        _kernels[_key(operator, form, signature)] = None
        first, _ = not _warned, _warned.append(operator.name)
    if first:
        why = "Numba asks for the working directory, which was deleted" if _is_nowhere() else f"{type(error).__name__}: {error}".splitlines()[0]
        told = f"no CPU kernel for {operator.name}: {why}"
        warnings.warn(f"{told}; the fused form runs with NumPy instead", RuntimeWarning, stacklevel=5)


def _is_nowhere() -> bool:
    """Whether the working directory of this process is gone; Numba writes names of files from there."""
    try:
        return not os.getcwd()
    except FileNotFoundError:
        return True


def _key(operator: Operator, form: FusedForm, signature: Signature) -> tuple:
    formulas = [e for c in form.state for e in (c.lift, c.mask, c.count, c.rebase)] + [*form.definitions.values()]
    types = (tuple(each.items()) for each in (signature.arrays, signature.params, signature.sizes))
    return operator, form.axis, tuple(map(id, formulas)), signature.products, *types


def _title(text: str, name: str) -> str:
    return f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def load(text: str, name: str) -> ModuleType:
    """The module with this source, from a file named after its content: Numba keeps compiled code beside it."""
    title = _title(text, name)
    with _lock:
        if title in sys.modules:
            return sys.modules[title]
        path = cache_folder() / f"{title}.py"
        if not path.exists() or path.read_bytes() != text.encode():
            written_whole(path, text.encode())
        spec = importlib.util.spec_from_file_location(title, path)
        module = importlib.util.module_from_spec(spec)
        start_numba()
        spec.loader.exec_module(module)
        compile_with_callers(module)
        sys.modules[title] = module
        return module
