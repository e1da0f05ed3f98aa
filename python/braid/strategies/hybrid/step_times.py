# SPDX-License-Identifier: Apache-2.0
"""How long a worker computes in a step: from the end of its exchange to the beginning of the next one."""

import statistics
import time


class StepTimes:
    """A stop watch. What a worker waits for others does not count, and a single slow step hardly does."""

    def __init__(self) -> None:
        """Begin without a time: what comes before the first step is no computing."""
        self._begun: float | None = None
        self._seconds: list[float] = []

    def begin(self) -> None:
        """Note that an exchange has ended."""
        self._begun = time.perf_counter()

    def end(self) -> None:
        """Note that an exchange begins."""
        if self._begun is not None:
            self._seconds.append(time.perf_counter() - self._begun)

    def median_s(self) -> float:
        """Return the median in seconds; infinite for a worker that has taken fewer than two steps."""
        return statistics.median(self._seconds) if self._seconds else float("inf")
