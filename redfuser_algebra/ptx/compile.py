"""Compile a Numba CUDA kernel to PTX and cubin without a driver, on the way that numba-cuda itself takes before a launch.

In: a kernel function, the types of its arguments, an architecture.  Out: linked PTX, cubin, and what the linker says
about registers, spills and shared memory.
"""
from __future__ import annotations

import importlib.util
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from redfuser_algebra.language.errors import RedfuserError

ARCHITECTURES = {"sm_80": (8, 0), "sm_89": (8, 9), "sm_90a": (9, 0), "sm_100a": (10, 0)}
"""What the toolchain is asked for, and the compute capability it stands for; numba-cuda adds the `a` from 9.0 on."""

SASS_BYTES = 16
"""Bytes of one machine instruction from sm_70 on."""


class CompileError(RedfuserError):
    """A kernel that does not compile, or a toolchain that is not there."""


@dataclass(frozen=True)
class Compiled:
    """What a kernel became: text, if that was asked for, and binary, registers per thread, bytes of stack, spills and shared memory, and how
    many machine instructions."""

    architecture: str
    ptx: str
    cubin: bytes
    registers: int
    stack: int
    spilled: int
    shared: int
    instructions: int


def toolchain_missing() -> str:
    """What is not installed of all that compiling needs; "" if nothing is."""
    packages = [name for name in ("numba_cuda", "cuda") if importlib.util.find_spec(name) is None]
    if packages:
        return ", ".join(packages)
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    absent = []
    for library in ("nvvm", "nvrtc", "nvJitLink"):
        try:
            load_nvidia_dynamic_lib(library)
        except DynamicLibNotFoundError:
            absent.append(library)
    return ", ".join(absent)


def gpu_missing() -> str:
    """What stands against running kernels here: packages or libraries that are not installed, no driver, no GPU; "" if nothing does."""
    missing = toolchain_missing()
    if missing:
        return f"{missing} is not installed"
    from numba import cuda

    if cuda.is_available():
        return ""
    wrong = " ".join(str(cuda.cuda_error() or "").split())
    return "there is no GPU, or no driver for one" + (f" ({wrong})" if wrong else "")


def compiled(function: Callable, types: Sequence[object], architecture: str, bounds: int | tuple[int, ...] = 0) -> Compiled:
    """The kernel for arguments of these types, for one architecture; see `translated` and `linked`."""
    _check(architecture)
    return linked(translated(function, types, bounds), architecture)


def _check(architecture: str) -> None:
    if architecture not in ARCHITECTURES:
        raise CompileError(f"compiling for {architecture!r}", "there is no such architecture here", f"choose one of {', '.join(ARCHITECTURES)}")


def translated(function: Callable, types: Sequence[object], bounds: int | tuple[int, ...] = 0) -> bytes:
    """A kernel in the compiler's own form, which every architecture is linked from.

    `types` are NumPy dtypes for scalars and (dtype,) for one-dimensional arrays; `bounds` are what `cuda.jit` takes as launch
    bounds: threads per block, or these and blocks per multiprocessor.  It is asked for by the oldest architecture: for a newer
    one the compiler writes the same but for the kernel's name.

    Raises CompileError, which says what to install or what the compiler complained about.
    """
    missing = toolchain_missing()
    if missing:
        raise CompileError("compiling a CUDA kernel", f"{missing} is not installed", "pip install 'redfuser-algebra[cuda]'")
    from numba import cuda, from_dtype
    from numba.core.errors import NumbaError

    signature = tuple(from_dtype(each[0])[::1] if isinstance(each, tuple) else from_dtype(each) for each in types)
    oldest = min(ARCHITECTURES.values())
    try:
        with _pretended_device(oldest), _once_per_type():
            code, _ = cuda.compile(function, signature, device=False, abi="numba", output="ltoir", cc=oldest, launch_bounds=bounds or None)
    except NumbaError as error:
        raise CompileError(f"compiling {function.__name__}", f"{type(error).__name__}: {error}", "this is a fault of the printed kernel") from error
    return code


def linked(code: bytes, architecture: str, executed: bool = True) -> Compiled:
    """What a translated kernel becomes for an architecture, with PTX, which takes as long again, if it is to be `executed`.

    Raises CompileError.
    """
    _check(architecture)
    with ThreadPoolExecutor() as at_once:
        (cubin, log), *texts = at_once.map(lambda options: _linked(code, architecture, *options), ((), ("-ptx",))[:1 + executed])
    ptx = texts[0][0] if texts else b""
    found = [int(n) for n in re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log).groups()]
    registers, shared = (re.search(pattern, log) for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem"))
    return Compiled(architecture, ptx.decode().strip("\0"), cubin, int(registers[1]), found[0], found[1] + found[2],
                    int(shared[1]) if shared else 0, _machine_instructions(cubin))


@contextmanager
def _pretended_device(capability: tuple[int, int]) -> Iterator[None]:
    """Device functions ask which GPU is there before they are compiled; without a driver this answers them."""
    from numba import cuda
    from numba.cuda import api, dispatcher

    device = SimpleNamespace(compute_capability=capability, name="none")
    places = [module for module in (api, dispatcher, cuda) if hasattr(module, "get_current_device")]
    before = [module.get_current_device for module in places]
    for module in places:
        module.get_current_device = lambda: device
    try:
        yield
    finally:
        for module, own in zip(places, before, strict=True):
            module.get_current_device = own


@contextmanager
def _once_per_type() -> Iterator[None]:
    """Numba compiles a device function once more for every number that it is called with, of which its code is no other: here
    once for the numbers of a type, which takes about half as long and comes to the same binary."""
    from numba.core.types import unliteral
    from numba.cuda.dispatcher import CUDADispatcher

    own = CUDADispatcher.get_call_template
    CUDADispatcher.get_call_template = lambda self, args, named: own(self, tuple(map(unliteral, args)), named)
    try:
        yield
    finally:
        CUDADispatcher.get_call_template = own


def _linked(code: bytes, architecture: str, *options: str) -> tuple[bytes, str]:
    """What nvJitLink makes of LTO-IR: a cubin, or with "-ptx" the PTX text; and its log."""
    from cuda.bindings import nvjitlink

    given = ["-lto", f"-arch={architecture}", "-verbose", *options]
    handle = nvjitlink.create(len(given), given)
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), "kernel")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        size, fetch = ((nvjitlink.get_linked_ptx_size, nvjitlink.get_linked_ptx) if options else
                       (nvjitlink.get_linked_cubin_size, nvjitlink.get_linked_cubin))
        result = bytearray(size(handle))
        fetch(handle, result)
    except nvjitlink.nvJitLinkError as error:
        raise CompileError(f"linking for {architecture}", str(error), "look at the kernel's PTX") from error
    finally:
        nvjitlink.destroy(handle)
    return bytes(result), log.decode(errors="replace")


def _machine_instructions(cubin: bytes) -> int:
    """Instructions in the code sections of an ELF file (System V ABI, 64 bit, little endian)."""
    table, = struct.unpack_from("<Q", cubin, 0x28)
    size, count = struct.unpack_from("<HH", cubin, 0x3A)
    total = 0
    for place in range(count):
        kind, flags, _, _, length = struct.unpack_from("<IQQQQ", cubin, table + place * size + 4)
        total += length if kind == 1 and flags & 4 else 0
    return total // SASS_BYTES


def arguments(memory: object, given: Sequence[object], shifts: dict[int, int] | None = None, outputs: Sequence[int] = ()) -> tuple[list, list[int]]:
    """The parameters of a kernel for scalars and one-dimensional arrays, which are copied into simulated memory.

    Also the address of each array, in order.  `outputs` are the places of arrays that hold nothing yet; `shifts` moves
    arrays off the 256-byte grid.
    """
    flat: list = []
    addresses = []
    for place, value in enumerate(given):
        if not isinstance(value, np.ndarray):
            flat.append(value)
            continue
        addresses.append(memory.place(value, place not in outputs, (shifts or {}).get(place, 0)))
        # As numba-cuda passes an array: parent, allocation, elements, bytes of one, address, shape, strides.
        flat += [0, 0, value.size, value.itemsize, addresses[-1], value.size, value.itemsize]
    return flat, addresses
