"""Work that takes long: one thread, to which jobs are given by name; of two jobs of one name the later one counts.

In: functions.  Out: what they return, told to a callback in the thread; what they raise, as a sentence.
"""
from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from redfuser_algebra.language.errors import RedfuserError

Told = Callable[[int, int], None]
PATIENCE = 5.0
"""Seconds that the end of the session waits for a job that is going on."""


@dataclass
class Job:
    """Something to do.  `done` hears the result, `failed` a sentence; neither is called for a job that was replaced."""

    run: Callable[[Told], object]
    done: Callable[[object], None]
    failed: Callable[[str], None]
    progress: Told
    replaced: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def told(self, done: int, whole: int) -> None:
        """Show how far the job is.  Raises KeyboardInterrupt in a job that is to stop, as Ctrl-C would."""
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.progress(done, whole)


class Work:
    """A thread that does jobs one after another; it starts with the first one and ends with the session."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._current: dict[object, Job] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, name: object, run: Callable[[Told], object], done: Callable[[object], None], failed: Callable[[str], None],
              progress: Told = lambda done, whole: None) -> None:
        """Do this as the job of a name; an earlier job of that name is stopped and forgotten."""
        job = Job(run, done, failed, progress)
        with self._lock:
            if name in self._current:
                self._current[name].replaced = True
                self._current[name].stop.set()
            self._current[name] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="redfuser-explorer", daemon=True)
                self._thread.start()
                atexit.register(self._end)
        self._jobs.put(job)

    def stop(self, name: object) -> None:
        """Stop the job of a name where it next tells how far it is; what it has found until then is kept."""
        with self._lock:
            if name in self._current:
                self._current[name].stop.set()

    def forget(self, name: object) -> None:
        """Stop the job of a name, and tell nobody what it found."""
        with self._lock:
            if name in self._current:
                self._current[name].replaced = True
                self._current.pop(name).stop.set()

    def wait(self) -> None:
        """Return when all jobs are done."""
        self._jobs.join()

    def _end(self) -> None:
        """Let the thread end by itself: an e-graph may only be dropped by the thread that made it."""
        for job in self._current.values():
            job.replaced = True
            job.stop.set()
        self._jobs.put(None)
        self._thread.join(PATIENCE)

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if not job.replaced:
                    _do(job)
            finally:
                self._jobs.task_done()


def _do(job: Job) -> None:
    tell, found = job.failed, "stopped"
    try:
        found = job.run(job.told)
        tell = job.done
    except RedfuserError as error:
        found = str(error)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        found = f"This is a fault of redfuser_algebra, not of your input: {type(error).__name__}: {error}"
    if not job.replaced:
        tell(found)


WORK = Work()
"""The thread of this session for what takes long."""
DRAWING = Work()
"""Its thread for pictures, which take longer than a control may, and must not wait for a proof."""
