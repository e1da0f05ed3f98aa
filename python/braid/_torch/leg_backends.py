# SPDX-License-Identifier: Apache-2.0
"""Makes the two backends of a local leg: one of this host's ranks, and one of this rank's place on all hosts."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from braid._links import stated_links
from braid._torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions


def make_local(
    name: str,
    store: Any,
    hosts: Sequence[int],
    options: "_DistributedBackendOptions",
    members: Sequence[int],
    adapter: Any,
) -> "Backend":
    """Make the backend of this host's ranks, as torch makes it for a group of its own."""
    import torch.distributed as dist

    host = hosts[options.group_rank]
    ranks = [rank for rank, its in enumerate(hosts) if its == host]
    place, size = ranks.index(options.group_rank), len(ranks)
    of_host = dist.PrefixStore(f"host/{host}", store)
    group_id, global_ranks = f"{options.group_id}:host{host}", [members[rank] for rank in ranks]
    if name == BACKEND_NAME:  # for devices that no other backend here carries
        return _braid(adapter, of_host, place, size, options.timeout, group_id, global_ranks)
    if name == "gloo":
        made: Any = dist.ProcessGroupGloo(of_host, place, size, timeout=options.timeout)
    elif name in ("nccl", "xccl"):
        kind = getattr(dist, f"ProcessGroup{name.upper()}")
        its_options = kind.Options()
        its_options._timeout = options.timeout
        its_options.global_ranks_in_group, its_options.group_name = global_ranks, group_id
        made = kind(of_host, place, size, its_options)
    else:
        made = _plugin(name, of_host, place, size, options.timeout, group_id, global_ranks)
    return made  # type: ignore[no-any-return]


def _plugin(
    name: str, store: Any, rank: int, size: int, timeout: timedelta, group_id: str, global_ranks: list[int]
) -> Any:
    import torch.distributed as dist
    from torch._C._distributed_c10d import _DistributedBackendOptions

    plugin = dist.Backend._plugins[name.upper()]
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout)
    options = _DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.group_id, options.global_ranks_in_group = timeout, group_id, global_ranks
    return plugin.creator_fn(options, None)


def make_across(
    store: Any, hosts: Sequence[int], options: "_DistributedBackendOptions", members: Sequence[int], adapter: Any
) -> "Backend | None":
    """Make the group of the ranks with this rank's place on each host; None on one host."""
    import torch.distributed as dist

    if len(set(hosts)) == 1:
        return None
    seen: Counter[int] = Counter()
    places = []
    for host in hosts:
        places.append(seen[host])
        seen[host] += 1
    place = places[options.group_rank]
    ranks = sorted((rank for rank in range(len(hosts)) if places[rank] == place), key=lambda rank: hosts[rank])
    return _braid(
        adapter,
        dist.PrefixStore(f"place/{place}", store),
        ranks.index(options.group_rank),
        len(ranks),
        options.timeout,
        f"{options.group_id}:place{place}",
        [members[rank] for rank in ranks],
    )


def _braid(
    adapter: Any, store: Any, rank: int, size: int, timeout: timedelta, group_id: str, global_ranks: list[int]
) -> "Backend":
    made: Backend = adapter.create_backend(
        store, rank, size, timeout, group_id, global_ranks, BACKEND_NAME, None, stated_links(), ""
    )
    return made
