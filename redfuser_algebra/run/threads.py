"""This process's worker threads, each on a processor of its own.

They are Python's: they hold no lock while a kernel runs, survive a fork, and may be asked from several places.  Left to
itself, Linux wakes a worker on the processor of the thread that wakes it, and leaves both there for tens of milliseconds.
"""
from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

PLACED = hasattr(os, "sched_setaffinity")
"""Whether the system lets a thread's processors be chosen."""

MOST_THREADS = int(os.environ.get("REDFUSER_THREADS", "0")) or (len(os.sched_getaffinity(0)) if PLACED else os.cpu_count() or 1)

_lock = threading.Lock()
_hired: list[_Worker] = []
_free: list[_Worker] = []
_here = getattr(ctypes.CDLL(None), "sched_getcpu", None) if PLACED else None


def _after_fork() -> None:
    """The child has none of the threads, and the lock may have been held by one of them."""
    global _lock
    _lock = threading.Lock()
    _hired.clear()
    _free.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Worker(threading.Thread):
    """A thread that does one piece of work after another, and is free in between."""

    def __init__(self, number: int) -> None:
        super().__init__(name=f"redfuser-{number}", daemon=True)
        self.number, self.given = number, SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            self._do(*self.given.get())

    def _do(self, work: Callable[[], None], ended: SimpleQueue) -> None:
        failure = None
        try:
            work()
        except BaseException as error:  # the thread that asked for the work raises it
            failure = error
        with _lock:
            _free.append(self)
        ended.put(failure)


def side_by_side(work: Callable[[int], None], parts: int) -> None:
    """`work(part)` for every part; the caller's thread does the first one, and those for which no worker is free.

    All have ended when this returns or raises.
    """
    ended, workers = SimpleQueue(), _workers(parts - 1)
    _take_places(workers)
    for part, worker in enumerate(workers, 1):
        worker.given.put((partial(work, part), ended))
    try:
        for part in (0, *range(len(workers) + 1, parts)):
            work(part)
    finally:
        failures = [ended.get() for _ in workers]
    for failure in filter(None, failures):
        raise failure


def share_out(work: Callable[[int], None], pieces: int, threads: int) -> None:
    """`work(piece)` for every piece, in order, each by whichever of the threads is free: one that is held up does less."""
    if threads == 1 or pieces == 1:
        for piece in range(pieces):
            work(piece)
        return
    left = deque(range(pieces))

    def until_none_is_left(_: int) -> None:
        while left:
            try:
                piece = left.popleft()
            except IndexError:  # another thread took the last one
                return
            work(piece)

    side_by_side(until_none_is_left, min(threads, pieces))


def _workers(wanted: int) -> list[_Worker]:
    """So many workers, or all that are free: no more are hired than there are threads to use."""
    with _lock:
        _free.sort(key=lambda worker: worker.number)
        found = [_free.pop(0) for _ in range(min(wanted, len(_free)))]
        new = [_Worker(len(_hired) + more) for more in range(min(wanted - len(found), max(1, MOST_THREADS - 1) - len(_hired)))]
        _hired.extend(new)
    return found + new


def _take_places(workers: list[_Worker]) -> None:
    """Each gets processors that no other has, out of those that the caller's thread may use, but for the one it is on."""
    if not workers or _here is None:
        return
    allowed = os.sched_getaffinity(0)
    others = sorted(allowed - {_here()})
    for place, worker in enumerate(workers):
        with suppress(OSError):  # a processor may have gone meanwhile; where a worker runs changes no result
            os.sched_setaffinity(worker.native_id, others[place::len(workers)] or allowed)
