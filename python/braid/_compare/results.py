# SPDX-License-Identifier: Apache-2.0
"""What ``braid compare`` has measured: blocks of steps of each way, and how its loss went on."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from braid._compare.messages import Step

_WINDOW = 0.2  # of the samples: the last fifth counts for a loss


@dataclass(frozen=True)
class Block:
    """Some steps of all ranks, between two pauses.

    Attributes:
        steps: of all ranks together.
        seconds: of the rank that took longest.
        sent_bytes: by all hosts, to other hosts.
    """

    steps: int
    seconds: float
    sent_bytes: int

    @property
    def rate(self) -> float:
        """Steps in a second, of all ranks together."""
        return self.steps / self.seconds


@dataclass
class Result:
    """What was measured of one way.

    Attributes:
        name: of the way.
        why: one sentence on its speed; "" if there is none.
        blocks: one for each round.
        steps: of each rank, those before the first block included.
        ranks: their number.
        begun_s: how long each rank had trained when the first block began.
        algorithm: which carried most bytes on braid; "" if none did.
        failure: why it did not come to its end; "" if it did.
    """

    name: str
    why: str
    ranks: int
    blocks: list[Block] = field(default_factory=list)
    steps: list[list[Step]] = field(default_factory=list)
    begun_s: list[float] = field(default_factory=list)
    algorithm: str = ""
    failure: str = ""

    @property
    def step_s(self) -> float:
        """Seconds in which each rank takes one step, on average: the median of all blocks."""
        return statistics.median(self.ranks / block.rate for block in self.blocks)

    @property
    def bytes_per_step(self) -> float:
        """Bytes that cross between hosts while each rank takes one step."""
        steps = sum(block.steps for block in self.blocks)
        return self.ranks * sum(block.sent_bytes for block in self.blocks) / steps

    def times_as_fast_as(self, other: "Result") -> tuple[float, float, float]:
        """Return the ratio of rates: the median, lowest and highest of all rounds that both have."""
        ratios = [mine.rate / its.rate for mine, its in zip(self.blocks, other.blocks, strict=False)]
        return statistics.median(ratios), min(ratios), max(ratios)

    @property
    def samples(self) -> int:
        """Samples of all ranks; steps, where the batches are not known."""
        return sum(_weight(step) for rank in self.steps for step in rank)

    @property
    def seconds(self) -> float:
        """How long the blocks took."""
        return sum(block.seconds for block in self.blocks)

    def loss_after_samples(self, samples: int) -> float | None:
        """Return the mean loss of the last fifth of so many samples, of all ranks; None if there is none."""
        kept, so_far = [], 0
        for step in self._in_time():
            so_far += _weight(step)
            if so_far > samples:
                break
            kept.append(step)
        return self._mean_loss(kept)

    def loss_after_seconds(self, seconds: float) -> float | None:
        """Return the mean loss of the last fifth of the samples of so long a time; None if there is none."""
        return self._mean_loss([step for step in self._in_time() if step.seconds <= seconds])

    def curve(self, points: int) -> list[tuple[float, float]]:
        """Return seconds and losses, each the mean of one of so many parts of the steps."""
        found = [step for step in self._in_time() if step.loss is not None]
        size = max(1, len(found) // points)
        parts = [found[at : at + size] for at in range(0, len(found), size)]
        return [(part[-1].seconds, statistics.fmean(_losses(part))) for part in parts]

    def _in_time(self) -> list[Step]:
        """Return the steps of all ranks in their order; those before the first block took no time."""
        moved = [
            Step(max(0.0, step.seconds - begun), step.loss, step.samples)
            for begun, steps in zip(self.begun_s, self.steps, strict=True)
            for step in steps
        ]
        return sorted(moved, key=lambda step: step.seconds)

    def _mean_loss(self, steps: Sequence[Step]) -> float | None:
        """Return the mean loss of the last fifth of the samples, and of one step for each rank at least."""
        least = (1 - _WINDOW) * sum(_weight(step) for step in steps)
        so_far, kept = 0, []
        for step in steps:
            so_far += _weight(step)
            if so_far > least:
                kept.append(step)
        found = _losses(kept if len(kept) >= self.ranks else steps[-self.ranks :])
        return statistics.fmean(found) if found else None


def _weight(step: Step) -> int:
    return step.samples or 1


def _losses(steps: Sequence[Step]) -> list[float]:
    return [step.loss for step in steps if step.loss is not None]
