"""A kernel file on a simulated GPU: its `plan` chooses the grid, its kernel is compiled, and the PTX is executed.

In: the text that a printer wrote, and arrays.  Out: the arrays that the kernel writes, and what it did to get them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.ptx.compile import Compiled, arguments, compiled
from redfuser_algebra.ptx.machine import Counts, Machine, Mode, read_kernel
from redfuser_algebra.ptx.memory import GlobalMemory
from redfuser_algebra.ptx.text import Kernel


@dataclass(frozen=True)
class Executed:
    """What a launch left behind: outputs, counts, the binary it ran, and how many blocks of how many threads there were."""

    outputs: tuple[np.ndarray, ...]
    counts: Counts
    binary: Compiled
    blocks: int
    threads: int


@dataclass
class KernelFile:
    """A kernel file; its kernels are compiled when first asked for, one per architecture and number of warps."""

    text: str
    made: dict[tuple[str, int], tuple[Compiled, Kernel]] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names["__name__"] = "kernel_file"
        exec(compile(self.text, "<kernel file>", "exec"), self.names)

    def plan(self, given: Sequence[object]) -> tuple[int, int, int, list, list[tuple[int, ...]]]:
        """The file's own plan: warps per row, blocks, threads, arguments, shapes of the outputs."""
        plan: Callable = self.names["plan"]
        return plan(*given)

    def binary(self, given: Sequence[object], architecture: str) -> tuple[Compiled, Kernel]:
        """The compiled kernel that the plan chooses for these arguments."""
        warps, _, threads, before, _ = self.plan(given)
        if (architecture, warps) not in self.made:
            outputs = [(np.dtype(dtype),) for _, dtype in self.names["OUTPUTS"]]
            types = [(value.dtype,) if isinstance(value, np.ndarray) else value.dtype for value in before]
            binary = compiled(self.names["make"](warps).py_func, [*types, *outputs], architecture, threads)
            self.made[architecture, warps] = binary, read_kernel(binary.ptx)
        return self.made[architecture, warps]

    def run(self, given: Sequence[object], architecture: str = "sm_90a", mode: Mode | None = None, shifts: Sequence[int] = ()) -> Executed:
        """Execute for arguments in the file's order; `shifts` moves arrays off the 256-byte grid, in elements."""
        binary, kernel = self.binary(given, architecture)
        _, blocks, threads, before, shapes = self.plan(given)
        outputs = [np.zeros(int(np.prod(shape)), dtype) for shape, (_, dtype) in zip(shapes, self.names["OUTPUTS"], strict=True)]
        flat = [np.ascontiguousarray(value).reshape(-1) if isinstance(value, np.ndarray) else value for value in (*before, *outputs)]
        places = [place for place, value in enumerate(flat) if isinstance(value, np.ndarray)]
        moved = {place: shift * flat[place].itemsize for place, shift in zip(places, shifts, strict=False)}
        memory = GlobalMemory()
        parameters, addresses = arguments(memory, flat, moved, range(len(before), len(flat)))
        counts = Machine(kernel, memory, parameters, mode).launch((blocks, 1, 1), (threads, 1, 1))
        results = [memory.array(address, shape, array.dtype) for address, shape, array in zip(addresses[-len(outputs):], shapes, outputs, strict=True)]
        return Executed(tuple(results), counts, binary, blocks, threads)
