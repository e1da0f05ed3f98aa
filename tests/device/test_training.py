# SPDX-License-Identifier: Apache-2.0
"""Training on the simulated device gives the CPU's parameters, whatever is late; scripts for NCCL run unedited."""

import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]

STEPS = 4
WAYS = ("ddp", "ddp with a hook", "fsdp2")


def load() -> Any:
    """Load the device into this rank."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    return simulated.load()


def trained(way: str, device: str, rank: int) -> list[Any]:
    """Train a small model for a few steps and return its parameters on the CPU."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    model = model.to(device)
    if way == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model, bucket_cap_mb=0.0005)
    if way == "ddp with a hook":
        model.register_comm_hook(None, averaging_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    for _ in range(STEPS):
        inputs, targets = torch.randn(8, 12).to(device), torch.randn(8, 3).to(device)
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [parameter.detach().cpu() for parameter in full]


def averaging_hook(state, bucket):  # type: ignore[no-untyped-def]  # torch wants its own annotations or none
    """Average the gradients, with the division in a callback of the future."""
    import torch.distributed as dist

    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0].div_(dist.get_world_size()))


def equals_the_cpu(rank: Rank, ways: list[str], schedules: list[str], seeds: int) -> None:
    """Train in each way under each schedule and compare with the CPU."""
    sim = load()
    import simulated

    simulated.offer_flags()  # which are used with BRAID_STREAM_WAITS=1
    rank.join()
    import torch
    from schedules import delays

    for way in ways:
        expected = trained(way, "cpu", rank.rank)
        for schedule in schedules:
            for seed in range(seeds):
                sim.set_delays(**delays(schedule, rank.rank, us=150, seed=seed))
                found = trained(way, "sim", rank.rank)
                for index, (mine, cpu) in enumerate(zip(found, expected, strict=True)):
                    worst = (mine - cpu).abs().max().item()
                    assert torch.allclose(mine, cpu, atol=1e-5), f"{way}, {schedule}: {index} is {worst} off"
    sim.set_delays()
    sim.synchronize()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream_waits", ["0", pytest.param("1", marks=pytest.mark.long)])
def test_training(way: str, stream_waits: str) -> None:
    """All schedules, one seed, with waits of the CPU and of the stream."""
    from schedules import SCHEDULES

    environment = {"BRAID_STREAM_WAITS": stream_waits}
    run_ranks(equals_the_cpu, 2, [way], list(SCHEDULES), 1, join=False, environment=environment)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_training_with_many_seeds(way: str) -> None:
    """Twenty seeds of random delays, three ranks."""
    run_ranks(equals_the_cpu, 3, [way], ["random"], 20, join=False, timeout_s=280)


def script_for_nccl(rank: Rank) -> list[str]:
    """Do what scripts for NCCL do: a device per rank, options, groups by name, barriers with a device."""
    load()
    import os

    import torch
    import torch.distributed as dist
    from braid._torch import takeover

    takeover.install("nccl")  # as BRAID_TAKEOVER=nccl does when torch is imported
    os.environ.update(RANK=str(rank.rank), WORLD_SIZE=str(rank.size), LOCAL_RANK="0")
    torch.sim.set_device(0)
    options = torch._C._distributed_c10d.Backend.Options("nccl")  # as ProcessGroupNCCL.Options is
    dist.init_process_group(
        backend="nccl",
        init_method=f"file://{rank.folder / 'meeting'}",
        rank=rank.rank,
        world_size=rank.size,
        device_id=torch.device("sim", 0),
        pg_options=options,
    )
    group = dist.new_group(list(range(rank.size)), backend="nccl", pg_options=options)
    pair = dist.new_group([0, 1], backend="cpu:gloo,sim:nccl")
    tensor = torch.full((3,), rank.rank + 1.0, device="sim")
    dist.all_reduce(tensor, group=group)
    dist.barrier(device_ids=[0])
    dist.barrier(group=pair)
    assert tensor.cpu().eq(3).all()
    shared: list[Any] = [rank.rank]
    dist.broadcast_object_list(shared, 0)
    assert shared == [0]
    names = [dist.get_backend(), dist.get_backend(group)]
    dist.destroy_process_group()
    return names


def test_takeover_of_nccl() -> None:
    """The script still sees the name it asked for."""
    assert run_ranks(script_for_nccl, 2, join=False) == [["nccl", "nccl"]] * 2
