# SPDX-License-Identifier: Apache-2.0
"""The default group of torch.distributed, joined by the ranks of one contestant."""

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

_TIMEOUT = timedelta(seconds=120)


def join(backend: str, rank: int, size: int, folder: str | Path, listen_at: str = "") -> None:
    """Make the default group; RuntimeError where this torch has no such backend.

    Args:
        backend: its name.
        rank: this process.
        size: how many there are.
        folder: that all of them see.
        listen_at: "host:port" where rank 0's store listens; in the folder without.
    """
    if not dist.is_backend_available(backend):
        raise RuntimeError(f"this torch ({torch.__version__}) has no {backend}")
    store: dist.Store
    if listen_at:
        host, port = listen_at.split(":")
        store = dist.TCPStore(host, int(port), size, rank == 0, _TIMEOUT)
    else:
        store = dist.FileStore(str(Path(folder, "store")), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
