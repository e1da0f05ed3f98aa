# SPDX-License-Identifier: Apache-2.0
"""Parts of torch that use collectives give the same on the simulated device as on the CPU."""

import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]


def start(rank: Rank) -> Any:
    """Load the device into this rank and join; streams of the pool are late."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    sim = simulated.load()
    rank.join()
    sim.set_delays(on_pool=300)
    return sim


def small_model(device: str) -> Any:
    """Return the same model on every rank."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    return model.to(device)


def a_few_steps(model: Any, optimizer: Any, rank: int, device: str) -> None:
    """Train on data of this rank."""
    import torch

    data = torch.Generator().manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=data).to(device)).square().mean().backward()
        optimizer.step()


def hybrid_sharding(rank: Rank, device: str) -> list[Any]:
    """FSDP2 on a mesh of two dimensions: replicas of shards."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = small_model(device)
    mesh = init_device_mesh(device, (2, rank.size // 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    a_few_steps(model, torch.optim.SGD(model.parameters(), lr=0.1), rank.rank, device)
    return [parameter.full_tensor() for parameter in model.parameters()]


def distributed_tensors(rank: Rank, device: str) -> list[Any]:
    """Redistribution of DTensors, and a product of two."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(device, (rank.size,))
    torch.manual_seed(1)
    left, right = torch.randn(5, 4).to(device), torch.randn(4, 3).to(device)
    rows = distribute_tensor(left, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = columns @ distribute_tensor(right, mesh, [Shard(0)])
    return [rows.full_tensor(), columns.full_tensor(), product.redistribute(mesh, [Replicate()]).to_local()]


def sharded_optimizer(rank: Rank, device: str) -> list[Any]:
    """ZeroRedundancyOptimizer below DistributedDataParallel."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(small_model(device))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    a_few_steps(model, optimizer, rank.rank, device)
    return list(model.parameters())


def functional_collectives(rank: Rank, device: str) -> list[Any]:
    """Collectives that return new tensors."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    mine = (torch.arange(8.0) + rank.rank).to(device)
    return [
        functional.all_reduce(mine, "sum", group) + 0,
        functional.all_gather_tensor(mine, 0, group) + 0,
        functional.reduce_scatter_tensor(mine, "avg", 0, group) + 0,
    ]


def checkpoint(rank: Rank, device: str) -> list[Any]:
    """A sharded checkpoint is saved, and loaded into another model."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (rank.size,))
    saved, loaded = small_model(device), small_model(device)
    for model in (saved, loaded):
        fully_shard(model, mesh=mesh)
    a_few_steps(saved, torch.optim.SGD(saved.parameters(), lr=0.1), rank.rank, device)
    folder = rank.folder / f"checkpoint of {device}"
    dcp.save({"model": saved.state_dict()}, checkpoint_id=folder)
    state = {"model": loaded.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    loaded.load_state_dict(state["model"])
    return [parameter.full_tensor() for parameter in loaded.parameters()]


PARTS = (distributed_tensors, sharded_optimizer, functional_collectives, checkpoint)


def as_on_the_cpu(rank: Rank, parts: list[Any]) -> None:
    """Run each part on both devices and compare."""
    sim = start(rank)
    import torch

    for part in parts:
        expected = part(rank, "cpu")
        found = part(rank, "sim")
        for mine, cpu in zip(found, expected, strict=True):
            assert torch.allclose(mine.detach().cpu(), cpu.detach(), atol=1e-5), part.__name__
    sim.set_delays()
    sim.synchronize()


def test_parts_of_torch() -> None:
    """DTensor, ZeRO, functional collectives, distributed checkpoints."""
    run_ranks(as_on_the_cpu, 2, list(PARTS), join=False)


def test_hybrid_sharding() -> None:
    """HSDP on two by two ranks."""
    run_ranks(as_on_the_cpu, 4, [hybrid_sharding], join=False)
