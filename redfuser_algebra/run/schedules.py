"""Schedules that tuning has measured, kept in one JSON file in the user's cache folder.

Lengths are kept as the nearest powers of two: what was found for 4096 × 8192 serves 4000 × 8000.  Each measurement is
written at once, so that stopping loses nothing, and what other processes wrote is kept.
"""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

from redfuser_algebra.lower.cache import cache_folder, written_whole
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError

FILE = "schedules.json"

Measured = dict[Schedule, float]
"""Seconds of each schedule tried."""


def key_of(title: str, sizes: Mapping[str, int], batch: int) -> str:
    """What measurements of a kernel at these lengths are kept under."""
    lengths = ",".join(f"{axis}={1 << max(0, round(math.log2(max(size, 1))))}" for axis, size in (("", batch), *sizes.items()))
    return f"{title} {lengths}"


def measured(key: str) -> Measured:
    """All schedules tried for a key; none if there is no readable file."""
    found = {}
    for row in _read().get(key, []):
        try:
            found[Schedule(**{name: value for name, value in row.items() if name != "seconds"})] = float(row["seconds"])
        except (TypeError, KeyError, LoweringError):
            continue
    return found


def tuned(title: str, sizes: Mapping[str, int], batch: int) -> Schedule | None:
    """The fastest schedule measured for a kernel at these lengths."""
    found = measured(key_of(title, sizes, batch))
    return min(found, key=found.__getitem__) if found else None


def keep(key: str, schedule: Schedule, seconds: float) -> None:
    """Write one measurement."""
    rows = _read()
    others = [row for row in rows.get(key, []) if {**row, "seconds": 0} != {**asdict(schedule), "seconds": 0}]
    rows[key] = [*others, {**asdict(schedule), "seconds": seconds}]
    written_whole(cache_folder() / FILE, json.dumps(rows, indent=1).encode())


def _read() -> dict[str, list[dict]]:
    try:
        rows = json.loads((cache_folder() / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return rows if isinstance(rows, dict) else {}
