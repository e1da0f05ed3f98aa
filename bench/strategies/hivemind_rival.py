# SPDX-License-Identifier: Apache-2.0
"""Hivemind's Optimizer with local updates as a rival in diloco.py, where hivemind is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import trainings

KINDS = {"Hivemind's local updates": "local"}
# Its guide says 3 to 5 s for small local runs. A round of diloco.py is over sooner.
MATCHMAKING_S = 0.5
LIMIT_S = 20.0


def is_installed() -> bool:
    return importlib.util.find_spec("hivemind") is not None


class Rival:
    """A peer of Hivemind, which updates its own values and averages them in the background."""

    def __init__(self, name: str, model: Any, optimizer: Any, every: int) -> None:
        """Meet at the distributed hash table of rank 0. A round begins after `every` steps of all ranks."""
        import hivemind
        import torch.distributed as dist

        here = [f"/ip4/{trainings.own_address()}/tcp/0"]
        peers: list[Any] = [None]
        if dist.get_rank() == 0:
            self._table = hivemind.DHT(host_maddrs=here, start=True)
            peers = [[str(each) for each in self._table.get_visible_maddrs()]]
        dist.broadcast_object_list(peers, 0)
        if dist.get_rank() != 0:
            self._table = hivemind.DHT(host_maddrs=here, initial_peers=peers[0], start=True)
        self.optimizer: Any = hivemind.Optimizer(
            dht=self._table,
            run_id=name,
            batch_size_per_step=trainings.BATCH,
            target_batch_size=trainings.BATCH * every * dist.get_world_size(),
            optimizer=optimizer,
            use_local_updates=True,
            matchmaking_time=MATCHMAKING_S,
            averaging_timeout=LIMIT_S,
            tracker_opts={"min_refresh_period": 0.1, "default_refresh_period": 0.1, "max_refresh_period": 0.5},
        )

    def close(self) -> None:
        """Leave."""
        import torch.distributed as dist

        dist.barrier()
        self.optimizer.shutdown()
        dist.barrier()
        self._table.shutdown()
