# SPDX-License-Identifier: Apache-2.0
"""torchft's LocalSGD and DiLoCo as rivals in diloco.py, where torchft is installed. Each rank is a replica."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from typing import Any

import trainings

LIMIT = timedelta(seconds=60)
KINDS = {"torchft's LocalSGD": "LocalSGD", "torchft's DiLoCo": "DiLoCo"}


def is_installed() -> bool:
    return importlib.util.find_spec("torchft") is not None


class Rival:
    """A replica of torchft, attached to an optimizer."""

    def __init__(self, name: str, model: Any, optimizer: Any, every: int) -> None:
        """Start a lighthouse on rank 0, and a manager on every rank."""
        import torch
        import torch.distributed as dist
        from torchft import Manager, ProcessGroupGloo
        from torchft.coordination import LighthouseServer
        from torchft.local_sgd import DiLoCo, LocalSGD

        rank, size, address = dist.get_rank(), dist.get_world_size(), trainings.own_address()
        self.optimizer = optimizer
        self._lighthouse: Any = None
        box: list[Any] = [None]
        if rank == 0:
            self._lighthouse = LighthouseServer(bind="0.0.0.0:0", min_replicas=size, join_timeout_ms=100)
            box = [f"http://{address}:{self._lighthouse.address().rpartition(':')[2]}"]
        dist.broadcast_object_list(box, 0)
        self._store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=LIMIT),
            load_state_dict=None,
            state_dict=None,
            min_replica_size=size,
            use_async_quorum=False,
            timeout=LIMIT,
            rank=0,
            world_size=1,
            store_addr=address,
            store_port=self._store.port,
            lighthouse_addr=box[0],
            replica_id=f"replica_{rank}",
            hostname=address,
            init_sync=False,
        )
        if KINDS[name] == "LocalSGD":
            self._strategy: Any = LocalSGD(self._manager, model, optimizer, every)
        else:
            outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
            self._strategy = DiLoCo(self._manager, [model], optimizer, outer, every)
        self._strategy.__enter__()

    def close(self) -> None:
        """Leave."""
        import torch.distributed as dist

        self._strategy.__exit__(None, None, None)
        dist.barrier()
        self._manager.shutdown(wait=False)
        if self._lighthouse is not None:
            self._lighthouse.shutdown()
