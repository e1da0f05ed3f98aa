# SPDX-License-Identifier: Apache-2.0
"""The backend of a process group on braid, and ``braid.wires()``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup


def backend_of(group: "ProcessGroup | None", device: "torch.device | None" = None) -> Any:
    """Return braid's backend of a group, None for the default group; RuntimeError if it is on another backend."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    backend: Any = (group or c10d._get_default_group())._get_backend(device or torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)
    if not hasattr(backend, "lossy_allreduce"):
        raise RuntimeError(
            f"this needs a group on braid, and this one is on {backend.name()}; make it with "
            'init_process_group("braid"), or start the script with `braid run`'
        )
    return backend


def wires(group: "ProcessGroup | None" = None) -> list[str]:
    """Return one line per rank: the wire to that rank, and why no better wire is used.

    Args:
        group: a group on braid; None for the default group.

    Raises:
        RuntimeError: the group is on another backend.
        ValueError: there is no default group yet.

    Example:
        >>> import braid
        >>> print(*braid.wires(), sep="\\n")  # doctest: +SKIP
        rank 0: this process
        rank 1: shm, single copy
    """
    return list(backend_of(group).wires())
