# SPDX-License-Identifier: Apache-2.0
"""What a training step costs without communication."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Worker:
    """A worker's processor.

    Attributes:
        sample_s: seconds that one more sample of the batch costs.
        overhead_s: seconds of a step that do not depend on the batch.
    """

    sample_s: float
    overhead_s: float = 0.0

    def compute_s(self, samples: float) -> float:
        """Return the seconds of a step with so many samples. Without samples there is no step."""
        return self.overhead_s + samples * self.sample_s if samples else 0.0


@dataclass(frozen=True)
class Workload:
    """A training step.

    Attributes:
        batch: samples of all workers together.
        gradient_bytes: bytes of all gradients, in float32.
        workers: one for each rank.
        overlap: the part of a worker's computation that hides communication, from 0 to 1.
        training: samples that a plain all_reduce needs for the whole training; None for many.
    """

    batch: int
    gradient_bytes: int
    workers: Sequence[Worker]
    overlap: float = 0.0
    training: int | None = None

    def exposed_s(self, compute_s: float, communication_s: float) -> float:
        """Return the seconds of communication that computation does not hide."""
        return max(0.0, communication_s - self.overlap * compute_s)


def balanced(batch: int, workers: Sequence[Worker]) -> list[int]:
    """Return the samples of each worker so that all finish at nearly the same time.

    One sample after the other goes to the worker that would finish it first. A worker whose overhead is too long
    gets none. So no other division of whole samples has a shorter longest time.
    """
    rate = sum(1 / worker.sample_s for worker in workers)
    finish_s = (batch + sum(worker.overhead_s / worker.sample_s for worker in workers)) / rate
    # Give nearly all at once. The real number shared out is a lower bound of the finish of the best division.
    shares = [max(0, int((finish_s - one.overhead_s) / one.sample_s) - 1) for one in workers]
    if sum(shares) > batch:  # some workers take no part, and the others share more than the bound has counted
        shares = [0] * len(workers)
    for _ in range(batch - sum(shares)):
        first = min(range(len(workers)), key=lambda at: workers[at].compute_s(shares[at] + 1))
        shares[first] += 1
    return shares
