# SPDX-License-Identifier: Apache-2.0
"""How many samples of a global batch each worker gets. Integers only, so that all workers find the same."""

from collections.abc import Sequence

import numpy as np

GAIN_PERCENT = 5  # new shares must make the slowest worker's step shorter by so much


def equal(total: int, workers: int) -> list[int]:
    """Return shares that differ by 1 at most; the first workers have more, as with DistributedSampler."""
    return [total // workers + (worker < total % workers) for worker in range(workers)]


def proportional(total: int, speeds: Sequence[int], most: int | None = None) -> list[int]:
    """Return shares in proportion to speeds. Each worker has at least 1.

    Args:
        total: samples of the batch; at least one for each worker.
        speeds: positive integers, one for each worker.
        most: the largest share. It must leave room for all: ``most * workers >= total``.

    Returns:
        Shares whose sum is `total`. What rounding leaves goes to the largest remainders, then to the lowest rank.
    """
    most = total if most is None else most
    shares: list[int | None] = [None] * len(speeds)
    # A share outside of its bounds gets the bound, and the others divide the rest. The side that is further
    # outside goes first: it decides whether the others have more or less.
    while True:
        free = [worker for worker, share in enumerate(shares) if share is None]
        rest = total - sum(share or 0 for share in shares)
        sum_of_speeds = sum(speeds[worker] for worker in free)
        low = [worker for worker in free if rest * speeds[worker] < sum_of_speeds]
        high = [worker for worker in free if rest * speeds[worker] > most * sum_of_speeds]
        lacking = sum(sum_of_speeds - rest * speeds[worker] for worker in low)
        beyond = sum(rest * speeds[worker] - most * sum_of_speeds for worker in high)
        if not low and not high:
            break
        for worker in low if lacking >= beyond else high:
            shares[worker] = 1 if lacking >= beyond else most
    parts = {worker: divmod(rest * speeds[worker], sum_of_speeds) for worker in free}
    left = rest - sum(whole for whole, _ in parts.values())
    by_remainder = sorted(free, key=lambda worker: (-parts[worker][1], worker))
    for worker, (whole, _) in parts.items():
        shares[worker] = whole + (worker in by_remainder[:left])
    return [share or 0 for share in shares]


def revised(shares: list[int], speeds: Sequence[int], most: int | None = None) -> list[int]:
    """Return better shares of the same total, or the same ones if the gain is small or a speed is unknown (0)."""
    if not all(speeds):
        return shares
    better = proportional(sum(shares), speeds, most)
    slowest, shorter = _longest(shares, speeds), _longest(better, speeds)
    # The times are fractions: compare products of integers.
    is_worth_it = 100 * shorter[0] * slowest[1] <= (100 - GAIN_PERCENT) * slowest[0] * shorter[1]
    return better if is_worth_it else shares


def part_of(start: int, shares: Sequence[int], worker: int) -> list[int]:
    """Return this worker's places in a global order, for the batch that begins at `start`.

    Workers take turns, as with DistributedSampler, until they have their shares. So equal shares give each worker
    the samples that DistributedSampler would give it.
    """
    takes = np.arange(max(shares))[:, None] < np.asarray(shares)[None, :]
    owners = np.nonzero(takes)[1]
    return [start + int(place) for place in np.flatnonzero(owners == worker)]


def _longest(shares: Sequence[int], speeds: Sequence[int]) -> tuple[int, int]:
    """Return the largest share / speed, as a fraction."""
    worst = (0, 1)
    for share, speed in zip(shares, speeds, strict=True):
        if share * worst[1] > worst[0] * speed:
            worst = (share, speed)
    return worst
