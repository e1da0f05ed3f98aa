# SPDX-License-Identifier: Apache-2.0
"""One thread that does jobs in their order. Python ends after it, and it hurries then."""

import queue
import threading
from collections.abc import Callable

from braid._threads import OwnThread


class Job:
    """Something that the thread does, or has done."""

    def __init__(self, work: Callable[[], None]) -> None:
        """Only a Background makes jobs."""
        self._work = work
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it; an error is kept for wait()."""
        try:
            self._work()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self) -> None:
        """Return when it is done; raise what it raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error


class Background:
    """The thread. It ends with stop(), or with the process."""

    def __init__(self, name: str) -> None:
        """Start it; `name` is for debuggers."""
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        jobs = self._jobs
        self._thread = OwnThread(_work, name, lambda: jobs.put(None), jobs)
        self._thread.start()

    def start(self, work: Callable[[], None]) -> Job:
        """Do this after all that was started before."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def stop(self) -> None:
        """Let the thread end once it has done all jobs."""
        self._jobs.put(None)

    def join(self, limit_s: float) -> None:
        """Return when the thread has ended, or after this time."""
        self._thread.join(limit_s)


def _work(jobs: "queue.SimpleQueue[Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job.run()
