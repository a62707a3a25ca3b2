"""Numba, made ready to load and to compile kernels: once in a process, and as fast as that can be."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


def start_numba() -> None:
    """Import what Numba needs before it loads or compiles anything; not to be called by two threads at once.

    To learn whether there is a BLAS, Numba imports SciPy's linear algebra, which takes longer than all the rest.  Kernels
    multiply matrices themselves, and other code that calls BLAS imports it when it is compiled.  These are Numba's private
    names: one that lacks them makes itself ready when it first compiles.
    """
    try:
        from numba.core.registry import cpu_target
        from numba.np import linalg

        refresh, imports_blas = cpu_target.target_context.refresh, linalg.ensure_blas
    except (ImportError, AttributeError):
        return
    linalg.ensure_blas = _ensure_scipy
    try:
        refresh()
    finally:
        linalg.ensure_blas = imports_blas


def _ensure_scipy() -> None:
    """Raises ImportError where BLAS could not be imported either."""
    if find_spec("scipy") is None:
        raise ImportError("SciPy is not installed")


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected: imports and compilers make many objects that stay, and each collection looks at all there are."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
