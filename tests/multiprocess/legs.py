# SPDX-License-Identifier: Apache-2.0
"""Ranks with a local leg, on hosts that are not there, and the values that they reduce."""

import os
from collections.abc import Sequence
from typing import Any

import braid
import torch
import torch.distributed as dist
from braid._torch import local_leg
from ranks import GROUP_TIMEOUT_S, Rank, run_ranks


def on_hosts(function: Any, hosts: Sequence[int], *args: Any, leg: str = "cpu:gloo", **more: Any) -> list[Any]:
    """Run a function on ranks of these hosts, with a local leg."""
    return run_ranks(
        there, len(hosts), function, tuple(hosts), *args, wire="shm,tcp", join=False,
        environment={"BRAID_LOCAL_LEG": leg}, **more,
    )  # fmt: skip


def there(rank: Rank, function: Any, hosts: tuple[int, ...], *args: Any) -> Any:
    os.environ["BRAID_HOST"] = f"host-{hosts[rank.rank]}"
    os.environ["BRAID_LINKS"] = "assume"
    told: list[str] = []
    local_leg.tell = told.append
    rank.join(timeout_s=10 if function.__name__ == "comes_not" else GROUP_TIMEOUT_S)
    try:
        result = function(rank, *args)
        return (result, told) if function.__name__ == "flat" else result
    finally:
        dist.destroy_process_group()


def values(rank: int, elements: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    drawn = torch.randint(0, 3, (elements,), generator=torch.Generator().manual_seed(100 * seed + rank))
    return drawn.to(dtype)


def calls_by_legs() -> int:
    """Return the number of collectives between hosts in groups of one rank per host."""
    return sum(
        row["calls"] for group in braid.stats() if ":place" in group["group"] for row in group["operations"]
    )


def expected(op: str, all_values: list[torch.Tensor]) -> torch.Tensor:
    dtype = all_values[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    stack = torch.stack([each.to(wide) for each in all_values])
    if op in ("SUM", "AVG"):
        total = stack.sum(0)
        return total / len(all_values) if op == "AVG" else total
    if op == "PRODUCT":
        return stack.prod(0)
    if op in ("MIN", "MAX"):
        return stack.amin(0) if op == "MIN" else stack.amax(0)
    result = all_values[0].clone()
    for each in all_values[1:]:
        result = {"BAND": result & each, "BOR": result | each, "BXOR": result ^ each}[op]
    return result.to(wide)
