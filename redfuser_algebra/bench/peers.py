"""The libraries that kernels are measured against: which are here, and how a function runs in each.

A peer takes a function written for its library and NumPy arrays, and gives a call that does the work and waits for
it.  None is imported before it is asked for; what is not installed is told with the reason.
"""
from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from types import ModuleType

import numpy as np
from threadpoolctl import threadpool_limits

Arrays = Mapping[str, np.ndarray]
Call = Callable[[], object]

UNSETTLING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")
"""Variables that change what BLAS and the compilers do.  The first two make OpenBLAS run for another processor."""


@dataclass(frozen=True)
class Peer:
    """A library: the key of its functions in a workload, the module it needs, and how a function becomes a call."""

    name: str
    key: str
    module: str
    prepare: Callable[[ModuleType, Callable, Arrays], Call]


def _numpy(_: ModuleType, function: Callable, arrays: Arrays) -> Call:
    return lambda: function(**arrays)


def _scipy(scipy: ModuleType, function: Callable, arrays: Arrays) -> Call:
    return lambda: function(scipy, **arrays)


def _tensors(torch: ModuleType, arrays: Arrays) -> dict[str, object]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _eager(torch: ModuleType, function: Callable, arrays: Arrays) -> Call:
    tensors = _tensors(torch, arrays)

    def run() -> object:
        with torch.inference_mode():
            return function(torch, **tensors)

    return run


def _compiled(torch: ModuleType, function: Callable, arrays: Arrays) -> Call:
    torch._dynamo.reset()
    tensors, fast = _tensors(torch, arrays), torch.compile(lambda given: function(torch, **given), dynamic=False)

    def run() -> object:
        with torch.inference_mode():
            return fast(tensors)

    return run


def _jit(jax: ModuleType, function: Callable, arrays: Arrays) -> Call:
    given = {name: jax.numpy.asarray(array) for name, array in arrays.items()}
    fast = jax.jit(lambda given: function(jax, **given))
    return lambda: jax.block_until_ready(fast(given))


PEERS = (
    Peer("NumPy", "numpy", "numpy", _numpy),
    Peer("SciPy", "scipy", "scipy", _scipy),
    Peer("torch eager", "torch", "torch", _eager),
    Peer("torch.compile", "torch", "torch", _compiled),
    Peer("torch SDPA", "sdpa", "torch", _eager),
    Peer("JAX jit", "jax", "jax", _jit),
    Peer("reading alone", "reading", "numpy", _numpy),
    Peer("reading alone, torch", "torch_reading", "torch", _eager),
    Peer("row sum", "row_sum", "numpy", _numpy),
    Peer("row sum, torch", "torch_row_sum", "torch", _eager),
    Peer("copy", "copy", "numpy", _numpy),
    Peer("copy, torch", "torch_copy", "torch", _eager),
    Peer("bare GEMM", "gemm", "numpy", _numpy),
)
"""In the order in which they are shown.  The last seven are floors: what reading, copying or multiplying alone takes."""


@cache
def library(module: str) -> ModuleType | str:
    """A peer's module, or why it cannot be used."""
    try:
        found = importlib.import_module(module)
        for inner in {"scipy": ("special", "stats"), "torch": ("_dynamo", "nn.functional")}.get(module, ()):
            importlib.import_module(f"{module}.{inner}")
        return found
    except ImportError as error:
        return f"not installed ({error})"


def equal_threads(number: int) -> AbstractContextManager:
    """The same number of threads for BLAS and torch; XLA takes one per core that this process may use, as kernels do."""
    torch = library("torch")
    if not isinstance(torch, str):
        torch.set_num_threads(number)
    return threadpool_limits(number)


PACKAGES = ("redfuser-algebra", "numpy", "numba", "llvmlite", "scipy", "torch", "jax", "jaxlib")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """The versions of all libraries that take part."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def unsettled() -> dict[str, str]:
    """The variables of this environment that change what peers do."""
    return {name: os.environ[name] for name in UNSETTLING if name in os.environ}
