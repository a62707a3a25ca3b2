"""Schedules that tuning has measured, kept in one file in the user's cache folder: a line of JSON for each measurement.

Lengths are kept as the nearest powers of two: what was found for 4096 × 8192 serves 4000 × 8000.  Each measurement is
added at once, so that stopping loses nothing, and processes that tune side by side keep what the others found.
"""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

from redfuser_algebra.language.errors import OperatorError
from redfuser_algebra.lower.cache import cache_folder
from redfuser_algebra.lower.schedule import Schedule
from redfuser_algebra.lower.tile import LoweringError

FILE = "schedules.jsonl"

Measured = dict[Schedule, float]
"""Seconds of each schedule tried."""


def key_of(title: str, sizes: Mapping[str, int], batch: int) -> str:
    """What measurements of a kernel at these lengths are kept under."""
    lengths = ",".join(f"{axis}={1 << max(0, round(math.log2(max(size, 1))))}" for axis, size in (("", batch), *sizes.items()))
    return f"{title} {lengths}"


def measured(key: str) -> Measured:
    """All schedules tried for a key, each as it was measured last; none if there is no readable file."""
    found = {}
    for line in _lines():
        try:
            row = json.loads(line)
            if row.pop("key") == key:
                seconds = float(row.pop("seconds"))
                found[Schedule(**row)] = seconds
        except (AttributeError, KeyError, TypeError, ValueError, LoweringError):  # a line that was not written whole, or by another version
            continue
    return found


def tuned(title: str, sizes: Mapping[str, int], batch: int) -> Schedule | None:
    """The fastest schedule measured for a kernel at these lengths."""
    found = measured(key_of(title, sizes, batch))
    return min(found, key=found.__getitem__) if found else None


def keep(key: str, schedule: Schedule, seconds: float) -> None:
    """Add one measurement.  Raises OperatorError where the file cannot be written."""
    row = json.dumps({"key": key, **asdict(schedule), "seconds": seconds})
    path = cache_folder() / FILE
    try:
        with path.open("ab", buffering=0) as file:
            file.write(f"\n{row}".encode())  # what was cut off before stays on a line of its own
    except OSError as error:
        raise OperatorError(f"keeping a measurement in {path}", f"it cannot be written: {error.strerror or error}",
                            "make room, or name another folder in REDFUSER_CACHE_DIR") from None


def _lines() -> list[str]:
    try:
        return (cache_folder() / FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
