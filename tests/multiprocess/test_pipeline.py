# SPDX-License-Identifier: Apache-2.0
"""A model in stages, one or more to a rank: micro-batches go forwards and gradients backwards between them."""

import pytest
import torch
import torch.distributed as dist
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

pytestmark = pytest.mark.multiprocess

MICRO_BATCHES = 4


def make_layers(stages: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(stages)))


def loss_of(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().mean()


def train(rank: Rank, kind: str) -> list[torch.Tensor]:
    """Return the parameters of this rank's stages, which must be those of the same model in one piece."""
    here = 2 if kind == "interleaved" else 1
    count = rank.size * here
    layers, whole = make_layers(count), make_layers(count)
    mine = [layers[index] for index in range(rank.rank, count, rank.size)]
    stages = [
        PipelineStage(layer, rank.rank + i * rank.size, count, torch.device("cpu")) for i, layer in enumerate(mine)
    ]
    if kind == "interleaved":
        schedule = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=loss_of)
    else:
        schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[kind](stages[0], MICRO_BATCHES, loss_fn=loss_of)
    optimizers = [
        torch.optim.SGD([p for layer in piece for p in layer.parameters()], lr=0.5, foreach=False)
        for piece in (mine, [whole])
    ]
    data = torch.Generator().manual_seed(1)
    losses: list[torch.Tensor] = []
    for _ in range(2):
        x, target = torch.randn(8, 6, generator=data), torch.randn(8, 6, generator=data)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(whole(x), target).backward()
        inputs = (x,) if rank.rank == 0 else ()
        if rank.rank == rank.size - 1:
            y = schedule.step(*inputs, target=target, losses=losses)
            torch.testing.assert_close(y, whole(x))
        else:
            schedule.step(*inputs)
        for optimizer in optimizers:
            optimizer.step()
    trained = [p.detach() for layer in mine for p in layer.parameters()]
    uncut = [p.detach() for index in range(rank.rank, count, rank.size) for p in whole[index].parameters()]
    torch.testing.assert_close(trained, uncut)
    assert not torch.equal(trained[0], make_layers(count)[rank.rank][0].weight)
    dist.barrier()
    return [*trained, *losses]


def train_each_way(rank: Rank) -> dict[str, list[torch.Tensor]]:
    return {kind: train(rank, kind) for kind in ("gpipe", "1f1b", "interleaved")}


def test_schedules() -> None:
    ours, theirs = both_backends(train_each_way, 2)
    torch.testing.assert_close(ours, theirs)


def test_inner_stages() -> None:
    ours, theirs = both_backends(train, 3, "1f1b", wire="tcp")
    torch.testing.assert_close(ours, theirs)
