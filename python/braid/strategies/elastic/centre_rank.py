# SPDX-License-Identifier: Apache-2.0
"""Which rank has the best links: there the centre of elastic averaging has its place (You, Buluc, Demmel 2017)."""

import time
from typing import Any

import torch
import torch.distributed as dist

from braid.strategies.store import Meeting

_KEY = "root"
_MOST_BYTES = 256 * 1024  # of a trial
_TRIALS = 2
# Another rank than 0 must be that much faster. So noise decides nothing where all links are equal.
_CLEAR_GAIN = 1.2


def choose(group: Any, meeting: Meeting, stated: int | None, count_bytes: int, timeout_s: float) -> int:
    """Return the rank from which a reduction and a broadcast take the least time; the same on all ranks.

    On a group of braid its cost model says that, from links that were measured or stated. On any other group it is
    measured now, with vectors of 256 KiB at most.

    Args:
        group: the process group of the rounds. Nobody else uses it now.
        meeting: where the workers meet.
        stated: what the user says; None for the best.
        count_bytes: of a vector.
        timeout_s: how long to wait for rank 0's choice.
    """
    if stated is not None or meeting.workers == 1:
        return stated or 0
    model = _cost_model(group)
    seconds = _predict(model, meeting.workers, count_bytes) if model else _measure(group, meeting, count_bytes)
    if meeting.member == 0:
        meeting.store.set(_KEY, str(best_of(seconds)).encode())
    return int(meeting.store.get(_KEY, timeout_s))


def best_of(seconds: list[float]) -> int:
    """Return the rank with the least time; 0 unless another one is clearly faster."""
    best = min(range(len(seconds)), key=seconds.__getitem__)
    return best if seconds[0] > _CLEAR_GAIN * seconds[best] else 0


def _cost_model(group: Any) -> Any:
    backend = group._get_backend(torch.device("cpu"))
    return getattr(getattr(backend, "wrapped_pg", backend), "explain", None)


def _predict(model: Any, ranks: int, count_bytes: int) -> list[float]:
    def predicted(collective: str, root: int) -> float:
        return float(model(collective, count_bytes, root=root)["predicted_s"])

    return [predicted("reduce", root) + predicted("broadcast", root) for root in range(ranks)]


def _measure(group: Any, meeting: Meeting, count_bytes: int) -> list[float]:
    vector = torch.zeros(max(1, min(_MOST_BYTES, count_bytes) // 4), dtype=torch.float32)
    seconds = torch.zeros(meeting.workers, dtype=torch.float64)
    for root in range(meeting.workers):
        times = []
        for _ in range(_TRIALS):
            dist.barrier(group=group)
            begun = time.perf_counter()
            dist.reduce(vector, group_dst=root, group=group)
            dist.broadcast(vector, group_src=root, group=group)
            times.append(time.perf_counter() - begun)
        seconds[root] = min(times)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
    found: list[float] = seconds.tolist()
    return found
