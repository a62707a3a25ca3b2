"""When a state is rebased: at every element, once per tile, or once per part of the axis (RedFuser's levels, its Figure 6).

A schedule whose tile is 1 rebases per element.  A tile stays in the cache while it is read twice, once for the pivots
and once for the rest.  Parts are folded side by side and merged: with tiles inside them, or each read at once, which
is the form without increments.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

import redfuser_algebra as ra
from redfuser_algebra.lower.schedule import LEVELS, Schedule, levels
from redfuser_algebra.run.threads import MOST_THREADS

USUAL = "tile"
CASES = (("logsumexp", (2048, 8192)), ("variance", (2048, 8192)), ("softmax_entropy", (2048, 8192)), ("logsumexp", (1, 1 << 24)),
         ("variance", (1, 1 << 24)), ("attention", (4, 256, 4096, 64)))
QUICK = (("logsumexp", (64, 2048)), ("logsumexp", (1, 1 << 17)), ("attention", (1, 64, 256, 16)))


@dataclass(frozen=True)
class Level:
    """An operator at a shape, rebased at one level: median milliseconds of a call, and the schedule that does it."""

    operator: str
    shape: tuple[int, ...]
    level: str
    schedule: str
    milliseconds: float
    error: float

    def record(self) -> dict[str, object]:
        """As data for JSON."""
        return asdict(self) | {"shape": list(self.shape)}


def measured(cases: tuple = CASES, runs: int = 7) -> Iterator[tuple[Level, ...]]:
    """All levels of each case, which take turns."""
    for name, shape in cases:
        arrays, scalars = _arrays(name, shape)
        fused, wide = ra.fuse(ra.operators[name]), {key: array.astype(np.float64) for key, array in arrays.items()}
        expected = fused(**wide, **scalars, backend="numpy")
        sizes, kernel = fused.operator.bind(**arrays, **scalars).sizes, fused.kernel("cpu")
        schedules = levels(kernel.program, kernel.schedule_for(shape[0], **sizes), sizes[fused.form.axis], max(MOST_THREADS, 2))
        calls = {level: _call(fused, schedule, arrays, scalars) for level, schedule in schedules.items()}
        errors = {level: float(np.abs(call() - expected).max() / np.abs(expected).max()) for level, call in calls.items()}
        times: dict[str, list[float]] = {level: [] for level in calls}
        for _ in range(runs):
            for level, call in calls.items():
                start = time.perf_counter()
                call()
                times[level].append(1000 * (time.perf_counter() - start))
        yield tuple(Level(name, shape, level, str(schedules[level]), round(median(times[level]), 4), errors[level]) for level in calls)


def _call(fused: ra.Fused, schedule: Schedule, arrays: dict[str, np.ndarray], scalars: dict[str, float]) -> Callable[[], object]:
    kernel = fused.kernel("cpu", schedule=schedule)
    return lambda: kernel(**arrays, **scalars)


def _arrays(name: str, shape: tuple[int, ...]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    rng = np.random.default_rng(0)
    if name != "attention":
        return {"x": rng.standard_normal(shape, np.float32)}, {}
    heads, queries, length, width = shape
    sizes = {"Q": queries, "K": length, "V": length}
    return {key: rng.standard_normal((heads, size, width), np.float32) for key, size in sizes.items()}, {"scale": width**-0.5}


def table(rows: list[tuple[Level, ...]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: milliseconds per level, and how many times as long as with a rebase per tile."""
    shown = []
    for row in rows:
        times = {level.level: f"{level.milliseconds:.3g} ({ratio:.2f})" for level, ratio in zip(row, _ratios(row), strict=True)}
        shown.append([row[0].operator, " × ".join(map(str, row[0].shape)), _named(row)[USUAL].schedule, *(times.get(level, "") for level in LEVELS)])
    return ["operator", "shape", "schedule per tile", *(f"{level}, ms" for level in LEVELS)], shown


def series(rows: list[tuple[Level, ...]]) -> dict[str, dict[str, float]]:
    """For the plot: times over that with a rebase per tile."""
    return {f"{row[0].operator}\n{'×'.join(map(str, row[0].shape))}": dict(zip(_named(row), _ratios(row), strict=True)) for row in rows}


def _named(row: tuple[Level, ...]) -> dict[str, Level]:
    return {level.level: level for level in row}


def _ratios(row: tuple[Level, ...]) -> list[float]:
    return [level.milliseconds / _named(row)[USUAL].milliseconds for level in row]
