# SPDX-License-Identifier: Apache-2.0
"""Runs tests of the suite in several worker processes at once."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from contestants import Contestant

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    test: str
    verdict: str  # passed, skipped, failed, timed out
    why: str  # the reason of a skip, the last error line of a failure
    seconds: float
    log: str = field(default="", repr=False, compare=False)  # of a failure

    def line(self) -> str:
        return f"{self.test}: {self.verdict}{': ' if self.why else ''}{self.why}"


class Worker:
    """A process that has imported the suite for one contestant and world size."""

    def __init__(self, contestant: Contestant, world_size: int, timeout_s: int, folder: Path) -> None:
        reading, writing = os.pipe()
        variables = {
            **os.environ,
            **contestant.environment(world_size),
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(timeout_s),
        }
        folder.mkdir(exist_ok=True)
        self._log = folder / "log"
        with (folder / "start").open("w") as start_log:
            self._process = subprocess.Popen(
                [sys.executable, str(FOLDER / "worker.py"), str(writing), str(folder)],
                stdin=subprocess.PIPE,
                stdout=start_log,
                stderr=start_log,
                pass_fds=[writing],
                env=variables,
                text=True,
            )
        os.close(writing)
        self._outcomes: IO[str] = os.fdopen(reading)
        first = self._outcomes.readline()
        if not first:
            raise RuntimeError("the suite cannot be imported:\n" + Path(start_log.name).read_text()[-4000:])
        self.all_tests: list[str] = json.loads(first)

    def run(self, test: str) -> Outcome:
        """Run one test; a worker that did not survive it must be replaced."""
        assert self._process.stdin is not None
        self._process.stdin.write(test + "\n")
        self._process.stdin.flush()
        line = self._outcomes.readline()
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        if not line:
            return Outcome(test, "failed", "the process that started the ranks died", 0.0, log)
        outcome = Outcome(*json.loads(line))
        return Outcome(*json.loads(line), log) if outcome.verdict in ("failed", "timed out") else outcome

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._outcomes.close()


def run_tests(
    contestant: Contestant,
    world_size: int,
    choose: Callable[[Sequence[str]], Collection[str]],
    *,
    jobs: int,
    timeout_s: int,
    told: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run the tests chosen from all tests of the suite, and return what became of each, sorted by name.

    Args:
        contestant: who runs them.
        world_size: the number of ranks.
        choose: picks from the names of all tests.
        jobs: how many tests run at once; each has its own processes and folders.
        timeout_s: then a test's ranks are killed.
        told: called with every outcome as it comes, from one thread at a time.
    """
    with tempfile.TemporaryDirectory(prefix="braid-conformance-") as name:
        folder = Path(name)
        first = Worker(contestant, world_size, timeout_s, folder / "0")
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        chosen = list(choose(first.all_tests))
        for test in chosen:
            waiting.put(test)
        outcomes: list[Outcome] = []
        lock = threading.Lock()

        def work(worker: Worker | None, index: int) -> None:
            while True:
                try:
                    test = waiting.get_nowait()
                except queue.Empty:
                    break
                if worker is None or not worker.alive():
                    worker = Worker(contestant, world_size, timeout_s, folder / str(index))
                outcome = worker.run(test)
                with lock:
                    outcomes.append(outcome)
                    told(outcome)
            if worker is not None:
                worker.stop()

        threads = [threading.Thread(target=work, args=(first if i == 0 else None, i)) for i in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(outcomes, key=lambda outcome: outcome.test)
