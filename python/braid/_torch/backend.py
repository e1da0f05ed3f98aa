# SPDX-License-Identifier: Apache-2.0
"""Makes a c10d Backend for one process group. Imported when the first group is created, not before."""

import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from braid import _settings
from braid._links import stated_links
from braid._notices import tell
from braid._torch import ctrl_c, end_lines, local_leg, monitored, names, start_line, stats
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
        ValueError: a setting in the environment has a wrong value.
        AdapterError: the torch adapter cannot be found, built or loaded. The message says what to do.
    """
    del pg_options
    # torch leaves the list empty for the default group, because every rank is a member.
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    is_default = not options.global_ranks_in_group
    _settings.check(members[options.group_rank])
    if is_default and _settings.value_of("BRAID_STRATEGY") and "braid._unedited.install" not in sys.modules:
        tell("BRAID_STRATEGY is ignored: it was set after torch was imported")
    monitored.install()
    adapter = load_adapter()
    ctrl_c.watch(adapter)
    local_leg.watch_derived(adapter)
    backend: Backend = adapter.create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        timedelta(milliseconds=round(options.timeout / timedelta(milliseconds=1))),  # torch has a 32-bit float
        options.group_id,
        members,
        names.name_in_profiles(),
        _store_for_servers(options),
        stated_links(),
        _settings.compared() if is_default else "",
    )
    leg = local_leg.join(backend, options, members, adapter)
    if is_default:
        start_line.tell_start(backend, options.group_rank, options.group_size, leg)
        end_lines.watch(options.group_rank, backend)
    stats.watch(options.group_id, backend, members[options.group_rank])
    return backend
