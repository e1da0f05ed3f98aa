# SPDX-License-Identifier: Apache-2.0
"""Runs one function on braid and on Gloo, in processes of their own, so that what it returns can be compared.

The function sees a default group and everything that torch makes of it (meshes, subgroups), and does not know
whose it is.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ranks import GROUP_TIMEOUT_S, Rank, _load, run_ranks

_kept: list[Any] = []


def both_backends(
    function: Callable[..., Any],
    size: int,
    *args: Any,
    wire: str = "shm",
    environment: Mapping[str, str] | None = None,
) -> tuple[list[Any], list[Any]]:
    """Run ``function(rank, *args)`` on `size` ranks of braid, then of Gloo.

    Args:
        function: a function at the top of a module.
        size: number of ranks.
        args: picklable.
        wire: what braid's ranks talk over.
        environment: variables the ranks get.

    Returns:
        What the ranks returned, by rank: braid's and Gloo's.
    """
    place = (sys.modules[function.__module__].__file__, function.__qualname__)
    ours, theirs = (
        run_ranks(
            *(call_on, size, backend, place, args),
            **{"wire": wire, "join": False, "environment": environment, "rival": backend == "gloo"},
        )
        for backend in ("braid", "gloo")
    )
    return ours, theirs


def call_on(rank: Rank, backend: str, place: tuple[str, str], args: tuple[Any, ...]) -> Any:
    """Call a function on the named backend, and make sure that all groups it made are of that backend."""
    import torch
    import torch.distributed as dist

    if backend == "braid":
        rank.join()
    else:
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("gloo", dist.FileStore(str(rank.folder / "store"))),
            rank=rank.rank,
            world_size=rank.size,
            timeout=timedelta(seconds=GROUP_TIMEOUT_S),
        )
    value = _load(place)(rank, *args)
    groups = list(dist.distributed_c10d._world.pg_map)
    assert {dist.get_backend(group) for group in groups} == {backend}
    if backend == "gloo":
        # If a callback of a future holds the group last, Gloo's own thread destroys it, joins itself and aborts.
        _kept.extend(groups)
    if backend == "braid":
        rows = [row for group in groups for row in group._get_backend(torch.device("cpu")).stats()]
        assert sum(row["calls"] for row in rows) > 0, "nothing went over braid"
    return value
