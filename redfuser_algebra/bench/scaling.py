"""How time grows with the length of the reduced axis, and how long a kernel takes to be compiled and to be loaded.

Compiling is measured in processes of their own, with an empty cache first and with the one that was left behind then.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.bench.workloads import total

POWERS = range(10, 26)
READING = "reading alone"
GROWING, COMPILED = ("variance", "logsumexp", READING), ("variance", "softmax", "layernorm", "moe_routing", "attention")
COLD, WARM = 3.0, 0.3
"""Seconds that compiling a kernel may take, and loading it from the cache."""

STEEPEST = 1.5
"""How many times as long an element may take at one length as at the one before, beyond 2¹⁶ elements, to call it linear."""


@dataclass(frozen=True)
class Length:
    """One row of so many elements: median microseconds of a call."""

    operator: str
    length: int
    microseconds: float

    def record(self) -> dict[str, object]:
        """As data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Compiled:
    """Seconds of the first call in a new process: compiled, and loaded from the cache.

    Either has `start` in it, in which Numba makes itself ready: once in a process, whatever it runs.  Neither has `imported`
    in it, in which Numba is imported.
    """

    operator: str
    cold: float
    warm: float
    start: float
    imported: float

    def record(self) -> dict[str, object]:
        """As data for JSON."""
        return asdict(self)


def lengths(names: Iterable[str] = GROWING, powers: Iterable[int] = POWERS, runs: int = 7) -> Iterator[Length]:
    """One row of 2ⁿ elements of float32 for each n."""
    powers = list(powers)
    x = np.random.default_rng(0).standard_normal(1 << max(powers), np.float32)
    for name in names:
        fused = ra.fuse(total if name == READING else ra.operators[name])
        for power in powers:
            part, times = x[:1 << power], []
            fused(part, backend="cpu")
            for _ in range(runs):
                start = time.perf_counter()
                fused(part, backend="cpu")
                times.append(1e6 * (time.perf_counter() - start))
            yield Length(name, 1 << power, round(median(times), 2))


def steepest(rows: Iterable[Length], reading: bool = False) -> float:
    """The largest growth of the time per element from one length to twice it, beyond 2¹⁶ elements: of kernels, or of reading alone."""
    known = {(row.operator, row.length): row.microseconds for row in rows if (row.operator == READING) == reading}
    pairs = [(known[name, length], known[name, 2 * length]) for name, length in known if (name, 2 * length) in known and length >= 1 << 16]
    return max((second / first / 2 for first, second in pairs), default=1.0)


_FIRST_CALL = """
import json, sys, time
import numpy as np
import redfuser_algebra as ra
from redfuser_algebra.run.starting import start_numba, uncollected
name = sys.argv[1]
operator, rng = ra.operators[name], np.random.default_rng(0)
fused = ra.fuse(operator)
given = ra.operators.entry(name).inputs(rng, 64)
given = {key: value.astype(np.float32) if key in operator.inputs and value.dtype.kind == "f" else value for key, value in given.items()}
begun = time.perf_counter()
import numba
start = time.perf_counter()
with uncollected():
    start_numba()
ready = time.perf_counter()
fused(**given, backend="cpu")
print(json.dumps([time.perf_counter() - start, ready - start, start - begun]))
"""


def compiled(names: Iterable[str] = COMPILED) -> Iterator[Compiled]:
    """The first call of each kernel, cold and from the cache."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="redfuser-bench-") as folder:
            (cold, *_), (warm, start, imported) = _first_call(name, folder), _first_call(name, folder)
        yield Compiled(name, round(cold, 3), round(warm, 3), round(start, 3), round(imported, 3))


def _first_call(name: str, folder: str) -> tuple[float, float, float]:
    """Seconds of the call, of them those in which Numba makes itself ready, and those in which it was imported before."""
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"} | {"REDFUSER_CACHE_DIR": folder}
    done = subprocess.run([sys.executable, "-c", _FIRST_CALL, name], env=environment, capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout))
