# SPDX-License-Identifier: Apache-2.0
"""Looks for a fault with races, under every schedule of delays and with several seeds."""

from collections.abc import Callable, Sequence
from typing import Any

from ranks import Rank
from slowness import limit

LATE_US = 5_000
TRIES = 3  # a busy machine may hide a fault: a rank then acts after the device's delay


def agreed(rank: Rank, name: str, reason: str) -> bool:
    """Return true if a race went wrong on any rank. The ranks tell each other through their folder."""
    if reason:
        rank.mark(f"wrong-{name}")
    rank.mark(f"end-{name}")
    for other in range(rank.size):
        rank.wait_for(f"end-{name}", other)
    return any((rank.folder / f"wrong-{name}.{other}").exists() for other in range(rank.size))


def found_by(
    rank: Rank, sim: Any, races: Sequence[Any], seeds: int, forming_s: float = 5, schedules: int | None = None
) -> list[str]:
    """Return, for each seed, the schedule and the race that went wrong on this rank; "" if none did.

    Args:
        rank: this rank; it has no group.
        sim: the simulated device.
        races: functions of the rank, the number of ranks and the device.
        seeds: how many.
        forming_s: the longest time to form a group.
        schedules: how many, of those in schedules.py; all unless given.
    """
    import torch.distributed as dist
    from schedules import SCHEDULES, delays

    reasons = []
    for seed in range(seeds):
        for number, schedule in enumerate(SCHEDULES[1:][:schedules]):
            name = f"{seed}-{number}"
            rank.join(prefix=name, timeout_s=limit(forming_s))
            rank.set_timeout(5)
            sim.set_delays(**delays(schedule, rank.rank, us=LATE_US, seed=seed))
            reason = ""
            try:
                for race in races:
                    race(rank.rank, rank.size, sim)
            except (AssertionError, RuntimeError, ValueError) as error:
                reason = f"{schedule}, {race.__name__}: {error}".partition("\n")[0]
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()
            sim.set_delays()
            try:
                sim.synchronize()
            except (RuntimeError, ValueError) as error:  # of a job on a stream
                reason = reason or f"{schedule}, a stream: {error}".partition("\n")[0]
            if agreed(rank, name, reason):
                break
        reasons.append(reason)
    return reasons


def each_seed_shows_it(run: Callable[[], list[str]], seeds: int) -> bool:
    """Return whether what found_by() returns on all ranks names a race for every seed, in one of some tries."""
    return any(len(found := run()) == seeds and all(found) for _ in range(TRIES))
