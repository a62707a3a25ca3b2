"""Measurements side by side: every contestant is first held against float64 NumPy, then all take turns on the clock.

In: a workload, its shape, the number of runs.  Out: a Measured row with medians and what the targets make of them.
A contestant that is missing, fails or computes something else is told, and not timed.
"""
from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.bench.peers import PEERS, Call, library
from redfuser_algebra.bench.workloads import READS, Target, Workload

OURS = "redfuser"
TOLERANCE = 1e-3
"""How far from float64 a contestant in float32 may be, in units of the largest value: so much, sums of 10⁷ lose."""

BUDGET = 1.5
"""Seconds after which a slow contestant leaves the rounds, once it has had three turns."""

REST, PATIENCE = 0.02, 1.0
"""Seconds without work in this process before a turn begins, and seconds after which it begins all the same.  Threads of
OpenMP spin for 4 to 9 ms after their work, those of OpenBLAS for 2²⁸ cycles (130 ms), on cores that the next one needs."""

FLOORS = (*READS, "row_sum", "torch_row_sum", "copy", "torch_copy", "gemm")
"""Keys of peers that do less than the workload: there is nothing to compare."""

Clock = Callable[[], float]


@dataclass
class Timed:
    """A contestant: its times in milliseconds, its error against float64 NumPy, or why it was not timed."""

    error: float | None = None
    why: str = ""
    times: list[float] = field(default_factory=list)

    @property
    def milliseconds(self) -> float | None:
        """The median; None for a contestant that was not timed."""
        return median(self.times) if self.times else None


@dataclass(frozen=True)
class Measured:
    """One workload at one shape: all contestants by name, and the targets."""

    workload: str
    shape: tuple[int, ...]
    contestants: dict[str, Timed]
    targets: tuple[Target, ...]

    @property
    def ours(self) -> float | None:
        """The kernel's median in milliseconds."""
        return self.contestants[OURS].milliseconds

    def ratio(self, target: Target) -> float | None:
        """The kernel's time over that of the fastest of a target's contestants; None if there is none of them."""
        times = [self.contestants[name].milliseconds for name in target.of if name in self.contestants]
        times = [each for each in times if each]
        return self.ours / min(times) if times and self.ours else None

    @property
    def reading(self) -> float | None:
        """The least time in which all inputs were read: by sums of them, or by the fastest of all contestants."""
        less = {peer.name for peer in PEERS if peer.key in FLOORS and peer.key not in READS}
        times = [each.milliseconds for name, each in self.contestants.items() if name not in less]
        return min((each for each in times if each), default=None)

    def allowed(self, target: Target) -> float | None:
        """The ratio of a kernel that takes as long as reading all inputs once; no kernel has a smaller one."""
        ratio = self.ratio(target)
        return ratio and ratio * self.reading / self.ours

    def record(self) -> dict[str, object]:
        """The row as data for JSON."""
        ratios = [(target, self.ratio(target)) for target in self.targets]
        return {
            "workload": self.workload, "shape": list(self.shape),
            "contestants": {name: {"milliseconds": each.milliseconds, "runs": len(each.times), "error": each.error, "why": each.why}
                            for name, each in self.contestants.items()},
            "targets": [asdict(target) | {"of": list(target.of), "ratio": ratio, "met": None if ratio is None else ratio <= target.most,
                                                                 "allowed": self.allowed(target)}
                        for target, ratio in ratios]}


def measured(workload: Workload, shape: tuple[int, ...] | None = None, runs: int = 15, seed: int = 0, clock: Clock = time.perf_counter) -> Measured:
    """One workload, measured.  `runs` turns each, fewer for slow contestants."""
    arrays = workload.draw(np.random.default_rng(seed), shape or workload.shape)
    wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        expected = parts(workload.peers["numpy"](**wide))
    del wide
    contestants: dict[str, Timed] = {}
    calls: dict[str, Call] = {}
    for name, key, prepared in _entrants(workload, arrays):
        contestants[name], call = _admitted(prepared, None if key in FLOORS else expected)
        if call:
            calls[name] = call
    _take_turns(calls, contestants, runs, clock)
    return Measured(workload.name, tuple(shape or workload.shape), contestants, workload.targets)


def _entrants(workload: Workload, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, str, Callable[[], Call] | str]]:
    """Name, key, and how to make the call of each contestant, or why there is none."""
    yield OURS, OURS, lambda: _kernel(workload, arrays)
    for peer in PEERS:
        function, module = (workload.peers | READS).get(peer.key), library(peer.module)
        if function is not None:
            prepared = module if isinstance(module, str) else lambda peer=peer, module=module, function=function: peer.prepare(module, function, arrays)
            yield peer.name, peer.key, prepared


def _kernel(workload: Workload, arrays: dict[str, np.ndarray]) -> Call:
    fused = ra.fuse(workload.operator())
    return lambda: fused(**arrays, **workload.scalars, backend="cpu")


def _admitted(prepared: Callable[[], Call] | str, expected: list[np.ndarray] | None) -> tuple[Timed, Call | None]:
    """A contestant after its first call, which also compiles; no call for one that is missing, fails or errs."""
    if isinstance(prepared, str):
        return Timed(why=prepared), None
    try:
        call = prepared()
        got = parts(call())
    except Exception as error:  # a peer may fail in as many ways as there are peers, and the others go on
        return Timed(why=f"failed: {type(error).__name__}: {error}".splitlines()[0]), None
    if expected is None:
        return Timed(), call
    error = distance(got, expected)
    if error > TOLERANCE:
        return Timed(error=error, why=f"wrong: {error:.1e} of the largest value away from float64 NumPy"), None
    return Timed(error=error), call


def _take_turns(calls: dict[str, Call], contestants: dict[str, Timed], runs: int, clock: Clock) -> None:
    """One call each, again and again, so that whatever else the machine does falls on all."""
    spent = dict.fromkeys(calls, 0.0)
    gc.collect()
    for turn in range(runs):
        names = list(calls)
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            if spent[name] > BUDGET and turn >= 3:
                continue
            _come_to_rest()
            start = clock()
            result = calls[name]()
            elapsed = clock() - start
            del result
            spent[name] += elapsed
            contestants[name].times.append(1000 * elapsed)


def _come_to_rest() -> None:
    """Wait until no thread of this process works."""
    end = time.perf_counter() + PATIENCE
    worked = REST
    while worked > REST / 8 and time.perf_counter() < end:
        before = time.process_time()
        time.sleep(REST)
        worked = time.process_time() - before


def parts(result: object) -> list[np.ndarray]:
    return [np.asarray(part) for part in (result if isinstance(result, (tuple, list)) else (result,))]


def distance(got: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference in units of the largest value; of positions, the part that is elsewhere."""
    if [a.shape for a in got] != [b.shape for b in expected]:
        return np.inf
    errors = [np.mean(a != b) if b.dtype.kind in "iu" else np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)
              for a, b in zip(got, expected, strict=True)]
    return float(np.max(np.nan_to_num(errors, nan=np.inf)))
