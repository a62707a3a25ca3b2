"""Numba, made ready to load and to compile kernels: once in a process, and as fast as that can be."""
from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
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


@contextmanager
def remembered() -> Iterator[None]:
    """What Numba found for a function and the types of its arguments is not sought again: a tenth less to compile.

    It tries all that is known under a name like `+`, at each place where that stands.  What it finds depends on the flags
    that it compiles with, too.  These are Numba's private names: one that lacks them seeks every time.
    """
    try:
        from numba.core.targetconfig import ConfigStack
        from numba.core.types.functions import BaseFunction

        seek, flags = BaseFunction.get_call_type, ConfigStack.top_or_none
    except (ImportError, AttributeError):
        yield
        return
    known: dict[tuple, tuple] = {}

    def found(function: BaseFunction, context: object, args: Sequence, kws: Mapping[str, object]) -> object:
        key = function, tuple(args), tuple(kws.items()), flags()
        if key in known:
            signature, function._impl_keys[signature.args] = known[key]
            return signature
        signature = seek(function, context, args, kws)
        if signature is not None:
            known[key] = signature, function._impl_keys[signature.args]
        return signature

    another_remembers = seek.__module__ == __name__
    BaseFunction.get_call_type = seek if another_remembers else found
    try:
        yield
    finally:
        if not another_remembers:
            BaseFunction.get_call_type = seek
