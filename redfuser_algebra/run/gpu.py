"""Kernels on a GPU without what a launch from Python costs: prepared once, started again and again, timed by the GPU itself.

In: a CUDA kernel and arrays.  Out: a call that only starts the kernel, and the milliseconds that a call takes on the device.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.ptx.compile import gpu_missing

if TYPE_CHECKING:
    from redfuser_algebra.run.cuda import CudaKernel

COLD = 256 << 20
"""Bytes written before a measurement, so that no cache holds what is to be read; more than any card's second level."""

NAPS, NAP = 8, 200_000
"""How often, and for how many nanoseconds, the device sleeps before a measurement: the host sends all its work meanwhile."""


def needs_gpu(asked: str) -> None:
    """Raise OperatorError where there is no GPU to run on."""
    missing = gpu_missing()
    if missing:
        raise OperatorError(asked, missing, "pip install 'redfuser-algebra[cuda]'" if missing.endswith("not installed") else
                            "do it on a machine with a GPU and its driver; `redfuser audit` needs neither")


def prepared(kernel: CudaKernel, given: Sequence[object]) -> Callable[[], list[object]]:
    """A call that starts the kernel on arrays already on the GPU, and gives the arrays that it writes; `given` is what `launch` takes.

    The call does not wait.  Raises ValueError for arrays that do not fit.
    """
    from numba import cuda

    names = kernel.file.names
    there = [cuda.to_device(each) if isinstance(each, np.ndarray) else each for each in given]
    launches, arguments, held, shapes = names["plan"](*there)
    flat = [each.reshape(-1) if hasattr(each, "__cuda_array_interface__") else each for each in arguments]
    flat = names["with_maps"](flat, arguments[-1]) if "with_maps" in names else flat
    flat += [cuda.device_array(count, dtype) for count, (dtype, _) in zip(held, names["HELD"], strict=True)]
    outputs = [cuda.device_array(int(np.prod(shape)), dtype) for shape, (_, dtype) in zip(shapes, names["OUTPUTS"], strict=True)]
    started = [names["make"](*chosen)[blocks, threads] for chosen, blocks, threads in launches]
    results = [each.reshape(shape) for each, shape in zip(outputs, shapes, strict=True)]

    def call() -> list[object]:
        for start in started:
            start(*flat, *outputs)
        return results

    return call


def delays() -> tuple[Callable, Callable]:
    """Two kernels: one writes a number all over an array, the other sleeps so many times."""
    from numba import cuda

    def overwrite(array: object, value: int) -> None:
        for place in range(cuda.grid(1), array.size, cuda.gridsize(1)):
            array[place] = value

    def rest(naps: int) -> None:
        for _ in range(naps):
            cuda.nanosleep(NAP)

    return overwrite, rest


class Stopwatch:
    """Milliseconds of a call on the device, by events on the default stream, which torch uses, too."""

    def __init__(self) -> None:
        from numba import cuda

        self.cuda, self.turn = cuda, 0
        self.cold = cuda.device_array(COLD // 4, np.int32)
        self.overwrite, self.rest = map(cuda.jit, delays())

    def __call__(self, call: Callable[[], object]) -> float:
        """One call with cold caches.  While the device overwrites and rests, the host sends it all there is to do."""
        start, end = self.cuda.event(), self.cuda.event()
        self.turn += 1
        self.overwrite[1024, 256](self.cold, self.turn)
        self.rest[1, 1](NAPS)
        start.record()
        result = call()
        end.record()
        end.synchronize()
        del result
        return float(self.cuda.event_elapsed_time(start, end))


def device() -> dict[str, str]:
    """The GPU by name, its compute capability, multiprocessors, and the version of CUDA that its driver has."""
    from numba import cuda

    card = cuda.get_current_device()
    name = card.name.decode() if isinstance(card.name, bytes) else str(card.name)
    return {"name": name, "capability": ".".join(map(str, card.compute_capability)), "processors": str(card.MULTIPROCESSOR_COUNT),
            "driver": ".".join(map(str, cuda.cudadrv.driver.get_version()))}
