# SPDX-License-Identifier: Apache-2.0
"""buffers="broadcast": float buffers of all workers follow worker 0's, in each strategy."""

from typing import Any

import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

STEPS = 24
FIRST = 5.0  # the mean of worker 0's batches


class Norm(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("mean", torch.full((2,), value))
        self.register_buffer("count", torch.tensor(int(value)))


def step(model: Norm, optimizer: torch.optim.Optimizer, rank: int) -> None:
    with torch.no_grad():  # as BatchNorm does, with a batch whose mean differs between workers
        model.mean.lerp_(torch.full((2,), FIRST + rank), 0.3)
    model.weight.grad = torch.ones(1)
    optimizer.step()


def at_servers(rank: Rank, kind: type[bs.ParameterServer], **options: Any) -> None:
    model = Norm(10.0 * rank.rank)
    with kind(model, SGD, lr=0.0, mode="sync", buffers="broadcast", **options) as optimizer:
        for _ in range(STEPS):
            step(model, optimizer, rank.rank)
        must_follow(model, optimizer)


def elastic(rank: Rank, **options: Any) -> None:
    model = Norm(10.0 * rank.rank)
    optimizer = SGD(model.parameters(), lr=0.0)
    with bs.ElasticAverage(model, optimizer, sync_every=2, buffers="broadcast", **options) as strategy:
        # Worker 2 stops early: it answers rounds, and its zeros must not count.
        for _ in range(STEPS // 2 if rank.rank == 2 else STEPS):
            step(model, optimizer, rank.rank)
        own = model.mean.clone()
        strategy.settle()
        must_follow(model, strategy)
        assert (model.mean == own).all()


def must_follow(model: Norm, strategy: Any) -> None:
    dist.barrier()
    with strategy.centre():
        assert model.mean[0].item() == pytest.approx(FIRST, abs=0.05)
        assert model.count.item() == 0


def broadcast(rank: Rank) -> None:
    for delay in (0, 1):
        at_servers(rank, bs.ParameterServer, delay=delay)
        at_servers(rank, bs.Hybrid, groups=[[0, 2], [1]], delay=delay)
    elastic(rank, schedule="first_come")
    for schedule in ("sync1", "sync3"):
        elastic(rank, schedule=schedule)


def test_buffers_are_the_first_workers() -> None:
    run_ranks(broadcast, 3)
