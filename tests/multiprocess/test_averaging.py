# SPDX-License-Identifier: Apache-2.0
"""Training in which replicas part and are averaged now and then, in subgroups and altogether."""

from collections import OrderedDict

import pytest
import torch
import torch.distributed as dist
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess

STEPS = 8
PERIOD = 3


def step(rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, data: torch.Generator) -> None:
    optimizer.zero_grad()
    x = torch.randn(8, 6, generator=data) + rank.rank
    model(x).square().mean().backward()
    optimizer.step()


def weight_of(model: nn.Module) -> torch.Tensor:
    return next(model.parameters()).detach().clone()


def train_locally(rank: Rank) -> list[torch.Tensor]:
    """Average gradients among all, later among two neighbours, and models every few steps (post-local SGD)."""
    torch.manual_seed(0)
    pair, pairs = dist.new_subgroups(group_size=2)
    assert dist.get_process_group_ranks(pair) == [rank.rank // 2 * 2, rank.rank // 2 * 2 + 1]
    assert len(pairs) == rank.size // 2
    model = DistributedDataParallel(nn.Linear(6, 4))
    model.register_comm_hook(PostLocalSGDState(None, pair, start_localSGD_iter=2), post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, foreach=False),
        PeriodicModelAverager(period=PERIOD, warmup_steps=2),
    )
    data = torch.Generator().manual_seed(rank.rank)
    weights = [weight_of(model)]
    for _ in range(STEPS):
        step(rank, model, optimizer, data)
        weights.append(weight_of(model))
    return weights


def average_in_levels(rank: Rank) -> list[torch.Tensor]:
    """Average models of two neighbours often, of everybody seldom; gradients never."""
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    averager = HierarchicalModelAverager(OrderedDict([(2, 2), (4, rank.size)]), warmup_steps=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    data = torch.Generator().manual_seed(rank.rank)
    weights = [weight_of(model)]
    for _ in range(STEPS):
        step(rank, model, optimizer, data)
        averager.average_parameters(model.parameters())
        weights.append(weight_of(model))
    return weights


def train_both_ways(rank: Rank) -> list[list[torch.Tensor]]:
    return [train_locally(rank), average_in_levels(rank)]


def who_agrees(results: list[list[list[torch.Tensor]]], way: int, turn: int) -> list[int]:
    """Return, for each rank, the first rank whose weights are the same."""
    weights = [result[way][turn] for result in results]
    return [
        next(i for i, other in enumerate(weights) if torch.allclose(other, mine, rtol=1e-6)) for mine in weights
    ]


def test_model_averaging() -> None:
    ours, theirs = both_backends(train_both_ways, 4)
    torch.testing.assert_close(ours, theirs)
    together, pairs, apart = [0] * 4, [0, 0, 2, 2], [0, 1, 2, 3]
    # Step by step, beginning with the model all ranks made.
    local = [together, together, together, together, pairs, pairs, together, pairs, pairs]
    assert [who_agrees(ours, 0, turn) for turn in range(STEPS + 1)] == local
    levels = [together, apart, apart, pairs, apart, together, apart, pairs, apart]
    assert [who_agrees(ours, 1, turn) for turn in range(STEPS + 1)] == levels
