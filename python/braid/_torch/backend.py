# SPDX-License-Identifier: Apache-2.0
"""Makes a c10d Backend for one process group. Imported when the first group is created, not before."""

import os
from typing import TYPE_CHECKING, Any

from braid._links import stated_links
from braid._torch import ctrl_c, monitored, names, stats
from braid._torch.adapter import load_adapter

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions


def _store_for_servers(options: "_DistributedBackendOptions") -> Any:
    """Return the whole job's store, where aggregators find the default group. None: aggregators cannot join."""
    if not os.environ.get("BRAID_SERVERS") or options.global_ranks_in_group:
        return None
    from torch.distributed import PrefixStore

    store = options.store
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    # It needs its own connection: while one thread waits in a store, the others must wait for it.
    return store.clone() if hasattr(store, "clone") else store


def create_backend(options: "_DistributedBackendOptions", pg_options: Any = None) -> "Backend":
    """Create this rank's backend of one process group; torch calls it through the registered name.

    Args:
        options: store, rank, size, timeout and members of the group, from torch.
        pg_options: the caller's ``pg_options``, ignored. A script that was taken over passes another backend's
            options, which mean nothing to braid.

    Raises:
        AdapterError: the torch adapter cannot be found, built or loaded. The message says what to do.
    """
    del pg_options
    monitored.install()
    adapter = load_adapter()
    ctrl_c.watch(adapter)
    # torch leaves the list empty for the default group, because every rank is a member.
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    backend: Backend = adapter.create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        members,
        names.name_in_profiles(),
        _store_for_servers(options),
        stated_links(),
    )
    stats.watch(options.group_id, backend, members[options.group_rank])
    return backend
