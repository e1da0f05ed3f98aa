# SPDX-License-Identifier: Apache-2.0
"""How fast this worker computes, in samples per second, smoothed. Time that it waits for others does not count."""

import statistics
import time

_WEIGHT_OF_NEW = 0.5
UNIT = 1000  # speeds travel as integers, in thousandths of a sample per second


class Speed:
    """Times the batches of this worker. The speed is the median of some, averaged with what was known before."""

    def __init__(self) -> None:
        """Begin without knowing anything."""
        self.value = 0.0  # samples per second; 0 is unknown
        self._measured: list[float] = []
        self._samples, self._seconds, self._since = 0, 0.0, time.perf_counter()

    def begin(self, samples: int, since: float | None = None) -> None:
        """Begin a batch of so many samples. Its time counts from `since` (of perf_counter), or from now."""
        self.end()
        self._samples = samples
        self._since = time.perf_counter() if since is None else since

    def end(self) -> None:
        """End the batch. It counts if computed() or add() has said how long it took."""
        if self._samples and self._seconds > 0:
            self._measured.append(self._samples / self._seconds)
        self._samples, self._seconds = 0, 0.0

    def computed(self) -> None:
        """Count the time from the beginning, or from resumed(), until now."""
        now = time.perf_counter()
        self._seconds += max(0.0, now - self._since)
        self._since = now

    def resumed(self) -> None:
        """Compute again after a wait, or after something else that does not count."""
        self._since = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Do not count so many seconds that have passed already."""
        self._since += seconds

    def add(self, seconds: float) -> None:
        """Count time that somebody else has measured."""
        self._seconds += seconds

    def as_integer(self) -> int:
        """Return the smoothed speed in thousandths of a sample per second; 0 if nothing was measured so far."""
        if self._measured:
            new = statistics.median(self._measured)
            self.value = new if not self.value else self.value + _WEIGHT_OF_NEW * (new - self.value)
            self._measured.clear()
        return max(1, round(UNIT * self.value)) if self.value else 0
