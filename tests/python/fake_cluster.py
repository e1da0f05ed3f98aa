# SPDX-License-Identifier: Apache-2.0
"""Workers of a strategy as threads of one process, on the fake service."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from braid.strategies import parameter_server
from braid.strategies.buffers import Buffers
from braid.strategies.elastic import elastic_average
from braid.strategies.gossip import gossip
from braid.strategies.local import local_steps
from braid.strategies.store import Meeting
from fake_service import FakeCore, FakeService, FakeStore
from slowness import limit


class Cluster:
    """Gives each thread its place among the workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeService.forget()
        self._place = threading.local()
        self._made = 0
        monkeypatch.setattr("braid.strategies.service._core", FakeCore)
        for under_test in (parameter_server, elastic_average, local_steps, gossip):
            monkeypatch.setattr(under_test, "meet", self._meet)
        self.alone()

    def alone(self) -> None:
        """Let this thread be the only worker of the strategies that it makes from now on."""
        self._made += 1
        self._place.meeting = Meeting(FakeStore(), 0, 1, f"alone.{self._made}")

    @property
    def meeting(self) -> Meeting:
        """The meeting of this thread."""
        return self._place.meeting

    def join_late(self, name: str, store: FakeStore, number: int = 0) -> None:
        """Let this thread be a late worker of a strategy."""
        self._place.meeting = Meeting(store, number, 0, name)

    def run(self, function: Callable[..., Any], workers: int, *args: Any, stores: bool = False) -> list[Any]:
        """Run ``function(worker, *args)`` in a thread per worker; return results, or what they raised."""
        self._made += 1
        store, results = FakeStore(), [None] * workers
        self.store, self.name = store, f"together.{self._made}"

        def work(worker: int) -> None:
            self._place.meeting = Meeting(store, worker, workers, self.name)
            try:
                results[worker] = function(worker, *args)
            except Exception as error:
                results[worker] = error

        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit(60))
            if thread.is_alive():
                raise TimeoutError("a worker did not come to its end")
        return results

    def _meet(self, group: object, name: object, timeout_s: float) -> Meeting:
        # A second strategy of a worker meets under another name.
        meeting = self._place.meeting
        if meeting.workers == 1:
            self.alone()
        return meeting


def must_work(results: list[Any]) -> list[Any]:
    """Return the results; raise what a worker raised."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each worker's exchange end before the next one's begins."""
    turn, begin = threading.Lock(), Buffers.begin

    def alone(self: Buffers) -> None:
        with turn:
            begin(self)
            self.finish()

    monkeypatch.setattr(Buffers, "begin", alone)
