# SPDX-License-Identifier: Apache-2.0
"""Float buffers stay within the range of the values that workers ever had, in each strategy.

BatchNorm's running variance is such a buffer: below zero, the model evaluates to NaN.
"""

import random
import time
from typing import Any

import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

STEPS = 60
# Workers begin with MOST, and batches have values from LEAST to 10 LEAST. Where averages fall fast, a difference
# of old ones takes a new one far below all of them.
LEAST, MOST = 1e-2, 10.0
ROUNDING = 1e-6 * MOST

STRATEGIES = {
    "parameter server": lambda model: bs.ParameterServer(model, SGD, lr=0.0, mode="async"),
    "delayed parameter server": lambda model: bs.ParameterServer(
        model, SGD, lr=0.0, mode="ssp", staleness=3, delay=1
    ),
    "hybrid": lambda model: bs.Hybrid(model, SGD, lr=0.0, groups=[[0, 2], [1]], mode="async", delay=1),
    "elastic": lambda model: on(bs.ElasticAverage, model, sync_every=2, schedule="first_come", overlap=1),
    "elastic rounds": lambda model: on(bs.ElasticAverage, model, sync_every=3, schedule="sync3", overlap=1),
    "local": lambda model: on(bs.LocalSGD, model, sync_every=3),
    "local with two periods": lambda model: on(bs.LocalSGD, model, sync_every=(5, 10), groups=[[0, 2], [1]]),
    "local in groups": lambda model: on(
        bs.DiLoCo, model, sync_every=(2, 4), groups=[[0, 2], [1]], asynchronous=True
    ),
    "streaming": lambda model: on(
        bs.DiLoCo, model, sync_every=4, num_fragments=2, fragment_sync_delay=1, fragment_update_alpha=0.5
    ),
    "asynchronous": lambda model: on(bs.DiLoCo, model, sync_every=2, asynchronous=True),
    "quorum": lambda model: on(bs.LocalSGD, model, sync_every=2, quorum=2),
    **{
        f"gossip {mode}": lambda model, mode=mode: on(bs.Gossip, model, mode=mode)
        for mode in ("symmetric", "push_sum", "dissemination", "pull")
    },
}


class Average(nn.Module):
    """Parameters, and a moving average that forgets fast."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))
        self.register_buffer("average", torch.full((1000,), MOST))


def on(kind: Any, model: nn.Module, **options: Any) -> tuple[Any, SGD]:
    optimizer = SGD(model.parameters(), lr=0.0)
    return kind(model, optimizer, **options), optimizer


def stay_in_range(rank: Rank, name: str) -> tuple[float, float]:
    """Return the smallest and the largest value that this worker has seen."""
    chance = random.Random(f"{name} {rank.rank}")
    torch.manual_seed(rank.rank)
    model = Average()
    seen = [MOST]

    def look() -> None:
        seen.extend((model.average.min().item(), model.average.max().item()))

    made = STRATEGIES[name](model)
    strategy, optimizer = made if isinstance(made, tuple) else (made, made)
    with strategy:
        for _ in range(STEPS - 11 * rank.rank):  # who has ended answers the others
            with torch.no_grad():
                model.average.lerp_(LEAST * (1 + 9 * torch.rand(1000)), chance.choice((0.5, 0.9, 0.99)))
            model.weight.grad = torch.zeros(2, 2)
            optimizer.step()
            look()
            time.sleep(chance.choice((0.0, 0.0, 0.002, 0.005)))
        strategy.settle()
        look()
        dist.barrier()
        with strategy.centre():
            look()
        dist.barrier()
    return min(seen), max(seen)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_no_worker_gets_a_value_that_nobody_had(name: str) -> None:
    for least, most in run_ranks(stay_in_range, 3, name):
        assert least >= LEAST - ROUNDING, name
        assert most <= MOST + ROUNDING, name
