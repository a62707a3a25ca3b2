"""A kernel file on a simulated GPU: its `plan` chooses the grid, its kernel is compiled, and the PTX is executed.

In: the text that a printer wrote, and arrays.  Out: the arrays that the kernel writes, and what it did to get them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.ptx.compile import Compiled, arguments, compiled
from redfuser_algebra.ptx.kept import keep, kept
from redfuser_algebra.ptx.machine import Counts, Machine, Mode, read_kernel
from redfuser_algebra.ptx.memory import GlobalMemory
from redfuser_algebra.ptx.text import Kernel


@dataclass(frozen=True)
class Executed:
    """What the launches left behind: outputs, counts, and the binary and the threads per block of each launch."""

    outputs: tuple[np.ndarray, ...]
    counts: Counts
    binaries: tuple[tuple[Compiled, int], ...]


@dataclass
class KernelFile:
    """A kernel file; its kernels are compiled when first asked for, one per architecture and choice of its plan, and kept on disk."""

    text: str
    made: dict[tuple, tuple[Compiled, Kernel]] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names["__name__"] = "kernel_file"
        exec(compile(self.text, "<kernel file>", "exec"), self.names)

    def plan(self, given: Sequence[object]) -> tuple[list, list, list[int], list[tuple[int, ...]]]:
        """The file's own plan: launches, arguments, lengths of what parts of rows leave, shapes of the outputs."""
        plan: Callable = self.names["plan"]
        return plan(*given)

    def binaries(self, given: Sequence[object], architecture: str) -> list[tuple[Compiled, Kernel, int, int]]:
        """For each launch that the plan makes for these arguments the compiled kernel, blocks, and threads per block."""
        launches, before, _, _ = self.plan(given)
        types = [(value.dtype,) if isinstance(value, np.ndarray) else value.dtype for value in before]
        types += [(np.dtype(dtype),) for dtype in (*(dtype for dtype, _ in self.names["HELD"]), *(dtype for _, dtype in self.names["OUTPUTS"]))]
        found = []
        for chosen, blocks, threads in launches:
            if (architecture, chosen) not in self.made:
                binary = self._compiled(chosen, types, architecture)
                self.made[architecture, chosen] = binary, read_kernel(binary.ptx)
            found.append((*self.made[architecture, chosen], blocks, threads))
        return found

    def _compiled(self, chosen: tuple, types: Sequence[object], architecture: str) -> Compiled:
        binary = kept(self.text, chosen, types, architecture)
        if binary is None:
            kernel = self.names["make"](*chosen)
            binary = compiled(kernel.py_func, types, architecture, kernel.targetoptions["launch_bounds"])
            keep(binary, self.text, chosen, types, architecture)
        return binary

    def run(self, given: Sequence[object], architecture: str = "sm_90a", mode: Mode | None = None, shifts: Sequence[int] = ()) -> Executed:
        """Execute for arguments in the file's order; `shifts` moves arrays off the 256-byte grid, in elements."""
        _, before, held, shapes = self.plan(given)
        empty = [np.zeros(count, dtype) for count, (dtype, _) in zip(held, self.names["HELD"], strict=True)]
        outputs = [np.zeros(int(np.prod(shape)), dtype) for shape, (_, dtype) in zip(shapes, self.names["OUTPUTS"], strict=True)]
        flat = [np.ascontiguousarray(value).reshape(-1) if isinstance(value, np.ndarray) else value for value in (*before, *empty, *outputs)]
        places = [place for place, value in enumerate(flat) if isinstance(value, np.ndarray)]
        moved = {place: shift * flat[place].itemsize for place, shift in zip(places, shifts, strict=False)}
        memory, counts, ran = GlobalMemory(), Counts(), []
        parameters, addresses = arguments(memory, flat, moved, range(len(before), len(flat)))
        for binary, kernel, blocks, threads in self.binaries(given, architecture):
            counts = counts.joined(Machine(kernel, memory, parameters, mode).launch((blocks, 1, 1), (threads, 1, 1)))
            ran.append((binary, threads))
        results = [memory.array(address, shape, array.dtype) for address, shape, array in zip(addresses[-len(outputs):], shapes, outputs, strict=True)]
        return Executed(tuple(results), counts, tuple(ran))
