# SPDX-License-Identifier: Apache-2.0
"""One worker's batches of one epoch: which samples, and which batch the training has got to."""

from typing import Any

from braid.data import shares as sharing


def batch_ends(start: int, samples: int, size: int, workers: int) -> list[int]:
    """Return where each global batch ends in the order of an epoch.

    Args:
        start: where the first one begins.
        samples: where the last one ends.
        size: samples of a batch; at least two for each worker.
        workers: each needs a sample. If the last batch has fewer, it takes some of the one before it.
    """
    ends = [*range(start + size, samples, size), samples] if start < samples else []
    if len(ends) > 1 and ends[-1] - ends[-2] < workers:
        ends[-2] = samples - workers
    return ends


class Batches:
    """Draws batches, as lists of indices. A DataLoader with worker processes draws ahead of the training.

    Attributes:
        weight: what the gradient of the batch of now is multiplied by.
        position: how many samples of the epoch all workers together have got, this batch with them.
    """

    def __init__(self, sampler: Any) -> None:  # a BalancedSampler, which has these batches
        """Take the epoch that begins when the first batch is drawn."""
        self._sampler = sampler
        self._ends: list[int] | None = None
        self._order: list[int] = []
        self._drawn: list[tuple[int, int]] = []  # of each batch: samples of this worker, samples of all
        self._is_loader = False
        self.weight, self.position = 1.0, 0

    def __iter__(self) -> "Batches":
        """Return this object."""
        return self

    def __next__(self) -> list[int]:
        """Return the indices of this worker's next batch."""
        sampler, number = self._sampler, len(self._drawn)
        if self._ends is None:
            sampler._begin(self)
            self._ends, self._order = sampler._ends(), sampler._order()
            self._start = self.position = sampler._start
        elif sampler._settings.revise_every and number % sampler._settings.revise_every == 0:
            sampler._revise(number // sampler._settings.revise_every)
        if number == len(self._ends):
            if not self._is_loader:
                self.handed_out_all()
            raise StopIteration
        begin = self._ends[number - 1] if number else self._start
        total = self._ends[number] - begin
        shares = self._shares_of(total)
        places = sharing.part_of(begin, shares, sampler.rank)
        self._drawn.append((len(places), total))
        if not self._is_loader:
            self._is_now(number, None)
        return [self._order[place] for place in places]

    def handed_out(self, count: int, since: float) -> None:
        """Hear from a DataLoader: the training has `count` batches now; it asked for the last one at `since`."""
        self._is_loader = True
        self._is_now(count - 1, since)

    def handed_out_all(self) -> None:
        """Hear that the epoch has ended."""
        self._sampler._speed.end()
        self._sampler._finished(self)

    def _is_now(self, number: int, since: float | None) -> None:
        assert self._ends is not None
        self._sampler._hands_out(self)
        mine, total = self._drawn[number]
        self.weight = self._sampler.num_replicas * mine / total
        self.position = self._ends[number]
        self._sampler._speed.begin(mine, since)

    def _shares_of(self, total: int) -> list[int]:
        sampler = self._sampler
        shares: list[int] = sampler._shares
        if total == sum(shares):
            return shares
        return sharing.proportional(total, shares, sampler._settings.max_batch_size)
