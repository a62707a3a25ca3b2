"""`redfuser bench --gpu`: kernels next to torch, FlashAttention, flex_attention and Triton on a GPU, timed by the GPU itself.

Every contestant is first held against float64 NumPy; then all take turns, each with cold caches.  In: workloads, a clock, and
where arrays live.  Out: rows, a table, JSON and Markdown.
"""
from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.bench import measure
from redfuser_algebra.bench.gpu_workloads import GpuWorkload, drawn
from redfuser_algebra.bench.measure import OURS, Measured, Timed
from redfuser_algebra.bench.peers import Call, library, versions
from redfuser_algebra.bench.report import listed, markdown_table, remarks, status
from redfuser_algebra.run import gpu

TOLERANCE = {"float32": 1e-3, "float16": 5e-3}
"""How far from float64 a contestant may be, in units of the largest value."""

COMMON = ("torch eager", "torch.compile")
SCHEMA = 1

Clock = Callable[[Call], float]


@dataclass(frozen=True)
class Device:
    """Where contestants run: what torch calls it, the clock, and how our kernel is prepared there."""

    name: str
    clock: Clock
    prepare: Callable[[GpuWorkload, Mapping[str, np.ndarray]], Call]
    about: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """A workload as it was measured, the dtype of its arrays, and the bytes of all arrays and results once."""

    measured: Measured
    dtype: str
    bytes: int

    @property
    def bandwidth(self) -> float | None:
        """GB/s if every array moves once."""
        return self.bytes / self.measured.ours / 1e6 if self.measured.ours else None

    def record(self) -> dict[str, object]:
        """The row as data for JSON."""
        return {**self.measured.record(), "dtype": self.dtype, "bytes": self.bytes, "GB/s": self.bandwidth}


@dataclass
class GpuResults:
    """One run: rows so far, and the device they come from.  `complete` is False if it was stopped."""

    device: Mapping[str, str]
    runs: int
    rows: list[Row] = field(default_factory=list)
    complete: bool = False

    def record(self) -> dict[str, object]:
        """Everything as data for JSON."""
        return {"schema": SCHEMA, "complete": self.complete, "device": dict(self.device), "versions": gpu_versions(), "runs": self.runs,
                "rows": [row.record() for row in self.rows]}


def this_device() -> Device:
    """The GPU of this machine.  Raises OperatorError where there is none."""
    gpu.needs_gpu("measuring on a GPU")
    return Device("cuda", gpu.Stopwatch(), _ours, gpu.device())


def _ours(each: GpuWorkload, arrays: Mapping[str, np.ndarray]) -> Call:
    kernel = ra.fuse(each.workload.operator()).kernel("cuda", dtype=each.dtype)
    return gpu.prepared(kernel, kernel.given(kernel.operator.bind(**arrays, **each.scalars(arrays))))


def measured(each: GpuWorkload, device: Device, shape: tuple[int, ...] | None = None, runs: int = 20, seed: int = 0) -> Row:
    """One workload, measured: `runs` turns of every contestant that is right."""
    shape = shape or each.workload.shape
    arrays = drawn(each, shape, seed)
    with np.errstate(all="ignore"):
        expected = measure.parts(each.workload.peers["numpy"](**{n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in arrays.items()}))
    calls: dict[str, Call] = {}
    contestants: dict[str, Timed] = {}
    for name, prepare in _entrants(each, device, arrays):
        contestants[name], call = _admitted(prepare, expected, TOLERANCE[each.dtype])
        if call:
            calls[name] = call
    take_turns(calls, contestants, runs, device.clock)
    size = np.dtype(each.dtype).itemsize
    moved = sum(a.nbytes for a in arrays.values()) + sum(a.size * (8 if a.dtype.kind in "iu" else size) for a in expected)
    return Row(Measured(each.name, tuple(shape), contestants, ()), each.dtype, moved)


def _entrants(each: GpuWorkload, device: Device, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Callable[[], Call] | str]]:
    """Name, and how to make the call of each contestant, or why there is none."""
    yield OURS, lambda: device.prepare(each, arrays)
    torch = library("torch")
    if isinstance(torch, str):
        yield from ((name, torch) for name in (*COMMON, *each.peers))
        return
    tensors = {name: torch.from_numpy(array).to(device.name) for name, array in arrays.items()}
    for name, key, compiles in (("torch eager", "torch", False), ("torch.compile", "torch", True), ("torch SDPA", "sdpa", False)):
        if function := each.workload.peers.get(key):
            yield name, lambda function=function, compiles=compiles: _of_torch(torch, function, tensors, compiles)
    for name, make in each.peers.items():
        yield name, lambda make=make: _without_gradient(torch, make(torch, **tensors))


def _of_torch(torch: object, function: Callable, tensors: Mapping[str, object], compiles: bool) -> Call:
    if not compiles:
        return _without_gradient(torch, lambda: function(torch, **tensors))
    torch._dynamo.reset()
    fast = torch.compile(lambda given: function(torch, **given), dynamic=False)
    return _without_gradient(torch, lambda: fast(tensors))


def _without_gradient(torch: object, call: Call) -> Call:
    def run() -> object:
        with torch.inference_mode():
            return call()

    return run


def _admitted(prepare: Callable[[], Call] | str, expected: list[np.ndarray], tolerance: float) -> tuple[Timed, Call | None]:
    """A contestant after two calls, the first of which compiles; no call for one that is missing, fails or errs."""
    if isinstance(prepare, str):
        return Timed(why=prepare), None
    try:
        call = prepare()
        call()
        got = list(map(_to_host, _listed(call())))
    except ImportError as error:
        return Timed(why=f"not installed ({error})"), None
    except Exception as error:  # a peer may fail in as many ways as there are peers, and the others go on
        return Timed(why=(f"failed: {type(error).__name__}: {error}".strip().splitlines() or ["failed: "])[0]), None
    distance = measure.distance(got, expected)
    why = f"wrong: {distance:.1e} of the largest value away from float64 NumPy" if distance > tolerance else ""
    return Timed(error=distance, why=why), None if why else call


def _listed(result: object) -> list[object]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _to_host(part: object) -> np.ndarray:
    """A result of torch or numba-cuda in NumPy; real numbers in float64."""
    array = part.copy_to_host() if hasattr(part, "copy_to_host") else part.cpu().numpy() if hasattr(part, "cpu") else np.asarray(part)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def take_turns(calls: Mapping[str, Call], contestants: Mapping[str, Timed], runs: int, clock: Clock) -> None:
    """One call each, again and again, starting with another one each time."""
    names = list(calls)
    gc.collect()
    for turn in range(runs if names else 0):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            contestants[name].times.append(clock(calls[name]))


# --- what is shown --------------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: the kernel's microseconds and GB/s, and how many times as long each contestant takes."""
    columns = list(dict.fromkeys(name for row in rows for name in row.measured.contestants if name != OURS))
    return (["workload", "shape", f"{OURS}, µs", "GB/s", *columns],
            [[row.measured.workload, " × ".join(map(str, row.measured.shape)), _time(row.measured.contestants[OURS]),
              "" if row.bandwidth is None else f"{row.bandwidth:,.0f}", *(_ratio(row.measured, name) for name in columns)] for row in rows])


def _time(each: Timed) -> str:
    return f"{1000 * each.milliseconds:,.1f}" if each.milliseconds is not None else status(each)


def _ratio(row: Measured, name: str) -> str:
    each = row.contestants.get(name)
    if each is None:
        return ""
    if each.milliseconds is None:
        return status(each)
    return f"{each.milliseconds / row.ours:.2f}" if row.ours else f"{1000 * each.milliseconds:,.1f} µs"


def summary(results: GpuResults) -> str:
    """One line: against the fastest contestant of each workload, in the geometric mean."""
    ratios = []
    for row in results.rows:
        others = [each.milliseconds for name, each in row.measured.contestants.items() if name != OURS and each.milliseconds]
        if others and row.measured.ours:
            ratios.append(min(others) / row.measured.ours)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    told = "nothing to compare with" if mean is None else f"the fastest of the others takes {mean:.2f} times as long in the geometric mean"
    return f"{len(results.rows)} workloads on {results.device['name']}: {told}" + ("" if results.complete else "; stopped before the end")


def gpu_versions() -> dict[str, str]:
    """The versions of all libraries that take part."""
    return versions(("redfuser-algebra", "numpy", "numba", "numba-cuda", "torch", "triton", "flash-attn"))


def markdown(results: GpuResults, command: str) -> str:
    """The report: device, versions, all ratios, and what was not timed."""
    head, rows = table(results.rows)
    about = results.device
    lines = ["# Benchmarks on a GPU", "",
             "Written by `redfuser bench --gpu --report`; changes are lost when it is written again.  Every figure comes from one run, in one",
             "process: all contestants take turns on arrays that lie on the GPU, each time with cold caches, and medians of times between two",
             "events of the GPU are compared.  What the host needs to start work is not in them.  A contestant whose result is further than",
             f"{TOLERANCE['float32']:g} (float32) or {TOLERANCE['float16']:g} (float16) of the largest value from float64 NumPy is not timed.", "",
             f"    {command}", "",
             f"{about['name']}, compute capability {about['capability']}, {about['processors']} multiprocessors, driver for CUDA {about['driver']}; "
             f"{results.runs} runs." + ("" if results.complete else "  The run was stopped before its end."), "",
             ", ".join(f"{name} {version}" for name, version in gpu_versions().items()) + ".", "",
             "## Side by side", "", f"{OURS} is in microseconds, and in GB/s if every array moves once; the others say how many times as long they take.", "",
             *markdown_table(head, rows), "", *listed("Not timed", remarks(row.measured for row in results.rows)), summary(results) + "."]
    return "\n".join(lines) + "\n"
