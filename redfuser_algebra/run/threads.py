"""This process's worker threads.

They are Python's: they hold no lock while a kernel runs, survive a fork, and may be asked from several places.
"""
from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

MOST_THREADS = int(os.environ.get("REDFUSER_THREADS", "0")) or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0])

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def _after_fork() -> None:
    """The child has none of the threads, and the lock may have been held by one of them."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def side_by_side(work: Callable[[int], None], parts: int) -> None:
    """`work(part)` for every part; the caller's thread does the first one.  All have ended when this returns or raises."""
    others = [_pool().submit(work, part) for part in range(1, parts)]
    try:
        work(0)
    finally:
        for other in others:
            other.exception()
    for other in others:
        other.result()


def share_out(work: Callable[[int], None], pieces: int, threads: int) -> None:
    """`work(piece)` for every piece, in order, each by whichever of the threads is free: one that is held up does less."""
    left = deque(range(pieces))

    def until_none_is_left(_: int) -> None:
        while left:
            try:
                piece = left.popleft()
            except IndexError:  # another thread took the last one
                return
            work(piece)

    side_by_side(until_none_is_left, min(threads, pieces))


def _pool() -> ThreadPoolExecutor:
    with _lock:
        if os.getpid() not in _pools:
            _pools.clear()
            _pools[os.getpid()] = ThreadPoolExecutor(max(1, MOST_THREADS - 1), thread_name_prefix="redfuser")
        return _pools[os.getpid()]
