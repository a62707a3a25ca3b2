"""A kernel file on a simulated GPU: its `plan` chooses the grid, its kernel is compiled, and the PTX is executed.

In: the text that a printer wrote, and arrays.  Out: the arrays that the kernel writes, and what it did to get them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from redfuser_algebra.ptx.alike import unified
from redfuser_algebra.ptx.compile import Compiled, arguments, linked, translated
from redfuser_algebra.ptx.decode import Program
from redfuser_algebra.ptx.kept import keep, kept
from redfuser_algebra.ptx.machine import Counts, Machine, Mode, read_kernel
from redfuser_algebra.ptx.memory import GlobalMemory
from redfuser_algebra.ptx.tensor_maps import encode_tiled


@dataclass(frozen=True)
class Executed:
    """What the launches left behind: outputs, counts, and the binary and the threads per block of each launch."""

    outputs: tuple[np.ndarray, ...]
    counts: Counts
    binaries: tuple[tuple[Compiled, int], ...]


@dataclass
class KernelFile:
    """A kernel file; its kernels are compiled when first asked for, one per architecture and choice of its plan, and kept on disk.

    `code` is what the compiler made of a choice for any architecture, `read` the PTX of those that ran."""

    text: str
    made: dict[tuple, Compiled] = field(default_factory=dict)
    code: dict[tuple, bytes] = field(default_factory=dict)
    read: dict[str, Program] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names["__name__"] = "kernel_file"
        exec(compile(self.text, "<kernel file>", "exec"), self.names)

    def plan(self, given: Sequence[object]) -> tuple[list, list, list[int], list[tuple[int, ...]]]:
        """The file's own plan: launches, arguments, lengths of what parts of rows leave, shapes of the outputs."""
        plan: Callable = self.names["plan"]
        return plan(*given)

    def binaries(self, given: Sequence[object], architecture: str, executed: bool = False) -> list[tuple[Compiled, int, int]]:
        """For each launch that the plan makes for these arguments the compiled kernel, blocks, and threads per block; with its PTX if
        that is to be `executed`, otherwise perhaps without."""
        launches, before, _, _ = self.plan(given)
        types = [(value.dtype,) if isinstance(value, np.ndarray) else value.dtype for value in before]
        types += [(np.dtype(dtype),) for dtype in (*(dtype for dtype, _ in self.names["HELD"]), *(dtype for _, dtype in self.names["OUTPUTS"]))]
        return [(self._compiled(chosen, types, architecture, executed), blocks, threads) for chosen, blocks, threads in launches]

    def _compiled(self, chosen: tuple, types: Sequence[object], architecture: str, executed: bool) -> Compiled:
        binary = self.made.get((architecture, chosen)) or kept(self.text, chosen, types, architecture)
        if binary is None or executed and not binary.ptx:
            kernel = self.names["make"](*chosen)
            if chosen not in self.code:
                unified(kernel.py_func)
                self.code[chosen] = translated(kernel.py_func, types, kernel.targetoptions["launch_bounds"])
            binary = linked(self.code[chosen], architecture, executed)
            keep(binary, self.text, chosen, types, architecture)
        self.made[architecture, chosen] = binary
        return binary

    def _program(self, ptx: str) -> Program:
        if ptx not in self.read:
            self.read[ptx] = read_kernel(ptx)
        return self.read[ptx]

    def _map_tensors(self, memory: GlobalMemory, planned: np.ndarray, flat: list, addresses: dict[int, int], place: int) -> None:
        """What the file's host does before a launch: maps of tensors into the place of planned ones."""
        maps = self.names["tensor_maps"](planned, flat, addresses, encode_tiled)
        memory.rewrite(addresses[place], maps)

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
        if "tensor_maps" in self.names:
            self._map_tensors(memory, before[-1], flat, dict(zip(places, addresses, strict=True)), len(before) - 1)
        for binary, blocks, threads in self.binaries(given, architecture, executed=True):
            counts = counts.joined(Machine(self._program(binary.ptx), memory, parameters, mode).launch((blocks, 1, 1), (threads, 1, 1)))
            ran.append((binary, threads))
        results = [memory.array(address, shape, array.dtype) for address, shape, array in zip(addresses[-len(outputs):], shapes, outputs, strict=True)]
        return Executed(tuple(results), counts, tuple(ran))
