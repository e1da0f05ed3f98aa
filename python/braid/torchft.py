# SPDX-License-Identifier: Apache-2.0
"""A process group for torchft, on braid: replicas may die and come back while the others train on.

torchft (``pip install torchft-nightly``) makes groups anew while a job runs. So it takes objects, not names.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions

try:
    from torchft.process_group import ProcessGroupWrapper  # type: ignore[import-not-found]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "braid.torchft needs torchft: pip install torchft-nightly", name=error.name
    ) from error

from braid._torch.backend import create_backend
from braid._torch.backend_name import BACKEND_NAME

__all__ = ["ProcessGroupBraid"]


class ProcessGroupBraid(ProcessGroupWrapper):  # type: ignore[misc]
    """torchft's process group on braid, for ``torchft.Manager(pg=...)``.

    Each time replicas die or come, torchft makes the group anew with those that are there. An operation that waits
    for a dead replica ends at once, with an error that torchft's Manager notes: the step does not count.

    Example:
        ``manager = torchft.Manager(pg=braid.torchft.ProcessGroupBraid(), min_replica_size=2, ...)``;
        examples/torchft_replicas.py is a whole training.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        """Have no group yet: torchft makes it.

        Args:
            timeout: limit of the group's forming, and of each operation.
        """
        super().__init__(timeout)

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name that torchft shows."""
        return "torchft-braid"

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        options = _DistributedBackendOptions()
        options.store, options.timeout = store, self._timeout
        options.group_rank, options.group_size = rank, world_size
        # With members it is no default group, whose ranks would agree about the whole job's settings.
        options.global_ranks_in_group = self._global_ranks or list(range(world_size))
        options.group_id = f"torchft {self._uuid}"
        backend = create_backend(options)
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        for device in dist.Backend.backend_capability[BACKEND_NAME]:
            group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, backend)
        return group
