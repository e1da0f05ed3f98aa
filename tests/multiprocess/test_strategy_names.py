# SPDX-License-Identifier: Apache-2.0
"""Strategies of one name in one process group have keys of their own."""

import braid.strategies as bs
import pytest
import torch.distributed as dist
from braid import CommunicatorTimeoutError
from braid.strategies.store import meet
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

WAIT_S = limit(60.0)


def come_too_early(rank: Rank) -> None:
    meet(None, "mine", WAIT_S)
    if rank.rank == 1:  # what worker 0 has said of the first strategy is nothing about the second
        with pytest.raises(CommunicatorTimeoutError, match=r"worker 0 did not come within 0\.1 s"):
            meet(None, "mine", 0.1)
    dist.barrier()


def train_two(rank: Rank) -> list[int]:
    models = [nn.Linear(2, 1), nn.Linear(3, 1)]
    made = [bs.Gossip(model, SGD(model.parameters(), lr=0.1), name="mine", timeout=WAIT_S) for model in models]
    steps = []
    for number, (model, strategy) in enumerate(zip(models, made, strict=True)):
        for _ in range(3 + number):
            for parameter in model.parameters():
                parameter.grad = parameter.detach().clone()
            strategy._optimizer.step()
        steps.append(strategy.stats()["steps"])
    dist.barrier()
    for strategy in made:
        strategy.close()
    return steps


def test_the_second_of_a_name_waits_for_worker_0() -> None:
    run_ranks(come_too_early, 2)


def test_two_of_one_name_train_side_by_side() -> None:
    assert run_ranks(train_two, 2) == [[3, 4]] * 2
