# SPDX-License-Identifier: Apache-2.0
"""torch's ShardedTensor on CPU, which asks a backend's name for its devices: the result must be Gloo's."""

import pytest
import torch
import torch.distributed as dist
from against_gloo import both_backends
from ranks import Rank, run_ranks
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec

pytestmark = pytest.mark.multiprocess


def gathered(rank: Rank) -> list[list[float]]:
    """Return the whole tensor on rank 0, nothing on others."""
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{other}/cpu" for other in range(rank.size)])
    tensor = sharded_tensor.ones(spec, 5, 3)
    for shard in tensor.local_shards():
        shard.tensor.mul_(rank.rank + 1)
    out = torch.zeros(5, 3) if rank.rank == 0 else None
    tensor.gather(0, out)
    return [] if out is None else out.tolist()


def test_gather() -> None:
    ours, theirs = both_backends(gathered, 2)
    assert ours == theirs == [[[1.0] * 3] * 3 + [[2.0] * 3] * 2, []]


def gathered_by_device(rank: Rank, backend: str) -> list[list[float]]:
    rank.store = dist.FileStore(str(rank.folder / "store"))
    dist.init_process_group(backend, store=rank.store, rank=rank.rank, world_size=rank.size)
    whole = gathered(rank)
    dist.destroy_process_group()
    return whole


@pytest.mark.parametrize("backend", ["cpu:braid,cuda:braid", "cpu:braid"])
def test_gather_where_devices_are_named(backend: str) -> None:
    whole = run_ranks(gathered_by_device, 2, backend, join=False)[0]
    assert whole == [[1.0] * 3] * 3 + [[2.0] * 3] * 2
