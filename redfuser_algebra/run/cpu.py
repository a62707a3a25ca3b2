"""Run fused forms as compiled CPU kernels: arrays brought into the kernel's layout, rows shared between threads.

A kernel is printed and compiled once per form and types of arrays, and kept on disk under the hash of its source.
Threads are Python's: they hold no lock while the kernel runs, survive a fork, and may call from several places.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.algebra.monoids import MONOIDS, WON
from redfuser_algebra.language.binding import Binding
from redfuser_algebra.language.errors import RedfuserError
from redfuser_algebra.language.operator import Operator
from redfuser_algebra.lower.lowering import lower
from redfuser_algebra.lower.numba_cpu import CpuSource, print_cpu
from redfuser_algebra.lower.schedule import Machine, Schedule, default_schedule
from redfuser_algebra.lower.storage_cpu import Signature
from redfuser_algebra.lower.tile import LoweringError, TileProgram
from redfuser_algebra.run.call import environment_of, structured
from redfuser_algebra.run.environment import Environment, laid_out
from redfuser_algebra.run.state import Held, State, finalize, merge

if TYPE_CHECKING:
    from redfuser_algebra.discover.form import FusedForm

DTYPES = {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64), "i8": np.dtype(np.int64), "b1": np.dtype(np.bool_)}
MOST_THREADS = int(os.environ.get("REDFUSER_THREADS", "0")) or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0])

LONG = 1 << 16
"""Elements from which on the reduced axis of a few rows is cut into parts."""

_lock = threading.RLock()
_kernels: dict[tuple, Kernel | None] = {}
_pools: dict[int, ThreadPoolExecutor] = {}
_warned: list[str] = []


def _after_fork() -> None:
    """The child has none of the threads, and the lock may have been held by one of them."""
    global _lock
    _lock = threading.RLock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its program, its printed source, the module made of it, and the form, whose terms it keeps alive."""

    program: TileProgram
    source: CpuSource
    module: ModuleType
    form: FusedForm


def run_cpu(operator: Operator, form: FusedForm, binding: Binding, schedule: Schedule | None = None) -> object | None:
    """The outputs of a call by a compiled kernel; None where there is no kernel for it.

    There is none for empty axes or batches, where no array is real, and where Numba cannot be used (that is said once).
    """
    signature = signature_of(binding)
    if signature is None or not all(binding.sizes.values()) or not all(binding.batch) or _places_missing(form, binding):
        return None
    kernel = kernel_for(operator, form, signature)
    if kernel is None:
        return None
    try:
        return _called(kernel, operator, form, binding, signature, schedule)
    except RedfuserError:
        raise
    except Exception as error:  # Numba compiles at the first call, and may fail in as many ways as there are machines
        with _lock:
            _kernels[_key(operator, form, signature)] = None
        _warn_once(f"no CPU kernel for {operator.name}: {type(error).__name__}: {error}".splitlines()[0])
        return None


def signature_of(binding: Binding) -> Signature | None:
    """The types of a call's arrays and scalars; None where kernels have none for them."""
    arrays = {name: _type(array.dtype) for name, array in binding.arrays.items()}
    if None in arrays.values() or not {"f4", "f8"} & set(arrays.values()):
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
    return "b1" if dtype.kind == "b" else None


def _places_missing(form: FusedForm, binding: Binding) -> bool:
    """Whether some top-k asks for more elements than there are: the error is the interpreter's to tell."""
    counted = [c for c in form.state if MONOIDS[c.monoid].counted]
    return any(binding.sizes[c.axes[-1]] > binding.sizes[form.axis] for c in counted)


def kernel_for(operator: Operator, form: FusedForm, signature: Signature) -> Kernel | None:
    """The compiled kernel of a form for a signature, made when first asked for; None where there is none."""
    key = _key(operator, form, signature)
    with _lock:
        if key not in _kernels:
            _kernels[key] = _made(operator, form, signature)
        return _kernels[key]


def _key(operator: Operator, form: FusedForm, signature: Signature) -> tuple:
    formulas = [e for c in form.state for e in (c.lift, c.mask, c.count, c.rebase)] + [row.value for row in (*form.pivots, *form.results)]
    return operator, form.axis, tuple(map(id, formulas)), tuple(signature.arrays.items()), tuple(signature.params.items()), signature.blas


def _made(operator: Operator, form: FusedForm, signature: Signature) -> Kernel | None:
    try:
        program = lower(operator, form)
        source = print_cpu(program, signature)
    except LoweringError:
        return None
    try:
        return Kernel(program, source, load(source.text, operator.name), form)
    except Exception as error:
        _warn_once(f"no CPU kernel for {operator.name}: {type(error).__name__}: {error}".splitlines()[0])
        return None


def _warn_once(message: str) -> None:
    if not _warned:
        warnings.warn(f"{message}; the fused form runs with NumPy instead", RuntimeWarning, stacklevel=5)
    _warned.append(message)


def cache_folder() -> Path:
    """Where kernels are kept between sessions; a folder of this session's if the user's cannot be written."""
    base = os.environ.get("REDFUSER_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "redfuser")
    folder = Path(base) / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="redfuser-kernels-"))


def load(text: str, name: str) -> ModuleType:
    """The module with this source, from a file named after its content: Numba keeps compiled code beside it."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    title = f"{name}_{digest}"
    if title in sys.modules:
        return sys.modules[title]
    path = cache_folder() / f"{title}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    spec = importlib.util.spec_from_file_location(title, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[title] = module
    return module


def _blas_is_there() -> bool:
    return importlib.util.find_spec("scipy") is not None


def _called(kernel: Kernel, operator: Operator, form: FusedForm, binding: Binding, signature: Signature,
            schedule: Schedule | None) -> object:
    program, source = kernel.program, kernel.source
    batch = int(np.prod(binding.batch, dtype=np.int64))
    width = 4 if signature.real == "f4" else 8
    schedule = schedule or default_schedule(program, binding.sizes, batch, width, machine())
    if _is_split(kernel, binding, batch, schedule):
        return _split(kernel, operator, form, binding, signature, schedule, batch)
    outputs = [np.empty((batch, *(binding.sizes[a] for a in _order(program, axes))), DTYPES[type_])
               for axes, type_ in zip(program.output_axes, source.outputs, strict=True)]
    fixed = (*_arguments(kernel, operator, binding, signature, schedule), *outputs)
    with _one_blas_thread() if source.multiplies else nullcontext():
        _share(kernel.module.sweep, _items(program, binding, batch, schedule), schedule.threads, fixed)
    return operator.packed(tuple(_taken(program, binding, output, axes) for output, axes in zip(outputs, program.output_axes, strict=True)))


def _arguments(kernel: Kernel, operator: Operator, binding: Binding, signature: Signature, schedule: Schedule) -> tuple:
    """What all functions of a kernel take: schedule, arrays, scalars, sizes."""
    program, source = kernel.program, kernel.source
    arrays = [part for name in source.arrays for part in _laid_out(program, operator, binding, signature, name)]
    scalars = [_scalar(signature.params[name], binding.params[name]) for name in source.params]
    return (schedule.tile, schedule.block, *arrays, *scalars, *(binding.sizes[a] for a in source.sizes))


def _is_split(kernel: Kernel, binding: Binding, batch: int, schedule: Schedule) -> bool:
    """Whether the reduced axis is shared between threads: there are too few rows for them, and it is long."""
    return (bool(kernel.source.state) and _items(kernel.program, binding, batch, schedule) < MOST_THREADS
            and binding.sizes[kernel.program.axis] >= LONG)


def _split(kernel: Kernel, operator: Operator, form: FusedForm, binding: Binding, signature: Signature, schedule: Schedule,
           batch: int) -> object:
    """The parts of the reduced axis folded side by side; their states are merged and finalized by the form's rules."""
    program, length = kernel.program, binding.sizes[form.axis]
    items, parts = _items(program, binding, batch, schedule), MOST_THREADS
    held = {v.name: np.empty((parts, items, *(binding.sizes[program.copies.get(a, a)] for a in v.columns)), DTYPES[v.type])
            for v in kernel.source.state}
    cuts = [length * part // parts for part in range(parts + 1)]
    fixed = (*_arguments(kernel, operator, binding, signature, schedule), *held.values())
    with _one_blas_thread() if kernel.source.multiplies else nullcontext():
        jobs = [_pool().submit(kernel.module.fold, items, part, cuts[part], cuts[part + 1], *fixed) for part in range(1, parts)]
        kernel.module.fold(items, 0, cuts[0], cuts[1], *fixed)
        [job.result() for job in jobs]
    fixed_inputs = {name: array for name, array in binding.arrays.items() if form.axis not in operator.inputs[name]}
    environment = environment_of(operator, replace(binding, arrays=fixed_inputs), form)
    states = [State(_components(program, form, held, part, environment, binding), cuts[part + 1] - cuts[part], cuts[part], environment)
              for part in range(parts)]
    outputs = finalize(form, reduce(lambda a, b: merge(form, a, b), states))
    narrow = [np.asarray(value).astype(DTYPES[type_]) for value, type_ in zip(outputs, kernel.source.outputs, strict=True)]
    return structured(operator, narrow, environment)


def _components(program: TileProgram, form: FusedForm, held: dict[str, np.ndarray], part: int, environment: Environment,
                binding: Binding) -> dict[str, Held]:
    """What one part holds, laid out as the form's rules want it."""
    columns = {update.name: program.columns(update.axes) for update in program.updates}

    def laid(name: str, of: str) -> np.ndarray:
        rows = binding.batch + tuple(binding.sizes[axis] for axis in program.rows)
        value = held[name][part]
        return laid_out(value.reshape(rows + value.shape[1:]), (*program.rows, *columns[of]), environment.axes, len(binding.batch))

    present = {update.name: update.present for update in program.updates}
    everywhere = np.full((1,) * environment.ndim, True)
    return {c.name: Held(laid(c.name, c.name), laid(present[c.name], present[c.name]) if present[c.name] else everywhere,
                         laid(c.name + WON, c.name) if MONOIDS[c.monoid].indexed else None) for c in form.state}


def _laid_out(program: TileProgram, operator: Operator, binding: Binding, signature: Signature, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Which of an array's own batch each batch element reads, and the array: (own batch, axes in the program's order)."""
    array, axes = binding.arrays[name], operator.inputs[name]
    leading = array.ndim - len(axes)
    own = array.shape[:leading]
    order = (*range(leading), *(leading + axes.index(axis) for axis in program.inputs[name]))
    flat = np.ascontiguousarray(array.transpose(order), DTYPES[signature.arrays[name]]).reshape(-1, *(binding.sizes[a] for a in program.inputs[name]))
    which = np.arange(len(flat)).reshape((1,) * (len(binding.batch) - leading) + own)
    return np.ascontiguousarray(np.broadcast_to(which, binding.batch)).reshape(-1), flat


def _scalar(type_: str, value: float) -> object:
    return DTYPES[type_].type(value)


def _order(program: TileProgram, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The order in which a kernel writes the axes of an output."""
    return (*program.rows, *([program.axis] if program.axis in axes else []), *program.columns(axes))


def _items(program: TileProgram, binding: Binding, batch: int, schedule: Schedule) -> int:
    items = batch
    for axis in program.rows:
        size = binding.sizes[axis]
        items *= -(-size // schedule.block) if axis == program.block else size
    return items


def _taken(program: TileProgram, binding: Binding, output: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
    """An output as the operator returns it: dimensions (batch…, its axes…), a scalar if there are none."""
    written, leading = _order(program, axes), len(binding.batch)
    full = output.reshape(binding.batch + output.shape[1:])
    return full.transpose(*range(leading), *(leading + written.index(axis) for axis in axes))[()]


def machine() -> Machine:
    """This computer's caches and the threads that may be used."""
    return Machine(_cache_bytes(0, 32 * 1024), _cache_bytes(2, 1024 * 1024), MOST_THREADS)


def _cache_bytes(index: int, default: int) -> int:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text(encoding="utf-8").strip()
        return int(text.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(text[-1], 1)
    except (OSError, ValueError):
        return default


def _share(sweep: Callable, items: int, threads: int, fixed: tuple) -> None:
    """All items, split evenly between threads; the caller's thread does the first share."""
    threads = max(1, min(threads, items))
    cuts = [items * part // threads for part in range(threads + 1)]
    others = [_pool().submit(sweep, first, last, *fixed) for first, last in zip(cuts[1:], cuts[2:], strict=False)]
    try:
        sweep(cuts[0], cuts[1], *fixed)
    finally:
        for other in others:
            other.result()


def _pool() -> ThreadPoolExecutor:
    """This process's threads: after a fork the child makes its own."""
    with _lock:
        if os.getpid() not in _pools:
            _pools.clear()
            _pools[os.getpid()] = ThreadPoolExecutor(max(1, MOST_THREADS - 1), thread_name_prefix="redfuser")
        return _pools[os.getpid()]


def _one_blas_thread() -> object:
    """Matrix products inside our threads must not start threads of their own."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return nullcontext()
    with _lock:
        if not _controllers:
            _controllers.append(ThreadpoolController())
    return _controllers[0].limit(limits=1, user_api="blas")


_controllers: list = []
