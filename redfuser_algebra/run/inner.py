"""The functions of a kernel that only compiled code calls, compiled with what calls them.

In: the module of a kernel.  Left to itself, Numba makes machine code of every function, and once more of all of them where
they are called; what has no wrapper is never called from outside, and LLVM's code of it is all that its callers need.
"""
from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import ModuleType


def compile_with_callers(module: ModuleType) -> None:
    """From now on the module's functions without a wrapper are compiled where they are called.

    These are Numba's private names: one that lacks them compiles every function by itself.
    """
    with suppress(ImportError, AttributeError):
        for function in vars(module).values():
            if getattr(function, "targetoptions", {}).get("no_cpython_wrapper"):
                function._compiler.pipeline_class = _pipeline()


@cache
def _pipeline() -> type:
    """Numba's compiler, with such a library for what it compiles."""
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler

    class Part(JITCodeLibrary):
        """LLVM's code of a function, to be optimised and made machine code of in the function that calls it."""

        codegen = property(lambda self: self)

        def set_env(self, name: str, environment: object) -> None:
            """There is no machine code that reads it."""

        def get_pointer_to_function(self, name: str) -> int:
            """There is none."""
            self._ensure_finalized()
            return 0

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

    class Inside(Compiler):
        """Compiles a function to a part of the one that calls it."""

        def define_pipelines(self) -> list:
            """The passes of every other function."""
            self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            return super().define_pipelines()

    return Inside
