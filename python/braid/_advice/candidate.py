# SPDX-License-Identifier: Apache-2.0
"""One way to train, and what is predicted of it."""

from dataclasses import dataclass, field
from enum import IntEnum


class Preference(IntEnum):
    """How much a candidate changes the training. A larger one must gain more to be advised."""

    EXACT = 0
    COMPRESSED = 1
    LOCAL_STEPS = 2
    ASYNCHRONOUS = 3


@dataclass(frozen=True)
class Candidate:
    """One way to train, with its prediction.

    Attributes:
        name: what the table calls it.
        how: the setting, command or strategy's text that brings it about.
        preference: how much it changes the training.
        workers: the ranks that take part, in rising order.
        samples: each worker's samples in a step; fractions stand for an equal division.
        samples_per_s: of all workers together.
        compute_s: a step's seconds of computation, summed over the workers that take part.
        staleness: the mean number of updates between a pull and its push. It is 0 where workers wait for
            each other. It is also 0 with gossip and elastic averaging: there a gradient changes the values that
            it was computed from.
        period: steps from one exchange to the next.
        alone: how far workers drift apart, as the period of LocalSGD that lets them drift as far; see drift.py.
        begin_s: how much longer the first steps take, in which it does not yet do what it does later.
        loss: by which part more samples it needs, as assumed.
        training: samples that a plain all_reduce needs for the whole training; None for many.
    """

    name: str
    how: str
    preference: Preference
    workers: tuple[int, ...]
    samples: tuple[float, ...]
    samples_per_s: float
    compute_s: float
    staleness: float = 0.0
    period: int = 1
    alone: float = 1.0
    begin_s: float = 0.0
    loss: float = 0.0
    training: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def worth(self) -> float:
        """Samples per second of a plain all_reduce that would train as fast."""
        begin_s = self.begin_s / self.training if self.training else 0.0
        return 1 / ((1 + self.loss) / self.samples_per_s + begin_s)

    @property
    def participant_seconds(self) -> float:
        """Seconds of a worker's presence for 1000 samples, a stand-in for energy."""
        return 1000 * len(self.workers) / self.samples_per_s

    @property
    def cpu_seconds(self) -> float:
        """Seconds of computation for 1000 samples, a stand-in for energy."""
        return 1000 * self.compute_s / sum(self.samples)
