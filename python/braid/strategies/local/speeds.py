# SPDX-License-Identifier: Apache-2.0
"""Steps in proportion to speed, so that all push equally often (dynamic local updates, Liu et al. 2024)."""

import time
from typing import Any

from braid.strategies.local.preparation import MOST_SPEEDS
from braid.strategies.options import Options
from braid.strategies.service import SharedVector
from braid.strategies.store import Meeting


def steps_for(own: float, speeds: list[float], most: int) -> int:
    """Return how many steps a worker takes from one push to the next.

    Args:
        own: its speed, in steps per second.
        speeds: those of all workers; 0 where nobody knows.
        most: the steps of the fastest worker.

    Example:
        >>> steps_for(2.0, [8.0, 2.0], 20)
        5
    """
    fastest = max([own, *speeds])
    return max(1, int(most * own / fastest)) if fastest > 0 else most


class Speeds:
    """A vector at the servers with each worker's speed.

    Attributes:
        steps: how many steps this worker takes from one push to the next.
    """

    def __init__(self, meeting: Meeting, servers: list[int], settings: str, timeout_s: float, most: int) -> None:
        """Connect to the servers; `most`: the steps of the fastest worker."""
        self._vector = SharedVector(
            *(meeting, "speeds", servers),
            elements=MOST_SPEEDS,
            rule="add",
            settings=settings,
            options=Options(),
            timeout_s=timeout_s,
        )
        self._vector.start()
        self._place, self._told = meeting.member, 0.0
        self.steps = self._most = most
        self.start_clock()

    def start_clock(self) -> None:
        """Begin to measure: the worker computes from now on."""
        self._begun = time.perf_counter()

    def tell(self, steps: int, counters: dict[str, Any]) -> None:
        """Tell how many steps this worker has taken since start_clock(), and hear of the others.

        `counters`: of a vector at the same servers; they know which workers live.
        """
        own = steps / max(time.perf_counter() - self._begun, 1e-9)
        self._push(own)
        speeds = self._vector.out.tolist()
        living = [worker for worker in counters.get("workers") or range(MOST_SPEEDS) if worker < MOST_SPEEDS]
        self.steps = steps_for(own, [speeds[worker] for worker in living], self._most)

    def close(self, *, wait: bool) -> None:
        """Forget the own speed, and leave the service."""
        if wait:
            self._push(0.0)
        self._vector.close(wait=wait)

    def _push(self, own: float) -> None:
        self._vector.update.zero_()
        if self._place < MOST_SPEEDS:
            self._vector.update[self._place] = own - self._told
        self._vector.push_pull([(MOST_SPEEDS, {})])
        self._vector.finish()
        self._told = own
